//! What a testbed consists of, as a value: validated once, then built or drawn as often as wanted.

mod address;
mod endpoint;
mod lanes;
mod path;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeSet;

pub use address::{NextHop, Pool};
pub use endpoint::{Endpoint, check_name};
pub use lanes::{client_link, server_link, uplink};
pub use path::{Family, Path};
pub use wire::WireOptions;

/// The middle among client, middle and server.
pub const MIDDLE: usize = 1;

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

    /// What is wrong with nodes of these names whatever joins them.
    pub fn check_nodes(names: &[String]) -> Result<(), TopologyError> {
        let nodes = collect_nodes(names, &[])?;
        match nodes.len() {
            1..=3 => Ok(()),
            n => Err(TopologyError::new(format!("a testbed of {n} nodes"), "use one, two or three nodes")),
        }
    }

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
}

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
