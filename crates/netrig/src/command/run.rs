//! `netrig run`.

use std::path::Path;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use rig_cli::exit::Stopped;
use rig_cli::exit::{Exit, Failure, OrExit, in_words};
use rig_cli::streams::note;
use rig_report::{Format, build};
use rig_stats::units::Span;
use rig_study::claim::Verdict;
use rig_study::record::Environment;
use rig_study::run::{self, Execute, Options, Outcome, Progress, Rig, Settled, leave_out, why_not_here, why_not_on};
use rig_study::store::{Ending, Label, NewRun, Store};
use rig_study::suite::{Repeat, Suite, Timing};
use rig_sys::cpu::CpuSet;
use rig_testbed::Placement;
use rig_testbed::datapath::Machine;
use rig_testbed::host::{Host, Local, Remote};

use super::arguments::{HEADING, JudgeArgs, OutputArgs, StoreArgs};
use super::compare::Against;
use super::output::Output;
use super::{cancel_on_signal, gain_privilege, refuse_if_lacking, report, usable_cpus};
use crate::BUILD;
use crate::doctor::Purpose;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A built-in suite's name or a suite file's path
    pub suite: String,
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
    /// Call the run so: a name for `report`, `compare` and --against
    #[arg(long, value_name = "LABEL")]
    pub label: Option<Label>,
    /// End with status 1 if a claim does not hold
    #[arg(long)]
    pub gate: bool,
    /// CPUs that the nodes may own, e.g. 0-3 [default: all that this process may use]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Where the nodes are
    #[arg(long, value_enum, default_value_t, value_name = "HOST", hide_short_help = true)]
    pub host: HostKind,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Compare with this earlier run, its number, label or JSON file, and fail if something is worse
    #[arg(long, help_heading = HEADING, value_name = "RUN")]
    pub against: Option<String>,
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
    /// Namespaces of another process of this machine, which is asked in the protocol that other machines will be: for loads
    /// over sockets and of packets, not for datapaths
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
    let (mut suite, timing) = choose(args)?;
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
    let left_out = leave_out(&mut suite, &|scenario| {
        why_not_on(scenario, host.as_ref())
            .or_else(|| why_not_here(scenario, &placement, rig_datapaths::ALL, Machine { rootless }))
    });
    if suite.scenarios.is_empty() {
        let reasons: String = left_out.iter().map(|one| format!("\n  {one}")).collect();
        return Err(Failure::new(Exit::Lacking, anyhow!("no scenario is left that can be run here:{reasons}")));
    }
    refuse_if_lacking(&suite, Purpose::Run)?;
    let cancel = cancel_on_signal()?;
    let elsewhere = (args.host != HostKind::Local).then(|| host.name().to_owned());
    let mut rig = Rig::on(host, &cpus, suite.nodes, cancel, rig_datapaths::ALL).or_exit(Exit::Lacking)?;
    let cpu_time = Some(rig.accounting().or_exit(Exit::Failed)?);

    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
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
                left_out: left_out.clone(),
                host: elsewhere,
                label: args.label.clone(),
                gate,
            })
            .context("describe the run")
            .or_exit(Exit::Failed)?,
            environment: Environment { cpu_time, ..run::environment(rootless, BUILD) },
            planned_trials: timing.repeat.most() * suite.scenarios.len() as u32,
            started_unix_ms: Timestamp::now().as_millisecond(),
        })
        .or_exit(Exit::Failed)?;

    let mut progress = Progress::new(&suite, &timing, args.quiet);
    progress.note(&format!("Run {id}: {}", suite.title));
    for one in &left_out {
        progress.note(&format!("Not in this run: {one}"));
    }
    let mut settled = Vec::new();
    let result = measure(&suite, &timing, &mut store, id, &mut rig, &mut progress, &mut settled);
    progress.finish();
    let ending = match &result {
        Ok(()) => Ending::Complete,
        Err(error) if error.is::<Stopped>() => Ending::Interrupted,
        Err(error) => Ending::Failed { reason: in_words(error) },
    };
    let measured = settled.iter().any(|settled| settled.trials > 0);
    let goals =
        serde_json::to_value(with_unfinished(&suite, settled)).context("describe the run").or_exit(Exit::Failed)?;
    let finished = store.finish_run(id, &ending, Some(&goals), Timestamp::now().as_millisecond());
    let again = match &args.store.store {
        Some(path) => format!("netrig report {id} --store {}", path.display()),
        None => format!("netrig report {id}"),
    };
    if let Err(error) = result {
        let failure = Failure::from(error);
        return Err(if measured { failure.with_next(format!("what was measured is kept: {again}")) } else { failure });
    }
    finished.or_exit(Exit::Failed)?;

    let view = report::view(&store.run(id).or_exit(Exit::Failed)?)?;
    let mut document = build::document(&view);
    let compared = against.map(|against| against.compare(&view, &args.store)).transpose()?;
    if let Some((comparison, _)) = &compared {
        rig_report::comparison::append(&mut document, comparison);
    }
    if output.is_standard() && args.output.format == Format::Terminal {
        // On a terminal what matters most must not have scrolled away.
        document = document.without_details();
    }
    output.write(&document, args.output.format)?;
    if !args.quiet {
        note(format_args!("Stored as run {id}. In full: {again}"));
        note(format_args!("As a page, with charts: {again} --format html --output run-{id}.html"));
        if let Some((comparison, _)) = &compared {
            let old = comparison.old.name.strip_prefix("run ").unwrap_or(&comparison.old.name);
            let store = args.store.store.as_ref().map_or(String::new(), |path| format!(" --store {}", path.display()));
            note(format_args!("Figure by figure: netrig compare {old} {id}{store}"));
        }
    }
    let fails = |verdict| matches!(verdict, Verdict::Refuted | Verdict::Differs);
    let failed = view.claims.iter().filter(|claim| fails(claim.verdict)).count();
    if gate && failed > 0 && !args.quiet {
        note(format_args!(
            "Status 1: {failed} of {} claims not met, and that is an error here (gate)",
            view.claims.len()
        ));
    }
    Ok(match compared {
        _ if gate && failed > 0 => Exit::Refuted,
        Some((_, exit)) => exit,
        None => Exit::Done,
    })
}

