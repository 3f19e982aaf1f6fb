//! One interface: what was seen of it goes to the policy, what that decides to the actuator.

use std::collections::BTreeMap;
use std::time::Duration;

use rig_datapath::receive::Reading;
use rig_spread::{
    Abilities, Config, CpuObservation, Event, LastingDifference, Move, Observation, State, carry_over, plan,
};

use super::losses::Losses;
use super::machine::machine;
use super::record::Record;
use crate::actuator::{Actuator, Device, EntryMove, UnsupportedKind, spreads};
use crate::message::{Cpu, Entry, Interface, LogEvent, Moves, PastQueues, ReceiveCounts};
use crate::settings::Rule;

/// An interface that was taken.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) device: Device,
    pub(super) index: u32,
    /// The place of its first queue in readings.
    pub(super) first: u32,
    pub(super) actuator: Box<dyn Actuator>,
    pub(super) lacks: Vec<UnsupportedKind>,
    pub(super) rule: Rule,
    config: Config,
    state: State,
    standing: Vec<LastingDifference>,
    totals: Totals,
    /// Those of a second ago, and how long that is.
    before: Totals,
    rates: Rates,
    record: Option<Record>,
    /// Packets of this second, by the CPU that received them first.
    first_on: BTreeMap<u32, u64>,
    /// The CPU that received most of those of the last second that had enough.
    received_by: Option<u32>,
    receiver_spreads: bool,
    /// Whether entries are left to the CPUs that packets reach first, and which of them each was on last.
    in_place: bool,
    polled_by: Vec<Option<u32>>,
    /// Whether it was told that packets come past the queues.
    told_past: bool,
}

/// A second with fewer packets says nothing about the CPU that receives.
const TELLING: u64 = 100;
/// Another CPU is the one that receives first when it has so many times the packets of the one before.
const CLEARLY: u64 = 2;
/// Where entries are left in place, a CPU has this part of all packets to be the one that they come to.
const NEARLY_ALL: f64 = 0.9;

/// Since the interface was taken.
#[derive(Debug, Clone, Default)]
struct Totals {
    entries: Vec<EntryTotals>,
    cpus: BTreeMap<u32, CpuTotals>,
    received: ReceiveCounts,
    moves: Moves,
}

#[derive(Debug, Clone, Copy, Default)]
struct EntryTotals {
    packets: u64,
    cost: Option<Duration>,
    moves: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct CpuTotals {
    packets: u64,
    distributing: Duration,
    processing: Duration,
    other: Duration,
}

/// What became of the last second.
#[derive(Debug, Clone, Default)]
struct Rates {
    entries: Vec<(f64, Option<f64>)>,
    cpus: BTreeMap<u32, [f64; 4]>,
    received: [f64; 3],
    /// Packets that no queue had, where they are most.
    past: Option<f64>,
}

/// Things that happened, for the log.
pub(super) type LogEvents = Vec<LogEvent>;

impl Port {
    /// With all entries where the policy wants them without load.
    ///
    /// # Errors
    /// Where the kernel does not tell of its CPUs.
    pub(super) fn new(
        device: Device,
        index: u32,
        first: u32,
        actuator: Box<dyn Actuator>,
        lacks: Vec<UnsupportedKind>,
        rule: Rule,
        now: Duration,
    ) -> anyhow::Result<(Self, LogEvents)> {
        let receiver_spreads = spreads(&device);
        let abilities = Abilities { receiver_spreads, ..actuator.abilities() };
        let config = Config::new(&rule.settings, rule.tuning, machine(&device)?, abilities);
        let state = State::new(&config);
        let standing = carry_over(&[], &config.effective.differences, now);
        let totals = Totals { entries: vec![EntryTotals::default(); state.table.len()], ..Totals::default() };
        let before = totals.clone();
        let rates = Rates::default();
        let mut port = Self {
            device,
            index,
            first,
            actuator,
            lacks,
            rule,
            config,
            state,
            standing,
            totals,
            before,
            rates,
            record: None,
            first_on: BTreeMap::new(),
            received_by: None,
            receiver_spreads,
            in_place: false,
            polled_by: Vec::new(),
            told_past: false,
        };
        let mut told = vec![LogEvent::Said(port.words())];
        port.place_all(&mut told, now);
        Ok((port, told))
    }

