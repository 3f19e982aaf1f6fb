//! What a running balancer does: services, backends, connections, drops.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::Error;

use super::config::{Protocol, Scheduler};
use super::control::{duration, protocol};
use super::handle::BalancerHandle;
use super::reason::{Drop, Pass};
use super::registry::Identity;
use super::shape::{self, Load, State, TrafficCount, forward, socket};

/// Counters since the beginning. Bytes are those of IP packets as they arrive, without Ethernet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Connections begun.
    pub connections: u64,
    /// From clients.
    pub in_packets: u64,
    pub in_bytes: u64,
    /// From backends.
    pub out_packets: u64,
    pub out_bytes: u64,
    /// Resets from backends in place of an answer to a client's SYN.
    pub refused: u64,
}

impl From<&TrafficCount> for Traffic {
    fn from(count: &TrafficCount) -> Self {
        let &TrafficCount { connections, in_packets, in_bytes, out_packets, out_bytes, refused } = count;
        Self { connections, in_packets, in_bytes, out_packets, out_bytes, refused }
    }
}

impl TrafficCount {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.in_packets += other.in_packets;
        self.in_bytes += other.in_bytes;
        self.out_packets += other.out_packets;
        self.out_bytes += other.out_bytes;
        self.refused += other.refused;
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.connections -= other.connections;
        self.in_packets -= other.in_packets;
        self.in_bytes -= other.in_bytes;
        self.out_packets -= other.out_packets;
        self.out_bytes -= other.out_bytes;
        self.refused -= other.refused;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    pub protocol: Protocol,
    pub address: SocketAddr,
    /// See [`ForwardingMethod::name`](super::ForwardingMethod::name).
    pub forward: &'static str,
    /// As it was configured. Not known of one that was taken over from another control plane, until it is configured.
    pub scheduler: Option<Scheduler>,
    /// False for one that was removed and still has connections.
    pub open: bool,
    /// Of all its backends, those that are gone included.
    pub traffic: Traffic,
    /// Packets that would have begun a connection and did not, by the reasons for which any were: refused, or answered by the SYN proxy.
    pub refused: Vec<(Drop, u64)>,
    /// Connections that nobody has answered: counted where the SYN proxy depends on it.
    pub unanswered: u64,
    /// Connections that have begun without their source's limits, as no counter was free.
    pub unlimited: u64,
    pub backends: Vec<BackendStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendStatus {
    pub address: SocketAddr,
    /// The weight that counts: schedulers without weights know 0 and 1.
    pub weight: u32,
    pub limit: Option<NonZeroU32>,
    /// True for one that was removed and still has connections.
    pub leaving: bool,
    /// Established TCP connections, ipvsadm's ActiveConn.
    pub active: u32,
    /// All others, ipvsadm's InActConn.
    pub inactive: u32,
    /// By CPU.
    pub traffic: Vec<Traffic>,
}

/// What one CPU has done since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStatus {
    pub cpu: u32,
    /// Forwarded.
    pub traffic: Traffic,
    /// Packets.
    pub dropped: u64,
    /// Packets left to the kernel.
    pub passed: u64,
}

/// One connection as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    pub protocol: Protocol,
    pub state: State,
    pub client: SocketAddr,
    pub service: SocketAddr,
    /// Of a service of any port: it and the backend have the port that the client asked for.
    pub any_port: bool,
    /// What backends see as the client, with FullNAT.
    pub local: Option<SocketAddr>,
    pub backend: SocketAddr,
    /// Until it expires, if no packet comes.
    pub expires: Duration,
}

impl Connection {
    /// Its service as it is configured, and its backend.
    pub fn configured(&self) -> [SocketAddr; 2] {
        [self.service, self.backend].map(|at| configured(at, self.any_port))
    }
}

/// The address of a service, or of its backend, as it is configured: a connection to one of any port has the port that was asked for.
pub(super) fn configured(mut at: SocketAddr, any_port: bool) -> SocketAddr {
    if any_port {
        at.set_port(0);
    }
    at
}

/// What the numbers in connections stand for: numbers are few, connections many.
pub(super) struct Names {
    now: u32,
    pub(super) services: HashMap<u32, shape::Service>,
    pub(super) backends: HashMap<u32, shape::Backend>,
    pub(super) locals: HashMap<u32, IpAddr>,
}

