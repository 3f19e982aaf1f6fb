//! What the policy has to reach on machines that are not there. Figures are of the model, so they are exact.

use std::collections::BTreeMap;
use std::time::Duration;

use rig_spread::simulate::scenario::ENTRIES;
use rig_spread::simulate::scenarios::{FULL, LOW, MIDDLE, entries, hardware};
use rig_spread::simulate::{Costs, Report, Rule, Scenario, SimulationResult, all, report, run};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn guide(cpus: u32, entries_of_it: u32) -> Scenario {
    entries(Scenario::new("guide", "the guide's activities", cpus), entries_of_it)
}

fn close(found: f64, wanted: f64, part: f64) {
    assert!((found - wanted).abs() <= wanted * part, "{found}, not {wanted}");
}

/// The guide's own figures, and what a model without queues, noise or latency gave for this policy.
#[test]
fn the_guides_activities_give_the_guides_figures() {
    for count in [ENTRIES, 128] {
        let fixed = run(&guide(40, count).then(LOW, seconds(5)).then(FULL, seconds(5)), Rule::StaticVrss);
        let [low, full] = &fixed.phases[..] else { panic!() };
        assert_eq!((low.cpus, fixed.moves), (8, 0));
        close(low.cores, 1.0, 0.01);
        close(full.bits, 14.2e9, 0.01);
        assert!(full.highest > 0.99);

        let single = run(&guide(40, count).then(FULL, seconds(5)), Rule::StaticVmq);
        close(single.phases[0].bits, 7.46e9, 0.01);
        assert_eq!(single.phases[0].cpus, 1);

        let activities = guide(40, count)
            .then(FULL, seconds(20))
            .then(0.0, seconds(3))
            .then(LOW, seconds(68))
            .then(MIDDLE, seconds(80))
            .then(FULL, seconds(70))
            .then(LOW, seconds(120))
            .then(0.0, seconds(3))
            .then(FULL, seconds(60));
        let dynamic = run(&activities, Rule::Dynamic);
        let [burst, idle, low, middle, full, again, _, parked] = &dynamic.phases[..] else { panic!() };
        close(burst.bits, 21.1e9, 0.001);
        let at_idle = dynamic.samples.iter().find(|sample| sample.at == idle.to).unwrap();
        let mut on = BTreeMap::<u32, u32>::new();
        at_idle.table.iter().for_each(|cpu| *on.entry(*cpu).or_default() += 1);
        assert_eq!(on.into_values().collect::<Vec<_>>(), [count / 8; 8], "parked evenly on eight");
        for (phase, bits, cpus, cores) in [(low, LOW, 1, 0.74), (middle, MIDDLE, 3, 1.87), (again, LOW, 1, 0.74)] {
            close(phase.bits, bits, 0.001);
            assert_eq!((phase.cpus, phase.late_moves), (cpus, Some(0)));
            close(phase.cores, cores, 0.01);
        }
        close(full.bits, 21.1e9, 0.001);
        assert_eq!((full.cpus, full.late_moves), (5, Some(0)));
        assert!(parked.t95.unwrap() <= 100, "{:?}", parked.t95);
        assert!(full.t95.unwrap() <= 300, "{:?}", full.t95);

        let placed = run(&hardware(guide(40, count)).then(FULL, seconds(60)).then(LOW, seconds(60)), Rule::Dynamic);
        close(placed.phases[0].bits, 40e9, 0.001);
        assert!(placed.phases[0].cpus <= 8, "{}", placed.phases[0].cpus);
        assert_eq!(placed.phases[1].cpus, 1);
    }
}

#[test]
fn from_8_to_64_cpus_full_load_is_carried_1_4_times_as_fast_as_static() {
    for cpus in [8, 16, 32, 64] {
        let scenario = guide(cpus, ENTRIES).then(0.0, seconds(2)).then(FULL, seconds(20));
        let [dynamic, fixed] = [Rule::Dynamic, Rule::StaticVrss].map(|rule| run(&scenario, rule).phases[1].clone());
        assert!(dynamic.bits >= 1.4 * fixed.bits, "{cpus} CPUs: {} to {}", dynamic.bits, fixed.bits);
        assert!(dynamic.t95.unwrap() <= 100, "{cpus} CPUs: {:?} ms from parked", dynamic.t95);
    }
}

#[test]
fn few_cpus_carry_at_least_what_a_static_spread_does() {
    // These costs were not measured. They were chosen to differ from the guide's: smaller packets, a hand-over that costs a sixth
    // of processing instead of a third, CPUs that take time to wake; and a hand-over that costs nearly as much as processing.
    let cheap = Costs { wake: 3000.0, ..Costs::measured(900.0, 150.0, 700.0) };
    let dear = Costs::measured(2000.0, 1800.0, 1500.0);
    for costs in [Costs::guide(), cheap, dear] {
        for cpus in [2, 3, 4] {
            let scenario = Scenario { costs, ..guide(cpus, 8) }.then(0.0, seconds(2)).then(FULL, seconds(60));
            let [dynamic, fixed] = [Rule::Dynamic, Rule::StaticVrss].map(|rule| run(&scenario, rule).phases[1].clone());
            assert!(dynamic.bits >= fixed.bits, "{cpus} CPUs: {} to {}", dynamic.bits, fixed.bits);
            assert_eq!(dynamic.late_moves, Some(0), "{cpus} CPUs");
        }
    }
}

fn of<'a>(report: &'a Report, name: &str, rule: Rule) -> &'a rig_spread::simulate::Row {
    report.rows.iter().find(|row| row.scenario == name && row.rule == rule).expect(name)
}

