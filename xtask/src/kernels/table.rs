//! docs/KERNELS.md: what works on which kernel, as it was run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::checks::{Outcome, verified};
use super::guest::GuestRecord;
use super::seconds;
use crate::command::{root, target};

const HEAD: &str = "# Kernels

What works on which kernel. Every cell is what was run, in a virtual machine with two CPUs under QEMU's emulation, by `cargo xtask kernels`, which writes
this page; the daily tests run on the newest. Emulation tells whether something works, not how fast. What a scenario or a test goes without is under the table, with
the reason that netrig gave.
";

/// Writes it.
pub fn write(records: &[GuestRecord]) -> Result<()> {
    let file = root().join("docs/KERNELS.md");
    let mut page = String::from(HEAD);
    page += &table(records);
    page += &objects(records)?;
    fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("written: docs/KERNELS.md");
    Ok(())
}

fn table(records: &[GuestRecord]) -> String {
    let mut notes = Vec::<String>::new();
    let mut table = String::from("\n| check | what it shows |");
    for record in records {
        let _ = write!(table, " {} |", record.release);
    }
    table += "\n|---|---|";
    table += &"---|".repeat(records.len());
    table.push('\n');
    let checks = records.first().map_or(&[][..], |record| record.outcomes.as_slice());
    for (row, (check, _, _)) in checks.iter().enumerate() {
        let _ = write!(table, "| {} | {} |", check.name, check.about);
        for record in records {
            let cell = record.outcomes.get(row).map_or_else(String::new, |(_, outcome, _)| cell(outcome, &mut notes));
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    table += "| faults in the kernel's log | |";
    for record in records {
        let _ = write!(table, " {} |", record.faults.len());
    }
    table += "\n| time, all checks | |";
    for record in records {
        let _ = write!(table, " {} |", seconds(record.duration));
    }
    table.push('\n');
    for (number, note) in notes.iter().enumerate() {
        let _ = write!(table, "\n{}. {note}", number + 1);
    }
    if !notes.is_empty() {
        table.push('\n');
    }
    table
}

/// The cell's text; reasons become notes, each once.
fn cell(outcome: &Outcome, notes: &mut Vec<String>) -> String {
    let (text, reasons) = match outcome {
        Outcome::Passed { what, left_out } => (what.clone(), left_out.clone()),
        Outcome::Failed { what, why } => (format!("**fails**: {what}"), why.clone()),
        Outcome::Impossible { why } => ("cannot be".to_owned(), why.clone()),
        Outcome::TimedOut | Outcome::NotReached => (format!("**{outcome}**"), Vec::new()),
    };
    let mut marks = Vec::new();
    for reason in reasons {
        let at = notes.iter().position(|note| *note == reason).unwrap_or_else(|| {
            notes.push(reason);
            notes.len() - 1
        });
        marks.push(format!("({})", at + 1));
    }
    match marks.is_empty() {
        true => text,
        false => format!("{text} {}", marks.join(" ")),
    }
}

/// The verified instructions of each program on each kernel.
fn objects(records: &[GuestRecord]) -> Result<String> {
    let mut programs = BTreeMap::<String, Vec<Option<u64>>>::new();
    for (column, record) in records.iter().enumerate() {
        let log = target().join("kernels").join(&record.release).join("checks/objects.log");
        let log = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        for (name, count) in verified(&log) {
            programs.entry(name.to_owned()).or_insert_with(|| vec![None; records.len()])[column] = Some(count);
        }
    }
    let mut text = String::from(
        "\n## Verified instructions\n\nHow many the kernel's verifier walks through for each program, of at most a million (bpf(2)).\n\n| program |",
    );
    for record in records {
        let _ = write!(text, " {} |", record.release);
    }
    text += &format!("\n|---|{}\n", "---:|".repeat(records.len()));
    for (name, counts) in programs {
        let _ = write!(text, "| `{name}` |");
        for count in counts {
            let _ = write!(text, " {} |", count.map_or_else(|| "–".to_owned(), |count| count.to_string()));
        }
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_reason_is_one_note() {
        let mut notes = Vec::new();
        let outcome =
            |what: &str| Outcome::Passed { what: what.to_owned(), left_out: vec!["F: no tunnels".to_owned()] };
        assert_eq!(cell(&outcome("7 scenarios"), &mut notes), "7 scenarios (1)");
        assert_eq!(cell(&outcome("8 scenarios"), &mut notes), "8 scenarios (1)");
        assert_eq!(notes, ["F: no tunnels"]);
    }
}
