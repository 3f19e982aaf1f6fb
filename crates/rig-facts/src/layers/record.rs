//! From stacks to what a trial keeps of them.

use std::collections::{BTreeMap, HashMap};

use rig_sys::cpu::CpuSet;
use rig_testbed::stacks::{FoldedStacks, IDLE, KERNEL, SOFTIRQS};

use super::map::{LayerMatcher, Map, SampleLayers, UNKNOWN};
use super::total;
use crate::record::{
    CpuTimeOwner, CpuUse, Kind, LayerSamples, LayersRecord, NodeLayers, NodeRecord, Profile, TrialRecord,
};

/// The thread that takes the samples, which the measured window goes without.
const SAMPLER: &str = "netrig-stacks";
/// Where interrupts begin, on x86 and ARM; on the latter under other names in Linux 5.10.
const INTERRUPTS: [&str; 8] = [
    "asm_sysvec_",
    "sysvec_",
    "asm_common_interrupt",
    "common_interrupt",
    "el1_interrupt",
    "el0_interrupt",
    "el1_irq",
    "el0_irq",
];
/// Functions without a layer that are named.
const NAMED: usize = 20;

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Task, Self::Softirq, Self::Interrupt];

    /// The kind of work of a folded stack: that of the softirq or interrupt that was entered last, else that of a task.
    fn of(stack: &str) -> Self {
        let entered = |frame: &str| {
            let begins = |names: &[&str]| names.iter().any(|name| frame.starts_with(name));
            if begins(&SOFTIRQS) {
                Some(Self::Softirq)
            } else if frame.ends_with(KERNEL) && begins(&INTERRUPTS) {
                Some(Self::Interrupt)
            } else {
                None
            }
        };
        stack.rsplit(';').find_map(entered).unwrap_or_default()
    }
}

/// The stacks of the machines of all nodes.
#[derive(Debug)]
pub enum MachineStacks {
    One(FoldedStacks),
    /// By node.
    Each(BTreeMap<String, FoldedStacks>),
}

impl MachineStacks {
    fn of(&self, node: &str) -> Option<&FoldedStacks> {
        match self {
            Self::One(stacks) => Some(stacks),
            Self::Each(by_node) => by_node.get(node),
        }
    }

    /// With the node, where each has its own.
    fn all(&self) -> Vec<(Option<&str>, &FoldedStacks)> {
        match self {
            Self::One(stacks) => vec![(None, stacks)],
            Self::Each(by_node) => by_node.iter().map(|(node, stacks)| (Some(node.as_str()), stacks)).collect(),
        }
    }

    /// Two nodes on whose machines different clocks say when a sample is due, if there are such.
    pub fn of_two_clocks(&self) -> Option<[&str; 2]> {
        let all = self.all();
        let known = || all.iter().filter_map(|(node, stacks)| Some(((*node)?, stacks.clock?)));
        let (one, clock) = known().next()?;
        known().find(|(_, other)| *other != clock).map(|(other, _)| [one, other])
    }

    /// What is to be said of them, of which node where there are several.
    fn notes(&self) -> Vec<String> {
        let lost = |lost: u64| (lost > 0).then(|| format!("{lost} samples were due and did not come."));
        let of = |(node, stacks): (Option<&str>, &FoldedStacks)| -> Vec<String> {
            let notes = stacks.notes.iter().cloned().chain(lost(stacks.lost));
            notes.map(|note| node.map_or_else(|| note.clone(), |node| format!("{node}: {note}"))).collect()
        };
        self.all().into_iter().flat_map(of).collect()
    }
}

impl LayersRecord {
    /// Of `sampled`, the trial as it would be if the window of samples was its own, with `stacks` of it; `by_connection` where its load
    /// carries connections.
    pub fn new(map: &Map, stacks: &MachineStacks, sampled: &TrialRecord, by_connection: bool) -> Self {
        let cpus = |node: &NodeRecord| {
            let all = node.cpus.iter().map(|cpu| cpu.cpu);
            match sampled.dut.as_ref().filter(|_| CpuTimeOwner::Dut.is_of(sampled, node)) {
                Some(dut) => CpuSet::new(all.filter(|cpu| dut.workers.contains(cpu))),
                None => CpuSet::new(all),
            }
        };
        let nodes = sampled.nodes.iter().map(|node| {
            let cpus = cpus(node);
            let Some(stacks) = stacks.of(&node.name) else {
                return NodeLayers { node: node.name.clone(), ..NodeLayers::default() };
            };
            let profile = (sampled.ordinal == 1).then(|| Profile::of(stacks, &cpus));
            let counted = node.cpus.iter().filter(|cpu| cpus.as_slice().contains(&cpu.cpu)).map(CpuUse::busy);
            let busy_percent = counted.sum::<f64>() / cpus.as_slice().len().max(1) as f64;
            NodeLayers { profile, busy_percent, ..NodeLayers::new(map, stacks, &node.name, &cpus) }
        });
        let all = stacks.all();
        Self {
            map: map.digest(),
            layers: map.layers().iter().map(|layer| (layer.id.clone(), layer.title.clone())).collect(),
            hertz: all.first().map_or(0, |(_, stacks)| stacks.hertz),
            clock: all.iter().find_map(|(_, stacks)| stacks.clock),
            window_begin_ns: sampled.window_begin_ns,
            window_end_ns: sampled.window_end_ns,
            nodes: nodes.collect(),
            totals: CpuTimeOwner::ALL
                .into_iter()
                .filter_map(|end| Some((end, total(sampled, end, by_connection)?.0)))
                .collect(),
            by_connection,
            notes: stacks.notes(),
        }
    }
}

