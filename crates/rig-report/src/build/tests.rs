mod lead;
mod netperf;

use rig_facts::fixture::TrialOptions;
use rig_facts::fixture::loads::{histogram, request_response, transactions, two_way, udp_stream};
use rig_facts::record::{Accounting, Flag, SetApart};
use rig_suite::suite::Form;
use rig_verdict::fixture::netperf::netperf_view;
use rig_verdict::fixture::run_view;
use rig_verdict::judge::{AaData, AaFigure, AaVerdict};

use super::*;
use crate::document::{Cell, Chart, Claim, Open, Table, Verdict};

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
    assert_eq!(sender.caption, "From raw to overlay – both ends");
    let throughput = number(sender, "Throughput, received", "A");
    assert!((throughput.value - 23_400.0).abs() < 1.0, "{throughput:?}");
    assert_eq!(throughput.reference, Some(7375.198));
    let interval = throughput.interval.unwrap();
    // Three values at 985, 1000 and 1015 thousandths: t(95 %, 2) * s / sqrt(3) = 4.3027 * 15 / 1.7321 = 37.26.
    assert!(((interval.high - interval.low) / 2.0 / throughput.value - 0.03726).abs() < 1e-5);
    let cpu = number(tables(&document)[0], "CPU, receiver", "B");
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
    let other = tables(&document)[1];
    assert_eq!(other.caption, "Other scenarios – both ends");
    assert!((number(other, "Throughput, received", "D").value - 8100.0).abs() < 1.0);
    let missing = Cell::missing("no trial gave this figure");
    assert_eq!(other.rows[0].cells[1], missing, "T2");
}

#[test]
fn what_the_reader_must_know_stands_by_the_tables() {
    let document = document(&run_view());
    let notes = tables(&document)[0].notes.join("\n");
    assert!(notes.contains("D: The kernel's bridge and VXLAN stand in for the study's vRouter."));
    assert!(notes.contains("D: confidence not reached: sender cpu ±3.7 %"));
    let cost = "used 0.3 % of node a's CPU time and 0.2 % of node b's; everything";
    assert!(document.blocks.iter().any(|b| matches!(b, Block::Paragraph { text } if text.contains(cost))));
}

#[test]
fn what_was_spent_on_measuring_is_said_once() {
    let mut view = run_view();
    for cpu in
        view.scenarios.iter_mut().flat_map(|s| &mut s.trials).flat_map(|t| &mut t.nodes).flat_map(|n| &mut n.cpus)
    {
        (cpu.accounting, cpu.counting) = (Accounting::Exact, Some(0.25));
    }
    let Document { lead, blocks, details, .. } = document(&view);
    let said = serde_json::to_string(&[lead, blocks, details]).unwrap();
    for words in ["took 0.25 % of the CPUs' time", "exact, counted by eBPF", "netrig's own processes used 0.3 %"] {
        assert_eq!(said.matches(words).count(), 1, "{words}");
    }
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
    // Where scenarios do not find room side by side.
    let mut long = view.clone();
    while long.scenarios.len() <= 12 {
        long.scenarios.extend(view.scenarios.iter().cloned());
    }
    let turned = super::document(&long);
    let turned = tables(&turned).into_iter().find(|t| t.caption == overview.caption).unwrap();
    let column = turned.columns.iter().position(|column| column.label.head == "Packets dropped").unwrap();
    let shown: Vec<_> = turned.rows.iter().map(|row| (row.label.as_str(), row.cells[column].clone())).collect();
    assert_eq!(shown[..2], [("B", Cell::text("")), ("D", Cell::text("2/3"))]);
    let d = view.scenarios.iter().find(|s| s.id == "D").unwrap();
    let doubts: Vec<String> = doubts::of(&d.trials, Flag::to_string).into_iter().map(|(_, words)| words).collect();
    assert_eq!(
        doubts,
        [
            "Each of the 3 trials, at worst trial 3: node b's CPUs were 98.5 % busy: they may be the limit, not the path",
            "2 of 3 trials (2, 3), at worst trial 3: 51 packets dropped at b:eth0",
        ]
    );
}

