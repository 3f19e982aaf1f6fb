//! Which figures a kind of load is shown by. What they are called is in the table of figures, and where those stand that no layout names.

use rig_facts::claim::{Metric, Side, Statistic};
use rig_facts::figures::{FigureDefinition, FigureSheet, Kind, TABLE};

/// A row of a table: its label and its figure.
pub(super) type Line = (String, Side, Metric);

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

/// A figure that a table has of one side alone.
fn alone(side: Side, metric: Metric) -> Line {
    (metric.short_label().to_owned(), side, metric)
}

/// A figure under its whole label.
fn whole(side: Side, metric: Metric) -> Line {
    (metric.label().to_owned(), side, metric)
}

/// A figure of each of two sides.
fn of_both(sides: [Side; 2], metric: Metric) -> [Line; 2] {
    sides.map(|side| (format!("{}, {side}", metric.short_label()), side, metric))
}

/// What became of payload at a side.
fn fate(side: Side) -> &'static str {
    match side {
        Side::Sender => "sent",
        Side::Receiver => "received",
        Side::Local | Side::Remote => "arriving",
    }
}

/// A figure of payload with what became of it.
fn moved(side: Side, metric: Metric) -> Line {
    (format!("{}, {}", metric.short_label(), fate(side)), side, metric)
}

/// The same where nothing but payload is meant.
fn only_moved(side: Side, metric: Metric) -> Line {
    let label = match side {
        Side::Sender => "Sent".to_owned(),
        Side::Receiver => "Received".to_owned(),
        Side::Local | Side::Remote => format!("Arriving, {side}"),
    };
    (label, side, metric)
}

/// Times of a kind in a table of their own.
fn times(side: Side, of: fn(Statistic) -> Metric) -> Vec<Line> {
    Statistic::ALL.map(|statistic| (statistic.label().to_owned(), side, of(statistic))).to_vec()
}

/// Some times of a kind among other figures.
fn some_times(of: fn(Statistic) -> Metric, statistics: &[Statistic]) -> Vec<Line> {
    statistics.iter().map(|statistic| whole(Side::Local, of(*statistic))).collect()
}

const ENDS: [Side; 2] = [Side::Sender, Side::Receiver];
const BOTH: [Side; 2] = [Side::Local, Side::Remote];

/// The figures whose rows in the table say that they stand in a sheet.
fn by_rows(sheet: FigureSheet) -> Vec<Line> {
    let lines = |row: &'static FigureDefinition| {
        let sides = row.sheets.iter().filter(move |(of, _)| *of == sheet).map(|(_, sides)| *sides);
        sides.flat_map(move |sides| row.names.iter().flat_map(move |(metric, ..)| of_sides(sides, *metric)))
    };
    TABLE.iter().flat_map(lines).collect()
}

fn of_sides(sides: &[Side], metric: Metric) -> Vec<Line> {
    match sides {
        [side] => vec![alone(*side, metric)],
        sides => sides.iter().map(|side| of_side(*side, metric)).collect(),
    }
}

fn requests_lost() -> Line {
    ("Requests lost".to_owned(), Side::Local, Metric::Loss)
}

/// What went wrong, which is nothing in a good run.
fn trouble() -> Vec<Line> {
    let mut lines = vec![alone(Side::Local, Metric::Failed)];
    lines.extend(of_both(BOTH, Metric::Retransmits));
    lines.push(requests_lost());
    lines.extend(by_rows(FigureSheet::Trouble));
    lines
}

fn frames() -> Vec<Line> {
    let mut lines = Vec::new();
    for side in BOTH {
        lines.extend([Metric::PacketsOut, Metric::PacketsIn].map(|metric| of_side(side, metric)));
    }
    lines.extend([Metric::BitsOut, Metric::BitsIn].map(|metric| of_side(Side::Local, metric)));
    lines
}

fn of_side(side: Side, metric: Metric) -> Line {
    (format!("{}, {side}", metric.short_label()), side, metric)
}

fn begin() -> Vec<Line> {
    const SHOWN: [Statistic; 4] = [Statistic::Mean, Statistic::P50, Statistic::P99, Statistic::P99_9];
    [some_times(Metric::Handshake, &SHOWN), some_times(Metric::FirstByte, &SHOWN)].concat()
}