    /// What it was taken by.
    fn words(&self) -> String {
        let (kind, entries) = (self.actuator.kind(), self.state.table.len());
        let mode = self.config.effective.mode;
        match entries {
            0 => format!("looked at and left as it is ({kind})"),
            1 => format!("taken by {kind}: 1 entry, {mode}"),
            _ => format!("taken by {kind}: {entries} entries, {mode}"),
        }
    }

    /// Places in readings that it takes.
    pub(super) fn places(&self) -> u32 {
        self.actuator.queues() as u32
    }

    pub(super) fn record_to(&mut self, record: Record) {
        self.record = Some(record.begin(&self.config, &self.state));
    }

    fn place_all(&mut self, told: &mut LogEvents, now: Duration) {
        let mut refused = Vec::new();
        let placings: Vec<EntryMove> =
            self.state.table.iter().enumerate().map(|(entry, &cpu)| EntryMove { entry, cpu }).collect();
        for (placing, outcome) in placings.iter().zip(self.actuator.apply(&placings)) {
            if let Err(error) = outcome {
                self.totals.moves.failed += 1;
                refused.push(placing.entry);
                told.push(LogEvent::Failed {
                    entry: Some(placing.entry as u32),
                    to: placing.cpu,
                    why: rig_cli::exit::in_words(&error),
                });
            }
        }
        if refused.is_empty() {
            return;
        }
        // They are where the kernel has them, as far as that is one CPU; the policy asks again when that may help.
        let placed = self.actuator.placed().unwrap_or_default();
        for entry in refused {
            let at = placed.get(entry).copied().flatten().unwrap_or(self.state.base);
            self.state = std::mem::take(&mut self.state).found_at(entry as u32, at, now);
        }
    }

    /// Other settings, or other CPUs.
    ///
    /// # Errors
    /// Where the kernel does not tell of its CPUs.
    pub(super) fn configure(&mut self, rule: Rule, now: Duration) -> anyhow::Result<()> {
        self.receiver_spreads = spreads(&self.device);
        let abilities = Abilities {
            receiver_spreads: self.receiver_spreads,
            received_by: self.received_by,
            ..self.actuator.abilities()
        };
        let config = Config::new(&rule.settings, rule.tuning, machine(&self.device)?, abilities);
        self.standing = carry_over(&self.standing, &config.effective.differences, now);
        self.rule = rule;
        if config != self.config {
            self.config = config;
            if let Some(record) = &mut self.record {
                record.config(&self.config);
            }
        }
        Ok(())
    }

    /// Looks at what was done between two readings, and moves what has to move.
    pub(super) fn look(&mut self, before: &Reading, after: &Reading, losses: &Losses, now: Duration) -> LogEvents {
        let seen = self.observe(before, after, losses);
        let mut told = LogEvents::new();
        told.extend(self.actuator.said().map(LogEvent::Said));
        if self.config.abilities.entries == 0 {
            return told;
        }
        if let Some(record) = &mut self.record {
            record.seen(now, &seen);
        }
        let (state, moves, events) = plan(std::mem::take(&mut self.state), &seen, &self.config, now);
        self.state = state;
        let switches = self.state.in_place != self.in_place;
        if switches && !self.state.in_place {
            self.poll_in_place(false, &mut told, now);
        }
        self.carry_out(&moves, &mut told);
        if switches && self.state.in_place {
            self.poll_in_place(true, &mut told, now);
        }
        for event in events {
            if let Event::Undone { moves, .. } = &event {
                self.totals.moves.undone += u64::from(*moves);
            }
            told.push(LogEvent::Event(event));
        }
        told
    }

