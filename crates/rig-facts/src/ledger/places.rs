//! The counters that took frames, each frame in one of them.

use std::net::SocketAddr;

use rig_load::record::{PacketRecord, WorkerRecord};
use rig_testbed::frames::{Counts, InterfaceFrames, NamespaceFrames, NodeFrames};

use super::{Line, ways};
use crate::figures::node_of;
use crate::record::TrialRecord;

/// Ports whose program is in the driver's hook of XDP, as records name them: what their sockets refuse, veth counts, too.
const IN_DRIVER: [&str; 2] = ["AF_XDP", "AF_XDP, live frames"];

/// Protocol counters of what came in, each with what it means.
const IP_IN: [(&str, &str); 18] = [
    ("Ip.InHdrErrors", "bad IP header, or TTL exceeded"),
    ("Ip6InHdrErrors", "bad IPv6 header, or hop limit exceeded"),
    ("Ip.InAddrErrors", "not for an address of this node"),
    ("Ip6InAddrErrors", "not for an address of this node"),
    ("IpExt.InNoRoutes", "no route"),
    ("Ip6InNoRoutes", "no route"),
    ("TcpExt.IPReversePathFilter", "reverse path filter"),
    ("Ip.InUnknownProtos", "unknown protocol"),
    ("Ip6InUnknownProtos", "unknown protocol"),
    ("IpExt.InTruncatedPkts", "truncated"),
    ("Ip6InTruncatedPkts", "truncated"),
    ("Ip6InTooBigErrors", "larger than the MTU"),
    ("Ip.InDiscards", "discarded by IP"),
    ("Ip6InDiscards", "discarded by IPv6"),
    ("Ip.ReasmFails", "fragments not reassembled"),
    ("Ip6ReasmFails", "fragments not reassembled"),
    ("Ip.FragFails", "larger than the MTU"),
    ("Ip6FragFails", "larger than the MTU"),
];

const IP_OUT: [(&str, &str); 2] = [("Ip.OutNoRoutes", "no route"), ("Ip6OutNoRoutes", "no route")];

const UDP: [(&str, &str); 6] = [
    ("Udp.RcvbufErrors", "UDP socket's receive buffer full"),
    ("Udp6RcvbufErrors", "UDP socket's receive buffer full"),
    ("Udp.MemErrors", "memory for UDP used up"),
    ("Udp6MemErrors", "memory for UDP used up"),
    ("Udp.InCsumErrors", "bad UDP checksum"),
    ("Udp6InCsumErrors", "bad UDP checksum"),
];

/// A line as its counter says it.
pub(super) struct CountedLine {
    pub line: Line,
    pub counted: Counted,
}

/// Which frames a counter has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// Lost ones, each once.
    Lost,
    /// At most so many lost ones: others may send by a card, too, and the difference of two counters has the kernel's own frames.
    AtMost,
    /// Above all those of others, which come whether or not there is a load.
    WithOthers,
}

impl CountedLine {
    fn with(self, counted: Counted) -> Self {
        Self { counted, ..self }
    }
}

/// What a place has to do with the load.
#[derive(Clone, Copy)]
struct Role {
    /// Frames leave from here, or pass.
    sends: bool,
    /// Frames end here, or pass.
    receives: bool,
    /// It has no worker: it passes frames on.
    passes: bool,
    /// Its worker makes packets itself, and takes them before IP does.
    packets: bool,
}

