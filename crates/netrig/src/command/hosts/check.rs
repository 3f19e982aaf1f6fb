//! `netrig hosts check`: what a run over several hosts would find, asked ahead.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use rig_cli::exit::{Exit, ExitContext, Failure, in_words};
use rig_cli::look::{self, wrapped};
use rig_cli::schema::{Schema, described};
use rig_cli::streams::{self, note, print_as_it_is};
use rig_cli::visible::visible;
use rig_run::run::{MissingResource, one_line};
use rig_stats::units::counted;
use rig_suite::suite::{Scenario, Suite};
use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::Flow;
use rig_testbed::Testbed;
use rig_testbed::host::{Host, HostGroup, HostInterface, HostOfNode};
use rig_testbed::plan::{DEFAULT_MTU, Link, Plan};
use rig_testbed::receive_queues::{HashedBy, ReceiveQueues};
use rig_testbed::topology::{Endpoint, Family, Path as TestbedPath, Topology, WireOptions};
use schemars::JsonSchema;
use serde::Serialize;

use super::labels::{self, HostLabel};
use super::side_by_side::side_by_side;
use super::{NodeOnHost, NodesOnHosts, group_number};
use crate::command::doctor::support;
use crate::command::run::Survey;
use crate::doctor::{CardQueues, Finding, Format, State, SuiteSupport, doubts, write_suites};

