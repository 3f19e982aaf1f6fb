//! Frames of all kinds, and what they say, checked by rig-wire.

use std::net::{IpAddr, SocketAddr};

use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::Tcp;
use rig_wire::udp::Udp;
use rig_wire::{ipv4, ipv6, protocol, tcp, udp};

pub const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 0xc1]);
pub const NEAR_MAC: Mac = Mac([2, 0, 0, 0, 0, 0x1b]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum L4 {
    Tcp(u8),
    Udp,
}

/// A TCP or UDP packet.
#[derive(Debug, Clone)]
pub struct Frame {
    pub l4: L4,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub payload: Vec<u8>,
    pub ttl: u8,
    pub vlan: Option<u16>,
    /// Of TCP, as what follows.
    pub sequence: u32,
    pub options: tcp::Options,
}

pub fn tcp(flags: u8, source: &str, destination: &str) -> Frame {
    Frame::new(L4::Tcp(flags), source.parse().unwrap(), destination.parse().unwrap())
}

pub fn udp(source: &str, destination: &str) -> Frame {
    Frame::new(L4::Udp, source.parse().unwrap(), destination.parse().unwrap())
}

pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> PartialChecksum {
    match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => PartialChecksum::pseudo_v4(a, b, protocol, length),
        (IpAddr::V6(a), IpAddr::V6(b)) => PartialChecksum::pseudo_v6(a, b, protocol, length),
        _ => panic!("two families"),
    }
}

/// The IP header of a packet with this payload, and the payload.
pub fn ip(source: IpAddr, destination: IpAddr, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40 + payload.len()];
    let header = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4::Header { source, destination, protocol, ttl, tos: 0 }.write(&mut bytes, payload.len()).unwrap()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header { source, destination, protocol, hop_limit: ttl, traffic_class: 0 };
            header.write(&mut bytes, payload.len()).unwrap()
        }
        _ => panic!("two families"),
    };
    bytes.truncate(header);
    bytes.extend(payload);
    bytes
}

/// An Ethernet header in front of an IP packet, from the client's to the balancer's MAC.
pub fn ethernet(packet: &[u8], vlan: Option<u16>) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
    let mut bytes = vec![0; ethernet::HEADER + ethernet::TAG];
    let length = ethernet::Header { destination: NEAR_MAC, source: CLIENT_MAC, vlan, ethertype: kind }
        .write(&mut bytes)
        .unwrap();
    bytes.truncate(length);
    bytes.extend(packet);
    bytes
}

