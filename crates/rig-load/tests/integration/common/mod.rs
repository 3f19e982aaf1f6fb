//! Plans and worker processes for the tests. All traffic stays on loopback.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rig_load::driver::{Cancel, Driver, DriverError, Worker, WorkerPair};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan};
use rig_load::protocol::{Event, Order, PROTOCOL};
use rig_load::record::WorkerRecord;

pub const PHASES: Phases = Phases {
    warm_up: Duration::from_millis(30),
    window: Duration::from_millis(100),
    cool_down: Duration::from_millis(10),
    interval: Duration::from_millis(40),
};

/// Longer than any test may take.
pub const ENDLESS: Phases = Phases { window: Duration::from_secs(600), ..PHASES };

pub fn stream() -> TcpStream {
    TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 32 << 10,
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

pub fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub fn plan(name: &str, role: Role, load: Load, phases: Phases) -> WorkerPlan {
    WorkerPlan { name: name.into(), cpus: vec![], role, load, phases, ceiling: None, peer_clock_ns: 0 }
}

pub fn listener(stream: &TcpStream, phases: Phases) -> WorkerPlan {
    plan("b/receiver", Role::Listen { address: address(), only_from: None }, Load::TcpStream(stream.clone()), phases)
}

pub fn connector(stream: &TcpStream, phases: Phases) -> WorkerPlan {
    plan("a/sender", Role::connect(address()), Load::TcpStream(stream.clone()), phases)
}

/// The example program `worker`, which `cargo test` builds beside the tests.
pub fn spawn() -> io::Result<Child> {
    let program = std::env::current_exe()?.parent().unwrap().with_file_name("examples").join("worker");
    piped(&mut Command::new(program))
        .map_err(|error| io::Error::other(format!("{error}; run `cargo build -p rig-load --example worker` first")))
}

pub fn piped(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

pub fn pair(listen: WorkerPlan, connect: WorkerPlan) -> WorkerPair<'static> {
    WorkerPair { listen: Worker::here(listen, spawn), connect: Worker::here(connect, spawn) }
}

pub fn run(pairs: Vec<WorkerPair<'_>>) -> Result<Vec<WorkerRecord>, DriverError> {
    Driver::new(&Cancel::new()?).start(pairs)?.finish()
}

/// Runs one stream, which both ends know by the same value. Returns the receiver's and the sender's record.
pub fn run_stream(stream: &TcpStream) -> (WorkerRecord, WorkerRecord) {
    let mut records = run(vec![pair(listener(stream, PHASES), connector(stream, PHASES))]).unwrap();
    assert_eq!(records.len(), 2);
    let sender = records.pop().unwrap();
    (records.pop().unwrap(), sender)
}

/// A worker without a driver. Killed when dropped.
pub struct BareWorker {
    pub child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl BareWorker {
    pub fn new() -> Self {
        let mut child = spawn().unwrap();
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut greeting = String::new();
        stdout.read_line(&mut greeting).unwrap();
        PROTOCOL.check(greeting.trim_end().as_bytes()).unwrap();
        let mut worker = Self { child, stdin, stdout };
        worker.text(&(serde_json::to_string(&PROTOCOL.greeting("of a test")).unwrap() + "\n"));
        worker
    }

    pub fn with_plan(plan: WorkerPlan) -> Self {
        let mut worker = Self::new();
        worker.order(&Order::Plan(plan.into()));
        worker
    }

    pub fn order(&mut self, order: &Order) {
        self.text(&(serde_json::to_string(order).unwrap() + "\n"));
    }

    pub fn text(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The next event; `None` at the end of its output.
    pub fn event(&mut self) -> Option<Event> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    pub fn failure(&mut self) -> String {
        loop {
            match self.event().expect("it ended without a word") {
                Event::Failed { what, why } => return format!("{what}: {why}"),
                Event::Done(_) => panic!("it did not fail"),
                _ => {}
            }
        }
    }

    pub fn status(&mut self) -> ExitStatus {
        self.stdin = None;
        self.child.wait().unwrap()
    }

    pub fn fails_with(mut self, words: &[&str]) {
        let failure = self.failure();
        for word in words {
            assert!(failure.contains(word), "'{word}' is not in: {failure}");
        }
        assert_eq!(self.event(), None);
        assert!(!self.status().success());
    }
}

impl Drop for BareWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
