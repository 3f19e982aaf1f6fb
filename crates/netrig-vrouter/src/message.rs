//! What is said between a running router and its clients.
//!
//! What is told to programs by `--json` are parts of it, so fields are added, never renamed.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use rig_cli::packet::{Flow, PacketOut};
use rig_datapath::vrouter::Reason;
use rig_wire::ethernet::Mac;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::PluggedInterface;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Answered by [`Reply::Status`].
    Status,
    /// Routes of all tables, or of the VRF with this number. Answered by [`Reply::Routes`].
    Routes(Option<u32>),
    /// The route of a VRF that something takes. Answered by [`Reply::Routes`] with a table that has it alone.
    Route { vrf: u32, to: RouteDestination },
    /// Answered by a [`Reply::Flows`] for each batch.
    Flows,
    /// Those that a filter takes. Answered as [`Request::Flows`].
    FlowsOf(FlowFilter),
    /// What would happen to a packet; nothing changes by it. Answered by [`Reply::Trace`].
    Trace(TraceRequest),
    /// What rules have logged, from this sequence number on. Answered by [`Reply::Log`].
    Log { from: u64 },
    /// What an interface of a network has to be like. Answered by [`Reply::Network`].
    Network(String),
    /// Adds an interface that is in no file. Answered by [`Reply::Done`] when it is in force.
    Plug { name: String, interface: PluggedInterface },
    /// Takes one away that was added so, where it is there. Answered by [`Reply::Done`].
    Unplug { name: String },
    /// Those that were added so. Answered by [`Reply::Plugged`].
    Plugged,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Status(Box<Status>),
    Routes(Vec<Table>),
    Flows(Vec<FlowEntry>),
    Trace(Box<Trace>),
    Log(Log),
    Network(NetworkTerms),
    Plugged(Vec<PluggedEntry>),
    Done,
}

/// What an interface of a network has to be like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTerms {
    pub subnets: Vec<SubnetTerms>,
    /// The largest packet that fits all tunnels that the network takes from here.
    pub mtu: u16,
    /// That interfaces may have, by name.
    #[serde(default)]
    pub security_groups: BTreeSet<String>,
}

/// Where addresses of a network are from, and who takes packets to others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetTerms {
    pub prefix: IpNet,
    pub gateway: IpAddr,
}

/// An interface that a plug-in has added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluggedEntry {
    pub name: String,
    pub interface: PluggedInterface,
    /// Whether packets are forwarded.
    pub is_in_force: bool,
}

/// What a route is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum RouteDestination {
    /// All of a prefix; of an address, itself.
    Prefix(IpNet),
    Mac(Mac),
}

/// Which flows are listed: those that everything in it is true of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowFilter {
    /// The one with this number, and its other direction.
    pub number: Option<u32>,
    /// Two at most: of either direction, one of its ends and, where there are two, the other one.
    pub ends: Vec<FlowEnd>,
    pub protocol: Option<u8>,
    /// The number of the VRF that it comes from.
    pub vrf: Option<u32>,
}

/// One end of a flow, as far as it is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
}

/// A router as it is now, all but its routes and flows. Counters are since it was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    pub netrig_version: String,
    pub node: String,
    /// The settings that it runs by.
    pub file: String,
    pub process: u32,
    pub uptime_seconds: u64,
    /// The same in milliseconds, 0 of a version that did not tell.
    #[serde(default)]
    pub uptime_ms: u64,
    /// Where tunnels to it end.
    pub address: Ipv4Addr,
    /// Its MAC address towards containers.
    pub mac: String,
    pub peers: Vec<PeerEntry>,
    pub networks: Vec<NetworkEntry>,
    pub interfaces: Vec<InterfaceEntry>,
    pub next_hops: Vec<NextHopEntry>,
    pub labels: Vec<LabelEntry>,
    pub vnis: Vec<VniEntry>,
    pub flows: FlowTable,
    /// Of all interfaces, and of packets that are of none; all reasons that there are.
    pub drops: Vec<ReasonCount>,
    /// The packets that were dropped last, the oldest first: up to 256 of each CPU.
    pub last_dropped: Vec<DroppedEntry>,
    /// Of `drops`, those of no container's interface: of packets from the underlay before it was known for whom they are, and of
    /// devices that have the programs and are none of the router's.
    #[serde(default)]
    pub drops_of_none: Vec<ReasonCount>,
    /// What rules have logged.
    #[serde(default)]
    pub log: LogCounts,
    /// Who gets copies of packets.
    #[serde(default)]
    pub analysers: Vec<AnalyserEntry>,
    /// What of the settings is not done, and why.
    pub notes: Vec<String>,
    /// By which routes come and go; none where the file alone tells them.
    #[serde(default)]
    pub speaker: Option<SpeakerEntry>,
}

