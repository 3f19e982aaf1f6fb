//! What the tables say, by the numbers that they have for it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::IpNet;
use rig_wire::ethernet::Mac;
use zerocopy::FromBytes;

use super::config::Encapsulation;
use super::control::{NextHopKey, Router, Table};
use super::shape::{self, kind};
use super::sizes::Sizes;

/// A next hop, and the label that goes with it; none of both are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabeledNextHop {
    pub next_hop: u32,
    pub label: u32,
}

/// Where packets of a next hop go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHopTarget {
    /// To an interface, by its number.
    Interface(u32),
    Tunnel {
        encapsulation: Encapsulation,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        /// Next on the underlay.
        gateway: Ipv4Addr,
        /// The kernel's number of the interface.
        interface: u32,
        /// The largest packet that the tunnel takes, bytes.
        mtu: u16,
        /// Destination of the inner frame, where there is one.
        mac: Mac,
    },
    Gateway,
    Vrf(u32),
    /// One of several, each flow always the same.
    Ecmp(Vec<LabeledNextHop>),
    /// All members of a network.
    Flood {
        /// Interfaces of this node first.
        next_hops: Vec<LabeledNextHop>,
        /// Whether frames to unknown addresses go there, too.
        unknown_unicast: bool,
    },
}

impl From<shape::Route> for LabeledNextHop {
    fn from(route: shape::Route) -> Self {
        Self { next_hop: route.next_hop, label: route.label }
    }
}

impl Router {
    /// Of the tables.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// Next hops by their numbers; 0, which leads nowhere, is not among them.
    pub fn next_hops(&self) -> Vec<(u32, NextHopTarget)> {
        let mut all: Vec<(u32, NextHopTarget)> =
            self.numbers.hops.iter().filter_map(|(hop, number)| Some((number, target(hop)?))).collect();
        all.sort_by_key(|(number, _)| *number);
        all
    }

    /// Routes, each with the number of its VRF.
    pub fn routes(&self) -> Vec<(u32, IpNet, LabeledNextHop)> {
        let mut all = Vec::new();
        for (vrf, table) in &self.known.vrfs {
            all.extend(
                table.hosts.iter().map(|(host, route)| (*vrf, IpNet::from(*host), LabeledNextHop::from(*route))),
            );
            all.extend(table.prefixes.iter().map(|(prefix, route)| (*vrf, *prefix, LabeledNextHop::from(*route))));
        }
        all.sort_by_key(|(vrf, prefix, _)| (*vrf, *prefix));
        all
    }

    /// How many routes each VRF has, by its number.
    pub fn routes_of_vrfs(&self) -> BTreeMap<u32, u64> {
        let count = |table: &Table| (table.hosts.len() + table.prefixes.len()) as u64;
        self.known.vrfs.iter().map(|(vrf, table)| (*vrf, count(table))).collect()
    }

    /// MAC addresses, each with the number of its VRF.
    pub fn macs(&self) -> Vec<(u32, Mac, LabeledNextHop)> {
        let of = |(vrf, table): (&u32, &Arc<Table>)| -> Vec<_> {
            table.macs.iter().map(|(mac, route)| (*vrf, *mac, LabeledNextHop::from(*route))).collect()
        };
        self.known.vrfs.iter().flat_map(of).collect()
    }

    /// MPLS labels that packets come with, and the numbers of their next hops.
    pub fn labels(&self) -> Vec<(u32, u32)> {
        self.known.labels.iter().map(|(label, next_hop)| (*label, *next_hop)).collect()
    }

    /// VXLAN network identifiers that frames come with, and the numbers of their next hops.
    pub fn vnis(&self) -> Vec<(u32, u32)> {
        self.known.vnis.iter().map(|(vni, next_hop)| (*vni, *next_hop)).collect()
    }

    /// The number of the next hop that leads to an interface.
    pub fn next_hop_of(&self, interface: u32) -> Option<u32> {
        self.known.interfaces.get(&interface).map(|interface| interface.next_hop)
    }
}

fn target(hop: &NextHopKey) -> Option<NextHopTarget> {
    let all = |ways: &[(u32, u32)]| {
        ways.iter().map(|(next_hop, label)| LabeledNextHop { next_hop: *next_hop, label: *label }).collect()
    };
    let bytes = match hop {
        NextHopKey::Itself(bytes) => bytes,
        NextHopKey::Several(ways) => return Some(NextHopTarget::Ecmp(all(ways))),
        NextHopKey::All(members) => {
            return Some(NextHopTarget::Flood {
                next_hops: all(&members.ways),
                unknown_unicast: members.unknown_unicast,
            });
        }
    };
    let hop = shape::NextHop::read_from_bytes(bytes).ok()?;
    let v4 = |address: u32| Ipv4Addr::from(address.to_ne_bytes());
    Some(match hop.kind {
        kind::TO_INTERFACE => NextHopTarget::Interface(hop.number),
        kind::TO_GATEWAY => NextHopTarget::Gateway,
        kind::TO_VRF => NextHopTarget::Vrf(hop.number),
        kind::TO_TUNNEL => NextHopTarget::Tunnel {
            encapsulation: Encapsulation::ALL.into_iter().find(|one| *one as u8 == hop.encapsulation)?,
            source: v4(hop.source),
            destination: v4(hop.destination),
            gateway: v4(hop.gateway),
            interface: hop.ifindex,
            mtu: hop.mtu,
            mac: Mac(hop.mac),
        },
        _ => return None,
    })
}
