//! What a testbed consists of, as a value: validated once, then built or drawn as often as wanted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod lanes;

pub use lanes::{client_link, server_link, uplink};

/// How two endpoints are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The nodes' own stacks over the wire: no container.
    Raw,
    /// Each container has a veth pair into its node, and the node routes.
    Etun,
    /// Each container has a veth pair into its node's bridge, and the wire is a port of that bridge.
    Bridge,
    /// Each container has a macvlan interface on its node's wire.
    Macvlan,
    /// Two containers of one node, joined by the node's bridge.
    Colocated,
    /// As bridge, but the bridges are joined by VXLAN over the wire.
    Vxlan,
    /// Client and server of the paths that follow, with nothing between them.
    Direct,
    /// Between client and server netrig's own balancer, as XDP programs.
    Balancer,
    /// Between client and server nftables, which translates both addresses of each packet.
    Nftables,
    /// Between client and server HAProxy, which ends each connection and makes another.
    Haproxy,
    /// Between client and server the kernel's IP Virtual Server.
    Ipvs,
}

impl Path {
    pub const ALL: [Self; 11] = [
        Self::Raw,
        Self::Etun,
        Self::Bridge,
        Self::Macvlan,
        Self::Colocated,
        Self::Vxlan,
        Self::Direct,
        Self::Balancer,
        Self::Nftables,
        Self::Haproxy,
        Self::Ipvs,
    ];
    /// Those that join two nodes, or containers of one, without anything that balances.
    pub const PLAIN: [Self; 6] = [Self::Raw, Self::Etun, Self::Bridge, Self::Macvlan, Self::Colocated, Self::Vxlan];

    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Etun => "etun",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Colocated => "colocated",
            Self::Vxlan => "vxlan",
            Self::Direct => "direct",
            Self::Balancer => "balancer",
            Self::Nftables => "nftables",
            Self::Haproxy => "haproxy",
            Self::Ipvs => "ipvs",
        }
    }

    /// Whether a node stands between client and server, which connect to addresses of it.
    pub fn has_middle(self) -> bool {
        matches!(self, Self::Balancer | Self::Nftables | Self::Haproxy | Self::Ipvs)
    }

    /// Whether the testbed is one of client, middle and server, of which `direct` leaves the middle out: client and
    /// server share their CPUs then, in every scenario the same.
    pub fn is_of_three(self) -> bool {
        self.has_middle() || self == Self::Direct
    }

    /// Bytes that the path adds to each packet on the wire.
    pub fn overhead(self, family: Family) -> u32 {
        match self {
            // Outer IP, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
            Self::Vxlan => family.header() + 30,
            _ => 0,
        }
    }

    /// Whether one end of the path may be a node without containers, so that the other end alone pays for the path.
    fn joins_nodes(self) -> bool {
        matches!(self, Self::Etun | Self::Bridge | Self::Macvlan)
    }
}

/// The version of IP that a testbed speaks, outside and inside of tunnels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    #[default]
    Ipv4,
    Ipv6,
}

impl Family {
    /// Bytes of the IP header.
    fn header(self) -> u32 {
        match self {
            Self::Ipv4 => 20,
            Self::Ipv6 => 40,
        }
    }

    /// The smallest MTU of an endpoint: what every host has to reassemble (RFC 1122, 3.3.2) and, of IPv6, what every
    /// link has to carry (RFC 8200, 5). An interface with less has no IPv6.
    fn mtu_min(self) -> u32 {
        match self {
            Self::Ipv4 => *WireOptions::MTU.start(),
            Self::Ipv6 => 1280,
        }
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
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or_else(|| {
            TopologyError::new(
                format!("unknown path '{text}'"),
                format!("paths are {}", Self::ALL.map(Self::name).join(", ")),
            )
        })
    }
}

/// Where load comes from or goes to: a node, or a container in it. Written `node` or `node/container`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    pub node: String,
    pub container: Option<String>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.container {
            None => f.write_str(&self.node),
            Some(container) => write!(f, "{}/{container}", self.node),
        }
    }
}

