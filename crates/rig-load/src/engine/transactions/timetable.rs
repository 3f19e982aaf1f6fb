//! When the transactions of an open loop are due.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::plan::ArrivalSpacing;

/// After so many random distances the rest is counted by its mean, which is then exact to a thousandth.
const COUNTED: u64 = 1_000_000;
/// In how many parts that rest is given.
const SLICES: u64 = 1000;

/// The times of one thread: its share of the worker's rate.
#[derive(Debug)]
pub(super) struct Timetable {
    start_ns: u64,
    /// Mean distance.
    distance_ns: f64,
    distances: ArrivalProcess,
    /// The next, relative to the start. A double counts single nanoseconds up to three months. Infinite in a pause.
    next_ns: f64,
    /// Of a pause: what was left of the distance when it began, in distances.
    left: f64,
    /// Threads that share the rate.
    threads: f64,
    /// Rates to come, each with the moment, relative to the start, from which it holds.
    changes: VecDeque<(f64, f64)>,
}

#[derive(Debug)]
enum ArrivalProcess {
    /// The times are multiples, so that no error adds up: the index of the next, and the first.
    Uniform { index: u64, first_ns: f64 },
    /// The random numbers are xoshiro256++, seeded with the worker's seed plus the thread's number.
    Poisson { random: Box<Xoshiro256PlusPlus>, seed: u64 },
}

