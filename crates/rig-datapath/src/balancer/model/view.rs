//! Which connections there are.

use std::net::SocketAddr;

use super::super::config::{ForwardingMethod, Protocol};
use super::super::shape::State;
use super::{Connection, Model};

impl Model {
    /// Client, service, local address and port, backend and state of every connection, sorted.
    pub fn connections(&self) -> Vec<(SocketAddr, SocketAddr, Option<SocketAddr>, SocketAddr, State)> {
        let each = self.connections.iter().map(|connection| {
            let service = &self.services[connection.service.0].service;
            let local = connection.local.filter(|_| matches!(service.forward, ForwardingMethod::FullNat { .. }));
            let backend = self.backends[connection.backend].address;
            (connection.client, service.address, local, backend, connection.state)
        });
        let mut all: Vec<_> = each.collect();
        all.sort();
        all
    }

    /// Client and service of every connection, in their order.
    pub fn connections_in_order(&self) -> Vec<(SocketAddr, SocketAddr)> {
        let service = |connection: &Connection| self.services[connection.service.0].service.address;
        self.connections.iter().map(|connection| (connection.client, service(connection))).collect()
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

    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}