fn measure(
    suite: &Suite,
    timing: &Timing,
    store: &mut Store,
    id: rig_study::store::RunId,
    rig: &mut Rig,
    progress: &mut Progress,
    settled: &mut Vec<Settled>,
) -> anyhow::Result<()> {
    progress.note("Measuring what the rig itself costs, without load");
    if let Some(scenario) = suite.scenarios.iter().max_by_key(|scenario| scenario.topology.nodes().len()) {
        let cost = rig.rig_cost(scenario, timing)?;
        store.set_rig_cost(id, &cost)?;
    }
    run::run(suite, timing, store, id, rig, progress, settled)
}

/// The suite and timing that the command line asks for.
fn choose(args: &RunArgs) -> Result<(Suite, Timing), Failure> {
    let mut suite = Suite::load(&args.suite)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    if !args.only.is_empty() {
        suite = suite.only(&args.only)?;
    }
    let mut timing = if args.quick {
        let hint = || anyhow!("suite '{}' has no [quick] timing: run it without --quick", suite.name);
        suite.quick.ok_or_else(hint).or_exit(Exit::BadInput)?
    } else {
        suite.timing
    };
    if args.quick {
        suite.hasten();
    }
    if let Some(window) = args.window {
        timing = timing.with_window(window.0).map_err(|error| anyhow!("--window: {error}")).or_exit(Exit::BadInput)?;
    }
    if let Some(trials) = args.trials {
        timing.repeat = Repeat::Times(trials);
    }
    Ok((suite, timing))
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
