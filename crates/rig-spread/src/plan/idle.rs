//! Parking, and what happens when load comes back.

use super::context::PlanContext;
use crate::event::{Event, MoveReason, PollingReason, Situation};
use crate::nanos;
use crate::state::layout;

/// A CPU with so much other work is no good place for a burst, if there are others.
const QUIET: f64 = 0.5;

impl PlanContext<'_> {
    /// Whether there is no load; then everything is parked, or about to be.
    pub fn idle(&mut self) -> bool {
        let tuning = &self.config.tuning;
        let parked = self.state.situation == Situation::Parked;
        if self.state.totals.trickle.get() >= tuning.park_rate {
            self.state.times.idle_since = None;
            if parked {
                self.wake();
            }
            return false;
        }
        let since = *self.state.times.idle_since.get_or_insert(self.now);
        if !parked && self.now.saturating_sub(since) >= nanos::of(tuning.park_after.0) {
            self.park();
        }
        true
    }

    fn wake(&mut self) {
        let keep = nanos::of(self.config.tuning.keep_parked.0);
        self.state.times.coalesce_after = self.now.saturating_add(keep);
        self.state.times.active = self.now;
    }

    fn park(&mut self) {
        // Packets that come to all CPUs by themselves find them without threads, too.
        let stays = self.state.in_place && self.comes_everywhere();
        if self.state.in_place && !stays {
            self.switch(false, PollingReason::Parked);
        }
        let numbers: Vec<u32> =
            self.candidates.iter().filter(|candidate| candidate.other_slow < QUIET).map(|p| p.number).collect();
        let width = self.config.effective.max_queue_pairs.min(self.config.tuning.park_cpus) as usize;
        let cpus = if numbers.len() > width { numbers } else { self.numbers() };
        let wanted = layout(self.config, self.state.base, self.state.table.len(), &cpus);
        for (entry, cpu) in wanted.into_iter().enumerate().filter(|_| !stays) {
            if let Some(to) = self.place_of(cpu).filter(|_| !self.barred(entry)) {
                self.move_entry(entry, to, MoveReason::Park);
            }
        }
        let hold = self.config.tuning.hold.0;
        if self.state.hold != hold {
            self.state.hold = hold;
            self.events.push(Event::HoldReset { hold });
        }
        self.state.times.stuck = None;
        self.state.polling.pressed = None;
        self.state.polling.trial = None;
        self.state.polling.proof = None;
        self.state.polling.apart = 0;
        self.state.watch = None;
        self.become_situation(Situation::Parked, 0);
    }
}
