//! What is run in each guest.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{pair, three};
use crate::command::{LACKING, cargo, run, target};
use crate::test::executables::{Executable, build, command};

/// The exit status of timeout(1) for what took too long; with a signal that cannot be ignored the shell says 137.
const TIMED_OUT: [i32; 2] = [124, 137];
/// What `netrig doctor` printed, in the directory that host and guest share.
const DOCTOR: &str = "doctor.json";
/// What tests know a card and the other end of its cable by.
const CARDS: &str = "NETRIG_TEST_CARD=eth0 NETRIG_TEST_FAR_CARD=eth1";
/// What the check of all programs left, in the directory that host and guest share.
pub const OBJECTS_LOG: &str = "objects.log";
/// What rig-skip begins a line with that tells of a test, or of a feature's programs, that the machine does not take.
const MARK: &str = "SKIPPED ";
/// The exit status of a check that stands on programs which the kernel refuses: EX_UNAVAILABLE of sysexits.h.
const REFUSED: i32 = 69;
/// Checks that stand on programs, by the features under which the check of all programs loads them.
const STANDS_ON: [(&str, &str); 10] = [
    ("balancer cases", "balancer"),
    ("vrouter cases", "vrouter"),
    ("steer cases", "spreader"),
    ("vrouter service", "vrouter"),
    ("balancer traffic", "balancer"),
    ("balancer service", "balancer"),
    ("spreader service", "spreader"),
    ("card spreader", "spreader"),
    ("card datapaths", "balancer"),
    (three::NAME, "balancer"),
];
/// Whose programs take an emulated CPU seconds to verify in each scenario, or test.
const LONG: [&str; 6] =
    ["balancer cases", "vrouter cases", "suite balancer", "suite protection", "suite floods", "suite overlay"];
/// Cases that hold what is done in a second against a limit, or against other CPUs at the same moment: emulation is too slow for the one and
/// has one CPU after the other.
const BY_SPEED: [&str; 6] = [
    "balancer::changes::cpus_do_not_make_the_same_connection_twice",
    "vrouter::copies::all_of_a_stream_is_copied_while_it_goes_on_as_ever",
    "vrouter::copies::copies_are_read_by_tshark",
    "vrouter::flood::nobody_has_frames_copied_without_end",
    "vrouter::pieces::nobody_has_packets_cut_without_end",
    "vrouter::watched::refusals_are_told_as_many_as_an_interface_may",
];
/// Of the tests of the vRouter's service those that do with what a busy machine's emulation has of time.
const VROUTER: [&str; 2] = ["vrouter::containers_of_two_nodes", "vrouter::flows_go_on"];
/// Of the tests of traffic those that do with what emulation has of time: not `steady`, whose hundreds of conversations stop there.
const TRAFFIC: [&str; 10] = [
    "endtoend::bond",
    "endtoend::expire",
    "endtoend::fragments",
    "endtoend::hostile",
    "endtoend::mtu",
    "endtoend::next_hops",
    "endtoend::restart",
    "endtoend::unsent",
    "endtoend::vlan",
    "endtoend::web",
];
/// What the shortest useful run has: what most often breaks, and needs no other executable.
const QUICK: [&str; 1] = ["objects"];
/// What takes longer hangs: emulation beside a build is slow.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const EVERY: &str = "one short trial of every scenario";
/// Each built-in suite, what the check shows, and the scenarios that it makes where all of them would take an hour or more.
const SUITES: [(&str, &str, &[&str]); 14] = [
    ("layers", EVERY, &[]),
    ("latency", EVERY, &[]),
    ("namespaces", EVERY, &[]),
    ("packets", EVERY, &[]),
    ("balancer", EVERY, &[]),
    ("protection", EVERY, &[]),
    ("floods", EVERY, &[]),
    ("outage", EVERY, &[]),
    ("overlay", EVERY, &[]),
    ("spreading", EVERY, &[]),
    ("rfc2544", "all benchmarks at one frame size, with short trials", &["f64"]),
    ("mlrsearch", "the search at one frame size, with short trials", &["f64"]),
    // Containers that come and go a hundred at a time start thousands of programs.
    (
        "cni",
        "one short trial of transactions over each part of the chain, without `operations`",
        &["bare-rr", "first1-rr", "chain-rr"],
    ),
    // Each network takes two emulated engines minutes to begin.
    (
        "docker",
        "one short trial of transactions over a bridge, macvlan and netrig's own network driver",
        &["bare-rr", "bridge-rr", "macvlan-rr", "driver-rr"],
    ),
];

