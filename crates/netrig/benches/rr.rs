//! Transactions of one byte each way beside the field's tools: transactions a second, and for each CPU second that both
//! nodes' CPUs worked, interrupts and all.
//!
//! All run in one testbed, one after the other, several rounds. A tool's rate is its own figure over its whole run; its
//! CPU time is read from outside while it is in full swing. Tools that are not on PATH are named and left out. The last
//! line tells what recording a latency costs. Run it with `cargo xtask bench rr [ROUNDS] [NAME...]`, where a name is a
//! part of a load's or a tool's, on a machine that does nothing else.

mod support;

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use rig_load::plan::{Load, Phases, Schedule, Transactions};
use rig_load::record::WorkerRecord;
use rig_stats::histogram::Histogram;
use rig_stats::sample::Sample;

use self::support::rounds::Failures;
use self::support::{TwoNodeTestbed, arguments, median, on_path, or_dash, progress};

/// For tools that cannot choose.
const CONGESTION_CONTROL: &str = "reno";
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_secs(2);
/// What a peer is told to run for: its start, the warm-up, the window and a reserve.
const PEER_SECONDS: &str = "4";
const MANY: u32 = 64;
const BURST: u32 = 8;

fn main() -> Result<()> {
    let (rounds, wanted) = arguments(ROUNDS);
    let field = TwoNodeTestbed::new(CONGESTION_CONTROL)?;
    let mut loads = loads();
    for load in &mut loads {
        let is_wanted =
            |tool: &Tool| wanted.is_empty() || wanted.iter().any(|w| load.name.contains(w) || tool.name.contains(w));
        load.tools.retain(|tool| is_wanted(tool) || matches!(tool.how, Contender::Netrig));
        // netrig is what the others are compared with: it goes with them, not alone.
        if !load.tools.iter().any(is_wanted) {
            load.tools.clear();
        }
    }
    let mut absent: Vec<&str> = loads.iter().flat_map(|load| &load.tools).filter_map(Tool::missing).collect();
    absent.sort_unstable();
    absent.dedup();
    for program in &absent {
        println!("{program} is not on PATH: left out");
    }
    for load in &mut loads {
        load.tools.retain(|tool| tool.missing().is_none());
    }
    let (mut last, mut failures) = (None, Failures::default());
    for round in 1..=rounds {
        for load in &mut loads {
            for tool in &mut load.tools {
                let name = format!("{}, {}", load.name, tool.name);
                progress(round, rounds, &name);
                let measured = match &tool.how {
                    Contender::Netrig => run_netrig(&field, &load.load).map(|(record, busy)| {
                        let rate =
                            record.transactions.as_ref().map_or(0.0, rig_load::record::TransactionRecord::per_second);
                        // One at a time over one connection: the dearest place for anything more to do.
                        if last.is_none() {
                            last = Some(record);
                        }
                        (rate, busy)
                    }),
                    Contender::Peer { server, client, figure } => {
                        run_peer(&field, (server.as_slice(), client.as_slice()), figure)
                    }
                };
                if let Some((rate, busy)) = failures.heed(round, name, measured) {
                    tool.rate.push(rate);
                    tool.per_cpu_second.push(rate / busy);
                }
            }
        }
    }
    eprintln!();
    println!("{}{}", report(&loads, rounds), failures.report());
    if let Some(record) = last {
        println!("{}", cost_of_recording(&record)?);
    }
    Ok(())
}

/// A load and the tools that know it, netrig first.
struct Case {
    name: &'static str,
    load: Load,
    tools: Vec<Tool>,
}

struct Tool {
    name: &'static str,
    how: Contender,
    rate: Sample,
    per_cpu_second: Sample,
}

enum Contender {
    Netrig,
    /// `{}` in a word stands for the server's address.
    Peer {
        server: Vec<&'static str>,
        client: Vec<&'static str>,
        figure: Figure,
    },
}

/// Where a peer's output has its transactions per second.
enum Figure {
    /// It is the output.
    Alone,
    /// On a line of its own after this key and an equals sign.
    Key(&'static str),
}

impl Tool {
    fn new(name: &'static str, how: Contender) -> Self {
        Self { name, how, rate: Sample::default(), per_cpu_second: Sample::default() }
    }

