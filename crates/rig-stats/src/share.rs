//! Shares: how many of so many.

use statrs::distribution::{Beta, ContinuousCDF};

use crate::confidence::{Interval, Level};

/// The interval of the true share where `count` of `of` independent cases were such: exact, so at least as wide as the level asks
/// (C. J. Clopper, E. S. Pearson, Biometrika 26(4), 1934). All of 0 to 1 where there was no case.
pub fn exact_interval(count: u64, of: u64, level: Level) -> Interval {
    let tail = level.alpha() / 2.0;
    let (k, n) = (count.min(of) as f64, of as f64);
    let quantile = |p: f64, a: f64, b: f64| Beta::new(a, b).map(|beta| beta.inverse_cdf(p));
    let low = if k == 0.0 { Ok(0.0) } else { quantile(tail, k, n - k + 1.0) };
    let high = if k == n { Ok(1.0) } else { quantile(1.0 - tail, k + 1.0, n - k) };
    Interval { low: low.unwrap_or(0.0), high: high.unwrap_or(1.0), level }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of the method: 0 of 10, 1 of 10, 5 of 10, 2 of 40.
    #[test]
    fn tabled() {
        let interval = |count, of| exact_interval(count, of, Level::default());
        for (count, of, low, high) in
            [(0, 10, 0.0, 0.3085), (1, 10, 0.0025, 0.4450), (5, 10, 0.1871, 0.8129), (2, 40, 0.0061, 0.1692)]
        {
            let found = interval(count, of);
            assert!((found.low - low).abs() < 1e-3 && (found.high - high).abs() < 1e-3, "{count} of {of}: {found:?}");
        }
        assert!((interval(10, 10).low - 0.6915).abs() < 1e-3 && interval(10, 10).high == 1.0);
        assert_eq!((interval(0, 0).low, interval(0, 0).high), (0.0, 1.0));
    }
}
