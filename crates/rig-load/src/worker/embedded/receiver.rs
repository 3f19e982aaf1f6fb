//! The end that accepts connections.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rig_sys::socket::{self, Buffer, NamedAddress, ZonedAddress};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::time::Timespec;
use socket2::{Domain, Socket, Type};

use super::sender::{note_grant, place};
use super::{AT_ONCE, Counts, Protocol};
use crate::engine::{self, Connection, ConnectionCounters, CopyIn, Engine, LoadProgress, ReceiveMethod, ThreadFailure};
use crate::plan::{Engine as EngineKind, Flow, ReceiveMode, SendMode, TcpStream};
use crate::record::Direction;
use crate::wait::EventFd;
use crate::worker::load_threads::LoadThreads;
use crate::worker::{ErrorContext, WorkerError};

/// Connections of all ports together; more wait in the kernel until one ends.
const CONNECTIONS: usize = 20_000;
/// Connections that the kernel keeps for a thread that has not come to accept them (limited by net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// Messages taken from one connection before the next has its turn.
const TURNS: usize = 32;
/// Before a thread that had no room for a connection looks again.
const PAUSE: Duration = Duration::from_millis(200);
/// What an event of the epoll set stands for; connections come after.
const LISTENER: u64 = 0;
const STOP: u64 = 1;
const FIRST: u64 = 2;

/// Where one thread listens, and where it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub at: SocketAddr,
    /// The thread's CPU; `None` leaves the affinity of the caller.
    pub cpu: Option<u32>,
}

/// What a [`Receiver`] shall do.
#[derive(Debug, Clone)]
pub struct ReceiverSettings {
    pub protocol: Protocol,
    /// One for each thread, up to 1024.
    pub ports: Vec<Port>,
    /// Bytes asked of the kernel by one receive, 1 B to 64 MiB.
    pub message: u32,
    /// SO_RCVBUF in bytes as asked for. `None`: kernel's autotuning.
    pub receive_buffer: Option<u32>,
    /// TCP_NODELAY on the accepted connections.
    pub no_delay: bool,
    /// Receives outstanding at a time (io_uring); a port then serves one connection after the other. `None`: one
    /// receive at a time, and all connections of a port at once. TCP only.
    pub outstanding: Option<u32>,
}

/// Counters that a port's thread publishes.
#[derive(Debug, Default)]
struct State {
    tally: ConnectionCounters,
    current: Mutex<Current>,
}

/// The connection that io_uring waits on.
#[derive(Debug, Default)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// What the connections before it received.
    past: Counts,
    closing: bool,
}

/// What the threads share.
#[derive(Debug)]
struct ListenerState {
    open: AtomicUsize,
    accepted: AtomicUsize,
    /// A datagram came: there are no connections to count.
    heard: AtomicBool,
    news: EventFd,
    /// Held from taking a connection out of the kernel's queue to counting it, so that a thread that holds it finds every
    /// connection in one of the two.
    threshold: Mutex<()>,
}

impl ListenerState {
    fn threshold(&self) -> MutexGuard<'_, ()> {
        self.threshold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Release);
        self.news.notify();
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Release);
        self.news.notify();
    }

    fn is_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= CONNECTIONS
    }
}

/// Threads that receive, one for each [`Port`]. They take and count everything from the moment they are there.
#[derive(Debug)]
pub struct Receiver {
    load_threads: LoadThreads,
    states: Vec<Arc<State>>,
    listener_state: Arc<ListenerState>,
    /// One for each port: a listening socket, or that of the datagrams.
    sockets: Vec<Arc<OwnedFd>>,
    notes: Vec<String>,
    addresses: Vec<SocketAddr>,
}

