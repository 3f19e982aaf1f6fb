//! Client, DUT and server: each path carries what it is given, on the CPUs that are its own, and leaves nothing.

use std::fs;

use rig_datapath::napi;
use rig_facts::figures::{Metric, Side, figure};
use rig_facts::record::{Flag, TrialRecord};
use rig_load::record::End;
use rig_run::run::{Execute, Rig, not_here};
use rig_skip::{Lack, skip};
use rig_suite::suite::{Scenario, Suite};
use rig_testbed::datapath::Machine;
use rig_testbed::host::Local;
use rig_testbed::topology::Path;
use rig_testbed::{Dut, Testbed};

use super::world;

const DUT: Dut = Dut { workers: 1, service_addresses: 2, local_addresses: 2, profile: false };

/// Connections that a trial opens, in its 450 ms: so few that all their packets of one way, at most five each, fit into
/// a veth's ring of 256 frames, and none is lost however long a busy machine keeps a node from its CPU.
const OPENED: u64 = 45;

/// One scenario over `path`, with `more` of its tables.
fn suite(path: Path, family: &str, load: &str, more: &str) -> Suite {
    let text = format!(
        "name = \"dut\"\ntitle = \"DUT\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"client\"\nto = \"server\"\n\
         load = {{ kind = \"packets\", connections_per_second = 100, client_addresses = 3, server_addresses = 3, {load} }}\n{more}"
    );
    let mut suite = Suite::parse("dut.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    suite.scenarios[0].dut = path.has_dut().then_some(DUT);
    suite
}

const TCP: &str = "protocol = \"tcp\", retransmit = \"4s\"";
const UDP: &str = "protocol = \"udp\", timeout = \"4s\"";

fn total(record: &TrialRecord, end: End, name: &str) -> u64 {
    let worker = record.workers.iter().find(|worker| !worker.background && worker.end() == end).unwrap();
    worker.packets.as_ref().unwrap().total.get(name).copied().unwrap_or(0)
}

/// Runs `body` where the kernel's threads are to be seen, which is not in a world of its own.
pub fn as_root(body: impl FnOnce()) {
    let _alone = world::one_at_a_time();
    match napi::may_place() {
        _ if !rig_sys::netns::may_create_namespaces() => skip(Lack::Root, "ports and receiving threads need it"),
        Err(why) => skip(Lack::ReceiveThreads, why),
        Ok(()) => body(),
    }
}

/// Whether the machine lacks what a scenario's path needs, which is told.
pub fn is_lacking(scenario: &Scenario, rig: &Rig) -> bool {
    let path = scenario.topology.path();
    let here = Local::uncounted().unwrap().with_datapaths(rig_datapaths::ALL.on(Machine { rootless: false }));
    let lack = not_here(scenario, rig.placement(), rig_datapaths::ALL, &here).unwrap();
    if let Some(rig_run::run::MissingResource { found, .. }) = &lack {
        let of = match path.name() {
            _ if found.contains("a CPU each") => Lack::Cpus,
            "ipvs" => Lack::Ipvs,
            "nftables" => Lack::Program("nft"),
            "haproxy" => Lack::Program("haproxy"),
            _ => panic!("{path}: {found}"),
        };
        skip(of, format_args!("{path}: {found}"));
    }
    lack.is_some()
}

/// A trial of each path that is to be had here, the others told aloud.
fn each(paths: impl IntoIterator<Item = Path>, load: &str, check: impl Fn(&TrialRecord, Path, &str)) {
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        for path in paths {
            for family in ["ipv4", "ipv6"] {
                let suite = suite(path, family, load, "");
                let scenario = &suite.scenarios[0];
                let what = format!("{path}, {family}");
                if is_lacking(scenario, &rig) {
                    continue;
                }
                let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ());
                check(&record.unwrap_or_else(|error| panic!("{what}: {error:#}")), path, &what);
            }
        }
    });
}

fn paths() -> impl Iterator<Item = Path> {
    Path::all().filter(|path| path.is_of_three())
}

#[test]
fn every_path_carries_connections_without_a_failure_in_both_families() {
    each(paths(), TCP, |record, path, what| {
        let opened = total(record, End::Connect, "skOpen");
        assert_eq!(opened, OPENED, "{what}");
        assert_eq!(total(record, End::Connect, "tcpRsp"), opened, "{what}: {:#?}", record.workers);
        assert_eq!(total(record, End::Listen, "tcpReq"), opened, "{what}");
        for name in ["synRt", "pushRt", "skErr", "badRx", "dropTx"] {
            for end in [End::Connect, End::Listen] {
                assert_eq!(
                    total(record, end, name),
                    0,
                    "{what}: {name} of {end:?}: {:#?}",
                    (&record.dut, &record.workers)
                );
            }
        }
        assert_eq!(record.dut.is_some(), path.has_dut(), "{what}");
        let Some(dut) = &record.dut else { return };
        assert!(dut.in_packets > 0 && dut.out_packets > 0, "{what}: {dut:?}");
        assert_eq!(dut.services.len(), 2, "{what}: {dut:?}");
        assert!(dut.services.iter().all(|service| service.backends.len() == 3), "{what}: {dut:?}");
        assert_eq!(dut.drops, [], "{what}");
        let [agent] = &record.agents[..] else { panic!("{what}: {:?}", record.agents) };
        assert_eq!((agent.name.as_str(), agent.node.as_str()), (path.name(), "lb"), "{what}");
        assert_eq!((&agent.version, &agent.state.services), (&dut.system, &dut.services), "{what}");
        // The balancer, the only one that counts connections, has counted as many as the clients have opened.
        assert_eq!(agent.begun, (path.name() == "balancer").then_some(opened), "{what}");
        println!("{what}: {}, {:?} connections", dut.system, dut.connections);
    });
}

