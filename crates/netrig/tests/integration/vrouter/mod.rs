//! `netrig vrouter` as a service: two nodes, containers that talk, a changing file, and its end.

mod addresses;
mod bgp;
mod closed;
mod flood;
mod lab;
mod loaded;
mod trusted;
mod watched;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_skip::{Lack, skip};
use rustix::process::Signal;
use serde_json::json;

use self::lab::{ADDRESSES, Lab, TIMEOUT, exchange, run};
use self::world::{is_root, own, until};
use crate::stdio::Conversation;
use crate::world;

fn with_lab(test: impl FnOnce(&Lab)) {
    if !is_root() {
        return skip(Lack::Root, "eBPF programs need root of the machine");
    }
    own(|| test(&Lab::new()));
}

#[test]
fn containers_of_two_nodes_talk_under_a_policy_that_changes() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let (out, _) = lab.netrig(0, 0, &["check", &file]);
        assert!(out.contains("correct") && out.contains("to node b, 192.0.2.2: mplsoudp"), "{out}");
        lab.netrig(0, 0, &["check", &file, "--node", "a"]);
        let (out, _) = lab.netrig(3, 1, &["check", &file, "--node", "b"]);
        assert!(out.contains("not here: interface 'web': there is no device toweb"), "{out}");
        let (_, said) = lab.netrig(3, 0, &["status"]);
        assert!(said.contains("no router runs here"), "{said}");

        // What is not there yet is taken when it comes.
        let (a, b) = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        b.says("interface 'web' is there: toweb");
        let mut stream = lab.connect();
        exchange(&mut stream);
        let (said, _) = lab.netrig(0, 0, &["flow", "-l", "--node", "a"]);
        assert!(said.contains("TCP:SSrEEr") && said.contains("10.2.0.11:8080"), "{said}");
        let (_, said) = lab.netrig(2, 0, &["status"]);
        assert!(said.contains("--node, one of a, b"), "{said}");
        let (_, said) = lab.netrig(2, 0, &["run", &file, "--node", "a"]);
        assert!(said.contains("is running already"), "{said}");

        // The next packet is held against the new rules, and against those after them.
        lab.file("22");
        let (said, _) = lab.netrig(0, 0, &["reload", "--node", "b"]);
        assert_eq!(said, "security group 'web' changed\n");
        stream.write_all(b"is this allowed?").unwrap();
        let dropped = until(TIMEOUT, || (lab.dropped("flow_action_drop") > 0).then_some(()));
        assert!(dropped.is_some(), "nothing of the flow is dropped");
        assert!(lab.try_connect(Duration::from_secs(1)).is_err(), "a new connection is let through");
        assert!(lab.dropped("policy") > 0);
        let (said, _) = lab.netrig(0, 0, &["dropstats", "--log", "--node", "b"]);
        assert!(said.contains("policy") && said.contains("> 10.2.0.11:8080"), "{said}");
        lab.file("8080");
        b.signal(Signal::HUP);
        b.says("reload: security group 'web' changed");
        let mut back = [0; 16];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"is this allowed?");

        // A bad file changes nothing.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("policies", "policy")).unwrap();
        let (_, said) = lab.netrig(2, 0, &["reload", "--node", "a"]);
        assert!(said.contains("vrouter.toml:12: unknown field `policy`"), "{said}");
        a.signal(Signal::HUP);
        a.says("reload refused, all stays as it was");
        exchange(&mut stream);

        // An interface that goes away and another one that comes in its place.
        run(&lab.nodes[1], "link delete toweb");
        b.says("interface 'web' is not there yet: there is no device toweb");
        let status = lab.json("b", &["status"]);
        assert!(status["interfaces"][0]["device"].is_null(), "{status}");
        lab.plug_web();
        exchange(&mut lab.connect());
    });
}

#[test]
fn the_address_of_a_container_is_enforced_or_learned() {
    with_lab(addresses::an_address_is_enforced_or_learned);
}

#[test]
fn a_check_compares_the_addresses_of_containers() {
    with_lab(addresses::a_check_compares_addresses);
}

#[test]
fn frames_to_all_reach_all_of_a_network() {
    with_lab(flood::frames_to_all);
}

