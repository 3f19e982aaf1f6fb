//! The node between the ends: what it did, what it listed.

use rig_facts::record::{DutRecord, ServiceState, TrialRecord};
use rig_stats::units::counted;
use rig_verdict::view::ScenarioView;

use crate::document::{Block, Cell, Column, Label, Row, Table};

/// Services and servers of a listing that are shown.
const SERVICES: usize = 3;
const BACKENDS: usize = 16;

/// What the device under test did in each trial; nothing on a path without one.
pub(super) fn details(scenario: &ScenarioView) -> Vec<Block> {
    let trials: Vec<(&TrialRecord, &DutRecord)> =
        scenario.trials.iter().filter_map(|trial| Some((trial, trial.dut.as_ref()?))).collect();
    let Some((_, last)) = trials.last() else { return Vec::new() };
    let cpus = |cpus: &[u32]| rig_sys::cpu::CpuSet::new(cpus.iter().copied()).to_string();
    let mut pairs = vec![
        ("Device under test".to_owned(), last.system.clone()),
        ("CPUs that carried packets".to_owned(), cpus(&last.workers)),
    ];
    if !last.shared.is_empty() {
        pairs.push(("Shared with the load".to_owned(), format!("CPUs {}", cpus(&last.shared))));
    }
    let mut blocks = vec![Block::KeyValues { caption: None, pairs }, Block::Table(counters(scenario, &trials))];
    if !last.services.is_empty() {
        let caption = Some("Services at the end of the last window".to_owned());
        blocks.push(Block::Preformatted { caption, text: listing(&last.services) });
    }
    blocks
}

fn counters(scenario: &ScenarioView, trials: &[(&TrialRecord, &DutRecord)]) -> Table {
    let mut table = Table::new(format!("Device under test of {}", scenario.id), "Trial");
    table.columns = trials.iter().map(|(t, _)| Column::number(Label::new(t.ordinal.to_string()), None)).collect();
    let row = |label: &str, unit: &str, cell: &dyn Fn(&TrialRecord, &DutRecord) -> Cell| Row {
        label: label.to_owned(),
        unit: Some(unit.to_owned()),
        cells: trials.iter().map(|(trial, dut)| cell(trial, dut)).collect(),
    };
    let rate = |trial: &TrialRecord, count: u64, decimals| Cell::number(count as f64 / trial.seconds(), decimals);
    let bits = |trial: &TrialRecord, bytes: u64| Cell::number(8.0 * bytes as f64 / trial.seconds(), 0);
    let told = |value: Option<f64>, decimals| {
        value.map_or_else(|| Cell::missing("this system does not tell"), |value| Cell::number(value, decimals))
    };
    table.rows = vec![
        row("Packets in", "1/s", &|trial, dut| rate(trial, dut.in_packets, 0)),
        row("Packets out", "1/s", &|trial, dut| rate(trial, dut.out_packets, 0)),
        row("Bits in", "bit/s", &|trial, dut| bits(trial, dut.in_bytes)),
        row("Bits out", "bit/s", &|trial, dut| bits(trial, dut.out_bytes)),
        row("Connections at the end", "", &|_, dut| told(dut.connections.map(|count| count as f64), 0)),
        row("Memory of connections", "MiB", &|_, dut| {
            told(dut.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20)), 1)
        }),
    ];
    let mut reasons: Vec<&str> = Vec::new();
    for (reason, _) in trials.iter().flat_map(|(_, dut)| &dut.drops) {
        if !reasons.contains(&reason.as_str()) {
            reasons.push(reason);
        }
    }
    for reason in &reasons {
        let count = |_: &TrialRecord, dut: &DutRecord| {
            let of_reason = dut.drops.iter().filter(|(own, _)| own == reason).map(|(_, count)| count);
            Cell::number(of_reason.sum::<u64>() as f64, 0)
        };
        table.rows.push(row(&format!("Dropped: {reason}"), "packets", &count));
    }
    if reasons.is_empty() {
        table.notes.push("It counted no drops inside the windows.".to_owned());
    }
    table
}

/// In ipvsadm's columns.
fn listing(services: &[ServiceState]) -> String {
    let mut text = "Prot LocalAddress:Port Scheduler\n".to_owned();
    text += "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n";
    for ServiceState { protocol, address, scheduler, backends } in services.iter().take(SERVICES) {
        text += &format!("{protocol:<4} {address} {scheduler}\n");
        for backend in backends.iter().take(BACKENDS) {
            let line = format!(
                "  -> {:<28} {:<7} {:<6} {:<10} {}",
                backend.address, backend.forward, backend.weight, backend.active, backend.inactive
            );
            text += line.trim_end();
            text.push('\n');
        }
        if let Some(more) = backends.len().checked_sub(BACKENDS).filter(|more| *more > 0) {
            text += &format!("  ... {more} more\n");
        }
    }
    if let Some(more) = services.len().checked_sub(SERVICES).filter(|more| *more > 0) {
        text += &format!("... {}\n", counted(more, "more service", "more services"));
    }
    text
}

#[cfg(test)]
mod tests {
    use rig_facts::record::BackendState;

    use super::*;

    fn service(address: &str, backends: usize) -> ServiceState {
        let backend = |n| BackendState {
            address: format!("192.168.6.{}:80", 100 + n),
            forward: "FullNat".to_owned(),
            weight: 100,
            active: 0,
            inactive: 4,
        };
        ServiceState {
            protocol: "TCP".to_owned(),
            address: address.to_owned(),
            scheduler: "rr".to_owned(),
            backends: (0..backends).map(backend).collect(),
        }
    }

    #[test]
    fn services_are_listed_as_ipvsadm_lists_them() {
        let services: Vec<ServiceState> = (1..=5).map(|n| service(&format!("192.168.5.{n}:80"), 17)).collect();
        let text = listing(&services);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "TCP  192.168.5.1:80 rr");
        assert_eq!(lines[3], "  -> 192.168.6.100:80             FullNat 100    0          4");
        assert_eq!(lines[1].find("Forward"), lines[3].find("FullNat"));
        assert_eq!(lines[19], "  ... 1 more");
        assert_eq!(lines.last(), Some(&"... 2 more services"));
    }
}
