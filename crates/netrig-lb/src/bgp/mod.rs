//! Addresses that are announced by BGP while packets for them can come here, through the machine's own speaker, GoBGP.
//!
//! ```text
//! rules, health, withdrawn ── announcements ──> Announcer (a thread that talks to gobgpd) ──> gobgpd ── BGP ──> routers
//! ```

#[cfg(not(feature = "bgp"))]
mod absent;
#[cfg(feature = "bgp")]
mod announcer;
#[cfg(feature = "bgp")]
mod path;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

#[cfg(not(feature = "bgp"))]
pub(crate) use self::absent::Announcer;
#[cfg(feature = "bgp")]
pub(crate) use self::announcer::Announcer;
use crate::settings::{Rules, Service};

/// Whether files may have `[bgp]`. Tests of settings need no speaker.
pub(crate) const HAS_BGP: bool = cfg!(any(feature = "bgp", test));

/// What a file says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BgpSettings {
    /// Of the API of gobgpd: an address with a port, or `unix:` with a path.
    pub speaker: String,
    /// Whether local addresses are announced, too.
    pub local: bool,
}

/// Where GoBGP's API is where nothing is said of it.
pub(crate) const SPEAKER: &str = "127.0.0.1:50051";
/// MULTI_EXIT_DISC of local addresses that another balancer gives out: routers prefer that one while it is there (RFC 4271, 9.1.2.2).
const OF_OTHERS: u32 = 100;

/// Addresses with their MULTI_EXIT_DISC; `None` where they are not announced.
pub(crate) type Announcements = BTreeMap<IpAddr, Option<u32>>;

/// What comes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpeakerState {
    /// Its AS and its identifier, while it is there.
    pub(crate) connected: Option<(u32, String)>,
    /// Why it is not there.
    pub(crate) trouble: Option<String>,
    /// What it was told to announce.
    pub(crate) announced: BTreeSet<IpAddr>,
}

/// What is announced: a service's address while all services there can take packets, local addresses while any can.
pub(crate) fn announcements(
    rules: &Rules,
    settings: &BgpSettings,
    can_take: impl Fn(&Service) -> bool,
) -> Announcements {
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
        own.for_each(|address| drop(all.insert(*address, any.then_some(0))));
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
