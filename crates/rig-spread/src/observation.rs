//! What was seen of an interface and its CPUs in an interval.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::nanos;

/// Differences of counters over an interval that ends now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Length of the interval in ns; one of length zero says nothing and changes nothing.
    #[serde(with = "nanos")]
    #[schemars(with = "u64")]
    pub over: Duration,
    /// One for each entry of the actuator, by its index. Entries without one count as idle.
    pub entries: Vec<EntryObservation>,
    /// In any order. CPUs without one count as idle.
    pub cpus: Vec<CpuObservation>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryObservation {
    /// Packets processed.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// CPU time that processing them took, in ns, where the actuator measures it; else it is estimated from that of the CPU.
    #[serde(with = "nanos::option", default)]
    #[schemars(with = "Option<u64>")]
    pub cost: Option<Duration>,
    /// Packets that wait to be processed at the end of the interval, where the actuator knows.
    #[serde(default)]
    pub waiting: Option<u64>,
    /// Packets of this entry that were dropped for want of room; 0 where only the CPU's losses are known.
    pub lost: u64,
}

/// CPU time of one CPU in the interval, in ns. What is missing to the interval is idle time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuObservation {
    pub number: u32,
    /// Packets that it polled of the interface's queues, where the actuator can leave them
    /// [in place](crate::Abilities::in_place).
    #[serde(default)]
    pub packets: u64,
    /// Handing packets of this interface to other CPUs.
    #[serde(with = "nanos")]
    #[schemars(with = "u64")]
    pub distributing: Duration,
    /// Processing packets of this interface.
    #[serde(with = "nanos")]
    #[schemars(with = "u64")]
    pub processing: Duration,
    /// Everything else that runs there.
    #[serde(with = "nanos")]
    #[schemars(with = "u64")]
    pub other: Duration,
    /// Packets that were dropped for want of room on the way to this CPU or on it (/proc/net/softnet_stat, second column).
    pub lost: u64,
    /// How often work was left over at the end of a time slice (/proc/net/softnet_stat, third column). One is not pressure.
    pub squeezed: u64,
    /// Whether packets waited there through the whole interval: its queue was never found empty.
    pub standing_queue: bool,
}

impl CpuObservation {
    /// All of its time that is not idle.
    pub fn busy(&self) -> Duration {
        self.distributing + self.processing + self.other
    }
}
