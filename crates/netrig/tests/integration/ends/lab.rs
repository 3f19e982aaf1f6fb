//! A server and its clients, each a process, and the control connection by hand.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use netrig_ends::wire::{self, Reply, Request, TestRequest, Version};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, SendMode};
use rustix::process::Pid;
use serde_json::Value;

/// Longer than anything here takes, even on a machine that does much else.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A server on a port of its own. Killed when dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
    pub log: Receiver<String>,
}

impl Server {
    pub fn with(options: &[&str]) -> Self {
        Self::on("0", options)
    }

    pub fn on(port: &str, options: &[&str]) -> Self {
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

    pub fn new() -> Self {
        Self::with(&[])
    }

    /// The next line of its log that contains `words`.
    #[track_caller]
    pub fn says(&mut self, words: &str) -> String {
        let begin = Instant::now();
        loop {
            let line = self.log.recv_timeout(TIMEOUT.saturating_sub(begin.elapsed()));
            let line = line.unwrap_or_else(|error| panic!("the server never said '{words}': {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its worker processes.
    pub fn workers(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    #[track_caller]
    pub fn has_workers(&self, count: usize) {
        let begin = Instant::now();
        while self.workers().len() != count {
            assert!(begin.elapsed() < TIMEOUT, "{:?} are not {count} workers", self.workers());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The most memory that it has had, bytes.
    pub fn most_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    /// A control connection that has said nothing yet.
    pub fn connect(&self) -> Link {
        self.connect_from([127, 0, 0, 1].into())
    }

    pub fn connect_from(&self, address: IpAddr) -> Link {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], self.port)).into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Link { lines: BufReader::new(socket.try_clone().unwrap()), socket }
    }

    /// A connection that has said hello.
    pub fn greeted(&self) -> Link {
        let mut link = self.connect();
        assert!(matches!(link.hears(), Reply::Welcome(_)));
        link.says(&Request::Hello(Version::own()));
        assert!(matches!(link.hears(), Reply::Machine(_)));
        link
    }

    /// One whose test waits for its connections, on the port that comes with it.
    pub fn opened(&self, ask: TestRequest) -> (Link, u16) {
        let mut link = self.greeted();
        link.says(&Request::Open(ask.into()));
        let reply = link.hears();
        let Reply::Listening { port } = reply else { panic!("{reply:?}") };
        (link, port)
    }

    /// A client of this server.
    pub fn client(&self, arguments: &[&str]) -> Command {
        client(self.port, arguments)
    }

    pub fn ends(mut self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(begin.elapsed() < TIMEOUT, "the server does not end");
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
pub struct Link {
    pub socket: TcpStream,
    pub lines: BufReader<TcpStream>,
}

impl Link {
    pub fn says(&mut self, request: &Request) {
        self.socket.write_all(&wire::line(request)).unwrap();
    }

    #[track_caller]
    pub fn hears(&mut self) -> Reply {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("'{line}': {error}"))
    }

    /// The server's last words, after which it closes the connection.
    #[track_caller]
    pub fn expect_end(mut self, words: &str) {
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

pub fn client(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(arguments).args(["--port", &port.to_string()]);
    // Tests are stored: not among the user's own.
    command.env("NETRIG_STORE", concat!(env!("CARGO_TARGET_TMPDIR"), "/ends.sqlite"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Short, but with a window that has intervals.
pub const SHORT: [&str; 6] = ["--time", "200ms", "--warm-up", "50ms", "--interval", "100ms"];

/// Runs a short test and reads its report. Where the machine has much else to do, nothing may be carried in so short a time: then it is run
/// again, four times as long.
#[track_caller]
pub fn report(server: &Server, arguments: &[&str]) -> Value {
    let data = report_over(server, arguments, &SHORT);
    let workers = data["trials"][0]["workers"].as_array().map_or(0, Vec::len);
    if (0..workers).all(|worker| moved(&data, worker) > 0) {
        return data;
    }
    report_over(server, arguments, &["--time", "800ms", "--warm-up", "200ms", "--interval", "400ms"])
}

#[track_caller]
pub fn report_over(server: &Server, arguments: &[&str], phases: &[&str]) -> Value {
    let output = server.client(arguments).args(phases).args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["data"].clone()
}

/// A figure of the first trial.
#[track_caller]
pub fn figure(data: &Value, end: &str, metric: &str) -> f64 {
    let all = data["figures"].as_array().unwrap();
    let found = all.iter().find(|figure| figure["end"] == end && figure["metric"] == metric);
    found.unwrap_or_else(|| panic!("no {metric} of the {end} in {all:?}"))["values"][0].as_f64().unwrap()
}

/// Payload that an end's connections have moved in their whole lives.
pub fn moved(data: &Value, worker: usize) -> u64 {
    let connections = data["trials"][0]["workers"][worker]["connections"].as_array().unwrap();
    connections.iter().map(|connection| connection["total_bytes"].as_u64().unwrap()).sum()
}

#[track_caller]
pub fn fails_with(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is not in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    if !output.stdout.is_empty() {
        // Where JSON was asked for, it has the reason.
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["data"]["error"].is_string(), "{report:#}");
    }
}

pub fn stream() -> rig_load::plan::TcpStream {
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
        options: Default::default(),
    }
}

pub fn ask() -> TestRequest {
    let second = Duration::from_secs(1);
    let phases = Phases { warm_up: Duration::ZERO, window: second, cool_down: Duration::ZERO, interval: second };
    TestRequest { load: Load::TcpStream(stream()), phases, cpus: Vec::new(), peer_clock_ns: 0 }
}

/// Waits for what must come.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
