//! An io_uring (io_uring(7)) for stream sockets: a fixed number of operations of one kind in flight on each socket.
//!
//! What was chosen, and why (docs/decisions/io-uring.md has the figures):
//! - **A receive is armed once for each socket and completes often** (IORING_RECV_MULTISHOT), into a few buffers that
//!   are filled bit by bit and stay in the cache (IOU_PBUF_RING_INC, Linux 6.12).
//! - **Arrivals are gathered** ([`Ring::gather`]): a thread that waits is not woken by each of them, but at most once in
//!   a while (IORING_FEAT_MIN_TIMEOUT, Linux 6.12). This is what makes io_uring cheaper than recv(2).
//! - Older kernels get **receives that are linked** (IOSQE_IO_LINK), each with its buffer, so that the kernel works
//!   through them in order. Unlinked ones would complete in any order, which no program that reads its data could use,
//!   and each arrival would wake all of them.
//! - **Sends carry MSG_WAITALL**: the kernel goes on with a send that the socket buffer could not take whole, and one
//!   completion stands for one message.
//! - **IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN**: completions are worked off when the thread asks for them, on its
//!   own time, instead of by interrupting it. Sockets and zero-copy buffers are registered, so that no reference is
//!   taken and no page pinned for each operation.

mod error;
mod pool;
mod slots;

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::cqueue;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};

pub use self::error::UringError;
use self::pool::{GROUP, Pool};
use self::slots::SocketSlots;

/// How long the kernel may take to give back the buffers of cancelled operations.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a wait that gathers lasts at most: without an end of its own it would end with the gathering, whether something
/// came or not.
const LONG: Duration = Duration::from_secs(60);

/// Least room for multishot receives, bytes, when messages are so small that `depth` of them are less: for datagrams that come while a
/// wait gathers. It stays in a second-level cache.
const ROOM: u32 = 1 << 20;
/// Beyond so many buffers, small ones are no fewer calls.
const MANY: u32 = 64;

/// Completions that a ring has room for at least. A multishot receive makes some for each arrival, and ends when there is no
/// room.
const COMPLETIONS: u32 = 256;

/// Stands for the descriptor that wakes the thread, where a slot's number stands else.
const WAKE: u64 = u64::MAX;

/// linux/io_uring.h
const SEND_ZC_REPORT_USAGE: u16 = 8;
const NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

/// What the operations of a ring do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Send copies of the message.
    Send,
    /// Send references to the message's pages (IORING_OP_SEND_ZC, Linux 6.0).
    SendZeroCopy,
    /// Receive up to a message, each operation into a buffer of its own.
    Receive,
    /// Receive up to a message and drop it (MSG_TRUNC, tcp(7)).
    Discard,
}

/// What became of an operation. `socket` is its socket's place in the list that the ring was made with.
#[derive(Debug)]
pub enum Completion {
    /// It has moved bytes, or failed with the kernel's reason. Cancelled operations are those behind a failed one.
    /// ENOBUFS: a multishot receive found no buffer, and has to be queued again now that they are given back. A
    /// zero-copy send that `holds` its pages counts as in flight until it releases them.
    Result { socket: usize, result: io::Result<usize>, holds: bool },
    /// A zero-copy send, whose result came before, has released its pages. `copied`: the kernel copied them after all.
    Released { socket: usize, copied: bool },
}

/// A ring for one thread. Buffers belong to it and outlive the operations that use them.
#[derive(Debug)]
pub struct Ring {
    ring: RingFd,
    slots: SocketSlots,
    /// Where multishot receives find their buffers.
    pool: Option<Pool>,
    work: Operation,
    gathering: Option<MinWait>,
    /// io_uring wants the thread that made the ring to use it.
    _not_send: PhantomData<*const ()>,
}

/// How long a wait goes on although something has come, unless it is so many completions.
#[derive(Debug, Clone, Copy)]
struct MinWait {
    microseconds: u32,
    completions: usize,
}

