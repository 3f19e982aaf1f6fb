//! Packet in, verdict and every byte out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rig_datapath::vrouter::{
    Action, Encapsulation, List, NextHop, Policy, ROUTER_MAC, Reason, Rule, Side, TestRunResult, Verdict,
};
use rig_sys::netlink::Netlink;
use rig_wire::arp::{Arp, Operation};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, SYN};

use super::cases::{Rules, set_rules};
use super::frames::{self, Frame, L4};
use super::lab::{Lab, Node, mac_of, v4_of, v6_of};
use super::outer::{at, framed, rule, tcp, wrapped};

/// Addresses of the lab's network.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);

impl Node {
    pub fn index(&self, interface: &str) -> u32 {
        Netlink::open(&self.ns).unwrap().index(interface).unwrap()
    }

    pub fn give(&self, side: Side, frame: &[u8], interface: &str) -> TestRunResult {
        let index = self.index(interface);
        self.ns.run(|| self.router.test_run(side, frame, index)).unwrap().unwrap()
    }

    /// From its first container, to the router.
    pub fn send(&self, packet: &[u8]) -> TestRunResult {
        self.give(Side::Container, &framed(mac_of(0, 0), ROUTER_MAC, packet), "c0")
    }

    #[track_caller]
    pub fn passes(&self, packet: &[u8]) -> Vec<u8> {
        let before = self.router.drops().unwrap();
        let outcome = self.send(packet);
        assert_eq!(outcome.verdict, Verdict::Redirect, "{before:?} {:?}", self.router.drops().unwrap());
        outcome.frame
    }

    pub fn drops(&self) -> BTreeMap<u32, u64> {
        self.router.drops().unwrap().into_iter().map(|(reason, count)| (reason.number(), count)).collect()
    }

    /// The one reason for which something is dropped.
    #[track_caller]
    pub fn reason(&self, give: impl FnOnce() -> TestRunResult) -> Reason {
        let before = self.drops();
        let outcome = give();
        assert_eq!(outcome.verdict, Verdict::Drop);
        let now = self.drops();
        // Containers' own questions for routers come when they like, and those for addresses.
        let grown = |reason: &&Reason| {
            !matches!(reason, Reason::L2NoRoute | Reason::Unanswered)
                && now.get(&reason.number()) > before.get(&reason.number())
        };
        let reasons: Vec<_> = Reason::ALL.iter().filter(grown).collect();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        *reasons[0]
    }

    #[track_caller]
    pub fn refuses(&self, packet: &[u8]) -> Reason {
        self.reason(|| self.send(packet))
    }
}

#[test]
fn questions_for_addresses_are_answered_with_the_routers() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let ask = |target: Ipv4Addr| {
        let mut frame = vec![0; 42];
        ethernet::Header { destination: Mac::BROADCAST, source: mac_of(0, 0), vlan: None, ethertype: ethertype::ARP }
            .write(&mut frame)
            .unwrap();
        let question = Arp {
            operation: Operation::Request,
            sender: (mac_of(0, 0), v4_of(0, 0)),
            target: (Mac::default(), target),
        };
        question.write(&mut frame[ethernet::HEADER..]).unwrap();
        node.give(Side::Container, &frame, "c0")
    };
    for known in [v4_of(0, 1), GATEWAY] {
        let outcome = ask(known);
        assert_eq!(outcome.verdict, Verdict::Redirect, "{known}");
        let ethernet = Ethernet::parse(&outcome.frame).unwrap();
        assert_eq!((ethernet.destination(), ethernet.source()), (mac_of(0, 0), ROUTER_MAC));
        let answer = Arp::parse(ethernet.payload()).unwrap();
        assert_eq!(answer.operation, Operation::Reply);
        assert_eq!((answer.sender, answer.target), ((ROUTER_MAC, known), (mac_of(0, 0), v4_of(0, 0))));
    }
    let unanswered = || node.drops().get(&Reason::Unanswered.number()).copied().unwrap_or(0);
    let before = unanswered();
    // Its own address, and one that no container has.
    assert_eq!(ask(v4_of(0, 0)).verdict, Verdict::Drop);
    assert_eq!(ask(Ipv4Addr::new(10, 7, 9, 9)).verdict, Verdict::Drop);
    assert!(unanswered() >= before + 2);
}