impl FromStr for Endpoint {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, container) = match text.split_once('/') {
            None => (text, None),
            Some((node, container)) => (node, Some(container)),
        };
        for name in std::iter::once(node).chain(container) {
            check_name(name)?;
        }
        Ok(Self { node: node.to_owned(), container: container.map(str::to_owned) })
    }
}

/// Names become parts of messages, file names and addresses of endpoints, so they are kept simple.
pub fn check_name(name: &str) -> Result<(), TopologyError> {
    let good = (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && name.as_bytes()[0].is_ascii_alphanumeric();
    if good {
        return Ok(());
    }
    Err(TopologyError::new(
        format!("'{name}' is not a name"),
        "use 1 to 32 letters, digits, '-' or '_', beginning with a letter or digit",
    ))
}

/// The properties of a wire between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireOptions {
    /// Bits per second that either end may send. `None`: as fast as the CPUs are.
    pub rate: Option<u64>,
    /// Largest packet in bytes without the Ethernet header.
    pub mtu: u32,
    /// Whether packets of up to 64 KiB may travel unsegmented (TSO and GSO at the sender, GRO at the receiver). When
    /// off, every packet is one segment from the sender's socket to the receiver's, on each interface of the path.
    pub segmentation_offload: bool,
    /// Transmit and receive queues of each end.
    pub queues: u32,
}

impl Default for WireOptions {
    fn default() -> Self {
        Self { rate: None, mtu: 1500, segmentation_offload: true, queues: 1 }
    }
}

impl WireOptions {
    pub const MTU: std::ops::RangeInclusive<u32> = 576..=65_535;
    pub const QUEUES: std::ops::RangeInclusive<u32> = 1..=64;
    /// A rate below this would need minutes to carry one message.
    pub const RATE_MIN: u64 = 100_000;

    fn check(&self) -> Result<(), TopologyError> {
        if !Self::MTU.contains(&self.mtu) {
            let hint = format!("choose {} to {} bytes", Self::MTU.start(), Self::MTU.end());
            return Err(TopologyError::new(format!("an MTU of {} bytes is impossible", self.mtu), hint));
        }
        if !Self::QUEUES.contains(&self.queues) {
            let hint = format!("choose {} to {}", Self::QUEUES.start(), Self::QUEUES.end());
            return Err(TopologyError::new(format!("{} queues are impossible", self.queues), hint));
        }
        if self.rate.is_some_and(|rate| rate < Self::RATE_MIN) {
            return Err(TopologyError::new("the wire's rate is too low", "choose at least 100kbit, or leave rate out"));
        }
        Ok(())
    }
}

/// A node: a machine of the testbed, made of a namespace and the CPUs it owns, with containers in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub containers: Vec<String>,
}

/// A validated testbed: one or two nodes, a wire between two, and a path that joins the endpoints; or client, middle and
/// server in this order, with a wire on both sides of the middle. What path `direct` leaves out is no node of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    wire: Option<WireOptions>,
    path: Path,
    family: Family,
    lanes: u32,
}

/// An impossible topology, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {hint}")]
pub struct TopologyError {
    pub what: String,
    pub hint: String,
}

impl TopologyError {
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

impl Topology {
    /// Containers that one node may have.
    pub const CONTAINERS_MAX: usize = 250;

