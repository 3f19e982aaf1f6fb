//! What the link and its neighbors need besides TCP and UDP: ARP, neighbor discovery, echo.

use rig_wire::Malformed;
use rig_wire::ethernet::{Ethernet, Mac, ethertype};

use super::Family;
use super::link::{AnswerScope, Gateway, Link};
use crate::Nanos;
use crate::counters::Counters;

/// Longer echoes are not answered.
const ECHO: usize = 9216;
/// Bytes of the longest answer.
pub(crate) const LONGEST: usize = ECHO + 128;
/// Addresses that are announced in a pass, at most.
pub(crate) const ANNOUNCEMENTS: usize = 8;

/// What a frame that is neither TCP nor UDP says.
#[derive(Debug)]
pub enum NeighborMessage<'a, F: Family> {
    /// A neighbour, with `mac` if it says so, looks for the MAC address of one of ours.
    Solicitation { target: F::Address, by: F::Address, mac: Option<Mac> },
    /// Where an address is.
    Advertisement { address: F::Address, mac: Mac },
    /// An echo request to one of our addresses.
    Echo { source: F::Address, destination: F::Address, echo: (u16, u16), data: &'a [u8] },
    /// Anything else.
    Other,
}

impl<F: Family> NeighborMessage<'_, F> {
    /// Where a neighbour is: the one that was found, or the one that asks (RFC 826; RFC 4861, 7.2.3), which may send at once
    /// and shall be answered.
    pub fn location(&self) -> Option<(F::Address, Mac)> {
        match *self {
            Self::Solicitation { by: address, mac: Some(mac), .. } | Self::Advertisement { address, mac } => {
                Some((address, mac))
            }
            _ => None,
        }
    }
}

/// Takes in a frame that is neither TCP nor UDP.
pub(crate) fn receive<'a, F: Family>(
    link: &Link<F>,
    ethernet: &Ethernet<'a>,
    is_local: impl Fn(F::Address) -> bool,
    counters: &mut Counters,
) -> Result<NeighborMessage<'a, F>, Malformed> {
    let arp = ethernet.ethertype() == ethertype::ARP;
    let icmp = ethernet.ethertype() == F::ETHERTYPE && F::parse(ethernet.payload())?.protocol == F::ICMP;
    match (arp, icmp) {
        (true, _) => counters.arp_rx += 1,
        (_, true) => counters.icmp_rx += 1,
        _ => counters.other_rx += 1,
    }
    let all = link.answer == AnswerScope::All;
    let message = F::parse_neighbor(ethernet, |address, wanted| {
        address == link.address || (all || !wanted) && is_local(address)
    })?;
    Ok(match message {
        NeighborMessage::Echo { data, .. } if data.len() > ECHO => NeighborMessage::Other,
        message => message,
    })
}

/// Counts an ARP or ICMP frame that was sent.
pub(crate) fn count_sent(frame: &[u8], counters: &mut Counters) {
    let arp = Ethernet::parse(frame).is_ok_and(|ethernet| ethernet.ethertype() == ethertype::ARP);
    *(if arp { &mut counters.arp_tx } else { &mut counters.icmp_tx }) += 1;
}

/// The gateway's MAC address: known, or to be asked for.
#[derive(Debug)]
pub(crate) struct Resolver<A> {
    gateway: Gateway<A>,
    pub mac: Option<Mac>,
    ask_at: Nanos,
}

impl<A: Copy + Eq> Resolver<A> {
    const AGAIN: Nanos = 1_000_000_000;
    const REFRESH: Nanos = 30_000_000_000;

    pub fn new(gateway: Gateway<A>) -> Self {
        let mac = match gateway {
            Gateway::Known(mac) => Some(mac),
            Gateway::Address(_) => None,
        };
        Self { gateway, mac, ask_at: 0 }
    }

    /// The address to ask for, when it is time to.
    #[inline]
    pub fn question(&mut self, now: Nanos) -> Option<A> {
        let Gateway::Address(address) = self.gateway else { return None };
        if now < self.ask_at {
            return None;
        }
        self.ask_at = now + if self.mac.is_some() { Self::REFRESH } else { Self::AGAIN };
        Some(address)
    }

