//! Whether threads poll the queues, or the CPUs that packets reach first do so in place.
//!
//! A thread costs a wake-up for each batch, and can be put onto any CPU. Without threads a packet costs less, and is processed
//! on the CPU that received it. So there are no threads while one CPU is enough, and none where all CPUs are full and more is
//! carried without them, which a trial finds out.

use super::context::{PlanContext, SECOND};
use crate::event::{Event, MoveReason, PollingReason};
use crate::nanos;
use crate::state::{PollTrial, PollVerdict, SaturationCheck};

/// All CPUs are full when none has less to do than this.
const FULL: f64 = 0.95;
/// How long all CPUs must have been full before packets are counted, and for how long they are counted then.
const STEADY: u64 = 3 * SECOND / 10;
const COUNTED: f64 = 0.4;
/// How long packets are counted after threads came because a CPU was full: TCP streams take time to grow.
const PROVEN: f64 = 1.0;
/// How long after a switch nothing is counted: the switch itself disturbs the load.
const SETTLE: u64 = SECOND / 10;
/// Threads stay when they carry so many times what was carried without: they cost CPU time.
const MORE: f64 = 1.02;
/// How long a verdict of a trial holds at first, and at most: it doubles each time.
const HOLDS: u64 = 30 * SECOND;
const HOLDS_LONGEST: u64 = 600 * SECOND;
/// A verdict is dropped when less than this part of what the trial carried is carried, but not so soon after a switch.
const OTHER_LOAD: f64 = 0.7;
const FORGOTTEN: u64 = 2 * SECOND;
/// The least time between two switches that no trial asks for, at first and at most. It doubles each time that threads are
/// needed again soon.
const APART: u64 = SECOND;
const APART_LONGEST: u64 = 60 * SECOND;
const SOON: u64 = 10 * SECOND;
/// Receive work below this part of a CPU is no reason for threads: it has precedence over the tasks that fill the CPU.
const MUCH: f64 = 0.2;
/// How long a CPU that polls in place must be full, while others have room, until threads spread its work: a burst begins
/// unevenly. The second is for packets that come to all CPUs by themselves.
const UNEVEN: u64 = SECOND / 25;
const UNEVEN_SPREAD: u64 = SECOND;
/// How long a switch that was refused is not tried again.
const REFUSED: u64 = 10 * SECOND;
/// A CPU that gets less than this part of an even share is not one that packets come to.
const SHARE: f64 = 0.5;

