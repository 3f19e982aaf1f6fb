//! Testbeds that stand: namespaces, interfaces and addresses, alive as long as a [`Testbed`].

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, Result};
use rig_sys::cpu::CpuSet;

use crate::host::{ContainerAccess, Host, Local};
use crate::namespaces::Namespace;
use crate::plan::{NamespacePlan, Plan};
use crate::preflight::ReachableContainer;
use crate::topology::{Endpoint, Family, Node, Topology};

/// A testbed that stands on a host. Dropping it removes its nodes, and with them everything that it consists of.
pub struct Testbed<'h> {
    topology: Topology,
    plan: Plan,
    host: HostHandle<'h>,
    /// What a datapath has given containers, by `node/container`.
    given: BTreeMap<String, Vec<IpAddr>>,
    /// At which they are reached, where it is not that.
    reached_at: BTreeMap<String, Vec<IpAddr>>,
}

/// The host that a testbed stands on.
enum HostHandle<'h> {
    Own(Box<Local>),
    Lent(&'h mut (dyn Host + 'static)),
}

impl Testbed<'static> {
    /// Builds `topology` in namespaces of this process, without counting their CPU time exactly; `cpus` are the CPUs of each node,
    /// in the nodes' order.
    ///
    /// # Errors
    /// Names the step that the kernel refused. What was built until then is gone again.
    pub fn build(topology: &Topology, cpus: &[CpuSet]) -> Result<Self> {
        Self::build_plan(topology, topology.plan(cpus))
    }

    /// As [`Self::build`], in namespaces of a `host` of its own.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_in(host: Local, topology: &Topology, plan: Plan) -> Result<Self> {
        Self::standing(HostHandle::Own(Box::new(host)), topology, plan)
    }

    /// Builds `plan`, which is one of `topology`.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_plan(topology: &Topology, plan: Plan) -> Result<Self> {
        Self::build_in(Local::uncounted()?, topology, plan)
    }
}

