//! Containers whose frames come from another MAC address than before, or than the file says: told, and not too often.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::Source;
use rig_wire::ethernet::Mac;

use crate::settings::Interface;

/// From what is told of an interface to the next: a container can change its address as often as it likes.
const REST: Duration = Duration::from_secs(10);

/// What has been told.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    told: BTreeMap<u32, AddressSource>,
}

#[derive(Debug, Default)]
struct AddressSource {
    source: Source,
    /// None where it was only noted.
    at: Option<Instant>,
}

impl Addresses {
    /// What there is to tell: the numbers of interfaces, with what was known before and what is now. The first address that is learned
    /// of a container is no news.
    pub(super) fn news(&mut self, now: &BTreeMap<u32, Source>, time: Instant) -> Vec<(u32, Source, Source)> {
        self.told.retain(|number, _| now.contains_key(number));
        let mut news = Vec::new();
        for (number, source) in now {
            let told = self.told.entry(*number).or_default();
            let before = told.source;
            // One that is not known any more is one that was made again, whose next frame says more.
            let source = Source { mac: source.mac.or(before.mac), ..*source };
            let is_other = |now: Option<Mac>, before| now.is_some() && now != before;
            let is_new = (before.mac.is_some() && source.mac != before.mac) || is_other(source.foreign, before.foreign);
            if !is_new {
                told.source = source;
            } else if told.at.is_none_or(|at| time.saturating_duration_since(at) >= REST) {
                *told = AddressSource { source, at: Some(time) };
                news.push((*number, before, source));
            }
        }
        news
    }
}

pub(super) fn words(name: &str, interface: &Interface, before: Source, now: Source) -> Option<String> {
    if !interface.any_mac {
        return interface.foreign(name, now.foreign.filter(|foreign| Some(*foreign) != before.foreign)?);
    }
    let (before, now) = (before.mac?, now.mac?);
    (before != now).then(|| format!("interface '{name}' has MAC address {now} now, and had {before} before"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_addresses_are_told_now_and_then() {
        let mac = |last| Some(Mac([2, 0, 0, 0, 0, last]));
        let learned = |mac| BTreeMap::from([(1, Source { mac, foreign: None })]);
        let (mut addresses, begin) = (Addresses::default(), Instant::now());
        let mut told = |sources: &BTreeMap<u32, Source>, second| {
            let news = addresses.news(sources, begin + Duration::from_secs(second));
            news.into_iter().map(|(number, before, now)| (number, before.mac, now.mac, now.foreign)).collect::<Vec<_>>()
        };
        // The first, none for a while, and the same again.
        for (second, first) in [None, mac(1), None, mac(1)].into_iter().enumerate() {
            assert_eq!(told(&learned(first), second as u64), []);
        }
        assert_eq!(told(&learned(mac(2)), 10), [(1, mac(1), mac(2), None)]);
        assert_eq!(told(&learned(mac(2)), 11), []);
        // What changes too often is told of later.
        assert_eq!(told(&learned(mac(3)), 12), []);
        assert_eq!(told(&learned(mac(4)), 19), []);
        assert_eq!(told(&learned(mac(4)), 20), [(1, mac(2), mac(4), None)]);
        // Of an interface with a number that was another one's.
        assert_eq!(told(&BTreeMap::new(), 21), []);
        let foreign = BTreeMap::from([(1, Source { mac: mac(7), foreign: mac(8) })]);
        assert_eq!(told(&foreign, 22), [(1, None, mac(7), mac(8))]);
        assert_eq!(told(&foreign, 200), []);
    }
}
