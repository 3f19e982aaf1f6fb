//! The router of a node at work: `netrig vrouter run`.
//!
//! ```text
//! lock ─ settings ─ programs ─ Finder ─ compile ─ apply, attach ─ socket ─ Engine::work ─ all of it is taken off
//! ```

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
use rig_cli::ask::{self, Answer, Server};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::http;
use rig_cli::streams::{note, print};
use rig_datapath::vrouter::Sizes;
use rig_sys::netlink::{Event as Change, Events};

use self::engine::Engine;
use self::sources::Speaking;
use crate::message::{Reply, Request};
use crate::metrics;
use crate::place::Place;
use crate::settings::Settings;

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

/// Room for interfaces where a node has fewer: they can come with a reload.
const INTERFACES: u32 = 1024;

/// Tables for what a node has, and twice that of interfaces and lists of rules.
fn sizes(settings: &Settings, node: &str) -> Sizes {
    let interfaces = (2 * settings.interfaces_of(node).count() as u32).max(INTERFACES);
    let flows = settings.router.flows.saturating_mul(2);
    let floods = Sizes::default().floods.max(2 * settings.networks_of(node).len() as u32);
    Sizes { interfaces, floods, lists: Sizes::default().lists.max(4 * interfaces), flows, ..Sizes::default() }
}

/// Runs the router of a node until it is told to stop.
pub(crate) fn run(file: &Path, node: &str, persist: bool, metrics: Option<SocketAddr>) -> Result<Exit, Failure> {
    let settings = Settings::load(file)?;
    settings.node(node).or_exit(Exit::BadInput)?;
    let listener = metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    let place = Place::of(node);
    let lock = place.lock()?;
    let sizes = sizes(&settings, node);
    let begun = if persist { persistence::begin(&place, sizes)? } else { persistence::begin_without(&place, sizes)? };
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
        Server::start(&place.socket(), move |ask| sender.send(Event::Ask(ask)).is_ok()).or_exit(Exit::Failed)?;
    let ended = print(&engine.introduction()).inspect(|()| engine.work(&events));
    if persist {
        note(
            "the router has ended, and its last configuration stays in force: run it again with --persist, or end it with `netrig vrouter release`",
        );
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

/// Ends what a router that persists goes on with.
pub(crate) fn release(node: &str) -> Result<Exit, Failure> {
    let place = Place::of(node);
    let _lock = place.lock()?;
    let was_there = persistence::release(&place)?;
    let said = if was_there { "released" } else { "nothing of it was kept" };
    print(&format!("{said}: node {node}\n"))?;
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
