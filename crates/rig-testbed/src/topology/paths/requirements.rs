//! What is possible of a path, by the nodes that it is made of and by its ends.

use super::{Endpoints, Layout, Path};
use crate::topology::{Endpoint, Node, Topology, TopologyError, WireOptions};

/// A testbed as a suite or a caller asks for it, before it is checked.
#[derive(Debug, Clone, Copy)]
pub struct TopologyRequest<'a> {
    pub path: Path,
    /// With the containers that the endpoints name.
    pub nodes: &'a [Node],
    pub wire: Option<WireOptions>,
    pub endpoints: &'a [Endpoint],
}

impl TopologyRequest<'_> {
    /// What the path's layout and ends need.
    ///
    /// # Errors
    /// When the testbed is not so.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.path.is_of_three() { self.check_three() } else { self.check_plain() }
    }

    fn check_plain(&self) -> Result<(), TopologyError> {
        let Self { path, nodes, wire, endpoints } = *self;
        let possible = path.endpoints();
        match (nodes.len(), wire) {
            (1, Some(_)) => {
                return Err(TopologyError::new("a wire needs two nodes", "name a second node or remove the wire"));
            }
            (2, None) => return Err(TopologyError::new("two nodes without a wire", "give the testbed a wire")),
            (1 | 2, _) => {}
            (n, None) if path.layout() == Layout::Several => {
                let hint = "give the testbed a wire: it is laid between each two";
                return Err(TopologyError::new(format!("{n} nodes without a wire"), hint));
            }
            (3..=Topology::NODES_MAX, _) if path.layout() == Layout::Several => {}
            (3, _) => {
                let others = names(|path| path.is_of_three() || path.layout() == Layout::Several);
                let hint = format!("use one or two nodes, or path {others}");
                return Err(TopologyError::new(format!("path {path} between three nodes"), hint));
            }
            (n, _) => {
                let hint = format!("use one or two, or up to {} on path {}", Topology::NODES_MAX, Path::of_many());
                return Err(TopologyError::new(format!("path {path} in a testbed of {n} nodes"), hint));
            }
        }
        let in_container = endpoints.iter().filter(|e| e.container.is_some()).count();
        match possible {
            Endpoints::Nodes if in_container > 0 => {
                let others = names(|path| {
                    !path.is_of_three() && path.endpoints() != Endpoints::Nodes && path.layout() != Layout::One
                });
                let hint = format!("name nodes only, or choose {others}");
                return Err(TopologyError::new(format!("path {path} joins nodes, not containers"), hint));
            }
            Endpoints::Nodes if nodes.len() == 1 => {
                let what = format!("path {path} needs two nodes");
                return Err(TopologyError::new(what, "use a testbed with two nodes"));
            }
            Endpoints::Nodes => {}
            _ if in_container == 0 || in_container < endpoints.len() && possible != Endpoints::ContainersOrNode => {
                let hint = format!("write endpoints as node/container, or choose path {}", path.without_anything());
                return Err(TopologyError::new(format!("path {path} joins containers, not nodes"), hint));
            }
            _ => {}
        }
        match (path.layout(), nodes.len()) {
            (Layout::One, 2) => {
                let hint = "use a testbed with one node, or choose another path";
                return Err(TopologyError::new(format!("path {path} joins containers of one node"), hint));
            }
            (Layout::Two, 1) => {
                let others = names(|path| matches!(path.layout(), Layout::One | Layout::OneOrTwo));
                let hint = format!("use a testbed with two nodes, or choose {others}");
                return Err(TopologyError::new(format!("path {path} needs a wire"), hint));
            }
            _ => {}
        }
        let has_containers = |name: &str| nodes.iter().any(|node| node.name == name && !node.containers.is_empty());
        if let Some(both) = endpoints.iter().find(|e| e.container.is_none() && has_containers(&e.node)) {
            let what = format!("endpoint {both} is a node with containers");
            return Err(TopologyError::new(what, "put all its endpoints into containers, or none"));
        }
        Ok(())
    }

    fn check_three(&self) -> Result<(), TopologyError> {
        let Self { path, nodes, wire, endpoints } = *self;
        let [client, dut, server] = nodes else {
            let hint = "name client, DUT and server, in this order: nodes = [\"client\", \"balancer\", \"server\"]";
            return Err(TopologyError::new(format!("path {path} in a testbed of {} nodes", nodes.len()), hint));
        };
        let Some(wire) = wire else {
            let hint = "give the testbed a wire: it is laid twice";
            return Err(TopologyError::new("three nodes without a wire", hint));
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
        if endpoints.iter().any(|endpoint| endpoint.node == dut.name) {
            let what = format!("{} stands between the ends of path {path}", dut.name);
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
}

/// `etun, bridge or colocated`: the paths that are so.
pub(super) fn names(are: impl Fn(Path) -> bool) -> String {
    let names: Vec<&str> = Path::all().filter(|path| are(*path)).map(Path::name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
