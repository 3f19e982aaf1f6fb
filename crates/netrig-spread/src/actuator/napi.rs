//! Threaded NAPI: a thread of the kernel polls each receive queue (Documentation/networking/napi.rst, "Threaded NAPI").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rig_datapath::napi::{self, Napi};
use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntryObservation};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::netns::NetNs;
use serde::{Deserialize, Serialize};

use super::queues::Queues;
use super::{Actuator, Device, EntryMove, Kind};

const THREADED: &str = "threaded";
/// Packets of a poll that leaves some in the queue (NAPI_POLL_WEIGHT).
const WHOLE: f64 = 64.0;

#[derive(Debug)]
pub(super) struct Threads {
    queues: Queues,
    threads: Vec<u32>,
    /// There are no threads.
    in_place: bool,
    /// Packets and polls of each queue between the last two readings.
    done: Vec<(u64, u64)>,
    before: SavedState,
}

/// What the interface had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(super) interface: String,
    /// Whether threads polled it already.
    threaded: bool,
    /// Where these could run: of those that were there.
    threads: Vec<(u32, CpuSet)>,
    /// Whether receive offload had to be switched on, without which veth has no queues.
    switched_gro: bool,
}

impl Threads {
    /// Has threads poll the interface's queues.
    ///
    /// # Errors
    /// Where that cannot be; then nothing is changed.
    pub(super) fn take(device: &Device, receive: &Arc<Receive>, first: u32) -> anyhow::Result<Self> {
        napi::may_place()?;
        let threaded =
            device.sysfs.read(&device.name, THREADED).context("there are no such threads before Linux 5.12")?;
        let mut before = SavedState {
            interface: device.name.clone(),
            threaded: threaded != "0",
            threads: Vec::new(),
            switched_gro: device.needs_gro()?,
        };
        if before.threaded {
            for napi in napi::of(&device.ns, &device.name)? {
                if let Some(thread) = napi.thread {
                    before.threads.push((thread, napi::cpus_of_thread(thread)?));
                }
            }
        }
        match Self::begin(device, receive, first, &before) {
            Ok(taken) => Ok(taken),
            Err(error) => {
                before.restore(&device.ns)?;
                Err(error)
            }
        }
    }

    fn begin(device: &Device, receive: &Arc<Receive>, first: u32, before: &SavedState) -> anyhow::Result<Self> {
        if before.switched_gro {
            ethtool::set(&device.ns, &device.name, Offload::Gro, true)?;
        }
        if !before.threaded {
            device.sysfs.write(&device.name, THREADED, "1")?;
        }
        let queues = Queues::watch(device, receive, first)?;
        let threads = threads(queues.napis())?;
        Ok(Self { queues, threads, in_place: false, done: Vec::new(), before: before.clone() })
    }
}

/// Those of all queues.
fn threads(napis: &[Napi]) -> anyhow::Result<Vec<u32>> {
    let threads: Option<Vec<u32>> = napis.iter().map(|napi| napi.thread).collect();
    threads.ok_or_else(|| anyhow!("some of its queues have no thread"))
}

impl Actuator for Threads {
    fn kind(&self) -> Kind {
        Kind::Napi
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: self.queues.len() as u32,
            single_moves: true,
            order: self.kind().order(),
            distributes: false,
            base_moves: false,
            receiver_spreads: true,
            received_by: None,
            // Who had threads before wanted them.
            in_place: !self.before.threaded,
            only_cpus: None,
        }
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        if self.in_place {
            return Ok(vec![None; self.queues.len()]);
        }
        let cpu = |&thread: &u32| {
            let cpus = napi::cpus_of_thread(thread)?;
            Ok(if cpus.len() == 1 { cpus.as_slice().first().copied() } else { None })
        };
        self.threads.iter().map(cpu).collect()
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        let put = |placing: &EntryMove| {
            if self.in_place && placing.entry < self.queues.len() {
                return Ok(());
            }
            let Some(&thread) = self.threads.get(placing.entry) else { bail!("there is no entry {}", placing.entry) };
            Ok(napi::move_thread(thread, &CpuSet::new([placing.cpu]))?)
        };
        placings.iter().map(put).collect()
    }

    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntryObservation> {
        self.done = self.queues.polls(before, after);
        self.queues.seen(before, after, true)
    }

    fn received_by(&self, before: &Reading, after: &Reading) -> BTreeMap<u32, u64> {
        if self.in_place { self.queues.packets_by(before, after) } else { BTreeMap::new() }
    }

    fn polled_by(&self, reading: &Reading) -> Vec<Option<u32>> {
        self.queues.polled_by(reading)
    }

    /// The CPU that polls a queue goes on until it is empty, and then gives it up: no other polls it meanwhile, so that packets stay in
    /// order.
    fn poll_in_place(&mut self, in_place: bool) -> anyhow::Result<()> {
        if in_place == self.in_place {
            return Ok(());
        }
        let Device { ns, sysfs, name } = self.queues.device();
        if in_place {
            // The kernel waits for each thread to find its queue empty, and lets no process change the interface meanwhile.
            let never_empty =
                |(packets, polls): &(u64, u64)| *polls > 0 && *packets as f64 >= *polls as f64 * WHOLE * 0.9;
            if let Some(queue) = self.done.iter().position(never_empty) {
                bail!("receive queue {queue} is never empty, so that its thread would not end");
            }
            sysfs.write(name, THREADED, "0")?;
        } else {
            sysfs.write(name, THREADED, "1")?;
            // They are others than before from Linux 6.17 on.
            self.threads = threads(&napi::of(ns, name)?)?;
        }
        self.in_place = in_place;
        Ok(())
    }

    fn distributing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn is_intact(&self) -> bool {
        let Device { ns, name, .. } = self.queues.device();
        let Ok(now) = napi::of(ns, name) else { return false };
        let same = |(now, then): (&Napi, &Napi)| (now.id, now.irq) == (then.id, then.irq);
        now.len() == self.queues.len()
            && now.iter().zip(self.queues.napis()).all(same)
            && (self.in_place || now.iter().zip(&self.threads).all(|(now, thread)| now.thread == Some(*thread)))
    }

    fn before(&self) -> super::SavedState {
        super::SavedState::Napi(self.before.clone())
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
        if self.threaded {
            let there = napi::of(ns, &self.interface).unwrap_or_default();
            for (thread, cpus) in &self.threads {
                // The interface may have others by now, and the number may be another process's.
                if there.iter().any(|napi| napi.thread == Some(*thread)) {
                    keep(napi::move_thread(*thread, cpus));
                }
            }
        } else {
            keep(ns.sysfs().and_then(|sysfs| sysfs.write(&self.interface, THREADED, "0")));
        }
        if self.switched_gro {
            keep(ethtool::set(ns, &self.interface, Offload::Gro, false));
        }
        first
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
