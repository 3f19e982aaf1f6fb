//! Services that schedule each datagram by itself: every byte of what goes each way, and what is left behind, which is nothing.

use std::num::NonZeroU32;
use std::slice;
use std::time::Duration;

use rig_datapath::balancer::{
    AccessLists, Adopted, AdoptionRefusal, Drop, ForwardingMethod, Limits, Pass, Persistence, Protocol, Rate,
    Scheduler, Service, SharedConnection, State,
};
use rig_wire::ethernet::{Ethernet, HEADER};
use rig_wire::icmp::Icmp;
use rig_wire::ipv4::Ipv4;

use super::frames::{Frame, icmp_error, see, see_packet, udp};
use super::lab::{Lab, stay_on_one_cpu};
use super::{backend, config, full_nat, service, small, udp_service};

const V: &str = "10.0.0.200:53";
const V6: &str = "[fd00::200]:53";

fn once(forward: ForwardingMethod, port: u16) -> Service {
    let backends = ["10.0.0.10", "10.0.0.11"].map(|host| backend(&format!("{host}:{port}"), 1));
    Service { one_packet: true, ..udp_service(V, forward, &backends) }
}

fn once6(forward: ForwardingMethod, port: u16) -> Service {
    let backends = ["fd00::10", "fd00::11"].map(|host| backend(&format!("[{host}]:{port}"), 1));
    Service { one_packet: true, ..udp_service(V6, forward, &backends) }
}

fn tunnel(local: &str) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] }
}

/// What a router makes of a frame on the lab's link, checksums as they ought to be.
fn routed(lab: &Lab, frame: &Frame) -> Vec<u8> {
    let mut bytes = frame.clone().ttl(frame.ttl - 1).bytes();
    bytes[..6].copy_from_slice(&lab.far.0);
    bytes[6..12].copy_from_slice(&lab.near.0);
    bytes
}

fn counts(lab: &Lab) -> (u64, u64, u64) {
    let services = lab.balancer.services().unwrap();
    let each = services.iter().map(|service| service.traffic);
    each.fold((0, 0, 0), |sum, t| (sum.0 + t.connections, sum.1 + t.in_packets, sum.2 + t.out_packets))
}

