//! Flows that have been silent for too long.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;

use super::control::Router;
use super::load::Tables;
use super::shape::{self, Control, FORWARD, FlowKey, TICK_SHIFT, interface_of, protocol_of};
use super::status::tick;

/// How long a flow may be silent in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Contrail's for all flows, 180 s.
    pub established: Duration,
    /// TCP connections that one side has begun and the other has not answered.
    pub opening: Duration,
    /// TCP connections that both sides have closed, or that one has reset.
    pub closed: Duration,
    /// All other protocols.
    pub other: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { established: seconds(180), opening: seconds(30), closed: seconds(4), other: seconds(180) }
    }
}

// enum tcp_seen of bpf/vrouter/shape.h
const SYN: u32 = 0x01;
const SYN_R: u32 = 0x02;
const FIN: u32 = 0x10;
const FIN_R: u32 = 0x20;
const RST: u32 = 0x40;

const TCP: u8 = 6;

impl Timeouts {
    fn of(&self, protocol: u8, tcp: u32) -> Duration {
        match protocol {
            TCP if tcp & RST != 0 || tcp & (FIN | FIN_R) == FIN | FIN_R => self.closed,
            TCP if tcp & SYN != 0 && tcp & SYN_R == 0 => self.opening,
            TCP => self.established,
            _ => self.other,
        }
    }
}

/// Ends flows, beside the router that has them and from any thread.
#[derive(Debug, Clone)]
pub struct Sweeper {
    tables: Arc<Tables>,
}

impl Router {
    pub fn sweeper(&self) -> Sweeper {
        Sweeper { tables: Arc::clone(&self.tables) }
    }
}

impl Sweeper {
    /// Ends flows that have been silent for longer than `timeouts`; how many.
    ///
    /// # Errors
    /// When the kernel refuses to read or write the table.
    pub fn sweep(&self, timeouts: &Timeouts) -> Result<usize, Error> {
        let control: Control = self.tables.controls.at(0)?;
        let now = tick(&control);
        let silent = |flow: &shape::Flow| Duration::from_nanos(u64::from(now.saturating_sub(flow.tick)) << TICK_SHIFT);
        let shortest = [timeouts.established, timeouts.opening, timeouts.closed, timeouts.other].into_iter().min();
        let mut ended = 0;
        for (key, flow) in self.tables.flows.entries_of_hash::<FlowKey, shape::Flow>() {
            if Some(silent(&flow)) < shortest {
                continue;
            }
            // It may have gone with its other direction since, or have had a packet.
            let Some(flow) = self.tables.flows.get::<_, shape::Flow>(&key)? else { continue };
            let reverse = FlowKey {
                source: key.destination,
                destination: key.source,
                source_port: key.destination_port,
                destination_port: key.source_port,
                at: flow.reverse_at,
            };
            let other: Option<shape::Flow> = self.tables.flows.get(&reverse)?;
            let forward = flow.flags & FORWARD != 0;
            // The direction that began it speaks for both; one that has lost it, for itself.
            if !forward && other.is_some() {
                continue;
            }
            let quiet = other.as_ref().map_or(silent(&flow), |other| silent(&flow).min(silent(other)));
            if quiet < timeouts.of(protocol_of(key.at), flow.tcp) {
                continue;
            }
            if other.is_some() {
                self.tables.flows.remove(&reverse)?;
            }
            self.tables.flows.remove(&key)?;
            if forward {
                self.release(interface_of(key.at))?;
            }
            ended += 1;
        }
        Ok(ended)
    }

    /// One flow less of an interface.
    fn release(&self, interface: u32) -> Result<(), Error> {
        let ended: u64 = self.tables.ended.at(interface)?;
        self.tables.ended.set(&interface, &(ended + 1))
    }
}
