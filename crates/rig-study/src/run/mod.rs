//! Runs: trials in shuffled blocks, repeated until the figures are as certain as asked for or the claims are decided, stored as
//! they come.

pub mod agents;
mod before;
pub mod budget;
mod by_layer;
pub mod calibration;
mod deciding;
mod environment;
mod left_out;
mod pairs;
mod programme;
mod progress;
mod rehearse;
mod rig;
mod search;
pub mod suspicion;
pub mod turns;
mod under_load;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use rig_load::record::Sample as Interim;
use rig_stats::blocks::order;
use rig_stats::confidence::{Decision, Goal, Watched};
use rig_stats::sample::Sample;
use serde::{Deserialize, Serialize};

use self::calibration::Usual;
use self::deciding::Deciding;
use self::turns::Turns;
use crate::claim::Metric;
use crate::ends::BetweenEnds;
use crate::figures::reading;
use crate::record::{Before, RigCost, TrialRecord};
use crate::store::{Label, RunId};
use crate::suite::{Budget, Repeat, Scenario, Suite, Timing};

pub use agents::{impossible, not_here, not_on};
pub use environment::{Build, LOAD_AVERAGE, described, environment, gibibytes};
pub use left_out::{
    Lack, LeftOut, NoVerdict, NothingLeft, TriedOut, Unmade, Without, add, leave_out, no_verdict, why_not_here,
    why_not_on,
};
pub use progress::{AtMost, Progress, TurnsProgress, minutes};
pub use rig::{Rig, Trials};
pub use under_load::track;

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
    /// [`rig_cli::exit::Stopped`] when the user stopped it, [`Unmade`] when the machine did not let its testbed be made; anything
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

/// What a run was asked to do, stored with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    pub quick: bool,
    /// Scenarios chosen; empty for all.
    pub only: Vec<String>,
    /// The CPUs of each node, as CPU lists.
    pub cpus: Vec<String>,
    pub timing: Timing,
    /// From which the order of the trials in each block follows; `None` of runs whose scenarios took turns in a fixed order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Scenarios that are run a second time under another name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<String>,
    /// The scenario that was measured twice in each block, to check the judge of the claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aa: Option<String>,
    /// Scenarios that this machine cannot make.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The host of the nodes, unless they were the runner's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What the user calls the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Whether a claim that does not hold was to be an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gate: bool,
    /// The run that it took turns with, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// Of a test between two machines, what it was; `None` of a suite's run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<BetweenEnds>,
    /// Commands that were run in nodes before each trial, besides those of the suite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Before>,
}

impl Options {
    /// Why the run went without a scenario of its own, where it did.
    pub fn why_left_out(&self, id: &str) -> Option<&str> {
        let left_out = self.left_out.iter().find(|left_out| left_out.scenarios.iter().any(|one| one == id));
        left_out.map(|left_out| left_out.reason.as_str())
    }

    /// The options as a reader would say them.
    pub fn words(&self) -> String {
        let mut words = vec![if self.quick { "quick".to_owned() } else { "full".to_owned() }];
        if !self.only.is_empty() {
            words.push(format!("only {}", self.only.join(", ")));
        }
        words.push(format!("CPUs of the nodes: {}", self.cpus.join(" and ")));
        words.push(match self.seed {
            Some(seed) => format!("order of the trials from seed {seed}"),
            None => "trials in a fixed order".to_owned(),
        });
        words.extend((!self.again.is_empty()).then(|| format!("twice: {}", self.again.join(", "))));
        words.extend(self.aa.as_ref().map(|id| format!("A/A check of {id}")));
        words.extend(self.host.as_ref().map(|host| format!("nodes on host {host}")));
        words.extend(self.label.as_ref().map(|label| format!("label {label}")));
        if let Some(Turns { pair, side, command }) = &self.turns {
            words.push(format!("the {side} side of A/B run {pair}"));
            words.extend((!command.is_empty()).then(|| format!("before each trial: {command}")));
        }
        words.extend(self.inside.iter().map(|one| format!("before each trial {one}")));
        words.join("; ")
    }
}

