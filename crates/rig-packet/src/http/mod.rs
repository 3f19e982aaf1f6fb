//! HTTP/1.1: messages that clients and servers send, and what comes of those that they receive.

mod automaton;
mod compose;
mod reader;

#[cfg(test)]
mod tests;

pub(super) use automaton::{Kind, Reading};
pub use compose::{HEADER, Method, REQUEST, request, response};
pub(super) use reader::{Progress, Reader};

/// A message that is all there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CompleteMessage {
    pub reading: Reading,
    /// Bytes of the header.
    pub header: usize,
}

/// `message`, if it is one whole message of its kind.
pub(super) fn whole(kind: Kind, message: &[u8]) -> Option<CompleteMessage> {
    let (mut reading, mut left) = (Reading::default(), 0);
    let header = reading.header(kind, &mut left, 0, message).ok()??;
    let body = reading.body(&mut left, 0, &message[header..]).ok()?;
    let ends = header + body == message.len() && (reading.is_done() || reading.ends_by_close());
    ends.then_some(CompleteMessage { reading, header })
}
