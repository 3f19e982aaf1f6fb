use std::sync::Arc;

use rig_load::exchange::PathOffset;
use rig_testbed::accounting::CpuReading;

use super::*;
use crate::fuzz;
use crate::limits::Limits;
use crate::server_session::ServerSession;

const MS: u64 = 1_000_000;
/// What a message takes from one end to the other.
const TRIP: u64 = 3 * MS;

/// Two machines with clocks of their own, and a network between them that takes its time.
struct TwoMachines {
    /// By the client's clock.
    now_ns: u64,
    /// The server's clock less the client's.
    offset_ns: u64,
    client: ClientSession,
    session: ServerSession,
    /// What is under way, with its time of arrival: to the server, and to the client.
    to_server: VecDeque<(u64, Vec<u8>)>,
    to_client: VecDeque<(u64, Vec<u8>)>,
    /// When each end's worker was told to start, by the client's clock.
    starts: [Option<u64>; 2],
    /// What each end's worker was to do last.
    plans: [Option<WorkerPlan>; 2],
    /// What exchanges over the load's way find out, by how much they are off.
    path: Option<(i64, u64)>,
    done: Vec<TestRecords>,
    failed: Option<String>,
}

impl TwoMachines {
    fn new(test: Test) -> Self {
        let (now_ns, offset_ns) = (50_000 * MS, 864_000_000 * MS);
        let server = ([10, 0, 0, 2], 12_620).into();
        let (limits, environment) = (Arc::new(Limits::default()), Arc::new(Environment::default()));
        let session = ServerSession::new(([10, 0, 0, 1], 4000).into(), server, limits, environment, now_ns + offset_ns);
        let client = ClientSession::new(server, test, now_ns);
        let (to_server, to_client, starts, plans, path) = Default::default();
        let (done, failed) = (Vec::new(), None);
        Self { now_ns, offset_ns, client, session, to_server, to_client, starts, plans, path, done, failed }
    }

    /// With a server and a client that have keys.
    fn with_keys(server: &[u8], client: &[u8]) -> Self {
        let key = |bytes| Key::new(bytes).unwrap();
        let mut world = Self::new(fuzz::test());
        let server_ns = world.now_ns + world.offset_ns;
        let (limits, environment) = (Arc::new(Limits::default()), Arc::new(Environment::default()));
        let session =
            ServerSession::new(([10, 0, 0, 1], 4000).into(), world.client.server, limits, environment, server_ns);
        world.session = session.with_key(key(server), Nonce::fixed(1));
        world.client = world.client.with_key(key(client), Nonce::fixed(2));
        world
    }

