//! Which transaction begins next, and where.

use std::collections::VecDeque;

use rig_sys::clock::monotonic_ns;

use super::TransactionStats;
use super::timetable::Timetable;

/// A timetable, if the loop is open, and the places that have room for a transaction (connections, as a rule), which take turns.
#[derive(Debug)]
pub(super) struct TransactionScheduler {
    timetable: Option<Timetable>,
    /// Each place at most once.
    with_room: VecDeque<usize>,
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAction {
    /// To begin the transaction that was due at `due_ns`, at `now_ns`.
    Begin { place: usize, due_ns: u64, now_ns: u64 },
    /// Nothing before this moment, unless a place gets room.
    Until(u64),
    /// Nothing any more.
    Over,
}

impl TransactionScheduler {
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
    pub(super) fn next(&mut self, now_ns: u64, stats: &mut TransactionStats) -> NextAction {
        let stop_ns = stats.times().stop_ns;
        let due_ns = self.timetable.as_ref().map_or(now_ns, Timetable::due_ns);
        if stats.is_over(now_ns) {
            NextAction::Over
        } else if due_ns > now_ns {
            NextAction::Until(due_ns.min(stop_ns))
        } else if let Some(place) = self.with_room.pop_front() {
            if let Some(timetable) = &mut self.timetable {
                timetable.advance();
                stats.began(due_ns, now_ns);
            }
            NextAction::Begin { place, due_ns, now_ns }
        } else {
            NextAction::Until(stop_ns)
        }
    }

    /// As [`Self::next`], now, of places for several transactions at a time: one where a transaction begins stays among
    /// those with room as long as it has some. `room` is how many more a place takes; none for good (`None`) where it is
    /// closed, and what was due there stays unanswered.
    pub(super) fn next_in(
        &mut self,
        stats: &mut TransactionStats,
        room: impl Fn(usize) -> Option<usize>,
    ) -> NextAction {
        loop {
            let next = self.next(monotonic_ns(), stats);
            let NextAction::Begin { place, due_ns, now_ns } = next else { return next };
            match room(place) {
                None => stats.abandon(due_ns, now_ns),
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
    pub(super) fn close(&mut self, stats: &mut TransactionStats) {
        if let Some(timetable) = &mut self.timetable {
            let (times, now_ns) = (stats.times(), monotonic_ns());
            timetable.remaining(times.begin_ns, times.end_ns, |due_ns, count| {
                stats.never_began(due_ns, now_ns, count);
            });
            stats.seed = timetable.seed();
        }
    }
}
