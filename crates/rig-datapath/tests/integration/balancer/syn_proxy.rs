//! The SYN proxy on packets: every byte out.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use rig_datapath::balancer::{CookieSecret, Drop, ForwardingMethod, Service, SynProxy};
use rig_wire::checksum::PartialChecksum;
use rig_wire::ethernet::Ethernet;
use rig_wire::ipv4::Ipv4;
use rig_wire::ipv6::Ipv6;
use rig_wire::tcp::flags::{ACK, RST, SYN};

use super::frames::{ethernet, ip, see};
use super::lab::Lab;
use super::{backend, config, full_nat, service, small};

/// One segment of TCP, all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

pub fn segment(source: &str, destination: &str, flags: u8) -> Segment {
    Segment {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        sequence: 0,
        acknowledged: 0,
        flags,
        window: 0,
        options: Vec::new(),
        payload: Vec::new(),
    }
}

impl Segment {
    pub fn bytes(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.source.port().to_be_bytes());
        tcp.extend(self.destination.port().to_be_bytes());
        tcp.extend(self.sequence.to_be_bytes());
        tcp.extend(self.acknowledged.to_be_bytes());
        tcp.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        let sum = match (self.source.ip(), self.destination.ip()) {
            (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => PartialChecksum::pseudo_v4(a, b, 6, tcp.len()),
            (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => PartialChecksum::pseudo_v6(a, b, 6, tcp.len()),
            _ => panic!("two families"),
        };
        let checksum = sum.bytes(&tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        ethernet(&ip(self.source.ip(), self.destination.ip(), 6, 64, &tcp), None)
    }

    /// What a frame says; every checksum in it is right.
    #[track_caller]
    pub fn of(frame: &[u8]) -> Self {
        let seen = see(frame);
        let packet = Ethernet::parse(frame).unwrap().payload().to_vec();
        let tcp = if packet[0] >> 4 == 4 {
            Ipv4::parse(&packet).unwrap().payload().to_vec()
        } else {
            Ipv6::parse(&packet).unwrap().payload().to_vec()
        };
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        Self {
            source: seen.source,
            destination: seen.destination,
            sequence: word(4),
            acknowledged: word(8),
            flags: tcp[13],
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            options: tcp[20..usize::from(tcp[12] >> 4) * 4].to_vec(),
            payload: seen.payload,
        }
    }
}

const CLIENT: &str = "10.0.0.50:5000";
const SERVICE: &str = "10.0.0.200:80";
/// As Linux has them: MSS, SACK, timestamps, window scale.
const OFFER: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0, 1, 3, 3, 9];

fn always(service: Service) -> Service {
    Service { syn_proxy: SynProxy::Always, ..service }
}

fn lab(forward: ForwardingMethod) -> Option<Lab> {
    let lab = Lab::new(small(), &config(&[always(service(SERVICE, forward, &[backend("10.0.0.10:8080", 1)]))]))?;
    lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
    lab.balancer.set_cookie_epoch(1001).unwrap();
    Some(lab)
}

fn syn() -> Segment {
    Segment { sequence: 0x0102_0304, window: 64_240, options: OFFER.to_vec(), ..segment(CLIENT, SERVICE, SYN) }
}

#[test]
fn a_connection_is_opened_from_both_sides() {
    let Some(lab) = lab(full_nat(&["10.0.0.100"])) else { return };
    let answer = Segment::of(&lab.sent(&syn().bytes()));
    let t0 = (lab.tick << 7 | 1).to_be_bytes();
    let options = [&[2, 4, 5, 0xb4, 4, 2, 8, 10][..], &t0, &[0, 0, 1, 0, 1, 3, 3, 7]].concat();
    let cookie = answer.sequence;
    let expected = Segment {
        sequence: cookie,
        acknowledged: 0x0102_0305,
        window: 0,
        options,
        ..segment(SERVICE, CLIENT, SYN | ACK)
    };
    assert_eq!(answer, expected);
    assert_eq!(lab.connections(), [""; 0]);
    let times = |own: [u8; 4], echo: [u8; 4]| [&[1, 1, 8, 10][..], &own, &echo].concat();
    let ack = Segment {
        sequence: 0x0102_0305,
        acknowledged: cookie + 1,
        window: 126,
        options: times([0, 0, 1, 9], t0),
        ..segment(CLIENT, SERVICE, ACK)
    };
    let begun = Segment::of(&lab.sent(&ack.bytes()));
    let local = begun.source.to_string();
    let options = [&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 1, 9, 0, 0, 0, 0, 1, 3, 3, 9][..]].concat();
    assert_eq!(
        begun,
        Segment { sequence: 0x0102_0304, window: 64_512, options, ..segment(&local, "10.0.0.10:8080", SYN) }
    );
    let accepted = Segment {
        sequence: 0x7000_0000,
        acknowledged: 0x0102_0305,
        window: 65_160,
        options: [&[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 9, 9, 0, 0, 1, 9, 1, 3, 3, 5][..]].concat(),
        ..segment("10.0.0.10:8080", &local, SYN | ACK)
    };
    let opened = Segment::of(&lab.sent(&accepted.bytes()));
    assert_eq!(
        opened,
        Segment {
            sequence: cookie,
            acknowledged: 0x0102_0305,
            window: 65_160 >> 7,
            options: times(t0, [0, 0, 1, 9]),
            payload: vec![0],
            ..segment(SERVICE, CLIENT, ACK)
        }
    );
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > {local} > 10.0.0.10:8080 SYN_RECV")]);
    // What the backend says is behind the cookie for the client; 64 of its windows' units are 16 here.
    let delta = cookie.wrapping_sub(0x7000_0000);
    let says = Segment {
        sequence: 0x7000_0001,
        acknowledged: 0x0102_0305,
        window: 64,
        options: times([0, 0, 9, 12], [0, 0, 1, 9]),
        payload: b"220 ready".to_vec(),
        ..segment("10.0.0.10:8080", &local, ACK)
    };
    let t = u32::from_be_bytes(t0).wrapping_add(3);
    assert_eq!(
        Segment::of(&lab.sent(&says.bytes())),
        Segment {
            sequence: 0x7000_0001_u32.wrapping_add(delta),
            window: 16,
            options: times(t.to_be_bytes(), [0, 0, 1, 9]),
            source: SERVICE.parse().unwrap(),
            destination: CLIENT.parse().unwrap(),
            ..says
        }
    );
    // And what the client acknowledges is the backend's own, selectively, too.
    let number = |n: u32| n.to_be_bytes();
    let sacked =
        |by: u32| [number(0x7000_0100_u32.wrapping_add(by)), number(0x7000_0200_u32.wrapping_add(by))].concat();
    let options = |echo: [u8; 4], by| [&times([0, 0, 1, 20], echo)[..], &[1, 1, 5, 10], &sacked(by)].concat();
    let acknowledges = Segment {
        sequence: 0x0102_0305,
        acknowledged: 0x7000_000a_u32.wrapping_add(delta),
        window: 500,
        options: options(t.to_be_bytes(), delta),
        ..segment(CLIENT, SERVICE, ACK)
    };
    assert_eq!(
        Segment::of(&lab.sent(&acknowledges.bytes())),
        Segment {
            acknowledged: 0x7000_000a,
            options: options([0, 0, 9, 12], 0),
            source: local.parse().unwrap(),
            destination: "10.0.0.10:8080".parse().unwrap(),
            ..acknowledges
        }
    );
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > {local} > 10.0.0.10:8080 ESTABLISHED")]);
}

