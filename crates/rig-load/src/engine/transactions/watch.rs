//! Waiting for connections, for the end of the load, and for a moment.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use super::super::{LoadProgress, ThreadFailure};
use crate::wait::timespec;

/// Events taken by one wait.
const BATCH: usize = 256;

const STOP: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;
const NEWS: u64 = u64::MAX - 2;

/// What [`Watch::wait`] brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyConnection {
    pub(super) index: usize,
    /// The stream has ended or failed: an edge that comes once.
    pub(super) has_ended: bool,
}

/// An epoll set. Descriptors are registered once, for reading and writing, edge-triggered.
pub(super) struct Watch {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// A timer file, which unlike the time-outs of system calls knows no slack (timer slack: prctl(2)).
    timer: OwnedFd,
    armed_ns: u64,
    /// For which it was armed when it went off last.
    fired_ns: u64,
}

impl Watch {
    pub(super) fn new<'a>(
        sockets: impl IntoIterator<Item = &'a OwnedFd>,
        progress: &LoadProgress,
    ) -> Result<Self, ThreadFailure> {
        let make = || {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
            epoll::add(&epoll, progress.stop.as_fd(), EventData::new_u64(STOP), EventFlags::IN)?;
            // No thread reads the eventfd, so it stays readable for all of them: edge-triggered, each write wakes each thread once.
            epoll::add(&epoll, progress.news.as_fd(), EventData::new_u64(NEWS), EventFlags::IN | EventFlags::ET)?;
            epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
            let watch = Self { epoll, events: Vec::with_capacity(BATCH), timer, armed_ns: 0, fired_ns: 0 };
            for (index, socket) in sockets.into_iter().enumerate() {
                watch.add(socket, index)?;
            }
            Ok(watch)
        };
        make().map_err(|errno| refused("watch the connections with epoll", errno))
    }

    pub(super) fn add(&self, socket: impl AsFd, index: usize) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags)
    }

    /// Watches, for reading and as long as it stays readable, what other threads watch too: one of them is woken.
    pub(super) fn add_shared(&self, socket: impl AsFd, index: usize) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags)
    }

    pub(super) fn remove(&self, socket: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, socket)
    }

    /// Waits until something is ready, the load stops, or `until_ns` of CLOCK_MONOTONIC has come.
    pub(super) fn wait(&mut self, until_ns: Option<u64>) -> Result<(), ThreadFailure> {
        if let Some(ns) = until_ns
            && ns != self.armed_ns
        {
            let spec = Itimerspec { it_interval: timespec(0), it_value: timespec(ns.max(1)) };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
                .map_err(|errno| refused("set a timer", errno))?;
            self.armed_ns = ns;
        }
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(refused("epoll_wait", errno)),
        }
    }

    /// Whether the last wait ended by the timer set for `until_ns`. Known when [`Self::next`] has come to its end.
    pub(super) fn has_reached(&self, until_ns: u64) -> bool {
        self.fired_ns == until_ns
    }

    /// What the last wait found, one by one; `None` at its end.
    pub(super) fn next(&mut self) -> Option<ReadyConnection> {
        loop {
            let event = self.events.pop()?;
            let (token, flags) = (event.data.u64(), event.flags);
            if token < NEWS {
                let has_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                return Some(ReadyConnection { index: token as usize, has_ended });
            }
            if token == TIMER {
                self.fired_ns = self.armed_ns;
            }
        }
    }
}

pub(super) fn refused(what: &str, errno: Errno) -> ThreadFailure {
    ThreadFailure { what: what.into(), why: std::io::Error::from(errno).to_string() }
}
