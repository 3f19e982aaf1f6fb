//! One look: the observation put in order, and how moves are noted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effective::{Config, EffectiveSettings, in_order};
use crate::event::{Event, Move, MoveReason, Situation};
use crate::nanos;
use crate::observation::{CpuObservation, Observation};
use crate::settings::Mode;
use crate::state::{EntryState, LastMove, Limit, State, layout};

pub(super) const SECOND: u64 = 1_000_000_000;
/// A limit that lasts is told of again after so long.
const TELL_AGAIN: u64 = 60 * SECOND;

/// A CPU that may be used. Those of a look are in order of preference, the base first.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuCandidate {
    pub number: u32,
    pub node: u32,
    /// What a packet costs here, to what it costs on the base's node.
    pub cost: f64,
    /// Entries may be here: not on a base that is excluded.
    pub may: bool,
    /// Nothing new goes here for now.
    pub avoided: bool,
    /// Other work, as a fraction: of tenths of a second, and of seconds.
    pub other: f64,
    pub other_slow: f64,
    /// All work in this interval, as a fraction.
    pub busy: f64,
    /// No idle time, or packets that waited or were dropped.
    pub full: bool,
    /// Too much to do at enough looks in a row.
    pub hot: bool,
    /// Entries here, and those of them with traffic.
    pub entries: u32,
    pub alive: u32,
}

pub(super) struct PlanContext<'a> {
    pub state: State,
    pub seen: &'a Observation,
    pub config: &'a Config,
    /// In ns.
    pub now: u64,
    pub moves: Vec<Move>,
    pub events: Vec<Event>,
    pub candidates: Vec<CpuCandidate>,
    /// Which place each entry is on; none: on a CPU that may not be used.
    pub at: Vec<Option<usize>>,
    position: BTreeMap<u32, usize>,
}

impl<'a> PlanContext<'a> {
    pub fn begin(mut state: State, seen: &'a Observation, config: &'a Config, now: Duration) -> Self {
        let events = std::mem::take(&mut state.untold);
        let now = nanos::of(now);
        let mut context = Self {
            state,
            seen,
            config,
            now,
            moves: Vec::new(),
            events,
            candidates: Vec::new(),
            at: Vec::new(),
            position: BTreeMap::new(),
        };
        context.state.times.looked = now;
        context
    }

    /// What is in force may be new: entries, base, CPUs.
    pub fn take_settings(&mut self) {
        let effective = &self.config.effective;
        let before = self.state.in_force.as_ref();
        if before != Some(effective) {
            if before.is_none_or(|before| before.base != effective.base || effective.base_fixed) {
                self.state.base = effective.base;
            }
            if before.is_some_and(|before| before.mode != effective.mode) {
                let keep = nanos::of(self.config.tuning.keep_parked.0);
                self.state.times.coalesce_after = self.now.saturating_add(keep);
                self.state.situation =
                    if effective.mode == Mode::Dynamic { Situation::Spread } else { Situation::Fixed };
                self.state.watch = None;
            }
            let moved = before.filter(|before| {
                let there = EffectiveSettings {
                    base: before.base,
                    cpus: before.cpus.clone(),
                    static_first: before.static_first,
                    ..effective.clone()
                };
                before.base != effective.base && there == **before
            });
            if let Some(before) = moved {
                self.events.push(Event::BaseSeen { from: before.base, to: effective.base });
            } else if before.is_some() {
                self.events.push(Event::Settings { mode: effective.mode, differences: effective.differences.clone() });
            }
            self.state.in_force = Some(effective.clone());
            self.state.times.active = self.now;
        }
        if !effective.cpus.contains(&self.state.base) {
            self.state.base = effective.base;
        }
        self.order_places();
        let entries = self.config.abilities.entries as usize;
        if self.state.table.len() != entries {
            let wanted = layout(self.config, self.state.base, entries, &self.numbers());
            self.state.entries.resize(entries, EntryState::default());
            self.state.table.truncate(entries);
            for to in &wanted[self.state.table.len()..] {
                let entry = u32::try_from(self.state.table.len()).ok();
                let from = self.state.base;
                self.state.table.push(*to);
                self.moves.push(Move { entry, from, to: *to, why: MoveReason::Mode, paid: false, predicted: 0.0 });
            }
            self.state.watch = None;
        }
        self.locate();
    }

    /// The CPUs that may be used, in order of preference.
    pub fn numbers(&self) -> Vec<u32> {
        self.candidates.iter().map(|candidate| candidate.number).collect()
    }

