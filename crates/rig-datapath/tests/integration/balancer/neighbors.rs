//! Neighbours: the kernel is to know them before packets go there, and what it does not know is told.

use std::net::IpAddr;
use std::process::Command;

use rig_datapath::balancer::{Drop, NextHopState, NextHopStatus};
use rig_datapath::test_run::Verdict;
use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process;
use rig_wire::tcp::flags::{ACK, SYN};

use super::changes::{V, client, open, plan, talk};
use super::frames::{see, tcp};
use super::lab::{Lab, until};
use super::{backend, config, full_nat, service, small};

/// ip(8) in a namespace.
#[track_caller]
fn ip(ns: &NetNs, arguments: &str) {
    let mut command = Command::new("ip");
    let done = process::in_namespace(command.args(arguments.split(' ')), ns).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}

#[test]
fn an_unknown_backend_is_asked_for() {
    let backends = [backend("10.0.0.14:8080", 1)];
    let Some(lab) = Lab::new(small(), &config(&[plan(&backends)])) else { return };
    let syn = tcp(SYN, &client(5000), V).bytes();
    assert_eq!(lab.dropped(&syn), Drop::NoNeighbor);
    until("the backend", || {
        lab.balancer.ask_for_neighbors().unwrap();
        lab.send(&syn).verdict == Verdict::Transmit
    });
    assert_eq!(lab.balancer.ask_for_neighbors().unwrap(), 0);
    assert_eq!(open(&lab, 5001), "10.0.0.14:8080");
}

/// Clients behind another interface than the one that their packets come in by: on its link, and behind routers there.
#[test]
fn next_hops_to_clients_are_asked_for() {
    let backends = ["10.0.0.10:8080", "[fd00::10]:8080"].map(|address| backend(address, 1));
    let services = [plan(&backends[..1]), service("[fd00::200]:80", full_nat(&["fd00::100"]), &backends[1..])];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    let here = NetNs::of_current_thread().unwrap();
    // An address that is being tried out is none to ask from.
    here.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
    let mut netlink = Netlink::open(&here).unwrap();
    netlink.add_veth(&VethPair { name: "lb1", peer: "far1", peer_ns: &lab.far_ns, queues: 1, mtu: 1500 }).unwrap();
    ip(&here, "address add 10.1.0.1/24 dev lb1");
    ip(&here, "link set lb1 up");
    ip(&lab.far_ns, "link set far1 up");
    for address in ["10.1.0.60/24", "10.1.0.99/24", "fe80::99/64"] {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        ip(&lab.far_ns, &format!("address add {address} dev far1{nodad}"));
    }
    ip(&here, "route add 192.0.2.0/24 via 10.1.0.99");
    ip(&here, "route add fd02::/64 via fe80::99 dev lb1");
    until("the link", || netlink.is_operational("lb1").unwrap());
    let asked = || lab.balancer.ask_for_neighbors().unwrap();
    assert_eq!(asked(), 2, "the backends");
    let neighbors = || {
        let mut command = Command::new("ip");
        let shown = process::in_namespace(command.args(["neigh", "show", "dev", "lb1"]), &here).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    };
    for (client, to, next_hop) in [
        ("10.1.0.60:5000", V, "10.1.0.60"),
        ("192.0.2.5:5000", V, "10.1.0.99"),
        ("[fd02::5]:5000", "[fd00::200]:80", "fe80::99"),
    ] {
        let seen = see(&lab.sent(&tcp(SYN, client, to).bytes()));
        let answer = tcp(SYN | ACK, &seen.destination.to_string(), &seen.source.to_string()).bytes();
        assert_eq!(asked(), 0, "{client}: nothing was to be sent there yet");
        let known = |text: String| text.lines().any(|line| line.starts_with(next_hop) && line.contains("lladdr"));
        // Something of IPv6 may have told the router's.
        ip(&here, "neigh flush dev lb1");
        // A trace makes the kernel ask for no neighbour.
        assert_eq!(lab.balancer.trace(&answer, Some(lab.interface)).unwrap().drop, Some(Drop::NoNeighbor));
        assert_eq!(asked(), 0);
        for _ in 0..2 {
            assert_eq!(lab.dropped(&answer), Drop::NoNeighbor, "{client}");
        }
        assert_eq!((asked(), asked()), (1, 0), "{client}: asked for once, and forgotten");
        until("the neighbour", || known(neighbors()));
        let back = lab.send(&answer);
        assert_eq!(back.verdict, Verdict::Redirect, "{client}");
        assert_eq!(see(&back.frame).destination.to_string(), client);
    }
    // One on the link that its packets come from is reached without.
    open(&lab, 5001);
    talk(&lab, 5001);
    assert_eq!(asked(), 0);
}

