//! Services of any port: each port that no other service has goes to their backends, as it is.

use std::fs;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::slice;
use std::time::Duration;

use rig_datapath::balancer::{
    Adopted, AdoptionRefusal, Balancer, CaptureReason, CaptureRequest, Clock, Config, CookieSecret, Drop,
    ForwardingMethod, Pass, Persistence, Protocol, Service, SharedConnection, SynProxy,
};
use rig_datapath::test_run::Verdict;
use rig_wire::ethernet::{Ethernet, HEADER};
use rig_wire::icmp::Icmp;
use rig_wire::ipv4::Ipv4;
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::pool::Pooled;

use super::changes::BpfFs;
use super::frames::{Frame, L4, fragments, icmp_error, see, see_packet, tcp, udp, whole};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, service, small, udp_service};

const CLIENT: &str = "10.0.0.60:5000";
const ANY: &str = "10.0.0.200:0";

fn tunnel(local: &str) -> ForwardingMethod {
    ForwardingMethod::Tunnel { local: vec![local.parse().unwrap()] }
}

fn any(forward: ForwardingMethod) -> Service {
    service(ANY, forward, &["10.0.0.10:0", "10.0.0.11:0"].map(|at| backend(at, 1)))
}

fn kept(group: u32, service: Service) -> Service {
    let persistence = Some(Persistence { timeout: Duration::from_secs(60), prefix: 32, group: NonZeroU32::new(group) });
    Service { persistence, ..service }
}

fn ends(frame: &[u8]) -> [String; 2] {
    let seen = see(frame);
    [seen.source.to_string(), seen.destination.to_string()]
}

/// By every way of forwarding and both families: the same port of a client to two ports of the address is two connections, of which each goes to
/// the port that was asked for, and is closed by itself.
#[test]
fn each_port_is_a_connection_of_its_own() {
    let six = |forward| service("[fd00::200]:0", forward, &[backend("[fd00::10]:0", 1)]);
    let nat_six = Service { address: "[fd00::201]:0".parse().unwrap(), ..six(ForwardingMethod::Nat) };
    let four = |at: &str, forward| service(at, forward, &[backend("10.0.0.10:0", 1)]);
    let plan = config(&[
        four("10.0.0.200:0", ForwardingMethod::Nat),
        four("10.0.0.201:0", ForwardingMethod::Route),
        four("10.0.0.202:0", tunnel("10.0.0.100")),
        six(tunnel("fd00::100")),
        nat_six,
    ]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    for (client, at, host, outer) in [
        ("10.0.0.60:5000", "10.0.0.200", Some("10.0.0.10"), 0),
        ("10.0.0.60:5000", "10.0.0.201", None, 0),
        ("10.0.0.60:5000", "10.0.0.202", None, 20),
        ("[fd00::60]:5000", "[fd00::200]", None, 40),
        ("[fd00::60]:5000", "[fd00::201]", Some("[fd00::10]"), 0),
    ] {
        let to = |port: u16, flags| {
            let out = lab.sent(&tcp(flags, client, &format!("{at}:{port}")).payload(b"there").bytes());
            assert_eq!(Ethernet::parse(&out).unwrap().destination(), lab.far);
            let seen = see_packet(&out[HEADER + outer..]);
            let expected = format!("{}:{port}", host.unwrap_or(at));
            assert_eq!((seen.source.to_string(), seen.destination.to_string()), (client.to_owned(), expected));
            assert_eq!((seen.ttl, seen.flags, &seen.payload[..]), (63, flags, &b"there"[..]));
        };
        [80, 443, 1, 65_535].iter().for_each(|port| to(*port, SYN));
        to(443, ACK);
        if let Some(host) = host {
            let back = |port: u16, flags| {
                let out = lab.sent(&tcp(flags, &format!("{host}:{port}"), client).payload(b"back").bytes());
                assert_eq!(ends(&out), [format!("{at}:{port}"), client.to_owned()]);
            };
            [443, 65_535].iter().for_each(|port| back(*port, SYN | ACK));
            // Of a port that nobody asked for there is no connection.
            let stranger = tcp(SYN | ACK, &format!("{host}:444"), client).bytes();
            lab.passes(&stranger, Pass::NoService);
        }
        to(443, FIN | ACK);
        let lines = lab.connections().into_iter().filter(|line| line.contains(&format!(" > {at}:")));
        let state = |line: &String| line.rsplit(' ').next().unwrap().to_owned();
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.len(), 4, "{lines:?}");
        let of = |port: u16| {
            let backend = format!("{}:{port}", if at.starts_with('[') { "[fd00::10]" } else { "10.0.0.10" });
            let line = lines.iter().find(|line| line.contains(&format!(" > {at}:{port} > - > {backend} ")));
            state(line.unwrap_or_else(|| panic!("none of port {port}: {lines:?}")))
        };
        assert_ne!(of(443), of(80));
        assert_eq!((of(80), of(1)), (of(1), of(65_535)));
    }
    // Others at the address are as ever, and so are other protocols and addresses.
    lab.passes(&udp(CLIENT, "10.0.0.200:80").bytes(), Pass::NoService);
    lab.passes(&tcp(SYN, CLIENT, "10.0.0.210:80").bytes(), Pass::NoService);
    assert_eq!(lab.dropped(&tcp(ACK, "10.0.0.60:5009", "10.0.0.200:80").bytes()), Drop::NoConnection);
    assert_eq!(lab.dropped(&tcp(RST, CLIENT, "10.0.0.200:81").bytes()), Drop::NoConnection);
}