/// Backends that answer by themselves are not spoken for: a client shows that its address is its own, and asks again.
#[test]
fn a_client_is_admitted_by_a_reset_where_backends_answer_by_themselves() {
    let tunnel = ForwardingMethod::Tunnel { local: vec!["10.0.0.100".parse().unwrap()] };
    for forward in [ForwardingMethod::Route, tunnel] {
        let service = service(SERVICE, forward, &[backend("10.0.0.10:80", 1)]);
        let Some(mut lab) = Lab::new(small(), &config(&[always(service)])) else { return };
        lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
        lab.balancer.set_cookie_epoch(1001).unwrap();
        let answer = Segment::of(&lab.sent(&syn().bytes()));
        let t0 = (lab.tick << 7 | 1).to_be_bytes();
        let options = [&[2, 4, 5, 0xb4, 4, 2, 8, 10][..], &t0, &[0, 0, 1, 0, 1, 3, 3, 7]].concat();
        let asked = answer.acknowledged;
        assert_eq!(answer, Segment { acknowledged: asked, options, ..segment(SERVICE, CLIENT, SYN | ACK) });
        // Of nothing that the client has sent, whatever it sends.
        assert!(asked != 0x0102_0304 && asked != 0x0102_0305);
        let other = Segment { sequence: 7, ..syn() };
        assert_eq!(Segment::of(&lab.sent(&other.bytes())).acknowledged, asked);
        assert_eq!(lab.connections(), [""; 0]);

        let reset = Segment { sequence: asked, ..segment(CLIENT, SERVICE, RST) };
        for wrong in [
            Segment { sequence: asked ^ 1, ..reset.clone() },
            Segment { sequence: asked ^ 1 << 31, ..reset.clone() },
            Segment { flags: RST | ACK, ..reset.clone() },
            Segment { source: "10.0.0.50:5001".parse().unwrap(), ..reset.clone() },
            Segment { source: "10.0.0.60:5000".parse().unwrap(), ..reset.clone() },
        ] {
            assert_eq!(lab.dropped(&wrong.bytes()), Drop::NoConnection, "{wrong:?}");
            assert_eq!(Segment::of(&lab.sent(&syn().bytes())).acknowledged, asked);
        }
        assert_eq!(lab.dropped(&reset.bytes()), Drop::Admitted);
        lab.sent(&syn().bytes());
        // By other ports, too: it is the address that is known.
        let of = |client: &str| Segment { source: client.parse().unwrap(), ..syn() };
        lab.sent(&of("10.0.0.50:5001").bytes());
        assert_eq!(lab.connections().len(), 2);
        assert_eq!(Segment::of(&lab.sent(&of("10.0.0.60:5000").bytes())).flags, SYN | ACK);
        // After 10 min it is asked again, also where a connection of the same ports is over, whose backend hears nothing of it.
        lab.sent(&segment(CLIENT, SERVICE, RST).bytes());
        lab.later(4471);
        let answer = Segment::of(&lab.sent(&syn().bytes()));
        assert_eq!((answer.flags, answer.acknowledged), (SYN | ACK, asked));
        assert_eq!(lab.dropped(&reset.bytes()), Drop::Admitted);
        lab.sent(&syn().bytes());
        assert_eq!(lab.connections().len(), 2);
    }
}

