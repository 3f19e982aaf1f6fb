//! A container's packet as rules and routes see it: IPv4 (RFC 791) and IPv6 (RFC 8200), and what tells flows apart.
//!
//! A packet is as long as its own header says; what the frame has behind that is the link's padding.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rig_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use super::super::reason::Reason;

// IPv6 extension headers (RFC 8200, 4; RFC 4302).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT_HEADER: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const IGMP: u8 = 2;
const LEAST_IPV4: usize = 20;
const IPV6: usize = 40;
/// Type, code, checksum and the four bytes that each kind of message has in its own way (RFC 792).
const ICMP_HEADER: usize = 8;

/// Protocol, source and destination. Of ICMP see [`icmp_ports`]; protocols without ports have 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Tuple {
    pub(super) protocol: u8,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
}

impl Tuple {
    pub(super) fn reversed(self) -> Self {
        Self {
            protocol: self.protocol,
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// Of packets that come in pieces: those behind the first do not have the ports.
    pub(super) fn without_ports(self) -> Self {
        Self { source_port: 0, destination_port: 0, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) identification: u32,
    /// Behind the first, so without the header of the protocol above.
    pub(super) later: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    /// Of an ICMP error: that of the packets which the quoted one answers, so that it is of the same flow.
    pub(super) tuple: Tuple,
    /// The protocol of the packet itself.
    pub(super) protocol: u8,
    /// Bytes of the IP packet, and of its header with all that is in front of the protocol above.
    pub(super) length: usize,
    pub(super) header: usize,
    /// DSCP and ECN.
    pub(super) class: u8,
    pub(super) ttl: u8,
    pub(super) tcp_flags: u8,
    /// Type of ICMP or IGMP; of an error about a query, the type of the query's answer.
    pub(super) icmp: u8,
    pub(super) is_error: bool,
    pub(super) may_fragment: bool,
    pub(super) fragment: Option<Fragment>,
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn v4(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from_bits(long(bytes, at)?))
}

pub(super) fn v6(bytes: &[u8], at: usize) -> Option<Ipv6Addr> {
    let octets: [u8; 16] = bytes.get(at..at + 16)?.try_into().ok()?;
    Some(octets.into())
}

impl Packet {
    pub(super) fn is_v6(&self) -> bool {
        self.tuple.source.is_ipv6()
    }

    pub(super) fn is_later(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.later)
    }

    /// ICMP of the packet's own family.
    pub(super) fn is_icmp(&self) -> bool {
        self.protocol == if self.is_v6() { ICMPV6 } else { ICMP }
    }

    /// The tuple that decides between several ways, where no flow is kept.
    pub(super) fn spread_by(&self) -> Tuple {
        if self.fragment.is_some() { self.tuple.without_ports() } else { self.tuple }
    }

    /// `bytes` begin with the IP header, and go on to the frame's end.
    pub(super) fn parse(bytes: &[u8], is_v6: bool) -> Result<Self, Reason> {
        let packet = if is_v6 { Self::parse_v6(bytes) } else { Self::parse_v4(bytes) };
        let mut packet = packet.ok_or(Reason::InvalidPacket)?;
        let whole = bytes.get(..packet.length).ok_or(Reason::InvalidPacket)?;
        let above = whole.get(packet.header..).ok_or(Reason::InvalidPacket)?;
        if !packet.is_later() {
            packet.look_above(above).ok_or(Reason::InvalidPacket)?;
        }
        Ok(packet)
    }

    fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        Self {
            tuple: Tuple { protocol, source, destination, source_port: 0, destination_port: 0 },
            protocol,
            length: 0,
            header: 0,
            class: 0,
            ttl: 0,
            tcp_flags: 0,
            icmp: 0,
            is_error: false,
            may_fragment: false,
            fragment: None,
        }
    }

    fn parse_v4(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let header = usize::from(first & 0x0f) * 4;
        if first >> 4 != 4 || header < LEAST_IPV4 || bytes.len() < LEAST_IPV4 {
            return None;
        }
        let offset = word(bytes, 6)?;
        let fragment = (offset & 0x3fff != 0)
            .then_some(Fragment { identification: word(bytes, 4)?.into(), later: offset & 0x1fff != 0 });
        Some(Self {
            length: word(bytes, 2)?.into(),
            header,
            class: bytes[1],
            ttl: bytes[8],
            may_fragment: offset & 0x4000 == 0,
            fragment,
            ..Self::new(v4(bytes, 12)?.into(), v4(bytes, 16)?.into(), bytes[9])
        })
    }

    fn parse_v6(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < IPV6 || bytes[0] >> 4 != 6 {
            return None;
        }
        let (source, destination) = (v6(bytes, 8)?, v6(bytes, 24)?);
        // Not on the wire: that would be IPv4's addresses by another name.
        if source.to_ipv4_mapped().is_some() || destination.to_ipv4_mapped().is_some() {
            return None;
        }
        let (header, protocol, fragment) = behind_extensions(bytes)?;
        Some(Self {
            length: usize::from(word(bytes, 4)?) + IPV6,
            header,
            class: (word(bytes, 0)? >> 4) as u8,
            ttl: bytes[7],
            fragment,
            ..Self::new(source.into(), destination.into(), protocol)
        })
    }

    /// Of TCP, UDP and ICMP the whole header has to be there.
    fn look_above(&mut self, above: &[u8]) -> Option<()> {
        match self.protocol {
            TCP => {
                // Its length, in words, is not less than that of the header without options (RFC 9293, 3.1).
                if above.len() < 20 || above[12] >> 4 < 5 {
                    return None;
                }
                self.tcp_flags = above[13];
                (self.tuple.source_port, self.tuple.destination_port) = (word(above, 0)?, word(above, 2)?);
            }
            UDP => {
                above.get(..8)?;
                (self.tuple.source_port, self.tuple.destination_port) = (word(above, 0)?, word(above, 2)?);
            }
            _ if self.is_icmp() => {
                self.icmp = *above.get(..ICMP_HEADER)?.first()?;
                if is_error(self.icmp, self.is_v6()) {
                    return self.look_into_quoted(&above[ICMP_HEADER..]);
                }
                let id = word(above, 4)?;
                (self.tuple.source_port, self.tuple.destination_port) = icmp_ports(self.icmp, self.is_v6(), id);
            }
            IGMP if !self.is_v6() => self.icmp = *above.first()?,
            _ => {}
        }
        Some(())
    }

    /// What tells of addresses, routers and queriers is not forwarded (RFC 4861, RFC 3376, RFC 3810; DHCP by RFC 2131 and RFC 8415).
    pub(super) fn is_for_others(&self, serves_dhcp: bool) -> Result<(), Reason> {
        if self.is_error || self.is_later() {
            return Ok(());
        }
        let ports = (self.tuple.source_port, self.tuple.destination_port);
        let claims = match (self.protocol, self.is_v6()) {
            (ICMPV6, true) if matches!(self.icmp, 133 | 135) => return Err(Reason::Unanswered),
            (ICMPV6, true) => matches!(self.icmp, 130 | 134 | 136 | 137),
            // Redirects and router advertisements (RFC 792, RFC 1256).
            (ICMP, false) => matches!(self.icmp, 5 | 9),
            (IGMP, false) => self.icmp == 0x11,
            (UDP, is_v6) => !serves_dhcp && ports == if is_v6 { (547, 546) } else { (67, 68) },
            _ => false,
        };
        if claims { Err(Reason::Claim) } else { Ok(()) }
    }

    /// An error is about a packet of its receiver; its header and 8 bytes of what is behind are there (RFC 792).
    fn look_into_quoted(&mut self, quoted: &[u8]) -> Option<()> {
        let (protocol, source, destination, ports): (u8, IpAddr, IpAddr, _) = if self.is_v6() {
            (quoted.first()? >> 4 == 6).then_some(())?;
            (*quoted.get(6)?, v6(quoted, 8)?.into(), v6(quoted, 24)?.into(), quoted.get(IPV6..IPV6 + 8)?)
        } else {
            (*quoted.first()? == 0x45).then_some(())?;
            let ports = quoted.get(LEAST_IPV4..LEAST_IPV4 + 8)?;
            (*quoted.get(9)?, v4(quoted, 12)?.into(), v4(quoted, 16)?.into(), ports)
        };
        if source != self.tuple.destination {
            return None;
        }
        let (source_port, destination_port) = match protocol {
            TCP | UDP => (word(ports, 2)?, word(ports, 0)?),
            of if of == self.protocol => {
                let (type_, is_v6) = (ports[0], self.is_v6());
                self.icmp = answer_of(type_, is_v6);
                let (source, destination) = icmp_ports(type_, is_v6, word(ports, 4)?);
                (destination, source)
            }
            _ => (0, 0),
        };
        self.tuple = Tuple { protocol, source: destination, destination: source, source_port, destination_port };
        self.is_error = true;
        Some(())
    }
}

/// Bytes of an IPv6 header with its extensions, what is behind these, and which piece of a packet that is (RFC 8200, 4). Four
/// extension headers of 64 bytes are looked behind: what rules cannot know must not pass.
fn behind_extensions(bytes: &[u8]) -> Option<(usize, u8, Option<Fragment>)> {
    let (mut at, mut next, mut fragment) = (IPV6, bytes[6], None);
    for _ in 0..4 {
        if !is_extension(next) {
            break;
        }
        let (header, length) = (bytes.get(at..at + 8)?, usize::from(bytes[at + 1]));
        at += match next {
            FRAGMENT_HEADER if fragment.is_some() => return None,
            FRAGMENT_HEADER => {
                fragment = Some(Fragment { identification: long(header, 4)?, later: word(header, 2)? & 0xfff8 != 0 });
                8
            }
            // Its length is in words, but for two (RFC 4302, 2.2).
            AUTHENTICATION => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        next = header[0];
        if at > IPV6 + 64 {
            return None;
        }
        if fragment.is_some_and(|fragment: Fragment| fragment.later) {
            return Some((at, next, fragment));
        }
    }
    (!is_extension(next)).then_some((at, next, fragment))
}

fn is_extension(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT_HEADER | DESTINATION_OPTIONS | AUTHENTICATION)
}

/// Destination unreachable, time exceeded, parameter problem (RFC 792); packet too big, too (RFC 4443).
fn is_error(icmp: u8, is_v6: bool) -> bool {
    if is_v6 { (1..=4).contains(&icmp) } else { matches!(icmp, 3 | 11 | 12) }
}

/// Queries of ICMP with what answers them (RFC 792, RFC 950), and of ICMPv6 (RFC 4443, RFC 4620).
fn queries(is_v6: bool) -> &'static [(u8, u8)] {
    if is_v6 { &[(128, 129), (139, 140)] } else { &[(8, 0), (13, 14), (15, 16), (17, 18)] }
}

