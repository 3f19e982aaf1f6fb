use std::net::IpAddr;

use super::*;
use crate::topology::paths::tests::named;

fn topology(nodes: &[&str], wire: bool, path: Path, endpoints: &[&str]) -> Result<Topology, TopologyError> {
    let names: Vec<String> = nodes.iter().map(|&n| n.to_owned()).collect();
    let endpoints: Vec<Endpoint> = endpoints.iter().map(|e| e.parse().unwrap()).collect();
    Topology::new(&names, wire.then(WireOptions::default), path, &endpoints)
}

#[test]
fn impossible_topologies_are_refused_with_a_next_step() {
    let refused = |nodes: &[&str], wire, path, endpoints: &[&str], expected: &str| {
        let error = topology(nodes, wire, path, endpoints).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
        assert!(!error.hint.is_empty());
    };
    refused(&["a", "b"], true, named("raw"), &["a/x", "b"], "not containers");
    refused(&["a"], false, named("raw"), &["a"], "needs two nodes");
    refused(&["a", "b"], true, named("bridge"), &["a", "b"], "not nodes");
    refused(&["a", "b"], true, named("colocated"), &["a/x", "a/y"], "one node");
    refused(&["a"], false, named("vxlan"), &["a/x", "a/y"], "needs a wire");
    refused(&["a"], true, named("bridge"), &["a/x", "a/y"], "two nodes");
    refused(&["a", "b"], false, named("bridge"), &["a/x", "b/y"], "without a wire");
    refused(&["a", "a"], true, named("raw"), &["a", "a"], "named twice");
    refused(&["a", "b"], true, named("bridge"), &["a/x", "c/y"], "unknown node");
    refused(&["a", "b"], true, named("vxlan"), &["a/x", "b"], "not nodes");
    refused(&["a", "b"], true, named("etun"), &["a/x", "a", "b/y", "b"], "endpoint a is a node with containers");
}

#[test]
fn one_end_of_a_path_may_be_a_node_without_containers() {
    for path in [named("etun"), named("bridge"), named("macvlan")] {
        for family in [Family::Ipv4, Family::Ipv6] {
            let topology = topology(&["a", "b"], true, path, &["a/x", "b"]).unwrap().with_family(family).unwrap();
            let node = topology.address(&"b".parse().unwrap()).unwrap();
            let container = topology.address(&"a/x".parse().unwrap()).unwrap();
            assert_ne!(node, container, "{path}");
        }
    }
}

#[test]
fn a_wire_is_large_enough_for_what_the_path_and_the_family_need() {
    let least = |path, family, mtu| {
        let ends = if path == named("raw") { ["a", "b"] } else { ["a/x", "b/y"] };
        let ends = ends.map(|end| end.parse().unwrap());
        let wire = WireOptions { mtu, ..Default::default() };
        Topology::new(&["a".into(), "b".into()], Some(wire), path, &ends)?.with_family(family)
    };
    for (path, family, mtu) in [
        (named("raw"), Family::Ipv4, 576),
        (named("vxlan"), Family::Ipv4, 626),
        (named("raw"), Family::Ipv6, 1280),
        (named("bridge"), Family::Ipv6, 1280),
        (named("vxlan"), Family::Ipv6, 1350),
    ] {
        assert_eq!(least(path, family, mtu).unwrap().endpoint_mtu(), family.mtu_min(), "{path} {family:?}");
        let error = least(path, family, mtu - 1).unwrap_err();
        assert!(error.to_string().contains("MTU"), "{path} {family:?}: {error}");
    }
}

#[test]
fn wire_options_have_ranges() {
    let names = ["a".to_owned(), "b".to_owned()];
    let ends = ["a".parse().unwrap(), "b".parse().unwrap()];
    let good = WireOptions::default();
    let bad = [
        WireOptions { mtu: 100, ..good },
        WireOptions { mtu: 70_000, ..good },
        WireOptions { queues: 0, ..good },
        WireOptions { queues: 1000, ..good },
        WireOptions { rate: Some(10), ..good },
    ];
    for wire in bad {
        assert!(Topology::new(&names, Some(wire), named("raw"), &ends).is_err(), "{wire:?} was taken");
    }
    assert!(Topology::new(&names, Some(good), named("raw"), &ends).is_ok());
}

