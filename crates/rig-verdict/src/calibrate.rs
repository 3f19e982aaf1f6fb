//! What can be decided on a machine: the same thing is measured twice, and something else beside it, in blocks. Their scatter tells
//! how often runs of so many blocks answer rightly.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rig_stats::blocks::{Contrast, log_ratios};
use rig_stats::compare::Resampling;
use rig_stats::confidence::{Interval, Level};

/// Runs that are drawn for each number.
const DRAWN: u32 = 400;
/// True differences that are tried, percent.
const SIZES: [f64; 12] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0];
/// How often a difference has to be found to count as found.
const FOUND: f64 = 0.9;

/// What two series of trials in the same blocks say of each other.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedSeries {
    contrast: Contrast,
}

/// How often runs of this many blocks decide rightly, and which differences they find.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DecisionPower {
    pub blocks: usize,
    /// The share of runs in which nothing differs that say "the same" (within the margin).
    pub same: f64,
    /// The share of runs in which nothing differs that wrongly say that something differs by more than the margin.
    pub differs: f64,
    /// The smallest true difference that nine of ten runs find, percent; `None` where that is more than 30.
    pub found_from: Option<f64>,
}

impl PairedSeries {
    /// From the values of two arms, block by block; `None` of fewer than two blocks with both.
    pub fn of(one: &[f64], other: &[f64]) -> Option<Self> {
        let (ratios, _) = log_ratios(one, other);
        Contrast::of(ratios).filter(|contrast| contrast.blocks() > 1).map(|contrast| Self { contrast })
    }

    pub fn blocks(&self) -> usize {
        self.contrast.blocks()
    }

    /// The ratio of the second arm to the first.
    pub fn ratio(&self) -> f64 {
        self.contrast.centre().exp()
    }

    pub fn interval(&self, level: Level) -> Option<Interval> {
        let interval = self.contrast.interval(level, Resampling::default())?;
        Some(Interval { low: interval.low.exp(), high: interval.high.exp(), level })
    }

    /// The verdict on equality within `margin`, a share: `None` where nothing is decided.
    pub fn is_same(&self, margin: f64, level: Level) -> Option<bool> {
        is_same(&self.contrast, margin, level)
    }

    /// Whether it shows that the arms differ at all.
    pub fn is_different(&self, level: Level) -> bool {
        is_different(&self.contrast, level)
    }

    /// What runs of `blocks` can tell on this machine, by drawing such runs from the scatter of this pair around its centre.
    pub fn power(&self, blocks: usize, margin: f64, level: Level, seed: u64) -> DecisionPower {
        let centre = self.contrast.centre();
        let residuals: Vec<f64> = self.contrast.values().iter().map(|value| value - centre).collect();
        // Samples drawn from n residuals have (n - 1) / n of the variance that the residuals stand for.
        let n = residuals.len() as f64;
        let wider = (n / (n - 1.0)).sqrt();
        let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut runs = |by: f64, test: &dyn Fn(&Contrast) -> bool| {
            let passed = (0..DRAWN).filter(|_| {
                let value = |_| by + wider * residuals[generator.random_range(0..residuals.len())];
                Contrast::of((0..blocks).map(value).collect()).is_some_and(|run| test(&run))
            });
            passed.count() as f64 / f64::from(DRAWN)
        };
        let same = runs(0.0, &|run| is_same(run, margin, level) == Some(true));
        let differs = runs(0.0, &|run| is_same(run, margin, level) == Some(false));
        let mut found = |size: &f64| runs((1.0 + size / 100.0).ln(), &|run| is_different(run, level)) >= FOUND;
        let found_from = SIZES.into_iter().find(|size| found(size));
        DecisionPower { blocks, same, differs, found_from }
    }
}

/// Decided as claims are: both the test and the interval have to say so. For a difference the test may err by half of what the level
/// leaves on either side, for equality by all of it.
fn is_same(contrast: &Contrast, margin: f64, level: Level) -> Option<bool> {
    let (low, high) = (-(1.0 + margin).ln(), (1.0 + margin).ln());
    let equality = contrast.equality(low, high);
    let says = |level: Level, test: &dyn Fn(Interval) -> bool| {
        contrast.interval(level, Resampling::default()).is_some_and(test)
    };
    if equality.same <= level.alpha() && says(level.of_equality(), &|of| of.low >= low && of.high <= high) {
        return Some(true);
    }
    let differs = equality.differs <= level.alpha() / 2.0 && says(level, &|of| of.high < low || of.low > high);
    differs.then_some(false)
}

fn is_different(contrast: &Contrast, level: Level) -> bool {
    let p = contrast.p_above(0.0).min(contrast.p_below(0.0));
    let excludes = |of: Interval| of.low > 0.0 || of.high < 0.0;
    p <= level.alpha() / 2.0 && contrast.interval(level, Resampling::default()).is_some_and(excludes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks whose ratio scatters by about `scatter` around 1.
    fn pair(scatter: f64) -> PairedSeries {
        let waves = |phase: f64| (0..24).map(move |i| (f64::from(i) * 2.4 + phase).sin() * 2f64.sqrt());
        let one: Vec<f64> = waves(0.3).map(|wave| 100.0 * (0.1 * wave).exp()).collect();
        let other: Vec<f64> = one.iter().zip(waves(1.9)).map(|(one, wave)| one * (scatter * wave).exp()).collect();
        PairedSeries::of(&one, &other).unwrap()
    }

    #[test]
    fn calm_machines_tell_more_than_restless_ones() {
        let level = Level::default();
        let calm = pair(0.01).power(12, 0.05, level, 1);
        assert!(calm.same > 0.98 && calm.differs == 0.0, "{calm:?}");
        assert!(calm.found_from.is_some_and(|from| (0.5..=2.0).contains(&from)), "{calm:?}");
        let restless = pair(0.2).power(12, 0.05, level, 1);
        assert!(restless.same < 0.1 && restless.differs < 0.05, "{restless:?}");
        assert!(restless.found_from.is_none_or(|from| from >= 15.0), "{restless:?}");
        let longer = pair(0.2).power(40, 0.05, level, 1);
        assert!(longer.found_from.unwrap() < restless.found_from.unwrap_or(f64::INFINITY), "{longer:?}");
    }

    #[test]
    fn what_was_measured_is_told_too() {
        let (same, level) = (pair(0.01), Level::default());
        assert_eq!((same.blocks(), same.is_same(0.05, level)), (24, Some(true)));
        assert!(same.interval(level).unwrap().contains(same.ratio()));
        let one = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98];
        let more = [1.2, 1.215, 1.185, 1.205, 1.22, 1.17];
        let found = PairedSeries::of(&one, &more).unwrap();
        assert!(found.is_different(level) && (found.ratio() - 1.2).abs() < 0.01);
        assert_eq!(PairedSeries::of(&[1.0], &[1.0]), None);
    }
}