#[test]
fn frames_to_all_reach_all_of_a_network_by_mpls() {
    for (encapsulation, other) in [("mplsoudp", "mplsogre"), ("mplsogre", "vxlan")] {
        with_lab(|lab| flood::frames_to_all_by_a_label(lab, encapsulation, other));
    }
}

#[test]
fn what_runs_is_listed_and_is_what_the_schemas_say() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let _routers = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        exchange(&mut lab.connect());
        let schemas = netrig::schemas();
        let is_valid = |name: &str, value: &serde_json::Value| {
            let (_, schema) = schemas.iter().find(|(known, _)| *known == name).unwrap();
            let validator = jsonschema::validator_for(schema.as_value()).unwrap();
            assert!(validator.is_valid(value), "{name}: {value:#}");
        };
        let status = lab.json("a", &["status"]);
        is_valid("vrouter-status.json", &status);
        let routes = lab.json("a", &["rt", "--dump", "1"]);
        is_valid("vrouter-routes.json", &routes);
        let flows = lab.json("b", &["flow", "-l"]);
        is_valid("vrouter-flows.json", &flows);
        assert!(flows.as_array().unwrap().len() >= 2, "{flows}");
        for (part, arguments) in [
            ("interfaces", &["vif", "--list"][..]),
            ("next_hops", &["nh", "--list"]),
            ("labels", &["mpls", "--dump"]),
            ("vnis", &["vxlan", "--dump"]),
            ("networks", &["vrfstats", "--dump"]),
        ] {
            let listed = lab.json("a", arguments);
            assert_eq!(listed.as_array().unwrap().len(), status[part].as_array().unwrap().len());
            let (text, _) = lab.netrig(0, 0, &[arguments, &["--node", "a"]].concat());
            assert!(text.lines().count() > listed.as_array().unwrap().len(), "{text}");
        }
        let client = &status["interfaces"][0];
        let taken = lab.json("a", &["vrfstats", "--get", &client["vrf"].to_string()])[0]["taken"].clone();
        let (sent, got) = (&taken["mplsoudp_tunnels"], &taken["encaps"]);
        assert!(sent.as_u64() > Some(2) && got.as_u64() > Some(2), "{taken}");
        let (_, said) = lab.netrig(2, 0, &["vrfstats", "--get", "99", "--node", "a"]);
        assert!(said.contains("there is no VRF 99"), "{said}");
        let (text, _) = lab.netrig(0, 0, &["vif", "--get", "1", "--node", "a"]);
        assert!(text.contains("OS: toclient") && text.contains("IPaddr:10.1.0.11"), "{text}");
        let next_hop = status["interfaces"][0]["next_hop"].to_string();
        let (text, _) = lab.netrig(0, 0, &["nh", "--get", &next_hop, "--node", "a"]);
        assert!(text.contains("Type:Encap"), "{text}");
        let (text, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
        assert!(text.contains("peer a, 192.0.2.1: via 192.0.2.1 by wire, MTU 1500 bytes"), "{text}");
        let (_, said) = lab.netrig(2, 0, &["vif", "--get", "99", "--node", "a"]);
        assert!(said.contains("there is no interface 99"), "{said}");
        let (_, said) = lab.netrig(2, 0, &["rt", "--dump", "99", "--node", "a"]);
        assert!(said.contains("there is no VRF 99"), "{said}");
    });
}

/// Lines of JSON, which a schema describes.
#[track_caller]
fn json_lines(lab: &Lab, schema: &str, arguments: &[&str]) -> Vec<serde_json::Value> {
    let schemas = netrig::schemas();
    let (_, schema) = schemas.iter().find(|(known, _)| *known == schema).unwrap();
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    let (text, _) = lab.netrig(0, 0, &[arguments, &["--node", "a", "--json"]].concat());
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| validator.is_valid(line)), "{text}");
    lines
}

