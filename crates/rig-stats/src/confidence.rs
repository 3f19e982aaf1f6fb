//! Confidence in a mean, and when to stop measuring.
//!
//! Intervals are Student's: they assume that trials are independent and that their mean is about normal.
//!
//! Where values are known only to a [`Resolution`](crate::sample::Resolution), as the limit that a search finds on its
//! grid of rates, that uncertainty is combined with the scatter of the trials. Its standard uncertainty is width /
//! sqrt(12), that of a rectangular distribution (GUM, JCGM 100:2008, 4.3.7), which repetition does not make smaller. Each
//! part is expanded by its own quantile, and half the interval's width is the root of the sum of their squares (the model
//! U_RSS of ASME PTC 19.1): (t(level, n - 1) * s / sqrt(n))^2 + (z(level) * width / sqrt(12))^2. One quantile for the
//! combined uncertainty (GUM G.4.1) was tried: by simulation its 95 % intervals of three trials that scatter by twice the
//! grid hold the true mean 92 % of the time only. Trials that scatter by less than the grid show no scatter at all, so
//! that s counts as at least the grid's own, width / sqrt(12).
//!
//! Where a figure cannot lie everywhere ([`Range`]), an interval ends where the range ends. The
//! true value is never outside of the range, so that the part cut off never holds it: the interval holds the true value
//! exactly as often as before, and is never wider. A transformation (logit, logarithm) has no such property, has no value for a share of
//! exactly 0 or 100 % or a count of zero, which idle CPUs and clean paths give in most trials, and is far wider on the open side:
//! of 1.0 and 1.7 Student's 95 % interval is -3.1 to 5.8, cut off 0 to 5.8, on the logarithm 0.05 to 38. Ratios are made on the logarithm,
//! because they are lopsided themselves.
//!
//! Stopping as soon as the interval is narrow enough, as netperf does and [`Goal`] does too, favours trials that happen to
//! agree. By simulation, 95 % intervals under the default goal contain the true mean 94 to 95 % of the time when the
//! trials scatter by up to 1.5 % of it, but only 90 % of the time at the worst, a scatter of about 4 %. A higher `min` is
//! the remedy: 8 makes it 94 %.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::sample::{Range, Sample};
use crate::units::{Percent, UnitError, as_text, percent_or_half};

/// A confidence level in percent, at least 50 and less than 100. Reads `95`, `99.9%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Percent", into = "f64")]
pub struct Level(f64);

/// The full width of an interval in relation to its mean, greater than zero.
///
/// Reads `5%`, the full width as netperf's `-I 95,5` means it, and `+-2.5%`, which is the same.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Width(Percent);

/// Where the true value lies with the confidence of `level`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    pub level: Level,
}

/// How well a scenario has to be known before its repetition ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "RawGoal")]
pub struct Goal {
    pub level: Level,
    pub width: Width,
    /// Trials before anything is decided.
    min: u32,
    /// Trials after which the scenario is given up.
    max: u32,
}

/// A figure that [`Goal::decide`] watches.
#[derive(Debug, Clone, Copy)]
pub struct GoalFigure<'a> {
    pub sample: &'a Sample,
    /// Full width in the figure's own unit that is narrow enough for any mean; 0 for none. Without it the figure
    /// of an idle CPU, whose mean is near zero, could never reach a relative width.
    pub floor: f64,
}

/// How narrow the interval of one watched figure has become.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AchievedWidth {
    /// Full width as a share of the mean (0.05 for 5 %); `None` for fewer than two trials or a mean of zero.
    pub relative: Option<f64>,
    /// Full width in the figure's own unit; `None` for fewer than two trials.
    pub absolute: Option<f64>,
    pub reached: bool,
}

/// What to do after a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Make another trial.
    More,
    /// Every figure is known well enough.
    Reached,
    /// The trials are used up. One entry for each watched figure, in order.
    GaveUp(Vec<AchievedWidth>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfidenceError {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("a confidence level of {0} % is out of range, from 50 to less than 100; write for example `95`")]
    Level(String),
    #[error("a confidence width of 0 can never be reached; write for example `5%`, or `+-2.5%` for the same")]
    ZeroWidth,
    #[error("confidence needs at least one trial; write for example `min = 3, max = 10`")]
    NoTrials,
    #[error("confidence asks for at least {min} and at most {max} trials; raise `max` to {min} or lower `min`")]
    MinAboveMax { min: u32, max: u32 },
}

