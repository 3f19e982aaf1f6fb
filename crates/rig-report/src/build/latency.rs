//! How long transactions and datagrams took, all trials together.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::{self, Kind};
use rig_facts::record::TrialRecord;
use rig_stats::histogram::BEYOND;
use rig_stats::histogram::Histogram;
use rig_suite::suite::LayoutColumn;
use rig_verdict::view::ScenarioView;

use crate::document::{Axis, Chart, Distribution, Mark, Percentiles};

/// The percentiles that are written out.
pub(super) const MARKS: [Statistic; 5] =
    [Statistic::P50, Statistic::P90, Statistic::P99, Statistic::P99_9, Statistic::P99_99];

/// Points of a line for each tenfold of what lies beyond, and how many tenfolds: up to 99.99 %.
const STEPS: u32 = 20;
const TENFOLDS: u32 = 4;

/// Why a percentile is no figure of these trials: some have fewer values than it needs. `None` for other figures, and
/// where no trial has any value at all.
pub(super) fn too_few(trials: &[TrialRecord], side: Side, metric: Metric) -> Option<String> {
    let (of, what, count): (_, _, fn(&TrialRecord, Side) -> u64) = match metric {
        Metric::Latency(of) => (of, "transactions", |trial, _| figures::latency([trial]).count()),
        Metric::Handshake(of) => (of, "handshakes", |trial, _| figures::handshake([trial]).count()),
        Metric::FirstByte(of) => (of, "responses", |trial, _| figures::first_byte([trial]).count()),
        Metric::Delay(of) => (of, "datagrams", |trial, side| figures::delay([trial], side).count()),
        _ => return None,
    };
    let counts: Vec<u64> = trials.iter().map(|trial| count(trial, side)).collect();
    let short = counts.iter().filter(|count| **count < of.least_values()).count();
    if short == 0 || counts.iter().all(|count| *count == 0) {
        return None;
    }
    let least = of.least_values();
    Some(match counts.len() {
        1 => format!("fewer than the {least} {what} that this percentile needs"),
        all => {
            format!("in {short} of {all} trials there were fewer than the {least} {what} that this percentile needs")
        }
    })
}

/// The distributions of all scenarios that have one; `None` without any.
pub(super) fn distributions(title: &str, kind: Kind, columns: &[(&LayoutColumn, &ScenarioView)]) -> Option<Chart> {
    let (what, quantity, pooled): (_, _, fn(&[TrialRecord]) -> Histogram) = match kind {
        Kind::Transactions | Kind::Connections | Kind::Requests => {
            ("latency of all transactions", "Latency", |trials| figures::latency(trials))
        }
        Kind::Datagrams => ("delay of all datagrams", "Delay", |trials| figures::delay(trials, Side::Receiver)),
        Kind::Stream | Kind::TwoWayStream | Kind::TwoWayDatagrams | Kind::Flood => return None,
    };
    let lines: Vec<Distribution> = columns
        .iter()
        .map(|(column, scenario)| distribution(&column.head, pooled(&scenario.trials)))
        .filter(|line| !line.points.is_empty())
        .collect();
    (!lines.is_empty()).then(|| {
        let title = format!("{title} – {what}, trials pooled");
        Chart::Percentiles(Percentiles { title, value: Axis::new(quantity, "µs"), lines })
    })
}

fn distribution(label: &str, histogram: Histogram) -> Distribution {
    let count = histogram.count();
    let known = |tenfolds: f64| count as f64 >= BEYOND as f64 * 10f64.powf(tenfolds);
    let steps = (0..=TENFOLDS * STEPS).map(|step| f64::from(step) / f64::from(STEPS)).filter(|t| known(*t));
    let points = steps.filter_map(|tenfolds| {
        let percentile = 100.0 - 100.0 / 10f64.powf(tenfolds);
        Some((percentile, histogram.percentile(percentile)? as f64 / 1000.0))
    });
    let marks = MARKS
        .into_iter()
        .filter_map(|of| Some(Mark { percentile: of.percentile()?, value: figures::statistic(&histogram, of) }));
    Distribution { label: label.to_owned(), count, marks: marks.collect(), points: points.collect(), histogram }
}