    fn record(plan_name: &str, begin_ns: u64, end_ns: u64, direction: &str) -> Event {
        let text = format!(
            r#"{{"done":{{"name":"{plan_name}","direction":"{direction}","engine":"blocking","send_mode":"copy",
            "receive_mode":"copy","window_begin_ns":{begin_ns},"window_end_ns":{end_ns},
            "process_cpu":{{"user_ns":0,"system_ns":0}},"threads":[],"connections":[],"samples":[],"zerocopy_copied":0,
            "notes":[]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn reading(at_ns: u64) -> Reading {
        Reading { machine: CpuReading { at_ns, ..CpuReading::default() }.into(), ..Reading::default() }
    }

    /// Lets a millisecond pass.
    fn tick(&mut self) {
        use crate::server_session::Action as Served;
        self.now_ns += MS;
        let server_ns = self.now_ns + self.offset_ns;
        while self.to_server.front().is_some_and(|(at, _)| *at <= self.now_ns) {
            let (_, bytes) = self.to_server.pop_front().unwrap();
            self.session.received(&bytes, server_ns);
        }
        while self.to_client.front().is_some_and(|(at, _)| *at <= self.now_ns) {
            let (_, bytes) = self.to_client.pop_front().unwrap();
            self.client.received(&bytes, self.now_ns);
        }
        if self.session.deadline_ns().is_some_and(|due| due <= server_ns) {
            self.session.time_is(server_ns);
        }
        if self.client.deadline_ns().is_some_and(|due| due <= self.now_ns) {
            self.client.time_is(self.now_ns);
        }
        // Workers report when their windows of a second, a tenth after the start, are over.
        for (end, start) in self.starts.iter_mut().enumerate() {
            let Some(start_ns) = start.take_if(|start| *start + 1200 * MS <= self.now_ns) else { continue };
            let (begin_ns, end_ns) = (start_ns + 100 * MS, start_ns + 1100 * MS);
            if end == 0 {
                self.client.worker_said(Self::record("client", begin_ns, end_ns, "send"), self.now_ns);
                self.client.worker_ended(Ok(()), self.now_ns);
            } else {
                let (begin_ns, end_ns) = (begin_ns + self.offset_ns, end_ns + self.offset_ns);
                self.session.worker_said(Self::record("\\u001b[2J", begin_ns, end_ns, "receive"), server_ns);
                self.session.worker_ended(Ok(()), server_ns);
            }
        }
        while let Some(action) = self.session.next_action() {
            match action {
                Served::Reply(reply) => {
                    let line = self.session.line(&reply);
                    self.to_client.push_back((self.now_ns + TRIP, line));
                }
                Served::Answer(..) => self.session.answering(9),
                Served::Start(plan) => {
                    self.plans[1] = Some(*plan);
                    self.session.worker_said(Event::Listening { port: 7 }, server_ns);
                    self.session.worker_said(Event::Connected, server_ns);
                }
                Served::Order(Order::Go { start_ns }) => self.starts[1] = Some(start_ns - self.offset_ns),
                Served::Order(order) => panic!("{order:?}"),
                Served::Count => self.session.counted(Self::reading(server_ns)),
                Served::EndAnswering | Served::Close => {}
            }
        }
        while let Some(action) = self.client.next_action() {
            match action {
                Action::Send(request) => {
                    let line = self.client.line(&request);
                    self.to_server.push_back((self.now_ns + TRIP, line));
                }
                Action::Exchange(to, _) => {
                    assert_eq!(to, ([10, 0, 0, 2], 9).into());
                    let path = self.path.map(|(off, bound_ns)| PathOffset {
                        at_ns: self.now_ns,
                        ns: self.offset_ns as i64 + off,
                        bound_ns,
                        exchanges: 64,
                        stamped: 64,
                        stepped: 0,
                    });
                    self.client.exchanged(path, self.now_ns);
                }
                Action::Start(plan) => {
                    self.plans[0] = Some((*plan).clone());
                    assert_eq!(plan.role, Role::connect(([10, 0, 0, 2], 7).into()));
                    self.client.worker_said(Event::Connected, self.now_ns);
                }
                Action::Order(Order::Go { start_ns }) => {
                    assert!(start_ns > self.now_ns + 2 * TRIP);
                    self.starts[0] = Some(start_ns);
                }
                Action::Order(order) => panic!("{order:?}"),
                Action::Count => self.client.counted(Self::reading(self.now_ns), self.now_ns),
                Action::Show(..) => {}
                Action::Ready(_) => self.client.begin(self.now_ns),
                Action::Done(ends) => self.done.push(*ends),
                Action::Fail(why) => self.failed = Some(why),
            }
        }
    }

    fn run(&mut self, until: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if until(self) || self.failed.is_some() {
                return;
            }
            self.tick();
        }
        panic!("a minute passed: {:?}", self.client);
    }
}

#[test]
fn two_machines_start_together_whatever_their_clocks_say() {
    let mut world = TwoMachines::new(fuzz::test());
    for trial in 1..=3 {
        world.run(|world| world.done.len() == trial);
        assert_eq!(world.failed, None);
        let ends = &world.done[trial - 1];
        let error = (ends.clocks.offset_ns as u64).abs_diff(world.offset_ns);
        assert!(error <= ends.clocks.bound_ns, "{error} ns off, {:?}", ends.clocks);
        assert_eq!(ends.clocks.round_trips, PINGS);
        assert_eq!(ends.client.window_begin_ns.abs_diff(ends.server.window_begin_ns), 0);
        assert!(ends.client_machine.begin_ns.abs_diff(ends.server_machine.begin_ns) <= MS + error);
        // The names are ours.
        assert_eq!((ends.client.name.as_str(), ends.server.name.as_str()), ("client", "server"));
        world.client.begin(world.now_ns);
    }
}

#[test]
fn clocks_are_compared_before_and_after_datagrams() {
    let delays = |plan: &Option<WorkerPlan>| match &plan.as_ref().unwrap().load {
        Load::UdpStream(load) => load.shared_clock,
        other => panic!("{other:?}"),
    };
    // The load's own way knows it to a microsecond, and the control connection to a trip.
    for (path, known) in [(Some((-600, 1_000)), 1_000), (None, TRIP + MS)] {
        let mut world = TwoMachines::new(fuzz::datagrams());
        world.path = path;
        for trial in 1..=2 {
            world.run(|world| world.done.len() == trial);
            assert_eq!(world.failed, None);
            let [client, server] = &world.plans;
            assert!(delays(client) && delays(server));
            let [client, server] = [client, server].map(|plan| plan.as_ref().unwrap().peer_clock_ns);
            assert_eq!(client, -server);
            assert!(server.abs_diff(world.offset_ns as i64) <= known, "{server}");
            let clocks = world.done[trial - 1].end_clocks.as_ref().unwrap();
            assert_eq!((clocks.from.as_str(), clocks.to.as_str()), ("client", "server"));
            assert_eq!((clocks.at_begin.ns, clocks.is_by_path()), (server, path.is_some()));
            assert!(clocks.at_begin.bound_ns <= known && clocks.bound_ns <= 2 * known, "{clocks:?}");
            world.client.begin(world.now_ns);
        }
    }
}

#[test]
fn a_server_that_compares_no_clocks_is_not_asked_to() {
    let mut world = TwoMachines::new(fuzz::datagrams());
    let welcome = Version { compares_clocks: false, ..Version::own() };
    // What the server has said itself does not come.
    assert!(matches!(world.session.next_action(), Some(crate::server_session::Action::Reply(Reply::Welcome(_)))));
    world.to_client.push_back((0, wire::line(&Reply::Welcome(welcome))));
    world.run(|world| !world.done.is_empty());
    assert_eq!((world.failed.as_deref(), &world.done[0].end_clocks), (None, &None));
    assert!(world.done[0].uncompared.as_ref().unwrap().contains("a version that does not compare"));
    let [Some(WorkerPlan { load: Load::UdpStream(load), peer_clock_ns: 0, .. }), Some(_)] = &world.plans else {
        panic!("{:?}", world.plans)
    };
    assert!(!load.shared_clock);
}

#[test]
fn a_server_that_leaves_before_clocks_are_compared_again_leaves_no_delays() {
    let mut world = TwoMachines::new(fuzz::datagrams());
    world.run(|world| {
        world.starts == [None; 2] && world.plans[1].is_some() && matches!(world.client.state, State::Comparing(_))
    });
    world.client.closed(&"end of file");
    world.run(|world| !world.done.is_empty());
    assert_eq!(world.done[0].end_clocks, None);
    assert!(world.done[0].uncompared.as_ref().unwrap().contains("closed the control connection"));
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("closed the control connection"));
}

