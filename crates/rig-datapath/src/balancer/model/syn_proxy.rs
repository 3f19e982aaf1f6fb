//! The SYN proxy.

use std::net::IpAddr;

use rig_wire::checksum::{PartialChecksum, update};
use rig_wire::protocol::TCP;

use super::super::config::SynProxy;
use super::super::cookie;
use super::super::reason::Drop;
use super::super::shape::{State, TICK_SHIFT};
use super::packet::{Kind, Packet, Tuple};
use super::{ACK, Connection, Direction, FIN, Model, RST, Refusal, SYN, ServiceId};

pub(super) const MSS: [u16; 8] = [216, 536, 1220, 1360, 1400, 1440, 1460, 8940];
const NO_SCALE: u8 = 15;
const OWN_SCALE: u8 = 7;
const OPTIONS: usize = 16;
/// Ticks for which a client is admitted: 10 min.
const ADMITTED: u32 = (600_000_000_000_u64 >> TICK_SHIFT) as u32;

/// What a connection has beside the others where the proxy has opened it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Splice {
    /// The cookie, and once it is open what is added to the backend's numbers.
    number: u32,
    open: bool,
    timestamp: u32,
    pub(super) isn: u32,
    /// Whether windows are scaled, the backend's scale, and how far the client's are shifted.
    scales: Option<(u8, u8)>,
}

#[derive(Debug, Clone, Copy)]
struct Options {
    mss: u16,
    scale: u8,
    may_sack: bool,
    /// The timestamps, own and echoed.
    times: Option<(u32, u32)>,
}

/// The options of a header, each with its place in it: as many as the SYN proxy looks at.
pub(super) fn each(l4: &[u8]) -> Vec<(usize, Vec<u8>)> {
    first(l4, OPTIONS)
}

/// So many of them at most.
pub(super) fn first(l4: &[u8], most: usize) -> Vec<(usize, Vec<u8>)> {
    let end = usize::from(l4[12] >> 4) * 4;
    let (mut at, mut all) = (20, Vec::new());
    while all.len() < most && at < end {
        let length = match l4.get(at) {
            None | Some(0) => break,
            Some(1) => 1,
            Some(_) => match l4.get(at + 1) {
                Some(length) if *length >= 2 && at + usize::from(*length) <= end => usize::from(*length),
                _ => break,
            },
        };
        all.push((at, l4[at..(at + length).min(l4.len())].to_vec()));
        at += length;
    }
    all
}

pub(super) fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The timestamps of a header, own and echoed.
pub(super) fn times(l4: &[u8]) -> Option<(u32, u32)> {
    Options::of(l4).times
}

impl Options {
    fn of(l4: &[u8]) -> Self {
        let mut options = Self { mss: 0, scale: NO_SCALE, may_sack: false, times: None };
        for (_, option) in each(l4) {
            match option[..] {
                [2, 4, high, low] => options.mss = u16::from_be_bytes([high, low]),
                [3, 3, scale] => options.scale = scale.min(14),
                [4, 2] => options.may_sack = true,
                [8, 10, ..] if option.len() == 10 => options.times = Some((long(&option, 2), long(&option, 6))),
                _ => {}
            }
        }
        options
    }

    fn bytes(&self) -> Vec<u8> {
        let may_sack: &[u8] = if self.may_sack { &[4, 2] } else { &[1, 1] };
        let scale = if self.scale == NO_SCALE { [1; 4] } else { [1, 3, 3, self.scale] };
        let mss = [&[2, 4][..], &self.mss.to_be_bytes()].concat();
        match self.times {
            None => [&mss, &[1, 1][..], may_sack, &scale].concat(),
            Some((own, echo)) => [&mss, may_sack, &[8, 10], &own.to_be_bytes(), &echo.to_be_bytes(), &scale].concat(),
        }
    }
}

/// What a segment says beside ports and options.
struct Segment {
    sequence: u32,
    acknowledged: u32,
    flags: u8,
    window: u16,
}

/// A header that a cookie is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie {
    cookie: u32,
    isn: u32,
}