#[test]
fn charts_show_every_node_and_every_trial() {
    let document = document(&run_view());
    let charts: Vec<&Chart> =
        document.all_blocks().filter_map(|b| if let Block::Figure(chart) = b { Some(chart) } else { None }).collect();
    let cpu = charts.iter().find_map(|c| if let Chart::Stacked(cpu) = c { Some(cpu) } else { None }).unwrap();
    let labels: Vec<String> = cpu.rows.iter().map(|r| r.label.to_string()).collect();
    assert_eq!(labels[..2], ["A node a, sender", "A node b, receiver"]);
    assert!(labels.contains(&"C node a, sender and receiver".to_owned()));
    let lines: Vec<_> =
        charts.iter().filter_map(|c| if let Chart::Lines(l) = c { Some(l.lines.len()) } else { None }).collect();
    assert_eq!(lines, [3; 5], "five scenarios with three trials each");
}

#[test]
fn data_has_figures_with_their_units_and_the_trials_themselves() {
    let view = run_view();
    let data = document(&view).data;
    let b = &data["scenarios"][1];
    assert_eq!(b["id"], "B");
    let figures = b["figures"].as_array().unwrap();
    let throughput = figures.iter().find(|f| f["side"] == "receiver" && f["metric"] == "throughput").unwrap();
    assert_eq!(throughput["unit"], "bit/s");
    assert!((throughput["mean"].as_f64().unwrap() - 17.9e9).abs() < 1e6);
    assert!(throughput["low"].as_f64() < throughput["mean"].as_f64());
    assert_eq!(throughput["values"].as_array().unwrap().len(), 3);
    let trials: Vec<TrialRecord> = serde_json::from_value(b["trials"].clone()).unwrap();
    assert_eq!(trials, view.scenarios[1].trials);
    assert_eq!(data["run"]["status"]["state"], "interrupted");
}

#[test]
fn an_overview_divides_by_its_baseline() {
    let document = document(&netperf_view());
    let tables = tables(&document);
    let find = |what: &str| tables.iter().find(|t| t.caption.contains(what)).unwrap();
    let rates = find("throughput or transactions");
    let heads: Vec<&str> = rates.columns.iter().map(|c| c.label.head.as_str()).collect();
    assert_eq!(heads, ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "UDP_STREAM"]);
    let cell = |table: &Table, row: &str, column: &str| number(table, row, column);
    for head in heads {
        let ratio = cell(rates, "etun", head);
        assert!((ratio.value - 0.8).abs() < 1e-3, "{head} {ratio:?}");
        assert!(ratio.interval.is_some());
        let base = cell(rates, "no namespace", head);
        assert_eq!((base.value, base.interval), (1.0, None));
    }
    let drawn = document.all_blocks().find_map(|block| match block {
        Block::Figure(Chart::Bars(bars)) if bars.title == rates.caption => Some(bars),
        _ => None,
    });
    let bars = drawn.expect("the first of the tables is drawn, too");
    assert_eq!(bars.series, ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "UDP_STREAM"]);
    let etun = bars.groups.iter().find(|group| group.label.head == "etun").unwrap();
    assert_eq!(etun.bars[0], Some(cell(rates, "etun", "TCP_STREAM")));
    let study = cell(rates, "etun", "TCP_STREAM").reference.unwrap();
    assert!((study - 840.64 / 857.39).abs() < 1e-9);
    assert_eq!(cell(find("remote CPU"), "etun", "TCP_STREAM").reference, None);
    let demand = cell(find("remote service demand"), "etun", "TCP_RR");
    assert!((demand.value - 230.08 / 160.057).abs() < 1e-3, "{demand:?}");
}

#[test]
fn a_run_of_some_scenarios_has_an_overview_of_those() {
    let mut view = netperf_view();
    let left_out = ["none-tcp-rr", "etun-udp-stream"];
    view.scenarios.retain(|s| !left_out.contains(&s.id.as_str()));
    let document = document(&view);
    let table = tables(&document).into_iter().find(|t| t.caption.contains("throughput or transactions")).unwrap();
    let heads: Vec<&str> = table.columns.iter().map(|c| c.label.head.as_str()).collect();
    assert_eq!(heads, ["TCP_STREAM", "TCP_MAERTS", "UDP_STREAM"], "without its baseline a test cannot be compared");
    let missing = Cell::missing("not part of the run");
    assert_eq!(table.rows[1].cells[2], missing);
    view.scenarios.retain(|s| s.id.starts_with("none"));
    let document = super::document(&view);
    assert!(!tables(&document).iter().any(|t| t.caption.contains("no namespace = 1")), "nothing to compare");
}

