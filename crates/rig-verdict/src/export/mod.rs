//! The JSON of a run: what programs may rely on, published as a JSON Schema in docs/schema.
//!
//! Values are in the unit that stands beside them; nothing is rounded. A field is added, never renamed or given another
//! meaning without a new [`VERSION`].

mod comparison;
mod data;
mod history;
mod test;

use std::path::{Path, PathBuf};

use rig_cli::mistakes;
use rig_cli::schema::{Schema, described};
use rig_facts::claim::{Metric, Side};
use rig_facts::figures::sample_of;
use rig_facts::layers::LayersData;
use rig_facts::ledger::{Flow, Line};
use rig_facts::record::{AbRun, Environment, RigCost, SetApart, SkippedScenarios, ToolRun};
use rig_stats::confidence::Level;
use rig_stats::histogram::Histogram;
use rig_stats::sample::{Bound, Reading, Resolution, Sample};
use rig_suite::checks::Check;
use rig_suite::ends::Peer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::judge::{AaData, AaFigure, AaVerdict, ClaimData};
pub use comparison::{
    Comparison, ComparisonKind, Difference, Doubt, EffectData, FigureComparison, FlagCount, LayerComparison, Method,
    ModesData, NoiseData, NoiseRun, OtherMachine, RunRef, SampleData, ScenarioRef, Totals, TwoModesData,
};
pub use data::data;
pub use history::{DamagedData, HistoryData, HistoryRun, set_apart};
pub use test::{TestData, TestKind, requested};

/// What the JSON of every report begins with.
pub const FORMAT: &str = "netrig-report";
/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const VERSION: u32 = 2;

/// A report as JSON: how it reads, for those who show it, and `data`, for those who compute with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report<D> {
    /// `netrig-report`.
    #[schemars(extend("const" = FORMAT))]
    pub format: String,
    #[schemars(extend("const" = VERSION))]
    pub version: u32,
    pub title: String,
    /// Lines under the title.
    pub summary: Vec<String>,
    /// The report as it reads. Its blocks change with what reads best; programs use `data`.
    #[schemars(with = "Vec<std::collections::BTreeMap<String, Value>>")]
    pub blocks: Vec<Value>,
    #[schemars(with = "Vec<std::collections::BTreeMap<String, Value>>")]
    pub details: Vec<Value>,
    pub data: D,
}

/// One run with all figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "A netrig run")]
pub struct RunData {
    pub kind: RunKind,
    pub run: RunHead,
    /// The machine and the settings that the run was made with.
    pub environment: Environment,
    /// What a trial without load cost; null when the run ended before that was measured.
    pub rig_cost: Option<RigCost>,
    pub scenarios: Vec<ScenarioData>,
    /// Scenarios that the machine could not make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<SkippedScenarios>,
    /// What the run says of the suite's claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimData>,
    /// What is said of a scenario that was measured twice in each block, so that whatever is said to differ is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aa_check: Option<AaData>,
    /// The comparison with an earlier run, when one was asked for (`netrig run --against`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Why it could not be made, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    #[default]
    Run,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHead {
    /// The run's number in its store.
    pub id: String,
    pub suite: String,
    /// The suite's file as it was named, and its whole text.
    pub suite_file: String,
    pub suite_text: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    pub status: RunStatus,
    /// The options that the run was started with, in words.
    pub options: String,
    /// How often trials were repeated, in words.
    pub repetition: String,
    /// The CPUs of each node, as CPU lists.
    pub cpus: Vec<String>,
    pub phases_s: PhasesData,
    pub confidence_level_percent: f64,
    /// Where the run was made on another machine than most runs of its store, by calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_apart: Option<SetApart>,
    /// The pair of runs that it is one of, which took turns (`netrig ab`); left out where it had the machine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<AbRun>,
    /// The server, of a test between two machines; left out of a suite's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// Another tool's test, read from its output or made under its command line; left out of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum RunStatus {
    Complete,
    Running { trials_done: u32, trials_planned: u32 },
    Interrupted { trials_done: u32, trials_planned: u32 },
    Failed { trials_done: u32, trials_planned: u32, reason: String },
}

/// The phases of each trial, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhasesData {
    pub warm_up: f64,
    pub window: f64,
    pub cool_down: f64,
    pub sample_interval: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioData {
    pub id: String,
    pub name: String,
    pub notes: Vec<String>,
    /// The load in words.
    pub load: String,
    /// The load, as a suite asks for it.
    #[schemars(with = "std::collections::BTreeMap<String, Value>")]
    pub plan: Value,
    pub certainty: CertaintyKind,
    /// Which figures missed the certainty asked for and by how much, or which trial failed and why, in words.
    pub certainty_missed: Option<String>,
    /// Those that at least one trial has.
    pub figures: Vec<FigureData>,
    /// Of the procedure that each trial carried out, where the suite names one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// CPU time by layer, of each end whose CPUs were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayersData>,
    /// Of the trials in which frames are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frame_ledgers: Vec<FrameLedgerData>,
    /// Of all transactions of all trials; null where there were none.
    pub latency: Option<DistributionData>,
    /// Of all datagrams of all trials that arrived at the receiver, from sending to receiving; null where there were none.
    pub delay: Option<DistributionData>,
    /// The trials as they are stored, every counter in them. More fields than the schema names come and go with what
    /// is measured.
    #[schemars(with = "Vec<TrialOutline>")]
    pub trials: Vec<Value>,
}

/// Where the frames went that the senders of a trial's load counted, over the whole load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameLedgerData {
    /// The trial.
    pub ordinal: u32,
    pub flows: Vec<Flow>,
    /// The counters that took frames, in the order of the way, each frame in one.
    pub counters: Vec<Line>,
    /// Frames that are missing and in no counter; below 0, how many more are in counters than are missing.
    pub unexplained: i64,
}