/// A speaker of BGP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpeakerEntry {
    /// Of its API.
    pub address: String,
    /// None while it is not there.
    pub autonomous_system: Option<u32>,
    /// Its BGP identifier.
    pub identifier: Option<String>,
    /// Why it is not there.
    pub trouble: Option<String>,
    /// Routes of this node that it has.
    pub announced: usize,
    /// Routes of other nodes that it has told, whether they are of networks here or not.
    pub learned: usize,
    /// Those of them that are only remembered, because the speaker was lost since.
    pub stale: usize,
}

/// Who gets copies of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnalyserEntry {
    pub name: String,
    pub address: Ipv4Addr,
    /// Of UDP.
    pub port: u16,
    /// VXLAN network identifier.
    pub vni: u32,
    /// The device that copies leave by; none where there is no way to it.
    pub device: Option<String>,
    /// Of the way to it, bytes, the outer header included.
    pub mtu: Option<u16>,
    /// Copies; one that is still to be cut into segments is one.
    pub packets: u64,
    /// Of frames, as far as the copies have them.
    pub bytes: u64,
    /// Of the copies, those that do not have all of the packet, because it would be too large for the way.
    pub cut: u64,
    /// Copies that could not be made.
    pub failed: u64,
}

/// Another router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerEntry {
    /// Its name in the settings.
    pub node: Option<String>,
    pub address: Ipv4Addr,
    /// The next hop on the underlay; none where there is no way to it.
    pub gateway: Option<Ipv4Addr>,
    /// The device that packets to it leave by.
    pub device: Option<String>,
    /// Of the way to it, bytes, the outer header included.
    pub mtu: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkEntry {
    pub name: String,
    pub vrf: u32,
    pub vni: u32,
    /// The most preferred first.
    pub encapsulation: Vec<String>,
    /// Routes of its table.
    #[serde(default)]
    pub routes: u64,
    /// What has taken packets of it.
    #[serde(default)]
    pub taken: ForwardingCounts,
}

/// Packets that a network's containers here have sent, and that came to them by tunnels, by the kind of next hop that has taken them;
/// those of a known flow by that which the flow remembers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardingCounts {
    /// Dropped by a route that leads nowhere, of the interfaces that are in the network now.
    pub discards: u64,
    /// By the gateway.
    pub receives: u64,
    /// By a route that led to another network's table, which another next hop has taken then.
    pub vrf_translates: u64,
    /// By a route with several ways, one of which has taken them then.
    pub ecmp_composites: u64,
    pub mplsoudp_tunnels: u64,
    pub mplsogre_tunnels: u64,
    pub vxlan_tunnels: u64,
    /// By containers here, bridged.
    pub l2_encaps: u64,
    /// By containers here, routed.
    pub encaps: u64,
}

impl ForwardingCounts {
    /// Each with its name.
    pub(crate) fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("discard", self.discards),
            ("receive", self.receives),
            ("vrf_translate", self.vrf_translates),
            ("ecmp_composite", self.ecmp_composites),
            ("mplsoudp_tunnel", self.mplsoudp_tunnels),
            ("mplsogre_tunnel", self.mplsogre_tunnels),
            ("vxlan_tunnel", self.vxlan_tunnels),
            ("l2_encap", self.l2_encaps),
            ("encap", self.encaps),
        ]
    }
}

