//! What a router has counted, and what it knows.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;

use libbpf_rs::MapCore;
use rig_wire::ethernet::Mac;

use crate::maps::Map;
use crate::{Error, maps};

use super::config::{Config, LAST_ANALYSER};
use super::control::{MovedCounts, Router};
use super::load::Tables;
use super::reason::Reason;
use super::shape::{
    self, Control, DropCounts, FlowKey, FragmentKey, HOPS, LOGGED, REASONS, TICK_SHIFT, interface_of, protocol_of,
};

/// Packets of an interface; bytes with their Ethernet headers. A packet that is still to be cut into segments is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// From the container.
    pub in_packets: u64,
    pub in_bytes: u64,
    /// To the container.
    pub out_packets: u64,
    pub out_bytes: u64,
    /// Dropped, for any reason.
    pub drops: u64,
    pub taken: ForwardingCounters,
    /// Of `in_packets`, those from another MAC address than the one that was known: see [`Source`].
    pub foreign: u64,
}

/// From which MAC addresses an interface's frames come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Source {
    /// The known one, which frames for it go to: the configuration's, or, where any will do, the one that its last frame came from; none
    /// before the first.
    pub mac: Option<Mac>,
    /// Where the configuration's is the only one: the other one that a frame came from last, which was dropped.
    pub foreign: Option<Mac>,
}

/// What has taken packets from containers, and those that came by tunnels: an interface's are those that it has sent, and those
/// that came to it by tunnels. A packet of a known flow is taken by what its flow remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForwardingCounters {
    /// The gateway.
    pub receives: u64,
    /// Containers here: routed, and bridged.
    pub encaps: u64,
    pub l2_encaps: u64,
    /// Tables whose routes led on to another one.
    pub translates: u64,
    /// Routes of several ways.
    pub ecmps: u64,
    /// Tunnels.
    pub mpls_over_udp: u64,
    pub mpls_over_gre: u64,
    pub vxlan: u64,
}

impl ForwardingCounters {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.each(other, |one, other| one + other)
    }

    /// The difference to earlier counts.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        self.each(before, u64::saturating_sub)
    }

    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            receives: with(self.receives, other.receives),
            encaps: with(self.encaps, other.encaps),
            l2_encaps: with(self.l2_encaps, other.l2_encaps),
            translates: with(self.translates, other.translates),
            ecmps: with(self.ecmps, other.ecmps),
            mpls_over_udp: with(self.mpls_over_udp, other.mpls_over_udp),
            mpls_over_gre: with(self.mpls_over_gre, other.mpls_over_gre),
            vxlan: with(self.vxlan, other.vxlan),
        }
    }
}

impl From<[u64; HOPS]> for ForwardingCounters {
    /// In the order of `enum hop` of bpf/vrouter/shape.h.
    fn from(hops: [u64; HOPS]) -> Self {
        let [receives, encaps, l2_encaps, translates, ecmps, mpls_over_udp, mpls_over_gre, vxlan] = hops;
        Self { receives, encaps, l2_encaps, translates, ecmps, mpls_over_udp, mpls_over_gre, vxlan }
    }
}

/// What an analyser has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MirrorCount {
    /// A copy that is still to be cut into segments is one.
    pub packets: u64,
    /// Of frames, as far as the copies have them.
    pub bytes: u64,
    /// Of them, those that do not have all of the packet, because it would be too large for the way there.
    pub cut: u64,
    /// Mirrored that could not be made.
    pub failed: u64,
}

/// Frames to all and to groups that came from an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyCount {
    pub frames: u64,
    /// That they have become, to interfaces and into tunnels.
    pub copies: u64,
}

/// One direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The interface that it comes from, or that it goes to where it comes by a tunnel.
    pub interface: u32,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub packets: u64,
    /// Of IP packets.
    pub bytes: u64,
    /// The number of the next hop in its table, and the label for it.
    pub next_hop: u32,
    pub label: u32,
    /// Whether its first packet began the connection.
    pub forward: bool,
    /// Rules forbid it since they have changed.
    pub denied: bool,
    /// Of all ports of the client, for which 0 stands.
    pub fat: bool,
    /// The interface that the other direction is of.
    pub reverse_interface: u32,
    /// What has been seen of TCP, bits of `enum tcp_seen` of bpf/vrouter/shape.h; with the direction that began it.
    pub tcp: u32,
    pub tunnel_port: u16,
    /// The number of the analyser that has copies of its packets.
    pub mirror: Option<u8>,
    /// How long ago the last packet was, to 134 ms.
    pub idle: Duration,
}

/// A packet that was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DroppedPacket {
    /// Of the kernel's monotonic clock.
    pub at: Duration,
    /// The CPU that dropped it.
    pub cpu: u32,
    /// `None` for a number that this version does not know.
    pub reason: Option<Reason>,
    /// 0 for none.
    pub interface: u32,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of the IP packet.
    pub length: u16,
}

