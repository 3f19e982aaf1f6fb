//! Settings and rules from bytes of a fuzzer.

use rig_datapath::balancer::Sizes;

use crate::ipvsadm::{Line, rules as lines};
use crate::message::{ForwardingMethod, RuleChange};
use crate::names::NameResolution;
use crate::settings::{Completeness, Rules, Settings, changes};
use crate::sync::session::PeerSession;
use crate::sync::wire::{self, Body, Key};

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

/// Reads a datagram of another balancer, as it came and as someone would have sealed it who has the key. How many records that one has.
///
/// # Panics
/// When what was read is written as something else, or anything is believed without the key.
pub fn sync(message: &[u8]) -> usize {
    let (key, other) = (Key::new([1; 32]), Key::new([2; 32]));
    let sealed = wire::resealed(&key, message);
    assert!(wire::open(&other, &sealed).is_err());
    let _ = wire::open(&key, message);
    let Ok((header, body)) = wire::open(&key, &sealed) else { return 0 };
    let (again, count) = match &body {
        Body::Hello(hello) => (wire::hello(&key, header, *hello), 0),
        Body::Records(records) => {
            let mut bytes = Vec::new();
            records.iter().for_each(|record| wire::put_record(&mut bytes, record));
            (wire::records(&key, header, records.len() as u16, &bytes), records.len())
        }
    };
    assert_eq!(again, sealed);
    let mut session = PeerSession::new(1, 2);
    let hello = if let Body::Hello(hello) = &body { Some(hello) } else { None };
    // Nobody has answered a challenge that nobody has heard.
    assert!(
        hello.is_some_and(|hello| hello.echo == 2) || !session.accept(header, hello, 3).is_ok_and(|of| of.is_believed)
    );
    count
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
