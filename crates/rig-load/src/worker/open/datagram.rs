//! Bringing up UDP flows: pairs of sockets that are connected to each other, all on one port of the listening end.
//!
//! The flows come up one after the other. The listening end connects the socket that got a flow's [`Kind::Hello`] to
//! its sender and puts a fresh one in its place, so that a flow's socket takes datagrams of its peer alone. What is
//! lost on the way is said again by the connecting end; the other end answers every repetition until the load starts.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::socket::{NamedAddress, SourceBinding, ZonedAddress};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, recvfrom, send};
use socket2::{SockAddr, Socket, Type};

use super::{
    ControlThread, ErrorContext, OPEN_TIMEOUT, OpenedConnections, REFUSED_TIMEOUT, RETRY, Sockets, WorkerError, in_use,
    new_socket, ready_made,
};
use crate::greeting::{Greeting, Kind};
use crate::listener::is_allowed;
use crate::plan::Role;
use crate::protocol::Event;

/// When a Hello is repeated for the first time; then the distance doubles each time, up to the second value.
const REPEAT: Duration = Duration::from_millis(20);
const REPEAT_SELDOM: Duration = Duration::from_millis(320);

/// Opens the flows of a datagram load.
pub(in crate::worker) fn open<W: Write>(
    control: &mut ControlThread<'_, W>,
    role: &Role,
    sockets: &Sockets,
) -> Result<OpenedConnections, WorkerError> {
    match role {
        Role::Listen { address, only_from } => accept(control, *address, *only_from, sockets),
        Role::Connect { to, source } => connect(control, *to, source, sockets),
    }
}

/// Answers a Hello that is repeated because the Welcome got lost.
#[derive(Debug)]
pub(in crate::worker) struct HelloResponder {
    socket: OwnedFd,
    flow: u32,
    token: u64,
}

impl HelloResponder {
    fn new(socket: &Socket, flow: u32, token: u64) -> Result<Self, WorkerError> {
        let socket = socket.as_fd().try_clone_to_owned().failing(|| format!("keep the socket of flow {}", flow + 1))?;
        Ok(Self { socket, flow, token })
    }

    pub(in crate::worker) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn welcome(&self) {
        let welcome = Greeting { kind: Kind::Welcome, flow: self.flow, token: self.token, values: (0, 0) };
        // What cannot be sent is lost, like anything on the way.
        let _ = send(&self.socket, &welcome.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Answers what has arrived. False when that is payload, which is left for the load.
    pub(in crate::worker) fn answer(&self) -> bool {
        let mut bytes = [0; crate::greeting::LENGTH + 1];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok((_, length)) if crate::greeting::is_greeting(&bytes[..length]) => {
                    let hello = Greeting::decode(&bytes[..length]);
                    let _ = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT);
                    if hello.is_some_and(|hello| hello.kind == Kind::Hello && hello.token == self.token) {
                        self.welcome();
                    }
                }
                Ok(_) => return false,
                Err(_) => return true,
            }
        }
    }
}

fn accept<W: Write>(
    control: &mut ControlThread<'_, W>,
    address: SocketAddr,
    only_from: Option<ZonedAddress>,
    sockets: &Sockets,
) -> Result<OpenedConnections, WorkerError> {
    let mut opened = OpenedConnections::default();
    let mut socket = new_socket(address, Type::DGRAM, sockets, &mut opened.notes)?;
    let bind = || {
        socket.bind(&address.into())?;
        // Only after binding, so that a port that another process uses is refused.
        socket.set_reuse_address(true)?;
        socket.local_addr()
    };
    let local = bind()
        .map_err(|error| in_use(error, "ss -lunp"))
        .failing(|| format!("listen on {}", NamedAddress::from(address)))?;
    let port = local.as_socket().map_or(0, |local| local.port());
    control.report(&Event::Listening { port })?;

    let what = |n| move || format!("accept flow {} of {} on {}", n + 1, sockets.total, NamedAddress::from(address));
    let mut deadline_ns = u64::MAX;
    let mut hello_responder: Option<HelloResponder> = None;
    for n in 0..sockets.total {
        let (hello, peer) = loop {
            if let Some(found) = receive_hello(&socket, only_from).failing(what(n))?
                && (found.0.flow, found.0.values.0) == (n, sockets.total.into())
                && hello_responder.as_ref().is_none_or(|hello_responder| hello_responder.token == found.0.token)
            {
                break found;
            }
            let fds: Vec<_> =
                std::iter::once(socket.as_fd()).chain(hello_responder.as_ref().map(HelloResponder::fd)).collect();
            if !control.any_ready(&fds, PollFlags::IN, deadline_ns)? {
                return Err(format!("no greeting within {OPEN_TIMEOUT:?}")).failing(what(n));
            }
            if let Some(hello_responder) = &hello_responder {
                hello_responder.answer();
            }
        };
        if n == 0 {
            // When the peer is told to begin is the driver's matter.
            deadline_ns = monotonic_after(OPEN_TIMEOUT);
        }
        // The next socket is bound before this one is connected, else the kernel would answer other clients with "port unreachable".
        let next = new_socket(address, Type::DGRAM, sockets, &mut opened.notes)?;
        next.set_reuse_address(true).and_then(|()| next.bind(&local)).failing(what(n))?;
        socket.connect(&peer).failing(what(n))?;
        // What others sent here before that is not the flow's.
        while recv(&socket, &mut [0; 0], RecvFlags::DONTWAIT).is_ok() {}
        let responder = hello_responder.insert(HelloResponder::new(&socket, n, hello.token)?);
        responder.welcome();
        let flow = std::mem::replace(&mut socket, next);
        opened.connections.push(ready_made(flow, Some(peer), n, sockets)?);
    }
    opened.hello_responder = hello_responder;
    Ok(opened)
}

