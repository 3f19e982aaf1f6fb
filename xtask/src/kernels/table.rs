//! docs/KERNELS.md: what works on which kernel, as it was run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::checks::{Check, OBJECTS_LOG, Outcome, Setup, verified};
use super::guest::GuestRecord;
use super::seconds;
use crate::command::{root, target};

const HEAD: &str = "# Kernels

What works on which kernel. Every cell is what was run, in virtual machines under QEMU's emulation, by `cargo xtask kernels`, which keeps what it
found in docs/kernels and writes this page: each cell is of the last time that its check was run. The daily tests run on the newest. Emulation tells whether something works, not how fast. What a scenario or a test goes without is under the table, with the reason
that netrig gave.
";

/// Where the columns of kernels are: cells of a day's checks stay beside those of another day's, on other machines, too.
fn columns() -> PathBuf {
    root().join("docs/kernels")
}

/// Keeps what a kernel's checks found, for the page: beside what other checks found before. `ended`: the guest has, and its log was read for faults.
pub fn keep(record: &GuestRecord, ended: bool) -> Result<()> {
    let file = columns().join(format!("{}.json", record.release));
    let before = match fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let log = target().join("kernels").join(&record.release).join("checks").join(OBJECTS_LOG);
    let log = fs::read_to_string(&log).unwrap_or_default();
    let column = column(record, &verified(&log), commit(), before, ended);
    fs::create_dir_all(columns()).with_context(|| format!("cannot make {}", columns().display()))?;
    fs::write(&file, format!("{column:#}\n")).with_context(|| format!("cannot write {}", file.display()))
}

/// With the rows of `before` that `record` has not.
fn column(record: &GuestRecord, verified: &[(&str, u64)], commit: &str, before: Value, ended: bool) -> Value {
    let mut column = if before["rows"].is_object() { before } else { json!({"rows": {}, "programs": {}}) };
    column["release"] = json!(record.release);
    for (check, outcome, duration) in &record.outcomes {
        // It was not run: what it found before still holds.
        if *outcome == Outcome::NotReached {
            continue;
        }
        let (text, reasons) = cell(outcome);
        let faults = if ended { json!(record.faults.len()) } else { column["rows"][&check.name]["faults"].take() };
        column["rows"][&check.name] = json!({
            "text": text, "reasons": reasons, "seconds": duration.as_secs_f64(), "commit": commit,
            "faults": faults,
        });
        if check.name == "objects" {
            column["programs"] = json!(verified.iter().copied().collect::<BTreeMap<&str, u64>>());
        }
    }
    column
}

/// netrig's when this was first asked, which is when it was built; `+` behind it where files differ from it, but documents: these pages are among them.
pub fn commit() -> &'static str {
    static COMMIT: OnceLock<String> = OnceLock::new();
    COMMIT.get_or_init(checked_out)
}

fn checked_out() -> String {
    let git = |arguments: &[&str]| Command::new("git").args(arguments).current_dir(root()).output().ok();
    let commit = git(&["rev-parse", "--short=8", "HEAD"]);
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let is_clean =
        git(&["diff", "--quiet", "HEAD", "--", ".", ":(exclude)docs"]).is_some_and(|git| git.status.success());
    format!("{commit}{}", if is_clean { "" } else { "+" })
}

/// Writes the page, of the newest release of each version that there are cells of.
pub fn write(checks: &[Check]) -> Result<()> {
    let mut newest = BTreeMap::<Vec<u32>, (Vec<u32>, Value)>::new();
    for file in fs::read_dir(columns()).with_context(|| format!("cannot list {}", columns().display()))? {
        let path = file?.path();
        let column = fs::read_to_string(&path)?;
        let column: Value = serde_json::from_str(&column).with_context(|| format!("{} is no JSON", path.display()))?;
        let release = numbers(text(&column["release"]));
        let version = release.iter().take(2).copied().collect();
        match newest.get(&version) {
            Some((known, _)) if *known >= release => {}
            _ => drop(newest.insert(version, (release, column))),
        }
    }
    let columns: Vec<&Value> = newest.values().map(|(_, column)| column).collect();
    let file = root().join("docs/KERNELS.md");
    fs::write(&file, page(checks, &columns)).with_context(|| format!("cannot write {}", file.display()))?;
    for column in columns {
        let lacking: Vec<&str> =
            checks.iter().map(|check| check.name.as_str()).filter(|name| column["rows"].get(name).is_none()).collect();
        if !lacking.is_empty() {
            eprintln!("Linux {} has not had: {}", text(&column["release"]), lacking.join(", "));
        }
    }
    eprintln!("written: docs/KERNELS.md");
    Ok(())
}

