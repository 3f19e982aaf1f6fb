//! Ports over the kernel's queues: AF_XDP and AF_PACKET.

mod packet;
mod xdp;

use rig_sys::xdp::{Filter, Mode, OpenError, PortAddresses, QueueCpu, SendPath};
use rig_wire::ethernet::{HEADER, Mac, TAG};

use super::plan::{Capture, Driver, PortPlan};
use super::port::{Port, Receive, Transmit};

pub use packet::Packet;
pub use xdp::{LiveXdp, Xdp};

/// How ports are opened, beyond their plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The thread drives the interface's receive processing itself, so many frames at a time (SO_PREFER_BUSY_POLL, Linux
    /// 5.11), in place of interrupts. AF_XDP only.
    pub busy_poll: Option<u16>,
    /// By which way frames leave an AF_XDP port.
    pub sending: SendPath,
}

/// An open port.
#[derive(Debug)]
pub struct OpenPort {
    /// One for each thread, in the plan's order.
    pub devices: Vec<Device>,
    /// The interface's.
    pub mac: Mac,
    pub driver: PortDriver,
    /// By which way frames go, and why not by a better one: sentences for the user.
    pub notes: Vec<String>,
}

/// By which way a port's frames leave and enter the kernel when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortDriver {
    Xdp,
    /// In the kernel's generic hook.
    XdpGeneric,
    /// AF_XDP to receive; frames leave without socket buffers where they can.
    Live,
    Packet,
}

impl PortDriver {
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "AF_XDP",
            Self::XdpGeneric => "AF_XDP, generic",
            Self::Live => "AF_XDP, live frames",
            Self::Packet => "AF_PACKET",
        }
    }

    /// Whether each frame is a socket buffer both ways, which is slow.
    pub fn is_slow(self) -> bool {
        matches!(self, Self::XdpGeneric | Self::Packet)
    }
}

/// One thread's queue. Each variant is a [`Port`] of its own, so that the engine's loop is made for it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each thread, and it is taken apart at once")]
pub enum Device {
    /// AF_XDP both ways.
    Xdp(Xdp),
    /// AF_XDP to receive; frames leave without socket buffers where they can.
    Live(LiveXdp),
    /// AF_PACKET.
    Packet(Packet),
}

impl Device {
    /// Reads the kernel's counters of this queue, from any thread.
    pub fn meter(&self) -> Meter {
        Meter(match self {
            Self::Xdp(port) => Kind::Xdp(port.meter()),
            Self::Live(port) => Kind::Xdp(port.meter()),
            Self::Packet(port) => Kind::Packet(port.meter()),
        })
    }
}

#[derive(Debug, Clone)]
pub struct Meter(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Xdp(rig_sys::xdp::Meter),
    Packet(rig_sys::packet_socket::Meter),
}

/// Frames that the kernel did not hand over, since the port was opened. What the interface itself drops is in its own
/// counters (`rig_sys::counters`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Received frames for which the thread was too late: no room in its ring, and no buffer (`imissed`).
    pub missed: u64,
    /// Received frames that do not fit into a buffer of AF_XDP; packet sockets hand over what fits (`ierrors`).
    pub unfit: u64,
    /// Frames to send that the kernel would not take (`oerrors`).
    pub refused: u64,
}

impl Meter {
    /// Whether frames leave without socket buffers now.
    pub fn is_live(&self) -> bool {
        matches!(&self.0, Kind::Xdp(meter) if meter.is_live())
    }

    pub fn losses(&self) -> rig_sys::Result<Losses> {
        Ok(match &self.0 {
            Kind::Xdp(meter) => {
                let read = meter.read()?;
                let missed = read.rx_ring_full + read.rx_no_buffer;
                Losses { missed, unfit: read.rx_too_long, refused: read.tx_invalid + read.tx_refused }
            }
            Kind::Packet(meter) => {
                let read = meter.read()?;
                Losses { missed: read.rx_dropped, unfit: 0, refused: read.tx_refused }
            }
        })
    }
}

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("port {interface}: {reason}")]
pub struct PortError {
    pub interface: String,
    #[source]
    pub reason: OpenError,
}

/// Opens the port of `plan` in the calling thread's network namespace. Its devices may go to threads elsewhere.
pub fn open(plan: &PortPlan, options: &Options) -> Result<OpenPort, PortError> {
    let opened = match plan.driver {
        Driver::Xdp => xdp::open(plan, options, Mode::Driver),
        Driver::XdpGeneric => xdp::open(plan, options, Mode::Generic),
        Driver::Packet => packet::open(plan),
        Driver::Auto => match xdp::open(plan, options, Mode::Any) {
            Err(why) if is_mended_by_packet_sockets(&why) => packet::open(plan).map(|mut opened| {
                let note = format!(
                    "{}: packet sockets, which are slow, because AF_XDP is not possible: {why}",
                    plan.interface
                );
                opened.notes.insert(0, note);
                opened
            }),
            done => done,
        },
    };
    opened.map_err(|reason| PortError { interface: plan.interface.clone(), reason })
}

/// Whether packet sockets do not have the problem. Where another process has its program or socket at the interface, falling
/// back to a slower driver would hide the conflict from the user.
fn is_mended_by_packet_sockets(error: &OpenError) -> bool {
    match error {
        OpenError::NotPermitted { .. }
        | OpenError::Mtu { .. }
        | OpenError::Queues { .. }
        | OpenError::Frame { .. }
        | OpenError::Pieces { .. }
        | OpenError::LockedMemory { .. }
        | OpenError::NoDriverSupport { .. }
        | OpenError::NoSpareQueues { .. }
        | OpenError::Kernel { .. } => true,
        OpenError::NoInterface(_)
        | OpenError::NoQueue { .. }
        | OpenError::NoPacketSocket
        | OpenError::Occupied { .. }
        | OpenError::QueueInUse { .. }
        | OpenError::Failed(_) => false,
    }
}

/// Bytes of the largest frame, a tag included.
fn frame(plan: &PortPlan) -> usize {
    HEADER + TAG + usize::from(plan.mtu)
}

fn places(plan: &PortPlan) -> Vec<QueueCpu> {
    plan.threads.iter().map(|place| QueueCpu { queue: place.queue, cpu: place.cpu }).collect()
}

fn filter(plan: &PortPlan) -> Filter {
    if plan.take == Capture::All {
        return Filter::All;
    }
    let mut own = PortAddresses { addresses: vec![(plan.address, 1)], tunnels: Vec::new() };
    match &plan.vxlan {
        // What is inside the tunnel is not seen from outside.
        Some(vxlan) => own.tunnels.push((vxlan.local, vxlan.local_count)),
        None => own.addresses.extend(plan.local.iter().map(|range| (range.first, range.count))),
    }
    Filter::Addresses(own)
}
