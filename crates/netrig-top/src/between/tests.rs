#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::time::Duration;

use netrig_spread::actuator::Kind;
use netrig_spread::message::{self, Status};
use rig_datapath::receive;
use rig_spread::{Abilities, Machine, MoveReason, Order, Settings, Situation};
use rig_sys::counters::{self, CpuTicks, Softnet};

use super::*;
use crate::reading::{CountedQueue, ProgramCounts};
use crate::sample::{CounterSource, Entry, Interface};

const SECOND: u64 = 1_000_000_000;

/// A moment at which all counters of two CPUs and `eth0` are `n` times what they were at 1.
fn reading(n: u64) -> Reading {
    let ticks =
        |idle| CpuTicks { user: 20 * n, system: 20 * n, softirq: 10 * n, idle: idle * n, ..CpuTicks::default() };
    let softnet = Softnet { processed: 1000 * n, dropped: n, time_squeeze: 2 * n };
    let net = counters::Interface {
        rx_packets: 5000 * n,
        rx_bytes: 500_000 * n,
        rx_dropped: 3 * n,
        tx_packets: 100 * n,
        tx_bytes: 10_000 * n,
        ..counters::Interface::default()
    };
    Reading {
        at_ns: n * SECOND,
        ticks: [(0, ticks(50)), (1, ticks(150))].into(),
        softnet: [(0, softnet), (1, Softnet::default())].into(),
        interfaces: [("eth0".to_owned(), net)].into(),
        shown: vec!["eth0".to_owned()],
        own_cpu: Duration::from_millis(4 * n),
        ..Reading::default()
    }
}

fn spreader(n: u64) -> Status {
    let abilities = Abilities {
        entries: 2,
        single_moves: true,
        order: Order::Exact,
        distributes: true,
        base_moves: true,
        receiver_spreads: true,
        received_by: None,
        in_place: false,
        only_cpus: None,
    };
    let requested = Settings::default();
    let cpu = |cpu: u32| message::Cpu {
        cpu,
        base: cpu == 0,
        entries: 1,
        packets: 2500 * n,
        distributing_ns: 100_000_000 * n,
        processing_ns: 300_000_000 * n,
        other_ns: 50_000_000 * n,
        // What it had in the second before, which is older.
        packets_per_s: 77.0,
        ..message::Cpu::default()
    };
    let entry = |entry: u32| message::Entry {
        entry,
        receive_processor: entry.into(),
        packets: 2500 * n,
        cost_ns: Some(2_000_000 * n),
        packets_per_s: 77.0,
        moves: n,
        last_move_ms: Some(40),
        last_why: Some(MoveReason::Expand),
        ..message::Entry::default()
    };
    let interface = message::Interface {
        name: "eth0".to_owned(),
        index: 3,
        actuator: Kind::Napi,
        effective: rig_spread::effective(&requested, &Machine::uniform(2), &abilities),
        abilities,
        lacks: Vec::new(),
        requested,
        differences: Vec::new(),
        situation: Situation::Spread,
        in_place: false,
        base: 0,
        received_by: None,
        moves: message::Moves { total: [(MoveReason::Expand, 2 * n)].into(), ..message::Moves::default() },
        entries: vec![entry(0), entry(1)],
        cpus: vec![cpu(0), cpu(1)],
        received: message::ReceiveCounts { dropped_per_s: 9.0, ..message::ReceiveCounts::default() },
        past_queues: None,
    };
    Status {
        process: 7,
        uptime_ms: 1000 * n,
        at_ns: n * SECOND + 5,
        interfaces: vec![interface],
        cpus: vec![message::CpuLoad { cpu: 0, busy_ns: 600_000_000 * n, busy: 0.1 }],
        own: message::SpreaderUsage { cpu_ns: 2_000_000 * n, ..message::SpreaderUsage::default() },
        ..Status::default()
    }
}

fn only(sample: &Sample) -> &Interface {
    assert_eq!(sample.interfaces.len(), 1);
    &sample.interfaces[0]
}

#[test]
fn the_kernel_alone_counts_by_cpu_and_by_interface() {
    let sample = between(&reading(1), &reading(3));
    assert_eq!(sample.seconds, 2.0);
    let [zero, one] = sample.cpus[..] else { panic!("{:?}", sample.cpus) };
    assert_eq!((zero.busy, zero.softirq), (0.5, 0.1));
    assert_eq!((one.busy, one.processed_per_s), (0.25, 0.0));
    assert_eq!((zero.processed_per_s, zero.dropped_per_s, zero.squeezed_per_s), (1000.0, 1.0, 2.0));
    let eth0 = only(&sample);
    assert_eq!(eth0.counted_by, CounterSource::Kernel);
    assert_eq!((eth0.received.packets_per_s, eth0.received.bits_per_s), (5000.0, 4e6));
    assert_eq!((eth0.received.dropped_per_s, eth0.sent.packets_per_s), (3.0, 100.0));
    assert!(eth0.cpus.is_empty() && eth0.entries.is_empty());
    assert_eq!(sample.own.cpu, 0.004);
}