#[test]
fn every_endpoint_has_an_address_of_its_own() {
    let endpoints: Vec<String> = (0..100).flat_map(|i| [format!("a/c{i}"), format!("b/c{i}")]).collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    for path in [named("etun"), named("bridge"), named("macvlan"), named("vxlan")] {
        for family in [Family::Ipv4, Family::Ipv6] {
            let topology = topology(&["a", "b"], true, path, &endpoints).unwrap().with_family(family).unwrap();
            let addresses: BTreeSet<_> =
                endpoints.iter().map(|e| topology.address(&e.parse().unwrap()).unwrap()).collect();
            assert_eq!(addresses.len(), endpoints.len(), "{path} {family:?}");
            assert!(!addresses.contains(&topology.node_address(0).addr()));
        }
    }
}

#[test]
fn a_dut_stands_between_client_and_server() {
    let three = ["client", "lb", "server"];
    let refused = |nodes: &[&str], wire, path, ends: &[&str], expected: &str| {
        let error = topology(nodes, wire, path, ends).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
    };
    refused(&["a", "b"], true, named("balancer"), &["a", "b"], "testbed of 2 nodes");
    refused(&three, true, named("raw"), &["client", "server"], "three nodes");
    refused(&three, false, named("direct"), &["client", "server"], "without a wire");
    refused(&three, true, named("nftables"), &["client/c", "server"], "is a container");
    refused(&three, true, named("haproxy"), &["client", "lb"], "stands between");
    refused(&three, true, named("ipvs"), &["server", "client"], "whose client is client");
    for path in Path::all().filter(|path| path.is_of_three()) {
        for family in [Family::Ipv4, Family::Ipv6] {
            let t = topology(&three, true, path, &["client", "server"]).unwrap().with_family(family).unwrap();
            let ends: [Endpoint; 2] = ["client", "server"].map(|end| end.parse().unwrap());
            assert_eq!(t.dut().is_some(), path != named("direct"), "{path}");
            assert_eq!(t.nodes().len(), if path == named("direct") { 2 } else { 3 }, "{path}");
            let mut pools: BTreeSet<IpAddr> = ends.iter().map(|end| t.pool(end).unwrap().first()).collect();
            pools.extend([t.virtual_pool().first(), t.local_pool().first()]);
            assert_eq!(pools.len(), 4, "{path} {family:?}: {pools:?}");
            let mut own: BTreeSet<IpAddr> = ends.iter().map(|end| t.address(end).unwrap()).collect();
            if path.has_dut() {
                own.extend([t.node_address(1).addr(), t.dut_address().addr()]);
                assert_eq!(own.len(), 4, "{path} {family:?}: {own:?}");
                // The link to either end is a subnet of its own.
                assert_eq!(t.next_hop(&ends[0], &ends[1]), Some(NextHop::Router(t.node_address(1).addr())));
                assert_eq!(t.next_hop(&ends[1], &ends[0]), Some(NextHop::Router(t.dut_address().addr())));
            } else {
                assert_eq!(t.next_hop(&ends[0], &ends[1]), Some(NextHop::Peer(ends[1].clone())));
            }
        }
    }
    // RFC 2544 has set apart 198.18.0.0/15.
    let t = topology(&three, true, named("balancer"), &["client", "server"]).unwrap();
    let server = t.pool(&"server".parse().unwrap()).unwrap();
    let all = [t.virtual_pool(), t.local_pool(), server];
    for address in all.into_iter().flat_map(|pool| pool.addresses(Pool::SIZE).chain([pool.port()])) {
        let IpAddr::V4(address) = address else { panic!("{address}") };
        assert!(address.octets()[0] == 198 && matches!(address.octets()[1], 18 | 19), "{address}");
    }
}

