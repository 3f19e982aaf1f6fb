//! Runs: trials in shuffled blocks, repeated until the figures are as certain as asked for or the claims are decided, stored as
//! they come.

pub mod agents;
mod before;
mod benchmark;
pub mod budget;
mod by_layer;
pub mod calibration;
mod clocks;
mod course;
mod deciding;
mod left_out;
mod measured;
mod pairs;
mod programme;
mod progress;
mod rehearse;
mod rig;
mod search;
mod stacks;
pub mod turns;
mod under_load;
mod unloaded;

use std::collections::BTreeSet;

use anyhow::Result;
use rig_cli::exit::StoppedByUser;
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

pub use agents::{impossible, not_here};
pub use left_out::{
    DatapathTrials, LostHost, MissingResource, NoScenarioLeft, SkippedScenarioLog, TestbedUnavailable, add, leave_out,
    one_line, why_not_here,
};
pub use measured::{FailedAfterTrial, measured};
pub use progress::{Progress, TurnLimit, TurnsProgress};
pub use rehearse::rehearse;
pub use rig::{Rig, Trials};
pub use stacks::prepare_stacks;

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
    /// [`StoppedByUser`] when the user stopped it, [`LostHost`] when the nodes' host is gone, [`TestbedUnavailable`] when the machine did
    /// not let the testbed be made; anything else says what failed of this scenario. What fails once the trial is measured brings its record:
    /// [`measured`] has both.
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

/// Whether an error is none of a scenario: whatever else the suite has cannot be measured either, or is not to be.
pub fn ends_runs(error: &anyhow::Error) -> bool {
    error.is::<StoppedByUser>() || error.is::<LostHost>()
}

/// Measures what the testbed itself costs, with the scenario of the suite that has the most nodes and can be made. Scenarios that
/// cannot be made are left out; what fails otherwise is tried again by a scenario's trials, which say it.
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
    let mut scenarios: Vec<&Scenario> =
        plan.suite.scenarios.iter().filter(|scenario| !without.has(&scenario.id)).collect();
    scenarios.sort_by_key(|scenario| scenario.topology.nodes().len());
    for scenario in scenarios.into_iter().rev() {
        match execute.rig_cost(scenario, plan.timing) {
            Ok(cost) => {
                without.store().set_rig_cost(run, &cost)?;
                break;
            }
            Err(error) if ends_runs(&error) => return Err(error),
            Err(error) if error.is::<TestbedUnavailable>() => {
                leave_out_unmade(&one_line(&error), &[&scenario.id], observer, without)?;
            }
            Err(_) => {}
        }
    }
    Ok(NoScenarioLeft::refuse(plan.suite, without.all())?)
}

/// Goes without scenarios of which no trial could be made.
fn leave_out_unmade(
    reason: &str,
    ids: &[&str],
    observer: &mut dyn Observer,
    without: &mut SkippedScenarioLog<'_>,
) -> Result<()> {
    let scenarios: Vec<String> = ids.iter().filter(|id| !without.has(id)).map(|id| (*id).to_owned()).collect();
    scenarios.iter().try_for_each(|id| without.add(id, reason.to_owned()))?;
    observer.left_out(&SkippedScenarios { scenarios, reason: reason.to_owned() });
    Ok(())
}

/// Makes all trials of a suite, in blocks of one of each scenario in random order, and stores each as it ends. `settled` has
/// every scenario that the run came to, also one that it did not finish, but none of those that it goes `without`. A scenario whose
/// first trial fails is added to these; one that fails later is closed with the trials that it has. The rest is measured.
///
/// # Errors
/// What [ends runs](ends_runs), and a store that takes no trials; what was stored stays. Where no scenario is left that was or can be
/// measured, [`NoScenarioLeft`] if none could be made, else what failed last.
pub fn run(
    plan: &Plan<'_>,
    run: RunId,
    execute: &mut dyn Execute,
    observer: &mut dyn Observer,
    settled: &mut Vec<ScenarioCertainty>,
    without: &mut SkippedScenarioLog<'_>,
) -> Result<()> {
    let mut blocks = Blocks::new(plan, settled, without);
    let mut result = Ok(());
    for block in 1.. {
        let made = blocks.make(block, run, execute, observer, without);
        let is_ended = match made {
            Ok(is_ended) => is_ended,
            Err(error) => {
                result = Err(error);
                break;
            }
        };
        if blocks.close(block, is_ended, observer) {
            break;
        }
    }
    blocks.leave();
    result
}

