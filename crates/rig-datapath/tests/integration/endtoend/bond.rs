//! A balancer on a bonded interface, whose frames come by any of its links and leave by that which the bond chooses.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use rig_datapath::Error;
use rig_datapath::balancer::{Drop, GenericXdp, Mode};
use rig_skip::{Lack, skip};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::{self, NetNs};

use super::lab::{Lab, TIMEOUT, Wires, load, until};
use super::programs::{has, run, run_well};
use super::talk::{Echo, again};
use super::{backend, config, full_nat, sizes, tcp};

pub(super) const SERVICE: &str = "10.9.0.1";
pub(super) const PORT: u16 = 7002;
pub(super) const CONNECTIONS: usize = 20;

pub(super) fn ip(ns: &NetNs, line: &str) {
    run_well(ns, "ip", &line.split_whitespace().collect::<Vec<_>>());
}

/// Each end of a wire takes what is redirected to it.
pub(super) fn wire(ends: [&NetNs; 2], names: [&str; 2]) {
    let pair = VethPair { name: names[0], peer: names[1], peer_ns: ends[1], queues: 1, mtu: 1500 };
    Netlink::open(ends[0]).unwrap().add_veth(&pair).unwrap();
    for (ns, name) in ends.into_iter().zip(names) {
        ethtool::set(ns, name, Offload::Gro, true).unwrap();
    }
}

/// Client and balancer with two wires between them, a bond at both ends, and a server behind one more; `None` where this kernel has no bonds.
fn bonded(mode: &str) -> Option<Wires> {
    let new = || NetNs::create().unwrap();
    let (client, here, server) = (new(), new(), new());
    for number in 0..2 {
        wire([&here, &client], [&format!("near{number}"), &format!("far{number}")]);
    }
    for (ns, end, address) in [(&here, "near", "10.10.0.1/24"), (&client, "far", "10.10.0.2/24")] {
        let kind = format!("link add bond0 type bond miimon 50 mode {mode}");
        let made = run(ns, "ip", &kind.split_whitespace().collect::<Vec<_>>());
        if !made.status.success() {
            skip(Lack::Bonds, format_args!("no bonds: {}", String::from_utf8_lossy(&made.stderr).trim()));
            return None;
        }
        for number in 0..2 {
            ip(ns, &format!("link set {end}{number} master bond0"));
            ip(ns, &format!("link set {end}{number} up"));
        }
        ip(ns, "link set bond0 up");
        ip(ns, &format!("address add {address} dev bond0"));
    }
    wire([&here, &server], ["server0", "eth0"]);
    for (ns, name, address) in [(&here, "server0", "10.20.0.1/24"), (&server, "eth0", "10.20.0.2/24")] {
        ip(ns, &format!("address add {address} dev {name}"));
        ip(ns, &format!("link set {name} up"));
    }
    ip(&client, "route add default via 10.10.0.1");
    ip(&server, "route add default via 10.20.0.1");
    here.sysctls(&[("net.ipv4.ip_forward", "1")]).unwrap();
    let interfaces = vec!["bond0".into(), "server0".into()];
    Some(Wires { client, here, servers: vec![server], routers: Vec::new(), interfaces })
}

pub(super) fn talk(client: &NetNs, number: usize) {
    let to: SocketAddr = (SERVICE.parse::<IpAddr>().unwrap(), 80).into();
    let mut stream = client.run(|| TcpStream::connect_timeout(&to, TIMEOUT)).unwrap().unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let said = vec![number as u8; 3000];
    stream.write_all(&said).unwrap();
    let mut answer = vec![0; said.len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == said, "connection {number}");
}

/// Packets that have left by an interface.
fn sent_by(ns: &NetNs, interface: &str) -> u64 {
    let shown = run_well(ns, "ip", &["-s", "link", "show", interface]);
    // The last line has bytes and packets that were sent.
    let last = shown.trim().lines().last().unwrap_or_default();
    last.split_whitespace().nth(1).and_then(|packets| packets.parse().ok()).unwrap_or_else(|| panic!("{shown}"))
}

fn balances_over_a_bond(mode: &str, by_flow: bool) {
    if rig_sys::process::user_id() != 0 || !netns::may_create_namespaces() {
        return skip(Lack::Root, "network namespaces and eBPF programs need it");
    }
    if !has("ip", "-V", "iproute2") {
        return;
    }
    let Some(wires) = bonded(mode) else { return };
    wires.here.enter().unwrap();
    let Some(mut balancer) = load(sizes(4096)) else { return };
    let server: SocketAddr = ([10, 20, 0, 2], PORT).into();
    balancer.apply(&config([tcp(SERVICE, 80, full_nat(SERVICE), vec![backend(server, 1)])])).unwrap();
    let link = Netlink::here().unwrap();
    let mut attachments = Vec::new();
    for name in &wires.interfaces {
        match balancer.attach(link.index(name).unwrap(), GenericXdp::Refused) {
            Ok(attachment) => attachments.push(attachment),
            Err(Error::Attach { source, .. }) if source.kind() == libbpf_rs::ErrorKind::Unsupported => {
                return skip(Lack::Bonds, "bonds take no XDP programs, which they do since Linux 5.15");
            }
            Err(error) => panic!("{name}: {error}: {:?}", std::error::Error::source(&error)),
        }
    }
    assert!(attachments.iter().all(|attachment| attachment.mode() == Mode::Native));
    let _echo = Echo::start(&wires.servers[0], PORT);
    let (client, here) = (again(&wires.client), again(&wires.here));
    let mut lab = Lab { balancer, attachments, wires };
    lab.during(|| (0..CONNECTIONS).for_each(|number| talk(&client, number)));
    // A link that has carried packets goes, and the bond goes on by the other one.
    let sent = [0, 1].map(|number| sent_by(&here, &format!("near{number}")));
    assert!(!by_flow || sent.iter().all(|sent| *sent > CONNECTIONS as u64), "by links: {sent:?}");
    ip(&here, &format!("link set near{} down", usize::from(sent[1] > sent[0])));
    for ns in [&here, &client] {
        until("the bond", || run_well(ns, "cat", &["/proc/net/bonding/bond0"]).contains("MII Status: down"));
    }
    lab.during(|| (0..CONNECTIONS).for_each(|number| talk(&client, number)));
    // The first packet may come before the server's link address is known.
    let mut losses = lab.losses();
    losses.retain(|(reason, _)| *reason != Drop::NoNeighbor);
    assert_eq!(losses, vec![]);
    let traffic = lab.balancer.services().unwrap()[0].traffic;
    assert_eq!(traffic.connections, 2 * CONNECTIONS as u64);
}

#[test]
fn one_link_at_a_time() {
    balances_over_a_bond("active-backup", false);
}

#[test]
fn both_links_by_flow() {
    balances_over_a_bond("balance-xor xmit_hash_policy layer3+4", true);
}
