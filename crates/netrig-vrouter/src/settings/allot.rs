//! Numbers for those who ask for none: the same on every node that reads the file, and theirs whichever others come or go.
//!
//! A number is drawn from the name. If a name further up in the file has it, the next free one is taken: who is added
//! at the end of the file changes no other's number. Those who ask for a number have it before.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::{Range, RangeInclusive};

use rig_wire::ethernet::Mac;
use sha2::{Digest, Sha256};

pub(super) struct NumberRequest<T> {
    pub(super) name: String,
    /// What is asked for, and where.
    pub(super) number: Option<(Range<usize>, T)>,
}

/// Two ask for one number.
pub(super) struct NumberConflict<T> {
    pub(super) first: String,
    pub(super) second: String,
    pub(super) number: T,
    pub(super) span: Range<usize>,
}

/// 64 bits for a name.
pub(super) type Draw<'a> = &'a dyn Fn(&str) -> u64;

type Allocation<T> = Result<Vec<(String, T)>, NumberConflict<T>>;

pub(super) fn numbers(asked: &[NumberRequest<u32>], range: RangeInclusive<u32>, draw: Draw) -> Allocation<u32> {
    let (first, size) = (*range.start(), u64::from(range.end() - range.start()) + 1);
    // There are more numbers than names: 2^20 labels and interfaces of one node.
    let candidates = |drawn: u64| (0..size).map(move |n| first + ((drawn % size + n) % size) as u32);
    allot(asked, draw, candidates)
}

/// As [`numbers`], where others who do not know all these names have to come to the same: two names that come to one number
/// are told. Where no name has asked for it, the span is empty.
pub(super) fn agreed(asked: &[NumberRequest<u32>], range: RangeInclusive<u32>, draw: Draw) -> Allocation<u32> {
    let (first, size) = (*range.start(), u64::from(range.end() - range.start()) + 1);
    let mut names: HashMap<u32, &NumberRequest<u32>> = HashMap::new();
    let mut allotted = Vec::new();
    for one in asked {
        let said = one.number.as_ref();
        let number = said.map_or_else(|| first + (draw(&one.name) % size) as u32, |(_, number)| *number);
        if let Some(other) = names.insert(number, one) {
            let span = said.or(other.number.as_ref()).map_or(0..0, |(span, _)| span.clone());
            return Err(NumberConflict { first: other.name.clone(), second: one.name.clone(), number, span });
        }
        allotted.push((one.name.clone(), number));
    }
    Ok(allotted)
}

/// Locally administered, as Contrail's.
pub(super) fn macs(asked: &[NumberRequest<Mac>], router: Mac) -> Allocation<Mac> {
    let of = |bits: u64| {
        let [_, _, _, a, b, c, d, e] = bits.to_be_bytes();
        Mac([0x02, a, b, c, d, e])
    };
    let candidates = |drawn: u64| (0..=u64::MAX).map(move |n| of(drawn.wrapping_add(n))).filter(|mac| *mac != router);
    allot(asked, &by_name, candidates)
}

fn allot<T: Copy + Eq + Hash, I: Iterator<Item = T>>(
    asked: &[NumberRequest<T>],
    draw: Draw,
    candidates: impl Fn(u64) -> I,
) -> Allocation<T> {
    let mut taken = HashSet::new();
    for one in asked {
        let Some((span, number)) = &one.number else { continue };
        if !taken.insert(*number) {
            let has_it =
                |other: &&NumberRequest<T>| other.number.as_ref().is_some_and(|(_, of_other)| of_other == number);
            let first = asked.iter().find(has_it).map_or_else(String::new, |other| other.name.clone());
            return Err(NumberConflict { first, second: one.name.clone(), number: *number, span: span.clone() });
        }
    }
    let mut allotted = Vec::new();
    for one in asked {
        let number = match &one.number {
            Some((_, number)) => Some(*number),
            None => candidates(draw(&one.name)).find(|number| taken.insert(*number)),
        };
        allotted.extend(number.map(|number| (one.name.clone(), number)));
    }
    Ok(allotted)
}

/// What follows from the name alone, which every node computes alike.
pub(super) fn by_name(name: &str) -> u64 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    fn asked(names: &[&str]) -> Vec<NumberRequest<u32>> {
        names.iter().map(|name| NumberRequest { name: (*name).to_owned(), number: None }).collect()
    }

    fn allotted(asked: &[NumberRequest<u32>], range: RangeInclusive<u32>) -> Vec<u32> {
        let Ok(allotted) = numbers(asked, range, &by_name) else { panic!("no name asks for a number") };
        allotted.into_iter().map(|(_, number)| number).collect()
    }

    #[test]
    fn who_comes_later_takes_no_number_away() {
        // So few that names collide.
        let all: Vec<String> = (0..20).map(|n| format!("interface-{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let of_all = allotted(&asked(&all), 16..=35);
        for n in 0..all.len() {
            assert_eq!(allotted(&asked(&all[..n]), 16..=35), of_all[..n]);
        }
        let different: HashSet<&u32> = of_all.iter().collect();
        assert_eq!((different.len(), of_all.iter().min(), of_all.iter().max()), (20, Some(&16), Some(&35)));
    }

    #[test]
    fn who_goes_changes_nobodys_number() {
        let all = allotted(&asked(&["a", "b", "c"]), 16..=LAST);
        assert_eq!(allotted(&asked(&["a", "c"]), 16..=LAST), [all[0], all[2]]);
    }

    #[test]
    fn where_all_have_to_agree_nobody_gets_the_next_one() {
        let Ok(two) = agreed(&asked(&["a", "b"]), 1..=LAST, &by_name) else { panic!() };
        let Ok(one) = agreed(&asked(&["b"]), 1..=LAST, &by_name) else { panic!() };
        assert_eq!(two[1], one[0]);
        let Err(twice) = agreed(&asked(&["a", "b", "c"]), 1..=2, &by_name) else { panic!("two numbers for three") };
        assert!(twice.span.is_empty() && [1, 2].contains(&twice.number));
        let mut said = asked(&["a", "b"]);
        said[0].number = Some((5..6, one[0].1));
        let Err(twice) = agreed(&said, 1..=LAST, &by_name) else { panic!("one number for two") };
        assert_eq!((twice.first.as_str(), twice.second.as_str(), twice.span), ("a", "b", 5..6));
    }

    const LAST: u32 = (1 << 20) - 1;

    /// Nodes of different versions have to agree: these are for ever.
    #[test]
    fn what_is_drawn_from_a_name_stays() {
        assert_eq!(by_name("web-1"), 0xc4719afa76fa448b);
        assert_eq!(allotted(&asked(&["web-1"]), 16..=LAST), [465659]);
        let Ok(macs) = macs(&[NumberRequest { name: "web-1".to_owned(), number: None }], Mac::default()) else {
            panic!()
        };
        assert_eq!(macs[0].1.to_string(), "02:fa:76:fa:44:8b");
    }
}
