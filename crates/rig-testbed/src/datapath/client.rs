//! A process on a node that is asked in lines: started through the node's host, waited for within limits, and lost with the reason.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rig_cli::visible::visible_line;
use rig_lines::{Client, Error, Protocol};
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::{Host, LostHost, Program};

/// Longest time for an answer. Loading the largest programs on a busy machine takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for an agent that has detached to end, until it is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What is kept of a process's standard error: the last of it says what was wrong.
const WORDS: usize = 4096;

/// An agent that cannot be asked any more: it is gone, silent, or says what is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LostAgent(pub String);

/// Netrig on a node, asked over its standard streams. Dropped, its input ends, and with that the process.
#[derive(Debug)]
pub(super) struct ProcessClient {
    name: &'static str,
    node: String,
    /// `None` once it is to end.
    client: Option<Client<Output, Box<dyn Write + Send>>>,
    life: Box<dyn ProcessHandle>,
    words: LastWords,
}

impl ProcessClient {
    /// Starts netrig with these arguments on a node, as the datapath `name`, and greets it without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started; [`LostAgent`] and [`LostHost`] when it cannot be spoken to.
    pub(super) fn start(
        host: &dyn Host,
        name: &'static str,
        node: &str,
        arguments: &[&str],
        protocol: &Protocol,
    ) -> Result<Self> {
        let started = host.start(node, &Program::netrig(arguments));
        let PipedProcess { stdin, stdout, stderr, life } =
            started.with_context(|| format!("start {name} on {node}"))?;
        let words = LastWords::of(stderr).context("start a thread")?;
        let mut new = Self { name, node: node.to_owned(), client: None, life, words };
        match Client::open(Output { from: stdout.into() }, stdin, protocol, env!("CARGO_PKG_VERSION")) {
            Ok(client) => new.client = Some(client),
            Err(error) => return Err(new.lost(&error)),
        }
        Ok(new)
    }

    /// The name of the datapath.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// The build that it says it is, once it has answered.
    pub(super) fn build(&self) -> Option<&str> {
        Some(&self.client.as_ref()?.greeting()?.build)
    }

    /// Asks, without waiting for the answer.
    ///
    /// # Errors
    /// [`LostAgent`].
    pub(super) fn begin(&mut self, question: &impl Serialize) -> Result<()> {
        let begun = self.client()?.begin(question);
        begun.map_err(|error| self.lost(&error))
    }

    /// The answer to what [`Self::begin`] asked, of one part: `Ok(Err)` where it is refused.
    ///
    /// # Errors
    /// [`LostAgent`].
    pub(super) fn answer<A: DeserializeOwned, R: DeserializeOwned>(&mut self) -> Result<Result<A, R>> {
        let part = self.client()?.part::<A, R>();
        part.map(|part| part.map(|(answer, _)| answer)).map_err(|error| self.lost(&error))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(super) fn ask<A: DeserializeOwned, R: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
    ) -> Result<Result<A, R>> {
        self.begin(question)?;
        self.answer()
    }

    /// The last lines that it has written on standard error.
    pub(super) fn last_lines(&self) -> Vec<String> {
        lines(&self.words.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of an answer to something else.
    pub(super) fn unasked(&self, answer: &impl fmt::Debug) -> anyhow::Error {
        LostAgent(format!("{self} does not speak the protocol: it answered {answer:?}")).into()
    }

    /// Ends its input and waits until the process has ended; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// When it does not end, or says by its status that something went wrong.
    pub(super) fn end(mut self) -> Result<()> {
        self.client = None;
        match wait_for(self.life.as_mut(), END_PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(LostAgent(format!("{self} ended ({status}){}", self.words.continued())).into()),
            None => Err(LostAgent(format!("{self} does not end")).into()),
        }
    }

    fn client(&mut self) -> Result<&mut Client<Output, Box<dyn Write + Send>>> {
        let name = self.name;
        self.client.as_mut().with_context(|| format!("{name} on {} has ended", self.node))
    }

    /// Why it does not answer, with how it ended and what it said last.
    fn lost(&mut self, error: &Error) -> anyhow::Error {
        // It ends with its input.
        self.client = None;
        let what = match error {
            Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                format!("{self} does not answer within {TIMEOUT:?}")
            }
            error if error.is_end() => match wait_for(self.life.as_mut(), Duration::from_secs(1)) {
                Ok(Some(status)) => format!("{self} died ({status})"),
                Ok(None) => format!("{self}: {error}"),
                Err(error) => return LostHost(format!("{self} cannot be asked any more: {error}")).into(),
            },
            error => format!("{self}: {error}"),
        };
        LostAgent(what + &self.words.continued()).into()
    }
}

impl fmt::Display for ProcessClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.node)
    }
}

impl Drop for ProcessClient {
    fn drop(&mut self) {
        // It ends with its input, and undoes then what a kill would leave.
        let was_asked = self.client.take().is_some();
        let time_limit = if was_asked { END_PATIENCE } else { Duration::ZERO };
        if !matches!(wait_for(self.life.as_mut(), time_limit), Ok(Some(_))) {
            let _ = self.life.kill();
            let _ = self.life.wait();
        }
    }
}

/// How a process ends within so long.
fn wait_for(life: &mut dyn ProcessHandle, time_limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + time_limit;
    loop {
        match life.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(Duration::from_micros(200)),
            ended => return Ok(ended),
        }
    }
}

/// A process's standard output, which is not waited for without end.
#[derive(Debug)]
struct Output {
    from: File,
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let time_limit = Timespec { tv_sec: TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&time_limit))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.from.read(buffer),
        }
    }
}

/// The end of what a process writes on its standard error.
#[derive(Debug)]
struct LastWords {
    last: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl LastWords {
    fn of(stderr: OwnedFd) -> io::Result<Self> {
        let last = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&last);
        let listen = move || {
            let (mut stderr, mut chunk) = (File::from(stderr), [0; WORDS]);
            loop {
                match stderr.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    Ok(length) => {
                        let mut last = into.lock().unwrap_or_else(PoisonError::into_inner);
                        last.extend_from_slice(&chunk[..length]);
                        let excess = last.len().saturating_sub(WORDS);
                        last.drain(..excess);
                    }
                }
            }
        };
        let listener = thread::Builder::new().name("errors".into()).spawn(listen)?;
        Ok(Self { last, listener })
    }

    /// In a line that continues a message; nothing where there are none.
    fn continued(&self) -> String {
        // Another process may still have the pipe of one that has ended.
        let deadline = Instant::now() + Duration::from_millis(300);
        while !self.listener.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let lines = lines(&mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner)));
        if lines.is_empty() { String::new() } else { format!(": {}", visible_line(&lines.join("; "))) }
    }
}

fn lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
