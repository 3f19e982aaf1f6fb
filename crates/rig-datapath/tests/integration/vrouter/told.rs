//! What senders are told by the router, in place of a packet or in one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rig_datapath::vrouter::{Encapsulation, NextHop, ROUTER_MAC, Reason, Side, Verdict};
use rig_sys::netns::NetNs;
use rig_wire::checksum::{Checksum, PartialChecksum};
use rig_wire::ethernet::{Ethernet, Mac};
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol;
use rig_wire::tcp::Tcp;
use rig_wire::tcp::flags::{ACK, SYN};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto};

use super::frames::{self, Frame, L4};
use super::lab::{Lab, mac_of, run, v4_of, v6_of};
use super::outer::{at, framed, with_mss};
use super::packets::{GATEWAY, icmpv6};
use super::traffic::{carry, said};

/// Of a container whose device is another one than the configuration says.
const OTHER: Mac = Mac([2, 0, 0, 0, 0x77, 9]);

#[test]
fn senders_are_told_that_the_time_to_live_has_run_out() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let packet = Frame::new(L4::Udp, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80)).payload(&[9; 200]).ttl(1).packet();
    let frame = node.passes(&packet);
    let ethernet = Ethernet::parse(&frame).unwrap();
    assert_eq!((ethernet.destination(), ethernet.source()), (mac_of(0, 0), ROUTER_MAC));
    let ip = Ipv4::parse(ethernet.payload()).unwrap();
    ip.verify().unwrap();
    assert_eq!((ip.source(), ip.destination()), (GATEWAY, v4_of(0, 0)));
    let icmp = Icmp::parse(ip.payload()).unwrap();
    icmp.verify().unwrap();
    assert_eq!((icmp.kind(), icmp.code()), (11, 0));
    assert_eq!(ip.payload()[8..], packet[..128]);
    let packet = Frame::new(L4::Udp, at(v6_of(0, 0), 1000), at(v6_of(0, 1), 80)).payload(&[9; 20]).ttl(1).packet();
    let frame = node.passes(&packet);
    let ip = Ipv6::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    let icmp = Icmpv6::parse(ip.payload()).unwrap();
    icmp.verify(ip.pseudo()).unwrap();
    assert_eq!((icmp.kind(), icmp.code()), (3, 0));
    assert_eq!(ip.payload()[8..], packet);
    assert_eq!(node.drops()[&Reason::TtlTold.number()], 2);
}

#[test]
fn senders_are_told_of_a_smaller_mtu() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let inner = 1500 - 32;
    let fits = |from: SocketAddr, to: SocketAddr, bytes: usize| {
        let header = if from.is_ipv4() { 28 } else { 48 };
        Frame::new(L4::Udp, from, to).payload(&vec![9; bytes - header]).packet()
    };
    let (from, to) = (at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80));
    let frame = node.passes(&fits(from, to, inner));
    assert_eq!(frame.len(), 14 + 1500);
    let large = fits(from, to, inner + 1);
    let frame = node.passes(&large);
    let ip = Ipv4::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    ip.verify().unwrap();
    let icmp = Icmp::parse(ip.payload()).unwrap();
    icmp.verify().unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.echo()), (3, 4, (0, inner as u16)));
    assert_eq!(ip.payload()[8..], large[..128]);
    let (from, to) = (at(v6_of(0, 0), 1000), at(v6_of(1, 0), 80));
    let frame = node.passes(&fits(from, to, inner + 1));
    let ip = Ipv6::parse(Ethernet::parse(&frame).unwrap().payload()).unwrap();
    let icmp = Icmpv6::parse(ip.payload()).unwrap();
    icmp.verify(ip.pseudo()).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.echo()), (2, 0, (0, inner as u16)));
    assert_eq!(node.drops()[&Reason::TooBigTold.number()], 2);
}

