//! How CPU time was counted, in sentences.

use rig_study::record::{Accounting, NodeRecord, NodeShare, TrialRecord};

/// The way, and what it cost; nothing of trials of older versions, which say nothing else than clock ticks.
pub fn way<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    let mut ways: Vec<Accounting> = Vec::new();
    let mut cost: Option<f64> = None;
    for cpu in trials.into_iter().flat_map(|trial| &trial.nodes).flat_map(|node| &node.cpus) {
        if !ways.contains(&cpu.accounting) {
            ways.push(cpu.accounting);
        }
        cost = cost.into_iter().chain(cpu.counting).reduce(f64::max);
    }
    if ways.iter().all(|way| *way == Accounting::Ticks) {
        return None;
    }
    let words: Vec<&str> = ways.iter().map(|way| way.words()).collect();
    let cost =
        cost.map_or_else(String::new, |percent| format!(" Counting itself took at most {percent:.2} % of a CPU."));
    Some(format!("CPU time: {}.{cost}", words.join("; or ")))
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
