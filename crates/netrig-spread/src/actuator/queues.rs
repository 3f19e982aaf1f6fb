//! The receive queues of an interface, watched.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use rig_datapath::napi::{self, Napi};
use rig_datapath::receive::{Queue, Reading, Receive};
use rig_spread::EntryObservation;

use super::Device;

/// Watched as long as this lives.
#[derive(Debug)]
pub(super) struct Queues {
    device: Device,
    receive: Arc<Receive>,
    /// The place of the first one in a [`Reading`].
    first: u32,
    napis: Vec<Napi>,
}

impl Queues {
    /// # Errors
    /// Where the interface has none.
    pub(super) fn watch(device: &Device, receive: &Arc<Receive>, first: u32) -> anyhow::Result<Self> {
        let napis = napi::of(&device.ns, &device.name)?;
        if napis.is_empty() {
            bail!("{}", device.without_queues());
        }
        let mut new = Self { device: device.clone(), receive: receive.clone(), first, napis: Vec::new() };
        for (napi, place) in napis.iter().zip(first..) {
            new.receive.watch(napi.id, place)?;
            new.napis.push(*napi);
        }
        Ok(new)
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn napis(&self) -> &[Napi] {
        &self.napis
    }

    pub(super) fn len(&self) -> usize {
        self.napis.len()
    }

    /// Whether they are still those of the interface.
    pub(super) fn are_intact(&self) -> bool {
        napi::of(&self.device.ns, &self.device.name).is_ok_and(|now| now == self.napis)
    }

    fn of<'a>(&self, reading: &'a Reading) -> &'a [Queue] {
        let first = (self.first as usize).min(reading.queues.len());
        let last = (first + self.napis.len()).min(reading.queues.len());
        &reading.queues[first..last]
    }

    /// What they did between two readings; with what polling them cost, where that is all that they cost.
    pub(super) fn seen(&self, before: &Reading, after: &Reading, with_cost: bool) -> Vec<EntryObservation> {
        let between = |(before, after): (&Queue, &Queue)| EntryObservation {
            packets: after.packets.saturating_sub(before.packets),
            bytes: 0,
            cost: with_cost.then(|| after.time.saturating_sub(before.time)),
            waiting: None,
            lost: 0,
        };
        self.of(before).iter().zip(self.of(after)).map(between).collect()
    }

    /// Packets and polls of each between two readings.
    pub(super) fn polls(&self, before: &Reading, after: &Reading) -> Vec<(u64, u64)> {
        let between = |(before, after): (&Queue, &Queue)| {
            (after.packets.saturating_sub(before.packets), after.polls.saturating_sub(before.polls))
        };
        self.of(before).iter().zip(self.of(after)).map(between).collect()
    }

    /// The CPU that polled each last, where it was polled at all.
    pub(super) fn polled_by(&self, reading: &Reading) -> Vec<Option<u32>> {
        self.of(reading).iter().map(|queue| (queue.polls > 0).then_some(queue.cpu)).collect()
    }

    /// Packets that each CPU took from them between two readings. A queue that went from one to another counts for the later.
    pub(super) fn packets_by(&self, before: &Reading, after: &Reading) -> BTreeMap<u32, u64> {
        let mut packets = BTreeMap::new();
        for (before, after) in self.of(before).iter().zip(self.of(after)) {
            let new = after.packets.saturating_sub(before.packets);
            if new > 0 {
                *packets.entry(after.cpu).or_default() += new;
            }
        }
        packets
    }

    /// What polls of them on a CPU took between two readings.
    pub(super) fn polls_on(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        let on = self.of(before).iter().zip(self.of(after)).filter(|(_, after)| after.cpu == cpu);
        on.map(|(before, after)| after.time.saturating_sub(before.time)).sum()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        for napi in &self.napis {
            // It is forgotten with the programs at the latest.
            let _ = self.receive.forget(napi.id);
        }
    }
}
