//! vRouters that are told other rules and other routes while they carry a load.

use rig_cli::mistakes::FileError;
use rig_datapath::vrouter::Reason;
use rig_facts::record::TrialRecord;
use rig_facts::store::{RunState, Store};
use rig_run::run::Execute;
use rig_suite::suite::Suite;
use rig_testbed::Testbed;
use rig_testbed::plan::{Interface, Link, Neighbour};
use rig_testbed::preflight::NetworkFault;
use rig_testbed::topology::Topology;
use serde_json::{Value, json};

use super::world::{self, expect, netrig};

/// A stream of datagrams from one node's container to the other's, through phases.
fn suite(settings: &str, phases: &str) -> Result<Suite, FileError> {
    let text = format!(
        "name = \"v\"\ntitle = \"V\"\n\
         [defaults]\nwindow = \"500ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"two\"\npath = \"vrouter\"\nfrom = \"a/c\"\nto = \"b/c\"\n\
         load = {{ kind = \"udp-stream\", message = \"500\", throttle = \"500KB/s\" }}\n\
         [[scenario.datapath]]\nname = \"vrouter\"\n{settings}\n{phases}\n"
    );
    let suite = Suite::parse("v.toml", &text)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

/// A phase in which the vRouters are told something, as `name = "policy", arguments = { rules = 10 }`.
fn phase(name: &str, command: &str) -> String {
    format!("[[scenario.phase]]\nname = \"{name}\"\ncommand = [{{ datapath = \"vrouter\", {command} }}]\n")
}

const STATUS: &str = "name = \"status\"";

fn trial(settings: &str, phases: &[String]) -> Option<Result<TrialRecord, String>> {
    let mut rig = world::rig()?;
    let suite = suite(settings, &phases.concat()).unwrap_or_else(|error| panic!("{error}"));
    let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
    Some(record.map_err(|error| format!("{error:#}")))
}

/// What arrived in a phase, bytes.
fn arrived(record: &TrialRecord, phase: &str) -> u64 {
    let of_phase = record.of_phase(phase).unwrap();
    let receiver = of_phase.workers.iter().find(|worker| worker.name == "b/c").unwrap();
    println!("{phase}: {} bytes", receiver.bytes());
    receiver.bytes()
}

/// What node `node` answered when the phase began.
fn answer<'a>(record: &'a TrialRecord, phase: &str, node: &str) -> &'a Value {
    let phase = record.phases.iter().find(|one| one.name == phase).unwrap();
    let (_, answer) = phase.commands[0].answers.iter().find(|(name, _)| name == node).unwrap();
    answer
}

fn dropped(record: &TrialRecord, node: &str, why: Reason) -> u64 {
    let agent = record.agents.iter().find(|agent| agent.node == node).unwrap();
    let all = agent.counters.drops.iter().filter(|(reason, _)| reason == why.text());
    all.map(|(_, count)| *count).sum()
}

#[test]
fn rules_that_come_and_go_are_for_flows_that_exist_too() {
    world::own(|| {
        let phases = [
            phase("open", STATUS),
            phase("ruled", "name = \"policy\", arguments = { rules = 1000 }"),
            phase("denied", "name = \"policy\", arguments = { rules = 10, action = \"deny\" }"),
            phase("withdrawn", "name = \"policy\""),
        ];
        let Some(record) = trial("", &phases) else { return };
        let record = record.unwrap();
        let [open, ruled, denied, withdrawn] =
            ["open", "ruled", "denied", "withdrawn"].map(|phase| arrived(&record, phase));
        assert!(open > 0 && ruled > open / 2, "1,000 rules: {ruled} of {open} bytes");
        // Until they are told, the phase has begun already.
        assert!(denied < open / 2 && withdrawn > open / 2, "{denied}, then {withdrawn} of {open} bytes");
        for (phase, rules, action) in
            [("open", 0, "allow"), ("ruled", 1000, "allow"), ("denied", 10, "deny"), ("withdrawn", 0, "allow")]
        {
            for node in ["a", "b"] {
                let said = answer(&record, phase, node);
                assert_eq!((&said["rules"], &said["action"]), (&json!(rules), &json!(action)), "{phase}, {node}");
            }
        }
        assert!(dropped(&record, "a", Reason::FlowActionDrop) > 0, "{:?}", record.agents);
        assert_eq!(dropped(&record, "a", Reason::NoRoute), 0);
        // As it is at the window's end.
        assert!(record.agents.iter().all(|agent| agent.settings["rules"] == 0), "{:?}", record.agents);
    });
}

