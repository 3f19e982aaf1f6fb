//! What a worker saw. Plain values that are stored for ever: fields are added, never renamed or given another meaning.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rig_stats::histogram::Histogram;
use serde::{Deserialize, Serialize};

pub use crate::plan::{Direction, End};
use crate::plan::{Engine, ReceiveMode, SendMode};

/// Everything one worker process counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    pub name: String,
    pub direction: Direction,
    /// `None` in records of a time when the sending worker always was the connecting one: see [`Self::end`].
    #[serde(default)]
    pub end: Option<End>,
    /// Carried a load of its own beside the one that the trial is about, to see the latter under load.
    #[serde(default)]
    pub background: bool,
    pub engine: Engine,
    pub send_mode: SendMode,
    pub receive_mode: ReceiveMode,
    /// Edges of the window as this worker met them, nanoseconds of CLOCK_MONOTONIC.
    pub window_begin_ns: u64,
    pub window_end_ns: u64,
    /// CPU time of the whole process inside the window.
    pub process_cpu: CpuTime,
    pub threads: Vec<ThreadRecord>,
    pub connections: Vec<ConnectionRecord>,
    /// One sample an interval inside the window.
    pub samples: Vec<Sample>,
    /// What belongs to each phase, where the window has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<WorkerPhase>,
    /// MSG_ZEROCOPY sends that the kernel completed by copying after all.
    pub zerocopy_copied: u64,
    /// Of loads that are made of requests and responses.
    #[serde(default)]
    pub transactions: Option<TransactionRecord>,
    /// Of loads that are made of datagrams.
    #[serde(default)]
    pub datagrams: Option<DatagramRecord>,
    /// Of loads whose packets the worker makes itself.
    #[serde(default)]
    pub packets: Option<PacketRecord>,
    /// What the kernel did not grant, in words for the reader (a buffer size, a real-time limit).
    pub notes: Vec<String>,
}

/// What a worker of this name is called where workers of two loads may have the same endpoint.
pub fn label(name: &str, background: bool) -> String {
    format!("{name}{}", if background { " (background)" } else { "" })
}

impl WorkerRecord {
    /// Its name where workers of two loads may have the same endpoint.
    pub fn label(&self) -> String {
        label(&self.name, self.background)
    }

    /// Which end of the connections the worker was.
    pub fn end(&self) -> End {
        self.end.unwrap_or(match self.direction {
            Direction::Receive => End::Listen,
            _ => End::Connect,
        })
    }

    /// Makes its times those of a clock that shows `ns` more than the one by which they were taken.
    pub fn add_to_clock(&mut self, ns: i64) {
        let phases = self.phases.iter_mut().flat_map(|phase| [&mut phase.begin_ns, &mut phase.end_ns]);
        let lost_before = self.packets.iter_mut().filter_map(|packets| packets.lost_before_ns.as_mut());
        for time in phases.chain(lost_before).chain([&mut self.window_begin_ns, &mut self.window_end_ns]) {
            *time = time.saturating_add_signed(ns);
        }
    }

    /// Payload bytes that arrived here inside the window, where payload goes both ways over one connection.
    pub fn bytes_in(&self) -> u64 {
        self.connections.iter().map(|c| c.bytes_in).sum()
    }

    /// Payload bytes inside the window, in the worker's direction: sent, unless it only receives.
    pub fn bytes(&self) -> u64 {
        self.connections.iter().map(|c| c.bytes).sum()
    }

    /// Length of the window in seconds.
    pub fn seconds(&self) -> f64 {
        self.window_end_ns.saturating_sub(self.window_begin_ns) as f64 / 1e9
    }

    /// Payload bits per second inside the window.
    pub fn bits_per_second(&self) -> f64 {
        if self.window_end_ns <= self.window_begin_ns { 0.0 } else { self.bytes() as f64 * 8.0 / self.seconds() }
    }

