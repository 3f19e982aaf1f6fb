//! What netrig's vRouter does beside a bridge and the kernel's VXLAN, held against what is aimed at: medians of interleaved
//! trials of the suite `overlay`.
//!
//! `cargo xtask bench overlay` runs it, and behind it what a packet costs (`vrouter`) and what much of all takes (`scale`);
//! `cargo xtask bench overlay 9` with so many trials of each scenario.
#![forbid(unsafe_code)]

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rig_stats::sample::Sample;
use serde_json::Value;

const TRIALS: usize = 5;
const WINDOW: &str = "1s";

/// What is aimed at: a figure of one scenario as a multiple of another's.
struct Target {
    what: &'static str,
    own: &'static str,
    other: &'static str,
    figure: Figure,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Figure {
    Throughput,
    Transactions,
    Latency,
    /// CPU time of both ends for each byte.
    Cost,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

const fn aim(what: &'static str, [own, other]: [&'static str; 2], figure: Figure, bound: Bound) -> Target {
    Target { what, own, other, figure, bound }
}

const AIMS: [Target; 9] = [
    aim("stream / bridge's (D / B)", ["stream-vrouter", "stream-bridge"], Figure::Throughput, Bound::AtLeast(1.05)),
    aim(
        "no segmentation / bridge's (F / E)",
        ["noseg-vrouter", "noseg-bridge"],
        Figure::Throughput,
        Bound::AtLeast(1.1),
    ),
    aim("one node / bridge's", ["stream-one-vrouter", "stream-one-bridge"], Figure::Throughput, Bound::AtLeast(1.1)),
    aim("rr p50, one node / bridge's", ["rr-one-vrouter", "rr-one-bridge"], Figure::Latency, Bound::AtMost(1.0)),
    aim("rr p50, wire / bridge's", ["rr-vrouter", "rr-bridge"], Figure::Latency, Bound::AtMost(1.05)),
    aim("stream / kernel VXLAN's", ["stream-vrouter", "stream-vxlan"], Figure::Throughput, Bound::AtLeast(1.2)),
    aim("no segmentation / kernel VXLAN's", ["noseg-vrouter", "noseg-vxlan"], Figure::Throughput, Bound::AtLeast(1.4)),
    aim("crr / kernel VXLAN's", ["crr-vrouter", "crr-vxlan"], Figure::Transactions, Bound::AtLeast(1.1)),
    aim("CPU per GB / kernel VXLAN's", ["stream-vrouter", "stream-vxlan"], Figure::Cost, Bound::AtMost(0.85)),
];

fn main() -> Result<()> {
    let number = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let trials: usize = number.unwrap_or(TRIALS);
    let document = run(trials)?;
    println!("load of the machine, mean over a minute: {:?}", rig_sys::probe::load_average());
    println!(
        "medians of {trials} interleaved trials of {WINDOW}; in brackets the least and most of trial against trial"
    );
    println!("{:<36} {:>7} {:>9} {:>18}", "vRouter over MPLS over UDP, policy on", "target", "measured", "");
    for aim in &AIMS {
        let (sign, target) = match aim.bound {
            Bound::AtLeast(least) => (">=", least),
            Bound::AtMost(most) => ("<=", most),
        };
        let (own, other) = (values(&document, aim.own, aim.figure), values(&document, aim.other, aim.figure));
        let Some(ratio) = median(&own).zip(median(&other)).map(|(own, other)| own / other) else {
            println!("{:<36} {:>7} {:>9}", aim.what, format!("{sign} {target}"), "not measured");
            continue;
        };
        let mut each: Vec<f64> = own.iter().zip(&other).map(|(own, other)| own / other).collect();
        each.sort_by(f64::total_cmp);
        let range = format!("({:.2} .. {:.2})", each[0], each[each.len() - 1]);
        let is_held = match aim.bound {
            Bound::AtLeast(least) => ratio >= least,
            Bound::AtMost(most) => ratio <= most,
        };
        let verdict = if is_held { "holds" } else { "does not hold" };
        println!("{:<36} {:>7} {ratio:>9.3} {range:>18}  {verdict}", aim.what, format!("{sign} {target}"));
    }
    Ok(())
}

/// Runs the scenarios that are needed, and no others.
fn run(trials: usize) -> Result<Value> {
    let mut scenarios: Vec<&str> = AIMS.iter().flat_map(|aim| [aim.own, aim.other]).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["run", "overlay", "--quick", "--window", WINDOW, "--trials", &trials.to_string()]);
    command.args(["--format", "json", "--only", &scenarios.join(",")]);
    command.arg("--store").arg(directory.path().join("runs.sqlite")).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start netrig")?;
    let mut text = String::new();
    child.stdout.take().context("a pipe was asked for")?.read_to_string(&mut text)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("netrig has ended: {status}");
    }
    serde_json::from_str(&text).context("netrig's JSON")
}

/// The figure's values of a scenario's trials; none where it did not run.
fn values(document: &Value, scenario: &str, figure: Figure) -> Vec<f64> {
    let of = |side: &str, metric: &str| {
        let scenarios = document["data"]["scenarios"].as_array()?;
        let figures = scenarios.iter().find(|of| of["id"] == scenario)?["figures"].as_array()?;
        let figure = figures.iter().find(|figure| figure["side"] == side && figure["metric"] == metric)?;
        Some(figure["values"].as_array()?.iter().filter_map(Value::as_f64).collect::<Vec<_>>())
    };
    let one = |side: &str, metric: &str| of(side, metric).unwrap_or_default();
    match figure {
        Figure::Throughput => one("receiver", "throughput"),
        Figure::Transactions => one("local", "transactions"),
        Figure::Latency => one("local", "latency_p50"),
        Figure::Cost => {
            let ends = ["sender", "receiver"].map(|side| one(side, "service_demand"));
            ends[0].iter().zip(&ends[1]).map(|(sender, receiver)| sender + receiver).collect()
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sample = Sample::default();
    values.iter().for_each(|value| sample.push(*value));
    sample.median()
}