    /// The testbed in which `endpoints` are joined by `path`: containers are those that the endpoints name.
    pub fn new(
        node_names: &[String],
        wire: Option<WireOptions>,
        path: Path,
        endpoints: &[Endpoint],
    ) -> Result<Self, TopologyError> {
        let mut nodes = collect_nodes(node_names, endpoints)?;
        if let Some(wire) = wire {
            wire.check()?;
        }
        if path.is_of_three() {
            check_three(&nodes, wire, path, endpoints)?;
            if path == Path::Direct {
                nodes.remove(MIDDLE);
            }
            return Self { nodes, wire, path, family: Family::Ipv4, lanes: 1 }.with_family(Family::Ipv4);
        }
        match (nodes.len(), wire) {
            (1, Some(_)) => {
                return Err(TopologyError::new("a wire needs two nodes", "name a second node or remove the wire"));
            }
            (2, None) => return Err(TopologyError::new("two nodes without a wire", "give the testbed a wire")),
            (1 | 2, _) => {}
            (3, _) => {
                let hint = "use one or two nodes, or path direct, balancer, nftables, haproxy or ipvs";
                return Err(TopologyError::new(format!("path {path} between three nodes"), hint));
            }
            (n, _) => {
                return Err(TopologyError::new(format!("a testbed of {n} nodes"), "use one, two or three nodes"));
            }
        }
        let in_container = endpoints.iter().filter(|e| e.container.is_some()).count();
        match path {
            Path::Raw if in_container > 0 => {
                let hint = "name nodes only, or choose etun, bridge, macvlan or vxlan";
                return Err(TopologyError::new("path raw joins nodes, not containers", hint));
            }
            Path::Raw if nodes.len() == 1 => {
                return Err(TopologyError::new("path raw needs two nodes", "use a testbed with two nodes"));
            }
            Path::Raw => {}
            _ if in_container == 0 || in_container < endpoints.len() && !path.joins_nodes() => {
                let hint = "write endpoints as node/container, or choose path raw";
                return Err(TopologyError::new(format!("path {path} joins containers, not nodes"), hint));
            }
            Path::Colocated if nodes.len() > 1 => {
                let hint = "use a testbed with one node, or choose another path";
                return Err(TopologyError::new("path colocated joins containers of one node", hint));
            }
            Path::Vxlan | Path::Macvlan if nodes.len() == 1 => {
                let hint = "use a testbed with two nodes, or choose etun, bridge or colocated";
                return Err(TopologyError::new(format!("path {path} needs a wire"), hint));
            }
            _ => {}
        }
        let has_containers = |name: &str| nodes.iter().any(|node| node.name == name && !node.containers.is_empty());
        if let Some(both) = endpoints.iter().find(|e| e.container.is_none() && has_containers(&e.node)) {
            let what = format!("endpoint {both} is a node with containers");
            return Err(TopologyError::new(what, "put all its endpoints into containers, or none"));
        }
        Self { nodes, wire, path, family: Family::Ipv4, lanes: 1 }.with_family(Family::Ipv4)
    }

