//! `netrig run`.

use std::ffi::OsString;
use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::{ArgAction, Args, ValueEnum};
use jiff::Timestamp;
use rig_cli::exit::Stopped;
use rig_cli::exit::{Exit, Failure, OrExit, in_words};
use rig_cli::streams::{note, print};
use rig_facts::claim::Verdict;
use rig_facts::layers::Map;
use rig_facts::record::settled::{Outcome, Settled};
use rig_facts::record::{Before, Environment, TrialRecord};
use rig_facts::record::{LeftOut, Turns};
use rig_facts::store::{Ending, Label, NewRun, Store};
use rig_report::{Format, build};
use rig_run::run::budget::{FirstBlocks, Forecast, Learnt};
use rig_run::run::turns::{InTurn, Said, Starter};
use rig_run::run::{
    self, Execute, NothingLeft, Plan, Progress, Rig, TriedOut, Unmade, Without, add, leave_out, why_not_here,
    why_not_on,
};
use rig_stats::blocks::order;
use rig_stats::units::Span;
use rig_suite::options::Options;
use rig_suite::suite::{Repeat, Suite, Timing};
use rig_sys::cpu::CpuSet;
use rig_sys::perf;
use rig_testbed::Placement;
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, Local, Remote};
use rig_verdict::compare::Comparison;

use super::arguments::{HEADING, JudgeArgs, OutputArgs, StoreArgs};
use super::compare::Against;
use super::output::Output;
use super::{cancel_on_signal, gain_privilege, report, usable_cpus};
use crate::BUILD;
use crate::doctor::{Obstacles, Purpose};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A built-in suite's name or a suite file's path
    pub suite: OsString,
    /// A first look: short windows, few trials, wide intervals
    #[arg(long)]
    pub quick: bool,
    /// Only these scenarios, e.g. A,B,D
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub only: Vec<String>,
    /// Measure for this long in each trial, e.g. 5s
    #[arg(long, value_name = "SPAN")]
    pub window: Option<Span>,
    /// Make exactly this many trials of each scenario
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub trials: Option<u32>,
    /// Spend this time on undecided claims, e.g. 5m
    #[arg(long, value_name = "SPAN", conflicts_with_all = ["trials", "quick"])]
    pub budget: Option<Span>,
    /// Seed of the order of trials [default: a new one]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub seed: Option<u64>,
    /// Run a scenario twice and claim both are the same
    #[arg(long, value_name = "ID", hide_short_help = true)]
    pub again: Vec<String>,
    /// Leave out the A/A check: no scenario is measured twice
    #[arg(long, hide_short_help = true)]
    pub no_aa: bool,
    /// Name the run, for `report`, `compare` and --against
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// End with status 1 if a claim does not hold
    #[arg(long)]
    pub gate: bool,
    /// CPUs for the nodes, e.g. 0-3 [default: all allowed]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Where the nodes are
    #[arg(long, value_enum, default_value_t, value_name = "HOST", hide_short_help = true)]
    pub host: HostKind,
    /// Also sample what each layer costs; FILE adds layers
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "FILE")]
    pub layers: Option<Option<PathBuf>>,
    /// Run a shell command in a node before each trial
    #[arg(
        long = "in", num_args = 2, value_names = ["NODE", "SH"], action = ArgAction::Append, allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub inside: Vec<String>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Take turns with another run, as whoever started both says on standard input
    #[arg(long, hide = true, value_name = "PAIR:SIDE:COMMAND")]
    pub in_turn: Option<Turns>,
    /// Compare with a run: number, label or JSON file
    ///
    /// Ends with status 1 if something is worse than in that earlier run.
    #[arg(long, help_heading = HEADING, value_name = "RUN")]
    pub against: Option<OsString>,
    #[command(flatten)]
    pub judge: JudgeArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Where nodes may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum HostKind {
    /// Namespaces of this process
    #[default]
    Local,
    /// Namespaces of another process of this machine, by the protocol for other machines
    Child,
}

impl HostKind {
    fn start(self, program: &Path) -> anyhow::Result<Box<dyn Host>> {
        Ok(match self {
            Self::Local => Box::new(Local::new()?.with_program(program.to_owned())),
            Self::Child => Box::new(Remote::child(program)?),
        })
    }
}

pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let (mut suite, asked_timing) = choose(args)?;
    let layers = layers(args)?;
    let gate = args.gate || suite.gate;
    let cpus = usable_cpus(args.cpus.as_ref())?;
    let path = report::path_of(&args.store)?;
    // Everything that can be refused is refused before the first packet: the files here, the privileges below.
    let output = Output::choose(args.output.output.as_deref())?;
    let scenarios: Vec<&str> = suite.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
    let against = Against::choose(args.against.as_deref(), &args.judge, &args.store, &suite.name, &scenarios)?;
    let rootless = gain_privilege()?;
    let program = std::env::current_exe().context("find netrig's own program").or_exit(Exit::Failed)?;
    let host = args.host.start(&program).or_exit(Exit::Failed)?;
    let cores = host.facts().or_exit(Exit::Failed)?.cores;
    let placement = Placement::new(&cpus, &cores, suite.nodes).or_exit(Exit::Lacking)?;
    let obstacles = Obstacles::look_for(&suite.scenarios, Purpose::Run);
    let tried_out = TriedOut::new(rig_datapaths::ALL);
    let mut left_out = leave_out(&mut suite, &|scenario| {
        why_not_on(scenario, host.as_ref())
            .or_else(|| why_not_here(scenario, &placement, rig_datapaths::ALL, Machine { rootless }))
            .or_else(|| obstacles.why_not(scenario))
            .or_else(|| scenario.profile.then(perf::probe)?.err().map(|error| format!("sample stacks: {error}")))
            .or_else(|| tried_out.why_not(scenario))
    });
    NothingLeft::refuse(&suite, &left_out).or_exit(Exit::Lacking)?;
    let mut past = past(args, &suite)?;
    // What cannot be planned at all is refused before anything is built.
    plan(args, &suite, asked_timing, &past)?;
    let started = Timestamp::now();
    // Which order is drawn does not matter, only that nobody chose it.
    let seed = args.seed.unwrap_or_else(|| started.as_nanosecond() as u64 & 0xffff_ffff);
    let cancel = cancel_on_signal()?;
    let elsewhere = (args.host != HostKind::Local).then(|| host.name().to_owned());
    let mut rig = Rig::on(host, &cpus, suite.nodes, cancel.clone(), rig_datapaths::ALL).or_exit(Exit::Lacking)?;
    match layers {
        Some(map) => rig.divide_by(map).or_exit(Exit::Lacking)?,
        None if suite.scenarios.iter().any(|scenario| scenario.profile) => {
            rig.prepare_samples().context("sample stacks, as `profile = true` asks").or_exit(Exit::Lacking)?;
        }
        None => {}
    }
    rig.rehearse(&suite).or_exit(Exit::Lacking)?;
    let cpu_time = Some(rig.accounting().or_exit(Exit::Failed)?);
    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
    past = first_blocks(args, &mut suite, asked_timing, past, &mut rig, (seed, &mut left_out))?;
    NothingLeft::refuse(&suite, &left_out).or_exit(Exit::Lacking)?;
    let (mut timing, mut forecast) = plan(args, &suite, asked_timing, &past)?;
    let mut aa = None;
    let twin = suite.twin(&timing).map(|scenario| scenario.id.clone());
    if let Some(id) = twin.filter(|_| !args.no_aa && args.again.is_empty()) {
        let twice = suite.clone().with_twin(&id);
        // Within a time, what is measured twice leaves fewer blocks.
        if let Ok((of_both, forecast_of_both)) = plan(args, &twice, asked_timing, &past)
            && suite.twin(&of_both).is_some()
        {
            (suite, timing, forecast, aa) = (twice, of_both, forecast_of_both, Some(id));
        }
    }
    let id = store
        .begin_run(&NewRun {
            suite: suite.name.clone(),
            title: suite.title.clone(),
            suite_file: suite.file.clone(),
            suite_text: suite.text.clone(),
            options: serde_json::to_value(Options {
                quick: args.quick,
                only: args.only.clone(),
                cpus: rig.placement().all().iter().map(ToString::to_string).collect(),
                timing,
                seed: Some(seed),
                again: args.again.clone(),
                aa: aa.clone(),
                left_out: left_out.clone(),
                host: elsewhere,
                label: args.label.clone(),
                gate,
                turns: args.in_turn.clone(),
                ends: None,
                inside: before(&args.inside),
            })
            .context("describe the run")
            .or_exit(Exit::Failed)?,
            environment: Environment { cpu_time, ..run::environment(rootless, BUILD) },
            planned_trials: suite.most_trials(timing.repeat),
            started_unix_ms: started.as_millisecond(),
        })
        .or_exit(Exit::Failed)?;

    let mut progress = Progress::new(&suite, &timing, args.quiet);
    progress.note(&format!("Run {id}: {}", suite.title));
    if let Some(forecast) = &forecast {
        progress.note(&forecast.to_string());
    }
    if let Some(id) = &aa {
        progress.note(&format!("A/A check: {id} is measured twice in each block"));
    }
    for one in &left_out {
        progress.note(&format!("Not in this run: {one}"));
    }
    let mut settled = Vec::new();
    let mut without = Without::of(&mut store, id, &mut left_out);
    let plan = Plan { suite: &suite, timing: &timing, seed, rests: args.in_turn.is_none() };
    let result = match args.in_turn {
        None => measure(&plan, id, &mut rig, &mut progress, &mut settled, &mut without),
        Some(_) => {
            let starter = Starter { from: stdin().lock(), to: stdout().lock(), cancel };
            let mut in_turn = InTurn { execute: &mut rig, starter };
            let told = in_turn.starter.say(&Said::Run(id.to_string()));
            told.and_then(|()| measure(&plan, id, &mut in_turn, &mut progress, &mut settled, &mut without))
        }
    };
    progress.finish();
    let ending = match &result {
        Ok(()) => Ending::Complete,
        Err(error) if error.is::<Stopped>() => Ending::Interrupted,
        Err(error) => Ending::Failed { reason: in_words(error) },
    };
    suite.scenarios.retain(|scenario| !without.has(&scenario.id));
    let measured = settled.iter().any(|settled| settled.trials > 0);
    let goals =
        serde_json::to_value(with_unfinished(&suite, settled)).context("describe the run").or_exit(Exit::Failed)?;
    let finished = store.finish_run(id, &ending, Some(&goals), Timestamp::now().as_millisecond());
    let again = report::again(&id.to_string(), &args.store);
    if let Err(error) = result {
        // Who started both says it once.
        if args.in_turn.is_some() && error.is::<Stopped>() {
            return Ok(Exit::Stopped);
        }
        let failure = match error.is::<NothingLeft>() {
            true => Failure::new(Exit::Lacking, error),
            false => Failure::from(error),
        };
        return Err(if measured { failure.with_next(format!("finished trials are kept: {again}")) } else { failure });
    }
    finished.or_exit(Exit::Failed)?;
    if args.in_turn.is_some() {
        // Who started it compares and reports.
        print(&format!("{}\n", Said::Over))?;
        return Ok(Exit::Done);
    }

    let view = report::view_among_others(&store, id)?;
    let mut document = build::document(&view);
    let compared = against.map(|against| against.compare(&view, &args.store)).transpose()?;
    if let Some((comparison, _)) = &compared {
        rig_report::comparison::append(&mut document, comparison);
    }
    if args.output.format == Format::Terminal {
        document = document.brief(&format!("Tables, single trials, doubts and method: {again} --all"));
    }
    output.write(&document, args.output.format)?;
    if !args.quiet {
        note(next(&id.to_string(), &args.store, compared.as_ref().map(|(comparison, _)| comparison)));
    }
    let fails = |verdict| matches!(verdict, Verdict::Refuted | Verdict::Differs);
    let failed = view.claims.iter().filter(|claim| fails(claim.verdict)).count();
    if gate && failed > 0 && !args.quiet {
        note(format_args!("Status 1: {failed} of {} claims do not hold, and this run has a gate", view.claims.len()));
    }
    Ok(match compared {
        _ if gate && failed > 0 => Exit::Refuted,
        Some((_, exit)) => exit,
        None => Exit::Done,
    })
}

