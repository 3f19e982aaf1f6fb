//! The JSON of a run.

use std::collections::BTreeMap;

use rig_packet::fleet::{FleetResult, Totals};
use rig_packet::search::{GeneratorBound, SearchEnding, StepPurpose};
use rig_packet::{Counters, Latencies, ServerCounters};
use rig_stats::histogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::{OfferedRate, RunResult};
use super::search::SearchReport;
use super::statistics::{PERCENTILES, is_known};

/// What the JSON of `netrig dperf` begins with.
pub const FORMAT: &str = "netrig-dperf";
/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const VERSION: u32 = 1;

/// One run of `netrig dperf`. Counters go by dperf's names, bits are those of frames without frame check sequence and
/// preamble, times are in the unit that their names end with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// `netrig-dperf`.
    #[schemars(extend("const" = FORMAT))]
    pub format: String,
    #[schemars(extend("const" = VERSION))]
    pub version: u32,
    /// netrig's.
    pub program_version: String,
    /// Milliseconds since the Unix epoch.
    pub started_unix_ms: i64,
    /// The configuration file, as it was named, and its whole text.
    pub file: String,
    pub text: String,
    pub mode: Mode,
    pub ports: Vec<PortRecord>,
    /// What was said beside the figures.
    pub notes: Vec<String>,
    /// A row for each second, from when all gateways were known; empty of a search.
    pub seconds: Vec<SecondRecord>,
    /// The whole run; of a search the last step that was over, or the first as far as it came.
    pub total: Total,
    /// The search, when one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// Why the exit status is 1; empty when everything was well.
    pub failures: Vec<String>,
    /// Whether a signal ended it before its time.
    pub interrupted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Client,
    Server,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortRecord {
    pub interface: String,
    /// By which way frames were exchanged, and what else is worth knowing: sentences.
    pub notes: Vec<String>,
}

/// One second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondRecord {
    /// Its number, from 0, as in the statistics.
    pub second: u64,
    /// How long it really was, seconds.
    pub span_s: f64,
    /// Of each thread, the share of the time in which it had something to do, 0 to 1.
    pub cpu_usage: Vec<f64>,
    /// By how much counters rose; those that did not are left out.
    pub counters: BTreeMap<String, u64>,
    /// Connections that were open at its end.
    pub open: u64,
    pub latency: LatencySummaries,
}

/// The whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    /// From when all gateways were known to the end.
    pub span_s: f64,
    /// Those that are zero are left out. Beside dperf's: `udpLate` and `udpDup`, the answers of `udpDrop` that came
    /// after their request was given up, or again; `udpUnnumbered`, answers that were matched by addresses and ports
    /// alone; `skUnfinished`, connections that waited for the other end when the run ended.
    pub counters: BTreeMap<String, u64>,
    /// Frames that were no packets, by reason; `badRx` is their sum.
    pub malformed: BTreeMap<String, u64>,
    /// Connections that were open at the end.
    pub open: u64,
    /// What interfaces, and the kernel before the thread, lost.
    pub nic: NicRecord,
    /// Of a client whose connections have times of their own, how much of its rate was begun in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<OfferedRecord>,
    pub workers: Vec<ThreadRecord>,
    /// By address and port of the server, where there are 2 to 4096 of them.
    pub servers: BTreeMap<String, ServerRecord>,
    pub latency: LatencySummaries,
    pub histograms: Histograms,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NicRecord {
    pub ierrors: u64,
    pub oerrors: u64,
    pub imissed: u64,
}

/// Connections per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedRecord {
    pub asked: f64,
    /// Less than `asked` where the machine was behind the times of the connections when the last was due.
    pub offered: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadRecord {
    pub interface: String,
    pub cpu: Option<u32>,
    /// The share of the run in which it had something to do, 0 to 1.
    pub cpu_usage: f64,
    pub counters: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerRecord {
    /// Connections that were opened.
    pub opened: u64,
    pub requests: u64,
    pub responses: u64,
    /// Connections that were given up, reset or cut short, and datagrams without an answer.
    pub errors: u64,
}

/// Latencies of a client; one that was not measured is null. All count from when something was due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummaries {
    /// From the connection to the answer of its SYN.
    pub handshake: Option<LatencySummary>,
    /// From the request to the first byte of its response.
    pub first_byte: Option<LatencySummary>,
    /// From the request to the end of its response.
    pub transaction: Option<LatencySummary>,
}

/// A percentile beyond which there are fewer than ten values is null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: Option<u64>,
    pub p90_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p99_9_ns: Option<u64>,
    pub max_ns: u64,
}

/// Whole histograms in nanoseconds: base64 of HdrHistogram's compressed V2 format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    #[schemars(with = "Option<String>")]
    pub handshake: Option<Histogram>,
    #[schemars(with = "Option<String>")]
    pub first_byte: Option<Histogram>,
    #[schemars(with = "Option<String>")]
    pub transaction: Option<Histogram>,
}

