//! What runs, in the layouts of Contrail's tools: titles, keys and their order are theirs. What a router here does not have
//! (QoS classes, multicast tables, link speeds of veth pairs, indexes of hash tables) is left out.

use std::collections::HashMap;
use std::fmt::Write;

use jiff::Timestamp;
use rig_cli::packet::{self, Flow};
use rig_datapath::vrouter::{Encapsulation, Reason};

use crate::filter::protocol_name;
use crate::message::{
    AnalyserEntry, CpuCount, DroppedEntry, FlowEntry, FlowFilter, ForwardingCounts, InterfaceEntry, LabeledNextHop,
    LogCounts, LogEntry, NetworkEntry, NextHopEntry, NextHopTarget, ReasonCount, SpeakerEntry, Status, Table,
    TcpProgress, Trace,
};

/// Writing to a string does not fail.
macro_rules! line {
    ($text:expr) => { $text.push('\n') };
    ($text:expr, $($argument:tt)*) => {{
        let written = writeln!($text, $($argument)*);
        debug_assert!(written.is_ok(), "writing to a string");
    }};
}

mod detail;

pub use detail::flow;

/// `vif --list`.
pub fn interfaces(status: &Status) -> String {
    let mut text =
        "Vrouter Interface Table\n\nFlags: P=Policy, Mr=Receive Mirror, Mt=Transmit Mirror, L3=Layer 3, L2=Layer 2\n"
            .to_owned();
    for interface in &status.interfaces {
        line!(text);
        one_interface(&mut text, interface, &status.next_hops);
    }
    text
}

/// `vif --get`.
pub fn interface(interface: &InterfaceEntry, next_hops: &[NextHopEntry]) -> String {
    let mut text = String::new();
    one_interface(&mut text, interface, next_hops);
    text
}

/// Where the second line of something begins.
const INDENT: &str = "            ";

fn one_interface(text: &mut String, interface: &InterfaceEntry, next_hops: &[NextHopEntry]) {
    let InterfaceEntry { number, name, network, vrf, mac, known_mac, foreign_mac, foreign_frames, .. } = interface;
    let device = interface.device.as_deref().unwrap_or("(not there)");
    let next_hop = interface.next_hop.map(|next_hop| format!(" NH: {next_hop}")).unwrap_or_default();
    let policy = if interface.policy { "P" } else { "" };
    let mirrored = if interface.mirror.is_some() { "MrMt" } else { "" };
    let references =
        next_hops.iter().find(|hop| Some(hop.number) == interface.next_hop).map_or(0, |hop| hop.references);
    let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
    line!(text, "{:<12}OS: {device}{next_hop}", format!("vif0/{number}"));
    let known = known_mac.as_ref().unwrap_or(mac);
    let told = if known == mac { String::new() } else { format!(" Told:{mac}") };
    line!(text, "{INDENT}Type:Virtual HWaddr:{known}{told} IPaddr:{}", addresses.join(","));
    line!(text, "{INDENT}Vrf:{vrf} Flags:{policy}{mirrored}L3L2 Ref:{references} Name:{name} Network:{network}");
    line!(text, "{INDENT}RX packets:{}  bytes:{}", interface.in_packets, interface.in_bytes);
    line!(text, "{INDENT}TX packets:{}  bytes:{}", interface.out_packets, interface.out_bytes);
    line!(text, "{INDENT}Flooded packets:{}  copies:{}", interface.flooded_frames, interface.flooded_copies);
    let last = foreign_mac.as_ref().map(|mac| format!("  last:{mac}")).unwrap_or_default();
    line!(text, "{INDENT}Foreign MAC packets:{foreign_frames}{last}");
    let limit = interface.most_flows.map(|most| format!("  limit:{most}")).unwrap_or_default();
    line!(text, "{INDENT}Flows:{}{limit}  ended early:{}", interface.connections, interface.ended_early);
    line!(text, "{INDENT}Drops:{}", interface.drops.iter().map(|drop| drop.packets).sum::<u64>());
}

