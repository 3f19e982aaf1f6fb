//! Configurations of one router with four containers: any networks, routes and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;

use ipnet::IpNet;
use proptest::prelude::*;
use rig_datapath::vrouter::{
    Action, Analyser, Config, Encapsulation, Flood, FlowActions, Interface, List, NextHop, Peer, Policy, ROUTER_MAC,
    Rule, Service, Tunnel, Underlay, Vni, Vrf,
};

use super::bytes::{address, mac};
use super::lab::{TO_ALL, underlay_of};

pub const INTERFACES: u32 = 4;
/// Of the interface that tunnels' packets come by.
pub const UNDERLAY: u32 = INTERFACES + 1;
pub const ANALYSERS: u8 = 2;

fn tunnel() -> impl Strategy<Value = NextHop> {
    let label = prop_oneof![100_u32..104, 4242_u32..4244];
    (1_usize..3, prop::sample::select(Encapsulation::ALL.to_vec()), label, 5_u8..9).prop_map(
        |(peer, encapsulation, label, to)| {
            NextHop::Tunnel(Tunnel { peer: underlay_of(peer), encapsulation, label, mac: mac(to) })
        },
    )
}

fn way() -> impl Strategy<Value = NextHop> {
    prop_oneof![2 => (1..=INTERFACES).prop_map(NextHop::Interface), 1 => tunnel()]
}

fn next_hop() -> impl Strategy<Value = NextHop> {
    prop_oneof![
        6 => way(),
        2 => prop::collection::vec(way(), 1..4).prop_map(NextHop::Ecmp),
        2 => (1_u32..4).prop_map(NextHop::Vrf),
        1 => Just(NextHop::Gateway),
        1 => Just(NextHop::Discard),
    ]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    let some = ["0.0.0.0/0", "::/0", "10.7.0.0/16", "fd07::/64", "10.7.0.8/29", "fd07::a/127", "198.51.100.0/24"];
    let wide = prop::sample::select(some.to_vec()).prop_map(|prefix| prefix.parse::<IpNet>().unwrap().trunc());
    let host = (0_u8..11, any::<bool>()).prop_map(|(number, is_v6)| IpNet::from(address(number, is_v6)));
    prop_oneof![wide, host]
}

/// One of the analysers, now and then.
fn analyser(how_often: f64) -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(how_often, 1..=ANALYSERS)
}

/// Nearly always none.
fn fat() -> impl Strategy<Value = BTreeSet<Service>> {
    let service = (prop::sample::select(vec![6_u8, 17]), prop::sample::select(vec![80_u16, 443]));
    let some = prop::collection::btree_set(service.prop_map(|(protocol, port)| Service { protocol, port }), 1..4);
    prop_oneof![2 => Just(BTreeSet::new()), 1 => some]
}

/// An analyser that cannot be reached: copies for it are counted.
fn nowhere() -> Analyser {
    Analyser { source: underlay_of(0), address: Ipv4Addr::new(192, 0, 2, 99), port: 4789, vni: 7, peer: None }
}

fn list() -> impl Strategy<Value = List> {
    let action = prop_oneof![2 => Just(Action::Allow), 1 => Just(Action::Deny)];
    let ports = prop_oneof![3 => Just(0..=u16::MAX), 1 => Just(80..=443), 1 => Just(8..=8), 1 => Just(128..=129), 1 => Just(0..=0)];
    let protocol = prop::sample::select(vec![None, Some(6), Some(17), Some(1), Some(58), Some(60)]);
    let remote = prop_oneof![
        2 => Just(BTreeSet::new()),
        1 => prop::collection::btree_set(prefix(), 1..3)
    ];
    let flow_actions = (prop::bool::weighted(0.3), analyser(0.2)).prop_map(|(log, mirror)| FlowActions { log, mirror });
    let rule = (protocol, ports, remote, action.clone(), flow_actions).prop_map(
        |(protocol, ports, remote, action, flow_actions)| Rule { protocol, ports, remote, action, flow_actions },
    );
    (prop::collection::vec(rule, 0..4), action).prop_map(|(rules, otherwise)| List { rules, otherwise })
}

fn policy() -> impl Strategy<Value = Option<Policy>> {
    let lists = || prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(1_u32..4, 1..3)];
    let most = prop_oneof![4 => Just(None), 1 => (1_u32..5).prop_map(NonZeroU32::new)];
    let policy =
        (lists(), lists(), most).prop_map(|(outward, inward, most_flows)| Policy { outward, inward, most_flows });
    prop_oneof![4 => policy.prop_map(Some), 1 => Just(None)]
}