/// A challenge holds for as long as a cookie.
#[test]
fn a_challenge_holds_an_epoch_away() {
    let service = service("[fd00::200]:80", ForwardingMethod::Route, &[backend("[fd00::10]:80", 1)]);
    let Some(lab) = Lab::new(small(), &config(&[always(service)])) else { return };
    lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
    for (epoch, holds) in [(1000, true), (1001, true), (1002, true), (1003, false)] {
        lab.balancer.set_cookie_epoch(1001).unwrap();
        let client = format!("[fd00::{epoch}]:5000");
        let asked = Segment::of(&lab.sent(&segment(&client, "[fd00::200]:80", SYN).bytes())).acknowledged;
        lab.balancer.set_cookie_epoch(epoch).unwrap();
        let reset = Segment { sequence: asked, ..segment(&client, "[fd00::200]:80", RST) };
        let expected = if holds { Drop::Admitted } else { Drop::NoConnection };
        assert_eq!(lab.dropped(&reset.bytes()), expected, "{epoch}");
    }
}

/// A client that the proxy has answered, and its third packet.
fn third(lab: &Lab) -> Segment {
    let answer = Segment::of(&lab.sent(&Segment { options: Vec::new(), ..syn() }.bytes()));
    // What the client does not offer is not offered to it.
    assert_eq!(answer.options, [2, 4, 5, 0xb4, 1, 1, 1, 1, 1, 1, 1, 1]);
    let (sequence, acknowledged) = (answer.acknowledged, answer.sequence + 1);
    Segment { sequence, acknowledged, window: 1000, ..segment(CLIENT, SERVICE, ACK) }
}

