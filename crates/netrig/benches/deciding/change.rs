//! How often a known change is found.

use anyhow::{Context, Result};
use rig_stats::sample::Sample;
use serde_json::Value;

use crate::{Bench, claims, line, percent, whole};

const HEAD: &str = r#"
name = "change"
title = "A known change"
[defaults]
window = "2s"
warm_up = "200ms"
cool_down = "50ms"
[quick]
window = "200ms"
warm_up = "80ms"
cool_down = "20ms"
trials = 6
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500 }
"#;

/// What the added time is, beside the CPU time of a transaction or of 64 KiB, which a wire hands up as one packet.
const SHARE: f64 = 0.05;

/// A load, and the figure that tells its CPU time at the receiver, in microseconds for each unit.
struct Case {
    name: &'static str,
    load: &'static str,
    figure: &'static str,
    /// Units of the figure that a packet is of: KiB of a stream.
    units: f64,
}

const CASES: [Case; 2] = [
    Case {
        name: "tcp-rr",
        load: r#"{ kind = "tcp-rr", request = "1", response = "1" }"#,
        figure: "remote.transaction_demand",
        units: 1.0,
    },
    Case {
        name: "tcp-stream",
        load: r#"{ kind = "tcp-stream", message = "128k" }"#,
        figure: "receiver.service_demand",
        units: 64.0,
    },
];

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let times = whole(numbers, 0, 10);
    let seconds = numbers.get(1).copied().unwrap_or(60.0);
    let pair = veth_pair();
    let found =
        (0..times).map(|_| Ok(usize::from(is_found(&bench.run_text(&pair, seconds)?)))).sum::<Result<usize>>()?;
    let what = format!("a veth pair more, tcp-rr, found in runs of {seconds} s");
    line(&what, ">= 90 %", &format!("{found} of {times}"));
    for case in &CASES {
        spun(bench, case, times, seconds)?;
    }
    Ok(())
}

/// A suite of a path, and of the same with a veth pair more.
pub fn veth_pair() -> String {
    let rr = &CASES[0];
    let [plain, more] = [scenario(rr, "plain", "raw", "a", ""), scenario(rr, "more", "etun", "a/one", "")];
    format!("{HEAD}{plain}{more}{}", claim("local.transaction_demand"))
}

/// More CPU time by a program that spends it on each packet, and says how much it was.
fn spun(bench: &Bench, case: &Case, times: usize, seconds: f64) -> Result<()> {
    let alone = bench.run_text(&format!("{HEAD}{}", scenario(case, "plain", "raw", "a", "")), 10.0)?;
    let each = figure(&alone, "plain", case.figure).context("the CPU time without the program")?;
    let time_ns = (each * case.units * SHARE * 1e3).round().max(1.0);
    let program = format!("[[scenario.datapath]]\nname = \"spin\"\nnodes = [\"b\"]\ntime_ns = {time_ns}\n");
    let [plain, more] = [scenario(case, "plain", "raw", "a", ""), scenario(case, "more", "raw", "a", &program)];
    let text = format!("{HEAD}{plain}{more}{}", claim(case.figure));
    let (mut found, mut told, mut spent) = (0, Sample::default(), Sample::default());
    for _ in 0..times {
        let run = bench.run_text(&text, seconds)?;
        found += usize::from(is_found(&run));
        told.extend(claims(&run).filter_map(|claim| Some(claim["effect"].as_f64()? - 1.0)));
        spent.extend(spent_share(&run, case));
    }
    let what = format!("{time_ns} ns more for each packet, {}, found in runs of {seconds} s", case.name);
    line(&what, ">= 90 %", &format!("{found} of {times}"));
    let median = |sample: &Sample| sample.median().map_or("-".to_owned(), percent);
    line("... as the program counts it, of the CPU time without it", "5 %", &median(&spent));
    line("... as the runs tell it, with what running the program costs", "", &median(&told));
    Ok(())
}

fn scenario(case: &Case, id: &str, path: &str, from: &str, more: &str) -> String {
    let load = case.load;
    format!(
        "[[scenario]]\nid = \"{id}\"\nname = \"{id}\"\ntestbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"\nto = \"b\"\n\
         load = {load}\n{more}"
    )
}

fn claim(figure: &str) -> String {
    format!("[[claim]]\ntext = \"It costs CPU time\"\nholds = \"more.{figure} > plain.{figure}\"\n")
}

fn is_found(run: &Value) -> bool {
    claims(run).any(|claim| claim["verdict"] == "holds")
}

/// A scenario's figure, the mean of its trials.
fn figure(run: &Value, scenario: &str, figure: &str) -> Option<f64> {
    let scenarios = run["data"]["scenarios"].as_array()?;
    let scenario = scenarios.iter().find(|one| one["id"] == scenario)?;
    let (side, metric) = figure.split_once('.')?;
    let figures = scenario["figures"].as_array()?;
    figures.iter().find(|one| one["side"] == side && one["metric"] == metric)?["mean"].as_f64()
}

/// What the program spent in a run's windows, relative to the CPU time without it.
fn spent_share(run: &Value, case: &Case) -> Option<f64> {
    let plain = figure(run, "plain", case.figure)? * 1e3;
    let scenarios = run["data"]["scenarios"].as_array()?;
    let more = scenarios.iter().find(|one| one["id"] == "more")?;
    let counts = more["trials"].as_array()?.iter().filter_map(|trial| {
        let counts = &trial["agents"].as_array()?.iter().find(|agent| agent["name"] == "spin")?["counters"]["counts"];
        Some((counts["packets"].as_f64()?, counts["spun_ns"].as_f64()?))
    });
    let (packets, ns) = counts.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (packets > 0.0).then(|| ns / packets / (plain * case.units))
}
