//! Path `cni`: containers of one node, whose interfaces and addresses CNI plug-ins make when the testbed stands. Plug-ins know no
//! other machine, so that two nodes have nothing in common but what users' own configuration would lay between them.

use super::{Definition, Endpoints, Layout, PlanBuilder, TopologyRequest};
use crate::topology::TopologyError;

/// What the path's node runs.
const DATAPATH: &str = "cni";

pub(super) struct Cni;

impl Definition for Cni {
    fn name(&self) -> &'static str {
        "cni"
    }

    fn layout(&self) -> Layout {
        Layout::One
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn requirements(&self, asked: &TopologyRequest<'_>) -> Result<(), TopologyError> {
        if asked.nodes.len() > 1 {
            let what = "path cni between two nodes";
            let hint = "a plug-in joins containers of one machine, and what leads to others is configured elsewhere: use a testbed with \
                        one node";
            return Err(TopologyError::new(what, hint));
        }
        asked.check()
    }

    fn datapath(&self) -> Option<&'static str> {
        Some(DATAPATH)
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        for node in 0..draft.nodes() {
            draft.node(node).datapath = Some("CNI plug-ins".to_owned());
        }
    }

    fn addresses_are_given(&self) -> bool {
        true
    }
}
