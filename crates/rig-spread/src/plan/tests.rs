//! Rule by rule, on a machine that does exactly what is said.

mod effects;
mod polling;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rig_stats::units::Span;

use crate::effective::Config;
use crate::event::{Event, Move, MoveReason, PollingReason, Regression, Situation};
use crate::machine::{Abilities, Cpu, Machine, Order};
use crate::observation::{CpuObservation, EntryObservation, Observation};
use crate::plan::plan;
use crate::settings::{Mode, Settings, Tuning};
use crate::state::State;

const ABLE: Abilities = Abilities {
    entries: 16,
    single_moves: true,
    order: Order::Exact,
    distributes: true,
    base_moves: true,
    receiver_spreads: true,
    received_by: None,
    in_place: false,
    only_cpus: None,
};

/// Packets cost 1 us each, distributing them 0.25 us. CPUs are never slower than asked, and take what they can.
struct TestMachine {
    settings: Settings,
    tuning: Tuning,
    machine: Machine,
    abilities: Abilities,
    config: Config,
    state: State,
    now: Duration,
    /// Demand of each entry in CPUs of the base's node, and other work of each CPU.
    loads: Vec<f64>,
    other: BTreeMap<u32, f64>,
    /// What a CPU is worth to entries: 0.5, and they get half as much done.
    speed: BTreeMap<u32, f64>,
    /// Losses per look on a CPU.
    lost: BTreeMap<u32, u64>,
    moves: Vec<(Duration, Move)>,
    events: Vec<(Duration, Event)>,
}

impl TestMachine {
    fn new(cpus: u32) -> Self {
        Self::on(Machine::uniform(cpus), Settings::default(), ABLE)
    }

    fn on(machine: Machine, settings: Settings, abilities: Abilities) -> Self {
        let tuning = Tuning::default();
        let config = Config::new(&settings, tuning, machine.clone(), abilities.clone());
        Self {
            state: State::new(&config),
            config,
            settings,
            tuning,
            machine,
            loads: vec![0.0; abilities.entries as usize],
            abilities,
            now: Duration::from_secs(100),
            other: BTreeMap::new(),
            speed: BTreeMap::new(),
            lost: BTreeMap::new(),
            moves: Vec::new(),
            events: Vec::new(),
        }
    }

    fn configure(&mut self) {
        self.config = Config::new(&self.settings, self.tuning, self.machine.clone(), self.abilities.clone());
    }

    fn all(&mut self, sum: f64) {
        let count = self.loads.len() as f64;
        self.loads.fill(sum / count);
    }

    fn seen(&self, over: Duration) -> Observation {
        let spread = self.abilities.distributes
            && self.state.table.iter().zip(&self.loads).any(|(cpu, load)| *cpu != self.state.base && *load > 0.0);
        let arriving: f64 = self.loads.iter().sum();
        let mut wanted: BTreeMap<u32, f64> = BTreeMap::new();
        for (cpu, load) in self.state.table.iter().zip(&self.loads) {
            *wanted.entry(*cpu).or_default() += load;
        }
        let other = |cpu: u32| self.other.get(&cpu).copied().unwrap_or(0.0);
        // The packets that the base distributes and those that it processes share one queue: when it is full, all CPUs get less.
        let base = self.state.base;
        let own = wanted.get(&base).copied().unwrap_or(0.0);
        let passed = match arriving * 0.25 + own {
            wanted if spread && wanted > 1.0 - other(base) => (1.0 - other(base)).max(0.0) / wanted,
            _ => 1.0,
        };
        let tax = if spread { arriving * 0.25 * passed } else { 0.0 };
        let share = |cpu: u32| {
            let room = (1.0 - other(cpu) - if cpu == base { tax } else { 0.0 }).max(0.0);
            match wanted.get(&cpu).copied().unwrap_or(0.0) * passed {
                wanted if wanted > room => room / wanted * passed,
                _ => passed,
            }
        };
        let packets = |load: f64| (load * over.as_secs_f64() * 1e6) as u64;
        let speed = |cpu: u32| self.speed.get(&cpu).copied().unwrap_or(1.0);
        let entries = self.state.table.iter().zip(&self.loads).map(|(cpu, load)| {
            let done = load * share(*cpu);
            let packets = packets(done * speed(*cpu));
            EntryObservation { packets, bytes: packets * 1000, cost: Some(over.mul_f64(done)), waiting: None, lost: 0 }
        });
        let cpus = self.machine.cpus.iter().filter(|cpu| cpu.online).map(|cpu| {
            let number = cpu.number;
            let done = wanted.get(&number).copied().unwrap_or(0.0) * share(number);
            CpuObservation {
                number,
                packets: 0,
                distributing: over.mul_f64(if number == base { tax } else { 0.0 }),
                processing: over.mul_f64(done),
                other: over.mul_f64(self.other.get(&number).copied().unwrap_or(0.0)),
                lost: self.lost.get(&number).copied().unwrap_or(0),
                squeezed: 0,
                standing_queue: share(number) < if number == base { 1.0 } else { passed },
            }
        });
        Observation { over, entries: entries.collect(), cpus: cpus.collect() }
    }

