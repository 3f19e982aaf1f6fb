//! A balancer on a trunk, with clients and servers in VLANs of it: real VLAN devices, of the interface and of a bond.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};

use rig_datapath::Error;
use rig_datapath::balancer::{Drop, GenericXdp, Mode, TransmitMethod};
use rig_skip::{Lack, skip};
use rig_sys::ethtool;
use rig_sys::netlink::Netlink;
use rig_sys::netns::{self, NetNs};

use super::bond::{CONNECTIONS, PORT, SERVICE, ip, talk, wire};
use super::lab::{Lab, TIMEOUT, Wires, load, until};
use super::programs::{has, run};
use super::talk::{Echo, again};
use super::{backend, config, full_nat, sizes, tcp};

/// The link that both ends have, by its name at either.
#[derive(Clone, Copy)]
struct TrunkLink {
    near: &'static str,
    far: &'static str,
}

const WIRE: TrunkLink = TrunkLink { near: "near", far: "far" };
const BOND: TrunkLink = TrunkLink { near: "bond0", far: "bond0" };

/// Tags stand in frames from here on: veth hands them on beside these otherwise, where no program sees them.
fn write_tags(ns: &NetNs, interface: &str) {
    ethtool::set_features(ns, interface, &BTreeMap::from([("tx-vlan-offload".to_owned(), false)])).unwrap();
}

/// A VLAN device over the trunk in `ns`, with an address; false, said aloud, where this kernel has none.
fn add(ns: &NetNs, trunk: &str, id: u16, address: &str) -> bool {
    let line = format!("link add link {trunk} name vlan{id} type vlan id {id}");
    let made = run(ns, "ip", &line.split_whitespace().collect::<Vec<_>>());
    if !made.status.success() {
        skip(Lack::Vlans, format_args!("no VLAN devices: {}", String::from_utf8_lossy(&made.stderr).trim()));
        return false;
    }
    ip(ns, &format!("address add {address} dev vlan{id}"));
    ip(ns, &format!("link set vlan{id} up"));
    true
}

/// A host in a VLAN of the trunk, whose other end is in the switch: its device there is moved to it.
fn connect(switch: &NetNs, host: &NetNs, trunk: &str, id: u16, address: &str, router: &str) {
    ip(switch, &format!("link add link {trunk} name vlan{id} type vlan id {id}"));
    Netlink::open(switch).unwrap().move_to(&format!("vlan{id}"), host, "eth0", None).unwrap();
    ip(host, &format!("address add {address} dev eth0"));
    ip(host, "link set eth0 up");
    ip(host, &format!("route add default via {router}"));
}

struct TrunkWires {
    switch: NetNs,
    wires: Wires,
}

/// `None` where this kernel has no such links.
fn trunk(link: TrunkLink) -> Option<TrunkWires> {
    let new = || NetNs::create().unwrap();
    let (client, here, server, switch) = (new(), new(), new(), new());
    if link.near == BOND.near {
        for (ns, end) in [(&here, "near"), (&switch, "far")] {
            let kind = "link add bond0 type bond miimon 50 mode balance-xor xmit_hash_policy layer3+4";
            let made = run(ns, "ip", &kind.split_whitespace().collect::<Vec<_>>());
            if !made.status.success() {
                skip(Lack::Bonds, format_args!("no bonds: {}", String::from_utf8_lossy(&made.stderr).trim()));
                return None;
            }
            for number in 0..2 {
                if end == "near" {
                    wire([&here, &switch], [&format!("near{number}"), &format!("far{number}")]);
                }
                ip(ns, &format!("link set {end}{number} master bond0"));
                ip(ns, &format!("link set {end}{number} up"));
            }
        }
        (0..2).for_each(|number| write_tags(&switch, &format!("far{number}")));
    } else {
        wire([&here, &switch], [link.near, link.far]);
        write_tags(&switch, link.far);
    }
    ip(&here, &format!("link set {} up", link.near));
    ip(&switch, &format!("link set {} up", link.far));
    if !add(&here, link.near, 10, "10.10.0.1/24") {
        return None;
    }
    add(&here, link.near, 20, "10.20.0.1/24");
    connect(&switch, &client, link.far, 10, "10.10.0.2/24", "10.10.0.1");
    connect(&switch, &server, link.far, 20, "10.20.0.2/24", "10.20.0.1");
    here.sysctls(&[("net.ipv4.ip_forward", "1")]).unwrap();
    let wires =
        Wires { client, here, servers: vec![server], routers: Vec::new(), interfaces: vec![link.near.to_owned()] };
    Some(TrunkWires { switch, wires })
}

