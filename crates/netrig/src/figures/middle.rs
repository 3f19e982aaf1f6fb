//! The figures of the node between the ends. They are written with the client's side, as the trial's own are.

use crate::claim::{FigureError, FigureRef, Metric};
use crate::record::{CpuUse, MiddleRecord, TrialRecord};

/// The figures that only paths with a node in the middle have.
pub(super) fn is_own(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::MiddlePacketsIn
            | Metric::MiddlePacketsOut
            | Metric::MiddleBitsIn
            | Metric::MiddleBitsOut
            | Metric::MiddleConnections
            | Metric::MiddleCpu
            | Metric::MiddleDrops
    )
}

pub(super) fn figure(record: &TrialRecord, metric: Metric) -> Option<f64> {
    let middle = record.middle.as_ref()?;
    let rate = |count: u64| Some(count as f64 / record.seconds());
    match metric {
        Metric::MiddlePacketsIn => rate(middle.in_packets),
        Metric::MiddlePacketsOut => rate(middle.out_packets),
        Metric::MiddleBitsIn => rate(middle.in_bytes.saturating_mul(8)),
        Metric::MiddleBitsOut => rate(middle.out_bytes.saturating_mul(8)),
        Metric::MiddleConnections => middle.connections.map(|count| count as f64),
        Metric::MiddleCpu => cpu(record, middle),
        Metric::MiddleDrops => Some(middle.drops.iter().map(|(_, count)| count).sum::<u64>() as f64),
        _ => None,
    }
}

/// Mean over the CPUs that carried packets; `None` where one of them was the load's too, because a CPU's time is not told
/// apart by whose it is.
fn cpu(record: &TrialRecord, middle: &MiddleRecord) -> Option<f64> {
    if middle.workers.is_empty() || middle.workers.iter().any(|cpu| middle.shared.contains(cpu)) {
        return None;
    }
    let uses = || record.nodes.iter().flat_map(|node| &node.cpus);
    let busy = |cpu: &u32| uses().find(|one| one.cpu == *cpu).map(CpuUse::busy);
    let busy: Vec<f64> = middle.workers.iter().map(busy).collect::<Option<_>>()?;
    Some(busy.iter().sum::<f64>() / busy.len() as f64)
}

/// Whether trials of a scenario have the figure: only with a node in the middle, of which `has_middle` tells.
pub fn check(has_middle: bool, figure: &FigureRef) -> Result<(), FigureError> {
    let FigureRef { scenario, metric, .. } = figure;
    if has_middle || !is_own(*metric) {
        return Ok(());
    }
    Err(FigureError {
        what: format!("nothing stands between the ends of scenario `{scenario}`, so that it has no {metric}"),
        hint: "name a scenario of a path with a node in the middle, or a figure of one of its ends".to_owned(),
    })
}
