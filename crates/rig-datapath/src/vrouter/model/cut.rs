//! IPv4 packets that are larger than a tunnel takes, and that routers may cut into pieces (RFC 791, 3.2).

use std::net::IpAddr;

use rig_wire::checksum::{self, PartialChecksum};
use rig_wire::ethernet;
use rig_wire::protocol::{TCP, UDP};

use super::super::control::LARGEST;
use super::super::reason::Reason;
use super::packet::{Packet, word};

const ETHERNET: usize = ethernet::HEADER;
const IPV4: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
const SCTP: u8 = 132;
/// So many pieces are made of a packet.
const MOST: usize = 128;

/// The length of each piece but the last, in units of 8 bytes, and how many pieces there are; `None` where the packet is not cut.
pub(super) fn pieces(p: &Packet, mtu: u16) -> Option<(u16, u8)> {
    // Options would have to be copied, or not, each by its kind.
    if p.is_v6() || !p.may_fragment || p.header != IPV4 || p.length > usize::from(LARGEST) {
        return None;
    }
    // Its checksum (RFC 9260) may be left to the device, which makes none for pieces.
    if p.protocol == SCTP && p.fragment.is_none() {
        return None;
    }
    let eights = mtu.checked_sub(IPV4 as u16)? / 8;
    let count = (p.length - IPV4).div_ceil(usize::from(eights.max(1)) * 8);
    (eights > 0 && count <= MOST).then_some((eights, count as u8))
}

/// The checksum of the TCP or UDP packet, where it was left for the device to make: pieces have none of their own.
pub(super) fn finish_checksum(frame: &mut [u8], p: &Packet) {
    let at = match p.protocol {
        UDP => 6,
        TCP => 16,
        _ => return,
    };
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (p.tuple.source, p.tuple.destination) else { return };
    if p.fragment.is_some() || p.is_error {
        return;
    }
    let l4 = &mut frame[ETHERNET + IPV4..ETHERNET + p.length];
    let pseudo = !PartialChecksum::pseudo_v4(source, destination, p.protocol, l4.len()).checksum();
    if word(l4, at) != Some(pseudo) {
        return;
    }
    let made = match checksum::of(l4) {
        0 if p.protocol == UDP => u16::MAX,
        made => made,
    };
    l4[at..at + 2].copy_from_slice(&made.to_be_bytes());
}

/// A piece of a packet, by its place from 0.
pub(super) fn piece(frame: &[u8], place: u8, eights: u16) -> Result<Vec<u8>, Reason> {
    let (header, length) = (frame.get(ETHERNET..ETHERNET + IPV4), word(frame, ETHERNET + 2));
    let (Some(header), Some(length)) = (header, length) else { return Err(Reason::InvalidPacket) };
    let data = frame.get(ETHERNET + IPV4..ETHERNET + usize::from(length)).ok_or(Reason::InvalidPacket)?;
    let (from, most) = (usize::from(place) * usize::from(eights) * 8, usize::from(eights) * 8);
    if header[0] != 0x45 || from >= data.len() {
        return Err(Reason::InvalidPacket);
    }
    let data = &data[from..];
    let (data, more) = if data.len() > most { (&data[..most], MORE_FRAGMENTS) } else { (data, 0) };
    let fragment = word(header, 6).unwrap_or_default();
    if usize::from(fragment & OFFSET) + from / 8 > usize::from(OFFSET) {
        return Err(Reason::InvalidPacket);
    }
    let mut header = header.to_vec();
    header[2..4].copy_from_slice(&((IPV4 + data.len()) as u16).to_be_bytes());
    header[6..8].copy_from_slice(&((fragment + (from / 8) as u16) | more).to_be_bytes());
    header[10..12].fill(0);
    let sum = checksum::of(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Ok([&frame[..ETHERNET], &header, data].concat())
}