/// IoUring has no Debug.
struct RingFd(IoUring);

impl std::fmt::Debug for RingFd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoUring({})", self.0.as_raw_fd())
    }
}

/// Whether io_uring can be used here for everything that [`Ring`] does, and if not why.
pub fn available() -> Result<(), UringError> {
    let ring = build(1)?;
    [Operation::Send, Operation::SendZeroCopy, Operation::Receive, Operation::Discard]
        .into_iter()
        .try_for_each(|work| probe(&ring, work))
}

/// What a ring with `operations` in flight takes beside its buffers, bytes: entries of 64 and, twice as many and at least 256, of
/// 16 bytes in a power of two (io_uring_setup(2)), and the kernel's own record of each operation in flight (struct io_kiocb,
/// 256 bytes).
pub fn memory(operations: u64) -> u64 {
    let entries = operations.saturating_add(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    let completions = entries.saturating_mul(2).max(COMPLETIONS.into());
    let rings = entries.saturating_mul(64).saturating_add(completions.saturating_mul(16));
    rings.saturating_add(operations.saturating_mul(256))
}

/// How many buffers of `message` bytes a ring that receives has: with linked receives one for each of `depth` operations
/// on each of `sockets`, with multishot ones those that all sockets take from; the higher of the two. When it drops what it
/// receives, it has one.
pub fn receive_buffers(sockets: u32, depth: u32, message: u32) -> u64 {
    let linked = u64::from(sockets) * u64::from(depth);
    linked.max(pool::granted(shared_buffers(depth, message)).into())
}

/// How many buffers multishot receives take from.
fn shared_buffers(depth: u32, message: u32) -> u32 {
    depth.max((ROOM / message.max(1)).min(MANY))
}

fn build(entries: u32) -> Result<IoUring, UringError> {
    let completions = entries.saturating_mul(2).max(COMPLETIONS);
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(completions);
    let modern = builder.clone().setup_single_issuer().setup_defer_taskrun().build(entries);
    match modern {
        // Before Linux 6.1 the flags are unknown.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder.build(entries).map_err(UringError::from_setup)
        }
        other => other.map_err(UringError::from_setup),
    }
}

fn probe(ring: &IoUring, work: Operation) -> Result<(), UringError> {
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(UringError::from_setup)?;
    let code = match work {
        Operation::Send => opcode::Send::CODE,
        Operation::SendZeroCopy => opcode::SendZc::CODE,
        Operation::Receive | Operation::Discard => opcode::Recv::CODE,
    };
    if probe.is_supported(code) { Ok(()) } else { Err(UringError::MissingOperation { work }) }
}

