//! `netrig run pods`: pods of a Kubernetes cluster as hosts, made for the run and deleted with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use netrig_ends::seal::Key;
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser, in_words};
use rig_cli::streams::note;
use rig_facts::store::Store;
use rig_suite::pairs::{PODS, PodCase, PodsTest};
use rig_sys::process;
use rig_testbed::host::HostAccess;

use super::cancel_on_signal;
use super::compare::ReferenceRun;
use super::hosts::NamedHost;
use super::k8s::RunPodArgs;
use super::k8s::cluster::{Cluster, ClusterObjects, Pod, runner};
use super::k8s::manifest::{DATA_PORT, Manifest, PORT, Role};
use super::output::Output;
use super::pairs::measure::{HostTests, Pods, Service, phases};
use super::pairs::{ServerPorts, conclude, refuse};
use super::remote_server::PATIENCE;
use super::report;
use super::run::RunArgs;

/// Rounds, where the user names no number.
const ROUNDS: u32 = 5;
const QUICK_ROUNDS: u32 = 2;
/// Until pods are ready, where the user names no limit.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What a test takes beside its window: to start both ends, and to fail.
const BESIDE: Duration = PATIENCE;
/// What a run takes beside its tests: copies of netrig on their way.
const MARGIN: Duration = Duration::from_secs(600);
/// The Service, as a host.
const SERVICE: &str = "service";

/// The ways between pods, as they are named, with both ends; `None` is the Service.
const CASES: [(&str, &str, Role, Option<Role>); 4] = [
    ("pod", "Pod to pod", Role::Client, Some(Role::Server)),
    ("same-node", "Pod to pod, one node", Role::Client, Some(Role::Near)),
    ("host", "Host to host", Role::HostClient, Some(Role::HostServer)),
    (SERVICE, "Pod to ClusterIP", Role::Client, None),
];

