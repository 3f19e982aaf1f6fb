//! netrig on a network card with several queues: `NETRIG_TEST_CARD` names it, and `NETRIG_TEST_FAR_CARD` another one of this
//! machine on the same Ethernet segment, which goes into a namespace of its own for the time of a test, so that all that the card receives
//! comes over its cable. The segment must have nothing else on it. `cargo xtask kernels --only card` has such a machine.

mod datapaths;
mod queues;
mod spreader;

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rig_skip::{Lack, skip};
use rig_sys::ethtool;
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;

use crate::spread::lab::{ADDRESS, Lab, TIMEOUT, ip};
use crate::world::until;

/// There is one card.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// The address of the far end of the cable.
const FAR_ADDRESS: &str = "10.9.0.1";

/// The card, up and with an address, and the far end of its cable.
struct Cable {
    card: String,
    far_card: String,
    lab: Lab,
    _alone: MutexGuard<'static, ()>,
}

impl Cable {
    /// `None`, said aloud, where no card is named.
    fn find() -> Option<Self> {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let names = ["NETRIG_TEST_CARD", "NETRIG_TEST_FAR_CARD"].map(env::var);
        let [Ok(card), Ok(far_card)] = names else {
            skip(Lack::Card, "NETRIG_TEST_CARD and NETRIG_TEST_FAR_CARD name no two cards with a cable between them");
            return None;
        };
        let here = NetNs::of_current_thread().unwrap();
        // A namespace that has ended gives cards back a while later.
        let is_here = || Netlink::open(&here).unwrap().index(&far_card).is_ok().then_some(());
        until(TIMEOUT, is_here).unwrap_or_else(|| panic!("there is no interface {far_card}"));
        let far = NetNs::create().unwrap();
        for namespace in [&here, &far] {
            // No neighbour discovery: packets are counted exactly.
            namespace.sysctls(&[("net.ipv6.conf.all.disable_ipv6", "1")]).unwrap();
        }
        far.run(|| {
            let target =
                format!("/proc/{}/task/{}/ns/net", std::process::id(), rustix::thread::gettid().as_raw_nonzero());
            run(&here, &["ip", "link", "set", &far_card, "netns", &target]);
        })
        .unwrap();
        let queues = fs::read_dir(format!("/sys/class/net/{card}/queues")).unwrap().flatten();
        let queues = queues.filter(|queue| queue.file_name().to_string_lossy().starts_with("rx-")).count();
        assert!(queues > 1, "{card} has one queue");
        run(&here, &["ip", "address", "flush", "dev", &card]);
        // One thread of dperf reads all that comes there; a card with one queue may refuse to be told.
        let _ = in_namespace(ethtool().args(["-L", &far_card, "combined", "1"]), &far).output().unwrap();
        for (namespace, name, address) in [(&far, &far_card, FAR_ADDRESS), (&here, &card, ADDRESS)] {
            let mut link = Netlink::open(namespace).unwrap();
            link.set_up(name).unwrap();
            link.add_address(name, ip(address), 24).unwrap();
        }
        let lab = Lab { sender: far, receiver: here, directory: tempfile::tempdir().unwrap() };
        let cable = Self { card, far_card, lab, _alone: alone };
        // Whether the cable is one, and that neighbours know each other from here on.
        let (flows, to) = cable.flows(1);
        to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let arrives = || {
            flows[0].send(b"first").unwrap();
            to.recv(&mut [0; 16]).ok()
        };
        let carried = until(TIMEOUT, arrives);
        assert!(carried.is_some(), "nothing comes from {} to {}", cable.far_card, cable.card);
        Some(cable)
    }

    /// Sockets at the far end, each of a flow of its own, that send to the one that is told last.
    fn flows(&self, count: usize) -> (Vec<UdpSocket>, UdpSocket) {
        self.lab.flows(count)
    }

    fn here(&self) -> &NetNs {
        &self.lab.receiver
    }

    fn far(&self) -> &NetNs {
        &self.lab.sender
    }

    /// Queues in use.
    fn queues(&self) -> usize {
        ethtool::queues(&self.card).unwrap().0 as usize
    }

    /// As [`find`](Self::find), with a table; drivers get one with a kernel.
    fn with_table() -> Option<Self> {
        let cable = Self::find()?;
        let output = in_namespace(ethtool().args(["-x", &cable.card]), cable.here()).output().unwrap();
        if !output.status.success() {
            skip(Lack::Card, format!("the driver of {} has no table for receive-side scaling here", cable.card));
            return None;
        }
        Some(cable)
    }

    /// The card's table, as ethtool(8) prints it.
    fn table(&self) -> Vec<u32> {
        let text = run(self.here(), &["ethtool", "-x", &self.card]);
        // The key of the hash has colons, too.
        let lines = text.lines().take_while(|line| !line.contains("hash key")).filter_map(|line| {
            let (first, queues) = line.trim().split_once(':')?;
            first.parse::<u32>().is_ok().then_some(queues)
        });
        lines.flat_map(|queues| queues.split_whitespace().map(|queue| queue.parse().unwrap())).collect()
    }

    /// What the card's driver has counted in each receive queue; `None`, said aloud, where it does not by ethtool(8): virtio_net of
    /// Linux 6.1 does, that of 6.12 does not.
    fn received(&self) -> Option<Vec<u64>> {
        let text = run(self.here(), &["ethtool", "-S", &self.card]);
        let of_queue = |queue: usize| {
            // By the driver and its version.
            let names = [format!("rx_queue_{queue}_packets"), format!("rx{queue}_packets")];
            let mut counts = text.lines().filter_map(|line| line.trim().split_once(": "));
            counts.find(|(name, _)| names.iter().any(|one| one == name))?.1.parse::<u64>().ok()
        };
        let received: Option<Vec<u64>> = (0..self.queues()).map(of_queue).collect();
        if received.is_none() {
            skip(
                Lack::Card,
                format!("packets by queue: the driver of {} does not tell them by ethtool here", self.card),
            );
        }
        received
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut command = Command::new("ip");
        let _ = command.args(["address", "flush", "dev", &self.card]).output();
    }
}

/// Sends `count` datagrams over each flow, and waits until they have come.
fn send(flows: &[UdpSocket], to: &UdpSocket, count: usize) {
    to.set_read_timeout(Some(TIMEOUT)).unwrap();
    for _ in 0..count {
        for flow in flows {
            flow.send(b"datagram").unwrap();
            to.recv(&mut [0; 16]).unwrap();
        }
    }
}

/// Debian has it for root alone.
fn ethtool() -> Command {
    let mut command = Command::new("ethtool");
    command.env("PATH", format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default()));
    command
}

/// What a program prints that ends well.
#[track_caller]
fn run(ns: &NetNs, words: &[&str]) -> String {
    let mut command = if words[0] == "ethtool" { ethtool() } else { Command::new(words[0]) };
    command.args(&words[1..]);
    let output = in_namespace(&mut command, ns).output().unwrap();
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{said}");
    out.into_owned()
}
