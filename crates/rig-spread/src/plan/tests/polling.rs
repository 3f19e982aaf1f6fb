//! Queues that are polled in place, and threads that poll them.

use super::*;

/// Two CPUs whose queues can be polled in place: packets come to CPU 1 alone, or to both. With threads a packet costs half as
/// much again.
struct InPlacePolling {
    bed: TestMachine,
    /// Parts of the load that come to CPUs 0 and 1 by themselves.
    comes: [f64; 2],
    demand: f64,
    thread_costs: f64,
}

impl InPlacePolling {
    fn new(comes: [f64; 2], thread_costs: f64) -> Self {
        let able = Abilities { distributes: false, base_moves: false, in_place: true, ..ABLE };
        Self { bed: TestMachine::on(Machine::uniform(2), Settings::default(), able), comes, demand: 0.0, thread_costs }
    }

    fn run(&mut self, demand: f64, seconds: f64) {
        self.demand = demand;
        let end = self.bed.now + Duration::from_secs_f64(seconds);
        while self.bed.now < end {
            let over = self.bed.state.next_look(&self.bed.config);
            self.bed.now += over;
            let (state, moves, events) = plan(self.bed.state.clone(), &self.seen(over), &self.bed.config, self.bed.now);
            self.bed.state = state;
            self.bed.moves.extend(moves.iter().map(|done| (self.bed.now, *done)));
            self.bed.events.extend(events.into_iter().map(|event| (self.bed.now, event)));
        }
    }

    /// CPUs take what they can; a packet costs 1 us in place.
    fn seen(&self, over: Duration) -> Observation {
        let state = &self.bed.state;
        let cost = if state.in_place { 1.0 } else { self.thread_costs };
        let entries = state.table.len() as f64;
        let wanted = |cpu: u32| {
            let here = state.table.iter().filter(|at| **at == cpu).count() as f64 / entries;
            let part = if state.in_place { self.comes[cpu as usize] } else { here };
            self.demand * part * cost
        };
        let done = |cpu: u32| wanted(cpu).min(1.0);
        let packets = |cpu: u32| done(cpu) / cost * over.as_secs_f64() * 1e6;
        let all = packets(0) + packets(1);
        let of_entry = |cpu: &u32| {
            let here = state.table.iter().filter(|at| *at == cpu).count() as f64;
            let packets = if state.in_place { all / entries } else { packets(*cpu) / here };
            let cost = Some(Duration::from_secs_f64(packets * cost * 1e-6));
            EntryObservation { packets: packets as u64, bytes: 0, cost, waiting: None, lost: 0 }
        };
        let of_cpu = |number: u32| CpuObservation {
            number,
            packets: if state.in_place { packets(number) as u64 } else { 0 },
            processing: over.mul_f64(done(number)),
            other: over.mul_f64(self.bed.other.get(&number).copied().unwrap_or(0.0)),
            standing_queue: wanted(number) > 1.0,
            ..CpuObservation::default()
        };
        Observation { over, entries: state.table.iter().map(of_entry).collect(), cpus: [0, 1].map(of_cpu).to_vec() }
    }

    fn switches(&self) -> Vec<(bool, PollingReason)> {
        let of = |(_, event): &(Duration, Event)| match event {
            Event::Polling { in_place, why } => Some((*in_place, *why)),
            _ => None,
        };
        self.bed.events.iter().filter_map(of).collect()
    }
}

#[test]
fn there_are_no_threads_while_one_cpu_is_enough_and_they_come_back_when_it_is_full() {
    let mut bed = InPlacePolling::new([0.0, 1.0], 1.5);
    bed.run(0.0, 3.0);
    bed.run(0.3, 10.0);
    assert_eq!(bed.switches(), [(true, PollingReason::Coalesced)]);
    assert_eq!(bed.bed.state.situation, Situation::Coalesced);
    bed.bed.forget();
    bed.run(0.3, 60.0);
    assert!(bed.bed.moves.is_empty() && bed.bed.events.is_empty(), "{:?}", bed.bed.events);
    // One CPU does not do, and the other has room.
    bed.run(1.1, 0.3);
    assert_eq!(bed.switches(), [(false, PollingReason::Hot)]);
    bed.run(1.1, 3.0);
    assert_eq!((bed.bed.cpus(), bed.bed.state.in_place), (vec![0, 1], false));
    bed.bed.forget();
    bed.run(0.0, 3.0);
    assert_eq!((bed.bed.cpus(), bed.bed.state.situation), (vec![0, 1], Situation::Parked));
}