#[test]
fn only_who_has_had_the_answer_gets_a_connection() {
    let Some(lab) = lab(full_nat(&["10.0.0.100"])) else { return };
    let third = third(&lab);
    for wrong in [
        Segment { acknowledged: third.acknowledged + 1, ..third.clone() },
        Segment { sequence: third.sequence + 1, ..third.clone() },
        Segment { source: "10.0.0.50:5001".parse().unwrap(), ..third.clone() },
        Segment { source: "10.0.0.60:5000".parse().unwrap(), ..third.clone() },
        Segment { flags: ACK | SYN, ..third.clone() },
        Segment { flags: ACK | RST, ..third.clone() },
    ] {
        assert_eq!(lab.dropped(&wrong.bytes()), Drop::NoConnection, "{wrong:?}");
    }
    // With another secret, or two epochs away, it is void.
    for epoch in [999, 1003] {
        lab.balancer.set_cookie_epoch(epoch).unwrap();
        assert_eq!(lab.dropped(&third.bytes()), Drop::NoConnection, "{epoch}");
    }
    lab.balancer.set_cookie_epoch(1002).unwrap();
    lab.balancer.set_cookie_secret(CookieSecret::from([7; 16])).unwrap();
    assert_eq!(lab.dropped(&third.bytes()), Drop::NoConnection);
    lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
    assert_eq!(lab.connections(), [""; 0]);
    let begun = Segment::of(&lab.sent(&third.bytes()));
    assert_eq!((begun.sequence, begun.flags, begun.window), (third.sequence - 1, SYN, 1000));
}

/// Balancers of one cluster turn their keys at moments of their own: an epoch earlier or later it holds.
#[test]
fn a_cookie_holds_an_epoch_away() {
    for epoch in [1000, 1002] {
        let Some(lab) = lab(full_nat(&["10.0.0.100"])) else { return };
        let third = third(&lab);
        lab.balancer.set_cookie_epoch(epoch).unwrap();
        assert_eq!(Segment::of(&lab.sent(&third.bytes())).flags, SYN, "{epoch}");
    }
}

#[test]
fn a_lost_syn_goes_again_with_the_clients_question() {
    let Some(mut lab) = lab(ForwardingMethod::Nat) else { return };
    let third = third(&lab);
    let begun = lab.sent(&third.bytes());
    assert_eq!(lab.dropped(&third.bytes()), Drop::ProxyWaits, "once in a tick");
    lab.later(1);
    let question = Segment { sequence: third.sequence - 1, ..third.clone() };
    assert_eq!(lab.sent(&question.bytes()), begun);
    // What is no answer to it is none.
    let backend = |flags, acknowledged| Segment { acknowledged, ..segment("10.0.0.10:8080", CLIENT, flags) }.bytes();
    assert_eq!(lab.dropped(&backend(ACK, third.sequence)), Drop::ProxyWaits);
    assert_eq!(lab.dropped(&backend(RST | ACK, third.sequence + 9)), Drop::ProxyWaits);
    // A backend that has another connection of these ports has it reset, so that it takes the next SYN.
    for flags in [ACK, SYN | ACK] {
        let reset = Segment { sequence: third.sequence + 9, ..segment(CLIENT, "10.0.0.10:8080", RST) };
        assert_eq!(Segment::of(&lab.sent(&backend(flags, third.sequence + 9))), reset);
    }
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > - > 10.0.0.10:8080 SYN_RECV")]);
    // A backend that refuses resets the client, at the number that it expects.
    let reset = Segment::of(&lab.sent(&backend(RST | ACK, third.sequence)));
    let expected =
        Segment { sequence: third.acknowledged, acknowledged: third.sequence, ..segment(SERVICE, CLIENT, RST | ACK) };
    assert_eq!(reset, expected);
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > - > 10.0.0.10:8080 CLOSE")]);
    // Over, it is followed by another one, whose SYN does not end it yet.
    let answer = Segment::of(&lab.sent(&Segment { sequence: 77, ..syn() }.bytes()));
    assert_eq!(lab.connections().len(), 1);
    let (sequence, acknowledged) = (answer.acknowledged, answer.sequence + 1);
    let begun = Segment::of(&lab.sent(&Segment { sequence, acknowledged, ..third }.bytes()));
    assert_eq!((begun.sequence, begun.flags), (77, SYN));
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > - > 10.0.0.10:8080 SYN_RECV")]);
}