/// Something that is run in a guest.
#[derive(Debug, Clone)]
pub struct Check {
    /// As users choose it, and the table's row.
    pub name: String,
    /// What it shows, for the table.
    pub about: &'static str,
    /// What machines it needs.
    pub setup: Setup,
    /// For a shell, with its limit; nothing where more than one machine takes part.
    pub command: String,
    pub limit: Duration,
    /// It is part of the shortest useful run.
    pub quick: bool,
    kind: Kind,
}

/// Machines for checks, made once for all that need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setup {
    /// A guest without a network.
    Guest,
    /// A guest with a card of several queues, and another one on the same segment.
    Card,
    /// Two guests with a card each, joined.
    Pair,
    /// Three guests with a card each, on one segment.
    Three,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A test executable.
    Tests,
    /// All programs are loaded; its output has the verified instructions of each.
    Objects,
    /// A run of a suite, whose JSON is beside the log.
    Suite,
    /// What netrig says of the machine; a suite's run has to leave out the same.
    Doctor,
    /// Its exit status says all.
    Command,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// What passed, in words; why parts were not made.
    Passed {
        what: String,
        left_out: Vec<String>,
    },
    Failed {
        what: String,
        why: Vec<String>,
    },
    TimedOut,
    /// The guest ended before it began.
    NotReached,
    /// The kernel refuses what it stands on.
    Impossible {
        why: Vec<String>,
    },
}

/// The executables that checks run.
#[derive(Debug)]
pub struct Programs {
    pub netrig: PathBuf,
    tests: Vec<Executable>,
}

impl Programs {
    /// Builds them: the two packages that the checks are of, or, with the workspace's features, what the daily tests have built.
    pub fn build(of_workspace: bool) -> Result<Self> {
        if of_workspace {
            return Ok(Self { netrig: target().join("debug/netrig"), tests: build(&["--workspace"])? });
        }
        // Suites have loads, which an emulated CPU carries only if they are optimised; the tests have the other one.
        for profile in ["dev", "release"] {
            if !run(&mut cargo(["build", "--package", "netrig", "--profile", profile]))?.success() {
                bail!("netrig does not build");
            }
        }
        let netrig = target().join("release/netrig");
        let tests =
            build(&["--package", "netrig", "--package", "rig-datapath", "--lib", "--bins", "--test", "integration"])?;
        Ok(Self { netrig, tests })
    }

    /// A shell's command for tests of the executable `name`.
    fn tests(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let executable = self.tests.iter().find(|one| one.name == name);
        let mut command = command(executable.with_context(|| format!("no test executable `{name}` was built"))?)?;
        command.args(arguments);
        Ok(in_shell(&command))
    }
}

