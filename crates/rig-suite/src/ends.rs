//! Tests between two machines, as their runs keep them beside the trials.

use std::fmt;

use rig_facts::record::Environment;
use rig_load::plan::{Engine, Load, ReceiveMode, Schedule, SendMode};
use rig_stats::units::{BitRate, counted};
use rig_sys::socket::NamedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::suite::bytes;

/// The server of a test between two machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Peer {
    /// As the user named it.
    pub host: String,
    /// Where it was found; null where it was not recorded.
    #[schemars(with = "Option<String>")]
    pub address: Option<NamedAddress>,
    /// What the client's sockets were bound to, such as `from 10.0.0.1 by eth0`; null where the routing table decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    pub machine: Environment,
}

impl Peer {
    /// This peer with its machine changed.
    #[must_use]
    pub fn with(&self, change: impl Fn(&Environment) -> Environment) -> Self {
        Self { machine: change(&self.machine), ..self.clone() }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        self.address.as_ref().map_or(Ok(()), |address| write!(f, " ({})", address.host()))
    }
}

/// What was asked of both ends, with the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndsTest {
    pub peer: Peer,
    pub load: Loads,
    /// CPUs that each end's load was held to; empty for all.
    #[serde(default)]
    pub client_cpus: Vec<u32>,
    #[serde(default)]
    pub server_cpus: Vec<u32>,
}

/// The load as each end runs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    pub client: Load,
    pub server: Load,
}

/// The values of [`suite`] for tests.
pub const SUITES: [&str; 3] = ["stream", "rr", "udp"];

/// The command that makes tests of such a load. Stored runs of tests have it in place of a suite's name, and the load's own name,
/// which also says the direction of payload, in place of a scenario's.
pub fn suite(load: &Load) -> &'static str {
    match load {
        Load::TcpStream(_) => "stream",
        Load::TcpRr(_) | Load::TcpCrr(_) | Load::UdpRr(_) => "rr",
        Load::UdpStream(_) => "udp",
        Load::Packets(_) | Load::Idle => load.name(),
    }
}

/// The load in a line.
pub fn words(load: &Load) -> String {
    let (threads, connections) = load.shape();
    let mut words = vec![
        load.name().to_owned(),
        format!(
            "{} with {}{}",
            counted(threads as usize, "thread", "threads"),
            counted(connections as usize, "connection", "connections"),
            if threads == 1 { "" } else { " each" }
        ),
    ];
    let total = |throttle: u64| BitRate(throttle.saturating_mul(8).saturating_mul(threads.into()));
    let rate = |throttle: Option<u64>| throttle.map(|throttle| format!("at most {}/s", total(throttle)));
    let (send_buffer, receive_buffer) = match load {
        Load::TcpStream(stream) => {
            words.push(format!("messages of {}", bytes(stream.message)));
            words.extend(rate(stream.throttle));
            // Else as every other program sends and receives.
            words.extend((stream.send_mode != SendMode::Copy).then(|| format!("sent by {}", stream.send_mode)));
            words.extend(
                (stream.receive_mode != ReceiveMode::Copy).then(|| format!("received by {}", stream.receive_mode)),
            );
            if let Engine::Uring { outstanding } = stream.engine {
                words.push(format!("io_uring with {outstanding} outstanding"));
            }
            words.extend(stream.no_delay.then(|| "TCP_NODELAY".into()));
            words.extend(stream.congestion_control.clone());
            words.extend(stream.options.words());
            (stream.send_buffer, stream.receive_buffer)
        }
        Load::TcpRr(rr) | Load::TcpCrr(rr) | Load::UdpRr(rr) => {
            words.push(format!("requests of {}, responses of {}", bytes(rr.request), bytes(rr.response)));
            words.push(format!("{} in flight on a connection", rr.in_flight));
            if let Schedule::Open { rate, .. } = rr.schedule {
                words.push(format!("{rate} a second as scheduled"));
            }
            words.extend(rr.no_delay.then(|| "TCP_NODELAY".into()));
            words.extend(rr.congestion_control.clone());
            words.extend(rr.options.words());
            (rr.send_buffer, rr.receive_buffer)
        }
        Load::UdpStream(udp) => {
            words.push(format!("datagrams of {}", bytes(udp.message)));
            words.extend(rate(udp.throttle));
            words.push(match udp.sent_together() {
                1 => "sent one at a time".into(),
                together => format!("sent in batches of up to {together}"),
            });
            words.extend((udp.segments > 1).then(|| format!("GSO of {}", udp.segments)));
            words.extend(udp.coalesce.then(|| "GRO".into()));
            words.extend(udp.options.words());
            (udp.send_buffer, udp.receive_buffer)
        }
        Load::Packets(_) | Load::Idle => (None, None),
    };
    words.extend(send_buffer.map(|size| format!("send buffer {}", bytes(size))));
    words.extend(receive_buffer.map(|size| format!("receive buffer {}", bytes(size))));
    words.join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_facts::record::{Flag, TwoMachineFlag};

    use super::*;

    #[test]
    fn a_load_says_what_is_not_as_everywhere() {
        let load = |changes: serde_json::Value| -> Load {
            let mut load = serde_json::json!({
                "kind": "tcp-stream", "flow": "forward", "threads": 1, "connections": 1, "message": 131_072, "no_delay": false,
                "engine": "blocking", "send_mode": "copy", "receive_mode": "copy",
            });
            load.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            serde_json::from_value(load).unwrap()
        };
        let plain = load(serde_json::json!({}));
        assert_eq!(words(&plain), "tcp-stream, 1 thread with 1 connection, messages of 128KiB");
        let changes =
            serde_json::json!({"threads": 2, "throttle": 1_000_000, "send_mode": "splice", "receive_mode": "discard"});
        assert_eq!(
            words(&load(changes)),
            "tcp-stream, 2 threads with 1 connection each, messages of 128KiB, at most 16Mbit/s, sent by splice, received by discard, \
             MSG_TRUNC"
        );
        let options = serde_json::json!({"options": {"dscp": 46, "mss": 1000, "hop_limit": 9, "priority": 5, "not_sent_low_water": 65_536}});
        let said = words(&load(options));
        let set = ", DSCP ef, MSS 1000, TTL 9, socket priority 5, TCP_NOTSENT_LOWAT 65536";
        assert_eq!(said.strip_prefix(&words(&plain)), Some(set), "{said}");
    }

    #[test]
    fn flags_name_ends_as_machines() {
        let end = || "client".to_owned();
        let said = [
            (Flag::OtherLoad { node: end(), percent: 9.0 }, "other programs used 9.0 % of the client's CPU time"),
            (
                Flag::Saturated { node: end(), percent: 99.0 },
                "the client's CPUs were 99.0 % busy: they may be the limit, not the path",
            ),
            (Flag::Unanswered { worker: end(), requests: 2 }, "2 requests of the client without an answer"),
            (Flag::NotGranted { worker: end(), what: "no".into() }, "the client: no"),
        ];
        for (flag, words) in said {
            assert_eq!(TwoMachineFlag(&flag).to_string(), words);
        }
    }
}
