//! Tests between two ends: real servers and clients, each a process, on loopback; and everything a client may do that it
//! should not. Nothing here needs privileges.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use netrig_ends::session;
use netrig_ends::wire::{self, Ask, Reply, Request, Version};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, SendMode};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;

/// Longer than anything here takes, even on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a port of its own. Killed when dropped.
struct Server {
    child: Child,
    port: u16,
    log: Receiver<String>,
}

impl Server {
    fn with(options: &[&str]) -> Self {
        Self::on("0", options)
    }

    fn on(port: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_netrig"))
            .args(["serve", "--port", port])
            .args(options)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, log) = mpsc::channel();
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        let mut server = Self { child, port: 0, log };
        let line = server.says("serves on");
        server.port = line.rsplit(':').next().unwrap().parse().unwrap();
        server
    }

    fn new() -> Self {
        Self::with(&[])
    }

    /// The next line of its log that contains `words`.
    #[track_caller]
    fn says(&mut self, words: &str) -> String {
        let begin = Instant::now();
        loop {
            let line = self.log.recv_timeout(PATIENCE.saturating_sub(begin.elapsed()));
            let line = line.unwrap_or_else(|error| panic!("the server never said '{words}': {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its worker processes.
    fn workers(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    #[track_caller]
    fn has_workers(&self, count: usize) {
        let begin = Instant::now();
        while self.workers().len() != count {
            assert!(begin.elapsed() < PATIENCE, "{:?} are not {count} workers", self.workers());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The most memory that it has had, bytes.
    fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// A control connection that has said nothing yet.
    fn connect(&self) -> Link {
        self.connect_from([127, 0, 0, 1].into())
    }

    fn connect_from(&self, address: IpAddr) -> Link {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], self.port)).into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Link { lines: BufReader::new(socket.try_clone().unwrap()), socket }
    }

    /// One that has said hello.
    fn greeted(&self) -> Link {
        let mut link = self.connect();
        assert!(matches!(link.hears(), Reply::Welcome(_)));
        link.says(&Request::Hello(Version::own()));
        assert!(matches!(link.hears(), Reply::Machine(_)));
        link
    }

    /// One whose test waits for its connections, on the port that comes with it.
    fn opened(&self, ask: Ask) -> (Link, u16) {
        let mut link = self.greeted();
        link.says(&Request::Open(ask.into()));
        let reply = link.hears();
        let Reply::Listening { port } = reply else { panic!("{reply:?}") };
        (link, port)
    }

    /// A client of this server.
    fn client(&self, arguments: &[&str]) -> Command {
        client(self.port, arguments)
    }

    fn ends(mut self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(begin.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's half of a control connection, by hand.
struct Link {
    socket: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Link {
    fn says(&mut self, request: &Request) {
        self.socket.write_all(&wire::line(request)).unwrap();
    }

    #[track_caller]
    fn hears(&mut self) -> Reply {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("'{line}': {error}"))
    }

    /// The server's last words, after which it closes the connection.
    #[track_caller]
    fn expect_end(mut self, words: &str) {
        loop {
            match self.hears() {
                Reply::Refused { why } | Reply::Failed { why } | Reply::Goodbye { why } => {
                    assert!(why.contains(words), "'{words}' is not in: {why}");
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(self.lines.read(&mut [0; 1]).unwrap(), 0);
    }
}

fn client(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(arguments).args(["--port", &port.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Short, but with a window that has intervals.
const SHORT: [&str; 6] = ["--time", "200ms", "--warm-up", "50ms", "--interval", "100ms"];

/// Runs a short test and reads its report.
#[track_caller]
fn report(server: &Server, arguments: &[&str]) -> Value {
    report_over(server, arguments, &SHORT)
}

#[track_caller]
fn report_over(server: &Server, arguments: &[&str], phases: &[&str]) -> Value {
    let output = server.client(arguments).args(phases).args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["data"].clone()
}

/// A figure of the first trial.
#[track_caller]
fn figure(data: &Value, end: &str, metric: &str) -> f64 {
    let all = data["figures"].as_array().unwrap();
    let found = all.iter().find(|figure| figure["end"] == end && figure["metric"] == metric);
    found.unwrap_or_else(|| panic!("no {metric} of the {end} in {all:?}"))["values"][0].as_f64().unwrap()
}

/// Payload that an end's connections have moved in their whole lives. Where the machine has much else to do, a short window
/// may see none of it.
fn moved(data: &Value, worker: usize) -> u64 {
    let connections = data["trials"][0]["workers"][worker]["connections"].as_array().unwrap();
    connections.iter().map(|connection| connection["total_bytes"].as_u64().unwrap()).sum()
}

#[track_caller]
fn fails_with(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
    assert!(output.stdout.is_empty() && !said.contains("panicked"), "{said}");
}

fn stream() -> rig_load::plan::TcpStream {
    rig_load::plan::TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 4096,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: None,
        engine: Engine::Blocking,
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
    }
}

fn ask() -> Ask {
    let second = Duration::from_secs(1);
    let phases = Phases { warm_up: Duration::ZERO, window: second, cool_down: Duration::ZERO, interval: second };
    Ask { load: Load::TcpStream(stream()), phases, cpus: Vec::new() }
}

#[test]
fn a_stream_is_counted_at_both_ends() {
    let server = Server::new();
    let data = report(&server, &["stream", "--client", "127.0.0.1", "--rate", "80mbit", "--trials", "2"]);
    for end in ["client", "server"] {
        assert!(figure(&data, end, "throughput") >= 0.0);
        // A slow stream may run between the timer ticks that CPU time is counted by.
        assert!((0.0..=100.0).contains(&figure(&data, end, "cpu")));
    }
    let (sent, arrived) = (moved(&data, 0), moved(&data, 1));
    assert!(arrived > 0 && arrived <= sent, "{arrived} of {sent} bytes arrived");
    assert_eq!(data["trials"].as_array().unwrap().len(), 2);
    let workers = &data["trials"][0]["workers"];
    assert_eq!((&workers[0]["name"], &workers[0]["direction"]), (&"client".into(), &"send".into()));
    assert_eq!((&workers[1]["name"], &workers[1]["direction"]), (&"server".into(), &"receive".into()));
    assert_eq!(workers[1]["samples"].as_array().unwrap().len(), 2);
    // Both ends have one clock here: what was found out about it over the network can be checked.
    for clocks in data["clocks"].as_array().unwrap() {
        let (offset, bound) = (clocks["offset_ns"].as_i64().unwrap(), clocks["bound_ns"].as_u64().unwrap());
        assert!(offset.unsigned_abs() <= bound, "{clocks}");
    }
}

/// Hundreds of timer ticks, at each of which something runs: the stream, or what keeps it from running.
#[test]
fn cpu_time_is_counted_at_both_ends() {
    let server = Server::new();
    let second = ["--time", "1s", "--warm-up", "50ms", "--interval", "500ms"];
    let data = report_over(&server, &["stream", "--client", "127.0.0.1"], &second);
    for end in ["client", "server"] {
        let busy = figure(&data, end, "cpu");
        assert!(busy > 0.0 && busy <= 100.0, "{busy} % at the {end}");
    }
}

#[test]
fn payload_goes_either_way_and_both() {
    let server = Server::new();
    let data = report(&server, &["stream", "-c", "localhost", "--reverse", "--rate", "80mbit"]);
    assert_eq!(data["trials"][0]["workers"][0]["direction"], "receive");
    assert!(moved(&data, 0) > 0);
    let data =
        report(&server, &["stream", "-c", "localhost", "--bidirectional", "--threads", "2", "--connections", "2"]);
    assert_eq!(data["trials"][0]["workers"][1]["connections"].as_array().unwrap().len(), 4);
    assert!(moved(&data, 0) > 0 && moved(&data, 1) > 0);
}

#[test]
fn requests_are_answered() {
    let server = Server::new();
    for kind in [&[][..], &["--connect"], &["--udp"], &["--rate", "200", "--in-flight", "4"]] {
        let data = report(&server, &[&["rr", "-c", "127.0.0.1"], kind].concat());
        for (worker, end) in ["client", "server"].into_iter().enumerate() {
            assert!(figure(&data, end, "transactions") >= 0.0);
            assert!(moved(&data, worker) > 0, "{kind:?}: nothing at the {end}");
        }
    }
}

#[test]
fn datagrams_are_counted_at_both_ends() {
    let server = Server::new();
    let data = report(&server, &["udp", "-c", "127.0.0.1", "--rate", "8mbit", "--message", "1000", "--gso", "4"]);
    for (worker, end) in ["client", "server"].into_iter().enumerate() {
        assert!(figure(&data, end, "datagrams") >= 0.0);
        assert!(moved(&data, worker) > 0, "nothing at the {end}");
    }
    // The difference of two machines' clocks would be no delay.
    assert!(data["trials"][0]["workers"][1]["datagrams"]["delay"].is_null());
}

#[test]
fn both_families_of_addresses() {
    if let Err(error) = TcpListener::bind("[::1]:0") {
        return rig_skip::skip(rig_skip::Lack::Ipv6, error);
    }
    let server = Server::new();
    let data = report(&server, &["stream", "-c", "::1", "--rate", "8mbit"]);
    assert!(data["address"].as_str().unwrap().starts_with("[::1]"));
    assert!(data["trials"][0]["workers"][1]["connections"][0]["remote"].as_str().unwrap().starts_with("[::1]"));
    let only_v4 = Server::with(&["-4"]);
    fails_with(&only_v4.client(&["stream", "-c", "::1"]).output().unwrap(), &["[::1]", "nothing listens there"]);
    fails_with(&server.client(&["stream", "-c", "127.0.0.1", "-6"]).output().unwrap(), &["no IPv6 address", "-4"]);
}

#[test]
fn two_clients_at_once_and_one_too_many() {
    let mut server = Server::with(&["--max-tests-per-address", "2"]);
    let spawn = || server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "5s"]).spawn().unwrap();
    let clients = [spawn(), spawn()];
    server.has_workers(2);
    let third = server.client(&["stream", "-c", "127.0.0.1"]).output().unwrap();
    fails_with(&third, &["the server refused", "2 tests run", "allows 2", "--max-tests-per-address"]);
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    server.has_workers(0);
    server.says("done");
}

#[test]
fn a_limit_is_named_to_the_client() {
    let server = Server::with(&["--max-time", "1", "--max-rate", "1gbit", "--max-connections", "2"]);
    for (options, words) in [
        (&["-t", "2", "--rate", "1mbit"][..], "--max-time"),
        (&["-t", "100ms", "--warm-up", "0s"], "--max-rate"),
        (&["-t", "100ms", "--warm-up", "0s", "--rate", "1mbit", "--connections", "3"], "--max-connections"),
    ] {
        let output = server.client(&["stream", "-c", "127.0.0.1"]).args(options).output().unwrap();
        fails_with(&output, &["the server refused", words]);
    }
}

#[test]
fn nobody_is_there() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = client(free, &["stream", "-c", "127.0.0.1"]).output().unwrap();
    fails_with(&output, &["127.0.0.1", "nothing listens there", "netrig serve"]);
    fails_with(&client(free, &["rr", "-c", "no.such.host.invalid"]).output().unwrap(), &["no.such.host.invalid"]);
}

#[test]
fn the_port_is_in_use() {
    let server = Server::new();
    let output = Command::new(env!("CARGO_BIN_EXE_netrig"))
        .args(["udp", "--server", "--port", &server.port.to_string()])
        .output()
        .unwrap();
    fails_with(&output, &["in use", "--port", &server.port.to_string()]);
}

#[test]
fn another_version_is_told_so() {
    let server = Server::new();
    let mut link = server.connect();
    link.says(&Request::Hello(Version { protocol: 99, version: "9.9".into(), nonce: None }));
    link.expect_end("version 99 (netrig 9.9)");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(listener.local_addr().unwrap().port(), &["stream", "-c", "127.0.0.1"]).spawn().unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let welcome = Version { protocol: 99, version: "9.9".into(), nonce: None };
    socket.write_all(&wire::line(&Reply::Welcome(welcome))).unwrap();
    fails_with(&client.wait_with_output().unwrap(), &["version 99", "9.9", "same netrig at both ends"]);
}

#[test]
fn garbage_from_a_client_harms_nobody() {
    let server = Server::new();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], b"\n\n\n\n", &[b'['; 40_000], b"{\"open\":null}\n"]
    {
        let mut link = server.connect();
        // It may hang up before all is written.
        let _ = link.socket.write_all(bytes);
        let _ = link.socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = link.lines.read_to_end(&mut rest);
        assert!(rest.starts_with(b"{\"welcome\""));
    }
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_slow_loris_is_dropped_and_an_idle_client_too() {
    let server = Server::with(&["--handshake-timeout", "300ms", "--idle-timeout", "300ms"]);
    let mut loris = server.connect();
    for byte in b"{\"hello\":{\"protocol\":1" {
        if loris.socket.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    loris.expect_end("--handshake-timeout");
    server.greeted().expect_end("--idle-timeout");
}

#[test]
fn a_thousand_half_open_clients_cost_little() {
    let mut server = Server::with(&["--max-clients-per-address", "1000", "--handshake-timeout", "1h"]);
    let mut links = Vec::new();
    for _ in 0..1000 {
        let mut link = server.connect();
        // Half a request, as long as one may be.
        let mut half = wire::line(&Request::Hello(Version::own()));
        half.pop();
        half.resize(16_000, b' ');
        link.socket.write_all(&half).unwrap();
        links.push(link);
    }
    // All have been heard: each answer comes after what was accepted before.
    for link in &mut links {
        assert!(matches!(link.hears(), Reply::Welcome(_)));
    }
    let crowded = server.connect();
    crowded.expect_end("allows 1000 (--max-clients)");
    let memory = server.most_memory();
    assert!(memory < 64 << 20, "the server took {memory} bytes");
    io::stderr().write_all(format!("1000 half-open clients: {} KiB at most\n", memory >> 10).as_bytes()).unwrap();
    // Who is in is served.
    let link = &mut links[500];
    link.socket.write_all(b"\n").unwrap();
    assert!(matches!(link.hears(), Reply::Machine(_)));
    drop(links);
    server.says("refused");
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_flood_from_one_address_leaves_room_for_others() {
    let server = Server::with(&["--max-clients-per-address", "4"]);
    let flood: Vec<Link> = (0..4).map(|_| server.connect()).collect();
    for _ in 0..200 {
        server.connect().expect_end("--max-clients-per-address");
    }
    let mut other = server.connect_from([127, 0, 0, 2].into());
    assert!(matches!(other.hears(), Reply::Welcome(_)));
    drop(flood);
}

#[test]
fn a_server_without_file_descriptors_recovers() {
    let server = Server::with(&["--max-clients-per-address", "1000"]);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = |current| prlimit(Some(server.pid()), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let before = limit(Some(40));
    let mut links: Vec<Link> = (0..60).map(|_| server.connect()).collect();
    assert!(matches!(links[0].hears(), Reply::Welcome(_)));
    // Those who wait are let in as others leave.
    links.drain(..30);
    assert!(matches!(links[29].hears(), Reply::Welcome(_)));
    drop(links);
    limit(before.current);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_stranger_at_the_data_port_is_shut_out() {
    let server = Server::new();
    let mut long = ask();
    long.phases.window = Duration::from_millis(300);
    let (mut link, port) = server.opened(long);
    let data = SocketAddr::from(([127, 0, 0, 1], port));
    let from = |address: [u8; 4]| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&data.into()).unwrap();
        TcpStream::from(socket)
    };
    let mut stranger = from([127, 0, 0, 2]);
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut own = from([127, 0, 0, 1]);
    assert_eq!(link.hears(), Reply::Connected);
    link.says(&Request::Ping { number: 1 });
    let Reply::Pong { now_ns, .. } = link.hears() else { panic!() };
    link.says(&Request::Go { start_ns: now_ns + 100_000_000 });
    let sender = std::thread::spawn(move || while own.write_all(&[0; 4096]).is_ok() {});
    let done = loop {
        match link.hears() {
            Reply::Done(done) => break done,
            Reply::Sample(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(done.record.name, session::NAME);
    assert!(done.record.bytes() > 0);
    assert!(done.record.connections[0].remote.starts_with("127.0.0.1:"));
    drop(link);
    sender.join().unwrap();
}

#[test]
fn a_client_that_vanishes_takes_its_worker_along() {
    let server = Server::new();
    let (link, _) = server.opened(ask());
    server.has_workers(1);
    drop(link);
    server.has_workers(0);
    // With a test running.
    let mut client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    let mut stderr = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(stderr.any(|line| line.contains("of 100.0 s")), "no interim figures");
    server.has_workers(1);
    client.kill().unwrap();
    client.wait().unwrap();
    server.has_workers(0);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_worker_that_is_killed_is_told_of() {
    let server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    server.has_workers(1);
    let worker = Pid::from_raw(server.workers()[0] as i32).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    fails_with(&client.wait_with_output().unwrap(), &["the server's end failed", "signal: 9"]);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_server_that_is_killed_is_told_of_and_can_start_again() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s"]).spawn().unwrap();
    server.has_workers(1);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("closed the control connection") || said.contains("end failed"), "{said}");
    let port = server.port.to_string();
    let again = Server::on(&port, &[]);
    assert_eq!(again.port, server.port);
    report(&again, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_server_that_is_told_to_stop_finishes_what_runs() {
    let mut server = Server::new();
    let idle = server.greeted();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "3s", "-q"]).spawn().unwrap();
    server.has_workers(1);
    kill_process(server.pid(), Signal::TERM).unwrap();
    server.says("stopping");
    idle.expect_end("shutting down");
    let port = server.port;
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it still takes clients");
    }
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.ends(), 0);
}

#[test]
fn a_client_that_is_stopped_reports_what_was_done() {
    let server = Server::new();
    let mut command = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--trials", "1000"]);
    let mut client = command.args(SHORT).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("#3 ")), "no third trial");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("of 1000 trials were made") && report.contains("Throughput"), "{report}");
    drop(lines);
    server.has_workers(0);
}

#[test]
fn a_trial_that_is_stopped_is_reported_as_far_as_it_came() {
    let server = Server::new();
    let mut command = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "100s", "--warm-up", "0s"]);
    let mut client = command.args(["--interval", "100ms", "--format", "json"]).spawn().unwrap();
    let mut lines = BufReader::new(client.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(" 0.3 of 100.0 s")), "no third interval");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["data"]["trials"].as_array().unwrap().is_empty());
    let partial = &report["data"]["partial"];
    let seconds = partial["seconds"].as_f64().unwrap();
    assert!((0.29..100.0).contains(&seconds), "{partial}");
    for end in ["client", "server"] {
        let figures = partial["figures"].as_array().unwrap();
        let found = figures.iter().find(|figure| figure["end"] == end && figure["metric"] == "throughput").unwrap();
        assert!(found["value"].as_f64().unwrap() > 0.0, "{partial}");
    }
    let words = report.to_string();
    assert!(words.contains("was stopped"), "{words}");
}

#[test]
fn a_trial_that_is_stopped_before_its_window_says_that_nothing_was_measured() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--warm-up", "100s"]).spawn().unwrap();
    server.says("tcp-stream for");
    kill_process(Pid::from_child(&client), Signal::INT).unwrap();
    let output = client.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("nothing was measured") && output.stdout.is_empty(), "{said}");
}

#[test]
fn a_client_that_is_done_is_not_refused() {
    let mut server = Server::new();
    let client = server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "2s", "-q"]).spawn().unwrap();
    server.has_workers(1);
    kill_process(server.pid(), Signal::TERM).unwrap();
    server.says("done");
    assert!(client.wait_with_output().unwrap().status.success());
    let rest: Vec<String> = server.log.iter().collect();
    assert!(!rest.iter().any(|line| line.contains("refused")), "{rest:?}");
}

