//! Path `bridge`: each container has a veth pair into its node's bridge, and the wire is a port of that bridge.

use super::{Definition, Endpoints, Layout, PlanBuilder};
use crate::topology::UPLINK;

pub(super) struct Bridge;

impl Definition for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn layout(&self) -> Layout {
        Layout::OneOrTwo
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::ContainersOrNode
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        draft.address_nodes_without_containers();
        draft.bridge(Some(UPLINK));
    }

    fn nodes_are_beside_containers(&self) -> bool {
        true
    }
}
