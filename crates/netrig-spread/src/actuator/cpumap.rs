//! An XDP program that gives each flow to a CPU by its hash, over queues in memory (kernel/bpf/cpumap.c).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rig_datapath::receive::{Reading, Receive};
use rig_datapath::steer::{CpuCounters, Options, Steer, SteerReading};
use rig_spread::{Abilities, EntryObservation};
use rig_stats::units::counted;
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool;
use rig_sys::netdev::{Features, Questions};
use rig_sys::netlink::Netlink;

use super::queues::Queues;
use super::{Actuator, Device, EntryMove, Kind};

/// Some milliseconds of a CPU's work.
const QUEUE: u32 = 2048;
/// Drivers whose packets come from senders on this machine, or from its host, with checksums that were left to a device.
const OF_THIS_MACHINE: [&str; 3] = ["veth", "tun", "virtio_net"];
/// Between two words about moves that did not wait.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct CpuMap {
    steer: Steer,
    queues: Queues,
    strict: bool,
    now: SteerReading,
    before: SteerReading,
    /// Moves that did not wait, as far as they have been told, and when.
    told: (u64, Instant),
}

/// Whether an interface can have it, as far as that shows without taking it: its receive queues.
///
/// # Errors
/// Why not.
pub(super) fn probe(device: &Device) -> anyhow::Result<usize> {
    Steer::may_load()?;
    let name = &device.name;
    let index = Netlink::open(&device.ns)?.index(name)?;
    // Before Linux 6.3 no kernel tells; whether the driver takes the program shows when it is put there.
    if let Ok(mut questions) = device.ns.run(Questions::open)?
        && !device.ns.run(|| questions.features(index))?.is_ok_and(Features::runs_programs)
    {
        bail!("its driver runs no XDP programs, and generic XDP would cost more than it saves");
    }
    if device.ns.run(|| Steer::is_taken(index))? {
        bail!("it has an XDP program already: see `ip link show {name}`");
    }
    let queues = device.receive_queues();
    if queues > Steer::MOST_QUEUES as usize {
        bail!("it has {queues} receive queues, and at most {} are possible", Steer::MOST_QUEUES);
    }
    // They would send packets on to other CPUs behind the queue, and out of order.
    let steered = |queue: &usize| {
        let mask = device.sysfs.read(name, &format!("queues/rx-{queue}/rps_cpus"));
        mask.is_ok_and(|mask| mask.contains(|digit: char| digit != '0' && digit != ','))
    };
    if let Some(queue) = (0..queues).find(steered) {
        bail!(
            "it has receive packet steering, which would mix up the order: empty /sys/class/net/{name}/queues/rx-{queue}/rps_cpus"
        );
    }
    let driver = device.ns.run(|| ethtool::driver(name))?.unwrap_or_default();
    if driver != "veth" && device.ns.run(|| ethtool::takes_tags_off(name))?.unwrap_or_default() {
        bail!("VLAN tags that its device takes off would be lost: ethtool -K {name} rxvlan off");
    }
    Ok(queues)
}

impl CpuMap {
    /// Puts the program onto the interface.
    ///
    /// # Errors
    /// Where that cannot be; then nothing is changed.
    pub(super) fn take(device: &Device, receive: &Arc<Receive>, first: u32, strict: bool) -> anyhow::Result<Self> {
        let queues = probe(device)?.max(1) as u32;
        let driver = device.ns.run(|| ethtool::driver(&device.name))?.unwrap_or_default();
        let completes = OF_THIS_MACHINE.contains(&driver.as_str());
        let online = CpuSet::online()?;
        let begin = online.as_slice().first().copied().unwrap_or_default();
        let mut steer = Steer::load(Options { queues, packets: QUEUE, strict, completes }, begin)?;
        let index = Netlink::open(&device.ns)?.index(&device.name)?;
        device.ns.run(|| steer.attach(index))??;
        // veth has queues with an XDP program.
        let watched = Queues::watch(device, receive, first)?;
        let now = steer.read().context("read what the program counts")?;
        Ok(Self { steer, queues: watched, strict, before: now.clone(), now, told: (0, Instant::now()) })
    }