impl Frame {
    pub fn new(l4: L4, source: SocketAddr, destination: SocketAddr) -> Self {
        let (ttl, sequence, options) = (64, 0x0102_0304, tcp::Options::default());
        Self { l4, source, destination, payload: Vec::new(), ttl, vlan: None, sequence, options }
    }

    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ttl = ttl;
        self
    }

    pub fn vlan(mut self, vlan: u16) -> Self {
        self.vlan = Some(vlan);
        self
    }

    fn protocol(&self) -> u8 {
        match self.l4 {
            L4::Tcp(_) => protocol::TCP,
            L4::Udp => protocol::UDP,
        }
    }

    /// The IP packet.
    pub fn packet(&self) -> Vec<u8> {
        let (ports, length) = ((self.source.port(), self.destination.port()), self.payload.len());
        let options = if self.options.mss.is_some() { 4 } else { 0 };
        let header = if self.protocol() == protocol::TCP { tcp::HEADER + options } else { udp::HEADER };
        let mut l4 = vec![0; header];
        l4.extend(&self.payload);
        let sum = pseudo(self.source.ip(), self.destination.ip(), self.protocol(), l4.len());
        match self.l4 {
            L4::Tcp(flags) => {
                let header = tcp::Header {
                    source_port: ports.0,
                    destination_port: ports.1,
                    sequence: self.sequence,
                    acknowledgment: 0x0506_0708,
                    flags,
                    window: 1000,
                    options: self.options,
                };
                header.write(&mut l4, length, sum).unwrap();
            }
            L4::Udp => {
                let header = udp::Header { source_port: ports.0, destination_port: ports.1 };
                header.write(&mut l4, length, sum).unwrap();
            }
        }
        ip(self.source.ip(), self.destination.ip(), self.protocol(), self.ttl, &l4)
    }

    pub fn bytes(&self) -> Vec<u8> {
        ethernet(&self.packet(), self.vlan)
    }

    /// As a sender with checksum offload leaves it: the pseudo header's sum and no more.
    pub fn partial(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        let l3 = bytes.len() - self.packet().len();
        let l4 = l3 + if self.source.is_ipv4() { 20 } else { 40 };
        let at = l4 + if self.protocol() == protocol::TCP { tcp::CHECKSUM } else { udp::CHECKSUM };
        let sum = pseudo(self.source.ip(), self.destination.ip(), self.protocol(), bytes.len() - l4).folded();
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// An IPv4 frame without the flag that routers must not fragment it.
pub fn may_be_fragmented(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let header = &mut frame[l3..l3 + 20];
    header[6] &= !0x40;
    header[10..12].fill(0);
    let checksum = rig_wire::checksum::of(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// With this traffic class, or type of service.
pub fn with_class(frame: &[u8], class: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    with_class_at(&mut frame, l3, class);
    frame
}

/// The same of the header that is there.
pub fn with_class_at(frame: &mut [u8], at: usize, class: u8) {
    let header = &mut frame[at..];
    if header[0] >> 4 == 6 {
        header[0] = 0x60 | class >> 4;
        header[1] = header[1] & 0x0f | class << 4;
        return;
    }
    header[1] = class;
    header[10..12].fill(0);
    let checksum = rig_wire::checksum::of(&header[..20]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The frames that a router, or with IPv6 the sender, makes of one whose packet's payload is cut at these multiples of 8 (RFC 791, 3.2; RFC 8200, 4.5).
pub fn fragments(frame: &[u8], cuts: &[usize], id: u32) -> Vec<Vec<u8>> {
    let l3 = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let is_v4 = frame[l3] >> 4 == 4;
    let (head, payload) = frame.split_at(l3 + if is_v4 { 20 } else { 40 });
    let ends = cuts.iter().copied().chain([payload.len()]);
    let begins = [0].into_iter().chain(cuts.iter().copied());
    let part = |(begin, end): (usize, usize)| {
        let is_last = end == payload.len();
        let mut part = head.to_vec();
        let header = &mut part[l3..];
        if is_v4 {
            header[2..4].copy_from_slice(&((20 + end - begin) as u16).to_be_bytes());
            header[4..6].copy_from_slice(&(id as u16).to_be_bytes());
            let more = if is_last { 0 } else { 0x2000 };
            header[6..8].copy_from_slice(&(more | (begin / 8) as u16).to_be_bytes());
            header[10..12].fill(0);
            let checksum = rig_wire::checksum::of(header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            header[4..6].copy_from_slice(&((8 + end - begin) as u16).to_be_bytes());
            let next = std::mem::replace(&mut header[6], 44);
            part.extend([next, 0]);
            part.extend((begin as u16 | u16::from(!is_last)).to_be_bytes());
            part.extend(id.to_be_bytes());
        }
        part.extend(&payload[begin..end]);
        part
    };
    begins.zip(ends).map(part).collect()
}

/// The packet of which these are all parts, in their order.
pub fn whole(parts: &[Vec<u8>]) -> Vec<u8> {
    let is_v4 = parts[0][0] >> 4 == 4;
    let mut packet = parts[0][..if is_v4 { 20 } else { 40 }].to_vec();
    for part in parts {
        let (header, offset) = if is_v4 {
            (20, u16::from_be_bytes([part[6], part[7]]) & 0x1fff)
        } else {
            (48, u16::from_be_bytes([part[42], part[43]]) >> 3)
        };
        assert_eq!(usize::from(offset) * 8, packet.len() - if is_v4 { 20 } else { 40 });
        assert!(!is_v4 || rig_wire::checksum::of(&part[..20]) == 0);
        packet.extend(&part[header..]);
    }
    let length = packet.len();
    if is_v4 {
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        let checksum = rig_wire::checksum::of(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        packet[6] = parts[0][40];
    }
    packet
}

/// An ICMP error of type and code about a packet, quoting `quoted` bytes of it.
pub fn icmp_error(from: &str, to: &str, kind: u8, code: u8, rest: u32, about: &[u8], quoted: usize) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(rest.to_be_bytes());
    icmp.extend(&about[..quoted.min(about.len())]);
    let number = if from.is_ipv4() { protocol::ICMP } else { protocol::ICMPV6 };
    let start = if from.is_ipv4() { PartialChecksum::ZERO } else { pseudo(from, to, number, icmp.len()) };
    let checksum = start.bytes(&icmp).checksum();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    ethernet(&ip(from, to, number, 64, &icmp), None)
}

/// What a frame says; panics unless every checksum in it is right.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedFrame {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub ttl: u8,
    pub payload: Vec<u8>,
    pub flags: u8,
}

#[track_caller]
pub fn see(frame: &[u8]) -> ParsedFrame {
    see_packet(Ethernet::parse(frame).unwrap().payload())
}

#[track_caller]
pub fn see_packet(packet: &[u8]) -> ParsedFrame {
    let (source, destination, ttl, number, sum, payload): (IpAddr, IpAddr, _, _, _, _) = if packet[0] >> 4 == 4 {
        let ip = Ipv4::parse(packet).unwrap();
        ip.verify().unwrap();
        (ip.source().into(), ip.destination().into(), ip.ttl(), ip.protocol(), ip.pseudo(), ip.payload())
    } else {
        let ip = Ipv6::parse(packet).unwrap();
        (ip.source().into(), ip.destination().into(), ip.hop_limit(), ip.protocol(), ip.pseudo(), ip.payload())
    };
    let ends = |ports: (u16, u16)| (SocketAddr::new(source, ports.0), SocketAddr::new(destination, ports.1));
    if number == protocol::TCP {
        let tcp = Tcp::parse(payload).unwrap();
        tcp.verify(sum).unwrap();
        let (source, destination) = ends((tcp.source_port(), tcp.destination_port()));
        return ParsedFrame { source, destination, ttl, payload: tcp.payload().to_vec(), flags: tcp.flags() };
    }
    assert_eq!(number, protocol::UDP);
    let udp = Udp::parse(payload).unwrap();
    udp.verify(sum, source.is_ipv4()).unwrap();
    let (source, destination) = ends((udp.source_port(), udp.destination_port()));
    ParsedFrame { source, destination, ttl, payload: udp.payload().to_vec(), flags: 0 }
}
