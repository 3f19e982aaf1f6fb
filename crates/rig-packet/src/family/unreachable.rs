//! Errors that the network reports of packets of ours.

use std::net::{Ipv4Addr, Ipv6Addr};

use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6};
use rig_wire::{Malformed, QuotedPacket};

use super::Packet;

/// A packet of ours has not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable<A> {
    pub quoted: QuotedPacket<A>,
    /// Whether it is only too large, and a smaller one would have come through.
    pub too_big: bool,
}

/// "Fragmentation needed" (RFC 792).
const FRAGMENTATION: u8 = 4;

pub(crate) fn v4(packet: &Packet<'_, Ipv4Addr>) -> Result<Option<Unreachable<Ipv4Addr>>, Malformed> {
    let icmp = Icmp::parse(packet.payload)?;
    icmp.verify()?;
    if icmp.kind() != icmp::kind::UNREACHABLE {
        return Ok(None);
    }
    let too_big = icmp.code() == FRAGMENTATION;
    Ok(Some(Unreachable { quoted: QuotedPacket::v4(icmp.payload())?, too_big }))
}

pub(crate) fn v6(packet: &Packet<'_, Ipv6Addr>) -> Result<Option<Unreachable<Ipv6Addr>>, Malformed> {
    let icmp = Icmpv6::parse(packet.payload)?;
    icmp.verify(packet.pseudo)?;
    let too_big = icmp.kind() == icmpv6::kind::TOO_BIG;
    if !too_big && icmp.kind() != icmpv6::kind::UNREACHABLE {
        return Ok(None);
    }
    Ok(Some(Unreachable { quoted: QuotedPacket::v6(icmp.payload())?, too_big }))
}
