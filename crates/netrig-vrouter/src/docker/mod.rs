//! The vRouter as a network driver of Docker: dockerd calls it by a socket in its folder of plug-ins, and containers' interfaces are added to
//! the running router of this node.
//!
//! ```text
//! CreateNetwork    a network of the router's ── NetworkStore, on disk
//! CreateEndpoint   ask the router for the network ── veth pair ── Plug, in force when it answers
//! Join             node's end up ── dockerd moves the other one, and gives it addresses and routes
//! Leave            node's end down
//! DeleteEndpoint   Unplug ── veth pair
//! ```
//!
//! Of endpoints nothing is kept here: the router has what was added to it, and names follow from Docker's identifiers.

mod driver;
mod messages;
mod networks;
mod options;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, mpsc};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print;
use rig_service::calls::CallServer;
use rig_sys::signal::on_stop_signal;

use self::driver::Driver;
use self::networks::NetworkStore;

/// Where networks are kept that outlive the boot, as Docker's own files do.
const STATE: &str = "/var/lib/netrig/docker";

/// Serves a driver, whose name is the socket's, until it is told to stop.
///
/// # Errors
/// When another one is there already, or a file or socket cannot be had.
pub(crate) fn serve(node: &str, socket: &Path, state: Option<&Path>) -> Result<Exit, Failure> {
    if node.is_empty() || node.contains('/') {
        return Err(Failure::new(Exit::BadInput, anyhow!("'{node}' is no node's name")));
    }
    let state = state.map_or_else(|| Path::new(STATE).join(format!("{node}.json")), Path::to_owned);
    let (stop, stopped) = mpsc::channel();
    let stop = move || {
        let _gone = stop.send(());
    };
    on_stop_signal(stop).context("catch signals").or_exit(Exit::Failed)?;
    let driver = Arc::new(Driver::new(node, NetworkStore::open(&state)?));
    driver.forget_lost();
    if let Some(folder) = socket.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
        made.with_context(|| format!("make {}", folder.display())).or_exit(Exit::Lacking)?;
    }
    let answering = Arc::clone(&driver);
    let server = CallServer::start(socket, move |call| answering.answer(call)).or_exit(Exit::Lacking)?;
    let networks = driver.networks.len();
    let ready =
        print(&format!("ready: driver of Docker for node {node} at {}; {networks} networks\n", socket.display()));
    if ready.is_ok() {
        // The thread of signals lives as long as the process.
        let _always = stopped.recv();
    }
    server.stop();
    ready.map(|()| Exit::Done)
}
