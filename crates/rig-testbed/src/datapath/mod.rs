//! What runs on a node and handles its packets: something of ours or a foreign one.
//!
//! ```text
//! runner                                             on the node, started by its host
//!   suite: name, nodes, settings
//!   Datapath::validate, missing (no testbed yet)
//!   start(host, Site, settings), Agent ---------------> netrig agent NAME: Attach::attach(Site) -> Live
//!                                                   or  netrig vrouter run --on-stdio: the service that users run
//!   Agent::reading, describe, command, detach --------> what it is asked, in lines
//! ```
//!
//! A [`Datapath`] is a kind, known by its name in a [`DatapathRegistry`]. An **agent** is one of them at work on one node, in a process
//! of its own that the node's host starts there, as it starts workers; of a datapath that runs on several nodes each has its own.
//! That process is a service of netrig's ([`ServiceProcess`]) or, for what is none, `netrig agent`, which says what is said in
//! [`protocol`]. What goes in and comes out is plain values ([`Site`], settings, arguments, counters, state).

mod node_process;
mod process;
pub mod protocol;
mod registry;
mod serve;
mod service;
mod settings;
mod site;
mod told;

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use self::process::AgentProcess;
use self::protocol::{Description, Reading};
use crate::host::Host;
use crate::process_client::TIMEOUT;

pub use crate::requirements::Missing;
pub use process::SUBCOMMAND;
pub use registry::{DatapathRegistry, DatapathRequirements};
pub use serve::serve;
pub use service::{Control, ServiceAgent, ServiceProcess};
pub use settings::{Mistake, Settings, read_settings};
pub use site::{Container, Interface, Protocol, RequestedServices, Services, Site};
pub use told::{BackendState, Counters, ServiceState, State};

/// A kind of thing that handles packets of the nodes on which it runs.
pub trait Datapath: fmt::Debug + Sync {
    /// By which suites, records and commands call it: letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// What is wrong with what a suite asks of it, on any machine.
    ///
    /// # Errors
    /// The first mistake, with the key that it is in.
    fn validate(&self, asked: &DatapathRequest<'_>) -> Result<(), Mistake>;

    /// Why it can do this on no machine, although nothing is wrong with the settings.
    fn impossible(&self, _asked: &DatapathRequest<'_>) -> Option<Missing> {
        None
    }

    /// What a machine lacks for it, with these settings.
    fn missing(&self, _machine: &Machine, _settings: &Settings) -> Option<Missing> {
        None
    }

    /// Has the machine take what it is made of, its programs above all, and lets it go: what a kernel refuses is known before a
    /// testbed is built. Takes no longer than a second or two.
    ///
    /// # Errors
    /// What was refused.
    fn try_out(&self) -> Result<()> {
        Ok(())
    }

    /// What its agents can be told while they work.
    fn commands(&self) -> &'static [Command] {
        &[]
    }

    /// What is wrong with the arguments of one of its [`commands`](Self::commands) on any testbed: a suite names them long before
    /// an agent is asked to carry them out.
    ///
    /// # Errors
    /// The mistake.
    fn check_command(&self, _name: &str, _arguments: &Settings) -> Result<(), Mistake> {
        Ok(())
    }

    /// Longest time for an answer of its agents.
    fn answer_timeout(&self) -> Duration {
        TIMEOUT
    }

    /// Whether its agents start programs of others, which may leave processes: all that such an agent left ends with it, also when it
    /// is killed.
    fn starts_programs(&self) -> bool {
        false
    }

    /// Whether its agents make things that are not the node's, and do not go with it. They are not killed with their runner then, but
    /// undo what they did when their input ends.
    fn makes_things_of_the_machine(&self) -> bool {
        false
    }

    /// Removes what agents have left of the machine's that were killed.
    ///
    /// # Errors
    /// What could not be removed.
    fn remove_leftovers(&self) -> Result<()> {
        Ok(())
    }

    /// What its process on a node is.
    fn process(&self) -> Process<'_>;
}

