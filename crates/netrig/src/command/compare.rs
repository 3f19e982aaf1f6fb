//! `netrig compare`, and the comparison at the end of `netrig run --against`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::anyhow;
use clap::Args;
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_facts::store::{RunName, RunState};
use rig_report::Format;
use rig_report::document::Document;
use rig_stats::compare::Verdict;
use rig_stats::units::Percent;
use rig_verdict::compare::{self, Comparison, Input, MINIMUM_PERCENT, Options};
use rig_verdict::export::data;
use rig_verdict::export::{self, RunData};
use rig_verdict::view::RunView;

use super::arguments::{JudgeArgs, OutputArgs, StoreArgs};
use super::output::Output;
use super::report;

/// Undisturbed runs from which a noise floor is learnt at most: the most recent, since a machine changes.
const HISTORY: usize = 20;
/// Runs that are read for them at most, which takes time.
const READ: usize = 200;

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The earlier run: a number or label in `netrig history`, `latest`, `latest~1` for the one before, or a file that `netrig
    /// report --format json` wrote
    #[arg(default_value = "latest~1")]
    pub old: OsString,
    /// The later run, named in the same way
    #[arg(default_value = "latest")]
    pub new: OsString,
    /// Only these scenarios, e.g. A,B,D
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub only: Vec<String>,
    /// Everything: each figure, undecided ones too, and the method. Formats other than `terminal` always have all
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub judge: JudgeArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub store: StoreArgs,
}

pub fn compare(args: &CompareArgs) -> Result<Exit, Failure> {
    let output = Output::choose(args.output.output.as_deref())?;
    let options = options(&args.judge, args.only.clone())?;
    let (comparison, exit) = stored(&args.old, &args.new, &options, args.judge.fail_on_undecided, &args.store)?;
    let mut document = rig_report::comparison::document(&comparison);
    if args.output.format == Format::Terminal && !args.all {
        document = document.brief("Each figure and the method: the same command with --all");
    }
    output.write(&document, args.output.format)?;
    Ok(exit)
}

/// Compares two runs of the store, or of files, by the names that the user gave them.
pub(super) fn stored(
    old: impl AsRef<OsStr>,
    new: impl AsRef<OsStr>,
    options: &Options,
    fail_on_undecided: bool,
    store: &StoreArgs,
) -> Result<(Comparison, Exit), Failure> {
    let (old, new) = (input(old.as_ref(), store)?, input(new.as_ref(), store)?);
    let history = match compare::took_turns(&old.data, &new.data) {
        true => Vec::new(),
        false => history(store, &new.data.run.suite)?,
    };
    let comparison = compare::compare(&old, &new, &history, options).or_exit(Exit::BadInput)?;
    let exit = exit(&comparison, fail_on_undecided);
    Ok((comparison, exit))
}

/// What a run is to be held against, known before the run begins.
pub(super) struct ReferenceRun {
    old: Input,
    options: Options,
    fail_on_undecided: bool,
}

impl ReferenceRun {
    /// The run that the user named, or `None` where none was; refuses what could not be compared in the end.
    pub fn choose(
        against: Option<&OsStr>,
        judge: &JudgeArgs,
        store: &StoreArgs,
        suite: &str,
        scenarios: &[&str],
    ) -> Result<Option<Self>, Failure> {
        let Some(name) = against else {
            let given = [
                ("--metrics", !judge.metrics.is_empty()),
                ("--min-effect", judge.min_effect.is_some()),
                ("--level", judge.level.is_some()),
                ("--fail-on-undecided", judge.fail_on_undecided),
            ];
            return match given.iter().find(|(_, given)| *given) {
                None => Ok(None),
                Some((option, _)) => {
                    let error = anyhow!("{option} needs a run to compare with: add --against RUN");
                    Err(Failure::new(Exit::BadInput, error))
                }
            };
        };
        let old = input(name, store)?;
        compare::check(&old, "this run", suite, scenarios).or_exit(Exit::BadInput)?;
        let options = options(judge, Vec::new())?;
        Ok(Some(Self { old, options, fail_on_undecided: judge.fail_on_undecided }))
    }

    /// Compares the run that was made.
    fn compare(&self, view: &RunView, store: &StoreArgs) -> Result<(Comparison, Exit), Failure> {
        let new = Input { name: format!("run {}", view.id), data: data(view) };
        let history = history(store, &view.suite)?;
        let comparison = compare::compare(&self.old, &new, &history, &self.options).or_exit(Exit::Failed)?;
        let exit = exit(&comparison, self.fail_on_undecided);
        Ok((comparison, exit))
    }

    /// Compares the run that was made, in the document of its report; or says there why that cannot be.
    pub fn add_to(
        &self,
        document: &mut Document,
        view: &RunView,
        store: &StoreArgs,
    ) -> Result<(Comparison, Exit), Failure> {
        let compared = self.compare(view, store);
        match &compared {
            Ok((comparison, _)) => rig_report::comparison::append(document, comparison),
            Err(failure) => rig_report::comparison::append_failure(document, &self.old.name, &in_words(&failure.error)),
        }
        compared
    }
}

