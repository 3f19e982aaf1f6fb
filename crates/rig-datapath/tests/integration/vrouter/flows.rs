//! Flows, and the rules that they begin under.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;

use rig_datapath::vrouter::{
    Action, Encapsulation, List, NextHop, Policy, ROUTER_MAC, Reason, Rule, Side, Timeouts, Verdict,
};
use rig_wire::ethernet::{Ethernet, Mac};
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, FIN, SYN};

use super::frames::{self, Frame, L4};
use super::lab::{Lab, Node, mac_of, v4_of, v6_of};
use super::outer::{at, framed, rule, tcp, wrapped};
use super::packets::{bridged, ping};

fn with_lists(lab: &mut Lab, outward: Vec<Rule>, inward: Vec<Rule>) {
    let node = &mut lab.nodes[0];
    let list = |rules| List { rules, otherwise: Action::Deny };
    node.config.lists = BTreeMap::from([(1, list(outward)), (2, list(inward))]);
    for interface in node.config.interfaces.values_mut() {
        interface.policy = Some(Policy { outward: vec![1], inward: vec![2], most_flows: None });
    }
    node.apply();
}

#[test]
fn rules_are_for_those_who_begin_and_answers_pass() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let anything = || vec![rule(None, 0..=u16::MAX, Action::Allow)];
    with_lists(&mut lab, anything(), vec![rule(Some(protocol::TCP), 80..=90, Action::Allow)]);
    let (a, b) = (v4_of(0, 0), v4_of(0, 1));
    let node = &lab.nodes[0];
    assert_eq!(node.refuses(&tcp(SYN, at(a, 1000), at(b, 79))), Reason::Policy);
    assert_eq!(node.refuses(&Frame::new(L4::Udp, at(a, 1000), at(b, 80)).packet()), Reason::Policy);
    node.passes(&tcp(SYN, at(a, 1000), at(b, 80)));
    let back = |packet: &[u8]| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, packet), "c1");
    // The answer goes to port 1000, which no rule allows; nothing else goes there.
    assert_eq!(back(&tcp(SYN | ACK, at(b, 80), at(a, 1000))).verdict, Verdict::Redirect);
    assert_eq!(node.reason(|| back(&tcp(SYN, at(b, 81), at(a, 1000)))), Reason::Policy);
    let flows = node.router.flows();
    assert_eq!(flows.len(), 2, "what was refused is no flow: {flows:?}");
    assert!(node.router.last_dropped().unwrap().iter().any(|dropped| {
        (dropped.reason, dropped.source, dropped.destination) == (Some(Reason::Policy), at(a, 1000), at(b, 79))
    }));
}

#[test]
fn changed_rules_are_for_the_next_packet_of_a_flow() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let allow = |ports| vec![rule(Some(protocol::TCP), ports, Action::Allow)];
    let anything = || vec![rule(None, 0..=u16::MAX, Action::Allow)];
    let (from, to) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    with_lists(&mut lab, anything(), allow(80..=80));
    lab.nodes[0].passes(&tcp(SYN, from, to));
    with_lists(&mut lab, anything(), allow(81..=81));
    assert_eq!(lab.nodes[0].refuses(&tcp(ACK, from, to)), Reason::FlowActionDrop);
    let answer = framed(mac_of(0, 1), ROUTER_MAC, &tcp(ACK, to, from));
    assert_eq!(lab.nodes[0].reason(|| lab.nodes[0].give(Side::Container, &answer, "c1")), Reason::FlowActionDrop);
    with_lists(&mut lab, anything(), allow(80..=81));
    lab.nodes[0].passes(&tcp(ACK, from, to));
    assert_eq!(lab.nodes[0].give(Side::Container, &answer, "c1").verdict, Verdict::Redirect);
    // A thousand rules, of which the last allows.
    let mut many: Vec<Rule> = (1000..1999).map(|port| rule(Some(protocol::TCP), port..=port, Action::Deny)).collect();
    many.push(rule(Some(protocol::TCP), 80..=80, Action::Allow));
    with_lists(&mut lab, anything(), many);
    lab.nodes[0].passes(&tcp(ACK, from, to));
    assert_eq!(lab.nodes[0].refuses(&tcp(SYN, from, at(v4_of(0, 1), 1500))), Reason::Policy);
}