    /// Puts the CPUs in order around the base; what is known of them stays.
    pub fn order_places(&mut self) {
        let effective = &self.config.effective;
        let base = self.state.base;
        let order = if base == effective.base {
            effective.cpus.clone()
        } else {
            in_order(&self.config.machine, &effective.cpus.iter().copied().collect(), base)
        };
        let nodes: BTreeMap<u32, u32> =
            self.config.machine.cpus.iter().map(|cpu| (cpu.number, cpu.numa_node)).collect();
        let grudge = nanos::of(self.config.tuning.grudge.0);
        let now = self.now;
        self.state.avoid.retain(|(_, since)| now < since.saturating_add(grudge));
        let mut before = std::mem::take(&mut self.candidates);
        let mut candidate = |number: u32| CpuCandidate {
            number,
            node: nodes.get(&number).copied().unwrap_or(0),
            may: number != base || !effective.exclude_primary,
            avoided: self.state.avoid.iter().any(|(cpu, _)| *cpu == number),
            ..before.iter_mut().find(|candidate| candidate.number == number).map(std::mem::take).unwrap_or_default()
        };
        self.candidates = order.into_iter().map(&mut candidate).collect();
        self.position =
            self.candidates.iter().enumerate().map(|(index, candidate)| (candidate.number, index)).collect();
    }

    /// Finds each entry's place.
    pub fn locate(&mut self) {
        self.at = self.state.table.iter().map(|cpu| self.position.get(cpu).copied()).collect();
        for candidate in &mut self.candidates {
            (candidate.entries, candidate.alive) = (0, 0);
        }
        for (entry, at) in self.at.iter().enumerate() {
            if let Some(at) = at {
                self.candidates[*at].entries += 1;
                self.candidates[*at].alive += u32::from(self.state.entries[entry].alive());
            }
        }
    }

    pub fn place_of(&self, cpu: u32) -> Option<usize> {
        self.position.get(&cpu).copied()
    }

    pub fn seen_of(&self, cpu: u32) -> Option<&CpuObservation> {
        self.seen.cpus.iter().find(|seen| seen.number == cpu)
    }

    /// Whether the base pays for each packet while anything is on another CPU.
    pub fn distributes(&self) -> bool {
        self.config.abilities.distributes && self.config.effective.base_receives
    }

    /// Whether any entry with traffic is not on the base, so that it distributes.
    pub fn spreading(&self) -> bool {
        let alive = |(entry, at): (usize, &Option<usize>)| *at != Some(0) && self.state.entries[entry].alive();
        self.at.iter().enumerate().any(alive)
    }

    /// Load of the base by distributing, if anything is spread.
    pub fn tax(&self) -> f64 {
        if !self.distributes() {
            return 0.0;
        }
        let rate: f64 = self.state.entries.iter().map(|entry| entry.rate.get()).sum();
        let costs = &self.state.costs;
        let guess = || {
            let near = self.candidates.first().map_or(0, |base| base.node);
            let known = costs.process.iter().find(|(node, _)| *node == near).or(costs.process.first());
            known.map_or(0.0, |(_, cost)| cost.get()) * self.config.tuning.distribute_factor
        };
        rate * costs.distribute.known().unwrap_or_else(guess) / 1e9
    }

    /// Distinct CPUs that entries are on to stay, with traffic or without.
    pub fn pairs(&self) -> u32 {
        u32::try_from(self.candidates.iter().filter(|candidate| candidate.entries > 0 && candidate.may).count())
            .unwrap_or(u32::MAX)
    }

    /// What an entry on `from` would be as load on `to`.
    pub fn as_load(&self, load: f64, from: usize, to: usize) -> f64 {
        load * self.candidates[to].cost / self.candidates[from].cost
    }

    pub fn since(&self, moment: Option<u64>) -> u64 {
        moment.map_or(u64::MAX, |moment| self.now.saturating_sub(moment))
    }

    /// An entry that the actuator refused to move is left alone for a while.
    pub fn barred(&self, entry: usize) -> bool {
        let retry = nanos::of(self.config.tuning.retry.0);
        self.state.entries[entry].refused.is_some_and(|at| self.since(Some(nanos::of(at))) < retry)
    }

