//! What is said between a running spreader and its clients, and what it publishes as JSON.

use std::collections::BTreeMap;

use rig_spread::{Abilities, EffectiveSettings, Event, LastingDifference, Move, MoveReason, Settings, Situation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actuator::{Kind, UnsupportedKind};
use crate::settings::SettingChanges;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    Status,
    /// Settings of an interface, until the spreader ends.
    Set {
        interface: String,
        changes: SettingChanges,
    },
    /// What happened after the entry of the log with this number.
    Events {
        after: u64,
    },
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Status(Box<Status>),
    Events(Vec<LogEntry>),
    Done(Vec<String>),
}

/// A running spreader. Times are nanoseconds unless a name says otherwise; totals count since the interface was taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Its process.
    pub process: u32,
    pub uptime_ms: u64,
    /// CLOCK_MONOTONIC at which all counters were read.
    pub at_ns: u64,
    pub interfaces: Vec<Interface>,
    /// Interfaces that a rule names and that cannot be taken, and why.
    pub waiting: Vec<WaitingInterface>,
    /// CPUs that are online: all work, of any kind.
    pub cpus: Vec<CpuLoad>,
    pub own: SpreaderUsage,
}

/// What the spreader itself takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreaderUsage {
    /// CPU time of the thread that looks and moves.
    pub cpu_ns: u64,
    /// Times that it has looked, and the longest that a look took.
    pub looks: u64,
    pub longest_look_ns: u64,
    /// Share of one CPU in the last second.
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingInterface {
    pub interface: String,
    pub lacks: Vec<UnsupportedKind>,
    /// Where it is none of these.
    #[serde(default)]
    pub why: Option<String>,
}

/// Packets that an interface has received by none of its receive queues, so that nothing here sees or moves them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PastQueues {
    /// Of the last second.
    pub packets_per_s: f64,
    pub why: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuLoad {
    pub cpu: u32,
    pub busy_ns: u64,
    /// Share of the last second.
    pub busy: f64,
}

/// An interface whose receive work is spread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    pub name: String,
    /// The kernel's number of it.
    pub index: u32,
    pub actuator: Kind,
    pub abilities: Abilities,
    /// Kinds that were preferred, and why it has none of them.
    pub lacks: Vec<UnsupportedKind>,
    pub requested: Settings,
    pub effective: EffectiveSettings,
    /// What differs, and since when: ns since the spreader began.
    pub differences: Vec<LastingDifference>,
    pub situation: Situation,
    /// Whether the CPUs that packets reach first process them, without threads; an entry is then on the CPU that processed it
    /// last.
    #[serde(default)]
    pub in_place: bool,
    /// The CPU that all is on when one will do; the one that packets reach first, where entries may be on that.
    pub base: u32,
    /// The CPU that was seen to receive most packets before they are given to others; none: not seen yet, or no CPU receives
    /// for others.
    pub received_by: Option<u32>,
    pub moves: Moves,
    pub entries: Vec<Entry>,
    pub cpus: Vec<Cpu>,
    pub received: ReceiveCounts,
    /// Where that is most of what it received in the last second.
    #[serde(default)]
    pub past_queues: Option<PastQueues>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moves {
    /// By reason.
    pub total: BTreeMap<MoveReason, u64>,
    /// Of entries with traffic.
    pub paid: u64,
    /// That the kernel refused.
    pub failed: u64,
    /// That were taken back, because things got worse.
    pub undone: u64,
    /// That did not wait for the old CPU, so that packets may have overtaken each other; none: the actuator has no such
    /// moves, or does not know of them.
    pub hurried: Option<u64>,
}

/// What the kernel has counted of the interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveCounts {
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    /// Of the last second.
    pub packets_per_s: f64,
    pub bits_per_s: f64,
    pub dropped_per_s: f64,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub entry: u32,
    /// The CPU that processes it; -1 where none is said.
    pub receive_processor: i64,
    /// The CPU that it goes to when threads poll again, while entries are left in place.
    #[serde(default)]
    pub prepared: Option<u32>,
    pub packets: u64,
    /// CPU time of processing it, where it is known by entry.
    pub cost_ns: Option<u64>,
    /// Of the last second.
    pub packets_per_s: f64,
    pub cost_ns_per_packet: Option<f64>,
    pub moves: u64,
    /// When it was moved last, ms ago, and why.
    pub last_move_ms: Option<u64>,
    pub last_why: Option<MoveReason>,
}

/// A CPU, as far as this interface goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub cpu: u32,
    pub base: bool,
    /// Entries that are on it.
    pub entries: u32,
    /// Packets of entries on it.
    pub packets: u64,
    /// Handing packets to other CPUs.
    pub distributing_ns: u64,
    pub processing_ns: u64,
    /// All else that ran there.
    pub other_ns: u64,
    /// Of the last second; shares of one CPU.
    pub packets_per_s: f64,
    pub distributing: f64,
    pub processing: f64,
    pub other: f64,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    /// From 1.
    pub number: u64,
    /// Since 1970, ms.
    pub unix_ms: u64,
    /// ns since the spreader began.
    pub at_ns: u64,
    pub interface: String,
    #[serde(flatten)]
    pub what: LogEvent,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogEvent {
    Moved(Move),
    Event(Event),
    /// A move that the kernel refused.
    Failed {
        entry: Option<u32>,
        to: u32,
        why: String,
    },
    /// The interface was taken, left, or cannot be.
    Said(String),
}
