//! The outer packets of tunnels: what routers do with them and say of them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use rig_datapath::balancer::{
    Backend, Drop, Encapsulation, ForwardingMethod, GUE_PORT, Pass, Service, Sizes, TunnelHeader,
};
use rig_datapath::test_run::Verdict;
use rig_wire::ethernet::Ethernet;
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::udp::Udp;

use super::frames::{icmp_error, ip, may_be_fragmented, pseudo, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, small, udp_service};

const GUE: TunnelHeader = TunnelHeader::Gue { port: GUE_PORT, checksum: false };
const SUMMED: TunnelHeader = TunnelHeader::Gue { port: NonZeroU16::new(5555).unwrap(), checksum: true };

fn services(header: TunnelHeader, source_bits: u8) -> [Service; 2] {
    let backend = |address| {
        let encapsulation = Encapsulation { header, source_bits };
        Backend { encapsulation, ..backend(address, 1) }
    };
    let tunnel =
        |local: &[&str]| ForwardingMethod::Tunnel { local: local.iter().map(|at| at.parse().unwrap()).collect() };
    [
        udp_service(
            "10.0.0.200:53",
            tunnel(if source_bits == 0 { &["10.0.0.100", "10.0.0.101"] } else { &["10.0.0.100"] }),
            &[backend("10.0.0.11:53")],
        ),
        udp_service("[fd00::200]:53", tunnel(&["fd00::100"]), &[backend("[fd00::11]:53")]),
    ]
}

/// A client with a neighbour entry.
fn client(ipv6: bool, port: u16) -> String {
    if ipv6 { format!("[fd00::50]:{port}") } else { format!("10.0.0.50:{port}") }
}

fn service(ipv6: bool) -> &'static str {
    if ipv6 { "[fd00::200]:53" } else { "10.0.0.200:53" }
}

/// A prefix is of connections that begin when the service has it: another one's bits are not put into their source.
#[test]
fn connections_keep_the_source_that_they_began_with() {
    let of = |local: &str, source_bits| {
        let encapsulation = Encapsulation { header: GUE, source_bits };
        let backends = [Backend { encapsulation, ..backend("10.0.0.11:53", 1) }];
        config(&[udp_service(
            "10.0.0.200:53",
            ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] },
            &backends,
        )])
    };
    let Some(mut lab) = Lab::new(small(), &of("10.0.0.100", 0)) else { return };
    let source = |lab: &Lab, port| {
        let out = lab.sent(&udp(&client(false, port), service(false)).bytes());
        Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap().source()
    };
    assert_eq!(source(&lab, 5000).to_string(), "10.0.0.100");
    let in_prefix = |source: Ipv4Addr, first: &str, bits: u32| {
        let first: Ipv4Addr = first.parse().unwrap();
        source.to_bits() >> bits == first.to_bits() >> bits && source != first
    };
    lab.balancer.apply(&of("172.16.0.0", 16)).unwrap();
    assert_eq!(source(&lab, 5000).to_string(), "10.0.0.100");
    assert!(in_prefix(source(&lab, 5001), "172.16.0.0", 16));
    lab.balancer.apply(&of("10.64.0.0", 20)).unwrap();
    assert_eq!(source(&lab, 5001).to_string(), "172.16.0.0");
    assert!(in_prefix(source(&lab, 5002), "10.64.0.0", 20));
}

/// No router may fragment the outer packet, so that its identification says nothing (RFC 6864, 4.1).
#[test]
fn outer_packets_are_not_fragmented() {
    let Some(lab) = Lab::new(small(), &config(&services(TunnelHeader::IpInIp, 0))) else { return };
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

/// Where there are equal ways, flows are spread over them: by IPv6's flow label, in IPv4 by local addresses.
#[test]
fn flows_differ_outside() {
    let Some(lab) = Lab::new(small(), &config(&services(TunnelHeader::IpInIp, 0))) else { return };
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

/// And by what they have for that: GUE's source port, and sources of a prefix.
#[test]
fn flows_differ_in_ports_and_sources() {
    let prefix = |local: &str, service, to| {
        let mut backend = backend(to, 1);
        backend.encapsulation.source_bits = 16;
        udp_service(service, ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] }, &[backend])
    };
    let sources =
        [prefix("172.16.0.0", "10.0.0.201:53", "10.0.0.11:53"), prefix("100::", "[fd00::201]:53", "[fd00::11]:53")];
    let all = [services(GUE, 0), sources].concat();
    let Some(lab) = Lab::new(Sizes { connections: 256, ..small() }, &config(&all)) else { return };
    let sent = |ipv6, port, service: &str| lab.sent(&udp(&client(ipv6, port), service).bytes());
    for ipv6 in [false, true] {
        let ports = || -> Vec<u16> {
            let at = 14 + if ipv6 { 40 } else { 20 };
            (5000..5020)
                .map(|port| sent(ipv6, port, service(ipv6))[at..at + 2].try_into().unwrap())
                .map(u16::from_be_bytes)
                .collect()
        };
        let seen = ports();
        assert!(seen.iter().all(|port| *port >= 49_152), "{seen:?}");
        assert!(seen.iter().collect::<HashSet<_>>().len() >= 19, "{seen:?}");
        assert_eq!(ports(), seen);
        let to = service(ipv6).replace("200", "201");
        let sources: HashSet<Vec<u8>> = (5000..5020)
            .map(|port| sent(ipv6, port, &to))
            .map(|out| out[if ipv6 { 22..38 } else { 26..30 }].to_vec())
            .collect();
        let first: &[u8] = if ipv6 { &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] } else { &[172, 16] };
        assert!(sources.iter().all(|source| source.starts_with(first)), "{sources:?}");
        assert!(sources.len() >= 19, "{sources:?}");
    }
}

