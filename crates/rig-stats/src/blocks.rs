//! What is measured in blocks: every configuration once in each, in random order, so that what the machine does to a block is
//! done to all of them and cancels in their ratio.
//!
//! # The value of a block
//! One number that tells two configurations apart: the logarithm of their ratio, ln(B) - ln(A), where both are positive
//! ([`log_ratios`]), or any other function of what the block measured. With a correlation rho between the two within blocks
//! the variance of the mean is 1 - rho times that of two independent samples (W. G. Cochran, G. M. Cox, Experimental Designs,
//! 2nd ed. 1957, 4.2).
//!
//! # Estimate and interval
//! - The estimate is Hodges and Lehmann's: the median of all means of two blocks, a block with itself included (J. L. Hodges,
//!   E. L. Lehmann, Annals of Mathematical Statistics 34(2), 1963). Up to 29 % of the blocks may be anything.
//! - The interval is Walsh's: those means ranked, and as many left out at either end as the exact distribution of the
//!   signed-rank statistic allows (J. W. Tukey, in M. Hollander, D. A. Wolfe, Nonparametric Statistical Methods, 3.3). It assumes
//!   that the values are symmetric around their centre, which a difference of two of the same kind is. It needs so many blocks
//!   that 2 / 2^n is at most 1 - level ([`least_p`]): 6 for 95 %. With fewer it is Student's of the mean, which assumes that
//!   they are normal.
//! - From [`WALSH_MOST`] blocks on it is the percentile interval of the trimmed mean over resampled blocks (B. Efron, Annals of
//!   Statistics 7(1), 1979).
//!
//! # Disturbances
//! The measured part of what disturbed the two trials of a block can be taken out of its value ([`covariate`]).
//!
//! # Tests
//! [`Contrast::p_above`] and [`Contrast::p_below`] are those of Student's t of the trimmed mean with the winsorised variance
//! (J. W. Tukey, D. H. McLaughlin, Sankhya A 25, 1963): an eighth of the blocks is left out at either end, none of fewer than
//! 8. Unlike those of ranks they are as small as the values say, which is what corrections for many questions
//! ([`holm`]) and for many looks ([`sequential`]) need. [`Contrast::flips`] is the sign-flip test (R. A. Fisher, The Design of
//! Experiments, 1935), which assumes symmetry alone and never gives less than [`least_p`].

pub mod covariate;
mod flip;
mod holm;
pub mod modes;
mod order;
pub mod plan;
pub mod sequential;
mod walsh;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF, StudentsT};

pub use self::flip::least_p;
pub use self::holm::holm;
pub use self::order::order;
use crate::confidence::{Interval, Level};
use crate::resample::Resampling;
use crate::sample::Sample;

/// From so many blocks on the interval comes of resampling: the exact one would order thousands of means.
pub const WALSH_MOST: usize = 60;

/// One in so many blocks is trimmed at either end.
const TRIMMED: usize = 8;

/// The value of each block.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    values: Vec<f64>,
}

/// What equality within a margin is: two one-sided tests (D. J. Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics
/// 15(6), 1987).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Equality {
    /// The larger p of the two: that the centre lies at or beyond one of the margins.
    pub same: f64,
    /// The smaller p of being within: what speaks for a difference that matters.
    pub differs: f64,
}

/// The logarithms of new / old, block by block, of the blocks in which both are positive and finite; and how many are not.
pub fn log_ratios(old: &[f64], new: &[f64]) -> (Vec<f64>, usize) {
    let both = old.iter().zip(new);
    let ratios: Vec<f64> = both
        .map(|(old, new)| (new / old, old))
        .filter(|(ratio, old)| **old > 0.0 && *ratio > 0.0)
        .map(|(ratio, _)| ratio.ln())
        .filter(|ratio| ratio.is_finite())
        .collect();
    let lacking = old.len().max(new.len()) - ratios.len();
    (ratios, lacking)
}