impl Level {
    /// # Errors
    /// When `percent` is less than 50, 100 or more, or not a number.
    pub fn new(percent: f64) -> Result<Self, ConfidenceError> {
        if (50.0..100.0).contains(&percent) {
            Ok(Self(percent))
        } else {
            Err(ConfidenceError::Level(percent.to_string()))
        }
    }

    /// 95 for 95 %.
    pub fn percent(self) -> f64 {
        self.0
    }

    /// The share of errors that it leaves: 0.05 of 95 %.
    pub fn alpha(self) -> f64 {
        1.0 - self.0 / 100.0
    }

    /// That of the interval which says the same as two one-sided tests for equality, each with the whole error: 90 % for 95 %. At
    /// least 50 %.
    #[must_use]
    pub fn of_equality(self) -> Self {
        Self((2.0 * self.0 - 100.0).max(50.0))
    }

    /// That of each of so many intervals which are all right with this one: Bonferroni's correction.
    #[must_use]
    pub fn among(self, intervals: usize) -> Self {
        Self(100.0 - (100.0 - self.0) / intervals.max(1) as f64)
    }

    /// The two-sided quantile of Student's distribution: |T| stays below it with the probability of this level.
    ///
    /// `degrees_of_freedom` is greater than zero and need not be whole.
    pub fn student_t(self, degrees_of_freedom: f64) -> f64 {
        let upper = 0.5 + self.0 / 200.0;
        StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(f64::NAN, |t| t.inverse_cdf(upper))
    }

    /// As [`Self::student_t`], of the normal distribution: where the spread is known and not estimated.
    pub fn normal(self) -> f64 {
        Normal::standard().inverse_cdf(0.5 + self.0 / 200.0)
    }

    /// Where the true mean lies; `None` for fewer than two values. Of a sample with a [`Bound`](crate::sample::Bound) it
    /// is where the mean of the bounds lies.
    pub fn mean_interval(self, sample: &Sample) -> Option<Interval> {
        let (mean, n) = (sample.mean()?, sample.len() as f64);
        let resolution = sample.resolution();
        let grid = resolution.uncertainty();
        let error = sample.standard_error()?.max(grid / n.sqrt());
        // Without variance the quantile does not matter, and 0 stays exactly 0.
        let half = if error == 0.0 { 0.0 } else { (self.student_t(n - 1.0) * error).hypot(self.normal() * grid) };
        let middle = mean + resolution.offset();
        // The mean itself is always in it, however far up a search's grid reaches.
        let (low, high) = ((middle - half).min(mean), (middle + half).max(mean));
        let possible = Interval { low, high, level: self }.within(sample.range());
        Some(Interval { low: possible.low.min(mean), high: possible.high.max(mean), ..possible })
    }

    /// netperf's achieved interval: the full width as a share of the mean, w = 2 * t(level, n - 1) * s / (sqrt(n) * mean),
    /// with what [`Self::mean_interval`] knows beyond that.
    ///
    /// `None` for fewer than two values, and for a mean of zero unless all values are zero, which is exact.
    pub fn relative_width(self, sample: &Sample) -> Option<f64> {
        let (mean, width) = (sample.mean()?, self.mean_interval(sample)?.width());
        match (width == 0.0, mean == 0.0) {
            (true, _) => Some(0.0),
            (false, true) => None,
            (false, false) => Some(width / mean.abs()),
        }
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(95.0)
    }
}

impl FromStr for Level {
    type Err = ConfidenceError;

    fn from_str(text: &str) -> Result<Self, ConfidenceError> {
        text.parse::<Percent>()?.try_into()
    }
}

impl TryFrom<Percent> for Level {
    type Error = ConfidenceError;

    fn try_from(percent: Percent) -> Result<Self, ConfidenceError> {
        Self::new(percent.get())
    }
}