/// `nh --list`.
pub fn next_hops(status: &Status) -> String {
    let all: Vec<String> = status.next_hops.iter().map(|one| next_hop(one, &status.mac)).collect();
    all.join("\n")
}

/// `nh --get`.
pub fn next_hop(next_hop: &NextHopEntry, router: &str) -> String {
    let NextHopEntry { number, references, target } = next_hop;
    let (kind, vrf) = kind_of(target);
    let mut text = String::new();
    let indent = "              ";
    let vrf = vrf.map(|vrf| format!("Vrf:{vrf}")).unwrap_or_default();
    let head = format!("{:<14}{:<21}", format!("Id:{number}"), format!("Type:{kind}"));
    line!(text, "{}", format!("{head}{:<19}{vrf}", format!("Ref_cnt:{references}")).trim_end());
    match target {
        NextHopTarget::Interface { number, mac, .. } => {
            line!(text, "{indent}Flags:Valid,");
            let bytes = [mac.as_str(), router].join(":").replace(':', " ");
            line!(text, "{indent}Oif:{number} Encap Data: {bytes}");
        }
        NextHopTarget::Tunnel { encapsulation, source, destination, gateway, device_index, mtu, mac } => {
            let name = |one: &Encapsulation| one.name() == encapsulation;
            let flag = match Encapsulation::ALL.iter().find(|one| name(one)) {
                Some(Encapsulation::MplsOverUdp) => "MPLSoUDP",
                Some(Encapsulation::MplsOverGre) => "MPLSoGRE",
                Some(Encapsulation::Vxlan) => "Vxlan",
                None => encapsulation,
            };
            line!(text, "{indent}Flags:Valid, {flag},");
            let mac = mac.as_ref().map(|mac| format!(" Mac:{mac}")).unwrap_or_default();
            line!(text, "{indent}Oif:{device_index} Via:{gateway} Mtu:{mtu}{mac}");
            line!(text, "{indent}Sip:{source} Dip:{destination}");
        }
        NextHopTarget::Discard | NextHopTarget::Gateway | NextHopTarget::Vrf(_) => line!(text, "{indent}Flags:Valid,"),
        NextHopTarget::Ecmp(next_hops) => {
            line!(text, "{indent}Flags:Valid, Ecmp,");
            line!(text, "{indent}{}", sub_next_hops(next_hops));
        }
        NextHopTarget::Flood { next_hops, unknown_unicast } => {
            let unknown = if *unknown_unicast { " Unicast Flood," } else { "" };
            line!(text, "{indent}Flags:Valid, Multicast, L2,{unknown}");
            line!(text, "{indent}{}", sub_next_hops(next_hops));
        }
    }
    text
}

fn sub_next_hops(next_hops: &[LabeledNextHop]) -> String {
    let next_hops = next_hops.iter().map(|via| match via.label {
        0 => via.next_hop.to_string(),
        label => format!("{}({label})", via.next_hop),
    });
    format!("Sub NH(label): {}", next_hops.collect::<Vec<_>>().join(" "))
}

/// What `nh` calls it, and the VRF that it has.
fn kind_of(target: &NextHopTarget) -> (&'static str, Option<u32>) {
    match target {
        NextHopTarget::Discard => ("Drop", None),
        NextHopTarget::Interface { vrf, .. } => ("Encap", Some(*vrf)),
        NextHopTarget::Tunnel { .. } => ("Tunnel", None),
        NextHopTarget::Gateway => ("L3 Receive", None),
        NextHopTarget::Vrf(vrf) => ("Vrf_Translate", Some(*vrf)),
        NextHopTarget::Ecmp(_) | NextHopTarget::Flood { .. } => ("Composite", None),
    }
}

/// `trace`. `width` is that of the terminal, columns.
pub fn trace(flow: &Flow, trace: &Trace, width: usize) -> String {
    let Trace { interface, peer, steps, verdict, reason, packet_out } = trace;
    let from = match peer {
        Some(peer) => format!("by a tunnel from {peer} for interface {interface}"),
        None => format!("from interface {interface}"),
    };
    let reason = reason.as_ref().map(|reason| [reason.text.as_str(), &reason.reason, &reason.remedy]);
    packet::told(&format!("{flow}, {from}"), steps, verdict, reason, packet_out.as_ref(), width)
}

