//! The plan under construction that the modules of paths write to.

use std::net::IpAddr;

use rig_sys::cpu::CpuSet;
use rig_sys::ethtool::Offload;

use crate::plan::{
    IPV4_FORWARDING, IPV6_FORWARDING, Interface, InterfaceRef, IpNet, Link, Mac, NamespacePlan, Node, Plan, Route,
    Sysctl, Wire,
};
use crate::topology::{Endpoint, Family, Topology, UPLINK, WireOptions, uplink_to};

/// The bridge of a node.
pub(super) const BRIDGE: &str = "br0";

/// A plan that is being written.
#[derive(Debug)]
pub struct PlanBuilder<'a> {
    pub topology: &'a Topology,
    plan: Plan,
}

impl<'a> PlanBuilder<'a> {
    /// The nodes of `topology` with their namespaces, and nothing in them.
    pub fn new(topology: &'a Topology, cpus: &[CpuSet]) -> Self {
        let space = |name: String| NamespacePlan { name, ..NamespacePlan::default() };
        let node = |(number, node): (usize, &crate::topology::Node)| Node {
            name: node.name.clone(),
            cpus: cpus.get(number).cloned().unwrap_or_default(),
            datapath: None,
            spaces: std::iter::once(node.name.clone())
                .chain(node.containers.iter().map(|container| format!("{}/{container}", node.name)))
                .map(space)
                .collect(),
        };
        let nodes = topology.nodes().iter().enumerate().map(node).collect();
        Self { topology, plan: Plan { nodes, wires: Vec::new() } }
    }

    /// The plan, with the settings of every path added: interfaces of IPv6 can use their addresses at once and do not look for
    /// routers, and without segmentation offload each packet is one segment.
    pub fn finish(mut self) -> Plan {
        const IPV6: [(&str, &str); 3] = [
            ("net.ipv6.conf.default.disable_ipv6", "0"),
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv6.conf.default.router_solicitations", "0"),
        ];
        for space in self.plan.nodes.iter_mut().flat_map(|node| &mut node.spaces) {
            if self.topology.family() == Family::Ipv6 {
                drop(space.sysctls.splice(0..0, IPV6.map(|(key, value)| Sysctl::new(key, value))));
            }
            if !self.topology.segmentation_offload() {
                for interface in space.interfaces.iter_mut().filter(|interface| interface.link.has_own_offloads()) {
                    interface
                        .offloads
                        .extend([Offload::Tso, Offload::Gso, Offload::Gro].map(|offload| (offload, false)));
                }
            }
        }
        self.plan
    }

    /// The plan as an addition to a testbed that stands: without namespaces and nodes to which nothing is added.
    pub fn finish_addition(mut self) -> Plan {
        for node in &mut self.plan.nodes {
            node.spaces
                .retain(|space| *space != NamespacePlan { name: space.name.clone(), ..NamespacePlan::default() });
        }
        self.plan.nodes.retain(|node| !node.spaces.is_empty());
        self.plan
    }

    pub fn nodes(&self) -> usize {
        self.plan.nodes.len()
    }

    pub fn node(&mut self, node: usize) -> &mut Node {
        &mut self.plan.nodes[node]
    }

    pub fn containers(&self, node: usize) -> usize {
        self.plan.nodes[node].spaces.len() - 1
    }

    /// Nodes that have containers: where load ends at another, it ends in the node's own network stack.
    pub fn nodes_with_containers(&self) -> Vec<usize> {
        (0..self.nodes()).filter(|&node| self.containers(node) > 0).collect()
    }

    /// The CPUs of a node.
    pub fn cpus(&self, node: usize) -> &CpuSet {
        &self.plan.nodes[node].cpus
    }

    /// A node's own namespace.
    pub fn own(&mut self, node: usize) -> &mut NamespacePlan {
        &mut self.plan.nodes[node].spaces[0]
    }

    pub fn container(&mut self, node: usize, container: usize) -> &mut NamespacePlan {
        &mut self.plan.nodes[node].spaces[1 + container]
    }

    /// Adds an interface to a node's own namespace, or to that of a container.
    pub fn add(&mut self, (node, container): (usize, Option<usize>), mut interface: Interface) -> InterfaceRef {
        let number = container.map_or(0, |container| 1 + container);
        let space = &mut self.plan.nodes[node].spaces[number];
        if interface.link.has_own_mac() {
            interface.mac = Some(mac_of(node, number, space.interfaces.len()));
        }
        let at = InterfaceRef::new(&space.name, &interface.name);
        space.interfaces.push(interface);
        at
    }

    /// A wire between two nodes.
    pub fn lay(&mut self, wire: WireOptions, ends: [(usize, &str); 2]) {
        let ends = ends.map(|(node, name)| {
            let link = Interface {
                mtu: Some(wire.mtu),
                queues: wire.queues,
                rate: wire.rate,
                ..Interface::new(name, Link::Wire)
            };
            self.add((node, None), link)
        });
        self.plan.wires.push(Wire { ends });
    }

