//! A run as its report needs it: what the store and the suite know, put together.

use rig_load::plan::Phases;
use rig_stats::confidence::{Goal, Level};
use serde::{Deserialize, Serialize};

use crate::checks::Procedure;
use crate::claim::Verdict;
use crate::judge::ClaimData;
use crate::record::{Environment, RigCost, TrialRecord};
use crate::run::LeftOut;
use crate::suite::{AskedLoad, Layout};

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
    pub left_out: Vec<LeftOut>,
    /// How the results are laid out. Scenarios in no table get one of their own.
    pub tables: Vec<Layout>,
    /// The scenario that the others are compared with.
    pub baseline: Option<String>,
    pub claims: Vec<Claim>,
    /// The same claims with the values that decided them.
    pub judged: Vec<ClaimData>,
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
    pub plan: AskedLoad,
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
    /// Which figures missed it and by how much, in words.
    Missed(String),
    /// The run ended before.
    Unfinished,
}

/// A statement about the figures, with what they say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub text: String,
    pub expression: String,
    pub verdict: Verdict,
    /// Effect and interval in words.
    pub words: String,
}
