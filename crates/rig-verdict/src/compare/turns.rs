//! Two runs that took turns: which trial of one is paired with which of the other.

use std::collections::BTreeMap;

use rig_facts::claim::{Metric, Side};
use rig_facts::record::TrialRecord;
use rig_stats::blocks::covariate::Covariate;
use rig_stats::sample::Sample;
use serde::Deserialize;

use crate::export::{FigureData, RunData, ScenarioData};
use crate::judge::disturbances;

/// Whether one run took turns with the other: what they differ by from one time to another need not be known then.
pub fn took_turns(old: &RunData, new: &RunData) -> bool {
    match (&old.run.turns, &new.run.turns) {
        (Some(one), Some(other)) => one.pair == other.pair && one.side != other.side,
        _ => false,
    }
}

/// The trials of a scenario that both runs made in the same block.
pub(super) struct Blocks {
    /// Their places among the trials of each run.
    places: Vec<(usize, usize)>,
    /// The trials, where this netrig can read them all.
    trials: Option<Vec<(TrialRecord, TrialRecord)>>,
}

impl Blocks {
    /// `None` where the runs share no block.
    pub fn of(old: &ScenarioData, new: &ScenarioData) -> Option<Self> {
        let by_block = |scenario: &ScenarioData| -> BTreeMap<u64, usize> {
            let trials = scenario.trials.iter().enumerate();
            trials.filter_map(|(place, trial)| Some((trial["block"].as_u64()?, place))).collect()
        };
        let (one, other) = (by_block(old), by_block(new));
        let places: Vec<(usize, usize)> =
            one.iter().filter_map(|(block, place)| Some((*place, *other.get(block)?))).collect();
        let read = |scenario: &ScenarioData, place: usize| TrialRecord::deserialize(&scenario.trials[place]).ok();
        let trials = places.iter().map(|(one, other)| Some((read(old, *one)?, read(new, *other)?))).collect();
        (!places.is_empty()).then_some(Self { places, trials })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// A figure of both runs in these blocks.
    pub fn samples(&self, old: &FigureData, new: &FigureData) -> (Sample, Sample) {
        let of = |figure: &FigureData, place: &dyn Fn(&(usize, usize)) -> usize| {
            let all = figure.sample();
            let mut sample = Sample::within(all.range());
            let value = |places| all.values().get(place(places)).copied().unwrap_or(f64::NAN);
            sample.extend(self.places.iter().map(value));
            sample.with(all.resolution(), all.bound())
        };
        (of(old, &|(place, _)| *place), of(new, &|(_, place)| *place))
    }

    /// By how much more the new trials were disturbed.
    pub fn disturbances(&self, side: Side, metric: Metric) -> Vec<Covariate> {
        let pairs: Vec<(&TrialRecord, &TrialRecord)> =
            self.trials.iter().flatten().map(|(old, new)| (old, new)).collect();
        if pairs.is_empty() { Vec::new() } else { disturbances::between(side, metric, &pairs) }
    }
}
