use super::*;
use crate::report::document::{Cell, Chart, Table};
use crate::report::fixture::run_view;
use crate::suite::Form;

fn tables(document: &Document) -> Vec<&Table> {
    document.all_blocks().filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None }).collect()
}

fn number(table: &Table, row: &str, column: &str) -> Number {
    let row = table.rows.iter().find(|r| r.label == row).unwrap();
    let column = table.columns.iter().position(|c| c.label.head == column).unwrap();
    let Cell::Number(number) = row.cells[column] else { panic!("{:?}", row.cells[column]) };
    number
}

#[test]
fn results_stand_beside_the_published_ones() {
    let document = document(&run_view());
    let sender = tables(&document)[0];
    assert_eq!(sender.caption, "From raw to overlay – sender nodes");
    let throughput = number(sender, "Throughput", "A");
    assert!((throughput.value - 23_400.0).abs() < 1.0, "{throughput:?}");
    assert_eq!(throughput.reference, Some(7375.159));
    let interval = throughput.interval.unwrap();
    // Three values at 985, 1000 and 1015 thousandths: t(95 %, 2) * s / sqrt(3) = 4.3027 * 15 / 1.7321 = 37.26.
    assert!(((interval.high - interval.low) / 2.0 / throughput.value - 0.03726).abs() < 1e-5);
    let cpu = number(tables(&document)[1], "Avg. CPU", "B");
    assert!((cpu.value - 97.5).abs() < 1e-9);
    assert_eq!(cpu.reference, Some(42.278));
}

#[test]
fn columns_follow_the_run() {
    let document = document(&run_view());
    let heads = |i: usize| tables(&document)[i].columns.iter().map(|c| c.label.head.as_str()).collect::<Vec<_>>();
    assert_eq!(heads(0), ["A", "B", "C", "D", "E"], "a column whose scenario was not run is left out");
    let note = Block::warning("Other scenarios: no trial of T2 was finished.");
    assert!(document.blocks.contains(&note), "a scenario that is in no table is not forgotten");
}

#[test]
fn scenarios_in_no_table_get_one() {
    let mut view = run_view();
    let Form::Columns(columns) = &mut view.tables[0].form else { panic!("{:?}", view.tables[0]) };
    columns.retain(|c| c.head != "D");
    let document = document(&view);
    let other = tables(&document)[3];
    assert_eq!(other.caption, "Other scenarios – sender nodes");
    assert!((number(other, "Throughput", "D").value - 8100.0).abs() < 1.0);
    let missing = Cell::missing("no trial gave this figure");
    assert_eq!(other.rows[0].cells[1], missing, "T2");
}

#[test]
fn what_the_reader_must_know_stands_by_the_tables() {
    let document = document(&run_view());
    let notes = tables(&document)[2].notes.join("\n");
    assert!(notes.contains("D: The kernel's bridge and VXLAN stand in for the study's vRouter."));
    assert!(notes.contains("D: confidence not reached: sender cpu ±3.7 %"));
    let cost = "use 0.3 % of node a's CPU time and 0.2 % of node b's; with";
    assert!(document.blocks.iter().any(|b| matches!(b, Block::Paragraph { text } if text.contains(cost))));
}

#[test]
fn doubts_are_counted_by_trial_and_shown_at_their_worst() {
    let view = run_view();
    let document = document(&view);
    let overview = tables(&document).into_iter().find(|t| t.stub == "Reason").unwrap();
    let row = |label: &str| {
        let row = overview.rows.iter().find(|r| r.label == label).unwrap();
        row.cells.iter().map(|c| if let Cell::Text(t) = c { t.as_str() } else { "?" }).collect::<Vec<_>>()
    };
    assert_eq!(row("CPUs saturated"), ["", "3/3", "", "3/3", "", ""]);
    assert_eq!(row("Packets dropped"), ["", "", "", "2/3", "", ""]);
    let d = view.scenarios.iter().find(|s| s.id == "D").unwrap();
    assert_eq!(
        doubts::of(d),
        [
            "3 of 3 trials, at worst: node b's CPUs were 98.5 % busy: the node may be the limit, not the path",
            "2 of 3 trials, at worst: 51 packets dropped at b:eth0",
        ]
    );
}

#[test]
fn charts_show_every_node_and_every_trial() {
    let document = document(&run_view());
    let charts: Vec<&Chart> =
        document.all_blocks().filter_map(|b| if let Block::Figure(chart) = b { Some(chart) } else { None }).collect();
    let Chart::Stacked(cpu) = charts[1] else { panic!("{:?}", charts[1]) };
    let labels: Vec<String> = cpu.rows.iter().map(|r| r.label.to_string()).collect();
    assert_eq!(labels[..2], ["A node a, sender", "A node b, receiver"]);
    assert!(labels.contains(&"C node a, sender and receiver".to_owned()));
    let lines: Vec<_> =
        charts.iter().filter_map(|c| if let Chart::Lines(l) = c { Some(l.lines.len()) } else { None }).collect();
    assert_eq!(lines, [3; 5], "five scenarios with three trials each");
}

#[test]
fn data_has_figures_with_units_in_their_names_and_the_trials_themselves() {
    let view = run_view();
    let data = document(&view).data;
    let b = &data["scenarios"][1];
    assert_eq!(b["id"], "B");
    let throughput = &b["receiver"]["throughput_bits_per_second"];
    assert!((throughput["mean"].as_f64().unwrap() - 17.9e9).abs() < 1e6);
    assert!(throughput["low"].as_f64() < throughput["mean"].as_f64());
    assert_eq!(throughput["values"].as_array().unwrap().len(), 3);
    let trials: Vec<TrialRecord> = serde_json::from_value(b["trials"].clone()).unwrap();
    assert_eq!(trials, view.scenarios[1].trials);
    assert_eq!(data["run"]["status"]["state"], "interrupted");
}

#[test]
fn a_run_without_any_trial_has_a_report() {
    let mut view = run_view();
    view.scenarios.iter_mut().for_each(|s| s.trials.clear());
    view.rig_cost = None;
    let document = document(&view);
    assert!(tables(&document).is_empty());
    let mut out = Vec::new();
    for format in <crate::report::Format as clap::ValueEnum>::value_variants() {
        crate::report::write(&document, *format, Default::default(), &mut out).unwrap();
    }
}

#[test]
fn a_failed_run_says_why() {
    let mut view = run_view();
    view.status = Status::Failed { done: 4, planned: 18, reason: "node b has no CPU left".into() };
    let document = document(&view);
    assert!(document.summary[0].contains("failed after 4 of at most 18 trials"));
    assert!(document.blocks.contains(&Block::warning(
        "The run failed: node b has no CPU left. The figures are those of the trials that were finished."
    )));
}
