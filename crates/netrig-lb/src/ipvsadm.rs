//! ipvsadm's command line: what a line asks for, and doing it.

mod line;
mod options;
pub(crate) mod rules;

use std::ffi::OsString;
use std::io::{self, Write};

use anyhow::{Context, anyhow};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_cli::mistakes::read_input_of;
use rig_cli::streams;
use rig_cli::visible::visible;
use rig_service::{AskError, Refusal};

pub(crate) use self::line::MAX_TIMEOUT;
pub use self::line::{Command, Line};
use super::client::{self, status};
use super::instance::Name;
use super::listing::{self, Listing, ListingKind, Style};
use super::message::{ConnectionEntry, Filter, Reply, Request, ServiceKey, Status};
use super::names::{NameResolution, Names};
use super::settings::ServiceText;
use super::views::{self, print_json};

/// Why a line is no command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {next}")]
pub struct UsageError {
    what: String,
    /// What to do instead.
    next: String,
}

impl UsageError {
    fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into() }
    }

    fn refused(option: &str, reason: &str) -> Self {
        Self::new(format!("{option} is refused"), reason)
    }
}

/// The options, for the help text: at most 80 columns.
pub const AFTER_HELP: &str = "\
The options of ipvsadm and of DPVS; docs/IPVSADM.md has all of them:
  -A|-E SERVICE [-s SCHEDULER] [--conn-timeout SECONDS] [--limit CONNECTIONS]
                [--expire never|removed|quiescent] [--sloppy-tcp on|off]
                [--reuse reschedule|keep] [-j auto|always|off]  add, change it
                [-p [SECONDS]] [-M MASK] [-o] [--source-limit N] [--new-rate N]
  -D SERVICE                                              remove it
  -a|-e SERVICE -r SERVER[:PORT] [-b|-m|-g|-i] [-w WEIGHT] [-x CONNECTIONS]
        [-y CONNECTIONS]  add, change a server; -e also --drain SPAN: see docs
  -d SERVICE -r SERVER[:PORT]                             remove it
  -P|-Q SERVICE -z ADDRESS [-F DEVICE]           add, remove a local address
  -G [SERVICE] [--json]                          list them
  -L|-l [SERVICE] [-n] [--stats|--rate|--thresholds|--next-hops|--health]
                  [--exact] [--nosort] [--json]  list services and servers
  -L -c [SERVICE] [--client ADDRESS] [--backend ADDRESS:PORT] [--most N] [-n]
                  [--json]                       list connections
  -L --timeout, --set TCP TCPFIN UDP             timeouts, seconds; 0: stays
  -Z [SERVICE]                                   counters to zero
  -S [-n], -R                                    rules to lines and back
  -C                                             remove all services
SERVICE is -t or -u (TCP, UDP) and ADDRESS:PORT, IPv6 in brackets. -b FullNAT,
-m NAT, -g routing, -i tunnel (--tun-type: docs). SCHEDULER is rr, wrr, lc, wlc
(default), sed, nq, sh or mh. Any of them with --name NAME, or $NETRIG_LB.";

/// What else may stand in the place of options.
const COMMANDS: &str = "\
Or a command of `netrig lb`: run, check, reload, flush, withdraw, announce,
stop, save, status, drops, trace, sources, metrics; `netrig lb --help` tells
what they do. --name NAME may stand before it or behind it.";

/// What is said of the program by `-v`.
fn version() -> String {
    format!("netrig lb {} (the options of ipvsadm 1.31 and of DPVS)\n", env!("CARGO_PKG_VERSION"))
}

/// Does what ipvsadm's options say; without any, lists the services.
pub fn execute(arguments: &[OsString]) -> Result<Exit, Failure> {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|word| word.to_str().map(str::to_owned))
        .collect::<Option<_>>()
        .context("an option is not UTF-8: addresses and names here are")
        .or_exit(Exit::BadInput)?;
    let line = if arguments.is_empty() { Line::list() } else { Line::parse(&arguments).or_exit(Exit::BadInput)? };
    let name = views::chosen(line.name.as_ref())?;
    match line.command {
        Command::Version => streams::print(&version())?,
        Command::Help => streams::print(&format!("{AFTER_HELP}\n{COMMANDS}\n"))?,
        Command::Edit { edit, device } => {
            if let Some(device) = device {
                refuse_unless_ours(&device, &status(&name)?)?;
            }
            done(client::ask(&name, &Request::Edit(edit))?, &name)?;
        }
        Command::Zero(service) => done(client::ask(&name, &Request::Zero(service))?, &name)?,
        Command::Restore => restore(&name)?,
        Command::Save { numeric } => {
            let names = if numeric { Names::Numeric } else { Names::looked_up() };
            streams::print(&rules::save(&status(&name)?, names))?;
        }
        Command::Locals { service, json } => locals(&name, service, json)?,
        Command::List(listing) => list(&name, &listing)?,
    }
    Ok(Exit::Done)
}

