//! AF_XDP: frames between an interface's queues and this process, past the kernel's network stack
//! (Documentation/networking/af_xdp.rst of the kernel).
//!
//! A [`Port`] takes queues of an interface over: a program at the interface, made here instruction by instruction, hands
//! the frames that a [`Filter`] names to a socket for each queue. The program hangs on descriptors of this process alone,
//! so it goes when the process ends, even by a crash.

mod assemble;
pub(crate) mod bpf;
mod error;
mod filter;
mod frames;
mod link;
mod live;
mod port;
mod redirect;
mod ring;
mod socket;

pub use bpf::each_of_hash;
pub use error::OpenError;
pub use filter::{Filter, PortAddresses};
pub(crate) use link::Link;
pub use live::LiveFrameSender;
pub use port::{Mode, Options, Port, Queue, QueueCpu, SendPath, Transmitter};
pub use redirect::{offload_takes_redirected, take_redirected};
pub use socket::{Meter, Receiver, Sender, Statistics};

/// By its number: of what no kernel tells in another way.
fn kernel_is_before(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(major), Some(minor))
}
