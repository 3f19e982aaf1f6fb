//! One client as the server's loop sees it: a socket, what waits to be sent, and maybe a worker.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rig_load::driver::Process;
use rig_load::protocol::Order;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use socket2::{SockRef, TcpKeepalive};

use super::answerer::Answerer;
use crate::machine::WorkerAccount;
use crate::server_session::ServerSession;

/// Bytes read from a client at once. It gets its next turn after all others.
const PIECE: usize = 8 << 10;
/// With more than this waiting to be sent, a client is not read from.
const FULL: usize = 64 << 10;
/// For how long a client may read nothing while lines wait to be sent, and how long the kernel keeps sent bytes
/// unacknowledged: a client that vanished does not say so.
const STALL: Duration = Duration::from_secs(15);
/// How long a connection that is closed waits for the client to close it too, so that the last words arrive.
const LINGER: Duration = Duration::from_secs(1);
/// Idle time before the kernel asks whether the client is still there, and the distance of its questions.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// What of a client a file descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientFd {
    Socket,
    Events,
    Errors,
}

impl ClientFd {
    pub(super) fn number(self, id: u64) -> u64 {
        id * 4 + self as u64
    }

    pub(super) fn of(number: u64) -> (u64, Self) {
        let part = match number % 4 {
            0 => Self::Socket,
            1 => Self::Events,
            _ => Self::Errors,
        };
        (number / 4, part)
    }
}

/// Makes an accepted socket fit for the loop. Returns the address it was accepted on.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<SocketAddr> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    let reference = SockRef::from(socket);
    reference.set_tcp_user_timeout(Some(STALL))?;
    reference.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3))?;
    let mut local = socket.local_addr()?;
    if let Some(v4) = local.ip().to_canonical().is_ipv4().then(|| local.ip().to_canonical()) {
        local = SocketAddr::new(v4, local.port());
    }
    Ok(local)
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    /// `None` once the connection is being closed.
    pub(super) session: Option<ServerSession>,
    pub(super) worker: Option<Process>,
    /// What answers exchanges of times.
    pub(super) answering: Option<Answerer>,
    /// The worker's CPU time, as long as there is a worker.
    pub(super) counted: Option<WorkerAccount>,
    out: Vec<u8>,
    /// When the connection is given up: it is being closed, or its client takes nothing.
    given_up_ns: Option<u64>,
    watched: EventFlags,
    closed: bool,
}

impl Client {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr, session: ServerSession) -> Self {
        let session = Some(session);
        let (out, given_up_ns, watched) = (Vec::new(), None, EventFlags::IN);
        let (worker, answering, counted) = (None, None, None);
        Self { socket, peer, session, worker, answering, counted, out, given_up_ns, watched, closed: false }
    }

    /// Whether it takes the room of a test: a test, or exchanges of times before or after one.
    pub(super) fn takes_room(&self) -> bool {
        self.worker.is_some() || self.answering.is_some()
    }

    /// When something is due.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let session = self.session.as_ref().and_then(ServerSession::deadline_ns);
        session.into_iter().chain(self.given_up_ns).min()
    }

    pub(super) fn is_stuck(&self, now_ns: u64) -> bool {
        self.given_up_ns.is_some_and(|deadline| deadline <= now_ns)
    }

    /// Reads a piece. False when the connection is over.
    pub(super) fn socket_is_ready(&mut self, flags: EventFlags, now_ns: u64) -> bool {
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return true;
        }
        let mut piece = [0u8; PIECE];
        match rustix::io::read(&self.socket, &mut piece) {
            Ok(0) => false,
            Ok(n) => {
                if let Some(session) = &mut self.session {
                    session.received(&piece[..n], now_ns);
                }
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    pub(super) fn worker_has_events(&mut self, now_ns: u64) {
        let (Some(worker), Some(session)) = (&mut self.worker, &mut self.session) else { return };
        match worker.events() {
            Ok(Some(events)) => events.into_iter().for_each(|event| session.worker_said(event, now_ns)),
            Ok(None) => {
                let how = worker.outcome();
                self.worker = None;
                session.worker_ended(how, now_ns);
            }
            Err(error) => session.worker_ended(Err(error.to_string()), now_ns),
        }
    }

    pub(super) fn worker_has_errors(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.read_stderr();
        }
    }

    pub(super) fn order(&mut self, order: &Order) -> io::Result<()> {
        self.worker.as_mut().map_or(Ok(()), |worker| worker.order(order))
    }

    pub(super) fn say(&mut self, line: &[u8]) {
        self.out.extend_from_slice(line);
    }

    /// Nothing more is said after what waits to be sent.
    pub(super) fn close(&mut self, now_ns: u64) {
        self.session = None;
        self.answering = None;
        self.given_up_ns = Some(now_ns + LINGER.as_nanos() as u64);
    }

    /// Sends what the socket takes. False when the connection is over.
    pub(super) fn flush(&mut self, now_ns: u64) -> bool {
        let mut sent = 0;
        while sent < self.out.len() {
            match rustix::net::send(&self.socket, &self.out[sent..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        self.out.drain(..sent);
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        match &self.session {
            None => {
                if self.out.is_empty() && !self.closed {
                    self.closed = true;
                    let _ = self.socket.shutdown(std::net::Shutdown::Write);
                }
            }
            Some(_) if self.out.is_empty() => self.given_up_ns = None,
            Some(_) if sent > 0 || self.given_up_ns.is_none() => {
                self.given_up_ns = Some(now_ns + STALL.as_nanos() as u64);
            }
            Some(_) => {}
        }
        true
    }

    /// The events to watch the socket for, if they have changed.
    pub(super) fn interest_changed(&mut self) -> Option<EventFlags> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.out.len() < FULL);
        flags.set(EventFlags::OUT, !self.out.is_empty());
        let changed = flags != self.watched;
        self.watched = flags;
        changed.then_some(flags)
    }
}
