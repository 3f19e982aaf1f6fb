//! The run for programs.

use rig_stats::confidence::Level;

use crate::claim::{Metric, Side};
use crate::figures::figure;
use crate::report::export::{
    CertaintyKind, FigureData, PhasesData, RunData, RunHead, RunKind, RunStatus, ScenarioData,
};
use crate::report::view::{Certainty, RunView, ScenarioView, Status};

/// Everything of a run that programs may rely on.
pub fn data(view: &RunView) -> RunData {
    RunData {
        kind: RunKind::Run,
        run: RunHead {
            id: view.id.clone(),
            suite: view.suite.clone(),
            suite_file: view.suite_file.clone(),
            suite_text: view.suite_text.clone(),
            started_unix_ms: view.started_unix_ms,
            status: status(&view.status),
            options: view.options.clone(),
            repetition: view.repetition.clone(),
            cpus: view.cpus.clone(),
            phases_s: PhasesData {
                warm_up: view.phases.warm_up.as_secs_f64(),
                window: view.phases.window.as_secs_f64(),
                cool_down: view.phases.cool_down.as_secs_f64(),
                sample_interval: view.phases.interval.as_secs_f64(),
            },
            confidence_level_percent: view.level.percent(),
        },
        environment: view.environment.clone(),
        rig_cost: view.rig_cost.clone(),
        scenarios: view.scenarios.iter().map(|s| scenario(s, view.level)).collect(),
        comparison: None,
    }
}

fn status(status: &Status) -> RunStatus {
    match status.clone() {
        Status::Complete => RunStatus::Complete,
        Status::Running { done, planned } => RunStatus::Running { trials_done: done, trials_planned: planned },
        Status::Interrupted { done, planned } => RunStatus::Interrupted { trials_done: done, trials_planned: planned },
        Status::Failed { done, planned, reason } => {
            RunStatus::Failed { trials_done: done, trials_planned: planned, reason }
        }
    }
}

fn scenario(scenario: &ScenarioView, level: Level) -> ScenarioData {
    let (certainty, certainty_missed) = match &scenario.certainty {
        Certainty::Fixed => (CertaintyKind::Fixed, None),
        Certainty::Reached => (CertaintyKind::Reached, None),
        Certainty::Missed(words) => (CertaintyKind::Missed, Some(words.clone())),
        Certainty::Unfinished => (CertaintyKind::Unfinished, None),
    };
    let values = |side, metric| scenario.trials.iter().map(|trial| figure(trial, side, metric)).collect();
    let figures = Side::ALL.into_iter().flat_map(|side| {
        Metric::ALL.into_iter().filter_map(move |metric| FigureData::new(side, metric, values(side, metric), level))
    });
    // Stored records were found good when they were written: each of their values has a form in JSON.
    let trials = scenario.trials.iter().filter_map(|trial| serde_json::to_value(trial).ok());
    ScenarioData {
        id: scenario.id.clone(),
        name: scenario.name.clone(),
        notes: scenario.notes.clone(),
        load: scenario.load.clone(),
        certainty,
        certainty_missed,
        figures: figures.collect(),
        trials: trials.collect(),
    }
}
