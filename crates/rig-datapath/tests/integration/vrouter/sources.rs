//! Containers whose frames come from other MAC addresses than the configuration says.

use std::net::IpAddr;

use rig_datapath::vrouter::{Encapsulation, Policy, ROUTER_MAC, Reason, Side, Source, TestRunResult, Verdict};
use rig_wire::arp::{Arp, Operation};
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::tcp::flags::SYN;

use super::lab::{Lab, Node, WIRE, mac_of, run, v4_of, v6_of};
use super::outer::{at, framed, tcp, wrapped};
use super::packets::{GATEWAY, icmpv6};
use super::traffic::{carry, said};

const OTHER: Mac = Mac([2, 0, 0, 0, 0x77, 9]);
const THIRD: Mac = Mac([2, 0, 0, 0, 0x77, 10]);

/// Of both families, from one container to another; nodes and containers are counted from 0.
fn packets(from: (usize, usize), to: (usize, usize)) -> [Vec<u8>; 2] {
    let v4 = tcp(SYN, at(v4_of(from.0, from.1), 1000), at(v4_of(to.0, to.1), 80));
    [v4, tcp(SYN, at(v6_of(from.0, from.1), 1000), at(v6_of(to.0, to.1), 80))]
}

fn receiver(outcome: &TestRunResult) -> Mac {
    assert_eq!(outcome.verdict, Verdict::Redirect);
    Ethernet::parse(&outcome.frame).unwrap().destination()
}

/// The destination MAC addresses of frames for the first container of node 0: routed and bridged ones, of the other container and of the
/// other node.
fn receivers(lab: &Lab, encapsulation: Encapsulation) -> Vec<Mac> {
    let node = &lab.nodes[0];
    let mut all = Vec::new();
    for packet in packets((0, 1), (0, 0)) {
        for to in [ROUTER_MAC, mac_of(0, 0)] {
            let frame = framed(mac_of(0, 1), to, &packet);
            all.push(receiver(&node.give(Side::Container, &frame, "c1")));
        }
    }
    for packet in packets((1, 0), (0, 0)) {
        let mut tunnelled = framed(Mac([2; 6]), Mac([4; 6]), &wrapped(encapsulation, &packet, 64, 50000, 1));
        all.push(receiver(&node.give(Side::Underlay, &tunnelled, "wire")));
        if encapsulation == Encapsulation::Vxlan {
            // That was bridged, by the container's address; by the router's it is routed.
            let inner = ethernet::HEADER + 20 + 8 + 8;
            assert_eq!(tunnelled[inner..inner + 6], mac_of(0, 0).0);
            tunnelled[inner..inner + 6].copy_from_slice(&ROUTER_MAC.0);
            all.push(receiver(&node.give(Side::Underlay, &tunnelled, "wire")));
        }
    }
    all
}

fn source(node: &Node) -> Source {
    node.router.sources().unwrap()[&1]
}

/// The container has the address, too, so that what it says by itself says the same.
fn says_something_from(node: &Node, mac: Mac) {
    run(&node.containers[0], &format!("link set eth0 address {mac}"));
    for packet in packets((0, 0), (0, 1)) {
        assert_eq!(node.give(Side::Container, &framed(mac, ROUTER_MAC, &packet), "c0").verdict, Verdict::Redirect);
    }
}

#[test]
fn frames_for_a_container_go_to_the_address_that_its_own_come_from() {
    for encapsulation in Encapsulation::ALL {
        for has_flows in [true, false] {
            let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
            if !has_flows {
                lab.nodes[0].config.interfaces.values_mut().for_each(|interface| interface.policy = None);
                lab.nodes[0].apply();
            }
            let what = format!("{encapsulation:?}, flows {has_flows}");
            says_something_from(&lab.nodes[0], mac_of(0, 0));
            assert!(receivers(&lab, encapsulation).iter().all(|mac| *mac == mac_of(0, 0)), "{what}");
            let before = lab.nodes[0].router.traffic(1).unwrap().foreign;
            says_something_from(&lab.nodes[0], OTHER);
            assert!(receivers(&lab, encapsulation).iter().all(|mac| *mac == OTHER), "{what}");
            // Counted as one change, not once a frame.
            assert_eq!(lab.nodes[0].router.traffic(1).unwrap().foreign, before + 1, "{what}");
            // Other rules change nothing of it.
            let node = &mut lab.nodes[0];
            node.config.interfaces.values_mut().for_each(|interface| {
                interface.policy = interface.policy.is_none().then(Policy::default);
            });
            node.apply();
            assert_eq!(source(node), Source { mac: Some(OTHER), foreign: None }, "{what}");
            assert!(receivers(&lab, encapsulation).iter().all(|mac| *mac == OTHER), "{what}");
        }
    }
}