impl Names {
    pub(super) fn of(handle: &BalancerHandle) -> Result<Self, Error> {
        let (now, known) = (handle.tick()?, handle.known());
        let service = |number| Ok((number, handle.tables.services.at(number)?));
        let backend = |number| Ok((number, handle.tables.backends.at(number)?));
        let services = known.services.values().map(|known| service(known.number)).collect::<Result<_, Error>>()?;
        let backends = known.backends.values().map(|known| backend(known.number)).collect::<Result<_, Error>>()?;
        let locals = known.locals.iter().map(|(address, local)| (local.number, *address)).collect();
        Ok(Self { now, services, backends, locals })
    }

    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// The local address and port of a record that has one.
    pub(super) fn local(&self, connection: &shape::Connection) -> Option<SocketAddr> {
        let address = self.locals.get(&u32::from(connection.local))?;
        Some(SocketAddr::new(*address, u16::from_be(connection.local_port)))
    }

    /// What a record says, unless it is none.
    pub(super) fn connection(&self, connection: &shape::Connection) -> Option<Connection> {
        let state = State::of_live(connection.live)?;
        let service = self.services.get(&connection.service.into())?;
        let backend = self.backends.get(&connection.backend.into())?;
        // A packet may have been later than `now`.
        let idle = self.now.wrapping_sub(connection.live as u32);
        let idle = if idle >> 31 == 1 { 0 } else { idle };
        Some(Connection {
            protocol: protocol(service.protocol),
            state,
            client: socket(connection.client, connection.client_port),
            service: socket(service.address, own_or_asked(service.port, connection)),
            any_port: service.port == 0,
            local: self.local(connection).filter(|_| service.forward == forward::FULL_NAT),
            backend: socket(backend.address, own_or_asked(backend.port, connection)),
            expires: duration(service.timeout[state as usize].saturating_sub(idle)),
        })
    }
}

/// A service's port or its backend's; where these have none, the one that the client asked for (bpf/balancer/table.h, `service_port`).
pub(super) fn own_or_asked(port: u16, connection: &shape::Connection) -> u16 {
    if port == 0 { connection.local_port } else { port }
}

fn forward_name(number: u8) -> &'static str {
    match number {
        forward::NAT => "nat",
        forward::ROUTE => "route",
        forward::TUNNEL => "tunnel",
        _ => "fullnat",
    }
}

impl BalancerHandle {
    /// Services and backends with their counters; one that was removed as long as it has connections.
    pub fn services(&self) -> Result<Vec<ServiceStatus>, Error> {
        let all = self.known();
        let mut services = Vec::new();
        for (Identity { protocol, address, forward }, known) in &all.services {
            let mut sum = TrafficCount::default();
            let past: Vec<TrafficCount> = self.tables.past.per_cpu(known.number)?;
            past.iter().for_each(|cpu| sum.add(cpu));
            let mut backends = Vec::new();
            for (address, of) in all.backends_of(known.number) {
                let backend: shape::Backend = self.tables.backends.at(of.number)?;
                let load: Load = self.tables.loads.at(of.number)?;
                let active = (load.connections >> 32) as u32;
                let counts: Vec<TrafficCount> = self.tables.traffic.per_cpu(of.number)?;
                counts.iter().for_each(|cpu| sum.add(cpu));
                backends.push(BackendStatus {
                    address: *address,
                    weight: backend.weight.into(),
                    limit: NonZeroU32::new(backend.limit),
                    leaving: of.leaving.is_some(),
                    active,
                    inactive: (load.connections as u32).saturating_sub(active),
                    traffic: counts.iter().map(Traffic::from).collect(),
                });
            }
            services.push(ServiceStatus {
                protocol: *protocol,
                address: *address,
                forward: forward_name(*forward),
                scheduler: known.scheduler,
                open: known.open,
                traffic: Traffic::from(&sum),
                refused: self.refused(known.number)?,
                unanswered: self.tables.unanswered.at(known.number)?,
                unlimited: self.counters(&self.tables.unlimited, known.number)?,
                backends,
            });
        }
        Ok(services)
    }