    /// A program that is not on PATH.
    fn missing(&self) -> Option<&'static str> {
        match &self.how {
            Contender::Netrig => None,
            Contender::Peer { server, client, .. } => {
                [server[0], client[0]].into_iter().find(|program| !on_path(program))
            }
        }
    }
}

fn loads() -> Vec<Case> {
    let one = Transactions {
        threads: 1,
        connections: 1,
        request: 1,
        response: 1,
        in_flight: 1,
        schedule: Schedule::Closed,
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        congestion_control: Some(CONGESTION_CONTROL.into()),
        options: Default::default(),
    };
    let many = Transactions { connections: MANY, ..one.clone() };
    let burst = Transactions { in_flight: BURST, ..one.clone() };
    let udp = |load: &Transactions| Transactions { congestion_control: None, ..load.clone() };
    let case = |name, load, peers: Vec<Tool>| {
        let tools = std::iter::once(Tool::new("netrig", Contender::Netrig)).chain(peers).collect();
        Case { name, load, tools }
    };
    let netperf = |test, options: &[&'static str]| {
        let client = ["netperf", "-H", "{}", "-t", test, "-l", PEER_SECONDS, "-P", "0", "-v", "0", "--", "-r", "1,1"];
        let client = client.iter().chain(options).copied().collect();
        Tool::new("netperf", Contender::Peer { server: vec!["netserver", "-D"], client, figure: Figure::Alone })
    };
    let neper = |name, program, options: &[&'static str]| {
        let with = |words: &[&'static str]| words.iter().chain(options).copied().collect();
        let server = with(&[program, "-l", PEER_SECONDS]);
        let client = with(&[program, "-c", "-H", "{}", "-l", PEER_SECONDS]);
        Tool::new(name, Contender::Peer { server, client, figure: Figure::Key("throughput") })
    };
    vec![
        case(
            "tcp-rr",
            Load::TcpRr(one.clone()),
            vec![netperf("TCP_RR", &["-D", "L,R"]), neper("neper", "tcp_rr", &["--no-delay"])],
        ),
        case("tcp-rr, 8 in flight", Load::TcpRr(burst), vec![netperf("TCP_RR", &["-D", "L,R", "-b", "7"])]),
        case(
            "tcp-rr, 64 connections",
            Load::TcpRr(many.clone()),
            vec![neper("neper", "tcp_rr", &["--no-delay", "-F", "64"])],
        ),
        case(
            "tcp-crr",
            Load::TcpCrr(one.clone()),
            vec![netperf("TCP_CRR", &[]), neper("neper, which resets", "tcp_crr", &[])],
        ),
        case(
            "tcp-crr, 64 connections",
            Load::TcpCrr(many.clone()),
            vec![neper("neper, which resets", "tcp_crr", &["-F", "64"])],
        ),
        case("udp-rr", Load::UdpRr(udp(&one)), vec![netperf("UDP_RR", &[]), neper("neper", "udp_rr", &[])]),
        case("udp-rr, 64 connections", Load::UdpRr(udp(&many)), vec![neper("neper", "udp_rr", &["-F", "64"])]),
    ]
}

/// The requester's record, and CPU seconds for each second of the window.
fn run_netrig(field: &TwoNodeTestbed, load: &Load) -> Result<(WorkerRecord, f64)> {
    let cool_down = Duration::from_millis(300);
    let phases = Phases { warm_up: WARM_UP, window: WINDOW, cool_down, interval: Duration::from_secs(1) };
    let mut running = field.start_netrig(load, phases)?;
    running.wait_until(running.window().0)?;
    let busy = observe(field)?;
    let record = running.finish()?.pop().context("no record")?;
    Ok((record, busy))
}

/// Transactions per second, and CPU seconds for each second in full swing.
fn run_peer(field: &TwoNodeTestbed, (server, client): (&[&str], &[&str]), figure: &Figure) -> Result<(f64, f64)> {
    let _server = field.start_server(server)?;
    let mut client = field.start_peer(client, &field.sender, Stdio::piped())?;
    std::thread::sleep(WARM_UP);
    if let Some(status) = client.0.try_wait()? {
        bail!("it ended at once, {status}");
    }
    let busy = observe(field)?;
    let mut output = String::new();
    client.0.stdout.take().context("no output")?.read_to_string(&mut output)?;
    let text = match figure {
        Figure::Alone => output.trim(),
        Figure::Key(key) => output
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .with_context(|| format!("no {key} in its output:\n{output}"))?,
    };
    let rate = text.trim().parse().with_context(|| format!("its output is no rate: {text}"))?;
    Ok((rate, busy))
}

fn observe(field: &TwoNodeTestbed) -> Result<f64> {
    let (begun, before) = (Instant::now(), field.cpu_seconds()?);
    std::thread::sleep(WINDOW);
    Ok((field.cpu_seconds()? - before) / begun.elapsed().as_secs_f64())
}

/// What it takes to look at the clock and to enter a latency, beside the CPU time that the requesting thread needs for a
/// transaction.
fn cost_of_recording(record: &WorkerRecord) -> Result<String> {
    const TIMES: usize = 2_000_000;
    let transactions = record.transactions.as_ref().context("no transactions")?;
    let seen = transactions.latency.as_ref().context("no latency")?;
    // The latencies of the run, in an order that no branch predictor knows.
    let mut values: Vec<u64> = seen.values().flat_map(|(ns, count)| (0..count.min(64)).map(move |_| ns)).collect();
    let length = values.len();
    for (index, step) in (0..length).zip((1u64..).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15))) {
        values.swap(index, (step % length as u64) as usize);
    }
    let mut histogram = Histogram::new();
    let each = |work: &mut dyn FnMut(u64)| {
        let begun = Instant::now();
        for value in values.iter().cycle().take(TIMES) {
            work(black_box(*value));
        }
        begun.elapsed().as_nanos() as f64 / TIMES as f64
    };
    let empty_ns = each(&mut |_| ());
    let record_ns = each(&mut |value| histogram.record(value)) - empty_ns;
    let clock_ns = each(&mut |_| {
        black_box(rig_sys::clock::monotonic_ns());
    }) - empty_ns;
    black_box(histogram.count());
    let cpu_ns: u64 = record.threads.iter().map(|thread| thread.cpu_ns).sum();
    let transaction_ns = cpu_ns as f64 / transactions.completed.max(1) as f64;
    Ok(format!(
        "Recording a latency takes {record_ns:.1} ns and looking at the clock {clock_ns:.1} ns: {:.2} % and {:.2} % of the \
         {transaction_ns:.0} ns of CPU time that the requesting thread takes for a transaction.",
        100.0 * record_ns / transaction_ns,
        100.0 * clock_ns / transaction_ns,
    ))
}

