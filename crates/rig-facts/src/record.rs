//! What a trial leaves for ever: plain values, stored as JSON. Fields are added, never renamed or given another meaning.

mod before;
mod calibration;
mod clocks;
mod environment;
mod layers;
mod left_out;
mod next_step;
pub mod settled;
mod track;
pub mod turns;

use std::fmt;

pub use self::before::Before;
pub use self::clocks::Clocks;
pub use self::environment::{LOAD_AVERAGE, described, gibibytes};
pub use self::layers::{End, Kind, LayerSamples, LayersRecord, NodeLayers};
pub use self::left_out::LeftOut;
pub use self::track::track;
pub use self::turns::Turns;
use rig_load::record::{Direction, WorkerRecord};
use rig_packet::search::{GeneratorBound, Outcome, Search};
use rig_stats::series::Track;
use rig_stats::units::counted;
use rig_sys::perf::Clock;
pub use rig_testbed::datapath::{BackendState, Counters, ServiceState, Settings, State};
pub use rig_testbed::host::ClockOffset;
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
    /// What its CPUs ran, by layer, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayersRecord>,
    /// How fast the machine itself was; `None` where the nodes were another's, and in records of version 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// The server's clock as the client knew it, of a test between two machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// What its scenario had set on the testbed, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// What was run in its nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<Before>,
    /// What makes the reader doubt this trial.
    pub flags: Vec<Flag>,
}

/// The machine right before a trial's testbed was built and right after it was taken down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    pub before: Gauge,
    pub after: Gauge,
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
pub struct Gauge {
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
    /// How far its clock was from the runner's. By the first the times of the host and its workers were converted; both tell
    /// how far the clocks went apart meanwhile.
    pub clock_at_begin: ClockOffset,
    pub clock_at_end: ClockOffset,
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
            agents: Vec::new(),
            dut: None,
            phases: Vec::new(),
            series: self.series.clone(),
            limit: None,
            host: self.host.clone(),
            layers: None,
            set: Vec::new(),
            before: Vec::new(),
            calibration: None,
            clocks: None,
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

/// A search for the highest rate that is carried without loss, made before the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// What was raised.
    pub of: Searched,
    pub options: Search,
    /// How long a rate was offered in each step, and to be confirmed, microseconds.
    pub step_us: u64,
    pub confirmed_us: u64,
    pub outcome: Outcome,
    /// The generator's own limit, per second, found by this search with nothing between its ends. `None` when none was found.
    pub generator: Option<f64>,
    /// Why the limit is the generator's own.
    pub bound: Option<GeneratorBound>,
    /// The rate of the window as a share of the limit.
    pub share: f64,
}

/// What a search raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Searched {
    /// Opened per second.
    Connections,
    /// Of all connections together, per second.
    Requests,
    /// Connections held open, at a rate of requests of each.
    Held,
}

impl Searched {
    /// The unit of what is raised, e.g. of [`Step::rate`](rig_packet::search::Step::rate).
    pub fn unit(self) -> &'static str {
        match self {
            Self::Connections | Self::Requests => "1/s",
            Self::Held => "connections",
        }
    }
}

impl fmt::Display for Searched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Held => "held connections",
        })
    }
}