/// 1 Mbit/s in bytes per second.
const MEGABIT: f64 = 125_000.0;

/// What a server may have moved since `begin`, and a little for the headers of a datagram.
fn allowance(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * MEGABIT
}

#[test]
fn what_the_kernel_is_told_to_pace_stays_below_the_limit_without_fq() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let begin = Instant::now();
    // Loopback has no queueing discipline, so that nothing in the kernel holds the server's end to the rate.
    let udp = ["udp", "-c", "127.0.0.1", "--reverse", "--rate", "1mbit", "--kernel-pacing", "--batch", "1"];
    let data = report(&server, &udp);
    let sent = moved(&data, 1);
    assert!(sent > 0 && sent as f64 <= allowance(begin), "{sent} bytes sent");
}

#[test]
fn the_first_message_of_a_stream_waits_for_its_time() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let begin = Instant::now();
    let data = report(&server, &["stream", "-c", "127.0.0.1", "-R", "--rate", "1mbit", "--message", "60k"]);
    let sent = moved(&data, 1);
    assert!(sent > 0 && sent as f64 <= allowance(begin), "{sent} bytes sent");
    let mut large = server.client(&["stream", "-c", "127.0.0.1", "-R", "--rate", "1mbit", "--message", "60M"]);
    let output = large.args(SHORT).output().unwrap();
    fails_with(&output, &["a message of 60", "longer than the test", "--max-rate"]);
}

