//! The spreader of a network namespace at work: `netrig spread run`.
//!
//! ```text
//! lock ─ guard ─ programs that count ─ interfaces are taken ─ rig_service::serve, Engine ─ all is left as it was
//! ```

mod engine;
mod keep;
mod log;
mod losses;
mod machine;
mod port;
mod record;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_service::{Started, http, serve, serve_on_stdio};
use rig_sys::netlink::Netlink;

use self::engine::{Engine, Source, lacking};
use self::keep::SavedInterfaces;
pub(crate) use self::keep::guard;
use crate::instance::{self, SPREADER};
use crate::settings::{Pattern, Rule, Settings};

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
        None => (Settings::default(), Source::CommandLine),
    };
    settings.rules.splice(0..0, said);
    settings.metrics = run.metrics.or(settings.metrics);
    exist(&settings)?;
    let files = instance::files().or_exit(Exit::Failed)?;
    let mut guard = None;
    let ended = serve(&files, instance::taken, |_| {
        keep::put_back_of_others(&files);
        guard = Some(keep::start_guard().or_exit(Exit::Failed)?);
        start(settings, source, SavedInterfaces::new(Some(files.clone())), run.records)
    });
    // It sees the end of its input, and that nothing is left to put back.
    if let Some(mut guard) = guard {
        drop(guard.stdin.take());
        let _ended = guard.wait();
    }
    ended
}

/// Runs the spreader for the process that has started it, with settings that come from there. Its namespace goes with that.
pub(crate) fn run_on_stdio(metrics: Option<SocketAddr>, records: Option<PathBuf>) -> Result<Exit, Failure> {
    serve_on_stdio(&SPREADER, |text, _| {
        let mut settings = Settings::parse(TEXT, text)?;
        settings.metrics = metrics.or(settings.metrics);
        exist(&settings)?;
        start(settings, Source::Text, SavedInterfaces::new(None), records)
    })
}

fn start(
    settings: Settings,
    source: Source,
    kept: SavedInterfaces,
    records: Option<PathBuf>,
) -> Result<Started<Engine>, Failure> {
    let metrics = settings.metrics.map(http::listen).transpose().or_exit(Exit::Lacking)?;
    let only_named = settings.rules.iter().all(|rule| rule.name.is_name());
    let service = Engine::start(settings, source, kept, records).or_exit(Exit::Lacking)?;
    if service.interfaces().next().is_none() && only_named {
        lacking(service.waiting()).or_exit(Exit::Lacking)?;
    }
    Ok(Started { service, metrics })
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

fn introduction(engine: &Engine) -> String {
    let taken: Vec<&str> = engine.interfaces().collect();
    let taken = if taken.is_empty() { "no interface yet".to_owned() } else { taken.join(", ") };
    format!("spreader (process {}): {taken}\nready: netrig spread show\n", std::process::id())
}

/// What settings are called that come as text.
const TEXT: &str = "settings";
