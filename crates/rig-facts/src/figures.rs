//! The figures of a trial: the one place that knows how they follow from what was counted.
//!
//! A side is the workers of one end, and the nodes on which they ran. The local end is the one that connects, the remote
//! one listens, as netperf has it; every load has both. Sender and receiver are the ends of a load whose payload goes one
//! way; request/response and two-way loads have none, and a figure of theirs is `None`. Where both ends share a node, both
//! sides have that node's CPUs.
//!
//! In a two-way stream a side carried what *arrived* there, so that the local and the remote figure are the two directions, and
//! their sum is the whole.
//!
//! Workers of a background load belong to no side: what they carried is a figure of its own. Their CPU time is in the
//! sides' CPU figures all the same where they share a node with them, because a CPU's time is not told apart by load.

use std::sync::LazyLock;

use rig_load::plan::{Datagrams, Flow, TcpStream};
use rig_load::record::{Direction, End, Sample as Interim, WorkerRecord};
use rig_packet::Client;
use rig_stats::histogram::Histogram;
use rig_stats::sample::{Bound, Reading, Resolution, Sample};

use crate::record::{CpuUse, NodeRecord, SearchedRate, TrialRecord};
use crate::requested_load::RequestedLoad;

mod check;
pub mod dut;
mod metric;
pub mod packets;
pub mod phases;
mod reference;
mod table;
mod tool;

pub use self::check::check;
pub use self::metric::{Quantity, Statistic};
pub use self::reference::{FigureError, FigureRef, Side, is_phase_name, is_scenario_id};
pub use self::table::{Column, FigureDefinition, FigureOwner, FigureSheet, Metric, PhaseCounting, Policy, TABLE};

/// One figure of one trial, in the unit of [`Metric::unit`].
///
/// `None` when the trial has nothing to compute it from: no worker on that side, a load of another kind, an empty window,
/// no CPUs, too few values for a percentile ([`Statistic::least_values`]), or for what is spent on each unit of traffic no
/// traffic. Of another tool's test it is what its output tells.
pub fn figure(record: &TrialRecord, side: Side, metric: Metric) -> Option<f64> {
    if !metric.sides().contains(&side) {
        return None;
    }
    match &record.tool {
        Some(told) => told.figure(side, metric),
        None => (metric.row().formula)(record, side, metric.statistic()),
    }
    .filter(|value| value.is_finite())
}

/// What a search for something that `is_meant` found.
fn found(record: &TrialRecord, is_meant: impl Fn(SearchedRate) -> bool) -> Option<f64> {
    if let Some(benchmark) = record.benchmark.as_ref().filter(|_| is_meant(SearchedRate::Connections)) {
        return benchmark.throughput();
    }
    record.search.as_ref().filter(|search| is_meant(search.of))?.outcome.held
}

/// One figure of one trial with what is known of it beside its value; `None` as [`figure`].
///
/// For a limit that was searched this is the grid of the rates tried: the true limit lies between the highest rate that was
/// held and the lowest that was not. Where the search ended at the generator's own limit, or was not allowed to go on, the
/// true limit is at least the rate that was held.
pub fn reading(record: &TrialRecord, side: Side, metric: Metric) -> Option<Reading> {
    figure(record, side, metric).map(|value| (metric.row().reading)(record, value))
}

fn limit(record: &TrialRecord, value: f64) -> Reading {
    let (not_held, is_generators) = match (&record.search, &record.benchmark) {
        (Some(search), _) => (search.outcome.lost, search.bound.is_some()),
        (None, Some(benchmark)) => {
            (benchmark.results.goals.first().and_then(|goal| goal.upper), benchmark.is_generator_bound())
        }
        (None, None) => return value.into(),
    };
    match not_held.filter(|lost| *lost >= value) {
        Some(lost) if !is_generators => {
            Reading { value, resolution: Resolution { below: 0.0, above: lost - value }, bound: None }
        }
        _ => Reading { value, resolution: Resolution::EXACT, bound: Some(Bound::AtLeast) },
    }
}

/// The figure in all trials that have it, in their order.
pub fn sample<'a>(records: impl IntoIterator<Item = &'a TrialRecord>, side: Side, metric: Metric) -> Sample {
    sample_of(records.into_iter().filter_map(|record| reading(record, side, metric)), metric)
}

