use super::*;
use crate::claim::{Metric, Side};
use crate::figures::{cpu_time_per, figure};
use crate::fixture::balancer::{self, MeasuredLimit};
use crate::fixture::loads::{histogram, request_response, transactions};
use crate::fixture::{TrialOptions, trial};
use crate::layers::{CostUnit, is_by_connection};
use crate::record::{LayerSamples, NodeLayers, SearchedRate};

const LAYERS: [&str; 4] = ["application", "unknown", "copy", "socket"];

/// A trial whose sender was busy as given, with samples of (layer, caller, count).
fn sampled(ordinal: u32, busy: f64, parts: &[(usize, usize, u64)]) -> TrialRecord {
    let mut record = trial(&TrialOptions { ordinal, sender_busy: vec![busy], ..TrialOptions::default() });
    let parts = parts
        .iter()
        .map(|&(layer, caller, samples)| LayerSamples { kind: Kind::Task, layer, caller, samples })
        .collect();
    record.layers = Some(LayersRecord {
        map: "m".into(),
        layers: LAYERS.iter().map(|id| ((*id).to_owned(), id.to_uppercase())).collect(),
        nodes: vec![NodeLayers { node: "a".into(), parts, idle: 50, ..NodeLayers::default() }],
        totals: vec![(CpuTimeOwner::Sender, 0.4)],
        ..LayersRecord::default()
    });
    record
}

fn of_sender(trials: &[TrialRecord]) -> LayersData {
    let all = of_scenario(trials, Level::default());
    all.into_iter().find(|data| data.end == CpuTimeOwner::Sender).unwrap()
}

#[test]
fn the_parts_add_up_to_what_was_counted() {
    let trials = [
        sampled(1, 50.0, &[(0, 0, 100), (2, 3, 300), (3, 3, 590), (1, 1, 10)]),
        sampled(2, 60.0, &[(0, 0, 130), (2, 3, 280), (3, 3, 570), (1, 1, 20)]),
        sampled(3, 55.0, &[(0, 0, 90), (2, 0, 300), (3, 3, 610)]),
    ];
    let data = of_sender(&trials);
    let counted = trials.iter().map(|trial| figure(trial, Side::Sender, Metric::ServiceDemand).unwrap());
    let counted = counted.sum::<f64>() / 3.0;
    let sum = |of: &dyn Fn(&LayerPart) -> f64| data.parts.iter().map(of).sum::<f64>();
    assert!((data.total - counted).abs() < 1e-12);
    assert!((sum(&|part| part.mean) - counted).abs() < 1e-12);
    assert!((sum(&|part| part.with_called) - counted).abs() < 1e-12);
    assert!((sum(&|part| part.percent) - 100.0).abs() < 1e-9);
    for (n, total) in data.totals.iter().enumerate() {
        assert!((sum(&|part| part.values[n]) - total).abs() < 1e-12);
    }
    assert_eq!((data.samples, data.unit.as_str(), data.trials.as_slice()), (3000, "us/KB", &[1, 2, 3][..]));
    assert!((data.unknown_percent - 1.0).abs() < 0.1);
    let ids: Vec<&str> = data.parts.iter().map(|part| part.layer.as_str()).collect();
    assert_eq!(ids, ["application", "copy", "socket", "unknown"]);
    let part = |id: &str| data.parts.iter().find(|part| part.layer == id).unwrap();
    // Of trial 1 and 2 copies are called by sockets, of 3 by the application: 0.89, 0.85 and 0.61 have their centre at 0.8, with
    // 0.1875 of the application and 0.01 without a layer.
    let expected = data.total * 0.8 / (0.8 + 0.1875 + 0.01);
    assert!((part("socket").with_called - expected).abs() < 1e-12);
    assert!(part("copy").with_called.abs() < 1e-12);
    assert!(data.parts.iter().all(|part| part.low <= part.mean && part.mean <= part.high && part.low >= 0.0));
}

