//! The figures of a trial: the one place that knows how they follow from what was counted.
//!
//! The sender's nodes are those on which a sending worker ran, the receiver's those on which a receiving one did. Where
//! both ends share a node, both sides have that node's CPUs.

use rig_load::record::{Direction, Sample as Interim, WorkerRecord};
use rig_stats::sample::Sample;

use crate::claim::{Metric, Side};
use crate::record::{CpuUse, NodeRecord, TrialRecord};

/// One figure of one trial, in the unit of [`Metric::unit`].
///
/// `None` when the trial has nothing to compute it from: no worker on that side, an empty window, no CPUs, or for the
/// service demand no traffic.
pub fn figure(record: &TrialRecord, side: Side, metric: Metric) -> Option<f64> {
    match metric {
        Metric::Throughput => throughput(record, side),
        Metric::Cpu => cpu(record, side),
        Metric::ServiceDemand => service_demand(record, side),
        Metric::Retransmits => retransmits(record, side),
    }
    .filter(|value| value.is_finite())
}

/// The figure in all trials that have it, in their order.
pub fn sample<'a>(records: impl IntoIterator<Item = &'a TrialRecord>, side: Side, metric: Metric) -> Sample {
    records.into_iter().filter_map(|record| figure(record, side, metric)).collect()
}

/// The node part of a worker's name: `a` of `a/sender` and of `a`.
pub fn node_of(worker: &str) -> &str {
    worker.split('/').next().unwrap_or(worker)
}

fn workers(record: &TrialRecord, side: Side) -> impl Iterator<Item = &WorkerRecord> {
    record.workers(match side {
        Side::Sender => Direction::Send,
        Side::Receiver => Direction::Receive,
    })
}

/// Whether a worker of that side ran on the node.
pub fn is_on(record: &TrialRecord, node: &NodeRecord, side: Side) -> bool {
    workers(record, side).any(|worker| node_of(&worker.name) == node.name)
}

fn cpus(record: &TrialRecord, side: Side) -> impl Iterator<Item = &CpuUse> {
    record.nodes.iter().filter(move |node| is_on(record, node, side)).flat_map(|node| &node.cpus)
}