    fn refused(&self, service: u32) -> Result<Vec<(Drop, u64)>, Error> {
        let cpus: Vec<shape::Refusals> = self.tables.refusals.per_cpu(service)?;
        let sum = |reason: Drop| cpus.iter().filter_map(|cpu| cpu.of.get(reason.number() as usize)).sum();
        Ok(Drop::ALL.iter().map(|reason| (*reason, sum(*reason))).filter(|(_, count)| *count > 0).collect())
    }

    /// The sets of the table's records, in their order.
    pub(super) fn each_set(&self, mut with: impl FnMut(u32, shape::Set) -> ControlFlow<()>) -> Result<(), Error> {
        // Behind them are records of datagrams that are scheduled by themselves.
        let end = self.slots.end / shape::WAYS as u32;
        self.tables.connections.each(|set, records| if set < end { with(set, records) } else { ControlFlow::Break(()) })
    }

    /// Gives each connection to `with`. Those that begin or end meanwhile may be among them or not.
    pub fn connections(&self, mut with: impl FnMut(Connection)) -> Result<(), Error> {
        self.connections_while(|connection| {
            with(connection);
            ControlFlow::Continue(())
        })
    }

    /// As [`Self::connections`], until `with` breaks off.
    pub fn connections_while(&self, mut with: impl FnMut(Connection) -> ControlFlow<()>) -> Result<(), Error> {
        let names = Names::of(self)?;
        self.each_set(|_, set| set.iter().filter_map(|connection| names.connection(connection)).try_for_each(&mut with))
    }

    /// Connections that the table holds, and places that have yet to be freed by a sweep: what counts towards
    /// [`Sizes::connections`](super::Sizes::connections). Read without looking at them.
    pub fn occupancy(&self) -> Result<u64, Error> {
        let mut used = 0;
        self.tables.shards.each(|_, shard: shape::ConnectionCount| {
            used += shard.used;
            ControlFlow::Continue(())
        })?;
        Ok(used)
    }

    /// What each CPU has done.
    pub fn cpus(&self) -> Result<Vec<CpuStatus>, Error> {
        let known = self.known();
        let mut traffic: Vec<TrafficCount> = self.tables.past.per_cpu(0)?;
        let past = known.services.values().map(|service| self.tables.past.per_cpu(service.number));
        let now = known.backends.values().map(|backend| self.tables.traffic.per_cpu(backend.number));
        for counts in past.chain(now) {
            let counts: Vec<TrafficCount> = counts?;
            traffic.iter_mut().zip(&counts).for_each(|(sum, cpu)| sum.add(cpu));
        }
        let dropped = Drop::ALL.iter().map(|reason| self.tables.drops.per_cpu(reason.number()));
        let dropped = dropped.collect::<Result<Vec<Vec<u64>>, _>>()?;
        let passed = Pass::ALL.iter().map(|reason| self.tables.passes.per_cpu(reason.number()));
        let passed = passed.collect::<Result<Vec<Vec<u64>>, _>>()?;
        let sum = |counts: &[Vec<u64>], cpu: usize| counts.iter().filter_map(|count| count.get(cpu)).sum();
        let cpus = traffic.len().max(dropped.first().map_or(0, Vec::len));
        traffic.resize(cpus, TrafficCount::default());
        let each = traffic.iter().enumerate().map(|(cpu, count)| CpuStatus {
            cpu: cpu as u32,
            traffic: Traffic::from(count),
            dropped: sum(&dropped, cpu),
            passed: sum(&passed, cpu),
        });
        Ok(each.collect())
    }

    fn counters(&self, map: &crate::maps::Map, number: u32) -> Result<u64, Error> {
        Ok(map.per_cpu::<u64>(number)?.iter().sum())
    }

    /// Packets dropped, by every reason there is.
    pub fn drops(&self) -> Result<Vec<(Drop, u64)>, Error> {
        let read = |reason: &Drop| Ok((*reason, self.counters(&self.tables.drops, reason.number())?));
        Drop::ALL.iter().map(read).collect()
    }

    /// Packets left to the kernel, by every reason there is.
    pub fn passes(&self) -> Result<Vec<(Pass, u64)>, Error> {
        let read = |reason: &Pass| Ok((*reason, self.counters(&self.tables.passes, reason.number())?));
        Pass::ALL.iter().map(read).collect()
    }
}
