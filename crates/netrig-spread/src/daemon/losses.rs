//! Packets that the kernel dropped for want of room, between two looks at it.

use std::collections::BTreeMap;

use rig_sys::counters::{self, Interface, NamespaceCounters, Softnet};

/// What was read last, and what was new then.
#[derive(Debug, Default)]
pub(super) struct Losses {
    cpus: BTreeMap<u32, Softnet>,
    interfaces: BTreeMap<String, Interface>,
    of_cpus: BTreeMap<u32, (u64, u64)>,
    of_interfaces: BTreeMap<String, u64>,
}

impl Losses {
    /// Reads the kernel's counters. What cannot be read has lost nothing.
    pub(super) fn read(&mut self, net: &NamespaceCounters) {
        if let Ok(now) = counters::softnet() {
            let new = |(&cpu, now): (&u32, &Softnet)| {
                let then = self.cpus.get(&cpu).unwrap_or(now);
                (cpu, (now.dropped.saturating_sub(then.dropped), now.time_squeeze.saturating_sub(then.time_squeeze)))
            };
            self.of_cpus = now.iter().map(new).collect();
            self.cpus = now;
        }
        if let Ok(now) = net.interfaces() {
            let new = |(name, now): (&String, &Interface)| {
                let then = self.interfaces.get(name).unwrap_or(now);
                (name.clone(), now.rx_dropped.saturating_sub(then.rx_dropped))
            };
            self.of_interfaces = now.iter().map(new).collect();
            self.interfaces = now;
        }
    }

    /// Nothing is new until they are read again.
    pub(super) fn used(&mut self) {
        self.of_cpus.clear();
        self.of_interfaces.clear();
    }

    /// Dropped by a CPU, and how often it had work left at the end of its turn.
    pub(super) fn of(&self, cpu: u32) -> (u64, u64) {
        self.of_cpus.get(&cpu).copied().unwrap_or_default()
    }

    pub(super) fn of_interface(&self, name: &str) -> u64 {
        self.of_interfaces.get(name).copied().unwrap_or_default()
    }

    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.interfaces.keys().map(String::as_str)
    }
}
