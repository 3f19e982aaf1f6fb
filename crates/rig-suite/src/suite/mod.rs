//! Suite files: TOML in, one validated value out that nothing checks again.

mod before;
mod cni;
mod datapaths;
mod docker;
mod file;
mod full_speed;
mod limits;
mod load;
mod over_path;
mod packets;
mod programme;
mod resolve;
mod schema;
mod set;
mod tables;
mod twin;
mod windows;
mod words;
mod workers;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path as FilePath;
use std::time::Duration;

use rig_facts::claim::{Claim, Metric, Side};
use rig_facts::figures::Kind;
use rig_facts::programme::{LIMIT_WINDOW, Programme};
use rig_facts::record::{PreTrialCommand, SearchedRate};
pub use rig_facts::requested_load::{Exchange, Message, PacketLoad, RequestedLoad, TcpExchange};

pub use self::cni::{CniNetwork, folder_of_more_plugins, more_plugins};
pub use self::datapaths::{ALONE, DatapathSetup, asked, server, shown};
pub use self::docker::EngineNetwork;
pub use self::packets::{BenchmarkPlan, PacketThreads, PacketTraffic, PortOf, SearchPlan, at_port, at_rate, opening};
pub use self::schema::schema;
pub use self::twin::TwinChoice;
pub use self::words::bytes;
pub use self::workers::{Platform, Workers, WorkersCase, WorkersColumn, WorkersEnd};
use rig_cli::mistakes::{self, FileError};
use rig_load::plan::{Flow, Phases};
use rig_load::record::WorkerRecord;
use rig_stats::confidence::{Goal, Level};
use rig_stats::units::Span;
use rig_testbed::Dut;
use rig_testbed::topology::{Endpoint, Topology};
use serde::{Deserialize, Serialize};

use crate::checks::Procedure;
use crate::pairs::{PAIRS, PODS};

/// The suites that are compiled in, by name.
const BUILT_IN: [(&str, &str); 14] = [
    ("layers", include_str!("../../../../suites/layers.toml")),
    ("namespaces", include_str!("../../../../suites/namespaces.toml")),
    ("latency", include_str!("../../../../suites/latency.toml")),
    ("packets", include_str!("../../../../suites/packets.toml")),
    ("balancer", include_str!("../../../../suites/balancer.toml")),
    ("protection", include_str!("../../../../suites/protection.toml")),
    ("floods", include_str!("../../../../suites/floods.toml")),
    ("outage", include_str!("../../../../suites/outage.toml")),
    ("overlay", include_str!("../../../../suites/overlay.toml")),
    ("spreading", include_str!("../../../../suites/spreading.toml")),
    ("rfc2544", include_str!("../../../../suites/rfc2544.toml")),
    ("mlrsearch", include_str!("../../../../suites/mlrsearch.toml")),
    ("cni", include_str!("../../../../suites/cni.toml")),
    ("docker", include_str!("../../../../suites/docker.toml")),
];

/// What a trial takes besides its load, about: two nodes, a few workers, a debug build on two CPUs.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(150);

/// Scenarios that belong together, with what is asked of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    pub name: String,
    pub title: String,
    /// What it asks, in one sentence; empty where the title says it.
    pub question: String,
    /// How the question is answered.
    pub answers: Vec<Answer>,
    pub about: String,
    /// The published study whose claims the suite's are.
    pub study: Option<String>,
    /// Whether a claim that does not hold is an error.
    pub gate: bool,
    /// Where the suite was read from, for messages and the store.
    pub file: String,
    /// The file's own text, stored with each run.
    pub text: String,
    /// The scenario that the others are compared with.
    pub baseline: Option<String>,
    /// The scenario that a run measures twice in each block, to check the judge of its claims.
    pub twin: TwinChoice,
    pub timing: Timing,
    /// Timing of a first look.
    pub quick: Option<Timing>,
    /// How a first look searches.
    pub quick_search: QuickSearch,
    /// How many trials a first look makes of scenarios that nothing is claimed of.
    pub quick_trials: Option<u32>,
    /// The most nodes that any scenario of the file has: the machine's CPUs are shared by so many, also where only some
    /// scenarios are chosen, so that a node is the same machine in every run. Client, DUT and server share them in
    /// another way ([`rig_testbed::Placement`]) and do not count.
    pub nodes: usize,
    pub scenarios: Vec<Scenario>,
    pub tables: Vec<Layout>,
    pub claims: Vec<Claim>,
}

