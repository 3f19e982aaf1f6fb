//! Bulk TCP throughput and CPU per gigabyte of netrig's engines beside the field's tools: one testbed, one tool after
//! the other, several rounds.
//!
//! All are measured the same way, from outside: bytes that the sender's wire interface transmitted and CPU time of both
//! nodes' CPUs over the same interval, while the tool is in full swing. Tools that are not on PATH are named and left
//! out. Run it with `cargo xtask bench stream [ROUNDS] [TOOL...]`, on a machine that
//! does nothing else.
//!
//! `netrig stream` is what users run, once as it is, when both ends count CPU time exactly, and once without the
//! capabilities for it. What the count takes from the throughput is the ratio of the two, round by round.

mod support;

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rig_load::plan::{Engine, Load, Phases, ReceiveMode, SendMode};
use rig_stats::sample::Sample;
use support::rounds::Failures;
use support::{CONGESTION_CONTROL, ToolFigures, TwoNodeTestbed, arguments, median, on_path, progress, stream, table};

const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_secs(2);
/// What a peer is told to run for: its start, the warm-up, the window and a reserve.
const PEER_SECONDS: &str = "6";
const NETRIG: &str = env!("CARGO_BIN_EXE_netrig");
/// Tools by the command line.
const COUNTED: &str = "netrig stream";
const UNCOUNTED: &str = "netrig stream, no exact CPU time";
/// Its sender has no copy.
const COPIES_LESS: &str = "iperf3 -Z";
/// What counting needs (capabilities(7)), or includes it.
const WITHOUT: &str = "-bpf,-perfmon,-sys_admin";

fn main() -> Result<()> {
    let (rounds, wanted) = arguments(ROUNDS);
    let bench = Bench(TwoNodeTestbed::new(CONGESTION_CONTROL)?);
    let chosen = tools().into_iter().filter(|tool| wanted.is_empty() || wanted.iter().any(|w| tool.name.contains(w)));
    let (present, absent): (Vec<Tool>, Vec<Tool>) = chosen.partition(Tool::is_present);
    for tool in &absent {
        println!("{} is not on PATH: left out", tool.name);
    }
    let mut results: Vec<ToolFigures> = present.iter().map(|_| ToolFigures::default()).collect();
    let mut failures = Failures::default();
    let mut by_round = vec![vec![None; present.len()]; rounds];
    for round in 1..=rounds {
        // What comes late in a round has another neighbour in the next.
        let mut order: Vec<usize> = (0..present.len()).collect();
        if round % 2 == 0 {
            order.reverse();
        }
        for number in order {
            let (tool, outcome) = (&present[number], &mut results[number]);
            progress(round, rounds, tool.name);
            if let Some((gbit, seconds_per_gb)) = failures.heed(round, tool.name, bench.measure(tool)) {
                outcome.gbit.push(gbit);
                outcome.cost.push(seconds_per_gb);
                by_round[round - 1][number] = Some(gbit);
            }
        }
    }
    eprintln!();
    let ratios = ratios(&present, &by_round);
    println!("{}{ratios}{}", report(&present, &results, rounds), failures.report());
    Ok(())
}