/// These values of the metric.
pub fn sample_of(readings: impl IntoIterator<Item = Reading>, metric: Metric) -> Sample {
    let mut sample = Sample::within(metric.range());
    sample.extend(readings);
    sample
}

/// What a load is made of, as far as its figures are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Stream,
    TwoWayStream,
    Datagrams,
    TwoWayDatagrams,
    Transactions,
    /// Packets, with one request on each connection.
    Connections,
    /// Packets, with several.
    Requests,
    /// Packets that the receiver does not answer.
    Flood,
}

impl Kind {
    /// `None` of the idle load, which has no figures but CPU.
    pub fn of(load: &RequestedLoad) -> Option<Self> {
        match load {
            RequestedLoad::TcpStream(TcpStream { flow: Flow::Both, .. }) => Some(Self::TwoWayStream),
            RequestedLoad::TcpStream(_) => Some(Self::Stream),
            RequestedLoad::UdpStream(Datagrams { flow: Flow::Both, .. }) => Some(Self::TwoWayDatagrams),
            RequestedLoad::UdpStream(_) => Some(Self::Datagrams),
            RequestedLoad::TcpRr(_) | RequestedLoad::TcpCrr(_) | RequestedLoad::UdpRr(_) => Some(Self::Transactions),
            RequestedLoad::Packets(packets) => Some(match &packets.client {
                Client { flood: Some(_), .. } => Self::Flood,
                Client { repeat: Some(_), .. } => Self::Requests,
                Client { .. } => Self::Connections,
            }),
            RequestedLoad::Idle => None,
        }
    }

    /// Whether the load makes its packets itself.
    pub fn is_packets(self) -> bool {
        matches!(self, Self::Connections | Self::Requests | Self::Flood)
    }

    /// The figures that say how much was carried: each end's where both carry something of their own.
    pub fn rates(self) -> &'static [(Side, Metric)] {
        match self {
            Self::Stream => &[(Side::Receiver, Metric::Throughput)],
            Self::Datagrams => &[(Side::Receiver, Metric::Throughput), (Side::Sender, Metric::Throughput)],
            Self::TwoWayStream | Self::TwoWayDatagrams => {
                &[(Side::Local, Metric::Throughput), (Side::Remote, Metric::Throughput)]
            }
            Self::Transactions | Self::Requests => &[(Side::Local, Metric::Transactions)],
            Self::Connections => &[(Side::Local, Metric::Connections)],
            Self::Flood => &[(Side::Remote, Metric::PacketsIn), (Side::Local, Metric::PacketsOut)],
        }
    }

    /// What is spent on each unit of what was carried.
    pub fn demand(self) -> Metric {
        match self {
            Self::Transactions | Self::Connections | Self::Requests | Self::Flood => Metric::TransactionDemand,
            Self::Stream | Self::TwoWayStream | Self::Datagrams | Self::TwoWayDatagrams => Metric::ServiceDemand,
        }
    }

    /// The two ends as tables name them: sender and receiver where payload goes one way, else local and remote.
    pub fn sides(self) -> [Side; 2] {
        match self {
            Self::Stream | Self::Datagrams => [Side::Sender, Side::Receiver],
            _ => [Side::Local, Side::Remote],
        }
    }
}

/// The node part of a worker's name: `a` of `a/sender` and of `a`.
pub fn node_of(worker: &str) -> &str {
    worker.split('/').next().unwrap_or(worker)
}

/// The workers of that side, without those of a background load.
pub fn workers(record: &TrialRecord, side: Side) -> impl Iterator<Item = &WorkerRecord> {
    record.workers.iter().filter(move |worker| match (side, worker.direction) {
        _ if worker.background => false,
        (_, Direction::Idle) => false,
        (Side::Sender, direction) => direction == Direction::Send,
        (Side::Receiver, direction) => direction == Direction::Receive,
        (Side::Local, _) => worker.end() == End::Connect,
        (Side::Remote, _) => worker.end() == End::Listen,
    })
}

/// Whether a worker of that side ran on the node.
pub fn is_on(record: &TrialRecord, node: &NodeRecord, side: Side) -> bool {
    workers(record, side).any(|worker| node_of(&worker.name) == node.name)
}

