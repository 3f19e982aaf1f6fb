//! The activities of the validation guide in the simulator: its own figures, and other costs. Figures are of the model.

use rig_spread::simulate::guide::{Activity, Load, Loads, MeasuredActivity, Name, activities, errors, report};
use rig_spread::simulate::scenario::ENTRIES;
use rig_spread::simulate::{Costs, Flow};
use rig_spread::{Mode, simulate::guide::Report};

fn close(found: f64, wanted: f64, part: f64) {
    assert!((found - wanted).abs() <= wanted * part, "{found}, not {wanted}");
}

fn of(all: &[Activity], name: Name) -> &Activity {
    all.iter().find(|one| one.name == name).expect("all are there")
}

/// What all machines and costs have in common.
fn plausible(all: &[Activity], cpus: u32, costs: &Costs) {
    assert_eq!(all.iter().map(|one| one.name).collect::<Vec<_>>(), Name::ALL);
    for one in all {
        let is_static = matches!(one.name, Name::StaticLow | Name::StaticFull);
        assert_eq!(one.mode, if is_static { Mode::StaticVrss } else { Mode::Dynamic });
        assert!(one.carried_pps <= one.offered_pps * 1.0001, "{one:?}");
        assert!(one.cpus <= f64::from(cpus) && one.cpu_time <= one.cpus * 1.0001, "{one:?}");
        assert!(one.highest <= 1.0001, "{one:?}");
        // Where packets are cheap, what is above full load is lost, not delayed, and rates and entries go up and down with it.
        let is_full = matches!(one.name, Name::BurstFromParked | Name::BurstFromCoalesced);
        assert!(is_full || (one.late_moves, one.settled_ms.is_some()) == (0, true), "{one:?}");
        // Every packet is processed, and distributed or not.
        let least = one.carried_pps * costs.process / 1e9;
        assert!(one.cpu_time >= least * 0.999, "{one:?}");
        assert!(one.cpu_time <= one.carried_pps * (costs.process + costs.distribute) / 1e9 * 1.001, "{one:?}");
    }
    assert_eq!((of(all, Name::StaticLow).moves, of(all, Name::StaticFull).moves), (0, 0));
    let idle = of(all, Name::Idle);
    assert_eq!((idle.carried_pps, idle.cpus, idle.placed), (0.0, 0.0, cpus.min(8)));
}

/// Part of the packets that a static spread over so many CPUs leaves on the base.
fn on_base(flows: &[Flow], entries: u32, cpus: u32) -> f64 {
    let base = flows.iter().filter(|flow| flow.hash % u64::from(entries) % u64::from(cpus.min(8)) == 0);
    base.count() as f64 / flows.len() as f64
}

