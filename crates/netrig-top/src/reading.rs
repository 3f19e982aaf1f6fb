//! All counters at a moment, from wherever they are had.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rig_datapath::receive;
use rig_sys::counters::{self, CpuTicks, Softnet};

/// Totals; a [`Sample`](crate::sample::Sample) is what they rose by between two of these.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub ticks: BTreeMap<u32, CpuTicks>,
    pub softnet: BTreeMap<u32, Softnet>,
    /// All interfaces of the network namespace.
    pub interfaces: BTreeMap<String, counters::Interface>,
    /// Interfaces that are to be shown and are there, in order.
    pub shown: Vec<String>,
    pub spreader: Option<netrig_spread::message::Status>,
    pub counted: Option<ProgramCounts>,
    pub balancer: Option<netrig_lb::message::Status>,
    pub router: Option<netrig_vrouter::message::Status>,
    /// What is not shown, and why.
    pub lacks: Vec<String>,
    /// CPU time of this process.
    pub own_cpu: Duration,
    /// How long it took to read all this.
    pub took: Duration,
}

/// What the programs have counted that are attached for interfaces without a spreader.
#[derive(Debug, Clone, Default)]
pub struct ProgramCounts {
    pub reading: receive::Reading,
    pub queues: Vec<CountedQueue>,
    /// Interfaces whose packets are put into other CPUs' queues (receive packet steering): their own polls distribute.
    pub steered: BTreeSet<String>,
}

/// A receive queue, and where it is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedQueue {
    pub interface: String,
    pub queue: u32,
    pub napi: u32,
    /// In [`receive::Reading::queues`].
    pub index: u32,
}
