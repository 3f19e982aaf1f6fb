//! Agents of datapaths: what they do when they are told to while they carry a load.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_run::run::Execute;
use rig_run::run::agents::Agents;
use rig_suite::suite::{Scenario, Suite, Timing};
use rig_sys::ethtool::{self, Offload};
use rig_sys::netlink::Netlink;
use rig_sys::netns::NetNs;
use rig_testbed::Testbed;
use rig_testbed::datapath::UnknownCommand;
use serde_json::{Value, json};

use super::dut::{as_root, is_lacking};
use super::world;

/// A scenario with one service of three servers.
fn scenario(path: &str, settings: &str) -> Scenario {
    scenario_and_timing(path, settings).0
}

fn scenario_and_timing(path: &str, settings: &str) -> (Scenario, Timing) {
    let text = format!(
        "name = \"agents\"\ntitle = \"Agents\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.three]\nnodes = [\"client\", \"lb\", \"server\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"{path}\"\nfrom = \"client\"\nto = \"server\"\n\
         load = {{ kind = \"packets\", protocol = \"tcp\", connections_per_second = 100, server_addresses = 3 }}\n\
         [[scenario.datapath]]\nname = \"{path}\"\n{settings}\n"
    );
    let suite = Suite::parse("agents.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    suite.check_datapaths(rig_datapaths::ALL).unwrap();
    (suite.scenarios[0].clone(), suite.timing)
}

/// Runs `body` with the scenario's testbed and its agents, where they are to be had.
fn with_agents(scenario: &Scenario, body: impl FnOnce(&Testbed<'_>, &Agents)) {
    as_root(|| {
        let Some(rig) = world::rig() else { return };
        if is_lacking(scenario, &rig) {
            return;
        }
        let topology = &scenario.topology;
        let shares = rig.placement().of(topology, scenario.dut).unwrap();
        let mut testbed = world::testbed(topology, topology.plan(&shares));
        testbed.route_pools().unwrap();
        let agents = Agents::attach(scenario, &testbed, rig_datapaths::ALL).unwrap();
        body(&testbed, &agents);
        agents.detach().unwrap();
    });
}

fn namespace(testbed: &Testbed<'_>, node: usize) -> NetNs {
    let place = testbed.namespaces(node).next().unwrap();
    // Sockets of the kernel leave checksums to the network card, which a veth is none.
    ethtool::set(&place.ns, "eth0", Offload::Checksum, false).unwrap();
    place.ns.try_clone().unwrap()
}

/// Answers each connection with the number of its server, and holds it until the client leaves.
fn serve(server: &NetNs, backends: &[SocketAddr]) {
    let mut netlink = Netlink::open(server).unwrap();
    for (number, backend) in (0_u8..).zip(backends) {
        netlink.add_address("eth0", backend.ip(), 32).unwrap();
        let listener = server.run(|| TcpListener::bind(backend).unwrap()).unwrap();
        // It ends with the test's process: nothing else would wake it.
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let _gone = stream.write_all(&[number]);
                    let _gone = stream.read(&mut [0]);
                });
            }
        });
    }
}

/// What clients connect to, and the servers behind it.
fn addresses(testbed: &Testbed<'_>) -> (SocketAddr, Vec<SocketAddr>) {
    const PORT: u16 = 80;
    let topology = testbed.topology();
    let service = topology.virtual_pool().addresses(1).next().unwrap();
    let servers = topology.addresses(&"server".parse().unwrap(), 3).unwrap();
    ((service, PORT).into(), servers.into_iter().map(|address| (address, PORT).into()).collect())
}

/// A connection, and which server it came to.
fn connect(client: &NetNs, service: SocketAddr) -> Option<(TcpStream, u8)> {
    const TIMEOUT: Duration = Duration::from_secs(20);
    let mut stream = client.run(|| TcpStream::connect_timeout(&service, TIMEOUT)).unwrap().ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut number = [0];
    stream.read_exact(&mut number).ok()?;
    Some((stream, number[0]))
}

