//! The policy: what is seen in, moves out.

use std::time::Duration;

use crate::effective::Config;
use crate::event::{Event, Move, Why};
use crate::observation::Observation;
use crate::settings::Mode;
use crate::state::{LastMove, State, layout};

/// Decides on one observation, made `now`. The moves are meant to be carried out at once; the state has them as done, and one
/// that the actuator refuses is put back with [`State::failed`].
///
/// Deterministic: the same arguments give the same results.
pub fn plan(mut state: State, seen: &Observation, config: &Config, now: Duration) -> (State, Vec<Move>, Vec<Event>) {
    let events = std::mem::take(&mut state.untold);
    let mut moves = Vec::new();
    if config.effective.mode != Mode::Dynamic {
        let wanted = layout(config, config.effective.base, state.table.len());
        for (entry, to) in wanted.into_iter().enumerate() {
            let from = state.table[entry];
            if from != to {
                let why = if config.effective.cpus.contains(&from) { Why::Mode } else { Why::CpuOffline };
                let paid = seen.entries.get(entry).is_some_and(|seen| seen.packets > 0);
                state.table[entry] = to;
                state.entries[entry].last = Some(LastMove { at: now, from, to, why });
                moves.push(Move { entry: u32::try_from(entry).ok(), from, to, why, paid, predicted: 0.0 });
            }
        }
    }
    (state, moves, events)
}
