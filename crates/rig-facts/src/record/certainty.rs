//! How certain the figures of scenarios became.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How certain the figures of a scenario became.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioCertainty {
    pub scenario: String,
    pub trials: u32,
    pub outcome: RepetitionEnd,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepetitionEnd {
    /// The number of trials was fixed; nothing was asked of the intervals.
    Fixed,
    Reached,
    /// Every claim about it was decided before the time was up.
    Decided,
    /// The time was up.
    TimeUp,
    /// The most trials allowed did not suffice: the figures, with the full width each reached relative to its mean.
    NotReached(Vec<(String, Option<f64>)>),
    /// A trial failed: the scenario was closed with those before.
    Failed {
        trial: u32,
        reason: String,
    },
    /// The run ended before.
    Unfinished,
}

impl fmt::Display for RepetitionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed number of trials"),
            Self::Reached => f.write_str("confidence reached"),
            Self::Decided => f.write_str("all its claims are decided"),
            Self::TimeUp => f.write_str("the time is up"),
            Self::Failed { trial, reason } => write!(f, "failed in trial {trial}: {reason}"),
            Self::Unfinished => f.write_str("the run ended before"),
            Self::NotReached(missed) => write!(f, "confidence not reached: {}", missed_words(missed)),
        }
    }
}

/// `sender cpu ±6.0 %, receiver cpu unknown` of what [`RepetitionEnd::NotReached`] holds.
pub fn missed_words(missed: &[(String, Option<f64>)]) -> String {
    let words = |(name, width): &(String, Option<f64>)| match width {
        // More to either side than the mean itself is not possible on one of them.
        Some(width) if *width > 2.0 => format!("{name} (its interval is {width:.1} times its mean wide)"),
        Some(width) => format!("{name} ±{:.1} %", width * 50.0),
        None => format!("{name} unknown"),
    };
    missed.iter().map(words).collect::<Vec<_>>().join(", ")
}
