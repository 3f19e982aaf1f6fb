//! Looking at results before all blocks are made, without being wrong more often.
//!
//! The rule is group-sequential with an alpha-spending function after O'Brien and Fleming: at the share t of the blocks planned
//! the chance of a wrong answer on one side, a = alpha / 2, of which 2 - 2 * Phi(z(a / 2) / sqrt(t)) is spent by then (K. K. G.
//! Lan, D. L. DeMets, Biometrika 70(3), 1983), so that early looks need overwhelming evidence and the last one hardly more than a test without looks. The
//! boundary of each look follows by integrating the density of the sums that have not crossed yet (P. Armitage, C. K.
//! McPherson, B. C. Rowe, Journal of the Royal Statistical Society A 132(2), 1969). Boundaries are for a normal statistic; that of
//! a look is applied as its two-sided p ([`InterimAnalysis::p`]) to Student's t, whose tails are heavier.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Looks of a plan, at most.
const LOOKS: u32 = 5;
/// Blocks before which nothing is decided: fewer have no test that assumes nothing of their distribution.
pub const LEAST: u32 = 6;
/// Points between the boundaries at which a density is known.
const POINTS: usize = 400;

/// A look at the results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InterimAnalysis {
    /// After so many blocks.
    pub blocks: u32,
    /// The two-sided p that a test has to reach.
    pub p: f64,
}

/// After how many blocks to look, where `planned` are to be made: five times at even distances and after the last, at no
/// fewer than [`LEAST`].
pub fn looks(planned: u32) -> Vec<u32> {
    let mut looks: Vec<u32> = (1..=LOOKS)
        .map(|look| (planned * look).div_ceil(LOOKS))
        .filter(|blocks| *blocks >= LEAST || *blocks == planned)
        .collect();
    looks.dedup();
    looks
}

/// The boundaries of the looks at a plan of `planned` blocks that ended after `made`, at which the rest of `alpha` is spent.
pub fn boundaries(planned: u32, made: u32, alpha: f64) -> Vec<InterimAnalysis> {
    let mut blocks: Vec<u32> = looks(planned).into_iter().filter(|blocks| *blocks < made.min(planned)).collect();
    blocks.push(made);
    let spent: Vec<f64> = blocks
        .iter()
        .map(|&look| if look == made { alpha } else { spent(f64::from(look) / f64::from(planned), alpha) })
        .collect();
    let z = crossings(&blocks.iter().map(|blocks| f64::from(*blocks)).collect::<Vec<_>>(), &spent);
    let normal = Normal::standard();
    blocks.iter().zip(z).map(|(&blocks, z)| InterimAnalysis { blocks, p: 2.0 * normal.sf(z) }).collect()
}

/// Of alpha, at the share `t` of the plan.
fn spent(t: f64, alpha: f64) -> f64 {
    let normal = Normal::standard();
    let of_a_side = 2.0 * normal.sf(normal.inverse_cdf(1.0 - alpha / 4.0) / t.sqrt());
    2.0 * of_a_side
}

