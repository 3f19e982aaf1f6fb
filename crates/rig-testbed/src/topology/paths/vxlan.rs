//! Path `vxlan`: each container has a veth pair into its node's bridge, and the bridges are joined by VXLAN over the wire.

use super::{Definition, Endpoints, Layout, PlanBuilder};
use crate::plan::{Interface, IpNet, Link};
use crate::topology::address::{subnet, v4, v6};
use crate::topology::{Family, UPLINK};

/// The tunnel's interface.
const TUNNEL: &str = "vxlan0";
const VNI: u32 = 42;
/// RFC 7348.
const PORT: u16 = 4789;

pub(super) struct Vxlan;

impl Definition for Vxlan {
    fn name(&self) -> &'static str {
        "vxlan"
    }

    fn layout(&self) -> Layout {
        Layout::Two
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        let mtu = Some(draft.topology.endpoint_mtu());
        for node in 0..draft.nodes() {
            draft.address(node);
            let link = Link::Vxlan {
                vni: VNI,
                port: PORT,
                local: draft.topology.node_address(node).addr(),
                underlay: UPLINK.to_owned(),
                remotes: vec![draft.topology.node_address(1 - node).addr()],
            };
            draft.add((node, None), Interface { mtu, ..Interface::new(TUNNEL, link) });
        }
        draft.bridge(Some(TUNNEL));
    }

    /// Outer IP, UDP 8, VXLAN 8, inner Ethernet 14 (RFC 7348).
    fn overhead(&self, family: Family) -> u32 {
        family.header() + 30
    }

    fn container_address(&self, family: Family, node: usize, container: usize) -> IpNet {
        match family {
            Family::Ipv4 => subnet(v4(10, 0, 1 + node as u8, 3 + container as u8), 16),
            Family::Ipv6 => subnet(v6(0xff, 1 + node as u16, 3 + container as u16), 64),
        }
    }
}
