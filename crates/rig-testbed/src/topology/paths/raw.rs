//! Path `raw`: the nodes' own stacks over the wire, and no container.

use super::{Definition, Endpoints, Layout, PlanBuilder};

pub(super) struct Raw;

impl Definition for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn layout(&self) -> Layout {
        Layout::Two
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        (0..draft.nodes()).for_each(|node| draft.address(node));
    }
}
