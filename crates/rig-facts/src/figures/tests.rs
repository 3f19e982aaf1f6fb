use rig_load::record::DatagramRecord;

use super::*;
use crate::fixture::loads::{datagrams, histogram, request_response, tcp_stream, transactions, two_way, udp_stream};
use crate::fixture::{TrialOptions, trial};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn throughput_is_the_payload_of_the_sides_workers() {
    let record = trial(&TrialOptions { send_bytes: 1_000_000_000, receive_bytes: 500_000_000, ..Default::default() });
    // A window of 2 s.
    assert_eq!(figure(&record, Side::Sender, Metric::Throughput), Some(4e9));
    assert_eq!(figure(&record, Side::Receiver, Metric::Throughput), Some(2e9));
}

#[test]
fn several_workers_of_a_side_add_up() {
    let mut record = trial(&TrialOptions::default());
    let one = figure(&record, Side::Sender, Metric::Throughput).unwrap();
    record.workers.push(record.workers[0].clone());
    assert!(close(figure(&record, Side::Sender, Metric::Throughput).unwrap(), 2.0 * one));
}

#[test]
fn cpu_is_the_mean_over_the_cpus_of_the_sides_nodes_alone() {
    let record =
        trial(&TrialOptions { sender_busy: vec![10.0, 50.0], receiver_busy: vec![80.0], ..Default::default() });
    assert!(close(figure(&record, Side::Sender, Metric::Cpu).unwrap(), 30.0));
    assert!(close(figure(&record, Side::Receiver, Metric::Cpu).unwrap(), 80.0));
}

/// 2 CPUs half busy are 10^6 us of CPU time a second; at 1000 KB/s each KB cost 1000 us.
#[test]
fn service_demand_is_netperfs() {
    let record =
        trial(&TrialOptions { send_bytes: 2 * 1000 * 1024, sender_busy: vec![40.0, 60.0], ..Default::default() });
    assert!(close(figure(&record, Side::Sender, Metric::ServiceDemand).unwrap(), 1000.0));
}

#[test]
fn both_sides_share_the_cpus_of_a_common_node() {
    let record = trial(&TrialOptions { colocated: true, sender_busy: vec![57.0], ..Default::default() });
    assert_eq!(figure(&record, Side::Sender, Metric::Cpu), figure(&record, Side::Receiver, Metric::Cpu));
    assert_eq!(record.nodes.len(), 1);
}

#[test]
fn a_node_with_the_cpus_of_another_and_no_load_is_idle() {
    let mut record = trial(&TrialOptions::default());
    let third = NodeRecord { name: "third".to_owned(), ..record.nodes[0].clone() };
    record.nodes.push(third);
    let idle = |record: &TrialRecord| record.nodes.iter().map(|node| is_idle(record, node)).collect::<Vec<_>>();
    assert_eq!(idle(&record), [false, false, true]);
    record.nodes[2].cpus[0].cpu += 100;
    assert_eq!(idle(&record), [false; 3], "its CPUs are its own");
}

#[test]
fn retransmits_count_the_window_only() {
    let record = trial(&TrialOptions { retransmits: 7, ..Default::default() });
    assert_eq!(figure(&record, Side::Sender, Metric::Retransmits), Some(7.0));
    assert_eq!(figure(&record, Side::Receiver, Metric::Retransmits), Some(0.0));
}

#[test]
fn what_was_not_measured_is_none() {
    let mut record = trial(&TrialOptions::default());
    record.workers.retain(|w| w.direction == Direction::Send);
    for metric in Metric::ALL {
        assert_eq!(figure(&record, Side::Receiver, metric), None, "{metric}");
    }
    record.workers[0].window_end_ns = record.workers[0].window_begin_ns;
    assert_eq!(figure(&record, Side::Sender, Metric::Throughput), None);
    assert_eq!(figure(&record, Side::Sender, Metric::ServiceDemand), None);
    record.nodes.clear();
    assert_eq!(figure(&record, Side::Sender, Metric::Cpu), None);
}

#[test]
fn no_traffic_has_no_service_demand() {
    let record = trial(&TrialOptions { send_bytes: 0, ..Default::default() });
    assert_eq!(figure(&record, Side::Sender, Metric::Throughput), Some(0.0));
    assert_eq!(figure(&record, Side::Sender, Metric::ServiceDemand), None);
}

