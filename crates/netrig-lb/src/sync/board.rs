//! What the thread has counted, for who asks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use rig_datapath::balancer::{AdoptionRefusal, PortShare};

use super::wire::MessageRefusal;
use crate::message::{CountByReason, PeerState, SyncPeer};

/// A peer that is silent for so long is not there.
pub(crate) const SILENCE: std::time::Duration = std::time::Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct SyncBoard {
    pub(crate) peers: BTreeMap<SocketAddr, PeerCounts>,
    pub(crate) refused: BTreeMap<MessageRefusal, u64>,
    /// What the last whole look through the table has met: its own, others', and those of the SYN proxy.
    pub(crate) own: u64,
    pub(crate) others: u64,
    pub(crate) left_out: u64,
    /// When it began, and how long it took.
    pub(crate) looked: Option<(Instant, std::time::Duration)>,
    /// What has happened that is to be logged.
    pub(crate) events: Vec<SyncEvent>,
    /// Why it does not work, as far as that is known.
    pub(crate) trouble: Option<String>,
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
