//! Receive-side scaling: the device itself places packets, by a table from their hash to a queue, whose interrupt is on a CPU
//! (Documentation/networking/scaling.rst, "RSS: Receive Side Scaling").

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rig_datapath::napi::{self, Napi};
use rig_datapath::receive::{Reading, Receive};
use rig_spread::{Abilities, EntryObservation};
use rig_sys::cpu::CpuSet;
use rig_sys::interrupts::cpus_of;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::rss;
use serde::{Deserialize, Serialize};

use super::queues::Queues;
use super::{Actuator, Device, EntryMove, Kind};

#[derive(Debug)]
pub(super) struct Table {
    queues: Queues,
    index: u32,
    /// The queue of each entry.
    table: Vec<u32>,
    /// By the CPU that a queue's interrupt comes to.
    queue_on: BTreeMap<u32, u32>,
    before: SavedState,
}

/// What the interface had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(super) interface: String,
    /// Empty for the driver's own.
    table: Vec<u32>,
}

/// The queue that each CPU receives from.
fn queues_by_cpu(napis: &[Napi], cpu_of: impl Fn(u32) -> Option<CpuSet>) -> anyhow::Result<BTreeMap<u32, u32>> {
    if napis.len() < 2 {
        bail!("it has a single receive queue, to which all entries would lead");
    }
    let mut queue_on = BTreeMap::new();
    for (queue, napi) in (0..).zip(napis) {
        let unknown =
            || format!("the kernel does not tell which interrupt receive queue {queue} has, and so not its CPU");
        let interrupt = napi.irq.with_context(unknown)?;
        let cpus = cpu_of(interrupt)
            .ok_or_else(|| anyhow!("the kernel does not tell which CPU interrupt {interrupt} comes to"))?;
        let &[cpu] = cpus.as_slice() else {
            bail!(
                "interrupt {interrupt} of receive queue {queue} comes to several CPUs ({cpus}): write one of them to /proc/irq/{interrupt}/smp_affinity_list"
            );
        };
        if let Some(other) = queue_on.insert(cpu, queue) {
            bail!(
                "interrupts of receive queues {other} and {queue} both come to CPU {cpu}, and an entry's CPU could not be told: write \
                 another CPU to /proc/irq/{interrupt}/smp_affinity_list, and end irqbalance"
            );
        }
    }
    Ok(queue_on)
}

/// The kernel's own table, where none was set (ethtool_rxfh_indir_default).
fn is_default(table: &[u32], queues: usize) -> bool {
    (0..).zip(table).all(|(entry, &queue): (usize, _)| queue as usize == entry % queues.max(1))
}

/// Puts entries onto CPUs: the table that comes of it, and what came of each.
fn placed_in(
    table: &[u32],
    queue_on: &BTreeMap<u32, u32>,
    placings: &[EntryMove],
) -> (Vec<u32>, Vec<anyhow::Result<()>>) {
    let mut new = table.to_vec();
    let put = |placing: &EntryMove| {
        let Some(queue) = new.get_mut(placing.entry) else { bail!("there is no entry {}", placing.entry) };
        let cpus = || CpuSet::new(queue_on.keys().copied());
        let found = queue_on.get(&placing.cpu);
        *queue = *found.with_context(|| {
            format!("no receive queue's interrupt comes to CPU {}; they come to {}", placing.cpu, cpus())
        })?;
        Ok(())
    };
    let outcomes = placings.iter().map(put).collect();
    (new, outcomes)
}

/// Each entry's share of what its queue did: the device counts by queue.
fn shared(by_queue: &[EntryObservation], table: &[u32]) -> Vec<EntryObservation> {
    let mut entries = vec![0_u64; by_queue.len()];
    for &queue in table {
        if let Some(entries) = entries.get_mut(queue as usize) {
            *entries += 1;
        }
    }
    let mut nth = vec![0_u64; by_queue.len()];
    let share = |&queue: &u32| {
        let at = queue as usize;
        let Some(whole) = by_queue.get(at) else { return EntryObservation::default() };
        let of = entries[at].max(1);
        // The sum is the queue's.
        let extra = u64::from(nth[at] < whole.packets % of);
        nth[at] += 1;
        EntryObservation {
            packets: whole.packets / of + extra,
            cost: whole.cost.map(|cost| cost / of as u32),
            ..EntryObservation::default()
        }
    };
    table.iter().map(share).collect()
}

/// Table, and queues by CPU, of an interface that can have it.
///
/// # Errors
/// Why not.
pub(super) fn probe(device: &Device) -> anyhow::Result<(Vec<u32>, BTreeMap<u32, u32>)> {
    let name = &device.name;
    let index = Netlink::open(&device.ns)?.index(name)?;
    let table = device.ns.run(|| rss::get(index, name))?;
    let mut table = table.map_err(|error| anyhow!("its driver has no table for receive-side scaling ({error})"))?;
    if table.is_empty() {
        bail!("its driver has no table for receive-side scaling");
    }
    let napis = napi::of(&device.ns, name)?;
    if napis.is_empty() {
        bail!("{}", device.without_queues());
    }
    let queue_on = queues_by_cpu(&napis, cpus_of)?;
    // After `ethtool -L` some drivers show the table of before; the kernel takes no such table back.
    for queue in &mut table {
        *queue %= napis.len() as u32;
    }
    Ok((table, queue_on))
}