/// All checks, in the order in which they are run: what others stand on first.
pub fn all(programs: &Programs) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let mut add = |name: &str, about, setup, command: &str, kind| {
        let limit = if LONG.contains(&name) { 2 * LIMIT } else { LIMIT };
        let command = where_it_stands(name, &format!("timeout -k 10 {} {command}", limit.as_secs()));
        let quick = QUICK.contains(&name);
        checks.push(Check { name: name.to_owned(), about, setup, command, limit, quick, kind });
    };
    let datapath = |arguments: &[&str]| programs.tests("rig-datapath::integration", arguments);
    let skipped: Vec<&str> = BY_SPEED.iter().flat_map(|test| ["--skip", test]).collect();
    let cases = |module: &str| datapath(&[&[module][..], &skipped].concat());
    let netrig = |modules: &[&str]| programs.tests("netrig::integration", modules);
    let objects = ["verified::the_verifier_has_no_more_to_do_than_it_had", "--exact", "--nocapture"];
    let objects = programs.tests("rig-datapath", &objects)?;
    add("objects", "every eBPF program is loaded", Setup::Guest, &objects, Kind::Objects);
    let doctor = format!("{} doctor --json > {DOCTOR}", programs.netrig.display());
    add("doctor", "`netrig doctor`: what of each suite can be made", Setup::Guest, &doctor, Kind::Doctor);
    for (name, about, tests) in [
        (
            "balancer cases",
            "packets through the balancer's program, byte by byte, but for what hangs on speed",
            cases("balancer::")?,
        ),
        (
            "vrouter cases",
            "packets through the vRouter's programs, byte by byte, but for what hangs on speed",
            cases("vrouter::")?,
        ),
        ("steer cases", "packets through the spreader's program", cases("steer::")?),
        ("cpu time", "exact CPU time of softirqs, interrupts and tasks", datapath(&["cputime::"])?),
        (
            "vrouter service",
            "the vRouter as a service: containers of two nodes under a policy that changes, flows without the process",
            netrig(&VROUTER)?,
        ),
        (
            "balancer traffic",
            "connections and datagrams of sockets through the balancer, over veths",
            datapath(&TRAFFIC)?,
        ),
        ("balancer service", "nginx behind the balancer as a service", netrig(&["lb_e2e::"])?),
        (
            "three nodes",
            "datagrams of both families by each path over a node between client and server, IPVS among them",
            netrig(&["machine::dut::every_path_but_proxies"])?,
        ),
        ("dperf", "dperf's configuration files, layout and exact counts", netrig(&["dperf::"])?),
        ("sctp", "netperf's and iperf3's tests over SCTP, with the original of iperf3 too", netrig(&["sctp::"])?),
        ("spreader service", "the receive spreader as a service", netrig(&["spread::"])?),
    ] {
        add(name, about, Setup::Guest, &tests, Kind::Tests);
    }
    for (suite, about, only) in SUITES {
        let only = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
        let run = format!(
            "{} run {suite} --quick --trials 1{only} --format json --output {suite}.json --store /tmp/{suite}.sqlite",
            programs.netrig.display()
        );
        add(&format!("suite {suite}"), about, Setup::Guest, &run, Kind::Suite);
    }
    for (name, about, module) in [
        ("card queues", "queues, interrupts, rings and offloads of a multi-queue card, and `netrig top`", "queues"),
        ("card spreader", "the spreader moves entries of the card's table under traffic from outside", "spreader"),
        ("card datapaths", "the balancer and dperf on the card's driver (native XDP)", "datapaths"),
    ] {
        let tests = format!("env {CARDS} {}", netrig(&[&format!("card::{module}::")])?);
        add(name, about, Setup::Card, &tests, Kind::Tests);
    }
    for check in &pair::CHECKS {
        // Each of its steps has a limit.
        checks.push(Check::of_tests(check.name, check.about, Setup::Pair));
    }
    checks.push(Check::of_tests(three::NAME, three::ABOUT, Setup::Three));
    Ok(checks)
}

impl Check {
    /// One that is no command.
    pub fn of_tests(name: &str, about: &'static str, setup: Setup) -> Self {
        Self {
            name: name.to_owned(),
            about,
            setup,
            command: String::new(),
            limit: Duration::ZERO,
            quick: false,
            kind: Kind::Tests,
        }
    }

    /// A shell command of the user's, which runs in the checkout with what was just built on PATH.
    pub fn of_command(command: &str) -> Result<Self> {
        let checkout = target();
        let checkout = checkout.parent().context("where is the checkout?")?;
        let programs = target().join("debug");
        let [checkout, programs] = [checkout, &programs].map(|path| quoted(path.as_os_str()));
        let command = format!("cd {checkout} && PATH={programs}:$PATH && {command}");
        let about = "a command of the user's";
        Ok(Self { command, limit: LIMIT, kind: Kind::Command, ..Self::of_tests("command", about, Setup::Guest) })
    }

