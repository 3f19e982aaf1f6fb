//! Bulk TCP throughput and CPU per gigabyte of netrig's engines beside the field's tools: one testbed, one tool after
//! the other, several rounds.
//!
//! All are measured the same way, from outside: bytes that the sender's wire interface transmitted and CPU time of both
//! nodes' CPUs over the same interval, while the tool is in full swing. Tools that are not on PATH are named and left
//! out. Run it with `cargo xtask bench stream [ROUNDS] [TOOL...]`, on a machine that
//! does nothing else.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use netrig::testbed::topology::{Endpoint, Path as Joint, Topology, WireOptions};
use netrig::testbed::{Place, Testbed, UPLINK, share_cpus};
use rig_load::driver::{Cancel, Driver, Pair, Running, Worker};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan};
use rig_stats::sample::Sample;
use rig_sys::counters::{CpuTicks, cpu_ticks};
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process::{die_with_parent, in_namespace};

const MESSAGE: u32 = 128 * 1024;
const CONGESTION_CONTROL: &str = "reno";
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_secs(2);
/// What a peer is told to run for: its start, the warm-up, the window and a reserve.
const PEER_SECONDS: &str = "6";
const PORT: u16 = 5001;
/// USER_HZ, the unit of /proc/stat, is 100 on every architecture that Linux runs netrig on.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let wanted: Vec<&String> = arguments.iter().filter(|argument| argument.parse::<usize>().is_err()).collect();
    let bench = Bench::new()?;
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
            let (gbit, seconds_per_gb) = bench.measure(tool).with_context(|| format!("measure {}", tool.name))?;
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

fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

#[derive(Default)]
struct Outcome {
    gbit: Sample,
    /// CPU seconds for each 10^9 bytes.
    cost: Sample,
}

struct Bench {
    testbed: Testbed,
    sender: Endpoint,
    receiver: Endpoint,
    cancel: Cancel,
    allowed: CpuSet,
    /// Where peers run, because some leave files.
    litter: tempfile::TempDir,
}

impl Bench {
    fn new() -> Result<Self> {
        let (sender, receiver): (Endpoint, Endpoint) = ("a".parse()?, "b".parse()?);
        let names = ["a".to_owned(), "b".to_owned()];
        let ends = [sender.clone(), receiver.clone()];
        let topology = Topology::new(&names, Some(WireOptions::default()), Joint::Raw, &ends)?;
        let allowed = CpuSet::allowed()?;
        let testbed = Testbed::build(&topology, &share_cpus(&allowed, &shared_cores(), 2)?)?;
        for node in 0..2 {
            for place in testbed.places(node) {
                // For tools that cannot choose. Only the first network namespace may make others its default.
                place.ns.sysctl("net.ipv4.tcp_congestion_control", CONGESTION_CONTROL)?;
            }
        }
        Ok(Self { testbed, sender, receiver, cancel: Cancel::new()?, allowed, litter: tempfile::tempdir()? })
    }

    /// Gbit/s on the wire and CPU seconds for each 10^9 bytes.
    fn measure(&self, tool: &Tool) -> Result<(f64, f64)> {
        match tool.how {
            How::Netrig { engine, send, receive } => {
                let mut running = self.start_netrig(engine, send, receive)?;
                running.wait_until(running.window().0)?;
                let result = self.observe()?;
                running.finish()?;
                Ok(result)
            }
            How::Peer { server, client } => {
                let _server = self.start_peer(server, &self.receiver)?;
                self.wait_for_listener()?;
                let mut client = self.start_peer(client, &self.sender)?;
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
        let busy = (end.busy_ticks - begin.busy_ticks) as f64 / TICKS_PER_SECOND;
        if bytes == 0.0 {
            bail!("nothing was sent");
        }
        Ok((bytes * 8.0 / seconds / 1e9, busy / (bytes / 1e9)))
    }

    fn read(&self) -> Result<Reading> {
        let at = Instant::now();
        let ticks = cpu_ticks()?;
        let busy = |t: &CpuTicks| t.user + t.nice + t.system + t.irq + t.softirq;
        let owned = (0..2).flat_map(|node| self.testbed.cpus(node).as_slice());
        let busy_ticks = owned.filter_map(|cpu| ticks.get(cpu)).map(busy).sum();
        let interfaces = self.place(&self.sender)?.0.counters.interfaces()?;
        let bytes = interfaces.get(UPLINK).context("the sender has no wire")?.tx_bytes;
        Ok(Reading { at, bytes, busy_ticks })
    }

    fn place(&self, endpoint: &Endpoint) -> Result<(&Place, &CpuSet)> {
        self.testbed.endpoint(endpoint).with_context(|| format!("no endpoint {endpoint}"))
    }

    fn address(&self) -> Result<Ipv4Addr> {
        self.testbed.topology().address(&self.receiver).context("the receiver has no address")
    }

    fn start_netrig(&self, engine: Engine, send_mode: SendMode, receive_mode: ReceiveMode) -> Result<Running<'_>> {
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
        let address = SocketAddr::from((self.address()?, PORT));
        let worker = |endpoint: &Endpoint, role| -> Result<Worker<'_>> {
            let (place, cpus) = self.place(endpoint)?;
            let plan = WorkerPlan {
                name: endpoint.to_string(),
                cpus: cpus.as_slice().to_vec(),
                role,
                load: Load::TcpStream(stream.clone()),
                phases,
            };
            let spawn = move || {
                let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
                command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                in_namespace(die_with_parent(&mut command), &place.ns).spawn()
            };
            Ok(Worker { plan, spawn: Box::new(spawn) })
        };
        let pair = Pair {
            listen: worker(&self.receiver, Role::Listen { address, only_from: None })?,
            connect: worker(&self.sender, Role::Connect { to: address })?,
        };
        Ok(Driver::new(&self.cancel).start(vec![pair])?)
    }

    /// Starts a program at an endpoint, on the CPUs of its node.
    fn start_peer(&self, words: &[&str], endpoint: &Endpoint) -> Result<Peer> {
        let (place, cpus) = self.place(endpoint)?;
        let address = self.address()?.to_string();
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(|word| word.replace("{}", &address)));
        command.current_dir(self.litter.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A child inherits the affinity of the thread that starts it.
        cpus.apply()?;
        let child = in_namespace(die_with_parent(&mut command), &place.ns).spawn();
        self.allowed.apply()?;
        Ok(Peer(child.with_context(|| format!("start {}", words[0]))?))
    }

    /// Waits until something listens in the receiver's namespace.
    fn wait_for_listener(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let listens = |table: &str| table.lines().any(|line| line.split_whitespace().nth(3) == Some("0A"));
        let ns = &self.place(&self.receiver)?.0.ns;
        while Instant::now() < deadline {
            let tables = ns.run(|| -> io::Result<[String; 2]> {
                let read = |name: &str| std::fs::read_to_string(Path::new("/proc/thread-self/net").join(name));
                Ok([read("tcp")?, read("tcp6").unwrap_or_default()])
            })??;
            if tables.iter().any(|table| listens(table)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("no server listens");
    }
}

struct Reading {
    at: Instant,
    bytes: u64,
    busy_ticks: u64,
}

/// A peer's process, gone when dropped.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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
