//! Packets of the router's own: answers to ARP, neighbour solicitations and pings, and ICMP errors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rig_wire::checksum::{PartialChecksum, update};
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::protocol::{ICMP, ICMPV6};
use rig_wire::{ipv4, ipv6};

use super::super::reason::Reason;
use super::packet::{Packet, may_be_told_of, v4, v6, word};

const ETHERNET: usize = ethernet::HEADER;
const ARP: usize = 28;
const SOLICITATION: u8 = 135;
const TTL: u8 = 64;
/// Of the packet that an error is about: addresses and ports, and more than RFC 792 asks for.
const QUOTED: usize = 128;

/// The router answers to the frame's source address, even if the configuration has another one for the container.
pub(super) fn asker(frame: &[u8]) -> Mac {
    super::mac_at(frame, 6)
}

/// A frame to a container from the router.
fn framed(to: Mac, router: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &router.0, &kind.to_be_bytes(), payload].concat()
}

/// A question for an IPv4 address (RFC 826): `asked`, and the frame that answers it with `mac`.
pub(super) fn arp(frame: &[u8], mac: Mac) -> Result<(Ipv4Addr, Vec<u8>), Reason> {
    let question = frame.get(ETHERNET..ETHERNET + ARP).ok_or(Reason::InvalidArp)?;
    // Ethernet and IPv4, whose addresses are of 6 and 4 bytes.
    if question[..6] != [0, 1, 8, 0, 6, 4] {
        return Err(Reason::InvalidArp);
    }
    let (Some(sender), Some(asked)) = (v4(question, 14), v4(question, 24)) else { return Err(Reason::InvalidArp) };
    // A host that asks for its own address probes whether another one has it (RFC 5227).
    if question[6..8] != [0, 1] || asked == sender {
        return Err(Reason::Unanswered);
    }
    let (asker, rest) = (&question[8..18], &frame[ETHERNET + ARP..]);
    let answer = [&question[..6], &[0, 2], &mac.0, &asked.octets(), asker, rest].concat();
    let to = Mac(std::array::from_fn(|byte| asker[byte]));
    Ok((asked, framed(to, mac, ethertype::ARP, &answer)))
}

/// Whether it is a neighbour's question.
pub(super) fn is_solicitation(p: &Packet) -> bool {
    p.is_v6() && p.is_icmp() && p.icmp == SOLICITATION && !p.is_error
}

/// Bits of an answer: from a router, solicited, override.
pub(super) const OF_ROUTER: u8 = 0xe0;
pub(super) const OF_HOST: u8 = 0x60;

/// What a question for an IPv6 address asks for (RFC 4861, 7.1.1).
pub(super) fn asked_for(frame: &[u8], p: &Packet) -> Result<Ipv6Addr, Reason> {
    let packet = &frame[ETHERNET..];
    let IpAddr::V6(asker) = p.tuple.source else { return Err(Reason::InvalidArp) };
    // Never in pieces (RFC 6980, 5).
    if p.fragment.is_some() || p.header != 40 || p.length < 64 || p.ttl != 255 || packet[41] != 0 {
        return Err(Reason::InvalidArp);
    }
    let target = v6(packet, 48).ok_or(Reason::InvalidArp)?;
    if target.is_multicast() || target.to_ipv4_mapped().is_some() {
        return Err(Reason::InvalidArp);
    }
    // From the unspecified address: duplicate address detection (RFC 4862, 5.4).
    if asker.is_unspecified() {
        return Err(Reason::Unanswered);
    }
    Ok(target)
}

/// The frame that answers it (RFC 4861, 7.2.4), with the target's link-layer address.
pub(super) fn solicitation(frame: &[u8], p: &Packet, macs: (Mac, Mac), target: Ipv6Addr, flags: u8) -> Vec<u8> {
    let (packet, (to, own)) = (&frame[ETHERNET..], macs);
    let IpAddr::V6(asker) = p.tuple.source else { return Vec::new() };
    let mut message = [&[136, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), &[2, 1], &own.0].concat();
    let pseudo = PartialChecksum::pseudo_v6(target, asker, ICMPV6, message.len());
    finish(&mut message, pseudo);
    // Of the same traffic class and flow label.
    let length = (message.len() as u16).to_be_bytes();
    let header = [&packet[..4], &length, &[ICMPV6, 255], &target.octets(), &asker.octets()].concat();
    framed(to, own, ethertype::IPV6, &[header, message].concat())
}

