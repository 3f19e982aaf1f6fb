//! What a speaker has told of, and what of it holds while the speaker is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use rig_datapath::vrouter::Encapsulation;
use rig_wire::ethernet::Mac;

use super::route::{RouteAttributes, RouteChange, RouteSubject};
use crate::routes::{Destination, Route, RouteKey, RouteTable};
use crate::settings::{Assigned, Network, Settings};

#[derive(Debug, Clone, Default)]
pub struct LearnedRoutes {
    routes: BTreeMap<RouteSubject, LearnedRoute>,
    /// Since when the speaker is there.
    connected: Option<Instant>,
}

#[derive(Debug, Clone)]
struct LearnedRoute {
    says: RouteAttributes,
    /// Since when it is only remembered, and the speaker has not told it again.
    stale: Option<Instant>,
}

impl LearnedRoutes {
    pub fn connected(&mut self, now: Instant) {
        self.connected = Some(now);
    }

    /// All of it is only remembered from now on.
    pub fn lost(&mut self, now: Instant) {
        self.connected = None;
        for known in self.routes.values_mut() {
            known.stale.get_or_insert(now);
        }
    }

    pub fn told(&mut self, told: RouteChange) {
        match told {
            RouteChange::Announced { subject, says, .. } => {
                drop(self.routes.insert(subject, LearnedRoute { says, stale: None }));
            }
            RouteChange::Withdrawn(subject) => drop(self.routes.remove(&subject)),
        }
    }

    /// A route that the speaker has not told again is forgotten `keep` after its speaker was lost, or after it came back, if it did; after twice
    /// that in any case. A speaker that begins anew has to hear from its neighbours first.
    fn holds(&self, known: &LearnedRoute, now: Instant, keep: Duration) -> bool {
        let Some(stale) = known.stale else { return true };
        let since = self.connected.map_or(stale, |connected| connected.max(stale));
        now < (since + keep).min(stale + 2 * keep)
    }

    /// Whether there is something to forget.
    pub fn is_expired(&self, now: Instant, keep: Duration) -> bool {
        !self.routes.values().all(|known| self.holds(known, now, keep))
    }

    pub fn expire(&mut self, now: Instant, keep: Duration) {
        let mut routes = std::mem::take(&mut self.routes);
        routes.retain(|_, known| self.holds(known, now, keep));
        self.routes = routes;
    }

    /// How many there are of other nodes than the one with this address, and how many of these are only remembered.
    pub fn count(&self, own: Ipv4Addr) -> (usize, usize) {
        let of_others = || self.routes.values().filter(|known| known.says.next_hop != own);
        (of_others().count(), of_others().filter(|known| known.stale.is_some()).count())
    }

    /// Routes to what other nodes have in networks that this one has tables of.
    pub fn table(&self, settings: &Settings, name: &str) -> RouteTable {
        let Some(node) = settings.nodes.get(name).filter(|node| node.bgp) else { return RouteTable::default() };
        let mut importers: BTreeMap<Assigned, BTreeSet<&str>> = BTreeMap::new();
        let networks = settings.networks_of(name);
        for (network, of_network) in networks.keys().filter_map(|name| settings.networks.get_key_value(*name)) {
            let Network { import, .. } = of_network;
            for target in import {
                importers.entry(*target).or_default().insert(network);
            }
        }
        let groups = settings.security_groups.iter().map(|(name, group)| (group.id, name.as_str()));
        let mut collected = CollectedRoutes { groups: groups.collect(), ..CollectedRoutes::default() };
        for (subject, known) in &self.routes {
            if known.says.next_hop == node.address {
                continue;
            }
            let importers: BTreeSet<&str> =
                known.says.targets.iter().filter_map(|target| importers.get(target)).flatten().copied().collect();
            importers.into_iter().for_each(|network| collected.add(network, subject, &known.says));
        }
        collected.into_routes().collect()
    }
}

/// A host's routes of both kinds have a route distinguisher and a next hop in common.
type RouteOrigin = (Assigned, Ipv4Addr);

/// Routes while they are put together: those of a VPN know labels, those of EVPN network identifiers and MAC addresses.
#[derive(Default)]
struct CollectedRoutes<'a> {
    routes: BTreeMap<(&'a str, Destination, RouteOrigin), Route>,
    /// Addresses of MAC addresses.
    addresses: BTreeMap<(&'a str, Mac, RouteOrigin), BTreeSet<IpAddr>>,
    /// Names of security groups; of one that is not in the settings no rule speaks.
    groups: BTreeMap<u32, &'a str>,
}

impl<'a> CollectedRoutes<'a> {
    fn add(&mut self, network: &'a str, subject: &RouteSubject, says: &RouteAttributes) {
        let origin = (subject.distinguisher(), says.next_hop);
        match *subject {
            RouteSubject::Vpn { prefix, .. } => drop(self.extend(network, Destination::Prefix(prefix), origin, says)),
            RouteSubject::Behind { prefix, .. } => {
                self.extend(network, Destination::Prefix(prefix), origin, says).mac = says.mac.unwrap_or_default();
            }
            RouteSubject::Multicast { .. } => drop(self.extend(network, Destination::All, origin, says)),
            RouteSubject::Mac { mac, address, .. } => {
                self.extend(network, Destination::Mac(mac), origin, says).mac = mac;
                if let Some(address) = address {
                    let host = Destination::Prefix(IpNet::from(address));
                    self.extend(network, host, origin, says).mac = mac;
                    self.addresses.entry((network, mac, origin)).or_default().insert(address);
                }
            }
        }
    }

    fn extend(
        &mut self,
        network: &'a str,
        destination: Destination,
        origin: RouteOrigin,
        says: &RouteAttributes,
    ) -> &mut Route {
        let key = || RouteKey {
            network: network.to_owned(),
            destination,
            // Names of interfaces have no colon.
            origin: format!("{} by {}", origin.0, origin.1),
        };
        let route = self.routes.entry((network, destination, origin)).or_insert_with(|| Route {
            key: key(),
            node: says.next_hop,
            encapsulations: BTreeMap::new(),
            mac: Mac::default(),
            security_groups: BTreeSet::new(),
        });
        route.encapsulations.extend(says.encapsulations.iter().map(|one| (*one, says.label)));
        if matches!(destination, Destination::Prefix(_)) {
            let names = says.groups.iter().filter_map(|(_, group)| self.groups.get(group));
            route.security_groups.extend(names.map(|name| (*name).to_owned()));
        }
        route
    }

    /// The label of a host is good for frames to its MAC address, too.
    fn into_routes(mut self) -> impl Iterator<Item = Route> {
        for ((network, mac, origin), addresses) in self.addresses {
            let of_host = |address| self.routes.get(&(network, Destination::Prefix(IpNet::from(address)), origin));
            let labels: BTreeMap<Encapsulation, u32> =
                addresses.into_iter().filter_map(of_host).flat_map(|route| route.encapsulations.clone()).collect();
            if let Some(route) = self.routes.get_mut(&(network, Destination::Mac(mac), origin)) {
                for (encapsulation, label) in labels {
                    route.encapsulations.entry(encapsulation).or_insert(label);
                }
            }
        }
        self.routes.into_values()
    }
}
