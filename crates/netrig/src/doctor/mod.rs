//! What this machine can do, what is missing and how to get it.
//!
//! [`Facts`] come from rig-sys; what they mean to a user of netrig is decided here, by pure functions of the facts.

mod cpu_time;
mod datapaths;
mod findings;
mod packets;
mod print;
mod profile;
mod queues;
mod tools;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rig_cli::schema::{Schema, described};
use rig_facts::record::SkippedScenarios;
use rig_facts::store::{Store, StoreError};
use rig_load::plan::{Load, TcpStream, Transactions};
use rig_run::run::MissingResource;
use rig_suite::suite::Scenario;
use rig_sys::probe::{Access, Facts, Packets};
use rig_testbed::datapath::{Machine, Settings};
use rig_testbed::host::Host;
use schemars::JsonSchema;
use serde::Serialize;

pub use findings::findings;
pub use queues::{ArrivingFlows, CardQueues};

/// What is told of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MachineReport {
    pub netrig_version: &'static str,
    /// Whether `netrig run layers` can be made: nothing is missing.
    pub ready: bool,
    pub findings: Vec<Finding>,
    /// What of each built-in suite a run would make now.
    pub suites: Vec<SuiteSupport>,
}

impl MachineReport {
    pub fn new(findings: Vec<Finding>, suites: Vec<SuiteSupport>) -> Self {
        let ready = Readiness::of(&findings) == Readiness::Ready;
        Self { netrig_version: env!("CARGO_PKG_VERSION"), ready, findings, suites }
    }
}

/// What a run of a suite would make of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SuiteSupport {
    pub suite: String,
    /// The scenarios that would be run.
    pub scenarios: Vec<String>,
    /// Those that a run would go without.
    pub left_out: Vec<SkippedScenarios>,
}

/// The JSON Schema of `netrig doctor --json`, by its file name in docs/schema.
pub fn schemas() -> [(&'static str, Schema); 1] {
    let report = described::<MachineReport>(
        "netrig doctor",
        "What `netrig doctor --json` prints: findings about the machine, and what of each built-in suite can be run on it",
    );
    [("doctor.json", report)]
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    pub area: FindingArea,
    pub name: &'static str,
    #[serde(flatten)]
    pub state: State,
}

/// The parts of netrig that a finding matters to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingArea {
    Privileges,
    Testbed,
    Cpus,
    Clock,
    LoadGenerator,
    PacketLoad,
    Balancer,
    Vrouter,
    Store,
    OtherLoad,
    Tools,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    Ok {
        found: String,
    },
    /// Everything works, but figures are less certain or less comparable.
    Doubtful(MissingResource),
    /// A part of netrig does not work; `netrig run layers` does.
    Lacking(MissingResource),
    /// `netrig run layers` does not work.
    Missing(MissingResource),
    Unknown {
        why: String,
    },
}

/// Whether this machine can run `netrig run layers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
}

impl Readiness {
    pub fn of(findings: &[Finding]) -> Self {
        match findings.iter().any(|finding| matches!(finding.state, State::Missing(_))) {
            true => Self::NotReady,
            false => Self::Ready,
        }
    }
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Coloured,
    Json,
}

impl Format {
    /// For people on a terminal in colour, unless NO_COLOR (<https://no-color.org>) asks for none.
    pub fn for_stdout() -> Self {
        if rig_cli::look::colour() { Self::Coloured } else { Self::Plain }
    }

    fn palette(self) -> print::Palette {
        if self == Self::Coloured { print::Palette::ANSI } else { print::Palette::NONE }
    }
}

/// Long enough for a twentieth of a CPU to show in clock ticks of 10 ms.
const WATCH: Duration = Duration::from_millis(200);