#[test]
fn routes_and_flows_are_found() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let _routers = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let vrf = lab.json("a", &["status"])["interfaces"][0]["vrf"].to_string();
        let get = |to: &str| lab.json("a", &["rt", "--get", to, "--vrf", &vrf]);
        let prefix = |found: &serde_json::Value| found[0]["routes"][0]["prefix"].as_str().unwrap().to_owned();
        // What is in the other network is behind one route; that network's own table has the rest.
        assert_eq!(prefix(&get("10.2.0.11")), "10.2.0.0/24");
        assert_eq!(prefix(&get("10.2.0.64/26")), "10.2.0.0/24");
        assert_eq!(prefix(&get("10.1.0.11")), "10.1.0.11/32");
        assert_eq!(get("02:00:00:00:00:01")[0]["macs"].as_array().unwrap().len(), 1);
        let (text, _) = lab.netrig(0, 0, &["rt", "--get", "10.2.0.11", "--vrf", &vrf, "--node", "a"]);
        assert!(text.contains("10.2.0.0/24 ") && text.lines().count() == 4, "{text}");
        let (_, said) = lab.netrig(2, 0, &["rt", "--get", "192.0.2.9", "--vrf", &vrf, "--node", "a"]);
        assert!(said.contains(&format!("there is no route to 192.0.2.9/32 in VRF {vrf}")), "{said}");
        let family = ["rt", "--get", "10.2.0.11", "--vrf", &vrf, "--family", "inet6", "--node", "a"];
        let (_, said) = lab.netrig(2, 0, &family);
        assert!(said.contains("is not of the --family"), "{said}");

        let client = stream.local_addr().unwrap();
        let matching = |expression: &str| lab.json("a", &["flow", "--match", expression]);
        let flows = matching(&format!("{client},*:8080 & proto tcp & vrf {vrf}"));
        let both = flows.as_array().unwrap();
        let forward = both.iter().find(|flow| flow["source"] == client.to_string()).unwrap();
        assert_eq!(both.len(), 2, "{flows}");
        assert_eq!(matching(&format!("{client},*:8081")), serde_json::json!([]));
        assert_eq!(matching("*:9 & proto udp"), serde_json::json!([]));
        let (text, _) = lab.netrig(0, 0, &["flow", "--match", "*:8080", "--node", "a"]);
        assert!(text.contains("Listing flows matching ([*]:8080)"), "{text}");
        let (_, said) = lab.netrig(2, 0, &["flow", "--match", "proto tpc", "--node", "a"]);
        assert!(said.contains("'tpc' is not a protocol's name or number"), "{said}");

        // By the number that it keeps.
        let index = forward["index"].to_string();
        exchange(&mut stream);
        let got = lab.json("a", &["flow", "--get", &index]);
        assert_eq!((&got[0]["source"], &got[0]["reverse_index"]), (&forward["source"], &got[1]["index"]), "{got}");
        let (text, _) = lab.netrig(0, 0, &["flow", "--get", &index, "--node", "a"]);
        for words in ["Flow Index:", "Matching Route: 10.2.0.0/24", "Tunnel(mplsoudp) Source: 192.0.2.1", "ESTABLISHED"]
        {
            assert!(text.contains(words), "no '{words}' in {text}");
        }
        let (_, said) = lab.netrig(2, 0, &["flow", "--get", "0", "--node", "a"]);
        assert!(said.contains("there is no flow 0"), "{said}");
    });
}

