//! What is said between the running control plane and its clients.
//!
//! What is told to programs by `--json` is [`Status`] and [`ConnectionEntry`], so fields are added, never renamed.

mod capture;
mod health;
mod tunnel;

use std::net::{IpAddr, SocketAddr};

pub use self::capture::{CaptureOrder, CapturedBatch, NamedReason, PacketCopy};
pub use self::health::{BackendHealth, BackendHealthState, BackendOutlier, ServiceHealth};
pub use self::tunnel::Tunnel;
use ipnet::IpNet;
pub use rig_cli::packet::{Flow, PacketOut, Protocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Answered by [`Reply::Status`].
    Status,
    /// Answered by a [`Reply::Connections`] for each batch.
    Connections(Filter),
    /// Answered by [`Reply::Done`] when it is in force.
    Edit(RuleChange),
    /// Several in a row, all or none: what `--restore` reads. Answered by [`Reply::Done`].
    Edits(Vec<RuleChange>),
    /// Sets the counters of one service, or of all, to zero: listings count from here. Metrics go on.
    Zero(Option<ServiceKey>),
    /// Ends connections: all, or those of a service, of a backend. Answered by [`Reply::Ended`].
    Flush { service: Option<ServiceKey>, backend: Option<SocketAddr> },
    /// How often this control plane has read its file again. Answered by [`Reply::Count`].
    Reloads,
    /// The configuration in force as a file. Answered by [`Reply::Text`].
    Configuration,
    /// The lists of who may begin connections. Answered by a [`Reply::Access`] for each batch.
    Access,
    /// Sources with the most connections. Answered by [`Reply::Sources`].
    Sources(SourceFilter),
    /// What would happen to a packet; nothing changes by it. Answered by [`Reply::Trace`].
    Trace(TraceRequest),
    /// The balancer says that it is not to be sent packets, and goes on with those that come. Answered by [`Reply::Done`].
    Withdraw,
    /// It says again that it is to be sent packets. Answered by [`Reply::Done`].
    Announce,
    /// How many connections have had a packet within so many milliseconds. Answered by [`Reply::Count`].
    Busy { within_ms: u64 },
    /// Packets of chosen reasons. Answered by a [`Reply::Captured`] for some of them, until the client goes.
    Capture(CaptureOrder),
    /// The control plane ends; with `detach`, packets are no longer balanced although the balancer was to persist.
    Stop { detach: bool },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    Status(Box<Status>),
    Connections(Vec<ConnectionEntry>),
    /// What was done, where there is something to say.
    Done(Vec<String>),
    /// How many connections were ended.
    Ended(u64),
    Count(u64),
    Text(String),
    Trace(Box<Trace>),
    Access(Vec<AccessEntry>),
    Sources(SourceList),
    Captured(CapturedBatch),
}

/// Which sources are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFilter {
    pub service: Option<ServiceKey>,
    /// No more of them.
    pub most: u32,
}

/// Those with the most connections first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceList {
    pub sources: Vec<SourceEntry>,
    /// Of very many sources, some with up to so many connections may not be listed.
    pub fewer_may_be_missing: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceEntry {
    pub service: ServiceKey,
    /// A prefix, as long as the service's sources have it: by default one address of IPv4, and 64 bits of IPv6.
    pub source: String,
    /// In the table, whether they are counted for a limit or not.
    pub connections: u64,
    pub source_limit: Option<u32>,
}

/// A prefix of a list, and how many first packets it has decided on since it came into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessEntry {
    /// `None`: of all services.
    pub service: Option<ServiceKey>,
    /// `None`: those that are in no prefix, which an allow list refuses, IPv4 and IPv6.
    pub prefix: Option<String>,
    pub allows: bool,
    pub packets: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ServiceKey {
    pub protocol: Protocol,
    pub address: SocketAddr,
}