/// A test of transactions whose client has agreed to a rate that it does not keep.
fn greedy(load: fn(rig_load::plan::Transactions) -> Load, response: u32) -> Ask {
    let rate = f64::from(1_000_000 / 8 / response.max(1));
    let transactions = rig_load::plan::Transactions {
        threads: 1,
        connections: 2,
        request: 1,
        response,
        in_flight: 1,
        schedule: rig_load::plan::Schedule::Open { rate, arrivals: rig_load::plan::Arrivals::Uniform },
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        congestion_control: None,
    };
    Ask { load: load(transactions), ..ask() }
}

/// Lets a test begin whose connections this process has made by hand.
fn begins(link: &mut Link) {
    assert_eq!(link.hears(), Reply::Connected);
    link.says(&Request::Ping { number: 1 });
    let Reply::Pong { now_ns, .. } = link.hears() else { panic!() };
    link.says(&Request::Go { start_ns: now_ns + 20_000_000 });
}

#[test]
fn a_responder_answers_no_faster_than_the_limit() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let (mut link, port) = server.opened(greedy(Load::TcpRr, 5_000));
    let mut sockets: Vec<_> = (0..2).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let begin = Instant::now();
    begins(&mut link);
    let mut answered = 0;
    'load: for turn in 0.. {
        if begin.elapsed() > Duration::from_millis(800) {
            break 'load;
        }
        let socket = &mut sockets[turn % 2];
        if socket.write_all(b"?").is_err() {
            break;
        }
        let mut left = 5_000;
        while left > 0 {
            let Ok(more @ 1..) = socket.read(&mut [0; 5_000][..left]) else { break 'load };
            left -= more;
            answered += more;
        }
        assert!(answered as f64 <= allowance(begin), "{answered} bytes in {:?}", begin.elapsed());
    }
    assert!(answered > 0);
}