    /// The same testbed with addresses of `family`; [`Self::new`] makes one of IPv4.
    ///
    /// # Errors
    /// When the wire's MTU leaves too little for it.
    pub fn with_family(self, family: Family) -> Result<Self, TopologyError> {
        let Self { path, wire, .. } = self;
        let least = family.mtu_min() + path.overhead(family);
        if let Some(wire) = wire.filter(|wire| wire.mtu < least) {
            let hint = match (family, path.overhead(family)) {
                (_, 0) => format!("choose at least {least} bytes, the least that IPv6 works with"),
                (Family::Ipv4, overhead) => format!("path {path} takes {overhead} bytes of each packet"),
                (Family::Ipv6, overhead) => {
                    format!("choose at least {least} bytes: IPv6 needs 1280, path {path} takes {overhead} more")
                }
            };
            return Err(TopologyError::new(format!("the wire's MTU of {} is too small", wire.mtu), hint));
        }
        Ok(Self { family, ..self })
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn wire(&self) -> Option<WireOptions> {
        self.wire
    }

    pub fn path(&self) -> Path {
        self.path
    }

    /// Whether packets larger than a segment may travel; without a wire they may.
    pub fn segmentation_offload(&self) -> bool {
        self.wire.is_none_or(|wire| wire.segmentation_offload)
    }

    pub fn family(&self) -> Family {
        self.family
    }

    /// MTU of the endpoints' interfaces.
    pub fn endpoint_mtu(&self) -> u32 {
        self.wire.unwrap_or_default().mtu - self.path.overhead(self.family)
    }

    /// The node between client and server, on the paths that have one.
    pub fn middle(&self) -> Option<usize> {
        self.path.has_middle().then_some(MIDDLE)
    }

    /// The address of a node on the wire, and the length of its subnet's prefix; of the middle, that on the client's
    /// wire.
    pub fn node_address(&self, node: usize) -> (IpAddr, u8) {
        let host = 11 + node as u8;
        if self.path.has_middle() && node > MIDDLE {
            return self.on_servers_wire(host);
        }
        match self.family {
            // A node that stands beside containers on one wire is in their subnet.
            Family::Ipv4 if matches!(self.path, Path::Bridge | Path::Macvlan) => (v4(172, 16, 0, host), 16),
            Family::Ipv4 => (v4(172, 16, 0, host), 24),
            // Written, the last group looks as the host does in IPv4.
            Family::Ipv6 => (v6(0, 0, 0x11 + node as u16), 64),
        }
    }

    /// The middle's address on the server's wire, and the length of its subnet's prefix.
    pub fn middle_address(&self) -> (IpAddr, u8) {
        self.on_servers_wire(11 + MIDDLE as u8)
    }

    fn on_servers_wire(&self, host: u8) -> (IpAddr, u8) {
        match self.family {
            Family::Ipv4 => (v4(172, 16, 1, host), 24),
            Family::Ipv6 => (v6(1, 0, u16::from(host - 11) + 0x11), 64),
        }
    }

    /// Addresses of the middle that clients connect to. No interface has them unless something there listens to them;
    /// the client's packets reach the middle as those of any router do.
    pub fn virtual_pool(&self) -> Pool {
        self.pool_of(0, MIDDLES_POOL)
    }

    /// Addresses of the middle that its packets to servers may come from.
    pub fn local_pool(&self) -> Pool {
        self.pool_of(1, MIDDLES_POOL)
    }

    /// The address of a container, and the length of its subnet's prefix.
    pub fn container_address(&self, node: usize, container: usize) -> (IpAddr, u8) {
        let (node, number) = (node as u8, container as u8);
        let (wide_node, wide_number) = (u16::from(node), u16::from(number));
        match (self.family, self.path) {
            (Family::Ipv4, Path::Etun) => {
                let [high, low] = (wide_number * 4 + 2).to_be_bytes();
                (v4(10, 1 + node, high, low), 30)
            }
            (Family::Ipv4, Path::Vxlan) => (v4(10, 0, 1 + node, 3 + number), 16),
            (Family::Ipv4, _) => (v4(172, 16, 1 + node, 3 + number), 16),
            (Family::Ipv6, Path::Etun) => (v6((1 + wide_node) << 8 | wide_number, 0, 2), 64),
            (Family::Ipv6, Path::Vxlan) => (v6(0xff, 1 + wide_node, 3 + wide_number), 64),
            (Family::Ipv6, _) => (v6(0, 1 + wide_node, 3 + wide_number), 64),
        }
    }

    /// Path etun: the node's address on its link to a container, the first of that subnet.
    pub fn gateway_address(&self, node: usize, container: usize) -> IpAddr {
        match self.container_address(node, container).0 {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() - 1).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() - 1).into(),
        }
    }

    /// Path etun: the subnet that all links between a node and its containers are in, so that other nodes need one
    /// route, and the length of its prefix.
    pub fn containers_subnet(&self, node: usize) -> (IpAddr, u8) {
        match self.family {
            Family::Ipv4 => (v4(10, 1 + node as u8, 0, 0), 16),
            Family::Ipv6 => (v6((1 + node as u16) << 8, 0, 0), 56),
        }
    }

