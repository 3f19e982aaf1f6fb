//! Stacks of the nodes' CPUs. Where nodes are on several machines, each of these samples its own: their CPUs have the same numbers.

use anyhow::{Result, bail};
use rig_facts::flame::FoldedStacks;
use rig_facts::layers::{HERTZ, MachineStacks};
use rig_sys::cpu::CpuSet;
use rig_testbed::Testbed;
use rig_testbed::host::{Host, StackSampling};
use rig_testbed::topology::Node;

/// The host of a node's machine.
pub(super) fn host_of<'a>(host: &'a dyn Host, node: &str) -> &'a dyn Host {
    host.member_of(node).unwrap_or(host)
}

/// Makes ready to sample stacks of these CPUs, or, where nodes are on several machines, of all that netrig may use there.
///
/// # Errors
/// When a host cannot sample stacks, its machine does not let them be sampled, or two machines sample by different clocks.
pub fn prepare_stacks(host: &dyn Host, cpus: &CpuSet) -> Result<()> {
    let members = host.members();
    if members.is_empty() {
        return host.prepare_stacks(cpus);
    }
    let sampled = members.into_iter().map(|(node, member)| {
        let cpus = member.facts()?.cpus;
        member.prepare_stacks(&cpus)?;
        // What it samples by is known once it does.
        let sampling = member.start_stacks(&cpus, HERTZ)?;
        member.stop_stacks(sampling)?;
        Ok((node.to_owned(), member.folded_stacks(sampling)?))
    });
    of_one_clock(sampled.collect::<Result<_>>().map(MachineStacks::Each)?).map(drop)
}

fn of_one_clock(stacks: MachineStacks) -> Result<MachineStacks> {
    if let Some([one, other]) = stacks.of_two_clocks() {
        bail!(
            "the machines of {one} and {other} sample by different clocks (`netrig doctor` on each says which): their samples \
             cannot be set side by side"
        );
    }
    Ok(stacks)
}

/// What is being sampled, or was: of all nodes' CPUs, or of each node's, by its name.
#[derive(Debug, Clone)]
pub(super) struct Sampling(Vec<(Option<String>, StackSampling)>);

impl Sampling {
    /// Begins.
    pub(super) fn of_nodes(testbed: &Testbed<'_>) -> Result<Self> {
        let host = testbed.host();
        let nodes = testbed.topology().nodes().iter().enumerate();
        if host.members().is_empty() {
            let cpus = nodes.flat_map(|(number, _)| testbed.cpus(number).as_slice().to_vec());
            return Ok(Self(vec![(None, host.start_stacks(&CpuSet::new(cpus), HERTZ)?)]));
        }
        let start = |(number, node): (usize, &Node)| {
            let sampling = host_of(host, &node.name).start_stacks(testbed.cpus(number), HERTZ)?;
            Ok((Some(node.name.clone()), sampling))
        };
        let mut begun = Self(Vec::new());
        for sampling in nodes.map(start) {
            match sampling {
                Ok(sampling) => begun.0.push(sampling),
                Err(error) => {
                    // The first failure is the one to tell.
                    let _also = begun.stop(host);
                    return Err(error);
                }
            }
        }
        Ok(begun)
    }

    fn each<'a>(
        &'a self,
        host: &'a dyn Host,
    ) -> impl Iterator<Item = (&'a Option<String>, &'a dyn Host, StackSampling)> {
        self.0.iter().map(move |(node, sampling)| {
            let host = node.as_ref().map_or(host, |node| host_of(host, node));
            (node, host, *sampling)
        })
    }

    /// Ends all of it, also where one does not end well.
    pub(super) fn stop(&self, host: &dyn Host) -> Result<()> {
        let ended: Vec<Result<()>> = self.each(host).map(|(_, host, sampling)| host.stop_stacks(sampling)).collect();
        ended.into_iter().collect()
    }

    /// What was sampled, with names.
    pub(super) fn folded(&self, host: &dyn Host) -> Result<MachineStacks> {
        let folded = self.each(host).map(|(node, host, sampling)| Ok((node.clone(), host.folded_stacks(sampling)?)));
        let mut folded = folded.collect::<Result<Vec<(Option<String>, FoldedStacks)>>>()?;
        if let Some((_, of_all)) = folded.pop_if(|(node, _)| node.is_none()) {
            return Ok(MachineStacks::One(of_all));
        }
        let by_node = folded.into_iter().filter_map(|(node, stacks)| Some((node?, stacks)));
        // Of other CPUs, perhaps, than those that were asked before.
        of_one_clock(MachineStacks::Each(by_node.collect()))
    }
}