/// A drained backend's connection, not yet answered, ends with its client's next packet, whichever it is.
#[test]
fn a_drained_backend_gets_no_syn_again() {
    let forward = full_nat(&["10.0.0.100"]);
    let Some(mut lab) = lab(forward.clone()) else { return };
    for is_syn in [true, false] {
        let third = third(&lab);
        lab.sent(&third.bytes());
        let backends = [backend("10.0.0.10:8080", 0), backend("10.0.0.11:8080", 1)];
        lab.balancer.apply(&config(&[always(service(SERVICE, forward.clone(), &backends))])).unwrap();
        lab.later(1);
        if is_syn {
            assert_eq!(Segment::of(&lab.sent(&syn().bytes())).flags, SYN | ACK);
            assert_eq!(lab.connections(), [""; 0], "the drained backend's has ended");
        }
        let begun = Segment::of(&lab.sent(&third.bytes()));
        assert_eq!((begun.destination, begun.flags), ("10.0.0.11:8080".parse().unwrap(), SYN));
        assert_eq!(lab.connections().len(), 1);
        let back =
            Segment { acknowledged: third.sequence, ..segment("10.0.0.11:8080", &begun.source.to_string(), RST | ACK) };
        lab.sent(&back.bytes());
        lab.balancer.flush(None, None).unwrap();
        lab.later(1000);
        lab.balancer.sweep_all().unwrap();
        lab.balancer
            .apply(&config(&[always(service(SERVICE, forward.clone(), &[backend("10.0.0.10:8080", 1)]))]))
            .unwrap();
    }
}

/// A client that begins anew with the ports of a connection of which it knows nothing any more.
#[test]
fn another_connection_of_the_same_ports_comes_up() {
    let Some(mut lab) = lab(full_nat(&["10.0.0.100"])) else { return };
    let third = third(&lab);
    let begun = Segment::of(&lab.sent(&third.bytes()));
    // While the backend has not answered, another SYN ends it.
    let again = Segment { sequence: 0x4000_0000, options: Vec::new(), ..syn() };
    let answer = Segment::of(&lab.sent(&again.bytes()));
    assert_eq!((answer.flags, answer.acknowledged), (SYN | ACK, 0x4000_0001));
    assert_eq!(lab.connections(), [""; 0]);
    let third = Segment { sequence: 0x4000_0001, acknowledged: answer.sequence + 1, ..third };
    let second = Segment::of(&lab.sent(&third.bytes()));
    assert_ne!(second.source, begun.source);
    let local = second.source.to_string();
    let from =
        |flags, acknowledged| Segment { sequence: 5, acknowledged, ..segment("10.0.0.10:8080", &local, flags) }.bytes();
    assert_eq!(Segment::of(&lab.sent(&from(SYN | ACK, 0x4000_0001))).flags, ACK);
    lab.sent(&third.bytes());
    // What it resets wrongly goes on as the same connection, with the same number.
    lab.sent(&Segment { flags: RST, ..third.clone() }.bytes());
    lab.later(1);
    let goes_on = Segment::of(&lab.sent(&third.bytes()));
    assert_eq!((goes_on.source, goes_on.acknowledged), (second.source, 6));
    assert_eq!(lab.connections(), [format!("{CLIENT} > {SERVICE} > {local} > 10.0.0.10:8080 ESTABLISHED")]);
    // Once it is open the backend says whether it still has it: a SYN-ACK of another one ends it.
    let anew = Segment { sequence: 0x5000_0000, ..again };
    assert_eq!(Segment::of(&lab.sent(&anew.bytes())).destination, "10.0.0.10:8080".parse().unwrap());
    assert_eq!(lab.connections().len(), 1);
    let reset = Segment::of(&lab.sent(&from(SYN | ACK, 0x5000_0001)));
    assert_eq!(reset, Segment { sequence: 0x5000_0001, ..segment(&local, "10.0.0.10:8080", RST) });
    assert_eq!(lab.connections(), [""; 0]);
    assert_eq!(Segment::of(&lab.sent(&anew.bytes())).flags, SYN | ACK);
}

