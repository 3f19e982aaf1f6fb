//! Which CPU each entry was on, over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::MoveReason;

/// The table of an interface as it was at one moment, and the moves before. Moments are nanoseconds of one clock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    pub interface: String,
    /// What moves entries, e.g. `napi`.
    pub actuator: String,
    /// Whether the base CPU hands packets of other CPUs to them, which costs it time.
    pub distributes: bool,
    /// Whether packets keep their order over a move.
    pub exact_order: bool,
    /// The CPU that packets reach first.
    pub base: u32,
    /// The CPU of each entry at the moment `at_ns`; none where none is known.
    pub table: Vec<Option<u32>>,
    pub at_ns: u64,
    /// In their order, the last that were kept.
    pub moves: Vec<EntryMove>,
    /// How many before them were not.
    pub lost: u64,
}

/// An entry that went from one CPU to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryMove {
    pub at_ns: u64,
    pub entry: u32,
    pub from: u32,
    pub to: u32,
    pub why: MoveReason,
    /// Whether packets arrived for it.
    pub paid: bool,
}

/// A stretch of time that an entry was on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryStay {
    pub from_ns: u64,
    pub to_ns: u64,
    pub cpu: u32,
}

impl History {
    /// The table at a moment.
    pub fn table_at(&self, at_ns: u64) -> Vec<Option<u32>> {
        let mut table = self.table.clone();
        for moved in self.moves.iter().rev().filter(|moved| moved.at_ns > at_ns) {
            if let Some(cpu) = table.get_mut(moved.entry as usize) {
                *cpu = Some(moved.from);
            }
        }
        table
    }

    /// Moves after the first moment, up to the second.
    pub fn moves_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &EntryMove> {
        self.moves.iter().filter(move |moved| moved.at_ns > from_ns && moved.at_ns <= to_ns)
    }

    /// Where an entry was, without gaps; nothing where that is not known.
    pub fn stays(&self, entry: u32, from_ns: u64, to_ns: u64) -> Vec<EntryStay> {
        let Some(Some(mut cpu)) = self.table_at(from_ns).get(entry as usize).copied() else { return Vec::new() };
        let mut stays = Vec::new();
        let mut since_ns = from_ns;
        for moved in self.moves_in(from_ns, to_ns).filter(|moved| moved.entry == entry) {
            stays.push(EntryStay { from_ns: since_ns, to_ns: moved.at_ns, cpu });
            (since_ns, cpu) = (moved.at_ns, moved.to);
        }
        stays.push(EntryStay { from_ns: since_ns, to_ns, cpu });
        stays.retain(|stay| stay.to_ns > stay.from_ns);
        stays
    }

    /// When the table began to be as `holds` says and stayed so to the end of a stretch of time; none where it is otherwise at
    /// the end.
    pub fn since(&self, from_ns: u64, to_ns: u64, holds: impl Fn(&[Option<u32>]) -> bool) -> Option<u64> {
        let mut table = self.table_at(from_ns);
        let mut since = holds(&table).then_some(from_ns);
        let moves: Vec<&EntryMove> = self.moves_in(from_ns, to_ns).collect();
        for (at, moved) in moves.iter().enumerate() {
            if let Some(cpu) = table.get_mut(moved.entry as usize) {
                *cpu = Some(moved.to);
            }
            // Moves of one moment belong together.
            if moves.get(at + 1).is_some_and(|next| next.at_ns == moved.at_ns) {
                continue;
            }
            since = if holds(&table) { since.or(Some(moved.at_ns)) } else { None };
        }
        since
    }
}

/// The most entries that a CPU of the table has, less the fewest that one of `cpus` has.
pub fn unevenness(table: &[Option<u32>], cpus: &[u32]) -> u32 {
    let entries = |cpu: &u32| table.iter().flatten().filter(|on| *on == cpu).count() as u32;
    let counts: Vec<u32> = cpus.iter().map(entries).collect();
    counts.iter().max().copied().unwrap_or(0) - counts.iter().min().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let moved =
            |at_ns, entry, from, to| EntryMove { at_ns, entry, from, to, why: MoveReason::Coalesce, paid: true };
        History {
            table: vec![Some(0), Some(0), Some(2), None],
            at_ns: 100,
            moves: vec![moved(10, 0, 1, 2), moved(20, 0, 2, 0), moved(20, 1, 1, 0), moved(30, 2, 0, 2)],
            ..History::default()
        }
    }

    #[test]
    fn the_table_of_an_earlier_moment_is_that_of_the_last_without_the_moves_since() {
        let history = history();
        assert_eq!(history.table_at(0), [Some(1), Some(1), Some(0), None]);
        assert_eq!(history.table_at(10), [Some(2), Some(1), Some(0), None]);
        assert_eq!(history.table_at(25), [Some(0), Some(0), Some(0), None]);
        assert_eq!(history.table_at(30), history.table);
    }

    #[test]
    fn an_entrys_stays_follow_each_other() {
        let history = history();
        let stay = |from_ns, to_ns, cpu| EntryStay { from_ns, to_ns, cpu };
        assert_eq!(history.stays(0, 5, 50), [stay(5, 10, 1), stay(10, 20, 2), stay(20, 50, 0)]);
        assert_eq!(history.stays(0, 10, 20), [stay(10, 20, 2)]);
        assert_eq!(history.stays(2, 40, 50), [stay(40, 50, 2)]);
        assert_eq!(history.stays(3, 0, 50), []);
        assert_eq!(history.stays(9, 0, 50), []);
    }

    #[test]
    fn what_holds_holds_since_it_began_and_to_the_end() {
        let history = history();
        let on_base = |table: &[Option<u32>]| table.iter().flatten().all(|cpu| *cpu == 0);
        assert_eq!(history.since(0, 25, on_base), Some(20));
        assert_eq!(history.since(22, 25, on_base), Some(22));
        assert_eq!(history.since(0, 50, on_base), None);
        assert_eq!(history.since(0, 15, on_base), None);
    }

    #[test]
    fn cpus_of_a_parked_table_differ_by_one_entry_at_most() {
        let table = [0, 1, 0, 1, 0].map(Some);
        assert_eq!(unevenness(&table, &[0, 1]), 1);
        assert_eq!(unevenness(&table, &[0, 1, 2]), 3);
        assert_eq!(unevenness(&[], &[]), 0);
    }
}