/// Ratios of `netrig stream`, round by round: with the exact count of CPU time to without, and both to the fastest of the other
/// tools that copy every byte at both ends, as netrig does. That tool is the fastest by the median of all rounds: the fastest of
/// each round would be the one that noise favours in it.
fn ratios(tools: &[Tool], by_round: &[Vec<Option<f64>>]) -> String {
    let at = |name: &str| tools.iter().position(|tool| tool.name == name);
    let of_all = |number: usize| by_round.iter().filter_map(|round| round[number]).collect::<Sample>().median();
    let best = (0..tools.len()).filter(|&number| tools[number].is_peer() && tools[number].name != COPIES_LESS);
    let best = best.max_by(|&one, &other| of_all(one).partial_cmp(&of_all(other)).unwrap_or(Ordering::Equal));
    let best_name = best.map_or("no other tool", |number| tools[number].name);
    let of = |number: Option<usize>| move |round: &Vec<Option<f64>>| number.and_then(|number| round[number]);
    let mut text = String::new();
    let mut say = |what: &str,
                   one: &dyn Fn(&Vec<Option<f64>>) -> Option<f64>,
                   other: &dyn Fn(&Vec<Option<f64>>) -> Option<f64>| {
        let each: Sample = by_round.iter().filter_map(|round| Some(one(round)? / other(round)?)).collect();
        if let (Some(middle), Some(least), Some(most)) = (each.median(), each.min(), each.max()) {
            let _ = write!(text, "\n{what}: {middle:.3} x its throughput ({least:.3} .. {most:.3} by round).");
        }
    };
    let (with, without) = (of(at(COUNTED)), of(at(UNCOUNTED)));
    say("netrig stream with exact CPU time, to without", &with, &without);
    say(&format!("netrig stream, to {best_name}"), &with, &of(best));
    say(&format!("netrig stream without exact CPU time, to {best_name}"), &without, &of(best));
    text
}

/// A tool with the way to run it.
struct Tool {
    name: &'static str,
    how: Contender,
}

enum Contender {
    Netrig {
        engine: Engine,
        connections: u32,
        send: SendMode,
        receive: ReceiveMode,
    },
    /// Programs of both ends; `{}` in an argument stands for the receiver's address.
    Peer {
        server: &'static [&'static str],
        client: &'static [&'static str],
    },
}

fn tools() -> Vec<Tool> {
    let netrig = |name, engine, connections, send, receive| {
        let how = Contender::Netrig { engine, connections, send, receive };
        Tool { name, how }
    };
    let copies = |name, engine, connections| netrig(name, engine, connections, SendMode::Copy, ReceiveMode::Copy);
    let peer = |name, server, client| Tool { name, how: Contender::Peer { server, client } };
    let uring = Engine::Uring { outstanding: 2 };
    vec![
        copies("netrig", Engine::Blocking, 1),
        copies("netrig io_uring, 2 outstanding", uring, 1),
        copies("netrig, 16 connections", Engine::Blocking, 16),
        copies("netrig io_uring, 16 connections", uring, 16),
        netrig("netrig copy-free", Engine::Blocking, 1, SendMode::Splice, ReceiveMode::Discard),
        peer(
            COUNTED,
            &[NETRIG, "serve", "--listen", "{}"],
            &[NETRIG, "stream", "--client", "{}", "--message", "128k", "--time", PEER_SECONDS],
        ),
        peer(
            UNCOUNTED,
            &["setpriv", "--bounding-set", WITHOUT, NETRIG, "serve", "--listen", "{}"],
            &[
                "setpriv",
                "--bounding-set",
                WITHOUT,
                NETRIG,
                "stream",
                "--client",
                "{}",
                "--message",
                "128k",
                "--time",
                PEER_SECONDS,
            ],
        ),
        peer("iperf3", &["iperf3", "-s", "-1"], &["iperf3", "-c", "{}", "-l", "128K", "-t", PEER_SECONDS]),
        peer(COPIES_LESS, &["iperf3", "-s", "-1"], &["iperf3", "-Z", "-c", "{}", "-l", "128K", "-t", PEER_SECONDS]),
        peer(
            "netperf",
            &["netserver", "-D"],
            &["netperf", "-H", "{}", "-t", "TCP_STREAM", "-l", PEER_SECONDS, "--", "-m", "131072", "-M", "131072"],
        ),
        peer(
            "neper tcp_stream",
            &["tcp_stream", "-B", "131072", "-l", PEER_SECONDS],
            &["tcp_stream", "-c", "-H", "{}", "-B", "131072", "-l", PEER_SECONDS],
        ),
        peer(
            "ntttcp",
            &["ntttcp", "-r{}", "-P", "1", "-b", "128K", "-t", PEER_SECONDS],
            &["ntttcp", "-s{}", "-P", "1", "-n", "1", "-b", "128K", "-t", PEER_SECONDS],
        ),
    ]
}

