//! Path `vrouter`: each container has a veth pair into its node, where netrig's own overlay router takes its packets to
//! other containers of its network on the node, and by tunnels over the wires to those of other nodes. All networks have the
//! same addresses.
//!
//! Tunnels begin and end at IPv4 addresses of the nodes, also when the containers have IPv6 addresses.

use super::{Definition, Endpoints, Layout, PlanBuilder, TopologyRequest, XdpHook};
use crate::plan::{IpNet, Route};
use crate::topology::address::subnet;
use crate::topology::address::v4;
use crate::topology::{Family, TopologyError, uplink_to};

/// What the path's nodes run.
pub(super) const DATAPATH: &str = "vrouter";

/// Bytes of the largest packet that a tc program may make (the kernel's SKB_MAX_ALLOC, of four pages); those that are still to
/// be cut into segments may be larger.
const LARGEST: u32 = 16_000;

pub(super) struct Vrouter;

impl Definition for Vrouter {
    fn name(&self) -> &'static str {
        "vrouter"
    }

    fn layout(&self) -> Layout {
        Layout::Several
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn requirements(&self, asked: &TopologyRequest<'_>) -> Result<(), TopologyError> {
        asked.check()?;
        match asked.wire {
            Some(wire) if wire.mtu > LARGEST => {
                let what = format!("path vrouter with an MTU of {} bytes", wire.mtu);
                let hint = format!("choose at most {LARGEST} bytes: tc programs make no larger packets");
                Err(TopologyError::new(what, hint))
            }
            _ => Ok(()),
        }
    }

    fn datapath(&self) -> Option<&'static str> {
        Some(DATAPATH)
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        for node in 0..draft.nodes() {
            draft.node(node).datapath = Some("vRouter (tc)".to_owned());
            match (draft.topology.wire().is_some(), draft.nodes()) {
                (false, _) => {}
                (true, 2) => draft.uplink(node).addresses.push(underlay(node)),
                (true, nodes) => {
                    for other in (0..nodes).filter(|other| *other != node) {
                        lead_to(draft, node, other);
                    }
                }
            }
            for container in 0..draft.containers(node) {
                let address = draft.topology.container_address(node, container);
                let (_, end) = draft.veth(node, container);
                end.addresses.push(address);
            }
        }
    }

    /// VXLAN's, which takes the most: with one MTU for all encapsulations, and for the kernel's own VXLAN, their figures can be
    /// compared. Outer IP 20, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
    fn overhead(&self, _: Family) -> u32 {
        50
    }

    /// Packets come to containers past their interfaces' drivers (bpf_redirect_peer).
    fn xdp_hook(&self) -> XdpHook {
        XdpHook::PassedBy
    }
}

/// The way to another of many nodes. Where a node's tunnels end is one address, whichever wire they come by.
fn lead_to(draft: &mut PlanBuilder<'_>, node: usize, other: usize) {
    let link = uplink_to(node, other);
    let [own, far] = [node, other].map(|node| IpNet::from(underlay(node).addr()));
    let space = draft.own(node);
    space.routes.push(Route::on_link(far, link.as_str()));
    if let Some(interface) = space.interfaces.iter_mut().find(|interface| interface.name == link) {
        interface.addresses.push(own);
    }
}

/// Where a node's tunnels begin and end.
fn underlay(node: usize) -> IpNet {
    subnet(v4(192, 168, 255, 1 + node as u8), 24)
}
