//! How large the tables are: fixed when the programs are loaded.

use libbpf_rs::num_possible_cpus;

use crate::Error;

use super::shape::{
    Address, Backend, CachedRoute, ConnectionCount, FirstFragment, FragmentKey, HoldDown, Limits, Load, MAX_COUNTERS,
    PORT_BLOCK, PORT_SEQUENCES, Refusals, SHAPE_VERSION, SOURCE_WAYS, Service, ServiceKey, Set, SourceSet, Template,
    TemplateKey, TrafficCount, Tuning, WAYS,
};

/// Room in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Connections at a time, 64 to 2^29; each is 120 bytes. Rounded up to a multiple of the CPUs.
    pub connections: u32,
    /// 1 to 65,535, as the next two.
    pub services: u32,
    /// Of all services together; one that was removed counts until its last connection has ended.
    pub backends: u32,
    pub local_addresses: u32,
    /// Entries of all schedules and pools of local addresses together: a round robin takes the sum of its weights, a
    /// hash 251 to 65,537. While a schedule is changed, both the old and the new one are there.
    pub list_entries: u32,
    pub ports: PortShare,
    /// Prefixes of all lists of who may begin connections together, 1 to 2^20. Those that there are take some 100 bytes each, beside 8
    /// on each CPU for each that there may be.
    pub prefixes: u32,
    /// Sources of all services with limits for them, 2 to 2^24, rounded up to an even number: 32 bytes each, used or not. So many clients of
    /// services by route or tunnel are admitted by the SYN proxy at a time, too: 88 bytes each.
    pub sources: u32,
    /// Sources of all services with persistence together that are remembered at a time, 1 to 2^20: 96 bytes each, used or not.
    pub templates: u32,
    /// Datagrams that come in fragments at a time, 1 to 2^20: 112 bytes each, used or not. Of more, about those that were heard of least lately give way.
    pub fragments: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            connections: 1 << 20,
            services: 256,
            backends: 4096,
            local_addresses: 1024,
            list_entries: 1 << 19,
            prefixes: 1 << 14,
            sources: 1 << 16,
            templates: 1 << 16,
            fragments: 1 << 14,
            ports: PortShare::default(),
        }
    }
}

/// Which of the local ports of each address it gives out: balancers that have the same local addresses divide their ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortShare {
    /// From 1.
    pub share: u16,
    pub of: u16,
}

impl Default for PortShare {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl PortShare {
    pub const WHOLE: Self = Self { share: 1, of: 1 };
    /// Balancers that can share an address.
    pub const MOST: u16 = 16;

    /// Blocks of each share.
    fn blocks(self) -> u16 {
        PORT_BLOCKS / self.of.clamp(1, Self::MOST)
    }

    fn first(self) -> u16 {
        PORT_LOW + (self.share.clamp(1, Self::MOST) - 1) * self.blocks() * PORT_BLOCK as u16
    }

    /// How many ports it has of each address.
    pub fn ports(self) -> u32 {
        u32::from(self.blocks()) * PORT_BLOCK
    }

    /// As loaded programs have it.
    pub(crate) fn of_tuning(tuning: &Tuning) -> Self {
        let blocks = tuning.port_blocks.max(1);
        Self {
            share: (tuning.port_low.saturating_sub(PORT_LOW)) / PORT_BLOCK as u16 / blocks + 1,
            of: PORT_BLOCKS / blocks,
        }
    }
}

/// Bytes of a bucket.
pub(crate) const BUCKET: usize = 64;
/// Index entries that a bucket shall hold on average at most, times two, of the seven for which it has room.
const TWICE_BUCKET_FILL: u64 = 9;
/// Overflow in case of small tables, which are uneven.
const LEAST_OVERFLOW: u32 = 1024;
/// 128 kB a CPU.
const LEAST_HOPS: u32 = 4096;
/// Small tables are uneven; this many cost nothing.
const LEAST_BUCKETS: u64 = 1024;

/// Local ports: all but the well-known ones (RFC 6335, 6).
const PORT_LOW: u16 = 1024;
/// Blocks of them.
const PORT_BLOCKS: u16 = ((1 + u16::MAX as u32 - PORT_LOW as u32) / PORT_BLOCK) as u16;
/// How many there are of each address and backend.
pub const LOCAL_PORTS: u32 = 1 + u16::MAX as u32 - PORT_LOW as u32;

/// Bytes of the maps as asked for; the kernel's own headers come on top, for arrays some hundred bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Records of connections.
    pub connections: u64,
    /// Buckets of the index.
    pub index: u64,
    pub free_slots: u64,
    /// Sequences of local ports, and which blocks are held down.
    pub places: u64,
    /// Services, backends, local addresses, schedules and counters.
    pub configuration: u64,
    /// What the SYN proxy keeps of its connections: none until it has any.
    pub splices: u64,
    /// Counters of sources, and which backends they are kept at.
    pub sources: u64,
}

