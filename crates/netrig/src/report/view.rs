//! A run as its report needs it: what the store and the suite know, put together.

use rig_load::plan::Phases;
use rig_stats::confidence::Level;

use super::document::Claim;
use crate::claim::{Metric, Side};
use crate::record::{Environment, RigCost, TrialRecord};

/// A whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// As the user names it.
    pub id: String,
    pub suite: String,
    pub title: String,
    /// What the suite is for.
    pub about: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    pub status: Status,
    /// The options that the run was started with, in words.
    pub options: String,
    pub phases: Phases,
    /// How often trials were repeated, in words.
    pub repetition: String,
    /// Confidence of all intervals.
    pub level: Level,
    pub environment: Environment,
    /// `None` when the run ended before it was measured.
    pub rig_cost: Option<RigCost>,
    pub scenarios: Vec<ScenarioView>,
    /// How the results are laid out. Scenarios in no table get one of their own.
    pub tables: Vec<TableView>,
    pub claims: Vec<Claim>,
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

/// Results side by side, e.g. as a study printed them.
#[derive(Debug, Clone, PartialEq)]
pub struct TableView {
    pub title: String,
    pub columns: Vec<ColumnView>,
    /// Where the reference figures were published.
    pub source: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ColumnView {
    pub head: String,
    /// Id of the scenario shown.
    pub scenario: String,
    pub sender: Option<Reference>,
    pub receiver: Option<Reference>,
}

/// Published figures of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    pub throughput_mbit: f64,
    pub cpu_percent: f64,
}

impl ColumnView {
    /// The published figure in the unit it is shown in, Mbit/s or percent.
    pub(super) fn reference(&self, side: Side, metric: Metric) -> Option<f64> {
        let reference = match side {
            Side::Sender => self.sender?,
            Side::Receiver => self.receiver?,
        };
        match metric {
            Metric::Throughput => Some(reference.throughput_mbit),
            Metric::Cpu => Some(reference.cpu_percent),
            Metric::ServiceDemand | Metric::Retransmits => None,
        }
    }
}
