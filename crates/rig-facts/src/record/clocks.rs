//! How far two machines' monotonic clocks are apart, from the times of a few round trips.
//!
//! The server answers a ping with the time on its clock. The answer was made at some moment between the ping's sending and
//! the pong's arrival; taking the middle is wrong by half the round trip at most (F. Cristian, "Probabilistic clock
//! synchronization", Distributed Computing 3, 1989). The shortest round trip says most.

use serde::{Deserialize, Serialize};

/// The server's clock as the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// The server's clock less the client's, nanoseconds.
    pub offset_ns: i64,
    /// The most that the offset can be wrong by, nanoseconds: half the shortest round trip. The drift of two quartz
    /// clocks in the seconds since, some microseconds, comes on top.
    pub bound_ns: u64,
    /// Round trips that were measured.
    pub round_trips: u32,
    pub shortest_ns: u64,
    pub longest_ns: u64,
}

impl Clocks {
    /// Adds one round trip: sent at `sent_ns` and back at `back_ns` by the client's clock, answered at `answered_ns` by
    /// the server's.
    pub fn with(before: Option<Self>, sent_ns: u64, back_ns: u64, answered_ns: u64) -> Self {
        let trip = back_ns.saturating_sub(sent_ns);
        let middle = i128::from(sent_ns) + i128::from(trip / 2);
        let offset = i128::from(answered_ns) - middle;
        let this = Self {
            // A server that tells nonsense gets nonsense: 292 years.
            offset_ns: i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX }),
            bound_ns: trip.div_ceil(2),
            round_trips: 1,
            shortest_ns: trip,
            longest_ns: trip,
        };
        let Some(before) = before else { return this };
        let best = if trip < before.shortest_ns { this } else { before };
        Self { round_trips: before.round_trips + 1, longest_ns: before.longest_ns.max(trip), ..best }
    }

    /// A time of the client's clock on the server's.
    pub fn to_server(self, client_ns: u64) -> u64 {
        shifted(client_ns, self.offset_ns.into())
    }

    /// A time of the server's clock on the client's.
    pub fn to_client(self, server_ns: u64) -> u64 {
        shifted(server_ns, -i128::from(self.offset_ns))
    }
}

fn shifted(ns: u64, by: i128) -> u64 {
    u64::try_from((i128::from(ns) + by).max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_shortest_round_trip_says_most() {
        let clocks = Clocks::with(None, 1_000, 3_000, 502_500);
        assert_eq!((clocks.offset_ns, clocks.bound_ns), (500_500, 1_000));
        let clocks = Clocks::with(Some(clocks), 10_000, 10_200, 510_100);
        assert_eq!((clocks.offset_ns, clocks.bound_ns, clocks.round_trips), (500_000, 100, 2));
        let clocks = Clocks::with(Some(clocks), 20_000, 29_000, 520_000);
        assert_eq!((clocks.offset_ns, clocks.shortest_ns, clocks.longest_ns), (500_000, 200, 9_000));
        assert_eq!(clocks.to_server(7), 500_007);
        assert_eq!(clocks.to_client(500_007), 7);
    }

    proptest! {
        #[test]
        fn the_bound_holds_whenever_the_answer_was_made(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            sent in 2_000_000_000_000u64..3_000_000_000_000,
            there in 0u64..1_000_000_000,
            back in 0u64..1_000_000_000,
        ) {
            let answered = (sent + there).checked_add_signed(offset).unwrap();
            let clocks = Clocks::with(None, sent, sent + there + back, answered);
            prop_assert!(clocks.offset_ns.abs_diff(offset) <= clocks.bound_ns);
        }

        #[test]
        fn nothing_overflows(sent: u64, back: u64, answered: u64, again: u64, at: u64) {
            let clocks = Clocks::with(Some(Clocks::with(None, sent, back, answered)), again, back, answered);
            let _ = (clocks.to_server(at), clocks.to_client(at));
        }
    }
}
