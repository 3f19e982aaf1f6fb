//! How payload leaves and enters the process with one system call.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rig_sys::socket;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{Connection, ThreadFailure};

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
        fill(&mut bytes[start..]);
        Self { bytes, start, length }
    }

    /// One that holds `payload`.
    fn holding(payload: &[u8]) -> Self {
        let mut buffer = Self::new(payload.len());
        buffer.get_mut().copy_from_slice(payload);
        buffer
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
pub(crate) trait SendMethod: Debug {
    /// Hands one message to the kernel. Returns the bytes that it took.
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno>;

    /// Takes what the kernel left on the connection's error queue.
    fn settle(&mut self, _connection: &Connection) {}
}

/// send(2)
#[derive(Debug)]
pub(crate) struct CopyOut(Buffer);

impl CopyOut {
    pub(crate) fn new(message: usize) -> Self {
        Self(Buffer::new(message))
    }

    pub(crate) fn holding(payload: &[u8]) -> Self {
        Self(Buffer::holding(payload))
    }
}

impl SendMethod for CopyOut {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        send(&connection.socket, self.0.get(), SendFlags::NOSIGNAL)
    }
}

/// A number of messages, after which the connection counts as ended.
#[derive(Debug)]
pub(crate) struct QuotaSend<P> {
    pub(crate) push: P,
    /// Messages left.
    pub(crate) quota: u64,
}

impl<P: SendMethod> SendMethod for QuotaSend<P> {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        self.quota = self.quota.checked_sub(1).ok_or(Errno::PIPE)?;
        let result = self.push.push(connection);
        if result.is_err() {
            self.quota += 1;
        }
        result
    }

    fn settle(&mut self, connection: &Connection) {
        self.push.settle(connection);
    }
}

/// What several senders may send together: bytes, or messages.
#[derive(Debug, Clone)]
pub(crate) struct SharedBudget {
    left: Arc<AtomicU64>,
    /// It counts messages.
    by_message: bool,
}

impl SharedBudget {
    pub(crate) fn bytes(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)), by_message: false }
    }

    pub(crate) fn messages(messages: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(messages)), by_message: true }
    }

    fn cost(&self, messages: usize, length: usize) -> u64 {
        if self.by_message { messages as u64 } else { messages as u64 * length as u64 }
    }

    /// Takes up to `most` messages of `length` bytes out of it; the last one may be dearer than what is left.
    #[inline]
    pub(crate) fn claim(&self, most: usize, length: usize) -> usize {
        let each = self.cost(1, length).max(1);
        let mut granted = 0;
        let take = |left: u64| {
            granted = usize::try_from(left.div_ceil(each)).unwrap_or(usize::MAX).min(most);
            Some(left.saturating_sub(self.cost(granted, length)))
        };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        granted
    }

    /// Puts back what was claimed and not sent.
    #[inline]
    pub(crate) fn give_back(&self, messages: usize, length: usize) {
        self.left.fetch_add(self.cost(messages, length), Ordering::Relaxed);
    }
}

/// Sends as long as a budget lasts, which others may draw on, too.
#[derive(Debug)]
pub(crate) struct Budgeted<P> {
    pub(crate) push: P,
    pub(crate) budget: SharedBudget,
    pub(crate) message: usize,
}

impl<P: SendMethod> SendMethod for Budgeted<P> {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        if self.budget.claim(1, self.message) == 0 {
            return Err(Errno::CANCELED);
        }
        let result = self.push.push(connection);
        if result.is_err() {
            self.budget.give_back(1, self.message);
        }
        result
    }

    fn settle(&mut self, connection: &Connection) {
        self.push.settle(connection);
    }
}

/// Datagrams: a lost one (an ICMP error came back, or a queue was full) does not end the load.
#[derive(Debug)]
pub(crate) struct Datagrams<P>(pub(crate) P);

impl<P: SendMethod> SendMethod for Datagrams<P> {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        self.0.push(connection).map_err(|errno| match errno {
            Errno::CONNREFUSED | Errno::NOBUFS | Errno::HOSTUNREACH | Errno::NETUNREACH => Errno::AGAIN,
            errno => errno,
        })
    }
}

/// sendfile(2) from a file in memory
#[derive(Debug)]
pub(crate) struct FileOut {
    file: OwnedFd,
    message: usize,
}

impl FileOut {
    pub(crate) fn new(message: usize) -> Result<Self, ThreadFailure> {
        Self::holding(Buffer::new(message).get())
    }

    pub(crate) fn holding(payload: &[u8]) -> Result<Self, ThreadFailure> {
        let message = payload.len();
        let make = || {
            let file = memfd_create("netrig payload", MemfdFlags::CLOEXEC)?;
            let mut written = 0;
            while written < message {
                written += rustix::io::write(&file, &payload[written..])?;
            }
            Ok(Self { file, message })
        };
        make().map_err(|errno: Errno| ThreadFailure {
            what: format!("fill a memory file with {message} bytes"),
            why: std::io::Error::from(errno).to_string(),
        })
    }
}

impl SendMethod for FileOut {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        sendfile(&connection.socket, &self.file, Some(&mut 0), self.message)
    }
}

/// send(2) with MSG_ZEROCOPY
#[derive(Debug)]
pub(crate) struct ZeroCopyOut(socket::ZeroCopy);

impl ZeroCopyOut {
    pub(crate) fn new(message: usize, connections: &[&Connection]) -> Result<Self, ThreadFailure> {
        for connection in connections {
            socket::ZeroCopy::enable(&connection.socket)
                .map_err(|error| super::failure("turn on MSG_ZEROCOPY towards", connection, &error))?;
        }
        let Buffer { mut bytes, start, length } = Buffer::new(message);
        bytes.truncate(start + length);
        Ok(Self(socket::ZeroCopy::new(bytes, start)))
    }

    fn count(&mut self, connection: &Connection) {
        match self.0.take_copied() {
            0 => {}
            sends => connection.tally.add_copied(sends),
        }
    }
}

impl SendMethod for ZeroCopyOut {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        let result = self.0.send(&connection.socket);
        self.count(connection);
        result
    }

    fn settle(&mut self, connection: &Connection) {
        // An error that is not a completion is the connection's, and the next send will tell.
        let _ = self.0.settle(&connection.socket);
        self.count(connection);
    }
}

/// One way to receive.
pub(crate) trait ReceiveMethod: Debug {
    /// Takes up to one message from the kernel; 0 at the end of the stream.
    fn pull(&mut self, connection: &Connection) -> Result<usize, Errno>;
}

/// recv(2)
#[derive(Debug)]
pub(crate) struct CopyIn(Buffer);

impl CopyIn {
    pub(crate) fn new(message: usize) -> Self {
        Self(Buffer::new(message))
    }
}

impl ReceiveMethod for CopyIn {
    #[inline]
    fn pull(&mut self, connection: &Connection) -> Result<usize, Errno> {
        recv(&connection.socket, self.0.get_mut(), RecvFlags::empty()).map(|(_, received)| received)
    }
}

/// recv(2) with MSG_TRUNC, which on TCP drops the bytes instead of copying them (tcp(7))
#[derive(Debug)]
pub(crate) struct DiscardIn(Vec<u8>);

impl DiscardIn {
    pub(crate) fn new(message: usize) -> Self {
        // Never written to, so it takes no memory.
        Self(vec![0; message])
    }
}

impl ReceiveMethod for DiscardIn {
    #[inline]
    fn pull(&mut self, connection: &Connection) -> Result<usize, Errno> {
        recv(&connection.socket, self.0.as_mut_slice(), RecvFlags::TRUNC).map(|(_, received)| received)
    }
}
