//! The link below a tunnel: its neighbors, and the frames that come out of it.

use rig_wire::ethernet::{Ethernet, Mac, ethertype};
use rig_wire::udp::Udp;
use rig_wire::vxlan::{self, Vxlan};
use rig_wire::{Malformed, protocol};

use super::Nanos;
use super::engine_core::EngineCore;
use super::family::link::Tunnel;
use super::family::neighbor::{self, NeighborMessage, Resolver};
use super::family::{Family, V4};
use super::port::Transmit;

/// A tunnel and where the gateway of its link is.
#[derive(Debug)]
pub(super) struct Underlay {
    tunnel: Tunnel,
    pub resolver: Resolver<std::net::Ipv4Addr>,
    announced: bool,
}

/// A frame that came from the network below a tunnel.
#[derive(Debug)]
pub(super) enum UnderlayFrame<'a> {
    /// A frame from within the tunnel.
    Frame(&'a [u8]),
    /// The gateway is somewhere else from now on.
    Gateway(Mac),
    /// Something that has been dealt with.
    Done,
}

impl Underlay {
    pub fn new(tunnel: &Tunnel) -> Self {
        let (resolver, announced) = (Resolver::new(tunnel.link.gateway), !tunnel.link.announce);
        Self { tunnel: tunnel.clone(), resolver, announced }
    }

    #[inline(never)]
    pub fn take<'a, F: Family>(
        &mut self,
        now: Nanos,
        frame: &'a [u8],
        core: &mut EngineCore<F>,
        transmit: &mut impl Transmit,
    ) -> Result<UnderlayFrame<'a>, Malformed> {
        let tunnel = &self.tunnel;
        let ethernet = Ethernet::parse(frame)?;
        if !tunnel.link.is_for_us(&ethernet) {
            core.counters.other_rx += 1;
            return Ok(UnderlayFrame::Done);
        }
        if ethernet.ethertype() != ethertype::IPV4 {
            return self.other(now, &ethernet, core, transmit);
        }
        let packet = V4::parse(ethernet.payload())?;
        if packet.protocol == protocol::ICMP && V4::unreachable(&packet)?.is_some() {
            // Which connection it was cannot be told: the error quotes little more than the outer headers.
            core.counters.icmp_rx += 1;
            core.counters.unreachable += 1;
            return Ok(UnderlayFrame::Done);
        }
        if packet.protocol != protocol::UDP {
            return self.other(now, &ethernet, core, transmit);
        }
        let datagram = Udp::parse(packet.payload)?;
        let ends = packet.source == tunnel.remote && packet.destination == tunnel.local;
        if !ends || datagram.destination_port() != vxlan::PORT {
            core.counters.other_rx += 1;
            return Ok(UnderlayFrame::Done);
        }
        if tunnel.link.verify {
            datagram.verify(packet.pseudo, V4::BARE_UDP)?;
        }
        let vxlan = Vxlan::parse(datagram.payload())?;
        if vxlan.vni() != tunnel.vni {
            core.counters.other_rx += 1;
            return Ok(UnderlayFrame::Done);
        }
        Ok(UnderlayFrame::Frame(vxlan.payload()))
    }

    #[cold]
    fn other<F: Family>(
        &mut self,
        now: Nanos,
        ethernet: &Ethernet<'_>,
        core: &mut EngineCore<F>,
        transmit: &mut impl Transmit,
    ) -> Result<UnderlayFrame<'static>, Malformed> {
        let link = &self.tunnel.link;
        let heard = neighbor::receive(link, ethernet, |address| address == self.tunnel.local, &mut core.counters)?;
        let moved = heard.location().filter(|&(address, mac)| self.resolver.found(address, mac, now));
        if let NeighborMessage::Solicitation { .. } | NeighborMessage::Echo { .. } = heard {
            let mut buffer = [0; neighbor::LONGEST];
            let length = V4::answer(&mut buffer, link, ethernet.source(), &heard);
            send(&buffer[..length], core, transmit);
        }
        Ok(moved.map_or(UnderlayFrame::Done, |(_, mac)| UnderlayFrame::Gateway(mac)))
    }

    /// Announces the own address to neighbours, and asks them for the gateway's.
    pub fn greet<F: Family>(&mut self, now: Nanos, core: &mut EngineCore<F>, transmit: &mut impl Transmit) {
        let link = &self.tunnel.link;
        let mut buffer = [0; 128];
        if !std::mem::replace(&mut self.announced, true) {
            let length = V4::announce(&mut buffer, link, link.address);
            send(&buffer[..length], core, transmit);
            if self.tunnel.local != link.address {
                let length = V4::announce(&mut buffer, link, self.tunnel.local);
                send(&buffer[..length], core, transmit);
            }
        }
        if let Some(gateway) = self.resolver.question(now) {
            let length = V4::ask(&mut buffer, link, link.address, gateway);
            send(&buffer[..length], core, transmit);
        }
    }
}

fn send<F: Family>(bytes: &[u8], core: &mut EngineCore<F>, transmit: &mut impl Transmit) {
    if let Some(frame) = core.claim(transmit, bytes.len()) {
        frame.copy_from_slice(bytes);
        neighbor::count_sent(bytes, &mut core.counters);
    }
}
