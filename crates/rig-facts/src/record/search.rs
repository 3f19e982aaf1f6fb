//! Searches for a limit.

use std::fmt;

use rig_packet::search::{GeneratorBound, Search, SearchResult};
use serde::{Deserialize, Serialize};

/// A search for the highest rate that is carried without loss, made before the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// What was raised.
    pub of: SearchedRate,
    pub options: Search,
    /// How long a rate was offered in each step, and to be confirmed, microseconds.
    pub step_us: u64,
    pub confirmed_us: u64,
    pub outcome: SearchResult,
    /// The generator's own limit, per second, found by this search with nothing between its ends. `None` when none was found.
    pub generator: Option<f64>,
    /// Why the limit is the generator's own.
    pub bound: Option<GeneratorBound>,
    /// The rate of the window as a share of the limit.
    pub share: f64,
}

/// What a search raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchedRate {
    /// Opened per second.
    Connections,
    /// Of all connections together, per second.
    Requests,
    /// Connections held open, at a rate of requests of each.
    Held,
}

impl SearchedRate {
    /// The unit of what is raised, e.g. of [`Step::rate`](rig_packet::search::Step::rate).
    pub fn unit(self) -> &'static str {
        match self {
            Self::Connections | Self::Requests => "1/s",
            Self::Held => "connections",
        }
    }
}

impl fmt::Display for SearchedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connections => "connections",
            Self::Requests => "requests",
            Self::Held => "held connections",
        })
    }
}
