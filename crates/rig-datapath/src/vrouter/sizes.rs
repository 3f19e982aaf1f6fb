//! How large the tables are.

use std::collections::BTreeSet;

use super::config::{Config, NextHop, Tunnel, flood_tunnel};
use super::rules::CompiledRules;
use crate::Error;

/// Elements of the vRouter's tables, which are made when it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Containers' interfaces, up to 2^24 - 1; 256 bytes each, and 896 more for each CPU.
    pub interfaces: u32,
    pub next_hops: u32,
    /// Next hops with several ways.
    pub ways: u32,
    /// Networks whose frames to all are copied, 4,104 bytes each; twice as many as there are at a time, as of lists.
    pub floods: u32,
    /// Routes to single addresses; memory is taken as they come.
    pub hosts: u32,
    /// Other routes; memory is taken as they come.
    pub prefixes: u32,
    /// MAC addresses; memory is taken as they come.
    pub macs: u32,
    /// VXLAN network identifiers.
    pub vnis: u32,
    /// Other routers.
    pub peers: u32,
    /// Lists of rules, twice as many as there are at a time: a changed one is made beside the old one.
    pub lists: u32,
    /// Ranges of addresses of all lists, 24 bytes each.
    pub cuts: u32,
    /// Ranges of ports of all lists, 8 bytes each.
    pub bounds: u32,
    /// Rows of rules of all lists, 128 bytes each.
    pub rows: u32,
    /// Rules of all lists in which a rule has more done than to allow or to deny, 4 bytes each.
    pub alsos: u32,
    /// Services of all interfaces whose flows are fat; memory is taken as they come.
    pub fat: u32,
    /// Directions of flows, two for each connection, 168 bytes each.
    pub flows: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            interfaces: 1024,
            next_hops: 8192,
            ways: 256,
            floods: 256,
            hosts: 1 << 20,
            prefixes: 1 << 16,
            macs: 1 << 16,
            vnis: 4096,
            peers: 4096,
            lists: 2048,
            cuts: 1 << 16,
            bounds: 1 << 16,
            rows: 1 << 16,
            alsos: 1 << 16,
            fat: 1 << 16,
            flows: 1 << 18,
        }
    }
}

impl Sizes {
    /// Tables that a configuration fits in, flows aside, with as much room again for the one that takes its place and for what comes to
    /// it; none smaller than [`Sizes::default`] has it.
    pub fn of(config: &Config) -> Self {
        let least = Self::default();
        let room = |least: u32, count: usize| u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(2).max(least);
        let vrfs = || config.vrfs.values();
        let is_host = |prefix: &&ipnet::IpNet| prefix.prefix_len() == prefix.max_prefix_len();
        let hosts: usize = vrfs().map(|vrf| vrf.routes.keys().filter(is_host).count()).sum();
        let routes: usize = vrfs().map(|vrf| vrf.routes.len()).sum();
        let mut hops = NextHopSet::default();
        vrfs().flat_map(|vrf| vrf.routes.values().chain(vrf.macs.values())).for_each(|hop| hops.add(hop));
        config.labels.values().for_each(|hop| hops.add(hop));
        let floods: Vec<_> = vrfs().filter_map(|vrf| vrf.flood.as_ref()).collect();
        let peers = floods.iter().flat_map(|flood| &flood.peers);
        for (peer, way) in peers {
            if let NextHop::Tunnel(tunnel) = flood_tunnel(*peer, *way) {
                hops.single.insert(Tunnel { label: 0, ..tunnel });
            }
        }
        // One next hop for each interface, table and network with frames to all, however many routes use it; one for the gateway, and number 0.
        let others = config.interfaces.len() + config.vrfs.len() + floods.len() + 2;
        let lists: Vec<CompiledRules> = config.lists.values().map(CompiledRules::new).collect();
        let all = |count: fn(&CompiledRules) -> usize| lists.iter().map(count).sum();
        Self {
            interfaces: room(least.interfaces, config.interfaces.keys().max().map_or(0, |most| *most as usize)),
            next_hops: room(least.next_hops, hops.single.len() + hops.several.len() + others),
            ways: room(least.ways, hops.several.len()),
            floods: room(least.floods, floods.len()),
            hosts: room(least.hosts, hosts),
            prefixes: room(least.prefixes, routes - hosts),
            macs: room(least.macs, vrfs().map(|vrf| vrf.macs.len() + 1).sum()),
            vnis: room(least.vnis, config.vnis.len()),
            peers: room(least.peers, config.underlay.as_ref().map_or(0, |underlay| underlay.peers.len())),
            lists: room(least.lists, lists.len() + 1),
            cuts: room(least.cuts, all(|list| list.cuts.len())),
            bounds: room(least.bounds, all(|list| list.bounds.len())),
            rows: room(least.rows, all(|list| list.rows.len())),
            alsos: room(least.alsos, all(|list| list.flow_actions.len())),
            fat: room(least.fat, config.interfaces.values().map(|interface| interface.fat.len()).sum()),
            flows: least.flows,
        }
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        let all = [
            ("interfaces", self.interfaces),
            ("next hops", self.next_hops),
            ("next hops with several ways", self.ways),
            ("networks with frames to all", self.floods),
            ("routes to addresses", self.hosts),
            ("routes", self.prefixes),
            ("MAC addresses", self.macs),
            ("network identifiers", self.vnis),
            ("peers", self.peers),
            ("lists of rules", self.lists),
            ("ranges of addresses", self.cuts),
            ("ranges of ports", self.bounds),
            ("rows of rules", self.rows),
            ("rules that log", self.alsos),
            ("services with fat flows", self.fat),
            ("flows", self.flows),
        ];
        match all.into_iter().find(|(_, size)| *size == 0) {
            Some((what, _)) => Err(Error::NoRoom { what, room: 0, wanted: 1 }),
            None if self.interfaces >= 1 << 24 => {
                Err(Error::NoRoom { what: "interfaces", room: (1 << 24) - 1, wanted: self.interfaces as usize })
            }
            None => Ok(()),
        }
    }
}

/// Next hops as the table has them: labels are the routes'.
#[derive(Default)]
struct NextHopSet<'a> {
    single: BTreeSet<Tunnel>,
    several: BTreeSet<&'a [NextHop]>,
}

impl<'a> NextHopSet<'a> {
    fn add(&mut self, hop: &'a NextHop) {
        match hop {
            NextHop::Tunnel(tunnel) => {
                self.single.insert(Tunnel { label: 0, ..*tunnel });
            }
            NextHop::Ecmp(ways) => {
                self.several.insert(ways);
                ways.iter().for_each(|way| self.add(way));
            }
            NextHop::Discard | NextHop::Interface(_) | NextHop::Gateway | NextHop::Vrf(_) => {}
        }
    }
}
