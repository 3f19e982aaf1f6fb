//! What happened between two readings: what is drawn, and what `--json` writes.
//!
//! Rates are per second, shares are of one CPU (1 is all of it), totals since the kernel or the daemon that counts began.
//! Fields are added, never renamed.

use std::net::SocketAddr;

use netrig_spread::message::PastQueues;
use rig_cli::packet::Protocol;
use rig_spread::{Mode, MoveReason, Situation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    pub netrig_version: String,
    /// The machine, where others are looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// CLOCK_MONOTONIC at the interval's end.
    pub at_ns: u64,
    /// How long it was.
    pub seconds: f64,
    /// CPUs that are online: all work of any kind.
    pub cpus: Vec<Cpu>,
    pub interfaces: Vec<Interface>,
    /// The spreader of this network namespace, where one runs.
    pub spreader: Option<Spreader>,
    pub balancer: Option<Balancer>,
    pub router: Option<Router>,
    /// What is not told, and why.
    pub lacks: Vec<String>,
    pub own: ViewUsage,
}

/// What this view takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewUsage {
    /// Share of a CPU over the interval.
    pub cpu: f64,
    /// How long it took to read all counters, ms.
    pub reading_ms: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    pub cpu: u32,
    /// All but idle.
    pub busy: f64,
    /// In interrupts of software, as the kernel's clock tick samples it; receive threads are not in it.
    pub softirq: f64,
    /// Packets that passed the receive path there; one that passes several virtual devices counts several times.
    pub processed_per_s: f64,
    /// Packets dropped because the CPU's own queue was full.
    pub dropped_per_s: f64,
    /// Times that receive work was cut off with packets left.
    pub squeezed_per_s: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CounterSource {
    /// A spreader has taken the interface.
    Spreader,
    /// Programs that this view has attached.
    Programs,
    /// The kernel alone, which has no counts by queue.
    #[default]
    Kernel,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    pub packets_per_s: f64,
    pub bits_per_s: f64,
    pub dropped_per_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interface {
    pub name: String,
    pub counted_by: CounterSource,
    pub received: Rates,
    pub sent: Rates,
    /// CPUs that are online; none where the kernel alone counts.
    pub cpus: Vec<InterfaceCpu>,
    /// What is moved whole between CPUs, or receive queues.
    pub entries: Vec<Entry>,
    pub spread: Option<Spread>,
}

/// A CPU, as far as one interface goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceCpu {
    pub cpu: u32,
    /// Packets reach this one first.
    pub base: bool,
    /// Entries that are on it.
    pub entries: u32,
    /// Packets from outside, of entries on it.
    pub packets_per_s: f64,
    /// Share of time: handing packets to other CPUs.
    pub distributing: f64,
    pub processing: f64,
    /// All else that ran there.
    pub other: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub entry: u32,
    /// The CPU that processes it; -1 where there is none, or nothing has come yet.
    pub receive_processor: i64,
    pub packets_per_s: f64,
    /// Where it is known by entry.
    pub ns_per_packet: Option<f64>,
    /// What a spreader has done with it.
    pub moves: Option<u64>,
    pub last_move_ms: Option<u64>,
    pub last_why: Option<MoveReason>,
}

/// What a spreader does with an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    pub actuator: String,
    pub situation: Situation,
    /// Whether the CPUs that packets reach first process them, without threads.
    pub in_place: bool,
    pub mode_requested: Mode,
    pub mode_effective: Mode,
    pub base: u32,
    /// CPUs on which packets were processed in the interval.
    pub cpus_in_use: u32,
    /// Settings that are not as requested.
    pub differences: Vec<Difference>,
    /// Moves since the interface was taken, and in the interval.
    pub moves: u64,
    pub moves_now: u64,
    pub undone: u64,
    pub refused: u64,
    /// Packets that come by none of its receive queues, where they are most.
    pub past_queues: Option<PastQueues>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What is in force in place of what, and the reason.
    pub words: String,
    /// For how long.
    pub since_ms: u64,
    /// No setting asked for what is not in force: it is a default that this machine is too small for.
    pub of_default: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spreader {
    pub process: u32,
    pub uptime_ms: u64,
    /// Share of a CPU that it takes.
    pub cpu: f64,
    /// Interfaces that its rules name and that it cannot take, with reasons.
    pub waiting: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Balancer {
    pub name: String,
    pub process: u32,
    /// Connections in the table, and room in it.
    pub connections: u64,
    pub capacity: u64,
    /// CPUs that run its program; none where it is any.
    pub workers: Vec<u32>,
    pub services: Vec<Service>,
    pub drops: Vec<Drop>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    pub protocol: Protocol,
    pub address: SocketAddr,
    pub scheduler: String,
    /// What it has to be given to be in force.
    pub lacks: Option<String>,
    pub rates: ServiceRates,
    /// Packets of connections that were refused.
    pub refused_per_s: f64,
    pub backends: Vec<Backend>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backend {
    pub address: SocketAddr,
    pub weight: u32,
    /// It was removed and still has connections.
    pub leaving: bool,
    pub active: u32,
    pub inactive: u32,
    pub rates: ServiceRates,
}

/// In: from clients. Out: from backends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceRates {
    pub connections_per_s: f64,
    pub in_packets_per_s: f64,
    pub in_bits_per_s: f64,
    pub out_packets_per_s: f64,
    pub out_bits_per_s: f64,
}

/// Packets dropped for a reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drop {
    pub reason: String,
    pub text: String,
    pub remedy: String,
    pub packets: u64,
    pub packets_per_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Router {
    pub node: String,
    pub process: u32,
    /// Connections that are remembered, and room for them.
    pub connections: u64,
    pub room: u64,
    pub begun_per_s: f64,
    pub ended_per_s: f64,
    /// Packets that could not begin one.
    pub refused_per_s: f64,
    pub interfaces: Vec<RouterInterface>,
    pub drops: Vec<Drop>,
    /// What of its settings is not done, and why.
    pub notes: Vec<String>,
}

/// In: from the container. Out: to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RouterInterface {
    pub name: String,
    pub network: String,
    /// The node's end; none while it is not there.
    pub device: Option<String>,
    pub connections: u64,
    pub in_packets_per_s: f64,
    pub in_bits_per_s: f64,
    pub out_packets_per_s: f64,
    pub out_bits_per_s: f64,
    pub dropped_per_s: f64,
}
