//! What the exact count of CPU time costs, and how well its figures agree. No other program may work meanwhile.
//!
//!     cargo xtask bench cpu [ROUNDS]
//!
//! One TCP stream between two nodes of a CPU each runs all the time, while the count is switched off and on in short slices: what
//! other guests of the machine take is then alike for neighbouring slices.
//!
//! Loads over loopback run with and without the count in turn, as one second each. A third run of each has the kernel count
//! what the programs take (BPF_ENABLE_STATS), which costs something itself.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use rig_datapath::cputime::{CpuTime, Kind};
use rig_load::plan::{Engine, Load, Phases, ReceiveMode, SendMode};
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_sys::clock::{monotonic_ns, process_cpu_ns, sleep_until};
use rig_sys::process::die_with_parent;
use support::{CONGESTION_CONTROL, TwoNodeTestbed};

const ROUNDS: usize = 11;
const LENGTH: Duration = Duration::from_secs(1);
const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// The paced load, transactions a second.
const RATE: u64 = 10_000;
/// Runs of `netrig rr`, and how far each may be from the middle of all.
const RUNS: usize = 4;
const AGREE: f64 = 0.05;
/// A slice of the stream, and what passes between a switch and it.
const SLICE: Duration = Duration::from_millis(250);
const SETTLE: Duration = Duration::from_millis(50);
/// One with all that belongs to it: programs take a tenth of a second to attach.
const LONGEST_SLICE: Duration = Duration::from_secs(2);
/// Rounds of slices for each round of the loads.
const SLICES: usize = 5;
/// Counts at once by slice: none, one, and two as of a server and a client that count for themselves.
const COUNTS: [usize; 3] = [0, 1, 2];

#[derive(Debug, Clone, Copy)]
enum Work {
    Stream,
    Paced,
    Transactions,
}

impl Work {
    const ALL: [Self; 3] = [Self::Stream, Self::Paced, Self::Transactions];

    fn name(self) -> &'static str {
        match self {
            Self::Stream => "TCP stream, GB/s",
            Self::Paced => "UDP transactions at 10,000/s",
            Self::Transactions => "UDP transactions/s at their limit",
        }
    }

    fn unit(self) -> f64 {
        if matches!(self, Self::Stream) { 1e9 } else { 1.0 }
    }

    /// Does it for [`LENGTH`]: how much was done.
    fn run(self) -> Result<u64> {
        match self {
            Self::Stream => stream(),
            Self::Paced => transactions(Some(1_000_000_000 / RATE)),
            Self::Transactions => transactions(None),
        }
    }
}

fn stream() -> Result<u64> {
    let door = TcpListener::bind("127.0.0.1:0")?;
    let mut from = TcpStream::connect(door.local_addr()?)?;
    let (mut to, _) = door.accept()?;
    let end = Instant::now() + LENGTH;
    thread::scope(|scope| {
        scope.spawn(move || {
            let block = vec![0; 128 << 10];
            while Instant::now() < end && from.write_all(&block).is_ok() {}
        });
        let (mut block, mut bytes) = (vec![0; 128 << 10], 0);
        loop {
            match to.read(&mut block)? {
                0 => return Ok(bytes),
                n => bytes += n as u64,
            }
        }
    })
}

fn transactions(interval_ns: Option<u64>) -> Result<u64> {
    let [client, server] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    client.connect(server.local_addr()?)?;
    server.connect(client.local_addr()?)?;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    }
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut message = [0; 1];
            while !over.load(Ordering::Relaxed) {
                if server.recv(&mut message).is_ok() {
                    let _ = server.send(&message);
                }
            }
        });
        let (begin, mut message) = (monotonic_ns(), [0; 1]);
        let end = begin + LENGTH.as_nanos() as u64;
        let mut due = begin;
        while monotonic_ns() < end {
            if let Some(interval_ns) = interval_ns {
                due += interval_ns;
                sleep_until(due);
            }
            if client.send(&message).is_ok() && client.recv(&mut message).is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    Ok(done.into_inner())
}

/// What a load did and spent in a second, and what the count of it took.
#[derive(Default)]
struct LoadCost {
    done: Sample,
    /// CPU seconds of the load's process.
    own: Sample,
}

