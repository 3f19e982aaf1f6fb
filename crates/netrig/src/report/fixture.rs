//! Trials, runs and documents made up for tests. Trials are read from JSON, so that fields with a default need no
//! mention.

pub(crate) mod balancer;
pub(crate) mod loads;

use std::time::Duration;

use rig_load::plan::Phases;
use rig_stats::confidence::Level;
use serde_json::{Value, json};

use super::document::{
    Axis, BarGroup, Bars, Block, Cell, Chart, Claim, Column, Distribution, Document, Interval, Label, Line, Lines,
    Mark, Number, Percentiles, Row, Stacked, StackedRow, Table, Verdict,
};
use super::view::{Certainty, RunView, ScenarioView, Status};
use crate::claim::{Metric, Side};
use crate::record::{Environment, Flag, RigCost, TrialRecord};
use crate::suite::{Form, Layout, LayoutColumn};

pub(crate) struct TrialOptions {
    pub scenario: &'static str,
    pub ordinal: u32,
    pub send_bytes: u64,
    pub receive_bytes: u64,
    /// Percent busy of each of the node's CPUs.
    pub sender_busy: Vec<f64>,
    pub receiver_busy: Vec<f64>,
    /// Both ends on node `a`, with the sender's CPUs.
    pub colocated: bool,
    pub retransmits: u32,
    /// Samples in the window.
    pub samples: u64,
    pub flags: Vec<Flag>,
}

impl Default for TrialOptions {
    fn default() -> Self {
        Self {
            scenario: "A",
            ordinal: 1,
            send_bytes: 2_000_000_000,
            receive_bytes: 2_000_000_000,
            sender_busy: vec![50.0],
            receiver_busy: vec![80.0],
            colocated: false,
            retransmits: 0,
            samples: 0,
            flags: Vec::new(),
        }
    }
}

/// The window of every made-up trial: 2 s.
const WINDOW_NS: u64 = 2_000_000_000;

pub(crate) fn trial(options: &TrialOptions) -> TrialRecord {
    let receiver = if options.colocated { "a/receiver" } else { "b/receiver" };
    let mut nodes = vec![node("a", 0, &options.sender_busy)];
    if !options.colocated {
        nodes.push(node("b", options.sender_busy.len(), &options.receiver_busy));
    }
    let begin = 5_000_000_000u64;
    serde_json::from_value(json!({
        "scenario": options.scenario, "ordinal": options.ordinal,
        "started_unix_ms": 1_780_000_000_000i64 + 4000 * i64::from(options.ordinal),
        "setup_us": 41_000 + 500 * options.ordinal, "teardown_us": 20_000, "total_us": 3_000_000,
        "window_begin_ns": begin, "window_end_ns": begin + WINDOW_NS,
        "nodes": nodes,
        "workers": [
            worker("a/sender", "send", options.send_bytes, options.retransmits, options.samples),
            worker(receiver, "receive", options.receive_bytes, 0, options.samples),
        ],
        "flags": options.flags,
    }))
    .unwrap()
}

fn node(name: &str, first_cpu: usize, busy: &[f64]) -> Value {
    let cpus = busy.iter().enumerate().map(|(i, busy)| {
        json!({
            "cpu": first_cpu + i, "user": busy * 0.05, "system": busy * 0.65, "softirq": busy * 0.25, "irq": busy * 0.05,
            "steal": (100.0 - busy) * 0.1, "idle": (100.0 - busy) * 0.9,
            "packets_processed": 1000, "backlog_drops": 0, "time_squeezes": 0,
        })
    });
    json!({
        "name": name, "cpus": cpus.collect::<Vec<_>>(), "interfaces": [],
        "protocol": {
            "tcp_segments_out": 0, "tcp_segments_in": 0, "tcp_retransmitted_segments": 0, "tcp_in_errors": 0,
            "ip_in_discards": 0, "ip_out_discards": 0, "udp_receive_buffer_errors": 0,
        },
    })
}

