//! The scenarios: the activities of Microsoft's validation guide (S1 to S10), and what a receive path meets beside them.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::scenario::{Change, Costs, FLOWS, Flow, Port, Scenario, able, flows};
use crate::machine::Machine;
use crate::settings::{Mode, Settings};

/// Flows by this seed give the base of eight CPUs 11 of 64, as the guide's figure for a static spread demands.
pub const GUIDE_SEED: u64 = 28;

/// Loads of the guide, in bits per second: one transfer, two, and as much as goes.
pub const LOW: f64 = 5.5e9;
pub const MIDDLE: f64 = 10.3e9;
pub const FULL: f64 = 40e9;

/// The number of the base when none is asked for.
const BASE: u32 = 1;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// All scenarios, for machines of so many CPUs (at least 8), with the guide's costs and 16 entries; S18 has 64 CPUs always.
pub fn all(cpus: u32) -> Vec<Scenario> {
    let new = |name: &str, title: &str| Scenario::new(name, title, cpus);
    let mut all = vec![
        new("S1", "idle").then(0.0, seconds(10)),
        new("S2", "low load from idle").then(0.0, seconds(2)).then(LOW, seconds(90)),
        new("S3", "full load from idle").then(0.0, seconds(2)).then(FULL, seconds(90)),
        new("S4", "full load, then low").then(FULL, seconds(20)).then(LOW, seconds(90)),
        flip(
            new("S5", "static spread, then dynamic, at low load").then(LOW, seconds(110)),
            &[(0, Mode::StaticVrss), (20_000, Mode::Dynamic)],
        ),
        new("S6", "second transfer").then(LOW, seconds(30)).then(MIDDLE, seconds(90)),
        new("S7", "transfers cancelled").then(MIDDLE, seconds(60)).then(0.0, seconds(10)),
        new("S8", "burst from parked").then(0.0, seconds(5)).then(FULL, seconds(60)),
        new("S9", "burst from coalesced").then(LOW, seconds(40)).then(FULL, seconds(60)),
        hardware(new("S10", "full load, hardware places packets")).then(FULL, seconds(60)),
    ];
    for (name, half) in [("S11a", 500), ("S11b", 5_000), ("S11c", 30_000), ("S11d", 90_000)] {
        all.push(square(new(name, &format!("low and two transfers, {} s each", half as f64 / 1000.0)), half));
    }
    all.push(walk(new("S12", "random walk from 1 to 20 Gbit/s")));
    all.push(diurnal(new("S13", "a day in 240 s, 1 to 18 Gbit/s")));
    all.push(elephant(new("S14", "one entry has 60 % of 10 Gbit/s")));
    for (name, count) in [("S15a", 1), ("S15b", 8), ("S15c", 64)] {
        let mut scenario = new(name, &format!("burst of {count} flows from idle"));
        scenario.ports[0].flows = flows(count, GUIDE_SEED);
        all.push(scenario.then(0.0, seconds(5)).then(FULL, seconds(30)));
    }
    let noisy = new("S16", "60 % of the base is busy with other work").then(LOW, seconds(100));
    all.push(noisy.with(30_000, Change::Other { cpu: BASE, load: 0.6 }));
    let offline = new("S17", "a CPU in use goes offline, and comes back").then(MIDDLE, seconds(90));
    let offline = offline.with(30_000, Change::Online { cpu: BASE + 1, online: false });
    all.push(offline.with(60_000, Change::Online { cpu: BASE + 1, online: true }));
    all.push(many(new("S18", "32 interfaces on 64 CPUs, 4 queue pairs each")));
    all.push(adversarial(new("S19", "all flows in two entries")));
    all.push(
        Scenario { failing: 0.1, ..new("S20", "one move in ten is refused").then(LOW, seconds(30)) }
            .then(MIDDLE, seconds(60))
            .then(LOW, seconds(60)),
    );
    all.push(
        Scenario { noise: 0.1, ..new("S21", "10 % error of measurement").then(LOW, seconds(60)) }
            .then(MIDDLE, seconds(60))
            .then(FULL, seconds(60)),
    );
    all.push(flip(
        new("S22", "mode changes every 20 s at two transfers").then(MIDDLE, seconds(140)),
        &[(20_000, Mode::StaticVrss), (40_000, Mode::Dynamic), (60_000, Mode::StaticVmq), (80_000, Mode::Dynamic)],
    ));
    all
}

