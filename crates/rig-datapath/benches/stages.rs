//! What a packet costs up to each stage of the balancer, by test runs: medians, no judgement.
//!
//! `cargo xtask bench stages [CONNECTIONS]`: so many connections in the table of the last stages, 1,048,576 otherwise.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

#[path = "../tests/integration/balancer/frames.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod frames;
#[path = "../tests/integration/balancer/lab.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod lab;
#[path = "../tests/integration/pool.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod pool;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use rig_datapath::balancer::stages::{self, Flows, ProcessingStage};
use rig_datapath::balancer::{Backend, Clock, Config, ForwardingMethod, Protocol, Scheduler, Service, Sizes};
use rig_datapath::test_run::Verdict;
use rig_sys::netlink::Netlink;
use rig_wire::tcp::flags::{ACK, SYN};

use frames::{see, tcp};
use lab::Lab;

const ROUNDS: usize = 9;
const REPEAT: u32 = 200_000;
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

/// What memory alone takes: mean nanoseconds of reads that depend on each other.
fn random_access(bytes: u64) -> u64 {
    const READS: u64 = 1_000_000;
    let words = vec![1_u64; bytes as usize / 8];
    let mut at = 1_u64;
    let begun = Instant::now();
    for _ in 0..READS {
        // Knuth's MMIX generator; what was read is 1, which the compiler does not know.
        at = at
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(std::hint::black_box(&words)[(at >> 33) as usize % words.len()]);
    }
    std::hint::black_box(at);
    begun.elapsed().as_nanos() as u64 / READS
}

