//! What a builder writes, a view reads; and no bytes make a view panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not know as tests")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use rig_wire::arp::{Arp, Operation};
use rig_wire::checksum::{Checksum, PartialChecksum};
use rig_wire::ethernet::{self, Ethernet, Mac, ethertype};
use rig_wire::icmp::{self, Icmp};
use rig_wire::icmpv6::{self, Icmpv6, Neighbor};
use rig_wire::ipv4::{self, Ipv4};
use rig_wire::ipv6::{self, Ipv6};
use rig_wire::tcp::{self, Options, Tcp};
use rig_wire::udp::{self, Udp};
use rig_wire::vxlan::{self, Vxlan};
use rig_wire::{BufferTooShort, FlowKey, Malformed, protocol};

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn options() -> impl Strategy<Value = Options> {
    let scale = prop::option::of(0..=Options::MAX_SCALE);
    (any::<Option<u16>>(), scale, any::<bool>(), any::<Option<(u32, u32)>>()).prop_map(
        |(mss, window_scale, sack_permitted, timestamps)| Options { mss, window_scale, sack_permitted, timestamps },
    )
}

/// Calls every parser and accessor on any bytes.
fn look_at_everything(bytes: &[u8]) {
    let _ = FlowKey::of(bytes);
    let _ = Arp::parse(bytes);
    if let Ok(frame) = Ethernet::parse(bytes) {
        assert!(frame.vlans().count() <= 2);
        let _ = (frame.destination(), frame.source(), frame.ethertype(), frame.payload());
    }
    if let Ok(ip) = Ipv4::parse(bytes) {
        let _ = (ip.verify(), ip.source(), ip.destination(), ip.tos(), ip.identification(), ip.dont_fragment());
        let _ = (ip.is_fragment(), ip.ttl(), ip.protocol(), ip.options(), ip.payload(), ip.pseudo());
    }
    if let Ok(ip) = Ipv6::parse(bytes) {
        let _ = (ip.source(), ip.destination(), ip.traffic_class(), ip.flow_label(), ip.hop_limit());
        let _ = (ip.protocol(), ip.is_fragment(), ip.payload(), ip.pseudo());
    }
    if let Ok(tcp) = Tcp::parse(bytes) {
        let _ = (tcp.verify(PartialChecksum::ZERO), tcp.sequence(), tcp.acknowledgment(), tcp.flags(), tcp.window());
        let _ = (tcp.source_port(), tcp.destination_port(), tcp.options(), tcp.payload());
    }
    if let Ok(udp) = Udp::parse(bytes) {
        let _ = (udp.verify(PartialChecksum::ZERO, true), udp.source_port(), udp.destination_port(), udp.payload());
    }
    if let Ok(icmp) = Icmp::parse(bytes) {
        let _ = (icmp.verify(), icmp.kind(), icmp.code(), icmp.echo(), icmp.payload());
    }
    if let Ok(icmp) = Icmpv6::parse(bytes) {
        let _ = (
            icmp.verify(PartialChecksum::ZERO),
            icmp.kind(),
            icmp.code(),
            icmp.echo(),
            icmp.payload(),
            icmp.neighbor(255),
        );
    }
    if let Ok(vxlan) = Vxlan::parse(bytes) {
        let _ = (vxlan.vni(), vxlan.payload());
    }
}