/// What is told of hosts.
#[derive(Debug, Serialize, JsonSchema)]
struct HostsReport {
    netrig_version: &'static str,
    /// Whether each host and each other one are reached, and some suite can be run.
    ready: bool,
    hosts: Vec<HostReport>,
    /// Between each two nodes.
    networks: Vec<NetworkReport>,
    suites: Vec<SuiteSupport>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HostReport {
    node: String,
    /// As it was named.
    host: String,
    /// Of hosts.toml.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    state: HostState,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
enum HostState {
    Reached {
        /// Until its netrig had greeted, milliseconds: copying it there included.
        after_ms: u64,
        kernel: String,
        /// That netrig may use.
        cpus: String,
        /// How far its clock is from this machine's, and how far the true offset may be from that, ns.
        clock_offset_ns: i64,
        clock_bound_ns: u64,
        /// What a node there may be given.
        interfaces: Vec<HostInterface>,
        /// Of those that have several receive queues, as far as their drivers tell.
        receive_queues: Vec<CardQueues>,
        /// What speaks against it.
        findings: Vec<Finding>,
    },
    NotReached {
        why: String,
    },
}

/// The network between two nodes.
#[derive(Debug, Serialize, JsonSchema)]
struct NetworkReport {
    nodes: [String; 2],
    /// By which each would reach the other, as their hosts call them; none where there is none.
    interfaces: Option<[String; 2]>,
    /// The queues that take all flows of a kind from one node to the other: those of which the card does not hash ports.
    single_queues: Vec<SingleQueue>,
    /// Why packets, of up to 1500 bytes, do not come from each to the other; `None` where they do.
    fault: Option<String>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct SingleQueue {
    /// Who receives, by which interface of its host.
    node: String,
    interface: String,
    /// As `ethtool -n INTERFACE rx-flow-hash` calls it.
    flow: &'static str,
    /// None where the hash or its key is not known.
    queue: Option<u32>,
    /// CPUs of the queue's interrupt, as a list; none where the kernel does not tell.
    cpus: Option<String>,
}

/// By node and interface.
type Cards = BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>;

/// The JSON Schemas of this module's output.
pub fn schemas() -> [(&'static str, Schema); 1] {
    let about = "What `netrig hosts check --json` prints: hosts, the networks between them, and what of each built-in suite can be run over them";
    [("hosts-check.json", described::<HostsReport>("netrig hosts check", about))]
}

/// Reaches hosts, and tells what a run with the nodes on them would make.
///
/// # Errors
/// When the nodes are none that a run takes, or too few hosts have these labels, which choose them where no node is named.
pub fn check(nodes: &[NodeOnHost], labels: &[HostLabel], file: Option<&Path>, json: bool) -> Result<Exit, Failure> {
    let chosen = match nodes {
        [] => NodeOnHost::of_labels(file, labels).or_exit(Exit::BadInput)?,
        _ => nodes.to_vec(),
    };
    let nodes = chosen.as_slice();
    super::refuse(nodes).or_exit(Exit::BadInput)?;
    if nodes.iter().any(NodeOnHost::is_here) {
        crate::command::gain_privilege()?;
    }
    let suites = Suite::built_in().collect::<Result<Vec<_>, _>>()?;
    let report = examine(nodes, file, suites);
    let (colour, width) = (Format::for_stdout(), streams::width());
    let text = match json {
        true => serde_json::to_string_pretty(&report).context("write JSON").or_exit(Exit::Failed)? + "\n",
        false => look::shown(&text(&report, colour, width)).into_owned(),
    };
    print_as_it_is(&text)?;
    Ok(if report.ready { Exit::Done } else { Exit::Lacking })
}

fn examine(nodes: &[NodeOnHost], file: Option<&Path>, suites: Vec<Suite>) -> HostsReport {
    let told = nodes.iter().inspect(|node| note(format!("Reaching {node}")));
    side_by_side(told, |node| Ok(NodeAnswer::of(node, file)), |answers| report(nodes, answers, suites))
}

/// A host as it answers, or does not.
struct NodeAnswer {
    /// Of hosts.toml, also where it is not reached.
    labels: BTreeMap<String, String>,
    reached: anyhow::Result<ReachedNode>,
}

struct ReachedNode {
    state: HostState,
    member: HostOfNode,
    /// That hosts.toml names.
    cpus: Option<CpuSet>,
    cards: BTreeMap<String, BTreeMap<String, String>>,
}

impl NodeAnswer {
    fn of(node: &NodeOnHost, file: Option<&Path>) -> Self {
        let begun = Instant::now();
        let named = node.named(file);
        let labels = named.as_ref().ok().and_then(Option::as_ref).map(|named| named.access.labels.clone());
        let reached = named.and_then(|named| node.start(named)).and_then(|(member, cpus)| {
            let after_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            // What it does not tell of its cards keeps nobody from using it.
            let cards = member.host.cards().unwrap_or_default();
            let state = reached(&member, after_ms, &cards)?;
            Ok(ReachedNode { state, member, cpus, cards })
        });
        Self { labels: labels.unwrap_or_default(), reached }
    }
}

fn report(nodes: &[NodeOnHost], answers: Vec<anyhow::Result<NodeAnswer>>, suites: Vec<Suite>) -> HostsReport {
    let (mut hosts, mut members, mut cpus) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut cards = Cards::new();
    for (node, answer) in nodes.iter().zip(answers) {
        let lost = |why| NodeAnswer { labels: BTreeMap::new(), reached: Err(why) };
        let NodeAnswer { labels, reached } = answer.unwrap_or_else(lost);
        let state = match reached {
            Ok(ReachedNode { state, member, cpus: own, cards: of_host }) => {
                cpus.extend(own.map(|own| (node.node.clone(), own)));
                cards.insert(node.node.clone(), of_host);
                members.push(member);
                state
            }
            Err(why) => HostState::NotReached { why: in_words(&why) },
        };
        hosts.push(HostReport { node: node.node.clone(), host: node.host.to_string(), labels, state });
    }
    let all = members.len() == nodes.len();
    let group = all.then(|| HostGroup::new(members, group_number()));
    let (mut networks, mut of_suites) = (Vec::new(), Vec::new());
    if let Some(mut group) = group {
        let pairs = nodes.len() * (nodes.len() - 1) / 2;
        note(format!("Trying {} between them", counted(pairs, "network", "networks")));
        for (number, near) in nodes.iter().enumerate() {
            let others = nodes[number + 1..].iter();
            networks.extend(others.map(|far| network(&mut group, [&near.node, &far.node], &cards)));
        }
        let scenarios: Vec<Scenario> = suites.iter().flat_map(|suite| suite.scenarios.clone()).collect();
        let survey = Survey::of_nodes(NodesOnHosts { hosts: group, cpus }, None, &scenarios);
        of_suites = support(suites, survey.map_err(|failure| failure.to_string()));
    }
    let ready = networks.iter().all(|network| network.fault.is_none())
        && of_suites.iter().any(|suite| !suite.scenarios.is_empty());
    HostsReport { netrig_version: env!("CARGO_PKG_VERSION"), ready, hosts, networks, suites: of_suites }
}

fn reached(
    member: &HostOfNode,
    after_ms: u64,
    cards: &BTreeMap<String, BTreeMap<String, String>>,
) -> anyhow::Result<HostState> {
    let host = &member.host;
    let (facts, clock) = (host.facts()?, host.clock()?);
    Ok(HostState::Reached {
        after_ms,
        kernel: facts.kernel,
        cpus: facts.cpus.to_string(),
        clock_offset_ns: clock.ns,
        clock_bound_ns: clock.bound_ns,
        interfaces: host.interfaces()?,
        receive_queues: cards.iter().filter_map(|(name, card)| CardQueues::of(name, card)).collect(),
        findings: doubts(&host.probe(&[])?),
    })
}

/// Bytes of headers without options (RFC 791, RFC 768).
const IPV4_AND_UDP: u32 = 20 + 8;

/// Builds two nodes with nothing between them but their hosts' network, and sends small and large packets each way.
fn network(group: &mut HostGroup, nodes: [&String; 2], cards: &Cards) -> NetworkReport {
    let names = nodes.map(Clone::clone);
    let (mut interfaces, mut single_queues) = (None, Vec::new());
    let mut tried = || -> anyhow::Result<()> {
        let raw = TestbedPath::all()
            .find(|path| path.is_bare() && !path.is_of_three())
            .context("find a path without anything")?;
        let ends = names.each_ref().map(|node| Endpoint { node: node.clone(), container: None });
        let topology = Topology::new(&names, Some(WireOptions::default()), raw, &ends)?;
        let cpus = [CpuSet::default(), CpuSet::default()];
        interfaces = given(&group.arrange(topology.plan(&cpus))?);
        let addresses = |topology: &Topology| [0, 1].map(|node| topology.node_address(node).addr());
        let of_both = [addresses(&topology), addresses(&topology.clone().with_family(Family::Ipv6)?)];
        for ((node, interface), number) in names.iter().zip(interfaces.iter().flatten()).zip(0..) {
            let Some(card) = cards.get(node).and_then(|cards| cards.get(interface)) else { continue };
            for addresses in of_both {
                single_queues.extend(single(node, interface, card, [addresses[1 - number], addresses[number]]));
            }
        }
        let testbed = Testbed::build_on(group, &topology, &cpus)?;
        testbed.check_reach(0)?;
        let payload = DEFAULT_MTU - IPV4_AND_UDP;
        testbed.check_reach(payload).with_context(|| format!("send packets of {DEFAULT_MTU} bytes"))?;
        testbed.tear_down()
    };
    let fault = tried().err().map(|error| one_line(&error));
    NetworkReport { nodes: names, interfaces, single_queues, fault }
}

/// Of the kinds of flows of which a card does not hash ports.
fn single(node: &str, interface: &str, card: &BTreeMap<String, String>, [from, to]: [IpAddr; 2]) -> Vec<SingleQueue> {
    let Some(receive) = ReceiveQueues::of(card).filter(|receive| receive.shares().len() > 1) else { return Vec::new() };
    let kinds = if from.is_ipv6() { [Flow::TcpV6, Flow::UdpV6] } else { [Flow::TcpV4, Flow::UdpV4] };
    let kinds = kinds.into_iter().filter(|kind| receive.hashed_by(*kind) == HashedBy::Addresses);
    let of = |kind: Flow| {
        let queue = receive.by_addresses(from, to);
        let cpus = queue.and_then(|queue| receive.cpus_of(queue)).map(str::to_owned);
        SingleQueue { node: node.to_owned(), interface: interface.to_owned(), flow: kind.name(), queue, cpus }
    };
    kinds.map(of).collect()
}

/// The hosts' interfaces that the two nodes of a plan are given.
fn given(plan: &Plan) -> Option<[String; 2]> {
    let of_host = plan.spaces().flat_map(|space| &space.interfaces).filter_map(|own| match &own.link {
        Link::OfHost { name, .. } => Some(name.clone()),
        _ => None,
    });
    of_host.collect::<Vec<_>>().try_into().ok()
}

fn text(report: &HostsReport, format: Format, width: usize) -> String {
    let mut text = String::new();
    for host in &report.hosts {
        text += &host_text(host, width);
    }
    for NetworkReport { nodes: [near, far], interfaces, single_queues, fault } in &report.networks {
        let by = interfaces.as_ref().map_or_else(String::new, |[one, other]| format!(" by {one} and {other}"));
        let said = match fault {
            None => format!("{near} and {far} reach each other{by}"),
            Some(fault) => format!("{near} and {far} do not reach each other{by}: {fault}"),
        };
        text += &wrapped(&visible(&said), "", "  ", width);
        for SingleQueue { node, interface, flow, queue, cpus } in single_queues {
            let from = if node == near { far } else { near };
            let which = queue.map_or("one queue, which is not known".to_owned(), |queue| format!("queue {queue}"));
            let on = cpus.as_ref().map_or_else(String::new, |cpus| format!(" (CPU {cpus})"));
            let said = format!("{interface} of {node} receives all {flow} from {from} on {which}{on}");
            text += &wrapped(&visible(&said), "  ", "    ", width);
        }
    }
    text += &write_suites(&report.suites, format, width);
    let verdict = match report.ready {
        true => {
            let on: String = report.hosts.iter().map(|host| format!(" --on {}={}", host.node, host.host)).collect();
            format!("These hosts can be run on: netrig run layers{on}")
        }
        false => "These hosts cannot be run on together.".to_owned(),
    };
    text + "\n" + &wrapped(&visible(&verdict), "", "  ", width)
}

fn host_text(HostReport { node, host, labels, state }: &HostReport, width: usize) -> String {
    let mut text = String::new();
    let host = match labels.is_empty() {
        true => host.clone(),
        false => format!("{host} ({})", labels::in_words(labels::each(labels))),
    };
    let mut line = |indent: &str, words: &str| {
        text += &wrapped(&visible(words), indent, &format!("{indent}  "), width);
    };
    match state {
        HostState::NotReached { why } => line("", &format!("{node}: {host} is not reached: {why}")),
        HostState::Reached {
            after_ms,
            kernel,
            cpus,
            clock_offset_ns,
            clock_bound_ns,
            interfaces,
            receive_queues,
            findings,
        } => {
            line("", &format!("{node}: {host}, Linux {kernel}, CPUs {cpus}, reached after {after_ms} ms"));
            let milliseconds = |ns: f64| ns / 1e6;
            line(
                "  ",
                &format!(
                    "its clock is {:+.3} ms from this machine's, to within {:.3} ms",
                    milliseconds(*clock_offset_ns as f64),
                    milliseconds(*clock_bound_ns as f64)
                ),
            );
            for HostInterface { name, mtu, up, addresses, in_use, .. } in interfaces {
                let mut words = format!("{name}: {}, MTU {mtu} bytes", if *up { "up" } else { "down" });
                words.extend(addresses.iter().map(|address| format!(", {address}")));
                if let Some(why) = in_use {
                    let _ = write!(words, "; it can be shared, not taken: {why}");
                }
                line("  ", &words);
                let queues = receive_queues.iter().filter(|own| own.interface == *name).flat_map(CardQueues::lines);
                queues.for_each(|words| line("    ", &words));
            }
            let mut told = BTreeSet::new();
            for Finding { name, state, .. } in findings {
                let (State::Doubtful(lack) | State::Lacking(lack) | State::Missing(lack)) = state else { continue };
                let MissingResource { found, remedy, .. } = lack;
                if told.insert(found) {
                    line("  ", &format!("{name}: {found} ({remedy})"));
                }
            }
            if interfaces.is_empty() {
                line("  ", "no interface that could lead to another host");
            }
        }
    }
    text
}
