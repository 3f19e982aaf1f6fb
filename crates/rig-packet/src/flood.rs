//! Packets one way: a client that sends first packets and expects nothing.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Nanos;
use super::config::{AddressStride, Flood, FloodPackets, RequestRepeat, TcpClient, UdpClient};
use super::connection::{Key, State, Timestamp};
use super::engine_core::EngineCore;
use super::family::Family;
use super::family::link::Link;
use super::opener::{ConnectionOpener, IdleAction, RequestPace};
use super::port::Transmit;
use super::schedule::LATE;
use super::tcp;
use super::template::Template;

/// What a flood sends. Without a [`RequestRepeat`](super::RequestRepeat) each packet is between ends of its own and nothing is kept
/// of it; otherwise flows are held, each of which sends again and again.
#[derive(Debug)]
pub(super) struct FloodService<F: Family> {
    packets: Box<[FloodPacket]>,
    turn: Turn,
    opener: ConnectionOpener,
    pace: RequestPace,
    /// Whether flows are held.
    flows: bool,
    /// Packets of a flow; 0: without end.
    of_flow: u16,
    /// Packets back to back.
    pipeline: u16,
    /// The number of the next datagram, where each begins with the time and its own.
    stamped: Option<u32>,
    /// Packets that are left to be sent.
    left: u64,
    /// Where packets go to in turn, in place of the servers.
    destinations: Box<[F::Address]>,
    next_destination: usize,
}

#[derive(Debug)]
struct FloodPacket {
    template: Template,
    kind: PacketKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PacketKind {
    Syn,
    Ack,
    Datagram,
}

/// Which of several packets comes next: of as many in a row as there are, each once. Where a row begins is random, because services have
/// their turns, too, and where they are a multiple of the packets each would get one kind alone.
#[derive(Debug)]
struct Turn {
    of: usize,
    next: usize,
    /// Packets of this row that are left.
    left: usize,
    random: Xoshiro256PlusPlus,
}

impl Turn {
    fn new(of: usize) -> Self {
        Self { of, next: 0, left: of, random: Xoshiro256PlusPlus::seed_from_u64(0) }
    }

    #[inline]
    fn advance(&mut self) {
        if self.of == 1 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            self.next = self.random.random_range(0..self.of);
            self.left = self.of;
        } else {
            self.next = if self.next + 1 == self.of { 0 } else { self.next + 1 };
        }
    }
}

impl<F: Family> FloodService<F> {
    pub fn udp(link: &Link<F>, udp: &UdpClient, flood: &Flood, opener: (ConnectionOpener, RequestPace)) -> Self {
        let mut payload = udp.request.bytes().to_vec();
        if flood.stamped {
            payload[..Flood::STAMP].fill(0);
        }
        let packets = [FloodPacket { template: Template::udp(link, &payload), kind: PacketKind::Datagram }];
        Self::new(packets.into(), udp.client.repeat, flood, opener)
    }

    pub fn tcp(link: &Link<F>, tcp: &TcpClient, flood: &Flood, opener: (ConnectionOpener, RequestPace)) -> Self {
        let packet = |kind| {
            let template = match kind {
                PacketKind::Syn => Template::tcp(link, &tcp::syn(tcp.mss), &[]),
                PacketKind::Ack => Template::tcp(link, &tcp::ack(), &[]),
                PacketKind::Datagram => Template::udp(link, &tcp.request.bytes()),
            };
            FloodPacket { template, kind }
        };
        let kinds: &[PacketKind] = match flood.packets {
            FloodPackets::First => &[PacketKind::Syn],
            FloodPackets::Ack => &[PacketKind::Ack],
            FloodPackets::Mixed => &[PacketKind::Syn, PacketKind::Ack, PacketKind::Datagram],
        };
        Self::new(kinds.iter().copied().map(packet).collect(), tcp.client.repeat, flood, opener)
    }

    fn new(
        packets: Box<[FloodPacket]>,
        repeat: Option<RequestRepeat>,
        flood: &Flood,
        (opener, pace): (ConnectionOpener, RequestPace),
    ) -> Self {
        let destinations = flood.destinations.iter().flat_map(AddressStride::addresses::<F>).collect();
        Self {
            turn: Turn::new(packets.len()),
            packets,
            opener,
            pace,
            flows: repeat.is_some(),
            of_flow: repeat.and_then(|repeat| repeat.requests).unwrap_or(0),
            pipeline: repeat.map_or(1, |repeat| repeat.pipeline),
            stamped: flood.stamped.then_some(0),
            left: flood.most.unwrap_or(u64::MAX),
            destinations,
            next_destination: 0,
        }
    }

