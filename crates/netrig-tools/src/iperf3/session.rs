//! One test of a server, on a thread of its own.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use rig_load::driver::Cancel;
use rig_sys::clock::monotonic_ns;
use rig_sys::cpu;
use rig_sys::socket::{self, Buffer};
use rustix::event::{PollFd, PollFlags};
use socket2::Socket;

use super::authentication::{Authorizer, NOT_SHOWN};
use super::console::Console;
use super::control::{ServerEvent, ServerSession};
use super::error::{Code, TestError, WithCode};
use super::figures::{Summary, stream_label};
use super::load::{CpuUsage, Load, TestSocket, is_worth_showing};
use super::report::Report;
use super::settings::{Flow, Protocol, Settings, TestSettings};
use super::sockets::{datagram_options, ends, host_text, stream_options};
use super::wait::{EventFd, SECOND_NS, wait};
use super::wire::{Cookie, Results, State, error_message, framed, parameters, results, words};

/// For a client's parameters, as the original has it for what it reads of a control connection.
const PARAMETERS_NS: u64 = 10 * SECOND_NS;
/// How long a client may take for each of its streams, its results and its farewell.
const PATIENCE_NS: u64 = 30 * SECOND_NS;
/// How much longer than agreed a test may take: ten changes of state at round trips of four seconds, as the original has it.
const GRACE: u64 = 40;

/// What a session is told.
#[derive(Debug)]
pub enum ToSession {
    /// A connection that began with the session's cookie, and its place among all that were accepted.
    Stream(Socket, u64),
    /// A socket that is connected to the sender of the word that opens a stream.
    Datagrams(Socket, [u8; 4]),
    /// Words from the client's address are this session's now.
    Turn,
    /// There is no port to open its streams at.
    NoPort(TestError),
}

/// What a session tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromSession {
    /// It takes streams from now on; over UDP and SCTP it has to have its turn first.
    Expects(u64, Protocol),
    /// It has all its streams.
    Complete(u64),
    /// Its thread ends; whether that counts as the one test of a server that makes one.
    Over(u64, bool),
}

/// The streams of all tests.
#[derive(Debug, Default)]
pub struct StreamNumbers {
    /// Numbers in brackets that are in use.
    labels: Vec<i32>,
    /// Streams that tests have asked for.
    asked: u32,
}

pub type Labels = Arc<Mutex<StreamNumbers>>;

/// Each has a thread.
const MOST_STREAMS_OF_ALL: u32 = 4096;

/// What a session needs.
pub struct SessionParts {
    pub id: u64,
    pub settings: Arc<Settings>,
    pub authorizer: Option<Arc<Authorizer>>,
    pub console: Console,
    pub cancel: Cancel,
    pub control: Socket,
    pub peer: SocketAddr,
    pub cookie: Cookie,
    pub orders: Receiver<ToSession>,
    pub bell: EventFd,
    pub tell: Sender<FromSession>,
    pub server_bell: EventFd,
    pub labels: Labels,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parameters,
    /// Waits for its turn at the port of datagrams, or for the port of associations.
    Turn,
    Streams,
    Running,
    Results,
    Farewell,
}

/// When what is due while the test runs.
#[derive(Debug, Clone)]
struct Schedule {
    every_ns: u64,
    next_ns: u64,
    omit_ns: Option<u64>,
    expires_ns: Option<u64>,
    /// What was moved, and when, for the limit of the rate.
    moved: VecDeque<(u64, u64)>,
    limit_ns: u64,
    /// Bytes that were received, and since when no more were.
    received: (u64, u64),
}

struct Session {
    parts: SessionParts,
    test: TestSettings,
    report: Report,
    session: ServerSession,
    stage: Stage,
    deadline_ns: u64,
    /// When all streams have to be there.
    streams_until_ns: u64,
    /// Connections by their place among all that were accepted, until all are there.
    connections: Vec<(u64, Socket)>,
    sockets: Vec<TestSocket>,
    load: Option<Load>,
    schedule: Option<Schedule>,
    cpu: CpuUsage,
    cpu_percent: [f64; 3],
    congestion: Option<String>,
    place: SessionPlace,
}

