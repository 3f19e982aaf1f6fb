//! The letter of a suite file: what serde reads, nothing decided. [`super::resolve`] turns it into a [`super::Suite`]. The
//! file's JSON Schema follows from these types, and its words from their comments.

use std::collections::BTreeMap;

use rig_cli::forms::OneOrMany;
use rig_cli::source::Spanned;
use rig_stats::confidence::Goal;
use rig_stats::units::{BitRate, Percent, Span};
use rig_testbed::topology::{Family, Path};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::load::{LoadFile, UnderFile};
use super::programme::PhaseFile;
use super::set::SetFile;
use crate::checks::Procedure;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = needs_scenarios)]
pub(super) struct SuiteFile {
    /// The name of the suite and its runs: letters, digits, '-' and '_'.
    pub name: Spanned<String>,
    /// The heading of its reports.
    pub title: String,
    /// What the suite asks, in one sentence: a report begins with it and its answer.
    #[serde(default)]
    pub question: String,
    /// How a report answers the question; without it by the first claim that the run decides, or by its checks or overview.
    #[serde(default)]
    pub answer: Vec<AnswerFile>,
    /// What is measured and why, in a few sentences.
    #[serde(default)]
    #[schemars(example = "What a bridge costs a TCP stream, for each byte.")]
    pub about: String,
    /// The published study that the suite repeats on other machines: a claim that does not hold then differs from the study
    /// instead of being refuted; without it such a claim is refuted.
    pub study: Option<String>,
    /// Whether a run ends with status 1 when a claim does not hold, as with `--gate`; false by default.
    #[serde(default)]
    pub gate: bool,
    /// The scenario that the others are compared with; without it only costs by layer are compared, with those of the first
    /// scenario whose load is alike.
    pub baseline: Option<Spanned<String>>,
    /// The scenario that a run measures twice in each block, so that the judge of the claims is checked (A/A), or `false` for none; without
    /// it the baseline or else what most claims are about, provided that claims are about it and it takes at most an eighth of the time.
    pub aa: Option<Spanned<AaFile>>,
    pub defaults: Spanned<Defaults>,
    /// What `--quick` has in place of the defaults, and the shortest window that `--budget` chooses; without it `--quick` is refused, and
    /// `--budget` keeps the window of the defaults.
    pub quick: Option<Spanned<Quick>>,
    /// Nodes and what joins them, by the name that scenarios use.
    #[serde(default)]
    pub testbed: BTreeMap<String, TestbedFile>,
    /// What is measured: 1,000 at most, each row of a list of workers counted.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub scenario: Vec<ScenarioFile>,
    /// How results of several scenarios are shown together; without it in a table of all scenarios for each kind of load.
    #[serde(default)]
    pub table: Vec<TableFile>,
    /// What is expected of the results; without it nothing.
    #[serde(default)]
    pub claim: Vec<ClaimFile>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a scenario's id, or false for none")]
#[schemars(rename = "Aa")]
pub(super) enum AaFile {
    Scenario(String),
    Whether(bool),
}

/// What holds for all scenarios without a value of their own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    /// The measured interval of a trial: 100ms to 60m.
    pub window: Spanned<Span>,
    /// How long the load runs before it: at most 60m.
    pub warm_up: Spanned<Span>,
    /// How long the load runs after it, so that no end sees the other stop inside the window: at most 60m.
    pub cool_down: Spanned<Span>,
    /// How narrow intervals have to be before a scenario is no longer repeated, as netperf's `-I LEVEL,WIDTH -i MAX,MIN`.
    #[serde(default)]
    pub confidence: Goal,
    /// Default keys for loads that can have them and do not set them; without it each load says all itself.
    pub load: Option<Spanned<LoadFile>>,
}

/// What `--quick` has in place of the defaults. Its window is the shortest that `--budget` chooses; without it, `--budget`
/// keeps the window of the defaults.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Quick {
    /// The measured interval of a trial: 100ms to 60m.
    pub window: Spanned<Span>,
    /// How long the load runs before it: at most 60m.
    pub warm_up: Spanned<Span>,
    /// How long the load runs after it: at most 60m.
    pub cool_down: Spanned<Span>,
    /// Of each scenario.
    #[schemars(range(min = 1, max = 100))]
    pub trials: Spanned<u32>,
    /// Of each scenario that claims or the answer are about, and of the baseline, no fewer than `trials`; as many as `trials` by default.
    #[schemars(range(min = 1, max = 100))]
    pub trials_for_claims: Option<Spanned<u32>>,
    /// Of all searches; without it each is made as it says.
    pub search: Option<Spanned<QuickSearchFile>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "QuickSearch")]