#[test]
fn a_path_of_many_nodes_and_networks_says_what_it_has_not() {
    let of = |networks, nodes: usize, path: &str, ends: &[&str]| {
        let names: Vec<String> = (0..nodes).map(|number| format!("n{number}")).collect();
        let ends: Vec<Endpoint> = ends.iter().map(|end| end.parse().unwrap()).collect();
        Topology::of_networks(networks, &names, (nodes > 1).then(WireOptions::default), named(path), &ends)
    };
    let ends = ["n0/x", "n1/y"];
    for (networks, nodes, path, ends, expected) in [
        (0, 3, "vrouter", ends, "0 networks: choose 1 to 16"),
        (17, 3, "vrouter", ends, "17 networks: choose 1 to 16"),
        (
            2,
            2,
            "bridge",
            ends,
            "2 networks on path bridge: its containers are of one: remove networks, or choose path vrouter",
        ),
        (1, 17, "vrouter", ends, "17 nodes: use one or two, or up to 16 on path vrouter"),
        (1, 4, "bridge", ends, "path bridge in a testbed of 4 nodes: use one or two, or up to 16 on path vrouter"),
        (2, 3, "vrouter", ["n0/net3", "n1/y"], "n0/net3 is in network 3, and there are 2"),
        (2, 3, "vrouter", ["n0/net0", "n1/y"], "n0/net0 is in network 0"),
        (1, 3, "vrouter", ["n0", "n1"], "joins containers, not nodes"),
    ] {
        let error = of(networks, nodes, path, &ends).unwrap_err();
        assert!(error.to_string().contains(expected), "{error} lacks '{expected}'");
    }
    let names: Vec<String> = (0..17).map(|number| format!("n{number}")).collect();
    assert!(Topology::check_nodes(&names[..16]).is_ok());
    let error = Topology::check_nodes(&names).unwrap_err();
    assert!(error.hint.ends_with("or up to 16 on path vrouter"), "{error}");
    let without_wire = Topology::new(&names[..3], None, named("vrouter"), &[]).unwrap_err();
    assert!(without_wire.to_string().contains("3 nodes without a wire"), "{without_wire}");
    let crowd: Vec<String> = (0..Topology::CONTAINERS_MAX).map(|number| format!("n0/c{number}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    assert!(of(1, 2, "vrouter", &crowd).is_ok());
    assert!(of(2, 2, "vrouter", &crowd).unwrap_err().hint.contains("at most 250"));
}

#[test]
fn a_container_is_of_the_network_that_its_name_says() {
    let names = ["a", "b", "c"].map(str::to_owned);
    let ends: Vec<Endpoint> = ["a/x", "a/y", "c/net2"].map(|end| end.parse().unwrap()).into();
    let wire = Some(WireOptions::default());
    let topology = Topology::of_networks(2, &names, wire, named("vrouter"), &ends).unwrap();
    let containers: Vec<&[String]> = topology.nodes().iter().map(|node| &node.containers[..]).collect();
    assert_eq!(containers, [&["x", "y", "net2"][..], &["net1", "net2"], &["net2", "net1"]]);
    let networks = ["a/x", "a/net2", "b/net1", "c/net2"].map(|end| topology.network(&end.parse().unwrap()));
    assert_eq!(networks, [1, 2, 1, 2]);
    // Where load ends, which is where CPUs are needed.
    assert_eq!((topology.shares(), topology.share_count()), (vec![0, 0, 1], 2));
    assert_eq!(["a", "b", "c"].map(|node| topology.is_at_work(node)), [true, false, true]);
    let pair = |from: &str, to: &str| topology.check_pair(&from.parse().unwrap(), &to.parse().unwrap());
    assert!(pair("a/net2", "c/net2").is_ok() && pair("a/x", "c/net1").is_ok());
    let error = pair("a/x", "c/net2").unwrap_err().to_string();
    assert!(error.contains("a/x of network 1 to c/net2 of network 2") && error.ends_with("c/net1"), "{error}");
    // Where there is one, names are nothing but names.
    let one = Topology::new(&names[..2], wire, named("bridge"), &["a/net7".parse().unwrap(), "b/x".parse().unwrap()]);
    assert_eq!(one.unwrap().network(&"a/net7".parse().unwrap()), 1);
}

#[test]
fn names_are_checked() {
    for bad in ["", "a b", "a/b/c", "-x", "x;y", "/", "a/", &"n".repeat(33)] {
        assert!(bad.parse::<Endpoint>().is_err(), "{bad:?} was taken");
    }
    assert_eq!("a/sender".parse::<Endpoint>().unwrap().to_string(), "a/sender");
}
