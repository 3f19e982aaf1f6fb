//! The DSCP of packets to backends: what they come with, or what their service says. Every byte of what leaves.

use std::collections::HashMap;
use std::num::NonZeroU16;

use rig_datapath::balancer::{
    Backend, Drop, Encapsulation, ForwardingMethod, GUE_PORT, Protocol, Service, Sizes, TunnelHeader,
};
use rig_datapath::test_run::Verdict;
use rig_sys::socket::Dscp;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{Frame, L4, fragments, icmp_error, pseudo, see, tcp, udp, with_class, with_class_at};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

/// Behind a header of Ethernet.
const L3: usize = 14;

/// A service, and where the inner header is that its tunnels pack.
struct Case {
    service: Service,
    inner: Option<usize>,
    has_sum: bool,
    /// Its packets leave as IPv4.
    changes_family: bool,
}

fn cases(protocol: Protocol) -> Vec<Case> {
    let gue = |port, checksum| TunnelHeader::Gue { port, checksum };
    let tunnels = [
        (TunnelHeader::IpInIp, 0),
        (TunnelHeader::Gre, 4),
        (gue(GUE_PORT, false), 12),
        (gue(NonZeroU16::new(5555).unwrap(), true), 12),
    ];
    let mut all = Vec::new();
    for ipv6 in [false, true] {
        let at = |host: usize| if ipv6 { format!("[fd00::{host}]:80") } else { format!("10.0.0.{host}:80") };
        let local = || if ipv6 { "fd00::100" } else { "10.0.0.100" };
        let mut add = |forward, backends: &[Backend], inner, has_sum, changes_family| {
            let address = at(200 + all.len() % 10);
            let service = Service { protocol, ..service(&address, forward, backends) };
            all.push(Case { service, inner, has_sum, changes_family });
        };
        add(full_nat(&[local()]), &[backend(&at(10), 1)], None, false, false);
        add(ForwardingMethod::Nat, &[backend(&at(11), 1)], None, false, false);
        add(ForwardingMethod::Route, &[backend(&at(12), 1)], None, false, false);
        for (header, between) in tunnels {
            let to = Backend { encapsulation: Encapsulation { header, source_bits: 0 }, ..backend(&at(13), 1) };
            let outer = if ipv6 { 40 } else { 20 };
            let has_sum = matches!(header, TunnelHeader::Gue { checksum: true, .. });
            let forward = ForwardingMethod::Tunnel { local: vec![local().parse().unwrap()] };
            add(forward, &[to], Some(L3 + outer + between), has_sum, false);
        }
        if ipv6 {
            add(full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)], None, false, true);
        }
    }
    all
}

fn services(cases: &[Case], dscp: Option<u8>) -> Vec<Service> {
    let dscp = dscp.map(|dscp| Dscp::try_from(dscp).unwrap());
    cases.iter().map(|case| Service { dscp, ..case.service.clone() }).collect()
}

/// What a client and its routers send to a service: a connection's packets, a datagram's parts, and an error about an answer.
fn frames(case: &Case) -> Vec<Vec<u8>> {
    let to = case.service.address;
    let client = if to.is_ipv6() { "[fd00::50]:5000" } else { "10.0.0.50:5000" };
    let frame = |l4| Frame::new(l4, client.parse().unwrap(), to).payload(b"forty bytes that are to go to a backend.");
    let (first, l4) = match case.service.protocol {
        Protocol::Tcp => (L4::Tcp(SYN), L4::Tcp(ACK)),
        Protocol::Udp => (L4::Udp, L4::Udp),
    };
    let mut all = vec![frame(first).bytes(), frame(l4).bytes()];
    if l4 == L4::Udp && !case.changes_family {
        all.extend(fragments(&frame(l4).bytes(), &[16], 7));
    }
    let answer = Frame { source: to, destination: client.parse().unwrap(), ..frame(l4) }.packet();
    let (from, kind, code) = if to.is_ipv6() { ("fd00::99", 1, 4) } else { ("10.0.0.99", 3, 3) };
    all.push(icmp_error(from, &to.ip().to_string(), kind, code, 0, &answer, 88));
    all
}