    /// Takes up an answer; whether it changed where the gateway is.
    pub fn found(&mut self, address: A, mac: Mac, now: Nanos) -> bool {
        if self.gateway != Gateway::Address(address) || self.mac == Some(mac) {
            return false;
        }
        self.mac = Some(mac);
        self.ask_at = now + Self::REFRESH;
        true
    }
}

pub(crate) mod v4 {
    use std::net::Ipv4Addr;

    use rig_wire::arp::{Arp, Operation};
    use rig_wire::ethernet::{Ethernet, Mac, ethertype};
    use rig_wire::icmp::{self, Icmp, kind};
    use rig_wire::{Malformed, ipv4, protocol};

    use super::super::link::Link;
    use super::super::{Family, V4};
    use super::NeighborMessage;

    const ROOM: &str = "the buffer has room for an answer";

    pub fn ask(buffer: &mut [u8], link: &Link<V4>, local: Ipv4Addr, target: Ipv4Addr) -> usize {
        let at = link.header(Mac::BROADCAST, ethertype::ARP).write(buffer).expect(ROOM);
        let arp = Arp { operation: Operation::Request, sender: (link.mac, local), target: (Mac::default(), target) };
        at + arp.write(&mut buffer[at..]).expect(ROOM)
    }

    pub fn parse<'a>(
        frame: &Ethernet<'a>,
        mine: impl Fn(Ipv4Addr, bool) -> bool,
    ) -> Result<NeighborMessage<'a, V4>, Malformed> {
        if frame.ethertype() == ethertype::ARP {
            let Arp { operation, sender: (mac, by), target: (_, target) } = Arp::parse(frame.payload())?;
            return Ok(match operation {
                Operation::Request if mine(target, true) => {
                    NeighborMessage::Solicitation { target, by, mac: Some(mac) }
                }
                // A request tells where its sender is, a gratuitous one nothing else (RFC 826; RFC 5227, 3).
                Operation::Reply | Operation::Request => NeighborMessage::Advertisement { address: by, mac },
                Operation::Other(_) => NeighborMessage::Other,
            });
        }
        if frame.ethertype() != ethertype::IPV4 {
            return Ok(NeighborMessage::Other);
        }
        let packet = V4::parse(frame.payload())?;
        if packet.protocol != protocol::ICMP {
            return Ok(NeighborMessage::Other);
        }
        let icmp = Icmp::parse(packet.payload)?;
        icmp.verify()?;
        let (source, destination) = (packet.source, packet.destination);
        Ok(match icmp.kind() {
            kind::ECHO_REQUEST if mine(destination, false) => {
                NeighborMessage::Echo { source, destination, echo: icmp.echo(), data: icmp.payload() }
            }
            _ => NeighborMessage::Other,
        })
    }

    /// A gratuitous request: it asks for the sender's own address.
    pub fn announce(buffer: &mut [u8], link: &Link<V4>, address: Ipv4Addr) -> usize {
        ask(buffer, link, address, address)
    }

    pub fn answer(buffer: &mut [u8], link: &Link<V4>, to: Mac, message: &NeighborMessage<'_, V4>) -> usize {
        match *message {
            NeighborMessage::Solicitation { target, by, mac } => {
                let mac = mac.unwrap_or(to);
                let at = link.header(mac, ethertype::ARP).write(buffer).expect(ROOM);
                let arp = Arp { operation: Operation::Reply, sender: (link.mac, target), target: (mac, by) };
                at + arp.write(&mut buffer[at..]).expect(ROOM)
            }
            NeighborMessage::Echo { source, destination, echo, data } => {
                let at = link.header(to, ethertype::IPV4).write(buffer).expect(ROOM);
                let ip = at + ipv4::HEADER;
                let length = icmp::write_echo(&mut buffer[ip..], kind::ECHO_REPLY, echo, data).expect(ROOM);
                let hops = (link.hop_limit, link.tos);
                V4::write(&mut buffer[at..], (destination, source), protocol::ICMP, hops, length);
                ip + length
            }
            NeighborMessage::Advertisement { .. } | NeighborMessage::Other => 0,
        }
    }
}

pub(crate) mod v6 {
    use std::net::Ipv6Addr;

    use rig_wire::checksum::PartialChecksum;
    use rig_wire::ethernet::{Ethernet, Mac, ethertype};
    use rig_wire::icmpv6::{self, Icmpv6, Neighbor, kind, solicited_node};
    use rig_wire::{Malformed, ipv6, protocol};

