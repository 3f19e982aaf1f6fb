//! What is fuzzed, and replayed from a corpus by an ordinary test: each function plays a script against one end of the
//! conversation and panics when a promise is broken.
//!
//! A script is lines; the first byte says what happens:
//!
//! | byte | event |
//! |---|---|
//! | `>` | the rest of the line and a line feed come over the wire |
//! | `+` | the rest of the line comes over the wire, without a line feed |
//! | `t` | so many milliseconds pass |
//! | `w` | the worker says the rest of the line |
//! | `e` | the worker ends well |
//! | `x` | the worker dies |
//! | `n` | the worker cannot be started |
//! | `s` | the server shuts down, or the connection ends |
//! | `=` | the rest of the line comes sealed, as the next that the other end says |
//! | `k` | (first line alone) there is a key at both ends |
//! | `u` | (first line alone, before that one) the client wants datagrams |
//! | other | the whole line and a line feed come over the wire |

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rig_facts::record::Environment;
use rig_load::plan::{
    Datagrams, Engine, Flow, Load, Pacing, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan,
};
use rig_load::protocol::{Event, Order};
use rig_report::{Format, Options};
use rig_sys::counters::CpuTicks;
use rig_testbed::accounting::CpuReading;

use super::client_session::{self, ClientSession, Test};
use super::limits::Limits;
use super::machine::Reading;
use super::report;
use super::seal::{End, Key, Nonce, PREFIX, Seal};
use super::server_session::{self, ServerSession};
use super::wire::{self, LONGEST_REQUEST, Reply, TestRequest, Version};

/// A script that is longer says nothing new.
const LONGEST: usize = 1 << 20;

/// One event of a script.
enum Step<'a> {
    Wire(Vec<u8>),
    Sealed(&'a [u8]),
    Time(u64),
    Worker(&'a [u8]),
    Ended(Result<(), String>),
    NotStarted,
    Stop,
}

fn steps(script: &[u8]) -> impl Iterator<Item = Step<'_>> {
    script[..script.len().min(LONGEST)].split(|&byte| byte == b'\n').map(|line| {
        let rest = line.get(1..).unwrap_or_default();
        match line.first() {
            Some(b'>') => Step::Wire([rest, b"\n"].concat()),
            Some(b'=') => Step::Sealed(rest),
            Some(b'+') => Step::Wire(rest.to_vec()),
            Some(b't') => Step::Time(str::from_utf8(rest).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1)),
            Some(b'w') => Step::Worker(rest),
            Some(b'e') => Step::Ended(Ok(())),
            Some(b'x') => Step::Ended(Err("killed".into())),
            Some(b'n') => Step::NotStarted,
            Some(b's') => Step::Stop,
            _ => Step::Wire([line, b"\n"].concat()),
        }
    })
}

/// The script, and whether both ends have a key.
fn keyed(script: &[u8]) -> (&[u8], bool) {
    script.strip_prefix(b"k\n").map_or((script, false), |rest| (rest, true))
}

/// The key of scripts that begin with `k`, and the nonces of the server and of the client.
fn key() -> Key {
    Key::new(&[b'k'; 32]).expect("it is long enough")
}

const NONCES: (Nonce, Nonce) = (Nonce::fixed(1), Nonce::fixed(2));

/// What the other end says next.
fn sealed(seal: &mut Option<Seal>, json: &[u8]) -> Vec<u8> {
    let mut line = seal.as_mut().map_or_else(|| json.to_vec(), |seal| seal.seal(json));
    line.push(b'\n');
    line
}

/// A machine of one CPU that is busy half of the time.
fn reading(now_ns: u64) -> Reading {
    let ticks = now_ns / 20_000_000;
    let cpu = CpuTicks { user: ticks, idle: ticks, ..CpuTicks::default() };
    let ticks = BTreeMap::from([(0, cpu)]);
    let cpus = CpuReading { at_ns: now_ns, ticks, idle_clocked: true, ..CpuReading::default() };
    Reading { machine: cpus.into(), ..Reading::default() }
}

