//! Each way of forwarding, both directions, both families; checksums verified by rig-wire.

use rig_datapath::balancer::{Drop, ForwardingMethod, FragmentPolicy, Pass, Policy, UnhandledPolicy};
use rig_datapath::test_run::Verdict;
use rig_wire::ethernet::Ethernet;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::protocol;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::frames::{CLIENT_MAC, Frame, ethernet, may_be_fragmented, see, see_packet, tcp, udp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small, udp_service};

fn ends(frame: &[u8]) -> (String, String) {
    let seen = see(frame);
    (seen.source.to_string(), seen.destination.to_string())
}

fn pair(source: &str, destination: &str) -> (String, String) {
    (source.to_owned(), destination.to_owned())
}

#[test]
fn full_nat_translates_both_ends_both_ways() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(b"odd").bytes());
    let seen = see(&out);
    assert_eq!(seen.source.ip().to_string(), "10.0.0.100");
    assert_eq!(seen.destination.to_string(), "10.0.0.10:8080");
    assert_eq!((seen.ttl, seen.flags, &seen.payload[..]), (63, SYN, &b"odd"[..]));
    let link = Ethernet::parse(&out).unwrap();
    assert_eq!((link.source(), link.destination()), (lab.near, lab.far));

    let out = lab.sent(&tcp(SYN | ACK, "10.0.0.10:8080", &seen.source.to_string()).payload(b"answer").bytes());
    assert_eq!(ends(&out), pair("10.0.0.200:80", "10.0.0.60:5000"));
    // The client has no neighbour entry: answers go to the MAC address that its packet came from.
    assert_eq!(Ethernet::parse(&out).unwrap().destination(), CLIENT_MAC);
    let connection = format!("10.0.0.60:5000 > 10.0.0.200:80 > {} > 10.0.0.10:8080 SYN_RECV", seen.source);
    assert_eq!(lab.connections(), [connection]);
}

#[test]
fn full_nat_of_ipv6_and_udp() {
    let plan = config(&[
        service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]),
        udp_service("[fd00::200]:53", full_nat(&["fd00::100"]), &[backend("[fd00::11]:5353", 1)]),
        udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:5353", 1)]),
    ]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let cases = [
        (tcp(SYN, "[fd00::60]:5000", "[fd00::200]:80"), "[fd00::10]:8080"),
        (udp("[fd00::60]:5000", "[fd00::200]:53"), "[fd00::11]:5353"),
        (udp("10.0.0.60:5000", "10.0.0.200:53"), "10.0.0.11:5353"),
    ];
    for (frame, backend) in cases {
        let seen = see(&lab.sent(&frame.clone().payload(b"abc").bytes()));
        assert_eq!(seen.destination.to_string(), backend);
        let answer = Frame { source: seen.destination, destination: seen.source, ..frame.clone() };
        let back = see(&lab.sent(&answer.payload(b"four").bytes()));
        assert_eq!((back.source, back.destination), (frame.destination, frame.source));
        assert_eq!((&back.payload[..], back.ttl), (&b"four"[..], 63));
    }
}

