//! Where an agent runs, and what it is to carry.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use rig_sys::cpu::CpuSet;
use serde::{Deserialize, Serialize};

use super::{BackendState, ServiceState};
use crate::Testbed;
use crate::plan::{IpNet, Plan};
use crate::topology::{DUT, Endpoint, Pool, Topology, client_link, server_link, uplink, uplink_to};

/// A node of a testbed that stands, as an agent needs to know it, in the runner's process or in one of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The node's name, and its number in the plan.
    node: String,
    number: usize,
    cpus: CpuSet,
    /// Those of them that other nodes have too.
    shared: CpuSet,
    interfaces: Vec<Interface>,
    services: Option<Services>,
    /// How many networks of containers there are.
    networks: u32,
    /// Of all nodes, by name.
    containers: BTreeMap<String, Container>,
    plan: Plan,
}

/// A container of the testbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// The number of its network, from 1.
    pub network: u32,
    /// The subnet of the addresses of packets that it makes itself.
    pub pool: Option<IpNet>,
}

/// An interface of the node that leads to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    pub name: String,
    /// The node at its other end.
    pub to: String,
}

/// What clients connect to and the servers behind it, as a node between both needs to know them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Services {
    pub protocol: Protocol,
    /// Addresses and ports that clients connect to.
    pub addresses: Vec<SocketAddr>,
    /// The servers' addresses; each server listens on every port of the services.
    pub backends: Vec<IpAddr>,
    /// Where packets to servers may come from.
    pub local: Vec<IpAddr>,
    /// The clients' node and the servers' node.
    pub clients: String,
    pub servers: String,
}

/// [`Services`] as they are asked for, before there is a testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestedServices {
    pub protocol: Protocol,
    /// How many addresses clients connect to.
    pub addresses: u32,
    /// How many packets to servers may come from, where that is said.
    pub local: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

impl Site {
    /// A node of a testbed by its number. `services` are what clients reach through this node.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn new(testbed: &Testbed<'_>, number: usize, services: Option<Services>) -> Result<Self> {
        let topology = testbed.topology();
        let nodes = topology.nodes();
        let node = nodes.get(number).with_context(|| format!("find node {number} of {}", nodes.len()))?;
        let cpus = testbed.cpus(number).clone();
        let others = (0..nodes.len()).filter(|other| *other != number);
        let alone = others.fold(cpus.clone(), |alone, other| alone.without(testbed.cpus(other)));
        let containers = nodes.iter().flat_map(|node| {
            node.containers.iter().map(|container| {
                let endpoint = Endpoint { node: node.name.clone(), container: Some(container.clone()) };
                let pool = topology.pool(&endpoint).map(Pool::subnet);
                (endpoint.to_string(), Container { network: topology.network(&endpoint), pool })
            })
        });
        Ok(Self {
            node: node.name.clone(),
            number,
            shared: cpus.without(&alone),
            cpus,
            interfaces: interfaces(topology, number),
            services,
            networks: topology.networks(),
            containers: containers.collect(),
            plan: testbed.plan().clone(),
        })
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// What was built, of all nodes: others may have agents of the same datapath.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The node's number in the plan.
    pub fn number(&self) -> usize {
        self.number
    }

    /// CPUs of the node, on which it carries packets.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Those of them that other nodes have too.
    pub fn shared_cpus(&self) -> &CpuSet {
        &self.shared
    }

    /// What the node's interfaces are called, and where they lead: those to the first node first.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The interfaces that lead to a node.
    pub fn links_to(&self, node: &str) -> Vec<String> {
        let links = self.interfaces.iter().filter(|interface| interface.to == node);
        links.map(|interface| interface.name.clone()).collect()
    }

    /// How many networks of containers there are.
    pub fn networks(&self) -> u32 {
        self.networks
    }

    /// Whether the testbed has a container of this name, `node/container`, on any node.
    pub fn has_container(&self, name: &str) -> bool {
        self.containers.contains_key(name)
    }

    /// A container of any node, by `node/container`.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn container(&self, name: &str) -> Result<&Container> {
        self.containers.get(name).with_context(|| format!("find container {name}"))
    }

    /// What clients reach through this node.
    ///
    /// # Errors
    /// On a node that is not between clients and servers.
    pub fn services(&self) -> Result<&Services> {
        self.services.as_ref().with_context(|| format!("node {} is not between clients and servers", self.node))
    }
}

/// The interfaces of a node, and where they lead.
fn interfaces(topology: &Topology, number: usize) -> Vec<Interface> {
    let name = |node: usize| topology.nodes().get(node).map(|node| node.name.clone());
    let links = |to: usize, link: fn(u32) -> String, wires: u32| {
        let to = name(to);
        (0..wires).filter_map(move |lane| Some(Interface { name: link(lane), to: to.clone()? }))
    };
    match (topology.dut(), topology.nodes().len()) {
        (Some(dut), _) if dut == number => {
            let clients = links(DUT - 1, client_link, topology.client_wires());
            clients.chain(links(DUT + 1, server_link, topology.lanes())).collect()
        }
        (Some(dut), _) if number < dut => links(dut, uplink, topology.client_wires()).collect(),
        (Some(dut), _) => links(dut, uplink, topology.lanes()).collect(),
        (None, 2) => links(1 - number, uplink, topology.lanes()).collect(),
        (None, nodes) => {
            let others = (0..nodes).filter(|other| *other != number);
            others.filter_map(|other| Some(Interface { name: uplink_to(number, other), to: name(other)? })).collect()
        }
    }
}

impl Services {
    /// The addresses of all services, each once.
    pub fn hosts(&self) -> Vec<IpAddr> {
        let mut hosts: Vec<IpAddr> = self.addresses.iter().map(SocketAddr::ip).collect();
        hosts.dedup();
        hosts
    }

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
