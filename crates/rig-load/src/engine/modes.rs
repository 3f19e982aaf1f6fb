//! How payload leaves and enters the process with one system call.

use std::fmt::Debug;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::Connection;

/// The page size that buffers are aligned to.
const PAGE: usize = 4096;

/// A buffer that begins on a page and whose pages exist: an untouched one would be the kernel's one page of zeroes,
/// which is in every cache.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    pub(crate) fn new(length: usize) -> Self {
        let mut bytes = vec![0u8; length + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        fill(&mut bytes);
        Self { bytes, start, length }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }
}

/// The payload's pattern: bytes that count, so that neither compression nor deduplication on the way finds zeroes.
fn fill(bytes: &mut [u8]) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) | 1;
    }
}

/// One way to send a message.
pub(crate) trait Push: Debug {
    /// Hands one message to the kernel. Returns the bytes that it took.
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno>;
}

/// One way to receive.
pub(crate) trait Pull: Debug {
    /// Takes up to one message from the kernel; 0 at the end of the stream.
    fn pull(&mut self, connection: &Connection) -> Result<usize, Errno>;
}

/// send(2)
#[derive(Debug)]
pub(crate) struct CopyOut(pub(crate) Buffer);

impl Push for CopyOut {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        send(&connection.socket, self.0.get(), SendFlags::NOSIGNAL)
    }
}

/// recv(2)
#[derive(Debug)]
pub(crate) struct CopyIn(pub(crate) Buffer);

impl Pull for CopyIn {
    #[inline]
    fn pull(&mut self, connection: &Connection) -> Result<usize, Errno> {
        recv(&connection.socket, self.0.get_mut(), RecvFlags::empty()).map(|(_, received)| received)
    }
}
