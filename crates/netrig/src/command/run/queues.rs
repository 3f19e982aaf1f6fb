//! On which receive queues of the machines' cards the flows of scenarios will come in.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rig_load::plan::Load;
use rig_suite::suite::{Scenario, Suite, Traffic};
use rig_sys::ethtool::Flow;
use rig_testbed::Placement;
use rig_testbed::host::Host;
use rig_testbed::plan::{Link, Plan};
use rig_testbed::receive_queues::ReceiveQueues;
use rig_testbed::topology::{Endpoint, Topology};

use crate::doctor::ArrivingFlows;

/// By machine, and there by interface.
type Cards = BTreeMap<String, BTreeMap<String, ReceiveQueues>>;

/// Most pairs of addresses that are looked at.
const MOST: usize = 1 << 16;

/// A sentence for each card and each way in which flows of scenarios come in there, but where that is on all queues. Nothing where cards do
/// not tell, and of the paths that have a node between client and server.
///
/// # Errors
/// When a host cannot be asked.
pub(super) fn told(suite: &Suite, placement: &Placement, host: &dyn Host) -> anyhow::Result<Vec<String>> {
    let members = host.members();
    if members.is_empty() {
        // Wires of one machine have the queues that are asked for.
        return Ok(Vec::new());
    }
    let mut cards = Cards::new();
    let mut names = BTreeMap::new();
    for (node, member) in members {
        let known = |(name, card): (String, BTreeMap<String, String>)| Some((name, ReceiveQueues::of(&card)?));
        cards.insert(node.to_owned(), member.cards()?.into_iter().filter_map(known).collect());
        names.insert(node, member.name().to_owned());
    }
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for scenario in suite.scenarios.iter().filter(|scenario| !scenario.topology.path().has_dut()) {
        let scenario = &scenario.on(placement)?;
        let cpus = placement.of(&scenario.topology, scenario.dut)?;
        let plan = host.arrange(scenario.topology.plan(&cpus))?;
        for (node, interface, flows) in arriving(scenario, &plan) {
            let receive = cards.get(node).and_then(|cards| cards.get(&interface));
            let Some(words) = receive.and_then(|receive| flows.words(receive)) else { continue };
            let machine = names.get(node).map_or(node, String::as_str);
            let said = format!("{interface} of {machine} will receive {words}");
            match found.iter_mut().find(|(other, _)| *other == said) {
                Some((_, ids)) if ids.last() == Some(&scenario.id) => {}
                Some((_, ids)) => ids.push(scenario.id.clone()),
                None => found.push((said, vec![scenario.id.clone()])),
            }
        }
    }
    Ok(found.into_iter().map(|(said, ids)| format!("{said} ({})", ids.join(", "))).collect())
}

/// Node, interface of its machine, and what comes there.
fn arriving<'a>(scenario: &'a Scenario, plan: &Plan) -> Vec<(&'a str, String, ArrivingFlows)> {
    let Scenario { topology, traffic, .. } = scenario;
    let mut all = Vec::new();
    let given = |node: &str| {
        let node = plan.nodes.iter().find(|own| own.name == node)?;
        node.spaces.iter().flat_map(|space| &space.interfaces).find_map(|own| match &own.link {
            Link::OfHost { name, .. } => Some(name.clone()),
            _ => None,
        })
    };
    for node in topology.nodes() {
        let Some(interface) = given(&node.name) else { continue };
        let mut addresses = Vec::new();
        let mut pairs = 0;
        for (from, to) in &traffic.pairs {
            let (near, far) = if from.node == node.name { (from, to) } else { (to, from) };
            if near.node == node.name && far.node != node.name {
                pairs += 1;
                addresses.extend(addresses_of(scenario, far, near));
            }
        }
        let Some((from, _)) = addresses.first() else { continue };
        let kind = kind(scenario, from.is_ipv6());
        let count = of_sockets(traffic).map(|count| count.saturating_mul(pairs));
        all.push((node.name.as_str(), interface, ArrivingFlows { kind, addresses, count }));
    }
    all
}

/// Connections of each pair; `None` of what has more ports than queues.
fn of_sockets(traffic: &Traffic) -> Option<u32> {
    if matches!(traffic.connect, Load::TcpCrr(_)) {
        // Each transaction has a port of its own.
        return None;
    }
    let (threads, connections) = traffic.connect.shape();
    traffic.packets.is_none().then_some(threads.saturating_mul(connections))
}

/// What the card sees of the packets from one end to the other: of a tunnel its own.
fn addresses_of(scenario: &Scenario, from: &Endpoint, to: &Endpoint) -> Vec<(IpAddr, IpAddr)> {
    let Scenario { topology, traffic, .. } = scenario;
    let ends = [from, to];
    if is_tunnelled(topology) {
        let number = |end: &Endpoint| topology.nodes().iter().position(|node| node.name == end.node);
        let [Some(from), Some(to)] = ends.map(number) else { return Vec::new() };
        return vec![(topology.node_address(from).addr(), topology.node_address(to).addr())];
    }
    let of = |end: &Endpoint| match &traffic.packets {
        None => topology.address(end).map(|address| vec![address]),
        Some(packets) => {
            let is_client = traffic.pairs.iter().any(|(client, _)| client == end);
            let count = if is_client { packets.client_addresses } else { packets.server_addresses };
            topology.addresses(end, count)
        }
    };
    let [Some(from), Some(to)] = ends.map(of) else { return Vec::new() };
    if from.len().saturating_mul(to.len()) > MOST {
        return Vec::new();
    }
    from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))).collect()
}

fn is_tunnelled(topology: &Topology) -> bool {
    topology.path().overhead(topology.family()) > 0
}

/// As the card has it; `None` of what has no ports.
fn kind(scenario: &Scenario, is_ipv6: bool) -> Option<Flow> {
    // The tunnel's source port is of the hash of the flow inside.
    let is_without_ports = || {
        let mut settings = scenario.datapaths.iter().map(|datapath| &datapath.settings);
        settings.any(|settings| settings.get("encapsulation").is_some_and(|name| name.as_str() == Some("mplsogre")))
    };
    let is_tcp = scenario.traffic.connect.name().starts_with("tcp")
        || matches!(&scenario.traffic.connect, Load::Packets(load) if load.is_tcp());
    match (is_tunnelled(&scenario.topology), is_tcp) {
        (true, _) if is_without_ports() => None,
        (false, true) => Some(if is_ipv6 { Flow::TcpV6 } else { Flow::TcpV4 }),
        _ => Some(if is_ipv6 { Flow::UdpV6 } else { Flow::UdpV4 }),
    }
}
