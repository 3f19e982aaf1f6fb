//! Where frames were lost, as the kernel and drivers count it: of all nodes, read when no load runs. Stored as JSON: fields are added,
//! never renamed or given another meaning.

use std::collections::BTreeMap;

use anyhow::Result;
use rig_sys::counters;
use rig_sys::ethtool;
use rig_sys::netlink::{LinkCounters, Netlink, QueueCounters};
use rig_sys::netns::NetNs;
use serde::{Deserialize, Serialize};

use crate::namespaces::{Namespace, NodeSpaces};

/// Counters of a node by their names, without those that are zero.
pub type Counts = BTreeMap<String, u64>;

/// The counters of lost frames of a node: since they are counted, or over the time between two readings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFrames {
    pub node: String,
    /// Frames dropped because the backlog of one of the node's CPUs was full, by CPU (column 2 of /proc/net/softnet_stat).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backlog: BTreeMap<u32, u64>,
    /// Its own namespace first, then those of its containers.
    pub namespaces: Vec<NamespaceFrames>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceFrames {
    /// `node` or `node/container`.
    pub name: String,
    /// Of IP and UDP, as /proc/net/snmp, netstat and snmp6 name them: `Udp.RcvbufErrors`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub protocols: Counts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceFrames>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFrames {
    pub name: String,
    /// As `ip link add` calls it, e.g. `veth`; none of hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The other end of a veth pair, `namespace:interface`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
    /// It is in the host's own namespace, below one of this one's, and others use it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_host: bool,
    /// `struct rtnl_link_stats64` by its own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link: Counts,
    /// What the driver counts for itself, by its names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub driver: Counts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueFrames>,
}

/// A queueing discipline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueFrames {
    pub kind: String,
    /// It has what comes in, not what leaves.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ingress: bool,
    pub drops: u64,
    /// Frames that still wait in it.
    #[serde(default)]
    pub waiting: u64,
}

/// Counters of IP and UDP that say of a packet that it went no further, or, of `FragCreates`, that it became several; and of `OutMsgs`, that
/// the kernel sent it of itself: errors, and questions for neighbours, routers and groups.
const PROTOCOLS: [&str; 38] = [
    "Ip.InHdrErrors",
    "Ip.InAddrErrors",
    "Ip.InUnknownProtos",
    "Ip.InDiscards",
    "Ip.OutDiscards",
    "Ip.OutNoRoutes",
    "Ip.ReasmFails",
    "Ip.FragFails",
    "Ip.FragCreates",
    "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts",
    "TcpExt.IPReversePathFilter",
    "Udp.NoPorts",
    "Udp.InErrors",
    "Udp.RcvbufErrors",
    "Udp.SndbufErrors",
    "Udp.InCsumErrors",
    "Udp.MemErrors",
    "Ip6InHdrErrors",
    "Ip6InTooBigErrors",
    "Ip6InNoRoutes",
    "Ip6InAddrErrors",
    "Ip6InUnknownProtos",
    "Ip6InTruncatedPkts",
    "Ip6InDiscards",
    "Ip6OutDiscards",
    "Ip6OutNoRoutes",
    "Ip6ReasmFails",
    "Ip6FragFails",
    "Ip6FragCreates",
    "Udp6NoPorts",
    "Udp6InErrors",
    "Udp6RcvbufErrors",
    "Udp6SndbufErrors",
    "Udp6InCsumErrors",
    "Udp6MemErrors",
    "Icmp.OutMsgs",
    "Icmp6OutMsgs",
];

/// What names of drivers' counters contain that tell of lost frames.
const LOST: [&str; 13] = [
    "drop",
    "miss",
    "err",
    "discard",
    "no_buf",
    "nobuf",
    "out_of_buffer",
    "no_desc",
    "nodesc",
    "no_dma",
    "fifo",
    "overflow",
    "exceeded",
];

