//! A netrig process that is asked in lines over its standard streams, wherever it runs: waited for within limits, and lost with the
//! reason.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use rig_cli::visible::visible_line;
use rig_lines::{Client, Error, LostPeer};
use rig_sys::piped::ProcessHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest time for an answer. Loading the largest programs, or building the largest testbed, takes seconds on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// So many times as long for a process that is seen to work: an emulated machine loads the largest programs in minutes.
const WORKING: u32 = 10;
/// Longest time for a process that has nothing more to do to end, until it is killed.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What is kept of a process's standard error: the last of it says what was wrong.
const TAIL: usize = 4096;

/// A process and the conversation with it. Dropped, its input ends, and with that the process.
pub(crate) struct ProcessClient<R, W> {
    /// As messages call it.
    name: String,
    /// `None` once it is to end: its input ends when this is dropped.
    client: Option<Client<R, W>>,
    /// Why there is none, for whoever asks later: the first to notice may have had something else to say.
    lost: Option<String>,
    life: Box<dyn ProcessHandle>,
    /// Where it is read here.
    stderr: Option<StderrTail>,
}

impl<R: Read, W: Write> ProcessClient<R, W> {
    /// Of one that `open` greets.
    ///
    /// # Errors
    /// [`LostPeer`] when it cannot be spoken to.
    pub(crate) fn open(
        name: String,
        life: Box<dyn ProcessHandle>,
        stderr: Option<StderrTail>,
        open: impl FnOnce() -> Result<Client<R, W>, Error>,
    ) -> Result<Self> {
        let mut new = Self { name, client: None, lost: None, life, stderr };
        match open() {
            Ok(client) => new.client = Some(client),
            Err(error) => return Err(new.failed(error)),
        }
        Ok(new)
    }

    /// The build that it says it is, once it has answered.
    pub(crate) fn build(&self) -> Option<&str> {
        Some(&self.client.as_ref()?.greeting()?.build)
    }

    /// Asks, without waiting for the answer.
    ///
    /// # Errors
    /// [`LostPeer`].
    pub(crate) fn begin(&mut self, question: &impl Serialize) -> Result<()> {
        let begun = self.client()?.begin(question);
        begun.map_err(|error| self.failed(error))
    }

    /// The answer to what [`Self::begin`] asked, of one part.
    ///
    /// # Errors
    /// [`Refusal`](rig_lines::Refusal), or [`LostPeer`].
    pub(crate) fn answer<A: DeserializeOwned>(&mut self) -> Result<A> {
        let part = self.client()?.part();
        part.map(|(answer, _)| answer).map_err(|error| self.failed(error))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, question: &impl Serialize) -> Result<A> {
        self.begin(question)?;
        self.answer()
    }

    /// The last lines that it has written on standard error, where that is read here.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.stderr.as_ref().map(StderrTail::lines).unwrap_or_default()
    }

    /// Of an answer to something else.
    pub(crate) fn unasked(&self, answer: &impl fmt::Debug) -> anyhow::Error {
        LostPeer(format!("{self} does not speak the protocol: it answered {answer:?}")).into()
    }

    /// Ends its input and waits until the process has ended; unlike a drop, it says what went wrong.
    ///
    /// # Errors
    /// When it does not end, or says by its status that something went wrong.
    pub(crate) fn end(mut self) -> Result<()> {
        self.client = None;
        match wait_for(self.life.as_mut(), END_PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(LostPeer(format!("{self} ended ({status}){}", self.continued())).into()),
            None => Err(LostPeer(format!("{self} does not end")).into()),
        }
    }

    fn client(&mut self) -> Result<&mut Client<R, W>> {
        let Self { name, lost, client, .. } = self;
        let why = || lost.clone().unwrap_or_else(|| format!("{name} has ended"));
        client.as_mut().ok_or_else(|| LostPeer(why()).into())
    }

    /// A refusal, or why it does not answer, with how it ended and what it said last.
    fn failed(&mut self, error: Error) -> anyhow::Error {
        if let Error::Refused(refusal) = error {
            return refusal.into();
        }
        // It ends with its input.
        self.client = None;
        let what = match error {
            Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => format!("{self} {error}"),
            error if error.is_end() => match wait_for(self.life.as_mut(), Duration::from_secs(1)) {
                Ok(Some(status)) => format!("{self} died ({status})"),
                Ok(None) => format!("{self}: {error}"),
                Err(error) => format!("{self} cannot be asked any more: {error}"),
            },
            error => format!("{self}: {error}"),
        };
        let why = what + &self.continued();
        self.lost = Some(why.clone());
        LostPeer(why).into()
    }

    /// The last of its standard error, in a line that continues a message.
    fn continued(&self) -> String {
        self.stderr.as_ref().map(StderrTail::continued).unwrap_or_default()
    }
}

