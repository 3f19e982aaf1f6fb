//! The values in the balancer's maps, as bpf/balancer/shape.h has them. What each field means is said there.

use std::net::SocketAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes};

pub(crate) use crate::plain::Address;
use crate::plain::plain;

use super::hash::KEYS;

/// States of a connection; numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Picked up in the middle, nothing seen since.
    None = 1,
    SynReceived = 2,
    Established = 3,
    /// The backend has closed its side; where its packets do not pass here: the client has.
    FinWait = 4,
    /// The client has closed its side.
    CloseWait = 5,
    TimeWait = 6,
    Close = 7,
    /// Datagrams from the client alone so far.
    UdpOneWay = 8,
    UdpNormal = 9,
}

impl State {
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::SynReceived,
        Self::Established,
        Self::FinWait,
        Self::CloseWait,
        Self::TimeWait,
        Self::Close,
        Self::UdpOneWay,
        Self::UdpNormal,
    ];

    /// ipvsadm's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::SynReceived => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::UdpOneWay | Self::UdpNormal => "UDP",
        }
    }

    pub(crate) fn of_live(live: u64) -> Option<Self> {
        let number = (live >> 32) as u8;
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }
}

/// Values of `forward`.
pub(crate) mod forward {
    pub(crate) const FULL_NAT: u8 = 1;
    pub(crate) const NAT: u8 = 2;
    pub(crate) const ROUTE: u8 = 3;
    pub(crate) const TUNNEL: u8 = 4;
}

/// Values of `encapsulation`.
pub(crate) mod encapsulation {
    pub(crate) const IP_IN_IP: u8 = 0;
    pub(crate) const GUE: u8 = 1;
    pub(crate) const GRE: u8 = 2;
}

/// Values of `syn_proxy`.
pub(crate) mod syn_proxy {
    pub(crate) const OFF: u8 = 0;
    pub(crate) const AUTO: u8 = 1;
    pub(crate) const ALWAYS: u8 = 2;
}

/// Values of `client_address`.
pub(crate) mod client_address {
    pub(crate) const HIDDEN: u8 = 0;
    pub(crate) const TOA: u8 = 1;
    pub(crate) const PROXY_V2: u8 = 2;
    pub(crate) const UOA: u8 = 3;
}

/// Values of `scheduler`.
pub(crate) mod scheduler {
    pub(crate) const ROUND_ROBIN: u8 = 1;
    pub(crate) const LEAST: u8 = 2;
    pub(crate) const SOURCE_HASH: u8 = 3;
    pub(crate) const FLOW_HASH: u8 = 4;
    pub(crate) const SHORTEST_DELAY: u8 = 5;
    pub(crate) const NEVER_QUEUE: u8 = 6;
}

/// Bits of `Service::flags`.
pub(crate) mod service_flag {
    pub(crate) const SLOPPY_TCP: u8 = 1;
    pub(crate) const ONE_PACKET: u8 = 2;
}

/// In `Service::dscp`, where packets to backends get one.
pub(crate) const SETS_DSCP: u8 = 1;

/// Bits of `Service::access`, and of lists of IPv6 in the trie.
pub(crate) mod access {
    pub(crate) const OWN: u8 = 1;
    pub(crate) const OF_ALL: u8 = 2;
    pub(crate) const LIMITED: u8 = 4;
    pub(crate) const V6: u32 = 0x10000;
}

/// Values of the map `owned`; see `enum ownership`.
pub(crate) mod ownership {
    pub(crate) const TO: u32 = 1;
    pub(crate) const FROM: u32 = 2;
}

/// Values of `Routing::key`: the packet fields that routes depend on.
pub(crate) mod route_key {
    pub(crate) const BY_BACKEND: u16 = 0;
    pub(crate) const BY_SOURCE: u16 = 1;
    pub(crate) const BY_PORTS: u16 = 2;
}

/// Of tables that are kept across restarts: one more with each change of a layout in bpf/balancer/shape.h, or of what a field means,
/// after which no balancer goes on with tables of before.
pub(crate) const SHAPE_VERSION: u32 = 15;

/// In the number of a group of services that share templates.
pub(crate) const GROUP_BIT: u32 = 0x8000_0000;

/// In the keys of backends by address and port, in place of a service's number.
pub(crate) const BY_SOURCE_PORT: u32 = 0x10000;
pub(crate) const BY_QUIC: u32 = 0x20000;
pub(crate) const QUIC_HI: u64 = 0xff00_0000_0000_0000;

/// In place of a service's number in a sweep.
pub(crate) const ANY_SERVICE: u32 = u32::MAX;

/// In place of a worker's CPU: its packets are handled where they have come in.
pub(crate) const AT_ONCE: u32 = u32::MAX;
pub(crate) const MAX_WORKERS: usize = 128;