/// A clause of the answer to a suite's question: its text, then each value with its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    /// Of plain numbers.
    pub unit: String,
    pub parts: Vec<AnswerClaim>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AnswerClaim {
    /// Its value is asked for, and nothing is claimed of it.
    pub value: Claim,
    pub text: String,
}

/// What searches of a first look have in place of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QuickSearch {
    pub step: Option<Duration>,
    /// As [`rig_packet::search::Search::precision`].
    pub precision: Option<f64>,
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
    /// Trials until the claims are decided or the time is up.
    Within(Budget),
}

/// A time to spend on deciding a suite's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Of all trials together, milliseconds.
    pub time_ms: u64,
    /// Blocks that are planned: how often results are looked at, and with what error, follows from it.
    pub blocks: u32,
}

impl Budget {
    /// The most blocks that are made of scenarios which nothing decides before the time is up.
    pub const BLOCKS_MAX: u32 = 1000;

    pub fn time(self) -> Duration {
        Duration::from_millis(self.time_ms)
    }
}

/// A phase that nothing can be measured in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {hint}")]
pub struct PhaseError {
    /// How long the phase was to be.
    phase: Duration,
    what: String,
    hint: &'static str,
}

impl PhaseError {
    fn is_of(&self, phase: Duration) -> bool {
        self.phase == phase
    }
}

impl Timing {
    const WINDOW_MIN: Duration = Duration::from_millis(100);
    const PHASE_MAX: Duration = Duration::from_secs(3600);

    fn new(window: Duration, warm_up: Duration, cool_down: Duration, repeat: Repeat) -> Result<Self, PhaseError> {
        if window < Self::WINDOW_MIN {
            let what = format!("a window of {} is too short to measure in", Span(window));
            return Err(PhaseError { phase: window, what, hint: "choose at least 100ms" });
        }
        if let Some(&phase) = [window, warm_up, cool_down].iter().find(|phase| **phase > Self::PHASE_MAX) {
            let what = format!("a phase of {} is longer than an hour", Span(phase));
            return Err(PhaseError { phase, what, hint: "choose at most 60m" });
        }
        // A window of a few seconds still shows a course over time.
        let interval = (window / 5).clamp(Duration::from_millis(100), Duration::from_secs(1));
        Ok(Self { phases: Phases { warm_up, window, cool_down, interval }, repeat })
    }

    /// This timing with another window.
    pub fn with_window(self, window: Duration) -> Result<Self, PhaseError> {
        Self::new(window, self.phases.warm_up, self.phases.cool_down, self.repeat)
    }
}

impl Repeat {
    /// The fewest trials that one scenario takes.
    pub fn least(self) -> u32 {
        match self {
            Self::Times(n) => n,
            Self::Until(goal) => goal.min(),
            Self::Within(budget) => budget.blocks,
        }
    }

    /// The most trials that one scenario can take.
    pub fn most(self) -> u32 {
        match self {
            Self::Times(n) => n,
            Self::Until(goal) => goal.max(),
            Self::Within(budget) => budget.blocks,
        }
    }
}

