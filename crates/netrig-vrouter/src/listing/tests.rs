use rig_cli::packet::PacketOut;
use rig_wire::ethernet::Mac;

use super::*;
use crate::fixture::{entries, logged, status, table};
use crate::lookup::narrowed;

#[test]
fn interfaces_and_next_hops_are_listed_as_contrails() {
    insta::assert_snapshot!("vif", interfaces(&status()));
    insta::assert_snapshot!("nh", next_hops(&status()));
    let status = status();
    assert!(interfaces(&status).ends_with(&interface(&status.interfaces[1], &status.next_hops)));
}

#[test]
fn routes_labels_and_identifiers_are_listed_as_contrails() {
    let all = [Family::Inet, Family::Inet6, Family::Bridge].map(|family| routes(&table(), family));
    insta::assert_snapshot!("rt", all.join("\n"));
    insta::assert_snapshot!("mpls-vxlan", labels(&status()) + "\n" + &vnis(&status()));
}

#[test]
fn what_has_taken_packets_is_listed_as_contrails() {
    insta::assert_snapshot!("vrfstats", taken(&status().networks));
}

#[test]
fn what_rules_log_is_a_line_each() {
    insta::assert_snapshot!("log", logged().iter().map(super::logged).collect::<String>());
}

#[test]
fn flows_are_listed_with_their_other_direction() {
    insta::assert_snapshot!("flow", flows(&status(), &entries(), None));
    let filter: FlowFilter = "10.1.0.11 & proto tcp".parse().unwrap();
    let taken: Vec<_> = entries().into_iter().filter(|flow| filter.takes(flow)).collect();
    let text = flows(&status(), &taken, Some(&filter));
    assert!(text.contains("\nListing flows matching ([10.1.0.11]:*, Protocol TCP)\n\n    Index"), "{text}");
    assert_eq!(taken.len(), 2);
}

#[test]
fn one_flow_is_told_with_all_that_belongs_to_it() {
    let [forward, alone, back] = &entries()[..] else { panic!() };
    let route = |to: &str| narrowed(table(), to.parse().unwrap());
    let (source, destination) = (route("10.1.0.11"), route("10.1.0.12"));
    let tables = [source.as_ref(), destination.as_ref()];
    let both = [flow(&status(), forward, Some(back), tables), flow(&status(), alone, None, [None, None])];
    insta::assert_snapshot!("flow-get", both.join("\n"));
}

#[test]
fn a_route_is_listed_alone() {
    let found = narrowed(table(), "10.9.1.1".parse().unwrap()).unwrap();
    insta::assert_snapshot!("rt-get", routes(&found, Family::Inet));
}

#[test]
fn drops_are_listed_under_contrails_names() {
    insta::assert_snapshot!("dropstats", drops(&status().drops));
    let of_cpu = |cpu| of_cpu(&status().drops, cpu).iter().map(|drop| drop.packets).sum::<u64>();
    assert_eq!([0, 1, 2].map(of_cpu), [3, 6, 0]);
    insta::assert_snapshot!("dropstats-log", last_dropped(&status()));
}

#[test]
fn one_screen_tells_all() {
    insta::assert_snapshot!("status", overview(&status()));
}

#[test]
fn the_way_of_a_packet_is_told() {
    let flow = packet::parse(&["tcp 10.1.0.11:40000 > 10.2.0.11:80".to_owned()]).unwrap();
    let frame = packet::frame(&flow, Mac([2, 0, 0, 0, 0, 1])).unwrap();
    let way = Trace {
        interface: "client".to_owned(),
        peer: None,
        steps: vec!["of no flow that is known".to_owned(), "a new connection, which is remembered".to_owned()],
        verdict: "forward".to_owned(),
        reason: None,
        packet_out: PacketOut::of(&frame, Some("veth-web".to_owned())),
    };
    let refused = Trace {
        peer: Some([192, 0, 2, 2].into()),
        verdict: "drop".to_owned(),
        reason: Some(status().interfaces[0].drops[0].clone()),
        packet_out: None,
        ..way.clone()
    };
    insta::assert_snapshot!("trace", [way, refused].map(|way| trace(&flow, &way, 80)).join("\n"));
}
