//! The run for programs.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::{self, Kind, reading};
use rig_facts::layers;
use rig_facts::ledger::ledger;
use rig_facts::record::{ToolRun, TrialRecord};
use rig_stats::confidence::Level;
use rig_stats::histogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use crate::export::{
    CertaintyKind, DistributionData, FigureData, FrameLedgerData, PhasesData, RunData, RunHead, RunKind, RunStatus,
    ScenarioData,
};
use crate::view::{Certainty, RunView, ScenarioView, Status};

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
            set_apart: view.set_apart,
            turns: view.turns.clone(),
            peer: view.peer.clone(),
            tool: view.tool.clone(),
        },
        environment: view.environment.clone(),
        rig_cost: view.rig_cost.clone(),
        scenarios: view.scenarios.iter().map(|s| scenario(s, view.level, view.tool.as_ref())).collect(),
        left_out: view.left_out.clone(),
        claims: view.judged.clone(),
        aa_check: view.aa.clone(),
        comparison: None,
        error: None,
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

fn frame_ledger(trial: &TrialRecord) -> Option<FrameLedgerData> {
    let ledger = ledger(trial).filter(|ledger| ledger.missing() > 0)?;
    let unexplained = ledger.unexplained();
    Some(FrameLedgerData { ordinal: trial.ordinal, flows: ledger.flows, counters: ledger.lines, unexplained })
}

fn scenario(scenario: &ScenarioView, level: Level, tool: Option<&ToolRun>) -> ScenarioData {
    let (certainty, certainty_missed) = match &scenario.certainty {
        Certainty::Fixed => (CertaintyKind::Fixed, None),
        Certainty::Reached => (CertaintyKind::Reached, None),
        Certainty::Missed(words) => (CertaintyKind::Missed, Some(format!("confidence not reached: {words}"))),
        Certainty::Failed(words) => (CertaintyKind::Failed, Some(words.clone())),
        Certainty::Unfinished => (CertaintyKind::Unfinished, None),
    };
    let values = |side, metric| scenario.trials.iter().map(move |trial| reading(trial, side, metric));
    // Where payload goes one way, the ends that connect and listen are the sender and the receiver under other names.
    let ends = Kind::of(&scenario.plan).map_or([Side::Local, Side::Remote], Kind::sides);
    // A tool's output has each figure once.
    let has = |side: &Side, metric: &Metric| tool.is_some() || ends.contains(side) || metric.sides() == [*side];
    let figures = Side::ALL.into_iter().flat_map(|side| {
        let own = Metric::ALL.into_iter().filter(move |metric| has(&side, metric));
        own.filter_map(move |metric| FigureData::new(side, metric, values(side, metric), level))
    });
    ScenarioData {
        id: scenario.id.clone(),
        name: scenario.name.clone(),
        notes: scenario.notes.clone(),
        load: scenario.load.clone(),
        plan: match tool {
            Some(tool) => {
                tool.settings.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
            }
            None => plain(&scenario.plan),
        },
        certainty,
        certainty_missed,
        figures: figures.collect(),
        checks: scenario.checks.map_or_else(Vec::new, |procedure| procedure.judge(&scenario.trials)),
        layers: layers::of_scenario(&scenario.trials, level),
        frame_ledgers: scenario.trials.iter().filter_map(frame_ledger).collect(),
        latency: distribution(&figures::latency(&scenario.trials)),
        delay: distribution(&figures::delay(&scenario.trials, Side::Receiver)),
        trials: scenario.trials.iter().map(plain).collect(),
    }
}

/// A plan or a record as it is stored.
fn plain<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("plans and stored records have a form in JSON")
}

/// All trials together; `None` without values.
fn distribution(histogram: &Histogram) -> Option<DistributionData> {
    let value = |of| figures::statistic(histogram, of);
    (!histogram.is_empty()).then(|| DistributionData {
        values: histogram.count(),
        mean_us: value(Statistic::Mean),
        p50_us: value(Statistic::P50),
        p90_us: value(Statistic::P90),
        p99_us: value(Statistic::P99),
        p99_9_us: value(Statistic::P99_9),
        p99_99_us: value(Statistic::P99_99),
        max_us: value(Statistic::Max),
        histogram_ns: histogram.clone(),
    })
}
