//! The base goes to another CPU when its own is busy with other work.

use super::context::{PlanContext, SECOND};
use crate::event::{Event, MoveReason};
use crate::nanos;

/// Between two moves of the base.
const APART: u64 = 30 * SECOND;
/// The new one has less other work than the old one by this factor.
const QUIETER: f64 = 3.0;

impl PlanContext<'_> {
    pub fn rehome(&mut self) {
        let tuning = &self.config.tuning;
        let effective = &self.config.effective;
        if !self.config.abilities.base_moves || effective.base_fixed || self.candidates.len() < 2 {
            return;
        }
        // What is too much has to go somewhere in any case: better all of it to one quiet CPU than a part to a second one.
        let hot = self.candidates[0].hot && self.candidates[0].other > tuning.base_other;
        let other = if hot { self.candidates[0].other } else { self.candidates[0].other_slow };
        if other <= tuning.base_other {
            self.state.times.base_busy_since = None;
            return;
        }
        let since = *self.state.times.base_busy_since.get_or_insert(self.now);
        let recently = self.state.base_before.is_some_and(|(_, at)| self.now.saturating_sub(at) < APART);
        let long = self.now.saturating_sub(since) >= nanos::of(tuning.imbalance_after.0);
        if recently || !(hot || long) {
            return;
        }
        let node = self.candidates[0].node;
        let quiet = |at: &usize| {
            let candidate = &self.candidates[*at];
            // What has begun everywhere at once is no reason to go elsewhere: seconds alone would not show it yet.
            let there = candidate.other.max(candidate.other_slow);
            !candidate.avoided && candidate.node == node && there < other / QUIETER
        };
        // One without entries, so that the new base is not full from its first moment on.
        let unused = |at: &usize| self.candidates[*at].alive == 0;
        let Some(to) = (1..self.candidates.len()).filter(quiet).min_by_key(|at| !unused(at)) else { return };
        let (old, new) = (self.candidates[0].number, self.candidates[to].number);
        let taken = self.candidates[to].entries > 0;
        let more = taken || self.pairs() < effective.max_queue_pairs || effective.exclude_primary;
        let leaving: Vec<usize> = (0..self.at.len()).filter(|entry| self.at[*entry] == Some(0)).collect();
        let load: f64 = leaving.iter().map(|entry| self.state.entries[*entry].load.get()).sum();
        let fits = self.loads(false)[to] + load + if self.spreading() { self.tax() } else { 0.0 } <= tuning.hi;
        self.state.base = new;
        self.state.base_before = Some((old, self.now));
        self.state.times.base_busy_since = None;
        self.state.times.active = self.now;
        self.moves.push(crate::event::Move {
            entry: None,
            from: old,
            to: new,
            why: MoveReason::RehomeBase,
            paid: true,
            predicted: 0.0,
        });
        self.events.push(Event::BaseMoved { from: old, to: new, other });
        self.order_places();
        self.price();
        self.locate();
        if more && (fits || leaving.len() == self.at.len()) && !effective.exclude_primary {
            for entry in leaving {
                if !self.barred(entry) {
                    self.move_entry(entry, 0, MoveReason::RehomeBase);
                }
            }
        } else {
            self.conform();
        }
    }
}
