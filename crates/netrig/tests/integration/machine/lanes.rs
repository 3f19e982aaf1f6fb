//! Several packet workers at each end of the paths of three nodes: each carries its part over a wire of its own.

use std::collections::BTreeSet;

use rig_datapath::napi;
use rig_facts::record::TrialRecord;
use rig_load::record::{End, PacketRecord, PacketThread};
use rig_run::run::Execute;
use rig_skip::{Lack, skip};
use rig_suite::suite::Suite;
use rig_sys::cpu::CpuSet;
use rig_testbed::topology::Path;
use rig_testbed::{Dut, Testbed};

use super::dut::{as_root, is_lacking};
use super::world;

const DUT: Dut = Dut { workers: 1, service_addresses: 2, local_addresses: 2, profile: false };
/// 460 ms at 50 a second, of two workers in turn, the first after half an interval: so few that nothing is lost however long a
/// busy machine keeps a node from its CPU.
const OPENED: u64 = 23;

/// One scenario over `path` with two workers at each end: machines of few CPUs have them share one.
fn suite(path: Path, family: &str, load: &str) -> Suite {
    let text = format!(
        "name = \"lanes\"\ntitle = \"Lanes\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"60ms\"\n\
         [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"client\"\nto = \"server\"\n\
         load = {{ kind = \"packets\", connections_per_second = 50, client_addresses = 5, server_addresses = 3, \
         workers = 2, {load} }}\n"
    );
    let mut suite = Suite::parse("lanes.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    suite.scenarios[0].dut = path.has_dut().then_some(DUT);
    suite
}

fn end(record: &TrialRecord, end: End) -> &PacketRecord {
    let worker = record.workers.iter().find(|worker| worker.end() == end).unwrap();
    worker.packets.as_ref().unwrap()
}

fn total(record: &TrialRecord, of: End, name: &str) -> u64 {
    end(record, of).total.get(name).copied().unwrap_or(0)
}

/// Every wire has carried packets both ways, at both of its ends.
fn assert_all_wires_used(record: &TrialRecord, path: Path, what: &str) {
    for node in &record.nodes {
        let links = if path.has_dut() && node.name == "lb" { 4 } else { 2 };
        let used: BTreeSet<&str> = node
            .interfaces
            .iter()
            .filter(|interface| interface.rx_packets > 0 && interface.tx_packets > 0)
            .filter_map(|interface| interface.name.strip_prefix(&format!("{}:eth", node.name)))
            .collect();
        assert_eq!(used.len(), links, "{what}: {:?}", node.interfaces);
    }
}

/// A trial of each path that is to be had here, the others told aloud.
fn each(paths: impl IntoIterator<Item = Path>, load: &str, check: impl Fn(&TrialRecord, Path, &str)) {
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        for path in paths {
            for family in ["ipv4", "ipv6"] {
                let suite = suite(path, family, load);
                let scenario = &suite.scenarios[0];
                let what = format!("{path}, {family}");
                if is_lacking(scenario, &rig) {
                    continue;
                }
                let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ());
                let record = record.unwrap_or_else(|error| panic!("{what}: {error:#}"));
                for of in [End::Connect, End::Listen] {
                    let PacketRecord { workers, ports, .. } = end(&record, of);
                    let interfaces = ["eth0", "eth1"];
                    assert!(workers.iter().map(|worker| &worker.interface[..]).eq(interfaces), "{what}: {workers:?}");
                    assert!(ports.iter().map(|port| &port.interface[..]).eq(interfaces), "{what}: {ports:?}");
                }
                assert_all_wires_used(&record, path, &what);
                check(&record, path, &what);
            }
        }
    });
}

fn paths() -> impl Iterator<Item = Path> {
    Path::all().filter(|path| path.is_of_three())
}

#[test]
fn two_workers_at_each_end_carry_connections_without_a_failure_on_every_path() {
    each(paths(), "protocol = \"tcp\", retransmit = \"4s\"", |record, path, what| {
        assert_eq!(total(record, End::Connect, "skOpen"), OPENED, "{what}");
        assert_eq!(total(record, End::Connect, "tcpRsp"), OPENED, "{what}: {:#?}", record.workers);
        assert_eq!(total(record, End::Listen, "tcpReq"), OPENED, "{what}");
        for of in [End::Connect, End::Listen] {
            let opened = |worker: &PacketThread| worker.counters.get("skOpen").copied().unwrap_or(0);
            let workers = &end(record, of).workers;
            assert!(workers.iter().all(|worker| opened(worker) > 0), "{what}: {of:?}: {workers:?}");
            for name in ["synRt", "pushRt", "skErr", "badRx", "dropTx"] {
                assert_eq!(total(record, of, name), 0, "{what}: {name} of {of:?}: {:#?}", record.dut);
            }
        }
        assert_eq!(record.dut.is_some(), path.has_dut(), "{what}");
        let Some(dut) = &record.dut else { return };
        assert!(dut.services.iter().all(|service| service.backends.len() == 3), "{what}: {dut:?}");
        assert_eq!(dut.drops, [], "{what}");
    });
}

