//! Which figures a kind of load is shown by.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::Kind;

/// A row of a table: its label and its figure.
pub(super) type Line = (&'static str, Side, Metric);

/// The rows of one table.
pub(super) struct Sheet {
    /// What the table shows of the layout, after its title.
    pub shows: &'static str,
    pub lines: Vec<Line>,
    /// Whether the first line is shown as a multiple of the baseline's, too.
    pub relative: bool,
}

/// Kinds of load in the order and words of tables that hold several.
pub(super) fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Stream => "streams",
        Kind::TwoWayStream => "two-way streams",
        Kind::Datagrams => "datagrams",
        Kind::TwoWayDatagrams => "two-way datagrams",
        Kind::Transactions => "request/response",
        Kind::Connections => "connections",
        Kind::Requests => "requests on open connections",
        Kind::Flood => "packets one way",
    }
}

const LATENCY: [Line; 7] = [
    ("Mean", Side::Local, Metric::Latency(Statistic::Mean)),
    ("p50", Side::Local, Metric::Latency(Statistic::P50)),
    ("p90", Side::Local, Metric::Latency(Statistic::P90)),
    ("p99", Side::Local, Metric::Latency(Statistic::P99)),
    ("p99.9", Side::Local, Metric::Latency(Statistic::P99_9)),
    ("p99.99", Side::Local, Metric::Latency(Statistic::P99_99)),
    ("Max", Side::Local, Metric::Latency(Statistic::Max)),
];

const DELAY: [Line; 7] = [
    ("Mean", Side::Receiver, Metric::Delay(Statistic::Mean)),
    ("p50", Side::Receiver, Metric::Delay(Statistic::P50)),
    ("p90", Side::Receiver, Metric::Delay(Statistic::P90)),
    ("p99", Side::Receiver, Metric::Delay(Statistic::P99)),
    ("p99.9", Side::Receiver, Metric::Delay(Statistic::P99_9)),
    ("p99.99", Side::Receiver, Metric::Delay(Statistic::P99_99)),
    ("Max", Side::Receiver, Metric::Delay(Statistic::Max)),
];

const BACKGROUND: Line = ("Background load", Side::Receiver, Metric::BackgroundThroughput);

/// Of packet loads, what the search found.
const LIMIT: Line = ("Limit without loss", Side::Local, Metric::Limit);

/// Of packet loads, what their connections and requests came to.
const CONNECTIONS: [Line; 3] = [
    ("Connections", Side::Local, Metric::Connections),
    ("Transactions", Side::Local, Metric::Transactions),
    ("Concurrent", Side::Local, Metric::Concurrent),
];

/// What went wrong, which is nothing in a good run.
const TROUBLE: [Line; 8] = [
    ("Failed", Side::Local, Metric::Failed),
    ("Retransmits, local", Side::Local, Metric::Retransmits),
    ("Retransmits, remote", Side::Remote, Metric::Retransmits),
    ("Requests lost", Side::Local, Metric::Loss),
    ("Drops at the port, local", Side::Local, Metric::Drops),
    ("Drops at the port, remote", Side::Remote, Metric::Drops),
    ("Started late", Side::Local, Metric::Late),
    BACKGROUND,
];

const FRAMES: [Line; 8] = [
    ("Packets out, local", Side::Local, Metric::PacketsOut),
    ("Packets in, local", Side::Local, Metric::PacketsIn),
    ("Packets out, remote", Side::Remote, Metric::PacketsOut),
    ("Packets in, remote", Side::Remote, Metric::PacketsIn),
    ("Bits out, local", Side::Local, Metric::BitsOut),
    ("Bits in, local", Side::Local, Metric::BitsIn),
    ("Busiest worker, local", Side::Local, Metric::Busy),
    ("Busiest worker, remote", Side::Remote, Metric::Busy),
];

const BEGIN: [Line; 8] = [
    ("Handshake, mean", Side::Local, Metric::Handshake(Statistic::Mean)),
    ("Handshake, p50", Side::Local, Metric::Handshake(Statistic::P50)),
    ("Handshake, p99", Side::Local, Metric::Handshake(Statistic::P99)),
    ("Handshake, p99.9", Side::Local, Metric::Handshake(Statistic::P99_9)),
    ("First byte, mean", Side::Local, Metric::FirstByte(Statistic::Mean)),
    ("First byte, p50", Side::Local, Metric::FirstByte(Statistic::P50)),
    ("First byte, p99", Side::Local, Metric::FirstByte(Statistic::P99)),
    ("First byte, p99.9", Side::Local, Metric::FirstByte(Statistic::P99_9)),
];

