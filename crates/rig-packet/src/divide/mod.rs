//! One end of a load, divided over its threads: rates, connections to hold and capacities add up to the end's again, and
//! no two threads ever use the same addresses and ports.

mod error;
mod shares;

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

use rig_wire::ethernet::Mac;
use rig_wire::{tcp, udp};

use super::config::{AnyConfig, Client, Config, ConfigValue, Service};
use super::family::link::{Gateway, Link, Tunnel};
use super::family::{Family, V4, V6};
use super::numbers::Numbers;
use super::plan::{GatewayPlan, Packets, PortPlan, Range, ThreadPlan, VxlanPlan};
use super::schedule::IdleConnections;
use super::steering::{Rss, Steer, Steering};
use super::table::Table;
pub use error::DivideError;
use shares::{phase, share, share_of_rate};

/// What a plan does not say of an interface.
#[derive(Debug, Clone)]
pub struct Hardware {
    pub mac: Mac,
    pub spread: Spread,
}

/// By what rule an interface's queues share what it receives. It matters to clients with several threads, because answers must come
/// back to the thread that asked.
#[derive(Debug, Clone)]
pub enum Spread {
    /// An answer comes to the queue by which the question left: a veth interface whose peer answers by the queue on which
    /// it was asked.
    Mirrored,
    /// The queue of a server is its number modulo the number of threads: the interface has rules for it.
    ByServer,
    Rss(Rss),
    Unknown,
}

/// All threads of an end.
#[derive(Debug, Clone)]
pub struct Division {
    /// In the order of the plan: port by port.
    pub threads: Vec<ThreadAssignment>,
    /// Memory that all of them reserve. It is taken as connections come to use it.
    pub bytes: u64,
    /// What the user must know to make use of the division, and of which of the plan's ports.
    pub notes: Vec<(usize, String)>,
}

/// A thread of an end.
#[derive(Debug, Clone)]
pub struct ThreadAssignment {
    /// Which of the plan's ports it is on.
    pub port: usize,
    pub thread_plan: ThreadPlan,
    pub config: AnyConfig,
    /// Memory that it reserves.
    pub bytes: u64,
}

/// A thread's number and how many there are: of the end, and of its port.
#[derive(Debug, Clone, Copy)]
struct ThreadPosition {
    all: (usize, usize),
    port: (usize, usize),
}

/// Divides `plan`. `hardware` is that of its ports, in their order.
pub fn divide(plan: &Packets, hardware: &[Hardware]) -> Result<Division, DivideError> {
    if plan.ports.is_empty() || hardware.len() != plan.ports.len() {
        return Err(DivideError::Ports { ports: plan.ports.len(), hardware: hardware.len() });
    }
    let count = plan.ports.iter().map(|port| port.threads.len()).sum();
    let mut division = Division { threads: Vec::new(), bytes: 0, notes: Vec::new() };
    for (n, (port, hardware)) in plan.ports.iter().zip(hardware).enumerate() {
        let queues = |queue| port.threads.iter().filter(|thread_plan| thread_plan.queue == queue).count();
        if let Some(thread_plan) = port.threads.iter().find(|thread_plan| queues(thread_plan.queue) > 1) {
            return Err(DivideError::Queue { port: port.interface.clone(), queue: thread_plan.queue });
        }
        if port.threads.is_empty() {
            return Err(DivideError::Idle(port.interface.clone()));
        }
        for other in plan.ports[..n].iter().filter(|_| plan.service.client().is_some()) {
            if meets(&port.local, &other.local) && meets(&port.remote, &other.remote) {
                return Err(DivideError::Shared(other.interface.clone(), port.interface.clone()));
            }
        }
        for (at, thread_plan) in port.threads.iter().enumerate() {
            let position = ThreadPosition { all: (division.threads.len(), count), port: (at, port.threads.len()) };
            let is_v4 = port.local.first().is_none_or(|range| range.first.is_ipv4());
            let (config, bytes) = if is_v4 {
                let (config, bytes) = ThreadAssignment::config::<V4>(plan, port, hardware, thread_plan, position)?;
                (AnyConfig::V4(config), bytes)
            } else {
                let (config, bytes) = ThreadAssignment::config::<V6>(plan, port, hardware, thread_plan, position)?;
                (AnyConfig::V6(config), bytes)
            };
            division.bytes += bytes;
            division.threads.push(ThreadAssignment { port: n, thread_plan: thread_plan.clone(), config, bytes });
        }
        division.notes.extend(notes(plan, port, hardware).into_iter().map(|note| (n, note)));
    }
    // It is the same at all ports.
    division.notes.extend(plan.service.unnumbered().map(|note| (0, note)));
    Ok(division)
}

