//! Where the spreader of a network namespace is found: there is one at most, so that no interface has two.

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure};
use rig_service::files::{ServiceFiles, ServiceKind};
use rig_sys::netns::NetNs;

/// All spreaders, for who speaks to one that was started over standard streams.
pub const SPREADER: ServiceKind = ServiceKind { protocol: "netrig-spread", directory: "spread", pins: "netrig-spread" };

/// What interfaces had before they were taken.
pub(crate) const BEFORE: &str = "before";

/// The files of the spreader of the namespace that this process is in.
///
/// # Errors
/// Where the kernel does not tell which it is.
pub(crate) fn files() -> anyhow::Result<ServiceFiles> {
    let namespace = NetNs::number_of_current_thread().context("find out which network namespace this is")?;
    Ok(ServiceFiles::new(&SPREADER, format!("net-{namespace}")))
}

/// That another process runs the spreader of this namespace.
pub(crate) fn taken(process: &str) -> Failure {
    let error = anyhow!("a spreader runs in this network namespace already, as process {process}");
    Failure::new(Exit::BadInput, error)
        .with_next("give it another interface by its file and `netrig spread reload`, or end it first")
}
