//! Runs: trials in shuffled blocks, repeated until the figures are as certain as asked for or the claims are decided, stored as
//! they come.

pub mod agents;
mod before;
pub mod budget;
mod by_layer;
pub mod calibration;
mod course;
mod deciding;
mod environment;
mod left_out;
mod pairs;
mod programme;
mod progress;
mod rehearse;
mod rig;
mod search;
pub mod turns;
mod under_load;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use rig_facts::claim::Metric;
use rig_facts::figures::reading;
use rig_facts::record::certainty::{RepetitionEnd, ScenarioCertainty};
use rig_facts::record::{RigCost, SkippedScenarios, TrialRecord};
use rig_facts::store::RunId;
use rig_load::record::Sample as Interim;
use rig_stats::blocks::order;
use rig_stats::confidence::{Decision, Goal, GoalFigure};
use rig_stats::sample::Sample;
use rig_suite::suite::{Budget, Repeat, Scenario, Suite, Timing};

use self::calibration::UsualTimes;
use self::deciding::Deciding;

pub use agents::{impossible, not_here, not_on};
pub use environment::{Build, environment};
pub use left_out::{
    DatapathTrials, MissingResource, NoScenarioLeft, SkippedScenarioLog, TestbedUnavailable, add, leave_out,
    why_not_here, why_not_on,
};
pub use progress::{Progress, TurnLimit, TurnsProgress};
pub use rig::{Rig, Trials};

/// An interval of CPU time this narrow is narrow enough, percentage points of one CPU: /proc/stat counts in ticks, and an
/// idle CPU's relative width says nothing. A node's mean over n CPUs is known n times as well.
const CPU_FLOOR: f64 = 1.0;

/// Executes trials: the machine in a real run, a fake in tests.
pub trait Execute {
    /// Waits until the machine is this run's for a trial; `false` where no more are to be made.
    ///
    /// # Errors
    /// As [`Self::trial`].
    fn begin_trial(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Makes one trial of `scenario` and calls `interim` for each sample of each worker.
    ///
    /// # Errors
    /// [`rig_cli::exit::StoppedByUser`] when the user stopped it, [`TestbedUnavailable`] when the machine did not let its testbed be made; anything
    /// else says what the machine or a worker refused.
    fn trial(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        timing: &Timing,
        interim: &mut dyn FnMut(&str, &Interim),
    ) -> Result<TrialRecord>;

    /// Measures a trial of `scenario`'s testbed that carries no load.
    ///
    /// # Errors
    /// As [`Self::trial`].
    fn rig_cost(&mut self, scenario: &Scenario, timing: &Timing) -> Result<RigCost>;
}

/// Hooks for watching a run, such as the progress on a terminal.
pub trait Observer {
    fn trial_started(&mut self, _scenario: &Scenario, _ordinal: u32) {}
    fn interim(&mut self, _worker: &str, _sample: &Interim) {}
    fn trial_done(&mut self, _record: &TrialRecord) {}
    fn settled(&mut self, _settled: &ScenarioCertainty) {}
    fn left_out(&mut self, _left_out: &SkippedScenarios) {}
}

impl Observer for () {}

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub suite: &'a Suite,
    pub timing: &'a Timing,
    /// The seed of the order within blocks.
    pub seed: u64,
    /// Whether scenarios rest when their claims are decided. Of two runs that take turns none does, so that both have all blocks.
    pub rests: bool,
}

/// Measures what the testbed itself costs, with the scenario of the suite that has the most nodes and can be made. Scenarios that
/// cannot be made are left out.
///
/// # Errors
/// As of [`run`].
pub fn rig_cost(
    plan: &Plan<'_>,
    run: RunId,
    execute: &mut dyn Execute,
    observer: &mut dyn Observer,
    without: &mut SkippedScenarioLog<'_>,
) -> Result<()> {
    let mut scenarios: Vec<&Scenario> = plan.suite.scenarios.iter().collect();
    scenarios.sort_by_key(|scenario| scenario.topology.nodes().len());
    for scenario in scenarios.into_iter().rev() {
        match execute.rig_cost(scenario, plan.timing) {
            Ok(cost) => {
                without.store().set_rig_cost(run, &cost)?;
                break;
            }
            Err(error) => leave_out_unmade(error, &[&scenario.id], observer, without)?,
        }
    }
    Ok(NoScenarioLeft::refuse(plan.suite, without.all())?)
}