pub(super) fn options(judge: &JudgeArgs, only: Vec<String>) -> Result<Options, Failure> {
    let minimum = match judge.min_effect {
        Some(minimum) => minimum,
        None => Percent::new(MINIMUM_PERCENT).or_exit(Exit::Failed)?,
    };
    Ok(Options { level: judge.level.unwrap_or_default(), minimum, only, metrics: judge.metrics.clone() })
}

fn exit(comparison: &Comparison, fail_on_undecided: bool) -> Exit {
    // What is only watched decides nothing.
    let any = |verdict| comparison.figures.iter().any(|figure| figure.gates && figure.verdict == verdict);
    match comparison {
        _ if any(Verdict::Worse) => Exit::Refuted,
        _ if any(Verdict::Undecided) && fail_on_undecided => Exit::Undecided,
        _ => Exit::Done,
    }
}

/// A run from the store, or from a file that a report was written to.
fn input(name: &OsStr, store: &StoreArgs) -> Result<Input, Failure> {
    let path = Path::new(name);
    let name = name.to_string_lossy();
    let from_file = || {
        let data = export::read(path).or_exit(Exit::BadInput)?;
        Ok(Input { name: name.clone().into_owned(), data })
    };
    let run = match name.parse::<RunName>() {
        // A word may be a label or a file: the store's labels come first.
        Ok(run @ RunName::Label(_)) if path.is_file() && !has(store, &run) => return from_file(),
        Ok(run) => run,
        Err(_) if path.exists() => return from_file(),
        Err(error) => {
            let error = anyhow!("{error}, or a file that `netrig report --format json` wrote");
            return Err(Failure::new(Exit::BadInput, error));
        }
    };
    let store = report::open(store)?;
    let run = store.resolve(&run).and_then(|id| store.run(id)).or_exit(Exit::BadInput)?;
    let data = data(&report::view(&run)?);
    Ok(Input { name: format!("run {}", data.run.id), data })
}

/// Whether the store has a run of this name.
fn has(store: &StoreArgs, run: &RunName) -> bool {
    report::open(store).is_ok_and(|store| store.resolve(run).is_ok())
}

/// The most recent complete runs of a suite, for the noise floor, with those among them that were disturbed. Without a store, as where
/// two files are compared, there are none, also where one is named that is still to be made.
fn history(args: &StoreArgs, suite: &str) -> Result<Vec<RunData>, Failure> {
    if !report::path_of(args).is_ok_and(|path| path.exists()) {
        return Ok(Vec::new());
    }
    let store = report::open(args)?;
    let mut runs = store.runs().or_exit(Exit::Failed)?;
    report::tell_unread(&store);
    runs.retain(|run| run.suite == suite && run.state == RunState::Complete);
    // A run that this netrig cannot read says nothing about noise, and is no reason to compare nothing.
    let readable = |id| report::view(&store.run(id).ok()?).ok();
    let latest_first = runs.iter().rev().map(|run| readable(run.id).map(|view| data(&view)));
    Ok(enough(latest_first, compare::is_undisturbed))
}

/// Runs until [`HISTORY`] of them are sound or [`READ`] were tried, the earliest first; `None` is one that cannot be read.
fn enough<T>(latest_first: impl Iterator<Item = Option<T>>, is_sound: impl Fn(&T) -> bool) -> Vec<T> {
    let mut sound = 0;
    let mut runs = Vec::new();
    for run in latest_first.take(READ).flatten() {
        sound += usize::from(is_sound(&run));
        runs.push(run);
        if sound == HISTORY {
            break;
        }
    }
    runs.reverse();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noise_floor_is_learnt_from_as_many_undisturbed_runs_however_many_were_disturbed_since() {
        let all = || 0..100_usize;
        let since = |disturbed: std::ops::Range<usize>| enough(all().rev().map(Some), |run| !disturbed.contains(run));
        assert_eq!(since(0..0), (80..100).collect::<Vec<_>>());
        assert_eq!(since(75..95), (60..100).collect::<Vec<_>>(), "those in between are told as disturbed");
        assert_eq!(since(5..100), all().collect::<Vec<_>>(), "there are no more");
    }

    #[test]
    fn no_more_runs_are_read_than_takes_long() {
        let all = || 0..250_usize;
        assert_eq!(enough(all().rev().map(Some), |_| false), (50..250).collect::<Vec<_>>());
        // Runs that cannot be read count, too: to try them takes time.
        let odd = |run: usize| (run % 2 == 1).then_some(run);
        assert_eq!(enough(all().rev().map(odd), |_| false), (50..250).filter_map(odd).collect::<Vec<_>>());
    }
}
