//! Bringing up the connections, with every option set before the handshake that it has to be part of.

pub(super) mod datagram;

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::socket::{self, Buffer, NamedAddress, SourceBinding, ZonedAddress};
use rustix::event::PollFlags;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use self::datagram::HelloResponder;
use super::{ControlThread, ErrorContext, WorkerError};
use crate::engine::{Connection, needs_nonblocking, transactions};
use crate::listener::{Listener, is_allowed};
use crate::plan::{Datagrams, Role, SocketOptions, TcpStream, Transactions};
use crate::protocol::Event;
use crate::record::Direction;
use crate::socket_options::set_priority;

/// How long all connections together may take to come up.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener that has just been announced is there; a refusal is only believed after this long.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(5);

/// What of a load its sockets have to know.
#[derive(Debug, Clone, Default)]
pub(super) struct Sockets {
    threads: u32,
    total: u32,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    no_delay: bool,
    congestion_control: Option<String>,
    nonblocking: bool,
    options: SocketOptions,
}

impl From<&TcpStream> for Sockets {
    fn from(stream: &TcpStream) -> Self {
        Self {
            threads: stream.threads,
            total: stream.total_connections(),
            send_buffer: stream.send_buffer,
            receive_buffer: stream.receive_buffer,
            no_delay: stream.no_delay,
            congestion_control: stream.congestion_control.clone(),
            nonblocking: needs_nonblocking(stream),
            options: stream.options,
        }
    }
}

impl From<&Datagrams> for Sockets {
    fn from(datagrams: &Datagrams) -> Self {
        Self {
            threads: datagrams.threads,
            total: datagrams.total_connections(),
            send_buffer: datagrams.send_buffer,
            receive_buffer: datagrams.receive_buffer,
            no_delay: false,
            congestion_control: None,
            nonblocking: datagrams.connections > 1,
            options: datagrams.options,
        }
    }
}

