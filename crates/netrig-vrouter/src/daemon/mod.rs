//! The router of a node at work: `netrig vrouter run`.
//!
//! ```text
//! lock ─ settings ─ programs ─ Finder ─ compile ─ apply, attach ─ socket ─ Engine::work ─ all of it is taken off
//! ```

mod addresses;
mod engine;
mod engines;
pub(crate) mod finder;
mod logging;
mod persistence;
mod sources;
mod status;
mod sweeping;
mod trace;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams::{note, print};
use rig_datapath::vrouter::Sizes;
use rig_service::ask::{self, Answer, Server};
use rig_service::http;
use rig_sys::netlink::{Event as Change, Events};

use self::engine::Engine;
use self::sources::Speaking;
use crate::message::{Reply, Request};
use crate::metrics;
use crate::settings::Settings;
use crate::{compile, instance};

type Ask = ask::Ask<Request, Reply>;

/// What comes to the engine.
enum Event {
    Ask(Ask),
    /// The file shall be read again.
    Reload,
    /// Links or routes of this namespace are others now.
    Changed,
    /// The speaker has told something.
    Heard,
    Stop,
}

impl Answer for Reply {
    fn is_last(&self) -> bool {
        !matches!(self, Self::Flows { last: false, .. })
    }

    fn refused(what: String, hint: Option<String>) -> Self {
        Self::Refused { what, hint }
    }
}

/// Of each kind of what a speaker of BGP may tell, which the file does not know: routes to addresses, MAC addresses, and next hops, of
/// which VXLAN takes one for each MAC address. 64 MiB.
const TOLD: u32 = 1 << 20;

/// Tables for all that the settings have a node do, were all of it there, and as much again: more can come with a reload.
fn sizes(settings: &Settings, node: &str) -> anyhow::Result<Sizes> {
    let config = compile::expected(settings, node)?;
    let flows = settings.router.flows.saturating_mul(2);
    let sizes = Sizes { flows, ..Sizes::of(&config) };
    if settings.router.bgp.is_none() {
        return Ok(sizes);
    }
    let (hosts, macs, next_hops) = (sizes.hosts.max(TOLD), sizes.macs.max(TOLD), sizes.next_hops.max(TOLD));
    Ok(Sizes { hosts, macs, next_hops, prefixes: sizes.prefixes.max(TOLD), ..sizes })
}

/// What is left when the process has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct After {
    /// The router goes on by its last configuration.
    pub(crate) persist: bool,
    /// Containers' interfaces are as open to the node as without a router.
    pub(crate) fail_open: bool,
}

/// Runs the router of a node until it is told to stop.
pub(crate) fn run(file: &Path, node: &str, after: After, metrics: Option<SocketAddr>) -> Result<Exit, Failure> {
    let settings = Settings::load(file)?;
    settings.node(node).or_exit(Exit::BadInput)?;
    let listener = metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    let files = instance::files(node);
    let lock = instance::lock(&files)?;
    let sizes = sizes(&settings, node).or_exit(Exit::BadInput)?;
    let After { persist, fail_open } = after;
    let mut begun =
        if persist { persistence::begin(&files, sizes)? } else { persistence::begin_without(&files, sizes)? };
    match fail_open {
        true => persistence::open(node)?.iter().for_each(note),
        false => begun.router.close_behind(node),
    }
    let (sender, events) = mpsc::channel();
    watch(sender.clone()).context("watch links and routes").or_exit(Exit::Failed)?;
    let (stop, reload) = (sender.clone(), sender.clone());
    let caught = rig_sys::signal::on_stop_or_hangup(
        move || drop(stop.send(Event::Stop)),
        move || drop(reload.send(Event::Reload)),
    );
    caught.context("catch signals").or_exit(Exit::Failed)?;
    let speaking = Speaking::new(node, persist, sender.clone());
    let mut engine = Engine::start(absolute(file), node, settings, begun, speaking)?;
    if let Some(listener) = listener {
        let asked = sender.clone();
        let serving = http::serve(listener, move || rendered(&asked));
        serving.context("serve metrics").or_exit(Exit::Failed)?;
    }
    let server =
        Server::start(&files.socket(), move |ask| sender.send(Event::Ask(ask)).is_ok()).or_exit(Exit::Failed)?;
    let ended = print(&engine.introduction()).inspect(|()| engine.work(&events));
    if persist {
        note(
            "the router has ended, and its last configuration stays in force: run it again with --persist, or end it with `netrig vrouter release`",
        );
    } else if !fail_open {
        note(format_args!(
            "the router has ended, and its containers' interfaces stay closed: run it again, or open them with `netrig vrouter release --node {node}`"
        ));
    }
    drop(engine);
    server.stop();
    drop(lock);
    ended.map(|()| Exit::Done)
}

/// The metrics as they are now.
fn rendered(events: &Sender<Event>) -> Option<String> {
    match Ask::within(Request::Status, http::PATIENCE, |ask| events.send(Event::Ask(ask)).is_ok())? {
        Reply::Status(status) => Some(metrics::render(&status)),
        _ => None,
    }
}

/// Ends what a router has left behind.
pub(crate) fn release(node: &str) -> Result<Exit, Failure> {
    let files = instance::files(node);
    let _lock = instance::lock(&files)?;
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

/// Between two looks at what has changed: much can change at once.
const REST: Duration = Duration::from_millis(50);

/// Tells of changes in the namespace that it was called in.
fn watch(to: Sender<Event>) -> anyhow::Result<()> {
    let changes = Events::here()?;
    let body = move || {
        let mut told = Instant::now();
        // A socket that is of no more use is told of once: the engine looks each second where something lacks.
        while let Ok(events) = changes.wait(Duration::from_secs(60)) {
            if events.iter().all(|event| matches!(event, Change::Neighbor { .. } | Change::Interface)) {
                continue;
            }
            thread::sleep(REST.saturating_sub(told.elapsed()));
            told = Instant::now();
            if to.send(Event::Changed).is_err() {
                return;
            }
        }
        note("changes of links and routes are no longer noticed: reload after a change");
    };
    thread::Builder::new().name("watch".into()).spawn(body)?;
    Ok(())
}
