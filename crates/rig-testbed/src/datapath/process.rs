//! An agent as its runner sees it: a process on the node, started through the node's host and asked in lines.

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
use rig_lines::{Client, Error};
use rig_sys::piped::{Life, Piped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use super::protocol::{Answer, Description, PROTOCOL, Question, Reading, Refusal};
use super::{Datapath, Settings, Site, UnknownCommand};
use crate::host::{Host, LostHost, Program};

/// Longest time for an answer. Loading the largest programs on a busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time for an agent that has detached to end, until it is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What is kept of an agent's standard error: the last of it says what was wrong.
const WORDS: usize = 4096;

/// The subcommand of netrig whose process is an agent.
pub const SUBCOMMAND: &str = "agent";

/// An agent that cannot be asked any more: it is gone, silent, or says what is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LostAgent(pub String);

/// A datapath at work on a node, in a process of its own. Dropping it ends its work; what is left behind goes with the node.
#[derive(Debug)]
pub struct AgentProcess {
    datapath: &'static dyn Datapath,
    node: String,
    /// `None` once it is to end.
    client: Option<Client<Answers, Box<dyn Write + Send>>>,
    life: Box<dyn Life>,
    words: LastWords,
}

impl AgentProcess {
    /// Starts netrig on the node and has it put `datapath` to work there.
    ///
    /// # Errors
    /// What the agent refused, as it says it; [`LostAgent`] and [`LostHost`] when it does not answer.
    pub fn attach(host: &dyn Host, datapath: &'static dyn Datapath, site: &Site, settings: &Settings) -> Result<Self> {
        let node = site.node().to_owned();
        let name = datapath.name();
        let started = host.start(&node, &Program::netrig(&[SUBCOMMAND, name]));
        let Piped { stdin, stdout, stderr, life } = started.with_context(|| format!("start {name} on {node}"))?;
        let words = LastWords::of(stderr).context("start a thread")?;
        let mut agent = Self { datapath, node, client: None, life, words };
        let answers = Answers { from: stdout.into() };
        match Client::greet(answers, stdin, &PROTOCOL, env!("CARGO_PKG_VERSION")) {
            Ok(client) => agent.client = Some(client),
            Err(error) => return Err(agent.lost(&error)),
        }
        match agent.ask(&Question::Attach { site: Box::new(site.clone()), settings: settings.clone() })? {
            Answer::Attached => Ok(agent),
            other => Err(agent.unasked(&other)),
        }
    }

    /// The name of the datapath.
    pub fn name(&self) -> &'static str {
        self.datapath.name()
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Asks it to read its counters, without waiting for them: several agents read at the same time.
    ///
    /// # Errors
    /// [`LostAgent`].
    pub fn begin_reading(&mut self) -> Result<()> {
        let begun = self.client()?.begin(&Question::Counters);
        begun.map_err(|error| self.lost(&error))
    }

    /// What it has counted since it was attached, as [`Self::begin_reading`] asked.
    ///
    /// # Errors
    /// What it refused, or [`LostAgent`].
    pub fn reading(&mut self) -> Result<Reading> {
        let part = self.client()?.part().map(|part| part.map(|(answer, _)| answer));
        match self.understood(part)? {
            Answer::Counters(reading) => Ok(reading),
            other => Err(self.unasked(&other)),
        }
    }

    /// What it has counted since it was attached.
    ///
    /// # Errors
    /// As [`Self::reading`].
    pub fn counters(&mut self) -> Result<Reading> {
        self.begin_reading()?;
        self.reading()
    }

    /// What it is, the settings in force, and what it knows now.
    ///
    /// # Errors
    /// As [`Self::reading`].
    pub fn describe(&mut self) -> Result<Description> {
        match self.ask(&Question::Describe)? {
            Answer::Description(description) => Ok(*description),
            other => Err(self.unasked(&other)),
        }
    }

    /// Has it do what a command of this name says; its answer.
    ///
    /// # Errors
    /// [`UnknownCommand`] where it has none of the name; anything else says what was wrong or went wrong.
    pub fn command(&mut self, name: &str, arguments: &Value) -> Result<Value> {
        let question = Question::Command { name: name.to_owned(), arguments: arguments.clone() };
        let answer = self.client()?.ask::<Answer, Refusal>(&question);
        if let Ok(Err(Refusal { unknown_command: true, .. })) = &answer {
            return Err(UnknownCommand::of(self.datapath, name).into());
        }
        match self.understood(answer)? {
            Answer::Done { answer } => Ok(answer),
            other => Err(self.unasked(&other)),
        }
    }

    /// Ends its work and waits until the process has ended; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// Names what could not be undone.
    pub fn detach(mut self) -> Result<()> {
        match self.ask(&Question::Detach)? {
            Answer::Detached => {}
            other => return Err(self.unasked(&other)),
        }
        self.client = None;
        match wait_for(self.life.as_mut(), END_PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(LostAgent(format!("{} ended ({status}){}", self.called(), self.words.told())).into()),
            None => Err(LostAgent(format!("{} does not end", self.called())).into()),
        }
    }

    fn client(&mut self) -> Result<&mut Client<Answers, Box<dyn Write + Send>>> {
        let name = self.datapath.name();
        self.client.as_mut().with_context(|| format!("{name} on {} has ended", self.node))
    }

    fn ask(&mut self, question: &Question) -> Result<Answer> {
        let answer = self.client()?.ask(question);
        self.understood(answer)
    }

    fn understood(&mut self, answer: Result<Result<Answer, Refusal>, Error>) -> Result<Answer> {
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refusal)) => Err(refusal.into_error()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn called(&self) -> String {
        format!("{} on {}", self.datapath.name(), self.node)
    }

    fn unasked(&self, answer: &Answer) -> anyhow::Error {
        LostAgent(format!("{} does not speak the protocol: it answered {answer:?}", self.called())).into()
    }

    /// Why it does not answer, with how it ended and what it said last.
    fn lost(&mut self, error: &Error) -> anyhow::Error {
        // It ends with its input.
        self.client = None;
        let what = match error {
            Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                format!("{} does not answer within {PATIENCE:?}", self.called())
            }
            error if error.is_end() => match wait_for(self.life.as_mut(), Duration::from_secs(1)) {
                Ok(Some(status)) => format!("{} died ({status})", self.called()),
                Ok(None) => format!("{}: {error}", self.called()),
                Err(error) => return LostHost(format!("{} cannot be asked any more: {error}", self.called())).into(),
            },
            error => format!("{}: {error}", self.called()),
        };
        LostAgent(what + &self.words.told()).into()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // It ends with its input, and undoes then what a kill would leave.
        let was_asked = self.client.take().is_some();
        let patience = if was_asked { END_PATIENCE } else { Duration::ZERO };
        if !matches!(wait_for(self.life.as_mut(), patience), Ok(Some(_))) {
            let _ = self.life.kill();
            let _ = self.life.wait();
        }
    }
}

