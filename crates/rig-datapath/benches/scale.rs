//! The vRouter at the size that it is made for, in routes, networks, interfaces and flows: its memory, the time of a change and the
//! cost of a packet, each against its target.
//!
//! `cargo xtask bench scale`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a measurement that panics is none")]

#[path = "../tests/integration/balancer/frames.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod frames;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use frames::{Frame, L4};
use rig_datapath::vrouter::{
    Action, Config, Encapsulation, FlowActions, Interface, List, NextHop, Peer, Policy, ROUTER_MAC, Router, Rule, Side,
    Sizes, Timeouts, Tunnel, Underlay, Verdict, Vni, Vrf, replay,
};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};
use rig_wire::ethernet::{self, Mac, ethertype};
use rig_wire::tcp::flags::SYN;

const NETWORKS: u32 = 4_096;
const INTERFACES: u32 = 10_000;
const ROUTES: u32 = 1_000_000;
const CONNECTIONS: u32 = 1_000_000;
const RULES: u32 = 1_000;
const PEERS: u32 = 1_000;
/// A source port each, from 1 on.
const PORTS: u32 = 60_000;
const ROUNDS: usize = 5;

fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

/// Of an interface; those of one network have the same prefix of 16 bits as those of all others.
fn address(interface: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a01_0000 | (interface / NETWORKS + 10))
}

/// Somewhere else, in each network alike.
fn remote(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a02_0000 | number)
}

fn peer(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc612_0000 | (number + 2))
}

/// Rules none of which but the last one allows TCP.
fn list(changed: u32) -> List {
    let remote = |number: u32| BTreeSet::from([format!("203.{}.{}.0/24", number / 256, number % 256).parse().unwrap()]);
    let mut rules: Vec<Rule> = (1..RULES)
        .map(|number| Rule {
            protocol: Some(17),
            ports: 0..=65_535,
            remote: remote(number + changed),
            action: Action::Allow,
            flow_actions: FlowActions::default(),
        })
        .collect();
    rules.push(Rule {
        protocol: Some(6),
        ports: 1..=65_535,
        remote: BTreeSet::new(),
        action: Action::Allow,
        flow_actions: FlowActions::default(),
    });
    List { rules, otherwise: Action::Deny }
}

/// The first two interfaces are of one network.
fn config(networks: u32, interfaces: u32, routes: u32, real: [u32; 2]) -> Config {
    let underlay = Underlay {
        strict: true,
        address: Ipv4Addr::new(198, 18, 0, 1),
        peers: (0..PEERS)
            .map(|number| (peer(number), Peer { interface: real[0], gateway: peer(number), mtu: 9000 }))
            .collect(),
    };
    let mut vrfs: BTreeMap<u32, Vrf> = (1..=networks).map(|vrf| (vrf, Vrf::default())).collect();
    let mut described = BTreeMap::new();
    for number in 1..=interfaces {
        // The first two share a network.
        let (vrf, address) =
            if number == 2 { (1, Ipv4Addr::new(10, 1, 255, 2)) } else { (number % networks + 1, address(number)) };
        let vrf = if number == 1 { 1 } else { vrf };
        let table = vrfs.get_mut(&vrf).unwrap();
        table.routes.insert(IpAddr::from(address).into(), NextHop::Interface(number));
        let policy = Some(Policy { outward: vec![1], inward: vec![1], most_flows: None });
        let index = real.get(number as usize - 1).copied().unwrap_or(1_000_000 + number);
        let gateway = Some(Ipv4Addr::new(10, 1, 0, 1));
        let mac = mac(number);
        described.insert(
            number,
            Interface {
                index,
                vrf,
                mac,
                any_mac: true,
                gateway,
                gateway6: None,
                policy,
                mirror: None,
                fat: BTreeSet::new(),
                serves_dhcp: false,
            },
        );
    }
    for number in 0..routes.saturating_sub(interfaces) {
        let (vrf, of) = (number % networks + 1, number / networks);
        let hop = Tunnel {
            peer: peer(number % PEERS),
            encapsulation: Encapsulation::MplsOverUdp,
            label: 16 + number % 1_000_000,
            mac: mac(number % PEERS),
        };
        vrfs.get_mut(&vrf).unwrap().routes.insert(IpAddr::from(remote(of)).into(), NextHop::Tunnel(hop));
    }
    Config {
        mac: ROUTER_MAC,
        underlay: Some(underlay),
        vrfs: vrfs.into_iter().map(|(number, vrf)| (number, Arc::new(vrf))).collect(),
        labels: described.keys().map(|number| (16 + number, NextHop::Interface(*number))).collect(),
        vnis: (1..=networks).map(|vrf| (vrf, Vni::Vrf(vrf))).collect(),
        interfaces: described,
        lists: BTreeMap::from([(1, list(0))]),
        analysers: BTreeMap::new(),
        most_flows: None,
    }
}

fn sizes() -> Sizes {
    Sizes {
        interfaces: INTERFACES,
        next_hops: 1 << 15,
        vnis: NETWORKS,
        flows: 2 * CONNECTIONS + 2 * PORTS,
        ..Sizes::default()
    }
}