#[test]
fn routes_of_a_node_are_withdrawn_and_given_back() {
    world::own(|| {
        let of_b = |command: &str| format!("node = \"a\", name = \"{command}\", arguments = {{ node = \"b\" }}");
        let phases = [phase("there", STATUS), phase("gone", &of_b("withdraw")), phase("back", &of_b("advertise"))];
        for settings in ["", "encapsulation = \"vxlan\"", "policy = false"] {
            let Some(record) = trial(settings, &phases) else { return };
            let record = record.unwrap();
            let [there, gone, back] = ["there", "gone", "back"].map(|phase| arrived(&record, phase));
            assert!(there > 0 && gone < there / 2 && back > there / 2, "{settings}: {there}, {gone}, {back} bytes");
            let [before, without, after] = ["there", "gone", "back"].map(|phase| answer(&record, phase, "a"));
            assert_eq!(before["routes"], after["routes"]);
            let withdrawn = without["withdrawn"].as_array().unwrap();
            assert!(!withdrawn.is_empty() && after["withdrawn"] == json!([]), "{without}, then {after}");
            let routes = before["routes"].as_array().unwrap();
            let kept = without["routes"].as_array().unwrap();
            assert!(withdrawn.iter().all(|route| routes.contains(route) && !kept.contains(route)), "{without}");
            assert!(dropped(&record, "a", Reason::NoRoute) > 0, "{:?}", record.agents);
        }
    });
}

#[test]
fn what_a_vrouter_cannot_do_is_refused() {
    // Before anything is built.
    for (command, said) in [
        ("name = \"polcy\"", "did you mean 'policy'?"),
        ("name = \"policy\", arguments = { rules = 1024 }", "command 'policy': 1024 rules"),
        ("name = \"policy\", arguments = { action = \"drop\" }", "`drop`"),
        ("name = \"withdraw\", arguments = { nodes = [\"b\"] }", "`nodes`"),
    ] {
        let error = suite("", &phase("one", command)).unwrap_err();
        assert_eq!(error.line, Some(23), "{error}");
        assert!(error.to_string().contains(said), "{error} lacks {said}");
    }
    // What depends on the testbed, and on the settings.
    world::own(|| {
        for (settings, command, said) in [
            ("", "name = \"withdraw\", arguments = { node = \"c\" }", "there is no node c: choose from a, b"),
            ("policy = false", "name = \"policy\", arguments = { rules = 1 }", "without policy"),
        ] {
            let phases = [phase("one", STATUS), phase("two", command)];
            let Some(record) = trial(settings, &phases) else { return };
            let error = record.unwrap_err();
            assert!(error.starts_with("begin phase two, ") && error.contains(said), "{error}");
        }
    });
}

/// A scenario of three nodes whose load ends at the first and the last of them.
fn of_three(keys: &str, from: &str, to: &str, datapath: &str) -> Result<Suite, FileError> {
    let text = format!(
        "name = \"v\"\ntitle = \"V\"\n\
         [defaults]\nwindow = \"300ms\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.three]\nnodes = [\"a\", \"b\", \"c\"]\nwire = {{}}\n\
         [[scenario]]\nid = \"S\"\nname = \"S\"\ntestbed = \"three\"\npath = \"vrouter\"\nfrom = {from}\nto = {to}\n{keys}\n\
         load = {{ kind = \"tcp-stream\", message = \"16k\" }}\n\
         [[scenario.datapath]]\nname = \"vrouter\"\n{datapath}\n"
    );
    let suite = Suite::parse("v.toml", &text)?;
    suite.check_datapaths(rig_datapaths::ALL)?;
    Ok(suite)
}

fn bytes(record: &TrialRecord, worker: &str) -> u64 {
    record.workers.iter().find(|one| one.name == worker).unwrap_or_else(|| panic!("no {worker}")).bytes()
}