#[test]
fn neighbor_solicitations_are_answered_with_the_routers() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let IpAddr::V6(target) = v6_of(0, 1) else { panic!() };
    let (from, group) = (v6_of(0, 0), "ff02::1:ff00:11".parse::<IpAddr>().unwrap());
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]);
    message.extend(mac_of(0, 0).0);
    let packet = frames::ip(from, group, protocol::ICMPV6, 255, &message);
    let outcome = node.give(Side::Container, &framed(mac_of(0, 0), Mac([0x33, 0x33, 0xff, 0, 0, 0x11]), &packet), "c0");
    assert_eq!(outcome.verdict, Verdict::Redirect);
    let ethernet = Ethernet::parse(&outcome.frame).unwrap();
    assert_eq!((ethernet.destination(), ethernet.source()), (mac_of(0, 0), ROUTER_MAC));
    let ip = Ipv6::parse(ethernet.payload()).unwrap();
    assert_eq!((IpAddr::from(ip.source()), IpAddr::from(ip.destination()), ip.hop_limit()), (target.into(), from, 255));
    let icmp = Icmpv6::parse(ip.payload()).unwrap();
    icmp.verify(ip.pseudo()).unwrap();
    assert_eq!(icmp.kind(), 136);
    assert_eq!(&ip.payload()[8..24], target.octets());
    assert_eq!(ip.payload()[24..], [&[2, 1], &ROUTER_MAC.0[..]].concat());
}

#[test]
fn the_gateway_answers_pings() {
    let Some(lab) = Lab::new(1, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let mut echo = [0; 64];
    let length = rig_wire::icmp::write_echo(&mut echo, 8, (7, 1), b"ping").unwrap();
    let frame = node.passes(&frames::ip(v4_of(0, 0).into(), GATEWAY.into(), protocol::ICMP, 64, &echo[..length]));
    let ip = Ipv4::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    ip.verify().unwrap();
    assert_eq!((ip.source(), ip.destination()), (GATEWAY, v4_of(0, 0)));
    let icmp = Icmp::parse(ip.payload()).unwrap();
    icmp.verify().unwrap();
    assert_eq!((icmp.kind(), icmp.echo(), icmp.payload()), (0, (7, 1), &b"ping"[..]));

    let (from, to) = (v6_of(0, 0), "fd07::1".parse::<IpAddr>().unwrap());
    let (IpAddr::V6(a), IpAddr::V6(b)) = (from, to) else { panic!() };
    let mut echo = vec![128, 0, 0, 0, 0, 7, 0, 1, 1, 2, 3, 4];
    let sum = PartialChecksum::pseudo_v6(a, b, protocol::ICMPV6, echo.len()).bytes(&echo);
    echo[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let frame = node.passes(&frames::ip(from, to, protocol::ICMPV6, 64, &echo));
    let ip = Ipv6::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    let icmp = Icmpv6::parse(ip.payload()).unwrap();
    icmp.verify(ip.pseudo()).unwrap();
    assert_eq!((icmp.kind(), icmp.echo()), (129, (7, 1)));
    // Nothing else is there.
    assert_eq!(node.refuses(&tcp(SYN, at(v4_of(0, 0), 1000), at(GATEWAY, 80))), Reason::NoRoute);
    assert!(node.router.flows().is_empty());
}

#[test]
fn packets_of_one_node_go_from_interface_to_interface() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    for (from, to) in [(at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80)), (at(v6_of(0, 0), 1000), at(v6_of(0, 1), 80))] {
        let packet = Frame::new(L4::Tcp(SYN), from, to);
        let frame = node.passes(&packet.packet());
        let expected = framed(ROUTER_MAC, mac_of(0, 1), &packet.clone().ttl(63).packet());
        assert_eq!(frame, expected);
        // And back, by the other interface.
        let answer = Frame::new(L4::Tcp(SYN | ACK), to, from);
        let outcome = node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, &answer.packet()), "c1");
        assert_eq!(outcome.frame, framed(ROUTER_MAC, mac_of(0, 0), &answer.ttl(63).packet()));
    }
    let flows = node.router.flows();
    assert_eq!(flows.len(), 4, "{flows:?}");
    assert!(flows.iter().all(|flow| flow.packets == 1), "{flows:?}");
}

