//! The frame ledger: where each frame of a load went that its sender counted. It was received, or one counter took it.
//!
//! Both ends count over the whole load, and the nodes' counters are read before its first frame and after its last one, so that no
//! frame is under way at either. What is left over is told by no counter.
//!
//! A lost frame may be in several counters. Each is taken once, from the counter that says most of it, by what these functions of Linux do:
//! - `enqueue_to_backlog` (net/core/dev.c) counts in softnet_stat and in `rx_dropped` of the receiving interface; where the frame came by
//!   `veth_xmit` without NAPI (drivers/net/veth.c), that counts it in `tx_dropped` of the sending interface, too.
//! - `veth_get_stats64` puts frames that `veth_xdp_xmit` had no room for into `tx_dropped` of the sending end and `rx_dropped` of the other.
//! - Where a full AF_XDP socket refuses a frame, `xdp_do_redirect` fails and veth counts it in `rx_dropped`; the generic hook of XDP does not.
//! - `ip_send_skb` (net/ipv4/ip_output.c) makes an error of what a queueing discipline or a driver dropped: it is in `Ip.OutDiscards`, and
//!   `udp_send_skb` counts it in `Udp.SndbufErrors`. Interfaces upon others (VXLAN, macvlan) count it in their `tx_dropped`, and
//!   `ip6tunnel_xmit` in `tx_errors` of a tunnel.
//! - A packet socket hears of such an error (`packet_snd`), and the packet engine offers the frame again: it is in these counters, and not lost.
//! - `__udp_queue_rcv_skb` counts in `Udp.InErrors` whatever it counts in `RcvbufErrors`, `MemErrors` or `InCsumErrors`.
//! - `XDP_DROP` on veth is in the driver's `xdp_drops` and no other counter of the kernel; netrig's datapaths count it by reason.

mod places;

use rig_load::record::{DatagramTotals, Direction, PacketRecord, WorkerRecord};
use rig_testbed::frames::{NamespaceFrames, NodeFrames};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::places::{Counted, CountedLine, lines};
use crate::figures::node_of;
use crate::record::TrialRecord;

/// A share of frames that no counter tells of, from which on it is a reason for doubt.
pub const UNEXPLAINED: f64 = 1e-5;

/// Datapaths that end connections and open others: their frames are none of those that came.
const ENDS_CONNECTIONS: [&str; 1] = ["haproxy"];

/// Where the frames of a trial's load went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    pub flows: Vec<Flow>,
    /// In the order of the way from the first sender.
    pub lines: Vec<Line>,
    /// Frames beside the load's that may be in the counters, too: farewells of datagram flows, ARP, ICMP and what kernels ask of IPv6's
    /// neighbours, routers and groups.
    others: u64,
}

/// All frames from one node to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flow {
    pub from: String,
    pub to: String,
    pub sent: u64,
    pub received: u64,
}

/// A counter, and how many frames it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// `b`, `b:eth0`, `balancer on lb`
    pub place: String,
    /// What happened, with the counter's own name.
    pub counter: String,
    pub frames: u64,
}

impl Ledger {
    pub fn sent(&self) -> u64 {
        self.flows.iter().map(|flow| flow.sent).sum()
    }

    pub fn received(&self) -> u64 {
        self.flows.iter().map(|flow| flow.received).sum()
    }

    /// Frames that were sent and not received; below 0 when some came twice.
    pub fn missing(&self) -> i64 {
        self.sent() as i64 - self.received() as i64
    }

    /// Frames that are missing and in no counter; below 0, how many more are in counters than are missing.
    pub fn unexplained(&self) -> i64 {
        let counted: u64 = self.lines.iter().map(|line| line.frames).sum();
        let rest = self.missing() - counted as i64;
        if rest < 0 { (rest + self.others.min(counted) as i64).min(0) } else { rest }
    }

    /// That, as a share of the frames sent.
    pub fn unexplained_share(&self) -> f64 {
        if self.sent() == 0 { 0.0 } else { self.unexplained() as f64 / self.sent() as f64 }
    }
}