/// Also where an answer's second packet is several segments, more than are looked at.
#[test]
fn both_ends_of_a_connection_are_seen_to_be_there() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let (from, to) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    let back = |flags, segments| {
        let frame = framed(mac_of(0, 1), ROUTER_MAC, &tcp(flags, to, from));
        let index = node.index("c1");
        let outcome = node.ns.run(|| node.router.test_run_segments(&frame, index, segments)).unwrap().unwrap();
        assert_eq!(outcome.verdict, Verdict::Redirect);
    };
    node.passes(&tcp(SYN, from, to));
    back(SYN | ACK, 1);
    node.passes(&tcp(ACK, from, to));
    back(ACK, 5);
    let flows = node.router.flows();
    let began = flows.iter().find(|flow| flow.forward).unwrap();
    // SYN and then ACK, by both.
    assert_eq!(began.tcp, 0x0f, "{flows:?}");
    let answer = flows.iter().find(|flow| !flow.forward).unwrap();
    assert_eq!(answer.packets, 6, "{flows:?}");
}

#[test]
fn routes_to_nowhere_are_no_flows() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    vrf.routes.insert("10.9.0.0/16".parse().unwrap(), NextHop::Discard);
    node.apply();
    let packet = tcp(SYN, at(v4_of(0, 0), 1000), at(Ipv4Addr::new(10, 9, 1, 1), 80));
    assert_eq!(node.refuses(&packet), Reason::Discard);
    assert!(node.router.flows().is_empty());
    assert_eq!(node.refuses(&tcp(SYN, at(v4_of(0, 0), 1000), at(Ipv4Addr::new(10, 8, 1, 1), 80))), Reason::NoRoute);
}

#[test]
fn full_tables_refuse_new_flows_and_keep_those_that_are_there() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let (a, b) = (v4_of(0, 0), v4_of(0, 1));
    let first = tcp(SYN, at(a, 1), at(b, 80));
    lab.nodes[0].passes(&first);
    let refused = (2..2000).find(|port| lab.nodes[0].send(&tcp(SYN, at(a, *port), at(b, 80))).verdict == Verdict::Drop);
    // Each has an entry in both directions, and the table room for 1,024.
    assert_eq!(refused, Some(513));
    assert_eq!(lab.nodes[0].refuses(&tcp(SYN, at(a, 3000), at(b, 80))), Reason::FlowTableFull);
    lab.nodes[0].passes(&tcp(ACK, at(a, 1), at(b, 80)));
    assert_eq!(lab.nodes[0].router.flows().len(), 1024);
    // An interface's own limit.
    for interface in lab.nodes[0].config.interfaces.values_mut() {
        interface.policy = Some(Policy { most_flows: NonZeroU32::new(512), ..Policy::default() });
    }
    lab.nodes[0].apply();
    assert_eq!(lab.nodes[0].refuses(&tcp(SYN, at(a, 3000), at(b, 80))), Reason::NewFlows);
    lab.nodes[0].passes(&tcp(ACK, at(a, 1), at(b, 80)));
}

