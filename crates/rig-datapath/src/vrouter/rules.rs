//! A list of rules as programs search it: see `struct list` of bpf/vrouter/shape.h.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use super::config::{Action, FlowActions, List, Rule};
use super::shape::{ALSO_LOG, ANALYSER_SHIFT, RULE_WORDS, Row, mapped_length};

/// A list, with rows by their places in `rows`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompiledRules {
    /// First addresses of ranges in which the same rules match, with the row of these.
    pub(super) cuts: Vec<(u128, u32)>,
    /// As `cuts`: protocol << 16 | destination port.
    pub(super) bounds: Vec<(u32, u32)>,
    pub(super) rows: Vec<Row>,
    /// The row of rules that allow.
    pub(super) allowing: u32,
    pub(super) otherwise: bool,
    /// What else is done, rule by rule; none, where no rule has more done.
    pub(super) flow_actions: Vec<u32>,
}

/// Rows, each once.
#[derive(Default)]
struct UniqueRows {
    all: Vec<Row>,
    places: HashMap<Row, u32>,
}

impl UniqueRows {
    fn place(&mut self, row: Row) -> u32 {
        *self.places.entry(row).or_insert_with(|| {
            self.all.push(row);
            self.all.len() as u32 - 1
        })
    }

    /// Ranges in which the same rules match, of ranges that match rules. `None` is behind the last number.
    fn sweep<T: Ord + Copy>(&mut self, zero: T, ranges: impl Iterator<Item = (usize, T, Option<T>)>) -> Vec<(T, u32)> {
        let mut changes: BTreeMap<T, Vec<(usize, i32)>> = BTreeMap::from([(zero, Vec::new())]);
        for (rule, from, behind) in ranges {
            changes.entry(from).or_default().push((rule, 1));
            if let Some(behind) = behind {
                changes.entry(behind).or_default().push((rule, -1));
            }
        }
        // A rule may match by several ranges that overlap.
        let (mut counts, mut row) = (HashMap::<usize, i32>::new(), [0; RULE_WORDS]);
        let mut out: Vec<(T, u32)> = Vec::new();
        for (from, changes) in changes {
            for (rule, by) in changes {
                let count = counts.entry(rule).or_default();
                *count += by;
                set(&mut row, rule, *count > 0);
            }
            let place = self.place(row);
            if out.last().is_none_or(|(_, last)| *last != place) {
                out.push((from, place));
            }
        }
        out
    }
}

fn set(row: &mut Row, rule: usize, to: bool) {
    let bit = 1 << (rule % 64);
    if to { row[rule / 64] |= bit } else { row[rule / 64] &= !bit }
}

/// An address as a number, IPv4 as IPv4-mapped.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => Ipv6Addr::to_bits(v6),
    }
}

/// The first address of IPv4 as a number, and the one behind its last.
const IPV4: (u128, u128) = (0xffff << 32, 0x1_0000 << 32);

/// First addresses and those behind the last; of IPv6 without those that are IPv4's.
fn ranges(prefix: &IpNet) -> impl Iterator<Item = (u128, Option<u128>)> {
    let first = number(prefix.network());
    let behind = 1_u128.checked_shl(128 - mapped_length(prefix)).and_then(|size| first.checked_add(size));
    let has_ipv4 = prefix.addr().is_ipv6() && first <= IPV4.0 && behind.is_none_or(|behind| behind >= IPV4.1);
    let all =
        if has_ipv4 { [Some((first, Some(IPV4.0))), Some((IPV4.1, behind))] } else { [Some((first, behind)), None] };
    all.into_iter().flatten().filter(|(first, behind)| Some(*first) != *behind)
}

fn flow_actions(FlowActions { log, mirror }: &FlowActions) -> u32 {
    u32::from(mirror.unwrap_or(0)) << ANALYSER_SHIFT | if *log { ALSO_LOG } else { 0 }
}

