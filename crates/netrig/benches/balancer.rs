//! What netrig's balancer carries end to end beside nothing, nftables and HAProxy: medians of three interleaved trials of
//! the suite `balancer`, and the ratios that are aimed at.
//!
//! `cargo xtask bench balancer` runs it after the benchmarks of the program alone.
#![forbid(unsafe_code)]

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;
use serde_json::Value;

/// What is compared, by the names of scenarios, all with one worker.
const SYSTEMS: [(&str, &str); 4] =
    [("nothing", "direct"), ("netrig", "balancer-1"), ("nftables", "nftables-1"), ("HAProxy", "haproxy-1")];
/// What is raised until something is lost: the scenarios' first word, the figure, and what it is.
const LOADS: [(&str, &str, &str); 2] = [
    ("cps", "limit", "new TCP connections a second"),
    ("pps", "limit_held", "UDP connections, 500 requests a second each"),
];
/// netrig's balancer is to have at least so many times what another has.
const AIMS: [(&str, f64); 3] = [("nothing", 0.6), ("nftables", 3.0), ("HAProxy", 5.0)];

fn main() -> Result<()> {
    // HAProxy does not forward datagrams.
    let scenarios: Vec<String> = LOADS
        .iter()
        .flat_map(|(load, ..)| SYSTEMS.iter().map(move |(_, system)| format!("{load}-{system}")))
        .filter(|id| id != "pps-haproxy-1")
        .collect();
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["run", "balancer", "--quick", "--trials", "3", "--format", "json", "--only", &scenarios.join(",")]);
    command.arg("--store").arg(directory.path().join("runs.sqlite")).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start netrig")?;
    let mut text = String::new();
    child.stdout.take().context("a pipe was asked for")?.read_to_string(&mut text)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("netrig has ended: {status}");
    }
    let document: Value = serde_json::from_str(&text).context("netrig's JSON")?;
    println!("load of the machine, mean over a minute: {:?}", rig_sys::probe::load_average());
    for (load, metric, what) in LOADS {
        println!("{what}, before the first loss, one worker: medians of 3 trials");
        let of = |system: &str| {
            let (_, id) = SYSTEMS.iter().find(|(name, _)| *name == system)?;
            median(&document, &format!("{load}-{id}"), metric)
        };
        let netrig = of("netrig");
        for (system, _) in SYSTEMS {
            let Some(value) = of(system) else {
                println!("  {system:<10} {:>12}", "not measured");
                continue;
            };
            let aim = AIMS.iter().find(|(of, _)| *of == system).map(|(_, aim)| *aim);
            let ratio = match (netrig, aim) {
                (Some(netrig), Some(aim)) if value > 0.0 => {
                    let ratio = netrig / value;
                    let held = if ratio >= aim { "held" } else { "not held" };
                    format!("netrig has {ratio:.2} times that; aimed at {aim}: {held}")
                }
                _ => String::new(),
            };
            println!("  {system:<10} {value:12.0}  {ratio}");
        }
    }
    Ok(())
}

/// Of a scenario's trials; `None` where it did not run.
fn median(document: &Value, scenario: &str, metric: &str) -> Option<f64> {
    let scenarios = document["data"]["scenarios"].as_array()?;
    let figures = scenarios.iter().find(|of| of["id"] == scenario)?["figures"].as_array()?;
    let values = figures.iter().find(|figure| figure["metric"] == metric)?["values"].as_array()?;
    let mut sample = Sample::default();
    values.iter().filter_map(Value::as_f64).for_each(|value| sample.push(value));
    sample.median()
}