/// The tables of scenarios side by side: what each end saw, and what it cost.
pub(super) fn columns(kind: Kind) -> Vec<Sheet> {
    let sheet = |shows, relative, lines: Vec<Line>| Sheet { shows, lines, relative };
    let busy = |side| whole(side, Metric::Cpu);
    let arrives = |side| {
        let quality = [Metric::Loss, Metric::Reordered, Metric::Duplicated, Metric::Jitter];
        let mut lines = vec![moved(side, Metric::Throughput), moved(side, Metric::Datagrams), busy(side)];
        lines.extend(quality.map(|metric| alone(side, metric)));
        lines
    };
    let demand = |sides| of_both(sides, Metric::ServiceDemand).to_vec();
    match kind {
        Kind::Stream => {
            let mut lines = ENDS.map(|side| moved(side, Metric::Throughput)).to_vec();
            lines.reverse();
            lines.extend(of_both(ENDS, Metric::Cpu));
            lines.extend(demand(ENDS));
            lines.push(alone(Side::Sender, Metric::Retransmits));
            lines.extend(by_rows(FigureSheet::Ends));
            vec![sheet("both ends", true, lines)]
        }
        Kind::TwoWayStream => {
            let mut cost = demand(BOTH);
            cost.extend(of_both(BOTH, Metric::Retransmits));
            cost.extend(by_rows(FigureSheet::Ends));
            let end = |side| vec![moved(side, Metric::Throughput), busy(side)];
            vec![
                sheet("local ends", true, end(Side::Local)),
                sheet("remote ends", true, end(Side::Remote)),
                sheet("service demand and retransmits", false, cost),
            ]
        }
        Kind::Datagrams => {
            let mut lines = Vec::new();
            for metric in [Metric::Throughput, Metric::Datagrams] {
                lines.extend([Side::Receiver, Side::Sender].map(|side| moved(side, metric)));
            }
            let quality = [Metric::Loss, Metric::Reordered, Metric::Duplicated, Metric::Jitter];
            lines.extend(quality.map(|metric| alone(Side::Receiver, metric)));
            lines.extend(of_both(ENDS, Metric::Cpu));
            lines.extend(demand(ENDS));
            lines.extend(by_rows(FigureSheet::Ends));
            vec![sheet("both ends", true, lines), sheet("delay", false, times(Side::Receiver, Metric::Delay))]
        }
        Kind::TwoWayDatagrams => {
            let mut cost = demand(BOTH);
            cost.extend(by_rows(FigureSheet::Ends));
            vec![
                sheet("local ends", true, arrives(Side::Local)),
                sheet("remote ends", true, arrives(Side::Remote)),
                sheet("service demand", false, cost),
            ]
        }
        Kind::Transactions => {
            vec![sheet("transactions", true, both_ends(kind)), sheet("latency", false, latency())]
        }
        Kind::Connections | Kind::Requests => vec![
            sheet("what was carried", true, [carried(kind), by_rows(FigureSheet::Carried)].concat()),
            sheet("what went wrong", false, trouble()),
            sheet("frames", false, frames_and_work()),
            sheet("handshake and first byte", false, begin()),
            sheet("latency", false, latency()),
        ],
        Kind::Flood => vec![
            sheet("what was carried", true, [rates(kind), by_rows(FigureSheet::Carried)].concat()),
            sheet("what went wrong", false, trouble()),
            sheet("frames", false, frames_and_work()),
        ],
    }
}

fn latency() -> Vec<Line> {
    times(Side::Local, Metric::Latency)
}

fn frames_and_work() -> Vec<Line> {
    [frames(), by_rows(FigureSheet::Frames)].concat()
}

/// Of packet loads, what their connections and requests came to; the first is the result.
fn carried(kind: Kind) -> Vec<Line> {
    let mut metrics = [Metric::Connections, Metric::Transactions, Metric::Concurrent];
    if kind == Kind::Requests {
        metrics.swap(0, 1);
    }
    metrics.map(|metric| alone(Side::Local, metric)).to_vec()
}

/// The tables of netperf's figures with their intervals.
pub(super) fn netperf(kind: Kind) -> Vec<Sheet> {
    let mut sheets = vec![Sheet { shows: "both ends", lines: both_ends(kind), relative: false }];
    if kind == Kind::Transactions {
        sheets.push(Sheet { shows: "latency", lines: latency(), relative: false });
    }
    sheets
}

