//! `netrig run pairs`: each host with each other one, as many pairs at a time as there can be.

mod host;
pub(super) mod measure;

use anyhow::{Context, bail};
use netrig_ends::pairs::report::{brief, of};
use rig_cli::exit::{Exit, ExitContext, Failure, both};
use rig_cli::streams::note;
use rig_facts::record::certainty::RepetitionEnd;
use rig_facts::store::{RunId, Store};
use rig_report::Format;
use rig_stats::units::counted;
use rig_suite::pairs::{PAIRS, PairLoad, PairsTest};
use rig_sys::process;
use rig_verdict::stored;

pub(super) use self::host::ServerPorts;
use self::measure::HostTests;
use super::cancel_on_signal;
use super::compare::ReferenceRun;
use super::hosts::hosts_of;
use super::output::Output;
use super::report;
use super::run::RunArgs;

pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let why = (
        "--on",
        !args.on.is_empty(),
        "each host is in all pairs; --only web1,web2,web3 and --host-label KEY=VALUE choose some",
    );
    let hosts = ("--host", args.host.is_some(), "hosts are those of --hosts or --only");
    refuse(args, PAIRS, &[why, hosts]).or_exit(Exit::BadInput)?;
    let hosts = hosts_of(args.hosts.as_deref(), &args.only, &args.host_label).or_exit(Exit::BadInput)?;
    let path = report::path_of(&args.store)?;
    let output = Output::choose(args.output.output.as_deref())?;
    let all =
        hosts.iter().flat_map(|from| hosts.iter().map(|to| format!("{}>{} {}", from.name, to.name, PairLoad::Stream)));
    let all: Vec<String> = all.collect();
    let ids: Vec<&str> = all.iter().map(String::as_str).collect();
    let against = ReferenceRun::choose(args.against.as_deref(), &args.judge, &args.store, PAIRS, &ids)?;
    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
    process::raise_file_limit();
    let cancel = cancel_on_signal()?;
    let tests = HostTests { args, hosts: &hosts, trials: args.trials.unwrap_or(1), pods: None };
    let (id, result) = tests.make(&cancel, &mut store)?;
    if let Err(error) = result {
        let again = report::again(&id.to_string(), &args.store);
        return Err(Failure::from(error).with_next(format!("finished tests are kept: {again}")));
    }
    conclude(args, id, &store, output, against.as_ref())
}

/// Refuses what is asked of suites and not of tests between hosts, and `more`: options, whether they are given, and why not.
pub(super) fn refuse(args: &RunArgs, what: &str, more: &[(&str, bool, &str)]) -> anyhow::Result<()> {
    let given = [
        ("--budget", args.budget.is_some(), "it has no claims; --trials repeats it"),
        ("--seed", args.seed.is_some(), "its order is fixed"),
        ("--again", !args.again.is_empty(), "--trials repeats all"),
        ("--no-aa", args.no_aa, "nothing is measured twice"),
        ("--path", args.path.is_some(), "it builds nothing: the hosts' network is the path"),
        ("--conflist", args.conflist.is_some(), "it makes no network; suite cni does"),
        ("--network", args.network.is_some(), "it makes no containers; suite docker does"),
        ("--engine", args.engine.is_some(), "it makes no containers; suite docker does"),
        ("--gate", args.gate, "it has no claims; --against RUN ends with status 1 where something is worse"),
        ("--cpus", args.cpus.is_some(), "each host's load may use all of its CPUs"),
        ("--layers", args.layers.is_some(), "stacks are sampled on one machine only"),
        ("--in", !args.inside.is_empty(), "there are no nodes"),
        ("--in-turn", args.in_turn.is_some(), "it takes no turns"),
    ];
    match more.iter().chain(&given).find(|(_, is_given, _)| *is_given) {
        None => Ok(()),
        Some((option, _, why)) => bail!("{option} is not for {what}: {why}"),
    }
}

pub(super) fn conclude(
    args: &RunArgs,
    id: RunId,
    store: &Store,
    output: Output,
    against: Option<&ReferenceRun>,
) -> Result<Exit, Failure> {
    let run = store.run(id).or_exit(Exit::Failed)?;
    let options = stored::options(&run)?;
    let test = options.pairs.as_ref().context("read what the run was asked").or_exit(Exit::Failed)?;
    let (mut document, view) = of(&run, &options, test)?;
    let compared = against.map(|against| against.add_to(&mut document, &view, &args.store)).transpose();
    let again = report::again(&id.to_string(), &args.store);
    if args.output.format == Format::Terminal {
        document = brief(document, test, more(test, &again));
    }
    let compared = both(compared, output.write(&document, args.output.format))?;
    if !args.quiet {
        note(format_args!("Next, as a page: {again} --format html --output run-{id}.html"));
    }
    let failed =
        stored::settled(&run)?.iter().filter(|one| matches!(one.outcome, RepetitionEnd::Failed { .. })).count();
    // What failed has no figure that a comparison could call worse.
    let is_failure = run.trials.is_empty() || failed > 0 && (args.strict || compared.is_some());
    if is_failure && !args.quiet {
        note(format_args!("Status 4: {} failed", counted(failed, "test", "tests")));
    }
    Ok(match compared {
        _ if is_failure => Exit::Failed,
        Some((_, exit)) => exit,
        None => Exit::Done,
    })
}

/// Where the rest of a report is to be had.
pub(super) fn more(test: &PairsTest, again: &str) -> String {
    let what = if test.pods.is_some() { "CPU time, pods and method" } else { "Each direction, hosts and method" };
    format!("{what}: {again} --all")
}
