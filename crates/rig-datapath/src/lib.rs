//! Datapaths as eBPF programs, each with its control plane and with a model of its rules in plain Rust.
//!
//! The programs are C (bpf/), compiled by clang at build time and loaded by libbpf, which is built in. They are loaded
//! by name instead of through generated skeletons, because those contain unsafe code.

#![forbid(unsafe_code)]

pub mod balancer;
pub mod cputime;
pub mod napi;
pub mod receive;
pub mod spin;
pub mod steer;
pub mod vrouter;

/// A hash of the eBPF objects that are built in: it tells builds apart whose programs differ.
pub const OBJECTS: &str = env!("EBPF_OBJECTS");

mod error;
mod grace;
mod kernel;
#[cfg(test)]
mod layout;
mod libbpf_log;
mod maps;
mod object;
mod objects;
mod plain;
mod reasons;
mod rights;
pub mod test_run;
#[cfg(test)]
mod verified;

pub use error::{ConfigError, Error};
pub use libbpf_log::keep_verifier_logs;
