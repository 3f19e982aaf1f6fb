//! Timers: a hierarchical wheel (Varghese and Lauck, 1987) whose lists run through the connections themselves.
//!
//! A timer that is moved to later stays where it hangs; when its bucket comes up it is hung where it belongs. So a
//! timer that is always moved before it ends, as a retransmission's, costs one store.

use super::Nanos;
use super::connection::Connection;

const BITS: u32 = 8;
const BUCKETS: usize = 1 << BITS;
const LEVELS: usize = 4;
/// Marks a link to a bucket.
const BUCKET: u32 = 1 << 31;
const END: u32 = u32::MAX;

/// Ticks of 8.192 us.
#[derive(Debug)]
pub(super) struct TimerWheel {
    origin: Nanos,
    /// The tick whose bucket is being emptied.
    now: u32,
    heads: Box<[u32; BUCKETS * LEVELS]>,
    /// A bit for each bucket of the lowest level in which something hangs.
    occupied: [u64; BUCKETS / 64],
}

impl TimerWheel {
    const SHIFT: u32 = 13;
    /// The longest timer, nanoseconds: 4.8 hours.
    pub const LONGEST: Nanos = (i32::MAX as Nanos) << Self::SHIFT;

    pub fn new(origin: Nanos) -> Self {
        Self { origin, now: 0, heads: Box::new([END; BUCKETS * LEVELS]), occupied: [0; BUCKETS / 64] }
    }

    fn tick(&self, time: Nanos) -> u32 {
        (time.saturating_sub(self.origin) >> Self::SHIFT) as u32
    }

    /// The timer of `slot` ends at `deadline`, or up to a tick later. It has one timer: this replaces what was set.
    #[inline]
    pub fn set(&mut self, all: &mut [Connection], slot: u32, deadline: Nanos) {
        let due = self.tick(deadline + (1 << Self::SHIFT) - 1);
        let timer = &mut all[slot as usize].timer;
        let hangs = timer.previous != 0;
        let later = hangs && due.wrapping_sub(timer.due) as i32 >= 0;
        timer.due = due;
        if !later {
            if hangs {
                self.unhang(all, slot);
            }
            self.hang(all, slot);
        }
    }

    /// A connection whose timer has ended by `now`, or that hung here for no reason any more: look at its state. `None`
    /// when there is none.
    #[inline]
    pub fn expired(&mut self, all: &mut [Connection], now: Nanos) -> Option<u32> {
        let target = self.tick(now);
        loop {
            let slot = self.heads[self.now as usize % BUCKETS];
            if slot == END {
                if target.wrapping_sub(self.now) as i32 <= 0 {
                    return None;
                }
                self.advance(all, target);
                continue;
            }
            self.unhang(all, slot);
            if all[slot as usize].timer.due.wrapping_sub(self.now) as i32 <= 0 {
                return Some(slot);
            }
            self.hang(all, slot);
        }
    }

    /// Goes on to the next tick that has something to do, at most to `target`, and brings down what hangs in the higher
    /// levels' buckets that begin with it.
    fn advance(&mut self, all: &mut [Connection], target: u32) {
        let next = self.now as usize % BUCKETS + 1;
        let bucket = self.occupied_from(next);
        let ticks = (bucket + 1 - next) as u32;
        self.now = self.now.wrapping_add(ticks.min(target.wrapping_sub(self.now)));
        for level in 1..LEVELS {
            let shift = BITS * level as u32;
            if self.now & ((1 << shift) - 1) != 0 {
                return;
            }
            let bucket = level * BUCKETS + (self.now >> shift) as usize % BUCKETS;
            while self.heads[bucket] != END {
                let slot = self.heads[bucket];
                self.unhang(all, slot);
                self.hang_at(all, slot, all[slot as usize].timer.due, self.now);
            }
        }
    }

    /// The first bucket of the lowest level, from `bucket` on, in which something hangs, or their number.
    fn occupied_from(&self, bucket: usize) -> usize {
        let first = bucket / 64;
        let words = self.occupied.iter().enumerate().skip(first);
        let rest = |n, word| if n == first { word & u64::MAX << (bucket % 64) } else { word };
        words
            .map(|(n, &word)| (n, rest(n, word)))
            .find(|&(_, word)| word != 0)
            .map_or(BUCKETS, |(n, word)| n * 64 + word.trailing_zeros() as usize)
    }

