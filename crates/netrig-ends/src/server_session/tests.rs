use rig_load::plan::{Engine, Flow, Load, ReceiveMode, SendMode, TcpStream};
use rig_testbed::accounting::CpuReading;

use super::*;
use crate::wire::{LONGEST_REPLY, Version};

const MS: u64 = 1_000_000;
const START: u64 = 1_000_000 * MS;

fn stream() -> TcpStream {
    TcpStream {
        flow: Flow::Forward,
        threads: 2,
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
    }
}

fn reading(at_ns: u64) -> Reading {
    Reading { machine: CpuReading { at_ns, ..CpuReading::default() }.into(), ..Reading::default() }
}

fn ask() -> TestRequest {
    let second = Duration::from_secs(1);
    let phases = Phases { warm_up: second, window: second, cool_down: second, interval: second };
    TestRequest { load: Load::TcpStream(stream()), phases, cpus: Vec::new(), peer_clock_ns: 0 }
}

/// A session with a clock of its own.
struct Table {
    session: ServerSession,
    now_ns: u64,
}

impl Table {
    fn with(limits: Limits) -> Self {
        let (peer, local) = (([10, 0, 0, 1], 4000).into(), ([10, 0, 0, 2], 12_620).into());
        let session = ServerSession::new(peer, local, limits.into(), Environment::default().into(), START);
        let mut table = Self { session, now_ns: START };
        assert_eq!(table.actions(), [Action::Reply(Reply::Welcome(Version::own()))]);
        table
    }

    fn new() -> Self {
        Self::with(Limits { cpus: vec![0, 1], congestion_controls: vec!["cubic".into()], ..Limits::default() })
    }

    /// One that has said hello.
    fn greeted() -> Self {
        let mut table = Self::new();
        table.says(&Request::Hello(Version::own()));
        assert!(matches!(table.actions()[..], [Action::Reply(Reply::Machine(_))]));
        table
    }

    /// One whose connections stand.
    fn ready() -> Self {
        let mut table = Self::greeted();
        table.says(&Request::Open(ask().into()));
        assert!(matches!(table.actions()[..], [Action::Start(_)]));
        table.session.worker_said(Event::Listening { port: 7 }, table.now_ns);
        table.session.worker_said(Event::Connected, table.now_ns);
        assert_eq!(table.actions(), [Action::Reply(Reply::Listening { port: 7 }), Action::Reply(Reply::Connected)]);
        table
    }

    fn running() -> Self {
        let mut table = Self::ready();
        let start_ns = table.now_ns + 100 * MS;
        table.says(&Request::Go { start_ns });
        assert_eq!(table.actions(), [Action::Order(Order::Go { start_ns })]);
        table
    }

    fn says(&mut self, request: &Request) {
        self.session.received(&wire::line(request), self.now_ns);
    }

    fn pass(&mut self, ms: u64) {
        self.now_ns += ms * MS;
        self.session.time_is(self.now_ns);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.next_action()).collect()
    }

    #[track_caller]
    fn closes_with(&mut self, words: &[&str]) {
        let actions = self.actions();
        let [.., Action::Reply(last), Action::Close] = &actions[..] else {
            panic!("it goes on: {actions:?}");
        };
        let (Reply::Refused { why } | Reply::Failed { why } | Reply::Goodbye { why }) = last else {
            panic!("it does not say why: {last:?}");
        };
        for word in words {
            assert!(why.contains(word), "'{word}' is not in: {why}");
        }
        assert_eq!(self.session.deadline_ns(), None);
        assert!(!self.session.is_testing());
        // Requests and events after that are ignored.
        self.says(&Request::Hello(Version::own()));
        self.session.worker_said(Event::Connected, self.now_ns);
        self.session.worker_ended(Ok(()), self.now_ns);
        self.session.shut_down();
        self.pass(1_000_000);
        assert_eq!(self.actions(), []);
    }
}