impl Ring {
    /// A ring that can have `depth` operations in flight on each of `sockets`, which have to be in blocking mode. What
    /// sends send is `message`; receives take up to `message.len()` bytes.
    ///
    /// Where the kernel can (Linux 6.12), a socket has a single receive in flight, which completes once for each message
    /// or part of one, into at least `depth` buffers, from which those of all sockets take.
    ///
    /// # Errors
    /// Why io_uring cannot be used, with the remedy.
    pub fn new(sockets: &[BorrowedFd<'_>], depth: u32, work: Operation, message: &[u8]) -> Result<Self, UringError> {
        let buffers = shared_buffers(depth, message.len() as u32);
        Self::with(sockets, depth, work, message, Some(buffers))
    }

    /// A ring as [`Self::new`] makes it, with multishot receives that take from `buffers`, or linked ones.
    fn with(
        sockets: &[BorrowedFd<'_>],
        depth: u32,
        work: Operation,
        message: &[u8],
        buffers: Option<u32>,
    ) -> Result<Self, UringError> {
        let entries = u32::try_from(sockets.len()).unwrap_or(u32::MAX).saturating_mul(depth);
        let ring = build(entries.saturating_add(1))?;
        probe(&ring, work)?;
        let receives = matches!(work, Operation::Receive | Operation::Discard);
        // All that is needed came at the same time or before it.
        let pool = buffers
            .filter(|_| receives && ring.params().is_feature_min_timeout())
            .map(|buffers| Pool::new(&ring, buffers, message.len() as u32, work == Operation::Discard))
            .transpose()
            .map_err(UringError::from_setup)?;
        let fds: Vec<_> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&fds).map_err(UringError::from_setup)?;
        let slots = match pool {
            Some(_) => SocketSlots::new(sockets.len(), 1, work, &[]),
            None => SocketSlots::new(sockets.len(), depth as usize, work, message),
        };
        if work == Operation::SendZeroCopy {
            let (buffer, length) = slots.message();
            let vector = libc::iovec { iov_base: buffer.cast_mut().cast(), iov_len: length };
            // SAFETY: the buffer is owned by the slots, which are dropped only when nothing is in flight, else leaked;
            // the kernel only reads from it.
            unsafe { ring.submitter().register_buffers(&[vector]) }.map_err(UringError::from_setup)?;
        }
        Ok(Self { ring: RingFd(ring), slots, pool, work, gathering: None, _not_send: PhantomData })
    }

    /// Lets a wait go on for up to `time` after it began, although something has come, unless it has for more than half of
    /// the sockets: so one wake-up is for all that comes within it. What comes later ends the wait at once. For multishot
    /// receives; others wait as before.
    pub fn gather(&mut self, time: Duration) {
        if self.pool.is_some() {
            let microseconds = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
            // A receive counts once until the thread comes to take what arrived, however much that is. One socket alone
            // never ends the gathering, of several half of them do.
            let completions = (self.slots.sockets() / 2 + 1).max(2);
            self.gathering = Some(MinWait { microseconds, completions });
        }
    }

    /// Makes [`Self::wait`] return once `fd` is readable, even if no operation completes. It may be closed afterwards.
    ///
    /// # Errors
    /// Those of io_uring_enter(2).
    pub fn wake_on(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let poll = opcode::PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).build().user_data(WAKE);
        // SAFETY: the operation uses no memory; its descriptor is open until the kernel has taken a reference to the
        // file, which it has when the submission returns.
        unsafe { self.ring.0.submission().push(&poll) }.map_err(io::Error::other)?;
        self.ring.0.submit().map(drop)
    }

    /// Operations in flight on a socket, queued ones included.
    pub fn in_flight(&self, socket: usize) -> usize {
        self.slots.busy(socket)
    }

    /// Operations in flight on all sockets.
    pub fn total_in_flight(&self) -> usize {
        self.slots.total_busy()
    }

    /// Operations in flight whose result has not come.
    pub fn total_unfinished(&self) -> usize {
        self.slots.total_unfinished()
    }

    /// Queues up to `operations` on a socket, as many as it has room for, and returns how many. The kernel sees them
    /// at the next [`Self::wait`].
    pub fn queue(&mut self, socket: usize, operations: usize) -> usize {
        let free = self.slots.free(socket).min(operations);
        for left in (0..free).rev() {
            let Some(slot) = self.slots.take(socket) else { break };
            let mut entry = self.entry(socket, slot).user_data(slot as u64);
            if left > 0 && self.pool.is_none() && matches!(self.work, Operation::Receive | Operation::Discard) {
                entry = entry.flags(Flags::IO_LINK);
            }
            // SAFETY: the buffer that the entry points to belongs to the slot, which stays taken until the operation's
            // completion; the buffers are freed only when no slot is taken, else leaked. The file is registered.
            let pushed = unsafe { self.ring.0.submission().push(&entry) };
            // The ring has an entry for each slot.
            debug_assert!(pushed.is_ok());
        }
        free
    }

