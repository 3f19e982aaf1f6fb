//! Fewer CPUs where fewer will do, and more even ones.

use super::context::{PlanContext, SECOND};
use crate::event::{Event, MoveReason};
use crate::nanos;
use crate::state::Limit;

/// Between two attempts, because each tries several numbers of CPUs.
const ATTEMPTS: u64 = SECOND / 4;
/// Between two coalescings.
const APART: u64 = 2 * SECOND;
/// A higher load within the time of `hold` counts if it was higher by this factor.
const HIGHER: f64 = 1.1;
/// A CPU with less to do than this is as good as empty for an entry that needs a whole one.
const EMPTY: f64 = 0.1;

impl PlanContext<'_> {
    pub fn coalesce(&mut self) {
        let forgive = nanos::of(self.config.tuning.forgive.0);
        let hold = self.config.tuning.hold.0;
        if self.state.hold != hold && self.since(self.state.times.mistake) >= forgive {
            self.state.hold = hold;
            self.events.push(Event::HoldReset { hold });
        }
        let times = &self.state.times;
        let early = self.now < times.coalesce_after
            || self.since(times.coalesced) < APART
            || self.since(times.tried) < ATTEMPTS
            || !self.moves.is_empty();
        if early {
            return;
        }
        self.state.times.tried = Some(self.now);
        let distributing = self.distributes() && self.spreading();
        let used = |at: usize| self.candidates[at].alive > 0 || (at == 0 && distributing);
        let in_use = (0..self.candidates.len()).filter(|at| used(*at)).count();
        let Some(wanted) = self.fewer(in_use) else { return self.gather() };
        let paid = (0..wanted.len())
            .filter(|entry| self.at[*entry] != Some(wanted[*entry]) && self.state.entries[*entry].alive());
        let paid = u32::try_from(paid.count()).unwrap_or(u32::MAX);
        if !self.within_budget(paid) {
            return;
        }
        for (entry, to) in wanted.into_iter().enumerate() {
            self.move_entry(entry, to, MoveReason::Coalesce);
        }
        self.widen(&(0..self.candidates.len()).collect::<Vec<_>>(), MoveReason::Coalesce);
        self.state.times.coalesced = Some(self.now);
    }

    /// Entries without traffic go to a CPU in use, the base where it is: a flow that begins in one is to wake no other CPU.
    fn gather(&mut self) {
        let in_use =
            |at: &usize| self.candidates[*at].alive > 0 && self.candidates[*at].may && !self.candidates[*at].avoided;
        let loads = self.loads(true);
        let least =
            (1..self.candidates.len()).filter(in_use).min_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(a.cmp(b)));
        let Some(to) = Some(0).filter(in_use).or(least) else { return };
        for entry in 0..self.at.len() {
            let is_left = self.at[entry].is_some_and(|at| self.candidates[at].alive == 0);
            if is_left && !self.state.entries[entry].alive() && !self.barred(entry) {
                self.move_entry(entry, to, MoveReason::Coalesce);
            }
        }
        self.widen(&(0..self.candidates.len()).collect::<Vec<_>>(), MoveReason::Coalesce);
    }

    /// Whether so many moves that are not urgent are allowed now.
    fn within_budget(&mut self, paid: u32) -> bool {
        let entries = u32::try_from(self.at.len()).unwrap_or(u32::MAX);
        let most = self.config.tuning.moves_per_minute.max(entries);
        let now = self.now;
        let recent = self.state.paid.iter().filter(|(at, _)| now.saturating_sub(*at) < 60 * SECOND);
        let done: u32 = recent.map(|(_, count)| count).sum();
        let fits = done.saturating_add(paid) <= most;
        if !fits {
            self.tell(Limit::Budget, Event::BudgetUsedUp { waiting: paid });
        }
        fits
    }

    /// The placement on the fewest CPUs that have room for the highest load in the time of `hold`, if these are fewer than `in_use`.
    fn fewer(&self, in_use: usize) -> Option<Vec<usize>> {
        let now: f64 = self.state.entries.iter().map(|entry| entry.slow.get()).sum();
        let oldest = self.now.saturating_sub(nanos::of(self.state.hold)) / SECOND;
        let peaks = self.state.totals.peaks.iter().filter(|(second, _)| *second >= oldest);
        let peak = peaks.map(|(_, load)| *load).fold(0.0, f64::max);
        let scale = if now > 0.0 && peak > now * HIGHER { peak / now } else { 1.0 };
        let lo = self.config.tuning.lo;
        let least = ((now * scale / lo).floor() as usize).clamp(1, in_use.max(1));
        // Every number from the least on, then in larger steps: one more CPU than needed is no great loss.
        let mut step = 1;
        let mut count = least;
        while count < in_use {
            for stay in [true, false] {
                if let Some(wanted) = self.pack(count, scale, stay) {
                    return Some(wanted);
                }
            }
            count += step;
            if count >= least + 4 {
                step *= 2;
            }
        }
        None
    }

    /// Packs all entries on so many CPUs, a distributing base among them: none above `lo`, the largest first, with `stay`
    /// each where it is if there is room.
    fn pack(&self, count: usize, scale: f64, stay: bool) -> Option<Vec<usize>> {
        let effective = &self.config.effective;
        let lo = self.config.tuning.lo;
        let distributes = self.distributes();
        let mut loads: Vec<f64> = self.candidates.iter().map(|candidate| candidate.other_slow).collect();
        let mut chosen: Vec<usize> = (0..self.candidates.len())
            .filter(|at| self.candidates[*at].may && !self.candidates[*at].avoided && self.candidates[*at].entries > 0)
            .collect();
        let near = |at: usize| self.candidates[at].node == self.candidates[0].node;
        let mut full = vec![0.0; self.candidates.len()];
        for (entry, at) in self.at.iter().enumerate() {
            if let Some(at) = at {
                full[*at] += self.state.entries[entry].slow.get();
            }
        }
        chosen.sort_by(|a, b| {
            let quiet = |at: usize| self.candidates[at].other_slow < lo / 2.0;
            (quiet(*b).cmp(&quiet(*a))).then(near(*b).cmp(&near(*a))).then(full[*b].total_cmp(&full[*a])).then(a.cmp(b))
        });
        if distributes {
            let base_may = self.candidates[0].may;
            chosen.retain(|at| *at != 0);
            if count == 1 {
                // Elsewhere than on the base alone means that two CPUs are at work.
                if !base_may {
                    return None;
                }
                chosen = vec![0];
            } else {
                chosen.truncate(count - 1);
                loads[0] += self.tax() * scale;
                if base_may {
                    chosen.push(0);
                }
            }
        } else {
            chosen.truncate(count);
        }
        if chosen.is_empty() || chosen.len() > effective.max_queue_pairs as usize {
            return None;
        }
        let mut allowed = vec![false; self.candidates.len()];
        chosen.iter().for_each(|at| allowed[*at] = true);
        let mut order: Vec<usize> = (0..self.at.len()).collect();
        let load_of = |entry: usize| self.state.entries[entry].slow.get() * scale;
        order.sort_by(|a, b| load_of(*b).total_cmp(&load_of(*a)).then(a.cmp(b)));
        let mut wanted = vec![0; self.at.len()];
        let mut taken = vec![false; self.candidates.len()];
        for entry in order {
            let from = self.at[entry]?;
            let on = |to: usize| self.as_load(load_of(entry), from, to);
            let fits =
                |to: usize, loads: &[f64]| loads[to] + on(to) <= lo || (on(to) > lo && loads[to] < EMPTY && !taken[to]);
            let here = allowed[from] && fits(from, &loads);
            let idle = load_of(entry) == 0.0;
            let to = if (here && (stay || idle)) || self.barred(entry) {
                from
            } else if idle {
                chosen[0]
            } else {
                let room = chosen.iter().copied().filter(|to| fits(*to, &loads));
                room.max_by(|a, b| loads[*a].total_cmp(&loads[*b]).then(b.cmp(a)))?
            };
            loads[to] += on(to);
            taken[to] |= !idle;
            wanted[entry] = to;
        }
        Some(wanted)
    }

    /// Moves up to two entries from the fullest CPU in use to the emptiest, when they have differed for long.
    pub fn rebalance(&mut self) {
        let tuning = self.config.tuning;
        let loads = self.loads(true);
        let used: Vec<usize> = (0..self.candidates.len())
            .filter(|at| self.candidates[*at].alive > 0 && self.candidates[*at].may)
            .collect();
        let by_load = |a: &&usize, b: &&usize| loads[**a].total_cmp(&loads[**b]).then(a.cmp(b));
        let (Some(most), Some(least)) = (used.iter().max_by(by_load), used.iter().min_by(by_load)) else { return };
        let mean = used.iter().map(|at| loads[*at]).sum::<f64>() / used.len() as f64;
        // What has room is left as it is: evenness is no end in itself.
        let uneven = loads[*most] - mean > tuning.imbalance && loads[*most] > tuning.fill;
        if !uneven {
            self.state.times.uneven_since = None;
            return;
        }
        let since = *self.state.times.uneven_since.get_or_insert(self.now);
        if self.now.saturating_sub(since) < nanos::of(tuning.imbalance_after.0) || !self.moves.is_empty() {
            return;
        }
        let (most, least) = (*most, *least);
        let mut gap = loads[most] - loads[least];
        let mut here: Vec<usize> = (0..self.at.len())
            .filter(|entry| self.at[*entry] == Some(most) && !self.barred(*entry))
            .filter(|entry| self.state.entries[*entry].alive())
            .collect();
        let load_of = |context: &Self, entry: usize| context.state.entries[entry].slow.get();
        here.sort_by(|a, b| load_of(self, *b).total_cmp(&load_of(self, *a)).then(a.cmp(b)));
        let mut left = 2;
        for entry in here {
            let load = load_of(self, entry);
            let there = self.as_load(load, most, least);
            if left > 0 && load + there <= gap && self.candidates[most].alive > 1 && self.within_budget(1) {
                self.move_entry(entry, least, MoveReason::Rebalance);
                gap -= load + there;
                left -= 1;
            }
        }
        self.state.times.uneven_since = None;
    }
}