impl ThreadAssignment {
    fn config<F: Family>(
        plan: &Packets,
        port: &PortPlan,
        hardware: &Hardware,
        thread_plan: &ThreadPlan,
        position: ThreadPosition,
    ) -> Result<(Config<F>, u64), DivideError> {
        let local = ranges::<F>(port, "local", &port.local)?;
        let mut remote = ranges::<F>(port, "remote", &port.remote)?;
        if meets(&port.local, &port.remote) {
            return Err(DivideError::Itself(port.interface.clone()));
        }
        let mut service = plan.service.clone();
        set_response(&mut service, thread_plan)?;
        let mut steering = None;
        if let Some(client) = service.client_mut() {
            let (n, of) = position.all;
            client.load.rate = share_of_rate(client.load.rate, of, n);
            client.load.phase = phase(of, n);
            client.load.hold = client.load.hold.map(|hold| share(hold.into(), of, n) as u32);
            if let Some(rate) = client.repeat.as_mut().and_then(|repeat| repeat.rate.as_mut()) {
                *rate = share_of_rate(*rate, of, n);
            }
            match partition(port, hardware, client) {
                Partition::None => {}
                Partition::Ports => client.ports = share_ports(port, &client.ports, position.port)?,
                Partition::Servers => remote = share_servers::<F>(port, &remote, position.port)?,
                Partition::Rss(rss) => {
                    if !rss.table.contains(&thread_plan.queue) {
                        return Err(DivideError::Unreached { port: port.interface.clone(), queue: thread_plan.queue });
                    }
                    steering = Some(Steering { rss: rss.clone(), queue: thread_plan.queue });
                }
            }
        }
        let link = link::<F>(port, hardware, position.port)?;
        fits::<F>(port, &service)?;
        let combinations = combinations::<F>(&service, &local, &remote);
        // Of all combinations about the part of the table's entries that name the queue.
        let available = match &steering {
            Some(Steering { rss, queue }) => {
                let ours = rss.table.iter().filter(|entry| *entry == queue).count();
                combinations.saturating_mul(ours as u64) / rss.table.len() as u64
            }
            None => combinations,
        };
        let capacity = capacity(plan, &service, available, position)?;
        let mut bytes = Table::bytes(capacity) + service_bytes(&service, capacity) + ENGINE;
        if steering.is_some() {
            bytes += Steer::bytes(count(&local) + count(&remote));
        }
        if let Some(hold) = service.client().and_then(|client| client.load.hold) {
            let client = plan.service.client().and_then(|client| client.load.hold).unwrap_or(hold);
            if u64::from(hold) > available {
                return Err(DivideError::Sockets {
                    port: port.interface.clone(),
                    hold,
                    all: client,
                    threads: position.all.1,
                    available,
                    local: count(&local),
                    ports: service.client().map_or(0, |client| client.ports.len() as u64),
                    remote: count(&remote),
                    server_ports: service.client().map_or(0, |client| client.server_ports.len() as u64),
                });
            }
        }
        let config = Config { link, local, remote, capacity, service, steering };
        config.check().map_err(|error| DivideError::Thread {
            port: port.interface.clone(),
            thread: position.port.0,
            error,
        })?;
        Ok((config, bytes))
    }
}

/// What an engine takes beside its connections: the three histograms, mostly.
const ENGINE: u64 = 1 << 20;

/// How the threads of a port keep out of each other's way.
#[derive(Debug)]
enum Partition<'a> {
    None,
    /// By source ports, in ranges.
    Ports,
    /// By server addresses, in ranges.
    Servers,
    /// By source ports, as the interface's hash spreads their answers.
    Rss(&'a Rss),
}