/// What to do with the run, in one line.
fn next(id: &str, store: &StoreArgs, compared: Option<&Comparison>) -> String {
    let at = store.words();
    match compared {
        None => format!("Next, as a page: netrig report {id} --format html --output run-{id}.html{at}"),
        Some(comparison) => {
            let old = comparison.old.name.strip_prefix("run ").unwrap_or(&comparison.old.name);
            format!("Next, figure by figure: netrig compare {old} {id} --all{at}")
        }
    }
}

fn measure(
    plan: &Plan<'_>,
    id: rig_facts::store::RunId,
    rig: &mut dyn Execute,
    progress: &mut Progress,
    settled: &mut Vec<Settled>,
    without: &mut Without<'_>,
) -> anyhow::Result<()> {
    progress.note("Measuring what netrig itself costs, without load");
    run::rig_cost(plan, id, rig, progress, without)?;
    run::run(plan, id, rig, progress, settled, without)
}

/// The map from functions to layers, where costs by layer are asked for.
fn layers(args: &RunArgs) -> Result<Option<Map>, Failure> {
    Ok(match &args.layers {
        None => None,
        Some(None) => Some(Map::built_in()),
        Some(Some(path)) => {
            let text = rig_cli::mistakes::read_text(path);
            let text = text.with_context(|| format!("read {}", path.display())).or_exit(Exit::BadInput)?;
            Some(Map::extended(&path.display().to_string(), &text).or_exit(Exit::BadInput)?)
        }
    })
}

/// The suite and timing that the command line asks for.
fn choose(args: &RunArgs) -> Result<(Suite, Timing), Failure> {
    let mut suite = Suite::load(&args.suite)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    if !args.only.is_empty() {
        suite = suite.only(&args.only)?;
    }
    let suite = suite.with_before(&before(&args.inside))?;
    timed(suite.again(&args.again)?, args.quick, args.window, args.trials)
}

