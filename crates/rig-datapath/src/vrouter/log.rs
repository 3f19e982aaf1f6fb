//! Flows that rules with [`Also::log`](super::Also) have decided about.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::{MapCore, Object, RingBuffer, RingBufferBuilder};
use zerocopy::FromBytes;

use crate::Error;

use super::config::Action;
use super::control::Router;
use super::shape::{self, LOG_HELD_BACK, LOG_LET_THROUGH, LOG_LOST, LOG_RULE_ALLOWS, LOG_SENDS, LOG_WRITTEN};
use super::status::socket;

/// What a rule has decided about a flow. A flow is logged by each rule that matches it and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// Of the kernel's monotonic clock.
    pub at: Duration,
    /// The interface that the list is of: for packets that it sends, or for those that it receives.
    pub interface: u32,
    pub sends: bool,
    /// The number that the configuration has for the list, and the [epoch](Router::lists_since) since which it says what it says.
    pub list: u32,
    pub since: u32,
    /// From 0.
    pub rule: u16,
    /// What the rule does.
    pub action: Action,
    /// Whether the flow was let through: another list may have refused what this rule allows.
    pub let_through: bool,
    pub protocol: u8,
    /// Of the direction that began it.
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of ICMP.
    pub icmp_type: u8,
}

/// Since the tables were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounts {
    /// That could be read.
    pub told: u64,
    /// That there was no room for, because what was there had not been read.
    pub lost: u64,
    /// Refusals of an interface beyond 100 a second, 128 at once.
    pub held_back: u64,
}

/// What has been logged and not read yet. One reads it at a time.
pub struct Log {
    ring: RingBuffer<'static>,
    read: Arc<Mutex<Vec<LogRecord>>>,
    /// Its map stays as long as it is read.
    _object: Arc<Object>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}

impl From<shape::LogRecord> for LogRecord {
    fn from(one: shape::LogRecord) -> Self {
        Self {
            at: Duration::from_nanos(one.time),
            interface: one.interface,
            sends: one.flags & LOG_SENDS != 0,
            list: one.list,
            since: one.since,
            rule: one.rule,
            action: if one.flags & LOG_RULE_ALLOWS != 0 { Action::Allow } else { Action::Deny },
            let_through: one.flags & LOG_LET_THROUGH != 0,
            protocol: one.protocol,
            source: socket(one.source, one.source_port),
            destination: socket(one.destination, one.destination_port),
            icmp_type: one.type_,
        }
    }
}

impl Router {
    /// # Errors
    /// When it cannot be mapped.
    pub fn log(&self) -> Result<Log, Error> {
        let name = "log_ring";
        let map = self.object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::Missing { kind: "map", name: name.to_owned() })?;
        let read = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&read);
        let take = move |bytes: &[u8]| {
            // What is reserved is of this size, which is rounded up to 8.
            if let Ok((one, _)) = shape::LogRecord::read_from_prefix(bytes) {
                to.lock().unwrap_or_else(PoisonError::into_inner).push(one.into());
            }
            0
        };
        let failed = |source| Error::Map { map: name, operation: "map", source };
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, take).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Log { ring, read, _object: Arc::clone(&self.object) })
    }

    /// How many records of the log were written, lost and held back.
    pub fn log_counts(&self) -> Result<LogCounts, Error> {
        let sum = |place| Ok::<u64, Error>(self.tables.log_counts.per_cpu::<u64>(place)?.iter().sum());
        Ok(LogCounts { told: sum(LOG_WRITTEN)?, lost: sum(LOG_LOST)?, held_back: sum(LOG_HELD_BACK)? })
    }
}

impl Log {
    /// What has been logged since it was read last, the oldest first.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self) -> Result<Vec<LogRecord>, Error> {
        let refused = |source| Error::Map { map: "log_ring", operation: "read", source };
        self.ring.consume().map_err(refused)?;
        Ok(std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
