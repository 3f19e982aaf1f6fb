//! Reasons to doubt a trial.

use std::fmt;

use rig_stats::units::counted;
use serde::{Deserialize, Serialize};

use super::pace;

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
    /// Frames that a sender counted were not received, and no counter says where they went.
    Unexplained { frames: u64, sent: u64 },
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
pub struct TwoMachineFlag<'a>(pub &'a Flag);

impl fmt::Display for TwoMachineFlag<'_> {
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
            Self::Unexplained { frames, sent } => {
                let percent = *frames as f64 * 100.0 / (*sent).max(1) as f64;
                let sent = counted(*sent, "frame", "frames");
                write!(f, "{frames} of {sent} ({percent:.4} %) went where no counter tells")
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
