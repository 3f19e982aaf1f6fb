//! How often runs and comparisons decide rightly on this machine, held against what is aimed at.
//!
//! `cargo xtask bench deciding [PART ...] [PAIRS] [MINUTES] [FULL]`: all of it, or the parts named of `pairs`, `change`, `full` and
//! `layers`. So many pairs of equal runs of so many minutes each, in turn of the suites
//! `namespaces` and `packets` (40 and 3 unless told), runs with a veth pair more, one run of `namespaces` and of `layers` of FULL
//! minutes each (15; 0 leaves them out), and two runs of about MINUTES with costs by layer. Comparisons learn a noise floor from the runs before, as a user's do. Nothing else may run meanwhile.
#![forbid(unsafe_code)]

#[path = "support/by_layer.rs"]
mod by_layer;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;
use serde_json::Value;

const PAIRS: usize = 40;
const MINUTES: f64 = 3.0;
const FULL: f64 = 15.0;
const PARTS: [&str; 4] = ["pairs", "change", "full", "layers"];
/// What a block with costs by layer takes, seconds.
const BLOCK: f64 = 14.0;
/// A refuted claim or a figure that is worse, and an undecided one, are results like any other.
const ANSWERS: [i32; 3] = [0, 1, 5];

/// A veth pair more in the path, which costs CPU time.
const CHANGE: &str = r#"
name = "change"
title = "A veth pair more"
[defaults]
window = "2s"
warm_up = "200ms"
cool_down = "50ms"
[quick]
window = "200ms"
warm_up = "100ms"
cool_down = "30ms"
trials = 6
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500 }
[[scenario]]
id = "plain"
name = "Plain"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "tcp-rr", request = "1", response = "1" }
[[scenario]]
id = "more"
name = "A veth pair more"
testbed = "two"
path = "etun"
from = "a/one"
to = "b"
load = { kind = "tcp-rr", request = "1", response = "1" }
[[claim]]
text = "A veth pair more costs CPU time for each transaction"
holds = "more.local.transaction_demand > plain.local.transaction_demand"
"#;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<f64>().ok());
    let pairs = numbers.next().map_or(PAIRS, |pairs| pairs as usize);
    // Of cargo's own arguments and numbers none is a part.
    let is_word = |argument: &String| !argument.starts_with('-') && argument.parse::<f64>().is_err();
    let parts: Vec<String> = std::env::args().skip(1).filter(is_word).collect();
    if let Some(other) = parts.iter().find(|part| !PARTS.contains(&part.as_str())) {
        bail!("'{other}' is no part of this: choose from {}", PARTS.join(", "));
    }
    let asks = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    let pairs = if asks("pairs") { pairs } else { 0 };
    let minutes = numbers.next().unwrap_or(MINUTES);
    let full = numbers.next().unwrap_or(FULL);
    let directory = tempfile::tempdir()?;
    let bench = Bench { store: directory.path().join("runs.sqlite") };

    println!("{:<58} {:>8} {:>10}", "", "target", "measured");
    let mut verdicts = Verdicts::default();
    for pair in 0..pairs {
        let suite = if pair % 2 == 0 { "namespaces" } else { "packets" };
        let runs = [bench.run(suite, minutes)?, bench.run(suite, minutes)?];
        let [old, new] = runs.each_ref().map(|run| run["data"]["run"]["id"].as_str().unwrap_or_default().to_owned());
        let comparison = bench.netrig(["compare", &old, &new])?;
        verdicts.add(&comparison);
        eprintln!("pair {} of {pairs}, {suite}: {}", pair + 1, verdicts.words());
    }
    if pairs > 0 {
        let of = |n: usize| format!("{:.1} %", n as f64 * 100.0 / verdicts.figures.max(1) as f64);
        println!("{pairs} pairs of equal runs of {minutes} minutes, {} figures that decide", verdicts.figures);
        line("better or worse, of figures", "<= 5 %", &of(verdicts.changed));
        line("the same, of figures", ">= 80 %", &of(verdicts.same));
        line("pairs with any figure better or worse", "", &format!("{} of {pairs}", verdicts.pairs_changed));
    }

    let write = |name: &str, text: &str| -> Result<String> {
        let file = directory.path().join(name);
        std::fs::write(&file, text)?;
        Ok(file.to_str().context("the directory's name is text")?.to_owned())
    };
    if asks("change") {
        let file = write("change.toml", CHANGE)?;
        let (mut found, changes) = (0, pairs.clamp(1, 20));
        for _ in 0..changes {
            let run = bench.run(&file, (minutes / 6.0).max(0.1))?;
            found += usize::from(claims(&run).any(|claim| claim["verdict"] == "holds"));
        }
        line("a veth pair more found, of runs of a sixth of that time", ">= 90 %", &format!("{found} of {changes}"));
    }

    if asks("layers") {
        let file = write("added.toml", by_layer::SUITE)?;
        let blocks = (minutes * 60.0 / BLOCK).round().max(1.0).to_string();
        let run = || bench.netrig(["run", &file, "--layers", "--trials", &blocks, "--quiet"]);
        println!("two runs of {blocks} blocks with costs by layer");
        by_layer::tell(&[run()?, run()?], line)?;
    }

    for suite in ["namespaces", "layers"].into_iter().filter(|_| asks("full") && full > 0.0) {
        let run = bench.run(suite, full)?;
        println!("suite {suite}, {full} minutes");
        let mut widths: Vec<f64> = claims(&run)
            .filter(|claim| claim["expression"].as_str().is_some_and(|text| text.contains("_demand")))
            .filter_map(|claim| Some((claim["high"].as_f64()? / claim["low"].as_f64()?).sqrt() - 1.0))
            .collect();
        widths.sort_by(f64::total_cmp);
        let percent = |width: Option<f64>| width.map_or("none".to_owned(), |width| format!("+-{:.1} %", width * 100.0));
        let median = widths.iter().copied().collect::<Sample>().median();
        line("service demand, median interval of the claims' ratios", "<= 5 %", &percent(median));
        line("the widest of them", "<= 15 %", &percent(widths.last().copied()));
        let open: Vec<&Value> = claims(&run).filter(|claim| claim["verdict"] == "undecided").collect();
        let timed = open.iter().filter(|claim| claim["seconds_needed"].is_number()).count();
        line("claims that stay undecided", "<= 2", &format!("{} of {}", open.len(), claims(&run).count()));
        line("... of which say how long they would take", "all", &timed.to_string());
    }
    Ok(())
}

