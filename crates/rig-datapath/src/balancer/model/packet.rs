//! Packets as the rules see them: parsed from and written to the bytes of a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rig_sys::socket::Dscp;
use rig_wire::checksum::{PartialChecksum, update};
use rig_wire::ethernet::Mac;
use rig_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use super::super::encapsulation::{Encapsulation, TunnelHeader, outer_source, source_port};
use super::super::reason::Pass;
use super::super::schedule;

const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const OUTER_TTL: u8 = 64;
const FRAGMENT_HEADER: u8 = 44;

/// Protocol, source and destination of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub(super) protocol: u8,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
}

impl Tuple {
    pub(super) fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.destination, destination: self.source }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Flow {
        tcp_flags: u8,
    },
    /// An ICMP error; the tuple is that of packets which the quoted one answers.
    Error,
}

/// Which part of a packet it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FragmentPosition {
    Whole,
    First,
    Later,
}

/// Of a UDP datagram in fragments; the ports of later ones are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DatagramFragment {
    pub(super) packet: Packet,
    pub(super) id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParsedPacket {
    Packet(Packet),
    Leave(Pass),
    Fragment { to: IpAddr, datagram: Option<DatagramFragment> },
    Options { to: IpAddr },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    pub(super) part: FragmentPosition,
    pub(super) tuple: Tuple,
    pub(super) ttl: u8,
    /// Offsets of the IP header and of what follows it, and bytes of the whole IP packet.
    pub(super) l3: usize,
    pub(super) l4: usize,
    pub(super) length: usize,
}

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn put(bytes: &mut [u8], at: usize, word: u16) {
    bytes[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn v4(bytes: &[u8], at: usize) -> IpAddr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]).into()
}

fn v6(bytes: &[u8], at: usize) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[at..at + 16]);
    Ipv6Addr::from(octets).into()
}

/// Whether it is one that no packet has: IPv4-mapped (RFC 4291, 2.5.5.2).
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub(super) fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> PartialChecksum {
    match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PartialChecksum::pseudo_v4(a, b, protocol, length),
        (IpAddr::V6(a), IpAddr::V6(b)) => PartialChecksum::pseudo_v6(a, b, protocol, length),
        _ => PartialChecksum::ZERO,
    }
}

pub(super) fn parse(frame: &[u8], mac: Mac) -> ParsedPacket {
    if frame.len() < 14 {
        return ParsedPacket::Leave(Pass::NotIp);
    }
    let (mut ethertype, mut l3) = (word(frame, 12), 14);
    if ethertype == 0x8100 {
        if frame.len() < 18 {
            return ParsedPacket::Leave(Pass::NotIp);
        }
        (ethertype, l3) = (word(frame, 16), 18);
    }
    let ip = &frame[l3..];
    if matches!(ethertype, 0x0800 | 0x86dd) && frame[..6] != mac.0 {
        return ParsedPacket::Leave(Pass::OtherMac);
    }
    match ethertype {
        0x0800 => {
            if ip.len() < 20 || ip[0] >> 4 != 4 || ip[0] & 0xf < 5 {
                return ParsedPacket::Leave(Pass::Malformed);
            }
            let (source, to) = (v4(ip, 12), v4(ip, 16));
            if word(ip, 6) & 0x3fff != 0 {
                let is_datagram = ip[0] & 0xf == 5 && ip[9] == UDP;
                let (is_first, id) = (word(ip, 6) & 0x1fff == 0, u32::from(word(ip, 4)));
                let length = usize::from(word(ip, 2));
                let part = || datagram_part(frame, (l3, l3 + 20), length, ip[8], (source, to), is_first);
                let datagram = is_datagram.then(part).flatten().map(|packet| DatagramFragment { packet, id });
                return ParsedPacket::Fragment { to, datagram };
            }
            if ip[0] & 0xf != 5 {
                return ParsedPacket::Options { to };
            }
            parse_l4(frame, l3, 20, usize::from(word(ip, 2)), ip[9], ip[8], (source, to))
        }
        0x86dd => {
            if ip.len() < 40 || ip[0] >> 4 != 6 {
                return ParsedPacket::Leave(Pass::Malformed);
            }
            let (source, to) = (v6(ip, 8), v6(ip, 24));
            if is_mapped(source) || is_mapped(to) {
                return ParsedPacket::Leave(Pass::Malformed);
            }
            match ip[6] {
                FRAGMENT_HEADER => {
                    let header = ip.get(40..48).filter(|header| header[0] == UDP);
                    let datagram = header.and_then(|header| {
                        let is_first = word(header, 2) & 0xfff8 == 0;
                        let id = u32::from(word(header, 4)) << 16 | u32::from(word(header, 6));
                        let length = usize::from(word(ip, 4)) + 40;
                        let packet = datagram_part(frame, (l3, l3 + 48), length, ip[7], (source, to), is_first)?;
                        Some(DatagramFragment { packet, id })
                    });
                    ParsedPacket::Fragment { to, datagram }
                }
                0 | 43 | 60 => ParsedPacket::Options { to },
                next => parse_l4(frame, l3, 40, usize::from(word(ip, 4)) + 40, next, ip[7], (source, to)),
            }
        }
        _ => ParsedPacket::Leave(Pass::NotIp),
    }
}

