//! Local addresses and ports of connections to a backend.

use std::net::{IpAddr, SocketAddr};

use super::super::config::ForwardingMethod;
use super::super::reason::Drop;
use super::super::schedule;
use super::super::shape::{PORT_BLOCK, PORT_SEQUENCES, State};
use super::{Connection, Model};

const PORT_LOW: u16 = 1024;
const PORT_BLOCKS: u64 = 1008;
/// Ports of one local address.
pub(super) const PORTS: usize = 64_512;
const LOCAL_PORT_TRIES: u32 = 32;
const SEQUENTIAL_TRIES: u32 = 4;
const MAX_SKIP: u64 = 1 << 10;
const BLOCK_TRIES: u64 = 8;
const PORTS_SEARCHED: u64 = 4096;
const SEARCHES_PER_TICK: u32 = 16;
const HOLD_TICKS: u32 = 448;

impl Model {
    /// The local address and port of a backend's nth port.
    fn local_port(pool: &[IpAddr], nth: u64) -> SocketAddr {
        let (block, length) = (nth / u64::from(PORT_BLOCK), pool.len() as u64);
        let port = block / length % PORT_BLOCKS * u64::from(PORT_BLOCK) + nth % u64::from(PORT_BLOCK);
        SocketAddr::new(pool[(block % length) as usize], PORT_LOW + port as u16)
    }

    pub(super) fn hold_down(&mut self, connection: &Connection) {
        let translated =
            matches!(self.services[connection.service.0].service.forward, ForwardingMethod::FullNat { .. });
        if let (true, Some(local)) = (translated, connection.local)
            && matches!(connection.state, State::FinWait | State::TimeWait)
        {
            let backend = self.backends[connection.backend].address;
            self.held_down.insert((backend, local.ip(), local.port() / PORT_BLOCK as u16), connection.seen);
        }
    }

    /// The first port of a block that is `ahead` blocks further on, or more.
    fn block(&mut self, backend: SocketAddr, pool: &[IpAddr], ahead: u64, tick: u32) -> u64 {
        let sequence = self.sequences.entry(schedule::hash_endpoint(backend) % PORT_SEQUENCES).or_default();
        let block = u64::from(PORT_BLOCK);
        let first = sequence.block + ahead * block;
        let is_held_down = |at: &u64| {
            let local = Self::local_port(pool, first + at * block);
            let held_down = self.held_down.get(&(backend, local.ip(), local.port() / PORT_BLOCK as u16));
            held_down.is_some_and(|since| tick - since < HOLD_TICKS)
        };
        let taken = first + (0..BLOCK_TRIES).find(|at| !is_held_down(at)).unwrap_or(0) * block;
        sequence.block = taken + block;
        taken
    }

    /// Gives a connection a local address and port that no other one to its backend has.
    pub(super) fn give_local_port(
        &mut self,
        connection: &mut Connection,
        pool: &[IpAddr],
        tick: u32,
    ) -> Result<(), Drop> {
        let backend = self.backends[connection.backend].address;
        let slot = schedule::hash_endpoint(backend) % PORT_SEQUENCES;
        let mut next = self.sequences.entry(slot).or_default().next;
        for tried in 0..LOCAL_PORT_TRIES {
            if tried >= SEQUENTIAL_TRIES || next.is_multiple_of(u64::from(PORT_BLOCK)) {
                let skip = match tried.saturating_sub(SEQUENTIAL_TRIES) {
                    0 => 0,
                    skip => MAX_SKIP.min(1 << skip),
                };
                next = self.block(backend, pool, skip, tick);
            }
            next += 1;
            connection.local = Some(Self::local_port(pool, next - 1));
            if self.outward(connection).and_then(|tuple| self.find(tuple)).is_none() {
                self.sequences.entry(slot).or_default().next = next;
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
        let sequence = self.sequences.entry(slot).or_default();
        let from = sequence.search;
        sequence.search += PORTS_SEARCHED;
        for nth in from..from + PORTS_SEARCHED {
            connection.local = Some(Self::local_port(pool, nth));
            if self.outward(connection).and_then(|tuple| self.find(tuple)).is_none() {
                self.sequences.entry(slot).or_default().next = nth + 1;
                return Ok(());
            }
        }
        Err(Drop::NoLocalPort)
    }
}
