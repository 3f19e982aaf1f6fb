//! Stacks of the nodes' CPUs. Where nodes are on several machines, each of these samples its own: their CPUs have the same numbers.

use anyhow::{Context, Result, bail};
use rig_facts::flame::FoldedStacks;
use rig_facts::layers::{HERTZ, MachineStacks};
use rig_sys::cpu::CpuSet;
use rig_testbed::Testbed;
use rig_testbed::host::{Host, StackSampling, each_at_once};

/// The host of a node's machine.
pub(super) fn host_of<'a>(host: &'a dyn Host, node: &str) -> &'a dyn Host {
    match host.member_of(node) {
        Some(member) => member,
        None => host,
    }
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
        move || {
            let cpus = member.facts()?.cpus;
            member.prepare_stacks(&cpus)?;
            // What it samples by is known once it does.
            let sampling = member.start_stacks(&cpus, HERTZ)?;
            member.stop_stacks(sampling)?;
            Ok((node.to_owned(), member.folded_stacks(sampling)?))
        }
    });
    let sampled = each_at_once(sampled).into_iter().collect::<Result<_>>();
    of_one_clock(sampled.map(MachineStacks::Each)?).map(drop)
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
pub(super) enum Sampling {
    All(StackSampling),
    Each(Vec<(String, StackSampling)>),
}

type Machine<'a> = &'a (dyn Host + Sync);

fn machine_of<'a>(host: &'a dyn Host, node: &str) -> Result<Machine<'a>> {
    host.member_of(node).with_context(|| format!("find the host of node {node}"))
}

impl Sampling {
    /// Begins, on several machines at the same time: windows of samples that began one after the other would be of different parts of the load.
    pub(super) fn of_nodes(testbed: &Testbed<'_>) -> Result<Self> {
        let host = testbed.host();
        let nodes = testbed.topology().nodes().iter().enumerate();
        if host.members().is_empty() {
            let cpus = nodes.flat_map(|(number, _)| testbed.cpus(number).as_slice().to_vec());
            return Ok(Self::All(host.start_stacks(&CpuSet::new(cpus), HERTZ)?));
        }
        let machines =
            nodes.map(|(number, node)| Ok((&node.name, testbed.cpus(number), machine_of(host, &node.name)?)));
        let machines = machines.collect::<Result<Vec<_>>>()?;
        let starts = machines
            .into_iter()
            .map(|(node, cpus, machine)| move || Ok((node.clone(), machine.start_stacks(cpus, HERTZ)?)));
        let (mut begun, mut failed) = (Vec::new(), None);
        for sampling in each_at_once(starts) {
            match sampling {
                Ok(sampling) => begun.push(sampling),
                // The first failure is the one to tell.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let begun = Self::Each(begun);
        match failed {
            None => Ok(begun),
            Some(error) => {
                let _also = begun.stop(host);
                Err(error)
            }
        }
    }

    /// Ends all of it, also where one does not end well.
    pub(super) fn stop(&self, host: &dyn Host) -> Result<()> {
        match self {
            Self::All(sampling) => host.stop_stacks(*sampling),
            Self::Each(all) => {
                ask_each(host, all, |machine, sampling| machine.stop_stacks(sampling))?.into_iter().collect()
            }
        }
    }

    /// What was sampled, with names.
    pub(super) fn folded(&self, host: &dyn Host) -> Result<MachineStacks> {
        let all = match self {
            Self::All(sampling) => return Ok(MachineStacks::One(host.folded_stacks(*sampling)?)),
            Self::Each(all) => all,
        };
        let folded = ask_each(host, all, |machine, sampling| machine.folded_stacks(sampling))?;
        let folded = folded.into_iter().collect::<Result<Vec<FoldedStacks>>>()?;
        let by_node = all.iter().map(|(node, _)| node.clone()).zip(folded);
        // Of other CPUs, perhaps, than those that were asked before.
        of_one_clock(MachineStacks::Each(by_node.collect()))
    }
}

/// Asks the machine of each node, all at the same time.
fn ask_each<T: Send>(
    host: &dyn Host,
    all: &[(String, StackSampling)],
    ask: impl Fn(Machine<'_>, StackSampling) -> Result<T> + Sync,
) -> Result<Vec<Result<T>>> {
    let of = |(node, sampling): &(String, StackSampling)| Ok((machine_of(host, node)?, *sampling));
    let asked = all.iter().map(of).collect::<Result<Vec<_>>>()?;
    let ask = &ask;
    Ok(each_at_once(asked.into_iter().map(|(machine, sampling)| move || ask(machine, sampling))))
}