#[test]
fn packets_to_another_node_are_wrapped_and_unwrapped_there() {
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
        let (here, there) = (&lab.nodes[0], &lab.nodes[1]);
        for (from, to) in [(at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80)), (at(v6_of(0, 0), 1000), at(v6_of(1, 0), 80))] {
            let packet = Frame::new(L4::Tcp(SYN), from, to).payload(b"inner");
            let frame = here.passes(&packet.packet());
            let inner = packet.ttl(63).packet();
            let port = here.router.flows().iter().find(|flow| flow.source == from).unwrap().tunnel_port;
            assert!(port >= 49152);
            let outer = wrapped(encapsulation, &inner, 63, port, 0);
            // The link's addresses are the kernel's to fill in.
            assert_eq!(frame[12..], [&[8, 0][..], &outer].concat(), "{encapsulation:?}");
            let outcome = there.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &outer), "wire");
            assert_eq!(outcome.verdict, Verdict::Redirect, "{encapsulation:?}: {:?}", there.router.drops().unwrap());
            assert_eq!(outcome.frame, framed(ROUTER_MAC, mac_of(1, 0), &inner), "{encapsulation:?}");
        }
    }
}

#[test]
fn flows_have_ports_of_their_own_outside() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    for port in 1000..1064 {
        node.passes(&tcp(SYN, at(v4_of(0, 0), port), at(v4_of(1, 0), 80)));
    }
    let flows = node.router.flows();
    let ports: BTreeSet<u16> = flows.iter().filter(|flow| flow.forward).map(|flow| flow.tunnel_port).collect();
    // Of 16,384: two of 64 are the same in one run of nine, five pairs never.
    assert!(ports.len() >= 60, "{ports:?}");
}

#[test]
fn what_comes_by_no_tunnel_of_a_peer_is_dropped_and_counted() {
    let inner = tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        let good = wrapped(encapsulation, &inner, 64, 50000, 0);
        // Where ways differ, the interface tells nothing.
        lab.nodes[1].config.underlay.as_mut().unwrap().strict = false;
        lab.nodes[1].apply();
        let taken = lab.nodes[1].give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &good), "c0");
        assert_eq!(taken.verdict, Verdict::Redirect);
        lab.nodes[1].config.underlay.as_mut().unwrap().strict = true;
        lab.nodes[1].apply();
        let node = &lab.nodes[1];
        let drop =
            |outer: &[u8]| node.reason(|| node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), outer), "wire"));
        let mut stranger = good.clone();
        stranger[15] = 77;
        assert_eq!(drop(&stranger), Reason::NoPeer, "{encapsulation:?}");
        // The peers are not behind this interface: the source is forged.
        let elsewhere = || node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &good), "c0");
        assert_eq!(node.reason(elsewhere), Reason::PeerInterface, "{encapsulation:?}");
        // Label or network identifier, in the byte that has its lowest whole bits.
        let label = if encapsulation == Encapsulation::MplsOverGre {
            24
        } else if encapsulation == Encapsulation::Vxlan {
            33
        } else {
            28
        };
        let mut guessed = good.clone();
        guessed[label] ^= 0x7f;
        let reason = drop(&guessed);
        let expected = if encapsulation == Encapsulation::Vxlan { Reason::InvalidVnid } else { Reason::InvalidLabel };
        assert_eq!(reason, expected, "{encapsulation:?}");
        let whose = (Some(expected), at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
        let last = node.router.last_dropped().unwrap();
        assert!(last.iter().any(|one| (one.reason, one.source, one.destination) == whose), "{last:?}");
        // An inner source that is not the peer's.
        let forged = tcp(SYN, at(v4_of(1, 0), 1000), at(v4_of(1, 0), 80));
        assert_eq!(drop(&wrapped(encapsulation, &forged, 64, 50000, 0)), Reason::InvalidSource);
        // Inner packets that end too early: every length.
        for length in 20..good.len() {
            let outcome = node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &good[..length]), "wire");
            assert_ne!(outcome.verdict, Verdict::Redirect, "{encapsulation:?}, {length} bytes");
        }
        // The host's own.
        let mut own = good.clone();
        own[9] = 1;
        let outcome = node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &own), "wire");
        assert_eq!(outcome.verdict, Verdict::Pass);
        assert_eq!(outcome.frame[14..], own);
    }
}

#[test]
fn nobody_sends_from_anothers_address() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    for source in [v4_of(0, 1), Ipv4Addr::new(203, 0, 113, 1)] {
        assert_eq!(node.refuses(&tcp(SYN, at(source, 1000), at(v4_of(0, 1), 80))), Reason::InvalidSource);
    }
}

