//! Datagrams in fragments: every part of them goes where the first one goes, and comes together to what was sent.

use rig_datapath::balancer::{Config, Drop, ForwardingMethod, FragmentPolicy, Pass, Policy, Service};
use std::net::IpAddr;

use rig_wire::ethernet::{Ethernet, HEADER};
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::flags::SYN;

use super::frames::{Frame, fragments, icmp_error, see_packet, tcp, udp, whole};
use super::lab::Lab;
use super::{backend, config, full_nat, small, udp_service};

const CUTS: [usize; 2] = [504, 1000];

fn big(source: &str, destination: &str) -> Frame {
    let payload: Vec<u8> = (0..1200_u32).map(|n| (n * 7) as u8).collect();
    udp(source, destination).payload(&payload)
}

/// The packets inside the frames that come of these, `outer` bytes of a tunnel's headers before them.
#[track_caller]
fn sent(lab: &Lab, parts: &[Vec<u8>], outer: usize) -> Vec<Vec<u8>> {
    let out = |part: &Vec<u8>| {
        let out = lab.sent(part);
        assert_eq!(Ethernet::parse(&out).unwrap().destination(), lab.far);
        out[HEADER + outer..].to_vec()
    };
    parts.iter().map(out).collect()
}

#[test]
fn all_parts_go_where_the_first_one_goes_both_ways() {
    let tunnel = |local: &str| ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] };
    for (v6, forward, outer) in [
        (false, full_nat(&["10.0.0.100"]), 0),
        (false, ForwardingMethod::Nat, 0),
        (false, ForwardingMethod::Route, 0),
        (false, tunnel("10.0.0.100"), 20),
        (true, full_nat(&["fd00::100"]), 0),
        (true, ForwardingMethod::Nat, 0),
        (true, ForwardingMethod::Route, 0),
        (true, tunnel("fd00::100"), 40),
    ] {
        let (client, service) =
            if v6 { ("[fd00::50]:5000", "[fd00::200]:53") } else { ("10.0.0.50:5000", "10.0.0.200:53") };
        let direct = !matches!(forward, ForwardingMethod::Nat | ForwardingMethod::FullNat { .. });
        let port = if direct { 53 } else { 8053 };
        let backends = ["10", "11"].map(|host| match v6 {
            true => backend(&format!("[fd00::{host}]:{port}"), 1),
            false => backend(&format!("10.0.0.{host}:{port}"), 1),
        });
        let Some(lab) = Lab::new(small(), &config(&[udp_service(service, forward.clone(), &backends)])) else { return };
        let question = big(client, service);
        let parts = fragments(&question.bytes(), &CUTS, 7);
        let out = sent(&lab, &parts, outer);
        let arrived = see_packet(&whole(&out));
        assert_eq!(arrived.payload, question.payload, "{forward:?}");
        assert_eq!((arrived.ttl, lab.connections().len()), (63, 1));
        if direct {
            assert_eq!((arrived.source, arrived.destination), (question.source, question.destination));
            continue;
        }
        assert!(backends.iter().any(|backend| backend.address == arrived.destination));
        // What comes back has a number of its own, and other numbers may be the same.
        let answer = big(&arrived.destination.to_string(), &arrived.source.to_string());
        let out = sent(&lab, &fragments(&answer.bytes(), &CUTS, 7), 0);
        let arrived = see_packet(&whole(&out));
        assert_eq!((arrived.source, arrived.destination), (question.destination, question.source));
        assert_eq!(arrived.payload, answer.payload);
        let traffic = lab.balancer.services().unwrap()[0].traffic;
        assert_eq!((traffic.in_packets, traffic.out_packets), (3, 3));
    }
}

fn lab(policy: FragmentPolicy, change: impl Fn(Service) -> Service) -> Option<Lab> {
    let service = udp_service("10.0.0.200:53", ForwardingMethod::Nat, &[backend("10.0.0.10:8053", 1)]);
    let policy = Policy { fragments: policy, ..Policy::default() };
    Lab::new(small(), &Config { policy, ..config(&[change(service)]) })
}

