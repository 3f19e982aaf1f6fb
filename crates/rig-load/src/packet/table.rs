//! Connections: a slab, and an index of 32-bit entries with linear probing over it.

use super::connection::{Connection, Key, State};

const NONE: u32 = u32::MAX;

/// Memory is reserved for all connections at once and touched when they are first used: 48 bytes each, and 4 to 12 of
/// the index.
#[derive(Debug)]
pub(super) struct Table {
    pub all: Vec<Connection>,
    capacity: usize,
    /// The free connection that was used last, so that the memory is warm.
    free: u32,
    /// 0, or the connection's number and one, with bits of its hash above.
    index: Box<[u32]>,
    /// Bits of the hash that are not the place in the index.
    shift: u32,
    /// What of an entry is the number.
    number: u32,
}

impl Table {
    /// The most connections that entries can name with four bits of hash left.
    pub const LARGEST: u32 = (1 << 28) - 2;

    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.clamp(1, Self::LARGEST);
        // At most two thirds full.
        let places = (capacity as usize * 3 / 2).next_power_of_two().max(16);
        Self {
            all: Vec::with_capacity(capacity as usize),
            capacity: capacity as usize,
            free: NONE,
            index: vec![0; places].into_boxed_slice(),
            shift: 64 - places.trailing_zeros(),
            number: (capacity + 2).next_power_of_two() - 1,
        }
    }

    /// The first place to look at, and the bits that an entry carries.
    #[inline]
    fn hash(&self, key: Key) -> (usize, u32) {
        // Fibonacci hashing (Knuth, TAOCP 6.4), after the upper half is mixed into the lower.
        let hash = (key.0 ^ key.0 >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> self.shift) as usize, hash as u32 & !self.number)
    }

    #[inline]
    fn entry(&self, place: usize) -> u32 {
        self.index[place & (self.index.len() - 1)]
    }

    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        let (mut place, bits) = self.hash(key);
        loop {
            let entry = self.entry(place);
            if entry == 0 {
                return None;
            }
            let slot = (entry & self.number) - 1;
            if entry & !self.number == bits && self.all[slot as usize].key == key {
                return Some(slot);
            }
            place += 1;
        }
    }

    /// A connection for `key`, which has none. It keeps the timer that its slot hangs by. `None` when all are in use.
    #[inline]
    pub fn insert(&mut self, key: Key) -> Option<u32> {
        let slot = if self.free != NONE {
            let slot = self.free;
            self.free = self.all[slot as usize].left;
            slot
        } else if self.all.len() < self.capacity {
            self.all.push(Connection::default());
            self.all.len() as u32 - 1
        } else {
            return None;
        };
        let connection = &mut self.all[slot as usize];
        *connection = Connection::new(key, connection.timer);
        let (mut place, bits) = self.hash(key);
        while self.entry(place) != 0 {
            place += 1;
        }
        let mask = self.index.len() - 1;
        self.index[place & mask] = (slot + 1) | bits;
        Some(slot)
    }

    #[inline]
    pub fn remove(&mut self, slot: u32) {
        let connection = &mut self.all[slot as usize];
        connection.state = State::Free;
        connection.left = std::mem::replace(&mut self.free, slot);
        let mask = self.index.len() - 1;
        let (mut hole, bits) = self.hash(self.all[slot as usize].key);
        while self.entry(hole) != (slot + 1) | bits {
            hole += 1;
        }
        // Entries behind the hole move into it unless that would put them before their first place.
        let mut place = hole;
        loop {
            place += 1;
            let entry = self.entry(place);
            if entry == 0 {
                break;
            }
            let (home, _) = self.hash(self.all[((entry & self.number) - 1) as usize].key);
            let distance = |from: usize, to: usize| to.wrapping_sub(from) & mask;
            if distance(home, place) >= distance(hole, place) {
                self.index[hole & mask] = entry;
                hole = place;
            }
        }
        self.index[hole & mask] = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::mem::size_of_val;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ten_million_connections_take_less_than_64_bytes_each() {
        // Reserved, and not touched.
        let table = Table::new(10_000_000);
        let bytes = table.all.capacity() * size_of::<Connection>() + size_of_val(&*table.index);
        assert!(bytes < 64 * 10_000_000, "{bytes}");
        assert_eq!(table.number.count_ones() + 8, u32::BITS, "eight bits of hash are left in an entry");
    }

    proptest! {
        #[test]
        fn is_a_map(capacity in 1u32..40, steps in prop::collection::vec((any::<bool>(), 0u16..60), 0..400)) {
            let mut table = Table::new(capacity);
            let mut model = HashMap::new();
            for (insert, port) in steps {
                let key = Key::new(1, port, 2, 80);
                let found = table.find(key);
                prop_assert_eq!(found, model.get(&port).copied());
                match (insert, found) {
                    (true, None) => {
                        let slot = table.insert(key);
                        prop_assert_eq!(slot.is_some(), model.len() < capacity as usize);
                        if let Some(slot) = slot {
                            prop_assert!(model.values().all(|&other| other != slot));
                            model.insert(port, slot);
                        }
                    }
                    (false, Some(slot)) => {
                        table.remove(slot);
                        model.remove(&port);
                    }
                    _ => {}
                }
            }
            for port in 0..60 {
                prop_assert_eq!(table.find(Key::new(1, port, 2, 80)), model.get(&port).copied());
            }
        }
    }
}
