//! The program of a host: does what another netrig asks on standard input, and answers on standard output.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rig_cli::exit::in_words;
use rig_lines::{Lines, Reply, Request, encode};
use rig_service::refusal;
use rig_sys::clock;
use rig_sys::piped::{PipedProcess, ProcessHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::Host;
use super::protocol::{Answer, Bytes, CHUNK, FromProcess, Notice, PROTOCOL, Question, SILENCE, ToHost, ToProcess};
use crate::preflight::NetworkFault;

/// How much may wait to be read by the runner until no more is read from processes.
const MOST_WAITING: usize = 4 << 20;

/// How often a process whose outputs have ended is looked after, until it has ended too.
const COLLECTING: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// How long a host that ends waits for a runner that does not read its last lines.
const PARTING: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Serves a runner until it closes `input`, or the other end of `stop` is closed: everything that was started is gone then, and with `host`
/// all else that it made. To be called on the thread that the program ends with.
///
/// # Errors
/// When the runner does not speak the protocol, or is silent for longer than one that is there.
pub fn serve(host: &mut dyn Host, input: impl AsFd, output: impl AsFd, stop: impl AsFd) -> Result<()> {
    serve_within(SILENCE, host, input, output, stop)
}

fn serve_within(
    silence: Duration,
    host: &mut dyn Host,
    input: impl AsFd,
    output: impl AsFd,
    stop: impl AsFd,
) -> Result<()> {
    if rustix::termios::isatty(&output) {
        bail!("this is for another netrig, which speaks a protocol of its own to it: see `netrig run --host`");
    }
    // Counters are to be read at once, also where the load fills every CPU that there is.
    clock::be_punctual();
    let flags = fcntl_getfl(&output).context("look at standard output")?;
    fcntl_setfl(&output, flags | OFlags::NONBLOCK).context("prepare standard output")?;
    let mut server = Server {
        host,
        output: output.as_fd(),
        waiting: VecDeque::new(),
        processes: BTreeMap::new(),
        silence,
        is_greeted: false,
    };
    server.say(&PROTOCOL.greeting(env!("CARGO_PKG_VERSION")))?;
    let result = server.go_on(input.as_fd(), stop.as_fd());
    if let Err(error) = &result {
        server.part(&in_words(error));
    }
    result
}

/// The most bytes of sampled stacks in an answer.
const MOST_OF_STACKS: usize = PROTOCOL.longest / 2;

struct Server<'a> {
    host: &'a mut dyn Host,
    output: BorrowedFd<'a>,
    /// What the runner has not read yet.
    waiting: VecDeque<u8>,
    processes: BTreeMap<u64, Process>,
    /// The longest that the runner may be silent.
    silence: Duration,
    is_greeted: bool,
}

/// A process that was started. Killed when dropped.
struct Process {
    stdin: Option<Box<dyn Write + Send>>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    life: Box<dyn ProcessHandle>,
}

/// Whether the runner speaks, and of which process which output has something: standard output, or else standard error.
type ToDo = (bool, Vec<(u64, bool)>);

