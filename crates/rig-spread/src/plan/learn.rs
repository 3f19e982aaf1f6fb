//! What is learned from an observation: rates, loads, what a packet costs, what else CPUs do.

use std::time::Duration;

use super::context::{PlanContext, SECOND};
use crate::average::DecayingMean;
use crate::event::Situation;
use crate::nanos;
use crate::state::CpuState;

const FAST: Duration = Duration::from_millis(30);
/// The time constant of the average by which an interface is found idle.
const TRICKLE: Duration = Duration::from_millis(100);
/// In that average a rate counts as at most so many times the rate at which an interface is idle no more.
const BURST: f64 = 10.0;
/// The time constant of averages that judge about a second.
const RECENT: Duration = Duration::from_millis(300);
const SLOW: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(3);
/// Without idle time, but for what a clock that ticks misses.
const FULL: f64 = 0.98;
/// A load that differs by more than this from what it was keeps the looks frequent.
const CHANGE: f64 = 0.1;

impl PlanContext<'_> {
    pub fn learn(&mut self) {
        let over = self.seen.over;
        if !over.is_zero() {
            self.forget_idleness();
            self.learn_entries(over);
            self.learn_cpus(over);
            self.learn_totals(over);
        }
        self.price();
        self.locate();
    }

    /// Means over a time without load say nothing about the load that comes.
    fn forget_idleness(&mut self) {
        let packets: u64 = self.seen.entries.iter().map(|seen| seen.packets).sum();
        let rate = packets as f64 / self.seen.over.as_secs_f64();
        if self.state.situation == Situation::Parked && rate >= self.config.tuning.park_rate * BURST {
            for entry in &mut self.state.entries {
                (entry.rate, entry.load, entry.slow) = Default::default();
            }
            (self.state.totals.processed, self.state.totals.lost, self.state.totals.load) = Default::default();
            self.state.totals.peaks.clear();
        }
    }

    fn learn_entries(&mut self, over: Duration) {
        let seconds = over.as_secs_f64();
        // Where the actuator does not measure an entry's cost, it has its share of its CPU's, by packets.
        let mut packets = vec![0u64; self.candidates.len()];
        for (entry, at) in self.at.iter().enumerate() {
            if let (Some(at), Some(seen)) = (at, self.seen.entries.get(entry)) {
                packets[*at] += seen.packets;
            }
        }
        let processing: Vec<f64> = self
            .candidates
            .iter()
            .map(|candidate| self.seen_of(candidate.number).map_or(0.0, |seen| seen.processing.as_secs_f64()))
            .collect();
        let mut spent: Vec<(u32, f64, u64)> = Vec::new();
        for (entry, state) in self.state.entries.iter_mut().enumerate() {
            let seen = self.seen.entries.get(entry).copied().unwrap_or_default();
            let at = self.at.get(entry).copied().flatten();
            let cost = match (seen.cost, at) {
                (Some(cost), _) => cost.as_secs_f64(),
                (None, Some(at)) if packets[at] > 0 => processing[at] * seen.packets as f64 / packets[at] as f64,
                (None, _) => 0.0,
            };
            state.rate.add(seen.packets as f64 / seconds, over, FAST);
            state.load.add(cost / seconds, over, FAST);
            state.slow.add(cost / seconds, over, SLOW);
            if let Some(at) = at.filter(|_| seen.packets > 0 && cost > 0.0) {
                let node = self.candidates[at].node;
                match spent.iter_mut().find(|(of, ..)| *of == node) {
                    Some((_, cost_sum, packet_sum)) => {
                        *cost_sum += cost;
                        *packet_sum += seen.packets;
                    }
                    None => spent.push((node, cost, seen.packets)),
                }
            }
        }
        for (node, cost, packets) in spent {
            let known = &mut self.state.costs.process;
            let index = known.iter().position(|(of, _)| *of == node).unwrap_or_else(|| {
                known.push((node, DecayingMean::default()));
                known.len() - 1
            });
            known[index].1.add(cost / packets as f64 * 1e9, over, SLOW);
        }
    }

    fn learn_cpus(&mut self, over: Duration) {
        let seconds = over.as_secs_f64();
        let tuning = &self.config.tuning;
        let distributes = self.distributes();
        let in_place = self.state.in_place;
        let mut lost = vec![0u64; self.candidates.len()];
        let mut waiting = vec![false; self.candidates.len()];
        let mut alive = vec![false; self.candidates.len()];
        for (entry, seen) in self.seen.entries.iter().enumerate() {
            let Some(at) = self.at.get(entry).copied().flatten() else { continue };
            lost[at] += seen.lost;
            alive[at] |= seen.packets > 0 || seen.lost > 0;
            // More waits than was done in the whole interval.
            waiting[at] |= seen.waiting.is_some_and(|waiting| waiting > seen.packets.max(64));
        }
        let spreading = distributes && alive.iter().skip(1).any(|alive| *alive);
        let mut distributed = None;
        let mut known = std::mem::take(&mut self.state.cpus);
        let mut kept = Vec::with_capacity(self.candidates.len());
        for (at, candidate) in self.candidates.iter_mut().enumerate() {
            let seen = self.seen.cpus.iter().find(|seen| seen.number == candidate.number).copied().unwrap_or_default();
            let mut state = match known.iter().position(|state| state.number == candidate.number) {
                Some(index) => known.swap_remove(index),
                None => CpuState { number: candidate.number, ..CpuState::default() },
            };
            // What a CPU that is not the base distributes, it does wherever entries are.
            let for_others = if at > 0 { seen.distributing } else { Duration::ZERO };
            let other = (seen.other + for_others).as_secs_f64() / seconds;
            state.other.add(other, over, RECENT);
            state.other_slow.add(other, over, SLOWEST);
            candidate.other = state.other.get();
            candidate.other_slow = state.other_slow.get();
            candidate.busy = seen.busy().as_secs_f64() / seconds;
            state.busy.add(candidate.busy, over, FAST);
            // Losses that are told of the CPU and of its entries are the same packets.
            let lost = lost[at].max(seen.lost);
            candidate.full = candidate.busy >= FULL || seen.standing_queue || lost > 0 || waiting[at];
            state.received.add(seen.packets as f64 / seconds, over, SLOW);
            let ours = alive[at] || (at == 0 && spreading) || (in_place && seen.packets > 0);
            let hot = ours && (candidate.full || state.busy.get() > tuning.hi);
            state.hot = if hot { state.hot.saturating_add(1) } else { 0 };
            candidate.hot = state.hot >= tuning.looks;
            if hot {
                self.state.times.active = self.now;
            }
            if at == 0 && spreading && !seen.distributing.is_zero() {
                distributed = Some(seen.distributing.as_secs_f64());
            }
            kept.push(state);
        }
        self.state.cpus = kept;
        let packets: u64 = self.seen.entries.iter().map(|seen| seen.packets + seen.lost).sum();
        if let Some(spent) = distributed.filter(|_| packets > 0) {
            self.state.costs.distribute.add(spent / packets as f64 * 1e9, over, SLOW);
        }
    }

    fn learn_totals(&mut self, over: Duration) {
        let seconds = over.as_secs_f64();
        let packets: u64 = self.seen.entries.iter().map(|seen| seen.packets).sum();
        let totals = &mut self.state.totals;
        let before = totals.processed.get();
        let rate = packets as f64 / seconds;
        totals.processed.add(rate, over, RECENT);
        totals.trickle.add(rate.min(self.config.tuning.park_rate * BURST), over, TRICKLE);
        totals.lost.add(lost(self.seen) as f64 / seconds, over, RECENT);
        if (totals.processed.get() - before).abs() > CHANGE * before.max(rate) {
            self.state.times.active = self.now;
        }
        let load: f64 = self.state.entries.iter().map(|entry| entry.load.get()).sum();
        totals.load.add(load, over, RECENT);
        let load = totals.load.get();
        let second = self.now / SECOND;
        match totals.peaks.last_mut() {
            Some((at, peak)) if *at == second => *peak = peak.max(load),
            _ => totals.peaks.push((second, load)),
        }
        let keep = nanos::of(self.config.tuning.most_hold.0) / SECOND + 1;
        totals.peaks.retain(|(at, _)| second.saturating_sub(*at) <= keep);
    }

    /// What a packet costs on each place, where that is known.
    pub fn price(&mut self) {
        let known = &self.state.costs.process;
        let of = |node: u32| {
            let cost = known.iter().find(|(of, _)| *of == node).and_then(|(_, cost)| cost.known());
            cost.filter(|cost| *cost > 0.0)
        };
        let near = self.candidates.first().map_or(0, |base| base.node);
        let factor = self.config.tuning.numa_factor;
        for candidate in &mut self.candidates {
            let guess = if candidate.node == near { 1.0 } else { factor };
            candidate.cost = match (of(near), of(candidate.node)) {
                // Batches make busy CPUs cheaper than idle ones: what seems more than that is no difference of nodes.
                (Some(here), Some(there)) => (there / here).clamp(1.0 / factor.max(2.0), factor.max(2.0)),
                _ => guess,
            };
        }
    }
}

/// Packets that were dropped: some actuators tell of entries' losses, others of CPUs', some of both.
pub(super) fn lost(seen: &crate::observation::Observation) -> u64 {
    let entries: u64 = seen.entries.iter().map(|entry| entry.lost).sum();
    let cpus: u64 = seen.cpus.iter().map(|cpu| cpu.lost).sum();
    entries.max(cpus)
}
