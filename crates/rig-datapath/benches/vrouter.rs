//! What the vRouter's programs cost for one packet, by test runs: medians above a program that does nothing, held against what is aimed at.
//! One packet is repeated, and made what it was before each repetition.
//!
//! `cargo xtask bench vrouter`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

#[path = "../tests/integration/vrouter/cases.rs"]
mod cases;
#[path = "../tests/integration/balancer/frames.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod frames;
#[path = "../tests/integration/vrouter/lab.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod lab;
#[path = "../tests/integration/vrouter/outer.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod outer;
#[path = "../tests/integration/pool.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod pool;

use rig_datapath::vrouter::{Encapsulation, Router, Sizes, Timeouts, replay};
use rig_sys::netlink::Netlink;

use cases::{Case, Rules};
use lab::{Lab, Node};

const ROUNDS: usize = 9;
/// Repetitions in one round, of a packet of a known flow and of those that begin one.
const REPEAT: u32 = 200_000;
const NEW: u32 = 2_000;

/// What is aimed at: ns at most.
const AIMS: [(&str, f64); 4] = [
    ("encapsulate, a known flow", 150.0),
    ("decapsulate, a known flow", 120.0),
    ("to a container of the node, a known flow", 100.0),
    ("new flow, 1000 rules out and 1000 in", 600.0),
];

/// Mean nanoseconds of a repetition.
fn run(node: &mut Node, case: &Case) -> f64 {
    let index = Netlink::open(&node.ns).unwrap().index(case.interface).unwrap();
    let repeat = if case.port_at.is_some() { NEW } else { REPEAT };
    node.router.set_tick(1).unwrap();
    let router = &node.router;
    let cost =
        node.ns.run(|| replay::cost(router, case.side, &case.frame, index, case.port_at, repeat)).unwrap().unwrap();
    assert_eq!(cost.verdict, case.verdict, "{}: {:?}", case.name, node.router.drops().unwrap());
    if case.port_at.is_some() {
        // They are new again in the next round.
        node.router.set_tick(1_000_000).unwrap();
        node.router.sweeper().sweep(&Timeouts::default(), false).unwrap();
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
        let median = times[ROUNDS / 2];
        let aim = AIMS.iter().find(|(name, _)| *name == case.name).map_or(String::new(), |(_, most)| {
            format!("  <= {most:.0} {}", if median <= *most { "holds" } else { "does not hold" })
        });
        println!("{:<60}{median:>6.0} ns ({:.0} to {:.0}){aim}", case.name, times[0], times[ROUNDS - 1]);
    }
}

/// With room for the flows of a round.
fn load() -> Result<Router, rig_datapath::Error> {
    replay::load(Sizes { flows: 8 * NEW, ..lab::small() })
}

fn main() {
    println!("Medians of {ROUNDS} interleaved rounds, above a program that does nothing (least to most).");
    for encapsulation in Encapsulation::ALL {
        let Some(mut lab) = Lab::with(2, 2, encapsulation, || load().map(pool::Pooled::from)) else { return };
        println!("\n{}", encapsulation.name());
        let (all, mut rules) = (cases::all(encapsulation), Rules::default());
        for together in all.chunk_by(|a, b| a.rules == b.rules) {
            cases::prepare(&mut lab, &together[0], &mut rules);
            measure(&mut lab, together);
        }
    }
}
