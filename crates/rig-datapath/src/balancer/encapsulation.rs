//! What tunnels to backends put around packets: bpf/balancer/encapsulate.h.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use ipnet::IpNet;

use super::config::{Config, ForwardingMethod, Service};
use super::shape::{self, encapsulation, port_of};
use crate::error::ConfigError;

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

/// How many bits of its outer source addresses are of flows at most.
fn source_bits(service: &Service) -> u8 {
    service.backends.iter().map(|backend| backend.encapsulation.source_bits).max().unwrap_or(0)
}

/// Where outer packets come from.
fn sources(service: &Service) -> impl Iterator<Item = IpNet> {
    let bits = source_bits(service);
    let prefix = move |local: &IpAddr| {
        let length = if local.is_ipv4() { 32_u8 } else { 128 };
        IpNet::new(*local, length.saturating_sub(bits)).ok()
    };
    service.forward.local().iter().filter(move |_| bits > 0).filter_map(prefix)
}

/// A prefix of sources with an address in it that is somebody's: who has it takes what comes from it for forged. Prefixes may be those of
/// several services.
pub(super) fn source_in_use(config: &Config) -> Option<ConfigError> {
    if !config.services.iter().any(|service| source_bits(service) > 0) {
        return None;
    }
    let mut used: BTreeMap<IpAddr, &'static str> =
        config.others_local.iter().map(|local| (*local, "another balancer's local address")).collect();
    for service in &config.services {
        // One without backends sends nothing, and what says how many bits are of flows are these.
        if source_bits(service) == 0 && !service.backends.is_empty() {
            used.extend(service.forward.local().iter().map(|local| (*local, "a local address")));
        }
        used.extend(service.backends.iter().map(|backend| (backend.address.ip(), "a backend's address")));
        used.insert(service.address.ip(), "a service's address");
    }
    let of_service = |service: &Service| {
        let (&address, &whose, prefix) = sources(service).find_map(|prefix| {
            let (address, whose) = used.range(prefix.network()..=prefix.broadcast()).next()?;
            Some((address, whose, prefix))
        })?;
        Some(ConfigError::SourceInUse { service: service.address, prefix, address, whose })
    };
    config.services.iter().find_map(of_service)
}

/// Why a service's packets cannot be packed so.
pub(super) fn flaw(service: &Service) -> Option<&'static str> {
    let is_tunnel = matches!(service.forward, ForwardingMethod::Tunnel { .. });
    let mut of_backends = service.backends.iter().map(|backend| backend.encapsulation);
    if !is_tunnel {
        let has_some = of_backends.any(|encapsulation| encapsulation != Encapsulation::default());
        return has_some.then_some("gue, gre and a prefix of sources are for tunnels");
    }
    let bits = source_bits(service);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::config::{Backend, Protocol};
    use super::*;

    fn service(address: &str, forward: ForwardingMethod, backend: &str, source_bits: u8) -> Service {
        let mut backend = Backend::new(backend.parse().unwrap(), 1);
        backend.encapsulation.source_bits = source_bits;
        Service::new(Protocol::Udp, address.parse().unwrap(), forward, vec![backend])
    }

    #[test]
    fn sources_of_tunnels_are_nobodys() {
        let tunnel = |local: &str| ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] };
        let full_nat = |local: &str| ForwardingMethod::FullNat { local: vec![local.parse().unwrap()] };
        let v4 = || service("192.0.2.1:53", tunnel("172.16.0.0"), "10.0.0.1:53", 16);
        let v6 = || service("[2001:db8::1]:53", tunnel("100::"), "[fd00::1]:53", 32);
        let judged = |services: Vec<Service>, others: &[&str]| {
            let others_local = others.iter().map(|local| local.parse().unwrap()).collect();
            Config { services, others_local, ..Config::default() }.validate()
        };
        // Two services may be from one prefix; neighbours of it are none of its.
        let beside = service("172.17.0.0:53", full_nat("172.15.255.255"), "172.17.0.1:53", 0);
        let same = service("192.0.2.9:53", tunnel("172.16.0.0"), "10.0.0.1:53", 16);
        assert_eq!(judged(vec![v4(), v6(), beside, same], &["172.17.0.5"]), Ok(()));
        let of_address = service("172.16.9.9:53", ForwardingMethod::Nat, "10.0.0.9:53", 0);
        let of_local = service("192.0.2.2:53", full_nat("172.16.0.0"), "10.0.0.9:53", 0);
        let of_tunnel = service("192.0.2.2:53", tunnel("172.16.255.255"), "10.0.0.9:53", 0);
        let of_backend = service("192.0.2.2:53", ForwardingMethod::Nat, "172.16.3.4:53", 0);
        let own_backend = service("192.0.2.3:53", tunnel("172.16.0.0"), "172.16.3.4:53", 16);
        let of_v6 = service("[2001:db8::2]:53", ForwardingMethod::Nat, "[100::ffff:ffff]:53", 0);
        for (other, whose, address) in [
            (of_address, "a service's address", "172.16.9.9"),
            (of_local, "a local address", "172.16.0.0"),
            (of_tunnel, "a local address", "172.16.255.255"),
            (of_backend, "a backend's address", "172.16.3.4"),
            (own_backend, "a backend's address", "172.16.3.4"),
            (of_v6, "a backend's address", "100::ffff:ffff"),
        ] {
            let said = judged(vec![v4(), v6(), other], &[]).unwrap_err().to_string();
            assert!(said.contains(&format!("{address} is {whose}")), "{said}");
        }
        let said = judged(vec![v4()], &["172.16.200.1"]).unwrap_err().to_string();
        assert!(said.contains("172.16.200.1 is another balancer's local address, and one of 172.16.0.0/16"), "{said}");
    }
}
