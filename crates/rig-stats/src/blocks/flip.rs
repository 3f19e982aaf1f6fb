//! The sign-flip test: where nothing differs, each value might as well have had the other sign.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::resample::Resampling;

/// So many values have all their signs tried; of more, some are drawn.
const EXHAUSTIVE: usize = 14;

/// The smallest two-sided p that so many blocks can give: 2 / 2^n.
pub fn least_p(blocks: usize) -> f64 {
    (2.0 * 0.5f64.powi(i32::try_from(blocks).unwrap_or(i32::MAX))).min(1.0)
}

/// Two-sided, by the sum: the share of the choices of signs whose sum is as far from zero.
pub(super) fn p(values: &[f64], resampling: Resampling) -> f64 {
    let n = values.len();
    let size: f64 = values.iter().map(|value| value.abs()).sum();
    // Choices that are equal must count as equal, also when sums in another order are rounded differently.
    let observed = values.iter().sum::<f64>().abs() - 1e-12 * size;
    if n <= EXHAUSTIVE {
        let all = 1u32 << n;
        let sum = |signs: u32| -> f64 {
            values.iter().enumerate().map(|(i, value)| if signs >> i & 1 == 1 { -value } else { *value }).sum()
        };
        return (0..all).filter(|&signs| sum(signs).abs() >= observed).count() as f64 / f64::from(all);
    }
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(resampling.seed);
    let mut as_far = 1u32;
    for _ in 0..resampling.draws {
        let sum: f64 = values.iter().map(|value| if generator.random_bool(0.5) { -value } else { *value }).sum();
        as_far += u32::from(sum.abs() >= observed);
    }
    f64::from(as_far) / f64::from(resampling.draws + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let p = |values: &[f64]| p(values, Resampling::default());
        assert_eq!(p(&[1.0, 2.0, 3.0]), 0.25, "all of one sign: 2 of 8");
        assert_eq!(p(&[-1.0, 2.0, 3.0]), 0.5, "sums of 4 and 6, with either sign: 4 of 8");
        assert_eq!(p(&[1.0, -1.0]), 1.0);
        assert_eq!((least_p(1), least_p(3), least_p(6)), (1.0, 0.25, 0.03125));
        assert_eq!(p(&[1.0; 6]), least_p(6));
    }

    /// Drawn signs say about what all of them would.
    #[test]
    fn drawn_signs_agree_with_all_of_them() {
        let values: Vec<f64> = (0..EXHAUSTIVE).map(|i| (i as f64 * 1.7).sin() + 0.4).collect();
        let exact = p(&values, Resampling::default());
        let padded = [values, vec![0.0]].concat();
        assert!((p(&padded, Resampling::default()) - exact).abs() < 0.02, "{exact}");
    }
}
