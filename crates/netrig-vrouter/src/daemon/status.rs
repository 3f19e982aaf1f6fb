//! What the router says of itself.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use rig_datapath::vrouter::{self as datapath, ForwardingCounters, Reason, Source, Traffic};
use rig_wire::ethernet::Mac;

use super::TEXT;
use super::engine::Engine;
use crate::bgp::SpeakerState;
use crate::filter::protocol_name;
use crate::message::{
    AnalyserEntry, DroppedEntry, FlowEntry, FlowTable, ForwardingCounts, InterfaceEntry, LabelEntry, LabeledNextHop,
    LogCounts, MacEntry, NetworkEntry, NextHopEntry, NextHopTarget, PeerEntry, ReasonCount, RouteEntry, SpeakerEntry,
    Status, Table, TcpProgress, VniEntry,
};

/// Bits of `enum tcp_seen` of the datapath, the lowest first.
const TCP: [TcpProgress; 7] = [
    TcpProgress::Syn,
    TcpProgress::SynReverse,
    TcpProgress::Established,
    TcpProgress::EstablishedReverse,
    TcpProgress::Fin,
    TcpProgress::FinReverse,
    TcpProgress::Rst,
];

impl From<datapath::LabeledNextHop> for LabeledNextHop {
    fn from(next_hop: datapath::LabeledNextHop) -> Self {
        Self { next_hop: next_hop.next_hop, label: next_hop.label }
    }
}

impl Engine {
    pub(super) fn status(&self) -> anyhow::Result<Status> {
        let node = self.settings.node(&self.node)?;
        let uptime = self.begun.elapsed();
        let (begun, gone) = self.router.begun_and_ended()?;
        let mut drops: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut add = |of: &[(Reason, Vec<u64>)]| {
            for (reason, cpus) in of {
                let sums = drops.entry(reason.number()).or_default();
                sums.resize(sums.len().max(cpus.len()), 0);
                sums.iter_mut().zip(cpus).for_each(|(sum, count)| *sum += count);
            }
        };
        let (mut taken, mut discards) = (BTreeMap::new(), BTreeMap::<u32, u64>::new());
        let mut interfaces = Vec::new();
        let sources = self.router.sources()?;
        for (name, number) in self.numbers.interfaces.iter() {
            let traffic = self.router.traffic(number)?;
            taken.insert(number, traffic.taken);
            // There is a call for each reason, and most interfaces have dropped nothing.
            let of_interface = if traffic.drops > 0 { self.drops_of(number)? } else { Vec::new() };
            add(&of_interface);
            let source = sources.get(&number).copied().unwrap_or_default();
            let entry = self.interface(name, number, (traffic, source), &of_interface)?;
            let discarded = of_interface.iter().find(|(reason, _)| *reason == Reason::Discard);
            let discarded = discarded.map_or(0, |(_, cpus)| cpus.iter().sum::<u64>());
            if let Some(entry) = &entry {
                *discards.entry(entry.vrf).or_default() += discarded;
            }
            interfaces.extend(entry);
        }
        let taken = self.router.taken(|number| taken.get(&number).copied().unwrap_or_default());
        let of_none = self.drops_of(0)?;
        add(&of_none);
        let all =
            Reason::ALL.iter().map(|reason| (*reason, drops.get(&reason.number()).map_or(&[][..], Vec::as_slice)));
        Ok(Status {
            netrig_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.clone(),
            file: self.loaded.file.as_deref().map_or_else(|| TEXT.to_owned(), |file| file.display().to_string()),
            process: std::process::id(),
            uptime_seconds: uptime.as_secs(),
            uptime_ms: uptime.as_millis() as u64,
            address: node.address,
            mac: self.settings.router.mac.to_string(),
            peers: self.peers(),
            networks: self.networks(&taken, &discards),
            interfaces,
            next_hops: self.next_hops(),
            labels: self.router.labels().into_iter().map(|(label, next_hop)| LabelEntry { label, next_hop }).collect(),
            vnis: self.router.vnis().into_iter().map(|(vni, next_hop)| VniEntry { vni, next_hop }).collect(),
            flows: FlowTable {
                room: self.room,
                ended: self.sweeping.ended(),
                begun,
                connections: begun.saturating_sub(gone),
            },
            drops: all.map(|(reason, cpus)| ReasonCount::of_cpus(reason, cpus)).collect(),
            drops_of_none: counts(&of_none),
            last_dropped: self.last_dropped()?,
            log: self.log_counts()?,
            analysers: self.analysers()?,
            notes: self.compiled.notes.iter().cloned().chain(self.trouble.clone()).collect(),
            speaker: self.speaker(),
        })
    }