/// The z of each look: that with which the chance to have crossed by then is what is spent.
fn crossings(information: &[f64], spent: &[f64]) -> Vec<f64> {
    let normal = Normal::standard();
    let mut z = Vec::with_capacity(information.len());
    // Weights and places of the sums that have not crossed: at first, all at 0.
    let mut density: Vec<(f64, f64)> = vec![(0.0, 1.0)];
    let (mut before, mut used) = (0.0, 0.0);
    for (&now, &spent) in information.iter().zip(spent) {
        let step = (now - before).sqrt();
        let crossed = |z: f64| -> f64 {
            let edge = z * now.sqrt();
            let beyond = |(place, weight): &(f64, f64)| {
                weight * (normal.sf((edge - place) / step) + normal.cdf((-edge - place) / step))
            };
            density.iter().map(beyond).sum()
        };
        let share = (spent - used).max(0.0);
        let (mut low, mut high) = (0.0, 40.0);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if crossed(middle) > share { low = middle } else { high = middle }
        }
        z.push(high);
        // Beyond 12 standard deviations there is nothing to integrate.
        let edge = high.min(12.0) * now.sqrt();
        let width = 2.0 * edge / POINTS as f64;
        let places = (0..=POINTS).map(|i| {
            let place = -edge + width * i as f64;
            let arrived: f64 =
                density.iter().map(|(from, weight)| weight * normal.pdf((place - from) / step) / step).sum();
            // Simpson's rule.
            let simpson = if i == 0 || i == POINTS {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            };
            (place, arrived * width * simpson / 3.0)
        });
        density = places.collect();
        (before, used) = (now, spent);
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Contrast;
    use crate::normal::NormalVariates as Draws;

    /// Five looks at even distances, 5 % two-sided: 4.8769, 3.3569, 2.6803, 2.2898, 2.0310 (gsDesign and ldbounds print these;
    /// D. M. Reboussin, D. L. DeMets et al., Controlled Clinical Trials 21(3), 2000).
    #[test]
    fn boundaries_are_the_published_ones() {
        let normal = Normal::standard();
        let found: Vec<f64> =
            boundaries(30, 30, 0.05).iter().map(|look| normal.inverse_cdf(1.0 - look.p / 2.0)).collect();
        for (found, published) in found.iter().zip([4.8769, 3.3569, 2.6803, 2.2898, 2.0310]) {
            assert!((found - published).abs() < 0.002, "{found} against {published}");
        }
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn short_plans_have_fewer_looks() {
        assert_eq!(looks(30), [6, 12, 18, 24, 30]);
        assert_eq!(looks(12), [8, 10, 12]);
        assert_eq!(looks(4), [4]);
        assert_eq!(looks(1), [1]);
        let one = boundaries(4, 4, 0.05);
        assert!((one[0].p - 0.05).abs() < 1e-9 && one.len() == 1);
        // A run that ended early spends what is left, and one that went on longer does so at its end.
        assert_eq!(boundaries(30, 14, 0.05).iter().map(|look| look.blocks).collect::<Vec<_>>(), [6, 12, 14]);
        assert_eq!(boundaries(12, 20, 0.05).iter().map(|look| look.blocks).collect::<Vec<_>>(), [8, 10, 20]);
    }

    /// Whether anything is found in blocks whose centre is `effect` standard deviations, and after how many.
    fn found(draws: &mut Draws, effect: f64, heavy: bool, plan: &[InterimAnalysis]) -> Option<u32> {
        let n = plan.last().unwrap().blocks as usize;
        let values: Vec<f64> = (0..n)
            .map(|_| {
                let scale = if heavy && draws.draw(0.0, 1.0).abs() > 1.645 { 5.0 } else { 1.0 };
                draws.draw(0.0, scale) + effect
            })
            .collect();
        let contrast = Contrast::of(values).unwrap();
        let crosses = |look: &&InterimAnalysis| {
            let so_far = contrast.first(look.blocks as usize).unwrap();
            2.0 * so_far.p_above(0.0).min(so_far.p_below(0.0)) <= look.p
        };
        plan.iter().find(crosses).map(|look| look.blocks)
    }

    /// The error that is promised is kept under looks, where looking without the rule would triple it.
    #[test]
    fn looking_does_not_raise_the_error() {
        let rounds = 4000;
        let mut draws = Draws(31);
        for (planned, heavy) in [(30, false), (30, true), (12, false)] {
            let plan = boundaries(planned, planned, 0.05);
            let naive: Vec<InterimAnalysis> = plan.iter().map(|look| InterimAnalysis { p: 0.05, ..*look }).collect();
            let rate = |draws: &mut Draws, plan: &[InterimAnalysis]| {
                (0..rounds).filter(|_| found(draws, 0.0, heavy, plan).is_some()).count() as f64 / f64::from(rounds)
            };
            let (kept, naive) = (rate(&mut draws, &plan), rate(&mut draws, &naive));
            // 5 % and three standard deviations of a count of 4000; the t of few blocks is an approximation.
            assert!(kept <= 0.062, "{planned}, {heavy}: {kept}");
            assert!(kept >= 0.02, "{planned}, {heavy}: {kept} would be too careful");
            assert!(naive > 0.08, "{planned}, {heavy}: {naive}");
        }
    }

    #[test]
    fn a_large_effect_ends_the_question_early() {
        let plan = boundaries(30, 30, 0.05);
        let mut draws = Draws(5);
        let found: Vec<Option<u32>> = (0..400).map(|_| found(&mut draws, 1.0, false, &plan)).collect();
        let power = found.iter().flatten().count();
        let blocks: u32 = found.iter().map(|found| found.unwrap_or(30)).sum();
        assert!(power > 390, "{power} of 400");
        assert!(f64::from(blocks) / 400.0 < 21.0, "{blocks} in 400 plans of 30 blocks");
    }
}
