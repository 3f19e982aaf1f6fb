//! irqbalance: every 10 s, what is most loaded goes to what is least loaded unless that turns the imbalance round. All CPUs
//! are in use; the option that rests some is off by default.

use std::time::Duration;

use super::{Decide, Table, load_of, shares};
use crate::event::{Event, Move};
use crate::observation::Observation;
use crate::settings::Mode;
use crate::simulate::scenario::Scenario;

const INTERVAL: u64 = 10_000;

pub(super) struct Irqbalance {
    table: Table,
}

impl Irqbalance {
    pub fn new(scenario: &Scenario, port: usize) -> Self {
        Self { table: Table::new(scenario, port, u32::MAX) }
    }
}

impl Decide for Irqbalance {
    fn begin(&self) -> (u32, Vec<u32>) {
        (self.table.effective().base, self.table.table.clone())
    }

    fn next(&self) -> u64 {
        INTERVAL
    }

    fn look(&mut self, seen: &Observation, _: Duration) -> (Vec<Move>, Vec<Event>) {
        let before = self.table.table.clone();
        self.table.used();
        let shares = shares(seen, &before);
        let most = self.table.effective().max_queue_pairs as usize;
        let cpus: Vec<u32> = self.table.effective().cpus.iter().copied().take(most).collect();
        let mut loads: Vec<f64> = cpus.iter().map(|cpu| load_of(seen, *cpu)).collect();
        for _ in 0..before.len() {
            let order = |a: &usize, b: &usize| loads[*a].total_cmp(&loads[*b]);
            let (Some(full), Some(empty)) = ((0..cpus.len()).max_by(order), (0..cpus.len()).min_by(order)) else {
                break;
            };
            let here: Vec<usize> = (0..before.len()).filter(|entry| self.table.table[*entry] == cpus[full]).collect();
            let better = |entry: &&usize| {
                let share = shares[**entry];
                share > 0.0 && loads[empty] + share < loads[full] - share
            };
            let greatest = here.iter().filter(better).max_by(|a, b| shares[**a].total_cmp(&shares[**b]));
            let Some(entry) = greatest.filter(|_| here.len() > 1) else { break };
            loads[full] -= shares[*entry];
            loads[empty] += shares[*entry];
            self.table.table[*entry] = cpus[empty];
        }
        (self.table.moves(seen, before), Vec::new())
    }

    fn failed(&mut self, entry: Option<u32>) {
        self.table.failed(entry);
    }

    fn online(&mut self, cpu: u32, online: bool) {
        self.table.online(cpu, online);
    }

    fn mode(&mut self, _: Mode) {}
}
