//! Receive packet steering: the CPU that receives from a queue puts the packets into the queue of another one
//! (Documentation/networking/scaling.rst, "RPS").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntryObservation};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netns::{NetNs, Sysfs};
use serde::{Deserialize, Serialize};

use super::queues::Queues;
use super::{Actuator, Device, EntryMove, Kind};

#[derive(Debug)]
pub(super) struct RpsMasks {
    queues: Queues,
    before: SavedState,
}

/// What the interface had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(super) interface: String,
    /// As the kernel writes them, by queue.
    masks: Vec<String>,
    /// Whether receive offload had to be switched on, without which veth has no queues.
    switched_gro: bool,
}

fn file(queue: usize) -> String {
    format!("queues/rx-{queue}/rps_cpus")
}

/// What the kernel writes: groups of 32 bits, hexadecimal, the highest first.
fn cpus_of(mask: &str) -> CpuSet {
    let words = mask.trim().rsplit(',').map(|word| u32::from_str_radix(word, 16).unwrap_or_default());
    let bits = |(at, word): (u32, u32)| (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 32 + bit);
    CpuSet::new((0..).zip(words).flat_map(bits))
}

impl RpsMasks {
    /// Takes the masks of the interface's queues.
    ///
    /// # Errors
    /// Where that cannot be; then nothing is changed.
    pub(super) fn take(device: &Device, receive: &Arc<Receive>, first: u32) -> anyhow::Result<Self> {
        let switched_gro = device.needs_gro()?;
        if switched_gro {
            ethtool::set(&device.ns, &device.name, Offload::Gro, true)?;
        }
        let mut before = SavedState { interface: device.name.clone(), masks: Vec::new(), switched_gro };
        let taken = Queues::watch(device, receive, first).and_then(|queues| {
            for queue in 0..queues.len() {
                let why = "the kernel is built without CONFIG_RPS, or the queue is of another kind";
                before.masks.push(device.sysfs.read(&device.name, &file(queue)).context(why)?);
            }
            // Whether it may be written, before anything is.
            if let Some(mask) = before.masks.first() {
                device.sysfs.write(&device.name, &file(0), mask)?;
            }
            Ok(queues)
        });
        match taken {
            Ok(queues) => Ok(Self { queues, before }),
            Err(error) => {
                before.masks.clear();
                before.restore(&device.ns)?;
                Err(error)
            }
        }
    }

    fn sysfs(&self) -> (&Sysfs, &str) {
        let device = self.queues.device();
        (&device.sysfs, &device.name)
    }
}

impl Actuator for RpsMasks {
    fn kind(&self) -> Kind {
        Kind::Rps
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: self.queues.len() as u32,
            single_moves: true,
            order: self.kind().order(),
            distributes: true,
            base_moves: false,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: None,
        }
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        let (sysfs, name) = self.sysfs();
        let cpu = |queue: usize| {
            let cpus = cpus_of(&sysfs.read(name, &file(queue))?);
            Ok(if cpus.len() == 1 { cpus.as_slice().first().copied() } else { None })
        };
        (0..self.queues.len()).map(cpu).collect()
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        let (sysfs, name) = self.sysfs();
        let put = |placing: &EntryMove| {
            if placing.entry >= self.queues.len() {
                bail!("there is no entry {}", placing.entry);
            }
            // The kernel takes CPUs that are offline, and then steers nothing.
            if !CpuSet::online()?.contains(placing.cpu) {
                bail!("CPU {} is offline", placing.cpu);
            }
            Ok(sysfs.write(name, &file(placing.entry), &CpuSet::new([placing.cpu]).mask())?)
        };
        placings.iter().map(put).collect()
    }

    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntryObservation> {
        self.queues.seen(before, after, false)
    }

    fn distributing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn received_by(&self, before: &Reading, after: &Reading) -> BTreeMap<u32, u64> {
        self.queues.packets_by(before, after)
    }

    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        let backlog = |reading: &Reading| reading.cpus.get(cpu as usize).map(|cpu| cpu.backlog).unwrap_or_default();
        backlog(after).saturating_sub(backlog(before))
    }

    fn is_intact(&self) -> bool {
        self.queues.are_intact()
    }

    fn before(&self) -> super::SavedState {
        super::SavedState::Rps(self.before.clone())
    }
}

impl SavedState {
    pub(super) fn restore(&self, ns: &NetNs) -> anyhow::Result<()> {
        let mut first = Ok(());
        let mut keep = |outcome: rig_sys::Result<()>| {
            if let (Err(error), true) = (outcome, first.is_ok()) {
                first = Err(error.into());
            }
        };
        let sysfs = ns.sysfs()?;
        // Queues that it has no more have no masks.
        let there = |(queue, _): &(usize, &String)| sysfs.read(&self.interface, &file(*queue)).is_ok();
        for (queue, mask) in self.masks.iter().enumerate().filter(there) {
            keep(sysfs.write(&self.interface, &file(queue), mask));
        }
        if self.switched_gro {
            keep(ethtool::set(ns, &self.interface, Offload::Gro, false));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_as_the_kernel_writes_them() {
        for cpus in [vec![], vec![0], vec![1, 31], vec![32], vec![0, 33, 95]] {
            let set = CpuSet::new(cpus);
            assert_eq!(cpus_of(&set.mask()), set);
        }
        assert_eq!(cpus_of("00000000,00000003\n"), CpuSet::new([0, 1]));
    }
}
