#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use libc::{EEXIST, EINVAL, ENOENT, EOPNOTSUPP, EPROTONOSUPPORT, ERANGE, ESRCH};
use proptest::prelude::*;

use rig_datapath::balancer::GUE_PORT;

use super::answers::Answers;
use super::family::{self, Forwarding, ID, command};
use super::netlink::{ACK, DUMP, REQUEST, messages};
use super::session::answers_to;
use super::stand::{self, OfRules};
use crate::message::{ForwardingMethod, Request, RuleChange, Tunnel};
use crate::settings::Rules;

/// A request, as libnl writes it.
fn request(kind: u16, flags: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = 20 + attributes.len() as u32;
    let header = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &77_u32.to_ne_bytes()];
    [header.concat().as_slice(), &4242_u32.to_ne_bytes(), &[command, 1, 0, 0], attributes].concat()
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len() as u16;
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn of_v4(address: [u8; 4]) -> Vec<u8> {
    [&address[..], &[0; 12]].concat()
}

#[derive(Clone)]
struct Service {
    protocol: u16,
    port: u16,
    mark: Option<u32>,
    scheduler: &'static str,
    flags: u32,
    mask: [u8; 4],
}

const SERVICE: Service = Service { protocol: 6, port: 80, mark: None, scheduler: "wrr", flags: 0, mask: [255; 4] };

