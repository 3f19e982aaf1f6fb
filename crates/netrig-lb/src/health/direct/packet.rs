//! Packets of checks that go to a service's own address: made and read.

use std::net::{IpAddr, SocketAddr};

use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::ethertype;
use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6};
use rig_wire::ipv4::{self, Ipv4};
use rig_wire::ipv6::{self, Ipv6};
use rig_wire::tcp::{self, Tcp};
use rig_wire::udp::{self, Udp};
use rig_wire::{QuotedPacket, protocol};

use super::super::probe::{echo_nonce, echo_request};
use crate::message::Tunnel;

const TTL: u8 = 64;
/// IP in IP (RFC 2003), and IPv6 in IPv6 (RFC 2473).
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// First of the dynamic ports (RFC 6335, 6), which a tunnel's packets are from.
const DYNAMIC: u16 = 0xc000;
/// Port unreachable: RFC 792, RFC 4443.
const PORT_UNREACHABLE: [(u8, u8); 2] = [(icmp::kind::UNREACHABLE, 3), (icmpv6::kind::UNREACHABLE, 4)];

/// Both ends of a probe: ours, and the service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// See [`rig_wire::protocol`].
    pub protocol: u8,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    Segment(Flow, Segment),
    Datagram(Flow, Vec<u8>),
    /// The port of this flow is closed, says who quotes a packet of it; with the quoted sequence number, where it is of TCP.
    Unreachable(Flow, u32),
    /// From whom, with the nonce of the request.
    Echo(IpAddr, u64),
}

/// What of a segment matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub mss: Option<u16>,
    pub data: Vec<u8>,
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> PartialChecksum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            PartialChecksum::pseudo_v4(source, destination, protocol, length)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            PartialChecksum::pseudo_v6(source, destination, protocol, length)
        }
        // Both are of one family wherever a flow is made.
        _ => PartialChecksum::ZERO,
    }
}

/// An IP packet with this behind its header; nothing where the addresses are of two families.
fn packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    // There is room for each header.
    let mut bytes = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut bytes = vec![0; ipv4::HEADER];
            let _ = ipv4::Header { source, destination, protocol, ttl: TTL, tos: 0 }.write(&mut bytes, length);
            bytes
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut bytes = vec![0; ipv6::HEADER];
            let header = ipv6::Header { source, destination, protocol, hop_limit: TTL, traffic_class: 0 };
            let _ = header.write(&mut bytes, length);
            bytes
        }
        _ => return Vec::new(),
    };
    bytes.extend_from_slice(payload);
    bytes
}

pub fn segment(flow: &Flow, header: tcp::Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.len()];
    bytes.extend_from_slice(data);
    let pseudo = pseudo(flow.own.ip(), flow.peer.ip(), protocol::TCP, bytes.len());
    let _ = header.write(&mut bytes, data.len(), pseudo);
    packet(flow.own.ip(), flow.peer.ip(), protocol::TCP, &bytes)
}

pub fn datagram(flow: &Flow, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; udp::HEADER];
    bytes.extend_from_slice(data);
    let pseudo = pseudo(flow.own.ip(), flow.peer.ip(), protocol::UDP, bytes.len());
    let header = udp::Header { source_port: flow.own.port(), destination_port: flow.peer.port() };
    let _ = header.write(&mut bytes, data.len(), pseudo);
    packet(flow.own.ip(), flow.peer.ip(), protocol::UDP, &bytes)
}

pub fn echo(own: IpAddr, peer: IpAddr, nonce: u64) -> Vec<u8> {
    let protocol = if own.is_ipv6() { protocol::ICMPV6 } else { protocol::ICMP };
    // The length of a request is always the same.
    let length = echo_request(nonce, None).len();
    let pseudo = own.is_ipv6().then(|| pseudo(own, peer, protocol, length));
    packet(own, peer, protocol, &echo_request(nonce, pseudo))
}