/// Whether a scenario's figures became as certain as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CertaintyKind {
    /// Nothing was asked: the number of trials was fixed.
    Fixed,
    Reached,
    Missed,
    /// A trial failed; the figures are those of the trials before it.
    Failed,
    /// The run ended before.
    Unfinished,
}

/// One figure of one side over all trials of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureData {
    /// The end of the load, e.g. `sender`, `receiver`.
    pub side: String,
    /// E.g. `throughput`, `cpu`, `service_demand`, `retransmits`.
    pub metric: String,
    /// Of all values.
    pub unit: String,
    /// Over the trials that have the figure.
    pub mean: f64,
    /// The confidence interval of the mean; null for a single trial, and at an end that `bound` leaves open.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// One for each trial, in order; null where the trial does not have it.
    pub values: Vec<Option<f64>>,
    /// `at-least` where the figure is a limit only, e.g. because the load generator could not drive more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("enum" = ["at-least", "at-most", "open", null]))]
    pub bound: Option<Bound>,
    /// How finely the mean is known by the way its values were found: the true one lies between `mean - below` and
    /// `mean + above`. Left out where it is known as finely as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionData>,
}

/// In the figure's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResolutionData {
    pub below: f64,
    pub above: f64,
}

/// Times of all trials together. A percentile is null where there are too few values for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistributionData {
    /// How many times were measured.
    pub values: u64,
    pub mean_us: Option<f64>,
    pub p50_us: Option<f64>,
    pub p90_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub p99_9_us: Option<f64>,
    pub p99_99_us: Option<f64>,
    pub max_us: Option<f64>,
    /// The whole histogram, nanoseconds: base64 of HdrHistogram's compressed V2 format.
    #[schemars(with = "String")]
    pub histogram_ns: Histogram,
}

/// The part of a stored trial that a reader may rely on.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "describes stored trials for the schema; nothing makes one")]
struct TrialOutline {
    scenario: String,
    /// Counts the trials of this scenario in this run, from 1.
    ordinal: u32,
    /// Milliseconds since the Unix epoch.
    started_unix_ms: i64,
    /// Edges of the window, nanoseconds of CLOCK_MONOTONIC.
    window_begin_ns: u64,
    window_end_ns: u64,
    /// What each node's CPUs, interfaces and protocols did in the window.
    nodes: Vec<std::collections::BTreeMap<String, Value>>,
    /// What each end of the load counted.
    workers: Vec<std::collections::BTreeMap<String, Value>>,
    /// What makes the reader doubt the trial.
    flags: Vec<FlagOutline>,
}

#[derive(JsonSchema)]
#[allow(dead_code, reason = "describes stored flags for the schema; nothing makes one")]
struct FlagOutline {
    /// E.g. `stolen`, `saturated`.
    flag: String,
}

/// The JSON Schemas of what is published, by file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 3] {
    [
        (
            "run.json",
            described::<Report<RunData>>(
                "A run of netrig",
                "What `netrig run --format json` and `netrig report --format json` write.",
            ),
        ),
        (
            "comparison.json",
            described::<Report<Comparison>>(
                "A comparison of two runs of netrig",
                "What `netrig compare --format json` writes.",
            ),
        ),
        ("history.json", described::<HistoryData>("The stored runs of netrig", "What `netrig history --json` prints.")),
    ]
}

