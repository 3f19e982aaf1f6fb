//! Nodes in namespaces of this process: they are gone when it ends, also when it is killed, or the value is dropped.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rig_sys::cpu::CpuSet;
use rig_sys::netlink::{Netlink, QueueStats};
use rig_sys::netns::NetNs;
use rig_sys::{Error, Result};

use super::Namespace;
use super::taken::{SharedInterface, TakenInterface};
use crate::plan::{Interface, InterfaceRef, Link, NamespacePlan, Node, Plan};

/// The nodes that live here, with the wires between them.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// Given back while there are the namespaces in which they are.
    taken: Vec<TakenInterface>,
    shared: Vec<SharedInterface>,
    nodes: Vec<NodeSpaces>,
}

/// A node's namespaces. It builds its part of a plan, but for the wires, each of which joins two nodes.
#[derive(Debug)]
pub struct NodeSpaces {
    name: String,
    cpus: CpuSet,
    /// Its own first.
    namespaces: Vec<Namespace>,
    is_ipv6: bool,
    /// Interfaces with a limit of what they send.
    limited: Vec<InterfaceRef>,
}

/// A step of building one namespace of a plan.
type Step = fn(&mut Namespace, &NamespacePlan) -> Result<()>;

/// Longest time for the kernel to work off the changes of carrier; a loaded machine takes milliseconds.
const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// The same of cards, whose ends come to terms first (IEEE 802.3, 28), which begins anew when one is set up.
const HARDWARE_PATIENCE: Duration = Duration::from_secs(30);

impl Namespaces {
    /// Builds a plan, or adds a part of one to what stands: a namespace that is there already is not made again. All nodes go from
    /// one phase to the next together, so that the order of nodes and interfaces in a plan does not matter.
    ///
    /// # Errors
    /// Names the step that the kernel refused, or what the plan names and does not have. What was built until then stays
    /// as long as the value.
    pub fn apply(&mut self, plan: &Plan) -> Result<()> {
        for node in &plan.nodes {
            self.node(node)?;
        }
        self.each(plan, |namespace, space| namespace.set_sysctls(space))?;
        self.lay_wires(plan)?;
        self.join_host(plan)?;
        for node in &plan.nodes {
            self.node(node)?.add_links(node)?;
        }
        self.all(plan, &[Namespace::set_bridges, Namespace::limit, Namespace::set_wires_up])?;
        self.wait_until_operational(plan, Link::is_outward)?;
        // From here on kernels send by themselves. What asks for a neighbour over a wire that does not carry yet, or that has
        // no address yet, asks again after a second.
        self.all(
            plan,
            &[Namespace::add_addresses, Namespace::set_others_up, Namespace::add_routes, Namespace::place_receiving],
        )?;
        self.all(plan, &[Namespace::set_chosen])?;
        self.wait_until_operational(plan, Link::has_carrier)
    }

    /// Has a namespace be this one, with the interfaces that it has, in place of the one that was made for the plan.
    ///
    /// # Errors
    /// When there is none of this name, or the kernel does not let it be observed.
    pub fn replace(&mut self, space: &str, ns: NetNs) -> Result<()> {
        let has = |node: &&mut NodeSpaces| node.namespaces.iter().any(|namespace| namespace.name == space);
        let node = self.nodes.iter_mut().find(has).ok_or_else(|| lost(space))?;
        let inode = ns.inode()?;
        let others = node.namespaces.iter().filter(|namespace| namespace.name != space && !namespace.is_shared);
        let inodes = others.map(|namespace| namespace.ns.inode()).collect::<Result<Vec<_>>>()?;
        let own = node.namespace(space)?;
        *own = Namespace::of(space.to_owned(), ns)?;
        own.is_shared = inodes.contains(&inode);
        node.is_ipv6 = true;
        Ok(())
    }

    /// The nodes that are built.
    pub fn nodes(&self) -> &[NodeSpaces] {
        &self.nodes
    }

