//! The router as OpenMetrics 1.0 text, which Prometheus scrapes.

use rig_service::openmetrics::Exposition;

use crate::message::{AnalyserEntry, InterfaceEntry, NetworkEntry, PeerEntry, Status};
use crate::rates::is_refusal;

/// All metrics, of the types that readers of Prometheus' older text format know, too: none is an `info`. Counters are since
/// the router's tables were made, which a router that persists has from the ones before it.
pub fn render(status: &Status) -> String {
    let mut text = Exposition::default();
    let node = ("node", status.node.as_str());
    let info = [node, ("version", &status.netrig_version)];
    text.gauge("vrouter_build_info", "", "The router's version.", &info, 1.0);
    let mut gauge = |name, unit, help, value| text.gauge(name, unit, help, &[node], value);
    gauge("vrouter_up", "seconds", "Since the process was started.", status.uptime_ms as f64 / 1000.0);
    let help = "Settings that are not in force: `netrig vrouter status` lists them.";
    gauge("vrouter_notes", "", help, status.notes.len() as f64);
    flows(&mut text, status);
    log(&mut text, status);
    status.analysers.iter().for_each(|analyser| of_analyser(&mut text, node, analyser));
    status.interfaces.iter().for_each(|interface| of_interface(&mut text, node, interface));
    status.networks.iter().for_each(|network| of_network(&mut text, node, network));
    status.peers.iter().for_each(|peer| of_peer(&mut text, node, peer));
    for drop in &status.drops {
        let number = drop.number.to_string();
        let labels = [node, ("reason", &drop.reason), ("number", &number)];
        let help = "Packets dropped, of all interfaces and of none, by reason.";
        text.add("counter", "vrouter_drops", "", help, &labels, drop.packets as f64);
        for count in &drop.cpus {
            let cpu = count.cpu.to_string();
            let labels = [node, ("reason", &drop.reason), ("cpu", &cpu)];
            let help = "Packets dropped, of all interfaces and of none, by reason and by the CPU that dropped them.";
            text.add("counter", "vrouter_cpu_drops", "", help, &labels, count.packets as f64);
        }
    }
    for drop in &status.drops_of_none {
        let labels = [node, ("reason", drop.reason.as_str())];
        let help = "Packets dropped of no interface, most from the underlay before it was known for whom, by reason.";
        text.add("counter", "vrouter_drops_of_none", "", help, &labels, drop.packets as f64);
    }
    text.to_string()
}

fn flows(text: &mut Exposition, status: &Status) {
    let (node, flows) = ([("node", status.node.as_str())], status.flows);
    text.gauge("vrouter_connections", "", "Connections that are remembered.", &node, flows.connections as f64);
    text.gauge("vrouter_connections_limit", "", "Room for connections.", &node, flows.room.into());
    let mut counter = |name, help, value: u64| text.add("counter", name, "", help, &node, value as f64);
    counter("vrouter_connections_begun", "Connections that were let through and remembered.", flows.begun);
    let help = "Connections that have ended.";
    counter("vrouter_connections_ended", help, flows.begun.saturating_sub(flows.connections));
    let help = "Connections that ended because they had been silent for too long, since the process was started.";
    counter("vrouter_connections_silent", help, flows.ended);
    let refused = status.drops.iter().filter(|drop| is_refusal(drop)).map(|drop| drop.packets).sum();
    let help = "Packets that could not begin a connection, by rules, by limits or because the table is full.";
    counter("vrouter_connections_refused_packets", help, refused);
}

fn log(text: &mut Exposition, status: &Status) {
    let log = status.log;
    for (outcome, count) in [("told", log.told), ("lost", log.lost), ("held_back", log.held_back)] {
        let labels = [("node", status.node.as_str()), ("outcome", outcome)];
        let help = "Verdicts of rules that log: told, lost because the daemon did not read them in time, or held back because there were too many.";
        text.add("counter", "vrouter_log_entries", "", help, &labels, count as f64);
    }
}