#[test]
fn where_all_cpus_are_full_the_way_of_polling_stays_that_carries_more() {
    // Packets come to both CPUs by themselves: threads have nothing to add.
    let mut both = InPlacePolling::new([0.5, 0.5], 1.5);
    both.run(0.0, 3.0);
    both.run(4.0, 10.0);
    let switches = both.switches();
    let [(true, PollingReason::Trial), (true, PollingReason::Measured { with, without })] = switches[..] else {
        panic!("{switches:?}")
    };
    assert!(without > with * 1.4, "{with} with threads, {without} without");
    // And so it is in the next burst, without another trial.
    both.bed.forget();
    both.run(0.0, 3.0);
    assert!(both.bed.state.in_place && both.bed.state.situation == Situation::Parked);
    both.run(4.0, 10.0);
    assert!(both.switches().is_empty(), "{:?}", both.switches());

    // They come to one: with threads both work.
    let mut one = InPlacePolling::new([0.0, 1.0], 1.2);
    one.run(0.0, 3.0);
    one.run(4.0, 20.0);
    assert!(!one.bed.state.in_place && one.bed.cpus() == [0, 1]);
    let switches = one.switches();
    let [(true, PollingReason::Trial), (false, PollingReason::Measured { with, without })] = switches[..] else {
        panic!("{switches:?}")
    };
    assert!(with > without * 1.5, "{with} with threads, {without} without");
}

#[test]
fn threads_that_carry_less_than_was_carried_without_go_again() {
    let mut bed = InPlacePolling::new([0.0, 1.0], 3.0);
    bed.run(0.0, 3.0);
    bed.run(0.2, 10.0);
    bed.bed.forget();
    bed.run(1.2, 20.0);
    let switches = bed.switches();
    // Where all CPUs are full sooner, that is a trial.
    let [(false, PollingReason::Hot), .., (true, PollingReason::Measured { with, without })] = switches[..] else {
        panic!("{switches:?}")
    };
    assert!(with < without * 0.8, "{with} with threads, {without} without");
    assert!(bed.bed.state.in_place);
}

#[test]
fn a_cpu_that_other_work_fills_needs_no_threads_for_the_few_packets_that_come_to_it() {
    let mut bed = InPlacePolling::new([0.0, 1.0], 1.5);
    bed.run(0.0, 3.0);
    bed.run(0.05, 10.0);
    bed.bed.forget();
    bed.bed.other.insert(1, 0.95);
    bed.run(0.05, 20.0);
    assert!(bed.bed.state.in_place && bed.switches().is_empty(), "{:?}", bed.switches());
}

#[test]
fn what_settings_ask_for_is_not_left_to_where_packets_come() {
    let on = |settings: Settings| {
        let able = Abilities { in_place: true, ..ABLE };
        Config::new(&settings, Tuning::default(), Machine::uniform(4), able).effective.in_place
    };
    let plain = Settings::default;
    assert!(on(plain()) && on(Settings { max_queue_pairs: 4, ..plain() }));
    let asked = [
        Settings { base: Some(1), ..plain() },
        Settings { cpus: Some(vec![0, 1]), ..plain() },
        Settings { min_queue_pairs: 2, ..plain() },
        Settings { max_queue_pairs: 3, ..plain() },
        Settings { exclude_primary: true, ..plain() },
        Settings { mode: Mode::StaticVrss, ..plain() },
    ];
    for settings in asked {
        assert!(!on(settings.clone()), "{settings:?}");
    }
    // Settings that come later bring the threads back.
    let mut bed = InPlacePolling::new([0.0, 1.0], 1.5);
    bed.run(0.3, 10.0);
    assert!(bed.bed.state.in_place);
    bed.bed.settings.mode = Mode::StaticVrss;
    bed.bed.configure();
    bed.bed.forget();
    bed.run(0.3, 2.0);
    assert_eq!(bed.switches(), [(false, PollingReason::Settings)]);
    assert_eq!(bed.bed.cpus(), [0, 1]);
}

#[test]
fn a_switch_that_is_refused_is_not_tried_again_at_once() {
    let mut bed = InPlacePolling::new([0.0, 1.0], 1.5);
    bed.run(0.3, 10.0);
    assert!(bed.bed.state.in_place);
    bed.bed.state = bed.bed.state.clone().polled_as_before(false, bed.bed.now);
    bed.bed.forget();
    bed.run(0.3, 5.0);
    assert!(bed.switches().is_empty());
    bed.run(0.3, 10.0);
    assert_eq!(bed.switches(), [(true, PollingReason::Coalesced)]);
}
