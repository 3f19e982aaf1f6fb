//! `-h` in both dialects, and which version this is.

use super::dialect::Dialect;
use super::options::{OptionSpec, OptionUse, Value};
use super::{linux, linux_text, windows};

/// Columns of a terminal, and where the text after an option's name begins.
const WIDTH: usize = 80;
const HELP_AT: usize = 29;

/// The options of a dialect: those that are honoured, then those that are not.
pub fn text(dialect: Dialect) -> String {
    let (options, other): (&[OptionSpec], _) = match dialect {
        Dialect::Linux => (&linux::OPTIONS, Dialect::Windows),
        Dialect::Windows => (&windows::OPTIONS, Dialect::Linux),
    };
    let mut text = format!(
        "NTttcp for {}, as netrig {} speaks it; for {}: --dialect {other} -h\n\n",
        dialect.system(),
        env!("CARGO_PKG_VERSION"),
        other.system(),
    );
    let honoured = options.iter().filter(|spec| spec.use_of_it == OptionUse::Honoured && spec.name != "--help");
    honoured.for_each(|spec| text.push_str(&line(spec, spec.help)));
    let mut refused = options.iter().filter(|spec| spec.use_of_it != OptionUse::Honoured).peekable();
    if refused.peek().is_some() {
        text.push_str("\nNot honoured, each with the reason when it is given:\n");
        refused.for_each(|spec| text.push_str(&line(spec, spec.help)));
    }
    text.push_str(match dialect {
        Dialect::Linux => {
            "\nExamples, a receiver and its sender:\n  ntttcp -r -P 4 -t 10\n  ntttcp -s 10.0.1.4 -P 4 -n 1 -t 10\n"
        }
        Dialect::Windows => {
            "\nExamples, a receiver and its sender:\n  ntttcp -r -m 1,*,10.0.1.4 -rb 2M -a 16 -t 15\n  ntttcp -s -m 1,*,10.0.1.4 -l 128k -a 2 -t 15\n"
        }
    });
    text
}

/// Whether nothing else is asked than which version this is. The original takes `-V` without a role for a receiver that tells
/// details, which waits for ever.
pub fn is_of_version(words: &[String]) -> bool {
    let asks = |word: &String| {
        let letters = word.strip_prefix('-').filter(|letters| !letters.is_empty());
        word == "--version" || letters.is_some_and(|letters| letters.bytes().all(|letter| letter == b'V'))
    };
    !words.is_empty() && words.iter().all(asks)
}

pub fn version() -> String {
    format!("{}\nBeside -r or -s, -V tells details of the test.\n", linux_text::TITLE)
}

fn line(spec: &OptionSpec, help: &str) -> String {
    let value = match spec.value {
        Value::None => String::new(),
        Value::Needed(what) => format!(" {what}"),
        Value::Optional(what) => format!(" [{what}]"),
        Value::Several(what) => format!(" {what} ..."),
    };
    let name = if spec.name == "-h" { "-h, --help" } else { spec.name };
    let name = format!("  {:<HELP_AT$}", format!("{name}{value}"));
    let indent = " ".repeat(HELP_AT + 2);
    let options = textwrap::Options::new(WIDTH).initial_indent(&name).subsequent_indent(&indent);
    format!("{}\n", textwrap::fill(help, options))
}
