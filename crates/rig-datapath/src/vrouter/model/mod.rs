//! The vRouter's rules in plain Rust: what the programs shall do with each packet, for differential tests.
//!
//! It knows nothing of tables, numbers of next hops and compiled lists, and has no shortcuts: each packet's routes and rules are
//! looked up in the configuration itself. Packets that are still to be cut into segments are none of its.

mod answer;
mod cut;
mod exercise;
mod flood;
mod flow;
mod mss;
mod packet;
mod route;
mod source;
mod steps;
mod tunnel;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rig_wire::ethernet::{self, Mac, ethertype};

use super::config::{Config, Encapsulation, NextHop, Tunnel, Vni};
use super::control::LARGEST;
use super::reason::Reason;
use super::status::{CopyCount, Source, Traffic};
use super::sweep::Timeouts;
use super::trial::{Side, Verdict};
use answer::ErrorKind;
pub use exercise::exercise;
pub use flow::RuleRecord;
use flow::{Flows, Resolution};
use packet::{Packet, word};
use route::Ingress;
pub use steps::Step;
use tunnel::OuterHeader;

const ETHERNET: usize = ethernet::HEADER;

/// What came of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketResult {
    pub verdict: Verdict,
    /// Why it was dropped, or the reason that its sender was told in place of a drop.
    pub reason: Option<Reason>,
    pub out: Option<Egress>,
    /// As it goes out; as it came where it does not. Of a tunnel's packet the link's addresses are the kernel's to fill in.
    pub frame: Vec<u8>,
    /// Copies of a frame to all, which go out before it.
    pub copies: Vec<(Egress, Vec<u8>)>,
}

/// The interface or tunnel that a frame goes out by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Egress {
    /// A container's interface, by its number.
    Interface(u32),
    Tunnel(Tunnel),
    /// By nothing yet: it comes in once more in so many pieces, each but the last of so many times 8 bytes.
    Pieces {
        count: u8,
        eights: u16,
    },
}

/// One direction of a flow, as [`Flow`](super::Flow) has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowEntry {
    pub interface: u32,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub packets: u64,
    pub bytes: u64,
    pub forward: bool,
    pub denied: bool,
    pub fat: bool,
    pub reverse_interface: u32,
    pub tunnel_port: u16,
}

impl FlowEntry {
    fn of(key: &flow::Key, flow: &flow::Flow) -> Self {
        Self {
            interface: key.interface,
            protocol: key.tuple.protocol,
            source: SocketAddr::new(key.tuple.source, key.tuple.source_port),
            destination: SocketAddr::new(key.tuple.destination, key.tuple.destination_port),
            packets: flow.packets,
            bytes: flow.bytes,
            forward: flow.forward,
            denied: flow.denied,
            fat: flow.fat,
            reverse_interface: flow.reverse_interface,
            tunnel_port: flow.tunnel_port,
        }
    }
}

/// From a flow of the router's own table, to compare both.
impl From<super::status::Flow> for FlowEntry {
    fn from(flow: super::status::Flow) -> Self {
        let super::status::Flow { interface, protocol, source, destination, packets, bytes, .. } = flow;
        let super::status::Flow { forward, denied, fat, reverse_interface, tunnel_port, .. } = flow;
        Self {
            interface,
            protocol,
            source,
            destination,
            packets,
            bytes,
            forward,
            denied,
            fat,
            reverse_interface,
            tunnel_port,
        }
    }
}

/// A router with a configuration, and what it remembers.
#[derive(Debug)]
pub struct Model {
    config: Config,
    flows: Flows,
    /// Packets of interfaces.
    traffic: BTreeMap<u32, Traffic>,
    /// By interface, 0 for none.
    drops: BTreeMap<(u32, Reason), u64>,
    /// Frames to all, by the interface that they came from, 0 for tunnels.
    copied: BTreeMap<u32, CopyCount>,
    /// By the interfaces that there are.
    sources: BTreeMap<u32, Source>,
    /// Copies of the frame that came last.
    copies: Vec<EgressFrame>,
    mirrored: Vec<MirrorCopy>,
}