/// How one rule changes the configuration in force, as ipvsadm's `-A -E -D -a -e -d -C`, and DPVS's `-P -Q` for local
/// addresses. What is `None` stays as it is, or is the default of something new.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleChange {
    AddService {
        service: ServiceKey,
        options: ServiceOptions,
    },
    EditService {
        service: ServiceKey,
        options: ServiceOptions,
    },
    DeleteService {
        service: ServiceKey,
    },
    AddBackend {
        service: ServiceKey,
        backend: SocketAddr,
        options: BackendOptions,
    },
    EditBackend {
        service: ServiceKey,
        backend: SocketAddr,
        options: BackendOptions,
    },
    DeleteBackend {
        service: ServiceKey,
        backend: SocketAddr,
    },
    AddLocal {
        service: ServiceKey,
        address: IpAddr,
    },
    DeleteLocal {
        service: ServiceKey,
        address: IpAddr,
    },
    /// ipvsadm's `--set`, for services without timeouts of their own; seconds, 0 leaves one as it is.
    Timeouts {
        tcp: u32,
        tcp_fin: u32,
        udp: u32,
    },
    /// A prefix into the list of who may begin connections of a service, or without one of any; into the one of who may not; out of
    /// either.
    Allow {
        service: Option<ServiceKey>,
        prefix: IpNet,
    },
    Deny {
        service: Option<ServiceKey>,
        prefix: IpNet,
    },
    RemovePrefix {
        service: Option<ServiceKey>,
        prefix: IpNet,
    },
    Clear,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceOptions {
    /// By ipvsadm's names: `rr`, `wrr`, `lc`, `wlc`, `sed`, `nq`, `sh`, `mh`.
    pub scheduler: Option<String>,
    /// Of established connections (TCP) or of those answered (UDP), seconds.
    pub timeout: Option<u32>,
    /// Connections, of all its backends, at which it gets no more; 0: no limit.
    #[serde(default)]
    pub limit: Option<u32>,
    /// When connections end with their backend: `never`, `removed`, `quiescent`.
    #[serde(default)]
    pub expire: Option<String>,
    /// Whether packets from the middle of an unknown connection begin one.
    #[serde(default)]
    pub sloppy_tcp: Option<bool>,
    /// Where a client's next connection from the address and port of one that is over goes: `reschedule`, `keep`.
    #[serde(default)]
    pub reuse: Option<String>,
    /// Whether the SYN proxy answers its SYNs: `auto`, `always`, `off`; or as DPVS has it `enable`, `disable`.
    #[serde(default)]
    pub syn_proxy: Option<String>,
    /// Those that change; 0 for none.
    #[serde(default)]
    pub limits: ServiceLimits,
    /// What changes; a time of 0 takes it away.
    #[serde(default)]
    pub persistence: ServicePersistence,
    /// Whether each datagram is scheduled by itself.
    #[serde(default)]
    pub one_packet: Option<bool>,
    /// What packets to its backends have for a DSCP: a name, a number, or `keep`.
    #[serde(default)]
    pub dscp: Option<String>,
    /// How connection IDs of QUIC name backends; with IDs of 0 bytes they do not.
    #[serde(default)]
    pub quic: Option<Quic>,
    /// A prefix, or `off`.
    #[serde(default)]
    pub tunnel_source: Option<String>,
}

/// Connection IDs of QUIC in the plaintext form of draft-ietf-quic-load-balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quic {
    /// Its number, in the first 3 bits.
    pub configuration: u8,
    /// Bytes of the server's ID, behind the first one.
    pub id_length: u8,
}

/// Whether new connections of a source go where its last one went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServicePersistence {
    /// For so many seconds after its last connection has been forgotten; `null`: not at all.
    pub timeout: Option<u32>,
    /// How many bits of an address are the source: of IPv4, and of IPv6; `null`: all.
    pub prefix4: Option<u32>,
    pub prefix6: Option<u32>,
    /// Services with the same number remember sources together; `null`: by itself.
    pub group: Option<u32>,
}

/// How many connections each source of a service has, how fast each begins new ones, and all together. `null`: no limit, or as by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServiceLimits {
    /// Connections that a source has at a time.
    pub source_limit: Option<u32>,
    /// New connections of a source in a second, and how many may come at once.
    pub source_rate: Option<u32>,
    pub source_burst: Option<u32>,
    /// How many bits of an address are the source: of IPv4, and of IPv6.
    pub source_prefix4: Option<u32>,
    pub source_prefix6: Option<u32>,
    /// New connections of the service in a second, and how many may come at once.
    pub new_rate: Option<u32>,
    pub new_burst: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendOptions {
    /// A service's backends are forwarded to in one way, which its first backend decides.
    pub forward: Option<ForwardingMethod>,
    pub weight: Option<u32>,
    /// Connections at which it gets no more; 0: no limit.
    pub limit: Option<u32>,
    /// Connections below which one that has reached its limit gets some again; 0: its limit.
    #[serde(default)]
    pub lower_limit: Option<u32>,
    /// Of a service that forwards by tunnels.
    #[serde(default)]
    pub tunnel: Option<Tunnel>,
    /// Its server ID in connection IDs of QUIC: a number, or `off`.
    #[serde(default)]
    pub quic_id: Option<String>,
    /// It gets no new ones, and those that are left after so many milliseconds end.
    #[serde(default)]
    pub drain_ms: Option<u64>,
    /// What the service gets as its local addresses if it has none and forwards in a way that needs some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardingMethod {
    FullNat,
    Nat,
    Route,
    Tunnel,
}

