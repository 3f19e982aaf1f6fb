//! Path `vrouter`: each container has a veth pair into its node, where netrig's own overlay router takes its packets to
//! other containers of the node, and by tunnels over the wire to those of the other node.
//!
//! Tunnels begin and end at IPv4 addresses of the nodes, whatever the containers' family is.

use super::{Definition, Draft, Endpoints, Layout};
use crate::plan::Cidr;
use crate::topology::Family;
use crate::topology::address::v4;

/// What the path's nodes run.
pub(super) const DATAPATH: &str = "vrouter";

pub(super) struct Vrouter;

impl Definition for Vrouter {
    fn name(&self) -> &'static str {
        "vrouter"
    }

    fn layout(&self) -> Layout {
        Layout::OneOrTwo
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn datapath(&self) -> Option<&'static str> {
        Some(DATAPATH)
    }

    fn plan(&self, draft: &mut Draft<'_>) {
        draft.wire();
        for node in 0..draft.nodes() {
            draft.node(node).datapath = Some("vRouter (tc)".to_owned());
            if draft.topology.wire().is_some() {
                draft.uplink(node).addresses.push(underlay(node));
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
    fn takes_xdp(&self) -> bool {
        false
    }
}

/// Where a node's tunnels begin and end.
fn underlay(node: usize) -> Cidr {
    Cidr { address: v4(192, 168, 255, 1 + node as u8), prefix: 24 }
}
