//! The client's part in the conversation with a server: what comes in, and what to do about it. No I/O, no clock: the
//! caller brings bytes, events and times, and carries out the actions.

mod comparison;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rig_facts::record::{Clocks, EndClocks, Environment, OffsetReading};
use rig_load::exchange::PathMarks;
use rig_load::plan::{Load, Phases, Role, Times, WorkerPlan};
use rig_load::protocol::{Event, Lines, Order};
use rig_load::record::{Sample, WorkerRecord};
use rig_sys::socket::{NamedAddress, SourceBinding};

use self::comparison::Comparison;
use super::machine::{BEGIN_MISSED, MachineUse, Reading};
use super::records;
use super::seal::{self, End, Key, Nonce, Seal, SealError};
use super::server_session;
use super::wire::{self, LONGEST_REPLY, PROTOCOL, Reply, Request, ServerResult, TestRequest, Version};

/// How the client's end is called in plans and records.
pub const NAME: &str = "client";

/// For each answer of the server that it can give at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// From the order to open until all connections stand at both ends. The server's own time is shorter: it says why.
const OPEN_TIMEOUT: Duration = Duration::from_secs(25);
/// After the load, until both ends have sent their records.
const FINISH_TIMEOUT: Duration = Duration::from_secs(15);
/// After one end has failed, how long the other is heard: the cause may be told after its consequence.
const AFTERMATH: Duration = Duration::from_millis(300);
/// Round trips that the clocks are compared by, and the time after which fewer have to do.
const PINGS: u32 = 16;
const PING_TIME: Duration = Duration::from_millis(1500);
/// From the order to go until the start, beyond what a message takes to the server.
const LEAD: Duration = Duration::from_millis(50);

/// What the caller has to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Send(Request),
    /// Start a worker with this plan.
    Start(Box<WorkerPlan>),
    /// Hand the order to the worker.
    Order(Order),
    /// Exchange times by datagrams with who answers there, and call [`ClientSession::exchanged`].
    Exchange(SocketAddr, PathMarks),
    /// Read the machine's counters and call [`ClientSession::counted`].
    Count,
    /// An interim sample: the end's name and what it saw.
    Show(&'static str, Sample),
    /// The server is ready to be asked for a test.
    Ready(Box<Environment>),
    /// The test is done and the server ready for another.
    Done(Box<TestRecords>),
    /// It cannot go on. The last action.
    Fail(String),
}

/// Why clocks are not compared at all.
const OLD_SERVER: &str = "the server is of a version that does not compare clocks";

/// A test as both ends run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    pub client: Load,
    pub client_cpus: Vec<u32>,
    /// What the client's sockets are bound to.
    pub source: SourceBinding,
    pub server: Load,
    pub server_cpus: Vec<u32>,
    pub phases: Phases,
}

/// What both ends saw of one test. All times are on the client's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct TestRecords {
    pub client: WorkerRecord,
    pub client_machine: MachineUse,
    pub server: WorkerRecord,
    pub server_machine: MachineUse,
    pub clocks: Clocks,
    /// What one-way delays are known by; without it there are none.
    pub end_clocks: Option<EndClocks>,
    /// Why there is none, of a load that would have delays.
    pub uncompared: Option<String>,
}

#[derive(Debug)]
enum State {
    Greeting,
    Introduced,
    Idle,
    Comparing(Box<Comparison>),
    Opening { started: bool, here: bool, there: bool },
    Pinging { number: u32, sent_ns: u64, since_ns: u64, clocks: Option<Clocks> },
    Running(Box<RunningTrial>),
    Failing(FailureReasons),
    Over,
}