impl<R, W> ProcessClient<R, W> {
    /// Ends its input, and with it the process, which is killed where it does not end.
    pub(crate) fn close(&mut self) {
        // It undoes then what a kill would leave. One that was lost has had its time.
        let was_asked = self.client.take().is_some();
        let time_limit = if was_asked { END_PATIENCE } else { Duration::ZERO };
        if !matches!(wait_for(self.life.as_mut(), time_limit), Ok(Some(_))) {
            let _ = self.life.kill();
            let _ = self.life.wait();
        }
    }
}

impl<R, W> fmt::Debug for ProcessClient<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessClient").field("name", &self.name).field("life", &self.life).finish_non_exhaustive()
    }
}

impl<R, W> fmt::Display for ProcessClient<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<R, W> Drop for ProcessClient<R, W> {
    fn drop(&mut self) {
        self.close();
    }
}

/// That nothing has come in time.
pub(crate) fn silence(time_limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("does not answer within {time_limit:?}"))
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
pub(crate) struct Output {
    file: File,
    timeout: Duration,
    /// Whose it is, where that is a process of this machine: it is waited for longer while it works.
    of: Option<u32>,
}

impl Output {
    /// Of this process, which is waited for so long.
    pub(crate) fn new(stdout: OwnedFd, of: Option<u32>, timeout: Duration) -> Self {
        Self { file: stdout.into(), timeout, of }
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let time_limit = Timespec { tv_sec: self.timeout.as_secs() as i64, tv_nsec: 0 };
        let used = || self.of.and_then(cpu_ticks);
        let mut rounds = 0;
        loop {
            let before = used();
            if poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&time_limit))? > 0 {
                return self.file.read(buffer);
            }
            rounds += 1;
            // A hundredth of the time, with the usual 100 ticks a second: one that only looks around now and then uses less.
            let works =
                used().zip(before).is_some_and(|(now, before)| now.saturating_sub(before) > self.timeout.as_secs());
            if !works || rounds == WORKING {
                return Err(silence(self.timeout * rounds));
            }
        }
    }
}

/// The CPU time of a process so far, in clock ticks: `utime` and `stime`, fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)).
fn cpu_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, in which anything can be.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// The end of what a process writes on its standard error.
#[derive(Debug)]
pub(crate) struct StderrTail {
    last: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl StderrTail {
    /// Reads it from now on.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(crate) fn of(stderr: OwnedFd) -> io::Result<Self> {
        let last = Arc::<Mutex<Vec<u8>>>::default();
        let into = Arc::clone(&last);
        let read = move || {
            let (mut stderr, mut chunk) = (File::from(stderr), [0; TAIL]);
            loop {
                match stderr.read(&mut chunk) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => return,
                    Ok(length) => {
                        let mut last = into.lock().unwrap_or_else(PoisonError::into_inner);
                        last.extend_from_slice(&chunk[..length]);
                        let excess = last.len().saturating_sub(TAIL);
                        last.drain(..excess);
                    }
                }
            }
        };
        let reader = thread::Builder::new().name("errors".into()).spawn(read)?;
        Ok(Self { last, reader })
    }

    fn lines(&self) -> Vec<String> {
        lines(&self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// In a line that continues a message; nothing where there are none.
    fn continued(&self) -> String {
        // Another process may still have the pipe of one that has ended.
        let deadline = Instant::now() + Duration::from_millis(300);
        while !self.reader.is_finished() && Instant::now() < deadline {
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// What a shell that runs this is heard to say, if it may be silent for a second.
    fn heard(script: &str) -> io::Result<String> {
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = Output::new(shell.stdout.take().unwrap().into(), shell.pid(), Duration::from_secs(1));
        let mut buffer = [0; 16];
        let read = output.read(&mut buffer);
        shell.kill().unwrap();
        shell.wait().unwrap();
        read.map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    #[test]
    fn a_process_is_waited_for_while_it_works() {
        let works = "read up rest < /proc/uptime; end=$((${up%.*} + 4)); while [ ${up%.*} -lt $end ]; do read up rest < /proc/uptime; done; echo done";
        assert_eq!(heard(works).unwrap(), "done\n");
        let error = heard("exec sleep 60").unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::TimedOut, "does not answer within 1s".to_owned())
        );
    }
}
