//! Several connections for each thread: whichever is ready gets one message's turn (epoll).

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::modes::{Pull, Push};
use super::pace::Pace;
use super::{Connection, Course, Engine, Trouble, receive_ended, send_ended};

/// Connections served between two looks at what is ready.
const BATCH: usize = 256;

#[derive(Debug)]
pub(super) struct Sender<P> {
    pub(super) push: P,
    /// The most that one push sends.
    pub(super) message: usize,
    pub(super) throttle: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Receiver<P> {
    pub(super) pull: P,
}

impl<P: Push> Engine for Sender<P> {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let mut pace = Pace::following(self.throttle, course.ceiling(), self.message);
        serve(
            connections,
            || course.is_ending(),
            EventFlags::OUT,
            |_, connection, flags| {
                if flags.contains(EventFlags::ERR) {
                    self.push.settle(connection);
                }
                if let Some(pace) = &mut pace
                    && !pace.wait(course)
                {
                    return Ok(Turn::Next);
                }
                match self.push.push(connection) {
                    Ok(bytes) => {
                        connection.tally.add(bytes);
                        if let Some(pace) = &mut pace {
                            pace.spend(bytes);
                        }
                        Ok(Turn::Next)
                    }
                    Err(Errno::INTR | Errno::AGAIN) => Ok(Turn::Next),
                    Err(errno) => send_ended(connection, course, errno).map(|()| Turn::Ended),
                }
            },
        )
    }
}

impl<P: Pull> Engine for Receiver<P> {
    fn run(&mut self, connections: &[&Connection], course: &Course) -> Result<(), Trouble> {
        let over = || course.is_stopped();
        let mut pace = Pace::new(course.intake());
        serve(connections, over, EventFlags::IN, |_, connection, _| {
            if let Some(pace) = &mut pace
                && !pace.wait_unless(course, over)
            {
                return Ok(Turn::Next);
            }
            match self.pull.pull(connection) {
                Ok(0) => receive_ended(connection, course, Ok(())).map(|()| Turn::Ended),
                Ok(bytes) => {
                    connection.inbound.add(bytes);
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                    Ok(Turn::Next)
                }
                Err(Errno::INTR | Errno::AGAIN) => Ok(Turn::Next),
                Err(errno) => receive_ended(connection, course, Err(errno)).map(|()| Turn::Ended),
            }
        })
    }
}

/// What became of a connection's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Next,
    Ended,
}

/// Gives turns to ready connections, with their place in the list, until all have ended or the load is `over`.
pub(super) fn serve(
    connections: &[&Connection],
    over: impl Fn() -> bool,
    flags: EventFlags,
    mut turn: impl FnMut(usize, &Connection, EventFlags) -> Result<Turn, Trouble>,
) -> Result<(), Trouble> {
    let (watch, mut events) = watch(connections, flags).map_err(|errno| Trouble {
        what: "watch the connections with epoll".into(),
        why: std::io::Error::from(errno).to_string(),
    })?;
    let mut open = connections.len();
    while open > 0 && !over() {
        events.clear();
        match epoll::wait(&watch, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Trouble { what: "epoll_wait".into(), why: std::io::Error::from(errno).to_string() });
            }
        }
        for event in &events {
            if over() {
                break;
            }
            let index = event.data.u64() as usize;
            let connection = connections[index];
            if let Turn::Ended = turn(index, connection, event.flags)? {
                // The descriptor is open and registered, so taking it out cannot fail.
                let _ = epoll::delete(&watch, &connection.socket);
                open -= 1;
            }
        }
    }
    Ok(())
}

fn watch(connections: &[&Connection], flags: EventFlags) -> Result<(OwnedFd, Vec<Event>), Errno> {
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, connection) in connections.iter().enumerate() {
        epoll::add(&watch, &connection.socket, EventData::new_u64(index as u64), flags)?;
    }
    Ok((watch, Vec::with_capacity(connections.len().min(BATCH))))
}
