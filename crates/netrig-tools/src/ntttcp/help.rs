//! `-h` in both dialects.

use super::dialect::Dialect;
use super::options::{Spec, Use, Value};
use super::{linux, windows};

/// The options of a dialect: those that are honoured, then those that are not.
pub fn text(dialect: Dialect) -> String {
    let (options, other): (&[Spec], _) = match dialect {
        Dialect::Linux => (&linux::OPTIONS, Dialect::Windows),
        Dialect::Windows => (&windows::OPTIONS, Dialect::Linux),
    };
    let mut text = format!(
        "NTttcp as netrig {} speaks it: the options of NTttcp for {}.\nThose of NTttcp for {}: --dialect {other} -h\n\n",
        env!("CARGO_PKG_VERSION"),
        dialect.system(),
        other.system(),
    );
    let honoured = options.iter().filter(|spec| spec.use_of_it == Use::Honoured);
    honoured.for_each(|spec| text.push_str(&line(spec, spec.help)));
    let mut refused = options.iter().filter(|spec| spec.use_of_it != Use::Honoured).peekable();
    if refused.peek().is_some() {
        text.push_str("\nNot honoured, each with the reason when it is given:\n");
        refused.for_each(|spec| text.push_str(&line(spec, spec.help)));
    }
    text.push_str(match dialect {
        Dialect::Linux => {
            "\nA receiver:  ntttcp -r -P 4 -t 10\nIts sender:  ntttcp -s 10.0.1.4 -P 4 -n 1 -t 10\n"
        }
        Dialect::Windows => {
            "\nA receiver:  ntttcp -r -m 1,*,10.0.1.4 -rb 2M -a 16 -t 15\nIts sender:  ntttcp -s -m 1,*,10.0.1.4 -l 128k -a 2 -t 15\n"
        }
    });
    text
}

fn line(spec: &Spec, help: &str) -> String {
    let value = match spec.value {
        Value::None => String::new(),
        Value::Needed(what) => format!(" {what}"),
        Value::Optional(what) => format!(" [{what}]"),
        Value::Several(what) => format!(" {what} ..."),
    };
    format!("  {:<34} {help}\n", format!("{}{value}", spec.name))
}
