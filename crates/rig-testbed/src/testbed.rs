//! Testbeds that stand: namespaces, interfaces and addresses, alive as long as a [`Testbed`].

use rig_sys::Result;
use rig_sys::cpu::CpuSet;

use crate::namespaces::{Namespaces, NodeSpaces, Place};
use crate::plan::Plan;
use crate::topology::{Endpoint, Topology};

/// A testbed that stands. Dropping it closes the namespaces, which is all it takes to remove it: nothing of it exists
/// outside them.
#[derive(Debug)]
pub struct Testbed {
    topology: Topology,
    plan: Plan,
    host: Namespaces,
}

impl Testbed {
    /// Builds `topology`; `cpus` are the CPUs of each node, in the nodes' order.
    ///
    /// # Errors
    /// Names the step that the kernel refused. What was built until then is gone again.
    pub fn build(topology: &Topology, cpus: &[CpuSet]) -> Result<Self> {
        Self::build_plan(topology, topology.plan(cpus))
    }

    /// Builds `plan`, which is one of `topology`.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_plan(topology: &Topology, plan: Plan) -> Result<Self> {
        let mut host = Namespaces::default();
        host.apply(&plan)?;
        Ok(Self { topology: topology.clone(), plan, host })
    }

    /// Lets the kernels on the way route to the pools of endpoints that make their packets themselves.
    ///
    /// # Errors
    /// When a kernel refuses a route.
    pub fn route_pools(&mut self) -> Result<()> {
        self.host.apply(&self.topology.plan_of_pools())
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What it was built from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Namespaces of one node, its own first.
    pub fn places(&self, node: usize) -> impl Iterator<Item = &Place> {
        self.host.places(&self.plan.nodes[node].name).iter()
    }

    /// Its nodes, as they stand.
    pub fn nodes(&self) -> &[NodeSpaces] {
        self.host.nodes()
    }

    pub fn cpus(&self, node: usize) -> &CpuSet {
        &self.plan.nodes[node].cpus
    }

    /// The CPUs of a node in the order in which packet workers take them.
    pub fn turns(&self, node: usize) -> Vec<u32> {
        self.topology.turns(node, self.cpus(node))
    }

    /// The namespace of an endpoint and the CPUs of its node.
    pub fn endpoint(&self, endpoint: &Endpoint) -> Option<(&Place, &CpuSet)> {
        let node = self.topology.nodes().iter().position(|n| n.name == endpoint.node)?;
        let name = endpoint.to_string();
        let place = self.places(node).find(|place| place.name == name)?;
        Some((place, self.cpus(node)))
    }
}