/// A balancer that forgets connections, and takes what goes on for new ones, counts more than there are.
#[test]
fn a_balancer_that_counts_connections_twice_is_doubted() {
    let path: Path = "balancer".parse().unwrap();
    let mut suite = suite(
        path,
        "ipv4",
        &format!("{TCP}, requests = 100, interval = \"5ms\""),
        "\
         [[scenario.datapath]]\nname = \"balancer\"\nsloppy_tcp = true\n\
         [[scenario.phase]]\nname = \"before\"\ntime = \"100ms\"\n\
         [[scenario.phase]]\nname = \"flushed\"\ncommand = [{ datapath = \"balancer\", name = \"flush\" }]\n",
    );
    suite.scenarios[0].dut = Some(DUT);
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        let scenario = &suite.scenarios[0];
        if is_lacking(scenario, &rig) {
            return;
        }
        let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ()).unwrap();
        let (opened, counted) = (total(&record, End::Connect, "skOpen"), record.agents[0].begun.unwrap());
        assert!(counted > opened, "{counted} of {opened}: {:#?}", record.phases);
        let doubt = Flag::ConnectionsDiffer { agent: "balancer on lb".into(), counted, opened };
        assert!(record.flags.contains(&doubt), "{:?}", record.flags);
    });
}

/// Behind a SYN proxy nothing of a flood reaches a server, and none of it is kept.
#[test]
fn a_flood_stops_at_a_syn_proxy_and_connections_do_not() {
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        for (path, proxy) in [("balancer", "syn_proxy = \"always\""), ("nftables", "syn_proxy = true")] {
            let more = format!(
                "under = {{ kind = \"packets\", protocol = \"tcp\", flood = \"mixed\", hop = true, client_addresses = 9, \
                 connections_per_second = 2000 }}\n\
                 [[scenario.datapath]]\nname = \"{path}\"\n{proxy}\n\
                 [[scenario.phase]]\nname = \"calm\"\nunder_rate = 0\ntime = \"100ms\"\n\
                 [[scenario.phase]]\nname = \"flood\"\nunder_rate = 2000\ntime = \"200ms\"\n"
            );
            let suite = suite(path.parse().unwrap(), "ipv4", TCP, &more);
            let scenario = &suite.scenarios[0];
            if is_lacking(scenario, &rig) {
                continue;
            }
            let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ());
            let record = record.unwrap_or_else(|error| panic!("{path}: {error:#}"));
            let opened = total(&record, End::Connect, "skOpen");
            assert_eq!(total(&record, End::Connect, "tcpRsp"), opened, "{path}: {:#?}", record.workers);
            assert_eq!(total(&record, End::Listen, "skOpen"), opened, "{path}: {:#?}", record.workers);
            let flood = record.workers.iter().find(|worker| worker.background && worker.end() == End::Connect).unwrap();
            let sent = flood.packets.as_ref().unwrap();
            for name in ["synTx", "tcpTx", "udpTx", "tcpRx"] {
                assert!(sent.total.get(name).copied().unwrap_or(0) > 30, "{path}: {name} of {:?}", sent.total);
            }
            let phase =
                |name| figure(&record.of_phase(name).unwrap(), Side::Local, Metric::BackgroundPacketsOut).unwrap();
            assert!(phase("flood") > 10.0 * phase("calm"), "{path}: {} {}", phase("calm"), phase("flood"));
            // Connection tracking has the datagrams, too.
            let kept = record.dut.as_ref().unwrap().connections.filter(|_| path == "balancer");
            assert!(kept <= Some(opened), "{path}: {kept:?} connections of {opened}");
        }
    });
}