/// Those of a release, for the order: 6.12.117 of `6.12.117+deb13-amd64`, and 13.
fn numbers(release: &str) -> Vec<u32> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn page(checks: &[Check], columns: &[&Value]) -> String {
    format!("{HEAD}{}{}", table(checks, columns), objects(columns))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn table(checks: &[Check], columns: &[&Value]) -> String {
    let mut notes = Vec::<String>::new();
    let mut table = String::from("\n| check | what it shows |");
    for column in columns {
        let _ = write!(table, " {} |", text(&column["release"]));
    }
    table += "\n|---|---|";
    table += &"---|".repeat(columns.len());
    table.push('\n');
    for check in checks {
        let _ = write!(table, "| {} | {} |", check.name, check.about);
        for column in columns {
            let _ = write!(table, " {} |", noted(&column["rows"][&check.name], &mut notes));
        }
        table.push('\n');
    }
    let rows = |column: &Value| column["rows"].as_object().cloned().unwrap_or_default();
    let time = |column: &Value, of: &[Setup]| {
        let checks = checks.iter().filter(|check| of.contains(&check.setup));
        let all = checks.filter_map(|check| column["rows"][&check.name]["seconds"].as_f64()).sum();
        seconds(Duration::from_secs_f64(all))
    };
    // Those of the guest that had most: a row has those of the guest that its check was run in.
    let faults = |column: &Value| {
        let most = rows(column).values().filter_map(|row| row["faults"].as_u64()).max();
        most.unwrap_or_default().to_string()
    };
    let commits = |column: &Value| {
        let all: BTreeSet<String> = rows(column).values().map(|row| text(&row["commit"]).to_owned()).collect();
        all.into_iter().collect::<Vec<_>>().join(", ")
    };
    let mut line = |name: &str, value: &dyn Fn(&Value) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| value(column)).collect();
        let _ = writeln!(table, "| {name} | | {} |", cells.join(" | "));
    };
    line("faults in the kernel's log", &faults);
    for (name, setup) in [
        ("time, checks in one guest", &[Setup::Guest][..]),
        ("time, checks with a card", &[Setup::Card]),
        ("time, checks between guests", &[Setup::Pair, Setup::Three]),
        ("time, all checks", &[Setup::Guest, Setup::Card, Setup::Pair, Setup::Three]),
    ] {
        line(name, &|column| time(column, setup));
    }
    line("netrig at commit", &commits);
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
    let mut cell = row["text"].as_str().unwrap_or("not run").to_owned();
    for reason in row["reasons"].as_array().into_iter().flatten() {
        let reason = text(reason);
        let at = notes.iter().position(|note| *note == reason).unwrap_or_else(|| {
            notes.push(reason.to_owned());
            notes.len() - 1
        });
        let note = format!(" ({})", at + 1);
        if !cell.contains(&note) {
            cell += &note;
        }
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

    fn check(name: &str) -> Check {
        Check::of_tests(name, "trials", Setup::Guest)
    }

    fn record(release: &str, outcomes: Vec<(&str, Outcome)>) -> GuestRecord {
        GuestRecord {
            release: release.to_owned(),
            duration: Duration::ZERO,
            outcomes: outcomes
                .into_iter()
                .map(|(name, outcome)| (check(name), outcome, Duration::from_secs(30)))
                .collect(),
            cut_short: None,
            faults: Vec::new(),
        }
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(numbers("6.12.117+deb13-amd64") > numbers("6.12.99+deb13-amd64"));
        assert!(numbers("6.1.0-50-amd64") < numbers("6.12.1"));
    }

    #[test]
    fn a_page_has_a_column_for_each_kernel_and_each_reason_once() {
        let checks = ["objects", "suite layers", "cpu time"].map(check);
        let passed = |what: &str, left_out: &[&str]| Outcome::Passed {
            what: what.to_owned(),
            left_out: left_out.iter().map(|&reason| reason.to_owned()).collect(),
        };
        let of = |release, what, count| {
            let rows = vec![("objects", passed("1 program", &[])), ("suite layers", passed(what, &["F: no tunnels"]))];
            column(&record(release, rows), &[("spin/spin", count)], "abc", Value::Null, true)
        };
        let (old, new) = (of("5.10.1", "7 scenarios", 0), of("6.1.2", "nothing", 72));
        // What is run again takes its own place alone, and hides no fault that was found beside another; what was not reached takes none.
        let layers = ("suite layers", passed("8 scenarios", &["F: no tunnels"]));
        let again = record("6.1.2", vec![layers, ("objects", Outcome::NotReached)]);
        let new = column(&again, &[], "def", new, false);
        let page = page(&checks, &[&old, &new]);
        for line in [
            "| check | what it shows | 5.10.1 | 6.1.2 |",
            "| objects | trials | 1 program | 1 program |",
            "| suite layers | trials | 7 scenarios (1) | 8 scenarios (1) |",
            "| cpu time | trials | not run | not run |",
            "| faults in the kernel's log | | 0 | 0 |",
            "| time, checks in one guest | | 60 s | 60 s |",
            "| time, checks with a card | | 0 s | 0 s |",
            "| time, all checks | | 60 s | 60 s |",
            "| netrig at commit | | abc | abc, def |",
            "1. F: no tunnels",
            "| `spin/spin` | loads | 72 |",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}: {page}");
        }
    }
}
