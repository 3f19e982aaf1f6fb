//! The server: one thread, one epoll(7), many clients.
//!
//! Every buffer has a bound: what a client sends is read in pieces and kept up to one line, and a client that does not
//! take its answers is not read from, then dropped.

mod answerer;
mod client;
mod listen;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rig_facts::record::Environment;
use rig_load::driver::{Cancel, Process};
use rig_load::exchange::PathMarks;
use rig_load::plan::WorkerPlan;
use rig_load::protocol::Order;
use rig_stats::units::counted;
use rig_sys::clock::{monotonic_after, monotonic_ns};
use rig_sys::process::{die_with_parent, in_own_group, raise_file_limit};
use rig_sys::socket::{NamedAddress, ZonedAddress};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use self::answerer::Answerer;
use self::client::{Client, ClientFd};
pub use self::listen::{Family, ListenScope, listen};

use super::limits::{Limits, same_client};
use super::machine::Meter;
use super::seal::{Key, Nonce};
use super::server_session::{Action, ServerSession};
use super::wire::{self, Reply};

/// What belongs to no client, among the numbers that epoll hands back.
const STOP: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - 16;

/// Connections accepted in one turn, so that clients that are connected are served in between.
const ACCEPTS: usize = 64;
/// How long no new client is accepted after the system has run out of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Between two looks at workers that were told to stop and have not ended yet.
const REAP: Duration = Duration::from_millis(20);
/// Lines of the log in one second; a flood of clients must not become one of lines.
const LOG_LINES: u32 = 20;

/// A server and all its clients.
#[derive(Debug)]
pub struct Server {
    epoll: rustix::fd::OwnedFd,
    listeners: Vec<TcpListener>,
    /// Until when no new client is accepted.
    closed_until_ns: Option<u64>,
    limits: Arc<Limits>,
    environment: Arc<Environment>,
    meter: Meter,
    /// What clients have to have; `None`: nothing.
    key: Option<Key>,
    /// The program whose `worker` subcommand is one end of a load: netrig itself.
    program: PathBuf,
    clients: HashMap<u64, Client>,
    next_client: u64,
    /// Workers that were told to stop, with the client's address; until they have ended they count as tests.
    ending: Vec<(ZonedAddress, Process)>,
    stop: Cancel,
    log: Log,
}

impl Server {
    /// A server on `listeners`, which are in non-blocking mode, for clients that have the `key`. `stop` makes it finish the tests that run, then end.
    ///
    /// # Errors
    /// When the system has no file descriptor or no /proc left.
    pub fn new(
        listeners: Vec<TcpListener>,
        limits: Limits,
        environment: Environment,
        program: PathBuf,
        key: Option<Key>,
        stop: Cancel,
    ) -> Result<Self> {
        raise_file_limit();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("create an epoll")?;
        let mut meter = Meter::new()?;
        let environment = Environment { cpu_time: Some(meter.accounting()), ..environment };
        let mut server = Self {
            epoll,
            listeners,
            closed_until_ns: Some(0),
            limits: Arc::new(limits),
            environment: Arc::new(environment),
            meter,
            key,
            program,
            clients: HashMap::new(),
            next_client: 0,
            ending: Vec::new(),
            stop,
            log: Log::default(),
        };
        server.watch(&server.stop, STOP, epoll::EventFlags::IN)?;
        server.open_doors()?;
        Ok(server)
    }

