//! Being called by the name of another tool.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use netrig_tools::{dperf, iperf3, netperf, ntttcp};
use rig_cli::exit::{Exit, Failure};

use crate::command::tool_runs::StoreKeeper;

/// The tool that the program was called as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Ntttcp(ntttcp::ProgramName),
    Dperf,
    Netperf,
    Netserver,
    Iperf3,
    Ipvsadm,
    /// A listing of the overlay router.
    Vrouter(&'static str),
}

/// Contrail's tools that are commands of `netrig vrouter`.
pub const VROUTER: [&str; 8] = ["vif", "nh", "rt", "mpls", "vxlan", "flow", "dropstats", "vrfstats"];

impl Tool {
    /// Which tool a program of this name is: the last part of its path, with any case and with or without `.exe`.
    pub fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?.to_str()?.to_ascii_lowercase();
        match name.strip_suffix(".exe").unwrap_or(&name) {
            "dperf" => Some(Self::Dperf),
            "netperf" => Some(Self::Netperf),
            "netserver" => Some(Self::Netserver),
            "iperf3" => Some(Self::Iperf3),
            "ipvsadm" => Some(Self::Ipvsadm),
            name => {
                let listing = VROUTER.iter().find(|known| **known == name).map(|known| Self::Vrouter(known));
                listing.or_else(|| ntttcp::ProgramName::of(name).map(Self::Ntttcp))
            }
        }
    }

    /// Does what the tool's own arguments say.
    pub fn execute(self, arguments: &[OsString]) -> Result<Exit, Failure> {
        match self {
            Self::Ntttcp(name) => ntttcp::execute(name, arguments),
            Self::Dperf => dperf::execute_as_dperf(arguments),
            Self::Netperf => netperf::execute_netperf(arguments, &mut StoreKeeper::default()),
            Self::Netserver => netperf::execute_netserver(arguments),
            Self::Iperf3 => iperf3::execute(arguments, &mut StoreKeeper::default()),
            // Without arguments ipvsadm lists; a word is a command of `netrig lb`.
            Self::Ipvsadm if netrig_lb::command::is_command(arguments) => netrig_lb::command::execute(arguments),
            Self::Ipvsadm => netrig_lb::ipvsadm::execute(arguments),
            Self::Vrouter(name) => {
                let arguments = [OsString::from(name)].into_iter().chain(arguments.iter().cloned());
                netrig_vrouter::command::execute(&arguments.collect::<Vec<_>>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_link_chooses_the_tool() {
        use ntttcp::ProgramName::{Plain, Receiver, Sender};
        for (program, tool) in [
            ("ntttcp", Some(Tool::Ntttcp(Plain))),
            ("/usr/local/bin/NTttcp.exe", Some(Tool::Ntttcp(Plain))),
            ("ntttcps", Some(Tool::Ntttcp(Sender))),
            ("./NTTTCPR", Some(Tool::Ntttcp(Receiver))),
            ("/usr/bin/dperf", Some(Tool::Dperf)),
            ("/usr/bin/netperf", Some(Tool::Netperf)),
            ("netserver", Some(Tool::Netserver)),
            ("/usr/bin/iperf3", Some(Tool::Iperf3)),
            ("/sbin/ipvsadm", Some(Tool::Ipvsadm)),
            ("ipvsadm-save", None),
            ("/usr/bin/vif", Some(Tool::Vrouter("vif"))),
            ("dropstats", Some(Tool::Vrouter("dropstats"))),
            ("vrfstats", Some(Tool::Vrouter("vrfstats"))),
            ("vifdump", None),
            ("netrig", None),
            ("/opt/ntttcp/netrig", None),
            ("ntttcpx", None),
            ("", None),
        ] {
            assert_eq!(Tool::of(OsStr::new(program)), tool, "{program}");
        }
    }
}
