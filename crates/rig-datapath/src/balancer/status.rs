//! What a running balancer does: services, backends, connections, drops.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::Error;

use super::config::Protocol;
use super::control::{Balancer, duration, protocol};
use super::known::Identity;
use super::reason::{Drop, Pass};
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
}

impl From<&TrafficCount> for Traffic {
    fn from(count: &TrafficCount) -> Self {
        let &TrafficCount { connections, in_packets, in_bytes, out_packets, out_bytes } = count;
        Self { connections, in_packets, in_bytes, out_packets, out_bytes }
    }
}

impl TrafficCount {
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.in_packets += other.in_packets;
        self.in_bytes += other.in_bytes;
        self.out_packets += other.out_packets;
        self.out_bytes += other.out_bytes;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    pub protocol: Protocol,
    pub address: SocketAddr,
    /// See [`Forward::name`](super::Forward::name).
    pub forward: &'static str,
    /// False for one that was removed and still has connections.
    pub open: bool,
    /// Of all its backends, those that are gone included.
    pub traffic: Traffic,
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

/// One connection as a listing shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    pub protocol: Protocol,
    pub state: State,
    pub client: SocketAddr,
    pub service: SocketAddr,
    /// What backends see as the client, with FullNAT.
    pub local: Option<SocketAddr>,
    pub backend: SocketAddr,
    /// Until it expires, if no packet comes.
    pub expires: Duration,
}

fn forward_name(number: u8) -> &'static str {
    match number {
        forward::NAT => "nat",
        forward::ROUTE => "route",
        forward::TUNNEL => "tunnel",
        _ => "fullnat",
    }
}

impl Balancer {
    /// Services and backends with their counters; one that was removed as long as it has connections.
    pub fn services(&self) -> Result<Vec<ServiceStatus>, Error> {
        let mut services = Vec::new();
        for (Identity { protocol, address, forward }, known) in &self.known.services {
            let mut sum = known.past;
            let mut backends = Vec::new();
            for ((_, address), of) in self.known.backends.iter().filter(|((service, _), _)| *service == known.number) {
                let backend: shape::Backend = self.tables.backends.at(of.number)?;
                let load: Load = self.tables.loads.at(of.number)?;
                let active = (load.connections >> 32) as u32;
                let counts: Vec<TrafficCount> = self.tables.traffic.per_cpu(of.number)?;
                counts.iter().for_each(|cpu| sum.add(cpu));
                backends.push(BackendStatus {
                    address: *address,
                    weight: backend.weight,
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
                open: known.open,
                traffic: Traffic::from(&sum),
                backends,
            });
        }
        Ok(services)
    }

    /// Gives each connection to `with`. Those that begin or end meanwhile may be among them or not.
    pub fn connections(&self, mut with: impl FnMut(Connection)) -> Result<(), Error> {
        let now = self.tick()?;
        // Numbers are few, connections many.
        let mut services = std::collections::HashMap::new();
        let mut backends = std::collections::HashMap::new();
        for known in self.known.services.values() {
            services.insert(known.number, self.tables.services.at::<shape::Service>(known.number)?);
        }
        for known in self.known.backends.values() {
            backends.insert(known.number, self.tables.backends.at::<shape::Backend>(known.number)?);
        }
        let locals: std::collections::HashMap<_, _> =
            self.known.locals.iter().map(|(address, number)| (*number, *address)).collect();
        let mut one = |connection: &shape::Connection| {
            let Some(state) = State::of_live(connection.live) else { return };
            let service = services.get(&u32::from(connection.service));
            let (Some(service), Some(backend)) = (service, backends.get(&u32::from(connection.backend))) else {
                return;
            };
            // A packet may have been later than `now`.
            let idle = now.wrapping_sub(connection.live as u32);
            let idle = if idle >> 31 == 1 { 0 } else { idle };
            let local = (service.forward == forward::FULL_NAT)
                .then(|| locals.get(&u32::from(connection.local)))
                .flatten()
                .map(|address| SocketAddr::new(*address, u16::from_be(connection.local_port)));
            with(Connection {
                protocol: protocol(service.protocol),
                state,
                client: socket(connection.client, connection.client_port),
                service: socket(service.address, service.port),
                local,
                backend: socket(backend.address, backend.port),
                expires: duration(service.timeout[state as usize].saturating_sub(idle)),
            });
        };
        self.tables.connections.each(|_, set: shape::Set| set.iter().for_each(&mut one))
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
