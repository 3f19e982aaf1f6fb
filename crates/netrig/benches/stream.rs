//! Bulk TCP throughput and CPU per gigabyte of netrig's engines beside the field's tools: one testbed, one tool after
//! the other, several rounds.
//!
//! All are measured the same way, from outside: bytes that the sender's wire interface transmitted and CPU time of both
//! nodes' CPUs over the same interval, while the tool is in full swing. Tools that are not on PATH are named and left
//! out. Run it with `cargo xtask bench stream [ROUNDS] [TOOL...]`, on a machine that
//! does nothing else.

mod common;

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use netrig::testbed::UPLINK;
use rig_load::driver::Running;
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, SendMode, TcpStream};
use rig_stats::sample::Sample;

use self::common::{CONGESTION_CONTROL, Lab, on_path};

const MESSAGE: u32 = 128 * 1024;
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_secs(2);
/// What a peer is told to run for: its start, the warm-up, the window and a reserve.
const PEER_SECONDS: &str = "6";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let wanted: Vec<&String> = arguments.iter().filter(|argument| argument.parse::<usize>().is_err()).collect();
    let lab = Lab::new()?;
    let chosen = tools().into_iter().filter(|tool| wanted.is_empty() || wanted.iter().any(|w| tool.name.contains(*w)));
    let (present, absent): (Vec<Tool>, Vec<Tool>) = chosen.partition(Tool::is_present);
    for tool in &absent {
        println!("{} is not on PATH: left out", tool.name);
    }
    let mut results: Vec<Outcome> = present.iter().map(|_| Outcome::default()).collect();
    for round in 1..=rounds {
        for (tool, outcome) in present.iter().zip(&mut results) {
            if io::stderr().is_terminal() {
                eprint!("\rround {round} of {rounds}: {:<32}", tool.name);
            }
            let (gbit, seconds_per_gb) = measure(&lab, tool).with_context(|| format!("measure {}", tool.name))?;
            outcome.gbit.push(gbit);
            outcome.cost.push(seconds_per_gb);
        }
    }
    eprintln!();
    println!("{}", report(&present, &results, rounds));
    Ok(())
}

/// A tool with the way to run it.
struct Tool {
    name: &'static str,
    how: How,
}