/// A service of the port is looked for first. What began before goes on where it was.
#[test]
fn a_service_of_the_port_goes_first_also_when_it_comes_later() {
    let of_any = any(ForwardingMethod::Nat);
    let exact = service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.12:8080", 1)]);
    let Some(mut lab) = Lab::new(small(), &config(&[of_any.clone(), exact.clone()])) else { return };
    let goes = |lab: &Lab, client: &str, flags, port: u16| {
        see(&lab.sent(&tcp(flags, client, &format!("10.0.0.200:{port}")).bytes())).destination.to_string()
    };
    assert_eq!(goes(&lab, CLIENT, SYN, 80), "10.0.0.12:8080");
    assert_eq!(goes(&lab, CLIENT, SYN, 8080), "10.0.0.10:8080");
    lab.balancer.apply(&config(slice::from_ref(&exact))).unwrap();
    assert_eq!(goes(&lab, CLIENT, ACK, 8080), "10.0.0.10:8080");
    lab.passes(&tcp(SYN, CLIENT, "10.0.0.200:8081").bytes(), Pass::NoService);
    lab.balancer.apply(&config(slice::from_ref(&of_any))).unwrap();
    assert_eq!(goes(&lab, CLIENT, ACK, 80), "10.0.0.12:8080");
    assert_eq!(goes(&lab, "10.0.0.61:5000", SYN, 80), "10.0.0.11:80");
    lab.balancer.apply(&config(&[of_any.clone(), exact.clone()])).unwrap();
    assert_eq!(goes(&lab, "10.0.0.61:5000", ACK, 80), "10.0.0.11:80");
    assert_eq!(goes(&lab, "10.0.0.62:5000", SYN, 80), "10.0.0.12:8080");
    // Its own port, once that connection is over, is the other service's.
    lab.sent(&tcp(RST, "10.0.0.61:5000", "10.0.0.200:80").bytes());
    assert_eq!(goes(&lab, "10.0.0.61:5000", SYN, 80), "10.0.0.12:8080");
    // A backend in common, at its port: nothing would tell answers apart.
    let common = Service { backends: vec![backend("10.0.0.10:8080", 1)], ..exact };
    lab.balancer.apply(&config(&[of_any, common])).unwrap();
    lab.sent(&tcp(RST, CLIENT, "10.0.0.200:80").bytes());
    assert_eq!(lab.dropped(&tcp(SYN, CLIENT, "10.0.0.200:80").bytes()), Drop::NatClash, "{:?}", lab.connections());
}

