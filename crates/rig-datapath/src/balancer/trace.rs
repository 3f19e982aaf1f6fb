//! What would happen to a packet, found out by the program itself.

use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use ipnet::IpNet;
use libbpf_rs::Object;
use rig_sys::socket::Dscp;

use crate::Error;
use crate::maps::Map;
use crate::objects::{Objects, objects};
use crate::test_run::{self, Verdict};

use super::config::{ClientAddress, Protocol, Scheduler};
use super::control::protocol;
use super::encapsulation::{TunnelHeader, outer_source, source_port};
use super::handle::BalancerHandle;
use super::load::load_object;
use super::reason::{Drop, Pass};
use super::schedule::hash_source;
use super::shape::{self, PREFIXED, RateLimit, State, TELLS, WAYS, forward, service_flag, socket};
use super::status::{Connection, Names, own_or_asked};
use super::workers::Spreading;

static OBJECTS: Objects = objects!("trace");
const PROGRAM: &str = "trace";
/// Of an entry of the index: the packet is from the backend.
const OUTWARD: u32 = 1 << 31;
/// In place of the connection before: the new one goes to its backend.
const SAME_BACKEND: u32 = 2;
/// Maps that the traced packet has for itself.
const PRIVATE: [&str; 6] = ["hops", "traffic", "drops", "passes", "tellings", "searches"];

/// What the frame was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// TCP or UDP.
    Flow,
    /// An ICMP error; its connection is that of the packet which it quotes.
    IcmpError,
    /// Not to be handled, see [`Trace::pass`].
    Left,
    Fragment,
    /// IPv4 options, or IPv6 extension headers.
    Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the backend.
    Inward,
    Outward,
}

/// The connection that the packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedConnection {
    /// The connection as it was before the packet.
    pub connection: Connection,
    pub direction: Direction,
    /// It is over, or its backend gets no new ones, and the packet would begin another one.
    pub ends: bool,
}

/// The connection that the packet would begin, as far as that goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnection {
    pub protocol: Protocol,
    pub service: SocketAddr,
    /// Which chooses the backend. Not known before a control plane that has taken over has configured the service.
    pub scheduler: Option<Scheduler>,
    pub backend: Option<SocketAddr>,
    /// The backend is that of the connection before, and the scheduler is not asked.
    pub stays: bool,
    /// Nor is it where the source is kept at the backend, by the service's persistence.
    pub kept: bool,
    /// Nor where a connection ID of QUIC names the backend.
    pub named: bool,
    /// Where the backend's packets would come to, with FullNAT; the next one of this CPU. Another packet may take it.
    pub local: Option<SocketAddr>,
    /// Whether it would come to be. Otherwise [`Trace::drop`] says why not.
    pub complete: bool,
    /// It would be this packet's alone, and nothing is kept of it.
    pub one_packet: bool,
}

/// What would happen to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    pub kind: Kind,
    /// The CPU that it was found out on: CPUs differ in their local ports.
    pub cpu: u32,
    /// Of addresses, ports and protocol: what its worker, set and buckets are chosen by.
    pub hash: u64,
    /// The CPU to whose queue it would go; none when it is handled where it comes in.
    pub worker: Option<u32>,
    pub connection: Option<TracedConnection>,
    pub new_connection: Option<NewConnection>,
    /// The service whose answer it is, by its source alone: one that schedules each datagram by itself.
    pub answers_for: Option<SocketAddr>,
    /// The connection's state behind it.
    pub state: Option<State>,
    pub verdict: Verdict,
    /// Also for one whose sender would be told that it is too big, which transmits that.
    pub drop: Option<Drop>,
    pub pass: Option<Pass>,
    /// The prefix of a list that decides whether it may begin a connection; of no length also where it is in none of an allow list.
    pub prefix: Option<IpNet>,
    pub tunnel: Option<TracedTunnel>,
    /// What it would have for a DSCP, where its service says so.
    pub dscp: Option<Dscp>,
    /// How it would tell its backend the client's address; [`ClientAddress::Off`] where it would not.
    pub tells: ClientAddress,
    /// The interface by which it would leave, where there is a way.
    pub interface: Option<u32>,
    /// How large IP packets may be for that, in bytes; a tunnel's header is subtracted.
    pub mtu: Option<u32>,
    /// The whole frame as it would leave or stay.
    pub frame: Vec<u8>,
}

