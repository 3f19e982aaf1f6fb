//! What is on its way to one peer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{PortShare, TableRecord};

use super::session::PeerSession;
use super::wire::{self, Hello, Key, ROOM};

/// Records that wait for their datagram.
#[derive(Debug, Default)]
struct Batch {
    body: Vec<u8>,
    /// Where each of them begins there, and the tick of its last packet.
    waiting: Vec<(usize, u32)>,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) session: PeerSession,
    /// The second one is of connections whose packets are translated, the third of those of services of any port: a peer that does not know
    /// such records refuses a message for one.
    batches: [Batch; 3],
    /// Since when the first of them waits.
    pub(super) waits_since: Option<Instant>,
    /// When it is told of all connections again.
    pub(super) full_at: Instant,
    /// It is told of all connections in the round that goes on.
    pub(super) is_full: bool,
    /// Rounds in which it is told of others' connections, too: it has begun anew, and has forgotten its own that are others' now. Two,
    /// as some of the first may be lost.
    pub(super) dumps: u8,
    pub(super) was_silent: bool,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, session: PeerSession, now: Instant) -> Self {
        Self {
            address,
            session,
            batches: Default::default(),
            waits_since: None,
            full_at: now,
            is_full: false,
            dumps: 0,
            was_silent: false,
        }
    }

    /// Whether it is told of connections: there is no use in telling one that does not hear, and that is told of all when it is back.
    pub(super) fn hears(&self) -> bool {
        self.session.is_open() && !self.was_silent
    }

    /// It is told of all from the next round on, others' included, and nothing of the round that goes on counts.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        (self.full_at, self.is_full, self.dumps) = (now, false, 2);
    }

    /// Appends a record, unless it is of addresses that no message can have, as of a client with an IPv4-mapped one; the datagram that was full before it. `tick` is asked for the time.
    pub(super) fn put(
        &mut self,
        key: &Key,
        record: &TableRecord,
        tick: impl FnOnce() -> u32,
    ) -> Option<(Vec<u8>, u16)> {
        if !record.connection.is_sound() {
            return None;
        }
        let batch = match &record.connection {
            connection if connection.any_port => 2,
            connection => usize::from(wire::is_translated(connection)),
        };
        let body = &mut self.batches[batch].body;
        let before = body.len();
        wire::put_record(body, &record.connection);
        let full = if body.len() > ROOM {
            let appended = body.split_off(before);
            let full = self.flush_batch(batch, key, tick());
            self.batches[batch].body = appended;
            full
        } else {
            None
        };
        self.batches[batch].waiting.push((if full.is_some() { 0 } else { before }, record.tick));
        self.waits_since.get_or_insert_with(Instant::now);
        full
    }

    /// A datagram with records that wait, and how many these are; none once none waits. They may have waited, and so may what they were read with: their
    /// ages are as of `now`, in ticks.
    pub(super) fn flush(&mut self, key: &Key, now: u32) -> Option<(Vec<u8>, u16)> {
        (0..self.batches.len()).find_map(|batch| self.flush_batch(batch, key, now))
    }

    fn flush_batch(&mut self, batch: usize, key: &Key, now: u32) -> Option<(Vec<u8>, u16)> {
        let Batch { mut body, waiting } = std::mem::take(&mut self.batches[batch]);
        if self.batches.iter().all(|batch| batch.waiting.is_empty()) {
            self.waits_since = None;
        }
        for (at, tick) in &waiting {
            wire::set_age(&mut body[*at..], *tick, now);
        }
        let count = waiting.len() as u16;
        (count > 0).then(|| (wire::records(key, self.session.next_header(), count, &body), count))
    }

    /// What tells the peer that it has been told of all.
    pub(super) fn end_of_pass(&mut self, key: &Key) -> Vec<u8> {
        wire::records(key, self.session.next_header(), 0, &[])
    }

    pub(super) fn hello(&mut self, key: &Key, PortShare { share, of }: PortShare) -> Vec<u8> {
        let (challenge, echo) = self.session.challenges();
        wire::hello(key, self.session.next_header(), Hello { challenge, echo, share, of })
    }

    /// A round begins: whether it is told of all connections.
    pub(super) fn begin_round(&mut self, now: Instant, full: Duration) {
        self.is_full = self.hears() && now >= self.full_at;
        if self.is_full {
            self.full_at = now + full;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use rig_datapath::balancer::{Protocol, SharedConnection, State};

    use super::*;
    use crate::sync::wire::Body;

    fn record(tick: u32) -> TableRecord {
        let connection = SharedConnection {
            protocol: Protocol::Tcp,
            forward: 2,
            state: State::Established,
            before: None,
            idle: 5,
            client: "198.51.100.9:4000".parse().unwrap(),
            service: "192.0.2.1:80".parse().unwrap(),
            backend: "10.0.0.1:80".parse().unwrap(),
            any_port: false,
            local: None,
        };
        TableRecord { slot: 5, tick, is_spliced: false, connection }
    }

    fn peer() -> Peer {
        Peer::new("10.9.0.2:8849".parse().unwrap(), PeerSession::new(1, 2), Instant::now())
    }

    fn ages(key: &Key, message: &[u8]) -> Vec<u32> {
        let Body::Records(records) = wire::open(key, message).unwrap().1 else { panic!("no records") };
        records.iter().map(|record| record.idle).collect()
    }

    #[test]
    fn ages_are_those_of_when_a_datagram_goes_out() {
        let (key, mut peer) = (Key::new([1; 32]), peer());
        let fit = (1..).find(|n| peer.put(&key, &record(100 + n), || unreachable!()).is_none() && *n == 52).unwrap();
        assert!(peer.waits_since.is_some());
        let (message, count) = peer.put(&key, &record(u32::MAX), || 1000).unwrap();
        assert_eq!((u32::from(count), ages(&key, &message)), (fit, (1..=fit).map(|n| 900 - n).collect::<Vec<_>>()));
        // The one that had no room waits; ticks wrap.
        peer.put(&key, &record(7), || unreachable!());
        let (message, _) = peer.flush(&key, 6).unwrap();
        assert_eq!(ages(&key, &message), [7, 0]);
        assert!(peer.waits_since.is_none() && peer.flush(&key, 6).is_none());
        assert!(ages(&key, &peer.end_of_pass(&key)).is_empty());
    }

    /// Records that an older peer refuses a message for do not cost it others, and what no message can have is left out.
    #[test]
    fn connections_that_older_peers_do_not_know_are_in_messages_of_their_own() {
        let (key, mut peer) = (Key::new([1; 32]), peer());
        let of_ipv6 = |client: &str| {
            let mut record = record(100);
            let connection = &mut record.connection;
            (connection.forward, connection.client) = (1, client.parse().unwrap());
            connection.service = "[2001:db8::1]:80".parse().unwrap();
            connection.local = Some("10.0.0.200:1024".parse().unwrap());
            record
        };
        // The client ::ffff:198.51.100.9, as the table gives it out.
        let mapped = of_ipv6("198.51.100.9:4000");
        let translated = of_ipv6("[2001:db8::9]:4000");
        let mut of_any = record(92);
        (of_any.connection.any_port, of_any.connection.backend) = (true, "10.0.0.1:80".parse().unwrap());
        for record in [&mapped, &record(90), &of_any, &translated, &record(91), &mapped] {
            assert_eq!(peer.put(&key, record, || unreachable!()), None);
        }
        let (plain, count) = peer.flush(&key, 100).unwrap();
        assert_eq!((count, ages(&key, &plain)), (2, vec![10, 9]));
        assert!(peer.waits_since.is_some());
        let (other, count) = peer.flush(&key, 100).unwrap();
        let Body::Records(read) = wire::open(&key, &other).unwrap().1 else { panic!("no records") };
        assert_eq!((count, &read[..]), (1, &[SharedConnection { idle: 0, ..translated.connection }][..]));
        let (other, count) = peer.flush(&key, 100).unwrap();
        let Body::Records(read) = wire::open(&key, &other).unwrap().1 else { panic!("no records") };
        assert_eq!((count, &read[..]), (1, &[SharedConnection { idle: 8, ..of_any.connection }][..]));
        assert!(peer.waits_since.is_none() && peer.flush(&key, 100).is_none());
    }

    #[test]
    fn a_peer_that_begins_anew_is_told_of_all_from_the_beginning() {
        let (mut peer, now) = (peer(), Instant::now());
        let greets = Hello { challenge: 0, echo: 2, share: 1, of: 1 };
        peer.session.accept(wire::Header { session: 9, to: 1, sequence: 1 }, Some(&greets), 3).unwrap();
        peer.begin_round(now, Duration::from_secs(20));
        assert!(peer.is_full && peer.hears());
        peer.begin_anew(now);
        assert!(!peer.is_full);
        peer.begin_round(now, Duration::from_secs(20));
        assert_eq!((peer.is_full, peer.dumps), (true, 2));
        // A silent one is told of nothing.
        peer.was_silent = true;
        peer.begin_round(now + Duration::from_secs(30), Duration::from_secs(20));
        assert!(!peer.is_full && !peer.hears());
    }
}