#[test]
fn a_responder_holds_no_more_connections_than_the_test_has() {
    let server = Server::with(&["--max-rate", "1gbit"]);
    let (mut link, port) = server.opened(greedy(Load::TcpCrr, 100));
    let connect = || TcpStream::connect(("127.0.0.1", port));
    let _kept = [connect().unwrap(), connect().unwrap()];
    begins(&mut link);
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", server.workers()[0])).unwrap().count();
    let before = descriptors();
    // Connections that ask for nothing, as many as the kernel queues: they are not taken in beyond the test's own.
    let mut most = before;
    let guests: Vec<_> = (0..40)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into());
            std::thread::sleep(Duration::from_millis(5));
            most = most.max(descriptors());
            socket
        })
        .collect();
    assert!(most > before, "no guest was taken in");
    // Two connections, and what the load thread waits by.
    assert!(most <= before + 2 + 4, "{most} descriptors, {before} before");
    drop(guests);
}

#[test]
fn a_client_that_sends_more_datagrams_than_it_may_loses_its_test() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let datagrams = rig_load::plan::Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 1000,
        batch: 1,
        segments: 1,
        coalesce: false,
        throttle: Some(100_000),
        pacing: rig_load::plan::Pacing::Thread,
        shared_clock: false,
        send_buffer: None,
        receive_buffer: None,
    };
    let mut ask = Ask { load: Load::UdpStream(datagrams), ..ask() };
    ask.phases.window = Duration::from_secs(60);
    let (mut link, port) = server.opened(ask);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    // The greeting of a flow: docs of `rig_load::greeting`.
    let mut hello = [0u8; 40];
    hello[..8].copy_from_slice(b"netrig\0\x01");
    hello[11] = 1;
    hello[31] = 1;
    socket.send(&hello).unwrap();
    let welcome = socket.recv(&mut [0; 100]).unwrap();
    assert_eq!(welcome, 40);
    begins(&mut link);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let begin = Instant::now();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
                let _ = socket.send(&[0; 1000]);
            }
        });
        link.expect_end("more than");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        flood.join().unwrap();
    });
}

