//! What each layer costs: a bar for each end of each scenario, what one scenario spends more than another, and all parts
//! with their intervals.

use rig_facts::figures::Kind;
use rig_facts::layers::{
    APPLICATION, LayerDifference, LayerPart, LayersData, MUCH_UNKNOWN, Pairing, UNKNOWN, differences, of_scenario,
};
use rig_stats::confidence::Level;
use rig_stats::units::counted;
use rig_sys::perf::Clock;
use rig_verdict::view::{RunView, ScenarioView};

use crate::document::{Axis, Block, Cell, Chart, Column, Interval, Label, Number, Row, Stacked, StackedRow, Table};

/// A layer that differs by less than this share of the total, and not surely, is among the others.
const SMALL: f64 = 0.02;
/// A note says how well the samples know this share of the total.
const NAMED_SHARE: f64 = 0.05;
/// Functions without a layer that a warning names.
const NAMED: usize = 5;

/// A scenario with what its ends spent.
type Sampled<'a> = (&'a ScenarioView, Vec<LayersData>);

/// Empty where no stacks were sampled by layer.
pub(super) fn blocks(view: &RunView) -> Vec<Block> {
    let sampled: Vec<Sampled<'_>> =
        view.scenarios.iter().map(|scenario| (scenario, of_scenario(&scenario.trials, view.level))).collect();
    let sampled: Vec<Sampled<'_>> = sampled.into_iter().filter(|(_, ends)| !ends.is_empty()).collect();
    if sampled.is_empty() {
        return Vec::new();
    }
    let mut blocks = vec![
        Block::heading(2, "Cost by layer"),
        Block::paragraph(
            "CPU time of each end as it was counted, divided by the stacks that were sampled in a second window of each trial, \
             with the same load. A sample belongs to the layer of its innermost function that has one; copies, memory and \
             locks count to themselves here, and to the layers that called for them in the scenarios' tables. What other programs did \
             on these CPUs is a layer of its own.",
        ),
    ];
    blocks.extend(warnings(&sampled));
    blocks.extend(charts(&sampled).into_iter().map(|chart| Block::Figure(Chart::Layers(chart))));
    blocks.extend(differences_of(view, &sampled).into_iter().map(Block::Table));
    blocks
}

/// How stacks were sampled; `None` where they were not.
pub(super) fn method(view: &RunView) -> Option<String> {
    let trials = view.scenarios.iter().flat_map(|scenario| &scenario.trials);
    let by_layer = trials.clone().filter_map(|trial| trial.layers.as_ref()).map(|layers| layers.clock);
    let profiles = trials.filter_map(|trial| trial.dut.as_ref()?.profile.as_ref()).map(|profile| profile.clock);
    let clocks: Vec<Clock> = by_layer.chain(profiles).map(Option::unwrap_or_default).collect();
    let some = |wanted: Clock| clocks.contains(&wanted).then(|| describe(wanted));
    let all: Vec<&str> = [some(Clock::Cycles), some(Clock::CpuClock)].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; in other trials "))
}

fn describe(clock: Clock) -> &'static str {
    match clock {
        Clock::Cycles => {
            "one in a fixed number of the CPU's cycles (PERF_COUNT_HW_CPU_CYCLES), of which a halted CPU has none"
        }
        Clock::CpuClock => {
            "at fixed intervals of the kernel's timer (PERF_COUNT_SW_CPU_CLOCK), which does not see into code with \
             interrupts off"
        }
    }
}

/// All parts of one scenario.
pub(super) fn details(scenario: &ScenarioView, level: Level) -> Vec<Block> {
    of_scenario(&scenario.trials, level).iter().map(|end| Block::Table(table(scenario, end, level))).collect()
}

pub(crate) fn decimals(unit: &str) -> u8 {
    if matches!(unit, "us/Tr" | "us/connection") { 2 } else { 3 }
}

/// As readers write it.
pub(crate) fn shown(unit: &str) -> String {
    unit.replacen("us", "µs", 1)
}