#[test]
fn servers_behind_a_wire_that_is_cut_answer_no_more() {
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        // Checks that come before the servers fail, and the next ones have time.
        for (path, check) in [
            ("balancer", "{ kind = \"tcp\", interval = \"100ms\", timeout = \"100ms\", fall = 100 }"),
            ("haproxy", "{ interval = \"100ms\", timeout = \"100ms\", fall = 100 }"),
        ] {
            let more = format!(
                "[[scenario.datapath]]\nname = \"{path}\"\ncheck = {check}\n\
                 [[scenario.datapath]]\nname = \"outage\"\nnodes = [\"server\"]\n\
                 [[scenario.phase]]\nname = \"before\"\ntime = \"400ms\"\n\
                 [[scenario.phase]]\nname = \"cut\"\n\
                 command = [{{ datapath = \"outage\", name = \"cut\", arguments = {{ wire = 2 }} }}]\n"
            );
            let load = "protocol = \"tcp\", retransmit = \"300ms\", retries = 1, workers = 2";
            let suite = suite(path.parse().unwrap(), "ipv4", load, &more);
            suite.check_datapaths(rig_datapaths::ALL).unwrap();
            let scenario = &suite.scenarios[0];
            if is_lacking(scenario, &rig) {
                continue;
            }
            let record = rig.trial(scenario, 1, &suite.timing, &mut |_, _| ());
            let record = record.unwrap_or_else(|error| panic!("{path}: {error:#}"));
            let [command] = &record.phases[1].commands[..] else { panic!("{path}: {:?}", record.phases) };
            assert!(serde_json::to_string(command).unwrap().contains("eth1"), "{path}: {command:?}");
            // No check has failed so often yet: each third connection still goes there.
            let failed = total(&record, End::Connect, "skErr") + total(&record, End::Connect, "skUnfinished");
            assert!(failed > 0, "{path}: {:#?}", record.workers);
            assert!(total(&record, End::Connect, "tcpRsp") > 0, "{path}: {:#?}", record.workers);
        }
    });
}

#[test]
fn every_path_but_proxies_carries_datagrams_in_both_families() {
    each(paths().filter(|path| path.name() != "haproxy"), UDP, |record, _, what| {
        for (end, name) in [(End::Connect, "udpTx"), (End::Listen, "udpRx"), (End::Listen, "udpTx")] {
            assert_eq!(total(record, end, name), OPENED, "{what}: {name}");
        }
        assert_eq!(total(record, End::Connect, "udpRx"), OPENED, "{what}");
        if let Some(dut) = &record.dut {
            assert_eq!(dut.drops, [], "{what}");
        }
    });
}

/// Nanoseconds that a thread has run (Documentation/scheduler/sched-stats.rst).
fn ran(thread: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

pub fn allowed(thread: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
}

#[test]
fn what_comes_to_a_balancer_is_taken_by_the_cpus_of_its_clients() {
    as_root(|| {
        let Some(rig) = world::rig() else { return };
        let suite = suite("balancer".parse().unwrap(), "ipv4", TCP, "");
        let topology = &suite.scenarios[0].topology;
        let testbed = Testbed::build(topology, &rig.placement().of(topology, Some(DUT)).unwrap()).unwrap();
        let threads = |node, link| napi::threads(&testbed.namespaces(node).next().unwrap().ns, link).unwrap();
        for link in ["eth0", "eth1"] {
            let threads = threads(1, link);
            assert_eq!(threads.len(), 1, "{link}");
            let allowed: u32 = allowed(threads[0]).parse().unwrap();
            assert!(testbed.cpus(0).contains(allowed), "{link}: CPU {allowed}");
        }
        // The balancer's workers hand over what they have themselves.
        assert_eq!([threads(0, "eth0"), threads(2, "eth0")], [[0; 0]; 2]);
    });
}

/// Each of the kernel's threads for a node is on the node's CPUs, and only these threads receive packets.
#[test]
fn what_a_node_receives_is_processed_on_its_own_cpus() {
    as_root(|| {
        let Some(rig) = world::rig() else { return };
        let suite = suite("nftables".parse().unwrap(), "ipv4", TCP, "");
        let topology = &suite.scenarios[0].topology;
        let shares = rig.placement().of(topology, Some(DUT)).unwrap();
        let mut testbed = Testbed::build(topology, &shares).unwrap();
        testbed.route_pools().unwrap();
        let threads: Vec<(usize, u32)> = (0..3)
            .flat_map(|node| {
                let place = testbed.namespaces(node).next().unwrap();
                let links = if node == 1 { &["eth0", "eth1"][..] } else { &["eth0"] };
                links.iter().flat_map(|link| napi::threads(&place.ns, link).unwrap()).map(move |pid| (node, pid))
            })
            .collect();
        assert_eq!(threads.len(), 4, "{threads:?}");
        for (node, thread) in &threads {
            assert_eq!(allowed(*thread), testbed.turns(*node)[0].to_string(), "node {node}");
        }
        // Its kernel answers, by way of the DUT's.
        let before: Vec<u64> = threads.iter().map(|(_, thread)| ran(*thread)).collect();
        let server = testbed.topology().node_address(2).addr().to_string();
        let client = testbed.namespaces(0).next().unwrap();
        client
            .ns
            .run(|| {
                let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect((server.as_str(), 9)).unwrap();
                world::until(std::time::Duration::from_secs(20), || {
                    // The port is closed: the answer is an ICMP error, which the socket tells of.
                    let _ = socket.send(b"knock");
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    socket.take_error().unwrap()
                })
                .expect("no answer")
            })
            .unwrap();
        for (thread, before) in threads.iter().zip(before) {
            // The kernel adds up a thread's time when it leaves its CPU, which may be after what it brought has arrived.
            let after = world::until(std::time::Duration::from_secs(20), || {
                let now = ran(thread.1);
                (now > before).then_some(now)
            });
            assert!(after.is_some(), "{thread:?} has not run");
        }
    });
}
