//! What a balancer shall do: services, their backends, how they are scheduled and forwarded. Independent of any file
//! format; [`Config::validate`] is the only place that judges it.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use rig_sys::socket::Dscp;

use crate::error::ConfigError;

use super::encapsulation::{self, Encapsulation};
use super::one_packet;
use super::quic::{self, QuicIds};
use super::shape::{STATES, State, TICK_SHIFT, client_address, forward, scheduler, syn_proxy};

/// Everything that can be changed while the balancer runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    pub services: Vec<Service>,
    /// Of all services.
    pub access: AccessLists,
    pub policy: Policy,
    /// Local addresses that other balancers give out: connections that these tell of have them, and their packets are the balancer's.
    pub others_local: Vec<IpAddr>,
}

/// Who may begin connections: the longest prefix decides that an address is in. With an allow list, who is in none may not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessLists {
    pub allow: BTreeSet<IpNet>,
    pub deny: BTreeSet<IpNet>,
}

impl AccessLists {
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// A prefix that is both allowed and denied, or has bits behind its length.
    fn flaw(&self) -> Option<IpNet> {
        let wrong = |prefix: &&IpNet| self.deny.contains(prefix) || prefix.trunc() != **prefix;
        self.allow.iter().find(wrong).or_else(|| self.deny.iter().find(|prefix| prefix.trunc() != **prefix)).copied()
    }
}

/// What becomes of packets that the balancer does not handle, when they come to one of its addresses. Counted either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub fragments: FragmentPolicy,
    /// IPv4 options, and IPv6's hop-by-hop, routing and destination options.
    pub options: UnhandledPolicy,
    /// Packets of no connection that each CPU leaves to the kernel in a second: TCP for services, what comes for other ports, and
    /// ICMP errors, as many of each. `None`: no limit.
    pub strays: Option<NonZeroU32>,
}

/// 5 % of a CPU where the kernel takes 5 us to receive one and to answer, which is assumed.
const STRAYS: u32 = 10_000;

impl Default for Policy {
    fn default() -> Self {
        Self {
            fragments: FragmentPolicy::default(),
            options: UnhandledPolicy::default(),
            strays: NonZeroU32::new(STRAYS),
        }
    }
}

impl Policy {
    /// 0: no limit.
    pub(crate) fn strays_per_tick(self) -> u32 {
        let per_second = self.strays.map_or(0, |strays| u64::from(strays.get()));
        (per_second << TICK_SHIFT).div_ceil(1_000_000_000) as u32
    }
}

/// What becomes of fragments that come to one of the balancer's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FragmentPolicy {
    /// Those of UDP datagrams follow their first one, which alone has ports: it comes before them, and they within 2 s. Others are dropped, and
    /// those of services that schedule each datagram by itself.
    #[default]
    Forward,
    Drop,
    /// Leave them to the kernel.
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnhandledPolicy {
    #[default]
    Drop,
    /// Leave it to the kernel.
    Pass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// See [`rig_wire::protocol`].
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => rig_wire::protocol::TCP,
            Self::Udp => rig_wire::protocol::UDP,
        }
    }
}

/// One address and port that clients connect to. With port 0 it has each port of its protocol that no other service of the address has, and its
/// backends, which have none either, are spoken to at the one that the client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub protocol: Protocol,
    pub address: SocketAddr,
    pub scheduler: Scheduler,
    pub forward: ForwardingMethod,
    pub backends: Vec<Backend>,
    /// Connections, of all its backends, at which it gets no more.
    pub limit: Option<NonZeroU32>,
    pub timeouts: Timeouts,
    pub expire: ExpiryPolicy,
    /// Whether packets from the middle of a TCP connection that is not known begin one, as IPVS's `sloppy_tcp` has it:
    /// where other balancers may have had its first.
    pub sloppy_tcp: bool,
    pub reuse: PortReuse,
    pub syn_proxy: SynProxy,
    pub client_address: ClientAddress,
    /// Beside those of all services; of prefixes of one length these decide.
    pub access: AccessLists,
    pub limits: Limits,
    pub persistence: Option<Persistence>,
    /// Of UDP: each datagram is scheduled by itself, as IPVS's one-packet scheduling has it, and no connection is known of it; see
    /// bpf/balancer/once.h.
    pub one_packet: bool,
    /// What packets to its backends have for a DSCP, also outside of tunnels; `None`: what they come with. Answers keep theirs.
    pub dscp: Option<Dscp>,
    /// Of UDP: connection IDs of QUIC name backends, where they have a [`quic_id`](Backend::quic_id).
    pub quic: Option<QuicIds>,
}

