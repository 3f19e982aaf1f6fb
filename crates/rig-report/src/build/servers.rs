//! What each server of a packet load did.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rig_facts::record::TrialRecord;
use rig_load::record::{End, PacketServer};
use rig_verdict::view::ScenarioView;

use crate::document::{Cell, Column, Label, Row, Table};

/// Rows that are shown; those with errors come first.
const MOST: usize = 64;

/// As the client counted, all trials together; `None` where it talked to one server only.
pub(super) fn table(scenario: &ScenarioView) -> Option<Table> {
    let counted = counted(&scenario.trials);
    (counted.len() > 1).then(|| shown(&scenario.id, counted))
}

fn counted(trials: &[TrialRecord]) -> BTreeMap<SocketAddr, PacketServer> {
    let workers = trials.iter().flat_map(|trial| &trial.workers);
    let clients = workers.filter(|worker| !worker.background && worker.end() == End::Connect);
    let mut servers = BTreeMap::<SocketAddr, PacketServer>::new();
    for row in clients.filter_map(|worker| worker.packets.as_ref()).flat_map(|packets| &packets.servers) {
        let PacketServer { address, opened, requests, responses, errors } = *row;
        let sum =
            servers.entry(address).or_insert(PacketServer { address, opened: 0, requests: 0, responses: 0, errors: 0 });
        sum.opened += opened;
        sum.requests += requests;
        sum.responses += responses;
        sum.errors += errors;
    }
    servers
}

fn shown(id: &str, servers: BTreeMap<SocketAddr, PacketServer>) -> Table {
    let mut table = Table::new(format!("Servers of {id}, all trials together"), "Server");
    let column = |name: &str| Column::number(Label::new(name), None);
    table.columns = ["Opened", "Requests", "Responses", "Errors"].map(column).into();
    let mut rows: Vec<PacketServer> = servers.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.errors));
    let left_out = rows.len().saturating_sub(MOST);
    table.rows = rows
        .into_iter()
        .take(MOST)
        .map(|PacketServer { address, opened, requests, responses, errors }| Row {
            label: address.to_string(),
            unit: None,
            cells: [opened, requests, responses, errors].map(|count| Cell::number(count as f64, 0)).into(),
        })
        .collect();
    if left_out > 0 {
        table.notes.push(format!("{left_out} more servers, with no more errors than these, are in the record."));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_errors_come_first_and_too_many_are_counted() {
        let row = |n: u16| {
            let address = SocketAddr::from(([10, 0, 0, 1], n));
            let errors = if n == 70 { 3 } else { 0 };
            (address, PacketServer { address, opened: n.into(), requests: 2, responses: 2, errors })
        };
        let all = shown("A", (1..=70).map(row).collect());
        let labels: Vec<&str> = all.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!((labels[0], labels[1], labels.len()), ("10.0.0.1:70", "10.0.0.1:1", 64));
        assert_eq!(all.rows[0].cells, [70.0, 2.0, 2.0, 3.0].map(|count| Cell::number(count, 0)));
        assert!(all.notes[0].starts_with("6 more"), "{:?}", all.notes);
        assert!(shown("A", (1..=2).map(row).collect()).notes.is_empty());
    }
}