impl Service {
    fn bytes(&self) -> Vec<u8> {
        let mut within = attribute(1, &2_u16.to_ne_bytes());
        within.extend(attribute(2, &self.protocol.to_ne_bytes()));
        within.extend(attribute(3, &of_v4([192, 0, 2, 1])));
        within.extend(attribute(4, &self.port.to_be_bytes()));
        within.extend(self.mark.into_iter().flat_map(|mark| attribute(5, &mark.to_ne_bytes())));
        within.extend(attribute(6, &[self.scheduler.as_bytes(), &[0]].concat()));
        within.extend(attribute(7, &[self.flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat()));
        within.extend(attribute(8, &60_u32.to_ne_bytes()));
        within.extend(attribute(9, &self.mask));
        attribute(1, &within)
    }
}

#[derive(Clone, Copy)]
struct Dest {
    last: u8,
    port: u16,
    method: u32,
    weight: u32,
    upper: u32,
    lower: u32,
    tunnel: u8,
    tunnel_port: u16,
    tunnel_flags: u16,
}

const DEST: Dest =
    Dest { last: 7, port: 80, method: 0, weight: 3, upper: 0, lower: 0, tunnel: 0, tunnel_port: 0, tunnel_flags: 0 };

impl Dest {
    fn bytes(&self) -> Vec<u8> {
        let mut within = attribute(11, &2_u16.to_ne_bytes());
        within.extend(attribute(1, &of_v4([10, 0, 0, self.last])));
        within.extend(attribute(2, &self.port.to_be_bytes()));
        for (kind, value) in [(3, self.method), (4, self.weight), (5, self.upper), (6, self.lower)] {
            within.extend(attribute(kind, &value.to_ne_bytes()));
        }
        within.extend(attribute(13, &[self.tunnel]));
        within.extend(attribute(14, &self.tunnel_port.to_be_bytes()));
        within.extend(attribute(15, &self.tunnel_flags.to_ne_bytes()));
        attribute(2, &within)
    }
}

fn balancer(local: bool) -> Answers<OfRules> {
    Answers::new(OfRules::default(), stand::forwarding(local))
}

/// The number of errno(3) that a request ends with.
#[track_caller]
fn errno(answers: &Answers<OfRules>, command: u8, attributes: &[Vec<u8>]) -> i32 {
    let request = request(ID, REQUEST | ACK, command, &attributes.concat());
    let answered = answers_to(&request, answers);
    let last = messages(answered.last().unwrap()).last().unwrap();
    assert_eq!(last.kind, 2, "no NLMSG_ERROR");
    // Sequence and port go back, and so does the request's header.
    assert_eq!((&last.bytes[8..16], &last.bytes[20..36]), (&request[8..16], &request[..16]));
    -i32::from_ne_bytes(last.bytes[16..20].try_into().unwrap())
}

#[test]
fn each_request_ends_as_the_kernel_has_it() {
    let answers = balancer(false);
    let service = SERVICE.bytes();
    let is = |command, attributes: &[Vec<u8>], expected: i32| {
        assert_eq!(errno(&answers, command, attributes), expected, "{command}");
    };
    is(command::SET_SERVICE, std::slice::from_ref(&service), ESRCH);
    is(command::DEL_SERVICE, std::slice::from_ref(&service), ESRCH);
    is(command::ZERO, std::slice::from_ref(&service), ESRCH);
    is(command::GET_SERVICE, std::slice::from_ref(&service), ESRCH);
    is(command::NEW_DEST, &[service.clone(), DEST.bytes()], ESRCH);
    is(command::NEW_SERVICE, std::slice::from_ref(&service), 0);
    is(command::NEW_SERVICE, std::slice::from_ref(&service), EEXIST);
    is(command::SET_DEST, &[service.clone(), DEST.bytes()], ENOENT);
    is(command::DEL_DEST, &[service.clone(), DEST.bytes()], ENOENT);
    is(command::NEW_DEST, &[service.clone(), DEST.bytes()], 0);
    is(command::NEW_DEST, &[service.clone(), DEST.bytes()], EEXIST);
    is(command::SET_DEST, &[service.clone(), Dest { weight: 0, ..DEST }.bytes()], 0);
    // One service forwards in one way.
    is(command::NEW_DEST, &[service.clone(), Dest { last: 8, method: 3, ..DEST }.bytes()], EINVAL);
    is(command::ZERO, std::slice::from_ref(&service), 0);
    is(command::ZERO, &[], 0);
    is(command::SET_CONFIG, &[attribute(4, &900_u32.to_ne_bytes())], 0);
    is(command::SET_CONFIG, &[attribute(4, &u32::MAX.to_ne_bytes())], EINVAL);
    is(command::NEW_DAEMON, &[], EOPNOTSUPP);
    is(command::DEL_DAEMON, &[], EOPNOTSUPP);
    is(command::GET_DEST, std::slice::from_ref(&service), EOPNOTSUPP);
    is(99, &[], EOPNOTSUPP);
    is(command::NEW_SERVICE, &[], EINVAL);
    is(command::DEL_DEST, &[service.clone(), DEST.bytes()], 0);
    is(command::DEL_SERVICE, &[service], 0);
    is(command::FLUSH, &[], 0);
}

#[test]
fn port_0_is_any_port() {
    let answers = balancer(false);
    // Persistent, as ipvsadm and keepalived have it.
    let service = Service { port: 0, flags: 1, ..SERVICE }.bytes();
    assert_eq!(errno(&answers, command::NEW_SERVICE, std::slice::from_ref(&service)), 0);
    assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), DEST.bytes()]), EINVAL);
    let dest = Dest { port: 0, ..DEST };
    assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), dest.bytes()]), 0);
    assert_eq!(errno(&answers, command::SET_DEST, &[service.clone(), Dest { weight: 9, ..dest }.bytes()]), 0);
    assert_eq!(errno(&answers, command::DEL_DEST, &[service.clone(), dest.bytes()]), 0);
    assert_eq!(errno(&answers, command::DEL_SERVICE, &[service]), 0);
    // Of others it is no port of a destination.
    let service = SERVICE.bytes();
    assert_eq!(errno(&answers, command::NEW_SERVICE, std::slice::from_ref(&service)), 0);
    assert_eq!(errno(&answers, command::NEW_DEST, &[service, dest.bytes()]), EINVAL);
}

