//! Path `ipvs`: between client and server the kernel's IP Virtual Server.

use super::{Definition, Endpoints, Layout, PlanBuilder, three};

pub(super) struct Ipvs;

impl Definition for Ipvs {
    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn layout(&self) -> Layout {
        Layout::Dut
    }

    fn endpoints(&self) -> Endpoints {
        Endpoints::Nodes
    }

    fn plan(&self, draft: &mut PlanBuilder<'_>) {
        three::put_between(draft, "IPVS, NAT", three::ReceiveCpus::BY_KERNEL);
    }

    fn pools(&self, draft: &mut PlanBuilder<'_>) {
        three::route_pools(draft);
    }

    /// It leaves packets their clients' addresses.
    fn has_local_addresses(&self) -> bool {
        false
    }
}
