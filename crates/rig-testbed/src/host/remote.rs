//! A host that is another process: it is asked in lines of JSON ([`protocol`](super::protocol)), as it would be over a
//! network.
//!
//! One thread reads all that the host says and divides it: answers go to the caller that waits for them, outputs of processes
//! into pipes that look like those of children. It never waits for anything but the host, so that neither side can block the other.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rig_lines::{Greeting, Lines, decode, encode};
use rig_sys::cpu::CpuSet;
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rig_sys::process::{die_with_parent, in_own_group};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::protocol::{Answer, Bytes, CHUNK, FromHost, PROTOCOL, Question, ToHost};
use super::{Ability, Facts, Host, LostHost, Mark, Program, Sampled, UnsupportedByHost, Window};
use crate::plan::Plan;
use crate::preflight::ReachableContainer;
use crate::requirements::Missing;
use crate::sampler::NodeSample;

/// Longest time for a host to greet.
const GREETING_PATIENCE: Duration = Duration::from_secs(15);
/// Longest time for an answer. Building the largest testbed on a busy machine takes seconds.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for a process that was killed, or a host that has nothing more to do, to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Nodes of another process, and what they count.
#[derive(Debug)]
pub struct Remote {
    name: String,
    program: RefCell<Child>,
    link: Arc<Link>,
    answers: Receiver<ListenerEvent>,
    number: Cell<u64>,
    listener: Option<JoinHandle<()>>,
}

/// What the listener thread hands to the caller that waits for an answer.
#[derive(Debug)]
enum ListenerEvent {
    Greeting(Result<Greeting, rig_lines::Error>),
    Answer(u64, Result<Answer, String>),
}

/// What is shared with the listener and with the processes' pipes.
#[derive(Debug)]
struct Link {
    /// `None` when nothing more is to be said.
    voice: Mutex<Option<ChildStdin>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    processes: BTreeMap<u64, RemoteProcess>,
    /// Why nothing more comes from the host.
    gone: Option<String>,
}

/// What this side knows of a process on the host.
#[derive(Debug)]
struct RemoteProcess {
    stdout: OutputPipe,
    stderr: OutputPipe,
    status: Option<ExitStatus>,
}

/// What a process on the host wrote, on its way to the reader of its pipe here.
#[derive(Debug)]
struct OutputPipe {
    /// `None` once everything has been written, or the reader has closed its end.
    pipe: Option<Arc<OwnedFd>>,
    waiting: VecDeque<u8>,
    is_ended: bool,
}

impl Remote {
    /// A host that is a child of this process: `program`, which is netrig. It dies with the thread that calls this.
    ///
    /// # Errors
    /// When it cannot be started, or is of another version.
    pub fn child(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("host");
        Self::start("child", &mut command)
    }