impl FigureData {
    /// `None` when no trial has the figure.
    pub fn new<R: Into<Reading>>(
        side: Side,
        metric: Metric,
        values: impl IntoIterator<Item = Option<R>>,
        level: Level,
    ) -> Option<Self> {
        let readings: Vec<Option<Reading>> = values.into_iter().map(|reading| reading.map(Into::into)).collect();
        let values = readings.iter().map(|reading| reading.map(|reading| reading.value)).collect();
        let sample = sample_of(readings.into_iter().flatten(), metric);
        let interval = level.mean_interval(&sample);
        let (bound, Resolution { below, above }) = (sample.bound(), sample.resolution());
        let is_known = |is_open: fn(Bound) -> bool| !bound.is_some_and(is_open);
        Some(Self {
            side: side.name().to_owned(),
            metric: metric.name().to_owned(),
            unit: metric.unit().to_owned(),
            mean: sample.mean()?,
            low: interval.filter(|_| is_known(Bound::is_open_below)).map(|i| i.low),
            high: interval.filter(|_| is_known(Bound::is_open_above)).map(|i| i.high),
            values,
            bound,
            resolution: (below + above > 0.0).then_some(ResolutionData { below, above }),
        })
    }

    /// Whether it is this figure, whichever version of netrig named it.
    pub fn is(&self, side: Side, metric: Metric) -> bool {
        self.side == side.name() && (self.metric == metric.name() || self.metric.parse() == Ok(metric))
    }

    /// The figure of every trial, NaN where a trial does not have it, with what is known of them.
    pub fn sample(&self) -> Sample {
        let mut sample =
            self.metric.parse::<Metric>().map_or_else(|_| Sample::default(), |m| Sample::within(m.range()));
        sample.extend(self.values.iter().map(|value| value.unwrap_or(f64::NAN)));
        let of = |ResolutionData { below, above }: ResolutionData| Resolution { below, above };
        sample.with(self.resolution.map_or(Resolution::EXACT, of), self.bound)
    }
}

impl ScenarioData {
    pub fn figure(&self, side: Side, metric: Metric) -> Option<&FigureData> {
        self.figures.iter().find(|figure| figure.is(side, metric))
    }
}

impl RunData {
    pub fn scenario(&self, id: &str) -> Option<&ScenarioData> {
        self.scenarios.iter().find(|scenario| scenario.id == id)
    }

    /// Whether both are the same run, maybe once from the store and once from a file.
    pub fn is(&self, other: &Self) -> bool {
        (&self.run.id, self.run.started_unix_ms) == (&other.run.id, other.run.started_unix_ms)
    }
}

/// Why a file is no run to read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{} is not JSON ({source}): give a file that `netrig report --format json` wrote", path.display())]
    NotJson { path: PathBuf, source: serde_json::Error },
    #[error("{} is not a report of netrig: give a file that `netrig report --format json` wrote", path.display())]
    Foreign { path: PathBuf },
    #[error(
        "{} was written by another netrig (report version {found}, this one reads {VERSION}): \
         write it again with this one's `netrig report --format json`",
        path.display()
    )]
    Version { path: PathBuf, found: u64 },
    #[error("{} holds a comparison, not a run: give a file that `netrig report --format json` wrote", path.display())]
    Comparison { path: PathBuf },
    #[error("{} is not a whole report ({source}): write it again with `netrig report --format json`", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
}

/// Reads a run, or a test between two machines, from a file that `--format json` wrote.
///
/// # Errors
/// When the file cannot be read or holds something else; the message names it and what to give instead.
pub fn read(path: &Path) -> Result<RunData, ImportError> {
    let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
    parse(path, &mistakes::read_text(path).map_err(unreadable)?)
}

/// Reads a run, or a test between two machines, from `text`; errors name `path`.
pub(crate) fn parse(path: &Path, text: &str) -> Result<RunData, ImportError> {
    let own = || path.to_owned();
    let mut report: Value =
        serde_json::from_str(text).map_err(|source| ImportError::NotJson { path: own(), source })?;
    if report["format"] != FORMAT {
        return Err(ImportError::Foreign { path: own() });
    }
    match report["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        version => return Err(ImportError::Version { path: own(), found: version.unwrap_or(0) }),
    }
    if report["data"]["kind"] == "comparison" {
        return Err(ImportError::Comparison { path: own() });
    }
    if report["data"]["kind"] == "test" {
        let damaged = |source| ImportError::Damaged { path: own(), source };
        let test: TestData = serde_json::from_value(report["data"].take()).map_err(damaged)?;
        return Ok(data(&test.view()));
    }
    serde_json::from_value(report["data"].take()).map_err(|source| ImportError::Damaged { path: own(), source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_stats::confidence::Level;

    use super::*;

    /// A run that version 0.1.0 exported, to be compared with.
    #[test]
    fn a_figure_is_known_by_its_first_name_too() {
        let current = FigureData::new(Side::Local, Metric::DutCpu, [Some(40.0)], Level::default()).unwrap();
        let older = FigureData { metric: current.metric.replace("dut", "middle"), ..current.clone() };
        for figure in [current, older] {
            assert!(figure.is(Side::Local, Metric::DutCpu), "{figure:?}");
            assert!(
                !figure.is(Side::Remote, Metric::DutCpu) && !figure.is(Side::Local, Metric::DutDrops),
                "{figure:?}"
            );
        }
    }
}