/// The type of the query that a type answers; others are their own.
pub(super) fn query_of(icmp: u8, is_v6: bool) -> u8 {
    queries(is_v6).iter().find(|(_, answer)| *answer == icmp).map_or(icmp, |(query, _)| *query)
}

/// The type of ICMP that answers a query, or the query that an answer belongs to; other types are returned as they are.
fn answer_of(icmp: u8, is_v6: bool) -> u8 {
    let answer = queries(is_v6).iter().find(|(query, _)| *query == icmp).map(|(_, answer)| *answer);
    answer.unwrap_or_else(|| query_of(icmp, is_v6))
}

/// What tells flows of ICMP apart in the place of ports: of queries the identifier, and the sum of it and the type, of their answers
/// the other way round, of all other types 0 and the type.
fn icmp_ports(icmp: u8, is_v6: bool, id: u16) -> (u16, u16) {
    let query = query_of(icmp, is_v6);
    let id = if answer_of(icmp, is_v6) == icmp { 0 } else { id };
    let other = id.wrapping_add(query.into());
    if query == icmp { (id, other) } else { (other, id) }
}

/// Whether a message may be told of an error: never one that is an error itself, which all of ICMPv6 below 128 are (RFC
/// 4443, 2.4 e), nor a redirect (RFC 1122, 3.2.2).
pub(super) fn may_be_told_of(icmp: u8, is_v6: bool) -> bool {
    if is_v6 { icmp >= 128 && icmp != 137 } else { matches!(icmp, 0 | 8) }
}
