//! What is said between a running router and who asks it: a JSON line each way, except that a listing of flows is many
//! lines.
//!
//! What is told to programs by `--json` are parts of it, so fields are added, never renamed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use rig_cli::packet::{Flow, PacketOut};
use rig_datapath::vrouter::Reason;
use rig_wire::ethernet::Mac;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Answered by [`Reply::Status`].
    Status,
    /// Routes of all tables, or of the VRF with this number. Answered by [`Reply::Routes`].
    Routes(Option<u32>),
    /// The route of a VRF that something takes. Answered by [`Reply::Routes`] with a table that has it alone.
    Route { vrf: u32, to: Wanted },
    /// Answered by a [`Reply::Flows`] for each batch, the last of which says so.
    Flows,
    /// Those that a filter takes. Answered as [`Request::Flows`].
    FlowsOf(FlowFilter),
    /// What would happen to a packet; nothing changes by it. Answered by [`Reply::Trace`].
    Trace(Traced),
    /// Reads the file again. Answered by [`Reply::Done`], which says what was noticed.
    Reload,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Status(Box<Status>),
    Routes(Vec<Table>),
    Flows {
        flows: Vec<FlowEntry>,
        last: bool,
    },
    Trace(Box<Trace>),
    /// What was done, where there is something to say.
    Done(Vec<String>),
    /// Nothing was done.
    Refused {
        what: String,
        hint: Option<String>,
    },
}

/// What a route is looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Wanted {
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
    pub ends: Vec<End>,
    pub protocol: Option<u8>,
    /// The number of the VRF that it comes from.
    pub vrf: Option<u32>,
}

/// One end of a flow, as far as it is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
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
    /// Of the container.
    pub mac: String,
    pub addresses: Vec<IpAddr>,
    pub label: u32,
    pub next_hop: Option<u32>,
    /// Whether its packets are held against rules, and are of flows.
    pub policy: bool,
    /// Connections that it may have at a time; none for no limit but the table's.
    pub most_flows: Option<u32>,
    pub security_groups: Vec<String>,
    /// That are remembered, both directions of each as one.
    pub connections: u64,
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
    /// Reasons for which packets were dropped.
    pub drops: Vec<ReasonCount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextHopEntry {
    pub number: u32,
    /// Routes, labels, network identifiers and next hops that lead to it.
    pub references: u32,
    pub leads: Leads,
}

/// Where packets of a next hop go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Leads {
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
    Ecmp(Vec<Way>),
    /// All members of a network get a copy but who sent it.
    Flood {
        /// Interfaces of this node first, then tunnels.
        ways: Vec<Way>,
        /// Whether frames to MAC addresses that nobody has go there, too.
        unknown_unicast: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Way {
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
    pub way: Way,
    /// Of the interface of this node whose address it is.
    pub mac: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MacEntry {
    pub mac: String,
    #[serde(flatten)]
    pub way: Way,
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
    pub way: Way,
    /// Whether its first packet began the connection.
    pub forward: bool,
    /// Rules forbid it since they have changed.
    pub denied: bool,
    /// What has been seen of TCP.
    pub tcp: Vec<TcpSeen>,
    /// Source port of the tunnel's packets; 0 for none.
    pub tunnel_port: u16,
    /// Since its last packet.
    pub idle_seconds: f64,
}

/// Of both directions of a TCP connection, as the direction that began it has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TcpSeen {
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
}

impl ReasonCount {
    pub(crate) fn of(reason: Reason, packets: u64) -> Self {
        Self {
            number: reason.number(),
            reason: reason.key().to_owned(),
            text: reason.text().to_owned(),
            remedy: reason.remedy().to_owned(),
            packets,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedEntry {
    /// How long ago.
    pub seconds_ago: f64,
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

/// The packet that is traced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
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
