//! Several hosts as one: each has one node of a testbed, and what would be wires between them is their network.
//!
//! ```text
//!                        HostGroup, which divides plans, questions and answers by node
//!     Remote: node a on web1                              Remote: node b on web2
//!       namespace a:  eth0, over web1's eth1  - - - - - -  namespace b:  eth0, over web2's eth1
//!                            \________ the network that both are on ________/
//! ```
//! Times are by the runner's clock: each host's is asked for when a trial begins.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail};
use rig_stats::series::Track;
use rig_sys::cpu::CpuSet;
use rig_sys::piped::PipedProcess;
use rig_sys::probe;

use super::arrange::{Machine, arrange, machine_of};
use super::{
    ClockOffset, ContainerAccess, Environment, Facts, Host, HostInterface, Mark, Program, Remote, Sampled,
    StackSampling, Window,
};
use crate::frames::NodeFrames;
use crate::node::NodeRecord;
use crate::placement::DUT_NODE;
use crate::plan::Plan;
use crate::preflight::ReachableContainer;
use crate::requirements::{Missing, Settings};
use crate::sampler::NodeSample;
use crate::stacks::FoldedStacks;

/// A host of a group.
#[derive(Debug)]
pub struct HostOfNode {
    pub node: String,
    pub host: Remote,
    /// The interfaces that are taken for the node, one for each of its wires. Without any, those that lead to the other hosts are shared.
    pub taken: Vec<String>,
}

/// Hosts with one node each.
#[derive(Debug)]
pub struct HostGroup {
    name: String,
    members: Vec<HostOfNode>,
    /// What tells this group's hardware addresses from those of others on the same network.
    number: u16,
    /// Nodes of the plan that stands, in its order.
    nodes: Vec<String>,
    marks: RefCell<BTreeMap<u64, Vec<Mark>>>,
    next: Cell<u64>,
}

impl HostGroup {
    /// Those of nodes with different names. `number` is any: groups that are at work on one network at a time differ by it.
    pub fn new(members: Vec<HostOfNode>, number: u16) -> Self {
        let of = |HostOfNode { node, host, taken }: &HostOfNode| match taken.is_empty() {
            true => format!("{node}={}", host.name()),
            false => format!("{node}={}:{}", host.name(), taken.join(",")),
        };
        let name = members.iter().map(of).collect::<Vec<_>>().join(" ");
        Self { name, members, number, nodes: Vec::new(), marks: RefCell::default(), next: Cell::new(0) }
    }

    /// How many interfaces there are for what one wire between two nodes would be, of which a DUT has two.
    pub fn lanes(&self) -> u32 {
        let named = self.members.iter().filter(|member| !member.taken.is_empty());
        let of = |member: &HostOfNode| member.taken.len() / if member.node == DUT_NODE { 2 } else { 1 };
        u32::try_from(named.map(of).min().unwrap_or(usize::MAX)).unwrap_or(u32::MAX).max(1)
    }

    /// The number of a node's host.
    fn number_of(&self, node: &str) -> Result<usize> {
        machine_of(node, self.members.iter().map(|member| member.node.as_str()))
    }

    /// The host of a node.
    fn of_node(&self, node: &str) -> Result<&HostOfNode> {
        Ok(&self.members[self.number_of(node)?])
    }

    /// Asks all hosts, at the same time, and returns their answers in their order.
    fn each<T: Send>(&self, ask: impl Fn(&Remote) -> Result<T> + Sync) -> Result<Vec<T>> {
        self.with_each(&vec![(); self.members.len()], |host, ()| ask(host))
    }

    /// As [`Self::each`], each with what is for it.
    fn with_each<A: Sync, T: Send>(
        &self,
        asked: &[A],
        ask: impl Fn(&Remote, &A) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let ask = &ask;
        at_once(
            self.members
                .iter()
                .zip(asked)
                .map(|(member, asked)| move || ask(&member.host, asked).with_context(|| member.on())),
        )
    }

    /// What only one machine has.
    fn no_one<T>(&self) -> Result<T> {
        bail!("{} are several machines", self.name)
    }

    /// What hosts answered for their nodes, in the order of the plan.
    fn in_order<T>(&self, mut by_host: Vec<Vec<T>>) -> Vec<T> {
        let numbers: Vec<usize> = self.nodes.iter().filter_map(|node| self.number_of(node).ok()).collect();
        numbers.into_iter().flat_map(|number| std::mem::take(&mut by_host[number])).collect()
    }

