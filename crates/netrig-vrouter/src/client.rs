//! Asking a running router.

use std::io;
use std::path::PathBuf;

use rig_cli::exit::{Exit, Failure};
use rig_service::ask::{self, NoAnswer};
use rig_service::files::ServiceFiles;

use crate::instance::{files, running};
use crate::message::{FlowEntry, FlowFilter, Log, Reply, Request, Status, Table, Trace, Traced, Wanted};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no router runs here: start it with `netrig vrouter run FILE --node NAME`")]
    NoneRuns,
    #[error("the router of node '{node}' does not run here: start it with `netrig vrouter run FILE --node {node}`")]
    NotRunning { node: String },
    #[error("routers of several nodes run here: choose one with --node, one of {nodes}")]
    Several { nodes: String },
    #[error(
        "not permitted to talk to the router of node '{node}': its socket {socket} is for the user that runs it (root)"
    )]
    NotPermitted { node: String, socket: PathBuf },
    /// Nothing was done.
    #[error("{what}{}", hint.as_deref().map(|hint| format!("\n  {hint}")).unwrap_or_default())]
    Refused { what: String, hint: Option<String> },
    #[error("the router of node '{node}' does not answer at {socket}: {source}")]
    Silent { node: String, socket: PathBuf, source: io::Error },
    #[error(
        "the router of node '{node}' gives an answer that this netrig does not understand: restart it with this version"
    )]
    Foreign { node: String },
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = match error {
            AskError::Refused { .. } | AskError::Several { .. } => Exit::BadInput,
            AskError::NoneRuns | AskError::NotRunning { .. } | AskError::NotPermitted { .. } => Exit::Lacking,
            AskError::Silent { .. } | AskError::Foreign { .. } => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

/// A router that runs here.
#[derive(Debug, Clone)]
pub struct Asked(ServiceFiles);

impl Asked {
    /// The one of a node; the only one, where no node is named.
    ///
    /// # Errors
    /// Where nobody or several could be meant.
    pub fn of(node: Option<&str>) -> Result<Self, AskError> {
        if let Some(node) = node {
            return Ok(Self(files(node)));
        }
        match &running()[..] {
            [] => Err(AskError::NoneRuns),
            [node] => Ok(Self(files(node))),
            several => Err(AskError::Several { nodes: several.join(", ") }),
        }
    }

    fn foreign(&self) -> AskError {
        AskError::Foreign { node: self.0.instance().to_owned() }
    }

    pub fn status(&self) -> Result<Status, AskError> {
        match Conversation::begin(&self.0, &Request::Status)?.next()? {
            Reply::Status(status) => Ok(*status),
            _ => Err(self.foreign()),
        }
    }

    /// Of a VRF, or of all.
    pub fn routes(&self, vrf: Option<u32>) -> Result<Vec<Table>, AskError> {
        match Conversation::begin(&self.0, &Request::Routes(vrf))?.next()? {
            Reply::Routes(tables) => Ok(tables),
            _ => Err(self.foreign()),
        }
    }

    /// The one that something takes, in a table of its own.
    pub fn route(&self, vrf: u32, to: Wanted) -> Result<Table, AskError> {
        match Conversation::begin(&self.0, &Request::Route { vrf, to })?.next()? {
            Reply::Routes(tables) => tables.into_iter().next().ok_or_else(|| self.foreign()),
            _ => Err(self.foreign()),
        }
    }

    pub fn trace(&self, traced: Traced) -> Result<Trace, AskError> {
        match Conversation::begin(&self.0, &Request::Trace(traced))?.next()? {
            Reply::Trace(trace) => Ok(*trace),
            _ => Err(self.foreign()),
        }
    }

    /// What rules have logged, from a sequence number on.
    pub fn log(&self, from: u64) -> Result<Log, AskError> {
        match Conversation::begin(&self.0, &Request::Log { from })?.next()? {
            Reply::Log(log) => Ok(log),
            _ => Err(self.foreign()),
        }
    }

    pub fn reload(&self) -> Result<Vec<String>, AskError> {
        match Conversation::begin(&self.0, &Request::Reload)?.next()? {
            Reply::Done(said) => Ok(said),
            _ => Err(self.foreign()),
        }
    }

    pub fn flows(&self) -> Result<Vec<FlowEntry>, AskError> {
        self.listed(&Request::Flows)
    }

    pub fn flows_of(&self, filter: &FlowFilter) -> Result<Vec<FlowEntry>, AskError> {
        self.listed(&Request::FlowsOf(filter.clone()))
    }

    fn listed(&self, request: &Request) -> Result<Vec<FlowEntry>, AskError> {
        let mut conversation = Conversation::begin(&self.0, request)?;
        let mut all = Vec::new();
        loop {
            let Reply::Flows { flows, last } = conversation.next()? else { return Err(self.foreign()) };
            all.extend(flows);
            if last {
                return Ok(all);
            }
        }
    }
}

#[derive(Debug)]
struct Conversation {
    node: String,
    socket: PathBuf,
    with: ask::Conversation<Reply>,
}

impl Conversation {
    fn begin(files: &ServiceFiles, request: &Request) -> Result<Self, AskError> {
        let (socket, node) = (files.socket(), files.instance().to_owned());
        let with = ask::Conversation::begin(&socket, request).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning { node: node.clone() },
            io::ErrorKind::PermissionDenied => AskError::NotPermitted { node: node.clone(), socket: socket.clone() },
            _ => AskError::Silent { node: node.clone(), socket: socket.clone(), source },
        })?;
        Ok(Self { node, socket, with })
    }

    fn next(&mut self) -> Result<Reply, AskError> {
        match self.with.answer() {
            Ok(Reply::Refused { what, hint }) => Err(AskError::Refused { what, hint }),
            Ok(reply) => Ok(reply),
            Err(NoAnswer::Foreign) => Err(AskError::Foreign { node: self.node.clone() }),
            Err(NoAnswer::Io(source)) => {
                Err(AskError::Silent { node: self.node.clone(), socket: self.socket.clone(), source })
            }
        }
    }
}
