//! Cases against tests, each as a ratio of the baseline case.

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::Kind;
use rig_suite::suite::{Layout, Overview};
use rig_verdict::view::{RunView, ScenarioView};

use super::results::{STUDY, ratio};
use crate::document::{Axis, BarGroup, Bars, Block, Cell, Column, Label, Number, Row, Table};

/// One table: what it is called, which way is better, and the figure that it takes of a kind of load.
struct Measure {
    name: &'static str,
    better: &'static str,
    figure: fn(Kind) -> (Side, Metric),
}

const MEASURES: [Measure; 5] = [
    Measure { name: "throughput or transactions", better: "more", figure: |kind| kind.rates()[0] },
    Measure { name: "local CPU", better: "less", figure: |_| (Side::Local, Metric::Cpu) },
    Measure { name: "remote CPU", better: "less", figure: |_| (Side::Remote, Metric::Cpu) },
    Measure { name: "local service demand", better: "less", figure: |kind| (Side::Local, kind.demand()) },
    Measure { name: "remote service demand", better: "less", figure: |kind| (Side::Remote, kind.demand()) },
];

pub(super) fn tables(view: &RunView, layout: &Layout, overview: &Overview) -> Vec<Block> {
    MEASURES.iter().map(|measure| Block::Table(table(view, layout, overview, measure))).collect()
}

/// The first of its tables as bars, for each case but the baseline those of all tests.
pub(super) fn chart(view: &RunView, layout: &Layout, overview: &Overview) -> Bars {
    let table = table(view, layout, overview, &MEASURES[0]);
    let bar = |cell: &Cell| match cell {
        Cell::Number(number) => Some(*number),
        Cell::Text(_) | Cell::Missing { .. } => None,
    };
    let group = |row: &Row| BarGroup { label: Label::new(&row.label), bars: row.cells.iter().map(bar).collect() };
    let has_reference = table.rows.iter().any(Row::has_reference);
    Bars {
        axis: Axis::new(format!("{} = 1", overview.baseline), ""),
        series: overview.tests.clone(),
        groups: table.rows.iter().filter(|row| row.label != overview.baseline).map(group).collect(),
        reference: table.reference.filter(|_| has_reference),
        title: table.caption,
    }
}

fn table(view: &RunView, layout: &Layout, overview: &Overview, measure: &Measure) -> Table {
    let Overview { tests, cases, baseline } = overview;
    let mut table = Table::new(format!("{} – {}, {baseline} = 1", layout.title, measure.name), "Case");
    table.columns = tests.iter().map(|test| Column::number(Label::new(test), None)).collect();
    table.reference = Some(STUDY.to_owned());
    let base = cases.iter().find(|case| case.head == *baseline);
    table.rows = cases
        .iter()
        .map(|case| {
            let ids = case.scenarios.iter().zip(base.into_iter().flat_map(|base| &base.scenarios));
            let cells = ids.map(|(id, base)| cell(view, measure, id, base)).collect();
            Row { label: case.head.clone(), unit: None, cells }
        })
        .collect();
    table.notes.push(format!("The ratio of the means, with its confidence interval; {} is better.", measure.better));
    // The figures are those of the tables that show the scenarios themselves.
    let of_tables = || view.tables.iter().filter(|t| t.columns().iter().any(|c| !c.published.is_empty()));
    let source = layout.source.as_ref().or_else(|| of_tables().find_map(|table| table.source.as_ref()));
    if let Some(source) = source.filter(|_| table.rows.iter().any(Row::has_reference)) {
        table.notes.push(format!("{STUDY}: the ratio of the published figures ({source})."));
    }
    table
}

fn cell(view: &RunView, measure: &Measure, id: &str, base: &str) -> Cell {
    let scenario = |id: &str| view.scenarios.iter().find(|scenario| scenario.id == id);
    let (Some(own), Some(other)) = (scenario(id), scenario(base)) else {
        return Cell::missing("not part of the run");
    };
    let kind = |scenario: &ScenarioView| Kind::of(&scenario.plan).unwrap_or(Kind::Stream);
    if kind(own) != kind(other) {
        return Cell::missing(format!("scenarios {id} and {base} have loads of different kinds"));
    }
    let (side, metric) = (measure.figure)(kind(own));
    let published = |id: &str| {
        let columns = view.tables.iter().flat_map(Layout::columns);
        columns.filter(|column| column.scenario == id).find_map(|column| column.published.get(side, metric))
    };
    let study = published(id).zip(published(base)).map(|(own, base)| own / base);
    match ratio(view.level, own, other, side, metric) {
        // The baseline against itself is exactly 1 by definition.
        Some(ratio) if id == base => Number::new(ratio.value, ratio.decimals).into(),
        Some(ratio) => ratio.with_reference(study).into(),
        None => Cell::missing("no trials of both, or nothing to divide by"),
    }
}
