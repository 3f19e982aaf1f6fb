//! The figures of the node between the ends. They are written with the client's side, as the trial's own are.

use super::{FigureError, FigureOwner, FigureRef};
use crate::record::{CpuUse, DutRecord, TrialRecord};

/// A count per second of the whole trial.
pub(super) fn rate(record: &TrialRecord, count: impl Fn(&DutRecord) -> u64) -> Option<f64> {
    Some(count(record.dut.as_ref()?) as f64 / record.seconds())
}

/// Mean over the CPUs that carried packets; `None` where one of them was the load's too, because a CPU's time is not told
/// apart by whose it is.
pub(super) fn cpu(record: &TrialRecord) -> Option<f64> {
    let dut = record.dut.as_ref()?;
    if dut.workers.is_empty() || dut.workers.iter().any(|cpu| dut.shared.contains(cpu)) {
        return None;
    }
    let uses = || record.nodes.iter().flat_map(|node| &node.cpus);
    let busy = |cpu: &u32| uses().find(|one| one.cpu == *cpu).map(CpuUse::busy);
    let busy: Vec<f64> = dut.workers.iter().map(busy).collect::<Option<_>>()?;
    Some(busy.iter().sum::<f64>() / busy.len() as f64)
}

/// Whether trials of a scenario have the figure: only with a device under test, of which `has_dut` tells.
pub fn check(has_dut: bool, figure: &FigureRef) -> Result<(), FigureError> {
    let FigureRef { scenario, metric, .. } = figure;
    if has_dut || metric.row().owner != FigureOwner::Dut {
        return Ok(());
    }
    Err(FigureError {
        what: format!("nothing stands between the ends of scenario `{scenario}`, so that it has no {metric}"),
        hint: "name a scenario of a path with a device under test, or a figure of one of its ends".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Metric, Side};
    use crate::fixture::dut;
    use crate::record::NodeRecord;

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
        record.dut = Some(dut());
        record
    }

    #[test]
    fn a_dut_has_the_figures_of_its_counters() {
        let record = record();
        let value = |metric| crate::figures::figure(&record, Side::Local, metric);
        assert_eq!(value(Metric::DutPacketsIn), Some(3000.0));
        assert_eq!(value(Metric::DutPacketsOut), Some(2995.0));
        assert_eq!(value(Metric::DutBitsIn), Some(2_000_000.0));
        assert_eq!(value(Metric::DutBitsOut), Some(1_996_000.0));
        assert_eq!(value(Metric::DutConnections), Some(77.0));
        assert_eq!(value(Metric::DutDrops), Some(10.0));
        // The CPU that carries no packets does not count.
        assert_eq!(value(Metric::DutCpu), Some(40.0));
        assert_eq!(crate::figures::figure(&record, Side::Remote, Metric::DutDrops), None);
    }

    #[test]
    fn what_is_stored_keeps_its_first_name() {
        let stored = serde_json::to_value(record()).unwrap();
        assert_eq!((stored["middle"]["system"].as_str(), &stored["dut"]), (Some("netrig"), &serde_json::Value::Null));
        assert_eq!(serde_json::from_value::<TrialRecord>(stored).unwrap().dut, Some(dut()));
    }

    #[test]
    fn what_a_dut_does_not_tell_is_not_made_up() {
        let with = |change: fn(&mut DutRecord), metric| {
            let mut record = record();
            change(record.dut.as_mut().unwrap());
            crate::figures::figure(&record, Side::Local, metric)
        };
        assert_eq!(with(|dut| dut.connections = None, Metric::DutConnections), None);
        assert_eq!(with(|dut| dut.shared = vec![5], Metric::DutCpu), None);
        assert_eq!(with(|dut| dut.workers = vec![4, 9], Metric::DutCpu), None);
        assert_eq!(with(|dut| dut.workers.clear(), Metric::DutCpu), None);
        assert_eq!(with(|dut| dut.drops.clear(), Metric::DutDrops), Some(0.0));
        let without = TrialRecord { dut: None, ..record() };
        assert!(
            Metric::ALL
                .into_iter()
                .filter(|metric| metric.row().owner == FigureOwner::Dut)
                .all(|metric| { crate::figures::figure(&without, Side::Local, metric).is_none() })
        );
    }

    #[test]
    fn limits_are_of_what_was_searched() {
        use crate::record::SearchedRate;
        let value = |of, metric| {
            let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
            let mut record: TrialRecord = serde_json::from_str(text).unwrap();
            record.search.as_mut().unwrap().of = of;
            crate::figures::figure(&record, Side::Local, metric).is_some()
        };
        for of in [SearchedRate::Connections, SearchedRate::Requests] {
            assert!(value(of, Metric::Limit) && !value(of, Metric::LimitHeld));
        }
        assert!(!value(SearchedRate::Held, Metric::Limit) && value(SearchedRate::Held, Metric::LimitHeld));
    }
}
