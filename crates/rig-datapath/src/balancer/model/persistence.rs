//! Which backends sources are kept at.

use std::net::IpAddr;
use std::num::NonZeroU32;

use ipnet::IpNet;

use super::super::config::Service;
use super::super::shape::State;
use super::{BackendState, Model, ServiceId};

/// Where a source's last connection went, and until which tick the next one goes there, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template {
    backend: usize,
    until: u32,
}

/// Of a service by itself, or of a group of some.
pub(super) type SourceOfTemplate = (Result<ServiceId, NonZeroU32>, IpNet);

impl Template {
    fn leads_to(&self, other: &Self, backends: &[BackendState], service: &Service) -> bool {
        let is_shared = service.persistence.is_some_and(|persistence| persistence.group.is_some());
        let address = |backend: usize| backends[backend].address.ip();
        self.backend == other.backend || is_shared && address(self.backend) == address(other.backend)
    }
}

impl Model {
    fn persistent_source(&self, service: ServiceId, client: IpAddr) -> Option<SourceOfTemplate> {
        let persistence = self.services[service.0].service.persistence?;
        let of = persistence.group.map_or(Ok(service), Err);
        Some((of, IpNet::new(client, persistence.prefix).ok()?.trunc()))
    }

    /// The service's own backend in place of another one's of its group.
    fn own_backend(&self, service: ServiceId, backend: usize) -> Option<usize> {
        if self.backends[backend].service == service {
            return Some(backend);
        }
        let known = &self.services[service.0].service;
        known.persistence?.group?;
        let address = self.backends[backend].address.ip();
        let own = known.backends.iter().find(|own| own.address.ip() == address)?.address;
        let is_own = |of: &BackendState| of.service == service && of.address == own && !of.gone;
        self.backends.iter().position(is_own)
    }

    /// The backend that a new connection of this client goes to because its last one did.
    pub(super) fn persistent_backend(&self, service: ServiceId, client: IpAddr, tick: u32) -> Option<usize> {
        let template = self.templates.get(&self.persistent_source(service, client)?)?;
        let own = self.own_backend(service, template.backend).filter(|_| template.until > tick)?;
        self.admits(own).then_some(own)
    }

    /// As the sweep does for connections that there are.
    pub(super) fn renew_templates(&mut self, tick: u32) {
        for at in 0..self.connections.len() {
            let connection = &self.connections[at];
            let state = if connection.state == State::Close { connection.before } else { connection.state };
            if state != State::SynReceived {
                self.keep_template(at, tick, false);
            }
        }
    }

    /// A connection that begins leads its source to its own backend; one that is there renews that.
    #[allow(clippy::collapsible_match, reason = "one that leads there and is for longer must not come to the next arm")]
    pub(super) fn keep_template(&mut self, at: usize, tick: u32, begins: bool) {
        let connection = &self.connections[at];
        let service = &self.services[connection.service.0].service;
        let Some(source) = self.persistent_source(connection.service, connection.client.ip()) else { return };
        let mut ticks = service.persistence.map_or(0, super::super::config::Persistence::ticks);
        if connection.state == State::SynReceived {
            ticks = ticks.min(service.timeouts.ticks()[State::SynReceived as usize]);
        }
        let new = Template { backend: connection.backend, until: tick + ticks };
        match self.templates.get_mut(&source) {
            Some(known) if known.leads_to(&new, &self.backends, service) => {
                if new.until > known.until {
                    *known = new;
                }
            }
            _ if begins => drop(self.templates.insert(source, new)),
            _ => {}
        }
    }
}
