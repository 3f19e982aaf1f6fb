//! What the vRouter's programs cost for one packet, by test runs: medians above a program that does nothing, no judgement.
//! One packet is repeated, and made what it was before each repetition.
//!
//! `cargo xtask bench vrouter`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

#[path = "../tests/balancer/frames.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod frames;
#[path = "../tests/vrouter/lab.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod lab;
#[path = "../tests/vrouter/outer.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod outer;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rig_datapath::vrouter::{
    Action, Encapsulation, List, Policy, ROUTER_MAC, Router, Rule, Side, Sizes, Timeouts, Verdict, replay,
};
use rig_sys::netlink::Netlink;
use rig_wire::ethernet::Mac;
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, SYN};

use lab::{Lab, Node, mac_of, v4_of};
use outer::{at, framed, rule, tcp, wrapped};

const ROUNDS: usize = 9;
/// Repetitions in one round, of a packet of a known flow and of those that begin one.
const REPEAT: u32 = 200_000;
const NEW: u32 = 2_000;
/// Where TCP's source port is, behind Ethernet and IPv4.
const SOURCE_PORT: u32 = 34;

/// A case: who gets a frame, by which interface.
struct Case {
    name: String,
    node: usize,
    side: Side,
    interface: &'static str,
    frame: Vec<u8>,
    /// Whether each repetition is of a flow of its own.
    is_new: bool,
}

/// Mean nanoseconds of a repetition.
fn run(node: &mut Node, case: &Case) -> f64 {
    let index = Netlink::open(&node.ns).unwrap().index(case.interface).unwrap();
    let (port_at, repeat) = if case.is_new { (Some(SOURCE_PORT), NEW) } else { (None, REPEAT) };
    node.router.set_tick(1).unwrap();
    let router = &node.router;
    let cost = node.ns.run(|| replay::cost(router, case.side, &case.frame, index, port_at, repeat)).unwrap().unwrap();
    assert_eq!(cost.verdict, Verdict::Redirect, "{}: {:?}", case.name, node.router.drops().unwrap());
    if case.is_new {
        // They are new again in the next round.
        node.router.set_tick(1_000_000).unwrap();
        node.router.sweeper().sweep(&Timeouts::default()).unwrap();
    }
    cost.program
}

/// Medians of all rounds, of each case in its turn.
fn measure(lab: &mut Lab, cases: &[Case]) {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut times) {
            times.push(run(&mut lab.nodes[case.node], case));
        }
    }
    for (case, times) in cases.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{:<44}{:>6.0} ns ({:.0} to {:.0})", case.name, times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    }
}

/// Of the first container of the first node.
fn from_container(name: &str, to: SocketAddr, is_new: bool) -> Case {
    let flags = if is_new { SYN } else { ACK };
    let frame = framed(mac_of(0, 0), ROUTER_MAC, &tcp(flags, at(v4_of(0, 0), 1000), to));
    Case { name: name.to_owned(), node: 0, side: Side::Container, interface: "c0", frame, is_new }
}

/// As many as a list may have, of which the last allows.
fn rules(count: u16) -> List {
    let deny = |number: u16| Rule {
        remote: [format!("100.64.{}.{}/28", number / 16, number % 16 * 16).parse().unwrap()].into(),
        ..rule(Some(protocol::TCP), 1024 + number..=1024 + number, Action::Deny)
    };
    let mut all: Vec<Rule> = (1..count).map(deny).collect();
    all.push(rule(None, 0..=u16::MAX, Action::Allow));
    List { rules: all, otherwise: Action::Deny }
}

/// With room for the flows of a round.
fn load() -> Result<Router, rig_datapath::Error> {
    replay::load(Sizes { flows: 8 * NEW, ..lab::small() })
}

fn main() {
    println!("Medians of {ROUNDS} interleaved rounds, above a program that does nothing (least to most).");
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::with(2, 2, encapsulation, load) else { return };
        println!("\n{}", encapsulation.name());
        let inner = tcp(ACK, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
        let outer = framed(Mac([2; 6]), Mac([4; 6]), &wrapped(encapsulation, &inner, 64, 50000, 0));
        let mut cases = vec![
            from_container("encapsulate, a known flow", at(v4_of(1, 0), 80), false),
            Case {
                name: "decapsulate, a known flow".to_owned(),
                node: 1,
                side: Side::Underlay,
                interface: "wire",
                frame: outer,
                is_new: false,
            },
        ];
        if encapsulation == Encapsulation::MplsOverUdp {
            cases.push(from_container("to a container of the node, a known flow", at(v4_of(0, 1), 80), false));
            cases.push(from_container("new flow, no rules", at(v4_of(0, 1), 80), true));
        }
        measure(&mut lab, &cases);
        if encapsulation == Encapsulation::MplsOverUdp {
            for count in [10, 1000] {
                let node = &mut lab.nodes[0];
                node.config.lists = BTreeMap::from([(1, rules(count))]);
                for interface in node.config.interfaces.values_mut() {
                    interface.policy = Some(Policy { outward: vec![1], inward: vec![1], most_flows: None });
                }
                node.apply();
                let name = format!("new flow, {count} rules out and {count} in");
                measure(&mut lab, &[from_container(&name, at(v4_of(0, 1), 80), true)]);
            }
        }
    }
}
