//! Datagrams that come in fragments.

use super::super::config::FragmentPolicy;
use super::super::reason::Drop;
use super::packet::{DatagramFragment, FragmentPosition, Packet};
use super::{Model, Refusal};

/// Ticks for which the others may come after the first.
const TICKS: u32 = 15;

impl Model {
    /// The packet that a fragment is handled as; `None` where its ports are not known.
    pub(super) fn part_of(&mut self, part: DatagramFragment, tick: u32) -> Option<Packet> {
        let DatagramFragment { mut packet, id } = part;
        if self.policy.fragments != FragmentPolicy::Forward {
            return None;
        }
        let (source, destination) = (packet.tuple.source, packet.tuple.destination);
        let of = (source.ip(), destination.ip(), id);
        if packet.part == FragmentPosition::First {
            if self.service_of(&packet).is_some() || self.find(packet.tuple).is_some() || self.comes_back(&packet, tick)
            {
                self.fragments.insert(of, (source.port(), destination.port(), tick));
            }
            return Some(packet);
        }
        let (source, destination, since) = *self.fragments.get(&of)?;
        if tick.wrapping_sub(since) > TICKS {
            return None;
        }
        packet.tuple.source.set_port(source);
        packet.tuple.destination.set_port(destination);
        Some(packet)
    }

    /// Whether it is an answer of a service that schedules each datagram by itself.
    fn comes_back(&mut self, packet: &Packet, tick: u32) -> bool {
        let entry = self.entry_back(packet, &[], tick);
        if let Some((at, _)) = entry {
            self.connections.remove(at);
        }
        entry.is_some()
    }

    /// One behind the first.
    pub(super) fn forward_part(&mut self, packet: &mut Packet, frame: &mut Vec<u8>, tick: u32) -> Result<(), Refusal> {
        let (at, direction) = self.find(packet.tuple).ok_or(Drop::Fragment)?;
        self.forward(packet, frame, at, direction, tick)
    }
}