#[derive(Default)]
struct Cost {
    events: Sample,
    /// Percent of one CPU.
    estimate: Sample,
    by_kernel: Sample,
    busy: Sample,
}

/// The kernel's statistics of programs, switched off when dropped, unless they were on.
struct Statistics(String);

impl Statistics {
    fn switch_on() -> Result<Self> {
        let before = fs::read_to_string(STATISTICS).with_context(|| format!("read {STATISTICS}"))?;
        fs::write(STATISTICS, "1").with_context(|| format!("write {STATISTICS}"))?;
        Ok(Self(before))
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _ = fs::write(STATISTICS, self.0.trim());
    }
}

fn once(work: Work, outcome: &mut LoadCost) -> Result<()> {
    let before = process_cpu_ns();
    outcome.done.push(work.run()? as f64 / work.unit() / LENGTH.as_secs_f64());
    let after = process_cpu_ns();
    outcome.own.push((after.0 + after.1 - before.0 - before.1) as f64 / 1e9);
    Ok(())
}

fn counted(work: Work, outcome: &mut LoadCost, cost: &mut Cost, with_statistics: bool) -> Result<()> {
    let counting = CpuTime::attach()?;
    let statistics = with_statistics.then(Statistics::switch_on).transpose()?;
    let kernel = counting.run_time_ns()?;
    let begin = counting.read()?;
    let mut other = LoadCost::default();
    once(work, if with_statistics { &mut other } else { outcome })?;
    let end = counting.read()?;
    let kernel = counting.run_time_ns()? - kernel;
    drop(statistics);
    let cpus = end.0.iter().filter_map(|(cpu, times)| Some(times.since(begin.0.get(cpu)?)));
    let (mut own, mut events, mut whole, mut busy) = (0, 0, 0, 0);
    for times in cpus {
        own += times.overhead();
        events += times.events;
        busy += times.total() - times.of(Kind::Idle);
        whole = times.at.max(whole);
    }
    let percent = |ns: u64| ns as f64 * 100.0 / whole as f64;
    if with_statistics {
        cost.by_kernel.push(percent(kernel));
    } else {
        cost.events.push(events as f64 * 1e9 / whole as f64);
        cost.estimate.push(percent(own));
        cost.busy.push(percent(busy));
    }
    Ok(())
}

fn median(sample: &Sample) -> f64 {
    sample.median().unwrap_or(f64::NAN)
}

fn overhead(rounds: usize) -> Result<Table> {
    let mut results: [(LoadCost, LoadCost, Cost); 3] = Default::default();
    for round in 0..rounds {
        for (work, (without, with, cost)) in Work::ALL.into_iter().zip(&mut results) {
            // The run that is first finds the caches of the work before, so the two take turns at it.
            if round % 2 == 0 {
                once(work, without)?;
            }
            counted(work, with, cost, false)?;
            if round % 2 == 1 {
                once(work, without)?;
            }
            counted(work, with, cost, true)?;
        }
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "load",
        "without",
        "with the count",
        "its CPU s",
        "with the count",
        "CPUs busy %",
        "events/s",
        "count: own estimate, % of a CPU",
        "BPF_ENABLE_STATS, % of a CPU",
    ]);
    for (work, (without, with, cost)) in Work::ALL.into_iter().zip(&results) {
        let of = |digits: usize, sample: &Sample| format!("{:.digits$}", median(sample));
        let digits = if matches!(work, Work::Stream) { 3 } else { 0 };
        table.add_row([
            work.name().to_owned(),
            of(digits, &without.done),
            of(digits, &with.done),
            of(3, &without.own),
            of(3, &with.own),
            of(1, &cost.busy),
            of(0, &cost.events),
            of(2, &cost.estimate),
            of(2, &cost.by_kernel),
        ]);
    }
    Ok(table)
}

