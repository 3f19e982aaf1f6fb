//! Lists of who may begin connections, and who may not.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use rig_datapath::balancer::{AccessLists, Config, Drop, ForwardingMethod, Scheduler, Service, Sizes, SynProxy};
use rig_wire::tcp::flags::{ACK, SYN};

use super::changes::{BpfFs, hand_over};
use super::frames::{tcp, udp};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, service, small, udp_service};

const V: &str = "10.0.0.200:80";
const V6: &str = "[fd00::200]:80";

fn lists(allow: &[&str], deny: &[&str]) -> AccessLists {
    let set = |prefixes: &[&str]| prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    AccessLists { allow: set(allow), deny: set(deny) }
}

fn plan(access: AccessLists) -> Service {
    Service { access, ..service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]) }
}

fn syn(client: &str) -> Vec<u8> {
    tcp(SYN, client, if client.starts_with('[') { V6 } else { V }).bytes()
}

/// Hits by prefix, those of no prefix as `-`.
fn hits(lab: &Lab) -> Vec<(String, bool, u64)> {
    let hits = lab.balancer.access_hits().unwrap();
    let shown = |prefix: Option<IpNet>| prefix.map_or("-".to_owned(), |prefix| prefix.to_string());
    hits.iter().map(|hit| (shown(hit.prefix), hit.allows, hit.packets)).collect()
}

#[test]
fn the_longest_prefix_decides_of_both_lists_and_both_owners() {
    let all = lists(&["10.0.0.62/32"], &["10.0.0.60/31", "10.0.0.0/8"]);
    let own = lists(&["10.0.0.60/32", "10.0.0.0/8"], &["10.0.0.62/32"]);
    let config = Config { access: all, ..config(&[plan(own)]) };
    let Some(lab) = Lab::new(small(), &config) else { return };
    // Longer than that of all; as long, and the service's own; only of all, and longer; the service's own of two as long.
    lab.sent(&syn("10.0.0.60:5000"));
    assert_eq!(lab.dropped(&syn("10.0.0.62:5000")), Drop::Denied);
    assert_eq!(lab.dropped(&syn("10.0.0.61:5000")), Drop::Denied);
    lab.sent(&syn("10.0.0.50:5000"));
    // In none, and there is an allow list.
    assert_eq!(lab.dropped(&syn("192.0.2.1:5000")), Drop::Denied);
    let counted: u64 = hits(&lab).iter().map(|(.., packets)| packets).sum();
    assert_eq!(counted, 5, "{:?}", hits(&lab));
    assert!(hits(&lab).contains(&("10.0.0.60/31".to_owned(), false, 1)));
    let refused = lab.balancer.services().unwrap()[0].refused.clone();
    assert_eq!(refused.iter().find(|(reason, _)| *reason == Drop::Denied).unwrap().1, 3);
}

/// A list of one family says nothing of the other, but that an allow list leaves out who is in none.
#[test]
fn prefixes_of_no_length_are_of_one_family() {
    let v6 = service(V6, full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]);
    let both = |access| Config { access, ..config(&[plan(AccessLists::default()), v6.clone()]) };
    let Some(mut lab) = Lab::new(small(), &both(lists(&[], &["::/0"]))) else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    assert_eq!(lab.dropped(&syn("[fd00::60]:5000")), Drop::Denied);
    lab.balancer.apply(&both(lists(&[], &["0.0.0.0/0"]))).unwrap();
    lab.sent(&syn("[fd00::60]:5000"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5001")), Drop::Denied);
    lab.balancer.apply(&both(lists(&["10.0.0.0/8"], &[]))).unwrap();
    lab.sent(&syn("10.0.0.60:5001"));
    assert_eq!(lab.dropped(&syn("[fd00::60]:5001")), Drop::Denied);
    lab.balancer.apply(&both(AccessLists::default())).unwrap();
    lab.sent(&syn("[fd00::60]:5001"));
    assert_eq!(hits(&lab), []);
}

/// What is known goes on; what begins is refused, datagrams and picked up connections too.
#[test]
fn a_list_is_for_what_begins() {
    let udp_service = udp_service("10.0.0.200:53", full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:53", 1)]);
    let sloppy = |access| Service { sloppy_tcp: true, ..plan(access) };
    let Some(mut lab) = Lab::new(small(), &config(&[sloppy(AccessLists::default()), udp_service.clone()])) else {
        return;
    };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&udp("10.0.0.60:5000", "10.0.0.200:53").bytes());
    let denied = lists(&[], &["10.0.0.60/32"]);
    let refusing = [sloppy(denied.clone()), Service { access: denied, ..udp_service }];
    lab.balancer.apply(&config(&refusing)).unwrap();
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&tcp(ACK, "10.0.0.60:5000", V).bytes());
    lab.sent(&udp("10.0.0.60:5000", "10.0.0.200:53").bytes());
    let frames =
        [syn("10.0.0.60:5001"), tcp(ACK, "10.0.0.60:5001", V).bytes(), udp("10.0.0.60:5001", "10.0.0.200:53").bytes()];
    for frame in frames {
        assert_eq!(lab.dropped(&frame), Drop::Denied);
        let trace = lab.balancer.trace(&frame, Some(lab.interface)).unwrap();
        assert_eq!((trace.drop, trace.new_connection.map(|new| new.complete)), (Some(Drop::Denied), Some(false)));
        assert_eq!(trace.prefix.unwrap().to_string(), "10.0.0.60/32");
    }
    assert_eq!(hits(&lab), [("10.0.0.60/32".to_owned(), false, 2), ("10.0.0.60/32".to_owned(), false, 1)]);
    assert_eq!(lab.connections().len(), 2);
}

