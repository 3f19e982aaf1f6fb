//! `netrig lb ipvs -- COMMAND`: a program that drives the kernel's IPVS by generic netlink drives a running balancer.
//!
//! ```text
//! COMMAND and what it starts ── seccomp filter: bind(2) ... of netlink ──> adopt ── a stand-in for each socket
//! stand-in ── session ── netlink, family: bytes to requests ── answers ── the balancer's control socket
//! ```
//!
//! docs/decisions/ipvs-interface.md has the reasons.

mod adopt;
mod answers;
mod family;
mod kept;
mod netlink;
mod session;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod stand;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use rig_cli::exit::{Exit, ExitContext, Failure};
use rig_service::log::LogOptions;
use rig_service::{AskError, Client};
use rig_sys::process::RunningProcess;
use rig_sys::seccomp;
use rig_sys::signal::{CommandSignals, die_of};
use tracing::{info, warn};

use self::adopt::{Adopter, RULES};
use self::answers::{Answers, Balancer};
pub(crate) use self::family::Forwarding;
use crate::client;
use crate::message::{ForwardingMethod, Reply, Request};
use crate::settings::Addresses;
use crate::views::NameOption;

#[derive(Debug, Args)]
pub struct IpvsArgs {
    #[command(flatten)]
    which: NameOption,
    #[command(flatten)]
    forwarding: ForwardingOptions,
    #[command(flatten)]
    log: LogOptions,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How what IPVS masquerades is forwarded.
#[derive(Debug, Args)]
pub struct ForwardingOptions {
    /// How destinations by masquerading (-m, lvs_method NAT) are forwarded to [default: full-nat with --local, nat without]
    #[arg(long, value_name = "HOW")]
    masq: Option<Masquerade>,
    /// Local addresses for FullNAT and tunnels, e.g. 10.0.0.200-10.0.0.207; can be repeated
    #[arg(long, value_name = "ADDR", value_parser = Addresses::parse)]
    local: Vec<Addresses>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Masquerade {
    FullNat,
    Nat,
}

/// As many as a service's list may have.
const MOST_LOCAL: usize = 65_535;

impl ForwardingOptions {
    pub(crate) fn read(&self) -> Result<Forwarding, Failure> {
        let mut local: Vec<IpAddr> = Vec::new();
        for range in &self.local {
            let room = MOST_LOCAL - local.len();
            let many = || anyhow!("--local names more than {MOST_LOCAL} addresses");
            local.extend(range.each(room).map_err(|_| Failure::new(Exit::BadInput, many()))?);
        }
        let full = self.masq.map_or(!local.is_empty(), |masq| masq == Masquerade::FullNat);
        if full && local.is_empty() {
            let error = anyhow!("--masq full-nat needs local addresses: add --local ADDRESS-ADDRESS");
            return Err(Failure::new(Exit::BadInput, error));
        }
        let masquerade = if full { ForwardingMethod::FullNat } else { ForwardingMethod::Nat };
        Ok(Forwarding { masquerade, local })
    }
}

impl Balancer for Client {
    fn ask(&self, request: &Request) -> Result<Reply, AskError> {
        Self::ask(self, request)
    }
}

/// How often it is looked whether the balancer was started again.
const WATCHING: Duration = Duration::from_secs(1);

pub fn execute(arguments: IpvsArgs) -> Result<Exit, Failure> {
    arguments.log.begin();
    let forwarding = arguments.forwarding.read()?;
    let name = arguments.which.chosen()?;
    let balancer = client::client(&name);
    client::status(&name)?;
    let signals = CommandSignals::hold().context("take signals for the command").or_exit(Exit::Failed)?;
    let answers = Arc::new(Answers::new(balancer.clone(), forwarding));
    let mut command = arguments.command.into_iter();
    // There is one: it is required.
    let mut started = Command::new(command.next().unwrap_or_default());
    started.args(command);
    signals.leave_to(&mut started);
    let (mut child, listener) = seccomp::spawn(started, &RULES).or_exit(Exit::Lacking)?;
    let process = RunningProcess::of(child.id()).context("watch the command").or_exit(Exit::Failed)?;
    let pass_on = move || {
        loop {
            let signal = signals.next();
            // What it has left running is not told. This goes on for it, unless it is told to end.
            if process.signal(signal).is_err() && matches!(signal, libc::SIGINT | libc::SIGQUIT | libc::SIGTERM) {
                die_of(signal);
            }
        }
    };
    let begin = |name: &str, work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.into()).spawn(work).context("start a thread").or_exit(Exit::Failed)
    };
    begin("signals", Box::new(pass_on))?;
    let ended = Arc::new(AtomicBool::new(false));
    let adopter = Adopter::new(listener, Arc::clone(&answers));
    let told = Arc::clone(&ended);
    let serve = move || {
        if let Err(error) = adopter.serve() {
            warn!("system calls of the command cannot be answered any more: {error}");
        }
        told.store(true, Ordering::Release);
    };
    let serving = begin("calls", Box::new(serve))?;
    begin("balancer", Box::new(move || watch(&balancer, &answers)))?;
    let status = child.wait().context("wait for the command").or_exit(Exit::Failed)?;
    if !ended.load(Ordering::Acquire) && !serving.is_finished() {
        wait_for_others(&ended);
    }
    end_as(status)
}

/// Programs that the command has left running go on to have the balancer.
fn wait_for_others(ended: &AtomicBool) {
    // The kernel tells of the end of the last process a moment after it is collected.
    const A_MOMENT: Duration = Duration::from_millis(500);
    const STEP: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while !ended.load(Ordering::Acquire) {
        if waited == A_MOMENT {
            info!(
                "the command has ended and has left processes running: this stays for them, and passes no signals on; keep a program in \
                 the foreground (keepalived --dont-fork)"
            );
        }
        thread::sleep(STEP);
        waited = waited.saturating_add(STEP);
    }
}

fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        die_of(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(Exit::Failed as i32));
}

/// Names what a balancer has read: each control plane makes its socket anew, and counts how often it has read its file again.
#[derive(Debug, PartialEq, Eq)]
struct Generation {
    socket: (u64, i64, i64),
    reloads: u64,
}

impl Generation {
    /// `None` while there is no socket.
    fn of(balancer: &Client) -> Result<Option<Self>, AskError> {
        let Ok(socket) = std::fs::metadata(balancer.files().socket()) else { return Ok(None) };
        let socket = (socket.ino(), socket.ctime(), socket.ctime_nsec());
        let reloads = match balancer.ask(&Request::Reloads)? {
            Reply::Count(reloads) => reloads,
            _ => 0,
        };
        Ok(Some(Self { socket, reloads }))
    }
}

/// Puts what there was into a balancer that is started again, or has read its file again.
fn watch(balancer: &Client, answers: &Answers<Client>) {
    let mut known = Generation::of(balancer).ok().flatten();
    let mut said: Option<String> = None;
    loop {
        thread::sleep(WATCHING);
        let put = Generation::of(balancer).and_then(|now| {
            if now.is_some() && now != known {
                answers.put_again()?;
                known = now;
            }
            Ok(())
        });
        // One that is not there is not ready yet, or has gone again.
        let trouble = put.err().filter(|error| !matches!(error, AskError::NotRunning { .. }));
        let trouble = trouble.map(|error| error.to_string());
        if let Some(why) = trouble.as_ref().filter(|_| trouble != said) {
            warn!("the balancer cannot be asked whether it was started again; it is asked each second: {why}");
        }
        said = trouble;
    }
}