    /// By CPU.
    pub(super) fn drops_of(&self, interface: u32) -> anyhow::Result<Vec<(Reason, Vec<u64>)>> {
        Ok(self.router.drops_of(interface)?)
    }

    fn interface(
        &self,
        name: &str,
        number: u32,
        (traffic, source): (Traffic, Source),
        drops: &[(Reason, Vec<u64>)],
    ) -> anyhow::Result<Option<InterfaceEntry>> {
        let Some(interface) = self.settings.interfaces.get(name) else { return Ok(None) };
        let Traffic { in_packets, in_bytes, out_packets, out_bytes, .. } = traffic;
        let copied = self.router.copied(number)?;
        let present = self.compiled.config.interfaces.get(&number);
        Ok(Some(InterfaceEntry {
            number,
            name: name.to_owned(),
            network: interface.network.clone(),
            vrf: self.numbers.vrfs.get(&interface.network).unwrap_or(0),
            device: present.and_then(|_| self.found.devices.get(name).cloned()),
            device_index: present.map(|present| present.index),
            mac: interface.mac.to_string(),
            any_mac: interface.any_mac,
            known_mac: source.mac.map(|mac| mac.to_string()),
            foreign_mac: source.foreign.map(|mac| mac.to_string()),
            addresses: interface.all_addresses().collect(),
            label: interface.label,
            next_hop: self.router.next_hop_of(number),
            policy: present.is_some_and(|present| present.policy.is_some()),
            most_flows: match interface.most_flows {
                Some(most) => Some(most).filter(|most| *most > 0),
                None => self.compiled.config.most_flows.map(NonZeroU32::get),
            },
            security_groups: interface.security_groups.iter().cloned().collect(),
            mirror: interface.mirror.clone(),
            fat_flows: present
                .into_iter()
                .flat_map(|present| &present.fat)
                .map(|service| format!("{} {}", protocol_name(service.protocol).to_lowercase(), service.port))
                .collect(),
            connections: self.router.connections(number)?,
            ended_early: self.router.ended_early(number)?,
            in_packets,
            in_bytes,
            out_packets,
            out_bytes,
            flooded_frames: copied.frames,
            flooded_copies: copied.copies,
            foreign_frames: traffic.foreign,
            drops: counts(drops),
        }))
    }

    fn speaker(&self) -> Option<SpeakerEntry> {
        let bgp = self.settings.router.bgp.as_ref()?;
        let routes = &self.sources.bgp;
        let (learned, stale) = routes.count(&self.settings, &self.node);
        let SpeakerState { connected, trouble, announced } = routes.state.clone();
        let (autonomous_system, identifier) = connected.unzip();
        self.settings.nodes.get(&self.node).filter(|node| node.bgp)?;
        Some(SpeakerEntry {
            address: bgp.gobgp.clone(),
            autonomous_system,
            identifier,
            trouble,
            announced,
            learned,
            stale,
        })
    }

    /// Those of the settings, and others that routes lead to.
    fn peers(&self) -> Vec<PeerEntry> {
        let nodes = self.settings.nodes.iter().map(|(name, node)| (node.address, Some(name)));
        let told = self.others.iter().map(|address| (*address, None));
        let all: BTreeMap<_, _> = told.chain(nodes).filter(|(_, name)| *name != Some(&self.node)).collect();
        let entry = |(address, name): (_, Option<&String>)| {
            let peers = self.compiled.config.underlay.as_ref().map(|underlay| &underlay.peers);
            let peer = peers.and_then(|peers| peers.get(&address));
            PeerEntry {
                node: name.cloned(),
                address,
                gateway: peer.map(|peer| peer.gateway),
                device: peer.and_then(|_| self.found.ways.get(&address).cloned()),
                mtu: peer.map(|peer| peer.mtu),
            }
        };
        all.into_iter().map(entry).collect()
    }

