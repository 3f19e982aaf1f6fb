//! What the benches of loads have in common: a testbed of two nodes, netrig's workers and other tools at its ends, and
//! the CPU time that both nodes spend.
#![allow(dead_code, reason = "each bench uses a part")]

pub mod rounds;

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use rig_load::driver::{Cancel, Driver, RunningLoad, Worker, WorkerPair};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan};
use rig_stats::sample::Sample;
use rig_sys::counters::{CpuTicks, cpu_ticks};
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process::{die_with_parent, in_namespace};
use rig_testbed::topology::{Endpoint, Topology, WireOptions};
use rig_testbed::{Namespace, Testbed, UPLINK, partition_cpus};

/// Of bulk streams.
const MESSAGE: u32 = 128 * 1024;
pub const CONGESTION_CONTROL: &str = "reno";
const PORT: u16 = 5001;
/// USER_HZ, the unit of /proc/stat, is 100 on every architecture that Linux runs netrig on.
const TICKS_PER_SECOND: f64 = 100.0;
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Two nodes with a wire between them, each with its share of the CPUs.
pub struct TwoNodeTestbed {
    pub testbed: Testbed<'static>,
    pub sender: Endpoint,
    pub receiver: Endpoint,
    cancel: Cancel,
    allowed: CpuSet,
    /// Where peers run, because some leave files.
    litter: tempfile::TempDir,
}

impl TwoNodeTestbed {
    pub fn new(congestion_control: &str) -> Result<Self> {
        let (sender, receiver): (Endpoint, Endpoint) = ("a".parse()?, "b".parse()?);
        let names = ["a".to_owned(), "b".to_owned()];
        let ends = [sender.clone(), receiver.clone()];
        let topology = Topology::new(&names, Some(WireOptions::default()), "raw".parse()?, &ends)?;
        let allowed = CpuSet::allowed()?;
        let testbed = Testbed::build(&topology, &partition_cpus(&allowed, &shared_cores(), 2)?)?;
        for node in 0..2 {
            for namespace in testbed.namespaces(node) {
                // For tools that cannot choose. Only the first network namespace may make others its default.
                namespace.ns.sysctl("net.ipv4.tcp_congestion_control", congestion_control)?;
            }
        }
        Ok(Self { testbed, sender, receiver, cancel: Cancel::new()?, allowed, litter: tempfile::tempdir()? })
    }

    pub fn place(&self, endpoint: &Endpoint) -> Result<(&Namespace, &CpuSet)> {
        self.testbed.endpoint(endpoint).with_context(|| format!("no endpoint {endpoint}"))
    }

    fn address(&self) -> Result<IpAddr> {
        self.testbed.topology().address(&self.receiver).context("the receiver has no address")
    }

