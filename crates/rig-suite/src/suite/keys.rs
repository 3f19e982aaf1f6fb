//! Where a suite file says something.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// The place of a key, by the names of the tables that it is in, from the outermost on.
pub(super) fn of(file: &DeTable<'_>, path: &[&str]) -> Option<Range<usize>> {
    let (last, tables) = path.split_last()?;
    let mut table = file;
    for name in tables {
        let (_, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
        let DeValue::Table(inner) = value.get_ref() else { return None };
        table = inner;
    }
    table.iter().find(|(key, _)| key.get_ref() == last).map(|(key, _)| key.span())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_their_tables_are_written() {
        let text = "a = 1\n[b]\nc = { d = 2 }\n[b.e]\nd = 3\n[[f]]\nd = 4\n";
        let file = DeTable::parse(text).unwrap();
        let at = |path: &[&str]| of(file.get_ref(), path).map(|span| text[..span.start].matches('\n').count() + 1);
        assert_eq!(at(&["a"]), Some(1));
        assert_eq!(at(&["b", "c", "d"]), Some(3));
        assert_eq!(at(&["b", "e", "d"]), Some(5));
        for absent in [&["d"][..], &["b", "x"], &["a", "b"], &["f", "d"], &[]] {
            assert_eq!(at(absent), None, "{absent:?}");
        }
    }
}
