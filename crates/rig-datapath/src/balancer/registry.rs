//! What the control plane knows of the tables: which number stands for what.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::Error;

use super::config::{ExpiryPolicy, Protocol, Scheduler};
use super::workers::Spreading;

/// A service under another forwarding method is another one: connections keep theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) protocol: Protocol,
    pub(crate) address: SocketAddr,
    pub(crate) forward: u8,
}

/// A part of the map `lists`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ListSpan {
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

impl ListSpan {
    pub(crate) fn word(self) -> u64 {
        super::shape::list(self.offset, self.length)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        Self { offset: word as u32, length: (word >> 32) as u32 }
    }

    /// One that is in two parts.
    pub(crate) fn joined(first: u64, second: u64) -> Self {
        let (first, second) = (Self::of_word(first), Self::of_word(second));
        match first.length {
            0 => second,
            length => Self { offset: first.offset, length: length + second.length },
        }
    }

    /// The first ones, and the others.
    pub(crate) fn split(self, length: u32) -> (Self, Self) {
        let (offset, first) = (self.offset, Self { length, ..self });
        (first, Self { offset: offset + length, length: self.length - length })
    }

    fn end(self) -> u32 {
        self.offset + self.length
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ServiceEntry {
    pub(crate) number: u32,
    /// Whether it takes new connections.
    pub(crate) open: bool,
    pub(crate) schedule: ListSpan,
    /// Those of its own family before those of the other one.
    pub(crate) locals: ListSpan,
    /// The numbers in it, of its own family and of the other one.
    pub(crate) pools: [BTreeSet<u32>; 2],
    pub(crate) expire: ExpiryPolicy,
    /// As it was configured; not known of one that another control plane has left.
    pub(crate) scheduler: Option<Scheduler>,
}

impl ServiceEntry {
    /// One that has its number, and takes no connection yet.
    pub(crate) fn new(number: u32, expire: ExpiryPolicy) -> Self {
        Self {
            number,
            open: false,
            schedule: ListSpan::default(),
            locals: ListSpan::default(),
            pools: [BTreeSet::new(), BTreeSet::new()],
            expire,
            scheduler: None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BackendEntry {
    pub(crate) number: u32,
    /// Removed from the configuration; it goes with its last connection, `Some(true)` once that has been seen.
    pub(crate) leaving: Option<bool>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalEntry {
    pub(crate) number: u32,
    /// No service has it any more; the round of sweeping at which that was so. It goes with the last connection that has it.
    pub(crate) left: Option<u32>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceRegistry {
    pub(crate) services: BTreeMap<Identity, ServiceEntry>,
    /// By service's number and address.
    pub(crate) backends: BTreeMap<(u32, SocketAddr), BackendEntry>,
    pub(crate) locals: BTreeMap<IpAddr, LocalEntry>,
    /// The map `owned`.
    pub(crate) owned: BTreeMap<IpAddr, u32>,
    /// How packets come to workers.
    pub(crate) spreading: Spreading,
    /// Parts of `lists` that a packet may be reading still.
    pub(crate) resting: Vec<ListSpan>,
}

/// The smallest number from 1 that is not taken; 0 means nothing everywhere.
fn free_number(taken: impl Iterator<Item = u32>) -> u32 {
    let taken: BTreeSet<u32> = taken.collect();
    (1..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX)
}

pub(crate) fn within(number: u32, room: u32, what: &'static str) -> Result<u32, Error> {
    if number <= room { Ok(number) } else { Err(Error::NoRoom { what, room, wanted: number as usize }) }
}

impl ServiceRegistry {
    /// The backends of one service, by their addresses.
    pub(crate) fn backends_of(&self, service: u32) -> impl Iterator<Item = (&SocketAddr, &BackendEntry)> {
        // No address is less.
        let first = SocketAddr::from(([0, 0, 0, 0], 0));
        let from_first = self.backends.range((service, first)..);
        from_first.take_while(move |((of, _), _)| *of == service).map(|((_, address), known)| (address, known))
    }

    pub(crate) fn new_service(&self, room: u32) -> Result<u32, Error> {
        within(free_number(self.services.values().map(|service| service.number)), room, "services")
    }

    pub(crate) fn new_backend(&self, room: u32) -> Result<u32, Error> {
        within(free_number(self.backends.values().map(|backend| backend.number)), room, "backends")
    }

    pub(crate) fn new_local(&self, room: u32) -> Result<u32, Error> {
        within(free_number(self.locals.values().map(|local| local.number)), room, "local addresses")
    }

    /// Room for a list, first fit.
    pub(crate) fn new_list(&self, length: u32, room: u32) -> Result<ListSpan, Error> {
        let lists = self.services.values().flat_map(|service| [service.schedule, service.locals]);
        let mut taken: Vec<ListSpan> =
            lists.chain(self.resting.iter().copied()).filter(|list| list.length > 0).collect();
        taken.sort_by_key(|list| list.offset);
        let mut offset = 0;
        for list in taken {
            if list.offset - offset.min(list.offset) >= length {
                break;
            }
            offset = offset.max(list.end());
        }
        within(offset + length, room, "entries of schedules")?;
        Ok(ListSpan { offset, length })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn lists_take_the_first_gap_that_fits() {
        let mut known =
            ServiceRegistry { resting: vec![ListSpan { offset: 4, length: 4 }], ..ServiceRegistry::default() };
        assert_eq!(known.new_list(4, 100).unwrap().offset, 0);
        assert_eq!(known.new_list(5, 100).unwrap().offset, 8);
        known.resting.push(ListSpan { offset: 0, length: 4 });
        known.resting.push(ListSpan { offset: 10, length: 90 });
        assert_eq!(known.new_list(2, 100).unwrap().offset, 8);
        let full = known.new_list(3, 100).unwrap_err();
        assert_eq!(
            full.to_string(),
            "there is room for 100 entries of schedules, and 103 are wanted: load it with larger sizes"
        );
    }
}