    /// A look; the moves that were made at it.
    fn plan_once(&mut self) -> Vec<Move> {
        let over = self.state.next_look(&self.config);
        self.now += over;
        let seen = self.seen(over);
        let (state, moves, events) = plan(self.state.clone(), &seen, &self.config, self.now);
        self.state = state;
        self.moves.extend(moves.iter().map(|done| (self.now, *done)));
        self.events.extend(events.into_iter().map(|event| (self.now, event)));
        moves
    }

    fn run(&mut self, seconds: f64) -> &mut Self {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.plan_once();
        }
        self
    }

    fn forget(&mut self) {
        self.moves.clear();
        self.events.clear();
    }

    fn whys(&self) -> Vec<MoveReason> {
        let mut whys: Vec<MoveReason> = self.moves.iter().map(|(_, done)| done.why).collect();
        whys.sort_unstable();
        whys.dedup();
        whys
    }

    fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| wanted(event))
    }

    fn cpus(&self) -> Vec<u32> {
        self.state.cpus().into_iter().collect()
    }
}

#[test]
fn idle_entries_lie_evenly_on_as_many_cpus_as_are_parked_on() {
    let mut bed = TestMachine::new(16);
    bed.run(5.0);
    assert_eq!(bed.state.situation, Situation::Parked);
    assert_eq!(bed.cpus(), (1..=8).collect::<Vec<_>>());
    assert!(bed.cpus().iter().all(|cpu| bed.state.table.iter().filter(|at| *at == cpu).count() == 2));
    assert!(bed.moves.is_empty());
}

#[test]
fn low_load_ends_on_the_base_and_stays_there() {
    let mut bed = TestMachine::new(16);
    bed.all(0.7);
    bed.run(1.9);
    assert_eq!(bed.cpus().len(), 8, "the parked placement stays for a burst");
    bed.run(1.0);
    assert_eq!(bed.cpus(), [1]);
    assert_eq!(bed.state.situation, Situation::Coalesced);
    assert_eq!(bed.whys(), [MoveReason::Coalesce]);
    bed.run(1.5);
    let predicted = bed.events.iter().find_map(|(_, event)| match event {
        Event::Effect { cpu: 1, predicted, measured, .. } => Some((*predicted, *measured)),
        _ => None,
    });
    let (predicted, measured) = predicted.unwrap();
    assert!((predicted - 0.7).abs() < 0.01 && (measured - 0.7).abs() < 0.01, "{predicted} {measured}");
    bed.forget();
    bed.run(600.0);
    assert_eq!(bed.moves, []);
}

#[test]
fn entries_without_traffic_follow_to_the_one_cpu_that_is_in_use() {
    for distributes in [true, false] {
        let mut bed = TestMachine::new(16);
        bed.config.abilities.distributes = distributes;
        bed.run(5.0);
        assert_eq!(bed.cpus().len(), 8);
        bed.loads[3] = 0.4;
        bed.run(10.0);
        let on = bed.state.table[3];
        assert_eq!(bed.cpus(), [on], "distributes: {distributes}");
        assert_eq!(bed.whys(), [MoveReason::Coalesce]);
        bed.forget();
        bed.run(600.0);
        assert_eq!(bed.moves, []);
    }
}

