//! Suite files: TOML in, one validated value out that nothing checks again.

mod file;
mod resolve;

use std::fmt;
use std::fs;
use std::path::Path as FilePath;
use std::time::Duration;

use rig_load::plan::{Phases, TcpStream};
use rig_stats::confidence::Goal;
use rig_stats::units::Span;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Metric, Side};
use crate::testbed::topology::{Endpoint, Topology};

/// The suites that are compiled in, by name.
const BUILT_IN: [(&str, &str); 1] = [("layers", include_str!("../../../../suites/layers.toml"))];

/// Scenarios that belong together, with what is asked of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    pub name: String,
    pub title: String,
    pub about: String,
    /// Where the suite was read from, for messages and the store.
    pub file: String,
    /// The file's own text, stored with each run.
    pub text: String,
    /// The scenario that the others are compared with.
    pub baseline: Option<String>,
    pub timing: Timing,
    /// Timing of a first look.
    pub quick: Option<Timing>,
    /// The most nodes that any scenario of the file has: the machine's CPUs are shared by so many, also where only some
    /// scenarios are chosen, so that a node is the same machine in every run.
    pub nodes: usize,
    pub scenarios: Vec<Scenario>,
    pub tables: Vec<Layout>,
    pub claims: Vec<Claim>,
}

/// How long a trial takes and how often it is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    pub phases: Phases,
    pub repeat: Repeat,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeat {
    /// This many trials of each scenario.
    Times(u32),
    /// Trials until the figures are as certain as asked for.
    Until(Goal),
}

/// A phase that nothing can be measured in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {hint}")]
pub struct PhaseError {
    what: String,
    hint: &'static str,
}

impl Timing {
    const WINDOW_MIN: Duration = Duration::from_millis(100);
    const PHASE_MAX: Duration = Duration::from_secs(3600);

    fn new(window: Duration, warm_up: Duration, cool_down: Duration, repeat: Repeat) -> Result<Self, PhaseError> {
        if window < Self::WINDOW_MIN {
            let what = format!("a window of {} is too short to measure in", Span(window));
            return Err(PhaseError { what, hint: "choose at least 100ms" });
        }
        if [window, warm_up, cool_down].iter().any(|phase| *phase > Self::PHASE_MAX) {
            return Err(PhaseError { what: "a phase longer than an hour".into(), hint: "choose at most 60m" });
        }
        // A window of a few seconds still shows a course over time.
        let interval = (window / 5).clamp(Duration::from_millis(100), Duration::from_secs(1));
        Ok(Self { phases: Phases { warm_up, window, cool_down, interval }, repeat })
    }

    /// The same with another window.
    pub fn with_window(self, window: Duration) -> Result<Self, PhaseError> {
        Self::new(window, self.phases.warm_up, self.phases.cool_down, self.repeat)
    }
}

impl Repeat {
    /// The most trials that one scenario can take.
    pub fn most(self) -> u32 {
        match self {
            Self::Times(n) => n,
            Self::Until(goal) => goal.max(),
        }
    }
}

/// A testbed, a path, a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub id: String,
    pub name: String,
    pub about: String,
    pub notes: Vec<String>,
    pub topology: Topology,
    /// Sender and receiver of each stream.
    pub pairs: Vec<(Endpoint, Endpoint)>,
    /// The load as each end of each pair runs it.
    pub send: TcpStream,
    pub receive: TcpStream,
}

/// Results side by side, as a study printed them.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub title: String,
    pub source: Option<String>,
    pub columns: Vec<LayoutColumn>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LayoutColumn {
    pub head: String,
    pub scenario: String,
    pub sender: Option<Reference>,
    pub receiver: Option<Reference>,
}

impl LayoutColumn {
    /// The published figure in the unit it is shown in, Mbit/s or percent.
    pub fn reference(&self, side: Side, metric: Metric) -> Option<f64> {
        let reference = match side {
            Side::Sender => self.sender?,
            Side::Receiver => self.receiver?,
            Side::Local | Side::Remote => return None,
        };
        match metric {
            Metric::Throughput => Some(reference.throughput_mbit),
            Metric::Cpu => Some(reference.cpu_percent),
            _ => None,
        }
    }
}

/// Published figures of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reference {
    pub throughput_mbit: f64,
    pub cpu_percent: f64,
}

/// What is wrong with a suite file, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SuiteError {
    pub file: String,
    pub line: Option<usize>,
    pub what: String,
    pub hint: Option<String>,
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl Suite {
    /// Names and titles of the built-in suites.
    pub fn built_in() -> impl Iterator<Item = Result<Self, SuiteError>> {
        BUILT_IN.iter().map(|(name, text)| Self::parse(&format!("{name}.toml"), text))
    }

    /// A built-in suite by its name, or a suite file by its path.
    pub fn load(name_or_path: &str) -> Result<Self, SuiteError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(&format!("{name}.toml"), text);
        }
        let path = FilePath::new(name_or_path);
        let text = fs::read_to_string(path).map_err(|error| {
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            SuiteError {
                file: name_or_path.to_owned(),
                line: None,
                what: format!("cannot read this suite: {error}"),
                hint: Some(format!("name a built-in suite ({}) or the path of a suite file", names.join(", "))),
            }
        })?;
        Self::parse(name_or_path, &text)
    }

    /// Reads and validates the text of a suite file; `file` is its name for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, SuiteError> {
        resolve::resolve(file, text)
    }

    pub fn scenario(&self, id: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|scenario| scenario.id == id)
    }

    /// This suite with only the scenarios named, in the suite's order.
    pub fn only(mut self, ids: &[String]) -> Result<Self, SuiteError> {
        if let Some(unknown) = ids.iter().find(|id| self.scenario(id).is_none()) {
            let known: Vec<&str> = self.scenarios.iter().map(|s| s.id.as_str()).collect();
            return Err(SuiteError {
                file: self.file,
                line: None,
                what: format!("no scenario '{unknown}'"),
                hint: Some(format!("the suite's scenarios are {}", known.join(", "))),
            });
        }
        self.scenarios.retain(|scenario| ids.contains(&scenario.id));
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