impl Service {
    /// A round robin with default timeouts, and nothing else that is asked for.
    pub fn new(protocol: Protocol, address: SocketAddr, forward: ForwardingMethod, backends: Vec<Backend>) -> Self {
        Self {
            protocol,
            address,
            scheduler: Scheduler::RoundRobin,
            forward,
            backends,
            limit: None,
            timeouts: Timeouts::default(),
            expire: ExpiryPolicy::Never,
            sloppy_tcp: false,
            reuse: PortReuse::Reschedule,
            syn_proxy: SynProxy::Off,
            client_address: ClientAddress::Off,
            access: AccessLists::default(),
            limits: Limits::default(),
            persistence: None,
            one_packet: false,
            dscp: None,
            quic: None,
        }
    }
}

/// New connections of a source go to the backend that its last one went to: while there are some to it, and for a time. See
/// bpf/balancer/persistence.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Persistence {
    /// After the last connection has been forgotten: 1 s to 30 days.
    pub timeout: Duration,
    /// How many bits of an address are the source: 1 to 32, of IPv6 to 128.
    pub prefix: u8,
    /// Services with the same number, up to [`MAX_GROUP`], remember sources together: one that goes to a backend by one of them goes to the
    /// backend with this address by the others. `None`: by itself.
    pub group: Option<NonZeroU32>,
}

/// Highest number of a group of services.
pub const MAX_GROUP: u32 = 0x7fff_ffff;

impl Persistence {
    pub(crate) fn ticks(self) -> u32 {
        self.timeout.as_nanos().div_ceil(1 << TICK_SHIFT) as u32
    }

    fn flaw(self, is_ipv6: bool) -> Option<&'static str> {
        let most = if is_ipv6 { 128 } else { 32 };
        if !(Duration::from_secs(1)..=MAX_TIMEOUT).contains(&self.timeout) {
            Some("persistence is for 1 s to 30 days")
        } else if !(1..=most).contains(&self.prefix) {
            Some("the prefix of persistence has 1 to 32 bits, of IPv6 1 to 128")
        } else if self.group.is_some_and(|group| group.get() > MAX_GROUP) {
            Some("a group of persistence has a number up to 2147483647")
        } else {
            None
        }
    }
}

/// How many connections each source of a service has, how fast each begins new ones, and all together. A source is an address, or all
/// with the same first bits. What is refused is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Limits {
    /// Connections that are known at a time, closing ones too.
    pub source_limit: Option<NonZeroU32>,
    pub source_rate: Option<Rate>,
    /// How many bits of an address are the source: 1 to 32, of IPv6 to 128. `None`: 32, of IPv6 64.
    pub source_prefix: Option<u8>,
    /// Of the service.
    pub new_rate: Option<Rate>,
}

/// New connections a second, and how many may come at once: a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// 1 to [`MAX_RATE`].
    pub per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

/// Connections a second that a rate can be. It is kept as nanoseconds from one to the next, which makes it up to 1 % more.
pub const MAX_RATE: u32 = 10_000_000;

impl Rate {
    /// From one to the next, and how far ahead of that one may be; nanoseconds.
    pub(crate) fn gap_and_slack(self) -> (u64, u64) {
        let gap = 1_000_000_000 / u64::from(self.per_second.get());
        (gap, gap * u64::from(self.burst.get() - 1))
    }
}

impl Limits {
    pub(crate) fn of_sources(&self) -> bool {
        self.source_limit.is_some() || self.source_rate.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.of_sources() && self.new_rate.is_none()
    }

    /// Bits of an address of this family that are a source.
    pub fn source_bits(&self, is_ipv6: bool) -> u8 {
        self.source_prefix.unwrap_or(if is_ipv6 { 64 } else { 32 })
    }

