//! Whether the programs of netrig's own datapaths can run here.

use anyhow::Result;
use rig_cli::exit::in_words;
use rig_datapath::Error;
use rig_sys::advice;

use super::{Finding, FindingArea, MissingResource, State};

/// A datapath that is made of programs which the kernel has to take.
struct DatapathProbe {
    /// Its name in the registry of datapaths.
    datapath: &'static str,
    area: FindingArea,
    name: &'static str,
    /// What came of it, and what does not work without.
    works: &'static str,
    effect: &'static str,
}

const TRIED: [DatapathProbe; 2] = [
    DatapathProbe {
        datapath: "balancer",
        area: FindingArea::Balancer,
        name: "XDP programs",
        works: "programs load and attach to a veth interface",
        effect: "no `netrig lb run`, and `netrig run balancer` leaves its rows out",
    },
    DatapathProbe {
        datapath: "vrouter",
        area: FindingArea::Vrouter,
        name: "tc programs",
        works: "programs load",
        effect: "no `netrig vrouter run`, and suites leave out scenarios with a vRouter, such as D and F of layers",
    },
];

/// Has each of them tried out, as a run does before it begins.
pub(super) fn findings() -> Vec<Finding> {
    let of = |tried: &DatapathProbe| Some(finding(tried, &rig_datapaths::ALL.find(tried.datapath)?.try_out()));
    TRIED.iter().filter_map(of).collect()
}

/// What came of it.
fn finding(tried: &DatapathProbe, outcome: &Result<()>) -> Finding {
    let state = match outcome {
        Ok(()) => State::Ok { found: tried.works.to_owned() },
        Err(error) => State::Lacking(MissingResource {
            found: in_words(error),
            effect: tried.effect.to_owned(),
            remedy: match error.downcast_ref() {
                // Loading needs less, but this trial makes namespaces.
                Some(Error::NotPermitted(_)) => advice::rights(&[advice::PROGRAMS, advice::NAMESPACES].concat()),
                _ => advice::in_words(&in_words(error))
                    .unwrap_or_else(|| "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF".to_owned()),
            },
        }),
    };
    Finding { area: tried.area, name: tried.name, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cannot_be_loaded_are_no_obstacle_to_runs() {
        let [balancer, vrouter] = &TRIED;
        let refused = |tried| match finding(tried, &Err(anyhow::anyhow!("not permitted"))).state {
            State::Lacking(lack) => lack,
            other => panic!("not a lack: {other:?}"),
        };
        let lack = refused(balancer);
        assert!(lack.found == "not permitted" && lack.effect.contains("netrig lb run"), "{lack:?}");
        assert!(refused(vrouter).effect.contains("D and F of layers"));
        assert!(matches!(finding(balancer, &Ok(())).state, State::Ok { .. }));
        // A user without privileges is not told to use another kernel.
        let denied = Error::NotPermitted(std::io::ErrorKind::PermissionDenied.into());
        let State::Lacking(lack) = finding(balancer, &Err(denied.into())).state else { panic!("not a lack") };
        assert!(lack.remedy.contains("as root") && !lack.remedy.contains("kernel"), "{lack:?}");
        assert!(!lack.found.contains("Linux"), "{lack:?}");
    }

    #[test]
    fn each_that_is_tried_is_a_datapath() {
        assert!(TRIED.iter().all(|tried| rig_datapaths::ALL.find(tried.datapath).is_some()));
    }
}