    /// The check whose findings its own are judged by.
    pub fn stands_on(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Suite => Some("doctor"),
            _ if STANDS_ON.iter().any(|(check, _)| *check == self.name) => Some("objects"),
            _ => None,
        }
    }

    /// That it cannot be, by what the check of all programs has left in `objects`.
    pub fn refusal(&self, objects: &Path) -> Option<Outcome> {
        let (_, feature) = STANDS_ON.iter().find(|(check, _)| *check == self.name)?;
        let log = fs::read_to_string(objects).ok()?;
        let why: Vec<String> =
            lacking(&log).into_iter().filter(|line| line.starts_with(&format!("{feature}: "))).collect();
        (!why.is_empty()).then_some(Outcome::Impossible { why })
    }

    /// The name of one of its files in the directory that host and guest share.
    pub fn file(&self, extension: &str) -> String {
        format!("{}.{extension}", self.name.replace(' ', "-"))
    }

    /// What its exit status and its output say.
    pub fn judge(&self, status: i32, shared: &Path) -> Outcome {
        if TIMED_OUT.contains(&status) {
            return Outcome::TimedOut;
        }
        let log = fs::read(shared.join(self.file("log"))).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        if status == REFUSED && self.kind == Kind::Tests {
            return Outcome::Impossible { why: lacking(&log) };
        }
        let read =
            |name: &str| fs::read(shared.join(name)).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        match self.kind {
            Kind::Tests => judge_tests(status, &log),
            Kind::Objects if status == 0 => {
                let what = format!("{} programs", verified(&log).len());
                Outcome::Passed { what, left_out: lacking(&log) }
            }
            Kind::Suite if status == 0 => {
                let json = self.name.strip_prefix("suite ").map(|suite| shared.join(format!("{suite}.json")));
                let text = json.and_then(|json| fs::read(json).ok()).unwrap_or_default();
                let foretold = read(DOCTOR);
                match serde_json::from_slice(&text) {
                    Ok(report) => judge_suite(&report, foretold.as_ref()),
                    Err(error) => Outcome::Failed { what: "no report".to_owned(), why: vec![error.to_string()] },
                }
            }
            Kind::Suite if status == i32::from(LACKING) => {
                judge_impossible(self.name.trim_start_matches("suite "), &read(DOCTOR).unwrap_or_default(), &log)
            }
            Kind::Command if status == 0 => Outcome::Passed { what: "status 0".to_owned(), left_out: Vec::new() },
            Kind::Doctor if status == 0 => judge_doctor(&read(DOCTOR).unwrap_or_default()),
            _ => Outcome::Failed { what: format!("status {status}"), why: last_line(&log).into_iter().collect() },
        }
    }
}

/// Of a check that says in words what it has found.
impl From<Result<String>> for Outcome {
    fn from(found: Result<String>) -> Self {
        match found {
            Ok(what) => Self::Passed { what, left_out: Vec::new() },
            Err(error) => Self::Failed { what: "not as it should be".to_owned(), why: vec![format!("{error:#}")] },
        }
    }
}

impl Outcome {
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Passed { .. } | Self::Impossible { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |reasons: &[String]| reasons.join("; ");
        match self {
            Self::Passed { what, left_out } if left_out.is_empty() => f.write_str(what),
            Self::Passed { what, left_out } => write!(f, "{what}; left out: {}", list(left_out)),
            Self::Failed { what, why } if why.is_empty() => write!(f, "FAILED: {what}"),
            Self::Failed { what, why } => write!(f, "FAILED: {what}: {}", list(why)),
            Self::TimedOut => f.write_str("FAILED: took too long"),
            Self::NotReached => f.write_str("not reached"),
            Self::Impossible { why } => write!(f, "cannot be: {}", list(why)),
        }
    }
}

