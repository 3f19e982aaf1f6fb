//! `netrig report`, `netrig series` and `netrig history`.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::Args;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, presets};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use netrig_ends::pairs;
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::look;
use rig_cli::streams::{note, print};
use rig_facts::record::TrialRecord;
use rig_facts::store::{Run, RunId, RunState, Store, UnreadableRuns};
use rig_report::document::Document;
use rig_report::{Format, Shape, build};
use rig_stats::units::counted;
use rig_suite::suite::Suite;
use rig_verdict::export::{HistoryData, HistoryRun, set_apart};
use rig_verdict::stored;
use rig_verdict::view::RunView;

use super::arguments::{OutputArgs, StoreArgs};
use super::ends;
use super::output::Output;
use super::pairs::more;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run's number or label in `netrig history`, `latest`, or `latest~1` for the one before
    #[arg(default_value = "latest")]
    pub run: String,
    /// Everything: tables, single trials, doubts and method too. Formats other than `terminal` always have all
    #[arg(long)]
    pub all: bool,
    /// Only the first chart, as an SVG that stands alone, light or dark as the page around it
    #[arg(long, value_name = "SHAPE", conflicts_with_all = ["all", "format"])]
    pub picture: Option<Shape>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let output = Output::choose(args.output.output.as_deref())?;
    let name = args.run.parse().or_exit(Exit::BadInput)?;
    let store = open(&args.store)?;
    let id = store.resolve(&name).or_exit(Exit::BadInput)?;
    let view = view_among_others(&store, id)?;
    let run = store.run(id).or_exit(Exit::BadInput)?;
    let mut document = document(&run, &view)?;
    if let Some(shape) = args.picture {
        let picture = rig_report::picture(&document, shape).or_exit(Exit::Failed)?;
        let Some(picture) = picture else {
            let why = anyhow!(
                "run {} has no chart: no trial of it was finished, or its scenarios have no common scale",
                view.id
            );
            return Err(Failure::new(Exit::BadInput, why));
        };
        output.fill(|_, out| out.write_all(picture.as_bytes()))?;
        return Ok(Exit::Done);
    }
    if args.output.format == Format::Terminal && !args.all {
        let again = again(&view.id, &args.store);
        document = match (view.peer.is_some() || view.tool.is_some(), &stored::options(&run)?.pairs) {
            (true, _) => document.without_details(),
            (_, Some(test)) => pairs::report::brief(document, test, more(test, &again)),
            _ => document.brief(&format!("Tables, single trials, doubts and method: {again} --all")),
        };
    }
    output.write(&document, args.output.format)?;
    Ok(Exit::Done)
}

/// The report of a stored run.
fn document(run: &Run, view: &RunView) -> Result<Document, Failure> {
    let options = stored::options(run)?;
    if let Some(test) = &options.pairs {
        return Ok(pairs::report::of(run, &options, test)?.0);
    }
    Ok(ends::document_of(run, &options).map_or_else(|| build::document(view), |(document, _)| document))
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
    let mut view = view(&run_of(&args.run, &args.store)?)?;
    if let Some(unknown) = args.only.iter().find(|id| view.scenarios.iter().all(|scenario| scenario.id != **id)) {
        let known: Vec<&str> = view.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
        let error = anyhow!("run {} has no scenario '{unknown}': it has {}", view.id, known.join(", "));
        return Err(Failure::new(Exit::BadInput, error));
    }
    view.scenarios.retain(|scenario| args.only.is_empty() || args.only.contains(&scenario.id));
    Output::choose(args.output.as_deref())?.fill(|_, out| rig_report::series::write(&view, out))?;
    Ok(Exit::Done)
}

/// The command that reports a run.
pub(super) fn again(id: &str, store: &StoreArgs) -> String {
    format!("netrig report {id}{}", store.words())
}

fn run_of(name: &str, store: &StoreArgs) -> Result<Run, Failure> {
    let name = name.parse().or_exit(Exit::BadInput)?;
    let store = open(store)?;
    store.resolve(&name).and_then(|id| store.run(id)).or_exit(Exit::BadInput)
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Remove this run for good, by its number, label, `latest` or `latest~1`; its number is not used again
    #[arg(long, value_name = "RUN")]
    pub delete: Option<String>,
    /// Say which runs are damaged, and would be dropped
    #[arg(long, conflicts_with_all = ["delete", "json"])]
    pub repair: bool,
    /// With --repair: drop them; the store as it was stays beside the new one
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Print them as docs/schema/history.json describes it
    #[arg(long, conflicts_with = "delete")]
    pub json: bool,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn history(args: &HistoryArgs) -> Result<Exit, Failure> {
    if let Some(name) = &args.delete {
        return delete(name, &args.store);
    }
    if args.repair {
        return repair(args);
    }
    let store = open(&args.store)?;
    let mut runs = store.runs().or_exit(Exit::Failed)?;
    let calibrated = store.calibrated().or_exit(Exit::Failed)?;
    let unread = store.unread();
    // What shows in its trials only.
    runs.retain(|run| !unread.iter().any(|unread| unread.what == UnreadableRuns::One(run.id)));
    let data = HistoryData::of(&runs, &calibrated).with_unread(&unread);
    if args.json {
        let text = serde_json::to_string_pretty(&data).context("write the history").or_exit(Exit::Failed)?;
        print(&format!("{text}\n"))?;
        return Ok(Exit::Done);
    }
    if runs.is_empty() && unread.is_empty() {
        print("No run is stored yet: try `netrig run layers --quick`.\n")?;
        return Ok(Exit::Done);
    }
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["run", "started", "took", "suite", "trials", "state", "label", "machine"]);
    for (run, HistoryRun { set_apart, .. }) in runs.into_iter().zip(&data.runs) {
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
            brief(&run.state.to_string()),
            run.label.as_ref().map_or_else(String::new, ToString::to_string),
            set_apart.map_or_else(String::new, |apart| apart.to_string()),
        ]);
    }
    for number in [0, 2, 4] {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let note = data.note();
    if note.is_none() {
        let machine = table.column_mut(7);
        machine.into_iter().for_each(|column| _ = column.set_constraint(ColumnConstraint::Hidden));
    }
    let text = table.lines().map(|line| line.trim_end().to_owned()).chain(note);
    let damaged = unread.iter().map(|unread| format!("Damaged and left out: {unread}"));
    let next =
        (!unread.is_empty()).then(|| format!("What would be dropped: netrig history --repair{}", args.store.words()));
    let text: Vec<String> = text.chain(damaged).chain(next).collect();
    print(&look::shown(&(text.join("\n") + "\n")))?;
    Ok(Exit::Done)
}

