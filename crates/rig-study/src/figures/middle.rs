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

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::claim::Side;
    use crate::record::NodeRecord;

    /// A middle of two workers on CPUs of its own.
    pub fn middle() -> MiddleRecord {
        MiddleRecord {
            workers: vec![4, 5],
            shared: Vec::new(),
            system: "netrig".into(),
            in_packets: 6000,
            in_bytes: 500_000,
            out_packets: 5990,
            out_bytes: 499_000,
            connections: Some(77),
            memory_bytes: None,
            services: Vec::new(),
            drops: vec![("no backend".into(), 7), ("table full".into(), 3)],
            profile: None,
        }
    }

    fn record() -> TrialRecord {
        let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
        let mut record: TrialRecord = serde_json::from_str(text).unwrap();
        (record.window_begin_ns, record.window_end_ns) = (1_000_000_000, 3_000_000_000);
        let cpu = |cpu, softirq| CpuUse { cpu, softirq, idle: 100.0 - softirq, ..CpuUse::default() };
        record.nodes.push(NodeRecord {
            name: "balancer".into(),
            cpus: vec![cpu(4, 30.0), cpu(5, 50.0), cpu(6, 90.0)],
            interfaces: Vec::new(),
            protocol: Default::default(),
            share: None,
        });
        record.middle = Some(middle());
        record
    }

    #[test]
    fn a_middle_has_the_figures_of_its_counters() {
        let record = record();
        let value = |metric| crate::figures::figure(&record, Side::Local, metric);
        assert_eq!(value(Metric::MiddlePacketsIn), Some(3000.0));
        assert_eq!(value(Metric::MiddlePacketsOut), Some(2995.0));
        assert_eq!(value(Metric::MiddleBitsIn), Some(2_000_000.0));
        assert_eq!(value(Metric::MiddleBitsOut), Some(1_996_000.0));
        assert_eq!(value(Metric::MiddleConnections), Some(77.0));
        assert_eq!(value(Metric::MiddleDrops), Some(10.0));
        // The CPU that carries no packets does not count.
        assert_eq!(value(Metric::MiddleCpu), Some(40.0));
        assert_eq!(crate::figures::figure(&record, Side::Remote, Metric::MiddleDrops), None);
    }

    #[test]
    fn what_a_middle_does_not_tell_is_not_made_up() {
        let with = |change: fn(&mut MiddleRecord), metric| {
            let mut record = record();
            change(record.middle.as_mut().unwrap());
            figure(&record, metric)
        };
        assert_eq!(with(|middle| middle.connections = None, Metric::MiddleConnections), None);
        assert_eq!(with(|middle| middle.shared = vec![5], Metric::MiddleCpu), None);
        assert_eq!(with(|middle| middle.workers = vec![4, 9], Metric::MiddleCpu), None);
        assert_eq!(with(|middle| middle.workers.clear(), Metric::MiddleCpu), None);
        assert_eq!(with(|middle| middle.drops.clear(), Metric::MiddleDrops), Some(0.0));
        let without = TrialRecord { middle: None, ..record() };
        assert!(Metric::ALL.into_iter().filter(|m| is_own(*m)).all(|metric| figure(&without, metric).is_none()));
    }

    #[test]
    fn limits_are_of_what_was_searched() {
        use crate::record::Searched;
        let value = |of, metric| {
            let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
            let mut record: TrialRecord = serde_json::from_str(text).unwrap();
            record.search.as_mut().unwrap().of = of;
            crate::figures::figure(&record, Side::Local, metric).is_some()
        };
        for of in [Searched::Connections, Searched::Requests] {
            assert!(value(of, Metric::Limit) && !value(of, Metric::LimitHeld));
        }
        assert!(!value(Searched::Held, Metric::Limit) && value(Searched::Held, Metric::LimitHeld));
    }
}