#[test]
fn silent_flows_end() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let (a, b) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    let node = &mut lab.nodes[0];
    let (start, second) = (1000, 8);
    let timeouts = Timeouts::default();
    let sweeper = node.router.sweeper();
    node.router.set_tick(start).unwrap();
    let back = |node: &Node, packet: &[u8]| {
        node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, packet), "c1").verdict
    };
    node.passes(&tcp(SYN, a, b));
    assert_eq!(back(node, &tcp(SYN | ACK, b, a)), Verdict::Redirect);
    node.passes(&tcp(ACK, a, b));
    // The other direction alone keeps it.
    node.router.set_tick(start + 170 * second).unwrap();
    assert_eq!(back(node, &tcp(ACK, b, a)), Verdict::Redirect);
    node.router.set_tick(start + 300 * second).unwrap();
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 0);
    // Both have closed.
    node.passes(&tcp(FIN | ACK, a, b));
    assert_eq!(back(node, &tcp(FIN | ACK, b, a)), Verdict::Redirect);
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 0);
    node.router.set_tick(start + 305 * second).unwrap();
    assert_eq!(node.router.connections(1).unwrap(), 1);
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 1);
    assert!(node.router.flows().is_empty());
    assert_eq!(node.router.connections(1).unwrap(), 0);
    // Unanswered connections: many, so that the sweep meets either direction first.
    for port in 2000..2100 {
        node.passes(&tcp(SYN, at(a.ip(), port), b));
    }
    node.router.set_tick(start + 900 * second).unwrap();
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 100);
    assert!(node.router.flows().is_empty());
}

#[test]
fn several_ways_are_shared_by_flow() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    let anycast = IpAddr::from([10, 7, 50, 1]);
    vrf.routes.insert(anycast.into(), NextHop::Ecmp(vec![NextHop::Interface(2), NextHop::Interface(3)]));
    node.apply();
    let mut by = BTreeMap::<Mac, u32>::new();
    for port in 1000..1040 {
        let packet = tcp(SYN, at(v4_of(0, 0), port), at(anycast, 80));
        let first = Ethernet::parse(&node.passes(&packet)).unwrap().destination();
        *by.entry(first).or_default() += 1;
        assert_eq!(Ethernet::parse(&node.passes(&packet)).unwrap().destination(), first);
        let container = if first == mac_of(0, 1) { "c1" } else { "c2" };
        let answer = framed(first, ROUTER_MAC, &tcp(SYN | ACK, at(anycast, 80), at(v4_of(0, 0), port)));
        assert_eq!(node.give(Side::Container, &answer, container).verdict, Verdict::Redirect);
    }
    assert_eq!(by.keys().copied().collect::<Vec<_>>(), [mac_of(0, 1), mac_of(0, 2)], "{by:?}");
}

#[test]
fn a_route_to_all_of_ipv6_is_none_for_ipv4() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    vrf.routes.insert("::/0".parse().unwrap(), NextHop::Interface(2));
    node.apply();
    let (v4, v6) = ("192.0.2.77".parse::<IpAddr>().unwrap(), "2001:db8::77".parse::<IpAddr>().unwrap());
    assert_eq!(node.refuses(&tcp(SYN, at(v4_of(0, 0), 1000), at(v4, 80))), Reason::NoRoute);
    node.passes(&tcp(SYN, at(v6_of(0, 0), 1000), at(v6, 80)));
    // Nor is a rule for it.
    let of_ipv6 =
        vec![Rule { remote: BTreeSet::from(["::/0".parse().unwrap()]), ..rule(None, 0..=u16::MAX, Action::Allow) }];
    let anything = vec![rule(None, 0..=u16::MAX, Action::Allow)];
    with_lists(&mut lab, of_ipv6, anything);
    assert_eq!(lab.nodes[0].refuses(&tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80))), Reason::Policy);
    lab.nodes[0].passes(&tcp(SYN, at(v6_of(0, 0), 1000), at(v6_of(0, 1), 80)));
}

#[test]
fn a_packet_to_oneself_leaves_no_flow() {
    let Some(lab) = Lab::new(1, 1, Encapsulation::MplsOverUdp) else { return };
    let own = at(v4_of(0, 0), 80);
    assert_eq!(lab.nodes[0].refuses(&tcp(SYN, own, own)), Reason::InvalidSource);
    assert!(lab.nodes[0].router.flows().is_empty());
}

#[test]
fn a_flow_to_what_is_now_the_gateways_ends_there() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let packet = tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    node.passes(&packet);
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    vrf.routes.insert(IpAddr::from(v4_of(0, 1)).into(), NextHop::Gateway);
    node.apply();
    assert_eq!(node.refuses(&packet), Reason::NoRoute);
}

