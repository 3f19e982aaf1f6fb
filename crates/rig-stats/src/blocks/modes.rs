//! Results that take one of two values, as where a hypervisor puts a virtual CPU in one of two places.
//!
//! A sample is split where that leaves the least variance within the two parts (J. A. Hartigan, Clustering Algorithms, 1975,
//! 4.2, for two clusters). It is called two-valued where so little is left that fewer than one of a thousand normal samples of
//! that size has as little, by simulation from a fixed seed, where each part has at least two values and a fifth of all, and
//! where the parts are apart by more than [`APART`].

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, Normal};

/// Fewer values show no second mode.
pub const LEAST: usize = 6;
/// How far the two have to be apart to matter, of the lower one.
pub const APART: f64 = 0.03;
const DRAWS: usize = 4000;
const SHARE: f64 = 0.2;
/// One in so many normal samples may be called two-valued.
const WRONG: usize = 1000;

/// Two modes of positive values.
#[derive(Debug, Clone, PartialEq)]
pub struct Modes {
    /// Values of the lower and of the higher one, in the order in which they were measured.
    pub low: Vec<f64>,
    pub high: Vec<f64>,
}

impl Modes {
    /// `None` where the values are not two-valued, or not positive.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < LEAST || values.iter().any(|value| !(value.is_finite() && *value > 0.0)) {
            return None;
        }
        let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let ModeSplit { left, border, apart } = split(&logarithms)?;
        if apart < (1.0 + APART).ln() || left >= critical(values.len()) {
            return None;
        }
        let (low, high) = values.iter().partition(|value| value.ln() <= border);
        Some(Self { low, high })
    }

    /// How many of all values are of the higher one.
    pub fn share_high(&self) -> f64 {
        self.high.len() as f64 / (self.low.len() + self.high.len()) as f64
    }
}

struct ModeSplit {
    /// The share of the variance that is left within the parts.
    left: f64,
    /// The highest value of the lower part.
    border: f64,
    /// Between the parts' means.
    apart: f64,
}

fn split(values: &[f64]) -> Option<ModeSplit> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    let fewest = 2.max((SHARE * n as f64).ceil() as usize);
    // Around the middle, so that nothing is lost to rounding.
    let middle = sorted[n / 2];
    let sums: Vec<(f64, f64)> = std::iter::once((0.0, 0.0))
        .chain(sorted.iter().scan((0.0, 0.0), |sums, value| {
            let value = value - middle;
            *sums = (sums.0 + value, sums.1 + value * value);
            Some(*sums)
        }))
        .collect();
    let squares = |from: usize, to: usize| {
        let (sum, square) = (sums[to].0 - sums[from].0, sums[to].1 - sums[from].1);
        (square - sum * sum / (to - from) as f64).max(0.0)
    };
    let total = squares(0, n);
    let mean = |from: usize, to: usize| (sums[to].0 - sums[from].0) / (to - from) as f64;
    let best = (fewest..=n - fewest).min_by(|&one, &other| {
        (squares(0, one) + squares(one, n)).total_cmp(&(squares(0, other) + squares(other, n)))
    })?;
    (total > 0.0).then(|| ModeSplit {
        left: (squares(0, best) + squares(best, n)) / total,
        border: sorted[best - 1],
        apart: mean(best, n) - mean(0, best),
    })
}

/// What is left of a normal sample's variance in fewer than one of [`WRONG`] cases.
fn critical(n: usize) -> f64 {
    static KNOWN: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());
    // From here on it hardly changes, and drawing would take long.
    let n = n.min(60);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(n).or_insert_with(|| {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(n as u64);
        let normal = Normal::standard();
        let mut left: Vec<f64> = (0..DRAWS)
            .filter_map(|_| {
                let values: Vec<f64> = (0..n).map(|_| normal.inverse_cdf(generator.random_range(1e-12..1.0))).collect();
                Some(split(&values)?.left)
            })
            .collect();
        left.sort_unstable_by(f64::total_cmp);
        left.get(DRAWS / WRONG).copied().unwrap_or(0.0)
    })
}

/// Two-sided p of two shares' being the same (R. A. Fisher, Statistical Methods for Research Workers, 5th ed. 1934, 21.02): of
/// `old.1` values `old.0` are of one kind, of `new.1` values `new.0`.
pub fn fisher(old: (usize, usize), new: (usize, usize)) -> f64 {
    let (all, of_kind) = (old.1 + new.1, old.0 + new.0);
    let logarithms: Vec<f64> = std::iter::once(0.0)
        .chain((1..=all).scan(0.0, |sum, n| {
            *sum += (n as f64).ln();
            Some(*sum)
        }))
        .collect();
    let choose = |n: usize, k: usize| logarithms[n] - logarithms[k] - logarithms[n - k];
    let chance = |k: usize| (choose(old.1, k) + choose(new.1, of_kind - k) - choose(all, of_kind)).exp();
    let possible = of_kind.saturating_sub(new.1)..=of_kind.min(old.1);
    let observed = chance(old.0) * (1.0 + 1e-9);
    possible.map(chance).filter(|chance| *chance <= observed).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normal::NormalVariates as Draws;

    fn two(draws: &mut Draws, n: usize, second: f64) -> Vec<f64> {
        (0..n).map(|i| draws.draw(if (i as f64 + 0.5) / (n as f64) < second { 120.0 } else { 100.0 }, 1.5)).collect()
    }

    #[test]
    fn two_values_are_found_with_their_shares() {
        let mut draws = Draws(11);
        let mut found = 0;
        for _ in 0..200 {
            let values = two(&mut draws, 20, 0.3);
            if let Some(modes) = Modes::of(&values) {
                assert_eq!((modes.low.len(), modes.high.len()), (14, 6));
                assert!((modes.share_high() - 0.3).abs() < 1e-12);
                found += 1;
            }
        }
        assert!(found > 190, "{found} of 200");
    }

    #[test]
    fn one_value_is_seldom_taken_for_two() {
        let mut draws = Draws(12);
        for n in [6, 10, 30] {
            let wrong = (0..1000).filter(|_| Modes::of(&draws.draws(n, 100.0, 5.0)).is_some()).count();
            assert!(wrong <= 6, "{n}: {wrong} of 1000");
        }
        // A single value far away is no second mode, and neither are values hardly apart.
        assert_eq!(Modes::of(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 200.0]), None);
        assert_eq!(Modes::of(&[100.0, 100.0, 100.0, 101.0, 101.0, 101.0]), None);
        assert_eq!(Modes::of(&[1.0, 1.0, 1.0, 0.0, 0.0, 0.0]), None, "zero has no logarithm");
    }

    #[test]
    fn fishers_tea() {
        // The lady who tasted tea: 3 of 4 and 1 of 4 give 34 / 70 two-sided, all right 2 / 70.
        assert!((fisher((3, 4), (1, 4)) - 34.0 / 70.0).abs() < 1e-9);
        assert!((fisher((4, 4), (0, 4)) - 2.0 / 70.0).abs() < 1e-9);
        assert!((fisher((2, 4), (2, 4)) - 1.0).abs() < 1e-9);
    }
}