pub(super) struct QuickSearchFile {
    /// How long each value is tried; without it as each search says.
    pub step: Option<Span>,
    /// How close a value without loss and one with loss have to be; without it as each search says.
    pub precision: Option<Percent>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Testbed")]
pub(super) struct TestbedFile {
    /// Their names, in the order in which they get CPUs: one, two or three, and up to 16 on path vrouter.
    #[schemars(length(min = 1, max = 16))]
    pub nodes: Spanned<Vec<String>>,
    /// The wire between neighbours, and on path vrouter between each two nodes; required of two nodes or more, and refused of one.
    pub wire: Option<WireFile>,
    /// The version of IP; ipv4 by default.
    #[serde(default)]
    pub family: Family,
    /// `all`: the second of two nodes owns all CPUs, the first the second half of them, and only a datapath of the scenario
    /// steers what the second receives; without it each node at which load ends has an equal share of the CPUs, and on paths of client,
    /// DUT and server the DUT as many as its `workers` and both ends the second half.
    pub receiver_cpus: Option<Spanned<ReceiverCpus>>,
}

/// Which CPUs the node that receives owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReceiverCpus {
    All,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Wire")]
pub(super) struct WireFile {
    /// What the wire carries each way; without limit by default.
    pub rate: Option<Spanned<BitRate>>,
    /// Bytes of the largest packet; 1500 by default.
    pub mtu: Option<Spanned<u32>>,
    /// Whether the nodes' interfaces accept more than a packet at once (TSO, GSO); true by default.
    pub segmentation_offload: Option<bool>,
    /// Queues of each interface; 1 by default.
    #[schemars(range(min = 1))]
    pub queues: Option<Spanned<u32>>,
}

/// What is measured on a testbed. A run leaves out a scenario that cannot be made on its machine, closes one that fails with the trials that
/// it has, and measures the rest; `--strict` makes that an error.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Scenario")]
pub(super) struct ScenarioFile {
    /// Its name in claims and tables: letters, digits, '_' and '-', beginning with a letter.
    #[schemars(regex(pattern = r"^[A-Za-z][A-Za-z0-9_-]*$"))]
    pub id: Spanned<String>,
    /// Its name in tables and reports.
    pub name: String,
    /// What it shows, in a sentence.
    #[serde(default)]
    pub about: String,
    /// What readers must know about how the scenario was reproduced.
    #[serde(default)]
    pub notes: Vec<String>,
    /// One of the file's testbeds.
    pub testbed: Spanned<String>,
    /// What joins the endpoints.
    #[schemars(schema_with = "paths")]
    pub path: Spanned<String>,
    /// The endpoints that connect.
    pub from: Spanned<Endpoints>,
    /// The endpoints that listen, one for each that connects.
    pub to: Spanned<Endpoints>,
    /// Keys that replace those of the testbed's wire; without it the wire is as the testbed has it.
    pub wire: Option<Spanned<WireFile>>,
    /// The version of IP; that of the testbed by default.
    pub family: Option<Family>,
    /// Of path vrouter: networks of containers with the same addresses, which do not reach each other; 1 by default. Each node
    /// has a container of each. `net2` is one of the second network, and one of any other name is of the first.
    #[schemars(range(min = 1, max = 16))]
    pub networks: Option<Spanned<u32>>,
    /// What is measured; without it the load of the scenario that `load_of` names, or else that of the defaults.
    pub load: Option<Spanned<LoadFile>>,
    /// Another scenario, whose own load is used; without it `load` says which.
    pub load_of: Option<Spanned<String>>,
    /// Of paths with a device under test: how many of its CPUs carry packets, of several numbers each a scenario; 1 by default.
    pub workers: Option<Spanned<OneOrMany<u32>>>,
    /// Of paths with a device under test: addresses that clients connect to; 1 by default.
    pub service_addresses: Option<Spanned<u32>>,
    /// Of paths with a device under test: addresses that servers see as those of clients; 1 by default, none where packets keep their
    /// clients' addresses.
    pub local_addresses: Option<Spanned<u32>>,
    /// Whether stacks are sampled, for flame graphs; false by default. Of paths with a device under test those of its CPUs during the
    /// window, of others those of all nodes' CPUs in a second window with the same load, by layer too.
    pub profile: Option<Spanned<bool>>,
    /// Datapaths with their settings: that of the path, and others; without it that of the path with its defaults.
    #[serde(default)]
    pub datapath: Vec<Spanned<DatapathFile>>,
    /// What is set on the testbed: offloads, queueing disciplines, receive packet steering, threaded NAPI, sysctls. Lists of values make
    /// variants of the scenario; without it only what the path sets.
    #[serde(default)]
    pub set: Vec<Spanned<SetFile>>,
    /// Commands that `sh` runs in nodes or containers before each trial, by the name of each; without it none. One that fails ends
    /// the run; what it leaves running is ended with it.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "b": "ethtool -K eth0 gro off" }))]
    pub before: BTreeMap<String, Spanned<OneOrMany<String>>>,
    /// A second load that runs at the same time; without it none.
    pub under: Option<Spanned<UnderFile>>,
    /// The phases of the window; without it nothing changes in the window.
    #[serde(default)]
    pub phase: Vec<Spanned<PhaseFile>>,
    /// A published procedure that the phases carry out, whose checks are made in each trial; without it none are made.
    pub checks: Option<Spanned<Procedure>>,
    /// How often counters are read for series over time; 100ms by default, without phases never.
    pub sample: Option<Spanned<Span>>,
    /// Figures whose intervals must be as narrow as those of the result and the CPU of both ends, e.g. `latency_p99`, `sender.retransmits`;
    /// without it those alone.
    #[serde(default)]
    #[schemars(example = ["latency_p99"])]
    pub watch: Vec<Spanned<String>>,
}

/// What handles packets of nodes, with settings of its own.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Datapath")]
pub(super) struct DatapathFile {
    /// Its name, such as balancer.
    #[schemars(with = "String")]
    pub name: Option<Spanned<toml::Value>>,
    /// The nodes on which it runs; required, except of the path's own, which runs where the path has it.
    #[schemars(with = "Option<Vec<String>>")]
    pub nodes: Option<Spanned<toml::Value>>,
    #[schemars(flatten, with = "BTreeMap<String, serde_json::Value>")]
    pub settings: BTreeMap<String, Spanned<toml::Value>>,
}

// By hand, because serde forgets where flattened keys are.
impl<'de> Deserialize<'de> for DatapathFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = BTreeMap::<String, Spanned<toml::Value>>::deserialize(deserializer)?;
        Ok(Self { name: settings.remove("name"), nodes: settings.remove("nodes"), settings })
    }
}

