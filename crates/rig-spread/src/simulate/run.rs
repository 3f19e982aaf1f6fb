//! A scenario under a rule, from beginning to end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::oracle::{Demand, OptimalPlacement, best};
use super::rules::{Decide, Rule};
use super::scenario::{Change, Scenario};
use super::world::SimulatedMachine;
use crate::event::{Event, Move, MoveReason};
use crate::settings::Mode;

/// Steps over which throughput is averaged.
const SHORT: u64 = 10;
/// Between two samples, in ms.
const SAMPLE: u64 = 100;

/// A tenth of a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its end, in ms since the beginning.
    pub at: u64,
    /// Throughput in bits per second.
    pub bits: f64,
    /// Packets per second dropped.
    pub lost: f64,
    /// Mean of CPUs at work.
    pub cpus: f64,
    /// CPU seconds per second of distributing and processing.
    pub work: f64,
    /// CPUs that would do.
    pub oracle: u32,
    /// The highest load of a CPU, as a fraction.
    pub highest: f64,
    pub moves: u32,
    /// The CPU of each entry of the first interface.
    pub table: Vec<u32>,
}

/// From a change of load to the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// In ms since the beginning.
    pub from: u64,
    pub to: u64,
    /// Mean bits per second of its last second.
    pub bits: f64,
    /// What can be met of the demand, at best, in bits per second.
    pub possible: f64,
    /// Time to 95 % of `bits`, in ms; none where the load is nil.
    pub t95: Option<u64>,
    /// Distinct CPUs at work at its end.
    pub cpus: u32,
    pub oracle: u32,
    /// CPU seconds for each second in its last second, by all work.
    pub cores: f64,
    /// The highest load of a CPU at its end.
    pub highest: f64,
    pub moves: u32,
    /// Moves in the last half minute, if it is longer than that by 15 s at least, so that everything has settled.
    pub late_moves: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SimulationResult {
    pub scenario: String,
    pub rule: Rule,
    /// CPUs at work, and those that would do, each integrated over time, in seconds, but for times in which a user held our
    /// policy in a static mode.
    pub cpu_seconds: f64,
    pub oracle_seconds: f64,
    /// The time that these were integrated over.
    pub free_seconds: f64,
    /// CPU time spent, other work included, in seconds.
    pub busy_seconds: f64,
    /// Bits carried, and those that could have been.
    pub bits: f64,
    pub possible_bits: f64,
    /// Packets dropped, as a share of all that arrived.
    pub lost: f64,
    /// The time in ns that 99 of 100 packets waited at most.
    pub waited: f64,
    pub moves: u32,
    /// Moves of entries with traffic.
    pub paid: u32,
    /// By reason.
    pub why: BTreeMap<MoveReason, u32>,
    /// Entries that went from one CPU to another and back within a minute without a change of load between.
    pub there_and_back: u32,
    pub phases: Vec<Phase>,
    pub samples: Vec<Sample>,
    /// In ms since the beginning, and in words.
    pub events: Vec<(u64, String)>,
    /// In ms since the beginning.
    pub moved: Vec<(u64, Move)>,
    /// CPUs that entries of the first interface are on, whenever it is another number: when, in ms since the beginning.
    pub placed: Vec<(u64, u32)>,
    /// Observations of the first interface as they were made.
    #[serde(skip)]
    pub seen: Vec<(Duration, crate::observation::Observation)>,
}

impl SimulationResult {
    /// CPUs at work to those that would do.
    pub fn ratio(&self) -> f64 {
        if self.oracle_seconds > 0.0 { self.cpu_seconds / self.oracle_seconds } else { 1.0 }
    }

    /// Throughput to what was possible.
    pub fn carried(&self) -> f64 {
        if self.possible_bits > 0.0 { self.bits / self.possible_bits } else { 1.0 }
    }
}