/// Whether the CPUs that the node's figures are of are those of a node where load ended, and none did here: they say nothing
/// of it then.
pub fn is_idle(record: &TrialRecord, node: &NodeRecord) -> bool {
    let has_load = |node: &NodeRecord| record.workers.iter().any(|worker| node_of(&worker.name) == node.name);
    let same = |other: &NodeRecord| other.cpus.iter().map(|cpu| cpu.cpu).eq(node.cpus.iter().map(|cpu| cpu.cpu));
    record.dut.is_none()
        && record.hosts.is_empty()
        && !has_load(node)
        && record.nodes.iter().any(|other| has_load(other) && same(other))
}

fn cpus(record: &TrialRecord, side: Side) -> impl Iterator<Item = &CpuUse> {
    record.nodes.iter().filter(move |node| is_on(record, node, side)).flat_map(|node| &node.cpus)
}

/// What the side's workers counted inside their windows, per second, summed; `None` when any of them did not count it.
fn per_second(record: &TrialRecord, side: Side, count: impl Fn(&WorkerRecord) -> Option<u64>) -> Option<f64> {
    sum_of_rates(workers(record, side), count)
}

fn sum_of_rates<'a>(
    workers: impl Iterator<Item = &'a WorkerRecord>,
    count: impl Fn(&WorkerRecord) -> Option<u64>,
) -> Option<f64> {
    let rate = |w: &WorkerRecord| Some(count(w)? as f64 / w.seconds()).filter(|rate| rate.is_finite());
    let rates: Vec<f64> = workers.map(rate).collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// Payload bytes that count as the worker's own.
fn carried(worker: &WorkerRecord) -> Option<u64> {
    match worker.direction {
        Direction::Send | Direction::Receive => Some(worker.bytes()),
        Direction::Both => Some(worker.bytes_in()),
        Direction::Request | Direction::Respond | Direction::Idle => None,
    }
}

/// Payload of all workers of the side, bits per second; of a two-way stream what arrived.
fn throughput(record: &TrialRecord, side: Side) -> Option<f64> {
    Some(per_second(record, side, carried)? * 8.0)
}

/// Payload of the background load where it arrived, bits per second.
fn background_throughput(record: &TrialRecord) -> Option<f64> {
    let arrives = |w: &&WorkerRecord| w.background && matches!(w.direction, Direction::Receive | Direction::Both);
    Some(sum_of_rates(record.workers.iter().filter(arrives), carried)? * 8.0)
}

/// What the workers of a background load of packets that connect counted, per second.
fn background_packets(record: &TrialRecord, counter: &str) -> Option<f64> {
    let sends = |w: &&WorkerRecord| w.background && w.end() == End::Connect;
    sum_of_rates(record.workers.iter().filter(sends), |worker| Some(worker.packets.as_ref()?.count(counter)))
}

/// Mean over all CPUs of the side's nodes of the time that was not idle, percent.
fn cpu(record: &TrialRecord, side: Side) -> Option<f64> {
    let busy: Vec<f64> = cpus(record, side).map(CpuUse::busy).collect();
    (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
}

/// CPU time of the side's nodes for each of `units` a second, microseconds: netperf's formula,
/// busy % * 10000 / (units/s) * CPUs, where 10000 us are one percent of one CPU's second.
pub(crate) fn cpu_time_per(record: &TrialRecord, side: Side, units: f64) -> Option<f64> {
    let count = cpus(record, side).count() as f64;
    (units > 0.0).then_some(cpu(record, side)? * 10_000.0 / units * count)
}

/// CPU time for each KB (1024 bytes) of the side's payload; of a two-way stream, of what went out and came in, as in
/// netperf's omni tests.
fn service_demand(record: &TrialRecord, side: Side) -> Option<f64> {
    let moved = |worker: &WorkerRecord| match worker.direction {
        Direction::Both => Some(worker.bytes() + worker.bytes_in()),
        _ => carried(worker),
    };
    cpu_time_per(record, side, per_second(record, side, moved)? / 1024.0)
}

/// Segments that the side's sockets sent again.
fn retransmits(record: &TrialRecord, side: Side) -> Option<f64> {
    let count = |w: &WorkerRecord| match &w.packets {
        Some(packets) => Some(packets::sent_again(packets)),
        None => w.datagrams.is_none().then(|| w.retransmits()),
    };
    let counts: Vec<u64> = workers(record, side).map(count).collect::<Option<_>>()?;
    (!counts.is_empty()).then(|| counts.iter().sum::<u64>() as f64)
}

/// Answers per second: received at the local end, sent at the remote one. Each over the window that it was counted in: at
/// the asking end that is the planned one, by the time stamp of every transaction.
fn transactions(record: &TrialRecord, side: Side) -> Option<f64> {
    let rate = |worker: &WorkerRecord| {
        let counted = worker.transactions.as_ref()?;
        let rate = if counted.window_ns > 0 {
            counted.per_second()
        } else {
            // Older records have no window of their own.
            counted.completed as f64 / worker.seconds()
        };
        Some(rate).filter(|rate| rate.is_finite())
    };
    let rates: Vec<f64> = workers(record, side).map(rate).collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// Datagrams per second: received, or sent where the worker receives none.
fn datagrams(record: &TrialRecord, side: Side) -> Option<f64> {
    per_second(record, side, |worker| {
        let counted = worker.datagrams.as_ref()?;
        Some(if worker.direction == Direction::Send { counted.sent } else { counted.received })
    })
}

/// What arrived at a side, summed over its workers.
#[derive(Default)]
struct ArrivalCounts {
    received: u64,
    lost: u64,
    reordered: u64,
    duplicated: u64,
}

/// `None` where no worker of the side receives datagrams.
fn arrived(record: &TrialRecord, side: Side) -> Option<ArrivalCounts> {
    let receives = |w: &&WorkerRecord| matches!(w.direction, Direction::Receive | Direction::Both);
    let counted = workers(record, side).filter(receives).filter_map(|worker| worker.datagrams.as_ref());
    counted.fold(None, |sum: Option<ArrivalCounts>, one| {
        let sum = sum.unwrap_or_default();
        Some(ArrivalCounts {
            received: sum.received + one.received,
            lost: sum.lost + one.lost,
            reordered: sum.reordered + one.reordered,
            duplicated: sum.duplicated + one.duplicated,
        })
    })
}

fn percent(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| 100.0 * part as f64 / of as f64)
}

/// Percent. Of datagrams, from the gaps in the sequence numbers that the side saw, which does not depend on both ends'
/// windows being the same; netperf takes the difference of what was sent and received. Of requests, those not answered.
fn loss(record: &TrialRecord, side: Side) -> Option<f64> {
    if let Some(ArrivalCounts { received, lost, .. }) = arrived(record, side) {
        // Where nothing arrives, there is no gap to see.
        let nothing =
            || record.workers.iter().any(|w| w.datagrams.as_ref().is_some_and(|d| d.sent > 0)).then_some(100.0);
        return percent(lost, received + lost).or_else(nothing);
    }
    let asking = || workers(record, side).filter(|w| w.direction == Direction::Request);
    let counted = || asking().filter_map(|worker| worker.transactions.as_ref());
    let lost = counted().map(|t| t.lost).sum();
    percent(lost, counted().map(|t| t.completed).sum::<u64>() + lost)
}

fn share_of_received(record: &TrialRecord, side: Side, part: impl Fn(&ArrivalCounts) -> u64) -> Option<f64> {
    let arrived = arrived(record, side)?;
    percent(part(&arrived), arrived.received)
}

/// Mean over the flows, microseconds.
fn jitter(record: &TrialRecord, side: Side) -> Option<f64> {
    let workers = workers(record, side);
    let known = workers.filter_map(|w| Some((w.datagrams.as_ref()?.jitter_ns?, w.connections.len().max(1) as f64)));
    let (sum, flows) = known.fold((0.0, 0.0), |(sum, flows), (ns, own)| (sum + ns * own, flows + own));
    Some(sum / flows / 1000.0)
}

/// Latencies of all transactions of the trials.
pub fn latency<'a>(records: impl IntoIterator<Item = &'a TrialRecord>) -> Histogram {
    let workers = records.into_iter().flat_map(|record| workers(record, Side::Local));
    merged(workers.filter_map(|worker| worker.transactions.as_ref()?.latency.as_ref()))
}

/// Handshakes of all connections of the trials.
pub fn handshake<'a>(records: impl IntoIterator<Item = &'a TrialRecord>) -> Histogram {
    let workers = records.into_iter().flat_map(|record| workers(record, Side::Local));
    merged(workers.filter_map(|worker| worker.packets.as_ref()?.handshake.as_ref()))
}

