//! Control messages of the originals, as they passed between them.

use serde::Deserialize;

use super::wire::{MESSAGE, Message};

/// One test's messages.
#[derive(Debug)]
pub struct Exchange {
    /// Of netperf's command line, beside `-H`.
    pub options: String,
    pub request: Message,
    pub response: Message,
    pub results: Message,
}

#[derive(Deserialize)]
struct Recording {
    tool: String,
    exchange: Vec<RecordedExchange>,
}

#[derive(Deserialize)]
struct RecordedExchange {
    options: String,
    messages: Vec<String>,
}

fn message(line: &str, from: &str) -> Message {
    let hex = line.strip_prefix(from).unwrap_or_else(|| panic!("{line} is not from {from}")).trim();
    let mut bytes = [0; MESSAGE];
    for (byte, at) in bytes.iter_mut().zip((0..hex.len()).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    }
    Message::from_bytes(bytes)
}

pub fn exchanges() -> Vec<Exchange> {
    let recording: Recording = toml::from_str(include_str!("exchanges.toml")).unwrap();
    assert_eq!(recording.tool, "netperf 2.7.1");
    let exchange = |recorded: RecordedExchange| {
        let [request, response, results] = &recorded.messages[..] else { panic!("{}", recorded.options) };
        Exchange {
            options: recorded.options,
            request: message(request, ">"),
            response: message(response, "<"),
            results: message(results, "<"),
        }
    };
    recording.exchange.into_iter().map(exchange).collect()
}