#[test]
fn what_the_balancer_does_not_have_is_refused() {
    let answers = balancer(false);
    let refused: [(Service, i32); 7] = [
        (Service { scheduler: "dh", ..SERVICE }, ENOENT),
        // Of TCP, and by what counts connections.
        (Service { flags: 4, ..SERVICE }, EINVAL),
        (Service { flags: 4, protocol: 17, scheduler: "wlc", ..SERVICE }, EINVAL),
        (Service { scheduler: "sh", flags: 0x10, ..SERVICE }, EINVAL),
        (Service { mark: Some(5), ..SERVICE }, EINVAL),
        (Service { protocol: 132, ..SERVICE }, EPROTONOSUPPORT),
        (Service { scheduler: "", ..SERVICE }, ENOENT),
    ];
    for (service, expected) in refused {
        assert_eq!(errno(&answers, command::NEW_SERVICE, &[service.bytes()]), expected, "{}", service.scheduler);
    }
    let service = SERVICE.bytes();
    assert_eq!(errno(&answers, command::NEW_SERVICE, std::slice::from_ref(&service)), 0);
    let refused = [
        (Dest { lower: 5, upper: 4, ..DEST }, ERANGE),
        (Dest { lower: 5, ..DEST }, ERANGE),
        (Dest { weight: 70_000, ..DEST }, ERANGE),
        (Dest { method: 1, ..DEST }, EINVAL),
        // No local address.
        (Dest { method: 2, ..DEST }, EINVAL),
    ];
    for (dest, expected) in refused {
        assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), dest.bytes()]), expected);
    }
    assert_eq!(answers.balancer().0.lock().unwrap().services[0].backends, []);
}

/// Seconds and a mask in the order of the network, as ipvsadm and keepalived write them; a service that is set again without has none.
#[test]
fn persistence_is_taken_and_told_as_the_kernel_has_it() {
    let answers = balancer(false);
    let kept = Service { flags: 1, mask: [255, 255, 255, 0], ..SERVICE };
    assert_eq!(errno(&answers, command::NEW_SERVICE, &[kept.bytes()]), 0);
    assert_eq!(errno(&answers, command::NEW_DEST, &[kept.bytes(), DEST.bytes()]), 0);
    let persistence = |answers: &Answers<OfRules>| {
        let is = rules(answers).services[0].persistence;
        (is.timeout, is.prefix4)
    };
    assert_eq!(persistence(&answers), (Some(60), Some(24)));
    let told = |answers: &Answers<OfRules>| {
        let one = answers_to(&request(ID, REQUEST, command::GET_SERVICE, &SERVICE.bytes()), answers);
        let (_, attributes) = messages(&one[0]).next().unwrap().generic().unwrap();
        let said = attributes.nested(1).unwrap();
        let flags: [u8; 8] = said.array(7).unwrap();
        (flags[0] & 1, said.u32(8).unwrap(), said.array::<4>(9).unwrap())
    };
    assert_eq!(told(&answers), (1, 60, [255, 255, 255, 0]));
    let before = rules(&answers);
    behind_its_back(&answers, RuleChange::Clear);
    answers.put_again().unwrap();
    assert_eq!(rules(&answers), before);
    assert_eq!(errno(&answers, command::SET_SERVICE, &[SERVICE.bytes()]), 0);
    assert_eq!(persistence(&answers), (None, None));
    // What another has changed is set again.
    *answers.balancer().0.lock().unwrap() = before;
    answers.put_again().unwrap();
    assert_eq!(persistence(&answers), (None, None));
    for mask in [[255, 0, 255, 0], [0; 4]] {
        assert_eq!(errno(&answers, command::SET_SERVICE, &[Service { mask, ..kept.clone() }.bytes()]), EINVAL);
    }
}