/// A part of a UDP datagram, of whose headers there is enough.
fn datagram_part(
    frame: &[u8],
    (l3, l4): (usize, usize),
    length: usize,
    ttl: u8,
    (source, destination): (IpAddr, IpAddr),
    is_first: bool,
) -> Option<Packet> {
    if l3 + length <= l4 || l3 + length > frame.len() || is_first && l3 + length < l4 + 8 {
        return None;
    }
    let ports = if is_first { (word(frame, l4), word(frame, l4 + 2)) } else { (0, 0) };
    Some(Packet {
        kind: Kind::Flow { tcp_flags: 0 },
        part: if is_first { FragmentPosition::First } else { FragmentPosition::Later },
        tuple: Tuple {
            protocol: UDP,
            source: SocketAddr::new(source, ports.0),
            destination: SocketAddr::new(destination, ports.1),
        },
        ttl,
        l3,
        l4,
        length,
    })
}

fn parse_l4(
    frame: &[u8],
    l3: usize,
    header: usize,
    length: usize,
    protocol: u8,
    ttl: u8,
    (source, destination): (IpAddr, IpAddr),
) -> ParsedPacket {
    if length < header || l3 + length > frame.len() {
        return ParsedPacket::Leave(Pass::Malformed);
    }
    let l4 = l3 + header;
    // What lies behind the packet's length counts as bytes that are there, and not as the packet's.
    let (bytes, length_l4) = (&frame[l4..], length - header);
    let needs = match protocol {
        TCP => 20,
        UDP => 8,
        ICMP if destination.is_ipv4() => 8,
        ICMPV6 if destination.is_ipv6() => 8,
        _ => return ParsedPacket::Leave(Pass::Protocol),
    };
    if length_l4 < needs {
        return ParsedPacket::Leave(Pass::Malformed);
    }
    let packet =
        |kind, tuple| ParsedPacket::Packet(Packet { kind, part: FragmentPosition::Whole, tuple, ttl, l3, l4, length });
    if protocol == TCP || protocol == UDP {
        let source = SocketAddr::new(source, word(bytes, 0));
        let destination = SocketAddr::new(destination, word(bytes, 2));
        let tcp_flags = if protocol == TCP { bytes[13] } else { 0 };
        return packet(Kind::Flow { tcp_flags }, Tuple { protocol, source, destination });
    }
    let is_error = if protocol == ICMP { matches!(bytes[0], 3 | 11 | 12) } else { matches!(bytes[0], 1..=4) };
    if !is_error {
        return ParsedPacket::Leave(Pass::Protocol);
    }
    match quoted(&bytes[8..], protocol == ICMPV6) {
        Some(tuple) => packet(Kind::Error, tuple.reversed()),
        None => ParsedPacket::Leave(Pass::IcmpUnknown),
    }
}

/// The tuple of the packet that an ICMP error quotes.
fn quoted(bytes: &[u8], ipv6: bool) -> Option<Tuple> {
    let (header, protocol, source, destination) = if ipv6 {
        if bytes.len() < 48 || bytes[0] >> 4 != 6 {
            return None;
        }
        let (header, protocol) = if bytes[6] == FRAGMENT_HEADER { (48, bytes[40]) } else { (40, bytes[6]) };
        if header == 48 && (bytes.len() < 56 || word(bytes, 42) & 0xfff8 != 0) {
            return None;
        }
        (header, protocol, v6(bytes, 8), v6(bytes, 24))
    } else {
        if bytes.len() < 28 || bytes[0] != 0x45 || word(bytes, 6) & 0x1fff != 0 {
            return None;
        }
        (20, bytes[9], v4(bytes, 12), v4(bytes, 16))
    };
    let source = SocketAddr::new(source, word(bytes, header));
    let destination = SocketAddr::new(destination, word(bytes, header + 2));
    let is_handled = protocol == TCP || protocol == UDP;
    let has_mapped = is_mapped(source.ip()) || is_mapped(destination.ip());
    (is_handled && !has_mapped).then_some(Tuple { protocol, source, destination })
}