/// Streams in both networks at once, between containers that have the same addresses in both.
#[test]
fn networks_of_three_nodes_carry_their_own_load_each() {
    world::own(|| {
        for (keys, datapath) in [
            ("networks = 2", "encapsulation = \"mplsoudp\""),
            ("networks = 2", "encapsulation = \"mplsogre\"\npolicy = false"),
            ("networks = 2", "encapsulation = \"vxlan\"\nrules = 10"),
            ("networks = 2\nfamily = \"ipv6\"", "encapsulation = \"mplsoudp\""),
        ] {
            let Some(mut rig) = world::rig() else { return };
            let suite = of_three(keys, "[\"a/x\", \"a/net2\"]", "[\"c/y\", \"c/net2\"]", datapath).unwrap();
            assert_eq!(suite.nodes, 2, "the node between has CPUs of another");
            let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ());
            let record = record.unwrap_or_else(|error| panic!("{keys}, {datapath}: {error:#}"));
            for receiver in ["c/y", "c/net2"] {
                assert!(
                    bytes(&record, receiver) > 1 << 20,
                    "{datapath}: {} bytes to {receiver}",
                    bytes(&record, receiver)
                );
            }
            let nodes: Vec<&str> = record.nodes.iter().map(|node| node.name.as_str()).collect();
            let agents: Vec<&str> = record.agents.iter().map(|agent| agent.node.as_str()).collect();
            assert_eq!((nodes, agents), (vec!["a", "b", "c"], vec!["a", "b", "c"]));
            // What is between two nodes goes by their wire.
            let carried = |node: usize| record.agents[node].counters.counts["in_bytes"];
            assert!(carried(0) > 1 << 20 && carried(1) < 10_000, "{:?}", record.agents);
            for node in ["a", "b", "c"] {
                assert_eq!(dropped(&record, node, Reason::NoRoute), 0, "{:?}", record.agents);
            }
        }
    });
}

/// As many as there may be: each container reaches all others of its network, which is looked at before the load.
#[test]
fn many_nodes_and_networks_are_joined() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let names: Vec<String> = (0..16).map(|number| format!("\"n{number}\"")).collect();
        let suite = of_three("networks = 16", "\"n0/net16\"", "\"n15/net16\"", "").unwrap_err();
        assert!(suite.to_string().contains("unknown node"), "{suite}");
        let text = of_three("networks = 16", "\"a/net16\"", "\"c/net16\"", "").unwrap().text;
        let text = text.replace("[\"a\", \"b\", \"c\"]", &format!("[{}]", names.join(", ")));
        let text = text.replace("a/net16", "n0/net16").replace("c/net16", "n15/net16");
        let suite = Suite::parse("v.toml", &text).unwrap();
        let topology = &suite.scenarios[0].topology;
        assert_eq!((topology.nodes().len(), topology.nodes()[7].containers.len()), (16, 16));
        let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap();
        println!("set-up {} ms, all {} ms", record.setup_us / 1000, record.total_us / 1000);
        assert!(bytes(&record, "n15/net16") > 1 << 20);
    });
}

#[test]
fn routes_of_one_of_three_nodes_are_told_by_network() {
    world::own(|| {
        let Some(mut rig) = world::rig() else { return };
        let of_c = |command: &str| format!("node = \"a\", name = \"{command}\", arguments = {{ node = \"c\" }}");
        let phases = [phase("there", STATUS), phase("gone", &of_c("withdraw")), phase("back", &of_c("advertise"))];
        let suite = of_three("networks = 2", "\"a/x\"", "\"b/x\"", &phases.concat()).unwrap();
        let record = rig.trial(&suite.scenarios[0], 1, &suite.timing, &mut |_, _| ()).unwrap();
        let [before, without, after] = ["there", "gone", "back"].map(|phase| answer(&record, phase, "a"));
        assert_eq!(before["routes"], after["routes"]);
        let hosts = |of: &Value| -> Vec<String> {
            let all = of.as_array().unwrap().iter().map(|route| route.as_str().unwrap().to_owned());
            all.filter(|route| !route.contains('/')).collect()
        };
        let each = ["172.16.1.3", "172.16.2.3", "172.16.3.3"];
        let all: Vec<String> =
            ["net1", "net2"].iter().flat_map(|net| each.map(|host| format!("{net} {host}"))).collect();
        assert_eq!(hosts(&before["routes"]), all);
        assert_eq!(hosts(&without["withdrawn"]), ["net1 172.16.3.3", "net2 172.16.3.3"]);
        assert_eq!((hosts(&without["routes"]).len(), &after["withdrawn"]), (4, &json!([])));
        // What leads to others is not touched.
        assert!(bytes(&record, "b/x") > 1 << 20);
    });
}

fn two_networks() -> Topology {
    let suite = of_three("networks = 2", "\"a/x\"", "\"c/y\"", "").unwrap();
    suite.scenarios[0].topology.clone()
}