/// A service that is set again without it has connections again.
#[test]
fn one_packet_scheduling_is_taken_and_told_as_the_kernel_has_it() {
    let answers = balancer(false);
    let service = Service { flags: 4, protocol: 17, ..SERVICE };
    assert_eq!(errno(&answers, command::NEW_SERVICE, &[service.bytes()]), 0);
    assert_eq!(errno(&answers, command::NEW_DEST, &[service.bytes(), Dest { upper: 9, ..DEST }.bytes()]), EINVAL);
    assert_eq!(errno(&answers, command::NEW_DEST, &[service.bytes(), Dest { upper: 0, lower: 0, ..DEST }.bytes()]), 0);
    let told = |answers: &Answers<OfRules>| {
        let one = answers_to(&request(ID, REQUEST, command::GET_SERVICE, &service.bytes()), answers);
        let (_, attributes) = messages(&one[0]).next().unwrap().generic().unwrap();
        let flags: [u8; 8] = attributes.nested(1).unwrap().array(7).unwrap();
        (flags[0] & 4, rules(answers).services[0].one_packet)
    };
    assert_eq!(told(&answers), (4, true));
    let before = rules(&answers);
    behind_its_back(&answers, RuleChange::Clear);
    answers.put_again().unwrap();
    assert_eq!(rules(&answers), before);
    let without = Service { flags: 0, ..service.clone() };
    assert_eq!(errno(&answers, command::SET_SERVICE, &[without.bytes()]), 0);
    assert_eq!(told(&answers), (0, false));
    // What another has changed is set again.
    *answers.balancer().0.lock().unwrap() = before;
    answers.put_again().unwrap();
    assert_eq!(told(&answers), (0, false));
    // With full-nat it cannot be.
    let full = balancer(true);
    assert_eq!(errno(&full, command::NEW_SERVICE, &[service.bytes()]), 0);
    assert_eq!(
        errno(&full, command::NEW_DEST, &[service.bytes(), Dest { upper: 0, lower: 0, ..DEST }.bytes()]),
        EINVAL
    );
}

#[test]
fn masquerading_is_nat_or_full_nat_with_the_local_addresses() {
    for (local, forward, count) in [(false, ForwardingMethod::Nat, 0), (true, ForwardingMethod::FullNat, 2)] {
        let answers = balancer(local);
        assert_eq!(errno(&answers, command::NEW_SERVICE, &[SERVICE.bytes()]), 0);
        let added = [SERVICE.bytes(), Dest { upper: 9, lower: 5, ..DEST }.bytes()];
        assert_eq!(errno(&answers, command::NEW_DEST, &added), 0);
        let rules = answers.balancer().0.lock().unwrap();
        let service = &rules.services[0];
        assert_eq!((service.forward, service.local.len(), service.lacks()), (Some(forward), count, None));
        let limit = service.backends[0].limit.map(u32::from);
        let lower = service.backends[0].lower_limit.map(u32::from);
        assert_eq!((service.backends[0].weight, limit, lower), (3, Some(9), Some(5)));
    }
    // Direct routing needs none, and gets none.
    let answers = balancer(true);
    assert_eq!(errno(&answers, command::NEW_SERVICE, &[SERVICE.bytes()]), 0);
    assert_eq!(errno(&answers, command::NEW_DEST, &[SERVICE.bytes(), Dest { method: 3, ..DEST }.bytes()]), 0);
    assert!(answers.balancer().0.lock().unwrap().services[0].local.is_empty());
}