#[test]
fn rates_are_told_until_enough_or_stopped() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let _routers = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        let mut stream = lab.connect();
        let often = ["--interval", "100ms", "--count", "3"];
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let busy = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    exchange(&mut stream);
                }
            });
            // All in one go: the last of what is asked for has been busy, too.
            let lines =
                json_lines(lab, "vrouter-interface-rates.json", &[&["vif", "--list", "--rate"], &often[..]].concat());
            let one = json_lines(
                lab,
                "vrouter-interface-rates.json",
                &[&["vif", "--get", "1", "--rate"], &often[..]].concat(),
            );
            done.store(true, Ordering::Relaxed);
            busy.join().unwrap();
            assert_eq!((lines.len(), one.len()), (3, 3));
            let packets = |line: &serde_json::Value| line["interfaces"][0]["in_packets"].as_f64().unwrap();
            assert!(lines.iter().chain(&one).map(packets).sum::<f64>() > 0.0, "{lines:?} {one:?}");
            assert!(lines.iter().all(|line| line["seconds"].as_f64().unwrap() > 0.0), "{lines:?}");
        });
        let (text, _) = lab.netrig(0, 0, &[&["vif", "--rate", "--node", "a"], &often[..]].concat());
        assert_eq!(text.matches("Interface name").count(), 3, "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        let flows = json_lines(lab, "vrouter-flow-rates.json", &[&["flow", "-r"], &often[..]].concat());
        assert!(flows.len() == 3 && flows[0]["connections"].as_u64().unwrap() > 0, "{flows:?}");

        // A listing that repeats ends with success when it is interrupted, and when its output is closed.
        let mut command = lab.command(0, &["flow", "-r", "--interval", "100ms", "--node", "a"]);
        let mut going = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(going.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("Connections = "), "{line}");
        rustix::process::kill_process(rustix::process::Pid::from_child(&going), Signal::INT).unwrap();
        assert_eq!(until(TIMEOUT, || going.try_wait().unwrap()).expect("it does not end").code(), Some(0));
        let mut going = command.spawn().unwrap();
        drop(going.stdout.take());
        assert_eq!(until(TIMEOUT, || going.try_wait().unwrap()).expect("it does not end").code(), Some(0));
        let (_, said) = lab.netrig(2, 0, &["vif", "--get", "99", "--rate", "--node", "a"]);
        assert!(said.contains("there is no interface 99"), "{said}");
        let (_, said) = lab.netrig(2, 0, &["vif", "--list", "--count", "1"]);
        assert!(said.contains("--rate"), "{said}");
        let (_, said) = lab.netrig(2, 0, &["flow", "-r", "--interval", "1ms"]);
        assert!(said.contains("at least 100ms"), "{said}");
    });
}

