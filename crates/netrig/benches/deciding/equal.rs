//! What comparisons of equal runs say.

use std::time::{Duration, Instant};

use anyhow::Result;
use rig_stats::confidence::Level;
use rig_stats::share::exact_interval;
use serde_json::Value;

use crate::{Bench, line, percent, whole};

const SUITES: [&str; 2] = ["namespaces", "packets"];

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let runs = whole(numbers, 0, 7);
    let seconds = numbers.get(1).copied().unwrap_or(3.0) * 60.0;
    let until = numbers.get(2).map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
    let mut told = None;
    loop {
        // The suite that has the fewest, so that both see the same hours.
        let counts = SUITES.map(|suite| ids(bench, suite).map_or(0, |ids| ids.len()));
        let Some((suite, count)) = SUITES.iter().zip(counts).min_by_key(|(_, count)| *count) else { break };
        let next_ends = Instant::now() + Duration::from_secs_f64(seconds);
        if count >= runs || until.is_some_and(|until| next_ends > until) {
            break;
        }
        bench.run(suite, seconds)?;
        println!("{suite}: {} of {runs} runs in {}", count + 1, bench.store.display());
        told = Some(tell(bench, seconds)?);
    }
    told.map_or_else(|| tell(bench, seconds), Ok)
}

/// Verdicts on equal runs that took turns: pairs of `ab` without any difference.
pub fn in_turn(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let pairs = whole(numbers, 0, 5);
    let seconds = numbers.get(1).copied().unwrap_or(3.0) * 60.0;
    let budget = format!("{}s", (2.0 * seconds).round());
    let mut all = Verdicts::default();
    let mut of_suite = SUITES.map(|_| Verdicts::default());
    for pair in 1..=pairs {
        for (suite, own) in SUITES.iter().zip(&mut of_suite) {
            let comparison = bench.json(["ab", suite, "--budget", &budget, "--quiet"])?;
            own.add(&comparison);
            all.add(&comparison);
            println!("{suite}: pair {pair} of {pairs}, {} figures, {} the same", own.figures, own.same);
        }
    }
    println!("{} pairs of equal runs of {seconds} s that took turns, {} figures that decide", all.pairs, all.figures);
    all.print();
    Ok(())
}

/// Prints what the runs made so far say.
fn tell(bench: &Bench, seconds: f64) -> Result<()> {
    let mut verdicts = Verdicts::default();
    for suite in SUITES {
        let ids = ids(bench, suite)?;
        for (at, old) in ids.iter().enumerate() {
            for new in &ids[at + 1..] {
                verdicts.add(&bench.json(["compare", old, new])?);
            }
        }
    }
    println!("{} pairs of equal runs of {seconds} s, {} figures that decide", verdicts.pairs, verdicts.figures);
    verdicts.print();
    println!(
        "(in brackets exact intervals of 95 % as of independent cases; pairs share runs, so that they are rather wider)"
    );
    Ok(())
}

/// The store's complete runs of a suite by one build, that of the latest, the oldest first.
fn ids(bench: &Bench, suite: &str) -> Result<Vec<String>> {
    if !bench.store.exists() {
        return Ok(Vec::new());
    }
    let history = bench.text(["history"])?;
    let numbers = history.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let mut runs = Vec::new();
    for number in numbers {
        let report = bench.json(["report", &number.to_string()])?;
        let run = &report["data"]["run"];
        if run["suite"] == suite && run["status"]["state"] == "complete" {
            runs.push((number.to_string(), report["data"]["environment"]["netrig_build"].clone()));
        }
    }
    let latest = runs.last().map(|(_, build)| build.clone());
    Ok(runs.into_iter().filter(|(_, build)| Some(build) == latest.as_ref()).map(|(id, _)| id).collect())
}

/// What comparisons of equal runs said of the figures that decide.
#[derive(Debug, Default)]
struct Verdicts {
    pairs: usize,
    pairs_changed: usize,
    figures: usize,
    same: usize,
    changed: usize,
}

impl Verdicts {
    fn add(&mut self, comparison: &Value) {
        let figures = comparison["data"]["figures"].as_array().into_iter().flatten();
        let before = self.changed;
        for figure in figures.filter(|figure| figure["gates"] == true) {
            self.figures += 1;
            self.same += usize::from(figure["verdict"] == "same");
            self.changed += usize::from(figure["verdict"] == "better" || figure["verdict"] == "worse");
        }
        self.pairs += 1;
        self.pairs_changed += usize::from(self.changed > before);
    }

    fn print(&self) {
        let of = |n: usize, all: usize| {
            let exact = exact_interval(n as u64, all as u64, Level::default());
            let share = n as f64 / all.max(1) as f64;
            format!("{} ({} to {})", percent(share), percent(exact.low), percent(exact.high))
        };
        line("better or worse, of figures", "<= 5 %", &of(self.changed, self.figures));
        line("the same, of figures", ">= 80 %", &of(self.same, self.figures));
        line("pairs with any figure better or worse", "<= 5 %", &of(self.pairs_changed, self.pairs));
    }
}
