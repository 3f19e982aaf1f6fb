//! What is built, as a value: nodes, the network namespaces in them, interfaces, wires, addresses, routes, limits, and the
//! CPUs on which nodes receive.
//!
//! A plan knows no path, and the builder ([`crate::namespaces`]) knows nothing but the plan. It names everything explicitly,
//! hardware addresses too, so that the part for one node can be built before any other node. Written as JSON and read again
//! it gives the same testbed.

mod draw;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::Offload;
use rig_sys::napi::Urgency;
use rig_sys::probe::Feature;
use serde::{Deserialize, Serialize};

pub use ipnet::IpNet;
pub use rig_wire::ethernet::Mac;

/// Bytes of the largest packet of an interface of which nothing else is said (RFC 894).
pub const DEFAULT_MTU: u32 = 1500;

/// A testbed, or a part that is added to one that stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub nodes: Vec<Node>,
    /// Virtual cables from node to node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wires: Vec<Wire>,
}

/// A machine of the testbed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub name: String,
    /// All work for the node is done on these.
    #[serde(default)]
    pub cpus: CpuSet,
    /// What carries packets here beside the kernel's own network stack, for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datapath: Option<String>,
    /// The node's own namespace first, then those of its containers.
    pub spaces: Vec<NamespacePlan>,
}

/// A network namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespacePlan {
    /// `node` or `node/container`.
    pub name: String,
    /// Set before there is any interface but `lo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<Sysctl>,
    /// Chosen by users, and set when all else is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chosen: Vec<Sysctl>,
    /// In the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Added one after the other, so that a gateway can be reached by a route before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<Neighbour>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sysctl {
    /// `net.ipv4.ip_forward`
    pub key: String,
    pub value: String,
}

/// An interface of a namespace, and all that is set on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    pub name: String,
    pub link: Link,
    /// The hardware address; without one the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Largest packet in bytes without the Ethernet header; without one that of the interface below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Transmit and receive queues, both ends of a pair alike.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub queues: u32,
    /// The bridge that it is a port of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Most that it sends, bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Offloads that have to be on or off.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub offloads: BTreeMap<Offload, bool>,
    /// What users choose besides, by the kernel's or ethtool's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub features: BTreeMap<String, bool>,
    /// Kind of the queueing discipline that it sends through; without one the kernel's default, or that of its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
    /// Proxy ARP, without delay, for addresses that the namespace has a route to by another interface.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxy_arp: bool,
    /// CPUs that process what each of its queues receives (receive packet steering, RPS). veth hands a packet to its peer on the CPU that
    /// sent it, so that without it the receiver's work is counted as the sender's. Threaded NAPI with pinned threads does not do:
    /// a sender with TSO goes past a veth's NAPI, and pinning needs root. The price is an inter-processor interrupt each time that the
    /// CPU is idle, several microseconds on virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<CpuSet>,
    /// Threads that process what it receives, one for each queue (threaded NAPI).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Threads>,
    /// Whether threads process what it receives, wherever the kernel runs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded: Option<bool>,
}

/// What an interface is made as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Link {
    /// An end of a [`Wire`], which says where the other one is.
    Wire,
    /// One end of a pair of virtual Ethernet interfaces inside a node; the other end is a [`Link::Far`].
    Veth { far: InterfaceRef },
    /// The other end of a pair.
    Far,
    /// A learning switch without spanning tree.
    Bridge,
    /// An interface with a hardware address of its own over one of the node's, in bridge mode.
    Macvlan { over: InterfaceRef },
    /// An Ethernet in UDP (RFC 7348). What it does not know where to send goes to all remotes.
    Vxlan {
        /// Network identifier, 24 bits.
        vni: u32,
        /// UDP port.
        port: u16,
        /// Where outer packets come from.
        local: IpAddr,
        /// The interface that carries them.
        underlay: String,
        remotes: Vec<IpAddr>,
    },
    /// An interface that the host has already, and that leads to other hosts.
    OfHost {
        /// As the host calls it.
        name: String,
        /// A macvlan interface over it, which leaves it to the host as it is. Otherwise it is taken into the namespace, and given back as
        /// it was.
        shared: bool,
    },
}

/// An interface of a namespace, by both names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceRef {
    pub space: String,
    pub interface: String,
}

/// A virtual cable between the namespaces of two nodes: both its ends are interfaces of kind [`Link::Wire`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    pub ends: [InterfaceRef; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// `0.0.0.0/0` and `::/0` are the default routes.
    pub to: IpNet,
    /// The router; without one, the destination is on the interface's link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// A permanent neighbour entry, so that no ARP or neighbour discovery is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    pub interface: String,
    pub address: IpAddr,
    pub mac: Mac,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// The CPUs of the queues' threads, in turn.
    pub cpus: Vec<u32>,
    #[serde(with = "AsUrgency")]
    pub urgency: Urgency,
}

