//! The policy: what was seen goes in, moves come out. docs/decisions/spreading-policy.md has the reasons.

mod coalesce;
mod context;
mod expand;
mod idle;
mod learn;
mod polling;
mod rehome;
mod watch;

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::effective::Config;
use crate::event::{Event, Move};
use crate::observation::Observation;
use crate::settings::Mode;
use crate::state::State;

use context::PlanContext;

/// Decides on one observation, made `now`. The moves are meant to be carried out at once; the state has them as done, and one
/// that the actuator refuses is put back with [`State::failed`]. An observation over no time changes nothing but what has to
/// change because of `config`.
///
/// Deterministic: the same arguments give the same results, on any machine.
///
/// When the number of entries is not that of the state, the placement is made anew, with a move for each entry that is new.
pub fn plan(state: State, seen: &Observation, config: &Config, now: Duration) -> (State, Vec<Move>, Vec<Event>) {
    let mut context = PlanContext::begin(state, seen, config, now);
    context.take_settings();
    context.learn();
    context.measure();
    if config.effective.mode != Mode::Dynamic {
        context.polling();
        context.fix();
    } else {
        context.conform();
        context.judge();
        if !context.idle() {
            if !context.polling() {
                context.rehome();
                let hot = context.expand();
                if !hot {
                    context.coalesce();
                    context.rebalance();
                }
            }
            context.situation();
        }
    }
    context.finish()
}
