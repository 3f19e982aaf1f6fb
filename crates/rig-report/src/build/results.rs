//! The figures of all scenarios, laid out as tables and charts.

use rig_facts::claim::{Claim, FigureRef, Metric, Side};
use rig_facts::figures::{self, Kind};
use rig_facts::record::{CpuUse, NodeRecord};
use rig_stats::confidence::Level;
use rig_suite::suite::{Form, Layout, LayoutColumn, Published};
use rig_verdict::judge;
use rig_verdict::view::{Certainty, RunView, ScenarioView};

use super::sheets::{self, Sheet};
use super::{accounting, clocks};
use super::{decimals, flames, latency, mean, name, netperf, overview, shown, unit, workers};
use crate::document::{
    Axis, BarGroup, Bars, Block, Cell, Chart, Column, Interval, Label, Number, Row, Stacked, StackedRow, Table,
};

/// Kinds of CPU time, in the order in which they are stacked.
type CpuTimeKind = (&'static str, fn(&CpuUse) -> f64);
const PARTS: [CpuTimeKind; 5] = [
    ("user", |cpu| cpu.user),
    ("system", |cpu| cpu.system),
    ("softirq", |cpu| cpu.softirq),
    ("irq", |cpu| cpu.irq),
    ("stolen by the hypervisor", |cpu| cpu.steal),
];

/// The name of the study's figures in tables and charts.
pub(super) const STUDY: &str = "study";

/// The tables of the view without scenarios that were not part of the run, and one for scenarios that are in none.
pub(super) fn layouts(view: &RunView) -> Vec<Layout> {
    let in_run = |id: &str| view.scenarios.iter().any(|s| s.id == id);
    let mut layouts: Vec<Layout> = view.tables.clone();
    for layout in &mut layouts {
        match &mut layout.form {
            Form::Columns(columns) | Form::Netperf(columns) => columns.retain(|column| in_run(&column.scenario)),
            Form::Overview(overview) => overview.retain(&in_run),
            Form::Workers(workers) => {
                for case in &mut workers.cases {
                    case.rows.retain(|(_, scenario)| in_run(scenario));
                }
                workers.cases.retain(|case| !case.rows.is_empty());
            }
            Form::Platform(_) => {}
        }
    }
    layouts.retain(|layout| match &layout.form {
        Form::Columns(columns) | Form::Netperf(columns) => !columns.is_empty(),
        // A baseline alone has nothing to be compared with.
        Form::Overview(overview) => overview.cases.len() > 1 && !overview.tests.is_empty(),
        Form::Workers(workers) => !workers.cases.is_empty(),
        Form::Platform(_) => true,
    });
    let shown = |scenario: &&ScenarioView| layouts.iter().any(|layout| layout.shows(&scenario.id));
    let column =
        |s: &ScenarioView| LayoutColumn { head: s.id.clone(), scenario: s.id.clone(), published: Published::default() };
    let others: Vec<LayoutColumn> = view.scenarios.iter().filter(|s| !shown(s)).map(column).collect();
    if !others.is_empty() {
        let title = if layouts.is_empty() { "All scenarios" } else { "Other scenarios" };
        layouts.push(Layout { title: title.to_owned(), source: None, notes: Vec::new(), form: Form::Columns(others) });
    }
    layouts
}

/// The scenarios of a layout whose loads are of one kind.
struct Group<'a> {
    kind: Kind,
    title: String,
    columns: Vec<(&'a LayoutColumn, &'a ScenarioView)>,
    source: Option<&'a str>,
    remarks: &'a [String],
    is_netperfs: bool,
}

fn kind(scenario: &ScenarioView) -> Kind {
    Kind::of(&scenario.plan).unwrap_or(Kind::Stream)
}

/// Loads of different kinds have different figures: each kind has tables of its own.
fn groups<'a>(view: &'a RunView, layout: &'a Layout) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for column in layout.columns() {
        let Some(scenario) = view.scenarios.iter().find(|s| s.id == column.scenario) else { continue };
        let kind = kind(scenario);
        match groups.iter_mut().find(|group| group.kind == kind) {
            Some(group) => group.columns.push((column, scenario)),
            None => {
                let (title, source) = (layout.title.clone(), layout.source.as_deref());
                let is_netperfs = matches!(layout.form, Form::Netperf(_));
                groups.push(Group {
                    kind,
                    title,
                    columns: vec![(column, scenario)],
                    source,
                    remarks: &layout.notes,
                    is_netperfs,
                });
            }
        }
    }
    if groups.len() > 1 {
        for group in &mut groups {
            group.title = format!("{}, {}", group.title, sheets::words(group.kind));
        }
    }
    groups
}