impl<'h> Testbed<'h> {
    /// Builds `topology` on a host without nodes, which it leaves without nodes.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_on(host: &'h mut (dyn Host + 'static), topology: &Topology, cpus: &[CpuSet]) -> Result<Self> {
        Self::standing(HostHandle::Lent(host), topology, topology.plan(cpus))
    }

    fn standing(host: HostHandle<'h>, topology: &Topology, plan: Plan) -> Result<Self> {
        let plan = host.get().arrange(plan)?;
        let mut testbed =
            Self { topology: topology.clone(), plan, host, given: BTreeMap::new(), reached_at: BTreeMap::new() };
        let Self { plan, host, .. } = &mut testbed;
        host.get_mut().apply(plan)?;
        Ok(testbed)
    }

    /// Lets the kernels on the way route to the pools of endpoints that make their packets themselves.
    ///
    /// # Errors
    /// When a kernel refuses a route.
    pub fn route_pools(&mut self) -> Result<()> {
        self.host.get_mut().apply(&self.topology.plan_of_pools())
    }

    /// Takes note of addresses that a datapath has given containers, by `node/container`, and of those at which they are reached instead.
    pub fn note_addresses(&mut self, given: BTreeMap<String, Vec<IpAddr>>, reached_at: BTreeMap<String, Vec<IpAddr>>) {
        self.given.extend(given);
        self.reached_at.extend(reached_at);
    }

    /// Has these containers, `node/container`, which a datapath has made, be the testbed's, with the kernel's parameters that the plan sets.
    ///
    /// # Errors
    /// When one is not to be found, or a parameter is refused.
    pub fn use_containers(&mut self, made: &BTreeMap<String, ContainerAccess>) -> Result<()> {
        if made.is_empty() {
            return Ok(());
        }
        let host = self.host.get_mut();
        host.use_containers(made)?;
        let mut settings = self.plan.clone();
        settings.wires.clear();
        for node in &mut settings.nodes {
            node.spaces.retain(|space| made.contains_key(&space.name));
            // Their interfaces are not the plan's.
            node.spaces.iter_mut().for_each(|space| {
                *space = NamespacePlan {
                    name: std::mem::take(&mut space.name),
                    sysctls: std::mem::take(&mut space.sysctls),
                    chosen: std::mem::take(&mut space.chosen),
                    ..NamespacePlan::default()
                };
            });
        }
        settings.nodes.retain(|node| !node.spaces.is_empty());
        host.apply(&settings)
    }

    /// The address at which load reaches `endpoint`: of the topology's family, where it was given several.
    pub fn address(&self, endpoint: &Endpoint) -> Option<IpAddr> {
        match self.reached_at.get(&endpoint.to_string()) {
            // Its own would be another way than the one that is asked about.
            Some(addresses) => self.of_family(Some(addresses)),
            None => self.own_address(endpoint),
        }
    }

    /// The address that `endpoint` has and listens on, which may be another one behind published ports.
    pub fn own_address(&self, endpoint: &Endpoint) -> Option<IpAddr> {
        self.of_family(self.given.get(&endpoint.to_string())).or_else(|| self.topology.address(endpoint))
    }

    fn of_family(&self, addresses: Option<&Vec<IpAddr>>) -> Option<IpAddr> {
        let is_ipv6 = self.topology.family() == Family::Ipv6;
        addresses?.iter().copied().find(|address| address.is_ipv6() == is_ipv6)
    }

    /// Has each container send to each other of its network, and checks which container receives it.
    ///
    /// # Errors
    /// [`NetworkFault`](crate::preflight::NetworkFault), with the first that is not reached or that receives what is not for it; or what the
    /// kernel refused.
    pub fn check_networks(&self) -> Result<()> {
        let mut containers = Vec::new();
        for node in self.topology.nodes() {
            for container in &node.containers {
                let endpoint = Endpoint { node: node.name.clone(), container: Some(container.clone()) };
                let name = endpoint.to_string();
                let address = self.address(&endpoint).with_context(|| format!("find the address of {name}"))?;
                containers.push(ReachableContainer { name, network: self.topology.network(&endpoint), address });
            }
        }
        self.host().check_networks(&containers, 0)
    }

    /// Has each node send to each other one, in datagrams of `payload` bytes or as few as can be.
    ///
    /// # Errors
    /// As [`Self::check_networks`].
    pub fn check_reach(&self, payload: u32) -> Result<()> {
        let node = |(number, node): (usize, &Node)| {
            let address = self.topology.node_address(number).addr();
            ReachableContainer { name: node.name.clone(), network: 1, address }
        };
        let nodes: Vec<_> = self.topology.nodes().iter().enumerate().map(node).collect();
        self.host().check_networks(&nodes, payload)
    }

    /// Removes its nodes; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// When the host cannot be asked any more.
    pub fn tear_down(mut self) -> Result<()> {
        self.host.get_mut().tear_down().context("take down the testbed")
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What it was built from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What it stands on.
    pub fn host(&self) -> &dyn Host {
        self.host.get()
    }

    /// A namespace, `node` or `node/container`.
    ///
    /// # Errors
    /// When there is none of this name, or it is another process's.
    pub fn namespace(&self, space: &str) -> Result<&Namespace> {
        let host = self.host();
        let local =
            host.local().with_context(|| format!("enter {space}: host '{}' has it in another process", host.name()))?;
        local.namespace(space)
    }

    /// Namespaces of one node, its own first, where they are this process's.
    pub fn namespaces(&self, node: usize) -> impl Iterator<Item = &Namespace> {
        self.plan.nodes[node].spaces.iter().filter_map(|space| self.namespace(&space.name).ok())
    }

    pub fn cpus(&self, node: usize) -> &CpuSet {
        &self.plan.nodes[node].cpus
    }

    /// The CPUs of a node in the order in which packet workers take them.
    pub fn turns(&self, node: usize) -> Vec<u32> {
        self.topology.turns(node, self.cpus(node))
    }

    /// The CPUs of an endpoint's node; `None` where the testbed has no such endpoint.
    pub fn cpus_of(&self, endpoint: &Endpoint) -> Option<&CpuSet> {
        let name = endpoint.to_string();
        let node = self.plan.nodes.iter().find(|node| node.spaces.iter().any(|space| space.name == name))?;
        Some(&node.cpus)
    }

    /// The namespace of an endpoint, where it is one of this process, and the CPUs of its node.
    pub fn endpoint(&self, endpoint: &Endpoint) -> Option<(&Namespace, &CpuSet)> {
        Some((self.namespace(&endpoint.to_string()).ok()?, self.cpus_of(endpoint)?))
    }
}

impl HostHandle<'_> {
    fn get(&self) -> &dyn Host {
        match self {
            Self::Own(own) => own.as_ref(),
            Self::Lent(lent) => *lent,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Host {
        match self {
            Self::Own(own) => own.as_mut(),
            Self::Lent(lent) => *lent,
        }
    }
}

impl Drop for Testbed<'_> {
    fn drop(&mut self) {
        // A host that cannot be asked any more has ended, and its nodes with it.
        let _ = self.host.get_mut().tear_down();
    }
}

impl fmt::Debug for Testbed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Testbed").field("plan", &self.plan).field("host", &self.host()).finish_non_exhaustive()
    }
}
