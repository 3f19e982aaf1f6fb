//! Testbeds: validate all, then build; what was built goes with the value that holds it.

mod build;
mod draw;
pub mod kept;
mod middle;
mod share;
pub mod topology;

pub use build::{Place, SERVER_LINK, Testbed, UPLINK};
pub use middle::Middle;
pub use share::{Shares, share_cpus, split_cores};
