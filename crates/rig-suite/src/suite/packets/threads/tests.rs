use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use rig_packet::fleet::check_plan;
use rig_packet::plan::{GatewayPlan, Packets, PortPlan, Range};
use rig_sys::cpu::CpuSet;
use rig_testbed::Dut;

use super::super::{PortOf, at_port};
use super::*;
use crate::suite::{FileError, Suite};

/// The load is on line 17.
fn parse(path: &str, wire: &str, load: &str) -> Result<Scenario, FileError> {
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {{ {wire} }}\n[[scenario]]\nid = \"A\"\n\
         name = \"A\"\ntestbed = \"three\"\npath = \"{path}\"\nfrom = \"client\"\nto = \"server\"\n\
         load = {{ kind = \"packets\", protocol = \"tcp\", {load} }}\n"
    );
    Suite::parse("small.toml", &text).map(|suite| suite.scenarios[0].clone())
}

const RATE: &str = "connections_per_second = 1000, client_addresses = 50, server_addresses = 8";

fn scenario(path: &str, load: &str) -> Scenario {
    parse(path, "", &format!("{RATE}, {load}")).unwrap_or_else(|error| panic!("{path}, {load}: {error}"))
}

fn machine(cpus: u32) -> Placement {
    Placement::new(&CpuSet::new(0..cpus), &[], 0).unwrap()
}

#[test]
fn workers_that_cannot_be_are_refused_with_line_and_next_step() {
    let refused = |wire: &str, load: &str, words: &[&str]| {
        for path in ["direct", "balancer", "nftables", "haproxy", "ipvs"] {
            let error = parse(path, wire, load).expect_err(load);
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{path}, {load}: '{text}' lacks one of {words:?}");
            assert_eq!(error.line, Some(17), "{path}: {text}");
        }
    };
    refused("", &format!("{RATE}, workers = 0"), &["without workers"]);
    refused("", &format!("{RATE}, workers = \"each\""), &["such as 2", "\"all\""]);
    refused("", &format!("{RATE}, workers = 9"), &["9 workers", "server_addresses = 8", "give server_addresses = 9"]);
    refused("", "connections_per_second = 9, server_addresses = 9, workers = 2", &["client_addresses = 1"]);
    refused("", &format!("{RATE}, workers = 65"), &["65 workers", "1 to 64"]);
    refused("queues = 2", RATE, &["2 queues", "give the load workers"]);
    for workers in ["2", "\"all\""] {
        refused("rate = \"1gbit\"", &format!("{RATE}, workers = {workers}"), &["with a rate", "use one worker"]);
    }
    refused(
        "",
        &format!("{RATE}, workers = 3, hold = 2, requests_per_second = 10"),
        &["3 workers with hold = 2", "hold more"],
    );
}

#[test]
fn all_workers_are_those_that_fit_a_machine() {
    let workers = |cpus, load: &str| {
        let scenario = scenario("balancer", load).on(&machine(cpus)).unwrap();
        let packets = scenario.traffic.packets.as_ref().unwrap();
        assert_eq!(packets.workers.least(), scenario.topology.lanes(), "{load}");
        assert!(packets.workers != PacketThreads::All, "{load}");
        scenario.topology.lanes()
    };
    assert_eq!([1, 2, 4, 8, 16, 32, 64].map(|cpus| workers(cpus, "workers = \"all\"")), [1, 1, 1, 2, 4, 8, 8]);
    let few = "workers = \"all\", hold = 3, requests_per_second = 100";
    assert_eq!([2, 8, 64].map(|cpus| workers(cpus, few)), [1, 2, 3]);
    // A number that the suite names is kept on any number of CPUs.
    assert_eq!([2, 64].map(|cpus| workers(cpus, "workers = 2")), [2, 2]);
    assert_eq!([2, 64].map(|cpus| workers(cpus, "hop = false")), [1, 1]);
}

#[test]
fn one_worker_is_what_there_was_without_a_word() {
    for path in ["direct", "balancer", "ipvs"] {
        let without = scenario(path, "hop = false");
        assert_eq!(scenario(path, "workers = 1"), without, "{path}");
        let all = scenario(path, "workers = \"all\"");
        assert_eq!(all.on(&machine(2)).unwrap(), without, "{path}");
    }
}