/// First bytes of all responses of the trials.
pub fn first_byte<'a>(records: impl IntoIterator<Item = &'a TrialRecord>) -> Histogram {
    let workers = records.into_iter().flat_map(|record| workers(record, Side::Local));
    merged(workers.filter_map(|worker| worker.packets.as_ref()?.first_byte.as_ref()))
}

/// Delays of all datagrams that arrived at the side in the trials, but for trials of which it is not known
/// ([`hidden_delay_us`]).
pub fn delay<'a>(records: impl IntoIterator<Item = &'a TrialRecord>, side: Side) -> Histogram {
    let known = records.into_iter().filter(|record| hidden_delay_us(record, side).is_none());
    merged(known.flat_map(move |record| delays(record, side)))
}

fn delays(record: &TrialRecord, side: Side) -> impl Iterator<Item = &Histogram> {
    workers(record, side).filter_map(|worker| worker.datagrams.as_ref()?.delay.as_ref())
}

/// The bound to which the clocks of a trial's ends are known, microseconds; 0 where they are one.
pub fn clock_bound_us(record: &TrialRecord) -> f64 {
    record.end_clocks.as_ref().map_or(0.0, |clocks| clocks.bound_ns as f64 / 1000.0)
}

/// The median that delays seem to have, microseconds, where that is less than the bound of the clocks: they say nothing then.
pub fn hidden_delay_us(record: &TrialRecord, side: Side) -> Option<f64> {
    let bound = clock_bound_us(record);
    if bound == 0.0 {
        return None;
    }
    let median = merged_of_any(delays(record, side))?.percentile(50.0)? as f64 / 1000.0;
    (median < bound).then_some(median)
}