/// Goes without scenarios whose testbed was not made; anything else that went wrong is given back.
fn leave_out_unmade(
    error: anyhow::Error,
    ids: &[&str],
    observer: &mut dyn Observer,
    without: &mut SkippedScenarioLog<'_>,
) -> Result<()> {
    let Some(reason) = error.downcast_ref::<TestbedUnavailable>().map(TestbedUnavailable::reason) else {
        return Err(error);
    };
    let scenarios: Vec<String> = ids.iter().filter(|id| !without.has(id)).map(|id| (*id).to_owned()).collect();
    scenarios.iter().try_for_each(|id| without.add(id, reason.clone()))?;
    observer.left_out(&SkippedScenarios { scenarios, reason });
    Ok(())
}

/// Makes all trials of a suite, in blocks of one of each scenario in random order, and stores each as it ends. `settled` is called for
/// every scenario that the run came to, also one that it did not finish, but not for those that it goes `without`. A scenario whose
/// testbed cannot be built at its first trial is added to these.
///
/// # Errors
/// The first trial that fails ends the run; what was stored stays. [`rig_cli::exit::StoppedByUser`] when the user stopped it;
/// [`NoScenarioLeft`] where no scenario can be made.
pub fn run(
    plan: &Plan<'_>,
    run: RunId,
    execute: &mut dyn Execute,
    observer: &mut dyn Observer,
    settled: &mut Vec<ScenarioCertainty>,
    without: &mut SkippedScenarioLog<'_>,
) -> Result<()> {
    let Plan { suite, timing, seed, rests } = *plan;
    let mut all: Vec<Progressing<'_>> = suite.scenarios.iter().map(Progressing::new).collect();
    for entry in &mut all {
        entry.is_open = !without.has(&entry.scenario.id);
    }
    let mut usual = UsualTimes::default();
    let mut deciding = Deciding::of(suite, timing.repeat);
    let known = |without: &SkippedScenarioLog<'_>, deciding: &mut Option<Deciding<'_>>| {
        deciding.as_mut().into_iter().for_each(|deciding| deciding.go_without(&|id| without.has(id)));
    };
    known(without, &mut deciding);
    let mut settle = |entry: &mut Progressing<'_>, outcome: RepetitionEnd, observer: &mut dyn Observer| {
        entry.is_open = false;
        let done = entry.settled(outcome);
        observer.settled(&done);
        settled.push(done);
    };
    let mut result = Ok(());
    for block in 1.. {
        let mut is_ended = false;
        result = order(seed, block - 1, all.len()).into_iter().try_for_each(|index| {
            let entry = &mut all[index];
            if !entry.is_open || is_ended {
                return Ok(());
            }
            is_ended = !execute.begin_trial()?;
            if is_ended {
                return Ok(());
            }
            let scenario = entry.scenario;
            observer.trial_started(scenario, entry.trials + 1);
            let made = execute
                .trial(scenario, entry.trials + 1, timing, &mut |worker, sample| observer.interim(worker, sample))
                .with_context(|| format!("trial {} of scenario {}", entry.trials + 1, scenario.id));
            let record = match made {
                Ok(record) => record,
                Err(error) => {
                    // A scenario and its twin have one testbed. One that was made before can be made here.
                    let family = scenario.family();
                    let is_first = all.iter().filter(|one| one.scenario.family() == family).all(|one| one.trials == 0);
                    if !is_first {
                        return Err(error);
                    }
                    let own = suite.scenarios.iter().filter(|one| one.family() == family);
                    let own: Vec<&str> = own.map(|one| one.id.as_str()).collect();
                    leave_out_unmade(error, &own, observer, without)?;
                    all.iter_mut().filter(|one| one.scenario.family() == family).for_each(|one| one.is_open = false);
                    known(without, &mut deciding);
                    return Ok(NoScenarioLeft::refuse(suite, without.all())?);
                }
            };
            let mut record = TrialRecord { block: Some(block), ..record };
            usual.flag(&mut record);
            without.store().add_trial(run, &record)?;
            observer.trial_done(&record);
            entry.add(&record);
            if let Some(deciding) = &mut deciding {
                deciding.add(record);
            }
            Ok(())
        });
        if result.is_err() {
            break;
        }
        let answered = deciding.as_ref().map(|deciding| if rests { deciding.answered(block) } else { BTreeSet::new() });
        let mut done = Vec::new();
        for entry in all.iter_mut().filter(|entry| entry.is_open && entry.scenario.twin_of.is_none()) {
            let outcome = match &answered {
                Some(answered) => answered.contains(&entry.scenario.id).then_some(RepetitionEnd::Decided),
                None => entry.outcome(timing.repeat),
            };
            if let Some(outcome) = outcome {
                done.push((entry.scenario.id.as_str(), outcome.clone()));
                settle(entry, outcome, observer);
            }
        }
        // A twin has the blocks of its scenario, and no others.
        for entry in all.iter_mut().filter(|entry| entry.is_open) {
            let own = |(id, _): &&(&str, RepetitionEnd)| entry.scenario.twin_of.as_deref() == Some(*id);
            if let Some((_, outcome)) = done.iter().find(own) {
                settle(entry, outcome.clone(), observer);
            }
        }
        let open: Vec<&str> = all.iter().filter(|entry| entry.is_open).map(|entry| &*entry.scenario.id).collect();
        let time_is_up = is_ended
            || deciding.as_ref().is_some_and(|deciding| block >= Budget::BLOCKS_MAX || !deciding.has_time_for(&open));
        if time_is_up {
            for entry in all.iter_mut().filter(|entry| entry.is_open) {
                settle(entry, RepetitionEnd::TimeUp, observer);
            }
        }
        if open.is_empty() || time_is_up {
            break;
        }
    }
    settled.extend(all.iter().filter(|entry| entry.is_open).map(|entry| entry.settled(RepetitionEnd::Unfinished)));
    result
}

