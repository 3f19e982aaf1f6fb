//! Several connections for each thread: whichever is ready gets one message's turn (epoll).

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::modes::{ReceiveMethod, SendMethod};
use super::pace::Pace;
use super::{Connection, Engine, LoadProgress, ThreadFailure, receive_ended, send_ended};

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

impl<P: SendMethod> Engine for Sender<P> {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut pace = Pace::following(self.throttle, progress.ceiling(), self.message);
        serve(
            connections,
            || progress.is_ending(),
            EventFlags::OUT,
            |_, connection, flags| {
                if flags.contains(EventFlags::ERR) {
                    self.push.settle(connection);
                }
                if let Some(pace) = &mut pace
                    && !pace.wait(progress)
                {
                    return Ok(TurnResult::Next);
                }
                match self.push.push(connection) {
                    Ok(bytes) => {
                        connection.tally.add(bytes);
                        if let Some(pace) = &mut pace {
                            pace.spend(bytes);
                        }
                        Ok(TurnResult::Next)
                    }
                    Err(Errno::INTR | Errno::AGAIN) => Ok(TurnResult::Next),
                    Err(errno) => send_ended(connection, progress, errno).map(|()| TurnResult::Ended),
                }
            },
        )
    }
}

impl<P: ReceiveMethod> Engine for Receiver<P> {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let over = || progress.is_stopped();
        let mut pace = Pace::new(progress.intake());
        serve(connections, over, EventFlags::IN, |_, connection, _| {
            if let Some(pace) = &mut pace
                && !pace.wait_unless(progress, over)
            {
                return Ok(TurnResult::Next);
            }
            match self.pull.pull(connection) {
                Ok(0) => receive_ended(connection, progress, Ok(())).map(|()| TurnResult::Ended),
                Ok(bytes) => {
                    connection.inbound.add(bytes);
                    if let Some(pace) = &mut pace {
                        pace.spend(bytes);
                    }
                    Ok(TurnResult::Next)
                }
                Err(Errno::INTR | Errno::AGAIN) => Ok(TurnResult::Next),
                Err(errno) => receive_ended(connection, progress, Err(errno)).map(|()| TurnResult::Ended),
            }
        })
    }
}

/// What became of a connection's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnResult {
    Next,
    Ended,
}

/// Gives turns to ready connections, with their place in the list, until all have ended or the load is `over`.
pub(super) fn serve(
    connections: &[&Connection],
    over: impl Fn() -> bool,
    flags: EventFlags,
    mut turn: impl FnMut(usize, &Connection, EventFlags) -> Result<TurnResult, ThreadFailure>,
) -> Result<(), ThreadFailure> {
    let (watch, mut events) = watch(connections, flags).map_err(|errno| ThreadFailure {
        what: "watch the connections with epoll".into(),
        why: std::io::Error::from(errno).to_string(),
    })?;
    let mut open = connections.len();
    while open > 0 && !over() {
        events.clear();
        match epoll::wait(&watch, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(ThreadFailure { what: "epoll_wait".into(), why: std::io::Error::from(errno).to_string() });
            }
        }
        for event in &events {
            if over() {
                break;
            }
            let index = event.data.u64() as usize;
            let connection = connections[index];
            if let TurnResult::Ended = turn(index, connection, event.flags)? {
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
