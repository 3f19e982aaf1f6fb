//! Path `veth`: two containers of one node, joined by a veth pair and nothing else.

use super::{Definition, Endpoints, Layout, PlanBuilder, TopologyRequest};
use crate::plan::{Interface, Link};
use crate::topology::{TopologyError, UPLINK};

pub(super) struct Veth;

impl Definition for Veth {
    fn name(&self) -> &'static str {
        "veth"
    }

    fn layout(&self) -> Layout {
        Layout::One
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Containers
    }

    fn requirements(&self, asked: &TopologyRequest<'_>) -> Result<(), TopologyError> {
        asked.check()?;
        match asked.nodes.iter().map(|node| node.containers.len()).sum() {
            2 => Ok(()),
            count => {
                let what = format!("path veth between {count} containers");
                Err(TopologyError::new(what, "a veth pair has two ends: use two containers, or path colocated"))
            }
        }
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        let mtu = Some(draft.topology.endpoint_mtu());
        let [near, far] = [0, 1].map(|container| vec![draft.topology.container_address(0, container)]);
        let end = Interface { mtu, addresses: far, ..Interface::new(UPLINK, Link::Far) };
        let far = draft.add((0, Some(1)), end);
        let end = Interface { mtu, addresses: near, ..Interface::new(UPLINK, Link::Veth { far }) };
        draft.add((0, Some(0)), end);
    }
}
