//! Every kind of load over every path, one alone and two at once.

use std::time::Duration;

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::figure;
use rig_facts::record::TrialRecord;
use rig_load::record::{Direction, End};
use rig_run::run::Execute;
use rig_suite::suite::Suite;
use rig_testbed::topology::{Endpoints, Layout, Path};

use super::world;

/// One scenario over `path`.
fn suite(path: Path, family: &str, scenario: &str) -> Suite {
    let (testbed, from, to) = match (path.endpoints(), path.layout()) {
        (Endpoints::Nodes, _) => ("two", "a", "b"),
        (_, Layout::One) => ("one", "a/c", "a/d"),
        _ => ("two", "a/c", "b/d"),
    };
    let text = format!(
        "name = \"loads\"\ntitle = \"Loads\"\n\
         [defaults]\nwindow = \"200ms\"\nwarm_up = \"50ms\"\ncool_down = \"30ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n[testbed.one]\nnodes = [\"a\"]\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"{testbed}\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"{from}\"\nto = \"{to}\"\n{scenario}\n"
    );
    Suite::parse("loads.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A machine that is busy with other things may leave a worker no CPU time at all in a short window.
const WINDOWS_MS: [u64; 3] = [200, 1000, 4000];

/// A trial of each path and family, in which each of `figures` is above zero.
fn everywhere(scenario: &str, figures: &[(Side, Metric)], check: impl Fn(&TrialRecord, &str)) {
    let Some(mut rig) = world::rig() else { return };
    for (path, family) in Path::plain().flat_map(|path| ["ipv4", "ipv6"].map(|family| (path, family))) {
        let what = format!("{scenario}, {path}, {family}");
        let suite = suite(path, family, scenario);
        let mut trials = WINDOWS_MS.map(Duration::from_millis).into_iter().map(|window| {
            let timing = suite.timing.with_window(window).unwrap();
            let record = rig.trial(&suite.scenarios[0], 1, &timing, &mut |_, _| ());
            let record = record.unwrap_or_else(|error| panic!("{what}: {error:#}"));
            let missing: Vec<_> = figures
                .iter()
                .filter(|(side, metric)| figure(&record, *side, *metric).is_none_or(|value| value <= 0.0))
                .map(|(side, metric)| format!("{side} {metric}"))
                .collect();
            (record, missing)
        });
        let mut last = trials.next().unwrap();
        while !last.1.is_empty() {
            last = trials.next().unwrap_or_else(|| panic!("{what}: {:?} are missing, {:?}", last.1, last.0.flags));
        }
        check(&last.0, &what);
    }
}

fn get(record: &TrialRecord, side: Side, metric: Metric) -> f64 {
    figure(record, side, metric).unwrap()
}

fn directions(record: &TrialRecord) -> Vec<(Option<End>, Direction)> {
    record.workers.iter().filter(|worker| !worker.background).map(|worker| (worker.end, worker.direction)).collect()
}

const CPU: [(Side, Metric); 2] = [(Side::Local, Metric::Cpu), (Side::Remote, Metric::Cpu)];

fn with_cpu(figures: &[(Side, Metric)]) -> Vec<(Side, Metric)> {
    [figures, &CPU].concat()
}

fn tcp_stream(kind: &str, listening: Direction) {
    let figures = with_cpu(&[(Side::Sender, Metric::Throughput), (Side::Receiver, Metric::Throughput)]);
    everywhere(&format!("load = {{ kind = \"{kind}\", message = \"16k\" }}"), &figures, |record, what| {
        assert_eq!(directions(record)[0], (Some(End::Listen), listening), "{what}");
    });
}

#[test]
fn a_tcp_stream_goes_to_the_end_that_listens() {
    world::own(|| tcp_stream("tcp-stream", Direction::Receive));
}

#[test]
fn a_tcp_stream_can_go_to_the_end_that_connects() {
    world::own(|| tcp_stream("tcp-maerts", Direction::Send));
}

#[test]
fn a_tcp_stream_can_go_both_ways() {
    world::own(|| {
        let load = "load = { kind = \"tcp-stream\", message = \"16k\", flow = \"both\" }";
        let figures = with_cpu(&[(Side::Local, Metric::Throughput), (Side::Remote, Metric::Throughput)]);
        everywhere(load, &figures, |record, what| {
            assert!(directions(record).iter().all(|(_, direction)| *direction == Direction::Both), "{what}");
        });
    });
}

/// Both ends count the same transactions, save those at the window's edges, which each end meets at its own time.
fn transactions(load: &str) {
    let figures = with_cpu(&[
        (Side::Local, Metric::Transactions),
        (Side::Remote, Metric::Transactions),
        (Side::Local, Metric::TransactionDemand),
        (Side::Local, Metric::Latency(Statistic::Mean)),
    ]);
    everywhere(&format!("load = {{ {load} }}"), &figures, |record, what| {
        let ratio = get(record, Side::Local, Metric::Transactions) / get(record, Side::Remote, Metric::Transactions);
        assert!((0.6..1.6).contains(&ratio), "{what}: {ratio} as many transactions at one end as at the other");
        let ends = [(Some(End::Listen), Direction::Respond), (Some(End::Connect), Direction::Request)];
        assert_eq!(directions(record), ends, "{what}");
    });
}

#[test]
fn tcp_transactions_are_answered() {
    world::own(|| transactions("kind = \"tcp-rr\""));
}

#[test]
fn many_tcp_transactions_may_be_under_way() {
    world::own(|| {
        transactions("kind = \"tcp-rr\", request = \"100\", response = \"10k\", in_flight = 4, connections = 2");
    });
}

#[test]
fn tcp_transactions_may_have_a_connection_each() {
    world::own(|| transactions("kind = \"tcp-crr\""));
}

#[test]
fn udp_transactions_are_answered() {
    world::own(|| transactions("kind = \"udp-rr\", request = \"64\", response = \"128\", timeout = \"50ms\""));
}

#[test]
fn a_schedule_is_kept_or_said_to_be_missed() {
    world::own(|| {
        let load = "load = { kind = \"tcp-rr\", rate = 500, arrivals = \"poisson\" }";
        everywhere(load, &[(Side::Local, Metric::Transactions)], |record, what| {
            // All that was due in 200 ms, made or not; 100 on average, by chance hardly more than 150.
            let rate = get(record, Side::Local, Metric::Transactions);
            assert!(
                rate < 750.0 || !record.flags.is_empty(),
                "{what}: {rate} transactions a second, {:?}",
                record.flags
            );
        });
    });
}

/// What arrives has been sent, and no more.
fn datagrams(load: &str) {
    let figures = with_cpu(&[
        (Side::Sender, Metric::Datagrams),
        (Side::Receiver, Metric::Datagrams),
        (Side::Receiver, Metric::Throughput),
    ]);
    everywhere(&format!("load = {{ kind = \"udp-stream\", {load} }}"), &figures, |record, what| {
        let loss = get(record, Side::Receiver, Metric::Loss);
        assert!((0.0..100.0).contains(&loss), "{what}: {loss} % lost");
    });
}

#[test]
fn datagrams_arrive_or_are_counted_as_lost() {
    world::own(|| datagrams("message = \"1000\""));
}

#[test]
fn the_kernel_may_cut_up_datagrams_and_put_them_together() {
    let load = "message = \"1000\", throttle = \"1MB/s\", batch = 4, segments = 4, coalesce = true";
    world::own(|| datagrams(load));
}

#[test]
fn datagrams_can_go_to_the_end_that_connects() {
    world::own(|| datagrams("message = \"1000\", throttle = \"1MB/s\", flow = \"reverse\""));
}

#[test]
fn datagrams_can_go_both_ways() {
    world::own(|| {
        let load = "load = { kind = \"udp-stream\", message = \"1000\", throttle = \"1MB/s\", flow = \"both\" }";
        let figures =
            [Side::Local, Side::Remote].map(|side| [(side, Metric::Datagrams), (side, Metric::Throughput)]).concat();
        everywhere(load, &figures, |_, _| ());
    });
}

#[test]
fn transactions_are_measured_while_a_stream_runs() {
    world::own(|| {
        let scenario = "load = { kind = \"tcp-rr\" }\nunder = { kind = \"tcp-stream\", message = \"64k\" }";
        let figures = with_cpu(&[(Side::Local, Metric::Transactions), (Side::Receiver, Metric::BackgroundThroughput)]);
        everywhere(scenario, &figures, |record, what| {
            assert_eq!(figure(record, Side::Receiver, Metric::Throughput), None, "{what}");
            assert_eq!(directions(record).len(), 2, "{what}");
            let names = |background| {
                let of = record.workers.iter().filter(move |worker| worker.background == background);
                of.map(|worker| worker.name.clone()).collect::<Vec<_>>()
            };
            assert_eq!(names(true), names(false), "{what}: the loads run between the same endpoints");
        });
    });
}
