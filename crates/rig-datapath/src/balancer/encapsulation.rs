//! What tunnels to backends put around packets: bpf/balancer/encapsulate.h.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use super::config::{ForwardingMethod, Service};
use super::shape::{self, encapsulation, port_of};

/// How packets for a backend are packed, whose service forwards by tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Encapsulation {
    pub header: TunnelHeader,
    /// How many of the last bits of the outer source address are of the flow's hash, up to [`MAX_SOURCE_BITS`]: local addresses are the
    /// first of so many then. 0: local addresses themselves.
    pub source_bits: u8,
}

/// The most bits of a source address that may be of a flow.
pub const MAX_SOURCE_BITS: u8 = 32;

/// The port for GUE that IANA has assigned.
pub const GUE_PORT: NonZeroU16 = NonZeroU16::new(6080).unwrap();

/// What is between the outer header and the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TunnelHeader {
    /// Nothing: IP in IP (RFC 2003), IPv6 in IPv6 (RFC 2473).
    #[default]
    IpInIp,
    /// UDP, its source port of the flow's hash, and Generic UDP Encapsulation, variant 0 (draft-ietf-intarea-gue-09).
    Gue { port: NonZeroU16, checksum: bool },
    /// GRE without checksum, key and sequence number (RFC 2784).
    Gre,
}

impl TunnelHeader {
    /// Bytes.
    pub fn length(self) -> usize {
        match self {
            Self::IpInIp => 0,
            Self::Gue { .. } => 8 + 4,
            Self::Gre => 4,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::IpInIp => encapsulation::IP_IN_IP,
            Self::Gue { .. } => encapsulation::GUE,
            Self::Gre => encapsulation::GRE,
        }
    }

    /// As the table of backends has it: in network byte order, 0 where there is none.
    pub(crate) fn port(self) -> u16 {
        if let Self::Gue { port, .. } = self { port_of(port.get()) } else { 0 }
    }

    pub(crate) fn has_sum(self) -> bool {
        matches!(self, Self::Gue { checksum: true, .. })
    }

    pub(super) fn of(backend: &shape::Backend) -> Self {
        match (backend.encapsulation, NonZeroU16::new(port_of(backend.tunnel_port))) {
            (encapsulation::GUE, Some(port)) => Self::Gue { port, checksum: backend.has_sum != 0 },
            (encapsulation::GRE, _) => Self::Gre,
            _ => Self::IpInIp,
        }
    }
}

/// The source address of a flow's outer packets.
pub(super) fn outer_source(local: IpAddr, source_bits: u8, flow: u32) -> IpAddr {
    let flow = u64::from(flow) & ((1 << source_bits.min(MAX_SOURCE_BITS)) - 1);
    match local {
        IpAddr::V4(local) => Ipv4Addr::from_bits(local.to_bits() | flow as u32).into(),
        IpAddr::V6(local) => Ipv6Addr::from_bits(local.to_bits() | u128::from(flow)).into(),
    }
}

/// GUE's source port of a flow: one of the dynamic ones (RFC 6335, 6).
pub(super) fn source_port(flow: u32) -> u16 {
    flow as u16 | 0xc000
}

/// Whether there are tunnels of UDP.
pub(super) fn has_gue<'a>(services: impl IntoIterator<Item = &'a Service>) -> bool {
    let is_gue = |service: &Service| {
        service.backends.iter().any(|backend| matches!(backend.encapsulation.header, TunnelHeader::Gue { .. }))
    };
    services.into_iter().any(is_gue)
}

/// Why a service's packets cannot be packed so.
pub(super) fn flaw(service: &Service) -> Option<&'static str> {
    let is_tunnel = matches!(service.forward, ForwardingMethod::Tunnel { .. });
    let mut of_backends = service.backends.iter().map(|backend| backend.encapsulation);
    if !is_tunnel {
        let has_some = of_backends.any(|encapsulation| encapsulation != Encapsulation::default());
        return has_some.then_some("gue, gre and a prefix of sources are for tunnels");
    }
    let bits = of_backends.map(|encapsulation| encapsulation.source_bits).max().unwrap_or(0);
    let is_first = |local: &IpAddr| match local {
        IpAddr::V4(local) => local.to_bits().trailing_zeros() >= bits.into(),
        IpAddr::V6(local) => local.to_bits().trailing_zeros() >= bits.into(),
    };
    match service.forward.local() {
        _ if bits > MAX_SOURCE_BITS => Some("at most 32 bits of a tunnel's source address are of flows"),
        local if bits > 0 && local.len() > 1 => {
            Some("a prefix of sources of tunnels is one local address, and no other")
        }
        local if !local.iter().all(is_first) => {
            Some("a local address is not the first of the prefix that tunnels' sources are of")
        }
        _ => None,
    }
}