impl From<Level> for f64 {
    fn from(level: Level) -> Self {
        level.0
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

impl Width {
    /// From the full width in percent.
    ///
    /// # Errors
    /// When `percent` is not finite or not greater than zero.
    pub fn full(percent: f64) -> Result<Self, ConfidenceError> {
        let percent = Percent::new(percent)?;
        if percent.get() == 0.0 { Err(ConfidenceError::ZeroWidth) } else { Ok(Self(percent)) }
    }

    /// The full width as a share of the mean: 0.05 for `5%` and for `+-2.5%`.
    pub fn fraction(self) -> f64 {
        self.0.fraction()
    }
}

impl Default for Width {
    fn default() -> Self {
        Percent::new(5.0).map_or_else(|_| unreachable!("5 is a percentage"), Self)
    }
}

impl FromStr for Width {
    type Err = ConfidenceError;

    fn from_str(text: &str) -> Result<Self, ConfidenceError> {
        let half = text.trim_start().strip_prefix("+-").or_else(|| text.trim_start().strip_prefix('\u{b1}'));
        match half {
            Some(half) => Self::full(2.0 * half.parse::<Percent>()?.get()),
            None => Self::full(text.parse::<Percent>()?.get()),
        }
    }
}

impl JsonSchema for Width {
    fn schema_name() -> Cow<'static, str> {
        "Width".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        percent_or_half("The full width of an interval in percent of its mean, such as 5%, or half of it: +-2.5%.")
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("+-{}%", self.0.get() / 2.0))
    }
}

as_text!(Width, "a confidence width", "5%",
    visit_u64(u64) => |n| Width::full(n as f64),
    visit_i64(i64) => |n| Width::full(n as f64),
    visit_f64(f64) => Width::full);

impl Interval {
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// The part of it that is possible.
    #[must_use]
    pub fn within(self, range: Range) -> Self {
        Self { low: range.nearest(self.low), high: range.nearest(self.high), ..self }
    }
}

impl Goal {
    /// # Errors
    /// When `min` is zero or greater than `max`.
    pub fn new(level: Level, width: Width, min: u32, max: u32) -> Result<Self, ConfidenceError> {
        match (min, max) {
            (0, _) => Err(ConfidenceError::NoTrials),
            (min, max) if min > max => Err(ConfidenceError::MinAboveMax { min, max }),
            _ => Ok(Self { level, width, min, max }),
        }
    }

    /// Trials before anything is decided.
    pub fn min(&self) -> u32 {
        self.min
    }

    /// Trials after which the scenario is given up.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Decides after a trial, from all trials made so far; each trial adds one value to each sample.
    pub fn decide(&self, figures: &[GoalFigure<'_>]) -> Decision {
        let trials = figures.iter().map(|figure| figure.sample.len()).max().unwrap_or(0);
        if trials < self.min as usize {
            return Decision::More;
        }
        let achieved: Vec<_> = figures.iter().map(|figure| self.achieved(figure)).collect();
        if achieved.iter().all(|figure| figure.reached) {
            Decision::Reached
        } else if trials < self.max as usize {
            Decision::More
        } else {
            Decision::GaveUp(achieved)
        }
    }

    /// How narrow the interval of one figure has become.
    pub fn achieved(&self, figure: &GoalFigure<'_>) -> AchievedWidth {
        let relative = self.level.relative_width(figure.sample);
        let absolute = self.level.mean_interval(figure.sample).map(|interval| interval.width());
        let reached =
            relative.is_some_and(|w| w <= self.width.fraction()) || absolute.is_some_and(|w| w <= figure.floor);
        AchievedWidth { relative, absolute, reached }
    }
}

impl Default for Goal {
    /// 95 %, a full width of 5 %, 3 to 10 trials, as netperf's `-I 95`.
    fn default() -> Self {
        Self { level: Level::default(), width: Width::default(), min: 3, max: 10 }
    }
}

/// How narrow intervals have to be before a scenario is no longer repeated, as netperf's `-I LEVEL,WIDTH -i MAX,MIN`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct RawGoal {
    /// Of all intervals, in percent; 95 by default.
    level: Level,
    /// Full width at which an interval is narrow enough, in percent of the mean; 5 by default.
    width: Width,
    /// Trials before anything is decided; 3 by default.
    min: u32,
    /// Maximum number of trials of a scenario; 10 by default.
    max: u32,
}

impl Default for RawGoal {
    fn default() -> Self {
        let Goal { level, width, min, max } = Goal::default();
        Self { level, width, min, max }
    }
}

impl TryFrom<RawGoal> for Goal {
    type Error = ConfidenceError;

    fn try_from(raw: RawGoal) -> Result<Self, ConfidenceError> {
        Self::new(raw.level, raw.width, raw.min, raw.max)
    }
}

#[cfg(test)]
mod tests;