#[test]
fn a_percentile_that_some_trials_cannot_tell_is_left_out_with_the_reason() {
    let document = document(&netperf_view());
    let table = tables(&document).into_iter().find(|t| t.caption == "TCP_RR – latency").unwrap();
    assert!(number(table, "p99.9", "no namespace").interval.is_some());
    let row = table.rows.iter().find(|r| r.label == "p99.9").unwrap();
    let why = "in 1 of 3 trials there were fewer than the 10000 transactions that this percentile needs";
    assert_eq!(row.cells[1], Cell::missing(why));
}

#[test]
fn distributions_pool_all_trials_and_end_where_values_do() {
    let document = document(&netperf_view());
    let charts = document.all_blocks().filter_map(|block| match block {
        Block::Figure(Chart::Percentiles(chart)) => Some(chart),
        _ => None,
    });
    let charts: Vec<_> = charts.collect();
    assert_eq!(charts.len(), 2, "latency of TCP_RR, delay of UDP_STREAM");
    let line = &charts[0].lines[1];
    assert_eq!((line.label.as_str(), line.count), ("etun", 10_000 + 9_850 + 10_150));
    let known: Vec<bool> = line.marks.iter().map(|mark| mark.value.is_some()).collect();
    assert_eq!(known, [true, true, true, true, false], "together they are enough for p99.9: {:?}", line.marks);
    let delay = &charts[1].lines[0];
    let beyond = |point: &(f64, f64)| 1.0 - point.0 / 100.0;
    assert!(beyond(delay.points.last().unwrap()) * delay.count as f64 >= 9.99);
    assert_eq!(delay.marks.last().unwrap().value, None, "{} values", delay.count);
}

#[test]
fn loads_of_different_kinds_have_tables_of_their_own() {
    let mut view = run_view();
    view.tables.clear();
    view.scenarios.truncate(1);
    let like = |id: &str, plan, trial: &dyn Fn(u32) -> TrialRecord| ScenarioView {
        id: id.into(),
        plan,
        checks: None,
        trials: (1..=2).map(trial).collect(),
        ..view.scenarios[0].clone()
    };
    let options = |ordinal| TrialOptions { ordinal, samples: 2, ..Default::default() };
    let rr = like("R", request_response("udp-rr"), &|n| transactions(&options(n), &histogram(&[(10, 1000)])));
    let both = like("U", udp_stream("both", 1400), &|n| {
        let mut record = two_way(&options(n));
        let counted = rig_load::record::DatagramRecord { received: 99, lost: 1, ..Default::default() };
        record.workers.iter_mut().for_each(|worker| worker.datagrams = Some(counted.clone()));
        record
    });
    view.scenarios.extend([rr, both]);
    view.baseline = Some("A".into());
    let document = document(&view);
    let captions: Vec<&str> = tables(&document).iter().map(|t| t.caption.as_str()).collect();
    for expected in [
        "All scenarios, streams – both ends",
        "All scenarios, request/response – transactions",
        "All scenarios, request/response – latency",
        "All scenarios, two-way datagrams – local ends",
    ] {
        assert!(captions.contains(&expected), "{captions:?} lack {expected}");
    }
    let find = |caption: &str| tables(&document).into_iter().find(|t| t.caption == caption).unwrap();
    let table = find("All scenarios, request/response – transactions");
    assert!((number(table, "Transactions", "R").value - 500.0).abs() < 1e-9);
    assert_eq!(number(table, "Requests lost", "R").value, 0.0);
    assert!(!table.rows.iter().any(|row| row.label.contains("A = 1")), "a stream is no measure of transactions");
    assert_eq!(number(find("All scenarios, two-way datagrams – remote ends"), "Loss", "U").value, 1.0);
    let lines = document.all_blocks().filter_map(|b| match b {
        Block::Figure(Chart::Lines(lines)) => Some((lines.title.as_str(), lines.lines.len())),
        _ => None,
    });
    let lines: Vec<_> = lines.collect();
    assert!(lines.contains(&("Transactions of R over time", 2)), "{lines:?}");
    assert!(lines.contains(&("Throughput arriving at both ends of U over time", 4)), "{lines:?}");
}

