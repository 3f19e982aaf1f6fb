//! Drawing again from what was measured.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::confidence::Level;

/// Permutations that are all tried; where there are more, some are drawn.
const EXHAUSTIVE: u64 = 20_000;

/// How often to draw, and from which seed. The same samples always give the same figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resampling {
    /// Bootstrap resamples, and permutations where not all are tried. At least 99.
    pub draws: u32,
    pub seed: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { draws: 9999, seed: 0x6e65_7472_6967 }
    }
}

/// What a permutation test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Permutation {
    /// Twice the smaller one-sided p, at most 1.
    pub p: f64,
    /// The least p that samples of these sizes can give.
    pub least: f64,
}

impl Resampling {
    fn generator(self) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(self.seed)
    }

    /// The percentile interval of `change(mean of old, mean of new)`.
    pub(crate) fn bootstrap(
        self,
        old: &[f64],
        new: &[f64],
        level: Level,
        change: impl Fn(f64, f64) -> f64,
    ) -> (f64, f64) {
        let mut generator = self.generator();
        let mut resampled = |values: &[f64]| {
            let n = values.len();
            (0..n).map(|_| values[generator.random_range(0..n)]).sum::<f64>() / n as f64
        };
        let mut changes: Vec<f64> = (0..self.draws).map(|_| change(resampled(old), resampled(new))).collect();
        changes.sort_unstable_by(f64::total_cmp);
        // With 9999 draws the 250th from either end: the ranks that make 95 % of 10000 gaps.
        let tail = level.alpha() / 2.0;
        let rank = ((f64::from(self.draws) + 1.0) * tail).floor().max(1.0) as usize - 1;
        (changes[rank], changes[changes.len() - 1 - rank])
    }

    /// Tests that the values of both samples come from one distribution, by the difference of the means.
    pub(crate) fn permutation(self, old: &[f64], new: &[f64]) -> Permutation {
        let all: Vec<f64> = old.iter().chain(new).copied().collect();
        // The total is fixed, so that the sum of one part orders the arrangements as the difference of the means does.
        let (part, observed) = if old.len() <= new.len() { (old.len(), sum(old)) } else { (new.len(), sum(new)) };
        // Arrangements that are equal must count as equal, also when sums in another order are rounded differently.
        let tolerance = 1e-12 * all.iter().map(|value| value.abs()).sum::<f64>();
        let (mut low, mut high, mut count) = (0u64, 0u64, 0u64);
        let mut seen = |sum: f64| {
            low += u64::from(sum <= observed + tolerance);
            high += u64::from(sum >= observed - tolerance);
            count += 1;
        };
        match combinations(all.len(), part) {
            Some(_) => each_choice(all.len(), part, |chosen| seen(chosen.iter().map(|&i| all[i]).sum())),
            None => {
                // The arrangement that was observed is one of them.
                seen(observed);
                let mut generator = self.generator();
                let mut shuffled = all.clone();
                for _ in 0..self.draws {
                    for i in 0..part {
                        let other = generator.random_range(i..shuffled.len());
                        shuffled.swap(i, other);
                    }
                    seen(sum(&shuffled[..part]));
                }
            }
        }
        let two_sided = |least: u64| (2.0 * least as f64 / count as f64).min(1.0);
        Permutation { p: two_sided(low.min(high)), least: two_sided(1) }
    }
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

/// n over k, when it is few enough to try all.
fn combinations(n: usize, k: usize) -> Option<u64> {
    let mut count = 1u64;
    for i in 0..k {
        count = count.checked_mul((n - i) as u64)? / (i as u64 + 1);
        if count > EXHAUSTIVE {
            return None;
        }
    }
    Some(count)
}

/// Calls `with` for each choice of `k` of `0..n`, in lexicographic order.
fn each_choice(n: usize, k: usize, mut with: impl FnMut(&[usize])) {
    let mut chosen: Vec<usize> = (0..k).collect();
    loop {
        with(&chosen);
        let Some(i) = (0..k).rev().find(|&i| chosen[i] < n - k + i) else { return };
        chosen[i] += 1;
        for j in i + 1..k {
            chosen[j] = chosen[j - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_comes_once() {
        let mut all = Vec::new();
        each_choice(5, 3, |chosen| all.push(chosen.to_vec()));
        assert_eq!(all.len(), 10);
        assert_eq!(all.first().unwrap(), &[0, 1, 2]);
        assert_eq!(all.last().unwrap(), &[2, 3, 4]);
        assert!(all.is_sorted() && all.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(combinations(5, 3), Some(10));
        assert_eq!(combinations(16, 8), Some(12_870));
        assert_eq!(combinations(20, 10), None);
        assert_eq!(combinations(100_000, 50_000), None);
    }

    /// Of the 20 ways to choose 3 of 1..=6, one has a sum of at most 6, two of at most 7.
    #[test]
    fn a_permutation_test_by_hand() {
        let p = |old: &[f64], new: &[f64]| Resampling::default().permutation(old, new);
        assert_eq!(p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), Permutation { p: 0.1, least: 0.1 });
        assert_eq!(p(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]), Permutation { p: 0.1, least: 0.1 });
        assert_eq!(p(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]), Permutation { p: 0.2, least: 0.1 });
        assert_eq!(p(&[1.0, 1.0], &[1.0, 1.0]).p, 1.0);
        assert_eq!(p(&[0.1, 0.2, 0.3], &[0.3, 0.1, 0.2]).p, 1.0);
        // 2 of 35 and 2 of 56, whichever sample is the longer.
        assert_eq!(p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0, 7.0]).p, 2.0 / 35.0);
        assert_eq!(p(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 9.0]).p, 2.0 / 56.0);
    }

    #[test]
    fn drawn_permutations_agree_with_all_of_them() {
        // 184756 arrangements are too many; the exact p of this arrangement, by enumeration elsewhere, is that of the
        // rank sum 85 of 10 and 10: 0.1431 (tables of the Wilcoxon rank sum test, exact, two-sided).
        let old: Vec<f64> = [1, 2, 4, 5, 7, 8, 10, 13, 16, 19].map(f64::from).into();
        let new: Vec<f64> = [3, 6, 9, 11, 12, 14, 15, 17, 18, 20].map(f64::from).into();
        assert_eq!(sum(&old), 85.0);
        let drawn = Resampling::default().permutation(&old, &new);
        assert!((drawn.p - 0.1431).abs() < 0.015, "{drawn:?}");
        assert!(drawn.least < 0.001);
    }

    #[test]
    fn the_bootstrap_of_two_values_is_known() {
        // Means of two draws from {0, 2} are 0, 1, 2 with 1/4, 1/2, 1/4; the other sample is constant.
        let level = Level::default();
        let interval = Resampling::default().bootstrap(&[0.0, 2.0], &[5.0, 5.0], level, |old, new| new - old);
        assert_eq!(interval, (3.0, 5.0));
        let narrow = Level::new(50.0).unwrap();
        let (low, high) = Resampling::default().bootstrap(&[0.0, 2.0], &[5.0; 2], narrow, |old, new| new - old);
        assert!(low >= 3.0 && high <= 5.0 && low <= 4.0 && high >= 4.0);
    }
}
