//! Threaded NAPI: a thread of the kernel polls each receive queue (Documentation/networking/napi.rst, "Threaded NAPI").

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntrySeen};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::{self, Offload};
use rig_sys::napi;
use rig_sys::netns::NetNs;
use serde::{Deserialize, Serialize};

use super::queues::Queues;
use super::{Actuator, Device, Kind, Placing};

const THREADED: &str = "threaded";

#[derive(Debug)]
pub(super) struct Threads {
    queues: Queues,
    threads: Vec<u32>,
    before: Before,
}

/// What the interface had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
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
        let mut before = Before {
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

    fn begin(device: &Device, receive: &Arc<Receive>, first: u32, before: &Before) -> anyhow::Result<Self> {
        if before.switched_gro {
            ethtool::set(&device.ns, &device.name, Offload::Gro, true)?;
        }
        if !before.threaded {
            device.sysfs.write(&device.name, THREADED, "1")?;
        }
        let queues = Queues::watch(device, receive, first)?;
        let threads: Option<Vec<u32>> = queues.napis().iter().map(|napi| napi.thread).collect();
        let threads =
            threads.ok_or_else(|| anyhow!("the kernel names no thread for some of its queues (Linux 6.9 does)"))?;
        Ok(Self { queues, threads, before: before.clone() })
    }
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
            most_cpus: None,
        }
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        let cpu = |&thread: &u32| {
            let cpus = napi::cpus_of_thread(thread)?;
            Ok(if cpus.len() == 1 { cpus.as_slice().first().copied() } else { None })
        };
        self.threads.iter().map(cpu).collect()
    }

    fn apply(&mut self, placings: &[Placing]) -> Vec<anyhow::Result<()>> {
        let put = |placing: &Placing| {
            let Some(&thread) = self.threads.get(placing.entry) else { bail!("there is no entry {}", placing.entry) };
            Ok(napi::move_thread(thread, &CpuSet::new([placing.cpu]))?)
        };
        placings.iter().map(put).collect()
    }

    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntrySeen> {
        self.queues.seen(before, after, true)
    }

    fn distributing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn is_intact(&self) -> bool {
        self.queues.are_intact()
    }

    fn before(&self) -> super::Before {
        super::Before::Napi(self.before.clone())
    }
}

impl Before {
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