    fn flaw(&self, is_ipv6: bool) -> Option<&'static str> {
        let too_fast = |rate: Option<Rate>| rate.is_some_and(|rate| rate.per_second.get() > MAX_RATE);
        let most = if is_ipv6 { 128 } else { 32 };
        if too_fast(self.source_rate) || too_fast(self.new_rate) {
            Some("a rate is at most 10,000,000 a second")
        } else if !(1..=most).contains(&self.source_bits(is_ipv6)) {
            Some("a source's prefix has 1 to 32 bits, of IPv6 1 to 128")
        } else {
            None
        }
    }
}

/// Whether first packets of TCP are answered by the balancer, so that a backend gets one, and a connection is made, when the client has
/// answered that; see bpf/balancer/syn_proxy.h. With FullNAT and NAT the balancer opens the connection itself; otherwise
/// something at the client's address has answered, and the client asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SynProxy {
    #[default]
    Off,
    /// While the service has so many connections that nobody has answered, or more.
    Auto {
        from: NonZeroU32,
    },
    Always,
}

impl SynProxy {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Off => syn_proxy::OFF,
            Self::Auto { .. } => syn_proxy::AUTO,
            Self::Always => syn_proxy::ALWAYS,
        }
    }

    /// 0 where it does not depend on how many there are.
    pub(crate) fn from(self) -> u32 {
        if let Self::Auto { from } = self { from.get() } else { 0 }
    }
}

/// How backends are told of clients' addresses, where they see local ones: with FullNAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClientAddress {
    /// Not at all.
    #[default]
    Off,
    /// Of TCP, by an option, see bpf/balancer/client_address.h.
    Toa,
    /// Of TCP, by the PROXY protocol's header, version 2, before the first byte that the client sends.
    ProxyV2,
    /// Of UDP, by a header before each datagram until the backend has answered.
    Uoa,
}

impl ClientAddress {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Off => client_address::HIDDEN,
            Self::Toa => client_address::TOA,
            Self::ProxyV2 => client_address::PROXY_V2,
            Self::Uoa => client_address::UOA,
        }
    }

    /// Whether services of this protocol can have it.
    pub fn fits(self, protocol: Protocol) -> bool {
        match self {
            Self::Off => true,
            Self::Toa | Self::ProxyV2 => protocol == Protocol::Tcp,
            Self::Uoa => protocol == Protocol::Udp,
        }
    }
}

/// Where a client's connection goes that begins with the address and port of one that is over, as long as that one is remembered.
/// It is counted and limited like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PortReuse {
    /// Where the scheduler sends it, as with IPVS's `conn_reuse_mode=1`.
    #[default]
    Reschedule,
    /// To the backend of the one before, unless that takes no new ones, as with `conn_reuse_mode=0`.
    Keep,
}

impl PortReuse {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Reschedule => 0,
            Self::Keep => 1,
        }
    }
}

/// When connections end with their backend, also while packets still come for them: within a round of sweeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExpiryPolicy {
    /// They go on until they are silent, as with IPVS's defaults.
    #[default]
    Never,
    /// When it is removed, as with IPVS's `expire_nodest_conn`.
    Removed,
    /// Also when its weight becomes 0, as IPVS's `expire_quiescent_template` has it of persistent clients.
    Quiescent,
}

impl ExpiryPolicy {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Removed => 1,
            Self::Quiescent => 2,
        }
    }

    pub(crate) fn of_number(number: u8) -> Self {
        match number {
            1 => Self::Removed,
            2 => Self::Quiescent,
            _ => Self::Never,
        }
    }

    /// Whether connections of a backend end.
    pub(crate) fn ends(self, removed: bool, weight: u32) -> bool {
        match self {
            Self::Never => false,
            Self::Removed => removed,
            Self::Quiescent => removed || weight == 0,
        }
    }
}

/// Which backend gets a new connection. Weights count where it is said; a backend of weight 0 keeps its connections
/// and gets no new ones with any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// One after the other.
    RoundRobin,
    /// One after the other, each as often as its weight says, interleaved.
    WeightedRoundRobin,
    /// The one with the fewest connections, an established one counting for 256.
    LeastConnections,
    /// The one with the fewest connections over its weight.
    WeightedLeastConnections,
    /// The one with the fewest over its weight, the new one counted, which is established.
    ShortestExpectedDelay,
    /// The same, and one without any connection before all others.
    NeverQueue,
    /// By the client's address, weighted; a change of backends moves few clients (Maglev's table).
    SourceHash,
    /// By the client's address and port, weighted (Eisenbud et al., "Maglev", NSDI 2016).
    Maglev,
}

