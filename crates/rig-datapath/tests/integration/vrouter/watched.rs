//! What is told of flows, and what is not when there is too much of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::{
    Action, Encapsulation, Flow, FlowActions, List, LogCounts, Policy, ROUTER_MAC, Reason, Router, Rule, Service, Side,
    Sizes, Verdict,
};
use rig_wire::ethernet::Mac;
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, FIN, SYN};

use crate::pool::Pooled;

use super::frames::{Frame, L4};
use super::lab::{Lab, Node, mac_of, small, v4_of};
use super::outer::{at, framed, rule, tcp};

/// A rule that logs, for what the first container sends.
fn logging(node: &mut Node, action: Action) {
    let rule = Rule {
        flow_actions: FlowActions { log: true, ..FlowActions::default() },
        ..rule(Some(protocol::UDP), 0..=u16::MAX, action)
    };
    let first = super::outer::rule(Some(protocol::TCP), 1..=9, Action::Deny);
    node.config.lists = BTreeMap::from([(7, List { rules: vec![first, rule], otherwise: Action::Deny })]);
    let interface = node.config.interfaces.get_mut(&1).unwrap();
    interface.policy = Some(Policy { outward: vec![7], ..Policy::default() });
    node.apply();
}

fn udp(port: u16) -> Vec<u8> {
    Frame::new(L4::Udp, at(v4_of(0, 0), port), at(v4_of(0, 1), 53)).packet()
}

#[test]
fn what_nobody_reads_is_counted_and_flows_go_on() {
    const FLOWS: u16 = 8000;
    let sizes = Sizes { flows: 4 * u32::from(FLOWS), ..small() };
    let Some(mut lab) = Lab::with(1, 2, Encapsulation::MplsOverUdp, || Router::load(sizes).map(Pooled::from)) else {
        return;
    };
    let node = &mut lab.nodes[0];
    let mut log = node.router.log().unwrap();
    logging(node, Action::Allow);
    for port in 1..=FLOWS {
        assert_eq!(node.send(&udp(port)).verdict, Verdict::Redirect);
    }
    assert_eq!(node.router.connections(1).unwrap(), u64::from(FLOWS));
    let counts = node.router.log_counts().unwrap();
    assert_eq!((counts.told + counts.lost, counts.held_back), (FLOWS.into(), 0));
    let read = log.read().unwrap();
    assert!(counts.lost > 0 && read.len() as u64 == counts.told, "{counts:?}");
    let one = read[99];
    assert_eq!((one.interface, one.sends, one.list, one.rule), (1, true, 7, 1));
    assert_eq!(Some(&one.since), node.router.lists_since().get(&7));
    assert_eq!((one.source.port(), one.destination), (100, at(v4_of(0, 1), 53)));
    // There is room again.
    node.send(&udp(FLOWS + 1));
    assert_eq!(log.read().unwrap().len(), 1);
}

#[test]
fn refusals_are_told_as_many_as_an_interface_may() {
    const PACKETS: u64 = 2000;
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let mut log = node.router.log().unwrap();
    logging(node, Action::Deny);
    for _ in 0..PACKETS {
        assert_eq!(node.send(&udp(1)).verdict, Verdict::Drop);
    }
    let LogCounts { told, lost, held_back } = node.router.log_counts().unwrap();
    assert_eq!((told + held_back, lost), (PACKETS, 0));
    let read = log.read().unwrap();
    assert!(told >= 128 && held_back > 0 && read.len() as u64 == told, "{told} {held_back}");
    assert!(read.iter().all(|one| !one.let_through && one.action == Action::Deny));
    assert_eq!(node.drops()[&Reason::Policy.number()], PACKETS);
}

#[test]
fn what_took_packets_stays_with_the_network_that_they_were_of() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let encaps = |node: &Node| -> Vec<u64> {
        let taken = node.router.taken(|number| node.router.traffic(number).unwrap().taken);
        taken.values().map(|taken| taken.encaps).collect()
    };
    (1..=3).for_each(|port| drop(node.passes(&udp(port))));
    assert_eq!(encaps(node), [3]);
    // The first container moves to another network, which is like the one before, and back.
    let table = node.config.vrfs[&1].clone();
    node.config.vrfs.insert(2, table);
    for (vrf, expected) in [(2, [3, 1]), (1, [4, 1])] {
        node.config.interfaces.get_mut(&1).unwrap().vrf = vrf;
        node.apply();
        node.passes(&udp(1));
        assert_eq!(encaps(node), expected);
    }
    // What a network has counted goes with it.
    node.config.vrfs.remove(&2);
    node.apply();
    assert_eq!(encaps(node), [4]);
}