#[test]
fn addresses_that_nobody_can_have_are_not_learned() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    says_something_from(node, OTHER);
    let before = node.router.traffic(1).unwrap().foreign;
    for bad in [Mac::default(), Mac::BROADCAST, Mac([1, 0, 0x5e, 0, 0, 5]), ROUTER_MAC] {
        for packet in packets((0, 0), (0, 1)) {
            assert_eq!(node.give(Side::Container, &framed(bad, ROUTER_MAC, &packet), "c0").verdict, Verdict::Redirect);
        }
        assert_eq!(source(node).mac, Some(OTHER), "{bad}");
    }
    assert_eq!(node.router.traffic(1).unwrap().foreign, before + 8);
}

/// Frames of every kind: both families, for the router, for a container, to all, and questions for addresses.
fn frames(source: Mac) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for packet in packets((0, 0), (0, 1)) {
        for to in [ROUTER_MAC, mac_of(0, 1), Mac::BROADCAST] {
            all.push(framed(source, to, &packet));
        }
    }
    let IpAddr::V6(target) = v6_of(0, 1) else { panic!() };
    let question = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
    all.push(framed(source, ROUTER_MAC, &icmpv6(v6_of(0, 0), target.into(), 255, question)));
    let mut arp = vec![0; 42];
    let header = ethernet::Header { destination: Mac::BROADCAST, source, vlan: None, ethertype: ethertype::ARP };
    header.write(&mut arp).unwrap();
    let (sender, target) = ((source, v4_of(0, 0)), (Mac::default(), GATEWAY));
    Arp { operation: Operation::Request, sender, target }.write(&mut arp[ethernet::HEADER..]).unwrap();
    all.push(arp);
    all
}

#[test]
fn where_an_address_is_said_frames_from_others_are_dropped_and_counted() {
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::Vxlan) else { return };
    let node = &mut lab.nodes[0];
    node.config.interfaces.get_mut(&1).unwrap().any_mac = false;
    node.flood(&[1], false);
    assert_eq!(source(node), Source { mac: Some(mac_of(0, 0)), foreign: None });
    let before = node.router.traffic(1).unwrap().foreign;
    for frame in frames(OTHER) {
        assert_eq!(node.reason(|| node.give(Side::Container, &frame, "c0")), Reason::ForeignMac, "{frame:02x?}");
    }
    let foreign = node.router.traffic(1).unwrap().foreign - before;
    assert_eq!(foreign, frames(OTHER).len() as u64);
    assert_eq!(source(node), Source { mac: Some(mac_of(0, 0)), foreign: Some(OTHER) });
    // The note of a packet says whose it was.
    let last = node.router.last_dropped().unwrap();
    let noted = last.iter().filter(|dropped| dropped.reason == Some(Reason::ForeignMac));
    assert!(noted.clone().any(|dropped| dropped.source == at(v4_of(0, 0), 1000)), "{last:?}");
    assert!(noted.clone().any(|dropped| dropped.source == at(v6_of(0, 0), 1000)), "{last:?}");
    // Nothing of it changes where frames go, and those from the address that is said pass.
    assert!(receivers(&lab, Encapsulation::Vxlan).iter().all(|mac| *mac == mac_of(0, 0)));
    let node = &mut lab.nodes[0];
    for frame in frames(mac_of(0, 0)) {
        assert_eq!(node.give(Side::Container, &frame, "c0").verdict, Verdict::Redirect, "{frame:02x?}");
    }
    assert_eq!(node.router.traffic(1).unwrap().foreign - before, foreign);
    // Said otherwise, it is otherwise.
    node.config.interfaces.get_mut(&1).unwrap().any_mac = true;
    node.apply();
    says_something_from(node, OTHER);
    assert_eq!(source(node), Source { mac: Some(OTHER), foreign: None });
}

#[test]
fn a_container_that_is_made_again_gets_its_traffic() {
    let Some(mut lab) = Lab::new(2, 2, Encapsulation::Vxlan) else { return };
    for mac in [OTHER, THIRD] {
        let node = &mut lab.nodes[0];
        run(&node.ns, "link delete c0");
        let old = node.containers.remove(0);
        drop(old);
        node.add_container(0, WIRE - u32::from(Encapsulation::Vxlan.overhead()));
        let made = node.containers.pop().unwrap();
        run(&made, &format!("link set eth0 address {mac}"));
        run(&made, "-6 route replace default via fd07::1");
        node.containers.insert(0, made);
        node.config.interfaces.get_mut(&1).unwrap().index = node.index("c0");
        node.apply();
        run(&lab.nodes[1].containers[0], "-6 route replace default via fd07::1");
        let [made, elsewhere] = [0, 1].map(|node| &lab.nodes[node].containers[0]);
        for is_v6 in [false, true] {
            let of = |node| if is_v6 { v6_of(node, 0) } else { v4_of(node, 0).into() };
            carry(made, elsewhere, of(1), || said(&lab));
            carry(elsewhere, made, of(0), || said(&lab));
        }
        assert_eq!(source(&lab.nodes[0]).mac, Some(mac));
        assert!(receivers(&lab, Encapsulation::Vxlan).iter().all(|receiver| *receiver == mac));
    }
}
