//! What streams come to: intervals, what was omitted, and totals. Readings in, figures out.

use rig_load::worker::embedded::streams::DatagramCounts;
use rig_sys::socket::{TcpInfo, sctp};

use super::settings::{Protocol, TestSettings};
use super::wire::{Results, StreamResult};

/// What a stream's counters show at some moment, since its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    pub bytes: u64,
    /// Of a sender of datagrams: how many.
    pub datagrams_sent: u64,
    /// Of a receiver of datagrams.
    pub datagrams: DatagramCounts,
    /// Of a sender over connections.
    pub sender: Option<SenderState>,
}

/// What the kernel tells of a connection that sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SenderState {
    /// `None` where it counts none: SCTP.
    pub retransmits: Option<u64>,
    /// Bytes.
    pub congestion_window: u64,
    pub send_window: u64,
    pub rtt_us: u64,
    pub rtt_variance_us: u64,
    pub path_mtu: u64,
    pub reordering: u64,
}

impl From<TcpInfo> for SenderState {
    fn from(tcp: TcpInfo) -> Self {
        Self {
            retransmits: Some(tcp.total_retransmits.into()),
            congestion_window: u64::from(tcp.congestion_window) * u64::from(tcp.send_mss),
            send_window: tcp.send_window.into(),
            rtt_us: tcp.rtt_us.into(),
            rtt_variance_us: tcp.rtt_variance_us.into(),
            path_mtu: tcp.path_mtu.into(),
            reordering: tcp.reordering_events.into(),
        }
    }
}

impl From<sctp::Status> for SenderState {
    fn from(status: sctp::Status) -> Self {
        Self {
            congestion_window: status.congestion_window.into(),
            send_window: status.send_window.into(),
            // As the original has it, whatever the unit is.
            rtt_us: status.rtt_ticks.into(),
            path_mtu: status.path_mtu.into(),
            ..Self::default()
        }
    }
}

impl Reading {
    /// Datagrams by the count of this end.
    fn packets(&self, sends: bool) -> u64 {
        if sends { self.datagrams_sent } else { self.datagrams.highest }
    }
}

/// What happened between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Interval {
    /// Seconds since the beginning, or since the end of what is omitted.
    pub start: f64,
    pub end: f64,
    pub bytes: u64,
    pub retransmits: u64,
    pub congestion_window: u64,
    pub send_window: u64,
    pub rtt_us: u64,
    pub rtt_variance_us: u64,
    pub path_mtu: u64,
    pub reordering: u64,
    pub packets: i64,
    pub lost: i64,
    pub jitter_s: f64,
    pub omitted: bool,
}

impl Interval {
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }

    pub fn bytes_per_second(&self) -> f64 {
        rate(self.bytes, self.seconds())
    }

    pub fn lost_percent(&self) -> f64 {
        percent(self.lost, self.packets)
    }
}

/// Bytes per second; 0 of no time.
pub fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// A part of a whole, percent; 0 of nothing.
pub fn percent(part: i64, whole: i64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}

/// The extremes of a sender over connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extremes {
    pub congestion_window: u64,
    pub send_window: u64,
    pub rtt_us: u64,
    pub least_rtt_us: u64,
    sum_rtt_us: u64,
    readings: u64,
    pub reordering: u64,
}

impl Extremes {
    pub fn mean_rtt_us(&self) -> u64 {
        self.sum_rtt_us.checked_div(self.readings).unwrap_or(0)
    }

    fn take(&mut self, interval: &Interval) {
        self.congestion_window = self.congestion_window.max(interval.congestion_window);
        self.send_window = self.send_window.max(interval.send_window);
        self.rtt_us = self.rtt_us.max(interval.rtt_us);
        if self.least_rtt_us == 0 || interval.rtt_us < self.least_rtt_us {
            self.least_rtt_us = interval.rtt_us;
        }
        self.sum_rtt_us += interval.rtt_us;
        self.readings += 1;
        self.reordering = interval.reordering;
    }
}

/// One stream of this end.
#[derive(Debug, Clone)]
pub struct StreamFigures {
    /// Its number on the wire.
    pub id: i64,
    /// Its number in brackets.
    pub label: i32,
    pub sends: bool,
    start_ns: u64,
    last_ns: u64,
    /// Where counting begins: after what is omitted.
    base: Reading,
    last: Reading,
    pub extremes: Extremes,
}

/// Numbers of streams on the wire: 1, and then from 3 on.
pub fn stream_id(index: usize) -> i64 {
    if index == 0 { 1 } else { index as i64 + 2 }
}

