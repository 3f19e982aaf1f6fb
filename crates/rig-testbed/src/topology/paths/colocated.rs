//! Path `colocated`: two containers of one node, joined by the node's bridge.

use super::{Definition, Endpoints, Layout, PlanBuilder};

pub(super) struct Colocated;

impl Definition for Colocated {
    fn name(&self) -> &'static str {
        "colocated"
    }

    fn layout(&self) -> Layout {
        Layout::One
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.bridge(None);
    }
}
