//! The figures of all scenarios, laid out as tables and charts.

use std::borrow::Cow;

use rig_stats::propagate::{Scale, Series, propagate};

use super::{decimals, mean, name, unit};
use crate::claim::{Metric, Side};
use crate::figures;
use crate::record::{CpuUse, NodeRecord};
use crate::report::document::{
    Axis, BarGroup, Bars, Block, Cell, Chart, Column, Interval, Label, Number, Row, Stacked, StackedRow, Table,
};
use crate::report::view::{Certainty, RunView, ScenarioView};
use crate::suite::{Layout, LayoutColumn};

/// Kinds of CPU time, in the order in which they are stacked.
type Part = (&'static str, fn(&CpuUse) -> f64);
const PARTS: [Part; 5] = [
    ("user", |cpu| cpu.user),
    ("system", |cpu| cpu.system),
    ("softirq", |cpu| cpu.softirq),
    ("irq", |cpu| cpu.irq),
    ("stolen by the hypervisor", |cpu| cpu.steal),
];

/// The name of the study's figures in tables and charts.
const STUDY: &str = "study";

/// The tables of the view without columns that were not part of the run, and one for scenarios that are in none.
fn layouts(view: &RunView) -> Vec<Cow<'_, Layout>> {
    let in_run = |column: &LayoutColumn| view.scenarios.iter().any(|s| s.id == column.scenario);
    let mut layouts: Vec<Cow<'_, Layout>> = Vec::new();
    for table in &view.tables {
        if table.columns.iter().all(in_run) {
            layouts.push(Cow::Borrowed(table));
        } else if table.columns.iter().any(in_run) {
            let columns = table.columns.iter().filter(|c| in_run(c)).cloned().collect();
            layouts.push(Cow::Owned(Layout { columns, ..table.clone() }));
        }
    }
    let shown =
        |scenario: &&ScenarioView| view.tables.iter().any(|t| t.columns.iter().any(|c| c.scenario == scenario.id));
    let others: Vec<LayoutColumn> = view
        .scenarios
        .iter()
        .filter(|s| !shown(s))
        .map(|s| LayoutColumn { head: s.id.clone(), scenario: s.id.clone(), sender: None, receiver: None })
        .collect();
    if !others.is_empty() {
        let title = if layouts.is_empty() { "All scenarios" } else { "Other scenarios" };
        layouts.push(Cow::Owned(Layout { title: title.to_owned(), columns: others, source: None }));
    }
    layouts
}

fn scenario<'a>(view: &'a RunView, column: &LayoutColumn) -> Option<&'a ScenarioView> {
    view.scenarios.iter().find(|s| s.id == column.scenario)
}

/// The column's head over the scenario's name; claims and details name scenarios by their id, so that it is shown where
/// the head is another.
fn label(view: &RunView, column: &LayoutColumn) -> Label {
    let name = scenario(view, column).map_or("", |s| s.name.as_str());
    match (name.is_empty(), column.head == column.scenario) {
        (true, true) => Label::new(&column.head),
        (true, false) => Label::with_subhead(&column.head, &column.scenario),
        (false, true) => Label::with_subhead(&column.head, name),
        (false, false) => Label::with_subhead(&column.head, format!("{name} ({})", column.scenario)),
    }
}

/// Whether any scenario of the layout has figures.
fn is_measured(view: &RunView, layout: &Layout) -> bool {
    layout.columns.iter().any(|column| scenario(view, column).is_some_and(|s| !s.trials.is_empty()))
}

/// For each layout: what the senders saw, what the receivers saw, what it cost.
pub(super) fn tables(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for layout in layouts(view) {
        if !is_measured(view, &layout) {
            let heads: Vec<&str> = layout.columns.iter().map(|c| c.head.as_str()).collect();
            blocks.push(Block::warning(format!("{}: no trial of {} was finished.", layout.title, heads.join(", "))));
            continue;
        }
        for side in [Side::Sender, Side::Receiver] {
            blocks.push(Block::Table(side_table(view, &layout, side)));
        }
        blocks.push(Block::Table(cost_table(view, &layout)));
    }
    blocks
}

fn columns(view: &RunView, layout: &Layout) -> Vec<Column> {
    layout.columns.iter().map(|column| Column::number(label(view, column), None)).collect()
}

