//! Holding a sender to a rate.

use std::collections::VecDeque;
use std::time::Duration;

use rig_sys::clock::monotonic_ns;

use super::LoadProgress;
use crate::command::CommandAction;
use crate::plan::batch::batch;

/// A sender that was kept from sending may make up for at most this much; what is older is lost. One percent of a window
/// of a second.
const BURST_NS: f64 = 10e6;

/// Sleeps are made at least this long beyond the due time: at high rates one wake-up then serves several messages.
const GRAIN_NS: u64 = 50_000;

/// An absolute schedule of bytes (the generic cell rate algorithm of ITU-T I.371): sending n bytes moves the time at
/// which the next send is due by n / rate. The clock is only looked at when the schedule is not known to be behind.
#[derive(Debug)]
pub(crate) struct Pace {
    ns_per_byte: f64,
    origin_ns: u64,
    /// Both relative to the origin.
    due_ns: f64,
    seen_ns: f64,
    /// Of one that follows the rates that the load is told: the commands that were looked at.
    heard: Option<usize>,
    /// Rates to come, bytes per second, each with the moment from which it holds.
    coming: VecDeque<(u64, f64)>,
    /// Which no rate exceeds.
    ceiling: f64,
}

impl Pace {
    /// At most `rate` bytes per second from now on; `None` for no limit.
    pub(crate) fn new(rate: Option<u64>) -> Option<Self> {
        let ns_per_byte = 1e9 / rate? as f64;
        let origin_ns = monotonic_ns();
        let (due_ns, seen_ns, heard, coming, ceiling) = (0.0, 0.0, None, VecDeque::new(), f64::INFINITY);
        Some(Self { ns_per_byte, origin_ns, due_ns, seen_ns, heard, coming, ceiling })
    }

    /// At most `rate` bytes per second from now on, as far as there is one, and never more than `ceiling`: what a peer
    /// may not exceed has no first message for free, so that the first of up to `message` bytes waits for its time too.
    pub(crate) fn within(rate: Option<u64>, ceiling: Option<u64>, message: usize) -> Option<Self> {
        let Some(ceiling) = ceiling else { return Self::new(rate) };
        let mut pace = Self::new(Some(rate.map_or(ceiling, |rate| rate.min(ceiling))))?;
        pace.ceiling = ceiling as f64;
        pace.spend(message);
        Some(pace)
    }

    /// As [`Self::within`], and from then on at the rates that the load is told, if it has one to begin with.
    pub(crate) fn following(rate: Option<u64>, ceiling: Option<u64>, message: usize) -> Option<Self> {
        let pace = Self::within(rate, ceiling, message)?;
        Some(Self { heard: rate.map(|_| 0), ..pace })
    }

    /// Messages of `bytes` that may leave together, at least one and up to `most`.
    #[inline]
    pub(crate) fn batch(&self, bytes: usize, most: usize) -> usize {
        batch(self.ns_per_byte, bytes, most)
    }

    /// Accounts for `bytes` sent.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: usize) {
        self.due_ns += bytes as f64 * self.ns_per_byte;
    }

    /// `None` when the next send is due, else the time to wait for, in nanoseconds of CLOCK_MONOTONIC.
    #[inline]
    pub(crate) fn due(&mut self, progress: &LoadProgress) -> Option<u64> {
        if !self.coming.is_empty() || self.heard.is_some_and(|heard| progress.has_news(heard)) {
            self.hear(progress, monotonic_ns());
        }
        if self.due_ns <= self.seen_ns { None } else { self.look(monotonic_ns()) }
    }

    /// Takes the rate that holds at `now_ns`.
    #[cold]
    fn hear(&mut self, progress: &LoadProgress, now_ns: u64) {
        let news = self.heard.as_mut().map_or_else(Vec::new, |heard| progress.news(heard));
        for command in news {
            if let CommandAction::Rate(rate) = command.what {
                self.coming.push_back((command.at_ns, rate));
            }
        }
        while let Some((at_ns, rate)) = self.coming.front().copied().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.coming.pop_front();
            (self.origin_ns, self.seen_ns) = (at_ns, now_ns.saturating_sub(at_ns) as f64);
            self.ns_per_byte = 1e9 / rate.min(self.ceiling);
            // A rate of zero has no next time.
            self.due_ns = if rate > 0.0 { (self.seen_ns - BURST_NS).max(0.0) } else { f64::INFINITY };
        }
    }

    fn look(&mut self, now_ns: u64) -> Option<u64> {
        self.seen_ns = now_ns.saturating_sub(self.origin_ns) as f64;
        if self.due_ns <= self.seen_ns {
            self.due_ns = self.due_ns.max(self.seen_ns - BURST_NS);
            return None;
        }
        let due_ns = self.origin_ns.saturating_add(self.due_ns as u64).saturating_add(GRAIN_NS);
        Some(self.coming.front().map_or(due_ns, |(at_ns, _)| due_ns.min((*at_ns).max(now_ns))))
    }

    /// Sleeps until the next send is due. False when the load ended meanwhile.
    #[inline]
    pub(crate) fn wait(&mut self, progress: &LoadProgress) -> bool {
        self.wait_unless(progress, || progress.is_ending())
    }

    /// As [`Self::wait`], for a thread that goes on until the load is `over` in its own way.
    #[inline]
    pub(crate) fn wait_unless(&mut self, progress: &LoadProgress, over: impl Fn() -> bool) -> bool {
        while let Some(due_ns) = self.due(progress) {
            if over() {
                return false;
            }
            // Parking takes an absolute futex time-out of CLOCK_MONOTONIC and, unlike a sleep, can be cut short.
            std::thread::park_timeout(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())));
        }
        true
    }
}

