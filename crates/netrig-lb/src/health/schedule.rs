//! When what is due. It has no clock of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The longest time that backends wait for their first probes, over which these are spread.
const FIRST: Duration = Duration::from_secs(2);

/// Times with what is due then, the earliest first.
#[derive(Debug)]
pub struct Timers<T> {
    heap: BinaryHeap<Reverse<(Instant, u64, T)>>,
    count: u64,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }
}

impl<T: Ord> Timers<T> {
    pub fn add(&mut self, at: Instant, what: T) {
        self.count += 1;
        self.heap.push(Reverse((at, self.count, what)));
    }

    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Forgets all else.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse((.., what))| is_wanted(what));
    }

    /// What is due by now.
    pub fn due(&mut self, now: Instant) -> Option<T> {
        if self.next().is_none_or(|at| at > now) {
            return None;
        }
        self.heap.pop().map(|Reverse((.., what))| what)
    }
}

/// A part of a span that `random` chooses evenly.
fn part(span: Duration, random: u64) -> Duration {
    let nanos = (u128::from(random) * span.as_nanos()) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// How long a backend waits for its first probe: another time for each, so that those that are there from the beginning do not run in step.
pub fn first(interval: Duration, random: u64) -> Duration {
    part(interval.min(FIRST), random)
}

/// When the next probe begins after one that began and ended then: an interval after its beginning, longer or shorter by up to `jitter`
/// percent; one that took longer is followed at once.
pub fn next(began: Instant, ended: Instant, (interval, jitter): (Duration, u32), random: u64) -> Instant {
    let swing = interval * jitter / 100;
    (began + interval - swing + part(swing * 2, random)).max(ended)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_due_comes_in_order() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        for (ms, what) in [(30, 3), (10, 1), (20, 2), (10, 0)] {
            timers.add(at(ms), what);
        }
        assert_eq!((timers.next(), timers.due(at(9))), (Some(at(10)), None));
        let due: Vec<_> = std::iter::from_fn(|| timers.due(at(20))).collect();
        // Of the same time, the one that was added first.
        assert_eq!(due, [1, 0, 2]);
        timers.add(at(40), 4);
        timers.retain(|what| *what != 3);
        assert_eq!((timers.len(), timers.due(at(40)), timers.next()), (1, Some(4), None));
    }

    #[test]
    fn backends_that_begin_together_drift_apart() {
        // Of 4096 with an interval of 1 s, no 20 ms have more than twice their share after ten rounds.
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            random
        };
        let mut buckets = [0; 50];
        for _ in 0..4096 {
            let mut at = begin + first(second, draw());
            for _ in 0..10 {
                at = next(at, at, (second, 10), draw());
            }
            buckets[at.duration_since(begin).subsec_millis() as usize / 20] += 1;
        }
        assert!(buckets.iter().all(|count| *count < 2 * 4096 / 50), "{buckets:?}");
    }

    proptest! {
        #[test]
        fn intervals_are_within_their_jitter(
            interval_ms in 100_u64..86_400_000, jitter in 0_u32..=50, took_ms in 0_u64..300_000, random in any::<u64>(),
        ) {
            let (began, interval) = (Instant::now(), Duration::from_millis(interval_ms));
            let ended = began + Duration::from_millis(took_ms);
            let at = next(began, ended, (interval, jitter), random);
            let swing = interval * jitter / 100;
            prop_assert!(at >= ended && at <= (began + interval + swing).max(ended));
            prop_assert!(at >= began + interval - swing);
            prop_assert!(first(interval, random) <= interval.min(FIRST));
        }
    }
}