#[test]
fn a_failure_while_clocks_are_compared_again_takes_no_result_along() {
    let mut world = TwoMachines::new(fuzz::datagrams());
    world.run(|world| {
        world.starts == [None; 2] && world.plans[1].is_some() && matches!(world.client.state, State::Comparing(_))
    });
    world.client.replied(Reply::Failed { why: "out of memory".into() }, world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("the server's end failed: out of memory"));
    assert_eq!((world.done.len(), &world.done[0].end_clocks), (1, &None));
    assert!(world.done[0].uncompared.as_ref().unwrap().contains("out of memory"));
}

#[test]
fn a_server_that_is_silent_after_the_load_is_given_up_in_the_time_that_is_told() {
    let mut world = TwoMachines::new(fuzz::datagrams());
    world.run(|world| {
        world.starts == [None; 2] && world.plans[1].is_some() && matches!(world.client.state, State::Comparing(_))
    });
    let deadline_ns = world.client.deadline_ns().unwrap();
    assert!(deadline_ns <= world.now_ns + ANSWER_TIMEOUT.as_nanos() as u64);
    world.client.time_is(deadline_ns);
    let Some(Action::Done(_)) = world.client.next_action() else { panic!() };
    let Some(Action::Fail(why)) = world.client.next_action() else { panic!() };
    assert!(why.contains("did not answer within 10s"), "{why}");
}

#[test]
fn what_the_server_refuses_the_user_reads() {
    let mut test = fuzz::test();
    test.server_cpus = vec![77];
    let mut world = TwoMachines::new(test);
    world.run(|_| false);
    let failed = world.failed.unwrap();
    assert!(failed.contains("the server refused: CPU 77"), "{failed}");
}

#[test]
fn both_ends_are_heard_when_something_fails() {
    let mut world = TwoMachines::new(fuzz::test());
    world.run(|world| world.starts[0].is_some());
    let failed = |what: &str| Event::Failed { what: what.into(), why: "broken".into() };
    world.client.worker_said(failed("send"), world.now_ns);
    let server_ns = world.now_ns + world.offset_ns;
    world.session.worker_said(failed("receive\u{7}"), server_ns);
    world.run(|_| false);
    let failed = world.failed.unwrap();
    for words in ["the client's end failed: send: broken", "the server's end failed: receive\u{fffd}: broken"] {
        assert!(failed.contains(words), "{failed}");
    }
}

