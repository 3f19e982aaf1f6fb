//! Local addresses and ports that connections to a backend take.

use std::net::{IpAddr, SocketAddr};

use super::super::config::Forward;
use super::super::reason::Drop;
use super::super::schedule;
use super::super::shape::{CURSORS, LEASE, State};
use super::{Connection, Model};

const PORT_LOW: u16 = 1024;
const PORT_LEASES: u64 = 1008;
/// Of a local address.
pub(super) const PORTS: usize = 64_512;
const PLACE_TRIES: u32 = 32;
const NEAR_TRIES: u32 = 4;
const LONGEST_LEAP: u64 = 1 << 10;
const LEASES_LOOKED_AT: u64 = 8;
const PLACES_SEARCHED: u64 = 4096;
const SEARCHES_PER_TICK: u32 = 16;
const REST_TICKS: u32 = 448;

impl Model {
    /// The local address and port of a backend's nth place.
    fn place(pool: &[IpAddr], nth: u64) -> SocketAddr {
        let (lease, length) = (nth / u64::from(LEASE), pool.len() as u64);
        let port = lease / length % PORT_LEASES * u64::from(LEASE) + nth % u64::from(LEASE);
        SocketAddr::new(pool[(lease % length) as usize], PORT_LOW + port as u16)
    }

    pub(super) fn let_rest(&mut self, connection: &Connection) {
        let translated = matches!(self.services[connection.service.0].service.forward, Forward::FullNat { .. });
        if let (true, Some(local)) = (translated, connection.local)
            && matches!(connection.state, State::FinWait | State::TimeWait)
        {
            let backend = self.backends[connection.backend].address;
            self.rests.insert((backend, local.ip(), local.port() / LEASE as u16), connection.seen);
        }
    }

    /// The first place of a lease, `ahead` leases further on or later.
    fn lease(&mut self, backend: SocketAddr, pool: &[IpAddr], ahead: u64, tick: u32) -> u64 {
        let order = self.orders.entry(schedule::hash_place(backend) % CURSORS).or_default();
        let lease = u64::from(LEASE);
        let first = order.lease + ahead * lease;
        let rests = |at: &u64| {
            let place = Self::place(pool, first + at * lease);
            let rest = self.rests.get(&(backend, place.ip(), place.port() / LEASE as u16));
            rest.is_some_and(|since| tick - since < REST_TICKS)
        };
        let taken = first + (0..LEASES_LOOKED_AT).find(|at| !rests(at)).unwrap_or(0) * lease;
        order.lease = taken + lease;
        taken
    }

    /// Gives a connection a local address and port that no other one to its backend has.
    pub(super) fn give_place(&mut self, connection: &mut Connection, pool: &[IpAddr], tick: u32) -> Result<(), Drop> {
        let backend = self.backends[connection.backend].address;
        let slot = schedule::hash_place(backend) % CURSORS;
        let mut next = self.orders.entry(slot).or_default().next;
        for tried in 0..PLACE_TRIES {
            if tried >= NEAR_TRIES || next.is_multiple_of(u64::from(LEASE)) {
                let leap = match tried.saturating_sub(NEAR_TRIES) {
                    0 => 0,
                    leap => LONGEST_LEAP.min(1 << leap),
                };
                next = self.lease(backend, pool, leap, tick);
            }
            next += 1;
            connection.local = Some(Self::place(pool, next - 1));
            if self.outward(connection).and_then(|tuple| self.find(tuple)).is_none() {
                self.orders.entry(slot).or_default().next = next;
                return Ok(());
            }
        }
        if self.searches.0 != tick {
            self.searches = (tick, 0);
        }
        if self.searches.1 >= SEARCHES_PER_TICK {
            return Err(Drop::NoLocalPort);
        }
        self.searches.1 += 1;
        let order = self.orders.entry(slot).or_default();
        let from = order.search;
        order.search += PLACES_SEARCHED;
        for nth in from..from + PLACES_SEARCHED {
            connection.local = Some(Self::place(pool, nth));
            if self.outward(connection).and_then(|tuple| self.find(tuple)).is_none() {
                self.orders.entry(slot).or_default().next = nth + 1;
                return Ok(());
            }
        }
        Err(Drop::NoLocalPort)
    }
}
