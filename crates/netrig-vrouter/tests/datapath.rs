//! From vrouter.toml to what becomes of a packet: what one node's programs send is what the other's take.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::Ipv4Addr;

use netrig_vrouter::compile::{KernelInterface, Numbers, Site, compile};
use netrig_vrouter::routes::{FileRoutes, RouteSource, RouteTable};
use netrig_vrouter::settings::Settings;
use rig_datapath::Error;
use rig_datapath::vrouter::{Encapsulation, Outcome, Peer, ROUTER_MAC, Router, Side, Sizes, Verdict};
use rig_skip::{Lack, skip};
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::{checksum::Sum, ipv4, tcp};

/// The loopback interface, which each namespace has: nothing is sent.
const ANY_INTERFACE: u32 = 1;
const CLIENT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const SERVER: Mac = Mac([2, 0, 0, 0, 0, 2]);

const FILE: &str = r#"
[[node]]
name = "a"
address = "192.0.2.1"
[[node]]
name = "b"
address = "192.0.2.2"

[[network]]
name = "red"
subnets = ["10.1.0.0/24"]
policies = ["web"]
[[network]]
name = "blue"
subnets = ["10.2.0.0/24"]
policies = ["web"]

[[interface]]
name = "client"
node = "a"
network = "red"
device = "client"
addresses = ["10.1.0.11"]
mac = "02:00:00:00:00:01"
security_groups = ["clients"]
[[interface]]
name = "server"
node = "b"
network = "blue"
device = "server"
addresses = ["10.2.0.11"]
mac = "02:00:00:00:00:02"
security_groups = ["servers"]

[[security_group]]
name = "clients"
[[security_group]]
name = "servers"
in = [{ protocol = "tcp", ports = "80-81", remote_group = "clients" }]

[[policy]]
name = "web"
rules = [
    { action = "allow", protocol = "tcp", ports = [80, 90], source = "red", destination = "blue", direction = ">" },
    { action = "allow", source = "red", destination = "198.51.100.0/24" },
]
"#;

/// A node's programs, told what the file says; none on a machine that does not let them in, which is said.
fn router(text: &str, node: &str) -> Option<Router> {
    let settings = Settings::parse("vrouter.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let mut routes = RouteTable::default();
    for update in FileRoutes::new(&settings, node).updates().unwrap() {
        assert!(routes.apply(update));
    }
    let interfaces = settings.interfaces_of(node);
    let there = |(name, _): (&String, _)| (name.clone(), KernelInterface { index: ANY_INTERFACE, mac: None });
    let others = settings.nodes.iter().filter(|(name, _)| *name != node);
    let peer = |at: Ipv4Addr| (at, Peer { interface: ANY_INTERFACE, gateway: at, mtu: 1500 });
    let site = Site {
        interfaces: interfaces.map(there).collect(),
        peers: others.map(|(_, other)| peer(other.address)).collect(),
        ..Site::default()
    };
    let compiled = compile(&settings, node, &site, &routes, &mut Numbers::default()).unwrap();
    assert!(compiled.notes.is_empty(), "{:?}", compiled.notes);
    match Router::load(Sizes { interfaces: 8, flows: 1024, ..Sizes::default() }) {
        Ok(mut router) => {
            router.apply(&compiled.config).unwrap();
            Some(router)
        }
        Err(Error::NotPermitted(_)) => {
            skip(Lack::Root, "eBPF programs need it");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

/// The first packet of a connection.
fn opening(source: &str, destination: &str, port: u16) -> Vec<u8> {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let mut frame = vec![0; ethernet::HEADER + 20 + 20];
    let header = ethernet::Header { destination: ROUTER_MAC, source: CLIENT, vlan: None, ethertype: ethertype::IPV4 };
    let at = header.write(&mut frame).unwrap();
    let header = ipv4::Header { source, destination, protocol: 6, ttl: 64, tos: 0 };
    let at = at + header.write(&mut frame[at..], 20).unwrap();
    let pseudo = Sum::pseudo_v4(source, destination, 6, 20);
    let header = tcp::Header {
        source_port: 40_000,
        destination_port: port,
        sequence: 1,
        acknowledgment: 0,
        flags: tcp::flags::SYN,
        window: 65_535,
        options: tcp::Options::default(),
    };
    header.write(&mut frame[at..], 0, pseudo).unwrap();
    frame
}

fn sent(router: &Router, frame: &[u8]) -> Outcome {
    router.test_run(Side::Container, frame, ANY_INTERFACE).unwrap()
}

#[test]
fn what_one_node_sends_the_other_takes_in_each_encapsulation() {
    for encapsulation in Encapsulation::ALL {
        let text = format!("[router]\nencapsulation = [\"{}\"]\n{FILE}", encapsulation.name());
        let (Some(a), Some(b)) = (router(&text, "a"), router(&text, "b")) else { return };
        let frame = opening("10.1.0.11", "10.2.0.11", 80);
        let out = sent(&a, &frame);
        assert_eq!(out.verdict, Verdict::Redirect, "{encapsulation:?}");
        assert_eq!(out.frame.len(), frame.len() + usize::from(encapsulation.overhead()));
        let taken = b.test_run(Side::Underlay, &out.frame, ANY_INTERFACE).unwrap();
        assert_eq!(taken.verdict, Verdict::Redirect, "{encapsulation:?}");
        let inner = Ethernet::parse(&taken.frame).unwrap();
        assert_eq!((inner.destination(), inner.source()), (SERVER, ROUTER_MAC));
        let packet = ipv4::Ipv4::parse(inner.payload()).unwrap();
        assert_eq!(
            (packet.source().to_string(), packet.destination().to_string()),
            ("10.1.0.11".into(), "10.2.0.11".into())
        );
    }
}

#[test]
fn policies_are_held_against_on_the_way_out_and_groups_on_the_way_in() {
    let (Some(a), Some(b)) = (router(FILE, "a"), router(FILE, "b")) else { return };
    for (source, destination, port, leaves, arrives) in [
        ("10.1.0.11", "10.2.0.11", 80, true, true),
        // The policy allows it, and the server's group does not.
        ("10.1.0.11", "10.2.0.11", 90, true, false),
        // The group would.
        ("10.1.0.11", "10.2.0.11", 81, false, false),
        // Nobody is there, here and elsewhere; and nobody has this address here.
        ("10.1.0.11", "10.1.0.99", 80, false, false),
        ("10.1.0.11", "198.51.100.1", 80, false, false),
        ("10.1.0.12", "10.2.0.11", 80, false, false),
    ] {
        let case = format!("{source} to {destination} port {port}");
        let out = sent(&a, &opening(source, destination, port));
        assert_eq!(out.verdict == Verdict::Redirect, leaves, "{case}: {:?}", out.verdict);
        if leaves {
            let taken = b.test_run(Side::Underlay, &out.frame, ANY_INTERFACE).unwrap();
            let expected = if arrives { Verdict::Redirect } else { Verdict::Drop };
            assert_eq!(taken.verdict, expected, "{case}");
        }
    }
}
