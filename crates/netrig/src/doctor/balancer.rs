//! Whether the balancer's programs can run here.

use anyhow::Result;
use rig_cli::exit::in_words;
use rig_datapath::Error;
use rig_datapath::balancer::{Balancer, Generic, Sizes};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;

use super::{Area, Finding, Lack, State};

/// The smallest tables that there can be.
const SMALL: Sizes = Sizes { connections: 64, services: 1, backends: 1, local_addresses: 1, list_entries: 1 };

/// Loads the programs and attaches them to a veth interface that is made for it, in a namespace of its own.
pub(super) fn try_out() -> Result<()> {
    let [here, there] = [NetNs::create()?, NetNs::create()?];
    let mut link = Netlink::open(&here)?;
    link.add_veth(&VethPair { name: "lb", peer: "peer", peer_ns: &there, queues: 1, mtu: 1500 })?;
    let index = link.index("lb")?;
    here.run(|| -> Result<()> {
        let mut balancer = Balancer::load(SMALL)?;
        balancer.attach(index, Generic::Refused).map(drop)?;
        Ok(())
    })?
}

/// What came of it.
pub(super) fn finding(tried: &Result<()>) -> Finding {
    let state = match tried {
        Ok(()) => State::Ok { found: "programs load and attach to a veth interface".to_owned() },
        Err(error) => State::Lacking(Lack {
            found: in_words(error),
            effect: "no `netrig lb run`, and `netrig run balancer` cannot work".to_owned(),
            remedy: match error.downcast_ref() {
                Some(Error::NotPermitted(_)) => {
                    "run netrig as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and for this trial, which makes \
                     namespaces, CAP_SYS_ADMIN"
                }
                _ => "use a kernel with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF",
            }
            .to_owned(),
        }),
    };
    Finding { area: Area::Balancer, name: "XDP programs", state }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balancer_that_cannot_be_loaded_is_no_obstacle_to_runs() {
        let State::Lacking(lack) = finding(&Err(anyhow::anyhow!("not permitted"))).state else { panic!("not a lack") };
        assert!(lack.found == "not permitted" && lack.effect.contains("netrig lb run"), "{lack:?}");
        assert!(matches!(finding(&Ok(())).state, State::Ok { .. }));
        // Who may not is not told to use another kernel.
        let denied = Error::NotPermitted(std::io::ErrorKind::PermissionDenied.into());
        let State::Lacking(lack) = finding(&Err(denied.into())).state else { panic!("not a lack") };
        assert!(lack.remedy.contains("as root") && !lack.remedy.contains("kernel"), "{lack:?}");
        assert!(!lack.found.contains("Linux"), "{lack:?}");
    }
}