    /// A host that `command` starts, or leads to.
    ///
    /// # Errors
    /// As [`Self::child`].
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = die_with_parent(in_own_group(command)).spawn();
        let mut program = child.with_context(|| format!("start host {name}"))?;
        let (stdin, stdout) = (program.stdin.take(), program.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).context("speak to a host")?;
        let link = Arc::new(Link { voice: Mutex::new(Some(stdin)), state: Mutex::default(), changed: Condvar::new() });
        let (say, answers) = mpsc::channel();
        let listener = {
            let link = link.clone();
            let listen = move || {
                let why = listen(&stdout, &link, &say);
                link.lose(why);
            };
            thread::Builder::new().name(format!("host {name}")).spawn(listen).context("start a thread")?
        };
        let program = RefCell::new(program);
        let (name, number) = (name.to_owned(), Cell::new(0));
        let host = Self { name, program, link, answers, number, listener: Some(listener) };
        // Fails when it has gone; then what comes from it says why.
        let _ = host.link.say(&PROTOCOL.greeting(env!("CARGO_PKG_VERSION")));
        match host.hear(GREETING_PATIENCE)? {
            ListenerEvent::Greeting(Ok(_)) => Ok(host),
            ListenerEvent::Greeting(Err(why)) => bail!("host {}: {why}", host.name),
            ListenerEvent::Answer(..) => bail!("host {} answers what was not asked", host.name),
        }
    }

    fn hear(&self, time_limit: Duration) -> Result<ListenerEvent> {
        match self.answers.recv_timeout(time_limit) {
            Ok(said) => Ok(said),
            Err(RecvTimeoutError::Timeout) => {
                Err(LostHost(format!("host {} does not answer within {time_limit:?}", self.name)).into())
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.why_gone()),
        }
    }

    fn why_gone(&self) -> anyhow::Error {
        let why = self.link.state().gone.clone().unwrap_or_default();
        let ended = wait_for(&mut self.program.borrow_mut(), Duration::from_secs(1));
        let how = ended.map_or_else(String::new, |status| format!(" ({status})"));
        LostHost(format!("host {} is gone{how}: {why}", self.name)).into()
    }

    fn ask(&self, question: Question) -> Result<Answer> {
        let number = self.number.get();
        self.number.set(number + 1);
        if self.link.say(&ToHost::Ask { number, question }).is_err() {
            // Answers that the host sent before it ended are skipped, to find the reason that it gave.
            while self.hear(TIMEOUT).is_ok() {}
            return Err(self.why_gone());
        }
        match self.hear(TIMEOUT)? {
            ListenerEvent::Answer(to, answer) if to == number => answer.map_err(|why| anyhow!("{why}")),
            said => Err(LostHost(format!("host {} does not speak the protocol: {said:?}", self.name)).into()),
        }
    }

    fn tell(&self, question: Question) -> Result<()> {
        match self.ask(question)? {
            Answer::Done => Ok(()),
            other => Err(self.unasked(&other)),
        }
    }

    fn unasked(&self, answer: &Answer) -> anyhow::Error {
        anyhow!("host {} does not speak the protocol: it answered {answer:?}", self.name)
    }
}

/// An answer of one kind, or the error that it is none.
macro_rules! expect {
    ($host:expr, $question:expr, $pattern:pat => $value:expr) => {
        match $host.ask($question)? {
            $pattern => Ok($value),
            other => Err($host.unasked(&other)),
        }
    };
}

impl Host for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Result<Facts> {
        expect!(self, Question::Facts, Answer::Facts(facts) => facts)
    }

    fn missing(&self, datapath: &str) -> Result<Option<Missing>> {
        let question = Question::Missing { datapath: datapath.to_owned() };
        expect!(self, question, Answer::Missing(missing) => missing)
    }

    fn try_out(&self, datapath: &str) -> Result<()> {
        let question = Question::TryOut { datapath: datapath.to_owned() };
        match expect!(self, question, Answer::TriedOut { refusal } => refusal)? {
            Some(refusal) => Err(anyhow!(refusal)),
            None => Ok(()),
        }
    }

    fn lacks(&self, what: Ability) -> Option<UnsupportedByHost> {
        Some(UnsupportedByHost { host: self.name.clone(), what })
    }

    fn keep_off(&self, cpus: &CpuSet) -> Result<()> {
        self.tell(Question::KeepOff { cpus: cpus.clone() })
    }

    fn apply(&mut self, part: &Plan) -> Result<()> {
        self.tell(Question::Apply { plan: Box::new(part.clone()) })
    }

    fn check_networks(&self, containers: &[ReachableContainer]) -> Result<()> {
        let question = Question::CheckNetworks { containers: containers.to_vec() };
        match expect!(self, question, Answer::Networks { unfit } => unfit)? {
            Some(unfit) => Err(unfit.into()),
            None => Ok(()),
        }
    }

    fn start(&self, space: &str, program: &Program) -> Result<PipedProcess> {
        let process = self.number.get();
        let (stdout, far_stdout) = outlet()?;
        let (stderr, far_stderr) = outlet()?;
        let far = RemoteProcess { stdout: far_stdout, stderr: far_stderr, status: None };
        self.link.state().processes.insert(process, far);
        let question = Question::Start { process, space: space.to_owned(), program: program.clone() };
        if let Err(error) = self.tell(question) {
            self.link.state().processes.remove(&process);
            return Err(error);
        }
        let link = || self.link.clone();
        let stdin = Box::new(Input { link: link(), process });
        Ok(PipedProcess { stdin, stdout, stderr, life: Box::new(RemoteLife { link: link(), process }) })
    }

    fn now(&self) -> Result<u64> {
        expect!(self, Question::Now, Answer::Now { ns } => ns)
    }

    fn mark(&self) -> Result<Mark> {
        expect!(self, Question::Mark, Answer::Mark(mark) => mark)
    }

    fn between(&self, begin: Mark, end: Mark) -> Result<Window> {
        expect!(self, Question::Between { begin, end }, Answer::Window(window) => window)
    }

    fn forget(&self, mark: Mark) -> Result<()> {
        self.tell(Question::Forget { mark })
    }

    fn start_sampling(&self) -> Result<()> {
        self.tell(Question::StartSampling)
    }

    fn sample(&self) -> Result<Vec<NodeSample>> {
        expect!(self, Question::Sample, Answer::Sample(sample) => sample)
    }

    fn end_sampling(&self) -> Result<Sampled> {
        expect!(self, Question::EndSampling, Answer::Sampled(sampled) => sampled)
    }

    fn tear_down(&mut self) -> Result<()> {
        self.tell(Question::TearDown)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The host's program ends when its input ends.
        drop(self.link.voice().take());
        let program = self.program.get_mut();
        if wait_for(program, END_PATIENCE).is_none() {
            let _ = program.kill();
            let _ = program.wait();
        }
        if let Some(listener) = self.listener.take() {
            // If the thread panicked, its message is on standard error already.
            let _ = listener.join();
        }
    }
}

