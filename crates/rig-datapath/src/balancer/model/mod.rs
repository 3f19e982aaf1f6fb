//! The balancer's rules in plain Rust: what the program shall do with each packet, for differential tests.
//!
//! It knows nothing of buckets, records and CPUs: a connection is found by looking at all of them.

mod access;
mod choice;
mod client_address;
mod family;
mod fragment;
mod listing;
mod local_ports;
mod once;
mod packet;
mod persistence;
mod refusal;
mod shortage;
mod sources;
mod state;
mod syn_proxy;
mod unmatched;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use rig_wire::ethernet::Mac;
use rig_wire::protocol::{TCP, UDP};

use crate::test_run::Verdict;

use super::config::{
    AccessLists, ClientAddress, Config, ForwardingMethod, FragmentPolicy, Policy, PortReuse, Protocol, Service,
    SynProxy, UnhandledPolicy,
};
use super::encapsulation::Encapsulation;
use super::reason::{Drop, Pass};
use super::schedule;
use super::shape::State;
use super::syn_proxy::CookieSecret;
use packet::{FragmentPosition, Kind, Packet, ParsedPacket, Tuple};
use persistence::{SourceOfTemplate, Template};
use refusal::Refusal;
use sources::SourceId;
use state::is_closing;
use syn_proxy::Splice;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

const UNANSWERED: u32 = 23;
const CLOSING: u32 = 53;
const ICMP_PER_TICK: u32 = 64;
const IPV6_LEAST_MTU: usize = 1280;

/// The way out that the kernel's routes and neighbours say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub source: Mac,
    pub destination: Mac,
    /// Largest IP packet.
    pub mtu: usize,
}

/// What came of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketResult {
    pub verdict: Verdict,
    pub frame: Vec<u8>,
    /// Set when dropped.
    pub drop: Option<Drop>,
    /// Set when left to the kernel.
    pub pass: Option<Pass>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Inward,
    Outward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ServiceId(usize);

#[derive(Debug, Clone)]
struct ServiceState {
    service: Service,
    open: bool,
    /// Nothing is known of it any more.
    gone: bool,
    /// Indices into `backends` of this module, by schedule.
    list: Vec<usize>,
    turn: u64,
    /// When a connection may begin that is not ahead of its rate.
    pace: u64,
}

#[derive(Debug, Clone)]
struct BackendState {
    service: ServiceId,
    address: SocketAddr,
    weight: u32,
    limit: u32,
    lower: u32,
    encapsulation: Encapsulation,
    /// The limit that it has reached, if it has not fallen below the lower one since.
    reached: u32,
    /// Removed; true once it was seen without connections.
    leaving: Option<bool>,
    /// Nothing is known of it any more.
    gone: bool,
}

/// One connection; see [`connections`](Model::connections).
#[derive(Debug, Clone)]
struct Connection {
    client: SocketAddr,
    /// Where the client's packets are to: of a service of any port what says which.
    asked: SocketAddr,
    service: ServiceId,
    backend: usize,
    local: Option<SocketAddr>,
    state: State,
    /// What it was before a reset, in [`State::Close`].
    before: State,
    /// The backend has reset it, in [`State::Close`].
    refused: bool,
    seen: u32,
    client_route: Option<Route>,
    /// Where the SYN proxy has opened it.
    splice: Option<Splice>,
    /// Whether the SYN proxy counts it while nobody has answered.
    counted: bool,
    /// What it counts under, where it does.
    source: Option<SourceId>,
    /// Its backend has not shown yet that it knows the client's address.
    tells: bool,
    /// Its backend is told by an option.
    opted: bool,
    /// The client's first number, where a header of the PROXY protocol is before what it sends.
    prefixed: Option<u32>,
    /// Its backend has answered that number.
    answered: bool,
    /// It is there for one packet.
    passing: bool,
}

/// What the kernel says of the way to an address: the way, [`Drop::NoNeighbor`] or [`Drop::NoRoute`].
pub type Routes = Box<dyn Fn(IpAddr) -> Result<Route, Drop>>;

/// Where the sequence of a backend's local ports goes on.
#[derive(Debug, Clone, Copy, Default)]
struct PortSequence {
    block: u64,
    search: u64,
    /// On this CPU.
    next: u64,
}

