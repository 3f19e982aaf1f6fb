//! Tables of routes: a network's own, and what networks that it is connected with have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::IpNet;
use rig_datapath::vrouter::{Encapsulation, Flood, MOST_MEMBERS, MOST_WAYS, NextHop, Vrf};
use rig_wire::ethernet::Mac;

use super::{Compiler, labels};
use crate::routes::{Destination, Route};
use crate::settings::{Network, is_mapped};

/// Ways to things of one network.
#[derive(Default)]
struct NetworkRoutes {
    prefixes: BTreeMap<IpNet, BTreeSet<NextHop>>,
    macs: BTreeMap<Mac, BTreeSet<NextHop>>,
    /// Interfaces of this node that frames to all go to.
    members: BTreeSet<u32>,
    /// Other nodes that they go to: how many encapsulations the network would rather have, the encapsulation, and its label or network
    /// identifier.
    nodes: BTreeMap<Ipv4Addr, (usize, Encapsulation, u32)>,
}

impl<'a> Compiler<'a> {
    pub(super) fn vrfs(&mut self) {
        let mut ways = self.local();
        self.of_others(&mut ways);
        let networks = self.networks.clone();
        for (name, is_local) in &networks {
            let (name, settings) = (name.as_str(), self.settings);
            let (Some(network), Some(number)) = (settings.networks.get(name), self.numbers.vrfs.get(name)) else {
                continue;
            };
            let of_network = ways.remove(name).unwrap_or_default();
            let vrf = self.vrf(name, network, of_network, *is_local);
            self.compiled.config.vrfs.insert(number, Arc::new(vrf));
            if *is_local {
                self.vnis(name, network, number);
            }
        }
        self.leak();
        self.close_subnets();
    }

