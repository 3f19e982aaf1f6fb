//! From what a set of nodes shall do to what the datapath of one of them does.

mod lists;
mod numbers;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use rig_datapath::vrouter::{
    self as datapath, Config, Encapsulation, FIRST_LABEL, LAST_LABEL, LAST_VNI, NextHop, Service, Vni,
};
use rig_wire::ethernet::Mac;

pub use numbers::{NameNumbers, Numbers};

use crate::routes::{Route, RouteTable, RouteUpdate, announced};
use crate::settings::{Interface, Network, Node, Settings, UnknownNode};
use lists::{Direction, Remotes};

/// What the kernel of the node has, as the daemon's finder or a test gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Interfaces of the settings that are there, by their names in the settings.
    pub interfaces: BTreeMap<String, KernelInterface>,
    /// How other routers are reached.
    pub peers: BTreeMap<Ipv4Addr, datapath::Peer>,
    /// Why others of the interfaces are not there.
    pub missing: BTreeMap<String, String>,
    /// Why there is no way to others of the routers.
    pub unreached: BTreeMap<Ipv4Addr, String>,
    /// What else is not as it should be.
    pub notes: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelInterface {
    /// Of the node's end of the veth pair.
    pub index: u32,
    /// Of the container's end, where it is known.
    pub mac: Option<Mac>,
}

/// What one node's datapath does, and what of the settings it does not do, for people to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompiledConfig {
    pub config: Config,
    pub notes: BTreeSet<String>,
}

/// # Errors
/// When the settings have no such node.
pub fn compile(
    settings: &Settings,
    name: &str,
    site: &Site,
    routes: &RouteTable,
    numbers: &mut Numbers,
) -> Result<CompiledConfig, UnknownNode> {
    let node = settings.node(name)?;
    let networks = settings.networks_of(name);
    numbers.vrfs.allot(networks.keys().map(|network| network.as_str()));
    numbers.interfaces.allot(settings.interfaces_of(name).map(|(name, _)| name.as_str()));
    let mut compiler = Compiler {
        settings,
        name,
        node,
        networks,
        routes,
        numbers,
        present: BTreeMap::new(),
        compiled: CompiledConfig::default(),
    };
    compiler.compiled.config.mac = settings.router.mac;
    compiler.compiled.notes.clone_from(&site.notes);
    compiler.underlay(site);
    compiler.analysers(site);
    compiler.find_interfaces(site);
    compiler.interfaces();
    compiler.vrfs();
    Ok(compiler.compiled)
}

/// What a node's datapath does when all that the settings name is there and every other node is reached, by the routes that the settings
/// themselves tell.
///
/// # Errors
/// When the settings have no such node.
pub fn expected(settings: &Settings, name: &str) -> Result<Config, UnknownNode> {
    let interfaces = (1..).zip(settings.interfaces_of(name));
    let there = interfaces.map(|(index, (name, _))| (name.clone(), KernelInterface { index, mac: None }));
    let addresses = settings.nodes.values().map(|node| node.address);
    let addresses = addresses.chain(settings.analysers.values().map(|analyser| analyser.address));
    let peer = |at: Ipv4Addr| (at, datapath::Peer { interface: 1, gateway: at, mtu: u16::MAX });
    let site = Site { interfaces: there.collect(), peers: addresses.map(peer).collect(), ..Site::default() };
    let mut routes = RouteTable::default();
    let others = settings.nodes.keys().filter(|other| *other != name);
    for route in others.flat_map(|other| announced(settings, other)) {
        routes.apply(RouteUpdate::Announce(route));
    }
    Ok(compile(settings, name, &site, &routes, &mut Numbers::default())?.config)
}

/// Labels, or network identifiers, that there are.
fn labels(encapsulation: Encapsulation) -> RangeInclusive<u32> {
    if encapsulation == Encapsulation::Vxlan { 1..=LAST_VNI } else { FIRST_LABEL..=LAST_LABEL }
}

struct Compiler<'a> {
    settings: &'a Settings,
    name: &'a str,
    node: &'a Node,
    /// That it has tables of, with whether it has interfaces of them.
    networks: BTreeMap<&'a String, bool>,
    routes: &'a RouteTable,
    numbers: &'a mut Numbers,
    /// Interfaces of this node that the kernel has, with their numbers.
    present: BTreeMap<&'a str, (u32, &'a Interface)>,
    compiled: CompiledConfig,
}

impl<'a> Compiler<'a> {
    fn note(&mut self, note: String) {
        self.compiled.notes.insert(note);
    }