/// Interfaces by the kernel's numbers 1 to 4, which are not yet those of real ones.
pub fn config() -> impl Strategy<Value = Config> {
    let interfaces =
        prop::collection::vec((1_u32..3, policy(), any::<bool>(), analyser(0.1), fat()), INTERFACES as usize);
    let elsewhere = prop::collection::vec(tunnel(), 4);
    let more = prop::collection::vec((1_u32..4, prefix(), next_hop()), 0..8);
    // Of one only.
    let some_mac = (0_u8..12).prop_filter("a group's", |of| !mac(*of).is_multicast());
    let macs = prop::collection::vec((1_u32..3, some_mac, next_hop()), 0..3);
    let by = (prop::sample::select(Encapsulation::ALL.to_vec()), 4242_u32..4244);
    let flood = (any::<bool>(), any::<bool>(), prop::collection::btree_map(1_usize..3, by, 0..3));
    let floods = prop::collection::vec(prop_oneof![1 => Just(None), 4 => flood.prop_map(Some)], 3);
    let lists = prop::collection::vec(list(), 3);
    let anycast = prop::collection::vec(way(), 2..4);
    let labels = prop::collection::vec(next_hop(), 6);
    let mtu = prop::sample::select(vec![1500_u16, 1500, 600, 1430]);
    // Of the peers one at most is reached by another interface than their packets come by.
    let underlay = (mtu, any::<bool>(), prop_oneof![3 => Just(0_u8), 1 => Just(2)]);
    (interfaces, elsewhere, more, (macs, floods), lists, anycast, labels, underlay).prop_map(
        |(interfaces, elsewhere, more, (macs, floods), lists, anycast, labels, (mtu, strict, apart))| {
            let mut vrfs: BTreeMap<u32, Vrf> = (1..4).map(|vrf| (vrf, Vrf::default())).collect();
            for (number, table) in &mut vrfs {
                for is_v6 in [false, true] {
                    let mut route = |of: u8, hop: NextHop| table.routes.insert(address(of, is_v6).into(), hop);
                    route(0, NextHop::Gateway);
                    route(9, NextHop::Ecmp(anycast.clone()));
                    (5..9).zip(&elsewhere).for_each(|(of, hop)| drop(route(of, hop.clone())));
                    for ((of, interface), (vrf, ..)) in (1..5).zip(1..).zip(&interfaces) {
                        // In another network by way of its own table.
                        let hop = if vrf == number { NextHop::Interface(interface) } else { NextHop::Vrf(*vrf) };
                        route(of, hop);
                    }
                }
                (5..9).zip(&elsewhere).for_each(|(of, hop)| drop(table.macs.insert(mac(of), hop.clone())));
                for (interface, (vrf, ..)) in (1..).zip(&interfaces) {
                    if vrf == number {
                        table.macs.insert(mac(interface as u8), NextHop::Interface(interface));
                    }
                }
            }
            for ((number, table), flood) in vrfs.iter_mut().zip(floods) {
                let Some((unknown_unicast, has_label, peers)) = flood else { continue };
                let members = (1..).zip(&interfaces).filter(|(_, (vrf, ..))| vrf == number).map(|(member, _)| member);
                let peers = peers.into_iter().map(|(peer, way)| (underlay_of(peer), way)).collect();
                let label = has_label.then_some(TO_ALL + number - 1);
                table.flood = Some(Flood { members: members.collect(), label, peers, unknown_unicast });
            }
            for (vrf, prefix, hop) in more {
                vrfs.entry(vrf).or_default().routes.insert(prefix, hop);
            }
            for (vrf, of, hop) in macs {
                vrfs.entry(vrf).or_default().macs.insert(mac(of), hop);
            }
            let described = (1..).zip(interfaces).map(|(number, (vrf, policy, told, mirror, fat))| {
                let interface = Interface {
                    index: number,
                    vrf,
                    mac: mac(number as u8),
                    any_mac: told != (number % 2 == 0),
                    gateway: told.then_some(Ipv4Addr::new(10, 7, 0, 1)),
                    gateway6: told.then_some(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1)),
                    mirror: mirror.filter(|_| policy.is_some()),
                    fat: if policy.is_some() { fat } else { BTreeSet::new() },
                    serves_dhcp: number % 2 == 0,
                    policy,
                };
                (number, interface)
            });
            let own = (100..).zip(1..=INTERFACES).map(|(label, number)| (label, NextHop::Interface(number)));
            let peers = (1..3).map(|peer| {
                let address = underlay_of(peer);
                let interface = if peer == usize::from(apart) { 77 } else { UNDERLAY };
                (address, Peer { interface, gateway: address, mtu })
            });
            Config {
                mac: ROUTER_MAC,
                underlay: Some(Underlay { address: underlay_of(0), peers: peers.collect(), strict }),
                vrfs: vrfs.into_iter().map(|(number, vrf)| (number, vrf.into())).collect(),
                interfaces: described.collect(),
                labels: own.chain((200..).zip(labels)).collect(),
                vnis: [(4242, Vni::Vrf(1)), (4243, Vni::Vrf(2)), (4244, Vni::Interface(1)), (4245, Vni::Interface(4))]
                    .into(),
                lists: (1..).zip(lists).collect(),
                analysers: (1..=ANALYSERS).map(|number| (number, nowhere())).collect(),
                most_flows: NonZeroU32::new(u32::from(mtu) % 5 * 3),
            }
        },
    )
}