    /// Namespaces of a node, its own first; none of a node that is not here.
    pub fn namespaces(&self, node: &str) -> &[Namespace] {
        self.nodes.iter().find(|own| own.name == node).map_or(&[], |own| &own.namespaces)
    }

    /// The node with the namespaces that `node` says.
    fn node(&mut self, node: &Node) -> Result<&mut NodeSpaces> {
        let index = match self.nodes.iter().position(|own| own.name == node.name) {
            Some(index) => index,
            None => {
                self.nodes.push(NodeSpaces {
                    name: node.name.clone(),
                    cpus: node.cpus.clone(),
                    namespaces: Vec::new(),
                    is_ipv6: false,
                    limited: Vec::new(),
                });
                self.nodes.len() - 1
            }
        };
        let own = &mut self.nodes[index];
        for space in &node.spaces {
            if !own.namespaces.iter().any(|namespace| namespace.name == space.name) {
                own.namespaces.push(Namespace::create(space.name.clone())?);
            }
            for interface in &space.interfaces {
                own.is_ipv6 |= interface.addresses.iter().any(|address| address.addr().is_ipv6());
                own.limited.extend(interface.rate.map(|_| InterfaceRef::new(&space.name, &interface.name)));
            }
        }
        Ok(own)
    }

    fn all(&mut self, plan: &Plan, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.each(plan, step))
    }

    fn each(&mut self, plan: &Plan, mut step: impl FnMut(&mut Namespace, &NamespacePlan) -> Result<()>) -> Result<()> {
        for node in &plan.nodes {
            let own = self.nodes.iter_mut().find(|own| own.name == node.name).ok_or_else(|| lost(&node.name))?;
            own.each(node, &mut step)?;
        }
        Ok(())
    }

    fn lay_wires(&mut self, plan: &Plan) -> Result<()> {
        for wire in &plan.wires {
            let [near, far] = &wire.ends;
            let [near_end, far_end] =
                [near, far].map(|at| plan.interface(at).ok_or_else(|| lost(&format!("{}:{}", at.space, at.interface))));
            let index = |at: &InterfaceRef| {
                let has = |node: &NodeSpaces| node.namespaces.iter().any(|namespace| namespace.name == at.space);
                self.nodes.iter().position(has).ok_or_else(|| lost(&at.space))
            };
            let indices = [index(near)?, index(far)?];
            let both = self.nodes.get_disjoint_mut(indices);
            let [near_node, far_node] = both.map_err(|error| {
                Error::new(format!("lay a wire from {} to {}", near.space, far.space), io::Error::other(error))
            })?;
            let (near_namespace, far_namespace) = (near_node.namespace(&near.space)?, far_node.namespace(&far.space)?);
            near_namespace.add_veth(near_end?, far_namespace, far_end?)?;
        }
        Ok(())
    }

    /// Gives the host its interfaces back, as they were. The nodes are good for nothing then.
    ///
    /// # Errors
    /// What is not as it was; all others are given back nevertheless.
    pub fn give_back(&mut self) -> Result<()> {
        let mut failed: Vec<Error> = self.taken.drain(..).filter_map(|mut taken| taken.give_back().err()).collect();
        let Some(last) = failed.pop() else { return Ok(()) };
        let others: String = failed.iter().map(|error| format!("{error}; ")).collect();
        Err(Error::new(others + &last.operation, last.source))
    }

    /// Gives the nodes the interfaces that the host has.
    fn join_host(&mut self, plan: &Plan) -> Result<()> {
        let (mut taken, mut shared) = (Vec::new(), Vec::new());
        let joined = self.each(plan, |namespace, space| {
            for interface in &space.interfaces {
                match &interface.link {
                    Link::OfHost { name, shared: true } => {
                        shared.push(SharedInterface::of(name)?);
                        namespace.add_shared(&mut Netlink::here()?, name, interface)?;
                    }
                    Link::OfHost { name, shared: false } => {
                        taken.push(TakenInterface::take(name, &namespace.ns, &interface.name)?);
                        namespace.fit_taken(interface)?;
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        self.taken.append(&mut taken);
        self.shared.append(&mut shared);
        joined
    }

    /// Waits for the interfaces that have a carrier; a packet that is sent earlier is lost, and costs its sender a second.
    fn wait_until_operational(&mut self, plan: &Plan, which: impl Fn(&Link) -> bool) -> Result<()> {
        let began = Instant::now();
        self.each(plan, |namespace, space| {
            for interface in space.interfaces.iter().filter(|interface| which(&interface.link)) {
                let patience = match interface.link {
                    Link::OfHost { .. } => HARDWARE_PATIENCE,
                    _ => CARRIER_PATIENCE,
                };
                while !namespace.is_operational(&interface.name)? {
                    if began.elapsed() > patience {
                        let operation = format!("wait for {} of {} to carry packets", interface.name, namespace.name);
                        return Err(Error::new(operation, io::Error::from(io::ErrorKind::TimedOut)));
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Ok(())
        })
    }
}

impl NodeSpaces {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Its own first.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Those that count for themselves: containers may share a namespace, or their node's.
    pub fn counted(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.iter().filter(|namespace| !namespace.is_shared)
    }

    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// What the limits of its interfaces have done so far, by `namespace:interface`.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn rate_limits(&self) -> Result<BTreeMap<String, QueueStats>> {
        let stats = |at: &InterfaceRef| {
            let namespace =
                self.namespaces.iter().find(|namespace| namespace.name == at.space).ok_or_else(|| lost(&at.space))?;
            Ok((format!("{}:{}", at.space, at.interface), namespace.queue_stats(&at.interface)?))
        };
        self.limited.iter().map(stats).collect()
    }

    fn namespace(&mut self, space: &str) -> Result<&mut Namespace> {
        self.namespaces.iter_mut().find(|namespace| namespace.name == space).ok_or_else(|| lost(space))
    }

    fn each(&mut self, node: &Node, step: &mut impl FnMut(&mut Namespace, &NamespacePlan) -> Result<()>) -> Result<()> {
        for space in &node.spaces {
            step(self.namespace(&space.name)?, space)?;
        }
        Ok(())
    }

    /// Makes the interfaces of a node, but for those that are ends of wires.
    fn add_links(&mut self, node: &Node) -> Result<()> {
        for space in &node.spaces {
            for interface in &space.interfaces {
                match &interface.link {
                    Link::Veth { far } => {
                        let far_end = interface_of(node, far)?;
                        let (near_namespace, far_namespace) = self.both(&space.name, &far.space)?;
                        near_namespace.add_veth(interface, far_namespace, far_end)?;
                    }
                    Link::Macvlan { over } => {
                        let (below, own) = self.both(&over.space, &space.name)?;
                        below.add_macvlan(&over.interface, own, interface)?;
                    }
                    Link::Bridge | Link::Vxlan { .. } => self.namespace(&space.name)?.add_link(interface)?,
                    Link::Wire | Link::Far | Link::OfHost { .. } => {}
                }
            }
        }
        Ok(())
    }

    /// Two namespaces of the node.
    fn both(&mut self, one: &str, other: &str) -> Result<(&mut Namespace, &mut Namespace)> {
        let index =
            |name: &str| self.namespaces.iter().position(|namespace| namespace.name == name).ok_or_else(|| lost(name));
        let indices = [index(one)?, index(other)?];
        let both = self.namespaces.get_disjoint_mut(indices);
        let [one, other] =
            both.map_err(|error| Error::new(format!("join {one} and {other}"), io::Error::other(error)))?;
        Ok((one, other))
    }
}

fn interface_of<'a>(node: &'a Node, at: &InterfaceRef) -> Result<&'a Interface> {
    let space = node.spaces.iter().find(|space| space.name == at.space);
    space
        .and_then(|space| space.interface(&at.interface))
        .ok_or_else(|| lost(&format!("{}:{}", at.space, at.interface)))
}

/// A plan names a node, namespace or interface that the testbed does not have.
fn lost(name: &str) -> Error {
    Error::new(format!("find {name} in the plan of a testbed"), io::Error::from(io::ErrorKind::NotFound))
}
