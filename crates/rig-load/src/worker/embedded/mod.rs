//! The two ends of a load that is agreed upon elsewhere: tools that speak another tool's protocol.
//!
//! A [`Sender`] opens connections to addresses and ports that may differ from thread to thread and fills them with the
//! engines of any other load. A [`Receiver`] has one thread for each port, which accepts any number of connections at any time.
//! Neither has phases of its own. The caller reads their [`Counts`] at the moments that matter, and waits for what is new with
//! `news`.

mod receiver;
mod sender;
pub mod streams;
#[cfg(test)]
mod tests;

pub use self::receiver::{Port, Receiver, ReceiverSettings};
pub use self::sender::{Sender, SenderSettings, Target};
use crate::engine::{ConnectionCounters, Times};

/// An embedded end has no window: it starts at once, and its connections may end at any time.
const AT_ONCE: Times = Times { start_ns: 0, begin_ns: 0, end_ns: 0, stop_ns: u64::MAX };

/// What a thread's sockets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    /// Datagrams of one message each, up to 65 507 bytes.
    Udp,
}

/// What one thread has moved since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payload bytes.
    pub bytes: u64,
    /// Completed sends or receives.
    pub operations: u64,
}

impl Counts {
    fn of<'a>(tallies: impl Iterator<Item = &'a ConnectionCounters>) -> Self {
        tallies.map(ConnectionCounters::read).fold(Self::default(), |sum, count| Self {
            bytes: sum.bytes + count.bytes,
            operations: sum.operations + count.operations,
        })
    }

    /// What came to `earlier` since.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            operations: self.operations.saturating_sub(earlier.operations),
        }
    }
}
