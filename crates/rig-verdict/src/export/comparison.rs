//! What a comparison found, as plain values; the JSON is published as a JSON Schema in docs/schema.

use rig_facts::layers::LayerDifferences;
use rig_facts::record::Profile;
use rig_stats::compare::{Better, Kind, Verdict};
use rig_stats::sample::Bound;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A comparison of two runs, figure by figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "A netrig comparison")]
pub struct Comparison {
    pub kind: ComparisonKind,
    pub old: RunRef,
    pub new: RunRef,
    pub method: Method,
    pub noise: NoiseData,
    /// Where the runs took turns (`netrig ab`): blocks in which both have a trial, of the scenario with the fewest. Trials are
    /// compared block by block then, and there is no noise floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<usize>,
    pub totals: Totals,
    /// Those that were compared.
    pub scenarios: Vec<ScenarioRef>,
    /// Scenarios that only one of the runs has, and that were not compared.
    pub only_in_old: Vec<String>,
    pub only_in_new: Vec<String>,
    /// What differs between the runs besides the figures, and may explain them.
    pub differences: Vec<Difference>,
    /// Reasons to doubt trials of both runs: what disturbed both alike is no difference, and no less a disturbance.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
    pub figures: Vec<FigureComparison>,
    /// The change of CPU time by layer, of each end whose stacks both runs sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerComparison>,
}

/// In which layers the change of an end's CPU time lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerComparison {
    pub scenario: String,
    /// Of the end's service demand or transaction demand; null where it has none.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("enum" = ["better", "worse", "same", "undecided", null]))]
    pub verdict: Option<Verdict>,
    /// The share of CPU time without a layer, of the run that has more of it.
    pub unknown_percent: f64,
    pub changes: LayerDifferences,
    /// Stacks of the first trials, old and new.
    #[serde(skip)]
    pub profiles: Option<(Profile, Profile)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonKind {
    Comparison,
}

/// One of the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunRef {
    /// As the user named it, e.g. `run 3` or a file.
    pub name: String,
    /// The run's number in the store that it comes from.
    pub id: String,
    pub suite: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    pub netrig_version: String,
    /// What netrig was built from; null of runs that did not record it.
    #[serde(default)]
    pub netrig_build: Option<String>,
    pub kernel: String,
    /// Of another tool's test the tool, and whether its output was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Whether the run made all its trials.
    pub complete: bool,
}

/// How the figures were judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Method {
    pub confidence_level_percent: f64,
    /// The smallest relative change that matters.
    pub minimum_effect_percent: f64,
    /// Bootstrap resamples, and permutations where not all were tried.
    pub draws: u32,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioRef {
    pub id: String,
    pub name: String,
}

/// From how many repetitions the noise floor was learnt, the compared runs included. Below three no floor is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseData {
    pub runs_like_old: usize,
    /// 0 when both runs were made under the same conditions.
    pub runs_like_new: usize,
    /// Runs under the same conditions that were left out, because by calibration another machine made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_machines: Vec<OtherMachine>,
    /// Runs that were left out of the floor of a scenario, because most of its trials were disturbed from outside: by other
    /// programs, the hypervisor, a CPU limit, a machine of another speed. Single disturbed trials of other runs do not count either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed: Vec<String>,
}

/// What a run of the history measured of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NoiseRun {
    pub run: String,
    /// The mean over its undisturbed trials, in the figure's unit.
    pub mean: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherMachine {
    /// The run that was left out, and the one whose conditions it has.
    pub run: String,
    pub unlike: String,
    /// How much longer its machine took for the same arithmetic; below 0 it was faster.
    pub slower_percent: f64,
}

/// Figures by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    pub better: usize,
    pub worse: usize,
    pub same: usize,
    pub undecided: usize,
}

/// Something that is not the same in both runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What it is, e.g. `Kernel` or `net.ipv4.tcp_rmem`.
    pub what: String,
    pub old: String,
    pub new: String,
}

/// A flag that trials of both runs carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Doubt {
    pub scenario: String,
    /// As in the trials, e.g. `generator-bound`, `dropped`.
    pub flag: String,
    /// Trials that carry it, of all trials of the scenario in that run.
    pub old: FlagCount,
    pub new: FlagCount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlagCount {
    pub trials: usize,
    pub of: usize,
}

impl std::fmt::Display for FlagCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.trials, self.of)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FigureComparison {
    pub scenario: String,
    /// The end of the load, e.g. `sender`, `receiver`.
    pub side: String,
    pub metric: String,
    /// Of all values.
    pub unit: String,
    /// Which way the metric improves.
    #[schemars(with = "String", extend("enum" = ["higher", "lower"]))]
    pub better: Better,
    /// Whether it decides what is said of the run: a figure for which the suite repeats trials, what a unit of traffic costs,
    /// what failed, or one that the user named.
    #[serde(default = "gated")]
    pub gates: bool,
    #[schemars(with = "String", extend("enum" = ["better", "worse", "same", "undecided"]))]
    pub verdict: Verdict,
    /// Why it is undecided.
    pub reason: Option<String>,
    /// Null when a value is missing.
    pub effect: Option<EffectData>,
    /// Where the figure takes one of two values in a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modes: Option<ModesData>,
    /// Null when the run does not have the figure.
    pub old: Option<SampleData>,
    pub new: Option<SampleData>,
    /// The runs that make the noise floor, where the floor alone keeps the change from being called better or worse.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub noise_runs: Vec<NoiseRun>,
}

/// All did before there was a difference.
fn gated() -> bool {
    true
}

/// Two-valued results of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModesData {
    /// Null where the run has one mode only.
    pub old: Option<TwoModesData>,
    pub new: Option<TwoModesData>,
    /// How often equal shares of the higher mode lie so far apart by chance.
    pub share_p: Option<f64>,
}

/// Means of the two modes, in the figure's unit, and the share of trials in the higher one, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwoModesData {
    pub low: f64,
    pub high: f64,
    pub share_high: f64,
}

/// The change from old to new.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectData {
    /// `ratio`: new mean / old mean. `difference`: new mean - old mean in the figure's unit, where a value is zero.
    #[schemars(with = "String", extend("enum" = ["ratio", "difference"]))]
    pub kind: Kind,
    pub value: f64,
    /// The confidence interval; null for a single trial, and at an end that `bound` leaves open.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// Of what the value is a limit only, because the figure of a run is: `open` where that of both is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("enum" = ["at-least", "at-most", "open", null]))]
    pub bound: Option<Bound>,
    /// Of a permutation test, two-sided; of runs that took turns, of the sign-flip test.
    pub p: Option<f64>,
    /// Of Welch's t test of no change, two-sided, or of runs that took turns that of the blocks' trimmed mean; and corrected for all
    /// figures that decide together (Holm), where the figure is one of them.
    #[serde(default)]
    pub p_welch: Option<f64>,
    #[serde(default)]
    pub p_corrected: Option<f64>,
    /// From here on a change matters: a ratio above 1 (and its inverse below), or a difference above 0 (and below).
    pub minimum: f64,
    /// Repetitions of the same run differ by less, as a ratio above 1 or a difference above 0; null when not known.
    pub noise_floor: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleData {
    pub mean: f64,
    /// The confidence interval of the mean, at the run's own level; null for a single trial, and at an end that `bound`
    /// leaves open.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// One for each trial; null where the trial does not have the figure.
    pub values: Vec<Option<f64>>,
    /// `at-least` where the figure is a limit only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("enum" = ["at-least", "at-most", "open", null]))]
    pub bound: Option<Bound>,
}