    fn entry(&mut self, socket: usize, slot: usize) -> Entry {
        let file = Fixed(socket as u32);
        let (buffer, length) = self.slots.buffer(slot);
        let whole = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        if self.pool.is_some() {
            let flags = if self.work == Operation::Discard { libc::MSG_TRUNC } else { 0 };
            return opcode::RecvMulti::new(file, GROUP).flags(flags).build();
        }
        match self.work {
            Operation::Send => opcode::Send::new(file, buffer, length).flags(whole).build(),
            Operation::SendZeroCopy => opcode::SendZc::new(file, buffer, length)
                .flags(whole)
                .buf_index(Some(0))
                .zc_flags(SEND_ZC_REPORT_USAGE)
                .build(),
            Operation::Receive => opcode::Recv::new(file, buffer, length).build(),
            Operation::Discard => opcode::Recv::new(file, buffer, length).flags(libc::MSG_TRUNC).build(),
        }
    }

    /// Hands what is queued to the kernel and waits until an operation has completed or `timeout` has passed. A ring that
    /// gathers may also return for nothing after a long time.
    ///
    /// # Errors
    /// Those of io_uring_enter(2), but for an interrupted wait and a time-out.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.0.submitter();
        let result = match (self.gathering, timeout) {
            (Some(gathering), timeout) => {
                let timeout = timeout.unwrap_or(LONG);
                // The kernel looks at the end of the wait only when the gathering is over.
                let gather = gathering.microseconds.min(u32::try_from(timeout.as_micros()).unwrap_or(u32::MAX));
                let timeout = Timespec::from(timeout);
                let arguments = SubmitArgs::new().timespec(&timeout).min_wait_usec(gather);
                submitter.submit_with_args(gathering.completions, &arguments)
            }
            (None, None) => submitter.submit_and_wait(1),
            (None, Some(timeout)) => {
                let timeout = Timespec::from(timeout);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&timeout))
            }
        };
        match result {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME)) => Err(error),
            _ => Ok(()),
        }
    }

    /// The next operation that has completed.
    pub fn completion(&mut self) -> Option<Completion> {
        let entry = self.ring.0.completion().find(|entry| entry.user_data() != WAKE)?;
        let (slot, flags) = (entry.user_data() as usize, entry.flags());
        let socket = self.slots.socket(slot);
        if cqueue::notif(flags) {
            self.slots.release_held(slot);
            let copied = entry.result() as u32 & NOTIF_USAGE_ZC_COPIED != 0;
            return Some(Completion::Released { socket, copied });
        }
        let more = cqueue::more(flags);
        match &mut self.pool {
            Some(pool) => pool.settle(entry.result(), flags),
            None if more => self.slots.hold(),
            None => {}
        }
        if !more {
            self.slots.release(slot);
        }
        let holds = more && self.pool.is_none();
        let result = match entry.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            bytes => Ok(bytes as usize),
        };
        Some(Completion::Result { socket, result, holds })
    }

    /// Ends all operations. False when the kernel did not give all of their buffers back: pages that a peer has not
    /// acknowledged are not waited for.
    fn cancel(&mut self) -> bool {
        let deadline = std::time::Instant::now() + CANCEL_TIMEOUT;
        while self.slots.total_unfinished() > 0 {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            // What was queued and never submitted has to be submitted to be completed.
            if self.ring.0.submit().is_err() {
                return false;
            }
            // Before Linux 6.0 this is unknown; then only a shutdown of the sockets ends the operations.
            let _ = self.ring.0.submitter().register_sync_cancel(Some(Timespec::from(left)), CancelBuilder::any());
            let step = Some(left.min(Duration::from_millis(10)));
            if self.ring.0.completion().is_empty() && self.wait(step).is_err() {
                return false;
            }
            while self.completion().is_some() {}
        }
        self.slots.total_busy() == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.cancel() {
            self.slots.leak();
            if let Some(pool) = self.pool.take() {
                pool.leak();
            }
        }
    }
}

#[cfg(test)]
mod tests;
