//! Many questions at once.

/// The p of each question, corrected for there being so many: where those below alpha are taken as answered, the chance of
/// any wrong answer among them is at most alpha, however the questions hang together (S. Holm, Scandinavian Journal of
/// Statistics 6(2), 1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&one, &other| p[one].total_cmp(&p[other]));
    let mut corrected = vec![1.0; p.len()];
    let mut least: f64 = 0.0;
    for (rank, &index) in order.iter().enumerate() {
        least = least.max(p[index] * (p.len() - rank) as f64).min(1.0);
        corrected[index] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn never_smaller_in_the_same_order_and_at_most_bonferronis(p in proptest::collection::vec(0.0..1.0f64, 1..30)) {
            let corrected = holm(&p);
            for (i, one) in p.iter().enumerate() {
                prop_assert!(corrected[i] >= *one && corrected[i] <= (one * p.len() as f64).min(1.0) + 1e-12);
                for (j, other) in p.iter().enumerate() {
                    prop_assert!(one > other || corrected[i] <= corrected[j]);
                }
            }
        }
    }
}
