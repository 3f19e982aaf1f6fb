//! What is measured: names, units and sides.

use std::fmt;
use std::str::FromStr;

use rig_stats::histogram::BEYOND;
use rig_stats::sample::Range;
use serde::{Deserialize, Serialize};

use super::{FigureError, Side, named};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Metric {
    /// Payload, bits per second.
    Throughput,
    /// Share of the node's CPU time that was not idle, percent of all its CPUs.
    Cpu,
    /// CPU time of the node for each KB (1024 bytes) of payload, microseconds.
    ServiceDemand,
    /// Segments sent again inside the window.
    Retransmits,
    /// Requests answered, per second.
    Transactions,
    /// CPU time of the node for each transaction, microseconds.
    TransactionDemand,
    /// Time from a request's sending, or from when it was due, to the end of its response, microseconds.
    Latency(Statistic),
    /// Datagrams sent or received, per second.
    Datagrams,
    /// Share of datagrams, or of requests over UDP, that were lost, percent.
    Loss,
    /// Share of the received datagrams that came after one with a higher sequence number, percent.
    Reordered,
    /// Share of the received datagrams that had come before, percent.
    Duplicated,
    /// Interarrival jitter of RFC 3550 (6.4.1), microseconds.
    Jitter,
    /// Time of a datagram from sending to receiving, microseconds.
    Delay(Statistic),
    /// Payload of the load that runs beside the scenario's own, where it arrives, bits per second.
    BackgroundThroughput,
    /// Of packet loads, as all that follow: connections opened, per second.
    Connections,
    /// Connections open at the window's end.
    Concurrent,
    /// Connections of the window that were given up, reset or cut short, or could not be opened.
    Failed,
    /// Frames sent and received, per second.
    PacketsOut,
    PacketsIn,
    /// Their bits without frame check sequence and preamble, per second.
    BitsOut,
    BitsIn,
    /// Frames that found no room at the end's own port, sent or received.
    Drops,
    /// Connections and requests that began more than a millisecond after their time.
    Late,
    /// Share of the window in which the end's busiest worker had something to do, percent.
    Busy,
    /// Frames of the window that found no room to be sent, per second.
    DropsOut,
    /// The highest rate that a search found to be carried without loss, per second.
    Limit,
    /// The most connections that a search found to be held open without loss.
    LimitHeld,
    /// Time from when a connection was due until its SYN was acknowledged, microseconds.
    Handshake(Statistic),
    /// Time from when a request was due to the first byte of its response, microseconds.
    FirstByte(Statistic),
    /// Of the device under test, as all that follow: packets that its interfaces received and sent, per second.
    DutPacketsIn,
    DutPacketsOut,
    /// Their bits, per second.
    DutBitsIn,
    DutBitsOut,
    /// Connections that it knew of at the window's end.
    DutConnections,
    /// Share of the time of the CPUs that carried its packets that was not idle, percent.
    DutCpu,
    /// Packets that it dropped inside the window.
    DutDrops,
    /// CPUs of the side's nodes that received packets: each that took at least a hundredth of all that they processed
    /// (softnet_stat, proc(5)).
    CpusUsed,
    /// Time from a phase's begin until the rate has reached 95 % of what it settles at, microseconds.
    T95,
}

/// What one number says of many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    Mean,
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    Max,
}

/// Which literals a figure is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Plain numbers.
    Number,
    /// `600Mbit`; values are in bits per second.
    Rate,
    /// `100us`; values are in microseconds.
    Time,
}

impl Statistic {
    pub const ALL: [Self; 7] = [Self::Mean, Self::P50, Self::P90, Self::P99, Self::P99_9, Self::P99_99, Self::Max];

    /// The percentile that it is; `None` of the mean.
    pub fn percentile(self) -> Option<f64> {
        match self {
            Self::Mean => None,
            Self::P50 => Some(50.0),
            Self::P90 => Some(90.0),
            Self::P99 => Some(99.0),
            Self::P99_9 => Some(99.9),
            Self::P99_99 => Some(99.99),
            Self::Max => Some(100.0),
        }
    }

