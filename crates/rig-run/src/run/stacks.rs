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

fn node_machine<'a>(host: &'a dyn Host, node: &str) -> Result<Machine<'a>> {
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
            nodes.map(|(number, node)| Ok((&node.name, testbed.cpus(number), node_machine(host, &node.name)?)));
        let machines = machines.collect::<Result<Vec<_>>>()?;
        let starts = machines
            .into_iter()
            .map(|(node, cpus, machine)| move || Ok((node.clone(), machine.start_stacks(cpus, HERTZ)?)));
        let (begun, failed) = Self::begun(starts);
        match failed {
            None => Ok(begun),
            Some(error) => {
                let _also = begun.stop(host);
                Err(error)
            }
        }
    }

    /// What has begun, and the first failure, which is the one to tell.
    fn begun<F>(starts: impl Iterator<Item = F>) -> (Self, Option<anyhow::Error>)
    where
        F: FnOnce() -> Result<(String, StackSampling)> + Send,
    {
        let (mut begun, mut failed) = (Vec::new(), None);
        for sampling in each_at_once(starts) {
            match sampling {
                Ok(sampling) => begun.push(sampling),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        (Self::Each(begun), failed)
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
    let of = |(node, sampling): &(String, StackSampling)| Ok((node_machine(host, node)?, *sampling));
    let asked = all.iter().map(of).collect::<Result<Vec<_>>>()?;
    let ask = &ask;
    Ok(each_at_once(asked.into_iter().map(|(machine, sampling)| move || ask(machine, sampling))))
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    use super::*;

    fn sampling(number: u64) -> StackSampling {
        serde_json::from_value(number.into()).unwrap()
    }

    /// Each machine's sampling begins once those of all others are under way: one after the other they would wait for ever.
    #[test]
    fn samplings_of_all_machines_are_under_way_at_once() {
        let (under_way, changed) = (Mutex::new(0), Condvar::new());
        let start = |node: &'static str, number: u64| {
            let (under_way, changed) = (&under_way, &changed);
            move || {
                let mut count = under_way.lock().unwrap();
                *count += 1;
                changed.notify_all();
                let waited = changed.wait_timeout_while(count, Duration::from_secs(60), |count| *count < 3).unwrap();
                if waited.1.timed_out() {
                    bail!("{node} began alone");
                }
                Ok((node.to_owned(), sampling(number)))
            }
        };
        let (begun, failed) = Sampling::begun([start("a", 1), start("b", 2), start("dut", 3)].into_iter());
        assert!(failed.is_none(), "{failed:?}");
        let Sampling::Each(begun) = begun else { panic!("one sampling of three machines") };
        let begun: Vec<_> = begun.iter().map(|(node, own)| (node.as_str(), *own)).collect();
        assert_eq!(begun, [("a", sampling(1)), ("b", sampling(2)), ("dut", sampling(3))]);
    }

    #[test]
    fn what_has_begun_beside_a_failure_is_known_so_that_it_can_be_stopped() {
        let start = |node: &'static str| {
            move || match node {
                "a" | "c" => bail!("{node} fails"),
                _ => Ok((node.to_owned(), sampling(7))),
            }
        };
        let (begun, failed) = Sampling::begun([start("a"), start("b"), start("c")].into_iter());
        assert_eq!(failed.map(|error| error.to_string()).as_deref(), Some("a fails"));
        assert!(matches!(begun, Sampling::Each(own) if own == [("b".to_owned(), sampling(7))]));
    }
}
