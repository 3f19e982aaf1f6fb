//! The block of statistics: dperf's fields under dperf's names and at their places, and below them what it has not.

use std::collections::BTreeMap;
use std::fmt::Write;

use rig_packet::{Counters, Latencies};
use rig_stats::histogram::BEYOND;
use rig_stats::histogram::Histogram;

/// Which lines there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    pub udp: bool,
    pub messages: MessageFormat,
    /// The time from a connection's first packet to its answer is shown.
    pub rtt: bool,
}

/// What requests and responses of TCP are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MessageFormat {
    #[default]
    Filler,
    /// HTTP that is not parsed: what comes is taken for a whole request or a good response.
    Unread,
    Http,
}

/// What the kernel counts for the ports' interfaces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Nic {
    pub ierrors: u64,
    pub oerrors: u64,
    pub imissed: u64,
}

impl Nic {
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            ierrors: self.ierrors.saturating_sub(earlier.ierrors),
            oerrors: self.oerrors.saturating_sub(earlier.oerrors),
            imissed: self.imissed.saturating_sub(earlier.imissed),
        }
    }
}

/// What a block says.
#[derive(Debug, Clone, Copy)]
pub struct Figures<'a> {
    /// Of the second, or of the whole run.
    pub counters: &'a Counters,
    /// Open connections at its end.
    pub open: u64,
    /// Since the run began.
    pub nic: Nic,
}

/// Characters of each name in a line, the blanks after it included.
const NAMES: [usize; 6] = [8, 9, 9, 8, 8, 6];
const WIDE: usize = 18;
const NARROW: usize = 10;

/// White on red (ECMA-48).
const RED: &str = "\x1b[41;37m";
const PLAIN: &str = "\x1b[0m";

/// How a figure is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    /// Nothing but zero is good.
    Error,
    /// As `Error`, in a narrow column.
    Short,
}
use Kind::{Count, Error, Short};

type StatisticsLine = &'static [(&'static str, Kind)];

const PACKETS: StatisticsLine =
    &[("pktRx", Count), ("pktTx", Count), ("bitsRx", Count), ("bitsTx", Count), ("dropTx", Error)];
const PROTOCOLS: [StatisticsLine; 3] = [
    &[("tcpRx", Count), ("tcpTx", Count), ("udpRx", Count), ("udpTx", Count)],
    &[("arpRx", Count), ("arpTx", Count), ("icmpRx", Count), ("icmpTx", Count)],
    &[("tosRx", Count), ("otherRx", Count), ("badRx", Error)],
];
const FLAGS: StatisticsLine =
    &[("synRx", Count), ("synTx", Count), ("finRx", Count), ("finTx", Count), ("rstRx", Short), ("rstTx", Short)];
const RETRANSMITS: [StatisticsLine; 2] = [
    &[("synRt", Error), ("finRt", Error), ("ackRt", Error), ("pushRt", Error)],
    &[("tcpDrop", Error), ("udpDrop", Error), ("ackDup", Error)],
];
const UDP: StatisticsLine =
    &[("udpRt", Error), ("udpDrop", Error), ("tcpDrop", Error), ("udpLate", Error), ("udpDup", Error)];
const SOCKETS: StatisticsLine = &[("skOpen", Count), ("skClose", Count), ("skCon", Count), ("skErr", Error)];
const HTTP: StatisticsLine = &[("httpGet", Count), ("httpPost", Count), ("http2XX", Count), ("httpErr", Error)];
const TCP: StatisticsLine = &[("tcpReq", Count), ("tcpRsp", Count)];
const NIC: StatisticsLine = &[("ierrors", Error), ("oerrors", Error), ("imissed", Error)];

