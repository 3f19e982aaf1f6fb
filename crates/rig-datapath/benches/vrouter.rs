//! What the vRouter's programs cost for one packet, by test runs: medians above a program that does nothing, no judgement.
//! A packet is run once each time, so its memory and the kernel's are as cold as a call of the kernel leaves them.
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

use rig_datapath::vrouter::{Action, Encapsulation, List, Policy, ROUTER_MAC, Rule, Side, Timeouts, Verdict};
use rig_sys::netlink::Netlink;
use rig_wire::ethernet::Mac;
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, SYN};

use lab::{Lab, Node, mac_of, v4_of};
use outer::{at, framed, rule, tcp, wrapped};

const ROUNDS: usize = 9;
/// Of one case in one round.
const RUNS: usize = 500;
/// A case: who gets which frames, one after the other, by which interface.
struct Case {
    name: String,
    node: usize,
    side: Side,
    interface: &'static str,
    frames: Vec<Vec<u8>>,
}

/// Nanoseconds of each run.
fn run(node: &Node, index: u32, case: &Case) -> Vec<u128> {
    node.ns
        .run(|| {
            let one = |number: usize| {
                let frame = &case.frames[number % case.frames.len()];
                let outcome = node.router.test_run(case.side, frame, index, 1).unwrap();
                let expected = if case.side == Side::Nowhere { Verdict::Pass } else { Verdict::Redirect };
                assert_eq!(outcome.verdict, expected, "{}: {:?}", case.name, node.router.drops().unwrap());
                outcome.each.as_nanos()
            };
            (0..RUNS).map(one).collect()
        })
        .unwrap()
}

fn median(values: &mut [u128]) -> u128 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Medians of all rounds, of each case in its turn.
fn measure(lab: &mut Lab, cases: &[Case]) {
    let mut times: Vec<Vec<u128>> = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut times) {
            let node = &mut lab.nodes[case.node];
            let index = Netlink::open(&node.ns).unwrap().index(case.interface).unwrap();
            // New flows are new in each round.
            node.router.set_tick(1).unwrap();
            times.push(median(&mut run(node, index, case)));
            if case.name.starts_with("new") {
                node.router.set_tick(1_000_000).unwrap();
                node.router.sweeper().sweep(&Timeouts::default()).unwrap();
            }
        }
    }
    let nothing = median(&mut times[0].clone());
    println!("{:<44}{nothing:>6} ns", cases[0].name);
    for (case, times) in cases.iter().zip(&mut times).skip(1) {
        let (middle, least, most) = (median(times), times[0], times[ROUNDS - 1]);
        let above = |time: u128| time.saturating_sub(nothing);
        println!("{:<44}{:>6} ns ({} to {})", case.name, above(middle), above(least), above(most));
    }
}

/// Of the first container of the first node.
fn from_container(name: &str, to: SocketAddr, flags: u8, ports: std::ops::Range<u16>) -> Case {
    let frame = |port| framed(mac_of(0, 0), ROUTER_MAC, &tcp(flags, at(v4_of(0, 0), port), to));
    Case { name: name.to_owned(), node: 0, side: Side::Container, interface: "c0", frames: ports.map(frame).collect() }
}

fn nothing() -> Case {
    Case {
        name: "a program that does nothing".to_owned(),
        side: Side::Nowhere,
        ..from_container("", at(v4_of(0, 1), 80), ACK, 1000..1001)
    }
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

fn main() {
    println!("Medians of {ROUNDS} interleaved rounds of {RUNS} packets each, above the first row (least to most).");
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::new(2, 2, encapsulation) else { return };
        println!("\n{}", encapsulation.name());
        let inner = tcp(ACK, at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
        let outer = framed(Mac([2; 6]), Mac([4; 6]), &wrapped(encapsulation, &inner, 64, 50000, 0));
        let mut cases = vec![
            nothing(),
            from_container("encapsulate, a known flow", at(v4_of(1, 0), 80), ACK, 1000..1001),
            Case {
                name: "decapsulate, a known flow".to_owned(),
                node: 1,
                side: Side::Underlay,
                interface: "wire",
                frames: vec![outer],
            },
        ];
        if encapsulation == Encapsulation::MplsOverUdp {
            cases.push(from_container(
                "to a container of the node, a known flow",
                at(v4_of(0, 1), 80),
                ACK,
                1000..1001,
            ));
            cases.push(from_container("new flow, no rules", at(v4_of(0, 1), 80), SYN, 2000..2500));
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
                measure(&mut lab, &[nothing(), from_container(&name, at(v4_of(0, 1), 80), SYN, 2000..2500)]);
            }
        }
    }
}