/// Numbers in brackets, which are descriptors in the original: 5, 7, 9 ...
pub fn stream_label(index: usize) -> i32 {
    5 + 2 * i32::try_from(index).unwrap_or(0)
}

impl StreamFigures {
    /// A stream that begins now, by its place in the list of streams.
    pub fn new(index: usize, sends: bool, now_ns: u64) -> Self {
        let (base, last) = (Reading::default(), Reading::default());
        Self {
            id: stream_id(index),
            label: stream_label(index),
            sends,
            start_ns: now_ns,
            last_ns: now_ns,
            base,
            last,
            extremes: Extremes::default(),
        }
    }

    /// The interval that ends now.
    pub fn interval(&mut self, reading: Reading, now_ns: u64, omitted: bool) -> Interval {
        let seconds = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let (before, sends) = (&self.last, self.sends);
        let mut interval = Interval {
            start: seconds(self.last_ns),
            end: seconds(now_ns),
            bytes: reading.bytes.saturating_sub(before.bytes),
            packets: growth(before.packets(sends), reading.packets(sends)),
            lost: growth(before.datagrams.lost, reading.datagrams.lost),
            jitter_s: reading.datagrams.jitter_s,
            omitted,
            ..Interval::default()
        };
        if let Some(sender) = reading.sender.filter(|_| sends) {
            let counted = |sender: &SenderState| sender.retransmits.unwrap_or(0);
            let earlier = before.sender.as_ref().map_or(0, counted);
            interval.retransmits = counted(&sender).saturating_sub(earlier);
            interval.congestion_window = sender.congestion_window;
            interval.send_window = sender.send_window;
            interval.rtt_us = sender.rtt_us;
            interval.rtt_variance_us = sender.rtt_variance_us;
            interval.path_mtu = sender.path_mtu;
            interval.reordering = sender.reordering;
            self.extremes.take(&interval);
        }
        (self.last, self.last_ns) = (reading, now_ns);
        interval
    }

    /// Counting begins now: what was before is omitted.
    pub fn begin_again(&mut self, reading: Reading, now_ns: u64) {
        (self.base, self.last) = (reading, reading);
        (self.start_ns, self.last_ns) = (now_ns, now_ns);
    }

    /// Bytes that count.
    pub fn bytes(&self) -> u64 {
        self.last.bytes.saturating_sub(self.base.bytes)
    }

    pub fn seconds(&self) -> f64 {
        self.last_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    fn retransmits(&self) -> Option<u64> {
        let total = |reading: &Reading| reading.sender.and_then(|sender| sender.retransmits);
        let last = total(&self.last).filter(|_| self.sends)?;
        Some(last.saturating_sub(total(&self.base).unwrap_or(0)))
    }

    /// What the peer is told of it.
    pub fn result(&self) -> StreamResult {
        StreamResult {
            id: self.id,
            bytes: self.bytes(),
            retransmits: self.retransmits(),
            jitter_s: self.last.datagrams.jitter_s,
            errors: self.last.datagrams.lost as i64,
            packets: self.last.packets(self.sends) as i64,
            omitted: Some((self.base.datagrams.lost as i64, self.base.packets(self.sends) as i64)),
            seconds: Some(self.seconds()),
        }
    }
}

/// A stream in the end, by what both ends know.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamSummary {
    pub label: i32,
    /// This end sent.
    pub sends: bool,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub sender_seconds: f64,
    pub receiver_seconds: f64,
    pub retransmits: u64,
    pub extremes: Extremes,
    pub jitter_s: f64,
    /// Lost datagrams, those of what is omitted included.
    pub errors: i64,
    /// Lost in what is omitted; `None` where an old peer does not tell.
    pub omitted_errors: Option<i64>,
    /// Datagrams that count, by the sender and by the receiver; 0 where unknown.
    pub sender_packets: i64,
    pub receiver_packets: i64,
    /// All that the receiver counted, what is omitted included.
    pub receiver_packets_in_all: i64,
    /// What one number of packets has to be: the sender's, or else the receiver's.
    pub packets: i64,
    pub out_of_order: i64,
}

/// What came to a count that a peer's numbers may have made anything.
fn growth(before: u64, after: u64) -> i64 {
    let grown = i128::from(after) - i128::from(before);
    i64::try_from(grown).unwrap_or(if grown < 0 { i64::MIN } else { i64::MAX })
}

/// The sum of what streams have. A peer's numbers may be anything.
pub fn total<T>(group: &[T], of: impl Fn(&T) -> i64) -> i64 {
    group.iter().map(of).fold(0, i64::saturating_add)
}