    /// Switches threads off or on; then the kernel puts them anywhere, and all are placed anew.
    fn poll_in_place(&mut self, in_place: bool, told: &mut LogEvents, now: Duration) {
        match self.actuator.poll_in_place(in_place) {
            Ok(()) => {
                self.in_place = in_place;
                self.polled_by.clear();
                self.first_on.clear();
                if !in_place {
                    self.place_all(told, now);
                }
            }
            Err(error) => {
                let words = rig_cli::exit::in_words(&error);
                told.push(LogEvent::Said(format!("threads could not be switched: {words}")));
                self.state = std::mem::take(&mut self.state).polled_as_before(self.in_place, now);
                if let Some(record) = &mut self.record {
                    record.polled(self.in_place, now);
                }
            }
        }
    }

    fn carry_out(&mut self, moves: &[Move], told: &mut LogEvents) {
        let of_entries: Vec<(&Move, EntryMove)> = moves
            .iter()
            .filter_map(|moved| Some((moved, EntryMove { entry: moved.entry? as usize, cpu: moved.to })))
            .collect();
        let placings: Vec<EntryMove> = of_entries.iter().map(|(_, placing)| *placing).collect();
        for ((moved, placing), outcome) in of_entries.iter().zip(self.actuator.apply(&placings)) {
            match outcome {
                Ok(()) => {
                    *self.totals.moves.total.entry(moved.why).or_default() += 1;
                    self.totals.moves.paid += u64::from(moved.paid);
                    if let Some(entry) = self.totals.entries.get_mut(placing.entry) {
                        entry.moves += 1;
                    }
                    told.push(LogEvent::Moved(**moved));
                }
                Err(error) => {
                    self.totals.moves.failed += 1;
                    self.state = std::mem::take(&mut self.state).failed(moved.entry);
                    if let Some(record) = &mut self.record {
                        record.failed(moved.entry);
                    }
                    let why = rig_cli::exit::in_words(&error);
                    told.push(LogEvent::Failed { entry: moved.entry, to: moved.to, why });
                }
            }
        }
        // Where packets come first is the kernel's choice: no actuator moves it.
        for moved in moves.iter().filter(|moved| moved.entry.is_none()) {
            told.push(LogEvent::Moved(*moved));
        }
    }

    fn observe(&mut self, before: &Reading, after: &Reading, losses: &Losses) -> Observation {
        let over = Duration::from_nanos(after.at.saturating_sub(before.at));
        let entries = self.actuator.seen(before, after);
        let received = self.actuator.received_by(before, after);
        for (&cpu, packets) in &received {
            *self.first_on.entry(cpu).or_default() += packets;
        }
        if self.in_place {
            self.polled_by = self.actuator.polled_by(after);
            for (&cpu, packets) in &received {
                self.totals.cpus.entry(cpu).or_default().packets += packets;
            }
        }
        self.totals.entries.resize(entries.len(), EntryTotals::default());
        // Of entries that the policy does not place, the kernel is asked.
        let placed = if self.state.table.is_empty() { self.actuator.placed().unwrap_or_default() } else { Vec::new() };
        for (index, (total, seen)) in self.totals.entries.iter_mut().zip(&entries).enumerate() {
            total.packets += seen.packets;
            total.cost = seen.cost.map(|cost| total.cost.unwrap_or_default() + cost).or(total.cost);
            let cpu = self.state.table.get(index).copied().or(placed.get(index).copied().flatten());
            if let Some(cpu) = cpu.filter(|_| !self.in_place) {
                self.totals.cpus.entry(cpu).or_default().packets += seen.packets;
            }
        }
        let mut cpus = Vec::new();
        for cpu in self.config.machine.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.number) {
            let idle = |reading: &Reading| reading.cpus.get(cpu as usize).map(|cpu| cpu.idle).unwrap_or_default();
            let busy = over.saturating_sub(idle(after).saturating_sub(idle(before)));
            let distributing = self.actuator.distributing(before, after, cpu);
            let processing = self.actuator.processing(before, after, cpu);
            let other = busy.saturating_sub(distributing + processing);
            let total = self.totals.cpus.entry(cpu).or_default();
            total.distributing += distributing;
            total.processing += processing;
            total.other += other;
            let (lost, squeezed) = losses.of(cpu);
            let lost = lost + self.actuator.lost(cpu);
            // A CPU without a moment's rest, on which packets were handled, never found its queue empty.
            let standing_queue = busy >= over.mul_f64(0.99) && distributing + processing > over.mul_f64(0.05);
            let packets = received.get(&cpu).copied().filter(|_| self.in_place).unwrap_or_default();
            cpus.push(CpuObservation {
                number: cpu,
                packets,
                distributing,
                processing,
                other,
                lost,
                squeezed,
                standing_queue,
            });
        }
        let lost = losses.of_interface(&self.device.name);
        if lost > 0
            && let Some(fullest) = cpus.iter_mut().max_by_key(|cpu| cpu.distributing + cpu.processing)
        {
            fullest.lost += lost;
        }
        Observation { over, entries, cpus }
    }

