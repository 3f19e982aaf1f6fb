//! The lines that iperf3 prints, as pure functions of figures.

use super::figures::{Interval, StreamSummary, Summary, percent, rate, total, total_bytes};
use super::settings::{Flow, Protocol, Role, TestSettings};
use super::units::{Format, bitrate, transfer, two_digits};

pub const RULE: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -\n";
pub const DONE: &str = "iperf Done.\n";

/// What decides how lines look.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    pub test: &'a TestSettings,
    pub role: Role,
    pub format: Format,
    pub verbose: bool,
}

/// One stream in an interval.
#[derive(Debug, Clone, Copy)]
pub struct StreamInterval {
    pub label: i32,
    pub sends: bool,
    pub interval: Interval,
}

/// Neighbours that go the same way.
pub fn groups<T>(items: &[T], sends: impl Fn(&T) -> bool) -> Vec<(bool, &[T])> {
    items.chunk_by(|a, b| sends(a) == sends(b)).map(|group| (sends(&group[0]), group)).collect()
}

fn bracket(label: i32) -> String {
    format!("[{label:3}]")
}

impl Layout<'_> {
    /// Its rows have no datagrams.
    fn connects(&self) -> bool {
        self.test.protocol.connects()
    }

    /// Of SCTP the original has the columns of retransmits in the rows of senders, and not above them or in sums.
    fn is_sctp(&self) -> bool {
        self.test.protocol == Protocol::Sctp
    }

    fn both_ways(&self) -> bool {
        self.test.flow == Flow::Both
    }

    /// This end sends over some streams.
    fn sends(&self) -> bool {
        self.test.shape(self.role == Role::Client).0 > 0
    }

    /// Behind the number, where streams go both ways.
    fn role_of(&self, sends: bool) -> String {
        if !self.both_ways() {
            return String::new();
        }
        let (way, end) = (if sends { "TX" } else { "RX" }, if self.role == Role::Client { "C" } else { "S" });
        format!("[{way}-{end}]")
    }

    fn head(&self, label: &str, sends: bool, (start, end): (f64, f64), bytes: u64, per_second: f64) -> String {
        format!(
            "{label}{} {start:6.2}-{end:<6.2} sec  {}s  {}s/sec",
            self.role_of(sends),
            transfer(bytes as f64),
            bitrate(per_second, self.format)
        )
    }

    fn header(&self, columns: &str) -> String {
        let role = if self.both_ways() { "[Role]" } else { "" };
        format!("[ ID]{role} Interval           Transfer     Bitrate{columns}\n")
    }

    /// Above the first interval.
    pub fn interval_header(&self) -> String {
        self.header(match (self.connects(), self.sends() && !self.is_sctp(), self.both_ways()) {
            (true, true, _) => "         Retr  Cwnd",
            (true, false, _) => "",
            (false, true, false) => "         Total Datagrams",
            (false, ..) => "         Jitter    Lost/Total Datagrams",
        })
    }

    fn interval_row(&self, stream: &StreamInterval) -> String {
        let StreamInterval { label, sends, interval } = stream;
        let times = (interval.start, interval.end);
        let head = self.head(&bracket(*label), *sends, times, interval.bytes, interval.bytes_per_second());
        let omitted = if interval.omitted { "(omitted)" } else { "" };
        match (self.connects(), sends) {
            (true, true) => {
                let window = transfer(interval.congestion_window as f64);
                format!("{head}  {:3}   {window}s       {omitted}\n", interval.retransmits)
            }
            (true, false) => format!("{head}                  {omitted}\n"),
            (false, true) => format!("{head} {} {}  {omitted}\n", self.wide(), interval.packets),
            (false, false) => {
                let Interval { jitter_s, lost, packets, .. } = interval;
                format!("{head}  {}  {omitted}\n", datagrams(*jitter_s, *lost, *packets, interval.lost_percent()))
            }
        }
    }

    /// In the place of the columns that a sender of datagrams lacks beside receivers.
    fn wide(&self) -> &'static str {
        if self.both_ways() { "          " } else { "" }
    }

    fn interval_sum(&self, sends: bool, group: &[StreamInterval]) -> String {
        let first = &group[0].interval;
        let total = |of: fn(&Interval) -> i64| total(group, |stream| of(&stream.interval));
        let bytes = total_bytes(group, |stream| stream.interval.bytes);
        let times = (first.start, first.end);
        let head = self.head("[SUM]", sends, times, bytes, rate(bytes, first.seconds()));
        let omitted = if first.omitted { "(omitted)" } else { "" };
        match (self.connects(), sends && !self.is_sctp()) {
            (true, true) => format!("{head}  {:3}             {omitted}\n", total(|one| one.retransmits as i64)),
            (true, false) => format!("{head}                  {omitted}\n"),
            (false, true) => format!("{head} {} {}  {omitted}\n", self.wide(), total(|one| one.packets)),
            (false, false) => {
                let jitter = group.iter().map(|stream| stream.interval.jitter_s).sum::<f64>() / group.len() as f64;
                let (lost, packets) = (total(|one| one.lost), total(|one| one.packets));
                format!("{head}  {}  {omitted}\n", datagrams(jitter, lost, packets, percent(lost, packets)))
            }
        }
    }

    /// An interval: the first one below its header, others of several streams below a rule.
    pub fn interval(&self, streams: &[StreamInterval], first: bool) -> Vec<String> {
        let several = self.test.parallel > 1;
        let mut lines = Vec::new();
        if first {
            lines.push(self.interval_header());
        } else if several {
            lines.push(RULE.to_owned());
        }
        for (sends, group) in groups(streams, |stream| stream.sends) {
            lines.extend(group.iter().map(|stream| self.interval_row(stream)));
            if several {
                lines.push(self.interval_sum(sends, group));
            }
        }
        lines
    }

    /// The end of a test, below the last interval.
    pub fn summary(&self, summary: &Summary) -> Vec<String> {
        let mut lines = vec![RULE.to_owned()];
        if self.verbose {
            lines.push("Test Complete. Summary Results:\n".to_owned());
        }
        let any_retransmits = summary.own_retransmits || summary.peer_retransmits;
        lines.push(self.header(match (self.connects(), any_retransmits) {
            (true, true) => "         Retr",
            (true, false) => "",
            (false, _) => "         Jitter    Lost/Total Datagrams",
        }));
        for (sends, group) in groups(&summary.streams, |stream| stream.sends) {
            let retransmits = if sends { summary.own_retransmits } else { summary.peer_retransmits };
            for stream in group {
                self.stream_summary(stream, retransmits, &mut lines);
            }
            if self.test.parallel > 1 {
                self.sum(sends, group, retransmits, &mut lines);
            }
            if self.verbose {
                self.costs(sends, summary, &mut lines);
            }
        }
        lines
    }

    /// This end does not know what the other one sent, or received.
    fn lacks(&self, receiver: bool, sends: bool) -> bool {
        self.role == Role::Server && receiver == sends
    }

    fn unavailable(&self, label: &str, receiver: bool, lines: &mut Vec<String>) {
        if self.verbose {
            let side = if receiver { "receiver" } else { "sender" };
            lines.push(format!("{label} ({side} statistics not available)\n"));
        }
    }

    fn stream_summary(&self, stream: &StreamSummary, retransmits: bool, lines: &mut Vec<String>) {
        let label = bracket(stream.label);
        let (sent, received) = (stream.sent_bytes, stream.received_bytes);
        let sender =
            self.head(&label, stream.sends, (0.0, stream.sender_seconds), sent, rate(sent, stream.sender_seconds));
        let receiver = self.head(
            &label,
            stream.sends,
            (0.0, stream.receiver_seconds),
            received,
            rate(received, stream.receiver_seconds),
        );
        if self.lacks(false, stream.sends) {
            self.unavailable(&label, false, lines);
        } else if self.connects() && (retransmits || self.is_sctp()) {
            lines.push(format!("{sender}  {:3}            sender\n", stream.retransmits));
        } else if self.connects() {
            lines.push(format!("{sender}                  sender\n"));
        } else {
            lines.push(format!("{sender}  {}  sender\n", datagrams(0.0, 0, stream.sender_packets, 0.0)));
        }
        if !self.connects() && stream.out_of_order > 0 {
            lines.push(format!(
                "[SUM]{} {:4.1}-{:4.1} sec  {} datagrams received out-of-order\n",
                self.role_of(stream.sends),
                0.0,
                stream.sender_seconds,
                stream.out_of_order
            ));
        }
        if self.lacks(true, stream.sends) {
            self.unavailable(&label, true, lines);
        } else if self.connects() {
            lines.push(format!("{receiver}                  receiver\n"));
        } else if self.test.omit > 0 && stream.omitted_errors.is_none() {
            let jitter_ms = stream.jitter_s * 1e3;
            lines.push(format!("{receiver}  {jitter_ms:5.3} ms  Unknown/{}  receiver\n", stream.receiver_packets));
        } else {
            let (lost, packets) = if self.test.omit == 0 {
                (stream.errors, stream.receiver_packets_in_all)
            } else {
                (stream.lost(), stream.receiver_packets)
            };
            let figures = datagrams(stream.jitter_s, lost, packets, percent(lost, packets));
            lines.push(format!("{receiver}  {figures}  receiver\n"));
        }
    }

    fn sum(&self, sends: bool, group: &[StreamSummary], retransmits: bool, lines: &mut Vec<String>) {
        let StreamSummary { sender_seconds, receiver_seconds, .. } = group[0];
        let sent = total_bytes(group, |stream| stream.sent_bytes);
        let received = total_bytes(group, |stream| stream.received_bytes);
        let sender = self.head("[SUM]", sends, (0.0, sender_seconds), sent, rate(sent, sender_seconds));
        let receiver = self.head("[SUM]", sends, (0.0, receiver_seconds), received, rate(received, receiver_seconds));
        let total = |of: fn(&StreamSummary) -> i64| total(group, of);
        if self.lacks(false, sends) {
            if self.connects() {
                self.unavailable("[SUM]", false, lines);
            }
        } else if self.connects() && retransmits {
            lines.push(format!("{sender}  {:3}             sender\n", total(|one| one.retransmits as i64)));
        } else if self.connects() {
            lines.push(format!("{sender}                  sender\n"));
        } else {
            lines.push(format!("{sender}  {}  sender\n", datagrams(0.0, 0, total(|one| one.sender_packets), 0.0)));
        }
        if self.lacks(true, sends) {
            if self.connects() {
                self.unavailable("[SUM]", true, lines);
            }
        } else if self.connects() {
            lines.push(format!("{receiver}                  receiver\n"));
        } else {
            let jitter = group.iter().map(|stream| stream.jitter_s).sum::<f64>() / group.len() as f64;
            let lost = total(StreamSummary::lost);
            let lost_percent = percent(lost, total(|one| one.packets));
            let figures = datagrams(jitter, lost, total(|one| one.receiver_packets), lost_percent);
            lines.push(format!("{receiver}  {figures}  receiver\n"));
        }
    }

    /// CPU time and congestion control of both ends.
    fn costs(&self, sends: bool, summary: &Summary, lines: &mut Vec<String>) {
        // Of receivers the original says nothing.
        if sends {
            lines.push(cpu_line("sender", "receiver", summary));
            if self.both_ways() {
                lines.push(cpu_line("receiver", "sender", summary));
            }
        }
        if self.connects() {
            let (own, peer) = (&summary.congestion, &summary.peer_congestion);
            let (sender, receiver) = if sends { (own, peer) } else { (peer, own) };
            lines.extend(sender.iter().map(|name| format!("snd_tcp_congestion {name}\n")));
            lines.extend(receiver.iter().map(|name| format!("rcv_tcp_congestion {name}\n")));
        }
    }

    /// With `-V`, before the first interval.
    pub fn test_start(&self) -> String {
        let TestSettings { parallel, length, omit, time, bytes, blocks, tos, .. } = self.test;
        let amount = match (bytes, blocks) {
            (0, 0) => format!("{time} second test"),
            (0, blocks) => format!("{blocks} blocks to send"),
            (bytes, _) => format!("{bytes} bytes to send"),
        };
        let protocol = self.test.protocol.name();
        format!(
            "Starting Test: protocol: {protocol}, {parallel} streams, {length} byte blocks, omitting {omit} seconds, {amount}, tos {tos}\n"
        )
    }
}

fn cpu_line(local: &str, remote: &str, summary: &Summary) -> String {
    let ([all, user, system], [peer, peer_user, peer_system]) = (summary.cpu, summary.peer_cpu);
    format!(
        "CPU Utilization: local/{local} {all:.1}% ({user:.1}%u/{system:.1}%s), \
         remote/{remote} {peer:.1}% ({peer_user:.1}%u/{peer_system:.1}%s)\n"
    )
}

/// Jitter, lost and total datagrams.
fn datagrams(jitter_s: f64, lost: i64, packets: i64, lost_percent: f64) -> String {
    format!("{:5.3} ms  {lost}/{packets} ({}%)", jitter_s * 1e3, two_digits(lost_percent))
}
