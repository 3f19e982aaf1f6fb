//! How fast bytes may be sent.

use std::time::{Duration, Instant};

/// What may be sent at once after a rest.
const BURST: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct SendPace {
    /// Bytes a second.
    rate: u64,
    /// Up to when the bytes that were sent are paid for.
    paid: Instant,
}

impl SendPace {
    pub(super) fn new(rate: u64, now: Instant) -> Self {
        Self { rate: rate.max(1), paid: now }
    }

    /// Bytes have been sent; until when nothing more is to be.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let price = Duration::from_nanos(bytes as u64 * 1_000_000_000 / self.rate);
        self.paid = self.paid.max(now.checked_sub(BURST).unwrap_or(now)) + price;
        (self.paid > now).then_some(self.paid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_the_rate_has_it() {
        let begun = Instant::now();
        let mut pace = SendPace::new(100_000, begun);
        let (mut now, mut sent) = (begun, 0);
        while sent < 1_000_000 {
            sent += 1000;
            // Whoever sleeps wakes late, which costs nothing.
            now = pace.sent(1000, now).unwrap_or(now).max(now + Duration::from_millis(1));
        }
        let took = now - begun;
        assert!(took >= Duration::from_secs(10) - BURST && took <= Duration::from_millis(10_100), "{took:?}");
        // A long rest is no reason for a long burst.
        now += Duration::from_secs(100);
        let at_once = (1..).find(|_| pace.sent(100, now).is_some());
        assert!(at_once.is_some_and(|count| count <= 12), "{at_once:?}");
    }
}