/// A testbed, a path, a load, and perhaps another load under it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub id: String,
    pub name: String,
    pub about: String,
    pub notes: Vec<String>,
    pub topology: Topology,
    /// On the paths that have a node between client and server.
    pub dut: Option<Dut>,
    /// Of the other paths: whether each trial has a second window in which the stacks of all nodes' CPUs are sampled.
    pub profile: bool,
    /// What handles packets of nodes: that of the path first, where it has one.
    pub datapaths: Vec<DatapathSetup>,
    /// What the file calls the scenario that this one is a row of, by its number of workers; `None` of one that stands alone.
    pub row_of: Option<String>,
    /// The scenario that this one is made beside, to be compared with it; `None` of those that are measured for themselves.
    pub twin_of: Option<String>,
    /// Where the number of trials is fixed, no more than so many.
    pub trials_max: Option<u32>,
    /// What is run in its nodes before each trial.
    pub before: Vec<PreTrialCommand>,
    /// What is measured.
    pub traffic: Traffic,
    /// What runs meanwhile.
    pub under: Option<Traffic>,
    /// What happens when.
    pub programme: Programme,
    /// A procedure that the programme carries out.
    pub checks: Option<Procedure>,
    /// The figures that have to be certain: as netperf's `-I`, the result and the CPU of both ends, and what the file
    /// asks for besides.
    pub watched: Vec<(Side, Metric)>,
}

impl Scenario {
    /// The load as the connecting end runs it.
    pub fn plan(&self) -> RequestedLoad {
        self.traffic.connect.clone()
    }

    /// What it has in common with its twin, which is made of the same testbed.
    pub fn family(&self) -> &str {
        self.twin_of.as_deref().unwrap_or(&self.id)
    }

    /// What all rows of its list are called; its own name where it stands alone.
    pub fn list_name(&self) -> &str {
        let row = self.row_of.as_ref().and_then(|_| self.name.rsplit_once(", "));
        row.map_or(&self.name, |(list, _)| list)
    }

    /// As [`Suite::shortest`], of one trial; a phase that waits for something is taken to last until its deadline.
    fn shortest_trial(&self, phases: Phases) -> Option<Duration> {
        if let Some(packets) = self.traffic.packets.as_ref().filter(|packets| packets.is_searched()) {
            return packets.benchmark.as_ref().map(|benchmark| benchmark.shortest(phases.window));
        }
        let around = phases.warm_up + phases.cool_down;
        let limit = self.programme.needs_limit().then(|| around + phases.window.min(LIMIT_WINDOW));
        let window = self.programme.longest(phases.window);
        Some(TRIAL_OVERHEAD + limit.unwrap_or_default() + around + window)
    }

    /// The most trials of it that a run makes.
    pub fn most_trials(&self, repeat: Repeat) -> u32 {
        match repeat {
            Repeat::Times(n) => self.trials_max.map_or(n, |most| most.min(n)),
            Repeat::Until(_) | Repeat::Within(_) => repeat.most(),
        }
    }

    /// The loads of all ends.
    pub fn loads(&self) -> impl Iterator<Item = &RequestedLoad> {
        std::iter::once(&self.traffic).chain(&self.under).flat_map(|traffic| [&traffic.connect, &traffic.listen])
    }
}

/// A load between endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// The connecting and the listening endpoint of each pair: `from` and `to` of the file, local and remote to netperf.
    pub pairs: Vec<(Endpoint, Endpoint)>,
    /// The load as each end of each pair runs it.
    pub connect: RequestedLoad,
    pub listen: RequestedLoad,
    /// What loads of packets need besides.
    pub packets: Option<PacketTraffic>,
}

impl Traffic {
    /// Which way payload goes; `None` where requests are answered.
    pub fn flow(&self) -> Option<Flow> {
        load::flow(&self.connect)
    }

    /// What its ends are called: sender and receiver where payload goes one way, else local and remote.
    pub fn sides(&self) -> [Side; 2] {
        match self.flow() {
            Some(Flow::Forward | Flow::Reverse) => [Side::Sender, Side::Receiver],
            Some(Flow::Both) | None => [Side::Local, Side::Remote],
        }
    }

    /// The figures that `netperf -I` would have to be certain, of both ends where payload is sent and taken.
    fn goal(&self) -> Vec<(Side, Metric)> {
        if let Some(packets) = &self.packets {
            // Workers never rest, so that their CPU time says nothing.
            return match packets.search {
                None if packets.benchmark.is_some() => vec![(Side::Local, Metric::Limit)],
                Some(search) if search.of == SearchedRate::Held => vec![(Side::Local, Metric::LimitHeld)],
                Some(_) => vec![(Side::Local, Metric::Limit)],
                None => Kind::of(&self.connect).map_or_else(Vec::new, |kind| kind.rates()[..1].to_vec()),
            };
        }
        let result = if self.flow().is_some() { Metric::Throughput } else { Metric::Transactions };
        let [one, other] = self.sides();
        let mut goal = vec![(one, result), (other, result), (one, Metric::Cpu), (other, Metric::Cpu)];
        // A transaction is one transaction at either end.
        goal.retain(|figure| *figure != (Side::Remote, Metric::Transactions));
        goal
    }