/// The scenarios of a run, block by block.
struct Blocks<'a> {
    plan: Plan<'a>,
    all: Vec<Progressing<'a>>,
    usual: UsualTimes,
    deciding: Option<Deciding<'a>>,
    settled: &'a mut Vec<ScenarioCertainty>,
    /// Whether something failed that is no lack of the machine.
    has_fault: bool,
}

impl<'a> Blocks<'a> {
    fn new(plan: &Plan<'a>, settled: &'a mut Vec<ScenarioCertainty>, without: &SkippedScenarioLog<'_>) -> Self {
        let Plan { suite, timing, .. } = *plan;
        let mut all: Vec<Progressing<'a>> = suite.scenarios.iter().map(Progressing::new).collect();
        for entry in &mut all {
            entry.is_lost = without.has(&entry.scenario.id);
            entry.is_open = !entry.is_lost;
        }
        let mut deciding = Deciding::of(suite, timing.repeat);
        if let Some(deciding) = &mut deciding {
            deciding.go_without(&|id| without.has(id));
        }
        Self { plan: *plan, all, usual: UsualTimes::default(), deciding, settled, has_fault: false }
    }

    /// Makes a trial of each open scenario; gives whether no more are to be made.
    fn make(
        &mut self,
        block: u32,
        run: RunId,
        execute: &mut dyn Execute,
        observer: &mut dyn Observer,
        without: &mut SkippedScenarioLog<'_>,
    ) -> Result<bool> {
        for index in order(self.plan.seed, block - 1, self.all.len()) {
            let entry = &self.all[index];
            // One that was lost has its turn all the same, so that two runs that take turns stay at the same scenario.
            if (entry.is_open || entry.is_lost) && !execute.begin_trial()? {
                return Ok(true);
            }
            if !entry.is_open {
                continue;
            }
            let (scenario, ordinal) = (entry.scenario, entry.trials + 1);
            observer.trial_started(scenario, ordinal);
            let mut interim = |worker: &str, sample: &Interim| observer.interim(worker, sample);
            let made = execute.trial(scenario, ordinal, self.plan.timing, &mut interim);
            let (record, afterwards) = match measured(made) {
                Ok(trial) => trial,
                Err(error) => {
                    self.go_without(scenario, ordinal, error, observer, without)?;
                    continue;
                }
            };
            let mut record = TrialRecord { block: Some(block), ..record };
            self.usual.flag(&mut record);
            without.store().add_trial(run, &record)?;
            observer.trial_done(&record);
            self.all[index].add(&record);
            if let Some(deciding) = &mut self.deciding {
                deciding.add(record);
            }
            if let Err(error) = afterwards {
                self.go_without(scenario, ordinal, error, observer, without)?;
            }
        }
        Ok(false)
    }

    /// Leaves a scenario out whose first trial failed, or closes it with those that it has; an error where the run cannot go on.
    fn go_without(
        &mut self,
        scenario: &Scenario,
        ordinal: u32,
        error: anyhow::Error,
        observer: &mut dyn Observer,
        without: &mut SkippedScenarioLog<'_>,
    ) -> Result<()> {
        let reason = one_line(&error);
        let is_fault = !error.is::<TestbedUnavailable>();
        let failure = error.context(format!("trial {ordinal} of scenario {}", scenario.id));
        if ends_runs(&failure) {
            return Err(failure);
        }
        self.has_fault |= is_fault;
        // A scenario and its twin have one testbed.
        let is_own = |entry: &Progressing<'_>| entry.scenario.family() == scenario.family();
        let own: Vec<usize> = (0..self.all.len()).filter(|index| is_own(&self.all[*index])).collect();
        let ids: Vec<&str> = own.iter().map(|index| self.all[*index].scenario.id.as_str()).collect();
        if own.iter().all(|index| self.all[*index].trials == 0) {
            leave_out_unmade(&reason, &ids, observer, without)?;
            for index in own {
                (self.all[index].is_open, self.all[index].is_lost) = (false, true);
            }
        } else {
            for index in own.into_iter().filter(|index| self.all[*index].is_open).collect::<Vec<_>>() {
                self.settle(index, RepetitionEnd::Failed { trial: ordinal, reason: reason.clone() }, observer);
            }
        }
        if let Some(deciding) = &mut self.deciding {
            deciding.go_without(&|id| ids.contains(&id) || without.has(id));
        }
        if !self.has_fault {
            NoScenarioLeft::refuse(self.plan.suite, without.all())?;
        }
        match self.all.iter().any(|entry| entry.is_open || entry.is_measured) {
            true => Ok(()),
            false => Err(failure),
        }
    }

