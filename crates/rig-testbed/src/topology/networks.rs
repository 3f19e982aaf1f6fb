//! Networks of containers that do not reach each other, on the paths that have several of them.
//!
//! A container's name says which network it is of: `net2` is of the second one, and one of any other name of the first.

use super::{Endpoint, Layout, Node, Path, Topology, TopologyError};

/// What a container is called that no endpoint names, in the network of this number; the first is 1.
pub fn container_of_network(network: u32) -> String {
    format!("{PREFIX}{network}")
}

const PREFIX: &str = "net";

/// That of a container of this name.
fn network_of(container: &str) -> u32 {
    let number = container.strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
    number.filter(|number| container_of_network(*number) == container).unwrap_or(1)
}

/// Gives each node a container of each network that has none there. Of more than two nodes those that had none before are
/// not where load ends.
pub(super) fn populate(nodes: &mut [Node], networks: u32) -> Result<(), TopologyError> {
    let has_ends = nodes.iter().any(|node| !node.containers.is_empty());
    let several = nodes.len() > 2;
    for node in nodes {
        let is_of_none = |container: &&String| !(1..=networks).contains(&network_of(container));
        if let Some(stray) = node.containers.iter().find(is_of_none) {
            let what = format!("{}/{stray} is in network {}, and there are {networks}", node.name, network_of(stray));
            let hint =
                format!("{PREFIX}1 to {PREFIX}{networks} are those of each network: choose one, or another name");
            return Err(TopologyError::new(what, hint));
        }
        node.at_work = !(several && has_ends && node.containers.is_empty());
        for network in 1..=networks {
            if !node.containers.iter().any(|container| network_of(container) == network) {
                node.containers.push(container_of_network(network));
            }
        }
        if node.containers.len() > Topology::CONTAINERS_MAX {
            let hint = format!("use at most {}, those of other networks among them", Topology::CONTAINERS_MAX);
            return Err(TopologyError::new(format!("too many containers in node {}", node.name), hint));
        }
    }
    Ok(())
}

impl Topology {
    /// Whether a path can have so many networks.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check_networks(networks: u32, path: Path) -> Result<(), TopologyError> {
        if !(1..=Self::NETWORKS_MAX).contains(&networks) {
            let hint = format!("choose 1 to {}", Self::NETWORKS_MAX);
            return Err(TopologyError::new(format!("{networks} networks"), hint));
        }
        if networks > 1 && path.layout() != Layout::Several {
            let hint = format!("its containers are of one: remove networks, or choose path {}", Path::of_many());
            return Err(TopologyError::new(format!("{networks} networks on path {path}"), hint));
        }
        Ok(())
    }

    /// How many networks of containers there are.
    pub fn networks(&self) -> u32 {
        self.networks
    }

    /// The number of the network that a container is of, from 1; all else is of the first.
    pub fn network(&self, endpoint: &Endpoint) -> u32 {
        let container = endpoint.container.as_deref();
        if self.networks == 1 { 1 } else { container.map_or(1, network_of) }
    }

    /// How many containers of its node and network come before a container.
    pub(super) fn number_in_network(&self, node: usize, container: usize) -> usize {
        let Some(containers) = self.nodes.get(node).map(|node| &node.containers) else { return container };
        if self.networks == 1 {
            return container;
        }
        let network = containers.get(container).map(|name| network_of(name));
        containers.iter().take(container).filter(|name| Some(network_of(name)) == network).count()
    }

    /// Refuses a load between containers of two networks, which nothing leads between.
    ///
    /// # Errors
    /// Names both.
    pub fn check_pair(&self, from: &Endpoint, to: &Endpoint) -> Result<(), TopologyError> {
        let [of_from, of_to] = [from, to].map(|end| self.network(end));
        if of_from == of_to {
            return Ok(());
        }
        let what = format!("load from {from} of network {of_from} to {to} of network {of_to}");
        let hint = format!(
            "networks do not reach each other: write for instance {}/{}",
            to.node,
            container_of_network(of_from)
        );
        Err(TopologyError::new(what, hint))
    }
}
