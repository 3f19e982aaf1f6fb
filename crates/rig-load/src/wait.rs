//! Waiting for file descriptors until an absolute time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A poll(2) whose time-out is an absolute time of CLOCK_MONOTONIC. It goes through a timer file, because the kernel
/// rounds a long time-out of poll itself by up to 0.1 %.
#[derive(Debug)]
pub(crate) struct DeadlinePoll {
    timer: OwnedFd,
}

impl DeadlinePoll {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { timer: timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)? })
    }

    /// Waits until one of `fds` is ready, or `deadline_ns` has come. What is ready stands in the entries.
    pub(crate) fn wait<'a>(&'a self, fds: &mut Vec<PollFd<'a>>, deadline_ns: Option<u64>) -> io::Result<()> {
        // Zero would disarm the timer; one nanosecond after boot is as much in the past.
        let it_value = deadline_ns.map_or(Timespec { tv_sec: 0, tv_nsec: 0 }, |ns| timespec(ns.max(1)));
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        fds.push(PollFd::new(&self.timer, PollFlags::IN));
        let result = loop {
            match poll(fds, None) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        };
        fds.pop();
        result?;
        Ok(())
    }
}

pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ }
}

/// True when the entry has anything to tell, an error or a hang-up included.
pub(crate) fn is_ready(entry: &PollFd<'_>) -> bool {
    !entry.revents().is_empty()
}

/// Wakes the threads that poll it, from any thread.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn notify(&self) {
        // Fails only when the counter is full, and then it is ringing already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silences it. Returns whether it had been rung.
    pub(crate) fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }

    pub(crate) fn entry(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rig_sys::clock::monotonic_ns;

    use super::*;

    #[test]
    fn waits_until_the_deadline_and_no_shorter() {
        let waiter = DeadlinePoll::new().unwrap();
        let event_fd = EventFd::new().unwrap();
        let deadline = monotonic_ns() + 5_000_000;
        let mut fds = vec![event_fd.entry()];
        waiter.wait(&mut fds, Some(deadline)).unwrap();
        assert!(monotonic_ns() >= deadline);
        assert!(!is_ready(&fds[0]));
        waiter.wait(&mut fds, Some(0)).unwrap();
        assert!(!is_ready(&fds[0]));
    }

    #[test]
    fn a_bell_rings_until_it_is_hushed() {
        let waiter = DeadlinePoll::new().unwrap();
        let event_fd = EventFd::new().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| event_fd.notify());
            let mut fds = vec![event_fd.entry()];
            waiter.wait(&mut fds, None).unwrap();
            assert!(is_ready(&fds[0]));
        });
        assert!(event_fd.clear());
        assert!(!event_fd.clear());
    }
}
