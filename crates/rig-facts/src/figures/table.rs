//! The table of figures: a row for each, with all that is known of it. A new figure is a row here, and the function that counts it.

use rig_stats::compare::Better;
use rig_stats::sample::{Reading, Resolution};

use super::check::{self, Case};
use super::metric::{Quantity, Statistic};
use super::reference::{FigureError, Side};
use super::{dut, packets, phases};
use crate::record::{SearchedRate, TrialRecord};

/// What is known of a figure without a trial.
#[derive(Debug)]
pub struct FigureDefinition {
    /// Its names and what reports call it: one, or one for each statistic.
    pub names: &'static [(Metric, &'static str, &'static str)],
    /// What tables call it that have room for a word; empty where that is the same.
    pub short: &'static str,
    /// Digits after the point in tables of reports.
    pub decimals: u8,
    /// Whether a table goes without it when none of its scenarios has it.
    pub is_optional: bool,
    /// Where reports show it, and of which sides, behind what their layouts of each kind of load name.
    pub sheets: &'static [(FigureSheet, &'static [Side])],
    /// The unit of its values.
    pub unit: &'static str,
    /// The sides that have it under any load.
    pub sides: &'static [Side],
    /// The side that is meant when none is named; `None` when one has to be.
    pub default_side: Option<Side>,
    /// How a change of it is judged.
    pub policy: Policy,
    /// Whether it decides what is said of a run, also where the suite does not repeat for it: what a unit of traffic costs, and what
    /// failed.
    pub is_primary: bool,
    /// Whose figure it is.
    pub owner: FigureOwner,
    pub by_phase: PhaseCounting,
    /// The column of a worker's samples that is its rate over time; `None` of what is no rate.
    pub over_time: Option<Column>,
    /// Whether trials of a load have it.
    pub check: fn(&Case<'_>) -> Result<(), FigureError>,
    pub formula: fn(&TrialRecord, Side, Statistic) -> Option<f64>,
    /// What is known of a value beside itself.
    pub reading: fn(&TrialRecord, f64) -> Reading,
    /// For docs/MEASURING.md, where it is not plainly counted: how it is computed, and the source of that.
    pub formula_words: Option<(&'static str, &'static str)>,
    /// For docs/REFERENCE.md.
    pub meaning: &'static str,
}

/// How a change of a metric is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    pub better: Better,
    /// Whether it is counted and does not scatter, so that one trial decides.
    pub is_fact: bool,
    /// A change of less than this never matters, in [`Metric::unit`]; 0 where only relative changes count.
    pub resolution: f64,
}

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureOwner {
    /// Of an end, under any kind of load.
    End,
    /// Of loads that make their packets themselves.
    Packets,
    /// Of the device under test.
    Dut,
}

/// A table of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureSheet {
    /// Of loads over sockets: what both ends saw, and what it cost.
    Ends,
    /// Of loads that make their packets themselves: what was carried.
    Carried,
    /// Of those, what went wrong.
    Trouble,
    /// Of those, frames and the work of threads.
    Frames,
}

/// Whether it is counted for each phase of a programme, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseCounting {
    Counted,
    /// Of loads over sockets.
    OverSockets,
    NotCounted,
    /// Only for a phase.
    Needed,
}

/// What a sample of a worker counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Payload, of two-way loads what arrived.
    Payload,
    /// Transactions, datagrams or connections.
    Units,
}

impl FigureDefinition {
    pub fn quantity(&self) -> Quantity {
        match self.unit {
            BITS => Quantity::Rate,
            US => Quantity::Time,
            _ => Quantity::Number,
        }
    }
}

const BITS: &str = "bit/s";
const US: &str = "us";
const PERCENT: &str = "%";
const PER_SECOND: &str = "1/s";
const CONNECTIONS: &str = "connections";

const BOTH_ENDS: &[Side] = &[Side::Local, Side::Remote];
const LOCAL: &[Side] = &[Side::Local];
const ARRIVALS: &[Side] = &[Side::Receiver, Side::Local, Side::Remote];