/// Why a session ends before its time.
enum Broken {
    /// The client is told.
    Error(TestError),
    /// The client has gone, in these words.
    Gone(&'static str),
    /// The server is stopped.
    Stopped,
}

impl From<TestError> for Broken {
    fn from(trouble: TestError) -> Self {
        Self::Error(trouble)
    }
}

impl From<Code> for Broken {
    fn from(code: Code) -> Self {
        Self::Error(code.into())
    }
}

/// The session's place among those that the server has, given back however its thread ends.
struct SessionPlace {
    id: u64,
    tell: Sender<FromSession>,
    server_bell: EventFd,
    /// Those of all sessions, and those of this one among them.
    labels: Labels,
    own_labels: Vec<i32>,
    asked: u32,
    /// It counts as a test.
    counts: bool,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        labels.labels.retain(|label| !self.own_labels.contains(label));
        labels.asked -= self.asked;
        drop(labels);
        let _ = self.tell.send(FromSession::Over(self.id, self.counts));
        self.server_bell.ring();
    }
}

/// Serves one client to the end.
pub fn run(parts: SessionParts) {
    let place = SessionPlace {
        id: parts.id,
        tell: parts.tell.clone(),
        server_bell: parts.server_bell.clone(),
        labels: parts.labels.clone(),
        own_labels: Vec::new(),
        asked: 0,
        counts: true,
    };
    let report = Report::new(&parts.settings, parts.console.clone(), false);
    let mut session = Session {
        test: TestSettings::default(),
        report,
        session: ServerSession::default(),
        stage: Stage::Parameters,
        deadline_ns: monotonic_ns() + PARAMETERS_NS,
        streams_until_ns: u64::MAX,
        connections: Vec::new(),
        sockets: Vec::new(),
        load: None,
        schedule: None,
        cpu: CpuUsage::begin(),
        cpu_percent: [0.0; 3],
        congestion: None,
        place,
        parts,
    };
    let result = session.serve();
    if let Err(broken) = result {
        session.break_off(broken);
    }
    session.end();
}

impl Session {
    fn serve(&mut self) -> Result<(), Broken> {
        self.say(&[State::ParameterExchange.byte()])?;
        loop {
            let deadline_ns = self.next_deadline();
            let heard = {
                let mut fds = vec![
                    PollFd::new(&self.parts.control, PollFlags::IN),
                    PollFd::new(&self.parts.bell, PollFlags::IN),
                    PollFd::new(&self.parts.cancel, PollFlags::IN),
                ];
                if self.stage == Stage::Streams && self.test.protocol == Protocol::Udp {
                    fds.extend(self.sockets.iter().map(|one| PollFd::new(&one.socket, PollFlags::IN)));
                }
                wait(&mut fds, Some(deadline_ns)).or_code(Code::RECEIVE_MESSAGE)?;
                !fds[0].revents().is_empty()
            };
            if self.parts.cancel.is_cancelled() {
                return Err(Broken::Stopped);
            }
            self.parts.bell.silence();
            while let Ok(order) = self.parts.orders.try_recv() {
                self.obey(order)?;
            }
            self.answer_again();
            if heard && self.listen()? {
                return Ok(());
            }
            self.look()?;
        }
    }

    fn say(&self, bytes: &[u8]) -> Result<(), TestError> {
        (&self.parts.control).write_all(bytes).or_code(Code::SEND_MESSAGE)
    }

    fn tell(&self, message: FromSession) {
        // A server that has gone needs nothing.
        let _ = self.parts.tell.send(message);
        self.parts.server_bell.ring();
    }

