//! How long a load's connections have to come to their end when nothing more is begun.
//!
//! A loss shows when a retransmission goes out, or the time for an answer is over: so long a run goes on after the last
//! that was begun, if anything is still open, and half as long again for what the other end then does. That is bounded: a
//! connection that waits for its peer when the run ends is counted as unfinished, which is a loss as well.

use std::time::Duration;

use super::config::{Client, Service};

/// Least and longest time for answers that come at all.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(10);
/// Connections that rest are closed when their next request would be due, as far as that is soon.
const CLOSING: Duration = Duration::from_secs(1);

impl Client {
    /// How long after the end connections that rest are closed.
    fn closing(&self) -> Duration {
        self.repeat.map_or(Duration::ZERO, |repeat| repeat.interval.min(CLOSING))
    }

    /// From when on after the end connections that rest are left as they are, so that none is cut off while it closes;
    /// `None` where the next request of each would be due before.
    pub(super) fn leaves(&self) -> Option<Duration> {
        self.repeat.filter(|repeat| repeat.interval > CLOSING).map(|_| CLOSING)
    }
}

impl Service {
    /// How long an end goes on when nothing more is begun, as long as anything is open: [`Timeline::drain`] for it.
    ///
    /// [`Timeline::drain`]: super::plan::Timeline::drain
    pub fn drain(&self) -> Duration {
        let shows = match self {
            Self::TcpClient(tcp) => tcp.times.retransmit,
            Self::TcpServer(tcp) => tcp.times.retransmit,
            Self::UdpClient(udp) => udp.timeout,
            Self::UdpServer(_) => Duration::ZERO,
        };
        let awaited = self.client().is_none_or(|client| client.flood.is_none());
        let shows = if awaited { shows.saturating_add(shows / 2) } else { Duration::ZERO };
        shows.clamp(LEAST, MOST) + self.client().map_or(CLOSING, Client::closing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::{Load, RequestRepeat, TupleOrder, UdpClient};
    use super::super::payload::Payload;
    use super::*;

    fn udp(timeout: u64, interval: Option<u64>) -> Duration {
        let client = Client {
            ports: 1..=1,
            server_ports: 1..=1,
            load: Load::new(1.0),
            repeat: interval.map(|interval| RequestRepeat::every(Duration::from_millis(interval))),
            walk: TupleOrder::Ports,
            flood: None,
        };
        Service::UdpClient(UdpClient { client, request: Payload::Filler(4), timeout: Duration::from_millis(timeout) })
            .drain()
    }

    #[test]
    fn a_loss_shows_before_the_end() {
        assert_eq!(udp(2000, None), Duration::from_millis(3000));
        assert_eq!(udp(2000, Some(300)), Duration::from_millis(3300));
        assert_eq!(udp(2000, Some(60_000)), Duration::from_millis(4000));
        assert_eq!(udp(1, None), LEAST);
        assert_eq!(udp(100_000, None), MOST);
    }
}
