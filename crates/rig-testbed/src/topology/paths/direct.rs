//! Path `direct`: client and server of the paths with a DUT, with nothing between them.

use super::{Definition, Draft, Endpoints, Layout, three};

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

    fn plan(&self, draft: &mut Draft<'_>) {
        three::join_ends(draft);
    }
}
