//! docs/KERNELS.md: what works on which kernel, as it was run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::checks::{Outcome, verified};
use super::guest::GuestRecord;
use super::{image, seconds};
use crate::command::{root, target};

const HEAD: &str = "# Kernels

What works on which kernel. Every cell is what was run, in virtual machines under QEMU's emulation, by `cargo xtask kernels`, which writes this page when each kernel has had
all checks; the daily tests run on the newest. Emulation tells whether something works, not how fast. What a scenario or a test goes without is under the table, with the reason
that netrig gave.
";

/// Where the columns of kernels are that have had all checks.
fn columns() -> PathBuf {
    target().join("kernels/columns")
}

/// Keeps what a kernel's checks found, for the page.
pub fn keep(record: &GuestRecord) -> Result<()> {
    let log = target().join("kernels").join(&record.release).join("checks/objects.log");
    let log = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let programs: BTreeMap<&str, u64> = verified(&log).into_iter().collect();
    let rows: Vec<Value> = record
        .outcomes
        .iter()
        .map(|(check, outcome, _)| {
            let (text, reasons) = cell(outcome);
            json!({"check": check.name, "about": check.about, "text": text, "reasons": reasons})
        })
        .collect();
    let column = json!({
        "release": record.release, "commit": commit(), "time": seconds(record.duration), "faults": record.faults.len(),
        "rows": rows, "programs": programs,
    });
    let file = columns().join(format!("{}.json", record.release));
    fs::create_dir_all(columns()).with_context(|| format!("cannot make {}", columns().display()))?;
    fs::write(&file, column.to_string()).with_context(|| format!("cannot write {}", file.display()))
}

/// netrig's, of the working tree; `+` behind it where files differ from it.
fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty=+"]).current_dir(root()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Writes the page, where all of Debian's kernels have had all checks.
pub fn write() -> Result<()> {
    let mut kept = Vec::new();
    for file in fs::read_dir(columns()).with_context(|| format!("cannot list {}", columns().display()))? {
        let text = fs::read_to_string(file?.path())?;
        kept.push(serde_json::from_str::<Value>(&text).context("a column of docs/KERNELS.md is no JSON")?);
    }
    let is_of = |column: &&Value, version: &str| {
        column["release"]
            .as_str()
            .and_then(|release| release.strip_prefix(version))
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let mut chosen = Vec::new();
    for debian in &image::DEBIAN {
        match kept.iter().filter(|column| is_of(column, debian.version)).max_by_key(|column| column["release"].as_str())
        {
            Some(column) => chosen.push(column),
            None => {
                eprintln!("docs/KERNELS.md is not written: Linux {} has not had all checks yet", debian.version);
                return Ok(());
            }
        }
    }
    let file = root().join("docs/KERNELS.md");
    fs::write(&file, page(&chosen)).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("written: docs/KERNELS.md");
    Ok(())
}

fn page(columns: &[&Value]) -> String {
    format!("{HEAD}{}{}", table(columns), objects(columns))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn table(columns: &[&Value]) -> String {
    let mut notes = Vec::<String>::new();
    let mut table = String::from("\n| check | what it shows |");
    for column in columns {
        let _ = write!(table, " {} |", text(&column["release"]));
    }
    table += "\n|---|---|";
    table += &"---|".repeat(columns.len());
    table.push('\n');
    let rows = |column: &Value| column["rows"].as_array().cloned().unwrap_or_default();
    for row in columns.last().map(|column| rows(column)).unwrap_or_default() {
        let _ = write!(table, "| {} | {} |", text(&row["check"]), text(&row["about"]));
        for column in columns {
            let own = rows(column).into_iter().find(|own| own["check"] == row["check"]).unwrap_or_default();
            let _ = write!(table, " {} |", noted(&own, &mut notes));
        }
        table.push('\n');
    }
    for (name, key) in
        [("faults in the kernel's log", "faults"), ("time, all checks", "time"), ("netrig at commit", "commit")]
    {
        let _ = write!(table, "| {name} | |");
        for column in columns {
            let value = &column[key];
            let _ = write!(table, " {} |", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        table.push('\n');
    }
    for (number, note) in notes.iter().enumerate() {
        let _ = write!(table, "\n{}. {note}", number + 1);
    }
    if !notes.is_empty() {
        table.push('\n');
    }
    table
}

/// A cell's text and the reasons that belong to it.
fn cell(outcome: &Outcome) -> (String, Vec<String>) {
    match outcome {
        Outcome::Passed { what, left_out } => (what.clone(), left_out.clone()),
        Outcome::Failed { what, why } => (format!("**fails**: {what}"), why.clone()),
        Outcome::Impossible { why } => ("cannot be".to_owned(), why.clone()),
        Outcome::TimedOut | Outcome::NotReached => (format!("**{outcome}**"), Vec::new()),
    }
}

/// A cell with the numbers of its notes; each reason is a note once.
fn noted(row: &Value, notes: &mut Vec<String>) -> String {
    let mut cell = text(&row["text"]).to_owned();
    for reason in row["reasons"].as_array().into_iter().flatten() {
        let reason = text(reason);
        let at = notes.iter().position(|note| *note == reason).unwrap_or_else(|| {
            notes.push(reason.to_owned());
            notes.len() - 1
        });
        let _ = write!(cell, " ({})", at + 1);
    }
    cell
}

/// The verified instructions of each program on each kernel.
fn objects(columns: &[&Value]) -> String {
    let mut programs = BTreeMap::<&str, Vec<Option<u64>>>::new();
    for (number, column) in columns.iter().enumerate() {
        for (name, count) in column["programs"].as_object().into_iter().flatten() {
            programs.entry(name).or_insert_with(|| vec![None; columns.len()])[number] = count.as_u64();
        }
    }
    let mut page = String::from(
        "\n## Verified instructions\n\nHow many the kernel's verifier walks through for each program, of at most a million (bpf(2)).\n\n| program |",
    );
    for column in columns {
        let _ = write!(page, " {} |", text(&column["release"]));
    }
    page += &format!("\n|---|{}\n", "---:|".repeat(columns.len()));
    for (name, counts) in programs {
        let _ = write!(page, "| `{name}` |");
        for count in counts {
            // Before Linux 5.16 the kernel does not tell.
            let told = count.map(|count| if count == 0 { "loads".to_owned() } else { count.to_string() });
            let _ = write!(page, " {} |", told.unwrap_or_else(|| "–".to_owned()));
        }
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_column_for_each_kernel_and_each_reason_once() {
        let column = |release: &str, text: &str, count: u64| {
            json!({"release": release, "commit": "abc", "time": "60 s", "faults": 0, "programs": {"spin/spin": count},
                "rows": [{"check": "suite layers", "about": "trials", "text": text, "reasons": ["F: no tunnels"]}]})
        };
        let (old, new) = (column("5.10.1", "7 scenarios", 0), column("6.1.2", "8 scenarios", 72));
        let page = page(&[&old, &new]);
        for line in [
            "| check | what it shows | 5.10.1 | 6.1.2 |",
            "| suite layers | trials | 7 scenarios (1) | 8 scenarios (1) |",
            "| faults in the kernel's log | | 0 | 0 |",
            "| netrig at commit | | abc | abc |",
            "1. F: no tunnels",
            "| `spin/spin` | loads | 72 |",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}: {page}");
        }
    }
}