/// Laid out as the study prints its results.
fn side_table(view: &RunView, layout: &Layout, side: Side) -> Table {
    let mut table = Table::new(format!("{} – {side} nodes", layout.title), "Metric");
    table.columns = columns(view, layout);
    table.reference = Some(STUDY.to_owned());
    table.rows = vec![
        row(view, layout, side, Metric::Throughput, name(Metric::Throughput)),
        row(view, layout, side, Metric::Cpu, name(Metric::Cpu)),
    ];
    if side == Side::Receiver {
        table.rows.extend(baseline_row(view, layout));
    }
    table
}

/// Throughput as a multiple of the baseline's, the study's beside it.
fn baseline_row(view: &RunView, layout: &Layout) -> Option<Row> {
    let (side, metric) = (Side::Receiver, Metric::Throughput);
    let id = view.baseline.as_deref()?;
    let base = figures::sample(&view.scenarios.iter().find(|s| s.id == id)?.trials, side, metric);
    let base_column = layout.columns.iter().find(|column| column.scenario == id);
    let published = base_column.and_then(|column| column.reference(side, metric));
    let cell = |column: &LayoutColumn| {
        let own = figures::sample(scenario(view, column).map_or(&[][..], |s| &s.trials), side, metric);
        // The baseline is not compared with itself as if it were measured twice.
        let group = usize::from(column.scenario != id);
        let series = [Series { group, values: own.values() }, Series { group: 0, values: base.values() }];
        match propagate(&series, view.level, Scale::Logarithmic, |means| means[0] / means[1]) {
            Err(_) => Cell::missing("no trials of both"),
            Ok(ratio) => {
                let interval = ratio.interval.map(|i| Interval { low: i.low, high: i.high });
                let study = column.reference(side, metric).zip(published).map(|(own, base)| own / base);
                Number::new(ratio.value, 2).with_interval(interval).with_reference(study).into()
            }
        }
    };
    Some(Row { label: format!("Throughput, {id} = 1"), unit: None, cells: layout.columns.iter().map(cell).collect() })
}

fn cost_table(view: &RunView, layout: &Layout) -> Table {
    let mut table = Table::new(format!("{} – service demand and retransmits", layout.title), "Metric");
    table.columns = columns(view, layout);
    table.rows = vec![
        row(view, layout, Side::Sender, Metric::ServiceDemand, "Demand, sender"),
        row(view, layout, Side::Receiver, Metric::ServiceDemand, "Demand, receiver"),
        row(view, layout, Side::Sender, Metric::Retransmits, name(Metric::Retransmits)),
    ];
    table.notes = notes(view, layout);
    table
}

fn row(view: &RunView, layout: &Layout, side: Side, metric: Metric, label: &str) -> Row {
    let cell = |column: &LayoutColumn| {
        let number = scenario(view, column).and_then(|s| mean(&s.trials, side, metric, view.level));
        match number {
            Some(number) => number.with_reference(column.reference(side, metric)).into(),
            None => Cell::missing("no trial gave this figure"),
        }
    };
    Row {
        label: label.to_owned(),
        unit: Some(unit(metric).to_owned()),
        cells: layout.columns.iter().map(cell).collect(),
    }
}

/// How all tables are to be read.
pub(super) fn key(view: &RunView) -> String {
    let mut key = format!(
        "± is half the width of the {} % confidence interval, relative to the mean of the trials.",
        view.level.percent()
    );
    if view.scenarios.iter().any(|s| s.trials.len() == 1) {
        key += " A figure without ± comes from a single trial.";
    }
    if let Some(cost) = rig_cost(view) {
        key += " ";
        key += &cost;
    }
    key
}

/// What the reader must know to read the tables of this layout.
fn notes(view: &RunView, layout: &Layout) -> Vec<String> {
    let shown = || layout.columns.iter().filter_map(|c| Some((c, scenario(view, c)?)));
    let mut notes = Vec::new();
    if let Some(source) = &layout.source {
        notes.push(format!("{STUDY}: the published figure ({source}), from other machines and another system."));
    }
    // Each remark once, after the heads of the columns it belongs to.
    let mut remarks: Vec<(String, Vec<&str>)> = Vec::new();
    for (column, scenario) in shown() {
        let missed = match &scenario.certainty {
            Certainty::Missed(words) => Some(words.clone()),
            Certainty::Unfinished => Some("the run ended before the figures were certain".to_owned()),
            Certainty::Fixed | Certainty::Reached => None,
        };
        for remark in scenario.notes.iter().cloned().chain(missed) {
            match remarks.iter_mut().find(|(text, _)| *text == remark) {
                Some((_, heads)) => heads.push(&column.head),
                None => remarks.push((remark, vec![&column.head])),
            }
        }
    }
    notes.extend(remarks.into_iter().map(|(remark, heads)| format!("{}: {remark}", heads.join(", "))));
    notes
}

