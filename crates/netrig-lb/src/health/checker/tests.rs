use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::mpsc;

use super::super::board::{HealthChange, HealthEvent};
use super::super::check::{Destination, DnsQuestion, Exchange, HttpRequest, ProgramCall, RecordType};
use super::super::state::Health;
use super::*;
use crate::message::{Protocol, ServiceKey};

mod tls;

/// What must come may take this long on a machine that is busy with other things.
const TIMEOUT: Duration = Duration::from_secs(60);
const SERVICE: &str = "192.0.2.1:80";

fn key(backend: SocketAddr) -> TargetKey {
    (ServiceKey { protocol: Protocol::Tcp, address: SERVICE.parse().unwrap() }, backend)
}

fn check(probe: Probe, timeout: Duration) -> Check {
    let interval = Duration::from_millis(100);
    let fast = Check::new(probe, Destination::Backend);
    Check { interval, interval_down: interval, timeout, rise: 1, fall: 1, ..fast }
}

fn target(check: Check, to: SocketAddr) -> Target {
    Target { key: key(to), check: Arc::new(check), to, path: None }
}

/// The outcome of the first check that is one.
#[track_caller]
fn outcome(probe: Probe, to: SocketAddr) -> Outcome {
    outcome_within(probe, to, Duration::from_secs(30))
}

#[track_caller]
fn outcome_within(probe: Probe, to: SocketAddr, timeout: Duration) -> Outcome {
    last_within(probe, to, timeout).outcome
}

#[track_caller]
fn last_within(probe: Probe, to: SocketAddr, timeout: Duration) -> LastProbe {
    let (news, told) = mpsc::channel();
    let checker = Checker::start(move || {
        let _ended = news.send(());
    })
    .unwrap();
    checker.watch(vec![target(check(probe, timeout), to)], |_| None);
    told.recv_timeout(TIMEOUT).unwrap();
    let last = checker.board().records[&key(to)].last.clone();
    last.unwrap()
}

fn bad(reason: &str) -> Outcome {
    Outcome::Bad(reason.to_owned())
}

/// A server on the loopback interface that does this with each connection, until the process ends.
fn server(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| serve(stream.unwrap())));
    at
}

/// A port where nobody listens.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn http(body: Option<&str>) -> Probe {
    let status = vec![(200, 399)];
    Probe::Http(HttpRequest { path: "/health".into(), host: None, status, body: body.map(str::to_owned) })
}

fn expects(send: &str, expect: &str) -> Exchange {
    Exchange { send: send.into(), expect: expect.into() }
}

const SOON: Duration = Duration::from_millis(300);

#[test]
fn a_connection_is_made_or_refused() {
    let up = server(drop);
    assert_eq!(outcome(Probe::Tcp(Exchange::default()), up), Outcome::Good);
    assert_eq!(outcome(Probe::Tcp(Exchange::default()), closed()), bad("connection refused"));
    // The other family.
    if let Ok(listener) = TcpListener::bind("[::1]:0") {
        assert_eq!(outcome(Probe::Tcp(Exchange::default()), listener.local_addr().unwrap()), Outcome::Good);
    }
}

#[test]
fn who_is_silent_or_slow_is_out_of_time() {
    // Its backlog is full, so that the kernel answers no SYN; which of the connections that fill it are taken does not matter.
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    deaf.listen(0).unwrap();
    let at = deaf.local_addr().unwrap().as_socket().unwrap();
    let fill: Vec<_> = (0..4)
        .map(|_| {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM.nonblocking(), None).unwrap();
            let _ = socket.connect(&at.into());
            socket
        })
        .collect();
    assert_eq!(outcome_within(Probe::Tcp(Exchange::default()), at, SOON), bad("no answer within 300ms"));
    drop(fill);
    let silent = server(|stream| thread::sleep(Duration::from_secs(if stream.peer_addr().is_ok() { 600 } else { 0 })));
    assert_eq!(outcome_within(http(None), silent, SOON), bad("connected, and no answer within 300ms"));
    let half = server(|mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nServer").unwrap();
        thread::sleep(Duration::from_secs(600));
    });
    assert_eq!(outcome_within(http(None), half, SOON), bad("half of an answer's head within 300ms"));
}

