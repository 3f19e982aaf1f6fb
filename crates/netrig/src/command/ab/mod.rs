//! `netrig ab`: two variants measured in one stretch of time, trial by trial in turn.

mod side;
mod test;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{ArgAction, Args};
use jiff::Timestamp;
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser, in_words};
use rig_cli::streams::note;
use rig_facts::record::ab_run::{AbRun, Side};
use rig_facts::store::Label;
use rig_load::driver::Cancel;
use rig_report::Format;
use rig_run::run::{TurnLimit, TurnsProgress};
use rig_stats::units::Span;
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;

use self::side::{Run, SideExit, shell};
use super::arguments::{JudgeArgs, OutputArgs, StoreArgs};
use super::hosts::{self, NodeOnHost};
use super::output::Output;
use super::run::{Length, before};
use super::{cancel_on_signal, compare, report, usable_cpus};

const TIME: Duration = Duration::from_secs(300);

#[derive(Debug, Args)]
pub struct AbArgs {
    /// A suite's name or file, or a test: `stream`, `rr`, `udp`
    pub suite: OsString,
    /// The server of the old side's test
    #[arg(long, value_name = "HOST")]
    pub old_client: Option<String>,
    /// The server of the new side's test
    #[arg(long, value_name = "HOST")]
    pub new_client: Option<String>,
    /// Run the old side's test under a command, e.g. 'nsenter -t 4711 -n'
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub old_under: Option<String>,
    /// Run the new side's test under a command
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub new_under: Option<String>,
    /// Shell command that makes the machine the old variant
    #[arg(long, value_name = "COMMAND")]
    pub old: Option<String>,
    /// Shell command that makes the machine the new variant
    #[arg(long, value_name = "COMMAND")]
    pub new: Option<String>,
    /// Shell command in a node of the old variant's testbed
    #[arg(
        long, num_args = 2, value_names = ["NODE", "SH"], action = ArgAction::Append, allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub old_in: Vec<String>,
    /// Shell command in a node of the new variant's testbed
    #[arg(long, num_args = 2, value_names = ["NODE", "SH"], action = ArgAction::Append, allow_hyphen_values = true)]
    pub new_in: Vec<String>,
    /// A node of the old side on a host: `netrig run --on`
    #[arg(long, value_name = "NODE=HOST", hide_short_help = true)]
    pub old_on: Vec<NodeOnHost>,
    /// A node of the new side on a host: `netrig run --on`
    #[arg(long, value_name = "NODE=HOST")]
    pub new_on: Vec<NodeOnHost>,
    /// How hosts are reached [default: ~/.config/netrig/hosts.toml]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub hosts: Option<PathBuf>,
    /// Shell command at the end, however the runs end
    #[arg(long, value_name = "COMMAND", hide_short_help = true)]
    pub after: Option<String>,
    /// The netrig of the old variant [default: this one]
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    pub old_program: Option<PathBuf>,
    /// The netrig of the new variant [default: this one]
    #[arg(long, value_name = "PATH")]
    pub new_program: Option<PathBuf>,
    /// Only these scenarios, e.g. A,B,D
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub only: Vec<String>,
    /// Measure for this long in all, e.g. 10m [default: 5m]
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["trials", "quick"])]
    pub budget: Option<Span>,
    /// Exactly this many trials of each scenario and side
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: Option<u32>,
    /// A first look: short windows, few trials
    #[arg(long)]
    pub quick: bool,
    /// Measure for this long in each trial, e.g. 2s
    #[arg(long, value_name = "SPAN", hide_short_help = true)]
    pub window: Option<Span>,
    /// Name the runs LABEL-old and LABEL-new
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// Seed of the order of trials [default: a new one]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
    /// CPUs for the nodes, e.g. 0-3 [default: all allowed]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    pub cpus: Option<CpuSet>,
    /// Also sample what each layer costs; FILE adds layers
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "FILE", hide_short_help = true)]
    pub layers: Option<Option<PathBuf>>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub judge: JudgeArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    /// A test's options, as of `netrig stream`, for both
    #[arg(last = true, value_name = "TEST-OPTION")]
    pub options: Vec<OsString>,
}

impl AbArgs {
    /// For both runs; `None` where numbers of trials are asked for.
    fn time(&self) -> Option<Duration> {
        (self.trials.is_none() && !self.quick).then(|| self.budget.map_or(TIME, |span| span.0))
    }

    /// Of a side, where it is not this one.
    fn program(&self, side: Side) -> Option<&Path> {
        if side == Side::Old { self.old_program.as_deref() } else { self.new_program.as_deref() }
    }

