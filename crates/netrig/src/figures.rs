use crate::claim::{Metric, Side};
use crate::record::TrialRecord;
use rig_load::record::Direction;
pub fn figure(record: &TrialRecord, side: Side, metric: Metric) -> Option<f64> {
    let d = match side {
        Side::Sender => Direction::Send,
        Side::Receiver => Direction::Receive,
    };
    let t: f64 = record.workers(d).map(|w| w.bits_per_second()).sum::<f64>() / 1e6;
    let node = record.workers(d).next()?.name.split('/').next()?.to_owned();
    let node = record.nodes.iter().find(|n| n.name == node)?;
    Some(match metric {
        Metric::Throughput => t,
        Metric::Cpu => node.busy_percent(),
        Metric::Retransmits => record.workers(d).map(|w| w.retransmits()).sum::<u64>() as f64,
        Metric::ServiceDemand => node.busy_percent() * 1e4 / (t * 1e6 / 8.0 / 1024.0) * node.cpus.len() as f64,
    })
}