/// What a packet would be packed into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedTunnel {
    pub header: TunnelHeader,
    /// The source of the outer header; of GUE with that of UDP, otherwise with port 0.
    pub from: SocketAddr,
}

impl TracedTunnel {
    fn of(client: SocketAddr, local: IpAddr, backend: &shape::Backend) -> Self {
        let (header, flow) = (TunnelHeader::of(backend), hash_source(client, true));
        let port = if let TunnelHeader::Gue { .. } = header { source_port(flow) } else { 0 };
        Self { header, from: SocketAddr::new(outer_source(local, backend.source_bits, flow), port) }
    }
}

/// The program, and the maps in which it leaves its notes.
pub(super) struct Tracer {
    object: Object,
    notes: Map,
    drops: Map,
    passes: Map,
    tellings: Map,
}

impl Tracer {
    fn load(handle: &BalancerHandle) -> Result<Self, Error> {
        let object = load_object(OBJECTS.for_running(PROGRAM)?, &[PROGRAM], &handle.tuning, |name, map| match name {
            "hops" | "traffic" => {
                let refused = |source| Error::Map { map: "traces", operation: "size", source };
                let entries = if name == "hops" { handle.tuning.cached_mask } else { handle.sizes.backends } + 1;
                map.set_max_entries(entries).map_err(refused)
            }
            name if PRIVATE.contains(&name) => Ok(()),
            name => handle.tables.share(name, map),
        })?;
        let long = size_of::<u64>();
        Ok(Self {
            notes: Map::of(&object, "traces", size_of::<shape::Trace>())?,
            drops: Map::of(&object, "drops", long)?,
            passes: Map::of(&object, "passes", long)?,
            tellings: Map::of(&object, "tellings", size_of::<RateLimit>())?,
            object,
        })
    }

    /// The one reason that the packet was counted under, which is forgotten.
    fn reason<T: Copy>(map: &Map, all: &[T], number: impl Fn(T) -> u32) -> Result<Option<T>, Error> {
        let mut found = None;
        for reason in all {
            let counts: Vec<u64> = map.per_cpu(number(*reason))?;
            if counts.iter().any(|count| *count > 0) {
                found = Some(*reason);
                map.set_all_cpus(number(*reason), &0_u64)?;
            }
        }
        Ok(found)
    }
}

/// Bytes of a frame without the tag that it may have.
fn untagged(frame: &[u8]) -> usize {
    frame.len() - if frame.get(12..14) == Some(&[0x81, 0]) { 4 } else { 0 }
}

fn prefix(notes: &shape::Trace) -> Option<IpNet> {
    let length = u8::try_from(notes.rule.length).ok().filter(|_| notes.rule.number != 0)?;
    IpNet::new(notes.client.address.into(), length).ok().map(|prefix| prefix.trunc())
}

