//! The interfaces that a host has, of which plans may be given one.

use std::collections::BTreeMap;

use anyhow::Result;
use ipnet::IpNet;
use rig_sys::ethtool;
use rig_sys::netlink::{InterfaceAddress, Link, Netlink};
use rig_sys::netns::NetNs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::namespaces::Uses;
use crate::plan::Mac;

/// An Ethernet interface of the host's own network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostInterface {
    pub name: String,
    #[schemars(with = "String")]
    pub mac: Mac,
    /// Largest packet in bytes without the Ethernet header.
    pub mtu: u32,
    /// It is set up and has a carrier.
    pub up: bool,
    /// But for those of link scope.
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
    /// Why the host cannot do without it, so that it can be shared and not taken; none where it can be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
}

/// Virtual interfaces, as `ip link` calls their kinds, that may lead to another host. Those of hardware have none.
const KINDS: [&str; 6] = ["veth", "vlan", "bond", "bridge", "macvlan", "team"];

/// Those of this process's network namespace, in the order of their numbers.
///
/// # Errors
/// When the kernel does not tell.
pub fn interfaces() -> Result<Vec<HostInterface>> {
    let uses = Uses::read(&Netlink::here()?)?;
    Ok(uses.links.iter().filter(|link| may_lead_elsewhere(link)).filter_map(|link| describe(link, &uses)).collect())
}

/// What the cards of this process's network namespace are and how they are set ([`Host::cards`](super::Host::cards)).
///
/// # Errors
/// When the kernel does not tell.
pub fn cards() -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let here = NetNs::of_current_thread()?;
    let of = |one: HostInterface| Ok((one.name.clone(), ethtool::card(&here, &one.name)?));
    interfaces()?.into_iter().map(of).collect()
}

fn may_lead_elsewhere(link: &Link) -> bool {
    let is_of_kind = link.kind.as_deref().is_none_or(|kind| KINDS.contains(&kind));
    link.is_ethernet && !link.without_neighbors && is_of_kind
}

/// `None` of what has no Ethernet address.
fn describe(link: &Link, uses: &Uses) -> Option<HostInterface> {
    let own = |own: &&InterfaceAddress| own.interface() == link.index && !own.is_of_link();
    let net = |own: &InterfaceAddress| IpNet::new(own.address()?, own.prefix()).ok();
    Some(HostInterface {
        name: link.name.clone(),
        mac: Mac(link.mac?),
        mtu: link.mtu,
        up: link.up,
        addresses: uses.addresses.iter().filter(own).filter_map(net).collect(),
        in_use: uses.of(link),
    })
}