impl Receiver {
    /// Listens on all ports and starts the threads. Raises the process's soft limit of open files to the hard one.
    ///
    /// # Errors
    /// A value out of its range, or a port that cannot be had.
    pub fn open(receiving: &ReceiverSettings) -> Result<Self, WorkerError> {
        let stream = stream_of(receiving);
        stream.validate().failing(|| "check what is to be received".into())?;
        rig_sys::process::raise_file_limit();
        let (mut notes, mut addresses) = (Vec::new(), Vec::new());
        let mut sockets = Vec::new();
        for port in &receiving.ports {
            let what = || match receiving.protocol {
                Protocol::Tcp => format!("listen on {}", NamedAddress::from(port.at)),
                Protocol::Udp => format!("receive datagrams on {}", NamedAddress::from(port.at)),
            };
            let socket =
                listen(receiving, port.at, &mut notes).map_err(|error| in_use(error, port.at)).failing(what)?;
            addresses.push(socket.local_addr().ok().and_then(|a| a.as_socket()).unwrap_or(port.at));
            sockets.push(Arc::new(OwnedFd::from(socket)));
        }
        let news = EventFd::new().failing(|| "create an eventfd".into())?;
        let (open, accepted, heard) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let listener_state = Arc::new(ListenerState { open, accepted, heard, news, threshold: Mutex::default() });
        let states: Vec<Arc<State>> = sockets.iter().map(|_| Arc::default()).collect();
        let mut load_threads =
            LoadThreads::new(&Arc::from(Vec::new()), Direction::Receive, receiving.protocol == Protocol::Udp)?;
        for (thread, (socket, state)) in sockets.iter().zip(&states).enumerate() {
            let (socket, state, listener_state) = (socket.clone(), state.clone(), listener_state.clone());
            let cpus = Vec::from_iter(receiving.ports[thread].cpu);
            let (stream, no_delay, udp) = (stream.clone(), receiving.no_delay, receiving.protocol == Protocol::Udp);
            let outstanding = receiving.outstanding;
            load_threads.spawn(thread as u32, move |_| {
                place(&cpus)?;
                let message = stream.message as usize;
                Ok(match outstanding {
                    _ if udp => Box::new(Datagrams { socket, pull: CopyIn::new(message), state, listener_state }),
                    Some(outstanding) => Box::new(OutstandingReceives {
                        listener: socket,
                        stream,
                        outstanding,
                        no_delay,
                        state,
                        listener_state,
                    }),
                    None => {
                        Box::new(Open { listener: socket, pull: CopyIn::new(message), no_delay, state, listener_state })
                    }
                })
            })?;
        }
        load_threads.go(AT_ONCE);
        Ok(Self { load_threads, states, listener_state, sockets, notes, addresses })
    }

