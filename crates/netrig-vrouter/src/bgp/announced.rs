//! What a node has its speaker announce.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use rig_datapath::vrouter::Encapsulation;

use super::route::{RouteAttributes, RouteSubject};
use crate::routes::{Destination, announced};
use crate::settings::{Assigned, Settings};

/// By what each is about.
pub type Routes = BTreeMap<RouteSubject, RouteAttributes>;

/// Whether a route distinguisher is of those that a node with this address gives out. With it as next hop, too, a route at its
/// speaker is its own.
pub fn is_own(distinguisher: Assigned, node: Ipv4Addr) -> bool {
    matches!(distinguisher, Assigned::ByAddress(address, _) if address == node)
}

/// Each interface has a route distinguisher of its own: so several that have one address are several routes everywhere.
pub fn routes(settings: &Settings, name: &str) -> Routes {
    let mut routes = Routes::new();
    let speaks = settings.nodes.get(name).is_some_and(|node| node.bgp);
    let Some(bgp) = settings.router.bgp.as_ref().filter(|_| speaks) else { return routes };
    let autonomous_system = bgp.autonomous_system;
    for route in announced(settings, name) {
        let (Some(network), Some(interface)) =
            (settings.networks.get(&route.key.network), settings.interfaces.get(&route.key.origin))
        else {
            continue;
        };
        let distinguisher = Assigned::ByAddress(route.node, interface.distinguisher);
        let groups = route.security_groups.iter().filter_map(|group| settings.security_groups.get(group));
        let groups = groups.map(|group| (autonomous_system, group.id));
        let says = |label: u32, encapsulations: BTreeSet<Encapsulation>| RouteAttributes {
            next_hop: route.node,
            label,
            targets: network.export.clone(),
            encapsulations,
            groups: groups.clone().collect(),
            mac: None,
        };
        let (vxlan, mpls): (BTreeSet<_>, BTreeSet<_>) =
            route.encapsulations.keys().partition(|one| **one == Encapsulation::Vxlan);
        let of_mac = |address| RouteSubject::Mac { distinguisher, tag: 0, mac: interface.mac, address };
        match route.key.destination {
            Destination::Prefix(prefix) => {
                if !mpls.is_empty() {
                    routes.insert(RouteSubject::Vpn { distinguisher, prefix }, says(interface.label, mpls));
                }
                if vxlan.is_empty() {
                    continue;
                }
                let says = says(interface.vni.unwrap_or(network.vni), vxlan);
                match interface.all_addresses().find(|address| prefix == (*address).into()) {
                    Some(address) => routes.insert(of_mac(Some(address)), says),
                    // Frames are for the interface itself, as those to its addresses are.
                    None => routes.insert(
                        RouteSubject::Behind { distinguisher, tag: 0, prefix },
                        RouteAttributes { mac: Some(interface.mac), ..says },
                    ),
                };
            }
            Destination::Mac(_) if !vxlan.is_empty() => {
                routes.insert(of_mac(None), says(interface.vni.unwrap_or(network.vni), vxlan));
            }
            Destination::Mac(_) => {}
            Destination::All => {
                // A route has one label, or one network identifier: those who take both have two.
                let named = settings.network_on(name, &route.key.network).unwrap_or_default();
                let of_network = Assigned::ByAddress(route.node, named.distinguisher);
                for (distinguisher, label, ways) in
                    [(distinguisher, network.vni, vxlan), (of_network, named.label, mpls)]
                {
                    if !ways.is_empty() {
                        let subject = RouteSubject::Multicast { distinguisher, tag: 0, originator: route.node.into() };
                        routes.insert(subject, says(label, ways));
                    }
                }
            }
        }
    }
    routes
}
