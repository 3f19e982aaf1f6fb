//! The values in the vRouter's maps, as bpf/vrouter/shape.h has them. What each field means is said there.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use rig_wire::ethernet::Mac;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::plain::{Address, plain};

use super::config::Service;

/// Words of a row of rules.
pub(crate) const RULE_WORDS: usize = 16;
pub(crate) const MAX_LISTS: usize = 2;
pub(crate) const MAX_WAYS: usize = 64;
pub(crate) const MAX_MEMBERS: usize = 512;
const VRF_BITS: u32 = 32;
/// Of the number of a VRF, before prefixes of IPv4.
const OF_IPV4: u32 = 1 << 31;
/// Reasons for drops have numbers below.
pub(crate) const REASONS: u32 = 96;
/// Of an interface, by reasons.
pub(crate) type DropCounts = [u64; REASONS as usize];
/// Dropped packets that are remembered for each CPU.
pub(crate) const LOGGED: u32 = 256;
pub(crate) const TICK_SHIFT: u32 = 27;

/// Places in `hops` of an interface's traffic.
pub(crate) const HOPS: usize = 8;

/// Values of `kind`.
pub(crate) mod kind {
    pub(crate) const TO_INTERFACE: u8 = 1;
    pub(crate) const TO_TUNNEL: u8 = 2;
    pub(crate) const TO_GATEWAY: u8 = 3;
    pub(crate) const TO_VRF: u8 = 4;
    pub(crate) const TO_ONE: u8 = 5;
    pub(crate) const TO_ALL: u8 = 6;
}

/// Of `flags` of an interface.
pub(crate) const HAS_POLICY: u8 = 1;
pub(crate) const SERVES_DHCP: u8 = 2;
pub(crate) const ANY_MAC: u8 = 4;
/// Of `flags` of a flow.
pub(crate) const FORWARD: u8 = 1;
pub(crate) const DENIED: u8 = 2;
pub(crate) const FAT: u8 = 16;
/// What else a rule has done.
pub(crate) const ALSO_LOG: u32 = 2;
pub(crate) const ANALYSER_SHIFT: u32 = 24;
/// Of `flags` of what is logged.
pub(crate) const LOG_SENDS: u8 = 1;
pub(crate) const LOG_RULE_ALLOWS: u8 = 2;
pub(crate) const LOG_LET_THROUGH: u8 = 4;
/// Places in `log_counts`.
pub(crate) const LOG_WRITTEN: u32 = 0;
pub(crate) const LOG_LOST: u32 = 1;
pub(crate) const LOG_HELD_BACK: u32 = 2;

