//! Backends that drain with a deadline, at which those of their connections that are left end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::message::{RuleChange, ServiceKey};
use crate::settings::Rules;

/// The deadlines. A control plane that is started again knows of none: its backends go on draining.
#[derive(Debug, Default)]
pub(super) struct Drains(BTreeMap<(ServiceKey, SocketAddr), Instant>);

impl Drains {
    /// Notes what edits have begun, or ended; `rules` are those in force with them.
    pub(super) fn edited(&mut self, edits: &[RuleChange], rules: &Rules, now: Instant) {
        for edit in edits {
            if let RuleChange::EditBackend { service, backend, options } = edit
                && let Some(ms) = options.drain_ms
            {
                self.0.insert((*service, *backend), now + Duration::from_millis(ms));
            }
        }
        self.retain(rules);
    }

    /// Only what drains has a deadline.
    pub(super) fn retain(&mut self, rules: &Rules) {
        self.0.retain(|(service, backend), _| {
            let backends = rules.service(*service).map_or(&[][..], |service| &service.backends);
            backends.iter().any(|known| known.address == *backend && known.drain)
        });
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }

    /// Whose time is over.
    pub(super) fn take_over(&mut self, now: Instant) -> Vec<(ServiceKey, SocketAddr)> {
        let over: Vec<_> = self.0.iter().filter(|(_, deadline)| **deadline <= now).map(|(at, _)| *at).collect();
        self.0.retain(|_, deadline| *deadline > now);
        over
    }

    /// Milliseconds that a backend has left.
    pub(super) fn left(&self, service: ServiceKey, backend: SocketAddr) -> Option<u64> {
        let deadline = self.0.get(&(service, backend))?;
        Some(deadline.saturating_duration_since(Instant::now()).as_millis() as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::message::{BackendOptions, Protocol, ServiceOptions};

    #[test]
    fn a_deadline_goes_with_the_drain() {
        let service = ServiceKey { protocol: Protocol::Tcp, address: "192.0.2.1:80".parse().unwrap() };
        let backend: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let edit = |options| RuleChange::EditBackend { service, backend, options };
        let drain = edit(BackendOptions { drain_ms: Some(1000), ..BackendOptions::default() });
        let mut rules = Rules::default();
        rules.edit(&RuleChange::AddService { service, options: ServiceOptions::default() }).unwrap();
        rules.edit(&RuleChange::AddBackend { service, backend, options: BackendOptions::default() }).unwrap();
        rules.edit(&drain).unwrap();
        assert_eq!(rules.services[0].backends[0].effective_weight(), 0);
        let (mut drains, now) = (Drains::default(), Instant::now());
        drains.edited(std::slice::from_ref(&drain), &rules, now);
        assert_eq!((drains.due(), drains.take_over(now)), (Some(now + Duration::from_secs(1)), Vec::new()));
        assert!(drains.left(service, backend).is_some_and(|left| left <= 1000));
        assert_eq!(drains.take_over(now + Duration::from_secs(1)), [(service, backend)]);
        assert_eq!(drains.due(), None);
        // A weight puts it back to work.
        drains.edited(std::slice::from_ref(&drain), &rules, now);
        let weight = edit(BackendOptions { weight: Some(2), ..BackendOptions::default() });
        rules.edit(&weight).unwrap();
        drains.edited(&[weight], &rules, now);
        assert_eq!((drains.due(), rules.services[0].backends[0].effective_weight()), (None, 2));
    }
}
