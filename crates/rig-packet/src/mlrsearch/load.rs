//! What the trials at one load say of a goal.

use super::{Goal, TrialResult};

/// RFC 9971, Load Classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadClass {
    /// The load upholds the goal, whatever trials are still to come.
    LowerBound,
    /// It does not.
    UpperBound,
    Undecided,
}

/// The trials at one load.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialsAtLoad<'a> {
    all: &'a [TrialResult],
    load: f64,
}

/// Of sums of times.
const ROUNDING: f64 = 1e-9;

/// Time of trials, seconds.
#[derive(Debug, Default)]
struct Sums {
    full_low: f64,
    full_high: f64,
    short_low: f64,
    short_high: f64,
}

impl<'a> TrialsAtLoad<'a> {
    pub fn new(all: &'a [TrialResult], load: f64) -> Self {
        Self { all, load }
    }

    fn trials(self) -> impl Iterator<Item = &'a TrialResult> {
        self.all.iter().filter(move |trial| trial.load == self.load)
    }

    fn sums(self, goal: &Goal) -> Sums {
        self.trials().fold(Sums::default(), |mut sums, trial| {
            let (is_full, is_high) = (trial.duration >= goal.final_duration, trial.loss_ratio > goal.loss_ratio);
            let sum = match (is_full, is_high) {
                (true, false) => &mut sums.full_low,
                (true, true) => &mut sums.full_high,
                (false, false) => &mut sums.short_low,
                (false, true) => &mut sums.short_high,
            };
            *sum += trial.duration;
            sums
        })
    }

    /// RFC 9971, appendix A: short trials without loss only weigh against short ones with loss.
    pub fn class(self, goal: &Goal) -> LoadClass {
        let Sums { full_low, full_high, short_low, short_high } = self.sums(goal);
        let balancing = short_low * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
        let high = full_high + (short_high - balancing).max(0.0);
        let whole = (full_low + high).max(goal.duration_sum);
        let tolerated = whole * goal.exceed_ratio;
        // Sums of seconds are exact to far less than any trial lasts.
        let tolerated = tolerated + whole * ROUNDING;
        // If all that is missing had loss, and if nothing had.
        match (whole - full_low <= tolerated, high <= tolerated) {
            (true, true) => LoadClass::LowerBound,
            (false, false) => LoadClass::UpperBound,
            _ => LoadClass::Undecided,
        }
    }

    /// RFC 9971, appendix B: the load less the loss that all but the share of the time that may exceed it stay below.
    pub fn conditional_throughput(self, load: f64, goal: &Goal) -> f64 {
        let mut full: Vec<&TrialResult> = self.trials().filter(|trial| trial.duration >= goal.final_duration).collect();
        full.sort_by(|a, b| a.loss_ratio.total_cmp(&b.loss_ratio));
        let sum: f64 = full.iter().map(|trial| trial.duration).sum();
        let mut remaining = sum.max(goal.duration_sum) * (1.0 - goal.exceed_ratio);
        let mut loss_ratio = None;
        for trial in full {
            if loss_ratio.is_some() && remaining <= ROUNDING * sum.max(goal.duration_sum) {
                break;
            }
            loss_ratio = Some(trial.loss_ratio);
            remaining -= trial.duration;
        }
        let loss_ratio =
            if remaining > ROUNDING * sum.max(goal.duration_sum) { 1.0 } else { loss_ratio.unwrap_or(1.0) };
        load * (1.0 - loss_ratio)
    }
}