/// Type, port and flags of tunnels, as linux/ip_vs.h has them.
#[test]
fn tunnels_are_taken_and_told_as_the_kernel_has_them() {
    let answers = balancer(true);
    let service = SERVICE.bytes();
    assert_eq!(errno(&answers, command::NEW_SERVICE, std::slice::from_ref(&service)), 0);
    let packed =
        |last, tunnel, tunnel_port, tunnel_flags| Dest { last, method: 2, tunnel, tunnel_port, tunnel_flags, ..DEST };
    // Without a port, with remote checksum offload, GRE and IP in IP with a checksum, and what is not there.
    let no_port = packed(1, 1, 0, 0);
    let sums = [packed(1, 1, 6080, 2), packed(1, 2, 0, 1), packed(1, 0, 0, 1)];
    let unknown = [packed(1, 3, 0, 0), packed(1, 1, 6080, 4), packed(1, 1, 6080, 0x8001), packed(1, 0, 0, 4)];
    for refused in [no_port].into_iter().chain(sums).chain(unknown) {
        assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), refused.bytes()]), EINVAL);
    }
    let taken = [packed(1, 0, 0, 0), packed(2, 1, 6080, 1), packed(3, 2, 0, 0)];
    for dest in taken {
        assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), dest.bytes()]), 0);
    }
    let gue = Tunnel::Gue { port: GUE_PORT, checksum: true };
    let has = |answers: &Answers<OfRules>| -> Vec<Tunnel> {
        let rules = answers.balancer().0.lock().unwrap();
        rules.services[0].backends.iter().map(|backend| backend.tunnel).collect()
    };
    assert_eq!(has(&answers), [Tunnel::Ipip, gue, Tunnel::Gre]);
    let listed = answers_to(&request(ID, REQUEST | ACK | DUMP, command::GET_DEST, &service), &answers).concat();
    for dest in taken {
        let expected = [
            attribute(13, &[dest.tunnel]),
            attribute(14, &dest.tunnel_port.to_be_bytes()),
            attribute(15, &dest.tunnel_flags.to_ne_bytes()),
        ];
        assert!(listed.windows(24).any(|bytes| bytes == expected.concat()), "{:?}", dest.tunnel);
    }
    assert_eq!(errno(&answers, command::SET_DEST, &[service, packed(2, 2, 0, 0).bytes()]), 0);
    assert_eq!(has(&answers), [Tunnel::Ipip, Tunnel::Gre, Tunnel::Gre]);
}

#[test]
fn listings_are_dumps_with_all_that_libraries_ask_for() {
    let answers = balancer(false);
    let service = |port| Service { port, ..SERVICE }.bytes();
    for port in 1..=40 {
        assert_eq!(errno(&answers, command::NEW_SERVICE, &[service(port)]), 0);
    }
    for last in 1..=3 {
        let added = [service(1), Dest { last, ..DEST }.bytes()];
        assert_eq!(errno(&answers, command::NEW_DEST, &added), 0);
    }
    let listed = |command, attributes: &[u8]| {
        let datagrams = answers_to(&request(ID, REQUEST | ACK | DUMP, command, attributes), &answers);
        assert!(datagrams.iter().all(|datagram| datagram.len() <= 4096));
        let kinds =
            |datagram: &Vec<u8>| messages(datagram).map(|message| (message.kind, message.flags)).collect::<Vec<_>>();
        let kinds: Vec<_> = datagrams.iter().flat_map(kinds).collect();
        let (done, entries) = kinds.split_last().unwrap();
        assert_eq!(*done, (3, 2), "no NLMSG_DONE");
        assert!(entries.iter().all(|entry| *entry == (ID, 2)), "{entries:?}");
        (datagrams, entries.len())
    };
    assert_eq!(listed(command::GET_SERVICE, &[]).1, 40);
    assert_eq!(listed(command::GET_DAEMON, &[]).1, 0);
    assert_eq!(listed(command::GET_DEST, &service(99)).1, 0);
    let (datagrams, count) = listed(command::GET_DEST, &service(1));
    assert_eq!(count, 3);
    let first = messages(&datagrams[0]).next().unwrap();
    let (number, attributes) = first.generic().unwrap();
    let dest = attributes.nested(2).unwrap();
    assert_eq!((number, dest.be16(2), dest.u32(3), dest.u32(4)), (command::NEW_DEST, Some(80), Some(0), Some(3)));
    assert_eq!((dest.u32(7), dest.u32(8), dest.u32(9), dest.u16(11)), (Some(3), Some(4), Some(0), Some(2)));
    let one = answers_to(&request(ID, REQUEST, command::GET_SERVICE, &service(2)), &answers);
    let (_, attributes) = messages(&one[0]).next().unwrap().generic().unwrap();
    let said = attributes.nested(1).unwrap();
    assert_eq!((said.u16(1), said.u16(2), said.be16(4), said.text(6)), (Some(2), Some(6), Some(2), Some("wrr")));
    assert_eq!((said.u32(8), said.u32(9)), (Some(0), Some(u32::MAX)));
    let (narrow, wide) = (said.nested(10).unwrap(), said.nested(12).unwrap());
    // Lower halves of counters, and rates that are as high as there is room for.
    assert_eq!((narrow.u32(1), narrow.u32(10), narrow.u32(6)), (Some(5), Some(u32::MAX), Some(3)));
    assert_eq!(wide.array(4), Some((1_u64 << 40).to_ne_bytes()));
    assert_eq!(wide.array(1), Some((u64::from(u32::MAX) + 6).to_ne_bytes()));
}

