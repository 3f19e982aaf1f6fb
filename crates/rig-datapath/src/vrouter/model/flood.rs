//! Frames to all of a network, and what comes instead of them: questions for addresses that are answered.

use std::net::{IpAddr, Ipv4Addr};

use rig_wire::ethernet::{Mac, ethertype};

use super::super::config::{Encapsulation, Flood, NextHop, Tunnel, flood_tunnel};
use super::super::reason::Reason;
use super::packet::{Packet, word};
use super::route::{self, Ingress};
use super::tunnel::{self, OuterHeader};
use super::{ETHERNET, Egress, EgressFrame, Model, Refusal, answer, flow, mac_at, refused};

/// A source without an address yet, or with one of its link alone (RFC 4291, 2.5.6).
fn is_of_link(source: IpAddr) -> bool {
    source.is_unspecified() || matches!(source, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

impl Model {
    /// The members that get a frame to a group or an unknown address.
    fn members(&self, vrf: u32, mac: Mac) -> Option<Flood> {
        let vrf = self.config.vrfs.get(&vrf)?;
        vrf.flood.clone().filter(|flood| !vrf.macs.contains_key(&mac) && (mac.is_multicast() || flood.unknown_unicast))
    }

    /// The members that get a frame that came by a tunnel for a network; `None` for other frames.
    pub(super) fn flood_of(&self, vrf: u32, frame: &[u8], outer: &OuterHeader) -> Option<Flood> {
        let mac = mac_at(frame, outer.inner);
        let is_bridged = outer.encapsulation == Encapsulation::Vxlan && mac != self.config.mac;
        if is_bridged { self.members(vrf, mac) } else { None }
    }

    fn is_for_all(&mut self, p: &mut Packet, number: u32, by: Ingress) -> Result<(), Reason> {
        // RFC 1122, 3.2.2.
        if p.is_error {
            return Err(Reason::InvalidPacket);
        }
        self.flows.join_pieces(p, number)?;
        let vrf = self.config.interfaces.get(&number).ok_or(Reason::InvalidIf)?.vrf;
        if is_of_link(p.tuple.source) {
            return Ok(());
        }
        route::way_back(&self.config, vrf, p.tuple.source, by).map(drop)
    }

    /// Of no flow, so that refusals alone are logged.
    fn is_let_through(&mut self, p: &Packet, from: Option<u32>, to: Option<u32>) -> bool {
        let asked = self.flows.steps.len();
        let is = flow::is_let_through(&self.config, &p.tuple, p.icmp, from, to, &mut self.flows.steps);
        if !is {
            self.flows.logged.extend(flow::logged(&self.config, &self.flows.steps[asked..], p.tuple, false));
        }
        is
    }

    pub(super) fn container_floods(
        &mut self,
        frame: &[u8],
        p: &mut Packet,
        number: u32,
    ) -> Result<EgressFrame, Refusal> {
        let vrf = self.config.interfaces[&number].vrf;
        let flood = self.members(vrf, mac_at(frame, 0)).ok_or_else(|| refused(number)(Reason::L2NoRoute))?;
        self.is_for_all(p, number, Ingress::Interface(number)).map_err(refused(number))?;
        if !self.is_let_through(p, Some(number), None) {
            return Err(refused(number)(Reason::Policy));
        }
        let mut all = self.copies_here(frame, p, &flood, number);
        for (peer, way) in &flood.peers {
            let NextHop::Tunnel(tunnel) = flood_tunnel(*peer, *way) else { continue };
            all.push(self.copy_away(frame, p, &tunnel).map_err(refused(number)));
        }
        self.sent(number, all)
    }

    pub(super) fn peer_floods(
        &mut self,
        frame: &[u8],
        p: &mut Packet,
        outer: &OuterHeader,
        flood: &Flood,
    ) -> Result<EgressFrame, Refusal> {
        let first = *flood.members.first().ok_or_else(|| refused(0)(Reason::L2NoRoute))?;
        self.is_for_all(p, first, Ingress::Peer(outer.source)).map_err(refused(0))?;
        let mut inner = frame[outer.inner..].to_vec();
        tunnel::mark(&mut inner[ETHERNET..], p, outer.class).map_err(refused(0))?;
        let all = self.copies_here(&inner, p, flood, 0);
        self.sent(0, all)
    }

    /// The members that get frames with an MPLS label, where it is a network's for frames to all.
    pub(super) fn flood_by_label(&self, outer: &OuterHeader, label: u32) -> Option<Flood> {
        let floods = self.config.vrfs.values().filter_map(|vrf| vrf.flood.as_ref());
        let mut floods = floods.filter(|flood| flood.label == Some(label));
        if outer.encapsulation == Encapsulation::Vxlan { None } else { floods.next().cloned() }
    }

    /// A frame that came with it.
    pub(super) fn peer_floods_by_label(
        &mut self,
        frame: &[u8],
        outer: &OuterHeader,
        flood: &Flood,
    ) -> Result<EgressFrame, Refusal> {
        let behind = outer.inner + ETHERNET;
        let kind = word(frame, behind - 2).ok_or_else(|| refused(0)(Reason::InvalidPacket))?;
        let is_v6 = match kind {
            ethertype::IPV4 | ethertype::IPV6 => kind == ethertype::IPV6,
            // The label does not tell which container asks.
            ethertype::ARP => return Err(refused(0)(Reason::Unanswered)),
            _ => return Err(refused(0)(Reason::InvalidProtocol)),
        };
        let mut p = Packet::parse(&frame[behind..], is_v6).map_err(refused(0))?;
        if behind + p.length > outer.end {
            return Err(refused(0)(Reason::InvalidPacket));
        }
        p.is_for_others(true).map_err(refused(0))?;
        // A sender that knew the address would have used the label of its interface (RFC 7432, 13.2.1).
        if !mac_at(frame, outer.inner).is_multicast() && !flood.unknown_unicast {
            return Err(refused(0)(Reason::L2NoRoute));
        }
        self.peer_floods(frame, &mut p, outer, flood)
    }

    /// To the members of this node but the sender.
    fn copies_here(
        &mut self,
        frame: &[u8],
        p: &Packet,
        flood: &Flood,
        number: u32,
    ) -> Vec<Result<EgressFrame, Refusal>> {
        let others = flood.members.iter().filter(|member| **member != number);
        let copy = |member: &u32| match self.is_let_through(p, None, Some(*member)) {
            true => Ok((Egress::Interface(*member), frame.to_vec())),
            false => Err(refused(*member)(Reason::Policy)),
        };
        others.map(copy).collect()
    }

    fn copy_away(&self, frame: &[u8], p: &Packet, tunnel: &Tunnel) -> Result<EgressFrame, Reason> {
        if p.length > usize::from(self.mtu_of(tunnel.peer, tunnel.encapsulation.overhead_of_frame())) {
            return Err(Reason::TooBig);
        }
        let underlay = self.config.underlay.as_ref().ok_or(Reason::InvalidNh)?;
        let port = route::tunnel_port(route::hash(&p.spread_by(), p.tuple.protocol));
        Ok((Egress::Tunnel(*tunnel), tunnel::wrap_frame(frame, p, tunnel, underlay.address, port)))
    }

    /// The last copy; those before it are beside it, and what was refused is counted.
    fn sent(&mut self, number: u32, all: Vec<Result<EgressFrame, Refusal>>) -> Result<EgressFrame, Refusal> {
        let mut no_route = refused(number)(Reason::L2NoRoute);
        let mut copies = Vec::new();
        let mut refusals = Vec::new();
        for one in all {
            match one {
                Ok(copy) => copies.push(copy),
                Err(refused) => refusals.push(refused),
            }
        }
        if copies.is_empty()
            && let Some(last) = refusals.pop()
        {
            no_route = last;
        }
        for refused in refusals {
            *self.drops.entry((refused.interface, refused.reason)).or_default() += 1;
        }
        if !copies.is_empty() {
            let copied = self.copied.entry(number).or_default();
            copied.frames += 1;
            copied.copies += copies.len() as u64;
        }
        let last = copies.pop().ok_or(no_route)?;
        self.copies = copies;
        Ok(last)
    }

    /// The interface here whose address a host of the network on another node asks for.
    fn asked_by_peer(&self, network: &NextHop, asked: IpAddr) -> Option<Mac> {
        let vrf = match network {
            NextHop::Vrf(vrf) => *vrf,
            NextHop::Interface(number) => self.config.interfaces.get(number)?.vrf,
            _ => return None,
        };
        match self.config.vrfs.get(&vrf)?.routes.get(&asked.into())? {
            NextHop::Interface(number) => Some(self.config.interfaces.get(number)?.mac),
            _ => None,
        }
    }

    /// An ARP question from behind a tunnel.
    pub(super) fn peer_asks(&self, frame: &[u8], outer: &OuterHeader, label: u32) -> Result<EgressFrame, Reason> {
        /// RFC 826, for Ethernet and IPv4.
        const ARP: usize = 28;
        let network = self.target(outer, label)?;
        let behind = outer.inner + ETHERNET + ARP;
        if behind > outer.end {
            return Err(Reason::InvalidArp);
        }
        let inner = frame.get(outer.inner..behind).ok_or(Reason::InvalidArp)?;
        let (asked, _) = answer::arp(inner, Mac::default())?;
        let mac = self.asked_by_peer(&network, asked.into()).ok_or(Reason::Unanswered)?;
        let (_, mut answer) = answer::arp(inner, mac)?;
        // To the sender of the frame, not to the one that its question names.
        answer[..6].copy_from_slice(&inner[6..12]);
        self.answered(frame, 0, outer, label, &answer, &frame[behind..])
    }

    /// A neighbour's question from behind a tunnel.
    pub(super) fn peer_solicits(
        &self,
        frame: &[u8],
        p: &Packet,
        outer: &OuterHeader,
        (label, network): (u32, &NextHop),
    ) -> Result<EgressFrame, Reason> {
        let inner = &frame[outer.inner..];
        let asked = answer::asked_for(inner, p)?;
        let mac = self.asked_by_peer(network, asked.into()).ok_or(Reason::Unanswered)?;
        let answer = answer::solicitation(inner, p, (mac_at(inner, 6), mac), asked, answer::OF_HOST);
        self.answered(frame, p.class, outer, label, &answer, &[])
    }

    fn answered(
        &self,
        frame: &[u8],
        class: u8,
        outer: &OuterHeader,
        label: u32,
        answer: &[u8],
        rest: &[u8],
    ) -> Result<EgressFrame, Reason> {
        let own = self.config.underlay.as_ref().map_or(Ipv4Addr::UNSPECIFIED, |underlay| underlay.address);
        let encapsulation = Encapsulation::Vxlan;
        let to = Tunnel { peer: outer.source, encapsulation, label, mac: mac_at(answer, 0) };
        Ok((Egress::Tunnel(to), tunnel::answer(frame, class, (own, outer.port), &to, answer, rest)))
    }
}
