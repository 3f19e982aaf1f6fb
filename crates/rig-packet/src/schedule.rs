//! When something is due: an open loop, which nothing that the network does slows down.

use super::Nanos;

const SECOND: f64 = 1e9;
/// What began later than this after its time is counted as late.
pub(super) const LATE: Nanos = 1_000_000;

/// The times at which connections or requests are due.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Per second.
    rate: f64,
    /// Seconds in which the rate rises from zero.
    ramp: f64,
    /// How many are due together, with the first of them.
    together: u64,
    /// How much of the time between two passes before the first, 0 to 1.
    phase: f64,
    /// When the rate began, or would have begun, to rise.
    start: Option<Nanos>,
    /// How many have been given out since.
    given: u64,
    /// When the next one is due.
    next: Nanos,
    /// From when the one before was to then; 0 before the beginning.
    span: Nanos,
}

impl Schedule {
    /// Evenly spaced, `rate` per second, from the first look on.
    pub fn new(rate: f64) -> Self {
        Self { rate, ramp: 0.0, together: 1, phase: 0.0, start: None, given: 0, next: 0, span: 0 }
    }

    /// `ramp` in seconds; `together` are due at the time at which the first of them is.
    pub fn with(self, ramp: f64, together: u64) -> Self {
        Self { ramp, together: together.max(1), ..self }
    }

    /// This schedule, later by `phase` times the distance between two, 0 to 1.
    pub fn shifted(self, phase: f64) -> Self {
        Self { phase, ..self }
    }

    /// The first one is due `at`, or its phase later, and nothing before.
    pub fn begin(&mut self, at: Nanos) {
        (self.start, self.given, self.span) = (Some(at), 0, 0);
        self.next = at.saturating_add(self.offset(0));
    }

    /// Begins `now`. A schedule with a phase waits for the next time that is a whole number of intervals after `origin`:
    /// those of the same rate, wherever between they begin, then take turns.
    pub fn join(&mut self, origin: Option<Nanos>, now: Nanos) {
        let interval = self.together as f64 / self.rate * SECOND;
        let past = origin.filter(|_| self.phase > 0.0 && interval.is_finite()).map(|origin| now.saturating_sub(origin));
        let wait = past.map_or(0.0, |past| interval - past as f64 % interval);
        self.begin(now.saturating_add(wait as Nanos));
    }

    pub fn is_due_before(&self, time: Nanos) -> bool {
        self.start.is_some() && self.next < time
    }

    /// Gives out all that are due before `time`, as many as are of use.
    pub fn give_up(&mut self, time: Nanos, mut with: impl FnMut(Nanos)) {
        const MOST: u64 = 1_000_000;
        for _ in 0..MOST {
            if self.rate <= 0.0 || !self.is_due_before(time) {
                return;
            }
            with(self.next);
            self.take();
        }
    }

    /// When the next one was due, if it is.
    #[inline]
    pub fn due(&mut self, now: Nanos) -> Option<Nanos> {
        if self.start.is_none() {
            self.begin(now);
        }
        (self.next <= now && self.rate > 0.0).then_some(self.next)
    }

    /// Gives out the one that is due.
    #[inline]
    pub fn take(&mut self) {
        self.given += 1;
        if self.together == 1 || self.given.is_multiple_of(self.together) {
            let next = self.start.unwrap_or(0).saturating_add(self.offset(self.given));
            self.span = next.saturating_sub(self.next);
            self.next = next;
        }
    }

    /// What is due is not wanted yet: it and all that follows is due from now on, and nothing is missed.
    pub fn put_off(&mut self, now: Nanos) {
        self.start = self.start.map(|start| start + (now - self.next));
        self.next = now;
    }