    use super::super::link::Link;
    use super::super::{Family, V6};
    use super::NeighborMessage;

    const ROOM: &str = "the buffer has room for an answer";
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    /// RFC 2464, 7.
    const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);
    /// Neighbor discovery never crosses a router (RFC 4861, 7.1).
    const ON_LINK: u8 = 255;

    fn neighbor(buffer: &mut [u8], link: &Link<V6>, to: Mac, ends: (Ipv6Addr, Ipv6Addr), message: Neighbor) -> usize {
        let at = link.header(to, ethertype::IPV6).write(buffer).expect(ROOM);
        let length = message.len();
        V6::write(&mut buffer[at..], ends, protocol::ICMPV6, (ON_LINK, 0), length);
        let pseudo = PartialChecksum::pseudo_v6(ends.0, ends.1, protocol::ICMPV6, length);
        let ip = at + ipv6::HEADER;
        ip + message.write(&mut buffer[ip..], pseudo).expect(ROOM)
    }

    pub fn ask(buffer: &mut [u8], link: &Link<V6>, local: Ipv6Addr, target: Ipv6Addr) -> usize {
        let (group, mac) = solicited_node(target);
        let message = Neighbor::Solicitation { target, source: Some(link.mac) };
        neighbor(buffer, link, mac, (local, group), message)
    }

    pub fn parse<'a>(
        frame: &Ethernet<'a>,
        mine: impl Fn(Ipv6Addr, bool) -> bool,
    ) -> Result<NeighborMessage<'a, V6>, Malformed> {
        if frame.ethertype() != ethertype::IPV6 {
            return Ok(NeighborMessage::Other);
        }
        let packet = V6::parse(frame.payload())?;
        if packet.protocol != protocol::ICMPV6 {
            return Ok(NeighborMessage::Other);
        }
        let icmp = Icmpv6::parse(packet.payload)?;
        icmp.verify(packet.pseudo)?;
        let (source, destination) = (packet.source, packet.destination);
        Ok(match icmp.neighbor(packet.hop_limit)? {
            Some(Neighbor::Solicitation { target, source: mac }) if mine(target, true) => {
                NeighborMessage::Solicitation { target, by: source, mac }
            }
            Some(Neighbor::Advertisement { target: address, mac: Some(mac), .. }) => {
                NeighborMessage::Advertisement { address, mac }
            }
            None if icmp.kind() == kind::ECHO_REQUEST && mine(destination, false) => {
                NeighborMessage::Echo { source, destination, echo: icmp.echo(), data: icmp.payload() }
            }
            _ => NeighborMessage::Other,
        })
    }

    /// An unsolicited advertisement to all nodes, which overrides what they knew.
    pub fn announce(buffer: &mut [u8], link: &Link<V6>, address: Ipv6Addr) -> usize {
        let message = Neighbor::Advertisement { target: address, mac: Some(link.mac), solicited: false };
        neighbor(buffer, link, ALL_NODES_MAC, (address, ALL_NODES), message)
    }

    pub fn answer(buffer: &mut [u8], link: &Link<V6>, to: Mac, message: &NeighborMessage<'_, V6>) -> usize {
        match *message {
            NeighborMessage::Solicitation { target, by, mac } => {
                // A neighbour without an address yet is answered by a multicast to all nodes (RFC 4861, 7.2.4).
                let solicited = !by.is_unspecified();
                let by = if solicited { by } else { ALL_NODES };
                let message = Neighbor::Advertisement { target, mac: Some(link.mac), solicited };
                neighbor(buffer, link, mac.unwrap_or(to), (target, by), message)
            }
            NeighborMessage::Echo { source, destination, echo, data } => {
                let at = link.header(to, ethertype::IPV6).write(buffer).expect(ROOM);
                let length = icmpv6::HEADER + data.len();
                let hops = (link.hop_limit, link.tos);
                V6::write(&mut buffer[at..], (destination, source), protocol::ICMPV6, hops, length);
                let pseudo = PartialChecksum::pseudo_v6(destination, source, protocol::ICMPV6, length);
                let ip = at + ipv6::HEADER;
                ip + icmpv6::write_echo(&mut buffer[ip..], kind::ECHO_REPLY, echo, data, pseudo).expect(ROOM)
            }
            NeighborMessage::Advertisement { .. } | NeighborMessage::Other => 0,
        }
    }
}