/// Plays a script against a server that a client has just connected to. Returns how many tests came to their end.
///
/// # Panics
/// When the server would start what its limits forbid, or anything for a client without its key, use anything that the client
/// chose for a name or an address, keep a second worker, go on after the end, or wait for ever.
pub fn server(script: &[u8]) -> u32 {
    let peer: SocketAddr = ([192, 0, 2, 1], 4000).into();
    let local: SocketAddr = ([192, 0, 2, 2], wire::PORT).into();
    let limits =
        Limits { rate: None, cpus: vec![0, 1], congestion_controls: vec!["cubic".into()], ..Limits::default() };
    let longest = limits.time + Duration::from_secs(120);
    let environment = Arc::new(Environment::default());
    let mut now_ns = 1_000_000_000_000;
    let mut session = ServerSession::new(peer, local, Arc::new(limits.clone()), environment, now_ns);
    let (script, is_keyed) = keyed(script);
    let (mut seal, mut is_proven) = (None, !is_keyed);
    if is_keyed {
        session = session.with_key(key(), NONCES.0);
        let welcome = wire::line(&Reply::Welcome(Version::with_nonce(NONCES.0)));
        let welcome = welcome.strip_suffix(b"\n").unwrap_or(&welcome);
        seal = Some(Seal::new(End::Client, &key(), NONCES.0, NONCES.1, welcome));
    }
    let (mut worker, mut closed, mut done) = (None, false, 0);
    let mut answering = false;
    for step in steps(script) {
        match step {
            Step::Wire(bytes) => session.received(&bytes, now_ns),
            Step::Sealed(json) => {
                is_proven = true;
                session.received(&sealed(&mut seal, json), now_ns);
            }
            Step::Time(ms) => {
                now_ns += ms.min(1_000_000) * 1_000_000;
                session.time_is(now_ns);
            }
            Step::Worker(line) if worker.is_some() => {
                if let Ok(event) = serde_json::from_slice::<Event>(line) {
                    session.worker_said(event, now_ns);
                }
            }
            Step::Ended(how) if worker.take().is_some() => session.worker_ended(how, now_ns),
            Step::Stop => session.shut_down(),
            Step::Worker(_) | Step::Ended(_) | Step::NotStarted => {}
        }
        while let Some(action) = session.next_action() {
            assert!(!closed, "{action:?} after the end");
            match action {
                server_session::Action::Reply(reply) => {
                    done += u32::from(matches!(reply, Reply::Done(_)));
                    assert_is_a_line(&session.line(&reply), wire::LONGEST_REPLY + PREFIX);
                }
                server_session::Action::Answer(address, _) => {
                    assert!(!answering && worker.is_none(), "what has the port of the load");
                    assert!(is_proven, "answers to who has no key");
                    assert_eq!(address, SocketAddr::new(local.ip(), 0));
                    answering = true;
                    session.answering(7);
                }
                server_session::Action::EndAnswering => answering = false,
                server_session::Action::Start(plan) => {
                    assert!(!answering, "what has the port of the load");
                    assert!(worker.is_none(), "a second worker");
                    assert!(is_proven, "a worker for who has no key");
                    assert_is_harmless(*plan, local, peer, &limits);
                    worker = Some(false);
                }
                server_session::Action::Order(Order::Go { start_ns }) => {
                    assert_eq!(worker.replace(true), Some(false), "an order to no worker, or twice");
                    assert!(start_ns >= now_ns);
                }
                server_session::Action::Order(order) => panic!("{order:?} is the caller's"),
                server_session::Action::Count => session.counted(reading(now_ns)),
                server_session::Action::Close => {
                    closed = true;
                    (worker, answering) = (None, false);
                }
            }
        }
        match session.deadline_ns() {
            None => assert!(closed, "it waits for ever"),
            Some(deadline_ns) => {
                assert!(!closed && deadline_ns <= now_ns + longest.as_nanos() as u64, "it waits for too long");
            }
        }
        assert!(closed || worker.is_some() == session.is_testing(), "a worker without a test, or a test without");
    }
    done
}

fn assert_is_a_line(line: &[u8], longest: usize) {
    assert!(line.len() <= longest && line.iter().filter(|&&byte| byte == b'\n').count() == 1 && line.ends_with(b"\n"));
}

fn assert_is_harmless(plan: WorkerPlan, local: SocketAddr, peer: SocketAddr, limits: &Limits) {
    plan.validate().expect("a plan is checked before it is used");
    let Role::Listen { address, only_from } = plan.role else { panic!("a server does not connect") };
    assert_eq!((address, only_from), (SocketAddr::new(local.ip(), 0), Some(peer.into())));
    assert_eq!(plan.name, server_session::NAME);
    let WorkerPlan { load, phases, cpus, peer_clock_ns, .. } = plan;
    let ask = TestRequest { load, phases, cpus, peer_clock_ns };
    limits.check(&ask).expect("what is beyond the limits is refused");
}

