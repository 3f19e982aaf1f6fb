//! Other load generators: netrig needs none of them, but its bench of streams runs beside those that are there.

use std::env::split_paths;
use std::ffi::OsStr;

use super::{Area, Finding, Lack, State};

/// A tool by the programs that have to be on PATH, and where it comes from.
struct Tool {
    name: &'static str,
    programs: &'static [&'static str],
    remedy: &'static str,
}

const TOOLS: [Tool; 4] = [
    Tool { name: "iperf3", programs: &["iperf3"], remedy: "apt-get install iperf3" },
    Tool { name: "netperf", programs: &["netperf", "netserver"], remedy: "put netperf and netserver on PATH" },
    Tool { name: "neper", programs: &["tcp_stream"], remedy: "put neper's tcp_stream on PATH" },
    Tool { name: "ntttcp", programs: &["ntttcp"], remedy: "put ntttcp-for-linux's ntttcp on PATH" },
];

/// Which of the tools are in the folders of `path`.
pub(super) fn tools(path: Option<&OsStr>) -> Vec<Finding> {
    let folders: Vec<_> = path.map(|path| split_paths(path).collect()).unwrap_or_default();
    let find = |program: &&str| folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file());
    let state = |tool: &Tool| match tool.programs.iter().map(find).collect::<Option<Vec<_>>>() {
        Some(files) => State::Ok { found: files[0].display().to_string() },
        None => State::Lacking(Lack {
            found: "not on PATH".into(),
            effect: "`cargo xtask bench stream` leaves it out; nothing else needs it".into(),
            remedy: tool.remedy.into(),
        }),
    };
    TOOLS.iter().map(|tool| Finding { area: Area::Tools, name: tool.name, state: state(tool) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_there_when_all_its_programs_are() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("netperf"), "").unwrap();
        std::fs::write(folder.path().join("iperf3"), "").unwrap();
        let found = |name: &str| {
            let all = tools(Some(folder.path().as_os_str()));
            matches!(all.iter().find(|f| f.name == name).unwrap().state, State::Ok { .. })
        };
        assert!(found("iperf3") && !found("netperf") && !found("ntttcp"));
        std::fs::write(folder.path().join("netserver"), "").unwrap();
        assert!(found("netperf"));
        assert!(tools(None).iter().all(|finding| matches!(finding.state, State::Lacking(_))));
    }
}