#[test]
fn who_asks_for_a_service_by_many_ports_has_one_flow() {
    for fat in [1, 2] {
        let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
        let node = &mut lab.nodes[0];
        // The client may send all, and takes nothing that it has not asked for.
        node.config.lists = BTreeMap::from([(7, List { rules: Vec::new(), otherwise: Action::Deny })]);
        node.config.interfaces.get_mut(&1).unwrap().policy = Some(Policy { inward: vec![7], ..Policy::default() });
        let services = [(protocol::UDP, 53), (protocol::TCP, 80)];
        let services = services.map(|(protocol, port)| Service { protocol, port });
        node.config.interfaces.get_mut(&fat).unwrap().fat = services.into();
        node.apply();
        let (client, server) = (v4_of(0, 0), v4_of(0, 1));
        let answer =
            |packet: &[u8]| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, packet), "c1").verdict;
        let datagram = |from, to| Frame::new(L4::Udp, from, to).packet();
        assert_eq!(answer(&datagram(at(server, 53), at(client, 1))), Verdict::Drop);
        for port in 1..=100 {
            node.passes(&datagram(at(client, port), at(server, 53)));
            node.passes(&tcp(SYN, at(client, port), at(server, 80)));
            assert_eq!(answer(&datagram(at(server, 53), at(client, port))), Verdict::Redirect);
            assert_eq!(answer(&tcp(SYN | ACK, at(server, 80), at(client, port))), Verdict::Redirect);
            // It opens no connection by that, nor talks from other ports.
            assert_eq!(answer(&tcp(SYN, at(server, 80), at(client, port))), Verdict::Drop);
            assert_eq!(answer(&datagram(at(server, 54), at(client, port))), Verdict::Drop);
        }
        assert_eq!(node.router.connections(1).unwrap(), 2);
        let flows = node.router.flows();
        assert!(flows.len() == 4 && flows.iter().all(|flow| flow.fat && flow.packets == 100), "{flows:?}");
        // Connections that end do not end it, and it is held against rules that change.
        node.passes(&tcp(FIN | ACK, at(client, 7), at(server, 80)));
        assert_eq!(answer(&tcp(FIN | ACK, at(server, 80), at(client, 7))), Verdict::Redirect);
        assert!(node.router.flows().iter().all(|flow| flow.tcp == 0));
        node.config.interfaces.get_mut(&1).unwrap().policy = Some(Policy { outward: vec![7], ..Policy::default() });
        node.apply();
        assert_eq!(node.send(&tcp(ACK, at(client, 9), at(server, 80))).verdict, Verdict::Drop);
        // Those that there are stay fat, new ones are not.
        let interface = node.config.interfaces.get_mut(&1).unwrap();
        interface.policy = Some(Policy { inward: vec![7], ..Policy::default() });
        node.config.interfaces.values_mut().for_each(|interface| interface.fat.clear());
        node.apply();
        let answer =
            |packet: &[u8]| node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, packet), "c1").verdict;
        assert_eq!(answer(&tcp(ACK, at(server, 80), at(client, 9))), Verdict::Redirect);
        node.passes(&datagram(at(client, 9), at(server, 5353)));
        assert_eq!(node.router.connections(1).unwrap(), 3);
    }
}

#[test]
fn refusals_of_frames_to_all_are_logged_as_others_are() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::Vxlan) else { return };
    let node = &mut lab.nodes[0];
    node.flood(&[], false);
    let mut log = node.router.log().unwrap();
    let all = "255.255.255.255".parse::<IpAddr>().unwrap();
    let packet = Frame::new(L4::Udp, at(v4_of(0, 0), 68), at(all, 67)).packet();
    let frame = framed(mac_of(0, 0), Mac::BROADCAST, &packet);
    // What the first container may not send; and what the third may not get.
    logging(node, Action::Deny);
    for (interface, sends) in [(1, true), (3, false)] {
        if !sends {
            let mut policy = node.config.interfaces[&1].policy.clone().unwrap();
            (policy.outward, policy.inward) = (Vec::new(), policy.outward);
            node.config.interfaces.get_mut(&1).unwrap().policy = Some(Policy::default());
            node.config.interfaces.get_mut(&3).unwrap().policy = Some(policy);
            node.apply();
        }
        let expected = if sends { Verdict::Drop } else { Verdict::Redirect };
        assert_eq!(node.give(Side::Container, &frame, "c0").verdict, expected);
        let read = log.read().unwrap();
        let [one] = read[..] else { panic!("{read:?}") };
        assert_eq!((one.interface, one.sends, one.list, one.rule), (interface, sends, 7, 1));
        assert_eq!((one.let_through, one.action), (false, Action::Deny));
        assert_eq!((one.source, one.destination), (at(v4_of(0, 0), 68), at(all, 67)));
    }
    // Copies that are let through are of no flow, and not told.
    logging(node, Action::Allow);
    node.config.interfaces.get_mut(&3).unwrap().policy = Some(Policy::default());
    node.apply();
    assert_eq!(node.give(Side::Container, &frame, "c0").verdict, Verdict::Redirect);
    assert_eq!(log.read().unwrap(), []);
}

/// A service that appears while its clients ask for it has no other flows beside the fat one.
#[test]
fn a_service_with_fat_flows_has_them_from_its_first_packet_on() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let Node { router, config, containers, .. } = &mut lab.nodes[0];
    config.interfaces.get_mut(&2).unwrap().fat = [Service { protocol: protocol::UDP, port: 53 }].into();
    let (client, is_over) = (&containers[0], AtomicBool::new(false));
    let ask = || {
        while !is_over.load(Ordering::Relaxed) {
            // From another port each time.
            let socket = UdpSocket::bind((v4_of(0, 0), 0)).unwrap();
            let _unreached = socket.send_to(b"?", (v4_of(0, 1), 53));
        }
    };
    let mut appears = || {
        router.clear()?;
        router.apply(config)?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let flows = std::iter::repeat_with(|| router.flows());
        Ok(flows.into_iter().find(|flows| !flows.is_empty() || Instant::now() > deadline).unwrap_or_default())
    };
    let is_right = |flows: &Result<Vec<_>, rig_datapath::Error>| matches!(flows, Ok(flows) if !flows.is_empty() && flows.iter().all(|flow: &Flow| flow.fat));
    let wrong = thread::scope(|scope| {
        scope.spawn(|| client.run(ask).unwrap());
        let wrong = (0..200).map(|_| appears()).find(|flows| !is_right(flows));
        is_over.store(true, Ordering::Relaxed);
        wrong
    });
    assert!(wrong.is_none(), "{wrong:?}");
}
