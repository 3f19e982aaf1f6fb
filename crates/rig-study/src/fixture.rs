//! Trials and runs made up for tests. Trials are read from JSON, so that fields with a default need no
//! mention.

#![allow(clippy::unwrap_used, reason = "what is made up for tests is well-formed")]

pub mod balancer;
pub mod loads;

use std::time::Duration;

use rig_load::plan::Phases;
use rig_stats::confidence::{Interval, Level};
use rig_stats::series::Track;
use serde_json::{Value, json};

use crate::claim::{EffectUnit, Metric, Side, Threshold, Verdict};
use crate::layers::{End, Kind, LayerSamples, LayersRecord, NodeLayers};
use crate::record::{CommandRecord, Environment, Flag, PhaseEnd, PhaseRecord, Profile, RigCost, Series, TrialRecord};
use crate::suite::{Form, Layout, LayoutColumn};
use crate::view::{Certainty, Claim, Effect, Open, RunView, ScenarioView, Status};

#[derive(Debug)]
pub struct TrialOptions {
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

pub fn trial(options: &TrialOptions) -> TrialRecord {
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

/// The trial with two phases of 1 s, the second of which a datapath is told of, and counters over time each 0.5 s.
pub fn with_phases(trial: TrialRecord) -> TrialRecord {
    let begin_ns = trial.window_begin_ns;
    let track = |columns: &[(&str, [u64; 4])]| {
        let mut track = Track::default();
        (0..4).for_each(|at| track.push(500_000, columns.iter().map(|(name, values)| (*name, values[at]))));
        track.finished()
    };
    let phase = |number: u64, name: &str, commands: Vec<CommandRecord>| PhaseRecord {
        name: name.to_owned(),
        begin_ns: begin_ns + number * WINDOW_NS / 2,
        end_ns: begin_ns + (number + 1) * WINDOW_NS / 2,
        ended: PhaseEnd::Time,
        rates: Vec::new(),
        commands,
        nodes: trial.nodes.clone(),
    };
    let command = CommandRecord {
        datapath: "balancer".to_owned(),
        command: "weight".to_owned(),
        arguments: json!({"backend": 1, "weight": 0}).as_object().unwrap().clone(),
        told_ns: begin_ns + WINDOW_NS / 2,
        answered_ns: begin_ns + WINDOW_NS / 2 + 400_000 * u64::from(trial.ordinal),
        answers: vec![("lb".to_owned(), json!({"changed": 1}))],
    };
    let series = Series {
        begin_ns,
        interval_us: 500_000,
        workers: trial.workers.iter().map(|_| track(&[("bytes", [1000, 1000, 2000, 3000])])).collect(),
        nodes: trial.nodes.iter().map(|_| track(&[("cpu0_busy_us", [0, 0, 250_000, 500_000])])).collect(),
        agents: trial.agents.iter().map(|_| track(&[("connections", [3, 4, 5, 6])])).collect(),
        cost_us: 800,
    };
    let phases = vec![phase(0, "before", Vec::new()), phase(1, "after", vec![command])];
    TrialRecord { phases, series: Some(series), ..trial }
}

/// The trial with samples of both ends, by layer: `extra` of them a thousand are of netfilter.
pub fn with_layers(trial: TrialRecord, extra: u64) -> TrialRecord {
    let titles = [
        ("application", "Application"),
        ("unknown", "Unknown"),
        ("copy", "Copy"),
        ("socket", "Socket, TCP and UDP"),
        ("netfilter", "Netfilter"),
    ];
    let seed = u64::from(trial.ordinal) * 7 % 5;
    let part =
        |(layer, caller, samples): (usize, usize, u64)| LayerSamples { kind: Kind::Task, layer, caller, samples };
    let node = |name: &str, copy: u64| NodeLayers {
        node: name.to_owned(),
        parts: [(0, 0, 90 + seed), (1, 1, 5), (2, 3, copy - seed), (3, 3, 895 - copy - extra), (4, 4, 10 + extra)]
            .map(part)
            .into(),
        unknown: vec![("somewhere_[k]".to_owned(), 5)],
        profile: (trial.ordinal == 1).then(|| Profile {
            hertz: 997,
            samples: 100,
            stacks: vec![
                ("load-0;send_[k];tcp_sendmsg_[k]".to_owned(), 90 - extra / 10),
                ("load-0;send_[k];nft_do_chain_[k]".to_owned(), 10 + extra / 10),
            ],
            ..Profile::default()
        }),
        ..NodeLayers::default()
    };
    let layers = LayersRecord {
        map: "0123456789abcdef".to_owned(),
        layers: titles.map(|(id, title)| (id.to_owned(), title.to_owned())).into(),
        hertz: 997,
        nodes: vec![node("a", 200), node("b", 400)],
        totals: vec![(End::Sender, 0.6), (End::Receiver, 0.9)],
        ..LayersRecord::default()
    };
    TrialRecord { layers: Some(layers), ..trial }
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

/// A run of some scenarios of a study that was stopped before its last scenario had a trial.
pub fn run_view() -> RunView {
    let scenarios = vec![
        scenario("A", "Raw <no switch>", 23_400, [62.0, 91.0], false),
        scenario("B", "Containers", 17_900, [71.0, 97.5], false),
        scenario("C", "Colocated containers", 14_200, [98.0, 0.0], true),
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
    let effect = |of: &str, [value, low, high]: [f64; 3], threshold| Effect {
        of: of.into(),
        value,
        unit: EffectUnit::Number,
        interval: Some(Interval { low, high, level: Level::default() }),
        bound: None,
        threshold,
    };
    let claim = |text: &str, expression: &str, verdict, words: &str, effect| Claim {
        text: text.into(),
        expression: expression.into(),
        verdict,
        words: words.into(),
        effect,
        open: (verdict == Verdict::Undecided).then_some(Open::NotMeasured),
    };
    RunView {
        id: "12".into(),
        suite: "layers".into(),
        suite_file: "layers.toml".into(),
        suite_text: crate::suite::Suite::load("layers").unwrap().text,
        baseline: Some("B".into()),
        title: "What each layer of a container network costs".into(),
        question: "What do containers, a virtual switch and an overlay keep of the raw stack's throughput?".into(),
        answer: None,
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
        aa: None,
        set_apart: None,
        turns: None,
        peer: None,
        judged: Vec::new(),
        claims: vec![
            claim(
                "A virtual switch reduces throughput by a factor of 3 to 4",
                "A.throughput / B.throughput within 3 .. 4",
                Verdict::Refuted,
                "A.throughput / B.throughput is 1.307 (95 % interval 1.28 to 1.335), claimed from 3 to 4",
                Some(effect(
                    "A.throughput / B.throughput",
                    [1.307, 1.28, 1.335],
                    Threshold::Within { low: 3.0, high: 4.0 },
                )),
            ),
            claim(
                "Without the wire, containers are faster",
                "C.throughput > B.throughput",
                Verdict::Holds,
                "C.throughput / B.throughput is 1.2 (95 % interval 1.17 to 1.23), claimed more than 1",
                Some(effect("C.throughput / B.throughput", [1.2, 1.17, 1.23], Threshold::Above(1.0))),
            ),
            claim(
                "Two threads are no faster than one",
                "T2.throughput <= 1.05 * B.throughput",
                Verdict::Undecided,
                "not measured: T2.throughput",
                None,
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
        checks: None,
        trials: trials.collect(),
        certainty: if overlay { Certainty::Missed("sender cpu ±3.7 %".into()) } else { Certainty::Reached },
    }
}
