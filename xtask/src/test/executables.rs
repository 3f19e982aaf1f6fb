//! Runs tests side by side: cargo runs one executable after the other, and most tests wait rather than work.
//!
//! ```text
//! cargo test --no-run ── Executable ── its modules ── Piece ──┬── serial: one at a time, beside the others
//!                                                             ├── waiting: one at a time, in a lane of their own, and in the others when these have nothing else
//!                                                             ├── beside: as many at a time as there are lanes
//!                                                             └── alone: at the end, nothing beside
//! ```
//! Each test that has failed beside others is run once more, alone: who reads the closing lines is told of it, and decides whether it was late or has a race.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::io::{self, BufReader, Read, Seek, Write};
use std::iter;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, Package, TargetKind};

use crate::command::{cargo, root};

/// Modules whose tests look at the CPUs of nodes or at what a busy machine delays: they pass beside others, and two of them would disturb each
/// other.
const SERIAL: [&str; 13] = [
    "netrig::integration machine::dut",
    "netrig::integration machine::lanes",
    "netrig::integration machine::layers",
    "netrig::integration machine::loads",
    "netrig::integration machine::packets",
    "netrig::integration machine::paths",
    "netrig::integration machine::sampled",
    "netrig::integration machine::spin",
    "netrig::integration machine::spreader",
    "netrig::integration machine::vrouter",
    "netrig::integration spread",
    "rig-datapath::integration endtoend",
    "rig-load::integration transactions",
];
/// Modules that wait for timers of the kernel and of protocols, or whose processes spin and yield: they take a fifth of a CPU and less where others
/// want it (docs/decisions/tests-side-by-side.md).
const WAITING: [&str; 8] = [
    "netrig::integration dperf",
    "netrig::integration lb::ipvs",
    "netrig::integration lb::outlier",
    "netrig::integration machine::interfaces",
    "netrig::integration machine::stalled",
    "netrig::integration machine::vrouter_docker",
    "netrig::integration vrouter",
    "netrig::integration machine::agent_processes",
];
/// Modules of which all parts are run by one process: their tests use one after the other what one of them has had the verifier look at
/// (crates/rig-datapath/tests/integration/pool.rs).
const TOGETHER: [&str; 2] = ["rig-datapath::integration balancer", "rig-datapath::integration vrouter"];
/// What takes longest of all that runs beside others, the longest first: it is begun first, so that no lane has such a module left for itself at the end.
const LONG: [&str; 10] = [
    "netrig::integration machine::docker",
    "netrig::integration machine::on_hosts",
    "rig-datapath::integration balancer",
    "rig-datapath::integration old",
    "netrig::integration machine::lacking",
    "rig-datapath::integration vrouter",
    "netrig::integration machine::pairs",
    "netrig::integration machine::pods",
    "netrig::integration machine::benchmark",
    "rig-spread::integration simulated",
];
/// Modules whose tests fail where something else takes their CPUs, or has these process packets.
const ALONE: [&str; 4] = [
    "netrig::integration machine::attribution",
    "netrig::integration spread::load",
    "rig-datapath::integration cputime",
    "rig-datapath::integration steer",
];
/// A test executable that takes longer hangs: it is killed, and has failed.
const LONGEST: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A test executable.
#[derive(Debug)]
pub struct Executable {
    /// Its crate's name and, of integration tests, theirs.
    pub name: String,
    path: PathBuf,
    package: Package,
    is_integration: bool,
}

/// What is run by one process.
#[derive(Debug, Clone)]
struct TestRun {
    name: String,
    executable: Arc<Executable>,
    /// By their whole names; none for all that the executable has.
    tests: Vec<String>,
}

/// How a piece ended.
struct Outcome {
    piece: TestRun,
    duration: Duration,
    /// Why it has failed.
    failure: Option<String>,
    /// Those of its tests that have failed; none where it has not said which.
    failed_tests: Vec<String>,
}

impl Outcome {
    /// What is to be run once more, each in a process of its own.
    fn again(&self) -> Vec<TestRun> {
        match self.failed_tests.is_empty() {
            true => vec![self.piece.clone()],
            false => self
                .failed_tests
                .iter()
                .map(|test| TestRun { tests: vec![test.clone()], ..self.piece.clone() })
                .collect(),
        }
    }
}

/// What came of all tests, by the names of their modules.
#[derive(Debug, Default)]
pub struct TestResults {
    /// With the reason.
    pub failed: Vec<String>,
    /// They failed beside others and passed alone.
    pub failed_beside_others: Vec<String>,
}

