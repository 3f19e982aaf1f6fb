//! What the tables said gives way to what they are to say, while packets pass.
//!
//! A packet is never held against less than before the change or after it. What is new is written beside what is there: rules and next
//! hops where nothing leads to them yet, interfaces before routes to them, routes that lead to another table after those that are in it.
//! Then what has changed, then what is gone, and the epoch last, by which flows know that there was a change. What no table leads to any more may
//! still be in the hands of a program that runs: it stays as it is until all such have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zerocopy::{Immutable, IntoBytes};

use crate::Error;
use crate::maps::Map;

use super::control::{MapContents, Table};
use super::load::Tables;
use super::shape::{self, ANY_MAC, FatKey, HostKey, MacKey, PrefixKey, Route, v4};

impl Tables {
    /// Services whose flows are fat: before what leads to a service, for a flow is fat from its first packet on, or never.
    pub(super) fn exchange_fat(&self, before: &MapContents, now: &MapContents) -> Result<(), Error> {
        let key = |(interface, service): &(u32, _)| FatKey::new(*interface, *service);
        put(&self.fat, &before.fat, &now.fat, key, |_| true)?;
        remove(&self.fat, &before.fat, &now.fat, key)
    }

    /// All but the next hops, rules and services with fat flows; `tables` are the next hops that lead to another table.
    pub(super) fn exchange(
        &self,
        before: &MapContents,
        now: &MapContents,
        tables: &BTreeSet<u32>,
    ) -> Result<(), Error> {
        let is_new = |number: &u32, interface: &shape::Interface| {
            before.interfaces.get(number).is_none_or(|old| old.ifindex != interface.ifindex)
        };
        for (number, interface) in now.interfaces.iter().filter(|(number, interface)| is_new(number, interface)) {
            self.interfaces.set(number, interface)?;
            self.interface_of.set(&interface.ifindex, number)?;
        }
        let nothing = Arc::<Table>::default();
        let vrfs: BTreeSet<u32> = before.vrfs.keys().chain(now.vrfs.keys()).copied().collect();
        let tables_of = |vrf| (vrf, before.vrfs.get(&vrf).unwrap_or(&nothing), now.vrfs.get(&vrf).unwrap_or(&nothing));
        let changed = vrfs.into_iter().map(tables_of).filter(|(_, old, new)| !Arc::ptr_eq(old, new));
        let changed: Vec<(u32, &Arc<Table>, &Arc<Table>)> = changed.collect();
        let is_whole = self.have_room_for_both(now, &changed);
        let remove_routes = || changed.iter().try_for_each(|(vrf, old, new)| self.remove_routes(*vrf, old, new));
        if !is_whole {
            remove_routes()?;
        }
        for leads_on in [false, true] {
            for (vrf, old, new) in &changed {
                self.put_routes(*vrf, old, new, |route| tables.contains(&route.next_hop) == leads_on)?;
            }
        }
        put(&self.vnis, &before.vnis, &now.vnis, |vni| *vni, |_| true)?;
        for (label, number) in &now.labels {
            if before.labels.get(label) != Some(number) {
                self.labels.set(label, number)?;
            }
        }
        put(&self.peers, &before.peers, &now.peers, |peer| v4(*peer), |_| true)?;
        for (number, interface) in now.interfaces.iter().filter(|(number, interface)| !is_new(number, interface)) {
            let old = before.interfaces.get(number);
            if old != Some(interface) {
                self.interfaces.set(number, &self.with_macs(*number, old, interface)?)?;
            }
        }
        if is_whole {
            remove_routes()?;
        }
        remove(&self.vnis, &before.vnis, &now.vnis, |vni| *vni)?;
        for label in before.labels.keys().filter(|label| !now.labels.contains_key(label)) {
            self.labels.set(label, &0_u32)?;
        }
        remove(&self.peers, &before.peers, &now.peers, |peer| v4(*peer))?;
        let used: BTreeSet<u32> = now.interfaces.values().map(|interface| interface.ifindex).collect();
        let mut unused = before.interfaces.values().filter(|old| !used.contains(&old.ifindex));
        unused.try_for_each(|old| self.interface_of.remove(&old.ifindex))
    }