    fn between(&self, cpu: u32) -> (CpuCounters, CpuCounters) {
        let of = |steered: &SteerReading| steered.cpus.get(cpu as usize).copied().unwrap_or_default();
        (of(&self.before), of(&self.now))
    }
}

impl Actuator for CpuMap {
    fn kind(&self) -> Kind {
        if self.strict { Kind::Cpumap } else { Kind::CpumapBounded }
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            entries: Steer::BUCKETS,
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
        let steered = self.steer.read()?;
        Ok(steered.buckets.iter().map(|bucket| (!bucket.waits).then_some(bucket.cpu)).collect())
    }

    fn apply(&mut self, placings: &[EntryMove]) -> Vec<anyhow::Result<()>> {
        let online = match CpuSet::online() {
            Ok(online) => online,
            Err(error) => {
                let words = error.to_string();
                return placings.iter().map(|_| bail!("{words}")).collect();
            }
        };
        let mut put = |placing: &EntryMove| {
            let EntryMove { entry, cpu } = *placing;
            let Some(bucket) = self.now.buckets.get_mut(entry) else { bail!("there is no entry {entry}") };
            if !online.contains(cpu) {
                bail!("CPU {cpu} is offline");
            }
            // The thread of a CPU that is gone is on another one, and not to be followed.
            if online.contains(bucket.cpu) {
                self.steer.place(entry as u32, cpu)?;
            } else {
                self.steer.place_at_once(entry as u32, cpu)?;
            }
            bucket.cpu = cpu;
            Ok(())
        };
        placings.iter().map(&mut put).collect()
    }

    fn seen(&mut self, _: &Reading, _: &Reading) -> Vec<EntryObservation> {
        // What could not be read is seen the next time.
        let now = self.steer.read().unwrap_or_else(|_| self.now.clone());
        self.before = std::mem::replace(&mut self.now, now);
        let pairs = self.before.buckets.iter().zip(&self.now.buckets);
        let seen = pairs.map(|(before, now)| EntryObservation {
            packets: now.packets.saturating_sub(before.packets),
            bytes: now.bytes.saturating_sub(before.bytes),
            ..EntryObservation::default()
        });
        seen.collect()
    }

    fn distributing(&self, before: &Reading, after: &Reading, cpu: u32) -> Duration {
        self.queues.polls_on(before, after, cpu)
    }

    fn received_by(&self, before: &Reading, after: &Reading) -> BTreeMap<u32, u64> {
        self.queues.packets_by(before, after)
    }

    fn processing(&self, _: &Reading, _: &Reading, cpu: u32) -> Duration {
        let (before, now) = self.between(cpu);
        now.time.saturating_sub(before.time)
    }

    fn lost(&self, cpu: u32) -> u64 {
        let (before, now) = self.between(cpu);
        now.refused.saturating_sub(before.refused)
    }

    fn hurried(&self) -> Option<u64> {
        Some(self.now.buckets.iter().map(|bucket| bucket.hurried).sum())
    }

    fn said(&mut self) -> Option<String> {
        let (told, at) = self.told;
        let hurried = self.hurried().unwrap_or_default();
        if hurried <= told || at.elapsed() < PAUSE {
            return None;
        }
        self.told = (hurried, Instant::now());
        let new = hurried - told;
        Some(format!(
            "{} did not wait for the old CPU, so that packets may have overtaken each other; {hurried} in all",
            counted(new, "move", "moves")
        ))
    }

    fn is_intact(&self) -> bool {
        self.queues.are_intact()
    }

    fn before(&self) -> super::SavedState {
        // The program goes with this process.
        super::SavedState::Nothing { interface: self.queues.device().name.clone() }
    }
}
