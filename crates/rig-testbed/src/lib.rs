//! Testbeds: validate all, then build; what was built goes with the value that holds it. And what their nodes count.
#![forbid(unsafe_code)]

pub mod accounting;
mod build;
pub mod datapath;
mod draw;
pub mod kept;
pub mod meter;
mod middle;
pub mod node;
mod share;
pub mod topology;

pub use build::{Place, SERVER_LINK, Testbed, UPLINK};
pub use middle::Middle;
pub use share::{Shares, share_cpus, split_cores};
