//! Requests and responses.
//!
//! Only the requesting end looks at a clock: once for each transaction, or for those that one receive completed, whose
//! end is the beginning of the next. What is recorded lies in the thread's own memory until the thread has ended.

mod accept;
mod blocking;
mod connect;
mod datagram;
mod dial;
mod line;
mod ready;
mod scheduler;
mod stats;
mod timetable;
mod watch;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use rig_sys::socket::{NamedAddress, SourceBinding};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use self::dial::ConnectOptions;
use self::scheduler::TransactionScheduler;
use self::stats::TransactionStats;
use self::timetable::Timetable;
use super::modes::Buffer;
use super::pace::Pace;
use super::{Connection, Engine, LoadProgress, ThreadFailure};
use crate::listener::Listener;
use crate::plan::{Role, Schedule, Transactions};
use crate::record::Direction;

/// The most that is handed to the kernel, or asked of it, by one call. Larger requests and responses take several.
const PIECE: usize = 256 << 10;

/// Whether a thread does one thing at a time, so that it may block in its only connection. A requester with more than
/// one transaction under way may not: it has to receive while it cannot send.
fn may_block(load: &Transactions, direction: Direction) -> bool {
    let one_at_a_time = load.in_flight == 1 && load.schedule == Schedule::Closed;
    load.connections == 1 && (direction == Direction::Respond || one_at_a_time)
}

/// Whether the engine wants its sockets in non-blocking mode.
pub(crate) fn needs_nonblocking(load: &Transactions, direction: Direction) -> bool {
    !may_block(load, direction)
}

/// A seed for the random times of one worker's open loop.
pub(crate) fn draw_seed() -> u64 {
    // The standard library's only source of randomness: the keys of its hash tables.
    RandomState::new().build_hasher().finish()
}

/// Builds the engine of one thread for transactions over connections that stay. Runs on that thread.
pub(crate) fn over_tcp(
    load: &Transactions,
    direction: Direction,
    connections: &[&Connection],
    (thread, seed): (u32, u64),
) -> Box<dyn Engine> {
    let scheduler = scheduler(load, connections.len(), (thread, seed));
    match (direction, may_block(load, direction)) {
        (Direction::Respond, true) => Box::new(blocking::Responder::new(load)),
        (Direction::Respond, false) => Box::new(ready::Responder::new(load, connections.len())),
        (_, true) => Box::new(blocking::Requester::new(load)),
        (_, false) => Box::new(ready::Requester::new(load, connections.len(), scheduler)),
    }
}

/// Builds the engine of one thread for transactions over UDP. Runs on that thread.
pub(crate) fn over_udp(
    load: &Transactions,
    direction: Direction,
    connections: &[&Connection],
    (thread, seed): (u32, u64),
) -> Result<Box<dyn Engine>, ThreadFailure> {
    Ok(match (direction, may_block(load, direction)) {
        (Direction::Respond, _) => Box::new(datagram::Responder::new(load, connections.len())),
        (_, true) => Box::new(datagram::BlockingRequester::new(load, connections[0])?),
        (_, false) => {
            let scheduler = scheduler(load, connections.len(), (thread, seed));
            Box::new(datagram::PollingRequester::new(load, connections.len(), scheduler))
        }
    })
}

/// Of the open loop: what begins on which of a thread's connections.
fn scheduler(load: &Transactions, connections: usize, (thread, seed): (u32, u64)) -> Option<TransactionScheduler> {
    timetable(load, thread, seed).map(|timetable| TransactionScheduler::new(Some(timetable), connections))
}

fn timetable(load: &Transactions, thread: u32, seed: u64) -> Option<Timetable> {
    match load.schedule {
        Schedule::Closed => None,
        Schedule::Open { rate, arrivals } => Some(Timetable::new(rate, arrivals, (thread, load.threads), seed)),
    }
}

/// Where the connections of a load come from that makes one for each transaction.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Dial(SocketAddr, SourceBinding),
    /// Shared by the threads.
    Listener(Arc<Listener>),
}

impl Source {
    /// For the role of this end. `listener` is the socket that the connections which stay came from.
    pub(crate) fn new(load: &Transactions, role: &Role, listener: Option<Listener>) -> Result<Self, ThreadFailure> {
        match (role, listener) {
            (Role::Connect { to, source }, _) => Ok(Self::Dial(*to, source.clone())),
            (Role::Listen { .. }, Some(listener)) => {
                if may_block(load, Direction::Respond) {
                    accept::let_block(&listener)
                        .map_err(|errno| watch::refused("prepare the listening socket", errno))?;
                }
                Ok(Self::Listener(Arc::new(listener)))
            }
            (Role::Listen { address, .. }, None) => {
                let what = format!("go on listening on {}", NamedAddress::from(*address));
                Err(ThreadFailure { what, why: "its socket has been closed".into() })
            }
        }
    }
}

