//! A run as it is made and stored.

use std::io::{stdin, stdout};

use anyhow::Context;
use jiff::Timestamp;
use rig_cli::exit::{Exit, ExitContext, Failure, StoppedByUser, in_words};
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::store::{NewRun, RunEnd, RunId, Store};
use rig_run::run::turns::{Starter, TurnMessage, TurnTaking};
use rig_run::run::{self, Execute, Plan, Progress, SkippedScenarioLog};
use rig_suite::options::Options;
use rig_suite::suite::Suite;

use super::RunArgs;
use super::bench::Bench;
use super::schedule::Schedule;
use super::selection::{Selection, before};

/// What came of a run's trials.
pub struct Measurement {
    pub id: RunId,
    /// How it ended.
    pub result: anyhow::Result<()>,
    /// Whether a trial was finished.
    pub has_trials: bool,
    /// Whether its ending is in the store.
    pub stored: Result<(), Failure>,
}

impl Measurement {
    /// Makes all trials and stores each as it ends, and the run's ending in the end.
    pub fn make(
        args: &RunArgs,
        selection: &Selection,
        schedule: Schedule,
        mut bench: Bench,
        store: &mut Store,
    ) -> Result<Self, Failure> {
        let id = begin(args, selection, &schedule, &bench, store)?;
        let mut settled = Vec::new();
        let result = trials(args, id, &schedule, &mut bench, store, &mut settled);
        let ending = match &result {
            Ok(()) => RunEnd::Complete,
            Err(error) if error.is::<StoppedByUser>() => RunEnd::Interrupted,
            Err(error) => RunEnd::Failed { reason: in_words(error) },
        };
        let has_trials = settled.iter().any(|settled| settled.trials > 0);
        let mut suite = schedule.suite;
        suite.scenarios.retain(|scenario| !bench.is_left_out(&scenario.id));
        let goals =
            serde_json::to_value(with_unfinished(&suite, settled)).context("describe the run").or_exit(Exit::Failed)?;
        let stored =
            store.finish_run(id, &ending, Some(&goals), Timestamp::now().as_millisecond()).or_exit(Exit::Failed);
        Ok(Self { id, result, has_trials, stored })
    }
}

/// The run in the store, with what it was asked to do.
fn begin(
    args: &RunArgs,
    selection: &Selection,
    schedule: &Schedule,
    bench: &Bench,
    store: &mut Store,
) -> Result<RunId, Failure> {
    let Schedule { suite, timing, aa, .. } = schedule;
    let options = Options {
        quick: args.quick,
        only: args.only.clone(),
        cpus: bench.rig.placement().all().iter().map(ToString::to_string).collect(),
        timing: *timing,
        seed: Some(bench.seed),
        again: args.again.clone(),
        aa: aa.clone(),
        left_out: bench.left_out.clone(),
        host: bench.elsewhere.clone(),
        label: args.label.clone(),
        gate: selection.gate,
        turns: args.in_turn.clone(),
        pairs: None,
        tool: None,
        ends: None,
        inside: before(&args.inside),
    };
    let new = NewRun {
        suite: suite.name.clone(),
        title: suite.title.clone(),
        suite_file: suite.file.clone(),
        suite_text: suite.text.clone(),
        options: serde_json::to_value(options).context("describe the run").or_exit(Exit::Failed)?,
        environment: bench.rig.environment().or_exit(Exit::Failed)?,
        planned_trials: suite.most_trials(timing.repeat),
        started_unix_ms: bench.started.as_millisecond(),
    };
    store.begin_run(&new).or_exit(Exit::Failed)
}

/// Makes the trials, alone or in turn with another run.
fn trials(
    args: &RunArgs,
    id: RunId,
    schedule: &Schedule,
    bench: &mut Bench,
    store: &mut Store,
    settled: &mut Vec<ScenarioCertainty>,
) -> anyhow::Result<()> {
    let Schedule { suite, timing, forecast, aa } = schedule;
    let mut progress = Progress::new(suite, timing, args.quiet);
    progress.note(&format!("Run {id}: {}", suite.title));
    let machines =
        bench.rig.parts().0.members().into_iter().map(|(node, host)| (node.to_owned(), host.name().to_owned()));
    progress.note_machines(&machines.collect::<Vec<_>>());
    if let Some(forecast) = forecast {
        progress.note(&forecast.to_string());
    }
    if let Some(id) = aa {
        progress.note(&format!("A/A check: {id} is measured twice in each block"));
    }
    for one in &bench.left_out {
        progress.note(&format!("Not in this run: {one}"));
    }
    let mut without = SkippedScenarioLog::of(store, id, &mut bench.left_out);
    let plan = Plan { suite, timing, seed: bench.seed, rests: args.in_turn.is_none() };
    let mut measure = |execute: &mut dyn Execute| {
        progress.note("Measuring what netrig itself costs, without load");
        run::rig_cost(&plan, id, execute, &mut progress, &mut without)?;
        run::run(&plan, id, execute, &mut progress, settled, &mut without)
    };
    let result = match args.in_turn {
        None => measure(&mut bench.rig),
        Some(_) => {
            let starter = Starter { from: stdin().lock(), to: stdout().lock(), cancel: bench.cancel.clone() };
            let mut in_turn = TurnTaking { execute: &mut bench.rig, starter };
            let begun = in_turn.starter.say(&TurnMessage::Run(id.to_string()));
            begun.and_then(|()| measure(&mut in_turn))
        }
    };
    progress.finish();
    result
}

/// Adds the scenarios that the run did not get to settle.
fn with_unfinished(suite: &Suite, mut settled: Vec<ScenarioCertainty>) -> Vec<ScenarioCertainty> {
    for scenario in &suite.scenarios {
        if !settled.iter().any(|s| s.scenario == scenario.id) {
            settled.push(ScenarioCertainty {
                scenario: scenario.id.clone(),
                trials: 0,
                outcome: RepetitionEnd::Unfinished,
            });
        }
    }
    settled
}
