//! `vrouter.toml`: one file for a whole set of nodes, read once into [`Settings`], which nothing checks again.
//!
//! ```text
//! text --file (letter)--> read (names, units, ranges) --> allot (what was left out) --> check (what fits together) --> Settings
//! ```

mod allot;
mod analysers;
mod bgp;
pub mod changes;
mod check;
mod file;
mod interfaces;
mod key;
mod networks;
pub mod plugged;
mod read;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

pub use self::bgp::{Assigned, Bgp};
pub use self::plugged::{PluggedInterface, SettingsText};
use ipnet::IpNet;
use rig_cli::mistakes::FileError;
pub use rig_datapath::vrouter::Action;
use rig_datapath::vrouter::{Encapsulation, ROUTER_MAC, Service, Timeouts};
use rig_wire::ethernet::Mac;
pub(crate) use rules::PROTOCOLS;

/// All that the file says, and what follows from it for everything it leaves out. Names in it are of things that it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub router: Router,
    pub nodes: BTreeMap<String, Node>,
    pub networks: BTreeMap<String, Network>,
    pub interfaces: BTreeMap<String, Interface>,
    pub security_groups: BTreeMap<String, SecurityGroup>,
    pub policies: BTreeMap<String, NetworkPolicy>,
    pub analysers: BTreeMap<String, Analyser>,
    /// By nodes' names, what names each network that they have interfaces of. It follows from the rest and is never changed alone.
    pub on_nodes: BTreeMap<String, BTreeMap<String, NodeNetworkIds>>,
}

/// What names a network on a node that has interfaces of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeNetworkIds {
    /// MPLS label of its frames to all.
    pub label: u32,
    /// In route distinguishers of BGP.
    pub distinguisher: u16,
}

/// What holds for each node's router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// Its MAC address towards containers.
    pub mac: Mac,
    /// The most preferred first.
    pub encapsulation: Vec<Encapsulation>,
    /// Flows that the table has room for, both directions of a connection counted as one.
    pub flows: u32,
    /// Of an interface that says nothing of it, 0 for no limit but the table's; without it that has a share of the table.
    pub most_flows: Option<u32>,
    pub timeouts: Timeouts,
    /// Whether packets of another node are taken by the interface alone that the way back to it takes.
    pub strict_underlay: bool,
    /// Whether labels and network identifiers are drawn from a key, which is nowhere in these settings.
    pub has_key: bool,
    /// How routes of other nodes come by BGP, where they do.
    pub bgp: Option<Bgp>,
    /// How many interfaces plug-ins may add on each node.
    pub plugged: u32,
}

/// Whether files may have `[router.bgp]`. Tests of settings need no speaker.
const HAS_BGP: bool = cfg!(any(feature = "bgp", test));
/// Shares of the flow table that an interface without a limit leaves for others: it has one of so many at most.
const SHARES: usize = 8;

impl Router {
    /// Connections that an interface may have that says nothing of it, on a node with so many interfaces: its part of the table, and an
    /// eighth of it where they are more than eight. Alone it has all.
    pub fn share_of_flows(&self, interfaces: usize) -> u32 {
        self.flows / interfaces.clamp(1, SHARES) as u32
    }
}

impl Default for Router {
    fn default() -> Self {
        Self {
            mac: ROUTER_MAC,
            encapsulation: Encapsulation::ALL.to_vec(),
            flows: 128 * 1024,
            most_flows: None,
            timeouts: Timeouts::default(),
            strict_underlay: true,
            has_key: false,
            bgp: None,
            plugged: 256,
        }
    }
}

/// A machine with a router of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where tunnels to it end.
    pub address: Ipv4Addr,
    /// The device that tunnels go over; the one that the kernel's route leads to, where none is said.
    pub interface: Option<String>,
    /// Those that it can do.
    pub encapsulations: BTreeSet<Encapsulation>,
    /// The largest packet of its underlay, bytes.
    pub mtu: Option<u16>,
    /// Whether it has a speaker of BGP.
    pub bgp: bool,
}

/// Who gets copies of packets, in VXLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Analyser {
    pub address: Ipv4Addr,
    /// Of UDP.
    pub port: u16,
    pub vni: u32,
}