#[test]
fn the_family_is_described_and_others_are_the_kernels() {
    let answers = balancer(false);
    let name = |name: &str| attribute(2, &[name.as_bytes(), &[0]].concat());
    let described = answers_to(&request(0x10, REQUEST | ACK, 3, &name("IPVS")), &answers);
    let (number, attributes) = messages(&described[0]).next().unwrap().generic().unwrap();
    assert_eq!((number, attributes.u16(1), attributes.text(2)), (1, Some(ID), Some("IPVS")));
    assert_eq!(described.len(), 2, "no acknowledgment");
    assert!(answers_to(&request(0x10, REQUEST | ACK, 3, &name("nl80211")), &answers).is_empty());
    assert!(answers_to(&request(0x10, REQUEST | DUMP, 3, &[]), &answers).is_empty());
    assert!(answers_to(&request(0x17, REQUEST, 1, &[]), &answers).is_empty());
}

#[test]
fn a_balancer_that_is_started_again_gets_what_it_lacks() {
    let answers = balancer(false);
    let (service, other) = (SERVICE.bytes(), Service { port: 81, ..SERVICE }.bytes());
    for (number, attributes) in [
        (command::NEW_SERVICE, vec![service.clone()]),
        (command::NEW_SERVICE, vec![other.clone()]),
        (command::NEW_DEST, vec![service.clone(), DEST.bytes()]),
        (command::NEW_DEST, vec![service.clone(), Dest { last: 8, ..DEST }.bytes()]),
        (command::SET_DEST, vec![service.clone(), Dest { weight: 0, ..DEST }.bytes()]),
        (command::DEL_DEST, vec![service, Dest { last: 8, ..DEST }.bytes()]),
        (command::DEL_SERVICE, vec![other]),
    ] {
        assert_eq!(errno(&answers, number, &attributes), 0);
    }
    let before = answers.balancer().0.lock().unwrap().clone();
    answers.put_again().unwrap();
    assert_eq!(*answers.balancer().0.lock().unwrap(), before);
    super::answers::Balancer::ask(answers.balancer(), &Request::Edit(RuleChange::Clear)).unwrap();
    answers.put_again().unwrap();
    assert_eq!(*answers.balancer().0.lock().unwrap(), before);
}