/// What is still to be run.
#[derive(Debug, Default)]
struct Queues {
    serial: VecDeque<TestRun>,
    serial_runs: bool,
    waiting: VecDeque<TestRun>,
    beside: VecDeque<TestRun>,
}

/// What a lane takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Any,
    /// What waits alone: with one more of the others, each would take longer.
    Waiting,
}

impl Queues {
    /// The next piece and whether it is a serial one.
    fn next(&mut self, lane: Lane) -> Option<(TestRun, bool)> {
        if lane == Lane::Waiting {
            return Some((self.waiting.pop_front()?, false));
        }
        if !self.serial_runs
            && let Some(piece) = self.serial.pop_front()
        {
            self.serial_runs = true;
            return Some((piece, true));
        }
        Some((self.beside.pop_front().or_else(|| self.waiting.pop_front())?, false))
    }
}

/// Builds all test executables and runs them, each piece's output whole when it ends.
///
/// # Errors
/// When they cannot be built or started.
pub fn run() -> Result<TestResults> {
    let executables = build(&["--workspace"])?;
    let count = executables.len();
    let mut pieces = Vec::new();
    for executable in executables {
        pieces.extend(pieces_of(Arc::new(executable))?);
    }
    if let Some(name) = [&SERIAL[..], &WAITING, &TOGETHER, &LONG, &ALONE]
        .concat()
        .iter()
        .find(|name| !pieces.iter().any(|piece| is_among(&[name], &piece.name)))
    {
        bail!("xtask/src/test/executables.rs names {name}, which no executable has");
    }
    let (alone, rest): (Vec<_>, Vec<_>) = pieces.into_iter().partition(|piece| is_among(&ALONE, &piece.name));
    let (serial, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|piece| is_among(&SERIAL, &piece.name));
    let (waiting, mut beside): (Vec<_>, Vec<_>) = rest.into_iter().partition(|piece| is_among(&WAITING, &piece.name));
    beside.sort_by_key(|piece| LONG.iter().position(|name| *name == piece.name).unwrap_or(LONG.len()));
    let begin = Instant::now();
    let queues = Mutex::new(Queues {
        serial: serial.into(),
        serial_runs: false,
        waiting: waiting.into(),
        beside: beside.into(),
    });
    let outcomes = Mutex::new(Vec::new());
    let lane = |lane: Lane| -> Result<()> {
        loop {
            let Some((piece, is_serial)) = lock(&queues).next(lane) else { return Ok(()) };
            let outcome = run_piece(&piece);
            if is_serial {
                lock(&queues).serial_runs = false;
            }
            lock(&outcomes).push(outcome?);
        }
    };
    thread::scope(|scope| {
        let lanes = iter::once(Lane::Waiting).chain(iter::repeat_n(Lane::Any, lane_count()));
        let lanes: Vec<_> = lanes.map(|which| scope.spawn(move || lane(which))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|_| bail!("a lane of tests panicked")))
    })?;
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut results = TestResults::default();
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.failure.is_some()) {
        println!("\n     Once more, alone: {}", outcome.piece.name);
        let mut failure = None;
        for run in outcome.again() {
            failure = run_piece(&run)?.failure.or(failure);
        }
        if failure.is_none() {
            results.failed_beside_others.push(outcome.piece.name.clone());
        }
        outcome.failure = failure;
    }
    for piece in alone {
        outcomes.push(run_piece(&piece)?);
    }
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.duration));
    let sum: Duration = outcomes.iter().map(|outcome| outcome.duration).sum();
    let longest: Vec<String> =
        outcomes.iter().take(12).map(|one| format!("{} {:.0} s", one.piece.name, one.duration.as_secs_f64())).collect();
    println!(
        "{count} test executables took {:.0} s side by side, {:.0} s one by one; the longest: {}",
        begin.elapsed().as_secs_f64(),
        sum.as_secs_f64(),
        longest.join(", ")
    );
    results.failed =
        outcomes.into_iter().filter_map(|one| Some(format!("{}: {}", one.piece.name, one.failure?))).collect();
    Ok(results)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_among(names: &[&str], piece: &str) -> bool {
    names.iter().any(|name| piece.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
}

/// A process of tests uses a third to a half of a CPU (docs/decisions/tests-side-by-side.md).
fn lane_count() -> usize {
    (test_threads() * 3 / 2).min(8)
}

fn test_threads() -> usize {
    thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2)
}

