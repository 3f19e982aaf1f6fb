//! Path `macvlan`: each container has a macvlan interface on its node's wire.

use super::{Definition, Endpoints, Layout, PlanBuilder, XdpHook};
use crate::plan::{Interface, InterfaceRef, Link};
use crate::topology::UPLINK;

pub(super) struct Macvlan;

impl Definition for Macvlan {
    fn name(&self) -> &'static str {
        "macvlan"
    }

    fn layout(&self) -> Layout {
        Layout::Two
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::ContainersOrNode
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        draft.address_nodes_without_containers();
        for node in 0..draft.nodes() {
            let over = InterfaceRef::new(&draft.own(node).name, UPLINK);
            for container in 0..draft.containers(node) {
                let address = draft.topology.container_address(node, container);
                let link = Link::Macvlan { over: over.clone() };
                let interface = Interface { addresses: vec![address], ..Interface::new(UPLINK, link) };
                draft.add((node, Some(container)), interface);
            }
        }
    }

    fn nodes_are_beside_containers(&self) -> bool {
        true
    }

    fn xdp_hook(&self) -> XdpHook {
        XdpHook::Absent
    }
}
