//! What a worker is told while its load runs.

use serde::{Deserialize, Serialize};

/// Something that is to be so from a moment on. Sent ahead of that moment, so that every thread knows it in time; one that
/// hears it late acts at once, and the moment stays the one that was meant: transactions of a schedule are due from then
/// on at the new rate, and belong to the phase in which they were due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub what: CommandAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandAction {
    /// A load that has a rate gets another, in the unit of its plan: transactions per second of the worker, payload bytes
    /// per second of each sending thread, connections (or requests, where their rate is given) per second of a packet
    /// load. 0 stops it until the next rate.
    Rate(f64),
    /// A phase of the window ends and the next one begins.
    Mark,
    /// The window ends then, and not when the plan says; the cool-down follows as planned.
    End,
}
