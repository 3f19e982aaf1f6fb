//! One connection in non-blocking mode: how far its requests and responses have come.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{Buffer, Payload};

/// What a receive brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveResult {
    /// `count` messages became complete. `filled`: it took all that there was room for, so there may be more.
    Messages {
        count: usize,
        filled: bool,
    },
    Nothing,
    /// The peer sends no more.
    End,
}

/// A connection's unfinished messages. Knows bytes and messages, not what they mean.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MessageState {
    /// Bytes queued for sending, in whole messages save for the first.
    unsent: usize,
    /// Bytes received of a message that is not complete.
    partial: usize,
    /// It has come to its end.
    pub(super) is_closed: bool,
}

impl MessageState {
    /// With one message to be sent.
    pub(super) fn with_queued(payload: &Payload) -> Self {
        Self { unsent: payload.size, ..Self::default() }
    }

    /// Whether anything of the one message has been sent.
    pub(super) fn has_sent(&self, payload: &Payload) -> bool {
        self.unsent < payload.size
    }

    pub(super) fn queue(&mut self, payload: &Payload, messages: usize) {
        self.unsent += messages * payload.size;
    }

    /// Sends what is queued, one call a message, until all is gone or the socket takes no more. Returns the number of
    /// messages that went out whole.
    #[inline]
    pub(super) fn flush(&mut self, socket: impl AsFd, payload: &Payload) -> Result<usize, Errno> {
        let before = self.unsent.div_ceil(payload.size);
        while self.unsent > 0 {
            let left = (self.unsent - 1) % payload.size + 1;
            match payload.push(&socket, left) {
                Ok(bytes) => self.unsent -= bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(before - self.unsent.div_ceil(payload.size))
    }

    /// Messages whose last byte has not been sent.
    pub(super) fn queued(&self, payload: &Payload) -> usize {
        self.unsent.div_ceil(payload.size)
    }

    /// Receives once; messages have `size` bytes.
    #[inline]
    pub(super) fn pull(&mut self, socket: impl AsFd, inbox: &mut Buffer, size: usize) -> Result<ReceiveResult, Errno> {
        let room = inbox.get_mut();
        loop {
            match recv(&socket, &mut *room, RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(ReceiveResult::End),
                Ok((_, bytes)) => {
                    let all = self.partial + bytes;
                    self.partial = all % size;
                    return Ok(ReceiveResult::Messages { count: all / size, filled: bytes == room.len() });
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(ReceiveResult::Nothing),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Whether a part of a message has been received.
    pub(super) fn has_partial(&self) -> bool {
        self.partial > 0
    }
}