    /// This scenario at another rate, in the unit of its own; unchanged when the load has no rate.
    #[must_use]
    pub fn at_rate(&self, rate: f64) -> Self {
        self.with_loads(|load| programme::at_rate(load, rate))
    }

    /// This scenario without rate limits on its loads.
    #[must_use]
    pub fn unpaced(&self) -> Self {
        self.with_loads(programme::unpaced)
    }

    fn with_loads(&self, change: impl Fn(&RequestedLoad) -> RequestedLoad) -> Self {
        Self { connect: change(&self.connect), listen: change(&self.listen), ..self.clone() }
    }

    /// What these workers, all of the load's, carried a second, in the unit that its rate has.
    pub fn carried(&self, workers: &[&WorkerRecord]) -> f64 {
        programme::carried(self, workers)
    }

    /// All endpoints, the connecting ones first.
    pub fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        let (connecting, listening) = (self.pairs.iter().map(|(from, _)| from), self.pairs.iter().map(|(_, to)| to));
        connecting.chain(listening).cloned()
    }
}

/// How results of several scenarios are shown together.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub title: String,
    /// Where the reference figures were published.
    pub source: Option<String>,
    /// What the reader must know of what was published, e.g. how it was configured.
    pub notes: Vec<String>,
    pub form: Form,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// Side by side, a column for each scenario, as a study printed them.
    Columns(Vec<LayoutColumn>),
    /// For each scenario what netperf would print of it, and the same figures with their intervals side by side.
    Netperf(Vec<LayoutColumn>),
    /// Each case as a ratio of one of them, over several tests.
    Overview(Overview),
    /// A row for each number of workers of a device under test, as studies of balancers print them.
    Workers(Workers),
    /// What published figures were measured on.
    Platform(Vec<Platform>),
}

/// One scenario in a table.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutColumn {
    pub head: String,
    pub scenario: String,
    pub published: Published,
}

/// Cases against tests: a row for each case, a column for each test.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    pub tests: Vec<String>,
    pub cases: Vec<OverviewCase>,
    /// Head of the case that the others are divided by.
    pub baseline: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OverviewCase {
    pub head: String,
    /// The scenario of each test.
    pub scenarios: Vec<String>,
}

impl Overview {
    /// Leaves out tests and cases of which no scenario `is_in`; a test whose baseline is not cannot be compared.
    pub fn retain(&mut self, is_in: &dyn Fn(&str) -> bool) {
        let baseline = self.cases.iter().find(|case| case.head == self.baseline);
        let kept: Vec<bool> = baseline.map_or_else(Vec::new, |b| b.scenarios.iter().map(|id| is_in(id)).collect());
        let mut keep = kept.iter();
        self.tests.retain(|_| keep.next().is_some_and(|keep| *keep));
        for case in &mut self.cases {
            let mut keep = kept.iter();
            case.scenarios.retain(|_| keep.next().is_some_and(|keep| *keep));
        }
        self.cases.retain(|case| case.scenarios.iter().any(|id| is_in(id)));
    }
}

/// Published figures of one scenario, in the units of [`Metric::unit`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Published(Vec<(Side, Metric, f64)>);

impl Published {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, side: Side, metric: Metric) -> Option<f64> {
        self.0.iter().find(|(s, m, _)| (*s, *m) == (side, metric)).map(|(.., value)| *value)
    }
}

