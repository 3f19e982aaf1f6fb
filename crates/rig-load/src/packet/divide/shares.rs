//! Equal parts that add up.

/// Part `n` of `of` parts of `total`: they differ by one at most, and their sum is `total`.
pub(super) fn share(total: u64, of: usize, n: usize) -> u64 {
    let of = of.max(1) as u64;
    total / of + u64::from((n as u64) < total % of)
}

/// Part `n` of `of` parts of a rate. Whole numbers are divided into whole numbers, as far as there is one for each, so
/// that the sum is exact; what is below one goes to the first.
pub(super) fn share_of_rate(total: f64, of: usize, n: usize) -> f64 {
    const EXACT: f64 = (1u64 << 53) as f64;
    if of <= 1 || !(of as f64..EXACT).contains(&total) {
        return total / of.max(1) as f64;
    }
    let rest = if n == 0 { total.fract() } else { 0.0 };
    share(total as u64, of, n) as f64 + rest
}
