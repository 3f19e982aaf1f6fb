//! Services that schedule each datagram by itself: bpf/balancer/once.h.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::error::ConfigError;

use super::config::{Config, ForwardingMethod, Protocol, Service};
use super::shape::{BY_SOURCE_PORT, port_of};

/// Whether packets of its backends come back that have no connection.
pub(super) fn comes_back_by_source(service: &Service) -> bool {
    service.one_packet && service.forward == ForwardingMethod::Nat
}

pub(super) fn has_entries_back(config: &Config) -> bool {
    config.services.iter().any(comes_back_by_source)
}

/// What such a backend has in place of the service's number and address where members of services are kept.
pub(super) fn by_source(backend: SocketAddr) -> (u32, IpAddr) {
    (BY_SOURCE_PORT | u32::from(port_of(backend.port())), backend.ip())
}

/// Why a service cannot schedule each datagram by itself.
pub(super) fn flaw(service: &Service) -> Option<&'static str> {
    let has_limit = service.backends.iter().any(|backend| backend.limit.is_some() || backend.lower_limit.is_some());
    match () {
        () if !service.one_packet => None,
        () if service.protocol != Protocol::Udp => {
            Some("one_packet is for UDP: a connection of TCP is more than a packet")
        }
        () if matches!(service.forward, ForwardingMethod::FullNat { .. }) => Some(
            "one_packet with full-nat: without a connection nothing says which client an answer to a local address is for",
        ),
        () if service.is_of_any_port() && service.forward == ForwardingMethod::Nat => Some(
            "one_packet with nat and any port: what a backend asks others by UDP would be taken for answers of the service; use route or tunnel",
        ),
        () if service.scheduler.counts_connections() => {
            Some("one_packet keeps no connections, which lc, wlc, sed and nq choose by: take rr, wrr, sh or mh")
        }
        () if has_limit || service.limit.is_some() || service.limits.source_limit.is_some() => {
            Some("one_packet keeps no connections that a limit could be of")
        }
        () => None,
    }
}

/// A source of answers belongs to one service.
pub(super) fn shared_backend(config: &Config) -> Option<ConfigError> {
    let mut known = HashMap::new();
    config.services.iter().filter(|service| comes_back_by_source(service)).find_map(|service| {
        service.backends.iter().map(|backend| backend.address).find_map(|backend| {
            let other = known.insert(backend, service.address)?;
            Some(ConfigError::SharedOnePacket { service: service.address, other, backend })
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::num::NonZeroU32;

    use super::super::config::{Backend, Scheduler};
    use super::*;

    fn service(port: u16) -> Service {
        let address = "10.0.0.1:53".parse().unwrap();
        Service {
            scheduler: Scheduler::WeightedRoundRobin,
            one_packet: true,
            ..Service::new(
                Protocol::Udp,
                SocketAddr::new([192, 0, 2, 1].into(), port),
                ForwardingMethod::Nat,
                vec![Backend::new(address, 1)],
            )
        }
    }

    fn refused(services: Vec<Service>) -> String {
        Config { services, ..Config::default() }.validate().unwrap_err().to_string()
    }

    #[test]
    fn what_has_no_connections_is_refused_what_needs_them() {
        let change = |change: &dyn Fn(&mut Service)| {
            let mut service = service(53);
            change(&mut service);
            refused(vec![service])
        };
        let config = Config { services: vec![service(53)], ..Config::default() };
        assert_eq!(config.validate(), Ok(()));
        assert!(change(&|s| s.protocol = Protocol::Tcp).contains("is for UDP"));
        let local = vec!["198.51.100.1".parse().unwrap()];
        let full_nat = ForwardingMethod::FullNat { local };
        assert!(change(&|s| s.forward = full_nat.clone()).contains("which client an answer"));
        assert!(change(&|s| s.scheduler = Scheduler::NeverQueue).contains("take rr, wrr, sh or mh"));
        let limit = "no connections that a limit could be of";
        assert!(change(&|s| s.limit = NonZeroU32::new(1)).contains(limit));
        assert!(change(&|s| s.limits.source_limit = NonZeroU32::new(1)).contains(limit));
        assert!(change(&|s| s.backends[0].limit = NonZeroU32::new(1)).contains(limit));
    }

    #[test]
    fn a_backend_answers_for_one_such_service() {
        let said = refused(vec![service(53), service(54)]);
        assert!(said.contains("10.0.0.1:53") && said.contains("192.0.2.1:53"), "{said}");
        let tracked = Service { one_packet: false, ..service(54) };
        assert_eq!(Config { services: vec![service(53), tracked], ..Config::default() }.validate(), Ok(()));
    }
}