/// How packets get to backends and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardingMethod {
    /// Source and destination are translated: answers come back to a local address.
    FullNat { local: Vec<IpAddr> },
    /// The destination is translated: backends route their answers through the balancer.
    Nat,
    /// Nothing but the link-layer address changes: backends are on a link with the balancer, own the service's address
    /// and answer directly. LVS calls it direct routing.
    Route,
    /// Packed into IP from a local address to the backend, which unpacks, owns the service's address and answers directly.
    Tunnel { local: Vec<IpAddr> },
}

impl ForwardingMethod {
    pub fn name(&self) -> &'static str {
        match self {
            Self::FullNat { .. } => "fullnat",
            Self::Nat => "nat",
            Self::Route => "route",
            Self::Tunnel { .. } => "tunnel",
        }
    }

    pub fn local(&self) -> &[IpAddr] {
        match self {
            Self::FullNat { local } | Self::Tunnel { local } => local,
            Self::Nat | Self::Route => &[],
        }
    }

    pub(crate) fn number(&self) -> u8 {
        match self {
            Self::FullNat { .. } => forward::FULL_NAT,
            Self::Nat => forward::NAT,
            Self::Route => forward::ROUTE,
            Self::Tunnel { .. } => forward::TUNNEL,
        }
    }

    fn keeps_port(&self) -> bool {
        matches!(self, Self::Route | Self::Tunnel { .. })
    }

    /// Whether backends' answers come back through the balancer, which has their headers say other addresses.
    pub(crate) fn translates(&self) -> bool {
        !self.keeps_port()
    }
}

impl Scheduler {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::RoundRobin | Self::WeightedRoundRobin => scheduler::ROUND_ROBIN,
            Self::LeastConnections | Self::WeightedLeastConnections => scheduler::LEAST,
            Self::ShortestExpectedDelay => scheduler::SHORTEST_DELAY,
            Self::NeverQueue => scheduler::NEVER_QUEUE,
            Self::SourceHash => scheduler::SOURCE_HASH,
            Self::Maglev => scheduler::FLOW_HASH,
        }
    }

    /// Whether it chooses by how many connections each backend has.
    pub fn counts_connections(self) -> bool {
        match self {
            Self::LeastConnections
            | Self::WeightedLeastConnections
            | Self::ShortestExpectedDelay
            | Self::NeverQueue => true,
            Self::RoundRobin | Self::WeightedRoundRobin | Self::SourceHash | Self::Maglev => false,
        }
    }

    /// The weight that counts.
    pub(crate) fn weight(self, weight: u32) -> u32 {
        match self {
            Self::RoundRobin | Self::LeastConnections => weight.min(1),
            _ => weight,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Backend {
    pub address: SocketAddr,
    /// 0 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Connections, established or not, at which it gets no more.
    pub limit: Option<NonZeroU32>,
    /// Where it has reached its limit it gets some again when it has fewer than so many; `None`: when it has fewer than the limit.
    pub lower_limit: Option<NonZeroU32>,
    /// Of a service that forwards by tunnels.
    pub encapsulation: Encapsulation,
    /// Its server ID in connection IDs of QUIC.
    pub quic_id: Option<u64>,
}

impl Backend {
    /// Without limits.
    pub fn new(address: SocketAddr, weight: u32) -> Self {
        Self { address, weight, limit: None, lower_limit: None, encapsulation: Encapsulation::default(), quic_id: None }
    }
}

/// After how long a silence a connection is forgotten, by its state: 1 s to 30 days, kept to 134 ms. The defaults are
/// DPVS's, but these are Linux's, of IPVS and nf_conntrack: one that is closed on one side may be silent for as long as its
/// other side thinks, 120 and 60 s; a reset may be forged, so that 10 s are left; and unanswered datagrams
/// are remembered for 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Picked up in the middle, nothing seen since.
    pub none: Duration,
    pub syn_received: Duration,
    pub established: Duration,
    pub fin_wait: Duration,
    pub close_wait: Duration,
    pub time_wait: Duration,
    pub close: Duration,
    pub udp_one_way: Duration,
    pub udp_normal: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            none: seconds(2),
            syn_received: seconds(30),
            established: seconds(90),
            fin_wait: seconds(120),
            close_wait: seconds(60),
            time_wait: seconds(7),
            close: seconds(10),
            udp_one_way: seconds(30),
            udp_normal: seconds(300),
        }
    }
}