enum How {
    Netrig {
        engine: Engine,
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
    let netrig = |name, engine, send, receive| Tool { name, how: How::Netrig { engine, send, receive } };
    let peer = |name, server, client| Tool { name, how: How::Peer { server, client } };
    let uring = Engine::Uring { outstanding: 2 };
    vec![
        netrig("netrig", Engine::Blocking, SendMode::Copy, ReceiveMode::Copy),
        netrig("netrig io_uring, 2 outstanding", uring, SendMode::Copy, ReceiveMode::Copy),
        netrig("netrig copy-free", Engine::Blocking, SendMode::Splice, ReceiveMode::Discard),
        peer("iperf3", &["iperf3", "-s", "-1"], &["iperf3", "-c", "{}", "-l", "128K", "-t", PEER_SECONDS]),
        peer("iperf3 -Z", &["iperf3", "-s", "-1"], &["iperf3", "-Z", "-c", "{}", "-l", "128K", "-t", PEER_SECONDS]),
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
    fn is_present(&self) -> bool {
        match self.how {
            How::Netrig { .. } => true,
            How::Peer { server, client } => [server[0], client[0]].iter().all(|program| on_path(program)),
        }
    }
}

#[derive(Default)]
struct Outcome {
    gbit: Sample,
    /// CPU seconds for each 10^9 bytes.
    cost: Sample,
}

/// Gbit/s on the wire and CPU seconds for each 10^9 bytes.
fn measure(lab: &Lab, tool: &Tool) -> Result<(f64, f64)> {
    match tool.how {
        How::Netrig { engine, send, receive } => {
            let mut running = start_netrig(lab, engine, send, receive)?;
            running.wait_until(running.window().0)?;
            let result = observe(lab)?;
            running.finish()?;
            Ok(result)
        }
        How::Peer { server, client } => {
            let _server = lab.start_server(server)?;
            let mut client = lab.start_peer(client, &lab.client, Stdio::null())?;
            std::thread::sleep(WARM_UP);
            if let Some(status) = client.0.try_wait()? {
                bail!("it ended at once, {status}");
            }
            observe(lab)
        }
    }
}

fn observe(lab: &Lab) -> Result<(f64, f64)> {
    let begin = Reading::take(lab)?;
    std::thread::sleep(WINDOW);
    let end = Reading::take(lab)?;
    let seconds = end.at.duration_since(begin.at).as_secs_f64();
    let bytes = (end.bytes - begin.bytes) as f64;
    if bytes == 0.0 {
        bail!("nothing was sent");
    }
    Ok((bytes * 8.0 / seconds / 1e9, (end.busy_seconds - begin.busy_seconds) / (bytes / 1e9)))
}

struct Reading {
    at: Instant,
    bytes: u64,
    busy_seconds: f64,
}

impl Reading {
    fn take(lab: &Lab) -> Result<Self> {
        let at = Instant::now();
        let busy_seconds = lab.busy_seconds()?;
        let interfaces = lab.place(&lab.client)?.0.counters.interfaces()?;
        let bytes = interfaces.get(UPLINK).context("the sender has no wire")?.tx_bytes;
        Ok(Self { at, bytes, busy_seconds })
    }
}

fn start_netrig(lab: &Lab, engine: Engine, send_mode: SendMode, receive_mode: ReceiveMode) -> Result<Running<'_>> {
    let stream = TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: MESSAGE,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: Some(CONGESTION_CONTROL.into()),
        engine,
        send_mode,
        receive_mode,
    };
    let cool_down = Duration::from_millis(300);
    let phases = Phases { warm_up: WARM_UP, window: WINDOW, cool_down, interval: Duration::from_secs(1) };
    lab.start_netrig(&Load::TcpStream(stream), phases)
}

fn report(tools: &[Tool], results: &[Outcome], rounds: usize) -> String {
    let median = |sample: &Sample| sample.median().unwrap_or(f64::NAN);
    let own = results.first();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "tool",
        "Gbit/s (min .. max)",
        "CPU s/GB",
        "netrig's throughput to its",
        "netrig's CPU to its",
    ]);
    for (tool, outcome) in tools.iter().zip(results) {
        let ratio = |of: fn(&Outcome) -> &Sample| own.map_or(f64::NAN, |own| median(of(own)) / median(of(outcome)));
        table.add_row([
            tool.name.to_owned(),
            format!(
                "{:.2} ({:.2} .. {:.2})",
                median(&outcome.gbit),
                outcome.gbit.min().unwrap_or(f64::NAN),
                outcome.gbit.max().unwrap_or(f64::NAN)
            ),
            format!("{:.3}", median(&outcome.cost)),
            format!("{:.2}", ratio(|o| &o.gbit)),
            format!("{:.2}", ratio(|o| &o.cost)),
        ]);
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Medians of {rounds} interleaved rounds, {WINDOW:?} each: one thread, 128 KiB messages, {CONGESTION_CONTROL}."
    );
    let _ = write!(text, "{table}");
    if let (Some(own), Some(free), Some(iperf3)) =
        (find(tools, results, "netrig"), find(tools, results, "netrig copy-free"), find(tools, results, "iperf3"))
    {
        let _ = write!(
            text,
            "\nTo iperf3: netrig {:.2} x its throughput, copy-free {:.2} x.",
            median(&own.gbit) / median(&iperf3.gbit),
            median(&free.gbit) / median(&iperf3.gbit)
        );
    }
    text
}

fn find<'a>(tools: &[Tool], results: &'a [Outcome], name: &str) -> Option<&'a Outcome> {
    tools.iter().position(|tool| tool.name == name).map(|index| &results[index])
}
