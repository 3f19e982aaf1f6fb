//! Services that schedule each datagram by itself, and what these cannot have, as it would be of connections.

use rig_datapath::balancer::Scheduler;

use super::misfit::Misfit;
use super::rules::Service;
use crate::message::{ForwardingMethod, Protocol};

/// Of one that says none: the other one's default counts connections.
pub const ONE_PACKET_SCHEDULER: Scheduler = Scheduler::WeightedRoundRobin;

pub(super) const TCP: Misfit =
    Misfit::fixed("one_packet of a TCP service", "remove it: a connection of TCP is more than a packet, it is for UDP");
pub(super) const FULL_NAT: Misfit = Misfit::fixed(
    "one_packet with full-nat",
    "choose nat, route or tunnel: without a connection nothing says which client an answer to a local address is for",
);
pub(super) const LIMIT: Misfit = Misfit::fixed(
    "one_packet with a limit of connections",
    "remove limit, source_limit, and limits of backends: it keeps no connections; rates and lists hold for each datagram",
);
const SCHEDULER: Misfit = Misfit::fixed(
    "one_packet with a scheduler that counts connections",
    "choose one of rr, wrr, sh, mh: it keeps none, so that lc, wlc, sed and nq would choose one backend always",
);

impl Service {
    /// Why it cannot have the `one_packet` that it has.
    pub fn one_packet_misfit(&self) -> Option<Misfit> {
        let limited = |limit: Option<u32>| limit.is_some_and(|limit| limit > 0);
        let has_limit = self.backends.iter().any(|backend| backend.limit.is_some());
        match () {
            () if !self.one_packet => None,
            () if self.key.protocol == Protocol::Tcp => Some(TCP),
            () if self.forward == Some(ForwardingMethod::FullNat) => Some(FULL_NAT),
            () if self.scheduler.counts_connections() => Some(SCHEDULER),
            () if has_limit || limited(self.limit) || limited(self.limits.source_limit) => Some(LIMIT),
            () => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests {
    use std::num::NonZeroU32;

    use super::super::rules::{Backend, EditError, Rules};
    use super::*;
    use crate::message::{BackendOptions, RuleChange, ServiceKey, ServiceOptions};

    const UDP: &str = "192.0.2.1:53";

    fn key(protocol: Protocol) -> ServiceKey {
        ServiceKey { protocol, address: UDP.parse().unwrap() }
    }

    fn once() -> ServiceOptions {
        ServiceOptions { one_packet: Some(true), ..ServiceOptions::default() }
    }

    #[test]
    fn a_service_that_says_no_scheduler_gets_one_that_counts_nothing() {
        let mut rules = Rules::default();
        rules.edit(&RuleChange::AddService { service: key(Protocol::Udp), options: once() }).unwrap();
        let service = key(Protocol::Udp);
        let backend = "10.0.0.1:53".parse().unwrap();
        let options = |forward| BackendOptions { forward: Some(forward), ..BackendOptions::default() };
        let refused = |rules: &mut Rules, change: &RuleChange| {
            let before = rules.clone();
            let error = rules.edit(change).unwrap_err();
            assert_eq!(*rules, before);
            error
        };
        let full_nat = RuleChange::AddBackend { service, backend, options: options(ForwardingMethod::FullNat) };
        assert_eq!(refused(&mut rules, &full_nat), EditError::Misfit(FULL_NAT));
        let limit = BackendOptions { limit: Some(5), ..options(ForwardingMethod::Nat) };
        let limited = RuleChange::AddBackend { service, backend, options: limit };
        assert_eq!(refused(&mut rules, &limited), EditError::Misfit(LIMIT));
        let nat = RuleChange::AddBackend { service, backend, options: options(ForwardingMethod::Nat) };
        rules.edit(&nat).unwrap();
        for (options, why) in [
            (ServiceOptions { scheduler: Some("wlc".to_owned()), ..ServiceOptions::default() }, SCHEDULER),
            (ServiceOptions { limit: Some(5), ..ServiceOptions::default() }, LIMIT),
        ] {
            let change = RuleChange::EditService { service, options };
            assert_eq!(refused(&mut rules, &change), EditError::Misfit(why));
        }
        let other = RuleChange::AddService {
            service: ServiceKey { address: "192.0.2.2:53".parse().unwrap(), ..service },
            options: ServiceOptions::default(),
        };
        rules.edit(&other).unwrap();
        // By default a service of several has a limit.
        let config = rules.config(1000);
        config.validate().unwrap();
        assert!(config.services[0].one_packet && config.services[0].limit.is_none());
        let off = ServiceOptions { one_packet: Some(false), limit: Some(5), ..ServiceOptions::default() };
        rules.edit(&RuleChange::EditService { service, options: off }).unwrap();
    }

    #[test]
    fn what_it_cannot_have_is_named() {
        let service = || Service {
            one_packet: true,
            scheduler: ONE_PACKET_SCHEDULER,
            forward: Some(ForwardingMethod::Route),
            ..Service::new(key(Protocol::Udp))
        };
        let misfit = |service: Service| service.one_packet_misfit().unwrap().to_string();
        assert_eq!(service().one_packet_misfit(), None);
        assert_eq!(misfit(Service { key: key(Protocol::Tcp), ..service() }), "one_packet of a TCP service");
        let backend = Backend { limit: NonZeroU32::new(1), ..Backend::new(UDP.parse().unwrap()) };
        assert_eq!(misfit(Service { backends: vec![backend], ..service() }), "one_packet with a limit of connections");
        let counting = Service { scheduler: Scheduler::NeverQueue, ..service() };
        assert_eq!(misfit(counting), "one_packet with a scheduler that counts connections");
    }
}