/// What a service of backends of both families gets again is whole: with local addresses of both.
#[test]
fn backends_of_both_families_come_back_in_one_request() {
    let forwarding = Forwarding {
        masquerade: ForwardingMethod::FullNat,
        local: vec!["10.8.0.1".parse().unwrap(), "fd00::8".parse().unwrap()],
    };
    let answers = Answers::new(OfRules::default(), forwarding);
    let v6 = |last: u8| [&[0xfd][..], &[0; 14], &[last]].concat();
    let service = [
        attribute(1, &10_u16.to_ne_bytes()),
        attribute(2, &6_u16.to_ne_bytes()),
        attribute(3, &v6(200)),
        attribute(4, &80_u16.to_be_bytes()),
        attribute(6, b"wrr\0"),
        attribute(7, &[0_u32.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat()),
        attribute(8, &0_u32.to_ne_bytes()),
        attribute(9, &128_u32.to_ne_bytes()),
    ];
    let service = attribute(1, &service.concat());
    let of_v6 = |last: u8| {
        let mut within = attribute(11, &10_u16.to_ne_bytes());
        within.extend(attribute(1, &v6(last)));
        within.extend(attribute(2, &80_u16.to_be_bytes()));
        for (kind, value) in [(3, 0_u32), (4, 1), (5, 0), (6, 0)] {
            within.extend(attribute(kind, &value.to_ne_bytes()));
        }
        attribute(2, &within)
    };
    assert_eq!(errno(&answers, command::NEW_SERVICE, std::slice::from_ref(&service)), 0);
    for dest in [DEST.bytes(), Dest { last: 8, ..DEST }.bytes(), of_v6(1), of_v6(2)] {
        assert_eq!(errno(&answers, command::NEW_DEST, &[service.clone(), dest]), 0);
    }
    let before = rules(&answers);
    assert_eq!((before.services[0].backends.len(), before.services[0].local.len()), (4, 2));
    behind_its_back(&answers, RuleChange::Clear);
    answers.put_again().unwrap();
    assert_eq!(rules(&answers), before);
    assert_eq!(answers.balancer().1.load(std::sync::atomic::Ordering::Relaxed), 0, "requests were refused");
}

/// Makes changes in the balancer that it is not told of.
fn behind_its_back(answers: &Answers<OfRules>, change: RuleChange) {
    super::answers::Balancer::ask(answers.balancer(), &Request::Edit(change)).unwrap();
}

fn rules(answers: &Answers<OfRules>) -> Rules {
    answers.balancer().0.lock().unwrap().clone()
}

#[test]
fn what_another_command_has_put_in_is_known_when_it_is_said_again() {
    let wanted =
        [(command::NEW_SERVICE, vec![SERVICE.bytes()]), (command::NEW_DEST, vec![SERVICE.bytes(), DEST.bytes()])];
    let first = balancer(true);
    for (number, attributes) in &wanted {
        assert_eq!(errno(&first, *number, attributes), 0);
    }
    let before = rules(&first);
    let second = Answers::new(OfRules(before.clone().into(), 0.into()), stand::forwarding(true));
    for (number, attributes) in &wanted {
        assert_eq!(errno(&second, *number, attributes), EEXIST);
    }
    behind_its_back(&second, RuleChange::Clear);
    // It is not there to have a backend.
    assert_eq!(errno(&second, command::NEW_DEST, &[SERVICE.bytes(), Dest { last: 9, ..DEST }.bytes()]), ESRCH);
    second.put_again().unwrap();
    assert_eq!(rules(&second), before);
}

#[test]
fn what_is_to_be_deleted_and_has_gone_already_does_not_come_back() {
    let answers = balancer(false);
    assert_eq!(errno(&answers, command::NEW_SERVICE, &[SERVICE.bytes()]), 0);
    let without = rules(&answers);
    let both = [SERVICE.bytes(), DEST.bytes()];
    assert_eq!(errno(&answers, command::NEW_DEST, &both), 0);
    let service = without.services[0].key;
    let backend = rules(&answers).services[0].backends[0].address;
    behind_its_back(&answers, RuleChange::DeleteBackend { service, backend });
    assert_eq!(errno(&answers, command::DEL_DEST, &both), ENOENT);
    behind_its_back(&answers, RuleChange::Clear);
    answers.put_again().unwrap();
    assert_eq!(rules(&answers).services[0].backends, []);
    behind_its_back(&answers, RuleChange::Clear);
    assert_eq!(errno(&answers, command::DEL_SERVICE, &[SERVICE.bytes()]), ESRCH);
    answers.put_again().unwrap();
    assert_eq!(rules(&answers).services, []);
}

#[test]
fn what_is_there_otherwise_is_set_again() {
    let answers = balancer(false);
    let two = [Dest { last: 7, ..DEST }, Dest { last: 8, upper: 5, ..DEST }];
    assert_eq!(errno(&answers, command::NEW_SERVICE, &[SERVICE.bytes()]), 0);
    for dest in two {
        assert_eq!(errno(&answers, command::NEW_DEST, &[SERVICE.bytes(), dest.bytes()]), 0);
    }
    let of_file = rules(&answers);
    let other = Service { scheduler: "wlc", ..SERVICE };
    assert_eq!(errno(&answers, command::SET_SERVICE, &[other.bytes()]), 0);
    for dest in two {
        let failed = Dest { weight: 0, upper: 6, ..dest };
        assert_eq!(errno(&answers, command::SET_DEST, &[SERVICE.bytes(), failed.bytes()]), 0);
    }
    let before = rules(&answers);
    assert_ne!(of_file, before);
    *answers.balancer().0.lock().unwrap() = of_file;
    answers.put_again().unwrap();
    assert_eq!(rules(&answers), before);
}

#[test]
fn a_change_that_is_refused_is_not_in_the_way_of_others() {
    let answers = balancer(false);
    let other = Service { port: 81, ..SERVICE };
    for service in [SERVICE, other.clone()] {
        assert_eq!(errno(&answers, command::NEW_SERVICE, &[service.bytes()]), 0);
        assert_eq!(errno(&answers, command::NEW_DEST, &[service.bytes(), DEST.bytes()]), 0);
    }
    let before = rules(&answers);
    // The file's service forwards in another way.
    let file = balancer(false);
    assert_eq!(errno(&file, command::NEW_SERVICE, &[SERVICE.bytes()]), 0);
    let routed = Dest { last: 99, method: 3, ..DEST };
    assert_eq!(errno(&file, command::NEW_DEST, &[SERVICE.bytes(), routed.bytes()]), 0);
    let of_file = rules(&file);
    *answers.balancer().0.lock().unwrap() = of_file.clone();
    answers.put_again().unwrap();
    let now = rules(&answers);
    assert_eq!(now.services, [of_file.services[0].clone(), before.services[1].clone()]);
}

#[test]
fn timeouts_that_were_set_one_after_the_other_are_all_put_again() {
    let answers = balancer(false);
    for kind in [family::TIMEOUT_TCP, family::TIMEOUT_TCP_FIN, family::TIMEOUT_UDP] {
        assert_eq!(errno(&answers, command::SET_CONFIG, &[attribute(kind, &77_u32.to_ne_bytes())]), 0);
    }
    let before = rules(&answers);
    *answers.balancer().0.lock().unwrap() = Rules::default();
    answers.put_again().unwrap();
    assert_eq!(rules(&answers), before);
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        stand::play(&bytes);
    }

    /// Requests that are nearly right: cut, or with bytes changed.
    #[test]
    fn no_request_is_too_much(
        number in 0_u8..20,
        flags in prop::sample::select(vec![REQUEST, REQUEST | ACK, REQUEST | ACK | DUMP, 0]),
        changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..6),
        cut in 0_usize..400,
    ) {
        let mut whole = request(ID, REQUEST | ACK, command::NEW_SERVICE, &SERVICE.bytes());
        whole.extend(request(ID, flags, number, &[SERVICE.bytes(), DEST.bytes()].concat()));
        for (at, value) in changes {
            if let Some(byte) = whole.get_mut(at) {
                *byte = value;
            }
        }
        let kept = whole.len().saturating_sub(cut);
        stand::play(&whole);
        stand::play(&whole[..kept]);
    }
}