/// As [`total`], of bytes.
pub fn total_bytes<T>(group: &[T], of: impl Fn(&T) -> u64) -> u64 {
    group.iter().map(of).fold(0, u64::saturating_add)
}

impl StreamSummary {
    /// Lost datagrams that count.
    pub fn lost(&self) -> i64 {
        self.errors.saturating_sub(self.omitted_errors.unwrap_or(0))
    }

    fn of(own: &StreamFigures, peer: Option<&StreamResult>) -> Self {
        let mine = own.result();
        let (_, own_omitted) = mine.omitted.unwrap_or_default();
        let peer_packets = peer.map_or(0, |peer| peer.packets);
        let peer_omitted = match peer {
            None => 0,
            // Old peers do not tell: they have omitted what this end has.
            Some(peer) => peer.omitted.map_or(own_omitted, |(_, packets)| packets),
        };
        let peer_seconds = peer.and_then(|peer| peer.seconds).filter(|seconds| *seconds > 0.0);
        let other_seconds = peer_seconds.unwrap_or(own.seconds());
        let (sender, receiver) = if own.sends {
            ((mine.packets, own_omitted), (peer_packets, peer_omitted))
        } else {
            ((peer_packets, peer_omitted), (mine.packets, own_omitted))
        };
        let in_all = if sender.0 != 0 { sender.0 } else { receiver.0 };
        let receiving = if own.sends { peer.copied().unwrap_or_default() } else { mine };
        let omitted_errors = match receiving.omitted {
            Some((errors, _)) => Some(errors),
            None if own.sends && peer.is_some() && own_omitted > 0 => (receiving.errors == 0).then_some(0),
            None => Some(0),
        };
        let peer_bytes = peer.map_or(0, |peer| peer.bytes);
        let (sent_bytes, received_bytes) =
            if own.sends { (own.bytes(), peer_bytes) } else { (peer_bytes, own.bytes()) };
        let retransmits = if own.sends { mine.retransmits } else { peer.and_then(|peer| peer.retransmits) };
        let late = growth(own.base.datagrams.out_of_order, own.last.datagrams.out_of_order);
        let (sender_seconds, receiver_seconds) =
            if own.sends { (own.seconds(), other_seconds) } else { (other_seconds, own.seconds()) };
        Self {
            label: own.label,
            sends: own.sends,
            sent_bytes,
            received_bytes,
            sender_seconds,
            receiver_seconds,
            retransmits: retransmits.unwrap_or(0),
            extremes: own.extremes,
            jitter_s: receiving.jitter_s,
            errors: receiving.errors,
            omitted_errors,
            sender_packets: sender.0.saturating_sub(sender.1),
            receiver_packets: receiver.0.saturating_sub(receiver.1),
            receiver_packets_in_all: receiver.0,
            packets: in_all.saturating_sub(own_omitted),
            out_of_order: late,
        }
    }
}

/// A whole test in the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub streams: Vec<StreamSummary>,
    /// Whether the senders of this end, and of the other, count retransmits.
    pub own_retransmits: bool,
    pub peer_retransmits: bool,
    /// Total, user and system CPU time, percent of one CPU.
    pub cpu: [f64; 3],
    pub peer_cpu: [f64; 3],
    pub congestion: Option<String>,
    pub peer_congestion: Option<String>,
}

impl Summary {
    /// What this end counted and, where it is known, what the peer says.
    pub fn of(
        test: &TestSettings,
        streams: &[StreamFigures],
        peer: Option<&Results>,
        cpu: [f64; 3],
        congestion: Option<&str>,
    ) -> Self {
        let of_peer = |id: i64| peer.and_then(|peer| peer.streams.iter().find(|stream| stream.id == id));
        let sends = streams.iter().any(|stream| stream.sends);
        let summary = |stream: &StreamFigures| {
            let mut summary = StreamSummary::of(stream, of_peer(stream.id));
            if test.protocol == Protocol::Sctp {
                // Nobody counts them, and an original that sends says what its memory has there.
                summary.retransmits = 0;
            }
            summary
        };
        Self {
            streams: streams.iter().map(summary).collect(),
            own_retransmits: test.protocol == Protocol::Tcp && sends,
            peer_retransmits: peer.is_some_and(|peer| peer.sender_has_retransmits > 0),
            cpu,
            peer_cpu: peer.map_or([0.0; 3], |peer| peer.cpu),
            congestion: congestion.map(str::to_owned),
            peer_congestion: peer.and_then(|peer| peer.congestion.clone()),
        }
    }
}