fn balances_over_a_trunk(link: TrunkLink) {
    if rig_sys::process::user_id() != 0 || !netns::may_create_namespaces() {
        return skip(Lack::Root, "network namespaces and eBPF programs need it");
    }
    if !has("ip", "-V", "iproute2") {
        return;
    }
    let Some(TrunkWires { switch, wires }) = trunk(link) else { return };
    wires.here.enter().unwrap();
    let Some(mut balancer) = load(sizes(4096)) else { return };
    let server: SocketAddr = ([10, 20, 0, 2], PORT).into();
    balancer.apply(&config([tcp(SERVICE, 80, full_nat(SERVICE), vec![backend(server, 1)])])).unwrap();
    let netlink = Netlink::here().unwrap();
    let attachment = match balancer.attach(netlink.index(link.near).unwrap(), GenericXdp::Refused) {
        Err(Error::Attach { source, .. }) if source.kind() == libbpf_rs::ErrorKind::Unsupported => {
            return skip(Lack::Bonds, "bonds take no XDP programs, which they do since Linux 5.15");
        }
        attached => attached.unwrap(),
    };
    assert_eq!(attachment.mode(), Mode::Native);
    // Packets go back by the veth that they came by, whose peer XDP_TX does not wake.
    balancer.set_back(TransmitMethod::Redirect).unwrap();
    until("the trunk", || netlink.is_operational("vlan10").unwrap() && netlink.is_operational("vlan20").unwrap());
    let _echo = Echo::start(&wires.servers[0], PORT);
    let (client, here, host) = (again(&wires.client), again(&wires.here), again(&wires.servers[0]));
    let mut lab = Lab { balancer, attachments: vec![attachment], wires };
    lab.during(|| (0..CONNECTIONS).for_each(|number| talk(&client, number)));
    // The servers' VLAN becomes another one.
    ip(&host, "link del eth0");
    ip(&here, "link del vlan20");
    assert!(add(&here, link.near, 21, "10.20.0.1/24"));
    connect(&switch, &host, link.far, 21, "10.20.0.2/24", "10.20.0.1");
    lab.during(|| (0..CONNECTIONS).for_each(|number| talk(&client, number)));
    // A packet may come before a link address is known, and while the VLAN changes.
    let mut losses = lab.drops();
    losses.retain(|(reason, _)| !matches!(reason, Drop::NoNeighbor | Drop::NoRoute | Drop::NotSent));
    assert_eq!(losses, vec![]);
    let traffic = lab.balancer.services().unwrap()[0].traffic;
    assert_eq!(traffic.connections, 2 * CONNECTIONS as u64);
    let hops = lab.balancer.next_hops();
    let hop = &hops[&server.ip()].hops[0];
    let by = hop.tagged_by.as_ref().map(|by| (by.parent.to_string(), by.id));
    assert_eq!((hop.device.to_string(), by), ("vlan21".into(), Some((link.near.into(), 21))));
    // What the kernel itself sends and gets goes on beside it: a closed port refuses.
    let closed: SocketAddr = ([10, 10, 0, 2], 9).into();
    let refused = here.run(|| TcpStream::connect_timeout(&closed, TIMEOUT)).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn between_vlans_of_an_interface() {
    balances_over_a_trunk(WIRE);
}

#[test]
fn between_vlans_of_a_bond() {
    balances_over_a_trunk(BOND);
}