#[test]
fn a_course_is_the_sum_of_the_workers_as_far_as_all_go() {
    let mut record = trial(&TrialOptions { receive_bytes: 4000, samples: 4, ..Default::default() });
    let course = over_time(&record, Side::Receiver, Metric::Throughput);
    // 1000 bytes in each quarter of the 2 s.
    assert_eq!(course, [(0.25, 16_000.0), (0.75, 16_000.0), (1.25, 16_000.0), (1.75, 16_000.0)]);
    let mut second = record.workers[1].clone();
    second.samples.pop();
    record.workers.push(second);
    let course = over_time(&record, Side::Receiver, Metric::Throughput);
    assert_eq!(course, [(0.25, 32_000.0), (0.75, 32_000.0), (1.25, 32_000.0)]);
}

#[test]
fn a_stream_has_local_and_remote_ends_too() {
    let forward = trial(&TrialOptions { send_bytes: 8000, receive_bytes: 4000, ..Default::default() });
    for metric in [Metric::Throughput, Metric::Cpu, Metric::ServiceDemand, Metric::Retransmits] {
        assert_eq!(figure(&forward, Side::Local, metric), figure(&forward, Side::Sender, metric), "{metric}");
        assert_eq!(figure(&forward, Side::Remote, metric), figure(&forward, Side::Receiver, metric), "{metric}");
    }
    // netperf's MAERTS: the connecting end receives.
    let mut reverse = forward;
    reverse.workers[0].end = Some(End::Listen);
    reverse.workers[1].end = Some(End::Connect);
    assert_eq!(figure(&reverse, Side::Local, Metric::Throughput), Some(16_000.0));
    assert_eq!(figure(&reverse, Side::Sender, Metric::Throughput), Some(32_000.0));
}

#[test]
fn a_side_of_a_two_way_stream_has_what_arrived_there() {
    let record = two_way(&TrialOptions {
        send_bytes: 3 * 1024 * 1000,
        receive_bytes: 1024 * 1000,
        sender_busy: vec![50.0],
        samples: 2,
        ..Default::default()
    });
    assert_eq!(figure(&record, Side::Local, Metric::Throughput), Some(1024.0 * 1000.0 * 4.0));
    assert_eq!(figure(&record, Side::Remote, Metric::Throughput), Some(3.0 * 1024.0 * 1000.0 * 4.0));
    assert_eq!(figure(&record, Side::Receiver, Metric::Throughput), None);
    // Half a CPU is 500000 us a second, for 2000 KB a second out and in.
    assert!(close(figure(&record, Side::Local, Metric::ServiceDemand).unwrap(), 250.0));
    let course = over_time(&record, Side::Local, Metric::Throughput);
    assert_eq!(course, [(0.5, 1024.0 * 1000.0 * 4.0), (1.5, 1024.0 * 1000.0 * 4.0)]);
}

#[test]
fn transactions_cost_and_last() {
    let latencies = histogram(&[(10, 900), (100, 90), (1000, 10)]);
    let options = TrialOptions { sender_busy: vec![25.0, 25.0], samples: 2, ..Default::default() };
    let record = transactions(&options, &latencies);
    assert_eq!(figure(&record, Side::Local, Metric::Transactions), Some(500.0));
    assert_eq!(figure(&record, Side::Remote, Metric::Transactions), Some(500.0));
    // 25 % of two CPUs are 500000 us a second.
    assert!(close(figure(&record, Side::Local, Metric::TransactionDemand).unwrap(), 1000.0));
    assert!(close(figure(&record, Side::Remote, Metric::TransactionDemand).unwrap(), 1600.0));
    let latency = |of| figure(&record, Side::Local, Metric::Latency(of));
    let about = |of, us: f64| assert!((latency(of).unwrap() / us - 1.0).abs() < 2e-3, "{of:?} {:?}", latency(of));
    about(Statistic::Mean, 28.0);
    about(Statistic::P50, 10.0);
    about(Statistic::P90, 10.0);
    about(Statistic::P99, 100.0);
    about(Statistic::Max, 1000.0);
    assert_eq!(latency(Statistic::P99_9), None, "one of 1000 transactions cannot tell");
    for (side, metric) in [(Side::Sender, Metric::Cpu), (Side::Local, Metric::Throughput)] {
        assert_eq!(figure(&record, side, metric), None, "{side} {metric}");
    }
    assert_eq!(over_time(&record, Side::Local, Metric::Transactions), [(0.5, 500.0), (1.5, 500.0)]);
}

