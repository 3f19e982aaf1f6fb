use rig_study::fixture::loads::{histogram, netperf_view, request_response, transactions, two_way, udp_stream};
use rig_study::fixture::{TrialOptions, run_view};
use rig_study::judge::{AaData, AaFigure, AaVerdict};
use rig_study::record::SetApart;
use rig_study::suite::Form;

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
    assert_eq!(
        doubts::of(d),
        [
            "Each of the 3 trials, at worst trial 3: node b's CPUs were 98.5 % busy: the node may be the limit, not the path",
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

fn blocks_of(document: &Document) -> Vec<(&str, &str)> {
    let text = |block| match block {
        &Block::Preformatted { caption: Some(ref caption), ref text } => Some((caption.as_str(), text.as_str())),
        _ => None,
    };
    document.all_blocks().filter_map(text).collect()
}

/// The layouts of netperf 2.7.1, taken from its output.
#[test]
fn netperfs_blocks_stand_in_netperfs_columns() {
    let document = document(&netperf_view());
    let blocks = blocks_of(&document);
    let block = |caption: &str| blocks.iter().find(|(c, _)| *c == caption).unwrap().1;
    assert_eq!(
        block("no namespace (none-tcp-stream)"),
        "TCP STREAM TEST from a/sender (10.0.0.1) port 0 AF_INET to b/receiver (10.0.0.2) port 0 AF_INET \
         : +/-2.5% @ 95% conf.\n\
         Recv   Send    Send                          Utilization       Service Demand\n\
         Socket Socket  Message  Elapsed              Send     Recv     Send    Recv\n\
         Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
         bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB\n\n \
         87380  16384   1400    2.00        999.60   50.00    50.00    8.193   8.198 \n\
         study                               857.39   6.39     9.75     2.444   3.727 \n"
    );
    let rows = |caption: &str| block(caption).lines().skip_while(|l| !l.is_empty()).skip(1).collect::<Vec<_>>();
    assert_eq!(
        rows("no namespace (none-tcp-rr)"),
        [
            "16384  87380  1       1      2.00    6249.83  50.00  50.00  160.026  160.057",
            "16384  87380 ",
            "study                                12594.24  4.16   6.06   13.212  19.231",
        ]
    );
    assert_eq!(
        rows("no namespace (none-udp-stream)"),
        [
            " 16384    1400   2.00      1701000      0     9525.6     50.00    0.860 ",
            " 87380           2.00      1700000            9520.0     50.00    0.861 ",
            "study                                          952.9     6.84     2.354 ",
            "                                               952.9     9.66     3.321 ",
        ]
    );
    let maerts = block("no namespace (none-tcp-maerts)");
    assert!(maerts.starts_with("TCP MAERTS TEST from b/receiver (10.0.0.2) port 0 AF_INET to a/sender (10.0.0.1)"));
    assert!(maerts.contains("Elapsed              Recv     Send     Recv    Send\n"));
    // What the study did not measure is left blank.
    let last = block("etun (etun-tcp-stream)").lines().last().unwrap();
    assert_eq!(last.trim_end(), "study                               840.64   12.89");
}

#[test]
fn large_buffers_leave_netperfs_columns_in_their_places() {
    let mut view = netperf_view();
    let connections = view.scenarios.iter_mut().flat_map(|s| &mut s.trials).flat_map(|t| &mut t.workers);
    connections
        .flat_map(|w| &mut w.connections)
        .for_each(|c| (c.send_buffer, c.receive_buffer) = (1_939_968, 8_845_153));
    let document = document(&view);
    let blocks = blocks_of(&document);
    let rows: Vec<&str> = blocks.iter().flat_map(|(_, text)| text.lines()).filter(|l| l.contains("1939968")).collect();
    assert!(
        rows.contains(&"8845153 1939968 1400    2.00        999.60   50.00    50.00    8.193   8.198 "),
        "{rows:?}"
    );
    assert!(rows.contains(&"1939968 8845153 1     1      2.00    6249.83  50.00  50.00  160.026  160.057"), "{rows:?}");
}

#[test]
fn netperf_warns_where_confidence_was_asked_for_and_not_reached() {
    let warnings = |view: &RunView| {
        let document = document(view);
        let blocks = blocks_of(&document);
        let warned = blocks.iter().filter(|(_, text)| text.contains("!!! WARNING\n!!! Desired confidence was not"));
        warned.map(|(caption, _)| (*caption).to_owned()).collect::<Vec<_>>()
    };
    let mut view = netperf_view();
    assert_eq!(warnings(&view), ["etun (etun-udp-stream)"]);
    let document = document(&view);
    let udp = blocks_of(&document).into_iter().find(|(c, _)| *c == "etun (etun-udp-stream)").unwrap().1;
    // Twice the half width of Student's interval of 985, 1000 and 1015 thousandths.
    assert!(udp.contains("!!! Confidence intervals: Throughput      : 7.45"), "{udp}");
    view.goal = None;
    assert!(warnings(&view).is_empty(), "nothing was asked");
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
        for scenario in rig_study::export::data(&view).scenarios {
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

/// An A/A check is a line below the claims, and a doubt where it finds more than chance explains.
#[test]
fn an_aa_check_is_told_in_a_line() {
    let figure = |metric: &str, verdict| AaFigure {
        side: "sender".into(),
        metric: metric.into(),
        verdict,
        ratio: 1.082,
        low: Some(1.06),
        high: Some(1.1),
    };
    let mut view = run_view();
    let mut check = AaData {
        scenario: "A".into(),
        blocks: 8,
        allowed_percent: 5.0,
        more_than_chance: false,
        figures: vec![figure("cpu", AaVerdict::Same), figure("throughput", AaVerdict::Undecided)],
    };
    view.aa = Some(check.clone());
    let line = "A/A check: 2 figures of A compared with itself in 8 blocks: 0 were called different (by chance alone it may be \
                5 % of them); 1 is the same to within 5 %.";
    assert!(document(&view).lead.contains(&Block::paragraph(line)));
    for cpu in view.scenarios[0].trials.iter_mut().flat_map(|trial| &mut trial.nodes).flat_map(|node| &mut node.cpus) {
        cpu.counting = Some(0.25);
    }
    let cost = "took 0.25 % of the CPUs' time, at most 0.25 % of one CPU: it is in these figures.";
    let of_both = format!("{line} Counting CPU time exactly in both {cost}");
    assert!(document(&view).lead.contains(&Block::paragraph(of_both)));
    assert!(document(&view).lead.contains(&Block::paragraph(format!("Counting CPU time exactly {cost}"))));
    for cpu in view.scenarios[0].trials.iter_mut().flat_map(|trial| &mut trial.nodes).flat_map(|node| &mut node.cpus) {
        cpu.counting = None;
    }
    check.figures[1].verdict = AaVerdict::Differs;
    check.more_than_chance = true;
    view.aa = Some(check);
    let line = "A/A check: 2 figures of A compared with itself in 8 blocks: 1 was called different (by chance alone it may be \
                5 % of them), more than chance explains (sender throughput by 1.082): verdicts of this run are less sure than \
                they say.";
    let document = document(&view);
    assert!(document.lead.contains(&Block::warning(line)));
    assert!(document.details.contains(&Block::paragraph(line)), "among the doubts");
}

/// Of a run whose scenarios have one trial each, with a claim that nothing could tell.
fn seen() -> RunView {
    let mut view = run_view();
    view.scenarios.iter_mut().for_each(|scenario| scenario.trials.truncate(1));
    for claim in &mut view.claims {
        claim.verdict = Verdict::Undecided;
        if let Some(effect) = &mut claim.effect {
            effect.interval = None;
            claim.open = Some(Open::SingleTrial);
        }
    }
    let refused = |text: &str, reason: &str| Claim {
        text: text.into(),
        effect: None,
        open: Some(Open::Refused { reason: reason.into() }),
        ..view.claims[0].clone()
    };
    let more = [refused("Ten are faster", "too few CPUs"), refused("... and 16", "too few CPUs")];
    view.claims.extend(more);
    view
}

#[test]
fn the_headline_answers_the_question() {
    let view = run_view();
    let headline = document(&view).headline.unwrap();
    assert_eq!(headline.question.as_deref(), Some(&*view.question));
    assert_eq!(
        headline.answer,
        "A virtual switch reduces throughput by a factor of 3 to 4: no, 1.31 (1.28 to 1.33), claimed from 3 to 4. Of 3 \
         claims 1 holds, 1 is refuted, 1 is undecided."
    );
    assert_eq!(headline.caution, None, "few trials carry a doubt");
    let told = |block: &&Block| matches!(block, Block::Notice { text, .. } if text.contains(" of 15 trials carr"));
    assert_eq!(document(&view).brief("").lead.iter().filter(told).count(), 1, "but they are told");
    let mut view = view;
    view.answer = Some("Containers keep 76 % (75 to 78).".into());
    let answer = document(&view).headline.unwrap().answer;
    assert_eq!(answer, "Containers keep 76 % (75 to 78). Of 3 claims 1 holds, 1 is refuted, 1 is undecided.");
    view.answer = None;
    view.claims.clear();
    let answer = document(&view).headline.unwrap().answer;
    assert!(
        answer
            .starts_with("Throughput kept, B = 100: highest 131 % ±3.4 % (A Raw <no switch>), lowest 6.93 % ±3.4 % (E"),
        "{answer}"
    );
    view.scenarios.iter_mut().for_each(|scenario| scenario.trials.clear());
    assert_eq!(document(&view).headline.unwrap().answer, "Nothing was measured.");
}

/// The reader's question first: claims of a study that differ here are one line, unfolded by who wants them.
#[test]
fn below_an_answer_claims_that_differ_from_the_study_are_one_line() {
    let mut view = run_view();
    view.answer = Some("Containers keep 76 % (75 to 78).".into());
    let refuted =
        view.claims.iter().position(|claim| claim.open.is_none() && claim.verdict == Verdict::Refuted).unwrap();
    view.claims[refuted].verdict = Verdict::Differs;
    let document = document(&view);
    assert_eq!(document.headline.as_ref().unwrap().answer, "Containers keep 76 % (75 to 78).");
    let place = |wanted: fn(&Block) -> bool| document.lead.iter().position(wanted).unwrap();
    let folded = place(|block| matches!(block, Block::Folded { .. }));
    assert!(folded < place(|block| matches!(block, Block::Figure(_))), "above the chart");
    let Block::Folded { summary, blocks } = &document.lead[folded] else { unreachable!() };
    assert_eq!(summary, "Of 3 claims 1 holds, 1 differs from the study, 1 is undecided.");
    assert_eq!(blocks, &[Block::Claims { claims: vec![view.claims[refuted].clone()] }]);
    let text = |block: &Block| serde_json::to_string(block).unwrap();
    let told = document.lead.iter().filter(|block| text(block).contains(&view.claims[refuted].text)).count();
    assert_eq!(told, 1, "told once");
    let brief = document.brief("");
    assert!(!brief.lead.iter().any(|block| text(block).contains(&view.claims[refuted].text)), "folded");
}

/// Who had stacks sampled sees what the layers cost without asking again; a table too wide for a screen is a line.
#[test]
fn costs_by_layer_are_in_the_brief_report_of_a_run_that_sampled_them() {
    let mut view = run_view();
    let has_layers = |document: &Document| {
        let is_chart = |block: &&Block| matches!(block, Block::Figure(Chart::Layers(_)));
        document.lead.iter().filter(is_chart).count()
    };
    assert_eq!(has_layers(&document(&view).brief("")), 0);
    for scenario in &mut view.scenarios {
        scenario.trials = scenario.trials.drain(..).map(|trial| rig_study::fixture::with_layers(trial, 0)).collect();
    }
    let whole = document(&view);
    let tables = |document: &Document| {
        let of = |block: &Block| matches!(block, Block::Table(table) if table.caption.starts_with("CPU time added to"));
        document.outer_blocks().filter(|block| of(block)).count()
    };
    assert_eq!((has_layers(&whole), tables(&whole)), (1, 1), "told once in all");
    let brief = whole.clone().brief("");
    assert_eq!((has_layers(&brief), tables(&brief)), (1, 0));
    let line = |block: &Block| matches!(block, Block::Folded { summary, .. } if summary.ends_with(" columns"));
    assert!(brief.lead.iter().any(line), "{:?}", brief.lead);

    let flames = |document: &Document| {
        document
            .all_blocks()
            .filter_map(|block| if let Block::Flame(flame) = block { Some(flame.title.clone()) } else { None })
            .collect::<Vec<_>>()
    };
    assert!(flames(&whole).contains(&"Containers, node b".to_owned()), "{:?}", flames(&whole));
    view.scenarios.retain(|scenario| ["A", "B"].contains(&scenario.id.as_str()));
    assert_eq!(tables(&document(&view).brief("")), 1, "two columns have room");
}

#[test]
fn what_one_trial_showed_is_seen_and_not_judged() {
    let document = document(&seen());
    let answer = &document.headline.as_ref().unwrap().answer;
    assert!(
        answer.ends_with(
            ": 1.31, claimed from 3 to 4, as seen in one trial. Of 5 claims 1 has one trial for it, 1 has one trial \
             against it, 3 are undecided."
        ),
        "{answer}"
    );
    let claims: Vec<&Vec<Claim>> = document
        .lead
        .iter()
        .filter_map(|block| if let Block::Claims { claims } = block { Some(claims) } else { None })
        .collect();
    assert_eq!(claims[0][1].words, "C.throughput is 1.2 × B.throughput in one trial; claimed more than 1");
}

#[test]
fn open_claims_are_one_line_for_each_reason() {
    let document = document(&seen());
    let folded: Vec<&str> = document
        .lead
        .iter()
        .filter_map(|block| if let Block::Folded { summary, .. } = block { Some(summary.as_str()) } else { None })
        .collect();
    let expected =
        ["1 claim was not measured: the run has no figures for a scenario", "2 claims were not decided: too few CPUs"];
    assert_eq!(folded, expected);
    let brief = document.brief("more");
    assert!(brief.all_blocks().all(|block| !matches!(block, Block::Table(_))));
    assert_eq!(brief.lead.iter().filter(|block| matches!(block, Block::Folded { .. })).count(), 2);
}

#[test]
fn a_screen_has_claims_of_each_verdict_and_counts_the_others() {
    let mut view = run_view();
    let first = view.claims[0].clone();
    let of = |place: usize, verdict| Claim { text: format!("Claim {place}"), verdict, open: None, ..first.clone() };
    view.claims = (1..=9).map(|place| of(place, Verdict::Refuted)).chain([of(10, Verdict::Holds)]).collect();
    let brief = document(&view).brief("more");
    let shown: Vec<&Claim> = brief
        .lead
        .iter()
        .filter_map(|block| if let Block::Claims { claims } = block { Some(claims) } else { None })
        .flatten()
        .collect();
    assert_eq!(shown.len(), 8);
    assert!(shown.iter().any(|claim| claim.text == "Claim 10"), "{shown:#?}");
    let folded = |block: &Block| matches!(block, Block::Folded { summary, .. } if summary == "2 more claims");
    assert!(brief.lead.iter().any(folded), "{:#?}", brief.lead);
}

/// A claim that goes on with one that stands elsewhere says whose it is.
#[test]
fn a_claim_that_goes_on_is_whole() {
    let mut view = run_view();
    view.claims[1].text = "... and without the wire".into();
    view.claims[1].open = Some(Open::Across);
    let document = document(&view);
    let Some(Block::Folded { summary, blocks }) =
        document.lead.iter().find(|block| matches!(block, Block::Folded { .. }))
    else {
        panic!("{:?}", document.lead)
    };
    assert!(summary.starts_with("1 claim was not decided: the claimed value is inside"), "{summary}");
    let [Block::Claims { claims }] = blocks.as_slice() else { panic!("{blocks:?}") };
    assert_eq!(claims[0].text, "A virtual switch reduces throughput by a factor of 3 to 4 ... and without the wire");
}

#[test]
fn the_whole_is_doubted_where_nearly_every_trial_is() {
    let mut view = run_view();
    let flag = rig_study::record::Flag::Stolen { node: "a".into(), percent: 9.0 };
    view.scenarios.iter_mut().flat_map(|s| &mut s.trials).for_each(|trial| trial.flags.push(flag.clone()));
    let caution = document(&view).headline.unwrap().caution.unwrap();
    assert_eq!(
        caution,
        "Each of the 15 trials carries a doubt: at worst the hypervisor took 9.0 % of node a's CPU time. Next: use a host with \
         CPUs of its own, or more blocks (--budget)."
    );
    view.scenarios[0].trials[0].flags.clear();
    assert!(document(&view).headline.unwrap().caution.unwrap().starts_with("14 of 15 trials carry a doubt"));
    let flags_of = |view: &mut RunView, doubted: usize| {
        let trials = view.scenarios.iter_mut().flat_map(|s| &mut s.trials).enumerate();
        trials.for_each(|(i, trial)| trial.flags = if i < doubted { vec![flag.clone()] } else { Vec::new() });
    };
    flags_of(&mut view, 8);
    assert!(document(&view).headline.unwrap().caution.unwrap().starts_with("8 of 15 trials carry a doubt"));
    flags_of(&mut view, 7);
    assert_eq!(document(&view).headline.unwrap().caution, None, "told below");
    flags_of(&mut view, 14);
    // What follows from it does not stand in its place.
    let full = rig_study::record::Flag::Saturated { node: "a".into(), percent: 100.0 };
    view.scenarios.iter_mut().flat_map(|s| &mut s.trials).for_each(|trial| {
        if !trial.flags.is_empty() {
            trial.flags.insert(0, full.clone());
        }
    });
    let caution = document(&view).headline.unwrap().caution.unwrap();
    assert!(caution.contains("the hypervisor took"), "{caution}");
    view.set_apart = Some(SetApart { slower_percent: 23.4, usual_runs: 5 });
    let caution = document(&view).headline.unwrap().caution.unwrap();
    let apart = "Another machine by calibration: the same arithmetic was 23 % slower than in 5 runs of this store.";
    assert!(caution.starts_with(apart) && caution.contains(" 14 of 15 trials carry a doubt"), "{caution}");
}

#[test]
fn of_a_single_test_the_baseline_is_on_the_chart_too() {
    let rows = |view: &RunView| {
        let document = document(view);
        let Some(Block::Figure(Chart::Overview(chart))) =
            document.lead.into_iter().find(|block| matches!(block, Block::Figure(_)))
        else {
            panic!("no chart")
        };
        chart
            .rows
            .iter()
            .map(|row| (row.label.to_string(), row.numbers[0].map(|number| number.value)))
            .collect::<Vec<_>>()
    };
    let mut view = netperf_view();
    assert!(rows(&view).iter().all(|(label, _)| !label.contains("no namespace")), "{:?}", rows(&view));
    view.scenarios.retain(|scenario| ["none-tcp-rr", "etun-tcp-rr"].contains(&scenario.id.as_str()));
    let rows = rows(&view);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert_eq!(rows[0], ("TCP_RR no namespace".to_owned(), Some(100.0)));
    assert!(rows[1].0.contains("etun"), "{rows:?}");
}

/// Both ends on one node are counted once: 98 % of its CPU time at 14,200 Mbit/s.
#[test]
fn the_overview_holds_each_scenario_against_the_baseline() {
    let document = document(&run_view());
    let Some(Block::Figure(Chart::Overview(chart))) =
        document.lead.iter().find(|block| matches!(block, Block::Figure(_)))
    else {
        panic!("{:?}", document.lead)
    };
    let number = |id: &str, panel: usize| {
        let row = chart.rows.iter().find(|row| row.label.head == id).unwrap();
        row.numbers[panel].unwrap()
    };
    assert_eq!((number("B", 0).value, number("B", 0).interval), (100.0, None));
    let kept = number("D", 0);
    assert!((kept.value - 100.0 * 8.1 / 17.9).abs() < 0.1 && kept.interval.is_some(), "{kept:?}");
    assert!((kept.reference.unwrap() - 100.0 * 657.52 / 1592.698).abs() < 0.1, "{kept:?}");
    let together = number("C", 1).value;
    assert!((together - 0.98 / (14.2 / 8.0)).abs() < 0.01, "{together}");
    let apart = number("B", 1).value;
    assert!((apart - (0.71 + 0.975) / (17.9 / 8.0)).abs() < 0.01, "{apart}");
}
