//! What an engine counts.

use rig_stats::histogram::Histogram;
use rig_wire::Malformed;
use serde::{Deserialize, Serialize};

use super::Nanos;

macro_rules! counters {
    ($($(#[$meta:meta])* $field:ident = $name:literal,)*) => {
        /// Totals since the engine began. The names are those of dperf's statistics, where it has the field.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$meta])* pub $field: u64,)*
            /// Frames that were no packets, by the number of the reason.
            pub malformed: [u64; Malformed::ALL.len()],
        }

        impl Counters {
            /// Name and value of each field with a name of its own.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }

            /// The sum of both.
            pub fn plus(&self, other: &Self) -> Self {
                Self {
                    $($field: self.$field + other.$field,)*
                    malformed: std::array::from_fn(|n| self.malformed[n] + other.malformed[n]),
                }
            }

            /// What was counted since `earlier`, when the same was counted.
            pub fn minus(&self, earlier: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_sub(earlier.$field),)*
                    malformed: std::array::from_fn(|n| self.malformed[n].saturating_sub(earlier.malformed[n])),
                }
            }
        }
    };
}

counters! {
    pkt_rx = "pktRx",
    pkt_tx = "pktTx",
    /// Bits of frames without frame check sequence and preamble, as for `bits_tx`.
    bits_rx = "bitsRx",
    bits_tx = "bitsTx",
    /// Packets that the port had no room for.
    drop_tx = "dropTx",
    tcp_rx = "tcpRx",
    tcp_tx = "tcpTx",
    udp_rx = "udpRx",
    udp_tx = "udpTx",
    arp_rx = "arpRx",
    arp_tx = "arpTx",
    /// ICMP and ICMPv6, neighbor discovery included, as for `icmp_tx`.
    icmp_rx = "icmpRx",
    icmp_tx = "icmpTx",
    /// Packets of TCP and UDP with a type of service or traffic class other than 0.
    tos_rx = "tosRx",
    /// Packets of other protocols, and packets that are not for this port.
    other_rx = "otherRx",
    /// Malformed packets, fragments included: the sum over the reasons.
    bad_rx = "badRx",
    /// Segments and datagrams of a kernel on this machine, which left the checksum to hardware that they never met: it
    /// could not be verified.
    partial_rx = "partialRx",
    syn_rx = "synRx",
    syn_tx = "synTx",
    fin_rx = "finRx",
    fin_tx = "finTx",
    rst_rx = "rstRx",
    rst_tx = "rstTx",
    syn_rt = "synRt",
    fin_rt = "finRt",
    /// Acknowledgments that were sent again, for segments that came again or out of order.
    ack_rt = "ackRt",
    push_rt = "pushRt",
    /// Segments without a connection, or that a connection cannot take.
    tcp_drop = "tcpDrop",
    /// Acknowledgments of what was acknowledged before, while something is not.
    ack_dup = "ackDup",
    /// Requests that were not answered in time.
    udp_rt = "udpRt",
    /// Datagrams that are not expected: answers that come late or twice, and those to ports without a service.
    udp_drop = "udpDrop",
    /// Of these, first answers to requests that had been given up, as their numbers tell.
    udp_late = "udpLate",
    /// Of these, further answers to requests that had been answered, as their numbers tell.
    udp_dup = "udpDup",
    /// Answers that carry no request's number, and were taken for those that their flows waited for.
    udp_unnumbered = "udpUnnumbered",
    /// Errors of ICMP and ICMPv6 about a segment that was under way, a datagram, or the packets of a tunnel.
    unreachable = "unreachable",
    sk_open = "skOpen",
    sk_close = "skClose",
    /// Connections that were given up, reset, or cut short.
    sk_err = "skErr",
    tcp_req = "tcpReq",
    tcp_rsp = "tcpRsp",
    /// Requests: a client's that it sent, a server's that it answered, as for `http_post`.
    http_get = "httpGet",
    http_post = "httpPost",
    /// Responses with a status 2XX: a client's that it received, a server's that it sent.
    http_2xx = "http2XX",
    /// A client's responses with another status, that are no HTTP, or cut short; a server's requests of the last two kinds.
    http_err = "httpErr",
    /// A client's connections that waited for their peer when the engine ended, counted only then: what became of the
    /// last that they sent is not known.
    unfinished = "skUnfinished",
    /// Connections that could not be opened: none free, or all combinations of addresses and ports in use.
    no_socket = "noSocket",
    /// Round trips that were timed, from when the SYN or datagram was due to its answer, and their sum in nanoseconds.
    rtt_count = "rttCount",
    rtt_sum = "rttSum",
    /// Connections and requests that were not begun because the rate was changed while they were overdue.
    missed = "missed",
    /// Connections and requests that began more than a millisecond after their time.
    late = "late",
}

impl Counters {
    /// Connections that are open.
    pub fn sk_con(&self) -> u64 {
        self.sk_open - self.sk_close
    }

    /// The reasons for which frames were no packets, in words, each with its count; those without any are left out.
    pub fn reasons(&self) -> impl Iterator<Item = (String, u64)> {
        let all = Malformed::ALL.iter().zip(self.malformed).filter(|(_, count)| *count > 0);
        all.map(|(reason, count)| (reason.to_string(), count))
    }

    pub(super) fn malformed(&mut self, reason: Malformed) {
        self.bad_rx += 1;
        self.malformed[reason as usize] += 1;
    }
}

/// Times in nanoseconds from when something was due, whether or not it began in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the connection to the SYN's acknowledgment.
    pub handshake: Histogram,
    /// From the request to the first byte of its response.
    pub first_byte: Histogram,
    /// From the request to the end of its response.
    pub transaction: Histogram,
    /// Of all three, values of what had no answer when it was given up: it took that long or longer.
    #[serde(default)]
    pub censored: u64,
    /// Of datagrams one way: when the first one after the last that is missing was sent, by the receiver's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_before: Option<Nanos>,
}

/// The time in which requests must be due for their latencies to be entered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub begin: Nanos,
    pub end: Nanos,
}

impl Default for Window {
    fn default() -> Self {
        Self { begin: 0, end: Nanos::MAX }
    }
}

impl Window {
    /// Whether what is so old `now` was due inside.
    #[inline]
    pub fn has(self, now: Nanos, age: Nanos) -> bool {
        (self.begin..self.end).contains(&now.saturating_sub(age))
    }
}

impl Latencies {
    pub fn merge(&mut self, other: &Self) {
        self.handshake.merge(&other.handshake);
        self.first_byte.merge(&other.first_byte);
        self.transaction.merge(&other.transaction);
        self.censored += other.censored;
        self.lost_before = self.lost_before.max(other.lost_before);
    }

    /// Enters transactions of this age that are not waited for any more.
    pub(super) fn give_up(&mut self, age: Nanos, count: u64) {
        self.transaction.record_n(age, count);
        self.censored += count;
    }

    /// Enters a handshake of this age that is not waited for any more.
    pub(super) fn give_up_handshake(&mut self, age: Nanos) {
        self.handshake.record(age);
        self.censored += 1;
    }

    /// Forgets all values and keeps the memory.
    pub fn clear(&mut self) {
        for histogram in [&mut self.handshake, &mut self.first_byte, &mut self.transaction] {
            histogram.clear();
        }
        (self.censored, self.lost_before) = (0, None);
    }
}