/// The tables of scenarios side by side: what each end saw, and what it cost.
pub(super) fn columns(kind: Kind) -> Vec<Sheet> {
    let sheet = |shows, relative, lines: &[Line]| Sheet { shows, lines: lines.to_vec(), relative };
    let arrives = |side| {
        [
            ("Throughput, arriving", side, Metric::Throughput),
            ("Datagrams, arriving", side, Metric::Datagrams),
            ("Avg. CPU", side, Metric::Cpu),
            ("Loss", side, Metric::Loss),
            ("Reordered", side, Metric::Reordered),
            ("Duplicated", side, Metric::Duplicated),
            ("Jitter", side, Metric::Jitter),
        ]
    };
    match kind {
        Kind::Stream => vec![sheet(
            "both ends",
            true,
            &[
                ("Throughput, received", Side::Receiver, Metric::Throughput),
                ("Throughput, sent", Side::Sender, Metric::Throughput),
                ("CPU, sender", Side::Sender, Metric::Cpu),
                ("CPU, receiver", Side::Receiver, Metric::Cpu),
                ("Demand, sender", Side::Sender, Metric::ServiceDemand),
                ("Demand, receiver", Side::Receiver, Metric::ServiceDemand),
                ("Retransmits", Side::Sender, Metric::Retransmits),
                BACKGROUND,
            ],
        )],
        Kind::TwoWayStream => vec![
            sheet(
                "local ends",
                true,
                &[("Throughput, arriving", Side::Local, Metric::Throughput), ("Avg. CPU", Side::Local, Metric::Cpu)],
            ),
            sheet(
                "remote ends",
                true,
                &[("Throughput, arriving", Side::Remote, Metric::Throughput), ("Avg. CPU", Side::Remote, Metric::Cpu)],
            ),
            sheet(
                "service demand and retransmits",
                false,
                &[
                    ("Demand, local", Side::Local, Metric::ServiceDemand),
                    ("Demand, remote", Side::Remote, Metric::ServiceDemand),
                    ("Retransmits, local", Side::Local, Metric::Retransmits),
                    ("Retransmits, remote", Side::Remote, Metric::Retransmits),
                    BACKGROUND,
                ],
            ),
        ],
        Kind::Datagrams => vec![
            sheet(
                "both ends",
                true,
                &[
                    ("Throughput, received", Side::Receiver, Metric::Throughput),
                    ("Throughput, sent", Side::Sender, Metric::Throughput),
                    ("Datagrams, received", Side::Receiver, Metric::Datagrams),
                    ("Datagrams, sent", Side::Sender, Metric::Datagrams),
                    ("Loss", Side::Receiver, Metric::Loss),
                    ("Reordered", Side::Receiver, Metric::Reordered),
                    ("Duplicated", Side::Receiver, Metric::Duplicated),
                    ("Jitter", Side::Receiver, Metric::Jitter),
                    ("CPU, sender", Side::Sender, Metric::Cpu),
                    ("CPU, receiver", Side::Receiver, Metric::Cpu),
                    ("Demand, sender", Side::Sender, Metric::ServiceDemand),
                    ("Demand, receiver", Side::Receiver, Metric::ServiceDemand),
                    BACKGROUND,
                ],
            ),
            sheet("delay", false, &DELAY),
        ],
        Kind::TwoWayDatagrams => vec![
            sheet("local ends", true, &arrives(Side::Local)),
            sheet("remote ends", true, &arrives(Side::Remote)),
            sheet(
                "service demand",
                false,
                &[
                    ("Demand, local", Side::Local, Metric::ServiceDemand),
                    ("Demand, remote", Side::Remote, Metric::ServiceDemand),
                    BACKGROUND,
                ],
            ),
        ],
        Kind::Transactions => vec![sheet("transactions", true, &both_ends(kind)), sheet("latency", false, &LATENCY)],
        Kind::Connections | Kind::Requests => vec![
            sheet("what was carried", true, &[&carried(kind)[..], &[LIMIT]].concat()),
            sheet("what went wrong", false, &TROUBLE),
            sheet("frames", false, &FRAMES),
            sheet("handshake and first byte", false, &BEGIN),
            sheet("latency", false, &LATENCY),
        ],
        Kind::Flood => vec![
            sheet("what was carried", true, &[&both_ends(kind)[..2], &[LIMIT]].concat()),
            sheet("what went wrong", false, &TROUBLE),
            sheet("frames", false, &FRAMES),
        ],
    }
}

/// The first is the result.
fn carried(kind: Kind) -> [Line; 3] {
    let mut lines = CONNECTIONS;
    if kind == Kind::Requests {
        lines.swap(0, 1);
    }
    lines
}

/// The tables of netperf's figures with their intervals.
pub(super) fn netperf(kind: Kind) -> Vec<Sheet> {
    let mut sheets = vec![Sheet { shows: "both ends", lines: both_ends(kind), relative: false }];
    if kind == Kind::Transactions {
        sheets.push(Sheet { shows: "latency", lines: LATENCY.to_vec(), relative: false });
    }
    sheets
}

