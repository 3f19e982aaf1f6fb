//! What a whole machine did meanwhile: the CPUs and the protocol counters of a reading at each edge of the window.

use std::collections::BTreeMap;

use rig_sys::clock;
use rig_sys::counters::{self, CpuTicks, NamespaceCounters, Protocols, Softnet};
use serde::{Deserialize, Serialize};

use crate::record::{CpuUse, NodeRecord, ProtocolDelta};
use crate::run::meter;

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
}

impl MachineUse {
    /// As a node of a trial.
    pub fn into_node(self, name: &str) -> NodeRecord {
        NodeRecord { name: name.into(), cpus: self.cpus, interfaces: Vec::new(), protocol: self.protocol }
    }
}

/// All counters at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub at_ns: u64,
    pub cpus: BTreeMap<u32, CpuTicks>,
    pub softnet: BTreeMap<u32, Softnet>,
    pub protocols: Protocols,
}

impl Reading {
    pub fn until(&self, end: &Self) -> MachineUse {
        let cpus = end.cpus.keys().filter(|cpu| self.cpus.contains_key(cpu)).map(|&cpu| {
            let of = |reading: &Self| {
                let (ticks, softnet) = (reading.cpus.get(&cpu).copied(), reading.softnet.get(&cpu).copied());
                (ticks.unwrap_or_default(), softnet.unwrap_or_default())
            };
            meter::cpu_use(cpu, of(self), of(end))
        });
        let mut protocol = ProtocolDelta::default();
        meter::add_protocols(&mut protocol, &self.protocols, &end.protocols);
        MachineUse { begin_ns: self.at_ns, end_ns: end.at_ns, cpus: cpus.collect(), protocol }
    }
}

/// Reads the counters of the machine, and of the network namespace it was made in.
#[derive(Debug)]
pub struct Meter(NamespaceCounters);

impl Meter {
    /// # Errors
    /// When /proc cannot be read.
    pub fn new() -> rig_sys::Result<Self> {
        NamespaceCounters::here().map(Self)
    }

    /// # Errors
    /// When /proc cannot be read any more.
    pub fn read(&self) -> rig_sys::Result<Reading> {
        let at_ns = clock::monotonic_ns();
        let cpus = counters::cpu_ticks()?;
        let mut protocols = self.0.protocols()?;
        protocols.extend(self.0.protocols_of_ipv6()?);
        Ok(Reading { at_ns, cpus, softnet: counters::softnet()?, protocols })
    }
}