#[test]
fn no_load_parks_again_soon_and_slow_streams_do_not() {
    let mut bed = TestMachine::new(16);
    bed.all(0.7);
    bed.run(10.0);
    bed.forget();
    bed.all(0.0);
    bed.run(2.2);
    assert_eq!(bed.state.situation, Situation::Parked);
    assert_eq!(bed.whys(), [MoveReason::Park]);
    assert!(bed.moves.iter().all(|(_, done)| !done.paid));

    let mut slow = TestMachine::new(16);
    slow.all(0.7);
    slow.run(10.0);
    slow.forget();
    // 300 packets a second, ten in each interval of some.
    slow.loads.fill(0.0);
    slow.loads[3] = 300.0 / 1e6;
    slow.run(60.0);
    assert_eq!(slow.state.situation, Situation::Coalesced);
    assert_eq!(slow.moves, []);
}

#[test]
fn more_load_than_one_cpu_takes_spreads_at_the_second_hot_look() {
    let mut bed = TestMachine::new(16);
    bed.all(0.7);
    bed.run(10.0);
    bed.forget();
    bed.all(1.3);
    assert_eq!(bed.plan_once(), []);
    let moves = bed.plan_once();
    assert!(!moves.is_empty());
    assert!(moves.iter().all(|done| done.why == MoveReason::Expand && done.from == 1 && done.paid), "{moves:?}");
    bed.run(30.0);
    // 1.3 and 0.325 for distributing: two CPUs would be at 0.81.
    assert_eq!(bed.cpus().len(), 3);
    bed.forget();
    bed.run(120.0);
    assert_eq!(bed.moves, []);
}

#[test]
fn the_base_is_emptied_when_it_needs_its_time_for_distributing() {
    let mut bed = TestMachine::new(16);
    bed.all(3.2);
    bed.run(20.0);
    assert!(!bed.cpus().contains(&1), "{:?}", bed.state.table);
    assert!(bed.whys().contains(&MoveReason::EvictBase));
    assert_eq!(bed.state.distribute_cost(), Some(Duration::from_nanos(250)));
    assert_eq!(bed.state.process_costs(), [(0, Duration::from_micros(1))]);

    bed.all(4.4);
    bed.run(20.0);
    assert_eq!(bed.state.situation, Situation::Saturated);
    assert!(bed.has(|event| matches!(event, Event::DistributionLimit { cpu: 1, .. })), "{:?}", bed.events);
}

#[test]
fn an_entry_that_fills_a_cpu_alone_is_left_there_and_told_of_once_a_minute() {
    let mut bed = TestMachine::new(16);
    bed.loads[5] = 1.6;
    bed.loads[2] = 0.1;
    bed.run(30.0);
    let told = bed.events.iter().filter(|(_, event)| matches!(event, Event::Elephant { entry: 5, .. })).count();
    assert_eq!(told, 1, "{:?}", bed.events);
    bed.forget();
    bed.run(50.0);
    assert_eq!(bed.moves, []);
    let alone = bed.state.table[5];
    assert_ne!(bed.state.table[2], alone);
}

#[test]
fn a_hold_doubles_with_each_mistake_until_the_load_has_stopped_to_flap() {
    let mut bed = TestMachine::new(16);
    let doubled = |bed: &TestMachine| bed.events.iter().filter(|(_, e)| matches!(e, Event::HoldDoubled { .. })).count();
    for _ in 0..20 {
        bed.all(1.3);
        bed.run(5.0);
        bed.all(0.6);
        bed.run(5.0);
    }
    assert!((1..=4).contains(&doubled(&bed)), "{:?}", bed.events);
    assert!(bed.state.hold >= Duration::from_secs(6));
    bed.forget();
    for _ in 0..6 {
        bed.all(1.3);
        bed.run(5.0);
        bed.all(0.6);
        bed.run(5.0);
    }
    assert_eq!(bed.moves, [], "what was high within the time of hold is provided for");
    bed.run(400.0);
    assert_eq!(bed.state.hold, Tuning::default().hold.0);
    assert_eq!(bed.cpus(), [1]);
}

