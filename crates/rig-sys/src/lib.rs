//! The Linux kernel as netrig uses it. The only crate of the project's userspace with `unsafe`; each block says why it
//! is sound.

pub mod advice;
pub mod clock;
pub mod counters;
pub mod cpu;
mod direct;
mod error;
pub mod ethtool;
pub mod identity;
pub mod interrupts;
mod mapping;
pub mod mounts;
pub mod napi;
pub mod netdev;
pub mod netlink;
pub mod netns;
pub mod packet_socket;
pub mod perf;
pub mod piped;
pub mod probe;
pub mod process;
pub mod rss;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod tc;
pub mod uring;
pub mod xdp;

pub use error::{Error, Result};