/// A scenario whose figures are not certain yet.
struct Progressing<'a> {
    scenario: &'a Scenario,
    is_open: bool,
    trials: u32,
    /// CPUs of a node.
    cpus: usize,
    /// Of each figure that the scenario watches.
    figures: Vec<Sample>,
}

impl<'a> Progressing<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let figures = scenario.watched.iter().map(|(_, metric)| Sample::within(metric.range()));
        Self { scenario, is_open: true, trials: 0, cpus: 1, figures: figures.collect() }
    }

    fn settled(&self, outcome: RepetitionEnd) -> ScenarioCertainty {
        ScenarioCertainty { scenario: self.scenario.id.clone(), trials: self.trials, outcome }
    }

    fn add(&mut self, record: &TrialRecord) {
        self.trials += 1;
        self.cpus = record.nodes.iter().map(|node| node.cpus.len()).fold(self.cpus, usize::max);
        for (sample, (side, metric)) in self.figures.iter_mut().zip(&self.scenario.watched) {
            sample.push(reading(record, *side, *metric).unwrap_or_else(|| f64::NAN.into()));
        }
    }

    /// How the scenario ended, or `None` when it needs another trial.
    fn outcome(&self, repeat: Repeat) -> Option<RepetitionEnd> {
        match repeat {
            Repeat::Times(_) => (self.trials >= self.scenario.most_trials(repeat)).then_some(RepetitionEnd::Fixed),
            Repeat::Until(goal) => self.decide(&goal),
            // What ends those is no figure's certainty.
            Repeat::Within(_) => None,
        }
    }

    fn decide(&self, goal: &Goal) -> Option<RepetitionEnd> {
        let floor = |metric| if metric == Metric::Cpu { CPU_FLOOR / self.cpus as f64 } else { 0.0 };
        let figures = self.figures.iter().zip(&self.scenario.watched);
        let watched: Vec<GoalFigure<'_>> =
            figures.map(|(sample, (_, metric))| GoalFigure { sample, floor: floor(*metric) }).collect();
        match goal.decide(&watched) {
            Decision::More => None,
            Decision::Reached => Some(RepetitionEnd::Reached),
            Decision::GaveUp(achieved) => {
                let missed = achieved
                    .iter()
                    .zip(&self.scenario.watched)
                    .filter(|(achieved, _)| !achieved.reached)
                    .map(|(achieved, (side, metric))| (format!("{side} {metric}"), achieved.relative))
                    .collect();
                Some(RepetitionEnd::NotReached(missed))
            }
        }
    }
}

#[cfg(test)]
mod tests;