/// A TCP frame over IPv4 with `ip_options` bytes of options, to be damaged by the tests.
fn frame(ip: Option<Ipv4Addr>, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 200 + payload.len()];
    let ethertype = if ip.is_some() { ethertype::IPV4 } else { ethertype::IPV6 };
    let ethernet = ethernet::Header { destination: Mac::BROADCAST, source: Mac([2; 6]), vlan: Some(7), ethertype };
    let mut at = ethernet.write(&mut buffer).unwrap();
    let tcp = tcp::Header {
        source_port: 1,
        destination_port: 2,
        sequence: 3,
        acknowledgment: 4,
        flags: tcp::flags::SYN,
        window: 5,
        options: Options { mss: Some(1460), window_scale: Some(7), sack_permitted: true, timestamps: Some((8, 9)) },
    };
    let length = tcp.len() + payload.len();
    let pseudo = match ip {
        Some(ip) => {
            let header = ipv4::Header { source: ip, destination: ip, protocol: protocol::TCP, ttl: 64, tos: 0 };
            at += header.write(&mut buffer[at..], length).unwrap();
            PartialChecksum::pseudo_v4(ip, ip, protocol::TCP, length)
        }
        None => {
            let ip = Ipv6Addr::LOCALHOST;
            let header = ipv6::Header { source: ip, destination: ip, protocol: 6, hop_limit: 64, traffic_class: 0 };
            at += header.write(&mut buffer[at..], length).unwrap();
            PartialChecksum::pseudo_v6(ip, ip, protocol::TCP, length)
        }
    };
    buffer[at + tcp.len()..][..payload.len()].copy_from_slice(payload);
    tcp.write(&mut buffer[at..], payload.len(), pseudo).unwrap();
    buffer.truncate(at + length);
    buffer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_a_view_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), first in 0u8..=255) {
        look_at_everything(&bytes);
        // Random bytes seldom get past the version, so it is helped along.
        for version in [0x45, 0x46, 0x4f, 0x60, first] {
            let mut bytes = bytes.clone();
            if let Some(byte) = bytes.first_mut() {
                *byte = version;
            }
            look_at_everything(&bytes);
        }
    }

    #[test]
    fn no_damage_to_a_frame_makes_a_view_panic(
        v4: bool, payload in data(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>()
    ) {
        let mut bytes = frame(v4.then_some(Ipv4Addr::LOCALHOST), &payload);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        (0..bytes.len().min(70)).for_each(|from| look_at_everything(&bytes[from..]));
    }

    #[test]
    fn ethernet(destination in mac(), source in mac(), vlan in prop::option::of(0u16..4096), ethertype in 0x0600u16.., payload in data()) {
        prop_assume!(![ethertype::VLAN, ethertype::SERVICE_VLAN].contains(&ethertype));
        let header = ethernet::Header { destination, source, vlan, ethertype };
        let mut buffer = vec![0; header.len()];
        prop_assert_eq!(header.write(&mut buffer), Ok(header.len()));
        buffer.extend(&payload);
        let view = Ethernet::parse(&buffer).unwrap();
        prop_assert_eq!(view.vlans().collect::<Vec<_>>(), vlan.into_iter().collect::<Vec<_>>());
        prop_assert_eq!((view.destination(), view.source(), view.ethertype()), (destination, source, ethertype));
        prop_assert_eq!(view.payload(), payload);
    }

    #[test]
    fn arp(sender in (mac(), any::<Ipv4Addr>()), target in (mac(), any::<Ipv4Addr>()), reply: bool) {
        let arp = Arp { operation: if reply { Operation::Reply } else { Operation::Request }, sender, target };
        let mut buffer = [0; rig_wire::arp::LEN];
        arp.write(&mut buffer).unwrap();
        prop_assert_eq!(Arp::parse(&buffer), Ok(arp));
    }

    #[test]
    fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, ttl: u8, tos: u8, payload in data(), padding in 0usize..50) {
        let header = ipv4::Header { source, destination, protocol, ttl, tos };
        let mut buffer = vec![0xaa; ipv4::HEADER];
        header.write(&mut buffer, payload.len()).unwrap();
        buffer.extend(&payload);
        buffer.resize(buffer.len() + padding, 0);
        let view = Ipv4::parse(&buffer).unwrap();
        prop_assert_eq!(view.verify(), Ok(()));
        prop_assert_eq!((view.source(), view.destination(), view.protocol(), view.ttl(), view.tos()), (source, destination, protocol, ttl, tos));
        prop_assert_eq!((view.payload(), view.options().len()), (payload.as_slice(), 0));
        prop_assert!(view.dont_fragment() && !view.is_fragment() && view.identification() == 0);
        prop_assert_eq!(view.pseudo().folded(), PartialChecksum::pseudo_v4(source, destination, protocol, payload.len()).folded());
    }

    #[test]
    fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, traffic_class: u8, payload in data(), padding in 0usize..50) {
        let header = ipv6::Header { source, destination, protocol: protocol::UDP, hop_limit, traffic_class };
        let mut buffer = vec![0xaa; ipv6::HEADER];
        header.write(&mut buffer, payload.len()).unwrap();
        buffer.extend(&payload);
        buffer.resize(buffer.len() + padding, 0);
        let view = Ipv6::parse(&buffer).unwrap();
        prop_assert_eq!((view.source(), view.destination(), view.protocol()), (source, destination, protocol::UDP));
        prop_assert_eq!((view.hop_limit(), view.traffic_class(), view.flow_label()), (hop_limit, traffic_class, 0));
        prop_assert_eq!(view.payload(), payload.as_slice());
        prop_assert_eq!(view.pseudo().folded(), PartialChecksum::pseudo_v6(source, destination, protocol::UDP, payload.len()).folded());
    }

    #[test]
    fn tcp(ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, options in options(), payload in data(), pseudo: u32) {
        let header = tcp::Header {
            source_port: ports.0, destination_port: ports.1, sequence: numbers.0, acknowledgment: numbers.1, flags, window, options,
        };
        let pseudo = PartialChecksum::ZERO.long(pseudo);
        let mut buffer = vec![0xaa; header.len()];
        buffer.extend(&payload);
        header.write(&mut buffer, payload.len(), pseudo).unwrap();
        let view = Tcp::parse(&buffer).unwrap();
        prop_assert_eq!(view.verify(pseudo), Ok(Checksum::Complete));
        prop_assert_eq!((view.source_port(), view.destination_port()), ports);
        prop_assert_eq!((view.sequence(), view.acknowledgment()), numbers);
        prop_assert_eq!((view.flags(), view.window(), view.options()), (flags, window, Ok(options)));
        prop_assert_eq!(view.payload(), payload);
    }

    #[test]
    fn udp(ports: (u16, u16), payload in data(), pseudo: u32) {
        let header = udp::Header { source_port: ports.0, destination_port: ports.1 };
        let pseudo = PartialChecksum::ZERO.long(pseudo);
        let mut buffer = vec![0xaa; udp::HEADER];
        buffer.extend(&payload);
        header.write(&mut buffer, payload.len(), pseudo).unwrap();
        let view = Udp::parse(&buffer).unwrap();
        prop_assert_eq!(view.verify(pseudo, false), Ok(Checksum::Complete));
        prop_assert_eq!((view.source_port(), view.destination_port()), ports);
        prop_assert_eq!(view.payload(), payload);
    }

    #[test]
    fn echoes(echo: (u16, u16), payload in data(), pseudo: u32) {
        let pseudo = PartialChecksum::ZERO.long(pseudo);
        let mut buffer = vec![0xaa; icmp::HEADER + payload.len()];
        icmp::write_echo(&mut buffer, icmp::kind::ECHO_REQUEST, echo, &payload).unwrap();
        let view = Icmp::parse(&buffer).unwrap();
        prop_assert_eq!((view.verify(), view.kind(), view.code(), view.echo()), (Ok(()), 8, 0, echo));
        prop_assert_eq!(view.payload(), payload.as_slice());
        icmpv6::write_echo(&mut buffer, icmpv6::kind::ECHO_REPLY, echo, &payload, pseudo).unwrap();
        let view = Icmpv6::parse(&buffer).unwrap();
        prop_assert_eq!((view.verify(pseudo), view.kind(), view.code(), view.echo()), (Ok(()), 129, 0, echo));
        prop_assert_eq!(view.payload(), payload.as_slice());
    }

    #[test]
    fn neighbors(target: Ipv6Addr, mac in prop::option::of(mac()), solicited: bool, solicitation: bool, pseudo: u32) {
        let message = match solicitation {
            true => Neighbor::Solicitation { target, source: mac },
            false => Neighbor::Advertisement { target, mac, solicited },
        };
        let pseudo = PartialChecksum::ZERO.long(pseudo);
        let mut buffer = vec![0xaa; message.len()];
        message.write(&mut buffer, pseudo).unwrap();
        let view = Icmpv6::parse(&buffer).unwrap();
        prop_assert_eq!(view.verify(pseudo), Ok(()));
        prop_assert_eq!(view.neighbor(255), Ok(Some(message)));
        prop_assert_eq!(view.neighbor(254), Err(Malformed::NdHopLimit));
    }

    #[test]
    fn vxlan(vni in 0u32..1 << 24, payload in data()) {
        let mut buffer = vec![0xaa; vxlan::HEADER];
        vxlan::write(&mut buffer, vni).unwrap();
        buffer.extend(&payload);
        let view = Vxlan::parse(&buffer).unwrap();
        prop_assert_eq!((view.vni(), view.payload()), (vni, payload.as_slice()));
    }

    #[test]
    fn a_single_wrong_bit_is_seen(v4: bool, payload in data(), bit in any::<prop::sample::Index>()) {
        let mut bytes = frame(v4.then_some(Ipv4Addr::LOCALHOST), &payload);
        let ip = ethernet::HEADER + ethernet::TAG;
        // IPv6 protects neither traffic class, flow label nor hop limit, and its lengths and version otherwise.
        let from = if v4 { ip } else { ip + ipv6::HEADER };
        let bit = from * 8 + bit.index((bytes.len() - from) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let ethernet = Ethernet::parse(&bytes).unwrap();
        let verified = match v4 {
            true => Ipv4::parse(ethernet.payload()).and_then(|ip| {
                ip.verify()?;
                Tcp::parse(ip.payload())?.verify(ip.pseudo())
            }),
            false => Ipv6::parse(ethernet.payload()).and_then(|ip| Tcp::parse(ip.payload())?.verify(ip.pseudo())),
        };
        // In the checksum itself it may make what an unfinished one is, and is never taken for a right one.
        prop_assert_ne!(verified, Ok(Checksum::Complete));
    }

    #[test]
    fn a_sum_of_the_pseudo_header_alone_is_unfinished(payload in data(), pseudo in 1u32.., wrong in 1u16..) {
        let pseudo = PartialChecksum::ZERO.long(pseudo);
        let header = udp::Header { source_port: 1, destination_port: 2 };
        let mut buffer = vec![0; udp::HEADER];
        buffer.extend(&payload);
        header.write(&mut buffer, payload.len(), pseudo).unwrap();
        let right = [buffer[6], buffer[7]];
        let field = pseudo.folded().to_be_bytes();
        prop_assume!(field != right && field != [0; 2]);
        buffer[6..8].copy_from_slice(&field);
        prop_assert_eq!(Udp::parse(&buffer).unwrap().verify(pseudo, true), Ok(Checksum::Unfinished));
        let garbage = pseudo.folded().wrapping_add(wrong).to_be_bytes();
        // Zero is another way to write 0xffff.
        prop_assume!(garbage != right && garbage != [0; 2] && !(garbage == [0xff; 2] && right == [0; 2]));
        buffer[6..8].copy_from_slice(&garbage);
        prop_assert_eq!(Udp::parse(&buffer).unwrap().verify(pseudo, true), Err(Malformed::UdpChecksum));
        buffer[6..8].fill(0);
        prop_assert_eq!(Udp::parse(&buffer).unwrap().verify(pseudo, true), Ok(Checksum::Absent));
        prop_assert_eq!(Udp::parse(&buffer).unwrap().verify(pseudo, false), Err(Malformed::UdpChecksum));
    }
}