#[test]
fn moves_that_are_not_urgent_wait_for_the_minutes_budget() {
    let mut bed = TestMachine::on(Machine::uniform(8), Settings::default(), Abilities { distributes: false, ..ABLE });
    bed.tuning = Tuning {
        moves_per_minute: 1,
        hold: Span(Duration::from_secs(1)),
        most_hold: Span(Duration::from_secs(1)),
        ..bed.tuning
    };
    bed.configure();
    for _ in 0..40 {
        bed.all(2.0);
        bed.run(4.0);
        bed.all(0.6);
        bed.run(4.0);
    }
    assert!(bed.has(|event| matches!(event, Event::BudgetUsedUp { .. })), "{:?}", bed.events);
    for (at, _) in &bed.moves {
        let minute = bed.moves.iter().filter(|(other, done)| {
            *other <= *at
                && *at - *other < Duration::from_secs(60)
                && matches!(done.why, MoveReason::Coalesce | MoveReason::Rebalance)
        });
        assert!(minute.count() <= 16);
    }
}

#[test]
fn a_cpu_that_goes_offline_is_left_at_once_even_if_it_is_the_base() {
    let mut bed = TestMachine::new(4);
    bed.all(1.5);
    bed.run(20.0);
    bed.forget();
    let gone = *bed.cpus().iter().find(|cpu| **cpu != 1).unwrap();
    bed.machine.cpus[gone as usize].online = false;
    bed.configure();
    let moves = bed.plan_once();
    assert!(moves.iter().all(|done| done.from == gone && done.why == MoveReason::CpuOffline), "{moves:?}");
    assert!(!bed.cpus().contains(&gone));
    assert!(bed.has(|event| matches!(event, Event::CpuGone { cpu, .. } if *cpu == gone)));

    bed.machine.cpus[1].online = false;
    bed.configure();
    bed.plan_once();
    assert_ne!(bed.state.base, 1);
    assert!(!bed.cpus().contains(&1));
}

#[test]
fn a_noisy_neighbour_drives_the_base_away_where_it_can_move() {
    let mut bed = TestMachine::new(8);
    bed.all(0.6);
    bed.run(10.0);
    bed.forget();
    bed.other.insert(1, 0.6);
    bed.run(10.0);
    assert_ne!(bed.state.base, 1);
    assert_eq!(bed.cpus(), [bed.state.base], "{:?}", bed.moves);
    assert!(bed.has(|event| matches!(event, Event::BaseMoved { from: 1, .. })));
    assert!(bed.moves.iter().any(|(_, done)| done.entry.is_none() && done.why == MoveReason::RehomeBase));

    let fixed = Settings { base: Some(1), ..Settings::default() };
    let mut bed = TestMachine::on(Machine::uniform(8), fixed, ABLE);
    bed.all(0.6);
    bed.run(10.0);
    bed.other.insert(1, 0.6);
    bed.run(10.0);
    assert_eq!(bed.state.base, 1, "who names the base keeps it");
    assert!(bed.cpus().iter().any(|cpu| *cpu != 1));
}

#[test]
fn work_that_begins_everywhere_at_once_leaves_the_base_where_it_is() {
    let mut bed = TestMachine::new(2);
    bed.all(0.6);
    bed.run(10.0);
    bed.forget();
    bed.all(2.0);
    bed.other.extend([(0, 0.5), (1, 0.5)]);
    let base = bed.state.base;
    bed.run(10.0);
    assert_eq!(bed.state.base, base, "{:?}", bed.moves);
}