    /// One phase as if it were the window: with the phase's counters, and its connections summed up. Figures that are not counted by
    /// phase are left out. `None` where there is no such phase.
    pub fn of_phase(&self, index: usize) -> Option<Self> {
        let phase = self.phases.get(index)?;
        let first = self.connections.first();
        let connections = first.map(|first| ConnectionRecord {
            thread: 0,
            local: String::new(),
            remote: String::new(),
            bytes: phase.bytes,
            bytes_in: phase.bytes_in,
            operations: phase.operations,
            total_bytes: phase.bytes,
            total_bytes_in: phase.bytes_in,
            begin: TcpState::default(),
            end: TcpState { total_retransmits: phase.retransmits, ..TcpState::default() },
            ..first.clone()
        });
        let received = matches!(self.direction, Direction::Receive);
        let datagrams = self.datagrams.as_ref().map(|_| DatagramRecord {
            sent: if received { 0 } else { phase.datagrams },
            received: if received { phase.datagrams } else { 0 },
            lost: phase.lost,
            ..DatagramRecord::default()
        });
        let packets = self.packets.as_ref().zip(phase.packets.clone()).map(|(whole, phase)| PacketRecord {
            counters: phase.counters,
            after: BTreeMap::new(),
            total: whole.total.clone(),
            open: phase.open,
            handshake: None,
            first_byte: None,
            lost_before_ns: None,
            workers: phase.workers,
            ports: Vec::new(),
            servers: Vec::new(),
        });
        Some(Self {
            window_begin_ns: phase.begin_ns,
            window_end_ns: phase.end_ns,
            process_cpu: phase.process_cpu,
            threads: Vec::new(),
            connections: connections.into_iter().collect(),
            samples: Vec::new(),
            phases: Vec::new(),
            zerocopy_copied: 0,
            transactions: phase.transactions.clone(),
            datagrams,
            packets,
            name: self.name.clone(),
            notes: Vec::new(),
            ..*self
        })
    }

    /// Segments retransmitted inside the window by this worker's sockets.
    pub fn retransmits(&self) -> u64 {
        self.connections
            .iter()
            .map(|c| u64::from(c.end.total_retransmits.saturating_sub(c.begin.total_retransmits)))
            .sum()
    }
}

/// Transactions inside the window. At the requesting end one belongs to the window when its response was complete, by
/// its own time stamp, between the planned edges; a responding end counts between the edges as it met them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TransactionRecord {
    /// At the requesting end, answered; at the responding end, answers sent.
    pub completed: u64,
    /// UDP requests sent inside the window (open loop: due inside it) that were not answered within the plan's timeout.
    pub lost: u64,
    /// Of tcp-crr: attempts to connect that failed.
    pub failed: u64,
    /// Open loop: transactions that were due inside the window and had not begun when it was over.
    pub overdue: u64,
    /// Nanoseconds from the request's sending (closed loop) or its scheduled time (open loop) to the end of the
    /// response; for tcp-crr the connecting is part of it. Requesting end only. Of the closed loop those that ended inside
    /// the window. Of the open loop those that were due inside it, all of them: answers that came later, too, and the
    /// `censored` ones. (Of records without `censored`, those that ended inside it.)
    pub latency: Option<Histogram>,
    /// Open loop: the same from the moment of sending, which hides what the schedule had to wait.
    pub service: Option<Histogram>,
    /// Of tcp-crr: nanoseconds that connecting took.
    pub connect: Option<Histogram>,
    /// Requests that had no response yet when the load was over and had been waited for a second more.
    #[serde(default)]
    pub unanswered: u64,
    /// Open loop: of `latency`, transactions without an answer, which are entered with the age that they had when they
    /// were given up. They took that long or longer.
    #[serde(default)]
    pub censored: u64,
    /// Length of the window that `completed` was counted over, nanoseconds.
    #[serde(default)]
    pub window_ns: u64,
    /// What the random times of an open loop were made of (xoshiro256++ seeded with this plus the thread's number).
    #[serde(default)]
    pub seed: Option<u64>,
}

impl TransactionRecord {
    /// Completed transactions per second; 0 without a window.
    pub fn per_second(&self) -> f64 {
        if self.window_ns == 0 { 0.0 } else { self.completed as f64 * 1e9 / self.window_ns as f64 }
    }

    /// Adds what another thread counted over the same window.
    pub(crate) fn merge(&mut self, other: &Self) {
        let join = |mine: &mut Option<Histogram>, theirs: &Option<Histogram>| match (mine.as_mut(), theirs) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        };
        join(&mut self.latency, &other.latency);
        join(&mut self.service, &other.service);
        join(&mut self.connect, &other.connect);
        self.completed += other.completed;
        self.lost += other.lost;
        self.failed += other.failed;
        self.overdue += other.overdue;
        self.unanswered += other.unanswered;
        self.censored += other.censored;
        self.window_ns = self.window_ns.max(other.window_ns);
        self.seed = self.seed.or(other.seed);
    }
}

