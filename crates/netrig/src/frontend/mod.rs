//! The command lines, layouts and wire protocols of other tools, over netrig's own engines.
//!
//! A front end translates its original's options into a load of `rig-load`, talks to the original's other end, and
//! prints what the original would print. What they share is here: being called by the original's name, the counters of
//! the machine ([`counters`]), and the course of a test in which an end of another kind takes part ([`course`]).

pub mod counters;
pub mod course;
pub mod dperf;
pub mod ntttcp;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use rig_cli::exit::{Exit, Failure, OrExit};
use rig_cli::streams;
use rig_sys::process;

use crate::lb;

/// The tool that the program was called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Ntttcp(ntttcp::CalledAs),
    Dperf,
    Ipvsadm,
}

impl Tool {
    /// Which tool a program of this name is: the last part of its path, with any case and with or without `.exe`.
    pub fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?.to_str()?.to_ascii_lowercase();
        match name.strip_suffix(".exe").unwrap_or(&name) {
            "dperf" => Some(Self::Dperf),
            "ipvsadm" => Some(Self::Ipvsadm),
            name => ntttcp::CalledAs::of(name).map(Self::Ntttcp),
        }
    }

    /// Does what the tool's own arguments say.
    pub fn execute(self, arguments: &[OsString]) -> Result<Exit, Failure> {
        match self {
            Self::Ntttcp(name) => ntttcp::execute(name, arguments),
            Self::Dperf => dperf::execute_as_dperf(arguments),
            // Without arguments ipvsadm lists.
            Self::Ipvsadm if arguments.is_empty() => lb::ipvsadm::execute(arguments),
            Self::Ipvsadm => lb::command::execute(arguments),
        }
    }
}

/// Starts the same again, `netrig TOOL ARGUMENTS` with `marker` in its environment, in a session of its own and without a
/// terminal, and leaves it alone.
fn go_into_background(tool: &str, arguments: &[OsString], marker: &str) -> Result<Exit, Failure> {
    let program = env::current_exe().context("find this program").or_exit(Exit::Failed)?;
    let mut command = Command::new(program);
    command.arg(tool).args(arguments).env(marker, "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child =
        process::in_own_session(&mut command).spawn().context("start in the background").or_exit(Exit::Failed)?;
    streams::print(&format!("runs in the background as process {}\n", child.id()))?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_link_chooses_the_tool() {
        use ntttcp::CalledAs::{Plain, Receiver, Sender};
        for (program, tool) in [
            ("ntttcp", Some(Tool::Ntttcp(Plain))),
            ("/usr/local/bin/NTttcp.exe", Some(Tool::Ntttcp(Plain))),
            ("ntttcps", Some(Tool::Ntttcp(Sender))),
            ("./NTTTCPR", Some(Tool::Ntttcp(Receiver))),
            ("/usr/bin/dperf", Some(Tool::Dperf)),
            ("/sbin/ipvsadm", Some(Tool::Ipvsadm)),
            ("ipvsadm-save", None),
            ("netrig", None),
            ("/opt/ntttcp/netrig", None),
            ("ntttcpx", None),
            ("", None),
        ] {
            assert_eq!(Tool::of(OsStr::new(program)), tool, "{program}");
        }
    }
}
