//! Tests of other tools as runs of the store: those that netrig made under their command lines, and those of their outputs.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use netrig_tools::import::{self, NetperfTest, OutputFormat};
use netrig_tools::store_run::{RunKeeper, ToolRunEnd, ToolTest};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes::read_text_of;
use rig_cli::streams::{note, print};
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::record::{Environment, ToolRun, ToolTrial, TrialRecord};
use rig_facts::store::{Label, NewRun, RunEnd, RunId, Store};
use rig_stats::units::counted;
use rig_suite::options::Options;
use rig_suite::suite::{Repeat, Timing};
use rig_testbed::host;
use rig_verdict::tool::phases;

use super::arguments::StoreArgs;
use super::report::path_of;
use crate::BUILD;

/// Keeps tests of `--store-run` in the default store.
#[derive(Debug, Default)]
pub struct StoreKeeper {
    store: Option<Store>,
    label: Option<Label>,
    environment: Environment,
    started_unix_ms: i64,
}

impl RunKeeper for StoreKeeper {
    fn prepare(&mut self, label: Option<&str>) -> Result<(), Failure> {
        self.label = label.map(str::parse).transpose().or_exit(Exit::BadInput)?;
        let path = path_of(&StoreArgs { store: None })?;
        self.store = Some(Store::open(&path).or_exit(Exit::Failed)?);
        self.environment = host::environment(BUILD);
        self.started_unix_ms = Timestamp::now().as_millisecond();
        Ok(())
    }

    fn keep(&mut self, tests: Vec<ToolTest>, end: ToolRunEnd<'_>) -> Result<(), Failure> {
        let store = self.store.as_mut().context("the store is not open").or_exit(Exit::Failed)?;
        let mut tests = tests.into_iter();
        let first = tests.next().context("there is no test").or_exit(Exit::Failed)?;
        let trials: Vec<ToolTrial> = [first.trial].into_iter().chain(tests.map(|test| test.trial)).collect();
        let span = Span { started_unix_ms: self.started_unix_ms, ended_unix_ms: Timestamp::now().as_millisecond() };
        let id = write(store, &first.run, trials, end, &self.environment, self.label.as_ref(), span)?;
        note(format_args!("Stored as run {id}: netrig report {id}"));
        Ok(())
    }
}

/// When a run was made.
#[derive(Debug, Clone, Copy)]
struct Span {
    started_unix_ms: i64,
    ended_unix_ms: i64,
}

/// Stores a run as a whole.
fn write(
    store: &mut Store,
    tool: &ToolRun,
    trials: Vec<ToolTrial>,
    end: ToolRunEnd<'_>,
    environment: &Environment,
    label: Option<&Label>,
    span: Span,
) -> Result<RunId, Failure> {
    let made = u32::try_from(trials.len()).context("count the trials").or_exit(Exit::Failed)?;
    let planned = made.saturating_add(u32::from(!matches!(end, ToolRunEnd::Complete)));
    let options = Options {
        quick: false,
        only: Vec::new(),
        cpus: Vec::new(),
        timing: Timing { phases: phases(trials.iter().map(|trial| trial.seconds)), repeat: Repeat::Times(planned) },
        seed: None,
        again: Vec::new(),
        aa: None,
        left_out: Vec::new(),
        host: None,
        label: label.cloned(),
        gate: false,
        turns: None,
        inside: Vec::new(),
        pairs: None,
        ends: None,
        tool: Some(tool.clone()),
    };
    let new = NewRun {
        suite: tool.tool.clone(),
        title: tool.to_string(),
        suite_file: String::new(),
        suite_text: String::new(),
        options: serde_json::to_value(options).context("describe the run").or_exit(Exit::Failed)?,
        environment: environment.clone(),
        planned_trials: planned,
        started_unix_ms: span.started_unix_ms,
    };
    let id = store.begin_run(&new).or_exit(Exit::Failed)?;
    if let Err(failure) = fill(store, id, &tool.test, trials, end, span) {
        // A run with some of its trials would look like one that goes on. What fails here too has the same reason.
        let end = RunEnd::Failed { reason: "its trials could not be stored".to_owned() };
        let _ = store.finish_run(id, &end, None, span.ended_unix_ms).and_then(|()| store.delete(id).map(drop));
        return Err(failure);
    }
    Ok(id)
}

/// Stores the trials of a run that was begun, and ends it.
fn fill(
    store: &mut Store,
    id: RunId,
    test: &str,
    trials: Vec<ToolTrial>,
    end: ToolRunEnd<'_>,
    span: Span,
) -> Result<(), Failure> {
    let made = u32::try_from(trials.len()).context("count the trials").or_exit(Exit::Failed)?;
    for (ordinal, trial) in (1..).zip(trials) {
        store.add_trial(id, &record(test, ordinal, trial, span.started_unix_ms)).or_exit(Exit::Failed)?;
    }
    let (end, outcome) = match end {
        ToolRunEnd::Complete => (RunEnd::Complete, RepetitionEnd::Fixed),
        ToolRunEnd::Stopped => (RunEnd::Interrupted, RepetitionEnd::Unfinished),
        ToolRunEnd::Failed(why) => {
            let outcome = RepetitionEnd::Failed { trial: made.saturating_add(1), reason: why.to_owned() };
            (RunEnd::Failed { reason: why.to_owned() }, outcome)
        }
    };
    let settled = [ScenarioCertainty { scenario: test.to_owned(), trials: made, outcome }];
    let goals = serde_json::to_value(settled).context("describe the run").or_exit(Exit::Failed)?;
    store.finish_run(id, &end, Some(&goals), span.ended_unix_ms).or_exit(Exit::Failed)
}

