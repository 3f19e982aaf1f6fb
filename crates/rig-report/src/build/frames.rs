//! The frame ledger: which counter took the frames that were sent and not received.

use rig_facts::ledger::{Ledger, ledger};
use rig_facts::record::TrialRecord;
use rig_verdict::view::ScenarioView;

use crate::document::{Cell, Column, Label, Row, Table};

/// A column for each trial whose frames are countable; `None` when no frame is missing in any.
pub(super) fn table(scenario: &ScenarioView) -> Option<Table> {
    let trials: Vec<(&TrialRecord, Ledger)> =
        scenario.trials.iter().filter_map(|trial| Some((trial, ledger(trial)?))).collect();
    if trials.iter().all(|(_, ledger)| ledger.missing() <= 0) {
        return None;
    }
    let mut table = Table::new(format!("Frame ledger of {}", scenario.id), "Trial");
    table.columns = trials.iter().map(|(t, _)| Column::number(Label::new(t.ordinal.to_string()), None)).collect();
    let row = |label: String, unit: &str, cell: &dyn Fn(&Ledger) -> Cell| Row {
        label,
        unit: Some(unit.to_owned()),
        cells: trials.iter().map(|(_, ledger)| cell(ledger)).collect(),
    };
    let (mut ways, mut places) = (Vec::new(), Vec::new());
    for (_, ledger) in &trials {
        add(&mut ways, ledger.flows.iter().map(|flow| (flow.from.as_str(), flow.to.as_str())));
        add(&mut places, ledger.lines.iter().map(|line| (line.place.as_str(), line.counter.as_str())));
    }
    for (from, to) in ways {
        let of = |ledger: &Ledger| ledger.flows.iter().find(|flow| (&*flow.from, &*flow.to) == (from, to)).cloned();
        let cell = |count: Option<u64>| Cell::number(count.unwrap_or(0) as f64, 0);
        table.rows.push(row(format!("Sent from {from} to {to}"), "frames", &|l| cell(of(l).map(|flow| flow.sent))));
        let received = &|l: &Ledger| cell(of(l).map(|flow| flow.received));
        table.rows.push(row(format!("Received of these by {to}"), "frames", received));
    }
    for (place, counter) in places {
        let frames = |ledger: &Ledger| {
            let own = ledger.lines.iter().filter(|line| (&*line.place, &*line.counter) == (place, counter));
            Cell::number(own.map(|line| line.frames).sum::<u64>() as f64, 0)
        };
        table.rows.push(row(format!("{place}: {counter}"), "frames", &frames));
    }
    table.rows.push(row("In no counter".to_owned(), "frames", &|l| Cell::number(l.unexplained() as f64, 0)));
    table.rows.push(row("In no counter".to_owned(), "%", &|l| Cell::number(l.unexplained_share() * 100.0, 4)));
    table.notes.push(
        "Over the whole load, warm-up and cool-down included. Each frame that was sent was received or is in one counter.".to_owned(),
    );
    let in_counters = |ledger: &Ledger| ledger.lines.iter().map(|line| line.frames as i64).sum::<i64>();
    if trials.iter().any(|(_, ledger)| in_counters(ledger) > ledger.missing()) {
        table.notes.push(
            "Counters that have more than are missing have other frames, too: ARP, ICMP, farewells of flows."
                .to_owned(),
        );
    }
    Some(table)
}

/// Adds what is not there yet.
fn add<T: PartialEq>(known: &mut Vec<T>, more: impl Iterator<Item = T>) {
    for one in more {
        if !known.contains(&one) {
            known.push(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::TrialOptions;
    use rig_facts::fixture::loads::datagrams;
    use rig_facts::record::{NamespaceFrames, NodeFrames};
    use rig_load::record::{DatagramRecord, DatagramTotals};
    use rig_verdict::fixture::run_view;

    use super::*;

    fn trial(ordinal: u32, received: u64, full: u64) -> TrialRecord {
        let mut trial = datagrams(&TrialOptions { ordinal, ..Default::default() }, 1000, &DatagramRecord::default());
        for (worker, (sent, received)) in trial.workers.iter_mut().zip([(1000, 0), (0, received)]) {
            worker.name = if sent > 0 { "a" } else { "b" }.to_owned();
            let total = DatagramTotals { sent, received, ..DatagramTotals::default() };
            worker.datagrams = Some(DatagramRecord { total: Some(total), ..DatagramRecord::default() });
        }
        let protocols = [("Udp.RcvbufErrors".to_owned(), full)].into_iter().filter(|(_, count)| *count > 0).collect();
        let namespace = NamespaceFrames { name: "b".into(), protocols, interfaces: Vec::new() };
        trial.frames = Some(vec![NodeFrames { node: "b".into(), namespaces: vec![namespace], ..Default::default() }]);
        trial
    }

    #[test]
    fn what_is_missing_is_told_by_place_and_nothing_where_nothing_is() {
        let mut scenario = run_view().scenarios.remove(0);
        scenario.trials = vec![trial(1, 1000, 0)];
        assert!(table(&scenario).is_none());
        scenario.trials.push(trial(2, 900, 88));
        let table = table(&scenario).unwrap();
        let rows: Vec<(&str, &[Cell])> = table.rows.iter().map(|row| (row.label.as_str(), &row.cells[..])).collect();
        let cells = |numbers: [f64; 2], decimals| numbers.map(|number| Cell::number(number, decimals));
        assert_eq!(rows[0], ("Sent from a to b", &cells([1000.0, 1000.0], 0)[..]));
        assert_eq!(rows[1], ("Received of these by b", &cells([1000.0, 900.0], 0)[..]));
        let full = "b: UDP socket's receive buffer full (Udp.RcvbufErrors)";
        assert_eq!(rows[2], (full, &cells([0.0, 88.0], 0)[..]));
        assert_eq!(rows[3], ("In no counter", &cells([0.0, 12.0], 0)[..]));
        assert_eq!(rows[4], ("In no counter", &cells([0.0, 1.2], 4)[..]));
        assert_eq!(rows.len(), 5);
    }
}
