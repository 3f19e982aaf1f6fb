//! Every clang that is here, from 14 on, and the eBPF programs that it makes of the same sources.
//!
//! Each compiles all objects without warnings, the kernel loads them, and the table has what its verifier walks through.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

use crate::command::{LACKING, cargo, is_root, target, works};
use crate::kernels::verified;
use crate::packages;

/// The oldest that is promised: Debian 12's.
const OLDEST: u32 = 14;
const TEST: &str = "verified::the_verifier_has_no_more_to_do_than_it_had";

/// What one of them has made: verified instructions by program, or why there are none.
type ClangOutcome = Result<BTreeMap<String, u64>, String>;

pub fn clangs() -> Result<ExitCode> {
    if !packages::ensure(packages::BUILD)? {
        return Ok(ExitCode::from(LACKING));
    }
    if !is_root() {
        eprintln!("eBPF programs are loaded by root");
        return Ok(ExitCode::from(LACKING));
    }
    let here = versions_here();
    if here.is_empty() {
        eprintln!("no clang-N is on PATH, N from {OLDEST} on");
        return Ok(ExitCode::from(LACKING));
    }
    let others: Vec<String> = versions_of_apt().difference(&here).map(|version| format!("clang-{version}")).collect();
    if !others.is_empty() {
        eprintln!("left out, as not here: apt-get install -y --no-install-recommends {}", others.join(" "));
    }
    // A folder of its own, so that what is built elsewhere stays as it is.
    let folder = target().join("clangs");
    let mut outcomes = Vec::new();
    for version in here {
        eprintln!("clang-{version}");
        let outcome = try_out(version, &folder)?;
        if let Err(why) = &outcome {
            eprintln!("clang-{version}: {why}");
        }
        outcomes.push((version, outcome));
    }
    fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    println!("{}", table(&outcomes));
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Of programs on PATH that are named `clang-N`.
fn versions_here() -> BTreeSet<u32> {
    let path = env::var_os("PATH").unwrap_or_default();
    let entries = env::split_paths(&path).filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let versions = entries.filter_map(|entry| version(&entry.file_name().to_string_lossy()));
    versions.filter(|version| works(Command::new(format!("clang-{version}")).arg("--version"))).collect()
}

/// Those that the distribution has.
fn versions_of_apt() -> BTreeSet<u32> {
    let output = Command::new("apt-cache").args(["search", "--names-only", "^clang-[0-9]+$"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(|line| version(line.split(' ').next()?)).collect()
}

/// `clang-16`, where it is one that is promised.
fn version(name: &str) -> Option<u32> {
    name.strip_prefix("clang-")?.parse().ok().filter(|version| *version >= OLDEST)
}

/// Compiles all objects with warnings as errors, as the build does, and loads them.
fn try_out(version: u32, folder: &std::path::Path) -> Result<ClangOutcome> {
    let mut test = cargo(["test", "--package", "rig-datapath", "--lib", "--", "--exact", TEST, "--nocapture"]);
    test.env("CLANG", format!("clang-{version}")).env("CARGO_TARGET_DIR", folder);
    let output = test.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let why = text.lines().find(|line| line.contains("panicked") || line.contains("error"));
        return Ok(Err(why.unwrap_or("its objects do not compile").to_owned()));
    }
    let programs: BTreeMap<String, u64> =
        verified(&text).into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    Ok(if programs.is_empty() { Err("no program was loaded".to_owned()) } else { Ok(programs) })
}

/// A row for each program, a column for each compiler; the last row has the sums.
fn table(outcomes: &[(u32, ClangOutcome)]) -> String {
    let programs: BTreeSet<&String> =
        outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()).flat_map(BTreeMap::keys).collect();
    let width = programs.iter().map(|name| name.len()).max().unwrap_or_default().max("verified instructions".len());
    let row = |name: &str, cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>9}")).collect();
        format!("{name:width$} {}\n", cells.join(" "))
    };
    let of = |outcome: &ClangOutcome, name: &str| {
        let count = outcome.as_ref().ok().and_then(|programs| programs.get(name));
        count.map_or_else(|| "-".to_owned(), u64::to_string)
    };
    let mut text =
        row("verified instructions", outcomes.iter().map(|(version, _)| format!("clang-{version}")).collect());
    for name in programs {
        text += &row(name, outcomes.iter().map(|(_, outcome)| of(outcome, name)).collect());
    }
    let sum = |outcome: &ClangOutcome| match outcome {
        Ok(programs) => programs.values().sum::<u64>().to_string(),
        Err(_) => "FAILED".to_owned(),
    };
    text + &row("all", outcomes.iter().map(|(_, outcome)| sum(outcome)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_known_by_their_names() {
        assert_eq!(
            ["clang-14", "clang-22", "clang-13", "clang", "clang-cpp-14"].map(version),
            [Some(14), Some(22), None, None, None]
        );
    }

    #[test]
    fn the_table_has_a_column_for_each_compiler() {
        let programs = |count| Ok(BTreeMap::from([("balance/balance".to_owned(), count)]));
        let text = table(&[(14, programs(97_319)), (16, Err("why".to_owned())), (22, programs(90_000))]);
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["verified", "instructions", "clang-14", "clang-16", "clang-22"]);
        assert_eq!(words[1], ["balance/balance", "97319", "-", "90000"]);
        assert_eq!(words[2], ["all", "97319", "FAILED", "90000"]);
    }
}