    /// CPU seconds that both nodes have spent since the machine started.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let ticks = cpu_ticks()?;
        let busy = |t: &CpuTicks| t.user + t.nice + t.system + t.irq + t.softirq;
        let owned = (0..2).flat_map(|node| self.testbed.cpus(node).as_slice());
        Ok(owned.filter_map(|cpu| ticks.get(cpu)).map(busy).sum::<u64>() as f64 / TICKS_PER_SECOND)
    }

    /// Bytes that the sender's wire interface has transmitted.
    pub fn sent_bytes(&self) -> Result<u64> {
        let interfaces = self.place(&self.sender)?.0.counters.interfaces()?;
        Ok(interfaces.get(UPLINK).context("the sender has no wire")?.tx_bytes)
    }

    /// Starts netrig's own load from the sender to the receiver.
    pub fn start_netrig(&self, load: &Load, phases: Phases) -> Result<RunningLoad<'_>> {
        let address = SocketAddr::from((self.address()?, PORT));
        let worker = |endpoint: &Endpoint, role| -> Result<Worker<'_>> {
            let (place, cpus) = self.place(endpoint)?;
            let (name, cpus) = (endpoint.to_string(), cpus.as_slice().to_vec());
            let plan = WorkerPlan { name, cpus, role, load: load.clone(), phases, ceiling: None, peer_clock_ns: 0 };
            let spawn = move || {
                let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
                command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                in_namespace(die_with_parent(&mut command), &place.ns).spawn()
            };
            Ok(Worker::here(plan, spawn))
        };
        let pair = WorkerPair {
            listen: worker(&self.receiver, Role::Listen { address, only_from: None })?,
            connect: worker(&self.sender, Role::connect(address))?,
        };
        Ok(Driver::new(&self.cancel).start(vec![pair])?)
    }

    /// Starts a program at an endpoint, on the CPUs of its node. `{}` in a word stands for the receiver's address.
    pub fn start_peer(&self, words: &[&str], endpoint: &Endpoint, stdout: Stdio) -> Result<Peer> {
        let (place, cpus) = self.place(endpoint)?;
        let address = self.address()?.to_string();
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(|word| word.replace("{}", &address)));
        command.current_dir(self.litter.path()).env("NETRIG_STORE", self.litter.path().join("runs.sqlite"));
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
        // A child inherits the affinity of the thread that starts it.
        cpus.apply()?;
        let child = in_namespace(die_with_parent(&mut command), &place.ns).spawn();
        self.allowed.apply()?;
        Ok(Peer(child.with_context(|| format!("start {}", words[0]))?))
    }

    /// Starts a server at the receiver and waits until something listens there.
    pub fn start_server(&self, words: &[&str]) -> Result<Peer> {
        let server = self.start_peer(words, &self.receiver, Stdio::null())?;
        self.wait_for_listener()?;
        Ok(server)
    }

    /// Waits until something listens for TCP connections in the receiver's namespace.
    pub fn wait_for_listener(&self) -> Result<()> {
        let deadline = Instant::now() + LISTEN_TIMEOUT;
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

/// A bulk stream of one thread.
pub fn stream(engine: Engine, connections: u32, send_mode: SendMode, receive_mode: ReceiveMode) -> TcpStream {
    TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections,
        message: MESSAGE,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: Some(CONGESTION_CONTROL.into()),
        engine,
        send_mode,
        receive_mode,
        options: Default::default(),
    }
}

/// A peer's process, gone when dropped.
pub struct Peer(pub Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn on_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// What the command line asks for: the number of rounds, and parts of the names of tools.
pub fn arguments(rounds: usize) -> (usize, Vec<String>) {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(rounds);
    (rounds, arguments.into_iter().filter(|argument| argument.parse::<usize>().is_err()).collect())
}

pub fn progress(round: usize, rounds: usize, name: &str) {
    if io::stderr().is_terminal() {
        eprint!("\rround {round} of {rounds}: {name:<48}");
    }
}

/// A tool's figures of all rounds.
#[derive(Default)]
pub struct ToolFigures {
    pub gbit: Sample,
    /// CPU seconds for each 10^9 bytes.
    pub cost: Sample,
}

/// A cell without the figures that there are none of.
pub fn or_dash(cell: String) -> String {
    if cell.contains("NaN") { "-".into() } else { cell }
}

pub fn median(sample: &Sample) -> f64 {
    sample.median().unwrap_or(f64::NAN)
}

/// Tools with their figures, and how those of the first compare.
pub fn table(tools: &[(&str, &ToolFigures)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "tool",
        "Gbit/s (min .. max)",
        "CPU s/GB",
        "netrig's throughput to its",
        "netrig's CPU to its",
    ]);
    for (name, outcome) in tools {
        let ratio = |of: fn(&ToolFigures) -> &Sample| median(of(tools[0].1)) / median(of(outcome));
        let (least, most) = (outcome.gbit.min().unwrap_or(f64::NAN), outcome.gbit.max().unwrap_or(f64::NAN));
        let cells = [
            format!("{:.2} ({least:.2} .. {most:.2})", median(&outcome.gbit)),
            format!("{:.3}", median(&outcome.cost)),
            format!("{:.2}", ratio(|o| &o.gbit)),
            format!("{:.2}", ratio(|o| &o.cost)),
        ];
        table.add_row(std::iter::once((*name).to_owned()).chain(cells.map(or_dash)));
    }
    for column in 1..5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
