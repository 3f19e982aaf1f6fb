//! Sources with the most connections, found in the table.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::ControlFlow;

use ipnet::IpNet;
use rig_datapath::Error;
use rig_datapath::balancer::BalancerHandle;
use rig_service::Replies;

use super::engine::refusal;
use super::status::{in_background, key};
use crate::message::{Reply, ServiceKey, SourceEntry, SourceFilter, SourceList};
use crate::settings::Rules;

/// Sources that are counted at a time, whatever a flood comes to.
const ROOM: usize = 1 << 16;

/// The elements that come most often (Misra and Gries, "Finding repeated elements", 1982): each that is more than one in `room + 1` of all is
/// among the counted, and so are all if there are no more than `room`.
struct MostOften<T> {
    room: usize,
    counts: HashMap<T, u64>,
    /// How many of an element may have come that is not there.
    missed: u64,
}

impl<T: Eq + Hash> MostOften<T> {
    fn new(room: usize) -> Self {
        Self { room, counts: HashMap::new(), missed: 0 }
    }

    fn add(&mut self, element: T) {
        if let Some(count) = self.counts.get_mut(&element) {
            *count += 1;
        } else if self.counts.len() < self.room {
            self.counts.insert(element, 1);
        } else {
            self.missed += 1;
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }
}

type Source = (ServiceKey, IpNet);

/// Those that are asked for, the most first, and with how many connections one may be missing.
fn heaviest(
    filter: &SourceFilter,
    mut connections: impl FnMut(&mut dyn FnMut(Source)) -> Result<(), Error>,
) -> Result<(Vec<(Source, u64)>, u64), Error> {
    let mut often = MostOften::new(ROOM);
    connections(&mut |source| often.add(source))?;
    let missed = often.missed;
    let mut counts = often.counts;
    if missed > 0 {
        counts.values_mut().for_each(|count| *count = 0);
        connections(&mut |source| {
            if let Some(count) = counts.get_mut(&source) {
                *count += 1;
            }
        })?;
    }
    let mut all: Vec<(Source, u64)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    all.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
    all.truncate(filter.most as usize);
    Ok((all, missed))
}

/// On a thread of its own: the table is looked through once, and once more where it has more sources than are counted at a time.
pub(super) fn list(balancer: BalancerHandle, rules: &Rules, filter: SourceFilter, to: Replies<Reply>) {
    let limits: HashMap<ServiceKey, _> = rules.services.iter().map(|service| (service.key, service.limits)).collect();
    let work = move || {
        let found = heaviest(&filter, |with| {
            balancer.connections_while(|connection| {
                let service = key(connection.protocol, connection.service);
                if filter.service.is_none_or(|wanted| wanted == service) {
                    let client = connection.client.ip();
                    let limits = limits.get(&service).copied().unwrap_or_default();
                    let bits = limits.in_force(client.is_ipv6()).source_bits(client.is_ipv6());
                    if let Ok(source) = IpNet::new(client, bits) {
                        with((service, source.trunc()));
                    }
                }
                ControlFlow::Continue(())
            })
        });
        let entry = |((service, source), connections): (Source, u64)| SourceEntry {
            service,
            source: source.to_string(),
            connections,
            source_limit: limits.get(&service).and_then(|limits| limits.source_limit),
        };
        let listed = found.map(|(sources, missed)| {
            let sources = sources.into_iter().map(entry).collect();
            Reply::Sources(SourceList { sources, fewer_may_be_missing: missed })
        });
        to.finish(listed.map_err(|error| refusal(error.into())));
    };
    in_background("list", work);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn what_comes_most_often_is_found_among_many() {
        let mut often = MostOften::new(10);
        // 0 comes 2000 times, 1 comes 1500 times, among 10,000 that come once.
        (0..10_000_u32).for_each(|n| {
            often.add(100 + n);
            if n % 5 == 0 {
                often.add(0);
            }
            if n % 20 < 3 {
                often.add(1);
            }
        });
        assert!(often.counts.contains_key(&0) && often.counts.contains_key(&1), "{:?}", often.counts);
        assert!(often.counts.len() <= 10 && (1..=13_500 / 11).contains(&often.missed), "{}", often.missed);
    }

    #[test]
    fn counts_are_those_of_the_table() {
        let service = |port| key(rig_datapath::balancer::Protocol::Tcp, ([192, 0, 2, 1], port).into());
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let all = |count: u32| {
            move |with: &mut dyn FnMut(Source)| {
                (0..count).for_each(|n| {
                    with((service(80), IpNet::new([10, 0, (n >> 8) as u8, n as u8].into(), 32).unwrap()));
                });
                (0..50_000).for_each(|_| with((service(81), net("2001:db8::/64"))));
                (0..3).for_each(|_| with((service(80), net("10.0.0.1/32"))));
                Ok(())
            }
        };
        let filter = SourceFilter { service: None, most: 2 };
        let most = [((service(81), net("2001:db8::/64")), 50_000), ((service(80), net("10.0.0.1/32")), 4)];
        assert_eq!(heaviest(&filter, all(100)).unwrap(), (most.to_vec(), 0));
        let (first, missed) = heaviest(&SourceFilter { most: 1, ..filter }, |with| {
            (0..2 * ROOM as u32)
                .for_each(|n| with((service(80), IpNet::new(std::net::Ipv4Addr::from(n).into(), 32).unwrap())));
            all(0)(with)
        })
        .unwrap();
        assert_eq!((first, missed > 0), (most[..1].to_vec(), true));
    }
}