    fn underlay(&mut self, site: &Site) {
        let others: BTreeMap<Ipv4Addr, (&str, &Node)> =
            self.settings.nodes.iter().map(|(name, node)| (node.address, (name.as_str(), node))).collect();
        let told = self.routes.iter().map(|route| route.node);
        let all: BTreeSet<Ipv4Addr> =
            others.keys().copied().chain(told).filter(|at| *at != self.node.address).collect();
        let mut peers = BTreeMap::new();
        for address in &all {
            let known = others.get(address);
            match site.peers.get(address) {
                Some(peer) => {
                    let said = [self.node.mtu, known.and_then(|(_, node)| node.mtu)];
                    let mtu = said.into_iter().flatten().fold(peer.mtu, u16::min);
                    peers.insert(*address, datapath::Peer { mtu, ..*peer });
                }
                None => {
                    let who = known.map_or_else(|| "a node".to_owned(), |(name, _)| format!("node '{name}'"));
                    let why = site.unreached.get(address).map(|why| format!(": {why}")).unwrap_or_default();
                    self.note(format!("{who}: there is no way to {address}, and so none to its containers{why}"));
                }
            }
        }
        if !all.is_empty() {
            let strict = self.settings.router.strict_underlay;
            self.compiled.config.underlay = Some(datapath::Underlay { address: self.node.address, peers, strict });
        }
    }

    fn analysers(&mut self, site: &Site) {
        let settings = self.settings;
        self.numbers.analysers.allot(settings.analysers.keys().map(String::as_str));
        for (name, analyser) in &settings.analysers {
            let address = analyser.address;
            let Some(number) = self.numbers.analysers.get(name).and_then(|number| number.try_into().ok()) else {
                continue;
            };
            let peer = site.peers.get(&address).copied();
            if peer.is_none() {
                let why = site.unreached.get(&address).map(|why| format!(": {why}")).unwrap_or_default();
                self.note(format!("analyser '{name}': there is no way to {address}, and so no copies{why}"));
            }
            let source = self.node.address;
            let compiled = datapath::Analyser { source, address, port: analyser.port, vni: analyser.vni, peer };
            self.compiled.config.analysers.insert(number, compiled);
        }
    }

    fn find_interfaces(&mut self, site: &Site) {
        let mut indexes: BTreeMap<u32, &str> = BTreeMap::new();
        for (name, interface) in self.settings.interfaces_of(self.name) {
            let found = site.interfaces.get(name).filter(|found| found.index != 0);
            let (Some(found), Some(number)) = (found, self.numbers.interfaces.get(name)) else {
                let why = site.missing.get(name).map(|why| format!(": {why}")).unwrap_or_default();
                self.note(format!("interface '{name}' is not there yet{why}"));
                continue;
            };
            if let Some(other) = indexes.insert(found.index, name) {
                indexes.insert(found.index, other);
                self.note(format!("interface '{name}' is the same of the kernel's as '{other}', and is left out"));
                continue;
            }
            if let Some(note) = found.mac.and_then(|mac| interface.foreign(name, mac)) {
                self.note(note);
            }
            self.present.insert(name, (number, interface));
            self.compiled.config.labels.insert(interface.label, NextHop::Interface(number));
            let compiled = datapath::Interface {
                index: found.index,
                vrf: self.numbers.vrfs.get(&interface.network).unwrap_or(0),
                mac: interface.mac,
                any_mac: interface.any_mac,
                gateway: self.gateways(interface).find_map(|gateway| match gateway {
                    IpAddr::V4(v4) => Some(v4),
                    IpAddr::V6(_) => None,
                }),
                gateway6: self.gateways(interface).find_map(|gateway| match gateway {
                    IpAddr::V6(v6) => Some(v6),
                    IpAddr::V4(_) => None,
                }),
                policy: None,
                fat: self.fat_flows(interface),
                serves_dhcp: interface.dhcp_server,
                mirror: interface
                    .mirror
                    .as_ref()
                    .and_then(|name| self.numbers.analysers.get(name).and_then(|number| number.try_into().ok())),
            };
            self.compiled.config.interfaces.insert(number, compiled);
        }
    }

    /// Of the interface and of its network.
    fn fat_flows(&self, interface: &Interface) -> BTreeSet<Service> {
        let network = self.settings.networks.get(&interface.network);
        let all = network.into_iter().flat_map(|network| &network.fat_flows).chain(&interface.fat_flows);
        all.copied().collect()
    }

