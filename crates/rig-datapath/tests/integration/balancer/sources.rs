//! Limits of services and of each of their sources.

use std::num::NonZeroU32;
use std::ops::ControlFlow;

use rig_datapath::balancer::{Adopted, Drop, ForwardingMethod, Limits, Rate, Service, Sizes, SourceTable, SynProxy};
use rig_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::changes::{BpfFs, hand_over};
use super::frames::{tcp, udp};
use super::lab::Lab;
use super::syn_proxy::{Segment, segment};
use super::{backend, config, full_nat, service, small, udp_service};

const V: &str = "10.0.0.200:80";
const U: &str = "10.0.0.200:53";
const V6: &str = "[fd00::200]:80";
/// A second and a tick.
const SECOND: u32 = 8;

fn at_most(connections: u32) -> Limits {
    Limits { source_limit: NonZeroU32::new(connections), ..Limits::default() }
}

fn rate(per_second: u32, burst: u32) -> Option<Rate> {
    Some(Rate { per_second: NonZeroU32::new(per_second)?, burst: NonZeroU32::new(burst)? })
}

fn plan(limits: Limits) -> Service {
    Service { limits, ..service(V, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:8080", 1)]) }
}

fn plan6(limits: Limits) -> Service {
    Service { limits, ..service(V6, full_nat(&["fd00::100"]), &[backend("[fd00::10]:8080", 1)]) }
}

fn datagrams(limits: Limits) -> Service {
    Service { limits, ..udp_service(U, full_nat(&["10.0.0.100"]), &[backend("10.0.0.10:53", 1)]) }
}

fn syn(client: &str) -> Vec<u8> {
    tcp(SYN, client, if client.starts_with('[') { V6 } else { V }).bytes()
}

fn from_client(flags: u8, client: &str) -> Vec<u8> {
    tcp(flags, client, V).bytes()
}

fn counted(lab: &Lab) -> (u64, u64) {
    let SourceTable { connections, sources } = lab.balancer.source_table().unwrap();
    (connections, sources)
}

fn refused(lab: &Lab, reason: Drop) -> u64 {
    let services = lab.balancer.services().unwrap();
    let of_all = services.iter().flat_map(|service| &service.refused);
    of_all.filter(|(of, _)| *of == reason).map(|(_, count)| count).sum()
}

#[test]
fn a_source_has_no_more_connections_and_others_have_theirs() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(at_most(2)), plan6(at_most(1))])) else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&syn("10.0.0.60:5001"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5002")), Drop::SourceLimit);
    let trace = lab.balancer.trace(&syn("10.0.0.60:5002"), Some(lab.interface)).unwrap();
    assert_eq!((trace.drop, trace.new_connection.map(|new| new.complete)), (Some(Drop::SourceLimit), Some(false)));
    // What is known goes on, a SYN that comes again too.
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&from_client(ACK, "10.0.0.60:5001"));
    lab.sent(&syn("10.0.0.61:5000"));
    // Of IPv6 all with the same 64 bits are one, and what is in the other half says nothing.
    lab.sent(&syn("[fd00::60]:5000"));
    assert_eq!(lab.dropped(&syn("[fd00::61]:5000")), Drop::SourceLimit);
    assert_eq!((refused(&lab, Drop::SourceLimit), counted(&lab)), (2, (4, 3)));
    // A place is free again when a connection is forgotten, and not before.
    lab.sent(&from_client(RST, "10.0.0.60:5001"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5002")), Drop::SourceLimit);
    lab.later(10 * SECOND);
    lab.balancer.sweep_all().unwrap();
    lab.sent(&syn("10.0.0.60:5002"));
    assert_eq!(counted(&lab), (4, 3));
}

/// One that is over gives its place to the one that takes its ports.
#[test]
fn a_port_that_is_used_again_is_counted_once() {
    let Some(lab) = Lab::new(small(), &config(&[plan(at_most(1))])) else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&from_client(RST, "10.0.0.60:5000"));
    let trace = lab.balancer.trace(&syn("10.0.0.60:5000"), Some(lab.interface)).unwrap();
    assert_eq!((trace.drop, trace.new_connection.map(|new| new.complete)), (None, Some(true)));
    lab.sent(&syn("10.0.0.60:5000"));
    assert_eq!(counted(&lab), (1, 1));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5001")), Drop::SourceLimit);
}

