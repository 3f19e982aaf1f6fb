//! A fuzz target: compares a run that is read from arbitrary text.

use std::collections::BTreeSet;
use std::path::Path;

use rig_stats::compare::Verdict;
use rig_stats::confidence::Level;
use rig_stats::units::Percent;

use super::{Input, MINIMUM_PERCENT, Options, compare};
use crate::export::{self, RunData};

/// Reads a run from the text of a file, writes it again, and compares it with itself, as if it had been made twice. A text that is
/// refused is no failure. Returns how many figures were compared.
///
/// # Panics
/// When what was written is read as something else, or a figure is better or worse than itself.
pub fn exercise(text: &str) -> usize {
    let run = export::parse(Path::new("run.json"), text).map_err(|error| error.to_string());
    let (Ok(old), Ok(minimum)) = (run, Percent::new(MINIMUM_PERCENT)) else { return 0 };
    let written = serde_json::to_string(&old);
    let read = written.and_then(|written| serde_json::from_str::<RunData>(&written)).map_err(|error| error.to_string());
    assert_eq!(read.as_ref(), Ok(&old));
    let mut new = old.clone();
    new.run.id += " again";
    let ids: BTreeSet<&str> = new.scenarios.iter().map(|scenario| scenario.id.as_str()).collect();
    let once = ids.len() == new.scenarios.len();
    let input = |name: &str, data: &RunData| Input { name: name.to_owned(), data: data.clone() };
    let options = Options { level: Level::default(), minimum, only: Vec::new(), metrics: Vec::new() };
    let comparison =
        compare(&input("old", &old), &input("new", &new), &[], &options).map_err(|error| error.to_string());
    let Ok(comparison) = comparison else { return 0 };
    let differs = |verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
    // Of two scenarios of one name, either stands for both.
    assert!(!once || !comparison.figures.iter().any(|figure| differs(figure.verdict)), "{:#?}", comparison.figures);
    assert!(serde_json::to_string(&comparison).is_ok());
    comparison.figures.len()
}