fn worker(name: &str, direction: &str, bytes: u64, retransmits: u32, samples: u64) -> Value {
    let state = |total_retransmits: u32| {
        json!({
            "rtt_us": 300, "rtt_variance_us": 20, "min_rtt_us": 20, "congestion_window": 900,
            "total_retransmits": total_retransmits, "delivery_rate_bytes_per_second": 0, "limited_by_receiver_us": 0,
            "limited_by_send_buffer_us": 0, "segments_out": 0, "segments_in": 0, "bytes_retransmitted": 0,
        })
    };
    let samples = (0..samples).map(|i| {
        // In long courses the load wavers, but each pair of samples still has its share.
        let share = bytes / samples;
        let bytes = match (samples > 4, i % 2) {
            (false, _) => share,
            (true, 0) => share - share / 8,
            (true, _) => share + share / 8,
        };
        json!({
            "at_ns": WINDOW_NS / samples * (i + 1), "span_ns": WINDOW_NS / samples,
            "bytes": bytes, "rtt_us": 300, "congestion_window": 900, "retransmits": 0,
        })
    });
    json!({
        "name": name, "direction": direction, "engine": "blocking", "send_mode": "copy", "receive_mode": "copy",
        "window_begin_ns": 5_000_000_000u64, "window_end_ns": 5_000_000_000u64 + WINDOW_NS,
        "process_cpu": {"user_ns": 0, "system_ns": 0}, "threads": [],
        "connections": [{
            "thread": 0, "local": "10.0.0.1:40000", "remote": "10.0.0.2:5001", "bytes": bytes, "operations": 1,
            "congestion_control": "cubic", "send_buffer": 425_984, "receive_buffer": 4_194_304, "mss": 1448,
            "begin": state(3), "end": state(3 + retransmits),
        }],
        "samples": samples.collect::<Vec<_>>(), "zerocopy_copied": 0, "notes": [],
    })
}

/// A document with every kind of block, and names that would break a careless writer.
pub(crate) fn document() -> Document {
    let mut table = Table::new("On sender nodes <b>\"quoted\"</b>", "Metric");
    table.columns = vec![
        Column::number(Label::with_subhead("A", "Raw <&> | stack"), None),
        Column::number(Label::with_subhead("B", "Containers `with` *stars* _and_ a_snake"), None),
        Column::number(Label::with_subhead("C", "容器 と ネットワーク"), None),
        Column::text(Label::new("Remark")),
    ];
    table.reference = Some("study".to_owned());
    let figure = |value, half, reference| {
        let interval = Interval { low: value - half, high: value + half };
        Cell::from(Number::new(value, 1).with_interval(Some(interval)).with_reference(Some(reference)))
    };
    table.rows = vec![
        Row {
            label: "Throughput".to_owned(),
            unit: Some("Mbit/s".to_owned()),
            cells: vec![
                figure(23_456.78, 234.5, 7375.159),
                figure(9_876.54, 12.3, 1592.691),
                Cell::missing("no trial gave this figure"),
                Cell::text(
                    "comma, \"quote\", new\nline, \u{1b}[31mescape\u{1b}[0m, \u{202e}reversed, and a long tail of words",
                ),
            ],
        },
        Row {
            label: "Avg. CPU".to_owned(),
            unit: Some("%".to_owned()),
            cells: vec![
                figure(14.8, 2.1, 14.799),
                Number::new(-0.01, 1).with_interval(Some(Interval { low: -0.02, high: 0.3 })).into(),
                Cell::number(f64::NAN, 1),
                Cell::text("a|b\\|c"),
            ],
        },
    ];
    table.notes = vec!["1. not a list | and [not](a link) <script>alert(1)</script>".to_owned()];
    let claim = |text: &str, expression: &str, verdict, words: &str| Claim {
        text: text.to_owned(),
        expression: expression.to_owned(),
        verdict,
        words: words.to_owned(),
    };
    let blocks = vec![
        Block::heading(2, "Results & <more>"),
        Block::paragraph(
            "# not a heading, but a paragraph that is long enough to be wrapped on a terminal of any usual width.",
        ),
        Block::List { items: vec!["first *item*".to_owned(), "- second, no nested list".to_owned()] },
        Block::Table(table),
        Block::Claims {
            claims: vec![
                claim(
                    "The switch costs <half>",
                    "A.throughput >= 2 * B.throughput",
                    Verdict::Holds,
                    "the ratio is 2.37",
                ),
                claim("A | B", "A.sender.cpu <= `10`", Verdict::Refuted, "14.8 (95 % interval 12.7 to 16.9)"),
                claim("Nobody knows", "C.throughput > 0", Verdict::Undecided, "not measured: C.throughput"),
            ],
        },
        Block::info("The kernel's VXLAN stands in for <the> vRouter."),
        Block::warning("2 of 3 trials | carry flags."),
        Block::Preformatted {
            caption: Some("Testbed <A>".to_owned()),
            text: "┌─ node a ─┐\n│ ```&<>  │\n└──────────┘\n".to_owned(),
        },
        Block::Figure(Chart::Bars(bars())),
        Block::Figure(Chart::Stacked(stacked())),
        Block::Figure(Chart::Lines(lines())),
        Block::Figure(Chart::Percentiles(percentiles())),
    ];
    Document {
        title: "What <each> layer & its |cost|".to_owned(),
        summary: vec!["Run 7 of suite layers, complete".to_owned(), "A CPU with <angle> brackets".to_owned()],
        blocks,
        details: vec![
            Block::heading(2, "Environment"),
            Block::KeyValues {
                caption: None,
                pairs: vec![
                    ("Kernel".to_owned(), "6.18.5 #1 <SMP>".to_owned()),
                    ("net.ipv4.tcp_rmem".to_owned(), "4096\t131072\t6291456".to_owned()),
                ],
            },
        ],
        data: json!({"scenarios": [{"id": "A", "throughput_bits_per_second": 23_456_780_000.5}]}),
    }
}