fn syn(to: Ipv4Addr) -> Vec<u8> {
    let at = |address: Ipv4Addr, port| SocketAddr::new(address.into(), port);
    let packet = Frame::new(L4::Tcp(SYN), at(address(1), 1), at(to, 80)).packet();
    let mut frame = vec![0; ethernet::HEADER];
    let header = ethernet::Header { destination: ROUTER_MAC, source: mac(1), vlan: None, ethertype: ethertype::IPV4 };
    header.write(&mut frame).unwrap();
    [frame, packet].concat()
}

/// Milliseconds.
fn timed(what: &str, work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    let took = begun.elapsed().as_secs_f64() * 1e3;
    println!("{what:<64}{took:>10.1} ms");
    took
}

/// A rule's change is effective everywhere within so many milliseconds.
const MOST_MS: f64 = 100.0;
/// Of a flow's entry.
const MOST_BYTES: f64 = 200.0;

fn judge(what: &str, measured: f64, most: f64, unit: &str) {
    let verdict = if measured <= most { "holds" } else { "does not hold" };
    println!("aim: {what} <= {most} {unit}: {measured:.1} {unit}, {verdict}");
}

struct Bench {
    ns: NetNs,
    index: u32,
    router: Router,
}

impl Bench {
    /// The median of some rounds, ns.
    fn cost(&self, frame: &[u8], port_at: Option<u32>, repeat: u32) -> f64 {
        let once = || replay::cost(&self.router, Side::Container, frame, self.index, port_at, repeat).unwrap();
        let mut times: Vec<f64> = (0..if port_at.is_some() { 1 } else { ROUNDS })
            .map(|_| {
                let cost = self.ns.run(once).unwrap();
                assert_eq!(cost.verdict, Verdict::Redirect, "{:?}", self.router.drops().unwrap());
                cost.program
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    /// A packet of a flow that is known, to another container here and by a tunnel.
    fn hot(&self, among: &str) {
        for (what, to) in [("one node", Ipv4Addr::new(10, 1, 255, 2)), ("encapsulate", remote(7))] {
            println!("{:<64}{:>10.0} ns", format!("known flow, {what}, {among}"), self.cost(&syn(to), None, 200_000));
        }
    }
}

fn main() {
    if !netns::may_create_namespaces() {
        println!("network namespaces and eBPF programs need root");
        return;
    }
    let (ns, other) = (NetNs::create().unwrap(), NetNs::create().unwrap());
    let mut netlink = Netlink::open(&ns).unwrap();
    let real = ["c1", "c2"].map(|name| {
        netlink.add_veth(&VethPair { name, peer: name, peer_ns: &other, queues: 1, mtu: 9000 }).unwrap();
        netlink.index(name).unwrap()
    });
    let mut bench = Bench { ns, index: real[0], router: replay::load(sizes()).unwrap() };
    bench.router.set_tick(1).unwrap();

    bench.router.apply(&config(1, 2, 10, real)).unwrap();
    bench.hot("10 routes");
    let mut all = config(NETWORKS, INTERFACES, ROUTES, real);
    let routes: usize = all.vrfs.values().map(|vrf| vrf.routes.len()).sum();
    println!(
        "{routes} routes in {} networks, {} interfaces, {} rules, {PEERS} peers:",
        all.vrfs.len(),
        all.interfaces.len(),
        RULES
    );
    timed("  put into the tables", || bench.router.apply(&all).unwrap());
    bench.hot("all these routes");
    all.lists.insert(1, list(1));
    let changed = timed("  all rules changed, for each interface", || bench.router.apply(&all).unwrap());
    judge(&format!("a change of {RULES} rules"), changed, MOST_MS, "ms");
    Arc::make_mut(all.vrfs.get_mut(&7).unwrap()).routes.insert("10.9.0.0/16".parse().unwrap(), NextHop::Discard);
    timed("  one route added", || bench.router.apply(&all).unwrap());

    let port_at = Some((ethernet::HEADER + 20) as u32);
    let mut new = Vec::new();
    let begun = Instant::now();
    for number in 0..CONNECTIONS / PORTS {
        new.push(bench.cost(&syn(remote(number)), port_at, PORTS));
    }
    let connections = bench.router.connections(1).unwrap();
    println!("{connections} connections, begun in {:.1} s:", begun.elapsed().as_secs_f64());
    println!("{:<64}{:>10.0} ns", "  new flow, the first of them", new[0]);
    println!("{:<64}{:>10.0} ns", "  new flow, the last of them", new[new.len() - 1]);
    bench.hot("all these flows");
    let sweep = |bench: &Bench| bench.router.sweeper().sweep(&Timeouts::default(), false).unwrap();
    timed("  a look at all, none silent", || assert_eq!(sweep(&bench), 0));
    println!("memory of the tables, as the kernel counts it:");
    for (name, bytes) in bench.router.memory().unwrap().into_iter().filter(|(_, bytes)| *bytes > 1 << 20) {
        println!("  {name:<62}{:>10.1} MB", bytes as f64 / 1e6);
        if name == "flows" {
            println!(
                "{:<64}{:>10.0} bytes",
                "    for each flow, of which a connection has two",
                bytes as f64 / f64::from(sizes().flows)
            );
            judge("a flow", bytes as f64 / f64::from(sizes().flows), MOST_BYTES, "bytes");
        }
    }
    bench.router.set_tick(1_000_000).unwrap();
    timed("  all silent, and ended", || assert!(sweep(&bench) > 0));
}