/// What the count takes from the throughput of a stream that fills both its CPUs.
fn throughput(rounds: usize) -> Result<String> {
    let field = TwoNodeTestbed::new(CONGESTION_CONTROL)?;
    let cpus: Vec<u32> = (0..2).flat_map(|node| field.testbed.cpus(node).as_slice().to_vec()).collect();
    let window = LONGEST_SLICE * (COUNTS.len() * rounds) as u32;
    let second = Duration::from_secs(1);
    let phases = Phases { warm_up: second, window, cool_down: second, interval: second };
    let load = Load::TcpStream(support::stream(Engine::Blocking, 1, SendMode::Copy, ReceiveMode::Copy));
    let mut running = field.start_netrig(&load, phases)?;
    running.wait_until(running.window().0)?;
    let mut ratios = [Sample::default(), Sample::default()];
    for round in 0..rounds {
        let mut rates = [0.0; COUNTS.len()];
        for slice in 0..COUNTS.len() {
            let number = (slice + round) % COUNTS.len();
            let counting = (0..COUNTS[number]).map(|_| {
                let mut counting = CpuTime::attach()?;
                counting.count_on(Some(&cpus))?;
                Ok(counting)
            });
            let _counting = counting.collect::<Result<Vec<_>>>()?;
            thread::sleep(SETTLE);
            let (begin, before) = (Instant::now(), field.sent_bytes()?);
            thread::sleep(SLICE);
            let (end, after) = (Instant::now(), field.sent_bytes()?);
            if after == before {
                bail!("the stream stands still");
            }
            rates[number] = (after - before) as f64 / (end - begin).as_secs_f64();
        }
        let [without, one, two] = rates;
        for (ratio, with) in ratios.iter_mut().zip([one, two]) {
            ratio.push((with / without).ln());
        }
    }
    let level = Level::new(95.0)?;
    let words = |ratio: &Sample| {
        let interval = level.mean_interval(ratio).context("too few rounds for an interval")?;
        let middle = ratio.mean().unwrap_or(f64::NAN).exp();
        anyhow::Ok(format!("{middle:.4} ({:.4} to {:.4})", interval.low.exp(), interval.high.exp()))
    };
    let [one, two] = &ratios;
    Ok(format!(
        "TCP stream, throughput with the count to without: {}; with two counts: {} (geometric means of {rounds} rounds, 95 %)",
        words(one)?,
        words(two)?,
    ))
}

/// A server of netrig's on loopback, ended with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// One at a port that the kernel chooses, and that port.
    fn start() -> Result<(Self, String)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
        command.args(["serve", "--listen", "127.0.0.1", "--port", "0"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = Self(die_with_parent(&mut command).spawn()?);
        let said = BufReader::new(server.0.stderr.take().context("a server without a voice")?);
        let mut lines = said.lines().map_while(Result::ok);
        let port =
            lines.find_map(|line| line.strip_prefix("netrig ")?.rsplit_once(':').map(|(_, port)| port.to_owned()));
        let port = port.context("netrig serve does not tell where it listens")?;
        // What it says later must not stop it.
        thread::spawn(move || lines.for_each(drop));
        Ok((server, port))
    }
}

/// `Avg. CPU %` of equal tests between two ends on this machine.
fn agreement() -> Result<Vec<f64>> {
    let (_server, port) = Server::start()?;
    let test = || -> Result<f64> {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig"))
            .args(["rr", "--udp", "--rate", &RATE.to_string(), "--client", "127.0.0.1", "--time", "3s"])
            .args(["--port", &port, "--format", "csv"])
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let row = said.lines().find_map(|line| line.strip_prefix("Results,Avg. CPU,client asks,"));
        let value = row.and_then(|row| row.split(',').next()?.parse().ok());
        value.with_context(|| format!("netrig rr: {}", String::from_utf8_lossy(&output.stderr)))
    };
    (0..RUNS).map(|_| test()).collect()
}

fn main() -> Result<()> {
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    println!("{}\n", throughput(rounds * SLICES)?);
    println!("{}", overhead(rounds)?);
    println!("Medians of {rounds} rounds, in which all take turns.\n");
    let found = agreement()?;
    let (least, most) = found.iter().fold((f64::MAX, f64::MIN), |(least, most), &x| (least.min(x), most.max(x)));
    let middle = f64::midpoint(least, most);
    let apart = (most - least) / 2.0 / middle;
    let each: Vec<String> = found.iter().map(|value| format!("{value:.2}")).collect();
    println!("netrig rr --udp --rate {RATE} --time 3s, Avg. CPU %: {}", each.join(", "));
    let verdict = if apart <= AGREE { "agree" } else { "do not agree" };
    println!("{middle:.2} +-{:.1} %: they {verdict} within +-{:.0} %", apart * 100.0, AGREE * 100.0);
    Ok(())
}