fn rates(kind: Kind) -> Vec<Line> {
    match kind {
        Kind::Stream => vec![alone(Side::Receiver, Metric::Throughput)],
        Kind::Datagrams => [Side::Receiver, Side::Sender].map(|side| only_moved(side, Metric::Throughput)).to_vec(),
        Kind::TwoWayStream | Kind::TwoWayDatagrams => BOTH.map(|side| only_moved(side, Metric::Throughput)).to_vec(),
        Kind::Transactions | Kind::Requests => vec![alone(Side::Local, Metric::Transactions)],
        Kind::Connections => vec![alone(Side::Local, Metric::Connections)],
        Kind::Flood => vec![
            ("Received".to_owned(), Side::Remote, Metric::PacketsIn),
            ("Sent".to_owned(), Side::Local, Metric::PacketsOut),
        ],
    }
}

fn both_ends(kind: Kind) -> Vec<Line> {
    let quality = match kind {
        Kind::Stream => vec![alone(Side::Sender, Metric::Retransmits)],
        Kind::Datagrams => [Metric::Loss, Metric::Jitter].map(|metric| alone(Side::Receiver, metric)).to_vec(),
        Kind::TwoWayStream | Kind::TwoWayDatagrams | Kind::Connections | Kind::Requests | Kind::Flood => Vec::new(),
        Kind::Transactions => vec![requests_lost()],
    };
    let cost = [of_both(BOTH, Metric::Cpu), of_both(BOTH, kind.demand())].concat();
    [rates(kind), cost, quality, by_rows(FigureSheet::Ends)].concat()
}

/// The figures that a single trial is shown by.
pub(super) fn trial(kind: Kind) -> Vec<Line> {
    if kind.is_packets() {
        return of_packets(kind);
    }
    let carried = match kind {
        Kind::Stream | Kind::Datagrams => ENDS.map(|side| only_moved(side, Metric::Throughput)).to_vec(),
        _ => rates(kind),
    };
    let receiver_demand = || of_side(Side::Receiver, Metric::ServiceDemand);
    let rest = match kind {
        Kind::Stream => vec![receiver_demand(), alone(Side::Sender, Metric::Retransmits)],
        Kind::Datagrams => {
            vec![receiver_demand(), alone(Side::Receiver, Metric::Loss), alone(Side::Receiver, Metric::Jitter)]
        }
        Kind::TwoWayStream | Kind::TwoWayDatagrams => of_both(BOTH, Metric::ServiceDemand).to_vec(),
        Kind::Transactions => {
            const SHOWN: [Statistic; 4] = [Statistic::P50, Statistic::P99, Statistic::P99_9, Statistic::Max];
            [of_both(BOTH, Metric::TransactionDemand).to_vec(), some_times(Metric::Latency, &SHOWN)].concat()
        }
        Kind::Connections | Kind::Requests | Kind::Flood => Vec::new(),
    };
    [carried, of_both(kind.sides(), Metric::Cpu).to_vec(), rest, by_rows(FigureSheet::Ends)].concat()
}

fn of_packets(kind: Kind) -> Vec<Line> {
    let carried = if kind == Kind::Flood { rates(kind) } else { carried(kind) };
    let latency = match kind {
        Kind::Flood => Vec::new(),
        _ => some_times(Metric::Latency, &[Statistic::P50, Statistic::P99, Statistic::Max]),
    };
    [by_rows(FigureSheet::Carried), carried, by_rows(FigureSheet::Frames), trouble(), latency].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rig_facts::figures::FigureOwner;

    use super::*;

    const KINDS: [Kind; 8] = [
        Kind::Stream,
        Kind::TwoWayStream,
        Kind::Datagrams,
        Kind::TwoWayDatagrams,
        Kind::Transactions,
        Kind::Connections,
        Kind::Requests,
        Kind::Flood,
    ];

    /// A new figure has a sheet in its row, or a place in a layout.
    #[test]
    fn each_figure_of_an_end_stands_in_a_table_once() {
        let mut shown = BTreeSet::new();
        for kind in KINDS {
            for sheet in columns(kind) {
                let lines: BTreeSet<(Side, Metric)> =
                    sheet.lines.iter().map(|(_, side, metric)| (*side, *metric)).collect();
                assert_eq!(lines.len(), sheet.lines.len(), "{kind:?}, {}: a line twice", sheet.shows);
                shown.extend(lines.into_iter().map(|(_, metric)| metric));
            }
        }
        let elsewhere = |row: &&FigureDefinition| {
            row.owner != FigureOwner::Dut && !row.names.iter().any(|(metric, ..)| shown.contains(metric))
        };
        let elsewhere: Vec<&str> = TABLE.iter().filter(elsewhere).map(|row| row.names[0].1).collect();
        // By phase, and with a search.
        assert_eq!(elsewhere, ["drops_out", "limit_held", "cpus_used", "t95"]);
    }
}
