//! Packets between a client of IPv6 and a backend of IPv4 (RFC 7915).

use std::net::IpAddr;

use rig_wire::checksum::update;
use rig_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use super::super::reason::Drop;
use super::IPV6_LEAST_MTU;
use super::packet::{Packet, Tuple, octets, pseudo, put, word};

/// Bytes that a packet of IPv4 may have and be fragmented by routers.
pub(super) const MOST_FRAGMENTED: u16 = 1260;
const V4: usize = 20;
const V6: usize = 40;

/// What both families' headers say.
struct Header {
    class: u8,
    ttl: u8,
    protocol: u8,
    /// Behind it.
    bytes: u16,
}

impl Header {
    fn of(ip: &[u8]) -> Self {
        if ip[0] >> 4 == 6 {
            Self { class: ip[0] << 4 | ip[1] >> 4, ttl: ip[7], protocol: ip[6], bytes: word(ip, 4) }
        } else {
            Self { class: ip[1], ttl: ip[8], protocol: ip[9], bytes: word(ip, 2).wrapping_sub(V4 as u16) }
        }
    }

    fn written(&self, source: IpAddr, destination: IpAddr, id: u16) -> Vec<u8> {
        let addresses = [octets(source), octets(destination)].concat();
        if source.is_ipv6() {
            let first = (6_u32 << 28 | u32::from(self.class) << 20).to_be_bytes();
            return [&first[..], &self.bytes.to_be_bytes(), &[self.protocol, self.ttl], &addresses].concat();
        }
        let bytes = self.bytes.wrapping_add(V4 as u16);
        let (id, flags) = if bytes > MOST_FRAGMENTED { (0, 0x4000_u16) } else { (id, 0) };
        let words = [bytes.to_be_bytes(), id.to_be_bytes(), flags.to_be_bytes()].concat();
        let mut header = [&[0x45, self.class][..], &words, &[self.ttl, self.protocol, 0, 0], &addresses].concat();
        let checksum = rig_wire::checksum::of(&header);
        put(&mut header, 10, checksum);
        header
    }
}

/// A checksum from which bytes go, and to which others come, at even places.
fn exchange(checksum: u16, gone: &[u8], come: &[u8]) -> u16 {
    let word = |pair: &[u8]| u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
    let without = gone.chunks(2).fold(checksum, |checksum, pair| update(checksum, word(pair), 0));
    come.chunks(2).fold(without, |checksum, pair| update(checksum, 0, word(pair)))
}

/// What a checksum of TCP or UDP covers that is translated.
fn ends(of: Tuple) -> Vec<u8> {
    let ports = [of.source.port().to_be_bytes(), of.destination.port().to_be_bytes()].concat();
    [octets(of.source.ip()), octets(of.destination.ip()), ports].concat()
}

/// Type, code and the rest of an error of IPv4 as one of IPv6.
fn as_v6(icmp: &[u8]) -> Option<(u8, u8, u32)> {
    let mtu = u32::from(word(icmp, 6)).max(576) + 20;
    Some(match (icmp[0], icmp[1]) {
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => (2, 0, mtu.max(IPV6_LEAST_MTU as u32)),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (3, 0..=13) => (1, 0, 0),
        (11, code) => (3, code, 0),
        (12, 0 | 2) => {
            let pointer = match icmp[4] {
                same @ 0..=1 => same,
                2..=3 => 4,
                8 => 7,
                9 => 6,
                12..=15 => 8,
                16..=19 => 24,
                _ => return None,
            };
            (4, 0, pointer.into())
        }
        _ => return None,
    })
}

/// The other way.
fn as_v4(icmp: &[u8]) -> Option<(u8, u8, u32)> {
    let rest = u32::from(word(icmp, 4)) << 16 | u32::from(word(icmp, 6));
    Some(match (icmp[0], icmp[1]) {
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (1, 0..=3) => (3, 1, 0),
        (2, _) => (3, 4, rest.clamp(IPV6_LEAST_MTU as u32, 0xffff) - 20),
        (3, code) => (11, code, 0),
        (4, 1) => (3, 2, 0),
        (4, 0) => {
            let pointer = match rest {
                0..=1 => rest,
                4..=5 => 2,
                6 => 9,
                7 => 8,
                8..=23 => 12,
                24..=39 => 16,
                _ => return None,
            };
            (12, 0, pointer << 24)
        }
        _ => return None,
    })
}

impl Packet {
    fn header_bytes(&self) -> usize {
        if self.is_ipv6() { V6 } else { V4 }
    }

    /// The header of IP is this one now, of a packet with these ends.
    fn replace_header(&mut self, frame: &mut Vec<u8>, header: &Header, to: Tuple, id: u16) {
        let written = header.written(to.source.ip(), to.destination.ip(), id);
        let kind = if to.source.is_ipv6() { [0x86, 0xdd] } else { [0x08, 0x00] };
        frame[self.l3 - 2..self.l3].copy_from_slice(&kind);
        frame.splice(self.l3..self.l4, written);
        self.tuple = to;
        self.l4 = self.l3 + self.header_bytes();
        self.length = self.header_bytes() + usize::from(header.bytes);
    }

