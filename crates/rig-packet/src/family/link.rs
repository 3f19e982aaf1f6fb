//! The link of an engine, and what is beyond it.

use std::net::{IpAddr, Ipv4Addr};

use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::{checksum, ipv4, protocol, udp, vxlan};
use serde::{Deserialize, Serialize};

use super::{Family, V4};

/// The link and what is beyond it.
#[derive(Debug, Clone)]
pub struct Link<F: Family> {
    pub mac: Mac,
    /// The port's own address, beside the local ones: it is answered for and asks for the gateway.
    pub address: F::Address,
    /// For whose addresses questions for our MAC address are answered.
    pub answer: AnswerScope,
    /// Whether our addresses are made known at the start, by gratuitous ARP (RFC 5227, 3) or unsolicited neighbor
    /// advertisements (RFC 4861, 7.2.6), so that switches learn where they are.
    pub announce: bool,
    pub vlan: Option<u16>,
    pub gateway: Gateway<F::Address>,
    /// Time to live of IPv4, hop limit of IPv6.
    pub hop_limit: u8,
    /// Type of service of IPv4, traffic class of IPv6.
    pub tos: u8,
    /// Whether checksums of TCP and UDP are verified. Those that a kernel on this machine left unfinished are taken, and
    /// counted, in any case.
    pub verify: bool,
    /// What carries the link's frames, when it is no wire: then MAC addresses here are those within the tunnel, and the
    /// gateway's is known.
    pub tunnel: Option<Box<Tunnel>>,
}

/// A VXLAN tunnel (RFC 7348) over IPv4.
#[derive(Debug, Clone)]
pub struct Tunnel {
    /// 24 bits.
    pub vni: u32,
    /// Tunnel end points: ours, and the other one.
    pub local: Ipv4Addr,
    pub remote: Ipv4Addr,
    /// The link that the tunnel goes over, which is in no tunnel itself.
    pub link: Link<V4>,
}

/// Where all packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway<A> {
    Known(Mac),
    /// Asked for by ARP or neighbor discovery, at the start each second, later each half minute.
    Address(A),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerScope {
    /// Of all local addresses.
    #[default]
    All,
    /// Only those of the port: as a real server behind direct routing, whose service address the balancer has too.
    Port,
}

impl<F: Family> Link<F> {
    pub(crate) fn header(&self, destination: Mac, ethertype: u16) -> ethernet::Header {
        ethernet::Header { destination, source: self.mac, vlan: self.vlan, ethertype }
    }

    #[inline]
    pub(crate) fn is_for_us(&self, ethernet: &Ethernet<'_>) -> bool {
        let destination = ethernet.destination();
        (destination == self.mac || destination.is_multicast()) && ethernet.vlans().eq(self.vlan)
    }

    /// The address that is asked where it is, below a tunnel if there is one; `None` when that is known.
    pub(crate) fn question(&self) -> Option<IpAddr> {
        match (&self.tunnel, self.gateway) {
            (Some(tunnel), _) => tunnel.link.question(),
            (None, Gateway::Address(address)) => Some(F::ip(address)),
            (None, Gateway::Known(_)) => None,
        }
    }

    /// Bytes that a tunnel adds before a frame.
    pub(crate) fn outer(&self) -> usize {
        self.tunnel.as_ref().map_or(0, |tunnel| tunnel.header())
    }

    /// Bytes before the IP header of a packet.
    pub(crate) fn prefix(&self) -> usize {
        self.outer() + self.header(Mac::default(), F::ETHERTYPE).len()
    }
}

impl Tunnel {
    /// What the tunnel adds to each packet behind the Ethernet header: IPv4, UDP, VXLAN and Ethernet.
    pub const ADDED: usize = ipv4::HEADER + udp::HEADER + vxlan::HEADER + ethernet::HEADER;
    /// UDP ports that RFC 7348, 5 recommends to choose the source port from: the first, and how many (RFC 6335, 6).
    const FIRST_PORT: u16 = 49_152;

    /// Bytes of the headers before a frame.
    pub(crate) fn header(&self) -> usize {
        self.start() + ipv4::HEADER + udp::HEADER + vxlan::HEADER
    }

    /// Where the outer IP header starts.
    pub(crate) fn start(&self) -> usize {
        self.link.header(Mac::default(), ethertype::IPV4).len()
    }

    /// Writes the headers before a frame of `inner` bytes. UDP has no checksum (RFC 7348, 5), so that the source port can
    /// be changed without more.
    pub(crate) fn write(&self, buffer: &mut [u8], gateway: Mac, inner: usize, source_port: u16) {
        const ROOM: &str = "the caller has made room";
        let start = self.link.header(gateway, ethertype::IPV4).write(buffer).expect(ROOM);
        let length = udp::HEADER + vxlan::HEADER + inner;
        let header = ipv4::Header {
            source: self.local,
            destination: self.remote,
            protocol: protocol::UDP,
            ttl: self.link.hop_limit,
            tos: self.link.tos,
        };
        header.write(&mut buffer[start..], length).expect(ROOM);
        let datagram = &mut buffer[start + ipv4::HEADER..];
        let words = [source_port, vxlan::PORT, length as u16, 0];
        for (bytes, word) in datagram.chunks_exact_mut(2).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        vxlan::write(&mut datagram[udp::HEADER..], self.vni).expect(ROOM);
    }

    /// The source port for a flow of this hash, so that routers which spread by ports keep its packets in order.
    #[inline]
    pub(crate) fn source_port(hash: u32) -> u16 {
        Self::FIRST_PORT | (hash.wrapping_mul(0x9e37_79b1) >> 18) as u16
    }

    /// Puts another source port into headers that [`write`](Self::write) wrote and whose IP header starts at `start`, and
    /// adds `added` bytes to the lengths.
    #[inline]
    pub(crate) fn patch(frame: &mut [u8], start: usize, source_port: u16, added: u16) {
        let header = &mut frame[start..start + ipv4::HEADER + udp::HEADER];
        header[ipv4::HEADER..][..2].copy_from_slice(&source_port.to_be_bytes());
        if added > 0 {
            let word = |header: &[u8], at| u16::from_be_bytes([header[at], header[at + 1]]);
            let (before, sum) = (word(header, 2), word(header, ipv4::CHECKSUM));
            let sum = checksum::update(sum, before, before + added);
            let datagram = word(header, ipv4::HEADER + 4) + added;
            header[2..4].copy_from_slice(&(before + added).to_be_bytes());
            header[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
            header[ipv4::HEADER + 4..][..2].copy_from_slice(&datagram.to_be_bytes());
        }
    }
}
