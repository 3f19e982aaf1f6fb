//! Where nodes live, and all that a runner asks of it.
//!
//! ```text
//!                  Host (this trait): facts, apply, start, mark, between, sample, clock, tear_down
//!                    |                                             |
//!                  Local: namespaces of this process             Remote: says it in lines of JSON ...
//!                    ^                                             | standard input and output
//!                    +------------------------- serve: ... to another netrig, whose own host is Local
//! ```
//! What the lines say is in [`protocol`]; anything that carries two streams of bytes can carry them.

mod arrange;
mod clock;
mod containers;
mod environment;
mod group;
mod interfaces;
mod local;
pub mod protocol;
mod reach;
mod remote;
mod serve;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use rig_stats::series::Track;
use rig_sys::cpu::CpuSet;
use rig_sys::piped::PipedProcess;
use rig_sys::probe;
use serde::{Deserialize, Serialize};

pub use clock::ClockOffset;
pub use containers::container_namespaces;
pub use environment::{Build, Environment, environment, is_rootless};
pub use group::{HostGroup, HostOfNode, each_at_once};
pub use interfaces::{HostInterface, cards};
pub use local::{Local, give_back_what_was_left};
pub use reach::{CommandForm, HostAccess};
pub use remote::Remote;
pub use serve::serve;

use crate::frames::NodeFrames;
use crate::node::NodeRecord;
use crate::plan::Plan;
use crate::preflight::ReachableContainer;
use crate::requirements::{Missing, Settings};
use crate::sampler::NodeSample;
use crate::stacks::FoldedStacks;

/// The place where nodes live: this process, another process or another machine. Arguments and results are plain values, so that
/// they can be sent.
pub trait Host: fmt::Debug {
    /// For records and messages: `local`, `child`.
    fn name(&self) -> &str;

    /// # Errors
    /// As all that follow: when the host cannot be asked, or its kernel refuses.
    fn facts(&self) -> Result<Facts>;

    /// The machine and its settings, for records.
    fn environment(&self) -> Result<Environment>;

    /// What the machine can do, found by trying where trying is possible: these congestion controls, too, whose modules the kernel loads then.
    fn probe(&self, congestion_controls: &[String]) -> Result<probe::Facts>;

    /// The interfaces that plans may be given ([`Link::OfHost`](crate::plan::Link::OfHost)).
    fn interfaces(&self) -> Result<Vec<HostInterface>>;