/// The guide: 5.3 Gbit/s on 8 CPUs and 14.2 where all that goes is sent, both static; dynamic 5.5 on one CPU within a minute
/// or so, 10.3 on 3, 2 queues each on 8 CPUs when idle, then 21.1 at once.
#[test]
fn its_own_costs_give_its_own_figures() {
    let costs = Costs::guide();
    let gbits = |one: &Activity| costs.bits(one.carried_pps) / 1e9;
    for cpus in [8, 16, 32, 64] {
        let all = activities(cpus, ENTRIES, &costs, &Loads::like_the_guides(&costs, cpus));
        plausible(&all, cpus, &costs);
        let [low, full, coalesced, second, _, parked, burst] = &all[..] else { panic!() };

        close(gbits(low), 5.5, 0.001);
        close(low.cpus, 8.0, 0.001);
        close(low.cpu_time, 1.0, 0.01);
        assert!(low.highest < 0.5, "each CPU has little to do: {low:?}");
        close(gbits(full), 14.2, 0.01);
        close(full.cpus, 8.0, 0.001);
        close(full.highest, 1.0, 0.01);

        close(gbits(coalesced), 5.5, 0.001);
        close(coalesced.cpus, 1.0, 0.001);
        close(coalesced.cpu_time, 0.737, 0.005);
        assert!(coalesced.settled_ms.unwrap() <= 12_000, "{coalesced:?}");
        close(gbits(second), 10.3, 0.001);
        close(second.cpus, 3.0, 0.001);
        assert!(second.t95_ms.unwrap() <= 300, "{second:?}");

        close(gbits(parked), 21.1, 0.002);
        close(gbits(burst), 21.1, 0.002);
        for full in [parked, burst] {
            assert!(full.late_moves == 0 && full.settled_ms.is_some() && full.cpus <= 8.0, "{full:?}");
        }
        assert!(parked.carried_pps >= 1.4 * full.carried_pps);
        assert!(parked.t95_ms.unwrap() <= 100, "{parked:?}");
        assert!(burst.t95_ms.unwrap() <= 300 && burst.t95_ms > parked.t95_ms, "{burst:?}");
    }

    let loads = Loads { low: costs.packets(5.3e9).into(), ..Loads::like_the_guides(&costs, 40) };
    let low = &activities(40, ENTRIES, &costs, &loads)[0];
    close(gbits(low), 5.3, 0.001);
    close(low.cpus, 8.0, 0.001);
}

/// A static spread carries 1 / (distributing + the base's part of processing), the dynamic one no more than can be
/// distributed or processed, and no less than the static one.
#[test]
fn other_costs_give_what_follows_from_them() {
    for (process, distribute, bytes) in [(900.0, 150.0, 700.0), (3000.0, 1000.0, 1514.0), (500.0, 300.0, 100.0)] {
        let costs = Costs::measured(process, distribute, bytes);
        for cpus in [2, 8, 32] {
            let loads = Loads::like_the_guides(&costs, cpus);
            let all = activities(cpus, ENTRIES, &costs, &loads);
            plausible(&all, cpus, &costs);
            let [low, full, coalesced, .., parked, burst] = &all[..] else { panic!() };
            let part = on_base(&loads.flows, ENTRIES, cpus);
            close(full.carried_pps, 1e9 / (distribute + part * process), 0.03);
            close(low.cpu_time, loads.low.rate * (process + distribute) / 1e9, 0.001);
            close(coalesced.cpu_time, loads.low.rate * process / 1e9, 0.001);
            close(coalesced.cpus, 1.0, 0.001);
            let possible = (1e9 / distribute).min(f64::from(cpus.min(16)) * 1e9 / (process + distribute));
            for one in [parked, burst] {
                assert!(one.carried_pps <= possible * 1.03, "{cpus} CPUs, {costs:?}: {one:?}, possible {possible}");
                assert!(one.carried_pps >= full.carried_pps * 0.999, "{cpus} CPUs, {costs:?}: {one:?} to {full:?}");
            }
        }
    }
}

#[test]
fn what_is_distributed_for_nothing_is_carried_as_far_as_cpus_go() {
    let costs = Costs::measured(1000.0, 0.0, 1500.0);
    let all = activities(8, 128, &costs, &Loads::like_the_guides(&costs, 8));
    plausible(&all, 8, &costs);
    close(of(&all, Name::BurstFromParked).carried_pps, 8e6, 0.03);
    let linked = Costs { link: Some(12e9), ..costs };
    let all = activities(8, 128, &linked, &Loads::like_the_guides(&linked, 8));
    close(of(&all, Name::BurstFromParked).carried_pps, 1e6, 0.001);
}