#[test]
fn a_failure_is_told_without_the_other_end_too() {
    let mut world = TwoMachines::new(fuzz::test());
    world.run(|world| world.starts[0].is_some());
    world.client.worker_ended(Err("signal 9".into()), world.now_ns);
    world.run(|_| false);
    assert_eq!(world.failed.unwrap(), "the client's end failed: signal 9");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let mut client = ClientSession::new(([10, 0, 0, 2], 22).into(), fuzz::test(), 0);
    client.time_is(ANSWER_TIMEOUT.as_nanos() as u64);
    let Some(Action::Fail(why)) = client.next_action() else { panic!() };
    assert!(why.contains("10.0.0.2:22 did not answer within 10s"), "{why}");
    assert_eq!(client.deadline_ns(), None);
}

#[test]
fn another_program_on_the_port_is_named_as_such() {
    let says = |bytes: &[u8]| {
        let mut client = ClientSession::new(([10, 0, 0, 2], 22).into(), fuzz::test(), 0);
        client.received(bytes, 0);
        let Some(Action::Fail(why)) = client.next_action() else { panic!() };
        why
    };
    let ssh = says(b"SSH-2.0-OpenSSH_9.2p1\r\n");
    assert!(ssh.contains("10.0.0.2:22 does not speak netrig's protocol") && ssh.contains("SSH-2.0"), "{ssh}");
    let later = says(b"{\"welcome\":{\"protocol\":3,\"version\":\"1.0\"}}\n");
    assert!(later.contains("version 3 of the protocol (netrig 1.0)") && later.contains("version 2"), "{later}");
    let rude = says(b"{\"refused\":{\"why\":\"\\u001b[2J\"}}\n");
    assert!(!rude.contains('\u{1b}'), "{rude}");
}

#[test]
fn a_worker_that_is_done_before_the_window_was_seen_to_begin_is_told_plainly() {
    let mut world = TwoMachines::new(fuzz::test());
    world.run(|world| world.starts[1].is_some());
    let State::Running(running) = &world.client.state else { panic!() };
    assert!(running.begin.is_none());
    let done = TwoMachines::record("client", running.begin_ns, running.end_ns, "send");
    world.client.worker_said(done, world.now_ns);
    world.run(|_| false);
    let failed = world.failed.unwrap();
    assert!(failed.contains("the machine is too busy") && failed.len() < 250, "{failed}");
}

#[test]
fn a_record_that_cannot_be_is_refused() {
    let mut world = TwoMachines::new(fuzz::test());
    world.run(|world| world.starts[1].is_some());
    // The server claims the future of its window, with more connections than there are.
    let State::Running(running) = &world.client.state else { panic!() };
    let Event::Done(mut record) = TwoMachines::record("server", running.begin_ns, running.end_ns, "receive") else {
        panic!()
    };
    let connection = r#"{"thread":0,"local":"","remote":"","bytes":18446744073709551615,"operations":1,
        "congestion_control":"","send_buffer":0,"receive_buffer":0,"mss":0,"begin":STATE,"end":STATE}"#;
    let state = serde_json::to_string(&rig_load::record::TcpState::default()).unwrap();
    let connection = serde_json::from_str(&connection.replace("STATE", &state)).unwrap();
    record.connections = vec![connection];
    let machine = Reading::default().until(&Reading::default());
    let reply = Reply::Done(Box::new(ServerResult { record: *record, machine }));
    world.client.received(&wire::line(&reply), world.now_ns);
    world.run(|_| false);
    let failed = world.failed.unwrap();
    assert!(failed.contains("does not fit the test: a count"), "{failed}");
}

#[test]
fn samples_beyond_the_window_are_refused() {
    let mut world = TwoMachines::new(fuzz::test());
    world.run(|world| world.starts[0].is_some());
    let sample = Sample {
        at_ns: 1,
        span_ns: 1,
        bytes: 1,
        bytes_in: 0,
        units: 0,
        lost: 0,
        rtt_us: 0,
        congestion_window: 0,
        retransmits: 0,
        latency: None,
    };
    for _ in 0..100 {
        world.client.received(&wire::line(&Reply::Sample(sample.into())), world.now_ns);
    }
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("'sample' out of turn"));
}

#[test]
fn a_server_that_goes_away_takes_no_result_along() {
    let mut world = TwoMachines::new(fuzz::test());
    // The server's last two frames arrive in one piece.
    let mut piece = Vec::new();
    world.run(|world| {
        world.starts[1].is_none() && world.to_client.iter().any(|(_, line)| line.starts_with(b"{\"done\""))
    });
    world.session.shut_down();
    while let Some(action) = world.session.next_action() {
        if let crate::server_session::Action::Reply(reply) = action {
            world.to_client.push_back((world.now_ns + TRIP, wire::line(&reply)));
        }
    }
    world.to_client.drain(..).for_each(|(_, line)| piece.extend(line));
    world.to_client.push_back((world.now_ns + TRIP, piece));
    world.run(|_| false);
    assert_eq!(world.done.len(), 1);
    assert!(world.failed.unwrap().contains("shutting down"));
}

