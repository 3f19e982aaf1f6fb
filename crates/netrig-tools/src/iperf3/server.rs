//! The server: who connects, and whose streams are whose. Each test has a thread of its own.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rig_load::driver::Cancel;
use rig_sys::clock::{self, monotonic_ns};
use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::authentication::Authorizer;
use super::console::Console;
use super::control::Greeting;
use super::error::{Code, TestError, WithCode};
use super::report::{SHOWN_VERSION, system_info};
use super::session::{self, FromSession, Labels, SessionParts, ToSession, home};
use super::settings::{KeepAlive, NetworkSettings, Protocol, Settings};
use super::sockets::{control_options, listen};
use super::wait::{EventFd, SECOND_NS, wait};
use super::wire::{Cookie, State, words};

/// How long the first 37 bytes of a connection may take.
const GREETING_NS: u64 = 10 * SECOND_NS;
/// Between two attempts to accept when there is no descriptor.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(20);
/// Connections that have not said so much; when there are more, the oldest goes.
const MOST_GREETINGS: usize = 1024;
/// Tests at a time.
const MOST_SESSIONS: usize = 64;
/// A client that no longer answers on a quiet control connection is noticed after eleven seconds.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: 5, interval: 2, count: 3 };

/// A connection whose cookie is not whole.
struct Newcomer {
    socket: Socket,
    over: Protocol,
    /// How many were accepted before it.
    order: u64,
    greeting: Greeting,
    until_ns: u64,
}

/// A test as the server knows it.
struct SessionHandle {
    id: u64,
    cookie: Cookie,
    home: IpAddr,
    orders: Sender<ToSession>,
    bell: EventFd,
    thread: JoinHandle<()>,
    /// It takes streams of this kind.
    expects: Option<Protocol>,
    /// Words from its client's address are its.
    has_turn: bool,
    /// Whose words have opened streams.
    opened: Vec<SocketAddr>,
}

impl SessionHandle {
    /// Its streams are opened by words over UDP.
    fn takes_words(&self) -> bool {
        self.expects == Some(Protocol::Udp)
    }

    fn tell(&self, order: ToSession) {
        // A session that has just ended needs nothing.
        let _ = self.orders.send(order);
        self.bell.ring();
    }
}

struct Server {
    settings: Arc<Settings>,
    authorizer: Option<Arc<Authorizer>>,
    console: Console,
    cancel: Cancel,
    listener: Socket,
    newcomers: VecDeque<Newcomer>,
    sessions: Vec<SessionHandle>,
    /// While a session waits for words.
    words: Option<UdpSocket>,
    /// While a session waits for associations of SCTP.
    associations: Option<Socket>,
    labels: Labels,
    bell: EventFd,
    tell: Sender<FromSession>,
    told: Receiver<FromSession>,
    next_id: u64,
    accepted: u64,
    /// The one test of a server that makes one has been made.
    is_done: bool,
    idle_since_ns: u64,
    tests: u64,
}

/// Serves until a signal, or as long as `-1` says.
///
/// # Errors
/// When the port cannot be had, or waiting fails.
pub fn run(
    settings: Settings,
    authorizer: Option<Authorizer>,
    console: Console,
    cancel: &Cancel,
) -> Result<(), TestError> {
    rig_sys::process::raise_file_limit();
    rig_sys::socket::ignore_sigpipe();
    if !settings.output.json && settings.output.verbose {
        console.line(&format!("{SHOWN_VERSION}\n"));
        console.line(&format!("{}\n", system_info()));
    }
    let listener = listen(&settings.network, Protocol::Tcp)?;
    listener.set_nonblocking(true).or_code(Code::LISTEN)?;
    let (tell, told) = channel();
    let mut server = Server {
        settings: Arc::new(settings),
        authorizer: authorizer.map(Arc::new),
        console,
        cancel: cancel.clone(),
        listener,
        newcomers: VecDeque::new(),
        sessions: Vec::new(),
        words: None,
        associations: None,
        labels: Labels::default(),
        bell: EventFd::new().or_code(Code::LISTEN)?,
        tell,
        told,
        next_id: 0,
        accepted: 0,
        is_done: false,
        idle_since_ns: monotonic_ns(),
        tests: 0,
    };
    server.announce();
    let result = server.serve();
    for session in server.sessions.drain(..) {
        session.bell.ring();
        // A panic has said itself on standard error.
        let _ = session.thread.join();
    }
    result
}

