//! What a whole machine did meanwhile: the CPUs and the protocol counters of a reading at each edge of the window.

use anyhow::Result;
use rig_datapath::cputime::{Account, Member};
use rig_facts::record::{CpuUse, NodeRecord, NodeShare, ProtocolDelta};
use rig_sys::counters::{NamespaceCounters, Protocols};
use rig_testbed::accounting::CpuAccounting;
use rig_testbed::meter::{self, MachineReading};
use serde::{Deserialize, Serialize};

/// Why a test fails whose worker was done before the machine's counters were read for the first time.
pub const BEGIN_MISSED: &str = "the window was over before this machine's counters were read at its begin: the machine is too busy, or the window too short";

/// Of the machine, counted with the clock of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// When the counters were read, nanoseconds of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Every CPU that was online at the window's end.
    pub cpus: Vec<CpuUse>,
    /// Of the network namespace that the program runs in.
    pub protocol: ProtocolDelta,
    /// What the end's own worker used, and what the namespace's devices caused, where CPU time is counted exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<NodeShare>,
}

impl MachineUse {
    /// As a node of a trial.
    pub fn into_node(self, name: &str) -> NodeRecord {
        let Self { cpus, protocol, share, .. } = self;
        NodeRecord { name: name.into(), cpus, interfaces: Vec::new(), protocol, share }
    }
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub machine: MachineReading,
    /// Of the end's worker, where it is counted apart, and of its namespace.
    pub places: Option<[Account; 2]>,
    pub protocols: Protocols,
}

impl Reading {
    pub fn until(&self, end: &Self) -> MachineUse {
        let (before, after) = (&self.machine.cpus, &end.machine.cpus);
        let online = before.cpus(after);
        let cpus = online.iter().filter_map(|&cpu| self.machine.cpu_until(&end.machine, cpu)).collect();
        let share = end.places.and_then(|[worker, namespace]| {
            let own = before.share_until(after, worker, &online)?;
            let network = before.share_until(after, namespace, &online)?.network;
            Some(NodeShare { network, ..own })
        });
        let mut protocol = ProtocolDelta::default();
        meter::add_protocols(&mut protocol, &self.protocols, &end.protocols);
        MachineUse { begin_ns: before.at_ns, end_ns: after.at_ns, cpus, protocol, share }
    }
}

/// Reads the counters of the machine, and of the network namespace it was made in.
#[derive(Debug)]
pub struct Meter {
    protocols: NamespaceCounters,
    cpu_accounting: CpuAccounting,
    /// The network namespace, and where it is counted while tests run.
    here: Option<u32>,
    namespace: Option<Account>,
    /// Tests that run: CPU time is counted exactly while there are any.
    tests: usize,
}

/// A test's worker whose CPU time is counted apart, where that can be: [`Meter::watch`].
#[derive(Debug)]
pub struct WorkerAccount {
    worker: u32,
    pub account: Option<Account>,
}

impl Meter {
    /// # Errors
    /// When /proc cannot be read.
    pub fn new() -> Result<Self> {
        let here = rig_sys::netns::NetNs::of_current_thread().and_then(|here| here.inode()).ok();
        let cpu_accounting = CpuAccounting::paused();
        Ok(Self { protocols: NamespaceCounters::here()?, cpu_accounting, here, namespace: None, tests: 0 })
    }

    /// How CPU time is counted while a test runs, in words: found out by trying.
    pub fn accounting(&mut self) -> String {
        if self.tests == 0 {
            self.cpu_accounting.resume();
            self.cpu_accounting.pause();
        }
        self.cpu_accounting.words()
    }

    /// Counts the worker of a test apart, until it is [forgotten](Self::forget).
    pub fn watch(&mut self, worker: u32) -> WorkerAccount {
        if self.tests == 0 {
            self.cpu_accounting.resume();
            self.namespace = self.here.and_then(|inode| self.cpu_accounting.watch([Member::Namespace(inode)]));
        }
        self.tests += 1;
        WorkerAccount { worker, account: self.cpu_accounting.watch([Member::Process(worker)]) }
    }

    /// After the last test nothing is counted any more.
    pub fn forget(&mut self, counted: &WorkerAccount) {
        let WorkerAccount { worker, account } = *counted;
        if let Some(account) = account {
            self.cpu_accounting.forget(account, [Member::Process(worker)]);
        }
        self.tests -= 1;
        if self.tests == 0 {
            self.cpu_accounting.pause();
            self.namespace = None;
        }
    }

    /// `worker` is where the test's own worker is counted.
    ///
    /// # Errors
    /// When /proc cannot be read any more.
    pub fn read(&self, worker: Option<Account>) -> Result<Reading> {
        let read = |_: &_| Ok(meter::protocols(&self.protocols, true)?);
        let (machine, protocols) = MachineReading::take(&self.cpu_accounting, read)?;
        let places = worker.zip(self.namespace).map(|(worker, namespace)| [worker, namespace]);
        Ok(Reading { machine, places, protocols })
    }
}