fn both_ends(kind: Kind) -> Vec<Line> {
    let rates: &[Line] = match kind {
        Kind::Stream => &[("Throughput", Side::Receiver, Metric::Throughput)],
        Kind::Datagrams => {
            &[("Received", Side::Receiver, Metric::Throughput), ("Sent", Side::Sender, Metric::Throughput)]
        }
        Kind::TwoWayStream | Kind::TwoWayDatagrams => &[
            ("Arriving, local", Side::Local, Metric::Throughput),
            ("Arriving, remote", Side::Remote, Metric::Throughput),
        ],
        Kind::Transactions | Kind::Requests => &[("Transactions", Side::Local, Metric::Transactions)],
        Kind::Connections => &[("Connections", Side::Local, Metric::Connections)],
        Kind::Flood => &[("Received", Side::Remote, Metric::PacketsIn), ("Sent", Side::Local, Metric::PacketsOut)],
    };
    let cost = [
        ("CPU, local", Side::Local, Metric::Cpu),
        ("CPU, remote", Side::Remote, Metric::Cpu),
        ("Demand, local", Side::Local, kind.demand()),
        ("Demand, remote", Side::Remote, kind.demand()),
    ];
    let quality: &[Line] = match kind {
        Kind::Stream => &[("Retransmits", Side::Sender, Metric::Retransmits)],
        Kind::Datagrams => &[("Loss", Side::Receiver, Metric::Loss), ("Jitter", Side::Receiver, Metric::Jitter)],
        Kind::TwoWayStream | Kind::TwoWayDatagrams | Kind::Connections | Kind::Requests | Kind::Flood => &[],
        Kind::Transactions => &[("Requests lost", Side::Local, Metric::Loss)],
    };
    [rates, &cost, quality, &[BACKGROUND]].concat()
}

/// The figures that a single trial is shown by.
pub(super) fn trial(kind: Kind) -> Vec<Line> {
    if kind.is_packets() {
        return of_packets(kind);
    }
    let [one, other] = kind.sides();
    let cpu: [Line; 2] = match one {
        Side::Sender => [("CPU, sender", one, Metric::Cpu), ("CPU, receiver", other, Metric::Cpu)],
        _ => [("CPU, local", one, Metric::Cpu), ("CPU, remote", other, Metric::Cpu)],
    };
    let (carried, rest): (&[Line], &[Line]) = match kind {
        Kind::Stream => (
            &[("Sent", Side::Sender, Metric::Throughput), ("Received", Side::Receiver, Metric::Throughput)],
            &[
                ("Demand, receiver", Side::Receiver, Metric::ServiceDemand),
                ("Retransmits", Side::Sender, Metric::Retransmits),
            ],
        ),
        Kind::Datagrams => (
            &[("Sent", Side::Sender, Metric::Throughput), ("Received", Side::Receiver, Metric::Throughput)],
            &[
                ("Demand, receiver", Side::Receiver, Metric::ServiceDemand),
                ("Loss", Side::Receiver, Metric::Loss),
                ("Jitter", Side::Receiver, Metric::Jitter),
            ],
        ),
        Kind::TwoWayStream | Kind::TwoWayDatagrams => (
            &[
                ("Arriving, local", Side::Local, Metric::Throughput),
                ("Arriving, remote", Side::Remote, Metric::Throughput),
            ],
            &[
                ("Demand, local", Side::Local, Metric::ServiceDemand),
                ("Demand, remote", Side::Remote, Metric::ServiceDemand),
            ],
        ),
        Kind::Transactions => (
            &[("Transactions", Side::Local, Metric::Transactions)],
            &[
                ("Demand, local", Side::Local, Metric::TransactionDemand),
                ("Demand, remote", Side::Remote, Metric::TransactionDemand),
                ("Latency, p50", Side::Local, Metric::Latency(Statistic::P50)),
                ("Latency, p99", Side::Local, Metric::Latency(Statistic::P99)),
                ("Latency, p99.9", Side::Local, Metric::Latency(Statistic::P99_9)),
                ("Latency, max", Side::Local, Metric::Latency(Statistic::Max)),
            ],
        ),
        Kind::Connections | Kind::Requests | Kind::Flood => (&[], &[]),
    };
    [carried, &cpu, rest, &[BACKGROUND]].concat()
}

fn of_packets(kind: Kind) -> Vec<Line> {
    let carried = match kind {
        Kind::Flood => both_ends(kind)[..2].to_vec(),
        _ => carried(kind).to_vec(),
    };
    let latency = [
        ("Latency, p50", Side::Local, Metric::Latency(Statistic::P50)),
        ("Latency, p99", Side::Local, Metric::Latency(Statistic::P99)),
        ("Latency, max", Side::Local, Metric::Latency(Statistic::Max)),
    ];
    let latency = if kind == Kind::Flood { &[][..] } else { &latency };
    [&[LIMIT], &carried[..], &FRAMES[6..], &TROUBLE, latency].concat()
}

/// Lines that a table goes without when no scenario of it has the figure.
pub(super) fn is_optional(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::BackgroundThroughput
            | Metric::Loss
            | Metric::Delay(_)
            | Metric::Jitter
            | Metric::Reordered
            | Metric::Duplicated
            | Metric::Limit
            | Metric::LimitHeld
            | Metric::Concurrent
            | Metric::Handshake(_)
            | Metric::FirstByte(_)
    )
}