    fn stage(&mut self, stage: Stage) {
        (self.stage, self.deadline_ns) = (stage, monotonic_ns() + PATIENCE_NS);
    }

    fn next_deadline(&self) -> u64 {
        let Some(schedule) = self.schedule.as_ref().filter(|_| self.stage == Stage::Running) else {
            return self.deadline_ns;
        };
        let ticks = (schedule.every_ns > 0).then_some(schedule.next_ns);
        let second = monotonic_ns() + SECOND_NS;
        [ticks, schedule.omit_ns, schedule.expires_ns].into_iter().flatten().chain([second]).min().unwrap_or(second)
    }

    /// Takes what the client says. True when it has said farewell.
    fn listen(&mut self) -> Result<bool, Broken> {
        let mut bytes = [0; 16 << 10];
        let gone = Broken::Gone("the client has unexpectedly closed the connection");
        let length = match (&self.parts.control).read(&mut bytes) {
            Ok(0) => return Err(gone),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(gone),
            Err(error) => return Err(TestError::system(Code::RECEIVE_MESSAGE, &error).into()),
        };
        self.session.push(&bytes[..length]);
        while let Some(event) = self.session.next_event()? {
            match event {
                ServerEvent::Parameters(test) => self.take_parameters(*test)?,
                ServerEvent::TestEnd if self.stage == Stage::Running => self.end_of_test()?,
                ServerEvent::TestEnd => return Err(Code::MESSAGE.into()),
                ServerEvent::Results(theirs) => {
                    self.report.debug("get_results", &results(&theirs));
                    // What this end printed is of its own figures alone, as the original's is.
                    let mut own = self.own_results();
                    if self.test.get_server_output {
                        own.server_output = Some(self.report.for_the_client());
                    }
                    self.say(&framed(&results(&own)))?;
                    self.say(&[State::DisplayResults.byte()])?;
                    self.stage(Stage::Farewell);
                }
                ServerEvent::Done => return Ok(true),
                ServerEvent::Terminated => return Err(Broken::Gone("the client has terminated")),
            }
        }
        Ok(false)
    }

    fn take_parameters(&mut self, test: TestSettings) -> Result<(), Broken> {
        self.test = test;
        let token = self.test.auth_token.take();
        self.test.auth_token = token.is_some().then(|| NOT_SHOWN.to_owned());
        self.report.debug("get_parameters", &parameters(&self.test));
        self.authorize(token.as_deref())?;
        if self.test.get_server_output {
            self.report.capture();
        }
        let server = &self.parts.settings.server;
        let asked = self.test.time + self.test.omit;
        if server.max_duration > 0 && (asked > server.max_duration || self.test.time == 0) {
            return Err(Code::MAX_DURATION.into());
        }
        let rates = [self.test.rate, self.test.fq_rate];
        let limit = server.bitrate_limit;
        if limit > 0 && rates.iter().any(|rate| self.test.total_rate(*rate) > limit) {
            return Err(Code::TOTAL_RATE.into());
        }
        {
            let mut numbers = self.parts.labels.lock().unwrap_or_else(PoisonError::into_inner);
            if numbers.asked + self.test.streams() > MOST_STREAMS_OF_ALL {
                return Err(Code::ACCESS_DENIED.into());
            }
            numbers.asked += self.test.streams();
            self.place.asked = self.test.streams();
        }
        if let Some(cpu) = self.test.server_affinity {
            // The threads of the load begin with it.
            cpu::set_affinity(&[cpu]).map_err(|error| TestError::with(Code::AFFINITY, error.to_string()))?;
        }
        let mss = self.parts.control.tcp_mss().unwrap_or(0);
        self.report.connected(&self.test, self.parts.peer, &self.parts.cookie, mss);
        self.tell(FromSession::Expects(self.parts.id, self.test.protocol));
        match self.test.protocol {
            Protocol::Tcp => self.open_for_streams(),
            // There is a port of theirs while a test opens its streams.
            Protocol::Udp | Protocol::Sctp => {
                self.stage(Stage::Turn);
                Ok(())
            }
        }
    }

