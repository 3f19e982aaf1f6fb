//! Whether costs by layer add up, come out the same twice, and tell what one thing more in the path adds.

use anyhow::{Context, Result, bail};
use rig_facts::layers::{LayerPart, LayersData, OTHERS, Pairing, differences};
use rig_stats::confidence::Level;
use serde_json::Value;

use crate::{Bench, line};

/// What a block takes, seconds.
const BLOCK: f64 = 14.0;

/// Nothing between two nodes, and each thing that may be. Every packet is one segment, so that each layer has its part of it.
const SUITE: &str = r#"
name = "added"
title = "What one thing more in the path adds, by layer"
[defaults]
window = "1s"
warm_up = "100ms"
cool_down = "20ms"
confidence = { level = "95%", width = "0.1%", min = 6, max = 60 }
[defaults.load]
kind = "tcp-stream"
message = "16k"
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500, segmentation_offload = false }
[[scenario]]
id = "nothing"
name = "Nothing"
testbed = "two"
path = "raw"
from = "a"
to = "b"
[[scenario]]
id = "veth"
name = "A veth pair"
testbed = "two"
path = "etun"
from = "a/one"
to = "b"
[[scenario]]
id = "bridge"
name = "A bridge"
testbed = "two"
path = "bridge"
from = "a/one"
to = "b"
[[scenario]]
id = "macvlan"
name = "macvlan"
testbed = "two"
path = "macvlan"
from = "a/one"
to = "b"
[[scenario]]
id = "vxlan"
name = "VXLAN"
testbed = "two"
path = "vxlan"
from = "a/one"
to = "b/two"
"#;

/// What is held against nothing; the layers that it adds have the same names.
const ADDED: [&str; 4] = ["veth", "bridge", "macvlan", "vxlan"];
/// Parts of this share of the total have to come out the same, percent.
const LARGE: f64 = 5.0;
/// ... within this share of themselves.
const SAME: f64 = 0.10;

/// What a run says of each end.
struct Ends<'a> {
    run: &'a Value,
    all: Vec<(String, LayersData)>,
}

impl<'a> Ends<'a> {
    fn of(run: &'a Value) -> Result<Self> {
        let mut all = Vec::new();
        for scenario in run["data"]["scenarios"].as_array().into_iter().flatten() {
            let ends: Vec<LayersData> = serde_json::from_value(scenario["layers"].clone()).context("costs by layer")?;
            let id = scenario["id"].as_str().unwrap_or_default();
            all.extend(ends.into_iter().map(|end| (id.to_owned(), end)));
        }
        if all.is_empty() { bail!("the run has no costs by layer") } else { Ok(Self { run, all }) }
    }

    fn end(&self, scenario: &str, name: &str) -> Option<&LayersData> {
        self.all.iter().find(|(id, end)| id == scenario && end.end.name() == name).map(|(_, end)| end)
    }

    /// The figure of the trials, which the parts have to add up to.
    fn counted(&self, scenario: &str, end: &LayersData) -> Option<f64> {
        let scenarios = self.run["data"]["scenarios"].as_array()?;
        let figures = scenarios.iter().find(|one| one["id"] == scenario)?["figures"].as_array()?;
        let is_it = |figure: &&Value| figure["metric"] == "service_demand" && figure["side"] == end.end.name();
        figures.iter().find(is_it)?["mean"].as_f64()
    }
}

pub fn measure(bench: &Bench, numbers: &[f64]) -> Result<()> {
    let minutes = numbers.first().copied().unwrap_or(3.0);
    let file = bench.write(SUITE)?;
    let blocks = (minutes * 60.0 / BLOCK).round().max(1.0).to_string();
    let run = || bench.json(["run", &file, "--layers", "--trials", &blocks, "--quiet"]);
    println!("two runs of {blocks} blocks with costs by layer");
    tell(&[run()?, run()?])
}