    /// The wire between the two nodes, if there are two. What comes over it is processed by the CPUs of the node that it
    /// comes to.
    pub fn wire(&mut self) {
        let Some(wire) = self.topology.wire() else { return };
        if self.nodes() > 2 {
            return self.mesh(wire);
        }
        self.lay(wire, [(0, UPLINK), (1, UPLINK)]);
        let steered = if self.topology.receiver_has_all() { 0..1 } else { 0..2 };
        for node in steered {
            let cpus = self.cpus(node).clone();
            self.uplink(node).steering = Some(cpus);
        }
    }

    /// A wire between each two nodes, so that none carries what is for others.
    fn mesh(&mut self, wire: WireOptions) {
        for near in 0..self.nodes() {
            for far in near + 1..self.nodes() {
                let ends = [(near, uplink_to(near, far)), (far, uplink_to(far, near))];
                self.lay(wire, ends.each_ref().map(|(node, name)| (*node, name.as_str())));
            }
            let cpus = self.cpus(near).clone();
            for interface in &mut self.own(near).interfaces {
                interface.steering = Some(cpus.clone());
            }
        }
    }

    /// A node's interface of the wire.
    pub fn uplink(&mut self, node: usize) -> &mut Interface {
        &mut self.own(node).interfaces[0]
    }

    /// Gives a node its address on the wire, if there is one.
    pub fn address(&mut self, node: usize) {
        if self.topology.wire().is_some() {
            let address = self.topology.node_address(node);
            self.uplink(node).addresses.push(address);
        }
    }

    /// Addresses for the nodes where load ends in the node's own network stack.
    pub fn address_nodes_without_containers(&mut self) {
        for node in (0..self.nodes()).filter(|&node| self.containers(node) == 0).collect::<Vec<_>>() {
            self.address(node);
        }
    }

    /// A veth pair between a node and a container of it.
    pub fn veth(&mut self, node: usize, container: usize) -> (&mut Interface, &mut Interface) {
        let mtu = Some(self.topology.endpoint_mtu());
        let far = self.add((node, Some(container)), Interface { mtu, ..Interface::new(UPLINK, Link::Far) });
        let port = Interface { mtu, ..Interface::new(port(container), Link::Veth { far }) };
        self.add((node, None), port);
        let (own, containers) = self.plan.nodes[node].spaces.split_at_mut(1);
        let last = |space: &mut NamespacePlan| space.interfaces.len() - 1;
        let (port, end) = (last(&mut own[0]), last(&mut containers[container]));
        (&mut own[0].interfaces[port], &mut containers[container].interfaces[end])
    }

    /// A bridge in each node with containers, whose ports are these; with `uplink`, that interface of the node too.
    pub fn bridge(&mut self, uplink: Option<&str>) {
        let mtu = Some(self.topology.endpoint_mtu());
        for node in self.nodes_with_containers() {
            self.add((node, None), Interface { mtu, ..Interface::new(BRIDGE, Link::Bridge) });
            for interface in self.own(node).interfaces.iter_mut().filter(|own| Some(own.name.as_str()) == uplink) {
                interface.bridge = Some(BRIDGE.to_owned());
            }
            for container in 0..self.containers(node) {
                let address = self.topology.container_address(node, container);
                let (port, end) = self.veth(node, container);
                port.bridge = Some(BRIDGE.to_owned());
                end.addresses.push(address);
            }
        }
    }

    /// Lets a node route packets from one interface to another.
    pub fn forward(&mut self, node: usize) {
        let forwarding = match self.topology.family() {
            Family::Ipv4 => IPV4_FORWARDING,
            Family::Ipv6 => IPV6_FORWARDING,
        };
        self.own(node).sysctls.push(Sysctl::new(forwarding, "1"));
    }

    /// Routes from each of two nodes to what `subnet` says of the other one, by way of that one.
    pub fn route_to_other(&mut self, subnet: impl Fn(&Topology, usize) -> IpNet) {
        if self.nodes() == 2 {
            for (node, other) in [(0, 1), (1, 0)] {
                let route = Route::via(subnet(self.topology, other), self.topology.node_address(other).addr());
                self.own(node).routes.push(route);
            }
        }
    }

    /// The pools of endpoints in containers, which nodes route to by way of `gateway`, and to those of the other node by way
    /// of that one.
    pub fn route_pools(&mut self, gateway: impl Fn(&Topology, usize, usize) -> IpAddr) {
        for node in 0..self.nodes() {
            for container in 0..self.containers(node) {
                let endpoint = self.container(node, container).name.parse::<Endpoint>();
                // The container's own kernel says where the interface is, which the packets then find.
                let Some(pool) = endpoint.ok().and_then(|endpoint| self.topology.pool(&endpoint)) else { continue };
                let route = Route::via(pool.subnet(), gateway(self.topology, node, container));
                self.own(node).routes.push(route);
            }
        }
        self.route_to_other(Topology::pools_subnet);
    }
}

/// A node's end of the link to a container.
pub(super) fn port(container: usize) -> String {
    format!("port{container}")
}

/// The address of an interface, by the numbers of its node, of its namespace there and of itself: no two of a testbed have the
/// same, and each has the same every time. Administered locally (IEEE 802, 8.4).
fn mac_of(node: usize, space: usize, interface: usize) -> Mac {
    let [node_high, node_low] = (node as u16).to_be_bytes();
    let [high, low] = (interface as u16).to_be_bytes();
    Mac([0x02, node_high, node_low, space as u8, high, low])
}