/// A trace counts nothing, and a connection that does not come to be neither.
#[test]
fn what_does_not_begin_is_not_counted() {
    let nat = |address, limits| Service {
        limits,
        ..service(address, ForwardingMethod::Nat, &[backend("10.0.0.10:8080", 1)])
    };
    let nowhere = Service { backends: vec![backend("10.0.0.10:8080", 0)], ..plan(at_most(5)) };
    let plans = [nat("10.0.0.201:80", at_most(5)), nat("10.0.0.202:80", at_most(5)), nowhere];
    let Some(lab) = Lab::new(small(), &config(&plans)) else { return };
    let to = |service| tcp(SYN, "10.0.0.60:5000", service).bytes();
    assert!(lab.balancer.trace(&to("10.0.0.201:80"), Some(lab.interface)).unwrap().new_connection.unwrap().complete);
    assert_eq!(counted(&lab), (0, 0));
    lab.sent(&to("10.0.0.201:80"));
    assert_eq!(lab.dropped(&to("10.0.0.202:80")), Drop::NatClash);
    assert_eq!(lab.dropped(&to(V)), Drop::NoBackend);
    assert_eq!(counted(&lab), (1, 1));
}

#[test]
fn a_source_begins_no_faster_than_its_rate() {
    let limits = Limits { source_rate: rate(2, 3), ..Limits::default() };
    let Some(mut lab) = Lab::new(small(), &config(&[plan(limits), datagrams(limits)])) else { return };
    let first = |port: u16| [syn(&format!("10.0.0.60:{port}")), udp(&format!("10.0.0.60:{port}"), U).bytes()];
    for port in 5000..5003 {
        first(port).iter().for_each(|frame| drop(lab.sent(frame)));
    }
    // Each service has its own count, and each source.
    assert_eq!(first(5003).map(|frame| lab.dropped(&frame)), [Drop::SourceRate; 2]);
    lab.sent(&syn("10.0.0.61:5000"));
    // What goes on is no new one.
    first(5000).iter().for_each(|frame| drop(lab.sent(frame)));
    // Two are back after a second, and what was refused has taken none.
    lab.later(SECOND);
    for port in 5004..5006 {
        first(port).iter().for_each(|frame| drop(lab.sent(frame)));
    }
    assert_eq!(first(5006).map(|frame| lab.dropped(&frame)), [Drop::SourceRate; 2]);
    let trace = lab.balancer.trace(&syn("10.0.0.60:5007"), Some(lab.interface)).unwrap();
    assert_eq!(trace.drop, Some(Drop::SourceRate));
    // After a long silence there is a burst, and no more.
    lab.later(100 * SECOND);
    for port in 5010..5013 {
        lab.sent(&syn(&format!("10.0.0.60:{port}")));
    }
    assert_eq!(lab.dropped(&syn("10.0.0.60:5013")), Drop::SourceRate);
}

/// As a flood from forged addresses: no two packets have a source, and what is established is not concerned.
#[test]
fn a_service_begins_no_faster_than_its_rate() {
    let limits = Limits { new_rate: rate(10, 20), ..at_most(5) };
    let sizes = Sizes { connections: 4096, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[datagrams(limits), plan(Limits::default())])) else { return };
    let from = |host: u32| udp(&format!("{}:5000", std::net::Ipv4Addr::from(0x0b00_0000 + host)), U).bytes();
    (0..20).for_each(|host| drop(lab.send(&from(host))));
    for host in 20..2000 {
        assert_eq!(lab.dropped(&from(host)), Drop::NewRate);
    }
    lab.send(&from(3));
    // Those that were refused have left no counter.
    assert_eq!((counted(&lab), refused(&lab, Drop::NewRate)), ((20, 20), 1980));
    lab.sent(&syn("10.0.0.60:5000"));
    lab.later(SECOND);
    (3000..3010).for_each(|host| drop(lab.send(&from(host))));
    assert_eq!((lab.dropped(&from(3010)), lab.connections().len()), (Drop::NewRate, 31));
}

/// What a rate of before let come in a burst is not owed to the next one.
#[test]
fn a_rate_that_is_changed_owes_no_more_than_its_own_burst() {
    let services =
        [Limits { new_rate: rate(1, 1000), ..at_most(5000) }, Limits { source_rate: rate(1, 1000), ..at_most(5000) }];
    for limits in services {
        let Some(mut lab) = Lab::new(small(), &config(&[datagrams(limits)])) else { return };
        let from = |port: u32| udp(&format!("10.0.0.60:{port}"), U).bytes();
        (2000..2030).for_each(|port| drop(lab.sent(&from(port))));
        let fewer = |limit: Option<Rate>| limit.and(rate(10, 2));
        let now = Limits { new_rate: fewer(limits.new_rate), source_rate: fewer(limits.source_rate), ..limits };
        lab.balancer.apply(&config(&[datagrams(now)])).unwrap();
        lab.sent(&from(3000));
        let refusal = if now.new_rate.is_some() { Drop::NewRate } else { Drop::SourceRate };
        assert_eq!(lab.dropped(&from(3001)), refusal);
        lab.later(SECOND);
        lab.sent(&from(3002));
    }
}

