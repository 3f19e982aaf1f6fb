//! The node between client and server, at work: what carries packets there, and what it says of itself.
//!
//! It stands as long as its value lives. Programs that belong to it die with the thread that made it, and everything else
//! is gone with the testbed's namespaces.

mod haproxy;
mod ipvs;
mod nftables;
mod xdp;

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_load::plan::Load;
use rig_packet::{Server, Service};
use rig_sys::cpu::CpuSet;
use rig_sys::netns::NetNs;
use rig_sys::process::{die_with_parent, in_namespace};
use rig_testbed::topology::{Path, client_link, server_link};
use rig_testbed::{Middle, Shares, Testbed};

use crate::flame::{HERTZ, Profiler, Sampled};
use crate::record::{MiddleBackend, MiddleRecord, MiddleService, NodeRecord};
use crate::run::Lack;
use crate::suite::Scenario;

/// Weight of each backend: they are alike.
const WEIGHT: u32 = 100;
/// How long connections are remembered, seconds: the study's figures, which are DPVS's.
const ESTABLISHED: u32 = 90;
const SYN_RECEIVED: u32 = 30;
const CLOSING: u32 = 7;
const DATAGRAMS: u32 = 300;

/// A node in the middle that stands.
#[derive(Debug)]
pub struct Standing {
    job: Job,
    carrier: Box<dyn Carrier>,
}

/// What carries packets from the client to the server.
trait Carrier: fmt::Debug {
    /// What it is, with its version.
    fn system(&self) -> Result<String>;

    /// Packets dropped and connections refused so far, by reason.
    fn drops(&self) -> Result<Vec<(String, u64)>>;

    /// What it knows now.
    fn state(&self) -> Result<State>;
}

/// What a carrier tells of itself.
#[derive(Debug, Clone, Default)]
struct State {
    connections: Option<u64>,
    memory_bytes: Option<u64>,
    services: Vec<MiddleService>,
}

/// What is to be carried.
#[derive(Debug, Clone)]
struct Job {
    protocol: Protocol,
    /// Addresses and ports that clients connect to.
    services: Vec<SocketAddr>,
    /// Of the servers; each listens on every port of the services.
    backends: Vec<IpAddr>,
    /// Where packets to servers may come from.
    local: Vec<IpAddr>,
    /// Interfaces to the client and to the server, one on each lane.
    client_links: Vec<String>,
    server_links: Vec<String>,
    /// CPUs that carry packets.
    workers: CpuSet,
    /// Those of them that the ends have too.
    shared: CpuSet,
    /// CPUs for everything else, where there are others.
    control: CpuSet,
    profile: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// As configuration files write it.
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What was read at the window's begin.
#[derive(Debug)]
pub struct Edge {
    drops: Vec<(String, u64)>,
    profiler: Option<Profiler>,
}

/// What was read at the window's end.
#[derive(Debug)]
pub struct Ended {
    record: MiddleRecord,
    sampled: Option<Sampled>,
}

impl Ended {
    /// To be called when the load has ended, whose CPUs it may use.
    pub fn record(self) -> MiddleRecord {
        MiddleRecord { profile: self.sampled.map(Sampled::profile), ..self.record }
    }
}

/// Why a scenario cannot be run on any machine; `None` when it can.
pub fn nowhere(scenario: &Scenario) -> Option<&'static str> {
    let is_udp = job_protocol(scenario) == Some(Protocol::Udp);
    (is_udp && scenario.topology.path() == Path::Haproxy).then_some("HAProxy carries TCP only")
}

/// Why a scenario cannot be run on this machine, however it is configured; `None` when nothing speaks against it.
pub fn not_here(scenario: &Scenario, shares: &Shares) -> Option<Lack> {
    let lack = |found: String, remedy: &str| {
        let effect = format!("scenario {} is left out", scenario.id);
        Some(Lack { found, effect, remedy: remedy.to_owned() })
    };
    let path = scenario.topology.path();
    let workers = scenario.middle.filter(|_| path.has_middle()).map_or(0, |middle| middle.workers);
    if !shares.has_cpus_for(workers) {
        return lack(
            format!("{workers} workers need a CPU each"),
            "use a machine with more CPUs, or name more with --cpus",
        );
    }
    if let Some(why) = nowhere(scenario) {
        return lack(why.to_owned(), "choose another path for UDP");
    }
    match path {
        Path::Nftables if !has_program("nft") => lack("no program nft".to_owned(), "apt-get install nftables"),
        Path::Haproxy if !has_program("haproxy") => lack("no program haproxy".to_owned(), "apt-get install haproxy"),
        Path::Ipvs => match ipvs::lack() {
            Some((found, remedy)) => lack(found.to_owned(), remedy),
            None => None,
        },
        _ => None,
    }
}

/// Why the kernel's balancer cannot be put in the middle on this machine, and the remedy.
pub fn ipvs_lack() -> Option<(&'static str, &'static str)> {
    ipvs::lack()
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Where root's programs are, which not every root has on its path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).any(|file| file.is_file())
}

fn server(scenario: &Scenario) -> Option<(Protocol, &Server)> {
    let Load::Packets(packets) = &scenario.traffic.listen else { return None };
    match &packets.service {
        Service::TcpServer(tcp) => Some((Protocol::Tcp, &tcp.server)),
        Service::UdpServer(udp) => Some((Protocol::Udp, &udp.server)),
        Service::TcpClient(_) | Service::UdpClient(_) => None,
    }
}

fn job_protocol(scenario: &Scenario) -> Option<Protocol> {
    server(scenario).map(|(protocol, _)| protocol)
}

