//! Two samples of one figure, from before and after a change: better, worse, the same, or undecided.
//!
//! # The effect
//! The ratio of the means, new to old, where all values are positive; otherwise their difference, for a ratio with zero
//! says nothing.
//!
//! # Its interval
//! The hull of two intervals of the level asked for:
//! - Welch's, on a logarithmic scale for a ratio ([`crate::propagate`]), which is honest for a few trials that scatter
//!   normally;
//! - the percentile interval of the bootstrap (B. Efron, Annals of Statistics 7(1), 1979), which follows a skewed or
//!   many-peaked sample, but for few values is too narrow by itself (T. Hesterberg, The American Statistician 69(4),
//!   2015).
//!
//! Where a sample is known only to a [`Resolution`](crate::sample::Resolution), that uncertainty is in Welch's interval
//! ([`crate::propagate`]) and is added to either side of the bootstrap's in quadrature (GUM, JCGM 100:2008, 4.3.7 and
//! 5.1.2).
//!
//! Neither method may be surer than the other. A permutation test (R. A. Fisher, The Design of Experiments, 1935), which
//! assumes no distribution at all, has a veto: see below.
//!
//! # Facts
//! What is counted and does not scatter, as failed connections ([`Rule::is_fact`]), is decided by one trial: better or worse
//! where all of one sample lie beyond all of the other by more than the resolution, the same where all of both lie within it.
//!
//! # Two-valued results
//! Where both samples take one of two values ([`crate::blocks::modes`]), they are compared mode by mode, and the shares of the
//! higher one by Fisher's exact test: the mean of two modes changes with how often each is taken. See [`ModeChange`].
//!
//! # The verdict
//! The *minimum effect* is what matters at all: a change by the share [`Rule::minimum`] or by [`Rule::resolution`],
//! whichever is more, of the smaller mean. A ratio matters beyond 1 + minimum or below its inverse. The *noise floor* is
//! what two runs of the same thing differ by ([`Noise`]). In this order:
//! 1. a value that is missing, fewer than two trials, or a zero against which nothing can be measured: undecided; so are
//!    two samples that are both [bounds](Bound), and one bound unless what is known proves the change: new figures of at
//!    least 200 are better than old ones of 100, but never the same as them;
//! 2. the whole interval beyond the minimum effect: better or worse; but undecided where a sample has fewer than
//!    [`TRIALS_MIN`] trials, where the permutation test's p exceeds both 1 - level and the least p that so many trials
//!    can give (which they give only when all of one sample lie above all of the other), or where the effect is within
//!    the noise floor;
//! 3. the noise floor above the minimum effect: undecided, since a change that matters could hide in it;
//! 4. the interval of two one-sided tests, 90 % for a level of 95 %, within the minimum effect, borders included: same (D. J.
//!    Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15(6), 1987);
//! 5. the interval reaches across: undecided.
//!
//! # How often that is wrong
//! By simulation (see the tests): of equal normal samples with a scatter of 1 to 30 %, of skewed ones and of ones with two
//! peaks, at 95 % and a minimum of 5 %, at most 5 in 100 are called better or worse. Two samples whose means differ by twice the minimum are called the same in fewer than 1 of 100.

mod blocks;
mod noise;

use std::fmt;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::blocks::modes::{Modes, fisher};

pub use self::blocks::compare_blocks;
pub use self::noise::Noise;
use crate::confidence::{Interval, Level};
use crate::propagate::{Scale, Series, propagate};
pub use crate::resample::Resampling;
use crate::sample::{Bound, Range, Sample};
use crate::units::Percent;

/// Trials in each sample without which nothing is called better or worse: any two of two can lie apart by chance.
pub const TRIALS_MIN: usize = 3;

/// How two samples are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    pub level: Level,
    /// The smallest relative change that matters.
    pub minimum: Percent,
    /// The smallest absolute change that matters, in the figure's unit: what it is known to. At least 0.
    pub resolution: f64,
    pub better: Better,
    /// Whether it is counted and does not scatter, so that one trial decides.
    pub is_fact: bool,
    pub resampling: Resampling,
}