    /// Moves an entry; what moved already at this look goes from where it was at its beginning.
    pub fn move_entry(&mut self, entry: usize, to: usize, why: MoveReason) {
        let from = self.state.table[entry];
        let number = self.candidates[to].number;
        if from == number {
            return;
        }
        let id = u32::try_from(entry).ok();
        let state = &mut self.state.entries[entry];
        let alive = state.alive();
        if let Some(at) = self.at[entry] {
            let factor = self.candidates[to].cost / self.candidates[at].cost;
            state.load.scale(factor);
            state.slow.scale(factor);
            self.candidates[at].entries -= 1;
            self.candidates[at].alive -= u32::from(alive);
        }
        self.at[entry] = Some(to);
        self.candidates[to].entries += 1;
        self.candidates[to].alive += u32::from(alive);
        self.state.table[entry] = number;
        let at = Duration::from_nanos(self.now);
        let again = state.last.is_some_and(|last| last.at == at);
        match self.moves.iter_mut().find(|done| again && done.entry == id) {
            Some(done) => {
                (done.to, done.why) = (number, why);
                state.last = Some(LastMove { at, from: done.from, to: number, why });
            }
            None => {
                state.last = Some(LastMove { at, from, to: number, why });
                self.moves.push(Move { entry: id, from, to: number, why, paid: alive, predicted: 0.0 });
            }
        }
    }

    /// Tells of a limit, unless that was done within the last minute.
    pub fn tell(&mut self, limit: Limit, event: Event) {
        let now = self.now;
        self.state.told.retain(|(_, at)| now.saturating_sub(*at) < TELL_AGAIN);
        if !self.state.told.iter().any(|(told, _)| *told == limit) {
            self.state.told.push((limit, now));
            self.events.push(event);
        }
    }

    /// A static mode: the same placement always.
    pub fn fix(&mut self) {
        self.evacuate();
        let wanted = layout(self.config, self.state.base, self.state.table.len(), &self.numbers());
        for (entry, cpu) in wanted.into_iter().enumerate() {
            if let Some(to) = self.place_of(cpu).filter(|_| !self.barred(entry)) {
                self.move_entry(entry, to, MoveReason::Mode);
            }
        }
        self.state.situation = Situation::Fixed;
    }

    /// Everything leaves CPUs that may not be used (any more).
    pub fn evacuate(&mut self) {
        let gone: Vec<usize> = (0..self.at.len()).filter(|entry| self.at[*entry].is_none()).collect();
        if gone.is_empty() {
            return;
        }
        let mut counted: BTreeMap<u32, u32> = BTreeMap::new();
        for entry in &gone {
            *counted.entry(self.state.table[*entry]).or_default() += 1;
        }
        let events = counted.into_iter().map(|(cpu, entries)| Event::CpuGone { cpu, entries });
        self.events.extend(events);
        self.take_in(&gone, MoveReason::CpuOffline);
        self.state.times.active = self.now;
    }

    /// Finds new places for entries that cannot stay: with room where CPUs in use have it, else on a CPU more, else where
    /// the load is least.
    pub fn take_in(&mut self, entries: &[usize], why: MoveReason) {
        let mut loads = self.loads(false);
        let mut sorted: Vec<usize> = entries.to_vec();
        let load_of = |context: &Self, entry: usize| context.state.entries[entry].load.get();
        sorted.sort_by(|a, b| load_of(self, *b).total_cmp(&load_of(self, *a)).then(a.cmp(b)));
        for entry in sorted {
            let load = load_of(self, entry);
            let load_on = |context: &Self, to| context.at[entry].map_or(load, |from| context.as_load(load, from, to));
            let more = self.pairs() < self.config.effective.max_queue_pairs;
            let open = |context: &Self, to: &usize| {
                let candidate = &context.candidates[*to];
                candidate.may && Some(*to) != context.at[entry] && (candidate.entries > 0 || more)
            };
            let fill = self.config.tuning.fill;
            let candidates: Vec<usize> = (0..self.candidates.len()).filter(|to| open(self, to)).collect();
            let used = |to: &&usize| self.candidates[**to].entries > 0;
            let fits = |to: &&usize| loads[**to] + load_on(self, **to) <= fill;
            let best = candidates
                .iter()
                .filter(used)
                .filter(fits)
                .max_by(|a, b| loads[**a].total_cmp(&loads[**b]).then(b.cmp(a)))
                .or_else(|| candidates.iter().find(fits))
                .or_else(|| candidates.iter().min_by(|a, b| loads[**a].total_cmp(&loads[**b]).then(a.cmp(b))))
                .copied();
            if let Some(to) = best {
                loads[to] += load_on(self, to);
                self.move_entry(entry, to, why);
            }
        }
    }