/// No container without rules, no peer, and no frame to another MAC address may use a forged source; nor may any use the gateway's.
#[test]
fn without_rules_nobody_sends_from_anothers_address_either() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
        for node in &mut lab.nodes {
            set_rules(node, Rules::Nothing);
        }
        let [node, other] = &lab.nodes[..] else { panic!() };
        let (own, own6) = (IpAddr::from(v4_of(0, 0)), v6_of(0, 0));
        let forged4 = [v4_of(0, 1), v4_of(1, 0), GATEWAY, Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::UNSPECIFIED];
        let forged6 = [v6_of(0, 1), v6_of(1, 0), "2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap()];
        let forged: Vec<IpAddr> = forged4.into_iter().map(IpAddr::from).chain(forged6).collect();
        for (to, mac) in [(0, mac_of(0, 1)), (1, mac_of(1, 0))] {
            let container = 1 - to;
            for destination in [IpAddr::from(v4_of(to, container)), v6_of(to, container)] {
                let packet = |source: IpAddr| tcp(SYN, at(source, 1000), at(destination, 80));
                let alike = |source: &&IpAddr| source.is_ipv4() == destination.is_ipv4();
                node.passes(&packet(if destination.is_ipv4() { own } else { own6 }));
                for source in forged.iter().filter(alike).filter(|source| **source != destination) {
                    assert_eq!(node.refuses(&packet(*source)), Reason::InvalidSource, "{source} to {destination}");
                    let bridged = framed(mac_of(0, 0), mac, &packet(*source));
                    let reason = node.reason(|| node.give(Side::Container, &bridged, "c0"));
                    assert_eq!(reason, Reason::InvalidSource, "{source} to {destination} by its MAC address");
                }
            }
        }
        let echo = |source: Ipv4Addr| {
            let mut echo = [0; 64];
            let length = rig_wire::icmp::write_echo(&mut echo, 8, (7, 1), b"ping").unwrap();
            frames::ip(source.into(), GATEWAY.into(), protocol::ICMP, 64, &echo[..length])
        };
        node.passes(&echo(v4_of(0, 0)));
        assert_eq!(node.refuses(&echo(v4_of(0, 1))), Reason::InvalidSource);
        // What a peer says of its own containers is believed, and nothing else.
        let brought = |source: Ipv4Addr| {
            let inner = tcp(SYN, at(source, 1000), at(v4_of(1, 0), 80));
            framed(Mac([2; 6]), Mac([4; 6]), &wrapped(encapsulation, &inner, 64, 50000, 0))
        };
        assert_eq!(other.give(Side::Underlay, &brought(v4_of(0, 0)), "wire").verdict, Verdict::Redirect);
        for source in [v4_of(1, 1), GATEWAY, Ipv4Addr::new(203, 0, 113, 1)] {
            let reason = other.reason(|| other.give(Side::Underlay, &brought(source), "wire"));
            assert_eq!(reason, Reason::InvalidSource, "{encapsulation:?} {source}");
        }
        assert!(node.router.flows().is_empty() && other.router.flows().is_empty());
    }
}

/// A tunnel's packet inside of a tunnel's packet is not unwrapped.
#[test]
fn what_is_wrapped_twice_is_unwrapped_once() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 1, encapsulation) else { return };
        for rules in [Rules::Flows, Rules::Nothing] {
            let node = &mut lab.nodes[1];
            set_rules(node, rules);
            let brought = |packet: &[u8]| {
                let outer = wrapped(encapsulation, packet, 64, 50000, 0);
                node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &outer), "wire")
            };
            let inner = tcp(ACK, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
            let once = wrapped(encapsulation, &inner, 64, 50000, 0);
            assert_eq!(node.reason(|| brought(&once)), Reason::InvalidSource, "{encapsulation:?}, {rules:?}");
            let posing = frames::ip(v4_of(0, 0).into(), v4_of(1, 0).into(), once[9], 64, &once[20..]);
            let taken = brought(&posing);
            assert_eq!(taken.verdict, Verdict::Redirect, "{encapsulation:?}, {rules:?}");
            assert_eq!(taken.frame[ethernet::HEADER..], posing[..], "{encapsulation:?}, {rules:?}");
        }
    }
}