/// A key file of that content.
fn key_file(directory: &tempfile::TempDir, name: &str, mode: u32) -> String {
    let path = directory.path().join(name);
    fs::write(&path, format!("{name} {}\n", "x".repeat(40))).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn who_has_the_key_is_served_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let [key, other] = ["key", "other"].map(|name| key_file(&directory, name, 0o600));
    let mut server = Server::with(&["--key-file", &key, "--listen", "127.0.0.1"]);
    let rate = ["stream", "-c", "127.0.0.1", "--rate", "8mbit", "--trials", "2"];
    let data = report(&server, &[&rate[..], &["--key-file", &key]].concat());
    assert_eq!(data["trials"].as_array().unwrap().len(), 2);
    fails_with(&server.client(&rate).output().unwrap(), &["asks for its key", "--key-file"]);
    let stranger = server.client(&[&rate[..], &["--key-file", &other]].concat()).output().unwrap();
    fails_with(&stranger, &["does not have this server's key"]);
    server.says("refused: the client does not have this server's key");
    let mut link = server.connect();
    link.says(&Request::Open(ask().into()));
    link.expect_end("only clients that have its key");
    assert_eq!(server.workers().len(), 0);
    let open = Server::new();
    let output = open.client(&[&rate[..], &["--key-file", &key]].concat()).output().unwrap();
    fails_with(&output, &["does not ask for a key"]);
}