/// Wrapped for a tunnel, as the datapath does it (bpf/balancer/encapsulate.h).
pub fn wrapped(local: IpAddr, backend: IpAddr, tunnel: Tunnel, inner: &[u8]) -> Vec<u8> {
    let (inside, ethertype) = match local {
        IpAddr::V4(_) => (IPV4_IN_IP, ethertype::IPV4),
        IpAddr::V6(_) => (IPV6_IN_IP, ethertype::IPV6),
    };
    match tunnel {
        Tunnel::Ipip => packet(local, backend, inside, inner),
        Tunnel::Gre => {
            // No checksum, key or sequence number (RFC 2784).
            let mut bytes = vec![0, 0];
            bytes.extend(ethertype.to_be_bytes());
            bytes.extend_from_slice(inner);
            packet(local, backend, GRE, &bytes)
        }
        Tunnel::Gue { port, checksum } => {
            let mut bytes = vec![0; udp::HEADER];
            // Variant 0, no flags (draft-ietf-intarea-gue-09, 3.1).
            bytes.extend([0, inside, 0, 0]);
            bytes.extend_from_slice(inner);
            let pseudo = pseudo(local, backend, protocol::UDP, bytes.len());
            let header = udp::Header { source_port: DYNAMIC | flow_port(inner), destination_port: port.get() };
            let length = bytes.len() - udp::HEADER;
            let _ = header.write(&mut bytes, length, pseudo);
            if !checksum {
                bytes[6..8].fill(0);
            }
            packet(local, backend, protocol::UDP, &bytes)
        }
    }
}

/// What differs between flows: the source port, of ICMP some bytes of its header.
fn flow_port(packet: &[u8]) -> u16 {
    let header = if packet.first().is_some_and(|first| first >> 4 == 6) { ipv6::HEADER } else { ipv4::HEADER };
    packet.get(header..header + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]))
}

