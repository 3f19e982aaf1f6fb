//! One worker: takes frames, answers them, keeps the time of its connections and opens new ones.

use std::ops::RangeInclusive;

use rig_wire::checksum::Checksum;
use rig_wire::ethernet::{Ethernet, Mac, ethertype};
use rig_wire::tcp::Tcp;
use rig_wire::udp::Udp;
use rig_wire::{Malformed, protocol};

use super::Nanos;
use super::config::{Client, Config, ConfigError, Link, Service};
use super::connection::Key;
use super::counters::{Counters, Latencies};
use super::family::{Addresses, Family, Packet};
use super::neighbor::{ANSWER, Heard, Resolver};
use super::plan::Answer;
use super::port::{Port, Receive, Transmit};
use super::schedule::Schedule;
use super::table::{Counted, Table};
use super::tcp::TcpService;
use super::template::{Ends, Template};
use super::udp::UdpService;
use super::wheel::Wheel;

/// What a pass does at most before frames are received again: an engine that is late must not go deaf.
const LAUNCHES: usize = 32;
const TIMERS: usize = 128;
/// Longer echoes are not answered.
const ECHO: usize = 9216;
/// What began later than this after its time is counted as late.
pub(super) const LATE: Nanos = 1_000_000;

/// What every service needs.
#[derive(Debug)]
pub(super) struct Core<F: Family> {
    pub local: Addresses<F>,
    pub remote: Addresses<F>,
    pub table: Table,
    pub wheel: Wheel,
    pub counters: Counters,
    pub latencies: Latencies,
}

impl<F: Family> Core<F> {
    #[inline(always)]
    pub fn ends(&self, key: Key) -> Ends<F::Address> {
        Ends {
            source: self.local.get(key.local()),
            destination: self.remote.get(key.remote()),
            source_port: key.local_port(),
            destination_port: key.remote_port(),
        }
    }

    /// Room for a frame, which counts as sent; without room it counts as dropped.
    #[inline(always)]
    pub fn claim<'t>(&mut self, transmit: &'t mut impl Transmit, length: usize) -> Option<&'t mut [u8]> {
        let frame = transmit.claim(length);
        match frame {
            Some(_) => {
                self.counters.pkt_tx += 1;
                self.counters.bits_tx += length as u64 * 8;
            }
            None => self.counters.drop_tx += 1,
        }
        frame
    }

    #[inline]
    pub fn set_timer(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.set(&mut self.table.all, slot, deadline);
    }

    pub fn close(&mut self, slot: u32) {
        self.table.remove(slot);
        self.counters.sk_close += 1;
    }

    pub fn fail(&mut self, slot: u32) {
        self.counters.sk_err += 1;
        self.close(slot);
    }
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, and a pointer less on every packet's way")]
enum Running {
    Tcp(TcpService),
    Udp(UdpService),
}

/// One worker.
#[derive(Debug)]
pub struct Engine<F: Family> {
    core: Core<F>,
    link: Link<F>,
    resolver: Resolver<F::Address>,
    running: Running,
}

impl<F: Family> Engine<F> {
    /// Takes all the memory that it will need. `now` is not after any time that passes will be told.
    pub fn new(config: Config<F>, now: Nanos) -> Result<Self, ConfigError> {
        config.check()?;
        let Config { link, local, remote, capacity, service } = config;
        let running = match &service {
            Service::TcpClient(tcp) => Running::Tcp(TcpService::client(&link, tcp)),
            Service::TcpServer(tcp) => Running::Tcp(TcpService::server(&link, tcp)),
            Service::UdpClient(udp) => Running::Udp(UdpService::client(&link, udp)),
            Service::UdpServer(udp) => Running::Udp(UdpService::server(&link, udp)),
        };
        let counted = match &service {
            Service::TcpClient(_) | Service::UdpClient(_) => Counted::Local,
            Service::TcpServer(_) | Service::UdpServer(_) => Counted::Remote,
        };
        let core = Core {
            local: Addresses::new(&local),
            remote: Addresses::new(&remote),
            table: Table::new(capacity, counted),
            wheel: Wheel::new(now),
            counters: Counters::default(),
            latencies: Latencies::default(),
        };
        let mut engine = Self { core, resolver: Resolver::new(link.gateway), link, running };
        if let Some(mac) = engine.resolver.mac {
            engine.set_gateway(mac);
        }
        Ok(engine)
    }

    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    pub fn latencies(&self) -> &Latencies {
        &self.core.latencies
    }

    /// Whether it is known where the gateway is; before that nothing is sent to it.
    pub fn is_ready(&self) -> bool {
        self.resolver.mac.is_some()
    }

    /// No more connections are opened, and those that rest are closed when their next request would be due.
    pub fn wind_down(&mut self) {
        match &mut self.running {
            Running::Tcp(tcp) => tcp.wind_down(),
            Running::Udp(udp) => udp.wind_down(),
        }
    }