fn bars() -> Bars {
    let bar = |value: f64, half: f64, reference: f64| {
        let interval = Interval { low: value - half, high: value + half };
        Some(Number::new(value, 1).with_interval(Some(interval)).with_reference(Some(reference)))
    };
    Bars {
        title: "Throughput <by> scenario".to_owned(),
        axis: Axis::new("Throughput", "Mbit/s"),
        series: vec!["sender".to_owned(), "receiver & co".to_owned()],
        groups: vec![
            BarGroup {
                label: Label::with_subhead("A", "Raw <&> | stack"),
                bars: vec![bar(23_456.8, 900.0, 7375.2), bar(23_400.1, 950.0, 7375.2)],
            },
            BarGroup {
                label: Label::with_subhead("B", "容器 と ネットワーク"),
                bars: vec![bar(9876.5, 12.3, 9000.0), None],
            },
        ],
        reference: Some("study".to_owned()),
    }
}

fn stacked() -> Stacked {
    let row = |head: &str, subhead: &str, values: [f64; 4]| StackedRow {
        label: Label::with_subhead(head, subhead),
        values: values.into(),
        figure: Number::new(values[..3].iter().sum(), 1),
    };
    Stacked {
        title: "What the CPUs did".to_owned(),
        axis: Axis::new("CPU time", "%"),
        limit: 100.0,
        parts: ["user", "system", "softirq", "<stolen>"].map(str::to_owned).into(),
        rows: vec![
            row("A", "node a, sender", [3.0, 44.0, 9.0, 1.0]),
            row("A", "node b, receiver", [2.0, 60.0, 35.0, 3.0]),
            row("B", "node a, sender and receiver", [1.0, 20.0, 5.0, 0.0]),
        ],
    }
}

fn lines() -> Lines {
    let line = |label: &str, base: f64| Line {
        label: label.to_owned(),
        points: (0..10).map(|i| (f64::from(i) + 0.5, base + 120.0 * f64::from(i * 7 % 5))).collect(),
    };
    Lines {
        title: "Throughput over time".to_owned(),
        x: Axis::new("Time in the window", "s"),
        y: Axis::new("Throughput", "Mbit/s"),
        lines: vec![line("trial 1", 9000.0), line("trial <2>", 8900.0), line("trial 3", 4200.0)],
    }
}

