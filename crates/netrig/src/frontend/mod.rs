//! The command lines, layouts and wire protocols of other tools, over netrig's own engines.
//!
//! A front end translates its original's options into a load of `rig-load`, talks to the original's other end, and
//! prints what the original would print. What they share is here: being called by the original's name, the counters of
//! the machine ([`counters`]), and the course of a test in which an end of another kind takes part ([`course`]).

pub mod counters;
pub mod course;
pub mod dperf;
pub mod ntttcp;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::{Exit, Failure};

/// The tool that the program was called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Ntttcp(ntttcp::CalledAs),
}

impl Tool {
    /// Which tool a program of this name is: the last part of its path, with any case and with or without `.exe`.
    pub fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?.to_str()?.to_ascii_lowercase();
        ntttcp::CalledAs::of(name.strip_suffix(".exe").unwrap_or(&name)).map(Self::Ntttcp)
    }

    /// Does what the tool's own arguments say.
    pub fn execute(self, arguments: &[OsString]) -> Result<Exit, Failure> {
        match self {
            Self::Ntttcp(name) => ntttcp::execute(name, arguments),
        }
    }
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
            ("netrig", None),
            ("/opt/ntttcp/netrig", None),
            ("ntttcpx", None),
            ("", None),
        ] {
            assert_eq!(Tool::of(OsStr::new(program)), tool, "{program}");
        }
    }
}