/// How a process ends within so long.
fn wait_for(life: &mut dyn Life, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        match life.try_wait()? {
            None if Instant::now() < deadline => thread::sleep(Duration::from_micros(200)),
            ended => return Ok(ended),
        }
    }
}

/// An agent's standard output, which is not waited for without end.
#[derive(Debug)]
struct Answers {
    from: File,
}

impl Read for Answers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => self.from.read(buffer),
        }
    }
}

/// The end of what a process writes on its standard error.
#[derive(Debug)]
struct LastWords {
    kept: Arc<Mutex<Vec<u8>>>,
    listener: JoinHandle<()>,
}

impl LastWords {
    fn of(stderr: OwnedFd) -> io::Result<Self> {
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&kept);
        let listen = move || {
            let (mut stderr, mut chunk) = (File::from(stderr), [0; WORDS]);
            loop {
                match stderr.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    Ok(length) => {
                        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.extend_from_slice(&chunk[..length]);
                        let excess = kept.len().saturating_sub(WORDS);
                        kept.drain(..excess);
                    }
                }
            }
        };
        let listener = thread::Builder::new().name("agent's errors".into()).spawn(listen)?;
        Ok(Self { kept, listener })
    }

    /// In a line that continues a message; nothing where there are none.
    fn told(&self) -> String {
        // Another process may still have the pipe of one that has ended.
        let deadline = Instant::now() + Duration::from_millis(300);
        while !self.listener.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let kept = mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let text = String::from_utf8_lossy(&kept);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() { String::new() } else { format!(": {}", visible_line(&lines.join("; "))) }
    }
}