    /// Goes on with `rate` per second, at once and without the rest of a ramp; zero is a pause. The part of an interval
    /// that has passed counts, so that changes of the rate neither add nor lose anything. What should have begun more
    /// than a millisecond ago, because the engine or its peer is too slow, is given up: how many that were.
    pub fn set_rate(&mut self, rate: f64, now: Nanos) -> u64 {
        let Some(start) = self.start.filter(|_| self.span > 0 || self.next <= now) else {
            (self.rate, self.ramp) = (rate, 0.0);
            return 0;
        };
        let interval = (self.together as f64 / rate * SECOND) as Nanos;
        let (mut begin, mut carried, mut missed) = (now, self.given % self.together, 0);
        if self.next == Nanos::MAX {
            // After a pause.
        } else if self.next > now {
            let left = (self.next - now) as f64 / self.span.max(1) as f64;
            begin = now.saturating_add((left * interval as f64) as Nanos);
        } else if now - self.next <= LATE {
            begin = self.next;
        } else {
            missed = self.until(now - start).saturating_sub(self.given);
            carried = 0;
        }
        // The phase is in what is left of the interval.
        (self.rate, self.ramp, self.phase) = (rate, 0.0, 0.0);
        (self.start, self.given, self.span) = (Some(begin), carried, interval.max(1));
        self.next = if rate > 0.0 { begin } else { Nanos::MAX };
        missed
    }

    /// How long `n` take at the rate, nanoseconds.
    pub fn interval(&self, n: u64) -> Nanos {
        (n as f64 / self.rate * SECOND) as Nanos
    }

    /// When number `n` is due, nanoseconds after the start. While the rate rises in proportion to time, the number of
    /// connections grows with its square.
    fn offset(&self, n: u64) -> Nanos {
        let (n, rate) = (n as f64 + self.phase * self.together as f64, self.rate);
        let in_ramp = rate * self.ramp / 2.0;
        let seconds = if n < in_ramp { (2.0 * n * self.ramp / rate).sqrt() } else { self.ramp + (n - in_ramp) / rate };
        (seconds * SECOND) as Nanos
    }

    /// How many are due at `time` after the start and before.
    fn until(&self, time: Nanos) -> u64 {
        let time = time as f64 / SECOND;
        let ramp = time.min(self.ramp);
        let rising = if self.ramp > 0.0 { self.rate * ramp * ramp / 2.0 / self.ramp } else { 0.0 };
        let due = rising + (time - ramp) * self.rate - self.phase * self.together as f64;
        if due < 0.0 {
            return 0;
        }
        (due as u64 / self.together + 1) * self.together
    }
}

/// Connections that rest, the one first that has rested longest.
#[derive(Debug)]
pub(super) struct IdleConnections {
    ring: Box<[u32]>,
    first: usize,
    count: usize,
    /// Which connections are in the ring: each at most once, so that there is always room.
    queued: Box<[u64]>,
}

