//! The server's part in the conversation with one client: what comes in, and what to do about it. No I/O, no clock: the
//! caller brings bytes, events and times, and carries out the actions.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rig_facts::record::Environment;
use rig_load::exchange::PathMarks;
use rig_load::plan::{Phases, Role, Times, WorkerPlan};
use rig_load::protocol::{Event, Lines, Order};
use rig_load::record::WorkerRecord;

use super::limits::{Limits, Refusal};
use super::machine::{BEGIN_MISSED, Reading};
use super::seal::{self, End, Key, Nonce, Seal};
use super::wire::{self, LONGEST_REQUEST, PROTOCOL, Reply, Request, ServerResult, TestRequest, Version};

/// How the server's end is called in plans and records.
pub const NAME: &str = "server";

/// From the order to open until all connections stand.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// From then until the order to go.
const GO_TIMEOUT: Duration = Duration::from_secs(20);
/// The furthest start that a client may name.
const LATEST_START: Duration = Duration::from_secs(20);
/// After the load, until the worker has drained its connections, sent its record and ended.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long exchanges of times are answered.
const ANSWERING: Duration = Duration::from_secs(10);
/// Pings of one test, and of one comparison of clocks.
const PINGS: u32 = 64;

/// What the caller has to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Reply(Reply),
    /// Answer exchanges of times at this address, of who has the client's, and call [`ServerSession::answering`]; if there is no room, or it
    /// cannot be, [`ServerSession::not_started`].
    Answer(SocketAddr, PathMarks),
    /// Answer them no more.
    EndAnswering,
    /// Start a worker with this plan, if there is room for one; else call [`ServerSession::not_started`].
    Start(Box<WorkerPlan>),
    /// Hand the order to the worker.
    Order(Order),
    /// Read the machine's counters and call [`ServerSession::counted`].
    Count,
    /// Send what is to be sent, then close the connection; end the worker at once if there is one. The last action.
    Close,
}

#[derive(Debug)]
enum State {
    Greeting,
    Idle,
    /// Exchanges of times.
    Answering {
        pings: u32,
    },
    Opening(Phases),
    Ready {
        phases: Phases,
        pings: u32,
    },
    Running(Box<RunningTrial>),
    Closed,
}

#[derive(Debug)]
struct RunningTrial {
    begin_ns: u64,
    end_ns: u64,
    begin: Option<Reading>,
    end: Option<Reading>,
    record: Option<Box<WorkerRecord>>,
}

impl RunningTrial {
    /// When the counters are due next.
    fn next_count_ns(&self) -> Option<u64> {
        match self {
            Self { begin: None, begin_ns, .. } => Some(*begin_ns),
            Self { end: None, end_ns, .. } => Some(*end_ns),
            _ => None,
        }
    }
}

/// Whose lines are heard.
#[derive(Debug)]
enum Lock {
    /// Without a key: open to all clients.
    Open,
    /// With a key, until the client has said hello with a seal that fits the welcome.
    Challenge { key: Key, nonce: Nonce, welcome: Vec<u8> },
    /// With a key, which the client has proved to have.
    Sealed(Box<Seal>),
}

impl Lock {
    /// The JSON of a line, or why it is not heard.
    fn open<'a>(&mut self, line: &'a [u8]) -> Result<&'a [u8], String> {
        let (key, nonce, welcome) = match self {
            Self::Open => return Ok(line),
            Self::Sealed(seal) => return seal.open(line).map_err(|broken| format!("the client sent {broken}")),
            Self::Challenge { key, nonce, welcome } => (key, *nonce, welcome),
        };
        let hello = |json| match serde_json::from_slice(json) {
            Ok(Request::Hello(hello)) => Some(hello),
            _ => None,
        };
        let Some((_, json)) = seal::split(line) else {
            // A stranger of another version is told about the version.
            let is_other = hello(line).is_some_and(|hello| hello.protocol != PROTOCOL);
            let refusal = "this server takes only clients that have its key (--key-file)";
            return if is_other { Ok(line) } else { Err(refusal.into()) };
        };
        let Some(client) = hello(json).and_then(|hello| hello.nonce) else {
            return Err("the client sealed something else before its hello".into());
        };
        let mut seal = Seal::new(End::Server, key, nonce, client, welcome);
        seal.open(line).map_err(|_| "the client does not have this server's key (--key-file)".to_owned())?;
        *self = Self::Sealed(seal.into());
        Ok(json)
    }
}