impl Memory {
    pub fn total(&self) -> u64 {
        self.connections + self.index + self.free_slots + self.places + self.configuration + self.splices + self.sources
    }
}

impl Sizes {
    pub(crate) fn tuning(&self) -> Result<Tuning, Error> {
        let cpus = possible_cpus()? as u32;
        let counters = cpus.min(MAX_COUNTERS as u32);
        Ok(Tuning {
            key: std::array::from_fn(|_| random()),
            bucket_mask: self.buckets() - 1,
            counters,
            connections_per_counter: self.connections.div_ceil(counters),
            port_low: self.ports.first(),
            port_blocks: self.ports.blocks(),
            hold_mask: self.hold_downs() - 1,
            sets: self.sets(),
            overflow: self.overflow(),
            version: SHAPE_VERSION,
            cached_mask: self.cached_routes() - 1,
            source_sets: self.source_sets(),
        })
    }

    /// Each connection has an index entry for the packets of its backend, those in the overflow another one. Were
    /// connections spread by chance over sets of four records with 2.67 on average, 8 % would find theirs full.
    pub(crate) fn buckets(&self) -> u32 {
        let entries = u64::from(self.connections) * 108 / 100;
        (entries * 2).div_ceil(TWICE_BUCKET_FILL).next_power_of_two().max(LEAST_BUCKETS) as u32
    }

    /// Sets: one and a half times as many records as there can be connections.
    fn sets(&self) -> u32 {
        (u64::from(self.connections) * 3).div_ceil(2 * WAYS as u64) as u32
    }

    /// Blocks of ports that are held down: one for each 16 connections, more than can be full.
    pub(crate) fn hold_downs(&self) -> u32 {
        (self.connections / 16).next_power_of_two().clamp(64, 1 << 16)
    }

    /// Routes that a CPU caches: to each backend, and some more where they depend on flows.
    pub(crate) fn cached_routes(&self) -> u32 {
        (self.backends + 1).next_power_of_two().max(LEAST_HOPS)
    }

    /// What prefixes are counted under, from 1: with an allow list comes what is in none, of both families.
    pub(crate) fn access_numbers(&self) -> u32 {
        1 + self.prefixes + 2 * (self.services + 1)
    }

    pub(crate) fn prefixes_of(access_numbers: u32, services: u32) -> u32 {
        access_numbers - 1 - 2 * (services + 1)
    }

    /// Sets of counters of sources, half full with as many as asked for: then both of a source's sets are full for one in 30,000.
    fn source_sets(&self) -> u32 {
        (2 * self.sources).div_ceil(SOURCE_WAYS as u32)
    }

    pub(crate) fn sources_of(source_sets: u32) -> u32 {
        source_sets * SOURCE_WAYS as u32 / 2
    }

    fn overflow(&self) -> u32 {
        (self.connections / 8).max(LEAST_OVERFLOW).next_multiple_of(WAYS as u32)
    }

    /// Whether there can be such tables: records number services, backends and local addresses with 16 bits.
    pub fn validate(&self) -> Result<(), Error> {
        let bounds = [
            ("connections", self.connections, 64, 1 << 29),
            ("services", self.services, 1, u16::MAX.into()),
            ("backends", self.backends, 1, u16::MAX.into()),
            ("local addresses", self.local_addresses, 1, u16::MAX.into()),
            ("entries of schedules", self.list_entries, 1, 1 << 28),
            ("shares of local ports", self.ports.of.into(), 1, PortShare::MOST.into()),
            ("the share of local ports with this number", self.ports.share.into(), 1, self.ports.of.into()),
            ("prefixes", self.prefixes, 1, 1 << 20),
            ("sources", self.sources, 2, 1 << 24),
            ("templates", self.templates, 1, 1 << 20),
            ("fragments", self.fragments, 1, 1 << 20),
        ];
        for (what, wanted, least, most) in bounds {
            if !(least..=most).contains(&wanted) {
                return Err(Error::Size { what, wanted, least, most });
            }
        }
        Ok(())
    }

    /// What the maps will take on this machine.
    pub fn memory_here(&self) -> Result<Memory, Error> {
        Ok(self.memory(possible_cpus()?))
    }

