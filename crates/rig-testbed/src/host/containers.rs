//! How a program on a node finds the namespaces of the node's containers, which have no names: by the descriptors of the process that
//! holds them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::namespaces::Namespace;

/// An environment variable with their paths, by `node/container`, as JSON.
const VARIABLE: &str = "NETRIG_CONTAINERS";

/// Tells a program that is to be started in a node's own namespace, the first of these, where the others are.
pub(super) fn tell(command: &mut Command, namespaces: &[Namespace]) -> Result<()> {
    let path = |own: &Namespace| PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), own.ns.raw_fd()));
    let paths: BTreeMap<&str, PathBuf> = namespaces.iter().skip(1).map(|own| (own.name.as_str(), path(own))).collect();
    command.env(VARIABLE, serde_json::to_string(&paths)?);
    Ok(())
}

/// The network namespaces of the containers of the node that this process was started on ([`Host::start`](super::Host::start)), each by a
/// path that can be opened as long as the node stands.
///
/// # Errors
/// When it was not started in the node's own namespace.
pub fn container_namespaces() -> Result<BTreeMap<String, PathBuf>> {
    let text = std::env::var(VARIABLE).context("find the containers of the node: this program is not on one")?;
    serde_json::from_str(&text).context("read where the containers of the node are")
}