    /// Where a side's nodes are, unless they are this process's own.
    fn on(&self, side: Side) -> &[NodeOnHost] {
        if side == Side::Old { &self.old_on } else { &self.new_on }
    }
}

pub fn ab(args: &AbArgs) -> Result<Exit, Failure> {
    // What can be refused is refused once, before two processes do.
    let is_test = test::is_asked(args)?;
    let trials = if is_test { test::trials(args) } else { trials_of_suite(args)? };
    let at_most = args.time().map_or(TurnLimit::Trials(trials), TurnLimit::For);
    usable_cpus(args.cpus.as_ref())?;
    refuse_hosts(args)?;
    let output = Output::choose(args.output.output.as_deref())?;
    let options = compare::options(&args.judge, Vec::new())?;
    let labels = labels(args.label.as_ref())?;
    let store = report::path_of(&args.store)?;
    let cancel = cancel_on_signal()?;

    let pair = RunPair {
        is_test,
        name: format!("{:x}", Timestamp::now().as_millisecond()),
        seed: args.seed.unwrap_or_else(|| Timestamp::now().as_nanosecond() as u64 & 0xffff_ffff),
        labels,
        store,
    };
    let made = make(args, at_most, &pair, &cancel);
    // Also after an error, since the command leaves the machine as the user wants it.
    let after = args.after.as_deref().map_or(Ok(()), |after| shell(after).context("the command at the end"));
    if let (Err(_), Err(error)) = (&made, &after) {
        note(in_words(error));
    }
    let [old, new] = made?;
    after.or_exit(Exit::Failed)?;
    let (comparison, exit) = compare::stored(&old, &new, &options, args.judge.fail_on_undecided, &args.store)?;
    let mut document = rig_report::comparison::document(&comparison);
    let at = args.store.words();
    let again = format!("netrig compare {old} {new} --all{at}");
    if args.output.format == Format::Terminal {
        document = document.brief(&format!("Each figure and the method: {again}"));
    }
    output.write(&document, args.output.format)?;
    if !args.quiet {
        note(format_args!("Next, what a variant does by itself: netrig report {new}{at}"));
    }
    Ok(exit)
}

fn refuse_hosts(args: &AbArgs) -> Result<(), Failure> {
    let sides = [&args.old_on, &args.new_on].into_iter().filter(|nodes| !nodes.is_empty());
    let mut refused = sides.clone().try_for_each(|nodes| hosts::refuse(nodes));
    if args.hosts.is_some() && sides.count() == 0 {
        refused = Err(anyhow!("--hosts says how hosts are reached, and none is named: --old-on or --new-on does"));
    }
    refused.or_exit(Exit::BadInput)
}

/// The most that a run makes.
fn trials_of_suite(args: &AbArgs) -> Result<u32, Failure> {
    let mut suite = Suite::load(&args.suite)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    if !args.only.is_empty() {
        suite = suite.only(&args.only)?;
    }
    for inside in [&args.old_in, &args.new_in] {
        suite.clone().with_before(&before(inside))?;
    }
    let length = Length { quick: args.quick, window: args.window.map(|window| window.0), trials: args.trials };
    let (suite, timing) = length.of(suite)?;
    Ok(suite.most_trials(timing.repeat))
}

/// What both runs have in common.
struct RunPair {
    is_test: bool,
    name: String,
    seed: u64,
    labels: [Option<Label>; 2],
    store: PathBuf,
}

fn labels(label: Option<&Label>) -> Result<[Option<Label>; 2], Failure> {
    let Some(label) = label else { return Ok([None, None]) };
    let of = |side: Side| format!("{label}-{side}").parse::<Label>().map(Some).or_exit(Exit::BadInput);
    Ok([of(Side::Old)?, of(Side::New)?])
}

/// Makes both runs and tells their numbers, the old one's first.
fn make(args: &AbArgs, at_most: TurnLimit, pair: &RunPair, cancel: &Cancel) -> Result<[String; 2], Failure> {
    let start = |side: Side| -> Result<Run, Failure> {
        let command = if side == Side::Old { &args.old } else { &args.new };
        Run::start(program(args, pair, side)?, side, command.clone(), cancel.clone()).map_err(|e| failure(e, args))
    };
    // One after the other, so that what one lacks is told once, and neither measures its own cost beside the other.
    let mut old = start(Side::Old)?;
    let mut new = start(Side::New)?;
    let numbers = [&old, &new].map(|run| run.number.clone().unwrap_or_default());
    let [old_number, new_number] = &numbers;
    let mut progress = TurnsProgress::new(at_most, args.quiet);
    progress.note(&format!(
        "Run {old_number} is the old variant, run {new_number} the new one: {} in turn",
        args.suite.display()
    ));
    let took = take_turns(at_most, [&mut old, &mut new], &mut progress);
    progress.finish();
    let ended = took.and_then(|()| old.end()).and_then(|()| new.end());
    let Err(error) = ended else { return Ok(numbers) };
    // They keep what they have, which takes a moment.
    drop((old, new));
    let [old, new] = numbers;
    Err(failure(error, args)
        .with_next(format!("finished trials are kept: netrig compare {old} {new}{}", args.store.words())))
}