fn record() -> Box<WorkerRecord> {
    let text = r#"{"name":"x","direction":"receive","engine":"blocking","send_mode":"copy","receive_mode":"copy",
        "window_begin_ns":1,"window_end_ns":2,"process_cpu":{"user_ns":0,"system_ns":0},"threads":[],"connections":[],
        "samples":[],"zerocopy_copied":0,"notes":[]}"#;
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_test_from_hello_to_done_and_another_one() {
    let mut table = Table::greeted();
    for _ in 0..2 {
        table.says(&Request::Open(ask().into()));
        let actions = table.actions();
        let [Action::Start(plan)] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(plan.name, NAME);
        let (address, only_from) = (([10, 0, 0, 2], 0).into(), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(plan.role, Role::Listen { address, only_from });
        table.session.worker_said(Event::Listening { port: 7 }, table.now_ns);
        table.session.worker_said(Event::Connected, table.now_ns);
        table.actions();
        table.says(&Request::Ping { number: 3 });
        assert_eq!(table.actions(), [Action::Reply(Reply::Pong { number: 3, now_ns: table.now_ns })]);
        let start_ns = table.now_ns + 100 * MS;
        table.says(&Request::Go { start_ns });
        table.actions();
        // The counters are read at the edges of the window, a second after the start and two.
        for (wait, at) in [(1099, []), (1000, [])] as [(u64, [Action; 0]); 2] {
            table.pass(wait);
            assert_eq!(table.actions(), at);
            assert_eq!(table.session.deadline_ns(), Some(table.now_ns + MS));
            table.pass(1);
            assert_eq!(table.actions(), [Action::Count]);
            table.session.counted(reading(table.now_ns));
            table.now_ns -= MS;
        }
        table.session.worker_said(Event::Done(record()), table.now_ns);
        assert_eq!(table.actions(), []);
        table.session.worker_ended(Ok(()), table.now_ns);
        let actions = table.actions();
        let [Action::Reply(Reply::Done(done))] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!(done.machine.end_ns - done.machine.begin_ns, 1000 * MS);
        assert!(!table.session.is_testing());
    }
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let mut table = Table::new();
    for byte in wire::line(&Request::Hello(Version::own())) {
        assert_eq!(table.actions(), []);
        table.session.received(&[byte], table.now_ns);
    }
    assert!(matches!(table.actions()[..], [Action::Reply(Reply::Machine(_))]));
}

#[test]
fn who_speaks_another_version_is_told_both() {
    let mut table = Table::new();
    table.says(&Request::Hello(Version { protocol: 99, version: "9.9\u{1b}[2J".into(), ..Version::own() }));
    table.closes_with(&["version 99", "9.9", "version 2", "same netrig"]);
}

#[test]
fn garbage_ends_the_session() {
    for bytes in
        [&b"GET / HTTP/1.1\r\n"[..], b"\0\0\0\x10\n", b"\n", b"{}\n", b"[[[[[[\n", b"{\"hello\":1}\n", b"\xff\n"]
    {
        let mut table = Table::new();
        table.session.received(bytes, START);
        table.closes_with(&["cannot understand the client"]);
    }
    let mut table = Table::new();
    table.session.received(&[b'['; LONGEST_REQUEST], START);
    assert_eq!(table.actions(), []);
    table.session.received(b"[", START);
    table.closes_with(&["line 1 is longer than 16384 bytes"]);
    let mut nested = Table::new();
    let text = format!("{{\"hello\":{{\"protocol\":1,\"version\":\"\",\"more\":{}\n", "[".repeat(10_000));
    nested.session.received(text.as_bytes(), START);
    nested.closes_with(&["cannot understand the client"]);
}

#[test]
fn a_slow_loris_is_dropped() {
    let mut table = Table::new();
    // A byte a second does not buy time.
    for byte in wire::line(&Request::Hello(Version::own())).iter().take(4) {
        table.session.received(&[*byte], table.now_ns);
        table.pass(1000);
        assert_eq!(table.actions(), []);
    }
    table.pass(1000);
    table.closes_with(&["no hello within 5s", "--handshake-timeout"]);

    let mut table = Table::greeted();
    for _ in 0..29 {
        table.session.received(b"{", table.now_ns);
        table.pass(1000);
    }
    assert_eq!(table.actions(), []);
    table.pass(1000);
    table.closes_with(&["no test asked for within 30s", "--idle-timeout"]);
}

#[test]
fn what_comes_out_of_turn_is_refused() {
    let hello = Request::Hello(Version::own());
    let (open, ping, go) = (Request::Open(ask().into()), Request::Ping { number: 1 }, Request::Go { start_ns: START });
    type Begin = fn() -> Table;
    let cases: [(Begin, &[&Request]); 4] = [
        (Table::new, &[&open, &ping, &go]),
        (Table::greeted, &[&hello, &ping, &go]),
        (Table::ready, &[&hello, &open]),
        (Table::running, &[&hello, &open, &ping, &go]),
    ];
    for (table, requests) in cases {
        for request in requests {
            let mut table = table();
            table.says(request);
            table.closes_with(&["out of turn"]);
        }
    }
    let mut table = Table::ready();
    for number in 0..PINGS {
        table.says(&Request::Ping { number });
    }
    assert_eq!(table.actions().len(), PINGS as usize);
    table.says(&Request::Ping { number: 1 });
    table.closes_with(&["'ping' out of turn"]);
}

#[test]
fn a_start_has_to_lie_a_little_ahead() {
    for (ahead, words) in [(-1, "after the time it named"), (20_001, "more than 20s ahead")] {
        let mut table = Table::ready();
        let start_ns = table.now_ns.checked_add_signed(ahead * MS as i64).unwrap();
        table.says(&Request::Go { start_ns });
        table.closes_with(&[words]);
    }
    let mut table = Table::ready();
    table.says(&Request::Go { start_ns: u64::MAX });
    table.closes_with(&["ahead"]);
}

#[test]
fn no_state_lasts_for_ever() {
    let mut table = Table::greeted();
    table.says(&Request::Open(ask().into()));
    table.actions();
    table.pass(20_000);
    table.closes_with(&["were not open within 20s"]);
    let mut table = Table::ready();
    table.pass(20_000);
    table.closes_with(&["no order to start within 20s"]);
    let mut table = Table::running();
    for _ in 0..2 {
        let due_ns = table.session.deadline_ns().unwrap();
        table.now_ns = due_ns;
        table.pass(0);
        assert_eq!(table.actions(), [Action::Count]);
        table.session.counted(Reading::default());
    }
    table.now_ns = table.session.deadline_ns().unwrap();
    // Start, warm-up, window, cool-down, and the time to report.
    assert_eq!(table.now_ns, START + (100 + 3000 + 10_000) * MS);
    table.pass(0);
    table.closes_with(&["did not report"]);
}

#[test]
fn a_worker_that_fails_is_the_clients_matter() {
    let failed = || Event::Failed { what: "accept".into(), why: "no memory".into() };
    for table in [Table::ready, Table::running] {
        let mut failing = table();
        failing.session.worker_said(failed(), failing.now_ns);
        failing.closes_with(&["accept: no memory"]);
        let mut dying = table();
        dying.session.worker_ended(Err("signal 9".into()), dying.now_ns);
        dying.closes_with(&["signal 9"]);
        let mut leaving = table();
        leaving.session.worker_ended(Ok(()), leaving.now_ns);
        leaving.closes_with(&["the worker ended"]);
        let mut talking = table();
        talking.session.worker_said(Event::Listening { port: 1 }, talking.now_ns);
        talking.closes_with(&["the worker sent 'listening' out of turn"]);
    }
    let mut table = Table::greeted();
    table.says(&Request::Open(ask().into()));
    table.session.not_started(&"no room");
    table.closes_with(&["no room"]);
}

#[test]
fn only_a_test_outlives_a_shut_down() {
    let comparing = || {
        let mut table = Table::greeted();
        table.says(&Request::Clock(PathMarks::default()));
        table.actions();
        table.session.answering(9);
        table.actions();
        table
    };
    for table in [Table::new, Table::greeted, comparing] {
        let mut table = table();
        table.session.shut_down();
        table.closes_with(&["shutting down"]);
        table.says(&Request::Open(ask().into()));
        assert_eq!(table.actions(), []);
    }
    for table in [Table::ready, Table::running] {
        let mut table = table();
        table.session.shut_down();
        assert_eq!(table.actions(), []);
        assert!(table.session.is_testing());
    }
}

#[test]
fn what_is_beyond_a_limit_is_refused_by_its_name() {
    let refused = |change: fn(&mut TestRequest, &mut TcpStream), words: &[&str]| {
        let (mut ask, mut stream) = (ask(), stream());
        change(&mut ask, &mut stream);
        if matches!(ask.load, Load::TcpStream(_)) {
            ask.load = Load::TcpStream(stream);
        }
        let mut table = Table::greeted();
        table.says(&Request::Open(ask.into()));
        table.closes_with(words);
    };
    refused(|_, s| s.threads = 65, &["65 threads", "allows 64", "--max-threads"]);
    refused(|_, s| s.connections = 501, &["1002 connections", "allows 1000", "--max-connections"]);
    refused(|_, s| (s.threads, s.connections) = (64, u32::MAX), &["--max-connections"]);
    refused(|a, _| a.phases.warm_up = Duration::from_secs(599), &["601s", "allows 600s", "--max-time"]);
    refused(|a, _| a.phases.window = Duration::MAX, &["--max-time"]);
    refused(|a, _| a.phases.interval = Duration::from_nanos(1), &["--interval"]);
    refused(|a, _| a.phases.interval = Duration::ZERO, &["--interval"]);
    refused(|_, s| s.message = u32::MAX, &["--max-memory", "256MiB"]);
    refused(|_, s| s.receive_buffer = Some(100 << 20), &["--max-memory"]);
    refused(|_, s| s.engine = Engine::Uring { outstanding: u32::MAX }, &["--max-memory"]);
    refused(|a, _| a.cpus = vec![1, 2], &["CPU 2", "0-1", "--cpus"]);
    refused(|_, s| s.options.priority = Some(7), &["socket priority 7", "up to 6"]);
    refused(|_, s| s.options.hop_limit = Some(0), &["the hop limit is 0"]);
    refused(|_, s| s.congestion_control = Some("../../x".into()), &["'../../x'", "offers cubic"]);
    refused(|_, s| s.message = 0, &["cannot be carried out", "message"]);
    refused(|a, _| a.phases.window = Duration::ZERO, &["cannot be carried out", "window"]);
    refused(|a, _| a.load = Load::Idle, &["idle"]);
}

#[test]
fn a_limited_rate_has_to_be_asked_for() {
    let asks = |throttle| {
        let limits = Limits { rate: Some(1_000_000_000), ..Limits::default() };
        let mut table = Table::with(limits);
        table.says(&Request::Hello(Version::own()));
        table.actions();
        let load = Load::TcpStream(TcpStream { throttle, ..stream() });
        table.says(&Request::Open(TestRequest { load, ..ask() }.into()));
        table
    };
    asks(None).closes_with(&["no limit of the rate", "1Gbit", "--max-rate"]);
    // Two threads.
    asks(Some(62_500_001)).closes_with(&["--max-rate"]);
    asks(Some(u64::MAX)).closes_with(&["--max-rate"]);
    assert!(matches!(asks(Some(62_500_000)).actions()[..], [Action::Start(_)]));
}

#[test]
fn the_longest_request_there_is_fits_into_a_line() {
    let cpus = (0..1024).collect();
    let line = wire::line(&Request::Open(TestRequest { cpus, ..ask() }.into()));
    assert!(line.len() < LONGEST_REQUEST && LONGEST_REQUEST < LONGEST_REPLY, "{}", line.len());
}

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A session that asks for a key, and its client's seal for a client with `key`.
fn challenged(key: &[u8]) -> (Table, Seal) {
    let mut table = Table::new();
    table.session = ServerSession::new(
        ([10, 0, 0, 1], 4000).into(),
        ([10, 0, 0, 2], 12_620).into(),
        Limits::default().into(),
        Environment::default().into(),
        START,
    )
    .with_key(Key::new(SECRET).unwrap(), Nonce::fixed(1));
    let [Action::Reply(welcome)] = &table.actions()[..] else { panic!() };
    assert_eq!(*welcome, Reply::Welcome(Version::with_nonce(Nonce::fixed(1))));
    let line = table.session.line(welcome);
    let line = line.strip_suffix(b"\n").unwrap();
    let seal = Seal::new(End::Client, &Key::new(key).unwrap(), Nonce::fixed(1), Nonce::fixed(2), line);
    (table, seal)
}

fn hello() -> Request {
    Request::Hello(Version::with_nonce(Nonce::fixed(2)))
}

#[test]
fn who_has_the_key_is_served_and_hears_sealed_lines() {
    let (mut table, mut seal) = challenged(SECRET);
    table.session.received(&wire::sealed(&hello(), &mut seal), START);
    let actions = table.actions();
    let [Action::Reply(machine @ Reply::Machine(_))] = &actions[..] else { panic!("{actions:?}") };
    let line = table.session.line(machine);
    seal.open(line.strip_suffix(b"\n").unwrap()).unwrap();
    table.session.received(&wire::sealed(&Request::Open(ask().into()), &mut seal), START);
    assert!(matches!(table.actions()[..], [Action::Start(_)]));
}

#[test]
fn who_has_no_key_or_another_is_refused() {
    let (mut table, _) = challenged(SECRET);
    table.says(&Request::Hello(Version::own()));
    table.closes_with(&["--key-file"]);
    let (mut table, _) = challenged(SECRET);
    table.says(&Request::Open(ask().into()));
    table.closes_with(&["--key-file"]);
    let (mut table, mut seal) = challenged(b"another key of thirty-two bytes!");
    table.session.received(&wire::sealed(&hello(), &mut seal), START);
    table.closes_with(&["does not have this server's key"]);
    // A stranger of another version learns that first.
    let (mut table, _) = challenged(SECRET);
    table.says(&Request::Hello(Version { protocol: 1, version: "0.1.0".into(), ..Version::own() }));
    table.closes_with(&["version 1", "same netrig"]);
}

#[test]
fn sealed_lines_count_once_in_their_order_and_in_their_direction() {
    let ping = |number| Request::Ping { number };
    let greeted = || {
        let (mut table, mut seal) = challenged(SECRET);
        let hello = wire::sealed(&hello(), &mut seal);
        table.session.received(&hello, START);
        let Some(Action::Reply(machine)) = table.actions().pop() else { panic!() };
        let machine = table.session.line(&machine);
        (table, seal, hello, machine)
    };
    // Said again.
    let (mut table, _, hello, _) = greeted();
    table.session.received(&hello, START);
    table.closes_with(&["seal does not fit"]);
    // In another order.
    let (mut table, mut seal, ..) = greeted();
    let (_, second) = (wire::sealed(&ping(1), &mut seal), wire::sealed(&Request::Open(ask().into()), &mut seal));
    table.session.received(&second, START);
    table.closes_with(&["seal does not fit"]);
    // The server's own line, sent back.
    let (mut table, _, _, machine) = greeted();
    table.session.received(&machine, START);
    table.closes_with(&["seal does not fit"]);
    // Cut short, or without a seal.
    let (mut table, mut seal, ..) = greeted();
    let mut open = wire::sealed(&Request::Open(ask().into()), &mut seal);
    open.truncate(open.len() - 10);
    open.push(b'\n');
    table.session.received(&open, START);
    table.closes_with(&["seal does not fit"]);
    let (mut table, ..) = greeted();
    table.says(&Request::Open(ask().into()));
    table.closes_with(&["without a seal"]);
    // What was said to another session of the same server.
    let (mut table, ..) = greeted();
    let welcome = b"{\"welcome\":{\"protocol\":2,\"version\":\"0.1.0\",\"nonce\":\"another\"}}";
    let mut other = Seal::new(End::Client, &Key::new(SECRET).unwrap(), Nonce::fixed(9), Nonce::fixed(2), welcome);
    other.seal(b"the hello of that session");
    table.session.received(&wire::sealed(&Request::Open(ask().into()), &mut other), START);
    table.closes_with(&["seal does not fit"]);
}

#[test]
fn clocks_are_compared_for_a_while() {
    let mut table = Table::greeted();
    let at = SocketAddr::from(([10, 0, 0, 2], 0));
    let marks = PathMarks { dscp: "af41".parse().ok(), hop_limit: Some(9) };
    let answering = |table: &mut Table| {
        table.session.answering(9);
        assert_eq!(table.actions(), [Action::Reply(Reply::Answering { port: 9 })]);
        table.says(&Request::Ping { number: 1 });
        assert_eq!(table.actions(), [Action::Reply(Reply::Pong { number: 1, now_ns: table.now_ns })]);
    };
    table.says(&Request::Clock(marks));
    assert_eq!(table.actions(), [Action::Answer(at, marks)]);
    answering(&mut table);
    // Anew: what answered before has the port no more.
    table.says(&Request::Clock(marks));
    assert_eq!(table.actions(), [Action::EndAnswering, Action::Answer(at, marks)]);
    answering(&mut table);
    table.pass(10_000);
    assert_eq!(table.actions(), [Action::EndAnswering]);
    table.says(&Request::Clock(marks));
    assert_eq!(table.actions(), [Action::Answer(at, marks)]);
    answering(&mut table);
    table.says(&Request::Open(TestRequest { peer_clock_ns: -7, ..ask() }.into()));
    let actions = table.actions();
    let [Action::EndAnswering, Action::Start(plan)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(plan.peer_clock_ns, -7);
    // Not while a test is opened.
    table.says(&Request::Clock(marks));
    table.closes_with(&["'clock' out of turn"]);
    let mut full = Table::greeted();
    full.says(&Request::Clock(marks));
    full.actions();
    full.session.not_started(&"no room");
    full.closes_with(&["no room"]);
}