/// Which way a figure improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    Same,
    Undecided,
}

/// How two means are held against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// New mean / old mean; nothing changed at 1.
    Ratio,
    /// New mean - old mean, in the figure's unit; nothing changed at 0.
    Difference,
}

/// The comparison of two samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// Why it is undecided; `None` for every other verdict.
    pub reason: Option<Reason>,
    /// `None` when a value is missing.
    pub effect: Option<Effect>,
    /// Where a sample is two-valued.
    pub modes: Option<ModeChange>,
}

/// Two samples of which at least one takes two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModeChange {
    /// `None` of a sample with one mode.
    pub old: Option<TwoModes>,
    pub new: Option<TwoModes>,
    /// How often shares of the higher mode that are equal lie so far apart by chance; where both samples have two.
    pub share_p: Option<f64>,
}

/// The modes of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoModes {
    /// Their means.
    pub low: f64,
    pub high: f64,
    /// Of all trials, those of the higher one, 0 to 1.
    pub share_high: f64,
}

impl TwoModes {
    fn of(modes: &Modes) -> Self {
        Self { low: mean(&modes.low), high: mean(&modes.high), share_high: modes.share_high() }
    }
}

/// The change and what is known of it. All values are in the unit of `kind`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    pub kind: Kind,
    pub value: f64,
    /// `None` when a sample has a single trial.
    pub interval: Option<Interval>,
    /// How often chance alone puts samples at least this far apart, two-sided; `None` when a sample has a single trial.
    pub p: Option<f64>,
    /// The probability by Welch's t test, or with blocks by that of their trimmed mean, which has no least value and can be corrected
    /// for many figures.
    pub p_welch: Option<f64>,
    /// From here on a change matters: a ratio above 1, or a difference above 0.
    pub minimum: f64,
    /// Two runs of the same thing differ by less: a ratio above 1, or a difference above 0. `None` when not known.
    pub noise_floor: Option<f64>,
    /// Of what the value is a limit only, since one of the samples is; the interval is then that of the limit.
    pub bound: Option<Bound>,
}

/// One of the two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleSide {
    Old,
    New,
    Both,
}

/// Why a verdict is undecided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// No value at all.
    NotMeasured(SampleSide),
    /// Some of the trials have no value, so that those that do may be the lucky ones.
    Missing { which: SampleSide, missing: usize, of: usize },
    /// A single trial shows no scatter.
    SingleTrial(SampleSide),
    /// A mean is zero, and the figure has no resolution: no change is small against it.
    ZeroMean,
    /// A figure is a limit of the true one only, and what is known of that proves no change.
    Bound(SampleSide),
    /// Mean or interval cannot be computed in floating point.
    NotFinite,
    /// The interval has changes in it that matter and others that do not.
    Wide,
    /// So it has, and would have without any scatter: the figures are known too coarsely.
    Coarse,
    /// The interval lies beyond the minimum effect, but on fewer than [`TRIALS_MIN`] trials.
    FewTrials,
    /// Chance alone does this too often.
    Chance { p: f64 },
    /// Among so many figures that decide together, chance alone does this too often (Holm).
    Family { p: f64, figures: usize },
    /// The two modes changed differently, or one of them is not known well enough.
    Modes,
    /// Two runs of the same thing differ by as much.
    WithinNoise,
    /// The noise floor is above the minimum effect, and the interval does not lie beyond it: more trials cannot help.
    NoiseAboveMinimum,
}

impl SampleSide {
    fn where_true(old: bool, new: bool) -> Option<Self> {
        match (old, new) {
            (true, true) => Some(Self::Both),
            (true, false) => Some(Self::Old),
            (false, true) => Some(Self::New),
            (false, false) => None,
        }
    }
}