/// What a container sends in another frame than one to the router.
pub fn bridged(node: &Node, to: Mac, packet: &[u8]) -> TestRunResult {
    node.give(Side::Container, &framed(mac_of(0, 0), to, packet), "c0")
}

/// A message of ICMPv6 with its checksum.
pub fn icmpv6(from: IpAddr, to: IpAddr, ttl: u8, mut message: Vec<u8>) -> Vec<u8> {
    let (IpAddr::V6(a), IpAddr::V6(b)) = (from, to) else { panic!() };
    let sum = PartialChecksum::pseudo_v6(a, b, protocol::ICMPV6, message.len()).bytes(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    frames::ip(from, to, protocol::ICMPV6, ttl, &message)
}

pub fn ping(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut echo = [0; 64];
    let length = rig_wire::icmp::write_echo(&mut echo, 8, (7, 1), b"ping").unwrap();
    frames::ip(from.into(), to.into(), protocol::ICMP, 64, &echo[..length])
}

#[test]
fn a_packet_ends_where_its_header_says() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let asked = tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80));
    node.passes(&asked);
    // An error whose quoted packet is behind its end.
    let error = frames::ip(v4_of(0, 1).into(), v4_of(0, 0).into(), protocol::ICMP, 64, &[3, 1, 0, 0, 0, 0, 0, 0]);
    let packet = [error, asked].concat();
    let reason = node.reason(|| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, &packet), "c1"));
    assert_eq!(reason, Reason::InvalidPacket);
}

#[test]
fn what_a_tunnel_brings_ends_where_its_headers_say() {
    let inner = tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 1, encapsulation) else { return };
        let node = &lab.nodes[1];
        let good = wrapped(encapsulation, &inner, 64, 50000, 0);
        // The lowest byte of IP's length, and of UDP's.
        for at in [3, 25] {
            let mut short = good.clone();
            short[at] -= 1;
            let give = || node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &short), "wire");
            if at == 3 || encapsulation != Encapsulation::MplsOverGre {
                assert_eq!(node.reason(give), Reason::InvalidPacket, "{encapsulation:?}, byte {at}");
            }
        }
        let mut piece = good.clone();
        piece[6] = 0x20;
        // The packet inside of a piece is not looked at.
        let last_of_stack = if encapsulation == Encapsulation::MplsOverGre { 26 } else { 30 };
        piece[last_of_stack] &= !1;
        let give = || node.give(Side::Underlay, &framed(Mac([2; 6]), Mac([4; 6]), &piece), "wire");
        assert_eq!(node.reason(give), Reason::Fragments, "{encapsulation:?}");
    }
}

#[test]
fn ipv4_addresses_in_ipv6_packets_are_none() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let mapped = |address: Ipv4Addr| IpAddr::from(address.to_ipv6_mapped());
    let packet = tcp(SYN, at(mapped(v4_of(0, 0)), 1000), at(mapped(v4_of(0, 1)), 80));
    assert_eq!(lab.nodes[0].refuses(&packet), Reason::InvalidPacket);
}

#[test]
fn neighbor_solicitations_that_cannot_be_are_not_answered() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    vrf.routes.insert("::/0".parse().unwrap(), NextHop::Interface(2));
    node.apply();
    let (from, group) = (v6_of(0, 0), "ff02::1:ff00:11".parse::<IpAddr>().unwrap());
    let question = |target: &str| {
        let IpAddr::V6(target) = target.parse().unwrap() else { panic!() };
        [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
    };
    let good = icmpv6(from, group, 255, question("2001:db8::9"));
    assert_eq!(bridged(node, Mac([0x33; 6]), &good).verdict, Verdict::Redirect);
    let mut short = good.clone();
    short[5] = 8;
    let many = icmpv6(from, group, 255, question("ff02::9"));
    let header = [&[58, 0, 0, 0, 0, 0, 0, 9][..], &question("2001:db8::9")].concat();
    let piece = frames::ip(from, group, 44, 255, &header);
    let ipv4 = icmpv6(from, group, 255, question("::ffff:10.7.0.11"));
    for packet in [short, many, piece, ipv4] {
        assert_eq!(node.reason(|| bridged(node, Mac([0x33; 6]), &packet)), Reason::InvalidArp, "{packet:02x?}");
    }
}