pub fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let RunPodArgs { context, pods, ready_within, .. } = &args.cluster;
    let hosts = ("--hosts", args.hosts.is_some(), "hosts are the pods that it makes");
    let on = ("--on", !args.on.is_empty(), "--nodes NODE,NODE chooses nodes of the cluster");
    let elsewhere = ("--host", args.host.is_some(), "--context chooses the cluster");
    let label = ("--host-label", !args.host_label.is_empty(), "it chooses hosts of a hosts file");
    refuse(args, PODS, &[hosts, on, elsewhere, label]).or_exit(Exit::BadInput)?;
    pods.check().or_exit(Exit::BadInput)?;
    let cases = cases(args).or_exit(Exit::BadInput)?;
    let path = report::path_of(&args.store)?;
    let output = Output::choose(args.output.output.as_deref())?;
    let ids: Vec<String> = cases.iter().map(|(name, ..)| format!("{name} stream")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let against = ReferenceRun::choose(args.against.as_deref(), &args.judge, &args.store, PODS, &ids)?;
    let mut store = Store::open(&path).or_exit(Exit::Failed)?;
    process::raise_file_limit();
    let cluster = Cluster::reach(context.as_deref(), pods.namespace.as_deref()).or_exit(Exit::Lacking)?;
    cluster.check_rights().or_exit(Exit::Lacking)?;
    // From here on Ctrl-C deletes what there is.
    let cancel = cancel_on_signal()?;
    for left in cluster.delete_left().or_exit(Exit::Failed)? {
        note(format_args!("deleted what run {left} had left in namespace {}: it was killed", cluster.namespace));
    }

    let trials = args.trials.unwrap_or(if args.quick { QUICK_ROUNDS } else { ROUNDS });
    let times = phases(args);
    let of_test = times.warm_up + times.window + times.cool_down + BESIDE;
    // Each test may be made twice.
    let tests = trials.saturating_mul(u32::try_from(cases.len()).unwrap_or(u32::MAX)).saturating_mul(4);
    let within = ready_within.map_or(READY_WITHIN, |span| span.0);
    // Of pods that are there at once, while others are waited for.
    let deadline = (of_test.saturating_mul(tests) + within + MARGIN).as_secs();
    let name = random_name().or_exit(Exit::Failed)?;
    let runner = runner();
    let manifest = Manifest { args: pods, run: &name, runner: &runner, deadline };
    let mut made = ClusterObjects::new(&cluster, manifest.clone());

    let all: Vec<Role> = Role::of(pods).into_iter().filter(|role| is_used(*role, &cases)).collect();
    let has_service = cases.iter().any(|(.., to)| to.is_none());
    if !args.quiet {
        note(format_args!("Making pods netrig-{name}-... in namespace {}", cluster.namespace));
    }
    let left_out = create(&mut made, &manifest, &all, has_service, args.strict)?;
    let roles: Vec<Role> = all.iter().copied().filter(|role| !left_out.contains_key(role.name())).collect();
    let ready = made.wait(&roles, within, &cancel).map_err(|error| not_ready(error, pods.is_on_one_node()))?;

    // Those that could not be made stand among the hosts, with their reason.
    let service = match all.iter().position(|role| *role == Role::Server).filter(|_| has_service) {
        None => None,
        Some(server) => {
            let ports = ServerPorts { control: PORT, data: Some(DATA_PORT) };
            let address = made.cluster_ip().or_exit(Exit::Failed)?;
            Some(Service { name: SERVICE.to_owned(), address, ports, server })
        }
    };
    let hosts: Vec<NamedHost> =
        all.iter().map(|role| host(*role, &made, &cluster, &args.cluster, ready.get(role))).collect();
    let nodes = ready.iter().map(|(role, pod)| (role.name().to_owned(), pod.node.clone())).collect();
    let number = |role: Option<Role>| role.map_or(Some(all.len()), |role| all.iter().position(|one| *one == role));
    let cases = cases.iter().filter_map(|(name, way, from, to)| {
        let (from, to) = (number(Some(*from))?, number(*to)?);
        Some(PodCase { name: (*name).to_owned(), way: (*way).to_owned(), from, to })
    });
    let test = PodsTest {
        context: cluster.context.clone(),
        namespace: cluster.namespace.clone(),
        version: cluster.version.clone(),
        image: pods.image.clone(),
        nodes,
        cases: cases.collect(),
    };
    let check = || made.check(&roles);
    let asked = Some(Pods { test, left_out, service, check: &check });
    let tests = HostTests { args, hosts: &hosts, trials, pods: asked };
    let measured = tests.make(&cancel, &mut store);
    let deleted = made.delete();
    if let Err(error) = &deleted {
        note(in_words(error));
    }
    let (id, result) = measured.map_err(|failure| with_hint(failure, &args.cluster))?;
    if let Err(error) = result {
        let again = report::again(&id.to_string(), &args.store);
        return Err(Failure::from(error).with_next(format!("finished tests are kept: {again}")));
    }
    let exit = conclude(args, id, &store, output, against.as_ref())?;
    Ok(if deleted.is_err() && exit == Exit::Done { Exit::Failed } else { exit })
}

/// Makes these pods; those in the nodes' own network by themselves, for many namespaces forbid them (pod security admission). Returns those that
/// are refused, with the reason.
fn create(
    made: &mut ClusterObjects<'_>,
    manifest: &Manifest<'_>,
    roles: &[Role],
    has_service: bool,
    is_strict: bool,
) -> Result<BTreeMap<String, String>, Failure> {
    let on_host = |role: &&Role| role.is_on_host_network();
    let mut first: Vec<_> = roles.iter().filter(|role| !on_host(role)).map(|role| manifest.pod(*role)).collect();
    first.extend(has_service.then(|| manifest.service()));
    made.create(&first).or_exit(Exit::Lacking)?;
    let second: Vec<_> = roles.iter().filter(on_host).map(|role| manifest.pod(*role)).collect();
    let refused = if second.is_empty() { Ok(()) } else { made.create(&second) };
    match refused {
        Ok(()) => Ok(BTreeMap::new()),
        Err(error) if is_strict => {
            let next = "--no-host-network goes without pods in the nodes' own network";
            Err(Failure::new(Exit::Lacking, error).with_next(next))
        }
        Err(error) => {
            let why = in_words(&error);
            Ok(roles.iter().filter(on_host).map(|role| (role.name().to_owned(), why.clone())).collect())
        }
    }
}

