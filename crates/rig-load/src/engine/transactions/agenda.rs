//! Which transaction begins next, and where.

use std::collections::VecDeque;

use rig_sys::clock::monotonic_ns;

use super::Book;
use super::timetable::Timetable;

/// A timetable, if the loop is open, and the places that have room for a transaction (connections, as a rule), which take turns.
#[derive(Debug)]
pub(super) struct Agenda {
    timetable: Option<Timetable>,
    /// Each place at most once.
    with_room: VecDeque<usize>,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// To begin the transaction that was due at `due_ns`, at `now_ns`.
    Begin { place: usize, due_ns: u64, now_ns: u64 },
    /// Nothing before this moment, unless a place gets room.
    Until(u64),
    /// Nothing any more.
    Over,
}

impl Agenda {
    pub(super) fn new(timetable: Option<Timetable>, places: usize) -> Self {
        Self { timetable, with_room: (0..places).collect() }
    }

    pub(super) fn open(&mut self, start_ns: u64) {
        if let Some(timetable) = &mut self.timetable {
            timetable.open(start_ns);
        }
    }

    /// The times have another rate from `at_ns` on. Of the closed loop nothing changes: it has none.
    pub(super) fn change(&mut self, at_ns: u64, rate: f64) {
        if let Some(timetable) = &mut self.timetable {
            timetable.change(at_ns, rate);
        }
    }

    /// A place where a transaction begins is no longer among those with room.
    pub(super) fn next(&mut self, now_ns: u64, book: &mut Book) -> Next {
        let stop_ns = book.times().stop_ns;
        let due_ns = self.timetable.as_ref().map_or(now_ns, Timetable::due_ns);
        if book.is_over(now_ns) {
            Next::Over
        } else if due_ns > now_ns {
            Next::Until(due_ns.min(stop_ns))
        } else if let Some(place) = self.with_room.pop_front() {
            if let Some(timetable) = &mut self.timetable {
                timetable.advance();
                book.began(due_ns, now_ns);
            }
            Next::Begin { place, due_ns, now_ns }
        } else {
            Next::Until(stop_ns)
        }
    }

    /// As [`Self::next`], now, of places for several transactions at a time: one where a transaction begins stays among
    /// those with room as long as it has some. `room` is how many more a place takes; none for good (`None`) where it is
    /// closed, and what was due there stays unanswered.
    pub(super) fn next_in(&mut self, book: &mut Book, room: impl Fn(usize) -> Option<usize>) -> Next {
        loop {
            let next = self.next(monotonic_ns(), book);
            let Next::Begin { place, due_ns, now_ns } = next else { return next };
            match room(place) {
                None => book.abandon(due_ns, now_ns),
                Some(room) => {
                    if room > 1 {
                        self.release(place);
                    }
                    return next;
                }
            }
        }
    }

    /// A place has got room, or has room still.
    pub(super) fn release(&mut self, place: usize) {
        self.with_room.push_back(place);
    }

    /// Enters what will not be begun any more.
    pub(super) fn close(&mut self, book: &mut Book) {
        if let Some(timetable) = &mut self.timetable {
            let (times, now_ns) = (book.times(), monotonic_ns());
            timetable.remaining(times.begin_ns, times.end_ns, |due_ns, count| {
                book.never_began(due_ns, now_ns, count);
            });
            book.seed = timetable.seed();
        }
    }
}