/// A frame for an analyser, by its number, as it is in VXLAN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorCopy {
    pub analyser: u8,
    pub frame: Vec<u8>,
}

/// A frame, and the interface or tunnel that it goes out by.
type EgressFrame = (Egress, Vec<u8>);

/// Why a packet does not go on, and which interface that counts for.
struct Refusal {
    interface: u32,
    reason: Reason,
    /// What its sender is told.
    told: Option<Vec<u8>>,
}

impl Model {
    /// With room for so many directions of flows.
    pub fn new(capacity: usize) -> Self {
        Self {
            config: Config::default(),
            flows: Flows::new(capacity),
            traffic: BTreeMap::new(),
            drops: BTreeMap::new(),
            copied: BTreeMap::new(),
            sources: BTreeMap::new(),
            copies: Vec::new(),
            mirrored: Vec::new(),
        }
    }

    /// See [`Router::apply`](super::Router::apply). The configuration is a valid one.
    pub fn apply(&mut self, config: &Config) {
        self.sources = self.sources_under(config);
        self.config = config.clone();
        self.flows.turn_over();
    }

    /// Takes over what a router remembers of its flows, behind [`apply`](Self::apply): the next packet of each is held against
    /// routes and rules, with which a router comes to the same as it did before.
    pub fn remember(&mut self, flows: impl IntoIterator<Item = FlowEntry>, tick: u32) {
        flows.into_iter().for_each(|known| self.flows.remember(&known, tick));
    }

    /// What decided about the packet that came last.
    pub fn steps(&self) -> &[Step] {
        &self.flows.steps
    }

    /// The copies for analysers since the last call; whole, also where the underlay's MTU is too small for them.
    pub fn mirrored(&mut self) -> Vec<MirrorCopy> {
        std::mem::take(&mut self.mirrored)
    }

    /// What rules that log have decided since this was asked last; refusals are all told.
    pub fn logged(&mut self) -> Vec<RuleRecord> {
        std::mem::take(&mut self.flows.logged)
    }

    /// See [`Sweeper::sweep`](super::Sweeper::sweep).
    pub fn sweep(&mut self, timeouts: &Timeouts, runs_short: bool, tick: u32) -> usize {
        self.flows.sweep(&self.config, timeouts, runs_short, tick)
    }

    /// Packets and bytes of an interface.
    pub fn traffic(&self, interface: u32) -> Traffic {
        let of = self.drops.iter().filter(|((of, _), _)| *of == interface);
        let drops = of.map(|(_, count)| count).sum();
        Traffic { drops, ..self.traffic.get(&interface).copied().unwrap_or_default() }
    }

    /// Dropped packets, by interface, 0 for none, and reason.
    pub fn drops(&self) -> &BTreeMap<(u32, Reason), u64> {
        &self.drops
    }

    /// See [`Router::copied`](super::Router::copied).
    pub fn copied(&self, interface: u32) -> CopyCount {
        self.copied.get(&interface).copied().unwrap_or_default()
    }

    pub fn connections(&self, interface: u32) -> usize {
        self.flows.connections(interface)
    }

    /// Flows, in their order.
    pub fn flows(&self) -> Vec<FlowEntry> {
        let mut all: Vec<FlowEntry> = self.flows.all.iter().map(|(key, flow)| FlowEntry::of(key, flow)).collect();
        all.sort();
        all
    }

    /// A frame that comes in by an interface, the kernel's number of it, in a tick of 2^27 ns.
    pub fn packet(&mut self, side: Side, index: u32, frame: &[u8], tick: u32) -> PacketResult {
        self.flows.steps.clear();
        let sent = match side {
            Side::Container => self.container_sends(index, frame, tick, None).map(Some),
            Side::Underlay => self.underlay_brings(index, frame, tick),
        };
        self.outcome(frame, sent)
    }