fn warnings(sampled: &[Sampled<'_>]) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (scenario, end) in sampled.iter().flat_map(|(scenario, ends)| ends.iter().map(move |end| (scenario, end))) {
        if end.unknown_percent > MUCH_UNKNOWN {
            let functions: Vec<&str> =
                end.unknown_functions.iter().take(NAMED).map(|(name, _)| name.as_str()).collect();
            blocks.push(Block::warning(format!(
                "{}, {}: {:.1} % of the time has no layer, mostly in {}. A file of layers (netrig run --layers=FILE) can name them.",
                scenario.id,
                end.end,
                end.unknown_percent,
                functions.join(", "),
            )));
        }
    }
    let misplaced: Vec<String> = sampled
        .iter()
        .flat_map(|(scenario, ends)| ends.iter().filter(|end| end.misplaced_trials > 0).map(move |end| (scenario, end)))
        .map(|(scenario, end)| {
            format!("{} {} ({} of {})", scenario.id, end.end, end.misplaced_trials, end.trials.len())
        })
        .collect();
    if !misplaced.is_empty() {
        blocks.push(Block::warning(format!(
            "The kernel's timer, by which stacks are sampled, found CPUs busy for clearly more or less time than was counted, in trials of {}: their parts may \
             be off.",
            misplaced.join(", ")
        )));
    }
    blocks
}