#[derive(Debug)]
struct RunningTrial {
    begin_ns: u64,
    end_ns: u64,
    clocks: Clocks,
    /// Samples that the server may still send.
    samples: u64,
    begin: Option<Reading>,
    end: Option<Reading>,
    record: Option<Box<WorkerRecord>>,
    ended: bool,
    done: Option<Box<ServerResult>>,
    /// Why the server, done with its end of this test, will not make another.
    farewell: Option<String>,
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

/// What each end said about a failure.
#[derive(Debug, Default)]
struct FailureReasons {
    here: Option<String>,
    there: Option<String>,
}

/// Whose lines are believed.
#[derive(Debug)]
enum Authentication {
    /// Without a key: all lines from the server's address.
    None,
    /// With a key, until the server's welcome asks for it.
    Key { key: Key, nonce: Nonce },
    /// With a key: only lines that are sealed with it.
    Sealed(Box<Seal>),
}

/// One control connection at the client.
#[derive(Debug)]
pub struct ClientSession {
    server: SocketAddr,
    /// `server` for messages.
    name: NamedAddress,
    test: Test,
    trust: Authentication,
    lines: Lines,
    state: State,
    /// Whether the server compares clocks.
    server_compares: bool,
    /// How far the clocks were apart before the load of this trial, where that is needed.
    clocks_before: Option<OffsetReading>,
    deadline_ns: u64,
    actions: VecDeque<Action>,
}

impl ClientSession {
    /// A connection to `server`, made at `now_ns`, over which `test` is to be run.
    pub fn new(server: SocketAddr, test: Test, now_ns: u64) -> Self {
        let (lines, state) = (Lines::new(LONGEST_REPLY), State::Greeting);
        let (deadline_ns, actions) = (after(now_ns, ANSWER_TIMEOUT), VecDeque::new());
        let (name, trust, server_compares, clocks_before) = (server.into(), Authentication::None, false, None);
        Self { server, name, test, trust, lines, state, server_compares, clocks_before, deadline_ns, actions }
    }

    /// One that believes only a server that has the key. `nonce` is used for no other.
    #[must_use]
    pub fn with_key(self, key: Key, nonce: Nonce) -> Self {
        Self { trust: Authentication::Key { key, nonce }, lines: Lines::new(LONGEST_REPLY + seal::PREFIX), ..self }
    }