/// Bytes from a peer that cannot be slowed down here, held against its limit.
#[derive(Debug)]
pub(crate) struct ReceiveLimit {
    rate: u64,
    since_ns: u64,
    /// Bytes that may come at once.
    spare: u64,
    taken: u64,
}

impl ReceiveLimit {
    /// From now on at most `rate` bytes per second, with a second's worth and `burst` bytes to spare; `None` for no
    /// limit.
    pub(crate) fn new(rate: Option<u64>, burst: usize) -> Option<Self> {
        let rate = rate?;
        Some(Self { rate, since_ns: monotonic_ns(), spare: rate.saturating_add(burst as u64), taken: 0 })
    }

    /// Accounts for `bytes` that had come at `now_ns`. False when they are too many.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, now_ns: u64) -> bool {
        self.taken = self.taken.saturating_add(bytes as u64);
        let seconds = now_ns.saturating_sub(self.since_ns) as f64 / 1e9;
        self.taken as f64 <= self.spare as f64 + self.rate as f64 * seconds
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Times;
    use super::*;
    use crate::plan::batch::{BATCH_NS, batch_at};

    fn pace(rate: u64) -> Pace {
        Pace { origin_ns: 0, ..Pace::new(Some(rate)).unwrap() }
    }

    #[test]
    fn under_a_ceiling_nothing_is_free() {
        // A message that takes ten seconds at this rate.
        let mut pace = Pace { origin_ns: 0, ..Pace::within(Some(5_000), Some(1_000), 10_000).unwrap() };
        assert!(pace.look(9_999_000_000).is_some());
        assert_eq!(pace.look(10_000_000_000), None);
        pace.spend(10_000);
        assert!(pace.look(19_999_000_000).is_some());
        assert_eq!(pace.look(20_000_000_000), None);
        // The lower of the two holds, and a ceiling needs no rate.
        let slow = Pace::within(Some(100), Some(1_000), 0).unwrap();
        assert_eq!(slow.ns_per_byte, pace.ns_per_byte * 10.0);
        assert_eq!(Pace::within(None, Some(1_000), 0).unwrap().ns_per_byte, pace.ns_per_byte);
        assert!(Pace::within(None, None, 1).is_none());
    }

    #[test]
    fn a_rate_that_is_told_holds_from_its_moment_on() {
        let progress = LoadProgress::new(None).unwrap();
        let tell = |at_ns, rate| progress.tell(crate::command::Command { at_ns, what: CommandAction::Rate(rate) });
        let mut pace = Pace { origin_ns: 0, ..Pace::following(Some(1_000_000), None, 0).unwrap() };
        let sent_until = |pace: &mut Pace, from_ns: u64, to_ns: u64| {
            let (mut now_ns, mut sent) = (from_ns, 0);
            while now_ns < to_ns {
                pace.hear(&progress, now_ns);
                match pace.look(now_ns) {
                    None => {
                        pace.spend(100);
                        sent += 100;
                    }
                    Some(due_ns) => now_ns = due_ns.max(now_ns + 1),
                }
            }
            sent
        };
        let close = |sent: u64, expected: u64| assert!(sent.abs_diff(expected) <= expected / 100 + 200, "{sent}");
        tell(1_000_000_000, 4_000_000.0);
        close(sent_until(&mut pace, 0, 1_000_000_000), 1_000_000);
        close(sent_until(&mut pace, 1_000_000_000, 2_000_000_000), 4_000_000);
        tell(2_000_000_000, 0.0);
        assert_eq!(sent_until(&mut pace, 2_000_000_000, 3_000_000_000), 0);
        tell(3_000_000_000, 1_000_000.0);
        close(sent_until(&mut pace, 3_000_000_000, 4_000_000_000), 1_000_000);
        // One that has a ceiling and no rate of its own is told nothing.
        assert_eq!(Pace::following(None, Some(1_000), 0).unwrap().heard, None);
    }

