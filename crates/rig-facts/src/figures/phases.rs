//! The figures of a scenario's phases, and those that are found in series over time.

use std::ops::Range;

use rig_load::record::{Direction, WorkerRecord};
use rig_stats::sample::Reading;

use super::{Column, FigureError, FigureRef, Kind, Metric, PhaseCounting, Side, is_on, reading, workers};
use crate::record::{Series, TrialRecord};
use crate::requested_load::RequestedLoad;

/// The share of what a rate settles at that it has to reach.
const REACHED: f64 = 0.95;
/// For so many intervals in a row; fewer where the phase ends before.
const HELD: usize = 3;
/// A CPU with less than this share of the packets is not counted: the odd ARP request is on none of the busy ones.
const USED: f64 = 0.01;

/// One figure of one trial, of the whole window or of a phase; `None` as [`super::figure`], and where there is no such phase.
pub fn reading_of(record: &TrialRecord, figure: &FigureRef) -> Option<Reading> {
    match &figure.phase {
        None => reading(record, figure.side, figure.metric),
        Some(phase) => reading(&record.of_phase(phase)?, figure.side, figure.metric),
    }
}

/// How many of the CPUs that processed so many packets each were in use for it.
pub fn used(packets: &[u64]) -> usize {
    let all: u64 = packets.iter().sum();
    packets.iter().filter(|own| all > 0 && **own as f64 >= USED * all as f64).count()
}

/// CPUs of the side's nodes on which packets were received.
pub(super) fn cpus_used(record: &TrialRecord, side: Side) -> Option<f64> {
    let nodes: Vec<_> = record.nodes.iter().filter(|node| is_on(record, node, side)).collect();
    if nodes.is_empty() {
        return None;
    }
    let counts = nodes.iter().map(|node| used(&node.cpus.iter().map(|cpu| cpu.packets_processed).collect::<Vec<_>>()));
    Some(counts.sum::<usize>() as f64)
}

/// How long the rate took to reach [`REACHED`] of what it settled at, microseconds.
///
/// The settling value is the median of the rates in the second half of the phase, which one stall does not move. The rate
/// has reached it at the end of the first interval from which [`HELD`] intervals in a row have 95 % of it or more. After
/// the step response time of IEC 60050-351:2013 (351-45-36), until a share of the step is reached for the first time, with
/// two differences: the share is of the final value and not of the step, and one interval does not do, because a measured
/// rate is noisy. An interval counts when more than half of it is inside the phase.
/// `None` where nothing was sampled, nothing was carried, or it was not reached.
pub(super) fn t95(record: &TrialRecord) -> Option<f64> {
    let rates = carried_over_time(record)?;
    let second_half: Vec<f64> = rates[rates.len() / 2..].iter().map(|(_, rate)| *rate).collect();
    let goal = REACHED * median(second_half).filter(|settled| *settled > 0.0)?;
    let reached = |from: usize| rates[from..].iter().take(HELD).all(|(_, rate)| *rate >= goal);
    let at = (0..rates.len()).find(|from| reached(*from))?;
    Some(rates[at].0.end.max(0.0) * 1e6)
}

/// `t95` of a phase.
pub fn t95_of(record: &TrialRecord, phase: &str) -> Option<f64> {
    t95(&record.of_phase(phase)?)
}

/// How long an interval of the series is, microseconds.
pub(super) fn interval_us(record: &TrialRecord) -> f64 {
    record.series.as_ref().map_or(0.0, |series| series.interval_us as f64)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

/// What the trial's load carried in each interval of the window, per second, with the interval in seconds from the window's
/// begin: payload bytes where they arrived, transactions or connections where they were asked for.
fn carried_over_time(record: &TrialRecord) -> Option<Vec<(Range<f64>, f64)>> {
    let series = record.series.as_ref()?;
    let from = seconds_between(series.begin_ns, record.window_begin_ns);
    let to = seconds_between(series.begin_ns, record.window_end_ns);
    let inside = |interval: &Range<f64>| {
        let common = interval.end.min(to) - interval.start.max(from);
        common > (interval.end - interval.start) / 2.0
    };
    let tracks = record.workers.iter().zip(&series.workers).filter_map(|(worker, track)| {
        let column = column_of(worker)?;
        Some(track.rate(column).filter(|(interval, _)| inside(interval)).collect::<Vec<_>>())
    });
    let tracks: Vec<Vec<(Range<f64>, f64)>> = tracks.collect();
    let count = tracks.iter().map(Vec::len).min().filter(|count| *count > 0)?;
    let sum = |at: usize| {
        let interval = &tracks[0][at].0;
        (interval.start - from..interval.end - from, tracks.iter().map(|track| track[at].1).sum())
    };
    Some((0..count).map(sum).collect())
}

/// What says how much a worker carried; `None` of one whose other end says it.
fn column_of(worker: &WorkerRecord) -> Option<&'static str> {
    match worker.direction {
        _ if worker.background => None,
        Direction::Receive => Some("bytes"),
        Direction::Both => Some("bytes_in"),
        Direction::Request => Some("units"),
        Direction::Send | Direction::Respond | Direction::Idle => None,
    }
}

fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e9
}