    fn local(&self) -> BTreeMap<&'a str, NetworkRoutes> {
        let mut ways: BTreeMap<&str, NetworkRoutes> = BTreeMap::new();
        for (name, (number, interface)) in &self.present {
            let of_network = ways.entry(&interface.network).or_default();
            let way = NextHop::Interface(*number);
            let network = self.settings.networks.get(&interface.network);
            let behind = network.into_iter().flat_map(|network| &network.routes);
            let behind = behind.filter(|(_, via)| via.iter().any(|via| via == name)).map(|(prefix, _)| *prefix);
            for prefix in interface.all_addresses().map(IpNet::from).chain(behind) {
                of_network.prefixes.entry(prefix).or_default().insert(way.clone());
            }
            of_network.macs.entry(interface.mac).or_default().insert(way);
            of_network.members.insert(*number);
        }
        ways
    }

    fn of_others(&mut self, ways: &mut BTreeMap<&'a str, NetworkRoutes>) {
        // What the file says is one interface's alone; other nodes may have another file.
        let own = self.settings.interfaces_of(self.name).flat_map(|(name, interface)| {
            interface.addresses.iter().map(move |address| ((&interface.network, IpNet::from(*address)), name))
        });
        let own: BTreeMap<(&String, IpNet), &String> = own.collect();
        for route in self.routes.iter() {
            let Some((name, network)) = self.settings.networks.get_key_value(&route.key.network) else {
                self.note(format!(
                    "{} has routes of a network '{}', which does not exist",
                    route.node, route.key.network
                ));
                continue;
            };
            if !self.networks.contains_key(name) {
                continue;
            }
            if let Destination::Prefix(prefix) = route.key.destination
                && (is_mapped(prefix) || prefix.network().is_multicast())
            {
                self.note(format!(
                    "{} has a route to {prefix} of network '{name}', which is not a prefix of containers",
                    route.node
                ));
                continue;
            }
            if let Destination::Prefix(prefix) = route.key.destination
                && let Some(interface) = own.get(&(name, prefix))
            {
                let (at, address) = (route.node, prefix.addr());
                self.note(format!(
                    "{at} has {address} of network '{name}', too, which is interface '{interface}' here"
                ));
                continue;
            }
            if let Destination::Mac(mac) = route.key.destination
                && mac.is_multicast()
            {
                self.note(format!("{} has {mac} of network '{name}', which is a group's", route.node));
                continue;
            }
            let of_network = ways.entry(name).or_default();
            match route.key.destination {
                Destination::Prefix(prefix) => {
                    if let Some(way) = self.tunnel(network, route) {
                        of_network.prefixes.entry(prefix.trunc()).or_default().insert(way);
                    }
                }
                Destination::Mac(mac) => {
                    if let Some(way) = self.tunnel(network, route) {
                        of_network.macs.entry(mac).or_default().insert(way);
                    }
                }
                Destination::All => {
                    // By BGP one node has a route for labels and one for network identifiers.
                    if let Some(way) = self.member(network, route) {
                        let known = of_network.nodes.entry(route.node).or_insert(way);
                        *known = way.min(*known);
                    }
                }
            }
        }
    }

    /// How a node takes frames to all, where it does and there is a way to it.
    fn member(&self, network: &Network, route: &Route) -> Option<(usize, Encapsulation, u32)> {
        let peers = self.compiled.config.underlay.as_ref().map(|underlay| &underlay.peers);
        if route.node == self.node.address || !peers.is_some_and(|peers| peers.contains_key(&route.node)) {
            return None;
        }
        network.encapsulation.iter().enumerate().find_map(|(rank, way)| {
            let label = route.encapsulations.get(way).filter(|label| labels(*way).contains(*label))?;
            self.node.encapsulations.contains(way).then_some((rank, *way, *label))
        })
    }

    fn flood(&mut self, name: &str, network: &Network, ways: &NetworkRoutes) -> Option<Flood> {
        if !network.broadcast {
            return None;
        }
        let all = ways.members.len() + ways.nodes.len();
        if all > MOST_MEMBERS {
            self.note(format!(
                "network '{name}': of {all} interfaces here and other nodes {MOST_MEMBERS} get frames to all"
            ));
        }
        let members: BTreeSet<u32> = ways.members.iter().take(MOST_MEMBERS).copied().collect();
        let peers = ways.nodes.iter().take(MOST_MEMBERS - members.len());
        let peers = peers.map(|(node, (_, way, label))| (*node, (*way, *label))).collect();
        let label = self.settings.label_to_all(self.name, name);
        Some(Flood { members, label, peers, unknown_unicast: network.flood_unknown_unicast })
    }

    fn vrf(&mut self, name: &str, network: &Network, ways: NetworkRoutes, is_local: bool) -> Vrf {
        let flood = if is_local { self.flood(name, network, &ways) } else { None };
        let mut vrf = Vrf { flood, ..Vrf::default() };
        for (prefix, ways) in ways.prefixes {
            if ways.len() > MOST_WAYS {
                self.note(format!("network '{name}': of {} ways to {prefix} {MOST_WAYS} are taken", ways.len()));
            }
            let mut ways: Vec<NextHop> = ways.into_iter().take(MOST_WAYS).collect();
            if let Some(next_hop) = if ways.len() == 1 { ways.pop() } else { Some(NextHop::Ecmp(ways)) } {
                vrf.routes.insert(prefix, next_hop);
            }
        }
        // Whatever others say, the gateway is this router.
        vrf.routes.extend(network.subnets.iter().map(|subnet| (subnet.gateway.into(), NextHop::Gateway)));
        if !is_local {
            // No interface here sends it frames.
            return vrf;
        }
        // A MAC address is at one place: here, rather than where another node says.
        let macs = ways.macs.into_iter().filter_map(|(mac, ways)| Some((mac, ways.into_iter().next()?)));
        vrf.macs = macs.collect();
        vrf
    }

    /// Gives the tables of this node's interfaces the prefixes of networks that theirs is connected with.
    fn leak(&mut self) {
        let mut leaks = Vec::new();
        for (name, _) in self.networks.iter().filter(|(_, is_local)| **is_local) {
            let (Some(network), Some(number)) = (self.settings.networks.get(*name), self.numbers.vrfs.get(name)) else {
                continue;
            };
            for other_name in &network.connected {
                let (other, other_number) = (self.settings.networks.get(other_name), self.numbers.vrfs.get(other_name));
                let (Some(other), Some(other_number)) = (other, other_number) else { continue };
                let in_subnet =
                    |of: &Network, prefix: &IpNet| of.subnets.iter().any(|subnet| subnet.prefix.contains(prefix));
                let routes = self.compiled.config.vrfs.get(&other_number).into_iter().flat_map(|vrf| vrf.routes.keys());
                let outside = routes.filter(|prefix| !in_subnet(other, prefix) && !in_subnet(network, prefix));
                let prefixes = other.subnets.iter().map(|subnet| subnet.prefix).chain(outside.copied());
                leaks.extend(prefixes.map(|prefix| (number, prefix, other_number)));
            }
        }
        for (to, prefix, from) in leaks {
            if let Some(vrf) = self.compiled.config.vrfs.get_mut(&to) {
                // Its own way is nearer.
                Arc::make_mut(vrf).routes.entry(prefix).or_insert(NextHop::Vrf(from));
            }
        }
    }

    /// Addresses of a subnet that no container has are discarded, and not of the node with a route to everything: else two connected tables could
    /// send a packet back and forth.
    fn close_subnets(&mut self) {
        for name in self.networks.keys() {
            let (Some(network), Some(number)) = (self.settings.networks.get(*name), self.numbers.vrfs.get(name)) else {
                continue;
            };
            let Some(vrf) = self.compiled.config.vrfs.get_mut(&number) else { continue };
            for subnet in &network.subnets {
                let covers = |prefix: &IpNet| *prefix != subnet.prefix && prefix.contains(&subnet.prefix);
                if vrf.routes.keys().any(covers) {
                    Arc::make_mut(vrf).routes.entry(subnet.prefix).or_insert(NextHop::Discard);
                }
            }
        }
    }
}
