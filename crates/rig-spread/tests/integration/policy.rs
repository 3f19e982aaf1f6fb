//! Properties that the policy has for any sequence of observations.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use rig_spread::{
    Abilities, Config, Cpu, CpuObservation, EntryObservation, Machine, Mode, Move, MoveReason, Observation, Order,
    Settings, State, Tuning, plan,
};

fn machine() -> impl Strategy<Value = Machine> {
    let cpu = (0..2u32, any::<bool>(), prop::bool::weighted(0.9), prop::bool::weighted(0.1));
    prop::collection::vec(cpu, 1..12).prop_map(|cpus| Machine {
        cpus: cpus
            .into_iter()
            .zip(0u32..)
            .map(|((numa_node, sibling, online, isolated), number)| Cpu {
                numa_node,
                last_level_cache: numa_node,
                core: if sibling { number / 2 } else { 100 + number },
                isolated,
                // One is always there.
                online: online || number == 0,
                ..Cpu::plain(number)
            })
            .collect(),
        interface_node: None,
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let mode = prop_oneof![4 => Just(Mode::Dynamic), 1 => Just(Mode::StaticVmq), 1 => Just(Mode::StaticVrss)];
    let cpus = prop::option::weighted(0.3, prop::collection::vec(0..14u32, 1..8));
    (mode, 1..20u32, 1..6u32, any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 0..12u32), cpus).prop_map(
        |(mode, most, least, exclude_primary, independent_host_spreading, base, cpus)| Settings {
            mode,
            max_queue_pairs: most.max(least),
            min_queue_pairs: least,
            exclude_primary,
            independent_host_spreading,
            base,
            cpus,
        },
    )
}

fn abilities() -> impl Strategy<Value = Abilities> {
    // On the machine or not.
    let only = prop::option::weighted(0.3, prop::collection::btree_set(0..14u32, 1..9));
    // Seen on a CPU that is there or not.
    let received_by = prop::option::weighted(0.3, 0..14u32);
    let spreads = prop::bool::weighted(0.9);
    let in_place = any::<bool>();
    (0..24u32, prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), spreads, received_by, in_place, only).prop_map(
        |(entries, single_moves, distributes, base_moves, receiver_spreads, received_by, in_place, only)| Abilities {
            entries,
            single_moves,
            order: Order::Exact,
            distributes,
            base_moves,
            receiver_spreads,
            received_by,
            in_place,
            only_cpus: only.map(|only| only.into_iter().collect()),
        },
    )
}

/// Anything that could be seen, sense or none.
#[derive(Debug, Clone)]
enum TestEvent {
    Seen { over: u64, entries: Vec<(u64, Option<u64>, u64)>, cpus: Vec<(u32, u64, u64, u64, u64, bool)> },
    Settings(Box<Settings>),
    Online(u32, bool),
    Failed(u32),
}

fn happens() -> impl Strategy<Value = TestEvent> {
    let entry = (
        prop_oneof![Just(0), 0..20_000u64],
        prop::option::of(0..12_000_000u64),
        prop_oneof![9 => Just(0), 1 => 0..99u64],
    );
    let cpu = (
        0..12u32,
        0..6_000_000u64,
        0..9_000_000u64,
        0..6_000_000u64,
        prop_oneof![9 => Just(0), 1 => 0..99u64],
        any::<bool>(),
    );
    let over = prop_oneof![8 => Just(10_000_000u64), 1 => Just(0), 1 => 1..5_000_000_000u64];
    let seen = (over, prop::collection::vec(entry, 0..26), prop::collection::vec(cpu, 0..13))
        .prop_map(|(over, entries, cpus)| TestEvent::Seen { over, entries, cpus });
    prop_oneof![
        30 => seen,
        1 => settings().prop_map(|settings| TestEvent::Settings(Box::new(settings))),
        1 => (1..12u32, any::<bool>()).prop_map(|(cpu, online)| TestEvent::Online(cpu, online)),
        1 => (0..24u32).prop_map(TestEvent::Failed),
    ]
}