/// No cookie is made for who could not come in by it, and what it opens is counted when it opens.
#[test]
fn the_syn_proxy_answers_who_may_begin() {
    let limits = Limits { source_rate: rate(1, 2), new_rate: rate(1, 3), ..at_most(2) };
    for forward in [full_nat(&["10.0.0.100"]), ForwardingMethod::Nat] {
        let proxied = Service { syn_proxy: SynProxy::Always, forward, ..plan(limits) };
        let Some(mut lab) = Lab::new(small(), &config(&[proxied])) else { return };
        let first = |client| Segment { sequence: 9, ..segment(client, V, SYN) }.bytes();
        let answered = |lab: &Lab, client| Segment::of(&lab.sent(&first(client))).sequence;
        let third = |client, cookie: u32| {
            Segment { sequence: 10, acknowledged: cookie.wrapping_add(1), ..segment(client, V, ACK) }.bytes()
        };
        let clients = ["10.0.0.60:5000", "10.0.0.60:5001", "10.0.0.60:5002"];
        let cookies = clients.map(|client| answered(&lab, client));
        assert_eq!(counted(&lab), (0, 0));
        lab.sent(&third(clients[0], cookies[0]));
        lab.sent(&third(clients[1], cookies[1]));
        assert_eq!(lab.dropped(&third(clients[2], cookies[2])), Drop::SourceLimit);
        assert_eq!(lab.dropped(&first("10.0.0.60:5003")), Drop::SourceLimit);
        let other = answered(&lab, "10.0.0.61:5000");
        lab.sent(&third("10.0.0.61:5000", other));
        assert_eq!(lab.dropped(&first("10.0.0.62:5000")), Drop::NewRate);
        lab.later(SECOND);
        answered(&lab, "10.0.0.62:5000");
        assert_eq!(counted(&lab), (3, 2));
    }
}

