//! The phases of a scenario: a table of their figures, and what was sampled over time.

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::Kind;
use rig_facts::figures::phases::{latency_over_time, of_phase, rate_over_time};
use rig_facts::programme::ScenarioLoad;
use rig_facts::record::{CommandRecord, PhaseEnd, PhaseRecord, TrialRecord};
use rig_stats::confidence::Level;
use rig_suite::suite::shown as shown_settings;
use rig_verdict::view::ScenarioView;

use super::{decimals, mean_of, name, shown, unit};
use crate::document::{Axis, Block, Cell, Chart, Column, Label, Line, Number, PhaseSpan, Row, Table, TimelineChart};

/// The percentiles that are shown over time: their names in the report and in the record.
const PERCENTILES: [(&str, &str); 4] = [("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("max", "max")];

/// Empty for a scenario whose trials have no phases.
pub(super) fn blocks(scenario: &ScenarioView, level: Level) -> Vec<Block> {
    let Some(kind) = Kind::of(&scenario.plan) else { return Vec::new() };
    let mut blocks = Vec::new();
    if scenario.trials.iter().any(|trial| !trial.phases.is_empty()) {
        blocks.push(Block::Table(table(scenario, kind, level)));
    }
    if let Some(trial) = scenario.trials.iter().find(|trial| trial.series.is_some()) {
        blocks.extend(rates(scenario, kind).map(|chart| Block::Figure(Chart::Course(chart))));
        blocks.extend(latencies(scenario, trial).map(|chart| Block::Figure(Chart::Course(chart))));
        blocks.extend(sampling(trial).map(Block::info));
    }
    blocks
}

/// A row for each phase.
fn table(scenario: &ScenarioView, kind: Kind, level: Level) -> Table {
    let mut table = Table::new(format!("Phases of {}", scenario.id), "Phase");
    let first = scenario.trials.iter().find(|trial| !trial.phases.is_empty());
    let phases: &[PhaseRecord] = first.map_or(&[], |trial| &trial.phases);
    let is_told = |phase: &PhaseRecord| phase.rates.iter().any(|rate| rate.load == ScenarioLoad::Own);
    let has_rates = phases.iter().any(is_told);
    table.columns.push(Column::number(Label::new("Length"), Some("s")));
    if has_rates {
        table.columns.push(Column::number(Label::new("Rate asked"), Some(asked_unit(kind))));
    }
    let figures = of_phase(kind);
    let several = |metric: Metric| figures.iter().filter(|(_, other)| *other == metric).count() > 1;
    for (side, metric) in &figures {
        let head = if several(*metric) { format!("{}, {side}", name(*metric)) } else { name(*metric).to_owned() };
        table.columns.push(Column::number(Label::new(head), Some(unit(*metric))));
    }
    for phase in phases {
        let of_trials: Vec<&PhaseRecord> =
            scenario.trials.iter().filter_map(|trial| trial.phases.iter().find(|one| one.name == phase.name)).collect();
        let lengths = of_trials.iter().map(|phase| phase.end_ns.saturating_sub(phase.begin_ns) as f64 / 1e9);
        let mut cells = vec![Cell::number(mean(&lengths.collect::<Vec<_>>()).unwrap_or(f64::NAN), 2)];
        if has_rates {
            let asked = of_trials.iter().filter_map(|phase| {
                phase
                    .rates
                    .iter()
                    .find(|rate| rate.load == ScenarioLoad::Own)
                    .map(|rate| shown_rate(kind, rate.per_second))
            });
            cells.push(
                mean(&asked.collect::<Vec<_>>())
                    .map_or_else(|| Cell::missing("as in the phase before"), |r| Cell::number(r, 0)),
            );
        }
        let alone: Vec<TrialRecord> = scenario.trials.iter().filter_map(|trial| trial.of_phase(&phase.name)).collect();
        cells.extend(figures.iter().map(|(side, metric)| cell(&alone, *side, *metric, level)));
        table.rows.push(Row { label: phase.name.clone(), unit: None, cells });
    }
    table.notes = notes(&scenario.trials, kind);
    table
}

fn cell(trials: &[TrialRecord], side: Side, metric: Metric, level: Level) -> Cell {
    match mean_of(trials, side, metric, level) {
        Some(number) => Cell::from(Number { decimals: decimals(metric), ..number }),
        None => Cell::missing("too little was counted in the phase"),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// What the rates of a load are told in.
fn asked_unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Stream | Kind::TwoWayStream | Kind::Datagrams | Kind::TwoWayDatagrams => "Mbit/s",
        Kind::Transactions | Kind::Connections | Kind::Requests | Kind::Flood => "1/s",
    }
}

/// Of streams bytes per second were told.
fn shown_rate(kind: Kind, rate: f64) -> f64 {
    if asked_unit(kind) == "1/s" { rate } else { rate * 8.0 / 1e6 }
}

/// What has the rates of a load.
fn bearer(kind: Kind) -> &'static str {
    if asked_unit(kind) == "1/s" { "pair of ends" } else { "thread that sends" }
}

/// What rates were shares of, and what was waited for.
fn notes(trials: &[TrialRecord], kind: Kind) -> Vec<String> {
    let mut notes = Vec::new();
    let limits: Vec<f64> = trials.iter().filter_map(|trial| Some(trial.limit.as_ref()?.rate)).collect();
    if let Some(limit) = mean(&limits) {
        let times: Vec<f64> = trials.iter().filter_map(|t| Some(t.limit.as_ref()?.window_us as f64 / 1e6)).collect();
        let limit = crate::readable::figure(&Number::new(shown_rate(kind, limit), 1), asked_unit(kind));
        let each = if limits.len() > 1 { " (mean of the trials)" } else { "" };
        notes.push(format!(
            "Rates that are shares of the limit: before the window of each trial the load ran without its rate for {} s \
             and carried {limit} for each {}{each}.",
            mean(&times).unwrap_or_default(),
            bearer(kind),
        ));
    }
    let shares: Vec<String> = trials.first().map_or(&[][..], |trial| &trial.phases).iter().filter_map(share).collect();
    if !shares.is_empty() {
        notes.push(format!("Shares: {}.", shares.join(", ")));
    }
    notes
        .extend(trials.first().map_or(&[][..], |trial| &trial.phases).iter().flat_map(|phase| commands(phase, trials)));
    for trial in trials {
        for phase in &trial.phases {
            let seconds = |us: u64| us as f64 / 1e6;
            let (name, ordinal) = (&phase.name, trial.ordinal);
            match &phase.ended {
                PhaseEnd::Time => {}
                PhaseEnd::Reached { condition, after_us } => {
                    let after = seconds(*after_us);
                    notes.push(format!("Trial {ordinal}, {name}: {condition} after {after:.2} s."));
                }
                PhaseEnd::Deadline { condition, after_us } => {
                    let after = seconds(*after_us);
                    notes.push(format!(
                        "Trial {ordinal}, {name}: waited {after:.2} s for {condition}, which did not come."
                    ));
                }
            }
        }
    }
    notes
}

/// What datapaths were told when a phase began, with the longest that it took in any trial.
fn commands(phase: &PhaseRecord, trials: &[TrialRecord]) -> Vec<String> {
    let tell = |(number, told): (usize, &CommandRecord)| {
        let same = trials.iter().flat_map(|trial| trial.phases.iter().filter(|one| one.name == phase.name));
        let of_trials = same.filter_map(|phase| phase.commands.get(number));
        let longest_ns = of_trials.map(|one| one.answered_ns.saturating_sub(one.told_ns)).max().unwrap_or_default();
        let nodes: Vec<&str> = told.answers.iter().map(|(node, _)| node.as_str()).collect();
        let arguments = match shown_settings(&told.arguments) {
            arguments if arguments.is_empty() => arguments,
            arguments => format!(": {arguments}"),
        };
        format!(
            "{} begins with command {} to {} on {}{arguments}; answered within {:.1} ms.",
            phase.name,
            told.command,
            told.datapath,
            nodes.join(", "),
            longest_ns as f64 / 1e6,
        )
    };
    phase.commands.iter().enumerate().map(tell).collect()
}

fn share(phase: &PhaseRecord) -> Option<String> {
    let share = phase.rates.iter().find_map(|rate| rate.share)?;
    Some(format!("{} {:.0} %", phase.name, share * 100.0))
}

/// What was carried, a line for each trial.
fn rates(scenario: &ScenarioView, kind: Kind) -> Option<TimelineChart> {
    let (side, metric) = *kind.rates().first()?;
    let lines = scenario.trials.iter().map(|trial| Line {
        label: format!("trial {}", trial.ordinal),
        points: rate_over_time(trial, side, metric).into_iter().map(|(at, rate)| (at, shown(metric, rate))).collect(),
    });
    let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
    (!lines.is_empty()).then(|| TimelineChart {
        title: format!("{} of {} over time", name(metric), scenario.id),
        x: Axis::new("Time in the window", "s"),
        y: Axis::new(name(metric), unit(metric)),
        is_logarithmic: false,
        lines,
        phases: stretches(scenario.trials.first()),
    })
}

/// What the answers of each interval took in one trial.
fn latencies(scenario: &ScenarioView, trial: &TrialRecord) -> Option<TimelineChart> {
    let line = |(label, percentile): (&str, &str)| Line {
        label: label.to_owned(),
        points: latency_over_time(trial, percentile),
    };
    let lines: Vec<Line> = PERCENTILES.map(line).into_iter().filter(|line| !line.points.is_empty()).collect();
    (!lines.is_empty()).then(|| TimelineChart {
        title: format!("Latency of {} over time, trial {}", scenario.id, trial.ordinal),
        x: Axis::new("Time in the window", "s"),
        y: Axis::new("Latency", "µs"),
        is_logarithmic: true,
        lines,
        phases: stretches(Some(trial)),
    })
}

/// The phases of a trial on its own time.
pub(super) fn stretches(trial: Option<&TrialRecord>) -> Vec<PhaseSpan> {
    let Some(trial) = trial else { return Vec::new() };
    let at = |ns: u64| ns.saturating_sub(trial.window_begin_ns) as f64 / 1e9;
    let stretch =
        |phase: &PhaseRecord| PhaseSpan { label: phase.name.clone(), from: at(phase.begin_ns), to: at(phase.end_ns) };
    trial.phases.iter().map(stretch).collect()
}

fn sampling(trial: &TrialRecord) -> Option<String> {
    let series = trial.series.as_ref()?;
    let readings = series.nodes.first().map_or(0, |track| track.span_us.len()).max(1);
    let seconds = trial.seconds().max(1e-9);
    Some(format!(
        "Counters were read each {} ms; one reading took {:.0} µs of CPU time, {:.2} % of one CPU. An interval's latencies \
         are those of the answers that came in it, to 1.6 %; a phase's are those of what was due in it.",
        series.interval_us as f64 / 1e3,
        series.cost_us as f64 / readings as f64,
        series.cost_us as f64 / 1e4 / seconds,
    ))
}

#[cfg(test)]
mod tests {
    use rig_facts::fixture::with_phases;
    use rig_facts::record::LimitRecord;
    use rig_verdict::fixture;

    use super::*;

    #[test]
    fn commands_are_told_once_with_the_longest_that_they_took() {
        let trials = fixture::run_view().scenarios.remove(0).trials;
        let trials: Vec<TrialRecord> = trials.into_iter().take(2).map(with_phases).collect();
        let expected =
            "after begins with command weight to balancer on lb: backend 1, weight 0; answered within 0.8 ms.";
        assert_eq!(notes(&trials, Kind::Stream), [expected]);
    }

    #[test]
    fn what_was_carried_without_a_rate_has_the_unit_of_the_load() {
        let mut trial = fixture::run_view().scenarios.remove(0).trials.remove(0);
        trial.limit = Some(LimitRecord { rate: 4_583_925_000.0, window_us: 2_000_000 });
        let carried = |kind| notes(std::slice::from_ref(&trial), kind).remove(0);
        let expected = "before the window of each trial the load ran without its rate for 2 s and carried 36.7 Gbit/s for each thread that \
                        sends.";
        assert!(carried(Kind::Stream).ends_with(expected), "{}", carried(Kind::Stream));
        trial.limit = Some(LimitRecord { rate: 12_345.0, window_us: 2_000_000 });
        let carried = notes(&[trial], Kind::Transactions).remove(0);
        assert!(carried.ends_with("and carried 12.3 thousand/s for each pair of ends."), "{carried}");
    }
}
