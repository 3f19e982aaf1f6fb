//! How long containers take to come and go, of a scenario that has a CNI network do it.

use rig_stats::units::counted;
use rig_suite::checks::Procedure;
use rig_suite::checks::cni::{OperationTimes, PluginTimes, times};
use rig_verdict::view::RunView;

use crate::document::{Block, Cell, Column, Label, Row, Table};

/// Percentiles that are shown, with their heads.
const SHOWN: [(f64, &str); 4] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "longest")];

/// Of all scenarios that have measured it.
pub(super) fn blocks(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for scenario in view.scenarios.iter().filter(|scenario| scenario.checks == Some(Procedure::Cni)) {
        let all = times(&scenario.trials);
        if !all.is_empty() {
            blocks.push(Block::heading(2, "How long containers take to come and go"));
            blocks.push(Block::Table(of_all(&all)));
            blocks.push(Block::Table(of_each(&all)));
        }
    }
    blocks
}

fn columns() -> Vec<Column> {
    SHOWN.map(|(_, head)| Column::number(Label::new(head), None)).to_vec()
}

fn row(operation: &str, times: &[u64]) -> Row {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let cell = |(share, _): (f64, &str)| match percentile(&sorted, share) {
        Some(us) => Cell::number(us as f64 / 1e3, 1),
        None => Cell::missing("too few containers for this percentile"),
    };
    Row { label: format!("{operation} ({})", times.len()), unit: None, cells: SHOWN.map(cell).to_vec() }
}

/// The nearest rank; `None` where so few cannot have one of its own beyond it.
fn percentile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    let enough = share >= 1.0 || sorted.len() as f64 * (1.0 - share) >= 1.0;
    sorted.get(rank.checked_sub(1)?).copied().filter(|_| enough)
}

/// Of whole operations, by how many containers there were at once.
fn of_all(all: &[OperationTimes]) -> Table {
    let mut table = Table::new("Time of a container (ms), by how many come at once", "Operation");
    table.columns = columns();
    for one in all {
        let at_once = if one.at_once == 1 { "alone".to_owned() } else { format!("{} at once", one.at_once) };
        let operations = [
            ("add", &one.add_us),
            ("first packet", &one.first_packet_us),
            ("check", &one.check_us),
            ("delete", &one.del_us),
        ];
        for (name, times) in operations.into_iter().filter(|(_, times)| !times.is_empty()) {
            table.rows.push(row(&format!("{name}, {at_once}"), times));
        }
    }
    table.notes.push(
        "In brackets how many containers. From the begin of the operation of each; the first packet from the begin of its ADD until a datagram of another \
         container is answered. It sends one each millisecond while none is answered, so that this is known to a millisecond, and less well where \
         CPUs are busy."
            .to_owned(),
    );
    for one in all.iter().filter(|one| one.at_once > 1) {
        let longest = |times: &[u64]| times.iter().max().map_or(0.0, |us| *us as f64 / 1e6);
        table.notes.push(format!(
            "{} at once were all added in {:.2} s and all deleted in {:.2} s{}.",
            one.at_once,
            longest(&one.all_added_us),
            longest(&one.all_deleted_us),
            if one.rounds > 1 { ", in the longest of their rounds" } else { "" }
        ));
    }
    for one in all {
        let failed = one.failed.iter().map(|(what, count)| format!("{what}: {count}")).collect::<Vec<_>>().join(", ");
        if !failed.is_empty() {
            let of = counted(one.at_once as usize, "container", "containers");
            table.notes.push(format!("With {of} at once these failed: {failed}. {}", one.why.join("; ")));
        }
        if let Some(stopped) = &one.stopped {
            let of = counted(one.at_once as usize, "container", "containers");
            table.notes.push(format!("With {of} at once it was {stopped}."));
        }
        if !one.shared_addresses.is_empty() {
            table.notes.push(format!("Two containers had the same address: {}.", one.shared_addresses.join(", ")));
        }
    }
    table
}

/// Of each plug-in, where the fewest containers come at once.
fn of_each(all: &[OperationTimes]) -> Table {
    let fewest = all.first();
    let coming = match fewest.map_or(1, |one| one.at_once) {
        1 => "containers coming alone".to_owned(),
        count => format!("{count} containers coming at once"),
    };
    let mut table = Table::new(format!("Time of each plug-in (ms), {coming}"), "Plug-in");
    table.columns = columns();
    for PluginTimes { plugin, commands } in fewest.into_iter().flat_map(|one| &one.chain) {
        for command in ["add", "check", "del"] {
            if let Some(times) = commands.get(command) {
                table.rows.push(row(&format!("{plugin}, {}", command.to_uppercase()), times));
            }
        }
    }
    table.notes.push(
        "In the order of the chain, of operations that succeeded. What a plug-in has another one do, such as for addresses, is part of its time."
            .to_owned(),
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_need_enough_values_beyond_them() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!(percentile(&values, 0.5), Some(10));
        assert_eq!(percentile(&values, 0.9), Some(18));
        assert_eq!(percentile(&values, 0.99), None);
        assert_eq!(percentile(&values, 1.0), Some(20));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_title_says_how_many_came_at_once() {
        let chain = ["z", "a"]
            .map(|plugin| PluginTimes { plugin: plugin.to_owned(), commands: [("add".to_owned(), vec![1000])].into() });
        let of = |at_once| [OperationTimes { at_once, chain: chain.to_vec(), ..OperationTimes::default() }];
        assert_eq!(of_each(&of(1)).caption, "Time of each plug-in (ms), containers coming alone");
        let many = of_each(&of(100));
        assert_eq!(many.caption, "Time of each plug-in (ms), 100 containers coming at once");
        let labels: Vec<&str> = many.rows.iter().map(|row| &*row.label).collect();
        assert_eq!(labels, ["z, ADD (1)", "a, ADD (1)"]);
    }
}