impl Standing {
    /// Puts to work what the scenario's path has in the middle of `testbed`; `None` on paths without a middle. `control`
    /// are CPUs that no node owns, none if there are no such.
    ///
    /// # Errors
    /// Names what could not be set up.
    pub fn set_up(scenario: &Scenario, testbed: &Testbed, control: &CpuSet) -> Result<Option<Self>> {
        let topology = testbed.topology();
        let Some(node) = topology.middle() else { return Ok(None) };
        let Some(place) = testbed.places(node).next() else { return Ok(None) };
        let (Some((protocol, server)), Some(packets)) = (server(scenario), &scenario.traffic.packets) else {
            bail!("path {} carries loads of packets only: give the load kind = \"packets\"", topology.path());
        };
        let (_, to) = scenario.traffic.pairs.first().context("find the load's ends")?;
        let middle =
            scenario.middle.unwrap_or(Middle { workers: 1, service_addresses: 1, local_addresses: 1, profile: false });
        let ports = server.ports.clone();
        let virtuals = topology.virtual_pool().addresses(middle.service_addresses);
        let (workers, ends) = (testbed.cpus(node), testbed.cpus(node + 1));
        let job = Job {
            protocol,
            services: virtuals.flat_map(|ip| ports.clone().map(move |port| (ip, port).into())).collect(),
            backends: topology.addresses(to, packets.server_addresses).context("find the servers")?,
            local: topology.local_pool().addresses(middle.local_addresses).collect(),
            client_links: (0..topology.lanes()).map(client_link).collect(),
            server_links: (0..topology.lanes()).map(server_link).collect(),
            workers: workers.clone(),
            shared: workers.without(&workers.without(ends)),
            control: control.clone(),
            profile: middle.profile,
        };
        let carrier: Box<dyn Carrier> = match topology.path() {
            Path::Balancer => Box::new(xdp::Balancing::start(&job, &place.ns).context("start the balancer")?),
            Path::Nftables => Box::new(nftables::Rules::load(&job, &place.ns).context("set up nftables")?),
            Path::Haproxy => Box::new(haproxy::Proxy::start(&job, &place.ns).context("start HAProxy")?),
            Path::Ipvs => Box::new(ipvs::Services::add(&job, &place.ns).context("set up IPVS")?),
            other => bail!("path {other} has nothing in the middle"),
        };
        Ok(Some(Self { job, carrier }))
    }

    /// To be called at the window's begin. Stacks are sampled where the scenario and `samples` say so.
    pub fn begin(&self, samples: bool) -> Result<Edge> {
        let profiler = (samples && self.job.profile).then(|| Profiler::attempt(&self.job.workers, HERTZ));
        Ok(Edge { drops: self.carrier.drops()?, profiler })
    }

    /// To be called at the window's end; `node` is what the testbed's counters say of the window.
    pub fn end(&self, begin: Edge, node: &NodeRecord) -> Result<Ended> {
        let drops = self.carrier.drops()?;
        let State { connections, memory_bytes, services } = self.carrier.state()?;
        // Last, for it takes some milliseconds.
        let sampled = begin.profiler.map(Profiler::stop).transpose()?;
        let before = |reason: &str| begin.drops.iter().find(|(of, _)| of == reason).map_or(0, |(_, count)| *count);
        let drops = drops.into_iter().map(|(reason, count)| (count.saturating_sub(before(&reason)), reason));
        let wires = || node.interfaces.iter().filter(|interface| !interface.name.ends_with(":lo"));
        let mut drops: Vec<_> = drops.map(|(count, reason)| (reason, count)).collect();
        drops.extend(wires().flat_map(|wire| {
            [
                (format!("{} (received)", wire.name), wire.rx_dropped + wire.rx_errors),
                (format!("{} (sent)", wire.name), wire.tx_dropped + wire.tx_errors),
            ]
        }));
        drops.retain(|(_, count)| *count > 0);
        let record = MiddleRecord {
            workers: self.job.workers.as_slice().to_vec(),
            shared: self.job.shared.as_slice().to_vec(),
            system: self.carrier.system()?,
            in_packets: wires().map(|wire| wire.rx_packets).sum(),
            in_bytes: wires().map(|wire| wire.rx_bytes).sum(),
            out_packets: wires().map(|wire| wire.tx_packets).sum(),
            out_bytes: wires().map(|wire| wire.tx_bytes).sum(),
            connections,
            memory_bytes,
            services,
            drops,
            profile: None,
        };
        Ok(Ended { record, sampled })
    }
}

impl Job {
    /// Each backend of a service, with the service's port.
    fn backends_of(&self, service: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        self.backends.iter().map(move |backend| (*backend, service.port()).into())
    }

    fn is_ipv4(&self) -> bool {
        self.services.first().is_some_and(SocketAddr::is_ipv4)
    }

    /// A listing of all services, for carriers that do not count connections by backend.
    fn listing(&self, scheduler: &str, forward: &str) -> Vec<MiddleService> {
        let service = |service: &SocketAddr| MiddleService {
            protocol: self.protocol.name().to_uppercase(),
            address: service.to_string(),
            scheduler: scheduler.to_owned(),
            backends: self
                .backends_of(*service)
                .map(|backend| MiddleBackend {
                    address: backend.to_string(),
                    forward: forward.to_owned(),
                    weight: WEIGHT,
                    active: 0,
                    inactive: 0,
                })
                .collect(),
        };
        self.services.iter().map(service).collect()
    }
}

/// What `program` prints, inside `ns`, given `input`.
fn said_by(ns: &NetNs, program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        in_namespace(die_with_parent(&mut command), ns).spawn().with_context(|| format!("run {program}"))?;
    let mut stdin = child.stdin.take().context("speak to a child")?;
    // Whoever does not read all of it says why on standard error.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().with_context(|| format!("hear from {program}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{program} ended with {}: {}", output.status, why.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