impl Timeouts {
    fn named(&self) -> [(State, &'static str, Duration); 9] {
        [
            (State::None, "none", self.none),
            (State::SynReceived, "syn_received", self.syn_received),
            (State::Established, "established", self.established),
            (State::FinWait, "fin_wait", self.fin_wait),
            (State::CloseWait, "close_wait", self.close_wait),
            (State::TimeWait, "time_wait", self.time_wait),
            (State::Close, "close", self.close),
            (State::UdpOneWay, "udp_one_way", self.udp_one_way),
            (State::UdpNormal, "udp_normal", self.udp_normal),
        ]
    }

    pub fn of(&self, state: State) -> Duration {
        let named = self.named();
        named.iter().find(|(of, ..)| *of == state).map_or(Duration::ZERO, |(.., timeout)| *timeout)
    }

    /// By number of the state, rounded up to ticks.
    pub(crate) fn ticks(&self) -> [u32; STATES] {
        let mut ticks = [0; STATES];
        for (state, _, timeout) in self.named() {
            ticks[state as usize] = timeout.as_nanos().div_ceil(1 << TICK_SHIFT) as u32;
        }
        ticks
    }
}

const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// ipvsadm's largest weight.
pub const MAX_WEIGHT: u32 = 65_535;
/// Backends that one service can have.
pub const MAX_BACKENDS: usize = 1024;

impl Config {
    /// Whether it can be carried out, but for the room in the tables.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut services = HashSet::new();
        for service in &self.services {
            if !services.insert((service.protocol, service.address)) {
                return Err(ConfigError::DuplicateService { service: service.address });
            }
            service.validate()?;
        }
        if let Some(shared) = one_packet::shared_backend(self) {
            return Err(shared);
        }
        let lists = self.services.iter().map(|service| &service.access).chain([&self.access]);
        if let Some(prefix) = lists.filter_map(AccessLists::flaw).next() {
            return Err(ConfigError::Access { prefix });
        }
        let addresses: HashSet<IpAddr> = self.services.iter().map(|service| service.address.ip()).collect();
        for Service { address: service, forward, .. } in &self.services {
            if let Some(&address) = forward.local().iter().find(|local| addresses.contains(local)) {
                return Err(ConfigError::LocalIsService { service: *service, address });
            }
            if self.others_local.contains(&service.ip()) {
                return Err(ConfigError::LocalIsService { service: *service, address: service.ip() });
            }
        }
        let locals: HashSet<IpAddr> =
            self.services.iter().flat_map(|service| service.forward.local()).copied().collect();
        for Service { address: service, backends, .. } in &self.services {
            // Packets to it would be to this machine.
            if let Some(own) = backends.iter().map(|backend| backend.address.ip()).find(|own| locals.contains(own)) {
                return Err(ConfigError::LocalIsBackend { service: *service, address: own });
            }
        }
        encapsulation::source_in_use(self).map_or(Ok(()), Err)
    }
}

/// Whether services, backends and local addresses may have it.
pub fn is_usable(address: IpAddr) -> bool {
    let v4_in_v6 = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback() && !v4_in_v6
}

impl Service {
    pub fn is_of_any_port(&self) -> bool {
        self.address.port() == 0
    }

    /// Whether packets to a backend are translated between the families: bpf/balancer/family.h.
    pub(crate) fn translates_family(&self, backend: SocketAddr) -> bool {
        backend.is_ipv4() != self.address.is_ipv4()
    }

    /// Local addresses of the service's own family, and those of the other one, from which its backends of that are reached.
    pub(crate) fn locals_by_family(&self) -> [Vec<IpAddr>; 2] {
        let (own, others) = self.forward.local().iter().partition(|local| local.is_ipv4() == self.address.is_ipv4());
        [own, others]
    }