fn unfit(testbed: &Testbed<'_>) -> NetworkFault {
    testbed.check_networks().unwrap_err().downcast().unwrap()
}

#[test]
fn containers_that_are_not_joined_as_their_networks_say_are_named_before_the_load() {
    world::own(|| {
        let topology = two_networks();
        // Without the datapath nothing is carried.
        let error = unfit(&Testbed::build(&topology, &[]).unwrap());
        assert_eq!(
            error.to_string(),
            "a/x of network 1 gets no answer from b/net1: 172.16.2.3:7 of that network is not reached"
        );
        // With a bridge on each node instead, both networks are one, and two containers answer for each address. A neighbour entry
        // sends one container's packets to the wrong one of the two.
        let mut plan = topology.plan(&[]);
        for node in &mut plan.nodes {
            let own = &mut node.spaces[0];
            own.interfaces.push(Interface::new("br0", Link::Bridge));
            // A tree: the first node has the wires to both others.
            let is_port = |own: &Interface| own.link != Link::Bridge && (own.name != "eth1" || node.name == "a");
            for port in own.interfaces.iter_mut().filter(|own| is_port(own)) {
                port.bridge = Some("br0".to_owned());
            }
        }
        let others = plan.mac("b/net2", "eth0").unwrap();
        let sender = plan.nodes[0].spaces.iter_mut().find(|space| space.name == "a/x").unwrap();
        let address = "172.16.2.3".parse().unwrap();
        sender.neighbours.push(Neighbour { interface: "eth0".to_owned(), address, mac: others });
        let error = unfit(&Testbed::build_plan(&topology, plan).unwrap());
        let NetworkFault::Astray { network, of, .. } = &error else { panic!("{error}") };
        assert_ne!(network, of, "{error}");
    });
}

/// A scenario for each path, load and number of rules of the suite `overlay`.
const OVERLAY: &str = "stream16-none,noseg4-bridge,rr-routed,crr-vxlan,udp-vrouter,stream-vrouter-gre,noseg-vrouter-vxlan,\
    stream-vrouter-open,rr-vrouter-10,crr-vrouter-1000,stream-vrouter-many,stream-one-bridge,rr-one-vrouter";

#[test]
fn each_kind_of_scenario_of_the_suite_overlay_is_carried() {
    world::own_among_processes(|| {
        if world::rig().is_none() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("runs.sqlite");
        // A machine that is busy with other things may give a worker no CPU time in a short window: what carries nothing is run again,
        // for longer, until it does.
        let mut paths: Vec<&str> = OVERLAY.split(',').collect();
        let mut window_ms = 200;
        while !paths.is_empty() {
            let mut command = netrig();
            command.args(["run", "overlay", "--quick", "--trials", "1", "--no-aa", "--only", &paths.join(",")]);
            let output =
                command.arg("--window").arg(format!("{window_ms}ms")).arg("--store").arg(&store).output().unwrap();
            let (_, said) = expect(&output, 0);
            let store = Store::open_to_read(&store).unwrap();
            let run = store.run(store.latest().unwrap()).unwrap();
            assert_eq!(run.summary.state, RunState::Complete, "{said}");
            assert_eq!(run.trials.len(), paths.len(), "{said}");
            for trial in &run.trials {
                assert!(paths.contains(&trial.scenario.as_str()));
                let routers = trial.agents.iter().filter(|agent| agent.name == "vrouter").count();
                assert_eq!(routers > 0, trial.scenario.contains("vrouter"), "{}: {:?}", trial.scenario, trial.agents);
                // What the rules or the router refuse is no load that is carried.
                for why in [Reason::Policy, Reason::NoPeer, Reason::InvalidLabel, Reason::FlowTableFull] {
                    let nodes = trial.agents.iter().map(|agent| agent.node.as_str());
                    let refused: u64 = nodes.map(|node| dropped(trial, node, why)).sum();
                    assert_eq!(refused, 0, "{}: {why:?}", trial.scenario);
                }
            }
            let carries = |trial: &TrialRecord| trial.workers.iter().all(|worker| worker.bytes() > 0);
            paths.retain(|path| !run.trials.iter().any(|trial| trial.scenario == *path && carries(trial)));
            assert!(paths.is_empty() || window_ms < 4000, "nothing was carried: {paths:?}\n{said}");
            window_ms *= 3;
        }
    });
}
