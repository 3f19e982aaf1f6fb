//! Frames that links and their queueing disciplines passed on, and those that they lost.

use std::collections::BTreeMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkInfo, LinkMessage, Stats64};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use super::Netlink;
use crate::error::{ErrorContext, Result};

/// What an interface counts of frames passed on and lost, since it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub name: String,
    /// As `ip link add` calls it, e.g. `veth`; none of hardware.
    pub kind: Option<String>,
    /// `struct rtnl_link_stats64` by its own names, without those that are zero.
    pub link: BTreeMap<String, u64>,
    /// The queueing discipline by which it sends, and what looks at what comes in (`ingress`, `clsact`).
    pub queues: Vec<QueueCounters>,
}

/// A queueing discipline. Its drops have 32 bits and wrap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueCounters {
    pub kind: String,
    pub is_ingress: bool,
    pub drops: u32,
    /// Packets that wait in it now.
    pub waiting: u32,
}

impl Netlink {
    /// Counters of lost frames of all interfaces of the namespace but `lo`.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn lost_frames(&self) -> Result<Vec<LinkCounters>> {
        let links = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        let mut found: BTreeMap<u32, LinkCounters> = BTreeMap::new();
        for message in links.during(|| "read the counters of interfaces".into())? {
            if let RouteNetlinkMessage::NewLink(message) = message {
                found.insert(message.header.index, of_link(&message.attributes));
            }
        }
        let queues = self.dump(RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default()));
        for message in queues.during(|| "read the counters of queueing disciplines".into())? {
            let RouteNetlinkMessage::NewQueueDiscipline(message) = message else { continue };
            // What a discipline inside another one drops, the outer one counts, too: each enqueue() of net/sched hands the verdict on,
            // and qdisc_tree_reduce_backlog() tells the outer ones of later drops.
            let is_ingress = message.header.parent == TcHandle::INGRESS;
            if message.header.parent != TcHandle::ROOT && !is_ingress {
                continue;
            }
            let of = u32::try_from(message.header.index).ok().and_then(|index| found.get_mut(&index));
            if let (Some(link), Some(counters)) = (of, of_queue(&message.attributes, is_ingress)) {
                link.queues.push(counters);
            }
        }
        Ok(found.into_values().filter(|link| link.name != "lo").collect())
    }
}

fn of_link(attributes: &[LinkAttribute]) -> LinkCounters {
    let mut counters = LinkCounters::default();
    for attribute in attributes {
        match attribute {
            LinkAttribute::IfName(name) => counters.name.clone_from(name),
            LinkAttribute::Stats64(stats) => counters.link = counts(stats),
            LinkAttribute::LinkInfo(infos) => {
                counters.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    counters
}

fn counts(stats: &Stats64) -> BTreeMap<String, u64> {
    let all = [
        ("rx_packets", stats.rx_packets),
        ("tx_packets", stats.tx_packets),
        ("rx_errors", stats.rx_errors),
        ("rx_dropped", stats.rx_dropped),
        ("rx_length_errors", stats.rx_length_errors),
        ("rx_over_errors", stats.rx_over_errors),
        ("rx_crc_errors", stats.rx_crc_errors),
        ("rx_frame_errors", stats.rx_frame_errors),
        ("rx_fifo_errors", stats.rx_fifo_errors),
        ("rx_missed_errors", stats.rx_missed_errors),
        ("rx_nohandler", stats.rx_nohandler),
        ("tx_errors", stats.tx_errors),
        ("tx_dropped", stats.tx_dropped),
        ("tx_aborted_errors", stats.tx_aborted_errors),
        ("tx_carrier_errors", stats.tx_carrier_errors),
        ("tx_fifo_errors", stats.tx_fifo_errors),
        ("tx_heartbeat_errors", stats.tx_heartbeat_errors),
        ("tx_window_errors", stats.tx_window_errors),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

fn of_queue(attributes: &[TcAttribute], is_ingress: bool) -> Option<QueueCounters> {
    let mut counters = QueueCounters { is_ingress, ..QueueCounters::default() };
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(kind) => counters.kind.clone_from(kind),
            TcAttribute::Stats2(stats) => {
                for stats in stats {
                    if let TcStats2::Queue(queue) = stats {
                        (counters.drops, counters.waiting) = (queue.drops, queue.qlen);
                    }
                }
            }
            _ => {}
        }
    }
    (!counters.kind.is_empty()).then_some(counters)
}
