//! The outer packets of tunnels: what routers do with them and say of them.

use std::collections::HashSet;
use std::net::IpAddr;

use rig_datapath::balancer::{Drop, ForwardingMethod, Pass, Service};
use rig_datapath::test_run::Verdict;
use rig_wire::ethernet::Ethernet;
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;

use super::frames::{icmp_error, may_be_fragmented, udp};
use super::lab::Lab;
use super::{backend, config, small, udp_service};

fn services() -> [Service; 2] {
    let tunnel =
        |local: &[&str]| ForwardingMethod::Tunnel { local: local.iter().map(|at| at.parse().unwrap()).collect() };
    [
        udp_service("10.0.0.200:53", tunnel(&["10.0.0.100", "10.0.0.101"]), &[backend("10.0.0.11:53", 1)]),
        udp_service("[fd00::200]:53", tunnel(&["fd00::100"]), &[backend("[fd00::11]:53", 1)]),
    ]
}

/// A client with a neighbour entry.
fn client(ipv6: bool, port: u16) -> String {
    if ipv6 { format!("[fd00::50]:{port}") } else { format!("10.0.0.50:{port}") }
}

fn service(ipv6: bool) -> &'static str {
    if ipv6 { "[fd00::200]:53" } else { "10.0.0.200:53" }
}

/// No router may fragment the outer packet, so that its identification says nothing (RFC 6864, 4.1).
#[test]
fn outer_packets_are_not_fragmented() {
    let Some(lab) = Lab::new(small(), &config(&services())) else { return };
    let frame = udp(&client(false, 5000), service(false)).payload(b"inside").bytes();
    for frame in [may_be_fragmented(&frame), frame] {
        let out = lab.sent(&frame);
        let outer = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
        outer.verify().unwrap();
        assert!(outer.dont_fragment());
        // The one inside says what it said.
        assert_eq!(out[34 + 6] & 0x40, frame[14 + 6] & 0x40);
    }
}

/// Where there are equal ways, flows are spread over them: by IPv6's flow label, in IPv4 by local addresses alone.
#[test]
fn flows_differ_outside() {
    let Some(lab) = Lab::new(small(), &config(&services())) else { return };
    let outer = |ipv6, port| {
        let out = lab.sent(&udp(&client(ipv6, port), service(ipv6)).bytes());
        let at = if ipv6 { 14..18 } else { 26..30 };
        u32::from_be_bytes(out[at].try_into().unwrap())
    };
    for (ipv6, kinds) in [(true, 20), (false, 2)] {
        let seen: Vec<u32> = (5000..5020).map(|port| outer(ipv6, port)).collect();
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), kinds);
        assert!(seen.iter().all(|word| !ipv6 || word & 0xf_ffff != 0));
        // And stay what they are.
        assert_eq!((5000..5020).map(|port| outer(ipv6, port)).collect::<Vec<_>>(), seen);
    }
}

