//! How often runs and comparisons decide rightly on this machine, held against what is aimed at.
//!
//! `cargo xtask bench deciding PART [NUMBERS] [STORE]`; nothing else may run meanwhile:
//!
//! - `equal [RUNS] [MINUTES] [PORTION]`: so many equal runs (7) of so many minutes (3) of each of the suites `namespaces` and `packets`,
//!   in turn. Every two of a suite are compared: 42 pairs. Comparisons learn a noise floor from the runs of the store, as a user's do.
//!   Runs that STORE (target/tmp/deciding-equal.sqlite) holds of the same build count, so that it can be measured piece by piece: with
//!   PORTION this call makes no run that would end after so many minutes, and the next one goes on. After each run it says what all so
//!   far show.
//! - `turns [PAIRS] [MINUTES]`: so many pairs (5) of equal runs of so many minutes (3) of each of these suites, whose trials were made in
//!   turn (`netrig ab`).
//! - `change [TIMES] [SECONDS]`: a known change, looked for by so many runs (10) of so many seconds (60): a veth pair more, and 5 % more
//!   CPU time by a program that spends it on each packet.
//! - `full [MINUTES]`: a run of `namespaces` and one of `layers` of so many minutes (15).
//! - `layers [MINUTES]`: two runs of so many minutes (3) with costs by layer: whether these add up, come out the same twice, and tell what
//!   one thing more in the path adds.
//! - `peers [PERCENT]`: how long netrig, netperf and perf take until what a veth pair adds to the CPU time of a transaction is known to
//!   +- so many percent (5).
#![forbid(unsafe_code)]

#[path = "deciding/by_layer.rs"]
mod by_layer;
#[path = "deciding/change.rs"]
mod change;
#[path = "deciding/equal.rs"]
mod equal;
#[path = "deciding/full.rs"]
mod full;
#[path = "deciding/peers.rs"]
mod peers;
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A refuted claim or a figure that is worse, and an undecided one, are results like any other.
const ANSWERS: [i32; 3] = [0, 1, 5];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let numbers: Vec<f64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let mut words = arguments.iter().filter(|argument| argument.parse::<f64>().is_err());
    let part = words.next().map_or("all", String::as_str);
    let kept = words.next();
    let directory = tempfile::tempdir()?;
    let usual = match part {
        "equal" => Path::new(env!("CARGO_TARGET_TMPDIR")).join("deciding-equal.sqlite"),
        _ => directory.path().join("runs.sqlite"),
    };
    let store = kept.map_or(usual, PathBuf::from);
    let bench = Bench { store, directory: directory.path().to_owned() };

    println!("{:<66} {:>8} {:>10}", "", "target", "measured");
    match part {
        "equal" => equal::measure(&bench, &numbers),
        "turns" => equal::in_turn(&bench, &numbers),
        "change" => change::measure(&bench, &numbers),
        "full" => full::measure(&bench, &numbers),
        "layers" => by_layer::measure(&bench, &numbers),
        "peers" => peers::measure(&bench, &numbers),
        "all" => {
            equal::measure(&bench, &[])?;
            equal::in_turn(&bench, &[])?;
            change::measure(&bench, &[])?;
            full::measure(&bench, &[])?;
            by_layer::measure(&bench, &[])?;
            peers::measure(&bench, &[])
        }
        other => bail!("no part `{other}`: there are equal, turns, change, full, layers and peers"),
    }
}

fn line(what: &str, target: &str, measured: &str) {
    println!("{what:<66} {target:>8} {measured:>10}");
}

/// A whole number of `numbers`, or what is usual.
fn whole(numbers: &[f64], place: usize, usual: usize) -> usize {
    numbers.get(place).map_or(usual, |number| *number as usize)
}

fn claims(run: &Value) -> impl Iterator<Item = &Value> {
    run["data"]["claims"].as_array().into_iter().flatten()
}

/// Half the width of a claim's interval, relative to the estimate.
fn width(claim: &Value) -> Option<f64> {
    Some((claim["high"].as_f64()? / claim["low"].as_f64()?).sqrt() - 1.0)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Runs of one store.
struct Bench {
    store: PathBuf,
    /// For files that are needed.
    directory: PathBuf,
}

impl Bench {
    fn run(&self, suite: &str, seconds: f64) -> Result<Value> {
        let budget = format!("{}s", seconds.round());
        self.json(["run", suite, "--budget", &budget, "--quiet"])
    }

    /// A run of a suite of ours.
    fn run_text(&self, suite: &str, seconds: f64) -> Result<Value> {
        self.run(&self.write(suite)?, seconds)
    }

    /// The path of a file of ours with a suite in it.
    fn write(&self, suite: &str) -> Result<String> {
        let file = self.directory.join("suite.toml");
        std::fs::write(&file, suite)?;
        Ok(file.to_str().context("the directory's name is text")?.to_owned())
    }

    fn json<const N: usize>(&self, arguments: [&str; N]) -> Result<Value> {
        let json = self.output(arguments.iter().copied().chain(["--format", "json"]))?;
        serde_json::from_slice(&json).context("netrig's JSON")
    }

    fn text<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        Ok(String::from_utf8(self.output(arguments)?)?)
    }

    fn output<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Vec<u8>> {
        let mut netrig = Command::new(env!("CARGO_BIN_EXE_netrig"));
        netrig.args(arguments).arg("--store").arg(&self.store);
        let output = netrig.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start netrig")?;
        if !output.status.code().is_some_and(|code| ANSWERS.contains(&code)) {
            bail!("{netrig:?} has ended: {}", output.status);
        }
        Ok(output.stdout)
    }
}
