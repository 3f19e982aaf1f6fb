//! The end that opens the connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rig_sys::socket::{self, Buffer, NamedAddress, ZonedAddress};
use rig_sys::{clock, cpu};
use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{AT_ONCE, Counts, Protocol};
use crate::engine::{self, Connection, needs_nonblocking};
use crate::plan::TcpStream;
use crate::record::Direction;
use crate::wait::{DeadlinePoll, is_ready};
use crate::worker::load_threads::LoadThreads;
use crate::worker::{ErrorContext, WorkerError};

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(10);
/// Between two questions whether a wait has been cancelled.
const LOOK: Duration = Duration::from_millis(100);

/// Where one thread's connections go, and where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub to: SocketAddr,
    /// The thread's CPU; `None` leaves the affinity of the caller.
    pub cpu: Option<u32>,
}

/// What a [`Sender`] shall do.
#[derive(Debug, Clone)]
pub struct SenderSettings {
    /// The stream: connections for each thread, message, buffers, throttle of a thread, engine. With
    /// [`Protocol::Udp`] the message is the datagram, and the engine has to be the blocking one.
    pub stream: TcpStream,
    pub protocol: Protocol,
    /// One for each of the stream's threads.
    pub targets: Vec<Target>,
    /// The address to send from. Its interface becomes the sockets' (SO_BINDTODEVICE) where that is allowed.
    pub source: Option<ZonedAddress>,
    /// The first connection's port; each further one has the next.
    pub source_port: Option<u16>,
    /// SO_MAX_PACING_RATE of each connection in bytes per second.
    pub pacing: Option<u64>,
    /// Messages after which a thread is done.
    pub quota: Option<u64>,
    /// How long a connection may take to come up.
    pub timeout: Duration,
    /// A refusal is only believed after this long: the peer may be about to listen.
    pub time_limit: Duration,
}

/// Threads that send, one for each [`Target`].
#[derive(Debug)]
pub struct Sender {
    load_threads: LoadThreads,
    notes: Vec<String>,
}

impl Sender {
    /// Opens all connections and starts the threads, which then wait for [`Self::start`]. `cancelled` is asked before
    /// each connection. Raises the process's soft limit of open files to the hard one.
    ///
    /// # Errors
    /// A value out of its range ([`TcpStream::validate`]), a connection that does not come up, or the cancellation.
    pub fn open(sending: &SenderSettings, cancelled: &dyn Fn() -> bool) -> Result<Self, WorkerError> {
        let SenderSettings { stream, protocol, targets, quota, .. } = sending;
        stream.validate().failing(|| "check what is to be sent".into())?;
        if targets.len() != stream.threads as usize {
            let why = format!("{} threads have {} targets", stream.threads, targets.len());
            return Err(why).failing(|| "check what is to be sent".into());
        }
        socket::ignore_sigpipe();
        rig_sys::process::raise_file_limit();
        let (mut connections, mut notes) = (Vec::new(), Vec::new());
        for (thread, target) in targets.iter().enumerate() {
            for _ in 0..stream.connections {
                if cancelled() {
                    return Err("interrupted").failing(|| format!("connect to {}", target.to));
                }
                let socket = connect(sending, target.to, connections.len(), &mut notes, cancelled)?;
                connections.push(made(socket, thread as u32, stream)?);
            }
        }
        let mut load_threads = LoadThreads::new(&Arc::from(connections), Direction::Send, *protocol == Protocol::Udp)?;
        for (thread, target) in targets.iter().enumerate() {
            let (stream, cpus, quota) = (stream.clone(), Vec::from_iter(target.cpu), *quota);
            let datagrams = *protocol == Protocol::Udp;
            load_threads.spawn(thread as u32, move |mine| {
                place(&cpus)?;
                if quota.is_none() && !datagrams {
                    engine::stream(&stream, Direction::Send, mine)
                } else {
                    engine::counted(&stream, mine, quota, datagrams)
                }
            })?;
        }
        let waiter = DeadlinePoll::new().failing(|| "create a timer".into())?;
        while !load_threads.is_ready() {
            load_threads.check()?;
            let mut fds = vec![load_threads.event_fd().entry()];
            waiter.wait(&mut fds, None).failing(|| "wait".into())?;
            if is_ready(&fds[0]) {
                load_threads.event_fd().clear();
            }
        }
        Ok(Self { load_threads, notes })
    }

