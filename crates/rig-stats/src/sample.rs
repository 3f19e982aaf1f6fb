//! The values of one figure over the trials of one scenario.

use serde::{Deserialize, Serialize};

/// Values in the order in which they were measured; all are kept.
///
/// A value that is not finite is kept too and shows in every figure derived from it: nothing is dropped in silence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample {
    values: Vec<f64>,
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
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
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
        Self { values }
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

impl Extend<f64> for Sample {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        self.values.extend(values);
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
    fn travels_as_a_list() {
        let sample = Sample::from(vec![1.5, 2.0]);
        assert_eq!(serde_json::to_string(&sample).unwrap(), "[1.5,2.0]");
        assert_eq!(serde_json::from_str::<Sample>("[1.5,2.0]").unwrap(), sample);
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