#[test]
fn flows_are_read_from_frames() {
    for ip in [Some(Ipv4Addr::new(10, 0, 0, 1)), None] {
        let flow = FlowKey::of(&frame(ip, b"x")).unwrap().unwrap();
        assert_eq!((flow.source.port(), flow.destination.port(), flow.protocol), (1, 2, protocol::TCP));
        assert_eq!(flow.source.ip(), ip.map_or(IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from));
        assert_eq!(flow.reversed().source, flow.destination);
    }
    let mut fragment = frame(Some(Ipv4Addr::LOCALHOST), b"x");
    fragment[18 + 6] = 0x20;
    assert_eq!(FlowKey::of(&fragment), Err(Malformed::Fragment));
}

#[test]
fn options_of_ipv4_are_skipped() {
    let mut bytes = [0u8; 25];
    bytes[0] = 0x46;
    bytes[3] = 25;
    bytes[20..25].copy_from_slice(&[1, 1, 1, 0, 0x77]);
    let view = Ipv4::parse(&bytes).unwrap();
    assert_eq!((view.options(), view.payload()), (&[1, 1, 1, 0][..], &[0x77][..]));
}

/// An IPv6 packet whose payload is `rest`, the first header of it being `next`.
fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::HEADER];
    let ip = Ipv6Addr::LOCALHOST;
    let header = ipv6::Header { source: ip, destination: ip, protocol: next, hop_limit: 1, traffic_class: 0 };
    header.write(&mut bytes, rest.len()).unwrap();
    bytes.extend(rest);
    bytes
}