/// What runs on a node for a datapath.
#[derive(Debug)]
pub enum Process<'d> {
    /// `netrig agent NAME`, which attaches it.
    Agent(&'d dyn Attach),
    /// A service of netrig's own.
    Service(&'d dyn Start),
}

/// A datapath that `netrig agent` puts to work.
pub trait Attach: fmt::Debug {
    /// Puts it to work on a node. Called in a process of its own, which is in the node's network namespace and on the CPUs that are for
    /// everything else than carrying packets.
    ///
    /// # Errors
    /// Names what could not be set up; what was done until then is undone, or goes with the node.
    fn attach(&self, site: &Site, settings: &Settings) -> Result<Box<dyn Live>>;
}

/// A datapath whose agents are processes of a service.
pub trait Start: fmt::Debug {
    /// Starts the service on a node, and does not wait for it.
    ///
    /// # Errors
    /// When it cannot be started, or spoken to.
    fn start(&self, host: &dyn Host, site: &Site, settings: &Settings) -> Result<Box<dyn Starting>>;
}

/// An agent that is being started. Several are, before the first is waited for.
pub trait Starting: fmt::Debug {
    /// Waits until it is at work.
    ///
    /// # Errors
    /// What it refused, as it says it; [`LostPeer`](rig_lines::LostPeer) when it, or its host, does not answer.
    fn attached(self: Box<Self>) -> Result<Box<dyn Agent>>;
}

/// A datapath at work on a node, as its runner sees it. Dropping it ends its work; what is left behind goes with the node.
pub trait Agent: fmt::Debug {
    /// The name of the datapath.
    fn name(&self) -> &'static str;

    fn node(&self) -> &str;

    /// Asks it to read its counters, without waiting for them: several agents read at the same time.
    ///
    /// # Errors
    /// [`LostPeer`](rig_lines::LostPeer).
    fn begin_reading(&mut self) -> Result<()>;

    /// What it has counted since it was attached, as [`Self::begin_reading`] asked.
    ///
    /// # Errors
    /// What it refused, or [`LostPeer`](rig_lines::LostPeer).
    fn reading(&mut self) -> Result<Reading>;

    /// What it has counted since it was attached.
    ///
    /// # Errors
    /// As [`Self::reading`].
    fn counters(&mut self) -> Result<Reading> {
        self.begin_reading()?;
        self.reading()
    }

    /// What it is, the settings in force, and what it knows now.
    ///
    /// # Errors
    /// As [`Self::reading`].
    fn describe(&mut self) -> Result<Description>;

    /// Has it do what a command of this name says; its answer.
    ///
    /// # Errors
    /// [`UnknownCommand`] where it has none of the name; anything else says what was wrong or went wrong.
    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value>;

    /// Ends its work and waits until the process has ended; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// Names what could not be undone.
    fn detach(self: Box<Self>) -> Result<()>;
}

/// Starts an agent of a datapath on a node, and does not wait for it. It dies with the thread that calls this, where the host is this
/// process.
///
/// # Errors
/// When it cannot be started, or spoken to.
pub fn start(
    host: &dyn Host,
    datapath: &'static dyn Datapath,
    site: &Site,
    settings: &Settings,
) -> Result<Box<dyn Starting>> {
    match datapath.process() {
        Process::Agent(_) => Ok(Box::new(AgentProcess::start(host, datapath, site, settings)?)),
        Process::Service(service) => service.start(host, site, settings),
    }
}

/// A datapath that `netrig agent` has put to work. Dropping it ends its work; what is left behind goes with the node.
pub trait Live: fmt::Debug {
    /// What it is, with its version, e.g. `HAProxy 2.6.12, TCP mode, 1 thread`.
    fn version(&self) -> Result<String>;

    /// The settings in force: what was asked for, and what it took for the rest.
    fn settings(&self) -> Settings;

    /// What it has counted since it was attached. Called at the edges of a window and by samplers: it should take no more
    /// than some hundred microseconds.
    fn counters(&self) -> Result<Counters>;

    /// What it knows now, for the record.
    fn state(&self) -> Result<State>;

    /// Does what a command of this name says, and answers.
    ///
    /// # Errors
    /// [`UnknownCommand`] where it has none of the name; anything else says what was wrong or went wrong. Nothing was
    /// changed then.
    fn command(&mut self, name: &str, arguments: &Value) -> Result<Value>;

    /// Ends its work; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// Names what could not be undone.
    fn detach(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What a suite asks of a datapath, before there is a testbed.
#[derive(Debug, Clone, Copy)]
pub struct DatapathRequest<'a> {
    pub settings: &'a Settings,
    /// Where clients connect through it to servers.
    pub services: Option<RequestedServices>,
}

/// Something that agents of a datapath can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    pub name: &'static str,
    /// What it does, with its arguments, in a sentence.
    pub about: &'static str,
}

/// A machine that agents shall run on.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// netrig is no root outside of a user namespace of its own.
    pub rootless: bool,
}

impl Machine {
    /// What is missing where there is no such program, which a package brings.
    pub fn lacks_program(&self, program: &str, package: &str) -> Option<Missing> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Where root's programs are, which not every root has on its path.
        let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        let there = folders.any(|folder| folder.join(program).is_file());
        (!there).then(|| Missing::new(format!("no program {program}"), format!("apt-get install {package}")))
    }
}

/// A command that an agent does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{agent} knows no command '{command}': {}", known_text(.known))]
pub struct UnknownCommand {
    pub agent: String,
    pub command: String,
    pub known: &'static [Command],
}

impl UnknownCommand {
    pub fn of(datapath: &dyn Datapath, command: &str) -> Self {
        Self { agent: datapath.name().to_owned(), command: command.to_owned(), known: datapath.commands() }
    }
}

fn known_text(known: &[Command]) -> String {
    match known {
        [] => "it takes none".to_owned(),
        known => format!("choose from {}", known.iter().map(|command| command.name).collect::<Vec<_>>().join(", ")),
    }
}