fn partition<'a>(port: &PortPlan, hardware: &'a Hardware, client: &Client) -> Partition<'a> {
    match &hardware.spread {
        // A card may have queues that no thread of the port reads.
        Spread::Rss(rss) if client.flood.is_none() && port.vxlan.is_none() && leads_past(rss, &port.threads) => {
            Partition::Rss(rss)
        }
        _ if port.threads.len() == 1 => Partition::None,
        // No answers are expected; or the tunnel's own address chooses the thread that gets them.
        _ if client.flood.is_some() || port.vxlan.is_some() => Partition::Ports,
        Spread::Mirrored => Partition::Ports,
        Spread::ByServer | Spread::Unknown => Partition::Servers,
        Spread::Rss(rss) => Partition::Rss(rss),
    }
}

/// Whether packets come to queues that none of the threads reads.
fn leads_past(rss: &Rss, threads: &[ThreadPlan]) -> bool {
    rss.table.iter().any(|queue| threads.iter().all(|thread_plan| thread_plan.queue != *queue))
}

/// Rules that the interface must have so that answers come to the threads that asked.
fn notes(plan: &Packets, port: &PortPlan, hardware: &Hardware) -> Vec<String> {
    let Some(client) = plan.service.client() else { return Vec::new() };
    let (interface, threads) = (&port.interface, port.threads.len());
    let mirrored = matches!(hardware.spread, Spread::Mirrored | Spread::ByServer);
    if client.flood.is_some() || mirrored {
        return Vec::new();
    }
    if let Some(vxlan) = port.vxlan.as_ref().filter(|_| threads > 1) {
        let note = |(n, thread_plan): (usize, &ThreadPlan)| {
            let local = V4::after(vxlan.local, n as u32);
            let queue = thread_plan.queue;
            format!(
                "{interface}: packets to {local} must come to queue {queue}: ethtool -N {interface} flow-type udp4 \
                dst-ip {local} action {queue}"
            )
        };
        return port.threads.iter().enumerate().map(note).collect();
    }
    match partition(port, hardware, client) {
        Partition::Servers => {
            let v6 = port.remote.first().is_some_and(|range| range.first.is_ipv6());
            let protocol = if matches!(plan.service, Service::TcpClient(_)) { "tcp" } else { "udp" };
            let flow = format!("{protocol}{}", if v6 { 6 } else { 4 });
            vec![format!(
                "{interface}: how it spreads packets over its queues is not known, so its {threads} threads talk to \
                different servers, in the order of their addresses; what a server sends must come to its thread's queue: \
                ethtool -N {interface} flow-type {flow} src-ip SERVER action QUEUE"
            )]
        }
        Partition::Rss(_) => {
            let (use_them, them) = if threads == 1 {
                ("thread uses".to_owned(), "it")
            } else {
                (format!("{threads} threads use"), "them")
            };
            vec![format!("{interface}: its {use_them} the source ports whose answers its hash sends to {them}")]
        }
        Partition::None | Partition::Ports => Vec::new(),
    }
}

fn share_ports(
    port: &PortPlan,
    ports: &RangeInclusive<u16>,
    (n, of): (usize, usize),
) -> Result<RangeInclusive<u16>, DivideError> {
    let count = ports.len() as u64;
    if count < of as u64 {
        return Err(DivideError::SourcePorts { port: port.interface.clone(), threads: of, ports: count });
    }
    let before: u64 = (0..n).map(|other| share(count, of, other)).sum();
    let first = u64::from(*ports.start()) + before;
    Ok(first as u16..=(first + share(count, of, n) - 1) as u16)
}

/// The part of the servers that is a thread's.
fn share_servers<F: Family>(
    port: &PortPlan,
    servers: &[(F::Address, u32)],
    (n, of): (usize, usize),
) -> Result<Vec<(F::Address, u32)>, DivideError> {
    let all = count(servers);
    if all < of as u64 {
        return Err(DivideError::Servers { port: port.interface.clone(), threads: of, servers: all });
    }
    let mut skip: u64 = (0..n).map(|other| share(all, of, other)).sum();
    let mut take = share(all, of, n);
    let mut ours = Vec::new();
    for &(first, count) in servers {
        let skipped = skip.min(count.into());
        let taken = take.min(u64::from(count) - skipped);
        (skip, take) = (skip - skipped, take - taken);
        if taken > 0 {
            ours.push((F::after(first, skipped as u32), taken as u32));
        }
    }
    Ok(ours)
}

