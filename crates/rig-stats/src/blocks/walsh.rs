//! Means of two values each: the estimate of their centre and its exact interval.

/// The means of all pairs, a value with itself included, in order.
fn means(values: &[f64]) -> Vec<f64> {
    let each = values.iter().enumerate();
    let mut means: Vec<f64> =
        each.flat_map(|(i, one)| values[..=i].iter().map(move |other| f64::midpoint(*one, *other))).collect();
    means.sort_unstable_by(f64::total_cmp);
    means
}

/// Their median.
pub(super) fn centre(values: &[f64]) -> f64 {
    let means = means(values);
    let middle = means.len() / 2;
    if means.len() % 2 == 1 { means[middle] } else { f64::midpoint(means[middle - 1], means[middle]) }
}

/// The interval that misses the centre with a probability of at most `alpha`: of so many values that it exists.
pub(super) fn interval(values: &[f64], alpha: f64) -> (f64, f64) {
    let means = means(values);
    let left_out = left_out(values.len(), alpha);
    (means[left_out], means[means.len() - 1 - left_out])
}

/// How many of the ordered means may be left out at either end: the largest k with P(T < k) <= alpha / 2, T being the sum of
/// the ranks of positive values, each positive or not with even chance.
fn left_out(n: usize, alpha: f64) -> usize {
    // How many of the 2^n choices of ranks have each sum, as a share.
    let most = n * (n + 1) / 2;
    let mut shares = vec![0.0; most + 1];
    shares[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=most).rev() {
            let with = if sum >= rank { shares[sum - rank] } else { 0.0 };
            shares[sum] = f64::midpoint(shares[sum], with);
        }
    }
    let mut total = 0.0;
    let fits = shares.iter().take_while(|share| {
        total += **share;
        total <= alpha / 2.0 * (1.0 + 1e-12)
    });
    fits.count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of the signed-rank statistic: at 5 % two-sided the critical value W is 0 of 6, 2 of 7, 3 of 8, 8 of 10, 25 of 15
    /// and 52 of 20 values (F. Wilcoxon, R. A. Wilcox, Some Rapid Approximate Statistical Procedures, 1964).
    #[test]
    fn as_many_means_are_left_out_as_the_tables_allow() {
        for (n, critical) in [(6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52)] {
            assert_eq!(left_out(n, 0.05), critical, "{n} values");
        }
    }

    #[test]
    fn centres_by_hand() {
        assert_eq!(centre(&[3.0]), 3.0);
        // Means 1, 1.5, 2, 3, 3.5, 5.
        assert_eq!(centre(&[1.0, 2.0, 5.0]), 2.5);
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.05), (1.0, 6.0));
    }
}
