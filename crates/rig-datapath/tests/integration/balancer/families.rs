//! Services of IPv6 with backends of IPv4: each header as RFC 7915 has it, and every checksum made anew.

use rig_datapath::balancer::{ClientAddress, Drop, Pass, Service};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::{Ethernet, ethertype};
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol::{ICMP, ICMPV6};
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{
    Frame, L4, ethernet, fragments, icmp_error, ip, may_be_fragmented, see, see_packet, tcp, udp, with_class,
};
use super::lab::{Lab, MTU};
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, service, small, udp_service};

const CLIENT: &str = "[fd00::50]:5000";
const SERVICE: &str = "[fd00::200]:80";
const DATAGRAMS: &str = "[fd00::200]:53";
const BACKEND: &str = "10.0.0.10:8080";

fn lab() -> Option<Lab> {
    let local = || full_nat(&["10.0.0.100"]);
    let of_udp = udp_service(DATAGRAMS, local(), &[backend(BACKEND, 1)]);
    Lab::new(small(), &config(&[service(SERVICE, local(), &[backend(BACKEND, 1)]), of_udp]))
}

/// The packet in a frame, which says of which family it is.
#[track_caller]
fn packet(frame: &[u8]) -> &[u8] {
    let link = Ethernet::parse(frame).unwrap();
    let kind = if link.payload()[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
    assert_eq!(link.ethertype(), kind);
    link.payload()
}

#[test]
fn headers_both_ways_are_those_of_rfc_7915() {
    for of_udp in [false, true] {
        let Some(lab) = lab() else { return };
        let (to, l4) = if of_udp { (DATAGRAMS, L4::Udp) } else { (SERVICE, L4::Tcp(SYN)) };
        let request = Frame::new(l4, CLIENT.parse().unwrap(), to.parse().unwrap()).payload(b"question").ttl(33);
        for vlan in [None, Some(7)] {
            let sent = lab.sent(&Frame { vlan, ..request.clone() }.bytes());
            // All checksums are made anew for that.
            let seen = see(&sent);
            assert_eq!((seen.destination.to_string(), seen.payload), (BACKEND.into(), b"question".to_vec()));
            assert_eq!((seen.source.ip().to_string(), seen.ttl), ("10.0.0.100".into(), 32));
            let header = &packet(&sent)[..20];
            // No options; less than 1260 bytes may be fragmented, and so have an identification: the checksum.
            let place = if of_udp { 26 } else { 36 };
            assert_eq!((header[0], header[1]), (0x45, 0));
            assert_eq!((&header[4..6], &header[6..8]), (&packet(&sent)[place..place + 2], &[0, 0][..]));
        }
        let sent = lab.sent(&with_class(&request.bytes(), 0xb9));
        assert_eq!(packet(&sent)[1], 0xb9);
        let there = see(&sent);

        let l4 = if of_udp { L4::Udp } else { L4::Tcp(SYN | ACK) };
        let answer = Frame::new(l4, there.destination, there.source).payload(b"answer!").ttl(44);
        for frame in [answer.bytes(), may_be_fragmented(&answer.bytes()), answer.clone().vlan(9).bytes()] {
            let back = lab.sent(&frame);
            let seen = see(&back);
            let ends = (seen.source.to_string(), seen.destination.to_string());
            assert_eq!(ends, (to.to_owned(), CLIENT.to_owned()));
            assert_eq!((seen.ttl, seen.payload), (43, b"answer!".to_vec()));
            // No class, no flow label, no extension.
            assert_eq!(packet(&back)[..4], [0x60, 0, 0, 0]);
            assert_eq!(packet(&back)[6], if of_udp { 17 } else { 6 });
        }
        assert_eq!(packet(&lab.sent(&with_class(&answer.bytes(), 0x2e)))[..4], [0x62, 0xe0, 0, 0]);
        assert_eq!(lab.connections().len(), 1);
    }
}

#[test]
fn large_packets_are_not_fragmented_on_their_way() {
    let Some(lab) = lab() else { return };
    for (length, whole) in [(1260, false), (1261, true), (MTU as usize - 20, true)] {
        let request = udp(CLIENT, DATAGRAMS).payload(&vec![3; length - 28]);
        let sent = lab.sent(&request.bytes());
        see(&sent);
        let header = &packet(&sent)[..20];
        assert_eq!(header[2..4], (length as u16).to_be_bytes());
        let (id, flags) = (&header[4..6], &header[6..8]);
        assert_eq!((flags[0], id == [0, 0]), if whole { (0x40, true) } else { (0, false) });
    }
}

#[test]
fn a_checksum_that_a_sender_left_is_made() {
    let Some(lab) = lab() else { return };
    let sent = see(&lab.sent(&udp(CLIENT, DATAGRAMS).payload(b"to its device").partial()));
    assert_eq!(sent.payload, b"to its device");
    let answer = Frame::new(L4::Udp, sent.destination, sent.source).payload(b"from there");
    assert_eq!(see(&lab.sent(&answer.partial())).payload, b"from there");
    let sent = see(&lab.sent(&tcp(SYN, CLIENT, SERVICE).payload(b"segment").partial()));
    let answer = Frame::new(L4::Tcp(SYN | ACK), sent.destination, sent.source).payload(b"another");
    assert_eq!(see(&lab.sent(&answer.partial())).payload, b"another");
}

/// RFC 7915, 4.5: IPv6 has none without. With IPv4 it is the identification, too, which has to differ.
#[test]
fn a_datagram_without_a_checksum_gets_one() {
    let Some(lab) = lab() else { return };
    for length in [0, 1, 700, 1400] {
        let mut bytes = udp(CLIENT, DATAGRAMS).payload(&vec![7; length]).bytes();
        bytes[60..62].fill(0);
        let sent = lab.sent(&bytes);
        assert_eq!(see(&sent).payload, vec![7; length]);
        let header = &packet(&sent)[..28];
        assert_ne!(header[26..28], [0, 0]);
        assert_eq!(header[4..6], if length < 1233 { [header[26], header[27]] } else { [0, 0] });
        bytes[58..60].copy_from_slice(&9_u16.to_be_bytes());
        if length > 1 {
            assert_eq!(lab.dropped(&bytes), Drop::NoEqual);
        }
    }
    let there = see(&lab.sent(&udp(CLIENT, DATAGRAMS).bytes()));
    for length in [0, 1, 700, 1400] {
        let answer = Frame::new(L4::Udp, there.destination, there.source).payload(&vec![9; length]);
        let mut bytes = answer.bytes();
        bytes[40..42].fill(0);
        assert_eq!(see(&lab.sent(&bytes)).payload, vec![9; length]);
        // It cannot be known of which bytes it would be.
        bytes[38..40].copy_from_slice(&9_u16.to_be_bytes());
        if length > 1 {
            assert_eq!(lab.dropped(&bytes), Drop::NoEqual);
        }
    }
}

#[test]
fn fragments_are_dropped() {
    let Some(lab) = lab() else { return };
    let question = udp(CLIENT, DATAGRAMS).payload(&[1; 64]).bytes();
    for part in fragments(&question, &[32], 76) {
        assert_eq!(lab.dropped(&part), Drop::Fragment);
    }
    // They begin nothing, and take nothing.
    let services = lab.balancer.services().unwrap();
    let of_udp = services.iter().find(|service| service.address.to_string() == DATAGRAMS).unwrap();
    assert_eq!((lab.connections(), of_udp.backends[0].inactive, of_udp.traffic.connections), (vec![], 0, 0));
    let there = see(&lab.sent(&udp(CLIENT, DATAGRAMS).bytes()));
    let answer = Frame::new(L4::Udp, there.destination, there.source).payload(&[1; 64]).bytes();
    for part in [question, answer].iter().flat_map(|frame| fragments(frame, &[32], 77)) {
        assert_eq!(lab.dropped(&part), Drop::Fragment);
    }
}

/// RFC 4291, 2.5.5.2: such addresses are of no packet, which Linux has it, too. The tables have those of IPv4 so.
#[test]
fn packets_of_ipv4_mapped_addresses_are_nobodys() {
    let plain = service("10.0.0.200:80", full_nat(&["10.0.0.101"]), &[backend("10.0.0.11:8080", 1)]);
    let mixed = udp_service(DATAGRAMS, full_nat(&["10.0.0.100"]), &[backend(BACKEND, 1)]);
    let Some(lab) = Lab::new(small(), &config(&[plain, mixed])) else { return };
    let mapped = |address: &str| format!("[::ffff:{address}]");
    for (from, to) in [(mapped("10.0.0.50"), "[fd00::200]".into()), ("[fd00::50]".into(), mapped("10.0.0.200"))] {
        for frame in
            [tcp(SYN, &format!("{from}:5000"), &format!("{to}:80")), udp(&format!("{from}:5000"), &format!("{to}:53"))]
        {
            lab.passes(&frame.bytes(), Pass::Malformed);
            lab.passes(&fragments(&frame.clone().payload(&[1; 64]).bytes(), &[32], 5)[0], Pass::Malformed);
        }
    }
    assert_eq!(lab.connections(), [""; 0]);
    // Nor is an error about such a one the error of IPv4's connection.
    let there = see(&lab.sent(&udp(CLIENT, DATAGRAMS).bytes()));
    let (local, backend) = (mapped("10.0.0.100"), mapped("10.0.0.10"));
    let about = udp(&format!("{local}:{}", there.source.port()), &format!("{backend}:8080")).packet();
    let error = icmp_error("fd00::99", "fd00::200", 1, 4, 0, &about, about.len());
    lab.passes(&error, Pass::IcmpUnknown);
    assert_eq!(lab.connections().len(), 1);
}

#[test]
fn each_backend_is_reached_from_an_address_of_its_family() {
    let both = full_nat(&["10.0.0.100", "fd00::100", "10.0.0.101"]);
    let backends = [BACKEND, "[fd00::10]:8080"].map(|at| backend(at, 1));
    let Some(mut lab) = Lab::new(small(), &config(&[service(SERVICE, both.clone(), &backends)])) else { return };
    for port in 0..200 {
        let seen = see(&lab.sent(&tcp(SYN, &format!("[fd00::50]:{}", 5000 + port % 60), SERVICE).bytes()));
        let own = seen.destination.to_string() != BACKEND;
        assert_eq!(seen.source.is_ipv6(), own, "{seen:?}");
    }
    let of = |v4: bool| {
        let lines = lab.connections();
        lines.iter().filter(|line| line.contains(" > 10.0.0.10") == v4).count()
    };
    assert_eq!((of(true), of(false)), (30, 30));
    // They go on where the service has other ones.
    let known = lab.connections();
    let fewer = config(&[service(SERVICE, full_nat(&["10.0.0.101"]), &backends[..1])]);
    lab.balancer.apply(&fewer).unwrap();
    for port in 0..60 {
        lab.sent(&tcp(ACK, &format!("[fd00::50]:{}", 5000 + port), SERVICE).bytes());
    }
    let ends = |lines: Vec<String>| {
        let ends = lines.into_iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
        ends.collect::<Vec<_>>()
    };
    assert_eq!(ends(lab.connections()), ends(known));
    let new = see(&lab.sent(&tcp(SYN, "[fd00::50]:6000", SERVICE).bytes()));
    assert_eq!((new.source.ip().to_string(), new.destination.to_string()), ("10.0.0.101".into(), BACKEND.into()));
}

#[test]
fn senders_of_what_does_not_fit_are_told_of_their_own_packets() {
    let Some(lab) = lab() else { return };
    let there = see(&lab.sent(&udp(CLIENT, DATAGRAMS).bytes()));
    // 20 bytes less with IPv4.
    let question = |length: usize| udp(CLIENT, DATAGRAMS).payload(&vec![1; length - 48]).bytes();
    see(&lab.sent(&question(MTU as usize + 20)));
    let told = lab.sent(&question(MTU as usize + 21));
    let message = Ipv6::parse(packet(&told)).unwrap();
    assert_eq!(
        (message.source().to_string(), message.destination().to_string()),
        ("fd00::200".into(), "fd00::50".into())
    );
    assert_eq!(message.payload()[4..8], (MTU + 20).to_be_bytes());
    let answer =
        |length: usize| Frame::new(L4::Udp, there.destination, there.source).payload(&vec![1; length - 28]).bytes();
    see(&lab.sent(&answer(MTU as usize - 20)));
    let told = lab.sent(&answer(MTU as usize - 19));
    let message = Ipv4::parse(packet(&told)).unwrap();
    assert_eq!(
        (message.source().to_string(), message.destination().to_string()),
        ("10.0.0.100".into(), "10.0.0.10".into())
    );
    assert_eq!(Icmp::parse(message.payload()).unwrap().echo().1, MTU as u16 - 20);
    assert_eq!(lab.dropped(&may_be_fragmented(&answer(MTU as usize - 19))), Drop::TooBig);
}

/// What comes of an error about a packet to the backend, which the client is told: type, code and rest; `None` where it is dropped.
fn outward(lab: &Lab, about: &Frame, (kind, code, rest): (u8, u8, u32), quoted: usize) -> Option<(u8, u8, u32)> {
    let error = icmp_error("10.0.0.9", "10.0.0.100", kind, code, rest, &about.packet(), quoted);
    let outcome = lab.send(&error);
    if outcome.verdict == rig_datapath::test_run::Verdict::Drop {
        assert_eq!(outcome.frame, error);
        return None;
    }
    let ip = Ipv6::parse(packet(&outcome.frame)).unwrap();
    assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("fd00::200".into(), "fd00::50".into()));
    assert_eq!((ip.protocol(), ip.hop_limit()), (ICMPV6, 63));
    let icmp = Icmpv6::parse(ip.payload()).unwrap();
    icmp.verify(ip.pseudo()).unwrap();
    let quote = Ipv6::parse(icmp.payload());
    if quoted >= about.packet().len() {
        let quote = see_packet(icmp.payload());
        assert_eq!(quote.source.to_string(), CLIENT);
        assert_eq!((quote.destination.ip().to_string(), quote.payload), ("fd00::200".into(), about.payload.clone()));
    } else {
        assert!(quote.is_err() && icmp.payload().len() == quoted + 20);
        assert_eq!(icmp.payload()[..4], [0x60, 0, 0, 0]);
    }
    let rest = u32::from_be_bytes(ip.payload()[4..8].try_into().unwrap());
    Some((icmp.kind(), icmp.code(), rest))
}