#[test]
fn a_goodbye_before_the_own_worker_has_ended_takes_no_result_along() {
    let goodbyes: [fn(&mut TwoMachines); 2] = [
        |world| world.client.received(&wire::line(&Reply::Refused { why: "shutting down".into() }), world.now_ns),
        |world| world.client.closed(&"shutting down"),
    ];
    for goodbye in goodbyes {
        let mut world = TwoMachines::new(fuzz::test());
        world.run(|world| world.starts[0].is_some());
        // The own worker is late.
        let start = world.starts[0].take();
        let reported =
            |world: &TwoMachines| matches!(&world.client.state, State::Running(running) if running.done.is_some());
        world.run(reported);
        goodbye(&mut world);
        assert_eq!((world.done.len(), &world.failed), (0, &None));
        world.starts[0] = start;
        world.run(|_| false);
        assert_eq!(world.done.len(), 1);
        assert!(world.failed.unwrap().contains("shutting down"));
    }
}

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER: &[u8] = b"another key of thirty-two bytes!";

#[test]
fn ends_with_one_key_make_tests() {
    let mut world = TwoMachines::with_keys(SECRET, SECRET);
    for trial in 1..=2 {
        world.run(|world| world.done.len() == trial);
        assert_eq!(world.failed, None);
        world.client.begin(world.now_ns);
    }
}

#[test]
fn ends_with_different_keys_or_one_key_are_told_so() {
    let mut world = TwoMachines::with_keys(SECRET, OTHER);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("does not have this server's key"));
    let mut world = TwoMachines::with_keys(SECRET, SECRET);
    world.client = ClientSession::new(world.client.server, fuzz::test(), world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("asks for its key"));
    let mut world = TwoMachines::new(fuzz::test());
    world.client = world.client.with_key(Key::new(SECRET).unwrap(), Nonce::fixed(2));
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("does not ask for a key"));
}

/// A client that has said its sealed hello, before the server has proved to have the key, and what it said.
fn introduced() -> (TwoMachines, Vec<u8>) {
    let mut world = TwoMachines::with_keys(SECRET, SECRET);
    world.run(|world| matches!(world.client.state, State::Introduced));
    let (_, hello) = world.to_server.pop_front().unwrap();
    (world, hello)
}

#[test]
fn a_server_that_cannot_seal_is_not_believed() {
    // The client's own line, sent back.
    let (mut world, hello) = introduced();
    world.client.received(&hello, world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("seal does not fit"));
    // A reply without a seal.
    let machine = Reply::Machine(Environment::default().into());
    let (mut world, _) = introduced();
    world.client.received(&wire::line(&machine), world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("without a seal"));
    // Sealed with what another connection's welcome gave, or with another key.
    for (key, nonce) in [(SECRET, 7), (OTHER, 1)] {
        let (mut world, _) = introduced();
        let mut seal = Seal::new(End::Server, &Key::new(key).unwrap(), Nonce::fixed(nonce), Nonce::fixed(2), b"{}");
        world.client.received(&wire::sealed(&machine, &mut seal), world.now_ns);
        world.run(|_| false);
        assert!(world.failed.unwrap().contains("seal does not fit"));
    }
}

#[test]
fn a_welcome_that_was_changed_on_the_way_fits_no_seal() {
    let mut world = TwoMachines::with_keys(SECRET, SECRET);
    world.run(|world| !world.to_client.is_empty());
    let (_, welcome) = world.to_client.pop_front().unwrap();
    let welcome = String::from_utf8(welcome).unwrap().replace("\"version\":\"", "\"version\":\"9");
    world.client.received(welcome.as_bytes(), world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("does not have this server's key"));
}

#[test]
fn what_the_server_says_twice_or_too_late_is_not_believed() {
    let mut world = TwoMachines::with_keys(SECRET, SECRET);
    world.run(|world| matches!(world.client.state, State::Pinging { .. }));
    world.run(|world| !world.to_client.is_empty());
    let (_, pong) = world.to_client.pop_front().unwrap();
    world.client.received(&pong, world.now_ns);
    assert_eq!(world.failed, None);
    world.client.received(&pong, world.now_ns);
    world.run(|_| false);
    assert!(world.failed.unwrap().contains("seal does not fit"));
}