#[test]
fn two_workers_at_each_end_carry_datagrams_on_every_path_but_proxies() {
    each(paths().filter(|path| path.name() != "haproxy"), "protocol = \"udp\", timeout = \"4s\"", |record, _, what| {
        for (of, name) in
            [(End::Connect, "udpTx"), (End::Listen, "udpRx"), (End::Listen, "udpTx"), (End::Connect, "udpRx")]
        {
            assert_eq!(total(record, of, name), OPENED, "{what}: {name}");
        }
        if let Some(dut) = &record.dut {
            assert_eq!(dut.drops, [], "{what}");
        }
    });
}

/// A search raises what all workers do together, the generator's own limit with as many workers included.
#[test]
fn a_search_with_two_workers_at_each_end_finds_a_limit() {
    let load = "protocol = \"tcp\", search = { goal = \"loss-free\", start = 200, most = 400, precision = \"50%\", \
                step = \"100ms\" }";
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        let text = suite("direct".parse().unwrap(), "ipv4", "protocol = \"tcp\"").text;
        let text = text.replace("connections_per_second = 50, ", "").replace("protocol = \"tcp\"", load);
        let text = text.replace("\"direct\"", "\"nftables\"");
        let suite = Suite::parse("lanes.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let scenario = &suite.scenarios[0];
        if is_lacking(scenario, &rig) {
            return;
        }
        let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ()).unwrap_or_else(|error| panic!("{error:#}"));
        let search = record.search.as_ref().unwrap();
        // How much a busy machine carries is not for a test to say.
        assert!(search.outcome.held.is_some() && search.generator.is_some(), "{search:?}");
        assert!(end(&record, End::Connect).workers.len() == 2);
    });
}

/// On the CPU of the worker that they serve are the threads that receive for an end, and those of a balancer's node that
/// stand for its network cards. Client and server have both CPUs here, and take them from the first and from the last on.
#[test]
fn what_is_received_for_a_worker_or_from_it_is_received_on_its_own_cpu() {
    as_root(|| {
        let allowed = CpuSet::allowed().unwrap();
        let &[first, second, ..] = allowed.as_slice() else { return skip(Lack::Cpus, "two nodes need two CPUs") };
        let both = CpuSet::new([first, second]);
        let shares = [both.clone(), CpuSet::new([first]), both];
        let order = |node| if node == 0 { [first, second] } else { [second, first] };
        let threads = |testbed: &Testbed<'_>, node, link: &str| {
            let threads = napi::threads(&testbed.namespaces(node).next().unwrap().ns, link).unwrap();
            threads.into_iter().map(super::dut::allowed).collect::<Vec<_>>()
        };
        for path in ["balancer", "nftables", "direct"].map(|name| name.parse::<Path>().unwrap()) {
            let suite = suite(path, "ipv4", "protocol = \"tcp\"");
            let topology = &suite.scenarios[0].topology;
            let ends = if path.has_dut() { [0, 2] } else { [0, 1] };
            let shares = if path.has_dut() { &shares[..] } else { &[shares[0].clone(), shares[2].clone()] };
            let testbed = Testbed::build(topology, shares).unwrap();
            for (side, end) in ends.into_iter().enumerate() {
                assert_eq!(testbed.turns(end), order(end), "{path}");
                for (lane, cpu) in order(end).into_iter().enumerate() {
                    let what = format!("{path}, node {end}, lane {lane}");
                    // The balancer's own workers hand its packets over to the ends, which have no receive threads then.
                    let own = if path.name() == "balancer" { vec![] } else { vec![cpu.to_string()] };
                    assert_eq!(threads(&testbed, end, &format!("eth{lane}")), own, "{what}");
                    if path.has_dut() {
                        let takes = if path.name() == "balancer" { cpu } else { first };
                        let link = format!("eth{}", 2 * lane + side);
                        assert_eq!(threads(&testbed, 1, &link), [takes.to_string()], "{what}");
                    }
                }
            }
        }
    });
}
