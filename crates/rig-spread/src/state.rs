//! What the policy remembers from one look to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::effective::Config;
use crate::event::{Event, Situation, Why};
use crate::nanos;
use crate::settings::Mode;

/// Serializable, so that a daemon that starts again goes on where it was, and a trace begins anywhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The CPU of each entry.
    pub table: Vec<u32>,
    /// The CPU that packets reach first.
    pub base: u32,
    pub situation: Situation,
    pub entries: Vec<EntryState>,
    /// Told at the next look.
    pub(crate) untold: Vec<Event>,
}

/// What is known of an entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EntryState {
    /// Its last move; none since the state was made.
    pub last: Option<LastMove>,
    /// When the actuator last refused to move it.
    #[serde(with = "nanos::option")]
    pub refused: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LastMove {
    /// In ns, since the moment that all times count from.
    #[serde(with = "nanos")]
    pub at: Duration,
    pub from: u32,
    pub to: u32,
    pub why: Why,
}

impl State {
    /// As if nothing had been there: what a static mode has for good, and Dynamic until the first load. The actuator is
    /// told [`State::table`] as a whole.
    pub fn new(config: &Config) -> Self {
        let effective = &config.effective;
        let entries = config.abilities.entries as usize;
        let table = layout(config, effective.base, entries);
        let situation = if effective.mode == Mode::Dynamic { Situation::Parked } else { Situation::Fixed };
        Self {
            table,
            base: effective.base,
            situation,
            entries: vec![EntryState::default(); entries],
            untold: Vec::new(),
        }
    }

    /// With the placement that was found: the first look moves what has to move, as far as that is allowed.
    pub fn found(config: &Config, table: Vec<u32>, base: u32) -> Self {
        let entries = vec![EntryState::default(); table.len()];
        let situation = if config.effective.mode == Mode::Dynamic { Situation::Spread } else { Situation::Fixed };
        Self { table, base, situation, entries, untold: Vec::new() }
    }

    /// Puts back the last move of an entry (none: of the base), which the actuator refused. Nothing happens if it was
    /// never moved.
    #[must_use]
    pub fn failed(mut self, entry: Option<u32>) -> Self {
        let Some(index) = entry.map(|entry| entry as usize) else { return self };
        if let (Some(state), Some(cpu)) = (self.entries.get_mut(index), self.table.get_mut(index))
            && let Some(last) = state.last.take()
        {
            state.refused = Some(last.at);
            *cpu = last.from;
            self.untold.push(Event::Refused { entry, at: last.from, asked: last.to });
        }
        self
    }

    /// After which time to look again: seldom when nothing is about to change, which keeps the price of looking low.
    pub fn next_look(&self, config: &Config) -> Duration {
        if config.effective.mode == Mode::Dynamic { Duration::from_millis(10) } else { Duration::from_secs(1) }
    }

    /// Distinct CPUs that entries are on.
    pub fn cpus(&self) -> BTreeSet<u32> {
        self.table.iter().copied().collect()
    }
}

/// The placement without load: everything on the base, or spread.
pub(crate) fn layout(config: &Config, base: u32, entries: usize) -> Vec<u32> {
    let effective = &config.effective;
    if effective.mode == Mode::StaticVmq {
        return vec![base; entries];
    }
    let most = effective.max_queue_pairs as usize;
    let width = match effective.mode {
        Mode::Dynamic => most.min(config.tuning.park_cpus.max(effective.min_queue_pairs) as usize),
        _ => most,
    };
    let first = std::iter::once(base).filter(|_| !effective.exclude_primary);
    let cpus: Vec<u32> =
        first.chain(effective.cpus.iter().copied().filter(|cpu| *cpu != base)).take(width.max(1)).collect();
    (0..entries).map(|entry| cpus[entry % cpus.len()]).collect()
}
