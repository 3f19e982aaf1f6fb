//! Multiple Loss Ratio search (RFC 9971): the highest loads that uphold several goals at once, each of which tolerates
//! another share of lost frames. It is the controller of that document: it knows no clock and no network, is told what became
//! of each trial, and says which is next. With the goal that no frame of one trial of 60 s is lost the result is the throughput of RFC 2544, 26.1.
//!
//! The classification of loads and the conditional throughput are those of its appendices A and B. How the next trial is
//! chosen is left to implementations: here each goal is first narrowed down with its initial trial duration, because short
//! trials are enough to find that a load is too high, and then confirmed with its final one. The next load is the middle between
//! the bounds, or nearer to the one that was found last, by the width of the goal and twice as far each time.

#[cfg(test)]
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod load;

use self::load::{LoadClass, TrialsAtLoad};

/// Loads that one search tries for a goal at most, about.
const LOADS: usize = 40;
/// What an unlimited load is multiplied with while nothing is lost.
const GROWTH: f64 = 4.0;

/// What a load has to uphold (RFC 9971, Search Goal).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Goal {
    /// Goal Loss Ratio: the share of frames that a trial may lose, 0 to less than 1.
    pub loss_ratio: f64,
    /// Goal Exceed Ratio: the share of the time of trials that may lose more, 0 to less than 1.
    pub exceed_ratio: f64,
    /// Goal Final Trial Duration, seconds.
    pub final_duration: f64,
    /// Goal Duration Sum, seconds: how long a load is tried altogether.
    pub duration_sum: f64,
    /// Goal Initial Trial Duration, seconds, at most the final one.
    pub initial_duration: f64,
    /// Goal Width: how far the bounds may be apart, relative to the upper one.
    pub width: f64,
}

impl Goal {
    /// The throughput of RFC 2544: no frame of one trial is lost.
    #[cfg(test)]
    pub(crate) fn rfc2544(duration: Duration, initial: Duration, width: f64) -> Self {
        let duration = duration.as_secs_f64();
        Self {
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            final_duration: duration,
            duration_sum: duration,
            initial_duration: initial.as_secs_f64().min(duration),
            width,
        }
    }

    /// This goal with short trials alone.
    fn preliminary(self) -> Self {
        Self { final_duration: self.initial_duration, duration_sum: self.initial_duration, ..self }
    }

    fn is_narrow(&self, lower: f64, upper: f64) -> bool {
        // Loads are whole frames per second.
        upper - lower <= (self.width * upper).max(1.0)
    }
}

/// The loads that may be tried (RFC 9971, Max Load and Min Load), frames per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadRange {
    pub min: f64,
    /// `None`: the load is raised until something is lost.
    pub max: Option<f64>,
}

/// A trial that is to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialInput {
    /// Frames per second.
    pub load: f64,
    /// Seconds.
    pub duration: f64,
}

/// A trial that was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrialResult {
    /// Frames per second, as intended.
    pub load: f64,
    /// Seconds, as intended. It is the Trial Effective Duration, too.
    pub duration: f64,
    /// Trial Loss Ratio, 0 to 1.
    pub loss_ratio: f64,
}

/// What was found for a goal (RFC 9971, Goal Result). It is regular where both bounds are there and as near to each other as the
/// goal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GoalResult {
    pub goal: Goal,
    /// Relevant Lower Bound, frames per second: the highest load below the upper bound that upholds the goal. Where there is no upper
    /// bound, the highest load that does.
    pub lower: Option<f64>,
    /// Relevant Upper Bound: the lowest load that does not.
    pub upper: Option<f64>,
    /// Conditional Throughput: what can be expected to be forwarded at the lower bound, frames per second.
    pub conditional_throughput: Option<f64>,
    pub regular: bool,
}

/// How many trials a search for these goals makes at most; one that needs more ends with what is known then.
pub fn trials_max(goals: &[Goal]) -> usize {
    let at_load = |goal: &Goal| (goal.duration_sum / goal.final_duration).ceil().max(1.0) as usize;
    LOADS * goals.iter().map(|goal| at_load(goal) + 1).sum::<usize>().max(5)
}

/// A search under way, or one that is over.
#[derive(Debug, Clone)]
pub struct MlrSearch {
    goals: Vec<Goal>,
    range: LoadRange,
    trials: Vec<TrialResult>,
}

/// The bounds of a goal among the loads that were tried.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bounds {
    lower: Option<f64>,
    upper: Option<f64>,
    /// The lowest load between them that is neither.
    undecided: Option<f64>,
}

impl MlrSearch {
    pub fn new(goals: Vec<Goal>, range: LoadRange) -> Self {
        let whole = |load: f64| load.floor().max(1.0);
        let max = range.max.map(whole);
        let range = LoadRange { min: whole(range.min).min(max.unwrap_or(f64::MAX)), max };
        Self { goals, range, trials: Vec::new() }
    }

    /// Trials so far, in their order.
    pub fn trials(&self) -> &[TrialResult] {
        &self.trials
    }

