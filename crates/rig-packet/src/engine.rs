//! What one thread drives: takes frames, answers them, keeps the time of its connections and opens new ones.

use std::net::SocketAddr;

use rig_wire::checksum::Checksum;
use rig_wire::ethernet::{Ethernet, Mac};
use rig_wire::tcp::Tcp;
use rig_wire::udp::Udp;
use rig_wire::{Malformed, protocol};

use super::Nanos;
use super::config::{Client, Config, ConfigError, PlannedRate, Service};
use super::connection::Key;
use super::counters::{Counters, Latencies, Window};
use super::engine_core::EngineCore;
use super::family::link::{Link, Tunnel};
use super::family::neighbor::{self, NeighborMessage, Resolver};
use super::family::unreachable::Unreachable;
use super::family::{Addresses, Family, Packet};
use super::flood::FloodService;
use super::opener::{ConnectionOpener, RequestPace};
use super::plan::AnswerScope;
use super::port::{Port, Receive, Transmit};
use super::rows::{ServerCounters, ServerTable, Side};
use super::steering::Steer;
use super::table::{SequentialPort, Table};
use super::tcp::TcpService;
use super::template::Template;
use super::udp::UdpService;
use super::underlay::{Underlay, UnderlayFrame};
use super::wheel::TimerWheel;

/// What a pass does at most before frames are received again: an engine that is late must not go deaf.
const LAUNCHES: usize = 32;
const TIMERS: usize = 128;
const REQUESTS: usize = 64;

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, and a pointer less on every packet's way")]
enum RunningService<F: Family> {
    Tcp(TcpService),
    Udp(UdpService),
    Flood(FloodService<F>),
}

/// The client or server of one thread, over one queue.
#[derive(Debug)]
pub struct Engine<F: Family> {
    core: EngineCore<F>,
    link: Link<F>,
    resolver: Resolver<F::Address>,
    /// The network below a tunnel.
    underlay: Option<Underlay>,
    running: RunningService<F>,
    /// The planned rate of a client.
    planned: Option<PlannedRate>,
    /// Whether it is known where frames go.
    ready: bool,
    /// How many of our addresses have been announced.
    announced: usize,
}

impl<F: Family> Engine<F> {
    /// Takes all the memory that it will need. `now` is not after any time that passes will be told.
    pub fn new(config: Config<F>, now: Nanos) -> Result<Self, ConfigError> {
        config.check()?;
        let Config { link, local, remote, capacity, service, steering } = config;
        let (local, remote) = (Addresses::new(&local), Addresses::new(&remote));
        let client = service.client();
        let planned = client.map(Client::planned);
        let (counted, side, ports) = match &service {
            Service::TcpServer(tcp) => (SequentialPort::Remote, Side::Local, &tcp.server.ports),
            Service::UdpServer(udp) => (SequentialPort::Remote, Side::Local, &udp.server.ports),
            Service::TcpClient(tcp) => (SequentialPort::Local, Side::Remote, &tcp.client.server_ports),
            Service::UdpClient(udp) => (SequentialPort::Local, Side::Remote, &udp.client.server_ports),
        };
        let addresses = if side == Side::Local { local.len() } else { remote.len() };
        let rows = ServerTable::new(side, addresses, *ports.start(), ports.len());
        let opener = |client| {
            let steer = steering.as_ref().map(|steering| Steer::new(steering, &local, &remote));
            (ConnectionOpener::new(client, (local.len(), remote.len()), steer), RequestPace::new(client, capacity))
        };
        let running = match (&service, client.and_then(|client| client.flood.as_ref())) {
            (Service::TcpClient(tcp), None) => RunningService::Tcp(TcpService::client(&link, tcp, opener(&tcp.client))),
            (Service::UdpClient(udp), None) => {
                RunningService::Udp(UdpService::client(&link, udp, opener(&udp.client), (remote.len(), now)))
            }
            (Service::TcpClient(tcp), Some(flood)) => {
                RunningService::Flood(FloodService::tcp(&link, tcp, flood, opener(&tcp.client)))
            }
            (Service::UdpClient(udp), Some(flood)) => {
                RunningService::Flood(FloodService::udp(&link, udp, flood, opener(&udp.client)))
            }
            (Service::TcpServer(tcp), _) => RunningService::Tcp(TcpService::server(&link, tcp)),
            (Service::UdpServer(udp), _) => RunningService::Udp(UdpService::server(&link, udp)),
        };
        let core = EngineCore {
            local,
            remote,
            table: Table::new(capacity, counted),
            wheel: TimerWheel::new(now),
            counters: Counters::default(),
            latencies: Latencies::default(),
            window: Window::default(),
            peer_clock_ns: 0,
            rows,
        };
        let resolver = Resolver::new(link.gateway);
        let underlay = link.tunnel.as_deref().map(Underlay::new);
        let announced = if link.announce { 0 } else { usize::MAX };
        let mut engine = Self { core, link, resolver, underlay, running, planned, ready: false, announced };
        if let Some(mac) = engine.gateway() {
            engine.set_gateway(mac);
        }
        Ok(engine)
    }

    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// From now on latencies are those of what is due from `begin` until before `end`, whenever it is answered: were they
    /// assigned by the answer, a stall over the last part of a window would leave no trace in it.
    pub fn measure(&mut self, begin: Nanos, end: Nanos) {
        self.core.window = Window { begin, end };
    }

