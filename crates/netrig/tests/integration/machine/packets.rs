//! Loads of kind packets: through every path, with exact numbers of packets, and gone without a trace.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use rig_facts::claim::{Metric, Side};
use rig_facts::figures::figure;
use rig_facts::record::{Flag, TrialRecord};
use rig_load::record::{End, PacketRecord};
use rig_packet::search::{SearchEnding, StepPurpose};
use rig_run::run::{Execute, Rig};
use rig_skip::{Lack, skip};
use rig_suite::suite::Suite;
use rig_testbed::topology::{Endpoints, Layout, Path};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::world;

fn named(name: &str) -> Path {
    name.parse().unwrap()
}

/// One scenario over `path`; retransmission is so late that a machine that is busy with other things does not bring it
/// about.
fn suite(path: Path, family: &str, load: &str) -> Suite {
    let (testbed, from, to) = match (path.endpoints(), path.layout()) {
        (Endpoints::Nodes, _) => ("two", "a", "b"),
        (_, Layout::One) => ("one", "a/c", "a/d"),
        _ => ("two", "a/c", "b/d"),
    };
    let text = format!(
        "name = \"packets\"\ntitle = \"Packets\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n[testbed.one]\nnodes = [\"a\"]\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"{testbed}\"\npath = \"{path}\"\nfamily = \"{family}\"\n\
         from = \"{from}\"\nto = \"{to}\"\nload = {{ kind = \"packets\", {load} }}\n"
    );
    Suite::parse("packets.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn trial(rig: &mut Rig, suite: &Suite, what: &str) -> TrialRecord {
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
    record.unwrap_or_else(|error| panic!("{what}: {error:#}"))
}

fn end(record: &TrialRecord, end: End) -> &PacketRecord {
    let worker = record.workers.iter().find(|worker| worker.end() == end).unwrap();
    worker.packets.as_ref().unwrap()
}

fn total(record: &PacketRecord, name: &str) -> u64 {
    record.total.get(name).copied().unwrap_or(0)
}

/// Connections of one request: each takes so many packets from the client and from the server, none more.
fn assert_connections(record: &TrialRecord, (out, back): (u64, u64), what: &str) {
    let (client, server) = (end(record, End::Connect), end(record, End::Listen));
    let opened = total(client, "skOpen");
    // 450 ms at 1000 a second, each at its time however late it began.
    assert_eq!(opened, 450, "{what}: {client:?}");
    for (name, count) in [("tcpTx", opened * out), ("tcpRx", opened * back), ("skClose", opened), ("tcpRsp", opened)] {
        assert_eq!(total(client, name), count, "{what}: {name} of {client:?}");
    }
    for (name, count) in [("tcpRx", opened * out), ("tcpTx", opened * back), ("skOpen", opened), ("tcpReq", opened)] {
        assert_eq!(total(server, name), count, "{what}: {name} of {server:?}");
    }
    for name in ["synRt", "finRt", "pushRt", "skErr", "noSocket", "badRx", "dropTx"] {
        assert_eq!((total(client, name), total(server, name)), (0, 0), "{what}: {name}");
    }
}

const SLOWLY: &str = "connections_per_second = 1000, retransmit = \"4s\", client_addresses = 3";

#[test]
fn a_short_connection_is_three_packets_each_way_on_every_path() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        for (path, family) in Path::plain().flat_map(|path| ["ipv4", "ipv6"].map(|family| (path, family))) {
            let what = format!("{path}, {family}");
            let record = trial(&mut rig, &suite(path, family, &format!("protocol = \"tcp\", {SLOWLY}")), &what);
            assert_connections(&record, (3, 3), &what);
        }
    });
}

#[test]
fn packets_go_by_packet_sockets_too() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        for path in ["raw", "etun", "macvlan"].map(named) {
            let what = format!("{path}, packet sockets");
            let load = format!("protocol = \"tcp\", driver = \"packet\", {SLOWLY}");
            let record = trial(&mut rig, &suite(path, "ipv4", &load), &what);
            assert_connections(&record, (3, 3), &what);
            assert_eq!(end(&record, End::Connect).ports[0].driver, "AF_PACKET", "{what}");
            assert!(!record.flags.iter().any(|flag| matches!(flag, Flag::NotGranted { .. })), "it was asked for");
        }
    });
}

#[test]
fn http_takes_as_many_packets() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let record = trial(&mut rig, &suite(named("raw"), "ipv4", &format!("protocol = \"http\", {SLOWLY}")), "http");
        assert_connections(&record, (3, 3), "http");
    });
}

#[test]
fn a_reset_spares_the_servers_last_packet() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let load = format!("protocol = \"tcp\", close = \"reset\", {SLOWLY}");
        assert_connections(&trial(&mut rig, &suite(named("raw"), "ipv4", &load), "reset"), (3, 2), "reset");
    });
}