type Case = (&'static str, &'static str, Role, Option<Role>);

/// Those that are asked for, and can be made.
fn cases(args: &RunArgs) -> anyhow::Result<Vec<Case>> {
    let roles = Role::of(&args.cluster.pods);
    let is_possible =
        |(_, _, from, to): &Case| [Some(*from), *to].into_iter().flatten().all(|role| roles.contains(&role));
    let possible: Vec<Case> = CASES.into_iter().filter(is_possible).collect();
    let names: Vec<&str> = possible.iter().map(|(name, ..)| *name).collect();
    if let Some(unknown) = args.only.iter().find(|only| !names.contains(&only.as_str())) {
        bail!("--only {unknown}: here it takes {}", names.join(", "));
    }
    let is_chosen = |(name, ..): &Case| args.only.is_empty() || args.only.iter().any(|only| only == name);
    Ok(possible.into_iter().filter(is_chosen).collect())
}

/// Whether a pod is part of a case, or decides on which node one is that is.
fn is_used(role: Role, cases: &[Case]) -> bool {
    let is_end = |role| cases.iter().any(|(_, _, from, to)| *from == role || to.unwrap_or(Role::Server) == role);
    match role {
        Role::Client => true,
        Role::Server => is_end(role) || is_end(Role::HostServer),
        role => is_end(role),
    }
}

fn host(role: Role, made: &ClusterObjects<'_>, cluster: &Cluster, args: &RunPodArgs, pod: Option<&Pod>) -> NamedHost {
    let access = HostAccess::command(role.name(), cluster.exec(&made.name(role)));
    let access = HostAccess { program: args.pods.pod_program.clone(), binary: args.pod_binary.clone(), ..access };
    NamedHost {
        name: role.name().to_owned(),
        access,
        interfaces: Vec::new(),
        address: pod.map(|pod| pod.address),
        cpus: None,
    }
}

fn not_ready(error: anyhow::Error, is_on_one_node: bool) -> Failure {
    if error.is::<StoppedByUser>() {
        return error.into();
    }
    let is_unschedulable = error.to_string().contains("Unschedulable");
    let failure = Failure::new(Exit::Lacking, error);
    match is_unschedulable && !is_on_one_node {
        true => failure.with_next("they want two nodes; --one-node has them on one, --toleration bears a taint"),
        false => failure,
    }
}

/// Says what to do where the program that was copied does not run in the image.
fn with_hint(failure: Failure, args: &RunPodArgs) -> Failure {
    let words = in_words(&failure.error);
    let own = std::env::current_exe().unwrap_or_default();
    let copied = args.pod_binary.as_deref().unwrap_or(&own);
    let is_lost = args.pods.pod_program.is_none() && words.contains("not found") && needs_c_library(copied);
    match is_lost && failure.next.is_none() {
        true => failure.with_next(
            "this netrig needs the C library of the machine that it was built on: the static one of a release runs in any image \
             (--pod-binary FILE)",
        ),
        false => failure,
    }
}

/// Whether a program is started by another one, which an image may not have: one whose ELF header names an interpreter.
fn needs_c_library(program: &Path) -> bool {
    const NAMES: [&[u8]; 2] = [b"/ld-linux", b"/ld-musl"];
    let begin = fs::read(program).map(|mut bytes| {
        bytes.truncate(4096);
        bytes
    });
    begin.is_ok_and(|bytes| NAMES.iter().any(|name| bytes.windows(name.len()).any(|part| part == *name)))
}

/// Of this run, as the names of its pods have it.
fn random_name() -> anyhow::Result<String> {
    let mut text = Key::new_text().context("draw a random number")?;
    text.truncate(8);
    Ok(text)
}