#[test]
fn an_interface_that_has_just_come_and_counters_that_begin_anew_have_no_rate() {
    let mut before = reading(3);
    before.interfaces.clear();
    assert_eq!(only(&between(&before, &reading(4))).received.packets_per_s, 0.0);
    let mut anew = reading(4);
    anew.interfaces.get_mut("eth0").unwrap().rx_packets = 1;
    assert_eq!(only(&between(&reading(3), &anew)).received.packets_per_s, 0.0);
    assert_eq!(only(&between(&reading(3), &reading(3))).received.packets_per_s, 0.0);
}

#[test]
fn a_spreader_tells_totals_and_rates_are_made_of_them() {
    let with = |n| Reading { spreader: Some(spreader(n)), ..reading(n) };
    let sample = between(&with(1), &with(3));
    let eth0 = only(&sample);
    assert_eq!((eth0.counted_by, eth0.cpus.len(), eth0.entries.len()), (CounterSource::Spreader, 2, 2));
    // V02 of a validation guide: what CPUs received is what the interface did.
    assert_eq!(eth0.cpus.iter().map(|cpu| cpu.packets_per_s).sum::<f64>(), eth0.received.packets_per_s);
    let cpu = eth0.cpus[0];
    assert!(cpu.base && !eth0.cpus[1].base);
    for (found, expected) in [(cpu.distributing, 0.1), (cpu.processing, 0.3), (cpu.other, 0.05)] {
        assert!((found - expected).abs() < 1e-9, "{cpu:?}");
    }
    let entry = eth0.entries[1];
    assert_eq!((entry.packets_per_s, entry.ns_per_packet, entry.receive_processor), (2500.0, Some(800.0), 1));
    let spread = eth0.spread.as_ref().unwrap();
    assert_eq!((spread.moves, spread.moves_now, spread.cpus_in_use), (6, 4, 2));
    assert_eq!(eth0.received.dropped_per_s, 9.0);
    assert_eq!((sample.cpus[0].busy, sample.spreader.unwrap().cpu), (0.6, 0.002));
}

#[test]
fn a_spreader_that_has_not_looked_or_is_another_one_tells_its_last_second() {
    let with = |n| Reading { spreader: Some(spreader(n)), ..reading(n) };
    let mut same = with(3);
    same.spreader = Some(spreader(1));
    assert_eq!(only(&between(&with(1), &same)).entries[0].packets_per_s, 77.0);
    let mut other = with(3);
    other.spreader.as_mut().unwrap().process = 8;
    let sample = between(&with(1), &other);
    assert_eq!((only(&sample).cpus[0].packets_per_s, only(&sample).entries[0].packets_per_s), (77.0, 77.0));
    assert_eq!(only(&sample).spread.as_ref().unwrap().moves_now, 0);
}

/// Two queues, each polled by the CPU of its number; the second has never been.
fn counted(n: u64) -> ProgramCounts {
    let ms = |ms: u64| Duration::from_millis(ms * n);
    let queue = receive::Queue { time: ms(200), packets: 1000 * n, polls: 10 * n, cpu: 1 };
    let watched =
        |queue: u32, index: u32| CountedQueue { interface: "eth0".to_owned(), queue, napi: 100 + queue, index };
    let cpu = |idle, watched| receive::Cpu {
        idle: ms(idle),
        watched: ms(watched),
        backlog: ms(50),
        ..receive::Cpu::default()
    };
    ProgramCounts {
        reading: receive::Reading {
            at: n * SECOND,
            queues: vec![receive::Queue::default(), queue],
            cpus: vec![cpu(900, 0), cpu(400, 200)],
        },
        queues: vec![watched(0, 1), watched(1, 0)],
        ..ProgramCounts::default()
    }
}

#[test]
fn programs_count_by_queue_and_by_cpu() {
    let with = |n| Reading { counted: Some(counted(n)), ..reading(n) };
    let sample = between(&with(1), &with(2));
    let eth0 = only(&sample);
    assert_eq!(eth0.counted_by, CounterSource::Programs);
    let expected = [
        Entry {
            entry: 0,
            receive_processor: 1,
            packets_per_s: 1000.0,
            ns_per_packet: Some(200_000.0),
            ..Entry::default()
        },
        Entry { entry: 1, receive_processor: -1, ..Entry::default() },
    ];
    assert_eq!(eth0.entries, expected);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let [zero, one] = eth0.cpus[..] else { panic!("{eth0:?}") };
    assert!(near(one.processing, 0.2) && near(one.other, 0.4) && one.distributing == 0.0, "{one:?}");
    assert!(near(zero.processing, 0.0) && near(zero.other, 0.1), "{zero:?}");
    assert_eq!((one.entries, one.packets_per_s, zero.entries), (1, 1000.0, 0));
    assert!(near(sample.cpus[1].busy, 0.6), "by the programs' clock, not by ticks");
    // A queue that is watched anew at another's place begins at nothing.
    let mut before = with(1);
    before.counted.as_mut().unwrap().queues[0].napi = 7;
    assert_eq!(only(&between(&before, &with(2))).entries[0].packets_per_s, 2000.0);
}

#[test]
fn where_packets_are_steered_polls_distribute_and_the_backlog_is_processing() {
    let with = |n| {
        let mut counted = counted(n);
        counted.steered.insert("eth0".to_owned());
        Reading { counted: Some(counted), ..reading(n) }
    };
    let one = only(&between(&with(1), &with(2))).cpus[1];
    assert!((one.distributing - 0.2).abs() < 1e-9 && (one.processing - 0.05).abs() < 1e-9, "{one:?}");
}
