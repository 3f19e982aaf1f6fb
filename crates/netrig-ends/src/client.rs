//! The client: one control connection, one worker, one thread that waits for both.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rig_cli::exit::StoppedByUser;
use rig_facts::record::Environment;
use rig_load::driver::{Cancel, Process};
use rig_load::exchange::{PathMarks, PathOffset, ask_over};
use rig_load::plan::WorkerPlan;
use rig_load::record::Sample;
use rig_sys::clock::{self, monotonic_after, monotonic_ns};
use rig_sys::process::{die_with_parent, in_own_group};
use rig_sys::socket::{AddressError, NamedAddress, SourceBinding, ZonedAddress, resolve};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::client_session::{Action, ClientSession, Test, TestRecords};
use super::machine::{Meter, WorkerAccount};
use super::seal::{Key, Nonce};
use super::server::{Family, until};

/// For each address of the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take nothing of what it was sent. The kernel gives up the connection then, too.
const STALL: Duration = Duration::from_secs(15);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Bytes read from the server at once.
const PIECE: usize = 64 << 10;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// A name or an address.
    pub host: String,
    pub port: u16,
    pub family: Family,
    /// What the server has to have; `None`: nothing.
    pub key: Option<Key>,
}

impl Target {
    /// Its addresses, of the family of `source` where there is one.
    fn addresses(&self, source: Option<ZonedAddress>, cancel: &Cancel) -> Result<Vec<SocketAddr>> {
        let Self { host, port, family, .. } = self;
        let name = host.clone();
        let all = match cancel.unless_cancelled(move || resolve(&name))?.ok_or(StoppedByUser)? {
            Ok(all) => all,
            Err(error @ AddressError::Unknown { .. }) => {
                let with_port = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
                let hint = with_port.map(|(host, port)| format!(": write --client {host} --port {port}"));
                bail!("{error}{}", hint.unwrap_or_default());
            }
            Err(error) => bail!("--client {host}: {error}"),
        };
        let of_family = all.into_iter().filter(|address| family.has(address.ip()));
        let wanted: Vec<_> = of_family.map(|address| address.at(*port)).collect();
        if wanted.is_empty() {
            let (kind, other) = if *family == Family::V4 { ("IPv4", "-6") } else { ("IPv6", "-4") };
            bail!("'{host}' has no {kind} address: try {other}, or neither");
        }
        let Some(source) = source else { return Ok(wanted) };
        let of_source: Vec<_> = wanted.into_iter().filter(|to| to.is_ipv6() == source.is_ipv6()).collect();
        if of_source.is_empty() {
            let kind = if source.is_ipv6() { "IPv6" } else { "IPv4" };
            bail!("'{host}' has no {kind} address that --source {source} could send to");
        }
        Ok(of_source)
    }
}

