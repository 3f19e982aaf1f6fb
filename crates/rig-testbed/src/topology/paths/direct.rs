//! Path `direct`: client and server of the paths with a DUT, with nothing between them.

use super::{Definition, Endpoints, Layout, PlanBuilder, three};

pub(super) struct Direct;

impl Definition for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn layout(&self) -> Layout {
        Layout::NoDut
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        three::join_ends(draft);
    }
}
