//! A host that is another process: it is asked in lines of JSON ([`protocol`](super::protocol)), as it would be over a
//! network.
//!
//! One thread reads all that the host says and divides it: replies go to the client that waits for them, outputs of processes
//! into pipes that look like those of children. It never waits for anything but the host, so that neither side can block the other.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Cursor, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rig_lines::{Client, Error, Lines, LostPeer, Reply, encode};
use rig_sys::advice;
use rig_sys::cpu::CpuSet;
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rig_sys::probe;
use rig_sys::process::{die_with_parent, in_own_group};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::de::IgnoredAny;

use super::protocol::{
    Answer, Bytes, CHUNK, FromHost, FromProcess, Notice, PROTOCOL, Question, SIGN_OF_LIFE, ToProcess,
};
use super::reach::{Binary, HostAccess, Opening};
use super::{ContainerAccess, Environment, Facts, Host, HostInterface, Mark, Program, Sampled, StackSampling, Window};
use crate::frames::NodeFrames;
use crate::plan::Plan;
use crate::preflight::ReachableContainer;
use crate::process_client::{ProcessClient, StderrTail, TIMEOUT, silence};
use crate::requirements::{Missing, Settings};
use crate::sampler::NodeSample;
use crate::stacks::FoldedStacks;

/// Longest time for a process that was killed to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Nodes of another process, and what they count.
#[derive(Debug)]
pub struct Remote {
    name: String,
    /// What users tell it apart by, which it does not know itself.
    labels: BTreeMap<String, String>,
    client: Mutex<ProcessClient<Replies, HostInput>>,
    link: Arc<Link>,
    /// Of the process that is started next.
    process: AtomicU64,
    listener: Option<JoinHandle<()>>,
}

/// What is shared with the listener and with the processes' pipes.
#[derive(Debug)]
struct Link {
    /// `None` when nothing more is to be written.
    stdin: Mutex<Option<ChildStdin>>,
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

/// An answer of one kind, or the error that it is none.
macro_rules! expect {
    ($host:expr, $question:expr, $pattern:pat => $value:expr) => {
        match $host.ask($question)? {
            $pattern => Ok($value),
            other => Err($host.client().unasked(&other)),
        }
    };
}

impl Remote {
    /// A host that is a child of this process: `program`, which is netrig. It dies with the thread that calls this.
    ///
    /// # Errors
    /// When it cannot be started, or is of another version.
    pub fn child(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("host");
        // Over a screen or among a run's lines nobody looks for what it says; an error has the end of it.
        Self::start("child", advice::pass_on(&mut command).stderr(Stdio::piped()))
    }

    /// A host that a command line reaches: `program`, which is netrig, is copied there unless the host has its own, or has been given it before.
    ///
    /// # Errors
    /// As [`Self::child`], and with what to try by hand where nothing greets.
    pub fn reach(access: &HostAccess, program: &Path) -> Result<Self> {
        Self::reach_unless(access, program, None)
    }

    /// As [`Self::reach`], but given up, with all that it started here, as soon as there is something to be read from `stop`.
    ///
    /// # Errors
    /// As there, and when it is given up.
    pub fn reach_unless(access: &HostAccess, program: &Path, stop: Option<BorrowedFd<'_>>) -> Result<Self> {
        let program = access.binary.as_deref().unwrap_or(program);
        let copied = access.program.is_none().then(|| Binary::shared(program)).transpose()?;
        let mut command = access.to_start(copied.as_deref())?;
        let reached = Self::open(&access.name, command.stderr(Stdio::piped()), copied.as_deref(), stop);
        let mut reached = reached.map_err(|error| LostPeer(access.not_reached(&format!("{error:#}"))))?;
        reached.labels.clone_from(&access.labels);
        Ok(reached)
    }

    /// A host that `command` starts, or leads to.
    ///
    /// # Errors
    /// As [`Self::child`].
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        Self::open(name, command, None, None)
    }

