//! Runs that are made up, for tests.

#![allow(clippy::unwrap_used, reason = "what is made up for tests is well-formed")]

pub mod balancer;
pub mod draws;
pub mod netperf;

use std::time::Duration;

use rig_facts::claim::{EffectUnit, Metric, Side, Threshold, Verdict};
use rig_facts::fixture::{TrialOptions, loads, trial};
use rig_facts::record::{Environment, Flag, RigCost};
use rig_load::plan::Phases;
use rig_stats::confidence::{Interval, Level};
use rig_suite::suite::{Form, Layout, LayoutColumn};

use crate::view::{Certainty, Claim, Effect, Open, RunView, ScenarioView, Status};

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
        suite_text: rig_suite::suite::Suite::load("layers").unwrap().text,
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
        tool: None,
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
