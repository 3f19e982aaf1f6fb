//! How many flows of the table an interface may have.

use std::num::NonZeroU32;

use rig_datapath::vrouter::{Encapsulation, ROUTER_MAC, Reason, Side, Timeouts, Verdict};
use rig_wire::tcp::flags::SYN;

use super::cases::Rules;
use super::frames::{Frame, L4};
use super::lab::{Lab, Node, mac_of, v4_of};
use super::outer::{at, framed, tcp};

/// One that floods has its share of the table, and leaves the rest to others, whether it has rules of its own or not.
#[test]
fn nobody_takes_the_whole_table_of_flows() {
    for rules in [Rules::Flows, Rules::Nothing] {
        let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
        let node = &mut lab.nodes[0];
        if rules == Rules::Nothing {
            node.config.interfaces.get_mut(&1).unwrap().policy = None;
        }
        node.config.most_flows = NonZeroU32::new(8);
        node.apply();
        let datagram = |port: u16| Frame::new(L4::Udp, at(v4_of(0, 0), port), at(v4_of(0, 1), 53)).packet();
        for port in 1..=8 {
            node.passes(&datagram(port));
        }
        assert_eq!(node.refuses(&datagram(9)), Reason::NewFlows, "{rules:?}");
        let other = tcp(SYN, at(v4_of(0, 2), 1000), at(v4_of(0, 1), 80));
        let outcome = node.give(Side::Container, &framed(mac_of(0, 2), ROUTER_MAC, &other), "c2");
        assert_eq!(outcome.verdict, Verdict::Redirect);
        assert_eq!((node.router.connections(1).unwrap(), node.router.connections(3).unwrap()), (8, 1));
    }
}

#[test]
fn flows_that_nobody_answers_end_early_where_room_runs_short() {
    let Some(mut lab) = Lab::new(1, 3, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    node.config.most_flows = NonZeroU32::new(8);
    node.apply();
    let datagram = |from: usize, to: usize, ports: [u16; 2]| {
        Frame::new(L4::Udp, at(v4_of(0, from), ports[0]), at(v4_of(0, to), ports[1])).packet()
    };
    let back = |node: &Node, port: u16| {
        let answer = framed(mac_of(0, 1), ROUTER_MAC, &datagram(1, 0, [53, port]));
        assert_eq!(node.give(Side::Container, &answer, "c1").verdict, Verdict::Redirect);
    };
    let third = |node: &Node| {
        let frame = framed(mac_of(0, 2), ROUTER_MAC, &datagram(2, 1, [7, 53]));
        assert_eq!(node.give(Side::Container, &frame, "c2").verdict, Verdict::Redirect);
    };
    node.router.set_tick(1000).unwrap();
    (1..=8).for_each(|port| drop(node.passes(&datagram(0, 1, [port, 53]))));
    (1..=2).for_each(|port| back(node, port));
    third(node);
    let timeouts = Timeouts::default();
    let sweeper = node.router.sweeper();
    let early = |node: &Node, interface| node.router.ended_early(interface).unwrap();
    // 4 s, then more than 5: it has more than three quarters of its share, and those without an answer go.
    node.router.set_tick(1030).unwrap();
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 0);
    node.router.set_tick(1040).unwrap();
    assert_eq!(sweeper.sweep(&timeouts, false).unwrap(), 6);
    assert_eq!((node.router.connections(1).unwrap(), early(node, 1), early(node, 3)), (2, 6, 0));
    // Where the whole table is short, those of all interfaces do.
    assert_eq!(sweeper.sweep(&timeouts, true).unwrap(), 1);
    assert_eq!((node.router.connections(1).unwrap(), early(node, 1), early(node, 3)), (2, 6, 1));
    assert!(node.router.flows().iter().all(|flow| [flow.source.port(), flow.destination.port()].contains(&53)));
    // Long ones end as ever, and not early.
    node.router.set_tick(1000 + 8 * 181).unwrap();
    assert_eq!(sweeper.sweep(&timeouts, true).unwrap(), 2);
    assert_eq!(early(node, 1), 6);
}
