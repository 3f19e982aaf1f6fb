//! Latencies that are looked at while they are measured.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::IntervalLatency;

/// Parts that each octave is divided into: a value is known to half of 1/32 of itself, 1.6 %.
const PARTS: u32 = 32;
/// ns up to 2^40, about 18 minutes; what is longer counts as that.
const OCTAVES: u32 = 40;
const BUCKETS: usize = ((OCTAVES - PARTS.ilog2() + 1) * PARTS) as usize;

/// How often each latency came since the load began, in logarithmic buckets. Written by its load thread alone and read by
/// the control thread, which takes the difference of two looks: neither waits for the other.
///
/// The histograms that figures are made of are exact to a thousandth and thirty times as large; these say what one
/// interval was like.
#[derive(Debug)]
pub(crate) struct RecentLatencies(Box<[AtomicU64; BUCKETS]>);

impl Default for RecentLatencies {
    fn default() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; BUCKETS]))
    }
}

impl RecentLatencies {
    /// Counts one. A plain addition suffices, there is only one writer.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        let bucket = &self.0[bucket(ns)];
        bucket.store(bucket.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The counts at some moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot(Box<[u64; BUCKETS]>);

impl Default for Snapshot {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl Snapshot {
    /// Adds what a thread has counted.
    pub(crate) fn add(&mut self, recent: &RecentLatencies) {
        for (sum, count) in self.0.iter_mut().zip(recent.0.iter()) {
            *sum += count.load(Ordering::Relaxed);
        }
    }

    /// What came since `before`; `None` when nothing did.
    pub(crate) fn since(&self, before: &Self) -> Option<IntervalLatency> {
        let counts: Vec<u64> = self.0.iter().zip(before.0.iter()).map(|(now, then)| now - then).collect();
        let count: u64 = counts.iter().sum();
        let last = counts.iter().rposition(|count| *count > 0)?;
        let percentile = |percent: u64| {
            // The smallest bucket with so many at or below it.
            let rank = (count * percent).div_ceil(100).max(1);
            let mut below = 0;
            let found = counts.iter().position(|count| {
                below += count;
                below >= rank
            });
            middle(found.unwrap_or(last))
        };
        let (p50_ns, p90_ns, p99_ns) = (percentile(50), percentile(90), percentile(99));
        Some(IntervalLatency { count, p50_ns, p90_ns, p99_ns, max_ns: middle(last) })
    }
}

/// Values below [`PARTS`] have a bucket each; above, each octave has [`PARTS`].
#[inline]
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << OCTAVES) - 1);
    let Some(octave) = ns.checked_ilog2().filter(|octave| *octave >= PARTS.ilog2()) else { return ns as usize };
    let shift = octave - PARTS.ilog2();
    // The leading bit is the octave's own.
    ((shift + 1) * PARTS) as usize + (ns >> shift) as usize - PARTS as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (octave, part) = (bucket as u64 / u64::from(PARTS), bucket as u64 % u64::from(PARTS));
    match octave {
        0 => part,
        octave => {
            let shift = octave - 1;
            ((u64::from(PARTS) + part) << shift) + ((1 << shift) >> 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_interval_is_what_came_between_two_looks() {
        let (one, other) = (RecentLatencies::default(), RecentLatencies::default());
        let look = || {
            let mut sum = Snapshot::default();
            sum.add(&one);
            sum.add(&other);
            sum
        };
        one.record(u64::MAX);
        let before = look();
        assert_eq!(look().since(&before), None);
        (1..=50).for_each(|us| one.record(us * 1000));
        (51..=100).for_each(|us| other.record(us * 1000));
        let interval = look().since(&before).unwrap();
        let close = |ns: u64, us: f64| assert!((ns as f64 / us / 1e3 - 1.0).abs() < 0.017, "{ns} for {us} us");
        assert_eq!(interval.count, 100);
        close(interval.p50_ns, 50.0);
        close(interval.p90_ns, 90.0);
        close(interval.p99_ns, 99.0);
        close(interval.max_ns, 100.0);
    }

    proptest! {
        #[test]
        fn a_bucket_knows_its_values_to_one_part_in_sixty_four(ns in prop_oneof![0u64..10_000, any::<u64>()]) {
            let capped = ns.min((1 << OCTAVES) - 1);
            let known = middle(bucket(ns));
            prop_assert!(known.abs_diff(capped) <= capped / 64 + 1, "{ns} is known as {known}");
        }
    }
}
