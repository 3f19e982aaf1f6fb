//! Trials made up for tests. Trials are read from JSON, so that fields with a default need no
//! mention.

#![allow(clippy::unwrap_used, reason = "what is made up for tests is well-formed")]

pub mod balancer;
pub mod loads;

use rig_stats::series::Track;
use serde_json::{Value, json};

use crate::layers::{CpuTimeOwner, Kind, LayerSamples, LayersRecord, NodeLayers};
use crate::record::{CommandRecord, DutRecord, Flag, PhaseEnd, PhaseRecord, Profile, Series, TrialRecord};

/// Trials that version 0.1.0 stored, one of a TCP stream and one of packets.
pub const STREAM_TRIAL: &str = include_str!("../tests/records/trial-0.1.0.json");
pub const PACKETS_TRIAL: &str = include_str!("../tests/records/trial-packets-0.1.0.json");

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
        totals: vec![(CpuTimeOwner::Sender, 0.6), (CpuTimeOwner::Receiver, 0.9)],
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

/// A DUT of two workers on CPUs of its own.
pub fn dut() -> DutRecord {
    DutRecord {
        workers: vec![4, 5],
        shared: Vec::new(),
        system: "netrig".into(),
        in_packets: 6000,
        in_bytes: 500_000,
        out_packets: 5990,
        out_bytes: 499_000,
        connections: Some(77),
        memory_bytes: None,
        services: Vec::new(),
        drops: vec![("no backend".into(), 7), ("table full".into(), 3)],
        profile: None,
    }
}
