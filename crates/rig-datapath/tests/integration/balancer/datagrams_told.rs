//! How backends of UDP are told of clients' addresses, on packets: every byte out.

use std::net::IpAddr;

use rig_datapath::balancer::{Adopted, ClientAddress, Drop, Service};
use rig_wire::ethernet::Ethernet;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol::UDP;

use super::frames::{Frame, ParsedFrame, fragments, icmp_error, ip, may_be_fragmented, see, see_packet, udp};
use super::lab::{Lab, MTU};
use super::{backend, config, full_nat, small, udp_service};

/// Client, service, backend, local address; the header between those of IP and UDP: version, next protocol, length; kind, length, port 5000,
/// address.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static [u8]);
const V4: Case = (
    "10.0.0.50:5000",
    "10.0.0.200:53",
    "10.0.0.10:8053",
    "10.0.0.100",
    &[0x10, 17, 0, 12, 31, 8, 0x13, 0x88, 10, 0, 0, 50],
);
const OF_V6: [u8; 24] = [0x20, 17, 0, 24, 31, 20, 0x13, 0x88, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50];
const V6: Case = ("[fd00::50]:5000", "[fd00::200]:53", "[fd00::10]:8053", "fd00::100", &OF_V6);
const MIXED: Case = ("[fd00::50]:5000", "[fd00::201]:53", "10.0.0.11:8053", "10.0.0.101", &OF_V6);

fn services(client_address: ClientAddress) -> Vec<Service> {
    let of = |(_, service, to, local, _): Case| Service {
        client_address,
        ..udp_service(service, full_nat(&[local]), &[backend(to, 1)])
    };
    [V4, V6, MIXED].map(of).to_vec()
}

fn lab() -> Option<Lab> {
    Lab::new(small(), &config(&services(ClientAddress::Uoa)))
}

/// What is between the headers of IP and UDP, and the datagram without it; every checksum and length is right.
#[track_caller]
fn taken_off(frame: &[u8]) -> (Vec<u8>, ParsedFrame) {
    let packet = Ethernet::parse(frame).unwrap().payload();
    let (source, destination, ttl, protocol, inside): (IpAddr, IpAddr, _, _, _) = if packet[0] >> 4 == 4 {
        let ip = Ipv4::parse(packet).unwrap();
        ip.verify().unwrap();
        (ip.source().into(), ip.destination().into(), ip.ttl(), ip.protocol(), ip.payload())
    } else {
        let ip = Ipv6::parse(packet).unwrap();
        (ip.source().into(), ip.destination().into(), ip.hop_limit(), ip.protocol(), ip.payload())
    };
    assert_eq!(protocol, 248);
    let (header, datagram) = inside.split_at(inside[3].into());
    (header.to_vec(), see_packet(&self::ip(source, destination, UDP, ttl, datagram)))
}

fn question((client, service, ..): Case, length: usize) -> Frame {
    let payload: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
    udp(client, service).payload(&payload)
}

/// Forwarded with the header; its local address and port.
#[track_caller]
fn is_told(lab: &Lab, case @ (_, _, to, local, header): Case, said: &Frame) -> String {
    let (seen, datagram) = taken_off(&lab.sent(&said.bytes()));
    assert_eq!(seen, header);
    assert_eq!((datagram.destination.to_string(), datagram.ttl), (to.to_string(), 63));
    assert_eq!((datagram.source.ip().to_string(), &datagram.payload), (local.to_string(), &said.payload), "{case:?}");
    datagram.source.to_string()
}

#[track_caller]
fn is_plain(lab: &Lab, (_, _, to, ..): Case, said: &Frame) {
    let seen = see(&lab.sent(&said.bytes()));
    assert_eq!((seen.destination.to_string(), &seen.payload), (to.to_string(), &said.payload));
}