impl Rule {
    /// The effect from which on a change matters, where the smaller mean is this.
    fn least(&self, kind: Kind, smaller: f64) -> f64 {
        let absolute = (self.minimum.fraction() * smaller).max(self.resolution);
        match kind {
            Kind::Ratio => 1.0 + absolute / smaller,
            Kind::Difference => absolute,
        }
    }

    /// The verdict for an effect that is the same or beyond the least that matters, unless there is a reason not to give one.
    fn judgement(&self, effect: Effect, reason: Option<Reason>, is_same: bool) -> Judgement {
        let risen = effect.value > effect.kind.neutral();
        let verdict = match (reason, is_same) {
            (Some(_), _) => Verdict::Undecided,
            (None, true) => Verdict::Same,
            (None, false) if risen == (self.better == Better::Higher) => Verdict::Better,
            (None, false) => Verdict::Worse,
        };
        Judgement { verdict, reason, effect: Some(effect), modes: None }
    }
}

impl Judgement {
    fn undecided(reason: Reason, effect: Option<Effect>) -> Self {
        Self { verdict: Verdict::Undecided, reason: Some(reason), effect, modes: None }
    }
}

impl Kind {
    /// A ratio where no value is zero.
    fn of(old: &[f64], new: &[f64]) -> Self {
        if old.iter().chain(new).all(|&value| value > 0.0) { Self::Ratio } else { Self::Difference }
    }

    /// The effect at which nothing changed.
    fn neutral(self) -> f64 {
        match self {
            Self::Ratio => 1.0,
            Self::Difference => 0.0,
        }
    }

    /// The same change the other way round.
    fn mirrored(self, change: f64) -> f64 {
        match self {
            Self::Ratio => 1.0 / change,
            Self::Difference => -change,
        }
    }
}

/// Judges the change from `old_sample` to `new_sample`, the values of one figure in the trials of two runs; NaN stands for
/// a trial without a value.
pub fn compare(old_sample: &Sample, new_sample: &Sample, rule: &Rule, noise: &Noise) -> Judgement {
    let whole = compare_means(old_sample, new_sample, rule, noise);
    let known = [old_sample, new_sample].map(|sample| {
        let is_exact = sample.bound().is_none() && sample.resolution().width() == 0.0 && !rule.is_fact;
        is_exact.then(|| Modes::of(sample.values())).flatten()
    });
    let [old, new] = &known;
    if old.is_none() && new.is_none() {
        return whole;
    }
    let mut modes =
        ModeChange { old: old.as_ref().map(TwoModes::of), new: new.as_ref().map(TwoModes::of), share_p: None };
    let (Some(old), Some(new)) = (old, new) else { return Judgement { modes: Some(modes), ..whole } };
    let count = |modes: &Modes| (modes.high.len(), modes.low.len() + modes.high.len());
    let share_p = fisher(count(old), count(new));
    modes.share_p = Some(share_p);
    let modes = Some(modes);
    if share_p <= rule.level.alpha() {
        // How often each is taken has changed: what that does to the mean is the change.
        return Judgement { modes, ..whole };
    }
    let part = |old: &[f64], new: &[f64]| {
        compare_means(&Sample::from(old.to_vec()), &Sample::from(new.to_vec()), rule, noise).verdict
    };
    match (part(&old.low, &new.low), part(&old.high, &new.high)) {
        (one, other) if one == other && one != Verdict::Undecided => {
            Judgement { verdict: one, reason: None, modes, ..whole }
        }
        (Verdict::Same, one @ (Verdict::Better | Verdict::Worse))
        | (one @ (Verdict::Better | Verdict::Worse), Verdict::Same) => {
            Judgement { verdict: one, reason: None, modes, ..whole }
        }
        _ => Judgement { verdict: Verdict::Undecided, reason: Some(Reason::Modes), modes, ..whole },
    }
}

