//! Stacks of some CPUs, few enough to be kept.

use std::collections::HashMap;

use rig_sys::cpu::CpuSet;
use rig_testbed::stacks::{FoldedStacks, OTHER};

use crate::record::Profile;

/// The most that a record keeps: stacks, and bytes of them.
const STACKS: usize = 2000;
const BYTES: usize = 256 * 1024;

impl Profile {
    /// The stacks of some CPUs, as many as a record keeps.
    pub fn of(folded: &FoldedStacks, cpus: &CpuSet) -> Self {
        let mut stacks = HashMap::<String, u64>::new();
        folded.of(cpus).for_each(|(stack, count)| *stacks.entry(stack.to_owned()).or_default() += count);
        let samples = stacks.values().sum();
        let (stacks, merged) = most_frequent(stacks, STACKS, BYTES);
        Self {
            hertz: folded.hertz,
            clock: folded.clock,
            cpus: cpus.as_slice().to_vec(),
            samples,
            lost: folded.lost,
            stacks,
            merged,
            notes: folded.notes.clone(),
        }
    }
}

/// The stacks with the most samples, most first, and how many there are beside; those are added up under [`OTHER`].
fn most_frequent(folded: HashMap<String, u64>, stacks: usize, mut bytes: usize) -> (Vec<(String, u64)>, u64) {
    let mut all: Vec<(String, u64)> = folded.into_iter().collect();
    all.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    let fits = |(stack, _): &&(String, u64)| {
        let room = bytes.checked_sub(stack.len());
        bytes = room.unwrap_or(bytes);
        room.is_some()
    };
    let kept = all.iter().take(stacks).take_while(fits).count();
    let rest = all.split_off(kept);
    if !rest.is_empty() {
        all.push((OTHER.to_owned(), rest.iter().map(|(_, count)| count).sum()));
    }
    (all, rest.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_stacks_are_added_up() {
        let folded = || HashMap::from([("a;b".to_owned(), 5), ("a;c".to_owned(), 2), ("a;d".to_owned(), 1)]);
        let owned = |stacks: &[(&str, u64)]| stacks.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect::<Vec<_>>();
        assert_eq!(most_frequent(folded(), 1, 100), (owned(&[("a;b", 5), (OTHER, 3)]), 2));
        assert_eq!(most_frequent(folded(), 9, 6), (owned(&[("a;b", 5), ("a;c", 2), (OTHER, 1)]), 1));
        assert_eq!(most_frequent(folded(), 9, 100), (owned(&[("a;b", 5), ("a;c", 2), ("a;d", 1)]), 0));
    }
}