/// Replaces bytes and keeps a checksum that covers them right (RFC 1624).
fn replace(bytes: &mut [u8], at: usize, new: &[u8], checksum: &mut u16) {
    for (offset, pair) in new.chunks(2).enumerate() {
        let at = at + 2 * offset;
        let new = u16::from_be_bytes([pair[0], pair[1]]);
        *checksum = update(*checksum, word(bytes, at), new);
        put(bytes, at, new);
    }
}

/// Where source and destination stand in an IP header.
fn address_places(ipv6: bool) -> (usize, usize) {
    if ipv6 { (8, 24) } else { (12, 16) }
}

impl Packet {
    pub(super) fn is_ipv6(&self) -> bool {
        self.tuple.source.is_ipv6()
    }

    pub(super) fn set_link(&self, frame: &mut [u8], source: Mac, destination: Mac) {
        frame[..6].copy_from_slice(&destination.0);
        frame[6..12].copy_from_slice(&source.0);
    }

    pub(super) fn decrement_ttl(&self, frame: &mut [u8]) {
        let ip = &mut frame[self.l3..];
        if self.is_ipv6() {
            ip[7] -= 1;
        } else {
            let old = word(ip, 8);
            let checksum = update(word(ip, 10), old, old - 0x100);
            ip[8] -= 1;
            put(ip, 10, checksum);
        }
    }

    /// The upper six bits of TOS or traffic class are these.
    pub(super) fn set_dscp(&self, frame: &mut [u8], dscp: Dscp) {
        let ip = &mut frame[self.l3..];
        let dscp = dscp.type_of_service();
        if self.is_ipv6() {
            ip[0] = ip[0] & 0xf0 | dscp >> 4;
            ip[1] = ip[1] & 0x3f | dscp << 4;
        } else {
            let old = word(ip, 0);
            ip[1] = ip[1] & 3 | dscp;
            let checksum = update(word(ip, 10), old, word(ip, 0));
            put(ip, 10, checksum);
        }
    }

    fn checksum_place(&self) -> usize {
        if self.tuple.protocol == TCP { 16 } else { 6 }
    }

    /// The checksum that `l4` shall have, which a sender may have left unfinished.
    pub(super) fn completed(&self, l4: &[u8]) -> u16 {
        let checksum = word(l4, self.checksum_place());
        let (source, destination) = (self.tuple.source.ip(), self.tuple.destination.ip());
        let pseudo = pseudo(source, destination, self.tuple.protocol, l4.len());
        if checksum != pseudo.folded() || self.part != FragmentPosition::Whole {
            return checksum;
        }
        let mut whole = l4.to_vec();
        put(&mut whole, self.checksum_place(), 0);
        pseudo.bytes(&whole).checksum()
    }

    /// Nothing changes but a checksum that was left unfinished.
    pub(super) fn complete(&self, frame: &mut [u8]) {
        if self.part == FragmentPosition::Later {
            return;
        }
        let l4 = &mut frame[self.l4..self.l3 + self.length];
        let at = self.checksum_place();
        if self.tuple.protocol == TCP || word(l4, at) != 0 {
            let checksum = self.completed(l4);
            put(l4, at, if self.tuple.protocol == UDP && checksum == 0 { 0xffff } else { checksum });
        }
    }

    /// Addresses and ports become those of `to`.
    pub(super) fn translate(&self, frame: &mut [u8], to: Tuple) {
        if self.part == FragmentPosition::Later {
            return self.translate_addresses(frame, to);
        }
        let end = self.l3 + self.length;
        let l4_checksum = self.checksum_place();
        let (l3, l4) = frame[..end].split_at_mut(self.l4);
        let ip = &mut l3[self.l3..];
        let has_checksum = self.tuple.protocol == TCP || word(l4, l4_checksum) != 0;
        let mut checksum = self.completed(l4);
        let mut ip_checksum = if self.is_ipv6() { 0 } else { word(ip, 10) };
        let places = address_places(self.is_ipv6());
        for (at, new) in [(places.0, to.source.ip()), (places.1, to.destination.ip())] {
            let new = octets(new);
            let before = ip[at..at + new.len()].to_vec();
            replace(ip, at, &new, &mut ip_checksum);
            for (old, new) in before.chunks(2).zip(new.chunks(2)) {
                checksum = update(checksum, word(old, 0), word(new, 0));
            }
        }
        if !self.is_ipv6() {
            put(ip, 10, ip_checksum);
        }
        replace(l4, 0, &to.source.port().to_be_bytes(), &mut checksum);
        replace(l4, 2, &to.destination.port().to_be_bytes(), &mut checksum);
        if has_checksum {
            let zero = self.tuple.protocol == UDP && checksum == 0;
            put(l4, l4_checksum, if zero { 0xffff } else { checksum });
        }
    }

