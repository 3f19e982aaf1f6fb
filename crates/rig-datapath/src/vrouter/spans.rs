//! Room for consecutive elements of a table.

use std::collections::BTreeMap;

use crate::Error;

/// Some consecutive elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ElementRange {
    pub(super) first: u32,
    pub(super) count: u32,
}

/// Which elements of a table are taken.
#[derive(Debug)]
pub(super) struct Spans {
    what: &'static str,
    room: u32,
    /// Lengths of those that are taken, by their first elements.
    taken: BTreeMap<u32, u32>,
}

impl Spans {
    /// `what` they are, for the error when there is no room.
    pub(super) fn new(what: &'static str, room: u32) -> Self {
        Self { what, room, taken: BTreeMap::new() }
    }

    /// The first gap that is large enough.
    pub(super) fn take(&mut self, count: u32) -> Result<ElementRange, Error> {
        let mut first = 0;
        for (&taken, &length) in &self.taken {
            if taken - first >= count {
                break;
            }
            first = taken + length;
        }
        if self.room.saturating_sub(first) < count {
            let used: u32 = self.taken.values().sum();
            return Err(Error::NoRoom { what: self.what, room: self.room, wanted: (used + count) as usize });
        }
        if count > 0 {
            self.taken.insert(first, count);
        }
        Ok(ElementRange { first, count })
    }

    pub(super) fn give(&mut self, span: ElementRange) {
        if span.count > 0 {
            self.taken.remove(&span.first);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_fits_is_taken() {
        let mut spans = Spans::new("elements", 10);
        let a = spans.take(4).unwrap();
        let b = spans.take(4).unwrap();
        assert_eq!((a.first, b.first), (0, 4));
        spans.give(a);
        assert_eq!(spans.take(2).unwrap().first, 0);
        assert_eq!(spans.take(2).unwrap().first, 2);
        assert_eq!(spans.take(2).unwrap().first, 8);
        assert!(spans.take(1).is_err());
        assert_eq!(spans.take(0).unwrap().count, 0);
    }
}