#[test]
fn metrics_are_scraped_and_links_are_commands() {
    with_lab(|lab| {
        let file = lab.file("8080");
        run(&lab.nodes[0], "link set lo up");
        let _routers = (lab.start_with(0, &file, &["--metrics", "127.0.0.1:9300"]), lab.start(1, &file));
        lab.plug_web();
        let _stream = lab.connect();
        let scraped = lab.nodes[0].run(|| {
            let mut stream = std::net::TcpStream::connect("127.0.0.1:9300").unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        let scraped = scraped.unwrap();
        let (head, body) = scraped.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        for sample in ["netrig_vrouter_connections{node=\"a\"} 1", "netrig_vrouter_peer_reached{node=\"a\",peer=\"b\","]
        {
            assert!(body.contains(sample), "no {sample} in {body}");
        }
        assert!(body.ends_with("# EOF\n"));
        let (told, _) = lab.netrig(0, 0, &["metrics", "--node", "a"]);
        assert!(told.contains("netrig_vrouter_interface_packets_total{node=\"a\",interface=\"client\""), "{told}");
        // Where another one listens already.
        let (_, said) = lab.netrig(3, 0, &["run", &file, "--node", "b", "--metrics", "127.0.0.1:9300"]);
        assert!(said.contains("serve metrics at 127.0.0.1:9300"), "{said}");

        let link = lab.path("vif");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_netrig"), &link).unwrap();
        let mut command = Command::new(&link);
        command.args(["--list", "--node", "a"]).env("NETRIG_RUN", lab.path("run"));
        let output = rig_sys::process::in_namespace(&mut command, &lab.nodes[0]).output().unwrap();
        let (listed, _) = lab.netrig(0, 0, &["vif", "--list", "--node", "a"]);
        let names =
            |text: &str| text.lines().filter(|line| line.starts_with("vif0/")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&String::from_utf8_lossy(&output.stdout)), names(&listed));
        assert!(!names(&listed).is_empty());
    });
}

#[test]
fn a_packet_is_traced_and_nothing_changes_by_it() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let _routers = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        let schemas = netrig::schemas();
        let (_, schema) = schemas.iter().find(|(known, _)| *known == "vrouter-trace.json").unwrap();
        let validator = jsonschema::validator_for(schema.as_value()).unwrap();
        let trace = |node: &str, arguments: &[&str]| {
            let trace = lab.json(node, &[&["trace"], arguments].concat());
            assert!(validator.is_valid(&trace), "{trace:#}");
            let steps: Vec<String> = serde_json::from_value(trace["steps"].clone()).unwrap();
            (trace, steps.join("\n"))
        };
        let mut stream = lab.connect();
        exchange(&mut stream);
        let (sent, steps) = trace("a", &["tcp 10.1.0.11:50000 > 10.2.0.11:8080"]);
        assert_eq!(
            (sent["verdict"].as_str(), sent["interface"].as_str()),
            (Some("forward"), Some("client")),
            "{sent:#}"
        );
        for words in [
            "of no flow that is known",
            "route 10.2.0.0/24 of VRF",
            "'out by policies of network red': rule 1 of",
            "a new connection",
            "goes by the tunnel to node b, 192.0.2.2: mplsoudp, label",
        ] {
            assert!(steps.contains(words), "no '{words}' in\n{steps}");
        }
        let (text, _) = lab.netrig(0, 0, &["trace", "tcp 10.1.0.11:50000 > 10.2.0.11:8080 length 100", "--node", "a"]);
        assert!(text.contains("out by wire, - > -") && text.contains("MPLS label"), "{text}");
        // What node a sends is what node b takes.
        let (got, steps) = trace("b", &["tcp 10.1.0.11:50000 > 10.2.0.11:8080", "--peer", "a"]);
        assert_eq!((got["verdict"].as_str(), got["interface"].as_str()), (Some("forward"), Some("web")), "{got:#}");
        for words in [
            "out of a tunnel from node a, 192.0.2.1: mplsoudp, label",
            "'in by security groups web': rule 1 of 1 allows",
        ] {
            assert!(steps.contains(words), "no '{words}' in\n{steps}");
        }
        assert_eq!(got["packet_out"]["destination_mac"], lab::WEB);
        let (denied, steps) = trace("b", &["tcp 10.1.0.11:50000 > 10.2.0.11:22", "--peer", "192.0.2.1"]);
        assert_eq!((denied["verdict"].as_str(), denied["reason"]["reason"].as_str()), (Some("drop"), Some("policy")));
        assert!(steps.contains("none of 1 rules matches, which denies it"), "{steps}");
        let (foreign, _) = trace("b", &["tcp 10.1.0.11:50000 > 10.2.0.11:8080", "--peer", "192.0.2.77"]);
        assert_eq!(foreign["reason"]["reason"], "no_peer");
        let (forged, _) = trace("a", &["udp 10.1.0.99:1 > 10.2.0.11:53", "--interface", "client"]);
        assert_eq!(forged["reason"]["reason"], "invalid_source");
        let known = stream.local_addr().unwrap();
        let (of_flow, steps) = trace("a", &[&format!("tcp {known} > 10.2.0.11:8080 ack")]);
        assert!(of_flow["verdict"] == "forward" && steps.contains("of a flow with"), "{steps}");

        // The traced packets, which have ports of their own, made no flow and were not counted as dropped.
        for node in ["a", "b"] {
            assert_eq!(lab.json(node, &["flow", "--match", "*:50000"]), serde_json::json!([]));
        }
        assert_eq!([lab.dropped("policy"), lab.dropped("no_peer")], [0, 0]);
        for (arguments, words) in [
            (&["trace", "tcp 10.9.0.1:1 > 10.2.0.11:80"][..], "no interface of node 'a' has 10.9.0.1"),
            (&["trace", "tcp 10.1.0.11:1 > 10.2.0.11:80", "--interface", "web"], "node 'a' has no interface 'web'"),
            (&["trace", "tcp 10.1.0.11:1 > 10.1.0.11:80", "--peer", "z"], "'z' is neither a node nor an IPv4 address"),
            (&["trace", "icmp 10.1.0.11:1 > 10.2.0.11:80"], "neither tcp nor udp"),
        ] {
            let (_, said) = lab.netrig(2, 0, &[arguments, &["--node", "a"]].concat());
            assert!(said.contains(words), "{said}");
        }
    });
}

#[test]
fn nothing_is_left_of_one_that_ends_or_is_killed() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let (mut a, mut b) = (lab.start(0, &file), lab.start(1, &file));
        lab.plug_web();
        exchange(&mut lab.connect());
        a.signal(Signal::TERM);
        assert_eq!(a.ended(), Some(0));
        lab.is_left_alone(&lab.client, ADDRESSES[1]);
        b.kill();
        lab.is_left_alone(&lab.web, ADDRESSES[0]);
        let (_, said) = lab.netrig(3, 0, &["status"]);
        assert!(said.contains("no router runs here"), "{said}");
        let (_, said) = lab.netrig(3, 0, &["status", "--node", "b"]);
        assert!(said.contains("does not run here"), "{said}");
        // Both begin again where they were.
        let _routers = (lab.start(0, &file), lab.start(1, &file));
        exchange(&mut lab.connect());
    });
}