/// A reason to doubt a trial. Stored with it and shown in every report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "flag")]
pub enum Flag {
    /// Receive processing of a node ran on CPUs that the node does not own.
    ReceiveElsewhere { node: String, percent: f64 },
    /// The hypervisor gave the CPU to another virtual machine.
    Stolen { node: String, percent: f64 },
    /// Other programs used the node's CPUs.
    OtherLoad { node: String, percent: f64 },
    /// A node's CPUs were all busy: the node, not the path, may be the limit.
    Saturated { node: String, percent: f64 },
    /// One CPU of a node of several was busy all the time: what runs there may be the limit.
    SaturatedCpu { node: String, cpu: u32, percent: f64 },
    /// A load thread was busy all the time: the load generator may be the limit.
    SaturatedThread { worker: String, percent: f64 },
    /// Nodes own threads of the same core, as a CPU list, and slow each other down.
    SharedCore { nodes: Vec<String>, cpus: String },
    /// The DUT's workers have CPUs, as a CPU list, that the ends of the load have too.
    SharedCpu { cpus: String },
    /// The kernel halted netrig because a control group had used up its CPU limit.
    Throttled { microseconds: u64 },
    /// Packets were dropped.
    Dropped { place: String, packets: u64 },
    /// The wire carried packets larger than one segment although segmentation offload is off.
    NotOneSegment { place: String, bytes_per_packet: f64 },
    /// An end's counters and the window's edges are too far apart.
    WindowSkew { worker: String, microseconds: u64 },
    /// The kernel did not grant what the plan asked for.
    NotGranted { worker: String, what: String },
    /// UDP requests to which no answer came in time.
    Unanswered { worker: String, requests: u64 },
    /// Attempts to connect failed.
    NotConnected { worker: String, attempts: u64 },
    /// Transactions of a schedule had not begun when the window was over: the rate asked for was not reached.
    Behind { worker: String, transactions: u64 },
    /// The limit that was found is the generator's own, not that of what lies between its ends.
    GeneratorBound { percent: f64 },
    /// A worker of a packet load had hardly a moment without work: it may be the limit.
    GeneratorBusy { worker: String, percent: f64 },
    /// A datapath between the ends counted other connections than the ends opened, over the whole load.
    ConnectionsDiffer { agent: String, counted: u64, opened: u64 },
    /// Connections of a packet load were given up, reset or cut short, or could not be opened.
    FailedConnections { worker: String, connections: u64 },
    /// A packet load sent segments again.
    SentAgain { worker: String, packets: u64 },
    /// A packet load began connections or requests more than a millisecond after their time.
    Late { worker: String, begins: u64 },
    /// A search for a limit found none.
    NoLimit { why: String },
    /// What a phase waited for did not come about within its deadline.
    NotReached { phase: String, condition: String, microseconds: u64 },
    /// The machine was faster or slower than in most trials of the run before, by the calibration around them.
    OtherMachine { what: String, percent: f64 },
    /// Clock ticks differ from what was counted by more than they can err by chance: other tools show them.
    TicksDiffer { node: String, percent: f64, by_ticks: f64 },
}

/// `250 µs`, `1.5 ms`, `3.0 s`: coarse, for a reader.
fn time(microseconds: u64) -> String {
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        _ => format!("{:.1} s", microseconds as f64 / 1e6),
    }
}

/// For a trial on a testbed: nodes are written `node a`, workers by their names.
impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "node ", "")
    }
}

/// A flag of a test between two machines, in words: nodes and workers are `the client` and `the server`.
#[derive(Debug, Clone, Copy)]
pub struct OfEnds<'a>(pub &'a Flag);

impl fmt::Display for OfEnds<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, "the ", "the ")
    }
}

impl Flag {
    /// `a_node` and `a_worker` stand before their names.
    fn write(&self, f: &mut fmt::Formatter<'_>, a_node: &str, a_worker: &str) -> fmt::Result {
        match self {
            Self::ReceiveElsewhere { node, percent } => {
                write!(f, "{percent:.1} % of {a_node}{node}'s receive processing ran on CPUs that it does not own")
            }
            Self::Stolen { node, percent } => {
                write!(f, "the hypervisor took {percent:.1} % of {a_node}{node}'s CPU time")
            }
            Self::OtherLoad { node, percent } => {
                write!(f, "other programs used {percent:.1} % of {a_node}{node}'s CPU time")
            }
            Self::Saturated { node, percent } => {
                write!(f, "{a_node}{node}'s CPUs were {percent:.1} % busy: they may be the limit, not the path")
            }
            Self::SaturatedCpu { node, cpu, percent } => {
                write!(
                    f,
                    "CPU {cpu} of {a_node}{node} was {percent:.1} % busy: that CPU may be the limit, not the path"
                )
            }
            Self::SaturatedThread { worker, percent } => {
                write!(
                    f,
                    "a load thread of {a_worker}{worker} was {percent:.1} % busy: the load generator may be the limit"
                )
            }
            Self::SharedCore { nodes, cpus } => {
                write!(f, "nodes {} share a core (CPUs {cpus}) and slow each other down", nodes.join(" and "))
            }
            Self::SharedCpu { cpus } => {
                write!(f, "workers of the DUT share CPUs {cpus} with the load's ends and slow each other down")
            }
            Self::Throttled { microseconds } => {
                write!(f, "the CPU limit of a control group halted netrig for {} of CPU time", time(*microseconds))
            }
            Self::Dropped { place, packets } => {
                write!(f, "{} dropped at {place}", counted(*packets, "packet", "packets"))
            }
            Self::NotOneSegment { place, bytes_per_packet } => {
                write!(f, "{place} carried {bytes_per_packet:.0} bytes a packet: more than one segment")
            }
            Self::WindowSkew { worker, microseconds } => {
                write!(
                    f,
                    "{a_worker}{worker} began or ended its measuring {} too early or too late",
                    time(*microseconds)
                )
            }
            Self::NotGranted { worker, what } => write!(f, "{a_worker}{worker}: {what}"),
            Self::Unanswered { worker, requests } => {
                let requests = counted(*requests, "request", "requests");
                write!(f, "{requests} of {a_worker}{worker} without an answer")
            }
            Self::NotConnected { worker, attempts } => {
                let attempts = counted(*attempts, "attempt", "attempts");
                write!(f, "{attempts} of {a_worker}{worker} to connect failed")
            }
            Self::Behind { worker, transactions } => {
                let transactions = counted(*transactions, "transaction", "transactions");
                write!(f, "{a_worker}{worker} was {transactions} behind its schedule at the window's end")
            }
            Self::GeneratorBound { percent } => {
                write!(f, "generator-bound: the limit is {percent:.0} % of the generator's own over a bare wire")
            }
            Self::GeneratorBusy { worker, percent } => {
                write!(
                    f,
                    "{a_worker}{worker}'s busiest packet thread had work for {percent:.1} % of the time: it may be the limit"
                )
            }
            Self::ConnectionsDiffer { agent, counted: there, opened } => {
                let opened = counted(*opened, "connection", "connections");
                write!(f, "{agent} counted {there} of the {opened} that the load opened")
            }
            Self::FailedConnections { worker, connections } => {
                write!(f, "{} of {a_worker}{worker} failed", counted(*connections, "connection", "connections"))
            }
            Self::SentAgain { worker, packets } => {
                write!(f, "{a_worker}{worker} sent {} again", counted(*packets, "segment", "segments"))
            }
            Self::Late { worker, begins } => {
                let begins = counted(*begins, "connection or request", "connections or requests");
                write!(f, "{begins} of {a_worker}{worker} began more than a millisecond late")
            }
            Self::NoLimit { why } => write!(f, "the search found no limit: {why}"),
            Self::NotReached { phase, condition, microseconds } => {
                let seconds = *microseconds as f64 / 1e6;
                write!(f, "phase {phase} waited {seconds:.2} s for {condition}, which did not come")
            }
            Self::OtherMachine { what, percent } => {
                let pace = pace(*percent);
                let what = match what.as_str() {
                    "CPUs together" => "CPUs, all at work at once, were",
                    "wake-up times" => "waking of threads was",
                    "CPUs" => "CPUs were",
                    other => &format!("{other} was"),
                };
                write!(f, "like a different machine: by calibration its {what} {pace} than in most trials before")
            }
            Self::TicksDiffer { node, percent, by_ticks } => {
                write!(
                    f,
                    "{a_node}{node}'s CPUs were {percent:.1} % busy; by clock ticks, as other tools count, {by_ticks:.1} %"
                )
            }
        }
    }
}

