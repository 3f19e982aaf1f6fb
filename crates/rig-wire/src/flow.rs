//! What tells one flow from another.

use std::net::{IpAddr, SocketAddr};

use crate::ethernet::{Ethernet, ethertype};
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use crate::tcp::Tcp;
use crate::udp::Udp;
use crate::{Malformed, protocol};

/// Protocol, addresses and ports of a TCP or UDP packet, in its own direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// See [`protocol`].
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

impl FlowKey {
    /// The flow of a frame; `None` when it is neither TCP nor UDP. A fragment has no ports for sure, so it is an error.
    pub fn of(frame: &[u8]) -> Result<Option<Self>, Malformed> {
        let ethernet = Ethernet::parse(frame)?;
        let (source, destination, number, fragment, payload): (IpAddr, IpAddr, _, _, _) = match ethernet.ethertype() {
            ethertype::IPV4 => {
                let ip = Ipv4::parse(ethernet.payload())?;
                (ip.source().into(), ip.destination().into(), ip.protocol(), ip.is_fragment(), ip.payload())
            }
            ethertype::IPV6 => {
                let ip = Ipv6::parse(ethernet.payload())?;
                (ip.source().into(), ip.destination().into(), ip.protocol(), ip.is_fragment(), ip.payload())
            }
            _ => return Ok(None),
        };
        if fragment {
            return Err(Malformed::Fragment);
        }
        let ports = match number {
            protocol::TCP => Tcp::parse(payload).map(|tcp| (tcp.source_port(), tcp.destination_port()))?,
            protocol::UDP => Udp::parse(payload).map(|udp| (udp.source_port(), udp.destination_port()))?,
            _ => return Ok(None),
        };
        let end = SocketAddr::new;
        Ok(Some(Self { protocol: number, source: end(source, ports.0), destination: end(destination, ports.1) }))
    }

    /// The same flow in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.destination, destination: self.source }
    }

    /// Source and destination address, source and destination port, in network byte order; and the addresses' bytes.
    pub(crate) fn hash_input(&self) -> ([u8; 36], usize) {
        let mut bytes = [0; 36];
        let mut at = 0;
        let mut add = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        let mut addresses = 0;
        for ip in [self.source.ip(), self.destination.ip()] {
            match ip {
                IpAddr::V4(ip) => add(&ip.octets()),
                IpAddr::V6(ip) => add(&ip.octets()),
            }
            addresses += if ip.is_ipv4() { 4 } else { 16 };
        }
        add(&self.source.port().to_be_bytes());
        add(&self.destination.port().to_be_bytes());
        (bytes, addresses)
    }
}