/// One for each unit, since bars are compared by their length.
fn charts(sampled: &[Sampled<'_>]) -> Vec<Stacked> {
    // A layer has one colour in all charts.
    let mut titles: Vec<(&str, &str)> = Vec::new();
    for part in sampled.iter().flat_map(|(_, ends)| ends).flat_map(|end| &end.parts) {
        if !titles.iter().any(|(id, _)| *id == part.layer) {
            titles.push((&part.layer, &part.title));
        }
    }
    titles.sort_by_key(|(id, _)| (*id != APPLICATION, *id == UNKNOWN));
    let mut charts: Vec<(Kind, &str, Stacked)> = Vec::new();
    for (scenario, ends) in sampled {
        let kind = Kind::of(&scenario.plan).unwrap_or(Kind::Stream);
        for end in ends {
            let index = charts.iter().position(|(of, unit, _)| *of == kind && *unit == end.unit).unwrap_or_else(|| {
                let title = format!("CPU time by layer, {}", super::sheets::words(kind));
                let axis = Axis::new("CPU time", shown(&end.unit));
                let parts = titles.iter().map(|(_, title)| (*title).to_owned()).collect();
                charts.push((kind, &end.unit, Stacked { title, axis, limit: 0.0, parts, rows: Vec::new() }));
                charts.len() - 1
            });
            let chart = &mut charts[index].2;
            let value =
                |(id, _): &(&str, &str)| end.parts.iter().find(|part| part.layer == *id).map_or(0.0, |part| part.mean);
            chart.limit = chart.limit.max(end.total * 1.02);
            chart.rows.push(StackedRow {
                label: Label::with_subhead(&scenario.id, end.end.name()),
                values: titles.iter().map(value).collect(),
                figure: Number::new(end.total, decimals(&end.unit)),
            });
        }
    }
    charts.into_iter().map(|(_, _, chart)| chart).collect()
}

/// What a scenario is held against: the baseline, or the first scenario, with the same load; where there is none, the baseline
/// or the first with a load of its kind.
fn base<'a>(view: &RunView, sampled: &'a [Sampled<'a>], of: &ScenarioView) -> Option<&'a Sampled<'a>> {
    let baseline = || sampled.iter().filter(|(one, _)| Some(&one.id) == view.baseline.as_ref());
    let first = |is_alike: &dyn Fn(&ScenarioView) -> bool| baseline().chain(sampled).find(|(one, _)| is_alike(one));
    let same = first(&|one| one.plan == of.plan);
    let several = sampled.iter().filter(|(one, _)| one.plan == of.plan).count() > 1;
    same.filter(|_| several).or_else(|| first(&|one| Kind::of(&one.plan) == Kind::of(&of.plan)))
}

fn differences_of(view: &RunView, sampled: &[Sampled<'_>]) -> Vec<Table> {
    let mut tables: Vec<(String, Vec<(String, rig_facts::layers::LayerDifferences)>)> = Vec::new();
    for (scenario, ends) in sampled {
        let Some((base, before)) = base(view, sampled, scenario) else { continue };
        if base.id == scenario.id {
            continue;
        }
        for end in ends {
            let Some(old) = before.iter().find(|old| old.end == end.end) else { continue };
            let Some(found) = differences(old, end, Pairing::Blocks, view.level) else { continue };
            let index = tables.iter().position(|(of, _)| *of == base.id).unwrap_or_else(|| {
                tables.push((base.id.clone(), Vec::new()));
                tables.len() - 1
            });
            tables[index].1.push((scenario.id.clone(), found));
        }
    }
    tables.into_iter().map(|(base, columns)| difference_table(&base, &columns)).collect()
}

fn difference_table(base: &str, columns: &[(String, rig_facts::layers::LayerDifferences)]) -> Table {
    let mut table = Table::new(format!("CPU time added to {base}, by layer"), "Layer");
    table.columns = columns
        .iter()
        .map(|(id, found)| Column::number(Label::with_subhead(id, found.end.name()), Some(&shown(&found.unit))))
        .collect();
    let mut layers: Vec<(&str, &str)> = Vec::new();
    for part in columns.iter().flat_map(|(_, found)| &found.parts) {
        if !layers.iter().any(|(id, _)| *id == part.layer) {
            layers.push((&part.layer, &part.title));
        }
    }
    layers.sort_by_key(|(id, _)| *id == UNKNOWN);
    let of = |found: &rig_facts::layers::LayerDifferences, id: &str| {
        found.parts.iter().find(|part| part.layer == id).cloned()
    };
    let matters = |id: &str| {
        columns.iter().any(|(_, found)| {
            of(found, id).is_some_and(|part| part.is_sure() || part.difference.abs() > SMALL * found.total.old)
        })
    };
    let (shown, others): (Vec<_>, Vec<_>) = layers.into_iter().partition(|(id, _)| matters(id));
    let row = |label: &str, cell: &dyn Fn(&rig_facts::layers::LayerDifferences) -> Cell| Row {
        label: label.to_owned(),
        unit: None,
        cells: columns.iter().map(|(_, found)| cell(found)).collect(),
    };
    table.rows = shown
        .iter()
        .map(|(id, title)| {
            row(title, &|found| {
                of(found, id).map_or_else(
                    || Cell::missing("neither scenario has samples of it"),
                    |part| change(&part, &found.unit),
                )
            })
        })
        .collect();
    if !others.is_empty() {
        let sum = |found: &rig_facts::layers::LayerDifferences| {
            let parts = others.iter().filter_map(|(id, _)| of(found, id));
            Cell::number(parts.map(|part| part.difference).sum(), decimals(&found.unit))
        };
        table.rows.push(row("Others", &sum));
    }
    table.rows.push(row("All", &|found| change(&found.total, &found.unit)));
    table.notes.push(
        "Trials of the same block are compared with each other; an interval that has 0 in it says nothing of a difference."
            .to_owned(),
    );
    table
}

/// A difference with its interval.
pub(crate) fn change(part: &LayerDifference, unit: &str) -> Cell {
    let interval = part.low.zip(part.high).map(|(low, high)| Interval { low, high });
    Number::new(part.difference, decimals(unit)).with_interval(interval).into()
}

fn table(scenario: &ScenarioView, end: &LayersData, level: Level) -> Table {
    let unit = shown(&end.unit);
    let mut table = Table::new(format!("CPU time of {} by layer, {}", scenario.id, end.end), "Layer");
    table.columns = vec![
        Column::number(Label::new("Itself"), Some(&unit)),
        Column::number(Label::new("Share"), Some("%")),
        Column::number(Label::new("With what it called for"), Some(&unit)),
    ];
    let places = decimals(&end.unit);
    let share = |part: &LayerPart| part.percent_low.zip(part.percent_high).map(|(low, high)| Interval { low, high });
    let row = |part: &LayerPart| Row {
        label: part.title.clone(),
        unit: None,
        cells: vec![
            Number::new(part.mean, places).with_interval(Some(Interval { low: part.low, high: part.high })).into(),
            Number::new(part.percent, 1).with_interval(share(part)).into(),
            Cell::number(part.with_called, places),
        ],
    };
    let whole = end.total_low.zip(end.total_high).map(|(low, high)| Interval { low, high });
    let all = Row {
        label: "All".to_owned(),
        unit: None,
        cells: vec![
            Number::new(end.total, places).with_interval(whole).into(),
            Cell::number(end.parts.iter().map(|part| part.percent).sum(), 1),
            Cell::number(end.parts.iter().map(|part| part.with_called).sum(), places),
        ],
    };
    table.rows = end.parts.iter().map(row).chain([all]).collect();
    let known = level.normal() * ((1.0 - NAMED_SHARE) / NAMED_SHARE / end.samples as f64).sqrt();
    let mut note = format!(
        "{} samples in {}, which alone know a share of {:.0} % to +-{:.0} % of itself.",
        end.samples,
        counted(end.trials.len(), "trial", "trials"),
        100.0 * NAMED_SHARE,
        100.0 * known
    );
    if let Some(sampled) = end.sampled_total {
        note +=
            &format!(" In the windows in which they were taken the end spent {} {unit}.", Number::new(sampled, places));
    }
    if end.trials.len() == 1 {
        note += " Of one trial the intervals are those of the samples alone.";
    }
    table.notes = vec![note];
    table
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::with_layers;
    use rig_verdict::fixture::run_view;

    use super::*;

    /// All scenarios sampled, with more of netfilter the later they stand.
    fn view() -> RunView {
        let mut view = run_view();
        for (index, scenario) in view.scenarios.iter_mut().enumerate() {
            let trials = std::mem::take(&mut scenario.trials);
            scenario.trials = trials.into_iter().map(|trial| with_layers(trial, 40 * index as u64)).collect();
        }
        view
    }

    fn table_of<'a>(blocks: &'a [Block], caption: &str) -> &'a Table {
        let tables = blocks.iter().filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None });
        tables.into_iter().find(|table| table.caption.contains(caption)).unwrap_or_else(|| panic!("{blocks:#?}"))
    }

    fn value(cell: &Cell) -> f64 {
        if let Cell::Number(number) = cell { number.value } else { panic!("{cell:?}") }
    }

    #[test]
    fn each_end_has_a_bar_whose_parts_are_its_service_demand() {
        let view = view();
        let blocks = blocks(&view);
        let chart = blocks
            .iter()
            .find_map(|block| if let Block::Figure(Chart::Layers(chart)) = block { Some(chart) } else { None });
        let chart = chart.unwrap();
        assert_eq!(chart.parts, ["Application", "Copy", "Socket, TCP and UDP", "Netfilter", "Unknown"]);
        // C has both ends on one node, T2 no trial.
        let labels: Vec<String> = chart.rows.iter().map(|row| row.label.to_string()).collect();
        assert_eq!(labels[..4], ["A sender", "A receiver", "B sender", "B receiver"]);
        assert!(!labels.iter().any(|label| label.starts_with("T2")));
        for row in &chart.rows {
            assert!((row.values.iter().sum::<f64>() - row.figure.value).abs() < 1e-9, "{row:?}");
        }
        let details = details(&view.scenarios[1], view.level);
        let table = table_of(&details, "CPU time of B by layer, sender");
        let (all, parts) = table.rows.split_last().unwrap();
        for column in 0..3 {
            let sum: f64 = parts.iter().map(|row| value(&row.cells[column])).sum();
            assert!((sum - value(&all.cells[column])).abs() < 1e-9, "column {column}");
        }
        assert!(
            table.notes[0].contains("In the windows in which they were taken the end spent 0.600 µs/KB."),
            "{table:?}"
        );
    }

    #[test]
    fn what_a_scenario_adds_is_told_by_layer() {
        let blocks = blocks(&view());
        let table = table_of(&blocks, "CPU time added to B, by layer");
        let (all, parts) = table.rows.split_last().unwrap();
        for column in 0..table.columns.len() {
            let sum: f64 = parts.iter().map(|row| value(&row.cells[column])).sum();
            assert!((sum - value(&all.cells[column])).abs() < 1e-9, "{table:#?}");
        }
        let netfilter = table.rows.iter().find(|row| row.label == "Netfilter").unwrap();
        let last = netfilter.cells.last().unwrap();
        assert!(
            matches!(last, Cell::Number(Number { interval: Some(interval), .. }) if interval.low > 0.0),
            "{last:?}"
        );
    }

    #[test]
    fn much_time_without_a_layer_is_said_with_the_functions() {
        let mut view = view();
        let is_warned = |view: &RunView| {
            blocks(view).iter().any(|block| {
            matches!(block, Block::Notice { text, .. } if text.contains("has no layer, mostly in somewhere_[k]"))
        })
        };
        assert!(!is_warned(&view));
        let layers = view.scenarios[0].trials[0].layers.as_mut().unwrap();
        layers.nodes[0].parts[1].samples = 500;
        assert!(is_warned(&view));
    }

    #[test]
    fn it_is_said_what_stacks_were_sampled_by() {
        let mut view = view();
        // Of records that do not tell, too.
        assert!(method(&view).is_some_and(|text| text.starts_with("at fixed intervals of the kernel's timer")));
        view.scenarios[0].trials[0].layers.as_mut().unwrap().clock = Some(Clock::Cycles);
        let both = method(&view).unwrap();
        assert!(both.contains("cycles") && both.contains("; in other trials at fixed intervals"), "{both}");
    }

    #[test]
    fn runs_without_samples_say_nothing_of_layers() {
        assert!(blocks(&run_view()).is_empty() && method(&run_view()).is_none());
    }
}