/// Looks at the machine. `store` is where runs would be kept.
///
/// Without root the process ends up in a user namespace (see [`Facts::gather`]): call it from a process that has one
/// thread. Tells by which privileges network namespaces are made then, too.
pub fn examine(store: Result<PathBuf, StoreError>) -> (Vec<Finding>, Access) {
    // Before the user namespace, in which other users' files seem to belong to the user `nobody`.
    let store = store.and_then(|path| look_at_store(&path).map(|()| path)).map_err(|error| error.to_string());
    rig_sys::advice::remember();
    let facts = Facts::gather(WATCH);
    let mut all = findings(&facts, &store);
    // After the facts: now the process is what a run would be.
    all.extend(packets::findings(&facts.machine.kernel, &Packets::try_out()));
    all.extend(datapaths::findings());
    all.push(cpu_time::finding(&rig_datapath::cputime::CpuTime::attach().map_err(Into::into)));
    let cycles = rig_sys::cpu::CpuSet::allowed().and_then(|cpus| rig_sys::perf::cycles(&cpus));
    all.push(profile::finding(&rig_sys::perf::probe(), &cycles));
    all.extend(rig_testbed::host::cards().ok().and_then(|cards| queues::finding(&cards)));
    all.extend(tools::tools(std::env::var_os("PATH").as_deref()));
    let ipvs = rig_datapaths::ALL.find("ipvs");
    all.push(tools::ipvs(ipvs.and_then(|ipvs| ipvs.missing(&Machine { rootless: false }, &Settings::new()))));
    // What belongs together stands together, in the order in which it was first spoken of.
    let order: Vec<FindingArea> = all.iter().map(|finding| finding.area).collect();
    all.sort_by_key(|finding| order.iter().position(|area| *area == finding.area));
    (all, facts.namespaces.access)
}

/// What a suite is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuitePurpose {
    /// To build its testbeds and run its loads in them.
    Run,
    /// To build its testbeds.
    Build,
}

/// What there is of that which scenarios are made of.
#[derive(Debug)]
pub struct MachineSupport {
    purpose: SuitePurpose,
    facts: Facts,
}

impl MachineSupport {
    /// Of a host's machine. One of this process is asked while that has one thread; a process that may create network namespaces does not enter
    /// a user namespace.
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub fn of_host(host: &dyn Host, scenarios: &[Scenario], purpose: SuitePurpose) -> anyhow::Result<Self> {
        let named = if purpose == SuitePurpose::Run { congestion_controls_of(scenarios) } else { BTreeSet::new() };
        let named: Vec<String> = named.into_iter().map(str::to_owned).collect();
        Ok(Self { purpose, facts: host.probe(&named)? })
    }

    /// What the machine lacks of that which these are made of.
    pub fn of(&self, scenarios: &[Scenario]) -> Vec<MissingResource> {
        findings::in_the_way_of(scenarios, self.purpose, &self.facts)
    }

    /// Why a scenario cannot be made on this machine, and what to do about it; `None` when nothing speaks against it.
    pub fn why_not(&self, scenario: &Scenario) -> Option<String> {
        let lacks = self.of(std::slice::from_ref(scenario));
        let words: Vec<String> = lacks.iter().map(|lack| format!("{}: {}", lack.found, lack.remedy)).collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

/// The congestion controls that the loads of scenarios name.
fn congestion_controls_of(scenarios: &[Scenario]) -> BTreeSet<&str> {
    let named = |load| match load {
        &Load::TcpStream(TcpStream { ref congestion_control, .. })
        | &Load::TcpRr(Transactions { ref congestion_control, .. })
        | &Load::TcpCrr(Transactions { ref congestion_control, .. }) => congestion_control.as_deref(),
        Load::UdpStream(_) | Load::UdpRr(_) | Load::Packets(_) | Load::Idle => None,
    };
    scenarios.iter().flat_map(Scenario::loads).filter_map(named).collect()
}

/// `report` for a reader.
pub fn write(report: &MachineReport, format: Format, width: usize) -> String {
    match format {
        Format::Json => print::json(report),
        format => print::text(report, format.palette(), width),
    }
}

/// What a run would make of suites, for a reader.
pub fn write_suites(suites: &[SuiteSupport], format: Format, width: usize) -> String {
    print::suites(suites, format.palette(), width)
}

/// What speaks against a machine that was probed, elsewhere or here.
pub fn doubts(facts: &Facts) -> Vec<Finding> {
    let all = findings(facts, &Err(String::new())).into_iter();
    all.filter(|one| one.area != FindingArea::Store && !matches!(one.state, State::Ok { .. })).collect()
}

/// Whether a run could be stored at `path`. Changes nothing there.
fn look_at_store(path: &Path) -> Result<(), StoreError> {
    let denied = |error: io::Error| StoreError::NoPermission { path: path.to_owned(), detail: error.to_string() };
    if path.exists() {
        Store::open_to_read(path)?;
        std::fs::OpenOptions::new().write(true).open(path).map_err(denied)?;
    }
    let absolute = std::path::absolute(path).map_err(denied)?;
    let directory = absolute.ancestors().skip(1).find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    // A file without a name: it is gone when it is closed.
    tempfile::tempfile_in(directory).map(drop).map_err(denied)
}

#[cfg(test)]
mod tests;