    /// A service of IPv6 with full-nat may have backends of IPv4, which are reached from local addresses of theirs.
    fn validate_families(&self) -> Result<(), ConfigError> {
        let service = self.address;
        let full_nat = matches!(self.forward, ForwardingMethod::FullNat { .. });
        let mut addresses =
            self.backends.iter().map(|backend| backend.address.ip()).chain(self.forward.local().iter().copied());
        let other = addresses.find(|address| address.is_ipv4() != service.is_ipv4());
        if let Some(address) = other.filter(|_| !full_nat || service.is_ipv4()) {
            return Err(ConfigError::Family { service, address });
        }
        let lacks = |backend: &IpAddr| !self.forward.local().iter().any(|local| local.is_ipv4() == backend.is_ipv4());
        match self.backends.iter().map(|backend| backend.address.ip()).find(|backend| full_nat && lacks(backend)) {
            Some(backend) => {
                let family = if backend.is_ipv4() { "IPv4" } else { "IPv6" };
                Err(ConfigError::NoLocalOfFamily { service, backend, family })
            }
            None => Ok(()),
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let service = self.address;
        let forward = self.forward.name();
        if self.is_of_any_port() && matches!(self.forward, ForwardingMethod::FullNat { .. }) {
            return Err(ConfigError::AnyPortFullNat { service });
        }
        let local = self.forward.local();
        if local.is_empty()
            && matches!(self.forward, ForwardingMethod::FullNat { .. } | ForwardingMethod::Tunnel { .. })
        {
            return Err(ConfigError::NoLocalAddress { service, forward });
        }
        if self.backends.len() > MAX_BACKENDS {
            return Err(ConfigError::Backends { service, count: self.backends.len(), max: MAX_BACKENDS });
        }
        let backends = self.backends.iter().map(|backend| backend.address.ip());
        for address in backends.chain([service.ip()]).chain(local.iter().copied()) {
            if !is_usable(address) {
                return Err(ConfigError::ServiceAddress { service, address });
            }
        }
        self.validate_families()?;
        let mut locals = HashSet::new();
        for address in local {
            if !locals.insert(*address) {
                return Err(ConfigError::DuplicateLocal { service, address: *address });
            }
        }
        let mut seen = HashSet::new();
        for Backend { address: backend, weight, limit, lower_limit, .. } in self.backends.iter().copied() {
            if lower_limit.is_some_and(|lower| limit.is_none_or(|limit| lower > limit)) {
                return Err(ConfigError::LowerLimit { service, backend });
            }
            if !seen.insert(backend) {
                return Err(ConfigError::DuplicateBackend { service, backend });
            }
            if self.is_of_any_port() && backend.port() != 0 {
                return Err(ConfigError::AnyPortBackend { service, backend });
            }
            if backend.port() == 0 && !self.is_of_any_port() {
                return Err(ConfigError::NoBackendPort { service, backend });
            }
            if self.forward.keeps_port() && backend.port() != service.port() {
                return Err(ConfigError::BackendPort { service, backend, forward });
            }
            if weight > MAX_WEIGHT {
                return Err(ConfigError::Weight { service, backend, weight, max: MAX_WEIGHT });
            }
        }
        if self.syn_proxy != SynProxy::Off && self.protocol != Protocol::Tcp {
            return Err(ConfigError::SynProxy { service });
        }
        let kept = || self.persistence.and_then(|persistence| persistence.flaw(service.is_ipv6()));
        let of_backends = || one_packet::flaw(self).or_else(|| encapsulation::flaw(self)).or_else(|| quic::flaw(self));
        let flaw = self.limits.flaw(service.is_ipv6()).or_else(kept).or_else(of_backends);
        if let Some(what) = flaw {
            return Err(ConfigError::Limits { service, what });
        }
        let full_nat = matches!(self.forward, ForwardingMethod::FullNat { .. });
        if self.client_address != ClientAddress::Off && !(full_nat && self.client_address.fits(self.protocol)) {
            return Err(ConfigError::ClientAddress { service });
        }
        if self.client_address != ClientAddress::Off && self.sloppy_tcp {
            return Err(ConfigError::PickedUpClient { service });
        }
        for (_, name, timeout) in self.timeouts.named() {
            if timeout < Duration::from_secs(1) || timeout > MAX_TIMEOUT {
                return Err(ConfigError::Timeout { service, name });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
