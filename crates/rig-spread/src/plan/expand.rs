//! Entries leave CPUs that have too much to do.

use super::context::{PlanContext, SECOND};
use crate::event::{Event, MoveReason};
use crate::nanos;
use crate::state::Limit;

/// When all CPUs are full, an entry moves only if the fuller of both gets less full by this.
const EVENER: f64 = 0.05;
/// For so long an entry does not go back for evenness.
const NOT_BACK: u64 = 60 * SECOND;
/// A CPU with less to do than this is as good as empty for an entry that needs a whole one.
const EMPTY: f64 = 0.1;

impl PlanContext<'_> {
    /// Whether a CPU is hot and moves can help, or have to wait.
    pub fn expand(&mut self) -> bool {
        let mut hot: Vec<usize> = (0..self.candidates.len()).filter(|at| self.candidates[*at].hot).collect();
        if hot.is_empty() {
            self.state.times.stuck = None;
            return self.state.cpus.iter().any(|cpu| cpu.hot > 0);
        }
        let mut loads = self.demands();
        hot.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]).then(a.cmp(b)));
        let before = self.moves.len();
        let mut waiting = false;
        let mut limit = None;
        for from in hot {
            match self.relieve(from, &mut loads) {
                ReliefResult::Enough => {}
                ReliefResult::Wait => waiting = true,
                ReliefResult::Stuck(because) => limit = limit.or(Some((from, because))),
            }
        }
        if self.moves.len() > before {
            self.expanded();
            return true;
        }
        if waiting {
            return true;
        }
        if let Some((at, limit)) = limit {
            let (first, last) = self.state.times.stuck.unwrap_or((self.now, self.now));
            let first = if self.now.saturating_sub(last) > SECOND { self.now } else { first };
            self.state.times.stuck = Some((first, self.now));
            if self.now.saturating_sub(first) >= SECOND {
                self.tell_limit(at, limit);
            }
            return limit == Limit::NoCpu;
        }
        self.state.times.stuck = None;
        true
    }

    /// Loads with what full CPUs could not take: the demand is higher than what was done.
    fn demands(&self) -> Vec<f64> {
        let mut loads: Vec<f64> = self.candidates.iter().map(|candidate| candidate.other).collect();
        for entry in 0..self.at.len() {
            if let Some(at) = self.at[entry] {
                loads[at] += self.demand(entry, at);
            }
        }
        if let Some(base) = loads.first_mut() {
            *base += self.tax() * self.hidden(0);
        }
        loads
    }

    fn hidden(&self, at: usize) -> f64 {
        // All packets come by way of the base: when it is full, it drops some of them, and no CPU shows the whole demand.
        let full = self.candidates[at].full || (self.candidates[0].full && self.distributes());
        if full { self.config.tuning.hidden } else { 1.0 }
    }

    fn demand(&self, entry: usize, at: usize) -> f64 {
        self.state.entries[entry].load.get() * self.hidden(at)
    }

    fn relieve(&mut self, from: usize, loads: &mut [f64]) -> ReliefResult {
        let tuning = self.config.tuning;
        let dwell = nanos::of(tuning.dwell.0);
        let mut here: Vec<usize> = (0..self.at.len())
            .filter(|entry| self.at[*entry] == Some(from) && self.state.entries[*entry].alive())
            .collect();
        here.sort_by(|a, b| self.demand(*b, from).total_cmp(&self.demand(*a, from)).then(a.cmp(b)));
        let why = if from == 0 && self.distributes() && self.spreading() {
            MoveReason::EvictBase
        } else {
            MoveReason::Expand
        };
        let mut waiting = false;
        let mut moved = false;
        for entry in here.iter().copied() {
            if loads[from] <= tuning.fill {
                break;
            }
            // Alone, it has all that there is but for what else happens here.
            let tax = if from == 0 && self.spreading() { self.tax() } else { 0.0 };
            let rest = self.candidates[from].other + tax;
            if self.candidates[from].alive == 1 && rest < EMPTY {
                break;
            }
            if self.barred(entry) {
                continue;
            }
            let last = self.state.entries[entry].last;
            if last.is_some_and(|last| self.since(Some(nanos::of(last.at))) < dwell) {
                waiting = true;
                continue;
            }
            if let Some(to) = self.target(entry, from, loads) {
                let load = self.demand(entry, from);
                loads[from] -= load;
                loads[to] += self.as_load(load, from, to);
                self.move_entry(entry, to, why);
                moved = true;
            }
        }
        if moved || loads[from] <= tuning.hi {
            ReliefResult::Enough
        } else if waiting {
            ReliefResult::Wait
        } else if here.is_empty() {
            ReliefResult::Stuck(Limit::Distribution)
        } else if let ([entry], Ok(entry_number)) = (&here[..], u32::try_from(here[0]))
            && self.demand(*entry, from) > tuning.lo
        {
            ReliefResult::Stuck(Limit::Elephant(entry_number))
        } else {
            ReliefResult::Stuck(Limit::NoCpu)
        }
    }

    /// Where an entry goes: the fullest CPU in use that has room, else the next one, else one that is less full, if that
    /// makes things more even.
    fn target(&self, entry: usize, from: usize, loads: &[f64]) -> Option<usize> {
        let tuning = &self.config.tuning;
        let load = self.demand(entry, from);
        let on = |to: usize| loads[to] + self.as_load(load, from, to);
        let more = self.pairs() < self.config.effective.max_queue_pairs
            // The entry is the only one on its CPU, which it leaves empty, so that the number of CPUs stays.
            || self.candidates[from].entries == 1;
        let usable = |to: &usize| *to != from && self.candidates[*to].may && !self.candidates[*to].avoided;
        let candidates = || (0..self.candidates.len()).filter(usable);
        let used = |to: &usize| self.candidates[*to].entries > 0;
        let best = candidates()
            .filter(|to| used(to) && on(*to) <= tuning.fill)
            // The nearest first: another node costs more than a gap that stays.
            .max_by(|a, b| {
                let near = |at: usize| self.candidates[at].node == self.candidates[0].node;
                near(*a).cmp(&near(*b)).then(loads[*a].total_cmp(&loads[*b])).then(b.cmp(a))
            });
        best.or_else(|| {
            let room = |to: &usize| on(*to) <= tuning.fill || loads[*to] < EMPTY;
            candidates().filter(|to| more && !used(to)).find(room)
        })
        .or_else(|| self.evener(entry, from, loads, more))
    }

    /// A CPU that is less full than the entry's own, where none has room. Only measured load counts: with a guess at the demand that
    /// full CPUs hide, the entry would move back and forth for ever.
    fn evener(&self, entry: usize, from: usize, loads: &[f64], more: bool) -> Option<usize> {
        let seen = |at: usize| (loads[at] - self.candidates[at].other) / self.hidden(at) + self.candidates[at].other;
        let load = self.state.entries[entry].load.get();
        let on = |to: usize| seen(to) + self.as_load(load, from, to);
        let last = self.state.entries[entry].last;
        let recent = last.filter(|last| self.since(Some(nanos::of(last.at))) < NOT_BACK);
        let open = |to: &usize| {
            let candidate = &self.candidates[*to];
            let came_from = recent.is_some_and(|last| last.from == candidate.number);
            *to != from && candidate.may && !candidate.avoided && !came_from && (candidate.entries > 0 || more)
        };
        let least = (0..self.candidates.len()).filter(open).min_by(|a, b| on(*a).total_cmp(&on(*b)).then(a.cmp(b)))?;
        (on(least) + EVENER < seen(from)).then_some(least)
    }

    /// What follows from having needed more.
    fn expanded(&mut self) {
        let tuning = &self.config.tuning;
        let times = &mut self.state.times;
        times.stuck = None;
        times.active = self.now;
        // Less was won than the time that it was waited for.
        let regret = nanos::of(tuning.regret.0.max(self.state.hold));
        let mistaken = times.coalesced.take_if(|at| self.now.saturating_sub(*at) < regret).is_some();
        if mistaken {
            times.mistake = Some(self.now);
            let hold = (self.state.hold * 2).min(tuning.most_hold.0);
            if hold != self.state.hold {
                self.state.hold = hold;
                self.events.push(Event::HoldDoubled { hold });
            }
        }
        let after = self.now.saturating_add(nanos::of(self.state.hold));
        self.state.times.coalesce_after = self.state.times.coalesce_after.max(after);
    }

    fn tell_limit(&mut self, at: usize, limit: Limit) {
        let cpu = self.candidates[at].number;
        let event = match limit {
            Limit::Elephant(entry) => Event::Elephant { entry, cpu, load: self.demand(entry as usize, at) },
            Limit::Distribution => Event::DistributionLimit { cpu, load: self.tax() },
            Limit::NoCpu | Limit::Budget => Event::NoCpuLeft { cpus: self.pairs() },
        };
        self.tell(limit, event);
    }
}

enum ReliefResult {
    /// Moves were made, or there is no need.
    Enough,
    /// Entries have to stay a little longer.
    Wait,
    Stuck(Limit),
}
