//! The run in one chart: what each scenario carried, how long it took, and what it cost.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::{self, Kind, is_on};
use rig_stats::confidence::Level;
use rig_stats::propagate::{Scale, Series, propagate};
use rig_suite::suite::{Form, Published};
use rig_verdict::view::{RunView, ScenarioView};

use super::results::{STUDY, layouts, ratio, ratio_of_sums};
use super::{mean_of, name, shown, unit, workers};
use crate::document::{Axis, Block, Chart, Interval, Label, Number, Overview, OverviewRow};

/// The chart, or for balancers what they carry with each number of workers; `None` without trials.
pub(super) fn chart(view: &RunView) -> Option<Block> {
    // As the charts further down have it, so that a system has the same colour in all.
    let in_rows = layouts(view).iter().find_map(|layout| match &layout.form {
        Form::Workers(rows) => workers::charts(view, layout, rows).into_iter().next(),
        _ => None,
    });
    in_rows.or_else(|| overview(view).map(|chart| Block::Figure(Chart::Overview(chart))))
}

fn kind(scenario: &ScenarioView) -> Kind {
    Kind::of(&scenario.plan).unwrap_or(Kind::Stream)
}

/// A scenario with what it is held against.
struct ComparedScenario<'a> {
    label: Label,
    own: &'a ScenarioView,
    base: Option<&'a ScenarioView>,
}

fn overview(view: &RunView) -> Option<Overview> {
    let measured = |id: &str| view.scenarios.iter().find(|s| s.id == id && !s.trials.is_empty());
    let by_case = view.tables.iter().find_map(|layout| match &layout.form {
        Form::Overview(overview) => Some(overview),
        _ => None,
    });
    let mut base_name = view.baseline.clone();
    let places: Vec<ComparedScenario<'_>> = match by_case.filter(|overview| overview.cases.len() > 1) {
        Some(overview) => {
            base_name = Some(overview.baseline.clone());
            let base = overview.cases.iter().find(|case| case.head == overview.baseline)?;
            let tests = overview.tests.iter().enumerate();
            // With a single test, the case that the others are divided by is a row too, to be compared with.
            let measured_tests = overview.tests.iter().enumerate().filter(|(i, _)| {
                overview.cases.iter().any(|case| case.scenarios.get(*i).is_some_and(|id| measured(id).is_some()))
            });
            let is_only = measured_tests.count() == 1;
            let of_test = |(i, test): (usize, &String)| -> Vec<ComparedScenario<'_>> {
                let base = base.scenarios.get(i).and_then(|id| measured(id));
                let others = overview.cases.iter().filter(|case| case.head != overview.baseline);
                let place = |case: &rig_suite::suite::OverviewCase| {
                    let own = case.scenarios.get(i).and_then(|id| measured(id))?;
                    Some(ComparedScenario { label: Label::with_subhead(test, &case.head), own, base })
                };
                let first = base.filter(|_| is_only).map(|own| ComparedScenario {
                    label: Label::with_subhead(test, &overview.baseline),
                    own,
                    base: Some(own),
                });
                first.into_iter().chain(others.filter_map(place)).collect()
            };
            tests.flat_map(of_test).collect()
        }
        None => {
            let all = || view.scenarios.iter().filter(|s| !s.trials.is_empty());
            let base = view.baseline.as_deref().and_then(measured);
            // Loads of different kinds have no common scale.
            let main = base.or_else(|| all().next()).map(kind)?;
            let label = |s: &ScenarioView| Label {
                head: s.id.clone(),
                subhead: Some(s.name.clone()).filter(|name| !name.is_empty() && *name != s.id),
            };
            all().filter(|s| kind(s) == main).map(|own| ComparedScenario { label: label(own), own, base }).collect()
        }
    };
    let first = kind(places.first()?.own);
    let relative = places.len() > 1 && places.iter().all(|place| place.base.is_some());
    let alike = places.iter().all(|place| kind(place.own) == first);
    if !alike && !relative {
        return None;
    }
    let mut chart = Overview {
        title: match relative {
            true => "What each scenario keeps, and what it costs",
            false => "What each scenario carries, and what it costs",
        }
        .to_owned(),
        panels: Vec::new(),
        rows: places.iter().map(|place| OverviewRow { label: place.label.clone(), numbers: Vec::new() }).collect(),
        reference: None,
    };
    let rate = match (relative, alike) {
        (true, true) => {
            format!("{} kept, {} = 100", name(first.rates()[0].1), base_name.as_deref().unwrap_or("baseline"))
        }
        (true, false) => format!("Rate kept, {} = 100", base_name.as_deref().unwrap_or("baseline")),
        (false, _) => name(first.rates()[0].1).to_owned(),
    };
    let rate_unit = if relative { "%" } else { unit(first.rates()[0].1) };
    add(&mut chart, &places, Axis::new(rate, rate_unit), |place| carried(view, place, relative));
    if alike && first == Kind::Transactions {
        let (side, metric) = (Side::Local, Metric::Latency(Statistic::P99));
        add(&mut chart, &places, Axis::new(name(metric), unit(metric)), |place| {
            mean_of(&place.own.trials, side, metric, view.level)
        });
    }
    // The workers of packet loads poll without rest, so that their CPU time does not depend on what they carry.
    if !places.iter().any(|place| kind(place.own).is_packets()) {
        let axis = match (alike, first.demand()) {
            (true, Metric::ServiceDemand) => Axis::new("CPU time of both ends for a byte", "ns"),
            (true, _) => Axis::new("CPU time of both ends for a transaction", "µs"),
            (false, _) => Axis::new(format!("CPU time of both ends, {} = 100", base_name.unwrap_or_default()), "%"),
        };
        add(&mut chart, &places, axis, |place| match alike {
            true => cost(view.level, place.own),
            false => place.base.and_then(|base| cost_against(view.level, place.own, base)),
        });
    }
    if chart.rows.iter().flat_map(|row| &row.numbers).flatten().any(|number| number.reference.is_some()) {
        chart.reference = Some(STUDY.to_owned());
    }
    (!chart.panels.is_empty()).then_some(chart)
}

