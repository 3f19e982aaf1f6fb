//! Where the router of a node is found.

use anyhow::anyhow;
use rig_cli::exit::{Exit, Failure};
use rig_service::files::{ServiceFiles, ServiceKind};

/// All routers, for who speaks to one that was started over standard streams.
pub const ROUTER: ServiceKind =
    ServiceKind { protocol: "netrig-vrouter", directory: "vrouter", pins: "netrig-vrouter" };

/// The files of the router of a node of the settings, whose name it has.
pub(crate) fn files(node: &str) -> ServiceFiles {
    ServiceFiles::new(&ROUTER, node)
}

/// The numbers that the tables of a router that persists know things by, see [`Numbers`](crate::compile::Numbers).
pub(crate) const NUMBERS: &str = "numbers";

/// That another process runs the router of a node.
pub(crate) fn taken(node: &str, process: &str) -> Failure {
    let error = anyhow!("the router of node '{node}' is running already, as process {process}");
    Failure::new(Exit::BadInput, error).with_next("end it first, or run another --node")
}

/// Nodes whose routers run here.
pub(crate) fn running() -> Vec<String> {
    ServiceFiles::running(&ROUTER)
}
