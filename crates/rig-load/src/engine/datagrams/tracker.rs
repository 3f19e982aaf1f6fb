//! Loss, reordering and duplication, told from sequence numbers, and the jitter of what arrived.

/// How far behind the highest number a datagram may come and still be told from a duplicate.
pub(super) const REACH: u64 = 16_384;

const WORDS: usize = (REACH / 64) as usize;

/// What an arrival is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArrivalOrder {
    /// Its number is higher than all before.
    InOrder,
    /// Its number is lower than one before, and had not come.
    Reordered,
    /// Its number had come.
    Duplicate,
    /// More than [`REACH`] behind the highest: it may have come before or not, and stays lost.
    Late,
}

/// Which of the last [`REACH`] numbers have come.
#[derive(Debug)]
pub(super) struct Tracker {
    /// One more than the highest number that has come.
    next: u64,
    /// A ring: the bit of a number is at its remainder by the reach.
    seen: Box<[u64; WORDS]>,
    /// Numbers below `next` that have not come.
    missing: u64,
}

impl Tracker {
    pub(super) fn new() -> Self {
        Self { next: 0, seen: Box::new([0; WORDS]), missing: 0 }
    }

    /// Numbers that were skipped and have not come so far.
    #[inline]
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// Takes the next arrival. Numbers begin with 0 and stay below 2^63.
    #[inline]
    pub(super) fn arrive(&mut self, number: u64) -> ArrivalOrder {
        if number >= self.next {
            if number > self.next {
                self.skip_to(number);
            }
            self.next = number + 1;
            let (word, bit) = place(number);
            self.seen[word] |= bit;
            return ArrivalOrder::InOrder;
        }
        if self.next - number > REACH {
            return ArrivalOrder::Late;
        }
        let (word, bit) = place(number);
        if self.seen[word] & bit != 0 {
            return ArrivalOrder::Duplicate;
        }
        self.seen[word] |= bit;
        self.missing -= 1;
        ArrivalOrder::Reordered
    }

    /// Forgets the bits that the skipped numbers fall on, and that of `number`.
    #[cold]
    fn skip_to(&mut self, number: u64) {
        let skipped = number - self.next;
        self.missing += skipped;
        if skipped >= REACH {
            self.seen.fill(0);
            return;
        }
        for skipped in self.next..number {
            let (word, bit) = place(skipped);
            self.seen[word] &= !bit;
        }
    }
}

#[inline]
fn place(number: u64) -> (usize, u64) {
    ((number % REACH / 64) as usize, 1 << (number % 64))
}

/// The interarrival jitter of RFC 3550, 6.4.1 and A.8: with D the difference of two datagrams' transit times,
/// J += (|D| - J) / 16. Datagrams that were sent together, with one time, count as one: the first of them to arrive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Jitter {
    /// Time of sending and transit time of the last that counted. The clocks of both ends may differ by any amount.
    last: Option<(u64, u64)>,
    value_ns: Option<f64>,
}

impl Jitter {
    #[inline]
    pub(super) fn arrive(&mut self, sent_ns: u64, arrived_ns: u64) {
        let transit = arrived_ns.wrapping_sub(sent_ns);
        match self.last {
            Some((last_sent_ns, _)) if last_sent_ns == sent_ns => return,
            Some((_, last_transit)) => {
                let difference = (transit.wrapping_sub(last_transit) as i64).unsigned_abs() as f64;
                let before = self.value_ns.unwrap_or(0.0);
                self.value_ns = Some(before + (difference - before) / 16.0);
            }
            None => {}
        }
        self.last = Some((sent_ns, transit));
    }