/// Every byte of what leaves, with payloads of even and odd lengths.
#[test]
fn headers_between_are_as_they_are_defined() {
    let headers = [GUE, SUMMED, TunnelHeader::Gre];
    let mut all = Vec::new();
    for (at, header) in headers.into_iter().enumerate() {
        for mut service in services(header, 0) {
            service.address.set_port(53 + at as u16);
            service.backends[0].address.set_port(53 + at as u16);
            all.push(service);
        }
    }
    let Some(lab) = Lab::new(small(), &config(&all)) else { return };
    for (at, header) in headers.into_iter().enumerate() {
        for (ipv6, length) in [(false, 5), (false, 1300), (true, 0), (true, 1301)] {
            let to = service(ipv6).replace(":53", &format!(":{}", 53 + at));
            let frame = udp(&client(ipv6, 5000), &to).payload(&vec![7; length]);
            let out = lab.sent(&frame.bytes());
            let packet = Ethernet::parse(&out).unwrap().payload();
            let inner = frame.ttl(63).packet();
            let address = |at: usize, v4: usize| -> IpAddr {
                match ipv6 {
                    true => <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into(),
                    false => <[u8; 4]>::try_from(&packet[v4..v4 + 4]).unwrap().into(),
                }
            };
            let (from, to) = (address(8, 12), address(24, 16));
            let whole = inner.len() as u16 + 12;
            let (protocol, between) = match header {
                TunnelHeader::Gre if ipv6 => (47, vec![0, 0, 0x86, 0xdd]),
                TunnelHeader::Gre => (47, vec![0, 0, 0x08, 0x00]),
                TunnelHeader::Gue { port, .. } => {
                    let outer = if ipv6 { 40 } else { 20 };
                    // The flow's port, and the checksum, which is looked at below.
                    let mut udp = packet[outer..outer + 12].to_vec();
                    udp[2..4].copy_from_slice(&port.get().to_be_bytes());
                    udp[4..6].copy_from_slice(&whole.to_be_bytes());
                    udp[8..].copy_from_slice(&[0, if ipv6 { 41 } else { 4 }, 0, 0]);
                    if header == GUE {
                        udp[6..8].fill(0);
                    }
                    (17, udp)
                }
                TunnelHeader::IpInIp => unreachable!(),
            };
            let mut expected = ip(from, to, protocol, 64, &[&between[..], &inner].concat());
            if ipv6 {
                // The flow label, of which another test says more.
                expected[1..4].copy_from_slice(&packet[1..4]);
            }
            assert_eq!(packet, expected, "{header:?}");
            assert_eq!(to.to_string(), if ipv6 { "fd00::11" } else { "10.0.0.11" });
            if header == SUMMED {
                let pseudo = pseudo(from, to, 17, whole.into());
                let datagram = &packet[packet.len() - usize::from(whole)..];
                Udp::parse(datagram).unwrap().verify(pseudo, false).unwrap();
            }
        }
    }
}

/// Errors about datagrams that only look like a tunnel's are of the connection that they are of.
#[test]
fn a_datagram_that_looks_like_a_tunnels_is_its_connections() {
    let plain = udp_service("10.0.0.202:6080", full_nat(&["10.0.0.102"]), &[backend("10.0.0.10:6080", 1)]);
    let all = [&services(GUE, 0)[..], &[plain]].concat();
    let Some(lab) = Lab::new(small(), &config(&all)) else { return };
    let packed = lab.sent(&udp(&client(false, 5000), service(false)).bytes())[14 + 28..].to_vec();
    let translated = lab.sent(&udp(&client(false, 5001), "10.0.0.202:6080").payload(&packed).bytes());
    let error = icmp_error("10.0.0.99", "10.0.0.102", 3, 1, 0, &translated[14..], 548);
    let told = lab.sent(&error);
    let ip = Ipv4::parse(Ethernet::parse(&told).unwrap().payload()).unwrap();
    assert_eq!(IpAddr::from(ip.destination()).to_string(), "10.0.0.50");
}

/// A router on the tunnel's way needs smaller packets: the client is told what fits inside, about its own packet, and the
/// balancer remembers it for the next packets of all clients, for 10 minutes.
#[test]
fn what_routers_say_of_a_tunnel_reaches_the_client() {
    what_routers_say_reaches_the_client(TunnelHeader::IpInIp, 0);
}

#[test]
fn what_routers_say_of_gue_reaches_the_client() {
    what_routers_say_reaches_the_client(GUE, 0);
}

#[test]
fn what_routers_say_of_gre_reaches_the_client() {
    what_routers_say_reaches_the_client(TunnelHeader::Gre, 2);
}

fn what_routers_say_reaches_the_client(between: TunnelHeader, source_bits: u8) {
    let Some(mut lab) = Lab::new(small(), &config(&services(between, source_bits))) else { return };
    for (ipv6, inner, least) in [(false, 20, 576), (true, 40, 1280)] {
        let header = inner + between.length();
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
        for quoted in [header + inner + 8, 1232, 500] {
            let message = told(&lab, &error(1399, quoted));
            let sender = big(5000);
            assert_eq!((message.0, message.1), (sender.destination.ip(), sender.source.ip()));
            assert_eq!(message.2 as usize, (1399 - header).max(if ipv6 { 1280 } else { 0 }));
            let most = if ipv6 { 1232 } else { 548 };
            assert_eq!(message.3, packet[header..quoted.min(most + header)], "{between:?}");
        }
        // Another client's.
        let begun = lab.sent(&udp(&client(ipv6, 5001), service(ipv6)).bytes());
        assert!(!begun.is_empty());
        let length = 1360 + 8 + inner;
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
