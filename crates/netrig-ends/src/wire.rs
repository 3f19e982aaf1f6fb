//! What the two ends say to each other on the control connection: one JSON value a line.
//!
//! ```text
//! server                                   client
//!   welcome {protocol, version}   ---->
//!                                 <----     hello {protocol, version}
//!   machine {...}                 ---->
//!                                 <----     clock {dscp, hop_limit}  (datagrams, before and after)
//!   answering {port}              ---->     (exchanges, then pings)
//!                                 <----     open {load, phases, cpus}
//!   listening {port}              ---->     (the client's worker connects)
//!   connected                     ---->
//!                                 <----     ping {number}
//!   pong {number, now_ns}         ---->     (several times)
//!                                 <----     go {start_ns}
//!   sample {...}                  ---->     (each interval)
//!   done {record, machine}        ---->
//!                                 <----     open ...  or the end of the connection
//! ```
//! With a key each line but the first has a seal before it. Instead of any of its frames the server may send `refused` (it will not do that) or `failed` (it tried), and close; a
//! server that ends says `goodbye` to clients without a running test.

use rig_facts::record::Environment;
use rig_load::exchange::PathMarks;
use rig_load::plan::{Load, Phases};
use rig_load::record::{Sample, WorkerRecord};
use serde::{Deserialize, Serialize};

use super::machine::MachineUse;
use super::seal::{Nonce, Seal};

/// The version of this protocol. Both ends have to speak the same.
pub const PROTOCOL: u32 = 2;

/// The port of the control connection unless told otherwise.
pub const PORT: u16 = 12_620;

/// The longest line a client may send, bytes.
pub const LONGEST_REQUEST: usize = 16 << 10;

/// The longest line a server may send, bytes: room for the record of 20 000 connections.
pub const LONGEST_REPLY: usize = 64 << 20;

/// The longest piece of text from the other end that is repeated to a user, characters.
const LONGEST_WORDS: usize = 500;

/// From the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    Hello(Version),
    Open(Box<TestRequest>),
    /// To answer exchanges of times by datagrams, and pings. Only of a server that says that it compares clocks.
    Clock(PathMarks),
    Ping {
        number: u32,
    },
    /// Start of the warm-up, in nanoseconds of the server's monotonic clock.
    Go {
        start_ns: u64,
    },
}

/// The versions of an end. Fields may be added: the two ends have to understand each other's to find out that they are strangers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub protocol: u32,
    /// Of netrig.
    pub version: String,
    /// The server's when it asks for a key; the client's, which then seals what it says ([`super::seal`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<Nonce>,
    /// It takes [`Request::Clock`]: versions before do not say so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compares_clocks: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(is: &bool) -> bool {
    !is
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

impl Version {
    pub fn own() -> Self {
        Self { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").into(), nonce: None, compares_clocks: true }
    }

    pub fn with_nonce(nonce: Nonce) -> Self {
        Self { nonce: Some(nonce), ..Self::own() }
    }
}

/// A test that a client asks for: the load as the server's end shall run it. Names, addresses and paths are not the
/// client's to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestRequest {
    pub load: Load,
    pub phases: Phases,
    /// CPUs of the server's machine for its worker; empty leaves the choice to the kernel.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// What is to be added to a time of the client's clock to have that of the server's, for one-way delays.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub peer_clock_ns: i64,
}

/// From the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Welcome(Version),
    /// The machine the server runs on.
    Machine(Box<Environment>),
    /// Exchanges of times are answered at this port of UDP.
    Answering {
        port: u16,
    },
    Listening {
        port: u16,
    },
    /// All connections of the test stand at the server's end.
    Connected,
    Pong {
        number: u32,
        /// The server's monotonic clock.
        now_ns: u64,
    },
    Sample(Box<Sample>),
    Done(Box<ServerResult>),
    /// The server ends, and with it the connection; nothing that was asked for is left undone.
    Goodbye {
        why: String,
    },
    /// The server does not do what it was asked for. The connection ends.
    Refused {
        why: String,
    },
    /// The test went wrong at the server's end. The connection ends.
    Failed {
        why: String,
    },
}

/// What the server's end saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerResult {
    pub record: WorkerRecord,
    pub machine: MachineUse,
}

/// A frame as it goes over the wire.
pub fn line(frame: &impl Serialize) -> Vec<u8> {
    // Plain values with text for keys: there is nothing in them that JSON cannot say.
    let mut line = serde_json::to_vec(frame).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A frame as it goes over the wire with a seal.
pub fn sealed(frame: &impl Serialize, seal: &mut Seal) -> Vec<u8> {
    let mut json = line(frame);
    json.pop();
    let mut line = seal.seal(&json);
    line.push(b'\n');
    line
}

/// Text from the other end as it may be shown to a user: of a bounded length, without control characters.
pub fn words(text: &str) -> String {
    let mut words: String =
        text.chars().take(LONGEST_WORDS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST_WORDS).is_some() {
        words.push('…');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_of_a_later_version_is_understood_well_enough_to_be_refused() {
        let hello = r#"{"hello":{"protocol":7,"version":"9.0","dialect":"south"}}"#;
        let Request::Hello(version) = serde_json::from_str(hello).unwrap() else { panic!() };
        assert_eq!(version.protocol, 7);
    }

    #[test]
    fn a_client_cannot_name_what_is_not_its_own() {
        for smuggled in ["name", "role", "engine"] {
            let ask = format!(
                r#"{{"open":{{"load":{{"kind":"idle"}},"phases":{{"warm_up":{{"secs":0,"nanos":0}},
                "window":{{"secs":1,"nanos":0}},"cool_down":{{"secs":0,"nanos":0}},
                "interval":{{"secs":1,"nanos":0}}}},"{smuggled}":"/etc/passwd"}}}}"#
            );
            let error = serde_json::from_str::<Request>(&ask).unwrap_err().to_string();
            assert!(error.contains(smuggled), "{error}");
        }
    }

    #[test]
    fn words_are_short_and_harmless() {
        assert_eq!(words("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
        assert_eq!(words(&"x".repeat(10_000)).chars().count(), LONGEST_WORDS + 1);
    }
}
