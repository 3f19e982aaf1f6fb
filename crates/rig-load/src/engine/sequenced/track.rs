//! What a receiver concludes from times and numbers, counted as iperf3 counts it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of one receiving thread. A number beyond the expected one is a gap, whose datagrams count as lost; a lower one is out of
/// order and takes one loss back. The jitter is that of RFC 1889, sections 6.3.1 and A.8: it needs no clocks that agree.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    highest: u64,
    lost: u64,
    out_of_order: u64,
    jitter_s: f64,
    /// Arrival minus departure of the datagram before, microseconds; `None` for the first.
    transit_us: Option<f64>,
}

impl Tracker {
    #[inline]
    pub(super) fn take(&mut self, sent_us: u64, number: u64, arrived_us: u64) {
        if number > self.highest {
            self.lost += number - 1 - self.highest;
            self.highest = number;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let transit_us = arrived_us as f64 - sent_us as f64;
        let change_us = self.transit_us.map_or(0.0, |before| (transit_us - before).abs());
        self.transit_us = Some(transit_us);
        self.jitter_s += (change_us / 1e6 - self.jitter_s) / 16.0;
    }

    /// The jitter begins anew.
    pub(super) fn forget_times(&mut self) {
        (self.jitter_s, self.transit_us) = (0.0, None);
    }
}

/// A [`Tracker`]'s values for other threads to read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedTracker {
    highest: AtomicU64,
    lost: AtomicU64,
    out_of_order: AtomicU64,
    jitter_bits: AtomicU64,
    /// Asked to [`Tracker::forget_times`].
    again: AtomicBool,
}

/// What has become of a stream of numbered datagrams so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DatagramCounts {
    /// The highest number that came.
    pub highest: u64,
    /// Numbers below it that have not come.
    pub lost: u64,
    /// Datagrams that came after one with a higher number.
    pub out_of_order: u64,
    /// The jitter of RFC 1889, seconds.
    pub jitter_s: f64,
}

impl SharedTracker {
    #[inline]
    pub(super) fn publish(&self, tracker: &Tracker) {
        self.highest.store(tracker.highest, Ordering::Relaxed);
        self.lost.store(tracker.lost, Ordering::Relaxed);
        self.out_of_order.store(tracker.out_of_order, Ordering::Relaxed);
        self.jitter_bits.store(tracker.jitter_s.to_bits(), Ordering::Release);
    }

    pub(crate) fn read(&self) -> DatagramCounts {
        let jitter_s = f64::from_bits(self.jitter_bits.load(Ordering::Acquire));
        DatagramCounts {
            highest: self.highest.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            out_of_order: self.out_of_order.load(Ordering::Relaxed),
            jitter_s,
        }
    }

    /// Lets the jitter begin anew with the next datagram.
    pub(crate) fn ask_again(&self) {
        self.again.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_asked_again(&self) -> bool {
        self.again.load(Ordering::Relaxed) && self.again.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[u64]) -> DatagramCounts {
        let (mut tracker, shared) = (Tracker::default(), SharedTracker::default());
        numbers.iter().for_each(|number| tracker.take(0, *number, 0));
        shared.publish(&tracker);
        shared.read()
    }

    #[test]
    fn gaps_are_lost_and_what_comes_late_is_not() {
        let counts = |highest, lost, out_of_order| DatagramCounts { highest, lost, out_of_order, jitter_s: 0.0 };
        assert_eq!(of(&[1, 2, 3]), counts(3, 0, 0));
        assert_eq!(of(&[1, 4]), counts(4, 2, 0));
        assert_eq!(of(&[1, 4, 2]), counts(4, 1, 1));
        // A duplicate, where nothing is missing.
        assert_eq!(of(&[1, 1]), counts(1, 0, 1));
        assert_eq!(of(&[5]), counts(5, 4, 0));
        assert_eq!(of(&[0]), counts(0, 0, 1));
    }

    #[test]
    fn jitter_is_that_of_rfc_1889() {
        let mut tracker = Tracker::default();
        // Transits of 100, 116, 100 us on clocks that are far apart: |D| is 16 us twice.
        tracker.take(5_000_000, 1, 100);
        assert_eq!(tracker.jitter_s, 0.0);
        tracker.take(5_001_000, 2, 1_116);
        assert!((tracker.jitter_s - 1e-6).abs() < 1e-12, "{}", tracker.jitter_s);
        tracker.take(5_002_000, 3, 2_100);
        assert!((tracker.jitter_s - (1e-6 + 15e-6 / 16.0)).abs() < 1e-12, "{}", tracker.jitter_s);
        tracker.forget_times();
        tracker.take(0, 4, 77);
        assert_eq!(tracker.jitter_s, 0.0);
    }

    proptest! {
        /// In whatever order all datagrams come, none is lost in the end.
        #[test]
        fn a_permutation_loses_nothing(numbers in Just((1..=50u64).collect::<Vec<_>>()).prop_shuffle()) {
            let counts = of(&numbers);
            prop_assert_eq!((counts.highest, counts.lost), (50, 0));
        }

        /// Whatever numbers come, the counts hold together.
        #[test]
        fn any_numbers(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let counts = of(&numbers);
            prop_assert!(counts.lost <= counts.highest && counts.out_of_order <= numbers.len() as u64);
        }
    }
}
