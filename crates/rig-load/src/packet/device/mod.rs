//! Ports over the kernel's queues: AF_XDP and AF_PACKET.

mod xdp;

use rig_wire::ethernet::Mac;

use super::plan::PortPlan;
use super::port::{Port, Receive, Transmit};

pub use xdp::Xdp;

/// How ports are opened, beyond their plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The worker drives the interface's receive processing itself, so many frames at a time (SO_PREFER_BUSY_POLL, Linux
    /// 5.11), in place of interrupts. AF_XDP only.
    pub busy_poll: Option<u16>,
}

/// An open port.
#[derive(Debug)]
pub struct Opened {
    /// One for each worker, in the plan's order.
    pub devices: Vec<Device>,
    /// The interface's.
    pub mac: Mac,
    /// By which way frames go, and why not by a better one: sentences for the user.
    pub notes: Vec<String>,
}

/// One worker's queue.
#[derive(Debug)]
pub enum Device {
    Xdp(Xdp),
}

/// A port that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    Xdp(#[from] rig_sys::xdp::OpenError),
}

/// Opens the port of `plan` in the calling thread's network namespace.
pub fn open(plan: &PortPlan, options: &Options) -> Result<Opened, PortError> {
    xdp::open(plan, options)
}
