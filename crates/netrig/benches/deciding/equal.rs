//! What comparisons of equal runs say.

use anyhow::Result;
use serde_json::Value;

use crate::{Bench, line, percent, whole};

const SUITES: [&str; 2] = ["namespaces", "packets"];

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let runs = whole(numbers, 0, 7);
    let seconds = numbers.get(1).copied().unwrap_or(3.0) * 60.0;
    loop {
        // The suite that has the fewest, so that both see the same hours.
        let counts = SUITES.map(|suite| ids(bench, suite).map_or(0, |ids| ids.len()));
        let Some((suite, count)) = SUITES.iter().zip(counts).min_by_key(|(_, count)| *count) else { break };
        if count >= runs {
            break;
        }
        bench.run(suite, seconds)?;
        eprintln!("{suite}: {} of {runs} runs", count + 1);
    }
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
    let of = |n: usize, all: usize| percent(n as f64 / all.max(1) as f64);
    line("better or worse, of figures", "<= 5 %", &of(verdicts.changed, verdicts.figures));
    line("the same, of figures", ">= 80 %", &of(verdicts.same, verdicts.figures));
    line("pairs with any figure better or worse", "<= 5 %", &of(verdicts.pairs_changed, verdicts.pairs));
    Ok(())
}

/// The store's complete runs of a suite, the oldest first.
fn ids(bench: &Bench, suite: &str) -> Result<Vec<String>> {
    if !bench.store.exists() {
        return Ok(Vec::new());
    }
    let history = bench.text(["history"])?;
    let numbers = history.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let mut ids = Vec::new();
    for number in numbers {
        let run = bench.json(["report", &number.to_string()])?;
        let run = &run["data"]["run"];
        if run["suite"] == suite && run["status"]["state"] == "complete" {
            ids.push(number.to_string());
        }
    }
    Ok(ids)
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
}
