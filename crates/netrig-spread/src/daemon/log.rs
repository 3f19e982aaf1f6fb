//! What happened, the last of it.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::message::{LogEntry, LogEvent};

/// At the highest pace of moves some minutes.
const MOST: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct Log {
    last: VecDeque<LogEntry>,
    count: u64,
}

impl Log {
    pub(super) fn add(&mut self, interface: &str, at: Duration, what: LogEvent) {
        if self.last.len() == MOST {
            self.last.pop_front();
        }
        self.count += 1;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last.push_back(LogEntry {
            number: self.count,
            unix_ms: unix.as_millis() as u64,
            at_ns: at.as_nanos() as u64,
            interface: interface.to_owned(),
            what,
        });
    }

    /// Those after the one with this number, as far as they are still there.
    pub(super) fn after(&self, number: u64) -> Vec<LogEntry> {
        self.last.iter().filter(|logged| logged.number > number).cloned().collect()
    }
}