impl PlanContext<'_> {
    /// Whether nothing else is to be decided, because CPUs poll in place, or a trial is made.
    pub fn polling(&mut self) -> bool {
        if !self.config.effective.in_place {
            if self.state.in_place {
                self.switch(false, PollingReason::Settings);
            }
            self.state.polling = Default::default();
            return false;
        }
        if let Some(trial) = self.state.polling.trial.take() {
            return self.go_on(trial);
        }
        let processed = self.state.totals.processed.get();
        // The average rate still contains the trial's own losses shortly after it.
        let told = self.now.saturating_sub(self.state.polling.since) >= FORGOTTEN;
        let verdict = &mut self.state.polling.verdict;
        if verdict.is_some_and(|verdict| self.now >= verdict.until || (told && processed < verdict.rate * OTHER_LOAD)) {
            *verdict = None;
        }
        if self.pressed() && self.begin_trial() {
            return true;
        }
        if self.prove() {
            return true;
        }
        if self.state.in_place { self.stay_in_place() } else { self.leave_to_place() }
    }

    /// Whether packets come to all CPUs by themselves.
    pub fn comes_everywhere(&self) -> bool {
        let rates: Vec<f64> = self.state.cpus.iter().map(|cpu| cpu.received.get()).collect();
        let all: f64 = rates.iter().sum();
        let enough = rates.len().min(self.config.tuning.park_cpus as usize);
        let even = all / enough.max(1) as f64;
        all > 0.0 && rates.iter().filter(|rate| **rate >= even * SHARE).count() >= enough
    }

    /// Has threads poll, or CPUs in place.
    pub fn switch(&mut self, in_place: bool, why: PollingReason) {
        self.state.in_place = in_place;
        self.state.polling.since = self.now;
        self.state.polling.uneven = None;
        self.state.polling.pressed = None;
        self.state.polling.proof = None;
        self.state.times.active = self.now;
        // What was before it says nothing about moves.
        self.state.watch = None;
        self.state.effects.clear();
        self.events.push(Event::Polling { in_place, why });
    }

    fn may_switch(&self) -> bool {
        self.state.polling.refused.is_none_or(|at| self.now.saturating_sub(at) >= REFUSED)
    }

    fn busy(&self, at: usize) -> f64 {
        let number = self.candidates[at].number;
        self.state.cpus.iter().find(|cpu| cpu.number == number).map_or(0.0, |cpu| cpu.busy.get())
    }

    /// Whether no CPU has room; counts what is carried so.
    fn pressed(&mut self) -> bool {
        let full = (0..self.candidates.len()).all(|at| self.busy(at) >= FULL);
        if !full {
            self.state.polling.pressed = None;
            return false;
        }
        let now = self.now;
        let pressed =
            self.state.polling.pressed.get_or_insert(SaturationCheck { since: now, ..SaturationCheck::default() });
        if now.saturating_sub(pressed.since) >= STEADY {
            pressed.time += self.seen.over.as_secs_f64();
            pressed.packets += self.seen.entries.iter().map(|entry| entry.packets).sum::<u64>();
        }
        true
    }

    fn begin_trial(&mut self) -> bool {
        let Some(pressed) = self.state.polling.pressed.filter(|pressed| pressed.time >= COUNTED) else { return false };
        // Where packets come to all CPUs already, and all are full, threads would only cost.
        let nothing_to_win = self.state.in_place && self.comes_everywhere();
        if nothing_to_win || self.state.polling.verdict.is_some() || !self.may_switch() {
            return false;
        }
        let in_place = !self.state.in_place;
        let before = pressed.packets as f64 / pressed.time;
        self.switch(in_place, PollingReason::Trial);
        if in_place {
            self.put_on_base();
        } else {
            self.put_everywhere();
        }
        self.state.polling.trial = Some(PollTrial { begun: self.now, before, ..PollTrial::default() });
        true
    }

    /// A trial goes on until enough was counted; then the better of both stays.
    fn go_on(&mut self, mut trial: PollTrial) -> bool {
        let over = nanos::of(self.seen.over);
        if over > 0 && self.now.saturating_sub(trial.begun) >= SETTLE.saturating_add(over) {
            trial.time += self.seen.over.as_secs_f64();
            trial.packets += self.seen.entries.iter().map(|entry| entry.packets).sum::<u64>();
        }
        if trial.time < COUNTED {
            self.state.polling.trial = Some(trial);
            return true;
        }
        let tried = trial.packets as f64 / trial.time;
        let in_place = self.state.in_place;
        let (without, with) = if in_place { (tried, trial.before) } else { (trial.before, tried) };
        let stays_in_place = with < without * MORE;
        self.decide(stays_in_place, with, without);
        if stays_in_place {
            self.put_on_base();
        } else if in_place {
            self.put_everywhere();
        }
        true
    }

    /// Threads that came because a CPU was full: where they carry less than was carried in place, they go again.
    fn prove(&mut self) -> bool {
        let Some(mut proof) = self.state.polling.proof.take().filter(|_| !self.state.in_place) else { return false };
        let over = nanos::of(self.seen.over);
        if over > 0 && self.now.saturating_sub(proof.begun) >= SETTLE.saturating_add(over) {
            proof.time += self.seen.over.as_secs_f64();
            proof.packets += self.seen.entries.iter().map(|entry| entry.packets).sum::<u64>();
        }
        if proof.time < PROVEN {
            self.state.polling.proof = Some(proof);
            return false;
        }
        let with = proof.packets as f64 / proof.time;
        let full = self.candidates.iter().any(|candidate| candidate.full);
        if with >= proof.before || !full || !self.may_switch() {
            return false;
        }
        self.decide(true, with, proof.before);
        self.put_on_base();
        true
    }

    /// Keeps to the better of both ways for a while.
    fn decide(&mut self, in_place: bool, with: f64, without: f64) {
        let polling = &mut self.state.polling;
        polling.holds = (polling.holds * 2).clamp(HOLDS, HOLDS_LONGEST);
        let until = self.now.saturating_add(polling.holds);
        polling.verdict = Some(PollVerdict { in_place, until, rate: with.max(without) });
        self.switch(in_place, PollingReason::Measured { with, without });
    }

    /// In place: until a CPU is full while others have room.
    fn stay_in_place(&mut self) -> bool {
        let load: f64 = self.state.entries.iter().map(|entry| entry.load.get()).sum();
        let room = (0..self.candidates.len()).any(|at| self.busy(at) < self.config.tuning.fill);
        let uneven = room && load >= MUCH && self.candidates.iter().any(|candidate| candidate.hot);
        if !uneven || self.state.polling.verdict.is_some() {
            self.state.polling.uneven = None;
            self.put_on_base();
            return true;
        }
        let since = *self.state.polling.uneven.get_or_insert(self.now);
        let long = if self.comes_everywhere() { UNEVEN_SPREAD } else { UNEVEN };
        if self.now.saturating_sub(since) < long || !self.may_switch() {
            return true;
        }
        let soon = self.now.saturating_sub(self.state.polling.since) < SOON;
        let apart = self.state.polling.apart * 2;
        self.state.polling.apart = if soon { apart.clamp(APART, APART_LONGEST) } else { APART };
        let before = self.state.totals.processed.get();
        self.switch(false, PollingReason::Hot);
        self.state.polling.proof = Some(PollTrial { begun: self.now, before, ..PollTrial::default() });
        // What is full may be another CPU than the base: what has to leave that one is seen with threads.
        !self.candidates[0].hot
    }

    /// With threads: until one CPU does all, and has room.
    fn leave_to_place(&mut self) -> bool {
        let times = &self.state.times;
        let one = self.candidates.iter().filter(|candidate| candidate.alive > 0).count() == 1;
        let calm = self.now >= times.coalesce_after && self.state.cpus.iter().all(|cpu| cpu.hot == 0);
        let late = self.now.saturating_sub(self.state.polling.since) >= self.state.polling.apart.max(APART);
        let asked = self.state.polling.verdict.is_some_and(|verdict| !verdict.in_place);
        if !(one && calm && late) || asked || !self.may_switch() {
            return false;
        }
        self.switch(true, PollingReason::Coalesced);
        self.put_on_base();
        true
    }

    /// Where entries are when threads poll again.
    fn put_on_base(&mut self) {
        for entry in 0..self.at.len() {
            self.move_entry(entry, 0, MoveReason::Coalesce);
        }
    }

    fn put_everywhere(&mut self) {
        let numbers = self.numbers();
        let wanted = crate::state::layout(self.config, self.state.base, self.state.table.len(), &numbers);
        for (entry, cpu) in wanted.into_iter().enumerate() {
            if let Some(to) = self.place_of(cpu).filter(|_| !self.barred(entry)) {
                self.move_entry(entry, to, MoveReason::Expand);
            }
        }
    }
}