/// Which routes of a table are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Inet,
    Inet6,
    Bridge,
}

/// What frames to all have for an address.
const ALL: &str = "ff:ff:ff:ff:ff:ff";

/// `rt --dump`.
pub fn routes(table: &Table, family: Family) -> String {
    let Table { vrf, network, .. } = table;
    if family == Family::Bridge {
        let mut text = format!("Vrouter bridge table 0/{vrf} ({network})\nFlags: L=Label Valid, Df=DHCP flood\n");
        line!(text, "{:<21}{:>8}{:>16}{:>12}", "DestMac", "Flags", "Label/VNID", "Nexthop");
        for entry in &table.macs {
            let (mut flags, label) = label(entry.via);
            if entry.mac == ALL {
                flags = "Df";
            }
            line!(text, "{:<21}{flags:>8}{label:>16}{:>12}", entry.mac, entry.via.next_hop);
        }
        return text;
    }
    let name = if family == Family::Inet { "IP" } else { "IPv6" };
    let mut text = format!("Kernel {name} routing table 0/{vrf}/unicast ({network})\nFlags: L=Label Valid\n");
    let mut row = |columns: [&str; 5]| {
        let [destination, flags, label, next_hop, mac] = columns;
        line!(text, "{destination:<25}{flags:>8}{label:>14}{next_hop:>15}        {mac}");
    };
    row(["Destination", "Flags", "Label", "Nexthop", "Stitched MAC"]);
    let wanted = |prefix: &ipnet::IpNet| prefix.addr().is_ipv4() == (family == Family::Inet);
    for route in table.routes.iter().filter(|route| wanted(&route.prefix)) {
        let (flags, label) = label(route.via);
        let mac = route.mac.as_deref().unwrap_or("-");
        row([&route.prefix.to_string(), flags, &label, &route.via.next_hop.to_string(), mac]);
    }
    text
}

fn label(via: LabeledNextHop) -> (&'static str, String) {
    if via.label == 0 { ("", "-".to_owned()) } else { ("L", via.label.to_string()) }
}

/// `mpls --dump`.
pub fn labels(status: &Status) -> String {
    let entries = status.labels.iter().map(|entry| (entry.label, entry.next_hop));
    two("MPLS Input Label Map", "Label", entries)
}

/// `vxlan --dump`.
pub fn vnis(status: &Status) -> String {
    two("VXLAN Table", "VNID", status.vnis.iter().map(|entry| (entry.vni, entry.next_hop)))
}

fn two(title: &str, name: &str, entries: impl Iterator<Item = (u32, u32)>) -> String {
    let mut text = format!("{title}\n\n{name:>8}{:>11}\n{}\n", "NextHop", "-".repeat(22));
    for (number, next_hop) in entries {
        line!(text, "{number:>8}{next_hop:>11}");
    }
    text
}

