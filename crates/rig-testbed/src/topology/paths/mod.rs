//! The paths: how two endpoints are joined. Each is one module here with a type that implements [`Definition`], and one
//! line in [`REGISTRY`].

mod balancer;
mod bridge;
mod cni;
mod colocated;
mod direct;
mod docker;
mod etun;
mod haproxy;
mod ipvs;
mod macvlan;
mod nftables;
mod plan_builder;
mod raw;
mod requirements;
mod routed;
mod three;
mod veth;
mod vrouter;
mod vxlan;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub(crate) use plan_builder::PlanBuilder;
pub(crate) use requirements::TopologyRequest;

use crate::plan::IpNet;
use crate::topology::{Endpoint, Family, NextHop, Topology, TopologyError};

/// All paths, in the order in which they are listed.
const REGISTRY: &[&dyn Definition] = &[
    &raw::Raw,
    &etun::Etun,
    &bridge::Bridge,
    &macvlan::Macvlan,
    &colocated::Colocated,
    &veth::Veth,
    &cni::Cni,
    &docker::Docker,
    &vxlan::Vxlan,
    &vrouter::Vrouter,
    &routed::Routed,
    &direct::Direct,
    &balancer::Balancer,
    &nftables::Nftables,
    &haproxy::Haproxy,
    &ipvs::Ipvs,
];

/// The nodes that a path is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One node.
    One,
    /// One node, or two with a wire between them.
    OneOrTwo,
    /// Two nodes with a wire between them.
    Two,
    /// One node, or several with a wire between each two of them.
    Several,
    /// Client, DUT and server, with a wire on both sides of the DUT, in which a datapath carries packets.
    Dut,
    /// Client and server of such a testbed, whose DUT is left out: they share their CPUs, as they do with it.
    NoDut,
}

/// What the ends of load may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoints {
    /// The nodes' own network stacks.
    Nodes,
    /// Containers of the nodes.
    Containers,
    /// Containers; those of one node may also talk to the other node itself, so that one end alone pays for the path.
    ContainersOrNode,
}

/// What XDP programs in the drivers of the ends' interfaces see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpHook {
    /// All frames.
    Present,
    /// The driver has none.
    Absent,
    /// The driver has one, which frames pass by; the kernel's generic hook sees them.
    PassedBy,
}

/// What differs from path to path. An implementation has no state: it says how things are.
pub(crate) trait Definition: Sync {
    /// As suites write it.
    fn name(&self) -> &'static str;

    fn layout(&self) -> Layout;

    fn endpoints(&self) -> Endpoints;

    /// What is built. [`PlanBuilder::new`] has made the nodes and their namespaces, with nothing in them.
    fn plan(&self, draft: &mut PlanBuilder<'_>);

    /// What is added so that the kernels on the way know the addresses of endpoints that make their packets themselves
    /// ([`Topology::pool`]). Where both ends are on one link there is nothing to route.
    fn pools(&self, _draft: &mut PlanBuilder<'_>) {}

    /// Whether the path is possible in a testbed like this.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn requirements(&self, asked: &TopologyRequest<'_>) -> Result<(), TopologyError> {
        asked.check()
    }

    /// Bytes that the path adds to each packet on the wire.
    fn overhead(&self, _family: Family) -> u32 {
        0
    }

    /// The address of a container, with its subnet.
    fn container_address(&self, family: Family, node: usize, container: usize) -> IpNet {
        one_subnet(family, node, container)
    }

    /// Whether a node that stands beside another's containers is in their subnet.
    fn nodes_are_beside_containers(&self) -> bool {
        false
    }

    /// The next hop of what the endpoint, a node or one of its containers, sends to `peer` on another node.
    fn next_hop(&self, topology: &Topology, (node, _): (usize, Option<usize>), peer: &Endpoint) -> NextHop {
        three::next_hop(topology, node).unwrap_or_else(|| NextHop::Peer(peer.clone()))
    }

    /// What XDP programs in the drivers of the ends' interfaces see.
    fn xdp_hook(&self) -> XdpHook {
        XdpHook::Present
    }

    /// The datapath without which its nodes carry nothing: of the DUT, where there is one, of all nodes otherwise.
    fn datapath(&self) -> Option<&'static str> {
        (self.layout() == Layout::Dut).then(|| self.name())
    }