    /// The least number of values with which it says something: of a percentile p as many as have [`BEYOND`] beyond it,
    /// BEYOND * 100 / (100 - p).
    pub fn least_values(self) -> u64 {
        match self {
            Self::Mean | Self::Max => 1,
            Self::P50 => 2 * BEYOND,
            Self::P90 => 10 * BEYOND,
            Self::P99 => 100 * BEYOND,
            Self::P99_9 => 1_000 * BEYOND,
            Self::P99_99 => 10_000 * BEYOND,
        }
    }
}

impl Metric {
    /// Whether it decides what is said of a run, also where the suite does not repeat for it: what a unit of traffic costs, and what
    /// failed.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::ServiceDemand | Self::TransactionDemand | Self::Failed)
    }

    pub const ALL: [Self; 62] = {
        use Statistic::{Max, Mean, P50, P90, P99, P99_9, P99_99};
        [
            Self::Throughput,
            Self::Cpu,
            Self::ServiceDemand,
            Self::Retransmits,
            Self::Transactions,
            Self::TransactionDemand,
            Self::Latency(Mean),
            Self::Latency(P50),
            Self::Latency(P90),
            Self::Latency(P99),
            Self::Latency(P99_9),
            Self::Latency(P99_99),
            Self::Latency(Max),
            Self::Datagrams,
            Self::Loss,
            Self::Reordered,
            Self::Duplicated,
            Self::Jitter,
            Self::Delay(Mean),
            Self::Delay(P50),
            Self::Delay(P90),
            Self::Delay(P99),
            Self::Delay(P99_9),
            Self::Delay(P99_99),
            Self::Delay(Max),
            Self::BackgroundThroughput,
            Self::Connections,
            Self::Concurrent,
            Self::Failed,
            Self::PacketsOut,
            Self::PacketsIn,
            Self::BitsOut,
            Self::BitsIn,
            Self::Drops,
            Self::Late,
            Self::Busy,
            Self::DropsOut,
            Self::Limit,
            Self::LimitHeld,
            Self::Handshake(Mean),
            Self::Handshake(P50),
            Self::Handshake(P90),
            Self::Handshake(P99),
            Self::Handshake(P99_9),
            Self::Handshake(P99_99),
            Self::Handshake(Max),
            Self::FirstByte(Mean),
            Self::FirstByte(P50),
            Self::FirstByte(P90),
            Self::FirstByte(P99),
            Self::FirstByte(P99_9),
            Self::FirstByte(P99_99),
            Self::FirstByte(Max),
            Self::DutPacketsIn,
            Self::DutPacketsOut,
            Self::DutBitsIn,
            Self::DutBitsOut,
            Self::DutConnections,
            Self::DutCpu,
            Self::DutDrops,
            Self::CpusUsed,
            Self::T95,
        ]
    };

    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Cpu => "cpu",
            Self::ServiceDemand => "service_demand",
            Self::Retransmits => "retransmits",
            Self::Transactions => "transactions",
            Self::TransactionDemand => "transaction_demand",
            Self::Latency(statistic) => match statistic {
                Statistic::Mean => "latency_mean",
                Statistic::P50 => "latency_p50",
                Statistic::P90 => "latency_p90",
                Statistic::P99 => "latency_p99",
                Statistic::P99_9 => "latency_p99_9",
                Statistic::P99_99 => "latency_p99_99",
                Statistic::Max => "latency_max",
            },
            Self::Datagrams => "datagrams",
            Self::Loss => "loss",
            Self::Reordered => "reordered",
            Self::Duplicated => "duplicated",
            Self::Jitter => "jitter",
            Self::Delay(statistic) => match statistic {
                Statistic::Mean => "delay_mean",
                Statistic::P50 => "delay_p50",
                Statistic::P90 => "delay_p90",
                Statistic::P99 => "delay_p99",
                Statistic::P99_9 => "delay_p99_9",
                Statistic::P99_99 => "delay_p99_99",
                Statistic::Max => "delay_max",
            },
            Self::BackgroundThroughput => "background_throughput",
            Self::Connections => "connections",
            Self::Concurrent => "concurrent",
            Self::Failed => "failed",
            Self::PacketsOut => "packets_out",
            Self::PacketsIn => "packets_in",
            Self::BitsOut => "bits_out",
            Self::BitsIn => "bits_in",
            Self::Drops => "drops",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::DropsOut => "drops_out",
            Self::Limit => "limit",
            Self::LimitHeld => "limit_held",
            Self::Handshake(statistic) => match statistic {
                Statistic::Mean => "handshake_mean",
                Statistic::P50 => "handshake_p50",
                Statistic::P90 => "handshake_p90",
                Statistic::P99 => "handshake_p99",
                Statistic::P99_9 => "handshake_p99_9",
                Statistic::P99_99 => "handshake_p99_99",
                Statistic::Max => "handshake_max",
            },
            Self::FirstByte(statistic) => match statistic {
                Statistic::Mean => "first_byte_mean",
                Statistic::P50 => "first_byte_p50",
                Statistic::P90 => "first_byte_p90",
                Statistic::P99 => "first_byte_p99",
                Statistic::P99_9 => "first_byte_p99_9",
                Statistic::P99_99 => "first_byte_p99_99",
                Statistic::Max => "first_byte_max",
            },
            Self::DutPacketsIn => "dut_packets_in",
            Self::DutPacketsOut => "dut_packets_out",
            Self::DutBitsIn => "dut_bits_in",
            Self::DutBitsOut => "dut_bits_out",
            Self::DutConnections => "dut_connections",
            Self::DutCpu => "dut_cpu",
            Self::DutDrops => "dut_drops",
            Self::CpusUsed => "cpus_used",
            Self::T95 => "t95",
        }
    }

    /// The unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput
            | Self::BackgroundThroughput
            | Self::BitsOut
            | Self::BitsIn
            | Self::DutBitsIn
            | Self::DutBitsOut => "bit/s",
            Self::Cpu | Self::Loss | Self::Reordered | Self::Duplicated | Self::Busy | Self::DutCpu => "%",
            Self::ServiceDemand => "us/KB",
            Self::Retransmits => "segments",
            Self::Transactions
            | Self::Datagrams
            | Self::Connections
            | Self::PacketsOut
            | Self::PacketsIn
            | Self::DropsOut
            | Self::Limit
            | Self::DutPacketsIn
            | Self::DutPacketsOut => "1/s",
            Self::Concurrent | Self::Failed | Self::LimitHeld | Self::DutConnections => "connections",
            Self::Drops | Self::DutDrops => "packets",
            Self::Late => "starts",
            Self::TransactionDemand => "us/Tr",
            Self::CpusUsed => "CPUs",
            Self::Latency(_) | Self::Jitter | Self::Delay(_) | Self::Handshake(_) | Self::FirstByte(_) | Self::T95 => {
                "us"
            }
        }
    }

    pub fn quantity(self) -> Quantity {
        match self {
            Self::Throughput
            | Self::BackgroundThroughput
            | Self::BitsOut
            | Self::BitsIn
            | Self::DutBitsIn
            | Self::DutBitsOut => Quantity::Rate,
            Self::Latency(_) | Self::Jitter | Self::Delay(_) | Self::Handshake(_) | Self::FirstByte(_) | Self::T95 => {
                Quantity::Time
            }
            Self::Cpu
            | Self::ServiceDemand
            | Self::Retransmits
            | Self::Transactions
            | Self::TransactionDemand
            | Self::Datagrams
            | Self::Loss
            | Self::Reordered
            | Self::Duplicated
            | Self::Connections
            | Self::Concurrent
            | Self::Failed
            | Self::PacketsOut
            | Self::PacketsIn
            | Self::Drops
            | Self::Late
            | Self::Busy
            | Self::DropsOut
            | Self::Limit
            | Self::LimitHeld
            | Self::DutPacketsIn
            | Self::DutPacketsOut
            | Self::DutConnections
            | Self::DutCpu
            | Self::DutDrops
            | Self::CpusUsed => Quantity::Number,
        }
    }

    /// Where its values can lie at all. None is negative: times and counts are not, and shares are of a whole.
    pub fn range(self) -> Range {
        if self.unit() == "%" { Range::PERCENT } else { Range::NOT_NEGATIVE }
    }

    /// The sides that have it, whatever the load.
    pub fn sides(self) -> &'static [Side] {
        match self {
            Self::Transactions
            | Self::TransactionDemand
            | Self::Connections
            | Self::Concurrent
            | Self::Failed
            | Self::PacketsOut
            | Self::PacketsIn
            | Self::BitsOut
            | Self::BitsIn
            | Self::Drops
            | Self::DropsOut
            | Self::Busy => &[Side::Local, Side::Remote],
            // Only who asks knows how long the answer took, and has a schedule.
            Self::Latency(_) | Self::Handshake(_) | Self::FirstByte(_) | Self::Late | Self::Limit | Self::LimitHeld => {
                &[Side::Local]
            }
            // It is neither end; a figure has a side.
            Self::DutPacketsIn
            | Self::DutPacketsOut
            | Self::DutBitsIn
            | Self::DutBitsOut
            | Self::DutConnections
            | Self::DutCpu
            | Self::DutDrops
            | Self::T95 => &[Side::Local],
            Self::Loss | Self::Reordered | Self::Duplicated | Self::Jitter | Self::Delay(_) => {
                &[Side::Receiver, Side::Local, Side::Remote]
            }
            Self::BackgroundThroughput => &[Side::Receiver],
            Self::Throughput
            | Self::Cpu
            | Self::ServiceDemand
            | Self::Retransmits
            | Self::Datagrams
            | Self::CpusUsed => &Side::ALL,
        }
    }

    /// The side that is meant when none is named; `None` when one has to be.
    pub fn default_side(self) -> Option<Side> {
        match self {
            Self::Retransmits => Some(Side::Sender),
            Self::Transactions
            | Self::Latency(_)
            | Self::Connections
            | Self::Concurrent
            | Self::Failed
            | Self::PacketsOut
            | Self::PacketsIn
            | Self::BitsOut
            | Self::BitsIn
            | Self::Drops
            | Self::DropsOut
            | Self::Late
            | Self::Busy
            | Self::Limit
            | Self::LimitHeld
            | Self::Handshake(_)
            | Self::FirstByte(_)
            | Self::DutPacketsIn
            | Self::DutPacketsOut
            | Self::DutBitsIn
            | Self::DutBitsOut
            | Self::DutConnections
            | Self::DutCpu
            | Self::DutDrops
            | Self::T95 => Some(Side::Local),
            Self::Throughput
            | Self::Datagrams
            | Self::Loss
            | Self::Reordered
            | Self::Duplicated
            | Self::Jitter
            | Self::Delay(_)
            | Self::BackgroundThroughput
            | Self::CpusUsed => Some(Side::Receiver),
            Self::Cpu | Self::ServiceDemand | Self::TransactionDemand => None,
        }
    }
}

impl FromStr for Metric {
    type Err = FigureError;

    /// Version 0.1.0 called the device under test "middle": `dut_cpu` is `dut_cpu`.
    fn from_str(text: &str) -> Result<Self, FigureError> {
        let is_older = |metric: &Self| {
            let of_dut = metric.name().strip_prefix("dut_");
            of_dut.is_some() && text.strip_prefix("middle_") == of_dut
        };
        let older = Self::ALL.into_iter().find(is_older);
        older.map_or_else(|| named("metric", text, &Self::ALL, Self::name), Ok)
    }
}

impl TryFrom<String> for Metric {
    type Error = FigureError;

    fn try_from(text: String) -> Result<Self, FigureError> {
        text.parse()
    }
}

impl From<Metric> for &'static str {
    fn from(metric: Metric) -> Self {
        metric.name()
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
