//! Which addresses the balancer has announced, and when.

use super::engine::Engine;
use crate::bgp::{Announcements, BgpSettings};
use crate::message::BgpStatus;
use crate::settings::{Rules, Service};
use crate::sync::Sync;

/// MULTI_EXIT_DISC of local addresses that another balancer gives out: routers prefer that one while it is there (RFC 4271, 9.1.2.2).
const OF_OTHERS: u32 = 100;

impl Engine {
    /// Has addresses announced and withdrawn as it stands now.
    pub(super) fn follow_bgp(&self) {
        if let Some(announcer) = &self.announcer {
            announcer.announce(self.announcements());
        }
    }

    pub(super) fn announcements(&self) -> Announcements {
        let Some(settings) = &self.start.bgp else { return Announcements::new() };
        let is_ready =
            !self.withdrawn && self.devices.are_attached() && !self.sync.as_ref().is_some_and(Sync::is_settling);
        let gets = |service: &Service| service.backends.iter().any(|backend| backend.effective_weight() > 0);
        let can_take = |service: &Service| {
            is_ready && service.lacks().is_none() && gets(service) && self.health.has_quorum(service)
        };
        announcements(&self.rules, settings, can_take)
    }

    /// What stands in the way of it.
    pub(super) fn bgp_trouble(&self) -> Option<String> {
        let (announcer, settings) = (self.announcer.as_ref()?, self.start.bgp.as_ref()?);
        let why = announcer.state().trouble?;
        Some(format!("addresses are not announced: speaker {}: {why}", settings.speaker))
    }

    pub(super) fn bgp_status(&self) -> Option<BgpStatus> {
        let (announcer, settings) = (self.announcer.as_ref()?, self.start.bgp.as_ref()?);
        let state = announcer.state();
        let (autonomous_system, identifier) = state.connected.unzip();
        Some(BgpStatus {
            speaker: settings.speaker.clone(),
            autonomous_system,
            identifier,
            trouble: state.trouble,
            announced: state.announced.into_iter().collect(),
        })
    }
}

/// What is announced: a service's address while all services there can take packets, local addresses while any can.
fn announcements(rules: &Rules, settings: &BgpSettings, can_take: impl Fn(&Service) -> bool) -> Announcements {
    let mut all = Announcements::new();
    let mut any = false;
    for service in &rules.services {
        let takes = can_take(service);
        any |= takes;
        let entry = all.entry(service.key.address.ip()).or_insert(Some(0));
        *entry = entry.filter(|_| takes);
    }
    if settings.local {
        let own = rules.services.iter().filter(|service| service.lacks().is_none()).flat_map(|service| &service.local);
        all.extend(own.map(|address| (*address, any.then_some(0))));
        for address in &rules.others_local {
            all.entry(*address).or_insert(any.then_some(OF_OTHERS));
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;
    use crate::settings::{Completeness, Settings};

    #[test]
    fn an_address_is_announced_while_all_of_its_services_can_take_packets() {
        let text = "[sync]\naddress = '10.9.0.1:8849'\npeers = ['10.9.0.2:8849']\nkey = '/k'\nlocal = '10.0.0.201'\n[bgp]\nlocal = true\n\
             [[service]]\nlisten = ['192.0.2.1:80', '192.0.2.1:443', '192.0.2.2:80']\nlocal = '10.0.0.200'\nbackend = ['10.0.0.1:80']\n";
        let Settings { start, rules } = Settings::parse("lb.toml", text, Completeness::Required).unwrap();
        let bgp = start.bgp.unwrap();
        let announced = |is: &dyn Fn(&Service) -> bool| {
            let all = announcements(&rules, &bgp, is);
            all.into_iter().map(|(address, med)| (address.to_string(), med)).collect::<Vec<_>>()
        };
        let of = |list: [(&str, Option<u32>); 4]| list.map(|(address, med)| (address.to_owned(), med)).to_vec();
        let all = [("10.0.0.200", Some(0)), ("10.0.0.201", Some(100)), ("192.0.2.1", Some(0)), ("192.0.2.2", Some(0))];
        assert_eq!(announced(&|_| true), of(all));
        let one = [("10.0.0.200", Some(0)), ("10.0.0.201", Some(100)), ("192.0.2.1", None), ("192.0.2.2", Some(0))];
        assert_eq!(announced(&|service| service.key.address.port() == 80), of(one));
        assert_eq!(announced(&|_| false), of(all.map(|(address, _)| (address, None))));
        let without = BgpSettings { local: false, ..bgp.clone() };
        assert_eq!(announcements(&rules, &without, |_| true).len(), 2);
    }
}
