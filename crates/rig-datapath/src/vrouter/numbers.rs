//! Which number of a table stands for what.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;

/// Numbers from `first` for different things, each the same as long as somebody wants it.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    what: &'static str,
    first: u32,
    room: u32,
    of: BTreeMap<T, u32>,
    wanted: BTreeSet<u32>,
    free: BTreeSet<u32>,
    next: u32,
}

impl<T: Ord + Clone> Numbers<T> {
    /// `room` is that of the table, numbers below `first` among it.
    pub(super) fn new(what: &'static str, first: u32, room: u32) -> Self {
        Self { what, first, room, of: BTreeMap::new(), wanted: BTreeSet::new(), free: BTreeSet::new(), next: first }
    }

    /// The number of something, which is wanted until [`release`](Self::release) after the next [`begin`](Self::begin). `true`
    /// where it is a new one.
    pub(super) fn want(&mut self, thing: &T) -> Result<(u32, bool), Error> {
        if let Some(number) = self.of.get(thing) {
            self.wanted.insert(*number);
            return Ok((*number, false));
        }
        let number = match self.free.pop_first() {
            Some(number) => number,
            None if self.next < self.room => {
                self.next += 1;
                self.next - 1
            }
            None => {
                let room = self.room.saturating_sub(self.first);
                return Err(Error::NoRoom { what: self.what, room, wanted: self.of.len() + 1 });
            }
        };
        self.of.insert(thing.clone(), number);
        self.wanted.insert(number);
        Ok((number, true))
    }

    /// All that have one.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.of.iter().map(|(thing, number)| (thing, *number))
    }

    /// Nothing is wanted any more, and nothing is given away yet.
    pub(super) fn begin(&mut self) {
        self.wanted.clear();
    }

    /// Numbers of what has not been wanted since [`begin`](Self::begin) are free for others, and are returned with what they
    /// stood for.
    pub(super) fn release(&mut self) -> Vec<(T, u32)> {
        let mut gone = Vec::new();
        self.of.retain(|thing, number| {
            let stays = self.wanted.contains(number);
            if !stays {
                gone.push((thing.clone(), *number));
            }
            stays
        });
        self.free.extend(gone.iter().map(|(_, number)| *number));
        gone
    }
}