    /// One of the pieces of a container's packet, by its place: see [`Egress::Pieces`].
    pub fn piece(&mut self, index: u32, frame: &[u8], (place, eights): (u8, u16), tick: u32) -> PacketResult {
        self.flows.steps.clear();
        let sent = self.container_sends(index, frame, tick, Some((place, eights))).map(Some);
        self.outcome(frame, sent)
    }

    fn outcome(&mut self, frame: &[u8], sent: Result<Option<EgressFrame>, Refusal>) -> PacketResult {
        let copies = std::mem::take(&mut self.copies);
        let left =
            |verdict, reason| PacketResult { verdict, reason, out: None, frame: frame.to_vec(), copies: Vec::new() };
        let (reason, out, frame) = match sent {
            Ok(None) => return left(Verdict::Pass, None),
            Ok(Some((out, frame))) => (None, out, frame),
            Err(refused) => {
                *self.drops.entry((refused.interface, refused.reason)).or_default() += 1;
                let Some(told) = refused.told else { return left(Verdict::Drop, Some(refused.reason)) };
                (Some(refused.reason), Egress::Interface(refused.interface), told)
            }
        };
        for (out, frame) in copies.iter().map(|(out, frame)| (out, frame)).chain([(&out, &frame)]) {
            let Egress::Interface(number) = out else { continue };
            let traffic = self.traffic.entry(*number).or_default();
            traffic.out_packets += 1;
            traffic.out_bytes += frame.len() as u64;
        }
        PacketResult { verdict: Verdict::Redirect, reason, out: Some(out), frame, copies }
    }

    fn container_sends(
        &mut self,
        index: u32,
        frame: &[u8],
        tick: u32,
        piece: Option<(u8, u16)>,
    ) -> Result<EgressFrame, Refusal> {
        let known = self.config.interfaces.iter().find(|(_, interface)| interface.index == index);
        let Some((&number, _)) = known else { return Err(refused(0)(Reason::InvalidIf)) };
        let mut foreign = None;
        let cut;
        let frame = match piece {
            Some((place, eights)) => {
                cut = cut::piece(frame, place, eights).map_err(refused(number))?;
                &cut[..]
            }
            None => {
                let traffic = self.traffic.entry(number).or_default();
                traffic.in_packets += 1;
                traffic.in_bytes += frame.len() as u64;
                if frame.len() >= ETHERNET {
                    foreign = self.meet(number, mac_at(frame, 6));
                }
                frame
            }
        };
        let refused = refused(number);
        let Some(kind) = word(frame, 12) else { return Err(refused(Reason::InvalidPacket)) };
        let interface = &self.config.interfaces[&number];
        let vrf = interface.vrf;
        if let Some(reason) = foreign.filter(|_| kind == ethertype::ARP) {
            return Err(refused(reason));
        }
        if kind == ethertype::ARP {
            let (asked, answer) = answer::arp(frame, self.config.mac).map_err(&refused)?;
            self.answers_for(number, asked.into()).map_err(&refused)?;
            return Ok((Egress::Interface(number), answer));
        }
        if kind != ethertype::IPV4 && kind != ethertype::IPV6 {
            return Err(refused(Reason::InvalidProtocol));
        }
        let mut p = Packet::parse(&frame[ETHERNET..], kind == ethertype::IPV6).map_err(&refused)?;
        if let Some(reason) = foreign {
            return Err(refused(reason));
        }
        if answer::is_solicitation(&p) {
            let asked = answer::asked_for(frame, &p).map_err(&refused)?;
            self.answers_for(number, asked.into()).map_err(&refused)?;
            let answer =
                answer::solicitation(frame, &p, (answer::asker(frame), self.config.mac), asked, answer::OF_ROUTER);
            return Ok((Egress::Interface(number), answer));
        }
        p.is_for_others(interface.serves_dhcp).map_err(&refused)?;
        // For the router's address it is routed, for another one it stays in its network.
        let destination = mac_at(frame, 0);
        let bridged = if destination == self.config.mac {
            None
        } else {
            let hop = self.config.vrfs.get(&vrf).and_then(|vrf| vrf.macs.get(&destination));
            let Some(to) = hop.cloned() else { return self.container_floods(frame, &mut p, number) };
            self.flows.steps.push(Step::Bridge { vrf, mac: destination, to: to.clone() });
            Some(to)
        };
        let resolution = self.resolution(&mut p, number, bridged.as_ref(), tick).map_err(&refused)?;
        // The analyser gets a packet that was cut once, as it was before.
        if let Some(analyser) = resolution.mirror.filter(|_| piece.is_none()) {
            self.mirrored.push(MirrorCopy { analyser, frame: frame[..ETHERNET + p.length].to_vec() });
        }
        let sent = self.forward(frame, &p, number, &resolution, bridged.is_some())?;
        match sent.0 {
            // What takes it takes its pieces, one by one.
            Egress::Pieces { .. } if self.flows.steps.iter().any(|step| matches!(step, Step::Flow(_))) => {
                self.flows.uncount(&p, number);
            }
            Egress::Pieces { .. } => {}
            _ => self.count(number, &resolution.next_hop, bridged.is_some()),
        }
        Ok(sent)
    }