/// Writes a message's checksum.
fn finish(message: &mut [u8], pseudo: PartialChecksum) {
    let checksum = pseudo.bytes(message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}

/// A ping to the gateway, which answers nothing else.
pub(super) fn echo(frame: &[u8], p: &Packet, router: Mac) -> Result<Vec<u8>, Reason> {
    let (request, reply) = if p.is_v6() { (128, 129) } else { (8, 0) };
    let is_ping = p.is_icmp() && !p.is_error && p.fragment.is_none() && p.icmp == request;
    if !is_ping || p.header != if p.is_v6() { 40 } else { 20 } {
        return Err(Reason::NoRoute);
    }
    let mut out = frame.to_vec();
    out[..6].copy_from_slice(&asker(frame).0);
    out[6..12].copy_from_slice(&router.0);
    let packet = &mut out[ETHERNET..];
    // Both addresses change places, which changes no checksum.
    let (at, size) = if p.is_v6() { (8, 16) } else { (12, 4) };
    let (first, second) = packet[at..].split_at_mut(size);
    first.swap_with_slice(&mut second[..size]);
    if p.is_v6() {
        packet[7] = TTL;
    } else if let (Some(old), Some(checksum)) = (word(packet, 8), word(packet, 10)) {
        packet[8] = TTL;
        let new = u16::from(TTL) << 8 | old & 0xff;
        packet[10..12].copy_from_slice(&update(checksum, old, new).to_be_bytes());
    }
    let icmp = &mut packet[p.header..];
    if let (Some(old), Some(checksum)) = (word(icmp, 0), word(icmp, 2)) {
        icmp[0] = reply;
        let new = u16::from(reply) << 8 | old & 0xff;
        icmp[2..4].copy_from_slice(&update(checksum, old, new).to_be_bytes());
    }
    Ok(out)
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorKind {
    Expired,
    /// Larger than what may be there.
    TooBig(u16),
}

/// Whether a packet's sender may be told: not about errors, not about each of a packet's pieces, and only about packets
/// between two hosts (RFC 1122, 3.2.2; RFC 4443, 2.4 e).
pub(super) fn may_tell(p: &Packet) -> bool {
    let is_one = |address: IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && v4.octets()[0] < 224,
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    };
    !p.is_error
        && !p.is_later()
        && (!p.is_icmp() || may_be_told_of(p.icmp, p.is_v6()))
        && is_one(p.tuple.source)
        && is_one(p.tuple.destination)
}

/// The message to a packet's sender (RFC 792, RFC 1191; RFC 4443, 3.2 and 3.3) from the router's address `from`.
pub(super) fn error(frame: &[u8], p: &Packet, became: ErrorKind, from: IpAddr, macs: (Mac, Mac)) -> Option<Vec<u8>> {
    let quoted = frame.get(ETHERNET..ETHERNET + p.length.min(QUOTED))?;
    let (kind, rest) = match (became, p.is_v6()) {
        (ErrorKind::Expired, false) => ([11, 0], 0),
        (ErrorKind::Expired, true) => ([3, 0], 0),
        (ErrorKind::TooBig(mtu), false) => ([3, 4], u32::from(mtu)),
        (ErrorKind::TooBig(mtu), true) => ([2, 0], u32::from(mtu)),
    };
    let mut message = [&kind[..], &[0, 0], &rest.to_be_bytes(), quoted].concat();
    let mut header = [0; 40];
    let (kind, length) = match (from, p.tuple.source) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            finish(&mut message, PartialChecksum::ZERO);
            let ip = ipv4::Header { source, destination, protocol: ICMP, ttl: TTL, tos: 0 };
            (ethertype::IPV4, ip.write(&mut header, message.len()).ok()?)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let pseudo = PartialChecksum::pseudo_v6(source, destination, ICMPV6, message.len());
            finish(&mut message, pseudo);
            let ip = ipv6::Header { source, destination, protocol: ICMPV6, hop_limit: TTL, traffic_class: 0 };
            (ethertype::IPV6, ip.write(&mut header, message.len()).ok()?)
        }
        _ => return None,
    };
    Some(framed(macs.0, macs.1, kind, &[&header[..length], &message].concat()))
}