    fn open(name: &str, command: &mut Command, copied: Option<&Binary>, stop: Option<BorrowedFd<'_>>) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = die_with_parent(in_own_group(command)).spawn();
        let mut program = child.with_context(|| format!("start {}", command.get_program().display()))?;
        let (stdin, stdout) = (program.stdin.take(), program.stdout.take());
        let (mut stdin, stdout) = stdin.zip(stdout).context("speak to a host")?;
        let stderr = program.stderr.take().map(|stderr| StderrTail::of(stderr.into())).transpose()?;
        let link = Arc::new(Link { stdin: Mutex::new(None), state: Mutex::default(), changed: Condvar::new() });
        let mut listener = None;
        let open = || {
            let heard = Opening::new(&mut stdin, &stdout, stop).until_greeting(copied)?;
            *link.stdin() = Some(stdin);
            let (lines, replies) = mpsc::channel();
            let input = HostInput(link.clone());
            let of_listener = link.clone();
            let listen = move || {
                let why = listen(&stdout, &heard, &of_listener, &lines).err().unwrap_or(Error::Ended);
                of_listener.lose(why.to_string());
                if !why.is_end() {
                    drop(lines.send(Err(io::Error::other(why))));
                }
            };
            listener = Some(thread::Builder::new().name(format!("host {name}")).spawn(listen)?);
            let replies = Replies { lines: replies, rest: Cursor::default() };
            Client::greet(replies, input, &PROTOCOL, env!("CARGO_PKG_VERSION"))
        };
        let client = ProcessClient::open(format!("host {name}"), Box::new(program), stderr, open)?;
        let client = Mutex::new(client);
        let (name, labels) = (name.to_owned(), BTreeMap::new());
        Ok(Self { name, labels, client, link, process: AtomicU64::new(0), listener })
    }

    fn ask(&self, question: &Question) -> Result<Answer> {
        self.client().ask(question)
    }

    fn client(&self) -> MutexGuard<'_, ProcessClient<Replies, HostInput>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, question: &Question) -> Result<()> {
        expect!(self, question, Answer::Done => ())
    }

    /// In a node's namespace, or the host's own.
    fn start_in(&self, space: Option<&str>, program: &Program) -> Result<PipedProcess> {
        let process = self.process.fetch_add(1, Ordering::Relaxed);
        let (stdout, far_stdout) = outlet()?;
        let (stderr, far_stderr) = outlet()?;
        let far = RemoteProcess { stdout: far_stdout, stderr: far_stderr, status: None };
        self.link.state().processes.insert(process, far);
        let question = Question::Start { process, space: space.map(str::to_owned), program: program.clone() };
        if let Err(error) = self.tell(&question) {
            self.link.state().processes.remove(&process);
            return Err(error);
        }
        let link = || self.link.clone();
        let stdin = Box::new(Input { link: link(), process });
        Ok(PipedProcess { stdin, stdout, stderr, life: Box::new(RemoteLife { link: link(), process }) })
    }
}

