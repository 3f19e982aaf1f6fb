//! From vrouter.toml to what becomes of a packet: what one node's programs send is what the other's take.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::net::Ipv4Addr;

use netrig_vrouter::compile::{KernelInterface, Numbers, Site, compile, expected};
use netrig_vrouter::routes::{FileRoutes, RouteSource, RouteTable};
use netrig_vrouter::settings::{Interface, InterfaceLocation, Settings};
use rig_datapath::Error;
use rig_datapath::vrouter::{Encapsulation, Peer, ROUTER_MAC, Router, Side, Sizes, TestRunResult, Verdict};
use rig_skip::{Lack, skip};
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::{checksum::PartialChecksum, ipv4, tcp};

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
    let pseudo = PartialChecksum::pseudo_v4(source, destination, 6, 20);
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

fn sent(router: &Router, frame: &[u8]) -> TestRunResult {
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
        // No container is there, here and elsewhere; and none has this address here.
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

/// By the network's identifier the frame's address says whom it is for; by an interface's own, nothing is looked up.
#[test]
fn an_interface_with_an_identifier_of_its_own_is_sent_to_by_it() {
    let text = format!("[router]\nencapsulation = [\"vxlan\"]\n{FILE}");
    let text = text.replace("mac = \"02:00:00:00:00:02\"", "mac = \"02:00:00:00:00:02\"\nvni = 70000");
    let (Some(a), Some(b)) = (router(&text, "a"), router(&text, "b")) else { return };
    let out = sent(&a, &opening("10.1.0.11", "10.2.0.11", 80));
    assert_eq!(out.verdict, Verdict::Redirect);
    // Behind Ethernet, IPv4, UDP and VXLAN's flags.
    let vni = ethernet::HEADER + 20 + 8 + 4;
    assert_eq!(out.frame[vni..vni + 4], (70_000_u32 << 8).to_be_bytes());
    let taken = b.test_run(Side::Underlay, &out.frame, ANY_INTERFACE).unwrap();
    assert_eq!(taken.verdict, Verdict::Redirect);
    assert_eq!(Ethernet::parse(&taken.frame).unwrap().destination(), SERVER);
    let mut guessed = out.frame.clone();
    guessed[vni..vni + 4].copy_from_slice(&(70_001_u32 << 8).to_be_bytes());
    assert_eq!(b.test_run(Side::Underlay, &guessed, ANY_INTERFACE).unwrap().verdict, Verdict::Drop);
}

/// More interfaces, MAC addresses and next hops than the tables have room for by default, and more distinct rules.
#[test]
fn tables_are_made_for_what_the_settings_have() {
    let [here, elsewhere, lists] = [10_000_u32, 70_000, 40];
    let mut settings = Settings::parse("vrouter.toml", FILE).unwrap_or_else(|error| panic!("{error}"));
    settings.policies.clear();
    settings.security_groups.clear();
    settings.interfaces.clear();
    let network = settings.networks.get_mut("red").unwrap();
    network.policies.clear();
    network.connected.clear();
    network.broadcast = false;
    network.subnets[0].prefix = "10.0.0.0/8".parse().unwrap();
    network.encapsulation = vec![Encapsulation::Vxlan];
    settings.networks.get_mut("blue").unwrap().policies.clear();
    settings.networks.get_mut("blue").unwrap().connected.clear();
    let rules = |group: u32| {
        let ports = (0..1000).map(|n| format!("{}", 1 + 2 * n + group)).collect::<Vec<_>>().join(", ");
        let text = format!(
            "{FILE}\n[[security_group]]\nname = 'many'\nin = [{{ protocol = 'tcp', ports = [{ports}], remote_prefix = '10.0.0.0/8' }}]"
        );
        let with = Settings::parse("vrouter.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        with.security_groups["many"].clone()
    };
    settings.security_groups = (0..lists).map(|group| (format!("group-{group}"), rules(group))).collect();
    for number in 0..here + elsewhere {
        let node = if number < here { "a" } else { "b" };
        let bytes = number.to_be_bytes();
        let address = Ipv4Addr::from((10 << 24) + 256 + number);
        let interface = Interface {
            node: node.to_owned(),
            network: "red".to_owned(),
            place: InterfaceLocation::Node { device: format!("c{number}") },
            addresses: [address.into()].into(),
            allowed_addresses: Default::default(),
            mac: Mac([2, 1, bytes[0], bytes[1], bytes[2], bytes[3]]),
            any_mac: true,
            label: 16 + number,
            vni: None,
            distinguisher: 0,
            security_groups: if number < here {
                [format!("group-{}", number % lists)].into()
            } else {
                Default::default()
            },
            most_flows: None,
            mirror: None,
            fat_flows: Default::default(),
            dhcp_server: false,
        };
        settings.interfaces.insert(format!("i{number}"), interface);
    }
    let config = expected(&settings, "a").unwrap();
    let macs: usize = config.vrfs.values().map(|vrf| vrf.macs.len()).sum();
    assert_eq!((config.interfaces.len(), macs), (here as usize, (here + elsewhere) as usize));
    assert_eq!(config.lists.len() as u32, lists);
    let sizes = Sizes { flows: 1024, ..Sizes::of(&config) };
    let mut router = match Router::load(sizes) {
        Ok(router) => router,
        Err(Error::NotPermitted(_)) => return skip(Lack::Root, "eBPF programs need it"),
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    };
    router.apply(&config).unwrap();
    // As much again fits: all of it, otherwise.
    let mut other = config.clone();
    other.lists.values_mut().for_each(|list| drop(list.rules.pop()));
    router.apply(&other).unwrap();
    // By default it does not.
    let mut small = Router::load(Sizes { flows: 1024, ..Sizes::default() }).unwrap();
    assert!(matches!(small.apply(&config), Err(Error::NoRoom { .. })));
}