/// As [`compare`], of samples with one mode.
fn compare_means(old_sample: &Sample, new_sample: &Sample, rule: &Rule, noise: &Noise) -> Judgement {
    let undecided = Judgement::undecided;
    let (old, new) = (old_sample.values(), new_sample.values());
    if let Some(reason) = incomplete(old, new) {
        return undecided(reason, None);
    }
    let kind = Kind::of(old, new);
    let (low, high) = (mean(old), mean(new));
    let value = change(kind, low, high);
    let smaller = low.abs().min(high.abs());
    let minimum = rule.least(kind, smaller);
    if !value.is_finite() || !minimum.is_finite() {
        return undecided(Reason::NotFinite, None);
    }
    let noise_floor = noise.floor(kind, rule.level, smaller);
    let bound = match (old_sample.bound().map(Bound::mirrored), new_sample.bound()) {
        (Some(_), Some(_)) => Some(Bound::Open),
        (one, other) => one.or(other),
    };
    let mut effect = Effect { kind, value, interval: None, p: None, p_welch: None, minimum, noise_floor, bound };
    if rule.is_fact {
        return fact(old, new, rule, effect);
    }
    if let Some(which) = SampleSide::where_true(old.len() < 2, new.len() < 2) {
        return undecided(Reason::SingleTrial(which), Some(effect));
    }
    let (Some(interval), Some(narrow)) = (
        interval(kind, old_sample, new_sample, rule),
        self::interval(kind, old_sample, new_sample, &Rule { level: one_sided(rule.level), ..*rule }),
    ) else {
        return undecided(Reason::NotFinite, Some(effect));
    };
    let permutation = rule.resampling.permutation(old, new);
    effect.interval = Some(interval);
    effect.p = Some(permutation.p);
    effect.p_welch = Some(welch_p(kind, old_sample, new_sample, rule.level).unwrap_or(permutation.p));

    let (below, above) = (kind.mirrored(minimum), minimum);
    let unknown = smaller == 0.0 && minimum == 0.0 && interval.width() > 0.0;
    let is_open_below = bound.is_some_and(Bound::is_open_below);
    let is_open_above = bound.is_some_and(Bound::is_open_above);
    let inside = bound.is_none() && narrow.low >= below && narrow.high <= above;
    let beyond = (interval.high < below && !is_open_above) || (interval.low > above && !is_open_below);
    let alpha = rule.level.alpha();
    let size = value.max(kind.mirrored(value));
    let of_bounds = SampleSide::where_true(old_sample.bound().is_some(), new_sample.bound().is_some());
    let reason = if unknown {
        Some(Reason::ZeroMean)
    } else if let (Some(which), false) = (of_bounds, beyond) {
        Some(Reason::Bound(which))
    } else if !beyond && noise_floor.is_some_and(|floor| floor > minimum) {
        Some(Reason::NoiseAboveMinimum)
    } else if !beyond {
        let grid = grid(kind, old_sample, new_sample, rule.level).unwrap_or(0.0);
        let coarse = match kind {
            Kind::Ratio => grid.exp() > minimum,
            Kind::Difference => grid > minimum,
        };
        (!inside).then_some(if coarse { Reason::Coarse } else { Reason::Wide })
    } else if old.len().min(new.len()) < TRIALS_MIN {
        Some(Reason::FewTrials)
    } else if permutation.p > alpha.max(permutation.least) {
        Some(Reason::Chance { p: permutation.p })
    } else {
        noise_floor.filter(|&floor| size <= floor).map(|_| Reason::WithinNoise)
    };
    rule.judgement(effect, reason, inside)
}

/// The level of an interval that two one-sided tests at this one make: 90 % for 95 %.
fn one_sided(level: Level) -> Level {
    Level::new(2.0 * level.percent() - 100.0).unwrap_or(level)
}

