//! Which runs and trials say what repetitions of the same thing differ by.

use rig_facts::claim::{Metric, Side};
use rig_facts::record::Flag;
use rig_stats::sample::Sample;
use serde::Deserialize;
use serde_json::Value;

use super::NoiseRun;
use crate::export::{RunData, ScenarioData};

/// Whether something from outside disturbed the trial. A flag that this netrig does not know is none.
fn is_disturbed(trial: &Value) -> bool {
    let mut flags = trial["flags"].as_array().into_iter().flatten();
    flags.any(|flag| Flag::deserialize(flag).is_ok_and(|flag| flag.is_disturbance()))
}

/// Whether at least half of the scenario's trials were undisturbed: the mean of a few of many scatters more than the run's.
pub(super) fn is_sound(scenario: &ScenarioData) -> bool {
    let disturbed = scenario.trials.iter().filter(|trial| is_disturbed(trial)).count();
    2 * disturbed <= scenario.trials.len()
}

/// Whether that is so of each scenario of the run.
pub fn is_undisturbed(run: &RunData) -> bool {
    run.scenarios.iter().all(is_sound)
}

/// What each run measured of a figure, without its disturbed trials.
pub(super) fn runs(runs: &[&RunData], scenario: &str, (side, metric): (Side, Metric)) -> Vec<NoiseRun> {
    let of = |run: &&RunData| {
        let scenario = run.scenario(scenario)?;
        // Limits of the generator scatter as the generator does, not as what was measured.
        let figure = scenario.figure(side, metric).filter(|figure| figure.bound.is_none())?;
        if !scenario.trials.iter().any(is_disturbed) {
            return Some(NoiseRun { run: run.run.id.clone(), mean: figure.mean });
        }
        let trials = figure.values.iter().zip(&scenario.trials);
        let sound: Vec<f64> =
            trials.filter(|(_, trial)| !is_disturbed(trial)).filter_map(|(value, _)| *value).collect();
        Some(NoiseRun { run: run.run.id.clone(), mean: Sample::from(sound).mean()? })
    };
    runs.iter().filter_map(of).collect()
}