    /// Receives a burst, ends timers and opens what is due by `now`, and sends what comes of it. Whether there was
    /// anything to do.
    pub fn pass<P: Port>(&mut self, now: Nanos, port: &mut P) -> bool {
        let (receive, transmit) = port.halves();
        let frames = receive.poll();
        for n in 0..frames {
            self.frame(now, receive.frame(n), transmit);
        }
        let mut busy = frames > 0;
        for _ in 0..TIMERS {
            let Some(slot) = self.core.wheel.expired(&mut self.core.table.all, now) else { break };
            busy = true;
            match &mut self.running {
                Running::Tcp(tcp) => tcp.timer(&mut self.core, now, slot, transmit),
                Running::Udp(udp) => udp.timer(&mut self.core, now, slot, transmit),
            }
        }
        if self.is_ready() {
            for _ in 0..LAUNCHES {
                let opened = match &mut self.running {
                    Running::Tcp(tcp) => tcp.open(&mut self.core, now, transmit),
                    Running::Udp(udp) => udp.open(&mut self.core, now, transmit),
                };
                if !opened {
                    break;
                }
                busy = true;
            }
        }
        if let Some(gateway) = self.resolver.question(now) {
            self.ask(gateway, transmit);
        }
        transmit.flush();
        busy
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
        let ethernet = Ethernet::parse(frame)?;
        let destination = ethernet.destination();
        let ours = destination == self.link.mac || destination.is_multicast();
        if !ours || !ethernet.vlans().eq(self.link.vlan) {
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
            _ => self.other(now, &ethernet, transmit),
        }
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
        let key = self.key(packet, segment.source_port(), segment.destination_port());
        match (key, &mut self.running) {
            (Some(key), Running::Tcp(tcp)) if self.resolver.mac.is_some() => {
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
        let key = self.key(packet, datagram.source_port(), datagram.destination_port());
        match (key, &mut self.running) {
            (Some(key), Running::Udp(udp)) if self.resolver.mac.is_some() => {
                udp.datagram(&mut self.core, now, key, transmit);
            }
            (Some(_), _) => self.core.counters.udp_drop += 1,
            (None, _) => self.core.counters.other_rx += 1,
        }
        Ok(())
    }

    #[cold]
    fn other(&mut self, now: Nanos, ethernet: &Ethernet<'_>, transmit: &mut impl Transmit) -> Result<(), Malformed> {
        let arp = ethernet.ethertype() == ethertype::ARP;
        let icmp = ethernet.ethertype() == F::ETHERTYPE && F::parse(ethernet.payload())?.protocol == F::ICMP;
        let counters = &mut self.core.counters;
        match (arp, icmp) {
            (true, _) => counters.arp_rx += 1,
            (_, true) => counters.icmp_rx += 1,
            _ => counters.other_rx += 1,
        }
        let (local, link) = (&self.core.local, &self.link);
        let all = link.answer == Answer::All;
        let mine = |address| address == link.address || all && local.find(address).is_some();
        let heard = F::heard(ethernet, mine)?;
        match heard {
            Heard::Nothing => {}
            Heard::Found { address, mac } => {
                if self.resolver.found(address, mac, now) {
                    self.set_gateway(mac);
                }
            }
            Heard::Echo { data, .. } if data.len() > ECHO => {}
            Heard::Wanted { .. } | Heard::Echo { .. } => {
                let mut buffer = [0; ECHO + ANSWER * 2];
                let length = F::answer(&mut buffer, &self.link, ethernet.source(), &heard);
                self.send(&buffer[..length], arp, transmit);
            }
        }
        Ok(())
    }

    #[cold]
    fn ask(&mut self, gateway: F::Address, transmit: &mut impl Transmit) {
        let mut buffer = [0; 128];
        let length = F::ask(&mut buffer, &self.link, self.link.address, gateway);
        self.send(&buffer[..length], F::ETHERTYPE == ethertype::IPV4, transmit);
    }

    fn send(&mut self, bytes: &[u8], arp: bool, transmit: &mut impl Transmit) {
        if let Some(frame) = self.core.claim(transmit, bytes.len()) {
            frame.copy_from_slice(bytes);
            let counters = &mut self.core.counters;
            *(if arp { &mut counters.arp_tx } else { &mut counters.icmp_tx }) += 1;
        }
    }

    fn set_gateway(&mut self, mac: Mac) {
        let set = |template: &mut Template| template.set_destination(mac);
        match &mut self.running {
            Running::Tcp(tcp) => tcp.templates().into_iter().for_each(set),
            Running::Udp(udp) => set(udp.template()),
        }
    }
}

/// What a client opens next: when, and between which ends.
#[derive(Debug)]
pub(super) struct Opener {
    ports: RangeInclusive<u16>,
    server_ports: RangeInclusive<u16>,
    schedule: Schedule,
    /// Combinations of addresses and ports that have been tried.
    walked: u64,
    pub stopped: bool,
}

impl Opener {
    /// Combinations that are looked at for one that is free.
    const TRIES: usize = 64;

    pub fn new(client: &Client) -> Self {
        Self {
            ports: client.ports.clone(),
            server_ports: client.server_ports.clone(),
            schedule: Schedule::new(client.load),
            walked: 0,
            stopped: false,
        }
    }

    /// A new connection that is due, and since when.
    #[inline]
    pub fn next<F: Family>(&mut self, core: &mut Core<F>, now: Nanos) -> Option<(u32, Nanos)> {
        if self.stopped {
            return None;
        }
        let due = self.schedule.take(now, core.counters.sk_con())?;
        let free = (0..Self::TRIES).map(|_| self.walk(core)).find(|&key| core.table.find(key).is_none());
        let Some(slot) = free.and_then(|key| core.table.insert(key)) else {
            core.counters.no_socket += 1;
            return None;
        };
        core.counters.sk_open += 1;
        core.counters.late += u64::from(now - due > LATE);
        Some((slot, due))
    }

    /// The next combination: source ports change first, then addresses, ports and addresses of servers.
    #[inline]
    fn walk<F: Family>(&mut self, core: &Core<F>) -> Key {
        let mut rest = self.walked;
        self.walked += 1;
        let mut digit = |base: usize| {
            let digit = rest % base as u64;
            rest /= base as u64;
            digit as u16
        };
        let port = self.ports.start() + digit(self.ports.len());
        let local = digit(core.local.len());
        let server_port = self.server_ports.start() + digit(self.server_ports.len());
        let remote = digit(core.remote.len());
        Key::new(local, port, remote, server_port)
    }
}
