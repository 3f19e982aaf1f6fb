//! What a run was asked to do.

use rig_facts::record::{AbRun, PreTrialCommand, SkippedScenarios, ToolRun};
use rig_facts::store::Label;
use serde::{Deserialize, Serialize};

use crate::ends::EndsTest;
use crate::pairs::PairsTest;
use crate::suite::Timing;

/// What a run was asked to do, stored with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub quick: bool,
    /// Scenarios chosen; empty for all.
    pub only: Vec<String>,
    /// The CPUs of each node, as CPU lists.
    pub cpus: Vec<String>,
    pub timing: Timing,
    /// From which the order of the trials in each block follows; `None` of runs whose scenarios took turns in a fixed order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Scenarios that are run a second time under another name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<String>,
    /// The scenario that was measured twice in each block, to check the judge of the claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aa: Option<String>,
    /// Scenarios that this machine cannot make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<SkippedScenarios>,
    /// The host of the nodes, unless they were the runner's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What the user calls the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Whether a claim that does not hold was to be an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
    /// The run that it took turns with, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<AbRun>,
    /// Of a test between two machines, what it was; `None` of a suite's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<EndsTest>,
    /// Of tests between all pairs of several hosts, what they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairsTest>,
    /// Of another tool's test, what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRun>,
    /// Commands that were run in nodes before each trial, besides those of the suite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<PreTrialCommand>,
}

impl Options {
    /// Why the run went without a scenario of its own, where it did.
    pub fn why_left_out(&self, id: &str) -> Option<&str> {
        let left_out = self.left_out.iter().find(|left_out| left_out.scenarios.iter().any(|one| one == id));
        left_out.map(|left_out| left_out.reason.as_str())
    }

    /// The options as a reader would say them.
    pub fn words(&self) -> String {
        let mut words = vec![if self.quick { "quick".to_owned() } else { "full".to_owned() }];
        if !self.only.is_empty() {
            words.push(format!("only {}", self.only.join(", ")));
        }
        words.extend((!self.cpus.is_empty()).then(|| format!("CPUs of the nodes: {}", self.cpus.join(" and "))));
        words.push(match self.seed {
            Some(seed) => format!("order of the trials from seed {seed}"),
            None => "trials in a fixed order".to_owned(),
        });
        words.extend((!self.again.is_empty()).then(|| format!("twice: {}", self.again.join(", "))));
        words.extend(self.aa.as_ref().map(|id| format!("A/A check of {id}")));
        words.extend(self.host.as_ref().map(|host| format!("nodes on host {host}")));
        words.extend(self.label.as_ref().map(|label| format!("label {label}")));
        if let Some(AbRun { pair, side, command }) = &self.turns {
            words.push(format!("the {side} side of A/B run {pair}"));
            words.extend((!command.is_empty()).then(|| format!("before each trial: {command}")));
        }
        words.extend(self.inside.iter().map(|one| format!("before each trial {one}")));
        words.join("; ")
    }
}