#[test]
fn requests_that_were_not_answered_are_lost() {
    let mut record = transactions(&TrialOptions::default(), &histogram(&[(10, 30)]));
    assert_eq!(figure(&record, Side::Local, Metric::Loss), Some(0.0));
    record.workers[0].transactions.as_mut().unwrap().lost = 10;
    assert_eq!(figure(&record, Side::Local, Metric::Loss), Some(25.0));
    assert_eq!(figure(&record, Side::Remote, Metric::Loss), None);
}

#[test]
fn datagrams_are_lost_reordered_and_doubled_on_their_way() {
    let counted = DatagramRecord {
        received: 1000,
        lost: 250,
        reordered: 50,
        duplicated: 20,
        jitter_ns: Some(1500.0),
        delay: Some(histogram(&[(40, 1000)])),
        ..Default::default()
    };
    let record = datagrams(&TrialOptions::default(), 1400, &counted);
    let received = |metric| figure(&record, Side::Receiver, metric);
    assert_eq!(received(Metric::Datagrams), Some(500.0));
    assert_eq!(figure(&record, Side::Sender, Metric::Datagrams), Some(625.0));
    assert_eq!(received(Metric::Throughput), Some(1000.0 * 1400.0 * 4.0));
    assert_eq!(received(Metric::Loss), Some(20.0), "duplicates are not among those received");
    assert_eq!(received(Metric::Reordered), Some(5.0));
    assert_eq!(received(Metric::Duplicated), Some(2.0));
    assert_eq!(received(Metric::Jitter), Some(1.5));
    assert!((received(Metric::Delay(Statistic::P99)).unwrap() / 40.0 - 1.0).abs() < 2e-3);
    assert_eq!(received(Metric::Retransmits), None);
    for metric in [Metric::Loss, Metric::Reordered, Metric::Jitter, Metric::Delay(Statistic::P50)] {
        assert_eq!(figure(&record, Side::Local, metric), None, "{metric} where nothing arrives");
        assert_eq!(figure(&record, Side::Remote, metric), received(metric));
    }
    let nothing = datagrams(&TrialOptions::default(), 1400, &DatagramRecord { lost: 7, ..Default::default() });
    assert_eq!(figure(&nothing, Side::Receiver, Metric::Loss), Some(100.0));
    let mut nothing = nothing;
    nothing.workers[1].datagrams = Some(DatagramRecord::default());
    assert_eq!(figure(&nothing, Side::Receiver, Metric::Loss), Some(100.0), "no gap to see, but something was sent");
    assert_eq!(figure(&nothing, Side::Receiver, Metric::Reordered), None);
}

#[test]
fn jitter_is_the_mean_over_flows() {
    let counted = |us: f64| DatagramRecord { received: 1, jitter_ns: Some(us * 1000.0), ..Default::default() };
    let mut record = datagrams(&TrialOptions::default(), 1400, &counted(1.0));
    let mut second = record.workers[1].clone();
    second.datagrams = Some(counted(4.0));
    let connection = second.connections[0].clone();
    second.connections.push(connection);
    record.workers.push(second);
    assert_eq!(figure(&record, Side::Receiver, Metric::Jitter), Some(3.0));
}

#[test]
fn trials_pool_their_latencies() {
    let trials = [[(10, 10)], [(20, 30)]].map(|of| transactions(&TrialOptions::default(), &histogram(&of)));
    assert_eq!(latency(&trials), histogram(&[(10, 10), (20, 30)]));
}

