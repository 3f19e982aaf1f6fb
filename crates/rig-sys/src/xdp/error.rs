//! Why a port cannot be opened.

use crate::advice::{Capability, XDP, rights};
use crate::error::Error;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no interface {0} here: `ip link` lists them")]
    NoInterface(String),
    #[error("interface {interface} has no queue {queue}: {advice}")]
    NoQueue { interface: String, queue: u32, advice: String },
    #[error("{operation} is not allowed: {}; ports of driver `packet` do without", rights(XDP))]
    NotPermitted { operation: String },
    #[error("making a packet socket is not allowed: {}", rights(&[Capability::NetRaw]))]
    NoPacketSocket,
    #[error(
        "interface {interface} has another XDP program{program}: see `ip link show {interface}`; stop the \
         program that attached it, or `ip link set {interface} xdp off`"
    )]
    Occupied { interface: String, program: String },
    #[error("queue {queue} of {interface} is in use by another AF_XDP socket: stop that program or take another queue")]
    QueueInUse { interface: String, queue: u32 },
    #[error(
        "{interface} does not take an XDP program: the MTU of it or of its peer ({mtu} here) is too large for frames in \
         one page; set both to 3498 or less, or use driver `packet`"
    )]
    Mtu { interface: String, mtu: u32 },
    #[error(
        "{interface} does not take an XDP program: its peer has more transmit queues than it has receive queues; give \
         it as many with `ethtool -L`"
    )]
    Queues { interface: String },
    #[error(
        "frames of {frame} bytes are too long for AF_XDP, which takes {max}{more}: lower the MTU of the port, or use \
         driver `packet`"
    )]
    Frame { frame: usize, max: usize, more: &'static str },
    #[error(
        "{interface}'s driver takes no AF_XDP socket for frames of several buffers: lower its MTU to 1500, or use driver `packet`"
    )]
    Pieces { interface: String },
    #[error("memory for {bytes} bytes of frames may not be locked: raise RLIMIT_MEMLOCK (`ulimit -l unlimited`)")]
    LockedMemory { bytes: usize },
    #[error("{interface}'s driver has no XDP: driver `xdp-generic` or `packet` works on any interface")]
    NoDriverSupport { interface: String },
    #[error(
        "{interface}'s driver has no queue for each CPU to spare for an XDP program, as virtio_net needs before Linux 5.13: `ethtool -L` with \
         fewer queues leaves some; driver `xdp-generic` or `packet` works with all"
    )]
    NoSpareQueues { interface: String },
    #[error("{needed}; this kernel is {release}: use driver `packet`")]
    Kernel { needed: &'static str, release: String },
    #[error(transparent)]
    Failed(#[from] Error),
}