/// The ledger of a trial; `None` where frames were not counted, or where those of its load cannot be counted one by one: what TCP sockets
/// send, and datagrams that the kernel cuts (UDP_SEGMENT, IP fragments) or joins (UDP_GRO), are other frames at each place.
pub fn ledger(trial: &TrialRecord) -> Option<Ledger> {
    let nodes = trial.frames.as_ref()?;
    if trial.agents.iter().any(|agent| ENDS_CONNECTIONS.contains(&agent.name.as_str())) {
        return None;
    }
    let fragments =
        |name: &str| nodes.iter().flat_map(|node| &node.namespaces).any(|own| own.protocols.contains_key(name));
    if fragments("Ip.FragCreates") || fragments("Ip6FragCreates") {
        return None;
    }
    let flows = flows(&trial.workers)?;
    let mut ledger = Ledger { flows, lines: Vec::new(), others: others(&trial.workers) + of_kernels(nodes) };
    let mut counted = lines(trial, nodes);
    let mut left = ledger.missing();
    for which in [Counted::Lost, Counted::AtMost, Counted::WithOthers] {
        for CountedLine { line, .. } in counted.iter_mut().filter(|counted| counted.counted == which) {
            if which != Counted::Lost {
                line.frames = line.frames.min(u64::try_from(left).unwrap_or(0));
            }
            left -= line.frames as i64;
        }
    }
    ledger.lines = counted.into_iter().map(|counted| counted.line).filter(|line| line.frames > 0).collect();
    Some(ledger)
}

/// What each end of pairs of workers counted, by nodes; `None` where it is not countable.
pub fn flows(workers: &[WorkerRecord]) -> Option<Vec<Flow>> {
    let mut flows: Vec<Flow> = Vec::new();
    // A listening worker and then the one that connects to it.
    for pair in workers.chunks(2) {
        let [listen, connect] = pair else { return None };
        for (from, to) in [(connect, listen), (listen, connect)] {
            let ((sent, _), (_, received)) = (frames(from)?, frames(to)?);
            if sent == 0 && received == 0 {
                continue;
            }
            let (from, to) = (node_of(&from.name), node_of(&to.name));
            match flows.iter_mut().find(|flow| flow.from == from && flow.to == to) {
                Some(flow) => {
                    flow.sent += sent;
                    flow.received += received;
                }
                None => flows.push(Flow { from: from.to_owned(), to: to.to_owned(), sent, received }),
            }
        }
    }
    (!flows.is_empty()).then_some(flows)
}

fn datagrams(worker: &WorkerRecord) -> Option<DatagramTotals> {
    worker.datagrams.as_ref()?.total
}

/// What a worker sent and received over the whole load, but for what [`others`] counts.
fn frames(worker: &WorkerRecord) -> Option<(u64, u64)> {
    if let Some(packets) = &worker.packets {
        let but = |all: &str, others: &[&str]| {
            total(packets, all).saturating_sub(others.iter().map(|name| total(packets, name)).sum())
        };
        return Some((but("pktTx", &["arpTx", "icmpTx"]), but("pktRx", &["arpRx", "icmpRx", "otherRx"])));
    }
    let DatagramTotals { sent, received, .. } = datagrams(worker)?;
    Some((sent, received))
}

fn others(workers: &[WorkerRecord]) -> u64 {
    let packets = workers.iter().filter_map(|worker| worker.packets.as_ref());
    let packets = packets.map(|packets| total(packets, "arpTx") + total(packets, "icmpTx")).sum::<u64>();
    let datagrams = workers.iter().filter_map(datagrams).fold(DatagramTotals::default(), DatagramTotals::plus);
    packets + datagrams.farewells_sent.saturating_sub(datagrams.farewells_received)
}

/// What the kernels of all nodes sent of themselves.
fn of_kernels(nodes: &[NodeFrames]) -> u64 {
    let sent = |own: &NamespaceFrames| -> u64 {
        ["Icmp.OutMsgs", "Icmp6OutMsgs"].iter().filter_map(|&name| own.protocols.get(name)).sum()
    };
    nodes.iter().flat_map(|node| &node.namespaces).map(sent).sum()
}

fn total(packets: &PacketRecord, name: &str) -> u64 {
    packets.total.get(name).copied().unwrap_or(0)
}

/// Whether the worker sends frames of the load, and whether it receives any.
fn ways(worker: &WorkerRecord) -> (bool, bool) {
    let is_packets = worker.packets.is_some();
    let sends = is_packets || matches!(worker.direction, Direction::Send | Direction::Both);
    (sends, is_packets || matches!(worker.direction, Direction::Receive | Direction::Both))
}

#[cfg(test)]
mod tests;