/// A container's interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceEntry {
    /// Its number on this node.
    pub number: u32,
    pub name: String,
    pub network: String,
    pub vrf: u32,
    /// The node's end; none while it is not there.
    pub device: Option<String>,
    /// The kernel's number of it.
    pub device_index: Option<u32>,
    /// Of the container, as others are told.
    pub mac: String,
    /// Whether the container may have any other MAC address, too. If not, frames from others are dropped.
    #[serde(default)]
    pub any_mac: bool,
    /// The MAC address that frames for the container go to: `mac`, or, where any will do, the one that its last frame came from; none
    /// before the first.
    #[serde(default)]
    pub known_mac: Option<String>,
    /// Where any will not do, the other MAC address that a frame came from last.
    #[serde(default)]
    pub foreign_mac: Option<String>,
    pub addresses: Vec<IpAddr>,
    pub label: u32,
    pub next_hop: Option<u32>,
    /// Whether its packets are held against rules, and are of flows.
    pub policy: bool,
    /// Connections that it may have at a time, by the file or as its share of the table; none for no limit but the table's.
    pub most_flows: Option<u32>,
    pub security_groups: Vec<String>,
    /// The analyser that gets copies of its packets.
    #[serde(default)]
    pub mirror: Option<String>,
    /// Services whose flows are fat, its own and its network's, such as `udp 53`.
    #[serde(default)]
    pub fat_flows: Vec<String>,
    /// That are remembered, both directions of each as one.
    pub connections: u64,
    /// Connections without an answer that were ended early, because the table or the interface's share of it ran short.
    #[serde(default)]
    pub ended_early: u64,
    /// From the container. A packet that is still to be cut into segments is one; bytes with Ethernet headers.
    pub in_packets: u64,
    pub in_bytes: u64,
    /// To the container.
    pub out_packets: u64,
    pub out_bytes: u64,
    /// Frames to all and to groups from the container, and the copies that they have become.
    #[serde(default)]
    pub flooded_frames: u64,
    #[serde(default)]
    pub flooded_copies: u64,
    /// From the container, from another MAC address than the one that was known: dropped, or, where any will do, a change of it.
    #[serde(default)]
    pub foreign_frames: u64,
    /// Reasons for which packets were dropped.
    pub drops: Vec<ReasonCount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextHopEntry {
    pub number: u32,
    /// Routes, labels, network identifiers and next hops that lead to it.
    pub references: u32,
    #[serde(rename = "leads")]
    pub target: NextHopTarget,
}

