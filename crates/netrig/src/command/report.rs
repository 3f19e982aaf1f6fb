//! `netrig report` and `netrig history`.

use std::fmt::Display;
use std::fs::{self, File, Permissions};
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use comfy_table::{CellAlignment, ContentArrangement, presets};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rig_stats::confidence::Level;
use rig_sys::cpu::CpuSet;
use tempfile::NamedTempFile;

use super::suites::{load_text, repeat_text};
use super::{done_or_closed, print};
use crate::claim::FigureRef;
use crate::cli::{OutputArgs, ReportArgs, StoreArgs};
use crate::exit::{Exit, Failure, OrExit};
use crate::figures::figure;
use crate::report::build;
use crate::report::document::{Claim, Document};
use crate::report::view::{Certainty, RunView, ScenarioView, Status};
use crate::report::{self, Options as Look};
use crate::run::{Options, Outcome, Settled};
use crate::store::{Run, RunState, Store};
use crate::suite::{Layout, Repeat, Suite};

/// Columns of a terminal report that does not go to a terminal.
const FILE_WIDTH: u16 = 100;

pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let name = args.run.parse().or_exit(Exit::BadInput)?;
    let store = open(&args.store)?;
    let run = store.resolve(name).and_then(|id| store.run(id)).or_exit(Exit::BadInput)?;
    let view = view(&run)?;
    let output = args.output.output.as_deref().map(create).transpose()?;
    write(&build::document(&view), &args.output, output)?;
    Ok(Exit::Done)
}

pub fn history(args: &StoreArgs) -> Result<Exit, Failure> {
    let runs = open(args)?.runs().or_exit(Exit::Failed)?;
    if runs.is_empty() {
        print("No run is stored yet: try `netrig run layers --quick`.\n")?;
        return Ok(Exit::Done);
    }
    let mut table = comfy_table::Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["run", "started", "took", "suite", "trials", "state"]);
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

fn local_time(unix_ms: i64) -> String {
    Timestamp::from_millisecond(unix_ms)
        .map(|time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

/// The store that the user named, or the default one. Looking needs no right to write.
fn open(args: &StoreArgs) -> Result<Store, Failure> {
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

/// Where a report goes: a path that cannot be written is refused before any work is done.
pub(super) struct Output {
    place: Place,
    path: PathBuf,
}

enum Place {
    /// A file that becomes the report when it is whole: an older report stays until there is a new one.
    Staged(NamedTempFile),
    /// A device or a pipe, which a file must not replace.
    Direct(File),
}

pub(super) fn create(path: &Path) -> Result<Output, Failure> {
    let refuse = |why: &dyn Display| Failure::new(Exit::BadInput, anyhow!("cannot write {}: {why}", path.display()));
    // What a link points to becomes the report, not the link.
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(refuse(&error)),
    };
    if path.is_dir() {
        return Err(refuse(&"it is a directory"));
    }
    if path.exists() && !path.is_file() {
        let device = File::options().write(true).open(&path).map_err(|error| refuse(&error))?;
        return Ok(Output { place: Place::Direct(device), path });
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // tempfile makes files private; a report is as readable as any other file.
    let file = tempfile::Builder::new()
        .prefix(".netrig-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)
        .map_err(|error| refuse(&error))?;
    Ok(Output { place: Place::Staged(file), path })
}

/// Writes the report where the user wants it.
pub(super) fn write(document: &Document, args: &OutputArgs, output: Option<Output>) -> Result<(), Failure> {
    let Some(Output { place, path }) = output else {
        let terminal = io::stdout().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let width = rig_sys::process::terminal_width().filter(|_| terminal);
        let look = Look { colour, width: width.unwrap_or(FILE_WIDTH) };
        let mut out = io::stdout().lock();
        return done_or_closed(report::write(document, args.format, look, &mut out).and_then(|()| out.flush()));
    };
    let look = Look { colour: false, width: FILE_WIDTH };
    let written = match place {
        Place::Staged(mut file) => report::write(document, args.format, look, &mut file)
            .and_then(|()| file.persist(&path).map(drop).map_err(|error| error.error)),
        Place::Direct(mut device) => report::write(document, args.format, look, &mut device),
    };
    written.with_context(|| format!("write {}", path.display())).or_exit(Exit::Failed)
}

/// A stored run as its report needs it.
pub fn view(run: &Run) -> Result<RunView, Failure> {
    let suite = Suite::parse(&run.suite_file, &run.suite_text)?;
    let options: Options = serde_json::from_value(run.options.clone())
        .with_context(|| format!("read the options of run {}", run.summary.id))
        .or_exit(Exit::Failed)?;
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
    let cpus: Vec<CpuSet> = options.cpus.iter().filter_map(|list| list.parse().ok()).collect();
    let chosen = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id);
    let scenarios = suite
        .scenarios
        .iter()
        .filter(|scenario| chosen(&scenario.id))
        .map(|scenario| ScenarioView {
            id: scenario.id.clone(),
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            notes: scenario.notes.clone(),
            topology: scenario.topology.draw(&cpus),
            load: load_text(scenario),
            trials: run.trials.iter().filter(|trial| trial.scenario == scenario.id).cloned().collect(),
            certainty: certainty(settled.iter().find(|s| s.scenario == scenario.id)),
        })
        .collect();
    let values = |wanted: &FigureRef| -> Option<Vec<f64>> {
        let trials = run.trials.iter().filter(|trial| trial.scenario == wanted.scenario);
        let values: Option<Vec<f64>> = trials.map(|trial| figure(trial, wanted.side, wanted.metric)).collect();
        values.filter(|values| !values.is_empty())
    };
    // A claim about a scenario that was left out on purpose says nothing.
    let claims = suite
        .claims
        .iter()
        .filter(|claim| claim.figures().iter().all(|figure| chosen(&figure.scenario)))
        .map(|claim| {
            let judgement = claim.evaluate(level, &values);
            Claim {
                text: claim.text().to_owned(),
                expression: claim.expression().to_owned(),
                verdict: judgement.verdict,
                words: judgement.words,
            }
        })
        .collect();
    Ok(RunView {
        id: run.summary.id.to_string(),
        suite: suite.name.clone(),
        title: suite.title.clone(),
        about: suite.about.clone(),
        started_unix_ms: run.summary.started_unix_ms,
        status: status(run),
        options: options.words(),
        phases: options.timing.phases,
        repetition: repeat_text(options.timing.repeat),
        level,
        environment: run.environment.clone(),
        rig_cost: run.rig_cost.clone(),
        scenarios,
        tables: tables(&suite, &chosen),
        claims,
    })
}

/// The suite's tables with the scenarios that were run.
fn tables(suite: &Suite, chosen: &dyn Fn(&str) -> bool) -> Vec<Layout> {
    let mut tables = suite.tables.clone();
    for table in &mut tables {
        table.columns.retain(|column| chosen(&column.scenario));
    }
    tables.retain(|table| !table.columns.is_empty());
    tables
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