#[test]
fn errors_reach_both_ends_with_the_port_that_was_asked_for() {
    let Some(lab) = Lab::new(small(), &config(&[service(ANY, ForwardingMethod::Nat, &[backend("10.0.0.10:0", 1)])]))
    else {
        return;
    };
    for port in [80, 443] {
        let at = format!("10.0.0.200:{port}");
        let sent = see(&lab.sent(&tcp(SYN, CLIENT, &at).payload(b"up").bytes()));
        let about = Frame::new(L4::Tcp(SYN), sent.source, sent.destination).payload(b"up").packet();
        let out = lab.sent(&icmp_error("10.0.0.9", "10.0.0.60", 3, 4, 1400, &about, 60));
        let quoted = |out: &[u8]| {
            let ip = Ipv4::parse(Ethernet::parse(out).unwrap().payload()).unwrap();
            ip.verify().unwrap();
            let icmp = Icmp::parse(ip.payload()).unwrap();
            icmp.verify().unwrap();
            let quote = see_packet(icmp.payload());
            (ip.destination().to_string(), [quote.source.to_string(), quote.destination.to_string()])
        };
        assert_eq!(quoted(&out), ("10.0.0.60".to_owned(), [CLIENT.to_owned(), at.clone()]));
        let about = tcp(ACK, &at, CLIENT).payload(b"down").packet();
        let out = lab.sent(&icmp_error("10.0.0.99", "10.0.0.200", 3, 4, 1400, &about, 60));
        let backend = format!("10.0.0.10:{port}");
        assert_eq!(quoted(&out), ("10.0.0.10".to_owned(), [backend, CLIENT.to_owned()]));
    }
    let about = tcp(ACK, "10.0.0.200:81", CLIENT).packet();
    lab.passes(&icmp_error("10.0.0.99", "10.0.0.200", 3, 4, 1400, &about, 28), Pass::IcmpUnknown);
}

