//! Numbers that the datapath knows things by: small, and theirs as long as they are there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Of one node. Who compiles keeps it from one time to the next, and over a restart, so that what is unrelated to a change
/// keeps its numbers, and flows with them. Those of a configuration that the datapath did not take are to be forgotten: it
/// still has the ones before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// By names of networks.
    pub vrfs: NameNumbers,
    /// By names of interfaces.
    pub interfaces: NameNumbers,
    /// By what they are made of.
    pub lists: NameNumbers,
    /// By names of analysers.
    #[serde(default)]
    pub analysers: NameNumbers,
}

/// Numbers from 1, each given to one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NameNumbers(BTreeMap<String, u32>);

impl NameNumbers {
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// Gives each of `names` a number and forgets all others.
    ///
    /// A number that becomes free rests until the next time: what the datapath still knows by it must not become another's.
    pub(super) fn allot<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let used: BTreeSet<u32> = self.0.values().copied().collect();
        let mut free = (1..).filter(|number| !used.contains(number));
        self.0.retain(|name, _| names.contains(name.as_str()));
        for name in names {
            if !self.0.contains_key(name) {
                self.0.extend(free.next().map(|number| (name.to_owned(), number)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_and_rests_once_before_it_is_anothers() {
        let mut allotted = NameNumbers::default();
        let mut allot = |names: &[&str]| {
            allotted.allot(names.iter().copied());
            names.iter().map(|name| allotted.get(name)).collect::<Vec<_>>()
        };
        assert_eq!(allot(&["b", "c"]), [Some(1), Some(2)]);
        assert_eq!(allot(&["a", "b", "c"]), [Some(3), Some(1), Some(2)]);
        assert_eq!(allot(&["a", "c", "d"]), [Some(3), Some(2), Some(4)]);
        assert_eq!(allot(&["a", "c", "e"]), [Some(3), Some(2), Some(1)]);
        assert_eq!(allotted.get("b"), None);
        assert_eq!(allotted.iter().collect::<Vec<_>>(), [("a", 3), ("c", 2), ("e", 1)]);
    }
}
