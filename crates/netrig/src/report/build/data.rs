//! The run for programs: numbers as numbers, units in the names.

use rig_stats::confidence::Level;
use rig_stats::sample::Sample;
use serde_json::{Map, Value, json};

use crate::claim::{Metric, Side};
use crate::figures;
use crate::report::view::{Certainty, RunView, ScenarioView, Status};

pub(super) fn data(view: &RunView) -> Value {
    json!({
        "run": {
            "id": view.id,
            "suite": view.suite,
            "started_unix_ms": view.started_unix_ms,
            "status": status(&view.status),
            "options": view.options,
            "phases_s": {
                "warm_up": view.phases.warm_up.as_secs_f64(),
                "window": view.phases.window.as_secs_f64(),
                "cool_down": view.phases.cool_down.as_secs_f64(),
                "sample_interval": view.phases.interval.as_secs_f64(),
            },
            "confidence_level_percent": view.level.percent(),
        },
        "environment": view.environment,
        "rig_cost": view.rig_cost,
        "scenarios": view.scenarios.iter().map(|s| scenario(s, view.level)).collect::<Vec<_>>(),
    })
}

fn status(status: &Status) -> Value {
    match status {
        Status::Complete => json!({"state": "complete"}),
        Status::Running { done, planned } => {
            json!({"state": "running", "trials_done": done, "trials_planned": planned})
        }
        Status::Interrupted { done, planned } => {
            json!({"state": "interrupted", "trials_done": done, "trials_planned": planned})
        }
        Status::Failed { done, planned, reason } => {
            json!({"state": "failed", "trials_done": done, "trials_planned": planned, "reason": reason})
        }
    }
}

fn scenario(scenario: &ScenarioView, level: Level) -> Value {
    let (certainty, missed) = match &scenario.certainty {
        Certainty::Fixed => ("fixed", None),
        Certainty::Reached => ("reached", None),
        Certainty::Missed(words) => ("missed", Some(words)),
        Certainty::Unfinished => ("unfinished", None),
    };
    let side = |side| {
        let entry = |metric| (key(metric), summary(&figures::sample(&scenario.trials, side, metric), level));
        Metric::ALL.into_iter().map(entry).collect::<Map<_, _>>()
    };
    json!({
        "id": scenario.id,
        "name": scenario.name,
        "notes": scenario.notes,
        "load": scenario.load,
        "certainty": certainty,
        "certainty_missed": missed,
        "sender": side(Side::Sender),
        "receiver": side(Side::Receiver),
        "trials": scenario.trials,
    })
}

/// The figure with the unit it is computed in. Figures of streams over TCP have kept the names they first had.
fn key(metric: Metric) -> String {
    match metric {
        Metric::Throughput | Metric::BackgroundThroughput => format!("{metric}_bits_per_second"),
        Metric::Cpu => "cpu_percent".to_owned(),
        Metric::ServiceDemand => "service_demand_us_per_kb".to_owned(),
        Metric::Retransmits => "retransmitted_segments".to_owned(),
        Metric::TransactionDemand => "transaction_demand_us".to_owned(),
        Metric::Transactions | Metric::Datagrams => format!("{metric}_per_second"),
        Metric::Loss | Metric::Reordered | Metric::Duplicated => format!("{metric}_percent"),
        Metric::Latency(_) | Metric::Jitter | Metric::Delay(_) => format!("{metric}_us"),
    }
}

fn summary(sample: &Sample, level: Level) -> Value {
    let interval = level.mean_interval(sample);
    json!({
        "mean": sample.mean(),
        "low": interval.map(|i| i.low),
        "high": interval.map(|i| i.high),
        "values": sample.values(),
    })
}
