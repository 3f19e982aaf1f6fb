//! The client.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use rig_load::driver::Cancel;
use rig_sys::clock::{self, monotonic_ns};
use rig_sys::socket::{self, Buffer};
use rustix::event::{PollFd, PollFlags};
use socket2::Socket;

use super::authentication::{Credentials, NOT_SHOWN};
use super::console::Console;
use super::control::{ClientEvent, ClientSession};
use super::error::{Code, TestError, WithCode};
use super::figures::{Summary, stream_label};
use super::load::{CpuUsage, Load, TestSocket, is_worth_showing};
use super::report::Report;
use super::settings::{Flow, LONGEST_DATAGRAM, Protocol, SHORTEST_DATAGRAM, Settings, TestSettings, UDP_LENGTH};
use super::sockets::{ClientNetwork, connect_datagrams, connect_stream, dial, ends};
use super::wait::{SECOND_NS, wait};
use super::wire::{Cookie, Results, State, cookie, framed, parameters, results, words};

/// How long a server may take to open a stream over UDP.
const WORD_TIMEOUT_NS: u64 = 30 * SECOND_NS;
/// After which the word that opens it is said again.
const WORD_AGAIN_NS: u64 = SECOND_NS;
/// After a word that nobody listened to.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);
/// Between two looks at how much has been moved, where that ends the test.
const LOOK_NS: u64 = 5_000_000;
/// How long a server that has ended a stream may take to say why.
const EXPLANATION_NS: u64 = SECOND_NS / 2;
/// A server that has sent nothing for so long has sent what it was asked for.
const ALL_SENT_NS: u64 = 3 * SECOND_NS;
/// For the server to have all streams and begin.
const BEGIN_NS: u64 = 120 * SECOND_NS;
/// How long a server may take for what follows the test.
const LAST_WORDS_NS: u64 = 60 * SECOND_NS;

/// How a test ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Completed,
    /// By a signal.
    Interrupted,
}

/// When what is due.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    /// Nanoseconds between intervals; 0 for none.
    every_ns: u64,
    next_ns: u64,
    omit_ns: Option<u64>,
    end_ns: Option<u64>,
}

/// One run of a client.
struct Client<'a> {
    settings: &'a Settings,
    network: ClientNetwork<'a>,
    credentials: Option<&'a Credentials>,
    test: TestSettings,
    report: &'a mut Report,
    cancel: &'a Cancel,
    control: Socket,
    server: SocketAddr,
    cookie: Cookie,
    mss: u32,
    session: ClientSession,
    load: Option<Load>,
    schedule: Option<Schedule>,
    /// Bytes that were received, and since when no more were.
    received: (u64, u64),
    /// What was moved when counting began.
    base: u64,
    cpu: CpuUsage,
    cpu_percent: [f64; 3],
    congestion: Option<String>,
    results: Option<Box<Results>>,
    /// Until when the server has to have answered.
    patience_ns: Option<u64>,
    /// A sender that cannot go on, and until when the server may say why.
    failing: Option<(u64, TestError)>,
}

/// A test that is over, with its settings as they came to be.
pub struct Outcome {
    pub test: TestSettings,
    pub ending: Result<Ending, TestError>,
}

