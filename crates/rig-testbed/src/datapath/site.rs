//! Where an agent runs, and what it is to carry.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use rig_sys::cpu::CpuSet;

use super::{BackendState, NodeAccess, ServiceState};
use crate::Testbed;
use crate::plan::Plan;
use crate::topology::{DUT, Topology, client_link, server_link, uplink, uplink_to};

/// A node as an agent finds it, in a testbed that stands.
#[derive(Debug)]
pub struct Site<'a> {
    testbed: &'a Testbed<'a>,
    node: usize,
    access: NodeAccess,
    control: &'a CpuSet,
    services: Option<Services>,
}

/// An interface of the node that leads to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// The node at its other end.
    pub to: String,
}

/// What clients connect to, and who serves them: of a node that stands between both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Services {
    pub protocol: Protocol,
    /// Addresses and ports that clients connect to.
    pub addresses: Vec<SocketAddr>,
    /// Of the servers; each listens on every port of the services.
    pub backends: Vec<IpAddr>,
    /// Where packets to servers may come from.
    pub local: Vec<IpAddr>,
    /// The nodes of both.
    pub clients: String,
    pub servers: String,
}

/// The same before there is a testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServicesAsked {
    pub protocol: Protocol,
    /// How many addresses clients connect to.
    pub addresses: u32,
    /// How many packets to servers may come from, where that is said.
    pub local: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// As configuration files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

impl<'a> Site<'a> {
    /// A node of a testbed by its number. `control` are CPUs that no node owns, none if there are no such; `services` what
    /// clients reach through this node.
    ///
    /// # Errors
    /// When there is no such node, or not in this process.
    pub fn new(testbed: &'a Testbed<'a>, node: usize, control: &'a CpuSet, services: Option<Services>) -> Result<Self> {
        let nodes = testbed.topology().nodes();
        let name = &nodes.get(node).with_context(|| format!("find node {node} of {}", nodes.len()))?.name;
        let place = testbed.host().place(name)?;
        Ok(Self { testbed, node, access: NodeAccess::new(name, &place.ns, control)?, control, services })
    }

    /// The inside of the node.
    pub fn node(&self) -> &NodeAccess {
        &self.access
    }

    /// The whole testbed, of which other nodes may have agents of the same datapath.
    pub fn topology(&self) -> &Topology {
        self.testbed.topology()
    }

    /// What was built, of all nodes.
    pub fn plan(&self) -> &Plan {
        self.testbed.plan()
    }

    /// The node's number in the topology and in the plan.
    pub fn number(&self) -> usize {
        self.node
    }

    /// CPUs of the node, on which it carries packets.
    pub fn cpus(&self) -> &CpuSet {
        self.testbed.cpus(self.node)
    }

    /// Those of them that other nodes have too.
    pub fn shared_cpus(&self) -> CpuSet {
        let own = self.cpus();
        let others = (0..self.topology().nodes().len()).filter(|node| *node != self.node);
        let alone = others.fold(own.clone(), |alone, other| alone.without(self.testbed.cpus(other)));
        own.without(&alone)
    }

    /// CPUs for everything else; none where there are no others.
    pub fn control_cpus(&self) -> &CpuSet {
        self.control
    }

    /// What the node's interfaces are called, and where they lead: those to the first node first.
    pub fn interfaces(&self) -> Vec<Interface> {
        let topology = self.topology();
        let name = |node: usize| topology.nodes().get(node).map(|node| node.name.clone());
        let links = |to: usize, link: fn(u32) -> String| {
            let to = name(to);
            (0..topology.lanes()).filter_map(move |lane| Some(Interface { name: link(lane), to: to.clone()? }))
        };
        match (topology.dut(), topology.nodes().len()) {
            (Some(dut), _) if dut == self.node => {
                links(DUT - 1, client_link).chain(links(DUT + 1, server_link)).collect()
            }
            (Some(dut), _) => links(dut, uplink).collect(),
            (None, 2) => links(1 - self.node, uplink).collect(),
            (None, nodes) => {
                let others = (0..nodes).filter(|other| *other != self.node);
                others
                    .filter_map(|other| Some(Interface { name: uplink_to(self.node, other), to: name(other)? }))
                    .collect()
            }
        }
    }

    /// The interfaces that lead to a node.
    pub fn links_to(&self, node: &str) -> Vec<String> {
        self.interfaces().into_iter().filter(|interface| interface.to == node).map(|interface| interface.name).collect()
    }

    /// What clients reach through this node.
    ///
    /// # Errors
    /// On a node that is not between clients and servers.
    pub fn services(&self) -> Result<&Services> {
        let node = self.access.name();
        self.services.as_ref().with_context(|| format!("node {node} is not between clients and servers"))
    }
}

impl Services {
    /// Each backend of a service, with the service's port.
    pub fn backends_of(&self, service: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        self.backends.iter().map(move |backend| (*backend, service.port()).into())
    }

    pub fn is_ipv4(&self) -> bool {
        self.addresses.first().is_some_and(SocketAddr::is_ipv4)
    }

    /// A listing of all services, for what does not count connections by backend.
    pub fn listing(&self, scheduler: &str, forward: &str, weight: u32) -> Vec<ServiceState> {
        let backend = |address: SocketAddr| BackendState {
            address: address.to_string(),
            forward: forward.to_owned(),
            weight,
            active: 0,
            inactive: 0,
        };
        let service = |service: &SocketAddr| ServiceState {
            protocol: self.protocol.name().to_uppercase(),
            address: service.to_string(),
            scheduler: scheduler.to_owned(),
            backends: self.backends_of(*service).map(backend).collect(),
        };
        self.addresses.iter().map(service).collect()
    }
}