/// Neither is a SYN answered, nor an answer to the one before taken.
#[test]
fn the_syn_proxy_answers_who_may() {
    for forward in [full_nat(&["10.0.0.100"]), ForwardingMethod::Nat] {
        let proxied = |access| Service { syn_proxy: SynProxy::Always, forward: forward.clone(), ..plan(access) };
        let Some(mut lab) = Lab::new(small(), &config(&[proxied(AccessLists::default())])) else { return };
        let first = Segment { sequence: 9, ..segment("10.0.0.60:5000", V, SYN) }.bytes();
        let cookie = Segment::of(&lab.sent(&first)).sequence;
        let third = Segment { sequence: 10, acknowledged: cookie.wrapping_add(1), ..segment("10.0.0.60:5000", V, ACK) };
        lab.balancer.apply(&config(&[proxied(lists(&[], &["10.0.0.0/24"]))])).unwrap();
        assert_eq!(lab.dropped(&first), Drop::Denied);
        assert_eq!(lab.dropped(&third.bytes()), Drop::Denied);
        lab.balancer.apply(&config(&[proxied(lists(&["10.0.0.60/32"], &["10.0.0.0/24"]))])).unwrap();
        lab.sent(&third.bytes());
        assert_eq!(lab.connections().len(), 1);
    }
}

/// A prefix that stays counts on; one that comes back begins anew.
#[test]
fn counts_are_those_of_a_prefix() {
    let with = |deny: &[&str]| config(&[plan(lists(&[], deny))]);
    let Some(mut lab) = Lab::new(Sizes { prefixes: 2, ..small() }, &with(&["10.0.0.60/32", "10.0.0.61/32"])) else {
        return;
    };
    for _ in 0..3 {
        lab.dropped(&syn("10.0.0.60:5000"));
    }
    lab.dropped(&syn("10.0.0.61:5000"));
    lab.balancer.apply(&with(&["10.0.0.60/32", "10.0.0.62/32"])).unwrap();
    let count = |prefix: &str, packets| (prefix.to_owned(), false, packets);
    assert_eq!(hits(&lab), [count("10.0.0.60/32", 3), count("10.0.0.62/32", 0)]);
    lab.dropped(&syn("10.0.0.60:5000"));
    lab.sent(&syn("10.0.0.61:5000"));
    lab.balancer.apply(&with(&["10.0.0.60/32", "10.0.0.61/32"])).unwrap();
    assert_eq!(hits(&lab), [count("10.0.0.60/32", 4), count("10.0.0.61/32", 0)]);
    let many = lab.balancer.apply(&with(&["10.0.0.60/32", "10.0.0.61/32", "10.0.0.62/32"])).unwrap_err();
    assert!(many.to_string().contains("there is room for 2 prefixes, and 3 are wanted"), "{many}");
    assert_eq!(lab.dropped(&syn("10.0.0.61:5001")), Drop::Denied);
}

/// As many as are asked for, of which one decides.
#[test]
fn a_hundred_thousand_prefixes_come_into_force() {
    let prefix = |n: u32| IpNet::from(Ipv4Net::new((0x0b00_0000 + n * 2).into(), 32).unwrap());
    let deny: BTreeSet<IpNet> = (0..100_000).map(prefix).collect();
    let access = AccessLists { allow: BTreeSet::new(), deny };
    let sizes = Sizes { prefixes: 100_000, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[plan(AccessLists::default())])) else { return };
    lab.balancer.apply(&config(&[plan(access)])).unwrap();
    assert_eq!(lab.dropped(&syn("11.0.0.2:5000")), Drop::Denied);
    lab.sent(&syn("10.0.0.60:5000"));
}