/// The balancer as it is now. Counters of services are since the beginning, or since they were last set to zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    pub netrig_version: String,
    pub name: String,
    /// Of the control plane.
    pub process: u32,
    /// Since the control plane was started, milliseconds.
    pub up_ms: u64,
    /// Whether the balancer stays when the control plane ends.
    pub persist: bool,
    /// The configuration file, where there is one.
    pub file: Option<String>,
    pub devices: Vec<DeviceStatus>,
    /// CPUs that run the program; none where it is any CPU that takes packets from a device.
    pub workers: Vec<u32>,
    pub table: TableStatus,
    /// Of services without timeouts of their own.
    pub timeouts: DefaultTimeouts,
    pub services: Vec<ServiceEntry>,
    /// Packets dropped, by every reason there is.
    pub drops: Vec<ReasonCount>,
    /// Packets left to the kernel, by every reason there is.
    pub passes: Vec<ReasonCount>,
    /// Over what span rates were taken, milliseconds; 0 when there is none yet.
    pub rate_span_ms: u64,
    /// How connections are shared with other balancers; `null` where they are not.
    #[serde(default)]
    pub sync: Option<SyncStatus>,
    /// What is announced by BGP; `null` where nothing is to be.
    #[serde(default)]
    pub bgp: Option<BgpStatus>,
    /// Whether it was told by `netrig lb withdraw` that it is not to be sent packets.
    #[serde(default)]
    pub withdrawn: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BgpStatus {
    /// Where the speaker is asked.
    pub speaker: String,
    /// Its autonomous system, while it is there.
    pub autonomous_system: Option<u32>,
    pub identifier: Option<String>,
    /// Why it is not there.
    pub trouble: Option<String>,
    /// Addresses that it announces for this balancer, as it was last told; while it is not there it may not.
    pub announced: Vec<IpAddr>,
}

