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

/// Where in the time between two of its own part `n` of `of` parts of a rate begins, 0 to 1: in the middle of its turn, so
/// that all parts together are as evenly spaced as one.
pub(super) fn phase(of: usize, n: usize) -> f64 {
    if of <= 1 { 0.0 } else { (n as f64 + 0.5) / of as f64 }
}
