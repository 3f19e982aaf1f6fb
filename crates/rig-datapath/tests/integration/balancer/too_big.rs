//! What does not fit into the next link: dropped, and its sender told where it can do something about it.

use std::net::IpAddr;
use std::process::Command;

use rig_datapath::balancer::{Backend, Drop, Encapsulation, ForwardingMethod, GUE_PORT, TunnelHeader};
use rig_datapath::test_run::Verdict;
use rig_wire::ethernet::Ethernet;
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{CLIENT_MAC, Frame, NEAR_MAC, may_be_fragmented, see, see_packet, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small, udp_service};

struct TooBigMessage {
    from: IpAddr,
    to: IpAddr,
    mtu: u32,
    quoted: Vec<u8>,
    vlans: Vec<u16>,
}

/// The ICMP message that comes back in place of a frame, its checksums verified.
#[track_caller]
fn told(lab: &Lab, frame: &[u8]) -> TooBigMessage {
    let count = || {
        let drops = lab.balancer.drops().unwrap();
        drops.into_iter().find(|(reason, _)| *reason == Drop::TooBigTold).unwrap().1
    };
    let before = count();
    let outcome = lab.send(frame);
    assert_eq!(outcome.verdict, Verdict::Transmit, "{:?}", lab.drops());
    assert_eq!(count(), before + 1);
    let link = Ethernet::parse(&outcome.frame).unwrap();
    assert_eq!((link.source(), link.destination()), (NEAR_MAC, CLIENT_MAC));
    let vlans = link.vlans().collect();
    let packet = link.payload();
    if packet[0] >> 4 == 4 {
        let ip = Ipv4::parse(packet).unwrap();
        ip.verify().unwrap();
        assert_eq!((ip.ttl(), packet[1]), (64, 0xc0));
        let icmp = Icmp::parse(ip.payload()).unwrap();
        icmp.verify().unwrap();
        assert_eq!((icmp.kind(), icmp.code(), icmp.echo().0), (3, 4, 0));
        let (from, to) = (ip.source().into(), ip.destination().into());
        TooBigMessage { from, to, mtu: icmp.echo().1.into(), quoted: icmp.payload().to_vec(), vlans }
    } else {
        let ip = Ipv6::parse(packet).unwrap();
        let icmp = Icmpv6::parse(ip.payload()).unwrap();
        icmp.verify(ip.pseudo()).unwrap();
        assert_eq!((icmp.kind(), icmp.code(), ip.hop_limit()), (2, 0, 64));
        let mtu = u32::from_be_bytes(ip.payload()[4..8].try_into().unwrap());
        let (from, to) = (ip.source().into(), ip.destination().into());
        TooBigMessage { from, to, mtu, quoted: icmp.payload().to_vec(), vlans }
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn senders_on_both_sides_are_told() {
    let v4 = service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let v6 = service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]);
    let Some(lab) = Lab::new(small(), &config(&[v4, v6])) else { return };
    for (client, service, most) in
        [("10.0.0.60:5000", "10.0.0.200:80", 548), ("[fd00::60]:5000", "[fd00::200]:80", 1232)]
    {
        let local = see(&lab.sent(&tcp(SYN, client, service).bytes()));
        for vlan in [None, Some(77)] {
            let big = Frame { vlan, ..tcp(ACK, client, service).payload(&[7; 1500]) };
            let message = told(&lab, &big.bytes());
            assert_eq!((message.from, message.to, message.mtu), (big.destination.ip(), big.source.ip(), 1500));
            // As it came: neither translated nor one hop further.
            assert_eq!(message.quoted, big.packet()[..most]);
            assert_eq!(message.vlans, Vec::from_iter(vlan));

            // What the sender has left to its device has no checksum yet, and is quoted so.
            let message = told(&lab, &big.partial());
            assert_eq!(message.quoted.len(), most);
        }
        let answer = Frame { source: local.destination, destination: local.source, ..tcp(ACK, client, service) };
        let big = answer.payload(&[8; 1461]);
        let message = told(&lab, &big.bytes());
        assert_eq!((message.from, message.to, message.mtu), (local.source.ip(), local.destination.ip(), 1500));
        assert_eq!(message.quoted, big.packet()[..most]);
    }
    // Connections are none the worse.
    assert_eq!(lab.connections().len(), 2);
}