    /// Whether what is behind the interface is other than it was when that was last looked at.
    pub(super) fn has_another_receiver(&self) -> bool {
        spreads(&self.device) != self.receiver_spreads
    }

    /// The CPU that receives first, by the packets of a second that is over; whether that is another one than before.
    pub(super) fn learn_receiver(&mut self) -> bool {
        let seen = std::mem::take(&mut self.first_on);
        let on = |cpu: u32| seen.get(&cpu).copied().unwrap_or_default();
        let Some((&most, &packets)) = seen.iter().max_by_key(|(_, packets)| **packets) else { return false };
        let all: u64 = seen.values().sum();
        let nearly_all = !self.in_place || packets as f64 >= all as f64 * NEARLY_ALL;
        let before = self.received_by;
        let clearly = nearly_all && before.is_none_or(|before| packets >= on(before).saturating_mul(CLEARLY));
        if packets < TELLING || self.received_by == Some(most) || !clearly {
            return false;
        }
        self.received_by = Some(most);
        true
    }

    /// A second is over. Says so once, when most packets came past the queues.
    pub(super) fn roll(&mut self, over: Duration, received: Option<ReceiveCounts>) -> Option<LogEvent> {
        if let Some(received) = received {
            if self.totals.received == ReceiveCounts::default() {
                // What it had before it was taken is no rate of now.
                self.before.received = received;
            }
            self.totals.received = received;
        }
        let seconds = over.as_secs_f64().max(1e-3);
        let (now, then) = (&self.totals, &self.before);
        let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let share = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / seconds;
        let entry = |(index, now): (usize, &EntryTotals)| {
            let then = then.entries.get(index).copied().unwrap_or_default();
            let packets = now.packets.saturating_sub(then.packets);
            let cost = now.cost.map(|cost| cost.saturating_sub(then.cost.unwrap_or_default()));
            let each = cost.filter(|_| packets > 0).map(|cost| cost.as_nanos() as f64 / packets as f64);
            (per_second(now.packets, then.packets), each)
        };
        let cpu = |(&cpu, now): (&u32, &CpuTotals)| {
            let then = then.cpus.get(&cpu).copied().unwrap_or_default();
            let shares = [
                per_second(now.packets, then.packets),
                share(now.distributing, then.distributing),
                share(now.processing, then.processing),
                share(now.other, then.other),
            ];
            (cpu, shares)
        };
        let (got, had) = (now.received, then.received);
        let of_queues = |totals: &Totals| totals.entries.iter().map(|entry| entry.packets).sum::<u64>();
        let seen = of_queues(now).saturating_sub(of_queues(then));
        let all = got.packets.saturating_sub(had.packets);
        // Both were not read at the very same time.
        let past = (all >= TELLING && seen < all / 2).then(|| (all - seen) as f64 / seconds);
        self.rates = Rates {
            entries: now.entries.iter().enumerate().map(entry).collect(),
            cpus: now.cpus.iter().map(cpu).collect(),
            received: [
                per_second(got.packets, had.packets),
                per_second(got.bytes, had.bytes) * 8.0,
                per_second(got.dropped, had.dropped),
            ],
            past,
        };
        self.before = self.totals.clone();
        if past.is_none() || std::mem::replace(&mut self.told_past, true) {
            return None;
        }
        let why = self.device.past_queues();
        Some(LogEvent::Said(format!("packets come past its receive queues, which nothing here sees or moves: {why}")))
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Duration {
        if self.config.abilities.entries == 0 { Duration::from_millis(100) } else { self.state.next_look(&self.config) }
    }

    pub(super) fn status(&self, now: Duration) -> Interface {
        let placed = self.actuator.placed().unwrap_or_default();
        let cpu_of = |entry: usize| match self.in_place {
            true => self.polled_by.get(entry).copied().flatten(),
            false => self.state.table.get(entry).copied().or(placed.get(entry).copied().flatten()),
        };
        let entry = |(index, total): (usize, &EntryTotals)| {
            let last = self.state.entries.get(index).and_then(|entry| entry.last);
            let (packets_per_s, cost_ns_per_packet) = self.rates.entries.get(index).copied().unwrap_or_default();
            Entry {
                entry: index as u32,
                receive_processor: cpu_of(index).map_or(-1, i64::from),
                prepared: self.state.table.get(index).copied().filter(|_| self.in_place),
                packets: total.packets,
                cost_ns: total.cost.map(|cost| cost.as_nanos() as u64),
                packets_per_s,
                cost_ns_per_packet,
                moves: total.moves,
                last_move_ms: last.map(|last| now.saturating_sub(last.at).as_millis() as u64),
                last_why: last.map(|last| last.why),
            }
        };
        let count = self.totals.entries.len();
        let cpu = |cpu: &rig_spread::Cpu| {
            let total = self.totals.cpus.get(&cpu.number).copied().unwrap_or_default();
            let [packets_per_s, distributing, processing, other] =
                self.rates.cpus.get(&cpu.number).copied().unwrap_or_default();
            Cpu {
                cpu: cpu.number,
                base: self.config.abilities.entries > 0 && cpu.number == self.state.base,
                entries: (0..count).filter(|&entry| cpu_of(entry) == Some(cpu.number)).count() as u32,
                packets: total.packets,
                distributing_ns: total.distributing.as_nanos() as u64,
                processing_ns: total.processing.as_nanos() as u64,
                other_ns: total.other.as_nanos() as u64,
                packets_per_s,
                distributing,
                processing,
                other,
            }
        };
        let [packets_per_s, bits_per_s, dropped_per_s] = self.rates.received;
        Interface {
            name: self.device.name.clone(),
            index: self.index,
            actuator: self.actuator.kind(),
            abilities: self.config.abilities.clone(),
            lacks: self.lacks.clone(),
            requested: self.rule.settings.clone(),
            effective: self.config.effective.clone(),
            differences: self.standing.clone(),
            situation: self.state.situation,
            in_place: self.in_place,
            base: self.state.base,
            received_by: self.received_by,
            moves: Moves { hurried: self.actuator.hurried(), ..self.totals.moves.clone() },
            entries: self.totals.entries.iter().enumerate().map(entry).collect(),
            cpus: self.config.machine.cpus.iter().filter(|cpu| cpu.online).map(cpu).collect(),
            received: ReceiveCounts { packets_per_s, bits_per_s, dropped_per_s, ..self.totals.received },
            past_queues: self
                .rates
                .past
                .map(|packets_per_s| PastQueues { packets_per_s, why: self.device.past_queues() }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
