//! A run as its report needs it: what the store and the suite know, put together.

use rig_facts::claim::{EffectUnit, Judgement, Threshold, Verdict};
use rig_facts::record::{AbRun, Environment, RigCost, SetApart, SkippedScenarios, ToolRun, TrialRecord};
use rig_load::plan::Phases;
use rig_stats::confidence::{Goal, Interval, Level};
use rig_stats::sample::Bound;
use rig_suite::checks::Procedure;
use rig_suite::ends::Peer;
use rig_suite::suite::{Layout, RequestedLoad};
use serde::{Deserialize, Serialize};

use crate::judge::{AaData, ClaimData};

/// A whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// As the user names it.
    pub id: String,
    pub suite: String,
    /// Name of the suite's file as the user gave it, and its whole text.
    pub suite_file: String,
    pub suite_text: String,
    pub title: String,
    /// What the suite asks, in a sentence; empty where its title says it.
    pub question: String,
    /// What the run answers, in words that the suite has for it.
    pub answer: Option<String>,
    /// What the suite is for.
    pub about: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    pub status: Status,
    /// The options that the run was started with, in words.
    pub options: String,
    /// The CPUs of each node, as CPU lists.
    pub cpus: Vec<String>,
    pub phases: Phases,
    /// How often trials were repeated, in words.
    pub repetition: String,
    /// Confidence of all intervals.
    pub level: Level,
    /// What ended the repetition of a scenario; `None` when the number of trials was fixed.
    pub goal: Option<Goal>,
    pub environment: Environment,
    /// `None` when the run ended before it was measured.
    pub rig_cost: Option<RigCost>,
    pub scenarios: Vec<ScenarioView>,
    /// Scenarios that the run went without, because the machine cannot make them.
    pub left_out: Vec<SkippedScenarios>,
    /// How the results are laid out. Scenarios in no table get one of their own.
    pub tables: Vec<Layout>,
    /// The scenario that the others are compared with.
    pub baseline: Option<String>,
    pub claims: Vec<Claim>,
    /// The claims of the run with the values that decided them.
    pub judged: Vec<ClaimData>,
    /// What the judge said of a scenario that was measured twice; `None` where none was.
    pub aa: Option<AaData>,
    /// Where it was made on another machine than most runs of its store, by calibration; `None` where not, or where nothing tells.
    pub set_apart: Option<SetApart>,
    /// The run that it took turns with; `None` where it had the machine alone.
    pub turns: Option<AbRun>,
    /// The other machine, of a test between two; else `None`.
    pub peer: Option<Peer>,
    /// Of another tool's test, what it was; else `None`.
    pub tool: Option<ToolRun>,
}

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Complete,
    Running { done: u32, planned: u32 },
    Interrupted { done: u32, planned: u32 },
    Failed { done: u32, planned: u32, reason: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioView {
    pub id: String,
    pub name: String,
    pub about: String,
    /// What the reader must know to read the figures, e.g. what stands in for something else.
    pub notes: Vec<String>,
    /// Drawing of the testbed.
    pub topology: String,
    /// The load in words.
    pub load: String,
    /// The load as it was asked of the connecting end.
    pub plan: RequestedLoad,
    /// A procedure that each trial carried out.
    pub checks: Option<Procedure>,
    pub trials: Vec<TrialRecord>,
    pub certainty: Certainty,
}

/// Whether a scenario's figures became as certain as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certainty {
    /// Nothing was asked: the number of trials was fixed.
    Fixed,
    Reached,
    /// Which figures missed it and by how much: `sender cpu ±3.7 %`.
    Missed(String),
    /// A trial failed, and the run went on without it: `failed in trial 3: a worker died`.
    Failed(String),
    /// The run ended before.
    Unfinished,
}

/// A statement about the figures, with what they say about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    pub text: String,
    pub expression: String,
    pub verdict: Verdict,
    /// Effect and interval in words.
    pub words: String,
    /// What was compared with the threshold; `None` where it has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// Why it has no verdict; `None` where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
}

/// The one value that a claim is judged by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// What it is, e.g. `D.throughput / B.throughput`.
    pub of: String,
    pub value: f64,
    pub unit: EffectUnit,
    /// `None` when a scenario has a single trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Of what the value is a limit only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    pub threshold: Threshold,
}

impl Effect {
    /// What was computed, where it was.
    pub fn of(judgement: Judgement) -> Option<Self> {
        let Judgement { effect, effect_is: of, unit, interval, bound, threshold, .. } = judgement;
        Some(Self { of, value: effect?, unit, interval, bound, threshold })
    }

    /// `0.43 (0.41 to 0.45)`
    pub fn measured(&self) -> String {
        self.measured_in("")
    }

    /// As [`Self::measured`], with a unit for an effect that is a plain number: `43.1 % (41.0 to 45.2)`.
    pub fn measured_in(&self, unit: &str) -> String {
        let unit = match self.unit {
            EffectUnit::Number if !unit.is_empty() => format!(" {unit}"),
            _ => String::new(),
        };
        let sign = self.bound.map_or("", Bound::sign);
        let (value, ends) = self.unit.show_known(self.value, self.interval);
        // Ends that are the value to the last digit shown say nothing: of trials that all found the same, as searches with steps do.
        let ends = ends.filter(|(low, high)| *low != value || *high != value);
        let ends = ends.map_or_else(String::new, |(low, high)| format!(" ({low} to {high})"));
        format!("{sign}{value}{unit}{ends}")
    }

    /// `claimed at most 0.5`
    pub fn claimed(&self) -> String {
        format!("claimed {}", self.threshold.show(self.unit))
    }
}

/// Why a claim has no verdict. Claims of the same kind are told together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Open {
    /// A single trial gives a value, and no interval to judge by.
    SingleTrial,
    /// The interval has the threshold inside.
    Across,
    /// Figures are limits of the load generator.
    Limit,
    /// Figures are missing.
    NotMeasured,
    /// No figures of this run could tell.
    Refused { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_are_the_value_are_not_written_out() {
        let measured = |low: f64, high: f64| {
            let interval = Some(Interval { low, high, level: Level::default() });
            let threshold = Threshold::AtMost(0.0);
            Effect { of: "A.limit".into(), value: 190.3, unit: EffectUnit::Number, interval, bound: None, threshold }
                .measured_in("thousand")
        };
        assert_eq!(measured(190.3, 190.3), "190.3 thousand");
        assert_eq!(measured(187.0, 194.0), "190 thousand (187 to 194)");
    }
}
