//! When a run within a time has nothing more to ask.

use std::collections::{BTreeMap, BTreeSet};

use rig_stats::blocks::sequential::looks;
use rig_stats::confidence::Level;

use crate::claim::Claim;
use crate::judge::{Rule, Ruling, judge};
use crate::record::TrialRecord;
use crate::suite::{Budget, Repeat, Suite};

/// How well the effect of a decided claim has to be known before its scenarios rest, either way as a ratio: the size of an effect is
/// asked for, too.
const NARROW: f64 = 1.05;

fn is_answered(ruling: &Ruling) -> bool {
    let interval = ruling.judgement.interval.filter(|interval| interval.low > 0.0);
    ruling.is_decided() && interval.is_none_or(|interval| interval.high / interval.low <= NARROW * NARROW)
}

/// A run that stops what is decided.
pub(super) struct Deciding<'a> {
    budget: Budget,
    level: Level,
    /// Those whose scenarios are all in the run.
    claims: Vec<&'a Claim>,
    trials: Vec<TrialRecord>,
    /// Of each scenario, microseconds of all its trials.
    spent: BTreeMap<String, (u64, u64)>,
}

impl<'a> Deciding<'a> {
    /// `None` where something else ends the run.
    pub fn of(suite: &'a Suite, repeat: Repeat) -> Option<Self> {
        let Repeat::Within(budget) = repeat else { return None };
        let is_in = |claim: &&Claim| claim.figures().iter().all(|figure| suite.scenario(&figure.scenario).is_some());
        let claims = suite.claims.iter().filter(is_in).collect();
        Some(Self { budget, level: suite.level(), claims, trials: Vec::new(), spent: BTreeMap::new() })
    }

    pub fn add(&mut self, record: TrialRecord) {
        let (us, trials) = self.spent.entry(record.scenario.clone()).or_default();
        *us += record.total_us;
        *trials += 1;
        self.trials.push(record);
    }

    /// The scenarios that claims are about, all of which are decided and their effects known to [`NARROW`]: known at the looks
    /// that were planned.
    pub fn answered(&self, block: u32) -> BTreeSet<String> {
        if !looks(self.budget.blocks).contains(&block) || block >= self.budget.blocks {
            return BTreeSet::new();
        }
        let rule = Rule { level: self.level, planned: Some(self.budget.blocks), is_over: false };
        let rulings = judge(&self.claims, &self.trials, &rule);
        let scenarios = |is_decided: bool| -> BTreeSet<String> {
            let claims = self.claims.iter().zip(&rulings).filter(|(_, ruling)| is_answered(ruling) == is_decided);
            claims.flat_map(|(claim, _)| claim.figures()).map(|figure| figure.scenario.clone()).collect()
        };
        &scenarios(true) - &scenarios(false)
    }

    /// Whether another block of these scenarios fits into what is left of the time.
    pub fn has_time_for(&self, scenarios: &[&str]) -> bool {
        let so_far: u64 = self.spent.values().map(|(us, _)| us).sum();
        let of_one = |id: &&str| self.spent.get(*id).map_or(0, |(us, trials)| us / (*trials).max(1));
        let block: u64 = scenarios.iter().map(of_one).sum();
        so_far + block <= self.budget.time_ms * 1000
    }
}