    /// The pool of addresses of an endpoint that makes its packets itself: none of them is the kernel's. Pools are of
    /// 198.18.0.0/15 (RFC 2544, C.2.2) and 2001:2::/48 (RFC 5180, 8), which are set apart for such tests.
    pub fn pool(&self, endpoint: &Endpoint) -> Option<Pool> {
        let (node, container) = self.place_of(endpoint)?;
        let side = if self.path.has_middle() { node / 2 } else { node };
        Some(self.pool_of(side as u8, container.unwrap_or(0) as u8))
    }

    fn pool_of(&self, side: u8, number: u8) -> Pool {
        Pool(match self.family {
            Family::Ipv4 => v4(198, 18 + side, number, 0),
            Family::Ipv6 => Ipv6Addr::new(0x2001, 2, 0, u16::from_be_bytes([1 + side, number]), 0, 0, 0, 0).into(),
        })
    }

    /// The subnet that all pools of a node are in, and the length of its prefix.
    pub fn pools_subnet(&self, node: usize) -> (IpAddr, u8) {
        let node = node as u8;
        match self.family {
            Family::Ipv4 => (v4(198, 18 + node, 0, 0), 16),
            Family::Ipv6 => (Ipv6Addr::new(0x2001, 2, 0, u16::from_be_bytes([1 + node, 0]), 0, 0, 0, 0).into(), 56),
        }
    }

    /// Who takes what `endpoint` sends to `peer`.
    pub fn next_hop(&self, endpoint: &Endpoint, peer: &Endpoint) -> Option<NextHop> {
        let (node, container) = self.place_of(endpoint)?;
        Some(match (self.path, container) {
            (Path::Etun, Some(container)) => NextHop::Router(self.gateway_address(node, container)),
            // A node without containers: the other one routes to its own.
            (Path::Etun, None) => NextHop::Router(self.node_address(1 - node).0),
            (path, _) if path.has_middle() && node < MIDDLE => NextHop::Router(self.node_address(MIDDLE).0),
            (path, _) if path.has_middle() => NextHop::Router(self.middle_address().0),
            _ => NextHop::Peer(peer.clone()),
        })
    }

    /// Its node, and its container there.
    fn place_of(&self, endpoint: &Endpoint) -> Option<(usize, Option<usize>)> {
        let node = self.nodes.iter().position(|n| n.name == endpoint.node)?;
        let Some(name) = &endpoint.container else { return Some((node, None)) };
        Some((node, Some(self.nodes[node].containers.iter().position(|c| c == name)?)))
    }

    /// The address at which load reaches `endpoint`.
    pub fn address(&self, endpoint: &Endpoint) -> Option<IpAddr> {
        match self.place_of(endpoint)? {
            (node, None) => Some(self.node_address(node).0),
            (node, Some(container)) => Some(self.container_address(node, container).0),
        }
    }
}

/// The addresses of an endpoint that makes its packets itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool(IpAddr);

impl Pool {
    /// Addresses beside the port's own.
    pub const SIZE: u32 = 253;

    /// The first address; the others follow.
    pub fn first(self) -> IpAddr {
        self.at(1)
    }

    /// The port's own address, which asks for the router.
    pub fn port(self) -> IpAddr {
        self.at(Self::SIZE + 1)
    }

    /// The first `count` addresses.
    pub fn addresses(self, count: u32) -> impl Iterator<Item = IpAddr> {
        (1..=count.min(Self::SIZE)).map(move |host| self.at(host))
    }

    /// The subnet and the length of its prefix.
    pub fn subnet(self) -> (IpAddr, u8) {
        (self.0, if self.0.is_ipv4() { 24 } else { 64 })
    }

    fn at(self, host: u32) -> IpAddr {
        match self.0 {
            IpAddr::V4(subnet) => Ipv4Addr::from_bits(subnet.to_bits() + host).into(),
            IpAddr::V6(subnet) => Ipv6Addr::from_bits(subnet.to_bits() + u128::from(host)).into(),
        }
    }
}