/// Plays a script against a client that has just connected to a server, and that wants tests of a TCP stream, or of datagrams, for as long
/// as it gets them. Returns how many came to their end.
///
/// # Panics
/// When the client would connect to anywhere but the server, show a user what may harm a terminal, compute a report that
/// cannot be written, go on after the end, or wait for ever.
pub fn client(script: &[u8]) -> u32 {
    let server: SocketAddr = ([192, 0, 2, 2], wire::PORT).into();
    let (script, test) = match script.strip_prefix(b"u\n") {
        Some(rest) => (rest, datagrams()),
        None => (script, test()),
    };
    let mut now_ns = 5_000_000_000;
    let mut client = ClientSession::new(server, test.clone(), now_ns);
    let (script, is_keyed) = keyed(script);
    let (mut seal, mut is_proven) = (None, !is_keyed);
    if is_keyed {
        client = client.with_key(key(), NONCES.1);
    }
    let (mut worker, mut over, mut done) = (false, false, 0);
    for step in steps(script) {
        match step {
            Step::Wire(bytes) => {
                if is_keyed && seal.is_none() {
                    // The server's welcome, if it is one.
                    let welcome = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
                    seal = Some(Seal::new(End::Server, &key(), NONCES.0, NONCES.1, welcome));
                }
                client.received(&bytes, now_ns);
            }
            Step::Sealed(json) => {
                is_proven = true;
                client.received(&sealed(&mut seal, json), now_ns);
            }
            Step::Time(ms) => {
                now_ns += ms.min(1_000_000) * 1_000_000;
                client.time_is(now_ns);
            }
            Step::Worker(line) if worker => {
                if let Ok(event) = serde_json::from_slice::<Event>(line) {
                    client.worker_said(event, now_ns);
                }
            }
            Step::Ended(how) if worker => {
                worker = false;
                client.worker_ended(how, now_ns);
            }
            Step::Stop => client.closed(&"end of file"),
            Step::NotStarted if worker => {
                worker = false;
                client.not_started(&"no memory");
            }
            Step::Worker(_) | Step::Ended(_) | Step::NotStarted => {}
        }
        while let Some(action) = client.next_action() {
            assert!(!over, "{action:?} after the end");
            match action {
                client_session::Action::Send(request) => {
                    assert_is_a_line(&client.line(&request), LONGEST_REQUEST + PREFIX);
                }
                client_session::Action::Start(plan) => {
                    assert!(!worker, "a second worker");
                    assert!(is_proven, "a worker for a server that has no key");
                    plan.validate().expect("the client's own plan");
                    let Role::Connect { to, .. } = plan.role else { panic!("a client does not listen") };
                    assert_eq!(to.ip(), server.ip());
                    worker = true;
                }
                client_session::Action::Order(Order::Go { start_ns }) => assert!(start_ns >= now_ns),
                client_session::Action::Order(order) => panic!("{order:?} is the caller's"),
                client_session::Action::Exchange(to, _) => {
                    assert!(is_proven, "datagrams to a server that has no key");
                    assert_eq!(to.ip(), server.ip());
                    client.exchanged(None, now_ns);
                }
                client_session::Action::Count => client.counted(reading(now_ns), now_ns),
                client_session::Action::Show(..) => {}
                client_session::Action::Ready(_) => client.begin(now_ns),
                client_session::Action::Done(ends) => {
                    assert!(!worker, "a worker that outlives its test");
                    assert_can_be_reported(&ends, &test);
                    done += 1;
                    client.begin(now_ns);
                }
                client_session::Action::Fail(why) => {
                    over = true;
                    assert!(why.len() < 10_000 && !why.contains(char::is_control), "{why:?}");
                }
            }
        }
        assert!(over || client.deadline_ns().is_some(), "it waits for ever");
    }
    done
}

/// The test that [`client`] wants.
pub(super) fn test() -> Test {
    let phases = Phases {
        warm_up: Duration::from_millis(100),
        window: Duration::from_secs(1),
        cool_down: Duration::from_millis(100),
        interval: Duration::from_millis(500),
    };
    let load = Load::TcpStream(TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections: 2,
        message: 4096,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: None,
        engine: Engine::Blocking,
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
        options: Default::default(),
    });
    Test {
        client: load.clone(),
        client_cpus: Vec::new(),
        source: Default::default(),
        server: load,
        server_cpus: Vec::new(),
        phases,
    }
}

/// The same of datagrams.
pub(super) fn datagrams() -> Test {
    let load = Load::UdpStream(Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 2,
        message: 1024,
        batch: 1,
        segments: 1,
        coalesce: false,
        throttle: Some(1 << 20),
        pacing: Pacing::Thread,
        shared_clock: false,
        send_buffer: None,
        receive_buffer: None,
        options: Default::default(),
    });
    Test { client: load.clone(), server: load, ..test() }
}

fn assert_can_be_reported(ends: &client_session::TestRecords, test: &Test) {
    let environment = Environment::default();
    let trial = report::trial(ends, &test.client, 1, 0);
    let document = report::document(&report::TestResult {
        host: "server",
        run: None,
        turns: None,
        test,
        source: None,
        trials: std::slice::from_ref(&trial),
        partial: None,
        planned: 1,
        started_unix_ms: 0,
        server: None,
        client: &environment,
        failure: Some("it did"),
    });
    for format in [Format::Terminal, Format::Json, Format::Openmetrics] {
        let mut text = Vec::new();
        rig_report::write(&document, format, Options::default(), &mut text).expect("memory takes everything");
        assert!(!text.contains(&0x1b), "what the server said reaches the terminal");
    }
}