    fn watch(&self, fd: impl AsFd, number: u64, flags: epoll::EventFlags) -> Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(number), flags).context("watch a file descriptor")
    }

    fn open_doors(&mut self) -> Result<()> {
        if self.closed_until_ns.take().is_some() {
            for (n, listener) in self.listeners.iter().enumerate() {
                self.watch(listener, LISTENERS + n as u64, epoll::EventFlags::IN)?;
            }
        }
        Ok(())
    }

    fn close_doors(&mut self, until_ns: u64) {
        if self.closed_until_ns.replace(until_ns).is_none() {
            for listener in &self.listeners {
                let _ = epoll::delete(&self.epoll, listener);
            }
        }
    }

    /// Serves until it is told to stop and the last test is done.
    ///
    /// # Errors
    /// When the system does not let it wait for its clients any more. What goes wrong with one client ends that client.
    pub fn run(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            let stopping = self.stop.is_cancelled();
            if stopping {
                self.drain();
                if self.clients.is_empty() && self.ending.is_empty() {
                    return Ok(());
                }
            }
            let timeout = self.next_deadline_ns().map(until);
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for clients"),
            }
            for event in events.drain(..) {
                let (number, flags) = (event.data.u64(), event.flags);
                match number {
                    STOP => {}
                    number if number >= LISTENERS => self.accept((number - LISTENERS) as usize),
                    number => self.client_is_ready(number, flags),
                }
            }
            self.time_passes()?;
        }
    }

    /// Accepts no new clients, and dismisses those without a running test.
    fn drain(&mut self) {
        if !self.listeners.is_empty() {
            match self.clients.len() {
                0 => self.log.say(&"stopping"),
                n => self.log.say(&format_args!(
                    "stopping: {} connected; tests that run are finished, a second signal ends them",
                    counted(n, "client is", "clients are")
                )),
            }
            self.listeners.clear();
            // Rung for good: it would wake the server without end.
            let _ = epoll::delete(&self.epoll, &self.stop);
        }
        let ids: Vec<u64> = self.clients.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.clients.get_mut(&id).and_then(|client| client.session.as_mut()) {
                session.shut_down();
                self.carry_out(id);
            }
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let reap = (!self.ending.is_empty()).then(|| monotonic_after(REAP));
        let doors = self.closed_until_ns.filter(|_| !self.listeners.is_empty());
        self.clients.values().filter_map(Client::deadline_ns).chain(reap).chain(doors).min()
    }

    fn time_passes(&mut self) -> Result<()> {
        let now_ns = monotonic_ns();
        self.ending.retain_mut(|(_, worker)| !worker.stop());
        if self.closed_until_ns.is_some_and(|until| now_ns >= until) {
            self.open_doors()?;
        }
        let due = |client: &Client| client.deadline_ns().is_some_and(|deadline| deadline <= now_ns);
        let ids: Vec<u64> = self.clients.iter().filter(|(_, client)| due(client)).map(|(&id, _)| id).collect();
        for id in ids {
            if let Some(client) = self.clients.get_mut(&id) {
                if client.is_stuck(now_ns) {
                    let peer = NamedAddress::from(client.peer);
                    self.log.say(&format_args!("{peer}: gone, or takes no answers"));
                    self.remove(id);
                } else if let Some(session) = &mut client.session {
                    session.time_is(now_ns);
                    self.carry_out(id);
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            match listener.accept() {
                Ok((socket, peer)) => self.welcome(socket, peer),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::WOULDBLOCK) => return,
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        self.log.say(&format_args!("cannot accept: {error}"));
                        return self.close_doors(monotonic_after(ACCEPT_PAUSE));
                    }
                    // What went wrong with one connection before it was accepted (accept(2)).
                    _ => {}
                },
            }
        }
    }

    fn welcome(&mut self, socket: std::net::TcpStream, peer: SocketAddr) {
        let peer = ZonedAddress::from(peer).to_canonical().at(peer.port());
        let same = same_client(peer.into());
        let of_address = self.clients.values().filter(|client| same_client(client.peer.into()) == same).count();
        let admitted = self.limits.admit_client(count(self.clients.len()), count(of_address));
        let now_ns = monotonic_ns();
        let client = admitted.map_err(|refusal| refusal.to_string()).and_then(|()| {
            let local = client::prepare(&socket).map_err(|error| error.to_string())?;
            let session = ServerSession::new(peer, local, self.limits.clone(), self.environment.clone(), now_ns);
            let Some(key) = &self.key else { return Ok(session) };
            let nonce = Nonce::draw().map_err(|error| format!("draw a random number: {error}"))?;
            Ok(session.with_key(key.clone(), nonce))
        });
        match client {
            Ok(session) => {
                let id = self.next_client;
                // Four numbers for each client, and no number twice: what was waited for cannot be mistaken.
                self.next_client += 1;
                if self.watch(&socket, ClientFd::Socket.number(id), epoll::EventFlags::IN).is_ok() {
                    self.clients.insert(id, Client::new(socket, peer, session));
                    self.carry_out(id);
                }
            }
            Err(why) => {
                self.log.say(&format_args!("{}: refused: {why}", NamedAddress::from(peer)));
                // It has said nothing yet, so that nothing is lost by closing; and it fits into an empty buffer.
                let _ = socket.set_nonblocking(true);
                let _ = rustix::io::write(&socket, &wire::line(&Reply::Refused { why }));
            }
        }
    }

    fn client_is_ready(&mut self, number: u64, flags: epoll::EventFlags) {
        let (id, part) = ClientFd::of(number);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let now_ns = monotonic_ns();
        let alive = match part {
            ClientFd::Socket => client.socket_is_ready(flags, now_ns),
            ClientFd::Events => {
                client.worker_has_events(now_ns);
                true
            }
            ClientFd::Errors => {
                client.worker_has_errors();
                true
            }
        };
        if alive {
            return self.carry_out(id);
        }
        if client.worker.is_some() {
            let peer = NamedAddress::from(client.peer);
            self.log.say(&format_args!("{peer}: left during its test"));
        }
        self.remove(id);
    }

    /// Does what a client's session wants done.
    fn carry_out(&mut self, id: u64) {
        while let Some(client) = self.clients.get_mut(&id) {
            let Some(session) = &mut client.session else { break };
            let Some(action) = session.next_action() else { break };
            match action {
                Action::Reply(reply) => {
                    let line = session.line(&reply);
                    self.log.reply(client.peer, &reply);
                    client.say(&line);
                }
                Action::Count => match self.meter.read(client.counted.as_ref().and_then(|counted| counted.account)) {
                    Ok(reading) => session.counted(reading),
                    Err(error) => session.worker_ended(Err(error.to_string()), monotonic_ns()),
                },
                Action::Order(order) => {
                    if let Err(error) = client.order(&order) {
                        self.lost(id, &error);
                    }
                }
                Action::Answer(address, marks) => self.answer(id, address, marks),
                Action::EndAnswering => client.answering = None,
                Action::Start(plan) => self.start(id, *plan),
                Action::Close => {
                    client.close(monotonic_ns());
                    self.bury_worker(id);
                }
            }
        }
        self.settle(id);
    }

    /// Sends what there is to send, and watches for what may come next.
    fn settle(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !client.flush(monotonic_ns()) {
            return self.remove(id);
        }
        if let Some(flags) = client.interest_changed() {
            let number = epoll::EventData::new_u64(ClientFd::Socket.number(id));
            if epoll::modify(&self.epoll, &client.socket, number, flags).is_err() {
                self.remove(id);
            }
        }
    }

    fn lost(&mut self, id: u64, why: &dyn std::fmt::Display) {
        if let Some(session) = self.clients.get_mut(&id).and_then(|client| client.session.as_mut()) {
            session.worker_ended(Err(why.to_string()), monotonic_ns());
        }
    }

    /// Whether there is room for one more test, of a client with that address; else why not.
    fn has_room(&self, peer: SocketAddr) -> Result<(), String> {
        let same = same_client(peer.into());
        let running = || {
            let tests = self.clients.values().filter(|client| client.takes_room()).map(|client| client.peer.into());
            tests.chain(self.ending.iter().map(|(address, _)| *address))
        };
        let of_address = running().filter(|address| same_client(*address) == same).count();
        self.limits.admit_test(count(running().count()), count(of_address)).map_err(|refusal| refusal.to_string())
    }

    fn answer(&mut self, id: u64, address: SocketAddr, marks: PathMarks) {
        let Some(peer) = self.clients.get(&id).map(|client| client.peer) else { return };
        let started = self.has_room(peer).and_then(|()| {
            Answerer::start(address, peer.ip(), marks).map_err(|error| format!("exchange times at {address}: {error}"))
        });
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(session) = &mut client.session else { return };
        match started {
            Ok((answerer, port)) => {
                client.answering = Some(answerer);
                session.answering(port);
            }
            Err(why) => session.not_started(&why),
        }
    }

    fn start(&mut self, id: u64, plan: WorkerPlan) {
        let Some(peer) = self.clients.get(&id).map(|client| client.peer) else { return };
        let started = self
            .has_room(peer)
            .and_then(|()| self.start_worker(id, &plan).map_err(|error| format!("start a worker: {error}")));
        let Some(client) = self.clients.get_mut(&id) else { return };
        match started {
            Ok((worker, process)) => {
                if let Some(former) = client.counted.replace(self.meter.watch(process)) {
                    self.meter.forget(&former);
                }
                let peer = NamedAddress::from(peer);
                self.log.say(&format_args!("{peer}: {} for {:?}", plan.load.name(), plan.phases.total()));
                client.worker = Some(worker);
                if let Err(error) = client.order(&Order::Plan(Box::new(plan))) {
                    self.lost(id, &error);
                }
            }
            Err(why) => {
                if let Some(session) = &mut client.session {
                    session.not_started(&why);
                }
            }
        }
    }

    fn start_worker(&self, id: u64, plan: &WorkerPlan) -> io::Result<(Process, u32)> {
        let mut command = Command::new(&self.program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = die_with_parent(in_own_group(&mut command)).spawn()?;
        let process = child.id();
        let worker = Process::new(plan.name.clone(), child.try_into()?);
        let parts = [
            (worker.stdout().map(AsFd::as_fd), ClientFd::Events),
            (worker.stderr().map(AsFd::as_fd), ClientFd::Errors),
        ];
        for (fd, part) in parts {
            let Some(fd) = fd else { continue };
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(part.number(id)), epoll::EventFlags::IN)?;
        }
        Ok((worker, process))
    }

    fn bury_worker(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if let Some(counted) = client.counted.take() {
            self.meter.forget(&counted);
        }
        let Some(mut worker) = client.worker.take() else { return };
        for fd in [worker.stdout().map(AsFd::as_fd), worker.stderr().map(AsFd::as_fd)].into_iter().flatten() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        if !worker.stop() {
            self.ending.push((client.peer.into(), worker));
        }
    }

    fn remove(&mut self, id: u64) {
        self.bury_worker(id);
        self.clients.remove(&id);
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// How long to wait until `deadline_ns`. The kernel may be late by a thousandth of a long time-out, so that most of it is
/// waited first and the rest then.
pub(super) fn until(deadline_ns: u64) -> Timespec {
    let left = deadline_ns.saturating_sub(monotonic_ns());
    let wait = if left > 20_000_000 { left - left / 64 } else { left };
    Timespec { tv_sec: (wait / 1_000_000_000) as _, tv_nsec: (wait % 1_000_000_000) as _ }
}

/// Logs events to standard error, but no more lines per second than a person can read.
#[derive(Debug, Default)]
struct Log {
    second: u64,
    lines: u32,
    silent: u64,
}

impl Log {
    fn reply(&mut self, peer: SocketAddr, reply: &Reply) {
        let peer = NamedAddress::from(peer);
        match reply {
            Reply::Refused { why } => self.say(&format_args!("{peer}: refused: {}", wire::words(why))),
            Reply::Failed { why } => self.say(&format_args!("{peer}: failed: {}", wire::words(why))),
            Reply::Done(_) => self.say(&format_args!("{peer}: done")),
            _ => {}
        }
    }

    fn say(&mut self, what: &dyn std::fmt::Display) {
        let second = monotonic_ns() / 1_000_000_000;
        if second != self.second {
            if self.silent > 0 {
                rig_cli::streams::note(format_args!("({} more messages)", self.silent));
            }
            *self = Self { second, ..Self::default() };
        }
        self.lines += 1;
        if self.lines <= LOG_LINES {
            rig_cli::streams::note(what);
        } else {
            self.silent += 1;
        }
    }
}
