//! How narrow intervals are after a full run, and what stays undecided.

use anyhow::Result;
use rig_stats::sample::Sample;
use serde_json::Value;

use crate::{Bench, claims, line, percent, width};

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let minutes = numbers.first().copied().unwrap_or(15.0);
    for suite in ["namespaces", "layers"] {
        let run = bench.run(suite, minutes * 60.0)?;
        println!("suite {suite}, {minutes} minutes");
        let demand = |claim: &&Value| claim["expression"].as_str().is_some_and(|text| text.contains("_demand"));
        let widths: Sample = claims(&run).filter(demand).filter_map(width).collect();
        let told = |width: Option<f64>| width.map_or("none".to_owned(), |width| format!("+-{}", percent(width)));
        line("service demand, median interval of the claims' ratios", "<= 5 %", &told(widths.median()));
        line("the widest of them", "<= 15 %", &told(widths.max()));
        let open: Vec<&Value> = claims(&run).filter(|claim| claim["verdict"] == "undecided").collect();
        let timed = open.iter().filter(|claim| claim["seconds_needed"].is_number()).count();
        line("claims that stay undecided", "<= 2", &format!("{} of {}", open.len(), claims(&run).count()));
        line("... of which say how long they would take", "all", &timed.to_string());
    }
    Ok(())
}