#[test]
fn nobody_is_told_of_errors_or_of_packets_to_many() {
    let Some(mut lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &mut lab.nodes[0];
    let vrf = Arc::make_mut(node.config.vrfs.values_mut().next().unwrap());
    for all in ["0.0.0.0/0", "::/0"] {
        vrf.routes.insert(all.parse().unwrap(), NextHop::Interface(2));
    }
    node.apply();
    // An error that is not known (RFC 4443, 2.4 e).
    let packet = icmpv6(v6_of(0, 0), v6_of(0, 1), 1, vec![100, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(node.refuses(&packet), Reason::TtlExceeded);
    for to in ["224.1.2.3", "ff0e::7"] {
        let to: IpAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { v4_of(0, 0).into() } else { v6_of(0, 0) };
        let packet = Frame::new(L4::Udp, at(from, 1000), at(to, 80)).ttl(1).packet();
        assert_eq!(node.refuses(&packet), Reason::TtlExceeded, "{to}");
    }
}

#[test]
fn senders_are_not_told_without_end() {
    let Some(lab) = Lab::new(1, 2, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let packet = Frame::new(L4::Udp, at(v4_of(0, 0), 1000), at(v4_of(0, 1), 80)).ttl(1).packet();
    let begun = Instant::now();
    for _ in 0..1000 {
        node.send(&packet);
    }
    let most = 50 + begun.elapsed().as_millis() as u64 + 1;
    let drops = node.drops();
    let (told, expired) = (drops[&Reason::TtlTold.number()], drops.get(&Reason::TtlExceeded.number()));
    assert!((50..=most).contains(&told), "told {told} times, at most {most}");
    assert_eq!(told + expired.unwrap_or(&0), 1000);
    // Another interface is told of its own.
    let packet = Frame::new(L4::Udp, at(v4_of(0, 1), 1000), at(v4_of(0, 0), 80)).ttl(1).packet();
    let other = node.give(Side::Container, &framed(mac_of(0, 1), ROUTER_MAC, &packet), "c1");
    assert_eq!(other.verdict, Verdict::Redirect);
}

#[test]
fn a_syn_asks_for_segments_that_a_tunnel_takes() {
    for encapsulation in Encapsulation::ALL {
        let Some(lab) = Lab::new(2, 2, encapsulation) else { return };
        let node = &lab.nodes[0];
        let overhead = encapsulation.overhead();
        let mss_of = |flags, from: SocketAddr, to: SocketAddr, mss| {
            let frame = node.passes(&with_mss(flags, from, to, mss));
            let inner = frame.len() - if from.is_ipv4() { 44 } else { 64 };
            let (header, tcp) = frame[inner..].split_at(if from.is_ipv4() { 20 } else { 40 });
            let pseudo = if from.is_ipv4() {
                Ipv4::parse(&[header, tcp].concat()).unwrap().pseudo()
            } else {
                Ipv6::parse(&[header, tcp].concat()).unwrap().pseudo()
            };
            let tcp = Tcp::parse(tcp).unwrap();
            assert_eq!(tcp.verify(pseudo).unwrap(), Checksum::Complete);
            tcp.options().unwrap().mss.unwrap()
        };
        let (v4, v6) = ((at(v4_of(0, 0), 1000), at(v4_of(1, 0), 80)), (at(v6_of(0, 0), 1000), at(v6_of(1, 0), 80)));
        assert_eq!(mss_of(SYN, v4.0, v4.1, 1460), 1460 - overhead);
        assert_eq!(mss_of(SYN | ACK, v4.0, v4.1, 8960), 1460 - overhead);
        assert_eq!(mss_of(SYN, v6.0, v6.1, 1440), 1440 - overhead);
        // An MSS that fits, one that is in no SYN, and one of packets that go by no tunnel stay as they are.
        assert_eq!(mss_of(SYN, v4.0, v4.1, 536), 536);
        assert_eq!(mss_of(ACK, v4.0, v4.1, 1460), 1460);
        assert_eq!(mss_of(SYN, v4.0, at(v4_of(0, 1), 80), 1460), 1460);
    }
}

#[test]
fn answers_go_to_the_address_that_a_frame_came_from() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let node = &lab.nodes[0];
    let gateway6: IpAddr = "fd07::1".parse().unwrap();
    let (from, from6) = (v4_of(0, 0), v6_of(0, 0));
    let IpAddr::V6(target) = v6_of(1, 0) else { panic!() };
    let question = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &[1, 1], &OTHER.0].concat();
    let large = |from: IpAddr, to: IpAddr| Frame::new(L4::Udp, at(from, 1), at(to, 2)).payload(&[9; 1450]).packet();
    let late = |from: IpAddr, to: IpAddr| Frame::new(L4::Udp, at(from, 1), at(to, 2)).ttl(1).packet();
    let ping = frames::ip(from.into(), GATEWAY.into(), protocol::ICMP, 64, &[8, 0, 0xf7, 0xfd, 0, 1, 0, 1]);
    let cases: [(&str, Vec<u8>); 7] = [
        ("neighbor solicitation", icmpv6(from6, target.into(), 255, question)),
        ("ping", ping),
        ("ping of IPv6", icmpv6(from6, gateway6, 64, vec![128, 0, 0, 0, 0, 1, 0, 1])),
        ("too big", large(from.into(), v4_of(1, 0).into())),
        ("too big of IPv6", large(from6, v6_of(1, 0))),
        ("time exceeded", late(from.into(), v4_of(1, 0).into())),
        ("time exceeded of IPv6", late(from6, v6_of(1, 0))),
    ];
    for (what, packet) in cases {
        let answer = |source| {
            let outcome = node.give(Side::Container, &framed(source, ROUTER_MAC, &packet), "c0");
            assert_eq!(outcome.verdict, Verdict::Redirect, "{what}");
            outcome.frame
        };
        let (configured, other) = (answer(mac_of(0, 0)), answer(OTHER));
        let ethernet = Ethernet::parse(&other).unwrap();
        assert_eq!((ethernet.destination(), ethernet.source()), (OTHER, ROUTER_MAC), "{what}");
        assert_eq!(configured[..6], mac_of(0, 0).0, "{what}");
        assert_eq!(configured[6..], other[6..], "{what}");
    }
}

/// Whether an address answers an echo request of a container.
fn answers_ping(container: &NetNs, to: IpAddr) -> bool {
    let (family, protocol, kind) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let socket = container.run(|| rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap()).unwrap();
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2))).unwrap();
    let mut message = [kind, 0, 0, 0, 0x12, 0x34, 0, 1];
    if to.is_ipv4() {
        let checksum = PartialChecksum::ZERO.bytes(&message).checksum();
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddr::new(to, 0)).is_ok()
        && (0..10).any(|_| {
            let mut answer = [0; 256];
            let Ok((length, _, from)) = rustix::net::recvfrom(&socket, &mut answer[..], RecvFlags::empty()) else {
                return false;
            };
            let header = if to.is_ipv4() { 20 } else { 0 };
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            from.is_some_and(|from| from.ip() == to)
                && length == header + 8
                && answer[header] == if to.is_ipv4() { 0 } else { 129 }
        })
}

