//! Testbeds: validate all, then build; what was built goes with the value that holds it. And what their nodes count.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod datapath;
pub mod host;
pub mod kept;
pub mod meter;
mod middle;
pub mod namespaces;
pub mod node;
mod paths;
pub mod plan;
pub mod sampler;
mod share;
mod testbed;
pub mod topology;

pub use middle::Middle;
pub use namespaces::Place;
pub use share::{Shares, share_cpus, split_cores};
pub use testbed::Testbed;
pub use topology::{SERVER_LINK, UPLINK};
