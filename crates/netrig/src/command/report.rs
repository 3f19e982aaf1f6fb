//! `netrig report`, `netrig series` and `netrig history`.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, presets};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams::print;
use rig_report::build;
use rig_report::document::Claim;
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_study::claim::{FigureRef, Metric, Verdict};
use rig_study::figures::phases::reading_of;
use rig_study::figures::sample_of;
use rig_study::record::TrialRecord;
use rig_study::run::{Options, Outcome, Settled, no_verdict};
use rig_study::store::{Run, RunState, Store};
use rig_study::suite::{Repeat, Suite};
use rig_study::view::{Certainty, RunView, ScenarioView, Status};
use rig_sys::cpu::CpuSet;

use super::arguments::{OutputArgs, StoreArgs};
use super::output::Output;
use super::suites::{load_text, repeat_text};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run's number or label in `netrig history`, `latest`, or `latest~1` for the one before
    #[arg(default_value = "latest")]
    pub run: String,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let view = view(&stored(&args.run, &args.store)?)?;
    Output::choose(args.output.output.as_deref())?.write(&build::document(&view), args.output.format)?;
    Ok(Exit::Done)
}

#[derive(Debug, Args)]
pub struct SeriesArgs {
    /// The run's number or label in `netrig history`, `latest`, or `latest~1` for the one before
    #[arg(default_value = "latest")]
    pub run: String,
    /// Only these scenarios, e.g. A,B,D
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub only: Vec<String>,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn series(args: &SeriesArgs) -> Result<Exit, Failure> {
    let mut view = view(&stored(&args.run, &args.store)?)?;
    if let Some(unknown) = args.only.iter().find(|id| view.scenarios.iter().all(|scenario| scenario.id != **id)) {
        let known: Vec<&str> = view.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
        let error = anyhow!("run {} has no scenario '{unknown}': it has {}", view.id, known.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    }
    view.scenarios.retain(|scenario| args.only.is_empty() || args.only.contains(&scenario.id));
    Output::choose(args.output.as_deref())?.fill(|_, out| rig_report::series::write(&view, out))?;
    Ok(Exit::Done)
}

fn stored(name: &str, store: &StoreArgs) -> Result<Run, Failure> {
    let name = name.parse().or_exit(Exit::BadInput)?;
    let store = open(store)?;
    store.resolve(&name).and_then(|id| store.run(id)).or_exit(Exit::BadInput)
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Remove this run for good, by its number, label, `latest` or `latest~1`; its number is not used again
    #[arg(long, value_name = "RUN")]
    pub delete: Option<String>,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn history(args: &HistoryArgs) -> Result<Exit, Failure> {
    if let Some(name) = &args.delete {
        return delete(name, &args.store);
    }
    let runs = open(&args.store)?.runs().or_exit(Exit::Failed)?;
    if runs.is_empty() {
        print("No run is stored yet: try `netrig run layers --quick`.\n")?;
        return Ok(Exit::Done);
    }
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["run", "started", "took", "suite", "trials", "state", "label"]);
    for run in runs {
        let took = run.ended_unix_ms.map_or_else(String::new, |end| {
            let seconds = (end - run.started_unix_ms) / 1000;
            format!("{:#}", SignedDuration::from_secs(seconds))
        });
        table.add_row([
            run.id.to_string(),
            local_time(run.started_unix_ms),
            took,
            run.suite,
            run.stored_trials.to_string(),
            run.state.to_string(),
            run.label.as_ref().map_or_else(String::new, ToString::to_string),
        ]);
    }
    for number in [0, 2, 4] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    print(&(text.join("\n") + "\n"))?;
    Ok(Exit::Done)
}

/// Removes a run, and says what it was: nobody is asked.
fn delete(name: &str, args: &StoreArgs) -> Result<Exit, Failure> {
    let name = name.parse().or_exit(Exit::BadInput)?;
    let path = open(args)?.path().to_owned();
    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
    let run = store.resolve(&name).and_then(|id| store.delete(id)).or_exit(Exit::BadInput)?;
    let label = run.label.map_or_else(String::new, |label| format!(" ({label})"));
    let trials = if run.stored_trials == 1 { "1 trial".to_owned() } else { format!("{} trials", run.stored_trials) };
    let started = local_time(run.started_unix_ms);
    print(&format!("Deleted run {}{label} of suite {}, {started}, {}, with {trials}\n", run.id, run.suite, run.state))?;
    Ok(Exit::Done)
}

fn local_time(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms)
        .map(|time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

/// The store that the user named, or the default one. Looking needs no right to write.
pub(super) fn open(args: &StoreArgs) -> Result<Store, Failure> {
    let path = path_of(args)?;
    if !path.exists() {
        let error = anyhow!("no run is stored in {}: try `netrig run layers --quick`", path.display());
        return Err(Failure::new(Exit::BadInput, error));
    }
    Store::open_to_read(&path).or_exit(Exit::Failed)
}

pub(super) fn path_of(args: &StoreArgs) -> Result<PathBuf, Failure> {
    match &args.store {
        Some(path) => Ok(path.clone()),
        None => Store::default_path().or_exit(Exit::BadInput),
    }
}

/// A stored run as its report needs it.
pub fn view(run: &Run) -> Result<RunView, Failure> {
    let mut suite = Suite::parse(&run.suite_file, &run.suite_text)?;
    let options: Options = serde_json::from_value(run.options.clone())
        .with_context(|| format!("read the options of run {}", run.summary.id))
        .or_exit(Exit::Failed)?;
    if options.quick {
        suite.hasten();
    }
    let settled: Vec<Settled> = match &run.goals {
        None => Vec::new(),
        Some(goals) => serde_json::from_value(goals.clone())
            .with_context(|| format!("read the outcome of run {}", run.summary.id))
            .or_exit(Exit::Failed)?,
    };
    // Also where the number of trials was fixed: the suite says how sure its figures have to be.
    let level = match suite.timing.repeat {
        Repeat::Times(_) => Level::default(),
        Repeat::Until(goal) => goal.level,
    };
    let equal: Vec<CpuSet> = options.cpus.iter().filter_map(|list| list.parse().ok()).collect();
    // Where nodes do not share the machine equally, its trials tell.
    let cpus = |id: &str| match run.trials.iter().find(|trial| trial.scenario == id) {
        Some(trial) => trial.nodes.iter().map(|node| CpuSet::new(node.cpus.iter().map(|of| of.cpu))).collect(),
        None => equal.clone(),
    };
    let asked = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id);
    let chosen = |id: &str| asked(id) && options.why_left_out(id).is_none();
    let scenarios = suite
        .scenarios
        .iter()
        .filter(|scenario| chosen(&scenario.id))
        .map(|scenario| ScenarioView {
            id: scenario.id.clone(),
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            notes: scenario.notes.clone(),
            topology: scenario.topology.draw(&cpus(&scenario.id)),
            load: load_text(scenario),
            plan: scenario.plan(),
            checks: scenario.checks,
            trials: run.trials.iter().filter(|trial| trial.scenario == scenario.id).cloned().collect(),
            certainty: certainty(settled.iter().find(|s| s.scenario == scenario.id)),
        })
        .collect();
    let values = |wanted: &FigureRef| -> Option<Sample> {
        let trials = run.trials.iter().filter(|trial| trial.scenario == wanted.scenario);
        let readings: Option<Vec<_>> = trials.map(|trial| reading_of(trial, wanted)).collect();
        readings.filter(|readings| !readings.is_empty()).map(|readings| sample_of(readings, wanted.metric))
    };
    // A claim about a scenario that was left out on purpose says nothing.
    let claims = suite
        .claims
        .iter()
        .filter(|claim| claim.figures().iter().all(|figure| asked(&figure.scenario)))
        .map(|claim| {
            let judgement = claim.evaluate(level, &values);
            let (verdict, words) = match no_verdict(claim, &options, &run.trials) {
                Some(why) => (Verdict::Undecided, format!("{}; {why}", judgement.words)),
                None => (judgement.verdict, judgement.words),
            };
            Claim {
                text: claim.text().to_owned(),
                expression: claim.expression().to_owned(),
                verdict: match &suite.study {
                    Some(_) if verdict == Verdict::Refuted => Verdict::Differs,
                    _ => verdict,
                },
                words: words + &generator_bound(claim, &run.trials),
            }
        })
        .collect();
    Ok(RunView {
        id: run.summary.id.to_string(),
        suite: suite.name.clone(),
        suite_file: run.suite_file.clone(),
        suite_text: run.suite_text.clone(),
        title: suite.title.clone(),
        about: suite.about.clone(),
        started_unix_ms: run.summary.started_unix_ms,
        status: status(run),
        options: options.words(),
        cpus: options.cpus.clone(),
        phases: options.timing.phases,
        repetition: repeat_text(options.timing.repeat),
        level,
        goal: match options.timing.repeat {
            Repeat::Times(_) => None,
            Repeat::Until(goal) => Some(goal),
        },
        environment: run.environment.clone(),
        rig_cost: run.rig_cost.clone(),
        scenarios,
        left_out: options.left_out.iter().filter_map(|one| one.of(&asked)).collect(),
        tables: suite.tables.clone(),
        baseline: suite.baseline.clone(),
        claims,
    })
}

fn certainty(settled: Option<&Settled>) -> Certainty {
    match settled.map(|s| &s.outcome) {
        Some(Outcome::Fixed) => Certainty::Fixed,
        Some(Outcome::Reached) => Certainty::Reached,
        Some(missed @ Outcome::NotReached(_)) => Certainty::Missed(missed.to_string()),
        Some(Outcome::Unfinished) | None => Certainty::Unfinished,
    }
}

fn status(run: &Run) -> Status {
    let (done, planned) = (run.summary.stored_trials, run.summary.planned_trials);
    match &run.summary.state {
        RunState::Complete => Status::Complete,
        RunState::Running => Status::Running { done, planned },
        RunState::Interrupted => Status::Interrupted { done, planned },
        RunState::Failed { reason } => Status::Failed { done, planned, reason: reason.clone() },
    }
}

/// What a claim about limits must say of limits that are the generator's own: those of what it drove may be higher.
fn generator_bound(claim: &rig_study::claim::Claim, trials: &[TrialRecord]) -> String {
    let bound = |trial: &&TrialRecord| trial.search.as_ref().is_some_and(|search| search.bound.is_some());
    let mut scenarios: Vec<&str> = claim
        .figures()
        .iter()
        .filter(|figure| matches!(figure.metric, Metric::Limit | Metric::LimitHeld))
        .filter(|figure| trials.iter().filter(|trial| trial.scenario == figure.scenario).any(|trial| bound(&trial)))
        .map(|figure| figure.scenario.as_str())
        .collect();
    scenarios.dedup();
    match scenarios.as_slice() {
        [] => String::new(),
        scenarios => format!("; generator-bound: {} may carry more than the generator can drive", scenarios.join(", ")),
    }
}