/// `flow -l`, and of `flow --match` with what was asked for. The other direction of an entry that has none is 0.
pub fn flows(status: &Status, flows: &[FlowEntry], filter: Option<&FlowFilter>) -> String {
    let forward = flows.iter().filter(|flow| flow.forward).count();
    let mut text = format!("Flow table(entries {})\n\n", 2 * u64::from(status.flows.room));
    let what = if filter.is_some() { "Matching" } else { "Used" };
    line!(text, "Entries: {what} {} Connections {forward} Ended {}\n", flows.len(), status.flows.ended);
    line!(text, "Action:F=Forward, D=Drop");
    line!(text, " Other:K(nh)=Key_Nexthop, S(nh)=RPF_Nexthop, N(nh)=Nexthop");
    line!(text, "TCP(r=reverse):S=SYN, F=FIN, R=RST, E=Established\n");
    if let Some(filter) = filter {
        line!(text, "Listing flows matching ({filter})\n");
    }
    line!(text, "{:>9}{:<16}{:<46}Proto(V)", "Index", "", "Source:Port/Destination:Port");
    line!(text, "{}", "-".repeat(83));
    let own: HashMap<u32, u32> =
        status.interfaces.iter().filter_map(|interface| Some((interface.number, interface.next_hop?))).collect();
    let by_index: HashMap<u32, &FlowEntry> = flows.iter().map(|flow| (flow.index, flow)).collect();
    for flow in flows {
        let index = format!("{:>9}<=>{:<10}", flow.index, flow.reverse_index.unwrap_or(0));
        let FlowEntry { source, destination, protocol, vrf, packets, bytes, tunnel_port, via, .. } = flow;
        line!(text, "{index:<25}{:<46}{protocol:>4} ({vrf})", source.to_string());
        line!(text, "{:<25}{destination}", "");
        let action = if flow.denied { "D" } else { "F" };
        let number = |hop: Option<u32>| hop.map_or_else(|| "-".to_owned(), |hop| hop.to_string());
        let key_hop = number(own.get(&flow.interface).copied());
        // Where packets to the source go is where those from it may come from.
        let reverse = flow.reverse_index.and_then(|reverse| by_index.get(&reverse));
        let back = number(reverse.map(|reverse| reverse.via.next_hop));
        let tcp = if flow.tcp.is_empty() { String::new() } else { format!("TCP:{}, ", letters(&flow.tcp)) };
        let label = if via.label == 0 { String::new() } else { format!("({})", via.label) };
        let port = if *tunnel_port == 0 { String::new() } else { format!(",  SPort {tunnel_port}") };
        line!(
            text,
            "(K(nh):{key_hop}, Action:{action}, {tcp}S(nh):{back}, N(nh):{}{label},  Stats:{packets}/{bytes}{port})\n",
            via.next_hop
        );
    }
    text
}

fn letters(seen: &[TcpProgress]) -> String {
    let letter = |one: &TcpProgress| match one {
        TcpProgress::Syn => "S",
        TcpProgress::SynReverse => "Sr",
        TcpProgress::Established => "E",
        TcpProgress::EstablishedReverse => "Er",
        TcpProgress::Fin => "F",
        TcpProgress::FinReverse => "Fr",
        TcpProgress::Rst => "R",
    };
    seen.iter().map(letter).collect()
}

/// `vrfstats --dump`.
pub fn taken(networks: &[NetworkEntry]) -> String {
    let mut text = String::new();
    for NetworkEntry { vrf, taken, .. } in networks {
        let ForwardingCounts { discards, receives, vrf_translates, ecmp_composites, l2_encaps, encaps, .. } = taken;
        let ForwardingCounts { mplsoudp_tunnels, mplsogre_tunnels, vxlan_tunnels, .. } = taken;
        line!(text, "Vrf: {vrf}");
        line!(text, "Discards {discards}, Receives {receives}, Vrf Translates {vrf_translates}");
        line!(text, "Ecmp Composites {ecmp_composites}");
        let tunnels = format!("Udp Mpls Tunnels {mplsoudp_tunnels}, Gre Mpls Tunnels {mplsogre_tunnels}");
        line!(text, "{tunnels}, Vxlan Tunnels {vxlan_tunnels}");
        line!(text, "L2 Encaps {l2_encaps}, Encaps {encaps}");
        line!(text);
    }
    text
}

/// `dropstats --core`: the same of one CPU.
pub fn of_cpu(drops: &[ReasonCount], cpu: u32) -> Vec<ReasonCount> {
    let on = |count: &&CpuCount| count.cpu == cpu;
    let one = |drop: &ReasonCount| {
        let cpus: Vec<CpuCount> = drop.cpus.iter().filter(on).copied().collect();
        ReasonCount { packets: cpus.iter().map(|count| count.packets).sum(), cpus, ..drop.clone() }
    };
    drops.iter().map(one).collect()
}