impl Host for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Result<Facts> {
        expect!(self, &Question::Facts, Answer::Facts(facts) => facts)
    }

    fn environment(&self) -> Result<Environment> {
        let environment = expect!(self, &Question::Environment, Answer::Environment(environment) => *environment)?;
        Ok(Environment { labels: self.labels.clone(), ..environment })
    }

    fn probe(&self, congestion_controls: &[String]) -> Result<probe::Facts> {
        let question = Question::Probe { congestion_controls: congestion_controls.to_vec() };
        expect!(self, &question, Answer::Probed(facts) => *facts)
    }

    fn interfaces(&self) -> Result<Vec<HostInterface>> {
        expect!(self, &Question::Interfaces, Answer::Interfaces(interfaces) => interfaces)
    }

    fn cards(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        expect!(self, &Question::Cards, Answer::Cards(cards) => cards)
    }

    fn missing(&self, datapath: &str, settings: &Settings) -> Result<Option<Missing>> {
        let question = Question::Missing { datapath: datapath.to_owned(), settings: settings.clone() };
        expect!(self, &question, Answer::Missing(missing) => missing)
    }

    fn try_out(&self, datapath: &str) -> Result<()> {
        let question = Question::TryOut { datapath: datapath.to_owned() };
        match expect!(self, &question, Answer::TriedOut { refusal } => refusal)? {
            Some(refusal) => Err(anyhow!(refusal)),
            None => Ok(()),
        }
    }

    fn keep_off(&self, cpus: &CpuSet) -> Result<()> {
        self.tell(&Question::KeepOff { cpus: cpus.clone() })
    }

    fn apply(&mut self, part: &Plan) -> Result<()> {
        self.tell(&Question::Apply { plan: Box::new(part.clone()) })
    }

    fn use_containers(&mut self, containers: &BTreeMap<String, ContainerAccess>) -> Result<()> {
        self.tell(&Question::UseContainers { containers: containers.clone() })
    }

    fn check_networks(&self, containers: &[ReachableContainer], payload: u32) -> Result<()> {
        let question = Question::CheckNetworks { containers: containers.to_vec(), payload };
        match expect!(self, &question, Answer::Networks { unfit } => unfit)? {
            Some(unfit) => Err(unfit.into()),
            None => Ok(()),
        }
    }

    fn start(&self, space: &str, program: &Program) -> Result<PipedProcess> {
        self.start_in(Some(space), program)
    }

    fn start_beside(&self, program: &Program) -> Result<PipedProcess> {
        self.start_in(None, program)
    }

    fn now(&self) -> Result<u64> {
        expect!(self, &Question::Now, Answer::Now { ns } => ns)
    }

    fn mark(&self) -> Result<Mark> {
        expect!(self, &Question::Mark, Answer::Mark(mark) => mark)
    }

    fn between(&self, begin: Mark, end: Mark) -> Result<Window> {
        expect!(self, &Question::Between { begin, end }, Answer::Window(window) => window)
    }

    fn forget(&self, mark: Mark) -> Result<()> {
        self.tell(&Question::Forget { mark })
    }

    fn lost_frames(&self) -> Result<Vec<NodeFrames>> {
        expect!(self, &Question::LostFrames, Answer::LostFrames(frames) => frames)
    }

    fn start_sampling(&self) -> Result<()> {
        self.tell(&Question::StartSampling)
    }

    fn sample(&self) -> Result<Vec<NodeSample>> {
        expect!(self, &Question::Sample, Answer::Sample(sample) => sample)
    }

    fn end_sampling(&self) -> Result<Sampled> {
        expect!(self, &Question::EndSampling, Answer::Sampled(sampled) => sampled)
    }

    fn count_interrupts(&mut self) -> Result<()> {
        self.tell(&Question::CountInterrupts)
    }

    fn prepare_stacks(&self, cpus: &CpuSet) -> Result<()> {
        self.tell(&Question::PrepareStacks { cpus: cpus.clone() })
    }

    fn start_stacks(&self, cpus: &CpuSet, hertz: u32) -> Result<StackSampling> {
        let question = Question::StartStacks { cpus: cpus.clone(), hertz };
        expect!(self, &question, Answer::StackSampling(sampling) => sampling)
    }

    fn stop_stacks(&self, sampling: StackSampling) -> Result<()> {
        self.tell(&Question::StopStacks { sampling })
    }

    fn folded_stacks(&self, sampling: StackSampling) -> Result<FoldedStacks> {
        expect!(self, &Question::FoldedStacks { sampling }, Answer::FoldedStacks(stacks) => stacks)
    }

    fn tear_down(&mut self) -> Result<()> {
        self.tell(&Question::TearDown)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.client().close();
        if let Some(listener) = self.listener.take() {
            // If the thread panicked, its message is on standard error already.
            let _ = listener.join();
        }
    }
}

/// The host's standard input, of which a line is written at a time. Dropped, it ends, and with it the host.
#[derive(Debug)]
struct HostInput(Arc<Link>);

impl Write for HostInput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for HostInput {
    fn drop(&mut self) {
        drop(self.0.stdin().take());
    }
}

/// The host's replies, as the listener hands them on.
#[derive(Debug)]
struct Replies {
    lines: Receiver<io::Result<Vec<u8>>>,
    /// Of the line that is being read.
    rest: Cursor<Vec<u8>>,
}

impl Read for Replies {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.rest.read(buffer)?;
        if count > 0 || buffer.is_empty() {
            return Ok(count);
        }
        self.rest = Cursor::new(match self.lines.recv_timeout(TIMEOUT) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => return Err(silence(TIMEOUT)),
            Err(RecvTimeoutError::Disconnected) => return Ok(0),
        });
        self.rest.read(buffer)
    }
}

/// A pipe: the end to read, and the one that is fed.
fn outlet() -> Result<(OwnedFd, OutputPipe)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("make a pipe")?;
    fcntl_setfl(&writer, OFlags::NONBLOCK).context("make a pipe")?;
    Ok((reader, OutputPipe { pipe: Some(Arc::new(writer)), waiting: VecDeque::new(), is_ended: false }))
}

impl Link {
    fn stdin(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, message: &ToProcess) -> io::Result<()> {
        self.write(&encode(message, PROTOCOL.longest).map_err(io::Error::other)?)
    }