#[test]
fn errors_about_packets_to_backends_are_errors_of_ipv6() {
    for of_udp in [false, true] {
        let Some(lab) = lab() else { return };
        let (to, l4) = if of_udp { (DATAGRAMS, L4::Udp) } else { (SERVICE, L4::Tcp(SYN)) };
        let request = Frame::new(l4, CLIENT.parse().unwrap(), to.parse().unwrap()).payload(b"up");
        let there = see(&lab.sent(&request.bytes()));
        let about = Frame::new(l4, there.source, there.destination).payload(b"up");
        let all = about.packet().len();
        // RFC 7915, 4.2.
        let kinds = [
            ((3, 0, 0), Some((1, 0, 0))),
            ((3, 1, 0), Some((1, 0, 0))),
            ((3, 2, 0), Some((4, 1, 6))),
            ((3, 3, 0), Some((1, 4, 0))),
            ((3, 4, 1400), Some((2, 0, 1420))),
            ((3, 4, 1000), Some((2, 0, 1280))),
            ((3, 4, 0), Some((2, 0, 1280))),
            ((3, 5, 0), Some((1, 0, 0))),
            ((3, 9, 0), Some((1, 1, 0))),
            ((3, 10, 0), Some((1, 1, 0))),
            ((3, 12, 0), Some((1, 0, 0))),
            ((3, 13, 0), Some((1, 1, 0))),
            ((3, 14, 0), None),
            ((3, 15, 0), Some((1, 1, 0))),
            ((3, 16, 0), None),
            ((11, 0, 77), Some((3, 0, 0))),
            ((11, 1, 0), Some((3, 1, 0))),
            ((12, 0, 1 << 24), Some((4, 0, 1))),
            ((12, 0, 8 << 24), Some((4, 0, 7))),
            ((12, 2, 16 << 24), Some((4, 0, 24))),
            ((12, 0, 4 << 24), None),
            ((12, 1, 0), None),
        ];
        for (said, told) in kinds {
            for quoted in [28, all] {
                assert_eq!(outward(&lab, &about, said, quoted), told, "{said:?}");
            }
        }
    }
}