#[test]
fn extension_headers_are_walked() {
    // Hop-by-hop, routing of 16 bytes, an atomic fragment, authentication, destination options, then UDP.
    let mut rest = vec![43, 0, 1, 4, 0, 0, 0, 0];
    rest.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend([51, 0, 0, 0, 0, 0, 0, 9]);
    rest.extend([60, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    rest.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    rest.extend(b"payload");
    let bytes = v6(0, &rest);
    let view = Ipv6::parse(&bytes).unwrap();
    assert_eq!((view.protocol(), view.is_fragment(), view.payload()), (17, false, &b"payload"[..]));
    assert_eq!(Ipv6::parse(&v6(0, &rest[..rest.len() - 8])).unwrap_err(), Malformed::Ipv6Extension);

    let fragment = v6(44, &[6, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3]);
    assert!(Ipv6::parse(&fragment).unwrap().is_fragment());
    assert!(Ipv6::parse(&v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(9))).is_err());
    assert_eq!(Ipv6::parse(&v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(20))).unwrap_err(), Malformed::Ipv6ExtensionDepth);
}

#[test]
fn each_reason_has_bytes_that_give_it() {
    let v4 = |first: u8, total: u16| {
        let mut bytes = [0; 24];
        bytes[0] = first;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        Ipv4::parse(&bytes).map(drop)
    };
    let tcp = |offset: u8, options: &[u8]| {
        let mut bytes = [0; 24];
        bytes[12] = offset << 4;
        bytes[20..20 + options.len()].copy_from_slice(options);
        Tcp::parse(&bytes)?.options().map(drop)
    };
    let nd = |option: &[u8]| {
        let mut bytes = vec![0; 24];
        bytes[0] = icmpv6::kind::NEIGHBOR_SOLICITATION;
        bytes.extend(option);
        Icmpv6::parse(&bytes)?.neighbor(255).map(drop)
    };
    let tags = |count: usize, cut: usize| {
        let mut bytes = vec![0; 12];
        bytes.extend([0x81, 0, 0, 1].repeat(count));
        bytes.extend([8, 0]);
        bytes.truncate(bytes.len() - cut);
        Ethernet::parse(&bytes).map(drop)
    };
    let mut no_nd = [0; 20];
    no_nd[0] = icmpv6::kind::NEIGHBOR_ADVERTISEMENT;
    let short_udp = [0, 0, 0, 0, 0, 7, 0, 0];
    let wrong_udp = [0, 0, 0, 0, 0, 8, 0, 1];
    let got = [
        Ethernet::parse(&[0; 13]).map(drop),
        tags(1, 1),
        tags(3, 0),
        Arp::parse(&[0; 27]).map(drop),
        Arp::parse(&[0; 28]).map(drop),
        Ipv4::parse(&[0x45; 19]).map(drop),
        v4(0x55, 24),
        v4(0x44, 24),
        v4(0x45, 25),
        Ipv4::parse(&[0x45, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).and_then(|ip| ip.verify()),
        Ipv6::parse(&[0x60; 39]).map(drop),
        Ipv6::parse(&[0x40; 40]).map(drop),
        Ipv6::parse(&[0x60; 40]).map(drop),
        Ipv6::parse(&v6(0, &[6])).map(drop),
        Ipv6::parse(&v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(9))).map(drop),
        Tcp::parse(&[0; 19]).map(drop),
        tcp(7, &[]),
        tcp(6, &[2, 3]),
        Tcp::parse(&[0x50; 20]).and_then(|tcp| tcp.verify(PartialChecksum::ZERO).map(drop)),
        Udp::parse(&[0; 7]).map(drop),
        Udp::parse(&short_udp).map(drop),
        Udp::parse(&wrong_udp).and_then(|udp| udp.verify(PartialChecksum::ZERO, true).map(drop)),
        Icmp::parse(&[0; 7]).map(drop),
        Icmp::parse(&[0; 8]).and_then(|icmp| icmp.verify()),
        Icmpv6::parse(&no_nd).and_then(|icmp| icmp.neighbor(255).map(drop)),
        nd(&[1, 0]),
        Icmpv6::parse(&no_nd).and_then(|icmp| icmp.neighbor(1).map(drop)),
        Vxlan::parse(&[8; 7]).map(drop),
        Vxlan::parse(&[0; 8]).map(drop),
    ];
    for (got, reason) in got.into_iter().zip(Malformed::ALL) {
        assert_eq!(got, Err(*reason), "{reason}");
    }
}

#[test]
fn a_short_buffer_is_said_not_written() {
    let mut buffer = [0; 20];
    let header = ipv6::Header {
        source: Ipv6Addr::LOCALHOST,
        destination: Ipv6Addr::LOCALHOST,
        protocol: 6,
        hop_limit: 1,
        traffic_class: 0,
    };
    assert_eq!(header.write(&mut buffer, 0), Err(BufferTooShort { needed: 40, available: 20 }));
    assert_eq!(buffer, [0; 20]);
}

#[test]
fn solicitations_go_to_the_group_of_the_target() {
    // The example of RFC 4291, 2.7.1.
    let (group, mac) = icmpv6::solicited_node("4037::01:800:200E:8C6C".parse().unwrap());
    assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    assert_eq!(mac.to_string(), "33:33:ff:0e:8c:6c");
}