/// Payload of all workers of the side, bits per second.
fn throughput(record: &TrialRecord, side: Side) -> Option<f64> {
    let rates = workers(record, side).map(|w| (w.window_end_ns > w.window_begin_ns).then(|| w.bits_per_second()));
    let rates: Vec<f64> = rates.collect::<Option<_>>()?;
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// Mean over all CPUs of the side's nodes of the time that was not idle, percent.
fn cpu(record: &TrialRecord, side: Side) -> Option<f64> {
    let busy: Vec<f64> = cpus(record, side).map(CpuUse::busy).collect();
    (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64)
}

/// CPU time for each KB (1024 bytes) of the side's payload, microseconds; netperf's service demand,
/// busy % * 10000 / (KB/s) * CPUs, where 10000 us are one percent of one CPU's second.
fn service_demand(record: &TrialRecord, side: Side) -> Option<f64> {
    let kilobytes_per_second = throughput(record, side)? / 8.0 / 1024.0;
    let count = cpus(record, side).count() as f64;
    (kilobytes_per_second > 0.0).then_some(cpu(record, side)? * 10_000.0 / kilobytes_per_second * count)
}

/// Segments that the side's sockets sent again.
fn retransmits(record: &TrialRecord, side: Side) -> Option<f64> {
    let counts: Vec<u64> = workers(record, side).map(WorkerRecord::retransmits).collect();
    (!counts.is_empty()).then(|| counts.iter().sum::<u64>() as f64)
}

/// Throughput over the window: seconds after its begin (the middle of each interval) and bits per second of all workers
/// of the side. Ends where the first of them has no sample any more.
pub fn throughput_over_time(record: &TrialRecord, side: Side) -> Vec<(f64, f64)> {
    let samples: Vec<&[Interim]> = workers(record, side).map(|w| w.samples.as_slice()).collect();
    let count = samples.iter().map(|s| s.len()).min().unwrap_or(0);
    let rate = |sample: &Interim| sample.bytes as f64 * 8e9 / sample.span_ns as f64;
    (0..count)
        .map(|i| {
            let first = &samples[0][i];
            let middle = (first.at_ns as f64 - first.span_ns as f64 / 2.0) / 1e9;
            (middle.max(0.0), samples.iter().map(|s| rate(&s[i])).sum())
        })
        .filter(|(_, rate): &(f64, f64)| rate.is_finite())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{TrialOptions, trial};

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs()
    }

    #[test]
    fn throughput_is_the_payload_of_the_sides_workers() {
        let record =
            trial(&TrialOptions { send_bytes: 1_000_000_000, receive_bytes: 500_000_000, ..Default::default() });
        // A window of 2 s.
        assert_eq!(figure(&record, Side::Sender, Metric::Throughput), Some(4e9));
        assert_eq!(figure(&record, Side::Receiver, Metric::Throughput), Some(2e9));
    }

    #[test]
    fn several_workers_of_a_side_add_up() {
        let mut record = trial(&TrialOptions::default());
        let one = figure(&record, Side::Sender, Metric::Throughput).unwrap();
        record.workers.push(record.workers[0].clone());
        assert!(close(figure(&record, Side::Sender, Metric::Throughput).unwrap(), 2.0 * one));
    }

    #[test]
    fn cpu_is_the_mean_over_the_cpus_of_the_sides_nodes_alone() {
        let record =
            trial(&TrialOptions { sender_busy: vec![10.0, 50.0], receiver_busy: vec![80.0], ..Default::default() });
        assert!(close(figure(&record, Side::Sender, Metric::Cpu).unwrap(), 30.0));
        assert!(close(figure(&record, Side::Receiver, Metric::Cpu).unwrap(), 80.0));
    }

    /// 2 CPUs half busy are 10^6 us of CPU time a second; at 1000 KB/s each KB cost 1000 us.
    #[test]
    fn service_demand_is_netperfs() {
        let record =
            trial(&TrialOptions { send_bytes: 2 * 1000 * 1024, sender_busy: vec![40.0, 60.0], ..Default::default() });
        assert!(close(figure(&record, Side::Sender, Metric::ServiceDemand).unwrap(), 1000.0));
    }

    #[test]
    fn both_sides_share_the_cpus_of_a_common_node() {
        let record = trial(&TrialOptions { colocated: true, sender_busy: vec![57.0], ..Default::default() });
        assert_eq!(figure(&record, Side::Sender, Metric::Cpu), figure(&record, Side::Receiver, Metric::Cpu));
        assert_eq!(record.nodes.len(), 1);
    }

    #[test]
    fn retransmits_count_the_window_only() {
        let record = trial(&TrialOptions { retransmits: 7, ..Default::default() });
        assert_eq!(figure(&record, Side::Sender, Metric::Retransmits), Some(7.0));
        assert_eq!(figure(&record, Side::Receiver, Metric::Retransmits), Some(0.0));
    }

    #[test]
    fn what_was_not_measured_is_none() {
        let mut record = trial(&TrialOptions::default());
        record.workers.retain(|w| w.direction == Direction::Send);
        for metric in Metric::ALL {
            assert_eq!(figure(&record, Side::Receiver, metric), None, "{metric}");
        }
        record.workers[0].window_end_ns = record.workers[0].window_begin_ns;
        assert_eq!(figure(&record, Side::Sender, Metric::Throughput), None);
        assert_eq!(figure(&record, Side::Sender, Metric::ServiceDemand), None);
        record.nodes.clear();
        assert_eq!(figure(&record, Side::Sender, Metric::Cpu), None);
    }

    #[test]
    fn no_traffic_has_no_service_demand() {
        let record = trial(&TrialOptions { send_bytes: 0, ..Default::default() });
        assert_eq!(figure(&record, Side::Sender, Metric::Throughput), Some(0.0));
        assert_eq!(figure(&record, Side::Sender, Metric::ServiceDemand), None);
    }

    #[test]
    fn a_course_is_the_sum_of_the_workers_as_far_as_all_go() {
        let mut record = trial(&TrialOptions { receive_bytes: 4000, samples: 4, ..Default::default() });
        let course = throughput_over_time(&record, Side::Receiver);
        // 1000 bytes in each quarter of the 2 s.
        assert_eq!(course, [(0.25, 16_000.0), (0.75, 16_000.0), (1.25, 16_000.0), (1.75, 16_000.0)]);
        let mut second = record.workers[1].clone();
        second.samples.pop();
        record.workers.push(second);
        let course = throughput_over_time(&record, Side::Receiver);
        assert_eq!(course, [(0.25, 32_000.0), (0.75, 32_000.0), (1.25, 32_000.0)]);
    }
}
