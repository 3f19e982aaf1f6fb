//! Who is where: what nodes tell each other, and who tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::IpNet;
use rig_datapath::vrouter::Encapsulation;
use rig_wire::ethernet::Mac;

use crate::settings::{Interface, Network, Node, Settings};

/// A way to something in a network, through another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub key: RouteKey,
    /// Where tunnels to it end.
    pub node: Ipv4Addr,
    /// How packets may come, each with its MPLS label or VXLAN network identifier.
    pub encapsulations: BTreeMap<Encapsulation, u32>,
    /// Destination of the inner frame, where there is one.
    pub mac: Mac,
    /// Of the interface whose address it is.
    pub security_groups: BTreeSet<String>,
}

/// What a route is about. Several may have ways to one destination, each with an origin of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// A network of the settings: what a route target stands for.
    pub network: String,
    pub destination: Destination,
    /// Who has it: an interface, or what a speaker distinguishes routes by.
    pub origin: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    Prefix(IpNet),
    Mac(Mac),
    /// All of the network: where frames to all are copied for each.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteUpdate {
    /// In place of what had the same key.
    Announce(Route),
    Withdraw(RouteKey),
}

/// Who tells of other nodes' routes.
pub trait RouteSource {
    /// What is new since it was asked last; nothing is no error.
    ///
    /// # Errors
    /// When it cannot be asked any more.
    fn updates(&mut self) -> Result<Vec<RouteUpdate>, RouteSourceError>;
}

/// A source that has gone quiet, and why. What it told stays true until a source withdraws it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}: {what}")]
pub struct RouteSourceError {
    pub source_name: String,
    pub what: String,
}

/// All routes that were announced and not withdrawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTable(BTreeMap<RouteKey, Route>);