const MORE: Policy = Policy { better: Better::Higher, is_fact: false, resolution: 0.0 };
const LESS: Policy = Policy { better: Better::Lower, is_fact: false, resolution: 0.0 };

const fn less_by(resolution: f64) -> Policy {
    Policy { resolution, ..LESS }
}

/// Of CPU, a percentage point: /proc/stat counts in ticks, and less of an idle CPU says nothing.
const POINT: Policy = less_by(1.0);
/// Of jitter, a microsecond: less is the clock and the scheduler.
const MICROSECOND: Policy = less_by(1.0);
/// A window has thousands; but none is better than one.
const ONE: Policy = less_by(0.5);
/// One datagram in ten thousand.
const TEN_THOUSANDTH: Policy = less_by(0.01);
/// A window of a stream carries tens of thousands of segments and more: a handful is no congestion.
const HANDFUL: Policy = less_by(10.0);

/// Of an end, and of both: what most figures are.
const END: FigureDefinition = FigureDefinition {
    names: &[],
    sheets: &[],
    unit: PER_SECOND,
    sides: &Side::ALL,
    default_side: Some(Side::Receiver),
    policy: MORE,
    is_primary: false,
    owner: FigureOwner::End,
    by_phase: PhaseCounting::Counted,
    over_time: None,
    check: check::any,
    formula: |_, _, _| None,
    reading: |_, value| value.into(),
    short: "",
    decimals: 0,
    is_optional: false,
    formula_words: None,
    meaning: "",
};

/// Figures that the local end alone knows.
const ASKED: FigureDefinition =
    FigureDefinition { unit: US, sides: LOCAL, default_side: Some(Side::Local), policy: LESS, decimals: 1, ..END };

/// Figures of what arrives at an end.
const ARRIVED: FigureDefinition = FigureDefinition {
    unit: PERCENT,
    sides: ARRIVALS,
    policy: TEN_THOUSANDTH,
    by_phase: PhaseCounting::NotCounted,
    check: check::arrivals,
    decimals: 3,
    is_optional: true,
    ..END
};

/// Figures of packets of a background load.
const BACKGROUND: FigureDefinition = FigureDefinition {
    sides: LOCAL,
    default_side: Some(Side::Local),
    check: check::none,
    is_optional: true,
    sheets: &[(FigureSheet::Carried, LOCAL)],
    ..END
};

/// Figures of packet loads.
const PACKETS: FigureDefinition =
    FigureDefinition { sides: BOTH_ENDS, default_side: Some(Side::Local), owner: FigureOwner::Packets, ..END };

/// Figures of the device under test. It is neither end, but each figure has a side: they are told as the local one's.
const DUT: FigureDefinition = FigureDefinition {
    sides: LOCAL,
    default_side: Some(Side::Local),
    owner: FigureOwner::Dut,
    by_phase: PhaseCounting::NotCounted,
    ..END
};

macro_rules! names {
    ($variant:ident $name:literal $label:literal) => {
        &[(Metric::$variant, $name, $label)]
    };
    ($variant:ident $name:literal $label:literal $statistics:ident) => {
        &[
            (Metric::$variant(Statistic::Mean), concat!($name, "_mean"), concat!($label, ", mean")),
            (Metric::$variant(Statistic::P50), concat!($name, "_p50"), concat!($label, ", p50")),
            (Metric::$variant(Statistic::P90), concat!($name, "_p90"), concat!($label, ", p90")),
            (Metric::$variant(Statistic::P99), concat!($name, "_p99"), concat!($label, ", p99")),
            (Metric::$variant(Statistic::P99_9), concat!($name, "_p99_9"), concat!($label, ", p99.9")),
            (Metric::$variant(Statistic::P99_99), concat!($name, "_p99_99"), concat!($label, ", p99.99")),
            (Metric::$variant(Statistic::Max), concat!($name, "_max"), concat!($label, ", max")),
        ]
    };
}

