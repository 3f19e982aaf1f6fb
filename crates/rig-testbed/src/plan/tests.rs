use std::collections::BTreeSet;

use super::*;
use crate::topology::{Endpoint, Endpoints, Family, Layout, Path, Topology, WireOptions};

/// Testbeds of each path in both families, with several containers where there are such, and with every kind of wire.
fn topologies() -> Vec<Topology> {
    let plain = WireOptions::default();
    let limited = WireOptions { rate: Some(1_000_000_000), mtu: 9000, queues: 2, ..plain };
    let segmented = WireOptions { segmentation_offload: false, ..plain };
    let mut all = Vec::new();
    for path in Path::all() {
        let (smallest, ends) = Topology::smallest(path).unwrap();
        let mut names: Vec<String> = smallest.nodes().iter().map(|node| node.name.clone()).collect();
        if path.layout() == Layout::NoDut {
            names.insert(1, "dut".to_owned());
        }
        // A veth pair has two ends.
        let each = if path.name() == "veth" { 1 } else { 3 };
        let more = |end: &Endpoint| match &end.container {
            None => vec![end.clone()],
            Some(container) => {
                (0..each).map(|n| Endpoint { container: Some(format!("{container}{n}")), ..end.clone() }).collect()
            }
        };
        let several: Vec<Endpoint> = ends.iter().flat_map(more).collect();
        let wires = if names.len() == 1 { vec![None] } else { [plain, limited, segmented].map(Some).to_vec() };
        for wire in wires {
            for family in [Family::Ipv4, Family::Ipv6] {
                // Of three nodes, segments are not cut up.
                let Ok(topology) = Topology::new(&names, wire, path, &several) else {
                    assert!(path.is_of_three(), "{path}: {wire:?}");
                    continue;
                };
                all.push(topology.with_family(family).unwrap());
            }
        }
        if path.is_of_three() {
            all.push(smallest.with_lanes(3).unwrap());
        }
        if path.endpoints() == Endpoints::ContainersOrNode {
            let one = [ends[0].clone(), Endpoint { container: None, ..ends[1].clone() }];
            all.push(Topology::new(&names, Some(plain), path, &one).unwrap());
        }
    }
    assert!(all.len() > 5 * Path::all().count());
    all
}

fn plans() -> impl Iterator<Item = (String, Plan)> {
    topologies().into_iter().flat_map(|topology| {
        let cpus: Vec<CpuSet> = (0..3).map(|node| CpuSet::new([node, node + 8])).collect();
        let what = format!("{} {:?}", topology.path(), topology.family());
        [(what.clone(), topology.plan(&cpus)), (format!("pools of {what}"), topology.plan_of_pools())]
    })
}

#[test]
fn a_plan_reads_back_from_json_as_it_was() {
    for (what, plan) in plans() {
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan, "{what}: {json}");
    }
    let unknown = r#"{"nodes": [{"name": "a", "spaces": [], "colour": "red"}]}"#;
    assert!(serde_json::from_str::<Plan>(unknown).is_err());
}

#[test]
fn whatever_a_plan_refers_to_is_in_it() {
    for (what, plan) in plans().filter(|(what, _)| !what.starts_with("pools")) {
        let ends: Vec<&InterfaceRef> = plan.wires.iter().flat_map(|wire| &wire.ends).collect();
        assert!(ends.iter().all(|end| plan.interface(end).is_some_and(|own| own.link == Link::Wire)), "{what}");
        let mut far = 0;
        for space in plan.spaces() {
            let names: BTreeSet<&str> = space.interfaces.iter().map(|own| own.name.as_str()).collect();
            assert_eq!(names.len(), space.interfaces.len(), "{what}: {}", space.name);
            for own in &space.interfaces {
                let bridge = own.bridge.as_deref().map(|bridge| space.interface(bridge).unwrap().link.clone());
                assert!(bridge.is_none_or(|bridge| bridge == Link::Bridge), "{what}: {own:?}");
                match &own.link {
                    Link::Veth { far: at } => {
                        assert_eq!(plan.interface(at).unwrap().link, Link::Far, "{what}: {own:?}");
                        far += 1;
                    }
                    Link::Macvlan { over } => assert!(plan.interface(over).is_some(), "{what}: {own:?}"),
                    Link::Vxlan { underlay, .. } => assert!(names.contains(underlay.as_str()), "{what}: {own:?}"),
                    Link::Wire => {
                        assert!(ends.contains(&&InterfaceRef::new(&space.name, &own.name)), "{what}: {own:?}");
                    }
                    Link::Far => far -= 1,
                    Link::Bridge | Link::OfHost { .. } => {}
                }
            }
            let by = space.routes.iter().filter_map(|route| route.interface.as_deref());
            assert!(
                by.chain(space.neighbours.iter().map(|own| own.interface.as_str()))
                    .all(|by| by == "lo" || names.contains(by)),
                "{what}"
            );
        }
        assert_eq!(far, 0, "{what}: each pair has two ends");
    }
}