    /// What is to be tried next; `None` when the search is over.
    pub fn next(&self) -> Option<TrialInput> {
        if self.trials.len() >= trials_max(&self.goals) {
            return None;
        }
        let mut preliminary = self.goals.iter().filter(|goal| goal.initial_duration < goal.final_duration);
        let preliminary = preliminary.find_map(|goal| self.toward(&goal.preliminary(), None));
        preliminary
            .or_else(|| self.goals.iter().find_map(|goal| self.toward(goal, self.bounds(&goal.preliminary()).lower)))
    }

    pub fn report(&mut self, result: TrialResult) {
        self.trials.push(result);
    }

    /// What was found so far, for each goal in their order.
    pub fn results(&self) -> Vec<GoalResult> {
        self.goals.iter().map(|goal| self.result(goal)).collect()
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let Bounds { lower, upper, .. } = self.bounds(goal);
        let regular = lower.zip(upper).is_some_and(|(lower, upper)| goal.is_narrow(lower, upper));
        let conditional_throughput = lower.map(|load| self.at(load).conditional_throughput(load, goal));
        GoalResult { goal: *goal, lower, upper, conditional_throughput, regular }
    }

    fn at(&self, load: f64) -> TrialsAtLoad<'_> {
        TrialsAtLoad::new(&self.trials, load)
    }

    fn bounds(&self, goal: &Goal) -> Bounds {
        let mut loads: Vec<f64> = self.trials.iter().map(|trial| trial.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let classes: Vec<(f64, LoadClass)> = loads.iter().map(|&load| (load, self.at(load).class(goal))).collect();
        let upper = classes.iter().find(|(_, class)| *class == LoadClass::UpperBound).map(|(load, _)| *load);
        let below = classes.iter().rev().filter(|(load, _)| upper.is_none_or(|upper| *load < upper));
        let lower = below.clone().find(|(_, class)| *class == LoadClass::LowerBound).map(|(load, _)| *load);
        let mut between = below.filter(|(load, _)| lower.is_none_or(|lower| *load > lower));
        Bounds { lower, upper, undecided: between.next_back().map(|(load, _)| *load) }
    }

    /// The next trial for one goal; `None` when nothing more is asked for it. `candidate` is where its lower bound is expected.
    fn toward(&self, goal: &Goal, candidate: Option<f64>) -> Option<TrialInput> {
        let Bounds { lower, upper, undecided } = self.bounds(goal);
        let LoadRange { min, max } = self.range;
        let load = match (lower, upper) {
            (Some(lower), Some(upper)) if goal.is_narrow(lower, upper) => return None,
            (Some(lower), None) if max.is_some_and(|max| lower >= max) => return None,
            (_, Some(upper)) if upper <= min => return None,
            (None, _) if let Some(candidate) = candidate.filter(|at| upper.is_none_or(|upper| *at < upper)) => {
                candidate
            }
            _ if undecided.is_some() => undecided?,
            (None, None) => max.unwrap_or(min),
            (Some(lower), None) => max.unwrap_or(f64::MAX).min(lower * GROWTH),
            (None, Some(upper)) => self
                .forwarded(upper)
                .unwrap_or_else(|| upper * (1.0 - self.stride(goal, |load| load >= upper).min(0.5))),
            (Some(lower), Some(upper)) => {
                let middle = if upper > 2.0 * lower { (lower * upper).sqrt() } else { (lower + upper) / 2.0 };
                middle.min((lower * (1.0 + self.stride(goal, |load| load <= lower))).max(lower + 1.0))
            }
        };
        let load = load.clamp(min, max.unwrap_or(f64::MAX)).round();
        // A load that was tried is tried again by its own value alone.
        let load = match (lower, upper) {
            (Some(lower), Some(upper)) if load <= lower || load >= upper => ((lower + upper) / 2.0).floor(),
            (None, Some(upper)) if load >= upper => (upper - 1.0).max(min),
            _ => load,
        };
        let is_new = self.trials.iter().all(|trial| trial.load != load);
        let duration = if is_new { goal.initial_duration } else { goal.final_duration };
        Some(TrialInput { load, duration })
    }

    /// How far to go from a bound, relative to it: the width, and twice as far for each load beyond it that was tried for as long as the goal
    /// asks for. The highest load of all is far from what is looked for, and does not count.
    fn stride(&self, goal: &Goal, is_beyond: impl Fn(f64) -> bool) -> f64 {
        let counts = |trial: &&TrialResult| {
            is_beyond(trial.load) && trial.duration >= goal.final_duration && Some(trial.load) != self.range.max
        };
        let mut loads: Vec<f64> = self.trials.iter().filter(counts).map(|trial| trial.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        goal.width * 2f64.powi(loads.len().saturating_sub(1).min(20) as i32)
    }

    /// What was forwarded of the first load that was too high, if that was the only one: a device that forwards what it can forwards
    /// about as much without loss.
    fn forwarded(&self, upper: f64) -> Option<f64> {
        let is_first = self.trials.iter().all(|trial| trial.load == upper);
        let trial = self.trials.iter().filter(|_| is_first).max_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio))?;
        Some(trial.load * (1.0 - trial.loss_ratio)).filter(|rate| *rate < upper)
    }
}

#[cfg(test)]
mod tests;
