//! A stream of datagrams: numbered and stamped by the sender, judged by the receiver.
//!
//! Whether a datagram belongs to the window is decided once, by the sender when it hands it to the kernel, and written
//! into it. When the load is over the sender tells, in a [`Kind::Farewell`](crate::greeting::Kind), which numbers it
//! sent inside the window; what of these did not arrive by then is lost.

mod receive;
mod send;
mod tracker;
mod wire;

use rig_sys::socket::{self, LONGEST_MESSAGE};
use rustix::net::{AddressFamily, getsockname};

use self::receive::Receiver;
use self::send::Sender;
use self::wire::Phase;
use super::{Connection, Engine, ThreadFailure, Times, failure};
use crate::plan::{Datagrams, Pacing};
use crate::record::{DatagramRecord, DatagramTotals, Direction};

/// Headers of Ethernet and UDP; with the IP header they are what a queueing discipline counts beside the payload.
const ETHERNET_UDP: u64 = 14 + 8;
const IPV4: u64 = 20;
const IPV6: u64 = 40;

/// What the threads of a datagram load found out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    record: DatagramRecord,
    /// Sum over the flows that have one.
    jitter_ns: f64,
    jitters: u32,
}

impl Findings {
    /// Adds another thread's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.record.merge(&other.record);
        self.jitter_ns += other.jitter_ns;
        self.jitters += other.jitters;
    }

    pub(crate) fn into_record(self) -> DatagramRecord {
        let jitter_ns = (self.jitters > 0).then(|| self.jitter_ns / f64::from(self.jitters));
        DatagramRecord { jitter_ns, ..self.record }
    }
}

/// Builds the engine of one thread, which sends or receives. `duplex`: another thread does the other over the same
/// connections.
pub(crate) fn build(
    load: &Datagrams,
    way: Direction,
    duplex: bool,
    connections: &[&Connection],
) -> Result<Box<dyn Engine>, ThreadFailure> {
    for connection in connections {
        let set = |result: std::io::Result<()>, what: &str| result.map_err(|error| failure(what, connection, &error));
        if way == Direction::Send {
            if load.segments > 1 {
                let set_size = socket::set_segment_size(&connection.socket, load.message);
                set(set_size, "have the kernel cut messages into segments (UDP_SEGMENT, `segments`) towards")?;
            }
            if let (Pacing::Kernel, Some(rate)) = (load.pacing, load.throttle) {
                let rate = kernel_rate(load, rate, connection);
                let set_rate = socket::set_pacing_rate(&connection.socket, rate);
                set(set_rate, "have the kernel pace (SO_MAX_PACING_RATE) what goes to")?;
            }
        } else if load.coalesce {
            let set_coalescing = socket::set_coalescing(&connection.socket, true);
            set(set_coalescing, "have the kernel join datagrams (UDP_GRO, `coalesce`) from")?;
        }
    }
    Ok(if way == Direction::Send {
        Box::new(Sender::new(load, duplex, connections.len()))
    } else {
        Box::new(Receiver::new(load, duplex, connections.len()))
    })
}

/// A flow's share of a thread's payload rate, with the headers that the kernel counts too.
fn kernel_rate(load: &Datagrams, rate: u64, connection: &Connection) -> u64 {
    let is_ipv6 = getsockname(&connection.socket).is_ok_and(|local| local.address_family() == AddressFamily::INET6);
    let message = u64::from(load.message);
    let whole = u128::from(message + ETHERNET_UDP + if is_ipv6 { IPV6 } else { IPV4 });
    let share = u128::from(rate) * whole / u128::from(message) / u128::from(load.connections);
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// Counts of the whole load, where a datagram is a message to the kernel by itself: what is cut or joined on its way (UDP_SEGMENT, UDP_GRO) is
/// counted by other numbers at each place.
fn totals(load: &Datagrams) -> Option<DatagramTotals> {
    (load.segments == 1 && !load.coalesce).then(DatagramTotals::default)
}

/// Bytes that one message from the kernel can have.
fn room(load: &Datagrams) -> usize {
    if load.coalesce { LONGEST_MESSAGE } else { load.message.max(crate::greeting::LENGTH as u32) as usize }
}

/// The phase in which the load is at `now_ns`.
#[inline]
fn phase(times: &Times, now_ns: u64) -> Phase {
    if now_ns < times.begin_ns {
        Phase::Before
    } else if now_ns < times.end_ns {
        Phase::Window
    } else {
        Phase::After
    }
}