#[test]
fn answers_come_back_when_a_container_has_moved_to_another_node() {
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let (a, b) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    node.config.lists = BTreeMap::from([(1, List { rules: vec![], otherwise: Action::Deny })]);
    node.config.interfaces.get_mut(&1).unwrap().policy = Some(Policy { inward: vec![1], ..Policy::default() });
    node.apply();
    node.passes(&tcp(SYN, a, b));
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    let elsewhere = vrf.routes[&IpAddr::from(v4_of(1, 1)).into()].clone();
    vrf.routes.insert(b.ip().into(), elsewhere);
    node.apply();
    node.passes(&tcp(ACK, a, b));
    let answer = wrapped(Encapsulation::MplsOverUdp, &tcp(SYN | ACK, b, a), 64, 50000, 1);
    let outcome = node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &answer), "wire");
    assert_eq!(outcome.verdict, Verdict::Redirect, "{:?}", node.router.drops().unwrap());
}

#[test]
fn an_error_about_a_ping_is_held_against_the_rules_for_pings() {
    let Some(mut lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let pings = vec![rule(Some(protocol::ICMP), 8..=8, Action::Allow)];
    node.config.lists = BTreeMap::from([(1, List { rules: pings, otherwise: Action::Deny })]);
    for interface in node.config.interfaces.values_mut() {
        interface.policy = Some(Policy { outward: vec![1], inward: vec![1], most_flows: None });
    }
    node.apply();
    let ping = ping(v4_of(0, 0), v4_of(1, 0));
    node.passes(&ping);
    // The rules are looked at again.
    node.apply();
    let mut message = vec![3, 1, 0, 0, 0, 0, 0, 0];
    message.extend(&ping);
    let sum = rig_wire::checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let error = frames::ip(v4_of(1, 0).into(), v4_of(0, 0).into(), protocol::ICMP, 64, &message);
    let outer = framed(Mac([2; 6]), Mac([4; 6]), &wrapped(Encapsulation::MplsOverUdp, &error, 64, 50000, 1));
    let outcome = node.give(Side::Underlay, &outer, "wire");
    assert_eq!(outcome.verdict, Verdict::Redirect, "{:?}", node.router.drops().unwrap());
    assert!(node.router.flows().iter().all(|flow| !flow.denied));
}

#[test]
fn rules_of_the_receiver_are_for_senders_without_rules_too() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    node.config.lists = BTreeMap::from([(1, List { rules: vec![], otherwise: Action::Deny })]);
    let mut set = |number: u32, policy: Option<Policy>| {
        node.config.interfaces.get_mut(&number).unwrap().policy = policy;
    };
    set(1, None);
    set(2, Some(Policy { inward: vec![1], ..Policy::default() }));
    node.apply();
    let (a, b, c) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80), at(v4_of(0, 2), 80));
    assert_eq!(node.refuses(&tcp(SYN, a, b)), Reason::Policy);
    node.passes(&tcp(SYN, a, c));
    assert_eq!(node.reason(|| bridged(node, mac_of(0, 1), &tcp(SYN, a, b))), Reason::Policy);
    // In a frame for one, a packet for another, whose rules allow it.
    assert_eq!(node.reason(|| bridged(node, mac_of(0, 1), &tcp(SYN, a, c))), Reason::InvalidNh);
    assert_eq!(bridged(node, mac_of(0, 2), &tcp(SYN, a, c)).verdict, Verdict::Redirect);
}

/// Has an address behind an interface of the node.
fn moves_to(node: &mut Node, address: IpAddr, interface: u32) {
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    vrf.routes.insert(address.into(), NextHop::Interface(interface));
    node.apply();
}

/// From a container of the first node, which by now has another one's address.
fn sends(node: &Node, container: usize, packet: &[u8]) -> Verdict {
    node.give(Side::Container, &framed(mac_of(0, container), ROUTER_MAC, packet), &format!("c{container}")).verdict
}

