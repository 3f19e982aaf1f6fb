//! Which backends sources are kept at.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::shape::State;
use super::{Model, ServiceId};

/// Where a source's last connection went, and until which tick the next one goes there, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Template {
    backend: usize,
    until: u32,
}

impl Model {
    fn persistent_source(&self, service: ServiceId, client: IpAddr) -> Option<(ServiceId, IpNet)> {
        let persistence = self.services[service.0].service.persistence?;
        Some((service, IpNet::new(client, persistence.prefix).ok()?.trunc()))
    }

    /// The backend that a new connection of this client goes to because its last one did.
    pub(super) fn persistent_backend(&self, service: ServiceId, client: IpAddr, tick: u32) -> Option<usize> {
        let template = self.templates.get(&self.persistent_source(service, client)?)?;
        (template.until > tick && self.admits(template.backend)).then_some(template.backend)
    }

    /// A connection that begins leads its source to its own backend; one that is there renews that.
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
            Some(known) if known.backend == new.backend => known.until = known.until.max(new.until),
            _ if begins => drop(self.templates.insert(source, new)),
            _ => {}
        }
    }
}