#[test]
fn a_new_backend_is_asked_for_before_the_first_packet() {
    let backends = ["10.0.0.14:8080", "10.0.0.15:8080"].map(|address| backend(address, 1));
    let Some(mut lab) = Lab::new(small(), &config(&[plan(&backends[..1])])) else { return };
    let asked = |lab: &Lab| lab.balancer.ask_for_neighbors().unwrap();
    assert_eq!((asked(&lab), asked(&lab)), (1, 0));
    lab.balancer.apply(&config(&[plan(&backends)])).unwrap();
    assert_eq!((asked(&lab), asked(&lab)), (1, 0));
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    lab.balancer.apply(&config(&[plan(&backends[..1])])).unwrap();
    assert_eq!(asked(&lab), 0);
    // It was gone, so it is new again.
    lab.balancer.apply(&config(&[plan(&backends)])).unwrap();
    assert_eq!(asked(&lab), 1);
}

/// What a client would find is known without one.
#[test]
fn a_missing_next_hop_is_known_before_a_packet_comes() {
    use NextHopState::{DeviceDown, Local, NoNeighbor, NoRoute, Ok};

    let hosts = ["10.0.0.10", "10.0.0.99", "192.0.2.77", "10.0.0.1"];
    let backends = hosts.map(|host| backend(&format!("{host}:8080"), 1));
    // A backend of two services has one next hop.
    let six = service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]);
    let services = [plan(&backends), service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &backends[..1]), six];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    let of = |host: &str| {
        // Some have no route, which is an error of its own.
        let _ = lab.balancer.ask_for_neighbors();
        lab.balancer.next_hops()[&host.parse::<IpAddr>().unwrap()].clone()
    };
    let is = |host: &str, wanted: NextHopState| until(&format!("{host}: {wanted:?}"), || of(host).state == wanted);
    for (host, wanted) in hosts.into_iter().zip([Ok, NoNeighbor, NoRoute, Local]) {
        is(host, wanted);
    }
    let answers = of("10.0.0.10");
    let hop =
        |state| NextHopStatus { address: "10.0.0.10".parse().unwrap(), device: "lb0".into(), tagged_by: None, state };
    assert_eq!(answers.hops, [hop(Ok)]);
    assert_eq!(of("10.0.0.10").since, answers.since);
    let (none, local) = (of("192.0.2.77"), of("10.0.0.1"));
    assert!(none.hops.is_empty() && local.hops.is_empty());
    let here = NetNs::of_current_thread().unwrap();
    is("fd00::10", Ok);
    ip(&lab.far_ns, "link set far down");
    is("10.0.0.10", DeviceDown);
    // The route goes, too.
    ip(&here, "link set lb0 down");
    let netlink = Netlink::open(&here).unwrap();
    until("no route", || netlink.next_hops("10.0.0.10".parse().unwrap()).is_err());
    let down = of("10.0.0.10");
    assert_eq!((down.state, down.hops), (DeviceDown, vec![hop(DeviceDown)]));
    ip(&here, "link set lb0 up");
    ip(&lab.far_ns, "link set far up");
    is("10.0.0.10", Ok);
    assert!(of("10.0.0.10").since > answers.since);
    // The kernel has forgotten its address of IPv6.
    is("fd00::10", NoRoute);
    assert!(of("fd00::10").hops.is_empty());
    ip(&here, "address add fd00::1/64 dev lb0 nodad");
    ip(&lab.far_ns, "address add fd00::10/64 dev far nodad");
    is("fd00::10", Ok);
    assert!(lab.balancer.services().unwrap().iter().all(|service| service.traffic.in_packets == 0));
}

#[test]
fn a_neighbor_that_goes_away_is_noticed_each_time() {
    let Some(lab) = Lab::new(small(), &config(&[plan(&[backend("10.0.0.10:8080", 1)])])) else { return };
    let of = || {
        lab.balancer.ask_for_neighbors().unwrap();
        lab.balancer.next_hops()[&"10.0.0.10".parse::<IpAddr>().unwrap()].state
    };
    until("an answer", || of() == NextHopState::Ok);
    let here = NetNs::of_current_thread().unwrap();
    ip(&here, "neigh replace 10.0.0.10 dev lb0 nud failed");
    until("none", || of() == NextHopState::NoNeighbor);
    ip(&here, "neigh replace 10.0.0.10 lladdr 02:00:00:00:00:99 dev lb0 nud permanent");
    until("one that is set", || of() == NextHopState::Ok);
}
