//! IX: every 100 ms, one CPU more when packets wait, one less when the idle time of all would do without it.

use std::time::Duration;

use super::{Decide, Table};
use crate::average::DecayingMean;
use crate::event::{Event, Move};
use crate::observation::Observation;
use crate::settings::Mode;
use crate::simulate::scenario::Scenario;

const INTERVAL: u64 = 100;
const UP: f64 = 32.0;
const DOWN: f64 = 8.0;
const FAST: Duration = Duration::from_millis(200);
const SLOW: Duration = Duration::from_secs(2);
const UP_AFTER_UP: Duration = Duration::from_millis(200);
const UP_AFTER_DOWN: Duration = Duration::from_secs(2);
const DOWN_AFTER_ANY: Duration = Duration::from_secs(4);
/// Idle time that has to be left, to what one CPU has.
const SPARE: f64 = 1.2;

pub(super) struct Ix {
    table: Table,
    fast: DecayingMean,
    slow: DecayingMean,
    up: Option<Duration>,
    down: Option<Duration>,
}

impl Ix {
    pub fn new(scenario: &Scenario, port: usize) -> Self {
        let table = Table::new(scenario, port, scenario.static_pairs);
        Self { table, fast: DecayingMean::default(), slow: DecayingMean::default(), up: None, down: None }
    }
}

impl Decide for Ix {
    fn begin(&self) -> (u32, Vec<u32>) {
        (self.table.effective().base, self.table.table.clone())
    }

    fn next(&self) -> u64 {
        INTERVAL
    }

    fn look(&mut self, seen: &Observation, now: Duration) -> (Vec<Move>, Vec<Event>) {
        let before = self.table.table.clone();
        let mut used = self.table.used();
        let waiting: u64 = seen.entries.iter().filter_map(|entry| entry.waiting).sum();
        let queue = waiting as f64 / used.len() as f64;
        self.fast.add(queue, seen.over, FAST);
        self.slow.add(queue, seen.over, SLOW);
        let since = |moment: Option<Duration>| moment.map_or(Duration::MAX, |moment| now.saturating_sub(moment));
        let over = seen.over.as_secs_f64().max(1e-9);
        let busy = |cpu: &u32| {
            let found = seen.cpus.iter().find(|seen| seen.number == *cpu);
            found.map_or(0.0, |cpu| cpu.busy().as_secs_f64() / over)
        };
        let idle: f64 = used.iter().map(|cpu| (1.0 - busy(cpu)).max(0.0)).sum();
        let most = self.table.effective().max_queue_pairs as usize;
        let free = self.table.effective().cpus.iter().copied().find(|cpu| !used.contains(cpu));
        if let Some(free) = free.filter(|_| used.len() < most)
            && self.fast.get() > UP
            && since(self.up) >= UP_AFTER_UP
            && since(self.down) >= UP_AFTER_DOWN
        {
            // The new one takes from each what is above an even share.
            used.push(free);
            let share = self.table.table.len() / used.len();
            for cpu in &used[..used.len() - 1] {
                let here: Vec<usize> =
                    (0..self.table.table.len()).filter(|entry| self.table.table[*entry] == *cpu).collect();
                for entry in here.into_iter().skip(share.max(1)) {
                    self.table.table[entry] = free;
                }
            }
            self.up = Some(now);
        } else if used.len() > 1
            && self.slow.get() < DOWN
            && idle > SPARE
            && since(self.up) >= DOWN_AFTER_ANY
            && since(self.down) >= DOWN_AFTER_ANY
            && let Some(gone) = used.pop()
        {
            for (next, cpu) in self.table.table.iter_mut().filter(|cpu| **cpu == gone).enumerate() {
                *cpu = used[next % used.len()];
            }
            self.down = Some(now);
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