/// Ranges of the family, which do not overlap.
fn ranges<F: Family>(
    port: &PortPlan,
    side: &'static str,
    ranges: &[Range],
) -> Result<Vec<(F::Address, u32)>, DivideError> {
    for (n, range) in ranges.iter().enumerate() {
        if meets(&ranges[..n], std::slice::from_ref(range)) {
            return Err(DivideError::Twice { port: port.interface.clone(), side, first: range.first });
        }
    }
    let of_family = |range: &Range| {
        let address = F::of(range.first).ok_or(DivideError::Family(port.interface.clone(), range.first))?;
        Ok((address, range.count))
    };
    ranges.iter().map(of_family).collect()
}

fn count<A>(ranges: &[(A, u32)]) -> u64 {
    ranges.iter().map(|&(_, count)| u64::from(count)).sum()
}

/// Whether an address is in both.
fn meets(a: &[Range], b: &[Range]) -> bool {
    let bounds = |range: &Range| {
        let first = match range.first {
            std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
            std::net::IpAddr::V6(ip) => ip.to_bits(),
        };
        (range.first.is_ipv4(), first, first.saturating_add(range.count.into()))
    };
    a.iter().map(bounds).any(|(v4, first, end)| {
        b.iter().map(bounds).any(|(other, begin, behind)| v4 == other && first < behind && begin < end)
    })
}

fn set_response(service: &mut Service, thread_plan: &ThreadPlan) -> Result<(), DivideError> {
    let Some(response) = &thread_plan.response else { return Ok(()) };
    match service {
        Service::TcpServer(tcp) => tcp.response = response.clone(),
        Service::UdpServer(udp) => udp.response = response.clone(),
        Service::TcpClient(_) | Service::UdpClient(_) => return Err(DivideError::Response(thread_plan.queue)),
    }
    Ok(())
}

fn link<F: Family>(port: &PortPlan, hardware: &Hardware, (n, of): (usize, usize)) -> Result<Link<F>, DivideError> {
    // Once is enough, and all queues have the same address.
    let announce = n == 0;
    let Some(vxlan) = &port.vxlan else { return outer::<F>(port, hardware, announce) };
    let address = ranges::<F>(port, "local", &port.local)?.first().map_or(F::UNSPECIFIED, |&(first, _)| first);
    Ok(Link {
        mac: Mac(vxlan.inner_source),
        address,
        answer: port.answer,
        announce: false,
        vlan: None,
        gateway: Gateway::Known(Mac(vxlan.inner_destination)),
        hop_limit: port.hop_limit,
        tos: port.tos,
        verify: true,
        tunnel: Some(Box::new(tunnel(port, vxlan, hardware, announce, (n, of))?)),
    })
}

fn tunnel(
    port: &PortPlan,
    vxlan: &VxlanPlan,
    hardware: &Hardware,
    announce: bool,
    (n, of): (usize, usize),
) -> Result<Tunnel, DivideError> {
    let ends = |side, first: Ipv4Addr, count: u32, enough: bool| {
        let address = V4::after(first, if count > 1 { n as u32 } else { 0 });
        let wrong = || DivideError::Vteps { port: port.interface.clone(), side, count, threads: of };
        if enough { Ok(address) } else { Err(wrong()) }
    };
    let (locals, remotes) = (vxlan.local_count, vxlan.remote_count);
    Ok(Tunnel {
        vni: vxlan.vni,
        local: ends("local", vxlan.local, locals, locals as usize >= of)?,
        remote: ends("remote", vxlan.remote, remotes, remotes == 1 || remotes as usize >= of)?,
        link: outer::<V4>(port, hardware, announce)?,
    })
}

/// The interface's own link.
fn outer<F: Family>(port: &PortPlan, hardware: &Hardware, announce: bool) -> Result<Link<F>, DivideError> {
    let address = |address| F::of(address).ok_or(DivideError::Family(port.interface.clone(), address));
    Ok(Link {
        mac: hardware.mac,
        address: address(port.address)?,
        answer: port.answer,
        announce,
        vlan: port.vlan,
        gateway: match port.gateway {
            GatewayPlan::Mac(mac) => Gateway::Known(Mac(mac)),
            GatewayPlan::Address(gateway) => Gateway::Address(address(gateway)?),
        },
        hop_limit: port.hop_limit,
        tos: port.tos,
        verify: true,
        tunnel: None,
    })
}