/// In `Connection::counter`: the SYN proxy has opened it.
pub(crate) const SPLICED: u16 = 0x8000;
/// The same: its backend has not shown yet that it knows the client's address.
pub(crate) const TELLS: u16 = 0x0200;
/// The same: the PROXY protocol's header is before what its client sends.
pub(crate) const PREFIXED: u16 = 0x0100;
pub(crate) const STATES: usize = 10;
/// Of `Limits::length`; the first stands for none.
pub(crate) const SOURCE_LENGTHS: usize = 8;
/// Counters of a set, which is an element of the map `sources`.
pub(crate) const SOURCE_WAYS: usize = 4;
pub(crate) type SourceSet = [Source; SOURCE_WAYS];
/// Of cookies, whose keys there are.
pub(crate) const EPOCHS: usize = 4;
/// Records of a set, which is an element of the map `connections`.
pub(crate) const WAYS: usize = 4;
pub(crate) type Set = [Connection; WAYS];
pub(crate) const MAX_COUNTERS: usize = 64;
/// Bits of the kernel's monotonic clock in nanoseconds that a tick leaves out: 134 ms.
/// In a key of `vlans`, with the number of a tag.
pub(crate) const WITH_TAG: u32 = 0x1_0000;
/// Entries of `vlans`.
pub(crate) const MOST_VLANS: usize = 8192;
pub(crate) const TICK_SHIFT: u32 = 27;
/// Sequences of local ports; backends may share one.
pub(crate) const PORT_SEQUENCES: u32 = 4096;
/// Ports of a block.
pub(crate) const PORT_BLOCK: u32 = 64;