impl Sockets {
    pub(super) fn of_transactions(load: &Transactions, direction: Direction, is_tcp: bool) -> Self {
        Self {
            threads: load.threads,
            total: load.total_connections(),
            send_buffer: load.send_buffer,
            receive_buffer: load.receive_buffer,
            no_delay: is_tcp && load.no_delay,
            congestion_control: load.congestion_control.clone().filter(|_| is_tcp),
            nonblocking: transactions::needs_nonblocking(load, direction),
            options: load.options,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct OpenedConnections {
    pub(super) connections: Vec<Connection>,
    pub(super) notes: Vec<String>,
    /// Of TCP loads, at the listening end: for loads that go on accepting.
    pub(super) listener: Option<Listener>,
    /// Of datagram loads, at the listening end: goes on answering while the load has not started.
    pub(super) hello_responder: Option<HelloResponder>,
}

pub(super) fn open<W: Write>(
    control: &mut ControlThread<'_, W>,
    role: &Role,
    sockets: &Sockets,
) -> Result<OpenedConnections, WorkerError> {
    match role {
        Role::Listen { address, only_from } => accept(control, *address, *only_from, sockets),
        Role::Connect { to, source } => connect(control, *to, source, sockets),
    }
}

fn accept<W: Write>(
    control: &mut ControlThread<'_, W>,
    address: SocketAddr,
    only_from: Option<ZonedAddress>,
    sockets: &Sockets,
) -> Result<OpenedConnections, WorkerError> {
    let mut opened = OpenedConnections::default();
    // What the listening socket is told, the connections that it accepts inherit: buffers set after the handshake
    // would come too late for the window scale (tcp(7)).
    let listener = new_socket(address, Type::STREAM, sockets, &mut opened.notes)?;
    let listen = || {
        listener.set_reuse_address(true)?;
        listener.bind(&address.into())?;
        listener.listen(i32::try_from(sockets.total).unwrap_or(i32::MAX))?;
        listener.set_nonblocking(true)?;
        listener.local_addr()
    };
    let local = listen()
        .map_err(|error| in_use(error, "ss -ltnp"))
        .failing(|| format!("listen on {}", NamedAddress::from(address)))?;
    let port = local.as_socket().map_or(0, |local| local.port());
    control.report(&Event::Listening { port })?;

    let what = |n| move || format!("accept connection {n} of {} on {}", sockets.total, NamedAddress::from(address));
    let mut deadline = None;
    for n in 0..sockets.total {
        let (socket, remote) = loop {
            match listener.accept() {
                Ok((socket, remote)) if is_allowed(remote.as_socket(), only_from) => {
                    break (socket, remote);
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    // The clock starts with the first connection: when the peer is told to begin is the driver's matter.
                    let deadline_ns = deadline.unwrap_or(u64::MAX);
                    if !control.ready(&listener, PollFlags::IN, deadline_ns)? {
                        return Err(format!("no connection within {OPEN_TIMEOUT:?}")).failing(what(n + 1));
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error).failing(what(n + 1)),
            }
        };
        deadline.get_or_insert_with(|| monotonic_after(OPEN_TIMEOUT));
        set_priority(&socket, sockets.options.priority).failing(what(n + 1))?;
        opened.connections.push(ready_made(socket, Some(remote), n, sockets)?);
    }
    opened.listener = Some(Listener::new(listener.into(), only_from, sockets.options.priority));
    Ok(opened)
}

fn connect<W: Write>(
    control: &mut ControlThread<'_, W>,
    to: SocketAddr,
    source: &SourceBinding,
    sockets: &Sockets,
) -> Result<OpenedConnections, WorkerError> {
    if to.port() == 0 {
        return Err("a listener's port is needed").failing(|| format!("connect to {}", NamedAddress::from(to)));
    }
    let mut opened = OpenedConnections::default();
    let deadline_ns = monotonic_after(OPEN_TIMEOUT);
    let refused_deadline_ns = monotonic_after(REFUSED_TIMEOUT);
    for n in 0..sockets.total {
        let what = || format!("open connection {} of {} to {}", n + 1, sockets.total, NamedAddress::from(to));
        let socket = loop {
            let socket = new_socket(to, Type::STREAM, sockets, &mut opened.notes)?;
            source.bind(&socket, to).failing(what)?;
            match attempt(control, &socket, to, deadline_ns)? {
                Ok(()) => break socket,
                Err(Errno::CONNREFUSED) if monotonic_ns() < refused_deadline_ns => {
                    // Nothing becomes ready on a socket that is not connected to anything, save the driver's pipe.
                    control.pause(monotonic_after(RETRY))?;
                }
                Err(Errno::CONNREFUSED) => return Err("connection refused: nothing listens there").failing(what),
                Err(errno) => return Err(std::io::Error::from(errno)).failing(what),
            }
        };
        opened.connections.push(ready_made(socket, None, n, sockets)?);
    }
    Ok(opened)
}

/// One attempt to connect. The outer error ends the worker, the inner one is the kernel's verdict.
fn attempt<W: Write>(
    control: &mut ControlThread<'_, W>,
    socket: &Socket,
    to: SocketAddr,
    deadline_ns: u64,
) -> Result<Result<(), Errno>, WorkerError> {
    let verdict = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let connecting = socket.set_nonblocking(true).and_then(|()| socket.connect(&to.into()));
    match connecting {
        Ok(()) => return Ok(Ok(())),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Ok(Err(verdict(&error))),
    }
    if !control.ready(socket, PollFlags::OUT, deadline_ns)? {
        return Ok(Err(Errno::TIMEDOUT));
    }
    Ok(match socket.take_error() {
        Ok(None) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(verdict(&error)),
    })
}

/// A socket with everything set that matters before the handshake. Buffers that the kernel does not grant in full become a note.
fn new_socket(peer: SocketAddr, kind: Type, sockets: &Sockets, notes: &mut Vec<String>) -> Result<Socket, WorkerError> {
    let socket = sockets.options.socket(Domain::for_address(peer), kind);
    let socket = socket.failing(|| format!("create a socket for {}", NamedAddress::from(peer)))?;
    for (buffer, asked) in [(Buffer::Send, sockets.send_buffer), (Buffer::Receive, sockets.receive_buffer)] {
        let Some(asked) = asked else { continue };
        let granted = socket::set_buffer(&socket, buffer, asked)
            .failing(|| format!("prepare a socket for {}", NamedAddress::from(peer)))?;
        if granted < asked {
            let name = if buffer == Buffer::Send { "send" } else { "receive" };
            let note = format!("{name} buffer: {granted} bytes granted of {asked} asked; raise {}", buffer.limit());
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    if sockets.no_delay {
        // A listening socket hands it on to the connections that it accepts.
        socket.set_tcp_nodelay(true).failing(|| format!("prepare a socket for {}", NamedAddress::from(peer)))?;
    }
    if let Some(name) = &sockets.congestion_control {
        socket::set_congestion_control(&socket, name)
            .failing(|| format!("prepare a socket for {}", NamedAddress::from(peer)))?;
    }
    let applied = sockets.options.apply(&socket, peer.is_ipv6());
    applied.failing(|| format!("prepare a socket for {}", NamedAddress::from(peer)))?;
    Ok(socket)
}

fn ready_made(
    socket: Socket,
    remote: Option<SockAddr>,
    index: u32,
    sockets: &Sockets,
) -> Result<Connection, WorkerError> {
    let finish = || {
        socket.set_nonblocking(sockets.nonblocking)?;
        let remote = remote.map_or_else(|| socket.peer_addr(), Ok)?;
        Ok::<_, std::io::Error>((socket.local_addr()?, remote))
    };
    let (local, remote) = finish().failing(|| format!("prepare connection {}", index + 1))?;
    let name = |address: SockAddr| {
        address.as_socket().map_or_else(|| "?".into(), |address| NamedAddress::from(address).to_string())
    };
    Ok(Connection::new(OwnedFd::from(socket), index % sockets.threads, name(local), name(remote)))
}

/// The kernel's words for a port that is taken do not say what to do.
fn in_use(error: std::io::Error, list: &str) -> std::io::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => std::io::Error::new(
            error.kind(),
            format!("the port is in use: stop the program that listens there (`{list}`) or take port 0"),
        ),
        std::io::ErrorKind::AddrNotAvailable => {
            std::io::Error::new(error.kind(), "the address belongs to no interface of this namespace")
        }
        _ => error,
    }
}
