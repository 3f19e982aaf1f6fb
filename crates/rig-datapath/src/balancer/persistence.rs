//! Which backends sources are kept at: bpf/balancer/persistence.h.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::Error;

use super::config::{Config, Protocol, Service};
use super::control::{Balancer, identity};
use super::handle::BalancerHandle;
use super::one_packet::{by_source, comes_back_by_source};
use super::quic::by_quic;
use super::shape::{GROUP_BIT, TICK_SHIFT, Template, TemplateKey};

/// Of IPv4 written in IPv6.
const MAPPED: u8 = 96;

pub(super) fn bits_of(service: &Service) -> u8 {
    let mapped = if service.address.is_ipv6() { 0 } else { MAPPED };
    service.persistence.map_or(0, |persistence| persistence.prefix + mapped)
}

/// 0: none.
pub(super) fn group_of(service: &Service) -> u32 {
    service.persistence.and_then(|persistence| persistence.group).map_or(0, |group| group.get() | GROUP_BIT)
}

/// By service and address the first backend of services in groups; by port and address those whose packets come back without a connection; and
/// those that connection IDs of QUIC name.
pub(super) type Members = BTreeMap<(u32, IpAddr), u32>;

/// Ticks that are left of it at this one; less than 0 when it is over.
fn left(template: &Template, tick: u32) -> i32 {
    template.until.wrapping_sub(tick) as i32
}

/// Sources that are kept at a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PersistentSource {
    pub protocol: Protocol,
    /// In a group that by which its last connection came.
    pub service: SocketAddr,
    /// The first address of its prefix.
    pub source: IpAddr,
    pub backend: SocketAddr,
    /// Ticks of 2^27 ns (134 ms) for which it is.
    pub left: u32,
}

/// Numbers of what is gone.
#[derive(Debug, Default)]
pub(super) struct ForgottenNumbers {
    pub(super) services: BTreeSet<u32>,
    pub(super) backends: BTreeSet<u32>,
}

impl BalancerHandle {
    /// Which sources are kept at which backends now, of all services. Takes a call of the kernel for some thousands.
    pub fn persistent_sources(&self) -> Result<Vec<PersistentSource>, Error> {
        let (tick, known) = (self.tick()?, self.known());
        let services: HashMap<u32, _> = known.services.iter().map(|(of, known)| (known.number, of)).collect();
        let backends: HashMap<u32, (u32, SocketAddr)> =
            known.backends.iter().map(|(of, known)| (known.number, *of)).collect();
        let source = |key: TemplateKey, template: Template| {
            let &(service, backend) = backends.get(&template.backend)?;
            let of = services.get(&service)?;
            let left = u32::try_from(left(&template, tick)).ok().filter(|left| *left > 0)?;
            let (protocol, service) = (of.protocol, of.address);
            Some(PersistentSource { protocol, service, source: key.source.into(), backend, left })
        };
        let mut sources = Vec::new();
        self.tables.templates.each_of_hash(|key, template| sources.extend(source(key, template)))?;
        Ok(sources)
    }

    fn forget(&self, is_over: impl Fn(&TemplateKey, &Template) -> bool) -> Result<usize, Error> {
        let (templates, mut over) = (&self.tables.templates, Vec::new());
        templates.each_of_hash(|key, template| over.extend(is_over(&key, &template).then_some(key)))?;
        let mut count = 0;
        for key in over {
            // A source may have come back since it was read. Between this look and the removal, microseconds, it is forgotten yet.
            if templates.get(&key)?.is_some_and(|template| is_over(&key, &template)) {
                templates.remove(&key)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Makes room for other sources where the time of some has been over for so long; says of how many. That is to be the time since
    /// the last whole round of the [sweep](Self::sweep) began, which has renewed those with connections. To be called every few seconds
    /// while a service has persistence, by one process at a time.
    pub fn forget_sources_that_are_over(&self, since: Duration) -> Result<usize, Error> {
        // The sweep's clock and the packets' may be a tick apart.
        let since = (since.as_nanos() >> TICK_SHIFT).min(1 << 30) as i32 + 2;
        let tick = self.tick()?;
        self.forget(|_, template| left(template, tick) < -since)
    }

    /// Before other services and backends get their numbers.
    pub(super) fn forget_sources_of(&self, numbers: &ForgottenNumbers) -> Result<(), Error> {
        if numbers.services.is_empty() && numbers.backends.is_empty() {
            return Ok(());
        }
        let is_of = |key: &TemplateKey, template: &Template| {
            numbers.services.contains(&key.service) || numbers.backends.contains(&template.backend)
        };
        self.forget(is_of).map(drop)
    }
}

impl Balancer {
    /// Which backends stand for an address in one of the services that share sources, which packets without a connection are from, or which
    /// connection IDs name. To be in place before the service is.
    pub(super) fn add_members(&mut self, number: u32, service: &Service) -> Result<(), Error> {
        for (of, backend) in members_of(number, service) {
            let Some(known) = self.known.backends.get(&(number, backend)) else { continue };
            if self.members.get(&of) != Some(&known.number) {
                self.handle.tables.members.set(&key_of(of), &known.number)?;
                self.members.insert(of, known.number);
            }
        }
        Ok(())
    }

    /// Takes out which of them do no longer.
    pub(super) fn leave_members(&mut self, config: &Config) -> Result<(), Error> {
        let number = |service: &Service| self.known.services.get(&identity(service)).map(|known| known.number);
        let services = config.services.iter().filter_map(|service| Some(members_of(number(service)?, service)));
        let wanted: BTreeSet<_> = services.flat_map(BTreeMap::into_keys).collect();
        let left: Vec<_> = self.members.keys().filter(|of| !wanted.contains(of)).copied().collect();
        for of in left {
            self.handle.tables.members.remove(&key_of(of))?;
            self.members.remove(&of);
        }
        Ok(())
    }

    pub(super) fn recall_members(&self) -> Result<Members, Error> {
        let mut members = Members::new();
        self.handle.tables.members.each_of_hash(|key: TemplateKey, number: u32| {
            members.insert((key.service, key.source.into()), number);
        })?;
        Ok(members)
    }
}

/// Its backends, by all that they are members by.
fn members_of(number: u32, service: &Service) -> BTreeMap<(u32, IpAddr), SocketAddr> {
    let (is_shared, comes_back) = (group_of(service) != 0, comes_back_by_source(service));
    let mut members = BTreeMap::new();
    for backend in &service.backends {
        let by_address = is_shared.then(|| (number, backend.address.ip()));
        let by_answers = comes_back.then(|| by_source(backend.address));
        let by_id = backend.quic_id.map(|id| by_quic(number, id));
        for of in [by_address, by_answers, by_id].into_iter().flatten() {
            // The first one of an address.
            members.entry(of).or_insert(backend.address);
        }
    }
    members
}

fn key_of((service, address): (u32, IpAddr)) -> TemplateKey {
    TemplateKey { source: address.into(), service, pad: 0 }
}
