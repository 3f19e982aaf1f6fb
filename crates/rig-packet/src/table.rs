//! Connections: a slab, and an index of 32-bit entries with linear probing over it.

use super::connection::{Connection, Key, State};

const NONE: u32 = u32::MAX;
/// Neighbors in the index: the entries of a cache line.
const GROUP: u64 = 15;

/// Which port of a connection counts up from one connection to the next: the client's. Neighbors in it are neighbors in
/// the index, so that connections that are opened together share cache lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequentialPort {
    Local,
    Remote,
}

/// Memory is reserved for all connections at once and touched when they are first used: 48 bytes each, and 8 to 16 of
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
    /// The bits of an entry that are the connection's number.
    number: u32,
    /// Where in the key the counted port is.
    counted: u32,
}

impl Table {
    /// The most connections that entries can name with four bits of hash left.
    pub const LARGEST: u32 = (1 << 28) - 2;

    pub fn new(capacity: u32, counted: SequentialPort) -> Self {
        let capacity = capacity.clamp(1, Self::LARGEST);
        let places = Self::places(capacity);
        Self {
            all: Vec::with_capacity(capacity as usize),
            capacity: capacity as usize,
            free: NONE,
            index: vec![0; places].into_boxed_slice(),
            shift: 64 - places.trailing_zeros(),
            number: (capacity + 2).next_power_of_two() - 1,
            counted: if counted == SequentialPort::Local { 16 } else { 0 },
        }
    }

    /// Entries of the index, so that it is at most half full.
    fn places(capacity: u32) -> usize {
        (capacity as usize * 2).next_power_of_two().max(16)
    }

    /// Bytes for so many connections.
    pub fn bytes(capacity: u32) -> u64 {
        (capacity as usize * size_of::<Connection>() + Self::places(capacity) * size_of::<u32>()) as u64
    }

    /// The first place to look at, and the bits that an entry carries.
    #[inline]
    fn hash(&self, key: Key) -> (usize, u32) {
        let low = key.0 >> self.counted & GROUP;
        // Two multiplications with a fold between, as MurmurHash3's finalizer.
        let hash = (key.0 & !(GROUP << self.counted)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let place = hash >> self.shift & !GROUP | low;
        (place as usize, (hash as u32 ^ (low as u32) << 28) & !self.number)
    }

    /// Connections, each looked at.
    pub fn in_use(&self) -> usize {
        self.all.iter().filter(|connection| connection.state != State::Free).count()
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
        let table = Table::new(10_000_000, SequentialPort::Local);
        let bytes = table.all.capacity() * size_of::<Connection>() + size_of_val(&*table.index);
        assert_eq!(bytes as u64, Table::bytes(10_000_000));
        assert!(bytes < 64 * 10_000_000, "{bytes}");
        assert_eq!(table.number.count_ones() + 8, u32::BITS, "eight bits of hash are left in an entry");
    }

    #[test]
    fn consecutive_ends_spread() {
        // Groups of 16 in a table that is nearly half full: a search that fails passes one or two of them.
        let mut table = Table::new(120_000, SequentialPort::Local);
        for n in 0..120_000u32 {
            table.insert(Key::new((n / 60_000) as u16, 1024 + (n % 60_000) as u16, 0, 80)).unwrap();
        }
        let places = table.index.len();
        let mut looked_at = 0;
        for mut place in 0..places {
            while table.entry(place) != 0 {
                place += 1;
                looked_at += 1;
            }
        }
        assert!(looked_at < places * 16, "{} places on average", looked_at as f64 / places as f64);
    }

    proptest! {
        #[test]
        fn is_a_map(local: bool, capacity in 1u32..40, steps in prop::collection::vec((any::<bool>(), 0u16..60), 0..400)) {
            let mut table = Table::new(capacity, if local { SequentialPort::Local } else { SequentialPort::Remote });
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