impl Contrast {
    /// `None` where there is no value or one is not finite.
    pub fn of(values: Vec<f64>) -> Option<Self> {
        (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(Self { values })
    }

    pub fn blocks(&self) -> usize {
        self.values.len()
    }

    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The first `blocks` of them, as they were when no more had been made.
    #[must_use]
    pub fn first(&self, blocks: usize) -> Option<Self> {
        self.values.get(..blocks).map(|values| Self { values: values.to_vec() })
    }

    /// Hodges and Lehmann's estimate of the centre.
    pub fn centre(&self) -> f64 {
        walsh::centre(&self.values)
    }

    /// Where the centre lies; `None` of a single block.
    pub fn interval(&self, level: Level, resampling: Resampling) -> Option<Interval> {
        let n = self.blocks();
        let alpha = level.alpha();
        let (low, high) = match n {
            0 | 1 => return None,
            _ if n >= WALSH_MOST => self.resampled(level, resampling),
            _ if least_p(n) <= alpha => walsh::interval(&self.values, alpha),
            _ => {
                let centre = self.centre();
                let interval = level.mean_interval(&Sample::from(self.values.clone()))?;
                (interval.low.min(centre), interval.high.max(centre))
            }
        };
        Some(Interval { low, high, level })
    }

    /// The percentile interval of the trimmed mean over resampled blocks.
    fn resampled(&self, level: Level, resampling: Resampling) -> (f64, f64) {
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(resampling.seed);
        let n = self.blocks();
        let mut means: Vec<f64> = (0..resampling.draws)
            .map(|_| {
                let mut drawn: Vec<f64> = (0..n).map(|_| self.values[generator.random_range(0..n)]).collect();
                drawn.sort_unstable_by(f64::total_cmp);
                trimmed(&drawn).mean
            })
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let tail = level.alpha() / 2.0;
        let rank = ((f64::from(resampling.draws) + 1.0) * tail).floor().max(1.0) as usize - 1;
        let centre = self.centre();
        (means[rank].min(centre), means[means.len() - 1 - rank].max(centre))
    }

    /// The mean without an eighth of the blocks at either end.
    pub fn trimmed_mean(&self) -> f64 {
        trimmed(&self.sorted()).mean
    }

    /// The standard error of the trimmed mean; `None` of a single block.
    pub fn error(&self) -> Option<f64> {
        trimmed(&self.sorted()).error
    }

    /// One-sided p of the centre's being `threshold` or less: small where it lies above. 1 of a single block.
    pub fn p_above(&self, threshold: f64) -> f64 {
        let TrimmedMean { mean, error, degrees } = trimmed(&self.sorted());
        let distance = mean - threshold;
        match error {
            None => 1.0,
            // Blocks that all say the same are as sure as their number allows.
            Some(error) if error <= f64::EPSILON * mean.abs().max(threshold.abs()) => {
                match distance.partial_cmp(&0.0) {
                    Some(std::cmp::Ordering::Greater) => least_p(self.blocks()) / 2.0,
                    _ => 1.0,
                }
            }
            Some(error) => StudentsT::new(0.0, 1.0, degrees).map_or(1.0, |t| t.sf(distance / error)),
        }
    }

    /// One-sided p of the centre's being `threshold` or more: small where it lies below.
    pub fn p_below(&self, threshold: f64) -> f64 {
        let mirrored = Self { values: self.values.iter().map(|value| -value).collect() };
        mirrored.p_above(-threshold)
    }

    /// Two-sided p of the sign-flip test of a centre at `threshold`.
    pub fn flips(&self, threshold: f64, resampling: Resampling) -> f64 {
        let moved: Vec<f64> = self.values.iter().map(|value| value - threshold).collect();
        flip::p(&moved, resampling)
    }

    /// The two one-sided tests of a centre between `low` and `high`.
    pub fn equality(&self, low: f64, high: f64) -> Equality {
        Equality { same: self.p_above(low).max(self.p_below(high)), differs: self.p_below(low).min(self.p_above(high)) }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

struct TrimmedMean {
    mean: f64,
    /// Its standard error; `None` of a single value.
    error: Option<f64>,
    degrees: f64,
}

/// The trimmed mean of sorted values.
fn trimmed(sorted: &[f64]) -> TrimmedMean {
    let n = sorted.len();
    let cut = n / TRIMMED;
    let inner = &sorted[cut..n - cut];
    let mean = inner.iter().sum::<f64>() / inner.len() as f64;
    let mut winsorised = sorted.to_vec();
    winsorised[..cut].fill(inner[0]);
    winsorised[n - cut..].fill(inner[inner.len() - 1]);
    let deviation = Sample::from(winsorised).standard_deviation();
    let error = deviation.map(|deviation| deviation / (inner.len() as f64 / n as f64 * (n as f64).sqrt()));
    TrimmedMean { mean, error, degrees: (inner.len() - 1) as f64 }
}

#[cfg(test)]
mod tests;
