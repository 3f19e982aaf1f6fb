//! What a runner and an agent say to each other: lines of `rig_lines` on the agent's standard input and output.
//!
//! ```text
//! runner                                           netrig agent NAME, in the node
//!   Greeting ------------------------------------->
//!                <--------------------------------- Greeting
//!   Attach { site, settings } -------------------->
//!                <--------------------------------- Attached            (or refused, in words)
//!   Counters ------------------------------------->
//!                <--------------------------------- Counters { at_ns }  (of the agent's clock, when it read them)
//!   Command { name, arguments } ------------------>
//!                <--------------------------------- Done { answer }     (or refused)
//!   Describe ------------------------------------->
//!                <--------------------------------- Description
//!   Detach --------------------------------------->
//!                <--------------------------------- Detached, and it ends
//! ```
//! Closing the agent's standard input ends it, and with it its datapath's work on the node.

use std::fmt;

use rig_lines::{Lines, Protocol, Reply, Request, decode, encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Counters, Settings, Site, State};

/// The longest line has room for the plan of a testbed with a thousand containers, and for the state of a spreader with a long
/// history.
pub const PROTOCOL: Protocol = Protocol { name: "netrig-agent", version: 2, longest: 64 << 20 };

/// To an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// Once, before all that follow.
    Attach {
        site: Box<Site>,
        settings: Settings,
    },
    Counters,
    Describe,
    Command {
        name: String,
        arguments: Value,
    },
    Detach,
}

/// From an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    Attached,
    Counters(Reading),
    Description(Box<Description>),
    Done { answer: Value },
    Detached,
}

/// What an agent has counted since it was attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// When it read them, by its CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// CPU time that the reading took, ns.
    pub cost_ns: u64,
    /// CPU time of its process since it was started, ns.
    pub process_cpu_ns: u64,
    pub counters: Counters,
}

/// What an agent tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub version: String,
    /// In force.
    pub settings: Settings,
    pub state: State,
}

/// Reads `bytes` as both sides read each other, and checks that what was understood reads back as it was; gives how many lines were
/// understood. For fuzzing: panics when it finds a fault.
pub fn exercise(bytes: &[u8]) -> usize {
    let mut lines = Lines::new(PROTOCOL.longest);
    lines.push(bytes);
    let mut understood = 0;
    while let Ok(Some(line)) = lines.take() {
        let _ = PROTOCOL.check(line);
        understood += usize::from(reads_back::<Request<Question>>(line) || reads_back::<Reply<Answer>>(line));
    }
    understood
}

fn reads_back<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(line: &[u8]) -> bool {
    let Ok(value) = decode::<T>(line) else { return false };
    let again = encode(&value, usize::MAX).expect("what was read can be written");
    assert_eq!(decode::<T>(again.trim_ascii_end()).expect("what was written can be read"), value);
    true
}