/// Compares samples that do not scatter.
fn fact(old: &[f64], new: &[f64], rule: &Rule, effect: Effect) -> Judgement {
    let range = |values: &[f64]| {
        let sample = Sample::from(values.to_vec());
        (sample.min().unwrap_or(f64::NAN), sample.max().unwrap_or(f64::NAN))
    };
    let ((old_low, old_high), (new_low, new_high)) = (range(old), range(new));
    let all = (old_low.min(new_low), old_high.max(new_high));
    let (verdict, reason) = if all.1 - all.0 <= rule.resolution {
        (Verdict::Same, None)
    } else if new_low > old_high + rule.resolution {
        (if rule.better == Better::Higher { Verdict::Better } else { Verdict::Worse }, None)
    } else if new_high < old_low - rule.resolution {
        (if rule.better == Better::Higher { Verdict::Worse } else { Verdict::Better }, None)
    } else {
        (Verdict::Undecided, Some(Reason::Wide))
    };
    Judgement { verdict, reason, effect: Some(effect), modes: None }
}

/// Two-sided, of no change at all; `None` where there is no scatter to tell.
fn welch_p(kind: Kind, old: &Sample, new: &Sample, level: Level) -> Option<f64> {
    let scale = if kind == Kind::Ratio { Scale::Logarithmic } else { Scale::Linear };
    let series = [Series { group: 0, sample: old }, Series { group: 1, sample: new }];
    let estimate = propagate(&series, level, scale, |means| change(kind, means[0], means[1])).ok()?;
    let (interval, degrees) = (estimate.interval?, estimate.degrees_of_freedom?);
    let scaled = |value: f64| if kind == Kind::Ratio { value.ln() } else { value };
    let error = (scaled(interval.high) - scaled(interval.low)) / 2.0 / level.student_t(degrees);
    let distance = (scaled(estimate.value) - scaled(kind.neutral())).abs();
    let t = StudentsT::new(0.0, 1.0, degrees).ok()?;
    (error > 0.0).then(|| 2.0 * t.sf(distance / error))
}

fn incomplete(old: &[f64], new: &[f64]) -> Option<Reason> {
    let missing = |values: &[f64]| values.iter().filter(|value| !value.is_finite()).count();
    let (in_old, in_new) = (missing(old), missing(new));
    if let Some(which) = SampleSide::where_true(in_old == old.len(), in_new == new.len()) {
        return Some(Reason::NotMeasured(which));
    }
    let which = SampleSide::where_true(in_old > 0, in_new > 0)?;
    let (missing, of) = match which {
        SampleSide::Old => (in_old, old.len()),
        SampleSide::New => (in_new, new.len()),
        SampleSide::Both => (in_old + in_new, old.len() + new.len()),
    };
    Some(Reason::Missing { which, missing, of })
}

fn mean(values: &[f64]) -> f64 {
    Sample::from(values.to_vec()).mean().unwrap_or(f64::NAN)
}

fn change(kind: Kind, old: f64, new: f64) -> f64 {
    match kind {
        Kind::Ratio => new / old,
        Kind::Difference => new - old,
    }
}

/// The hull of Welch's interval and the bootstrap's; `None` where they cannot be computed.
fn interval(kind: Kind, old: &Sample, new: &Sample, rule: &Rule) -> Option<Interval> {
    let scale = match kind {
        Kind::Ratio => Scale::Logarithmic,
        Kind::Difference => Scale::Linear,
    };
    let series = [Series { group: 0, sample: old }, Series { group: 1, sample: new }];
    let welch = propagate(&series, rule.level, scale, |means| change(kind, means[0], means[1])).ok()?.interval?;
    let (low, high) =
        rule.resampling.bootstrap(old.values(), new.values(), rule.level, |old, new| change(kind, old, new));
    let (low, high) = with_resolution(kind, old, new, (low, high), rule.level)?;
    let hull = Interval { low: welch.low.min(low), high: welch.high.max(high), level: rule.level };
    // The most that a figure can change by.
    let span = (new.range().high - new.range().low).max(old.range().high - old.range().low);
    Some(match kind {
        Kind::Ratio => hull,
        Kind::Difference => hull.within(Range { low: -span, high: span }),
    })
}

/// Half the width of an interval that comes of the resolution of both samples alone: of a ratio, that of its logarithm.
fn grid(kind: Kind, old: &Sample, new: &Sample, level: Level) -> Option<f64> {
    let of = |sample: &Sample| {
        let per = if kind == Kind::Ratio { sample.mean()? } else { 1.0 };
        Some(sample.resolution().uncertainty() / per)
    };
    Some(level.normal() * of(old)?.hypot(of(new)?))
}

