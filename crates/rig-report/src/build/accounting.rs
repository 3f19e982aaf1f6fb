//! How CPU time was counted, in sentences.

use std::collections::{BTreeMap, BTreeSet};

use rig_facts::record::{Accounting, CpuUse, NodeRecord, NodeShare, TrialRecord};

/// The way, of which each CPU figure and its parts are; nothing of trials of older versions, which say nothing else than clock ticks.
pub fn way<'a>(trials: impl IntoIterator<Item = &'a TrialRecord> + Clone) -> Option<String> {
    let mut text = said(trials.clone(), Accounting::words)?;
    if cpus(trials).any(|(_, cpu)| cpu.irq_met_idle) {
        text += " irq is the time of interrupts that came while a CPU was idle; others count to the work that they interrupted.";
    }
    Some(text)
}

/// The way and what it cost, where parts of CPU time are not shown.
pub fn way_of_sums(trials: &[TrialRecord]) -> Option<String> {
    let way = said(trials, Accounting::whole)?;
    let cost = cost("Counting it", trials).map_or_else(String::new, |cost| format!(" {cost}"));
    Some(way + &cost)
}

fn cpus<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> impl Iterator<Item = (&'a str, &'a CpuUse)> {
    let nodes = trials.into_iter().flat_map(|trial| &trial.nodes);
    nodes.flat_map(|node| node.cpus.iter().map(|cpu| (node.name.as_str(), cpu)))
}

fn said<'a>(
    trials: impl IntoIterator<Item = &'a TrialRecord>,
    words: fn(Accounting) -> &'static str,
) -> Option<String> {
    let mut ways: Vec<(Accounting, BTreeSet<&str>)> = Vec::new();
    for (node, cpu) in cpus(trials) {
        match ways.iter_mut().find(|(known, _)| *known == cpu.accounting) {
            Some((_, nodes)) => drop(nodes.insert(node)),
            None => ways.push((cpu.accounting, BTreeSet::from([node]))),
        }
    }
    if ways.iter().all(|(way, _)| *way == Accounting::Ticks) {
        return None;
    }
    let of = |(way, nodes): &(Accounting, BTreeSet<&str>)| match ways.len() {
        1 => words(*way).to_owned(),
        _ => format!("of {} {}", nodes.iter().copied().collect::<Vec<_>>().join(", "), words(*way)),
    };
    Some(format!("CPU time: {}.", ways.iter().map(of).collect::<Vec<_>>().join("; ")))
}

/// What the exact count itself took, which every CPU figure contains and the load had not; `None` where nothing was counted so.
/// The sentence begins with `what`.
fn cost<'a>(what: &str, trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    let (mut all, mut both) = (Vec::new(), false);
    for trial in trials {
        let mut of_cpus: BTreeMap<(usize, u32), f64> = BTreeMap::new();
        let same = trial.is_on_one_machine();
        for (number, node) in trial.nodes.iter().enumerate() {
            for cpu in &node.cpus {
                let Some(percent) = cpu.counting else { continue };
                // Each end's programs run on all CPUs, so that on one machine both take their part of each.
                *of_cpus.entry((if same { 0 } else { number }, cpu.cpu)).or_default() += percent;
            }
        }
        both |= same && trial.nodes.iter().all(|node| node.cpus.iter().any(|cpu| cpu.counting.is_some()));
        all.extend(of_cpus.into_values());
    }
    let most = all.iter().copied().reduce(f64::max)?;
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let who = if both { ", which both ends do on this machine," } else { "" };
    Some(format!(
        "{what}{who} took {mean:.2} % of the CPUs' time, at most {most:.2} % of one CPU: it is in these figures."
    ))
}

/// For the first lines of a report, beside the figures that they tell.
pub fn cost_by_itself<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    cost("Counting CPU time exactly", trials)
}

/// For a comparison of a scenario with itself: what neither side of it was without.
pub fn cost_of_both<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    cost("Counting CPU time exactly in both", trials)
}

/// What each end used and caused by itself, which differs from its machine's CPU time where that does other work, too.
pub fn shares(trials: &[TrialRecord]) -> Option<String> {
    // The CPUs' backlogs are then the same ones, which both ends have counted.
    let same = trials.iter().all(TrialRecord::is_on_one_machine);
    let of = |is_of: &dyn Fn(&NodeRecord) -> bool, part: fn(&NodeShare) -> f64| {
        let nodes = trials.iter().flat_map(|trial| &trial.nodes).filter(|node| is_of(node));
        let found: Vec<f64> = nodes.filter_map(|node| node.share.as_ref().map(part)).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
    };
    let backlogs = |mean: f64| format!("the CPUs' backlogs (loopback, veth, RPS) {mean:.1} %");
    let of_node = |name: &str| {
        let mean = |part| of(&|node| node.name == name, part);
        let (processes, network, queues) =
            (mean(|share| share.processes)?, mean(|share| share.network)?, mean(|share| share.queues)?);
        let queues = if same { String::new() } else { format!(", {}", backlogs(queues)) };
        Some(format!("{name}: processes {processes:.1} %, NAPI polling of its interfaces {network:.1} %{queues}"))
    };
    let mut words: Vec<String> = trials.first()?.nodes.iter().filter_map(|node| of_node(&node.name)).collect();
    if same {
        words.extend(of(&|_| true, |share| share.queues).map(|mean| format!("both together: {}", backlogs(mean))));
    }
    (!words.is_empty()).then(|| format!("Of that this test took, in percent of one CPU: {}.", words.join("; ")))
}