/// The median of new connections of a service's, from clients in a network of their own.
fn new_connections(lab: &Lab, what: &str, to: &str, network: u8) -> u128 {
    const EACH: u64 = 1 << 14;
    let syn = tcp(SYN, "10.0.0.60:5000", to).bytes();
    let mut times: Vec<_> = (0..ROUNDS as u8)
        .map(|round| {
            let few = Flows::Many { count: EACH, first: Ipv4Addr::new(10, network, round, 1), jump: false };
            let run = stages::run(&lab.balancer, ProcessingStage::Forward, &syn, Some(lab.interface), few, EACH as u32)
                .unwrap();
            assert_eq!(run.verdict, Verdict::Transmit, "{what}");
            run.each.as_nanos()
        })
        .collect();
    times.sort_unstable();
    println!("  {what:42} {:5} ns   ({} to {})", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    times[ROUNDS / 2]
}

fn main() {
    println!("load of the machine, mean over a minute: {:?}", rig_sys::probe::load_average());
    let wanted = std::env::args().skip(1).find_map(|argument| argument.parse::<u64>().ok());
    let count = wanted.unwrap_or(1 << 20).next_power_of_two();
    let sizes = Sizes { connections: count as u32 + (1 << 18), list_entries: 4096, ..Sizes::default() };
    let backends = |ports: u16| {
        let of = move |host| (8000..8000 + ports).map(move |port| ([10, 0, 0, host], port).into());
        [10_u8, 11, 12, 13].into_iter().flat_map(of).map(|address| Backend::new(address, 1)).collect()
    };
    let service = |address: &str, scheduler, backends| Service {
        scheduler,
        ..Service::new(
            Protocol::Tcp,
            address.parse().unwrap(),
            ForwardingMethod::FullNat { local: (100..132).map(|host| IpAddr::from([10, 0, 0, host])).collect() },
            backends,
        )
    };
    let services = vec![
        service("10.0.0.200:80", Scheduler::RoundRobin, backends(4)),
        service("10.0.0.201:80", Scheduler::WeightedLeastConnections, backends(4)),
        service("10.0.0.202:80", Scheduler::WeightedLeastConnections, backends(16)),
    ];
    let config = Config { services, ..Config::default() };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = sizes.memory(cpus);
    println!("memory for {} connections: {} MB: {memory:?}", sizes.connections, memory.total() / 1_000_000);
    let Some(mut lab) = Lab::with(&config, || stages::load(sizes).map(pool::Pooled::from)) else { return };
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    // Clients are behind a router that has a neighbour entry.
    let router = IpAddr::from([10, 0, 0, 50]);
    Netlink::here().unwrap().add_route(IpAddr::from([10, 8, 0, 0]), 13, router).unwrap();
    for (name, instructions) in lab.balancer.instructions() {
        println!("{name}: {instructions} instructions");
    }

    let syn = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    let out = lab.sent(&syn);
    let local = see(&out).source;
    let ack = tcp(ACK, "10.0.0.60:5000", "10.0.0.200:80").payload(b"request").bytes();
    let answer = tcp(ACK, &see(&out).destination.to_string(), &local.to_string()).payload(b"answer").bytes();

    let median = |stage, frame: &[u8], flows, repeat, verdict| {
        let mut times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let outcome = stages::run(&lab.balancer, stage, frame, Some(lab.interface), flows, repeat).unwrap();
                assert_eq!(outcome.verdict, verdict, "{stage:?}");
                outcome.each.as_nanos()
            })
            .collect();
        times.sort_unstable();
        println!("  {:8} {:5} ns   ({} to {})", format!("{stage:?}"), times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
        times[ROUNDS / 2]
    };
    println!("one flow, hot, towards the backend:");
    let verdicts = [Verdict::Pass, Verdict::Pass, Verdict::Pass, Verdict::Transmit, Verdict::Transmit];
    let hot: Vec<u128> = ProcessingStage::ALL
        .into_iter()
        .zip(verdicts)
        .map(|(stage, verdict)| median(stage, &ack, Flows::One, REPEAT, verdict))
        .collect();
    let empty = hot[0];
    println!("one flow, hot, towards the client:");
    median(ProcessingStage::Lookup, &answer, Flows::One, REPEAT, Verdict::Transmit);
    let hot_back = median(ProcessingStage::Forward, &answer, Flows::One, REPEAT, Verdict::Transmit);

    println!("new connections into a table that is nearly empty:");
    let new_rr = new_connections(&lab, "round robin", "10.0.0.200:80", 9);

    let megabytes = (memory.connections + memory.index) / 1_000_000;
    println!("one access at random to {megabytes} MB of this process, each waiting for the one before:");
    println!("  {:5} ns", random_access(memory.connections + memory.index));

    let all = |jump| Flows::Many { count, first: CLIENTS, jump };
    println!("{count} new connections, one after the other:");
    let begun = Instant::now();
    // In parts, because a test run cannot be interrupted.
    let first =
        stages::run(&lab.balancer, ProcessingStage::Forward, &syn, Some(lab.interface), all(false), count as u32)
            .unwrap();
    println!("  {:5} ns each, {:.2} s in all", first.each.as_nanos(), begun.elapsed().as_secs_f64());
    assert_eq!(first.verdict, Verdict::Transmit);
    let connections = lab.balancer.services().unwrap()[0].traffic.connections;
    println!(
        "  {connections} connections begun; drops: {:?}",
        lab.balancer.drops().unwrap().iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>()
    );

    println!("{count} connections, visited in an order that jumps about:");
    median(ProcessingStage::Headers, &ack, all(true), count as u32, Verdict::Pass);
    median(ProcessingStage::Lookup, &ack, all(true), count as u32, Verdict::Transmit);
    let cold = median(ProcessingStage::Forward, &ack, all(true), count as u32, Verdict::Transmit);
    let answers = stages::collect_replies(&lab.balancer).unwrap();
    println!("answers to {answers} connections, in an order that jumps about:");
    let out = Flows::Replies { count: answers };
    median(ProcessingStage::Headers, &answer, out, answers as u32, Verdict::Pass);
    median(ProcessingStage::Lookup, &answer, out, answers as u32, Verdict::Transmit);
    // Time stands still but for a second between rounds, in ticks of 2^27 ns.
    let mut tick = (rig_sys::clock::monotonic_ns() >> 27) as u32;
    let mut outward = |what: &str, watched: bool| {
        let mut round = || {
            tick += 8;
            lab.balancer.set_clock(Clock::Fixed(tick)).unwrap();
            lab.balancer.pretend_watched(if watched { u32::MAX } else { 0 }, 1).unwrap();
            let run =
                stages::run(&lab.balancer, ProcessingStage::Forward, &answer, Some(lab.interface), out, answers as u32)
                    .unwrap();
            assert_eq!(run.verdict, Verdict::Transmit, "{what}");
            run.each.as_nanos()
        };
        // The first looks all ways up, watched or not.
        round();
        let mut times: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
        times.sort_unstable();
        println!("  Forward  {:5} ns   ({} to {}), {what}", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
        times[ROUNDS / 2]
    };
    let cold_back_unwatched = outward("each way looked up, a second since the last packet", false);
    let cold_back = outward("ways watched", true);
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    lab.balancer.pretend_watched(0, 0).unwrap();
    println!("a listing of all connections, and of the first alone:");
    let begun = Instant::now();
    let mut listed = 0_u64;
    lab.balancer.connections(|_| listed += 1).unwrap();
    println!("  {:.3} s, {listed} connections", begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    lab.balancer.connections_while(|_| std::ops::ControlFlow::Break(())).unwrap();
    println!("  {:.6} s", begun.elapsed().as_secs_f64());
    println!("a sweep of the whole table:");
    let begun = Instant::now();
    let swept = lab.balancer.sweep_all().unwrap();
    println!("  {:.3} s, {swept:?}", begun.elapsed().as_secs_f64());
    println!("a sweep that ends all, and one that frees them:");
    lab.balancer.set_clock(Clock::Fixed(u32::MAX / 2)).unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let swept = lab.balancer.sweep_all().unwrap();
        println!("  {:.3} s, {swept:?}", begun.elapsed().as_secs_f64());
        lab.balancer.set_clock(Clock::Fixed(u32::MAX / 2 + 10)).unwrap();
    }
    // The stages above have a table filled as far as it was without these.
    println!("new connections into a table that is empty again:");
    lab.balancer.set_clock(Clock::Kernel).unwrap();
    let new_least = new_connections(&lab, "least connections, of 16 backends (all)", "10.0.0.201:80", 11);
    let new_of_two = new_connections(&lab, "least connections, of 64 backends (two)", "10.0.0.202:80", 12);
    println!("what is aimed at, above the empty program, and what it is here:");
    let aims = [
        ("established, hot, towards the backend", 120, hot[4] - empty),
        ("established, hot, towards the client", 120, hot_back.saturating_sub(empty)),
        ("established, each packet another connection's", 250, cold.saturating_sub(empty)),
        ("established, each answer another connection's", 250, cold_back.saturating_sub(empty)),
        ("new connection, table nearly empty", 700, new_rr.saturating_sub(empty)),
        ("new connection, least of 16 backends", 700, new_least.saturating_sub(empty)),
        ("new connection, less loaded of two of 64", 700, new_of_two.saturating_sub(empty)),
        ("new connection, table being filled", 700, first.each.as_nanos().saturating_sub(empty)),
    ];
    for (what, aim, is) in aims {
        println!("  {what:<46} {aim:4} ns  {is:5} ns  {}", if is <= aim { "held" } else { "not held" });
    }
    println!(
        "  an answer on a connection that is not watched, above the empty program: {} ns",
        cold_back_unwatched - empty
    );
    // 1.2 GB for eight million.
    let (aim, is) = (150, memory.total() / u64::from(sizes.connections));
    println!("  {:<46} {aim:4} B   {is:5} B   {}", "maps, a connection", if is <= aim { "held" } else { "not held" });
    println!("  {connections} of {count} connections begun: {}", if connections > count { "held" } else { "not held" });
}