/// `Without load netrig's own processes use 0.3 % of node a's CPU time and 0.2 % of node b's; with the rest of the
/// machine, 1.1 % of node a's CPU time and 0.9 % of node b's was busy.`
pub(super) fn rig_cost(view: &RunView) -> Option<String> {
    let cost = view.rig_cost.as_ref()?;
    let mut text = format!("Without load netrig's own processes use {}", shares(&cost.nodes)?);
    if let Some(busy) = shares(&cost.busy) {
        text.push_str(&format!("; with the rest of the machine, {busy} was busy"));
    }
    text.push('.');
    Some(text)
}

/// `0.3 % of node a's CPU time and 0.2 % of node b's`
fn shares(nodes: &[(String, f64)]) -> Option<String> {
    let mut parts = nodes.iter().map(|(node, percent)| format!("{percent:.1} % of node {node}'s"));
    let first = parts.next()? + " CPU time";
    let rest: Vec<String> = parts.collect();
    let Some((last, middle)) = rest.split_last() else { return Some(first) };
    let list: String = middle.iter().map(|part| format!(", {part}")).collect();
    Some(format!("{first}{list} and {last}"))
}

/// For each layout: throughput with intervals, CPU time by kind.
pub(super) fn charts(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for layout in layouts(view).into_iter().filter(|layout| is_measured(view, layout)) {
        blocks.push(Block::Figure(Chart::Bars(throughput(view, &layout))));
        blocks.push(Block::Figure(Chart::Stacked(cpu(view, &layout))));
    }
    blocks
}

fn throughput(view: &RunView, layout: &Layout) -> Bars {
    let (side, metric) = (Side::Receiver, Metric::Throughput);
    let bar = |column: &LayoutColumn| {
        let number = mean(&scenario(view, column)?.trials, side, metric, view.level)?;
        Some(number.with_reference(column.reference(side, metric)))
    };
    let groups = layout.columns.iter().map(|c| BarGroup { label: label(view, c), bars: vec![bar(c)] });
    Bars {
        title: format!("{} – {} at the receivers", layout.title, name(metric).to_lowercase()),
        axis: Axis::new(name(metric), unit(metric)),
        series: vec!["measured, with confidence interval".to_owned()],
        groups: groups.collect(),
        reference: layout.source.as_ref().map(|_| STUDY.to_owned()),
    }
}

fn cpu(view: &RunView, layout: &Layout) -> Stacked {
    let rows = layout.columns.iter().filter_map(|c| Some((c, scenario(view, c)?))).flat_map(|(column, scenario)| {
        let nodes = scenario.trials.first().map_or(&[][..], |trial| &trial.nodes);
        nodes.iter().map(|node| cpu_row(column, scenario, node))
    });
    Stacked {
        title: format!("{} – what the nodes' CPUs did", layout.title),
        axis: Axis::new("Share of the node's CPU time", "%"),
        limit: 100.0,
        parts: PARTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows: rows.collect(),
    }
}

/// The mean over the trials of what the CPUs of one node did.
fn cpu_row(column: &LayoutColumn, scenario: &ScenarioView, node: &NodeRecord) -> StackedRow {
    let trial = &scenario.trials[0];
    let sides = figures::ends(trial).into_iter().filter(|side| figures::is_on(trial, node, *side));
    let sides = sides.map(Side::name).collect::<Vec<_>>().join(" and ");
    let same: Vec<&NodeRecord> =
        scenario.trials.iter().flat_map(|t| t.nodes.iter().find(|n| n.name == node.name)).collect();
    let mean = |part: &dyn Fn(&CpuUse) -> f64| same.iter().map(|n| n.mean(part)).sum::<f64>() / same.len() as f64;
    let subhead = if sides.is_empty() { format!("node {}", node.name) } else { format!("node {}, {sides}", node.name) };
    StackedRow {
        label: Label::with_subhead(&column.head, subhead),
        values: PARTS.iter().map(|(_, part)| mean(part)).collect(),
        figure: Number::new(mean(&CpuUse::busy), decimals(Metric::Cpu)),
    }
}
