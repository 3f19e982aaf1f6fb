//! By which ways packets can go here that no socket makes.

use rig_sys::probe::{Outcome, Packets};

use super::{Area, Finding, Lack, State};

/// What the ways of `packets` mean to a user of netrig.
pub fn findings(packets: &Packets) -> Vec<Finding> {
    let Packets { xdp, xdp_generic, live_frames, packet_sockets } = packets;
    let rights = "run netrig as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; Linux 5.9 or newer is needed";
    [
        ("AF_XDP", xdp, "packet load goes through packet sockets, which are slower", rights),
        (
            "AF_XDP, generic",
            xdp_generic,
            "interfaces whose driver has no XDP are driven through packet sockets",
            rights,
        ),
        (
            "AF_XDP, live frames",
            live_frames,
            "packet load over veth pairs makes a socket buffer for each frame: about a third of the rate",
            "use Linux 6.7 or newer, as root",
        ),
        (
            "packet sockets",
            packet_sockets,
            "no packet load where AF_XDP is not possible",
            "run netrig as root, or allow user namespaces; a kernel with CONFIG_PACKET is needed",
        ),
    ]
    .map(|(name, outcome, effect, remedy)| Finding {
        area: Area::PacketLoad,
        name,
        state: state(outcome, effect, remedy),
    })
    .into()
}

fn state(outcome: &Outcome, effect: &str, remedy: &str) -> State {
    match outcome {
        Ok(()) => State::Ok { found: "works".to_owned() },
        Err(refusal) => {
            State::Lacking(Lack { found: refusal.to_string(), effect: effect.to_owned(), remedy: remedy.to_owned() })
        }
    }
}
