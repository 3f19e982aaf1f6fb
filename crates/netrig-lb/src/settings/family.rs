//! Services of IPv6 with backends of IPv4, and the local addresses of either family that backends are reached from.

use std::net::{IpAddr, SocketAddr};

use super::check::is_direct;
use super::rules::{Backend, EditError, MOST, Service, room_for_one_more};
use crate::health::check::BackendCheck;
use crate::message::{BackendOptions, ForwardingMethod};

impl Service {
    /// Backends are reached from local addresses of their own family.
    pub(super) fn lacks_local_of_family(&self) -> Option<&'static str> {
        let has = |v4: bool| self.local.iter().any(|local| local.is_ipv4() == v4);
        let lacking = self.backends.iter().map(|backend| backend.address.is_ipv4()).find(|v4| !has(*v4))?;
        Some(if lacking { "a local address of IPv4" } else { "a local address of IPv6" })
    }

    /// Whether it has backends whose packets are translated between the families.
    pub fn translates_families(&self) -> bool {
        self.backends.iter().any(|backend| backend.address.is_ipv4() != self.key.address.is_ipv4())
    }

    /// Whether it may have a backend of the other family.
    pub(crate) fn may_translate_families(&self) -> bool {
        self.key.address.is_ipv6() && self.forward == Some(ForwardingMethod::FullNat)
    }

    /// A backend that checks cannot reach from their `source`, which is of the other family: the source, and where it is probed.
    pub(crate) fn out_of_reach(&self) -> Option<(IpAddr, IpAddr)> {
        self.backends.iter().find_map(|backend| self.misses(backend))
    }

    fn misses(&self, backend: &Backend) -> Option<(IpAddr, IpAddr)> {
        let check = self.check.as_ref()?;
        let source = check.source?;
        let probed = match backend.check {
            _ if backend.sorry => None,
            BackendCheck::Off => None,
            BackendCheck::At { address: Some(address), .. } => Some(address),
            _ if is_direct(check, self.forward) => Some(self.key.address.ip()),
            BackendCheck::AsService | BackendCheck::At { address: None, .. } => Some(backend.address.ip()),
        };
        probed.filter(|probed| probed.is_ipv4() != source.is_ipv4()).map(|probed| (source, probed))
    }

    /// One that a command adds would never be checked, and no file may say so.
    pub(super) fn unless_out_of_reach(&self, backend: &Backend) -> Result<(), EditError> {
        match self.misses(backend) {
            Some((from, probed)) => Err(EditError::OutOfReach { service: self.key, from, probed }),
            None => Ok(()),
        }
    }

    /// Gives it local addresses where it lacks them alone, or those of this backend's family.
    pub(super) fn complete(&mut self, backend: SocketAddr, options: &BackendOptions) -> Result<(), EditError> {
        let needs = match self.forward {
            Some(ForwardingMethod::FullNat) => !self.local.iter().any(|local| local.is_ipv4() == backend.is_ipv4()),
            Some(ForwardingMethod::Tunnel) => self.local.is_empty(),
            _ => false,
        };
        if needs && self.tunnel_source.is_none() {
            let new: Vec<IpAddr> = options.local.iter().filter(|new| !self.local.contains(new)).copied().collect();
            let others = (self.local.len() + new.len()).saturating_sub(1);
            room_for_one_more("local addresses of the service", others, MOST as usize)?;
            self.local.extend(new);
        }
        self.keeps_local_of_family()
    }

    /// Whether no command has taken what is in force out of it: a service that has other local addresses is.
    pub(super) fn keeps_local_of_family(&self) -> Result<(), EditError> {
        let is_in_force = self.may_translate_families() && !self.local.is_empty();
        match self.lacks_local_of_family().filter(|_| is_in_force) {
            Some(lacks) => Err(EditError::LocalOfFamily(self.key, lacks)),
            None => Ok(()),
        }
    }
}
