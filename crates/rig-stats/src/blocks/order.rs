//! In which order a block is made.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The order of `count` configurations in a block, counted from 0: the same for the same seed.
///
/// Every other block has the order of the one before reversed. Of two configurations that is ABBA or BAAB, in which a drift at
/// a steady pace cancels, and so it is of any two of many (D. R. Cox, Biometrika 38(3/4), 1951).
pub fn order(seed: u64, block: u32, count: usize) -> Vec<usize> {
    let pair = u64::from(block / 2);
    // Two words that differ in one bit must not give streams that are alike.
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(seed ^ (pair + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut order: Vec<usize> = (0..count).collect();
    for i in 0..count.saturating_sub(1) {
        let other = generator.random_range(i..count);
        order.swap(i, other);
    }
    if block % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_and_the_next_block_goes_back() {
        for block in 0..50 {
            let one = order(7, block, 5);
            let mut sorted = one.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            if block % 2 == 0 {
                let mut back = order(7, block + 1, 5);
                back.reverse();
                assert_eq!(one, back);
            }
        }
        assert_eq!(order(7, 4, 20), order(7, 4, 20));
        assert_ne!(order(7, 4, 20), order(8, 4, 20));
        assert!(order(1, 0, 0).is_empty());
    }

    /// Each is as often first as any other.
    #[test]
    fn nobody_is_favoured() {
        let mut first = [0; 4];
        for pair in 0..4000 {
            first[order(3, 2 * pair, 4)[0]] += 1;
        }
        assert!(first.iter().all(|count| (890..1110).contains(count)), "{first:?}");
    }
}
