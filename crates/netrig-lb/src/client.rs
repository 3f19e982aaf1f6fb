//! Asking a running balancer.

use std::io;
use std::ops::ControlFlow;

use rig_cli::exit::Failure;
use rig_service::{AskError, Client};

use super::daemon::keep::Pins;
use super::instance::{Name, files};
use super::message::{AccessEntry, ConnectionEntry, Filter, Reply, Request, Status};

/// The balancer of this name.
pub fn client(name: &Name) -> Client {
    let files = files(name);
    let pins = Pins::of(&files);
    let absent = format!(
        "no balancer named {name} is running: start it with `netrig lb run --name {name}`, or give another --name"
    );
    let unattended = format!(
        "the balancer named {name} runs on without a control plane, by what is pinned in {}, so it cannot be asked: take it over \
         with `netrig lb run --persist --name {name}`, or remove it with `netrig lb stop --detach --name {name}`",
        pins.directory().display()
    );
    Client::new(files, format!("the balancer named {name}"), absent).or_unattended(pins.last_table(), unattended)
}

/// One request, one answer. Not for [`Request::Connections`], see [`connections`].
pub fn ask(name: &Name, request: &Request) -> Result<Reply, AskError> {
    client(name).ask(request)
}

/// What the running balancer of this name says of itself.
pub fn status(name: &Name) -> Result<Status, Failure> {
    let client = client(name);
    match client.ask(&Request::Status)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(foreign(name).into()),
    }
}

/// An answer that is none to what was asked.
pub(crate) fn foreign(name: &Name) -> AskError {
    client(name).foreign("an answer to something else")
}

/// The lists of who may begin connections.
pub fn access(name: &Name) -> Result<Vec<AccessEntry>, AskError> {
    let mut entries = Vec::new();
    let listed = client(name).stream(&Request::Access, |reply| {
        let Reply::Access(batch) = reply else { return ControlFlow::Break(foreign(name)) };
        entries.extend(batch);
        ControlFlow::Continue(())
    })?;
    match listed {
        ControlFlow::Continue(()) => Ok(entries),
        ControlFlow::Break(foreign) => Err(foreign),
    }
}

/// Gives `with` the connections that `filter` lets through, a batch at a time; it ends the listing by an error.
pub fn connections(
    name: &Name,
    filter: Filter,
    mut with: impl FnMut(Vec<ConnectionEntry>) -> io::Result<()>,
) -> Result<io::Result<()>, AskError> {
    let listed = client(name).stream(&Request::Connections(filter), |reply| {
        let Reply::Connections(entries) = reply else { return ControlFlow::Break(Err(foreign(name))) };
        match with(entries) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Ok(error)),
        }
    })?;
    match listed {
        ControlFlow::Continue(()) => Ok(Ok(())),
        ControlFlow::Break(Ok(error)) => Ok(Err(error)),
        ControlFlow::Break(Err(foreign)) => Err(foreign),
    }
}