#[test]
fn an_answer_of_http_is_judged() {
    let answers = |answer: &'static str| {
        server(move |mut stream| {
            let mut request = [0; 1024];
            let read = stream.read(&mut request).unwrap();
            let asked = String::from_utf8_lossy(&request[..read]).into_owned();
            assert!(asked.starts_with("GET /health HTTP/1.0\r\nHost: 127.0.0.1:"), "{asked}");
            // The one who asks may have heard enough.
            let _ = answer.as_bytes().chunks(5).try_for_each(|piece| stream.write_all(piece));
        })
    };
    assert_eq!(outcome(http(None), answers("HTTP/1.1 204 No Content\r\n\r\n")), Outcome::Good);
    let page = answers("HTTP/1.1 200 OK\r\n\r\nall is well");
    assert_eq!(outcome(http(Some("is well")), page), Outcome::Good);
    assert_eq!(outcome(http(Some("is ill")), page), bad("the body lacks \"is ill\""));
    assert_eq!(outcome(http(None), answers("HTTP/1.1 503 Busy\r\n\r\n")), bad("status 503, expected 200-399"));
    assert_eq!(outcome(http(None), answers("")), bad("closed without an answer"));
    assert_eq!(outcome(http(None), answers("HTTP/1.1 200 OK\r\n")), bad("closed in the middle of the answer's head"));
    let Outcome::Bad(reason) = outcome(http(None), answers("220 mail ESMTP\r\n")) else { panic!() };
    assert!(reason.contains("no answer of HTTP"), "{reason}");
}

/// Does something while the thread of the checks is held up.
type WhileHeldUp = Box<dyn Fn(&mut dyn FnMut()) + Send>;

/// What a probe comes to whose backend says something while the thread is held up, by news of another backend, for longer than the probe may take.
fn while_held_up(probe: Probe, start: impl FnOnce(WhileHeldUp) -> SocketAddr) -> Outcome {
    const SHORT: Duration = Duration::from_secs(3);
    let ((ask, asked), (hold, held), (say, said)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let of_interest = start(Box::new(move |speak| {
        let _second = ask.send(());
        held.recv().unwrap();
        speak();
        say.send(()).unwrap();
    }));
    // It is down as soon as the other one has been asked.
    let other = server(move |stream| {
        let _asked = asked.recv();
        drop(stream);
    });
    let (news, told) = mpsc::channel();
    let is_first = std::cell::Cell::new(true);
    let checker = Checker::start(move || {
        if is_first.replace(false) {
            hold.send(()).unwrap();
            said.recv().unwrap();
            thread::sleep(SHORT);
        }
        let _ended = news.send(());
    })
    .unwrap();
    let targets = vec![target(check(probe, SHORT), of_interest), target(check(http(None), TIMEOUT), other)];
    checker.watch(targets, |_| None);
    for _ in 0..2 {
        told.recv_timeout(TIMEOUT).unwrap();
    }
    let last = checker.board().records[&key(of_interest)].last.clone();
    last.unwrap().outcome
}

#[test]
fn an_answer_that_is_there_is_not_late_because_this_thread_was() {
    let stream = |held_up: WhileHeldUp| {
        server(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]);
            held_up(&mut || stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap());
        })
    };
    let datagram = |held_up: WhileHeldUp| {
        datagrams(move |asked| {
            held_up(&mut || {});
            Some(asked.to_vec())
        })
    };
    assert_eq!(while_held_up(http(None), stream), Outcome::Good);
    assert_eq!(while_held_up(Probe::Udp(expects("ping", "ping")), datagram), Outcome::Good);
}

#[test]
fn an_endless_answer_is_cut_off() {
    // How much each connection could be sent before its end.
    let (tell, told) = mpsc::channel();
    let endless = server(move |mut stream| {
        let mut sent = 0_usize;
        let first = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while first.is_ok() && stream.write_all(&[b'x'; 4096]).is_ok() {
            sent += 4096;
        }
        let _ = tell.send(sent);
    });
    let Outcome::Bad(reason) = outcome(http(Some("never")), endless) else { panic!() };
    assert!(reason.contains("the body's first 65536 bytes lacks"), "{reason}");
    // What was read, and what buffers of both kernels' ends hold.
    assert!(told.recv_timeout(TIMEOUT).unwrap() < 32 << 20);
}