/// Whether the largest packet of a service fits the port's.
fn fits<F: Family>(port: &PortPlan, service: &Service) -> Result<(), DivideError> {
    let (what, bytes, header) = match service {
        Service::TcpClient(tcp) => (ConfigValue::SegmentSize, tcp.mss.into(), tcp::HEADER),
        Service::TcpServer(tcp) => (ConfigValue::SegmentSize, tcp.mss.into(), tcp::HEADER),
        Service::UdpClient(udp) => (ConfigValue::Request, udp.request.len(), udp::HEADER),
        Service::UdpServer(udp) => (ConfigValue::Response, udp.response.len(), udp::HEADER),
    };
    let tunnel = if port.vxlan.is_some() { Tunnel::ADDED } else { 0 };
    let headers = (F::HEADER + header + tunnel) as u64;
    let max = u64::from(port.mtu).saturating_sub(headers);
    if bytes <= max {
        return Ok(());
    }
    Err(DivideError::Mtu { port: port.interface.clone(), what, bytes, max, headers, mtu: port.mtu })
}

/// Combinations of addresses and ports that there are.
fn combinations<F: Family>(service: &Service, local: &[(F::Address, u32)], remote: &[(F::Address, u32)]) -> u64 {
    const CLIENT_PORTS: u64 = 65_535;
    let ports = match service {
        Service::TcpClient(tcp) => [tcp.client.ports.len() as u64, tcp.client.server_ports.len() as u64],
        Service::UdpClient(udp) => [udp.client.ports.len() as u64, udp.client.server_ports.len() as u64],
        Service::TcpServer(tcp) => [CLIENT_PORTS, tcp.server.ports.len() as u64],
        Service::UdpServer(udp) => [CLIENT_PORTS, udp.server.ports.len() as u64],
    };
    [count(local), count(remote)].into_iter().chain(ports).fold(1, u64::saturating_mul)
}

/// Connections of servers when nothing is said of them, all threads together.
const SERVED: u64 = 1 << 20;

/// A thread's part of the connections that can be open.
fn capacity(plan: &Packets, service: &Service, available: u64, position: ThreadPosition) -> Result<u32, DivideError> {
    let (n, of) = position.all;
    let stateless = match service {
        Service::UdpServer(_) => true,
        other => other.client().is_some_and(|client| client.flood.is_some() && client.repeat.is_none()),
    };
    let wanted = match (plan.capacity, service.client()) {
        _ if stateless => 1,
        (Some(capacity), _) => share(capacity, of, n),
        (None, None) => share(SERVED, of, n).min(available),
        (None, Some(client)) => match client.load.hold {
            Some(hold) => hold.into(),
            None => (client.load.rate * life(plan, service, client).as_secs_f64()).ceil().min(available as f64) as u64,
        },
    };
    let most = Table::LARGEST;
    u32::try_from(wanted.max(1)).ok().filter(|&wanted| wanted <= most).ok_or(DivideError::Capacity {
        thread: n,
        wanted,
        most,
    })
}

/// How long a connection is there, at most.
fn life(plan: &Packets, service: &Service, client: &Client) -> Duration {
    let run = plan.course.duration + plan.course.drain;
    let repeated = client.repeat.map_or(Duration::ZERO, |repeat| match repeat.requests {
        Some(requests) if repeat.rate.is_none() => repeat.interval * requests.into(),
        _ => run,
    });
    let given_up = match service {
        // Every try waits twice as long as the one before.
        Service::TcpClient(tcp) => {
            let tries = (2u32 << tcp.times.retries.min(15)) - 1;
            tcp.times.retransmit.saturating_mul(tries) + tcp.times.time_wait
        }
        Service::UdpClient(udp) => udp.timeout,
        Service::TcpServer(_) | Service::UdpServer(_) => run,
    };
    repeated.saturating_add(given_up).min(run)
}

/// Memory for messages and for the order in which connections rest.
fn service_bytes(service: &Service, capacity: u32) -> u64 {
    let message = match service {
        Service::TcpClient(tcp) => tcp.request.len(),
        Service::TcpServer(tcp) => tcp.response.len(),
        Service::UdpClient(udp) => udp.request.len(),
        Service::UdpServer(udp) => udp.response.len(),
    };
    let rests = service.client().and_then(|client| client.repeat).is_some_and(|repeat| repeat.rate.is_some());
    let numbers = if matches!(service, Service::UdpClient(_)) { Numbers::MEMORY } else { 0 };
    message + numbers + if rests { IdleConnections::bytes(capacity) } else { 0 }
}

#[cfg(test)]
mod tests;