fn merged<'a>(histograms: impl Iterator<Item = &'a Histogram>) -> Histogram {
    // Copied, because most metrics of most trials have none, and each of 31,000 counts is set in a new one.
    static EMPTY: LazyLock<Histogram> = LazyLock::new(Histogram::new);
    merged_of_any(histograms).unwrap_or_else(|| EMPTY.clone())
}

/// `None` without a histogram.
fn merged_of_any<'a>(mut histograms: impl Iterator<Item = &'a Histogram>) -> Option<Histogram> {
    let first = histograms.next()?.clone();
    Some(histograms.fold(first, |mut sum, one| {
        sum.merge(one);
        sum
    }))
}

/// Microseconds; `None` when the histogram has too few values for it.
pub fn statistic(histogram: &Histogram, of: Statistic) -> Option<f64> {
    if histogram.count() < of.least_values() {
        return None;
    }
    let ns = match (of, of.percentile()) {
        (Statistic::Max, _) => histogram.max()? as f64,
        (_, Some(percent)) => histogram.percentile(percent)? as f64,
        (_, None) => histogram.mean()?,
    };
    Some(ns / 1000.0)
}

/// A rate over the window: seconds after its begin (the middle of each interval) and the rate of all workers of the side,
/// in the unit of the metric. Ends where the first of them has no sample any more; empty for a metric that is no rate.
pub fn over_time(record: &TrialRecord, side: Side, metric: Metric) -> Vec<(f64, f64)> {
    let count = |worker: &WorkerRecord, sample: &Interim| match (metric.row().over_time, worker.direction) {
        (Some(Column::Payload), Direction::Both) => sample.bytes_in as f64 * 8.0,
        (Some(Column::Payload), _) => sample.bytes as f64 * 8.0,
        (Some(Column::Units), _) => sample.units as f64,
        (None, _) => f64::NAN,
    };
    let workers: Vec<&WorkerRecord> = workers(record, side).collect();
    let samples = workers.iter().map(|w| w.samples.len()).min().unwrap_or(0);
    (0..samples)
        .map(|i| {
            let first = &workers[0].samples[i];
            let middle = (first.at_ns as f64 - first.span_ns as f64 / 2.0) / 1e9;
            let rate = |w: &&WorkerRecord| count(w, &w.samples[i]) * 1e9 / w.samples[i].span_ns as f64;
            (middle.max(0.0), workers.iter().map(rate).sum())
        })
        .filter(|(_, rate): &(f64, f64)| rate.is_finite())
        .collect()
}

#[cfg(test)]
mod tests;
