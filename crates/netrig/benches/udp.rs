//! UDP goodput (payload that the receiver took) and CPU per gigabyte of netrig's ways to send datagrams beside the
//! field's tools: one testbed, one tool after the other, several rounds.
//!
//! Goodput is each tool's own count at the receiving end, because the kernel's counters do not tell how many datagrams a
//! message was made of; CPU time is that of both nodes' CPUs while the tool is in full swing. Tools that are not on PATH
//! are named and left out. Run it with `cargo xtask bench udp [ROUNDS] [TOOL...]`, on a machine that does nothing else.

mod support;

use std::fmt::Write as _;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig_load::plan::{Datagrams, Flow, Load, Pacing, Phases};
use rig_load::record::WorkerRecord;
use serde_json::Value;
use support::rounds::Failures;
use support::{ToolFigures, TwoNodeTestbed, arguments, median, on_path, progress, table};

const MESSAGE: u32 = 1400;
/// As many datagrams as the largest IP packet holds.
const SEGMENTS: u32 = Datagrams::MESSAGE_MAX / MESSAGE;
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);
/// What a peer is told to run for: warm-up, window, and a second in which it comes to its end.
const PEER_SECONDS: &str = "4";
/// Contender much longer a peer may take.
const PEER_TIMEOUT: Duration = Duration::from_secs(15);

fn main() -> Result<()> {
    let (rounds, wanted) = arguments(ROUNDS);
    let field = TwoNodeTestbed::new("reno")?;
    let chosen = tools().into_iter().filter(|tool| wanted.is_empty() || wanted.iter().any(|w| tool.name.contains(w)));
    let (present, absent): (Vec<Tool>, Vec<Tool>) = chosen.partition(Tool::is_present);
    for tool in &absent {
        println!("{} is not on PATH: left out", tool.name);
    }
    let mut results: Vec<ToolFigures> = present.iter().map(|_| ToolFigures::default()).collect();
    let mut failures = Failures::default();
    for round in 1..=rounds {
        for (tool, outcome) in present.iter().zip(&mut results) {
            progress(round, rounds, tool.name);
            let measured = tool.measure(&field).and_then(|(gbit, cpus)| {
                ensure!(gbit > 0.0, "nothing arrived");
                Ok((gbit, cpus))
            });
            if let Some((gbit, cpus)) = failures.heed(round, tool.name, measured) {
                outcome.gbit.push(gbit);
                outcome.cost.push(cpus / (gbit / 8.0));
            }
        }
    }
    eprintln!();
    println!("{}{}", report(&present, &results, rounds), failures.report());
    Ok(())
}

/// A tool with the way to run it.
struct Tool {
    name: &'static str,
    how: Contender,
}

enum Contender {
    Netrig { batch: u32, segments: u32, coalesce: bool },
    Iperf3,
    Netperf,
}

const IPERF3: &str = "iperf3 -u -b 0";

fn tools() -> Vec<Tool> {
    let netrig = |name, batch, segments, coalesce| Tool { name, how: Contender::Netrig { batch, segments, coalesce } };
    vec![
        netrig("netrig, GSO and GRO", 1, SEGMENTS, true),
        netrig("netrig, GSO", 1, SEGMENTS, false),
        netrig("netrig, 32 a call", 32, 1, false),
        netrig("netrig, one a call", 1, 1, false),
        Tool { name: IPERF3, how: Contender::Iperf3 },
        Tool { name: "netperf UDP_STREAM", how: Contender::Netperf },
    ]
}

impl Tool {
    fn is_present(&self) -> bool {
        match self.how {
            Contender::Netrig { .. } => true,
            Contender::Iperf3 => on_path("iperf3"),
            Contender::Netperf => on_path("netperf") && on_path("netserver"),
        }
    }

    /// Gbit/s that the receiver took, and CPUs that both nodes kept busy.
    fn measure(&self, field: &TwoNodeTestbed) -> Result<(f64, f64)> {
        match self.how {
            Contender::Netrig { batch, segments, coalesce } => {
                let cool_down = Duration::from_millis(300);
                let phases = Phases { warm_up: WARM_UP, window: WINDOW, cool_down, interval: WINDOW };
                let mut running = field.start_netrig(&load(batch, segments, coalesce), phases)?;
                running.wait_until(running.window().0)?;
                let cpus = observe(field)?;
                let records = running.finish()?;
                let receiver = records.first().context("no record of the receiver")?;
                Ok((WorkerRecord::bits_per_second(receiver) / 1e9, cpus))
            }
            Contender::Iperf3 => {
                let message = MESSAGE.to_string();
                let client = ["iperf3", "-u", "-b", "0", "-l", &message, "-c", "{}", "-t", PEER_SECONDS];
                let server = ["iperf3", "-s", "-1", "-J"];
                let (text, _, cpus) = run_peers(field, &server, &client)?;
                Ok((of_iperf3(&text).context("read what iperf3's server says")?, cpus))
            }
            Contender::Netperf => {
                let message = MESSAGE.to_string();
                // -R 1: netperf would else not route, and so not send through a gateway.
                let test = ["netperf", "-H", "{}", "-t", "UDP_STREAM", "-l", PEER_SECONDS, "--"];
                let client = [&test[..], &["-m", &message, "-M", &message, "-R", "1"]].concat();
                let (_, text, cpus) = run_peers(field, &["netserver", "-D"], &client)?;
                Ok((of_netperf(&text).context("read what netperf says")?, cpus))
            }
        }
    }
}

