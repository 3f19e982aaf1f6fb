//! How backends are told of clients' addresses.

use std::net::IpAddr;

use rig_wire::checksum::update;
use rig_wire::protocol::UDP;

use super::super::config::ClientAddress;
use super::super::reason::Drop;
use super::super::shape::State;
use super::family::MOST_FRAGMENTED;
use super::packet::{FragmentPosition, Kind, Packet};
use super::syn_proxy::{Splice, add, each, edit, first, long, times};
use super::{ACK, Connection, Direction, FIN, Model, RST, SYN, ServiceId};

const TOA: u8 = 254;
const FAST_OPEN: u8 = 34;
const MULTIPATH: u8 = 30;
const URG: u8 = 0x20;
const VOID: u8 = 253;
const MOST_OPTIONS: usize = 40;
const MOST_HEADER: usize = 60;
const LEAST_MSS: u16 = 216;

/// Whether an ICMP error says that a packet was too big.
fn says_too_big(icmp: &[u8], ipv6: bool) -> bool {
    if ipv6 { icmp[0] == 2 } else { icmp[..2] == [3, 4] }
}

fn prefix_bytes(ipv6: bool) -> usize {
    16 + if ipv6 { 36 } else { 12 }
}

/// Of an option, which a datagram has a header for.
fn option_bytes(ipv6: bool, of_datagram: bool) -> usize {
    4 * usize::from(of_datagram) + if ipv6 { 20 } else { 8 }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Makes options void, and lowers an MSS.
fn edit_options(l4: &mut [u8], void: &[u8], lower: Option<u16>) {
    edit(l4, 16, |tcp| {
        for (at, option) in first(tcp, MOST_OPTIONS) {
            match (&option[..], lower) {
                ([kind, _, ..], _) if void.contains(kind) => tcp[at] = VOID,
                ([2, 4, high, low], Some(by)) => {
                    let mss = u16::from_be_bytes([*high, *low]);
                    let lower = if mss >= LEAST_MSS + by { mss - by } else { mss };
                    tcp[at + 2..at + 4].copy_from_slice(&lower.to_be_bytes());
                }
                _ => {}
            }
        }
    });
}

impl Packet {
    /// IP's header says how long it is now. Of a packet that was one of IPv6 routers may fragment those alone that are small.
    fn grow(&mut self, frame: &mut [u8], by: usize, was_ipv6: bool) {
        self.length += by;
        let ip = &mut frame[self.l3..];
        if self.is_ipv6() {
            ip[4..6].copy_from_slice(&((self.length - 40) as u16).to_be_bytes());
        } else {
            let checksum = update(word(ip, 10), word(ip, 2), self.length as u16);
            ip[2..4].copy_from_slice(&(self.length as u16).to_be_bytes());
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            if was_ipv6 && self.length > MOST_FRAGMENTED.into() && word(ip, 6) == 0 {
                let checksum = update(update(checksum, word(ip, 4), 0), 0, 0x4000);
                ip[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
        }
    }
}

impl Model {
    /// The number of a client's SYN.
    pub(super) fn first_number(packet: &Packet, frame: &[u8], splice: Option<Splice>) -> u32 {
        splice.map_or_else(|| long(&frame[packet.l4..], 4), |splice| splice.isn)
    }

    /// Of the nth connection, that number where there is a prefix; for tests.
    pub fn first_number_of(&self, nth: usize) -> Option<u32> {
        self.connections.get(nth)?.prefixed
    }

    /// What a packet of a connection may have to have room for.
    pub(super) fn room_to_tell(&self, at: usize) -> Option<usize> {
        let connection = &self.connections[at];
        let ipv6 = connection.client.is_ipv6();
        let option = option_bytes(ipv6, self.is_of_datagrams(at));
        connection.tells.then(|| connection.prefixed.map_or(option, |_| prefix_bytes(ipv6)))
    }

    /// Whether a connection's service tells backends of its clients by other means than when it began.
    pub(super) fn tells_otherwise(&self, connection: &Connection) -> bool {
        let now = self.services[connection.service.0].service.client_address;
        connection.opted != (now == ClientAddress::Toa)
            || connection.prefixed.is_some() != (now == ClientAddress::ProxyV2)
    }

    /// A packet that is translated, of a connection with a prefix before what its client sends.
    fn shift_prefixed(
        &mut self,
        at: usize,
        isn: u32,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        direction: Direction,
    ) -> Result<(), Drop> {
        let ipv6 = self.connections[at].client.is_ipv6();
        let by = prefix_bytes(ipv6);
        let start = packet.l4;
        let Kind::Flow { tcp_flags } = packet.kind else {
            if direction == Direction::Outward {
                self.tell_of_error(at, Some(isn), packet, frame);
            }
            return Ok(());
        };
        let outward = direction == Direction::Outward;
        if tcp_flags & SYN != 0 {
            let void = [TOA, FAST_OPEN, MULTIPATH];
            edit_options(&mut frame[start..], &void, outward.then_some(by as u16));
            return Ok(());
        }
        if outward {
            if tcp_flags & ACK == 0 {
                return Ok(());
            }
            let behind = long(&frame[start..], 8).wrapping_sub(isn.wrapping_add(1));
            let tells = self.connections[at].tells;
            let less = if tells && behind < by as u32 { behind } else { by as u32 };
            self.connections[at].tells &= behind < by as u32 || tcp_flags & RST != 0 || behind >> 31 == 1;
            edit(&mut frame[start..], 16, |tcp| {
                let options = each(tcp);
                add(tcp, 8, less.wrapping_neg());
                for (at, option) in options.into_iter().filter(|(_, option)| option[0] == 5) {
                    let edges = option.len().saturating_sub(2) / 4;
                    (0..edges.min(8)).for_each(|edge| add(tcp, at + 2 + 4 * edge, (by as u32).wrapping_neg()));
                }
            });
            return Ok(());
        }
        let (connection, behind) = (&self.connections[at], long(&frame[start..], 4).wrapping_sub(isn.wrapping_add(1)));
        if connection.tells && behind >= 1 << 31 {
            let doff = usize::from(frame[start + 12] >> 4) * 4;
            let is_empty = tcp_flags & FIN == 0 && packet.l3 + packet.length - start <= doff;
            return if is_empty { Ok(()) } else { Err(Drop::BeforeFirst) };
        }
        let of_handshake = tcp_flags & RST == 0 || connection.before == State::SynReceived;
        if !connection.tells || behind != 0 || !of_handshake {
            edit(&mut frame[start..], 16, |tcp| add(tcp, 4, by as u32));
            return Ok(());
        }
        let (header, bytes) = (usize::from(frame[start + 12] >> 4) * 4, packet.l3 + packet.length - start);
        if tcp_flags & RST != 0 || header < 20 || header > bytes {
            return Ok(());
        }
        let connection = &self.connections[at];
        let (client, service) = (connection.client, self.services[connection.service.0].service.address);
        let mut prefix = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        prefix.extend([0x21, if ipv6 { 0x21 } else { 0x11 }]);
        prefix.extend((by as u16 - 16).to_be_bytes());
        for end in [client, service] {
            match end.ip() {
                IpAddr::V4(v4) => prefix.extend(v4.octets()),
                IpAddr::V6(v6) => prefix.extend(v6.octets()),
            }
        }
        prefix.extend(client.port().to_be_bytes());
        prefix.extend(service.port().to_be_bytes());
        let mut checksum = update(word(frame, start + 16), bytes as u16, (bytes + by) as u16);
        checksum = prefix.chunks(2).fold(checksum, |checksum, pair| update(checksum, 0, word(pair, 0)));
        if tcp_flags & URG != 0 {
            let (before, after) = (word(frame, start + 18), word(frame, start + 18).saturating_add(by as u16));
            checksum = update(checksum, before, after);
            frame[start + 18..start + 20].copy_from_slice(&after.to_be_bytes());
        }
        frame[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
        frame.splice(start + header..start + header, prefix);
        packet.grow(frame, by, ipv6 && !packet.is_ipv6());
        Ok(())
    }

    /// Where a backend has another connection than before, or a client begins one while the old one closes.
    fn tell_anew(&mut self, at: usize, l4: &[u8], tcp_flags: u8, direction: Direction) -> Result<(), Drop> {
        let connection = &mut self.connections[at];
        let is_told = connection.opted || connection.prefixed.is_some();
        let isn = match (direction, tcp_flags & ACK != 0) {
            (Direction::Outward, true) => long(l4, 8).wrapping_sub(1),
            (Direction::Inward, false) if connection.state == State::SynReceived => long(l4, 4),
            _ => return Ok(()),
        };
        if !is_told || connection.splice.is_some() || tcp_flags & RST != 0 {
            return Ok(());
        }
        let outward = direction == Direction::Outward;
        if connection.tells && connection.answered {
            let another = outward && connection.prefixed.is_some_and(|first| first != isn);
            return if another { Err(Drop::BeforeFirst) } else { Ok(()) };
        }
        connection.tells = true;
        connection.answered = outward;
        connection.prefixed = connection.prefixed.and(Some(isn));
        Ok(())
    }

    /// An error on its way to a client, about a segment that was made larger, or is behind its prefix.
    fn tell_of_error(&self, at: usize, isn: Option<u32>, packet: &Packet, frame: &mut [u8]) {
        let (ipv6, tells_ipv6) = (packet.is_ipv6(), self.connections[at].client.is_ipv6());
        let option = option_bytes(tells_ipv6, self.is_of_datagrams(at));
        let by = isn.map_or(option, |_| prefix_bytes(tells_ipv6)) as u32;
        let tells = self.connections[at].tells;
        edit(&mut frame[packet.l4..], 2, |icmp| {
            if tells && says_too_big(icmp, ipv6) {
                let least = if ipv6 { 1280 } else { 576 };
                let mtu = if ipv6 { long(icmp, 4) } else { long(icmp, 4) & 0xffff };
                icmp[4..8].copy_from_slice(&(mtu.clamp(least, 0xffff) - by).to_be_bytes());
            }
            let quoted = &mut icmp[8 + if ipv6 { 40 } else { 20 }..];
            if quoted.len() >= 8 && isn.is_some_and(|isn| long(quoted, 4).wrapping_sub(isn) > 1) {
                let number = by.wrapping_neg();
                if quoted.len() >= 20 { edit(quoted, 16, |tcp| add(tcp, 4, number)) } else { add(quoted, 4, number) }
            }
        });
    }

    /// By how much a segment grows that tells its backend.
    pub(super) fn address_bytes(&self, service: ServiceId, packet: &Packet) -> usize {
        match (self.services[service.0].service.client_address, packet.is_ipv6()) {
            (ClientAddress::Off, _) => 0,
            (ClientAddress::Toa, ipv6) => option_bytes(ipv6, false),
            (ClientAddress::Uoa, ipv6) => option_bytes(ipv6, true),
            (ClientAddress::ProxyV2, ipv6) => prefix_bytes(ipv6),
        }
    }

    fn is_of_datagrams(&self, at: usize) -> bool {
        self.services[self.connections[at].service.0].service.protocol.number() == UDP
    }

    /// A datagram that is translated tells the backend of its client, or shows that this takes such ones.
    pub(super) fn tell_of_datagram(
        &mut self,
        at: usize,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        (direction, has_room): (Direction, bool),
    ) {
        let connection = &mut self.connections[at];
        let client = connection.client;
        if !connection.tells || packet.part == FragmentPosition::Later {
            return;
        }
        if direction == Direction::Outward {
            connection.tells = false;
            return;
        }
        if !has_room || packet.part != FragmentPosition::Whole {
            self.left_out = true;
            return;
        }
        let by = option_bytes(client.is_ipv6(), true);
        let mut header = vec![if client.is_ipv6() { 0x20 } else { 0x10 }, UDP, 0, by as u8, 31, by as u8 - 4];
        header.extend(client.port().to_be_bytes());
        match client.ip() {
            IpAddr::V4(v4) => header.extend(v4.octets()),
            IpAddr::V6(v6) => header.extend(v6.octets()),
        }
        let ip = &mut frame[packet.l3..];
        if packet.is_ipv6() {
            ip[6] = 248;
        } else {
            let before = word(ip, 8);
            ip[9] = 248;
            let checksum = update(word(ip, 10), before, word(ip, 8));
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        frame.splice(packet.l4..packet.l4, header);
        packet.grow(frame, by, client.is_ipv6() && !packet.is_ipv6());
    }

    /// A packet that is translated tells the backend of its client, or shows that this knows of it.
    pub(super) fn tell(
        &mut self,
        at: usize,
        packet: &mut Packet,
        frame: &mut Vec<u8>,
        direction: Direction,
    ) -> Result<(), Drop> {
        if let Kind::Flow { tcp_flags } = packet.kind
            && tcp_flags & SYN != 0
        {
            self.tell_anew(at, &frame[packet.l4..], tcp_flags, direction)?;
        }
        if let Some(isn) = self.connections[at].prefixed {
            return self.shift_prefixed(at, isn, packet, frame, direction);
        }
        if !self.connections[at].tells {
            return Ok(());
        }
        let ipv6 = self.connections[at].client.is_ipv6();
        let tcp_flags = match packet.kind {
            Kind::Flow { tcp_flags } => tcp_flags,
            Kind::Error => {
                if direction == Direction::Outward {
                    self.tell_of_error(at, None, packet, frame);
                }
                return Ok(());
            }
        };
        let outward = direction == Direction::Outward;
        let answers = tcp_flags & (SYN | ACK) == SYN | ACK;
        if tcp_flags & RST != 0 {
            return Ok(());
        }
        let l4 = packet.l4..packet.l3 + packet.length;
        let doff = usize::from(frame[l4.start + 12] >> 4) * 4;
        if outward && !answers {
            // Where the SYN proxy has made the SYN-ACK something else, that shows nothing.
            let is_empty = tcp_flags & FIN == 0 && l4.len() <= doff;
            self.connections[at].tells &= is_empty || tcp_flags & SYN != 0 || self.changed;
            return Ok(());
        }
        let by = if ipv6 { 20 } else { 8 };
        let full = doff + usize::from(by) > MOST_HEADER;
        let void: &[u8] = match (outward || tcp_flags & SYN == 0, full) {
            (true, _) => &[TOA],
            (false, false) => &[TOA, MULTIPATH],
            (false, true) => &[TOA, MULTIPATH, FAST_OPEN],
        };
        edit_options(&mut frame[l4.start..], void, outward.then_some(by));
        if outward {
            return Ok(());
        }
        let by = usize::from(by);
        if doff < 20 || doff > l4.len() || full && tcp_flags & SYN != 0 {
            self.left_out = true;
            return Ok(());
        }
        let client = self.connections[at].client;
        let mut option = vec![TOA, by as u8];
        option.extend(client.port().to_be_bytes());
        match client.ip() {
            IpAddr::V4(v4) => option.extend(v4.octets()),
            IpAddr::V6(v6) => option.extend(v6.octets()),
        }
        let mut checksum = word(frame, l4.start + 16);
        // A full header loses what is no timestamps.
        let replaced = if full { l4.start + 20..l4.start + doff } else { l4.start + 20..l4.start + 20 };
        if full {
            if let Some((own, echo)) = times(&frame[l4.start..]) {
                option.extend([&[1, 1, 8, 10][..], &own.to_be_bytes(), &echo.to_be_bytes()].concat());
            }
            option.resize(option.len().max(doff - 20), 1);
        }
        let by = option.len() - replaced.len();
        checksum =
            frame[replaced.clone()].chunks(2).fold(checksum, |checksum, pair| update(checksum, word(pair, 0), 0));
        let before = word(frame, l4.start + 12);
        frame[l4.start + 12] += (by as u8 / 4) << 4;
        checksum = update(checksum, before, word(frame, l4.start + 12));
        checksum = update(checksum, l4.len() as u16, (l4.len() + by) as u16);
        checksum = option.chunks(2).fold(checksum, |checksum, pair| update(checksum, 0, word(pair, 0)));
        frame[l4.start + 16..l4.start + 18].copy_from_slice(&checksum.to_be_bytes());
        frame.splice(replaced, option);
        packet.grow(frame, by, ipv6 && !packet.is_ipv6());
        Ok(())
    }
}