    /// What the maps will take for `cpus` possible CPUs.
    pub fn memory(&self, cpus: usize) -> Memory {
        let cpus = cpus as u64;
        let bytes = |entries: u32, each: usize| u64::from(entries + 1) * each as u64;
        // What the kernel adds to an element of a hash (struct htab_elem) and its bucket.
        const HASHED: usize = 48 + 16;
        let backend = size_of::<Backend>() + size_of::<Load>() + size_of::<u32>();
        let backend_per_cpu = size_of::<TrafficCount>() + size_of::<u64>();
        Memory {
            connections: (Layout::of(self.sets(), self.overflow()).sets() + cpus) * size_of::<Set>() as u64,
            index: u64::from(self.buckets()) * BUCKET as u64,
            free_slots: u64::from(self.overflow()) * 4 + (MAX_COUNTERS * size_of::<ConnectionCount>()) as u64,
            places: u64::from(self.hold_downs()) * size_of::<HoldDown>() as u64
                + u64::from(PORT_SEQUENCES) * (16 + 8 * cpus),
            configuration: bytes(self.services, size_of::<Service>() + size_of::<ServiceKey>() + 16 + HASHED)
                + bytes(self.services, size_of::<Refusals>()) * cpus
                + bytes(self.backends, backend)
                + bytes(self.backends, backend_per_cpu) * cpus
                + u64::from(self.cached_routes()) * size_of::<CachedRoute>() as u64 * cpus
                + bytes(self.local_addresses, size_of::<Address>() + 4)
                + bytes(self.local_addresses + self.services + self.backends, size_of::<Address>() + 8 + HASHED)
                + u64::from(self.list_entries) * 4
                + u64::from(self.fragments) * (size_of::<FragmentKey>() + size_of::<FirstFragment>() + HASHED) as u64
                + u64::from(self.access_numbers()) * 8 * cpus,
            splices: 0,
            sources: u64::from(self.source_sets()) * size_of::<SourceSet>() as u64
                + u64::from(self.sources) * (size_of::<Address>() + size_of::<u32>() + HASHED) as u64
                + u64::from(self.templates) * (size_of::<TemplateKey>() + size_of::<Template>() + HASHED) as u64
                + bytes(self.services, size_of::<Limits>() + 8)
                + bytes(self.services, 8) * cpus,
        }
    }
}

/// Where records are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    sets: u32,
    overflow: u32,
}

impl Layout {
    pub(crate) fn of(sets: u32, overflow: u32) -> Self {
        Self { sets, overflow }
    }

    /// Elements of the map, but for those of CPUs behind them: the unused first one, those of the hash, and the overflow.
    pub(crate) fn sets(self) -> u64 {
        1 + u64::from(self.sets) + u64::from(self.overflow) / WAYS as u64
    }

    /// The slots that a connection can have.
    pub(crate) fn slots(self) -> std::ops::Range<u32> {
        WAYS as u32..(self.sets() * WAYS as u64) as u32
    }
}

/// CPUs that some maps have a value for each of.
pub(crate) fn possible_cpus() -> Result<usize, Error> {
    num_possible_cpus().map_err(|source| Error::Map { map: "shards", operation: "count the CPUs of", source })
}

/// The standard library draws its hash keys from the kernel's random numbers.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::hash::KEYS;
    use super::*;

    #[test]
    fn eight_million_connections_take_less_than_a_gigabyte() {
        let memory = Sizes { connections: 8_000_000, ..Sizes::default() }.memory(2);
        assert_eq!(memory.connections, (1 + 3_000_000 + 250_000 + 2) * 256);
        assert_eq!(memory.index, 1 << 27);
        assert!(memory.total() < 1_000_000_000, "{memory:?}");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let refused = |sizes: Sizes| sizes.validate().unwrap_err().to_string();
        let many = refused(Sizes { backends: 65_536, ..Sizes::default() });
        assert_eq!(many, "a balancer cannot be made for 65536 backends: 1 to 65535");
        assert!(refused(Sizes { connections: 63, ..Sizes::default() }).contains("63 connections"));
        assert!(Sizes::default().validate().is_ok());
    }

    #[test]
    fn shares_of_ports_are_apart_and_known_from_tables() {
        for of in 1..=PortShare::MOST {
            let shares: Vec<_> = (1..=of).map(|share| PortShare { share, of }).collect();
            for (at, share) in shares.iter().enumerate() {
                let tuning = Sizes { ports: *share, ..Sizes::default() }.tuning().unwrap();
                assert_eq!(PortShare::of_tuning(&tuning), *share);
                let end = u32::from(share.first()) + share.ports();
                assert!(end <= 1 + u32::from(u16::MAX), "{share:?}");
                assert!(shares.get(at + 1).is_none_or(|next| u32::from(next.first()) == end), "{share:?}");
            }
        }
        assert_eq!(PortShare::default().ports(), LOCAL_PORTS);
    }

    /// The keys of one balancer say nothing of another's, and no two keys are the same.
    #[test]
    fn keys_are_drawn_anew_for_each_balancer() {
        let (one, other) = (Sizes::default().tuning().unwrap().key, Sizes::default().tuning().unwrap().key);
        let different: std::collections::HashSet<u64> = one.iter().chain(&other).copied().collect();
        assert_eq!(different.len(), 2 * KEYS, "{one:x?} {other:x?}");
        // Half of the bits are set, of each bit's place too: 64 of 22 each, by chance 11 with a deviation of 2.35.
        for bit in 0..64 {
            let set = one.iter().chain(&other).filter(|key| *key >> bit & 1 == 1).count();
            assert!((1..22).contains(&set), "bit {bit} is always the same: {set} of 22");
        }
    }
}
