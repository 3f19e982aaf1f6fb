//! What tests compare: connections and counters.

use std::net::SocketAddr;

use super::super::config::{ForwardingMethod, Protocol};
use super::super::shape::State;
use super::Model;

impl Model {
    /// Client, service, local address and port, backend and state of every connection, sorted.
    pub fn connections(&self) -> Vec<(SocketAddr, SocketAddr, Option<SocketAddr>, SocketAddr, State)> {
        let each = self.connections.iter().map(|connection| {
            let service = &self.services[connection.service.0].service;
            let local = connection.local.filter(|_| matches!(service.forward, ForwardingMethod::FullNat { .. }));
            (connection.client, connection.asked, local, self.backend_at(connection), connection.state)
        });
        let mut all: Vec<_> = each.collect();
        all.sort();
        all
    }

    /// Client and service of every connection, in their order.
    pub fn connections_in_order(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.connections.iter().map(|connection| (connection.client, connection.asked)).collect()
    }

    /// The tuple of the nth connection's packets from the backend; `None` where they do not pass here.
    pub fn answer_of(&self, nth: usize) -> Option<(Protocol, SocketAddr, SocketAddr)> {
        let connection = self.connections.get(nth)?;
        let tuple = self.outward(connection)?;
        Some((self.services[connection.service.0].service.protocol, tuple.source, tuple.destination))
    }

    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Resets of backends in place of an answer to a SYN, of all since the beginning.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}
