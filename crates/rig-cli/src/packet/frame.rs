//! A packet's bytes as a program meets them, and what is told of those that leave.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Result, anyhow};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::{ipv4, ipv6, protocol, tcp, udp};

use super::{Flow, PacketOut, Protocol};

/// Of a packet that has come one hop.
const TTL: u8 = 63;

/// The packet with an Ethernet header: from a MAC address of zeros to `to`. What it carries is zeros.
///
/// # Errors
/// When its ends are of different address families.
pub fn frame(flow: &Flow, to: Mac) -> Result<Vec<u8>> {
    frame_with(flow, to, &[])
}

/// The same, which begins what it carries with these bytes, for which it is made as long as need be.
///
/// # Errors
/// As there.
pub fn frame_with(flow: &Flow, to: Mac, carries: &[u8]) -> Result<Vec<u8>> {
    let from = Mac([0x02, 0, 0, 0, 0, 1]);
    let addresses = (flow.source.ip(), flow.destination.ip());
    let (number, transport) = match flow.protocol {
        Protocol::Tcp => (protocol::TCP, tcp::HEADER),
        Protocol::Udp => (protocol::UDP, udp::HEADER),
    };
    let network = match addresses {
        (IpAddr::V4(_), IpAddr::V4(_)) => ipv4::HEADER,
        (IpAddr::V6(_), IpAddr::V6(_)) => ipv6::HEADER,
        _ => return Err(anyhow!("{} and {} are of different address families", addresses.0, addresses.1)),
    };
    let length = usize::from(flow.length).max(network + transport + carries.len());
    let payload = length - network - transport;
    let ethertype = if network == ipv4::HEADER { ethertype::IPV4 } else { ethertype::IPV6 };
    let ethernet = ethernet::Header { destination: to, source: from, vlan: None, ethertype };
    let mut bytes = vec![0; ethernet.len() + length];
    let begin = ethernet.write(&mut bytes)?;
    let inside = begin + network + transport;
    bytes[inside..inside + carries.len()].copy_from_slice(carries);
    let (pseudo, begin) = match addresses {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4::Header { source, destination, protocol: number, ttl: TTL, tos: 0 };
            let written = header.write(&mut bytes[begin..], transport + payload)?;
            (PartialChecksum::pseudo_v4(source, destination, number, transport + payload), begin + written)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header { source, destination, protocol: number, hop_limit: TTL, traffic_class: 0 };
            let written = header.write(&mut bytes[begin..], transport + payload)?;
            (PartialChecksum::pseudo_v6(source, destination, number, transport + payload), begin + written)
        }
        _ => return Err(anyhow!("an address of each family")),
    };
    let (source_port, destination_port) = (flow.source.port(), flow.destination.port());
    match flow.protocol {
        Protocol::Tcp => {
            let header = tcp::Header {
                source_port,
                destination_port,
                sequence: 1,
                acknowledgment: 0,
                flags: flow.tcp_flags,
                window: u16::MAX,
                options: tcp::Options::default(),
            };
            header.write(&mut bytes[begin..], payload, pseudo)?;
        }
        Protocol::Udp => {
            udp::Header { source_port, destination_port }.write(&mut bytes[begin..], payload, pseudo)?;
        }
    }
    Ok(bytes)
}

impl PacketOut {
    /// Of a frame; `None` where it is none.
    pub fn of(frame: &[u8], device: Option<String>) -> Option<Self> {
        let ethernet = Ethernet::parse(frame).ok()?;
        let bytes = ethernet.payload().to_vec();
        Some(Self {
            device,
            source_mac: ethernet.source().to_string(),
            destination_mac: ethernet.destination().to_string(),
            flow: flow_of(&bytes),
            bytes,
        })
    }
}

/// `10.0.0.1:1025 > 10.0.0.2:80`, with the outer header first where there is one.
fn flow_of(packet: &[u8]) -> String {
    /// IP protocol numbers of IP in IP, IPv4 and IPv6 (RFC 2003, RFC 2473).
    const IN_IP: [u8; 2] = [4, 41];
    let (source, destination, number, payload): (IpAddr, IpAddr, u8, &[u8]) =
        if packet.first().is_some_and(|byte| byte >> 4 == 6) {
            let Ok(ip) = ipv6::Ipv6::parse(packet) else { return "no IP packet".to_owned() };
            (ip.source().into(), ip.destination().into(), ip.protocol(), ip.payload())
        } else {
            let Ok(ip) = ipv4::Ipv4::parse(packet) else { return "no IP packet".to_owned() };
            (ip.source().into(), ip.destination().into(), ip.protocol(), ip.payload())
        };
    match (number, payload) {
        (protocol::TCP | protocol::UDP, [a, b, c, d, ..]) => {
            let port = |high: u8, low: u8| u16::from_be_bytes([high, low]);
            let (from, to) = (SocketAddr::new(source, port(*a, *b)), SocketAddr::new(destination, port(*c, *d)));
            format!("{from} > {to}")
        }
        (number, inner) if IN_IP.contains(&number) => format!("{source} > {destination}, inside {}", flow_of(inner)),
        _ => format!("{source} > {destination}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn flow(protocol: Protocol, source: &str, destination: &str) -> Flow {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        Flow { protocol, source, destination, tcp_flags: tcp::flags::SYN, length: 100 }
    }

    #[test]
    fn frames_are_what_the_flow_says() {
        for (protocol, source, destination) in
            [(Protocol::Tcp, "10.0.0.1:1000", "10.0.0.2:80"), (Protocol::Udp, "[fd00::1]:1000", "[fd00::2]:80")]
        {
            let frame = frame(&flow(protocol, source, destination), "02:00:00:00:00:aa".parse().unwrap()).unwrap();
            assert_eq!(frame.len(), 114);
            let out = PacketOut::of(&frame, None).unwrap();
            assert_eq!(out.flow, format!("{source} > {destination}"));
            assert_eq!(out.destination_mac, "02:00:00:00:00:aa");
        }
        let mixed = frame(&flow(Protocol::Tcp, "10.0.0.1:1", "[fd00::2]:80"), Mac::default());
        assert!(mixed.unwrap_err().to_string().contains("different address families"));
        // As short as headers are.
        let short = Flow { length: 0, ..flow(Protocol::Tcp, "10.0.0.1:1", "10.0.0.2:80") };
        assert_eq!(frame(&short, Mac::default()).unwrap().len(), 54);
    }
}