    /// Makes the placement keep what is in force: CPUs, the base excluded or not, fewest and most queue pairs.
    pub fn conform(&mut self) {
        self.evacuate();
        let forbidden = |at: &Option<usize>| at.is_some_and(|at| !self.candidates[at].may);
        let leaving: Vec<usize> = (0..self.at.len()).filter(|entry| forbidden(&self.at[*entry])).collect();
        if !leaving.is_empty() {
            self.take_in(&leaving, MoveReason::Mode);
        }
        let effective = &self.config.effective;
        while self.pairs() > effective.max_queue_pairs {
            let loads = self.loads(false);
            let used = (0..self.candidates.len()).filter(|at| self.candidates[*at].entries > 0);
            // The base last, because what is there need not be distributed.
            let Some(least) = used.min_by(|a, b| (*a == 0).cmp(&(*b == 0)).then(loads[*a].total_cmp(&loads[*b])))
            else {
                break;
            };
            let leaving: Vec<usize> = (0..self.at.len()).filter(|entry| self.at[*entry] == Some(least)).collect();
            let before = self.pairs();
            self.candidates[least].may = false;
            self.take_in(&leaving, MoveReason::Mode);
            if self.pairs() >= before {
                break;
            }
        }
        if self.pairs() < effective.min_queue_pairs {
            self.widen(&(0..self.candidates.len()).collect::<Vec<_>>(), MoveReason::Mode);
        }
    }

    /// Puts the entry with the least load on each CPU without any, until there are as many as have to be.
    pub fn widen(&mut self, among: &[usize], why: MoveReason) {
        for to in among {
            if self.pairs() >= self.config.effective.min_queue_pairs {
                break;
            }
            if self.candidates[*to].entries > 0 || !self.candidates[*to].may {
                continue;
            }
            let spare = |entry: &usize| self.at[*entry].is_some_and(|at| self.candidates[at].entries > 1);
            let load = |entry: usize| self.state.entries[entry].load.get();
            let least = (0..self.at.len()).filter(spare).min_by(|a, b| load(*a).total_cmp(&load(*b)).then(a.cmp(b)));
            if let Some(entry) = least {
                self.move_entry(entry, *to, why);
            }
        }
    }

    /// Load of each place as measured on entries: of tens of milliseconds, or of a second.
    pub fn loads(&self, slow: bool) -> Vec<f64> {
        let mut loads: Vec<f64> =
            self.candidates.iter().map(|candidate| if slow { candidate.other_slow } else { candidate.other }).collect();
        for (entry, at) in self.at.iter().enumerate() {
            if let Some(at) = at {
                let state = &self.state.entries[entry];
                loads[*at] += if slow { state.slow.get() } else { state.load.get() };
            }
        }
        if let Some(base) = loads.first_mut()
            && self.spreading()
        {
            *base += self.tax();
        }
        loads
    }

    pub fn situation(&mut self) {
        let cpus = self.candidates.iter().filter(|candidate| candidate.alive > 0).count();
        // One look without a way out is no saturation: the next may find one.
        let stuck = self.state.times.stuck.is_some_and(|(first, last)| last.saturating_sub(first) >= SECOND);
        let to = match cpus {
            _ if stuck => Situation::Saturated,
            0 | 1 => Situation::Coalesced,
            _ => Situation::Spread,
        };
        self.become_situation(to, cpus);
    }

    pub fn become_situation(&mut self, to: Situation, cpus: usize) {
        let from = std::mem::replace(&mut self.state.situation, to);
        if from != to {
            self.events.push(Event::Situation { from, to, cpus: u32::try_from(cpus).unwrap_or(u32::MAX) });
        }
    }

    pub fn finish(mut self) -> (State, Vec<Move>, Vec<Event>) {
        self.moves.retain(|done| done.from != done.to);
        if self.state.in_place {
            // Nothing but a note of where entries are when threads poll again.
            self.moves.iter_mut().for_each(|done| done.paid = false);
        }
        let loads = self.loads(false);
        for done in &mut self.moves {
            let to = self.position.get(&done.to).copied();
            done.predicted = to.map_or(0.0, |to| loads[to]);
        }
        if !self.state.in_place {
            self.expect(&loads);
        }
        let paid = u32::try_from(self.moves.iter().filter(|done| done.paid).count()).unwrap_or(u32::MAX);
        let now = self.now;
        self.state.paid.retain(|(at, _)| now.saturating_sub(*at) < 60 * SECOND);
        if paid > 0 {
            self.state.paid.push((now, paid));
        }
        if !self.moves.is_empty() {
            self.state.times.active = now;
            self.watch_moves();
        }
        (self.state, self.moves, self.events)
    }
}

impl EntryState {
    /// Whether packets arrive for it.
    pub(super) fn alive(&self) -> bool {
        self.rate.get() >= 0.5
    }
}