impl Table {
    /// Takes the table.
    ///
    /// # Errors
    /// Where that cannot be; then nothing is changed.
    pub(super) fn take(device: &Device, receive: &Arc<Receive>, first: u32) -> anyhow::Result<Self> {
        let (table, queue_on) = probe(device)?;
        let index = Netlink::open(&device.ns)?.index(&device.name)?;
        let queues = Queues::watch(device, receive, first)?;
        // Whether it may be written, before anything is.
        device.ns.run(|| rss::set(index, &device.name, &table))?.context("its driver does not take a table")?;
        let own = is_default(&table, queues.len());
        let before = SavedState { interface: device.name.clone(), table: if own { Vec::new() } else { table.clone() } };
        Ok(Self { queues, index, table, queue_on, before })
    }
}

impl Actuator for Table {
    fn kind(&self) -> Kind {
        Kind::Rss
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: self.table.len() as u32,
            single_moves: true,
            order: self.kind().order(),
            distributes: false,
            base_moves: false,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: Some(self.queue_on.keys().copied().collect()),
        }
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn placed(&self) -> anyhow::Result<Vec<Option<u32>>> {
        let device = self.queues.device();
        let table = device.ns.run(|| rss::get(self.index, &device.name))??;
        let cpu_of = |queue: u32| self.queue_on.iter().find(|(_, at)| **at == queue).map(|(cpu, _)| *cpu);
        Ok(table.into_iter().map(cpu_of).collect())
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        let (new, mut outcomes) = placed_in(&self.table, &self.queue_on, placings);
        if new == self.table {
            return outcomes;
        }
        let device = self.queues.device();
        // All at once: the device takes whole tables.
        let written = device.ns.run(|| rss::set(self.index, &device.name, &new));
        match written.map_err(anyhow::Error::from).and_then(|written| Ok(written?)) {
            Ok(()) => self.table = new,
            Err(error) => {
                for outcome in &mut outcomes {
                    *outcome = Err(anyhow!("the driver refuses the table: {error}"));
                }
            }
        }
        outcomes
    }

    fn seen(&mut self, before: &Reading, after: &Reading) -> Vec<EntryObservation> {
        shared(&self.queues.seen(before, after, true), &self.table)
    }

    fn distributing(&self, _: &Reading, _: &Reading, _: u32) -> Duration {
        Duration::ZERO
    }

    fn processing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn is_intact(&self) -> bool {
        self.queues.are_intact() && queues_by_cpu(self.queues.napis(), cpus_of).is_ok_and(|now| now == self.queue_on)
    }

    fn before(&self) -> super::SavedState {
        super::SavedState::Rss(self.before.clone())
    }
}

impl SavedState {
    pub(super) fn restore(&self, ns: &NetNs) -> anyhow::Result<()> {
        let index = Netlink::open(ns)?.index(&self.interface)?;
        Ok(ns.run(|| rss::set(index, &self.interface, &self.table))??)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn napis(interrupts: &[Option<u32>]) -> Vec<Napi> {
        (8193..).zip(interrupts).map(|(id, &irq)| Napi { id, irq, thread: None }).collect()
    }

    /// Interrupt 40 + n comes to CPU 2n, 50 to several, of 60 nothing is known.
    fn cpus(interrupt: u32) -> Option<CpuSet> {
        match interrupt {
            50 => Some(CpuSet::new([0, 1])),
            60 => None,
            other => Some(CpuSet::new([(other - 40) * 2])),
        }
    }

    #[test]
    fn queues_are_found_by_the_cpu_of_their_interrupt_or_the_reason_is_said() {
        let found = queues_by_cpu(&napis(&[Some(41), Some(40), Some(43)]), cpus).unwrap();
        assert_eq!(found, BTreeMap::from([(2, 0), (0, 1), (6, 2)]));
        let why = |interrupts: &[Option<u32>]| queues_by_cpu(&napis(interrupts), cpus).unwrap_err().to_string();
        assert!(why(&[Some(40)]).contains("single receive queue"));
        assert!(why(&[Some(40), None]).contains("does not tell which interrupt receive queue 1 has"));
        assert!(why(&[Some(40), Some(60)]).contains("which CPU interrupt 60"));
        assert!(why(&[Some(50), Some(40)]).contains("several CPUs (0-1)"), "{}", why(&[Some(50), Some(40)]));
        assert!(why(&[Some(42), Some(41), Some(42)]).contains("queues 0 and 2 both come to CPU 4"));
    }

    #[test]
    fn entries_are_put_onto_cpus_by_their_queues() {
        let queue_on = BTreeMap::from([(2, 0), (0, 1)]);
        let placings = [(0, 0), (3, 2), (1, 5), (9, 0)].map(|(entry, cpu)| EntryMove { entry, cpu });
        let (table, outcomes) = placed_in(&[0, 1, 0, 1], &queue_on, &placings);
        assert_eq!(table, [1, 1, 0, 0]);
        let words: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().map_err(ToString::to_string)).collect();
        assert_eq!(words[..2], [Ok(&()), Ok(&())]);
        assert_eq!(words[2], Err("no receive queue's interrupt comes to CPU 5; they come to 0,2".to_owned()));
        assert_eq!(words[3], Err("there is no entry 9".to_owned()));
    }

    #[test]
    fn what_a_queue_did_is_shared_among_its_entries() {
        let queue = |packets, micros| EntryObservation {
            packets,
            cost: Some(Duration::from_micros(micros)),
            ..EntryObservation::default()
        };
        let shares = shared(&[queue(7, 30), queue(5, 9)], &[0, 0, 1, 0]);
        assert_eq!(shares.iter().map(|share| share.packets).collect::<Vec<_>>(), [3, 2, 5, 2]);
        assert_eq!(shares[0].cost, Some(Duration::from_micros(10)));
        assert_eq!(shared(&[queue(7, 30)], &[3]), [EntryObservation::default()]);
    }

    #[test]
    fn the_kernels_own_table_is_known() {
        assert!(is_default(&[0, 1, 2, 0, 1], 3));
        assert!(!is_default(&[0, 1, 1, 0], 2));
    }
}