/// A search for the highest rate without loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchRecord {
    /// What the rate is of: `connections`, `requests` or `packets`.
    pub of: String,
    /// How it ended: `found`, `ceiling`, `nothing`, `exhausted` or `stopped`.
    pub ending: String,
    /// The highest rate per second that was held without loss for `hold_s`.
    pub held: Option<f64>,
    pub hold_s: f64,
    /// The lowest that always lost something.
    pub lost: Option<f64>,
    /// The part of the time in which the busiest thread had something to do at the rate held, when that is 0.9 or more:
    /// the rate is then the generator's own limit, and what it drives may carry more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_bound: Option<f64>,
    /// Whether the lowest rate that was not carried was missed by the generator alone, which was behind its own schedule: the rate held is
    /// then its own limit, too.
    #[serde(default)]
    pub generator_late: bool,
    pub steps: Vec<StepRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRecord {
    pub rate: f64,
    /// `raise`, `lower`, `bisect` or `confirm`.
    pub purpose: String,
    pub attempt: u32,
    /// What was lost, by counter; empty when the rate was carried.
    pub losses: BTreeMap<String, u64>,
}

impl SearchRecord {
    pub fn new(found: &SearchReport, hold_s: f64) -> Self {
        let SearchReport { of, outcome, bound, .. } = found;
        let ending = match outcome.ending {
            SearchEnding::Found => "found",
            SearchEnding::Ceiling => "ceiling",
            SearchEnding::Nothing => "nothing",
            SearchEnding::Exhausted => "exhausted",
            SearchEnding::Stopped => "stopped",
        };
        let steps = outcome.steps.iter().map(|step| StepRecord {
            rate: step.rate,
            purpose: purpose(step.purpose).to_owned(),
            attempt: step.attempt,
            losses: step.losses.iter().map(|loss| (loss.counter.clone(), loss.count)).collect(),
        });
        let (held, lost) = (outcome.held, outcome.lost);
        let generator_bound = match bound {
            Some(GeneratorBound::Limit(share) | GeneratorBound::Busy(share)) => Some(*share),
            Some(GeneratorBound::Late) | None => None,
        };
        let generator_late = outcome.is_late();
        let (of, ending) = ((*of).to_owned(), ending.to_owned());
        Self { of, ending, held, hold_s, lost, generator_bound, generator_late, steps: steps.collect() }
    }
}

pub fn purpose(purpose: StepPurpose) -> &'static str {
    match purpose {
        StepPurpose::Raise => "raise",
        StepPurpose::Lower => "lower",
        StepPurpose::Bisect => "bisect",
        StepPurpose::Confirm => "confirm",
    }
}

/// Counters by name, those that are zero left out.
pub fn named(counters: &Counters) -> BTreeMap<String, u64> {
    counters.fields().filter(|(_, value)| *value > 0).map(|(name, value)| (name.to_owned(), value)).collect()
}

impl LatencySummaries {
    pub fn of(latencies: &Latencies) -> Self {
        let Latencies { handshake, first_byte, transaction, .. } = latencies;
        let [handshake, first_byte, transaction] = [handshake, first_byte, transaction].map(LatencySummary::of);
        Self { handshake, first_byte, transaction }
    }
}

impl LatencySummary {
    fn of(histogram: &Histogram) -> Option<Self> {
        let known = |percent| histogram.percentile(percent).filter(|_| is_known(histogram, percent));
        let [p50_ns, p90_ns, p99_ns, p99_9_ns] = PERCENTILES.map(known);
        let (count, mean_ns, max_ns) = (histogram.count(), histogram.mean()?, histogram.max()?);
        Some(Self { count, mean_ns, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns })
    }
}

impl Total {
    pub fn new(span_s: f64, finished: &RunResult) -> Self {
        let RunResult { outcome, nic, offered, .. } = finished;
        let FleetResult { totals: Totals { counters, threads, .. }, latencies, servers } = outcome;
        let measured = |histogram: &Histogram| Some(histogram.clone()).filter(|histogram| !histogram.is_empty());
        let thread = |thread: &rig_packet::fleet::ThreadTotals| ThreadRecord {
            interface: thread.interface.clone(),
            cpu: thread.cpu,
            cpu_usage: thread.usage.busy_since(&rig_packet::Usage::default()),
            counters: named(&thread.counters),
        };
        let server = |row: &ServerCounters| {
            let ServerCounters { opened, requests, responses, errors } = *row;
            ServerRecord { opened, requests, responses, errors }
        };
        Self {
            span_s,
            counters: named(counters),
            malformed: counters.reasons().collect(),
            open: counters.sk_con(),
            nic: NicRecord { ierrors: nic.ierrors, oerrors: nic.oerrors, imissed: nic.imissed },
            offered: offered.map(|OfferedRate { asked, offered, .. }| OfferedRecord { asked, offered }),
            workers: threads.iter().map(thread).collect(),
            servers: servers.iter().map(|(server_at, row)| (server_at.to_string(), server(row))).collect(),
            latency: LatencySummaries::of(latencies),
            histograms: Histograms {
                handshake: measured(&latencies.handshake),
                first_byte: measured(&latencies.first_byte),
                transaction: measured(&latencies.transaction),
            },
        }
    }
}
