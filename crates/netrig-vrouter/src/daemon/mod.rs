//! The router of a node at work: `netrig vrouter run`.
//!
//! ```text
//! lock ─ settings ─ programs ─ Finder ─ compile ─ apply, attach ─ rig_service::serve, Engine ─ all of it is taken off
//! ```

mod addresses;
mod engine;
mod engines;
pub(crate) mod finder;
mod logging;
mod persistence;
mod plugged;
mod sources;
mod status;
mod sweeping;
mod trace;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::streams::print;
use rig_datapath::vrouter::Sizes;
use rig_service::{Started, http, serve, serve_on_stdio};
use tracing::info;

use self::engine::Engine;
use self::persistence::RestoredRouter;
use self::plugged::LoadedSettings;
use self::sources::SpeakerSession;
use crate::instance::ROUTER;
use crate::settings::Settings;
use crate::{compile, instance};

/// Of each kind of what a speaker of BGP may tell, which the file does not know: routes to addresses, MAC addresses, and next hops, of
/// which VXLAN takes one for each MAC address. 64 MiB.
const TOLD: u32 = 1 << 20;

/// Tables for all that the settings have a node do, were all of it there, and as much again: more can come with a reload.
fn sizes(settings: &Settings, node: &str) -> anyhow::Result<Sizes> {
    let config = compile::expected(settings, node)?;
    let flows = settings.router.flows.saturating_mul(2);
    let sizes = Sizes { flows, ..Sizes::of(&config) };
    // Of those that plug-ins may add, who have a route and a MAC address each, and a next hop, where they are in one network alone.
    let plugged = settings.router.plugged;
    let interfaces = sizes.interfaces.max(config.interfaces.len() as u32 + plugged);
    let next_hops = sizes.next_hops.saturating_add(plugged.saturating_mul(2));
    let sizes = Sizes { interfaces, next_hops, macs: sizes.macs.saturating_add(plugged), ..sizes };
    if settings.router.bgp.is_none() {
        return Ok(sizes);
    }
    let (hosts, macs, next_hops) = (sizes.hosts.max(TOLD), sizes.macs.max(TOLD), sizes.next_hops.max(TOLD));
    Ok(Sizes { hosts, macs, next_hops, prefixes: sizes.prefixes.max(TOLD), ..sizes })
}

/// What is left when the process has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExitPolicy {
    /// The router goes on by its last configuration.
    pub(crate) persist: bool,
    /// Containers' interfaces are as open to the node as without a router.
    pub(crate) fail_open: bool,
}

/// Runs the router of a node until it is told to stop.
pub(crate) fn run(file: &Path, node: &str, after: ExitPolicy, metrics: Option<SocketAddr>) -> Result<Exit, Failure> {
    Settings::load(file)?.node(node).or_exit(Exit::BadInput)?;
    let metrics = metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    let files = instance::files(node);
    let ExitPolicy { persist, fail_open } = after;
    let start = |waker| {
        let loaded = LoadedSettings::of_file(absolute(file), node, &files)?;
        let sizes = sizes(&loaded.settings, node).or_exit(Exit::BadInput)?;
        let mut begun =
            if persist { persistence::begin(&files, sizes)? } else { persistence::begin_without(&files, sizes)? };
        match fail_open {
            true => persistence::open(node)?.iter().for_each(|line| info!("{line}")),
            false => begun.router.close_behind(node),
        }
        let speaking = SpeakerSession::new(node, persist, waker);
        let service = Engine::start(loaded, node, begun, speaking, after)?;
        Ok(Started { service, metrics })
    };
    serve(&files, |process| instance::taken(node, process), start)
}

/// Runs the router of a node for the process that has started it, with settings that come from there. Nothing is left of it.
pub(crate) fn run_on_stdio(node: &str, metrics: Option<SocketAddr>) -> Result<Exit, Failure> {
    serve_on_stdio(&ROUTER, |text, waker| {
        let loaded = LoadedSettings::of_text(text)?;
        loaded.settings.node(node).or_exit(Exit::BadInput)?;
        let metrics = metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
        let begun = RestoredRouter::new(sizes(&loaded.settings, node).or_exit(Exit::BadInput)?)?;
        let speaking = SpeakerSession::new(node, false, waker);
        let after = ExitPolicy { persist: false, fail_open: true };
        Ok(Started { service: Engine::start(loaded, node, begun, speaking, after)?, metrics })
    })
}

/// Ends what a router has left behind.
pub(crate) fn release(node: &str) -> Result<Exit, Failure> {
    let files = instance::files(node);
    let _lock = files.lock(|process| instance::taken(node, process))?;
    let was_there = persistence::release(&files)?;
    let opened = persistence::open(node)?;
    let said = if was_there || opened.is_some() { "released" } else { "nothing of it was kept" };
    print(&format!("{said}: node {node}\n"))?;
    opened.map_or(Ok(()), |line| print(&format!("{line}\n")))?;
    Ok(Exit::Done)
}

fn refused(error: rig_datapath::Error) -> Failure {
    let exit = match error {
        rig_datapath::Error::NotPermitted(_) | rig_datapath::Error::Load { .. } => Exit::Lacking,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// It is read again whatever the working directory is by then.
fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// What settings are called that come as text.
const TEXT: &str = "settings";
/// What the speaker tells is waited for so long: much can come at once.
const REST: Duration = Duration::from_millis(50);