/// Runs a test, and reports it but for what [`Report::finish`] says.
pub fn run(settings: &Settings, credentials: Option<&Credentials>, report: &mut Report, cancel: &Cancel) -> Outcome {
    let mut test = settings.test.clone();
    report.greet();
    let dialed = ClientNetwork::look_up(&settings.network, cancel).and_then(|network| {
        let (control, server) = dial(&settings.host, &network, cancel)?;
        let cookie = cookie().map_err(|error| TestError::with(Code::SEND_COOKIE, error.to_string()))?;
        (&control).write_all(&cookie).or_code(Code::SEND_COOKIE)?;
        Ok((network, control, server, cookie))
    });
    let (network, control, server, cookie) = match dialed {
        Ok(dialed) => dialed,
        Err(_) if cancel.is_cancelled() => return Outcome { test, ending: Ok(Ending::Interrupted) },
        Err(trouble) => return Outcome { test, ending: Err(trouble) },
    };
    let mss = control.tcp_mss().unwrap_or(0);
    report.verbose(&format!("Control connection MSS {mss}\n"));
    if test.protocol == Protocol::Udp {
        choose_length(&mut test, mss, report);
    }
    let mut client = Client {
        settings,
        network,
        credentials,
        test,
        report,
        cancel,
        control,
        server,
        cookie,
        mss,
        session: ClientSession::default(),
        load: None,
        schedule: None,
        received: (0, monotonic_ns()),
        base: 0,
        cpu: CpuUsage::begin(),
        cpu_percent: [0.0; 3],
        congestion: None,
        results: None,
        patience_ns: Some(monotonic_ns() + BEGIN_NS),
        failing: None,
    };
    let ending = client.talk();
    if let Some(load) = client.load.take() {
        load.stop();
    }
    Outcome { test: client.test, ending }
}

/// Datagrams that were given no length have that of the control connection's segments, so that none is cut.
fn choose_length(test: &mut TestSettings, mss: u32, report: &Report) {
    if test.length == 0 {
        test.length = if (SHORTEST_DATAGRAM..=LONGEST_DATAGRAM).contains(&mss) { mss } else { UDP_LENGTH };
        report.verbose(&format!("Setting UDP block size to {}\n", test.length));
    }
    if mss > 0 && test.length > mss {
        let length = test.length;
        Console::warning(&format!(
            "UDP block size {length} exceeds TCP MSS {mss}, may result in fragmentation / drops"
        ));
    }
}

