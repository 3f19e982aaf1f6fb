//! What each branch of the balancer's program costs, by test runs of the packets that tests send: medians above what it
//! takes to make the packet what it was, no judgement.
//!
//! `cargo xtask bench cases`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

#[path = "../tests/integration/balancer/cases.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod cases;
#[path = "../tests/integration/balancer/features.rs"]
mod features;
#[path = "../tests/integration/balancer/frames.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod frames;
#[path = "../tests/integration/balancer/lab.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod lab;
#[path = "../tests/integration/pool.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod pool;

use rig_datapath::balancer::replay::{self, Packet, ReplayProgram};
use rig_datapath::balancer::{Clock, Config};
use rig_datapath::test_run::Verdict;

use cases::{Case, ExpectedResult};
use lab::Lab;

const ROUNDS: usize = 9;
const REPEAT: u32 = 100_000;
/// Each repetition begins a connection, and one client has 65,535 ports.
const NEW: u32 = 16_384;

/// Median, least and most, in nanoseconds.
struct Times([u128; ROUNDS]);

impl Times {
    fn median(&self) -> u128 {
        self.0[ROUNDS / 2]
    }
}

fn verdict(expected: &ExpectedResult) -> Verdict {
    match expected {
        ExpectedResult::Sent(_) | ExpectedResult::Forwarded | ExpectedResult::Begun(_) => Verdict::Transmit,
        ExpectedResult::Dropped(_) => Verdict::Drop,
        ExpectedResult::Left(_) => Verdict::Pass,
    }
}

fn measure(lab: &Lab, case: &Case, what: ReplayProgram) -> Times {
    let mut frame = case.frame.clone();
    let mut times: [u128; ROUNDS] = std::array::from_fn(|round| {
        if let Some(port_at) = case.new_flow {
            // The client's address ends 12 bytes before the ports in IPv4, 24 in IPv6: another client each round.
            let ipv6 = frame[12..14] == [0x86, 0xdd];
            frame[port_at as usize - if ipv6 { 17 } else { 5 }] = 150 + round as u8;
        }
        let packet = Packet { frame: &frame, ..case.packet() };
        let repeat = if case.new_flow.is_some() { NEW } else { REPEAT };
        let outcome = replay::run(&lab.balancer, what, packet, Some(lab.interface), repeat).unwrap();
        let expected = if what == ReplayProgram::Nothing { Verdict::Pass } else { verdict(&case.expected) };
        assert_eq!(outcome.verdict, expected, "{}: {:?}", case.name, lab.drops());
        outcome.each.as_nanos()
    });
    times.sort_unstable();
    Times(times)
}

/// Ends all connections and frees their places.
fn empty(lab: &mut Lab) {
    for tick in [u32::MAX / 2, u32::MAX / 2 + 10] {
        lab.balancer.set_clock(Clock::Fixed(tick)).unwrap();
        lab.balancer.sweep_all().unwrap();
    }
    lab.balancer.set_clock(Clock::Kernel).unwrap();
}

fn all(config: &Config, cases: impl FnOnce(&Lab) -> Vec<Case>) {
    let Some(mut lab) = Lab::with(config, || replay::load(cases::sizes()).map(pool::Pooled::from)) else { return };
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    let mut cases = cases(&lab);
    // Those that need connections come before those after which there are none.
    cases.sort_by_key(|case| case.new_flow.is_some());
    for case in &cases {
        let nothing = measure(&lab, case, ReplayProgram::Nothing).median();
        let through = measure(&lab, case, ReplayProgram::Forward);
        let [median, least, most] =
            [through.median(), through.0[0], through.0[ROUNDS - 1]].map(|ns| ns.saturating_sub(nothing));
        println!("  {:<72} {median:5} ns  ({least} to {most})", case.name);
        if case.new_flow.is_some() {
            empty(&mut lab);
        }
    }
}

fn main() {
    println!("load of the machine, mean over a minute: {:?}", rig_sys::probe::load_average());
    // A packet that is repeated is a flood, of which each is to be measured.
    let [mut branches, mut features] = [cases::config(), features::config()];
    (branches.policy.strays, features.policy.strays) = (None, None);
    println!("one packet, hot: median of {ROUNDS} runs, (least to most), of which restoring the packet is not a part:");
    all(&branches, cases::all);
    println!("what services may have, each beside the same without it:");
    all(&features, features::all);
}