/// Who takes the packets of an endpoint that makes them itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHop {
    /// The other end, on the same link.
    Peer(Endpoint),
    /// A kernel that routes.
    Router(IpAddr),
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    Ipv4Addr::new(a, b, c, d).into()
}

/// An address of fd72:6967::/48, which RFC 4193 leaves to local use; the global ID spells "rig".
fn v6(subnet: u16, high: u16, low: u16) -> IpAddr {
    Ipv6Addr::new(0xfd72, 0x6967, 0, subnet, 0, 0, high, low).into()
}

/// The middle among client, middle and server.
pub const MIDDLE: usize = 1;
/// The middle's pools stand beside those of the ends' first containers.
const MIDDLES_POOL: u8 = 1;

fn check_three(
    nodes: &[Node],
    wire: Option<WireOptions>,
    path: Path,
    endpoints: &[Endpoint],
) -> Result<(), TopologyError> {
    let [client, middle, server] = nodes else {
        let hint = "name client, middle and server, in this order: nodes = [\"client\", \"balancer\", \"server\"]";
        return Err(TopologyError::new(format!("path {path} in a testbed of {} nodes", nodes.len()), hint));
    };
    let Some(wire) = wire else {
        return Err(TopologyError::new("three nodes without a wire", "give the testbed a wire: it is laid twice"));
    };
    if !wire.segmentation_offload {
        let what = format!("path {path} without segmentation offload");
        let hint = "its nodes receive by NAPI, for which GRO has to be on: remove segmentation_offload";
        return Err(TopologyError::new(what, hint));
    }
    if let Some(container) = endpoints.iter().find(|endpoint| endpoint.container.is_some()) {
        let what = format!("path {path} joins nodes, and {container} is a container");
        return Err(TopologyError::new(what, format!("load goes from {} to {}", client.name, server.name)));
    }
    if endpoints.iter().any(|endpoint| endpoint.node == middle.name) {
        let what = format!("{} stands between the ends of path {path}", middle.name);
        return Err(TopologyError::new(what, format!("load goes from {} to {}", client.name, server.name)));
    }
    match endpoints {
        [from, ..] if from.node != client.name => {
            let what = format!("load from {from} over path {path}, whose client is {}", client.name);
            Err(TopologyError::new(what, format!("write from = \"{}\", to = \"{}\"", client.name, server.name)))
        }
        _ => Ok(()),
    }
}