/// The names of one or several endpoints.
pub(super) type Endpoints = OneOrMany<String>;

/// A file without these is refused, by more than serde: the hint says what to add.
fn needs_scenarios(schema: &mut Schema) {
    if let Some(required) = schema.get_mut("required").and_then(serde_json::Value::as_array_mut) {
        required.extend(["testbed", "scenario"].map(serde_json::Value::from));
    }
}

fn paths(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": Path::all().map(Path::name).collect::<Vec<_>>() })
}

// Which keys a table has depends on its layout; [`super::tables`] refuses those of another.
/// Results of several scenarios together. Which keys it has depends on its layout.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Table")]
pub(super) struct TableFile {
    /// Its heading.
    pub title: Spanned<String>,
    /// The kind of table; columns by default.
    #[serde(default)]
    pub layout: LayoutFile,
    /// Where the reference figures were published; without it no source is named.
    pub source: Option<String>,
    /// A scenario each; required of the layout columns.
    pub columns: Option<Spanned<Vec<ColumnFile>>>,
    /// A row each; required of the layouts netperf, overview and workers.
    #[schemars(example = serde_json::json!([{ "head": "one bridge", "scenario": "stream-one-bridge" }]))]
    pub cases: Option<Spanned<Vec<CaseFile>>>,
    /// What its columns are called; required of an overview.
    pub tests: Option<Spanned<Vec<String>>>,
    /// Head of the case that the others are divided by; required of an overview.
    pub baseline: Option<Spanned<String>>,
    /// Of the layout workers: the published rows; without it none are shown.
    #[schemars(example = serde_json::json!([{ "workers": 1, "cps": 110_000 }]))]
    pub reference: Option<Vec<Spanned<WorkersRowFile>>>,
    /// Machines of the study; required of a platform.
    #[schemars(example = serde_json::json!([{ "head": "server", "cpu": "24 cores at 2.2 GHz", "memory": "188 GB", "network": "X540-AT2",
            "system": "CentOS 7.6", "software": "DPVS v1.9.2" }]))]
    pub machines: Option<Spanned<Vec<PlatformFile>>>,
    /// What readers must know about the published figures.
    #[serde(default)]
    #[schemars(example = ["Client and server are two processes on one machine."])]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Layout")]