#[cfg(test)]
mod tests {
    use rig_facts::record::Clocks;

    use super::*;

    fn node(name: &str, counting: &[Option<f64>]) -> NodeRecord {
        let cpu = |(cpu, &counting): (usize, &Option<f64>)| CpuUse {
            cpu: cpu as u32,
            accounting: counting.map_or(Accounting::IdleClock, |_| Accounting::Exact),
            counting,
            ..CpuUse::default()
        };
        NodeRecord {
            name: name.into(),
            cpus: counting.iter().enumerate().map(cpu).collect(),
            interfaces: Vec::new(),
            protocol: rig_facts::record::ProtocolDelta::default(),
            share: None,
        }
    }

    fn trial(nodes: [NodeRecord; 2], offset_ns: Option<i64>) -> TrialRecord {
        let clocks = |offset_ns| Clocks { offset_ns, bound_ns: 10, round_trips: 1, shortest_ns: 20, longest_ns: 20 };
        let mut trial = rig_facts::fixture::trial(&rig_facts::fixture::TrialOptions::default());
        (trial.nodes, trial.clocks) = (nodes.into(), offset_ns.map(clocks));
        trial
    }

    #[test]
    fn what_the_count_took_stands_beside_its_way() {
        let counted = || [node("client", &[Some(0.2), Some(0.4)]), node("server", &[Some(0.1), Some(0.3)])];
        let said = |offset_ns| cost("Counting it", &[trial(counted(), offset_ns)]).unwrap();
        let alone = "Counting it took 0.25 % of the CPUs' time, at most 0.40 % of one CPU: it is in these figures.";
        assert_eq!(said(None), alone);
        assert_eq!(said(Some(-11)), alone, "two machines");
        assert_eq!(
            said(Some(-10)),
            "Counting it, which both ends do on this machine, took 0.50 % of the CPUs' time, at most 0.70 % of one CPU: it is in \
             these figures."
        );
        let trials = [trial(counted(), None)];
        assert_eq!(
            way_of_sums(&trials).unwrap(),
            format!("CPU time: exact, counted by eBPF at each task switch, softirq and interrupt. {alone}")
        );
        let way = way(&trials).unwrap();
        assert!(way.ends_with("; user and system are split by clock ticks."), "what it cost stands elsewhere: {way}");
    }

    #[test]
    fn what_is_not_counted_exactly_costs_nothing_and_says_nothing() {
        let by_clock = [node("a", &[None]), node("b", &[None])];
        assert_eq!(cost("Counting it", &[trial(by_clock.clone(), None)]), None);
        assert!(way(&[trial(by_clock, None)]).is_some_and(|way| !way.contains("Counting")));
    }

    #[test]
    fn what_both_ends_of_one_machine_have_counted_is_told_once() {
        let nodes = || {
            let share = |processes, queues| Some(NodeShare { processes, network: 0.5, queues });
            [("client", share(40.0, 24.6)), ("server", share(30.0, 24.8))]
                .map(|(name, share)| NodeRecord { share, ..node(name, &[]) })
        };
        let said = |offset_ns| shares(&[trial(nodes(), offset_ns)]).unwrap();
        let begin = "Of that this test took, in percent of one CPU: client: processes 40.0 %, NAPI polling of its interfaces 0.5 %";
        assert_eq!(
            said(Some(-11)),
            format!(
                "{begin}, the CPUs' backlogs (loopback, veth, RPS) 24.6 %; server: processes 30.0 %, NAPI polling of its \
                 interfaces 0.5 %, the CPUs' backlogs (loopback, veth, RPS) 24.8 %."
            )
        );
        assert_eq!(
            said(Some(-10)),
            format!(
                "{begin}; server: processes 30.0 %, NAPI polling of its interfaces 0.5 %; both together: the CPUs' \
                 backlogs (loopback, veth, RPS) 24.7 %."
            )
        );
        assert_eq!(shares(&[trial([node("client", &[]), node("server", &[])], Some(-10))]), None);
    }

    #[test]
    fn machines_that_count_in_other_ways_are_told_apart() {
        let nodes = [node("client", &[None]), node("server", &[Some(0.1)])];
        let way = way_of_sums(&[trial(nodes, None)]).unwrap();
        let begin = "CPU time: of client the kernel's clock of idle time, to 10 ms; of server exact, counted by eBPF";
        assert!(way.starts_with(begin), "{way}");
    }

    #[test]
    fn interrupts_that_are_counted_to_what_they_meet_are_told() {
        let mut nodes = [node("a", &[Some(0.1)]), node("b", &[Some(0.1)])];
        nodes[0].cpus[0].irq_met_idle = true;
        let way = way(&[trial(nodes, None)]).unwrap();
        assert!(way.contains(" irq is the time of interrupts that came while a CPU was idle"), "{way}");
    }
}