impl FromIterator<(Side, Metric, f64)> for Published {
    fn from_iter<I: IntoIterator<Item = (Side, Metric, f64)>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Layout {
    /// The scenarios whose figures are shown as they are; an overview shows ratios only.
    pub fn columns(&self) -> &[LayoutColumn] {
        match &self.form {
            Form::Columns(columns) | Form::Netperf(columns) => columns,
            Form::Overview(_) | Form::Workers(_) | Form::Platform(_) => &[],
        }
    }

    /// Whether the scenario's figures are in it, as they are.
    pub fn shows(&self, id: &str) -> bool {
        match &self.form {
            Form::Workers(workers) => workers.cases.iter().flat_map(|case| &case.rows).any(|(_, row)| row == id),
            _ => self.columns().iter().any(|column| column.scenario == id),
        }
    }
}

impl Suite {
    pub fn is_built_in(name: &str) -> bool {
        BUILT_IN.iter().any(|(known, _)| *known == name)
    }

    /// Names and titles of the built-in suites.
    pub fn built_in() -> impl Iterator<Item = Result<Self, FileError>> {
        BUILT_IN.iter().map(|(name, text)| Self::parse(&format!("{name}.toml"), text))
    }

    /// A built-in suite by its name, or a suite file by its path.
    pub fn load(name_or_path: impl AsRef<OsStr>) -> Result<Self, FileError> {
        let name_or_path = name_or_path.as_ref();
        if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| name_or_path == *name) {
            return Self::parse(&format!("{name}.toml"), text);
        }
        let path = FilePath::new(name_or_path);
        let file = name_or_path.to_string_lossy();
        let text = mistakes::read_text_of(path, limits::SIZE_MAX).map_err(|error| {
            let hints = [
                (PAIRS, "netrig run pairs --hosts FILE: each host of the file with each other one"),
                (PODS, "netrig run pods --context C: pods of a Kubernetes cluster"),
            ];
            if let Some((name, hint)) = hints.iter().find(|(name, _)| name_or_path == *name) {
                let what = "these are tests between hosts, and no suite of testbeds".to_owned();
                return FileError { file: (*name).to_owned(), line: None, what, hint: Some((*hint).to_owned()) };
            }
            let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            FileError {
                file: file.clone().into_owned(),
                line: None,
                what: format!("cannot read this suite: {error}"),
                hint: Some(format!(
                    "{}name a built-in suite ({}) or the path of a suite file",
                    mistakes::closest(&file, names.iter().copied())
                        .map_or_else(String::new, |meant| format!("did you mean {meant}? ")),
                    names.join(", ")
                )),
            }
        })?;
        Self::parse(&file, &cni::with_files(&file, text)?)
    }