/// Builds the test executables that cargo's `arguments` choose.
///
/// # Errors
/// When one does not build.
pub fn build(arguments: &[&str]) -> Result<Vec<Executable>> {
    let packages = cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().exec()?.packages;
    let mut command = cargo(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(arguments);
    eprintln!("$ cargo test --no-run {}", arguments.join(" "));
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = cargo.stdout.take().context("cargo without an output")?;
    let mut executables = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let (Some(path), true) = (artifact.executable, artifact.profile.test) else { continue };
        let package = packages.iter().find(|package| package.id == artifact.package_id);
        let package = package.with_context(|| format!("{path} is of no package of the workspace"))?.clone();
        let is_integration = artifact.target.kind.contains(&TargetKind::Test);
        let name = match is_integration {
            true => format!("{}::{}", package.name, artifact.target.name),
            false => package.name.to_string(),
        };
        executables.push(Executable { name, path: path.into(), package, is_integration });
    }
    let status = cargo.wait()?;
    if !status.success() {
        bail!("the tests do not build");
    }
    Ok(executables)
}

/// A piece for each module of an executable of integration tests (for all parts of some), one for all unit tests of a crate, which are short.
fn pieces_of(executable: Arc<Executable>) -> Result<Vec<TestRun>> {
    if !executable.is_integration {
        return Ok(vec![TestRun { name: executable.name.clone(), executable, tests: Vec::new() }]);
    }
    let mut list = command(&executable)?;
    let output = list.args(["--list", "--format", "terse"]).output();
    let output = output.with_context(|| format!("start {}", executable.path.display()))?;
    if !output.status.success() {
        bail!("{} does not list its tests: {}", executable.name, output.status);
    }
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for test in String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.rsplit_once("::").map(|(module, _)| module);
        let name = module.map_or_else(|| executable.name.clone(), |module| format!("{} {module}", executable.name));
        let whole = TOGETHER.iter().find(|whole| is_among(&[whole], &name));
        modules.entry(whole.map_or(name, |whole| (*whole).to_owned())).or_default().push(test.to_owned());
    }
    let piece = |(name, tests)| TestRun { name, executable: Arc::clone(&executable), tests };
    Ok(modules.into_iter().map(piece).collect())
}

/// The executable with the environment that cargo gives it (the Cargo book, "Environment variables Cargo sets for crates"), in
/// place of that of this program.
///
/// # Errors
/// When its package has no folder.
pub fn command(executable: &Executable) -> Result<Command> {
    // Tests send signals to what they start, which ignores them where this program does: SIGHUP below nohup(1), SIGINT and SIGQUIT where a shell
    // without job control has started it with `&`.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT").arg(&executable.path);
    let package = &executable.package;
    let folder = package.manifest_path.parent().context("a manifest without a folder")?;
    command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command.env("CARGO_PKG_NAME", package.name.as_str()).env("CARGO_PKG_VERSION", package.version.to_string());
    command.stdin(Stdio::null());
    Ok(command)
}

fn run_piece(piece: &TestRun) -> Result<Outcome> {
    let mut output = tempfile::tempfile()?;
    let begin = Instant::now();
    let mut command = command(&piece.executable)?;
    if !piece.tests.is_empty() {
        // With one thread a test would run on the main thread, which has not its name.
        command.arg("--test-threads").arg(test_threads().to_string()).arg("--exact").args(&piece.tests);
    }
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("start {}", piece.executable.path.display()))?;
    let failure = match wait(&mut child)? {
        Some(status) if status.success() => None,
        Some(status) => Some(status.to_string()),
        None => Some(format!("killed after {} s", LONGEST.as_secs())),
    };
    let duration = begin.elapsed();
    output.rewind()?;
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "\n     Running {} ({:.1} s)", piece.name, duration.as_secs_f64())?;
    stdout.write_all(&text)?;
    stdout.flush()?;
    let failed_tests = failed_tests(&String::from_utf8_lossy(&text));
    Ok(Outcome { piece: piece.clone(), duration, failure, failed_tests })
}

/// The tests that the closing lines of a test executable name: the last list of failures, each on a line of its own.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// `None` for one that was killed.
fn wait(child: &mut Child) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL_INTERVAL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_those_of_the_last_list() {
        let output = "test a::x ... FAILED\ntest a::y ... ok\n\nfailures:\n\n---- a::x stdout ----\n    a word of its own\n\nfailures:\n    \
                      a::x\n    b\n\ntest result: FAILED. 1 passed; 2 failed\n\n";
        assert_eq!(failed_tests(output), ["a::x", "b"]);
        // Killed before it could say so.
        assert!(failed_tests("test a::x ... FAILED\n").is_empty());
        assert!(failed_tests("test result: ok. 1 passed; 0 failed\n").is_empty());
    }
}
