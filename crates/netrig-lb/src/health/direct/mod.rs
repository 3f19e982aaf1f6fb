//! Checks of a service's own address at each of its backends, for direct routing and tunnels: packets leave as the datapath sends clients'
//! to the backend, and what answers is what answers clients.
//!
//! The kernel cannot send them: to it the service's address is one of this machine, or leads elsewhere, and it drops what comes from there.
//! So packets are made here, sent to the backend's next hop (packet(7)) or in IP to the backend (raw(7)), and answers are heard before
//! the kernel judges them. No rule, route, mark or device is needed. docs/decisions/health-checks.md has the reasons.

mod packet;
mod tcp;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rig_stats::units::Span;
use rig_sys::netlink::{Netlink, NextHop};
use rig_sys::packet_socket::PacketTap;
use rig_wire::protocol;
use socket2::{Domain, Protocol, Socket, Type};

use self::packet::{Arrived, Flow};
use self::tcp::{Step, TcpClient};
use super::check::Probe;
use super::probe::{DatagramJudge, StreamJudge, TlsTrust, Verdict, no_answer};
use crate::message::Tunnel;

/// The way of clients' packets from here to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardingPath {
    /// By its link-layer address, or that of the router before it.
    NextHop { backend: IpAddr },
    /// In IP from a local address.
    Tunnel { local: IpAddr, backend: IpAddr, tunnel: Tunnel },
}

impl ForwardingPath {
    fn backend(self) -> IpAddr {
        match self {
            Self::NextHop { backend } | Self::Tunnel { backend, .. } => backend,
        }
    }
}

/// What all such checks share: a tap and a raw socket for each family.
#[derive(Debug)]
pub struct DirectPort {
    netlink: Netlink,
    taps: [PacketTap; 2],
    raw: [Socket; 2],
    /// From whom answers are heard: the services' addresses.
    heard: Vec<IpAddr>,
    /// Whose answers are awaited.
    flows: HashMap<Flow, u64>,
    echoes: HashMap<u64, (IpAddr, u64)>,
    /// Answers that had no room, by family.
    lost: [u64; 2],
    /// Why answers are not heard.
    deaf: Option<String>,
    /// Of the longest packet, merged ones included.
    room: Vec<u8>,
}

/// A probe under way.
#[derive(Debug)]
pub struct DirectProbe {
    hop: Hop,
    of: Answer,
    what: Client,
    /// What is to be sent once the next hop is known.
    waiting: Vec<Vec<u8>>,
    ipv6: bool,
    /// Packets of its family that had been lost here when it began.
    lost_before: u64,
}

/// Where its packets leave.
#[derive(Debug)]
enum Hop {
    /// Its link-layer address is asked for.
    Unresolved(NextHop),
    Neighbor {
        interface: u32,
        address: Vec<u8>,
    },
    Tunnel {
        local: IpAddr,
        backend: IpAddr,
        tunnel: Tunnel,
    },
}

/// How its answers are known.
#[derive(Debug)]
enum Answer {
    /// The socket has the port until the end, so that nobody else is given it.
    Flow(Flow, #[expect(dead_code, reason = "held, not used")] Socket),
    Echo(u64),
}

#[derive(Debug)]
enum Client {
    Tcp(Box<TcpClient>),
    Datagram(DatagramJudge),
    Echo,
}

impl DirectProbe {
    pub fn late(&self, timeout: Duration) -> String {
        match (&self.hop, &self.what) {
            (Hop::Unresolved(hop), _) => format!("the next hop {} does not answer", hop.address),
            (_, Client::Tcp(client)) if client.is_connected() => format!("{} within {}", client.late(), Span(timeout)),
            _ => no_answer(timeout),
        }
    }

    pub fn judge(&self) -> Option<&StreamJudge> {
        match &self.what {
            Client::Tcp(client) => Some(client.judge()),
            Client::Datagram(_) | Client::Echo => None,
        }
    }