#[test]
fn a_text_is_sent_and_another_one_expected() {
    let redis = server(|mut stream| {
        let mut asked = [0; 6];
        stream.read_exact(&mut asked).unwrap();
        let _ = stream.write_all(if &asked == b"PING\r\n" { b"+PONG\r\n" } else { b"-ERR\r\n" });
    });
    assert_eq!(outcome(Probe::Tcp(expects("PING\r\n", "+PONG")), redis), Outcome::Good);
    assert_eq!(outcome(Probe::Tcp(expects("PONG\r\n", "+PONG")), redis), bad("the answer lacks \"+PONG\""));
}

/// A server of datagrams that answers as this says.
fn datagrams(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            if let Some(answer) = answer(&datagram[..length]) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    at
}

#[test]
fn datagrams_are_answered_refused_or_lost() {
    let echo = datagrams(|asked| Some(asked.to_vec()));
    assert_eq!(outcome(Probe::Udp(expects("ping", "ping")), echo), Outcome::Good);
    assert_eq!(outcome(Probe::Udp(expects("ping", "pong")), echo), bad("the answer lacks \"pong\""));
    let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(outcome(Probe::Udp(expects("ping", "")), unused), bad("port unreachable"));
    assert_eq!(
        outcome_within(Probe::Udp(expects("ping", "")), datagrams(|_| None), SOON),
        bad("no answer within 300ms")
    );
}

#[test]
fn a_question_of_dns_is_answered() {
    let dns = || Probe::Dns(DnsQuestion { name: "example.com".into(), record: RecordType(1) });
    let server = |code: u8| {
        datagrams(move |asked| {
            let mut answer = asked.to_vec();
            answer[2] |= 0x80;
            answer[3] |= code;
            Some(answer)
        })
    };
    assert_eq!(outcome(dns(), server(0)), Outcome::Good);
    assert_eq!(outcome(dns(), server(2)), bad("DNS answers SERVFAIL"));
    // One that sends the question back is no server.
    assert_eq!(outcome_within(dns(), datagrams(|asked| Some(asked.to_vec())), SOON), bad("no answer within 300ms"));
}

#[test]
fn an_echo_comes_back() {
    let loopback = outcome(Probe::Icmp, "127.0.0.1:0".parse().unwrap());
    if let Outcome::Unable(why) = &loopback {
        // Raw sockets are for root.
        assert!(why.contains("CAP_NET_RAW"), "{why}");
        return;
    }
    assert_eq!(loopback, Outcome::Good);
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(outcome(Probe::Icmp, "[::1]:0".parse().unwrap()), Outcome::Good);
    }
}

fn program(script: &str) -> Probe {
    let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Probe::Command(ProgramCall { words, environment: vec![("LEVEL".into(), "high".into())] })
}