    /// The parts of a mark, in the order of the hosts.
    fn parts(&self, mark: Mark) -> Result<Vec<Mark>> {
        let parts = self.marks.borrow().get(&mark.number).cloned();
        parts.context("find counters that were read: the mark is forgotten")
    }

    /// Has each host do its part, all at a time: an interface has no carrier before its other end is up.
    fn all<A: Sync>(&mut self, parts: &[A], act: impl Fn(&mut Remote, &A) -> Result<()> + Sync) -> Result<()> {
        let act = &act;
        let acts = self.members.iter_mut().zip(parts).map(|(member, part)| {
            move || {
                let on = member.on();
                act(&mut member.host, part).context(on)
            }
        });
        at_once(acts).map(drop)
    }
}

impl HostOfNode {
    fn on(&self) -> String {
        format!("on host {}", self.host.name())
    }
}

/// Each on a thread of its own; the first error when all have ended.
fn at_once<T: Send, F: FnOnce() -> Result<T> + Send>(acts: impl Iterator<Item = F>) -> Result<Vec<T>> {
    each_at_once(acts).into_iter().collect()
}

/// Each on a thread of its own: what came of each, when all have ended.
pub fn each_at_once<T: Send, F: FnOnce() -> Result<T> + Send>(acts: impl Iterator<Item = F>) -> Vec<Result<T>> {
    thread::scope(|scope| {
        let begun: Vec<_> = acts.map(|act| scope.spawn(act)).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<T>>| thread.join();
        begun
            .into_iter()
            .map(join)
            .map(|ended| ended.unwrap_or_else(|_| bail!("a thread that asks a host panicked")))
            .collect()
    })
}

/// By CPUs' numbers stacks are asked for, and kept.
fn no_stacks<T>() -> Result<T> {
    bail!("stacks of several machines cannot be sampled as one: each machine samples its own")
}

impl Host for HostGroup {
    fn name(&self) -> &str {
        &self.name
    }

    fn members(&self) -> Vec<(&str, &(dyn Host + Sync))> {
        self.members.iter().map(|member| (member.node.as_str(), &member.host as &(dyn Host + Sync))).collect()
    }

    fn member_of(&self, node: &str) -> Option<&(dyn Host + Sync)> {
        self.of_node(node).ok().map(|member| &member.host as &(dyn Host + Sync))
    }

    fn facts(&self) -> Result<Facts> {
        self.no_one()
    }

    fn environment(&self) -> Result<Environment> {
        let told = self.each(|host| Ok(Environment { cards: host.cards()?, ..host.environment()? }))?;
        let by_node = self.members.iter().zip(told);
        let by_node = by_node.map(|(member, environment)| (member.node.clone(), environment));
        Ok(Environment::of_several(by_node.collect()))
    }

    fn probe(&self, _: &[String]) -> Result<probe::Facts> {
        self.no_one()
    }

    fn cards(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        self.no_one()
    }

    fn interfaces(&self) -> Result<Vec<HostInterface>> {
        self.no_one()
    }

    fn missing(&self, datapath: &str, settings: &Settings) -> Result<Option<Missing>> {
        for member in &self.members {
            if let Some(Missing { found, remedy }) =
                member.host.missing(datapath, settings).with_context(|| member.on())?
            {
                return Ok(Some(Missing::new(format!("{}: {found}", member.host.name()), remedy)));
            }
        }
        Ok(None)
    }

    fn try_out(&self, datapath: &str) -> Result<()> {
        self.each(|host| host.try_out(datapath)).map(drop)
    }

    fn keep_off(&self, cpus: &CpuSet) -> Result<()> {
        self.each(|host| host.keep_off(cpus)).map(drop)
    }

    fn arrange(&self, plan: Plan) -> Result<Plan> {
        let interfaces = self.each(Host::interfaces)?;
        let of_host = self.members.iter().zip(&interfaces);
        let machines = of_host.map(|(HostOfNode { node, host, taken }, interfaces)| {
            let host = host.name();
            Machine { node, host, taken, interfaces }
        });
        let machines: Vec<Machine<'_>> = machines.collect();
        arrange(plan, &machines, self.number)
    }

    fn apply(&mut self, part: &Plan) -> Result<()> {
        let mut parts = vec![Plan::default(); self.members.len()];
        for node in &part.nodes {
            parts[self.number_of(&node.name)?].nodes.push(node.clone());
            if !self.nodes.contains(&node.name) {
                self.nodes.push(node.name.clone());
            }
        }
        self.all(&parts, |host, part| if part.nodes.is_empty() { Ok(()) } else { host.apply(part) })
    }

