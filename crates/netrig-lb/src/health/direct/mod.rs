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
use rig_sys::netlink::Netlink;
use rig_sys::packet_socket::PacketTap;
use rig_wire::protocol;
use socket2::{Domain, Protocol, Socket, Type};

use self::packet::{Arrived, Flow};
use self::tcp::{Step, TcpClient};
use super::check::Probe;
use super::probe::{DatagramJudge, StreamJudge, Verdict, no_answer};

/// The way of clients' packets from here to a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardingPath {
    /// By its link-layer address, or that of the router before it.
    NextHop { backend: IpAddr },
    /// In IP from a local address.
    Tunnel { local: IpAddr, backend: IpAddr },
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
    /// Whose answers are awaited.
    flows: HashMap<Flow, u64>,
    echoes: HashMap<u64, (IpAddr, u64)>,
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
}

/// Where its packets leave.
#[derive(Debug)]
enum Hop {
    Neighbor { interface: u32, address: Vec<u8> },
    Tunnel { local: IpAddr, backend: IpAddr },
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
        match &self.what {
            Client::Tcp(client) if client.is_connected() => format!("{} within {}", client.late(), Span(timeout)),
            _ => no_answer(timeout),
        }
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
            flows: HashMap::new(),
            echoes: HashMap::new(),
            deaf: None,
            room: vec![0; 1 << 17],
        })
    }

    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.taps[0].socket(), self.taps[1].socket()]
    }

    /// Hears what comes from these services' addresses. Where it cannot, no probe is begun that would only seem to fail.
    pub fn hear(&mut self, services: &[IpAddr]) {
        let heard = self.taps.iter().try_for_each(|tap| tap.hear(services));
        self.deaf = heard.err().map(|error| format!("answers cannot be heard: {error}"));
    }

    /// Begins a probe of the service's address `to` at a backend.
    pub fn start(
        &mut self,
        probe: &Probe,
        (to, path): (SocketAddr, ForwardingPath),
        source: Option<IpAddr>,
        (random, flight): (u64, u64),
    ) -> Result<DirectProbe, LaunchError> {
        if let Some(why) = &self.deaf {
            return Err(LaunchError::Here(io::Error::other(why.clone())));
        }
        let hop = self.hop(path)?;
        let own = match source {
            Some(source) => source,
            None => source_towards(path.backend())?,
        };
        if let Some((request, judge)) = StreamJudge::of(probe, to) {
            let (flow, socket) = self.flow(own, to, protocol::TCP)?;
            let client = TcpClient::new(flow, random as u32, request, judge);
            let packets = client.resend();
            return self.launch(
                DirectProbe { hop, of: Answer::Flow(flow, socket), what: Client::Tcp(Box::new(client)) },
                packets,
                flight,
            );
        }
        if let Some((message, judge)) = DatagramJudge::of(probe, random) {
            let (flow, socket) = self.flow(own, to, protocol::UDP)?;
            let packets = vec![packet::datagram(&flow, &message)];
            let what = Client::Datagram(judge);
            return self.launch(DirectProbe { hop, of: Answer::Flow(flow, socket), what }, packets, flight);
        }
        let packets = vec![packet::echo(own, to.ip(), random)];
        let launched =
            self.launch(DirectProbe { hop, of: Answer::Echo(random), what: Client::Echo }, packets, flight)?;
        self.echoes.insert(random, (to.ip(), flight));
        Ok(launched)
    }

    fn launch(&mut self, probe: DirectProbe, packets: Vec<Vec<u8>>, flight: u64) -> Result<DirectProbe, LaunchError> {
        for packet in packets {
            self.send(&probe.hop, &packet)?;
        }
        if let Answer::Flow(flow, _) = &probe.of {
            self.flows.insert(*flow, flight);
        }
        Ok(probe)
    }

    /// The backend's neighbour, as the datapath has it.
    fn hop(&self, path: ForwardingPath) -> Result<Hop, LaunchError> {
        let backend = match path {
            ForwardingPath::Tunnel { local, backend } => return Ok(Hop::Tunnel { local, backend }),
            ForwardingPath::NextHop { backend } => backend,
        };
        let Ok(hops) = self.netlink.next_hops(backend) else {
            return Err(LaunchError::Peer(format!("no route to {backend}")));
        };
        let Some(hop) = hops.first() else {
            return Err(LaunchError::Peer("the backend has an address of this machine".to_owned()));
        };
        match self.netlink.link_layer_address(*hop).map_err(here)? {
            Some(address) => Ok(Hop::Neighbor { interface: hop.interface, address }),
            None => Err(LaunchError::Peer(format!("the next hop {} does not answer", hop.address))),
        }
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
            Hop::Neighbor { interface, address } => self.taps[usize::from(ipv6)].send(*interface, address, packet),
            Hop::Tunnel { local, backend } => {
                let outer = packet::wrapped(*local, *backend, packet);
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
        !packets.is_empty()
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
                Arrived::Segment(flow, _) | Arrived::Datagram(flow, _) | Arrived::Unreachable(flow) => {
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
            (Arrived::Unreachable(_), Client::Datagram(_) | Client::Tcp(_)) => Some(Err("port unreachable".to_owned())),
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
    if socket.connect(SocketAddr::new(backend, 9)).is_err() {
        return Err(LaunchError::Peer(format!("no route to {backend}")));
    }
    Ok(socket.local_addr()?.ip())
}