    fn networks(&self, taken: &BTreeMap<u32, ForwardingCounters>, discards: &BTreeMap<u32, u64>) -> Vec<NetworkEntry> {
        let known = self.numbers.vrfs.iter();
        let routes = self.router.routes_of_vrfs();
        let entry = |(name, vrf): (&str, u32)| {
            let network = self.settings.networks.get(name)?;
            let encapsulation = network.encapsulation.iter().map(|one| one.name().to_owned()).collect();
            let routes = routes.get(&vrf).copied().unwrap_or(0);
            let taken = taken.get(&vrf).copied().unwrap_or_default();
            let taken = ForwardingCounts {
                discards: discards.get(&vrf).copied().unwrap_or(0),
                receives: taken.receives,
                vrf_translates: taken.translates,
                ecmp_composites: taken.ecmps,
                mplsoudp_tunnels: taken.mpls_over_udp,
                mplsogre_tunnels: taken.mpls_over_gre,
                vxlan_tunnels: taken.vxlan,
                l2_encaps: taken.l2_encaps,
                encaps: taken.encaps,
            };
            Some(NetworkEntry { name: name.to_owned(), vrf, vni: network.vni, encapsulation, routes, taken })
        };
        known.filter_map(entry).collect()
    }

    fn next_hops(&self) -> Vec<NextHopEntry> {
        let all = self.router.next_hops();
        let mut references: BTreeMap<u32, u32> = BTreeMap::new();
        let of_ways = all.iter().flat_map(|(_, target)| match target {
            datapath::NextHopTarget::Ecmp(next_hops) | datapath::NextHopTarget::Flood { next_hops, .. } => {
                next_hops.iter().map(|via| via.next_hop).collect()
            }
            _ => Vec::new(),
        });
        let routes = self.router.routes().into_iter().map(|(_, _, via)| via.next_hop);
        let macs = self.router.macs().into_iter().map(|(_, _, via)| via.next_hop);
        let labels = self.router.labels().into_iter().chain(self.router.vnis()).map(|(_, next_hop)| next_hop);
        for next_hop in of_ways.chain(routes).chain(macs).chain(labels) {
            *references.entry(next_hop).or_default() += 1;
        }
        let entry = |(number, target): &(u32, datapath::NextHopTarget)| NextHopEntry {
            number: *number,
            references: references.get(number).copied().unwrap_or(0),
            target: self.target(target),
        };
        let nowhere = references.get(&0).copied().unwrap_or(0);
        let nowhere = NextHopEntry { number: 0, references: nowhere, target: NextHopTarget::Discard };
        std::iter::once(nowhere).chain(all.iter().map(entry)).collect()
    }

    fn target(&self, target: &datapath::NextHopTarget) -> NextHopTarget {
        match target {
            datapath::NextHopTarget::Interface(number) => {
                let interface = self.compiled.config.interfaces.get(number);
                let mac = interface.map_or(Mac::default(), |interface| interface.mac).to_string();
                NextHopTarget::Interface { number: *number, vrf: interface.map_or(0, |interface| interface.vrf), mac }
            }
            datapath::NextHopTarget::Tunnel { encapsulation, source, destination, gateway, interface, mtu, mac } => {
                NextHopTarget::Tunnel {
                    encapsulation: encapsulation.name().to_owned(),
                    source: *source,
                    destination: *destination,
                    gateway: *gateway,
                    device_index: *interface,
                    mtu: *mtu,
                    mac: (*mac != Mac::default()).then(|| mac.to_string()),
                }
            }
            datapath::NextHopTarget::Gateway => NextHopTarget::Gateway,
            datapath::NextHopTarget::Vrf(vrf) => NextHopTarget::Vrf(*vrf),
            datapath::NextHopTarget::Ecmp(next_hops) => {
                NextHopTarget::Ecmp(next_hops.iter().map(|next_hop| LabeledNextHop::from(*next_hop)).collect())
            }
            datapath::NextHopTarget::Flood { next_hops, unknown_unicast } => NextHopTarget::Flood {
                next_hops: next_hops.iter().map(|next_hop| LabeledNextHop::from(*next_hop)).collect(),
                unknown_unicast: *unknown_unicast,
            },
        }
    }