#[test]
fn interfaces_stay_closed_without_a_router() {
    with_lab(closed::without_a_router);
}

#[test]
fn an_interface_that_is_opened_again_has_others_filters_alone() {
    with_lab(closed::leaves_others_filters);
}

#[test]
fn closed_interfaces_are_opened_for_whom_they_are_given_back_to() {
    with_lab(closed::opened_again);
}

#[test]
fn a_filter_of_somebody_else_is_in_the_way_in_words() {
    with_lab(closed::with_anothers_filter);
}

#[test]
fn packets_of_another_node_come_by_the_way_that_leads_back_to_it() {
    with_lab(trusted::by_one_way_alone);
}

#[test]
fn numbers_are_drawn_from_a_key_that_is_never_shown() {
    with_lab(trusted::numbers_from_a_key);
}

#[test]
fn flows_go_on_while_the_process_does_not() {
    with_lab(|lab| {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
        assert!(mounted.success(), "no bpf file system of its own");
        let file = lab.file("8080");
        let persist = |node| lab.start_with(node, &file, &["--persist"]);
        let (mut a, b) = (persist(0), persist(1));
        lab.plug_web();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let packets = || {
            let flows = lab.json("a", &["flow", "-l"]);
            flows.as_array().unwrap().iter().map(|flow| flow["packets"].as_u64().unwrap()).sum::<u64>()
        };
        let before = packets();

        a.kill();
        exchange(&mut stream);
        exchange(&mut lab.connect());
        let (_, said) = lab.netrig(2, 0, &["run", &file, "--node", "a"]);
        assert!(said.contains("persists here") && said.contains("vrouter release --node a"), "{said}");

        let lost_before = lab.client.run(Retransmissions::now).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let busy = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    exchange(&mut stream);
                }
                stream
            });
            let mut again = persist(0);
            again.signal(Signal::TERM);
            assert_eq!(again.ended(), Some(0));
            again = persist(0);
            let now = packets();
            assert!(now > before, "{now} packets of flows, and {before} before it was killed");
            done.store(true, Ordering::Relaxed);
            exchange(&mut busy.join().unwrap());
            again.signal(Signal::TERM);
            assert_eq!(again.ended(), Some(0));
        });
        // Nothing is lost while another takes its place.
        until(TIMEOUT, || {
            let sent = lab.client.run(Retransmissions::now).unwrap();
            (sent.again - lost_before.again <= sent.twice - lost_before.twice).then_some(())
        })
        .expect("segments were sent again that had not arrived");

        // A table of another size is another one; what stands goes on.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}\n[router]\nflows = 4096\n")).unwrap();
        let again = persist(0);
        again.says("flows of the router before are forgotten: its tables are of other sizes");
        exchange(&mut lab.connect());
        again.signal(Signal::TERM);
        drop(again);

        let (said, _) = lab.netrig(0, 0, &["release", "--node", "a"]);
        assert!(said.contains("released"), "{said}");
        lab.is_left_alone(&lab.client, ADDRESSES[1]);
        let (said, _) = lab.netrig(0, 0, &["release", "--node", "a"]);
        assert!(said.contains("nothing of it was kept"), "{said}");
        drop(b);
        assert_eq!(lab::pins("b").len(), 1);
        lab.netrig(0, 1, &["release", "--node", "b"]);
        lab.is_left_alone(&lab.web, ADDRESSES[0]);
        let left: Vec<_> = fs::read_dir("/sys/fs/bpf").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().starts_with("netrig")), "{left:?}");
    });
}