pub(super) enum LayoutFile {
    /// A column for each scenario.
    #[default]
    Columns,
    /// A row for each scenario, as netperf prints its tests.
    Netperf,
    /// Cases as ratios of one of them, over several tests.
    Overview,
    /// A row for each number of workers of a device under test.
    Workers,
    /// What published figures were measured on.
    Platform,
}

/// A row of a study's table: the number of workers, and what was published for it by the keys of the table's columns, such as `cps`,
/// `connections` and `ipackets`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "WorkersRow")]
pub(super) struct WorkersRowFile {
    /// Of the device under test.
    pub workers: u32,
    /// By the keys of the table's columns.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Machine")]
pub(super) struct PlatformFile {
    /// What the machine is called.
    pub head: String,
    /// Model, number and clock of its CPUs.
    #[schemars(example = "Intel Xeon E5-2650 v4 at 2.20 GHz, 2 sockets, 12 cores per socket")]
    pub cpu: String,
    /// How much memory it has.
    pub memory: String,
    /// Its network cards.
    pub network: String,
    /// The operating system.
    pub system: String,
    /// What was measured, or measured with.
    pub software: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Column")]
pub(super) struct ColumnFile {
    /// What the column is called.
    pub head: String,
    /// The scenario whose results it has.
    pub scenario: Spanned<String>,
    /// What was published of the end that sends; without it nothing is shown beside what was measured.
    pub sender: Option<ReferenceFile>,
    /// What was published of the end that receives; without it nothing is shown beside what was measured.
    pub receiver: Option<ReferenceFile>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reference")]
pub(super) struct ReferenceFile {
    pub throughput: BitRate,
    /// Percent of the node's CPU time.
    pub cpu: f64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Case")]
pub(super) struct CaseFile {
    /// What the row is called.
    pub head: Spanned<String>,
    /// The scenario of the row; required in the layouts netperf and workers, and refused in an overview.
    pub scenario: Option<Spanned<String>>,
    /// In the layout netperf: what it printed for this case elsewhere; without it nothing is shown beside what was measured.
    #[schemars(example = serde_json::json!({ "throughput": "857.39mbit", "local": { "cpu": 6.39, "demand": 2.444 } }))]
    pub reference: Option<Spanned<NetperfFile>>,
    /// A scenario for each of the tests; required in an overview, and refused in other layouts.
    pub scenarios: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NetperfReference")]
pub(super) struct NetperfFile {
    /// Of streams, as received; without it none is shown.
    pub throughput: Option<BitRate>,
    /// Of udp-stream, as sent; without it none is shown.
    pub sent: Option<BitRate>,
    /// Of request/response, per second; without it none is shown.
    pub transactions: Option<f64>,
    /// The end that connects; without it none is shown.
    pub local: Option<NetperfEndFile>,
    /// The end that listens; without it none is shown.
    pub remote: Option<NetperfEndFile>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NetperfEnd")]
pub(super) struct NetperfEndFile {
    /// Percent of the node's CPU time; without it none is shown.
    pub cpu: Option<f64>,
    /// Microseconds for each KB (1024 bytes) of streams, for each transaction of the others; without it none is shown.
    pub demand: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Claim")]
pub(super) struct ClaimFile {
    /// The claim in words.
    pub text: String,
    /// A comparison of figures, such as B.throughput >= 0.9 * A.throughput.
    pub holds: Spanned<String>,
}

/// A clause of the answer: its text, and then each value that was measured, with the value's own text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Answer")]
pub(super) struct AnswerFile {
    /// How the clause begins, such as "containers keep".
    pub text: String,
    /// Of its plain numbers, such as %; throughputs and times have their own.
    #[serde(default)]
    pub unit: String,
    /// The values, in the order in which they are told. Those that a run has no figures for are left out.
    #[schemars(length(min = 1))]
    pub parts: Vec<AnswerPartFile>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnswerPart")]
pub(super) struct AnswerPartFile {
    /// An expression of figures as in claims, without a comparison, such as 100 * B.throughput / A.throughput.
    pub value: Spanned<String>,
    /// What follows the value, such as "behind a bridge".
    #[serde(default)]
    pub text: String,
}