/// The balancer's hash of a packet's protocol, source and destination, see [`BalancerHandle::hash`](super::BalancerHandle::hash).
pub type Hash = Box<dyn Fn(Protocol, SocketAddr, SocketAddr) -> u64>;

/// The balancer on one interface and one CPU.
pub struct Model {
    services: Vec<ServiceState>,
    backends: Vec<BackendState>,
    sequences: HashMap<u32, PortSequence>,
    /// Blocks of ports that are held down, by backend, local address and number, with the tick of the last packet of a connection that
    /// its backend has closed first.
    held_down: HashMap<(SocketAddr, IpAddr, u16), u32>,
    /// The tick in which local ports were last searched, and how often.
    searches: (u32, u32),
    /// When each source may begin a connection that is not ahead of its rate.
    sources: HashMap<SourceId, u64>,
    /// Which backend sources are kept at.
    templates: HashMap<SourceOfTemplate, Template>,
    /// The ports of datagrams in fragments, by addresses and identification, and when they were learned.
    fragments: HashMap<(IpAddr, IpAddr, u32), (u16, u16, u32)>,
    connections: Vec<Connection>,
    /// When the slots of ended connections were ended.
    dead: Vec<u32>,
    capacity: usize,
    policy: Policy,
    access: AccessLists,
    mtu: usize,
    /// The tick in which the last message was sent that a packet was too big, and how many.
    icmp_sent: (u32, u32),
    /// The tick in which packets were last left to the kernel, and how many, by why.
    strays: HashMap<Pass, (u32, u32)>,
    routes: Routes,
    hash: Hash,
    /// The device's, which frames are for.
    mac: Mac,
    /// This machine's.
    own: Vec<IpAddr>,
    /// Of cookies.
    secret: [u64; 2],
    epoch: u64,
    /// Addresses that have answered the SYN proxy where it does no more than ask, and until when that holds.
    admitted: HashMap<IpAddr, u32>,
    /// Resets of backends in place of an answer to a SYN.
    refused: u64,
    /// The SYN proxy has made another packet of the one at hand.
    changed: bool,
    /// The one at hand had no room for the client's address.
    left_out: bool,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Model {
    /// For `capacity` connections, on an interface of this address that takes IP packets of up to `mtu` bytes, of a machine
    /// whose addresses are `own`, and which has no sockets.
    pub fn new(capacity: usize, (mac, mtu): (Mac, usize), own: &[IpAddr], routes: Routes, hash: Hash) -> Self {
        Self {
            services: Vec::new(),
            backends: Vec::new(),
            sequences: HashMap::new(),
            held_down: HashMap::new(),
            searches: (0, 0),
            sources: HashMap::new(),
            templates: HashMap::new(),
            fragments: HashMap::new(),
            connections: Vec::new(),
            dead: Vec::new(),
            capacity,
            policy: Policy::default(),
            access: AccessLists::default(),
            mtu,
            icmp_sent: (0, 0),
            strays: HashMap::new(),
            routes,
            hash,
            mac,
            own: own.to_vec(),
            secret: [0; 2],
            epoch: 1,
            admitted: HashMap::new(),
            refused: 0,
            changed: false,
            left_out: false,
        }
    }

    /// See [`BalancerHandle::set_cookie_secret`](super::BalancerHandle::set_cookie_secret).
    pub fn set_cookies(&mut self, CookieSecret(secret): CookieSecret, epoch: u64) {
        (self.secret, self.epoch) = (secret, epoch);
    }

    /// See [`Balancer::apply`](super::Balancer::apply). The configuration is a valid one.
    pub fn apply(&mut self, config: &Config) {
        self.policy = config.policy;
        self.access = config.access.clone();
        self.reclaim();
        self.services.iter_mut().for_each(|known| known.open = false);
        for known in &mut self.backends {
            known.weight = 0;
            known.leaving = known.leaving.or(Some(false));
        }
        for service in &config.services {
            let id = self.service(service);
            let mut numbers = Vec::new();
            for backend in &service.backends {
                let number = self.backend(id, backend.address);
                let known = &mut self.backends[number];
                known.leaving = None;
                known.weight = service.scheduler.weight(backend.weight);
                known.limit = backend.limit.map_or(0, std::num::NonZero::get);
                known.lower = backend.lower_limit.map_or(0, std::num::NonZero::get);
                known.encapsulation = backend.encapsulation;
                numbers.push(number);
            }
            let list = schedule::list(service.scheduler, &service.backends);
            let known = &mut self.services[id.0];
            known.service = service.clone();
            known.open = true;
            known.list = list.into_iter().map(|at| numbers[at]).collect();
        }
    }

    /// What was removed is forgotten when it has been seen without connections twice.
    fn reclaim(&mut self) {
        for at in 0..self.backends.len() {
            let idle = self.load(at).0 == 0;
            let known = &mut self.backends[at];
            if let Some(seen) = &mut known.leaving {
                known.gone |= idle && *seen;
                *seen = idle;
            }
        }
        for (at, known) in self.services.iter_mut().enumerate() {
            known.gone |= !known.open && !self.backends.iter().any(|known| known.service.0 == at && !known.gone);
        }
    }

    fn service(&mut self, service: &Service) -> ServiceId {
        let same = |known: &ServiceState| {
            known.service.protocol == service.protocol
                && known.service.address == service.address
                && known.service.forward.number() == service.forward.number()
                && !known.gone
        };
        ServiceId(self.services.iter().position(same).unwrap_or_else(|| {
            let service = service.clone();
            self.services.push(ServiceState { service, open: true, gone: false, list: Vec::new(), turn: 0, pace: 0 });
            self.services.len() - 1
        }))
    }

    fn backend(&mut self, service: ServiceId, address: SocketAddr) -> usize {
        let same = |known: &BackendState| known.service == service && known.address == address && !known.gone;
        self.backends.iter().position(same).unwrap_or_else(|| {
            self.backends.push(BackendState::new(service, address));
            self.backends.len() - 1
        })
    }

    /// See `Balancer::sweep_all`.
    pub fn sweep(&mut self, tick: u32) {
        let short: Vec<_> = (0..self.backends.len()).map(|backend| self.short(backend)).collect();
        self.dead.retain(|ended| tick - ended < 2);
        let (services, backends) = (&self.services, &self.backends);
        let (live, expired): (Vec<_>, Vec<_>) = self.connections.drain(..).partition(|connection| {
            let backend = &backends[connection.backend];
            let service = &services[connection.service.0].service;
            if service.expire.ends(backend.leaving.is_some(), backend.weight) {
                return false;
            }
            let timeouts = service.timeouts.ticks();
            let unanswered = matches!(connection.state, State::None | State::SynReceived | State::UdpOneWay);
            let timeout = timeouts[connection.state as usize];
            let timeout = match short[connection.backend] {
                (true, _) if unanswered => timeout.min(UNANSWERED),
                (_, true) if is_closing(connection.state) => timeout.min(CLOSING),
                _ => timeout,
            };
            tick.saturating_sub(connection.seen) < timeout
        });
        self.connections = live;
        self.renew_templates(tick);
        expired.iter().for_each(|connection| self.hold_down(connection));
        self.dead.extend(expired.iter().map(|_| tick));
    }

    /// Handles one packet.
    pub fn packet(&mut self, frame: &[u8], tick: u32) -> PacketResult {
        let mut out = frame.to_vec();
        (self.changed, self.left_out) = (false, false);
        match self.handle(&mut out, tick) {
            Ok(()) => {
                let drop = self.left_out.then_some(Drop::NotTold);
                PacketResult { verdict: Verdict::Transmit, frame: out, drop, pass: None }
            }
            Err(Refusal::TooBigMessage(message)) => {
                let drop = Some(Drop::TooBigTold);
                PacketResult { verdict: Verdict::Transmit, frame: message, drop, pass: None }
            }
            Err(Refusal::SynAnswered(answer)) => {
                let drop = Some(Drop::SynAnswered);
                PacketResult { verdict: Verdict::Transmit, frame: answer, drop, pass: None }
            }
            Err(Refusal::Reset(reset)) => {
                let drop = Some(Drop::ProxyWaits);
                PacketResult { verdict: Verdict::Transmit, frame: reset, drop, pass: None }
            }
            Err(Refusal::Drop(reason)) => {
                let frame = if self.changed || reason == Drop::BeforeFirst { out } else { frame.to_vec() };
                PacketResult { verdict: Verdict::Drop, frame, drop: Some(reason), pass: None }
            }
            Err(Refusal::Pass(reason)) => {
                PacketResult { verdict: Verdict::Pass, frame: frame.to_vec(), drop: None, pass: Some(reason) }
            }
        }
    }

    fn handle(&mut self, frame: &mut Vec<u8>, tick: u32) -> Result<(), Refusal> {
        let mut packet = match packet::parse(frame, self.mac) {
            ParsedPacket::Packet(packet) => packet,
            ParsedPacket::Leave(reason) => return Err(Refusal::Pass(reason)),
            ParsedPacket::Fragment { to, datagram } => match datagram.and_then(|part| self.part_of(part, tick)) {
                Some(packet) => packet,
                None => {
                    let passes = self.policy.fragments == FragmentPolicy::Pass;
                    return Err(self.unhandled(to, passes, Drop::Fragment, Pass::Fragment));
                }
            },
            ParsedPacket::Options { to } => {
                let passes = self.policy.options == UnhandledPolicy::Pass;
                return Err(self.unhandled(to, passes, Drop::IpOptions, Pass::IpOptions));
            }
        };
        if packet.part == FragmentPosition::Later {
            return self.forward_part(&mut packet, frame, tick);
        }
        self.admit(&packet, frame, tick)?;
        let mut found = self.find(packet.tuple);
        let mut before = None;
        if let (Some((at, Direction::Inward)), Kind::Flow { tcp_flags }) = (found, packet.kind) {
            let connection = &self.connections[at];
            let gone = self.backends[connection.backend].weight == 0;
            let again = is_closing(connection.state) || connection.state == State::SynReceived;
            let direct_return = !self.services[connection.service.0].service.forward.translates();
            // A SYN with its ports opens another one (RFC 9293, 3.6.1; RFC 6191).
            let is_over = matches!(connection.state, State::TimeWait | State::Close)
                || direct_return && connection.state == State::FinWait;
            let reopens = tcp_flags & (SYN | ACK | RST | FIN) == SYN
                && (is_over || again && (gone || self.tells_otherwise(connection)));
            if reopens && self.is_proxying_here(&packet, tick) {
                if !is_over {
                    self.end(at, tick);
                }
                let refused =
                    self.service_of(&packet).and_then(|service| self.refusal_of_first(service, &packet, tick));
                return Err(refused.map_or_else(|| self.answer(&packet, frame, tick), Refusal::from));
            }
            if reopens || self.replaces(at, &packet, frame) {
                before = Some(self.end(at, tick));
                found = None;
            }
        }
        let (at, direction) = match found.or_else(|| self.entry_back(&packet, frame, tick)) {
            Some(found) => found,
            None => (self.begin(&mut packet, frame, before, tick)?, Direction::Inward),
        };
        if self.connections[at].passing {
            let forwarded = self.forward(&mut packet, frame, at, direction, tick);
            self.connections.remove(at);
            return forwarded;
        }
        if packet.ttl > 1 && found.is_some() {
            self.step(&mut packet, frame, (at, direction), tick)?;
        }
        self.forward(&mut packet, frame, at, direction, tick)
    }

    /// Ends a connection; its backend.
    fn end(&mut self, at: usize, tick: u32) -> usize {
        let ended = self.connections.remove(at);
        self.hold_down(&ended);
        self.dead.push(tick);
        ended.backend
    }

    fn inward(&self, connection: &Connection) -> Tuple {
        let service = &self.services[connection.service.0].service;
        let protocol = service.protocol.number();
        Tuple { protocol, source: connection.client, destination: connection.asked }
    }

    /// A connection's backend, with the port that it is spoken to at.
    fn backend_at(&self, connection: &Connection) -> SocketAddr {
        let mut at = self.backends[connection.backend].address;
        if at.port() == 0 {
            at.set_port(connection.asked.port());
        }
        at
    }

    fn outward(&self, connection: &Connection) -> Option<Tuple> {
        let service = &self.services[connection.service.0].service;
        let source = self.backend_at(connection);
        let destination = match service.forward {
            ForwardingMethod::FullNat { .. } => connection.local?,
            ForwardingMethod::Nat => connection.client,
            ForwardingMethod::Route | ForwardingMethod::Tunnel { .. } => return None,
        };
        Some(Tuple { protocol: service.protocol.number(), source, destination })
    }

    fn find(&self, tuple: Tuple) -> Option<(usize, Direction)> {
        self.connections.iter().enumerate().find_map(|(at, connection)| {
            if self.inward(connection) == tuple {
                Some((at, Direction::Inward))
            } else if self.outward(connection) == Some(tuple) {
                Some((at, Direction::Outward))
            } else {
                None
            }
        })
    }

    /// `before`: the backend of the connection that it takes the place of.
    fn begin(
        &mut self,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        before: Option<usize>,
        tick: u32,
    ) -> Result<usize, Refusal> {
        let to = packet.tuple.destination.ip();
        let Kind::Flow { tcp_flags } = packet.kind else {
            return Err(self.leave_unmatched(to, Pass::IcmpUnknown, tick));
        };
        let Some(service) = self.service_of(packet) else {
            return Err(self.leave_unmatched(to, Pass::NoService, tick));
        };
        let begins_by_syn = tcp_flags & (SYN | ACK) == SYN;
        let begins = match tcp_flags & (RST | SYN | ACK) {
            SYN => true,
            flags if flags & (RST | SYN) != 0 => false,
            _ => self.services[service.0].service.sloppy_tcp,
        };
        let is_syn = tcp_flags & (SYN | ACK | RST) == SYN && packet.tuple.protocol == TCP;
        let proxied = is_syn && self.is_proxying_here(packet, tick);
        let cookie = if self.takes_cookies(service) { self.cookie(packet, frame) } else { None };
        if packet.tuple.protocol == TCP && !begins && cookie.is_none() {
            return Err(match tcp_flags & (RST | SYN) == 0 {
                true if self.is_over_limit(Pass::NoConnection, tick) => Drop::Strays.into(),
                true if self.own.contains(&to) => self.pass_counted(Pass::NoConnection, tick),
                _ => Drop::NoConnection.into(),
            });
        }
        if let Some(refused) = self.refusal_of_first(service, packet, tick) {
            return Err(refused.into());
        }
        if proxied {
            return Err(self.answer(packet, frame, tick));
        }
        if self.services[service.0].service.one_packet {
            return self.schedule_packet(service, packet, frame, tick);
        }
        let client = packet.tuple.source;
        let of = |connection: &&Connection| connection.service == service;
        let limit = self.services[service.0].service.limit.map_or(usize::MAX, |limit| limit.get() as usize);
        if self.connections.iter().filter(of).count() >= limit {
            return Err(Drop::ServiceFull.into());
        }
        let keeps = self.services[service.0].service.reuse == PortReuse::Keep;
        let stays = |at: &usize| keeps && self.backends[*at].service == service && self.admits(*at);
        let named = self.named_backend(service, packet, frame);
        let persistent = self.persistent_backend(service, client.ip(), tick).filter(|_| named.is_none());
        let backend = match named.or(persistent).or_else(|| before.filter(stays)) {
            Some(kept) => kept,
            None => self.schedule(service, packet.tuple)?,
        };
        self.count_towards(backend);
        let changes_family = self.services[service.0].service.translates_family(self.backends[backend].address);
        if changes_family && packet.part != FragmentPosition::Whole {
            return Err(Drop::Fragment.into());
        }
        if self.connections.len() + self.dead.len() >= self.capacity {
            return Err(Drop::TableFull.into());
        }
        let direct_return = !self.services[service.0].service.forward.translates();
        let tcp_flags = if cookie.is_some() { SYN } else { tcp_flags };
        let state = match (packet.tuple.protocol, tcp_flags & SYN) {
            (UDP, _) if direct_return => State::UdpNormal,
            (UDP, _) => State::UdpOneWay,
            (_, 0) => State::None,
            _ => State::SynReceived,
        };
        let (local, before) = (None, state);
        let source = self.count_at_source(service, client.ip(), tick);
        let splice = cookie.map(|cookie| Self::splice(packet, frame, cookie));
        let auto = matches!(self.services[service.0].service.syn_proxy, SynProxy::Auto { .. });
        let opens = packet.tuple.protocol == TCP && (begins_by_syn || splice.is_some());
        let how = self.services[service.0].service.client_address;
        let tells = how == ClientAddress::Uoa || opens && how != ClientAddress::Off;
        let is_prefixed = tells && how == ClientAddress::ProxyV2;
        let opted = tells && !is_prefixed;
        let prefixed = is_prefixed.then(|| Self::first_number(packet, frame, splice));
        let counted = auto && splice.is_none() && state == State::SynReceived;
        let client_route = None;
        let mut connection = Connection {
            client,
            asked: packet.tuple.destination,
            service,
            backend,
            local,
            state,
            before,
            refused: false,
            seen: tick,
            client_route,
            splice,
            counted,
            source,
            tells,
            opted,
            prefixed,
            answered: false,
            passing: false,
        };
        match self.services[service.0].service.forward.clone() {
            ForwardingMethod::Route => {}
            ForwardingMethod::Tunnel { local } => {
                let at = schedule::hash_source(client, true) as usize % local.len();
                connection.local = Some(SocketAddr::new(local[at], 0));
            }
            ForwardingMethod::Nat => {
                if self.outward(&connection).and_then(|tuple| self.find(tuple)).is_some() {
                    self.dead.push(tick);
                    return Err(Drop::NatClash.into());
                }
            }
            ForwardingMethod::FullNat { .. } => {
                let (of, to) = (&self.services[service.0].service, self.backends[backend].address);
                let [own, others] = of.locals_by_family();
                let local = if of.translates_family(to) { others } else { own };
                if let Err(reason) = self.give_local_port(&mut connection, &local, tick) {
                    self.dead.push(tick);
                    return Err(reason.into());
                }
            }
        }
        // The way back is known from the first packet on.
        let mac = |at: usize| {
            let mut mac = Mac::default();
            mac.0.copy_from_slice(&frame[at..at + 6]);
            mac
        };
        connection.client_route = match (self.routes)(client.ip()) {
            Err(Drop::NoNeighbor) => Some(Route { source: mac(0), destination: mac(6), mtu: self.mtu }),
            known => known.ok(),
        };
        self.connections.push(connection);
        self.keep_template(self.connections.len() - 1, tick, true);
        if let Some(cookie) = cookie {
            self.changed = true;
            Self::make_syn(packet, frame, cookie);
        }
        Ok(self.connections.len() - 1)
    }

    /// Why a packet begins nothing, whatever else there is.
    fn refusal_of_first(&self, service: ServiceId, packet: &Packet, tick: u32) -> Option<Drop> {
        let client = packet.tuple.source.ip();
        match self.is_denied(service, client) {
            true => Some(Drop::Denied),
            false => self.refusal_by_limit(service, client, tick),
        }
    }

    fn service_of(&self, packet: &Packet) -> Option<ServiceId> {
        let Tuple { protocol, destination, .. } = packet.tuple;
        let listens = |at: SocketAddr| {
            let takes = |known: &ServiceState| {
                known.open && known.service.protocol.number() == protocol && known.service.address == at
            };
            self.services.iter().position(takes)
        };
        listens(destination).or_else(|| listens(SocketAddr::new(destination.ip(), 0))).map(ServiceId)
    }

    fn is_proxying_here(&self, packet: &Packet, tick: u32) -> bool {
        let answers = |service: ServiceId| {
            self.is_proxying(service) && !self.is_admitted(service, packet.tuple.source.ip(), tick)
        };
        self.service_of(packet).is_some_and(answers)
    }

    fn forward(
        &mut self,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        at: usize,
        direction: Direction,
        tick: u32,
    ) -> Result<(), Refusal> {
        let connection = &self.connections[at];
        let service = &self.services[connection.service.0].service;
        let BackendState { address: backend, encapsulation, .. } = self.backends[connection.backend];
        let direct_return = !service.forward.translates();
        if packet.ttl <= 1 {
            return Err(Drop::Ttl.into());
        }
        let changes_family = service.translates_family(backend);
        if changes_family && packet.part != FragmentPosition::Whole {
            return Err(Drop::Fragment.into());
        }
        let to = match direction {
            Direction::Inward => self.outward(connection).map(Tuple::reversed),
            Direction::Outward => Some(self.inward(connection).reversed()),
        };
        let keep_source = direction == Direction::Inward && service.forward == ForwardingMethod::Nat;
        let dscp = service.dscp.filter(|_| direction == Direction::Inward);
        let (tunnel, local) = (matches!(service.forward, ForwardingMethod::Tunnel { .. }), connection.local);
        let Connection { client, client_route, splice, passing, .. } = *connection;
        if let Kind::Flow { tcp_flags } = packet.kind {
            let connection = &mut self.connections[at];
            let is_refusal = connection.note(packet.tuple.protocol, tcp_flags, direction, direct_return);
            connection.seen = tick;
            self.refused += u64::from(is_refusal);
        }
        let route = match direction {
            Direction::Inward => (self.routes)(backend.ip())?,
            Direction::Outward if passing => (self.routes)(client.ip())?,
            Direction::Outward => client_route.ok_or(Drop::NoRoute)?,
        };
        let is_flow = matches!(packet.kind, Kind::Flow { .. });
        let is_datagram = packet.tuple.protocol == UDP;
        let to_tell = self.room_to_tell(at).filter(|_| is_flow && direction == Direction::Inward);
        // A datagram that has no room for it goes without.
        let told = to_tell.filter(|_| !is_datagram);
        let outer = match (tunnel, packet.is_ipv6()) {
            (false, _) if told.is_some() => told.unwrap_or(0),
            (false, _) => 0,
            (true, false) => 20 + encapsulation.header.length(),
            (true, true) => 40 + encapsulation.header.length(),
        };
        // A packet of IPv6 is 20 bytes longer.
        let (longer, shorter) = match (changes_family, direction) {
            (true, Direction::Outward) => (outer + 20, 0),
            (true, Direction::Inward) => (outer, 20),
            (false, _) => (outer, 0),
        };
        let fits = route.mtu + shorter - longer;
        if packet.length > fits {
            if packet.part == FragmentPosition::Later {
                return Err(Drop::TooBig.into());
            }
            let nat = direction == Direction::Outward && service.forward == ForwardingMethod::Nat;
            let from = if nat { service.address.ip() } else { packet.tuple.destination.ip() };
            return Err(self.too_big(packet, frame, from, fits, tick));
        }
        let has_room = to_tell.is_some_and(|bytes| packet.length + bytes <= fits);
        packet.decrement_ttl(frame);
        if let (Some(to), false) = (to, direct_return) {
            let tells_first = changes_family && packet.kind == Kind::Error;
            if tells_first {
                self.tell(at, packet, frame, direction)?;
            }
            match packet.kind {
                Kind::Flow { .. } if changes_family => packet.change_family(frame, to)?,
                Kind::Flow { .. } => packet.translate(frame, to),
                Kind::Error if changes_family => packet.change_family_of_error(frame, to)?,
                Kind::Error => packet.translate_error(frame, to, keep_source),
            }
            match (splice, packet.kind) {
                (Some(splice), Kind::Flow { .. }) => splice.shift(frame, packet, direction),
                (Some(splice), Kind::Error) if direction == Direction::Inward => splice.shift_quoted(frame, packet),
                _ => {}
            }
            if is_datagram && is_flow {
                self.tell_of_datagram(at, packet, frame, (direction, has_room));
            } else if !tells_first {
                self.tell(at, packet, frame, direction)?;
            }
            if let Some(dscp) = dscp {
                packet.set_dscp(frame, dscp);
            }
        } else {
            if let Kind::Flow { .. } = packet.kind {
                packet.complete(frame);
            }
            if let Some(dscp) = dscp {
                packet.set_dscp(frame, dscp);
            }
            if let (true, Some(local)) = (tunnel, local) {
                // Where the service has another prefix by now, addresses of this one are the connection's no more.
                let is_present = service.forward.local().first() == Some(&local.ip());
                let source_bits = if is_present { encapsulation.source_bits } else { 0 };
                let encapsulation = Encapsulation { source_bits, ..encapsulation };
                packet.encapsulate(frame, local.ip(), backend.ip(), encapsulation);
            }
        }
        packet.set_link(frame, route.source, route.destination);
        Ok(())
    }
}