#[test]
fn no_two_interfaces_have_the_same_hardware_address_and_no_two_the_same_address() {
    for (what, plan) in plans() {
        let all = || plan.spaces().flat_map(|space| &space.interfaces);
        let macs: Vec<Mac> = all().filter_map(|own| own.mac).collect();
        assert_eq!(macs.len(), all().filter(|own| own.link.has_own_mac()).count(), "{what}");
        assert_eq!(macs.iter().collect::<BTreeSet<_>>().len(), macs.len(), "{what}: {macs:?}");
        assert!(macs.iter().all(|mac| mac.0[0] & 3 == 2), "{what}: administered locally, and of one station");
        let unicast = |address: &IpAddr| !matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let addresses: Vec<IpAddr> = all().flat_map(|own| &own.addresses).map(IpNet::addr).filter(unicast).collect();
        assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len(), "{what}: {addresses:?}");
    }
}

fn many(networks: u32, family: Family) -> Topology {
    let names = ["a", "b", "c"].map(str::to_owned);
    let ends: Vec<Endpoint> = ["a/sender", "c/receiver"].map(|end| end.parse().unwrap()).into();
    let path = "vrouter".parse().unwrap();
    let topology = Topology::of_networks(networks, &names, Some(WireOptions::default()), path, &ends).unwrap();
    topology.with_family(family).unwrap()
}

#[test]
fn many_nodes_have_a_wire_to_each_other_and_a_container_of_each_network() {
    let cpus: Vec<CpuSet> =
        many(2, Family::Ipv4).shares().into_iter().map(|share| CpuSet::new([share as u32])).collect();
    insta::assert_json_snapshot!(many(2, Family::Ipv4).plan(&cpus));
}

#[test]
fn networks_have_the_same_addresses_and_within_one_each_its_own() {
    for family in [Family::Ipv4, Family::Ipv6] {
        let topology = many(Topology::NETWORKS_MAX, family);
        let plan = topology.plan(&[]);
        let mut of_networks: BTreeMap<u32, BTreeSet<IpAddr>> = BTreeMap::new();
        for space in plan.spaces().filter(|space| space.name.contains('/')) {
            let endpoint: Endpoint = space.name.parse().unwrap();
            let own = space.interfaces[0].addresses[0].addr();
            assert_eq!(topology.address(&endpoint), Some(own), "{endpoint}");
            assert!(of_networks.entry(topology.network(&endpoint)).or_default().insert(own), "{endpoint}: {own}");
        }
        assert_eq!(of_networks.len(), Topology::NETWORKS_MAX as usize);
        assert!(of_networks.values().all(|own| own.len() == 3 && *own == of_networks[&1]), "{of_networks:?}");
        let macs: Vec<Mac> = plan.spaces().flat_map(|space| &space.interfaces).filter_map(|own| own.mac).collect();
        assert_eq!(macs.iter().collect::<BTreeSet<_>>().len(), macs.len());
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
}

#[test]
fn a_plan_says_what_the_machine_has_to_have() {
    let needs = |path: &str| Topology::smallest(path.parse().unwrap()).unwrap().0.plan(&[]).features();
    let wire = [Feature::Veth, Feature::Sysfs, Feature::ReceiveSteering];
    assert_eq!(needs("raw"), wire.into());
    assert_eq!(needs("colocated"), [Feature::Veth, Feature::Bridge].into());
    let with = |more: &[Feature]| wire.into_iter().chain(more.iter().copied()).collect::<BTreeSet<_>>();
    assert_eq!(needs("etun"), with(&[Feature::Forwarding]));
    assert_eq!(needs("macvlan"), with(&[Feature::Macvlan]));
    assert_eq!(needs("vxlan"), with(&[Feature::Bridge, Feature::Vxlan]));
    assert!(needs("direct").is_superset(&[Feature::Veth, Feature::Sysfs, Feature::Offloads].into()));
}

#[test]
fn nodes_that_are_not_neighbours_are_joined_below_the_drawing() {
    let space = |name: &str, interfaces: &[&str]| NamespacePlan {
        name: name.to_owned(),
        interfaces: interfaces.iter().map(|own| Interface::new(*own, Link::Wire)).collect(),
        ..NamespacePlan::default()
    };
    let node = |name: &str, interfaces: &[&str]| Node {
        name: name.to_owned(),
        spaces: vec![space(name, interfaces)],
        ..Node::default()
    };
    let wire =
        |a: (&str, &str), b: (&str, &str)| Wire { ends: [InterfaceRef::new(a.0, a.1), InterfaceRef::new(b.0, b.1)] };
    let plan = Plan {
        nodes: vec![node("a", &["eth0", "eth1"]), node("b", &["eth0"]), node("c", &["eth0"])],
        wires: vec![wire(("a", "eth0"), ("b", "eth0")), wire(("a", "eth1"), ("c", "eth0"))],
    };
    let drawing = plan.draw();
    assert_eq!(drawing.matches("├── wire ──┤").count(), 1, "{drawing}");
    assert!(drawing.ends_with("a eth1 ── wire ── c eth0\n"), "{drawing}");
}
