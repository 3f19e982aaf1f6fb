//! What a testbed consists of, as a value: validated once, then built or drawn as often as wanted.

pub(crate) mod address;
mod endpoint;
mod family;
mod lanes;
mod networks;
pub(crate) mod paths;
mod settings;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeSet;

pub use address::{NextHop, Pool};
pub use endpoint::{Endpoint, check_name};
pub use family::Family;
pub use lanes::{client_link, server_link, uplink, uplink_to};
pub use networks::container_of_network;
use rig_sys::cpu::CpuSet;
pub use settings::{Rps, TestbedSettings};
pub use wire::WireOptions;

pub use self::paths::{Endpoints, Layout, Path, XdpHook};
use self::paths::{PlanBuilder, TopologyRequest};
use crate::plan::Plan;

/// The interface that joins an endpoint or a node to the outside; of a DUT, to the client. Where there are several lanes,
/// that of the first.
pub const UPLINK: &str = "eth0";
/// The interface that joins a DUT to the server, of the first lane.
pub const SERVER_LINK: &str = "eth1";

/// The DUT among client, DUT and server.
pub const DUT: usize = 1;

/// A node: a machine of the testbed, made of a namespace and the CPUs it owns, with containers in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub containers: Vec<String>,
    /// Whether load may end here. Others are there to be reached.
    pub at_work: bool,
}