    /// Of a VRF, or of all.
    pub(super) fn tables(&self, vrf: Option<u32>) -> Vec<Table> {
        let wanted = self.numbers.vrfs.iter().filter(|(_, number)| vrf.is_none_or(|vrf| vrf == *number));
        let mut tables: BTreeMap<u32, Table> = wanted
            .map(|(name, vrf)| (vrf, Table { vrf, network: name.to_owned(), routes: Vec::new(), macs: Vec::new() }))
            .collect();
        // Of the next hops that lead to interfaces.
        let interfaces = self.compiled.config.interfaces.iter();
        let macs: BTreeMap<u32, Mac> =
            interfaces.filter_map(|(number, one)| Some((self.router.next_hop_of(*number)?, one.mac))).collect();
        for (vrf, prefix, via) in self.router.routes() {
            let Some(table) = tables.get_mut(&vrf) else { continue };
            let is_host = prefix.prefix_len() == prefix.max_prefix_len();
            let mac = macs.get(&via.next_hop).filter(|_| is_host).map(Mac::to_string);
            table.routes.push(RouteEntry { prefix, via: via.into(), mac });
        }
        for (vrf, mac, via) in self.router.macs() {
            let Some(table) = tables.get_mut(&vrf) else { continue };
            table.macs.push(MacEntry { mac: mac.to_string(), via: via.into() });
        }
        tables.into_values().collect()
    }

    pub(super) fn flows(&self) -> Vec<FlowEntry> {
        let entry = |flow: datapath::Flow| FlowEntry {
            index: 0,
            reverse_index: None,
            interface: flow.interface,
            reverse_interface: flow.reverse_interface,
            vrf: self.compiled.config.interfaces.get(&flow.interface).map_or(0, |interface| interface.vrf),
            protocol: flow.protocol,
            source: flow.source,
            destination: flow.destination,
            packets: flow.packets,
            bytes: flow.bytes,
            via: LabeledNextHop { next_hop: flow.next_hop, label: flow.label },
            forward: flow.forward,
            denied: flow.denied,
            fat: flow.fat,
            tcp: TCP.iter().enumerate().filter(|(bit, _)| flow.tcp & (1 << bit) != 0).map(|(_, seen)| *seen).collect(),
            tunnel_port: flow.tunnel_port,
            mirror: flow.mirror.and_then(|number| self.analyser_name(number)).map(str::to_owned),
            idle_seconds: flow.idle.as_secs_f64(),
        };
        self.router.flows().into_iter().map(entry).collect()
    }

    fn analysers(&self) -> anyhow::Result<Vec<AnalyserEntry>> {
        let mut all = Vec::new();
        for (name, number) in self.numbers.analysers.iter() {
            let known = self.settings.analysers.get(name).zip(u8::try_from(number).ok());
            let Some((analyser, number)) = known else { continue };
            let peer = self.compiled.config.analysers.get(&number).and_then(|analyser| analyser.peer);
            let datapath::MirrorCount { packets, bytes, cut, failed } = self.router.mirrored(number)?;
            all.push(AnalyserEntry {
                name: name.to_owned(),
                address: analyser.address,
                port: analyser.port,
                vni: analyser.vni,
                device: peer.and_then(|_| self.found.ways.get(&analyser.address).cloned()),
                mtu: peer.map(|peer| peer.mtu),
                packets,
                bytes,
                cut,
                failed,
            });
        }
        Ok(all)
    }

    pub(super) fn log_counts(&self) -> anyhow::Result<LogCounts> {
        let datapath::LogCounts { told, lost, held_back } = self.router.log_counts()?;
        let (pushed_out, kept) = self.logging.hold().counts();
        Ok(LogCounts { told, lost, held_back, kept, pushed_out })
    }

    fn last_dropped(&self) -> anyhow::Result<Vec<DroppedEntry>> {
        let now = Duration::from_nanos(rig_sys::clock::monotonic_ns());
        let entry = |dropped: datapath::DroppedPacket| DroppedEntry {
            seconds_ago: now.saturating_sub(dropped.at).as_secs_f64(),
            cpu: dropped.cpu,
            reason: dropped.reason.map(|reason| reason.key().to_owned()),
            interface: dropped.interface,
            protocol: dropped.protocol,
            source: dropped.source,
            destination: dropped.destination,
            length: dropped.length,
        };
        Ok(self.router.last_dropped()?.into_iter().map(entry).collect())
    }
}

/// Of reasons for which something was dropped.
fn counts(drops: &[(Reason, Vec<u64>)]) -> Vec<ReasonCount> {
    let all = drops.iter().map(|(reason, cpus)| ReasonCount::of_cpus(*reason, cpus));
    all.filter(|count| count.packets > 0).collect()
}