impl Group<'_> {
    fn is_measured(&self) -> bool {
        self.columns.iter().any(|(_, scenario)| !scenario.trials.is_empty())
    }

    /// The column's head over the scenario's name; claims and details name scenarios by their id, so that it is shown
    /// where the head is another. In netperf's layout test and case say what the scenario is, and a name that ends with the
    /// head says what the table's title does besides.
    fn label(&self, (column, scenario): &(&LayoutColumn, &ScenarioView)) -> Label {
        let is_said = scenario.name.ends_with(&column.head) || self.is_netperfs;
        match (scenario.name.is_empty() || is_said, column.head == column.scenario) {
            (true, true) => Label::new(&column.head),
            (true, false) => Label::with_subhead(&column.head, &column.scenario),
            (false, true) => Label::with_subhead(&column.head, &scenario.name),
            (false, false) => Label::with_subhead(&column.head, format!("{} ({})", scenario.name, column.scenario)),
        }
    }

    fn heads(&self) -> String {
        self.columns.iter().map(|(column, _)| column.head.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// What each layout shows.
pub(super) fn tables(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for layout in layouts(view) {
        match &layout.form {
            Form::Overview(overview) => blocks.extend(overview::tables(view, &layout, overview)),
            Form::Workers(rows) => blocks.extend(workers::tables(view, &layout, rows)),
            Form::Platform(machines) => blocks.push(workers::platform(view, &layout, machines)),
            Form::Columns(_) | Form::Netperf(_) => {}
        }
        for group in groups(view, &layout) {
            if !group.is_measured() {
                blocks.push(Block::warning(format!("{}: no trial of {} was finished.", group.title, group.heads())));
                continue;
            }
            let (sheets, relative_to) = match &layout.form {
                Form::Netperf(_) => {
                    let cases = group.columns.iter();
                    blocks.extend(cases.filter_map(|(column, scenario)| netperf::block(view, column, scenario)));
                    // What a case is relative to is the overview's to say.
                    (sheets::netperf(group.kind), None)
                }
                _ => (sheets::columns(group.kind), view.baseline.as_deref()),
            };
            blocks.extend(group_tables(view, &group, &sheets, relative_to));
        }
    }
    blocks
}

/// A table for each sheet that has a line; what the reader must know stands below the last.
fn group_tables(view: &RunView, group: &Group<'_>, sheets: &[Sheet], relative_to: Option<&str>) -> Vec<Block> {
    let mut tables: Vec<Table> = sheets.iter().filter_map(|sheet| table(view, group, sheet, relative_to)).collect();
    // Below the costs; latencies and delays follow them.
    let place = tables
        .iter()
        .rposition(|t| !(t.caption.ends_with("latency") || t.caption.ends_with("delay")))
        .or(tables.len().checked_sub(1));
    if let Some(table) = place.and_then(|i| tables.get_mut(i)) {
        table.notes = notes(group);
    }
    tables.into_iter().map(Block::Table).collect()
}

fn table(view: &RunView, group: &Group<'_>, sheet: &Sheet, relative_to: Option<&str>) -> Option<Table> {
    let mut table = Table::new(format!("{} – {}", group.title, sheet.shows), "Metric");
    table.columns = group.columns.iter().map(|column| Column::number(group.label(column), None)).collect();
    table.reference = Some(STUDY.to_owned());
    for (label, side, metric) in &sheet.lines {
        let row = row(view.level, group, *side, *metric, label);
        if !(metric.row().is_optional && row.cells.iter().all(|cell| matches!(cell, Cell::Missing { .. }))) {
            table.rows.push(row);
        }
    }
    if let (true, Some(id), Some((_, side, metric))) = (sheet.relative, relative_to, sheet.lines.first()) {
        table.rows.extend(baseline_row(view, group, id, *side, *metric));
    }
    (!table.rows.is_empty()).then_some(table)
}

/// A figure as a multiple of that of scenario `id`, the study's beside it; `None` where that is of another kind or
/// alone.
fn baseline_row(view: &RunView, group: &Group<'_>, id: &str, side: Side, metric: Metric) -> Option<Row> {
    let base = view.scenarios.iter().find(|s| s.id == id).filter(|s| kind(s) == group.kind)?;
    if group.columns.iter().all(|(_, scenario)| scenario.id == id) {
        return None;
    }
    let published = group.columns.iter().find(|(column, _)| column.scenario == id);
    let published = published.and_then(|(column, _)| column.published.get(side, metric));
    let cell = |(column, scenario): &(&LayoutColumn, &ScenarioView)| {
        let study = column.published.get(side, metric).zip(published).map(|(own, base)| own / base);
        ratio(view.level, scenario, base, side, metric)
            .map_or_else(|| Cell::missing("no trials of both"), |ratio| ratio.with_reference(study).into())
    };
    let label = format!("{}, {id} = 1", name(metric));
    Some(Row { label, unit: None, cells: group.columns.iter().map(cell).collect() })
}

/// The figure of `scenario` divided by that of `base`, as a claim about it would be judged; `None` where either is missing or zero.
pub(super) fn ratio(
    level: Level,
    scenario: &ScenarioView,
    base: &ScenarioView,
    side: Side,
    metric: Metric,
) -> Option<Number> {
    ratio_of_sums(level, (scenario, &[side]), (base, &[side]), metric)
}

/// As [`ratio`], of the sums of the figures of these sides.
pub(super) fn ratio_of_sums(
    level: Level,
    (scenario, sides): (&ScenarioView, &[Side]),
    (base, base_sides): (&ScenarioView, &[Side]),
    metric: Metric,
) -> Option<Number> {
    let sum = |s: &ScenarioView, sides: &[Side]| {
        let figure = |side: &Side| FigureRef { scenario: s.id.clone(), phase: None, side: *side, metric }.to_string();
        sides.iter().map(figure).collect::<Vec<_>>().join(" + ")
    };
    let ratio = Claim::value(&format!("({}) / ({})", sum(scenario, sides), sum(base, base_sides))).ok()?;
    // The baseline is not held against itself as if it were measured twice.
    let others = if scenario.id == base.id { &[] } else { base.trials.as_slice() };
    let ratio = judge::value(&ratio, scenario.trials.iter().chain(others), level);
    let interval = ratio.interval.map(|i| Interval { low: i.low, high: i.high });
    Some(Number::new(ratio.effect?, 2).with_interval(interval).with_bound(ratio.bound))
}

fn row(level: Level, group: &Group<'_>, side: Side, metric: Metric, label: &str) -> Row {
    let cell = |(column, scenario): &(&LayoutColumn, &ScenarioView)| match mean(scenario, side, metric, level) {
        Ok(number) => {
            number.with_reference(column.published.get(side, metric).map(|value| shown(metric, value))).into()
        }
        Err(why) => Cell::missing(why),
    };
    Row {
        label: label.to_owned(),
        unit: Some(unit(metric).to_owned()),
        cells: group.columns.iter().map(cell).collect(),
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
    let trials = view.scenarios.iter().flat_map(|scenario| &scenario.trials);
    if let Some(way) = accounting::way(trials) {
        key += " ";
        key += &way;
    }
    key
}

/// What the reader must know to read the tables of this group.
fn notes(group: &Group<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(source) = group.source {
        notes.push(format!("{STUDY}: the published figure ({source}), from other machines and another system."));
    }
    notes.extend(group.remarks.iter().cloned());
    notes.extend(remarks(group.columns.iter().map(|(column, scenario)| (column.head.clone(), *scenario))));
    notes
}

/// What is to be said of scenarios under their heads: each remark once, after the heads that it belongs to.
pub(super) fn remarks<'a>(scenarios: impl Iterator<Item = (String, &'a ScenarioView)>) -> Vec<String> {
    let mut remarks: Vec<(String, Vec<String>)> = Vec::new();
    for (head, scenario) in scenarios {
        let missed = match &scenario.certainty {
            Certainty::Missed(words) => Some(format!("confidence not reached: {words}")),
            Certainty::Failed(words) => Some(words.clone()),
            Certainty::Unfinished => Some("the run ended before the figures were certain".to_owned()),
            Certainty::Fixed | Certainty::Reached => None,
        };
        for remark in scenario.notes.iter().cloned().chain(missed).chain(clocks::of_delays(&scenario.trials)) {
            match remarks.iter_mut().find(|(text, _)| *text == remark) {
                Some((_, heads)) => heads.push(head.clone()),
                None => remarks.push((remark, vec![head.clone()])),
            }
        }
    }
    remarks.into_iter().map(|(remark, heads)| format!("{}: {remark}", heads.join(", "))).collect()
}

/// Most scenarios whose flame graphs a report shows: they are large.
const FLAMES: usize = 8;

/// Where CPUs spent their time, those of the device under test or, where they were sampled by layer, of the ends: of a row for each number of workers those with the fewest and
/// the most, of other scenarios all.
pub(super) fn flames(view: &RunView) -> Vec<Block> {
    let profiled = |id: &str| {
        let scenario = view.scenarios.iter().find(|scenario| scenario.id == id)?;
        flames::is_profiled(scenario).then_some(scenario)
    };
    let layouts = layouts(view);
    let mut shown: Vec<&ScenarioView> = Vec::new();
    let mut in_rows: Vec<&str> = Vec::new();
    for layout in &layouts {
        let Form::Workers(workers) = &layout.form else { continue };
        for case in &workers.cases {
            let mut rows: Vec<_> = case.rows.iter().filter_map(|(n, id)| Some((*n, profiled(id)?))).collect();
            rows.sort_by_key(|(workers, _)| *workers);
            in_rows.extend(case.rows.iter().map(|(_, id)| id.as_str()));
            let ends = rows.first().into_iter().chain(rows.last().filter(|_| rows.len() > 1));
            shown.extend(ends.map(|(_, scenario)| scenario));
        }
    }
    let others = view.scenarios.iter().filter(|s| !in_rows.contains(&s.id.as_str()));
    shown.extend(others.filter_map(|scenario| profiled(&scenario.id)));
    let left_out = shown.len().saturating_sub(FLAMES);
    let mut blocks: Vec<Block> = shown.into_iter().take(FLAMES).flat_map(flames::of).collect();
    if left_out > 0 {
        blocks.push(Block::info(format!("{left_out} more were profiled; their stacks are in the JSON of the run.")));
    }
    blocks
}

/// `Without load, netrig's own processes used 0.3 % of node a's CPU time and 0.2 % of node b's; everything on the machine together
/// used 1.1 % of node a's CPU time and 0.9 % of node b's.`
fn rig_cost(view: &RunView) -> Option<String> {
    let cost = view.rig_cost.as_ref()?;
    let mut text = format!("Without load, netrig's own processes used {}", shares(&cost.nodes)?);
    if let Some(busy) = shares(&cost.busy) {
        text.push_str(&format!("; everything on the machine together used {busy}"));
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

/// For each group of scenarios: what was carried with intervals, how long it took, CPU time by kind.
pub(super) fn charts(view: &RunView) -> Vec<Block> {
    let mut blocks = Vec::new();
    for layout in layouts(view) {
        match &layout.form {
            Form::Workers(rows) => blocks.extend(workers::charts(view, &layout, rows)),
            Form::Overview(overview) => {
                blocks.push(Block::Figure(Chart::Bars(overview::chart(view, &layout, overview))));
            }
            Form::Columns(_) | Form::Netperf(_) | Form::Platform(_) => {}
        }
        for group in groups(view, &layout).iter().filter(|group| group.is_measured()) {
            blocks.push(Block::Figure(Chart::Bars(rates(view.level, group))));
            blocks.extend(latency::distributions(&group.title, group.kind, &group.columns).map(Block::Figure));
            blocks.push(Block::Figure(Chart::Stacked(cpu(group))));
        }
    }
    blocks
}

fn rates(level: Level, group: &Group<'_>) -> Bars {
    let rates = group.kind.rates();
    let (_, metric) = rates[0];
    let bars = |(column, scenario): &(&LayoutColumn, &ScenarioView)| {
        let bar = |(side, metric): &(Side, Metric)| {
            let reference = column.published.get(*side, *metric).map(|value| shown(*metric, value));
            Some(mean(scenario, *side, *metric, level).ok()?.with_reference(reference))
        };
        rates.iter().map(bar).collect()
    };
    let measured = "measured, with confidence interval";
    let (title, series) = match group.kind {
        Kind::Stream => ("throughput at the receivers", vec![measured]),
        Kind::Datagrams => ("throughput with confidence interval", vec!["received", "sent"]),
        Kind::TwoWayStream | Kind::TwoWayDatagrams => {
            ("throughput arriving at each end, with confidence interval", vec!["local", "remote"])
        }
        Kind::Transactions | Kind::Requests => ("transactions per second", vec![measured]),
        Kind::Connections => ("connections per second", vec![measured]),
        Kind::Flood => ("packets per second with confidence interval", vec!["received", "sent"]),
    };
    Bars {
        title: format!("{} – {title}", group.title),
        axis: Axis::new(name(metric), unit(metric)),
        series: series.into_iter().map(str::to_owned).collect(),
        groups: group.columns.iter().map(|c| BarGroup { label: group.label(c), bars: bars(c) }).collect(),
        reference: group.source.map(|_| STUDY.to_owned()),
    }
}

fn cpu(group: &Group<'_>) -> Stacked {
    let rows = group.columns.iter().flat_map(|(column, scenario)| {
        let nodes = scenario
            .trials
            .first()
            .into_iter()
            .flat_map(|trial| trial.nodes.iter().filter(move |node| !figures::is_idle(trial, node)));
        nodes.map(|node| cpu_row(group.kind, column, scenario, node))
    });
    Stacked {
        title: format!("{} – what the nodes' CPUs did", group.title),
        axis: Axis::new("Share of the node's CPU time", "%"),
        limit: 100.0,
        parts: PARTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        rows: rows.collect(),
    }
}

/// The mean over the trials of what the CPUs of one node did.
fn cpu_row(kind: Kind, column: &LayoutColumn, scenario: &ScenarioView, node: &NodeRecord) -> StackedRow {
    let sides = kind.sides().into_iter().filter(|side| figures::is_on(&scenario.trials[0], node, *side));
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
