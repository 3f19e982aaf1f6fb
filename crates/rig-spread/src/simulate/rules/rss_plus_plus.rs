//! RSS++: the load of a bucket is its share of its CPU's by packets; the biggest of overloaded CPUs go to underloaded ones;
//! CPUs are added and removed by what is left of their target load.

use std::time::Duration;

use super::{Decide, Table, load_of, shares};
use crate::event::{Event, Move};
use crate::observation::Observation;
use crate::settings::Mode;
use crate::simulate::scenario::Scenario;

const TARGET: f64 = 0.75;
const THRESHOLD: f64 = 0.02;
const SHORTEST: u64 = 10;
const LONGEST: u64 = 1000;
/// Attempts with more and more over- and undershoot allowed.
const RUNS: u32 = 10;

pub(super) struct RssPlusPlus {
    table: Table,
    interval: u64,
    /// CPUs that had moves at the last look.
    resting: Vec<u32>,
    active: Vec<u32>,
}

impl RssPlusPlus {
    pub fn new(scenario: &Scenario, port: usize) -> Self {
        let mut table = Table::new(scenario, port, scenario.static_pairs);
        let active = table.used();
        Self { table, interval: SHORTEST, resting: Vec::new(), active }
    }

    /// Adds or removes one CPU.
    fn scale(&mut self, loads: &[f64], shares: &[f64]) -> bool {
        let count = self.active.len() as f64;
        let surplus: f64 = loads.iter().map(|load| TARGET - load).sum();
        let highest = loads.iter().copied().fold(0.0, f64::max);
        let most = self.table.effective().max_queue_pairs as usize;
        if surplus < -0.1 && self.active.len() < most {
            let free = self.table.effective().cpus.iter().copied().find(|cpu| !self.active.contains(cpu));
            self.active.extend(free);
            return false;
        }
        let needed = 1.0 + (1.0 - TARGET) + (count + 1.0) * (highest - TARGET).max(0.05);
        if surplus <= needed || self.active.len() < 2 {
            return false;
        }
        let Some(least) = (0..loads.len()).min_by(|a, b| loads[*a].total_cmp(&loads[*b])) else { return false };
        let gone = self.active.remove(least);
        let mut sums: Vec<(u32, f64)> = self.active.iter().map(|cpu| (*cpu, self.load_in(cpu, shares))).collect();
        let mut leaving: Vec<usize> =
            (0..self.table.table.len()).filter(|entry| self.table.table[*entry] == gone).collect();
        // Longest processing time first.
        leaving.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]).then(a.cmp(b)));
        for entry in leaving {
            if let Some((cpu, sum)) = sums.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1)) {
                *sum += shares[entry];
                self.table.table[entry] = *cpu;
            }
        }
        true
    }

    fn load_in(&self, cpu: &u32, shares: &[f64]) -> f64 {
        self.table.table.iter().zip(shares).filter(|(at, _)| *at == cpu).map(|(_, share)| share).sum()
    }

    /// One attempt to make loads even; the table and the imbalance that is left.
    fn balance(&self, loads: &[f64], shares: &[f64], allowance: f64) -> (Vec<u32>, f64) {
        let mean = loads.iter().sum::<f64>() / loads.len() as f64;
        let mut over: Vec<f64> = loads.iter().map(|load| load - mean).collect();
        let mut table = self.table.table.clone();
        let alive = |table: &[u32], cpu: u32| {
            table.iter().zip(shares).filter(|(at, share)| **at == cpu && **share > 0.0).count()
        };
        for _ in 0..table.len() {
            let full = (0..over.len()).filter(|at| {
                over[*at] > THRESHOLD
                    && !self.resting.contains(&self.active[*at])
                    && alive(&table, self.active[*at]) > 1
            });
            let Some(from) = full.max_by(|a, b| over[*a].total_cmp(&over[*b])) else { break };
            let Some(to) = (0..over.len())
                .filter(|at| over[*at] < -THRESHOLD && !self.resting.contains(&self.active[*at]))
                .min_by(|a, b| over[*a].total_cmp(&over[*b]))
            else {
                break;
            };
            let fits = |entry: &usize| {
                let share = shares[*entry];
                table[*entry] == self.active[from]
                    && share > 0.0
                    && share <= over[from] + allowance
                    && share <= -over[to] + allowance
            };
            let biggest = (0..table.len()).filter(fits).max_by(|a, b| shares[*a].total_cmp(&shares[*b]));
            let Some(entry) = biggest else { break };
            over[from] -= shares[entry];
            over[to] += shares[entry];
            table[entry] = self.active[to];
        }
        (table, over.iter().map(|over| over * over).sum())
    }
}

impl Decide for RssPlusPlus {
    fn begin(&self) -> (u32, Vec<u32>) {
        (self.table.effective().base, self.table.table.clone())
    }

    fn next(&self) -> u64 {
        self.interval
    }

    fn look(&mut self, seen: &Observation, _: Duration) -> (Vec<Move>, Vec<Event>) {
        let before = self.table.table.clone();
        let used = self.table.used();
        let usable = self.table.effective().cpus.clone();
        self.active.retain(|cpu| usable.contains(cpu));
        if self.active.is_empty() {
            self.active = used;
        }
        let shares = shares(seen, &before);
        let mut loads: Vec<f64> = self.active.iter().map(|cpu| load_of(seen, *cpu)).collect();
        let removed = self.scale(&loads, &shares);
        if !removed {
            loads.resize(self.active.len(), 0.0);
            let still = self.table.table.clone();
            let (_, imbalance) = self.balance(&loads, &vec![0.0; still.len()], 0.0);
            let attempts = (0..RUNS).map(|run| self.balance(&loads, &shares, f64::from(run) * THRESHOLD));
            let best = attempts.min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((table, _)) = best.filter(|(_, left)| *left < imbalance) {
                self.table.table = table;
            }
        }
        let moves = self.table.moves(seen, before);
        self.resting = moves.iter().flat_map(|done| [done.from, done.to]).collect();
        let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        let imbalance: f64 = loads.iter().map(|load| (load - mean).abs()).sum();
        self.interval = match (moves.is_empty(), imbalance) {
            (true, _) => (self.interval * 2).min(LONGEST),
            (_, imbalance) if imbalance > 0.4 => SHORTEST,
            (_, imbalance) if imbalance > 0.2 => (self.interval / 2).max(SHORTEST),
            _ => self.interval,
        };
        (moves, Vec::new())
    }

    fn failed(&mut self, entry: Option<u32>) {
        self.table.failed(entry);
    }

    fn online(&mut self, cpu: u32, online: bool) {
        self.table.online(cpu, online);
    }

    fn mode(&mut self, _: Mode) {}
}