fn observation(
    over: u64,
    entries: &[(u64, Option<u64>, u64)],
    cpus: &[(u32, u64, u64, u64, u64, bool)],
) -> Observation {
    let nanos = Duration::from_nanos;
    Observation {
        over: nanos(over),
        entries: entries
            .iter()
            .map(|(packets, cost, lost)| EntryObservation {
                packets: *packets,
                bytes: packets * 700,
                cost: cost.map(nanos),
                waiting: None,
                lost: *lost,
            })
            .collect(),
        cpus: cpus
            .iter()
            .map(|(number, distributing, processing, other, lost, standing_queue)| CpuObservation {
                number: *number,
                packets: processing / 1000,
                distributing: nanos(*distributing),
                processing: nanos(*processing),
                other: nanos(*other),
                lost: *lost,
                squeezed: 0,
                standing_queue: *standing_queue,
            })
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn the_placement_is_always_one_that_is_allowed(
        mut machine in machine(),
        mut settings in settings(),
        abilities in abilities(),
        course in prop::collection::vec(happens(), 1..120),
    ) {
        let mut config = Config::new(&settings, Tuning::default(), machine.clone(), abilities.clone());
        let mut state = State::new(&config);
        let mut now = Duration::from_secs(1);
        let mut optional: Vec<(Duration, u32)> = Vec::new();
        let mut refused = false;
        for happens in course {
            match happens {
                TestEvent::Settings(new) => settings = *new,
                TestEvent::Online(cpu, online) => {
                    machine.cpus.iter_mut().filter(|there| there.number == cpu).for_each(|cpu| cpu.online = online);
                }
                TestEvent::Failed(entry) => {
                    state = state.failed(Some(entry));
                    refused = true;
                    continue;
                }
                TestEvent::Seen { over, entries, cpus } => {
                    let seen = observation(over, &entries, &cpus);
                    now += seen.over;
                    let before = state.clone();
                    let (after, moves, events) = plan(state, &seen, &config, now);
                    let kept: State = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
                    prop_assert_eq!(plan(kept, &seen, &config, now), (after.clone(), moves.clone(), events));
                    check(&before, &after, &moves, &config, refused)?;
                    refused = false;
                    let voluntary = |done: &&Move| done.paid && matches!(done.why, MoveReason::Coalesce | MoveReason::Rebalance);
                    optional.push((now, u32::try_from(moves.iter().filter(voluntary).count()).unwrap()));
                    optional.retain(|(at, _)| now - *at < Duration::from_secs(60));
                    let budget = config.tuning.moves_per_minute.max(abilities.entries);
                    // One more that keeps the fewest queue pairs may come with them, for each of those.
                    let most = budget + settings.min_queue_pairs;
                    prop_assert!(optional.iter().map(|(_, count)| count).sum::<u32>() <= most);
                    state = after;
                    continue;
                }
            }
            config = Config::new(&settings, Tuning::default(), machine.clone(), abilities.clone());
        }
    }

    #[test]
    fn at_constant_load_moves_end(
        loads in prop::collection::vec(prop_oneof![3 => 0.0..0.3f64, 1 => 0.0..1.2f64, 1 => Just(0.0)], 16),
        scale in 0.1..1.5f64,
        cpus in 2..16u32,
        distributes in any::<bool>(),
        others in prop::collection::vec(0.0..0.2f64, 16),
    ) {
        let abilities = Abilities {
            entries: 16,
            single_moves: true,
            order: Order::Exact,
            distributes,
            base_moves: true,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: None,
        };
        let config = Config::new(&Settings::default(), Tuning::default(), Machine::uniform(cpus), abilities);
        let mut state = State::new(&config);
        let mut now = Duration::from_secs(1);
        let mut last = now;
        while now < Duration::from_secs(180) {
            let over = state.next_look(&config);
            now += over;
            let seen = steady(&state, &loads, scale, &others, cpus, distributes, over);
            let (after, moves, _) = plan(state, &seen, &config, now);
            state = after;
            if !moves.is_empty() {
                last = now;
            }
        }
        prop_assert!(last < Duration::from_secs(120), "moved at {:?}", last);
    }
}

/// What is seen when each entry's demand is served by its CPU as far as that has time, in proportion.
fn steady(
    state: &State,
    loads: &[f64],
    scale: f64,
    others: &[f64],
    cpus: u32,
    distributes: bool,
    over: Duration,
) -> Observation {
    let total: f64 = loads.iter().sum::<f64>() * scale;
    let spread = state.table.iter().zip(loads).any(|(cpu, load)| *cpu != state.base && *load > 0.0);
    let tax = if distributes && spread { total * 0.25 } else { 0.0 };
    let wanted = |cpu: u32| -> f64 {
        state.table.iter().zip(loads).filter(|(at, _)| **at == cpu).map(|(_, load)| load * scale).sum()
    };
    let free = |cpu: u32| 1.0 - others[cpu as usize];
    let on_base = tax + wanted(state.base);
    let passed = if tax > 0.0 && on_base > free(state.base) { free(state.base) / on_base } else { 1.0 };
    let share = |cpu: u32| {
        let room = (free(cpu) - if cpu == state.base { tax * passed } else { 0.0 }).max(0.0);
        let wanted = wanted(cpu) * passed;
        if wanted > room { room / wanted * passed } else { passed }
    };
    let entries = state.table.iter().zip(loads).map(|(cpu, load)| {
        let done = load * scale * share(*cpu);
        let packets = (done * over.as_secs_f64() * 1e6) as u64;
        EntryObservation { packets, bytes: packets, cost: Some(over.mul_f64(done)), waiting: None, lost: 0 }
    });
    let seen = (0..cpus).map(|number| CpuObservation {
        number,
        distributing: over.mul_f64(if number == state.base { tax * passed } else { 0.0 }),
        processing: over.mul_f64(wanted(number) * share(number)),
        other: over.mul_f64(others[number as usize]),
        standing_queue: share(number) < if number == state.base { 1.0 } else { passed },
        ..CpuObservation::default()
    });
    Observation { over, entries: entries.collect(), cpus: seen.collect() }
}

fn check(before: &State, after: &State, moves: &[Move], config: &Config, refused: bool) -> Result<(), TestCaseError> {
    let effective = &config.effective;
    prop_assert_eq!(after.table.len(), config.abilities.entries as usize, "every entry has a CPU");
    prop_assert!(effective.cpus.contains(&after.base));
    let cpus: BTreeSet<u32> = after.cpus();
    for cpu in &cpus {
        // What the actuator refused to move may be on a CPU that it should have left, for a while.
        if !refused && after.entries.iter().all(|entry| entry.refused.is_none()) {
            prop_assert!(effective.cpus.contains(cpu), "CPU {} of {:?}", cpu, effective);
            prop_assert!(config.machine.cpu(*cpu).is_none_or(|cpu| cpu.online), "CPU {} is offline", cpu);
            prop_assert!(!effective.exclude_primary || *cpu != after.base, "the base is excluded");
            prop_assert!(cpus.len() <= effective.max_queue_pairs as usize, "{:?} of {:?}", cpus, effective);
        }
    }
    let mut table = before.table.clone();
    table.truncate(after.table.len());
    let mut moved = BTreeSet::new();
    for done in moves {
        prop_assert_ne!(done.from, done.to);
        let Some(entry) = done.entry.map(|entry| entry as usize) else { continue };
        prop_assert!(moved.insert(entry), "entry {} moves once", entry);
        match table.get_mut(entry) {
            Some(cpu) => {
                prop_assert_eq!(*cpu, done.from);
                *cpu = done.to;
            }
            None => prop_assert_eq!(after.table[entry], done.to),
        }
    }
    for (entry, cpu) in table.iter().enumerate() {
        prop_assert_eq!(*cpu, after.table[entry], "the moves are the difference of the tables");
    }
    Ok(())
}