/// ipvsadm is silent when all is well, so what there is to say is for people to read.
fn done(reply: Reply, name: &Name) -> Result<(), Failure> {
    let Reply::Done(notes) = reply else { return Err(client::foreign(name).into()) };
    notes.iter().for_each(streams::note);
    Ok(())
}

/// DPVS binds local addresses to a device. Here each device takes packets for all of them, so that naming one can only
/// be right or wrong.
fn refuse_unless_ours(device: &str, status: &Status) -> Result<(), Failure> {
    if status.devices.iter().any(|ours| ours.name == device) {
        return Ok(());
    }
    let ours: Vec<&str> = status.devices.iter().map(|device| device.name.as_str()).collect();
    let error = anyhow!(
        "-F {device}: balancer {} does not run on it: choose from {}, or leave -F out: local addresses are for all of them",
        status.name,
        ours.join(", ")
    );
    Err(Failure::new(Exit::BadInput, error))
}

/// More than `-S` writes of as many rules as there can be.
const LONGEST: u64 = 64 << 20;

fn restore(name: &Name) -> Result<(), Failure> {
    let text = read_input_of(LONGEST).context("read rules from standard input").or_exit(Exit::BadInput)?;
    let rules = rules::parse(&text, NameResolution::System).or_exit(Exit::BadInput)?;
    if rules.devices.iter().next().is_some() {
        let status = status(name)?;
        rules.devices.iter().try_for_each(|device| refuse_unless_ours(device, &status))?;
    }
    if rules.edits.is_empty() {
        return Ok(());
    }
    let lines = rules.lines;
    let reply = client::ask(name, &Request::Edits(rules.edits)).map_err(|error| match error {
        AskError::Refused(Refusal { what, hint, edit: Some(edit) }) if edit < lines.len() => {
            Refusal::new(format!("standard input, line {}: {what}", lines[edit]), hint).into()
        }
        error => error,
    })?;
    done(reply, name)
}

fn list(name: &Name, listing: &Listing) -> Result<(), Failure> {
    let names = || if listing.numeric { Names::Numeric } else { Names::looked_up() };
    if let ListingKind::Connections(filter) = &listing.what {
        return connections(name, filter, names(), listing.json);
    }
    let mut status = status(name)?;
    if let Some(service) = listing.service {
        status.services.retain(|entry| entry.key == service);
        if status.services.is_empty() {
            let error = UsageError::new(
                format!("balancer {name} has no service {}", ServiceText(service)),
                "`netrig lb -L -n` lists those it has",
            );
            return Err(Failure::new(Exit::BadInput, error));
        }
    }
    if listing.json {
        return print_json(&status);
    }
    let text = match listing.what {
        ListingKind::Timeout => listing::timeouts(&status),
        ListingKind::Rules => listing::services(&status, listing, Style::Rules, names()),
        ListingKind::Stats => listing::services(&status, listing, Style::Stats, names()),
        ListingKind::Rate => listing::services(&status, listing, Style::Rate, names()),
        ListingKind::Thresholds => listing::services(&status, listing, Style::Thresholds, names()),
        ListingKind::NextHops => listing::services(&status, listing, Style::NextHops, names()),
        ListingKind::Health => listing::services(&status, listing, Style::Health, names()),
        ListingKind::Tunnels => listing::services(&status, listing, Style::Tunnels, names()),
        ListingKind::PersistentConnections => listing::services(&status, listing, Style::Persistent, names()),
        ListingKind::Connections(_) => String::new(),
    };
    streams::print(&text)
}

/// Written as they come: there may be millions of them.
fn connections(name: &Name, filter: &Filter, mut names: Names, json: bool) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut titled = json;
    let written = client::connections(name, filter.clone(), |entries| {
        if !titled {
            out.write_all(listing::CONNECTIONS_TITLE.as_bytes())?;
            titled = true;
        }
        if json {
            for entry in &entries {
                serde_json::to_writer(&mut out, entry)?;
                out.write_all(b"\n")?;
            }
            return Ok(());
        }
        names.learn(entries.iter().flat_map(listing::addresses_of));
        entries.iter().try_for_each(|entry| out.write_all(visible(&listing::connection(entry, &mut names)).as_bytes()))
    })?;
    streams::done_or_closed(written.and_then(|()| out.flush()))
}

fn locals(name: &Name, service: Option<ServiceKey>, json: bool) -> Result<(), Failure> {
    let mut status = status(name)?;
    if let Some(service) = service {
        status.services.retain(|entry| entry.key == service);
    }
    let mut counts = listing::LocalCounts::default();
    let filter = Filter { service, ..Filter::default() };
    let counted = client::connections(name, filter, |entries: Vec<ConnectionEntry>| {
        entries.iter().for_each(|entry| counts.count(entry));
        Ok(())
    })?;
    streams::done_or_closed(counted)?;
    if json { print_json(&counts.of(&status)) } else { streams::print(&listing::locals(&counts.of(&status))) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]
mod tests;