/// How certain the figures of a scenario became.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    pub scenario: String,
    pub trials: u32,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The number of trials was fixed; nothing was asked of the intervals.
    Fixed,
    Reached,
    /// Every claim about it was decided before the time was up.
    Decided,
    /// The time was up.
    TimeUp,
    /// The most trials allowed did not suffice: the figures, with the full width each reached relative to its mean.
    NotReached(Vec<(String, Option<f64>)>),
    /// The run ended before.
    Unfinished,
}

/// Hooks for whoever watches a run.
pub trait Observer {
    fn trial_started(&mut self, _scenario: &Scenario, _ordinal: u32) {}
    fn interim(&mut self, _worker: &str, _sample: &Interim) {}
    fn trial_done(&mut self, _record: &TrialRecord) {}
    fn settled(&mut self, _settled: &Settled) {}
    fn left_out(&mut self, _left_out: &LeftOut) {}
}

impl Observer for () {}

/// What a run is to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub suite: &'a Suite,
    pub timing: &'a Timing,
    /// From which the order within blocks follows.
    pub seed: u64,
    /// Whether scenarios rest when their claims are decided. Of two runs that take turns none does, so that both have all blocks.
    pub rests: bool,
}

/// Measures what the testbed itself costs, with that of the suite's scenarios that has the most nodes and can be made. Those that
/// cannot are left out.
///
/// # Errors
/// As of [`run`].
pub fn rig_cost(
    plan: &Plan<'_>,
    run: RunId,
    execute: &mut dyn Execute,
    observer: &mut dyn Observer,
    without: &mut Without<'_>,
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
    Ok(NothingLeft::refuse(plan.suite, without.all())?)
}

/// Goes without scenarios whose testbed was not made; anything else that went wrong is given back.
fn leave_out_unmade(
    error: anyhow::Error,
    ids: &[&str],
    observer: &mut dyn Observer,
    without: &mut Without<'_>,
) -> Result<()> {
    let Some(reason) = error.downcast_ref::<Unmade>().map(Unmade::reason) else { return Err(error) };
    let scenarios: Vec<String> = ids.iter().filter(|id| !without.has(id)).map(|id| (*id).to_owned()).collect();
    scenarios.iter().try_for_each(|id| without.add(id, reason.clone()))?;
    observer.left_out(&LeftOut { scenarios, reason });
    Ok(())
}