/// A trial of each in turn, until one has no more to make or the time is up.
fn take_turns(at_most: TurnLimit, mut runs: [&mut Run; 2], progress: &mut TurnsProgress) -> anyhow::Result<()> {
    let begun = Instant::now();
    let is_time_up = || matches!(at_most, TurnLimit::For(time) if begun.elapsed() >= time);
    while !runs.iter().any(|run| run.is_over) && !is_time_up() {
        for run in &mut runs {
            run.turn()?;
        }
        // The order changes (old, new, new, old), so that a machine that gets slower favours neither run.
        runs.reverse();
        progress.turn_done();
    }
    Ok(())
}

/// The command line of one of the runs.
fn program(args: &AbArgs, pair: &RunPair, side: Side) -> Result<Command, Failure> {
    let (command, label) = match side {
        Side::Old => (&args.old, &pair.labels[0]),
        Side::New => (&args.new, &pair.labels[1]),
    };
    let own = || std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed);
    let program = match args.program(side) {
        Some(path) => named(path)?,
        None => own()?,
    };
    let mut under = test::under(args, side);
    let mut run = match under.next() {
        None => Command::new(program),
        Some(first) => {
            let mut run = Command::new(first);
            run.args(under).arg(program);
            run
        }
    };
    let turns = AbRun { pair: pair.name.clone(), side, command: command.clone().unwrap_or_default() };
    if pair.is_test {
        run.arg(&args.suite).args(["--in-turn", &turns.to_string(), "--quiet"]);
        test::tell(&mut run, args, side);
    } else {
        run.arg("run").arg(&args.suite).args(["--in-turn", &turns.to_string(), "--no-aa", "--quiet"]);
        run.args(["--seed", &pair.seed.to_string()]);
        run.args(args.time().map(|time| format!("--budget={}ms", (time / 2).as_millis())));
        run.args(args.quick.then_some("--quick"));
        run.args(args.trials.map(|trials| format!("--trials={trials}")));
        run.args(args.window.map(|window| format!("--window={window}")));
        let inside = if side == Side::Old { &args.old_in } else { &args.new_in };
        for one in inside.chunks(2) {
            run.arg("--in").args(one);
        }
        let on = args.on(side);
        run.args(on.iter().map(|node| format!("--on={node}")));
        if let Some(hosts) = args.hosts.as_ref().filter(|_| !on.is_empty()) {
            run.arg("--hosts").arg(hosts);
        }
    }
    run.arg("--store").arg(&pair.store);
    if !args.only.is_empty() {
        run.args(["--only", &args.only.join(",")]);
    }
    run.args(label.as_ref().map(|label| format!("--label={label}")));
    run.args(args.cpus.as_ref().map(|cpus| format!("--cpus={cpus}")));
    match &args.layers {
        None => {}
        Some(None) => drop(run.arg("--layers")),
        Some(Some(file)) => drop(run.arg(format!("--layers={}", file.display()))),
    }
    Ok(run)
}

/// A program as the user named it, which a bare name in this directory is, too.
fn named(path: &Path) -> Result<PathBuf, Failure> {
    let found = path.canonicalize().with_context(|| format!("find the program {}", path.display()));
    found.or_exit(Exit::BadInput)
}

/// With the status of the run that failed, which told why.
fn failure(error: anyhow::Error, args: &AbArgs) -> Failure {
    let of_run = error.downcast_ref::<SideExit>().and_then(|ended| Some((ended.side, ended.status?)));
    match of_run {
        _ if error.is::<StoppedByUser>() => Failure::new(Exit::Stopped, error),
        Some((_, 3)) => Failure::new(Exit::Lacking, error),
        // Another build may not have the option that it is started with.
        Some((side, 2)) if args.program(side).is_some() => {
            let next = format!("the {side} side's netrig has to know `netrig ab` itself");
            Failure::new(Exit::BadInput, error).with_next(next)
        }
        Some((_, 2)) => {
            let failure = Failure::new(Exit::BadInput, error);
            if args.time().is_some() && args.old_client.is_none() {
                failure.with_next("each run has half of the time of --budget")
            } else {
                failure
            }
        }
        _ => Failure::new(Exit::Failed, error),
    }
}