/// The checksum of a tunnel's UDP over what it is of now.
fn summed(mut frame: Vec<u8>, inner: usize) -> Vec<u8> {
    let at = inner - 12;
    frame[at + 6..at + 8].fill(0);
    let ip = |from: usize, bytes: usize| -> std::net::IpAddr {
        match bytes {
            4 => <[u8; 4]>::try_from(&frame[from..from + 4]).unwrap().into(),
            _ => <[u8; 16]>::try_from(&frame[from..from + 16]).unwrap().into(),
        }
    };
    let (from, to) =
        if frame[L3] >> 4 == 6 { (ip(L3 + 8, 16), ip(L3 + 24, 16)) } else { (ip(L3 + 12, 4), ip(L3 + 16, 4)) };
    let sum = pseudo(from, to, rig_wire::protocol::UDP, frame.len() - at).bytes(&frame[at..]).checksum();
    frame[at + 6..at + 8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    frame
}

/// As it leaves where it has another class, in each of its headers.
fn expected(case: &Case, sent: &[u8], class: u8) -> Vec<u8> {
    let mut all = with_class(sent, class);
    if let Some(inner) = case.inner {
        with_class_at(&mut all, inner, class);
    }
    match case.inner.filter(|_| case.has_sum) {
        Some(inner) => summed(all, inner),
        None => all,
    }
}

#[test]
fn packets_to_backends_have_the_class_that_they_come_with_or_their_services() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let cases = cases(protocol);
        let sizes = Sizes { services: 32, ..small() };
        let Some(mut lab) = Lab::new(sizes, &config(&services(&cases, None))) else { return };
        // Of packets without a class: how they leave, otherwise.
        let mut plain = HashMap::new();
        for said in [None, Some(0), Some(46), Some(63)] {
            lab.balancer.apply(&config(&services(&cases, said))).unwrap();
            for (of, case) in cases.iter().enumerate() {
                for class in [0, 0x02, 0xb9, 0xff] {
                    for (nth, frame) in frames(case).into_iter().enumerate() {
                        let sent = lab.sent(&with_class(&frame, class));
                        let base = plain.entry((of, nth)).or_insert_with(|| sent.clone());
                        let leaves = said.map_or(class, |dscp| dscp << 2 | class & 3);
                        let what = format!("{protocol:?} {of} {nth}: {said:?} over {class:#x}");
                        assert_eq!(sent, expected(case, base, leaves), "{what}");
                    }
                }
            }
        }
    }
}

/// Also where the frame has a tag.
#[test]
fn answers_keep_theirs() {
    let ef = Dscp::of_name("ef");
    let plan = [
        service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]),
        service("[fd00::200]:80", ForwardingMethod::Nat, &[backend("[fd00::10]:8080", 1)]),
        service("[fd00::201]:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.11:8080", 1)]),
    ]
    .map(|service| Service { dscp: ef, ..service });
    let Some(lab) = Lab::new(small(), &config(&plan)) else { return };
    for (client, to) in [
        ("10.0.0.50:5000", "10.0.0.200:80"),
        ("[fd00::50]:5000", "[fd00::200]:80"),
        ("[fd00::50]:5000", "[fd00::201]:80"),
    ] {
        for vlan in [None, Some(7)] {
            let request = Frame { vlan, ..tcp(SYN, client, to) };
            let out = lab.sent(&with_class(&request.bytes(), 0x2b));
            assert_eq!(with_class(&out, 0xbb), out);
            let there = see(&out);
            let answer = Frame::new(L4::Tcp(SYN | ACK), there.destination, there.source).payload(b"answer");
            let plain = lab.sent(&Frame { vlan, ..answer.clone() }.bytes());
            for class in [0x2e, 0xff] {
                let back = lab.sent(&with_class(&Frame { vlan, ..answer.clone() }.bytes(), class));
                assert_eq!(back, with_class(&plain, class));
            }
        }
    }
}

/// What is not forwarded is as it came, also where that is quoted.
#[test]
fn what_does_not_get_to_a_backend_is_not_marked() {
    let tunnel = ForwardingMethod::Tunnel { local: vec!["10.0.0.100".parse().unwrap()] };
    let of_udp = |service| Service { protocol: Protocol::Udp, ..service };
    let plan = [
        service("10.0.0.200:80", tunnel, &[backend("10.0.0.10:80", 1)]),
        of_udp(service("[fd00::201]:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:53", 1)])),
    ]
    .map(|service| Service { dscp: Dscp::of_name("cs7"), ..service });
    let Some(lab) = Lab::new(small(), &config(&plan)) else { return };
    let large = with_class(&tcp(SYN, "10.0.0.50:5000", "10.0.0.200:80").payload(&[1; 1460]).bytes(), 0x2a);
    let told = lab.send(&large);
    assert_eq!(told.verdict, Verdict::Transmit);
    assert_eq!(told.frame[L3 + 28..], large[L3..L3 + 548]);
    assert_eq!(told.frame[L3 + 1], 0xc0);
    // Its lengths differ, so that no checksum can be made for it.
    let mut short = with_class(&udp("[fd00::50]:5000", "[fd00::201]:53").payload(b"datagram").bytes(), 0x2a);
    lab.sent(&short);
    short[60..62].fill(0);
    short[59] += 1;
    assert_eq!(lab.dropped(&short), Drop::NoEqual);
}

#[test]
fn a_trace_says_so() {
    let ef = Dscp::of_name("ef");
    let plan = service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]);
    let Some(mut lab) = Lab::new(small(), &config(&[Service { dscp: ef, ..plan.clone() }])) else { return };
    let trace = |lab: &Lab, frame: &Frame| {
        let traced = lab.balancer.trace(&frame.bytes(), Some(lab.interface)).unwrap();
        (traced.dscp, traced.frame[L3 + 1])
    };
    let syn = tcp(SYN, "10.0.0.50:5000", "10.0.0.200:80");
    assert_eq!(trace(&lab, &syn), (ef, 0xb8));
    let there = see(&lab.sent(&syn.bytes()));
    assert_eq!(trace(&lab, &syn), (ef, 0xb8));
    assert_eq!(trace(&lab, &Frame::new(L4::Tcp(SYN | ACK), there.destination, there.source)), (None, 0));
    // It would not get there.
    assert_eq!(trace(&lab, &syn.clone().ttl(1)).0, None);
    lab.balancer.apply(&config(&[plan])).unwrap();
    assert_eq!(trace(&lab, &syn), (None, 0));
}
