//! Messages that claim an address for a host are not forwarded, and no type of ICMP comes through by the flow of another one.

use std::net::IpAddr;

use rig_datapath::vrouter::{Action, Encapsulation, List, Policy, Reason, Side, TestRunResult, Verdict};
use rig_wire::ethernet::Mac;
use rig_wire::protocol;

use super::cases::{Rules, set_rules};
use super::frames::{self, Frame, L4};
use super::lab::{Lab, Node, mac_of, v4_of, v6_of};
use super::outer::{at, framed, rule, wrapped};
use super::packets::{GATEWAY, bridged, icmpv6};

const IGMP: u8 = 2;
const DESTINATION_OPTIONS: u8 = 60;
const FRAGMENT_HEADER: u8 = 44;

/// A message of a type of ICMPv6 with room for a target and an option.
fn message(kind: u8) -> Vec<u8> {
    let IpAddr::V6(target) = v6_of(0, 1) else { panic!() };
    [&[kind, 0, 0, 0, 0x20, 0, 0, 0][..], &target.octets(), &[2, 1, 2, 0, 0, 0, 0, 9]].concat()
}

/// A message of a type of ICMP with an identifier.
fn icmp(from: IpAddr, to: IpAddr, kind: u8, id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut message = vec![kind, 0, 0, 0, high, low, 0, 1, 10, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    if from.is_ipv6() {
        return icmpv6(from, to, 255, message);
    }
    let sum = rig_wire::checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    frames::ip(from, to, protocol::ICMP, 64, &message)
}

/// Messages from the first addresses to the second ones that claim an address or a role for their sender, each with a name.
fn claims(from: [IpAddr; 2], to: [IpAddr; 2]) -> Vec<(String, Vec<u8>)> {
    let ([from4, from6], [to4, to6]) = (from, to);
    let mut all = Vec::new();
    for kind in [130, 134, 136, 137] {
        all.push((format!("ICMPv6 {kind}"), icmpv6(from6, to6, 255, message(kind))));
        let inside = icmpv6(from6, to6, 255, message(kind)).split_off(40);
        let options = [&[protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0][..], &inside].concat();
        let name = format!("ICMPv6 {kind} behind destination options");
        all.push((name, frames::ip(from6, to6, DESTINATION_OPTIONS, 255, &options)));
        let first = [&[protocol::ICMPV6, 0, 0, 1, 0, 0, 0, 9][..], &inside].concat();
        let name = format!("ICMPv6 {kind}, the first fragment");
        all.push((name, frames::ip(from6, to6, FRAGMENT_HEADER, 255, &first)));
    }
    for kind in [5, 9] {
        all.push((format!("ICMP {kind}"), icmp(from4, to4, kind, 0)));
    }
    all.push(("a query of IGMP".to_owned(), frames::ip(from4, to4, IGMP, 1, &[0x11, 100, 0, 0, 0, 0, 0, 0])));
    all
}

fn dhcp_answers(from: [IpAddr; 2], to: [IpAddr; 2]) -> [Vec<u8>; 2] {
    let answer = |index: usize, ports: [u16; 2]| {
        Frame::new(L4::Udp, at(from[index], ports[0]), at(to[index], ports[1])).packet()
    };
    [answer(0, [67, 68]), answer(1, [547, 546])]
}

fn addresses(node: usize, container: usize) -> [IpAddr; 2] {
    [v4_of(node, container).into(), v6_of(node, container)]
}

fn by_tunnel(node: &Node, encapsulation: Encapsulation, packet: &[u8]) -> TestRunResult {
    let outer = wrapped(encapsulation, packet, 64, 50_000, 1);
    node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &outer), "wire")
}

#[test]
fn nobody_tells_others_whose_an_address_is() {
    for encapsulation in Encapsulation::ALL {
        for rules in [Rules::Nothing, Rules::Flows] {
            let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
            lab.nodes.iter_mut().for_each(|node| set_rules(node, rules));
            let node = &lab.nodes[0];
            for (name, packet) in claims(addresses(0, 0), addresses(0, 1)) {
                let what = format!("{name}, {encapsulation:?}, {rules:?}");
                assert_eq!(node.refuses(&packet), Reason::Claim, "routed: {what}");
                assert_eq!(node.reason(|| bridged(node, mac_of(0, 1), &packet)), Reason::Claim, "bridged: {what}");
                assert_eq!(node.reason(|| bridged(node, Mac::BROADCAST, &packet)), Reason::Claim, "to all: {what}");
            }
            for (name, packet) in claims(addresses(1, 0), addresses(0, 0)) {
                let reason = node.reason(|| by_tunnel(node, encapsulation, &packet));
                assert_eq!(reason, Reason::Claim, "by a tunnel: {name}, {encapsulation:?}, {rules:?}");
            }
            // Questions for routers and neighbours: the router answers or drops them, and never forwards them.
            for kind in [133, 135] {
                let packet = icmpv6(v6_of(0, 0), v6_of(0, 1), 255, message(kind));
                let answered = bridged(node, mac_of(0, 1), &packet);
                let is_answer = answered.frame[..6] == mac_of(0, 0).0;
                assert!(answered.verdict == Verdict::Drop || is_answer, "{kind}: {answered:?}");
            }
            // Reports of groups and pings are for others.
            for kind in [128, 131, 143] {
                node.passes(&icmp(v6_of(0, 0), v6_of(0, 1), kind, 7));
            }
        }
    }
}

