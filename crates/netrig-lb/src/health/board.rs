//! What is known of all backends that are checked: written by the checker's thread, read by the balancer's.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use super::state::{Health, HealthState};
use crate::message::ServiceKey;

/// A backend of a service.
pub type TargetKey = (ServiceKey, SocketAddr);

/// What a probe has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Good,
    Bad(String),
    /// It could not be made, for a reason of this machine: it says nothing of the backend.
    Unable(String),
}

/// The last probe of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastProbe {
    pub outcome: Outcome,
    pub at: SystemTime,
    pub took: Duration,
    /// When the first of the certificates ends that the backend has shown.
    pub certificate_end: Option<SystemTime>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub state: HealthState,
    pub last: Option<LastProbe>,
    /// Of this control plane.
    pub good: u64,
    pub bad: u64,
    pub unable: u64,
    pub transitions: u64,
    /// Of probes that were good or bad.
    pub took: Duration,
}

impl Record {
    pub fn new(state: HealthState) -> Self {
        Self { state, last: None, good: 0, bad: 0, unable: 0, transitions: 0, took: Duration::ZERO }
    }
}

/// Something to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthEvent {
    pub of: TargetKey,
    pub what: HealthChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthChange {
    Is(Health, Option<String>),
    /// From now on probes cannot be made.
    Unable(String),
}

#[derive(Debug, Default)]
pub struct Board {
    pub records: HashMap<TargetKey, Record>,
    pub events: Vec<HealthEvent>,
}

impl Board {
    /// Notes what a probe came to; true where something is to be told.
    pub fn note(&mut self, of: TargetKey, thresholds: (u32, u32), last: LastProbe) -> bool {
        let Some(record) = self.records.get_mut(&of) else { return false };
        let (good, reason) = match &last.outcome {
            Outcome::Good => (true, None),
            Outcome::Bad(reason) => (false, Some(reason.clone())),
            Outcome::Unable(reason) => {
                record.unable += 1;
                let before = record.last.replace(last.clone()).map(|before| before.outcome);
                let is_new = before.as_ref() != Some(&last.outcome);
                if is_new {
                    self.events.push(HealthEvent { of, what: HealthChange::Unable(reason.clone()) });
                }
                return is_new;
            }
        };
        let was_unknown = record.state.health == Health::Unknown;
        *(if good { &mut record.good } else { &mut record.bad }) += 1;
        record.took += last.took;
        let changed = record.state.take(good, thresholds, last.at);
        record.last = Some(last);
        // That one is up from the beginning is what was expected.
        if let Some(health) = changed.filter(|health| !(was_unknown && *health == Health::Up)) {
            record.transitions += 1;
            self.events.push(HealthEvent { of, what: HealthChange::Is(health, reason) });
        }
        changed.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::message::Protocol;

    #[test]
    fn what_this_machine_could_not_do_says_nothing_of_a_backend() {
        let service = ServiceKey { protocol: Protocol::Tcp, address: "192.0.2.1:80".parse().unwrap() };
        let of = (service, "10.0.0.1:80".parse().unwrap());
        let mut board = Board::default();
        let now = SystemTime::UNIX_EPOCH;
        let probe = |outcome| LastProbe { outcome, at: now, took: Duration::from_millis(2), certificate_end: None };
        assert!(!board.note(of, (1, 1), probe(Outcome::Good)), "of nobody");
        board.records.insert(of, Record::new(HealthState::new(now)));
        assert!(board.note(of, (1, 1), probe(Outcome::Good)));
        let unable = || probe(Outcome::Unable("too many open files".into()));
        assert!(board.note(of, (1, 1), unable()));
        assert!(!board.note(of, (1, 1), unable()), "told twice");
        assert!(board.note(of, (1, 1), probe(Outcome::Bad("connection refused".into()))));
        let record = &board.records[&of];
        assert_eq!((record.good, record.bad, record.unable, record.transitions), (1, 1, 2, 1));
        assert_eq!(record.took, Duration::from_millis(4));
        let told: Vec<_> = board.events.iter().map(|event| event.what.clone()).collect();
        let down = HealthChange::Is(Health::Down, Some("connection refused".into()));
        assert_eq!(told, [HealthChange::Unable("too many open files".into()), down]);
    }
}