impl Packet {
    fn l4<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[self.l4..]
    }

    /// Makes the frame end behind this header, of TCP, and what follows.
    fn rewrite(&mut self, frame: &mut Vec<u8>, segment: &Segment, options: &[u8], payload: &[u8]) {
        let mut tcp = frame[self.l4..self.l4 + 4].to_vec();
        tcp.extend(segment.sequence.to_be_bytes());
        tcp.extend(segment.acknowledged.to_be_bytes());
        tcp.extend([((20 + options.len() as u8) / 4) << 4, segment.flags]);
        tcp.extend(segment.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(options);
        tcp.extend(payload);
        let (source, destination) = (self.tuple.source.ip(), self.tuple.destination.ip());
        let sum = match (source, destination) {
            (IpAddr::V4(a), IpAddr::V4(b)) => PartialChecksum::pseudo_v4(a, b, TCP, tcp.len()),
            (IpAddr::V6(a), IpAddr::V6(b)) => PartialChecksum::pseudo_v6(a, b, TCP, tcp.len()),
            _ => PartialChecksum::ZERO,
        };
        let checksum = sum.bytes(&tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        frame.truncate(self.l4);
        frame.extend(&tcp);
        self.length = frame.len() - self.l3;
        let ip = &mut frame[self.l3..];
        if self.is_ipv6() {
            ip[4..6].copy_from_slice(&(tcp.len() as u16).to_be_bytes());
        } else {
            let word = |ip: &[u8], at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
            let checksum = update(word(ip, 10), word(ip, 2), self.length as u16);
            ip[2..4].copy_from_slice(&(self.length as u16).to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        self.kind = Kind::Flow { tcp_flags: segment.flags };
    }

    /// Back to where it came from.
    fn turn_round(&self, frame: &mut [u8]) {
        let (to, from) = frame[..12].split_at_mut(6);
        to.swap_with_slice(from);
        let ip = &mut frame[self.l3..self.l4];
        if self.is_ipv6() {
            ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
            ip[7] = 64;
            let (source, destination) = ip[8..40].split_at_mut(16);
            source.swap_with_slice(destination);
        } else {
            ip[1] = 0;
            ip[4..9].copy_from_slice(&[0, 0, 0x40, 0, 64]);
            let (source, destination) = ip[12..20].split_at_mut(4);
            source.swap_with_slice(destination);
            ip[10..12].fill(0);
            let checksum = rig_wire::checksum::of(ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let (source, destination) = frame[self.l4..self.l4 + 4].split_at_mut(2);
        source.swap_with_slice(destination);
    }
}

/// Changes bytes that a checksum at `at` covers, which stays right.
pub(super) fn edit(bytes: &mut [u8], at: usize, change: impl FnOnce(&mut [u8])) {
    let before = bytes.to_vec();
    change(bytes);
    let mut checksum = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    for (old, new) in before.chunks_exact(2).zip(bytes.chunks_exact(2)) {
        if old != new {
            checksum = update(checksum, u16::from_be_bytes([old[0], old[1]]), u16::from_be_bytes([new[0], new[1]]));
        }
    }
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

pub(super) fn add(bytes: &mut [u8], at: usize, what: u32) {
    let sum = long(bytes, at).wrapping_add(what);
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
}

impl Splice {
    /// The numbers of a segment that is forwarded.
    pub(super) fn shift(&self, frame: &mut [u8], packet: &Packet, direction: Direction) {
        let Kind::Flow { tcp_flags } = packet.kind else { return };
        if !self.open {
            return;
        }
        edit(&mut frame[packet.l4..], 16, |tcp| {
            let inward = direction == Direction::Inward;
            let options = each(tcp);
            if !inward {
                add(tcp, 4, self.number);
            } else if tcp_flags & ACK != 0 {
                add(tcp, 8, self.number.wrapping_neg());
            }
            if let Some((out, of_client)) = self.scales {
                let window = u32::from(u16::from_be_bytes([tcp[14], tcp[15]]));
                let wide = if inward { window << of_client } else { window << out >> OWN_SCALE };
                tcp[14..16].copy_from_slice(&(wide.min(0xffff) as u16).to_be_bytes());
            }
            for (at, option) in options {
                match option[..] {
                    [8, 10, ..] if option.len() == 10 && !inward => add(tcp, at + 2, self.timestamp),
                    [8, 10, ..] if option.len() == 10 && tcp_flags & ACK != 0 => {
                        add(tcp, at + 6, self.timestamp.wrapping_neg());
                    }
                    [5, ..] if inward && tcp_flags & ACK != 0 => {
                        let edges = option.len().saturating_sub(2) / 4;
                        (0..edges.min(8)).for_each(|edge| add(tcp, at + 2 + 4 * edge, self.number.wrapping_neg()));
                    }
                    _ => {}
                }
            }
        });
    }

    /// The number of the backend's packet that an error to the backend quotes.
    pub(super) fn shift_quoted(&self, frame: &mut [u8], packet: &Packet) {
        if !self.open {
            return;
        }
        edit(&mut frame[packet.l4..], 2, |icmp| {
            let quoted = &mut icmp[8 + if packet.is_ipv6() { 40 } else { 20 }..];
            let number = self.number.wrapping_neg();
            if quoted.len() >= 20 { edit(quoted, 16, |tcp| add(tcp, 4, number)) } else { add(quoted, 4, number) }
        });
    }
}

impl Model {
    /// Whether SYNs of a service are answered here now.
    pub(super) fn is_proxying(&self, service: ServiceId) -> bool {
        // Who was not asked and got an answer resets it; a backend's reset is an answer.
        let is_reset = |of: &Connection| of.state == State::Close && of.before == State::SynReceived && !of.refused;
        let is_waiting = |of: &Connection| of.state == State::SynReceived || is_reset(of);
        let waits = |of: &&Connection| of.service == service && of.counted && is_waiting(of);
        match self.services[service.0].service.syn_proxy {
            SynProxy::Off => false,
            SynProxy::Always => true,
            SynProxy::Auto { from } => self.connections.iter().filter(waits).count() >= from.get() as usize,
        }
    }

    pub(super) fn takes_cookies(&self, service: ServiceId) -> bool {
        let service = &self.services[service.0].service;
        service.forward.translates() && service.syn_proxy != SynProxy::Off
    }

    /// Whether addresses of a service's clients only have to answer.
    fn only_asks(&self, service: ServiceId) -> bool {
        let service = &self.services[service.0].service;
        !service.forward.translates() && service.syn_proxy != SynProxy::Off
    }

    /// Whether a client's has.
    pub(super) fn is_admitted(&self, service: ServiceId, client: IpAddr, tick: u32) -> bool {
        self.only_asks(service) && self.admitted.get(&client).is_some_and(|until| *until > tick)
    }

    /// Takes a reset by which an address answers.
    pub(super) fn admit(&mut self, packet: &Packet, frame: &[u8], tick: u32) -> Result<(), Refusal> {
        let is_lone_reset =
            matches!(packet.kind, Kind::Flow { tcp_flags } if tcp_flags & (SYN | ACK | RST | FIN) == RST);
        let service = self.service_of(packet).filter(|service| self.only_asks(*service));
        if !is_lone_reset || packet.tuple.protocol != TCP || service.is_none() {
            return Ok(());
        }
        let number = long(packet.l4(frame), 4);
        let Tuple { source, destination, .. } = packet.tuple;
        let is_asked =
            |epoch: &u64| cookie::challenge(cookie::key(self.secret, *epoch), *epoch, source, destination) == number;
        if ![self.epoch - 1, self.epoch, self.epoch + 1].iter().any(is_asked) {
            return Ok(());
        }
        self.admitted.insert(source.ip(), tick + ADMITTED);
        Err(Drop::Admitted.into())
    }

    /// The answer to a SYN.
    pub(super) fn answer(&self, packet: &Packet, frame: &[u8], tick: u32) -> Refusal {
        let told = self.service_of(packet).map_or(0, |service| self.address_bytes(service, packet));
        let l4 = packet.l4(frame);
        let options = Options::of(l4);
        let isn = long(l4, 4);
        let ipv6 = packet.is_ipv6();
        let mss = if options.mss > 0 { options.mss } else { [536, 1220][usize::from(ipv6)] };
        let number = MSS.iter().filter(|least| mss >= **least).count().saturating_sub(1) as u32;
        let key = cookie::key(self.secret, self.epoch);
        let cookie = cookie::hash(key, packet.tuple.source, packet.tuple.destination, isn)
            | number << 22
            | u32::from(options.may_sack) << 25
            | u32::from(options.scale) << 26
            | (self.epoch as u32) << 30;
        let offer = Options {
            mss: if ipv6 { 1440 } else { 1460 } - told as u16,
            scale: if options.scale == NO_SCALE { NO_SCALE } else { OWN_SCALE },
            times: options.times.map(|(own, _)| (tick << 7 | 1, own)),
            ..options
        };
        let (sequence, acknowledged) = match self.service_of(packet) {
            Some(service) if self.only_asks(service) => {
                (0, cookie::challenge(key, self.epoch, packet.tuple.source, packet.tuple.destination))
            }
            _ => (cookie, isn.wrapping_add(1)),
        };
        let segment = Segment { sequence, acknowledged, flags: SYN | ACK, window: 0 };
        let (mut packet, mut frame) = (*packet, frame.to_vec());
        packet.rewrite(&mut frame, &segment, &offer.bytes(), &[]);
        packet.turn_round(&mut frame);
        Refusal::SynAnswered(frame)
    }

    /// The cookie that a packet acknowledges.
    pub(super) fn cookie(&self, packet: &Packet, frame: &[u8]) -> Option<Cookie> {
        let Kind::Flow { tcp_flags } = packet.kind else { return None };
        if packet.tuple.protocol != TCP || tcp_flags & (ACK | SYN | RST) != ACK {
            return None;
        }
        let l4 = packet.l4(frame);
        let (sequence, cookie) = (long(l4, 4), long(l4, 8).wrapping_sub(1));
        let nearby = [self.epoch - 1, self.epoch, self.epoch + 1];
        let epoch = nearby.into_iter().find(|epoch| *epoch as u32 % 4 == cookie >> 30)?;
        let key = cookie::key(self.secret, epoch);
        let is =
            |isn: &u32| cookie::hash(key, packet.tuple.source, packet.tuple.destination, *isn) == cookie & 0x3f_ffff;
        let isn = [sequence.wrapping_sub(1), sequence].into_iter().find(is)?;
        Some(Cookie { cookie, isn })
    }

    pub(super) fn splice(packet: &Packet, frame: &[u8], Cookie { cookie, isn }: Cookie) -> Splice {
        let echo = Options::of(packet.l4(frame)).times.map_or(0, |(_, echo)| echo);
        Splice { number: cookie, open: false, timestamp: echo, isn, scales: None }
    }

    /// Makes of a client's packet the SYN to its backend.
    pub(super) fn make_syn(packet: &mut Packet, frame: &mut Vec<u8>, Cookie { cookie, isn }: Cookie) {
        let l4 = packet.l4(frame);
        let times = Options::of(l4).times;
        let scale = (cookie >> 26 & 15) as u8;
        let window = u32::from(u16::from_be_bytes([l4[14], l4[15]]));
        let window = if scale == NO_SCALE { window } else { (window << scale).min(0xffff) };
        let offer = Options {
            mss: MSS[(cookie >> 22 & 7) as usize],
            scale,
            may_sack: cookie >> 25 & 1 == 1,
            times: times.map(|(own, _)| (own, 0)),
        };
        let segment = Segment { sequence: isn, acknowledged: 0, flags: SYN, window: window as u16 };
        packet.rewrite(frame, &segment, &offer.bytes(), &[]);
    }

    /// What is done with a packet of a connection that the proxy has opened, before it is forwarded.
    pub(super) fn step(
        &mut self,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        (at, direction): (usize, Direction),
        tick: u32,
    ) -> Result<(), Refusal> {
        let seen = self.connections[at].seen;
        let (Some(splice), Kind::Flow { tcp_flags }) = (&mut self.connections[at].splice, packet.kind) else {
            return Ok(());
        };
        let l4 = packet.l4(frame).to_vec();
        let (sequence, acknowledged) = (long(&l4, 4), long(&l4, 8));
        if direction == Direction::Inward {
            if splice.open || tcp_flags & RST != 0 {
                return Ok(());
            }
            let cookie = Cookie { cookie: splice.number, isn: splice.isn };
            let is_its = acknowledged.wrapping_sub(1) == splice.number && sequence.wrapping_sub(splice.isn) <= 1;
            if tcp_flags & SYN != 0 || !is_its || seen == tick {
                return Err(Drop::ProxyWaits.into());
            }
            self.changed = true;
            Self::make_syn(packet, frame, cookie);
            return Ok(());
        }
        let answers = tcp_flags & ACK != 0 && acknowledged == splice.isn.wrapping_add(1);
        if tcp_flags & RST != 0 {
            if !splice.open && !answers {
                return Err(Drop::ProxyWaits.into());
            }
            splice.open(sequence, NO_SCALE);
            return Ok(());
        }
        let open = splice.open;
        if tcp_flags & (SYN | ACK) == SYN | ACK && !answers {
            if open {
                self.end(at, tick);
            }
            return Err(Self::reset(packet, frame, acknowledged));
        }
        if tcp_flags & (SYN | ACK) != SYN | ACK {
            return match tcp_flags & ACK != 0 && !answers {
                _ if open => Ok(()),
                true => Err(Self::reset(packet, frame, acknowledged)),
                false => Err(Drop::ProxyWaits.into()),
            };
        }
        let options = Options::of(&l4);
        if !open {
            splice.timestamp = splice.timestamp.wrapping_sub(options.times.map_or(0, |(own, _)| own));
            splice.open(sequence.wrapping_add(1), options.scale);
        }
        let window = u16::from_be_bytes([l4[14], l4[15]]);
        let window = if options.scale == NO_SCALE { window } else { window >> options.scale };
        let segment = Segment { sequence, acknowledged, flags: ACK, window };
        let times = options
            .times
            .map_or(Vec::new(), |(own, echo)| [&[1, 1, 8, 10][..], &own.to_be_bytes(), &echo.to_be_bytes()].concat());
        self.changed = true;
        packet.rewrite(frame, &segment, &times, &[0]);
        Ok(())
    }

    /// The reset to a backend that has another connection.
    fn reset(packet: &Packet, frame: &[u8], sequence: u32) -> Refusal {
        let (mut packet, mut frame) = (*packet, frame.to_vec());
        let segment = Segment { sequence, acknowledged: 0, flags: RST, window: 0 };
        packet.rewrite(&mut frame, &segment, &[], &[]);
        packet.turn_round(&mut frame);
        Refusal::Reset(frame)
    }

    /// Whether a client's packet is of another connection than the one that there is, which it takes the place of.
    pub(super) fn replaces(&self, at: usize, packet: &Packet, frame: &[u8]) -> bool {
        let (connection, Kind::Flow { tcp_flags }) = (&self.connections[at], packet.kind) else { return false };
        if packet.tuple.protocol != TCP || packet.ttl <= 1 {
            return false;
        }
        let splice = connection.splice;
        let waits = splice.is_some_and(|splice| !splice.open);
        if waits && tcp_flags & (SYN | ACK | RST | FIN) == SYN {
            return splice.is_some_and(|splice| splice.isn != long(packet.l4(frame), 4));
        }
        let over = matches!(connection.state, State::TimeWait | State::Close);
        if !(waits || over) || !self.takes_cookies(connection.service) {
            return false;
        }
        let drained = waits && self.backends[connection.backend].weight == 0;
        let other = |cookie: Cookie| splice.is_none_or(|splice| splice.isn != cookie.isn);
        self.cookie(packet, frame).is_some_and(|cookie| drained || other(cookie))
    }

    /// Of the nth connection, the number of its client's SYN while its backend has not answered; for tests.
    pub fn waits_for_backend(&self, nth: usize) -> Option<u32> {
        self.connections.get(nth)?.splice.filter(|splice| !splice.open).map(|splice| splice.isn)
    }
}

impl Splice {
    fn open(&mut self, next: u32, scale: u8) {
        if self.open {
            return;
        }
        let offered = (self.number >> 26 & 15) as u8;
        self.scales = (offered != NO_SCALE).then_some(if scale == NO_SCALE { (0, offered) } else { (scale, 0) });
        self.number = self.number.wrapping_add(1).wrapping_sub(next);
        self.open = true;
    }
}