fn of_interface(text: &mut Exposition, node: (&str, &str), interface: &InterfaceEntry) {
    let labels = [node, ("interface", interface.name.as_str()), ("network", interface.network.as_str())];
    let help = "1 for an interface that is there, 0 for one that is waited for.";
    text.gauge("vrouter_interface_there", "", help, &labels, f64::from(interface.device.is_some()));
    let help = "Connections of the interface that are remembered.";
    text.gauge("vrouter_interface_connections", "", help, &labels, interface.connections as f64);
    let help = "Connections without an answer that were ended early because the table or the share of it ran short.";
    text.add("counter", "vrouter_interface_connections_ended_early", "", help, &labels, interface.ended_early as f64);
    if let Some(most) = interface.most_flows {
        let help = "Connections that the interface may have at a time.";
        text.gauge("vrouter_interface_connections_limit", "", help, &labels, most.into());
    }
    for (direction, packets, bytes) in
        [("in", interface.in_packets, interface.in_bytes), ("out", interface.out_packets, interface.out_bytes)]
    {
        let [node, interface, network] = labels;
        let labels = [node, interface, network, ("direction", direction)];
        let help = "Packets of the interface: in from its container, out to it; one that is still to be cut is one.";
        text.add("counter", "vrouter_interface_packets", "", help, &labels, packets as f64);
        let help = "Bytes of packets of the interface, with Ethernet headers: in from its container, out to it.";
        text.add("counter", "vrouter_interface_bytes", "bytes", help, &labels, bytes as f64);
    }
    let help = "Frames to all and to groups from the interface's container.";
    text.add("counter", "vrouter_interface_flooded", "", help, &labels, interface.flooded_frames as f64);
    let help = "Copies that frames to all and to groups from the interface's container have become.";
    text.add("counter", "vrouter_interface_flooded_copies", "", help, &labels, interface.flooded_copies as f64);
    let help = "Frames from another MAC address than the interface's: dropped, or, where any will do, changes of it.";
    text.add("counter", "vrouter_interface_foreign_frames", "", help, &labels, interface.foreign_frames as f64);
    for drop in &interface.drops {
        let [node, interface, network] = labels;
        let labels = [node, interface, network, ("reason", drop.reason.as_str())];
        let help = "Packets of the interface that were dropped, by reason.";
        text.add("counter", "vrouter_interface_drops", "", help, &labels, drop.packets as f64);
    }
}

fn of_network(text: &mut Exposition, node: (&str, &str), network: &NetworkEntry) {
    let labels = [node, ("network", network.name.as_str())];
    for (taken, packets) in network.taken.named() {
        let labels = [node, ("network", network.name.as_str()), ("next_hop", taken)];
        let help = "Packets of the network's containers by the kind of next hop that took them, or that they passed on the way.";
        text.add("counter", "vrouter_network_packets", "", help, &labels, packets as f64);
    }
    text.gauge("vrouter_network_routes", "", "Routes of the network's table.", &labels, network.routes as f64);
}

fn of_analyser(text: &mut Exposition, node: (&str, &str), analyser: &AnalyserEntry) {
    let labels = [node, ("analyser", analyser.name.as_str())];
    let help = "1 for an analyser that can be reached, 0 for one that cannot.";
    text.gauge("vrouter_analyser_reached", "", help, &labels, f64::from(analyser.device.is_some()));
    for (name, unit, help, value) in [
        (
            "vrouter_copies_packets",
            "",
            "Copies for the analyser; one that is still to be cut is one.",
            analyser.packets,
        ),
        (
            "vrouter_copies_bytes",
            "bytes",
            "Bytes of frames that were copied, as far as the copies have them.",
            analyser.bytes,
        ),
        (
            "vrouter_copies_cut",
            "",
            "Copies that do not have all of the packet: it is too large for the way.",
            analyser.cut,
        ),
        ("vrouter_copies_failed", "", "Copies that could not be made.", analyser.failed),
    ] {
        text.add("counter", name, unit, help, &labels, value as f64);
    }
}

fn of_peer(text: &mut Exposition, node: (&str, &str), peer: &PeerEntry) {
    let address = peer.address.to_string();
    let labels = [node, ("peer", peer.node.as_deref().unwrap_or_default()), ("address", &address)];
    let help = "1 for another node that can be reached, 0 for one that cannot.";
    text.gauge("vrouter_peer_reached", "", help, &labels, f64::from(peer.gateway.is_some()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use openmetrics_parser::openmetrics;

    use super::*;
    use crate::fixture::status;

    #[test]
    fn what_is_told_is_openmetrics_whatever_there_is() {
        let mut nothing = status();
        (nothing.interfaces, nothing.networks, nothing.peers, nothing.drops) = Default::default();
        let texts = [nothing, status()].map(|status| render(&status));
        texts.iter().for_each(|text| drop(openmetrics::parse_openmetrics(text).unwrap()));
        insta::assert_snapshot!("openmetrics", texts[1]);
    }
}
