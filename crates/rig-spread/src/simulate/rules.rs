//! The rules that decide: netrig's policy, and those of other programs, each as its sources or papers describe it.

mod irqbalance;
mod ix;
mod ours;
mod rss_plus_plus;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use crate::effective::{Config, EffectiveSettings};
use crate::event::{Event, Move, MoveReason};
use crate::observation::Observation;
use crate::settings::{Mode, Settings};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    Dynamic,
    StaticVmq,
    StaticVrss,
    /// Barbette et al., CoNEXT 2019; rsspp/fastclick, vendor/nicscheduler.
    RssPlusPlus,
    /// Prekas et al., SoCC 2015; ix-project/ix, cp/ixcp.py.
    Ix,
    /// irqbalance.github.io: irqlist.c and placement.c.
    Irqbalance,
}

impl Rule {
    pub const ALL: [Self; 6] =
        [Self::Dynamic, Self::StaticVmq, Self::StaticVrss, Self::RssPlusPlus, Self::Ix, Self::Irqbalance];

    pub fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::StaticVmq => "static-vmq",
            Self::StaticVrss => "static-vrss",
            Self::RssPlusPlus => "rss++",
            Self::Ix => "ix",
            Self::Irqbalance => "irqbalance",
        }
    }

    pub(super) fn begin(self, scenario: &Scenario, port: usize) -> Box<dyn Decide> {
        let of = &scenario.ports[port];
        match self {
            Self::Dynamic => Box::new(ours::NetrigRule::new(scenario, port)),
            Self::StaticVmq | Self::StaticVrss => {
                let mode = if self == Self::StaticVmq { Mode::StaticVmq } else { Mode::StaticVrss };
                let settings = Settings { mode, ..of.settings.clone() };
                Box::new(ours::NetrigRule::with(settings, scenario, port))
            }
            Self::RssPlusPlus => Box::new(rss_plus_plus::RssPlusPlus::new(scenario, port)),
            Self::Ix => Box::new(ix::Ix::new(scenario, port)),
            Self::Irqbalance => Box::new(irqbalance::Irqbalance::new(scenario, port)),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One interface under a rule.
pub(super) trait Decide {
    /// The base, and the CPU of each entry, at the beginning.
    fn begin(&self) -> (u32, Vec<u32>);
    /// In ms, to the next look.
    fn next(&self) -> u64;
    fn look(&mut self, seen: &Observation, now: Duration) -> (Vec<Move>, Vec<Event>);
    /// A move was refused.
    fn failed(&mut self, entry: Option<u32>);
    fn online(&mut self, cpu: u32, online: bool);
    fn mode(&mut self, mode: Mode);
}

/// What the rules of others have in common: a table, and the CPUs that may be used.
struct Table {
    config: Config,
    settings: Settings,
    table: Vec<u32>,
    before: Vec<u32>,
}

impl Table {
    /// Spread over so many CPUs.
    fn new(scenario: &Scenario, port: usize, pairs: u32) -> Self {
        let of = &scenario.ports[port];
        let settings = of.settings.clone();
        let config = Config::new(&settings, scenario.tuning, scenario.machine.clone(), of.abilities.clone());
        let cpus = &config.effective.cpus;
        let width = (pairs.min(config.effective.max_queue_pairs) as usize).clamp(1, cpus.len());
        let table: Vec<u32> = (0..of.abilities.entries as usize).map(|entry| cpus[entry % width]).collect();
        Self { config, settings, before: table.clone(), table }
    }

    fn effective(&self) -> &EffectiveSettings {
        &self.config.effective
    }

    fn online(&mut self, cpu: u32, online: bool) {
        if let Some(cpu) = self.config.machine.cpus.iter_mut().find(|there| there.number == cpu) {
            cpu.online = online;
        }
        let config = &self.config;
        self.config = Config::new(&self.settings, config.tuning, config.machine.clone(), config.abilities.clone());
    }

    fn failed(&mut self, entry: Option<u32>) {
        if let Some(entry) = entry.map(|entry| entry as usize)
            && let (Some(cpu), Some(before)) = (self.table.get_mut(entry), self.before.get(entry))
        {
            *cpu = *before;
        }
    }

    /// CPUs in use, in order of preference; what is on one that may not be used is dealt to the others.
    fn used(&mut self) -> Vec<u32> {
        let usable = self.effective().cpus.clone();
        let mut used: Vec<u32> = usable.iter().copied().filter(|cpu| self.table.contains(cpu)).collect();
        if used.is_empty() {
            used.push(self.effective().base);
        }
        let mut next = 0;
        for cpu in &mut self.table {
            if !usable.contains(cpu) {
                *cpu = used[next % used.len()];
                next += 1;
            }
        }
        used
    }

    /// The differences to the table before, as moves.
    fn moves(&mut self, seen: &Observation, before: Vec<u32>) -> Vec<Move> {
        let mut moves = Vec::new();
        for (entry, (from, to)) in before.iter().zip(&self.table).enumerate() {
            if from != to {
                let paid = seen.entries.get(entry).is_some_and(|seen| seen.packets > 0);
                let entry = u32::try_from(entry).ok();
                moves.push(Move { entry, from: *from, to: *to, why: MoveReason::Rebalance, paid, predicted: 0.0 });
            }
        }
        self.before = before;
        moves
    }
}

/// Load of a CPU by packets, as a fraction.
fn load_of(seen: &Observation, cpu: u32) -> f64 {
    let found = seen.cpus.iter().find(|seen| seen.number == cpu);
    found.map_or(0.0, |cpu| (cpu.processing + cpu.distributing).as_secs_f64() / seen.over.as_secs_f64().max(1e-9))
}

/// Each entry's share of its CPU's load, by packets, as those rules know it that measure no cost of entries.
fn shares(seen: &Observation, table: &[u32]) -> Vec<f64> {
    let packets = |entry: usize| seen.entries.get(entry).map_or(0, |seen| seen.packets);
    let mut sums = std::collections::BTreeMap::<u32, u64>::new();
    for (entry, cpu) in table.iter().enumerate() {
        *sums.entry(*cpu).or_default() += packets(entry);
    }
    let share = |(entry, cpu): (usize, &u32)| match sums[cpu] {
        0 => 0.0,
        sum => load_of(seen, *cpu) * packets(entry) as f64 / sum as f64,
    };
    table.iter().enumerate().map(share).collect()
}
