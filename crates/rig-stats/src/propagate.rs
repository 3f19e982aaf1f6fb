//! The interval of a value computed from the means of several figures, for few trials.
//!
//! Propagation of uncertainty by the delta method (GUM, JCGM 100:2008, 5.1 and 5.2): with the sensitivities
//! g_k = df/dx_k at the means, each trial t of a group gives the linearised value L_t = sum of g_k * x_kt. Figures of one
//! group were measured in the same trials, so that their covariance is in L_t itself. A group contributes
//! u^2 = s^2(L) / n with n - 1 degrees of freedom; groups are independent, so their u^2 add up, and the degrees of freedom
//! of the sum are Welch-Satterthwaite's (GUM G.4): (sum of u^2)^2 / sum of (u^4 / (n - 1)).
//!
//! For the difference of two figures this is the paired t interval within a group and Welch's between groups. It is an
//! approximation where `f` bends within the scatter of the means, as `max` does where its arguments are about equal.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::confidence::{Interval, Level};
use crate::sample::Sample;

/// The values of one figure in trial order.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// Series of the same group come from the same trials and are paired value by value.
    pub group: usize,
    pub values: &'a [f64],
}

/// On which scale the computed value is about normal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Sums, differences, plain means.
    Linear,
    /// Ratios and products of positive figures: the interval is as far from the value by a factor on either side, so that
    /// that of 1/f is the reciprocal of that of f.
    Logarithmic,
}

/// A computed value with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The function of the means.
    pub value: f64,
    /// `None` when a group has a single trial. Without any variance both ends are the value itself.
    pub interval: Option<Interval>,
    /// Welch-Satterthwaite's, not rounded; `None` when there is no interval or no variance.
    pub degrees_of_freedom: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PropagateError {
    /// The index is that of the series.
    #[error("figure {0} has no values")]
    NoValues(usize),
    #[error("figures measured in the same trials have {one} and {other} values")]
    Unpaired { one: usize, other: usize },
    #[error("the value is not a finite number (a division by zero?)")]
    NotFinite,
    #[error("the value is not positive, so it has no logarithm")]
    NotPositive,
}

/// Computes `f` of the means of `series`, given in the same order, and its interval.
///
/// # Errors
/// When a series is empty or not paired with the others of its group, when `f` or its slope is not finite at the means, or
/// when it is not positive there and `scale` is logarithmic.
pub fn propagate(
    series: &[Series<'_>],
    level: Level,
    scale: Scale,
    f: impl Fn(&[f64]) -> f64,
) -> Result<Estimate, PropagateError> {
    let samples: Vec<Sample> = series.iter().map(|s| s.values.to_vec().into()).collect();
    let means = samples
        .iter()
        .enumerate()
        .map(|(index, sample)| sample.mean().ok_or(PropagateError::NoValues(index)))
        .collect::<Result<Vec<_>, _>>()?;
    let value = f(&means);
    if !value.is_finite() {
        return Err(PropagateError::NotFinite);
    }
    // d(ln f) = df / f
    let divisor = match scale {
        Scale::Linear => 1.0,
        Scale::Logarithmic if value > 0.0 => value,
        Scale::Logarithmic => return Err(PropagateError::NotPositive),
    };

    let mut linearised: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (index, (one, sample)) in series.iter().zip(&samples).enumerate() {
        let slope = slope(&f, &means, index, sample.standard_deviation().unwrap_or(0.0)) / divisor;
        if !slope.is_finite() {
            return Err(PropagateError::NotFinite);
        }
        let sums = linearised.entry(one.group).or_insert_with(|| vec![0.0; one.values.len()]);
        if sums.len() != one.values.len() {
            return Err(PropagateError::Unpaired { one: sums.len(), other: one.values.len() });
        }
        for (sum, x) in sums.iter_mut().zip(one.values) {
            *sum += slope * (x - means[index]);
        }
    }

    let mut variance = 0.0;
    let mut weighted = 0.0;
    for values in linearised.into_values() {
        let trials = values.len() as f64;
        let Some(group) = Sample::from(values).variance().map(|variance| variance / trials) else {
            return Ok(Estimate { value, interval: None, degrees_of_freedom: None });
        };
        variance += group;
        weighted += group * group / (trials - 1.0);
    }
    // Far below what a double can tell from the value, squares vanish; such a variance is none.
    if variance == 0.0 || weighted == 0.0 {
        let interval = Some(Interval { low: value, high: value, level });
        return Ok(Estimate { value, interval, degrees_of_freedom: None });
    }
    let degrees_of_freedom = variance * variance / weighted;
    let half = level.student_t(degrees_of_freedom) * variance.sqrt();
    if half.is_nan() {
        return Err(PropagateError::NotFinite);
    }
    let (low, high) = match scale {
        Scale::Linear => (value - half, value + half),
        Scale::Logarithmic => (value * (-half).exp(), value * half.exp()),
    };
    // Infinity would not survive JSON.
    let (low, high) = (low.max(f64::MIN), high.min(f64::MAX));
    Ok(Estimate { value, interval: Some(Interval { low, high, level }), degrees_of_freedom: Some(degrees_of_freedom) })
}

/// The central difference of `f` along the axis `index`; 0 without scatter, since it cannot matter then.
fn slope(f: impl Fn(&[f64]) -> f64, means: &[f64], index: usize, deviation: f64) -> f64 {
    if deviation == 0.0 {
        return 0.0;
    }
    // The cube root of the rounding unit balances rounding against the curvature left out.
    let step = f64::EPSILON.cbrt() * means[index].abs().max(deviation);
    let at = |x: f64| {
        let mut point = means.to_vec();
        point[index] = x;
        f(&point)
    };
    let (below, above) = (means[index] - step, means[index] + step);
    (at(above) - at(below)) / (above - below)
}

#[cfg(test)]
mod tests;
