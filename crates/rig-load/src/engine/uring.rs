//! Several operations outstanding on each connection (io_uring).

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::time::Duration;

use rig_sys::clock::monotonic_ns;
use rig_sys::uring::{Completion, Operation, Ring};
use rustix::io::Errno;

use super::modes::Buffer;
use super::pace::Pace;
use super::{Connection, Engine, LoadProgress, ThreadFailure, receive_ended, send_ended};
use crate::plan::{ReceiveMode, SendMode, TcpStream};
use crate::record::Direction;

/// How long arrivals are gathered for one wake-up (docs/decisions/io-uring.md).
const GATHER: Duration = Duration::from_micros(100);
/// With a smaller receive buffer, what comes in that time could fill it, and the sender would have to stop.
const ROOMY: u32 = 1 << 20;

#[derive(Debug)]
struct Sender {
    ring: Ring,
    message: usize,
    throttle: Option<u64>,
    /// The connections that have room for an operation, once for each.
    turns: VecDeque<usize>,
    /// Messages left to send.
    quota: u64,
}

#[derive(Debug)]
struct Receiver {
    ring: Ring,
    depth: usize,
}

pub(super) fn build(
    stream: &TcpStream,
    outstanding: u32,
    direction: Direction,
    connections: &[&Connection],
    quota: Option<u64>,
) -> Result<Box<dyn Engine>, ThreadFailure> {
    let what = || format!("prepare the io_uring engine for {} connections", connections.len());
    let work = match (direction, stream.send_mode, stream.receive_mode) {
        (Direction::Send, SendMode::Copy, _) => Operation::Send,
        (Direction::Send, SendMode::ZeroCopy, _) => Operation::SendZeroCopy,
        (Direction::Send, SendMode::Sendfile | SendMode::Splice, _) => {
            return Err(ThreadFailure { what: what(), why: format!("it cannot send in mode {:?}", stream.send_mode) });
        }
        (_, _, ReceiveMode::Copy) => Operation::Receive,
        (_, _, ReceiveMode::Discard) => Operation::Discard,
    };
    let sockets: Vec<_> = connections.iter().map(|connection| connection.socket.as_fd()).collect();
    let (message, depth) = (stream.message as usize, outstanding as usize);
    let mut ring = Ring::new(&sockets, outstanding, work, Buffer::new(message).get())
        .map_err(|error| ThreadFailure { what: what(), why: error.to_string() })?;
    Ok(if direction == Direction::Send {
        let turns = (0..depth).flat_map(|_| 0..connections.len()).collect();
        Box::new(Sender { ring, message, throttle: stream.throttle, turns, quota: quota.unwrap_or(u64::MAX) })
    } else {
        if stream.receive_buffer.is_none_or(|bytes| bytes >= ROOMY) {
            ring.gather(GATHER);
        }
        Box::new(Receiver { ring, depth })
    })
}

impl Engine for Sender {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut pace = Pace::following(self.throttle, progress.ceiling(), self.message);
        // Shutting the sockets down ends no zero-copy send that waits for the peer to acknowledge its pages.
        self.ring.wake_on(progress.stop.as_fd()).map_err(|error| refused(&error))?;
        while !progress.is_ending() {
            let held_until_ns = self.fill(pace.as_mut(), progress);
            if self.ring.total_in_flight() > 0 {
                let timeout = held_until_ns.map(|ns| Duration::from_nanos(ns.saturating_sub(monotonic_ns())));
                wait(&mut self.ring, timeout)?;
                self.collect(connections, progress)?;
            } else if let (Some(pace), Some(_)) = (&mut pace, held_until_ns) {
                pace.wait(progress);
            } else {
                // Every connection has ended, or every message is sent.
                return Ok(());
            }
        }
        // The sockets are being shut down, which ends operations in flight; bytes that these have sent still count. Pages that
        // the peer has not acknowledged are not waited for.
        while self.ring.total_unfinished() > 0 {
            wait(&mut self.ring, None)?;
            self.collect(connections, progress)?;
        }
        Ok(())
    }
}

impl Sender {
    /// Queues a send for each free turn. Returns the time at which the next is due when there is one too many.
    fn fill(&mut self, mut pace: Option<&mut Pace>, progress: &LoadProgress) -> Option<u64> {
        while let Some(&connection) = self.turns.front() {
            if self.quota == 0 {
                return None;
            }
            if let Some(pace) = &mut pace {
                if let Some(due_ns) = pace.due(progress) {
                    return Some(due_ns);
                }
                pace.spend(self.message);
            }
            self.turns.pop_front();
            self.quota -= 1;
            self.ring.queue(connection, 1);
        }
        None
    }

    fn collect(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        while let Some(completion) = self.ring.completion() {
            match completion {
                Completion::Result { socket, result, holds } => {
                    match result {
                        Ok(bytes) => connections[socket].tally.add(bytes),
                        Err(error) => match errno(&error) {
                            Errno::INTR | Errno::AGAIN => {}
                            errno => {
                                send_ended(connections[socket], progress, errno)?;
                                continue;
                            }
                        },
                    }
                    if !holds {
                        self.turns.push_back(socket);
                    }
                }
                Completion::Released { socket, copied } => {
                    if copied {
                        connections[socket].tally.add_copied(1);
                    }
                    self.turns.push_back(socket);
                }
            }
        }
        Ok(())
    }
}

impl Engine for Receiver {
    fn run(&mut self, connections: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut ended = vec![false; connections.len()];
        let mut pace = Pace::new(progress.intake());
        for socket in 0..connections.len() {
            self.ring.queue(socket, self.depth);
        }
        while self.ring.total_in_flight() > 0 {
            if let Some(pace) = &mut pace {
                pace.wait_unless(progress, || progress.is_stopped());
            }
            wait(&mut self.ring, None)?;
            while let Some(completion) = self.ring.completion() {
                // Only zero-copy sends release anything later.
                let Completion::Result { socket, result, .. } = completion else { continue };
                let connection = connections[socket];
                match result {
                    Ok(bytes @ 1..) => {
                        connection.inbound.add(bytes);
                        if let Some(pace) = &mut pace {
                            pace.spend(bytes);
                        }
                    }
                    // The rest of the chain follows with the same verdict.
                    _ if ended[socket] => {}
                    Ok(_) => {
                        receive_ended(connection, progress, Ok(()))?;
                        ended[socket] = true;
                    }
                    Err(error) => match errno(&error) {
                        Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::NOBUFS => {}
                        errno => {
                            receive_ended(connection, progress, Err(errno))?;
                            ended[socket] = true;
                        }
                    },
                }
                // A chain is only followed by the next when it is through: two at a time would race for the bytes. A
                // receive that stays is through when it found no buffer.
                if self.ring.in_flight(socket) == 0 && !ended[socket] && !progress.is_stopped() {
                    self.ring.queue(socket, self.depth);
                }
            }
        }
        Ok(())
    }
}

fn wait(ring: &mut Ring, timeout: Option<Duration>) -> Result<(), ThreadFailure> {
    ring.wait(timeout).map_err(|error| refused(&error))
}

fn refused(error: &std::io::Error) -> ThreadFailure {
    ThreadFailure { what: "hand operations to io_uring".into(), why: error.to_string() }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
