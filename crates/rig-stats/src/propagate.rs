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
//!
//! A figure that is known only to a [`Resolution`] of width w adds (g_k * w)^2 / 12 (GUM 4.3.7), which is expanded by the
//! normal distribution's quantile and added in quadrature (see [`crate::confidence`]), and moves the interval's middle to
//! that of where the figure may lie. A figure that is a
//! [`Bound`] makes the value one: `f` is tried with ever larger (or smaller) figures in its place.
//!
//! [`Resolution`]: crate::sample::Resolution

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::confidence::{Interval, Level};
use crate::sample::{Bound, Sample};

/// The values of one figure in trial order.
#[derive(Debug, Clone, Copy)]
pub struct Series<'a> {
    /// Series of the same group come from the same trials and are paired value by value.
    pub group: usize,
    pub sample: &'a Sample,
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
    /// Of what the value is a limit only; the interval is then that of the limit.
    pub bound: Option<Bound>,
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
    let means = series
        .iter()
        .enumerate()
        .map(|(index, one)| one.sample.mean().ok_or(PropagateError::NoValues(index)))
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

    let bound = bound(series, &means, value, &f);
    let mut groups: BTreeMap<usize, FigureGroup> = BTreeMap::new();
    let (mut offset, mut grid) = (0.0, 0.0);
    for (index, Series { group, sample }) in series.iter().enumerate() {
        let resolution = sample.resolution();
        let reach = sample.standard_deviation().unwrap_or(0.0).max(resolution.width());
        let slope = slope(&f, &means, index, reach) / divisor;
        if !slope.is_finite() {
            return Err(PropagateError::NotFinite);
        }
        let values = sample.values();
        let group = groups.entry(*group).or_insert_with(|| FigureGroup { sums: vec![0.0; values.len()], grid: 0.0 });
        if group.sums.len() != values.len() {
            return Err(PropagateError::Unpaired { one: group.sums.len(), other: values.len() });
        }
        for (sum, x) in group.sums.iter_mut().zip(values) {
            *sum += slope * (x - means[index]);
        }
        let own = (slope * resolution.uncertainty()).powi(2);
        group.grid += own;
        grid += own;
        offset += slope * resolution.offset();
    }

    let mut variance = 0.0;
    let mut weighted = 0.0;
    for FigureGroup { sums, grid } in groups.into_values() {
        let trials = sums.len() as f64;
        // What scatters by less than the grid does not show.
        let Some(group) = Sample::from(sums).variance().map(|variance| variance.max(grid) / trials) else {
            return Ok(Estimate { value, interval: None, degrees_of_freedom: None, bound });
        };
        variance += group;
        weighted += group * group / (trials - 1.0);
    }
    // Far below what a double can tell from the value, squares vanish; such a variance is none.
    if variance == 0.0 || weighted == 0.0 {
        let interval = Some(Interval { low: value, high: value, level });
        return Ok(Estimate { value, interval, degrees_of_freedom: None, bound });
    }
    let degrees_of_freedom = variance * variance / weighted;
    let half = (level.student_t(degrees_of_freedom) * variance.sqrt()).hypot(level.normal() * grid.sqrt());
    if half.is_nan() {
        return Err(PropagateError::NotFinite);
    }
    // The value itself is always in it.
    let (down, up) = ((offset - half).min(0.0), (offset + half).max(0.0));
    let (low, high) = match scale {
        Scale::Linear => (value + down, value + up),
        Scale::Logarithmic => (value * down.exp(), value * up.exp()),
    };
    // Infinity would not survive JSON.
    let (low, high) = (low.max(f64::MIN), high.min(f64::MAX));
    let interval = Some(Interval { low, high, level });
    Ok(Estimate { value, interval, degrees_of_freedom: Some(degrees_of_freedom), bound })
}

/// The figures of the same trials.
struct FigureGroup {
    /// The linearised value of each trial, less that at the means.
    sums: Vec<f64>,
    /// Variance that the resolution of its figures hides.
    grid: f64,
}

/// How far from a bound the true value is tried, as a share of it: a function that rises with a figure everywhere rises at
/// each of these. Not to zero and below, where a positive figure cannot be.
const ABOVE: [f64; 4] = [1e-3, 0.5, 10.0, 1e6];
const BELOW: [f64; 3] = [-1e-3, -0.5, -0.999];

/// Of what the value of `f` is a limit, given that some of the figures are; `None` where it depends on none of those.
fn bound(series: &[Series<'_>], means: &[f64], value: f64, f: &impl Fn(&[f64]) -> f64) -> Option<Bound> {
    let at = |index: usize, share: f64| {
        let mut point = means.to_vec();
        point[index] += share * means[index].abs();
        f(&point)
    };
    let effect = |there: f64| match there.partial_cmp(&value) {
        Some(Ordering::Greater) => Some(Bound::AtLeast),
        Some(Ordering::Less) => Some(Bound::AtMost),
        Some(Ordering::Equal) => None,
        None => Some(Bound::Open),
    };
    let bounds = series.iter().enumerate().filter_map(|(index, one)| Some((index, one.sample.bound()?)));
    let shares = bounds.flat_map(|(index, bound)| {
        let above = ABOVE.iter().filter(move |_| bound.is_open_above());
        let below = BELOW.iter().filter(move |_| bound.is_open_below());
        above.chain(below).map(move |share| (index, *share))
    });
    shares.filter_map(|(index, share)| effect(at(index, share))).reduce(Bound::and)
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