/// The bootstrap's interval, which knows of scatter alone, with the resolution of both samples: added in quadrature on
/// the scale on which the change is about normal.
fn with_resolution(
    kind: Kind,
    old: &Sample,
    new: &Sample,
    (low, high): (f64, f64),
    level: Level,
) -> Option<(f64, f64)> {
    let (before, after) = (old.resolution(), new.resolution());
    if before.width() == 0.0 && after.width() == 0.0 {
        return Some((low, high));
    }
    let grid = grid(kind, old, new, level)?;
    let (old, new) = (old.mean()?, new.mean()?);
    let value = change(kind, old, new);
    // On the logarithmic scale d(ln x) = dx / x.
    let (per_old, per_new, low, middle, high) = match kind {
        Kind::Ratio => (old, new, low.ln(), value.ln(), high.ln()),
        Kind::Difference => (1.0, 1.0, low, value, high),
    };
    let offset = after.offset() / per_new - before.offset() / per_old;
    let (down, up) = (offset - (middle - low).hypot(grid), offset + (high - middle).hypot(grid));
    let (low, high) = (middle + down.min(0.0), middle + up.max(0.0));
    Some(match kind {
        Kind::Ratio => (low.exp(), high.exp()),
        Kind::Difference => (low, high),
    })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Undecided => "undecided",
        })
    }
}

impl fmt::Display for SampleSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Old => "the old run",
            Self::New => "the new run",
            Self::Both => "either run",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMeasured(SampleSide::Both) => f.write_str("measured in neither run"),
            Self::NotMeasured(which) => write!(f, "not measured in {which}"),
            Self::Missing { which, missing, of } => {
                write!(
                    f,
                    "{missing} of {of} trials of {} {} the figure",
                    if *which == SampleSide::Both { "both runs".into() } else { which.to_string() },
                    if *missing == 1 { "lacks" } else { "lack" }
                )
            }
            Self::SingleTrial(SampleSide::Both) => write!(f, "a single trial in each run shows no scatter: make at least {TRIALS_MIN}"),
            Self::SingleTrial(which) => write!(f, "a single trial in {which} shows no scatter: make at least {TRIALS_MIN}"),
            Self::ZeroMean => f.write_str("a mean is zero, so that no change is small against it"),
            Self::Bound(SampleSide::Both) => f.write_str(
                "both runs have only a limit of the figure, which the load generator or the search set: what lies beyond it \
                 is not known",
            ),
            Self::Bound(which) => write!(
                f,
                "{which} has only a limit of the figure, which the load generator or the search set, and that proves no \
                 change"
            ),
            Self::NotFinite => f.write_str("the values are too large or too small to compute with"),
            Self::Wide => f.write_str("the interval spans the minimum effect: more trials narrow it"),
            Self::Coarse => f.write_str(
                "the interval spans the minimum effect because the search's steps are too coarse for it: ask for a \
                 finer `precision`, more trials do not narrow it",
            ),
            Self::FewTrials => write!(f, "a run has fewer than {TRIALS_MIN} trials, which lie apart by chance too often: make more"),
            Self::Chance { p } => write!(f, "the trials of both runs overlap too much (p = {p:.2}): make more"),
            Self::Family { p, figures } => write!(
                f,
                "by itself it would be decided, but not surely enough among {figures} figures that decide together (p = {p:.2})"
            ),
            Self::Modes => f.write_str(
                "both runs take one of two values, and the two modes disagree or have too few trials: make more",
            ),
            Self::WithinNoise => f.write_str("runs under the same conditions differ by as much (noise floor)"),
            Self::NoiseAboveMinimum => f.write_str(
                "runs under the same conditions differ by more than the minimum effect: measure both variants in turn \
                 (`netrig ab`), on a calmer machine or with longer windows, or allow a larger minimum effect",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