/// Where all counters are in use, new sources are not limited; those that have one stay so, and a counter that is free is taken again.
#[test]
fn a_full_table_forgets_nobody() {
    let sizes = Sizes { sources: 2, ..small() };
    let Some(mut lab) = Lab::new(sizes, &config(&[plan(at_most(1))])) else { return };
    let syn_of = |host: u8, port: u16| syn(&format!("10.0.0.{host}:{port}"));
    for host in 20..24 {
        lab.sent(&syn_of(host, 5000));
    }
    for port in 5000..5003 {
        lab.sent(&syn_of(30, port));
    }
    for host in 20..24 {
        assert_eq!(lab.dropped(&syn_of(host, 5001)), Drop::SourceLimit);
    }
    assert_eq!((counted(&lab), lab.balancer.services().unwrap()[0].unlimited), ((4, 4), 3));
    // Those that were never counted take no place from others when they end.
    lab.later(30 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!((counted(&lab), lab.connections().len()), ((0, 0), 0));
    lab.sent(&syn_of(30, 5000));
    assert_eq!(lab.dropped(&syn_of(30, 5001)), Drop::SourceLimit);
}

/// Limits and what a source is change at any moment: each connection is taken off what it was counted at.
#[test]
fn changes_leave_counts_right() {
    let prefix = |bits| Limits { source_prefix: Some(bits), ..at_most(2) };
    let Some(mut lab) = Lab::new(small(), &config(&[plan(Limits::default())])) else { return };
    lab.sent(&syn("10.0.0.60:4000"));
    for (nth, bits) in [32, 31, 24, 32, 16, 30, 29].into_iter().enumerate() {
        lab.balancer.apply(&config(&[plan(prefix(bits))])).unwrap();
        lab.send(&syn(&format!("10.0.{nth}.60:5000")));
        lab.send(&syn(&format!("10.0.{nth}.61:5000")));
    }
    // Not limited meanwhile.
    lab.balancer.apply(&config(&[plan(Limits::default())])).unwrap();
    lab.sent(&syn("10.0.0.60:4001"));
    assert_eq!(counted(&lab).0, 14);
    lab.balancer.apply(&config(&[plan(prefix(28))])).unwrap();
    let error = lab.balancer.apply(&config(&[plan(prefix(27))])).unwrap_err();
    assert!(error.to_string().contains("7 other lengths"), "{error}");
    lab.balancer.apply(&config(&[plan(prefix(24))])).unwrap();
    // Sources are other ones since.
    assert_eq!(lab.dropped(&syn("10.0.2.7:5000")), Drop::SourceLimit);
    lab.later(30 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!((counted(&lab), lab.connections().len()), ((0, 0), 0));
    lab.balancer.apply(&config(&[plan(prefix(27))])).unwrap();
    // A service that goes and comes back finds its sources' connections gone.
    lab.sent(&syn("10.0.0.60:5000"));
    lab.balancer.clear().unwrap();
    assert_eq!(counted(&lab), (0, 0));
}

#[test]
fn connections_that_end_by_command_are_taken_off() {
    let Some(lab) = Lab::new(small(), &config(&[plan(at_most(2))])) else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&syn("10.0.0.60:5001"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5002")), Drop::SourceLimit);
    lab.balancer.flush(None, Some("10.0.0.10:8080".parse().unwrap())).unwrap();
    assert_eq!(counted(&lab), (0, 0));
    lab.sent(&syn("10.0.0.60:5002"));
}

/// Also of the state that it closes in.
#[test]
fn a_connection_is_counted_until_it_is_forgotten() {
    let Some(mut lab) = Lab::new(small(), &config(&[plan(at_most(1))])) else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.sent(&from_client(ACK, "10.0.0.60:5000"));
    lab.sent(&from_client(FIN | ACK, "10.0.0.60:5000"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5001")), Drop::SourceLimit);
    lab.later(70 * SECOND);
    lab.balancer.sweep_all().unwrap();
    lab.sent(&syn("10.0.0.60:5001"));
}

/// Tables that are gone on with keep counts, what lengths sources had, and rates.
#[test]
fn another_process_counts_on() {
    let limits = Limits { source_rate: rate(1, 3), ..at_most(5) };
    let Some(mut lab) = Lab::new(small(), &config(&[plan(Limits { source_prefix: Some(31), ..limits })])) else {
        return;
    };
    let Some(directory) = BpfFs::mount() else { return };
    lab.sent(&syn("10.0.0.60:5000"));
    lab.balancer.apply(&config(&[plan(limits)])).unwrap();
    lab.sent(&syn("10.0.0.60:5001"));
    lab.sent(&syn("10.0.0.60:5002"));
    hand_over(&mut lab, &directory);
    assert_eq!((counted(&lab), lab.balancer.sizes().sources), ((3, 2), small().sources));
    lab.balancer.apply(&config(&[plan(limits)])).unwrap();
    lab.sent(&syn("10.0.0.60:5003"));
    assert_eq!(lab.dropped(&syn("10.0.0.60:5004")), Drop::SourceRate);
    lab.later(30 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(counted(&lab), (0, 0));
}

/// What another balancer tells of is counted, also above the limit, and takes nothing of the rates.
#[test]
fn connections_of_other_balancers_are_counted_and_never_refused() {
    let limits = Limits { source_rate: rate(1, 1), new_rate: rate(1, 1), ..at_most(2) };
    let Some(mut lab) = Lab::new(small(), &config(&[plan(Limits::default())])) else { return };
    for port in 5000..5003 {
        lab.sent(&syn(&format!("10.0.0.60:{port}")));
        lab.sent(&from_client(ACK, &format!("10.0.0.60:{port}")));
    }
    let mut told = Vec::new();
    let note = |_, record: Option<rig_datapath::balancer::TableRecord>| {
        told.extend(record.map(|record| record.connection));
        ControlFlow::Continue(())
    };
    lab.balancer.records(note).unwrap();
    lab.balancer.clear().unwrap();
    lab.balancer.apply(&config(&[plan(limits)])).unwrap();
    let adopter = lab.balancer.adopter();
    let adopt = || told.iter().map(|connection| adopter.adopt(connection).unwrap()).collect::<Vec<_>>();
    assert!(adopt().iter().all(|adopted| matches!(adopted, Adopted::Created { .. })), "{:?}", adopt());
    // Told of again they are the same.
    adopt();
    assert_eq!(counted(&lab), (3, 1));
    assert_eq!(lab.dropped(&syn("10.0.0.60:6000")), Drop::SourceLimit);
    lab.sent(&syn("10.0.0.61:6000"));
    lab.later(100 * SECOND);
    lab.balancer.sweep_all().unwrap();
    assert_eq!(counted(&lab), (0, 0));
}