/// Datagrams that were sent inside the window, which is decided by the sender's clock when it hands them to the kernel
/// and written into them. Fields that belong to the other direction are 0.
///
/// The sender's `sent` is the receiver's `received` plus `lost`, unless a note says that the receiver did not hear how
/// many there were.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramRecord {
    /// Taken by the kernel.
    pub sent: u64,
    /// Sends that the kernel refused for want of memory (ENOBUFS, EAGAIN).
    pub send_errors: u64,
    /// Distinct ones that arrived, until the cool-down was over.
    pub received: u64,
    /// Those that did not, or not soon enough: see `late`.
    pub lost: u64,
    /// Datagrams that came after one with a higher sequence number, and not before.
    pub reordered: u64,
    /// Datagrams whose sequence number had come before.
    pub duplicated: u64,
    /// Came more than 16 384 sequence numbers behind the highest, too late to be told from a duplicate. Lost ones.
    #[serde(default)]
    pub late: u64,
    /// Datagrams that are none of the load's, by their length or header. They arrived inside the window by the
    /// receiver's clock.
    #[serde(default)]
    pub malformed: u64,
    /// System calls that moved them.
    pub calls: u64,
    /// Interarrival jitter of RFC 3550 (6.4.1) at the window's end, nanoseconds, mean over the flows.
    pub jitter_ns: Option<f64>,
    /// Nanoseconds from sending to receiving; only where both ends read the same clock.
    pub delay: Option<Histogram>,
    /// Of the whole load, where each datagram is a message of its own to the kernels of both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<DatagramTotals>,
}

/// All datagrams of one end, from the load's begin to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramTotals {
    /// Taken by the kernel.
    pub sent: u64,
    /// Whichever came, also twice or malformed.
    pub received: u64,
    /// By which flows end: those that were sent, and those that were received. They are not in the others, and may be sent several times.
    pub farewells_sent: u64,
    pub farewells_received: u64,
}

impl DatagramTotals {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            farewells_sent: self.farewells_sent + other.farewells_sent,
            farewells_received: self.farewells_received + other.farewells_received,
        }
    }
}

impl DatagramRecord {
    /// Adds what another thread counted, except for the jitter, of which a mean needs more than that.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.send_errors += other.send_errors;
        self.received += other.received;
        self.lost += other.lost;
        self.reordered += other.reordered;
        self.duplicated += other.duplicated;
        self.late += other.late;
        self.malformed += other.malformed;
        self.calls += other.calls;
        self.total = self.total.into_iter().chain(other.total).reduce(DatagramTotals::plus);
        match (&mut self.delay, &other.delay) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
    }
}

/// What one end of a packet load counted. Counters go by their names in [`rig_packet::Counters`], which are those of
/// dperf's statistics where it has the counter; one that is not there is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketRecord {
    /// Inside the window.
    pub counters: BTreeMap<String, u64>,
    /// From the window's end to the end of all, while open connections came to their end.
    pub after: BTreeMap<String, u64>,
    /// From the first packet to the end of all.
    pub total: BTreeMap<String, u64>,
    /// Connections that were open at the window's end.
    pub open: u64,
    /// Nanoseconds from when a connection was due to its SYN's acknowledgment, of those that came inside the window;
    /// connecting end only. The transactions' latency is in [`TransactionRecord`].
    #[serde(default)]
    pub handshake: Option<Histogram>,
    /// From when a request was due to the first byte of its response.
    #[serde(default)]
    pub first_byte: Option<Histogram>,
    /// Of datagrams one way, where something was lost: when the first one after the last that is missing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_before_ns: Option<u64>,
    pub workers: Vec<PacketThread>,
    pub ports: Vec<PacketPort>,
    /// What was done with each address and port of servers, where there are several, over the whole run.
    #[serde(default)]
    pub servers: Vec<PacketServer>,
}

/// One address and port of a server: a client counts by its peers', a server by its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketServer {
    pub address: SocketAddr,
    pub opened: u64,
    pub requests: u64,
    pub responses: u64,
    pub errors: u64,
}

/// One worker of a packet load: a thread, an engine and a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PacketThread {
    pub interface: String,
    pub cpu: Option<u32>,
    /// Share of the window in which there was something to do, 0 to 1. The thread itself never rests.
    pub busy: f64,
    /// Inside the window.
    pub counters: BTreeMap<String, u64>,
}

/// One interface of a packet load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketPort {
    pub interface: String,
    /// By which way its frames left and entered the kernel, in words for the reader.
    pub driver: String,
    /// Why not by a better one, and what else the reader must know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Frames that were dropped between the wire and the engine, by reason, over the whole run.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
}

impl PacketRecord {
    /// A counter's increase inside the window.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Its increase from the window's begin to the end of all: what was sent inside the window may be found lost later.
    pub fn count_since(&self, name: &str) -> u64 {
        self.count(name) + self.after.get(name).copied().unwrap_or(0)
    }