plain! {
    pub(crate) struct Connection: 64 {
        live: u64,
        client: Address,
        client_port: u16,
        local_port: u16,
        service: u16,
        local: u16,
        backend: u16,
        counter: u16,
        delta: u16,
        address_delta: u16,
        route: u64,
        route_ifindex: u32,
        route_source: [u8; 6],
        route_mtu: u16,
        tag: u32,
    }

    pub(crate) struct ConnectionCount: 64 {
        used: u64,
        pad: [u64; 7],
    }

    pub(crate) struct Pool: 24 {
        fresh: u64,
        taken: u64,
        given: u64,
    }

    pub(crate) struct ServiceKey: 24 {
        address: Address,
        port: u16,
        protocol: u8,
        pad: [u8; 5],
    }

    pub(crate) struct Service: 112 {
        address: Address,
        port: u16,
        protocol: u8,
        forward: u8,
        scheduler: u8,
        flags: u8,
        dscp: u8,
        reuse: u8,
        schedule: u64,
        locals: u64,
        timeout: [u32; STATES],
        limit: u32,
        proxy_from: u32,
        syn_proxy: u8,
        access: u8,
        client_address: u8,
        persistent_bits: u8,
        persistence: u32,
        locals_v4: u64,
        expire: u8,
        quic_length: u8,
        quic_configuration: u8,
        pad: [u8; 5],
    }

    pub(crate) struct TemplateKey: 24 {
        source: Address,
        service: u32,
        pad: u32,
    }

    pub(crate) struct Template: 8 {
        until: u32,
        backend: u32,
    }

    pub(crate) struct FragmentKey: 40 {
        source: Address,
        destination: Address,
        id: u32,
        pad: u32,
    }

    pub(crate) struct FirstFragment: 8 {
        source_port: u16,
        destination_port: u16,
        tick: u32,
    }

    pub(crate) struct AccessKey: 24 {
        bits: u32,
        list: u32,
        address: Address,
    }

    pub(crate) struct AccessRule: 8 {
        number: u32,
        allows: u16,
        length: u16,
    }

    pub(crate) struct Limits: 56 {
        gap: u64,
        slack: u64,
        source_gap: u64,
        source_slack: u64,
        source_limit: u32,
        current: u32,
        length: [u8; SOURCE_LENGTHS],
        group: u32,
        pad: u32,
    }

    pub(crate) struct Source: 16 {
        word: u64,
        next: u64,
    }

    pub(crate) struct Splice: 16 {
        word: u64,
        timestamp: u32,
        isn: u32,
    }

    pub(crate) struct CookieKeys: 88 {
        key: [[u64; 2]; EPOCHS],
        secret: [u64; 2],
        epoch: u64,
    }

    pub(crate) struct Backend: 40 {
        address: Address,
        port: u16,
        protocol: u8,
        ends: u8,
        weight: u16,
        service: u16,
        limit: u32,
        lower: u32,
        encapsulation: u8,
        has_sum: u8,
        tunnel_port: u16,
        source_bits: u8,
        pad: [u8; 3],
    }

    pub(crate) struct Load: 16 {
        connections: u64,
        full: u64,
    }

    pub(crate) struct Refusals: 256 {
        of: [u64; 32],
    }

    pub(crate) struct TrafficCount: 48 {
        connections: u64,
        in_packets: u64,
        in_bytes: u64,
        out_packets: u64,
        out_bytes: u64,
        refused: u64,
    }

    pub(crate) struct Routing: 8 {
        watched_until: u32,
        generation: u16,
        key: u16,
    }

    pub(crate) struct CachedRoute: 32 {
        stamp: u32,
        ifindex: u32,
        source: [u8; 6],
        destination: [u8; 6],
        mtu: u16,
        known: u16,
        backend: u32,
        flow: u32,
    }

    pub(crate) struct VlanKey: 8 {
        ifindex: u32,
        tag: u32,
    }

    pub(crate) struct Vlan: 12 {
        ifindex: u32,
        id: u16,
        mac: [u8; 6],
    }

    pub(crate) struct NextHop: 24 {
        address: Address,
        ifindex: u32,
        backend: u32,
    }

    pub(crate) struct Control: 16 {
        fixed_tick: u32,
        fragments: u8,
        options: u8,
        keeps_offload: u8,
        redirects_back: u8,
        strays: u32,
        has_entries_back: u16,
        has_gue: u8,
        has_any_port: u8,
    }

    pub(crate) struct Tuning: 128 {
        key: [u64; KEYS],
        bucket_mask: u32,
        counters: u32,
        connections_per_counter: u32,
        port_low: u16,
        port_blocks: u16,
        hold_mask: u32,
        sets: u32,
        overflow: u32,
        version: u32,
        cached_mask: u32,
        source_sets: u32,
    }

    pub(crate) struct Trace: 176 {
        kind: u32,
        entry: u32,
        live: u64,
        reopening: u32,
        service: u32,
        backend: u32,
        created: u32,
        ifindex: u32,
        mtu: u32,
        cpu: u32,
        owned: u32,
        kept: u32,
        named: u32,
        hash: u64,
        copy: Connection,
        splice: Splice,
        client: AccessKey,
        rule: AccessRule,
    }

    pub(crate) struct PathMtu: 8 {
        tick: u32,
        mtu: u32,
    }

    pub(crate) struct RateLimit: 8 {
        tick: u32,
        used: u32,
    }

    pub(crate) struct WorkerQueue: 8 {
        packets: u32,
        program: i32,
    }

    pub(crate) struct StageInput: 88 {
        next: u64,
        flow_mask: u64,
        stride: u64,
        client: u32,
        replies: u32,
        headers: [u64; 7],
    }

    pub(crate) struct Reply: 12 {
        addresses: [[u8; 4]; 2],
        ports: [[u8; 2]; 2],
    }

    pub(crate) struct Replay: 280 {
        length: u32,
        grows: i32,
        written: u32,
        port_at: u32,
        runs: u32,
        pad: u32,
        frame: [u64; 32],
    }

    pub(crate) struct Sweep: 56 {
        from: u32,
        count: u32,
        tick: u32,
        expired: u32,
        freed: u32,
        live: u32,
        all: u32,
        round: u32,
        unanswered: u32,
        closing: u32,
        service: u32,
        backend: u32,
        early: u32,
        next: u32,
    }

    pub(crate) struct Adoption: 56 {
        client: Address,
        client_port: u16,
        local_port: u16,
        service: u16,
        backend: u16,
        local: u16,
        pad: u16,
        state: u32,
        idle: u32,
        result: u32,
        slot: u32,
        tick: u32,
        now: u32,
        unused: u32,
    }

    pub(crate) struct PortSequence: 16 {
        block: u64,
        search: u64,
    }

    pub(crate) struct HoldDown: 8 {
        check: u32,
        tick: u32,
    }

    pub(crate) struct CaptureFilter: 64 {
        dropped: u64,
        left: u64,
        gap: u64,
        slack: u64,
        until: u64,
        address: Address,
        length: u32,
        port: u16,
        protocol: u8,
        pad: u8,
    }

    pub(crate) struct Captured: 24 {
        time: u64,
        length: u32,
        kept: u32,
        interface: u32,
        reason: u16,
        verdict: u16,
    }

    pub(crate) struct Uncaptured: 24 {
        beyond: u64,
        no_room: u64,
        no_reader: u64,
    }
}

/// Added to the number of a reason why packets are left to the kernel, where those for drops may be, too.
pub(crate) const LEFT: u16 = 0x80;

/// A port as it stands in a packet.
pub(crate) fn port_of(port: u16) -> u16 {
    port.to_be()
}

pub(crate) fn socket(address: Address, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), u16::from_be(port))
}

/// The two halves of a list's word: offset and length.
pub(crate) fn list(offset: u32, length: u32) -> u64 {
    u64::from(length) << 32 | u64::from(offset)
}
