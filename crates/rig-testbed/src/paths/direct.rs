//! Path `direct`: client and server of the paths with a middle, with nothing between them.

use super::{Definition, Draft, Ends, Layout, three};

pub(super) struct Direct;

impl Definition for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn layout(&self) -> Layout {
        Layout::NoMiddle
    }

    fn ends(&self) -> Ends {
        Ends::Nodes
    }

    fn plan(&self, draft: &mut Draft<'_>) {
        three::join_ends(draft);
    }
}