/// The verified instructions of each program, by the lines that the test of all objects prints.
pub fn verified(log: &str) -> Vec<(&str, u64)> {
    let lines = log.lines().skip_while(|line| !line.starts_with("Linux "));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, count)| Some((name, count.parse().ok()?)))
        .collect()
}

/// What libtest's lines say: `test NAME ... FAILED`, `test result: ok. 3 passed; 0 failed; ...`.
fn judge_tests(status: i32, log: &str) -> Outcome {
    // The last: a test that runs itself again, in namespaces of its own, has one, too, which is printed where it fails.
    let result = log.lines().rev().find_map(|line| line.strip_prefix("test result: ")).unwrap_or_default();
    let count = |word: &str| {
        let mut counts = result.split(['.', ';']);
        counts.find_map(|part| part.trim().strip_suffix(word)?.trim().parse::<u64>().ok()).unwrap_or_default()
    };
    let (passed, failed) = (count(" passed"), count(" failed"));
    let told = log.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    // Programs that a test starts write into the lines of the runner; its list comes when they have ended.
    let list = log.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let listed = list.lines().map_while(|line| line.strip_prefix("    "));
    let names = if list.is_empty() { told.collect::<Vec<_>>() } else { listed.collect() };
    let skipped = skipped(log);
    // To the runner they have passed.
    let made = passed.saturating_sub(
        skipped.iter().filter_map(|line| named(line)).map(|(name, _)| name).collect::<BTreeSet<_>>().len() as u64,
    );
    match status {
        0 if made > 0 => Outcome::Passed { what: counted(made, "test"), left_out: by_reason(&skipped) },
        0 if passed > 0 => Outcome::Impossible { why: by_reason(&skipped) },
        0 => Outcome::Failed { what: "no test was run".to_owned(), why: Vec::new() },
        _ => Outcome::Failed {
            what: format!("{failed} of {} tests", passed + failed),
            why: names.into_iter().map(str::to_owned).collect(),
        },
    }
}

/// Each test that was not made and why, as rig-skip says it.
fn skipped(log: &str) -> Vec<String> {
    log.lines().filter_map(|line| line.split_once(MARK).map(|(_, rest)| rest.to_owned())).collect()
}

/// Such a line, parted.
fn named(line: &str) -> Option<(&str, &str)> {
    line.split_once(": ")
}

/// Each reason once, with the tests that it is of.
fn by_reason(skipped: &[String]) -> Vec<String> {
    let mut tests = BTreeMap::<&str, BTreeSet<&str>>::new();
    for line in skipped {
        let (name, reason) = named(line).unwrap_or_default();
        tests.entry(reason).or_default().insert(name);
    }
    let say = |(reason, names): (&str, BTreeSet<&str>)| match names.len() {
        1..=3 => format!("{}: {reason}", names.into_iter().collect::<Vec<_>>().join(", ")),
        many => format!("{many} tests: {reason}"),
    };
    tests.into_iter().map(say).collect()
}

/// Each feature whose programs the kernel refuses, and why, by the check of all programs.
fn lacking(log: &str) -> Vec<String> {
    skipped(log)
        .into_iter()
        .map(|line| line.split_once(": ").map_or(line.clone(), |(_, rest)| rest.to_owned()))
        .collect()
}

/// Each suite of which something would be left out, as a reason.
fn judge_doctor(report: &Value) -> Outcome {
    let suites = report["suites"].as_array().map_or(&[][..], Vec::as_slice);
    let names = suites.iter().map(|suite| suite["suite"].as_str().unwrap_or_default());
    let unknown: Vec<String> =
        names.filter(|name| SUITES.iter().all(|(known, ..)| known != name)).map(str::to_owned).collect();
    if !unknown.is_empty() {
        return Outcome::Failed { what: "suites that no check runs".to_owned(), why: unknown };
    }
    let whole = suites.iter().filter(|suite| ids_left_out(suite).is_empty()).count();
    let left_out = suites.iter().flat_map(|suite| {
        let name = suite["suite"].as_str().unwrap_or_default();
        reasons(suite).into_iter().map(move |reason| format!("{name}: {reason}"))
    });
    match suites.len() {
        0 => Outcome::Failed { what: "it tells of no suite".to_owned(), why: Vec::new() },
        all => Outcome::Passed { what: format!("{whole} of {all} suites whole"), left_out: left_out.collect() },
    }
}