/// Where packets of a next hop go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NextHopTarget {
    /// Nowhere: the packet is dropped.
    Discard,
    /// To a container's interface, by its number.
    Interface { number: u32, vrf: u32, mac: String },
    Tunnel {
        /// `mplsoudp`, `mplsogre` or `vxlan`.
        encapsulation: String,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        gateway: Ipv4Addr,
        /// The kernel's number of the device.
        device_index: u32,
        /// The largest packet that the tunnel takes, bytes.
        mtu: u16,
        /// Destination of the inner frame, where there is one.
        mac: Option<String>,
    },
    /// The router itself.
    Gateway,
    /// To where another table's route says.
    Vrf(u32),
    /// One of several, each flow always the same.
    Ecmp(Vec<LabeledNextHop>),
    /// All members of a network get a copy but who sent it.
    Flood {
        /// Interfaces of this node first, then tunnels.
        #[serde(rename = "ways")]
        next_hops: Vec<LabeledNextHop>,
        /// Whether frames to MAC addresses that no container has go there, too.
        unknown_unicast: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabeledNextHop {
    pub next_hop: u32,
    /// MPLS label or VXLAN network identifier; 0 for none.
    pub label: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelEntry {
    pub label: u32,
    pub next_hop: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VniEntry {
    pub vni: u32,
    pub next_hop: u32,
}

/// A network's routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    pub vrf: u32,
    pub network: String,
    pub routes: Vec<RouteEntry>,
    pub macs: Vec<MacEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteEntry {
    #[schemars(with = "String")]
    pub prefix: IpNet,
    #[serde(flatten)]
    pub via: LabeledNextHop,
    /// Of the interface of this node whose address it is.
    pub mac: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MacEntry {
    pub mac: String,
    #[serde(flatten)]
    pub via: LabeledNextHop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowTable {
    /// Connections that it has room for.
    pub room: u32,
    /// Connections that were ended because they had been silent for too long, by the process that runs.
    pub ended: u64,
    /// Connections that were let through and remembered; flows that were kept bring theirs along.
    #[serde(default)]
    pub begun: u64,
    /// Connections that are remembered.
    #[serde(default)]
    pub connections: u64,
}

/// One direction of a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowEntry {
    /// It has this number as long as it is there, from 1. Among very many flows two may have the same.
    #[serde(default)]
    pub index: u32,
    /// The number of the other direction, where there is one.
    #[serde(default)]
    pub reverse_index: Option<u32>,
    /// The interface that it comes from, or that it goes to where it comes by a tunnel.
    pub interface: u32,
    /// That of the other direction.
    pub reverse_interface: u32,
    pub vrf: u32,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub packets: u64,
    /// Of IP packets.
    pub bytes: u64,
    /// Where it goes.
    #[serde(flatten)]
    pub via: LabeledNextHop,
    /// Whether its first packet began the connection.
    pub forward: bool,
    /// Rules forbid it since they have changed.
    pub denied: bool,
    /// Of all ports of the one who began it, for which 0 stands.
    #[serde(default)]
    pub fat: bool,
    /// What has been seen of TCP.
    pub tcp: Vec<TcpProgress>,
    /// Source port of the tunnel's packets; 0 for none.
    pub tunnel_port: u16,
    /// The analyser that gets copies of its packets.
    #[serde(default)]
    pub mirror: Option<String>,
    /// Since its last packet.
    pub idle_seconds: f64,
}

/// Of both directions of a TCP connection, as the direction that began it has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TcpProgress {
    Syn,
    SynReverse,
    Established,
    EstablishedReverse,
    Fin,
    FinReverse,
    Rst,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasonCount {
    /// Below 64 Contrail's.
    pub number: u32,
    pub reason: String,
    pub text: String,
    /// What to do about it.
    pub remedy: String,
    pub packets: u64,
    /// Of the packets, those that each CPU has dropped, where it has dropped some.
    #[serde(default)]
    pub cpus: Vec<CpuCount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCount {
    pub cpu: u32,
    pub packets: u64,
}

impl ReasonCount {
    /// `cpus` are packets of each CPU that there can be.
    pub(crate) fn of_cpus(reason: Reason, cpus: &[u64]) -> Self {
        let counts = (0..).zip(cpus).filter(|(_, packets)| **packets > 0);
        let counts = counts.map(|(cpu, packets)| CpuCount { cpu, packets: *packets }).collect();
        Self { cpus: counts, ..Self::of(reason, cpus.iter().sum()) }
    }

    pub(crate) fn of(reason: Reason, packets: u64) -> Self {
        Self {
            number: reason.number(),
            reason: reason.key().to_owned(),
            text: reason.text().to_owned(),
            remedy: reason.remedy().to_owned(),
            packets,
            cpus: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedEntry {
    /// How long ago.
    pub seconds_ago: f64,
    /// That dropped it.
    #[serde(default)]
    pub cpu: u32,
    /// `None` of a number that this version does not know.
    pub reason: Option<String>,
    /// 0 for none.
    pub interface: u32,
    pub protocol: u8,
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of the IP packet, bytes.
    pub length: u16,
}

/// How much rules have logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogCounts {
    /// By the datapath, since its tables were made.
    pub told: u64,
    /// That there was no room for, because no process took what was there.
    pub lost: u64,
    /// Refusals of an interface beyond 100 a second, 128 at once.
    pub held_back: u64,
    /// That can be asked for, by the process that runs.
    pub kept: u64,
    /// That were kept and have made room for later ones.
    pub pushed_out: u64,
}

/// What rules have logged, from a sequence number on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Log {
    /// Sequence numbers are of this process.
    pub process: u32,
    pub entries: Vec<LogEntry>,
    /// Of the one that comes next.
    pub next: u64,
    pub counts: LogCounts,
}

/// What a rule that logs has decided about a flow: told once, and again when another verdict comes over the flow. Of a flow that
/// several such rules match there is one for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    /// From 1, without gaps.
    pub sequence: u64,
    /// Milliseconds since 1970-01-01 00:00 UTC.
    pub unix_ms: u64,
    /// The number of the interface whose list it is.
    pub interface: u32,
    /// None of an interface that is not there any more.
    pub interface_name: Option<String>,
    /// What the list is made of; none of a list that is not there any more.
    pub list: Option<String>,
    /// The rule's place in it, from 1.
    pub rule: u32,
    /// The rule in words.
    pub rule_text: Option<String>,
    /// What the rule does: `allow` or `deny`.
    pub action: String,
    /// What became of the flow: `allow` or `deny`, where another list may have refused what this rule allows.
    pub verdict: String,
    pub protocol: u8,
    /// Of the direction that began it; of ICMP queries the first port is the identifier, the second that and the type.
    pub source: SocketAddr,
    pub destination: SocketAddr,
    /// Of ICMP.
    pub icmp_type: Option<u8>,
}

/// The packet that is traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    #[serde(flatten)]
    pub flow: Flow,
    /// The name of the container's interface that it comes from, or that it goes to where it comes by a tunnel. Without it the
    /// one that has the address.
    pub interface: Option<String>,
    /// The name of the other node, or the address, that it comes from by a tunnel.
    pub peer: Option<String>,
}

/// What would happen to a packet, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The container's interface that it was taken to come from, or to go to where it comes by a tunnel.
    pub interface: String,
    /// Where the tunnel that it was taken to come by begins.
    pub peer: Option<Ipv4Addr>,
    pub steps: Vec<String>,
    /// `forward`, `drop` or `pass`.
    pub verdict: String,
    pub reason: Option<ReasonCount>,
    /// The IP packet as it leaves, where it does. The kernel fills in MAC addresses of a tunnel's packet: they are `-`.
    pub packet_out: Option<PacketOut>,
}
