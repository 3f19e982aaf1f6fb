//! A client of container engines: Docker's Engine API as Docker and Podman serve it on a socket of this machine. Knows no testbed.
//!
//! Sources: Docker's "Engine API" reference, versions 1.41 (Docker 20.10) to 1.51; podman-system-service(1), whose compatible API is that of
//! Docker.

#![forbid(unsafe_code)]

mod container;
mod engine;
mod http;
mod image;
mod network;
mod program;

use std::io;
use std::path::PathBuf;

pub use container::{Container, ContainerSpec, HeldContainer, PublishedPort, without_empty};
pub use engine::{Engine, Labels, Version};
pub use image::{Image, OwnImage};
pub use network::{AddressPool, NetworkSpec};
pub use program::run_in_container;

/// Why an engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("no container engine answers at {}: {why}", .socket.display())]
    Absent { socket: PathBuf, why: io::Error },
    #[error("this user may not ask the container engine at {}: be root, or of the group that the socket belongs to", .socket.display())]
    Forbidden { socket: PathBuf },
    /// An answer that is no success, with the engine's own words.
    #[error("the container engine refuses to {what}: {why} (HTTP status {status})")]
    Refused { what: String, status: u16, why: String },
    #[error("{what}: the container engine's answer is not understood: {why}")]
    Garbled { what: String, why: String },
    #[error("{what}: {why}")]
    Lost { what: String, why: io::Error },
}

impl EngineError {
    /// Whether what was asked about is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

pub type Result<T, E = EngineError> = std::result::Result<T, E>;