#[test]
fn all_datagrams_have_it_until_the_backend_has_answered() {
    for case @ (client, _, to, ..) in [V4, V6, MIXED] {
        let Some(lab) = lab() else { return };
        let local = is_told(&lab, case, &question(case, 30));
        // Also one without a payload, and one of odd length; a stream to whom nobody answers for as long as it goes on.
        for length in [0, 1, 2, 33, 800].into_iter().cycle().take(20) {
            assert_eq!(is_told(&lab, case, &question(case, length)), local);
        }
        // That nobody listens is no answer.
        let about = udp(&local, to).payload(b"question").packet();
        let (from, to_local) = (to.rsplit_once(':').unwrap().0, local.rsplit_once(':').unwrap().0);
        let bare = |text: &str| text.trim_matches(['[', ']']).to_owned();
        let (kind, code) = if to.starts_with('[') { (1, 4) } else { (3, 3) };
        lab.sent(&icmp_error(&bare(from), &bare(to_local), kind, code, 0, &about, about.len()));
        is_told(&lab, case, &question(case, 30));
        let answer = see(&lab.sent(&udp(to, &local).payload(b"answer").bytes()));
        assert_eq!((answer.destination.to_string(), &answer.payload[..]), (client.to_string(), &b"answer"[..]));
        for length in [30, 31] {
            is_plain(&lab, case, &question(case, length));
        }
        assert_eq!(lab.drops(), []);
    }
}

/// A sender of UDP need not know how to send less.
#[test]
fn what_has_no_room_goes_without_and_is_counted() {
    for case @ (.., header) in [V4, V6, MIXED] {
        let Some(lab) = lab() else { return };
        // With the header of IP that it leaves with.
        let outer = if case == V6 { 40 } else { 20 } + 8;
        let fits = MTU as usize - outer - header.len();
        let most = MTU as usize - if case == V4 { 28 } else { 48 };
        is_told(&lab, case, &question(case, fits.min(most)));
        assert_eq!(lab.drops(), []);
        if fits < most {
            for (nth, length) in [fits + 1, most].into_iter().enumerate() {
                is_plain(&lab, case, &question(case, length));
                assert_eq!(lab.drops(), [(Drop::NotTold, nth as u64 + 1)]);
            }
        }
        let refused = &lab.balancer.services().unwrap();
        let counted: u64 = refused
            .iter()
            .flat_map(|service| &service.refused)
            .filter(|(of, _)| *of == Drop::NotTold)
            .map(|of| of.1)
            .sum();
        assert_eq!(counted, if fits < most { 2 } else { 0 });
        is_told(&lab, case, &question(case, 5));
    }
}

/// The header would be in the first part alone, which is cut at a multiple of 8.
#[test]
fn datagrams_in_fragments_go_without_and_are_counted() {
    for case in [V4, V6] {
        let Some(lab) = lab() else { return };
        let said = question(case, 1200);
        let parts = fragments(&said.bytes(), &[504], 7);
        let out: Vec<_> =
            parts.iter().map(|part| Ethernet::parse(&lab.sent(part)).unwrap().payload().to_vec()).collect();
        assert_eq!(see_packet(&super::frames::whole(&out)).payload, said.payload);
        assert_eq!(lab.drops(), [(Drop::NotTold, 1)]);
        let local = is_told(&lab, case, &question(case, 5));
        // An answer in fragments is one.
        let answer = Frame { payload: vec![7; 1200], ..udp(case.2, &local) };
        for part in fragments(&answer.bytes(), &[504], 8) {
            lab.sent(&part);
        }
        is_plain(&lab, case, &question(case, 5));
    }
}

/// What comes from IPv6 has an identification where routers may fragment it, which they may up to 1260 bytes (RFC 7915, 5.1).
#[test]
fn what_grows_beyond_1260_bytes_is_not_fragmented() {
    let Some(lab) = lab() else { return };
    for length in [1260, 1261] {
        let said = question(MIXED, length - 20 - 8 - 24);
        let sent = lab.sent(&said.bytes());
        taken_off(&sent);
        let header = &sent[14..34];
        assert_eq!(header[2..4], (length as u16).to_be_bytes());
        assert_eq!((header[6..8] == [0, 0], header[4..6] != [0, 0]), (length == 1260, length == 1260));
    }
    // That of IPv4 keeps what its sender said of it.
    let frame = may_be_fragmented(&question(V4, 10).bytes());
    let sent = lab.sent(&frame);
    taken_off(&sent);
    assert_eq!(sent[18..22], frame[18..22]);
}