    /// Where only users may test: whether the client is one.
    fn authorize(&mut self, token: Option<&str>) -> Result<(), Broken> {
        let Some(authorizer) = &self.parts.authorizer else { return Ok(()) };
        match authorizer.check(token, Timestamp::now()) {
            Ok(username) => self.report.verbose(&format!("Authentication succeeded for user '{username}'\n")),
            Err(refusal) => {
                // A server that makes one test goes on waiting for it.
                self.place.counts = false;
                let host = host_text(self.parts.peer);
                self.report.note(&format!("Authentication failed for the client at {host}: {refusal}"));
                return Err(Code::AUTHORIZATION.into());
            }
        }
        Ok(())
    }

    fn open_for_streams(&mut self) -> Result<(), Broken> {
        self.stage(Stage::Streams);
        self.streams_until_ns = self.deadline_ns + u64::from(self.test.streams()) * SECOND_NS;
        Ok(self.say(&[State::CreateStreams.byte()])?)
    }

    fn obey(&mut self, order: ToSession) -> Result<(), Broken> {
        match order {
            ToSession::Turn if self.stage == Stage::Turn => self.open_for_streams()?,
            ToSession::Stream(socket, order) if self.stage == Stage::Streams => {
                let (_, peer) = ends(&socket).or_code(Code::STREAM_ACCEPT)?;
                stream_options(&socket, peer, &self.test, &self.parts.settings.network, true)?;
                socket.set_nonblocking(false).or_code(Code::STREAM_ACCEPT)?;
                self.await_another_stream();
                self.connections.push((order, socket));
                if self.connections.len() == self.test.streams() as usize {
                    // The client has opened them one after the other, whichever cookie came first.
                    self.connections.sort_by_key(|(order, _)| *order);
                    for (_, socket) in std::mem::take(&mut self.connections) {
                        self.add_stream(socket)?;
                    }
                }
            }
            ToSession::Datagrams(socket, word) if self.stage == Stage::Streams => {
                let (_, peer) = ends(&socket).or_code(Code::STREAM_ACCEPT)?;
                datagram_options(&socket, peer, &self.test)?;
                socket.set_nonblocking(false).or_code(Code::STREAM_ACCEPT)?;
                (&socket).write_all(&words::reply_to(&word)).or_code(Code::STREAM_WRITE)?;
                self.add_stream(socket)?;
            }
            ToSession::NoPort(trouble) => return Err(trouble.into()),
            // What comes too late is closed.
            ToSession::Turn | ToSession::Stream(..) | ToSession::Datagrams(..) => {}
        }
        Ok(())
    }

    /// Answers words that were said again because the answer was lost.
    fn answer_again(&self) {
        if self.stage != Stage::Streams || self.test.protocol != Protocol::Udp {
            return;
        }
        for TestSocket { socket, .. } in &self.sockets {
            let mut word = [0; 64];
            // Each wait is for a word that may have come to another socket.
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if let Ok(length) = (&*socket).read(&mut word)
                && words::is_connect(&word[..length])
            {
                let _ = (&*socket).write(&words::reply_to(&word[..length]));
            }
            let _ = socket.set_nonblocking(false);
        }
    }