    /// The share of the window in which the busiest worker had something to do, 0 to 1.
    pub fn busy(&self) -> f64 {
        self.workers.iter().map(|worker| worker.busy).fold(0.0, f64::max)
    }
}

/// CPU time in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    pub user_ns: u64,
    pub system_ns: u64,
}

/// One load thread inside the window. Where payload goes both ways, the sending threads come first, then those that
/// receive over the same connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRecord {
    pub bytes: u64,
    /// Completed sends, receives or transactions.
    pub operations: u64,
    pub cpu_ns: u64,
}

/// One connection, inside the window unless said otherwise. Of loads made of requests and responses, `bytes` are the
/// payload of both and `operations` the transactions, each counted when it is complete. Of tcp-crr, whose connections are
/// too many to be kept: one of the places for a connection under way; addresses, buffers and TCP states are those of a
/// connection that stands from before the load to its end and carries nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    pub thread: u32,
    pub local: String,
    pub remote: String,
    pub bytes: u64,
    /// Payload received, where it goes both ways; else 0 and `bytes` is what was received or sent.
    #[serde(default)]
    pub bytes_in: u64,
    pub operations: u64,
    /// Payload bytes over the connection's whole life.
    #[serde(default)]
    pub total_bytes: u64,
    /// Payload bytes received over the whole life, where payload goes both ways.
    #[serde(default)]
    pub total_bytes_in: u64,
    pub congestion_control: String,
    /// SO_SNDBUF and SO_RCVBUF as the kernel reports them at the end (twice what was asked for).
    pub send_buffer: u32,
    pub receive_buffer: u32,
    pub mss: u32,
    /// Of a load that asked for MPTCP, whether the connection was one at the end, and had not fallen back to plain TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mptcp: Option<bool>,
    /// TCP_INFO at the window's edges.
    pub begin: TcpState,
    pub end: TcpState,
}

/// The part of TCP_INFO (linux/tcp.h) that is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpState {
    pub rtt_us: u32,
    pub rtt_variance_us: u32,
    pub min_rtt_us: u32,
    /// Congestion window in segments.
    pub congestion_window: u32,
    pub total_retransmits: u32,
    pub delivery_rate_bytes_per_second: u64,
    /// Time in microseconds that the sender had data but no receive window or no send buffer.
    pub limited_by_receiver_us: u64,
    pub limited_by_send_buffer_us: u64,
    pub segments_out: u32,
    pub segments_in: u32,
    pub bytes_retransmitted: u64,
}

/// One interval, summed over the worker's connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// End of the interval, nanoseconds after the window's begin.
    pub at_ns: u64,
    /// Length of the interval in nanoseconds.
    pub span_ns: u64,
    /// Payload bytes in this interval; of packet loads the bytes of all frames sent.
    pub bytes: u64,
    /// Payload received, where it goes both ways; of packet loads the bytes of all frames received.
    #[serde(default)]
    pub bytes_in: u64,
    /// Transactions completed, or datagrams sent or received, in this interval; of packet loads whose connections carry
    /// one request each, connections opened.
    #[serde(default)]
    pub units: u64,
    /// Requests or datagrams found lost in this interval; of packet loads, connections given up too.
    #[serde(default)]
    pub lost: u64,
    /// Mean of the connections' smoothed round-trip times.
    pub rtt_us: u32,
    /// Sum of the connections' congestion windows in segments.
    pub congestion_window: u32,
    /// Segments retransmitted in this interval.
    pub retransmits: u32,
    /// Of the transactions that were answered in this interval, at the end that asks over sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<IntervalLatency>,
}

/// Latencies of one interval, nanoseconds, to 1.6 % of each. Those of an open loop count from when a transaction was due,
/// as in [`TransactionRecord::latency`], but belong to the interval in which the answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntervalLatency {
    pub count: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// What a worker counted in one phase of a window that has several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerPhase {
    /// Edges as this worker met them, nanoseconds of CLOCK_MONOTONIC.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// As in [`ConnectionRecord`], of all connections together.
    pub bytes: u64,
    pub bytes_in: u64,
    pub operations: u64,
    pub retransmits: u32,
    /// Datagrams sent, or received where the worker receives.
    pub datagrams: u64,
    /// Datagrams found missing.
    pub lost: u64,
    pub process_cpu: CpuTime,
    /// At the asking end by the same rules as that of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionRecord>,
    /// Of packet loads: counters, those of each worker, and what was open in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketPhase>,
}

/// What one end of a packet load counted in a phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketPhase {
    pub counters: BTreeMap<String, u64>,
    pub open: u64,
    pub workers: Vec<PacketThread>,
}