/// A virtual network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    pub subnets: Vec<Subnet>,
    /// Its VXLAN network identifier.
    pub vni: u32,
    /// MPLS label of its frames to all on every node, where the file says one; see [`Settings::network_on`].
    pub label: Option<u32>,
    /// The most preferred first: its own, or the router's.
    pub encapsulation: Vec<Encapsulation>,
    /// In the order in which their rules are looked through.
    pub policies: Vec<String>,
    /// Whether frames to all and to groups reach all of its containers.
    pub broadcast: bool,
    /// Whether frames to MAC addresses that no container has do.
    pub flood_unknown_unicast: bool,
    /// Networks that its containers can reach, and whose containers can reach it.
    pub connected: BTreeSet<String>,
    /// Prefixes behind interfaces of it, by the names of these.
    pub routes: BTreeMap<IpNet, Vec<String>>,
    /// Route targets of routes that are taken from BGP; none without it.
    pub import: BTreeSet<Assigned>,
    /// Those that its routes carry.
    pub export: BTreeSet<Assigned>,
    /// Services whose flows are fat, of all its interfaces.
    pub fat_flows: BTreeSet<Service>,
}

impl Network {
    /// All addresses that are of this network.
    pub fn prefixes(&self) -> BTreeSet<IpNet> {
        self.subnets.iter().map(|subnet| subnet.prefix).chain(self.routes.keys().copied()).collect()
    }
}

/// IPv6 needs links that carry as much (RFC 8200, 5).
const SMALLEST_IPV6: u16 = 1280;
/// Hosts of IPv4 take as much (RFC 791, 3.1).
const SMALLEST_IPV4: u16 = 576;

impl Network {
    fn needs(&self) -> (u16, &'static str) {
        let ipv6 = self.subnets.iter().any(|subnet| subnet.prefix.addr().is_ipv6());
        if ipv6 { (SMALLEST_IPV6, "IPv6") } else { (SMALLEST_IPV4, "IPv4") }
    }

    /// The smallest underlay that carries its packets.
    pub fn smallest_mtu(&self, encapsulation: Encapsulation) -> u16 {
        self.needs().0 + encapsulation.overhead()
    }

    /// What is wrong with an underlay that does not carry packets of this network.
    pub fn too_small(&self, mtu: u16, encapsulation: Encapsulation, name: &str) -> Option<String> {
        let (needs, family) = self.needs();
        let (left, way) = (mtu.saturating_sub(encapsulation.overhead()), encapsulation.name());
        (left < needs).then(|| {
            format!("an MTU of {mtu} bytes leaves {left} for packets of network '{name}' in {way}, and {family} needs {needs}")
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    pub prefix: IpNet,
    pub gateway: IpAddr,
}

/// A container's interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub node: String,
    pub network: String,
    pub place: InterfaceLocation,
    pub addresses: BTreeSet<IpAddr>,
    /// That it may have, too, and may share with other interfaces.
    pub allowed_addresses: BTreeSet<IpAddr>,
    /// As others are told.
    pub mac: Mac,
    /// Whether the container may have any other MAC address, too, which is learned from its frames.
    pub any_mac: bool,
    /// Its MPLS label, which names it on its node.
    pub label: u32,
    /// Its own VXLAN network identifier on its node, by which others send to it in place of the network's.
    pub vni: Option<u32>,
    /// Names it on its node in route distinguishers of BGP.
    pub distinguisher: u16,
    pub security_groups: BTreeSet<String>,
    /// Flows that it may have at a time, 0 for no limit but the table's; without one it has a share of the table.
    pub most_flows: Option<u32>,
    /// The analyser that gets copies of its packets, by its name.
    pub mirror: Option<String>,
    /// Services whose flows are fat, beside those of the network.
    pub fat_flows: BTreeSet<Service>,
    /// Whether it may answer other containers as a DHCP server.
    pub dhcp_server: bool,
}

impl Interface {
    /// What there is to say of it, by its name, when its container has this MAC address: nothing where it may have it.
    pub fn foreign(&self, name: &str, mac: Mac) -> Option<String> {
        let says = self.mac;
        let what = format!(
            "interface '{name}' has MAC address {mac}, and the file says {says}: frames from {mac} are dropped"
        );
        (mac != says && !self.any_mac).then_some(what)
    }

    /// All addresses that it may have.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().chain(&self.allowed_addresses).copied()
    }
}

/// Where the kernel has an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterfaceLocation {
    /// The node's end of the veth pair, by its name.
    Node { device: String },
    /// The container's end, in a namespace of ip-netns(8).
    Namespace { name: String, device: String },
    /// The container's end, in a container of the machine's container engine.
    Container { name: String, device: String },
}

/// What interfaces with it may receive and send. What answers a packet that was let through is let through, too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityGroup {
    /// By which other nodes know it in routes of BGP.
    pub id: u32,
    /// What may come in; nothing, where there are none.
    pub inward: Vec<GroupRule>,
    /// What may go out; everything, where nothing is said of it.
    pub outward: Option<Vec<GroupRule>>,
}

