//! What a decision costs: a look at which nothing happens, and those at which much does.
//!
//! `cargo xtask bench plan`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

use std::time::{Duration, Instant};

use rig_spread::{
    Abilities, Config, CpuObservation, EntryObservation, Machine, Observation, Order, Settings, State, Tuning, plan,
};

const TICK: Duration = Duration::from_millis(10);
const ROUNDS: usize = 2_000;

struct Case {
    entries: u32,
    cpus: u32,
}

impl Case {
    fn config(&self) -> Config {
        let abilities = Abilities {
            entries: self.entries,
            single_moves: true,
            order: Order::Exact,
            distributes: true,
            base_moves: true,
            receiver_spreads: true,
            received_by: None,
            in_place: false,
            only_cpus: None,
        };
        let settings = Settings { max_queue_pairs: self.cpus, ..Settings::default() };
        Config::new(&settings, Tuning::default(), Machine::uniform(self.cpus), abilities)
    }

    /// What is seen when each entry needs this load on its CPU.
    fn seen(&self, state: &State, load: f64) -> Observation {
        let cost = TICK.mul_f64(load);
        let packets = (cost.as_nanos() / 1600) as u64;
        let entry = EntryObservation { packets, bytes: packets * 1500, cost: Some(cost), waiting: Some(0), lost: 0 };
        let cpus = (0..self.cpus).map(|number| {
            let here = state.table.iter().filter(|cpu| **cpu == number).count() as u32;
            let distributing = if number == state.base {
                TICK.mul_f64((load * f64::from(self.entries) * 0.35).min(0.9))
            } else {
                Duration::ZERO
            };
            CpuObservation { number, processing: cost * here, distributing, ..CpuObservation::default() }
        });
        Observation { over: TICK, entries: vec![entry; self.entries as usize], cpus: cpus.collect() }
    }
}

/// What the largest case may take, microseconds.
const TARGET: f64 = 200.0;

/// Microseconds: median, 99 of 100, most.
fn told(name: &str, case: &Case, mut micros: Vec<f64>, moves: usize) {
    micros.sort_by(f64::total_cmp);
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize];
    let target = match case.entries {
        128 => format!("  target {TARGET:.0}: {}", if at(0.5) <= TARGET { "met" } else { "NOT MET" }),
        _ => String::new(),
    };
    println!(
        "{name:<34} {:>3} entries {:>2} CPUs  median {:>7.1} us  p99 {:>7.1} us  most {:>7.1} us  {moves} moves{target}",
        case.entries,
        case.cpus,
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Decides once on each of what `next` says, beginning with a state of its own for each where `fresh`.
fn measure(name: &str, case: &Case, fresh: bool, begin: &State, mut load: impl FnMut(usize) -> f64) {
    let config = case.config();
    let mut state = begin.clone();
    let mut micros = Vec::with_capacity(ROUNDS);
    let mut moved = 0;
    let mut now = Duration::from_secs(1000);
    for round in 0..ROUNDS {
        now += TICK;
        let before = if fresh { begin.clone() } else { state };
        let seen = case.seen(&before, load(round));
        let started = Instant::now();
        let (after, moves, _) = plan(before, &seen, &config, now);
        micros.push(started.elapsed().as_nanos() as f64 / 1000.0);
        moved += moves.len();
        state = after;
    }
    told(name, case, micros, moved);
}

/// After so many looks at a load.
fn after(case: &Case, looks: u32, load: f64) -> State {
    let config = case.config();
    let mut state = State::new(&config);
    for look in 0..looks {
        let seen = case.seen(&state, load);
        state = plan(state, &seen, &config, TICK * (look + 1)).0;
    }
    state
}

fn main() {
    for case in [Case { entries: 16, cpus: 8 }, Case { entries: 128, cpus: 64 }] {
        let part = |cpus: f64| cpus / f64::from(case.entries);
        let low = after(&case, 1000, part(0.6));
        measure("nothing to do, coalesced", &case, false, &low, |_| part(0.6));
        let most = f64::from(case.cpus) * 0.5;
        let high = after(&case, 3000, part(most));
        measure("nothing to do, spread", &case, false, &high, |_| part(most));
        // The first of two looks at a hot CPU is behind it.
        let config = case.config();
        let seen = case.seen(&low, part(most));
        let hot = plan(low, &seen, &config, Duration::from_secs(1000)).0;
        measure("one hot CPU has to give to many", &case, true, &hot, |_| part(most));
        // Long after the last attempt, so that each look packs everything anew.
        measure("many CPUs are to become fewer", &case, true, &high, |_| part(most));
    }
}
