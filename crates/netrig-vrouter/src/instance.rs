//! Where the router of a node is found.

use anyhow::anyhow;
use rig_cli::exit::{Exit, Failure};
use rig_service::files::{ServiceFiles, ServiceKind};
use rig_service::lock::Lock;

const ROUTER: ServiceKind = ServiceKind { directory: "vrouter", pins: "netrig-vrouter" };

/// The files of the router of a node of the settings, whose name it has.
pub(crate) fn files(node: &str) -> ServiceFiles {
    ServiceFiles::new(&ROUTER, node)
}

/// The numbers that the tables of a router that persists know things by, see [`Numbers`](crate::compile::Numbers).
pub(crate) const NUMBERS: &str = "numbers";

/// For the one process that runs the router.
pub(crate) fn lock(files: &ServiceFiles) -> Result<Lock, Failure> {
    files.lock(|process| {
        let error = anyhow!("the router of node '{}' is running already, as process {process}", files.instance());
        Failure::new(Exit::BadInput, error).with_next("end it first, or run another --node")
    })
}

/// Nodes whose routers run here.
pub(crate) fn running() -> Vec<String> {
    ServiceFiles::running(&ROUTER)
}
