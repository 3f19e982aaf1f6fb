//! Connections shared with other balancers, so that one can go on with those of another.
//!
//! ```text
//! table ── records ──> Tracker (who was told what) ──> wire ── UDP ──> peers
//! table <── Adopter <── PeerSession (who is believed) <── wire <── UDP ──┘
//! ```
//!
//! All of it is one thread, [`Sync`]; what is decided is apart from what is done: `wire`, `session` and `tracker` have no socket and no
//! clock. docs/decisions/connection-sync.md says why it is so.

pub(crate) mod board;
mod pace;
mod peer;
pub(crate) mod session;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
mod tracker;
pub(crate) mod wire;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use self::worker::Sync;

/// What a file says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncSettings {
    /// Where it hears its peers, and sends from.
    pub address: SocketAddr,
    pub peers: Vec<SocketAddr>,
    /// The file with the key that all of them have.
    pub key: PathBuf,
    /// From one look through the table to the next.
    pub interval: Duration,
    /// How long a connection has been there before peers are told of it.
    pub after: Duration,
    /// How often peers are told of all, known or not.
    pub full: Duration,
    /// Bytes a second, of UDP's payload, to all peers together.
    pub rate: u64,
}

/// Balancers that can share connections, beside this one.
pub(crate) const MOST_PEERS: usize = 15;

pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
pub(crate) const AFTER: Duration = Duration::from_secs(1);
pub(crate) const FULL: Duration = Duration::from_secs(20);
/// 40 Mbit/s: some 150,000 records a second, which a peer's one thread can put into its table.
pub(crate) const RATE: u64 = 5_000_000;