/// Builds the engine of one thread for transactions each over a connection of its own. Runs on that thread.
pub(crate) fn over_connections(load: &Transactions, source: Source, (thread, seed): (u32, u64)) -> Box<dyn Engine> {
    match source {
        Source::Listener(listener) if may_block(load, Direction::Respond) => {
            Box::new(accept::BlockingAcceptor::new(load, listener))
        }
        Source::Listener(listener) => Box::new(accept::PollingAcceptor::new(load, listener)),
        Source::Dial(to, source) => {
            let options = ConnectOptions::new(load, to, source);
            if may_block(load, Direction::Request) {
                Box::new(connect::BlockingConnector::new(load, options))
            } else {
                Box::new(connect::PollingConnector::new(load, options, timetable(load, thread, seed)))
            }
        }
    }
}

/// Holds a responder to its ceiling. The larger message of a transaction counts: what comes in costs as well, and a requester that
/// asks for more than it may is answered later.
#[derive(Debug)]
struct ResponseLimiter {
    each: usize,
    /// The most that is answered between two looks.
    most: usize,
    pace: Option<Pace>,
}

impl ResponseLimiter {
    fn new(load: &Transactions, at_once: usize) -> Self {
        let each = load.request.max(load.response) as usize;
        Self { each, most: each.saturating_mul(at_once), pace: None }
    }

    /// From now on.
    fn begin(&mut self, progress: &LoadProgress) {
        self.pace = Pace::within(None, progress.ceiling(), self.most);
    }

    /// Sleeps until the next transactions may be taken in. False when the load has stopped meanwhile.
    #[inline]
    fn wait(&mut self, progress: &LoadProgress) -> bool {
        self.pace.as_mut().is_none_or(|pace| pace.wait_unless(progress, || progress.is_stopped()))
    }

    #[inline]
    fn pay(&mut self, transactions: usize) {
        if let Some(pace) = &mut self.pace {
            pace.spend(self.each * transactions);
        }
    }
}

/// One kind of message that a thread sends: all requests, or all responses.
#[derive(Debug)]
struct Payload {
    piece: Buffer,
    size: usize,
    /// Flags of the last call for a message: with MSG_MORE where the end of the stream follows, which then travels in the same
    /// segment.
    last: SendFlags,
}

impl Payload {
    fn new(size: u32) -> Self {
        let size = size as usize;
        Self { piece: Buffer::new(size.min(PIECE)), size, last: SendFlags::NOSIGNAL }
    }

    /// Of messages each of which is the last over its connection.
    fn last(size: u32) -> Self {
        Self { last: SendFlags::NOSIGNAL | SendFlags::MORE, ..Self::new(size) }
    }

    /// Sends on a message of which `left` bytes have not been sent, with one call. Returns the bytes that it took.
    #[inline]
    fn push(&self, socket: impl AsFd, left: usize) -> Result<usize, Errno> {
        let piece = self.piece.get();
        if left <= piece.len() {
            send(socket, &piece[..left], self.last)
        } else {
            send(socket, piece, SendFlags::NOSIGNAL | SendFlags::MORE)
        }
    }

    /// Sends one message over a socket in blocking mode.
    #[inline]
    fn send(&self, connection: &Connection) -> Result<(), Errno> {
        let mut left = self.size;
        while left > 0 {
            match self.push(&connection.socket, left) {
                Ok(bytes) => left -= bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Room for what one receive may take: `messages` of `size` bytes and one byte more, so that a peer that sends too much
/// is found out.
fn inbox(size: u32, messages: u32) -> Buffer {
    let all = size as usize * messages as usize;
    Buffer::new(all.saturating_add(1).min(PIECE))
}

/// Tells the responder that no request will follow.
fn dismiss(connection: &Connection) {
    // Fails only when the peer has ended the connection already.
    let _ = shutdown(&connection.socket, Shutdown::Write);
}

fn too_much(connection: &Connection, what: &str) -> ThreadFailure {
    super::failure("receive from", connection, &format_args!("{what}: do both ends have the same sizes?"))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    pub(super) fn transactions() -> Transactions {
        Transactions {
            threads: 1,
            connections: 1,
            request: 1,
            response: 1,
            in_flight: 1,
            schedule: Schedule::Closed,
            timeout: Duration::from_secs(1),
            send_buffer: None,
            receive_buffer: None,
            no_delay: false,
            congestion_control: None,
            options: Default::default(),
        }
    }

    /// A connection and its other end.
    pub(super) fn connection() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Connection::new(client.into(), 0, String::new(), String::new()), listener.accept().unwrap().0)
    }
}
