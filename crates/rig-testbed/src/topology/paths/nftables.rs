//! Path `nftables`: between client and server nftables, which translates both addresses of each packet.

use super::{Definition, Endpoints, Layout, PlanBuilder, three};

pub(super) struct Nftables;

impl Definition for Nftables {
    fn name(&self) -> &'static str {
        "nftables"
    }

    fn layout(&self) -> Layout {
        Layout::Dut
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        three::put_between(draft, "nftables, DNAT and masquerade", three::ReceiveCpus::BY_KERNEL);
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        three::route_pools(draft);
    }
}