/// A validated testbed: one or two nodes, a wire between two, and a path that joins the endpoints; or client, DUT and
/// server in this order, with a wire on both sides of the DUT. What path `direct` leaves out is no node of it. A path of
/// [`Layout::Several`] has more nodes, a wire between each two of them, and perhaps several networks of containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
    wire: Option<WireOptions>,
    path: Path,
    family: Family,
    lanes: u32,
    /// Whether the client has a wire more to the DUT, for a flood.
    flooded: bool,
    receiver_has_all: bool,
    networks: u32,
    /// What users chose to be set besides.
    chosen: Vec<TestbedSettings>,
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
    /// Columns of the text of a testbed: with an indent on a terminal of 80.
    pub const DESCRIBED: usize = 76;
    /// Containers that one node may have.
    pub const CONTAINERS_MAX: usize = 250;
    /// Nodes that a testbed may have: between each two of them there is a wire.
    pub const NODES_MAX: usize = 16;
    /// Networks of containers that a path may have.
    pub const NETWORKS_MAX: u32 = 16;

    /// What is wrong with nodes of these names on any path.
    pub fn check_nodes(names: &[String]) -> Result<(), TopologyError> {
        let nodes = collect_nodes(names, &[])?;
        match nodes.len() {
            1..=Self::NODES_MAX => Ok(()),
            n => {
                let hint =
                    format!("use one, two or three nodes, or up to {} on path {}", Self::NODES_MAX, Path::of_many());
                Err(TopologyError::new(format!("a testbed of {n} nodes"), hint))
            }
        }
    }

    /// The testbed in which `endpoints` are joined by `path`: containers are those that the endpoints name.
    pub fn new(
        node_names: &[String],
        wire: Option<WireOptions>,
        path: Path,
        endpoints: &[Endpoint],
    ) -> Result<Self, TopologyError> {
        Self::of_networks(1, node_names, wire, path, endpoints)
    }

    /// As [`Self::new`], with so many networks of containers that do not reach each other: each node has a container of each,
    /// also where no endpoint names one ([`Self::network`] says which is whose).
    ///
    /// # Errors
    /// As there, and when the path does not have so many networks.
    pub fn of_networks(
        networks: u32,
        node_names: &[String],
        wire: Option<WireOptions>,
        path: Path,
        endpoints: &[Endpoint],
    ) -> Result<Self, TopologyError> {
        let mut nodes = collect_nodes(node_names, endpoints)?;
        if let Some(wire) = wire {
            wire.check()?;
        }
        Self::check_networks(networks, path)?;
        path.definition().requirements(&TopologyRequest { path, nodes: &nodes, wire, endpoints })?;
        if path.layout() == Layout::NoDut {
            nodes.remove(DUT);
        }
        if path.layout() == Layout::Several {
            networks::populate(&mut nodes, networks)?;
        }
        let family = Family::Ipv4;
        Self {
            nodes,
            wire,
            path,
            family,
            lanes: 1,
            flooded: false,
            receiver_has_all: false,
            networks,
            chosen: Vec::new(),
        }
        .with_family(family)
    }

    /// The smallest testbed in which `path` joins two ends, which come with it.
    ///
    /// # Errors
    /// When the path has requirements beyond those of its layout.
    pub fn smallest(path: Path) -> Result<(Self, [Endpoint; 2]), TopologyError> {
        let nodes: &[&str] = match path.layout() {
            Layout::One => &["a"],
            Layout::OneOrTwo | Layout::Two | Layout::Several => &["a", "b"],
            Layout::Dut | Layout::NoDut => &["client", "dut", "server"],
        };
        let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
        let end = |node: &str, container: &str| Endpoint {
            node: node.to_owned(),
            container: (path.endpoints() != Endpoints::Nodes).then(|| container.to_owned()),
        };
        let ends = [end(first, "sender"), end(last, "receiver")];
        let names: Vec<String> = nodes.iter().map(|&name| name.to_owned()).collect();
        let wire = (nodes.len() > 1).then(WireOptions::default);
        Ok((Self::new(&names, wire, path, &ends)?, ends))
    }

    /// This testbed with addresses of `family`; [`Self::new`] makes one of IPv4.
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

    /// This testbed, but the second of two nodes owns all CPUs, and the first the second half of them. The testbed does not steer
    /// what the second node receives: that is left to the kernel, or to a spreader that runs there.
    ///
    /// # Errors
    /// Where there are not two nodes with a wire between them.
    pub fn with_all_cpus_for_receiver(self) -> Result<Self, TopologyError> {
        if self.path.is_of_three() || self.nodes.len() != 2 || self.wire.is_none() {
            let what = format!("all CPUs for the receiver on path {}", self.path);
            return Err(TopologyError::new(what, "use a path between two nodes with a wire, for instance raw"));
        }
        Ok(Self { receiver_has_all: true, ..self })
    }

    /// Whether the second of two nodes owns all CPUs.
    pub fn receiver_has_all(&self) -> bool {
        self.receiver_has_all
    }

    /// Whether nodes have CPUs that others have too, or may have.
    pub fn shares_cpus(&self) -> bool {
        self.receiver_has_all || self.path.is_of_three()
    }

    /// Which of the equal shares of the CPUs each node has. A node at which no load ends has nothing to do while the load runs, and
    /// so has the share of a node at which one ends.
    pub fn shares(&self) -> Vec<usize> {
        let (mut at_work, mut idle) = (0.., 0..);
        let share =
            |node: &Node| if node.at_work { at_work.next() } else { idle.next().map(|n| n % self.share_count()) };
        self.nodes.iter().filter_map(share).collect()
    }

    /// How many shares of CPUs there are.
    pub fn share_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.at_work).count().max(1)
    }

    /// Whether the node of this name has its share for itself.
    pub fn is_at_work(&self, node: &str) -> bool {
        self.nodes.iter().any(|own| own.name == node && own.at_work)
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

    /// What is built, on nodes that own these CPUs, in the nodes' order.
    pub fn plan(&self, cpus: &[CpuSet]) -> Plan {
        let mut draft = PlanBuilder::new(self, cpus);
        self.path.definition().plan(&mut draft);
        let mut plan = draft.finish();
        self.choose(&mut plan);
        plan
    }

    /// What is added to [`Self::plan`] for endpoints that make their packets themselves: the kernels on the way route to
    /// their pools.
    pub fn plan_of_pools(&self) -> Plan {
        let mut draft = PlanBuilder::new(self, &[]);
        self.path.definition().pools(&mut draft);
        draft.finish_addition()
    }

    /// The testbed as a drawing of lines up to about 100 columns. `cpus` are the CPUs of each node, if they are known.
    pub fn draw(&self, cpus: &[CpuSet]) -> String {
        self.plan(cpus).draw()
    }

    /// [`Self::draw`], and below it what else is set and the kernel would not have by itself.
    pub fn describe(&self, cpus: &[CpuSet]) -> String {
        let plan = self.plan(cpus);
        let set = plan.settings().into_iter().map(|text| rig_cli::look::wrapped(&text, "set: ", "  ", Self::DESCRIBED));
        plan.draw() + &set.collect::<String>()
    }

    /// The CPUs of a node in the order in which packet workers take them. Where client and server have the same, the one
    /// begins with the first and the other with the last, so that they meet as late as can be.
    pub fn turns(&self, node: usize, cpus: &CpuSet) -> Vec<u32> {
        let mut cpus = cpus.as_slice().to_vec();
        if self.path.is_of_three() && node + 1 == self.nodes.len() {
            cpus.reverse();
        }
        cpus
    }

    /// The node between client and server, on the paths that have one.
    pub fn dut(&self) -> Option<usize> {
        self.path.has_dut().then_some(DUT)
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
        nodes.push(Node { name: name.clone(), containers: Vec::new(), at_work: true });
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
