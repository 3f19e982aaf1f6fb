//! Path `docker`: containers that a container engine has made, on networks of the engine. With two nodes each is a machine with an
//! engine of its own, and what the containers have in common is the wire between them.

use super::{Definition, Endpoints, Layout, PlanBuilder};

/// What the path's nodes run.
const DATAPATH: &str = "docker";

pub(super) struct Docker;

impl Definition for Docker {
    fn name(&self) -> &'static str {
        "docker"
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

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        draft.wire();
        for node in 0..draft.nodes() {
            draft.address(node);
            draft.node(node).datapath = Some("container engine".to_owned());
        }
    }

    fn addresses_are_given(&self) -> bool {
        true
    }
}