/// One control connection at the server.
#[derive(Debug)]
pub struct ServerSession {
    peer: SocketAddr,
    local: SocketAddr,
    limits: Arc<Limits>,
    environment: Arc<Environment>,
    lock: Lock,
    lines: Lines,
    state: State,
    /// When this state has lasted too long, nanoseconds of the server's clock.
    deadline_ns: u64,
    actions: VecDeque<Action>,
}

impl ServerSession {
    /// A connection from `peer`, accepted on the address `local` at `now_ns`.
    pub fn new(
        peer: SocketAddr,
        local: SocketAddr,
        limits: Arc<Limits>,
        environment: Arc<Environment>,
        now_ns: u64,
    ) -> Self {
        let deadline_ns = after(now_ns, limits.handshake);
        let (lines, state) = (Lines::new(LONGEST_REQUEST), State::Greeting);
        // The server speaks first, so that a client that is turned away learns why before it has said anything.
        let actions = [Action::Reply(Reply::Welcome(Version::own()))].into();
        Self { peer, local, limits, environment, lock: Lock::Open, lines, state, deadline_ns, actions }
    }

    /// One whose client has to have the key. `nonce` is used for no other.
    #[must_use]
    pub fn with_key(self, key: Key, nonce: Nonce) -> Self {
        let welcome = Reply::Welcome(Version::with_nonce(nonce));
        let mut line = wire::line(&welcome);
        line.pop();
        let lock = Lock::Challenge { key, nonce, welcome: line };
        let lines = Lines::new(LONGEST_REQUEST + seal::PREFIX);
        Self { lock, lines, actions: [Action::Reply(welcome)].into(), ..self }
    }