#[test]
fn a_tunnels_header_is_subtracted() {
    let tunnel = |local: &str| ForwardingMethod::Tunnel { local: vec![address(local)] };
    let gue = TunnelHeader::Gue { port: GUE_PORT, checksum: true };
    let kinds = [(TunnelHeader::IpInIp, 53, 0), (gue, 54, 12), (TunnelHeader::Gre, 55, 4)];
    let mut services = Vec::new();
    for (header, port, _) in kinds {
        let encapsulation = Encapsulation { header, source_bits: 0 };
        let to = |host| Backend { encapsulation, ..backend(&format!("{host}:{port}"), 1) };
        services.push(udp_service(&format!("10.0.0.200:{port}"), tunnel("10.0.0.100"), &[to("10.0.0.11")]));
        services.push(udp_service(&format!("[fd00::200]:{port}"), tunnel("fd00::100"), &[to("[fd00::11]")]));
    }
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    for (_, port, between) in kinds {
        for (client, service, mtu, header) in
            [("10.0.0.60:5000", "10.0.0.200", 1480, 28), ("[fd00::60]:5000", "[fd00::200]", 1460, 48)]
        {
            let (mtu, service) = (mtu - between, format!("{service}:{port}"));
            let fits = udp(client, &service).payload(&vec![1; mtu - header]);
            assert_eq!(lab.sent(&fits.bytes()).len(), 14 + 1500);
            let big = udp(client, &service).payload(&vec![1; mtu - header + 1]);
            assert_eq!(told(&lab, &big.bytes()).mtu, mtu as u32);
        }
    }
}

#[test]
fn with_nat_the_service_speaks_to_the_backend() {
    let plan = config(&[service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    let message = told(&lab, &tcp(ACK, "10.0.0.10:8080", "10.0.0.60:5000").payload(&[1; 1480]).bytes());
    assert_eq!((message.from, message.to), (address("10.0.0.200"), address("10.0.0.10")));
}

#[test]
fn nobody_is_told_what_is_of_no_use() {
    let v4 = service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let Some(mut lab) = Lab::new(small(), &config(&[v4])) else { return };
    let big = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&[1; 1480]);
    assert_eq!(lab.dropped(&may_be_fragmented(&big.bytes())), Drop::TooBig);
    // Not too often, and again in a while.
    for _ in 0..64 {
        told(&lab, &big.bytes());
    }
    assert_eq!(lab.dropped(&big.bytes()), Drop::TooBig);
    lab.later(1);
    told(&lab, &big.bytes());
}

/// As ip-route(8) takes it, in the calling thread's namespace.
pub fn ip_route(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A route may have an MTU below the interface's (forwarding heeds locked ones alone), down to where the packet is no longer than what may be quoted.
#[test]
fn small_packets_are_quoted_whole_and_ipv6_goes_no_lower_than_1280() {
    let v4 = service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let v6 = service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]);
    let tunnel = ForwardingMethod::Tunnel { local: vec![address("fd00::100")] };
    let tunneled = service("[fd00::201]:80", tunnel, &[backend("[fd00::11]:80", 1)]);
    let Some(lab) = Lab::new(small(), &config(&[v4, v6, tunneled])) else { return };
    ip_route("route add 10.0.0.10/32 dev lb0 mtu lock 300");
    ip_route("-6 route add fd00::11/128 dev lb0 mtu lock 1280");
    let big = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&[1; 261]);
    let message = told(&lab, &big.bytes());
    assert_eq!((message.mtu, &message.quoted), (300, &big.packet()));
    assert_eq!(see_packet(&message.quoted).payload, [1; 261]);
    let big = tcp(SYN, "[fd00::60]:5000", "[fd00::201]:80");
    assert_eq!(told(&lab, &big.clone().payload(&[1; 1221]).bytes()).mtu, 1280);
    assert_eq!(lab.dropped(&big.payload(&[1; 1220]).bytes()), Drop::TooBig);
}
