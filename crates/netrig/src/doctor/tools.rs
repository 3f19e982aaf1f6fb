//! Other load generators and balancers: netrig needs none of them, but runs beside those that are there.

use std::env::split_paths;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rig_testbed::datapath::Missing;

use super::{Finding, FindingArea, MissingResource, State};

/// A tool by the programs that have to be on PATH, and where it comes from.
struct Tool {
    name: &'static str,
    programs: &'static [&'static str],
    remedy: &'static str,
    /// Of its not being there.
    effect: &'static str,
}

const STREAMS: &str = "`cargo xtask bench stream` leaves it out; nothing else needs it";
const BALANCERS: &str = "`netrig run balancer` leaves its rows out; nothing else needs it";

const TOOLS: [Tool; 6] = [
    Tool { name: "iperf3", programs: &["iperf3"], remedy: "apt-get install iperf3", effect: STREAMS },
    Tool {
        name: "netperf",
        programs: &["netperf", "netserver"],
        remedy: "put netperf and netserver on PATH",
        effect: STREAMS,
    },
    Tool { name: "neper", programs: &["tcp_stream"], remedy: "put neper's tcp_stream on PATH", effect: STREAMS },
    Tool { name: "ntttcp", programs: &["ntttcp"], remedy: "put ntttcp-for-linux's ntttcp on PATH", effect: STREAMS },
    Tool { name: "nftables", programs: &["nft"], remedy: "apt-get install nftables", effect: BALANCERS },
    Tool { name: "HAProxy", programs: &["haproxy"], remedy: "apt-get install haproxy", effect: BALANCERS },
];

/// Where root's programs are, which not every user has on the path.
const OF_ROOT: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Which of the tools there are in the folders of `path` and in root's.
pub(super) fn tools(path: Option<&OsStr>) -> Vec<Finding> {
    let of_path = path.into_iter().flat_map(split_paths);
    within(&of_path.chain(OF_ROOT.map(PathBuf::from)).collect::<Vec<_>>())
}

/// Whether the kernel's balancer could take part, by what it lacks and the remedy.
pub(super) fn ipvs(missing: Option<Missing>) -> Finding {
    let state = match missing {
        None => State::Ok { found: "works".into() },
        Some(Missing { found, remedy }) => State::Lacking(MissingResource { found, effect: BALANCERS.into(), remedy }),
    };
    Finding { area: FindingArea::Tools, name: "IPVS", state }
}

fn within(folders: &[PathBuf]) -> Vec<Finding> {
    let find = |program: &&str| {
        folders.iter().map(|folder| folder.join(program)).find(|file| file.is_file() && !is_netrig(file))
    };
    let state = |tool: &Tool| match tool.programs.iter().map(find).collect::<Option<Vec<_>>>() {
        Some(files) => State::Ok { found: files[0].display().to_string() },
        None => State::Lacking(MissingResource {
            found: "not on PATH".into(),
            effect: tool.effect.into(),
            remedy: tool.remedy.into(),
        }),
    };
    TOOLS.iter().map(|tool| Finding { area: FindingArea::Tools, name: tool.name, state: state(tool) }).collect()
}

/// netrig does the work of some tools under their names; nothing can be compared with such a link.
fn is_netrig(file: &Path) -> bool {
    file.canonicalize().is_ok_and(|file| file.ends_with("netrig"))
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
            let all = within(&[folder.path().to_owned()]);
            matches!(all.iter().find(|f| f.name == name).unwrap().state, State::Ok { .. })
        };
        assert!(found("iperf3") && !found("netperf") && !found("ntttcp"));
        std::fs::write(folder.path().join("netserver"), "").unwrap();
        assert!(found("netperf"));
        std::fs::write(folder.path().join("netrig"), "").unwrap();
        std::os::unix::fs::symlink("netrig", folder.path().join("ntttcp")).unwrap();
        assert!(!found("ntttcp"), "a link to netrig");
        assert!(within(&[]).iter().all(|finding| matches!(finding.state, State::Lacking(_))));
    }

    #[test]
    fn a_balancer_that_lacks_costs_its_rows() {
        let lacks = ipvs(Some(Missing::new("the kernel has no IPVS", "use another")));
        assert!(matches!(lacks.state, State::Lacking(lack) if lack.effect.contains("netrig run balancer")));
        assert!(matches!(ipvs(None).state, State::Ok { .. }));
    }
}