fn line(what: &str, target: &str, measured: &str) {
    println!("{what:<58} {target:>8} {measured:>10}");
}

fn claims(run: &Value) -> impl Iterator<Item = &Value> {
    run["data"]["claims"].as_array().into_iter().flatten()
}

/// What comparisons of equal runs said of the figures that decide.
#[derive(Debug, Default)]
struct Verdicts {
    figures: usize,
    same: usize,
    changed: usize,
    pairs_changed: usize,
}

impl Verdicts {
    fn add(&mut self, comparison: &Value) {
        let figures = comparison["data"]["figures"].as_array().into_iter().flatten();
        let (mut changed, before) = (0, self.figures);
        for figure in figures.filter(|figure| figure["gates"] == true) {
            self.figures += 1;
            self.same += usize::from(figure["verdict"] == "same");
            changed += usize::from(figure["verdict"] == "better" || figure["verdict"] == "worse");
        }
        self.changed += changed;
        self.pairs_changed += usize::from(changed > 0 && self.figures > before);
    }

    fn words(&self) -> String {
        format!("{} same, {} changed of {} figures so far", self.same, self.changed, self.figures)
    }
}

/// Runs of one store.
struct Bench {
    store: std::path::PathBuf,
}

impl Bench {
    fn run(&self, suite: &str, minutes: f64) -> Result<Value> {
        let budget = format!("{}s", (minutes * 60.0).round());
        self.netrig(["run", suite, "--budget", &budget, "--quiet"])
    }

    fn netrig<const N: usize>(&self, arguments: [&str; N]) -> Result<Value> {
        let store: &Path = &self.store;
        let output = Command::new(env!("CARGO_BIN_EXE_netrig"))
            .args(arguments)
            .args(["--format", "json", "--store"].map(OsStr::new))
            .arg(store)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start netrig")?;
        if !output.status.code().is_some_and(|code| ANSWERS.contains(&code)) {
            bail!("netrig {} has ended: {}", arguments.join(" "), output.status);
        }
        serde_json::from_slice(&output.stdout).context("netrig's JSON")
    }
}