fn judge_suite(report: &Value, doctor: Option<&Value>) -> Outcome {
    let data = &report["data"];
    let scenarios = data["scenarios"].as_array().map_or(0, Vec::len);
    let left_out = reasons(data);
    if scenarios == 0 {
        return Outcome::Failed { what: "no scenario was measured".to_owned(), why: left_out };
    }
    let idle: Vec<&str> = data["scenarios"].as_array().into_iter().flatten().filter_map(carried_nothing).collect();
    if !idle.is_empty() {
        return Outcome::Failed { what: format!("nothing was carried by {}", idle.join(", ")), why: left_out };
    }
    let suites = doctor.and_then(|doctor| doctor["suites"].as_array());
    let own = suites.and_then(|suites| suites.iter().find(|suite| suite["suite"] == data["run"]["suite"]));
    if let Some(own) = own {
        let is_made = made_of(own["suite"].as_str().unwrap_or_default());
        let foretold: BTreeSet<&str> = ids_left_out(own).into_iter().filter(|id| is_made(id)).collect();
        let made = ids_left_out(data);
        if foretold != made {
            let list = |ids: BTreeSet<&str>| ids.into_iter().collect::<Vec<_>>().join(", ");
            let what = format!("doctor foretold that `{}` is left out, and it was `{}`", list(foretold), list(made));
            return Outcome::Failed { what, why: left_out };
        }
    }
    Outcome::Passed { what: counted(scenarios as u64, "scenario"), left_out }
}

/// The name of a scenario in which nothing arrived, at either end, by any figure that says so.
fn carried_nothing(scenario: &Value) -> Option<&str> {
    const ARRIVED: [&str; 3] = ["packets_in", "throughput", "transactions"];
    let figures = scenario["figures"].as_array().map_or(&[][..], Vec::as_slice);
    let says = |figure: &&Value| figure["metric"].as_str().is_some_and(|metric| ARRIVED.contains(&metric));
    let mut arrived = figures.iter().filter(says).filter_map(|figure| figure["mean"].as_f64()).peekable();
    (arrived.peek().is_some() && arrived.all(|mean| mean == 0.0)).then(|| scenario["id"].as_str()).flatten()
}

/// Whether the check of a suite makes a scenario.
fn made_of(suite: &str) -> impl Fn(&str) -> bool {
    let only = SUITES.iter().find(|(name, ..)| *name == suite).map_or(&[][..], |(.., only)| only);
    move |id| only.is_empty() || only.contains(&id)
}

/// A suite of which the run could make nothing: that is so where doctor foretold it.
fn judge_impossible(suite: &str, doctor: &Value, log: &str) -> Outcome {
    let suites = doctor["suites"].as_array().map_or(&[][..], Vec::as_slice);
    match suites.iter().find(|one| one["suite"] == suite) {
        Some(own)
            if own["scenarios"]
                .as_array()
                .is_some_and(|all| !all.iter().filter_map(Value::as_str).any(made_of(suite))) =>
        {
            Outcome::Impossible { why: reasons(own) }
        }
        _ => Outcome::Failed { what: "no scenario was measured".to_owned(), why: last_line(log).into_iter().collect() },
    }
}

/// The lists `left_out` of netrig's JSON: scenarios and why.
fn reasons(of: &Value) -> Vec<String> {
    let left_out = of["left_out"].as_array().map_or(&[][..], Vec::as_slice);
    let reason = |one: &Value| {
        let ids: Vec<&str> = one["scenarios"].as_array()?.iter().filter_map(Value::as_str).collect();
        Some(format!("{}: {}", ids.join(", "), one["reason"].as_str()?))
    };
    left_out.iter().filter_map(reason).collect()
}