/// The machine and the settings that a run was made with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    pub netrig_version: String,
    /// What netrig was built from and how: a hash of its sources, the profile, the compiler, flags beyond those.
    #[serde(default)]
    pub netrig_build: Option<String>,
    /// What git calls those sources, e.g. `v0.1.0-12-gbb260ef-dirty`, where a release was built inside a repository.
    #[serde(default)]
    pub netrig_commit: Option<String>,
    /// A hash of the eBPF programs that it carries.
    #[serde(default)]
    pub ebpf_objects: Option<String>,
    pub kernel: String,
    pub cpu_model: String,
    pub cpus_online: u32,
    pub memory_bytes: u64,
    pub clock_source: String,
    pub congestion_control: String,
    pub hypervisor: Option<String>,
    /// True when the run was made inside a user namespace, without root.
    pub rootless: bool,
    /// Load average over one minute when the run began, in hundredths.
    pub load_average_hundredths: u32,
    /// Settings that matter to the result, e.g. `net.core.rmem_max`.
    pub sysctls: Vec<(String, String)>,
    /// The kernel's build (`uname -v`): kernels of one release may be built differently.
    #[serde(default)]
    pub kernel_build: Option<String>,
    /// The CPUs that netrig could use, as a CPU list.
    #[serde(default)]
    pub cpus_usable: Option<String>,
    /// CPUs' worth of time that control groups granted, e.g. `1.5`; `unlimited` without a limit.
    #[serde(default)]
    pub cpu_quota: Option<String>,
    /// Frequency governors in use; none where the machine does not show them, as most virtual ones do not.
    #[serde(default)]
    pub governor: Option<String>,
    /// Whether CPUs may run above their nominal frequency.
    #[serde(default)]
    pub turbo: Option<bool>,
    /// Simultaneous multithreading: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    #[serde(default)]
    pub smt: Option<String>,
    /// Transparent huge pages: `always`, `madvise`, `never`.
    #[serde(default)]
    pub huge_pages: Option<String>,
    /// CPU vulnerabilities that this CPU has, each with the kernel's mitigation, which may cost more than what is measured.
    #[serde(default)]
    pub mitigations: Vec<(String, String)>,
    /// How CPU time was counted, and why not exactly where it was not.
    #[serde(default)]
    pub cpu_time: Option<String>,
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