#[test]
fn the_pieces_of_a_packet_go_one_way() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    node.config.interfaces.values_mut().for_each(|interface| interface.policy = None);
    let anycast = Ipv4Addr::new(10, 7, 50, 1);
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    let ways = NextHop::Ecmp(vec![NextHop::Interface(2), NextHop::Interface(3)]);
    vrf.routes.insert(IpAddr::from(anycast).into(), ways);
    node.apply();
    for port in 1000..1032 {
        let datagram = Frame::new(L4::Udp, at(v4_of(0, 0), port), at(anycast, 80)).payload(&[9; 64]).packet();
        let piece = |offset: u16, from: usize, to: usize| {
            let mut piece = frames::ip(v4_of(0, 0).into(), anycast.into(), protocol::UDP, 64, &datagram[from..to]);
            piece[6..8].copy_from_slice(&offset.to_be_bytes());
            piece[10..12].fill(0);
            let sum = rig_wire::checksum::of(&piece[..20]);
            piece[10..12].copy_from_slice(&sum.to_be_bytes());
            Ethernet::parse(&node.passes(&piece)).unwrap().destination()
        };
        assert_eq!(piece(0x2000, 20, 52), piece(4, 52, 92), "port {port}");
    }
}

#[test]
fn a_frame_names_whom_its_packet_does() {
    let nothing = || List { rules: vec![], otherwise: Action::Deny };
    for encapsulation in [Encapsulation::Vxlan, Encapsulation::MplsOverUdp] {
        let Some(mut lab) = Lab::new(2, 3, encapsulation) else { return };
        let node = &mut lab.nodes[0];
        // It may talk to one here and to one there.
        let only = [v4_of(0, 1), v4_of(1, 1)].map(|address| IpAddr::from(address).into());
        let rules = vec![Rule { remote: only.into(), ..rule(None, 0..=u16::MAX, Action::Allow) }];
        node.config.lists = BTreeMap::from([(1, List { rules, otherwise: Action::Deny }), (2, nothing())]);
        node.config.interfaces.get_mut(&1).unwrap().policy = Some(Policy { outward: vec![1], ..Policy::default() });
        node.config.interfaces.get_mut(&3).unwrap().policy = None;
        node.apply();
        let datagram = |to: Ipv4Addr| Frame::new(L4::Udp, at(v4_of(0, 0), 1000), at(to, 80)).packet();
        // To a container's MAC address, with an IP address that no rules are for or those of another container: here, and elsewhere.
        for (mac, address) in [
            (mac_of(0, 2), GATEWAY),
            (mac_of(1, 2), GATEWAY),
            (mac_of(0, 2), v4_of(0, 1)),
            (mac_of(1, 2), v4_of(1, 1)),
            (mac_of(1, 2), v4_of(0, 1)),
            (mac_of(0, 2), v4_of(1, 1)),
        ] {
            let reason = node.reason(|| bridged(node, mac, &datagram(address)));
            assert_eq!(reason, Reason::InvalidNh, "{encapsulation:?} {mac} {address}");
        }
        for (mac, address) in [(mac_of(0, 1), v4_of(0, 1)), (mac_of(1, 1), v4_of(1, 1))] {
            assert_eq!(bridged(node, mac, &datagram(address)).verdict, Verdict::Redirect, "{encapsulation:?} {mac}");
        }
        let forbidden = node.reason(|| bridged(node, mac_of(0, 2), &datagram(v4_of(0, 2))));
        assert_eq!(forbidden, Reason::Policy, "{encapsulation:?}");
    }
}

#[test]
fn a_frame_may_go_to_a_node_otherwise_than_its_packet() {
    let Some(mut lab) = Lab::new(2, 1, Encapsulation::Vxlan) else { return };
    let node = &mut lab.nodes[0];
    // By BGP MAC addresses have no MPLS labels.
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    let Some(NextHop::Tunnel(tunnel)) = vrf.routes.get_mut(&IpAddr::from(v4_of(1, 0)).into()) else { panic!() };
    (tunnel.encapsulation, tunnel.label) = (Encapsulation::MplsOverUdp, 100);
    node.apply();
    let packet = tcp(SYN, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
    let outcome = bridged(node, mac_of(1, 0), &packet);
    assert_eq!(outcome.verdict, Verdict::Redirect, "{:?}", node.router.drops().unwrap());
    assert_eq!(outcome.frame[36..38], 4789_u16.to_be_bytes());
}