fn ids_left_out(of: &Value) -> BTreeSet<&str> {
    let left_out = of["left_out"].as_array().map_or(&[][..], Vec::as_slice);
    left_out.iter().filter_map(|one| one["scenarios"].as_array()).flatten().filter_map(Value::as_str).collect()
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn last_line(log: &str) -> Option<String> {
    log.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// A check's command for a shell, which ends at once where the kernel refuses the programs that it stands on.
fn where_it_stands(name: &str, command: &str) -> String {
    match STANDS_ON.iter().find(|(check, _)| *check == name) {
        Some((_, feature)) => {
            format!("grep -s '^{MARK}.*: {feature}: ' {OBJECTS_LOG} && exit {REFUSED}; {command}")
        }
        None => command.to_owned(),
    }
}

/// The command with its directory and environment, for a shell.
fn in_shell(command: &Command) -> String {
    let mut text = String::from("env");
    if let Some(directory) = command.get_current_dir() {
        let _ = write!(text, " -C {}", quoted(directory.as_os_str()));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, " {}={}", name.display(), quoted(value));
        }
    }
    for word in std::iter::once(command.get_program()).chain(command.get_args()) {
        let _ = write!(text, " {}", quoted(word));
    }
    text
}

fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tests_are_judged_by_the_lines_of_their_runner() {
        let log = "test a::b ... ok\nSKIPPED a::c: no nginx\ntest a::c ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n";
        let passed = Outcome::Passed { what: "1 test".to_owned(), left_out: vec!["a::c: no nginx".to_owned()] };
        assert_eq!(judge_tests(0, log), passed);
        let lines: String = ["a", "b", "c", "d", "d"].map(|name| format!("SKIPPED {name}: no nginx\n")).concat();
        let none = Outcome::Impossible { why: vec!["4 tests: no nginx".to_owned()] };
        assert_eq!(judge_tests(0, &format!("{lines}test result: ok. 4 passed; 0 failed; 0 ignored\n")), none);
        let log = "test a::b ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let failed = Outcome::Failed { what: "1 of 2 tests".to_owned(), why: vec!["a::b".to_owned()] };
        assert_eq!(judge_tests(101, log), failed);
        let log = "test a::b ... running 1 test\nFAILED\n\nfailures:\n\n---- a::b stdout ----\n    left\ntest result: FAILED. 0 passed; 1 failed;\n\nfailures:\n    a::b\n\ntest result: FAILED. 1 passed; 1 failed;\n";
        assert_eq!(judge_tests(101, log), failed);
        assert!(judge_tests(0, "test result: ok. 0 passed; 0 failed;").is_failure());
    }

    #[test]
    fn a_suite_is_judged_by_its_report_and_by_what_doctor_foretold() {
        let left_out = json!([{"scenarios": ["D", "F"], "reason": "no tunnels here"}]);
        let report = json!({"data": {"run": {"suite": "layers"}, "scenarios": [{}, {}], "left_out": left_out}});
        let doctor = json!({"suites": [{"suite": "layers", "scenarios": ["A", "B"], "left_out": left_out}]});
        let expected = "2 scenarios; left out: D, F: no tunnels here";
        assert_eq!(judge_suite(&report, Some(&doctor)).to_string(), expected);
        let other = json!({"suites": [{"suite": "layers", "scenarios": ["A", "B", "D", "F"], "left_out": []}]});
        assert!(judge_suite(&report, Some(&other)).is_failure());
        assert!(judge_suite(&json!({"data": {"scenarios": []}}), None).is_failure());
        let of = |local: f64, remote: f64| {
            let figure = |side, mean| json!({"metric": "packets_in", "side": side, "mean": mean});
            let scenario = json!({"id": "ipvs", "figures": [figure("local", local), figure("remote", remote)]});
            judge_suite(&json!({"data": {"scenarios": [scenario]}}), None)
        };
        assert_eq!(of(0.0, 0.0).to_string(), "FAILED: nothing was carried by ipvs");
        assert!(!of(0.0, 3.0).is_failure());
        assert_eq!(judge_doctor(&doctor).to_string(), "0 of 1 suites whole; left out: layers: D, F: no tunnels here");
        assert!(judge_doctor(&json!({})).is_failure());
        // Of a suite that is made in part the part alone is compared.
        let doctor = json!({"suites": [{"suite": "rfc2544", "scenarios": ["f64"], "left_out": [
            {"scenarios": ["f128"], "reason": "no room"}]}]});
        let report = json!({"data": {"run": {"suite": "rfc2544"}, "scenarios": [{}], "left_out": []}});
        assert_eq!(judge_suite(&report, Some(&doctor)).to_string(), "1 scenario");
        let unknown = judge_doctor(&json!({"suites": [{"suite": "new", "scenarios": ["A"], "left_out": []}]}));
        assert_eq!(unknown.to_string(), "FAILED: suites that no check runs: new");
    }

    #[test]
    fn what_stands_on_refused_programs_cannot_be() {
        let shared = tempfile::tempdir().unwrap();
        let check = |name: &str, kind| Check {
            name: name.to_owned(),
            about: "",
            setup: Setup::Guest,
            command: where_it_stands(name, "true"),
            limit: Duration::ZERO,
            quick: false,
            kind,
        };
        let run = |check: &Check| {
            let log = fs::File::create(shared.path().join(check.file("log"))).unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("( {} )", check.command)]).current_dir(shared.path()).stdout(log);
            check.judge(shell.status().unwrap().code().unwrap(), shared.path())
        };
        let (cases, steer) = (check("balancer cases", Kind::Tests), check("steer cases", Kind::Tests));
        assert_eq!(run(&cases).to_string(), "FAILED: no test was run");
        let log = "SKIPPED verified::all: balancer: invalid func bpf_loop#181\nLinux 5.10\nspin/spin 72\n";
        fs::write(shared.path().join(OBJECTS_LOG), log).unwrap();
        assert_eq!(run(&cases).to_string(), "cannot be: balancer: invalid func bpf_loop#181");
        assert!(!run(&cases).is_failure());
        assert_eq!(run(&steer).to_string(), "FAILED: no test was run");
        let three = Check::of_tests(three::NAME, "", Setup::Three).refusal(&shared.path().join(OBJECTS_LOG));
        assert_eq!(three.unwrap().to_string(), "cannot be: balancer: invalid func bpf_loop#181");
        let doctor = |scenarios| {
            json!({"suites": [{"suite": "spreading", "scenarios": scenarios, "left_out": [
            {"scenarios": ["A"], "reason": "no spreader"}]}]})
        };
        assert!(!judge_impossible("spreading", &doctor(json!([])), "").is_failure());
        assert!(judge_impossible("spreading", &doctor(json!(["B"])), "").is_failure());
    }

    #[test]
    fn verified_instructions_are_those_of_programs_alone() {
        let log = "running 1 test\nLinux 6.1\nDebian clang version 14.0.6\nbalance/balance 97319\nvrouter trace/from_underlay 3\n";
        assert_eq!(verified(log), [("balance/balance", 97319), ("vrouter trace/from_underlay", 3)]);
    }

    #[test]
    fn what_is_left_out_of_the_cases_is_there() {
        let tests = crate::command::root().join("crates/rig-datapath/tests/integration");
        for test in BY_SPEED.iter().chain(&TRAFFIC) {
            let mut parts: Vec<&str> = test.split("::").collect();
            let name = parts.pop().unwrap();
            let file = parts.iter().fold(tests.clone(), |path, part| path.join(part)).with_extension("rs");
            let text =
                fs::read_to_string(&file).or_else(|_| fs::read_to_string(file.with_extension("").join("mod.rs")));
            let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains(&format!("fn {name}()")) || text.contains(&format!("mod {name};")), "{test}");
        }
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted(OsStr::new("it's")), r"'it'\''s'");
    }
}