    /// Of what has no ports.
    fn translate_addresses(&self, frame: &mut [u8], to: Tuple) {
        let ip = &mut frame[self.l3..];
        let mut checksum = if self.is_ipv6() { 0 } else { word(ip, 10) };
        let places = address_places(self.is_ipv6());
        replace(ip, places.0, &octets(to.source.ip()), &mut checksum);
        replace(ip, places.1, &octets(to.destination.ip()), &mut checksum);
        if !self.is_ipv6() {
            put(ip, 10, checksum);
        }
    }

    /// An ICMP error goes the way of a packet that is translated to `to`; what it quotes went the other way.
    /// Of the IP header of an ICMP error itself.
    pub(super) fn outer_destination(&self, frame: &[u8]) -> IpAddr {
        let ip = &frame[self.l3..];
        if self.is_ipv6() { v6(ip, 24) } else { v4(ip, 16) }
    }

    pub(super) fn translate_error(&self, frame: &mut [u8], to: Tuple, keep_source: bool) {
        let ipv6 = self.is_ipv6();
        let places = address_places(ipv6);
        let (l3, icmp) = frame.split_at_mut(self.l4);
        let ip = &mut l3[self.l3..];
        let mut outer = if ipv6 { 0 } else { word(ip, 10) };
        let mut whole = word(icmp, 2);
        let mut new = vec![(places.1, to.destination.ip())];
        if !keep_source {
            new.push((places.0, to.source.ip()));
        }
        for (at, address) in new {
            let new = octets(address);
            let before = ip[at..at + new.len()].to_vec();
            replace(ip, at, &new, &mut outer);
            if ipv6 {
                // Its checksum covers the addresses.
                for (old, new) in before.chunks(2).zip(new.chunks(2)) {
                    whole = update(whole, word(old, 0), word(new, 0));
                }
            }
        }
        if !ipv6 {
            put(ip, 10, outer);
        }
        let inner = &mut icmp[8..];
        let l4 = match ipv6 {
            true if inner[6] == FRAGMENT_HEADER => 48,
            true => 40,
            false => 20,
        };
        // Changes the quoted packet, its own checksums, and the ICMP error's checksum over all of it.
        let mut edit = |inner: &mut [u8], at: usize, new: &[u8], own: &mut [u16]| {
            for (offset, pair) in new.chunks(2).enumerate() {
                let at = at + 2 * offset;
                let (old, new) = (word(inner, at), word(pair, 0));
                own.iter_mut().for_each(|checksum| *checksum = update(*checksum, old, new));
                whole = update(whole, old, new);
                put(inner, at, new);
            }
        };
        let quoted_checksum = l4 + if self.tuple.protocol == TCP { 16 } else { 6 };
        let enough = if self.tuple.protocol == TCP { 20 } else { 8 };
        let has_checksum =
            inner.len() >= l4 + enough && (self.tuple.protocol == TCP || word(inner, quoted_checksum) != 0);
        let old_l4 = if has_checksum { word(inner, quoted_checksum) } else { 0 };
        let mut own = [if ipv6 { 0 } else { word(inner, 10) }, old_l4];
        edit(inner, places.0, &octets(to.destination.ip()), &mut own);
        edit(inner, places.1, &octets(to.source.ip()), &mut own);
        edit(inner, l4, &to.destination.port().to_be_bytes(), &mut own[1..]);
        edit(inner, l4 + 2, &to.source.port().to_be_bytes(), &mut own[1..]);
        if !ipv6 {
            edit(inner, 10, &own[0].to_be_bytes(), &mut []);
        }
        if has_checksum {
            let zero = self.tuple.protocol == UDP && own[1] == 0;
            let new = if zero { 0xffff_u16 } else { own[1] };
            edit(inner, quoted_checksum, &new.to_be_bytes(), &mut []);
        }
        put(icmp, 2, whole);
    }

