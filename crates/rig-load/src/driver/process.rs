//! One worker process as its driver sees it.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;

use rig_lines::{decode, encode};
use rig_sys::piped::{PipedProcess, ProcessHandle};

use crate::protocol::{Event, LONGEST_EVENT, LONGEST_ORDER, Lines, Order, PROTOCOL};

/// How much of a worker's standard error is kept.
const STDERR_TAIL: usize = 4096;

/// A worker process. Killed when dropped.
pub struct Process {
    pub(super) name: String,
    life: Box<dyn ProcessHandle>,
    stdin: Option<Box<dyn Write + Send>>,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    lines: Lines,
    has_greeted: bool,
    is_greeted: bool,
    tail: Vec<u8>,
}

impl Process {
    pub fn new(name: String, process: PipedProcess) -> Self {
        let PipedProcess { stdin, stdout, stderr, life } = process;
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        let (lines, tail) = (Lines::new(LONGEST_EVENT), Vec::new());
        Self { name, life, stdin, stdout, stderr, lines, has_greeted: false, is_greeted: false, tail }
    }

    /// Sends an order. A worker that is dead already shows by the end of its output.
    pub fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut text = Vec::new();
        if !self.has_greeted {
            text.extend(
                encode(&PROTOCOL.greeting(env!("CARGO_PKG_VERSION")), LONGEST_ORDER).map_err(io::Error::other)?,
            );
            self.has_greeted = true;
        }
        text.extend(encode(order, LONGEST_ORDER).map_err(io::Error::other)?);
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        match stdin.write_all(&text) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }

    /// Reads what is there on standard output. `None`: it has ended.
    pub fn events(&mut self) -> io::Result<Option<Vec<Event>>> {
        let mut chunk = [0u8; 64 * 1024];
        let Some(stdout) = &self.stdout else { return Ok(None) };
        let Some(bytes) = read(stdout, &mut chunk)? else {
            self.stdout = None;
            return Ok(None);
        };
        self.lines.push(bytes);
        let mut events = Vec::new();
        while let Some(line) = self.lines.take().map_err(io::Error::other)? {
            if self.is_greeted {
                events.push(decode(line).map_err(io::Error::other)?);
            } else {
                PROTOCOL.check(line).map_err(io::Error::other)?;
                self.is_greeted = true;
            }
        }
        Ok(Some(events))
    }

    /// Reads what is there on standard error and keeps the end of it.
    pub fn read_stderr(&mut self) {
        let mut chunk = [0u8; STDERR_TAIL];
        let Some(stderr) = &self.stderr else { return };
        match read(stderr, &mut chunk) {
            Ok(Some(bytes)) => {
                self.tail.extend_from_slice(bytes);
                let excess = self.tail.len().saturating_sub(STDERR_TAIL);
                self.tail.drain(..excess);
            }
            Ok(None) | Err(_) => self.stderr = None,
        }
    }

    pub fn stderr_tail(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }

    /// Its standard output, until that has ended; wait for it to be readable and call [`Self::events`].
    pub fn stdout(&self) -> Option<&OwnedFd> {
        self.stdout.as_ref()
    }

    /// Its standard error, until that has ended; wait for it to be readable and call [`Self::read_stderr`].
    pub fn stderr(&self) -> Option<&OwnedFd> {
        self.stderr.as_ref()
    }

    /// Makes it stop, without waiting for that; true when it has ended and is collected. Call it until then.
    pub fn stop(&mut self) -> bool {
        self.stdin = None;
        match self.life.try_wait() {
            Ok(None) => {
                let _ = self.life.kill();
                false
            }
            Ok(Some(_)) | Err(_) => true,
        }
    }

    /// Kills it if it lives and tells how it ended. A process that was not killed before is given no time to end.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        // Without its input the worker stops by itself; killing is for one that does not.
        self.stdin = None;
        if let Some(status) = self.life.try_wait()? {
            return Ok(status);
        }
        self.life.kill()?;
        self.life.wait()
    }

    /// How a process whose output has ended came to its own end: well, or in words.
    ///
    /// # Errors
    /// The status it ended with, and the last that it wrote to standard error.
    pub fn outcome(&mut self) -> Result<(), String> {
        match self.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                // The dead worker's end of the pipe is closed: this does not block.
                self.read_stderr();
                Err(format!("the worker process died ({status}) {}", self.stderr_tail().trim()).trim_end().to_owned())
            }
            Err(error) => Err(format!("wait for the worker process: {error}")),
        }
    }

    /// Waits for a process whose output has ended.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        self.life.wait()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("life", &self.life).finish_non_exhaustive()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// One read of a descriptor that poll called ready. `None` at its end.
fn read(fd: impl AsFd, chunk: &mut [u8]) -> io::Result<Option<&[u8]>> {
    loop {
        match rustix::io::read(&fd, &mut *chunk) {
            Ok(0) => return Ok(None),
            Ok(n) => return Ok(Some(&chunk[..n])),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Some(&[])),
            Err(errno) => return Err(errno.into()),
        }
    }
}