#[test]
fn what_was_said_in_one_conversation_counts_in_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_file(&directory, "key", 0o600);
    let server = Server::with(&["--key-file", &key, "--listen", "127.0.0.1"]);
    // In between the two ends of a test, and writes down what the client says.
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = between.local_addr().unwrap().port();
    let recorded = std::thread::spawn({
        let to = server.port;
        move || {
            let (mut near, _) = between.accept().unwrap();
            let mut far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (mut back, mut forth) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            std::thread::spawn(move || io::copy(&mut back, &mut forth));
            let (mut said, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = near.read(&mut piece) {
                said.extend_from_slice(&piece[..n]);
                far.write_all(&piece[..n]).unwrap();
            }
            said
        }
    });
    let options = ["--key-file", &key, "--time", "100ms", "--warm-up", "0s", "--interval", "100ms", "--rate", "8mbit"];
    // Whoever stands between lets the control connection through; the load's it cannot.
    let _ = client(port, &[&["stream", "-c", "127.0.0.1"][..], &options].concat()).output().unwrap();
    let said = recorded.join().unwrap();
    assert!(said.iter().filter(|&&byte| byte == b'\n').count() >= 2, "{}", String::from_utf8_lossy(&said));
    let mut again = server.connect();
    again.socket.write_all(&said).unwrap();
    again.expect_end("does not have this server's key");
    assert_eq!(server.workers().len(), 0);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_file(&directory, "key", 0o644);
    for arguments in [&["serve", "--key-file", &key][..], &["rr", "--client", "127.0.0.1", "--key-file", &key]] {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("chmod 600") && said.contains(&key), "{said}");
    }
}