/// Whether a driver's counter is kept: those of lost frames, and by which way veth passes frames on, which says what else counts them.
fn is_kept(kind: Option<&str>, name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LOST.iter().any(|word| name.contains(word)) || kind == Some("veth") && name.ends_with("_xdp_packets")
}

impl NodeFrames {
    /// Of a node that stands.
    pub(crate) fn take(node: &NodeSpaces) -> Result<Self> {
        let softnet = counters::softnet()?;
        let cpus = node.cpus().as_slice().iter();
        let backlog = cpus.filter_map(|cpu| Some((*cpu, softnet.get(cpu)?.dropped))).collect();
        let namespaces = node.counted().map(NamespaceFrames::take).collect::<Result<_>>()?;
        Ok(Self { node: node.name().to_owned(), backlog, namespaces })
    }

    /// What rose since `before`; what did not is left out.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let backlog = self.backlog.iter().map(|(cpu, after)| {
            let before = before.backlog.get(cpu).copied().unwrap_or(*after);
            (*cpu, wrapped(before, *after))
        });
        let namespaces = self.namespaces.iter().map(|after| {
            let before = before.namespaces.iter().find(|before| before.name == after.name);
            after.since(before.unwrap_or(&NamespaceFrames::default()))
        });
        Self {
            node: self.node.clone(),
            backlog: backlog.filter(|(_, drops)| *drops > 0).collect(),
            namespaces: namespaces.collect(),
        }
    }
}

impl NamespaceFrames {
    fn take(namespace: &Namespace) -> Result<Self> {
        let mut all = namespace.counters.protocols()?;
        all.extend(namespace.counters.extended_protocols()?);
        all.extend(namespace.counters.protocols_of_ipv6()?);
        let protocols = all.into_iter().filter(|(name, count)| *count > 0 && PROTOCOLS.contains(&name.as_str()));
        let links = namespace.lost_frames()?;
        let mut interfaces = namespace.ns.run(|| with_drivers(links))?;
        for interface in &mut interfaces {
            let far = namespace.far_of(&interface.name);
            interface.far = far.map(|far| format!("{}:{}", far.space, far.interface));
        }
        interfaces.extend(below(namespace)?);
        Ok(Self { name: namespace.name.clone(), protocols: protocols.collect(), interfaces })
    }

    fn since(&self, before: &Self) -> Self {
        let interfaces = self.interfaces.iter().map(|after| {
            let same = |before: &&InterfaceFrames| before.name == after.name && before.of_host == after.of_host;
            after.since(before.interfaces.iter().find(same).unwrap_or(&InterfaceFrames::default()))
        });
        Self {
            name: self.name.clone(),
            protocols: rise(&self.protocols, &before.protocols),
            interfaces: interfaces.filter(InterfaceFrames::tells).collect(),
        }
    }
}

impl InterfaceFrames {
    fn since(&self, before: &Self) -> Self {
        let queue = |(number, after): (usize, &QueueFrames)| {
            // One that was put there meanwhile began at 0.
            let same = before.queues.get(number).filter(|before| before.kind == after.kind);
            QueueFrames { drops: wrapped(same.map_or(0, |before| before.drops), after.drops), ..after.clone() }
        };
        let queues = self.queues.iter().enumerate().map(queue);
        Self {
            link: rise(&self.link, &before.link),
            driver: rise(&self.driver, &before.driver),
            queues: queues.filter(|queue| queue.drops + queue.waiting > 0).collect(),
            ..self.clone()
        }
    }

    fn tells(&self) -> bool {
        !(self.link.is_empty() && self.driver.is_empty() && self.queues.is_empty())
    }
}

/// Interfaces of the host on which shared ones stand: frames may be lost there before they are the node's.
fn below(namespace: &Namespace) -> Result<Vec<InterfaceFrames>> {
    let names: Vec<&str> = namespace.below().collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let links = Netlink::here()?.lost_frames()?.into_iter().filter(|link| names.contains(&link.name.as_str()));
    let all = NetNs::of_current_thread()?.run(|| with_drivers(links.collect()))?;
    Ok(all.into_iter().map(|interface| InterfaceFrames { of_host: true, ..interface }).collect())
}