fn load(batch: u32, segments: u32, coalesce: bool) -> Load {
    Load::UdpStream(Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: MESSAGE,
        batch,
        segments,
        coalesce,
        throttle: None,
        pacing: Pacing::Thread,
        shared_clock: true,
        send_buffer: None,
        receive_buffer: None,
        options: Default::default(),
    })
}

/// CPUs that both nodes keep busy over the window that begins now.
fn observe(field: &TwoNodeTestbed) -> Result<f64> {
    let (began, before) = (Instant::now(), field.cpu_seconds()?);
    std::thread::sleep(WINDOW);
    Ok((field.cpu_seconds()? - before) / began.elapsed().as_secs_f64())
}

/// What the server and the client wrote, and the CPUs that were busy meanwhile.
fn run_peers(field: &TwoNodeTestbed, server: &[&str], client: &[&str]) -> Result<(String, String, f64)> {
    let mut server = field.start_peer(server, &field.receiver, Stdio::piped())?;
    field.wait_for_listener()?;
    let mut client = field.start_peer(client, &field.sender, Stdio::piped())?;
    std::thread::sleep(WARM_UP);
    if let Some(status) = client.0.try_wait()? {
        bail!("it ended at once, {status}");
    }
    let cpus = observe(field)?;
    let deadline = Instant::now() + PEER_TIMEOUT;
    while client.0.try_wait()?.is_none() {
        ensure!(Instant::now() < deadline, "it did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A server that serves once has ended or is about to; another one is told to.
    let time_limit = Instant::now() + Duration::from_secs(1);
    while server.0.try_wait()?.is_none() && Instant::now() < time_limit {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = server.0.kill();
    let mut texts = [String::new(), String::new()];
    for (peer, text) in [&mut server, &mut client].into_iter().zip(&mut texts) {
        peer.0.stdout.take().context("no output")?.read_to_string(text)?;
    }
    let [server, client] = texts;
    Ok((server, client, cpus))
}

/// Gbit/s that iperf3's server counted in the whole seconds of the window: `intervals[].sum` of its JSON.
fn of_iperf3(text: &str) -> Result<f64> {
    let json: Value = serde_json::from_str(text)?;
    let intervals = json["intervals"].as_array().context("no intervals")?;
    let (first, count) = (WARM_UP.as_secs() as usize, WINDOW.as_secs() as usize);
    let (mut bytes, mut seconds) = (0.0, 0.0);
    for interval in intervals.iter().skip(first).take(count) {
        bytes += interval["sum"]["bytes"].as_f64().context("no bytes")?;
        seconds += interval["sum"]["seconds"].as_f64().context("no seconds")?;
    }
    ensure!(seconds > 0.0, "it ran for {} intervals only", intervals.len());
    Ok(bytes * 8.0 / seconds / 1e9)
}

/// Gbit/s of the second line of figures of netperf's UDP_STREAM, which is the receiver's: socket size, time, messages,
/// 10^6 bit/s.
fn of_netperf(text: &str) -> Result<f64> {
    let figures = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    let rows: Vec<Vec<f64>> = text.lines().filter_map(figures).filter(|row| !row.is_empty()).collect();
    match rows.as_slice() {
        [_, receiver, ..] if receiver.len() == 4 => Ok(receiver[3] / 1e3),
        _ => bail!("no line of the receiver in {text:?}"),
    }
}

fn report(tools: &[Tool], results: &[ToolFigures], rounds: usize) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Medians of {rounds} interleaved rounds, {WINDOW:?} each: one thread, one flow, datagrams of {MESSAGE} bytes; \
         payload that arrived."
    );
    let rows: Vec<_> = tools.iter().zip(results).map(|(tool, outcome)| (tool.name, outcome)).collect();
    let _ = write!(text, "{}", table(&rows));
    if let Some((_, iperf3)) = rows.iter().find(|row| row.0 == IPERF3) {
        let _ = write!(text, "\nTo {IPERF3}:");
        for (name, outcome) in rows.iter().filter(|row| row.0.starts_with("netrig")) {
            let _ = write!(text, " {name} {:.2} x its goodput;", median(&outcome.gbit) / median(&iperf3.gbit));
        }
        text.pop();
        text.push('.');
    }
    text
}