impl Layout {
    /// The lines of a block without its first one. With `colour`, errors that are not zero stand out. A block that is
    /// wider than `columns` has no more blanks than it needs.
    pub fn block(self, figures: &Figures<'_>, colour: bool, columns: Option<usize>) -> String {
        let mut values: BTreeMap<&str, u64> = figures.counters.fields().collect();
        values.insert("skCon", figures.open);
        let Nic { ierrors, oerrors, imissed } = figures.nic;
        values.extend([("ierrors", ierrors), ("oerrors", oerrors), ("imissed", imissed)]);
        if self.messages == MessageFormat::Unread {
            let [requests, responses] = ["tcpReq", "tcpRsp"].map(|name| values.get(name).copied().unwrap_or(0));
            values.extend([("httpGet", requests), ("http2XX", responses)]);
        }
        let mut lines = Vec::new();
        let mut line = |fields: StatisticsLine, more: Option<String>| {
            let cell = |&(name, kind): &(&'static str, Kind)| {
                let value = values.get(name).copied().unwrap_or(0);
                Cell { name, digits: thousands(value), kind, stands_out: colour && kind != Count && value > 0 }
            };
            lines.push((fields.iter().map(cell).collect::<Vec<_>>(), more.unwrap_or_default()));
        };
        line(PACKETS, None);
        PROTOCOLS.into_iter().for_each(|fields| line(fields, None));
        if self.udp {
            line(UDP, None);
        } else {
            line(FLAGS, None);
            RETRANSMITS.into_iter().for_each(|fields| line(fields, None));
        }
        line(SOCKETS, self.rtt.then(|| format!("rtt(us) {}", rtt(figures.counters))));
        match self {
            Self { udp: true, .. } => {}
            Self { messages: MessageFormat::Filler, .. } => line(TCP, None),
            Self { messages: MessageFormat::Unread | MessageFormat::Http, .. } => line(HTTP, None),
        }
        line(NIC, None);
        let wide = written(&lines, |column, kind| (NAMES[column], if kind == Short { NARROW } else { WIDE }));
        let width = |text: &str| text.lines().map(|line| line.replace(RED, "").replace(PLAIN, "").len()).max();
        if columns.is_none_or(|columns| width(&wide).is_none_or(|width| width <= columns)) {
            return wide;
        }
        let widest = |column: usize, of: fn(&Cell) -> usize| {
            lines.iter().filter_map(|(cells, _)| cells.get(column)).map(of).max().unwrap_or(0)
        };
        written(&lines, |column, _| {
            (widest(column, |cell| cell.name.len()) + 1, widest(column, |cell| cell.digits.len()))
        })
    }
}

/// Mean time of a round trip, in microseconds.
fn rtt(counters: &Counters) -> String {
    let tenths = counters.rtt_sum / counters.rtt_count.max(1) / 100;
    format!("{}.{}", thousands(tenths / 10), tenths % 10)
}

/// The first line of a second: how busy each thread was, in percent.
pub fn heading(second: u64, busy: &[f64]) -> String {
    let mut text = format!("seconds {second:<18} cpuUsage ");
    for busy in busy {
        let _ = write!(text, "{:<4}", (busy * 100.0).round() as u64);
    }
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
    text
}

struct Cell {
    name: &'static str,
    digits: String,
    kind: Kind,
    stands_out: bool,
}