#[test]
fn each_kind_of_time_is_divided_by_samples_of_its_own() {
    let mut record = sampled(1, 50.0, &[]);
    let cpu = &mut record.nodes[0].cpus[0];
    (cpu.user, cpu.system, cpu.softirq, cpu.irq, cpu.idle) = (10.0, 10.0, 20.0, 10.0, 50.0);
    cpu.accounting = Accounting::Exact;
    let layers = record.layers.as_mut().unwrap();
    layers.layers.push(("interrupts".into(), "Interrupts".into()));
    let part = |kind, layer, samples| LayerSamples { kind, layer, caller: layer, samples };
    // Ten times as many samples of softirqs as their time would have.
    layers.nodes[0].parts = vec![part(Kind::Task, 2, 100), part(Kind::Softirq, 3, 900), part(Kind::Softirq, 2, 100)];
    let data = of_sender(&[record.clone()]);
    let share = |id: &str| data.parts.iter().find(|part| part.layer == id).unwrap().percent;
    assert!((share("copy") - (40.0 + 4.0)).abs() < 1e-9 && (share("socket") - 36.0).abs() < 1e-9, "{data:?}");
    // Of which the clock sees nothing.
    assert!((share("interrupts") - 20.0).abs() < 1e-9, "{data:?}");
    // Where interrupts are counted to what they met, the time of each kind is not known.
    record.nodes[0].cpus[0].irq_met_idle = true;
    let data = of_sender(&[record]);
    let of_copies = data.parts.iter().find(|part| part.layer == "copy").unwrap().percent;
    assert!((of_copies - 100.0 * 200.0 / 1100.0).abs() < 1e-9, "{data:?}");
}

#[test]
fn a_clock_that_finds_more_work_than_was_counted_is_told() {
    let mut record = sampled(1, 50.0, &[(3, 3, 800)]);
    let layers = record.layers.as_mut().unwrap();
    (layers.hertz, layers.window_end_ns) = (1000, 1_000_000_000);
    layers.nodes[0].cpus = vec![0];
    let at = |busy: f64| {
        let mut record = record.clone();
        record.layers.as_mut().unwrap().nodes[0].busy_percent = busy;
        of_sender(&[record]).misplaced_trials
    };
    assert_eq!((at(30.0), at(78.0), at(99.0)), (1, 0, 1));
    record.layers.as_mut().unwrap().clock = Some(Clock::Cycles);
    record.layers.as_mut().unwrap().nodes[0].busy_percent = 30.0;
    assert_eq!(of_sender(&[record]).misplaced_trials, 0, "a CPU that runs faster has more cycles");
}

#[test]
fn a_single_trial_has_the_interval_of_its_samples() {
    let data = of_sender(&[sampled(1, 50.0, &[(2, 2, 50), (3, 3, 50)])]);
    assert_eq!(data.total_low, None);
    // Wilson's of 50 of 100: 0.4038 to 0.5962 (Brown, Cai and DasGupta, Statistical Science 16 (2001), formula 4).
    let copy = data.parts.iter().find(|part| part.layer == "copy").unwrap();
    assert!(
        (copy.low / data.total - 0.4038).abs() < 1e-4 && (copy.high / data.total - 0.5962).abs() < 1e-4,
        "{copy:?}"
    );
    assert_eq!(wilson(0.0, 100, Level::default()).0, 0.0);
    assert!((wilson(0.0, 100, Level::default()).1 - 0.0370).abs() < 1e-4);
}

#[test]
fn trials_that_agree_by_chance_do_not_hide_how_few_samples_there_are() {
    let same = |ordinal| sampled(ordinal, 50.0, &[(2, 2, 5), (3, 3, 5)]);
    let data = of_sender(&[same(1), same(2), same(3)]);
    let copy = &data.parts[0];
    assert!(copy.high - copy.low > 0.3 * data.total, "{copy:?}");
}

#[test]
fn a_trial_that_something_else_disturbed_moves_no_part() {
    let quiet = |ordinal: u32| {
        let noise = u64::from(ordinal % 3);
        sampled(ordinal, 50.0, &[(0, 0, 200 + noise), (2, 2, 300 - noise), (3, 3, 500)])
    };
    let mut trials: Vec<TrialRecord> = (1..=14).map(quiet).collect();
    let before = of_sender(&trials);
    // Half of its samples are of something else.
    trials[4] = sampled(5, 50.0, &[(0, 0, 1200), (2, 2, 300), (3, 3, 500)]);
    let after = of_sender(&trials);
    for (old, new) in before.parts.iter().zip(&after.parts) {
        assert!((new.mean / old.mean - 1.0).abs() < 0.01, "{old:?}\n{new:?}");
        assert!(new.high - new.low < 1.1 * (old.high - old.low), "{old:?}\n{new:?}");
        let (low, high) = (new.percent_low.unwrap(), new.percent_high.unwrap());
        assert!(low <= new.percent && new.percent <= high && high - low < 7.0, "{new:?}");
    }
    let sum: f64 = after.parts.iter().map(|part| part.mean).sum();
    assert!((sum - after.total).abs() < 1e-12);
}

