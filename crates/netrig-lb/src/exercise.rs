//! Settings and rules from bytes of a fuzzer.

use rig_datapath::balancer::Sizes;

use crate::ipvsadm::{Line, rules as lines};
use crate::message::{ForwardingMethod, RuleChange};
use crate::names::NameResolution;
use crate::settings::{Completeness, Rules, Settings, changes};

/// Reads settings as a file has them, and writes them again. An error is an answer. How many services there are.
///
/// # Panics
/// When what was written is read as something else.
pub fn settings(text: &str) -> usize {
    let settings = Settings::parse("lb.toml", text, Completeness::Required).map_err(|error| error.to_string());
    let Ok(settings) = settings else { return 0 };
    assert_read_again(&settings);
    assert_eq!(changes(&settings.rules, &settings.rules), Vec::<String>::new());
    settings.rules.services.len()
}

/// Reads lines of ipvsadm, and does what they say where nothing is yet. An error is an answer, and no name is looked up. How many
/// edits were made.
///
/// # Panics
/// When edits change on their way to a balancer, or the rules that they make are written and read as others.
pub fn rules(text: &str) -> usize {
    for line in text.lines() {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let _ = Line::parse_by(&words, NameResolution::Numbers).map_err(|error| error.to_string());
    }
    let Ok(said) = lines::parse(text, NameResolution::Numbers).map_err(|error| error.to_string()) else { return 0 };
    let sent = serde_json::to_string(&said.edits);
    let received = sent.and_then(|sent| serde_json::from_str::<Vec<RuleChange>>(&sent));
    assert_eq!(received.as_ref().ok(), Some(&said.edits));
    let mut rules = Rules::default();
    let made = said.edits.iter().filter(|edit| rules.edit(edit).is_ok()).count();
    for service in &mut rules.services {
        // They are not written where they are not used.
        if matches!(service.forward, Some(ForwardingMethod::Nat | ForwardingMethod::Route)) {
            service.local.clear();
        }
    }
    if rules.config(Sizes::default().connections).validate().is_ok() {
        assert_read_again(&Settings { rules, ..Settings::default() });
    }
    made
}

/// Gives bytes to the family "IPVS" as a program's datagram. How many services there are then.
///
/// # Panics
/// When an answer is no whole message.
pub fn ipvs(datagram: &[u8]) -> usize {
    crate::ipvs::stand::play(datagram)
}

/// Reads a text as lines of ipvsadm and as a keepalived.conf, and writes what they come to as a file. How many services there are.
pub fn imported(text: &str) -> usize {
    crate::import::play(text)
}

fn assert_read_again(settings: &Settings) {
    let text = settings.to_toml();
    let read = Settings::parse("written", &text, Completeness::Optional).map_err(|error| error.to_string());
    assert_eq!(read.as_ref(), Ok(settings), "{text}");
}
