//! The vRouter of rig-datapath as a service: what a set of nodes shall do, and what each of them has to do for it.
//!
//! ```text
//! vrouter.toml --settings--> Settings ──┐
//! RouteSource: file, runner, BGP --> RouteTable ──┼── compile --> rig_datapath::vrouter::Config of one node
//! the node's kernel, as a value: Site ──┘
//! ```

#![forbid(unsafe_code)]

pub mod compile;
pub mod routes;
pub mod settings;