/// Every counter that took frames of the load, in the order of the way.
pub(super) fn lines(trial: &TrialRecord, nodes: &[NodeFrames]) -> Vec<CountedLine> {
    let mut ranked: Vec<((u8, u8), Vec<CountedLine>)> = Vec::new();
    for node in nodes {
        let place = NodePlace { trial, nodes, node, below: sent_by_devices(node) };
        let rank = node_rank(&trial.workers, &node.node);
        for namespace in &node.namespaces {
            ranked.push(((rank, namespace_rank(&trial.workers, namespace)), place.namespace(namespace)));
        }
        ranked.push(((rank, 1), place.datapaths()));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().flat_map(|(_, lines)| lines).collect()
}

/// Senders' nodes first, those between, receivers' last. Where both ends send, the connecting one comes first.
fn node_rank(workers: &[WorkerRecord], node: &str) -> u8 {
    let own = workers.iter().filter(|worker| node_of(&worker.name) == node);
    let rank = |worker: &WorkerRecord| match ways(worker) {
        (true, false) => 0,
        (false, true) => 2,
        _ if worker.end() == rig_load::record::End::Connect => 0,
        _ => 2,
    };
    own.map(rank).min().unwrap_or(1)
}

fn namespace_rank(workers: &[WorkerRecord], namespace: &NamespaceFrames) -> u8 {
    if !namespace.name.contains('/') {
        return 1;
    }
    let own: Vec<&WorkerRecord> = workers.iter().filter(|worker| worker.name == namespace.name).collect();
    match (own.is_empty(), own.iter().any(|worker| node_rank(std::slice::from_ref(worker), node_of(&worker.name)) == 0))
    {
        (true, _) => 1,
        (false, true) => 0,
        (false, false) => 2,
    }
}

/// What devices of a node and their queueing disciplines dropped while sending: layers above may have counted it once more.
fn sent_by_devices(node: &NodeFrames) -> u64 {
    let devices = node.namespaces.iter().flat_map(|namespace| &namespace.interfaces).filter(|own| is_device(own));
    devices.map(|own| queue_drops(own) + count(&own.link, "tx_dropped")).sum()
}

/// Whether frames leave the node by it, rather than by another interface below.
fn is_device(interface: &InterfaceFrames) -> bool {
    matches!(interface.kind.as_deref(), None | Some("veth"))
}

fn queue_drops(interface: &InterfaceFrames) -> u64 {
    interface.queues.iter().filter(|queue| !queue.is_ingress).map(|queue| queue.drops).sum()
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// The sum over a driver's queues.
fn of_queues(driver: &Counts, ending: &str) -> u64 {
    driver.iter().filter(|(name, _)| name.ends_with(ending)).map(|(_, count)| count).sum()
}

struct NodePlace<'a> {
    trial: &'a TrialRecord,
    nodes: &'a [NodeFrames],
    node: &'a NodeFrames,
    /// [`sent_by_devices`]
    below: u64,
}

impl NodePlace<'_> {
    fn role(&self, namespace: &str) -> Role {
        let mut role = Role { sends: false, receives: false, passes: true, packets: false };
        for worker in self.trial.workers.iter().filter(|worker| worker.name == namespace) {
            let (sends, receives) = ways(worker);
            role.passes = false;
            role.sends |= sends;
            role.receives |= receives;
            role.packets |= worker.packets.is_some();
        }
        if role.passes { Role { sends: true, receives: true, ..role } } else { role }
    }

    /// Where the load's connections say it.
    fn is_ipv6(&self) -> Option<bool> {
        let connections = self.trial.workers.iter().flat_map(|worker| &worker.connections);
        let mut addresses = connections.filter_map(|connection| socket_address(&connection.remote)).peekable();
        addresses.peek()?;
        Some(addresses.any(|address| address.is_ipv6()))
    }

    fn namespace(&self, namespace: &NamespaceFrames) -> Vec<CountedLine> {
        let role = self.role(&namespace.name);
        let mut lines = Vec::new();
        let (arriving, leaving) = (self.arriving(namespace, role), self.leaving(namespace, role));
        if role.passes {
            lines.extend(arriving);
            lines.extend(self.protocols(namespace, role));
            lines.extend(leaving);
        } else {
            lines.extend(self.protocols(namespace, Role { receives: false, ..role }));
            lines.extend(leaving);
            lines.extend(arriving);
            lines.extend(self.protocols(namespace, Role { sends: false, ..role }));
        }
        lines
    }

    fn protocols(&self, namespace: &NamespaceFrames, role: Role) -> Vec<CountedLine> {
        if role.packets {
            return Vec::new();
        }
        // Kernels ask for routers and groups by themselves, over IPv6, which others may not take.
        let is_ipv6 = self.is_ipv6();
        let plain = |(name, what): &(&str, &str)| line(&namespace.name, what, name, count(&namespace.protocols, name));
        let of_ip = |named: &(&str, &str)| match named.0.starts_with("Ip6") {
            true if is_ipv6 == Some(false) => None,
            true => Some(plain(named).with(Counted::WithOthers)),
            false => Some(plain(named)),
        };
        let mut lines = Vec::new();
        if role.receives {
            lines.extend(IP_IN.iter().filter_map(of_ip));
        }
        if role.receives && !role.passes {
            lines.extend(UDP.iter().map(plain));
            for (all, parts) in [
                ("Udp.InErrors", ["Udp.RcvbufErrors", "Udp.MemErrors", "Udp.InCsumErrors"]),
                ("Udp6InErrors", ["Udp6RcvbufErrors", "Udp6MemErrors", "Udp6InCsumErrors"]),
            ] {
                let known: u64 = parts.iter().map(|name| count(&namespace.protocols, name)).sum();
                let rest = count(&namespace.protocols, all).saturating_sub(known);
                lines.push(line(&namespace.name, "discarded by UDP", all, rest));
            }
        }
        if role.sends {
            lines.extend(IP_OUT.iter().filter_map(of_ip));
            let mut below = self.below;
            for name in ["Ip.OutDiscards", "Ip6OutDiscards"] {
                let all = count(&namespace.protocols, name);
                lines.push(line(&namespace.name, "discarded by IP while sending", name, all.saturating_sub(below)));
                below = below.saturating_sub(all);
            }
        }
        lines
    }

    fn leaving(&self, namespace: &NamespaceFrames, role: Role) -> Vec<CountedLine> {
        let mut lines = Vec::new();
        if !role.sends {
            return lines;
        }
        for (interface, frames) in self.ports(namespace, "refused") {
            let what = "the kernel would not take it from the socket";
            lines.push(line(&format!("{}:{interface}", namespace.name), what, "refused", frames));
        }
        for interface in &namespace.interfaces {
            let (place, first) = (place(self.node, namespace, interface), lines.len());
            let is_again = self.is_offered_again(&namespace.name, &interface.name);
            let waiting: u64 = interface.queues.iter().map(|queue| queue.waiting).sum();
            let dropped = queue_drops(interface) + count(&interface.link, "tx_dropped");
            let known = count(&interface.link, "tx_packets") + waiting + if is_again { 0 } else { dropped };
            let what = "left in the worker's rings at its end, or not counted by the interface";
            lines.extend(self.beyond(namespace, interface, "pktTx", &["refused"], |put, refused| {
                line(&place, what, "pktTx without tx_packets", put.saturating_sub(refused + known))
                    .with(Counted::AtMost)
            }));
            for queue in interface.queues.iter().filter(|queue| !queue.is_ingress) {
                lines.push(line(
                    &place,
                    "queue full or early drop",
                    &format!("qdisc {} drops", queue.kind),
                    if is_again { 0 } else { queue.drops },
                ));
                let backlog = format!("qdisc {} backlog", queue.kind);
                lines.push(line(&place, "still queued at the end", &backlog, queue.waiting));
            }
            let dropped = if is_again { 0 } else { self.tx_dropped(interface) };
            lines.push(line(&place, "not sent", "tx_dropped", dropped));
            let parts =
                ["tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors"];
            let errors = parts.iter().map(|name| count(&interface.link, name)).sum::<u64>();
            let errors = errors.max(count(&interface.link, "tx_errors"));
            // Tunnels over IPv6 count there what a layer below dropped, those over IPv4 in `tx_dropped`.
            let above = self.below.saturating_sub(count(&interface.link, "tx_dropped"));
            let errors = if is_device(interface) { errors } else { errors.saturating_sub(above) };
            lines.push(line(&place, "not sent because of an error", "tx_errors", errors));
            let known = errors + count(&interface.link, "tx_dropped");
            lines.extend(by_driver(&place, interface, "not sent by the driver", known, true));
            bound_of_card(interface, &mut lines[first..]);
        }
        lines
    }

    /// Without what the other end counts as not received, or a layer below as not sent.
    fn tx_dropped(&self, interface: &InterfaceFrames) -> u64 {
        let dropped = count(&interface.link, "tx_dropped");
        if !is_device(interface) {
            return dropped.saturating_sub(self.below);
        }
        let Some(far) = interface.far.as_ref().and_then(|far| self.interface(far)) else { return dropped };
        let at_far = count(&far.link, "rx_dropped");
        let is_polled = of_queues(&far.driver, "_xdp_packets") > 0;
        let both = if is_polled { of_queues(&interface.driver, "_xdp_xmit_errors") } else { at_far };
        dropped.saturating_sub(both.min(at_far))
    }

    /// By `namespace:interface`.
    fn interface(&self, name: &str) -> Option<&InterfaceFrames> {
        let (space, name) = name.split_once(':')?;
        let mut namespaces = self.nodes.iter().flat_map(|node| &node.namespaces);
        namespaces
            .find(|namespace| namespace.name == space)?
            .interfaces
            .iter()
            .find(|own| own.name == name && !own.of_host)
    }

    fn arriving(&self, namespace: &NamespaceFrames, role: Role) -> Vec<CountedLine> {
        let mut lines = Vec::new();
        if !role.receives {
            return lines;
        }
        let mut backlog: u64 = self.node.backlog.values().sum();
        for interface in &namespace.interfaces {
            let (place, first) = (place(self.node, namespace, interface), lines.len());
            let link = |name: &str| count(&interface.link, name);
            let missed = link("rx_missed_errors");
            // Drivers show the same count under several of these names.
            let overrun = Some(link("rx_over_errors").max(link("rx_fifo_errors"))).filter(|overrun| *overrun != missed);
            let overrun = overrun.unwrap_or(0);
            let bad = ["rx_length_errors", "rx_crc_errors", "rx_frame_errors"].map(|name| (name, link(name)));
            let known: u64 = bad.iter().map(|(_, count)| count).sum();
            let counted_as_errors = [known, known + overrun, known + missed, known + overrun + missed];
            let errors = link("rx_errors");
            let errors = if counted_as_errors.contains(&errors) { 0 } else { errors.saturating_sub(known) };
            lines.push(line(&place, "no room in the card's ring", "rx_missed_errors", missed));
            lines.push(line(&place, "overrun of the card's buffer", "rx_fifo_errors", overrun));
            lines.extend(bad.map(|(name, frames)| line(&place, "damaged frame", name, frames)));
            lines.push(line(&place, "damaged frame", "rx_errors", errors));
            let dropped = self.rx_dropped(namespace, interface);
            let of_backlog = dropped.min(backlog);
            backlog -= of_backlog;
            let counter = "rx_dropped, softnet_stat dropped";
            lines.push(line(&place, "CPU's backlog full (net.core.netdev_max_backlog)", counter, of_backlog));
            lines.push(line(&place, "not taken by the node", "rx_dropped", dropped - of_backlog));
            lines.push(line(&place, "for an interface that is not active", "rx_nohandler", link("rx_nohandler")));
            let known = missed + overrun + known + errors + link("rx_dropped") + link("rx_nohandler");
            lines.extend(by_driver(&place, interface, "not received by the driver", known, false));
            bound_of_card(interface, &mut lines[first..]);
        }
        for interface in &namespace.interfaces {
            let place = place(self.node, namespace, interface);
            let arrived = count(&interface.link, "rx_packets");
            let known = of_queues(&interface.driver, "_xdp_drops");
            let what = "arrived and not read by the worker, as after its end";
            lines.extend(self.beyond(namespace, interface, "pktRx", &["missed", "unfit"], |taken, missed| {
                line(&place, what, "rx_packets without pktRx", arrived.saturating_sub(taken + missed + known))
                    .with(Counted::AtMost)
            }));
        }
        for (reason, what) in
            [("missed", "socket's ring full or without buffers"), ("unfit", "larger than a socket's buffer")]
        {
            for (interface, frames) in self.ports(namespace, reason) {
                lines.push(line(&format!("{}:{interface}", namespace.name), what, "AF_XDP or packet socket", frames));
            }
        }
        lines
    }

    /// Whether a packet socket sends by the interface: `packet_snd` (net/packet/af_packet.c) tells it of what was dropped on the way out,
    /// and the engine offers the same frame again.
    fn is_offered_again(&self, namespace: &str, interface: &str) -> bool {
        let own = self.trial.workers.iter().filter(|worker| worker.name == namespace);
        let mut ports = own.filter_map(|worker| worker.packets.as_ref()).flat_map(|packets| &packets.ports);
        ports.any(|port| port.interface == interface && port.driver == "AF_PACKET")
    }

    /// Without what sockets of AF_XDP tell themselves, and what was offered again.
    fn rx_dropped(&self, namespace: &NamespaceFrames, interface: &InterfaceFrames) -> u64 {
        let mut dropped = count(&interface.link, "rx_dropped");
        if interface.kind.as_deref() != Some("veth") {
            return dropped;
        }
        let far = interface.far.as_deref().and_then(|far| Some((far.split_once(':')?, self.interface(far)?)));
        if let Some(((space, name), far)) = far
            && self.is_offered_again(space, name)
            && of_queues(&interface.driver, "_xdp_packets") == 0
        {
            dropped = dropped.saturating_sub(count(&far.link, "tx_dropped"));
        }
        let own = self.trial.workers.iter().filter(|worker| worker.name == namespace.name);
        let ports = own.filter_map(|worker| worker.packets.as_ref()).flat_map(|packets| &packets.ports);
        let ports = ports.filter(|port| port.interface == interface.name && IN_DRIVER.contains(&port.driver.as_str()));
        let told = ports.flat_map(|port| ["missed", "unfit"].map(|reason| count(&port.drops, reason))).sum();
        dropped.saturating_sub(told)
    }

    /// A counter of the workers that have this interface as their only port, and what its port says by these reasons.
    fn beyond(
        &self,
        namespace: &NamespaceFrames,
        interface: &InterfaceFrames,
        counter: &str,
        reasons: &[&str],
        line: impl FnOnce(u64, u64) -> CountedLine,
    ) -> Option<CountedLine> {
        let own = self.trial.workers.iter().filter(|worker| worker.name == namespace.name && !interface.of_host);
        let own = own.filter_map(|worker| worker.packets.as_ref());
        let own: Vec<&PacketRecord> =
            own.filter(|packets| matches!(&packets.ports[..], [port] if port.interface == interface.name)).collect();
        let total: u64 = own.iter().map(|packets| count(&packets.total, counter)).sum();
        let ports = own.iter().flat_map(|packets| &packets.ports);
        let told = ports.map(|port| reasons.iter().map(|reason| count(&port.drops, reason)).sum::<u64>()).sum();
        (!own.is_empty()).then(|| line(total, told))
    }

    /// What the namespace's packet workers say of their ports, by interface.
    fn ports(&self, namespace: &NamespaceFrames, reason: &str) -> Vec<(String, u64)> {
        let own = self.trial.workers.iter().filter(|worker| worker.name == namespace.name);
        let ports = own.filter_map(|worker| worker.packets.as_ref()).flat_map(|packets| &packets.ports);
        ports.map(|port| (port.interface.clone(), count(&port.drops, reason))).collect()
    }

    /// What netrig's datapaths and others' programs dropped.
    fn datapaths(&self) -> Vec<CountedLine> {
        let own = self.trial.agents.iter().filter(|agent| agent.node == self.node.node);
        let mut lines: Vec<CountedLine> = Vec::new();
        for agent in own {
            let place = format!("{} on {}", agent.name, agent.node);
            for (reason, frames) in agent.dropped.iter().flatten() {
                let line = Line { place: place.clone(), counter: reason.clone(), frames: *frames };
                lines.push(CountedLine { line, counted: Counted::Lost });
            }
        }
        let told: u64 = lines.iter().map(|counted| counted.line.frames).sum();
        let interfaces = || self.node.namespaces.iter().flat_map(|namespace| &namespace.interfaces);
        let by_xdp = interfaces().filter(|own| own.kind.as_deref() == Some("veth"));
        let by_xdp: u64 = by_xdp.map(|own| of_queues(&own.driver, "_xdp_drops")).sum();
        let filtered = interfaces().flat_map(|own| &own.queues).filter(|queue| queue.is_ingress);
        let filtered: u64 = filtered.map(|queue| queue.drops).sum();
        let rest = (by_xdp + filtered).saturating_sub(told);
        let of_filters = rest.min(filtered);
        lines.push(line(&self.node.node, "dropped by an XDP program", "xdp_drops", rest - of_filters));
        lines.push(line(&self.node.node, "dropped by a filter of what comes in", "qdisc ingress drops", of_filters));
        lines
    }
}

