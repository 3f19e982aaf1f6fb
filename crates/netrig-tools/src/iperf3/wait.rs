//! Waiting for descriptors until a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rig_sys::clock::monotonic_ns;
use rustix::event::{EventfdFlags, PollFd, Timespec, eventfd, poll};
use rustix::io::Errno;

pub const SECOND_NS: u64 = 1_000_000_000;

/// Waits until one of `fds` is ready or CLOCK_MONOTONIC shows `deadline_ns`. What is ready stands in the entries.
///
/// # Errors
/// Those of poll(2).
pub fn wait(fds: &mut [PollFd<'_>], deadline_ns: Option<u64>) -> io::Result<()> {
    loop {
        let left_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(monotonic_ns()));
        let timeout = left_ns.map(|ns| Timespec { tv_sec: (ns / SECOND_NS) as _, tv_nsec: (ns % SECOND_NS) as _ });
        match poll(fds, timeout.as_ref()) {
            Err(Errno::INTR) => {}
            other => return other.map(drop).map_err(io::Error::from),
        }
    }
}

/// Wakes the thread that polls it, from any thread.
#[derive(Debug, Clone)]
pub struct EventFd(Arc<OwnedFd>);

impl EventFd {
    /// # Errors
    /// When there is no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn ring(&self) {
        // Fails only when the counter is full, and then it is ringing already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    pub fn silence(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
