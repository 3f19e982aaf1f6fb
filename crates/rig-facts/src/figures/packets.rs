//! The figures of loads that make their packets themselves.

use rig_load::record::PacketRecord;
use rig_stats::histogram::Histogram;

use super::{Side, Statistic, per_second, statistic, workers};
use crate::record::TrialRecord;

/// Whether workers of the trial's load make packets.
pub(super) fn are_in(record: &TrialRecord) -> bool {
    records(record).next().is_some()
}

/// Whether such workers counted some of these. What counts nothing that can be sent again, or lost, has no figure of it, although
/// its counters would give one.
pub(super) fn have(record: &TrialRecord, counter: &str) -> bool {
    records(record).any(|packets| packets.total.get(counter).is_some_and(|count| *count > 0))
}

fn records(record: &TrialRecord) -> impl Iterator<Item = &PacketRecord> {
    record.workers.iter().filter(|worker| !worker.background).filter_map(|worker| worker.packets.as_ref())
}

/// Of all workers of the side; `None` where one does not make packets, or there is none.
fn of_side(record: &TrialRecord, side: Side) -> Option<Vec<&PacketRecord>> {
    let records: Option<Vec<&PacketRecord>> = workers(record, side).map(|worker| worker.packets.as_ref()).collect();
    records.filter(|records| !records.is_empty())
}

/// What a counter of the side's workers counted, per second.
pub(super) fn rate(record: &TrialRecord, side: Side, counter: &str) -> Option<f64> {
    per_second(record, side, |worker| Some(worker.packets.as_ref()?.count(counter)))
}

pub(super) fn sum(record: &TrialRecord, side: Side, count: impl Fn(&PacketRecord) -> u64) -> Option<f64> {
    Some(of_side(record, side)?.into_iter().map(count).sum::<u64>() as f64)
}

/// The busiest worker's share of the window, percent.
pub(super) fn busy(record: &TrialRecord, side: Side) -> Option<f64> {
    Some(100.0 * of_side(record, side)?.into_iter().map(PacketRecord::busy).fold(0.0, f64::max))
}

/// Times of packets, microseconds.
pub(super) fn times(record: &TrialRecord, side: Side, times: &Histogram, of: Statistic) -> Option<f64> {
    of_side(record, side)?;
    statistic(times, of)
}

/// Connections of the window that came to nothing; what the window began, its end may find out later.
pub fn failed(record: &PacketRecord) -> u64 {
    record.count_since("skErr") + record.count_since("noSocket")
}

/// Frames that found no room at the end's own port: frames to be sent in the window, and all frames that came.
pub fn dropped(record: &PacketRecord) -> u64 {
    record.count("dropTx") + record.ports.iter().flat_map(|port| port.drops.values()).sum::<u64>()
}

/// Segments of the window that were sent again. An acknowledgment is sent again because its segment was.
pub fn sent_again(record: &PacketRecord) -> u64 {
    ["synRt", "finRt", "pushRt"].map(|name| record.count(name)).iter().sum()
}
