//! Why a conversation in lines cannot go on.

use std::io;

use crate::{LineTooLong, Refusal};

/// After any of these but a refusal nothing more can be said: what was asked may have been done or not.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It came at the end of a line: nothing is missing but the answer.
    #[error("its output has ended")]
    Ended,
    #[error("its output has ended inside a line")]
    Cut,
    #[error(transparent)]
    TooLong(#[from] LineTooLong),
    /// What was to be said.
    #[error("a message of {length} bytes is longer than {limit}")]
    Oversized { length: usize, limit: usize },
    #[error("it does not speak the protocol: '{start}': {why}")]
    Foreign {
        /// Of the line.
        start: String,
        why: String,
    },
    #[error("no greeting of netrig's: '{start}'")]
    NoGreeting { start: String },
    #[error("it speaks '{found}', not '{expected}'")]
    OtherProtocol { found: String, expected: &'static str },
    #[error("one side speaks version {newer} and the other {older}: use the same netrig on both")]
    OtherVersion { newer: u32, older: u32 },
    #[error("it answers request {found} where {expected} was asked")]
    OtherNumber { found: u64, expected: u64 },
    #[error("it does not understand: {0}")]
    NotUnderstood(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Error {
    /// Whether the other side has gone, rather than said something wrong.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Ended | Self::Cut => true,
            Self::Io(error) => {
                matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
            }
            _ => false,
        }
    }
}

/// The other side cannot be asked any more: it is gone, silent, or says what is not understood. This is no [`Refusal`] of what it
/// was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LostPeer(pub String);

/// The begin of a line, to be shown.
pub(crate) fn start(line: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
    text.replace(char::is_control, "\u{fffd}")
}