/// The exit status of a process; `None` when it does not end in time.
fn wait_for(child: &mut Child, time_limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + time_limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// A pipe: the end to read, and the one that is fed.
fn outlet() -> Result<(OwnedFd, OutputPipe)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("make a pipe")?;
    fcntl_setfl(&writer, OFlags::NONBLOCK).context("make a pipe")?;
    Ok((reader, OutputPipe { pipe: Some(Arc::new(writer)), waiting: VecDeque::new(), is_ended: false }))
}

impl Link {
    fn voice(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.voice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host always reads at once, so that this does not block for long.
    fn say(&self, message: &impl serde::Serialize) -> io::Result<()> {
        let line = encode(message, PROTOCOL.longest).map_err(io::Error::other)?;
        match self.voice().as_mut() {
            Some(voice) => voice.write_all(&line),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Nothing comes from the host any more: callers that wait for one of its processes get an error.
    fn lose(&self, why: String) {
        let mut state = self.state();
        state.gone = Some(why);
        for far in state.processes.values_mut() {
            for outlet in [&mut far.stdout, &mut far.stderr] {
                outlet.flush();
                outlet.pipe = None;
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl OutputPipe {
    fn end(&mut self) {
        self.is_ended = true;
        self.flush();
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.pipe.is_some() {
            self.waiting.extend(bytes);
            self.flush();
        }
    }

    /// Writes what fits.
    fn flush(&mut self) {
        let Some(pipe) = self.pipe.clone() else { return };
        while !self.waiting.is_empty() {
            let (piece, _) = self.waiting.as_slices();
            match rustix::io::write(&pipe, piece) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The reader has closed its end.
                Err(_) => self.waiting.clear(),
            }
        }
        if self.is_ended {
            self.pipe = None;
        }
    }
}

/// Divides what the host says until it says nothing more; gives the reason.
fn listen(stdout: &ChildStdout, link: &Link, say: &Sender<ListenerEvent>) -> String {
    let mut lines = Lines::new(PROTOCOL.longest);
    let mut chunk = vec![0u8; 256 * 1024];
    let mut is_greeted = false;
    loop {
        let full: Vec<Arc<OwnedFd>> = {
            let state = link.state();
            let outlets = state.processes.values().flat_map(|far| [&far.stdout, &far.stderr]);
            outlets.filter(|outlet| !outlet.waiting.is_empty()).filter_map(|outlet| outlet.pipe.clone()).collect()
        };
        let mut fds = vec![PollFd::new(stdout, PollFlags::IN)];
        fds.extend(full.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return format!("wait for it: {error}"),
        }
        let speaks = !fds[0].revents().is_empty();
        if !full.is_empty() {
            let mut state = link.state();
            state.processes.values_mut().flat_map(|far| [&mut far.stdout, &mut far.stderr]).for_each(OutputPipe::flush);
        }
        if !speaks {
            continue;
        }
        match rustix::io::read(stdout, &mut chunk) {
            Ok(0) => return "its output has ended".to_owned(),
            Ok(count) => lines.push(&chunk[..count]),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(error) => return format!("hear from it: {error}"),
        }
        loop {
            let line = match lines.take() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => return error.to_string(),
            };
            if !is_greeted {
                is_greeted = true;
                // A caller that no longer waits for the greeting has closed the channel.
                let _ = say.send(ListenerEvent::Greeting(PROTOCOL.check(line)));
            } else if let Err(why) = take(line, link, say) {
                return why;
            }
        }
    }
}

/// One thing that the host says.
fn take(line: &[u8], link: &Link, say: &Sender<ListenerEvent>) -> Result<(), String> {
    let of = |process: u64, act: &mut dyn FnMut(&mut RemoteProcess)| {
        // The caller may have dropped the process already.
        let _ = link.state().processes.get_mut(&process).map(act);
    };
    match decode(line).map_err(|error| error.to_string())? {
        // The channel is closed when the caller has given the host up.
        FromHost::Answer { number, answer } => drop(say.send(ListenerEvent::Answer(number, Ok(answer)))),
        FromHost::Refused { number, why } => drop(say.send(ListenerEvent::Answer(number, Err(why)))),
        FromHost::Output { process, data } => of(process, &mut |far| far.stdout.push(&data.0)),
        FromHost::Errors { process, data } => of(process, &mut |far| far.stderr.push(&data.0)),
        FromHost::OutputEnded { process } => of(process, &mut |far| far.stdout.end()),
        FromHost::ErrorsEnded { process } => of(process, &mut |far| far.stderr.end()),
        FromHost::Ended { process, status } => {
            of(process, &mut |far| far.status = Some(ExitStatus::from_raw(status)));
            link.changed.notify_all();
        }
        FromHost::Broken { why } => return Err(why),
    }
    Ok(())
}

/// The standard input of a process there.
struct Input {
    link: Arc<Link>,
    process: u64,
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(CHUNK)];
        self.link.say(&ToHost::Input { process: self.process, data: Bytes(piece.to_vec()) })?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Fails when the host has gone, and the process with it.
        let _ = self.link.say(&ToHost::InputEnded { process: self.process });
    }
}

/// The life of a process on the host.
struct RemoteLife {
    link: Arc<Link>,
    process: u64,
}

impl RemoteLife {
    fn status(&self, state: &State) -> io::Result<Option<ExitStatus>> {
        match (state.processes.get(&self.process).and_then(|far| far.status), &state.gone) {
            (Some(status), _) => Ok(Some(status)),
            (None, None) => Ok(None),
            (None, Some(why)) => Err(io::Error::other(format!("its host is gone: {why}"))),
        }
    }
}

impl ProcessHandle for RemoteLife {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.status(&self.link.state())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.link.say(&ToHost::Kill { process: self.process })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + END_PATIENCE;
        let mut state = self.link.state();
        loop {
            if let Some(status) = self.status(&state)? {
                return Ok(status);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "its host does not say that it has ended"));
            }
            let waited = self.link.changed.wait_timeout(state, left);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
    }
}

impl Drop for RemoteLife {
    fn drop(&mut self) {
        self.link.state().processes.remove(&self.process);
    }
}

impl fmt::Debug for RemoteLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarLife").field("process", &self.process).finish_non_exhaustive()
    }
}
