//! What tunnels put around packets: MPLS over UDP (RFC 7510), MPLS over GRE (RFC 4023), VXLAN (RFC 7348), each over IPv4. Of MPLS frames to
//! all are Ethernet's (RFC 7432, 11.2).
//!
//! The outer IPv4 header's checksum, and UDP's where there is one, are for the kernel and its devices.

use std::net::Ipv4Addr;

use rig_wire::checksum::update;
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::{ipv4, protocol, udp, vxlan};

use super::super::config::{Encapsulation, Tunnel};
use super::super::reason::Reason;
use super::packet::{Packet, long, v4, word};

const ETHERNET: usize = ethernet::HEADER;
const GRE: u8 = 47;
const MPLS_PORT: u16 = 6635;
const ETH_MPLS: u16 = 0x8847;
const OUTER_TTL: u8 = 64;
/// The label is the last of its stack (RFC 3032).
const LAST: u32 = 0x100;
/// The network identifier is valid (RFC 7348, 5).
const VALID: u8 = 0x08;
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// What stands in front of a packet from the underlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OuterHeader {
    pub(super) source: Ipv4Addr,
    /// Of UDP.
    pub(super) port: u16,
    pub(super) class: u8,
    pub(super) encapsulation: Encapsulation,
    /// Label or network identifier; what is wrong with the packet.
    pub(super) label: Result<u32, Reason>,
    /// Where the inner frame, for VXLAN, or the inner packet begins; and where the outer packet ends.
    pub(super) inner: usize,
    pub(super) end: usize,
}

impl OuterHeader {
    /// `None` where the packet is of no tunnel to `own`: it is the host's.
    pub(super) fn parse(frame: &[u8], own: Ipv4Addr) -> Option<Self> {
        let ip = frame.get(ETHERNET..).filter(|ip| ip.len() >= 20)?;
        if word(frame, 12)? != ethertype::IPV4 || ip[0] != 0x45 || v4(ip, 16)? != own {
            return None;
        }
        let l4 = &ip[20..];
        let (encapsulation, header) = match ip[9] {
            // With a key, a checksum or a sequence it is none that a router has sent (RFC 4023, 3).
            GRE if long(l4, 0)? == u32::from(ETH_MPLS) && l4.len() >= 8 => (Encapsulation::MplsOverGre, 4),
            protocol::UDP if l4.len() >= 8 && word(l4, 2)? == MPLS_PORT => (Encapsulation::MplsOverUdp, 8),
            protocol::UDP if l4.len() >= 8 && word(l4, 2)? == vxlan::PORT => (Encapsulation::Vxlan, 8),
            _ => return None,
        };
        let label = match encapsulation {
            // No router takes pieces of a tunnel's packet: they are the underlay's to avoid (RFC 7510, 5; RFC 7348, 4.3).
            _ if word(ip, 6)? & 0x3fff != 0 => Err(Reason::Fragments),
            Encapsulation::Vxlan => network(&l4[header..]),
            _ => only_label(&l4[header..]),
        };
        let ends = [20 + word(l4, 4).map_or(0, usize::from), word(ip, 2)?.into()];
        Some(Self {
            source: v4(ip, 12)?,
            port: word(l4, 0)?,
            class: ip[1],
            encapsulation,
            label,
            inner: ETHERNET + 20 + header + if encapsulation == Encapsulation::Vxlan { vxlan::HEADER } else { 4 },
            end: ETHERNET + if encapsulation == Encapsulation::MplsOverGre { ends[1] } else { ends[0].min(ends[1]) },
        })
    }
}

/// One label: the router that has assigned it expects no other in front.
fn only_label(bytes: &[u8]) -> Result<u32, Reason> {
    let entry = long(bytes, 0).ok_or(Reason::InvalidPacket)?;
    if entry & LAST == 0 { Err(Reason::InvalidLabel) } else { Ok(entry >> 12) }
}

/// Reserved bits are ignored (RFC 7348, 5).
fn network(bytes: &[u8]) -> Result<u32, Reason> {
    if bytes.len() < vxlan::HEADER + ETHERNET {
        return Err(Reason::InvalidPacket);
    }
    let identifier = long(bytes, 4).ok_or(Reason::InvalidPacket)? >> 8;
    if bytes[0] & VALID == 0 { Err(Reason::InvalidVnid) } else { Ok(identifier) }
}