#[test]
fn datagrams_in_fragments_go_the_way_of_their_port() {
    let of_udp = |at: &str, forward| udp_service(at, forward, &["10.0.0.10:0", "10.0.0.11:0"].map(|at| backend(at, 1)));
    let plan =
        config(&[of_udp("10.0.0.200:0", ForwardingMethod::Nat), of_udp("10.0.0.201:0", ForwardingMethod::Route)]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    let mut hosts = Vec::new();
    for (at, port, id) in
        [("10.0.0.200", 53_u16, 1), ("10.0.0.200", 54, 2), ("10.0.0.201", 53, 3), ("10.0.0.201", 54, 4)]
    {
        let to = format!("{at}:{port}");
        let question = udp("10.0.0.50:5000", &to).payload(&[id as u8; 1200]);
        let out = |part: &Vec<u8>| lab.sent(part)[HEADER..].to_vec();
        let parts: Vec<_> = fragments(&question.bytes(), &[504, 1000], id).iter().map(out).collect();
        let arrived = see_packet(&whole(&parts));
        assert_eq!((arrived.source, &arrived.payload), (question.source, &question.payload));
        assert_eq!(arrived.destination.port(), port);
        hosts.push(arrived.destination.ip().to_string());
    }
    assert_eq!(hosts, ["10.0.0.10", "10.0.0.11", "10.0.0.201", "10.0.0.201"]);
    assert_eq!(lab.connections().len(), 4);
}

/// What it is mostly for: all ports of one client at one backend, and those of other services with it.
#[test]
fn all_ports_of_a_client_come_to_one_backend() {
    let hosts = ["10.0.0.10", "10.0.0.11", "10.0.0.12"];
    let at = |port: u16| hosts.map(|host| backend(&format!("{host}:{port}"), 1));
    let of_any = kept(7, service(ANY, ForwardingMethod::Nat, &at(0)));
    let exact = kept(7, service("10.0.0.200:21", ForwardingMethod::Nat, &at(2121)));
    let Some(lab) = Lab::new(small(), &config(&[of_any, exact])) else { return };
    let mut firsts = Vec::new();
    for client in ["10.0.0.60", "10.0.0.61", "10.0.0.62"] {
        let goes = |from: u16, port: u16| {
            see(&lab.sent(&tcp(SYN, &format!("{client}:{from}"), &format!("10.0.0.200:{port}")).bytes())).destination
        };
        let first = goes(5000, 21);
        assert_eq!(first.port(), 2121);
        for port in [20, 80, 40_000, 50_000] {
            let to = goes(5000, port);
            assert_eq!((to.ip(), to.port()), (first.ip(), port));
        }
        assert_eq!(goes(5001, 21), first);
        firsts.push(first);
    }
    firsts.sort();
    firsts.dedup();
    assert!(firsts.len() > 1, "{firsts:?}");
    assert_eq!(lab.balancer.persistent_sources().unwrap().len(), 3);
}

#[test]
fn datagrams_are_scheduled_by_themselves_with_route_and_tunnel() {
    let backends = ["10.0.0.10:0", "10.0.0.11:0"].map(|at| backend(at, 1));
    let once = |at: &str, forward| Service { one_packet: true, ..udp_service(at, forward, &backends) };
    let plan = config(&[once("10.0.0.200:0", ForwardingMethod::Route), once("10.0.0.201:0", tunnel("10.0.0.100"))]);
    let Some(lab) = Lab::new(small(), &plan) else { return };
    for (at, outer) in [("10.0.0.200", 0), ("10.0.0.201", 20)] {
        for port in [53, 4789, 53] {
            let out = lab.sent(&udp(CLIENT, &format!("{at}:{port}")).payload(b"one").bytes());
            let seen = see_packet(&out[HEADER + outer..]);
            assert_eq!((seen.destination.to_string(), &seen.payload[..]), (format!("{at}:{port}"), &b"one"[..]));
        }
    }
    assert!(lab.connections().is_empty());
    let counted: u64 = lab.balancer.services().unwrap().iter().map(|service| service.traffic.in_packets).sum();
    assert_eq!(counted, 6);
}

#[test]
fn the_syn_proxy_opens_each_port_by_itself() {
    let of_any = Service { syn_proxy: SynProxy::Always, ..any(ForwardingMethod::Nat) };
    let Some(lab) = Lab::new(small(), &config(&[of_any])) else { return };
    lab.balancer.set_cookie_secret(CookieSecret::from(*b"sixteen bytes ..")).unwrap();
    lab.balancer.set_cookie_epoch(1001).unwrap();
    for port in [80, 443] {
        let at = format!("10.0.0.200:{port}");
        let syn = Segment { sequence: 100, window: 64_240, ..segment(CLIENT, &at, SYN) };
        let answer = Segment::of(&lab.send(&syn.bytes()).frame);
        assert_eq!((answer.source.to_string(), answer.flags), (at.clone(), SYN | ACK));
        let third = Segment {
            sequence: 101,
            acknowledged: answer.sequence.wrapping_add(1),
            window: 64_240,
            ..segment(CLIENT, &at, ACK)
        };
        let opened = Segment::of(&lab.sent(&third.bytes()));
        assert_eq!((opened.destination.port(), opened.flags, opened.sequence), (port, SYN, 100));
        // A cookie of this port opens no other one.
        let other = Segment { destination: "10.0.0.200:22".parse().unwrap(), ..third };
        assert_eq!(lab.dropped(&other.bytes()), Drop::NoConnection);
    }
    assert_eq!(lab.connections().len(), 2);
}

#[test]
fn a_trace_foresees_it_and_names_the_service() {
    let Some(lab) = Lab::new(small(), &config(&[any(ForwardingMethod::Nat)])) else { return };
    for (frame, begins) in [
        (tcp(SYN, CLIENT, "10.0.0.200:80").bytes(), true),
        (tcp(ACK, CLIENT, "10.0.0.200:80").bytes(), false),
        (tcp(SYN, CLIENT, "10.0.0.200:443").bytes(), true),
    ] {
        let trace = lab.balancer.trace(&frame, Some(lab.interface)).unwrap();
        let new = trace.new_connection.map(|new| (new.service.to_string(), new.backend.unwrap(), new.complete));
        assert_eq!((trace.verdict, new.is_some()), (Verdict::Transmit, begins));
        let out = lab.sent(&frame);
        assert_eq!(trace.frame, out);
        let to = see(&out).destination;
        match (new, trace.connection) {
            (Some(new), None) => assert_eq!(new, (ANY.to_owned(), to, true)),
            (None, Some(known)) => {
                let known = known.connection;
                assert_eq!((known.service.to_string(), known.backend), ("10.0.0.200:80".to_owned(), to));
                assert!(known.any_port);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// With another balancer's numbers, and whatever services of ports it has meanwhile.
#[test]
fn another_balancer_goes_on_with_its_connections() {
    // The way to it is known without a packet of it.
    const NEAR: &str = "10.0.0.50:5000";
    let plan = config(&[
        any(ForwardingMethod::Nat),
        service("10.0.0.201:0", ForwardingMethod::Route, &[backend("10.0.0.11:0", 1)]),
    ]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let mut second = Pooled::<Balancer>::load(small()).unwrap();
    let exact = service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.12:80", 1)]);
    let mut others = vec![exact];
    others.extend(plan.services.iter().rev().cloned());
    second.apply(&config(&others)).unwrap();
    second.set_clock(Clock::Fixed(5000)).unwrap();
    let frames: Vec<Vec<u8>> = ["10.0.0.200:80", "10.0.0.200:443", "10.0.0.201:80", "10.0.0.201:443"]
        .iter()
        .map(|at| {
            lab.sent(&tcp(SYN, NEAR, at).bytes());
            tcp(ACK, NEAR, at).payload(b"data").bytes()
        })
        .collect();
    let sent: Vec<Vec<u8>> = frames.iter().map(|frame| lab.sent(frame)).collect();
    lab.later(20);
    let mut told: Vec<SharedConnection> = Vec::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        told.extend(record.map(|record| record.connection));
        ControlFlow::Continue(())
    };
    lab.balancer.records(note).unwrap();
    assert!(told.len() == 4 && told.iter().all(|told| told.any_port && told.is_sound()));
    let adopter = second.adopter();
    for told in &told {
        assert!(matches!(adopter.adopt(told).unwrap(), Adopted::Created { .. }), "{told:?}");
        assert_eq!(adopter.adopt(told).unwrap(), Adopted::Kept);
    }
    for (frame, sent) in frames.iter().zip(&sent) {
        let of_other = second.test_run(frame, Some(lab.interface)).unwrap();
        assert_eq!((of_other.verdict, &of_other.frame), (Verdict::Transmit, sent));
    }
    // One that forwards them in another way has none of it, and the service of the port is another one.
    let mut third = Pooled::<Balancer>::load(small()).unwrap();
    third.apply(&config(&[others[0].clone(), any(ForwardingMethod::Route)])).unwrap();
    for told in &told {
        assert_eq!(third.adopter().adopt(told).unwrap(), Adopted::Refused(AdoptionRefusal::NoService), "{told:?}");
    }
    let back = tcp(ACK, "10.0.0.10:80", NEAR).bytes();
    assert_eq!(second.test_run(&back, Some(lab.interface)).unwrap().frame, lab.sent(&back));
}

#[test]
fn a_control_plane_that_goes_on_with_kept_tables_knows_it() {
    let plan = config(&[any(ForwardingMethod::Nat)]);
    let Some(mut lab) = Lab::new(small(), &plan) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    let tables = directory.0.path().join("tables");
    fs::create_dir(&tables).unwrap();
    lab.balancer.keep(&tables).unwrap();
    let before = see(&lab.sent(&tcp(SYN, CLIENT, "10.0.0.200:80").bytes())).destination;
    let mut next = Balancer::resume(&tables).unwrap();
    next.set_clock(Clock::Fixed(lab.tick)).unwrap();
    let [service] = &next.services().unwrap()[..] else { panic!("{:?}", next.services()) };
    assert_eq!((service.address.to_string().as_str(), service.backends.len()), (ANY, 2));
    next.apply(&plan).unwrap();
    let go = |frame: &[u8]| see(&next.test_run(frame, Some(lab.interface)).unwrap().frame).destination;
    assert_eq!(go(&tcp(ACK, CLIENT, "10.0.0.200:80").bytes()), before);
    assert_eq!(go(&tcp(SYN, CLIENT, "10.0.0.200:443").bytes()).port(), 443);
}

#[test]
fn what_is_asked_for_of_it_is_captured_and_no_other_services() {
    let of_any = service(ANY, ForwardingMethod::Nat, &[]);
    let exact = service("10.0.0.200:80", ForwardingMethod::Nat, &[]);
    let Some(mut lab) = Lab::new(small(), &config(&[of_any, exact.clone()])) else { return };
    let asked = |service: &str| CaptureRequest {
        reasons: vec![CaptureReason::Dropped(Drop::NoBackend), CaptureReason::LeftToKernel(Pass::NoService)],
        service: Some((Protocol::Tcp, service.parse().unwrap())),
        length: 256,
        rate: 1000,
    };
    let frames = [81, 80, 443].map(|port| tcp(SYN, CLIENT, &format!("10.0.0.200:{port}")).bytes());
    for (service, expected) in [(ANY, vec![0, 2]), ("10.0.0.200:80", vec![1])] {
        let capture = lab.balancer.capture(&asked(service)).unwrap();
        frames.iter().for_each(|frame| assert_eq!(lab.dropped(frame), Drop::NoBackend));
        let mut packets = Vec::new();
        capture.wait(Duration::ZERO, |packet| packets.push(packet.bytes)).unwrap();
        let expected: Vec<&Vec<u8>> = expected.into_iter().map(|nth: usize| &frames[nth]).collect();
        assert_eq!(packets.iter().collect::<Vec<_>>(), expected, "{service}");
    }
    // As with a port: who waits for packets to one that is not in force sees that nobody has them.
    lab.balancer.apply(&config(&[exact])).unwrap();
    for (service, expected) in
        [(ANY, vec![&frames[0]]), ("10.0.0.200:81", vec![&frames[0]]), ("10.0.0.200:443", vec![])]
    {
        let capture = lab.balancer.capture(&asked(service)).unwrap();
        lab.passes(&frames[0], Pass::NoService);
        assert_eq!(lab.dropped(&frames[1]), Drop::NoBackend);
        let mut packets = Vec::new();
        capture.wait(Duration::ZERO, |packet| packets.push(packet.bytes)).unwrap();
        assert_eq!(packets.iter().collect::<Vec<_>>(), expected, "{service}");
    }
}

#[test]
fn a_change_takes_it_away_and_gives_it_back() {
    let exact = service("10.0.0.200:80", ForwardingMethod::Nat, &[backend("10.0.0.10:80", 1)]);
    let Some(mut lab) = Lab::new(small(), &config(slice::from_ref(&exact))) else { return };
    let syn = tcp(SYN, CLIENT, "10.0.0.200:443").bytes();
    lab.passes(&syn, Pass::NoService);
    lab.balancer.apply(&config(&[any(ForwardingMethod::Route), exact.clone()])).unwrap();
    assert_eq!(ends(&lab.sent(&syn)), [CLIENT, "10.0.0.200:443"]);
    let limited = Service { limit: NonZeroU32::new(1), ..any(ForwardingMethod::Route) };
    lab.balancer.apply(&config(&[limited, exact.clone()])).unwrap();
    assert_eq!(lab.dropped(&tcp(SYN, CLIENT, "10.0.0.200:444").bytes()), Drop::ServiceFull);
    lab.balancer.apply(&config(&[exact])).unwrap();
    lab.passes(&tcp(SYN, CLIENT, "10.0.0.200:444").bytes(), Pass::NoService);
    let flushed = lab.balancer.flush(Some((Protocol::Tcp, ANY.parse().unwrap())), None).unwrap();
    assert_eq!((flushed, lab.connections().len()), (1, 0));
    lab.balancer.apply(&Config::default()).unwrap();
}
