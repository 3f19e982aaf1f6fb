//! Asking a running balancer.

use std::io;
use std::path::PathBuf;

use rig_cli::exit::{Exit, Failure};
use rig_service::ask::{self, NoAnswer};

use super::daemon::keep::Pins;
use super::instance::{Name, files};
use super::message::{ConnectionEntry, Filter, Reply, Request, Status};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no balancer named {name} is running: start it with `netrig lb run --name {name}`, or give another --name")]
    NotRunning { name: Name },
    #[error(
        "the balancer named {name} runs on without a control plane, by what is pinned in {pins}, so it cannot be asked: take it over with `netrig lb run \
         --persist --name {name}`, or remove it with `netrig lb stop --detach --name {name}`"
    )]
    Unattended { name: Name, pins: PathBuf },
    #[error(
        "not permitted to talk to the balancer named {name}: its socket {socket} is for the user that runs it (root)"
    )]
    NotPermitted { name: Name, socket: PathBuf },
    /// Nothing was done.
    #[error("{what}{}", hint.as_deref().map(|hint| format!(": {hint}")).unwrap_or_default())]
    Refused { what: String, hint: Option<String>, edit: Option<usize> },
    #[error("the balancer named {name} does not answer at {socket}: {source}")]
    Silent { name: Name, socket: PathBuf, source: io::Error },
    #[error(
        "the balancer named {name} gives an answer that this netrig does not understand: restart it with this version"
    )]
    Foreign { name: Name },
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = match error {
            AskError::Refused { .. } => Exit::BadInput,
            AskError::NotRunning { .. } | AskError::Unattended { .. } | AskError::NotPermitted { .. } => Exit::Lacking,
            AskError::Silent { .. } | AskError::Foreign { .. } => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

/// One request, one answer, which is none of [`Reply::Refused`]: that is an error. Not for [`Request::Connections`], see
/// [`connections`].
pub fn ask(name: &Name, request: &Request) -> Result<Reply, AskError> {
    Conversation::begin(name, request)?.next()
}

/// What the running balancer of this name says of itself.
pub fn status(name: &Name) -> Result<Status, Failure> {
    match ask(name, &Request::Status)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(AskError::Foreign { name: name.clone() }.into()),
    }
}

/// Gives `with` the connections that `filter` lets through, a batch at a time; it ends the listing by an error.
pub fn connections(
    name: &Name,
    filter: Filter,
    mut with: impl FnMut(Vec<ConnectionEntry>) -> io::Result<()>,
) -> Result<io::Result<()>, AskError> {
    let mut conversation = Conversation::begin(name, &Request::Connections(filter))?;
    loop {
        let Reply::Connections { entries, last } = conversation.next()? else {
            return Err(AskError::Foreign { name: name.clone() });
        };
        if let Err(error) = with(entries) {
            return Ok(Err(error));
        }
        if last {
            return Ok(Ok(()));
        }
    }
}

#[derive(Debug)]
struct Conversation {
    name: Name,
    socket: PathBuf,
    with: ask::Conversation<Reply>,
}

impl Conversation {
    fn begin(name: &Name, request: &Request) -> Result<Self, AskError> {
        let files = files(name);
        let socket = files.socket();
        let name = name.clone();
        let with = ask::Conversation::begin(&socket, request).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused if Pins::of(&files).resumable() => {
                AskError::Unattended { name: name.clone(), pins: files.pins() }
            }
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning { name: name.clone() },
            io::ErrorKind::PermissionDenied => AskError::NotPermitted { name: name.clone(), socket: socket.clone() },
            _ => AskError::Silent { name: name.clone(), socket: socket.clone(), source },
        })?;
        Ok(Self { name, socket, with })
    }

    fn next(&mut self) -> Result<Reply, AskError> {
        match self.with.answer() {
            Ok(Reply::Refused { what, hint, edit }) => Err(AskError::Refused { what, hint, edit }),
            Ok(reply) => Ok(reply),
            Err(NoAnswer::Foreign) => Err(AskError::Foreign { name: self.name.clone() }),
            Err(NoAnswer::Io(source)) => {
                Err(AskError::Silent { name: self.name.clone(), socket: self.socket.clone(), source })
            }
        }
    }
}