    fn use_containers(&mut self, containers: &BTreeMap<String, ContainerAccess>) -> Result<()> {
        let mut parts = vec![BTreeMap::new(); self.members.len()];
        for (space, access) in containers {
            let node = space.split('/').next().unwrap_or(space);
            parts[self.number_of(node)?].insert(space.clone(), access.clone());
        }
        self.all(&parts, |host, part| if part.is_empty() { Ok(()) } else { host.use_containers(part) })
    }

    fn check_networks(&self, containers: &[ReachableContainer], payload: u32) -> Result<()> {
        self.each(|host| host.check_networks(containers, payload)).map(drop)
    }

    fn start(&self, space: &str, program: &Program) -> Result<PipedProcess> {
        let node = space.split('/').next().unwrap_or(space);
        let member = self.of_node(node)?;
        member.host.start(space, program).with_context(|| member.on())
    }

    fn start_beside(&self, _: &Program) -> Result<PipedProcess> {
        self.no_one()
    }

    fn now(&self) -> Result<u64> {
        Ok(rig_sys::clock::monotonic_ns())
    }

    /// None, by a bound that is the worst of all hosts': times of marks are the runner's.
    fn clock(&self) -> Result<ClockOffset> {
        let bound = |host: &Remote| host.clock().map(|clock| clock.bound_ns);
        Ok(ClockOffset { ns: 0, bound_ns: self.each(bound)?.into_iter().max().unwrap_or_default() })
    }

    fn mark(&self) -> Result<Mark> {
        let began = self.now()?;
        let parts = self.each(Host::mark)?;
        let mark = Mark { number: self.next.get(), at_ns: began.midpoint(self.now()?) };
        self.next.set(mark.number + 1);
        self.marks.borrow_mut().insert(mark.number, parts);
        Ok(mark)
    }

    fn count_interrupts(&mut self) -> Result<()> {
        self.all(&vec![(); self.members.len()], |host, ()| host.count_interrupts())
    }

    fn between(&self, begin: Mark, end: Mark) -> Result<Window> {
        let edges: Vec<(Mark, Mark)> = self.parts(begin)?.into_iter().zip(self.parts(end)?).collect();
        let windows = self.with_each(&edges, |host, (begin, end)| host.between(*begin, *end))?;
        let throttled = windows.iter().filter_map(|window| window.throttled_us);
        let throttled_us = throttled.reduce(|one, other| one + other);
        let nodes: Vec<Vec<NodeRecord>> = windows.into_iter().map(|window| window.nodes).collect();
        Ok(Window { nodes: self.in_order(nodes), throttled_us })
    }

    fn forget(&self, mark: Mark) -> Result<()> {
        let parts = self.marks.borrow_mut().remove(&mark.number).unwrap_or_default();
        self.with_each(&parts, |host, part| host.forget(*part)).map(drop)
    }

    fn lost_frames(&self) -> Result<Vec<NodeFrames>> {
        Ok(self.in_order(self.each(Host::lost_frames)?))
    }

    fn start_sampling(&self) -> Result<()> {
        self.each(Host::start_sampling).map(drop)
    }

    fn sample(&self) -> Result<Vec<NodeSample>> {
        Ok(self.in_order(self.each(Host::sample)?))
    }

    fn end_sampling(&self) -> Result<Sampled> {
        let sampled = self.each(Host::end_sampling)?;
        let cost_ns = sampled.iter().map(|sampled| sampled.cost_ns).sum();
        let tracks: Vec<Vec<Track>> = sampled.into_iter().map(|sampled| sampled.tracks).collect();
        Ok(Sampled { tracks: self.in_order(tracks), cost_ns })
    }

    fn prepare_stacks(&self, _: &CpuSet) -> Result<()> {
        no_stacks()
    }

    fn start_stacks(&self, _: &CpuSet, _: u32) -> Result<StackSampling> {
        no_stacks()
    }

    fn stop_stacks(&self, _: StackSampling) -> Result<()> {
        no_stacks()
    }

    fn folded_stacks(&self, _: StackSampling) -> Result<FoldedStacks> {
        no_stacks()
    }

    fn tear_down(&mut self) -> Result<()> {
        self.nodes.clear();
        self.marks.get_mut().clear();
        self.all(&vec![(); self.members.len()], |host, ()| host.tear_down())
    }
}