fn collect_nodes(names: &[String], endpoints: &[Endpoint]) -> Result<Vec<Node>, TopologyError> {
    let mut seen = BTreeSet::new();
    let mut nodes = Vec::new();
    for name in names {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(TopologyError::new(format!("node '{name}' is named twice"), "give each node its own name"));
        }
        nodes.push(Node { name: name.clone(), containers: Vec::new() });
    }
    for endpoint in endpoints {
        let Some(node) = nodes.iter_mut().find(|node| node.name == endpoint.node) else {
            let hint = format!("the testbed's nodes are {}", names.join(", "));
            return Err(TopologyError::new(format!("endpoint {endpoint} names an unknown node"), hint));
        };
        let Some(container) = &endpoint.container else { continue };
        if !node.containers.contains(container) {
            node.containers.push(container.clone());
        }
        if node.containers.len() > Topology::CONTAINERS_MAX {
            let hint = format!("use at most {}", Topology::CONTAINERS_MAX);
            return Err(TopologyError::new(format!("too many containers in node {}", node.name), hint));
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(nodes: &[&str], wire: bool, path: Path, endpoints: &[&str]) -> Result<Topology, TopologyError> {
        let names: Vec<String> = nodes.iter().map(|&n| n.to_owned()).collect();
        let endpoints: Vec<Endpoint> = endpoints.iter().map(|e| e.parse().unwrap()).collect();
        Topology::new(&names, wire.then(WireOptions::default), path, &endpoints)
    }

    #[test]
    fn impossible_topologies_are_refused_with_a_next_step() {
        let refused = |nodes: &[&str], wire, path, endpoints: &[&str], expected: &str| {
            let error = topology(nodes, wire, path, endpoints).unwrap_err();
            assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
            assert!(!error.hint.is_empty());
        };
        refused(&["a", "b"], true, Path::Raw, &["a/x", "b"], "not containers");
        refused(&["a"], false, Path::Raw, &["a"], "needs two nodes");
        refused(&["a", "b"], true, Path::Bridge, &["a", "b"], "not nodes");
        refused(&["a", "b"], true, Path::Colocated, &["a/x", "a/y"], "one node");
        refused(&["a"], false, Path::Vxlan, &["a/x", "a/y"], "needs a wire");
        refused(&["a"], true, Path::Bridge, &["a/x", "a/y"], "two nodes");
        refused(&["a", "b"], false, Path::Bridge, &["a/x", "b/y"], "without a wire");
        refused(&["a", "a"], true, Path::Raw, &["a", "a"], "named twice");
        refused(&["a", "b"], true, Path::Bridge, &["a/x", "c/y"], "unknown node");
        refused(&["a", "b"], true, Path::Vxlan, &["a/x", "b"], "not nodes");
        refused(&["a", "b"], true, Path::Etun, &["a/x", "a", "b/y", "b"], "endpoint a is a node with containers");
    }

    #[test]
    fn one_end_of_a_path_may_be_a_node_without_containers() {
        for path in [Path::Etun, Path::Bridge, Path::Macvlan] {
            for family in [Family::Ipv4, Family::Ipv6] {
                let topology = topology(&["a", "b"], true, path, &["a/x", "b"]).unwrap().with_family(family).unwrap();
                let node = topology.address(&"b".parse().unwrap()).unwrap();
                let container = topology.address(&"a/x".parse().unwrap()).unwrap();
                assert_ne!(node, container, "{path}");
            }
        }
    }

    #[test]
    fn a_wire_is_large_enough_for_what_the_path_and_the_family_need() {
        let least = |path, family, mtu| {
            let ends = if path == Path::Raw { ["a", "b"] } else { ["a/x", "b/y"] };
            let ends = ends.map(|end| end.parse().unwrap());
            let wire = WireOptions { mtu, ..Default::default() };
            Topology::new(&["a".into(), "b".into()], Some(wire), path, &ends)?.with_family(family)
        };
        for (path, family, mtu) in [
            (Path::Raw, Family::Ipv4, 576),
            (Path::Vxlan, Family::Ipv4, 626),
            (Path::Raw, Family::Ipv6, 1280),
            (Path::Bridge, Family::Ipv6, 1280),
            (Path::Vxlan, Family::Ipv6, 1350),
        ] {
            assert_eq!(least(path, family, mtu).unwrap().endpoint_mtu(), family.mtu_min(), "{path} {family:?}");
            let error = least(path, family, mtu - 1).unwrap_err();
            assert!(error.to_string().contains("MTU"), "{path} {family:?}: {error}");
        }
    }

    #[test]
    fn wire_options_have_ranges() {
        let names = ["a".to_owned(), "b".to_owned()];
        let ends = ["a".parse().unwrap(), "b".parse().unwrap()];
        let good = WireOptions::default();
        let bad = [
            WireOptions { mtu: 100, ..good },
            WireOptions { mtu: 70_000, ..good },
            WireOptions { queues: 0, ..good },
            WireOptions { queues: 1000, ..good },
            WireOptions { rate: Some(10), ..good },
        ];
        for wire in bad {
            assert!(Topology::new(&names, Some(wire), Path::Raw, &ends).is_err(), "{wire:?} was taken");
        }
        assert!(Topology::new(&names, Some(good), Path::Raw, &ends).is_ok());
    }

    #[test]
    fn every_endpoint_has_an_address_of_its_own() {
        let endpoints: Vec<String> = (0..100).flat_map(|i| [format!("a/c{i}"), format!("b/c{i}")]).collect();
        let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        for path in [Path::Etun, Path::Bridge, Path::Macvlan, Path::Vxlan] {
            for family in [Family::Ipv4, Family::Ipv6] {
                let topology = topology(&["a", "b"], true, path, &endpoints).unwrap().with_family(family).unwrap();
                let addresses: BTreeSet<_> =
                    endpoints.iter().map(|e| topology.address(&e.parse().unwrap()).unwrap()).collect();
                assert_eq!(addresses.len(), endpoints.len(), "{path} {family:?}");
                assert!(!addresses.contains(&topology.node_address(0).0));
            }
        }
    }

    #[test]
    fn a_middle_stands_between_client_and_server() {
        let three = ["client", "lb", "server"];
        let refused = |nodes: &[&str], wire, path, ends: &[&str], expected: &str| {
            let error = topology(nodes, wire, path, ends).unwrap_err();
            assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
        };
        refused(&["a", "b"], true, Path::Balancer, &["a", "b"], "testbed of 2 nodes");
        refused(&three, true, Path::Raw, &["client", "server"], "three nodes");
        refused(&three, false, Path::Direct, &["client", "server"], "without a wire");
        refused(&three, true, Path::Nftables, &["client/c", "server"], "is a container");
        refused(&three, true, Path::Haproxy, &["client", "lb"], "stands between");
        refused(&three, true, Path::Ipvs, &["server", "client"], "whose client is client");
        for path in Path::ALL.into_iter().filter(|path| path.is_of_three()) {
            for family in [Family::Ipv4, Family::Ipv6] {
                let t = topology(&three, true, path, &["client", "server"]).unwrap().with_family(family).unwrap();
                let ends: [Endpoint; 2] = ["client", "server"].map(|end| end.parse().unwrap());
                assert_eq!(t.middle().is_some(), path != Path::Direct, "{path}");
                assert_eq!(t.nodes().len(), if path == Path::Direct { 2 } else { 3 }, "{path}");
                let mut pools: BTreeSet<IpAddr> = ends.iter().map(|end| t.pool(end).unwrap().first()).collect();
                pools.extend([t.virtual_pool().first(), t.local_pool().first()]);
                assert_eq!(pools.len(), 4, "{path} {family:?}: {pools:?}");
                let mut own: BTreeSet<IpAddr> = ends.iter().map(|end| t.address(end).unwrap()).collect();
                if path.has_middle() {
                    own.extend([t.node_address(1).0, t.middle_address().0]);
                    assert_eq!(own.len(), 4, "{path} {family:?}: {own:?}");
                    // The link to either end is a subnet of its own.
                    assert_eq!(t.next_hop(&ends[0], &ends[1]), Some(NextHop::Router(t.node_address(1).0)));
                    assert_eq!(t.next_hop(&ends[1], &ends[0]), Some(NextHop::Router(t.middle_address().0)));
                } else {
                    assert_eq!(t.next_hop(&ends[0], &ends[1]), Some(NextHop::Peer(ends[1].clone())));
                }
            }
        }
        // RFC 2544 has set apart 198.18.0.0/15.
        let t = topology(&three, true, Path::Balancer, &["client", "server"]).unwrap();
        let server = t.pool(&"server".parse().unwrap()).unwrap();
        let all = [t.virtual_pool(), t.local_pool(), server];
        for address in all.into_iter().flat_map(|pool| pool.addresses(Pool::SIZE).chain([pool.port()])) {
            let IpAddr::V4(address) = address else { panic!("{address}") };
            assert!(address.octets()[0] == 198 && matches!(address.octets()[1], 18 | 19), "{address}");
        }
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "a b", "a/b/c", "-x", "x;y", "/", "a/", &"n".repeat(33)] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad:?} was taken");
        }
        assert_eq!("a/sender".parse::<Endpoint>().unwrap().to_string(), "a/sender");
    }
}