    /// Lets the threads send.
    pub fn start(&self) {
        // A connection that ends is no failure here: the caller sees it in `ended`.
        self.load_threads.go(AT_ONCE);
    }

    /// Readable when a thread has ended; [`Self::clear`] silences it.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.load_threads.event_fd().as_fd()
    }

    pub fn clear(&self) {
        self.load_threads.event_fd().clear();
    }

    /// Connections of all threads.
    pub fn connections(&self) -> usize {
        self.load_threads.connections().len()
    }

    /// Threads that have come to their end: the peer closed all their connections, or their quota is sent.
    pub fn ended(&self) -> usize {
        self.load_threads.finished()
    }

    /// All threads have come to their end.
    pub fn is_ended(&self) -> bool {
        self.load_threads.is_finished()
    }

    /// Ends all connections as far as this end goes, and waits until `deadline_ns` of the monotonic clock for the peers to
    /// end theirs: one that does so at the end of a stream has taken all of it, which no other connection to that peer
    /// can tell. True when all have. Datagrams have no end to wait for, so with them it is false at once. `cancelled` is
    /// asked every now and then, and ends the wait.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn finish(&self, deadline_ns: u64, cancelled: &dyn Fn() -> bool) -> Result<bool, WorkerError> {
        if self.load_threads.is_udp() {
            return Ok(false);
        }
        self.load_threads.end_sending(|_| true);
        let waiter = DeadlinePoll::new().failing(|| "create a timer".into())?;
        // The peer's end and a failure, but no payload.
        let entry = |connection| PollFd::new(connection, PollFlags::RDHUP);
        let mut open: Vec<PollFd<'_>> = self.load_threads.connections().iter().map(|c| entry(&c.socket)).collect();
        while !open.is_empty() && clock::monotonic_ns() < deadline_ns && !cancelled() {
            let look_ns = clock::monotonic_after(LOOK).min(deadline_ns);
            waiter.wait(&mut open, Some(look_ns)).failing(|| "wait for the peers' ends".into())?;
            open.retain(|entry| !is_ready(entry));
        }
        Ok(open.is_empty())
    }

    /// What each thread has sent so far.
    pub fn counts(&self) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.load_threads.threads()];
        for connection in self.load_threads.connections() {
            if let Some(sum) = counts.get_mut(connection.thread as usize) {
                let Counts { bytes, operations } = Counts::of(std::iter::once(&connection.tally));
                *sum = Counts { bytes: sum.bytes + bytes, operations: sum.operations + operations };
            }
        }
        counts
    }

    /// The mean of the connections' smoothed round-trip times in microseconds (TCP_INFO); `None` when no connection
    /// has one.
    pub fn mean_rtt_us(&self) -> Option<u32> {
        let infos = self.load_threads.connections().iter().filter_map(|c| socket::tcp_info(&c.socket).ok());
        let times: Vec<u64> = infos.map(|info| u64::from(info.rtt_us)).filter(|&us| us > 0).collect();
        let mean = times.iter().sum::<u64>().checked_div(times.len() as u64)?;
        u32::try_from(mean).ok()
    }

    /// Local and remote address of each connection, for people.
    pub fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        self.load_threads.connections().iter().map(|c| (c.local.as_str(), c.remote.as_str()))
    }

    /// What the kernel did not grant, in words for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Ends the load and the connections.
    ///
    /// # Errors
    /// What kept a thread from sending, other than its peer.
    pub fn stop(mut self) -> Result<(), WorkerError> {
        self.load_threads.stop()
    }
}

/// Puts the calling thread on `cpus`, if there are any.
pub(super) fn place(cpus: &[u32]) -> Result<(), engine::ThreadFailure> {
    cpu::set_affinity(cpus)
        .map_err(|error| engine::ThreadFailure { what: "place a load thread".into(), why: error.to_string() })
}

