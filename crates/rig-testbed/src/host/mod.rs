//! Where nodes live, and all that a runner asks of it.

mod clock;
mod local;

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use rig_sys::cpu::CpuSet;
use serde::{Deserialize, Serialize};

pub use clock::{ClockOffset, clock_offset};
pub use local::Local;

use crate::node::NodeRecord;
use crate::plan::Plan;

/// A machine on which nodes live, or what stands for one. What goes in and what comes out are plain values, so that the
/// machine may be another process or another machine; only what is started in a node is started by the runner itself.
pub trait Host: fmt::Debug {
    /// # Errors
    /// As all that follow: when the host cannot be asked, or its kernel refuses.
    fn facts(&self) -> Result<Facts>;

    /// Builds the nodes of a plan, the wires between them, and whatever else it says; or adds to what stands what a part of
    /// a plan says.
    fn apply(&mut self, part: &Plan) -> Result<()>;

    /// What starts a program in a namespace (`node` or `node/container`) of a node. It dies with the thread that started it.
    fn command(&self, space: &str, program: &Path) -> Result<Command>;

    /// The host's own CLOCK_MONOTONIC, ns.
    fn now(&self) -> Result<u64>;

    /// Reads all counters of all nodes. What was read stays with the host until the mark is forgotten.
    fn mark(&mut self) -> Result<Mark>;

    /// What the nodes did between two marks, in the order in which they were built.
    fn between(&self, begin: Mark, end: Mark) -> Result<Window>;

    fn forget(&mut self, mark: Mark) -> Result<()>;

    /// Removes all nodes; others may be built then. What is started in them has to be gone.
    fn tear_down(&mut self) -> Result<()>;
}

/// What a host is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that nodes may own.
    pub cpus: CpuSet,
    /// Cores that have several threads.
    pub cores: Vec<CpuSet>,
    /// How CPU time is counted, in words.
    pub accounting: String,
}

/// A moment at which a host read its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    number: u64,
    /// When CPU counters were read, by the host's CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
}

/// What a host's nodes did from one mark to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub nodes: Vec<NodeRecord>,
    /// For how long CPU limits halted what runs there, microseconds, where there are such.
    pub throttled_us: Option<u64>,
}
