//! One scenario: its testbed, its load, its trials.

use std::collections::BTreeMap;

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::{Kind, over_time, reading};
use rig_facts::record::{Flag, TrialRecord};
use rig_facts::suspicion;
use rig_stats::blocks::modes::Modes;
use rig_stats::confidence::Level;
use rig_stats::sample::Reading;
use rig_verdict::view::{Certainty, ScenarioView};

use super::{
    agents, benchmark, decimals, doubts, dut, frames, latency, layers, name, phases, sample, search, servers, sheets,
    shown, unit,
};
use crate::document::{Axis, Block, Cell, Chart, Column, Label, Line, Lines, Number, Row, Table};

pub(super) fn blocks(scenario: &ScenarioView, level: Level) -> Vec<Block> {
    let title = Label { head: scenario.id.clone(), subhead: Some(scenario.name.clone()).filter(|n| !n.is_empty()) };
    let mut blocks = vec![Block::heading(3, title.to_string())];
    if !scenario.about.is_empty() {
        blocks.push(Block::paragraph(&scenario.about));
    }
    blocks.extend(scenario.notes.iter().map(Block::info));
    if !scenario.topology.is_empty() {
        blocks.push(Block::Preformatted { caption: Some("Testbed".to_owned()), text: scenario.topology.clone() });
    }
    let mut pairs = vec![("Load".to_owned(), scenario.load.clone())];
    pairs.push(("Confidence".to_owned(), certainty(scenario)));
    blocks.push(Block::KeyValues { caption: None, pairs });
    if scenario.trials.is_empty() {
        blocks.push(Block::warning("No trial was finished."));
        return blocks;
    }
    blocks.push(Block::Table(trials(scenario, level)));
    blocks.extend(layers::details(scenario, level));
    blocks.extend(two_valued(scenario).into_iter().map(Block::info));
    blocks.extend(full_nodes(scenario).map(Block::info));
    blocks.extend(dut::details(scenario));
    blocks.extend(frames::table(scenario).map(Block::Table));
    blocks.extend(agents::details(scenario));
    blocks.extend(servers::table(scenario).map(Block::Table));
    blocks.extend(scenario.trials.iter().filter_map(search::trail).map(Block::Table));
    blocks.extend(scenario.trials.iter().filter_map(benchmark::trail).map(Block::Table));
    if let Some(chart) = course(scenario) {
        blocks.push(Block::Figure(Chart::Lines(chart)));
    }
    blocks.extend(phases::blocks(scenario, level));
    let doubts: Vec<String> =
        doubts::of(&scenario.trials, Flag::to_string).into_iter().map(|(_, words)| words).collect();
    if !doubts.is_empty() {
        blocks.push(Block::heading(4, "Doubts"));
        blocks.push(Block::List { items: doubts });
    }
    blocks
}

fn certainty(scenario: &ScenarioView) -> String {
    match &scenario.certainty {
        Certainty::Fixed => "the number of trials was fixed".to_owned(),
        Certainty::Reached => "reached".to_owned(),
        Certainty::Missed(words) => format!("not reached: {words}"),
        Certainty::Failed(words) => words.clone(),
        Certainty::Unfinished => "the run ended before".to_owned(),
    }
}

/// Figures that take one of two values, of which a mean and its interval say little.
fn two_valued(scenario: &ScenarioView) -> Vec<String> {
    let kind = Kind::of(&scenario.plan).unwrap_or(Kind::Stream);
    let words = |(label, side, metric): sheets::Line| {
        let readings = scenario.trials.iter().map(|trial| reading(trial, side, metric).map(|reading| reading.value));
        let modes = Modes::of(&readings.collect::<Option<Vec<_>>>()?)?;
        let mode = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let mean = Number::new(shown(metric, mean), decimals(metric));
            format!("{} in {} trials", crate::readable::figure(&mean, unit(metric)), values.len())
        };
        Some(format!("{label} is two-valued: about {}, {}.", mode(&modes.low), mode(&modes.high)))
    };
    sheets::trial(kind).into_iter().filter_map(words).collect()
}

/// Nodes whose CPUs were all busy and no reason to doubt the trials: how fast they are is what such a load asks.
fn full_nodes(scenario: &ScenarioView) -> Option<String> {
    let mut full: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for trial in &scenario.trials {
        let is_doubted =
            |name: &str| trial.flags.iter().any(|flag| matches!(flag, Flag::Saturated { node, .. } if node == name));
        for node in trial.nodes.iter().filter(|node| !is_doubted(&node.name)) {
            full.entry(&node.name).or_default().extend(suspicion::full(trial, node));
        }
    }
    full.retain(|_, percents| !percents.is_empty());
    let all = scenario.trials.len();
    let node = |(name, percents): (&&str, &Vec<f64>)| {
        let mean = percents.iter().sum::<f64>() / percents.len() as f64;
        format!("node {name}'s CPUs were full ({mean:.1} %) in {} of {all}", percents.len())
    };
    let words: Vec<String> = full.iter().map(node).collect();
    (!words.is_empty())
        .then(|| format!("Limited by CPU time, as a load without a rate is: {} trials.", words.join(" trials, ")))
}