#[test]
fn the_fewest_and_the_most_queue_pairs_are_kept() {
    let settings = Settings { min_queue_pairs: 3, max_queue_pairs: 5, ..Settings::default() };
    let mut bed = TestMachine::on(Machine::uniform(16), settings, ABLE);
    bed.all(0.3);
    bed.run(20.0);
    assert_eq!(bed.cpus().len(), 3);
    bed.all(9.0);
    for _ in 0..500 {
        bed.plan_once();
        assert!(bed.cpus().len() <= 5);
    }
    bed.settings.max_queue_pairs = 4;
    bed.configure();
    let moves = bed.plan_once();
    assert_eq!(bed.cpus().len(), 4);
    assert!(moves.iter().any(|done| done.why == MoveReason::Mode));
}

#[test]
fn an_excluded_base_only_distributes() {
    let settings = Settings { exclude_primary: true, ..Settings::default() };
    let mut bed = TestMachine::on(Machine::uniform(8), settings, ABLE);
    for sum in [0.0, 0.5, 3.0, 0.5] {
        bed.all(sum);
        bed.run(10.0);
        assert!(!bed.cpus().contains(&1), "{sum}: {:?}", bed.cpus());
    }
    assert_eq!(bed.cpus().len(), 1);
    bed.settings.exclude_primary = false;
    bed.configure();
    bed.run(10.0);
    assert_eq!(bed.cpus(), [1], "without the tax of distributing");
}

#[test]
fn another_node_is_used_only_when_the_base_s_own_is_full() {
    let mut machine = Machine::uniform(8);
    for cpu in &mut machine.cpus[4..] {
        *cpu = Cpu { numa_node: 1, last_level_cache: 1, ..*cpu };
    }
    let mut bed = TestMachine::on(machine, Settings::default(), Abilities { distributes: false, ..ABLE });
    bed.tuning.park_cpus = 2;
    bed.configure();
    bed.all(2.2);
    bed.run(20.0);
    assert!(bed.cpus().iter().all(|cpu| *cpu < 4), "{:?}", bed.cpus());
    bed.all(4.5);
    bed.run(20.0);
    assert!(bed.cpus().iter().any(|cpu| *cpu >= 4), "{:?}", bed.cpus());
}

#[test]
fn modes_change_while_packets_flow() {
    let mut bed = TestMachine::new(8);
    bed.all(0.6);
    bed.run(10.0);
    bed.settings.mode = Mode::StaticVrss;
    bed.configure();
    bed.run(2.0);
    assert_eq!(bed.cpus().len(), 8);
    assert_eq!(bed.state.situation, Situation::Fixed);
    let settings = |event: &Event| matches!(event, Event::Settings { mode: Mode::StaticVrss, .. });
    assert!(bed.has(settings));
    bed.forget();
    bed.run(60.0);
    assert_eq!(bed.moves, [], "static is static");
    bed.settings.mode = Mode::StaticVmq;
    bed.configure();
    bed.run(2.0);
    assert_eq!(bed.cpus(), [1]);
    assert_eq!(bed.whys(), [MoveReason::Mode]);
}

#[test]
fn a_refused_move_is_put_back_told_and_tried_again() {
    let mut bed = TestMachine::new(8);
    bed.all(0.6);
    bed.run(10.0);
    bed.all(1.4);
    let moves = std::iter::repeat_with(|| bed.plan_once()).find(|moves| !moves.is_empty()).unwrap();
    let refused = moves[0];
    let entry = refused.entry.unwrap();
    bed.state = bed.state.clone().failed(Some(entry));
    assert_eq!(bed.state.table[entry as usize], refused.from);
    bed.plan_once();
    assert!(bed.has(|event| matches!(event, Event::Refused { at, asked, .. }
        if *at == refused.from && *asked == refused.to)));
    bed.forget();
    bed.run(1.5);
    assert!(bed.moves.iter().all(|(_, done)| done.entry != Some(entry)), "not again at once");

    let before = bed.state.clone();
    assert_eq!(before.clone().failed(Some(99)), before);
}

#[test]
fn two_cpus_at_full_load_share_it_evenly() {
    let mut bed = TestMachine::new(2);
    bed.all(3.0);
    bed.run(30.0);
    // Each packet costs 1.25 altogether, so that 1.6 of 3.0 can be carried, if the base processes 6 of 16.
    let carried: f64 = (0..16).map(|entry| bed.state.load(entry)).sum();
    assert!(carried > 1.5, "{carried}: {:?}", bed.state.table);
    assert_eq!(bed.state.situation, Situation::Saturated);
    bed.forget();
    bed.run(60.0);
    assert_eq!(bed.moves, []);
}