#[test]
fn a_load_in_the_background_has_a_figure_of_its_own() {
    let mut record = transactions(&TrialOptions::default(), &histogram(&[(10, 100)]));
    assert_eq!(figure(&record, Side::Receiver, Metric::BackgroundThroughput), None);
    let before = Metric::ALL.map(|metric| figure(&record, Side::Local, metric));
    let stream = trial(&TrialOptions { receive_bytes: 4000, sender_busy: vec![99.0], ..Default::default() });
    record.workers.extend(stream.workers.into_iter().map(|worker| WorkerRecord { background: true, ..worker }));
    assert_eq!(figure(&record, Side::Receiver, Metric::BackgroundThroughput), Some(16_000.0));
    assert_eq!(Metric::ALL.map(|metric| figure(&record, Side::Local, metric)), before);
    assert_eq!(figure(&record, Side::Receiver, Metric::Throughput), None);
    // Of sockets it has no packets.
    assert_eq!(figure(&record, Side::Local, Metric::BackgroundPacketsOut), None);
    let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
    let mut record: TrialRecord = serde_json::from_str(text).unwrap();
    let sent = figure(&record, Side::Local, Metric::PacketsOut);
    record.workers.iter_mut().for_each(|worker| worker.background = true);
    assert_eq!(figure(&record, Side::Local, Metric::BackgroundPacketsOut), sent);
    assert!(sent.is_some() && figure(&record, Side::Local, Metric::BackgroundPacketsIn) > Some(0.0));
    assert_eq!(figure(&record, Side::Local, Metric::PacketsOut), None);
}

#[test]
fn figures_that_a_load_does_not_have_are_refused_with_those_that_it_has() {
    let (tcp_rr, udp_rr) = (request_response("tcp-rr"), request_response("udp-rr"));
    let stream = |flow| tcp_stream(flow, 1400);
    let udp_stream = |flow| udp_stream(flow, 1400);
    let cases: [(&RequestedLoad, &str, &str); 14] = [
        (&stream("forward"), "A.throughput", ""),
        (&stream("reverse"), "A.local.service_demand", ""),
        (&stream("forward"), "A.transactions", "scenario `A` is tcp-stream and has no transactions"),
        (&stream("both"), "A.throughput", "payload of scenario `A` goes both ways, so it has no receiver"),
        (&stream("both"), "A.local.throughput", ""),
        (&tcp_rr, "A.latency_p99_99", ""),
        (&tcp_rr, "A.throughput", "scenario `A` is tcp-rr and has no throughput"),
        (&tcp_rr, "A.sender.cpu", "payload of scenario `A` goes both ways, so it has no sender"),
        (&tcp_rr, "A.local.loss", "scenario `A` is tcp-rr and has no loss"),
        (&udp_rr, "A.local.loss", ""),
        (&udp_rr, "A.loss", "the requests that scenario `A` lost are counted where they were sent"),
        (&udp_stream("forward"), "A.delay_p99", ""),
        (&udp_stream("forward"), "A.local.jitter", "the local end of scenario `A` receives nothing"),
        (&udp_stream("both"), "A.local.jitter", ""),
    ];
    assert_eq!(Kind::of(cases[3].0), Some(Kind::TwoWayStream));
    assert_eq!(Kind::of(cases[9].0), Some(Kind::Transactions));
    assert_eq!(Kind::of(cases[11].0), Some(Kind::Datagrams));
    for (load, text, expected) in cases {
        let said = check(load, &text.parse().unwrap());
        let said = said.map_or_else(|e| e.what, |()| String::new());
        assert_eq!(said, expected, "{text} of {}", load.name());
    }
}