/// Connections shared with other balancers. Counts are since the control plane was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncStatus {
    /// Where this balancer hears its peers.
    pub address: SocketAddr,
    /// From one look through the table to the next, milliseconds.
    pub interval_ms: u64,
    /// How old connections are before peers are told of them, milliseconds.
    pub after_ms: u64,
    /// How often peers are told of all, milliseconds.
    pub full_ms: u64,
    /// Connections in the table that have packets here, as the last look through it found them.
    pub own: u64,
    /// Those that peers have told of, and that have had no packet here since.
    pub others: u64,
    /// Those that the SYN proxy has opened, which are not shared.
    pub left_out: u64,
    /// How old what peers know of this balancer's connections is: since the last whole look through the table began. `null`
    /// before the first.
    pub lag_ms: Option<u64>,
    /// How long that took.
    pub round_ms: Option<u64>,
    /// Datagrams that were dropped, by the reasons for which any were.
    pub refused: Vec<CountByReason>,
    /// Why connections are not shared, where something is in the way.
    pub trouble: Option<String>,
    /// Peers that have not yet told of all their connections since this balancer began with none: it is not ready until they have,
    /// or are not there, at most for a minute.
    pub awaited: Vec<SocketAddr>,
    pub peers: Vec<SyncPeer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncPeer {
    pub address: SocketAddr,
    pub state: PeerState,
    /// Since its last message, milliseconds.
    pub heard_ms: Option<u64>,
    pub sent_messages: u64,
    /// Of UDP's payload.
    pub sent_bytes: u64,
    pub sent_records: u64,
    /// Messages that the kernel did not take.
    pub unsent_messages: u64,
    /// How often it was told of all connections.
    pub passes: u64,
    pub received_messages: u64,
    pub received_bytes: u64,
    /// All of the following.
    pub received_records: u64,
    /// Connections that are there since.
    pub created: u64,
    /// Those that were there, and whose state or time is another one since.
    pub updated: u64,
    /// Those that were there, and no earlier.
    pub kept: u64,
    /// Those that were not taken over, by the reasons for which any were not.
    pub refused: Vec<CountByReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeerState {
    /// It has never been heard.
    Unknown,
    Up,
    /// It has not been heard for 5 s.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountByReason {
    /// Stable, `[a-z_]`.
    pub reason: String,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStatus {
    pub name: String,
    /// `native`, `generic`, or `absent` while the balancer is not on it.
    pub mode: String,
    pub queues: u32,
    /// How packets come to the workers' CPUs, or why the balancer is not on it.
    pub placement: String,
    /// VLAN devices over it, whose frames come and leave by it.
    #[serde(default)]
    pub vlans: Vec<DeviceVlan>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceVlan {
    /// The VLAN device.
    pub name: String,
    /// The tag of its frames.
    pub id: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TableStatus {
    pub capacity: u64,
    /// Connections in it, as the last sweep counted them.
    pub connections: u64,
    /// Of all maps, bytes.
    pub memory_bytes: u64,
    /// Duration of the last round of sweeping, milliseconds.
    pub sweep_ms: u64,
}

/// What ipvsadm's `--set` sets, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefaultTimeouts {
    /// Of established TCP connections.
    pub tcp: u32,
    /// Of TCP connections after a FIN.
    pub tcp_fin: u32,
    /// Of UDP that was answered.
    pub udp: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceEntry {
    #[serde(flatten)]
    pub key: ServiceKey,
    pub scheduler: String,
    pub forward: ForwardingMethod,
    pub local: Vec<IpAddr>,
    /// Of established connections or of UDP that was answered, seconds, where the service has its own.
    pub timeout: Option<u32>,
    /// Connections, of all its backends, at which it gets no more.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The same where it was said of this service; 0: no limit.
    #[serde(default)]
    pub limit_said: Option<u32>,
    /// When connections end with their backend: `never`, `removed`, `quiescent`.
    #[serde(default)]
    pub expire: String,
    /// Whether packets from the middle of an unknown connection begin one.
    #[serde(default)]
    pub sloppy_tcp: bool,
    /// Where a client's next connection from the address and port of one that is over goes: `reschedule`, `keep`.
    #[serde(default)]
    pub reuse: String,
    /// Whether the SYN proxy answers first packets of its connections: `auto`, `always`, `off`.
    #[serde(default)]
    pub syn_proxy: String,
    /// The same where it was said of this service.
    #[serde(default)]
    pub syn_proxy_said: Option<String>,
    /// Whether it has done so within the last 10 s.
    #[serde(default)]
    pub syn_proxy_answers: bool,
    /// How backends are told of clients' addresses: `off`, `toa`, `proxy_v2`, `uoa`.
    #[serde(default)]
    pub client_address: String,
    /// Connections that nobody has answered; counted with `auto` alone.
    #[serde(default)]
    pub unanswered: u64,
    #[serde(default)]
    pub limits: ServiceLimits,
    /// Connections that have begun without their source's limits, as all counters of sources were in use (`sources` of `[room]`).
    #[serde(default)]
    pub unlimited: u64,
    #[serde(default)]
    pub persistence: ServicePersistence,
    /// Whether each datagram is scheduled by itself, without a connection (UDP).
    #[serde(default)]
    pub one_packet: bool,
    /// What packets to its backends have for a DSCP: `keep`, what they come with; or one by its name, or its number where it has none.
    #[serde(default)]
    pub dscp: String,
    /// How connection IDs of QUIC name its backends; `null` where they do not.
    #[serde(default)]
    pub quic: Option<Quic>,
    /// The prefix that sources of its tunnels' outer packets are from, in place of local addresses.
    #[serde(default)]
    pub tunnel_source: Option<String>,
    /// False for one that was removed and still has connections.
    pub open: bool,
    /// What it has to be given to be in force, e.g. `a local address`; until then its packets are not balanced.
    pub lacks: Option<String>,
    pub counters: Counters,
    /// The same since the balancer began, whatever was set to zero: what metrics say.
    pub total: Counters,
    pub rates: Rates,
    /// New connections that were refused since the balancer began, by the reasons for which any were.
    #[serde(default)]
    pub refused: Vec<RefusedPackets>,
    /// What its check and its outlier detection come to; `null` without both.
    #[serde(default)]
    pub health: Option<ServiceHealth>,
    pub backends: Vec<BackendEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedPackets {
    /// The key of a reason for drops.
    pub reason: String,
    /// Their packets: who is refused may try again.
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendEntry {
    pub address: SocketAddr,
    pub weight: u32,
    /// Connections at which it gets no more.
    pub limit: Option<u32>,
    /// Connections below which one that has reached its limit gets some again, where that is not the limit itself.
    #[serde(default)]
    pub lower_limit: Option<u32>,
    /// How packets are packed for it; `null` where its service does not forward by tunnels.
    #[serde(default)]
    pub tunnel: Option<Tunnel>,
    /// Its server ID in connection IDs of QUIC; `null` where it has none.
    #[serde(default)]
    pub quic_id: Option<u64>,
    /// True for one that was removed and still has connections.
    pub leaving: bool,
    /// Until those of its connections that are left are ended, milliseconds, where it drains with a deadline.
    #[serde(default)]
    pub drain_ms: Option<u64>,
    /// Established TCP connections.
    pub active: u32,
    /// All others.
    pub inactive: u32,
    /// Sources that are kept at it by its service's persistence.
    #[serde(default)]
    pub persistent: u32,
    pub counters: Counters,
    /// As the service's.
    pub total: Counters,
    pub rates: Rates,
    /// Whether packets to it can go on from the balancer: looked at each second, without waiting for one. `null` until then.
    #[serde(default)]
    pub next_hop: Option<NextHop>,
    /// What its check says, and its outlier detection; `null` where its service has neither.
    #[serde(default)]
    pub health: Option<BackendHealth>,
}

impl BackendEntry {
    /// The weight that new connections are distributed by.
    pub fn weight_in_force(&self) -> u32 {
        self.health.as_ref().map_or(self.weight, |health| health.weight_in_force)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextHop {
    /// The worst of its hops'.
    pub state: NextHopState,
    /// For how long the state has been that, milliseconds; since the control plane began at most.
    pub state_ms: u64,
    /// Several where the route has several. Where the route went with its device, those that it had.
    pub hops: Vec<Hop>,
}

/// Packets for a backend whose state is not `ok` are dropped, where the route has several hops some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NextHopState {
    /// The kernel knows its link-layer address.
    Ok,
    /// It has not answered yet, or no more.
    NoNeighbor,
    /// Its device is set down, without carrier or gone.
    DeviceDown,
    /// Its device is a VLAN device whose tag the balancer does not put into frames: one of two (QinQ), or one of 802.1ad.
    NotCarried,
    /// The backend's address is one of the balancer's machine.
    Local,
    /// The kernel has no route to the backend.
    NoRoute,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    pub address: IpAddr,
    /// The network device.
    pub device: String,
    /// Of a VLAN device.
    #[serde(default)]
    pub vlan: Option<VlanTag>,
    pub state: NextHopState,
}

/// Where a VLAN device's frames leave, and with which tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VlanTag {
    /// The device that it is on.
    pub parent: String,
    pub id: u16,
}

impl Hop {
    /// Its device, with the tag of a VLAN device.
    pub fn by(&self) -> String {
        match &self.vlan {
            Some(VlanTag { parent, id }) => format!("{} (VLAN {id} of {parent})", self.device),
            None => self.device.clone(),
        }
    }
}

/// In: from clients. Out: from backends. Bytes are those of IP packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    pub connections: u64,
    pub in_packets: u64,
    pub out_packets: u64,
    pub in_bytes: u64,
    pub out_bytes: u64,
    /// Resets from backends in place of an answer to a client's SYN.
    #[serde(default)]
    pub refused: u64,
}

/// The same a second, over [`Status::rate_span_ms`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    pub connections: f64,
    pub in_packets: f64,
    pub out_packets: f64,
    pub in_bytes: f64,
    pub out_bytes: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReasonCount {
    pub number: u32,
    /// Stable, `[a-z_]`.
    pub key: String,
    pub text: String,
    pub remedy: String,
    pub packets: u64,
    /// A second, rounded.
    pub rate: u64,
}

/// Which connections a listing shall have; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    pub service: Option<ServiceKey>,
    pub client: Option<IpAddr>,
    pub backend: Option<SocketAddr>,
    /// The listing ends with this many.
    pub most: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionEntry {
    pub protocol: Protocol,
    /// As ipvsadm names it, e.g. `ESTABLISHED`.
    pub state: String,
    /// Until it is forgotten if no packet comes, seconds.
    pub expires: u32,
    pub client: SocketAddr,
    pub service: SocketAddr,
    /// What backends see as the client, with FullNAT.
    pub local: Option<SocketAddr>,
    pub backend: SocketAddr,
}

/// A packet, and the device that it is taken to come in by; the first that is there where none is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    #[serde(flatten)]
    pub flow: Flow,
    #[serde(default)]
    pub device: Option<String>,
    /// It is one of QUIC, with a short header, and its connection ID has this server ID.
    #[serde(default)]
    pub quic_id: Option<u64>,
}

/// What would happen to a packet, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The interface that it was taken to come in by.
    pub device: String,
    pub steps: Vec<String>,
    /// `forward`, `drop` or `pass`.
    pub verdict: String,
    pub reason: Option<ReasonCount>,
    /// The IP packet as it leaves, where it does.
    pub packet_out: Option<PacketOut>,
}
