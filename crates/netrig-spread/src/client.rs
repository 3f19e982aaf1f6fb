//! Asking a running spreader.

use std::io;
use std::path::PathBuf;

use rig_cli::exit::{Exit, Failure};
use rig_service::ask::{Conversation, NoAnswer};

use crate::instance;
use crate::message::{Logged, Reply, Request, Status};
use crate::settings::Changes;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no spreader runs in this network namespace: start one with `netrig spread run INTERFACE`")]
    NotRunning,
    #[error("not permitted to talk to the spreader: its socket {socket} is for the user that runs it (root)")]
    NotPermitted { socket: PathBuf },
    /// Nothing was done.
    #[error("{what}{}", hint.as_deref().map(|hint| format!("\n  {hint}")).unwrap_or_default())]
    Refused { what: String, hint: Option<String> },
    #[error("the spreader does not answer at {socket}: {source}")]
    Silent { socket: PathBuf, source: io::Error },
    #[error("the spreader gives an answer that this netrig does not understand: restart it with this version")]
    Foreign,
    #[error(transparent)]
    Here(#[from] anyhow::Error),
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let exit = match error {
            AskError::Refused { .. } => Exit::BadInput,
            AskError::NotRunning | AskError::NotPermitted { .. } => Exit::Lacking,
            AskError::Silent { .. } | AskError::Foreign | AskError::Here(_) => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

/// # Errors
/// Where none runs here, or it does not answer.
pub fn status() -> Result<Status, AskError> {
    match ask(&Request::Status)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(AskError::Foreign),
    }
}

/// What happened after the entry of the log with this number.
///
/// # Errors
/// As [`status`].
pub fn events(after: u64) -> Result<Vec<Logged>, AskError> {
    match ask(&Request::Events { after })? {
        Reply::Events(events) => Ok(events),
        _ => Err(AskError::Foreign),
    }
}

/// What of it is in force, in lines.
///
/// # Errors
/// As [`status`], and for an interface that is not taken or values that cannot be meant.
pub fn set(interface: &str, changes: Changes) -> Result<Vec<String>, AskError> {
    done(&Request::Set { interface: interface.to_owned(), changes })
}

pub(crate) fn done(request: &Request) -> Result<Vec<String>, AskError> {
    match ask(request)? {
        Reply::Done(lines) => Ok(lines),
        _ => Err(AskError::Foreign),
    }
}

fn ask(request: &Request) -> Result<Reply, AskError> {
    let socket = instance::files()?.socket();
    let begun = Conversation::<Reply>::begin(&socket, request);
    let mut conversation = begun.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning,
        io::ErrorKind::PermissionDenied => AskError::NotPermitted { socket: socket.clone() },
        _ => AskError::Silent { socket: socket.clone(), source },
    })?;
    match conversation.answer() {
        Ok(Reply::Refused { what, hint }) => Err(AskError::Refused { what, hint }),
        Ok(reply) => Ok(reply),
        Err(NoAnswer::Foreign) => Err(AskError::Foreign),
        Err(NoAnswer::Io(source)) => Err(AskError::Silent { socket, source }),
    }
}