/// `dropstats`: Contrail's names where it counts the same.
pub fn drops(drops: &[ReasonCount]) -> String {
    let mut text = String::new();
    for drop in drops {
        let name = match Reason::ALL.iter().find(|reason| reason.number() == drop.number) {
            Some(reason) => name(*reason),
            None => &drop.reason,
        };
        line!(text, "{name:<30}{}", drop.packets);
    }
    text
}

/// As dropstats calls it.
fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Discard => "Discards",
        Reason::Pull => "Pull fails",
        Reason::InvalidIf => "Invalid IF",
        Reason::InvalidArp => "Invalid ARP",
        Reason::FlowActionDrop => "Flow Action Drop",
        Reason::FlowTableFull => "Flow Table Full",
        Reason::Push => "Push Fails",
        Reason::TtlExceeded => "TTL Exceeded",
        Reason::InvalidNh => "Invalid NH",
        Reason::InvalidLabel => "Invalid Label",
        Reason::InvalidProtocol => "Invalid Protocol",
        Reason::Clone => "Mcast Clone Fail",
        Reason::InvalidPacket => "Invalid Packets",
        Reason::InvalidVnid => "Invalid VNID",
        Reason::Fragments => "Fragment errors",
        Reason::InvalidSource => "Invalid Source",
        Reason::L2NoRoute => "No L2 Route",
        Reason::NewFlows => "New Flow Drops",
        Reason::NoRoute => "No Route",
        Reason::TooBig => "Too Big",
        Reason::TooBigTold => "Too Big, sender told",
        Reason::TtlTold => "TTL Exceeded, sender told",
        Reason::Policy => "Policy",
        Reason::Ecn => "Congestion without ECN",
        Reason::NoPeer => "No Peer",
        Reason::Unanswered => "Unanswered",
        Reason::ManyCopies => "Many Copies",
        Reason::ManyPieces => "Many Pieces",
        Reason::Claim => "Address Claim",
        Reason::PeerInterface => "Peer Interface",
        Reason::ForeignMac => "Foreign MAC",
    }
}

/// `dropstats --log`, the oldest first.
pub fn last_dropped(status: &Status) -> String {
    let mut text =
        format!("{:>12}  {:>4}  {:<18}{:<8}{:>6}  {}\n", "Seconds ago", "Core", "Reason", "Vif", "Bytes", "Packet");
    for dropped in &status.last_dropped {
        let DroppedEntry { seconds_ago, cpu, interface, protocol, source, destination, length, .. } = dropped;
        let reason = dropped.reason.as_deref().unwrap_or("unknown");
        let interface = if *interface == 0 { "-".to_owned() } else { format!("0/{interface}") };
        line!(
            text,
            "{seconds_ago:>12.3}  {cpu:>4}  {reason:<18}{interface:<8}{length:>6}  protocol {protocol} {source} > {destination}"
        );
    }
    text
}