/// The load, and beside it one of packets that says `under`.
fn flooded(path: &str, under: &str) -> Result<Scenario, FileError> {
    let under =
        format!("kind = \"packets\", protocol = \"tcp\", connections_per_second = 1000, client_addresses = 7, {under}");
    parse(path, "", &format!("{RATE}, workers = 2 }}\nunder = {{ {under}"))
}

#[test]
fn a_flood_beside_a_load_has_a_wire_and_addresses_of_its_own() {
    for path in ["balancer", "nftables", "haproxy", "ipvs"] {
        let scenario = flooded(path, "flood = \"mixed\"").unwrap_or_else(|error| panic!("{error}"));
        let (topology, under) = (&scenario.topology, scenario.under.as_ref().unwrap());
        assert_eq!((topology.lanes(), topology.client_wires(), topology.flood_lane()), (2, 3, Some(2)), "{path}");
        assert_eq!(under.listen, RequestedLoad::Idle, "{path}");
        let plan = topology.plan(&[]);
        let wires = |node: &str| plan.wires.iter().filter(|wire| wire.ends.iter().any(|end| end.space == node)).count();
        assert_eq!((wires("client"), wires("server")), (3, 2), "{path}");
        let RequestedLoad::Packets(load) = &under.connect else { panic!("{under:?}") };
        let (from, to) = &under.pairs[0];
        let dut = Dut { workers: 1, service_addresses: 8, local_addresses: 50, profile: false };
        let (cpus, peer_macs, lasts) = (&[4, 5][..], &[][..], Duration::ZERO);
        let port = PortOf { own: from, peer: to, is_client: true, cpus, peer_macs, dut: Some(dut), lasts };
        let flood = at_port(load, under.packets.as_ref().unwrap(), topology, &port).unwrap();
        let [flood] = ports(&flood) else { panic!("{flood:?}") };
        let own = addresses(&flood.local);
        assert_eq!((&flood.interface[..], own.len()), ("eth2", 7), "{path}");
        let [client, _] = placed(&scenario);
        let others: BTreeSet<_> = ports(&client).iter().flat_map(|port| addresses(&port.local)).collect();
        assert!(others.len() == 50 && own.is_disjoint(&others), "{path}");
        assert_eq!(addresses(&flood.remote), addresses(&client.ports[0].remote), "{path}");
    }
    for (path, under, words) in [
        ("balancer", "request = 1", ["two loads of packets", "a flood"]),
        ("balancer", "flood = true, workers = 2", ["several workers", "leave 'workers' out"]),
        ("direct", "flood = true", ["path direct", "device under test"]),
        ("balancer", "flood = \"fin\"", ["\"ack\"", "\"mixed\""]),
    ] {
        let error = flooded(path, under).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

/// Both ends on a machine as a trial runs them: client, then server.
fn placed(scenario: &Scenario) -> [Packets; 2] {
    let (from, to) = &scenario.traffic.pairs[0];
    let (needs, topology) = (scenario.traffic.packets.as_ref().unwrap(), &scenario.topology);
    let dut = Dut { workers: 1, service_addresses: 8, local_addresses: 50, profile: false };
    let macs: Vec<[u8; 6]> = (0..topology.lanes()).map(|lane| [2, 0, 0, 0, 0, lane as u8]).collect();
    let end = |own, peer, is_client, load: &RequestedLoad| {
        let RequestedLoad::Packets(load) = load else { panic!("{load:?}") };
        let port =
            PortOf { own, peer, is_client, cpus: &[4, 5], peer_macs: &macs, dut: Some(dut), lasts: Duration::ZERO };
        at_port(load, needs, topology, &port).unwrap()
    };
    [end(from, to, true, &scenario.traffic.connect), end(to, from, false, &scenario.traffic.listen)]
}

fn ports(packets: &Packets) -> &[PortPlan] {
    // No two workers share addresses and ports, and every address and port that is asked for belongs to a worker.
    check_plan(packets).unwrap_or_else(|error| panic!("{error}"));
    &packets.ports
}

fn addresses(ranges: &[Range]) -> BTreeSet<IpAddr> {
    let of = |range: &Range| {
        let IpAddr::V4(first) = range.first else { panic!("{range:?}") };
        (0..range.count).map(move |n| IpAddr::from(std::net::Ipv4Addr::from_bits(first.to_bits() + n)))
    };
    ranges.iter().flat_map(of).collect()
}

#[test]
fn each_worker_has_an_interface_with_addresses_and_a_neighbour_of_its_own() {
    for path in ["direct", "balancer", "nftables", "haproxy", "ipvs"] {
        let scenario = scenario(path, "workers = 3");
        let loads = placed(&scenario);
        let [client, server] = [0, 1].map(|end| ports(&loads[end]));
        for (end, total) in [(client, 50), (server, 8)] {
            assert_eq!(end.iter().map(|port| &port.interface[..]).collect::<Vec<_>>(), ["eth0", "eth1", "eth2"]);
            assert!(end.iter().all(|port| port.threads.len() == 1 && port.threads[0].queue == 0), "{path}");
            assert_eq!(end.iter().map(|port| port.threads[0].cpu).collect::<Vec<_>>(), [Some(4), Some(5), Some(4)]);
            let all: BTreeSet<_> = end.iter().flat_map(|port| addresses(&port.local)).collect();
            assert_eq!(all.len(), total, "{path}");
            let own: BTreeSet<_> = end.iter().map(|port| port.address).collect();
            assert!(own.len() == 3 && own.is_disjoint(&all), "{path}: {own:?}");
            let gateways: BTreeSet<String> = end.iter().map(|port| format!("{:?}", port.gateway)).collect();
            assert_eq!(gateways.len(), 3, "{path}: {gateways:?}");
        }
        for (lane, (client, server)) in client.iter().zip(server).enumerate() {
            if path == "direct" {
                let own = (addresses(&client.local), addresses(&server.local));
                assert_eq!((addresses(&server.remote), addresses(&client.remote)), own, "{path}, lane {lane}");
                assert_eq!(client.gateway, GatewayPlan::Mac([2, 0, 0, 0, 0, lane as u8]), "{path}");
            } else {
                // Any client may come to any server, with its own address or with the DUT's.
                assert_eq!(addresses(&client.remote).len(), 8, "{path}");
                let clients: BTreeSet<_> = ports(&loads[0]).iter().flat_map(|port| addresses(&port.local)).collect();
                assert!(addresses(&server.remote).is_superset(&clients), "{path}");
                let GatewayPlan::Address(dut) = server.gateway else { panic!("{path}: {:?}", server.gateway) };
                assert!(addresses(&server.remote).contains(&dut), "{path}: a masquerading DUT is refused");
            }
        }
    }
}

#[test]
fn a_search_holds_no_more_than_the_lanes_have_addresses_and_ports_for() {
    let load =
        "hold = 3, interval = \"1s\", client_ports = [2000, 2009], search = { goal = \"loss-free\", raise = \"hold\" }";
    let most = |path: &str, workers: &str| {
        let load =
            format!("connections_per_second = 1000, client_addresses = 5, server_addresses = 3, {load}{workers}");
        let scenario = parse(path, "", &load).unwrap_or_else(|error| panic!("{error}")).on(&machine(8)).unwrap();
        scenario.traffic.packets.unwrap().search.unwrap().options.most
    };
    assert_eq!(most("direct", ""), Some(150.0));
    // Two clients of a lane with one server, twice.
    assert_eq!([most("direct", ", workers = 2"), most("direct", ", workers = \"all\"")], [Some(40.0); 2]);
}

#[test]
fn workers_are_told_with_the_load() {
    let told = |load: &str| scenario("direct", load).traffic.to_string();
    assert!(told("workers = 2").ends_with("addresses, 2 workers at each end"), "{}", told("workers = 2"));
    assert!(told("workers = \"all\"").ends_with("all workers that each end has CPUs for"));
}
