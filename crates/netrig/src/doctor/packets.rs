//! By which ways packets can go here that no socket makes.

use rig_sys::advice::{self, Capability, XDP};
use rig_sys::probe::{Packets, ProbeResult, Refusal};

use super::{Finding, FindingArea, MissingResource, State};

/// One of the ways to send and receive packets, as it was tried out.
struct PacketMethod<'a> {
    name: &'static str,
    outcome: &'a ProbeResult,
    effect: &'static str,
    /// The trial makes namespaces, too.
    rights: &'static [Capability],
    since: (u32, u32),
    /// What else may be missing.
    otherwise: &'static str,
}

const NEW_ENOUGH: &str = "look at the reason found: the kernel is new enough";

/// What the ways of `packets` mean to a user of netrig on this `kernel`.
pub fn findings(kernel: &str, packets: &Packets) -> Vec<Finding> {
    let Packets { xdp, xdp_generic, live_frames, packet_sockets } = packets;
    let ways = [
        PacketMethod {
            name: "AF_XDP",
            outcome: xdp,
            effect: "packet load goes through packet sockets, which are slower",
            rights: XDP,
            since: (5, 9),
            otherwise: NEW_ENOUGH,
        },
        PacketMethod {
            name: "AF_XDP, generic",
            outcome: xdp_generic,
            effect: "interfaces whose driver has no XDP are driven through packet sockets",
            rights: XDP,
            since: (5, 9),
            otherwise: NEW_ENOUGH,
        },
        PacketMethod {
            name: "AF_XDP, live frames",
            outcome: live_frames,
            effect: "packet load over veth pairs makes a socket buffer for each frame: about a third of the rate",
            rights: XDP,
            since: (6, 7),
            otherwise: NEW_ENOUGH,
        },
        PacketMethod {
            name: "packet sockets",
            outcome: packet_sockets,
            effect: "no packet load where AF_XDP is not possible",
            rights: &[Capability::NetRaw],
            since: (0, 0),
            otherwise: "use a kernel with CONFIG_PACKET",
        },
    ];
    ways.map(|way| Finding { area: FindingArea::PacketLoad, name: way.name, state: way.state(kernel) }).into()
}

impl PacketMethod<'_> {
    fn state(&self, kernel: &str) -> State {
        match self.outcome {
            Ok(()) => State::Ok { found: "works".to_owned() },
            Err(refusal) => State::Lacking(MissingResource {
                found: refusal.to_string(),
                effect: self.effect.to_owned(),
                remedy: self.remedy(kernel, refusal),
            }),
        }
    }

    fn remedy(&self, kernel: &str, refusal: &Refusal) -> String {
        let (major, minor) = self.since;
        let newer = is_older(kernel, self.since).then(|| format!("use Linux {major}.{minor} or newer"));
        let rights = refusal.is_denied().then(|| advice::rights(&[self.rights, advice::NAMESPACES].concat()));
        match (newer, rights) {
            (Some(newer), Some(rights)) => format!("{newer}; {rights}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => self.otherwise.to_owned(),
        }
    }
}

/// Whether a kernel's release, such as "6.18.44-cloud x86_64", is before this one; not where it does not tell.
fn is_older(kernel: &str, than: (u32, u32)) -> bool {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < than)
}
