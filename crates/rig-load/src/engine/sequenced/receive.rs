//! Receiving numbered datagrams.

use std::sync::Arc;

use rig_sys::clock::monotonic_ns;
use rig_sys::socket::{LONGEST_MESSAGE, ReceiveBatch, set_coalescing};
use rustix::io::Errno;

use super::track::{SharedTracker, Tracker};
use super::{NARROW, WIDE, header};
use crate::engine::{Connection, Engine, LoadProgress, ThreadFailure};

/// The most messages for each system call.
const MESSAGES: usize = 32;
/// Bytes for each system call: what is in a CPU's own cache when the next call writes there.
const ROOM: usize = 128 << 10;
/// Datagrams that are longer do not come several in one message.
const COALESCED: usize = 16 << 10;

#[derive(Debug)]
pub(in crate::engine) struct Receiver {
    /// Length of the datagrams that are expected.
    pub(in crate::engine) length: usize,
    pub(in crate::engine) wide: bool,
    /// Only the header is taken from the kernel, and the rest thrown away there.
    pub(in crate::engine) discard: bool,
    pub(in crate::engine) tracker: Arc<SharedTracker>,
}

impl Engine for Receiver {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let connection = connections[0];
        let shortest = if self.wide { WIDE } else { NARROW };
        let short = self.length <= COALESCED;
        let coalesced = !self.discard && short && set_coalescing(&connection.socket, true).is_ok();
        let longest = match (self.discard, coalesced) {
            (true, _) => WIDE,
            (false, true) => LONGEST_MESSAGE,
            (false, false) => self.length.max(WIDE),
        };
        let mut batch = ReceiveBatch::new((ROOM / longest).clamp(1, MESSAGES), longest, coalesced);
        let mut tracker = Tracker::default();
        while !progress.is_stopped() {
            match batch.receive(&connection.socket, true) {
                Ok(_) => {}
                // An answer to something that was sent here says nothing of what comes in.
                Err(Errno::INTR | Errno::AGAIN | Errno::CONNREFUSED) => continue,
                Err(_) => return Ok(()),
            }
            if self.tracker.is_asked_again() {
                tracker.forget_times();
            }
            let now_us = monotonic_ns() / 1_000;
            let (mut bytes, mut datagrams) = (0, 0);
            for message in batch.messages() {
                for datagram in message.datagrams() {
                    // The word that opens a stream is no payload, nor what shutdown(2) wakes with.
                    if datagram.len() < shortest {
                        continue;
                    }
                    let Some((sent_us, number)) = header(datagram, self.wide) else { continue };
                    tracker.take(sent_us, number, now_us);
                    bytes += if message.truncated { self.length } else { datagram.len() };
                    datagrams += 1;
                }
            }
            if datagrams > 0 {
                self.tracker.publish(&tracker);
                connection.inbound.add_units(datagrams);
                connection.inbound.add(bytes);
            }
        }
        Ok(())
    }
}
