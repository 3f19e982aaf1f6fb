//! One flow with all that belongs to it.

use std::fmt::Write;
use std::net::SocketAddr;

use rig_datapath::vrouter::Reason;

use super::kind_of;
use crate::filter::protocol_name;
use crate::message::{FlowEntry, NextHopTarget, Status, Table, TcpProgress};

/// `flow --get`, of one direction. `tables` have the routes that its source and its destination take, where there are some.
pub fn flow(status: &Status, flow: &FlowEntry, reverse: Option<&FlowEntry>, tables: [Option<&Table>; 2]) -> String {
    let mut fields = Fields::default();
    let end = |end: SocketAddr| format!("[{}]:{}", end.ip(), end.port());
    let vrf_of = |number: u32| status.interfaces.iter().find(|one| one.number == number).map(|one| one.vrf);
    fields.add("Flow Index", flow.index);
    fields.add("Reverse Flow Index", flow.reverse_index.unwrap_or(0));
    fields.add("VRF", flow.vrf);
    fields.add("Destination VRF", vrf_of(flow.reverse_interface).unwrap_or(flow.vrf));
    fields.add("Flow Source", end(flow.source));
    fields.add("Flow Destination", end(flow.destination));
    fields.add("Flow Protocol", protocol_name(flow.protocol));
    fields.add("Flow Action", if flow.denied { "DROP" } else { "FORWARD" });
    if let Some(reverse) = reverse {
        fields.name("Expected Source");
        next_hop(&mut fields, status, reverse.via.next_hop, 0, "Ingress");
    }
    fields.name("Flow NextHop");
    next_hop(&mut fields, status, flow.via.next_hop, flow.via.label, "Egress");
    let names = [("Source Information", "Ingress"), ("Destination Information", "Egress")];
    for ((name, side), table) in names.into_iter().zip(tables) {
        let Some((table, route)) = table.and_then(|table| Some((table, table.routes.first()?))) else { continue };
        fields.add(name, format!("VRF: {}", table.vrf));
        fields.more("Layer 3 Route Information");
        fields.more(format!("Matching Route: {}", route.prefix));
        next_hop(&mut fields, status, route.via.next_hop, route.via.label, side);
    }
    if !flow.tcp.is_empty() {
        let seen: Vec<&str> = flow.tcp.iter().map(|seen| tcp_name(*seen)).collect();
        fields.add("TCP FLAGS", seen.join(", "));
    }
    fields.add("UDP Source Port", flow.tunnel_port);
    if flow.fat {
        fields.add("Fat Flow", "all ports of the one who began it, for which 0 stands");
    }
    if let Some(analyser) = &flow.mirror {
        fields.add("Mirror", analyser);
    }
    fields.add("Flow Statistics", format!("{}/{}", flow.packets, flow.bytes));
    fields.add("Idle Seconds", format!("{:.1}", flow.idle_seconds));
    let dropped = |reasons: &[Reason]| -> u64 {
        let of = status.drops.iter().filter(|drop| reasons.iter().any(|reason| reason.number() == drop.number));
        of.map(|drop| drop.packets).sum()
    };
    fields.add("System Wide Packet Drops", dropped(Reason::ALL));
    fields.more(format!("Reverse Path Failures: {}", dropped(&[Reason::InvalidSource])));
    let of_flows = [Reason::FlowActionDrop, Reason::FlowTableFull, Reason::NewFlows, Reason::Policy];
    fields.more(format!("Flow Block Drops: {}", dropped(&of_flows)));
    fields.text
}

/// A next hop, and the interface that it leads to.
fn next_hop(fields: &mut Fields, status: &Status, number: u32, label: u32, side: &str) {
    let Some(hop) = status.next_hops.iter().find(|hop| hop.number == number) else {
        return fields.more(format!("NextHop(Index): {number}"));
    };
    let (kind, vrf) = kind_of(&hop.target);
    let vrf = vrf.map_or_else(|| "-".to_owned(), |vrf| vrf.to_string());
    fields.more(format!("NextHop(Index, VRF, Type): {number}, {vrf}, {kind}"));
    if label != 0 {
        fields.more(format!("Label: {label}"));
    }
    match &hop.target {
        NextHopTarget::Interface { number, .. } => {
            let Some(interface) = status.interfaces.iter().find(|one| one.number == *number) else { return };
            let device = interface.device.as_deref().unwrap_or("(not there)");
            fields.more(format!("{side} Interface(Index, VRF, OS): vif0/{number}, {}, {device}", interface.vrf));
            let drops: u64 = interface.drops.iter().map(|drop| drop.packets).sum();
            let (out, into) = (interface.out_packets, interface.in_packets);
            fields.more(format!("Interface Statistics(Out, In, Drops): {out}, {into}, {drops}"));
        }
        NextHopTarget::Tunnel { encapsulation, source, destination, .. } => {
            fields.more(format!("Tunnel({encapsulation}) Source: {source} Destination: {destination}"));
        }
        NextHopTarget::Ecmp(ways) => {
            let ways: Vec<String> = ways.iter().map(|via| via.next_hop.to_string()).collect();
            fields.more(format!("ECMP: {}", ways.join(", ")));
        }
        NextHopTarget::Discard | NextHopTarget::Gateway | NextHopTarget::Vrf(_) | NextHopTarget::Flood { .. } => {}
    }
}

fn tcp_name(seen: TcpProgress) -> &'static str {
    match seen {
        TcpProgress::Syn => "SYN",
        TcpProgress::SynReverse => "SYN(REVERSE)",
        TcpProgress::Established => "ESTABLISHED",
        TcpProgress::EstablishedReverse => "ESTABLISHED(REVERSE)",
        TcpProgress::Fin => "FIN",
        TcpProgress::FinReverse => "FIN(REVERSE)",
        TcpProgress::Rst => "RESET",
    }
}

/// Where values begin.
const WIDTH: usize = 30;

/// Names, each with a value beside it and more below that.
#[derive(Default)]
struct Fields {
    text: String,
    /// Of the value that comes next.
    name: String,
}

impl Fields {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.more(value);
    }

    fn name(&mut self, name: &str) {
        self.name = format!("{name}:");
    }

    fn more(&mut self, value: impl std::fmt::Display) {
        line!(self.text, "{:<WIDTH$}{value}", std::mem::take(&mut self.name));
    }
}