/// The next greeting that waits on the listening socket, and its sender's address. Other datagrams, and those from addresses
/// that are not allowed, are thrown away.
fn receive_hello(socket: &Socket, only_from: Option<ZonedAddress>) -> Result<Option<(Greeting, SockAddr)>, io::Error> {
    let mut bytes = [0; crate::greeting::LENGTH + 1];
    loop {
        match recvfrom(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, length, Some(peer))) => {
                let hello = Greeting::decode(&bytes[..length]).filter(|greeting| greeting.kind == Kind::Hello);
                if let (Some(hello), Ok(peer)) = (hello, SocketAddr::try_from(peer))
                    && is_allowed(Some(peer), only_from)
                {
                    return Ok(Some((hello, peer.into())));
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
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
    let deadlines = Deadlines { all_ns: monotonic_after(OPEN_TIMEOUT), refusal_ns: monotonic_after(REFUSED_TIMEOUT) };
    let token = token();
    for n in 0..sockets.total {
        let socket = new_socket(to, Type::DGRAM, sockets, &mut opened.notes)?;
        let hello = Greeting { kind: Kind::Hello, flow: n, token, values: (sockets.total.into(), 0) };
        let what = || format!("open flow {} of {} to {}", n + 1, sockets.total, NamedAddress::from(to));
        source.bind(&socket, to).failing(what)?;
        socket.connect(&to.into()).failing(what)?;
        greet(control, &socket, &hello, &deadlines)?.failing(what)?;
        opened.connections.push(ready_made(socket, None, n, sockets)?);
    }
    Ok(opened)
}

struct Deadlines {
    all_ns: u64,
    /// Before this, a refusal is not believed.
    refusal_ns: u64,
}

/// Says Hello until it is welcomed. The outer error ends the worker, the inner one tells why there is no flow.
fn greet<W: Write>(
    control: &mut ControlThread<'_, W>,
    socket: &Socket,
    hello: &Greeting,
    deadlines: &Deadlines,
) -> Result<Result<(), String>, WorkerError> {
    let welcome = Greeting { kind: Kind::Welcome, values: (0, 0), ..*hello };
    let mut distance = REPEAT;
    loop {
        let mut refused = false;
        match send(socket, &hello.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
            Err(Errno::CONNREFUSED) => refused = true,
            Err(errno) => return Ok(Err(io::Error::from(errno).to_string())),
        }
        let again_ns = monotonic_after(distance).min(deadlines.all_ns);
        while !refused && control.ready(socket, PollFlags::IN, again_ns)? {
            let mut bytes = [0; crate::greeting::LENGTH + 1];
            match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, length)) if Greeting::decode(&bytes[..length]) == Some(welcome) => return Ok(Ok(())),
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::CONNREFUSED) => refused = true,
                Err(errno) => return Ok(Err(io::Error::from(errno).to_string())),
            }
        }
        if refused {
            if monotonic_ns() >= deadlines.refusal_ns {
                return Ok(Err("connection refused: nothing listens there".into()));
            }
            control.pause(monotonic_after(RETRY))?;
        } else {
            distance = (distance * 2).min(REPEAT_SELDOM);
        }
        if monotonic_ns() >= deadlines.all_ns {
            return Ok(Err(format!("no answer within {OPEN_TIMEOUT:?}")));
        }
    }
}

/// A number that no other run has at the same time.
fn token() -> u64 {
    monotonic_ns().rotate_left(20) ^ u64::from(std::process::id())
}
