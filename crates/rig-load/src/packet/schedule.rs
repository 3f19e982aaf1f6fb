//! When connections are due: an open loop, which nothing that the network does slows down.

use std::time::Duration;

use super::Nanos;
use super::config::Load;

const SECOND: f64 = 1e9;

/// The times at which connections are due.
#[derive(Debug)]
pub(super) struct Schedule {
    load: Load,
    /// When the rate began, or would have begun, to rise.
    start: Option<Nanos>,
    /// Connections that have been given out.
    given: u64,
    /// When the next one is due.
    next: Nanos,
}

impl Schedule {
    pub fn new(load: Load) -> Self {
        Self { load, start: None, given: 0, next: 0 }
    }

    /// The first connection is due `at`, or with a ramp a little later.
    pub fn begin(&mut self, at: Nanos) {
        (self.start, self.given, self.next) = (Some(at), 0, at.saturating_add(self.offset(0)));
    }

    /// Connections are due at `rate` from `now` on.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) {
        self.load = Load { rate, ramp: Duration::ZERO, ..self.load };
        if let Some(start) = self.start {
            self.begin(start.max(now));
        }
    }

    pub fn set_hold(&mut self, hold: Option<u32>) {
        self.load.hold = hold;
    }

    pub fn is_due_before(&self, time: Nanos) -> bool {
        self.start.is_some() && self.next < time
    }

    /// When the next connection was due, if it is, with `open` of them open. It has been given out then.
    #[inline]
    pub fn take(&mut self, now: Nanos, open: u64) -> Option<Nanos> {
        let Some(start) = self.start else {
            self.begin(now);
            return self.take(now, open);
        };
        if self.next > now {
            return None;
        }
        if self.load.hold.is_some_and(|hold| open >= hold.into()) {
            // Nothing is missed while enough are open: what comes next is due from now on.
            self.start = Some(start + (now - self.next));
            self.next = now;
            return None;
        }
        let due = self.next;
        self.given += 1;
        self.next = start + self.offset(self.given);
        Some(due)
    }

    /// When connection `n` is due, nanoseconds after the start. While the rate rises in proportion to time, the number
    /// of connections grows with its square.
    fn offset(&self, n: u64) -> Nanos {
        let ramp = self.load.ramp.as_secs_f64();
        let (n, rate) = (n as f64, self.load.rate);
        let in_ramp = rate * ramp / 2.0;
        let seconds = if n < in_ramp { (2.0 * n * ramp / rate).sqrt() } else { ramp + (n - in_ramp) / rate };
        (seconds * SECOND) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(load: Load, until: Nanos) -> Vec<Nanos> {
        let mut schedule = Schedule::new(load);
        assert_eq!(schedule.take(0, 0), Some(0));
        std::iter::once(0).chain(std::iter::from_fn(|| schedule.take(until, 0))).collect()
    }

    #[test]
    fn a_rate_is_evenly_spaced() {
        let times = times(Load { rate: 1000.0, ramp: Duration::ZERO, hold: None, launch: None }, 5_000_000);
        assert_eq!(times, [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000]);
    }

    #[test]
    fn a_ramp_gives_half_the_connections() {
        let load = Load { rate: 1000.0, ramp: Duration::from_secs(4), hold: None, launch: None };
        assert_eq!(times(load, 3_999_999_999).len(), 2000);
        assert_eq!(times(load, 1_999_999_999).len(), 500);
        // From there on at the full rate.
        assert_eq!(times(load, 4_999_999_999).len(), 3000);
    }

    #[test]
    fn what_is_held_is_not_made_up_for() {
        let mut schedule = Schedule::new(Load { rate: 1000.0, ramp: Duration::ZERO, hold: Some(2), launch: None });
        assert_eq!(schedule.take(0, 0), Some(0));
        assert_eq!(schedule.take(1_000_000, 1), Some(1_000_000));
        assert_eq!(schedule.take(9_000_000, 2), None);
        assert_eq!(schedule.take(9_500_000, 1), Some(9_000_000));
        assert_eq!(schedule.take(9_500_000, 1), None);
    }

    #[test]
    fn a_new_rate_counts_from_now() {
        let mut schedule = Schedule::new(Load::new(1000.0));
        assert_eq!(schedule.take(0, 0), Some(0));
        // Three more are due, and given up.
        schedule.set_rate(500.0, 3_000_000);
        let times: Vec<_> = std::iter::from_fn(|| schedule.take(7_000_000, 0)).collect();
        assert_eq!(times, [3_000_000, 5_000_000, 7_000_000]);
        // Before the beginning it changes nothing about when that is.
        schedule.begin(9_000_000);
        schedule.set_rate(1000.0, 8_000_000);
        assert_eq!(schedule.take(8_500_000, 0), None);
        assert_eq!(schedule.take(9_500_000, 0), Some(9_000_000));
    }
}