fn connect(
    sending: &SenderSettings,
    to: SocketAddr,
    index: usize,
    notes: &mut Vec<String>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Socket, WorkerError> {
    let what = || format!("connect to {}", NamedAddress::from(to));
    let time_limit = Instant::now() + sending.time_limit.min(sending.timeout);
    loop {
        let socket = prepared(sending, to, index, notes).failing(what)?;
        match socket.connect_timeout(&SockAddr::from(to), sending.timeout) {
            Ok(()) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if Instant::now() >= time_limit || cancelled() {
                    return Err("connection refused: nothing listens there").failing(what);
                }
                clock::sleep_until(clock::monotonic_after(RETRY));
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let why = format!(
                    "no answer within {:?}: is the address right, and does a firewall let it through?",
                    sending.timeout
                );
                return Err(why).failing(what);
            }
            Err(error) => return Err(error).failing(what),
        }
    }
}

/// A socket with everything set that matters before the handshake.
fn prepared(
    sending: &SenderSettings,
    to: SocketAddr,
    index: usize,
    notes: &mut Vec<String>,
) -> Result<Socket, io::Error> {
    let kind = match sending.protocol {
        Protocol::Tcp => Type::STREAM,
        Protocol::Udp => Type::DGRAM,
    };
    let stream = &sending.stream;
    let socket = Socket::new(Domain::for_address(to), kind, None)?;
    if sending.protocol == Protocol::Tcp {
        socket.set_tcp_nodelay(stream.no_delay)?;
        if let Some(name) = &stream.congestion_control {
            socket::set_congestion_control(&socket, name).map_err(io::Error::other)?;
        }
    }
    for (buffer, asked) in [(Buffer::Send, stream.send_buffer), (Buffer::Receive, stream.receive_buffer)] {
        if let Some(asked) = asked {
            let granted = socket::set_buffer(&socket, buffer, asked).map_err(io::Error::other)?;
            note_grant(buffer, asked, granted, notes);
        }
    }
    if let Some(rate) = sending.pacing {
        socket::set_pacing_rate(&socket, rate)?;
    }
    if let Some(source) = sending.source {
        bind_device(&socket, source, notes)?;
    }
    let port = match sending.source_port {
        None => 0,
        Some(first) => u16::try_from(index).ok().and_then(|n| first.checked_add(n)).ok_or_else(|| {
            io::Error::other(format!("connection {} would need a source port beyond 65535", index + 1))
        })?,
    };
    if sending.source.is_some() || port != 0 {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let from = sending.source.unwrap_or_else(|| any.into()).at(port);
        // Ports of the run before may still wait for their last packets.
        socket.set_reuse_address(true)?;
        socket
            .bind(&from.into())
            .map_err(|error| io::Error::other(format!("from {}: {error}", NamedAddress::from(from))))?;
    }
    Ok(socket)
}

/// Two interfaces in one subnet: only the device says which one packets leave by.
fn bind_device(socket: &Socket, source: ZonedAddress, notes: &mut Vec<String>) -> io::Result<()> {
    let Some(name) = socket::interface_of(source).map_err(io::Error::other)? else {
        return Err(io::Error::other(format!("{source} is the address of no interface here (see `ip address`)")));
    };
    if let Err(error) = socket.bind_device(Some(name.as_bytes())) {
        let note = format!("the sockets are not bound to {name} (SO_BINDTODEVICE: {error}): routing decides");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(())
}

/// Says so, once, when the kernel granted less than what was asked for.
pub(super) fn note_grant(buffer: Buffer, asked: u32, granted: u32, notes: &mut Vec<String>) {
    if granted < asked {
        let name = if buffer == Buffer::Send { "send" } else { "receive" };
        let note = format!("{name} buffer: {granted} bytes granted of {asked} asked; raise {}", buffer.limit());
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

fn made(socket: Socket, thread: u32, stream: &TcpStream) -> Result<Connection, WorkerError> {
    let finish = || {
        socket.set_nonblocking(needs_nonblocking(stream))?;
        Ok::<_, io::Error>((socket.local_addr()?, socket.peer_addr()?))
    };
    let (local, remote) = finish().failing(|| "prepare a connection".into())?;
    let name = |address: SockAddr| {
        address.as_socket().map_or_else(|| "?".into(), |address| NamedAddress::from(address).to_string())
    };
    Ok(Connection::new(OwnedFd::from(socket), thread, name(local), name(remote)))
}