/// A frame's packet in a tunnel: the outer Ethernet header, whose addresses are the kernel's to fill in, and what follows.
pub(super) fn wrap(frame: &[u8], p: &Packet, tunnel: &Tunnel, own: Ipv4Addr, port: u16, macs: (Mac, Mac)) -> Vec<u8> {
    let packet = &frame[ETHERNET..];
    // Label, last of its stack, with the packet's time to live (RFC 3443, 2.1).
    let mut shim = (tunnel.label << 12 | LAST | u32::from(p.ttl)).to_be_bytes().to_vec();
    if tunnel.encapsulation == Encapsulation::Vxlan {
        let (destination, source) = macs;
        shim = vxlan_header(tunnel.label);
        shim.extend([&destination.0[..], &source.0, &kind_of(p).to_be_bytes()].concat());
    }
    [in_front(&frame[..ETHERNET], p.class, tunnel, (own, port), shim.len() + p.length), shim, packet.to_vec()].concat()
}

/// A frame to all in a tunnel, which is an Ethernet frame in every encapsulation.
pub(super) fn wrap_frame(frame: &[u8], p: &Packet, tunnel: &Tunnel, own: Ipv4Addr, port: u16) -> Vec<u8> {
    let shim = match tunnel.encapsulation {
        Encapsulation::Vxlan => vxlan_header(tunnel.label),
        // How far the packet may go is not how far the frame may (RFC 3032, 2.4.2): those for a link's groups say 1.
        _ => (tunnel.label << 12 | LAST | u32::from(OUTER_TTL)).to_be_bytes().to_vec(),
    };
    let length = shim.len() + ETHERNET + p.length;
    [in_front(&frame[..ETHERNET], p.class, tunnel, (own, port), length), shim, frame.to_vec()].concat()
}

/// An answer to the sender of a frame that came by VXLAN: `inner` goes back, and `rest`, the frame's bytes behind its packet.
pub(super) fn answer(frame: &[u8], class: u8, own: (Ipv4Addr, u16), to: &Tunnel, inner: &[u8], rest: &[u8]) -> Vec<u8> {
    let header = vxlan_header(to.label);
    let front = in_front(&frame[..ETHERNET], class, to, own, header.len() + inner.len());
    [front, header, inner.to_vec(), rest.to_vec()].concat()
}

fn vxlan_header(network: u32) -> Vec<u8> {
    [[VALID, 0, 0, 0], (network << 8).to_be_bytes()].concat()
}

/// What stands in front of `length` bytes in a tunnel from `own`, its address and port: Ethernet, IPv4, and UDP or GRE.
fn in_front(link: &[u8], class: u8, tunnel: &Tunnel, own: (Ipv4Addr, u16), length: usize) -> Vec<u8> {
    let (own, port) = own;
    let is_vxlan = tunnel.encapsulation == Encapsulation::Vxlan;
    let (number, l4) = match tunnel.encapsulation {
        Encapsulation::MplsOverGre => (GRE, u32::from(ETH_MPLS).to_be_bytes().to_vec()),
        _ => {
            let to = if is_vxlan { vxlan::PORT } else { MPLS_PORT };
            let mut header = Vec::new();
            // No checksum (RFC 7510, 3.1; RFC 7348, 5).
            for word in [port, to, (udp::HEADER + length) as u16, 0] {
                header.extend(word.to_be_bytes());
            }
            (protocol::UDP, header)
        }
    };
    let mut out = link.to_vec();
    out[12..].copy_from_slice(&ethertype::IPV4.to_be_bytes());
    let mut ip = [0; 20];
    // DSCP as the inner packet's (RFC 2983), and ECN (RFC 6040, 4.1, normal mode).
    let header = ipv4::Header { source: own, destination: tunnel.peer, protocol: number, ttl: OUTER_TTL, tos: class };
    if header.write(&mut ip, l4.len() + length).is_ok() {
        out.extend(ip);
    }
    [out, l4].concat()
}

pub(super) fn kind_of(p: &Packet) -> u16 {
    if p.is_v6() { ethertype::IPV6 } else { ethertype::IPV4 }
}

/// What the inner packet's ECN field becomes (RFC 6040, 4.2), or the reason why it must not go on.
fn ecn_of(inner: u8, outer: u8) -> Result<u8, Reason> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => Err(Reason::Ecn),
        (_, CE) => Ok(CE),
        (ECT_0, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}

/// Congestion that the underlay has marked goes on inside.
pub(super) fn mark(packet: &mut [u8], p: &Packet, outer: u8) -> Result<(), Reason> {
    let marked = p.class & !3 | ecn_of(p.class, outer)?;
    if p.is_v6() {
        packet[0] = 0x60 | marked >> 4;
        packet[1] = packet[1] & 0x0f | marked << 4;
    } else if let (Some(checksum), Some(old)) = (word(packet, 10), word(packet, 0)) {
        packet[1] = marked;
        let new = old & 0xff00 | u16::from(marked);
        packet[10..12].copy_from_slice(&update(checksum, old, new).to_be_bytes());
    }
    Ok(())
}
