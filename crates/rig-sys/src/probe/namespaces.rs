//! What can be built in network namespaces, found by building it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{ProbeResult, Refusal};
use crate::error::Result;
use crate::ethtool::{self, Offload};
use crate::netlink::{Netlink, TokenBucket, VethPair, Vxlan};
use crate::netns::{NetNs, Sysfs, enter_user_namespace, may_create_namespaces};
use serde::{Deserialize, Serialize};

/// How this process comes by network namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Access {
    /// With the privileges that it has.
    Direct,
    /// As root of a user namespace of its own.
    UserNamespace,
    /// Not at all.
    Refused(Refusal),
}

/// Something that testbeds are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Feature {
    Veth,
    Bridge,
    Macvlan,
    Vxlan,
    /// Rate limits by the tbf queueing discipline.
    TokenBucket,
    /// Forwarding between the interfaces of a namespace.
    Forwarding,
    /// Addresses of IPv6 and forwarding between them.
    Ipv6,
    /// Switching an interface's segmentation and receive offloads.
    Offloads,
    /// sysfs of a namespace, where receive processing is configured.
    Sysfs,
    /// Choosing the CPUs that process what an interface receives (receive packet steering).
    ReceiveSteering,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Namespaces {
    pub access: Access,
    /// What was tried. A feature that stands on one that failed is not here.
    pub features: BTreeMap<Feature, ProbeResult>,
}

impl Namespaces {
    pub(super) fn try_out() -> Self {
        let may_create = may_create_namespaces();
        let created = if may_create { NetNs::create().map(drop) } else { through_user_namespace() };
        let access = match created {
            Err(error) => Access::Refused(error.into()),
            Ok(()) if may_create => Access::Direct,
            Ok(()) => Access::UserNamespace,
        };
        let features = match access {
            Access::Refused(_) => BTreeMap::new(),
            _ => try_features(),
        };
        Self { access, features }
    }
}

fn through_user_namespace() -> Result<()> {
    enter_user_namespace()?;
    NetNs::create().map(drop)
}

fn try_features() -> BTreeMap<Feature, ProbeResult> {
    let mut tried = BTreeMap::new();
    // An error that keeps the workshop from being built is reported for its first piece.
    match TestNamespaces::open() {
        Err(error) => drop(tried.insert(Feature::Veth, Err(error.into()))),
        Ok(mut workshop) => workshop.try_all(&mut tried),
    }
    tried
}

/// Whether the kernel has ipvlan: tried in namespaces that are gone afterwards.
///
/// # Errors
/// Why not.
pub fn ipvlan() -> Result<()> {
    let mut workshop = TestNamespaces::open()?;
    workshop.netlink.add_veth(&VethPair { name: NEAR, peer: FAR, peer_ns: &workshop.far, queues: 1, mtu: MTU })?;
    workshop.netlink.add_ipvlan("ipvlan0", NEAR)
}

/// Two namespaces to build in.
struct TestNamespaces {
    near: NetNs,
    far: NetNs,
    netlink: Netlink,
}

const NEAR: &str = "near0";
const FAR: &str = "far0";
const MTU: u32 = 1500;

impl TestNamespaces {
    fn open() -> Result<Self> {
        let (near, far) = (NetNs::create()?, NetNs::create()?);
        Ok(Self { netlink: Netlink::open(&near)?, near, far })
    }

    fn try_all(&mut self, tried: &mut BTreeMap<Feature, ProbeResult>) {
        let mut note = |feature, result: Result<()>| {
            let outcome = result.map_err(Refusal::from);
            let worked = outcome.is_ok();
            tried.insert(feature, outcome);
            worked
        };
        note(Feature::Bridge, self.netlink.add_bridge("bridge0", MTU));
        note(Feature::Forwarding, self.near.sysctl("net.ipv4.ip_forward", "1"));
        note(Feature::Ipv6, self.use_ipv6());
        let announced = self.near.sysctl("net.core.rps_default_mask", STEERED);
        let pair = VethPair { name: NEAR, peer: FAR, peer_ns: &self.far, queues: 1, mtu: MTU };
        if !note(Feature::Veth, self.netlink.add_veth(&pair)) {
            return;
        }
        note(Feature::Offloads, self.switch_offloads());
        note(Feature::Macvlan, self.netlink.add_macvlan("macvlan0", NEAR, &self.far));
        note(Feature::Vxlan, self.netlink.add_vxlan(&VXLAN));
        note(Feature::TokenBucket, self.netlink.set_token_bucket(NEAR, BUCKET));
        match self.near.sysfs() {
            Err(error) => drop(note(Feature::Sysfs, Err(error))),
            Ok(sysfs) => {
                note(Feature::Sysfs, Ok(()));
                note(Feature::ReceiveSteering, steer(announced, &sysfs));
            }
        }
    }

    fn use_ipv6(&mut self) -> Result<()> {
        self.near.sysctls(&[("net.ipv6.conf.lo.disable_ipv6", "0"), ("net.ipv6.conf.all.forwarding", "1")])?;
        self.netlink.add_address("lo", ADDRESS, 64)
    }

    fn switch_offloads(&self) -> Result<()> {
        [Offload::Tso, Offload::Gso, Offload::Gro]
            .into_iter()
            .try_for_each(|offload| ethtool::set(&self.near, NEAR, offload, false))
    }
}

/// The mask of CPU 0, which every machine has.
const STEERED: &str = "1";

/// Without root, only the mask that was announced before the interface was made can be had (Linux 6.4).
fn steer(announced: Result<()>, sysfs: &Sysfs) -> Result<()> {
    match announced {
        Err(error) if error.source.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = "queues/rx-0/rps_cpus";
    // The kernel pads masks with zeroes to the number of possible CPUs.
    if sysfs.read(NEAR, file)?.replace(',', "").trim_start_matches('0') == STEERED {
        return Ok(());
    }
    sysfs.write(NEAR, file, STEERED)
}

const VXLAN: Vxlan<'_> = Vxlan {
    name: "vxlan0",
    vni: 1,
    local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    port: 4789,
    underlay: NEAR,
    mtu: MTU - 50,
};

/// Of the block for documentation (RFC 3849).
const ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));

const BUCKET: TokenBucket = TokenBucket { rate: 125_000_000, burst: 128 * 1024, limit: 512 * 1024 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_veth_carries_is_tried_and_nothing_stays() {
        if let Err(error) = NetNs::create() {
            return rig_skip::skip(rig_skip::Lack::Root, error);
        }
        let links = || std::fs::read_to_string("/proc/net/dev").unwrap().lines().count();
        let before = links();
        let found = Namespaces::try_out();
        assert_eq!(found.access, Access::Direct);
        assert_eq!(found.features.get(&Feature::Veth), Some(&Ok(())), "every kernel that netrig is tested on has veth");
        assert!(found.features.contains_key(&Feature::Vxlan) && found.features.contains_key(&Feature::Sysfs));
        assert_eq!(links(), before);
    }
}