/// Makes all trials of a suite, in blocks of one of each scenario in random order, and stores each as it ends. `settled` takes
/// every scenario that the run came to, also one that it did not finish, but for those that it goes `without`: a scenario whose
/// testbed the machine does not let be made at its first trial joins them.
///
/// # Errors
/// The first trial that fails ends the run; what was stored stays. [`rig_cli::exit::Stopped`] when the user stopped it;
/// [`NothingLeft`] where no scenario can be made.
pub fn run(
    plan: &Plan<'_>,
    run: RunId,
    execute: &mut dyn Execute,
    observer: &mut dyn Observer,
    settled: &mut Vec<Settled>,
    without: &mut Without<'_>,
) -> Result<()> {
    let Plan { suite, timing, seed, rests } = *plan;
    let mut all: Vec<Progressing<'_>> = suite.scenarios.iter().map(Progressing::new).collect();
    for entry in &mut all {
        entry.is_open = !without.has(&entry.scenario.id);
    }
    let mut usual = Usual::default();
    let mut deciding = Deciding::of(suite, timing.repeat);
    let known = |without: &Without<'_>, deciding: &mut Option<Deciding<'_>>| {
        deciding.as_mut().into_iter().for_each(|deciding| deciding.go_without(&|id| without.has(id)));
    };
    known(without, &mut deciding);
    let mut settle = |entry: &mut Progressing<'_>, outcome: Outcome, observer: &mut dyn Observer| {
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
                    return Ok(NothingLeft::refuse(suite, without.all())?);
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
                Some(answered) => answered.contains(&entry.scenario.id).then_some(Outcome::Decided),
                None => entry.outcome(timing.repeat),
            };
            if let Some(outcome) = outcome {
                done.push((entry.scenario.id.as_str(), outcome.clone()));
                settle(entry, outcome, observer);
            }
        }
        // A twin has the blocks of its scenario, and no others.
        for entry in all.iter_mut().filter(|entry| entry.is_open) {
            let own = |(id, _): &&(&str, Outcome)| entry.scenario.twin_of.as_deref() == Some(*id);
            if let Some((_, outcome)) = done.iter().find(own) {
                settle(entry, outcome.clone(), observer);
            }
        }
        let open: Vec<&str> = all.iter().filter(|entry| entry.is_open).map(|entry| &*entry.scenario.id).collect();
        let time_is_up = is_ended
            || deciding.as_ref().is_some_and(|deciding| block >= Budget::BLOCKS_MAX || !deciding.has_time_for(&open));
        if time_is_up {
            for entry in all.iter_mut().filter(|entry| entry.is_open) {
                settle(entry, Outcome::TimeUp, observer);
            }
        }
        if open.is_empty() || time_is_up {
            break;
        }
    }
    settled.extend(all.iter().filter(|entry| entry.is_open).map(|entry| entry.settled(Outcome::Unfinished)));
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

    fn settled(&self, outcome: Outcome) -> Settled {
        Settled { scenario: self.scenario.id.clone(), trials: self.trials, outcome }
    }

    fn add(&mut self, record: &TrialRecord) {
        self.trials += 1;
        self.cpus = record.nodes.iter().map(|node| node.cpus.len()).fold(self.cpus, usize::max);
        for (sample, (side, metric)) in self.figures.iter_mut().zip(&self.scenario.watched) {
            sample.push(reading(record, *side, *metric).unwrap_or_else(|| f64::NAN.into()));
        }
    }

    /// How the scenario ended, or `None` when it needs another trial.
    fn outcome(&self, repeat: Repeat) -> Option<Outcome> {
        match repeat {
            Repeat::Times(_) => (self.trials >= self.scenario.most_trials(repeat)).then_some(Outcome::Fixed),
            Repeat::Until(goal) => self.decide(&goal),
            // What ends those is no figure's certainty.
            Repeat::Within(_) => None,
        }
    }

    fn decide(&self, goal: &Goal) -> Option<Outcome> {
        let floor = |metric| if metric == Metric::Cpu { CPU_FLOOR / self.cpus as f64 } else { 0.0 };
        let figures = self.figures.iter().zip(&self.scenario.watched);
        let watched: Vec<Watched<'_>> =
            figures.map(|(sample, (_, metric))| Watched { sample, floor: floor(*metric) }).collect();
        match goal.decide(&watched) {
            Decision::More => None,
            Decision::Reached => Some(Outcome::Reached),
            Decision::GaveUp(achieved) => {
                let missed = achieved
                    .iter()
                    .zip(&self.scenario.watched)
                    .filter(|(achieved, _)| !achieved.reached)
                    .map(|(achieved, (side, metric))| (format!("{side} {metric}"), achieved.relative))
                    .collect();
                Some(Outcome::NotReached(missed))
            }
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed number of trials"),
            Self::Reached => f.write_str("confidence reached"),
            Self::Decided => f.write_str("all its claims are decided"),
            Self::TimeUp => f.write_str("the time is up"),
            Self::Unfinished => f.write_str("the run ended before"),
            Self::NotReached(missed) => write!(f, "confidence not reached: {}", missed_words(missed)),
        }
    }
}

/// `sender cpu ±6.0 %, receiver cpu unknown` of what [`Outcome::NotReached`] holds.
pub fn missed_words(missed: &[(String, Option<f64>)]) -> String {
    let words = |(name, width): &(String, Option<f64>)| match width {
        // More to either side than the mean itself is not possible on one of them.
        Some(width) if *width > 2.0 => format!("{name} (its interval is {width:.1} times its mean wide)"),
        Some(width) => format!("{name} ±{:.1} %", width * 50.0),
        None => format!("{name} unknown"),
    };
    missed.iter().map(words).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
