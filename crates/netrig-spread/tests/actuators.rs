//! Actuators on a veth pair: what could be had, what is had, and that it is given back.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use netrig_spread::Service;
use netrig_spread::actuator::{Kind, Probed, probe};
use netrig_spread::message::{Interface, Reply, Request};
use netrig_spread::settings::{Rule, Settings};
use rig_datapath::steer::Steer;
use rig_skip::{Lack, skip};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;

fn kinds(probed: &Probed) -> Vec<(Kind, u32)> {
    probed.prospects.iter().map(|prospect| (prospect.kind, prospect.entries)).collect()
}

fn why_not(probed: &Probed, kind: Kind) -> String {
    probed.lacks.iter().find(|lack| lack.kind == kind).map(|lack| lack.why.clone()).unwrap_or_default()
}

fn status(service: &Service) -> Interface {
    match service.ask(Request::Status).unwrap() {
        Reply::Status(mut status) => status.interfaces.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cpu_map_is_had_counts_what_comes_and_is_given_back() {
    if Steer::may_load().is_err() {
        return skip(Lack::Root, "eBPF programs need it");
    }
    let (near, far) = (NetNs::create().unwrap(), Arc::new(NetNs::create().unwrap()));
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
    let expected = [(Kind::Napi, 2), (Kind::Cpumap, 128), (Kind::CpumapBounded, 128), (Kind::Rps, 2)];
    assert_eq!(kinds(&before), expected, "{before:?}");
    assert!(why_not(&before, Kind::Rss).contains("no table for receive-side scaling"), "{before:?}");
    assert!(why_not(&before, Kind::Observe).contains("gro on"), "{before:?}");
    assert!(before.can_move());
    assert!(!far.run(|| probe("lo")).unwrap().unwrap().can_move());
    assert!(far.run(|| probe("none")).unwrap().is_err());

    let rule = Rule { actuators: vec![Kind::Cpumap], ..Rule::of("in".parse().unwrap()) };
    let settings = Settings { rules: vec![rule], ..Settings::default() };
    let inside = far.clone();
    let spawn = move |body: netrig_spread::Body| Ok(thread::spawn(move || inside.run(body).unwrap()));
    let service = Service::start(settings, spawn).unwrap();
    let taken = look();
    assert!(why_not(&taken, Kind::Cpumap).contains("XDP program already"), "{taken:?}");
    assert_eq!(status(&service).entries.len(), 128);

    let receiver = far.run(|| UdpSocket::bind((to, 9))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..50 {
        let sender = near.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
        sender.send_to(b"datagram", (to, 9)).unwrap();
        receiver.recv(&mut [0; 16]).unwrap();
    }
    let counted = (0..500).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        let now = status(&service);
        let used = now.entries.iter().filter(|entry| entry.packets > 0).count();
        let processing: u64 = now.cpus.iter().map(|cpu| cpu.processing_ns).sum();
        let distributing: u64 = now.cpus.iter().map(|cpu| cpu.distributing_ns).sum();
        let packets: u64 = now.entries.iter().map(|entry| entry.packets).sum();
        (packets >= 50 && used > 10 && processing > 0 && distributing > 0).then_some(())
    });
    assert!(counted.is_some(), "{:?}", status(&service));
    drop(service);
    assert_eq!(look(), before);
}
