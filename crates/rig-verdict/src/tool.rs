//! A stored test of another tool, as the run that it is.

use std::time::Duration;

use rig_facts::record::ToolRun;
use rig_facts::store::Run;
use rig_load::plan::Phases;
use rig_stats::units::counted;
use rig_suite::options::Options;
use rig_suite::suite::RequestedLoad;

use crate::view::{Certainty, RunView, ScenarioView, Status};

/// One scenario, whose trials are as the outputs have them.
pub(crate) fn view(run: &Run, status: Status, options: &Options, tool: &ToolRun) -> RunView {
    let summary = &run.summary;
    let certainty = if status == Status::Complete { Certainty::Fixed } else { Certainty::Unfinished };
    RunView {
        id: summary.id.to_string(),
        suite: summary.suite.clone(),
        suite_file: String::new(),
        suite_text: String::new(),
        title: summary.title.clone(),
        question: String::new(),
        answer: None,
        about: String::new(),
        started_unix_ms: summary.started_unix_ms,
        status,
        options: tool.words(),
        cpus: Vec::new(),
        phases: options.timing.phases,
        repetition: counted(run.trials.len(), "trial", "trials"),
        level: Default::default(),
        goal: None,
        environment: run.environment.clone(),
        rig_cost: None,
        scenarios: vec![ScenarioView {
            id: tool.test.clone(),
            name: summary.title.clone(),
            about: String::new(),
            notes: Vec::new(),
            topology: String::new(),
            load: tool.words(),
            // No suite could ask for it.
            plan: RequestedLoad::Idle,
            checks: None,
            trials: run.trials.clone(),
            certainty,
        }],
        left_out: Vec::new(),
        tables: Vec::new(),
        baseline: None,
        claims: Vec::new(),
        judged: Vec::new(),
        aa: None,
        set_apart: None,
        turns: None,
        peer: None,
        tool: Some(tool.clone()),
    }
}

/// How long the figures of such a run are of: what its output tells, to the tenth of a second, since tools that are asked for ten
/// seconds tell 10.00 or 10.01.
pub fn phases(seconds: impl IntoIterator<Item = Option<f64>>) -> Phases {
    let known: Vec<f64> = seconds.into_iter().flatten().filter(|s| s.is_finite() && *s >= 0.0).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    let window = Duration::try_from_secs_f64((mean * 10.0).round() / 10.0).unwrap_or_default();
    Phases { warm_up: Duration::ZERO, window, cool_down: Duration::ZERO, interval: Duration::ZERO }
}