    /// What has taken a packet that an interface sends, or gets by a tunnel.
    fn count(&mut self, number: u32, hop: &NextHop, bridged: bool) {
        let taken = &mut self.traffic.entry(number).or_default().taken;
        match hop {
            NextHop::Gateway => taken.receives += 1,
            NextHop::Interface(_) if bridged => taken.l2_encaps += 1,
            NextHop::Interface(_) => taken.encaps += 1,
            NextHop::Tunnel(tunnel) => match tunnel.encapsulation {
                Encapsulation::MplsOverUdp => taken.mpls_over_udp += 1,
                Encapsulation::MplsOverGre => taken.mpls_over_gre += 1,
                Encapsulation::Vxlan => taken.vxlan += 1,
            },
            NextHop::Discard | NextHop::Vrf(_) | NextHop::Ecmp(_) => {}
        }
        for step in &self.flows.steps {
            match step {
                Step::Route { to: NextHop::Vrf(_), .. } => taken.translates += 1,
                Step::Route { to: NextHop::Ecmp(_), .. } => taken.ecmps += 1,
                _ => {}
            }
        }
    }

    /// Whether the router answers for an address: it has a route there, which does not lead back to the sender.
    fn answers_for(&self, number: u32, address: IpAddr) -> Result<(), Reason> {
        let vrf = self.config.interfaces[&number].vrf;
        match route::resolve(&self.config, vrf, address, 0) {
            Ok(hop) if hop != NextHop::Interface(number) => Ok(()),
            _ => Err(Reason::Unanswered),
        }
    }

    fn has_policy(&self, hop: &NextHop) -> bool {
        let NextHop::Interface(number) = hop else { return false };
        self.config.interfaces.get(number).is_some_and(|interface| interface.policy.is_some())
    }

