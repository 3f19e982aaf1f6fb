//! By which ways packets can go here that no socket makes.

use rig_sys::probe::{Outcome, Packets};

use super::{Area, Finding, Lack, State};

/// What the ways of `packets` mean to a user of netrig, who has this `kernel`.
pub fn findings(kernel: &str, packets: &Packets) -> Vec<Finding> {
    let Packets { xdp, xdp_generic, live_frames, packet_sockets } = packets;
    let rights = "run netrig as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW";
    let rights = &match is_older(kernel, (5, 9)) {
        true => format!("{rights}; Linux 5.9 or newer is needed"),
        false => rights.to_owned(),
    };
    let live = match (xdp, is_older(kernel, (6, 7))) {
        (_, true) => "use Linux 6.7 or newer, as root",
        // They are sent by such ports.
        (Err(_), false) => rights,
        (Ok(()), false) => "look at the reason found: the kernel is new enough",
    };
    [
        ("AF_XDP", xdp, "packet load goes through packet sockets, which are slower", &**rights),
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
            live,
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

/// Whether a kernel's release, such as "6.18.44-cloud x86_64", is before this one; not where it does not tell.
fn is_older(kernel: &str, than: (u32, u32)) -> bool {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < than)
}

fn state(outcome: &Outcome, effect: &str, remedy: &str) -> State {
    match outcome {
        Ok(()) => State::Ok { found: "works".to_owned() },
        Err(refusal) => {
            State::Lacking(Lack { found: refusal.to_string(), effect: effect.to_owned(), remedy: remedy.to_owned() })
        }
    }
}