#[test]
fn a_router_is_run_over_standard_streams_and_leaves_nothing() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let text = fs::read_to_string(&file).unwrap();
        let _b = lab.start(1, &file);
        lab.plug_web();
        let mut a = Conversation::begin(&mut lab.command(0, &["run", "--node", "a", "--on-stdio"]), "netrig-vrouter");
        assert!(a.starts(&text).starts_with("ready: node a; "));
        exchange(&mut lab.connect());
        let counters = a.counters();
        assert!(counters["in_bytes"].as_u64() > Some(100_000), "{counters}");
        let flows = a.asks(&json!({ "ask": "flows" })).unwrap();
        assert!(!flows["answer"]["flows"].as_array().unwrap().is_empty(), "{flows}");
        let reloaded = a.asks(&json!({ "reload": { "settings": text.replace("8080", "8081") } })).unwrap();
        assert!(!reloaded["done"].as_array().unwrap().is_empty(), "{reloaded}");
        lab.netrig(3, 0, &["status", "--node", "a"]);
        let (status, said) = a.ends();
        assert_eq!(status, Some(0), "{said}");
        assert!(!said.contains("stay closed"), "{said}");
        lab.is_left_alone(&lab.client, ADDRESSES[1]);
    });
}

#[test]
fn routers_of_one_node_and_two_run_directories_share_nothing() {
    with_lab(|lab| {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
        assert!(mounted.success(), "no bpf file system of its own");
        let file = lab.file("8080");
        let _b = lab.start(1, &file);
        lab.plug_web();
        let mut a = lab.start_with(0, &file, &["--persist"]);
        let mut stream = lab.connect();
        exchange(&mut stream);
        a.signal(Signal::TERM);
        assert_eq!(a.ended(), Some(0));
        let kept = lab::pins("a");
        assert_eq!(kept.len(), 1);
        a.says(&format!("pinned in {}", kept[0].display()));

        // A router for the same node in another run directory finds nothing to go on with, and releases nothing but its own.
        let elsewhere = lab.path("elsewhere");
        let other = |arguments: &[&str]| {
            let mut command = lab.command(1, arguments);
            command.env("NETRIG_RUN", &elsewhere);
            command
        };
        let output = other(&["release", "--node", "a"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "nothing of it was kept: node a\n");
        exchange(&mut stream);
        assert_eq!(lab::pins("a"), kept);
        let (_, said) = lab.netrig(2, 0, &["run", &file, "--node", "a"]);
        assert!(said.contains(&format!("by what is pinned in {}", kept[0].display())), "{said}");
        lab.netrig(0, 0, &["release", "--node", "a"]);
        assert!(lab::pins("a").is_empty());
    });
}

/// TCP segments that the calling thread's namespace has sent again, and those that arrived twice by their receivers' word (RFC 2883):
/// a sender that gets no CPU for long sends again what has arrived.
struct Retransmissions {
    again: u64,
    twice: u64,
}

impl Retransmissions {
    fn now() -> Self {
        let count = |file: &str, of: &str, name: &str| -> u64 {
            let all = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            let mut lines = all.lines().filter_map(|line| line.strip_prefix(of));
            let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
            let at = names.split(' ').position(|known| known == name).unwrap();
            values.split(' ').nth(at).unwrap().parse().unwrap()
        };
        Self { again: count("snmp", "Tcp: ", "RetransSegs"), twice: count("netstat", "TcpExt: ", "TCPDSACKRecvSegs") }
    }
}

#[test]
fn a_container_is_found_by_its_engines_word() {
    with_lab(|lab| {
        let file = lab.file("8080");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("namespace = \"client\"", "container = \"client\"")).unwrap();
        // The process of the container, and an engine that knows it.
        let mut sleep = std::process::Command::new("sleep");
        let mut process = rig_sys::process::in_namespace(sleep.arg("1000"), &lab.client).spawn().unwrap();
        let engine = lab.path("docker");
        let asked = "[ \"$*\" = 'inspect --type container --format {{.State.Pid}} client' ] || exit 1";
        fs::write(&engine, format!("#!/bin/sh\n{asked}\necho {}\n", process.id())).unwrap();
        fs::set_permissions(&engine, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = lab.command(0, &["check", &file, "--node", "a"]);
        let path = format!("{}:{}", lab.directory.path().display(), std::env::var("PATH").unwrap());
        let found = command.env("PATH", &path).output().unwrap();
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        process.kill().unwrap();
        process.wait().unwrap();
        let gone = lab.command(0, &["check", &file, "--node", "a"]).env("PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&gone.stdout).into_owned();
        assert!(gone.status.code() == Some(3) && said.contains("container 'client' has just ended"), "{gone:?}");
    });
}
