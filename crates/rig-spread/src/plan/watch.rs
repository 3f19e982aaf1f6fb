//! Whether moves made things better, and taking back those that made them worse.

use super::context::{PlanContext, SECOND};
use super::learn::lost;
use crate::event::{Event, Move, MoveReason, Regression};
use crate::nanos;
use crate::state::{ExpectedLoad, MoveAftermath, Watch, WatchedMove};

/// What happens so soon after moves is the moves themselves: cold caches, queues that drain.
const SETTLE: u64 = SECOND / 5;
/// While moves follow each other for longer than this, the load changes, and nothing can be told.
const LONGEST: u64 = 5 * SECOND;
/// Losses count from this share of what arrives.
const LOSSES: f64 = 0.005;
/// More arrives than before by this factor: the load grew, so that losses are no consequence of moves.
const GROWN: f64 = 1.05;
/// Throughput that fell below this share.
const FELL: f64 = 0.9;
/// Rates of entries vary more than their sum.
const ENTRIES_FELL: f64 = 0.75;
const REST_STAYED: f64 = 0.95;
/// Fewer entries may have got slower by themselves.
const ENOUGH: usize = 4;

impl PlanContext<'_> {
    /// Begins to watch what was moved at this look, together with what is watched already.
    pub fn watch_moves(&mut self) {
        let judged = |done: &&Move| {
            done.paid
                && matches!(
                    done.why,
                    MoveReason::Expand
                        | MoveReason::Coalesce
                        | MoveReason::Rebalance
                        | MoveReason::EvictBase
                        | MoveReason::RehomeBase
                )
        };
        let moves: Vec<Move> = self.moves.iter().filter(judged).copied().collect();
        if moves.is_empty() {
            // What was moved for another reason changes what a comparison would compare.
            self.state.watch = None;
            return;
        }
        let totals = &self.state.totals;
        let mut watch = match self.state.watch.take() {
            Some(watch) if self.now.saturating_sub(watch.begun) < LONGEST => watch,
            _ => Watch {
                begun: self.now,
                processed: totals.processed.get(),
                lost: totals.lost.get(),
                rate: self.state.entries.iter().map(|entry| entry.rate.get()).sum(),
                ..Watch::default()
            },
        };
        watch.at = self.now;
        watch.after = MoveAftermath::default();
        watch.coalescing = moves.iter().any(|done| done.why == MoveReason::Coalesce);
        for done in &moves {
            let rate = done.entry.map_or(0.0, |entry| self.state.rate(entry));
            match watch.moves.iter_mut().find(|watched| watched.entry == done.entry) {
                Some(watched) => watched.to = done.to,
                None => {
                    watch.moves.push(WatchedMove { entry: done.entry, from: done.from, to: done.to, rate, packets: 0 });
                }
            }
        }
        for watched in &mut watch.moves {
            watched.packets = 0;
        }
        let mut targets: Vec<u32> = watch.moves.iter().map(|watched| watched.to).collect();
        targets.sort_unstable();
        targets.dedup();
        let loads = self.loads(false);
        watch.predicted = targets.iter().filter_map(|cpu| self.place_of(*cpu).map(|at| (*cpu, loads[at]))).collect();
        let arrived = |cpu: &u32| {
            let at = self.place_of(*cpu);
            let here = |entry: &usize| self.at[*entry] == at;
            (0..self.at.len()).filter(here).all(|entry| {
                watch.moves.iter().any(|watched| watched.entry == u32::try_from(entry).ok() && watched.to == *cpu)
            })
        };
        watch.new = targets.iter().copied().filter(arrived).collect();
        self.state.watch = Some(watch);
    }

    /// Looks at what followed the moves, and takes them back if it got worse.
    pub fn judge(&mut self) {
        let Some(mut watch) = self.state.watch.take() else { return };
        let age = self.now.saturating_sub(watch.at);
        let over = nanos::of(self.seen.over);
        // Only intervals that lie wholly behind the time of settling.
        if over > 0 && age >= SETTLE.saturating_add(over) {
            self.add(&mut watch);
        }
        if age < nanos::of(self.config.tuning.watch.0) {
            self.state.watch = Some(watch);
            return;
        }
        if watch.after.time <= 0.0 {
            return;
        }
        if let Some(reason) = self.worse(&watch) {
            self.take_back(&watch, reason);
        }
    }

    /// Begins to measure the effect of the moves of this look, made for any reason. A move to or from a CPU whose last move is
    /// still being measured is measured together with that one.
    pub fn expect(&mut self, loads: &[f64]) {
        let now = self.now;
        let moves = std::mem::take(&mut self.moves);
        for done in &moves {
            // A CPU that is measured for an earlier move, and that entries now leave or come to, is measured anew.
            for cpu in [done.from, done.to] {
                let load = self.place_of(cpu).map_or(0.0, |at| loads[at]);
                let known = self.state.effects.iter_mut().find(|effect| effect.cpu == cpu);
                if let Some(effect) = known {
                    (effect.at, effect.time, effect.busy, effect.predicted) = (now, 0.0, 0.0, load);
                    if cpu == done.to && !effect.moves.contains(&done.entry) {
                        effect.moves.push(done.entry);
                    }
                } else if cpu == done.to {
                    let effect = ExpectedLoad {
                        cpu,
                        at: now,
                        predicted: load,
                        moves: vec![done.entry],
                        ..ExpectedLoad::default()
                    };
                    self.state.effects.push(effect);
                }
            }
        }
        self.moves = moves;
    }

    /// Tells what came of moves a second ago.
    pub fn measure(&mut self) {
        let over = nanos::of(self.seen.over);
        let enough = nanos::of(self.config.tuning.watch.0);
        if over == 0 {
            return;
        }
        for mut effect in std::mem::take(&mut self.state.effects) {
            let age = self.now.saturating_sub(effect.at);
            if age >= SETTLE.saturating_add(over) {
                effect.time += self.seen.over.as_secs_f64();
                effect.busy += self.seen_of(effect.cpu).map_or(0.0, |seen| seen.busy().as_secs_f64());
            }
            if age < enough || effect.time <= 0.0 {
                self.state.effects.push(effect);
                continue;
            }
            let ExpectedLoad { cpu, predicted, mut moves, .. } = effect;
            moves.sort_unstable();
            let base = moves.first() == Some(&None);
            let entries = moves.into_iter().flatten().collect();
            let measured = effect.busy / effect.time;
            self.events.push(Event::Effect { cpu, entries, base, predicted, measured });
        }
    }

    fn add(&self, watch: &mut Watch) {
        watch.after.time += self.seen.over.as_secs_f64();
        watch.after.packets += self.seen.entries.iter().map(|entry| entry.packets).sum::<u64>();
        watch.after.lost += lost(self.seen);
        watch.after.looks += 1;
        let full = |(cpu, _): &(u32, f64)| self.place_of(*cpu).is_some_and(|at| self.candidates[at].full);
        watch.after.full += u32::from(watch.predicted.iter().any(full));
        for watched in &mut watch.moves {
            let seen = watched.entry.and_then(|entry| self.seen.entries.get(entry as usize));
            watched.packets += seen.map_or(0, |seen| seen.packets);
        }
    }

    /// What got worse, if it did and the load did not simply fall.
    ///
    /// When senders merely send less, there are no losses, no CPU that took entries is full, and all entries get slower, not only
    /// those that were moved. So one of these signs has to be seen besides the lower rate.
    fn worse(&self, watch: &Watch) -> Option<Regression> {
        let after = watch.after.packets as f64 / watch.after.time;
        let lost = watch.after.lost as f64 / watch.after.time;
        let arrived = after + lost;
        let before = watch.processed + watch.lost;
        if arrived <= before * GROWN && lost > arrived * LOSSES && lost > 2.0 * watch.lost {
            return Some(Regression::Losses { before: watch.lost, after: lost });
        }
        if after < watch.processed * FELL && watch.after.full * 2 > watch.after.looks {
            return Some(Regression::Throughput { before: watch.processed, after });
        }
        watch.predicted.iter().find_map(|(cpu, _)| self.slower_there(watch, *cpu, after))
    }

    /// Whether what was moved to a CPU got slower there, while all else did not.
    fn slower_there(&self, watch: &Watch, cpu: u32, after: f64) -> Option<Regression> {
        let moved: Vec<(f64, f64)> = watch
            .moves
            .iter()
            .filter(|watched| watched.entry.is_some() && watched.to == cpu && watched.rate > 0.0)
            .map(|watched| (watched.rate, watched.packets as f64 / watch.after.time))
            .collect();
        let sum = |of: fn(&(f64, f64)) -> f64| moved.iter().map(of).sum::<f64>();
        let (moved_before, moved_after) = (sum(|rates| rates.0), sum(|rates| rates.1));
        let (rest_before, rest_after) = (watch.rate - moved_before, after - moved_after);
        let fell = moved.iter().filter(|(before, after)| *after < before * ENTRIES_FELL).count();
        let only_they = rest_before > watch.rate * 0.1 && rest_after >= rest_before * REST_STAYED;
        let slower = moved.len() >= ENOUGH && moved_after < moved_before * ENTRIES_FELL && fell * 2 > moved.len();
        (slower && only_they).then_some(Regression::MovedEntries { cpu, before: moved_before, after: moved_after })
    }

    fn take_back(&mut self, watch: &Watch, reason: Regression) {
        let only = match reason {
            Regression::MovedEntries { cpu, .. } => Some(cpu),
            Regression::Losses { .. } | Regression::Throughput { .. } => None,
        };
        let mut undone = 0;
        for watched in watch.moves.iter().filter(|watched| only.is_none_or(|cpu| watched.to == cpu)) {
            let Some(entry) = watched.entry.map(|entry| entry as usize) else { continue };
            let there = self.state.table.get(entry) == Some(&watched.to);
            let Some(to) = self.place_of(watched.from).filter(|to| there && self.candidates[*to].may) else { continue };
            if self.candidates[to].entries == 0 && self.pairs() >= self.config.effective.max_queue_pairs {
                continue;
            }
            self.move_entry(entry, to, MoveReason::Undo);
            undone += 1;
        }
        if undone == 0 {
            return;
        }
        self.events.push(Event::Undone { moves: undone, reason });
        if watch.coalescing {
            let tuning = &self.config.tuning;
            let hold = (self.state.hold * 2).min(tuning.most_hold.0);
            if hold != self.state.hold {
                self.state.hold = hold;
                self.events.push(Event::HoldDoubled { hold });
            }
            self.state.times.mistake = Some(self.now);
            self.state.times.coalesce_after = self.now.saturating_add(nanos::of(hold));
        } else {
            // They were there to help; others may.
            let now = self.now;
            let blamed: Vec<u32> =
                watch.new.iter().copied().filter(|cpu| only.is_none_or(|only| only == *cpu)).collect();
            self.state.avoid.extend(blamed.iter().map(|cpu| (*cpu, now)));
            for candidate in &mut self.candidates {
                candidate.avoided |= blamed.contains(&candidate.number);
            }
        }
    }
}