/// What of all packets a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packets {
    /// Any, where there is none.
    pub protocol: Option<u8>,
    /// Destination ports, or types of ICMP; any of these.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// A rule that allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    pub packets: Packets,
    pub remote: Remote,
    pub log: bool,
}

/// Whom a container talks with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remote {
    Any,
    Prefix(IpNet),
    /// All interfaces of this security group, on all nodes.
    Group(String),
}

/// What networks may send each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkPolicy {
    /// The first that matches decides.
    pub rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub action: Action,
    pub packets: Packets,
    pub source: RuleEnd,
    pub destination: RuleEnd,
    /// Whether it is a rule for connections from the destination to the source, too.
    pub both_ways: bool,
    pub log: bool,
    /// The analyser that gets copies of the packets of its flows, by its name.
    pub mirror: Option<String>,
}

impl PolicyRule {
    /// Who opens connections to whom.
    pub fn orientations(&self) -> impl Iterator<Item = (&RuleEnd, &RuleEnd)> {
        let back = self.both_ways && self.source != self.destination;
        std::iter::once((&self.source, &self.destination)).chain(back.then_some((&self.destination, &self.source)))
    }
}

/// One end of what a policy's rule is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleEnd {
    Any,
    Network(String),
    Prefix(IpNet),
}

/// Whether a prefix is IPv4 in IPv6's clothes (RFC 4291, 2.5.5.2): the datapath's tables keep IPv4 addresses as those.
pub fn is_mapped(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(v6) if v6.prefix_len() >= 96 && v6.addr().to_ipv4_mapped().is_some())
}

/// There is nothing to do for a node that the file does not name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no node '{name}' in the settings: choose from {known}")]
pub struct UnknownNode {
    pub name: String,
    pub known: String,
}

impl Settings {
    /// Reads the text of `file`, which is only named. It cannot name a key's file.
    ///
    /// # Errors
    /// The first mistake, with its line and what to do about it.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let beside = |_: &str| Err(std::io::Error::other("other files are not read for a text alone"));
        read::settings(file, text, &beside)
    }

    /// # Errors
    /// When the file, or its key's, cannot be read, or the first mistake in it.
    pub fn load(path: &std::path::Path) -> Result<Self, FileError> {
        SettingsText::load(path)?.settings()
    }

    /// How packets of a network go from one node to another: the first of its preferences that both can do.
    pub fn encapsulation(&self, network: &Network, from: &Node, to: &Node) -> Option<Encapsulation> {
        let can = |way: &&Encapsulation| from.encapsulations.contains(way) && to.encapsulations.contains(way);
        network.encapsulation.iter().find(can).copied()
    }

    /// What names a network on a node; nothing where the node has no interface of it.
    pub fn network_on(&self, node: &str, network: &str) -> Option<NodeNetworkIds> {
        self.on_nodes.get(node)?.get(network).copied()
    }

    /// The MPLS label that frames to all of a network come to a node with, where it takes them so.
    pub fn label_to_all(&self, node_name: &str, network_name: &str) -> Option<u32> {
        let (node, network) = (self.nodes.get(node_name)?, self.networks.get(network_name)?);
        let is_mpls = |way: &&Encapsulation| **way != Encapsulation::Vxlan && node.encapsulations.contains(way);
        network.encapsulation.iter().find(is_mpls).filter(|_| network.broadcast)?;
        self.network_on(node_name, network_name).map(|named| named.label)
    }

    /// Whether two nodes tell each other of their interfaces by BGP; else this file does.
    pub fn by_bgp(&self, one: &str, other: &str) -> bool {
        [one, other].iter().all(|name| self.nodes.get(*name).is_some_and(|node| node.bgp))
    }

    /// # Errors
    /// When there is none of this name.
    pub fn node(&self, name: &str) -> Result<&Node, UnknownNode> {
        self.nodes.get(name).ok_or_else(|| {
            let known = self.nodes.keys().map(String::as_str);
            UnknownNode { name: name.to_owned(), known: known.collect::<Vec<_>>().join(", ") }
        })
    }

    /// Interfaces of a node, with their names.
    pub fn interfaces_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a String, &'a Interface)> {
        self.interfaces.iter().filter(move |(_, interface)| interface.node == node)
    }

    /// Networks that a node has a table of: those of its interfaces and those that these can reach, with whether it has
    /// interfaces of them.
    pub fn networks_of<'a>(&'a self, node: &'a str) -> BTreeMap<&'a String, bool> {
        let mut networks = BTreeMap::new();
        for (_, interface) in self.interfaces_of(node) {
            networks.insert(&interface.network, true);
            let network = self.networks.get(&interface.network);
            for connected in network.into_iter().flat_map(|network| &network.connected) {
                networks.entry(connected).or_insert(false);
            }
        }
        networks
    }
}