#[test]
fn a_container_of_another_mac_address_is_answered() {
    let Some(lab) = Lab::new(2, 1, Encapsulation::MplsOverUdp) else { return };
    let container = &lab.nodes[0].containers[0];
    run(container, &format!("link set eth0 address {OTHER}"));
    run(container, "link set eth0 mtu 1500");
    run(&lab.nodes[0].ns, "link set c0 mtu 1500");
    run(container, "-6 route add default via fd07::1");
    for gateway in [GATEWAY.into(), "fd07::1".parse().unwrap()] {
        // The first ones may be sent while the container still asks whether its address is its own.
        assert!((0..20).any(|_| answers_ping(container, gateway)), "{gateway} does not answer");
    }
    for to in [IpAddr::from(v4_of(1, 0)), v6_of(1, 0)] {
        carry(container, &lab.nodes[1].containers[0], to, || said(&lab));
    }
    for (to, bytes) in [(IpAddr::from(v4_of(1, 0)), 1500 - 28), (v6_of(1, 0), 1500 - 48)] {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = container.run(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
        let is_told = (0..50).any(|_| {
            let _too_large_now = socket.send_to(&vec![7; bytes], (to, 9));
            thread::sleep(Duration::from_millis(20));
            let mut command = Command::new("ip");
            command.args(["route", "get", &to.to_string()]);
            let output = container.run(|| command.output().unwrap()).unwrap();
            String::from_utf8_lossy(&output.stdout).contains("mtu 1468")
        });
        assert!(is_told, "{to}: the sender does not hear that its packets are too big: {}", said(&lab));
    }
}