/// Says which runs cannot be read, and drops them where that is asked for.
fn repair(args: &HistoryArgs) -> Result<Exit, Failure> {
    let path = open(&args.store)?.path().to_owned();
    let done = if args.yes { Store::repair(&path).or_exit(Exit::Failed)? } else { None };
    let checked = match &done {
        Some((checked, _)) => checked.clone(),
        None => open(&args.store)?.check().or_exit(Exit::Failed)?,
    };
    let kept = counted(checked.whole.len(), "run", "runs");
    if checked.damaged.is_empty() {
        print(&format!("Nothing is damaged: {kept} can be read.\n"))?;
        return Ok(Exit::Done);
    }
    let what = if done.is_some() { "Dropped" } else { "Damaged" };
    let mut text: String = checked.damaged.iter().map(|one| format!("{what}: {one}\n")).collect();
    text += &match &done {
        Some((_, was)) => format!("{kept} kept; the store as it was is {}\n", was.display()),
        None => {
            format!("{kept} would be kept. Drop what is damaged: netrig history --repair --yes{}\n", args.store.words())
        }
    };
    print(&look::shown(&text))?;
    Ok(Exit::Done)
}

/// The most damaged runs that are named beside an answer.
const NAMED: usize = 3;

/// Names the runs that an answer goes without, because they cannot be read.
pub(super) fn tell_unread(store: &Store) {
    let unread = store.unread();
    for one in unread.iter().take(NAMED) {
        note(format_args!("Damaged and left out: {one}"));
    }
    if unread.len() > NAMED {
        note(format_args!("{} more are: see `netrig history`", unread.len() - NAMED));
    }
}

/// The longest state of a run that a line of the list has room for.
const STATE: usize = 40;

/// The first line, cut to what a list has room for: the report says all.
fn brief(state: &str) -> String {
    let line = state.lines().next().unwrap_or_default();
    match line.char_indices().nth(STATE) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
    }
}

/// Removes a run without a question, and says what it was.
fn delete(name: &str, args: &StoreArgs) -> Result<Exit, Failure> {
    let name = name.parse().or_exit(Exit::BadInput)?;
    let path = open(args)?.path().to_owned();
    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
    let run = store.resolve(&name).and_then(|id| store.delete(id)).or_exit(Exit::BadInput)?;
    let label = run.label.map_or_else(String::new, |label| format!(" ({label})"));
    let trials = counted(run.stored_trials, "trial", "trials");
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

/// A stored run as its report needs it, and whether by calibration it was made on another machine than the store's other runs.
pub(super) fn view_among_others(store: &Store, id: RunId) -> Result<RunView, Failure> {
    let calibrated = store.calibrated().or_exit(Exit::Failed)?;
    let set_apart = set_apart(&calibrated).remove(&id);
    let run = store.run(id).or_exit(Exit::BadInput)?;
    tell_unread(store);
    Ok(RunView { set_apart, ..view(&run)? })
}

/// A stored run by itself.
pub fn view(run: &Run) -> Result<RunView, Failure> {
    let options = stored::options(run)?;
    if let Some(test) = &options.pairs {
        return Ok(pairs::report::of(run, &options, test)?.1);
    }
    Ok(match ends::document_of(run, &options) {
        Some((_, view)) => RunView { status: stored::status(run), options: options.words(), ..view },
        None => stored::view(run, &options)?,
    })
}

/// Trials of the latest complete run of a suite in this store: what its next run may expect. None where there is no
/// store or no such run.
pub(super) fn past(args: &StoreArgs, suite: &Suite) -> Result<Vec<TrialRecord>, Failure> {
    if !path_of(args)?.exists() {
        return Ok(Vec::new());
    }
    let store = open(args)?;
    let runs = store.runs().or_exit(Exit::Failed)?;
    let complete = runs.iter().rev().filter(|run| run.suite == suite.name && run.state == RunState::Complete);
    // A run that this netrig cannot read says nothing, and is no reason to measure nothing.
    let latest = complete.filter_map(|run| store.run(run.id).ok()).next();
    Ok(latest.map_or_else(Vec::new, |run| run.trials))
}