plain! {
    pub(crate) struct HostKey: 24 {
        address: Address,
        vrf: u32,
        pad: u32,
    }

    pub(crate) struct PrefixKey: 24 {
        length: u32,
        vrf: u32,
        address: Address,
    }

    pub(crate) struct MacKey: 12 {
        vrf: u32,
        mac: [u8; 6],
        pad: u16,
    }

    pub(crate) struct Route: 8 {
        next_hop: u32,
        label: u32,
    }

    pub(crate) struct NextHop: 32 {
        kind: u8,
        encapsulation: u8,
        mtu: u16,
        ifindex: u32,
        number: u32,
        source: u32,
        destination: u32,
        gateway: u32,
        mac: [u8; 6],
        pad: u16,
    }

    pub(crate) struct Peer: 12 {
        ifindex: u32,
        gateway: u32,
        comes_by: u32,
    }

    pub(crate) struct CopyCount: 16 {
        frames: u64,
        copies: u64,
    }

    pub(crate) struct Interface: 88 {
        ifindex: u32,
        vrf: u32,
        next_hop: u32,
        most_flows: u32,
        outward: [u32; MAX_LISTS],
        inward: [u32; MAX_LISTS],
        mac: [u8; 6],
        flags: u8,
        mirror: u8,
        known_mac: u64,
        foreign_mac: u64,
        gateway: [Address; 2],
    }

    pub(crate) struct List: 40 {
        cuts_first: u32,
        cuts_count: u32,
        bounds_first: u32,
        bounds_count: u32,
        allow_row: u32,
        allow_otherwise: u32,
        also_first: u32,
        also_count: u32,
        number: u32,
        since: u32,
    }

    pub(crate) struct Cut: 24 {
        from: [u64; 2],
        row: u32,
        pad: u32,
    }

    pub(crate) struct Bound: 8 {
        from: u32,
        row: u32,
    }

    pub(crate) struct FlowKey: 40 {
        source: Address,
        destination: Address,
        source_port: u16,
        destination_port: u16,
        at: u32,
    }

    pub(crate) struct FatKey: 8 {
        at: u32,
        port: u16,
        pad: u16,
    }

    pub(crate) struct FragmentKey: 40 {
        source: Address,
        destination: Address,
        at: u32,
        identification: u32,
    }

    pub(crate) struct Flow: 48 {
        packets: u64,
        bytes: u64,
        epoch: u32,
        next_hop: u32,
        label: u32,
        reverse_at: u32,
        tick: u32,
        tcp: u32,
        tunnel_port: u16,
        flags: u8,
        mirror: u8,
        begun: u32,
    }

    pub(crate) struct Control: 20 {
        epoch: u32,
        address: u32,
        mac: [u8; 6],
        fat: u16,
        fixed_tick: u32,
    }

    pub(crate) struct Analyser: 40 {
        next_hop: NextHop,
        port: u16,
        pad: u16,
        vni: u32,
    }

    pub(crate) struct MirrorCount: 32 {
        packets: u64,
        bytes: u64,
        cut: u64,
        failed: u64,
    }

    pub(crate) struct Traffic: 112 {
        in_packets: u64,
        in_bytes: u64,
        out_packets: u64,
        out_bytes: u64,
        drops: u64,
        hops: [u64; HOPS],
        foreign: u64,
    }

    pub(crate) struct DroppedPacket: 56 {
        time: u64,
        source: Address,
        destination: Address,
        source_port: u16,
        destination_port: u16,
        interface: u32,
        protocol: u8,
        reason: u8,
        length: u16,
        pad: u32,
    }

    pub(crate) struct LogRecord: 64 {
        time: u64,
        source: Address,
        destination: Address,
        source_port: u16,
        destination_port: u16,
        interface: u32,
        list: u32,
        since: u32,
        rule: u16,
        protocol: u8,
        flags: u8,
        type_: u8,
        pad: [u8; 3],
    }

    /// Of bpf/vrouter/sweep.h.
    pub(crate) struct Sweep: 48 {
        established: u32,
        opening: u32,
        closed: u32,
        other: u32,
        unanswered: u32,
        runs_short: u32,
        shortest: u32,
        tick: u32,
        ended: u64,
        next: u32,
        pad: u32,
    }

    /// Of bpf/vrouter/replay.h.
    pub(crate) struct Replay: 112 {
        grows: i32,
        written: u32,
        runs: u32,
        port_at: u32,
        frame: [u64; 12],
    }
}

/// Rules that match, the first in the lowest bit of the first word.
pub(crate) type Row = [u64; RULE_WORDS];
pub(crate) type EcmpRoutes = [Route; MAX_WAYS];
pub(crate) type Members = [Route; MAX_MEMBERS];

/// An IPv4 address as it stands in a packet.
pub(crate) fn v4(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

/// A MAC address as interfaces have it, 0 for none.
pub(crate) fn word_of_mac(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u16::from_ne_bytes([e, f])) << 32
}

pub(crate) fn mac_of_word(word: u64) -> Option<Mac> {
    let ([a, b, c, d], [e, f]) = ((word as u32).to_ne_bytes(), ((word >> 32) as u16).to_ne_bytes());
    (word != 0).then_some(Mac([a, b, c, d, e, f]))
}

/// Bits of a prefix in an address as tables have it.
pub(crate) fn mapped_length(prefix: &IpNet) -> u32 {
    u32::from(prefix.prefix_len()) + if prefix.addr().is_ipv4() { 96 } else { 0 }
}

impl HostKey {
    pub(crate) fn new(vrf: u32, address: IpAddr) -> Self {
        Self { address: address.into(), vrf, pad: 0 }
    }
}

impl PrefixKey {
    pub(crate) fn new(vrf: u32, prefix: &IpNet) -> Self {
        let family = if prefix.addr().is_ipv4() { OF_IPV4 } else { 0 };
        Self { length: VRF_BITS + mapped_length(prefix), vrf: vrf | family, address: prefix.network().into() }
    }
}

impl FatKey {
    pub(crate) fn new(interface: u32, service: Service) -> Self {
        let at = interface | u32::from(service.protocol) << 24;
        Self { at, port: service.port.to_be(), pad: 0 }
    }
}

/// Parts of `at` of a flow.
pub(crate) fn interface_of(at: u32) -> u32 {
    at & 0x00ff_ffff
}

pub(crate) fn protocol_of(at: u32) -> u8 {
    (at >> 24) as u8
}
