//! Path `balancer`: between client and server netrig's own balancer, as XDP programs.

use super::{Definition, Endpoints, Layout, PlanBuilder, three};

pub(super) struct Balancer;

impl Definition for Balancer {
    fn name(&self) -> &'static str {
        "balancer"
    }

    fn layout(&self) -> Layout {
        Layout::Dut
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        three::put_between(draft, "balancer (XDP)", three::ReceiveCpus::ByEndpoints);
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        three::route_pools(draft);
    }
}
