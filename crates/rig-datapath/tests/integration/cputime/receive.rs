//! Receive processing goes to the namespace whose device was polled.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use rig_datapath::cputime::{Account, Kind, Member};
use rig_datapath::napi;
use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;

use super::{attach, between, stay_on_one_cpu};

/// In each round so many datagrams go to the first namespace, and three times as many to the second. All fit into a ring.
const DATAGRAMS: u32 = 32;
const ROUNDS: u32 = 500;
const PORT: u16 = 9;

/// A namespace, and a socket in it that datagrams are sent to.
struct Receiver {
    ns: NetNs,
    address: SocketAddr,
    _socket: UdpSocket,
}

/// Joins a namespace to `sender` by a wire of its own. With GRO a veth interface has a queue of its own that is polled, and
/// packets go there from an interface without TSO (drivers/net/veth.c, `veth_skb_is_eligible_for_gro`), else to the CPU's.
fn receiver(sender: &NetNs, number: u8) -> Receiver {
    let (name, mtu) = (format!("to{number}"), 1500);
    let [here, there] = [1, 2].map(|end| IpAddr::from(Ipv4Addr::new(10, 99, number, end)));
    let ns = NetNs::create().unwrap();
    let mut link = Netlink::open(sender).unwrap();
    link.add_veth(&VethPair { name: &name, peer: "eth0", peer_ns: &ns, queues: 1, mtu }).unwrap();
    link.add_address(&name, here, 24).unwrap();
    link.set_up(&name).unwrap();
    ethtool::set(sender, &name, Offload::Tso, false).unwrap();
    let mut link = Netlink::open(&ns).unwrap();
    link.add_address("eth0", there, 24).unwrap();
    link.set_up("eth0").unwrap();
    ethtool::set(&ns, "eth0", Offload::Gro, true).unwrap();
    let address = SocketAddr::new(there, PORT);
    let socket = ns.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    Receiver { ns, address, _socket: socket }
}

/// Whether eth0 of this namespace has a queue of its own.
fn is_polled(ns: &NetNs) -> bool {
    let is_polled = !napi::of(ns, "eth0").unwrap().is_empty();
    if !is_polled {
        skip(Lack::Kernel, "a veth interface with GRO has a queue of its own since Linux 5.13");
    }
    is_polled
}

#[test]
fn two_namespaces_have_each_their_own() {
    let Some((mut counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    let sender = NetNs::create().unwrap();
    let receivers = [receiver(&sender, 1), receiver(&sender, 2)];
    if !is_polled(&receivers[0].ns) {
        return;
    }
    let places = [0, 1].map(|index| Account::new(index).unwrap());
    for (receiver, place) in receivers.iter().zip(places) {
        counting.watch(Member::Namespace(receiver.ns.inode().unwrap()), place).unwrap();
    }
    let from = sender.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    // The neighbours' addresses are found out.
    for receiver in &receivers {
        from.send_to(b"first", receiver.address).unwrap();
    }
    let begin = counting.read().unwrap();
    for _ in 0..ROUNDS {
        for (receiver, times) in receivers.iter().zip([1, 3]) {
            for _ in 0..DATAGRAMS * times {
                from.send_to(b"datagram", receiver.address).unwrap();
            }
        }
    }
    let end = counting.read().unwrap();
    let times = between(&begin, &end, cpu);
    let [one, three] = places.map(|place| times.account(place).network);
    let all = times.of(Kind::NetReceive);
    println!("{one} and {three} ns of {all}");
    // A datagram's cost is the same, and each round's few polls cost something, too.
    assert!(one > 0 && three > one * 2 && three < one * 4, "{one} and {three} ns of {all}");
    // Whose a poll was is known at its end: one that the first reading fell into counts whole to its namespace.
    assert!(one + three <= all + all / 100, "{one} and {three} ns of {all}");
}

/// A bridge sends broadcasts to all its ports, whose devices one softirq then polls.
#[test]
fn one_softirq_that_polls_devices_of_two_namespaces_is_shared_out() {
    const DATAGRAMS: u32 = 4000;
    let Some((mut counting, _alone)) = attach() else { return };
    let cpu = stay_on_one_cpu();
    let sender = NetNs::create().unwrap();
    let mut link = Netlink::open(&sender).unwrap();
    link.add_bridge("br0", 1500).unwrap();
    link.add_address("br0", IpAddr::from(Ipv4Addr::new(10, 98, 0, 254)), 24).unwrap();
    let places = [0, 1].map(|index| Account::new(index).unwrap());
    let receivers = [1, 2].map(|number| {
        let (ns, name) = (NetNs::create().unwrap(), format!("to{number}"));
        link.add_veth(&VethPair { name: &name, peer: "eth0", peer_ns: &ns, queues: 1, mtu: 1500 }).unwrap();
        link.set_bridge(&name, "br0").unwrap();
        link.set_up(&name).unwrap();
        ethtool::set(&sender, &name, Offload::Tso, false).unwrap();
        let mut there = Netlink::open(&ns).unwrap();
        there.add_address("eth0", IpAddr::from(Ipv4Addr::new(10, 98, 0, number)), 24).unwrap();
        there.set_up("eth0").unwrap();
        ethtool::set(&ns, "eth0", Offload::Gro, true).unwrap();
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let socket = ns.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        (ns, socket)
    });
    link.set_up("br0").unwrap();
    if !is_polled(&receivers[0].0) {
        return;
    }
    for ((ns, _), place) in receivers.iter().zip(places) {
        counting.watch(Member::Namespace(ns.inode().unwrap()), place).unwrap();
    }
    let from = sender.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    from.set_broadcast(true).unwrap();
    let broadcast = SocketAddr::from((Ipv4Addr::new(10, 98, 0, 255), PORT));
    let send = |count: u32| (0..count).for_each(|_| drop(from.send_to(b"datagram", broadcast)));
    send(100);
    let begin = counting.read().unwrap();
    send(DATAGRAMS);
    let end = counting.read().unwrap();
    let times = between(&begin, &end, cpu);
    let [one, other] = places.map(|place| times.account(place).network);
    let all = times.of(Kind::NetReceive);
    println!("{one} and {other} ns of {all}");
    // The first pays for the softirq's begin.
    assert!(one > 0 && other > 0 && one < other * 4 && other < one * 4, "{one} and {other} ns of {all}");
    assert!(one + other <= all + all / 100, "{one} and {other} ns of {all}");
}