/// The clock of flows, in units of 2^27 ns.
pub(super) fn tick(control: &Control) -> u32 {
    match control.fixed_tick {
        0 => (rig_sys::clock::monotonic_ns() >> TICK_SHIFT) as u32,
        fixed => fixed,
    }
}

pub(super) fn socket(address: crate::plain::Address, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from(address), u16::from_be(port))
}

impl Router {
    /// Of an interface, by its number.
    pub fn traffic(&self, interface: u32) -> Result<Traffic, Error> {
        let counts = self.tables.traffic.per_cpu::<shape::Traffic>(interface)?;
        Ok(counts.iter().fold(Traffic::default(), |sum, one| Traffic {
            in_packets: sum.in_packets + one.in_packets,
            in_bytes: sum.in_bytes + one.in_bytes,
            out_packets: sum.out_packets + one.out_packets,
            out_bytes: sum.out_bytes + one.out_bytes,
            drops: sum.drops + one.drops,
            taken: sum.taken.and(one.hops.into()),
            foreign: sum.foreign + one.foreign,
        }))
    }

    /// From which MAC addresses frames of the interfaces come, by their numbers.
    pub fn sources(&self) -> Result<BTreeMap<u32, Source>, Error> {
        let count = self.known.interfaces.keys().max().map_or(0, |most| most + 1);
        let (mut all, mut number) = (BTreeMap::new(), 0);
        self.tables.interfaces.first(count, |one: shape::Interface| {
            let mac = shape::mac_of_word(one.known_mac);
            if self.known.interfaces.contains_key(&number) {
                all.insert(number, Source { mac, foreign: shape::mac_of_word(one.foreign_mac) });
            }
            number += 1;
        })?;
        Ok(all)
    }

    /// How many packets of each VRF took which path, by its number: of its present interfaces, for which `of` gives the counts, and of
    /// former ones.
    pub fn taken(&self, of: impl Fn(u32) -> ForwardingCounters) -> BTreeMap<u32, ForwardingCounters> {
        let mut all: BTreeMap<u32, ForwardingCounters> =
            self.known.vrfs.keys().map(|vrf| (*vrf, ForwardingCounters::default())).collect();
        for (vrf, taken) in &mut all {
            *taken = self.left.gone.get(vrf).copied().unwrap_or_default();
        }
        for (number, interface) in &self.known.interfaces {
            let before = self.left.before.get(number).copied().unwrap_or_default();
            all.entry(interface.vrf).and_modify(|taken| *taken = taken.and(of(*number).since(before)));
        }
        all
    }

    /// Of an analyser, by its number.
    pub fn mirrored(&self, analyser: u8) -> Result<MirrorCount, Error> {
        let counts = self.tables.mirrored.per_cpu::<shape::MirrorCount>(analyser.into())?;
        Ok(counts.iter().fold(MirrorCount::default(), |sum, one| MirrorCount {
            packets: sum.packets + one.packets,
            bytes: sum.bytes + one.bytes,
            cut: sum.cut + one.cut,
            failed: sum.failed + one.failed,
        }))
    }

    /// Of an interface, by its number; 0 for what came by tunnels.
    pub fn copied(&self, interface: u32) -> Result<CopyCount, Error> {
        let counts = self.tables.copied.per_cpu::<shape::CopyCount>(interface)?;
        Ok(counts.iter().fold(CopyCount::default(), |sum, one| CopyCount {
            frames: sum.frames + one.frames,
            copies: sum.copies + one.copies,
        }))
    }

    /// Connections of an interface that are remembered, both directions of each as one.
    pub fn connections(&self, interface: u32) -> Result<u64, Error> {
        let (begun, ended): (u64, u64) = (self.tables.begun.at(interface)?, self.tables.ended.at(interface)?);
        Ok(begun.saturating_sub(ended))
    }

    /// Unanswered connections of an interface that were ended early because the table ran short.
    pub fn ended_early(&self, interface: u32) -> Result<u64, Error> {
        self.tables.ended_early.at(interface)
    }

    /// Connections of all interfaces that have begun, and how many of them have ended, both directions of each as one.
    pub fn begun_and_ended(&self) -> Result<(u64, u64), Error> {
        self.tables.begun_and_ended()
    }

    /// Packets of an interface that were dropped, 0 for those of none, by reason; for each CPU that there can be.
    pub fn drops_of(&self, interface: u32) -> Result<Vec<(Reason, Vec<u64>)>, Error> {
        let cpus: Vec<DropCounts> = self.tables.drops.per_cpu(interface)?;
        let of = |reason: &Reason| (*reason, cpus.iter().map(|counts| counts[reason.number() as usize]).collect());
        Ok(Reason::ALL.iter().map(of).collect())
    }