#[test]
fn data_has_latencies_of_all_trials_with_their_histogram() {
    let view = netperf_view();
    let data = document(&view).data;
    let rr = data["scenarios"].as_array().unwrap().iter().find(|s| s["id"] == "none-tcp-rr").unwrap();
    let pooled = figures::latency(&view.scenarios.iter().find(|s| s.id == "none-tcp-rr").unwrap().trials);
    assert_eq!(rr["latency"]["values"], pooled.count());
    let read: rig_stats::histogram::Histogram = serde_json::from_value(rr["latency"]["histogram_ns"].clone()).unwrap();
    assert_eq!(read, pooled);
    assert!(rr["latency"]["p99_9_us"].as_f64().unwrap() > rr["latency"]["p50_us"].as_f64().unwrap());
    let find = |scenario: &serde_json::Value, side: &str, metric: &str| {
        let figures = scenario["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["side"] == side && figure["metric"] == metric).cloned()
    };
    assert_eq!(find(rr, "local", "transactions").unwrap()["values"].as_array().unwrap().len(), 3);
    assert_eq!((find(rr, "sender", "throughput"), find(rr, "sender", "loss")), (None, None));
    assert!(rr["delay"].is_null());
    let udp = data["scenarios"].as_array().unwrap().iter().find(|s| s["id"] == "etun-udp-stream").unwrap();
    assert!(find(udp, "receiver", "loss").unwrap()["mean"].as_f64().unwrap() > 1.0);
}

#[test]
fn a_run_without_any_trial_has_a_report() {
    let mut view = run_view();
    view.scenarios.iter_mut().for_each(|s| s.trials.clear());
    view.rig_cost = None;
    let document = document(&view);
    assert!(tables(&document).is_empty());
    let mut out = Vec::new();
    for format in <crate::Format as clap::ValueEnum>::value_variants() {
        crate::write(&document, *format, Default::default(), &mut out).unwrap();
    }
}

#[test]
fn a_failed_run_says_why() {
    let mut view = run_view();
    view.status = Status::Failed { done: 4, planned: 18, reason: "node b has no CPU left".into() };
    let document = document(&view);
    assert!(document.summary[0].contains("failed after 4 of at most 18 trials"));
    assert!(document.lead.contains(&Block::warning(
        "The run failed: node b has no CPU left. The figures are those of the trials that were finished."
    )));
}

#[test]
fn each_end_is_in_the_data_under_one_name() {
    for view in [run_view(), netperf_view()] {
        for scenario in rig_verdict::export::data(&view).scenarios {
            let one_way = scenario.figures.iter().any(|figure| figure.side == "sender");
            let other = |side: &str| if one_way { side == "local" || side == "remote" } else { side == "sender" };
            assert!(scenario.figures.iter().all(|figure| !other(&figure.side)), "{}", scenario.id);
            let mut names: Vec<_> = scenario.figures.iter().map(|f| (&f.side, &f.metric)).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), scenario.figures.len(), "{}", scenario.id);
        }
    }
}

#[test]
fn what_differs_between_machines_is_told_of_each() {
    let on = |kernel: &str| Environment {
        kernel: kernel.into(),
        cpus_online: 8,
        cpu_model: "Model".into(),
        ..Environment::default()
    };
    assert!(machine(&on("6.1")).starts_with("Model · 8 CPUs · 0.0 GiB · Linux 6.1"));
    let both = Environment::of_several(vec![("a".into(), on("6.1")), ("b".into(), on("6.12"))]);
    assert!(machine(&both).starts_with("Model · 8 CPUs · 0.0 GiB · a: Linux 6.1; b: Linux 6.12"), "{}", machine(&both));
    let told: Vec<(String, String)> = rig_facts::record::described(&both);
    let of = |name: &str| told.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    assert_eq!(
        (of("Kernel, a"), of("Kernel, b"), of("Kernel"), of("CPU")),
        (Some("6.1"), Some("6.12"), None, Some("Model"))
    );
}