    /// Says that the runner is there, unless it is just saying something else, or what it said waits still: the listener never blocks.
    fn show_life(&self) -> io::Result<()> {
        let Ok(mut stdin) = self.stdin.try_lock() else { return Ok(()) };
        let Some(stdin) = stdin.as_mut() else { return Ok(()) };
        let line = encode(&Notice::Alive, PROTOCOL.longest).map_err(io::Error::other)?;
        // There is room for PIPE_BUF bytes then (pipe(7)).
        let is_free = poll(&mut [PollFd::new(stdin, PollFlags::OUT)], Some(&Timespec::default()))? > 0;
        if is_free { stdin.write_all(&line) } else { Ok(()) }
    }

    /// The host always reads at once, so that this does not block for long.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        match self.stdin().as_mut() {
            Some(stdin) => stdin.write_all(line),
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

/// Divides what the host says until it says nothing more; `heard` was read before.
fn listen(stdout: &ChildStdout, heard: &[u8], link: &Link, replies: &Sender<io::Result<Vec<u8>>>) -> Result<(), Error> {
    let mut lines = Lines::new(PROTOCOL.longest);
    lines.push(heard);
    let mut chunk = vec![0u8; 256 * 1024];
    let mut is_greeted = false;
    let mut shown = Instant::now();
    loop {
        if shown.elapsed() >= SIGN_OF_LIFE {
            shown = Instant::now();
            // A host that takes nothing any more has ended, which is read next.
            let _ = link.show_life();
        }
        while let Some(line) = lines.take()? {
            let message = is_greeted.then(|| FromHost::<IgnoredAny>::read(line)).transpose()?;
            is_greeted = true;
            match message {
                Some(FromHost::Process(message)) => divide(message, link),
                Some(FromHost::Reply(Reply::Broken { why })) => return Err(Error::NotUnderstood(why)),
                // Replies and the greeting are the client's to read. The channel is closed when it has given the host up.
                Some(FromHost::Reply(_)) | None => drop(replies.send(Ok([line, b"\n"].concat()))),
            }
        }
        let full: Vec<Arc<OwnedFd>> = {
            let state = link.state();
            let outlets = state.processes.values().flat_map(|far| [&far.stdout, &far.stderr]);
            outlets.filter(|outlet| !outlet.waiting.is_empty()).filter_map(|outlet| outlet.pipe.clone()).collect()
        };
        let mut fds = vec![PollFd::new(stdout, PollFlags::IN)];
        fds.extend(full.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let limit = Timespec { tv_sec: SIGN_OF_LIFE.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
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
            Ok(0) => return Ok(()),
            Ok(count) => lines.push(&chunk[..count]),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// What a process does.
fn divide(message: FromProcess, link: &Link) {
    let of = |process: u64, act: &mut dyn FnMut(&mut RemoteProcess)| {
        // The caller may have dropped the process already.
        let _ = link.state().processes.get_mut(&process).map(act);
    };
    match message {
        FromProcess::Output { process, data } => of(process, &mut |far| far.stdout.push(&data.0)),
        FromProcess::Errors { process, data } => of(process, &mut |far| far.stderr.push(&data.0)),
        FromProcess::OutputEnded { process } => of(process, &mut |far| far.stdout.end()),
        FromProcess::ErrorsEnded { process } => of(process, &mut |far| far.stderr.end()),
        FromProcess::Ended { process, status } => {
            of(process, &mut |far| far.status = Some(ExitStatus::from_raw(status)));
            link.changed.notify_all();
        }
    }
}

/// The standard input of a process there.
struct Input {
    link: Arc<Link>,
    process: u64,
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(CHUNK)];
        self.link.say(&ToProcess::Input { process: self.process, data: Bytes(piece.to_vec()) })?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Fails when the host has gone, and the process with it.
        let _ = self.link.say(&ToProcess::InputEnded { process: self.process });
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
        self.link.say(&ToProcess::Kill { process: self.process })
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
        f.debug_struct("RemoteLife").field("process", &self.process).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_a_line_of_its_own_and_never_waits() {
        let mut program = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = Mutex::new(program.stdin.take());
        let link = Link { stdin, state: Mutex::default(), changed: Condvar::new() };
        let busy = link.stdin();
        link.show_life().unwrap();
        drop(busy);
        link.show_life().unwrap();
        drop(link.stdin().take());
        link.show_life().unwrap();
        assert_eq!(String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap(), "\"alive\"\n");
    }
}
