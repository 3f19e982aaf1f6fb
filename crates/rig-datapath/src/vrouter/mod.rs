//! The overlay vRouter: tc programs in bpf/vrouter/vrouter.bpf.c and what configures and watches them.
//!
//! ```text
//! Config --validate--> Router::apply --maps--> `from_container`, `from_underlay` on each packet
//! Sweeper::sweep ends flows that have been silent for too long
//! ```
//!
//! Flows go on when routes and rules change: each remembers under which configuration it was let through, and its next
//! packet is held against the new one.

mod attach;
mod closed;
mod config;
mod control;
mod exchange;
pub mod keep;
mod load;
mod log;
pub mod model;
mod numbers;
mod reason;
pub mod replay;
mod rules;
pub(crate) mod shape;
mod sizes;
mod spans;
mod status;
mod sweep;
mod tables;
mod trace;
mod trial;

pub use closed::open_all;
pub use config::{
    Action, Analyser, Config, Encapsulation, FIRST_LABEL, Flood, FlowActions, Interface, LAST_ANALYSER, LAST_LABEL,
    LAST_VNI, LAST_VRF, List, MOST_LISTS, MOST_MEMBERS, MOST_RULES, MOST_WAYS, NextHop, Peer, Policy, ROUTER_MAC, Rule,
    Service, Tunnel, Underlay, Vni, Vrf,
};
pub use control::Router;
pub use log::{Log, LogCounts, LogRecord};
pub use reason::Reason;
pub use sizes::Sizes;
pub use status::{CopyCount, DroppedPacket, Flow, ForwardingCounters, MirrorCount, Source, Traffic};
pub use sweep::{Sweeper, Timeouts};
pub use tables::{LabeledNextHop, NextHopTarget};
pub use trace::Decision;
pub use trial::{Side, TestRunResult, Verdict};
