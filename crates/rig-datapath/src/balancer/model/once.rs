//! Datagrams that are scheduled by themselves.

use std::net::SocketAddr;

use super::super::config::ForwardingMethod;
use super::super::one_packet;
use super::super::reason::Drop;
use super::super::schedule;
use super::super::shape::State;
use super::packet::{Kind, Packet};
use super::{Connection, Direction, Model, Refusal, ServiceId};

impl Model {
    fn passing(
        &self,
        (client, asked): (SocketAddr, SocketAddr),
        service: ServiceId,
        backend: usize,
        tick: u32,
    ) -> Connection {
        Connection {
            client,
            asked,
            service,
            backend,
            local: None,
            state: State::UdpNormal,
            before: State::UdpNormal,
            refused: false,
            seen: tick,
            client_route: None,
            splice: None,
            counted: false,
            source: None,
            tells: false,
            opted: false,
            prefixed: None,
            answered: false,
            passing: true,
        }
    }

    /// A datagram goes to a backend, and is all that there is of its connection.
    pub(super) fn schedule_packet(
        &mut self,
        service: ServiceId,
        packet: &Packet,
        frame: &[u8],
        tick: u32,
    ) -> Result<usize, Refusal> {
        let client = packet.tuple.source;
        let named = self.named_backend(service, packet, frame);
        let backend = match named.or_else(|| self.persistent_backend(service, client.ip(), tick)) {
            Some(kept) => kept,
            None => self.schedule(service, packet.tuple)?,
        };
        self.count_at_source(service, client.ip(), tick);
        let mut connection = self.passing((client, packet.tuple.destination), service, backend, tick);
        if let ForwardingMethod::Tunnel { local } = &self.services[service.0].service.forward {
            let at = schedule::hash_source(client, true) as usize % local.len();
            connection.local = Some(SocketAddr::new(local[at], 0));
        }
        self.connections.push(connection);
        self.keep_template(self.connections.len() - 1, tick, true);
        Ok(self.connections.len() - 1)
    }

    /// What comes from a backend, or is about its packets, and has no connection.
    pub(super) fn entry_back(&mut self, packet: &Packet, frame: &[u8], tick: u32) -> Option<(usize, Direction)> {
        let is_anothers = match packet.kind {
            Kind::Flow { .. } => self.service_of(packet).is_some(),
            Kind::Error => packet.outer_destination(frame) != packet.tuple.destination.ip(),
        };
        let (source, client) = (packet.tuple.source, packet.tuple.destination);
        // What this machine itself has asked is not forwarded.
        let is_own = matches!((self.routes)(client.ip()), Err(Drop::NoRoute));
        if is_anothers || is_own {
            return None;
        }
        let (at, known) = self.services.iter().enumerate().find(|(_, known)| {
            let service = &known.service;
            known.open
                && one_packet::comes_back_by_source(service)
                && service.protocol.number() == packet.tuple.protocol
                && service.backends.iter().any(|backend| backend.address == source)
        })?;
        let backend =
            self.backends.iter().position(|known| known.service.0 == at && known.address == source && !known.gone)?;
        let connection = self.passing((client, known.service.address), ServiceId(at), backend, tick);
        self.connections.push(connection);
        Some((self.connections.len() - 1, Direction::Outward))
    }
}
