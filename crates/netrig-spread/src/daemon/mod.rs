//! The spreader of a network namespace at work: `netrig spread run`.
//!
//! ```text
//! lock ─ guard ─ programs that count ─ interfaces are taken ─ socket ─ Engine::work ─ all is left as it was
//! ```

mod engine;
mod keep;
mod log;
mod losses;
mod machine;
mod port;
mod record;
pub(crate) mod service;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams::{note, print};
use rig_service::ask::{self, Server};
use rig_service::http;
use rig_sys::netlink::{Event as Change, Events, Netlink};

use self::engine::{Engine, Source, lacking};
use self::keep::Kept;
pub(crate) use self::keep::guard;
use crate::message::{Reply, Request};
use crate::settings::{Pattern, Rule, Settings};
use crate::{instance, metrics};

pub(super) type Ask = ask::Ask<Request, Reply>;

/// What comes to the engine.
pub(super) enum Event {
    Ask(Ask),
    /// The file shall be read again.
    Reload,
    /// Links of this namespace are others now.
    Changed,
    Stop,
}

/// What the command line of `run` says.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) file: Option<PathBuf>,
    /// In place of the file's, or of no file.
    pub(crate) interfaces: Vec<Pattern>,
    /// What holds for these.
    pub(crate) rule: Rule,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) records: Option<PathBuf>,
}

/// Runs the spreader until it is told to stop.
pub(crate) fn run(run: Run) -> Result<Exit, Failure> {
    let said: Vec<Rule> = run.interfaces.iter().map(|name| Rule { name: name.clone(), ..run.rule.clone() }).collect();
    let (mut settings, source) = match &run.file {
        Some(file) => {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            (Settings::load(&file)?, Source::File { path: file, said: said.clone() })
        }
        None => (Settings::default(), Source::Said),
    };
    settings.rules.splice(0..0, said);
    settings.metrics = run.metrics.or(settings.metrics);
    exist(&settings)?;
    let files = instance::files().or_exit(Exit::Failed)?;
    let lock = instance::lock(&files)?;
    keep::put_back_of_others(&files);
    let listener = settings.metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    let (sender, events) = mpsc::channel();
    watch(sender.clone()).context("watch links").or_exit(Exit::Failed)?;
    let (stop, reload) = (sender.clone(), sender.clone());
    let caught = rig_sys::signal::on_stop_or_hangup(
        move || drop(stop.send(Event::Stop)),
        move || drop(reload.send(Event::Reload)),
    );
    caught.context("catch signals").or_exit(Exit::Failed)?;
    let mut guard = keep::start_guard().or_exit(Exit::Failed)?;
    let only_named = settings.rules.iter().all(|rule| rule.name.is_name());
    let engine = Engine::start(settings, source, Kept::new(Some(files.clone())), run.records, true);
    let mut engine = engine.or_exit(Exit::Lacking)?;
    if engine.interfaces().next().is_none() && only_named {
        return lacking(engine.waiting()).map(|()| Exit::Lacking).or_exit(Exit::Lacking);
    }
    if let Some(listener) = listener {
        let asked = sender.clone();
        let serving = http::serve(listener, move || rendered(&asked));
        serving.context("serve metrics").or_exit(Exit::Failed)?;
    }
    let server =
        Server::start(&files.socket(), move |ask| sender.send(Event::Ask(ask)).is_ok()).or_exit(Exit::Failed)?;
    let ended = print(&introduction(&engine)).map(|()| engine.work(&events));
    let failed = engine.end();
    for line in &failed {
        note(line);
    }
    if let Ok(Some(ask)) = &ended {
        let _gone = ask.reply.try_send(Reply::Done(vec!["the spreader has ended".into()]));
    }
    server.stop();
    drop(lock);
    // It sees the end of its input, and that nothing is left to put back.
    drop(guard.stdin.take());
    let _ended = guard.wait();
    ended.map(|_| if failed.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Interfaces that are named, and not by a pattern, are there.
fn exist(settings: &Settings) -> Result<(), Failure> {
    let netlink = Netlink::here().context("ask the kernel which interfaces there are").or_exit(Exit::Failed)?;
    for rule in settings.rules.iter().filter(|rule| rule.name.is_name()) {
        if netlink.index(&rule.name.to_string()).is_err() {
            let error = anyhow!("there is no interface {} in this network namespace: see `ip link`", rule.name);
            return Err(Failure::new(Exit::Lacking, error));
        }
    }
    Ok(())
}

/// The metrics as they are now.
fn rendered(events: &Sender<Event>) -> Option<String> {
    match Ask::within(Request::Status, http::PATIENCE, |ask| events.send(Event::Ask(ask)).is_ok())? {
        Reply::Status(status) => Some(metrics::render(&status)),
        _ => None,
    }
}

fn introduction(engine: &Engine) -> String {
    let taken: Vec<&str> = engine.interfaces().collect();
    let taken = if taken.is_empty() { "no interface yet".to_owned() } else { taken.join(", ") };
    format!("spreader (process {}): {taken}\nready: netrig spread show\n", std::process::id())
}

/// Between two looks at what has changed: much can change at once.
const REST: Duration = Duration::from_millis(50);

/// Tells of changes in the namespace that it was called in.
fn watch(to: Sender<Event>) -> anyhow::Result<()> {
    let changes = Events::here()?;
    let body = move || {
        let mut told = Instant::now();
        while let Ok(events) = changes.wait(Duration::from_secs(60)) {
            if events.iter().all(|event| matches!(event, Change::Neighbor { .. } | Change::Route { .. })) {
                continue;
            }
            thread::sleep(REST.saturating_sub(told.elapsed()));
            told = Instant::now();
            if to.send(Event::Changed).is_err() {
                return;
            }
        }
        note("new interfaces are no longer noticed: `netrig spread reload` takes them");
    };
    thread::Builder::new().name("watch".into()).spawn(body)?;
    Ok(())
}