    /// Closes the scenarios that need no more trials; gives whether those were all.
    fn close(&mut self, block: u32, is_ended: bool, observer: &mut dyn Observer) -> bool {
        let rests = self.plan.rests;
        let answered =
            self.deciding.as_ref().map(|deciding| if rests { deciding.answered(block) } else { BTreeSet::new() });
        let mut done: Vec<(&'a str, RepetitionEnd)> = Vec::new();
        for index in self.open() {
            let Progressing { scenario, .. } = self.all[index];
            let outcome = match (&scenario.twin_of, &answered) {
                // Below.
                (Some(_), _) => None,
                (None, Some(answered)) => answered.contains(&scenario.id).then_some(RepetitionEnd::Decided),
                (None, None) => self.all[index].outcome(self.plan.timing.repeat),
            };
            if let Some(outcome) = outcome {
                done.push((&scenario.id, outcome.clone()));
                self.settle(index, outcome, observer);
            }
        }
        // A twin has the blocks of its scenario, and no others.
        for index in self.open() {
            let own = |(id, _): &&(&str, RepetitionEnd)| self.all[index].scenario.twin_of.as_deref() == Some(*id);
            if let Some((_, outcome)) = done.iter().find(own) {
                self.settle(index, outcome.clone(), observer);
            }
        }
        let open = self.open();
        let ids: Vec<&str> = open.iter().map(|index| self.all[*index].scenario.id.as_str()).collect();
        let time_is_up = is_ended
            || self
                .deciding
                .as_ref()
                .is_some_and(|deciding| block >= Budget::BLOCKS_MAX || !deciding.has_time_for(&ids));
        if time_is_up {
            open.iter().for_each(|index| self.settle(*index, RepetitionEnd::TimeUp, observer));
        }
        open.is_empty() || time_is_up
    }

    fn open(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|index| self.all[*index].is_open).collect()
    }

    fn settle(&mut self, index: usize, outcome: RepetitionEnd, observer: &mut dyn Observer) {
        let entry = &mut self.all[index];
        entry.is_open = false;
        entry.is_lost = matches!(outcome, RepetitionEnd::Failed { .. });
        entry.is_measured = !entry.is_lost;
        let done = entry.settled(outcome);
        observer.settled(&done);
        self.settled.push(done);
    }

    /// What is open when the run ends is not finished.
    fn leave(self) {
        let open = self.all.iter().filter(|entry| entry.is_open);
        self.settled.extend(open.map(|entry| entry.settled(RepetitionEnd::Unfinished)));
    }
}

/// A scenario whose figures are not certain yet.
struct Progressing<'a> {
    scenario: &'a Scenario,
    is_open: bool,
    /// Whether it cannot be made, or a trial of its failed: there are no more.
    is_lost: bool,
    /// Whether all trials were made that it was to have.
    is_measured: bool,
    trials: u32,
    /// CPUs of a node.
    cpus: usize,
    /// Of each figure that the scenario watches.
    figures: Vec<Sample>,
}

impl<'a> Progressing<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let figures = scenario.watched.iter().map(|(_, metric)| Sample::within(metric.range()));
        Self {
            scenario,
            is_open: true,
            is_lost: false,
            is_measured: false,
            trials: 0,
            cpus: 1,
            figures: figures.collect(),
        }
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
