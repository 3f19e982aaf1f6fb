//! Checks of a published procedure: each has a name there, what it looks at, and passes or fails by the facts of a trial.
//!
//! Claims compare figures of several trials, with their uncertainty; a check asks what happened in one.

pub mod cni;
pub mod spreading;

use std::fmt;

use rig_facts::record::TrialRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A procedure whose checks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Procedure {
    /// Microsoft's validation guide for dynamic vRSS and VMMQ.
    ReceiveSpreading,
    /// What the specification of the Container Network Interface (CNI) asks of plug-ins.
    Cni,
}

/// One check of a procedure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// As the procedure is cited, e.g. `V08`.
    pub name: String,
    /// What is expected.
    pub what: String,
    /// What the procedure's own authors saw; empty where they give no figure.
    pub published: String,
    pub verdict: Verdict,
    /// What was seen; of several trials, in the one that decided.
    pub seen: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Passed,
    Failed,
    /// The machine or the interface lacks what the check is about.
    Lacking,
    /// The trial does not tell.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Lacking => "not here",
            Self::Unknown => "not known",
        })
    }
}

impl Procedure {
    /// The datapath that it is about, by its name, and the phases that carry it out, in their order.
    pub fn asks(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::ReceiveSpreading => (spreading::SPREADER, &spreading::PHASES),
            Self::Cni => (cni::CNI, &cni::PHASES),
        }
    }

    /// Each check over all trials of a scenario: it fails where it fails in one of them.
    pub fn judge(self, trials: &[TrialRecord]) -> Vec<Check> {
        let of = |trial| match self {
            Self::ReceiveSpreading => spreading::judge(trial),
            Self::Cni => cni::judge(trial),
        };
        let mut all = trials.iter().map(of);
        let mut checks = all.next().unwrap_or_default();
        for trial in all {
            for (check, other) in checks.iter_mut().zip(trial) {
                if rank(other.verdict) > rank(check.verdict) {
                    *check = other;
                }
            }
        }
        checks
    }
}

/// What decides among trials.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Failed => 3,
        Verdict::Unknown => 2,
        Verdict::Lacking => 1,
        Verdict::Passed => 0,
    }
}
