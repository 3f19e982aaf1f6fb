//! What the thread has counted, for who asks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rig_datapath::balancer::{AdoptionRefusal, PortShare};

use super::wire::MessageRefusal;
use crate::message::{CountByReason, PeerState, SyncPeer};

/// A peer that is silent for so long is not there.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// How long a balancer that begins with an empty table waits for peers' connections before it is sent packets.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct SyncBoard {
    pub(crate) peers: BTreeMap<SocketAddr, PeerCounts>,
    pub(crate) refused: BTreeMap<MessageRefusal, u64>,
    /// What the last whole look through the table has met: its own, others', and those of the SYN proxy.
    pub(crate) own: u64,
    pub(crate) others: u64,
    pub(crate) left_out: u64,
    /// When it began, and how long it took.
    pub(crate) looked: Option<(Instant, Duration)>,
    /// What has happened that is to be logged.
    pub(crate) events: Vec<SyncEvent>,
    /// Why the last look failed.
    pub(crate) look_trouble: Option<String>,
    /// Why what was last told of could not be put into the table.
    pub(crate) adopt_trouble: Option<String>,
    /// Since when it waits for what peers have, as long as it does.
    pub(crate) settling: Option<Instant>,
}

#[derive(Debug)]
pub(crate) enum SyncEvent {
    Met(SocketAddr),
    Silent(SocketAddr),
    /// It gives out the same local ports.
    SamePorts(SocketAddr, PortShare),
}

#[derive(Debug, Default)]
pub(crate) struct PeerCounts {
    pub(crate) is_open: bool,
    pub(crate) heard: Option<Instant>,
    pub(crate) sent_messages: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) sent_records: u64,
    pub(crate) unsent_messages: u64,
    pub(crate) received_messages: u64,
    pub(crate) received_bytes: u64,
    pub(crate) created: u64,
    pub(crate) updated: u64,
    pub(crate) kept: u64,
    pub(crate) refused: BTreeMap<AdoptionRefusal, u64>,
    pub(crate) passes: u64,
    /// It has told of all that it has.
    pub(crate) has_told_all: bool,
}

impl SyncBoard {
    /// Why it does not work, as far as that is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.look_trouble.as_ref().or(self.adopt_trouble.as_ref()).cloned()
    }

    /// Peers whose connections are to be here before packets come; once there are none, there are none any more. Who is not heard is
    /// waited for as long as it takes to be called silent.
    pub(crate) fn awaited(&mut self, now: Instant) -> Vec<SocketAddr> {
        let Some(begun) = self.settling else { return Vec::new() };
        let waited = now.saturating_duration_since(begun);
        let is_awaited = |counts: &PeerCounts| match counts.state() {
            PeerState::Up => !counts.has_told_all && waited < LONGEST_WAIT,
            PeerState::Silent => false,
            PeerState::Unknown => waited < SILENCE,
        };
        let each = self.peers.iter().filter(|(_, counts)| is_awaited(counts));
        let awaited: Vec<_> = each.map(|(address, _)| *address).collect();
        if awaited.is_empty() {
            self.settling = None;
        }
        awaited
    }
}

impl PeerCounts {
    fn state(&self) -> PeerState {
        match self.heard {
            Some(heard) if self.is_open && heard.elapsed() < SILENCE => PeerState::Up,
            Some(_) => PeerState::Silent,
            None => PeerState::Unknown,
        }
    }

    pub(crate) fn status(&self, address: SocketAddr) -> SyncPeer {
        let of = |(why, count): (&AdoptionRefusal, &u64)| CountByReason { reason: why.key().to_owned(), count: *count };
        let refused: Vec<_> = self.refused.iter().map(of).collect();
        let refused_records: u64 = self.refused.values().sum();
        SyncPeer {
            address,
            state: self.state(),
            heard_ms: self.heard.map(|heard| heard.elapsed().as_millis() as u64),
            sent_messages: self.sent_messages,
            sent_bytes: self.sent_bytes,
            sent_records: self.sent_records,
            unsent_messages: self.unsent_messages,
            passes: self.passes,
            received_messages: self.received_messages,
            received_bytes: self.received_bytes,
            received_records: self.created + self.updated + self.kept + refused_records,
            created: self.created,
            updated: self.updated,
            kept: self.kept,
            refused,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn peers_are_waited_for_until_they_have_told_all_or_are_not_there() {
        let (heard, absent): (SocketAddr, SocketAddr) =
            ("10.9.0.2:8849".parse().unwrap(), "10.9.0.3:8849".parse().unwrap());
        let begun = Instant::now();
        let board = || {
            let mut board = SyncBoard { settling: Some(begun), ..SyncBoard::default() };
            board.peers.insert(absent, PeerCounts::default());
            let counts = PeerCounts { is_open: true, heard: Some(Instant::now()), ..PeerCounts::default() };
            board.peers.insert(heard, counts);
            board
        };
        let mut told = board();
        assert_eq!(told.awaited(begun), [heard, absent]);
        assert_eq!(told.awaited(begun + SILENCE), [heard]);
        told.peers.get_mut(&heard).unwrap().has_told_all = true;
        assert_eq!(told.awaited(begun), [absent]);
        assert!(told.awaited(begun + SILENCE).is_empty());
        // One that comes later is not waited for.
        told.peers.get_mut(&heard).unwrap().has_told_all = false;
        assert!(told.awaited(begun).is_empty());
        assert!(board().awaited(begun + LONGEST_WAIT).is_empty());
        assert!(SyncBoard { settling: None, ..board() }.awaited(begun).is_empty());
    }
}
