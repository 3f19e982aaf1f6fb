//! Changes of the configuration while packets pass.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ipnet::IpNet;
use rig_datapath::vrouter::{Action, Config, Encapsulation, List, NextHop, Policy, Reason, Router, Rule, Sizes, Vrf};
use rig_sys::netns::NetNs;
use rig_wire::ethernet::Mac;
use rig_wire::protocol;

use crate::pool::Pooled;

use super::lab::{Lab, Node, run, small, v4_of};
use super::outer::rule;

/// Of two containers, each of which may answer.
const ANYCAST: Ipv4Addr = Ipv4Addr::new(10, 7, 9, 9);
const VRF: u32 = 1;
const SHARED: u32 = 2;
const SERVED: u16 = 7000;

/// Lists of another length and another order each, which let the same through.
fn rules(round: u16) -> BTreeMap<u32, List> {
    let list = |count: u16, rest: Action| {
        let mut rules: Vec<Rule> =
            (1..=count).map(|port| rule(Some(protocol::UDP), port..=port, Action::Deny)).collect();
        rules.push(rule(None, 0..=u16::MAX, Action::Allow));
        List { rules, otherwise: rest }
    };
    BTreeMap::from([(1, list(1 + round % 7 * 30, Action::Deny)), (2, list(1 + round % 5 * 50, Action::Allow))])
}

fn vrf(config: &mut Config, number: u32) -> &mut Vrf {
    Arc::make_mut(config.vrfs.entry(number).or_default())
}

/// The same network in other words: packets to a container, and to the address that two have, go where they went.
fn configs(node: &Node) -> Vec<Config> {
    let plain = node.config.clone();
    let to = |container: usize| NextHop::Interface(1 + container as u32);
    let host: IpNet = IpAddr::from(v4_of(0, 1)).into();
    let several = |ways: Vec<NextHop>| {
        let mut config = plain.clone();
        vrf(&mut config, VRF).routes.insert(IpAddr::from(ANYCAST).into(), NextHop::Ecmp(ways));
        config
    };
    // Its next hop is another one.
    let mut moved = several(vec![to(2), to(1)]);
    moved.interfaces.get_mut(&1).unwrap().mac = Mac([2, 0, 0, 0, 0x77, 1]);
    // Not as a host's, but by a prefix.
    let mut wider = several(vec![to(1), to(2), to(1)]);
    vrf(&mut wider, VRF).routes.remove(&host);
    vrf(&mut wider, VRF).routes.insert("10.7.0.10/31".parse().unwrap(), to(1));
    // By way of another table, which is not there otherwise.
    let mut shared = several(vec![to(1), to(2)]);
    vrf(&mut shared, VRF).routes.insert(host, NextHop::Vrf(SHARED));
    vrf(&mut shared, SHARED).routes.insert(host, to(1));
    // With rules.
    let mut held = several(vec![to(2)]);
    for interface in held.interfaces.values_mut() {
        interface.policy = Some(Policy { outward: vec![1], inward: vec![2], most_flows: None });
    }
    vec![several(vec![to(1)]), moved, wider, held, shared]
}

/// Answers datagrams until it is stopped.
fn echo(ns: &NetNs, stop: &AtomicBool, served: &AtomicU32) {
    let socket = ns.run(|| UdpSocket::bind(("0.0.0.0", SERVED))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        // There is no listener any more.
        let _ = socket.send_to(&buffer[..length], from);
        served.fetch_add(1, Ordering::Relaxed);
    }
}

/// Packets that came to a container with another's address.
fn strays(ns: &NetNs) -> u64 {
    let text = ns.run(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap().unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(name, _)| *name == "InAddrErrors").unwrap().1.parse().unwrap()
}

/// At no moment of a change does a packet find less than before or after it, or another's way.
#[test]
fn changes_are_seen_whole() {
    let load = || Router::load(Sizes { flows: 1 << 19, ..small() }).map(Pooled::from);
    let Some(mut lab) = Lab::with(1, 3, Encapsulation::MplsOverUdp, load) else { return };
    let node = &mut lab.nodes[0];
    for container in &node.containers[1..] {
        run(container, &format!("address add {ANYCAST}/32 dev lo"));
    }
    let configs = configs(node);
    let (stop, served) = (AtomicBool::new(false), AtomicU32::new(0));
    let Node { router, ns, containers, .. } = node;
    let rounds = 300;
    let rules: Vec<BTreeMap<u32, List>> = (0..35).map(rules).collect();
    let sent = thread::scope(|scope| {
        let servers: Vec<_> =
            containers[1..].iter().map(|container| scope.spawn(|| echo(container, &stop, &served))).collect();
        let client = scope.spawn(|| {
            containers[0]
                .run(|| {
                    let mut sent = 0_u32;
                    // One flow that stays, beside new ones.
                    let old = UdpSocket::bind((v4_of(0, 0), 999)).unwrap();
                    while !stop.load(Ordering::Relaxed) && sent < 200_000 {
                        let port = 1024 + (sent % 60_000) as u16;
                        let to = if sent.is_multiple_of(2) { v4_of(0, 1) } else { ANYCAST };
                        // A port that an answer is on its way to is still bound.
                        if let Ok(new) = UdpSocket::bind((v4_of(0, 0), port)) {
                            new.send_to(b"new", (to, SERVED)).unwrap();
                        }
                        old.send_to(b"old", (v4_of(0, 1), SERVED)).unwrap();
                        sent += 1;
                    }
                    sent
                })
                .unwrap()
        });
        ns.run(|| {
            for round in 0..rounds {
                let mut config = configs[round % configs.len()].clone();
                config.lists.clone_from(&rules[round % rules.len()]);
                router.apply(&config).unwrap();
            }
        })
        .unwrap();
        stop.store(true, Ordering::Relaxed);
        servers.into_iter().for_each(|server| server.join().unwrap());
        client.join().unwrap()
    });
    let node = &lab.nodes[0];
    // Containers' own questions for routers and addresses.
    let own = [Reason::L2NoRoute, Reason::Unanswered].map(Reason::number);
    let lost: BTreeMap<u32, u64> = node.drops().into_iter().filter(|(reason, _)| !own.contains(reason)).collect();
    let served = served.load(Ordering::Relaxed);
    assert!(served > 1000, "{served} of {sent}");
    assert_eq!(lost, BTreeMap::new(), "{served} of {sent}: {:?}", node.router.drops().unwrap());
    assert_eq!(node.containers.iter().map(strays).collect::<Vec<_>>(), [0; 3], "{served} of {sent}");
}
