//! Asking the spreader that runs in this network namespace.

use rig_service::{AskError, Client};

use crate::instance;
use crate::message::{LogEntry, Reply, Request, Status};
use crate::settings::SettingChanges;

/// # Errors
/// Where the kernel does not tell which namespace this is.
pub(crate) fn client() -> Result<Client, AskError> {
    let absent = "no spreader runs in this network namespace: start one with `netrig spread run INTERFACE`";
    Ok(Client::new(instance::files()?, "the spreader", absent))
}

/// # Errors
/// Where none runs here, or it does not answer.
pub fn status() -> Result<Status, AskError> {
    let client = client()?;
    match client.ask(&Request::Status)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(foreign(&client)),
    }
}

/// What happened after the entry of the log with this number.
///
/// # Errors
/// As [`status`].
pub fn events(after: u64) -> Result<Vec<LogEntry>, AskError> {
    let client = client()?;
    match client.ask(&Request::Events { after })? {
        Reply::Events(events) => Ok(events),
        _ => Err(foreign(&client)),
    }
}

/// What of it is in force, in lines.
///
/// # Errors
/// As [`status`], and for an interface that is not taken or values that cannot be meant.
pub fn set(interface: &str, changes: SettingChanges) -> Result<Vec<String>, AskError> {
    done(&Request::Set { interface: interface.to_owned(), changes })
}

pub(crate) fn done(request: &Request) -> Result<Vec<String>, AskError> {
    let client = client()?;
    match client.ask(request)? {
        Reply::Done(lines) => Ok(lines),
        _ => Err(foreign(&client)),
    }
}

fn foreign(client: &Client) -> AskError {
    client.foreign("an answer to something else")
}