    /// Whether it can be of the other family: of a datagram without a checksum IP and UDP have to say the same length.
    fn has_equal(&self, frame: &[u8]) -> bool {
        let length = self.length - (self.l4 - self.l3);
        let l4 = &frame[self.l4..];
        self.tuple.protocol == TCP || word(l4, 6) != 0 || usize::from(word(l4, 4)) == length
    }

    /// A packet of the other family, with these ends.
    pub(super) fn change_family(&mut self, frame: &mut Vec<u8>, to: Tuple) -> Result<(), Drop> {
        if !self.has_equal(frame) {
            return Err(Drop::NoEqual);
        }
        let (header, place) = (Header::of(&frame[self.l3..]), if self.tuple.protocol == TCP { 16 } else { 6 });
        let l4 = &mut frame[self.l4..self.l3 + self.length];
        let is_summed = self.tuple.protocol == TCP || word(l4, place) != 0;
        let mut checksum = exchange(self.completed(l4), &ends(self.tuple), &ends(to));
        put(l4, 0, to.source.port());
        put(l4, 2, to.destination.port());
        if !is_summed {
            checksum = pseudo(to.source.ip(), to.destination.ip(), UDP, l4.len()).bytes(l4).checksum();
        }
        if self.tuple.protocol == UDP && checksum == 0 {
            checksum = 0xffff;
        }
        put(l4, place, checksum);
        self.replace_header(frame, &header, to, checksum);
        Ok(())
    }

    /// An ICMP error of the other family, that goes the way of a packet with these ends; what it quotes went the other way.
    pub(super) fn change_family_of_error(&mut self, frame: &mut Vec<u8>, to: Tuple) -> Result<(), Drop> {
        let (header, icmp) = (self.header_bytes(), &frame[self.l4..]);
        let (mut outer, inner) = (Header::of(&frame[self.l3..]), Header::of(&icmp[8..]));
        let said = if self.is_ipv6() { as_v4(icmp) } else { as_v6(icmp) };
        let (kind, code, rest) = said.filter(|_| inner.protocol == self.tuple.protocol).ok_or(Drop::NoEqual)?;
        let id = word(icmp, 2);
        let addresses = frame[self.l4 - if self.is_ipv6() { 32 } else { 8 }..self.l4].to_vec();

        // The quoted ports and checksum, where they are.
        let icmp = &mut frame[self.l4..];
        let mut sum = id;
        let (place, least) = if self.tuple.protocol == TCP { (16, 20) } else { (6, 8) };
        let quoted = &mut icmp[8 + header..];
        let before = quoted.to_vec();
        if quoted.len() >= least && (self.tuple.protocol == TCP || word(quoted, place) != 0) {
            let own = exchange(word(quoted, place), &ends(self.tuple.reversed()), &ends(to.reversed()));
            put(quoted, place, if self.tuple.protocol == UDP && own == 0 { 0xffff } else { own });
        }
        put(quoted, 0, to.destination.port());
        put(quoted, 2, to.source.port());
        let even = before.len() / 2 * 2;
        sum = exchange(sum, &before[..even], &quoted[..even]);

        // What does not fit any more.
        let most = IPV6_LEAST_MTU - 2 * (V6 - V4);
        if !self.is_ipv6() && self.length > most {
            sum = exchange(sum, &frame[self.l3 + most..self.l3 + self.length], &[]);
            frame.truncate(self.l3 + most);
            self.length = most;
        }

        let pseudo = |addresses: &[u8], bytes: u16| [addresses, &bytes.to_be_bytes(), &[0, ICMPV6]].concat();
        let own =
            |frame: &[u8], at: usize, header: usize| [&frame[at..at + 2], &frame[at + 4..at + 8 + header]].concat();
        sum = exchange(sum, &own(frame, self.l4, header), &[]);
        if self.is_ipv6() {
            sum = exchange(sum, &pseudo(&addresses, outer.bytes), &[]);
        }
        outer.bytes = (self.length - header) as u16;
        outer.bytes = if self.is_ipv6() { outer.bytes - 20 } else { outer.bytes + 20 };
        outer.protocol = if self.is_ipv6() { ICMP } else { ICMPV6 };
        let message = [&[kind, code, 0, 0][..], &rest.to_be_bytes()].concat();
        let quoted = inner.written(to.destination.ip(), to.source.ip(), 0);
        frame.splice(self.l4..self.l4 + 8 + header, [message, quoted].concat());
        self.replace_header(frame, &outer, to, id);
        sum = exchange(sum, &[], &own(frame, self.l4, self.header_bytes()));
        if self.is_ipv6() {
            let ends = [octets(to.source.ip()), octets(to.destination.ip())].concat();
            sum = exchange(sum, &[], &pseudo(&ends, outer.bytes));
        }
        put(frame, self.l4 + 2, sum);
        Ok(())
    }
}