    /// Hangs up a connection so that it comes up at its time, but at the next tick at the earliest: a timer that is set
    /// again and again for now must not keep the wheel from turning.
    fn hang(&mut self, all: &mut [Connection], slot: u32) {
        let due = all[slot as usize].timer.due;
        self.hang_at(all, slot, due, self.now.wrapping_add(1));
    }

    fn hang_at(&mut self, all: &mut [Connection], slot: u32, due: u32, earliest: u32) {
        let at = if due.wrapping_sub(earliest) as i32 <= 0 { earliest } else { due };
        let distance = at.wrapping_sub(self.now);
        let level = (0..LEVELS - 1).find(|&level| distance >> (BITS * (level as u32 + 1)) == 0).unwrap_or(LEVELS - 1);
        let bucket = level * BUCKETS + (at >> (BITS * level as u32)) as usize % BUCKETS;
        let next = std::mem::replace(&mut self.heads[bucket], slot);
        if level == 0 {
            self.occupied[bucket / 64] |= 1 << (bucket % 64);
        }
        let timer = &mut all[slot as usize].timer;
        timer.next = next;
        timer.previous = BUCKET | bucket as u32;
        if next != END {
            // A connection is linked to as its number and one, so that 0 is nothing.
            all[next as usize].timer.previous = slot + 1;
        }
    }

    fn unhang(&mut self, all: &mut [Connection], slot: u32) {
        let timer = &mut all[slot as usize].timer;
        let (next, previous) = (timer.next, std::mem::take(&mut timer.previous));
        match previous & BUCKET {
            0 => all[previous as usize - 1].timer.next = next,
            _ => {
                let bucket = (previous & !BUCKET) as usize;
                self.heads[bucket] = next;
                if next == END && bucket < BUCKETS {
                    self.occupied[bucket / 64] &= !(1 << (bucket % 64));
                }
            }
        }
        if next != END {
            all[next as usize].timer.previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TICK: Nanos = 1 << TimerWheel::SHIFT;

    /// When each timer ends, by a model that looks at all of them.
    fn follow(steps: &[(u32, Nanos, Nanos)]) {
        const SLOTS: usize = 8;
        let mut all = vec![Connection::default(); SLOTS];
        let mut model = [None::<Nanos>; SLOTS];
        let mut now = 5_000_000;
        let mut wheel = TimerWheel::new(now);
        for &(slot, delay, wait) in steps {
            let slot = slot % SLOTS as u32;
            wheel.set(&mut all, slot, now + delay);
            model[slot as usize] = Some(now + delay);
            now += wait;
            while let Some(slot) = wheel.expired(&mut all, now) {
                let due = model[slot as usize].take().expect("a timer ends once");
                assert!(due <= now, "slot {slot} ends {} ns early", due - now);
            }
            for (slot, due) in model.iter().enumerate() {
                assert!(due.is_none_or(|due| due + 2 * TICK > now), "slot {slot} is forgotten");
            }
        }
    }

    proptest! {
        #[test]
        fn timers_end_once_and_in_time(steps in prop::collection::vec((0u32..8, 0u64..3_000_000_000, 0u64..700_000_000), 1..60)) {
            follow(&steps);
        }

        #[test]
        fn short_timers_too(steps in prop::collection::vec((0u32..8, 0u64..100_000, 0u64..50_000), 1..200)) {
            follow(&steps);
        }
    }

    #[test]
    fn far_timers_come_down_through_the_levels() {
        let hour = 3600 * 1_000_000_000;
        follow(&[(0, hour, 0), (1, 17 * 1_000_000_000, 0), (2, 1, 0), (3, 0, hour / 2), (4, 1, hour / 2 + 2 * TICK)]);
    }

    #[test]
    fn a_timer_that_is_set_for_now_waits_for_the_next_tick() {
        let mut all = vec![Connection::default(); 1];
        let mut wheel = TimerWheel::new(0);
        wheel.set(&mut all, 0, 0);
        assert_eq!(wheel.expired(&mut all, 0), None);
        assert_eq!(wheel.expired(&mut all, TICK), Some(0));
        wheel.set(&mut all, 0, TICK);
        assert_eq!(wheel.expired(&mut all, TICK), None);
    }
}