/// Told of what happens.
pub trait Watch {
    /// The server at `address` is there; this is its machine.
    ///
    /// # Errors
    /// What it cannot go on without; it ends the test.
    fn connected(&mut self, address: SocketAddr, machine: &Environment) -> Result<()>;
    /// An interim sample of the end of that name.
    fn interim(&mut self, end: &'static str, sample: &Sample);
    /// A trial is done.
    ///
    /// # Errors
    /// As [`Self::connected`].
    fn done(&mut self, ends: &TestRecords) -> Result<()>;
}

/// Runs a test `trials` times between this machine and a server, which is only greeted for 0.
///
/// # Errors
/// [`StoppedByUser`] when cancelled; otherwise what this end or the server's could not do.
pub fn run(
    target: &Target,
    test: &Test,
    trials: u32,
    program: &Path,
    cancel: &Cancel,
    watch: &mut dyn Watch,
) -> Result<()> {
    let socket = connect(target, &test.source, cancel)?;
    let server = socket.peer_addr().context("find the server's address")?;
    // The counters are to be read at the window's edges, also where the load fills every CPU.
    clock::be_punctual();
    let mut session = ClientSession::new(server, test.clone(), monotonic_ns());
    if let Some(key) = &target.key {
        session = session.with_key(key.clone(), Nonce::draw().context("draw a random number")?);
    }
    let (program, cancel) = (program.to_owned(), cancel.clone());
    let meter = Meter::new()?;
    let source = test.source.clone();
    let (server_listens, worker, watched) = (true, None, None);
    let mut link = Link { socket, server, source, server_listens, session, worker, watched, meter, program, cancel };
    let mut done = 0;
    loop {
        match link.carry_out(watch)? {
            Some(ClientStage::Greeted) => {}
            Some(ClientStage::Done(ends)) => {
                watch.done(&ends)?;
                done += 1;
            }
            None => {
                link.wait()?;
                continue;
            }
        }
        if done == trials {
            return Ok(());
        }
        link.session.begin(monotonic_ns());
    }
}

/// Connects to the first of the target's addresses that answers. The server takes the load from the address that it sees here, so this
/// connection is bound as those of the load are.
fn connect(target: &Target, source: &SourceBinding, cancel: &Cancel) -> Result<TcpStream> {
    let mut failures = Vec::new();
    for address in target.addresses(source.address, cancel)? {
        let name = NamedAddress::from(address);
        match attempt(address, source, cancel) {
            Ok(Some(socket)) => return Ok(socket),
            Ok(None) => return Err(StoppedByUser.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                failures.push(format!("{name}: {error}: nothing listens there; start `netrig serve` on that machine"));
            }
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    bail!("cannot connect to {}: {}", target.host, failures.join("; "))
}

/// `None` when cancelled.
fn attempt(address: SocketAddr, source: &SourceBinding, cancel: &Cancel) -> io::Result<Option<TcpStream>> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    source.bind(&socket, address).map_err(io::Error::other)?;
    match socket.connect(&address.into()) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {
            let deadline_ns = monotonic_after(CONNECT_TIMEOUT);
            loop {
                let mut fds = [PollFd::new(&socket, PollFlags::OUT), PollFd::new(cancel, PollFlags::IN)];
                match poll(&mut fds, Some(&until(deadline_ns))) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if !fds[1].revents().is_empty() {
                    return Ok(None);
                }
                if !fds[0].revents().is_empty() {
                    break;
                }
                if monotonic_ns() >= deadline_ns {
                    return Err(io::Error::other(format!("no answer within {CONNECT_TIMEOUT:?}")));
                }
            }
            if let Some(error) = socket.take_error()? {
                return Err(error);
            }
        }
        result => result?,
    }
    socket.set_nonblocking(false)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_write_timeout(Some(STALL))?;
    let reference = SockRef::from(&socket);
    reference.set_tcp_user_timeout(Some(STALL))?;
    reference.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3))?;
    Ok(Some(socket.into()))
}

/// How far the clock of who answers there is from this one, by datagrams on the way of those of the load.
fn exchange(
    to: SocketAddr,
    marks: PathMarks,
    source: &SourceBinding,
    cancel: &Cancel,
) -> io::Result<Option<PathOffset>> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    source.bind(&socket, to).map_err(io::Error::other)?;
    let socket = UdpSocket::from(socket);
    marks.apply(&socket)?;
    socket.connect(to)?;
    ask_over(socket, Some(cancel.as_fd()))
}

/// Where the conversation is when a trial can begin.
enum ClientStage {
    Greeted,
    Done(Box<TestRecords>),
}

/// The control connection and what belongs to it.
struct Link {
    socket: TcpStream,
    server: SocketAddr,
    source: SourceBinding,
    /// Until the server closes the connection.
    server_listens: bool,
    session: ClientSession,
    worker: Option<Process>,
    /// The last worker's CPU time.
    watched: Option<WorkerAccount>,
    meter: Meter,
    program: PathBuf,
    cancel: Cancel,
}

