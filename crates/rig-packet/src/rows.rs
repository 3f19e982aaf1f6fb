//! What each server did: a client counts by its peers' addresses and ports, a server by its own.

use std::net::SocketAddr;

use super::connection::Key;
use super::family::{Addresses, Family};

/// Most rows; beyond that there are only the sums.
const MOST: usize = 4096;

/// What was done with one address and port of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections that were opened.
    pub opened: u64,
    pub requests: u64,
    pub responses: u64,
    /// Connections that were given up, reset or cut short, and datagrams that were not answered in time.
    pub errors: u64,
}

impl ServerCounters {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            opened: self.opened + other.opened,
            requests: self.requests + other.requests,
            responses: self.responses + other.responses,
            errors: self.errors + other.errors,
        }
    }
}

/// Whose ports the rows are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Local,
    Remote,
}

/// Rows by address and port; none where there would be too many.
#[derive(Debug)]
pub(super) struct ServerTable {
    rows: Box<[ServerCounters]>,
    side: Side,
    first_port: u16,
    ports: usize,
}

impl ServerTable {
    pub fn new(side: Side, addresses: usize, first_port: u16, ports: usize) -> Self {
        let count = addresses.saturating_mul(ports);
        let count = if count <= MOST { count } else { 0 };
        Self { rows: vec![ServerCounters::default(); count].into(), side, first_port, ports }
    }

    /// The row of a connection, which lies between the configured ends.
    #[inline(always)]
    pub fn of(&mut self, key: Key) -> Option<&mut ServerCounters> {
        let (address, port) = match self.side {
            _ if self.rows.len() < 2 => return self.rows.first_mut(),
            Side::Local => (key.local(), key.local_port()),
            Side::Remote => (key.remote(), key.remote_port()),
        };
        self.rows.get_mut(address * self.ports + usize::from(port.wrapping_sub(self.first_port)))
    }

    /// Each with its address and port. `addresses` are those of the side.
    pub fn all<'a, F: Family>(
        &'a self,
        addresses: &'a Addresses<F>,
    ) -> impl Iterator<Item = (SocketAddr, ServerCounters)> + 'a {
        self.rows.iter().enumerate().map(|(n, row)| {
            let address = F::ip(addresses.get(n / self.ports));
            (SocketAddr::new(address, self.first_port + (n % self.ports) as u16), *row)
        })
    }
}