/// A router on the tunnel's way needs smaller packets: the client is told what fits inside, about its own packet, and the
/// balancer remembers it for the next packets of all clients, for 10 minutes.
#[test]
fn what_routers_say_of_a_tunnel_reaches_the_client() {
    let Some(mut lab) = Lab::new(small(), &config(&services())) else { return };
    for (ipv6, header, least) in [(false, 20, 576), (true, 40, 1280)] {
        let big = |port| udp(&client(ipv6, port), service(ipv6)).payload(&[7; 1360]);
        let out = lab.sent(&big(5000).bytes());
        let packet = &out[14..];
        let address = |at: usize| -> IpAddr {
            if ipv6 {
                <[u8; 16]>::try_from(&packet[8 + at * 16..24 + at * 16]).unwrap().into()
            } else {
                <[u8; 4]>::try_from(&packet[12 + at * 4..16 + at * 4]).unwrap().into()
            }
        };
        let local = address(0).to_string();
        let router = if ipv6 { "fd00::99" } else { "10.0.0.99" };
        let (kind, code) = if ipv6 { (2, 0) } else { (3, 4) };
        let error = |mtu, quoted| icmp_error(router, &local, kind, code, mtu, packet, quoted);
        let told = |lab: &Lab, frame: &[u8]| {
            let outcome = lab.send(frame);
            assert_eq!(outcome.verdict, Verdict::Transmit, "{:?}", lab.drops());
            let link = Ethernet::parse(&outcome.frame).unwrap();
            assert_eq!(link.source(), lab.near);
            let ip = link.payload().to_vec();
            if ipv6 {
                let parsed = Ipv6::parse(&ip).unwrap();
                let icmp = Icmpv6::parse(parsed.payload()).unwrap();
                icmp.verify(parsed.pseudo()).unwrap();
                assert_eq!((icmp.kind(), icmp.code()), (2, 0));
                let mtu = u32::from_be_bytes(parsed.payload()[4..8].try_into().unwrap());
                (IpAddr::from(parsed.source()), IpAddr::from(parsed.destination()), mtu, icmp.payload().to_vec())
            } else {
                let parsed = Ipv4::parse(&ip).unwrap();
                parsed.verify().unwrap();
                let icmp = Icmp::parse(parsed.payload()).unwrap();
                icmp.verify().unwrap();
                assert_eq!((icmp.kind(), icmp.code()), (3, 4));
                let mtu = icmp.echo().1.into();
                (parsed.source().into(), parsed.destination().into(), mtu, icmp.payload().to_vec())
            }
        };
        // As much as a router quotes at most; and the least that says whose it was.
        for quoted in [header + header + 8, 1232, 500] {
            let message = told(&lab, &error(1399, quoted));
            let sender = big(5000);
            assert_eq!((message.0, message.1), (sender.destination.ip(), sender.source.ip()));
            assert_eq!(message.2 as usize, (1399 - header).max(if ipv6 { 1280 } else { 0 }));
            let most = if ipv6 { 1232 } else { 548 };
            assert_eq!(message.3, packet[header..quoted.min(most + header)]);
        }
        // Another client's.
        let begun = lab.sent(&udp(&client(ipv6, 5001), service(ipv6)).bytes());
        assert!(!begun.is_empty());
        let length = 1360 + 8 + header;
        assert!(length + header > 1399);
        assert_eq!(told(&lab, &big(5001).bytes()).2 as usize, 1399 - header);
        lab.later(4470);
        assert_eq!(told(&lab, &big(5001).bytes()).2 as usize, 1399 - header);
        lab.later(1);
        lab.sent(&big(5001).bytes());
        // A router that claims an MTU below the least that IP allows is not believed: that least is used.
        lab.sent(&big(5000).bytes());
        let message = told(&lab, &error(100, 200));
        assert_eq!(message.2 as usize, (least - header).max(if ipv6 { 1280 } else { 0 }));

        // What is not about such a packet, or of another kind, or says too little to tell, has no effect.
        lab.later(4471);
        let mut other = packet.to_vec();
        let backend_at = if ipv6 { 39 } else { 19 };
        other[backend_at] ^= 1;
        let frames = [
            icmp_error(router, &local, kind, code, 1300, &other, 200),
            icmp_error(router, &local, if ipv6 { 1 } else { 3 }, 1, 1300, packet, 200),
            icmp_error(router, &local, kind, code, 1300, packet, header + 8),
        ];
        for frame in frames {
            lab.passes(&frame, Pass::IcmpUnknown);
        }
        lab.sent(&big(5000).bytes());
        // Not too often.
        lab.later(1);
        let tells = (0..70).filter(|_| lab.send(&error(1399, 200)).verdict == Verdict::Transmit).count();
        assert_eq!(tells, 64);
        assert!(lab.drops().iter().any(|(reason, count)| *reason == Drop::TooBig && *count >= 6));
        lab.later(4472);
    }
}
