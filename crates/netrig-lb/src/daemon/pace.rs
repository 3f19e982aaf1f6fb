//! How fast the table is swept: in slices of a fraction of a millisecond, a round a second where that costs
//! little, slower where the table is large, and as fast as can be where it gets full or local ports run short.

use std::time::{Duration, Instant};

/// Places of a slice, in which its CPU handles no packet: some 30 ns for each connection, 200 where it ends.
const SLICE: u32 = 1 << 12;
/// A round that takes less is not needed: timeouts are seconds.
pub(crate) const ROUND: Duration = Duration::from_secs(1);
/// The share of a CPU that sweeping may take is one over this.
const SHARE: u32 = 4;

#[derive(Debug)]
pub(super) struct SweepPace {
    places: u32,
    next: Instant,
    round: Round,
    /// Of the last whole round.
    pub(super) live: u64,
    pub(super) took: Duration,
    /// When that began.
    last: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Round {
    begun: Instant,
    swept: u32,
    live: u64,
}

impl SweepPace {
    pub(super) fn new(places: u32, now: Instant) -> Self {
        let round = Round { begun: now, swept: 0, live: 0 };
        Self { places: places.max(1), next: now, round, live: 0, took: Duration::ZERO, last: None }
    }

    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// When the last whole round began, or was due.
    pub(super) fn last(&self) -> Option<Instant> {
        self.last
    }

    /// Places that the next slice shall have. It ends with the round.
    pub(super) fn slice(&self) -> u32 {
        SLICE.min(self.places - self.round.swept)
    }

    /// A slice of `places` with `live` connections has been swept from `begun` to `now`; `short`: what has expired
    /// is needed again soon.
    pub(super) fn swept(&mut self, places: u32, live: u32, short: bool, (begun, now): (Instant, Instant)) {
        self.round.swept += places;
        self.round.live += u64::from(live);
        let took = now.duration_since(begun);
        let slices = self.places.div_ceil(SLICE);
        let share = if short { 1 } else { SHARE };
        // From when it was due: who sleeps, wakes late.
        self.next = (self.next + ROUND / slices).max(now + took * (share - 1));
        if self.round.swept >= self.places {
            self.live = self.round.live;
            self.took = now.duration_since(self.round.begun);
            self.last = Some(self.round.begun);
            self.round = Round { begun: self.next, swept: 0, live: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sweeps a round whose slices take `slice` each, and says how long it was and how many slices it had.
    fn round(pace: &mut SweepPace, short: bool, slice: Duration) -> (Duration, u32) {
        let begun = pace.next();
        let mut slices = 0;
        loop {
            let (places, from) = (pace.slice(), pace.next());
            pace.swept(places, 5, short, (from, from + slice));
            slices += 1;
            if pace.round.swept == 0 {
                return (pace.next() - begun, slices);
            }
        }
    }

    #[test]
    fn a_round_of_a_small_table_takes_a_second() {
        let mut pace = SweepPace::new(1000, Instant::now());
        assert_eq!(round(&mut pace, false, Duration::from_micros(10)), (Duration::from_secs(1), 1));
        assert_eq!(pace.live, 5);
    }

    #[test]
    fn a_large_table_takes_a_quarter_of_a_cpu_until_something_runs_short() {
        let mut pace = SweepPace::new(100 * SLICE, Instant::now());
        assert_eq!(round(&mut pace, false, Duration::from_millis(5)), (Duration::from_secs(2), 100));
        assert_eq!(pace.live, 500);
        assert_eq!(round(&mut pace, true, Duration::from_millis(10)), (Duration::from_secs(1), 100));
        assert_eq!(round(&mut pace, true, Duration::from_millis(15)), (Duration::from_millis(1500), 100));
    }

    #[test]
    fn the_last_slice_is_what_is_left() {
        let mut pace = SweepPace::new(SLICE + 1, Instant::now());
        assert_eq!(pace.slice(), SLICE);
        let begun = pace.next();
        pace.swept(SLICE, 0, false, (begun, begun));
        assert_eq!((pace.slice(), pace.last()), (1, None));
        pace.swept(1, 0, false, (pace.next(), pace.next()));
        assert_eq!(pace.last(), Some(begun));
    }
}
