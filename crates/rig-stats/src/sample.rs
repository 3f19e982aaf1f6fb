//! The values of one figure over the trials of one scenario, and what is known of them beside themselves.

use serde::{Deserialize, Serialize};

/// Where the values of a figure can lie at all, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub const ANY: Self = Self { low: f64::NEG_INFINITY, high: f64::INFINITY };
    pub const NOT_NEGATIVE: Self = Self { low: 0.0, high: f64::INFINITY };
    pub const PERCENT: Self = Self { low: 0.0, high: 100.0 };

    /// The nearest value that is possible; NaN stays what it is.
    pub fn nearest(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}

/// How finely a value is known by the way it was found: the true one lies between `value - below` and `value + above`,
/// anywhere there with equal probability. All zero where the value is known as finely as it is written.
///
/// Its standard uncertainty is the width by the square root of 12 (a rectangular distribution: GUM, JCGM 100:2008,
/// 4.3.7). It does not become smaller by repetition, because each trial rounds in the same way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Resolution {
    pub below: f64,
    pub above: f64,
}

impl Resolution {
    pub const EXACT: Self = Self { below: 0.0, above: 0.0 };

    pub fn width(self) -> f64 {
        self.below + self.above
    }

    /// From the value to the middle of where the true one may lie.
    pub fn offset(self) -> f64 {
        (self.above - self.below) / 2.0
    }

    /// The standard uncertainty.
    pub fn uncertainty(self) -> f64 {
        self.width() / 12f64.sqrt()
    }
}

/// A value that is no more than a limit of the true one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The true value is this or more.
    AtLeast,
    /// The true value is this or less.
    AtMost,
    /// The true value may be more or less: what was computed from several bounds says nothing.
    Open,
}

impl Bound {
    /// What is known of a value that depends on one with each of these bounds.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Open }
    }

    /// The bound of a value that falls as the bounded one rises.
    #[must_use]
    pub fn mirrored(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::AtMost => Self::AtLeast,
            Self::Open => Self::Open,
        }
    }

    /// Whether the true value may lie below.
    pub fn is_open_below(self) -> bool {
        self != Self::AtLeast
    }

    /// Whether the true value may lie above.
    pub fn is_open_above(self) -> bool {
        self != Self::AtMost
    }

    /// The sign in front of the value.
    pub fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">= ",
            Self::AtMost => "<= ",
            Self::Open => "? ",
        }
    }
}

/// One value of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub value: f64,
    pub resolution: Resolution,
    pub bound: Option<Bound>,
}

impl From<f64> for Reading {
    fn from(value: f64) -> Self {
        Self { value, resolution: Resolution::EXACT, bound: None }
    }
}

/// Values in the order in which they were measured; all are kept.
///
/// A value that is not finite is kept too and shows in every figure derived from it: nothing is dropped in silence.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
    /// Summed over the values.
    resolution: Resolution,
    bound: Option<Bound>,
    range: Range,
}

impl Default for Sample {
    fn default() -> Self {
        Self { values: Vec::new(), resolution: Resolution::EXACT, bound: None, range: Range::ANY }
    }
}

/// Mean and sum of squared deviations by B. P. Welford's recurrence (Technometrics 4(3), 1962), which does not
/// subtract large numbers from each other as the sum of squares does.
fn moments(values: &[f64]) -> (f64, f64) {
    let mut mean = 0.0;
    let mut squares = 0.0;
    for (n, value) in (1u32..).zip(values) {
        let deviation = value - mean;
        mean += deviation / f64::from(n);
        squares += deviation * (value - mean);
    }
    (mean, squares)
}

impl Sample {
    /// An empty sample of a figure whose values can lie here only.
    pub fn within(range: Range) -> Self {
        Self { range, ..Self::default() }
    }

    /// The same sample with every value and all that is known of it times a factor above zero.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            values: self.values.iter().map(|value| value * factor).collect(),
            resolution: Resolution { below: self.resolution.below * factor, above: self.resolution.above * factor },
            bound: self.bound,
            range: Range { low: self.range.low * factor, high: self.range.high * factor },
        }
    }

    /// The same values with another resolution and bound, of each of them.
    #[must_use]
    pub fn with(mut self, resolution: Resolution, bound: Option<Bound>) -> Self {
        let n = self.len() as f64;
        self.resolution = Resolution { below: resolution.below * n, above: resolution.above * n };
        self.bound = bound;
        self
    }

    pub fn push(&mut self, reading: impl Into<Reading>) {
        let Reading { value, resolution, bound } = reading.into();
        self.values.push(value);
        self.resolution.below += resolution.below;
        self.resolution.above += resolution.above;
        self.bound = match (self.bound, bound) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
    }

    /// How finely the mean is known by the way its values were found.
    pub fn resolution(&self) -> Resolution {
        if self.is_empty() {
            return Resolution::EXACT;
        }
        let n = self.len() as f64;
        Resolution { below: self.resolution.below / n, above: self.resolution.above / n }
    }

    /// What the mean is a limit of, where any of the values is one.
    pub fn bound(&self) -> Option<Bound> {
        self.bound
    }

    pub fn range(&self) -> Range {
        self.range
    }

    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// `None` when there is no value.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| moments(&self.values).0)
    }

    /// The unbiased estimate s^2 with n - 1 in the denominator; `None` for fewer than two values.
    pub fn variance(&self) -> Option<f64> {
        (self.len() > 1).then(|| moments(&self.values).1 / (self.len() - 1) as f64)
    }

    /// Square root of [`Self::variance`].
    pub fn standard_deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// Standard deviation of the mean, s / sqrt(n).
    pub fn standard_error(&self) -> Option<f64> {
        self.variance().map(|variance| (variance / self.len() as f64).sqrt())
    }

    pub fn min(&self) -> Option<f64> {
        self.values.iter().copied().min_by(f64::total_cmp)
    }

    pub fn max(&self) -> Option<f64> {
        self.values.iter().copied().max_by(f64::total_cmp)
    }

    /// The middle value, or the mean of the two middle ones.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(sorted[middle]),
            _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
        }
    }
}

