//! Lists of who may begin connections, and who may not: one trie for all services, made anew and put in the place of the one before
//! with each change, so that at no moment there is less in it than before or after.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};

use ipnet::IpNet;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use zerocopy::IntoBytes as _;

use crate::Error;

use super::config::{AccessLists, Config, Protocol, Service};
use super::control::{Balancer, identity};
use super::registry::within;
use super::shape::{self, AccessKey, AccessRule, Address, access};

/// First packets that a prefix of a list has decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessHits {
    /// `None`: the list of all services.
    pub service: Option<(Protocol, SocketAddr)>,
    /// `None`: an allow list refuses those that are in none.
    pub prefix: Option<IpNet>,
    pub allows: bool,
    pub packets: u64,
}

/// What is said of a prefix of a list, by the list's number. Not [`IpNet`]'s own: an allow list has an entry for what is in none.
type Rules = BTreeMap<(u32, IpNet), Rule>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    allows: bool,
    /// No list has it: it stands for what is in none.
    others: bool,
}

/// The lists in force, and what their prefixes are counted under.
#[derive(Debug, Default)]
pub(super) struct AccessTable {
    rules: Rules,
    numbers: BTreeMap<(u32, IpNet), u32>,
}

impl AccessTable {
    /// Which lists a service's packets are looked up in.
    pub(super) fn lists_of(own: &AccessLists, of_all: &AccessLists) -> u8 {
        let bit = |lists: &AccessLists, bit| if lists.is_empty() { 0 } else { bit };
        bit(own, access::OWN) | bit(of_all, access::OF_ALL)
    }

    fn add(rules: &mut Rules, list: u32, lists: &AccessLists) {
        let said =
            lists.allow.iter().map(|prefix| (*prefix, true)).chain(lists.deny.iter().map(|prefix| (*prefix, false)));
        rules.extend(said.map(|(prefix, allows)| ((list, prefix), Rule { allows, others: false })));
        for all in Self::others(lists) {
            rules.insert((list, all), Rule { allows: false, others: true });
        }
    }

    /// Prefixes that stand for what is in none.
    fn others(lists: &AccessLists) -> impl Iterator<Item = IpNet> {
        let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
        let all = all.map(|all| IpNet::new_assert(all, 0)).into_iter().filter(|_| !lists.allow.is_empty());
        all.filter(|all| !lists.allow.contains(all) && !lists.deny.contains(all))
    }

    /// Whether these are in force already, each rule under a number; `beside` others may be, too. It copies nothing: each change of a
    /// weight asks.
    fn is_in_force(&self, wanted: &BTreeMap<u32, &AccessLists>, beside: bool) -> bool {
        let has = |list: u32, prefix: IpNet, allows, others| {
            self.rules.get(&(list, prefix)) == Some(&Rule { allows, others })
        };
        let mut count = 0;
        for (list, lists) in wanted {
            let all = lists.allow.iter().all(|prefix| has(*list, *prefix, true, false))
                && lists.deny.iter().all(|prefix| has(*list, *prefix, false, false))
                && Self::others(lists).all(|prefix| has(*list, prefix, false, true));
            if !all {
                return false;
            }
            count += lists.allow.len() + lists.deny.len() + Self::others(lists).count();
        }
        let compared = self.rules.keys().filter(|(list, _)| !beside || wanted.contains_key(list)).count();
        count == compared && (beside || self.numbers.values().all(|number| *number != UNNUMBERED))
    }
}

/// In place of a prefix's number: nothing is counted.
const UNNUMBERED: u32 = 0;

fn key(list: u32, prefix: IpNet) -> AccessKey {
    let (family, before) = match prefix {
        IpNet::V4(_) => (0, 96),
        IpNet::V6(_) => (access::V6, 0),
    };
    let bits = u32::BITS + before + u32::from(prefix.prefix_len());
    AccessKey { bits, list: list | family, address: Address::from(prefix.addr()) }
}

/// How many prefixes are asked for, without what stands for those in none.
pub(super) fn prefixes(config: &Config) -> usize {
    let lists = config.services.iter().map(|service| &service.access).chain([&config.access]);
    lists.map(|lists| lists.allow.len() + lists.deny.len()).sum()
}

impl Balancer {
    /// Puts the lists in force that `config` has; all its services have numbers. `beside` those of services that are not in it, as long as
    /// these may begin connections.
    pub(super) fn apply_access(&mut self, config: &Config, beside: bool) -> Result<(), Error> {
        let wanted = u32::try_from(prefixes(config)).unwrap_or(u32::MAX);
        within(wanted, self.handle.sizes.prefixes, "prefixes")?;
        let mut lists = BTreeMap::from([(0, &config.access)]);
        let numbered = |service: &Service| self.known.services.get(&identity(service)).map(|known| known.number);
        lists.extend(config.services.iter().filter_map(|service| Some((numbered(service)?, &service.access))));
        if beside {
            self.widen_access(&lists, &config.access)?;
        }
        if self.access.is_in_force(&lists, beside) {
            return Ok(());
        }
        let mut rules = Rules::new();
        lists.iter().for_each(|(list, lists)| AccessTable::add(&mut rules, *list, lists));
        if beside {
            let others = self.access.rules.iter().filter(|((list, _), _)| !lists.contains_key(list));
            rules.extend(others.map(|(at, rule)| (*at, *rule)));
        }
        let numbers = self.number_prefixes(&rules)?;
        self.put_access(&rules, &numbers)?;
        self.access = AccessTable { rules, numbers };
        Ok(())
    }