    /// Where a container's packet goes. It is of a flow where either end here has a policy.
    fn resolution(
        &mut self,
        p: &mut Packet,
        number: u32,
        bridged: Option<&NextHop>,
        tick: u32,
    ) -> Result<Resolution, Reason> {
        let interface = &self.config.interfaces[&number];
        let mut held = interface.policy.is_some();
        if !held {
            let hash = route::hash(&p.spread_by(), p.tuple.protocol);
            let next_hop = match bridged {
                Some(hop) => hop.clone(),
                None => {
                    self.flows.steps.extend(flow::route_steps(&self.config, interface.vrf, p.tuple.destination));
                    route::resolve(&self.config, interface.vrf, p.tuple.destination, hash)?
                }
            };
            held = self.has_policy(&next_hop);
            if !held {
                let (vrf, source) = (interface.vrf, p.tuple.source);
                self.flows.came_by(&self.config, vrf, source, Ingress::Interface(number))?;
                return Ok(Resolution { next_hop, tunnel_port: route::tunnel_port(hash), mirror: None });
            }
            // It is looked up once more, for its flow.
            self.flows.steps.retain(|step| !matches!(step, Step::Route { .. }));
        }
        let mut resolution = self.flows.follow(&self.config, p, number, Ingress::Interface(number), tick)?;
        if let Some(hop) = bridged {
            // Rules were looked up by the packet's IP address; the frame's MAC address must not lead to another container.
            let is_the_same = match (hop, &resolution.next_hop) {
                // In another encapsulation there are other labels.
                (NextHop::Tunnel(a), NextHop::Tunnel(b)) if a.encapsulation != b.encapsulation => a.peer == b.peer,
                (hop, resolution) => hop == resolution,
            };
            if !is_the_same {
                return Err(Reason::InvalidNh);
            }
            resolution.next_hop = hop.clone();
        }
        Ok(resolution)
    }

    fn forward(
        &self,
        frame: &[u8],
        p: &Packet,
        number: u32,
        resolution: &Resolution,
        bridged: bool,
    ) -> Result<EgressFrame, Refusal> {
        let refused = refused(number);
        let router = self.config.mac;
        if resolution.next_hop == NextHop::Gateway {
            let answer = answer::echo(frame, p, router).map_err(&refused)?;
            return Ok((Egress::Interface(number), answer));
        }
        if !bridged && p.ttl <= 1 {
            return Err(self.tell(frame, p, number, ErrorKind::Expired));
        }
        if let NextHop::Tunnel(tunnel) = &resolution.next_hop {
            let mtu = self.mtu(tunnel);
            if p.length > usize::from(mtu) {
                if !p.may_fragment {
                    return Err(self.tell(frame, p, number, ErrorKind::TooBig(mtu)));
                }
                let (eights, count) = cut::pieces(p, mtu).ok_or_else(|| refused(Reason::TooBig))?;
                let mut frame = frame.to_vec();
                cut::finish_checksum(&mut frame, p);
                return Ok((Egress::Pieces { count, eights }, frame));
            }
        }
        let (mut frame, mut p) = (frame.to_vec(), *p);
        if !bridged {
            count_down(&mut frame[ETHERNET..], &p);
            p.ttl -= 1;
        }
        match &resolution.next_hop {
            NextHop::Interface(to) => Ok(self.delivered(frame, *to, bridged)),
            NextHop::Tunnel(tunnel) => {
                let macs = if bridged { (mac_at(&frame, 0), mac_at(&frame, 6)) } else { (tunnel.mac, router) };
                let Some(underlay) = &self.config.underlay else { return Err(refused(Reason::InvalidNh)) };
                mss::lower(&mut frame[ETHERNET..], &p, self.mtu(tunnel));
                let wrapped = tunnel::wrap(&frame, &p, tunnel, underlay.address, resolution.tunnel_port, macs);
                Ok((Egress::Tunnel(*tunnel), wrapped))
            }
            _ => Err(refused(Reason::InvalidNh)),
        }
    }

    /// The largest IP packet that a tunnel takes.
    fn mtu(&self, tunnel: &Tunnel) -> u16 {
        self.mtu_of(tunnel.peer, tunnel.encapsulation.overhead())
    }

    fn mtu_of(&self, peer: Ipv4Addr, overhead: u16) -> u16 {
        let peer = self.config.underlay.as_ref().and_then(|underlay| underlay.peers.get(&peer));
        peer.map_or(0, |peer| peer.mtu).min(LARGEST).saturating_sub(overhead)
    }