    pub fn is_unresolved(&self) -> bool {
        matches!(self.hop, Hop::Unresolved(_))
    }
}

/// Without a route clients' packets do not get there either; all else is this machine's.
fn no_way(error: io::Error, backend: IpAddr) -> LaunchError {
    match error.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            LaunchError::Peer(format!("no route to {backend}"))
        }
        _ => LaunchError::Here(error),
    }
}

/// What the peer or the way to it is to blame for, told from what this machine is.
pub enum LaunchError {
    Peer(String),
    Here(io::Error),
}

impl From<io::Error> for LaunchError {
    fn from(error: io::Error) -> Self {
        Self::Here(error)
    }
}

fn here(error: rig_sys::Error) -> LaunchError {
    LaunchError::Here(io::Error::other(error))
}

impl DirectPort {
    pub fn open() -> io::Result<Self> {
        let tap = |ipv6| {
            PacketTap::open(ipv6).map_err(|error| {
                let denied = std::error::Error::source(&error)
                    .and_then(|source| source.downcast_ref::<io::Error>())
                    .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
                if denied { io::ErrorKind::PermissionDenied.into() } else { io::Error::other(error) }
            })
        };
        // The header comes with the packet: IPPROTO_RAW.
        let raw = |domain| Socket::new(domain, Type::RAW.nonblocking(), Some(Protocol::from(libc::IPPROTO_RAW)));
        Ok(Self {
            netlink: Netlink::here().map_err(io::Error::other)?,
            taps: [tap(false)?, tap(true)?],
            raw: [raw(Domain::IPV4)?, raw(Domain::IPV6)?],
            heard: Vec::new(),
            flows: HashMap::new(),
            echoes: HashMap::new(),
            lost: [0; 2],
            deaf: None,
            room: vec![0; 1 << 17],
        })
    }

    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.taps[0].socket(), self.taps[1].socket()]
    }

    /// Hears what comes from these services' addresses. Where it cannot, it goes on with those of before, and no probe of others is begun,
    /// which would only seem to fail.
    pub fn hear(&mut self, services: &[IpAddr]) {
        self.deaf = None;
        for (tap, ipv6) in self.taps.iter().zip([false, true]) {
            match tap.hear(services) {
                Ok(()) => {
                    self.heard.retain(|address| address.is_ipv6() != ipv6);
                    self.heard.extend(services.iter().filter(|address| address.is_ipv6() == ipv6));
                }
                Err(error) => self.deaf = Some(format!("answers cannot be heard: {error}")),
            }
        }
    }

    /// Packets of a family that had no room here.
    fn lost(&mut self, ipv6: bool) -> u64 {
        let n = usize::from(ipv6);
        self.lost[n] += self.taps[n].dropped().map_or(0, u64::from);
        self.lost[n]
    }

    /// Why a probe without an answer says nothing of the backend, where that is so: the answer may have been among what was lost here.
    pub fn may_have_missed(&mut self, probe: &DirectProbe) -> Option<String> {
        let lost = self.lost(probe.ipv6) - probe.lost_before;
        let is_asked = !probe.is_unresolved();
        (lost > 0 && is_asked)
            .then(|| format!("{lost} packets from services' addresses had no room and were lost here meanwhile"))
    }

    /// Begins a probe of the service's address `to` at a backend.
    pub fn start(
        &mut self,
        probe: &Probe,
        (to, path): (SocketAddr, ForwardingPath),
        source: Option<IpAddr>,
        (random, flight): (u64, u64),
        trust: &mut TlsTrust,
    ) -> Result<DirectProbe, LaunchError> {
        if !self.heard.contains(&to.ip()) {
            let why = self.deaf.clone().unwrap_or_else(|| "answers are not heard yet".to_owned());
            return Err(LaunchError::Here(io::Error::other(why)));
        }
        let hop = self.hop(path)?;
        let own = match source {
            Some(source) => source,
            None => source_towards(path.backend())?,
        };
        if self.heard.contains(&own) {
            // The backend has that address, too, and would answer to itself.
            let why = format!("{own}, from which it would be sent, is a service's own address: choose a 'source'");
            return Err(LaunchError::Here(io::Error::other(why)));
        }
        let ipv6 = to.is_ipv6();
        let lost_before = self.lost(ipv6);
        let probe_by = |of, what| DirectProbe { hop, of, what, waiting: Vec::new(), ipv6, lost_before };
        if let Some((request, judge)) = StreamJudge::of(probe, to, trust)? {
            let (flow, socket) = self.flow(own, to, protocol::TCP)?;
            let client = TcpClient::new(flow, random as u32, request, judge);
            let packets = client.resend();
            let probe = probe_by(Answer::Flow(flow, socket), Client::Tcp(Box::new(client)));
            return self.launch(probe, packets, flight);
        }
        if let Some((message, judge)) = DatagramJudge::of(probe, random) {
            let (flow, socket) = self.flow(own, to, protocol::UDP)?;
            let packets = vec![packet::datagram(&flow, &message)];
            let probe = probe_by(Answer::Flow(flow, socket), Client::Datagram(judge));
            return self.launch(probe, packets, flight);
        }
        let packets = vec![packet::echo(own, to.ip(), random)];
        let launched = self.launch(probe_by(Answer::Echo(random), Client::Echo), packets, flight)?;
        self.echoes.insert(random, (to.ip(), flight));
        Ok(launched)
    }

    fn launch(
        &mut self,
        mut probe: DirectProbe,
        packets: Vec<Vec<u8>>,
        flight: u64,
    ) -> Result<DirectProbe, LaunchError> {
        if probe.is_unresolved() {
            probe.waiting = packets;
        } else {
            packets.iter().try_for_each(|packet| self.send(&probe.hop, packet))?;
        }
        if let Answer::Flow(flow, _) = &probe.of {
            self.flows.insert(*flow, flight);
        }
        Ok(probe)
    }

    /// Looks again for the next hop of a probe that waits for it, and sends what waits once it is known.
    pub fn resolve(&self, probe: &mut DirectProbe) -> Result<(), LaunchError> {
        let Hop::Unresolved(hop) = probe.hop else { return Ok(()) };
        let Some(address) = self.netlink.use_neighbor(hop).map_err(here)? else { return Ok(()) };
        probe.hop = Hop::Neighbor { interface: hop.interface, address };
        let waiting = std::mem::take(&mut probe.waiting);
        Ok(waiting.iter().try_for_each(|packet| self.send(&probe.hop, packet))?)
    }

    /// The backend's neighbour, as the datapath has it. It is asked for here, too: nobody else does for a backend that was removed.
    fn hop(&self, path: ForwardingPath) -> Result<Hop, LaunchError> {
        let backend = match path {
            ForwardingPath::Tunnel { local, backend, tunnel } => return Ok(Hop::Tunnel { local, backend, tunnel }),
            ForwardingPath::NextHop { backend } => backend,
        };
        let hops = self.netlink.next_hops(backend).map_err(|error| no_way(error.source, backend))?;
        let Some(hop) = hops.first() else {
            return Err(LaunchError::Peer("the backend has an address of this machine".to_owned()));
        };
        Ok(match self.netlink.use_neighbor(*hop).map_err(here)? {
            Some(address) => Hop::Neighbor { interface: hop.interface, address },
            None => Hop::Unresolved(*hop),
        })
    }

    /// A flow from a port that nobody else has.
    fn flow(&self, own: IpAddr, peer: SocketAddr, protocol: u8) -> io::Result<(Flow, Socket)> {
        let kind = if protocol == protocol::TCP { Type::STREAM } else { Type::DGRAM };
        let socket = Socket::new(Domain::for_address(peer), kind, None)?;
        socket.bind(&SocketAddr::new(own, 0).into())?;
        let own = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        // Without an interface's number, which packets do not have.
        let own = SocketAddr::new(own.ip(), own.port());
        Ok((Flow { own, peer: SocketAddr::new(peer.ip(), peer.port()), protocol }, socket))
    }

    fn send(&self, hop: &Hop, packet: &[u8]) -> io::Result<()> {
        let ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        match hop {
            Hop::Unresolved(_) => Ok(()),
            Hop::Neighbor { interface, address } => self.taps[usize::from(ipv6)].send(*interface, address, packet),
            Hop::Tunnel { local, backend, tunnel } => {
                let outer = packet::wrapped(*local, *backend, *tunnel, packet);
                let to = SocketAddr::new(*backend, 0);
                self.raw[usize::from(backend.is_ipv6())].send_to(&outer, &to.into()).map(drop)
            }
        }
    }

    /// Sends again what was not answered; false where there is nothing any more.
    pub fn resend(&self, probe: &DirectProbe) -> bool {
        let Client::Tcp(client) = &probe.what else { return false };
        let packets = client.resend();
        // One that is not sent is sent again later, too.
        packets.iter().for_each(|packet| drop(self.send(&probe.hop, packet)));
        client.may_resend()
    }

    /// A probe ends: nobody waits for its answer any more.
    pub fn end(&mut self, probe: &DirectProbe) {
        match &probe.of {
            Answer::Flow(flow, _) => drop(self.flows.remove(flow)),
            Answer::Echo(nonce) => drop(self.echoes.remove(nonce)),
        }
        if let Client::Tcp(client) = &probe.what
            && let Some(reset) = client.reset_if_open()
        {
            let _lost = self.send(&probe.hop, &reset);
        }
    }

    /// What has come for probes, by the numbers of their flights.
    pub fn arrived(&mut self, ipv6: bool) -> Vec<(u64, ArrivedFor)> {
        let mut arrived = Vec::new();
        // What one turn may take, whoever sends it.
        for _ in 0..MOST_AT_ONCE {
            let Ok(length) = self.taps[usize::from(ipv6)].receive(&mut self.room) else { break };
            let Some(what) = self.room.get(..length).and_then(packet::read) else { continue };
            let flight = match &what {
                Arrived::Segment(flow, _) | Arrived::Datagram(flow, _) | Arrived::Unreachable(flow, _) => {
                    self.flows.get(flow).copied()
                }
                Arrived::Echo(from, nonce) => {
                    self.echoes.get(nonce).filter(|(asked, _)| asked == from).map(|(_, flight)| *flight)
                }
            };
            arrived.extend(flight.map(|flight| (flight, ArrivedFor(what))));
        }
        arrived
    }

    /// Goes on with a probe.
    pub fn go_on(&self, probe: &mut DirectProbe, ArrivedFor(arrived): &ArrivedFor) -> Option<Verdict> {
        match (arrived, &mut probe.what) {
            (Arrived::Segment(_, segment), Client::Tcp(client)) => {
                let Step { packets, verdict } = client.take(segment);
                packets.iter().for_each(|packet| drop(self.send(&probe.hop, packet)));
                verdict
            }
            (Arrived::Datagram(_, answer), Client::Datagram(judge)) => judge.take(answer),
            (Arrived::Unreachable(_, sequence), Client::Tcp(client)) if !client.has_sent(*sequence) => None,
            (Arrived::Unreachable(..), Client::Datagram(_) | Client::Tcp(_)) => {
                Some(Err("port unreachable".to_owned()))
            }
            (Arrived::Echo(..), Client::Echo) => Some(Ok(())),
            _ => None,
        }
    }
}

/// Packets that are taken in one turn.
const MOST_AT_ONCE: usize = 1024;

/// A packet for a probe.
#[derive(Debug)]
pub struct ArrivedFor(Arrived);

/// The address that the kernel would send from.
fn source_towards(backend: IpAddr) -> Result<IpAddr, LaunchError> {
    let any = if backend.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    // Nothing is sent by it.
    socket.connect(SocketAddr::new(backend, 9)).map_err(|error| no_way(error, backend))?;
    Ok(socket.local_addr()?.ip())
}
