//! The rig's runner as a source of routes: it has built all nodes, so it tells each of the others'.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use netrig_vrouter::routes::{Route, RouteSource, RouteSourceError, RouteTable, RouteUpdate, announced};
use netrig_vrouter::settings::Settings;

/// Routes of all other nodes, but for those that are withdrawn.
#[derive(Debug, Clone)]
pub(super) struct RunnerRoutes {
    all: RouteTable,
    /// Tunnel ends of nodes whose routes are not told.
    withdrawn: BTreeSet<Ipv4Addr>,
    told: RouteTable,
}

impl RunnerRoutes {
    /// For `node`, which knows its own.
    pub(super) fn new(settings: &Settings, node: &str) -> Self {
        let others = settings.nodes.keys().filter(|other| *other != node);
        let all = others.flat_map(|other| announced(settings, other)).collect();
        Self { all, withdrawn: BTreeSet::new(), told: RouteTable::default() }
    }

    pub(super) fn withdraw(&mut self, nodes: &BTreeSet<Ipv4Addr>) {
        self.withdrawn.extend(nodes);
    }

    pub(super) fn give_back(&mut self, nodes: &BTreeSet<Ipv4Addr>) {
        self.withdrawn.retain(|node| !nodes.contains(node));
    }

    /// All that the node is not told of.
    pub(super) fn withdrawn(&self) -> impl Iterator<Item = &Route> {
        self.all.iter().filter(|route| self.withdrawn.contains(&route.node))
    }
}

impl RouteSource for RunnerRoutes {
    fn updates(&mut self) -> Result<Vec<RouteUpdate>, RouteSourceError> {
        let says: RouteTable = self.all.iter().filter(|route| !self.withdrawn.contains(&route.node)).cloned().collect();
        let updates = says.since(&self.told);
        self.told = says;
        Ok(updates)
    }
}
