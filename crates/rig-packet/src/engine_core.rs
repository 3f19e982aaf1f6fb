//! What every service of an engine needs: its connections, timers and counters.

use super::Nanos;
use super::connection::Key;
use super::counters::{Counters, Latencies, Window};
use super::family::{Addresses, Family};
use super::port::Transmit;
use super::rows::ServerTable;
use super::table::Table;
use super::template::FourTuple;
use super::wheel::TimerWheel;

/// What every service needs.
#[derive(Debug)]
pub(super) struct EngineCore<F: Family> {
    pub local: Addresses<F>,
    pub remote: Addresses<F>,
    pub table: Table,
    pub wheel: TimerWheel,
    pub counters: Counters,
    pub latencies: Latencies,
    /// Of what is due then the latencies are entered, whenever it is answered.
    pub window: Window,
    /// What is to be added to a time of the peer's clock to have that of this end's.
    pub peer_clock_ns: i64,
    pub rows: ServerTable,
}

impl<F: Family> EngineCore<F> {
    #[inline(always)]
    pub fn four_tuple(&self, key: Key) -> FourTuple<F::Address> {
        FourTuple {
            source: self.local.get(key.local()),
            destination: self.remote.get(key.remote()),
            source_port: key.local_port(),
            destination_port: key.remote_port(),
        }
    }

    /// Room for a frame, which counts as sent; without room it counts as dropped.
    #[inline(always)]
    pub fn claim<'t>(&mut self, transmit: &'t mut impl Transmit, length: usize) -> Option<&'t mut [u8]> {
        let frame = transmit.claim(length);
        match frame {
            Some(_) => {
                self.counters.pkt_tx += 1;
                self.counters.bits_tx += length as u64 * 8;
            }
            None => self.counters.drop_tx += 1,
        }
        frame
    }

    #[inline]
    pub fn set_timer(&mut self, slot: u32, deadline: Nanos) {
        self.wheel.set(&mut self.table.all, slot, deadline);
    }

    #[inline]
    pub fn opened(&mut self, slot: u32) {
        self.counters.sk_open += 1;
        if let Some(row) = self.rows.of(self.table.all[slot as usize].key) {
            row.opened += 1;
        }
    }

    pub fn close(&mut self, slot: u32) {
        self.table.remove(slot);
        self.counters.sk_close += 1;
    }

    pub fn fail(&mut self, slot: u32) {
        self.wrong(slot);
        self.close(slot);
    }

    /// A connection has failed, and will be closed.
    pub fn wrong(&mut self, slot: u32) {
        self.counters.sk_err += 1;
        if let Some(row) = self.rows.of(self.table.all[slot as usize].key) {
            row.errors += 1;
        }
    }

    /// Requests and responses of a server, beside what the protocol's counters say.
    #[inline(always)]
    pub fn exchanged(&mut self, key: Key, requests: u64, responses: u64) {
        if let Some(row) = self.rows.of(key) {
            row.requests += requests;
            row.responses += responses;
        }
    }

    /// An answer came so long after what it answers was due.
    #[inline]
    pub fn round_trip(&mut self, age: Nanos) {
        self.counters.rtt_count += 1;
        self.counters.rtt_sum += age;
    }
}