    /// Reads and validates the text of a suite file; `file` is its name for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        resolve::resolve(file, text, resolve::Purpose::Run)
    }

    /// Reads the text of a suite that was run: windows that [`Self::parse`] refuses, because nothing of a load may fall into them,
    /// are in runs of older versions, and in a suite's `[quick]` that the run did not use.
    pub fn parse_stored(file: &str, text: &str) -> Result<Self, FileError> {
        resolve::resolve(file, text, resolve::Purpose::Report)
    }

    /// How sure its figures and claims have to be.
    pub fn level(&self) -> Level {
        match self.timing.repeat {
            Repeat::Until(goal) => goal.level,
            Repeat::Times(_) | Repeat::Within(_) => Level::default(),
        }
    }

    pub fn scenario(&self, id: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|scenario| scenario.id == id)
    }

    /// What is said of a scenario that the suite has not, under the name that the user knows the suite by.
    pub fn no_scenario(&self, unknown: &str) -> FileError {
        let known: Vec<&str> = self.scenarios.iter().map(|s| s.id.as_str()).collect();
        let is_it = |name: &str, text: &str| text == self.text && self.file == format!("{name}.toml");
        let built_in = BUILT_IN.iter().find(|(name, text)| is_it(name, text));
        let hint = match mistakes::closest(unknown, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}? "),
            None => String::new(),
        };
        FileError {
            file: built_in.map_or(&*self.file, |(name, _)| name).to_owned(),
            line: None,
            what: format!("no scenario '{unknown}'"),
            hint: Some(format!("{hint}the suite's scenarios are {}", mistakes::some(&known))),
        }
    }

    /// How long all trials together take with the fewest repetitions that `timing` allows, including the building of testbeds, the
    /// start of workers and the reading of counters; `None` where a search decides, whose steps are not known before; a benchmark's
    /// is taken for as short as one can be.
    pub fn shortest(&self, timing: &Timing) -> Option<Duration> {
        let of_all = |scenario: &Scenario| {
            let trials = timing.repeat.least().min(scenario.most_trials(timing.repeat));
            Some(scenario.shortest_trial(timing.phases)? * trials)
        };
        self.scenarios.iter().map(of_all).sum()
    }

    /// [`Self::shortest`] of a quick run; `None` also where the suite has none.
    pub fn shortest_look(&self) -> Option<Duration> {
        let mut suite = self.clone();
        suite.hasten();
        suite.shortest(&self.quick?)
    }

    /// The most trials that a run makes.
    pub fn most_trials(&self, repeat: Repeat) -> u32 {
        self.scenarios.iter().map(|scenario| scenario.most_trials(repeat)).sum()
    }

    /// Has searches and numbers of trials be those of a first look.
    pub fn hasten(&mut self) {
        let answers = self.answers.iter().flat_map(|answer| &answer.parts).map(|part| &part.value);
        let figures = self.claims.iter().chain(answers).flat_map(Claim::figures);
        let asked_about: BTreeSet<&String> =
            figures.map(|figure| &figure.scenario).chain(self.baseline.as_ref()).collect();
        for scenario in self.scenarios.iter_mut().filter(|scenario| !asked_about.contains(&scenario.id)) {
            scenario.trials_max = self.quick_trials;
        }
        let packets = self.scenarios.iter_mut().filter_map(|scenario| scenario.traffic.packets.as_mut());
        for packets in packets {
            packets.search = packets.search.map(|search| search.hastened(self.quick_search));
            let benchmark = packets.benchmark.take();
            packets.benchmark = benchmark.map(|benchmark| benchmark.hastened(self.quick_search.step));
        }
    }

    /// This suite with these scenarios a second time under another name, and the claims that both are the same: what has been
    /// measured twice without any change shows how often that is found.
    pub fn again(mut self, ids: &[String]) -> Result<Self, FileError> {
        for id in ids {
            let Some(index) = self.scenarios.iter().position(|scenario| scenario.id == *id) else {
                return Err(self.no_scenario(id));
            };
            let name = Self::name_of_again(id);
            if self.scenario(&name).is_some() {
                let what = format!("scenario '{id}' cannot be run again as '{name}': there is one of that name");
                return Err(FileError {
                    file: self.file,
                    line: None,
                    what,
                    hint: Some("name each scenario once".into()),
                });
            }
            let own = &self.scenarios[index];
            let [one, _] = own.traffic.sides();
            let cost = match own.traffic.flow() {
                _ if own.traffic.packets.is_some() => None,
                Some(_) => Some((one, Metric::ServiceDemand)),
                None => Some((one, Metric::TransactionDemand)),
            };
            let mut figures: Vec<(Side, Metric)> = own.watched.iter().take(1).copied().chain(cost).collect();
            figures.dedup();
            for (side, metric) in figures {
                let holds = format!("{name}.{side}.{metric} / {id}.{side}.{metric} within 0.95 .. 1.05");
                let text = format!("A/A check: {id} measured twice has the same {side} {metric}");
                let claim = Claim::parse(&text, &holds).map_err(|error| {
                    let what = format!("scenario '{id}' has no figure to check: {error}");
                    FileError { file: self.file.clone(), line: None, what, hint: None }
                })?;
                self.claims.push(claim);
            }
            let again = Scenario { id: name, name: format!("{} (again)", own.name), row_of: None, ..own.clone() };
            self.scenarios.insert(index + 1, again);
        }
        Ok(self)
    }

    /// This suite with only the scenarios named, in the suite's order.
    pub fn only(mut self, ids: &[String]) -> Result<Self, FileError> {
        if let Some(unknown) = ids.iter().find(|id| self.scenario(id).is_none()) {
            return Err(self.no_scenario(unknown));
        }
        self.scenarios.retain(|scenario| ids.contains(&scenario.id));
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