impl CompiledRules {
    pub(super) fn new(list: &List) -> Self {
        let mut rows = UniqueRows::default();
        let rules = list.rules.iter().enumerate();
        let addresses = rules.clone().flat_map(|(rule, Rule { remote, .. })| {
            let any = remote.is_empty().then_some((rule, 0, None));
            let named = remote.iter().flat_map(ranges).map(move |(from, behind)| (rule, from, behind));
            any.into_iter().chain(named)
        });
        let cuts = rows.sweep(0_u128, addresses);
        let ports = rules.clone().flat_map(|(rule, Rule { protocol, ports, .. })| {
            let protocols = match protocol {
                Some(protocol) => *protocol..=*protocol,
                None => 0..=u8::MAX,
            };
            let (from, to) = (u32::from(*ports.start()), u32::from(*ports.end()));
            protocols.map(move |protocol| {
                let of = u32::from(protocol) << 16;
                (rule, of | from, Some((of | to) + 1))
            })
        });
        let bounds = rows.sweep(0_u32, ports);
        let mut allowing = [0; RULE_WORDS];
        for (rule, of) in rules {
            set(&mut allowing, rule, of.action == Action::Allow);
        }
        let allowing = rows.place(allowing);
        let mut flow_actions: Vec<u32> = list.rules.iter().map(|rule| flow_actions(&rule.flow_actions)).collect();
        if flow_actions.iter().all(|flow_actions| *flow_actions == 0) {
            flow_actions.clear();
        }
        Self { cuts, bounds, rows: rows.all, allowing, otherwise: list.otherwise == Action::Allow, flow_actions }
    }

    /// What the program finds.
    #[cfg(test)]
    fn allows(&self, remote: IpAddr, protocol: u8, port: u16) -> bool {
        let remote = number(remote);
        let port = u32::from(protocol) << 16 | u32::from(port);
        let by_address = self.cuts[self.cuts.partition_point(|(from, _)| *from <= remote) - 1].1;
        let by_port = self.bounds[self.bounds.partition_point(|(from, _)| *from <= port) - 1].1;
        let row = |place: u32| self.rows[place as usize];
        let both = row(by_address).into_iter().zip(row(by_port)).map(|(a, b)| a & b);
        let first = both.enumerate().find(|(_, word)| *word != 0);
        first.map_or(self.otherwise, |(at, word)| row(self.allowing)[at] >> word.trailing_zeros() & 1 == 1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a list says by its words: the first rule that matches.
    fn allows(list: &List, remote: IpAddr, protocol: u8, port: u16) -> bool {
        let matches = |rule: &&Rule| {
            rule.protocol.is_none_or(|of| of == protocol)
                && rule.ports.contains(&port)
                && (rule.remote.is_empty() || rule.remote.iter().any(|prefix| prefix.contains(&remote)))
        };
        list.rules.iter().find(matches).map_or(list.otherwise, |rule| rule.action) == Action::Allow
    }

    fn prefix() -> impl Strategy<Value = IpNet> {
        let v4 = (any::<u32>(), 0_u8..=32).prop_map(|(bits, length)| {
            // Few, so that they overlap.
            let address = std::net::Ipv4Addr::from(0x0a00_0000 | bits & 0x0303_0303);
            IpNet::new(address.into(), length).unwrap().trunc()
        });
        let v6 = (any::<u128>(), 0_u8..=128).prop_map(|(bits, length)| {
            let address = Ipv6Addr::from(0xfd00 << 112 | bits & 0x0303 << 96 | bits & 3);
            IpNet::new(address.into(), length).unwrap().trunc()
        });
        let all = Just("::/0".parse().unwrap());
        prop_oneof![4 => v4, 4 => v6, 1 => all]
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let ports = (0_u16..40, 0_u16..40).prop_map(|(a, b)| a.min(b)..=a.max(b));
        let ports = prop_oneof![3 => ports, 1 => Just(0..=u16::MAX), 1 => Just(20..=u16::MAX)];
        let protocol = prop_oneof![Just(None), Just(Some(0)), Just(Some(6)), Just(Some(17)), Just(Some(255))];
        let remote = prop::collection::btree_set(prefix(), 0..4);
        (protocol, ports, remote, any::<bool>()).prop_map(|(protocol, ports, remote, allow)| Rule {
            protocol,
            ports,
            remote,
            action: if allow { Action::Allow } else { Action::Deny },
            flow_actions: FlowActions::default(),
        })
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            any::<u32>().prop_map(|bits| std::net::Ipv4Addr::from(0x0a00_0000 | bits & 0x0303_0303).into()),
            any::<u32>().prop_map(|bits| std::net::Ipv4Addr::from(bits).into()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from(0xfd00 << 112 | bits & 0x0303 << 96 | bits & 3).into()),
            any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_rules_say(
            rules in prop::collection::vec(rule(), 0..90),
            otherwise in any::<bool>(),
            packets in prop::collection::vec((address(), prop_oneof![Just(0_u8), Just(6), Just(17), Just(255), any::<u8>()], prop_oneof![0_u16..45, any::<u16>()]), 50),
        ) {
            let list = List { rules, otherwise: if otherwise { Action::Allow } else { Action::Deny } };
            let compiled = CompiledRules::new(&list);
            for (remote, protocol, port) in packets {
                prop_assert_eq!(compiled.allows(remote, protocol, port), allows(&list, remote, protocol, port));
            }
        }
    }
}