    /// What becomes of a packet whose sender is told, if it may and can be.
    fn tell(&self, frame: &[u8], p: &Packet, number: u32, became: ErrorKind) -> Refusal {
        let interface = &self.config.interfaces[&number];
        let from = if p.is_v6() { interface.gateway6.map(IpAddr::from) } else { interface.gateway.map(IpAddr::from) };
        let macs = (answer::asker(frame), self.config.mac);
        let told = from.filter(|_| answer::may_tell(p)).and_then(|from| answer::error(frame, p, became, from, macs));
        let reason = match (became, told.is_some()) {
            (ErrorKind::Expired, true) => Reason::TtlTold,
            (ErrorKind::Expired, false) => Reason::TtlExceeded,
            (ErrorKind::TooBig(_), true) => Reason::TooBigTold,
            (ErrorKind::TooBig(_), false) => Reason::TooBig,
        };
        Refusal { interface: number, reason, told }
    }

    /// `None` is the host's own.
    fn underlay_brings(&mut self, index: u32, frame: &[u8], tick: u32) -> Result<Option<EgressFrame>, Refusal> {
        let Some(underlay) = &self.config.underlay else { return Ok(None) };
        let Some(outer) = OuterHeader::parse(frame, underlay.address) else { return Ok(None) };
        let peer = underlay.peers.get(&outer.source).ok_or_else(|| refused(0)(Reason::NoPeer))?;
        if underlay.strict && peer.interface != index {
            return Err(refused(0)(Reason::PeerInterface));
        }
        let label = outer.label.map_err(refused(0))?;
        let (peer, encapsulation) = (outer.source, outer.encapsulation);
        self.flows.steps.push(Step::Tunnel { peer, encapsulation, label });
        if encapsulation == Encapsulation::Vxlan && word(frame, outer.inner + 12) == Some(ethertype::ARP) {
            return self.peer_asks(frame, &outer, label).map(Some).map_err(refused(0));
        }
        if let Some(flood) = self.flood_by_label(&outer, label) {
            return self.peer_floods_by_label(frame, &outer, &flood).map(Some);
        }
        let (is_v6, at) = inner_of(frame, &outer).map_err(refused(0))?;
        let target = self.target(&outer, label).map_err(refused(0))?;
        let mut p = Packet::parse(frame.get(at..).unwrap_or_default(), is_v6).map_err(refused(0))?;
        if at + p.length > outer.end {
            return Err(refused(0)(Reason::InvalidPacket));
        }
        if encapsulation == Encapsulation::Vxlan && answer::is_solicitation(&p) {
            return self.peer_solicits(frame, &p, &outer, (label, &target)).map(Some).map_err(refused(0));
        }
        // The sender's node checks whether it may serve DHCP.
        p.is_for_others(true).map_err(refused(0))?;
        let vrf = if let NextHop::Vrf(vrf) = target { Some(vrf) } else { None };
        if let Some(flood) = vrf.and_then(|vrf| self.flood_of(vrf, frame, &outer)) {
            return self.peer_floods(frame, &mut p, &outer, &flood).map(Some);
        }
        let (to, bridged) = self.receiver(target, frame, &outer, &p).map_err(refused(0))?;
        match vrf {
            Some(vrf) if bridged => {
                let mac = mac_at(frame, outer.inner);
                self.flows.steps.push(Step::Bridge { vrf, mac, to: to.clone() });
            }
            Some(vrf) => self.flows.steps.extend(flow::route_steps(&self.config, vrf, p.tuple.destination)),
            None => {}
        }
        let NextHop::Interface(number) = to else { return Err(refused(0)(Reason::InvalidNh)) };
        let refused = refused(number);
        if self.has_policy(&to) {
            let by = Ingress::Peer(outer.source);
            let resolution = self.flows.follow(&self.config, &mut p, number, by, tick).map_err(&refused)?;
            if let Some(analyser) = resolution.mirror {
                let from = if bridged { mac_at(frame, outer.inner + 6) } else { self.config.mac };
                let to = self.receiver_of(number);
                let kind = tunnel::kind_of(&p).to_be_bytes();
                let frame = [&to.0[..], &from.0, &kind, &frame[at..at + p.length]].concat();
                self.mirrored.push(MirrorCopy { analyser, frame });
            }
        } else {
            let vrf = self.config.interfaces.get(&number).ok_or_else(|| refused(Reason::InvalidIf))?.vrf;
            let by = Ingress::Peer(outer.source);
            self.flows.came_by(&self.config, vrf, p.tuple.source, by).map_err(&refused)?;
        }
        let mut out = [&frame[..12], &tunnel::kind_of(&p).to_be_bytes(), &frame[at..]].concat();
        tunnel::mark(&mut out[ETHERNET..], &p, outer.class).map_err(&refused)?;
        if bridged {
            out[..12].copy_from_slice(&frame[outer.inner..outer.inner + 12]);
        }
        self.count(number, &to, bridged);
        Ok(Some(self.delivered(out, number, bridged)))
    }