#[test]
fn what_a_block_does_to_all_scenarios_is_no_difference() {
    // The machine wanders by a fifth; the new scenario copies a tenth more of its time.
    let trial = |block: u32, extra: u64| {
        let busy = 50.0 * (1.0 + 0.2 * f64::from(block % 4));
        let mut record = sampled(block + 1, busy, &[(2, 2, 10_000 + 20 * u64::from(block) + extra), (3, 3, 10_000)]);
        record.block = Some(block);
        record
    };
    let old = of_sender(&(0..8).map(|block| trial(block, 0)).collect::<Vec<_>>());
    // The new run has no trial of the first block, so that the numbers of trials do not match.
    let of_new = (1..9).map(|block| TrialRecord { ordinal: block, ..trial(block, 2000) });
    let new = of_sender(&of_new.collect::<Vec<_>>());
    assert_eq!((old.blocks[0], new.blocks[0], new.trials[0]), (0, 1, 1));
    let copy = |pairing| {
        let found = differences(&old, &new, pairing, Level::default()).unwrap();
        found.parts.into_iter().find(|part| part.layer == "copy").unwrap()
    };
    let (paired, apart) = (copy(Pairing::Blocks), copy(Pairing::None));
    assert!(paired.is_sure() && !apart.is_sure(), "{paired:?}\n{apart:?}");
    assert!((paired.difference - apart.difference).abs() < 1e-12);
}

#[test]
fn a_layer_that_one_side_lacks_differs_by_all_of_it() {
    let one = |ordinal, extra| {
        let noise = u64::from(ordinal) * 3;
        sampled(ordinal, 50.0 + f64::from(ordinal), &[(0, 0, 400 + noise), (3, 3, 1600 - noise), (2, 2, extra)])
    };
    let old = of_sender(&(1..=4).map(|n| one(n, 0)).collect::<Vec<_>>());
    let new = of_sender(&(1..=4).map(|n| one(n, 500)).collect::<Vec<_>>());
    for pairing in [Pairing::Blocks, Pairing::None] {
        let found = differences(&old, &new, pairing, Level::default()).unwrap();
        let sum: f64 = found.parts.iter().map(|part| part.difference).sum();
        assert!((sum - found.total.difference).abs() < 1e-12);
        let copy = found.parts.iter().find(|part| part.layer == "copy").unwrap();
        assert!(copy.is_sure() && copy.old == 0.0 && copy.new > 0.0, "{pairing:?}: {copy:?}");
        assert!(copy.low.unwrap() < copy.difference && copy.difference < copy.high.unwrap());
        assert!(found.same_map);
        // And the other way round.
        let back = differences(&new, &old, pairing, Level::default()).unwrap();
        let copy_back = back.parts.iter().find(|part| part.layer == "copy").unwrap();
        assert!((copy_back.difference + copy.difference).abs() < 1e-12 && copy_back.is_sure());
        assert!((copy_back.low.unwrap() + copy.high.unwrap()).abs() < 1e-9);
    }
    assert_eq!(differences(&old, &LayersData { unit: "us/Tr".into(), ..new }, Pairing::None, Level::default()), None);
}

#[test]
fn intervals_cover_the_true_share_as_often_as_they_say() {
    // Samples in clusters: each trial has a share of its own about the true one.
    let mut state = 7_u64;
    // Normal enough: the sum of twelve uniform values (splitmix64) less six.
    let mut normal = |mean: f64, deviation: f64| -> f64 {
        let mut uniform = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        };
        mean + deviation * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)
    };
    let (mut held, runs) = (0, 400);
    for _ in 0..runs {
        let trials: Vec<TrialRecord> = (1..=5)
            .map(|ordinal| {
                let share = normal(0.2, 0.02);
                let own = normal(2000.0 * share, (2000.0 * share * (1.0 - share)).sqrt()).round() as u64;
                sampled(ordinal, 50.0, &[(2, 2, own), (3, 3, 2000 - own)])
            })
            .collect();
        let data = of_sender(&trials);
        let copy = &data.parts[0];
        held += u32::from((copy.low..=copy.high).contains(&(0.2 * data.total)));
    }
    assert!(held >= 370, "{held} of {runs} intervals of 95 % have the true share");
}

