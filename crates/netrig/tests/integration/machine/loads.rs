//! Every kind of load over every path, one alone and two at once.

use std::time::Duration;

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::figure;
use rig_facts::record::TrialRecord;
use rig_load::record::{Direction, End};
use rig_suite::suite::Suite;
use rig_testbed::Testbed;
use rig_testbed::topology::{Endpoints, Layout, Path};

use super::paths::agents;
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
         [defaults]\nwindow = \"100ms\"\nwarm_up = \"30ms\"\ncool_down = \"20ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n[testbed.one]\nnodes = [\"a\"]\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"{testbed}\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"{from}\"\nto = \"{to}\"\n{scenario}\n"
    );
    Suite::parse("loads.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// A machine that is busy with other things may leave a worker no CPU time at all in a short window, or let the ends meet its edges far
/// apart: what a short one does not show, a longer one has to.
const WINDOWS_MS: [u64; 3] = [100, 500, 4000];

/// A kind of load, and what a trial of it has to show.
struct Kind {
    name: &'static str,
    scenario: &'static str,
    /// Those above zero.
    figures: Vec<(Side, Metric)>,
    check: fn(&TrialRecord) -> Result<(), String>,
}

impl Kind {
    fn of(
        name: &'static str,
        scenario: &'static str,
        figures: &[(Side, Metric)],
        check: fn(&TrialRecord) -> Result<(), String>,
    ) -> Self {
        Self { name, scenario, figures: figures.to_vec(), check }
    }

    fn check(&self, record: &TrialRecord) -> Result<(), String> {
        let is_missing =
            |(side, metric): &&(Side, Metric)| figure(record, *side, *metric).is_none_or(|value| value <= 0.0);
        let missing: Vec<_> =
            self.figures.iter().filter(is_missing).map(|(side, metric)| format!("{side} {metric}")).collect();
        if !missing.is_empty() {
            return Err(format!("{missing:?} are missing"));
        }
        (self.check)(record)
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn get(record: &TrialRecord, side: Side, metric: Metric) -> f64 {
    figure(record, side, metric).unwrap()
}

fn directions(record: &TrialRecord) -> Vec<(Option<End>, Direction)> {
    record.workers.iter().filter(|worker| !worker.background).map(|worker| (worker.end, worker.direction)).collect()
}

fn listening_end(record: &TrialRecord, direction: Direction) -> Result<(), String> {
    let first = directions(record)[0];
    ensure(first == (Some(End::Listen), direction), || format!("{first:?}, not {direction:?} where it listens"))
}

/// Both ends count the same transactions, save those at the window's edges, which each end meets at its own time.
fn transactions(record: &TrialRecord) -> Result<(), String> {
    let ratio = get(record, Side::Local, Metric::Transactions) / get(record, Side::Remote, Metric::Transactions);
    let found = directions(record);
    ensure(
        (0.6..1.6).contains(&ratio)
            && found == [(Some(End::Listen), Direction::Respond), (Some(End::Connect), Direction::Request)],
        || format!("{ratio} as many transactions at one end as at the other, {found:?}"),
    )
}

/// What arrives has been sent, and no more.
fn datagrams(record: &TrialRecord) -> Result<(), String> {
    let loss = get(record, Side::Receiver, Metric::Loss);
    ensure((0.0..100.0).contains(&loss), || format!("{loss} % lost"))
}

fn kinds() -> Vec<Kind> {
    const CPU: [(Side, Metric); 2] = [(Side::Local, Metric::Cpu), (Side::Remote, Metric::Cpu)];
    let with_cpu = |figures: &[(Side, Metric)]| [figures, &CPU].concat();
    let stream = with_cpu(&[(Side::Sender, Metric::Throughput), (Side::Receiver, Metric::Throughput)]);
    let both_ways = with_cpu(&[(Side::Local, Metric::Throughput), (Side::Remote, Metric::Throughput)]);
    let answered = with_cpu(&[
        (Side::Local, Metric::Transactions),
        (Side::Remote, Metric::Transactions),
        (Side::Local, Metric::TransactionDemand),
        (Side::Local, Metric::Latency(Statistic::Mean)),
    ]);
    let arrived = with_cpu(&[
        (Side::Sender, Metric::Datagrams),
        (Side::Receiver, Metric::Datagrams),
        (Side::Receiver, Metric::Throughput),
    ]);
    let datagrams_both_ways =
        [Side::Local, Side::Remote].map(|side| [(side, Metric::Datagrams), (side, Metric::Throughput)]).concat();
    let under = with_cpu(&[(Side::Local, Metric::Transactions), (Side::Receiver, Metric::BackgroundThroughput)]);
    vec![
        Kind::of(
            "a TCP stream goes to the end that listens",
            "load = { kind = \"tcp-stream\", message = \"16k\" }",
            &stream,
            |record| listening_end(record, Direction::Receive),
        ),
        Kind::of(
            "a TCP stream can go to the end that connects",
            "load = { kind = \"tcp-maerts\", message = \"16k\" }",
            &stream,
            |record| listening_end(record, Direction::Send),
        ),
        Kind::of(
            "a TCP stream can go both ways",
            "load = { kind = \"tcp-stream\", message = \"16k\", flow = \"both\" }",
            &both_ways,
            |record| {
                let found = directions(record);
                ensure(found.iter().all(|(_, one)| *one == Direction::Both), || format!("{found:?}"))
            },
        ),
        Kind::of("TCP transactions are answered", "load = { kind = \"tcp-rr\" }", &answered, transactions),
        Kind::of(
            "many TCP transactions may be under way",
            "load = { kind = \"tcp-rr\", request = \"100\", response = \"10k\", in_flight = 4, connections = 2 }",
            &answered,
            transactions,
        ),
        Kind::of(
            "TCP transactions may have a connection each",
            "load = { kind = \"tcp-crr\" }",
            &answered,
            transactions,
        ),
        Kind::of(
            "UDP transactions are answered",
            "load = { kind = \"udp-rr\", request = \"64\", response = \"128\", timeout = \"50ms\" }",
            &answered,
            transactions,
        ),
        Kind::of(
            "a schedule is kept or said to be missed",
            "load = { kind = \"tcp-rr\", rate = 2000, arrivals = \"poisson\" }",
            &[(Side::Local, Metric::Transactions)],
            |record| {
                // All that was due in 100 ms, made or not; 200 on average, by chance hardly more than 270.
                let rate = get(record, Side::Local, Metric::Transactions);
                ensure(rate < 3000.0 || !record.flags.is_empty(), || format!("{rate} transactions a second, no flag"))
            },
        ),
        Kind::of(
            "datagrams arrive or are counted as lost",
            "load = { kind = \"udp-stream\", message = \"1000\" }",
            &arrived,
            datagrams,
        ),
        Kind::of(
            "the kernel may cut up datagrams and put them together",
            "load = { kind = \"udp-stream\", message = \"1000\", throttle = \"1MB/s\", batch = 4, segments = 4, coalesce = true }",
            &arrived,
            datagrams,
        ),
        Kind::of(
            "datagrams can go to the end that connects",
            "load = { kind = \"udp-stream\", message = \"1000\", throttle = \"1MB/s\", flow = \"reverse\" }",
            &arrived,
            datagrams,
        ),
        Kind::of(
            "datagrams can go both ways",
            "load = { kind = \"udp-stream\", message = \"1000\", throttle = \"1MB/s\", flow = \"both\" }",
            &datagrams_both_ways,
            |_| Ok(()),
        ),
        Kind::of(
            "transactions are measured while a stream runs",
            "load = { kind = \"tcp-rr\" }\nunder = { kind = \"tcp-stream\", message = \"64k\" }",
            &under,
            |record| {
                let throughput = figure(record, Side::Receiver, Metric::Throughput);
                let names = |background| {
                    let of = record.workers.iter().filter(move |worker| worker.background == background);
                    of.map(|worker| worker.name.clone()).collect::<Vec<_>>()
                };
                // The loads run between the same endpoints.
                let are_alike = names(true) == names(false);
                ensure(throughput.is_none() && directions(record).len() == 2 && are_alike, || {
                    format!("{throughput:?}, {:?} beside {:?}", names(true), names(false))
                })
            },
        ),
    ]
}

/// Trials of all kinds in one testbed of each family.
fn carries_all(path: &str) {
    world::own(|| {
        let path: Path = path.parse().unwrap();
        for family in ["ipv4", "ipv6"] {
            let Some(mut rig) = world::rig() else { return };
            let kinds = kinds();
            let topology = suite(path, family, kinds[0].scenario).scenarios[0].topology.clone();
            let shares = rig.placement().of(&topology, None).unwrap();
            let (host, trials) = rig.parts();
            let testbed = Testbed::build_on(host, &topology, &shares).unwrap();
            let _agents = agents(&testbed);
            for kind in kinds {
                let what = format!("{}: {path}, {family}", kind.name);
                let suite = suite(path, family, kind.scenario);
                let scenario = &suite.scenarios[0];
                assert_eq!(scenario.topology, topology, "{what}");
                let in_window = |window| {
                    let timing = suite.timing.with_window(Duration::from_millis(window)).unwrap();
                    let record = trials.trial_in(&testbed, scenario, 1, &timing, &mut |_, _| ());
                    let record = record.unwrap_or_else(|error| panic!("{what}: {error:#}"));
                    kind.check(&record).map_err(|why| format!("{why}, {:?}", record.flags))
                };
                let mut faults = Vec::new();
                for window in WINDOWS_MS {
                    match in_window(window) {
                        Ok(()) => {
                            faults.clear();
                            break;
                        }
                        Err(why) => faults.push(why),
                    }
                }
                assert!(faults.is_empty(), "{what}: {faults:#?}");
            }
        }
    });
}

/// A test for each path.
macro_rules! carried {
    ($($test:ident: $path:literal),+ $(,)?) => {
        $(
            #[test]
            fn $test() {
                carries_all($path);
            }
        )+

        #[test]
        fn no_path_is_left_out() {
            assert_eq!(Path::plain().map(Path::name).collect::<Vec<_>>(), [$($path),+]);
        }
    };
}

carried! {
    path_raw_carries_every_kind: "raw",
    path_etun_carries_every_kind: "etun",
    path_bridge_carries_every_kind: "bridge",
    path_macvlan_carries_every_kind: "macvlan",
    path_colocated_carries_every_kind: "colocated",
    path_veth_carries_every_kind: "veth",
    path_vxlan_carries_every_kind: "vxlan",
    path_vrouter_carries_every_kind: "vrouter",
    path_routed_carries_every_kind: "routed",
}