    pub fn templates(&mut self) -> impl Iterator<Item = &mut Template> {
        self.packets.iter_mut().map(|packet| &mut packet.template)
    }

    pub fn opener(&mut self) -> &mut ConnectionOpener {
        &mut self.opener
    }

    pub fn pace(&mut self) -> &mut RequestPace {
        &mut self.pace
    }

    /// Sends a packet, or begins a flow, if one is due.
    #[inline(never)]
    pub fn open(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        if self.left == 0 {
            return false;
        }
        if self.stamped.is_some() {
            self.opener.stop_when_over(now);
        }
        if !self.flows {
            let Some(key) = self.opener.next_key(core, now) else { return false };
            core.counters.sk_open += 1;
            core.counters.sk_close += 1;
            self.send(core, now, key, transmit);
            self.left -= 1;
            self.opener.stopped |= self.left == 0;
            return true;
        }
        let Some((slot, due)) = self.opener.next(core, now) else { return false };
        let connection = &mut core.table.all[slot as usize];
        connection.requests_or_mss = self.of_flow;
        connection.stamp = Timestamp::of(due);
        match &mut self.pace {
            RequestPace::Rate(requests) => requests.rest(core, slot),
            RequestPace::Interval(_) => self.repeat(core, now, slot, transmit),
        }
        true
    }

    /// Sends on the flow whose turn it is, if it is time.
    #[inline(never)]
    pub fn request(&mut self, core: &mut EngineCore<F>, now: Nanos, transmit: &mut impl Transmit) -> bool {
        let RequestPace::Rate(requests) = &mut self.pace else { return false };
        let Some((slot, turn)) = requests.next(core, now, &self.opener) else { return false };
        match turn {
            IdleAction::Request(due) => {
                core.counters.late += u64::from(now - due > LATE);
                self.repeat(core, now, slot, transmit);
            }
            IdleAction::Close => core.close(slot),
        }
        true
    }

    /// The next time of a flow has come.
    #[inline(never)]
    pub fn timer(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let connection = &core.table.all[slot as usize];
        if connection.state != State::Resting || self.pace.is_rate() {
            return;
        }
        if self.opener.stopped {
            return core.close(slot);
        }
        core.counters.late += u64::from(connection.stamp.age(now) > LATE);
        self.repeat(core, now, slot, transmit);
    }

    /// Sends a flow's packets, which were due at its stamp, and plans the next ones.
    fn repeat(&mut self, core: &mut EngineCore<F>, now: Nanos, slot: u32, transmit: &mut impl Transmit) {
        let key = core.table.all[slot as usize].key;
        for _ in 0..self.pipeline {
            self.send(core, now, key, transmit);
        }
        let connection = &mut core.table.all[slot as usize];
        if connection.requests_or_mss == 1 {
            return core.close(slot);
        }
        connection.requests_or_mss = connection.requests_or_mss.saturating_sub(1);
        match &mut self.pace {
            RequestPace::Rate(requests) => requests.rest(core, slot),
            &mut RequestPace::Interval(interval) => {
                let due = now - connection.stamp.age(now) + interval;
                connection.stamp = Timestamp::of(due);
                connection.state = State::Resting;
                core.set_timer(slot, due);
            }
        }
    }

    #[inline(never)]
    fn send(&mut self, core: &mut EngineCore<F>, now: Nanos, key: Key, transmit: &mut impl Transmit) {
        let mut tuple = core.four_tuple(key);
        if let Some(&destination) = self.destinations.get(self.next_destination) {
            tuple.destination = destination;
            self.next_destination += 1;
            if self.next_destination == self.destinations.len() {
                self.next_destination = 0;
            }
        }
        let FloodPacket { template, kind } = &self.packets[self.turn.next];
        let Some(frame) = core.claim(transmit, template.len()) else { return };
        self.turn.advance();
        match kind {
            PacketKind::Datagram => {
                match &mut self.stamped {
                    Some(number) => {
                        template.fill_stamped::<F>(frame, tuple, now, *number);
                        *number = number.wrapping_add(1);
                    }
                    None => template.fill_udp::<F>(frame, tuple),
                }
                core.counters.udp_tx += 1;
            }
            PacketKind::Syn => {
                template.fill_tcp::<F>(frame, tuple, tcp::first_number(key, now), 0);
                core.counters.tcp_tx += 1;
                core.counters.syn_tx += 1;
            }
            PacketKind::Ack => {
                let number = tcp::first_number(key, now);
                template.fill_tcp::<F>(frame, tuple, number, number.rotate_left(16));
                core.counters.tcp_tx += 1;
            }
        }
        core.exchanged(key, 1, 0);
    }
}
