//! Which backends sources are kept at: bpf/balancer/persistence.h.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::Error;

use super::config::{Config, Protocol, Service};
use super::control::{Balancer, identity};
use super::handle::BalancerHandle;
use super::shape::{GROUP_BIT, Template, TemplateKey};

/// Of IPv4 written in IPv6.
const MAPPED: u8 = 96;
/// Ticks for which a template stays that is over, a minute: the sweep renews it if its source has connections and the control plane was away.
const GRACE: u32 = 448;

pub(super) fn bits_of(service: &Service) -> u8 {
    let mapped = if service.address.is_ipv6() { 0 } else { MAPPED };
    service.persistence.map_or(0, |persistence| persistence.prefix + mapped)
}

/// 0: none.
pub(super) fn group_of(service: &Service) -> u32 {
    service.persistence.and_then(|persistence| persistence.group).map_or(0, |group| group.get() | GROUP_BIT)
}

/// By service and address the first backend of services in groups.
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
    fn templates(&self) -> Result<Vec<(TemplateKey, Template)>, Error> {
        self.tables.templates.all_of_hash()
    }

    /// Which sources are kept at which backends now, of all services. Takes a call of the kernel for 4096.
    pub fn persistent_sources(&self) -> Result<Vec<PersistentSource>, Error> {
        let (tick, known) = (self.tick()?, self.known());
        let services: HashMap<u32, _> = known.services.iter().map(|(of, known)| (known.number, of)).collect();
        let backends: HashMap<u32, (u32, SocketAddr)> =
            known.backends.iter().map(|(of, known)| (known.number, *of)).collect();
        let each = self.templates()?.into_iter().filter_map(|(key, template)| {
            let &(service, backend) = backends.get(&template.backend)?;
            let of = services.get(&service)?;
            let left = u32::try_from(left(&template, tick)).ok().filter(|left| *left > 0)?;
            let (protocol, service) = (of.protocol, of.address);
            Some(PersistentSource { protocol, service, source: key.source.into(), backend, left })
        });
        Ok(each.collect())
    }

    fn forget(&self, is_over: impl Fn(&TemplateKey, &Template) -> bool) -> Result<usize, Error> {
        let over = self.templates()?.into_iter().filter(|(key, template)| is_over(key, template));
        let mut count = 0;
        for (key, _) in over {
            self.tables.templates.remove(&key)?;
            count += 1;
        }
        Ok(count)
    }

    /// Makes room for other sources where the time of some is over, and a minute; says of how many. To be called every few seconds while a service has
    /// persistence, by one process at a time.
    pub fn forget_sources_that_are_over(&self) -> Result<usize, Error> {
        let tick = self.tick()?;
        self.forget(|_, template| left(template, tick) < -(GRACE as i32))
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
    /// Which backends stand for an address in services that share sources.
    pub(super) fn apply_members(&mut self, config: &Config) -> Result<(), Error> {
        let mut wanted = Members::new();
        for service in config.services.iter().filter(|service| group_of(service) != 0) {
            let Some(number) = self.known.services.get(&identity(service)).map(|known| known.number) else { continue };
            for backend in &service.backends {
                if let Some(known) = self.known.backends.get(&(number, backend.address)) {
                    wanted.entry((number, backend.address.ip())).or_insert(known.number);
                }
            }
        }
        let key = |&(service, address): &(u32, IpAddr)| TemplateKey { source: address.into(), service, pad: 0 };
        let members = &self.handle.tables.members;
        for of in self.members.keys().filter(|of| !wanted.contains_key(of)) {
            members.remove(&key(of))?;
        }
        for (of, number) in wanted.iter().filter(|(of, number)| self.members.get(of) != Some(*number)) {
            members.set(&key(of), number)?;
        }
        self.members = wanted;
        Ok(())
    }

    pub(super) fn recall_members(&self) -> Result<Members, Error> {
        let all: Vec<(TemplateKey, u32)> = self.handle.tables.members.all_of_hash()?;
        Ok(all.into_iter().map(|(key, number)| ((key.service, key.source.into()), number)).collect())
    }
}
