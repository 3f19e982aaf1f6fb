//! Path `haproxy`: between client and server HAProxy, which ends each connection and makes another.

use rig_sys::napi::Urgency;

use super::{Definition, Draft, Endpoints, Layout, three};

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

    fn plan(&self, draft: &mut Draft<'_>) {
        // A proxy on the same CPU has to get its turn.
        three::put_between(draft, "HAProxy, TCP mode", three::Receiving::ByDut(Urgency::Normal));
    }

    fn pools(&self, draft: &mut Draft<'_>) {
        three::route_pools(draft);
    }
}
