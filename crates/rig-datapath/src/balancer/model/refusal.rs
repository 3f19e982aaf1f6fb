//! Why packets do not go on, and what their senders are told.

use std::net::IpAddr;

use super::super::reason::{Drop, Pass};
use super::packet::{Kind, Packet};
use super::{ICMP_PER_TICK, IPV6_LEAST_MTU, Model};

/// Why a packet does not go on.
#[derive(Debug)]
pub(super) enum Refusal {
    Drop(Drop),
    /// Dropped, and its sender gets this frame.
    TooBigMessage(Vec<u8>),
    /// The same, by the SYN proxy.
    SynAnswered(Vec<u8>),
    /// A backend's packet, which is answered by this one.
    Reset(Vec<u8>),
    Pass(Pass),
}

impl From<Drop> for Refusal {
    fn from(reason: Drop) -> Self {
        Self::Drop(reason)
    }
}

impl Model {
    /// What becomes of a packet that is larger than `mtu`; `from` says so to its sender.
    pub(super) fn too_big(&mut self, packet: &Packet, frame: &[u8], from: IpAddr, mtu: usize, tick: u32) -> Refusal {
        let tell = match (packet.kind, packet.is_ipv6()) {
            (Kind::Error, _) => false,
            (_, true) => packet.length > IPV6_LEAST_MTU,
            (_, false) => packet.dont_fragment(frame),
        };
        if self.icmp_sent.0 != tick {
            self.icmp_sent = (tick, 0);
        }
        if !tell || self.icmp_sent.1 >= ICMP_PER_TICK {
            return Drop::TooBig.into();
        }
        self.icmp_sent.1 += 1;
        Refusal::TooBigMessage(packet.too_big(
            frame,
            from,
            if packet.is_ipv6() { mtu.max(IPV6_LEAST_MTU) } else { mtu },
        ))
    }
}