    /// What is to be added to a time of the peer's CLOCK_MONOTONIC, as datagrams one way bring it, to have that of this end's.
    pub fn set_peer_clock(&mut self, ns: i64) {
        self.core.peer_clock_ns = ns;
    }

    /// Enters requests without an answer with their age `now`, and those that were due and did not begin: they took that long or longer.
    /// Looks at each connection: for the end of a run.
    pub fn give_up(&mut self, now: Nanos) {
        match &mut self.running {
            RunningService::Tcp(tcp) => tcp.give_up(&mut self.core, now),
            RunningService::Udp(udp) => udp.give_up(&mut self.core, now),
            RunningService::Flood(_) => {}
        }
    }

    pub fn latencies(&self) -> &Latencies {
        &self.core.latencies
    }

    /// Puts `with`, which should be empty, in the place of what was measured so far.
    pub fn exchange_latencies(&mut self, with: &mut Latencies) {
        std::mem::swap(&mut self.core.latencies, with);
    }

    /// What each server's address and port had, while there are at most 4096 of them: a client counts by the peer's, a
    /// server by its own.
    pub fn rows(&self) -> impl Iterator<Item = (SocketAddr, ServerCounters)> + '_ {
        self.core.rows.all(match &self.running {
            RunningService::Tcp(tcp) if tcp.is_server() => &self.core.local,
            RunningService::Udp(udp) if udp.is_server() => &self.core.local,
            _ => &self.core.remote,
        })
    }

    /// Connections that the table has: as many as were opened and not closed.
    pub(super) fn in_use(&self) -> usize {
        self.core.table.in_use()
    }

    /// Counts what of a client's connections is unfinished. Looks at each of them: for the end of a run.
    pub fn count_unfinished(&mut self) {
        if self.opener().is_some() {
            let waiting = self.core.table.all.iter().filter(|connection| connection.is_waiting());
            self.core.counters.unfinished = waiting.count() as u64;
        }
    }

    /// Whether it is known where the gateway is; before that nothing is sent to it.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Where the gateway is, as far as it is known: with a tunnel, that of the link below.
    pub fn gateway(&self) -> Option<Mac> {
        match &self.underlay {
            Some(underlay) => underlay.resolver.mac,
            None => self.resolver.mac,
        }
    }

    /// Takes it from elsewhere where the gateway is: answers come to one queue of an interface, and others need them too.
    pub fn learn_gateway(&mut self, mac: Mac) {
        match &mut self.underlay {
            Some(underlay) => underlay.resolver.mac = Some(mac),
            None => self.resolver.mac = Some(mac),
        }
        self.set_gateway(mac);
    }

    /// A client's schedule begins `at`, and nothing is opened before. For an engine that has opened nothing yet; without
    /// this the schedule begins when the gateway is known.
    pub fn open_from(&mut self, at: Nanos) {
        if let Some(opener) = self.opener() {
            opener.begin(at);
        }
    }

    /// New connections per second from `now` on, without the rest of a ramp; zero is a pause. The part of an interval that
    /// has passed counts, so that many small changes make a ramp. What should have begun more than a millisecond ago is
    /// given up and counted as missed.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) {
        if let Some(opener) = self.opener() {
            let missed = opener.set_rate(rate, now);
            self.core.counters.missed += missed;
        }
    }

    /// Requests per second of all connections together from `now` on, as [`set_rate`](Self::set_rate) does it. Without
    /// effect where requests follow an interval.
    pub fn set_request_rate(&mut self, rate: f64, now: Nanos) {
        let pace = match &mut self.running {
            RunningService::Tcp(tcp) => tcp.pace(),
            RunningService::Udp(udp) => udp.pace(),
            RunningService::Flood(flood) => Some(flood.pace()),
        };
        if let Some(requests) = pace.and_then(RequestPace::requests) {
            self.core.counters.missed += requests.set_rate(rate, now);
        }
    }

    /// `factor` times what its configuration says, from `now` on: requests where these have a rate, else new connections.
    pub fn scale_rate(&mut self, factor: f64, now: Nanos) {
        match self.planned {
            Some(PlannedRate::Connections(rate)) => self.set_rate(rate * factor, now),
            Some(PlannedRate::Requests(rate)) => self.set_request_rate(rate * factor, now),
            None => {}
        }
    }

    /// How many connections are held open from now on; `None`: however many come of the rate. Those above are not closed.
    pub fn set_hold(&mut self, hold: Option<u32>) {
        if let Some(opener) = self.opener() {
            opener.set_hold(hold);
        }
    }

    fn opener(&mut self) -> Option<&mut ConnectionOpener> {
        match &mut self.running {
            RunningService::Tcp(tcp) => tcp.opener(),
            RunningService::Udp(udp) => udp.opener(),
            RunningService::Flood(flood) => Some(flood.opener()),
        }
    }

    /// No more connections are opened, and those that rest are closed when their next request would be due.
    pub fn wind_down(&mut self) {
        self.wind_down_at(0);
    }

    /// Winds down when it is `at`. What is due before is begun even when it is late.
    pub fn wind_down_at(&mut self, at: Nanos) {
        if let Some(opener) = self.opener() {
            opener.end(at);
        }
    }

    /// Whether nothing is begun any more: all that was due before the end has been. A server begins nothing.
    pub fn is_wound_down(&mut self) -> bool {
        self.opener().is_none_or(|opener| opener.stopped)
    }

    /// Receives a burst, ends timers, begins requests that are due by `now`, and sends the packets of all that. Whether there was
    /// anything to do.
    pub fn pass<P: Port>(&mut self, now: Nanos, port: &mut P) -> bool {
        let (receive, transmit) = port.halves();
        if let RunningService::Udp(udp) = &mut self.running {
            udp.begin(&mut self.core, now);
        }
        let frames = receive.poll();
        for n in 0..frames {
            self.frame(now, receive.frame(n), transmit);
        }
        let mut busy = frames > 0;
        for _ in 0..TIMERS {
            let Some(slot) = self.core.wheel.expired(&mut self.core.table.all, now) else { break };
            busy = true;
            match &mut self.running {
                RunningService::Tcp(tcp) => tcp.timer(&mut self.core, now, slot, transmit),
                RunningService::Udp(udp) => udp.timer(&mut self.core, now, slot, transmit),
                RunningService::Flood(flood) => flood.timer(&mut self.core, now, slot, transmit),
            }
        }
        if self.ready {
            busy |= self.begin(now, transmit);
        }
        self.greet(now, transmit);
        transmit.flush();
        busy
    }

    /// Opens and asks what is due. Whether there was anything.
    #[inline]
    fn begin(&mut self, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let core = &mut self.core;
        let mut opened = 0;
        while opened < LAUNCHES
            && match &mut self.running {
                RunningService::Tcp(tcp) => tcp.open(core, now, transmit),
                RunningService::Udp(udp) => udp.open(core, now, transmit),
                RunningService::Flood(flood) => flood.open(core, now, transmit),
            }
        {
            opened += 1;
        }
        let mut asked = 0;
        while asked < REQUESTS
            && match &mut self.running {
                RunningService::Tcp(tcp) => tcp.request(core, now, transmit),
                RunningService::Udp(udp) => udp.request(core, now, transmit),
                RunningService::Flood(flood) => flood.request(core, now, transmit),
            }
        {
            asked += 1;
        }
        opened + asked > 0
    }

    /// Announces own addresses to neighbours, and asks them for the gateway's.
    #[inline]
    fn greet(&mut self, now: Nanos, transmit: &mut impl Transmit) {
        if self.announced <= self.core.local.len() {
            self.announce(transmit);
        }
        if let Some(gateway) = self.resolver.question(now) {
            self.ask(gateway, transmit);
        }
        if let Some(underlay) = &mut self.underlay {
            underlay.greet(now, &mut self.core, transmit);
        }
    }

    #[inline]
    fn frame(&mut self, now: Nanos, frame: &[u8], transmit: &mut impl Transmit) {
        self.core.counters.pkt_rx += 1;
        self.core.counters.bits_rx += frame.len() as u64 * 8;
        if let Err(reason) = self.take(now, frame, transmit) {
            self.core.counters.malformed(reason);
        }
    }

    #[inline]
    fn take(&mut self, now: Nanos, frame: &[u8], transmit: &mut impl Transmit) -> Result<(), Malformed> {
        let frame = if self.underlay.is_none() {
            frame
        } else {
            let Some(frame) = self.unwrap(now, frame, transmit)? else { return Ok(()) };
            frame
        };
        let ethernet = Ethernet::parse(frame)?;
        if !self.link.is_for_us(&ethernet) {
            self.core.counters.other_rx += 1;
            return Ok(());
        }
        if ethernet.ethertype() != F::ETHERTYPE {
            return self.other(now, &ethernet, transmit);
        }
        let packet = F::parse(ethernet.payload())?;
        match packet.protocol {
            protocol::TCP => self.tcp(now, &packet, transmit),
            protocol::UDP => self.udp(now, &packet, transmit),
            number if number == F::ICMP => match F::unreachable(&packet)? {
                Some(error) => {
                    self.core.counters.icmp_rx += 1;
                    self.unreachable(now, &error);
                    Ok(())
                }
                None => self.other(now, &ethernet, transmit),
            },
            _ => self.other(now, &ethernet, transmit),
        }
    }

    /// The frame within a frame of the tunnel, kept out of the way of those without; `None` when it was something else, which has been dealt with.
    #[inline(never)]
    fn unwrap<'a>(
        &mut self,
        now: Nanos,
        frame: &'a [u8],
        transmit: &mut impl Transmit,
    ) -> Result<Option<&'a [u8]>, Malformed> {
        let Some(underlay) = &mut self.underlay else { return Ok(Some(frame)) };
        match underlay.take(now, frame, &mut self.core, transmit)? {
            UnderlayFrame::Frame(frame) => return Ok(Some(frame)),
            UnderlayFrame::Gateway(mac) => self.set_gateway(mac),
            UnderlayFrame::Done => {}
        }
        Ok(None)
    }

    /// The key of a packet between addresses of the configuration.
    #[inline]
    fn key(&self, packet: &Packet<'_, F::Address>, source: u16, destination: u16) -> Option<Key> {
        let local = self.core.local.find(packet.destination)?;
        let remote = self.core.remote.find(packet.source)?;
        Some(Key::new(local, destination, remote, source))
    }

    #[inline]
    fn tcp(
        &mut self,
        now: Nanos,
        packet: &Packet<'_, F::Address>,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let segment = Tcp::parse(packet.payload)?;
        if self.link.verify && segment.verify(packet.pseudo)? == Checksum::Unfinished {
            self.core.counters.partial_rx += 1;
        }
        self.core.counters.tcp_rx += 1;
        self.core.counters.tos_rx += u64::from(packet.tos != 0);
        let key = self.key(packet, segment.source_port(), segment.destination_port());
        match (key, &mut self.running) {
            (Some(key), RunningService::Tcp(tcp)) if self.ready => {
                return tcp.segment(&mut self.core, now, key, &segment, transmit);
            }
            (Some(_), _) => self.core.counters.tcp_drop += 1,
            (None, _) => self.core.counters.other_rx += 1,
        }
        Ok(())
    }

    #[inline]
    fn udp(
        &mut self,
        now: Nanos,
        packet: &Packet<'_, F::Address>,
        transmit: &mut impl Transmit,
    ) -> Result<(), Malformed> {
        let datagram = Udp::parse(packet.payload)?;
        if self.link.verify && datagram.verify(packet.pseudo, F::BARE_UDP)? == Checksum::Unfinished {
            self.core.counters.partial_rx += 1;
        }
        self.core.counters.udp_rx += 1;
        self.core.counters.tos_rx += u64::from(packet.tos != 0);
        let key = self.key(packet, datagram.source_port(), datagram.destination_port());
        match (key, &mut self.running) {
            (Some(key), RunningService::Udp(udp)) if self.ready => {
                udp.datagram(&mut self.core, now, key, datagram.payload(), transmit);
            }
            (Some(_), _) => self.core.counters.udp_drop += 1,
            (None, _) => self.core.counters.other_rx += 1,
        }
        Ok(())
    }

    /// The network could not deliver a packet of ours.
    #[cold]
    fn unreachable(&mut self, now: Nanos, error: &Unreachable<F::Address>) {
        let quoted = &error.quoted;
        let (Some(local), Some(remote)) =
            (self.core.local.find(quoted.source), self.core.remote.find(quoted.destination))
        else {
            return;
        };
        let key = Key::new(local, quoted.source_port, remote, quoted.destination_port);
        match &mut self.running {
            RunningService::Tcp(tcp) if quoted.protocol == protocol::TCP => {
                tcp.unreachable(&mut self.core, now, key, quoted.sequence, error.too_big);
            }
            RunningService::Udp(udp) if quoted.protocol == protocol::UDP => udp.unreachable(&mut self.core, now, key),
            _ => {}
        }
    }

    #[cold]
    fn other(&mut self, now: Nanos, ethernet: &Ethernet<'_>, transmit: &mut impl Transmit) -> Result<(), Malformed> {
        let is_local = |address| self.core.local.find(address).is_some();
        let message = neighbor::receive(&self.link, ethernet, is_local, &mut self.core.counters)?;
        if let Some((address, mac)) = message.location()
            && self.resolver.found(address, mac, now)
        {
            self.set_gateway(mac);
        }
        if let NeighborMessage::Solicitation { .. } | NeighborMessage::Echo { .. } = message {
            let mut buffer = [0; neighbor::LONGEST];
            let length = F::answer(&mut buffer, &self.link, ethernet.source(), &message);
            self.send(&buffer[..length], transmit);
        }
        Ok(())
    }

    /// Announces some of our addresses.
    #[cold]
    fn announce(&mut self, transmit: &mut impl Transmit) {
        for _ in 0..neighbor::ANNOUNCEMENTS {
            let address = match self.announced {
                0 => self.link.address,
                n if n <= self.core.local.len() && self.link.answer == AnswerScope::All => self.core.local.get(n - 1),
                _ => {
                    self.announced = usize::MAX;
                    return;
                }
            };
            self.announced += 1;
            if self.announced == 1 || address != self.link.address {
                let mut buffer = [0; 128];
                let length = F::announce(&mut buffer, &self.link, address);
                self.send(&buffer[..length], transmit);
            }
        }
    }

    #[cold]
    fn ask(&mut self, gateway: F::Address, transmit: &mut impl Transmit) {
        let mut buffer = [0; 128];
        let length = F::ask(&mut buffer, &self.link, self.link.address, gateway);
        self.send(&buffer[..length], transmit);
    }

    /// Sends a frame of the link, through the tunnel if there is one.
    fn send(&mut self, bytes: &[u8], transmit: &mut impl Transmit) {
        let Some(mac) = self.gateway().or(self.link.tunnel.is_none().then_some(Mac::default())) else { return };
        let outer = self.link.outer();
        let Some(frame) = self.core.claim(transmit, outer + bytes.len()) else { return };
        let (headers, rest) = frame.split_at_mut(outer);
        rest.copy_from_slice(bytes);
        if let Some(tunnel) = &self.link.tunnel {
            tunnel.write(headers, mac, bytes.len(), Tunnel::source_port(0));
        }
        neighbor::count_sent(bytes, &mut self.core.counters);
    }

    fn set_gateway(&mut self, mac: Mac) {
        self.ready = true;
        let set = |template: &mut Template| template.set_destination(mac);
        match &mut self.running {
            RunningService::Tcp(tcp) => tcp.templates().into_iter().for_each(set),
            RunningService::Udp(udp) => set(udp.template()),
            RunningService::Flood(flood) => flood.templates().for_each(set),
        }
    }
}