    /// What a label or network identifier stands for.
    fn target(&self, outer: &OuterHeader, label: u32) -> Result<NextHop, Reason> {
        if outer.encapsulation == Encapsulation::Vxlan {
            return match self.config.vnis.get(&label).ok_or(Reason::InvalidVnid)? {
                Vni::Vrf(vrf) => Ok(NextHop::Vrf(*vrf)),
                Vni::Interface(number) => Ok(NextHop::Interface(*number)),
            };
        }
        let hop = self.config.labels.get(&label).filter(|hop| **hop != NextHop::Discard);
        hop.cloned().ok_or(Reason::InvalidLabel)
    }

    /// The next hop of a packet that came by a tunnel, and whether the inner frame's MAC address chose it.
    fn receiver(
        &self,
        target: NextHop,
        frame: &[u8],
        outer: &OuterHeader,
        p: &Packet,
    ) -> Result<(NextHop, bool), Reason> {
        let NextHop::Vrf(vrf) = target else { return Ok((target, false)) };
        // The label is a whole network's.
        let destination = mac_at(frame, outer.inner);
        if outer.encapsulation == Encapsulation::Vxlan && destination != self.config.mac {
            let hop = self.config.vrfs.get(&vrf).and_then(|vrf| vrf.macs.get(&destination));
            return Ok((hop.cloned().ok_or(Reason::L2NoRoute)?, true));
        }
        let hash = route::hash(&p.spread_by(), 0);
        Ok((route::resolve(&self.config, vrf, p.tuple.destination, hash)?, false))
    }
}

fn refused(interface: u32) -> impl Fn(Reason) -> Refusal {
    move |reason| Refusal { interface, reason, told: None }
}

fn mac_at(frame: &[u8], at: usize) -> Mac {
    Mac(std::array::from_fn(|byte| frame.get(at + byte).copied().unwrap_or_default()))
}

/// One router further (RFC 1812, 5.3.1; RFC 8200, 3).
fn count_down(packet: &mut [u8], p: &Packet) {
    if p.is_v6() {
        packet[7] -= 1;
    } else if let (Some(old), Some(checksum)) = (word(packet, 8), word(packet, 10)) {
        packet[8] -= 1;
        let checksum = rig_wire::checksum::update(checksum, old, old - 0x0100);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Whether the packet in a tunnel's is IPv6, and where it begins.
fn inner_of(frame: &[u8], outer: &OuterHeader) -> Result<(bool, usize), Reason> {
    let (kind, header) = if outer.encapsulation == Encapsulation::Vxlan {
        (word(frame, outer.inner + 12).ok_or(Reason::InvalidPacket)?, ETHERNET)
    } else {
        // Behind the last label the packet's first bits say whether it is IPv4 or IPv6.
        let first = frame.get(outer.inner).ok_or(Reason::InvalidPacket)?;
        (if first >> 4 == 6 { ethertype::IPV6 } else { ethertype::IPV4 }, 0)
    };
    match kind {
        ethertype::IPV4 | ethertype::IPV6 => Ok((kind == ethertype::IPV6, outer.inner + header)),
        _ => Err(Reason::InvalidProtocol),
    }
}