impl RouteTable {
    /// Whether it changed anything.
    pub fn apply(&mut self, update: RouteUpdate) -> bool {
        match update {
            RouteUpdate::Announce(route) if self.0.get(&route.key) == Some(&route) => false,
            RouteUpdate::Announce(route) => {
                self.0.insert(route.key.clone(), route);
                true
            }
            RouteUpdate::Withdraw(key) => self.0.remove(&key).is_some(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.values()
    }

    /// Updates that make this one of `before`.
    pub fn since(&self, before: &Self) -> Vec<RouteUpdate> {
        let gone = before.0.keys().filter(|key| !self.0.contains_key(key)).cloned().map(RouteUpdate::Withdraw);
        let new = self.0.iter().filter(|(key, route)| before.0.get(key) != Some(route));
        gone.chain(new.map(|(_, route)| RouteUpdate::Announce(route.clone()))).collect()
    }
}

impl FromIterator<Route> for RouteTable {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Self {
        Self(routes.into_iter().map(|route| (route.key.clone(), route)).collect())
    }
}

/// What a node has to tell the others.
pub fn announced(settings: &Settings, name: &str) -> Vec<Route> {
    let Some(node) = settings.nodes.get(name) else { return Vec::new() };
    let mut routes = Vec::new();
    // One for each network, whose origin is an interface of it.
    let mut all = BTreeMap::new();
    for (origin, interface) in settings.interfaces_of(name) {
        let Some(network) = settings.networks.get(&interface.network) else { continue };
        let to = |destination| Route {
            key: RouteKey { network: interface.network.clone(), destination, origin: origin.clone() },
            node: node.address,
            encapsulations: encapsulations(node, network, interface),
            mac: interface.mac,
            security_groups: BTreeSet::new(),
        };
        let groups = &interface.security_groups;
        let hosts = interface.all_addresses().map(|address| Destination::Prefix(address.into()));
        routes.extend(hosts.map(|host| Route { security_groups: groups.clone(), ..to(host) }));
        routes.push(to(Destination::Mac(interface.mac)));
        let behind = network.routes.iter().filter(|(_, via)| via.contains(origin));
        routes.extend(behind.map(|(prefix, _)| to(Destination::Prefix(*prefix))));
        let mut to_all = Route { mac: Mac::default(), ..to(Destination::All) };
        let label = settings.network_on(name, &interface.network).map_or(0, |named| named.label);
        for (way, number) in &mut to_all.encapsulations {
            *number = if *way == Encapsulation::Vxlan { network.vni } else { label };
        }
        if network.broadcast && !to_all.encapsulations.is_empty() {
            all.entry(&interface.network).or_insert(to_all);
        }
    }
    routes.extend(all.into_values());
    routes
}

fn encapsulations(node: &Node, network: &Network, interface: &Interface) -> BTreeMap<Encapsulation, u32> {
    let can = network.encapsulation.iter().filter(|way| node.encapsulations.contains(way));
    let vni = interface.vni.unwrap_or(network.vni);
    can.map(|way| (*way, if *way == Encapsulation::Vxlan { vni } else { interface.label })).collect()
}

/// The file that all nodes read is a source of routes: what each other node of it has to tell, but for those that tell it by
/// BGP themselves.
#[derive(Debug, Clone)]
pub struct FileRoutes {
    node: String,
    says: RouteTable,
    told: RouteTable,
}

impl FileRoutes {
    /// For `node`, which knows its own.
    pub fn new(settings: &Settings, node: &str) -> Self {
        let mut routes = Self { node: node.to_owned(), says: RouteTable::default(), told: RouteTable::default() };
        routes.reload(settings);
        routes
    }

    /// From now on it says what these settings do.
    pub fn reload(&mut self, settings: &Settings) {
        let others = settings.nodes.keys().filter(|node| **node != self.node && !settings.by_bgp(&self.node, node));
        self.says = others.flat_map(|node| announced(settings, node)).collect();
    }
}

impl RouteSource for FileRoutes {
    fn updates(&mut self) -> Result<Vec<RouteUpdate>, RouteSourceError> {
        let updates = self.says.since(&self.told);
        self.told.clone_from(&self.says);
        Ok(updates)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    const FILE: &str = r#"
[[node]]
name = "a"
address = "192.0.2.1"
[[node]]
name = "b"
address = "192.0.2.2"
encapsulations = ["vxlan", "mplsogre"]
[[network]]
name = "red"
subnets = ["10.1.0.0/24"]
vni = 100
label = 99
[[security_group]]
name = "web"
[[interface]]
name = "red-b"
node = "b"
network = "red"
device = "veth1"
addresses = ["10.1.0.11"]
mac = "02:00:00:00:00:0b"
label = 77
security_groups = ["web"]
"#;
    const BEHIND: &str = "[[route]]\nnetwork = 'red'\nprefix = '10.9.0.0/16'\nvia = ['red-b']\n";

    fn parse(text: &str) -> Settings {
        Settings::parse("vrouter.toml", text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_node_tells_of_its_interfaces_what_others_need_to_get_there() {
        let routes = announced(&parse(&format!("{FILE}{BEHIND}")), "b");
        let found: Vec<_> = routes.iter().map(|route| (route.key.destination, &route.key.origin[..])).collect();
        let mac = Mac([2, 0, 0, 0, 0, 0xb]);
        let prefix = |text: &str| Destination::Prefix(text.parse().unwrap());
        let expected = [
            (prefix("10.1.0.11/32"), "red-b"),
            (Destination::Mac(mac), "red-b"),
            (prefix("10.9.0.0/16"), "red-b"),
            (Destination::All, "red-b"),
        ];
        assert_eq!(found, expected);
        let both = BTreeMap::from([(Encapsulation::MplsOverGre, 77), (Encapsulation::Vxlan, 100)]);
        assert_eq!((&routes[0].encapsulations, routes[0].mac), (&both, mac));
        assert_eq!(routes[0].security_groups, BTreeSet::from(["web".to_owned()]));
        // What is behind an interface is not of its groups.
        assert_eq!(routes[2].security_groups, BTreeSet::new());
        assert_eq!(announced(&parse(FILE), "a"), []);
        // Frames to all go once to each node, by the network's own label.
        let to_all = &routes[3];
        let of_network = BTreeMap::from([(Encapsulation::MplsOverGre, 99), (Encapsulation::Vxlan, 100)]);
        assert_eq!((&to_all.encapsulations, to_all.mac), (&of_network, Mac::default()));
        let second = FILE[FILE.find("[[interface]]").unwrap()..]
            .replace("red-b", "red-c")
            .replace("veth1", "veth2")
            .replace("0.11", "0.12")
            .replace("0b\"", "0c\"")
            .replace("77", "78");
        let is_to_all = |route: &Route| route.key.destination == Destination::All;
        let count = |text: &str| announced(&parse(text), "b").iter().filter(|route| is_to_all(route)).count();
        assert_eq!(count(&format!("{FILE}{second}")), 1);
        assert_eq!(count(&FILE.replace("vni = 100\nlabel = 99", "vni = 100\nbroadcast = false")), 0);
        assert_eq!(count(&FILE.replace("\"vxlan\", ", "")), 1);
    }

    #[test]
    fn a_file_tells_what_is_new_and_what_is_gone_once() {
        let mut source = FileRoutes::new(&parse(&format!("{FILE}{BEHIND}")), "a");
        let mut table = RouteTable::default();
        let updates = source.updates().unwrap();
        assert_eq!(updates.len(), 4);
        assert!(updates.into_iter().all(|update| table.apply(update)));
        assert_eq!(source.updates().unwrap(), []);
        source.reload(&parse(FILE));
        let updates = source.updates().unwrap();
        assert!(matches!(&updates[..], [RouteUpdate::Withdraw(key)] if key.origin == "red-b"), "{updates:?}");
        assert!(table.apply(updates[0].clone()));
        assert!(!table.apply(updates[0].clone()));
        assert_eq!(table, announced(&parse(FILE), "b").into_iter().collect());
        assert_eq!(FileRoutes::new(&parse(FILE), "b").updates().unwrap(), []);
    }

    #[test]
    fn a_file_tells_nothing_of_who_tells_it_by_bgp() {
        let bgp = format!("{FILE}[router.bgp]\n");
        assert_eq!(FileRoutes::new(&parse(&bgp), "a").updates().unwrap(), []);
        for silent in ["192.0.2.1", "192.0.2.2"] {
            let one_silent = bgp.replace(&format!("\"{silent}\""), &format!("\"{silent}\"\nbgp = false"));
            assert_eq!(FileRoutes::new(&parse(&one_silent), "a").updates().unwrap().len(), 3, "{silent}");
        }
    }
}
