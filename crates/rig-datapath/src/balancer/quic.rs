//! Services whose backends are named by connection IDs of QUIC: bpf/balancer/quic.h.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::config::{Protocol, Service};
use super::shape::{BY_QUIC, QUIC_HI};

/// Where the server's ID is in the connection IDs that backends make: the plaintext form of draft-ietf-quic-load-balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QuicIds {
    /// Number of the configuration, in the first 3 bits: 0 to 6.
    pub configuration: u8,
    /// Bytes of the server's ID, behind the first one: 1 to 7.
    pub length: u8,
}

impl QuicIds {
    pub const CONFIGURATIONS: RangeInclusive<u8> = 0..=6;
    pub const LENGTHS: RangeInclusive<u8> = 1..=7;

    /// The highest ID that a server can have.
    pub fn most(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.length.clamp(1, 7)))
    }
}

impl QuicIds {
    /// The least datagram with a short header whose connection ID has this server ID.
    pub fn datagram(self, id: u64) -> Vec<u8> {
        /// With the tag behind a connection ID.
        const LEAST: usize = 21;
        let bytes = id.to_be_bytes();
        let id = &bytes[bytes.len() - usize::from(self.length.clamp(1, 7))..];
        let mut datagram = [&[0x40, self.configuration << 5], id].concat();
        datagram.resize(LEAST, 0);
        datagram
    }
}

/// What a backend of a service has in place of an address where members of services are kept.
pub(super) fn by_quic(service: u32, id: u64) -> (u32, IpAddr) {
    (BY_QUIC | service, Ipv6Addr::from_bits(u128::from(QUIC_HI) << 64 | u128::from(id)).into())
}

/// Why a service cannot be so.
pub(super) fn flaw(service: &Service) -> Option<&'static str> {
    let ids: Vec<u64> = service.backends.iter().filter_map(|backend| backend.quic_id).collect();
    let Some(quic) = service.quic else {
        return (!ids.is_empty()).then_some("a backend has a quic_id, and the service no quic");
    };
    let mut seen = HashSet::new();
    match () {
        () if service.protocol != Protocol::Udp => Some("quic is for UDP"),
        () if !QuicIds::CONFIGURATIONS.contains(&quic.configuration) => {
            Some("the number of a configuration of quic is 0 to 6")
        }
        () if !QuicIds::LENGTHS.contains(&quic.length) => {
            Some("a server's ID in connection IDs of quic has 1 to 7 bytes")
        }
        () if ids.iter().any(|id| *id > quic.most()) => Some("a quic_id has more bytes than the service says"),
        () if !ids.iter().all(|id| seen.insert(*id)) => Some("two backends have one quic_id"),
        () => None,
    }
}

/// The server's ID in a datagram of QUIC; `None` where it has none, or may have one that its client has made.
pub(super) fn server_of(quic: QuicIds, datagram: &[u8]) -> Option<u64> {
    const LOOKED_AT: usize = 15;
    let datagram = datagram.get(..LOOKED_AT)?;
    let length = usize::from(quic.length);
    let id = if datagram[0] & 0x80 == 0 {
        &datagram[1..]
    } else {
        let version = u32::from_be_bytes([datagram[1], datagram[2], datagram[3], datagram[4]]);
        let kind = datagram[0] >> 4 & 3;
        let is_handshake = matches!((version, kind), (1, 2) | (0x6b33_43cf, 3));
        if !is_handshake || usize::from(datagram[5]) <= length {
            return None;
        }
        &datagram[6..]
    };
    (id[0] >> 5 == quic.configuration)
        .then(|| id[1..=length].iter().fold(0, |server, byte| server << 8 | u64::from(*byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use super::super::config::{Backend, Config, ForwardingMethod};
    use super::*;

    fn service() -> Service {
        let backend = |host: u8, id| Backend {
            quic_id: Some(id),
            ..Backend::new(std::net::SocketAddr::new([10, 0, 0, host].into(), 443), 1)
        };
        let address = "192.0.2.1:443".parse().unwrap();
        let backends = vec![backend(1, 0), backend(2, 0xffff)];
        let quic = Some(QuicIds { configuration: 6, length: 2 });
        Service { quic, ..Service::new(Protocol::Udp, address, ForwardingMethod::Route, backends) }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let said = |change: &dyn Fn(&mut Service)| {
            let mut changed = service();
            change(&mut changed);
            Config { services: vec![changed], ..Config::default() }.validate().map_err(|error| error.to_string())
        };
        assert_eq!(said(&|_| ()), Ok(()));
        assert_eq!(said(&|service| service.backends[0].quic_id = None), Ok(()));
        let refused = |change: &dyn Fn(&mut Service), why: &str| {
            let said = said(change).unwrap_err();
            assert!(said.contains(why), "{said}");
        };
        let of = |configuration, length| Some(QuicIds { configuration, length });
        refused(&|service| service.protocol = Protocol::Tcp, "for UDP");
        refused(&|service| service.quic = None, "no quic");
        refused(&|service| service.quic = of(7, 2), "0 to 6");
        refused(&|service| service.quic = of(0, 0), "1 to 7 bytes");
        refused(&|service| service.quic = of(0, 8), "1 to 7 bytes");
        refused(&|service| service.quic = of(0, 1), "more bytes");
        refused(&|service| service.backends[0].quic_id = Some(0xffff), "two backends");
        assert_eq!(said(&|service| service.quic = of(0, 7)), Ok(()));
    }

    #[test]
    fn an_id_is_read_where_no_client_has_made_it() {
        let quic = QuicIds { configuration: 1, length: 3 };
        let short = [0x40, 0x3f, 1, 2, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(server_of(quic, &short), Some(0x01_0203));
        assert_eq!(server_of(quic, &quic.datagram(0x01_0203)), Some(0x01_0203));
        // RFC 9287: the bit of QUIC may be either.
        let mut other = short;
        other[0] = 0;
        assert_eq!(server_of(quic, &other), Some(0x01_0203));
        other[1] = 0x5f;
        assert_eq!(server_of(quic, &other), None);
        assert_eq!(server_of(quic, &short[..14]), None);
        let long = |first: u8, version: u32, length: u8| {
            let mut packet = vec![first];
            packet.extend(version.to_be_bytes());
            packet.extend([length, 0x20, 1, 2, 3, 9, 9, 9, 9, 9]);
            server_of(quic, &packet)
        };
        assert_eq!(long(0xe0, 1, 4), Some(0x01_0203));
        assert_eq!(long(0xf0, 0x6b33_43cf, 20), Some(0x01_0203));
        // Too short, Initial, 0-RTT, Retry, another version, version negotiation.
        for (first, version, length) in
            [(0xe0, 1, 3), (0xc0, 1, 8), (0xd0, 1, 8), (0xf0, 1, 8), (0xe0, 0x6b33_43cf, 8), (0xe0, 2, 8), (0xe0, 0, 8)]
        {
            assert_eq!(long(first, version, length), None, "{first:x} {version:x} {length}");
        }
    }
}
