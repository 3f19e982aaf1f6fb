//! How many blocks, and of how long trials, decide a question.

use crate::confidence::Level;

/// z(97.5 %) + z(80 %), squared: what finds four of five effects at 5 % two-sided.
const POWER_80: f64 = 7.849;

/// What trials of one configuration scatter by, as variances of the logarithm of its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// From trial to trial, however long they are.
    pub between: f64,
    /// Within a trial, of what one second of it says; a window of w seconds leaves 1 / w of it.
    pub within: f64,
}

impl Spread {
    /// Of one trial with a window of so many seconds.
    pub fn of_trial(self, window: f64) -> f64 {
        self.between + self.within / window
    }

    /// The window with which trials that take `overhead` seconds besides are known best in a given time: sqrt(overhead *
    /// within / between), the optimal size of clusters (W. G. Cochran, Sampling Techniques, 3rd ed. 1977, 10.6). Infinite
    /// where trials do not scatter between each other.
    pub fn best_window(self, overhead: f64) -> f64 {
        (overhead * self.within / self.between).sqrt()
    }

    /// From trials' means, the variance of each trial's parts and how many seconds a part and a trial last.
    ///
    /// The variance of the means has that of what is within a trial in it, which is taken out; parts are taken as independent.
    /// `None` of fewer than two trials.
    pub fn estimated(means: &[f64], within_parts: f64, part_seconds: f64, window: f64) -> Option<Self> {
        let variance = crate::sample::Sample::from(means.to_vec()).variance()?;
        let within = within_parts * part_seconds;
        Some(Self { between: (variance - within / window).max(0.0), within })
    }
}

/// How many blocks whose value has this standard deviation make an interval of `half` to either side; `None` for more than a
/// million.
pub fn blocks_for_half_width(deviation: f64, half: f64, level: Level) -> Option<u32> {
    let fits = |n: u32| half_width(deviation, n, level).is_some_and(|reached| reached <= half);
    // The width falls with n, so that the place where it fits is found by halves.
    let (mut low, mut high) = (1u32, 2u32);
    while !fits(high) {
        low = high;
        high = high.checked_mul(2).filter(|n| *n <= 1 << 20)?;
    }
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// Half the width of the interval of so many blocks: t * s / sqrt(n). `None` of fewer than two.
pub fn half_width(deviation: f64, blocks: u32, level: Level) -> Option<f64> {
    let n = f64::from(blocks);
    (blocks > 1).then(|| level.student_t(n - 1.0) * deviation / n.sqrt())
}

/// Blocks that find an effect of this size, on the scale of the blocks' values, in four of five runs at 5 %.
pub fn blocks_to_find(deviation: f64, effect: f64) -> f64 {
    POWER_80 * (deviation / effect).powi(2)
}

/// The effect that so many blocks find in four of five runs at 5 %.
pub fn effect_found(deviation: f64, blocks: u32) -> f64 {
    (POWER_80 / f64::from(blocks.max(1))).sqrt() * deviation
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        // A scatter of 10 % and an effect of 5 %: n = 7.85 * 0.01 / ln(1.05)^2.
        assert!((blocks_to_find(0.1, 1.05f64.ln()) - 32.97).abs() < 0.1);
        assert!((effect_found(0.1, 33) - 1.05f64.ln()).abs() < 1e-3);
        // t(95 %, 9) = 2.262: +-0.715 s of ten blocks.
        assert!((half_width(1.0, 10, Level::default()).unwrap() - 0.7154).abs() < 1e-3);
        assert_eq!(blocks_for_half_width(1.0, 0.72, Level::default()), Some(10));
        assert_eq!(blocks_for_half_width(1.0, 0.70, Level::default()), Some(11));
        assert_eq!(blocks_for_half_width(1.0, 0.0, Level::default()), None);
        assert_eq!(blocks_for_half_width(0.0, 0.01, Level::default()), Some(2));
    }

    proptest! {
        /// No other window is better in the same time.
        #[test]
        fn the_best_window_is_best(between in 1e-6..1e-2f64, within in 1e-6..1e-1f64, overhead in 0.05..2.0f64) {
            let spread = Spread { between, within };
            let variance = |window: f64| spread.of_trial(window) * (overhead + window);
            let best = spread.best_window(overhead);
            for factor in [0.5, 0.9, 1.1, 2.0] {
                prop_assert!(variance(best) <= variance(best * factor) * (1.0 + 1e-9));
            }
        }
    }

    #[test]
    fn scatter_is_told_apart_into_its_two_parts() {
        let mut normal = crate::normal::NormalVariates(7);
        let (between, within, window) = (0.02f64, 0.1f64, 4.0);
        let parts = 40;
        let mut squares = 0.0;
        let means: Vec<f64> = (0..400)
            .map(|_| {
                let centre = normal.draw(0.0, between);
                let each = normal.draws(parts, centre, within / (window / parts as f64).sqrt());
                let sample = crate::sample::Sample::from(each);
                squares += sample.variance().unwrap();
                sample.mean().unwrap()
            })
            .collect();
        let spread = Spread::estimated(&means, squares / 400.0, window / parts as f64, window).unwrap();
        assert!((spread.within.sqrt() / within - 1.0).abs() < 0.05, "{spread:?}");
        assert!((spread.between.sqrt() / between - 1.0).abs() < 0.5, "{spread:?}");
    }
}