/// Reads a packet; `None` for what is none of a check's, or damaged.
pub fn read(bytes: &[u8]) -> Option<Arrived> {
    let (source, destination, protocol, payload, pseudo): (IpAddr, IpAddr, u8, &[u8], _) = match bytes.first()? >> 4 {
        4 => {
            let packet = Ipv4::parse(bytes).ok().filter(|packet| !packet.is_fragment())?;
            (packet.source().into(), packet.destination().into(), packet.protocol(), packet.payload(), packet.pseudo())
        }
        6 => {
            let packet = Ipv6::parse(bytes).ok().filter(|packet| !packet.is_fragment())?;
            (packet.source().into(), packet.destination().into(), packet.protocol(), packet.payload(), packet.pseudo())
        }
        _ => return None,
    };
    let flow = |peer_port, own_port| Flow {
        own: SocketAddr::new(destination, own_port),
        peer: SocketAddr::new(source, peer_port),
        protocol,
    };
    match protocol {
        protocol::TCP => {
            let tcp = Tcp::parse(payload).ok()?;
            tcp.verify(pseudo).ok()?;
            let segment = Segment {
                sequence: tcp.sequence(),
                acknowledgment: tcp.acknowledgment(),
                flags: tcp.flags(),
                mss: tcp.options().ok().and_then(|options| options.mss),
                data: tcp.payload().to_vec(),
            };
            Some(Arrived::Segment(flow(tcp.source_port(), tcp.destination_port()), segment))
        }
        protocol::UDP => {
            let udp = Udp::parse(payload).ok()?;
            udp.verify(pseudo, source.is_ipv4()).ok()?;
            Some(Arrived::Datagram(flow(udp.source_port(), udp.destination_port()), udp.payload().to_vec()))
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let (ipv6, kind, quoted) = match protocol {
                protocol::ICMP => {
                    let icmp = Icmp::parse(payload).ok()?;
                    icmp.verify().ok()?;
                    (false, (icmp.kind(), icmp.code()), icmp.payload())
                }
                _ => {
                    let icmp = Icmpv6::parse(payload).ok()?;
                    icmp.verify(pseudo).ok()?;
                    (true, (icmp.kind(), icmp.code()), icmp.payload())
                }
            };
            if let Some(nonce) = echo_nonce(payload, ipv6) {
                return Some(Arrived::Echo(source, nonce));
            }
            if kind != PORT_UNREACHABLE[usize::from(ipv6)] {
                return None;
            }
            let (own, peer, protocol, sequence): (SocketAddr, SocketAddr, u8, u32) = match ipv6 {
                false => {
                    let of = QuotedPacket::v4(quoted).ok()?;
                    let (own, peer) = ((of.source, of.source_port), (of.destination, of.destination_port));
                    (own.into(), peer.into(), of.protocol, of.sequence)
                }
                true => {
                    let of = QuotedPacket::v6(quoted).ok()?;
                    let (own, peer) = ((of.source, of.source_port), (of.destination, of.destination_port));
                    (own.into(), peer.into(), of.protocol, of.sequence)
                }
            };
            Some(Arrived::Unreachable(Flow { own, peer, protocol }, sequence))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flow(v6: bool, protocol: u8) -> Flow {
        let (own, peer) = if v6 { ("[fd00::1]:4000", "[fd00::2]:80") } else { ("10.0.0.1:4000", "10.0.0.2:80") };
        Flow { own: own.parse().unwrap(), peer: peer.parse().unwrap(), protocol }
    }

    fn back(flow: Flow) -> Flow {
        Flow { own: flow.peer, peer: flow.own, ..flow }
    }

    #[test]
    fn what_is_made_is_read_at_the_other_end() {
        for v6 in [false, true] {
            let tcp = flow(v6, protocol::TCP);
            let options = tcp::Options { mss: Some(1200), ..tcp::Options::default() };
            let header = tcp::Header {
                source_port: 4000,
                destination_port: 80,
                sequence: 7,
                acknowledgment: 9,
                flags: tcp::flags::SYN,
                window: 100,
                options,
            };
            let sent = Segment {
                sequence: 7,
                acknowledgment: 9,
                flags: tcp::flags::SYN,
                mss: Some(1200),
                data: b"abc".to_vec(),
            };
            assert_eq!(read(&segment(&tcp, header, b"abc")), Some(Arrived::Segment(back(tcp), sent)));
            let udp = flow(v6, protocol::UDP);
            let mut bytes = datagram(&udp, b"ping");
            assert_eq!(read(&bytes), Some(Arrived::Datagram(back(udp), b"ping".to_vec())));
            *bytes.last_mut().unwrap() ^= 1;
            assert_eq!(read(&bytes), None, "damaged");
            let request = echo(udp.own.ip(), udp.peer.ip(), 77);
            assert_eq!(read(&request), None, "a request is no reply");
            let (own, peer, header) = (udp.own.ip(), udp.peer.ip(), if v6 { 40 } else { 20 });
            let outer = |tunnel| wrapped(own, peer, tunnel, &request)[header..].to_vec();
            assert_eq!(outer(Tunnel::Ipip), request);
            assert_eq!(
                outer(Tunnel::Gre),
                [if v6 { &[0, 0, 0x86, 0xdd] } else { &[0, 0, 8, 0] }, &request[..]].concat()
            );
            let port = std::num::NonZeroU16::new(5555).unwrap();
            for checksum in [false, true] {
                let outer = outer(Tunnel::Gue { port, checksum });
                let parsed = Udp::parse(&outer).unwrap();
                assert_eq!((parsed.source_port() >> 14, parsed.destination_port()), (3, 5555));
                assert_eq!(outer[6..8] != [0, 0], checksum);
                if checksum {
                    parsed.verify(pseudo(own, peer, protocol::UDP, outer.len()), false).unwrap();
                }
                assert_eq!(outer[8..], [&[0, if v6 { 41 } else { 4 }, 0, 0], &request[..]].concat());
            }
        }
    }

    #[test]
    fn a_closed_port_is_told_of_the_flow_that_asked() {
        let udp = flow(false, protocol::UDP);
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&datagram(&udp, b"ping")[..28]);
        let sum = rig_wire::checksum::of(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let bytes = packet(udp.peer.ip(), udp.own.ip(), protocol::ICMP, &message);
        assert!(matches!(read(&bytes), Some(Arrived::Unreachable(flow, _)) if flow == udp));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in 0_u8..2) {
            if let Some(first) = bytes.first_mut() {
                *first = if version == 0 { 0x45 } else { 0x60 };
            }
            let _ = read(&bytes);
        }
    }
}