impl Client<'_> {
    fn talk(&mut self) -> Result<Ending, TestError> {
        loop {
            if self.cancel.is_cancelled() {
                self.finish_early();
                let _ = self.say(&[State::ClientTerminate.byte()]);
                return Ok(Ending::Interrupted);
            }
            let deadline_ns = self.next_deadline();
            let mut fds = vec![PollFd::new(&self.control, PollFlags::IN), PollFd::new(self.cancel, PollFlags::IN)];
            if let Some(load) = self.load.as_ref().filter(|_| self.schedule.is_some()) {
                fds.push(PollFd::from_borrowed_fd(load.news(), PollFlags::IN));
            }
            wait(&mut fds, deadline_ns).or_code(Code::RECEIVE_MESSAGE)?;
            let (heard, news) = (!fds[0].revents().is_empty(), fds.get(2).is_some_and(|fd| !fd.revents().is_empty()));
            match if heard { self.listen() } else { Ok(false) } {
                Ok(true) => return Ok(Ending::Completed),
                // The loop sees to it.
                Err(_) if self.cancel.is_cancelled() => continue,
                other => drop(other?),
            }
            if news && let Some(load) = &self.load {
                load.clear();
                if let Err(trouble) = load.check() {
                    self.failing.get_or_insert((monotonic_ns() + EXPLANATION_NS, trouble));
                }
            }
            self.look()?;
            if let Some((_, trouble)) = self.failing.take_if(|(until_ns, _)| monotonic_ns() >= *until_ns) {
                return Err(trouble);
            }
            if self.patience_ns.is_some_and(|patience_ns| monotonic_ns() >= patience_ns) {
                return Err(TestError::with(Code::RECEIVE_MESSAGE, "Connection timed out"));
            }
        }
    }

    fn say(&self, bytes: &[u8]) -> Result<(), TestError> {
        (&self.control).write_all(bytes).or_code(Code::SEND_MESSAGE)
    }

    /// When something is to be done without the server.
    fn next_deadline(&self) -> Option<u64> {
        let now_ns = monotonic_ns();
        let schedule = self.schedule.filter(|_| self.session.is_running()).map(|schedule| {
            let mut deadlines = vec![schedule.omit_ns, schedule.end_ns];
            deadlines.push((schedule.every_ns > 0).then_some(schedule.next_ns));
            let by_amount = self.test.bytes > 0 || self.test.blocks > 0;
            deadlines.push((by_amount && schedule.omit_ns.is_none()).then_some(now_ns + LOOK_NS));
            deadlines.push((self.test.flow == Flow::Reverse).then_some(now_ns + SECOND_NS));
            deadlines.into_iter().flatten().min()
        });
        let failing_ns = self.failing.as_ref().map(|(until_ns, _)| *until_ns);
        schedule.flatten().into_iter().chain(self.patience_ns).chain(failing_ns).min()
    }

    /// Takes what the server says. True when the test is over.
    fn listen(&mut self) -> Result<bool, TestError> {
        let mut bytes = [0; 64 << 10];
        let length = (&self.control).read(&mut bytes).or_code(Code::RECEIVE_MESSAGE)?;
        if length == 0 {
            return Err(Code::CONTROL_CLOSED.into());
        }
        self.session.push(&bytes[..length]);
        while let Some(event) = self.session.next_event()? {
            match event {
                ClientEvent::SendParameters => {
                    let token = self.credentials.map(|credentials| credentials.token(Timestamp::now()));
                    self.test.auth_token = token.transpose()?;
                    self.say(&framed(&parameters(&self.test)))?;
                    self.test.auth_token = self.test.auth_token.take().map(|_| NOT_SHOWN.to_owned());
                    self.report.debug("send_parameters", &parameters(&self.test));
                    self.report.connected(&self.test, self.server, &self.cookie, self.mss);
                }
                ClientEvent::CreateStreams => self.create_streams()?,
                ClientEvent::Start => self.start(),
                ClientEvent::Run => {
                    self.patience_ns = None;
                    if let Some(load) = &self.load {
                        load.start();
                    }
                }
                ClientEvent::SendResults => {
                    let own = results(&self.own_results());
                    self.report.debug("send_results", &own);
                    self.say(&framed(&own))?;
                }
                ClientEvent::Results(results) => self.take_results(results)?,
                ClientEvent::Display => {
                    self.summarize();
                    // The server may have gone already: it has told all it knows.
                    let _ = self.say(&[State::Done.byte()]);
                    return Ok(true);
                }
                ClientEvent::Terminated => {
                    self.finish_early();
                    return Err(Code::SERVER_TERMINATED.into());
                }
                ClientEvent::Failed(trouble) => {
                    let system = match trouble.errno {
                        0 => String::new(),
                        errno => {
                            let error = io::Error::from_raw_os_error(errno);
                            format!(", errno: {}", super::error::without_number(&error.to_string()))
                        }
                    };
                    self.report.error(&format!("SERVER ERROR - {}{system}", trouble.code));
                    return Err(trouble);
                }
            }
        }
        Ok(false)
    }

    fn create_streams(&mut self) -> Result<(), TestError> {
        let (sends, receives) = self.test.shape(true);
        let mut sockets = Vec::new();
        for index in 0..sends + receives {
            let port = match self.settings.network.client_port {
                None => None,
                Some(first) => {
                    let port = u16::try_from(index).ok().and_then(|index| first.checked_add(index));
                    Some(port.ok_or(Code::PORT)?)
                }
            };
            let socket = match self.test.protocol {
                Protocol::Tcp | Protocol::Sctp => {
                    let socket = connect_stream(self.server, &self.test, &self.network, port, self.cancel)?;
                    (&socket).write_all(&self.cookie).or_code(Code::SEND_COOKIE)?;
                    socket
                }
                Protocol::Udp => {
                    let socket = connect_datagrams(self.server, &self.test, &self.network, port)?;
                    self.open_by_word(&socket)?;
                    socket
                }
            };
            let label = stream_label(index as usize);
            if index == 0 {
                let size = |which| socket::buffer(&socket, which).unwrap_or(0);
                self.report.buffers(self.test.window, size(Buffer::Send), size(Buffer::Receive));
                if self.test.protocol == Protocol::Tcp {
                    self.congestion = socket::congestion_control(&socket).ok();
                }
            }
            let (local, remote) = ends(&socket).or_code(Code::STREAM_CONNECT)?;
            self.report.stream(label, local, remote);
            sockets.push(TestSocket { socket, sends: index < sends, label });
        }
        self.load = Some(Load::open(&self.test, sockets, self.test.omit == 0)?);
        Ok(())
    }

    /// Opens a stream over UDP: says the word until it is answered. A server that goes on has all streams, also where the answer was lost.
    fn open_by_word(&self, socket: &Socket) -> Result<(), TestError> {
        let give_up_ns = monotonic_ns() + WORD_TIMEOUT_NS;
        socket.set_nonblocking(true).or_code(Code::STREAM_CONNECT)?;
        let opened = || socket.set_nonblocking(false).or_code(Code::STREAM_CONNECT);
        let mut answer = vec![0; 64];
        let mut refused = 0;
        while monotonic_ns() < give_up_ns && !self.cancel.is_cancelled() {
            if let Err(error) = (&*socket).write(&words::CONNECT) {
                // The answer that nobody listened to the word before.
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    return Err(TestError::system(Code::STREAM_WRITE, &error));
                }
            }
            let again_ns = monotonic_ns() + WORD_AGAIN_NS;
            while monotonic_ns() < again_ns && !self.cancel.is_cancelled() {
                let mut fds = [
                    PollFd::new(socket, PollFlags::IN),
                    PollFd::new(&self.control, PollFlags::IN),
                    PollFd::new(self.cancel, PollFlags::IN),
                ];
                wait(&mut fds, Some(again_ns)).or_code(Code::STREAM_READ)?;
                let server_goes_on = !fds[1].revents().is_empty();
                match (&*socket).read(&mut answer) {
                    Ok(length) if words::is_reply(&answer[..length]) => return opened(),
                    // Its answer was lost, and these are the first of the test.
                    Ok(_) if server_goes_on => return opened(),
                    // Its first may overtake the answer, and what it says on the control connection.
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if server_goes_on {
                            return opened();
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && refused < 20 => {
                        refused += 1;
                        clock::sleep_until(clock::monotonic_after(REFUSED_PAUSE));
                        break;
                    }
                    Err(error) => return Err(TestError::system(Code::STREAM_READ, &error)),
                }
            }
        }
        Err(TestError::with(Code::STREAM_READ, "Connection timed out"))
    }

    fn start(&mut self) {
        self.report.test_start(&self.test);
        let now_ns = monotonic_ns();
        if let Some(load) = &mut self.load {
            load.begin(now_ns);
        }
        let every_ns = (self.settings.interval * 1e9) as u64;
        let omit_ns = (self.test.omit > 0).then(|| now_ns + u64::from(self.test.omit) * SECOND_NS);
        let seconds = u64::from(self.test.time) + u64::from(self.test.omit);
        let end_ns = (self.test.time > 0).then(|| now_ns + seconds * SECOND_NS);
        self.received = (0, now_ns);
        self.schedule = Some(Schedule { every_ns, next_ns: now_ns + every_ns, omit_ns, end_ns });
    }

    /// What the clock and the counters ask for.
    fn look(&mut self) -> Result<(), TestError> {
        let Some(mut schedule) = self.schedule.filter(|_| self.session.is_running()) else { return Ok(()) };
        let now_ns = monotonic_ns();
        if self.is_done(&schedule, now_ns) {
            return self.end();
        }
        let Some(load) = &mut self.load else { return Ok(()) };
        if schedule.every_ns > 0 && now_ns >= schedule.next_ns {
            let streams = load.interval(schedule.omit_ns.is_some());
            self.report.interval(&self.test, &streams);
            while schedule.next_ns <= now_ns {
                schedule.next_ns += schedule.every_ns;
            }
        }
        if schedule.omit_ns.is_some_and(|omit_ns| now_ns >= omit_ns) {
            load.begin_again();
            self.base = load.moved();
            self.report.omit_done();
            schedule.omit_ns = None;
            schedule.next_ns = now_ns + schedule.every_ns;
        }
        if self.test.flow == Flow::Reverse {
            let received = load.received();
            if received != self.received.0 {
                self.received = (received, now_ns);
            }
            let silence_ns = now_ns.saturating_sub(self.received.1);
            if silence_ns > u64::from(self.settings.network.receive_timeout_ms) * 1_000_000 {
                return Err(Code::NO_DATA.into());
            }
            let by_amount = self.test.bytes > 0 || self.test.blocks > 0;
            if self.test.protocol == Protocol::Udp && by_amount && received > 0 && silence_ns > ALL_SENT_NS {
                // All was sent, and some of it was lost: the rest will not come.
                self.schedule = Some(schedule);
                return self.end();
            }
        }
        self.schedule = Some(schedule);
        Ok(())
    }

    fn is_done(&self, schedule: &Schedule, now_ns: u64) -> bool {
        if schedule.end_ns.is_some_and(|end_ns| now_ns >= end_ns) {
            return true;
        }
        let amount = if self.test.bytes > 0 { self.test.bytes } else { self.test.blocks };
        let Some(load) = self.load.as_ref().filter(|_| amount > 0 && schedule.omit_ns.is_none()) else { return false };
        load.has_sent_all() || load.moved().saturating_sub(self.base) >= amount
    }

    /// The last interval, and the test's end.
    fn end(&mut self) -> Result<(), TestError> {
        if !self.session.end() {
            return Ok(());
        }
        self.last_interval();
        // What is told of the end would overtake the last of a given amount, which the server would not count then.
        if (self.test.bytes > 0 || self.test.blocks > 0)
            && let Some(load) = &self.load
        {
            load.await_delivery();
        }
        self.patience_ns = Some(monotonic_ns() + LAST_WORDS_NS);
        self.say(&[State::TestEnd.byte()])
    }

    fn last_interval(&mut self) {
        let omitted = self.schedule.take().is_some_and(|schedule| schedule.omit_ns.is_some());
        let Some(load) = &mut self.load else { return };
        load.end_sending();
        self.cpu_percent = self.cpu.percent();
        let streams = load.interval(omitted);
        if is_worth_showing(&streams, self.settings.interval) {
            self.report.interval(&self.test, &streams);
        }
    }

    /// What is known of a test that does not come to its end.
    fn finish_early(&mut self) {
        if self.schedule.is_some() {
            self.last_interval();
        }
        self.summarize();
    }

    fn summarize(&mut self) {
        let Some(load) = &self.load else { return };
        let peer = self.results.as_deref();
        let congestion = self.congestion.as_deref();
        let summary = Summary::of(&self.test, load.figures(), peer, self.cpu_percent, congestion);
        self.report.summary(&self.test, &summary);
        if self.test.get_server_output {
            let output = self.results.as_mut().and_then(|results| results.server_output.take());
            self.report.server_output(output);
        }
    }

    fn own_results(&self) -> Results {
        Results::of(&self.test, self.load.as_ref(), self.cpu_percent, self.congestion.clone())
    }

    fn take_results(&mut self, results: Box<Results>) -> Result<(), TestError> {
        let figures = self.load.as_ref().map_or(&[][..], |load| load.figures());
        let known = |id: i64| figures.iter().any(|stream| stream.id == id);
        if results.streams.iter().any(|stream| !known(stream.id)) {
            return Err(Code::STREAM_ID.into());
        }
        self.report.debug("get_results", &super::wire::results(&results));
        self.results = Some(results);
        Ok(())
    }
}
