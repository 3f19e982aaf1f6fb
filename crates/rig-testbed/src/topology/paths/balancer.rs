//! Path `balancer`: between client and server netrig's own balancer, as XDP programs.

use super::{Definition, Draft, Endpoints, Layout, three};

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

    fn plan(&self, draft: &mut Draft<'_>) {
        three::put_between(draft, "balancer (XDP)", three::Receiving::ByEndpoints);
    }

    fn pools(&self, draft: &mut Draft<'_>) {
        three::route_pools(draft);
    }
}