#[test]
fn trials_without_samples_have_no_layers() {
    let mut plain = sampled(1, 50.0, &[(2, 2, 50)]);
    plain.layers = None;
    assert!(of_scenario(&[plain.clone()], Level::default()).is_empty());
    let data = of_sender(&[plain, sampled(2, 50.0, &[(2, 2, 50)])]);
    assert_eq!(data.trials, [2]);
}

/// Where each request has a connection of its own, CPU time is that of a connection: of both ends and of the device between them.
#[test]
fn loads_that_open_connections_are_told_by_connection() {
    let latencies = histogram(&[(1000, 500)]);
    let crr = transactions(&TrialOptions::default(), &latencies);
    let demand = figure(&crr, Side::Local, Metric::TransactionDemand).unwrap();
    assert_eq!(total(&crr, CpuTimeOwner::Local, true), Some((demand, CostUnit::Connection)));
    assert_eq!(total(&crr, CpuTimeOwner::Local, false), Some((demand, CostUnit::Transaction)));

    let system = "netrig 0.1.0, XDP native on veth, FullNAT";
    let carried =
        MeasuredLimit { id: "cps-1", name: "Balancer", head: "balancer", workers: Some(1), limit: 61_000.0, system };
    let one = &balancer::trial(&carried, SearchedRate::Connections, 1);
    assert!(one.dut.as_ref().is_some_and(|dut| dut.shared.is_empty()));
    for (end, side) in [(CpuTimeOwner::Local, Side::Local), (CpuTimeOwner::Remote, Side::Remote)] {
        let connections = figure(one, side, Metric::Connections).unwrap();
        let expected = cpu_time_per(one, side, connections).unwrap();
        assert_eq!(total(one, end, true), Some((expected, CostUnit::Connection)));
        assert!(matches!(total(one, end, false), Some((_, CostUnit::Packet))));
    }
    let (of_connection, of_packet) = (total(one, CpuTimeOwner::Dut, true), total(one, CpuTimeOwner::Dut, false));
    let (Some((connection, CostUnit::Connection)), Some((packet, CostUnit::Packet))) = (of_connection, of_packet)
    else {
        panic!("{of_connection:?} {of_packet:?}")
    };
    let packets = one.dut.as_ref().unwrap().in_packets as f64 / one.seconds();
    let connections = figure(one, Side::Local, Metric::Connections).unwrap();
    assert!((connection * connections - packet * packets).abs() < 1e-6 * packet * packets, "the same time either way");
}

#[test]
fn which_loads_open_connections() {
    assert!(is_by_connection(&request_response("tcp-crr")));
    for kind in ["tcp-rr", "udp-rr"] {
        assert!(!is_by_connection(&request_response(kind)), "{kind}");
    }
}

/// The unit is that of the record: an older one of the same load is of packets, and is not held against it.
#[test]
fn units_are_those_that_were_recorded() {
    let of = |by_connection: bool| {
        let mut crr = transactions(&TrialOptions::default(), &histogram(&[(1000, 500)]));
        let layers = sampled(1, 50.0, &[(0, 0, 100), (3, 3, 900)]).layers.unwrap();
        crr.layers = Some(LayersRecord { by_connection, totals: vec![(CpuTimeOwner::Local, 0.4)], ..layers });
        of_scenario(&[crr], Level::default()).into_iter().find(|data| data.end == CpuTimeOwner::Local).unwrap()
    };
    let (old, new) = (of(false), of(true));
    assert_eq!((old.unit.as_str(), new.unit.as_str()), ("us/Tr", "us/connection"));
    assert_eq!(differences(&old, &new, Pairing::None, Level::default()), None);
    assert!(differences(&new, &new, Pairing::None, Level::default()).is_some());
    let text = serde_json::to_string(&sampled(1, 50.0, &[]).layers).unwrap();
    assert!(!text.contains("by_connection"), "what others record is as before");
}
