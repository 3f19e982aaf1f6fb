//! What a trial leaves for ever: plain values, stored as JSON. Fields are added, never renamed or given another meaning.

pub mod ab_run;
mod benchmark;
mod calibration;
pub mod certainty;
mod clocks;
mod end_clocks;
mod environment;
mod flag;
mod layers;
mod next_step;
mod pre_trial_command;
mod search;
mod skipped_scenarios;
mod tool;
mod track;

use std::fmt;

pub use self::ab_run::AbRun;
pub use self::benchmark::BenchmarkRecord;
pub use self::clocks::Clocks;
pub use self::end_clocks::{BoundLimit, EndClocks, OffsetReading};
pub use self::environment::{LOAD_AVERAGE, described, gibibytes};
pub use self::flag::{Flag, TwoMachineFlag};
pub use self::layers::{CpuTimeOwner, Kind, LayerSamples, LayersRecord, NodeLayers};
pub use self::pre_trial_command::PreTrialCommand;
pub use self::search::{SearchRecord, SearchedRate};
pub use self::skipped_scenarios::SkippedScenarios;
pub use self::tool::{ToolFigure, ToolRun, ToolTrial};
pub use self::track::track;
use rig_load::record::{Direction, WorkerRecord};
use rig_stats::series::Track;
use rig_sys::perf::Clock;
pub use rig_testbed::datapath::{BackendState, Counters, ServiceState, Settings, State};
pub use rig_testbed::frames::{NamespaceFrames, NodeFrames};
pub use rig_testbed::host::{ClockOffset, Environment};
pub use rig_testbed::node::{Accounting, CpuShares, CpuUse, InterfaceDelta, NodeRecord, NodeShare, ProtocolDelta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One of a scenario's loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScenarioLoad {
    /// Its own, which is measured.
    Own,
    /// The one under it.
    Under,
}

/// One execution of one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    pub scenario: String,
    /// Counts the trials of this scenario in this run, from 1.
    pub ordinal: u32,
    /// The block that it was made in, from 1: each scenario that was not settled by then once, in random order. `None` of
    /// trials that took turns in a fixed order, as those of version 0.1.0, or that were made alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// Building and taking down the testbed, microseconds.
    pub setup_us: u64,
    pub teardown_us: u64,
    /// The whole trial, set-up and take-down included, microseconds.
    pub total_us: u64,
    /// Edges of the window at which the node counters were read, nanoseconds of CLOCK_MONOTONIC. These and all other times
    /// are by the clock of the machine that ran the suite, also where the nodes have another.
    pub window_begin_ns: u64,
    pub window_end_ns: u64,
    pub nodes: Vec<NodeRecord>,
    pub workers: Vec<WorkerRecord>,
    /// Time inside the window, summed over CPUs, for which the kernel halted netrig's control groups because their CPU
    /// limit was used up, microseconds; `None` where no group tells.
    #[serde(default)]
    pub throttled_us: Option<u64>,
    /// How the rate of the window was found, when it was searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// What benchmarks found, where they were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<BenchmarkRecord>,
    /// What runs on nodes to handle their packets, agent by agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentRecord>,
    /// What the node between the ends did, on the paths that have one: what figures and reports of such paths are made of.
    /// Its system, connections, memory, services and drops are those that its agent told for [`Self::agents`], in the same
    /// moment; records of version 0.1.0 have them only here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "middle")]
    pub dut: Option<DutRecord>,
    /// The phases of the window, where it has any with names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
    /// Counters over time, where they were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// The limit that rates are shares of, where it was measured without a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitRecord>,
    /// Where the nodes were, unless they were the runner's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostRecord>,
    /// Where each node was, where they were on several machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<(String, HostRecord)>,
    /// What its CPUs ran, by layer, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayersRecord>,
    /// How fast the machine itself was; `None` where the nodes were another's, and in records of version 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The server's clock as the client knew it, of a test between two machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// How far the clocks of the load's ends were apart, where their nodes were on two machines of a suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_clocks: Option<EndClocks>,
    /// Why one-way delays of datagrams are not here: the clocks of the two machines were not compared before and after the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncompared: Option<String>,
    /// What its scenario had set on the testbed, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// What was run in its nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PreTrialCommand>,
    /// Where frames were lost on each node, from before the load's first frame to after its last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Vec<NodeFrames>>,
    /// Of another tool's test all that is known; nodes and workers are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolTrial>,
    /// What makes the reader doubt this trial.
    pub flags: Vec<Flag>,
}

/// The machine right before a trial's testbed was built and right after it was taken down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    pub before: CalibrationTimes,
    pub after: CalibrationTimes,
}

/// How much longer or shorter the calibration work has to take for the CPUs to count as another machine's. Smaller differences
/// are within the noise of the fastest of a few rounds.
const APART: f64 = 0.05;

