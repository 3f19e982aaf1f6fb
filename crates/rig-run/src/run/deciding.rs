//! When a run within a time has nothing more to ask.

use std::collections::{BTreeMap, BTreeSet};

use rig_facts::claim::{Claim, Metric, Side};
use rig_facts::figures::reading;
use rig_facts::record::TrialRecord;
use rig_stats::blocks::sequential::looks;
use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use rig_suite::suite::{Budget, Repeat, Scenario, Suite};
use rig_verdict::judge::{Rule, Ruling, judge};

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
    scenarios: &'a [Scenario],
    /// The claims whose scenarios are all in the run.
    claims: Vec<&'a Claim>,
    trials: Vec<TrialRecord>,
    /// Of each scenario, the microseconds and the number of its trials.
    spent: BTreeMap<String, (u64, u64)>,
}

impl<'a> Deciding<'a> {
    /// `None` where something else ends the run.
    pub fn of(suite: &'a Suite, repeat: Repeat) -> Option<Self> {
        let Repeat::Within(budget) = repeat else { return None };
        let is_in = |claim: &&Claim| claim.figures().iter().all(|figure| suite.scenario(&figure.scenario).is_some());
        let claims = suite.claims.iter().filter(is_in).collect();
        let (level, scenarios) = (suite.level(), suite.scenarios.as_slice());
        Some(Self { budget, level, scenarios, claims, trials: Vec::new(), spent: BTreeMap::new() })
    }

    /// Asks nothing about scenarios that the run goes without.
    pub fn go_without(&mut self, is_left_out: &dyn Fn(&str) -> bool) {
        self.claims.retain(|claim| !claim.figures().iter().any(|figure| is_left_out(&figure.scenario)));
    }

    pub fn add(&mut self, record: TrialRecord) {
        let (us, trials) = self.spent.entry(record.scenario.clone()).or_default();
        *us += record.total_us;
        *trials += 1;
        self.trials.push(record);
    }

    /// The scenarios that need no more trials: those whose claims are all decided with effects known to [`NARROW`], and those without
    /// claims whose figures are known so well. Claims are decided at the planned looks. A run that goes on longer, with the time that
    /// resting scenarios have saved, only looks whether the effects have become known.
    pub fn answered(&self, block: u32) -> BTreeSet<String> {
        let planned = self.budget.blocks;
        let looks = looks(planned);
        let apart = (planned - looks.iter().rev().nth(1).copied().unwrap_or(0)).max(1);
        let is_look = if block < planned { looks.contains(&block) } else { (block - planned).is_multiple_of(apart) };
        if !is_look {
            return BTreeSet::new();
        }
        let rule = Rule { level: self.level, planned: Some(planned), is_over: false };
        let rulings = judge(&self.claims, &self.trials, &rule);
        let scenarios = |is_decided: bool| -> BTreeSet<String> {
            let claims = self.claims.iter().zip(&rulings).filter(|(_, ruling)| is_answered(ruling) == is_decided);
            claims.flat_map(|(claim, _)| claim.figures()).map(|figure| figure.scenario.clone()).collect()
        };
        let claimed = |id: &str| self.claims.iter().any(|c| c.figures().iter().any(|figure| figure.scenario == id));
        let unclaimed = self.scenarios.iter().filter(|s| s.twin_of.is_none() && !claimed(&s.id));
        let known = unclaimed.filter(|scenario| self.is_known(scenario)).map(|scenario| scenario.id.clone());
        (&scenarios(true) - &scenarios(false)).into_iter().chain(known).collect()
    }

    /// Whether the figures that are to be certain of a scenario are known to [`NARROW`].
    fn is_known(&self, scenario: &Scenario) -> bool {
        let trials = || self.trials.iter().filter(|trial| trial.scenario == scenario.id);
        let is_narrow = |(side, metric): &(Side, Metric)| {
            let values: Option<Vec<f64>> = trials().map(|t| Some(reading(t, *side, *metric)?.value)).collect();
            let sample = values.map(Sample::from);
            let interval = sample.and_then(|sample| Some((self.level.mean_interval(&sample)?, sample.mean()?)));
            interval.is_some_and(|(interval, mean)| interval.high - interval.low <= 2.0 * (NARROW - 1.0) * mean)
        };
        !scenario.watched.is_empty() && scenario.watched.iter().all(is_narrow)
    }

    /// Whether another block of these scenarios fits into what is left of the time.
    pub fn has_time_for(&self, scenarios: &[&str]) -> bool {
        let so_far: u64 = self.spent.values().map(|(us, _)| us).sum();
        let of_one = |id: &&str| self.spent.get(*id).map_or(0, |(us, trials)| us / (*trials).max(1));
        let block: u64 = scenarios.iter().map(of_one).sum();
        so_far + block <= self.budget.time_ms * 1000
    }
}