    /// Packets that were dropped, by reason, where there were any.
    pub fn drops(&self) -> Result<Vec<(Reason, u64)>, Error> {
        let mut sums: Vec<(Reason, u64)> = Reason::ALL.iter().map(|reason| (*reason, 0)).collect();
        for interface in [0].iter().chain(self.known.interfaces.keys()) {
            for (sum, (_, cpus)) in sums.iter_mut().zip(self.drops_of(*interface)?) {
                sum.1 += cpus.iter().sum::<u64>();
            }
        }
        sums.retain(|(_, count)| *count > 0);
        Ok(sums)
    }

    /// The packets that were dropped last, the oldest first: up to 256 of each CPU.
    pub fn last_dropped(&self) -> Result<Vec<DroppedPacket>, Error> {
        let mut all: Vec<DroppedPacket> = Vec::with_capacity(LOGGED as usize);
        self.tables.dropped.each(|place, one: shape::DroppedPacket| {
            if one.time > 0 {
                all.push(DroppedPacket {
                    at: Duration::from_nanos(one.time),
                    cpu: place / LOGGED,
                    reason: Reason::ALL.iter().copied().find(|reason| reason.number() == u32::from(one.reason)),
                    interface: one.interface,
                    protocol: one.protocol,
                    source: socket(one.source, one.source_port),
                    destination: socket(one.destination, one.destination_port),
                    length: one.length,
                });
            }
            ControlFlow::Continue(())
        })?;
        all.sort_by_key(|dropped| dropped.at);
        Ok(all)
    }

    /// All flows that there are, each direction by itself.
    pub fn flows(&self) -> Vec<Flow> {
        let now = tick(&self.control);
        let all = self.tables.flows.entries_of_hash::<FlowKey, shape::Flow>();
        all.into_iter()
            .map(|(key, flow)| Flow {
                interface: interface_of(key.at),
                protocol: protocol_of(key.at),
                source: socket(key.source, key.source_port),
                destination: socket(key.destination, key.destination_port),
                packets: flow.packets,
                bytes: flow.bytes,
                next_hop: flow.next_hop,
                label: flow.label,
                forward: flow.flags & shape::FORWARD != 0,
                denied: flow.flags & shape::DENIED != 0,
                fat: flow.flags & shape::FAT != 0,
                reverse_interface: interface_of(flow.reverse_at),
                tcp: flow.tcp,
                tunnel_port: flow.tunnel_port,
                mirror: Some(flow.mirror).filter(|number| *number > 0),
                idle: Duration::from_nanos(u64::from(now.saturating_sub(flow.tick)) << TICK_SHIFT),
            })
            .collect()
    }

    /// Bytes of memory that each table has taken, by its name, as the kernel counts it.
    ///
    /// # Errors
    /// When /proc does not tell.
    pub fn memory(&self) -> std::io::Result<BTreeMap<String, u64>> {
        self.object.maps().map(|map| Ok((map.name().to_string_lossy().into_owned(), maps::memory(&map)?))).collect()
    }

    /// Sets the clock of flows, in units of 134 ms; 0 for the kernel's.
    pub fn set_tick(&mut self, tick: u32) -> Result<(), Error> {
        self.control.fixed_tick = tick;
        self.tables.controls.set(&0_u32, &self.control)
    }

    /// Forgets its configuration, all flows and all that was counted; what was dropped last stays on its list.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.apply(&Config::default())?;
        self.left = MovedCounts::default();
        self.control.fat = 0;
        for key in self.tables.flows.keys::<FlowKey>() {
            self.tables.flows.remove(&key)?;
        }
        for key in self.tables.fragments.keys::<FragmentKey>() {
            self.tables.fragments.remove(&key)?;
        }
        for analyser in 0..=LAST_ANALYSER {
            self.tables.mirrored.set_all_cpus(analyser.into(), &shape::MirrorCount::default())?;
        }
        for interface in 0..=self.sizes.interfaces {
            self.tables.begun.set(&interface, &0_u64)?;
            self.tables.ended.set(&interface, &0_u64)?;
            self.tables.ended_early.set(&interface, &0_u64)?;
            self.tables.traffic.set_all_cpus(interface, &shape::Traffic::default())?;
            self.tables.log_turns.set(&interface, &0_u64)?;
            self.tables.copied.set_all_cpus(interface, &shape::CopyCount::default())?;
            self.tables.drops.set_all_cpus(interface, &[0_u64; REASONS as usize])?;
        }
        Ok(())
    }
}

impl Tables {
    /// Of connections of all interfaces.
    pub(super) fn begun_and_ended(&self) -> Result<(u64, u64), Error> {
        let sum = |map: &Map| {
            let mut sum = 0;
            map.each(|_, count: u64| {
                sum += count;
                ControlFlow::Continue(())
            })?;
            Ok::<u64, Error>(sum)
        };
        // None has ended that has not begun.
        let ended = sum(&self.ended)?;
        Ok((sum(&self.begun)?, ended))
    }
}