#[test]
fn dhcp_is_answered_by_interfaces_that_serve_it() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    for packet in dhcp_answers(addresses(0, 0), addresses(0, 1)) {
        assert_eq!(node.refuses(&packet), Reason::Claim);
        assert_eq!(node.reason(|| bridged(node, mac_of(0, 1), &packet)), Reason::Claim);
    }
    node.config.interfaces.get_mut(&1).unwrap().serves_dhcp = true;
    node.apply();
    for packet in dhcp_answers(addresses(0, 0), addresses(0, 1)) {
        node.passes(&packet);
    }
}

/// Both may ask the other one for an echo, and nothing else.
fn with_pings_alone(node: &mut Node) {
    let pings = [(protocol::ICMP, 8), (protocol::ICMPV6, 128)];
    let rules = pings.map(|(of, kind)| rule(Some(of), kind..=kind, Action::Allow)).to_vec();
    node.config.lists = [(1, List { rules, otherwise: Action::Deny })].into();
    for interface in node.config.interfaces.values_mut() {
        interface.policy = Some(Policy { outward: vec![1], inward: vec![1], most_flows: None });
    }
    node.apply();
}

#[test]
fn a_ping_opens_nothing_but_its_answer() {
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::MplsOverUdp) else { return };
    lab.nodes.iter_mut().for_each(with_pings_alone);
    let node = &lab.nodes[0];
    for family in [0, 1] {
        let (one, other, far) = (addresses(0, 0)[family], addresses(0, 1)[family], addresses(1, 0)[family]);
        let (request, reply) = if family == 0 { (8, 0) } else { (128, 129) };
        let from_other = |packet: &[u8]| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER, packet), "c1");
        for id in [0, 13, 0x000d_u16.swap_bytes(), 139, 0xffff] {
            node.passes(&icmp(one, other, request, id));
            assert_eq!(from_other(&icmp(other, one, reply, id)).verdict, Verdict::Redirect);
            node.passes(&icmp(one, far, request, id));
            let answer = by_tunnel(node, Encapsulation::MplsOverUdp, &icmp(far, one, reply, id));
            assert_eq!(answer.verdict, Verdict::Redirect, "{:?}", node.drops());
        }
        let types = (0..=255).filter(|kind| ![request, reply].contains(kind));
        let is_error = |kind: u8| if family == 0 { matches!(kind, 3 | 11 | 12) } else { (1..=4).contains(&kind) };
        for kind in types.filter(|kind| !is_error(*kind)) {
            for id in [0, 13, 0xffff] {
                assert_eq!(node.send(&icmp(one, other, kind, id)).verdict, Verdict::Drop, "{kind}, {id}");
                assert_eq!(from_other(&icmp(other, one, kind, id)).verdict, Verdict::Drop, "back: {kind}, {id}");
                let far = by_tunnel(node, Encapsulation::MplsOverUdp, &icmp(far, one, kind, id));
                assert_eq!(far.verdict, Verdict::Drop, "by a tunnel: {kind}, {id}");
            }
        }
    }
}

#[test]
fn a_query_opens_its_answer_and_no_query_the_other_way() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let queries = [8, 13].map(|kind| rule(Some(protocol::ICMP), kind..=kind, Action::Allow)).to_vec();
    let nothing = List { rules: Vec::new(), otherwise: Action::Deny };
    node.config.lists = [(1, List { rules: queries, otherwise: Action::Deny }), (2, nothing)].into();
    let held = |outward, inward| Some(Policy { outward: vec![outward], inward: vec![inward], most_flows: None });
    // The first may ask the second, which may ask none.
    node.config.interfaces.get_mut(&1).unwrap().policy = held(1, 2);
    node.config.interfaces.get_mut(&2).unwrap().policy = held(2, 1);
    node.apply();
    let (one, other) = (v4_of(0, 0).into(), v4_of(0, 1).into());
    let back =
        |kind, id| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER, &icmp(other, one, kind, id)), "c1").verdict;
    for id in [0, 1, 13, 0xfff5] {
        node.passes(&icmp(one, other, 13, id));
        assert_eq!(back(14, id), Verdict::Redirect, "{id}: {:?}", node.drops());
        for near in [id, id.wrapping_add(13), id.wrapping_sub(13)] {
            for kind in [0, 8, 13, 15, 16, 17, 18] {
                assert_eq!(back(kind, near), Verdict::Drop, "{kind}, {near}");
            }
        }
    }
    for id in [2, 8, 0xfff8] {
        node.passes(&icmp(one, other, 8, id));
        assert_eq!(back(0, id), Verdict::Redirect, "{id}: {:?}", node.drops());
        for near in [id, id.wrapping_add(8), id.wrapping_sub(8)] {
            assert_eq!(back(8, near), Verdict::Drop, "a ping back with {near}");
        }
    }
    assert_eq!(node.refuses(&icmp(one, GATEWAY.into(), 13, 1)), Reason::NoRoute);
}

const ROUTER: Mac = rig_datapath::vrouter::ROUTER_MAC;