#[test]
fn what_has_no_first_part_is_dropped() {
    let Some(mut lab) = lab(FragmentPolicy::Forward, |service| service) else { return };
    let parts = |client: &str, id| fragments(&big(client, "10.0.0.200:53").bytes(), &CUTS, id);
    let (one, other) = (parts("10.0.0.50:5000", 1), parts("10.0.0.50:5001", 2));
    // Before the first one, of another datagram, of another client, or later than parts are waited for.
    assert_eq!(lab.dropped(&one[1]), Drop::Fragment);
    lab.sent(&one[0]);
    assert_eq!(lab.dropped(&other[1]), Drop::Fragment);
    assert_eq!(lab.dropped(&parts("10.0.0.60:5000", 1)[1]), Drop::Fragment);
    lab.later(15);
    lab.sent(&one[1]);
    lab.later(1);
    assert_eq!(lab.dropped(&one[2]), Drop::Fragment);
    // Two datagrams at a time, in whatever order.
    lab.sent(&other[0]);
    lab.sent(&one[0]);
    for part in [&other[2], &one[2], &one[1], &other[1]] {
        lab.sent(part);
    }
    // No hop left, and more than fits.
    let mut last = fragments(&big("10.0.0.50:5000", "10.0.0.200:53").ttl(1).bytes(), &CUTS, 1);
    assert_eq!(lab.dropped(&last.pop().unwrap()), Drop::Ttl);
    // The first part is without its ports, TCP, and a packet to another host.
    let mut short = one[0][..HEADER + 24].to_vec();
    short[HEADER + 2..HEADER + 4].copy_from_slice(&[0, 24]);
    assert_eq!(lab.dropped(&short), Drop::Fragment);
    let segment = tcp(SYN, "10.0.0.50:5000", "10.0.0.200:53").payload(&[0; 100]).bytes();
    for part in fragments(&segment, &[64], 1) {
        assert_eq!(lab.dropped(&part), Drop::Fragment);
    }
    let foreign = fragments(&big("10.0.0.50:5000", "10.0.0.99:53").bytes(), &CUTS, 1);
    lab.passes(&foreign[0], Pass::NoService);
    lab.passes(&foreign[1], Pass::Fragment);
    assert_eq!(lab.balancer.sweep_all().unwrap().live, 2);
}

#[test]
fn a_datagram_that_is_scheduled_by_itself_has_no_connection_that_others_could_follow() {
    let Some(lab) = lab(FragmentPolicy::Forward, |service| Service { one_packet: true, ..service }) else { return };
    let parts = fragments(&big("10.0.0.50:5000", "10.0.0.200:53").bytes(), &CUTS, 1);
    lab.sent(&parts[0]);
    assert_eq!(lab.dropped(&parts[1]), Drop::Fragment);
    let parts = fragments(&big("10.0.0.10:8053", "10.0.0.50:5000").bytes(), &CUTS, 1);
    lab.sent(&parts[0]);
    assert_eq!(lab.dropped(&parts[1]), Drop::Fragment);
    // What this machine has asked itself, and what the backend says to others, is not the balancer's.
    for other in ["10.0.0.10:8053 10.0.0.1:5000", "10.0.0.10:5000 10.0.0.50:53"] {
        let (from, to) = other.split_once(' ').unwrap();
        for (part, reason) in fragments(&big(from, to).bytes(), &CUTS, 2).iter().zip([Pass::NoService, Pass::Fragment])
        {
            lab.passes(part, reason);
        }
    }
}

/// The sender of an IPv6 datagram in fragments hears of a smaller MTU, by what a router says of its first part (RFC 8200, 4.5).
#[test]
fn errors_about_fragments_reach_their_sender() {
    let service = udp_service("[fd00::200]:53", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8053", 1)]);
    let Some(lab) = Lab::new(small(), &config(&[service])) else { return };
    let question = big("[fd00::50]:5000", "[fd00::200]:53");
    let out = sent(&lab, &fragments(&question.bytes(), &CUTS, 7), 0);
    let error = |from: &str, to: &str, about: &[u8]| icmp_error(from, to, 2, 0, 1280, about, 1200);
    let told = |frame: &[u8]| {
        let packet = lab.sent(frame)[HEADER..].to_vec();
        let ip = Ipv6::parse(&packet).unwrap();
        let icmp = Icmpv6::parse(ip.payload()).unwrap();
        icmp.verify(ip.pseudo()).unwrap();
        (IpAddr::from(ip.destination()).to_string(), icmp.payload().to_vec())
    };
    // On its way to the backend, which the client hears as of its own packet.
    let (to, quoted) = told(&error("fd00::99", "fd00::100", &out[0]));
    let mut own = fragments(&question.bytes(), &CUTS, 7)[0][HEADER..].to_vec();
    own[7] -= 1;
    assert_eq!((to.as_str(), &quoted[..]), ("fd00::50", &own[..]));
    // And on the way to the client.
    let arrived = see_packet(&whole(&out));
    let answer = fragments(&big("[fd00::10]:8053", &arrived.source.to_string()).bytes(), &CUTS, 8);
    let out = sent(&lab, &answer, 0);
    let (to, quoted) = told(&error("fd00::98", "fd00::200", &out[0]));
    let mut own = answer[0][HEADER..].to_vec();
    own[7] -= 1;
    assert_eq!((to.as_str(), &quoted[..]), ("fd00::10", &own[..]));
    // Of one behind the first nothing says whose it is.
    lab.passes(&error("fd00::98", "fd00::200", &out[1]), Pass::IcmpUnknown);
}

#[test]
fn a_policy_says_what_becomes_of_fragments() {
    for policy in [FragmentPolicy::Drop, FragmentPolicy::Pass] {
        let Some(lab) = lab(policy, |service| service) else { return };
        for part in fragments(&big("10.0.0.50:5000", "10.0.0.200:53").bytes(), &CUTS, 1) {
            match policy {
                FragmentPolicy::Pass => lab.passes(&part, Pass::Fragment),
                _ => assert_eq!(lab.dropped(&part), Drop::Fragment),
            }
        }
        assert_eq!(lab.connections(), Vec::<String>::new());
    }
}
