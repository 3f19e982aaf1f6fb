//! One of the two runs of `netrig ab`: a process that makes a trial when it is told to.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rig_cli::exit::StoppedByUser;
use rig_facts::record::ab_run::Side;
use rig_load::driver::Cancel;
use rig_run::run::turns::{END, GO, TurnMessage};
use rig_sys::process;

/// How often it is looked whether the user stopped what is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// A run that takes turns.
pub(super) struct Run {
    pub side: Side,
    /// Its number in the store, once it has one.
    pub number: Option<String>,
    pub is_over: bool,
    /// Run before each of its trials.
    pub command: Option<String>,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
    cancel: Cancel,
}

impl Run {
    /// Starts it, and waits until it asks for its first turn or has ended.
    pub fn start(mut program: Command, side: Side, command: Option<String>, cancel: Cancel) -> Result<Self> {
        // A group of its own: Ctrl-C reaches it once, from here.
        process::in_own_group(program.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let name = program.get_program().to_owned();
        let mut child = program.spawn().with_context(|| format!("start {}", name.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().context("take its standard output")?);
        let (sender, lines) = channel();
        thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| sender.send(line)));
        let mut run = Self { side, number: None, is_over: false, command, child, input, lines, cancel };
        run.listen()?;
        Ok(run)
    }

    /// Until it is ready for another turn, or over.
    fn listen(&mut self) -> Result<()> {
        loop {
            let line = match self.lines.recv_timeout(LOOK) {
                Ok(line) => line.with_context(|| format!("read from the run of the {} variant", self.side))?,
                Err(RecvTimeoutError::Timeout) if self.cancel.is_cancelled() => return Err(StoppedByUser.into()),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return self.ended(),
            };
            match line.parse()? {
                TurnMessage::Run(number) => self.number = Some(number),
                TurnMessage::Ready => return Ok(()),
                TurnMessage::Over => {
                    self.is_over = true;
                    return Ok(());
                }
            }
        }
    }

    /// It went without a word.
    fn ended(&mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("wait for the run of the {} variant", self.side))?;
        if self.cancel.is_cancelled() {
            return Err(StoppedByUser.into());
        }
        // What it wrote itself says more.
        bail!(SideExit { side: self.side, status: status.code() })
    }

    /// Makes one trial, after its command.
    pub fn turn(&mut self) -> Result<()> {
        if let Some(command) = &self.command {
            shell(command).with_context(|| format!("the command before trials of the {} variant", self.side))?;
        }
        let said = self.input.as_mut().context("the run is ending already")?.write_all(format!("{GO}\n").as_bytes());
        // What it died of is known once it is waited for.
        if said.is_err() {
            return self.ended();
        }
        self.listen()
    }

    /// Has it make no more trials, and waits until it is stored.
    pub fn end(&mut self) -> Result<()> {
        if let Some(mut input) = self.input.take() {
            // It may have ended by itself.
            let _ = input.write_all(format!("{END}\n").as_bytes());
        }
        while !self.is_over {
            self.listen()?;
        }
        self.child.wait().map(drop).with_context(|| format!("wait for the run of the {} variant", self.side))
    }
}

impl Drop for Run {
    /// What was not ended in peace is stopped, as by Ctrl-C, so that it keeps what it has and leaves nothing behind.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = process::terminate(self.child.id());
        }
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A side's process ended early. It has said why by itself.
#[derive(Debug)]
pub(super) struct SideExit {
    pub side: Side,
    pub status: Option<i32>,
}

impl fmt::Display for SideExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the run of the {} variant ended ", self.side)?;
        match self.status {
            Some(status) => write!(f, "with status {status}"),
            None => f.write_str("by a signal"),
        }
    }
}

impl std::error::Error for SideExit {}

/// Runs a shell command, whose output goes where messages go.
pub(super) fn shell(command: &str) -> Result<()> {
    let to = io::stderr().as_fd().try_clone_to_owned().context("find standard error")?;
    let status = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).stdout(to).status();
    let status = status.context("start sh")?;
    if !status.success() {
        bail!("`{command}` failed: {status}");
    }
    Ok(())
}