/// Whether the same work took so much longer or shorter that another machine's CPUs must have done it; `ratio` is one time
/// divided by the other.
pub fn is_apart(ratio: f64) -> bool {
    ratio.max(1.0 / ratio) > 1.0 + APART
}

/// `23 % slower`; below 0 `23 % faster`.
pub fn pace(slower_percent: f64) -> String {
    let way = if slower_percent > 0.0 { "slower" } else { "faster" };
    format!("{:.0} % {way}", slower_percent.abs())
}

/// Of a run by another machine than most others, by calibration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetApart {
    /// How much longer the arithmetic took than usual; below 0 it was faster.
    pub slower_percent: f64,
    /// Runs of which the usual time is.
    pub usual_runs: usize,
}

impl fmt::Display for SetApart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&pace(self.slower_percent))
    }
}

/// How long the machine took for fixed things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationTimes {
    /// Time of a fixed piece of arithmetic on each CPU of the nodes, nanoseconds: CPU and the fastest of a few rounds.
    pub work_ns: Vec<(u32, u64)>,
    /// Time of this arithmetic when all of these CPUs do it at once; empty for one CPU, and in records that lack it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together_ns: Vec<(u32, u64)>,
    /// To copy 2 MiB, nanoseconds.
    pub memory_ns: Option<u64>,
    /// From one thread's word to another's waking by it, nanoseconds, between the first and the last of the CPUs.
    pub wake_ns: Option<u64>,
}

/// A host of nodes that is another process than the runner, or another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    pub name: String,
    /// How far its clock was from the runner's when the times of the host and its workers were converted by it.
    pub clock_at_begin: ClockOffset,
    /// By questions to the host, as at the begin unless the next says so: both tell how far the clocks went apart meanwhile. `None` where it
    /// did not answer any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_at_end: Option<ClockOffset>,
    /// By questions at the begin, where the times were converted by what the load's own path told, which was better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at_begin: Option<ClockOffset>,
}

/// One phase of the window. What its workers counted is in [`WorkerRecord::phases`], in the same order; where there is but
/// one phase, that of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    pub name: String,
    /// Edges at which the node counters were read, nanoseconds of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    pub end_ns: u64,
    pub ended: PhaseEnd,
    /// What its loads were told when it began.
    #[serde(default)]
    pub rates: Vec<RateRecord>,
    /// What datapaths were told when it began, in this order. None refused: a refusal ends the trial, which leaves no record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    pub nodes: Vec<NodeRecord>,
}

/// What agents of a datapath were told, and what they answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    pub datapath: String,
    pub command: String,
    pub arguments: Settings,
    /// Nanoseconds of CLOCK_MONOTONIC. In the first phase it is before the load begins.
    pub told_ns: u64,
    /// When the last agent had answered.
    pub answered_ns: u64,
    /// By node.
    pub answers: Vec<(String, Value)>,
}

/// Why a phase ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseEnd {
    /// It had its time.
    Time,
    /// What it waited for had come about this long after its begin, and held from then on.
    Reached { condition: String, after_us: u64 },
    /// What it waited for had not come about within so long.
    Deadline { condition: String, after_us: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateRecord {
    pub load: ScenarioLoad,
    /// In the unit of the load: transactions, connections or requests per second of a pair, or payload bytes per second of
    /// a sending thread.
    pub per_second: f64,
    /// The rate as a share of the limit that was measured, where the suite gives it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

/// What a load carries that nothing holds back: open loops as closed ones with as many transactions under way as they
/// have room for, streams without their throttle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitRecord {
    /// In the unit of [`RateRecord::per_second`].
    pub rate: f64,
    /// How long it was measured, microseconds.
    pub window_us: u64,
}

/// Counters over time. Intervals count from the window's begin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// When that was, nanoseconds of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// As it was to be.
    pub interval_us: u64,
    /// In the order of [`TrialRecord::workers`]: `bytes`, `bytes_in`, `units`, `lost`, `retransmits` as in
    /// [`rig_load::record::Sample`], and `latency_count`, `latency_p50_ns` and so on as in
    /// [`rig_load::record::IntervalLatency`].
    pub workers: Vec<Track>,
    /// In the order of [`TrialRecord::nodes`]: `cpu0_busy_us`, `cpu0_packets` (received), `eth0_rx_packets`, `eth0_rx_bytes`,
    /// `eth0_tx_packets`, `eth0_tx_bytes`, `eth0_dropped`, `tcp_retransmitted`.
    pub nodes: Vec<Track>,
    /// In the order of [`TrialRecord::agents`]: what [`AgentRecord::counters`] has, of drops those that occurred, as
    /// `dropped: ` with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Track>,
    /// CPU time that reading the counters of nodes and agents took, microseconds.
    pub cost_us: u64,
}

