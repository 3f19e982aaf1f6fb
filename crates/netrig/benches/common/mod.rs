//! Two nodes joined by a wire, on which tools are measured from outside, one after the other.
#![allow(dead_code, reason = "each benchmark uses a part")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netrig::testbed::topology::{Endpoint, Path as Joint, Topology, WireOptions};
use netrig::testbed::{Place, Testbed, share_cpus};
use rig_load::driver::{Cancel, Driver, Pair, Running, Worker};
use rig_load::plan::{Load, Phases, Role, WorkerPlan};
use rig_sys::counters::{CpuTicks, cpu_ticks};
use rig_sys::cpu::{CpuSet, shared_cores};
use rig_sys::process::{die_with_parent, in_namespace};

/// For tools that cannot choose.
pub const CONGESTION_CONTROL: &str = "reno";
const PORT: u16 = 5001;
/// USER_HZ, the unit of /proc/stat, is 100 on every architecture that Linux runs netrig on.
const TICKS_PER_SECOND: f64 = 100.0;

pub struct Lab {
    testbed: Testbed,
    pub client: Endpoint,
    pub server: Endpoint,
    cancel: Cancel,
    allowed: CpuSet,
    /// Where peers run, because some leave files.
    litter: tempfile::TempDir,
}

impl Lab {
    pub fn new() -> Result<Self> {
        let (client, server): (Endpoint, Endpoint) = ("a".parse()?, "b".parse()?);
        let names = ["a".to_owned(), "b".to_owned()];
        let ends = [client.clone(), server.clone()];
        let topology = Topology::new(&names, Some(WireOptions::default()), Joint::Raw, &ends)?;
        let allowed = CpuSet::allowed()?;
        let testbed = Testbed::build(&topology, &share_cpus(&allowed, &shared_cores(), 2)?)?;
        for node in 0..2 {
            for place in testbed.places(node) {
                // Only the first network namespace may make others its default.
                place.ns.sysctl("net.ipv4.tcp_congestion_control", CONGESTION_CONTROL)?;
            }
        }
        Ok(Self { testbed, client, server, cancel: Cancel::new()?, allowed, litter: tempfile::tempdir()? })
    }

    /// CPU seconds that both nodes' CPUs have worked so far.
    pub fn busy_seconds(&self) -> Result<f64> {
        let ticks = cpu_ticks()?;
        let busy = |t: &CpuTicks| t.user + t.nice + t.system + t.irq + t.softirq;
        let owned = (0..2).flat_map(|node| self.testbed.cpus(node).as_slice());
        Ok(owned.filter_map(|cpu| ticks.get(cpu)).map(busy).sum::<u64>() as f64 / TICKS_PER_SECOND)
    }

    pub fn place(&self, endpoint: &Endpoint) -> Result<(&Place, &CpuSet)> {
        self.testbed.endpoint(endpoint).with_context(|| format!("no endpoint {endpoint}"))
    }

    fn address(&self) -> Result<IpAddr> {
        self.testbed.topology().address(&self.server).context("the server has no address")
    }

    /// Starts both of netrig's workers.
    pub fn start_netrig(&self, load: &Load, phases: Phases) -> Result<Running<'_>> {
        let address = SocketAddr::from((self.address()?, PORT));
        let worker = |endpoint: &Endpoint, role| -> Result<Worker<'_>> {
            let (place, cpus) = self.place(endpoint)?;
            let (name, cpus) = (endpoint.to_string(), cpus.as_slice().to_vec());
            let plan = WorkerPlan { name, cpus, role, load: load.clone(), phases };
            let spawn = move || {
                let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
                command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                in_namespace(die_with_parent(&mut command), &place.ns).spawn()
            };
            Ok(Worker { plan, spawn: Box::new(spawn) })
        };
        let pair = Pair {
            listen: worker(&self.server, Role::Listen { address })?,
            connect: worker(&self.client, Role::Connect { to: address })?,
        };
        Ok(Driver::new(&self.cancel).start(vec![pair])?)
    }

    /// Starts a program at an endpoint, on the CPUs of its node. `{}` in a word stands for the server's address.
    pub fn start_peer(&self, words: &[&str], endpoint: &Endpoint, output: Stdio) -> Result<Peer> {
        let (place, cpus) = self.place(endpoint)?;
        let address = self.address()?.to_string();
        let mut command = Command::new(words[0]);
        command.args(words[1..].iter().map(|word| word.replace("{}", &address)));
        command.current_dir(self.litter.path());
        command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        // A child inherits the affinity of the thread that starts it.
        cpus.apply()?;
        let child = in_namespace(die_with_parent(&mut command), &place.ns).spawn();
        self.allowed.apply()?;
        Ok(Peer(child.with_context(|| format!("start {}", words[0]))?))
    }

    /// Starts a server and waits until something listens in its namespace.
    pub fn start_server(&self, words: &[&str]) -> Result<Peer> {
        let server = self.start_peer(words, &self.server, Stdio::null())?;
        let deadline = Instant::now() + Duration::from_secs(5);
        let listens = |table: &str| table.lines().any(|line| line.split_whitespace().nth(3) == Some("0A"));
        let ns = &self.place(&self.server)?.0.ns;
        while Instant::now() < deadline {
            let tables = ns.run(|| -> io::Result<[String; 2]> {
                let read = |name: &str| std::fs::read_to_string(Path::new("/proc/thread-self/net").join(name));
                Ok([read("tcp")?, read("tcp6").unwrap_or_default()])
            })??;
            if tables.iter().any(|table| listens(table)) {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("no server listens");
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