impl Timetable {
    /// The times of thread `thread` of `threads`, which together have `rate` transactions a second. Uniform threads take
    /// turns.
    pub(super) fn new(rate: f64, arrivals: ArrivalSpacing, (thread, threads): (u32, u32), seed: u64) -> Self {
        let distance_ns = 1e9 / rate * f64::from(threads);
        let distances = match arrivals {
            ArrivalSpacing::Uniform => ArrivalProcess::Uniform { index: 0, first_ns: 1e9 / rate * f64::from(thread) },
            ArrivalSpacing::Poisson => {
                let random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(thread.into()));
                ArrivalProcess::Poisson { random: Box::new(random), seed }
            }
        };
        let threads = f64::from(threads);
        let mut timetable =
            Self { start_ns: 0, distance_ns, distances, next_ns: 0.0, left: 0.0, threads, changes: VecDeque::new() };
        match &timetable.distances {
            ArrivalProcess::Uniform { first_ns, .. } => timetable.next_ns = *first_ns,
            ArrivalProcess::Poisson { .. } => timetable.step(),
        }
        timetable
    }

    /// Lets the times count from `start_ns` of CLOCK_MONOTONIC.
    pub(super) fn open(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
    }

    /// The time of the next transaction.
    #[inline]
    pub(super) fn due_ns(&self) -> u64 {
        // The conversion saturates: in a pause it is the end of all times.
        self.start_ns.saturating_add(self.next_ns as u64)
    }

    /// From `at_ns` of CLOCK_MONOTONIC on the threads together have `rate` transactions a second; 0 is a pause. What is
    /// due before stays due, and what has passed of a distance counts: a change neither adds nor loses anything, and
    /// exponential distances stay exponential, because they have no memory.
    pub(super) fn change(&mut self, at_ns: u64, rate: f64) {
        self.changes.push_back((at_ns.saturating_sub(self.start_ns) as f64, rate));
        self.keep();
    }

    /// Lets the changes be that come before the next transaction.
    fn keep(&mut self) {
        while let Some(&(at_ns, rate)) = self.changes.front().filter(|(at_ns, _)| *at_ns <= self.next_ns) {
            self.changes.pop_front();
            let left = if self.next_ns.is_finite() { (self.next_ns - at_ns) / self.distance_ns } else { self.left };
            if rate > 0.0 {
                self.distance_ns = 1e9 / rate * self.threads;
                self.next_ns = at_ns + left * self.distance_ns;
            } else {
                (self.left, self.next_ns) = (left, f64::INFINITY);
            }
            if let ArrivalProcess::Uniform { index, first_ns } = &mut self.distances {
                (*index, *first_ns) = (0, self.next_ns);
            }
        }
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        self.step();
        if !self.changes.is_empty() {
            self.keep();
        }
    }

    fn step(&mut self) {
        match &mut self.distances {
            ArrivalProcess::Uniform { index, first_ns } => {
                *index += 1;
                self.next_ns = *first_ns + *index as f64 * self.distance_ns;
            }
            ArrivalProcess::Poisson { random, .. } => {
                // The inverse of the exponential distribution; 1 - u is never 0.
                self.next_ns -= (1.0 - random.random::<f64>()).ln() * self.distance_ns;
            }
        }
    }

    /// Gives the times from here on that lie between the two, each with how many it stands for.
    pub(super) fn remaining(&mut self, begin_ns: u64, end_ns: u64, mut with: impl FnMut(u64, u64)) {
        for _ in 0..COUNTED {
            let due_ns = self.due_ns();
            if due_ns >= end_ns {
                return;
            }
            if due_ns >= begin_ns {
                with(due_ns, 1);
            }
            self.advance();
        }
        let from_ns = self.due_ns().max(begin_ns);
        let count = (end_ns.saturating_sub(from_ns) as f64 / self.distance_ns).ceil() as u64;
        // Evenly over what is left.
        let at = |n: u64| (u128::from(count) * u128::from(n) / u128::from(SLICES)) as u64;
        if from_ns == u64::MAX {
            return;
        }
        for slice in 0..SLICES {
            let share = at(slice + 1) - at(slice);
            if share > 0 {
                with(from_ns + ((at(slice) as f64) * self.distance_ns) as u64, share);
            }
        }
    }

    /// The seed of random times.
    pub(super) fn seed(&self) -> Option<u64> {
        match self.distances {
            ArrivalProcess::Uniform { .. } => None,
            ArrivalProcess::Poisson { seed, .. } => Some(seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(timetable: &mut Timetable, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let due = timetable.due_ns();
                timetable.advance();
                due
            })
            .collect()
    }

    #[test]
    fn uniform_threads_take_turns() {
        let mut all = Vec::new();
        for thread in 0..3 {
            let mut timetable = Timetable::new(3000.0, ArrivalSpacing::Uniform, (thread, 3), 0);
            timetable.open(7);
            all.extend(times(&mut timetable, 100));
        }
        all.sort_unstable();
        for (index, due) in all.iter().enumerate() {
            let exact = 7.0 + index as f64 * 1e9 / 3000.0;
            assert!((*due as f64 - exact).abs() <= 1.0, "{index}: {due}");
        }
    }

    #[test]
    fn uniform_times_do_not_drift() {
        let mut timetable = Timetable::new(3.0, ArrivalSpacing::Uniform, (0, 1), 0);
        assert_eq!(times(&mut timetable, 3_000_001).last(), Some(&1_000_000_000_000_000));
    }

    #[test]
    fn poisson_distances_are_exponential() {
        let mut timetable = Timetable::new(1000.0, ArrivalSpacing::Poisson, (0, 2), 42);
        let times = times(&mut timetable, 200_001);
        let distances: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let n = distances.len() as f64;
        let mean = distances.iter().sum::<f64>() / n;
        let variance = distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n;
        // Two threads share the rate. Mean and standard deviation are the same; both are known to 1 % here.
        assert!((mean / 2e6 - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "deviation {}", variance.sqrt());
        let longer = distances.iter().filter(|d| **d > mean).count() as f64 / n;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn a_seed_gives_the_same_times_again_and_each_thread_its_own() {
        let of = |thread, seed| times(&mut Timetable::new(1e6, ArrivalSpacing::Poisson, (thread, 2), seed), 50);
        assert_eq!(of(0, 1), of(0, 1));
        assert_ne!(of(0, 1), of(1, 1));
        assert_ne!(of(0, 1), of(0, 2));
        assert_eq!(Timetable::new(1.0, ArrivalSpacing::Poisson, (0, 1), 9).seed(), Some(9));
    }

    #[test]
    fn what_remains_is_counted() {
        let count = |timetable: &mut Timetable, begin_ns, end_ns| {
            let mut all = 0;
            timetable.remaining(begin_ns, end_ns, |due_ns, count| {
                assert!((begin_ns..end_ns).contains(&due_ns), "{due_ns}");
                all += count;
            });
            all
        };
        // Every microsecond: 5 000 before the window of 10 000.
        let mut timetable = Timetable::new(1e6, ArrivalSpacing::Uniform, (0, 1), 0);
        assert_eq!(count(&mut timetable, 5_000_000, 15_000_000), 10_000);
        // More than are counted one by one.
        for (arrivals, slack) in [(ArrivalSpacing::Uniform, 1.0), (ArrivalSpacing::Poisson, 20_000.0)] {
            let mut timetable = Timetable::new(1e8, arrivals, (0, 1), 3);
            let all = count(&mut timetable, 1_000_000_000, 2_000_000_000) as f64;
            assert!((all - 1e8).abs() <= slack, "{all}");
        }
        let mut timetable = Timetable::new(1.0, ArrivalSpacing::Uniform, (0, 1), 0);
        assert_eq!(count(&mut timetable, 1, 1_000_000_000), 0);
    }
}
