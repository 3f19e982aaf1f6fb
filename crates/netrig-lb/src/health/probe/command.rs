//! A probe by a program: its exit status is the verdict.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rig_sys::process::{die_with_parent, has_ended, in_own_group, kill_group, with_first_file_limit};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::super::check::ProgramCall;
use super::words::Verdict;
use crate::message::{Protocol, ServiceKey};

/// Between looks whether a program that was killed has ended, and how many there are.
const LAST_LOOK: Duration = Duration::from_millis(5);
const LAST_LOOKS: u32 = 40;

#[derive(Debug)]
pub struct CommandProbe {
    child: Child,
    /// Readable when it has ended (pidfd_open(2)).
    ended: OwnedFd,
    is_collected: bool,
}

impl CommandProbe {
    /// Starts it. It has no input, its output goes nowhere, and it knows what to check by its environment.
    pub fn start(call: &ProgramCall, service: ServiceKey, backend: SocketAddr, to: SocketAddr) -> io::Result<Self> {
        let Some((program, arguments)) = call.words.split_first() else {
            return Err(io::Error::other("no command"));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command.envs(call.environment.iter().map(|(name, value)| (name, value)));
        let protocol = match service.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        command.env("NETRIG_PROTOCOL", protocol);
        for (name, at) in [("SERVICE", service.address), ("BACKEND", backend), ("CHECK", to)] {
            command.env(format!("NETRIG_{name}_ADDRESS"), at.ip().to_string());
            command.env(format!("NETRIG_{name}_PORT"), at.port().to_string());
        }
        let mut child = die_with_parent(in_own_group(with_first_file_limit(&mut command))).spawn()?;
        let opened = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData.into());
        let opened = opened.and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        match opened {
            Ok(ended) => Ok(Self { child, ended, is_collected: false }),
            Err(error) => {
                let _gone = kill_group(child.id());
                let _gone = child.wait();
                Err(error)
            }
        }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Ends it, with all that it has started; it is over when it has been collected.
    pub fn kill(&self) {
        if !self.is_collected {
            let _gone = kill_group(self.child.id());
        }
    }

    pub fn go_on(&mut self) -> Option<Verdict> {
        if self.is_collected {
            return Some(Ok(()));
        }
        // Before it is collected, so that its number is its own.
        if matches!(has_ended(self.child.id()), Ok(false)) {
            return None;
        }
        // What it has left running ends with it.
        self.kill();
        let ended = self.child.wait();
        self.is_collected = true;
        Some(match ended.map(|status| (status.code(), status.signal())) {
            Ok((Some(0), _)) => Ok(()),
            Ok((Some(code), _)) => Err(format!("the command ended with status {code}")),
            Ok((None, signal)) => Err(format!("the command was ended by signal {}", signal.unwrap_or(0))),
            Err(error) => Err(format!("the command's end is not known: {error}")),
        })
    }
}

impl Drop for CommandProbe {
    fn drop(&mut self) {
        if !self.is_collected {
            let _gone = kill_group(self.child.id());
            // Who is killed ends at once, unless the kernel holds it, as on a file system that does not answer. Nobody waits for that.
            for _ in 0..LAST_LOOKS {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(LAST_LOOK);
            }
        }
    }
}