#[test]
fn few_more_cpus_than_the_oracle_s_and_no_more_than_rss_plus_plus_for_what_is_carried() {
    let scenarios = all(40);
    let report = report(&scenarios, &[Rule::Dynamic, Rule::RssPlusPlus], false);
    let [ours, theirs] = &report.means[..] else { panic!() };
    assert!(ours.ratio <= 1.15, "{}", ours.ratio);
    assert!(ours.carried >= 0.99, "{}", ours.carried);
    assert!(ours.ratio < theirs.ratio && ours.carried > theirs.carried);
    let mut more = Vec::new();
    for scenario in &scenarios {
        let ours = of(&report, &scenario.name, Rule::Dynamic);
        let theirs = of(&report, &scenario.name, Rule::RssPlusPlus);
        // CPUs that are not used because packets are not carried are not saved.
        if ours.cpus / ours.carried.max(0.01) > theirs.cpus / theirs.carried.max(0.01) * 1.01 {
            more.push((scenario.name.clone(), ours.cpus, theirs.cpus));
        }
    }
    // Three seconds on the eight CPUs that were parked on, of 60, where RSS++ has removed five before the load is there;
    // three CPUs from then on, as RSS++.
    assert!(matches!(&more[..], [(name, ..)] if name == "S14"), "{more:?}");
    for name in ["S12", "S13"] {
        assert!(of(&report, name, Rule::Dynamic).lost < 1e-4, "{name}");
    }
}

#[test]
fn nothing_moves_at_constant_load() {
    for scenario in all(40) {
        // In these the load is never constant for long, or moves fail.
        if ["S11a", "S11b", "S11c", "S12", "S13", "S18", "S20"].contains(&scenario.name.as_str()) {
            continue;
        }
        let outcome = run(&scenario, Rule::Dynamic);
        for phase in &outcome.phases {
            assert!(phase.late_moves.is_none_or(|moves| moves == 0), "{}: {phase:?}", scenario.name);
        }
        assert_eq!(outcome.there_and_back, 0, "{}", scenario.name);
        assert!(!outcome.events.iter().any(|(_, said)| said.contains("taken back")), "{}", scenario.name);
    }
}

#[test]
fn a_load_that_flaps_costs_at_most_60_moves_a_minute() {
    for scenario in all(40).into_iter().filter(|scenario| scenario.name.starts_with("S11")) {
        let outcome = run(&scenario, Rule::Dynamic);
        let minutes = scenario.length as f64 / 60_000.0;
        let per_minute = f64::from(outcome.paid) / minutes;
        assert!(per_minute <= 60.0, "{}: {per_minute}", scenario.name);
        assert!(outcome.carried() > 0.99, "{}: {}", scenario.name, outcome.carried());
    }
}

#[test]
fn low_load_takes_15_percent_less_cpu_time_than_a_static_spread() {
    let scenario = guide(16, ENTRIES).then(LOW, seconds(60));
    let spent = |rule| {
        let outcome = run(&scenario, rule);
        outcome.busy_seconds / outcome.bits
    };
    assert!(spent(Rule::Dynamic) <= 0.85 * spent(Rule::StaticVrss));
}

#[test]
fn the_same_scenario_gives_the_same_outcome() {
    let scenario = all(16).into_iter().find(|scenario| scenario.name == "S21").unwrap();
    let (first, second): (SimulationResult, SimulationResult) =
        (run(&scenario, Rule::Dynamic), run(&scenario, Rule::Dynamic));
    assert_eq!(first, second);
    let other = run(&Scenario { seed: 2, ..scenario }, Rule::Dynamic);
    assert_ne!(first.moved, other.moved);
}

#[test]
fn a_trace_of_a_run_gives_its_moves_again() {
    use rig_spread::trace::{Line, TraceStep, replay, write};

    let scenario = all(16).into_iter().find(|scenario| scenario.name == "S6").unwrap();
    let outcome = run(&scenario, Rule::Dynamic);
    let port = &scenario.ports[0];
    let config =
        rig_spread::Config::new(&port.settings, scenario.tuning, scenario.machine.clone(), port.abilities.clone());
    let mut text = Vec::new();
    write(&mut text, &Line::Config(Box::new(config))).unwrap();
    for (now, observation) in outcome.seen {
        write(&mut text, &Line::Seen(TraceStep { now, observation })).unwrap();
    }
    let mut moved = Vec::new();
    replay(&text[..], |decided, _| {
        let at = u64::try_from(decided.now.as_millis()).unwrap();
        moved.extend(decided.moves.into_iter().map(|done| (at, done)));
    })
    .unwrap();
    assert!(!moved.is_empty());
    assert_eq!(moved, outcome.moved);

    let cut = &text[..text.len() - 20];
    let said = replay(cut, |_, _| {}).unwrap_err().to_string();
    assert!(said.contains("line"), "{said}");
    let headless: Vec<u8> = text.iter().copied().skip_while(|byte| *byte != b'\n').collect();
    assert!(replay(&headless[..], |_, _| {}).unwrap_err().to_string().contains("before any configuration"));
}

#[test]
fn the_table_fits_a_terminal_and_names_its_seeds() {
    let scenarios: Vec<Scenario> =
        all(16).into_iter().filter(|scenario| ["S2", "S8"].contains(&&*scenario.name)).collect();
    let found = report(&scenarios, &Rule::ALL, true);
    let text = found.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("seed 1") && text.contains("irqbalance") && text.contains("mean over scenarios"), "{text}");
    assert_eq!(found.courses.len(), 2 * Rule::ALL.len());
    let again: Report = serde_json::from_str(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(again, found);
}