#[test]
fn nat_translates_the_destination_alone() {
    let plan = config(&[service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    assert_eq!(ends(&out), pair("10.0.0.60:5000", "10.0.0.10:8080"));
    let out = lab.sent(&tcp(SYN | ACK, "10.0.0.10:8080", "10.0.0.60:5000").bytes());
    assert_eq!(ends(&out), pair("10.0.0.200:80", "10.0.0.60:5000"));
}

#[test]
fn route_changes_the_link_alone() {
    let plan = config(&[service("10.0.0.200:80", ForwardingMethod::Route, &[backend("10.0.0.11:80", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    assert_eq!(ends(&out), pair("10.0.0.60:5000", "10.0.0.200:80"));
    assert_eq!(Ethernet::parse(&out).unwrap().destination(), lab.far);
    // The backend answers directly; what it sends here is none of the balancer's.
    lab.passes(&tcp(ACK, "10.0.0.11:80", "10.0.0.60:5000").bytes(), Pass::NoService);
}

#[test]
fn tunnel_packs_into_the_same_family() {
    let tunnel = |local: &str| ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] };
    let plan = config(&[
        service("10.0.0.200:80", tunnel("10.0.0.100"), &[backend("10.0.0.11:80", 1)]),
        service("[fd00::200]:80", tunnel("fd00::100"), &[backend("[fd00::11]:80", 1)]),
    ]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(b"inside").bytes());
    let outer = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
    outer.verify().unwrap();
    assert_eq!((outer.source().to_string(), outer.destination().to_string()), pair("10.0.0.100", "10.0.0.11"));
    assert_eq!((outer.protocol(), outer.ttl(), outer.dont_fragment()), (4, 64, true));
    let inner = see_packet(outer.payload());
    assert_eq!((inner.source.to_string(), inner.destination.to_string()), pair("10.0.0.60:5000", "10.0.0.200:80"));
    assert_eq!((inner.ttl, &inner.payload[..]), (63, &b"inside"[..]));

    let out = lab.sent(&tcp(SYN, "[fd00::60]:5000", "[fd00::200]:80").payload(b"inside").vlan(9).bytes());
    let link = Ethernet::parse(&out).unwrap();
    assert_eq!(link.vlans().collect::<Vec<_>>(), [9]);
    // rig-wire's view would look for an upper layer: only the first bytes are needed here.
    let outer = link.payload();
    assert_eq!((outer[6], outer[7], outer.len()), (41, 64, 40 + 40 + 20 + 6));
    assert_eq!(see_packet(&outer[40..]).payload, b"inside");
    assert!(Ipv6::parse(&outer[40..]).is_ok());
}

#[test]
fn a_tag_stays_on_the_way_back_and_forth() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let out = lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").vlan(77).bytes());
    assert_eq!(Ethernet::parse(&out).unwrap().vlans().collect::<Vec<_>>(), [77]);
    assert_eq!(see(&out).destination.to_string(), "10.0.0.10:8080");
}

/// Partial checksums of a sender with checksum offload are completed, for packets of any length.
#[test]
fn partial_checksums_are_completed() {
    let plan = config(&[
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        udp_service("[fd00::200]:53", full_nat(&["fd00::100"]), &[backend("[fd00::11]:5353", 1)]),
    ]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    for length in [0, 1, 2, 3, 491, 492, 493, 1003, 1004, 1005, 1400] {
        let payload: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
        let seen = see(&lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&payload).partial()));
        assert_eq!(seen.payload, payload);
        // And on the way back.
        let back = Frame::new(super::frames::L4::Tcp(ACK), seen.destination, seen.source).payload(&payload);
        assert_eq!(see(&lab.sent(&back.partial())).payload, payload);
        let seen = see(&lab.sent(&udp("[fd00::60]:5000", "[fd00::200]:53").payload(&payload).partial()));
        assert_eq!(seen.payload, payload);
    }
}

/// A complete checksum that equals the pseudo header's sum, as one in 65,536 does, is no partial one.
#[test]
fn a_checksum_that_looks_partial_is_left_complete() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let frame = |filler: u16| tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(&filler.to_be_bytes());
    let like = (0..=u16::MAX).map(frame).find(|frame| frame.bytes() == frame.partial()).unwrap();
    see(&like.bytes());
    see(&lab.sent(&like.bytes()));
}

#[test]
fn a_wrong_checksum_stays_wrong_and_none_stays_none() {
    let plan = config(&[udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:5353", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let mut frame = udp("10.0.0.60:5000", "10.0.0.200:53").payload(b"data").bytes();
    frame[43] ^= 1;
    let out = lab.sent(&frame);
    let ip = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
    let udp = rig_wire::udp::Udp::parse(ip.payload()).unwrap();
    assert!(udp.verify(ip.pseudo(), true).is_err());
    // The IPv4 header's own, likewise.
    frame[43] ^= 1;
    frame[24] ^= 1;
    let out = lab.sent(&frame);
    assert!(Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap().verify().is_err());
    frame[24] ^= 1;
    frame[40..42].fill(0);
    assert_eq!(lab.sent(&frame)[40..42], [0, 0]);
}

#[test]
fn fragments_and_options_go_by_policy() {
    let services = [
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]),
    ];
    let Some(mut lab) = Lab::new(small(), &config(&services)) else { return };
    let mut fragment = tcp(ACK, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    fragment[20] = 0x20;
    let mut options = tcp(ACK, "10.0.0.10:8080", "10.0.0.100:2000").bytes();
    options[14] = 0x46;
    let header = |next: u8| {
        let packet = tcp(ACK, "[fd00::60]:5000", "[fd00::200]:80").packet();
        let mut packet = [&packet[..40], &[6, 0, 0, 0, 0, 0, 0, 0], &packet[40..]].concat();
        packet[5] += 8;
        packet[6] = next;
        ethernet(&packet, None)
    };
    assert_eq!(lab.dropped(&fragment), Drop::Fragment);
    assert_eq!(lab.dropped(&options), Drop::IpOptions);
    assert_eq!(lab.dropped(&header(44)), Drop::Fragment);
    for next in [0, 43, 60] {
        assert_eq!(lab.dropped(&header(next)), Drop::IpOptions);
    }
    // Fragments for another host are left to the kernel.
    let mut other = fragment.clone();
    other[33] = 201;
    lab.passes(&other, Pass::Fragment);

    let policy = Policy { fragments: FragmentPolicy::Pass, options: UnhandledPolicy::Pass, ..Policy::default() };
    let mut plan = config(&services);
    plan.policy = policy;
    lab.balancer.apply(&plan).unwrap();
    lab.passes(&fragment, Pass::Fragment);
    lab.passes(&options, Pass::IpOptions);
}

#[test]
fn what_is_not_the_balancers_is_left_alone() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    lab.passes(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:81").bytes(), Pass::NoService);
    lab.passes(&udp("10.0.0.60:5000", "10.0.0.200:80").bytes(), Pass::NoService);
    let icmp = super::frames::ip([10, 0, 0, 60].into(), [10, 0, 0, 200].into(), protocol::ICMP, 64, &[8; 16]);
    let outcome = lab.send(&ethernet(&icmp, None));
    assert_eq!(outcome.verdict, Verdict::Pass);
    let mut short = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes();
    short.truncate(40);
    lab.passes(&short, Pass::Malformed);
}

#[test]
fn refusals_have_their_reasons() {
    let services = [
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 0)]),
        service("10.0.0.202:80", full_nat(&["10.0.0.100"]), &[super::limited("10.0.0.10:8080", 1)]),
        service("10.0.0.203:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.77:8080", 1)]),
        service("10.0.0.204:80", full_nat(&["10.0.0.100"]), &[backend("192.0.2.1:8080", 1)]),
        service("10.0.0.205:80", ForwardingMethod::Nat, &[backend("10.0.0.11:8080", 1)]),
        service("10.0.0.206:80", ForwardingMethod::Nat, &[backend("10.0.0.11:8080", 1)]),
    ];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    let syn = |service: u8| tcp(SYN, "10.0.0.60:5000", &format!("10.0.0.{service}:80"));
    assert_eq!(lab.dropped(&tcp(RST, "10.0.0.60:5000", "10.0.0.200:80").bytes()), Drop::NoConnection);
    assert_eq!(lab.dropped(&tcp(SYN | ACK, "10.0.0.60:5000", "10.0.0.200:80").bytes()), Drop::NoConnection);
    assert_eq!(lab.dropped(&syn(200).ttl(1).bytes()), Drop::Ttl);
    assert_eq!(lab.dropped(&syn(201).bytes()), Drop::NoBackend);
    lab.sent(&syn(202).bytes());
    assert_eq!(lab.dropped(&tcp(SYN, "10.0.0.60:5001", "10.0.0.202:80").bytes()), Drop::BackendsFull);
    assert_eq!(lab.dropped(&syn(203).bytes()), Drop::NoNeighbor);
    assert_eq!(lab.dropped(&syn(204).bytes()), Drop::NoRoute);
    lab.sent(&syn(205).bytes());
    assert_eq!(lab.dropped(&syn(206).bytes()), Drop::NatClash);
    assert_eq!(lab.dropped(&may_be_fragmented(&syn(200).payload(&[0; 1461]).bytes())), Drop::TooBig);
    lab.sent(&syn(200).payload(&[0; 1460]).bytes());
}