    /// Readable when a connection came or ended, or the first datagram came; [`Self::clear`] silences it.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.listener_state.news.as_fd()
    }

    pub fn clear(&self) {
        self.listener_state.news.clear();
    }

    /// Where the threads listen, with the ports that the kernel chose for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> usize {
        self.listener_state.open.load(Ordering::Acquire)
    }

    /// Everything that was there for the taking has been taken and stands in [`Self::counts`]: no connection is open, and
    /// neither a connection nor a datagram waits in the kernel for its thread. Of a peer that opens all its connections
    /// before it sends on the first, true from the end of the last.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn is_idle(&self) -> Result<bool, WorkerError> {
        let _threshold = self.listener_state.threshold();
        // In this order: a connection that was there at the end of the open ones is in the queue yet.
        if self.open_connections() > 0 {
            return Ok(false);
        }
        let mut fds: Vec<PollFd<'_>> = self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        loop {
            match poll(&mut fds, Some(&Timespec::default())) {
                Err(Errno::INTR) => {}
                result => return result.map(|ready| ready == 0).failing(|| "look for waiting connections".into()),
            }
        }
    }

    /// A connection or a datagram has come since the receiver was opened.
    pub fn was_heard_of(&self) -> bool {
        self.accepted() > 0 || self.listener_state.heard.load(Ordering::Acquire)
    }

    /// Connections that were accepted so far.
    pub fn accepted(&self) -> usize {
        self.listener_state.accepted.load(Ordering::Acquire)
    }

    /// What each thread has received so far.
    pub fn counts(&self) -> Vec<Counts> {
        let count = |state: &Arc<State>| {
            let current = state.current.lock().unwrap_or_else(PoisonError::into_inner);
            let tallies = std::iter::once(&state.tally).chain(current.connection.iter().map(|c| &c.inbound));
            let Counts { bytes, operations } = Counts::of(tallies);
            Counts { bytes: bytes + current.past.bytes, operations: operations + current.past.operations }
        };
        self.states.iter().map(count).collect()
    }

    /// What the kernel did not grant, in words for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Fails when a thread has.
    pub fn check(&self) -> Result<(), WorkerError> {
        self.load_threads.check()
    }

    /// Closes everything.
    ///
    /// # Errors
    /// What kept a thread from receiving, other than its peer.
    pub fn stop(mut self) -> Result<(), WorkerError> {
        self.close_current();
        self.load_threads.stop()
    }

    /// Ends what io_uring waits on, now and from now on.
    fn close_current(&self) {
        for state in &self.states {
            let mut current = state.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.closing = true;
            if let Some(connection) = &current.connection {
                // Fails only when the peer has ended it already.
                let _ = shutdown(&connection.socket, Shutdown::Both);
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The load threads are joined when they are dropped after this.
        self.close_current();
    }
}

fn stream_of(receiving: &ReceiverSettings) -> TcpStream {
    TcpStream {
        flow: Flow::Forward,
        threads: u32::try_from(receiving.ports.len()).unwrap_or(u32::MAX),
        connections: 1,
        message: receiving.message,
        send_buffer: None,
        receive_buffer: receiving.receive_buffer,
        no_delay: receiving.no_delay,
        throttle: None,
        congestion_control: None,
        engine: receiving.outstanding.map_or(EngineKind::Blocking, |outstanding| EngineKind::Uring { outstanding }),
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
        options: Default::default(),
    }
}

fn listen(receiving: &ReceiverSettings, at: SocketAddr, notes: &mut Vec<String>) -> io::Result<Socket> {
    let kind = match receiving.protocol {
        Protocol::Tcp => Type::STREAM,
        Protocol::Udp => Type::DGRAM,
    };
    let socket = Socket::new(Domain::for_address(at), kind, None)?;
    // What the listening socket is told, the connections inherit: after the handshake it would come too late for the
    // window scale (tcp(7)).
    if let Some(asked) = receiving.receive_buffer {
        let granted = socket::set_buffer(&socket, Buffer::Receive, asked).map_err(io::Error::other)?;
        note_grant(Buffer::Receive, asked, granted, notes);
    }
    if receiving.protocol == Protocol::Tcp {
        socket.set_reuse_address(true)?;
    }
    socket.bind(&at.into())?;
    if receiving.protocol == Protocol::Tcp {
        socket.listen(BACKLOG)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn in_use(error: io::Error, at: SocketAddr) -> io::Error {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {0} is in use: stop the program that has it (`ss -lntup 'sport = :{0}'` names it) or choose \
             another base port",
            at.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("{} is the address of no interface here (see `ip address`)", ZonedAddress::from(at))
        }
        io::ErrorKind::PermissionDenied => format!("port {} needs privilege: choose one from 1024", at.port()),
        _ => return error,
    };
    io::Error::new(error.kind(), why)
}

/// One thread's port with all its connections at once.
#[derive(Debug)]
struct Open {
    listener: Arc<OwnedFd>,
    pull: CopyIn,
    no_delay: bool,
    state: Arc<State>,
    listener_state: Arc<ListenerState>,
}

impl Engine for Open {
    fn run(&mut self, _: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let mut room = ConnectionSlots { connections: Vec::new(), free: Vec::new() };
        let result = self.serve(&mut room, progress).map_err(|errno| failed("watch a port with epoll", errno));
        for _ in room.connections.iter().flatten() {
            self.listener_state.leave();
        }
        result
    }
}

/// The connections of a port, each with a number that the epoll set knows it by.
struct ConnectionSlots {
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
}

impl Open {
    fn serve(&mut self, room: &mut ConnectionSlots, progress: &LoadProgress) -> Result<(), Errno> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &progress.stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let admit = || epoll::add(&watch, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN);
        admit()?;
        let mut admitting = true;
        let pause = Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
        let mut events: Vec<Event> = Vec::with_capacity(256);
        while !progress.is_stopped() {
            events.clear();
            match epoll::wait(&watch, spare_capacity(&mut events), (!admitting).then_some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if !admitting {
                admit()?;
                admitting = true;
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => {
                        admitting = accept(&self.listener, self.no_delay, &self.listener_state, room, &watch);
                        if !admitting {
                            // No room: clients wait in the kernel's queue, and the thread must not be woken for them again and again.
                            epoll::delete(&watch, &self.listener)?;
                        }
                    }
                    number => {
                        let index = (number - FIRST) as usize;
                        let Some(Some(connection)) = room.connections.get(index) else { continue };
                        if drain(connection, &mut self.pull, &self.state.tally) {
                            room.connections[index] = None;
                            room.free.push(index);
                            self.listener_state.leave();
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Accepts all waiting connections. False when there is no room for more.
fn accept(
    listener: &OwnedFd,
    no_delay: bool,
    listener_state: &ListenerState,
    room: &mut ConnectionSlots,
    watch: &OwnedFd,
) -> bool {
    loop {
        if listener_state.is_full() {
            return false;
        }
        let _threshold = listener_state.threshold();
        let connection = match accepted(listener, true, no_delay) {
            Ok(connection) => connection,
            Err(Errno::AGAIN) => return true,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => return false,
            // What happened to a connection before it was taken is its own affair (accept(2)).
            Err(_) => continue,
        };
        let index = room.free.pop().unwrap_or(room.connections.len());
        if epoll::add(watch, &connection.socket, EventData::new_u64(index as u64 + FIRST), EventFlags::IN).is_err() {
            room.free.extend((index < room.connections.len()).then_some(index));
            return false;
        }
        match room.connections.get_mut(index) {
            Some(seat) => *seat = Some(connection),
            None => room.connections.push(Some(connection)),
        }
        listener_state.enter();
    }
}

/// Accepts one connection.
fn accepted(listener: &OwnedFd, nonblocking: bool, no_delay: bool) -> Result<Connection, Errno> {
    use rustix::net::{SocketFlags, accept_with, sockopt};
    let flags = if nonblocking { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK } else { SocketFlags::CLOEXEC };
    let socket = accept_with(listener, flags)?;
    if no_delay {
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(Connection::new(socket, 0, String::new(), String::new()))
}

/// Takes what has come, within a turn. True when the connection has ended.
fn drain(connection: &Connection, pull: &mut CopyIn, tally: &ConnectionCounters) -> bool {
    for _ in 0..TURNS {
        match pull.pull(connection) {
            Ok(0) => return true,
            Ok(bytes) => tally.add(bytes),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

/// One thread's port with several receives outstanding on one connection after the other.
#[derive(Debug)]
struct OutstandingReceives {
    listener: Arc<OwnedFd>,
    stream: TcpStream,
    outstanding: u32,
    no_delay: bool,
    state: Arc<State>,
    listener_state: Arc<ListenerState>,
}

impl Engine for OutstandingReceives {
    fn run(&mut self, _: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        while wait_for(&self.listener, progress).map_err(|errno| failed("wait for a connection", errno))? {
            let threshold = self.listener_state.threshold();
            let Ok(connection) = accepted(&self.listener, false, self.no_delay) else {
                drop(threshold);
                // Gone again, or no descriptor is left.
                std::thread::park_timeout(PAUSE);
                continue;
            };
            let connection = Arc::new(connection);
            {
                let mut current = self.state.current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.closing {
                    return Ok(());
                }
                current.connection = Some(connection.clone());
            }
            self.listener_state.enter();
            drop(threshold);
            // A connection that ends is no failure: the load may end from the start.
            let result = engine::deep_receiver(&self.stream, self.outstanding, &connection)
                .and_then(|mut engine| engine.run(&[&connection], progress));
            {
                let mut current = self.state.current.lock().unwrap_or_else(PoisonError::into_inner);
                current.connection = None;
                let count = connection.inbound.read();
                current.past.bytes += count.bytes;
                current.past.operations += count.operations;
            }
            self.listener_state.leave();
            result?;
        }
        Ok(())
    }
}

/// One thread's socket for datagrams.
#[derive(Debug)]
struct Datagrams {
    socket: Arc<OwnedFd>,
    pull: CopyIn,
    state: Arc<State>,
    listener_state: Arc<ListenerState>,
}

impl Engine for Datagrams {
    fn run(&mut self, _: &[&Connection], progress: &LoadProgress) -> Result<(), ThreadFailure> {
        let Self { socket, pull, state, listener_state } = self;
        // Shaped like a connection, because that is what payload is taken from.
        let socket = socket.try_clone().map_err(|error| failed("prepare a socket", error))?;
        let connection = Connection::new(socket, 0, String::new(), String::new());
        while wait_for(&connection.socket, progress).map_err(|errno| failed("wait for a datagram", errno))? {
            for _ in 0..TURNS {
                match pull.pull(&connection) {
                    Ok(bytes) => state.tally.add(bytes),
                    // Errors are of datagrams that were sent, and none is sent.
                    Err(_) => break,
                }
            }
            if !listener_state.heard.load(Ordering::Relaxed) && !listener_state.heard.swap(true, Ordering::Release) {
                listener_state.news.notify();
            }
        }
        Ok(())
    }
}

/// Waits until there is something to take. False when the load has stopped.
fn wait_for(socket: &OwnedFd, progress: &LoadProgress) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(&progress.stop, PollFlags::IN)];
    loop {
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) if progress.is_stopped() => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn failed(what: &str, why: impl Into<io::Error>) -> ThreadFailure {
    ThreadFailure { what: what.into(), why: why.into().to_string() }
}