/// Addresses in whose name SYNs are forged reset what they are answered by: that is no answer. A backend's reset is one, and so is what a
/// client sends after all.
#[test]
fn connections_that_their_client_resets_unanswered_count_until_they_are_forgotten() {
    let from = NonZeroU32::new(3).unwrap();
    for (service_at, client, local, backend_at) in [
        (SERVICE, "10.0.0.50", "10.0.0.100", "10.0.0.10:8080"),
        ("[fd00::200]:80", "fd00::50", "fd00::100", "[fd00::10]:8080"),
    ] {
        let automatic = Service {
            syn_proxy: SynProxy::Auto { from },
            ..service(service_at, full_nat(&[local]), &[backend(backend_at, 1)])
        };
        let Some(mut lab) = Lab::new(small(), &config(&[automatic])) else { return };
        let client: IpAddr = client.parse().unwrap();
        let of = |port: u16, flags, sequence| {
            let source = (client, port).into();
            Segment { source, sequence, ..segment("10.0.0.50:1", service_at, flags) }
        };
        let unanswered = |lab: &Lab| lab.balancer.services().unwrap()[0].unanswered;
        let begin = |lab: &Lab, port| Segment::of(&lab.sent(&of(port, SYN, 8).bytes()));
        let refused = begin(&lab, 1);
        let reset = Segment {
            source: refused.destination,
            destination: refused.source,
            ..segment(backend_at, backend_at, RST | ACK)
        };
        lab.sent(&reset.bytes());
        assert_eq!(unanswered(&lab), 0);
        // The client's reset behind it makes it none, and no later one of the backend changes one of the client's.
        lab.sent(&of(1, RST, 9).bytes());
        assert_eq!(unanswered(&lab), 0);
        for port in [2, 3] {
            let out = begin(&lab, port);
            lab.sent(&of(port, RST, 9).bytes());
            let reset =
                Segment { source: out.destination, destination: out.source, ..segment(backend_at, backend_at, RST) };
            lab.sent(&reset.bytes());
        }
        assert_eq!(unanswered(&lab), 2);
        lab.balancer.expect_syn_proxy().unwrap();
        begin(&lab, 4);
        lab.sent(&of(4, RST, 9).bytes());
        assert_eq!((unanswered(&lab), begin(&lab, 5).flags), (3, SYN | ACK));
        // Who has reset it and goes on was there.
        lab.sent(&of(4, ACK, 9).bytes());
        assert_eq!((unanswered(&lab), begin(&lab, 6).flags), (2, SYN));
        // 10 s of silence.
        lab.later(76);
        lab.balancer.sweep_all().unwrap();
        assert_eq!(unanswered(&lab), 1, "the last SYN's alone");
        lab.later(1000);
        lab.balancer.sweep_all().unwrap();
        assert_eq!(unanswered(&lab), 0);
    }
}

/// While as many connections are unanswered as the service says, and not before or after.
#[test]
fn it_begins_and_ends_by_itself() {
    let from = NonZeroU32::new(2).unwrap();
    let automatic = Service {
        syn_proxy: SynProxy::Auto { from },
        ..service(SERVICE, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)])
    };
    let Some(mut lab) = Lab::new(small(), &config(&[automatic])) else { return };
    let first = |port: u16| Segment { source: ([10, 0, 0, 50], port).into(), ..syn() }.bytes();
    let is_answered = |lab: &Lab, port| {
        let flags = Segment::of(&lab.sent(&first(port))).flags;
        assert!(flags == SYN || flags == SYN | ACK, "{flags:x}");
        flags == SYN | ACK
    };
    assert!(!is_answered(&lab, 1) && !is_answered(&lab, 2));
    assert!(!is_answered(&lab, 3), "there is no room for it yet");
    let memory = || lab.balancer.memory().unwrap();
    assert_eq!(memory().splices, 0);
    let before = memory().total();
    assert!(lab.balancer.expect_syn_proxy().unwrap() && !lab.balancer.expect_syn_proxy().unwrap());
    assert!(memory().splices >= 16 * u64::from(lab.balancer.sizes().connections));
    assert_eq!(memory().total(), before + memory().splices);
    assert!(is_answered(&lab, 4));
    assert_eq!(lab.balancer.services().unwrap()[0].unanswered, 3);
    // Two come up, and with one left it has ended.
    for port in [1, 2] {
        let ack = Segment { source: ([10, 0, 0, 50], port).into(), sequence: 9, ..segment(CLIENT, SERVICE, ACK) };
        lab.sent(&ack.bytes());
    }
    assert_eq!(lab.balancer.services().unwrap()[0].unanswered, 1);
    assert!(!is_answered(&lab, 5));
    assert!(is_answered(&lab, 6));
    // Those that nobody answers are forgotten.
    lab.later(1000);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(lab.balancer.services().unwrap()[0].unanswered, 0);
    assert!(!is_answered(&lab, 6));
}