#[test]
fn a_programs_exit_status_is_the_verdict() {
    let to: SocketAddr = "10.0.0.1:8080".parse().unwrap();
    let script = "test \"$LEVEL $NETRIG_PROTOCOL $NETRIG_SERVICE_ADDRESS:$NETRIG_SERVICE_PORT $NETRIG_BACKEND_ADDRESS:$NETRIG_BACKEND_PORT\" = \
                  'high tcp 192.0.2.1:80 10.0.0.1:8080'";
    assert_eq!(outcome(program(script), to), Outcome::Good);
    assert_eq!(outcome(program("exit 7"), to), bad("the command ended with status 7"));
    assert_eq!(outcome(program("kill -9 $$"), to), bad("the command was ended by signal 9"));
    // What it has started ends with it, whether it is out of time or has ended by itself: the pipe has no writer any more.
    let cases = [
        ("sleep 600 & wait", Duration::from_secs(1), bad("the command has not ended within 1s")),
        ("sleep 600 & exit 0", TIMEOUT, Outcome::Good),
    ];
    for (script, timeout, wanted) in cases {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("alive");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let at = pipe.display().to_string();
        let reader = thread::spawn(move || std::fs::File::open(pipe).unwrap().read_to_end(&mut Vec::new()).unwrap());
        let ended = outcome_within(program(&format!("exec > {at}; {script}")), to, timeout);
        assert_eq!(ended, wanted);
        let deadline = Instant::now() + TIMEOUT;
        while !reader.is_finished() {
            assert!(Instant::now() < deadline, "{script}: something goes on");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(reader.join().unwrap(), 0);
    }
    let missing = Probe::Command(ProgramCall { words: vec!["/no/such/program".into()], environment: Vec::new() });
    assert!(matches!(outcome(missing, to), Outcome::Unable(why) if why.contains("no such file")));
}

#[test]
fn an_address_that_is_not_here_takes_nobody_down() {
    let to = server(drop);
    let check = Check { source: Some("192.0.2.77".parse().unwrap()), ..check(Probe::Tcp(Exchange::default()), SOON) };
    let (news, told) = mpsc::channel();
    let checker = Checker::start(move || {
        let _ended = news.send(());
    })
    .unwrap();
    checker.watch(vec![target(check, to)], |_| None);
    told.recv_timeout(TIMEOUT).unwrap();
    let board = checker.board();
    let record = &board.records[&key(to)];
    assert!(matches!(&record.last.as_ref().unwrap().outcome, Outcome::Unable(why) if why.contains("192.0.2.77")));
    assert_eq!((record.state.health, record.bad), (Health::Unknown, 0));
}

#[test]
fn what_changes_is_told_and_what_is_known_is_kept_when_checks_change() {
    let (news, told) = mpsc::channel();
    let checker = Checker::start(move || {
        let _ended = news.send(());
    })
    .unwrap();
    let events = || {
        told.recv_timeout(TIMEOUT).unwrap();
        std::mem::take(&mut checker.board().events)
    };
    let (up, refusing) = (server(drop), closed());
    let tcp = || check(Probe::Tcp(Exchange::default()), SOON);
    let down_since = SystemTime::now() - Duration::from_secs(1000);
    // Another control plane has seen it down.
    let kept = HealthState::of(Health::Down, down_since, None);
    checker.watch(vec![target(tcp(), up)], |_| Some(kept));
    assert_eq!(events(), [HealthEvent { of: key(up), what: HealthChange::Is(Health::Up, None) }]);
    let since = checker.board().records[&key(up)].state.since;
    checker.watch(vec![target(Check { fall: 2, ..tcp() }, up), target(tcp(), refusing)], |_| None);
    assert_eq!(checker.board().records[&key(up)].state.since, since);
    let down = HealthChange::Is(Health::Down, Some("connection refused".into()));
    assert_eq!(events(), [HealthEvent { of: key(refusing), what: down }]);
    // One that is checked no more is forgotten, and its probe under way tells nobody: it is to a server that says nothing.
    let (asked, was_asked) = mpsc::channel();
    let silent = server(move |stream| asked.send(stream).unwrap());
    checker.watch(vec![target(tcp(), up), target(check(http(None), TIMEOUT), silent)], |_| None);
    let waiting = was_asked.recv_timeout(TIMEOUT).unwrap();
    checker.watch(vec![target(tcp(), up)], |_| None);
    assert_eq!(checker.board().records.len(), 1);
    // It is ended at once, by a reset or an end, and not when it is out of time.
    waiting.set_read_timeout(Some(TIMEOUT)).unwrap();
    let rest = (&waiting).read_to_end(&mut Vec::new());
    assert!(rest.is_ok() || rest.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset));
    assert!(checker.board().events.is_empty() && told.try_recv().is_err());
}

#[test]
fn many_backends_are_checked_by_one_thread_with_few_files() {
    // 4096 services of one server, each checked again and again.
    let at = server(drop);
    let checker = Checker::start(|| {}).unwrap();
    let slow = Check { interval: Duration::from_secs(1), ..check(Probe::Tcp(Exchange::default()), TIMEOUT) };
    let slow = Arc::new(slow);
    let targets = (0..4096_u16).map(|n| {
        let backend = SocketAddr::new([10, 0, (n >> 8) as u8, n as u8].into(), 80);
        Target { key: key(backend), check: Arc::clone(&slow), to: at, path: None }
    });
    checker.watch(targets.collect(), |_| None);
    let deadline = Instant::now() + TIMEOUT;
    while !checker.board().records.values().all(|record| record.good >= 2) {
        assert!(Instant::now() < deadline, "it does not come to that");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(checker.board().records.values().all(|record| record.bad + record.unable == 0));
}