    /// Of the subnets of its addresses, its own ones first.
    fn gateways(&self, interface: &'a Interface) -> impl Iterator<Item = IpAddr> {
        let network = self.settings.networks.get(&interface.network);
        let subnets = network.map_or(&[][..], |network| &network.subnets);
        let of = |address| subnets.iter().find(|subnet| subnet.prefix.contains(&address)).map(|subnet| subnet.gateway);
        interface.all_addresses().filter_map(of)
    }

    /// What interfaces may send and receive.
    fn interfaces(&mut self) {
        let remotes = Remotes::of(self.settings, self.name, self.routes, self.numbers.analysers.clone());
        let mut lists = BTreeMap::new();
        let mut wanted = Vec::new();
        for (number, interface) in self.present.values() {
            let mut names = |direction| -> Vec<String> {
                let sources = [remotes.groups(interface, direction), remotes.policies(interface, direction)];
                let mut names = Vec::new();
                for source in sources.into_iter().flatten() {
                    names.push(source.name.clone());
                    lists.entry(source.name.clone()).or_insert_with(|| remotes.list(&source));
                }
                names
            };
            let (outward, inward) = (names(Direction::Outward), names(Direction::Inward));
            let is_fat = !self.fat_flows(interface).is_empty();
            let has_limit = interface.most_flows.is_some_and(|most| most > 0);
            let has_flows = has_limit || interface.mirror.is_some() || is_fat;
            if !outward.is_empty() || !inward.is_empty() || has_flows {
                wanted.push((*number, outward, inward, interface.most_flows));
            }
        }
        // An interface that is not there now will want the same list when it is back, but a list takes nothing along.
        self.numbers.lists.allot(lists.keys().map(String::as_str));
        let number = |names: &[String]| names.iter().filter_map(|name| self.numbers.lists.get(name)).collect();
        for (interface, outward, inward, most_flows) in &wanted {
            let policy = datapath::Policy {
                outward: number(outward),
                inward: number(inward),
                // 0 is no limit, which none is not.
                most_flows: most_flows.map(|most| NonZeroU32::new(most).unwrap_or(NonZeroU32::MAX)),
            };
            let interface = self.compiled.config.interfaces.entry(*interface);
            interface.and_modify(|interface| interface.policy = Some(policy));
        }
        let lists = lists.into_iter().filter_map(|(name, list)| Some((self.numbers.lists.get(&name)?, list)));
        self.compiled.config.lists = lists.collect();
        let share = self.settings.router.share_of_flows(self.present.len());
        self.compiled.config.most_flows = NonZeroU32::new(share).filter(|_| self.present.len() > 1);
    }

    /// How a route of another node is taken, if it can be.
    fn tunnel(&mut self, network: &Network, route: &Route) -> Option<NextHop> {
        if route.node == self.node.address {
            return None;
        }
        // Where it is not reached a note says so.
        let peers = self.compiled.config.underlay.as_ref().map(|underlay| &underlay.peers);
        let mtu = peers.and_then(|peers| peers.get(&route.node))?.mtu;
        let chosen = network.encapsulation.iter().find_map(|encapsulation| {
            let label = route.encapsulations.get(encapsulation)?;
            self.node.encapsulations.contains(encapsulation).then_some((*encapsulation, *label))
        });
        let Some((encapsulation, label)) = chosen else {
            let (at, name) = (route.node, &route.key.network);
            self.note(format!("{at} has routes of network '{name}' in no encapsulation that this node can do"));
            return None;
        };
        if !labels(encapsulation).contains(&label) {
            let (at, name) = (route.node, &route.key.network);
            self.note(format!("{at} has a route of network '{name}' with label {label}, which does not exist"));
            return None;
        }
        // Packets that are small enough get there all the same.
        if let Some(what) = network.too_small(mtu, encapsulation, &route.key.network) {
            self.note(format!("the way to {}: {what}", route.node));
        }
        // MPLS carries a packet for one address without its frame; so all routes to a node share what the datapath keeps for its tunnel.
        let mac = if encapsulation == Encapsulation::Vxlan { route.mac } else { Mac::default() };
        Some(NextHop::Tunnel(datapath::Tunnel { peer: route.node, encapsulation, label, mac }))
    }

    fn vnis(&mut self, name: &str, network: &Network, vrf: u32) {
        self.compiled.config.vnis.insert(network.vni, Vni::Vrf(vrf));
        let of_network = self.present.values().filter(|(_, interface)| interface.network == name);
        let own = of_network.filter_map(|(number, interface)| Some((interface.vni?, Vni::Interface(*number))));
        self.compiled.config.vnis.extend(own);
    }
}