    /// An outer header of the packet's own family in front of it, and what is between.
    pub(super) fn encapsulate(&self, frame: &mut Vec<u8>, local: IpAddr, backend: IpAddr, how: Encapsulation) {
        let inner = &frame[self.l3..self.l3 + self.length];
        let flow = schedule::hash_source(self.tuple.source, true);
        let local = outer_source(local, how.source_bits, flow);
        let inside = if self.is_ipv6() { IPV6_IN_IP } else { IPIP };
        let (protocol, between) = match how.header {
            TunnelHeader::IpInIp => (inside, vec![]),
            TunnelHeader::Gre if self.is_ipv6() => (GRE, vec![0, 0, 0x86, 0xdd]),
            TunnelHeader::Gre => (GRE, vec![0, 0, 0x08, 0x00]),
            TunnelHeader::Gue { port, checksum } => {
                let mut udp = source_port(flow).to_be_bytes().to_vec();
                udp.extend(port.get().to_be_bytes());
                udp.extend((self.length as u16 + 12).to_be_bytes());
                udp.extend([0, 0, 0, inside, 0, 0]);
                if checksum {
                    let pseudo = pseudo(local, backend, UDP, self.length + 12);
                    let sum = pseudo.bytes(&udp).bytes(inner).checksum();
                    put(&mut udp, 6, if sum == 0 { 0xffff } else { sum });
                }
                (UDP, udp)
            }
        };
        let mut outer = if self.is_ipv6() {
            let class = inner[0] << 4 | inner[1] >> 4;
            let word = 6 << 28 | u32::from(class) << 20 | (flow & 0xf_ffff).max(1);
            let mut header = word.to_be_bytes().to_vec();
            header.extend(((self.length + between.len()) as u16).to_be_bytes());
            header.extend([protocol, OUTER_TTL]);
            header.extend(octets(local));
            header.extend(octets(backend));
            header
        } else {
            let mut header = vec![0x45, inner[1]];
            header.extend((self.length as u16 + 20 + between.len() as u16).to_be_bytes());
            header.extend([0, 0, 0x40, 0, OUTER_TTL, protocol, 0, 0]);
            header.extend(octets(local));
            header.extend(octets(backend));
            let checksum = rig_wire::checksum::of(&header);
            put(&mut header, 10, checksum);
            header
        };
        outer.extend(between);
        frame.splice(self.l3..self.l3, outer);
    }

    pub(super) fn dont_fragment(&self, frame: &[u8]) -> bool {
        frame[self.l3 + 6] & 0x40 != 0
    }

    /// The frame to the sender of this one that says that `mtu` bytes fit.
    pub(super) fn too_big(&self, frame: &[u8], from: IpAddr, mtu: usize) -> Vec<u8> {
        let to = self.tuple.source.ip();
        let most = if self.is_ipv6() { 1280 - 48 } else { 576 - 28 };
        let quoted = &frame[self.l3..][..self.length.min(most)];
        let mut icmp = if self.is_ipv6() { vec![2, 0, 0, 0] } else { vec![3, 4, 0, 0] };
        icmp.extend((mtu as u32).to_be_bytes());
        icmp.extend(quoted);
        let sum = match (from, to) {
            (IpAddr::V6(from), IpAddr::V6(to)) => PartialChecksum::pseudo_v6(from, to, ICMPV6, icmp.len()),
            _ => PartialChecksum::ZERO,
        };
        let checksum = sum.bytes(&icmp).checksum();
        put(&mut icmp, 2, checksum);
        let mut message = [&frame[6..12], &frame[..6], &frame[12..self.l3]].concat();
        if self.is_ipv6() {
            message.extend([0x60, 0, 0, 0]);
            message.extend((icmp.len() as u16).to_be_bytes());
            message.extend([ICMPV6, OUTER_TTL]);
            message.extend(octets(from));
            message.extend(octets(to));
        } else {
            let mut header = vec![0x45, 0xc0];
            header.extend((icmp.len() as u16 + 20).to_be_bytes());
            header.extend([0, 0, 0, 0, OUTER_TTL, ICMP, 0, 0]);
            header.extend(octets(from));
            header.extend(octets(to));
            let checksum = rig_wire::checksum::of(&header);
            put(&mut header, 10, checksum);
            message.extend(header);
        }
        message.extend(icmp);
        message
    }
}
