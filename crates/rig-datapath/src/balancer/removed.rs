//! What services and backends have counted that are gone, for when they come again: counters then go on, as IPVS's do while it keeps
//! a removed destination, whether there were connections left in between or not.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::registry::Identity;
use super::shape::{Refusals, TrafficCount};

/// Of all CPUs.
#[derive(Debug, Default)]
pub(super) struct RemovedCounters {
    pub(super) services: RecentMap<Identity, (Vec<TrafficCount>, Vec<Refusals>)>,
    pub(super) backends: RecentMap<(Identity, SocketAddr), Vec<TrafficCount>>,
}

/// A map of the entries that were put in last, up to a number of them.
#[derive(Debug)]
pub(super) struct RecentMap<K, V> {
    of: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
    next: u64,
}

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }
}

impl<K: Ord + Copy, V> RecentMap<K, V> {
    pub(super) fn put(&mut self, key: K, value: V, most: u32) {
        self.take(&key);
        self.of.insert(key, (self.next, value));
        self.order.insert(self.next, key);
        self.next += 1;
        while self.of.len() > most as usize
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.of.remove(&oldest);
        }
    }

    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let (at, value) = self.of.remove(key)?;
        self.order.remove(&at);
        Some(value)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.of.retain(|key, _| keep(key));
        self.order.retain(|_, key| keep(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept() {
        let mut latest = RecentMap::default();
        (0..3).for_each(|key| latest.put(key, key * 10, 3));
        // Again, and so the last one.
        latest.put(0, 7, 3);
        latest.put(3, 30, 3);
        assert_eq!([0, 1, 2, 3].map(|key| latest.take(&key)), [Some(7), None, Some(20), Some(30)]);
        assert!(latest.of.is_empty() && latest.order.is_empty());
        latest.put(1, 1, 3);
        latest.put(2, 2, 3);
        latest.retain(|key| *key == 2);
        assert_eq!((latest.take(&1), latest.take(&2), latest.order.len()), (None, Some(2), 0));
    }
}