    /// A request as it goes over the wire. To be called once for each [`Action::Send`], in their order.
    pub fn line(&mut self, request: &Request) -> Vec<u8> {
        match &mut self.trust {
            Authentication::Sealed(seal) => wire::sealed(request, seal),
            _ => wire::line(request),
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Self::time_is`] has to be called next; `None` when nothing is awaited.
    pub fn deadline_ns(&self) -> Option<u64> {
        match &self.state {
            State::Idle | State::Over => None,
            State::Running(running) => running.next_count_ns().or(Some(self.deadline_ns)),
            _ => Some(self.deadline_ns),
        }
    }

    /// Asks for a test, after [`Action::Ready`] or [`Action::Done`].
    pub fn begin(&mut self, now_ns: u64) {
        if !matches!(self.state, State::Idle) {
            return;
        }
        match self.server_compares && matches!(self.test.server, Load::UdpStream(_)) {
            true => self.compare_clocks(None, after(now_ns, ANSWER_TIMEOUT)),
            false => self.open(now_ns),
        }
    }

    fn open(&mut self, now_ns: u64) {
        let Test { server, server_cpus, phases, .. } = &self.test;
        let load = self.with_known_clocks(server);
        let ask = TestRequest { load, phases: *phases, cpus: server_cpus.clone(), peer_clock_ns: self.ahead_ns() };
        self.state = State::Opening { started: false, here: false, there: false };
        self.deadline_ns = after(now_ns, OPEN_TIMEOUT);
        self.actions.push_back(Action::Send(Request::Open(Box::new(ask))));
    }

    /// Bytes from the server, in pieces of any size.
    pub fn received(&mut self, bytes: &[u8], now_ns: u64) {
        if matches!(self.state, State::Over) {
            return;
        }
        self.lines.push(bytes);
        while !matches!(self.state, State::Over) {
            match self.lines.take() {
                Ok(None) => return,
                Ok(Some(line)) => match read(&mut self.trust, &self.state, line) {
                    Ok(ServerMessage::Welcome(server, line)) => self.welcomed(&server, &line, now_ns),
                    Ok(ServerMessage::Reply(reply)) => self.replied(*reply, now_ns),
                    Ok(ServerMessage::Broken(broken)) => {
                        let why =
                            format!("{} does not have the key, or another program is in between: {broken}", self.name);
                        self.fail(why);
                    }
                    Err((line, error)) => {
                        let said = wire::words(&String::from_utf8_lossy(&line[..line.len().min(100)]));
                        let why = wire::words(&error.to_string());
                        self.fail(format!("{} does not speak netrig's protocol: {said:?}: {why}", self.name));
                    }
                },
                Err(too_long) => self.fail(format!("{} does not speak netrig's protocol: {too_long}", self.name)),
            }
        }
    }

    fn replied(&mut self, reply: Reply, now_ns: u64) {
        match (reply, &mut self.state) {
            (Reply::Refused { why }, _) => self.leave(format!("the server refused: {}", wire::words(&why))),
            (Reply::Goodbye { why }, _) => self.leave(format!("the server is closing: {}", wire::words(&why))),
            (Reply::Failed { why }, State::Failing(failing)) => {
                failing.there = Some(wire::words(&why));
                self.lament();
            }
            (Reply::Failed { why }, _) => {
                let there = Some(wire::words(&why));
                self.failing(FailureReasons { here: None, there }, now_ns);
            }
            // What else comes from a server that has not heard of the failure yet.
            (_, State::Failing(_)) => {}
            (Reply::Machine(environment), State::Introduced) => {
                self.state = State::Idle;
                self.actions.push_back(Action::Ready(environment));
            }
            (Reply::Listening { port }, State::Opening { started, .. }) if !*started && port != 0 => {
                *started = true;
                self.start(port);
            }
            (Reply::Connected, State::Opening { there, .. }) => {
                *there = true;
                self.ping_when_connected(now_ns);
            }
            (Reply::Pong { number: answered, now_ns: server_ns }, State::Pinging { number, sent_ns, clocks, .. })
                if answered == *number =>
            {
                *clocks = Some(Clocks::with(*clocks, *sent_ns, now_ns, server_ns));
                self.ping_or_go(now_ns);
            }
            (Reply::Answering { port }, State::Comparing(comparison)) if comparison.is_asked() && port != 0 => {
                let mut to = self.server;
                to.set_port(port);
                comparison.exchanging();
                let marks = self.marks();
                self.actions.push_back(Action::Exchange(to, marks));
            }
            (Reply::Pong { number, now_ns: server_ns }, State::Comparing(comparison))
                if comparison.is_answered(number) =>
            {
                comparison.answered(now_ns, server_ns);
                self.compare_on(now_ns);
            }
            (Reply::Sample(sample), State::Running(running)) if running.samples > 0 => {
                running.samples -= 1;
                self.actions.push_back(Action::Show(server_session::NAME, *sample));
            }
            (Reply::Done(done), State::Running(running)) if running.done.is_none() => {
                running.done = Some(done);
                self.finish_when_complete(now_ns);
            }
            (reply, _) => {
                let name = match reply {
                    Reply::Welcome(_) => "welcome",
                    Reply::Machine(_) => "machine",
                    Reply::Answering { .. } => "answering",
                    Reply::Listening { .. } => "listening",
                    Reply::Connected => "connected",
                    Reply::Pong { .. } => "pong",
                    Reply::Sample(_) => "sample",
                    Reply::Done(_) => "done",
                    Reply::Goodbye { .. } => "goodbye",
                    Reply::Refused { .. } => "refused",
                    Reply::Failed { .. } => "failed",
                };
                self.fail(format!("the server sent '{name}' out of turn"));
            }
        }
    }

    /// The server's first line.
    fn welcomed(&mut self, server: &Version, line: &[u8], now_ns: u64) {
        let own = Version::own();
        if server.protocol != PROTOCOL {
            return self.fail(format!(
                "the server speaks version {} of the protocol (netrig {}), this is version {} (netrig {}): use the same \
                 netrig at both ends",
                server.protocol,
                wire::words(&server.version),
                own.protocol,
                own.version,
            ));
        }
        let own = match (&self.trust, server.nonce) {
            (Authentication::Key { key, nonce }, Some(challenge)) => {
                let own = Version::with_nonce(*nonce);
                self.trust = Authentication::Sealed(Seal::new(End::Client, key, challenge, *nonce, line).into());
                own
            }
            (Authentication::None, None) => own,
            (Authentication::None, Some(_)) => {
                return self.fail(format!("the server at {} asks for its key: give it with --key-file", self.name));
            }
            (_, None) => {
                return self.fail(format!(
                    "the server at {} does not ask for a key, so it cannot prove who it is: start it with \
                     --key-file, or leave --key-file out here",
                    self.name
                ));
            }
            (Authentication::Sealed(_), Some(_)) => return self.fail("the server sent 'welcome' out of turn".into()),
        };
        self.server_compares = server.compares_clocks;
        self.state = State::Introduced;
        self.deadline_ns = after(now_ns, ANSWER_TIMEOUT);
        self.actions.push_back(Action::Send(Request::Hello(own)));
    }

    fn start(&mut self, port: u16) {
        let mut to = self.server;
        to.set_port(port);
        let Test { client, client_cpus, source, phases, .. } = &self.test;
        let plan = WorkerPlan {
            name: NAME.into(),
            cpus: client_cpus.clone(),
            role: Role::Connect { to, source: source.clone() },
            load: self.with_known_clocks(client),
            phases: *phases,
            ceiling: None,
            peer_clock_ns: self.ahead_ns().saturating_neg(),
        };
        self.actions.push_back(Action::Start(Box::new(plan)));
    }

    fn ping_when_connected(&mut self, now_ns: u64) {
        if matches!(self.state, State::Opening { started: true, here: true, there: true }) {
            self.state = State::Pinging { number: 0, sent_ns: now_ns, since_ns: now_ns, clocks: None };
            self.ping_or_go(now_ns);
        }
    }

    fn ping_or_go(&mut self, now_ns: u64) {
        let State::Pinging { number, sent_ns, since_ns, clocks } = &mut self.state else { return };
        match *clocks {
            Some(clocks) if *number >= PINGS || now_ns >= after(*since_ns, PING_TIME) => self.go(clocks, now_ns),
            _ => {
                *number += 1;
                *sent_ns = now_ns;
                self.deadline_ns = after(now_ns, ANSWER_TIMEOUT);
                self.actions.push_back(Action::Send(Request::Ping { number: *number }));
            }
        }
    }

    fn go(&mut self, clocks: Clocks, now_ns: u64) {
        let phases = self.test.phases;
        let start_ns = after(now_ns, LEAD).saturating_add(clocks.longest_ns.saturating_mul(2));
        let Times { begin_ns, end_ns, stop_ns, .. } = phases.starting_at(start_ns);
        self.deadline_ns = after(stop_ns, FINISH_TIMEOUT);
        self.state = State::Running(Box::new(RunningTrial {
            begin_ns,
            end_ns,
            clocks,
            samples: records::most_samples(&phases),
            begin: None,
            end: None,
            record: None,
            ended: false,
            done: None,
            farewell: None,
        }));
        self.actions.push_back(Action::Send(Request::Go { start_ns: clocks.to_server(start_ns) }));
        self.actions.push_back(Action::Order(Order::Go { start_ns }));
    }

    /// What the client's worker said.
    pub fn worker_said(&mut self, event: Event, now_ns: u64) {
        match (event, &mut self.state) {
            (_, State::Over | State::Failing(FailureReasons { here: Some(_), .. })) => {}
            (Event::Failed { what, why }, _) => self.failed_here(&format!("{what}: {why}"), now_ns),
            (_, State::Failing(_)) => {}
            (Event::Connected, State::Opening { here, .. }) => {
                *here = true;
                self.ping_when_connected(now_ns);
            }
            (Event::Sample(sample), State::Running(_)) => self.actions.push_back(Action::Show(NAME, sample)),
            (Event::Done(record), State::Running(running)) if running.begin.is_some() => {
                running.record = Some(record);
                if running.end.is_none() {
                    self.actions.push_back(Action::Count);
                }
            }
            (Event::Done(_), State::Running(_)) => self.failed_here(BEGIN_MISSED, now_ns),
            (event, _) => self.failed_here(&format!("the worker sent '{}' out of turn", event.name()), now_ns),
        }
    }

    /// The worker's output has ended, and so has the worker: well, or how.
    pub fn worker_ended(&mut self, how: Result<(), String>, now_ns: u64) {
        match (how, &mut self.state) {
            (_, State::Over | State::Failing(FailureReasons { here: Some(_), .. })) => {}
            (Ok(()), State::Running(running)) if running.record.is_some() => {
                running.ended = true;
                self.finish_when_complete(now_ns);
            }
            (Ok(()), _) => self.failed_here("the worker ended without a record", now_ns),
            (Err(how), _) => self.failed_here(&how, now_ns),
        }
    }

    /// The worker that [`Action::Start`] asked for cannot be had.
    pub fn not_started(&mut self, why: &dyn std::fmt::Display) {
        self.fail(format!("start the client's worker: {why}"));
    }

    /// The counters that [`Action::Count`] asked for.
    pub fn counted(&mut self, reading: Reading, now_ns: u64) {
        if let State::Running(running) = &mut self.state {
            if running.begin.is_none() {
                running.begin = Some(reading);
            } else {
                running.end.get_or_insert(reading);
            }
        }
        self.finish_when_complete(now_ns);
    }

    /// The server closed the connection.
    pub fn closed(&mut self, why: &dyn std::fmt::Display) {
        match &mut self.state {
            State::Over => {}
            State::Failing(_) => self.lament(),
            _ => self.leave(format!("the server at {} closed the control connection: {why}", self.name)),
        }
    }

    /// The server says no more. A test that it has reported is finished all the same: a server that stops says goodbye
    /// right after the report, when this end's worker may be about to end.
    fn leave(&mut self, why: String) {
        match &mut self.state {
            State::Running(running) if running.done.is_some() => {
                running.farewell.get_or_insert(why);
            }
            _ => self.fail(why),
        }
    }

    /// What there is to do at `now_ns` because time has passed.
    pub fn time_is(&mut self, now_ns: u64) {
        match &self.state {
            State::Idle | State::Over => return,
            State::Running(running) if running.next_count_ns().is_some_and(|due_ns| now_ns >= due_ns) => {
                return self.actions.push_back(Action::Count);
            }
            _ => {}
        }
        if now_ns < self.deadline_ns {
            return;
        }
        let silent = format!("the server at {} did not answer within {ANSWER_TIMEOUT:?}", self.name);
        match &self.state {
            State::Greeting => self.fail(format!("{silent}: does netrig listen on that port?")),
            State::Introduced | State::Pinging { .. } | State::Comparing(_) => self.fail(silent),
            State::Opening { there: true, .. } => {
                self.fail(format!("the client's connections were not open within {OPEN_TIMEOUT:?}"));
            }
            State::Opening { .. } => {
                self.fail(format!("the server's connections were not open within {OPEN_TIMEOUT:?}"));
            }
            State::Running(running) => {
                let who = if running.done.is_none() { "the server" } else { "the client's worker" };
                self.fail(format!("{who} did not report within {FINISH_TIMEOUT:?} of the end"));
            }
            State::Failing(_) => self.lament(),
            State::Idle | State::Over => {}
        }
    }

    fn finish_when_complete(&mut self, now_ns: u64) {
        let complete = |running: &RunningTrial| {
            running.ended && running.end.is_some() && running.record.is_some() && running.done.is_some()
        };
        if !matches!(&self.state, State::Running(running) if complete(running)) {
            return;
        }
        let State::Running(running) = std::mem::replace(&mut self.state, State::Idle) else { return };
        let RunningTrial {
            clocks,
            begin: Some(begin),
            end: Some(end),
            record: Some(client),
            done: Some(done),
            farewell,
            ..
        } = *running
        else {
            return;
        };
        let direction = {
            let address = self.server;
            let role = Role::Listen { address, only_from: None };
            let (load, phases) = (self.test.server.clone(), self.test.phases);
            WorkerPlan { name: String::new(), cpus: Vec::new(), role, load, phases, ceiling: None, peer_clock_ns: 0 }
                .direction()
        };
        if let Err(what) = records::check(&done, &self.test.server, &self.test.phases, direction) {
            return self.fail(format!("the server's record does not fit the test: {what}"));
        }
        let ServerResult { record: mut server, machine: mut server_machine } = *done;
        server_session::NAME.clone_into(&mut server.name);
        for time in [
            &mut server.window_begin_ns,
            &mut server.window_end_ns,
            &mut server_machine.begin_ns,
            &mut server_machine.end_ns,
        ] {
            *time = clocks.to_client(*time);
        }
        let client_machine = begin.until(&end);
        let (end_clocks, uncompared) = (None, None);
        let client = *client;
        let ends = TestRecords { client, client_machine, server, server_machine, clocks, end_clocks, uncompared };
        match (self.clocks_before.take(), farewell) {
            (Some(before), None) => {
                self.compare_clocks(Some((ends, before)), after(now_ns, ANSWER_TIMEOUT));
            }
            (before, farewell) => {
                let has_delays = matches!(self.test.server, Load::UdpStream(_));
                let why = match (before, &farewell) {
                    (None, _) => OLD_SERVER.to_owned(),
                    (Some(_), farewell) => farewell.clone().unwrap_or_default(),
                };
                self.done(ends, has_delays.then_some(why));
                if let Some(why) = farewell {
                    self.fail(why);
                }
            }
        }
    }

    fn failed_here(&mut self, why: &str, now_ns: u64) {
        let why = wire::words(why);
        match &mut self.state {
            State::Failing(failing) => {
                failing.here = Some(why);
                self.lament();
            }
            _ => self.failing(FailureReasons { here: Some(why), there: None }, now_ns),
        }
    }

    fn failing(&mut self, failing: FailureReasons, now_ns: u64) {
        let why = failing.here.iter().chain(&failing.there).map(String::as_str).collect::<Vec<_>>().join("; ");
        self.stop_for(State::Failing(failing), why);
        self.deadline_ns = after(now_ns, AFTERMATH);
    }

    /// Gives up all but a test that is done.
    fn stop_for(&mut self, state: State, why: String) {
        if let State::Comparing(comparison) = std::mem::replace(&mut self.state, state)
            && let Some((ends, _)) = comparison.ends
        {
            self.done(ends, Some(why));
        }
        self.actions.retain(|action| matches!(action, Action::Done(_)));
    }

    /// Tells what both ends said.
    fn lament(&mut self) {
        let State::Failing(failing) = &mut self.state else { return };
        let here = failing.here.take().map(|why| format!("the client's end failed: {why}"));
        let there = failing.there.take().map(|why| format!("the server's end failed: {why}"));
        let words: Vec<String> = here.into_iter().chain(there).collect();
        self.fail(words.join("; "));
    }

    fn fail(&mut self, why: String) {
        if matches!(self.state, State::Over) {
            return;
        }
        self.stop_for(State::Over, why.clone());
        self.actions.push_back(Action::Fail(why));
    }
}

/// What a line says.
enum ServerMessage {
    /// The first line, and its bytes.
    Welcome(Version, Vec<u8>),
    Reply(Box<Reply>),
    Broken(SealError),
}

/// Reads a line, as far as it is to be believed; else the line and what is wrong with it.
fn read<'a>(
    trust: &mut Authentication,
    state: &State,
    line: &'a [u8],
) -> Result<ServerMessage, (&'a [u8], serde_json::Error)> {
    let parse = |json| serde_json::from_slice::<Reply>(json).map_err(|error| (json, error));
    let json = match trust {
        Authentication::Sealed(seal) => match seal.open(line) {
            Ok(json) => json,
            // A server without this key cannot seal its refusal. An attacker may have sent it: it can only make the test fail.
            Err(SealError::Missing) if matches!(state, State::Introduced) => {
                return Ok(match parse(line) {
                    Ok(reply @ (Reply::Refused { .. } | Reply::Goodbye { .. })) => ServerMessage::Reply(reply.into()),
                    _ => ServerMessage::Broken(SealError::Missing),
                });
            }
            Err(broken) => return Ok(ServerMessage::Broken(broken)),
        },
        _ => line,
    };
    match parse(json)? {
        Reply::Welcome(server) if matches!(state, State::Greeting) => Ok(ServerMessage::Welcome(server, line.to_vec())),
        reply => Ok(ServerMessage::Reply(reply.into())),
    }
}

fn after(ns: u64, time: Duration) -> u64 {
    ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