    /// Whether routes that are gone may stay until those that have come are there. Where they may not, packets meanwhile find less.
    fn have_room_for_both(&self, now: &MapContents, changed: &[(u32, &Arc<Table>, &Arc<Table>)]) -> bool {
        let fits = |map: &Map, count: fn(&Table) -> usize, gone: fn(&Table, &Table) -> usize| {
            let all = now.vrfs.values().map(|table| count(table)).sum::<usize>();
            all + changed.iter().map(|(_, old, new)| gone(old, new)).sum::<usize>() <= map.entries() as usize
        };
        fits(&self.hosts, |table| table.hosts.len(), |old, new| gone(&old.hosts, &new.hosts).count())
            && fits(&self.prefixes, |table| table.prefixes.len(), |old, new| gone(&old.prefixes, &new.prefixes).count())
            && fits(&self.macs, |table| table.macs.len(), |old, new| gone(&old.macs, &new.macs).count())
    }

    fn put_routes(
        &self,
        vrf: u32,
        before: &Table,
        now: &Table,
        is_wanted: impl Fn(&Route) -> bool + Copy,
    ) -> Result<(), Error> {
        put(&self.hosts, &before.hosts, &now.hosts, |address| HostKey::new(vrf, *address), is_wanted)?;
        put(&self.prefixes, &before.prefixes, &now.prefixes, |prefix| PrefixKey::new(vrf, prefix), is_wanted)?;
        put(&self.macs, &before.macs, &now.macs, |mac| MacKey { vrf, mac: mac.0, pad: 0 }, is_wanted)
    }

    fn remove_routes(&self, vrf: u32, before: &Table, now: &Table) -> Result<(), Error> {
        remove(&self.hosts, &before.hosts, &now.hosts, |address| HostKey::new(vrf, *address))?;
        remove(&self.prefixes, &before.prefixes, &now.prefixes, |prefix| PrefixKey::new(vrf, prefix))?;
        remove(&self.macs, &before.macs, &now.macs, |mac| MacKey { vrf, mac: mac.0, pad: 0 })
    }

    /// An interface as it goes into the table, with the MAC addresses that the one before it has met, where it is the same device under the
    /// same rule.
    fn with_macs(
        &self,
        number: u32,
        before: Option<&shape::Interface>,
        now: &shape::Interface,
    ) -> Result<shape::Interface, Error> {
        let rule = |one: &shape::Interface| (one.ifindex, one.mac, one.flags & ANY_MAC);
        if before.is_none_or(|before| rule(before) != rule(now)) {
            return Ok(*now);
        }
        let met: shape::Interface = self.interfaces.at(number)?;
        Ok(shape::Interface { known_mac: met.known_mac, foreign_mac: met.foreign_mac, ..*now })
    }
}

/// Writes what is new or has changed, as far as it is wanted now.
fn put<K, V, B>(
    map: &Map,
    before: &BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
    key: impl Fn(&K) -> B,
    is_wanted: impl Fn(&V) -> bool,
) -> Result<(), Error>
where
    K: Ord,
    V: PartialEq + IntoBytes + Immutable,
    B: IntoBytes + Immutable,
{
    let mut changed = now.iter().filter(|(what, value)| is_wanted(value) && before.get(what) != Some(value));
    changed.try_for_each(|(what, value)| map.set(&key(what), value))
}

/// What is not there any more.
fn gone<'m, K: Ord, V>(before: &'m BTreeMap<K, V>, now: &'m BTreeMap<K, V>) -> impl Iterator<Item = &'m K> {
    before.keys().filter(move |what| !now.contains_key(what))
}

/// Removes what is not there any more.
fn remove<K, V, B>(map: &Map, before: &BTreeMap<K, V>, now: &BTreeMap<K, V>, key: impl Fn(&K) -> B) -> Result<(), Error>
where
    K: Ord,
    B: IntoBytes + Immutable,
{
    gone(before, now).try_for_each(|what| map.remove(&key(what)))
}