fn percentiles() -> Percentiles {
    let line = |label: &str, fast: u64, slow: u64| {
        let histogram = loads::histogram(&[(fast, 900), (2 * fast, 90), (slow, 10)]);
        let value = |percentile| histogram.percentile(percentile).map(|ns| ns as f64 / 1000.0);
        let mark = |percentile| Mark { percentile, value: value(percentile).filter(|_| percentile < 99.95) };
        Distribution {
            label: label.to_owned(),
            count: histogram.count(),
            marks: [50.0, 90.0, 99.0, 99.9, 99.99].map(mark).into(),
            points: [0.0, 50.0, 80.0, 95.0, 99.0, 99.9].map(|p| (p, value(p).unwrap())).into(),
            histogram,
        }
    };
    Percentiles {
        title: "Latency of <all> transactions".to_owned(),
        value: Axis::new("Latency", "µs"),
        lines: vec![line("none", 11, 300), line("etun & routing", 24, 4100)],
    }
}

/// A run of some scenarios of a study that was stopped before its last scenario had a trial.
pub(crate) fn run_view() -> RunView {
    let scenarios = vec![
        scenario("A", "Raw <no switch>", 23_400, [62.0, 91.0], false),
        scenario("B", "Containers", 17_900, [71.0, 97.5], false),
        scenario("C", "Colocated containers", 14_200, [99.0, 0.0], true),
        scenario("D", "Containers with overlay", 8_100, [55.0, 98.2], false),
        scenario("E", "Containers (no seg)", 1_240, [93.0, 88.0], false),
        ScenarioView {
            trials: Vec::new(),
            certainty: Certainty::Unfinished,
            ..scenario("T2", "2 containers, 2 threads", 0, [0.0; 2], false)
        },
    ];
    let column = |head: &str, figures: Option<[(u64, f64); 2]>| LayoutColumn {
        head: head.into(),
        scenario: head.into(),
        published: [Side::Sender, Side::Receiver]
            .into_iter()
            .zip(figures.into_iter().flatten())
            .flat_map(|(side, (rate, cpu))| [(side, Metric::Throughput, rate as f64), (side, Metric::Cpu, cpu)])
            .collect(),
    };
    let table = Layout {
        title: "From raw to overlay".to_owned(),
        form: Form::Columns(vec![
            column("A", Some([(7_375_159_000, 14.799), (7_375_198_000, 21.161)])),
            column("B", Some([(1_592_691_000, 15.843), (1_592_698_000, 42.278)])),
            column("C", Some([(1_956_786_000, 57.098), (1_948_824_000, 57.086)])),
            column("D", Some([(658_291_000, 40.992), (657_520_000, 48.184)])),
            column("E", Some([(235_852_000, 29.373), (235_784_000, 25.064)])),
            column("not part of this run", None),
        ]),
        source: Some("Contrail Windows Performance Testing, results".to_owned()),
        notes: Vec::new(),
    };
    let claim = |text: &str, expression: &str, verdict, words: &str| Claim {
        text: text.into(),
        expression: expression.into(),
        verdict,
        words: words.into(),
    };
    RunView {
        id: "12".into(),
        suite: "layers".into(),
        suite_file: "layers.toml".into(),
        suite_text: crate::suite::Suite::load("layers").unwrap().text,
        baseline: Some("B".into()),
        title: "What each layer of a container network costs".into(),
        about:
            "TCP throughput and CPU cost from the bare stack to containers on two nodes, behind a virtual switch and \
                behind an overlay, with and without segmentation."
                .into(),
        started_unix_ms: 1_780_000_000_000,
        status: Status::Interrupted { done: 15, planned: 18 },
        options: "--quick".into(),
        cpus: vec!["0-1".into(), "2-3".into()],
        phases: Phases {
            warm_up: Duration::from_millis(300),
            window: Duration::from_secs(2),
            cool_down: Duration::from_millis(50),
            interval: Duration::from_millis(250),
        },
        repetition: "3 trials of each scenario".into(),
        level: Level::default(),
        goal: None,
        environment: Environment {
            netrig_version: "0.1.0".into(),
            kernel: "6.18.5".into(),
            cpu_model: "Example CPU @ 2.60GHz".into(),
            cpus_online: 4,
            memory_bytes: 16 << 30,
            clock_source: "tsc".into(),
            congestion_control: "bbr".into(),
            hypervisor: Some("kvm".into()),
            rootless: false,
            load_average_hundredths: 42,
            sysctls: vec![("net.core.rmem_max".into(), "212992".into())],
            ..Environment::default()
        },
        rig_cost: Some(RigCost {
            nodes: vec![("a".into(), 0.31), ("b".into(), 0.24)],
            busy: vec![("a".into(), 1.2), ("b".into(), 0.9)],
        }),
        scenarios,
        left_out: Vec::new(),
        tables: vec![table],
        claims: vec![
            claim(
                "A virtual switch reduces throughput by a factor of 3 to 4",
                "A.throughput / B.throughput within 3 .. 4",
                Verdict::Refuted,
                "A.throughput / B.throughput is 1.307 (95% interval 1.28 to 1.335), claimed from 3 to 4",
            ),
            claim(
                "Without the wire, containers are faster",
                "C.throughput > B.throughput",
                Verdict::Holds,
                "C.throughput / B.throughput is 1.2 (95% interval 1.17 to 1.23), claimed more than 1",
            ),
            claim(
                "Two threads are no faster than one",
                "T2.throughput <= 1.05 * B.throughput",
                Verdict::Undecided,
                "not measured: T2.throughput",
            ),
        ],
    }
}