impl BalancerHandle {
    /// What would happen to `frame`, an Ethernet frame that comes in by `interface` (one that has a program, see
    /// [`test_run::run`]; none for the loopback interface), now and on the calling thread's CPU: the program itself runs
    /// upon the tables as they are, and changes nothing in them. How often senders have been told of late that packets
    /// are too big is not considered. To be called in the network namespace in which the balancer is attached.
    pub fn trace(&self, frame: &[u8], interface: Option<u32>) -> Result<Trace, Error> {
        let mut tracer = self.tracer.lock().unwrap_or_else(PoisonError::into_inner);
        let tracer = match &mut *tracer {
            Some(tracer) => tracer,
            none => none.insert(Tracer::load(self)?),
        };
        tracer.notes.set(&0_u32, &shape::Trace::default())?;
        tracer.tellings.set_all_cpus(0, &RateLimit::default())?;
        let outcome = test_run::run(&tracer.object, PROGRAM, frame, interface, 1)?;
        let notes: shape::Trace = tracer.notes.at(0)?;
        let drop = Tracer::reason(&tracer.drops, Drop::ALL, Drop::number)?;
        let pass = Tracer::reason(&tracer.passes, Pass::ALL, Pass::number)?;

        let names = Names::of(self)?;
        let kind = match notes.kind {
            1 => Kind::Flow,
            2 | 6 => Kind::IcmpError,
            3 => Kind::Left,
            4 => Kind::Fragment,
            _ => Kind::Options,
        };
        let connection = self.known_connection(&names, &notes)?;
        let going_on = (connection.is_some() && notes.reopening == 0) || notes.created != 0;
        let of_copy = names.services.get(&u32::from(notes.copy.service));
        let service = of_copy.filter(|_| going_on);
        let new_connection = self.new_connection(&names, &notes);
        let is_passing = new_connection.is_some_and(|new| new.one_packet);
        let answers = of_copy.filter(|_| notes.entry == 0 && notes.service == 0);
        Ok(Trace {
            kind,
            cpu: notes.cpu,
            hash: notes.hash,
            worker: self.worker(&notes),
            connection,
            new_connection,
            answers_for: answers.map(|service| socket(service.address, service.port)),
            state: State::of_live(notes.copy.live).filter(|_| going_on && !is_passing),
            verdict: outcome.verdict,
            drop,
            pass,
            prefix: prefix(&notes),
            tunnel: service
                .filter(|service| service.forward == forward::TUNNEL)
                .and_then(|_| names.local(&notes.copy).zip(names.backends.get(&notes.copy.backend.into())))
                .map(|(local, backend)| {
                    TracedTunnel::of(socket(notes.copy.client, notes.copy.client_port), local.ip(), backend)
                }),
            dscp: service
                .filter(|service| service.dscp != 0 && notes.entry & OUTWARD == 0 && drop.is_none())
                .and_then(|service| Dscp::try_from(service.dscp >> 2).ok()),
            tells: match notes.copy.counter & (TELLS | PREFIXED) {
                _ if !going_on || drop.is_some() || untagged(&outcome.frame) <= untagged(frame) => ClientAddress::Off,
                TELLS if service.is_some_and(|service| service.protocol == Protocol::Udp.number()) => {
                    ClientAddress::Uoa
                }
                TELLS => ClientAddress::Toa,
                counter if counter & PREFIXED != 0 => ClientAddress::ProxyV2,
                _ => ClientAddress::Off,
            },
            interface: (notes.ifindex != 0).then_some(notes.ifindex),
            mtu: (notes.mtu != 0).then_some(notes.mtu),
            frame: outcome.frame,
        })
    }

    fn known_connection(&self, names: &Names, notes: &shape::Trace) -> Result<Option<TracedConnection>, Error> {
        if notes.entry == 0 {
            return Ok(None);
        }
        // The copy may have become another connection.
        let slot = (notes.entry & !OUTWARD) as usize;
        let set: shape::Set = self.tables.connections.at((slot / WAYS) as u32)?;
        let record = shape::Connection { live: notes.live, ..set[slot % WAYS] };
        Ok(names.connection(&record).map(|connection| TracedConnection {
            connection,
            direction: if notes.entry & OUTWARD == 0 { Direction::Inward } else { Direction::Outward },
            ends: notes.reopening != 0,
        }))
    }

    fn new_connection(&self, names: &Names, notes: &shape::Trace) -> Option<NewConnection> {
        let service = names.services.get(&notes.service).filter(|_| notes.service != 0)?;
        let known = self.known();
        let scheduler = known.services.values().find(|known| known.number == notes.service)?.scheduler;
        let backend = names.backends.get(&notes.backend).filter(|_| notes.backend != 0);
        let has_local = notes.created != 0 && service.forward == forward::FULL_NAT;
        Some(NewConnection {
            protocol: protocol(service.protocol),
            service: socket(service.address, service.port),
            scheduler,
            backend: backend.map(|backend| socket(backend.address, own_or_asked(backend.port, &notes.copy))),
            stays: notes.reopening == SAME_BACKEND,
            kept: notes.kept != 0,
            named: notes.named != 0,
            local: names.local(&notes.copy).filter(|_| has_local),
            complete: notes.created != 0,
            one_packet: service.flags & service_flag::ONE_PACKET != 0,
        })
    }

    /// As `spread` chooses it (bpf/balancer/spread.bpf.c).
    fn worker(&self, notes: &shape::Trace) -> Option<u32> {
        let Spreading::Queues { workers, receiver, .. } = &self.known().spreading else { return None };
        let worker = workers.get((((notes.hash & 0xffff_ffff) * workers.len() as u64) >> 32) as usize)?;
        (notes.owned != 0 && Some(*worker) != *receiver).then_some(*worker)
    }
}