/// A quantity over time, as it is drawn: the middle of each interval in seconds from the window's begin, and the value.
pub type Points = Vec<(f64, f64)>;

/// A rate of a side over time, in the unit of the metric; empty for a metric that is none.
pub fn rate_over_time(record: &TrialRecord, side: Side, metric: Metric) -> Points {
    let Some(series) = &record.series else { return super::over_time(record, side, metric) };
    let column = |worker: &WorkerRecord| match (metric.row().over_time?, worker.direction) {
        (Column::Payload, Direction::Both) => Some(("bytes_in", 8.0)),
        (Column::Payload, _) => Some(("bytes", 8.0)),
        (Column::Units, _) => Some(("units", 1.0)),
    };
    let own: Vec<&WorkerRecord> = workers(record, side).collect();
    let tracks = record
        .workers
        .iter()
        .zip(&series.workers)
        .filter(|(worker, _)| own.iter().any(|one| std::ptr::eq(*one, *worker)));
    let tracks: Option<Vec<Points>> = tracks
        .map(|(worker, track)| {
            let (column, scale) = column(worker)?;
            Some(track.rate(column).map(|(interval, rate)| (middle(&interval), rate * scale)).collect())
        })
        .collect();
    let tracks = tracks.unwrap_or_default();
    let count = tracks.iter().map(Vec::len).min().unwrap_or(0);
    (0..count).map(|at| (tracks[0][at].0, tracks.iter().map(|track| track[at].1).sum())).collect()
}

/// A percentile of what the intervals' answers took, microseconds; where several workers ask, the highest of theirs.
/// Intervals without an answer are left out. `percentile` is `p50`, `p90`, `p99` or `max`.
pub fn latency_over_time(record: &TrialRecord, percentile: &str) -> Points {
    let Some(series) = &record.series else { return Points::new() };
    let name = format!("latency_{percentile}_ns");
    let asks = |worker: &WorkerRecord| worker.direction == Direction::Request && !worker.background;
    let tracks = record.workers.iter().zip(&series.workers).filter(|(worker, _)| asks(worker));
    let tracks: Vec<Vec<(f64, u64)>> = tracks
        .map(|(_, track)| track.intervals().map(|interval| middle(&interval)).zip(track.column(&name)).collect())
        .collect();
    let count = tracks.iter().map(Vec::len).min().unwrap_or(0);
    let highest = |at: usize| (tracks[0][at].0, tracks.iter().map(|track| track[at].1).max().unwrap_or(0) as f64 / 1e3);
    (0..count).map(highest).filter(|(_, us)| *us > 0.0).collect()
}

/// Share of each CPU's time that was not idle, percent, over time: by node and CPU.
pub fn busy_over_time(record: &TrialRecord, series: &Series) -> Vec<(String, u32, Points)> {
    let nodes = record.nodes.iter().zip(&series.nodes);
    nodes
        .flat_map(|(node, track)| {
            node.cpus.iter().map(|cpu| {
                let busy = track.rate(&format!("cpu{}_busy_us", cpu.cpu));
                let points = busy.map(|(interval, us)| (middle(&interval), us / 1e4));
                (node.name.clone(), cpu.cpu, points.collect())
            })
        })
        .collect()
}

fn middle(interval: &Range<f64>) -> f64 {
    f64::midpoint(interval.start, interval.end)
}

/// Whether a figure is counted by phase; where not, what to do.
pub fn check_phase(load: &RequestedLoad, figure: &FigureRef) -> Result<(), FigureError> {
    let by_phase = figure.metric.row().by_phase;
    let Some(phase) = &figure.phase else {
        return match by_phase {
            PhaseCounting::Needed => Err(FigureError {
                what: format!("{} is of a phase, and `{figure}` names none", figure.metric),
                hint: format!("write {}({}.PHASE)", figure.metric, figure.scenario),
            }),
            PhaseCounting::Counted | PhaseCounting::OverSockets | PhaseCounting::NotCounted => Ok(()),
        };
    };
    let is_counted = match by_phase {
        PhaseCounting::Counted | PhaseCounting::Needed => true,
        PhaseCounting::OverSockets => !matches!(load, RequestedLoad::Packets(_)),
        PhaseCounting::NotCounted => false,
    };
    if is_counted {
        return Ok(());
    }
    Err(FigureError {
        what: format!("{} is not counted by phase, and `{figure}` names phase {phase}", figure.metric),
        hint: format!("leave the phase out: `{}`", FigureRef { phase: None, ..figure.clone() }),
    })
}

/// The figures that a phase is shown by: what was carried, how long it took, and what the CPUs did.
pub fn of_phase(kind: Kind) -> Vec<(Side, Metric)> {
    use crate::figures::Statistic::{P50, P90, P99};
    let mut figures = kind.rates().to_vec();
    if kind == Kind::Transactions {
        figures.extend([P50, P90, P99].map(|of| (Side::Local, Metric::Latency(of))));
    }
    if kind.is_packets() {
        figures.push((Side::Local, Metric::Busy));
    } else {
        figures.extend(kind.sides().map(|side| (side, Metric::Cpu)));
    }
    figures.extend(kind.sides().get(1).map(|side| (*side, Metric::CpusUsed)));
    figures
}
