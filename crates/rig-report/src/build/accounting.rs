//! How CPU time was counted, in sentences.

use std::collections::BTreeMap;

use rig_study::record::{Accounting, NodeRecord, NodeShare, TrialRecord};

/// The way, and what it cost; nothing of trials of older versions, which say nothing else than clock ticks.
pub fn way<'a>(trials: impl IntoIterator<Item = &'a TrialRecord> + Clone) -> Option<String> {
    let mut ways: Vec<Accounting> = Vec::new();
    let mut met_idle = false;
    for cpu in trials.clone().into_iter().flat_map(|trial| &trial.nodes).flat_map(|node| &node.cpus) {
        if !ways.contains(&cpu.accounting) {
            ways.push(cpu.accounting);
        }
        met_idle |= cpu.irq_met_idle;
    }
    if ways.iter().all(|way| *way == Accounting::Ticks) {
        return None;
    }
    let words: Vec<&str> = ways.iter().map(|way| way.words()).collect();
    let mut text = format!("CPU time: {}.", words.join("; or "));
    if met_idle {
        text += " Interrupts that met work are counted with it: irq is of those that met an idle CPU.";
    }
    if let Some(cost) = cost("Counting it", trials) {
        text = format!("{text} {cost}");
    }
    Some(text)
}

/// What the exact count itself took, which every CPU figure contains and the load had not; `None` where nothing was counted so.
/// The sentence begins with `what`.
fn cost<'a>(what: &str, trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    let (mut all, mut both) = (Vec::new(), false);
    for trial in trials {
        let mut of_cpus: BTreeMap<(usize, u32), f64> = BTreeMap::new();
        let same = on_one_machine(trial);
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

/// Whether both ends of a test have one clock, which no two machines have.
fn on_one_machine(trial: &TrialRecord) -> bool {
    trial.clocks.is_some_and(|clocks| clocks.offset_ns.unsigned_abs() <= clocks.bound_ns)
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
    let names = trials.first()?.nodes.iter().map(|node| node.name.as_str());
    let of_node = |name: &str| {
        let nodes = trials.iter().flat_map(|trial| &trial.nodes);
        let found: Vec<NodeShare> =
            nodes.filter(|node: &&NodeRecord| node.name == name).filter_map(|node| node.share).collect();
        let mean = |part: fn(&NodeShare) -> f64| found.iter().map(part).sum::<f64>() / found.len() as f64;
        (!found.is_empty()).then(|| {
            format!(
                "{name}: processes {:.1} %, polling its devices {:.1} %, packets queued to CPUs (backlog) {:.1} %",
                mean(|share| share.processes),
                mean(|share| share.network),
                mean(|share| share.queues)
            )
        })
    };
    let words: Vec<String> = names.filter_map(of_node).collect();
    (!words.is_empty()).then(|| format!("Of that, by this test, in percent of one CPU: {}.", words.join("; ")))
}

#[cfg(test)]
mod tests {
    use rig_study::record::{Clocks, CpuUse};

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
            protocol: rig_study::record::ProtocolDelta::default(),
            share: None,
        }
    }

    fn trial(nodes: [NodeRecord; 2], offset_ns: Option<i64>) -> TrialRecord {
        let clocks = |offset_ns| Clocks { offset_ns, bound_ns: 10, round_trips: 1, shortest_ns: 20, longest_ns: 20 };
        let mut trial = rig_study::fixture::trial(&rig_study::fixture::TrialOptions::default());
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
        let way = way(&[trial(counted(), None)]).unwrap();
        assert!(way.starts_with("CPU time: exact") && way.ends_with(alone) && !way.contains("idle"), "{way}");
    }

    #[test]
    fn what_is_not_counted_exactly_costs_nothing_and_says_nothing() {
        let by_clock = [node("a", &[None]), node("b", &[None])];
        assert_eq!(cost("Counting it", &[trial(by_clock.clone(), None)]), None);
        assert!(way(&[trial(by_clock, None)]).is_some_and(|way| !way.contains("Counting")));
    }

    #[test]
    fn interrupts_that_are_counted_to_what_they_meet_are_told() {
        let mut nodes = [node("a", &[Some(0.1)]), node("b", &[Some(0.1)])];
        nodes[0].cpus[0].irq_met_idle = true;
        let way = way(&[trial(nodes, None)]).unwrap();
        assert!(way.contains("irq is of those that met an idle CPU. Counting it took 0.10 %"), "{way}");
    }
}