/// How an [`Urgency`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Urgency", rename_all = "kebab-case")]
enum AsUrgency {
    Normal,
    RealTime(u8),
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_one(queues: &u32) -> bool {
    *queues == 1
}

impl Plan {
    /// The namespaces of all nodes.
    pub fn spaces(&self) -> impl Iterator<Item = &NamespacePlan> {
        self.nodes.iter().flat_map(|node| &node.spaces)
    }

    pub fn space(&self, name: &str) -> Option<&NamespacePlan> {
        self.spaces().find(|space| space.name == name)
    }

    pub fn interface(&self, at: &InterfaceRef) -> Option<&Interface> {
        self.space(&at.space)?.interface(&at.interface)
    }

    /// The hardware address of an interface, where the plan says it.
    pub fn mac(&self, space: &str, interface: &str) -> Option<Mac> {
        self.space(space)?.interface(interface)?.mac
    }

    /// Whether it uses interfaces that the host has.
    pub fn uses_host(&self) -> bool {
        self.spaces().flat_map(|space| &space.interfaces).any(|own| matches!(own.link, Link::OfHost { .. }))
    }

    /// What the machine has to have for it.
    pub fn features(&self) -> BTreeSet<Feature> {
        let mut features = BTreeSet::new();
        for space in self.spaces() {
            features.extend(
                space.sysctls.iter().filter(|sysctl| sysctl.key == IPV4_FORWARDING).map(|_| Feature::Forwarding),
            );
            for interface in &space.interfaces {
                features.extend(match interface.link {
                    Link::OfHost { shared: false, .. } => None,
                    Link::Wire | Link::Veth { .. } | Link::Far => Some(Feature::Veth),
                    Link::Bridge => Some(Feature::Bridge),
                    Link::Macvlan { .. } | Link::OfHost { shared: true, .. } => Some(Feature::Macvlan),
                    Link::Vxlan { .. } => Some(Feature::Vxlan),
                });
                let given = [
                    (interface.rate.is_some(), Feature::TokenBucket),
                    (!interface.offloads.is_empty() || !interface.features.is_empty(), Feature::Offloads),
                    (interface.steering.is_some(), Feature::ReceiveSteering),
                    (
                        interface.steering.is_some() || interface.threads.is_some() || interface.threaded.is_some(),
                        Feature::Sysfs,
                    ),
                    (interface.addresses.iter().any(|own| own.addr().is_ipv6()), Feature::Ipv6),
                ];
                features.extend(given.into_iter().filter(|(given, _)| *given).map(|(_, feature)| feature));
            }
        }
        features
    }
}

/// Makes a namespace route packets from one interface to another.
pub(crate) const IPV4_FORWARDING: &str = "net.ipv4.ip_forward";
pub(crate) const IPV6_FORWARDING: &str = "net.ipv6.conf.all.forwarding";

impl NamespacePlan {
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Whether packets are routed from one interface to another.
    pub fn forwards(&self) -> bool {
        let forwarding = |sysctl: &Sysctl| [IPV4_FORWARDING, IPV6_FORWARDING].contains(&sysctl.key.as_str());
        self.sysctls.iter().any(|sysctl| forwarding(sysctl) && sysctl.value == "1")
    }
}

impl Interface {
    pub fn new(name: impl Into<String>, link: Link) -> Self {
        Self {
            name: name.into(),
            link,
            mac: None,
            mtu: None,
            queues: 1,
            bridge: None,
            rate: None,
            offloads: BTreeMap::new(),
            features: BTreeMap::new(),
            qdisc: None,
            addresses: Vec::new(),
            proxy_arp: false,
            steering: None,
            threads: None,
            threaded: None,
        }
    }
}

impl Link {
    /// The kernel does not let a macvlan interface's offloads be switched: what it sends is segmented as it enters the
    /// interface below, before the wire.
    pub fn has_own_offloads(&self) -> bool {
        !matches!(self, Self::Macvlan { .. } | Self::OfHost { shared: true, .. })
    }

    /// Whether the interface becomes operational by its own: a bridge does with its ports, a tunnel never says so.
    pub fn has_carrier(&self) -> bool {
        matches!(self, Self::Wire | Self::Veth { .. } | Self::Far | Self::Macvlan { .. } | Self::OfHost { .. })
    }

    /// Whether it leads to other nodes.
    pub fn is_outward(&self) -> bool {
        matches!(self, Self::Wire | Self::OfHost { .. })
    }

    /// Whether netrig gives it a hardware address; a bridge takes that of a port.
    pub fn has_own_mac(&self) -> bool {
        !matches!(self, Self::Bridge)
    }
}

impl InterfaceRef {
    pub fn new(space: impl Into<String>, interface: impl Into<String>) -> Self {
        Self { space: space.into(), interface: interface.into() }
    }
}

impl Route {
    pub fn via(to: impl Into<IpNet>, router: IpAddr) -> Self {
        Self { to: to.into(), via: Some(router), interface: None }
    }

    /// To what is on the link of `interface`.
    pub fn on_link(to: impl Into<IpNet>, interface: impl Into<String>) -> Self {
        Self { to: to.into(), via: None, interface: Some(interface.into()) }
    }
}

impl Sysctl {
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

#[cfg(test)]
mod tests;