/// 3-way handshake, close by the client first, and the counts of established connections on the way.
#[test]
fn states_follow_the_packets() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let inward = |flags| lab.sent(&tcp(flags, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    let local = see(&inward(SYN)).source.to_string();
    let outward = |flags| lab.sent(&tcp(flags, "10.0.0.10:8080", &local).bytes());
    let state = || lab.connections()[0].rsplit(' ').next().unwrap().to_owned();
    let counts = || {
        let backend = &lab.balancer.services().unwrap()[0].backends[0];
        (backend.active, backend.inactive)
    };
    assert_eq!((state().as_str(), counts()), ("SYN_RECV", (0, 1)));
    outward(SYN | ACK);
    assert_eq!(state(), "SYN_RECV");
    inward(ACK);
    assert_eq!((state().as_str(), counts()), ("ESTABLISHED", (1, 0)));
    inward(FIN | ACK);
    assert_eq!((state().as_str(), counts()), ("CLOSE_WAIT", (0, 1)));
    outward(FIN | ACK);
    assert_eq!(state(), "TIME_WAIT");
    inward(ACK);
    assert_eq!(state(), "TIME_WAIT");
    // The client uses its port again: that is another connection.
    let local = see(&inward(SYN)).source.to_string();
    assert_eq!((state().as_str(), lab.connections().len()), ("SYN_RECV", 1));
    lab.sent(&tcp(RST | ACK, "10.0.0.10:8080", &local).bytes());
    assert_eq!((state().as_str(), counts()), ("CLOSE", (0, 1)));
    assert_eq!(lab.balancer.services().unwrap()[0].traffic.refused, 1);
    let traffic = lab.balancer.services().unwrap()[0].traffic;
    assert_eq!((traffic.connections, traffic.in_packets, traffic.out_packets), (2, 5, 3));
    assert_eq!(traffic.in_bytes, 5 * 40);
}

/// A reset counts against the backend where it answers a SYN, and not where a client has provoked it.
#[test]
fn a_refusal_is_a_reset_with_an_acknowledgment_in_place_of_an_answer() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let refused = |sent: &[(u8, bool)], port: u16| {
        let before = lab.balancer.services().unwrap()[0].traffic.refused;
        let client = format!("10.0.0.60:{port}");
        let local = see(&lab.sent(&tcp(SYN, &client, "10.0.0.200:80").bytes())).source.to_string();
        for (flags, inward) in sent {
            let (from, to) =
                if *inward { (client.as_str(), "10.0.0.200:80") } else { ("10.0.0.10:8080", local.as_str()) };
            lab.sent(&tcp(*flags, from, to).bytes());
        }
        lab.balancer.services().unwrap()[0].traffic.refused - before
    };
    assert_eq!(refused(&[(RST | ACK, false)], 5000), 1);
    // For an acknowledgment of what was never sent; in the SYN's place, and after it.
    assert_eq!(refused(&[(RST, false)], 5001), 0);
    assert_eq!(refused(&[(SYN | ACK, true), (RST, false)], 5002), 0);
    assert_eq!(refused(&[(SYN | ACK, false), (ACK, true), (RST | ACK, false)], 5003), 0);
    // Once for each connection, however often it comes.
    assert_eq!(refused(&[(RST | ACK, false), (RST | ACK, false), (RST | ACK, false)], 5005), 1);
    // The client ends it, before its backend answers.
    assert_eq!(refused(&[(RST, true), (RST | ACK, false)], 5004), 0);
}