/// A datagram of IPv4 without a checksum has none with the header either.
#[test]
fn no_checksum_stays_none() {
    let Some(lab) = lab() else { return };
    let mut frame = question(V4, 10).bytes();
    frame[40..42].fill(0);
    let sent = lab.sent(&frame);
    assert_eq!(taken_off(&sent).0, V4.4);
    assert_eq!(sent[14 + 20 + 12 + 6..][..2], [0, 0]);
}

/// A client cannot say itself who it is.
#[test]
fn a_clients_own_header_is_not_balanced() {
    let Some(lab) = lab() else { return };
    let inside = [&[0x10, 17, 0, 12, 31, 8, 0, 80, 127, 0, 0, 1][..], &question(V4, 10).packet()[20..]].concat();
    let packet = ip("10.0.0.50".parse().unwrap(), "10.0.0.200".parse().unwrap(), 248, 64, &inside);
    lab.passes(&super::frames::ethernet(&packet, None), rig_datapath::balancer::Pass::Protocol);
}

/// A router's word about what went without counts what is added.
#[test]
fn a_client_is_told_what_a_router_leaves_beside_it() {
    let Some(lab) = lab() else { return };
    let local = is_told(&lab, V4, &question(V4, 10));
    let about = udp(&local, V4.2).payload(b"question").packet();
    let error = icmp_error("10.0.0.99", V4.3, 3, 4, 1400, &about, 28);
    let seen = lab.sent(&error);
    assert_eq!(seen[40..42], 1388_u16.to_be_bytes());
    assert_eq!((rig_wire::checksum::of(&seen[34..]), rig_wire::checksum::of(&seen[42..62])), (0, 0));
}

/// Another balancer that goes on with it tells, too: whether the backend has answered matters to nobody else.
#[test]
fn what_another_balancer_has_begun_is_told() {
    let Some(first) = lab() else { return };
    let local = is_told(&first, V4, &question(V4, 10));
    let mut told = Vec::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        told.extend(record.map(|record| record.connection));
        std::ops::ControlFlow::Continue(())
    };
    first.balancer.records(note).unwrap();
    let Some(second) = lab() else { return };
    assert!(matches!(second.balancer.adopter().adopt(&told[0]).unwrap(), Adopted::Created { .. }));
    assert_eq!(is_told(&second, V4, &question(V4, 10)), local);
}

/// Connections that go on stay as they began.
#[test]
fn a_reload_is_for_connections_that_begin_behind_it() {
    let Some(mut lab) = Lab::new(small(), &config(&services(ClientAddress::Off))) else { return };
    is_plain(&lab, V4, &question(V4, 10));
    lab.balancer.apply(&config(&services(ClientAddress::Uoa))).unwrap();
    is_plain(&lab, V4, &question(V4, 10));
    let other = ("10.0.0.50:5001", V4.1, V4.2, V4.3, &[0x10, 17, 0, 12, 31, 8, 0x13, 0x89, 10, 0, 0, 50][..]);
    is_told(&lab, other, &question(other, 10));
}

/// A trace says so, and foresees every byte.
#[test]
fn it_is_foreseen() {
    let Some(lab) = lab() else { return };
    for (length, tells) in [(10, ClientAddress::Uoa), (MTU as usize - 28, ClientAddress::Off)] {
        let frame = question(V4, length).bytes();
        let foreseen = lab.balancer.trace(&frame, Some(lab.interface)).unwrap();
        assert_eq!(
            (foreseen.tells, foreseen.drop),
            (tells, Some(Drop::NotTold).filter(|_| tells == ClientAddress::Off))
        );
        assert_eq!(foreseen.frame.len(), frame.len() + if tells == ClientAddress::Off { 0 } else { 12 });
        let sent = lab.sent(&frame);
        assert_eq!(sent.len(), foreseen.frame.len());
        // Another CPU may have another port.
        assert_eq!(sent[14..34], foreseen.frame[14..34]);
    }
}
