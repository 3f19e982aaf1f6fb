//! Which number of a table stands for what.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;

/// Numbers from `first` for different things, each the same as long as it is wanted.
#[derive(Debug)]
pub(super) struct Numbers<T> {
    what: &'static str,
    first: u32,
    room: u32,
    of: BTreeMap<T, u32>,
    /// By number.
    wanted: Vec<bool>,
    /// What has been wanted since `begin`, with repetitions.
    lately: Vec<u32>,
    free: BTreeSet<u32>,
    next: u32,
}

impl<T: Ord + Clone> Numbers<T> {
    /// `room` is that of the table, numbers below `first` among it.
    pub(super) fn new(what: &'static str, first: u32, room: u32) -> Self {
        let (wanted, lately) = (Vec::new(), Vec::new());
        Self { what, first, room, of: BTreeMap::new(), wanted, lately, free: BTreeSet::new(), next: first }
    }

    /// The number of something, which is wanted until [`release`](Self::release) after the next [`begin`](Self::begin). `true`
    /// where it is a new one.
    pub(super) fn want(&mut self, thing: &T) -> Result<(u32, bool), Error> {
        if let Some(number) = self.of.get(thing) {
            let number = *number;
            self.keep(&[number]);
            self.lately.push(number);
            return Ok((number, false));
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
        self.keep(&[number]);
        self.lately.push(number);
        Ok((number, true))
    }

    /// Numbers that are wanted as long as they were.
    pub(super) fn keep(&mut self, numbers: &[u32]) {
        for number in numbers {
            let place = *number as usize;
            if self.wanted.len() <= place {
                self.wanted.resize(place + 1, false);
            }
            self.wanted[place] = true;
        }
    }

    /// What has been wanted since this was asked last, each number once.
    pub(super) fn lately(&mut self) -> Vec<u32> {
        let mut numbers = std::mem::take(&mut self.lately);
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// All that have one.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&T, u32)> {
        self.of.iter().map(|(thing, number)| (thing, *number))
    }

    /// Nothing is wanted any more, and nothing is given away yet.
    pub(super) fn begin(&mut self) {
        self.wanted.clear();
        self.lately.clear();
    }

    /// The numbers of all things that were not wanted since [`begin`](Self::begin).
    pub(super) fn unwanted(&self) -> Vec<u32> {
        self.of.values().copied().filter(|number| !self.is_wanted(*number)).collect()
    }

    /// Frees these.
    pub(super) fn release(&mut self) {
        let gone = self.unwanted();
        let Self { of, wanted, .. } = self;
        of.retain(|_, number| wanted.get(*number as usize).is_some_and(|wanted| *wanted));
        self.free.extend(gone);
    }

    fn is_wanted(&self, number: u32) -> bool {
        self.wanted.get(number as usize).is_some_and(|wanted| *wanted)
    }
}