impl Link {
    /// Does what the conversation wants done, up to where a trial can begin.
    fn carry_out(&mut self, watch: &mut dyn Watch) -> Result<Option<ClientStage>> {
        while let Some(action) = self.session.next_action() {
            match action {
                Action::Send(request) => {
                    let line = self.session.line(&request);
                    if let Err(error) = self.socket.write_all(&line) {
                        // What the server said before it went away may be waiting to be read.
                        self.server_is_gone(&error);
                    }
                }
                Action::Start(plan) => match self.start(&plan) {
                    Ok(()) => self.order(&rig_load::protocol::Order::Plan(plan)),
                    Err(error) => self.session.not_started(&error),
                },
                Action::Order(order) => self.order(&order),
                Action::Exchange(to, marks) => {
                    // What is not to be had costs no trial: the questions over this connection hold then.
                    let path = exchange(to, marks, &self.source, &self.cancel).ok().flatten();
                    if self.cancel.is_cancelled() {
                        return Err(StoppedByUser.into());
                    }
                    self.session.exchanged(path, monotonic_ns());
                }
                Action::Count => {
                    let place = self.watched.as_ref().and_then(|counted| counted.account);
                    self.session.counted(self.meter.read(place)?, monotonic_ns());
                }
                Action::Show(end, sample) => watch.interim(end, &sample),
                Action::Ready(machine) => {
                    watch.connected(self.server, &machine)?;
                    return Ok(Some(ClientStage::Greeted));
                }
                Action::Done(ends) => return Ok(Some(ClientStage::Done(ends))),
                Action::Fail(why) => return Err(anyhow!(why)),
            }
        }
        Ok(None)
    }

    fn start(&mut self, plan: &WorkerPlan) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = die_with_parent(in_own_group(&mut command)).spawn()?;
        if let Some(former) = self.watched.replace(self.meter.watch(child.id())) {
            self.meter.forget(&former);
        }
        self.worker = Some(Process::new(plan.name.clone(), child.try_into()?));
        Ok(())
    }

    fn order(&mut self, order: &rig_load::protocol::Order) {
        if let Some(worker) = &mut self.worker
            && let Err(error) = worker.order(order)
        {
            self.session.worker_ended(Err(error.to_string()), monotonic_ns());
        }
    }

    /// Waits for anything to happen, and tells it to the session.
    fn wait(&mut self) -> Result<()> {
        let timeout = self.session.deadline_ns().map(until);
        let mut fds = vec![PollFd::new(&self.cancel, PollFlags::IN)];
        fds.extend(self.server_listens.then(|| PollFd::new(&self.socket, PollFlags::IN)));
        let stdout = self.worker.as_ref().and_then(Process::stdout).map(AsFd::as_fd);
        let stderr = self.worker.as_ref().and_then(Process::stderr).map(AsFd::as_fd);
        fds.extend(stdout.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(stderr.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the server"),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        let cancelled = next();
        let server = self.server_listens && next();
        let events = stdout.is_some() && next();
        let errors = stderr.is_some() && next();
        if cancelled {
            return Err(StoppedByUser.into());
        }
        if errors && let Some(worker) = &mut self.worker {
            worker.read_stderr();
        }
        if events {
            self.worker_has_events();
        }
        if server {
            self.server_has_words();
        }
        self.session.time_is(monotonic_ns());
        Ok(())
    }

    fn worker_has_events(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let now_ns = monotonic_ns();
        match worker.events() {
            Ok(Some(events)) => events.into_iter().for_each(|event| self.session.worker_said(event, now_ns)),
            Ok(None) => {
                let how = worker.outcome();
                self.worker = None;
                self.session.worker_ended(how, now_ns);
            }
            Err(error) => self.session.worker_ended(Err(error.to_string()), now_ns),
        }
    }

    fn server_has_words(&mut self) {
        let mut piece = [0u8; PIECE];
        match self.socket.read(&mut piece) {
            Ok(0) => {
                self.server_listens = false;
                self.session.closed(&"end of file");
            }
            Ok(n) => self.session.received(&piece[..n], monotonic_ns()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                self.server_listens = false;
                self.session.closed(&error);
            }
        }
    }

    fn server_is_gone(&mut self, error: &io::Error) {
        let mut piece = [0u8; PIECE];
        let _ = self.socket.set_nonblocking(true);
        while let Ok(n @ 1..) = self.socket.read(&mut piece) {
            self.session.received(&piece[..n], monotonic_ns());
        }
        self.session.closed(error);
    }
}