impl NodeLayers {
    fn new(map: &Map, stacks: &FoldedStacks, node: &str, cpus: &CpuSet) -> Self {
        let mut new = Self { node: node.to_owned(), cpus: cpus.as_slice().to_vec(), ..Self::default() };
        let mut placing = LayerMatcher::new(map);
        let mut parts = BTreeMap::<_, u64>::new();
        let mut unknown = HashMap::<&str, u64>::new();
        for (stack, count) in stacks.of(cpus) {
            let thread = stack.split(';').next().unwrap_or_default();
            match thread {
                IDLE => new.idle += count,
                SAMPLER => new.own += count,
                _ => {
                    let kind = Kind::of(stack);
                    let place = placing.place(stack, kind);
                    *parts.entry((place, kind)).or_default() += count;
                    if map.layers()[place.own].id == UNKNOWN {
                        let innermost = stack.rsplit(';').next().unwrap_or(stack);
                        *unknown.entry(innermost).or_default() += count;
                    }
                }
            }
        }
        new.awake = stacks.awake(cpus);
        let part = |((place, kind), samples): ((SampleLayers, Kind), u64)| LayerSamples {
            kind,
            layer: place.own,
            caller: place.caller,
            samples,
        };
        new.parts = parts.into_iter().map(part).collect();
        new.unknown = unknown.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        new.unknown.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        new.unknown.truncate(NAMED);
        new
    }

    /// Of CPUs that were not idle.
    pub fn busy(&self) -> u64 {
        self.parts.iter().map(|part| part.samples).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_machines_are_told_apart() {
        use rig_sys::perf::Clock;

        let of = |clock, lost, note: &str| {
            let mut stacks = FoldedStacks::default();
            (stacks.clock, stacks.lost, stacks.notes) = (clock, lost, vec![note.to_owned()]);
            stacks
        };
        let each = |clocks: [Option<Clock>; 2]| {
            let stacks = clocks.map(|clock| of(clock, 0, "a note"));
            MachineStacks::Each(["a", "b"].map(str::to_owned).into_iter().zip(stacks).collect())
        };
        let (cycles, timer) = (Some(Clock::Cycles), Some(Clock::CpuClock));
        assert_eq!(each([cycles, timer]).of_two_clocks(), Some(["a", "b"]));
        for clocks in [[cycles, cycles], [timer, timer], [None, timer]] {
            assert_eq!(each(clocks).of_two_clocks(), None);
        }
        assert!(each([cycles, cycles]).of("c").is_none());
        assert_eq!(each([cycles, cycles]).notes(), ["a: a note", "b: a note"]);
        let one = MachineStacks::One(of(timer, 2, "a note"));
        assert_eq!((one.of_two_clocks(), one.of("c").is_some()), (None, true));
        assert_eq!(one.notes(), ["a note", "2 samples were due and did not come."]);
    }

    #[test]
    fn a_stack_is_of_what_it_went_into_last() {
        let kind = |functions: &str| {
            Kind::of(&format!("load-0;main{}", functions.split(' ').map(|f| format!(";{f}_[k]")).collect::<String>()))
        };
        assert_eq!(kind("do_syscall_64 tcp_sendmsg"), Kind::Task);
        assert_eq!(
            kind("do_syscall_64 tcp_sendmsg __local_bh_enable_ip do_softirq handle_softirqs veth_poll"),
            Kind::Softirq
        );
        assert_eq!(
            kind("asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt __irq_exit_rcu handle_softirqs x"),
            Kind::Softirq
        );
        assert_eq!(kind("handle_softirqs x asm_common_interrupt common_interrupt vring_interrupt"), Kind::Interrupt);
        assert_eq!(kind("tcp_sendmsg el1_irq gic_handle_irq __handle_domain_irq vring_interrupt"), Kind::Interrupt);
        assert_eq!(kind("tcp_sendmsg el1_irq gic_handle_irq irq_exit __do_softirq net_rx_action"), Kind::Softirq);
        assert_eq!(Kind::of("load-0;sysvec_of_ours"), Kind::Task);
    }
}