/// A column for each trial, and one for how much they scatter.
fn trials(scenario: &ScenarioView, level: Level) -> Table {
    let trials = &scenario.trials;
    let several = trials.len() > 1;
    let mut table = Table::new(format!("Trials of {}", scenario.id), "Trial");
    table.columns = trials.iter().map(|t| Column::number(Label::new(t.ordinal.to_string()), None)).collect();
    let kind = Kind::of(&scenario.plan).unwrap_or(Kind::Stream);
    for (label, side, metric) in sheets::trial(kind) {
        let row = figures(trials, &label, side, metric);
        if !(metric.row().is_optional && row.cells.iter().all(|cell| matches!(cell, Cell::Missing { .. }))) {
            table.rows.push(row);
        }
    }
    let rig = |t: &TrialRecord| Cell::number((t.setup_us + t.teardown_us) as f64 / 1000.0, 1);
    let doubts = |t: &TrialRecord| Cell::number(t.flags.len() as f64, 0);
    let row = |label: &str, unit: Option<&str>, cell: &dyn Fn(&TrialRecord) -> Cell| Row {
        label: label.to_owned(),
        unit: unit.map(str::to_owned),
        cells: trials.iter().map(cell).chain(several.then(|| Cell::text(""))).collect(),
    };
    table.rows.push(row("Testbed up and down", Some("ms"), &rig));
    table.rows.push(row("Doubts", None, &doubts));
    if several {
        table.columns.push(Column::number(Label::new("Std. dev."), None));
        let count = trials.len() as f64;
        table.notes.push(format!(
            "Std. dev.: sample standard deviation. The {} % interval of the mean is {:.2} times as wide to each side.",
            level.percent(),
            level.student_t(count - 1.0) / count.sqrt(),
        ));
    }
    table
}

fn figures(trials: &[TrialRecord], label: &str, side: Side, metric: Metric) -> Row {
    let cell = |trial: &TrialRecord| match reading(trial, side, metric) {
        Some(Reading { value, bound, .. }) => {
            Cell::from(Number::new(shown(metric, value), decimals(metric)).with_bound(bound))
        }
        None => Cell::missing(
            latency::too_few(std::slice::from_ref(trial), side, metric)
                .unwrap_or_else(|| "the trial did not give this figure".to_owned()),
        ),
    };
    let deviation = sample(trials, side, metric).standard_deviation();
    let missing = || Cell::missing("fewer than two trials gave this figure");
    let scatter = (trials.len() > 1).then(|| deviation.map_or_else(missing, |d| Cell::number(d, decimals(metric))));
    Row {
        label: label.to_owned(),
        unit: Some(unit(metric).to_owned()),
        cells: trials.iter().map(cell).chain(scatter).collect(),
    }
}

/// What was carried over time, a line for each trial, and each end of a two-way load; `None` without samples.
fn course(scenario: &ScenarioView) -> Option<Lines> {
    let kind = Kind::of(&scenario.plan)?;
    let (rates, place) = match kind {
        Kind::Stream | Kind::Datagrams => (&kind.rates()[..1], " at the receivers"),
        Kind::TwoWayStream | Kind::TwoWayDatagrams => (kind.rates(), " arriving at both ends"),
        Kind::Transactions | Kind::Connections | Kind::Requests => (kind.rates(), ""),
        // Its samples count what was sent as connections, which a flood has not.
        Kind::Flood => return None,
    };
    let (_, metric) = rates[0];
    let line = |trial: &TrialRecord, side: Side| Line {
        label: match rates.len() {
            1 => format!("trial {}", trial.ordinal),
            _ => format!("trial {}, {side}", trial.ordinal),
        },
        points: over_time(trial, side, metric).into_iter().map(|(at, rate)| (at, shown(metric, rate))).collect(),
    };
    let lines: Vec<Line> = scenario
        .trials
        .iter()
        .flat_map(|trial| rates.iter().map(move |(side, _)| line(trial, *side)))
        .filter(|line| !line.points.is_empty())
        .collect();
    (!lines.is_empty()).then(|| Lines {
        title: format!("{}{place} of {} over time", name(metric), scenario.id),
        x: Axis::new("Time in the window", "s"),
        y: Axis::new(name(metric), unit(metric)),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::{TrialOptions, trial};
    use rig_verdict::fixture::run_view;

    use super::*;

    #[test]
    fn two_valued_results_are_shown_as_such() {
        let said = |bytes: &dyn Fn(u32) -> u64| {
            let mut scenario = run_view().scenarios.remove(0);
            let one = |ordinal| TrialOptions { ordinal, receive_bytes: bytes(ordinal), ..TrialOptions::default() };
            scenario.trials = (1..=10).map(|ordinal| trial(&one(ordinal))).collect();
            two_valued(&scenario).join(" ")
        };
        let two =
            said(&|ordinal| if ordinal % 3 == 0 { 1_500_000_000 } else { 2_000_000_000 } + u64::from(ordinal) * 1000);
        assert!(two.contains(" is two-valued: about 6.00 Gbit/s in 3 trials, 8.00 Gbit/s in 7 trials."), "{two}");
        assert_eq!(said(&|ordinal| 2_000_000_000 + u64::from(ordinal) * 10_000_000), "");
    }
}