    /// When what is sent leaves, and how many messages at a time, by a clock that stands until it is waited for.
    fn departures(rate: u64, message: usize, most: usize, until_ns: u64) -> Vec<(u64, usize)> {
        let (mut pace, mut now_ns, mut sent) = (pace(rate), 0, vec![]);
        while now_ns < until_ns {
            match if pace.due_ns <= pace.seen_ns { None } else { pace.look(now_ns) } {
                Some(due_ns) => now_ns = due_ns,
                None => {
                    let messages = pace.batch(message, most);
                    sent.push((now_ns, messages));
                    pace.spend(messages * message);
                }
            }
        }
        sent
    }

    #[test]
    fn speech_leaves_datagram_by_datagram_at_equal_distances() {
        // 50 datagrams of 250 bytes a second.
        let sent = departures(12_500, 250, 32, 2_000_000_000);
        assert_eq!(sent.len(), 100);
        assert!(sent.iter().all(|(_, messages)| *messages == 1));
        let distances = sent[1..].windows(2).map(|pair| pair[1].0 - pair[0].0);
        assert!(distances.into_iter().all(|ns| ns.abs_diff(20_000_000) <= 1), "{sent:?}");
    }

    #[test]
    fn batches_grow_with_the_rate() {
        let of = |messages_a_second: u64| batch_at(messages_a_second * 1000, 1000, 32);
        assert_eq!([1, 9_999, 10_001, 19_999, 100_001, 10_000_000].map(of), [1, 1, 1, 1, 10, 32]);
        // A rate of zero, and no room.
        assert_eq!((batch_at(0, 1000, 32), batch_at(1 << 40, 1000, 0)), (1, 1));
    }

    #[test]
    fn an_intake_has_a_second_to_spare() {
        let mut intake = ReceiveLimit { since_ns: 0, ..ReceiveLimit::new(Some(1_000), 500).unwrap() };
        assert!(intake.take(1_500, 0) && !intake.take(1, 0));
        assert!(intake.take(999, 1_000_000_000) && !intake.take(1, 1_000_000_000));
        assert!(ReceiveLimit::new(None, 1).is_none());
    }

    proptest! {
        /// However late or often the sender looks, it has never sent more than the rate allows plus a message.
        #[test]
        fn never_ahead_of_the_rate(
            rate in 1u64..20_000_000_000,
            message in 1usize..4_000_000,
            steps in prop::collection::vec(1u64..300_000_000, 1..200),
        ) {
            let mut pace = pace(rate);
            let (mut now, mut sent) = (0u64, 0u64);
            for step in steps {
                now += step;
                for _ in 0..1000 {
                    if pace.due_ns > pace.seen_ns && pace.look(now).is_some() {
                        break;
                    }
                    pace.spend(message);
                    sent += message as u64;
                }
                let allowed = now as f64 / 1e9 * rate as f64 + message as f64;
                prop_assert!(sent as f64 <= allowed * (1.0 + 1e-9), "{sent} sent, {allowed} allowed");
            }
        }

        /// No burst is longer than its time, but for a single message.
        #[test]
        fn bursts_are_short(rate in 1u64..20_000_000_000, message in 16usize..65_000, most in 1usize..1024) {
            let together = batch_at(rate, message, most);
            let ns = (together * message) as f64 * 1e9 / rate as f64;
            prop_assert!(together == 1 || ns <= BATCH_NS * (1.0 + 1e-9), "{together} messages take {ns} ns");
        }

        /// A sender that always looks when it was told to reaches the rate.
        #[test]
        fn an_unhindered_sender_reaches_the_rate(rate in 1_000u64..10_000_000_000, message in 1usize..200_000) {
            let mut pace = pace(rate);
            let (mut now, mut sent) = (0u64, 0u64);
            for _ in 0..2_000 {
                while pace.due_ns <= pace.seen_ns {
                    pace.spend(message);
                    sent += message as u64;
                }
                if let Some(due) = pace.look(now) {
                    now = due;
                }
            }
            let expected = now as f64 / 1e9 * rate as f64;
            let slack = message as f64 + rate as f64 * GRAIN_NS as f64 / 1e9;
            prop_assert!((sent as f64 - expected).abs() <= slack + 1.0, "{sent} sent, {expected} expected");
        }
    }

    #[test]
    fn a_long_stall_is_not_made_up_for() {
        let mut pace = pace(1_000_000);
        assert_eq!(pace.look(10_000_000_000), None);
        let mut sent = 0;
        while pace.due_ns <= pace.seen_ns {
            pace.spend(1000);
            sent += 1000;
        }
        assert!(sent <= 11_000, "{sent} bytes after a stall at 1 MB/s");
    }

    #[test]
    fn stopping_ends_the_wait_at_once() {
        let progress = std::sync::Arc::new(LoadProgress::new(None).unwrap());
        progress.start(Times::NEVER);
        let waiting = progress.clone();
        let sender = std::thread::spawn(move || {
            let mut pace = Pace::new(Some(1)).unwrap();
            pace.spend(1_000_000);
            pace.wait(&waiting)
        });
        progress.stop();
        sender.thread().unpark();
        assert!(!sender.join().unwrap());
    }
}