#[test]
fn each_datagram_has_its_own_turn_and_leaves_nothing() {
    let plan = config(&[once(ForwardingMethod::Nat, 8053), once6(ForwardingMethod::Nat, 8053)]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    for (client, service, backends) in [
        ("10.0.0.50:5000", V, ["10.0.0.10:8053", "10.0.0.11:8053"]),
        ("[fd00::50]:5000", V6, ["[fd00::10]:8053", "[fd00::11]:8053"]),
    ] {
        for nth in 0..4 {
            let backend = backends[nth % 2];
            let question = udp(client, service).payload(b"which one");
            let out = lab.sent(&question.bytes());
            assert_eq!(out, routed(&lab, &udp(client, backend).payload(b"which one")), "{client}, datagram {nth}");
            // Any of them may answer, to whomever it likes.
            let answer = udp(backend, client).payload(b"this one");
            assert_eq!(lab.sent(&answer.bytes()), routed(&lab, &udp(service, client).payload(b"this one")));
        }
    }
    assert_eq!((lab.connections(), lab.balancer.sweep_all().unwrap().live), (vec![], 0));
    assert_eq!(counts(&lab), (8, 8, 8));
    // The client behind a link that nothing is known of: there is no first packet whose sender that was.
    assert_eq!(lab.dropped(&udp("10.0.0.10:8053", "10.0.0.60:5000").bytes()), Drop::NoNeighbor);
    // To this machine, which asks backends itself.
    lab.passes(&udp("10.0.0.10:8053", "10.0.0.1:5000").bytes(), Pass::NoService);
    // From another port of the backend, and of TCP.
    lab.passes(&udp("10.0.0.10:8054", "10.0.0.50:5000").bytes(), Pass::NoService);
}

#[test]
fn direct_return_and_tunnels_keep_nothing_either() {
    let services = [
        Service { scheduler: Scheduler::SourceHash, ..once(ForwardingMethod::Route, 53) },
        Service { scheduler: Scheduler::Maglev, ..once6(tunnel("fd00::100"), 53) },
    ];
    let Some(lab) = Lab::new(small(), &config(&services)) else { return };
    for port in 5000..5003 {
        let question = udp(&format!("10.0.0.60:{port}"), V).payload(b"direct");
        assert_eq!(lab.sent(&question.bytes()), routed(&lab, &question));
        let question = udp(&format!("[fd00::60]:{port}"), V6).payload(b"inside");
        let out = lab.sent(&question.bytes());
        let inner = see_packet(&out[HEADER + 40..]);
        assert_eq!((inner.source, inner.destination), (question.source, question.destination));
        assert_eq!(out.len(), question.bytes().len() + 40);
    }
    assert_eq!((lab.connections(), counts(&lab)), (vec![], (6, 6, 0)));
    // With direct return, what comes from a backend's port is not the balancer's.
    lab.passes(&udp("10.0.0.10:53", "10.0.0.50:5000").bytes(), Pass::NoService);
}

#[test]
fn an_error_about_a_datagram_reaches_its_client() {
    let Some(lab) = Lab::new(small(), &config(&[once(ForwardingMethod::Nat, 8053)])) else { return };
    let about = udp("10.0.0.50:5000", "10.0.0.10:8053").payload(b"quoted").packet();
    let out = lab.sent(&icmp_error("10.0.0.10", "10.0.0.50", 3, 3, 0, &about, 28));
    let ip = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
    ip.verify().unwrap();
    assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("10.0.0.200".into(), "10.0.0.50".into()));
    let icmp = Icmp::parse(ip.payload()).unwrap();
    icmp.verify().unwrap();
    assert_eq!(icmp.payload()[16..24], [10, 0, 0, 200, 0x13, 0x88, 0, 53]);
    // One that quotes it, and is to somebody else, is not sent on in the service's name.
    lab.passes(&icmp_error("10.0.0.10", "10.0.0.200", 3, 3, 0, &about, 28), Pass::IcmpUnknown);
    // Which backend's answer did not fit on its way to the client, nothing says.
    let about = udp(V, "10.0.0.50:5000").payload(b"long").packet();
    lab.passes(&icmp_error("10.0.0.99", "10.0.0.200", 3, 4, 1400, &about, 28), Pass::IcmpUnknown);
}

#[test]
fn who_may_and_how_fast_is_asked_for_each_datagram() {
    let rate = |n| NonZeroU32::new(n).map(|n| Rate { per_second: n, burst: n });
    let mut limited = once(ForwardingMethod::Nat, 8053);
    limited.limits = Limits { source_rate: rate(2), new_rate: rate(3), ..Limits::default() };
    limited.access = AccessLists { deny: ["10.0.0.62/32".parse().unwrap()].into(), ..AccessLists::default() };
    let Some(mut lab) = Lab::new(small(), &config(&[limited])) else { return };
    let from = |client: &str| udp(client, V).bytes();
    for _ in 0..2 {
        lab.sent(&from("10.0.0.60:5000"));
    }
    assert_eq!(lab.dropped(&from("10.0.0.60:5000")), Drop::SourceRate);
    lab.sent(&from("10.0.0.61:5000"));
    assert_eq!(lab.dropped(&from("10.0.0.61:5000")), Drop::NewRate);
    assert_eq!(lab.dropped(&from("10.0.0.62:5000")), Drop::Denied);
    lab.later(8);
    lab.sent(&from("10.0.0.60:5000"));
    assert_eq!(lab.balancer.source_table().unwrap().connections, 0);
}