/// A service that goes keeps what it refuses as long as it is there, and another one in its place has its own.
#[test]
fn lists_go_with_their_service() {
    let denied = lists(&[], &["10.0.0.60/32"]);
    let Some(mut lab) = Lab::new(small(), &config(&[plan(denied.clone())])) else { return };
    assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
    let routed =
        Service { forward: ForwardingMethod::Route, backends: vec![backend("10.0.0.10:80", 1)], ..plan(denied) };
    lab.balancer.apply(&config(std::slice::from_ref(&routed))).unwrap();
    assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
    assert_eq!(hits(&lab).len(), 1);
    lab.balancer.apply(&config(&[Service { access: AccessLists::default(), ..routed }])).unwrap();
    lab.sent(&syn("10.0.0.60:5000"));
    lab.balancer.apply(&config(&[])).unwrap();
    assert_eq!(hits(&lab), []);
}

/// More than there is room for in schedules: what comes after the lists in a change fails.
fn too_large(access: AccessLists) -> Service {
    let backends = vec![backend("10.0.0.10:8080", 7), backend("10.0.0.11:8080", 5)];
    Service { scheduler: Scheduler::WeightedRoundRobin, backends, ..plan(access) }
}

/// The same of any port.
fn of_any_port(mut service: Service) -> Service {
    service.address.set_port(0);
    service.backends.iter_mut().for_each(|backend| backend.address.set_port(0));
    Service { forward: ForwardingMethod::Nat, ..service }
}

/// Between the write of the lists and those of the services all is as denied as before and after.
#[test]
fn a_prefix_that_gets_another_owner_is_denied_meanwhile() {
    let (denied, none) = (lists(&[], &["10.0.0.60/32"]), AccessLists::default());
    for (own_first, of_any) in [(true, false), (false, false), (true, true), (false, true)] {
        let kind = |service: Service| if of_any { of_any_port(service) } else { service };
        let owners = |own: bool| if own { (denied.clone(), none.clone()) } else { (none.clone(), denied.clone()) };
        let (own, all) = owners(own_first);
        let first = Config { access: all, ..config(&[kind(plan(own))]) };
        let Some(mut lab) = Lab::new(Sizes { list_entries: 8, ..small() }, &first) else { return };
        assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
        let (own, all) = owners(!own_first);
        let error = lab.balancer.apply(&Config { access: all, ..config(&[kind(too_large(own))]) }).unwrap_err();
        assert!(error.to_string().contains("entries of schedules"), "{error}");
        assert_eq!(hits(&lab).len(), 1, "the new lists are there");
        assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
        lab.sent(&syn("10.0.0.61:5000"));
    }
}

/// As many as there is room for, while as many of a service that goes are still there.
#[test]
fn each_prefix_has_a_count_of_its_own_after_its_service_was_replaced() {
    let deny: Vec<String> = (0..20).map(|n| format!("10.0.1.{n}/32")).collect();
    let deny: Vec<&str> = deny.iter().map(String::as_str).collect();
    let sizes = Sizes { services: 2, prefixes: 20, ..small() };
    let first = plan(lists(&[], &deny));
    let Some(mut lab) = Lab::new(sizes, &config(std::slice::from_ref(&first))) else { return };
    let routed = Service { forward: ForwardingMethod::Route, backends: vec![backend("10.0.0.10:80", 1)], ..first };
    lab.balancer.apply(&config(&[routed])).unwrap();
    for n in 0..20 {
        let frame = syn(&format!("10.0.1.{n}:5000"));
        assert_eq!(lab.dropped(&frame), Drop::Denied);
        let trace = lab.balancer.trace(&frame, Some(lab.interface)).unwrap();
        assert_eq!(trace.prefix.unwrap().to_string(), format!("10.0.1.{n}/32"));
    }
    assert!(hits(&lab).iter().all(|(.., packets)| *packets == 1), "{:?}", hits(&lab));
}

/// Lists of tables that are gone on with are known: they refuse as long as their service is there, and go with it.
#[test]
fn another_process_knows_the_lists_that_were_kept() {
    let all = lists(&["10.0.0.0/8"], &["fd00::/16"]);
    let first = plan(lists(&[], &["10.0.0.60/32"]));
    let first = Config { access: all, ..config(&[first]) };
    let Some(mut lab) = Lab::new(Sizes { list_entries: 8, ..small() }, &first) else { return };
    let Some(directory) = BpfFs::mount() else { return };
    assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
    let before = hits(&lab);
    hand_over(&mut lab, &directory);
    assert_eq!(hits(&lab), before);
    // Another one in its place, which does not come into force.
    let replaced = Service { forward: ForwardingMethod::Nat, ..too_large(AccessLists::default()) };
    lab.balancer.apply(&config(&[replaced])).unwrap_err();
    assert_eq!(lab.dropped(&syn("10.0.0.60:5000")), Drop::Denied);
    lab.balancer.apply(&config(&[plan(AccessLists::default())])).unwrap();
    lab.sent(&syn("10.0.0.60:5000"));
    assert_eq!(hits(&lab), []);
}