/// The lines, with what `widths` says about the characters of names and figures in a column.
fn written(lines: &[(Vec<Cell>, String)], widths: impl Fn(usize, Kind) -> (usize, usize)) -> String {
    let mut text = String::new();
    for (cells, more) in lines {
        for (column, Cell { name, digits, kind, stands_out }) in cells.iter().enumerate() {
            let (before, width) = widths(column, *kind);
            let blanks = " ".repeat(width.saturating_sub(digits.len()));
            let (on, off) = if *stands_out { (RED, PLAIN) } else { ("", "") };
            let _ = write!(text, "{name:<before$}{on}{digits}{off}{blanks} ");
        }
        text.push_str(more);
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// `1,234,567`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The percentiles that are shown.
pub const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// Whether there are enough values for [`BEYOND`] of them to lie beyond a percentile.
pub fn is_known(histogram: &Histogram, percent: f64) -> bool {
    histogram.count() as f64 * (100.0 - percent) >= 100.0 * BEYOND as f64 - 1e-6
}

/// A line for each latency that was measured, in microseconds; nothing when none was.
pub fn percentiles(latencies: &Latencies) -> String {
    let Latencies { handshake, first_byte, transaction, .. } = latencies;
    let rows = [("handshake", handshake), ("first byte", first_byte), ("transaction", transaction)];
    let mut text = String::new();
    for (name, histogram) in rows.into_iter().filter(|(_, histogram)| !histogram.is_empty()) {
        if text.is_empty() {
            let _ = writeln!(
                text,
                "{:<12}{:>12}{:>12}{:>12}{:>12}{:>12}",
                "latency(us)", "p50", "p90", "p99", "p99.9", "max"
            );
        }
        let _ = write!(text, "{name:<12}");
        for percent in PERCENTILES {
            let value = histogram.percentile(percent).filter(|_| is_known(histogram, percent));
            let _ = write!(text, "{:>12}", value.map_or("-".into(), micros));
        }
        let _ = writeln!(text, "{:>12}", histogram.max().map_or("-".into(), micros));
    }
    text
}

fn micros(nanos: u64) -> String {
    format!("{}.{}", thousands(nanos / 1000), nanos % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies() -> Latencies {
        let mut latencies = Latencies::default();
        (1..=2000).for_each(|n| latencies.handshake.record(n * 1000));
        (1..=50).for_each(|n| latencies.transaction.record(n * 1_000_000));
        latencies
    }

    fn counters() -> Counters {
        Counters {
            pkt_rx: 600_020,
            pkt_tx: 599_988,
            bits_rx: 393_618_488,
            bits_tx: 382_378_808,
            syn_rx: 200_006,
            syn_tx: 200_000,
            rst_tx: 12,
            syn_rt: 7,
            sk_open: 200_000,
            sk_close: 199_990,
            tcp_req: 1_200_003,
            rtt_count: 1000,
            rtt_sum: 1_000_512_345,
            ..Counters::default()
        }
    }

    fn block(layout: Layout, colour: bool) -> String {
        let counters = counters();
        let nic = Nic { imissed: 3, ..Nic::default() };
        let text = layout.block(&Figures { counters: &counters, open: 1472, nic }, colour, None);
        // A snapshot keeps no blank at the end of a line, and neither does a block.
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
        text
    }

    #[test]
    fn blocks() {
        let tcp = Layout { rtt: true, ..Layout::default() };
        insta::assert_snapshot!("tcp", heading(17, &[0.421, 1.0]) + &block(tcp, false));
        insta::assert_snapshot!("http", block(Layout { messages: MessageFormat::Http, ..Layout::default() }, false));
        insta::assert_snapshot!("udp", block(Layout { udp: true, rtt: true, ..Layout::default() }, false));
        insta::assert_snapshot!(
            "unread",
            block(Layout { messages: MessageFormat::Unread, ..Layout::default() }, false)
        );
        insta::assert_snapshot!("percentiles", percentiles(&latencies()));
        assert_eq!(percentiles(&Latencies::default()), "");
    }

    #[test]
    fn errors_stand_out() {
        let plain = block(Layout::default(), false);
        let coloured = block(Layout::default(), true);
        assert_eq!(coloured.replace(RED, "").replace(PLAIN, ""), plain);
        assert_eq!(coloured.matches(RED).count(), 3, "rstTx, synRt and imissed: {coloured:?}");
    }

    #[test]
    fn a_block_fits_a_narrow_terminal() {
        let (counters, nic) = (counters(), Nic::default());
        let figures = Figures { counters: &counters, open: 1472, nic };
        let layout = Layout { rtt: true, ..Layout::default() };
        let [wide, narrow] = [140, 100].map(|columns| layout.block(&figures, true, Some(columns)));
        assert_eq!(wide, layout.block(&figures, true, None));
        let plain = narrow.replace(RED, "").replace(PLAIN, "");
        assert!(plain.lines().all(|line| line.len() <= 100), "{plain}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&narrow), words(&wide));
    }

    #[test]
    fn every_field_of_a_block_is_counted() {
        let counters = Counters::default();
        let names: Vec<&str> = counters.fields().map(|(name, _)| name).chain(["skCon"]).collect();
        let lines = [PACKETS, FLAGS, UDP, SOCKETS, TCP, HTTP].into_iter().chain(PROTOCOLS).chain(RETRANSMITS);
        for (name, _) in lines.flatten() {
            assert!(names.contains(name), "{name} is always zero");
        }
    }

    #[test]
    fn digits_come_in_threes() {
        let all = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ];
        for (value, text) in all {
            assert_eq!(thousands(value), text);
        }
    }
}
