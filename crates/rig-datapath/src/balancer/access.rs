//! Lists of who may begin connections, and who may not: one trie for all services, made anew and put in the place of the one before
//! with each change, so that at no moment there is less in it than before or after.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};

use ipnet::IpNet;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};
use zerocopy::IntoBytes as _;

use crate::Error;

use super::config::{AccessLists, Config, Protocol};
use super::control::{Balancer, identity};
use super::registry::within;
use super::shape::{AccessKey, AccessRule, Address, access};

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
        if lists.allow.is_empty() {
            return;
        }
        for all in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let all = IpNet::new_assert(all, 0);
            rules.entry((list, all)).or_insert(Rule { allows: false, others: true });
        }
    }
}

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
        let mut rules = Rules::new();
        let mut lists = BTreeSet::from([0]);
        AccessTable::add(&mut rules, 0, &config.access);
        for service in &config.services {
            if let Some(known) = self.known.services.get(&identity(service)) {
                lists.insert(known.number);
                AccessTable::add(&mut rules, known.number, &service.access);
            }
        }
        if beside {
            let others = self.access.rules.iter().filter(|((list, _), _)| !lists.contains(list));
            rules.extend(others.map(|(at, rule)| (*at, *rule)));
        }
        if rules == self.access.rules {
            return Ok(());
        }
        let numbers = self.number_prefixes(&rules)?;
        self.put_access(&rules, &numbers)?;
        self.access = AccessTable { rules, numbers };
        Ok(())
    }

    /// A prefix that stays keeps its number, and with it its count.
    fn number_prefixes(&self, rules: &Rules) -> Result<BTreeMap<(u32, IpNet), u32>, Error> {
        // Those of prefixes that go now are still counted under.
        let taken: BTreeSet<u32> = self.access.numbers.values().copied().collect();
        let mut free = (1..self.handle.sizes.access_numbers()).filter(|number| !taken.contains(number));
        let stay = self.access.numbers.iter().filter(|(at, _)| rules.contains_key(at)).map(|(_, number)| *number);
        let stay: BTreeSet<u32> = stay.collect();
        let mut again = taken.difference(&stay).copied();
        let mut numbers = BTreeMap::new();
        for at in rules.keys() {
            let number = match self.access.numbers.get(at) {
                Some(number) => *number,
                None => {
                    let new = free.next().or_else(|| again.next()).unwrap_or_default();
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
            let number = numbers.get(at).copied().unwrap_or_default();
            let length = u16::from(at.1.prefix_len());
            let value = AccessRule { number, allows: rule.allows.into(), length };
            made.update(key(at.0, at.1).as_bytes(), value.as_bytes(), MapFlags::ANY).map_err(failed("write to"))?;
        }
        self.handle.tables.access.set(&0_u32, &(made.as_fd().as_raw_fd() as u32))
    }

    /// What each prefix of the lists in force has decided on since it came into force, or since this control plane began.
    pub fn access_hits(&self) -> Result<Vec<AccessHits>, Error> {
        let services: BTreeMap<u32, (Protocol, SocketAddr)> =
            self.known.services.iter().map(|(of, known)| (known.number, (of.protocol, of.address))).collect();
        let hits = self.access.rules.iter().map(|(at, rule)| {
            let number = self.access.numbers.get(at).copied().unwrap_or_default();
            let packets: Vec<u64> = self.handle.tables.access_hits.per_cpu(number)?;
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