impl Server {
    /// Says that it is ready for the next client.
    fn announce(&mut self) {
        self.tests += 1;
        if self.settings.output.json {
            return;
        }
        let rule = "-----------------------------------------------------------\n";
        self.console.line(rule);
        let (port, test) = (self.settings.network.port, self.tests);
        self.console.line(&format!("Server listening on {port} (test #{test})\n"));
        self.console.line(rule);
    }

    fn one_at_a_time(&self) -> bool {
        self.settings.server.one_at_a_time || self.settings.server.one_off
    }

    fn serve(&mut self) -> Result<(), TestError> {
        loop {
            let deadline_ns = self.next_deadline();
            let mut fds = vec![
                PollFd::new(&self.cancel, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
                PollFd::new(&self.bell, PollFlags::IN),
            ];
            fds.extend(self.newcomers.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)));
            fds.extend(self.words.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
            fds.extend(self.associations.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
            wait(&mut fds, deadline_ns).or_code(Code::ACCEPT)?;
            drop(fds);
            if self.cancel.is_cancelled() {
                return Ok(());
            }
            self.bell.silence();
            self.hear_all();
            if !self.is_done {
                self.accept();
            }
            if self.is_done {
                return Ok(());
            }
            self.accept_associations();
            self.greet();
            self.read_words();
            if self.is_idle_for_too_long() && self.settings.server.one_off {
                return Ok(());
            }
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let greeting = self.newcomers.front().map(|newcomer| newcomer.until_ns);
        let idle = self.settings.server.idle_timeout.filter(|_| self.sessions.is_empty());
        let idle = idle.map(|seconds| self.idle_since_ns + u64::from(seconds) * SECOND_NS);
        greeting.into_iter().chain(idle).min()
    }

    /// With `--idle-timeout`: everything that waits begins anew.
    fn is_idle_for_too_long(&mut self) -> bool {
        let Some(seconds) = self.settings.server.idle_timeout.filter(|_| self.sessions.is_empty()) else {
            return false;
        };
        let now_ns = monotonic_ns();
        let over = now_ns >= self.idle_since_ns + u64::from(seconds) * SECOND_NS;
        if over {
            self.newcomers.clear();
            self.idle_since_ns = now_ns;
        }
        over
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.give_a_descriptor_back(),
            };
            let until_ns = monotonic_ns() + GREETING_NS;
            // A session has said that it takes streams before its client knew.
            self.hear_all();
            if self.is_done {
                return deny(&socket);
            }
            let takes_streams = self.sessions.iter().any(|session| session.expects == Some(Protocol::Tcp));
            if self.one_at_a_time() && !self.sessions.is_empty() && !takes_streams {
                deny(&socket);
                continue;
            }
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            self.welcome(socket, Protocol::Tcp, until_ns);
        }
    }