fn record(scenario: &str, ordinal: u32, trial: ToolTrial, started_unix_ms: i64) -> TrialRecord {
    let seconds = trial.seconds.unwrap_or_default().clamp(0.0, 1e9);
    TrialRecord {
        scenario: scenario.to_owned(),
        ordinal,
        block: None,
        started_unix_ms,
        setup_us: 0,
        teardown_us: 0,
        total_us: (seconds * 1e6) as u64,
        window_begin_ns: 0,
        window_end_ns: (seconds * 1e9) as u64,
        nodes: Vec::new(),
        workers: Vec::new(),
        throttled_us: None,
        search: None,
        benchmark: None,
        agents: Vec::new(),
        dut: None,
        phases: Vec::new(),
        series: None,
        limit: None,
        host: None,
        hosts: Vec::new(),
        layers: None,
        calibration: None,
        clocks: None,
        end_clocks: None,
        uncompared: None,
        set: Vec::new(),
        before: Vec::new(),
        frames: None,
        tool: Some(trial),
        flags: Vec::new(),
    }
}

/// Files that one import reads at most.
const MOST_FILES: usize = 1000;

/// Whose output it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ToolName {
    Iperf3,
    Netperf,
    Wrk,
    Wrk2,
    Dperf,
}

impl ToolName {
    fn format(self) -> OutputFormat {
        match self {
            Self::Iperf3 => OutputFormat::Iperf3,
            Self::Netperf => OutputFormat::Netperf,
            Self::Wrk => OutputFormat::Wrk,
            Self::Wrk2 => OutputFormat::Wrk2,
            Self::Dperf => OutputFormat::Dperf,
        }
    }
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files with outputs; several are trials of one test
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Whose output they are; without it, what they hold tells
    #[arg(long, value_enum, value_name = "TOOL")]
    tool: Option<ToolName>,
    /// What netperf was asked for (-t), where its output does not say it
    #[arg(long, value_name = "TEST", value_parser = netperf_test)]
    test: Option<NetperfTest>,
    /// Name the run, for `report` and `compare`
    #[arg(long, value_name = "LABEL")]
    label: Option<Label>,
    #[command(flatten)]
    store: StoreArgs,
}

fn netperf_test(text: &str) -> Result<NetperfTest, String> {
    let found = NetperfTest::ALL.into_iter().find(|test| test.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("one of {}", NetperfTest::ALL.map(NetperfTest::name).join(", ")))
}

/// Stores other tools' results as a run.
pub fn import(args: &ImportArgs) -> Result<Exit, Failure> {
    if args.files.len() > MOST_FILES {
        return Err(Failure::new(Exit::BadInput, anyhow!("more than {MOST_FILES} files at once")));
    }
    if args.test.is_some() && args.tool.is_some_and(|tool| tool != ToolName::Netperf) {
        return Err(Failure::new(Exit::BadInput, anyhow!("--test is of netperf's outputs")));
    }
    let mut tests: Vec<(String, ToolTest)> = Vec::new();
    for file in &args.files {
        tests.extend(tests_of(file, args)?);
        if tests.len() > import::MOST_TESTS {
            return Err(Failure::new(Exit::BadInput, anyhow!("more than {} tests at once", import::MOST_TESTS)));
        }
    }
    if tests.is_empty() {
        return Err(Failure::new(Exit::BadInput, anyhow!("no test came to its end: nothing is stored")));
    }
    let (tool, trials) = import::join(tests).map_err(|why| Failure::new(Exit::BadInput, anyhow!(why)))?;
    let now = Timestamp::now().as_millisecond();
    let started_unix_ms = tool.made_unix_ms.unwrap_or(now);
    let seconds: f64 = trials.iter().filter_map(|trial| trial.seconds).sum();
    // A run whose time nobody knows took none.
    let took_ms = tool.made_unix_ms.map_or(0, |_| (seconds * 1e3).clamp(0.0, 1e12) as i64);
    let span = Span { started_unix_ms, ended_unix_ms: started_unix_ms.saturating_add(took_ms) };
    let mut store = Store::open(&path_of(&args.store)?).or_exit(Exit::Failed)?;
    let (words, count) = (format!("{tool}"), trials.len());
    let id =
        write(&mut store, &tool, trials, ToolRunEnd::Complete, &Environment::default(), args.label.as_ref(), span)?;
    let trials = counted(count, "trial", "trials");
    print(&format!(
        "Imported {words}, {trials}, as run {id}: {}\n",
        super::report::again(&id.to_string(), &args.store)
    ))?;
    Ok(Exit::Done)
}

/// The tests of a file; failed ones are told and left out.
fn tests_of(file: &Path, args: &ImportArgs) -> Result<Vec<(String, ToolTest)>, Failure> {
    let name = file.display().to_string();
    let text = read_text_of(file, import::LONGEST).with_context(|| format!("read {name}")).or_exit(Exit::BadInput)?;
    let outputs = import::read(&text, args.tool.map(ToolName::format), args.test)
        .map_err(|mistake| Failure::new(Exit::BadInput, anyhow!("{name}: {mistake}")))?;
    for failed in &outputs.failed {
        note(format_args!("{name}: a test of {} failed and is left out: {}", failed.tool, failed.why));
    }
    Ok(outputs.tests.into_iter().map(|test| (name.clone(), test)).collect())
}