/// Commands in nodes, as the command line has them: node and command in turn.
pub(super) fn before(said: &[String]) -> Vec<Before> {
    let one = |[node, command]: &[String; 2]| Before { node: node.clone(), command: command.clone() };
    said.as_chunks().0.iter().map(one).collect()
}

/// The suite, with the timing that is asked for.
pub(super) fn timed(
    mut suite: Suite,
    quick: bool,
    window: Option<Span>,
    trials: Option<u32>,
) -> Result<(Suite, Timing), Failure> {
    let mut timing = if quick {
        let hint = || anyhow!("suite '{}' has no [quick] timing: run it without --quick", suite.name);
        suite.quick.ok_or_else(hint).or_exit(Exit::BadInput)?
    } else {
        suite.timing
    };
    if quick {
        suite.hasten();
    }
    if let Some(window) = window {
        timing = timing.with_window(window.0).map_err(|error| anyhow!("--window: {error}")).or_exit(Exit::BadInput)?;
        suite.check_window(window.0).map_err(|error| anyhow!("--window: {error}")).or_exit(Exit::BadInput)?;
    }
    if let Some(trials) = trials {
        suite.scenarios.iter_mut().for_each(|scenario| scenario.trials_max = None);
        timing.repeat = Repeat::Times(trials);
    }
    Ok((suite, timing))
}

/// Trials to plan a time by.
struct Past {
    trials: Vec<TrialRecord>,
    learnt: Learnt,
}

/// What runs before this one let it expect, where it is to plan its time.
fn past(args: &RunArgs, suite: &Suite) -> Result<Past, Failure> {
    let trials = match args.budget {
        Some(_) => report::past(&args.store, suite)?,
        None => Vec::new(),
    };
    let learnt = if trials.is_empty() { Learnt::Nothing } else { Learnt::Before(trials.len()) };
    Ok(Past { trials, learnt })
}

/// Short blocks where nothing is known, so that a first run, too, plans by how this machine scatters. They are no part of the run, nor
/// of its time: the plan was chosen by them. What cannot be made is taken out of the suite.
fn first_blocks(
    args: &RunArgs,
    suite: &mut Suite,
    asked: Timing,
    past: Past,
    rig: &mut Rig,
    (seed, left_out): (u64, &mut Vec<LeftOut>),
) -> Result<Past, Failure> {
    // Of two runs that take turns neither may be at work while the other is.
    let is_wanted = past.learnt == Learnt::Nothing && args.in_turn.is_none();
    let Some(time) = args.budget.filter(|_| is_wanted) else { return Ok(past) };
    let Some(first) = FirstBlocks::of(suite, &asked, time.0) else { return Ok(past) };
    if !args.quiet {
        note(format_args!("No complete run of this suite is stored: {first} show first how trials scatter here"));
    }
    let begin = Instant::now();
    let mut trials = Vec::new();
    for block in 0..first.blocks {
        // What takes longer than was thought is not worth it.
        if block > 1 && begin.elapsed() > first.most {
            break;
        }
        for index in order(seed, block, suite.scenarios.len()) {
            let scenario = &suite.scenarios[index];
            if left_out.iter().any(|one| one.scenarios.contains(&scenario.id)) {
                continue;
            }
            let record = rig.trial(scenario, block + 1, &first.timing, &mut |_, _| ());
            let unmade = record.as_ref().err().and_then(|error| error.downcast_ref::<Unmade>());
            if let (0, Some(unmade)) = (block, unmade) {
                add(left_out, &scenario.id, unmade.reason());
                continue;
            }
            let record = record.with_context(|| format!("first block {} of {}", block + 1, scenario.id))?;
            trials.push(TrialRecord { block: Some(block + 1), ..record });
        }
    }
    suite.scenarios.retain(|scenario| !left_out.iter().any(|one| one.scenarios.contains(&scenario.id)));
    let learnt = Learnt::FirstBlocks(trials.len());
    Ok(Past { trials, learnt })
}

/// How long trials are and how often they are repeated: as was asked for, or as a time is best spent.
fn plan(args: &RunArgs, suite: &Suite, asked: Timing, past: &Past) -> Result<(Timing, Option<Forecast>), Failure> {
    let Some(time) = args.budget else { return Ok((asked, None)) };
    let window = args.window.map(|window| window.0);
    let forecast = Forecast::of(suite, &asked, time.0, window, &past.trials, past.learnt).or_exit(Exit::BadInput)?;
    Ok((forecast.timing, Some(forecast)))
}

/// Adds the scenarios that the run did not get to settle.
fn with_unfinished(suite: &Suite, mut settled: Vec<Settled>) -> Vec<Settled> {
    for scenario in &suite.scenarios {
        if !settled.iter().any(|s| s.scenario == scenario.id) {
            settled.push(Settled { scenario: scenario.id.clone(), trials: 0, outcome: Outcome::Unfinished });
        }
    }
    settled
}