#[test]
fn a_source_stays_at_its_backend_as_long_as_it_sends() {
    let persistence = Some(Persistence { timeout: Duration::from_secs(10), prefix: 32, group: None });
    let kept = Service { persistence, ..once(ForwardingMethod::Nat, 8053) };
    let Some(mut lab) = Lab::new(small(), &config(slice::from_ref(&kept))) else { return };
    let goes = |lab: &Lab, client: &str| see(&lab.sent(&udp(client, V).bytes())).destination.to_string();
    let first = goes(&lab, "10.0.0.60:5000");
    assert_ne!(goes(&lab, "10.0.0.61:5000"), first);
    for _ in 0..4 {
        lab.later(60);
        assert_eq!(goes(&lab, "10.0.0.60:5001"), first);
    }
    // Of 75 ticks.
    lab.later(76);
    let ports: Vec<_> = (0..2).map(|nth| goes(&lab, &format!("10.0.0.{}:5000", 60 + nth))).collect();
    assert_ne!(ports[0], ports[1]);
    let mut drained = kept;
    drained.backends.iter_mut().filter(|b| b.address.to_string() == ports[0]).for_each(|b| b.weight = 0);
    lab.balancer.apply(&config(&[drained])).unwrap();
    assert_eq!(goes(&lab, "10.0.0.60:5000"), ports[1]);
    // What a template's turn has counted it has taken off: a backend without connections is removed at once.
    lab.balancer.apply(&config(&[])).unwrap();
    (0..3).for_each(|_| lab.balancer.apply(&config(&[])).unwrap());
    assert!(lab.balancer.services().unwrap().is_empty());
}

/// Connections of before go on; answers of a backend that is away are nobody's.
#[test]
fn a_service_becomes_one_and_ceases_to_be_one() {
    let now = once(ForwardingMethod::Nat, 8053);
    let before = Service { one_packet: false, ..now.clone() };
    let Some(mut lab) = Lab::new(small(), &config(slice::from_ref(&before))) else { return };
    let (old, new) = (udp("10.0.0.50:5000", V).bytes(), udp("10.0.0.50:5001", V).bytes());
    let first = see(&lab.sent(&old)).destination;
    lab.balancer.apply(&config(slice::from_ref(&now))).unwrap();
    assert!((0..3).all(|_| see(&lab.sent(&old)).destination == first), "it has a connection");
    assert_ne!(see(&lab.sent(&new)).destination, see(&lab.sent(&new)).destination);
    assert_eq!(lab.connections().len(), 1);
    // What another balancer tells of is not taken up: its peers schedule each datagram, too.
    let told = SharedConnection {
        protocol: Protocol::Udp,
        forward: 2,
        state: State::UdpNormal,
        before: None,
        idle: 0,
        client: "10.0.0.50:5009".parse().unwrap(),
        service: V.parse().unwrap(),
        backend: "10.0.0.10:8053".parse().unwrap(),
        any_port: false,
        local: None,
    };
    assert_eq!(lab.balancer.adopter().adopt(&told).unwrap(), Adopted::Refused(AdoptionRefusal::NoService));
    let answer = udp("10.0.0.11:8053", "10.0.0.50:5001").bytes();
    assert_eq!(see(&lab.sent(&answer)).source.to_string(), V);
    let fewer = Service { backends: now.backends[..1].to_vec(), ..now };
    lab.balancer.apply(&config(&[fewer])).unwrap();
    lab.passes(&answer, Pass::NoService);
    lab.balancer.apply(&config(&[before])).unwrap();
    lab.passes(&answer, Pass::NoService);
    lab.sent(&new);
    assert_eq!(lab.connections().len(), 2);
}

#[test]
fn a_trace_foresees_it() {
    let other = service("10.0.0.201:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let Some(lab) = Lab::new(small(), &config(&[once(ForwardingMethod::Nat, 8053), other])) else { return };
    stay_on_one_cpu();
    let question = udp("10.0.0.50:5000", V).bytes();
    let trace = lab.balancer.trace(&question, Some(lab.interface)).unwrap();
    let new = trace.new_connection.unwrap();
    assert_eq!((new.complete, new.one_packet), (true, true));
    // It takes nobody's turn.
    assert_eq!(trace.frame, lab.sent(&question));
    assert_eq!(see(&trace.frame).destination, new.backend.unwrap());
    let answer = udp("10.0.0.11:8053", "10.0.0.50:5000").bytes();
    let trace = lab.balancer.trace(&answer, Some(lab.interface)).unwrap();
    assert_eq!((trace.answers_for, trace.frame), (Some(V.parse().unwrap()), lab.sent(&answer)));
}
