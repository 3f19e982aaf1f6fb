//! What the kernel lets a packet load generator do with interfaces, found by doing it to a veth pair of its own.

use std::io;

use super::{ProbeResult, Refusal};
use crate::error::Result;
use crate::netlink::{Netlink, VethPair};
use crate::netns::NetNs;
use crate::packet_socket;
use crate::xdp::{self, Mode, OpenError, QueueCpu};

#[derive(Debug, Clone)]
pub struct Packets {
    /// AF_XDP behind a program in the driver: CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, and Linux 5.9.
    pub xdp: ProbeResult,
    /// AF_XDP behind a program in the kernel's generic hook.
    pub xdp_generic: ProbeResult,
    /// Sending over veth without socket buffers: Linux 6.7.
    pub live_frames: ProbeResult,
    /// AF_PACKET: CAP_NET_RAW, in a user namespace too.
    pub packet_sockets: ProbeResult,
}

impl Packets {
    /// Needs the privilege to create network namespaces; to tell what root may do, before a user namespace is entered.
    pub fn try_out() -> Self {
        match NamespacePair::new() {
            Ok(pair) => pair.try_all(),
            Err(error) => {
                let refusal = Refusal::from(error);
                Self {
                    xdp: Err(refusal.clone()),
                    xdp_generic: Err(refusal.clone()),
                    live_frames: Err(refusal.clone()),
                    packet_sockets: Err(refusal),
                }
            }
        }
    }
}

struct NamespacePair {
    near: NetNs,
    far: NetNs,
}

const FRAME: usize = 1518;

impl NamespacePair {
    fn new() -> Result<Self> {
        let (near, far) = (NetNs::create()?, NetNs::create()?);
        let pair = VethPair { name: "near", peer: "far", peer_ns: &far, queues: 1, mtu: 1500 };
        let mut link = Netlink::open(&near)?;
        link.add_veth(&pair)?;
        link.set_up("near")?;
        Netlink::open(&far)?.set_up("far")?;
        Ok(Self { near, far })
    }

    fn try_all(&self) -> Packets {
        let near = self.xdp(&self.near, "near", Mode::Driver);
        // The near port is open by now, so the far one has a peer to send to.
        let far = self.xdp(&self.far, "far", Mode::Driver);
        let live_frames = match &far {
            Ok(port) if port.is_live() => Ok(()),
            Ok(port) => Err(other("send without socket buffers", port.notes.join("; "))),
            Err(error) => Err(refusal(error)),
        };
        let xdp = outcome(&near);
        drop((near, far));
        let packets = || {
            let options = packet_socket::Options { frame: FRAME, burst: 1, ..packet_socket::Options::default() };
            packet_socket::Port::open("near", &[QueueCpu::default()], &options).map(drop)
        };
        Packets {
            xdp,
            xdp_generic: outcome(&self.xdp(&self.near, "near", Mode::Generic)),
            live_frames,
            packet_sockets: match self.near.run(packets) {
                Ok(opened) => outcome(&opened),
                Err(error) => Err(error.into()),
            },
        }
    }

    fn xdp(&self, ns: &NetNs, interface: &str, mode: Mode) -> Result<xdp::Port, OpenError> {
        let options = xdp::Options { mode, frame: FRAME, burst: 1, ..xdp::Options::default() };
        ns.run(|| xdp::Port::open(interface, &[QueueCpu::default()], &options))?
    }
}

fn outcome<T>(opened: &Result<T, OpenError>) -> ProbeResult {
    opened.as_ref().map(drop).map_err(refusal)
}

fn refusal(error: &OpenError) -> Refusal {
    match error {
        OpenError::Failed(error) => Refusal::new(error.operation.clone(), &error.source),
        // What to do about that is the reader's to say.
        OpenError::NotPermitted { operation } => Refusal::new(operation, &not_permitted()),
        OpenError::NoPacketSocket => Refusal::new("making a packet socket", &not_permitted()),
        error => other("open a port", error.to_string()),
    }
}

fn not_permitted() -> io::Error {
    io::Error::from_raw_os_error(libc::EPERM)
}

fn other(operation: &str, reason: String) -> Refusal {
    Refusal::new(operation, &io::Error::other(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_works_or_says_why_not() {
        let packets = Packets::try_out();
        let all = [&packets.xdp, &packets.xdp_generic, &packets.live_frames, &packets.packet_sockets];
        for outcome in all {
            assert!(outcome.as_ref().err().is_none_or(|refusal| !refusal.reason.is_empty()), "{packets:?}");
        }
        // What is built on another thing does not work without it.
        assert!(packets.xdp.is_ok() || packets.live_frames.is_err(), "{packets:?}");
    }
}