    /// Whether its datapath gives containers their interfaces and addresses, which are not known before it is at work.
    fn addresses_are_given(&self) -> bool {
        false
    }

    /// Whether packets to servers come from addresses of the DUT ([`Topology::local_pool`]), not from their clients'.
    fn has_local_addresses(&self) -> bool {
        self.layout() == Layout::Dut
    }
}

/// A path, by its name.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(&'static dyn Definition);

impl Path {
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        REGISTRY.iter().map(|definition| Self(*definition))
    }

    /// The paths that join two nodes, or containers of one, without a device under test, and that netrig itself lays out to the last
    /// address.
    pub fn plain() -> impl Iterator<Item = Self> + Clone {
        Self::all().filter(|path| !path.is_of_three() && !path.addresses_are_given())
    }

    /// What a message names where there are to be more than two nodes, none of which is between the others.
    pub(crate) fn of_many() -> String {
        requirements::names(|path| path.layout() == Layout::Several)
    }

    pub fn name(self) -> &'static str {
        self.0.name()
    }

    pub fn layout(self) -> Layout {
        self.0.layout()
    }

    pub fn endpoints(self) -> Endpoints {
        self.0.endpoints()
    }

    /// Whether a node stands between client and server, which connect to addresses of it.
    pub fn has_dut(self) -> bool {
        self.layout() == Layout::Dut
    }

    /// Whether the testbed is one of client, DUT and server, also where the DUT is left out.
    pub fn is_of_three(self) -> bool {
        matches!(self.layout(), Layout::Dut | Layout::NoDut)
    }

    /// Whether there is nothing but a wire between the ends of load.
    pub fn is_bare(self) -> bool {
        self.endpoints() == Endpoints::Nodes && !self.has_dut()
    }

    /// The path with nothing but a wire between the ends, in a testbed of as many nodes.
    pub fn without_anything(self) -> Self {
        Self::all().find(|path| path.is_bare() && path.is_of_three() == self.is_of_three()).unwrap_or(self)
    }

    /// Bytes that the path adds to each packet on the wire.
    pub fn overhead(self, family: Family) -> u32 {
        self.0.overhead(family)
    }

    /// What XDP programs in the drivers of the ends' interfaces see.
    pub fn xdp_hook(self) -> XdpHook {
        self.0.xdp_hook()
    }

    /// The datapath without which its nodes carry nothing: of the DUT, where there is one, of all nodes otherwise.
    pub fn datapath(self) -> Option<&'static str> {
        self.0.datapath()
    }

    /// Whether its datapath gives containers their interfaces and addresses, which are not known before it is at work.
    pub fn addresses_are_given(self) -> bool {
        self.0.addresses_are_given()
    }

    /// Whether packets to servers come from addresses of the DUT.
    pub fn has_local_addresses(self) -> bool {
        self.0.has_local_addresses()
    }

    pub(crate) fn definition(self) -> &'static dyn Definition {
        self.0
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Path {}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").field(&self.name()).finish()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Path {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all().find(|path| path.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            TopologyError::new(format!("unknown path '{text}'"), format!("paths are {}", names.join(", ")))
        })
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.name().to_owned()
    }
}

impl TryFrom<String> for Path {
    type Error = TopologyError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

/// Containers of all nodes in one subnet, in which nodes may be too.
fn one_subnet(family: Family, node: usize, container: usize) -> IpNet {
    use crate::topology::address::{subnet, v4, v6};
    let number = 3 + container as u8;
    let (address, prefix): (IpAddr, u8) = match family {
        Family::Ipv4 => (v4(172, 16, 1 + node as u8, number), 16),
        Family::Ipv6 => (v6(0, 1 + node as u16, number.into()), 64),
    };
    subnet(address, prefix)
}

#[cfg(test)]
pub(crate) mod tests;
