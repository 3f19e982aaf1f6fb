//! A process to which one speaks by three pipes, on this machine or on another.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};

/// A process that was started, and what is joined to its standard input, output and error. Dropping it does not end it.
pub struct PipedProcess {
    /// Dropped, its input ends.
    pub stdin: Box<dyn Write + Send>,
    /// Can be waited for with poll(2) and its like.
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub life: Box<dyn ProcessHandle>,
}

/// What becomes of a process.
pub trait ProcessHandle: fmt::Debug + Send {
    /// How it ended, if it has.
    ///
    /// # Errors
    /// As those that follow: when that cannot be known any more.
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>>;

    /// Kills it at once.
    fn kill(&mut self) -> io::Result<()>;

    /// Waits until it has ended.
    fn wait(&mut self) -> io::Result<ExitStatus>;

    /// Its number, where it is a process of this machine.
    fn pid(&self) -> Option<u32> {
        None
    }
}

impl ProcessHandle for Child {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        Self::try_wait(self)
    }

    fn kill(&mut self) -> io::Result<()> {
        Self::kill(self)
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        Self::wait(self)
    }

    fn pid(&self) -> Option<u32> {
        Some(self.id())
    }
}

impl TryFrom<Child> for PipedProcess {
    type Error = io::Error;

    /// Takes over a child that was started with standard input, output and error piped; kills one that was not.
    fn try_from(mut child: Child) -> io::Result<Self> {
        match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => {
                Ok(Self { stdin: Box::new(stdin), stdout: stdout.into(), stderr: stderr.into(), life: Box::new(child) })
            }
            _ => {
                child.kill()?;
                child.wait()?;
                Err(io::Error::other("its input, output and error have to be pipes"))
            }
        }
    }
}

impl fmt::Debug for PipedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piped").field("life", &self.life).finish_non_exhaustive()
    }
}
