//! The letter of a suite file: what serde reads, nothing decided. [`super::resolve`] turns it into a [`super::Suite`].

use rig_stats::confidence::Goal;
use rig_stats::units::{BitRate, Percent, Span};
use rig_testbed::topology::Family;
use serde::Deserialize;
use toml::Spanned;

use super::load::LoadFile;
use super::programme::PhaseFile;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteFile {
    pub name: Spanned<String>,
    pub title: String,
    /// The question in a sentence or two.
    #[serde(default)]
    pub about: String,
    pub baseline: Option<Spanned<String>>,
    pub defaults: Spanned<Defaults>,
    pub quick: Option<Spanned<Quick>>,
    #[serde(default)]
    pub testbed: std::collections::BTreeMap<String, TestbedFile>,
    #[serde(default)]
    pub scenario: Vec<ScenarioFile>,
    #[serde(default)]
    pub table: Vec<TableFile>,
    #[serde(default)]
    pub claim: Vec<ClaimFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Defaults {
    pub window: Spanned<Span>,
    pub warm_up: Span,
    pub cool_down: Span,
    /// netperf's `-I LEVEL,WIDTH -i MAX,MIN`.
    #[serde(default)]
    pub confidence: Goal,
    pub load: Option<Spanned<LoadFile>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quick {
    pub window: Span,
    pub warm_up: Span,
    pub cool_down: Span,
    pub trials: u32,
    /// Of all searches.
    pub search: Option<QuickSearchFile>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickSearchFile {
    pub step: Option<Span>,
    pub precision: Option<Percent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TestbedFile {
    pub nodes: Spanned<Vec<String>>,
    pub wire: Option<WireFile>,
    /// IPv4 unless told.
    #[serde(default)]
    pub family: Family,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireFile {
    pub rate: Option<BitRate>,
    pub mtu: Option<u32>,
    pub segmentation_offload: Option<bool>,
    pub queues: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    pub id: Spanned<String>,
    pub name: String,
    #[serde(default)]
    pub about: String,
    /// What the reader must know about how the scenario was reproduced.
    #[serde(default)]
    pub notes: Vec<String>,
    pub testbed: Spanned<String>,
    pub path: Spanned<String>,
    pub from: Spanned<OneOrMany>,
    pub to: Spanned<OneOrMany>,
    /// What differs from the testbed's wire.
    pub wire: Option<Spanned<WireFile>>,
    /// Other than the testbed's.
    pub family: Option<Family>,
    pub load: Option<Spanned<LoadFile>>,
    /// The scenario before it whose load it has, too.
    pub load_of: Option<Spanned<String>>,
    /// Of paths with a node in the middle: how many of its CPUs carry packets; of several numbers each is a scenario.
    pub workers: Option<Spanned<WorkersFile>>,
    /// Addresses that clients connect to.
    pub service_addresses: Option<Spanned<u32>>,
    /// Addresses that servers see as those of clients.
    pub local_addresses: Option<Spanned<u32>>,
    /// Whether the stacks of those CPUs are sampled, which flame graphs are drawn from.
    pub profile: Option<Spanned<bool>>,
    /// Datapaths with their settings: that of the path, and others.
    #[serde(default)]
    pub datapath: Vec<Spanned<DatapathFile>>,
    /// A second load that runs meanwhile.
    pub under: Option<Spanned<LoadFile>>,
    /// What happens when in the window.
    #[serde(default)]
    pub phase: Vec<Spanned<PhaseFile>>,
    /// How far apart counters are read for series over time.
    pub sample: Option<Spanned<Span>>,
    /// Figures that have to be certain besides the result and the CPU of both ends, e.g. `latency_p99`, `sender.retransmits`.
    #[serde(default)]
    pub watch: Vec<Spanned<String>>,
}

/// `name`, perhaps `nodes`, and whatever settings the datapath has.
pub(super) type DatapathFile = std::collections::BTreeMap<String, Spanned<toml::Value>>;

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number of workers such as 1, or a list of them: [1, 2, 4]")]
pub(super) enum WorkersFile {
    One(u32),
    List(Vec<u32>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected an endpoint such as \"a/sender\", or a list of them")]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Which keys a table has depends on its layout; [`super::tables`] refuses those of another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableFile {
    pub title: Spanned<String>,
    #[serde(default)]
    pub layout: LayoutFile,
    /// Where the reference figures were published.
    pub source: Option<String>,
    pub columns: Option<Spanned<Vec<ColumnFile>>>,
    pub cases: Option<Spanned<Vec<CaseFile>>>,
    /// Of an overview: what its columns are called.
    pub tests: Option<Spanned<Vec<String>>>,
    /// Of an overview: head of the case that the others are divided by.
    pub baseline: Option<Spanned<String>>,
    /// Of workers: the published rows.
    pub reference: Option<Vec<Spanned<WorkersRowFile>>>,
    /// Of a platform: machines of the study.
    pub machines: Option<Spanned<Vec<PlatformFile>>>,
    /// What the reader must know of what was published.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LayoutFile {
    #[default]
    Columns,
    Netperf,
    Overview,
    Workers,
    Platform,
}

/// A row of a study's table.
#[derive(Debug, Deserialize)]
pub(super) struct WorkersRowFile {
    pub workers: u32,
    /// By the keys of the table's columns.
    #[serde(flatten)]
    pub figures: std::collections::BTreeMap<String, f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlatformFile {
    pub head: String,
    pub cpu: String,
    pub memory: String,
    pub network: String,
    pub system: String,
    pub software: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnFile {
    pub head: String,
    pub scenario: Spanned<String>,
    pub sender: Option<ReferenceFile>,
    pub receiver: Option<ReferenceFile>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferenceFile {
    pub throughput: BitRate,
    /// Percent of the node's CPU time.
    pub cpu: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    pub head: Spanned<String>,
    /// In the netperf layout.
    pub scenario: Option<Spanned<String>>,
    /// What netperf printed for this case elsewhere.
    pub reference: Option<Spanned<NetperfFile>>,
    /// In an overview: one for each of the tests.
    pub scenarios: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetperfFile {
    /// Of streams, as received.
    pub throughput: Option<BitRate>,
    /// Of udp-stream.
    pub sent: Option<BitRate>,
    /// Of request/response, per second.
    pub transactions: Option<f64>,
    pub local: Option<NetperfEndFile>,
    pub remote: Option<NetperfEndFile>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetperfEndFile {
    /// Percent of the node's CPU time.
    pub cpu: Option<f64>,
    /// Microseconds for each KB (1024 bytes) of streams, for each transaction of the others.
    pub demand: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimFile {
    pub text: String,
    pub holds: Spanned<String>,
}
