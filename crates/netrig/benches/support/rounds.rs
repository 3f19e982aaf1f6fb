//! Interleaved rounds of trials, of which some may fail: a peer that fails once costs its trial, not the table.

use std::fmt::Display;

use anyhow::{Error, Result};

/// Trials that gave no figure.
#[derive(Debug, Default)]
pub struct Failures(Vec<String>);

impl Failures {
    /// What the trial gave; `None` when it failed, which is told at once and once more under the table.
    pub fn heed<T>(&mut self, round: usize, name: impl Display, result: Result<T>) -> Option<T> {
        let report = |error: Error| {
            let failure = format!("round {round}, {name}: {error:#}");
            eprintln!("\nfailed: {failure}");
            self.0.push(failure);
        };
        result.map_err(report).ok()
    }

    /// For under the table; nothing when every trial gave its figure.
    pub fn report(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let list: String = self.0.iter().map(|failure| format!("\n  {failure}")).collect();
        format!("\nThese trials failed; the medians are without them:{list}")
    }
}