fn report(loads: &[Case], rounds: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "load",
        "tool",
        "transactions/s (min .. max)",
        "per CPU second",
        "netrig's rate to its",
        "netrig's rate per CPU second to its",
    ]);
    for load in loads {
        let own = load.tools.iter().find(|tool| matches!(tool.how, Contender::Netrig));
        for tool in &load.tools {
            let ratio = |of: fn(&Tool) -> &Sample| own.map_or(f64::NAN, |own| median(of(own)) / median(of(tool)));
            let cells = [
                format!(
                    "{:.0} ({:.0} .. {:.0})",
                    median(&tool.rate),
                    tool.rate.min().unwrap_or(f64::NAN),
                    tool.rate.max().unwrap_or(f64::NAN)
                ),
                format!("{:.0}", median(&tool.per_cpu_second)),
                format!("{:.2}", ratio(|tool| &tool.rate)),
                format!("{:.2}", ratio(|tool| &tool.per_cpu_second)),
            ];
            table.add_row([load.name, tool.name].map(str::to_owned).into_iter().chain(cells.map(or_dash)));
        }
    }
    for column in 2..6 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Medians of {rounds} interleaved rounds, {WINDOW:?} each: one byte each way, one thread, {CONGESTION_CONTROL}."
    );
    let _ = write!(text, "{table}");
    text
}