/// Adds a panel, unless no scenario has the figure.
fn add(
    chart: &mut Overview,
    places: &[ComparedScenario<'_>],
    axis: Axis,
    number: impl Fn(&ComparedScenario<'_>) -> Option<Number>,
) {
    let numbers: Vec<Option<Number>> =
        places.iter().map(|place| number(place).filter(|number| number.value.is_finite())).collect();
    if numbers.iter().all(Option::is_none) {
        return;
    }
    chart.panels.push(axis);
    chart.rows.iter_mut().zip(numbers).for_each(|(row, number)| row.numbers.push(number));
}

fn carried(view: &RunView, place: &ComparedScenario<'_>, relative: bool) -> Option<Number> {
    let (side, metric) = kind(place.own).rates()[0];
    let published = |id: &str| {
        let columns = view.tables.iter().flat_map(rig_suite::suite::Layout::columns);
        let of = |p: &Published| p.get(side, metric);
        columns.filter(|column| column.scenario == id).find_map(|column| of(&column.published))
    };
    let own = published(&place.own.id);
    let Some(base) = place.base.filter(|_| relative) else {
        let reference = own.map(|value| shown(metric, value));
        return Some(mean_of(&place.own.trials, side, metric, view.level)?.with_reference(reference));
    };
    let study = own.zip(published(&base.id)).map(|(own, base)| 100.0 * own / base);
    let percent = times(ratio(view.level, place.own, base, side, metric)?, 100.0);
    // The baseline against itself is exactly 100 by definition.
    let percent = if place.own.id == base.id { percent.with_interval(None) } else { percent };
    Some(percent.with_reference(study))
}

fn times(number: Number, factor: f64) -> Number {
    let interval = number.interval.map(|i| Interval { low: i.low * factor, high: i.high * factor });
    Number { value: number.value * factor, interval, ..number }
}

/// The sides whose nodes are counted: one of them where both ends are on the same node.
fn sides(scenario: &ScenarioView) -> Vec<Side> {
    let sides = kind(scenario).sides();
    let shared = scenario
        .trials
        .first()
        .is_some_and(|trial| trial.nodes.iter().any(|node| sides.iter().all(|side| is_on(trial, node, *side))));
    if shared { sides[..1].to_vec() } else { sides.to_vec() }
}

/// CPU time of both ends for a byte in ns, or for a transaction in µs.
fn cost(level: Level, scenario: &ScenarioView) -> Option<Number> {
    let metric = kind(scenario).demand();
    // µs for 1024 bytes.
    let factor = if metric == Metric::ServiceDemand { 1000.0 / 1024.0 } else { 1.0 };
    let samples: Vec<_> =
        sides(scenario).into_iter().map(|side| figures::sample(&scenario.trials, side, metric)).collect();
    let series: Vec<_> = samples.iter().map(|sample| Series { group: 0, sample }).collect();
    let sum = propagate(&series, level, Scale::Linear, |means| means.iter().sum::<f64>() * factor).ok()?;
    // Nothing takes less than no time.
    let interval = sum.interval.map(|i| Interval { low: i.low.max(0.0), high: i.high });
    Some(Number::new(sum.value, 3).with_interval(interval).with_bound(sum.bound))
}

/// The cost as a share of another's, in percent.
fn cost_against(level: Level, own: &ScenarioView, base: &ScenarioView) -> Option<Number> {
    if kind(own) != kind(base) {
        return None;
    }
    let metric = kind(own).demand();
    let ratio = ratio_of_sums(level, (own, &sides(own)), (base, &sides(base)), metric)?;
    Some(Number { decimals: 1, ..times(ratio, 100.0) })
}