    /// A reply as it goes over the wire. To be called once for each [`Action::Reply`], in their order.
    pub fn line(&mut self, reply: &Reply) -> Vec<u8> {
        match &mut self.lock {
            Lock::Sealed(seal) if !matches!(reply, Reply::Welcome(_)) => wire::sealed(reply, seal),
            _ => wire::line(reply),
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::time_is`] has to be called next; `None` when the session is over.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.state {
            State::Closed => None,
            State::Running(running) => running.next_count_ns().or(Some(self.deadline_ns)),
            _ => Some(self.deadline_ns),
        }
    }

    /// True from the moment a test was asked for until its end, not while clocks are compared.
    pub fn is_testing(&self) -> bool {
        matches!(self.state, State::Opening(_) | State::Ready { .. } | State::Running(_))
    }

    /// Bytes from the client, in pieces of any size.
    pub fn received(&mut self, bytes: &[u8], now_ns: u64) {
        if matches!(self.state, State::Closed) {
            return;
        }
        self.lines.push(bytes);
        loop {
            let strange = |why: String| format!("cannot understand the client: {}", wire::words(&why));
            let request = match self.lines.take() {
                Ok(None) => return,
                Ok(Some(line)) => self
                    .lock
                    .open(line)
                    .and_then(|json| serde_json::from_slice(json).map_err(|error| strange(error.to_string()))),
                Err(too_long) => Err(strange(too_long.to_string())),
            };
            match request {
                Ok(request) => self.requested(request, now_ns),
                Err(why) => self.refuse(&why),
            }
            if matches!(self.state, State::Closed) {
                return;
            }
        }
    }

    fn requested(&mut self, request: Request, now_ns: u64) {
        match (request, &mut self.state) {
            (Request::Hello(client), State::Greeting) => self.greeted(&client, now_ns),
            (Request::Clock(marks), State::Idle | State::Answering { .. }) => self.compare_clocks(marks, now_ns),
            (Request::Open(ask), State::Idle) => self.asked(*ask, now_ns),
            (Request::Open(ask), State::Answering { .. }) => {
                self.actions.push_back(Action::EndAnswering);
                self.asked(*ask, now_ns);
            }
            (Request::Ping { number }, State::Ready { pings, .. } | State::Answering { pings }) if *pings < PINGS => {
                *pings += 1;
                self.reply(Reply::Pong { number, now_ns });
            }
            (Request::Go { start_ns }, State::Ready { phases, .. }) => {
                let phases = *phases;
                self.go(start_ns, phases, now_ns);
            }
            (request, _) => {
                let name = match request {
                    Request::Hello(_) => "hello",
                    Request::Open(_) => "open",
                    Request::Clock(_) => "clock",
                    Request::Ping { .. } => "ping",
                    Request::Go { .. } => "go",
                };
                self.refuse(&format_args!("the client sent '{name}' out of turn"));
            }
        }
    }

    fn greeted(&mut self, client: &Version, now_ns: u64) {
        if client.protocol != PROTOCOL {
            let own = Version::own();
            return self.refuse(&format_args!(
                "the server speaks version {} of the protocol (netrig {}), the client version {} (netrig {}): use the \
                 same netrig at both ends",
                own.protocol,
                own.version,
                client.protocol,
                wire::words(&client.version),
            ));
        }
        self.reply(Reply::Machine(Box::new((*self.environment).clone())));
        self.idle(now_ns);
    }

    fn idle(&mut self, now_ns: u64) {
        self.state = State::Idle;
        self.deadline_ns = after(now_ns, self.limits.idle);
    }

    fn compare_clocks(&mut self, marks: PathMarks, now_ns: u64) {
        if matches!(self.state, State::Answering { .. }) {
            self.actions.push_back(Action::EndAnswering);
        }
        self.state = State::Answering { pings: 0 };
        self.deadline_ns = after(now_ns, ANSWERING);
        self.actions.push_back(Action::Answer(self.data_address(), marks));
    }

    /// The port that [`Action::Answer`] has.
    pub fn answering(&mut self, port: u16) {
        self.reply(Reply::Answering { port });
    }

    /// Where the load comes to, and exchanges before and after it.
    fn data_address(&self) -> SocketAddr {
        let mut address = self.local;
        address.set_port(self.limits.data_port.unwrap_or(0));
        address
    }

    fn asked(&mut self, ask: TestRequest, now_ns: u64) {
        if let Err(refusal) = self.limits.check(&ask) {
            return self.refuse(&refusal);
        }
        let plan = WorkerPlan {
            name: NAME.into(),
            cpus: ask.cpus,
            role: Role::Listen { address: self.data_address(), only_from: Some(self.peer.into()) },
            load: ask.load,
            phases: ask.phases,
            ceiling: self.limits.ceiling(),
            peer_clock_ns: ask.peer_clock_ns,
        };
        if let Err(error) = plan.validate() {
            return self.refuse(&Refusal::Plan(error));
        }
        self.state = State::Opening(plan.phases);
        self.deadline_ns = after(now_ns, OPEN_TIMEOUT);
        self.actions.push_back(Action::Start(Box::new(plan)));
    }

    fn go(&mut self, start_ns: u64, phases: Phases, now_ns: u64) {
        if start_ns < now_ns {
            let late = Duration::from_nanos(now_ns - start_ns);
            return self.fail(&format_args!(
                "the order to start came {late:?} after the time it named: the control connection is slower than its \
                 round trips were, try again"
            ));
        }
        if start_ns > after(now_ns, LATEST_START) {
            return self.refuse(&format_args!("the start lies more than {LATEST_START:?} ahead"));
        }
        let Times { begin_ns, end_ns, stop_ns, .. } = phases.starting_at(start_ns);
        self.deadline_ns = after(stop_ns, FINISH_TIMEOUT);
        let running = RunningTrial { begin_ns, end_ns, begin: None, end: None, record: None };
        self.state = State::Running(Box::new(running));
        self.actions.push_back(Action::Order(Order::Go { start_ns }));
    }

    /// The worker that [`Action::Start`] asked for cannot be had.
    pub fn not_started(&mut self, why: &dyn std::fmt::Display) {
        if matches!(self.state, State::Opening(_) | State::Answering { .. }) {
            self.refuse(why);
        }
    }

    /// What the worker said.
    pub fn worker_said(&mut self, event: Event, now_ns: u64) {
        match (event, &mut self.state) {
            (_, State::Closed) => {}
            (Event::Failed { what, why }, _) => self.fail(&format_args!("{what}: {why}")),
            (Event::Listening { port }, State::Opening(_)) => self.reply(Reply::Listening { port }),
            (Event::Connected, State::Opening(phases)) => {
                self.state = State::Ready { phases: *phases, pings: 0 };
                self.deadline_ns = after(now_ns, GO_TIMEOUT);
                self.reply(Reply::Connected);
            }
            (Event::Sample(sample), State::Running(_)) => self.reply(Reply::Sample(Box::new(sample))),
            (Event::Done(record), State::Running(running)) if running.begin.is_some() => {
                running.record = Some(record);
                if running.end.is_none() {
                    self.actions.push_back(Action::Count);
                }
            }
            (Event::Done(_), State::Running(_)) => self.fail(&BEGIN_MISSED),
            (event, _) => self.fail(&format_args!("the worker sent '{}' out of turn", event.name())),
        }
    }

    /// The worker's output has ended, and so has the worker: well, or how.
    pub fn worker_ended(&mut self, how: Result<(), String>, now_ns: u64) {
        match (how, std::mem::replace(&mut self.state, State::Closed)) {
            (_, State::Closed) => {}
            (Ok(()), State::Running(running)) => match *running {
                RunningTrial { begin: Some(begin), end: Some(end), record: Some(record), .. } => {
                    self.reply(Reply::Done(Box::new(ServerResult { record: *record, machine: begin.until(&end) })));
                    self.idle(now_ns);
                }
                _ => self.fail(&"the worker ended without a record"),
            },
            (Ok(()), _) => self.fail(&"the worker ended before the test began"),
            (Err(how), _) => self.fail(&how),
        }
    }

    /// The counters that [`Action::Count`] asked for.
    pub fn counted(&mut self, reading: Reading) {
        if let State::Running(running) = &mut self.state {
            if running.begin.is_none() {
                running.begin = Some(reading);
            } else {
                running.end.get_or_insert(reading);
            }
        }
    }

    /// What there is to do at `now_ns` because time has passed.
    pub fn time_is(&mut self, now_ns: u64) {
        let limits = &self.limits;
        match &self.state {
            State::Closed => {}
            State::Running(running) if running.next_count_ns().is_some_and(|due_ns| now_ns >= due_ns) => {
                self.actions.push_back(Action::Count);
            }
            _ if now_ns < self.deadline_ns => {}
            State::Greeting => {
                let limit = limits.handshake;
                self.refuse(&format_args!("no hello within {limit:?} (--handshake-timeout)"));
            }
            State::Idle => {
                let limit = limits.idle;
                self.refuse(&format_args!("no test asked for within {limit:?} (--idle-timeout)"));
            }
            State::Answering { .. } => {
                self.actions.push_back(Action::EndAnswering);
                self.idle(now_ns);
            }
            State::Opening(_) => self.fail(&format_args!("the connections were not open within {OPEN_TIMEOUT:?}")),
            State::Ready { .. } => self.fail(&format_args!("no order to start within {GO_TIMEOUT:?}")),
            State::Running(_) => self.fail(&format_args!("the worker did not report within {FINISH_TIMEOUT:?}")),
        }
    }

    /// Ends the session for the server's sake, unless a test runs: that one may finish. A test that clocks are only compared for has not
    /// begun.
    pub fn shut_down(&mut self) {
        if matches!(self.state, State::Greeting | State::Idle | State::Answering { .. }) {
            self.close(Reply::Goodbye { why: "the server is shutting down".into() });
        }
    }

    fn reply(&mut self, reply: Reply) {
        self.actions.push_back(Action::Reply(reply));
    }

    fn refuse(&mut self, why: &dyn std::fmt::Display) {
        self.close(Reply::Refused { why: why.to_string() });
    }

    fn fail(&mut self, why: &dyn std::fmt::Display) {
        self.close(Reply::Failed { why: why.to_string() });
    }

    fn close(&mut self, last_words: Reply) {
        self.state = State::Closed;
        // What it would have done is no longer wanted.
        self.actions.retain(|action| matches!(action, Action::Reply(_)));
        self.actions.extend([Action::Reply(last_words), Action::Close]);
    }

    /// The client's address.
    pub fn peer(&self) -> IpAddr {
        self.peer.ip()
    }
}

fn after(ns: u64, time: Duration) -> u64 {
    ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