    /// Has all services ask for the new lists beside those of before, in which there is nothing of the new ones: so these come into force
    /// everywhere with the one write that puts the trie in place.
    fn widen_access(&self, lists: &BTreeMap<u32, &AccessLists>, of_all: &AccessLists) -> Result<(), Error> {
        let (services, none) = (&self.handle.tables.services, AccessLists::default());
        let mut widened = false;
        for known in self.known.services.values() {
            let mut entry: shape::Service = services.at(known.number)?;
            let wider = entry.access | AccessTable::lists_of(lists.get(&known.number).unwrap_or(&&none), of_all);
            // A new one has no entry yet.
            if entry.protocol != 0 && wider != entry.access {
                entry.access = wider;
                services.set(&known.number, &entry)?;
                widened = true;
            }
        }
        // A packet that has read the entry before may not look into the trie after.
        if widened { self.grace.wait() } else { Ok(()) }
    }

    /// What the tables say, for a control plane that has been started anew.
    pub(super) fn recall_access(&self) -> Result<AccessTable, Error> {
        let mut table = AccessTable::default();
        let Some(trie) = self.handle.tables.access.inner(0, size_of::<AccessRule>())? else { return Ok(table) };
        for (key, rule) in trie.entries_of_hash::<AccessKey, AccessRule>() {
            let (address, length) = (key.address.into(), u8::try_from(rule.length).ok());
            let Some(prefix) = length.and_then(|length| IpNet::new(address, length).ok()) else { continue };
            let at = (key.list & !access::V6, prefix);
            table.rules.insert(at, Rule { allows: rule.allows != 0, others: false });
            table.numbers.insert(at, rule.number);
        }
        let allow: BTreeSet<u32> = table.rules.iter().filter(|(_, rule)| rule.allows).map(|(at, _)| at.0).collect();
        for ((list, prefix), rule) in &mut table.rules {
            rule.others = prefix.prefix_len() == 0 && !rule.allows && allow.contains(list);
        }
        Ok(table)
    }

    /// A prefix that stays keeps its number, and with it its count. There may be none left as long as there are others beside.
    fn number_prefixes(&self, rules: &Rules) -> Result<BTreeMap<(u32, IpNet), u32>, Error> {
        // Those of prefixes that go now are still counted under.
        let taken: BTreeSet<u32> =
            self.access.numbers.values().copied().filter(|number| *number != UNNUMBERED).collect();
        let mut free = (1..self.handle.sizes.access_numbers()).filter(|number| !taken.contains(number));
        let stay = self.access.numbers.iter().filter(|(at, _)| rules.contains_key(at)).map(|(_, number)| *number);
        let stay: BTreeSet<u32> = stay.collect();
        let mut again = taken.difference(&stay).copied();
        let mut numbers = BTreeMap::new();
        for at in rules.keys() {
            let number = match self.access.numbers.get(at).filter(|number| **number != UNNUMBERED) {
                Some(number) => *number,
                None => {
                    let new = free.next().or_else(|| again.next()).unwrap_or(UNNUMBERED);
                    self.handle.tables.access_hits.set_all_cpus(new, &0_u64)?;
                    new
                }
            };
            numbers.insert(*at, number);
        }
        Ok(numbers)
    }

    fn put_access(&self, rules: &Rules, numbers: &BTreeMap<(u32, IpNet), u32>) -> Result<(), Error> {
        let failed = |operation| move |source| Error::Map { map: "access", operation, source };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_NO_PREALLOC,
            ..libbpf_sys::bpf_map_create_opts::default()
        };
        let (key_size, value) = (size_of::<AccessKey>() as u32, size_of::<AccessRule>() as u32);
        let entries = (rules.len() as u32).max(1);
        let made = MapHandle::create(MapType::LpmTrie, Some("access_lists"), key_size, value, entries, &options);
        let made = made.map_err(failed("make the lists of"))?;
        for (at, rule) in rules {
            let number = numbers.get(at).copied().unwrap_or(UNNUMBERED);
            let length = u16::from(at.1.prefix_len());
            let value = AccessRule { number, allows: rule.allows.into(), length };
            made.update(key(at.0, at.1).as_bytes(), value.as_bytes(), MapFlags::ANY).map_err(failed("write to"))?;
        }
        self.handle.tables.access.set(&0_u32, &(made.as_fd().as_raw_fd() as u32))
    }

    /// What each prefix of the lists in force has decided on since it came into force.
    pub fn access_hits(&self) -> Result<Vec<AccessHits>, Error> {
        let services: BTreeMap<u32, (Protocol, SocketAddr)> =
            self.known.services.iter().map(|(of, known)| (known.number, (of.protocol, of.address))).collect();
        let hits = self.access.rules.iter().map(|(at, rule)| {
            let number = self.access.numbers.get(at).filter(|number| **number != UNNUMBERED);
            let packets = number.map(|number| self.handle.tables.access_hits.per_cpu::<u64>(*number)).transpose()?;
            let packets = packets.unwrap_or_default();
            Ok(AccessHits {
                service: services.get(&at.0).copied(),
                prefix: (!rule.others).then_some(at.1),
                allows: rule.allows,
                packets: packets.iter().sum(),
            })
        });
        hits.collect()
    }
}
