//! ICMP errors find their connection by the packet that they quote, and are translated inside and out.

use rig_datapath::balancer::{Drop, ForwardingMethod, Pass};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::Ethernet;
use rig_wire::icmp::Icmp;
use rig_wire::icmpv6::Icmpv6;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::flags::{ACK, SYN};

use super::frames::{Frame, L4, icmp_error, see, see_packet, tcp};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

/// Next-hop MTU of fragmentation needed.
const MTU: u32 = 1400;

#[test]
fn fragmentation_needed_reaches_whoever_sent_too_much() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let request = tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").payload(b"up");
    let sent = see(&lab.sent(&request.bytes()));
    for quoted in [28, 40, 100] {
        // A router towards the backend, about what the balancer sent.
        let about = Frame::new(L4::Tcp(SYN), sent.source, sent.destination).payload(b"up").packet();
        let out = lab.sent(&icmp_error("10.0.0.9", "10.0.0.100", 3, 4, MTU, &about, quoted));
        let ip = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
        ip.verify().unwrap();
        assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("10.0.0.200".into(), "10.0.0.60".into()));
        let icmp = Icmp::parse(ip.payload()).unwrap();
        icmp.verify().unwrap();
        assert_eq!((icmp.kind(), icmp.code(), icmp.echo()), (3, 4, (0, MTU as u16)));
        // What the client once sent; its header's own checksum right, and TCP's where it is quoted.
        let quote = icmp.payload();
        assert!(PartialChecksum::ZERO.bytes(&quote[..20]).verifies());
        assert_eq!(quote[12..24], request.packet()[12..24]);
        if quoted >= 42 {
            assert_eq!(see_packet(quote).payload, b"up");
        }

        // A router towards the client, about what the service sent.
        let about = tcp(ACK, "10.0.0.200:80", "10.0.0.60:5000").payload(b"down").packet();
        let out = lab.sent(&icmp_error("10.0.0.99", "10.0.0.200", 3, 4, MTU, &about, quoted));
        let ip = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
        ip.verify().unwrap();
        assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("10.0.0.100".into(), "10.0.0.10".into()));
        let icmp = Icmp::parse(ip.payload()).unwrap();
        icmp.verify().unwrap();
        if quoted >= 44 {
            let quote = see_packet(icmp.payload());
            assert_eq!((quote.source, quote.destination), (sent.destination, sent.source));
        }
    }
}

#[test]
fn packet_too_big_of_ipv6() {
    let plan = config(&[service("[fd00::200]:80", full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let sent = see(&lab.sent(&tcp(SYN, "[fd00::60]:5000", "[fd00::200]:80").payload(b"up").bytes()));
    for quoted in [48, 60, 100] {
        let about = Frame::new(L4::Tcp(SYN), sent.source, sent.destination).payload(b"up").packet();
        let out = lab.sent(&icmp_error("fd00::9", "fd00::100", 2, 0, MTU, &about, quoted));
        let ip = Ipv6::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
        assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("fd00::200".into(), "fd00::60".into()));
        let icmp = Icmpv6::parse(ip.payload()).unwrap();
        icmp.verify(ip.pseudo()).unwrap();
        if quoted >= 62 {
            let quote = see_packet(icmp.payload());
            assert_eq!(quote.source.to_string(), "[fd00::60]:5000");
            assert_eq!(quote.destination.to_string(), "[fd00::200]:80");
        }
    }
}

#[test]
fn with_nat_a_routers_own_address_stays() {
    let plan = config(&[service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)])]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    let about = tcp(ACK, "10.0.0.200:80", "10.0.0.60:5000").packet();
    let out = lab.sent(&icmp_error("10.0.0.99", "10.0.0.200", 11, 0, 0, &about, 28));
    let ip = Ipv4::parse(Ethernet::parse(&out).unwrap().payload()).unwrap();
    ip.verify().unwrap();
    assert_eq!((ip.source().to_string(), ip.destination().to_string()), ("10.0.0.99".into(), "10.0.0.10".into()));
}

#[test]
fn errors_make_no_connections_and_keep_none_alive() {
    let plan = config(&[service("10.0.0.200:80", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let about = tcp(ACK, "10.0.0.200:80", "10.0.0.60:5000").packet();
    let error = icmp_error("10.0.0.99", "10.0.0.200", 3, 1, 0, &about, 28);
    lab.passes(&error, Pass::IcmpUnknown);
    lab.sent(&tcp(SYN, "10.0.0.60:5000", "10.0.0.200:80").bytes());
    lab.later(200);
    lab.sent(&error);
    // 30 s are 224 ticks.
    lab.later(30);
    assert_eq!(lab.balancer.sweep_all().unwrap().expired, 1);
    lab.passes(&error, Pass::IcmpUnknown);
    assert!(lab.balancer.drops().unwrap().iter().all(|(reason, count)| *reason != Drop::Internal || *count == 0));
}