/// Prints what two runs of [`SUITE`] say.
fn tell(runs: &[Value; 2]) -> Result<()> {
    let [first, second] = runs;
    let both = [Ends::of(first)?, Ends::of(second)?];
    let ends = || both.iter().flat_map(|run| run.all.iter().map(move |(id, end)| (run, id, end)));
    let percent = |value: f64| format!("{value:.2} %");

    let apart = ends().filter_map(|(run, id, end)| {
        let sum: f64 = end.parts.iter().map(|part| part.mean).sum();
        Some(100.0 * (sum / run.counted(id, end)? - 1.0).abs())
    });
    line("parts from the exact total, the farthest", "<= 2 %", &percent(apart.fold(0.0, f64::max)));
    let largest = |of: &dyn Fn(&LayersData) -> f64| ends().map(|(_, _, end)| of(end)).fold(0.0, f64::max);
    line("time without a layer, the most", "<= 5 %", &percent(largest(&|end| end.unknown_percent)));
    let others = |end: &LayersData| end.parts.iter().filter(|part| part.layer == OTHERS).map(|part| part.percent).sum();
    line("time of other programs, the most", "", &percent(largest(&others)));

    let mut pairs: Vec<(String, &LayerPart, &LayerPart)> = Vec::new();
    for (id, old) in &both[0].all {
        let Some(new) = both[1].end(id, old.end.name()) else { continue };
        println!(
            "  {id:<8} {:<9} {:>6} and {:>6} samples, {:.3} and {:.3} {}",
            old.end.name(),
            old.samples,
            new.samples,
            old.total,
            new.total,
            old.unit
        );
        for part in &old.parts {
            let Some(again) = new.parts.iter().find(|again| again.layer == part.layer) else { continue };
            if (part.percent + again.percent) / 2.0 > LARGE {
                pairs.push((format!("{id} {} {}", old.end.name(), part.layer), part, again));
            }
        }
    }
    let agree = |value: &dyn Fn(&LayerPart) -> f64| {
        let near =
            |(_, old, new): &&(String, &LayerPart, &LayerPart)| (value(new) / value(old)).ln().abs() <= SAME.ln_1p();
        format!("{} of {}", pairs.iter().filter(near).count(), pairs.len())
    };
    line("parts above 5 % whose share agrees within +-10 %", "all", &agree(&|part| part.percent));
    line("parts above 5 % whose cost agrees within +-10 %", "all", &agree(&|part| part.mean));
    for (name, old, new) in &pairs {
        let change = |old: f64, new: f64| 100.0 * (new / old - 1.0);
        println!(
            "  {name:<28} {:>5.1} and {:>5.1} % ({:+.1} %), cost {:+.1} %",
            old.percent,
            new.percent,
            change(old.percent, new.percent),
            change(old.mean, new.mean)
        );
    }

    let mut sure = 0;
    for (number, run) in both.iter().enumerate() {
        for added in ADDED {
            let (Some(old), Some(new)) = (run.end("nothing", "sender"), run.end(added, "sender")) else { continue };
            let Some(found) = differences(old, new, Pairing::Blocks, Level::default()) else { continue };
            let own = found.parts.iter().find(|part| part.layer == added);
            sure += usize::from(own.is_some_and(|part| part.is_sure() && part.difference > 0.0));
            for part in own.into_iter().chain([&found.total]) {
                println!(
                    "  run {}, {added:<8} {:<8} {:+.4} ({:+.4} to {:+.4}) {}",
                    number + 1,
                    part.layer,
                    part.difference,
                    part.low.unwrap_or(f64::NAN),
                    part.high.unwrap_or(f64::NAN),
                    found.unit
                );
            }
            let others = found.parts.iter().filter(|part| part.is_sure() && part.layer != added);
            let others: Vec<String> = others.map(|part| format!("{} {:+.4}", part.layer, part.difference)).collect();
            println!("    and surely: {}", others.join(", "));
        }
    }
    line("layers of what is added that surely take more", "all", &format!("{sure} of {}", 2 * ADDED.len()));
    Ok(())
}
