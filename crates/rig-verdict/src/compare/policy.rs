//! Which way each metric improves, and how finely it is known.

use rig_facts::claim::Metric;
use rig_stats::compare::Better;

/// How a change of a metric is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub better: Better,
    /// Whether it is counted and does not scatter, so that one trial decides.
    pub is_fact: bool,
    /// A change of less than this never matters, in [`Metric::unit`]; 0 where only relative changes count.
    pub resolution: f64,
}

/// The one place that knows for every metric which way is better.
pub fn policy(metric: Metric) -> Policy {
    let (better, resolution) = match metric {
        Metric::Throughput
        | Metric::BackgroundThroughput
        | Metric::Transactions
        | Metric::Datagrams
        | Metric::Connections
        | Metric::Concurrent
        | Metric::PacketsOut
        | Metric::PacketsIn
        | Metric::BitsOut
        | Metric::BitsIn
        | Metric::Limit
        | Metric::LimitHeld
        | Metric::DutPacketsIn
        | Metric::DutPacketsOut
        | Metric::DutBitsIn
        | Metric::DutBitsOut
        | Metric::DutConnections => (Better::Higher, 0.0),
        // Of CPU, a percentage point: /proc/stat counts in ticks, and less of an idle CPU says nothing. Of jitter, a
        // microsecond: less is the clock and the scheduler.
        Metric::Cpu | Metric::Jitter | Metric::Busy | Metric::DutCpu => (Better::Lower, 1.0),
        Metric::ServiceDemand
        | Metric::TransactionDemand
        | Metric::Latency(_)
        | Metric::Delay(_)
        | Metric::Handshake(_)
        | Metric::FirstByte(_)
        | Metric::T95 => (Better::Lower, 0.0),
        // A window has thousands; but none is better than one.
        Metric::Failed | Metric::Drops | Metric::DropsOut | Metric::DutDrops | Metric::CpusUsed => (Better::Lower, 0.5),
        // One datagram in ten thousand.
        Metric::Loss | Metric::Reordered | Metric::Duplicated => (Better::Lower, 0.01),
        // A window of a stream carries tens of thousands of segments and more: a handful is no congestion.
        Metric::Retransmits | Metric::Late => (Better::Lower, 10.0),
    };
    Policy { better, resolution, is_fact: metric == Metric::Failed }
}