#[test]
fn connections_are_held_and_carry_requests_at_a_rate_of_their_own() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let load = "protocol = \"tcp\", connections_per_second = 1000, hold = 50, requests_per_second = 1000, \
                    retransmit = \"4s\", server_addresses = 2, server_ports = [80, 81]";
        let record = trial(&mut rig, &suite(named("raw"), "ipv6", load), load);
        let client = end(&record, End::Connect);
        assert_eq!(figure(&record, Side::Local, Metric::Concurrent), Some(50.0), "{client:?}");
        assert_eq!(total(client, "tcpReq"), total(client, "tcpRsp"), "{client:?}");
        assert_eq!(figure(&record, Side::Local, Metric::Failed), Some(0.0));
        let by_server: u64 = client.servers.iter().map(|server| server.requests).sum();
        assert_eq!((client.servers.len(), by_server), (4, total(client, "tcpReq")), "{:?}", client.servers);
    });
}

/// Their last request is due long after the end, and the end comes long after the time that a lost one shows by.
#[test]
fn connections_that_outlast_the_trial_all_have_room() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let load = "protocol = \"tcp\", connections_per_second = 1000, interval = \"50ms\", requests = 100, \
                    retransmit = \"50ms\"";
        let record = trial(&mut rig, &suite(named("raw"), "ipv4", load), load);
        let client = end(&record, End::Connect);
        assert_eq!((total(client, "skOpen"), total(client, "noSocket")), (450, 0), "{client:?}");
    });
}

#[test]
fn datagrams_are_answered_one_by_one() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let load = "protocol = \"udp\", connections_per_second = 1000, timeout = \"4s\", request = \"100\"";
        let record = trial(&mut rig, &suite(named("bridge"), "ipv4", load), load);
        let (client, server) = (end(&record, End::Connect), end(&record, End::Listen));
        assert_eq!(total(client, "udpTx"), 450, "{client:?}");
        for (record, name) in [(client, "udpRx"), (server, "udpRx"), (server, "udpTx")] {
            assert_eq!(total(record, name), 450, "{name}: {record:?}");
        }
        // Ethernet 14, IPv4 20, UDP 8, payload 100.
        let others = (total(client, "arpTx") + total(client, "icmpTx")) * 42 * 8;
        assert_eq!(total(client, "bitsTx"), 450 * 142 * 8 + others, "{client:?}");
    });
}

#[test]
fn a_search_ends_and_leaves_its_trail() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        // So slow and so patient that every machine holds it: the highest rate allowed is the answer.
        let load = "protocol = \"tcp\", retransmit = \"4s\", search = { goal = \"loss-free\", start = 200, most = 600, \
                    step = \"100ms\", late = \"100%\", measure_at = \"50%\" }";
        let record = trial(&mut rig, &suite(named("etun"), "ipv4", load), load);
        let search = record.search.as_ref().unwrap();
        assert_eq!((search.outcome.ending, search.outcome.held), (SearchEnding::Ceiling, Some(600.0)), "{search:?}");
        let steps: Vec<_> = search.outcome.steps.iter().map(|step| (step.rate, step.purpose)).collect();
        let rates = [200.0, 400.0, 600.0].map(|rate| (rate, StepPurpose::Raise));
        assert_eq!(steps, [&rates[..], &[(600.0, StepPurpose::Confirm)]].concat());
        // The generator alone holds it too, so that nothing is known of the path.
        assert_eq!(search.generator, Some(600.0));
        assert_eq!(figure(&record, Side::Local, Metric::Limit), Some(600.0));
        // The window's own rate is half of it.
        assert_eq!(total(end(&record, End::Connect), "skOpen"), 135);
        assert!(record.flags.iter().any(|flag| matches!(flag, Flag::NoLimit { .. })), "{:?}", record.flags);
    });
}

/// A run that ends by a signal leaves no namespace, and with the namespaces go interfaces and programs; where the run has
/// namespaces of its own, nothing is attached anywhere else.
#[test]
fn a_run_that_is_stopped_leaves_no_program_and_no_namespace() {
    world::own(|| {
        for signal in [Signal::INT, Signal::KILL] {
            let store = tempfile::tempdir().unwrap();
            let mut run = Command::new(env!("CARGO_BIN_EXE_netrig"));
            run.args(["run", "packets", "--quick", "--only", "keepalive", "--store"]).arg(store.path().join("runs"));
            run.stdout(Stdio::null()).stderr(Stdio::piped());
            std::os::unix::process::CommandExt::process_group(&mut run, 0);
            let mut run = run.spawn().unwrap();
            let loaded = world::until(Duration::from_secs(60), || {
                let has_ended = run.try_wait().unwrap().is_some();
                (has_ended || world::has_attached_program()).then_some(!has_ended)
            });
            if loaded != Some(true) {
                let mut said = String::new();
                run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                if said.contains("two nodes") || said.contains("CPU") {
                    return skip(Lack::Cpus, said);
                }
                panic!("no load: {said}");
            }
            let pid = Pid::from_child(&run);
            match signal {
                Signal::KILL => kill_process(pid, signal).unwrap(),
                _ => kill_process_group(pid, signal).unwrap(),
            }
            // The pipe ends only when all processes of the run have ended.
            let _ = BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok).count();
            run.wait().unwrap();
            world::assert_nothing_left(&format!("after {signal:?}"));
        }
    });
}