impl Server<'_> {
    fn go_on(&mut self, input: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> Result<()> {
        let mut lines = Lines::new(PROTOCOL.longest);
        let mut heard = Instant::now();
        loop {
            let left = self.silence.saturating_sub(heard.elapsed());
            let Some((speaks, ready)) = self.wait(input, stop, left)? else { return Ok(()) };
            match speaks {
                true => heard = Instant::now(),
                false if left.is_zero() => bail!("the runner has said nothing for {:?}", self.silence),
                false => {}
            }
            for (process, is_stdout) in ready {
                self.hear(process, is_stdout)?;
            }
            self.collect()?;
            if speaks {
                let mut chunk = [0u8; 64 * 1024];
                let count = match rustix::io::read(input, &mut chunk) {
                    Ok(0) => return Ok(()),
                    Ok(count) => count,
                    Err(Errno::INTR | Errno::AGAIN) => 0,
                    Err(error) => return Err(error).context("read standard input"),
                };
                lines.push(&chunk[..count]);
                while let Some(line) = lines.take()? {
                    self.take(line)?;
                }
            }
            self.flush()?;
        }
    }

    /// Waits for something to do, and no longer than `limit`: whether the runner speaks, and which outputs of processes have something to
    /// read; `None` when it is to stop.
    fn wait(&self, input: BorrowedFd<'_>, stop: BorrowedFd<'_>, limit: Duration) -> Result<Option<ToDo>> {
        let mut fds = [input, stop].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).to_vec();
        let others = fds.len();
        let mut whose = Vec::new();
        let mut timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        for (number, process) in &self.processes {
            if process.stdout.is_none() && process.stderr.is_none() {
                timeout = timeout.min(COLLECTING);
            }
            let outputs = [(&process.stdout, true), (&process.stderr, false)];
            for (fd, is_stdout) in outputs.into_iter().filter(|_| self.waiting.len() < MOST_WAITING) {
                if let Some(fd) = fd {
                    fds.push(PollFd::new(fd, PollFlags::IN));
                    whose.push((*number, is_stdout));
                }
            }
        }
        let of_processes = fds.len();
        if !self.waiting.is_empty() {
            fds.push(PollFd::from_borrowed_fd(self.output, PollFlags::OUT));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Some((false, Vec::new()))),
            Err(error) => return Err(error).context("wait for the runner"),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if is_ready(&fds[1]) {
            return Ok(None);
        }
        let ready = fds[others..of_processes].iter().zip(whose).filter(|(fd, _)| is_ready(fd)).map(|(_, whose)| whose);
        Ok(Some((is_ready(&fds[0]), ready.collect())))
    }

    fn take(&mut self, line: &[u8]) -> Result<()> {
        if !self.is_greeted {
            self.is_greeted = true;
            PROTOCOL.check(line)?;
            return Ok(());
        }
        match ToHost::read(line)? {
            ToHost::Request(Request { number, request }) => {
                let answer = self.answer(request);
                self.say(&match answer {
                    Ok(value) => Reply::Answer { number, value },
                    Err(error) => Reply::Refused { number, why: refusal(error) },
                })
            }
            ToHost::Process(message) => {
                self.hand_on(message);
                Ok(())
            }
            ToHost::Notice(Notice::Alive) => Ok(()),
        }
    }

    fn hand_on(&mut self, message: ToProcess) {
        match message {
            ToProcess::Input { process, data } => {
                if let Some(stdin) = self.processes.get_mut(&process).and_then(|process| process.stdin.as_mut()) {
                    // Fails when the process has gone; then its outputs have ended too, which says so.
                    let _ = stdin.write_all(&data.0);
                }
            }
            ToProcess::InputEnded { process } => {
                self.processes.get_mut(&process).and_then(|process| process.stdin.take());
            }
            ToProcess::Kill { process } => {
                if let Some(process) = self.processes.get_mut(&process) {
                    // Fails when it has ended.
                    let _ = process.life.kill();
                }
            }
        }
    }

    fn answer(&mut self, question: Question) -> Result<Answer> {
        let done = |()| Answer::Done;
        Ok(match question {
            Question::Facts => Answer::Facts(self.host.facts()?),
            Question::Environment => Answer::Environment(Box::new(self.host.environment()?)),
            Question::Probe { congestion_controls } => Answer::Probed(Box::new(self.host.probe(&congestion_controls)?)),
            Question::Interfaces => Answer::Interfaces(self.host.interfaces()?),
            Question::Cards => Answer::Cards(self.host.cards()?),
            Question::Missing { datapath, settings } => Answer::Missing(self.host.missing(&datapath, &settings)?),
            Question::TryOut { datapath } => {
                let tried = self.host.try_out(&datapath);
                Answer::TriedOut { refusal: tried.err().map(|error| format!("{error:#}")) }
            }
            Question::Now => Answer::Now { ns: self.host.now()? },
            Question::Mark => Answer::Mark(self.host.mark()?),
            Question::Between { begin, end } => Answer::Window(self.host.between(begin, end)?),
            Question::LostFrames => Answer::LostFrames(self.host.lost_frames()?),
            Question::Sample => Answer::Sample(self.host.sample()?),
            Question::EndSampling => Answer::Sampled(self.host.end_sampling()?),
            Question::CheckNetworks { containers, payload } => match self.host.check_networks(&containers, payload) {
                Ok(()) => Answer::Networks { unfit: None },
                Err(error) => Answer::Networks { unfit: Some(error.downcast::<NetworkFault>()?) },
            },
            Question::KeepOff { cpus } => self.host.keep_off(&cpus).map(done)?,
            Question::Apply { plan } => self.host.apply(&plan).map(done)?,
            Question::UseContainers { containers } => self.host.use_containers(&containers).map(done)?,
            Question::Forget { mark } => self.host.forget(mark).map(done)?,
            Question::StartSampling => self.host.start_sampling().map(done)?,
            Question::CountInterrupts => self.host.count_interrupts().map(done)?,
            Question::PrepareStacks { cpus } => self.host.prepare_stacks(&cpus).map(done)?,
            Question::StartStacks { cpus, hertz } => Answer::StackSampling(self.host.start_stacks(&cpus, hertz)?),
            Question::StopStacks { sampling } => self.host.stop_stacks(sampling).map(done)?,
            Question::FoldedStacks { sampling } => {
                Answer::FoldedStacks(self.host.folded_stacks(sampling)?.within(MOST_OF_STACKS))
            }
            Question::TearDown => self.host.tear_down().map(done)?,
            Question::Start { process, space, program } => {
                if self.processes.contains_key(&process) {
                    bail!("process {process} runs already");
                }
                let PipedProcess { stdin, stdout, stderr, life } = match space {
                    Some(space) => self.host.start(&space, &program)?,
                    None => self.host.start_beside(&program)?,
                };
                let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
                self.processes.insert(process, Process { stdin, stdout, stderr, life });
                Answer::Done
            }
        })
    }

    /// Hands on what a process has written.
    fn hear(&mut self, number: u64, is_stdout: bool) -> Result<()> {
        let Some(process) = self.processes.get_mut(&number) else { return Ok(()) };
        let output = if is_stdout { &mut process.stdout } else { &mut process.stderr };
        let Some(fd) = output else { return Ok(()) };
        let mut chunk = [0u8; CHUNK];
        let (said, process) = match rustix::io::read(fd, &mut chunk) {
            Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
            Ok(0) | Err(_) => {
                *output = None;
                (None, number)
            }
            Ok(count) => (Some(Bytes(chunk[..count].to_vec())), number),
        };
        self.say(&match (said, is_stdout) {
            (Some(data), true) => FromProcess::Output { process, data },
            (Some(data), false) => FromProcess::Errors { process, data },
            (None, true) => FromProcess::OutputEnded { process },
            (None, false) => FromProcess::ErrorsEnded { process },
        })
    }

    /// Tells of processes that have ended.
    fn collect(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        self.processes.retain(|number, process| {
            let goes_on = process.stdout.is_some() || process.stderr.is_some();
            match if goes_on { None } else { process.life.try_wait().transpose() } {
                None => true,
                Some(status) => {
                    // A process that can no longer be waited for is told as killed (signal 9).
                    ended.push((*number, status.map_or(9, ExitStatusExt::into_raw)));
                    false
                }
            }
        });
        ended.into_iter().try_for_each(|(process, status)| self.say(&FromProcess::Ended { process, status }))
    }

    fn say(&mut self, message: &impl serde::Serialize) -> Result<()> {
        let line = encode(message, PROTOCOL.longest)?;
        self.waiting.extend(line);
        self.flush()
    }

    /// Writes what the runner takes now.
    fn flush(&mut self) -> Result<()> {
        while !self.waiting.is_empty() {
            let (piece, _) = self.waiting.as_slices();
            match rustix::io::write(self.output, piece) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error).context("write to the runner"),
            }
        }
        Ok(())
    }

    /// Says why nothing follows, as far as the runner listens.
    fn part(&mut self, why: &str) {
        let said = self.say(&Reply::<Answer>::Broken { why: why.to_owned() });
        while said.is_ok() && !self.waiting.is_empty() {
            let mut fds = [PollFd::from_borrowed_fd(self.output, PollFlags::OUT)];
            if !matches!(poll(&mut fds, Some(&PARTING)), Ok(1)) || self.flush().is_err() {
                return;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin = None;
        if !matches!(self.life.try_wait(), Ok(Some(_))) {
            let _: io::Result<()> = self.life.kill();
            let _ = self.life.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;
    use crate::host::Local;

    #[test]
    fn a_host_that_hears_nothing_of_its_runner_ends_with_the_reason() {
        let [(input, _runner), (answers, output), (stop, _keeps)] = [(); 3].map(|()| pipe().unwrap());
        let error = serve_within(Duration::ZERO, &mut Local::new().unwrap(), &input, &output, &stop).unwrap_err();
        assert!(error.to_string().contains("the runner has said nothing for"), "{error}");
        drop(output);
        let said = io::read_to_string(std::fs::File::from(answers)).unwrap();
        assert!(said.contains("broken") && said.contains("the runner has said nothing"), "{said}");
    }
}
