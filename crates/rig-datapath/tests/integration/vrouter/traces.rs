//! What is traced is what happens, and changes nothing.

use std::net::IpAddr;

use rig_datapath::vrouter::{Encapsulation, Reason, Side, Verdict};
use rig_sys::netlink::Netlink;
use rig_wire::tcp::flags::{ACK, SYN};

use super::cases::{self, Rules};
use super::lab::{Lab, Node, mac_of, run, v4_of, v6_of};
use super::outer::{at, framed, tcp};

/// Two nodes whose containers send nothing of their own, as IPv6 would have them.
fn quiet(encapsulation: Encapsulation) -> Option<Lab> {
    let lab = Lab::new(2, 2, encapsulation)?;
    for container in lab.nodes.iter().flat_map(|node| &node.containers) {
        run(container, "link set eth0 down");
    }
    Some(lab)
}

/// Everything that packets change, in words.
fn state(node: &Node) -> String {
    let router = &node.router;
    let mut flows = router.flows();
    flows.sort_by_key(|flow| (flow.source, flow.destination, flow.interface, flow.protocol));
    flows.iter_mut().for_each(|flow| flow.idle = std::time::Duration::ZERO);
    let traffic: Vec<_> = (0..4).map(|interface| router.traffic(interface).unwrap()).collect();
    let connections: Vec<_> = (0..4).map(|interface| router.connections(interface).unwrap()).collect();
    let (drops, sources, log) = (router.drops().unwrap(), router.sources().unwrap(), router.log_counts().unwrap());
    let dropped = router.last_dropped().unwrap().len();
    format!("{flows:?}\n{traffic:?}\n{connections:?}\n{drops:?}\n{sources:?}\n{log:?}\n{dropped}")
}

/// A trace of a frame, and then the frame: its reason is what has been counted more.
fn traced_and_sent(node: &Node, side: Side, interface: &str, frame: &[u8], between: [IpAddr; 2]) -> Option<Reason> {
    let index = Netlink::open(&node.ns).unwrap().index(interface).unwrap();
    let before = state(node);
    let drops = |node: &Node| node.router.drops().unwrap();
    let count =
        |drops: &[(Reason, u64)], reason| drops.iter().find(|(known, _)| *known == reason).map_or(0, |(_, n)| *n);
    let drops_before = drops(node);
    node.ns
        .run(|| {
            let decision = node.router.trace(side, frame, index, between).unwrap();
            assert_eq!(state(node), before, "a trace has changed something");
            let sent = node.router.test_run(side, frame, index).unwrap();
            assert_eq!((decision.verdict, &decision.frame), (sent.verdict, &sent.frame));
            let more: Vec<Reason> = drops(node)
                .into_iter()
                .filter(|(reason, number)| *number > count(&drops_before, *reason))
                .map(|(reason, _)| reason)
                .collect();
            assert_eq!(decision.reason.into_iter().collect::<Vec<_>>(), more);
            decision.reason
        })
        .unwrap()
}

#[test]
fn a_trace_says_of_each_case_what_then_happens() {
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = quiet(encapsulation) else { return };
        let mut rules = Rules::default();
        for case in cases::all(encapsulation) {
            cases::prepare(&mut lab, &case, &mut rules);
            let between = match case.name.contains("IPv6") {
                true => [v6_of(0, 0), v6_of(1, 0)],
                false => [v4_of(0, 0).into(), v4_of(if case.side == Side::Underlay { 1 } else { 0 }, 1).into()],
            };
            // Where flows are remembered, a packet of no flow and one of the flow that it has begun.
            let packets = if case.rules == Rules::Flows { 2 } else { 1 };
            for _ in 0..packets {
                let reason = traced_and_sent(&lab.nodes[case.node], case.side, case.interface, &case.frame, between);
                assert_eq!(reason.is_some(), case.verdict == Verdict::Drop, "{}", case.name);
            }
        }
    }
}

#[test]
fn a_trace_knows_the_flow_of_a_packet() {
    let Some(mut lab) = quiet(Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let (client, server) = (v4_of(0, 0), v4_of(0, 1));
    let between = [client.into(), server.into()];
    let to = |flags| {
        framed(mac_of(0, 0), rig_datapath::vrouter::ROUTER_MAC, &tcp(flags, at(client, 1000), at(server, 2023)))
    };
    let back = framed(mac_of(0, 1), rig_datapath::vrouter::ROUTER_MAC, &tcp(ACK, at(server, 2023), at(client, 1000)));
    assert_eq!(traced_and_sent(node, Side::Container, "c0", &to(SYN), between), None);
    // The 999th of these denies it, to both; the flow is one of before.
    cases::set_rules(node, Rules::Lists(1000));
    assert_eq!(traced_and_sent(node, Side::Container, "c0", &to(ACK), between), Some(Reason::FlowActionDrop));
    assert_eq!(traced_and_sent(node, Side::Container, "c1", &back, between), Some(Reason::FlowActionDrop));
    // One of no flow is refused for another reason.
    let other = [client.into(), v4_of(1, 0).into()];
    let frame = framed(mac_of(0, 0), rig_datapath::vrouter::ROUTER_MAC, &tcp(SYN, at(client, 1001), at(server, 2023)));
    assert_eq!(traced_and_sent(node, Side::Container, "c0", &frame, other), Some(Reason::Policy));
}