#[test]
fn a_server_without_a_key_is_on_loopback_alone_and_says_how_to_change_that() {
    let mut server = Server::new();
    let hint = server.says("only this machine");
    assert!(hint.contains("--key-file") && hint.contains("--listen"), "{hint}");
    let mut open = Server::with(&["--listen", "0.0.0.0"]);
    open.says("whoever reaches it");
    // Its sockets, by the kernel's table.
    let listens = |port: u16| {
        let tables =
            ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default());
        let rows = tables.iter().flat_map(|table| table.lines()).map(|row| row.split_whitespace().collect::<Vec<_>>());
        let of = |row: &Vec<&str>| row.get(3) == Some(&"0A") && row[1].ends_with(&format!(":{port:04X}"));
        rows.filter(of).map(|row| row[1].rsplit_once(':').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    let own = listens(server.port);
    assert!(!own.is_empty() && own.iter().all(|address| loopback.contains(&address.as_str())), "{own:?}");
    assert_eq!(listens(open.port), ["00000000"]);
}

#[test]
fn options_of_the_other_end_are_refused_by_name() {
    for (arguments, words) in [
        (&["stream", "--server", "--time", "3s"][..], "--time"),
        (&["stream", "--server", "--reverse"], "--reverse"),
        (&["udp", "--server", "--gro"], "--gro"),
        (&["rr", "--server", "--format", "json"], "--format"),
        (&["rr", "--client", "host", "--max-time", "3s"], "--max-time"),
        (&["stream"], "--server"),
        (&["rr", "--client", "host", "--udp", "--no-delay"], "--no-delay"),
        (&["stream", "--client", "host", "--message", "1G"], "message"),
        (&["stream", "--client", "host", "--send-mode", "fast"], "splice"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_netrig")).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