/// Other work that begins on all CPUs with the burst is no reason for the base to move.
#[test]
fn a_machine_that_sends_too_carries_what_is_left() {
    let costs = Costs::measured(1000.0, 250.0, 1500.0);
    let alone = Loads {
        flows: (0..16).map(|hash| Flow { hash, rate: 0.0, elastic: true }).collect(),
        ..Loads::like_the_guides(&costs, 2)
    };
    let full = Load { other: vec![0.5, 0.5], ..alone.full.clone() };
    let shared = Loads { full, ..alone.clone() };
    let [alone, shared] = [alone, shared].map(|loads| activities(2, 8, &costs, &loads));
    for all in [&alone, &shared] {
        plausible(all, 2, &costs);
    }
    let carried = |all: &[Activity], name| of(all, name).carried_pps;
    close(carried(&alone, Name::StaticFull), 1e9 / 750.0, 0.01);
    close(carried(&shared, Name::StaticFull), 0.5e9 / 750.0, 0.01);
    assert_eq!(alone[0], shared[0], "at low load there is no other work");
    // Three of eight entries on the base use both CPUs up.
    for burst in [Name::BurstFromParked, Name::BurstFromCoalesced] {
        close(carried(&alone, burst), 1.6e6, 0.01);
        close(carried(&shared, burst), 0.8e6, 0.01);
    }
}

#[test]
fn errors_are_relative_to_what_was_measured() {
    let costs = Costs::guide();
    let all = activities(2, 8, &costs, &Loads::like_the_guides(&costs, 2));
    let measured = |one: &Activity, part: f64| MeasuredActivity {
        name: one.name,
        carried_pps: one.carried_pps * part,
        cpus: one.cpus * part,
        cpu_time: one.cpu_time * part,
    };
    let exact: Vec<MeasuredActivity> = all.iter().map(|one| measured(one, 1.0)).collect();
    for error in errors(&all, &exact) {
        assert_eq!((error.carried, error.cpus, error.cpu_time), (Some(0.0), Some(0.0), Some(0.0)), "{error:?}");
    }
    let found = errors(&all, &[measured(of(&all, Name::SecondLoad), 0.8), measured(&all[0], 1.25)]);
    assert_eq!(found.iter().map(|error| error.name).collect::<Vec<_>>(), [Name::StaticLow, Name::SecondLoad]);
    close(-found[0].carried.unwrap(), 0.2, 1e-9);
    close(found[1].cpus.unwrap(), 0.25, 1e-9);
    close(found[1].cpu_time.unwrap(), 0.25, 1e-9);
    // Nothing was carried, yet something is said to be.
    let nothing = MeasuredActivity { name: Name::StaticLow, carried_pps: 0.0, cpus: 0.0, cpu_time: 0.0 };
    let [none] = errors(&all, &[nothing])[..] else { panic!() };
    assert_eq!((none.carried, none.cpus, none.cpu_time), (None, None, None));
    assert!(errors(&[], &exact).is_empty());
}

#[test]
fn costs_out_of_range_are_refused_by_name() {
    let good = Costs::measured(900.0, 150.0, 1500.0);
    good.check().unwrap();
    Costs::guide().check().unwrap();
    let cases = [
        ("process_ns", Costs { process: 0.0, ..good }),
        ("process_ns", Costs { process: f64::NAN, ..good }),
        ("distribute_ns", Costs { distribute: -1.0, ..good }),
        ("wake_ns", Costs { wake: f64::INFINITY, ..good }),
        ("numa_factor", Costs { numa: 0.5, ..good }),
        ("packet_bytes", Costs { packet_bytes: 0.0, ..good }),
        ("link_bits", Costs { link: Some(0.0), ..good }),
    ];
    for (name, costs) in cases {
        let said = costs.check().unwrap_err().to_string();
        assert!(said.starts_with(name), "{name}: {said}");
    }
}

#[test]
fn the_table_fits_a_terminal_and_has_the_costs() {
    let found = report(&[2, 8], ENTRIES, &Costs::measured(900.0, 150.0, 700.0));
    let text = found.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("900 ns") && text.contains("150 ns") && text.contains("700 bytes"), "{text}");
    assert!(text.contains("\n2 CPUs") && text.contains("\n8 CPUs") && text.contains("dynamic to static"), "{text}");
    let again: Report = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(again, found);
}