fn told(agents: &Agents, datapath: &str, name: &str, arguments: &Value) -> Value {
    let mut answers = agents.command(datapath, None, name, arguments).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(answers.len(), 1);
    let (node, answer) = answers.remove(0);
    assert_eq!(node, "lb");
    answer
}

#[test]
fn weights_that_change_under_a_load_move_new_connections() {
    for (path, settings) in [("balancer", "scheduler = \"wrr\"\nconnections = 4096"), ("haproxy", "")] {
        move_new_connections(path, settings);
    }
}

fn move_new_connections(path: &str, settings: &str) {
    let told = |agents: &Agents, arguments: &Value| told(agents, path, "weight", arguments);
    with_agents(&scenario(path, settings), |testbed, agents| {
        let (service, backends) = addresses(testbed);
        let (client, server) = (namespace(testbed, 0), namespace(testbed, 2));
        serve(&server, &backends);

        // By phase and server, of connections that began in the phase.
        let came: Mutex<BTreeMap<(usize, u8), u32>> = Mutex::default();
        let (phase, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let of = |wanted: usize| -> [u32; 3] {
            let came = came.lock().unwrap();
            [0, 1, 2].map(|server| came.get(&(wanted, server)).copied().unwrap_or(0))
        };
        /// Connections of each phase.
        const EACH: u32 = 60;
        /// While weights change.
        const BETWEEN: usize = usize::MAX;
        thread::scope(|scope| {
            scope.spawn(|| {
                let until = Instant::now() + Duration::from_secs(120);
                while !over.load(Ordering::SeqCst) && Instant::now() < until {
                    let begun_in = phase.load(Ordering::SeqCst);
                    let connected = connect(&client, service);
                    // A connection during which the weights changed belongs to no phase.
                    if let Some((_, server)) = connected.filter(|_| phase.load(Ordering::SeqCst) == begun_in) {
                        *came.lock().unwrap().entry((begun_in, server)).or_default() += 1;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let next = |wanted: usize| {
                phase.store(wanted, Ordering::SeqCst);
                world::until(Duration::from_secs(60), || (of(wanted).iter().sum::<u32>() >= EACH).then_some(()))
                    .unwrap_or_else(|| panic!("phase {wanted}: {:?}", of(wanted)));
            };
            next(0);
            // By address on one service, by number on all.
            let one = json!({"service": service, "backend": backends[0].ip(), "weight": 0});
            phase.store(BETWEEN, Ordering::SeqCst);
            assert_eq!(told(agents, &one)["changed"], 1);
            next(1);
            phase.store(BETWEEN, Ordering::SeqCst);
            told(agents, &json!({"backend": 1, "weight": 50}));
            told(agents, &json!({"backend": 2, "weight": 200}));
            told(agents, &json!({"backend": 3, "weight": 50}));
            next(2);
            over.store(true, Ordering::SeqCst);
        });
        let [equal, without, heavy] = [0, 1, 2].map(of);
        println!("{path}, connections by server: {equal:?}, {without:?}, {heavy:?}");
        assert!(equal.iter().all(|count| *count > 0), "{equal:?}");
        assert!(without[0] == 0 && without[1] > 0 && without[2] > 0, "{without:?}");
        assert!(heavy[1] > heavy[0] + heavy[2] && heavy[0] > 0, "{heavy:?}");

        let all: u32 = [equal, without, heavy].iter().flatten().sum();
        let counters = agents.counters().unwrap();
        let (name, node, counters) = &counters[0];
        assert_eq!((name.as_str(), node.as_str()), (path, "lb"));
        if path != "balancer" {
            return;
        }
        assert!(counters.counts["connections"] >= all.into(), "{counters:?}");
        assert!(counters.counts["in_packets"] > 0 && counters.counts["out_packets"] > 0, "{counters:?}");
    });
}

/// Connections that the balancer has given each server so far, as a command was answered.
fn given(answer: &Value) -> Vec<u64> {
    let backends = answer[0]["backends"].as_array().unwrap_or_else(|| panic!("{answer}"));
    backends.iter().map(|backend| backend["counters"]["connections"].as_u64().unwrap()).collect()
}

#[test]
fn a_phase_changes_weights_and_connections_move() {
    const COUNTERS: &str = "{ datapath = \"balancer\", name = \"counters\" }";
    let phases = format!(
        "scheduler = \"wrr\"\n\
         [[scenario.phase]]\nname = \"alike\"\ncommand = [{COUNTERS}]\n\
         [[scenario.phase]]\nname = \"moved\"\ntime = \"1s\"\ncommand = [{{ datapath = \"balancer\", node = \"lb\", name = \"weight\", \
         arguments = {{ backend = 1, weight = 0 }} }}, {COUNTERS}]\n\
         [[scenario.phase]]\nname = \"after\"\ncommand = [{COUNTERS}]\n"
    );
    let (scenario, timing) = scenario_and_timing("balancer", &phases);
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        if is_lacking(&scenario, &rig) {
            return;
        }
        let record = rig.trial(&scenario, 1, &timing, &mut |_, _| ()).unwrap();
        let [alike, moved, after] = &record.phases[..] else { panic!("{:?}", record.phases) };
        let [weight, begun] = &moved.commands[..] else { panic!("{:?}", moved.commands) };
        assert_eq!((weight.datapath.as_str(), weight.command.as_str()), ("balancer", "weight"));
        assert_eq!((&weight.answers[0].0[..], &weight.answers[0].1["changed"]), ("lb", &json!(1)));
        // The first phase's before the load, the others' when its counters have been read.
        assert!(alike.commands[0].answered_ns < record.window_begin_ns);
        assert!(moved.begin_ns <= weight.told_ns && weight.told_ns <= weight.answered_ns);
        assert!(weight.answered_ns <= begun.told_ns && begun.answered_ns <= moved.end_ns);

        let [first, second, third] =
            [&alike.commands[0], begun, &after.commands[0]].map(|one| given(&one.answers[0].1));
        let came = |from: &[u64], to: &[u64]| -> Vec<u64> { to.iter().zip(from).map(|(to, from)| to - from).collect() };
        let (alike, moved) = (came(&first, &second), came(&second, &third));
        println!("connections by server: {alike:?}, then {moved:?}");
        assert!(alike.iter().all(|count| *count > 0), "{alike:?}");
        // One may have been under way.
        assert!(moved[0] <= 1 && moved[1] > 1 && moved[2] > 1, "{moved:?}");
        // Over time it counts what it counts over the window.
        let series = record.series.as_ref().unwrap();
        let over_time: u64 = series.agents[0].column("connections").sum();
        let over_window = record.agents[0].counters.counts["connections"];
        assert!(over_time > 0 && over_time <= over_window, "{over_time} of {over_window}");
        // As the agent has it at the window's end.
        assert_eq!(record.agents[0].state.services[0].backends[0].weight, 0);
    });
}

#[test]
fn a_trial_ends_when_a_command_is_refused() {
    let phases = "[[scenario.phase]]\nname = \"one\"\n[[scenario.phase]]\nname = \"two\"\n\
                  command = [{ datapath = \"balancer\", name = \"weight\", arguments = { backend = 4, weight = 1 } }]\n";
    let (scenario, timing) = scenario_and_timing("balancer", phases);
    as_root(|| {
        let Some(mut rig) = world::rig() else { return };
        if is_lacking(&scenario, &rig) {
            return;
        }
        let error = format!("{:#}", rig.trial(&scenario, 1, &timing, &mut |_, _| ()).unwrap_err());
        assert!(error.starts_with("begin phase two, "), "{error}");
        assert!(error.contains("tell balancer on lb: weight: there is no backend 4"), "{error}");
    });
}

#[test]
fn connections_end_when_they_are_flushed() {
    with_agents(&scenario("balancer", ""), |testbed, agents| {
        let told = |name: &str, arguments: &Value| told(agents, "balancer", name, arguments);
        let services = told("counters", &json!({}));
        let (service, backends) = addresses(testbed);
        assert_eq!(services[0]["address"], service.to_string());
        let (client, server) = (namespace(testbed, 0), namespace(testbed, 2));
        serve(&server, &backends);
        let held: Vec<(TcpStream, u8)> = (0..6).filter_map(|_| connect(&client, service)).collect();
        assert_eq!(held.len(), 6);
        let to = |number: u8| held.iter().filter(|(_, server)| *server == number).count() as u64;
        let second: IpAddr = backends[1].ip();
        assert_eq!(told("flush", &json!({ "backend": second }))["ended"], to(1));
        assert_eq!(told("flush", &json!({}))["ended"], to(0) + to(2));
        let status = told("status", &Value::Null);
        let left = |backend: &Value| backend["active"].as_u64().unwrap() + backend["inactive"].as_u64().unwrap();
        assert!(
            status["services"][0]["backends"].as_array().unwrap().iter().all(|backend| left(backend) == 0),
            "{status}"
        );
    });
}

#[test]
fn an_agent_says_what_it_cannot_do() {
    let refused = |agents: &Agents, datapath: &str, node: Option<&str>, name: &str, arguments: Value| {
        let error = agents.command(datapath, node, name, &arguments).unwrap_err();
        (error.is::<UnknownCommand>(), format!("{error:#}"))
    };
    with_agents(&scenario("balancer", ""), |_, agents| {
        let (unknown, text) = refused(agents, "balancer", Some("lb"), "dance", Value::Null);
        assert!(unknown && text.contains("choose from weight, scheduler, flush"), "{text}");
        for (name, arguments, words) in [
            ("weight", json!({"backend": 4, "weight": 1}), "no backend 4"),
            ("weight", json!({"backend": 1, "weight": 70_000}), "65535"),
            ("weight", json!({"backend": 1}), "missing field `weight`"),
            ("scheduler", json!({"scheduler": "best"}), "there is no scheduler 'best'"),
            ("flush", json!({"service": "192.0.2.1:80"}), "no service 192.0.2.1:80"),
        ] {
            let (unknown, text) = refused(agents, "balancer", None, name, arguments);
            assert!(!unknown && text.contains(words), "{text}");
        }
        let before = told(agents, "balancer", "counters", &Value::Null);
        assert!(before[0]["backends"].as_array().unwrap().iter().all(|backend| backend["weight"] == 100), "{before}");
        for (datapath, node) in [("nftables", None), ("balancer", Some("client"))] {
            let (unknown, text) = refused(agents, datapath, node, "status", Value::Null);
            assert!(!unknown && text.contains("there is balancer on lb"), "{text}");
        }
    });
    with_agents(&scenario("nftables", ""), |_, agents| {
        let (unknown, text) = refused(agents, "nftables", None, "weight", json!({"backend": 1, "weight": 0}));
        assert!(unknown && text.contains("it takes none"), "{text}");
    });
    with_agents(&scenario("haproxy", ""), |_, agents| {
        let (unknown, text) = refused(agents, "haproxy", None, "flush", Value::Null);
        assert!(unknown && text.contains("choose from weight"), "{text}");
        for (arguments, words) in [
            (json!({"backend": 4, "weight": 1}), "no such backend"),
            (json!({"backend": 1, "weight": 257}), "0 to 256"),
        ] {
            let (unknown, text) = refused(agents, "haproxy", None, "weight", arguments);
            assert!(!unknown && text.contains(words), "{text}");
        }
    });
}