macro_rules! figures {
    ($($(#[$about:meta])* $variant:ident $(($statistics:ident))? $name:literal, $label:literal => $row:expr;)*) => {
        /// What is measured.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum Metric {
            $($(#[$about])* $variant $(($statistics))?,)*
        }

        /// Where each row is in the table.
        #[derive(Clone, Copy)]
        enum Index {
            $($variant,)*
        }

        /// All figures, in the order in which they are shown.
        pub static TABLE: &[FigureDefinition] = ROWS;

        const ROWS: &[FigureDefinition] = &[$(FigureDefinition { names: names!($variant $name $label $($statistics)?), ..$row },)*];

        impl Metric {
            pub fn row(self) -> &'static FigureDefinition {
                let index = match self {
                    $(Self::$variant { .. } => Index::$variant,)*
                };
                &TABLE[index as usize]
            }
        }
    };
}

figures! {
    /// Payload, bits per second.
    Throughput "throughput", "Throughput" => FigureDefinition {
        unit: BITS,
        over_time: Some(Column::Payload),
        check: check::payload,
        formula: |trial, side, _| super::throughput(trial, side),
        decimals: 1,
        meaning: "payload: for the sender what its sockets accepted in the window, for the receiver what its processes read; for a \
                  two-way load, at each end what arrived there",
        ..END
    };
    /// Share of the node's CPU time that was not idle, percent of all its CPUs.
    Cpu "cpu", "Avg. CPU" => FigureDefinition {
        unit: PERCENT,
        default_side: None,
        policy: POINT,
        formula: |trial, side, _| super::cpu(trial, side),
        short: "CPU",
        decimals: 1,
        meaning: "mean over the node's CPUs of time that was not idle, iowait or stolen",
        ..END
    };
    /// CPU time of the process that carries the load, percent of one CPU.
    ProcessCpu "process_cpu", "Process CPU" => FigureDefinition {
        unit: "% of a CPU",
        default_side: None,
        policy: POINT,
        by_phase: PhaseCounting::NotCounted,
        check: check::told,
        decimals: 1,
        is_optional: true,
        sheets: &[(FigureSheet::Ends, BOTH_ENDS)],
        meaning: "only of other tools' tests whose output tells it, as iperf3's does: CPU time of the process at that end, percent of \
                  one CPU",
        ..END
    };
    /// CPU time of the node for each KB (1024 bytes) of payload, microseconds.
    ServiceDemand "service_demand", "Service demand" => FigureDefinition {
        unit: "us/KB",
        default_side: None,
        policy: LESS,
        is_primary: true,
        check: check::payload,
        formula: |trial, side, _| super::service_demand(trial, side),
        short: "Demand",
        decimals: 3,
        formula_words: Some(("CPU % * 10000 / (KB/s) * number of the node's CPUs, KB of 1024 bytes", "netperf manual, \"Service Demand\"")),
        meaning: "CPU time of the node per KB that the end carried; for a two-way load, both directions together",
        ..END
    };
    /// Segments sent again inside the window.
    Retransmits "retransmits", "Retransmits" => FigureDefinition {
        unit: "segments",
        default_side: Some(Side::Sender),
        policy: HANDFUL,
        check: check::segments,
        formula: |trial, side, _| super::retransmits(trial, side).filter(|_| !packets::have(trial, "udpTx")),
        meaning: "increase of TCP_INFO's total over the end's connections",
        ..END
    };
    /// Requests answered, per second.
    Transactions "transactions", "Transactions" => FigureDefinition {
        sides: BOTH_ENDS,
        default_side: Some(Side::Local),
        over_time: Some(Column::Units),
        check: check::answers,
        formula: |trial, side, _| super::transactions(trial, side),
        meaning: "at the local end, answers received in the window; at the remote end, answers sent",
        ..END
    };
    /// CPU time of the node for each transaction, microseconds.
    TransactionDemand "transaction_demand", "Service demand" => FigureDefinition {
        unit: "us/Tr",
        sides: BOTH_ENDS,
        default_side: None,
        policy: LESS,
        is_primary: true,
        check: check::cost_of_answers,
        // Workers of packets never rest.
        formula: |trial, side, _| {
            let per_second = super::transactions(trial, side).filter(|_| !packets::are_in(trial))?;
            super::cpu_time_per(trial, side, per_second)
        },
        short: "Demand",
        decimals: 3,
        formula_words: Some(("CPU % * 10000 / (transactions/s) * number of the node's CPUs", "the same")),
        meaning: "CPU time of the node per transaction",
        ..END
    };
    /// Time from a request's sending, or from when it was due, to the end of its response, microseconds.
    Latency(Statistic) "latency", "Latency" => FigureDefinition {
        by_phase: PhaseCounting::OverSockets,
        check: check::answers,
        formula: |trial, _, of| super::statistic(&super::latency([trial]), of),
        meaning: "from sending a request (at a fixed rate, from when it was due) to the end of its response; for tcp-crr including \
                  the connect",
        ..ASKED
    };
    /// Datagrams sent or received, per second.
    Datagrams "datagrams", "Datagrams" => FigureDefinition {
        over_time: Some(Column::Units),
        check: check::datagrams,
        formula: |trial, side, _| super::datagrams(trial, side),
        meaning: "sent at the sender, received at the receiver",
        ..END
    };
    /// Share of datagrams, or of requests over UDP, that were lost, percent.
    Loss "loss", "Loss" => FigureDefinition {
        by_phase: PhaseCounting::Counted,
        check: check::loss,
        formula: |trial, side, _| super::loss(trial, side).filter(|_| !packets::have(trial, "tcpTx")),
        meaning: "sequence numbers that never arrived while later ones did, of all expected; 100 if something was sent and nothing \
                  arrived; for udp-rr, at the local end, unanswered requests",
        ..ARRIVED
    };
    /// Share of the received datagrams that came after one with a higher sequence number, percent.
    Reordered "reordered", "Reordered" => FigureDefinition {
        formula: |trial, side, _| super::share_of_received(trial, side, |arrived| arrived.reordered),
        meaning: "received datagrams that came after one with a higher number",
        ..ARRIVED
    };
    /// Share of the received datagrams that had come before, percent.
    Duplicated "duplicated", "Duplicated" => FigureDefinition {
        formula: |trial, side, _| super::share_of_received(trial, side, |arrived| arrived.duplicated),
        meaning: "received datagrams that had arrived before",
        ..ARRIVED
    };
    /// Interarrival jitter of RFC 3550 (6.4.1), microseconds.
    Jitter "jitter", "Jitter" => FigureDefinition {
        unit: US,
        policy: MICROSECOND,
        formula: |trial, side, _| super::jitter(trial, side),
        decimals: 1,
        formula_words: Some(("J += (\\|D\\| - J) / 16, D = (R_j - R_i) - (S_j - S_i)", "RFC 3550, 6.4.1")),
        meaning: "interarrival jitter of RFC 3550 (6.4.1) at the window's end, mean over the flows",
        ..ARRIVED
    };
    /// Time of a datagram from sending to receiving, microseconds.
    Delay(Statistic) "delay", "Delay" => FigureDefinition {
        unit: US,
        policy: LESS,
        formula: |trial, side, of| super::statistic(&super::delay([trial], side), of),
        reading: |trial, value| {
            let bound = super::clock_bound_us(trial);
            Reading { value, resolution: Resolution { below: bound, above: bound }, bound: None }
        },
        decimals: 1,
        formula_words: Some(("received - sent - offset of the receiver's clock", "RFC 7679, 3.4")),
        meaning: "for udp-stream, from sending to receiving, known to the bound of both ends' clocks; only where that is below the median",
        ..ARRIVED
    };
    /// Payload of the load that runs beside the scenario's own, where it arrives, bits per second.
    BackgroundThroughput "background_throughput", "Background load" => FigureDefinition {
        unit: BITS,
        sides: &[Side::Receiver],
        check: check::none,
        formula: |trial, _, _| super::background_throughput(trial),
        decimals: 1,
        is_optional: true,
        sheets: &[(FigureSheet::Ends, &[Side::Receiver]), (FigureSheet::Trouble, &[Side::Receiver])],
        meaning: "payload of the background load, where it arrives",
        ..END
    };
    /// Frames that the load beside the scenario's own sends, where it makes its packets itself, per second.
    BackgroundPacketsOut "background_packets_out", "Background, packets out" => FigureDefinition {
        formula: |trial, _, _| super::background_packets(trial, "pktTx"),
        meaning: "frames that a background load of packets, such as a flood, sent",
        ..BACKGROUND
    };
    BackgroundPacketsIn "background_packets_in", "Background, packets in" => FigureDefinition {
        formula: |trial, _, _| super::background_packets(trial, "pktRx"),
        meaning: "frames that came back to where it sends: answers to a flood's forged addresses",
        ..BACKGROUND
    };
    /// Of packet loads, as all that follow: connections opened, per second.
    Connections "connections", "Connections" => FigureDefinition {
        over_time: Some(Column::Units),
        check: check::connections,
        formula: |trial, side, _| packets::rate(trial, side, "skOpen"),
        meaning: "packet loads: connections opened; for UDP, first datagrams",
        ..PACKETS
    };
    /// Connections open at the window's end.
    Concurrent "concurrent", "Concurrent connections" => FigureDefinition {
        unit: CONNECTIONS,
        check: check::connections,
        formula: |trial, side, _| packets::sum(trial, side, |one| one.open),
        short: "Concurrent",
        is_optional: true,
        meaning: "open at the window's end",
        ..PACKETS
    };
    /// Connections of the window that were given up, reset or cut short, or could not be opened.
    Failed "failed", "Failed connections" => FigureDefinition {
        unit: CONNECTIONS,
        policy: Policy { is_fact: true, ..ONE },
        is_primary: true,
        by_phase: PhaseCounting::NotCounted,
        check: check::connections,
        formula: |trial, side, _| packets::sum(trial, side, packets::failed),
        short: "Failed",
        meaning: "given up, reset, cut short, or not opened for lack of an address and port; includes those of the window that fail \
                  after it",
        ..PACKETS
    };
    /// Frames sent, per second.
    PacketsOut "packets_out", "Packets out" => FigureDefinition {
        formula: |trial, side, _| packets::rate(trial, side, "pktTx"),
        meaning: "frames sent",
        ..PACKETS
    };
    /// Frames received, per second.
    PacketsIn "packets_in", "Packets in" => FigureDefinition {
        formula: |trial, side, _| packets::rate(trial, side, "pktRx"),
        meaning: "frames received",
        ..PACKETS
    };
    /// Their bits without frame check sequence and preamble, per second.
    BitsOut "bits_out", "Bits out" => FigureDefinition {
        unit: BITS,
        formula: |trial, side, _| packets::rate(trial, side, "bitsTx"),
        decimals: 1,
        meaning: "bits of the frames sent, without frame check sequence and preamble",
        ..PACKETS
    };
    BitsIn "bits_in", "Bits in" => FigureDefinition {
        unit: BITS,
        formula: |trial, side, _| packets::rate(trial, side, "bitsRx"),
        decimals: 1,
        meaning: "bits of the frames received, without frame check sequence and preamble",
        ..PACKETS
    };
    /// Frames that found no room at the end's own port, sent or received.
    Drops "drops", "Drops at the port" => FigureDefinition {
        unit: "packets",
        policy: ONE,
        by_phase: PhaseCounting::NotCounted,
        formula: |trial, side, _| packets::sum(trial, side, packets::dropped),
        sheets: &[(FigureSheet::Trouble, BOTH_ENDS)],
        meaning: "frames for which the end's own port had no room: sent in the window, or received during the whole load",
        ..PACKETS
    };
    /// Connections and requests that began more than a millisecond after their time.
    Late "late", "Late starts" => FigureDefinition {
        unit: "starts",
        sides: LOCAL,
        policy: HANDFUL,
        formula: |trial, side, _| packets::sum(trial, side, |one| one.count("late")),
        short: "Started late",
        sheets: &[(FigureSheet::Trouble, LOCAL)],
        meaning: "connections and requests that started more than a millisecond late",
        ..PACKETS
    };
    /// Share of the window in which the end's busiest worker had something to do, percent.
    Busy "busy", "Busiest worker" => FigureDefinition {
        unit: PERCENT,
        policy: POINT,
        formula: |trial, side, _| packets::busy(trial, side),
        sheets: &[(FigureSheet::Frames, BOTH_ENDS)],
        decimals: 1,
        meaning: "share of the window in which the end's busiest thread had work",
        ..PACKETS
    };
    /// Frames of the window that found no room to be sent, per second.
    DropsOut "drops_out", "Drops when sending" => FigureDefinition {
        policy: ONE,
        formula: |trial, side, _| packets::rate(trial, side, "dropTx"),
        meaning: "outgoing frames for which the end's own port had no room, over the window",
        ..PACKETS
    };
    /// The highest rate that a search found to be carried without loss, per second.
    Limit "limit", "Limit without loss" => FigureDefinition {
        sides: LOCAL,
        by_phase: PhaseCounting::NotCounted,
        formula: |trial, _, _| {
            let found = super::found(trial, |of| of != SearchedRate::Held);
            found.or(trial.limit.as_ref().map(|limit| limit.rate))
        },
        reading: super::limit,
        is_optional: true,
        sheets: &[(FigureSheet::Carried, LOCAL)],
        formula_words: Some(("doubling, then bisection; of benchmarks the first goal's lower bound", "RFC 2544, 26.1; RFC 9971")),
        meaning: "the highest rate without loss that a search found",
        ..PACKETS
    };
    /// The most connections that a search found to be held open without loss.
    LimitHeld "limit_held", "Connections held without loss" => FigureDefinition {
        unit: CONNECTIONS,
        sides: LOCAL,
        by_phase: PhaseCounting::NotCounted,
        formula: |trial, _, _| super::found(trial, |of| of == SearchedRate::Held),
        reading: super::limit,
        is_optional: true,
        meaning: "the most open connections without loss that a search found",
        ..PACKETS
    };
    /// Time from when a connection was due until its SYN was acknowledged, microseconds.
    Handshake(Statistic) "handshake", "Handshake" => FigureDefinition {
        owner: FigureOwner::Packets,
        by_phase: PhaseCounting::NotCounted,
        check: check::handshake,
        formula: |trial, side, of| packets::times(trial, side, &super::handshake([trial]), of),
        is_optional: true,
        meaning: "from when a connection was due to its SYN's acknowledgment",
        ..ASKED
    };
    /// Time from when a request was due to the first byte of its response, microseconds.
    FirstByte(Statistic) "first_byte", "First byte" => FigureDefinition {
        owner: FigureOwner::Packets,
        by_phase: PhaseCounting::NotCounted,
        check: check::first_byte,
        formula: |trial, side, of| packets::times(trial, side, &super::first_byte([trial]), of),
        is_optional: true,
        meaning: "from when a request was due to the first byte of its response",
        ..ASKED
    };
    /// Of the device under test, as all that follow: packets that its interfaces received, per second.
    DutPacketsIn "dut_packets_in", "DUT, packets in" => FigureDefinition {
        formula: |trial, _, _| dut::rate(trial, |dut| dut.in_packets),
        meaning: "packets that all interfaces of the device under test (DUT) together received",
        ..DUT
    };
    DutPacketsOut "dut_packets_out", "DUT, packets out" => FigureDefinition {
        formula: |trial, _, _| dut::rate(trial, |dut| dut.out_packets),
        meaning: "packets that they sent",
        ..DUT
    };
    /// Their bits, per second.
    DutBitsIn "dut_bits_in", "DUT, bits in" => FigureDefinition {
        unit: BITS,
        formula: |trial, _, _| dut::rate(trial, |dut| dut.in_bytes.saturating_mul(8)),
        decimals: 1,
        meaning: "bits of the packets that they received",
        ..DUT
    };
    DutBitsOut "dut_bits_out", "DUT, bits out" => FigureDefinition {
        unit: BITS,
        formula: |trial, _, _| dut::rate(trial, |dut| dut.out_bytes.saturating_mul(8)),
        decimals: 1,
        meaning: "bits of the packets that they sent",
        ..DUT
    };
    /// Connections that it knew of at the window's end.
    DutConnections "dut_connections", "DUT, connections" => FigureDefinition {
        unit: CONNECTIONS,
        formula: |trial, _, _| trial.dut.as_ref()?.connections.map(|count| count as f64),
        meaning: "in its table at the window's end, including expiring ones; missing if the system does not report them",
        ..DUT
    };
    /// Share of the time of the CPUs that carried its packets that was not idle, percent.
    DutCpu "dut_cpu", "DUT, CPU" => FigureDefinition {
        unit: PERCENT,
        policy: POINT,
        formula: |trial, _, _| dut::cpu(trial),
        decimals: 1,
        meaning: "mean, over the CPUs that carry its packets, of time that was not idle or stolen; missing if the load uses such a \
                  CPU too",
        ..DUT
    };
    /// Packets that it dropped inside the window.
    DutDrops "dut_drops", "DUT, drops" => FigureDefinition {
        unit: "packets",
        policy: ONE,
        formula: |trial, _, _| Some(trial.dut.as_ref()?.drops.iter().map(|(_, count)| count).sum::<u64>() as f64),
        meaning: "dropped by it inside the window, for any reason",
        ..DUT
    };
    /// CPUs of the side's nodes that received packets: each that took at least a hundredth of all that they processed
    /// (softnet_stat, proc(5)).
    CpusUsed "cpus_used", "CPUs with receive work" => FigureDefinition {
        unit: "CPUs",
        policy: ONE,
        formula: |trial, side, _| phases::cpus_used(trial, side),
        decimals: 1,
        meaning: "CPUs of the side's nodes that received packets: each with at least a hundredth of the packets that all of them \
                  processed (first column of `/proc/net/softnet_stat`)",
        ..END
    };
    /// Time from a phase's begin until the rate has reached 95 % of what it settles at, microseconds.
    T95 "t95", "Time to 95 %" => FigureDefinition {
        by_phase: PhaseCounting::Needed,
        check: check::none,
        formula: |trial, _, _| phases::t95(trial),
        // It lies somewhere in the interval whose end is given.
        reading: |trial, value| {
            let resolution = Resolution { below: phases::interval_us(trial), above: 0.0 };
            Reading { value, resolution, bound: None }
        },
        decimals: 0,
        formula_words: Some(("first of three intervals in a row with 95 % of the median of the phase's second half", "after IEC 60050-351:2013, 351-45-36, with 95 % of the final value in place of the step")),
        meaning: "from the start of a phase until the rate reaches 95 % of where it settles; known to within one interval. Also \
                  written `t95(steps.quarter)`",
        ..ASKED
    };
}

const COUNT: usize = {
    let (mut count, mut row) = (0, 0);
    while row < ROWS.len() {
        count += ROWS[row].names.len();
        row += 1;
    }
    count
};

impl Metric {
    pub const ALL: [Self; COUNT] = {
        let mut all = [Self::Throughput; COUNT];
        let (mut at, mut row) = (0, 0);
        while row < ROWS.len() {
            let names = ROWS[row].names;
            let mut one = 0;
            while one < names.len() {
                all[at] = names[one].0;
                (at, one) = (at + 1, one + 1);
            }
            row += 1;
        }
        all
    };
}