    fn label(&mut self) -> i32 {
        let mut labels = self.parts.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..).map(stream_label).find(|label| !labels.labels.contains(label));
        let label = free.unwrap_or(5);
        labels.labels.push(label);
        self.place.own_labels.push(label);
        label
    }

    /// Each stream may take as long as the first, but not all of them together.
    fn await_another_stream(&mut self) {
        self.deadline_ns = (monotonic_ns() + PATIENCE_NS).min(self.streams_until_ns);
    }

    fn add_stream(&mut self, socket: Socket) -> Result<(), Broken> {
        let (sends, receives) = self.test.shape(false);
        // The streams over which this end receives are the first.
        let sends_over_it = self.sockets.len() >= receives as usize;
        let label = self.label();
        self.await_another_stream();
        if self.sockets.is_empty() {
            let size = |which| socket::buffer(&socket, which).unwrap_or(0);
            self.report.buffers(self.test.window, size(Buffer::Send), size(Buffer::Receive));
            if self.test.protocol == Protocol::Tcp {
                self.congestion = socket::congestion_control(&socket).ok();
            }
        }
        let (local, remote) = ends(&socket).or_code(Code::STREAM_ACCEPT)?;
        self.report.stream(label, local, remote);
        self.sockets.push(TestSocket { socket, sends: sends_over_it, label });
        if self.sockets.len() < (sends + receives) as usize {
            return Ok(());
        }
        self.tell(FromSession::Complete(self.parts.id));
        self.begin()
    }

    fn begin(&mut self) -> Result<(), Broken> {
        let sockets = std::mem::take(&mut self.sockets);
        // Datagrams that are lost would leave the client waiting for the rest.
        let limited = self.test.omit == 0 && self.test.protocol.connects();
        let mut load = Load::open(&self.test, sockets, limited)?;
        self.cpu = CpuUsage::begin();
        self.say(&[State::TestStart.byte()])?;
        self.report.test_start(&self.test);
        let now_ns = monotonic_ns();
        load.begin(now_ns);
        let settings = &self.parts.settings;
        let every_ns = (settings.interval * 1e9) as u64;
        let seconds = |seconds: u64| now_ns.saturating_add(seconds.saturating_mul(SECOND_NS));
        let (time, omit) = (u64::from(self.test.time), u64::from(self.test.omit));
        self.schedule = Some(Schedule {
            every_ns,
            next_ns: now_ns + every_ns,
            omit_ns: (omit > 0).then(|| seconds(omit)),
            expires_ns: (time > 0).then(|| seconds(time + omit + GRACE)),
            moved: VecDeque::from([(now_ns, 0)]),
            limit_ns: ((settings.server.limit_interval.max(1.0)) * 1e9) as u64,
            received: (0, now_ns),
        });
        self.say(&[State::TestRunning.byte()])?;
        load.start();
        self.load = Some(load);
        self.stage(Stage::Running);
        Ok(())
    }

    /// What the clock and the counters ask for.
    fn look(&mut self) -> Result<(), Broken> {
        let now_ns = monotonic_ns();
        if self.stage != Stage::Running {
            if now_ns < self.deadline_ns {
                return Ok(());
            }
            let code = match self.stage {
                Stage::Parameters => Code::RECEIVE_PARAMETERS,
                Stage::Turn | Stage::Streams | Stage::Running => Code::STREAM_ACCEPT,
                Stage::Results | Stage::Farewell => Code::RECEIVE_RESULTS,
            };
            return Err(TestError::with(code, "Connection timed out").into());
        }
        let (Some(schedule), Some(load)) = (&mut self.schedule, &mut self.load) else { return Ok(()) };
        if schedule.every_ns > 0 && now_ns >= schedule.next_ns {
            let streams = load.interval(schedule.omit_ns.is_some());
            if is_worth_showing(&streams, self.parts.settings.interval) {
                self.report.interval(&self.test, &streams);
            }
            while schedule.next_ns <= now_ns {
                schedule.next_ns += schedule.every_ns;
            }
        }
        if schedule.omit_ns.is_some_and(|omit_ns| now_ns >= omit_ns) {
            load.begin_again();
            self.report.omit_done();
            schedule.omit_ns = None;
            schedule.next_ns = now_ns + schedule.every_ns;
        }
        if schedule.expires_ns.is_some_and(|expires_ns| now_ns >= expires_ns) {
            return Err(Code::TEST_EXPIRED.into());
        }
        if schedule.exceeds(load.moved_both_ways(), now_ns, self.parts.settings.server.bitrate_limit) {
            return Err(Code::TOTAL_RATE.into());
        }
        if self.test.flow != Flow::Reverse {
            let received = load.received();
            if received != schedule.received.0 {
                schedule.received = (received, now_ns);
            }
            let silence_ns = u64::from(self.parts.settings.network.receive_timeout_ms) * 1_000_000;
            if now_ns.saturating_sub(schedule.received.1) > silence_ns {
                return Err(Code::NO_DATA.into());
            }
        }
        Ok(())
    }

    fn last_interval(&mut self) {
        self.cpu_percent = self.cpu.percent();
        let omitted = self.schedule.take().is_some_and(|schedule| schedule.omit_ns.is_some());
        let Some(load) = &mut self.load else { return };
        load.end_sending();
        let streams = load.interval(omitted);
        if is_worth_showing(&streams, self.parts.settings.interval) {
            self.report.interval(&self.test, &streams);
        }
    }

    fn summarize(&mut self) {
        let figures = self.load.as_ref().map_or(&[][..], |load| load.figures());
        let summary = Summary::of(&self.test, figures, None, self.cpu_percent, self.congestion.as_deref());
        self.report.summary(&self.test, &summary);
    }

    fn end_of_test(&mut self) -> Result<(), Broken> {
        // Of a given amount all counts, also what was not read yet.
        if (self.test.bytes > 0 || self.test.blocks > 0)
            && self.test.flow == Flow::Forward
            && let Some(load) = &self.load
        {
            load.await_ends();
        }
        self.last_interval();
        self.summarize();
        self.stage(Stage::Results);
        Ok(self.say(&[State::ExchangeResults.byte()])?)
    }

    fn own_results(&self) -> Results {
        Results::of(&self.test, self.load.as_ref(), self.cpu_percent, self.congestion.clone())
    }

    /// Says what went wrong, to whom it concerns.
    fn break_off(&mut self, broken: Broken) {
        let ran = self.schedule.is_some();
        if ran && !matches!(broken, Broken::Error(_)) {
            self.last_interval();
            self.summarize();
        }
        match broken {
            Broken::Error(trouble) => {
                let _ = self.say(&error_message(&trouble));
                self.report.failed(&trouble);
            }
            Broken::Gone(words) => self.report.error(words),
            Broken::Stopped => {
                let _ = self.say(&[State::ServerTerminate.byte()]);
                // To people the server says it, once.
                if self.parts.settings.output.json {
                    self.report.error("interrupt - the server has terminated");
                }
            }
        }
    }

    fn end(mut self) {
        if let Some(load) = self.load.take() {
            load.stop();
        }
        let Self { report, test, .. } = self;
        report.finish(&test, false);
    }
}

impl Schedule {
    /// Whether the mean rate of the last while is above `limit` bits per second.
    fn exceeds(&mut self, moved: u64, now_ns: u64, limit: u64) -> bool {
        if limit == 0 {
            return false;
        }
        while self.moved.len() > 1 && now_ns.saturating_sub(self.moved[1].0) >= self.limit_ns {
            self.moved.pop_front();
        }
        let (since_ns, before) = self.moved.front().copied().unwrap_or((now_ns, moved));
        // A look each tenth of a second at most, so that what is kept is bounded.
        if self.moved.back().is_none_or(|(last_ns, _)| now_ns.saturating_sub(*last_ns) >= SECOND_NS / 10) {
            self.moved.push_back((now_ns, moved));
        }
        let past_ns = now_ns.saturating_sub(since_ns);
        let bits = moved.saturating_sub(before) as f64 * 8.0;
        past_ns >= self.limit_ns && bits / (past_ns as f64 / 1e9) > limit as f64
    }
}

/// The client's address, as words that open streams are compared with it.
pub fn home(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}
