//! What is on its way to one peer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{PortShare, SharedConnection};

use super::session::PeerSession;
use super::wire::{self, Hello, Key, ROOM};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) session: PeerSession,
    /// Records that wait for their datagram.
    body: Vec<u8>,
    count: u16,
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
        Self { address, session, body: Vec::new(), count: 0, full_at: now, is_full: false, dumps: 0, was_silent: false }
    }

    /// Appends a record; the datagram that was full before it.
    pub(super) fn put(&mut self, key: &Key, record: &SharedConnection) -> Option<(Vec<u8>, u16)> {
        let before = self.body.len();
        wire::put_record(&mut self.body, record);
        if self.body.len() <= ROOM {
            self.count += 1;
            return None;
        }
        let record = self.body.split_off(before);
        let full = self.flush(key);
        self.body = record;
        self.count = 1;
        full
    }

    /// A datagram with the records that wait, and how many these are.
    pub(super) fn flush(&mut self, key: &Key) -> Option<(Vec<u8>, u16)> {
        let (body, count) = (std::mem::take(&mut self.body), std::mem::take(&mut self.count));
        (count > 0).then(|| (wire::records(key, self.session.next_header(), count, &body), count))
    }

    pub(super) fn hello(&mut self, key: &Key, PortShare { share, of }: PortShare) -> Vec<u8> {
        let (challenge, echo) = self.session.challenges();
        wire::hello(key, self.session.next_header(), Hello { challenge, echo, share, of })
    }

    /// A round begins: whether it is told of all connections.
    pub(super) fn begin_round(&mut self, now: Instant, full: Duration) {
        self.is_full = self.session.is_open() && now >= self.full_at;
        if self.is_full {
            self.full_at = now + full;
        }
    }
}
