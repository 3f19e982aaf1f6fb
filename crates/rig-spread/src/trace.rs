//! Observations as they were made, one JSON object a line, and their replay.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::effective::Config;
use crate::event::{Event, Move};
use crate::nanos;
use crate::observation::Observation;
use crate::plan::plan;
use crate::state::State;

/// A line of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// What holds from here on; a trace begins with one.
    Config(Box<Config>),
    /// The state before the next observation, so that a trace can begin anywhere.
    State(Box<State>),
    Seen(TraceStep),
    /// The actuator refused the last move of this entry.
    Failed {
        entry: Option<u32>,
    },
    /// The actuator refused to have queues polled in another way: they are still polled in place, or by threads.
    Polled {
        in_place: bool,
        #[serde(with = "nanos")]
        now: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceStep {
    /// In ns since the moment that all times count from.
    #[serde(with = "nanos")]
    pub now: Duration,
    pub observation: Observation,
}

/// What was decided on one observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedDecision {
    /// In ns, as in the trace.
    #[serde(with = "nanos")]
    pub now: Duration,
    pub moves: Vec<Move>,
    pub events: Vec<Event>,
}

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("line {line} of the trace: {source}")]
    Line { line: usize, source: serde_json::Error },
    #[error("line {line} of the trace comes before any configuration, which says what is in force")]
    NoConfig { line: usize },
    #[error("the trace ends at line {line}: {source}")]
    Read { line: usize, source: std::io::Error },
}

/// Writes one line.
///
/// # Errors
/// The errors of `to`.
pub fn write(to: &mut impl Write, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// Decides again on everything in the trace, by the policy of this build; `decided` gets what comes of each observation.
///
/// # Errors
/// A line that is no part of a trace, or that comes before any configuration.
pub fn replay(trace: impl BufRead, mut decided: impl FnMut(TracedDecision, &State)) -> Result<(), TraceError> {
    let mut config = None;
    let mut state = None;
    for (index, text) in trace.lines().enumerate() {
        let line = index + 1;
        let text = text.map_err(|source| TraceError::Read { line, source })?;
        if text.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&text).map_err(|source| TraceError::Line { line, source })? {
            Line::Config(new) => config = Some(new),
            Line::State(new) => state = Some(*new),
            Line::Failed { entry } => state = state.map(|state: State| state.failed(entry)),
            Line::Polled { in_place, now } => state = state.map(|state: State| state.polled_as_before(in_place, now)),
            Line::Seen(TraceStep { now, observation }) => {
                let config = config.as_ref().ok_or(TraceError::NoConfig { line })?;
                let before = state.take().unwrap_or_else(|| State::new(config));
                let (after, moves, events) = plan(before, &observation, config, now);
                decided(TracedDecision { now, moves, events }, &after);
                state = Some(after);
            }
        }
    }
    Ok(())
}