/// RFC 4443, 2.4 (c).
#[test]
fn an_error_that_quotes_too_much_is_cut() {
    let Some(lab) = lab() else { return };
    for length in [1170, 1171, 1172, 1400, 1401] {
        let there = see(&lab.sent(&udp(CLIENT, DATAGRAMS).payload(&vec![5; length]).bytes()));
        let about = Frame::new(L4::Udp, there.source, there.destination).payload(&vec![5; length]).packet();
        let out = lab.sent(&icmp_error("10.0.0.9", "10.0.0.100", 3, 3, 0, &about, about.len()));
        let ip = Ipv6::parse(packet(&out)).unwrap();
        Icmpv6::parse(ip.payload()).unwrap().verify(ip.pseudo()).unwrap();
        assert_eq!(packet(&out).len(), (40 + 8 + 40 + 8 + length).min(1280));
    }
}

#[test]
fn errors_about_answers_are_errors_of_ipv4() {
    for of_udp in [false, true] {
        let Some(lab) = lab() else { return };
        let (to, l4) = if of_udp { (DATAGRAMS, L4::Udp) } else { (SERVICE, L4::Tcp(SYN)) };
        let request = Frame::new(l4, CLIENT.parse().unwrap(), to.parse().unwrap());
        let there = see(&lab.sent(&request.bytes()));
        let l4 = if of_udp { L4::Udp } else { L4::Tcp(ACK) };
        let about = Frame::new(l4, to.parse().unwrap(), CLIENT.parse().unwrap()).payload(b"down");
        let all = about.packet().len();
        // RFC 7915, 5.2.
        let kinds = [
            ((1, 0, 0), Some((3, 1, 0))),
            ((1, 1, 0), Some((3, 10, 0))),
            ((1, 2, 0), Some((3, 1, 0))),
            ((1, 3, 0), Some((3, 1, 0))),
            ((1, 4, 0), Some((3, 3, 0))),
            ((1, 5, 0), None),
            ((2, 0, 1400), Some((3, 4, 1380))),
            ((2, 0, 600), Some((3, 4, 1260))),
            ((3, 0, 0), Some((11, 0, 0))),
            ((3, 1, 0), Some((11, 1, 0))),
            ((4, 0, 7), Some((12, 0, 8 << 24))),
            ((4, 0, 24), Some((12, 0, 16 << 24))),
            ((4, 0, 40), None),
            ((4, 1, 6), Some((3, 2, 0))),
            ((4, 2, 0), None),
        ];
        for ((kind, code, rest), told) in kinds {
            for quoted in [48, all] {
                let error = icmp_error("fd00::99", "fd00::200", kind, code, rest, &about.packet(), quoted);
                let Some(told) = told else {
                    assert_eq!(lab.dropped(&error), Drop::NoEqual);
                    continue;
                };
                let out = lab.sent(&error);
                let ip = Ipv4::parse(packet(&out)).unwrap();
                ip.verify().unwrap();
                let ends = (ip.source().to_string(), ip.destination().to_string());
                assert_eq!(ends, ("10.0.0.100".into(), "10.0.0.10".into()));
                assert_eq!((ip.protocol(), ip.ttl()), (ICMP, 63));
                let icmp = Icmp::parse(ip.payload()).unwrap();
                icmp.verify().unwrap();
                let rest = u32::from_be_bytes(ip.payload()[4..8].try_into().unwrap());
                assert_eq!((icmp.kind(), icmp.code(), rest), told);
                let quote = icmp.payload();
                assert!(PartialChecksum::ZERO.bytes(&quote[..20]).verifies());
                if quoted == all {
                    let quote = see_packet(quote);
                    assert_eq!((quote.source, quote.destination), (there.destination, there.source));
                    assert_eq!(quote.payload, b"down");
                }
            }
        }
        // A fragment that the balancer has not sent.
        let part = fragments(&about.bytes(), &[8], 1)[0][14..].to_vec();
        let error = icmp_error("fd00::99", "fd00::200", 1, 0, 0, &part, part.len());
        if of_udp {
            assert_eq!(lab.dropped(&error), Drop::NoEqual);
        }
    }
}

