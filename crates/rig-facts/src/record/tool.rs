//! Tests of another tool: what its output tells of them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A test of another tool: read from its output, or made by netrig under that tool's command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRun {
    /// `iperf3`, `netperf`, `wrk`, `wrk2` or `dperf`.
    pub tool: String,
    /// As the output has it; null where it has none.
    #[serde(default)]
    pub version: Option<String>,
    /// The files that it was read from; empty where netrig made the test.
    #[serde(default)]
    pub files: Vec<String>,
    /// When the first trial was made, milliseconds since the Unix epoch; null where the output does not say.
    #[serde(default)]
    pub made_unix_ms: Option<i64>,
    /// The kind of test, e.g. `tcp-stream`: the name of the run's scenario.
    pub test: String,
    /// The other end, as the output names it.
    #[serde(default)]
    pub server: Option<String>,
    /// What was asked for: name and value.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// What the output says of the machine that it was made on: name and value.
    #[serde(default)]
    pub machine: Vec<(String, String)>,
}

impl ToolRun {
    pub fn is_imported(&self) -> bool {
        !self.files.is_empty()
    }

    /// The tool with its version, where that is known.
    pub fn name(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.tool),
            None => format!("{}, version unknown", self.tool),
        }
    }

    /// The test and what was asked for, in a line.
    pub fn words(&self) -> String {
        let settings = self.settings.iter().map(|(name, value)| format!("{name} {value}"));
        [self.test.clone()].into_iter().chain(settings).collect::<Vec<_>>().join(", ")
    }

    /// What has to be the same for two runs to be repetitions of one test.
    #[must_use]
    pub fn conditions(&self) -> Self {
        Self { files: Vec::new(), made_unix_ms: None, ..self.clone() }
    }
}

impl fmt::Display for ToolRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.test, self.tool)?;
        self.server.as_ref().map_or(Ok(()), |server| write!(f, " to {server}"))
    }
}

/// One trial as a tool's output tells it: figures, where netrig's own trials have counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolTrial {
    /// What the figures are of, seconds.
    pub seconds: Option<f64>,
    /// Nothing stands here that the output does not tell.
    pub figures: Vec<ToolFigure>,
    /// What makes the reader doubt it, and what else is to be known, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// In the unit that the metric has, of which, and of the side, these are the names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolFigure {
    pub side: String,
    pub metric: String,
    pub value: f64,
}