#[test]
fn what_is_not_measured_by_entry_is_shared_out_by_packets() {
    let mut bed = TestMachine::new(8);
    bed.all(1.3);
    let mut blind = bed.seen(Duration::from_millis(10));
    blind.entries.iter_mut().for_each(|entry| entry.cost = None);
    let (state, ..) = plan(bed.state.clone(), &blind, &bed.config, bed.now);
    let (known, ..) = plan(bed.state.clone(), &bed.seen(Duration::from_millis(10)), &bed.config, bed.now);
    for entry in 0..16 {
        assert!((state.load(entry) - known.load(entry)).abs() < 1e-3);
    }
}

#[test]
fn an_observation_over_no_time_changes_nothing() {
    let mut bed = TestMachine::new(8);
    bed.all(1.3);
    bed.run(10.0);
    let (state, moves, events) = plan(bed.state.clone(), &Observation::default(), &bed.config, bed.now);
    assert_eq!((&state.table, moves, events), (&bed.state.table, vec![], vec![]));
    assert_eq!(state.situation, bed.state.situation);
}

#[test]
fn another_number_of_entries_makes_the_placement_anew() {
    let mut bed = TestMachine::new(8);
    bed.run(1.0);
    bed.abilities.entries = 20;
    bed.loads.resize(20, 0.0);
    bed.configure();
    let moves = bed.plan_once();
    assert_eq!(bed.state.table.len(), 20);
    assert!(moves.iter().all(|done| done.entry.unwrap() >= 16), "{moves:?}");
    bed.abilities.entries = 4;
    bed.loads.resize(4, 0.0);
    bed.configure();
    assert_eq!(bed.plan_once(), []);
    assert_eq!(bed.state.table.len(), 4);
}

#[test]
fn the_base_follows_to_where_packets_come_first() {
    let mut bed = TestMachine::new(16);
    bed.abilities.base_moves = false;
    bed.configure();
    bed.all(0.7);
    bed.run(10.0);
    assert_eq!(bed.cpus(), [1]);
    bed.forget();
    bed.abilities.received_by = Some(5);
    bed.configure();
    bed.plan_once();
    assert!(bed.has(|event| *event == Event::BaseSeen { from: 1, to: 5 }), "{:?}", bed.events);
    assert!(!bed.has(|event| matches!(event, Event::Settings { .. })));
    assert_eq!(bed.state.base, 5);
    // Spread again, it is the one that the tax is of, and that all comes back to.
    bed.all(1.3);
    bed.run(10.0);
    assert!(bed.cpus().len() > 1);
    bed.all(0.3);
    bed.run(70.0);
    assert_eq!(bed.cpus(), [5]);
    // What is static does not move with it.
    bed.settings.mode = Mode::StaticVrss;
    (bed.settings.base, bed.settings.max_queue_pairs) = (Some(3), 4);
    bed.configure();
    bed.run(3.0);
    assert_eq!((bed.cpus(), bed.state.base), (vec![3, 4, 5, 6], 5));
    bed.forget();
    for cpu in [2, 9, 3] {
        bed.abilities.received_by = Some(cpu);
        bed.configure();
        bed.run(3.0);
        assert_eq!((bed.state.base, &bed.moves[..]), (cpu, &[][..]));
    }
}

#[test]
fn an_entry_that_was_refused_at_the_beginning_is_where_it_was_found() {
    let mut bed = TestMachine::new(8);
    let wanted = bed.state.table[3];
    bed.state = bed.state.clone().found_at(3, 7, bed.now);
    bed.plan_once();
    assert!(bed.has(|event| *event == Event::Refused { entry: Some(3), at: 7, asked: wanted }), "{:?}", bed.events);
    bed.run(1.0);
    assert_eq!((bed.state.table[3], bed.moves.len()), (7, 0));
}