fn scenario(id: &'static str, name: &str, mbit: u64, busy: [f64; 2], colocated: bool) -> ScenarioView {
    let overlay = id == "D";
    let trials = (1..=3).map(|ordinal| {
        // Three trials around the mean: one above, one below, one on it.
        let share = [1000, 985, 1015][ordinal as usize - 1];
        let bytes = mbit * 250_000 * share / 1000;
        let mut flags = Vec::new();
        if busy[1] > 97.0 {
            flags.push(Flag::Saturated { node: "b".into(), percent: busy[1] + f64::from(ordinal) / 10.0 });
        }
        if overlay && ordinal > 1 {
            flags.push(Flag::Dropped { place: "b:eth0".into(), packets: u64::from(ordinal) * 17 });
        }
        trial(&TrialOptions {
            scenario: id,
            ordinal,
            send_bytes: bytes + 131_072,
            receive_bytes: bytes,
            sender_busy: vec![busy[0] * share as f64 / 1000.0],
            receiver_busy: vec![busy[1]],
            colocated,
            retransmits: if overlay { 55 * ordinal } else { 0 },
            samples: 8,
            flags,
        })
    });
    ScenarioView {
        id: id.into(),
        name: name.into(),
        about: "Two ends, one stream.".into(),
        notes: overlay
            .then(|| "The kernel's bridge and VXLAN stand in for the study's vRouter.".into())
            .into_iter()
            .collect(),
        topology: "┌─ node a ─────┐          ┌─ node b ───────┐\n│ sender ─ eth0├── wire ──┤eth0 ─ receiver │\n\
                   └──────────────┘          └────────────────┘\n"
            .into(),
        load: "tcp-stream, messages of 128 KiB, receive buffer of 2 MiB, 1 thread with 1 connection, io_uring with 2 \
               outstanding sends and 16 outstanding receives"
            .into(),
        plan: loads::tcp_stream("forward", 128 << 10),
        trials: trials.collect(),
        certainty: if overlay {
            Certainty::Missed("confidence not reached: sender cpu ±3.7 %".into())
        } else {
            Certainty::Reached
        },
    }
}
