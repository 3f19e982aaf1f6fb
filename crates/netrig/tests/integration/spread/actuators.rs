//! Actuators on a veth pair: what could be had, what is had, and that it is given back.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

use netrig_spread::actuator::{Kind, ProbeReport, probe};
use netrig_spread::message::{Interface, Status};
use rig_datapath::napi::{self, PlacementError};
use rig_datapath::steer::Steer;
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use serde_json::json;

use crate::stdio::Conversation;
use crate::world::netrig;

fn kinds(probed: &ProbeReport) -> Vec<(Kind, u32)> {
    probed.prospects.iter().map(|prospect| (prospect.kind, prospect.entries)).collect()
}

fn why_not(probed: &ProbeReport, kind: Kind) -> String {
    probed.lacks.iter().find(|lack| lack.kind == kind).map(|lack| lack.why.clone()).unwrap_or_default()
}

fn status(spreader: &mut Conversation) -> Interface {
    let status = spreader.asks(&json!({ "ask": "Status" })).unwrap()["answer"]["Status"].take();
    serde_json::from_value::<Status>(status).unwrap().interfaces.remove(0)
}

#[test]
fn a_cpu_map_is_had_counts_what_comes_and_is_given_back() {
    if Steer::may_load().is_err() {
        return skip(Lack::Root, "eBPF programs need it");
    }
    let (near, far) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    let [from, to] = [1, 2].map(|end| IpAddr::from(Ipv4Addr::new(10, 97, 0, end)));
    let mut link = Netlink::open(&near).unwrap();
    link.add_veth(&VethPair { name: "out", peer: "in", peer_ns: &far, queues: 2, mtu: 1500 }).unwrap();
    link.add_address("out", from, 24).unwrap();
    link.set_up("out").unwrap();
    let mut link = Netlink::open(&far).unwrap();
    link.add_address("in", to, 24).unwrap();
    link.set_up("in").unwrap();
    let look = || far.run(|| probe("in")).unwrap().unwrap();

    let before = look();
    let mut expected = vec![(Kind::Napi, 2), (Kind::Cpumap, 128), (Kind::CpumapBounded, 128), (Kind::Rps, 2)];
    let is_old = napi::may_place() == Err(PlacementError::Kernel);
    if is_old {
        expected.retain(|(kind, _)| ![Kind::Napi, Kind::Rps].contains(kind));
    }
    assert_eq!(kinds(&before), expected, "{before:?}");
    assert!(why_not(&before, Kind::Rss).contains("no table for receive-side scaling"), "{before:?}");
    let no_queues = if is_old { "no receive queues" } else { "gro on" };
    assert!(why_not(&before, Kind::Observe).contains(no_queues), "{before:?}");
    assert!(before.can_move());
    assert!(!far.run(|| probe("lo")).unwrap().unwrap().can_move());
    assert!(far.run(|| probe("none")).unwrap().is_err());

    let mut command = netrig();
    command.args(["spread", "run", "--on-stdio"]);
    let mut spreader = Conversation::begin(in_namespace(&mut command, &far), "netrig-spread");
    spreader.starts("[[interface]]\nname = \"in\"\nactuator = \"cpumap\"\n");
    let taken = look();
    assert!(why_not(&taken, Kind::Cpumap).contains("XDP program already"), "{taken:?}");
    assert_eq!(status(&mut spreader).entries.len(), 128);

    let receiver = far.run(|| UdpSocket::bind((to, 9))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..50 {
        let sender = near.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        sender.send_to(b"datagram", (to, 9)).unwrap();
        receiver.recv(&mut [0; 16]).unwrap();
    }
    let counted = (0..500).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        let now = status(&mut spreader);
        let used = now.entries.iter().filter(|entry| entry.packets > 0).count();
        let processing: u64 = now.cpus.iter().map(|cpu| cpu.processing_ns).sum();
        let distributing: u64 = now.cpus.iter().map(|cpu| cpu.distributing_ns).sum();
        let packets: u64 = now.entries.iter().map(|entry| entry.packets).sum();
        (packets >= 50 && used > 10 && processing > 0 && distributing > 0).then_some(())
    });
    assert!(counted.is_some(), "{:?}", status(&mut spreader));
    assert_eq!(spreader.ends().0, Some(0));
    assert_eq!(look(), before);
}