/// Ticks are of 134 ms.
const MINUTES_LATER: u32 = 10_000;

#[test]
fn two_directions_that_have_both_begun_are_two_connections_until_both_have_ended() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let (a, b) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    let start = 1000;
    node.router.set_tick(start).unwrap();
    moves_to(node, b.ip(), 3);
    node.passes(&tcp(ACK, a, b));
    moves_to(node, b.ip(), 2);
    // The container at the new place has not been asked yet.
    assert_eq!(sends(node, 1, &tcp(ACK, b, a)), Verdict::Redirect);
    node.passes(&tcp(ACK, a, b));
    assert_eq!([1, 2].map(|number| node.router.connections(number).unwrap()), [1, 1]);
    node.router.set_tick(start + MINUTES_LATER).unwrap();
    node.router.sweeper().sweep(&Timeouts::default(), false).unwrap();
    assert!(node.router.flows().is_empty(), "{:?}", node.router.flows());
    assert_eq!([1, 2].map(|number| node.router.connections(number).unwrap()), [0, 0]);
}

#[test]
fn two_directions_of_which_none_has_begun_end() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let (a, b) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    let (start, second) = (1000, 8);
    node.router.set_tick(start).unwrap();
    moves_to(node, b.ip(), 3);
    node.passes(&tcp(ACK, a, b));
    moves_to(node, b.ip(), 2);
    node.passes(&tcp(ACK, a, b));
    moves_to(node, b.ip(), 3);
    // The answer's direction outlives the one that began it.
    node.router.set_tick(start + 150 * second).unwrap();
    assert_eq!(sends(node, 2, &tcp(ACK, b, a)), Verdict::Redirect);
    node.router.set_tick(start + 200 * second).unwrap();
    assert_eq!(node.router.sweeper().sweep(&Timeouts::default(), false).unwrap(), 1);
    // Another connection's answer takes its place, and they find each other.
    moves_to(node, b.ip(), 2);
    assert_eq!(sends(node, 1, &tcp(ACK, b, a)), Verdict::Redirect);
    moves_to(node, b.ip(), 3);
    node.passes(&tcp(ACK, a, b));
    let flows = node.router.flows();
    let of_answers = flows.iter().filter(|flow| !flow.forward).map(|flow| (flow.interface, flow.reverse_interface));
    assert_eq!(of_answers.collect::<BTreeSet<_>>(), BTreeSet::from([(1, 3), (3, 1)]), "{flows:?}");
    node.router.set_tick(start + MINUTES_LATER).unwrap();
    node.router.sweeper().sweep(&Timeouts::default(), false).unwrap();
    assert!(node.router.flows().is_empty(), "{:?}", node.router.flows());
    assert_eq!([1, 2, 3].map(|number| node.router.connections(number).unwrap()), [0; 3]);
}

#[test]
fn answers_come_back_when_who_asks_has_moved_to_another_interface() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let (a, b) = (at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    let (start, second) = (1000, 8);
    // The client accepts only answers, at either interface.
    node.config.lists = BTreeMap::from([(1, List { rules: vec![], otherwise: Action::Deny })]);
    for number in [1, 3] {
        node.config.interfaces.get_mut(&number).unwrap().policy = Some(Policy { inward: vec![1], ..Policy::default() });
    }
    node.router.set_tick(start).unwrap();
    node.apply();
    node.passes(&tcp(SYN, a, b));
    moves_to(node, a.ip(), 3);
    node.router.set_tick(start + 100 * second).unwrap();
    assert_eq!(sends(node, 2, &tcp(ACK, a, b)), Verdict::Redirect);
    // What it began before has been silent for long enough.
    node.router.set_tick(start + 190 * second).unwrap();
    node.router.sweeper().sweep(&Timeouts::default(), false).unwrap();
    assert_eq!(sends(node, 1, &tcp(ACK, b, a)), Verdict::Redirect, "{:?}", node.router.drops().unwrap());
}
