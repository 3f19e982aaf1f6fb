//! Processes of a test, what they say, and what is waited for.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for something: so long that it will never happen if it has not by then.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The first of some free ports in a row. No other process gets them by chance, because they are below the kernel's
/// ephemeral ports.
pub fn free_base(ports: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 12_000 + (std::process::id() % 400) as u16 * 40;
    for _ in 0..400 {
        let base = start.wrapping_add(NEXT.fetch_add(ports + 2, Ordering::Relaxed)) % 30_000;
        let base = base.max(2_000);
        let free = |port| {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
                && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
        };
        if (base..=base + ports).all(free) {
            return base + 1;
        }
    }
    panic!("no {ports} ports in a row are free");
}

pub fn netrig() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.arg("ntttcp");
    command
}

/// A process of a test; killed when the test fails.
pub struct Process(pub Option<Child>);

impl Process {
    pub fn start(command: &mut Command, options: &str, home: &Path) -> Self {
        let child = command.args(options.split_whitespace()).current_dir(home);
        Self(Some(child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub fn interrupt(&self) {
        let pid = Pid::from_raw(self.0.as_ref().unwrap().id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end, and tells its status and all that it said.
    #[track_caller]
    pub fn end(mut self) -> ProcessOutput {
        let deadline = Instant::now() + TIMEOUT;
        while self.is_running() {
            assert!(Instant::now() < deadline, "a process does not end");
            thread::sleep(Duration::from_millis(10));
        }
        let Output { status, stdout, stderr } = self.0.take().unwrap().wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        ProcessOutput { status: status.code(), out: text(stdout), err: text(stderr) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug)]
pub struct ProcessOutput {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl ProcessOutput {
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, Some(0), "{self:#?}");
        self
    }

    /// The total of bytes in the Linux layout.
    #[track_caller]
    pub fn bytes(&self) -> u64 {
        let line = self.out.lines().find_map(|line| line.split_once("total bytes\t:"));
        line.unwrap_or_else(|| panic!("no total: {self:#?}")).1.trim().parse().unwrap()
    }

    /// The numbers below a heading of the Windows layout.
    #[track_caller]
    pub fn row(&self, heading: &str) -> Vec<f64> {
        let mut lines = self.out.lines().skip_while(|line| !line.trim().starts_with(heading));
        let row = lines.nth(2).unwrap_or_else(|| panic!("no '{heading}': {self:#?}"));
        row.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }
}

/// Waits until someone listens on a TCP port. Looks at the kernel's table: a connection would take part in the test.
#[track_caller]
pub fn until_listening(port: u16) {
    let deadline = Instant::now() + TIMEOUT;
    let pattern = format!(":{port:04X} ");
    let listens = |path: &str| {
        let table = fs::read_to_string(path).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| format!("{local} ").ends_with(&pattern)) && words.nth(1) == Some("0A")
        })
    };
    while !listens("/proc/net/tcp") && !listens("/proc/net/tcp6") {
        assert!(Instant::now() < deadline, "no process listens on port {port}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a log (`-O`) has a line with `text`.
#[track_caller]
pub fn until_logged(log: &Path, text: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while !fs::read_to_string(log).unwrap_or_default().contains(text) {
        assert!(Instant::now() < deadline, "'{text}' does not come into {}", log.display());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Lets a test run for a while: long enough for some bytes wherever it runs.
pub fn run_for_a_while(log: &Path) {
    until_logged(log, "Network activity progressing...");
    thread::sleep(Duration::from_millis(700));
}

/// A receiver and its sender, both netrig, with `-p` and the options given.
#[track_caller]
pub fn pair(ports: u16, receiver: &str, sender: &str) -> (ProcessOutput, ProcessOutput) {
    let home = tempfile::tempdir().unwrap();
    let base = free_base(ports);
    let receiving = Process::start(&mut netrig(), &format!("{receiver} -p {base}"), home.path());
    until_listening(base + ports - 1);
    let sending = Process::start(&mut netrig(), &format!("{sender} -p {base}"), home.path());
    (receiving.end(), sending.end())
}