impl From<Vec<f64>> for Sample {
    fn from(values: Vec<f64>) -> Self {
        Self { values, ..Self::default() }
    }
}

impl<R: Into<Reading>> FromIterator<R> for Sample {
    fn from_iter<I: IntoIterator<Item = R>>(readings: I) -> Self {
        let mut sample = Self::default();
        sample.extend(readings);
        sample
    }
}

impl<R: Into<Reading>> Extend<R> for Sample {
    fn extend<I: IntoIterator<Item = R>>(&mut self, readings: I) {
        readings.into_iter().for_each(|reading| self.push(reading));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_worked_example() {
        let sample = Sample::from(vec![2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(sample.len(), 8);
        assert_eq!(sample.mean(), Some(5.0));
        assert!((sample.variance().unwrap() - 32.0 / 7.0).abs() < 1e-14);
        assert!((sample.standard_deviation().unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-14);
        assert!((sample.standard_error().unwrap() - (4.0f64 / 7.0).sqrt()).abs() < 1e-14);
        assert_eq!((sample.min(), sample.median(), sample.max()), (Some(2.0), Some(4.5), Some(9.0)));
        assert_eq!(Sample::from(vec![3.0, 1.0, 2.0]).median(), Some(2.0));
    }

    #[test]
    fn too_few_values_give_none() {
        let mut sample = Sample::default();
        assert!(sample.is_empty());
        assert_eq!((sample.mean(), sample.median(), sample.min(), sample.variance()), (None, None, None, None));
        sample.push(3.0);
        assert_eq!(
            (sample.mean(), sample.median(), sample.max(), sample.variance()),
            (Some(3.0), Some(3.0), Some(3.0), None)
        );
    }

    /// The case in which the difference of the sum of squares and the squared sum loses every digit.
    #[test]
    fn a_large_offset_does_not_spoil_the_variance() {
        let sample: Sample = [4.0, 7.0, 13.0, 16.0].iter().map(|x| x + 1e9).collect();
        assert_eq!(sample.variance(), Some(30.0));
    }

    #[test]
    fn equal_values_have_no_variance() {
        let sample: Sample = std::iter::repeat_n(0.1, 30).collect();
        assert_eq!((sample.mean(), sample.variance()), (Some(0.1), Some(0.0)));
    }

    #[test]
    fn what_is_known_of_values_is_known_of_their_mean() {
        let reading = |value, above, bound| Reading { value, resolution: Resolution { below: 0.0, above }, bound };
        let mut sample = Sample::within(Range::NOT_NEGATIVE);
        assert_eq!((sample.resolution(), sample.bound()), (Resolution::EXACT, None));
        sample.push(reading(100.0, 4.0, None));
        sample.push(reading(104.0, 2.0, Some(Bound::AtLeast)));
        assert_eq!(
            (sample.resolution(), sample.bound()),
            (Resolution { below: 0.0, above: 3.0 }, Some(Bound::AtLeast))
        );
        let halved = sample.scaled(0.5);
        assert_eq!((halved.values(), halved.resolution().above), (&[50.0, 52.0][..], 1.5));
        sample.push(reading(104.0, 3.0, Some(Bound::AtMost)));
        assert_eq!(sample.bound(), Some(Bound::Open));
        // A rectangle from 100 to 103: the middle is 1.5 above, the standard deviation 3 / sqrt(12).
        assert_eq!(sample.resolution().offset(), 1.5);
        assert!((sample.resolution().uncertainty() - 0.866_025_4).abs() < 1e-7);
        assert_eq!(Range::PERCENT.nearest(148.8), 100.0);
    }

    proptest! {
        #[test]
        fn variance_follows_its_definition(values in vec(-1e3..1e3f64, 2..40)) {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let sample = Sample::from(values);
            prop_assert!((sample.mean().unwrap() - mean).abs() < 1e-9);
            prop_assert!((sample.variance().unwrap() - variance).abs() < 1e-6 * (1.0 + variance));
        }

        #[test]
        fn order_statistics_are_ordered(values in vec(-1e3..1e3f64, 1..40)) {
            let sample = Sample::from(values);
            let (low, middle, high) = (sample.min().unwrap(), sample.median().unwrap(), sample.max().unwrap());
            prop_assert!(low <= middle && middle <= high);
            let mean = sample.mean().unwrap();
            prop_assert!(low - 1e-9 <= mean && mean <= high + 1e-9);
        }
    }
}
