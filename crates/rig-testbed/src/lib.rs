//! Testbeds: everything is validated before anything is built, and dropping the value removes what was built. Also the counters
//! of their nodes.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod datapath;
mod dut;
pub mod frames;
pub mod host;
pub mod meter;
pub mod namespaces;
pub mod node;
mod placement;
pub mod plan;
pub mod preflight;
mod process_client;
pub mod receive_queues;
pub mod registry;
pub mod requirements;
pub mod sampler;
pub mod stacks;
mod testbed;
pub mod topology;

pub use dut::Dut;
pub use namespaces::Namespace;
pub use placement::{Placement, partition_cpus, split_cores};
pub use rig_lines::LostPeer;
pub use testbed::Testbed;
pub use topology::{SERVER_LINK, UPLINK};

/// The ports at which workers of a load listen: NTttcp's default and, for the load under another, the next one.
pub const LOAD_PORTS: [u16; 2] = [5001, 5002];