/// A line of `log`.
pub fn logged(entry: &LogEntry) -> String {
    let LogEntry { unix_ms, interface, interface_name, list, rule, rule_text, action, verdict, .. } = entry;
    let time = i64::try_from(*unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    let name = interface_name.as_deref().unwrap_or("(gone)");
    let list = list.as_deref().unwrap_or("(a list that is gone)");
    let text = rule_text.as_deref().unwrap_or("(a rule that is gone)");
    let of_icmp = entry.icmp_type.map(|of| format!(" type {of}")).unwrap_or_default();
    let (protocol, source, destination) = (protocol_name(entry.protocol), entry.source, entry.destination);
    format!(
        "{time:.3} {verdict} {protocol}{of_icmp} {source} > {destination}; {name} (vif0/{interface}), '{list}', rule {rule}: \
         {action}, {text}\n"
    )
}

/// What is not as one would think of an interface's MAC addresses.
fn addresses_of(interface: &InterfaceEntry) -> Option<String> {
    let InterfaceEntry { mac, any_mac, known_mac, foreign_mac, foreign_frames, .. } = interface;
    match (known_mac, foreign_mac) {
        (_, Some(foreign)) if !any_mac => Some(format!(
            "its MAC address is {mac} by the file: {foreign_frames} packets from others dropped, the last from {foreign}"
        )),
        (Some(known), _) if known != mac && *foreign_frames > 0 => Some(format!(
            "its container has MAC address {known}, others are told {mac}; {foreign_frames} packets came from another one than before"
        )),
        (Some(known), _) if known != mac => {
            Some(format!("its container has MAC address {known}, others are told {mac}"))
        }
        _ => None,
    }
}

/// `status`.
pub fn overview(status: &Status) -> String {
    let Status { node, netrig_version, process, uptime_seconds, address, mac, file, .. } = status;
    let mut text =
        format!("node {node}, {address}: netrig {netrig_version}, process {process}, for {uptime_seconds} s\n");
    line!(text, "  settings {file}");
    line!(text, "  router's MAC address {mac}, flow table for {} connections", status.flows.room);
    if let Some(speaker) = &status.speaker {
        let SpeakerEntry { address, autonomous_system, identifier, trouble, announced, learned, stale } = speaker;
        let how = match (autonomous_system, identifier) {
            (Some(number), Some(identifier)) => format!("AS {number}, identifier {identifier}"),
            _ => trouble.clone().unwrap_or_else(|| "not heard of yet".to_owned()),
        };
        line!(text, "speaker {address}: {how}; {announced} routes announced, {learned} learned, {stale} of them stale");
    }
    for peer in &status.peers {
        let name = peer.node.as_deref().unwrap_or("a node");
        let route = match (&peer.gateway, &peer.device, peer.mtu) {
            (Some(gateway), Some(device), Some(mtu)) => format!("via {gateway} by {device}, MTU {mtu} bytes"),
            _ => "no way there".to_owned(),
        };
        line!(text, "peer {name}, {}: {route}", peer.address);
    }
    for network in &status.networks {
        let encapsulations = network.encapsulation.join(", ");
        line!(text, "network {}: VRF {}, VNI {}, {encapsulations}", network.name, network.vrf, network.vni);
    }
    for interface in &status.interfaces {
        let InterfaceEntry { name, number, network, in_packets, out_packets, connections, ended_early, .. } = interface;
        let device = interface.device.as_deref().unwrap_or("not there");
        let drops: u64 = interface.drops.iter().map(|drop| drop.packets).sum();
        let limit = interface.most_flows.map(|most| format!(" of at most {most}")).unwrap_or_default();
        let early = match ended_early {
            0 => String::new(),
            some => format!(", {some} ended early without an answer"),
        };
        line!(
            text,
            "interface {name}, vif0/{number}: {device}, network {network}; packets from it {in_packets}, to it {out_packets}, \
             dropped {drops}; {connections} connections{limit}{early}"
        );
        if let Some(addresses) = addresses_of(interface) {
            line!(text, "  {addresses}");
        }
    }
    for drop in status.drops.iter().filter(|drop| drop.packets > 0) {
        line!(text, "dropped {}: {} ({}); {}", drop.packets, drop.reason, drop.text, drop.remedy);
    }
    let of_none: Vec<String> =
        status.drops_of_none.iter().map(|drop| format!("{} {}", drop.packets, drop.reason)).collect();
    if !of_none.is_empty() {
        line!(text, "of them before it was known for which interface, most from the underlay: {}", of_none.join(", "));
    }
    for analyser in &status.analysers {
        let AnalyserEntry { name, address, port, vni, device, packets, cut, failed, .. } = analyser;
        let route = device.as_ref().map_or_else(|| "no way there".to_owned(), |device| format!("by {device}"));
        line!(
            text,
            "analyser {name}, {address} port {port}, VNI {vni}: {route}; {packets} copies, {cut} of them cut, {failed} failed"
        );
    }
    let LogCounts { told, lost, held_back, .. } = status.log;
    if told + lost + held_back > 0 {
        line!(text, "log: {told} verdicts of rules, {lost} lost, {held_back} refusals held back");
    }
    for note in &status.notes {
        line!(text, "note: {note}");
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