/// A trial as it was stored, with every figure that it has.
#[test]
fn a_packet_load_has_the_figures_of_its_counters() {
    let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
    let record: TrialRecord = serde_json::from_str(text).unwrap();
    let figures = |side| Metric::ALL.into_iter().map(move |metric| (side, metric));
    let all = Side::ALL.into_iter().flat_map(figures).filter_map(|(side, metric)| {
        let value = figure(&record, side, metric)?;
        Some(format!("{side} {metric} {value:.3} {}", metric.unit()))
    });
    insta::assert_snapshot!(all.collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_the_window_lost_is_found_later_too() {
    let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
    let mut record: TrialRecord = serde_json::from_str(text).unwrap();
    let value = |record: &TrialRecord, metric| figure(record, Side::Local, metric);
    assert_eq!(value(&record, Metric::Failed), Some(0.0));
    let client = record.workers.iter_mut().find(|worker| worker.end() == End::Connect).unwrap();
    let packets = client.packets.as_mut().unwrap();
    packets.after.insert("skErr".into(), 2);
    packets.counters.insert("noSocket".into(), 3);
    packets.counters.insert("pushRt".into(), 4);
    packets.ports[0].drops.insert("missed".into(), 5);
    packets.counters.insert("dropTx".into(), 6);
    assert_eq!(value(&record, Metric::Failed), Some(5.0));
    assert_eq!(value(&record, Metric::Retransmits), Some(4.0));
    assert_eq!(value(&record, Metric::Drops), Some(11.0));
}

/// Between the highest rate that was held and the lowest that was not lies the limit; where the generator or the search
/// ended it, it is that much or more.
#[test]
fn a_limit_is_known_to_the_grid_of_its_search_or_is_a_bound() {
    use rig_packet::search::GeneratorBound;
    use rig_stats::sample::{Bound, Resolution};
    let text = include_str!("../../tests/records/trial-packets-0.1.0.json");
    let of = |bound, lost| {
        let mut record: TrialRecord = serde_json::from_str(text).unwrap();
        let search = record.search.as_mut().unwrap();
        (search.bound, search.outcome.held, search.outcome.lost) = (bound, Some(1000.0), lost);
        let reading = reading(&record, Side::Local, Metric::Limit).unwrap();
        assert_eq!(reading.value, 1000.0);
        (reading.resolution, reading.bound)
    };
    let grid = Resolution { below: 0.0, above: 20.0 };
    assert_eq!(of(None, Some(1020.0)), (grid, None));
    assert_eq!(of(Some(GeneratorBound::Limit(0.97)), Some(1020.0)), (Resolution::EXACT, Some(Bound::AtLeast)));
    assert_eq!(of(Some(GeneratorBound::Busy(0.93)), Some(1020.0)), (Resolution::EXACT, Some(Bound::AtLeast)));
    assert_eq!(of(None, None), (Resolution::EXACT, Some(Bound::AtLeast)), "the most allowed was held");
    let record = trial(&TrialOptions::default());
    assert_eq!(reading(&record, Side::Sender, Metric::Throughput).unwrap().bound, None);
}

/// With the least number of values a percentile has ten beyond it.
#[test]
fn a_percentile_needs_ten_values_beyond_it() {
    for of in Statistic::ALL {
        let Some(percent) = of.percentile().filter(|percent| *percent < 100.0) else { continue };
        let least = of.least_values();
        let beyond = least as f64 * (1.0 - percent / 100.0);
        assert!((beyond - 10.0).abs() < 1e-6, "{percent} {beyond}");
        assert_eq!(statistic(&histogram(&[(1000, least - 1)]), of), None, "{percent}");
        assert!(statistic(&histogram(&[(1000, least)]), of).is_some(), "{percent}");
    }
}

/// A receiver's record with what came in each interval of 50 ms: four before the window of 2 s, and those in it.
fn sampled(before: u64, inside: impl IntoIterator<Item = u64>) -> crate::record::TrialRecord {
    let mut record = trial(&TrialOptions::default());
    let mut receiver = rig_stats::series::Track::default();
    for bytes in std::iter::repeat_n(before, 4).chain(inside) {
        receiver.push(50_000, [("bytes", bytes)]);
    }
    let is_receiver = |worker: &WorkerRecord| worker.direction == Direction::Receive;
    let track = |worker| if is_receiver(worker) { receiver.clone().finished() } else { Default::default() };
    record.series = Some(crate::record::Series {
        begin_ns: record.window_begin_ns - 200_000_000,
        interval_us: 50_000,
        workers: record.workers.iter().map(track).collect(),
        nodes: Vec::new(),
        cost_us: 0,
        ..Default::default()
    });
    record
}

#[test]
fn t95_is_the_end_of_the_first_interval_from_which_the_rate_holds() {
    let t95 = |before, inside: Vec<u64>| {
        assert_eq!(inside.len(), 40, "intervals of the window");
        figure(&sampled(before, inside), Side::Local, Metric::T95).map(f64::round)
    };
    let step = |low: &[u64]| [low, &vec![1000; 40 - low.len()]].concat();
    assert_eq!(t95(10, step(&[])), Some(50_000.0), "at once");
    assert_eq!(t95(10, step(&[100, 500, 949])), Some(200_000.0));
    assert_eq!(t95(10, step(&[100, 500, 950])), Some(150_000.0));
    // It touches the goal and falls back: that is not there yet.
    assert_eq!(t95(10, step(&[1000, 1000, 0, 1000, 0])), Some(300_000.0));
    // From above it is there at once, and one stall later on moves nothing.
    assert_eq!(t95(5000, step(&[4000, 2000])), Some(50_000.0));
    let mut stalled = step(&[100]);
    stalled[30] = 0;
    assert_eq!(t95(10, stalled), Some(100_000.0));
    assert_eq!(t95(10, vec![0; 40]), None, "nothing came");
    // In turn above and below what it settles at, it never holds.
    assert_eq!(t95(10, [1000, 0].repeat(20)), None);
    assert_eq!(figure(&trial(&TrialOptions::default()), Side::Local, Metric::T95), None, "nothing was sampled");
}

/// What docs/REFERENCE.md says of each figure, from the table.
fn page() -> String {
    use rig_stats::compare::Better;
    let mut rows = String::from("| metric | unit | side | better | meaning |\n|---|---|---|---|---|\n");
    for row in TABLE {
        let names: Vec<String> = row.names.iter().map(|(_, name, _)| format!("`{name}`")).collect();
        let unit = match row.unit {
            "bit/s" => "Mbit/s (10^6)",
            "us/KB" => "µs/KB (1024 B)",
            "us/Tr" => "µs/Tr",
            "us" => "µs",
            unit => unit,
        };
        let side = row.default_side.map_or("name it".to_owned(), |side| side.to_string());
        let better = if row.policy.better == Better::Higher { "more" } else { "less" };
        let meaning = row.meaning;
        rows += &format!("| {} | {unit} | {side} | {better} | {meaning} |\n", names.join(", "));
    }
    rows
}

/// `NETRIG_WRITE_REFERENCE=1` writes them anew.
#[test]
fn the_reference_has_each_figure_as_the_table_has_it() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/REFERENCE.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find("| metric | unit |").unwrap();
    let end = begin + text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("NETRIG_WRITE_REFERENCE").is_some() {
        std::fs::write(path, format!("{}{}{}", &text[..begin], page(), &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[begin..end], page(), "NETRIG_WRITE_REFERENCE=1 writes it anew");
}

#[test]
fn each_figure_is_named_once_and_found_by_its_name() {
    let names: std::collections::BTreeSet<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
    assert_eq!(names.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        assert_eq!(metric.name().parse(), Ok(metric));
        assert!(metric.sides().iter().any(|side| metric.default_side().is_none_or(|default| default == *side)));
        assert!(!metric.row().meaning.is_empty(), "{metric}");
    }
}

/// Figures that are computed, as docs/MEASURING.md has them.
fn formulas() -> String {
    let mut rows = String::from("| figure | formula | source |\n|---|---|---|\n");
    for row in table::TABLE {
        let Some((formula, source)) = row.formula_words else { continue };
        rows += &format!("| `{}`, {} | {formula} | {source} |\n", row.names[0].1, row.names[0].0.shown_unit());
    }
    rows
}

/// `NETRIG_WRITE_REFERENCE=1` writes them anew.
#[test]
fn the_formulas_are_those_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MEASURING.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find("| figure | formula |").unwrap();
    let end = begin + text[begin..].find("\n\n").unwrap() + 1;
    if std::env::var_os("NETRIG_WRITE_REFERENCE").is_some() {
        std::fs::write(path, format!("{}{}{}", &text[..begin], formulas(), &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[begin..end], formulas(), "NETRIG_WRITE_REFERENCE=1 writes it anew");
}

#[test]
fn each_figure_has_a_label() {
    for metric in Metric::ALL {
        assert!(!metric.label().is_empty() && !metric.short_label().is_empty(), "{metric}");
        assert!(metric.row().decimals <= 3, "{metric}");
    }
}