#[test]
fn packets_with_options_are_dropped() {
    let Some(lab) = lab() else { return };
    // Hop-by-hop options.
    let segment = &tcp(SYN, CLIENT, SERVICE).packet()[40..];
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], segment].concat();
    let (from, to) = ("fd00::50".parse().unwrap(), "fd00::200".parse().unwrap());
    assert_eq!(lab.dropped(&ethernet(&ip(from, to, 0, 64, &options), None)), Drop::IpOptions);
    assert_eq!(lab.connections(), [""; 0]);
}

/// The backend is told of the client's own address, which is of IPv6.
#[test]
fn backends_are_told_of_clients_of_ipv6() {
    let toa = [&[254, 20, 0x13, 0x88, 0xfd][..], &[0; 14], &[0x50]].concat();
    let prefix = [
        &b"\r\n\r\n\0\r\nQUIT\n"[..],
        &[0x21, 0x21, 0, 36, 0xfd],
        &[0; 14],
        &[0x50, 0xfd],
        &[0; 13],
        &[2, 0, 0x13, 0x88, 0, 80],
    ]
    .concat();
    for client_address in [ClientAddress::Toa, ClientAddress::ProxyV2] {
        let is_toa = client_address == ClientAddress::Toa;
        let plan = Service { client_address, ..service(SERVICE, full_nat(&["10.0.0.100"]), &[backend(BACKEND, 1)]) };
        let Some(lab) = Lab::new(small(), &config(&[plan])) else { return };
        let syn = Segment { sequence: 7000, options: vec![2, 4, 5, 0xa0], ..segment(CLIENT, SERVICE, SYN) };
        let seen = Segment::of(&lab.sent(&syn.bytes()));
        let options = if is_toa { [&toa[..], &syn.options].concat() } else { syn.options.clone() };
        assert_eq!((seen.destination.to_string(), &seen.options), (BACKEND.into(), &options));
        // The client is told that so much less fits into a segment; that IPv4's header is shorter makes no difference to that.
        let answer = Segment {
            acknowledged: 7001,
            options: vec![2, 4, 5, 0xb4],
            ..segment(BACKEND, &seen.source.to_string(), SYN | ACK)
        };
        let told = Segment::of(&lab.sent(&answer.bytes()));
        let mss = 1460_u16 - if is_toa { 20 } else { 52 };
        assert_eq!(told.options, [&[2, 4][..], &mss.to_be_bytes()].concat());
        let data = Segment { sequence: 7001, payload: b"GET".to_vec(), ..segment(CLIENT, SERVICE, ACK) };
        let seen = Segment::of(&lab.sent(&data.bytes()));
        let expected = if is_toa { b"GET".to_vec() } else { [&prefix[..], b"GET"].concat() };
        assert_eq!(seen.payload, expected);
        assert_eq!(seen.options, if is_toa { toa.clone() } else { Vec::new() });
        // What has grown beyond 1260 bytes by it may be fragmented no more (RFC 7915, 5.1).
        let by = if is_toa { 20 } else { 52 };
        for length in [1260, 1261] {
            let data = Segment { payload: vec![7; length - 40 - by], ..data.clone() };
            let sent = lab.sent(&data.bytes());
            Segment::of(&sent);
            let header = &packet(&sent)[..20];
            assert_eq!(header[2..4], (length as u16).to_be_bytes());
            let (may_be, id) = (header[6..8] == [0, 0], header[4..6] != [0, 0]);
            assert_eq!(
                (may_be, id, header[6..8] == [0x40, 0]),
                if length > 1260 { (false, false, true) } else { (true, true, false) }
            );
        }
        // Of a router's MTU the option or header takes its part, too.
        let there = seen.source.to_string();
        let about = Segment { sequence: 7001, payload: b"GET".to_vec(), ..segment(&there, BACKEND, ACK) };
        let error = icmp_error("10.0.0.9", "10.0.0.100", 3, 4, 1400, &about.bytes()[14..], 28);
        let told = lab.sent(&error);
        let rest = u32::from_be_bytes(packet(&told)[44..48].try_into().unwrap());
        assert_eq!(rest, 1420 - if is_toa { 20 } else { 52 });
    }
}