    /// Associations of SCTP, whose cookies say which test they are of.
    fn accept_associations(&mut self) {
        while let Some(listener) = &self.associations {
            match listener.accept() {
                Ok((socket, _)) => {
                    if socket.set_nonblocking(true).is_ok() {
                        self.welcome(socket, Protocol::Sctp, monotonic_ns() + GREETING_NS);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.give_a_descriptor_back(),
            }
        }
    }

    /// No descriptor is left: the one that has waited longest gives its own, or one that goes does before long.
    fn give_a_descriptor_back(&mut self) {
        self.newcomers.pop_front();
        clock::sleep_until(clock::monotonic_after(OUT_OF_DESCRIPTORS));
    }

    fn welcome(&mut self, socket: Socket, over: Protocol, until_ns: u64) {
        if self.newcomers.len() >= MOST_GREETINGS {
            self.newcomers.pop_front();
        }
        self.newcomers.push_back(Newcomer {
            socket,
            over,
            order: self.accepted,
            greeting: Greeting::default(),
            until_ns,
        });
        self.accepted += 1;
    }

    /// Reads cookies as far as they have come.
    fn greet(&mut self) {
        let now_ns = monotonic_ns();
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            let mut bytes = vec![0; newcomer.greeting.missing()];
            match (&newcomer.socket).read(&mut bytes) {
                Ok(length) if length > 0 => match newcomer.greeting.push(&bytes[..length]) {
                    Some(cookie) => self.admit(newcomer.socket, newcomer.over, newcomer.order, cookie),
                    None => self.newcomers.push_back(newcomer),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && now_ns < newcomer.until_ns => {
                    self.newcomers.push_back(newcomer);
                }
                // It ended, failed, or took too long.
                _ => {}
            }
        }
    }

    /// A connection that has said its cookie: a stream of a test, or a new test.
    fn admit(&mut self, socket: Socket, over: Protocol, order: u64, cookie: Cookie) {
        if let Some(session) = self.sessions.iter().find(|session| session.cookie == cookie) {
            if session.expects == Some(over) {
                session.tell(ToSession::Stream(socket, order));
            } else {
                deny(&socket);
            }
            return;
        }
        // Tests begin with a control connection, which is one of TCP.
        if over != Protocol::Tcp {
            deny(&socket);
            return;
        }
        let full = if self.one_at_a_time() { 1 } else { MOST_SESSIONS };
        if self.sessions.len() >= full {
            deny(&socket);
            return;
        }
        if let Err(trouble) = self.begin(socket, cookie) {
            self.console.error(&format!("error - {trouble}"));
        }
    }

    fn begin(&mut self, control: Socket, cookie: Cookie) -> Result<(), TestError> {
        control.set_nonblocking(false).or_code(Code::ACCEPT)?;
        // One that reads nothing cannot hold its thread for long.
        control.set_write_timeout(Some(Duration::from_secs(30))).or_code(Code::ACCEPT)?;
        let network = NetworkSettings {
            keep_alive: self.settings.network.keep_alive.or(Some(KEEP_ALIVE)),
            ..self.settings.network.clone()
        };
        control_options(&control, &network)?;
        let peer = control.peer_addr().or_code(Code::ACCEPT)?.as_socket().ok_or(Code::ACCEPT)?;
        let (orders, from_server) = channel();
        let bell = EventFd::new().or_code(Code::ACCEPT)?;
        let id = self.next_id;
        self.next_id += 1;
        let parts = SessionParts {
            id,
            settings: self.settings.clone(),
            authorizer: self.authorizer.clone(),
            console: self.console.clone(),
            cancel: self.cancel.clone(),
            control,
            peer,
            cookie,
            orders: from_server,
            bell: bell.clone(),
            tell: self.tell.clone(),
            server_bell: self.bell.clone(),
            labels: self.labels.clone(),
        };
        let thread = std::thread::Builder::new().name("test".into()).spawn(move || session::run(parts));
        let thread = thread.or_code(Code::ACCEPT)?;
        let home = home(peer);
        let handle = SessionHandle {
            id,
            cookie,
            home,
            orders,
            bell,
            thread,
            expects: None,
            has_turn: false,
            opened: Vec::new(),
        };
        self.sessions.push(handle);
        Ok(())
    }

    fn hear_all(&mut self) {
        while let Ok(message) = self.told.try_recv() {
            self.hear(message);
        }
    }

    /// What a session says.
    fn hear(&mut self, message: FromSession) {
        match message {
            FromSession::Expects(id, protocol) => {
                if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
                    session.expects = Some(protocol);
                }
            }
            FromSession::Complete(id) => {
                if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
                    (session.expects, session.has_turn) = (None, false);
                }
            }
            FromSession::Over(id, counts) => {
                if let Some(at) = self.sessions.iter().position(|session| session.id == id) {
                    let _ = self.sessions.remove(at).thread.join();
                }
                self.idle_since_ns = monotonic_ns();
                if self.settings.server.one_off && counts {
                    self.is_done = true;
                } else {
                    self.announce();
                }
            }
        }
        self.give_turns();
        self.open_for_associations();
    }