impl Tool {
    /// Whether it is a tool of another project.
    fn is_peer(&self) -> bool {
        matches!(self.how, Contender::Peer { .. }) && !self.name.starts_with("netrig")
    }

    fn is_present(&self) -> bool {
        match self.how {
            Contender::Netrig { .. } => true,
            Contender::Peer { server, client } => [server[0], client[0]].iter().all(|program| on_path(program)),
        }
    }
}

struct Bench(TwoNodeTestbed);

impl Bench {
    /// Gbit/s on the wire and CPU seconds for each 10^9 bytes.
    fn measure(&self, tool: &Tool) -> Result<(f64, f64)> {
        let field = &self.0;
        match tool.how {
            Contender::Netrig { engine, connections, send, receive } => {
                let cool_down = Duration::from_millis(300);
                let interval = Duration::from_secs(1);
                let phases = Phases { warm_up: WARM_UP, window: WINDOW, cool_down, interval };
                let mut running =
                    field.start_netrig(&Load::TcpStream(stream(engine, connections, send, receive)), phases)?;
                running.wait_until(running.window().0)?;
                let result = self.observe()?;
                running.finish()?;
                Ok(result)
            }
            Contender::Peer { server, client } => {
                let _server = field.start_peer(server, &field.receiver, Stdio::null())?;
                field.wait_for_listener()?;
                let mut client = field.start_peer(client, &field.sender, Stdio::null())?;
                std::thread::sleep(WARM_UP);
                if let Some(status) = client.0.try_wait()? {
                    bail!("it ended at once, {status}");
                }
                self.observe()
            }
        }
    }

    fn observe(&self) -> Result<(f64, f64)> {
        let begin = self.read()?;
        std::thread::sleep(WINDOW);
        let end = self.read()?;
        let seconds = end.at.duration_since(begin.at).as_secs_f64();
        let bytes = (end.bytes - begin.bytes) as f64;
        if bytes == 0.0 {
            bail!("nothing was sent");
        }
        Ok((bytes * 8.0 / seconds / 1e9, (end.cpu_seconds - begin.cpu_seconds) / (bytes / 1e9)))
    }

    fn read(&self) -> Result<Reading> {
        let at = Instant::now();
        let cpu_seconds = self.0.cpu_seconds()?;
        Ok(Reading { at, bytes: self.0.sent_bytes()?, cpu_seconds })
    }
}

struct Reading {
    at: Instant,
    bytes: u64,
    cpu_seconds: f64,
}

fn report(tools: &[Tool], results: &[ToolFigures], rounds: usize) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Medians of {rounds} interleaved rounds, {WINDOW:?} each: one thread, one connection unless told, 128 KiB messages, {CONGESTION_CONTROL}."
    );
    let rows: Vec<_> = tools.iter().zip(results).map(|(tool, outcome)| (tool.name, outcome)).collect();
    let _ = write!(text, "{}", table(&rows));
    let find = |name| rows.iter().find(|row| row.0 == name).map(|row| (median(&row.1.gbit), median(&row.1.cost)));
    let pairs =
        [("netrig io_uring, 2 outstanding", "netrig"), ("netrig io_uring, 16 connections", "netrig, 16 connections")];
    for (name, other) in pairs {
        if let (Some(ring), Some(blocking)) = (find(name), find(other)) {
            let (gbit, cost) = (ring.0 / blocking.0, ring.1 / blocking.1);
            let _ = write!(text, "\n{name}, to blocking: {gbit:.2} x its throughput, {cost:.2} x its CPU per byte.");
        }
    }
    if let (Some(own), Some(free), Some(iperf3)) = (find("netrig"), find("netrig copy-free"), find("iperf3")) {
        let (own, free) = (own.0 / iperf3.0, free.0 / iperf3.0);
        let _ = write!(text, "\nTo iperf3: netrig {own:.2} x its throughput, copy-free {free:.2} x.");
    }
    text
}