/// To be called in the links' namespace.
fn with_drivers(links: Vec<LinkCounters>) -> Vec<InterfaceFrames> {
    let with_driver = |link: LinkCounters| {
        let LinkCounters { name, kind, link, queues } = link;
        // A driver that refuses to tell counts nothing that could be named.
        let driver = ethtool::statistics(&name).unwrap_or_default();
        let driver = driver.into_iter().filter(|(name, count)| *count > 0 && is_kept(kind.as_deref(), name)).collect();
        InterfaceFrames {
            name,
            kind,
            link,
            driver,
            queues: queues.into_iter().map(QueueFrames::from).collect(),
            ..InterfaceFrames::default()
        }
    };
    links.into_iter().map(with_driver).collect()
}

impl From<QueueCounters> for QueueFrames {
    fn from(QueueCounters { kind, is_ingress, drops, waiting }: QueueCounters) -> Self {
        Self { kind, is_ingress, drops: drops.into(), waiting: waiting.into() }
    }
}

fn rise(after: &Counts, before: &Counts) -> Counts {
    let rise = after.iter().map(|(name, after)| {
        let before = before.get(name).copied().unwrap_or(0);
        (name.clone(), after.saturating_sub(before))
    });
    rise.filter(|(_, count)| *count > 0).collect()
}

/// These counters have 32 bits and wrap.
fn wrapped(before: u64, after: u64) -> u64 {
    u64::from((after as u32).wrapping_sub(before as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, u64)]) -> Counts {
        list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn what_did_not_rise_is_left_out() {
        let queue = |drops, waiting| QueueFrames { kind: "tbf".into(), is_ingress: false, drops, waiting };
        let interface = |dropped, drops, waiting| InterfaceFrames {
            name: "eth0".into(),
            link: counts(&[("rx_dropped", 7), ("tx_dropped", dropped)]),
            queues: vec![queue(drops, waiting)],
            ..InterfaceFrames::default()
        };
        let node = |errors, interface, backlog| NodeFrames {
            node: "a".into(),
            backlog: BTreeMap::from([(1, backlog)]),
            namespaces: vec![NamespaceFrames {
                name: "a".into(),
                protocols: counts(&[("Udp.RcvbufErrors", errors)]),
                interfaces: vec![interface],
            }],
        };
        let before = node(4, interface(1, u64::from(u32::MAX), 0), 9);
        let nothing = before.since(&before);
        assert!(nothing.backlog.is_empty() && nothing.namespaces[0].protocols.is_empty());
        assert!(nothing.namespaces[0].interfaces.is_empty(), "{nothing:?}");
        let rose = node(6, interface(4, 2, 5), 12).since(&before);
        assert_eq!(rose.backlog, BTreeMap::from([(1, 3)]));
        assert_eq!(rose.namespaces[0].protocols, counts(&[("Udp.RcvbufErrors", 2)]));
        let [interface] = rose.namespaces[0].interfaces.as_slice() else { panic!("{rose:?}") };
        assert_eq!(interface.link, counts(&[("tx_dropped", 3)]));
        assert_eq!(interface.queues, [queue(3, 5)], "32 bits that wrapped");
    }

    #[test]
    fn counters_of_drivers_are_known_by_their_names() {
        for name in ["rx_out_of_buffer", "rx_discards_phy", "port.rx_dropped", "rx_missed_errors", "rx_nodesc_drop_cnt"]
        {
            assert!(is_kept(None, name), "{name}");
        }
        for name in ["rx_packets", "tx_bytes", "rx_queue_0_xdp_packets", "rx_pause_frames"] {
            assert!(!is_kept(None, name), "{name}");
        }
        assert!(is_kept(Some("veth"), "rx_queue_0_xdp_packets"));
    }
}