    /// Has a port for associations while a session waits for them.
    fn open_for_associations(&mut self) {
        let expecting = |session: &SessionHandle| session.expects == Some(Protocol::Sctp);
        if !self.sessions.iter().any(expecting) {
            self.associations = None;
            return;
        }
        let opened = match self.associations.take() {
            Some(socket) => Ok(socket),
            None => listen(&self.settings.network, Protocol::Sctp)
                .and_then(|socket| socket.set_nonblocking(true).or_code(Code::STREAM_LISTEN).map(|()| socket)),
        };
        for session in self.sessions.iter_mut().filter(|session| expecting(session)) {
            match &opened {
                Ok(_) if session.has_turn => {}
                Ok(_) => {
                    session.has_turn = true;
                    session.tell(ToSession::Turn);
                }
                Err(trouble) => {
                    session.expects = None;
                    session.tell(ToSession::NoPort(trouble.clone()));
                }
            }
        }
        self.associations = opened.ok();
    }

    /// Lets each session that opens streams over UDP have its turn: words say nothing but where they come from, so that two
    /// tests of one address open theirs one after the other. The port is open while any does.
    fn give_turns(&mut self) {
        if !self.sessions.iter().any(SessionHandle::takes_words) {
            self.words = None;
            return;
        }
        if self.words.is_none() {
            let opened = listen(&self.settings.network, Protocol::Udp)
                .and_then(|socket| socket.set_nonblocking(true).or_code(Code::STREAM_LISTEN).map(|()| socket));
            match opened {
                Ok(socket) => self.words = Some(socket.into()),
                Err(trouble) => {
                    for session in self.sessions.iter_mut().filter(|session| session.takes_words()) {
                        session.expects = None;
                        session.tell(ToSession::NoPort(trouble.clone()));
                    }
                    return;
                }
            }
        }
        for at in 0..self.sessions.len() {
            let home = self.sessions[at].home;
            let taken =
                self.sessions.iter().any(|session| session.takes_words() && session.has_turn && session.home == home);
            let session = &mut self.sessions[at];
            if session.takes_words() && !taken {
                session.has_turn = true;
                session.tell(ToSession::Turn);
            }
        }
    }

    fn read_words(&mut self) {
        let Some(listener) = &self.words else { return };
        let mut waiting = received(listener);
        while let Some((word, from)) = waiting.pop_front() {
            let is_its =
                |session: &&mut SessionHandle| session.has_turn && session.home == home(from) && session.takes_words();
            let Some(session) = self.sessions.iter_mut().find(is_its) else { continue };
            // The same word again, which came before its stream had a socket of its own.
            if session.opened.contains(&from) {
                let _ = listener.send_to(&words::reply_to(&word), from);
                continue;
            }
            match stream_to(listener, from) {
                Ok(socket) => {
                    // What came to it before it was connected is of others, or the same word again.
                    let others = received(&socket).into_iter().filter(|(_, other)| *other != from);
                    waiting.extend(others);
                    session.opened.push(from);
                    session.tell(ToSession::Datagrams(socket.into(), word));
                }
                Err(error) => {
                    self.console.error(&format!("error - {}", TestError::system(Code::STREAM_ACCEPT, &error)));
                }
            }
        }
    }
}

/// The words that have come to a socket, each with where it comes from. Everything else is dropped.
fn received(socket: &UdpSocket) -> VecDeque<([u8; 4], SocketAddr)> {
    let mut all = VecDeque::new();
    // What has more bytes than a word is none.
    let mut buffer = [0; 5];
    // What comes faster than it is read has its turn after the others'.
    for _ in 0..MOST_GREETINGS {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { break };
        if let Ok(word) = <[u8; 4]>::try_from(&buffer[..length])
            && words::is_connect(&word)
        {
            all.push_back((word, from));
        }
    }
    all
}

/// A socket at the listener's address that is connected to `peer`.
fn stream_to(listener: &UdpSocket, peer: SocketAddr) -> io::Result<UdpSocket> {
    let listener = SockRef::from(listener);
    let at = listener.local_addr()?;
    let socket = Socket::new(Domain::from(i32::from(at.family())), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(listener.only_v6()?)?;
    }
    if let Some(device) = listener.device()? {
        socket.bind_device(Some(&device))?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at)?;
    socket.connect(&SockAddr::from(peer))?;
    Ok(socket.into())
}

fn deny(socket: &Socket) {
    // It need not be read: a client that does not hear it sees the connection end.
    let _ = socket.set_nonblocking(true);
    let _ = (&*socket).write(&[State::AccessDenied.byte()]);
}