    /// What its cards are and how they are set, by their names, as [`card`](rig_sys::ethtool::card()) tells: of those that plans may be given.
    fn cards(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>>;

    /// What the host lacks for a datapath with these settings, as far as that is seen without trying it out.
    fn missing(&self, datapath: &str, settings: &Settings) -> Result<Option<Missing>>;

    /// Has the host take what a datapath is made of, and lets it go ([`Datapath::try_out`](crate::datapath::Datapath::try_out)).
    ///
    /// # Errors
    /// What was refused, and when the host cannot be asked.
    fn try_out(&self, datapath: &str) -> Result<()>;

    /// Keeps the program that does the host's own work off these CPUs, where it may use others.
    fn keep_off(&self, cpus: &CpuSet) -> Result<()>;

    /// The plan as it is built here: where wires lead from one machine to another, they are interfaces of these.
    ///
    /// # Errors
    /// Why it cannot be built.
    fn arrange(&self, plan: Plan) -> Result<Plan> {
        Ok(plan)
    }

    /// Builds the nodes of a plan, the wires between them, and all else that it names. A part of a plan is added to what stands.
    fn apply(&mut self, part: &Plan) -> Result<()>;

    /// The hosts that it is made of, each with its node; none where it is one.
    fn members(&self) -> Vec<(&str, &(dyn Host + Sync))> {
        Vec::new()
    }

    /// That of them which has a node of the testbed; `None` where it is one.
    fn member_of(&self, _node: &str) -> Option<&(dyn Host + Sync)> {
        None
    }

    /// From now on these namespaces, `node/container`, are those of containers that a datapath has made in their place.
    ///
    /// # Errors
    /// When one is not to be found, or not to be observed.
    fn use_containers(&mut self, containers: &BTreeMap<String, ContainerAccess>) -> Result<()>;

    /// The host as one whose nodes are namespaces of this process; `None` where they are another's.
    fn local(&self) -> Option<&Local> {
        None
    }

    /// Sends from each of these containers to each other of its network, in datagrams of `payload` bytes or as few as can be, and checks which
    /// container receives it.
    ///
    /// # Errors
    /// [`NetworkFault`](crate::preflight::NetworkFault), with the first that is not reached or that receives what is not for it.
    fn check_networks(&self, containers: &[ReachableContainer], payload: u32) -> Result<()>;

    /// Starts a program in a namespace of a node. It dies with the host's program. One in the node's own namespace finds those of the
    /// node's containers ([`container_namespaces`]).
    fn start(&self, space: &str, program: &Program) -> Result<PipedProcess>;

    /// As [`Self::start`], in the host's own network namespace, beside all nodes.
    fn start_beside(&self, program: &Program) -> Result<PipedProcess>;

    /// The host's own CLOCK_MONOTONIC, ns.
    fn now(&self) -> Result<u64>;

    /// How far that clock is from this process's.
    fn clock(&self) -> Result<ClockOffset> {
        clock::measure(|| self.now())
    }

    /// Reads all counters of all nodes. What was read stays with the host until the mark is forgotten, or the nodes are torn
    /// down.
    fn mark(&self) -> Result<Mark>;

    /// From now on hard interrupts are counted by themselves, where CPU time is counted exactly: to divide it by what it went to.
    fn count_interrupts(&mut self) -> Result<()>;

    /// What the nodes did between two marks, in the order in which they were built.
    fn between(&self, begin: Mark, end: Mark) -> Result<Window>;

    fn forget(&self, mark: Mark) -> Result<()>;

    /// Where frames were lost on all nodes since they stand, in the order in which they were built. It takes longer than a mark, and drivers may
    /// have to ask their cards, so it is for when no load runs.
    fn lost_frames(&self) -> Result<Vec<NodeFrames>>;

    /// Has [`Self::sample`] count from now on.
    fn start_sampling(&self) -> Result<()>;

    /// What the nodes did since the last time, in the order in which they were built: less than between marks, for it
    /// disturbs less.
    fn sample(&self) -> Result<Vec<NodeSample>>;

    /// Ends what [`Self::start_sampling`] began.
    fn end_sampling(&self) -> Result<Sampled>;

    /// Makes ready to sample the stacks of these CPUs, which takes some milliseconds of each the first time.
    ///
    /// # Errors
    /// When the host's kernel does not let stacks be sampled.
    fn prepare_stacks(&self, cpus: &CpuSet) -> Result<()>;

    /// Begins to sample the stacks of all that runs on these CPUs, so many times a second of each.
    fn start_stacks(&self, cpus: &CpuSet, hertz: u32) -> Result<StackSampling>;

    /// Ends it, as long as there are the processes that were sampled.
    fn stop_stacks(&self, sampling: StackSampling) -> Result<()>;

    /// What was sampled, with names. That takes some tenths of a second of CPU time, so it is for when no load runs, and it is as long as
    /// there are the BPF programs whose names matter.
    fn folded_stacks(&self, sampling: StackSampling) -> Result<FoldedStacks>;

    /// Removes all nodes; others may be built then. What is started in them has to be gone.
    fn tear_down(&mut self) -> Result<()>;
}

/// What a host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that nodes may own.
    pub cpus: CpuSet,
    /// Cores that have several threads.
    pub cores: Vec<CpuSet>,
}

/// A container that something else than a host has made, as the host gets at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerAccess {
    /// Its network namespace, a path of the host's.
    pub namespace: PathBuf,
    /// The socket of its engine, a path of the host's, and what the engine calls it.
    pub engine: PathBuf,
    pub id: String,
    /// What is netrig in it; arguments follow.
    pub program: Vec<String>,
}

/// What is started in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// A program of the host's; without one the host's netrig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    pub arguments: Vec<String>,
}

impl Program {
    /// The host's netrig.
    pub fn netrig(arguments: &[&str]) -> Self {
        Self { path: None, arguments: arguments.iter().map(ToString::to_string).collect() }
    }

    pub fn at(path: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self { path: Some(path.into()), ..Self::netrig(arguments) }
    }
}

/// A moment at which a host read its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    number: u64,
    /// When CPU counters were read, by the host's CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
}

/// Stacks that a host samples, or has sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackSampling(u64);

/// What a host's nodes did from one mark to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    pub nodes: Vec<NodeRecord>,
    /// For how long CPU limits halted what runs there, microseconds, where there are such.
    pub throttled_us: Option<u64>,
}

/// Counters of a host's nodes over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampled {
    /// By node.
    pub tracks: Vec<Track>,
    /// CPU time that it took to read them, ns.
    pub cost_ns: u64,
}
