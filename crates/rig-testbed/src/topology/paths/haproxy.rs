//! Path `haproxy`: between client and server HAProxy, which ends each connection and makes another.

use rig_sys::napi::Urgency;

use super::{Definition, Endpoints, Layout, PlanBuilder, three};

pub(super) struct Haproxy;

impl Definition for Haproxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }

    fn layout(&self) -> Layout {
        Layout::Dut
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        // A proxy on the same CPU has to get its turn.
        three::put_between(draft, "HAProxy, TCP mode", three::ReceiveCpus::ByDut(Urgency::Normal));
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        three::route_pools(draft);
    }
}