impl TrialRecord {
    /// Workers of one direction.
    pub fn workers(&self, direction: Direction) -> impl Iterator<Item = &WorkerRecord> {
        self.workers.iter().filter(move |w| w.direction == direction)
    }

    /// Whether both ends of a test between two machines have one clock, which no two machines have.
    pub fn is_on_one_machine(&self) -> bool {
        self.clocks.is_some_and(|clocks| clocks.offset_ns.unsigned_abs() <= clocks.bound_ns)
    }

    pub fn seconds(&self) -> f64 {
        self.window_end_ns.saturating_sub(self.window_begin_ns) as f64 / 1e9
    }

    /// One phase as if it were the window: what is not counted by phase is not there. `None` where there is no such phase.
    pub fn of_phase(&self, name: &str) -> Option<Self> {
        let index = self.phases.iter().position(|phase| phase.name == name)?;
        let phase = &self.phases[index];
        let worker = |worker: &WorkerRecord| {
            if self.phases.len() == 1 { Some(worker.clone()) } else { worker.of_phase(index) }
        };
        let workers = self.workers.iter().map(worker);
        Some(Self {
            scenario: self.scenario.clone(),
            ordinal: self.ordinal,
            block: self.block,
            started_unix_ms: self.started_unix_ms,
            setup_us: self.setup_us,
            teardown_us: self.teardown_us,
            total_us: self.total_us,
            window_begin_ns: phase.begin_ns,
            window_end_ns: phase.end_ns,
            nodes: phase.nodes.clone(),
            workers: workers.collect::<Option<_>>()?,
            throttled_us: None,
            search: None,
            benchmark: None,
            agents: Vec::new(),
            dut: None,
            phases: Vec::new(),
            series: self.series.clone(),
            limit: None,
            host: self.host.clone(),
            hosts: self.hosts.clone(),
            layers: None,
            set: Vec::new(),
            before: Vec::new(),
            calibration: None,
            clocks: None,
            end_clocks: None,
            uncompared: None,
            frames: None,
            tool: None,
            flags: Vec::new(),
        })
    }
}

/// A datapath on a node over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The name of the datapath, e.g. `balancer`.
    pub name: String,
    pub node: String,
    /// What it is, with its version.
    pub version: String,
    /// CPUs of its node, on which it handled packets.
    pub cpus: Vec<u32>,
    /// In force at the window's end.
    pub settings: Settings,
    /// Over the window; of drops those that occurred.
    pub counters: Counters,
    /// When these were read at the window's edges, by the agent's stamps in nanoseconds of the runner's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<(u64, u64)>,
    /// At the window's end.
    pub state: State,
    /// Connections that began from before the load's first packet to after its last, where it is between the ends and counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<u64>,
    /// Drops from before the load's first packet to after its last, by the reasons that occurred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Vec<(String, u64)>>,
}

/// The node between the client's and the server's over the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DutRecord {
    /// CPUs that carried packets.
    pub workers: Vec<u32>,
    /// CPUs that it shared with the load's ends, because the machine has no others.
    #[serde(default)]
    pub shared: Vec<u32>,
    /// What carried them, e.g. `netrig 0.1.0, XDP native on veth, FullNAT` or `HAProxy 2.6.12, TCP mode`.
    pub system: String,
    /// Both its interfaces together.
    pub in_packets: u64,
    pub in_bytes: u64,
    pub out_packets: u64,
    pub out_bytes: u64,
    /// Connections that it knew of at the window's end, where it tells.
    pub connections: Option<u64>,
    /// Of its connection table, bytes, where it tells.
    pub memory_bytes: Option<u64>,
    pub services: Vec<ServiceState>,
    /// Packets dropped inside the window, by the reasons that occurred: text and count.
    pub drops: Vec<(String, u64)>,
    /// Where its CPUs' time went, when that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Sampled stacks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Samples that each CPU gave a second; by cycles, of a second in which it was busy, about.
    pub hertz: u32,
    /// What said when a sample was due. Older records have none: the kernel's timer did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Clock>,
    pub cpus: Vec<u32>,
    pub samples: u64,
    pub lost: u64,
    /// Frames from the outermost to the innermost, joined by `;`, with their samples: the folded form that flame graphs are
    /// drawn from. Kernel functions end in `_[k]`, BPF programs in `_[j]`; time without work is under `[idle]`.
    pub stacks: Vec<(String, u64)>,
    /// Stacks that were too rare to be kept one by one; their samples are under `[other]`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u64,
    /// What the reader must know of the stacks, e.g. why functions have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a trial without load costs: netrig's processes do everything but move bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RigCost {
    /// CPU time of netrig's own processes, percent of each node's CPU time; the runner, which belongs to no node, is
    /// counted in full on each.
    pub nodes: Vec<(String, f64)>,
    /// All CPU time on the node's CPUs meanwhile, percent: netrig's and the rest of the machine's.
    #[serde(default)]
    pub busy: Vec<(String, f64)>,
}