    /// Nanoseconds; `None` before a second time of sending was seen.
    pub(super) fn value_ns(&self) -> Option<f64> {
        self.value_ns
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::ArrivalOrder::*;
    use super::*;

    fn arrivals(numbers: &[u64]) -> Vec<ArrivalOrder> {
        let mut tracker = Tracker::new();
        numbers.iter().map(|&number| tracker.arrive(number)).collect()
    }

    #[test]
    fn every_kind_of_arrival() {
        assert_eq!(arrivals(&[0, 1, 3, 2, 2, 4]), [InOrder, InOrder, InOrder, Reordered, Duplicate, InOrder]);
        assert_eq!(arrivals(&[5, 0, 5]), [InOrder, Reordered, Duplicate]);
        assert_eq!(arrivals(&[0, REACH, 0, 1]), [InOrder, InOrder, Late, Reordered]);
        assert_eq!(arrivals(&[7, REACH + 7, REACH + 6, 8]), [InOrder, InOrder, Reordered, Reordered]);
        assert_eq!(arrivals(&[1 << 47, 0]), [InOrder, Late]);
    }

    /// Keeps every number that ever came.
    #[derive(Default)]
    struct Naive {
        came: BTreeSet<u64>,
    }

    impl Naive {
        fn arrive(&mut self, number: u64) -> ArrivalOrder {
            let highest = self.came.last().copied();
            match highest {
                Some(highest) if number <= highest && highest + 1 - number > REACH => return Late,
                _ => {}
            }
            match (self.came.insert(number), highest) {
                (false, _) => Duplicate,
                (true, Some(highest)) if number < highest => Reordered,
                (true, _) => InOrder,
            }
        }

        fn missing(&self) -> u64 {
            self.came.last().map_or(0, |highest| highest + 1 - self.came.len() as u64)
        }
    }

    /// Steps from the highest number so far: small ones, and some about as long as the tracker's reach.
    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let reach = REACH as i64;
        let step = prop_oneof![
            8 => Just(1i64),
            4 => -6i64..6,
            2 => -200i64..200,
            1 => -reach - 3..-reach + 3,
            1 => reach - 3..reach + 3,
            1 => -3 * reach..3 * reach,
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(steps in steps()) {
            let (mut tracker, mut naive) = (Tracker::new(), Naive::default());
            let mut highest = 0i64;
            for step in steps {
                let number = (highest + step).max(0);
                highest = highest.max(number);
                prop_assert_eq!(tracker.arrive(number as u64), naive.arrive(number as u64), "number {}", number);
                prop_assert_eq!(tracker.missing(), naive.missing());
            }
        }

        /// A stream of which some datagrams are dropped, some doubled and some delayed.
        #[test]
        fn injected_faults_are_counted_exactly(
            fates in prop::collection::vec(prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(3)], 1..500),
        ) {
            let (mut stream, mut held) = (vec![], None);
            let (mut dropped, mut doubled, mut delayed) = (0, 0, 0);
            for (number, fate) in fates.iter().enumerate() {
                let number = number as u64;
                match fate {
                    1 => dropped += 1,
                    2 => { stream.extend([number, number]); doubled += 1; }
                    // It comes after the next that is neither dropped nor delayed itself.
                    3 if held.is_none() => { held = Some(number); continue; }
                    _ => stream.push(number),
                }
                if *fate != 1 && let Some(late) = held.take() { stream.push(late); delayed += 1; }
            }
            stream.extend(held);
            let sent = fates.len() as u64;
            // A last datagram brings every gap to light.
            stream.push(sent);
            let mut tracker = Tracker::new();
            let all: Vec<_> = stream.iter().map(|&number| tracker.arrive(number)).collect();
            let count = |kind| all.iter().filter(|&&arrival| arrival == kind).count() as u64;
            prop_assert_eq!(tracker.missing(), dropped);
            prop_assert_eq!(count(Duplicate), doubled);
            prop_assert_eq!(count(Reordered), delayed);
            prop_assert_eq!(count(InOrder) + count(Reordered), sent + 1 - dropped);
        }
    }

    #[test]
    fn jitter_of_a_known_sequence() {
        let mut jitter = Jitter::default();
        jitter.arrive(1000, 500);
        assert_eq!(jitter.value_ns(), None);
        // The transit time does not change: no jitter, however far the clocks are apart.
        jitter.arrive(2000, 1500);
        assert_eq!(jitter.value_ns(), Some(0.0));
        // 160 ns longer, then the same again, then 32 ns shorter.
        jitter.arrive(3000, 2660);
        assert_eq!(jitter.value_ns(), Some(10.0));
        jitter.arrive(3000, 9999);
        assert_eq!(jitter.value_ns(), Some(10.0));
        jitter.arrive(4000, 3628);
        assert_eq!(jitter.value_ns(), Some(10.0 + (32.0 - 10.0) / 16.0));
    }

    #[test]
    fn any_clock_will_do() {
        let mut jitter = Jitter::default();
        for (sent, arrived) in [(u64::MAX, 0), (0, u64::MAX), (1 << 63, 0), (0, 1 << 63)] {
            jitter.arrive(sent, arrived);
        }
        assert!(jitter.value_ns().unwrap().is_finite());
    }
}