impl IdleConnections {
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        let (ring, queued) = (vec![0; capacity].into(), vec![0; capacity.div_ceil(64)].into());
        Self { ring, first: 0, count: 0, queued }
    }

    /// Bytes for so many connections.
    pub fn bytes(capacity: u32) -> u64 {
        u64::from(capacity) * 4 + u64::from(capacity).div_ceil(64) * 8
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn has(&self, slot: u32) -> bool {
        self.queued[slot as usize / 64] & 1 << (slot % 64) != 0
    }

    /// One that is there already, because it was closed and opened meanwhile, keeps its place.
    #[inline]
    pub fn push(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, 1 << (slot % 64));
        if self.queued[word] & bit != 0 {
            return;
        }
        self.queued[word] |= bit;
        let mut place = self.first + self.count;
        if place >= self.ring.len() {
            place -= self.ring.len();
        }
        self.ring[place] = slot;
        self.count += 1;
    }

    /// The next one, which need not rest any more: look at its state.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let slot = self.ring[self.first];
        self.first += 1;
        if self.first == self.ring.len() {
            self.first = 0;
        }
        self.count -= 1;
        self.queued[slot as usize / 64] &= !(1 << (slot % 64));
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Nanos = 1_000_000;

    /// Those that are given out up to `until`.
    fn times(schedule: &mut Schedule, until: Nanos) -> Vec<Nanos> {
        let mut next = || {
            let due = schedule.due(until)?;
            schedule.take();
            Some(due)
        };
        std::iter::from_fn(&mut next).collect()
    }

    fn begun(mut schedule: Schedule) -> Schedule {
        schedule.due(0);
        schedule
    }

    #[test]
    fn a_rate_is_evenly_spaced() {
        let mut schedule = begun(Schedule::new(1000.0));
        let expected = [0, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000];
        assert_eq!(times(&mut schedule, 5_000_000), expected);
    }

    #[test]
    fn a_ramp_gives_half_the_connections() {
        let until = |end| times(&mut begun(Schedule::new(1000.0).with(4.0, 1)), end).len();
        assert_eq!(until(3_999_999_999), 2000);
        assert_eq!(until(1_999_999_999), 500);
        // From there on at the full rate.
        assert_eq!(until(4_999_999_999), 3000);
    }

    #[test]
    fn what_belongs_together_is_due_together() {
        let mut schedule = begun(Schedule::new(1000.0).with(0.0, 4));
        let expected = [0, 0, 0, 0, 4_000_000, 4_000_000, 4_000_000, 4_000_000];
        assert_eq!(times(&mut schedule, 7_999_999), expected);
        assert_eq!(times(&mut schedule, 8_000_000).len(), 4);
        // The rest of a group that has begun is due with it, even if the rate has changed since.
        let mut schedule = begun(Schedule::new(1000.0).with(0.0, 4));
        schedule.due(0);
        schedule.take();
        assert_eq!(schedule.set_rate(2000.0, 1000), 0);
        assert_eq!(times(&mut schedule, 2_000_000), [0, 0, 0, 2_000_000, 2_000_000, 2_000_000, 2_000_000]);
    }

    #[test]
    fn schedules_that_share_a_rate_take_turns() {
        for (together, ramp) in [(1, 0.0), (1, 2.0), (4, 0.0)] {
            let all = begun(Schedule::new(1200.0).with(ramp, together));
            let part = |n: usize| {
                let phase = (n as f64 + 0.5) / 3.0;
                begun(Schedule::new(400.0).with(ramp, together).shifted(phase))
            };
            let mut given: Vec<Nanos> = (0..3).flat_map(|n| times(&mut part(n), 3_000_000_000)).collect();
            given.sort_unstable();
            let mut all = all.shifted(0.5);
            all.begin(0);
            let alone = times(&mut all, 3_000_000_000);
            assert_eq!(given.len(), alone.len());
            assert!(given.iter().zip(&alone).all(|(a, b)| a.abs_diff(*b) <= 1), "{together} together, {ramp} s");
        }
        // As many in a time as without a phase, and what was missed of them is known as exactly.
        let mut schedule = begun(Schedule::new(1000.0).shifted(0.75));
        assert_eq!(schedule.until(700_000), 0);
        assert_eq!(schedule.until(999_999_999), 1000);
        assert_eq!(times(&mut schedule, 2_000_000), [750_000, 1_750_000]);
        assert_eq!(schedule.set_rate(100.0, 10_500_000), 8);
        assert_eq!(times(&mut schedule, 25_000_000), [10_500_000, 20_500_000]);
    }

    #[test]
    fn schedules_that_begin_at_different_times_take_turns() {
        let origin = 7_000_000_000;
        let mut next = [(0.25, 123_456_789), (0.75, 987_654)].map(|(phase, after)| {
            let mut schedule = Schedule::new(1000.0).shifted(phase);
            schedule.join(Some(origin), origin + after);
            let first = schedule.next;
            assert!((origin + after..origin + after + 2 * MILLISECOND).contains(&first));
            (first - origin) % MILLISECOND
        });
        next.sort_unstable();
        assert!(next[0].abs_diff(250_000) <= 2 && next[1].abs_diff(750_000) <= 2, "{next:?}");
        // One that is alone begins at once.
        let mut schedule = Schedule::new(1000.0);
        schedule.join(Some(origin), origin + 1234);
        assert_eq!(schedule.next, origin + 1234);
    }

    #[test]
    fn what_is_put_off_is_not_made_up_for() {
        let mut schedule = begun(Schedule::new(1000.0));
        assert_eq!(times(&mut schedule, 1_000_000), [0, 1_000_000]);
        schedule.put_off(9_000_000);
        assert_eq!(times(&mut schedule, 10_500_000), [9_000_000, 10_000_000]);
    }

    #[test]
    fn what_begins_at_a_time_is_due_then_however_late_the_first_look_is() {
        let mut schedule = Schedule::new(10.0);
        schedule.begin(1_000_000_000);
        assert_eq!(schedule.set_rate(1000.0, 5), 0);
        assert_eq!(schedule.due(999_999_999), None);
        assert_eq!(times(&mut schedule, 1_002_500_000), [1_000_000_000, 1_001_000_000, 1_002_000_000]);
    }

    #[test]
    fn a_new_rate_takes_up_the_interval_where_it_is() {
        let mut schedule = begun(Schedule::new(1000.0));
        assert_eq!(times(&mut schedule, 1_500_000), [0, 1_000_000]);
        // Half of the interval has passed: half of the new one is to come.
        assert_eq!(schedule.set_rate(500.0, 1_500_000), 0);
        assert_eq!(times(&mut schedule, 2_500_000), [2_500_000]);
        // Again and again, within one interval.
        for (rate, now) in [(250.0, 3_500_000), (1000.0, 3_600_000), (500.0, 3_600_000)] {
            assert_eq!(schedule.set_rate(rate, now), 0);
        }
        // Of it 0.5 have passed, and 0.025 of the longer one, which leaves 0.475.
        assert_eq!(times(&mut schedule, 4_600_000), [4_550_000]);
        assert_eq!(schedule.set_rate(0.0, 4_600_000), 0);
        assert!(times(&mut schedule, 60 * 1_000_000_000).is_empty());
        assert_eq!(schedule.set_rate(1000.0, 60_000_000_000), 0);
        assert_eq!(times(&mut schedule, 60_001_000_000), [60_000_000_000, 60_001_000_000]);
    }

    #[test]
    fn a_rate_that_changes_all_the_time_is_kept() {
        // From 0 to 2000 per second in steps of 10 ms: 1000 in a second, give or take what a step has.
        let mut schedule = begun(Schedule::new(1.0));
        let mut given = times(&mut schedule, 0).len();
        for step in 1..=100 {
            assert_eq!(schedule.set_rate(20.0 * step as f64, (step - 1) * 10 * MILLISECOND), 0);
            given += times(&mut schedule, step * 10 * MILLISECOND - 1).len();
        }
        assert!((1000..=1012).contains(&given), "{given}");
    }

    #[test]
    fn what_was_missed_is_given_up_and_counted() {
        let mut schedule = begun(Schedule::new(1000.0));
        assert_eq!(times(&mut schedule, 1_000_000).len(), 2);
        // Due since: 2, 3 ... 10 ms.
        assert_eq!(schedule.set_rate(100.0, 10_500_000), 9);
        assert_eq!(times(&mut schedule, 25_000_000), [10_500_000, 20_500_000]);
        // An event that is late by less is not given up.
        let mut schedule = begun(Schedule::new(10_000.0));
        assert_eq!(schedule.set_rate(1000.0, 900_000), 0);
        assert_eq!(times(&mut schedule, 1_000_000), [0, 1_000_000]);
        // Before the beginning a rate changes nothing about when that is.
        let mut schedule = Schedule::new(10.0);
        schedule.begin(9_000_000);
        assert_eq!(schedule.set_rate(1000.0, 8_000_000), 0);
        assert_eq!((schedule.due(8_500_000), schedule.is_due_before(9_000_000)), (None, false));
        assert_eq!(times(&mut schedule, 10_000_000), [9_000_000, 10_000_000]);
        // A pause before the beginning lasts.
        let mut schedule = Schedule::new(10.0);
        assert_eq!(schedule.set_rate(0.0, 0), 0);
        assert_eq!(schedule.due(1_000_000), None);
        // Within a ramp.
        let mut schedule = begun(Schedule::new(1000.0).with(4.0, 1));
        let given = times(&mut schedule, 1_000_000_000).len() as u64;
        assert_eq!(given + schedule.set_rate(1.0, 2_000_000_000), 501);
    }

    #[test]
    fn whoever_has_rested_longest_is_next() {
        let mut resting = IdleConnections::new(3);
        for slot in [2, 0, 2, 1] {
            resting.push(slot);
        }
        assert_eq!(std::iter::from_fn(|| resting.pop()).collect::<Vec<_>>(), [2, 0, 1]);
        resting.push(1);
        resting.push(2);
        assert_eq!((resting.len(), resting.pop()), (2, Some(1)));
        resting.push(1);
        assert_eq!(std::iter::from_fn(|| resting.pop()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(resting.pop(), None);
    }
}