/// Of `[fe80::1%eth0]:5001`, without its zone.
fn socket_address(text: &str) -> Option<SocketAddr> {
    let (before, after) = text.split_once('%').unwrap_or((text, ""));
    let port = after.find(']').map_or("", |end| &after[end..]);
    format!("{before}{port}").parse().ok()
}

/// By a card come and go frames of others, too.
fn bound_of_card(interface: &InterfaceFrames, lines: &mut [CountedLine]) {
    if interface.kind.is_none() {
        lines.iter_mut().for_each(|counted| counted.counted = Counted::AtMost);
    }
}

/// What a card's driver counts beyond the standard counters. Drivers count the same frame by queue, by port and in sum, so that their counters
/// cannot be added up: the largest stands for all.
fn by_driver(place: &str, interface: &InterfaceFrames, what: &str, known: u64, sends: bool) -> Option<CountedLine> {
    let is_hardware = interface.kind.is_none();
    let own =
        interface.driver.iter().filter(|(name, _)| is_hardware && name.to_ascii_lowercase().contains("tx") == sends);
    let (name, most) = own.max_by_key(|(_, count)| **count)?;
    Some(line(place, what, &format!("ethtool {name}"), most.saturating_sub(known)))
}

fn place(node: &NodeFrames, namespace: &NamespaceFrames, interface: &InterfaceFrames) -> String {
    match interface.of_host {
        true => format!("{} of {}'s host", interface.name, node.node),
        false => format!("{}:{}", namespace.name, interface.name),
    }
}

fn line(place: &str, what: &str, counter: &str, frames: u64) -> CountedLine {
    let line = Line { place: place.to_owned(), counter: format!("{what} ({counter})"), frames };
    CountedLine { line, counted: Counted::Lost }
}