fn flip(scenario: Scenario, modes: &[(u64, Mode)]) -> Scenario {
    modes.iter().fold(scenario, |scenario, (at, mode)| scenario.with(*at, Change::Mode { port: 0, mode: *mode }))
}

/// With hardware that places packets.
#[must_use]
pub fn hardware(mut scenario: Scenario) -> Scenario {
    scenario.costs = Costs::guide_hardware();
    for port in &mut scenario.ports {
        port.abilities.distributes = false;
    }
    scenario
}

/// With so many entries, and the same flows.
#[must_use]
pub fn entries(mut scenario: Scenario, entries: u32) -> Scenario {
    for port in &mut scenario.ports {
        port.abilities.entries = entries;
    }
    scenario
}

/// Low load and two transfers by turns, each for so many ms.
pub fn square(mut scenario: Scenario, half: u64) -> Scenario {
    scenario = scenario.then(LOW, seconds(30));
    let turns = (300_000 / (2 * half)).clamp(1, 150);
    for _ in 0..turns {
        scenario = scenario.then(MIDDLE, Duration::from_millis(half)).then(LOW, Duration::from_millis(half));
    }
    scenario
}

fn walk(mut scenario: Scenario) -> Scenario {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
    let mut load: f64 = 6e9;
    for _ in 0..240 {
        scenario = scenario.then(load, seconds(1));
        load = (load + 2e9 * (random.random::<f64>() - 0.5)).clamp(1e9, 20e9);
    }
    scenario
}

fn diurnal(mut scenario: Scenario) -> Scenario {
    for second in 0..240 {
        let angle = f64::from(second) / 240.0 * std::f64::consts::TAU;
        scenario = scenario.then(9.5e9 - 8.5e9 * angle.cos(), seconds(1));
    }
    scenario
}

fn elephant(mut scenario: Scenario) -> Scenario {
    let rate = scenario.costs.packets(10e9);
    let flows = &mut scenario.ports[0].flows;
    let share = 0.4 / flows.len() as f64;
    for flow in flows.iter_mut() {
        flow.rate = rate * share;
    }
    flows.push(Flow { hash: 3, rate: rate * 0.6, elastic: true });
    scenario.length = 60_000;
    scenario
}

fn adversarial(mut scenario: Scenario) -> Scenario {
    for (index, flow) in scenario.ports[0].flows.iter_mut().enumerate() {
        flow.hash = if index % 2 == 0 { 3 } else { 11 };
    }
    scenario.then(MIDDLE, seconds(60))
}

/// Each interface has a base of its own, at every second CPU, and a load that changes every 10 s.
fn many(mut scenario: Scenario) -> Scenario {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(18);
    scenario.machine = Machine::uniform(64);
    scenario.ports = (0..32)
        .map(|port| Port {
            abilities: able(super::scenario::ENTRIES, true),
            settings: Settings { max_queue_pairs: 4, base: Some(2 * port + 1), ..Settings::default() },
            flows: flows(FLOWS / 4, 100 + u64::from(port)),
        })
        .collect();
    for at in (0..60_000).step_by(10_000) {
        for port in 0..scenario.ports.len() {
            // Most have little to do, some much.
            let bits = 9e9 * random.random::<f64>().powi(3);
            let rate = scenario.costs.packets(bits) / (FLOWS / 4) as f64;
            scenario.steps.push(super::scenario::Step { at, change: Change::Rate { port, rate } });
        }
    }
    scenario.length = 60_000;
    scenario
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guides_base_has_eleven_of_its_flows() {
        let on_base = flows(FLOWS, GUIDE_SEED).iter().filter(|flow| flow.hash % 16 % 8 == 0).count();
        assert_eq!(on_base, 11);
    }
}
