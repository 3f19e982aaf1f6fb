//! `netrig run`: choose, plan, open, measure, conclude.

mod bench;
mod conclusion;
mod measurement;
mod queues;
mod schedule;
mod selection;
mod survey;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use clap::{ArgAction, Args};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::tell;
use rig_facts::record::{AbRun, SkippedScenarios};
use rig_facts::store::{Label, Store};
use rig_run::run::NoScenarioLeft;
use rig_stats::units::Span;
use rig_suite::pairs::{PAIRS, PODS};
use rig_sys::cpu::CpuSet;
use rig_testbed::LostPeer;

use self::bench::Bench;
use self::measurement::Measurement;
use self::schedule::{PastTrials, Schedule};
use self::selection::Selection;
pub(super) use self::selection::{Length, before};
pub(super) use self::survey::Survey;
use super::arguments::{HEADING, JudgeArgs, OutputArgs, StoreArgs};
use super::hosts::labels::HostLabel;
use super::hosts::{HostChoice, NodeOnHost, with_each};
use super::k8s::RunPodArgs;
use super::{gain_privilege, pairs, pods};

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A built-in suite's name or a suite file's path, `pairs` or `pods`
    ///
    /// `pods` makes pods in a Kubernetes cluster by kubectl, measures between them and deletes them: from pod to pod on two nodes and on one,
    /// through a Service's ClusterIP, and in the nodes' own network. --only pod,same-node,host,service chooses some of it.
    ///
    /// `pairs` tests each host of the hosts file, or of --only and --host-label, with each other one: streams both ways, and transactions.
    /// It builds nothing, so it needs no root. In each round every host is in one pair at most. It takes --only, --host-label, --window,
    /// --trials, --quick, --label, --strict, --hosts, --against and where to write and to store.
    pub suite: OsString,
    /// A first look: short windows, few trials, wide intervals
    #[arg(long)]
    pub quick: bool,
    /// Only these scenarios, e.g. A,B,D
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub only: Vec<String>,
    /// Over this path, e.g. vxlan (suites of one: rfc2544)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// This CNI network (suite cni)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub conflist: Option<PathBuf>,
    /// Where its plug-ins are [default: /opt/cni/bin and the like]
    #[arg(long, value_name = "DIR", requires = "conflist", hide_short_help = true)]
    pub bin: Vec<PathBuf>,
    /// This network of a container engine of the machine (suite docker) [default with --engine: bridge]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub network: Option<String>,
    /// The engine's socket [default with --network: of DOCKER_HOST, or /var/run/docker.sock]
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub engine: Option<PathBuf>,
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
    /// Fail if a scenario cannot be made here, or fails
    #[arg(long)]
    pub strict: bool,
    /// CPUs for the nodes, e.g. 0-3 [default: all allowed]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    /// Where the nodes are: local, child, a name of the hosts file or a destination of ssh [default: local]
    #[arg(long, value_name = "HOST", group = "where", hide_short_help = true)]
    pub host: Option<HostChoice>,
    /// A node on a machine of its own, by its interface, e.g. a=web1 or a=web1:eth1
    ///
    /// To be given for each node; `dut` is the one between client and server. HOST is as for --host. INTERFACES, one for each wire of the node
    /// (eth1,eth2), are taken, and given back; without them, what leads to the other machines is shared by macvlan interfaces.
    #[arg(long, value_name = "NODE=HOST[:INTERFACES]", group = "where", hide_short_help = true)]
    pub on: Vec<NodeOnHost>,
    /// How hosts are reached [default: ~/.config/netrig/hosts.toml]
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub hosts: Option<PathBuf>,
    /// Of `pairs`: hosts that have this label in the hosts file; of several labels all have to hold
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true)]
    pub host_label: Vec<HostLabel>,
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
    /// Take turns with another run, as the process that started both says on standard input
    #[arg(long, hide = true, value_name = "PAIR:SIDE:COMMAND")]
    pub in_turn: Option<AbRun>,
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
    // Its heading holds for all that stands behind it.
    #[command(flatten)]
    pub cluster: RunPodArgs,
}

pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    if args.suite == PODS {
        return pods::run(args);
    }
    if let Some(option) = args.cluster.given() {
        let error = anyhow!("{option} is of pods: netrig run pods");
        return Err(Failure::new(Exit::BadInput, error));
    }
    if args.suite == PAIRS {
        return pairs::run(args);
    }
    if !args.host_label.is_empty() {
        let error = anyhow!("--host-label chooses hosts of pairs: netrig run pairs; here --on NODE=HOST names each");
        return Err(Failure::new(Exit::BadInput, error));
    }
    if args.hosts.is_some() && args.host.is_none() && args.on.is_empty() {
        let error =
            anyhow!("--hosts says how hosts are reached, and none is named: --host HOST or --on NODE=HOST does");
        return Err(Failure::new(Exit::BadInput, error));
    }
    // Everything that can be refused is refused before the first packet: what the command line and files say, then privileges and
    // what this machine cannot make, then times that no plan fits in.
    let selection = Selection::of(args)?;
    let (hosts, cpus) = (args.hosts.as_deref(), args.cpus.as_ref());
    if args.on.is_empty() {
        let host = args.host.clone().unwrap_or_default();
        // Nothing is done here where another machine does it.
        if !host.is_elsewhere() {
            gain_privilege()?;
        }
        let started = host.start(hosts).or_exit(Exit::Failed)?;
        let survey = Survey::begin(started, cpus, &selection.suite.scenarios)?;
        return run_on(args, selection, survey);
    }
    if args.on.iter().any(NodeOnHost::is_here) {
        gain_privilege()?;
    }
    with_each(&args.on, hosts, |started| {
        let survey = Survey::of_nodes(started, cpus, &selection.suite.scenarios)?;
        run_on(args, selection, survey)
    })
}

/// On machines that are reached.
fn run_on(args: &RunArgs, mut selection: Selection, mut survey: Survey) -> Result<Exit, Failure> {
    let asked = selection.suite.scenarios.clone();
    let left_out = survey.leave_out(&mut selection.suite).map_err(lacking)?;
    refuse(args, &selection, &left_out)?;
    let past = PastTrials::of(args, &selection.suite)?;
    Schedule::plan(args, &selection, &past)?;
    if !args.quiet && args.in_turn.is_none() {
        let queues = survey.receive_queues(&selection.suite);
        queues.unwrap_or_else(|why| vec![format!("receive queues are not known: {why:#}")]).iter().for_each(tell);
    }

    let mut bench = Bench::open(survey, left_out, &selection, args.seed)?;
    if args.in_turn.is_some() {
        // What is left out keeps its turns and its part of the time: the other side may have it.
        selection.suite.scenarios = asked;
    }
    let mut store = Store::open(&selection.store).or_exit(Exit::Failed)?;
    let past = past.with_first_blocks(args, &mut selection, &mut bench)?;
    refuse(args, &selection, &bench.left_out)?;
    let schedule = Schedule::plan(args, &selection, &past)?.with_twin(args, &selection, &past);

    let measurement = Measurement::make(args, &selection, schedule, bench, &mut store)?;
    conclusion::conclude(args, selection, measurement, &store)
}

/// Refuses a run of which nothing is left, or that is to be whole and is not.
fn refuse(args: &RunArgs, selection: &Selection, left_out: &[SkippedScenarios]) -> Result<(), Failure> {
    NoScenarioLeft::refuse(&selection.suite, left_out).or_exit(Exit::Lacking)?;
    if !args.strict || left_out.is_empty() {
        return Ok(());
    }
    let each: String = left_out.iter().map(|one| format!("\n  {one}")).collect();
    let error = anyhow!("not all scenarios can be run here, and --strict asks for all:{each}");
    Err(Failure::new(Exit::Lacking, error))
}

/// What a machine does not let be made; a host that is gone says nothing of its machine.
fn lacking(error: anyhow::Error) -> Failure {
    let exit = if error.is::<LostPeer>() { Exit::Failed } else { Exit::Lacking };
    Failure::new(exit, error)
}
