//! HTTP/1.1: messages that clients and servers send, and what comes of those that they receive.

mod automaton;
mod compose;
mod reader;

#[cfg(test)]
mod tests;

pub(super) use automaton::{Kind, Reading};
pub use compose::{HEADER, Method, REQUEST, request, response};
pub(super) use reader::{Progress, Reader};

/// The length of the header of `message`, when it is one whole message of its kind.
pub(super) fn header_of(kind: Kind, message: &[u8]) -> Option<usize> {
    let (mut reading, mut left) = (Reading::default(), 0);
    let header = reading.header(kind, &mut left, 0, message).ok()??;
    let body = reading.body(&mut left, 0, &message[header..]).ok()?;
    let whole = header + body == message.len() && (reading.is_done() || reading.ends_by_close());
    whole.then_some(header)
}