/// Runs a scenario under a rule. Deterministic.
pub fn run(scenario: &Scenario, rule: Rule) -> SimulationResult {
    Simulation::new(scenario, rule).complete()
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    world: SimulatedMachine,
    deciders: Vec<Box<dyn Decide>>,
    next: Vec<u64>,
    /// Moves that were decided and take effect at a step.
    pending: Vec<(u64, usize, Move)>,
    /// Packets per second that each flow has to send, as the oracle knows it.
    rates: Vec<Vec<f64>>,
    other: BTreeMap<u32, f64>,
    online: BTreeMap<u32, bool>,
    bases: Vec<u32>,
    tables: Vec<Vec<u32>>,
    oracle: OptimalPlacement,
    demand: f64,
    outcome: SimulationResult,
    /// The current phase's throughput in each hundredth of a second.
    short: Vec<f64>,
    used: Vec<u32>,
    busy: Vec<f64>,
    phase_from: u64,
    phase_moves: Vec<u64>,
    /// A user set a static mode.
    held: bool,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, rule: Rule) -> Self {
        let deciders: Vec<_> = (0..scenario.ports.len()).map(|port| rule.begin(scenario, port)).collect();
        let begins: Vec<(u32, Vec<u32>)> = deciders.iter().map(|decider| decider.begin()).collect();
        let world = SimulatedMachine::new(scenario, &begins);
        let next = deciders.iter().map(|decider| decider.next()).collect();
        let (bases, tables) = begins.into_iter().unzip();
        Self {
            scenario,
            world,
            deciders,
            next,
            pending: Vec::new(),
            rates: scenario.ports.iter().map(|port| port.flows.iter().map(|flow| flow.rate).collect()).collect(),
            other: BTreeMap::new(),
            online: scenario.machine.cpus.iter().map(|cpu| (cpu.number, cpu.online)).collect(),
            bases,
            tables,
            oracle: OptimalPlacement { cpus: 0, share: 1.0 },
            demand: 0.0,
            outcome: SimulationResult {
                scenario: scenario.name.clone(),
                rule,
                cpu_seconds: 0.0,
                oracle_seconds: 0.0,
                free_seconds: 0.0,
                busy_seconds: 0.0,
                bits: 0.0,
                possible_bits: 0.0,
                lost: 0.0,
                waited: 0.0,
                moves: 0,
                paid: 0,
                why: BTreeMap::new(),
                there_and_back: 0,
                phases: Vec::new(),
                samples: Vec::new(),
                events: Vec::new(),
                moved: Vec::new(),
                placed: Vec::new(),
                seen: Vec::new(),
            },
            short: Vec::new(),
            used: Vec::new(),
            busy: Vec::new(),
            phase_from: 0,
            phase_moves: Vec::new(),
            held: false,
        }
    }

    fn complete(mut self) -> SimulationResult {
        let scenario = self.scenario;
        let mut steps = scenario.steps.iter().peekable();
        let (mut delivered, mut lost, mut arrived) = (0.0, 0.0, 0.0);
        let mut sample = (0.0, 0.0, 0.0, 0.0);
        let mut short = 0.0;
        let mut sampled_moves = 0;
        for at in 0..scenario.length {
            let mut changed = at == 0;
            let mut load_changed = false;
            while let Some(step) = steps.next_if(|step| step.at <= at) {
                load_changed |= !matches!(step.change, Change::Mode { .. });
                self.change(step.change);
                changed = true;
            }
            if changed {
                if load_changed && at > self.phase_from {
                    self.end_phase(at);
                }
                self.ask_oracle();
            }
            self.carry_out(at);
            self.world.step();
            self.look(at + 1);

            let used = f64::from(self.world.used());
            // What a user holds in a static mode is no choice of the policy.
            if !self.held {
                self.outcome.free_seconds += 0.001;
                self.outcome.cpu_seconds += used / 1000.0;
                self.outcome.oracle_seconds += f64::from(self.oracle.cpus) / 1000.0;
            }
            self.outcome.possible_bits += self.world.costs().bits(self.demand * self.oracle.share) / 1000.0;
            delivered += self.world.delivered;
            lost += self.world.lost;
            arrived += self.world.delivered + self.world.lost;
            sample.0 += self.world.delivered;
            sample.1 += self.world.lost;
            sample.2 += used;
            sample.3 += self.world.work();
            short += self.world.delivered;
            if (at + 1) % SHORT == 0 {
                self.short.push(self.world.costs().bits(short) / SHORT as f64 * 1000.0);
                self.used.push(self.world.used());
                self.busy.push(self.world.busy());
                short = 0.0;
            }
            if (at + 1) % SAMPLE == 0 {
                let per_second = 1000.0 / SAMPLE as f64;
                let moves = self.outcome.moves;
                self.outcome.samples.push(Sample {
                    at: at + 1,
                    bits: self.world.costs().bits(sample.0) * per_second,
                    lost: sample.1 * per_second,
                    cpus: sample.2 / SAMPLE as f64,
                    work: sample.3 / SAMPLE as f64,
                    oracle: self.oracle.cpus,
                    highest: self.world.highest(),
                    moves: moves - sampled_moves,
                    table: self.tables.first().cloned().unwrap_or_default(),
                });
                sampled_moves = moves;
                sample = (0.0, 0.0, 0.0, 0.0);
            }
        }
        self.end_phase(scenario.length);
        self.outcome.busy_seconds = self.world.busy();
        self.outcome.bits = self.world.costs().bits(delivered);
        self.outcome.lost = if arrived > 0.0 { lost / arrived } else { 0.0 };
        self.outcome.waited = self.world.waited(0.99);
        self.outcome
    }

    fn change(&mut self, change: Change) {
        self.world.change(change);
        match change {
            Change::Rate { port, rate } => self.rates[port].iter_mut().for_each(|of| *of = rate),
            Change::FlowRate { port, flow, rate } => self.rates[port][flow] = rate,
            Change::Other { cpu, load } => {
                self.other.insert(cpu, load);
            }
            Change::Online { cpu, online } => {
                self.online.insert(cpu, online);
                self.deciders.iter_mut().for_each(|decider| decider.online(cpu, online));
                // All rules look at once.
                self.next.fill(0);
            }
            Change::Mode { port, mode } => self.mode(port, mode),
        }
    }

    fn mode(&mut self, port: usize, mode: Mode) {
        self.held = self.outcome.rule == Rule::Dynamic && mode != Mode::Dynamic;
        self.deciders[port].mode(mode);
        self.next[port] = 0;
    }

    fn ask_oracle(&mut self) {
        let costs = &self.scenario.costs;
        let numbers: Vec<u32> = self.online.iter().filter(|(_, online)| **online).map(|(cpu, _)| *cpu).collect();
        let other: Vec<f64> = numbers.iter().map(|cpu| self.other.get(cpu).copied().unwrap_or(0.0)).collect();
        let mut demands = Vec::new();
        self.demand = 0.0;
        for (port, rates) in self.scenario.ports.iter().zip(&self.rates) {
            let entries = port.abilities.entries.max(1);
            let link = costs.link_packets();
            let sum: f64 = rates.iter().sum();
            let scale = if sum > link { link / sum } else { 1.0 };
            let mut loads = vec![0.0; entries as usize];
            for (flow, rate) in port.flows.iter().zip(rates) {
                loads[(flow.hash % u64::from(entries)) as usize] += rate * scale * costs.process / 1e9;
            }
            self.demand += sum * scale;
            let distributes = port.abilities.distributes;
            let fixed = port.settings.base;
            demands.push(Demand {
                loads,
                distributing: if distributes { sum * scale * costs.distribute / 1e9 } else { 0.0 },
                base: fixed.and_then(|base| numbers.iter().position(|cpu| *cpu == base)),
            });
        }
        self.oracle = best(&demands, &other, self.scenario.tuning.hi);
    }

    /// Moves whose time has come.
    fn carry_out(&mut self, at: u64) {
        let due: Vec<(u64, usize, Move)> = self.pending.extract_if(.., |(when, ..)| *when <= at).collect();
        let moved = !due.is_empty();
        for (_, port, done) in due {
            let entry = done.entry.map(|entry| entry as usize);
            self.world.place(port, entry, done.to);
            match entry {
                Some(entry) => {
                    if let Some(cpu) = self.tables[port].get_mut(entry) {
                        *cpu = done.to;
                    }
                }
                None => self.bases[port] = done.to,
            }
        }
        if !moved && !self.outcome.placed.is_empty() {
            return;
        }
        let table = self.tables.first().into_iter().flatten();
        let placed = u32::try_from(table.collect::<BTreeSet<_>>().len()).unwrap_or(u32::MAX);
        if self.outcome.placed.last().is_none_or(|(_, before)| *before != placed) {
            self.outcome.placed.push((at, placed));
        }
    }

    fn look(&mut self, at: u64) {
        let now = Duration::from_millis(at);
        for port in 0..self.deciders.len() {
            if self.next[port] > at {
                continue;
            }
            let seen = self.world.observe(port);
            let (moves, events) = self.deciders[port].look(&seen, now);
            if port == 0 && self.outcome.rule == Rule::Dynamic {
                self.outcome.seen.push((now, seen));
            }
            for done in moves {
                if self.world.chance(self.scenario.failing) {
                    self.deciders[port].failed(done.entry);
                    continue;
                }
                self.note(at, port, done);
            }
            self.outcome.events.extend(events.iter().map(|event: &Event| (at, event.to_string())));
            self.next[port] = at + self.deciders[port].next().max(1);
        }
    }

    fn note(&mut self, at: u64, port: usize, done: Move) {
        self.pending.push((at + self.scenario.latency.max(1) - 1, port, done));
        let outcome = &mut self.outcome;
        outcome.moves += 1;
        outcome.paid += u32::from(done.paid);
        *outcome.why.entry(done.why).or_default() += 1;
        let recent = outcome.moved.iter().rev().take_while(|(when, _)| *when + 60_000 > at && *when >= self.phase_from);
        let before = recent.filter(|(_, before)| before.entry == done.entry && port == 0).map(|(_, before)| before);
        let back = before
            .take(1)
            .any(|before| before.from == done.to && before.to == done.from && before.why != MoveReason::Mode);
        outcome.there_and_back += u32::from(back && done.paid && done.why != MoveReason::Mode);
        if port == 0 {
            outcome.moved.push((at, done));
        }
        self.phase_moves.push(at);
    }

    fn end_phase(&mut self, to: u64) {
        let from = self.phase_from;
        let last = |values: &[f64]| {
            let tail = &values[values.len().saturating_sub(100)..];
            tail.iter().sum::<f64>() / tail.len().max(1) as f64
        };
        let bits = last(&self.short);
        let t95 = self.short.iter().position(|value| *value >= 0.95 * bits).filter(|_| bits > 0.0);
        let tail = self.busy.len().saturating_sub(101);
        let span = (self.busy.len().saturating_sub(1) - tail.min(self.busy.len().saturating_sub(1))) as f64 / 100.0;
        let spent = self.busy.last().copied().unwrap_or(0.0) - self.busy.get(tail).copied().unwrap_or(0.0);
        let late = (to - from >= 45_000).then(|| {
            u32::try_from(self.phase_moves.iter().filter(|at| **at + 30_000 >= to).count()).unwrap_or(u32::MAX)
        });
        self.outcome.phases.push(Phase {
            from,
            to,
            bits,
            possible: self.world.costs().bits(self.demand * self.oracle.share),
            t95: t95.map(|index| (index as u64 + 1) * SHORT),
            cpus: self.used.iter().rev().take(100).copied().max().unwrap_or(0),
            oracle: self.oracle.cpus,
            cores: if span > 0.0 { spent / span } else { 0.0 },
            highest: self.world.highest(),
            moves: u32::try_from(self.phase_moves.len()).unwrap_or(u32::MAX),
            late_moves: late,
        });
        self.short.clear();
        self.used.clear();
        self.busy.clear();
        self.phase_moves.clear();
        self.phase_from = to;
    }
}
