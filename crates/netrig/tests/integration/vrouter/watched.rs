//! What is told of flows: the log of rules, and copies of their packets.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rig_sys::netlink::{Netlink, VethPair};
use rig_sys::netns::NetNs;
use rig_sys::process::in_namespace;
use serde_json::Value;

use super::lab::{ADDRESSES, Lab, TIMEOUT, exchange};
use super::with_lab;
use super::world::{expect, until};

const RULE: &str = r#"{ action = "allow", source = "red", destination = "blue" }"#;

/// The lab's file with another rule between its networks.
fn file(lab: &Lab, rule: &str) -> String {
    let path = lab.file("8080");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(RULE));
    fs::write(&path, text.replace(RULE, rule)).unwrap();
    path
}

fn logged(lab: &Lab, node: &str) -> Vec<Value> {
    let (text, _) = lab.netrig(0, 0, &["log", "--json", "--node", node]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rules_that_log_tell_of_each_flow_once() {
    with_lab(|lab| {
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", "/sys/fs/bpf"]).status().unwrap();
        assert!(mounted.success(), "no bpf file system of its own");
        let path = file(lab, &RULE.replace(" }", ", log = true }"));
        let (_a, mut b) = (lab.start(0, &path), lab.start_with(1, &path, &["--persist"]));
        lab.plug_web();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let client = stream.local_addr().unwrap().to_string();
        let is_told = |node: &str, source: &str, verdict: &str| {
            let of = |entry: &Value| entry["source"] == source && entry["verdict"] == verdict;
            until(TIMEOUT, || {
                Some(logged(lab, node).into_iter().filter(of).collect::<Vec<_>>()).filter(|all| !all.is_empty())
            })
            .unwrap_or_else(|| panic!("node {node} tells of no {verdict} of {source}: {:?}", logged(lab, node)))
        };
        let sent = is_told("a", &client, "allow");
        let told = is_told("b", &client, "allow");
        let schemas = netrig::schemas();
        let (_, schema) = schemas.iter().find(|(known, _)| *known == "vrouter-log.json").unwrap();
        let validator = jsonschema::validator_for(schema.as_value()).unwrap();
        assert!(validator.is_valid(&told[0]), "{}", told[0]);
        assert_eq!(
            (told.len(), &told[0]["interface_name"], &told[0]["rule"]),
            (1, &"web".into(), &1.into()),
            "{told:?}"
        );
        assert_eq!(told[0]["list"], "in by policies of network blue");
        assert_eq!(
            (told[0]["rule_text"].as_str(), &told[0]["action"]),
            (Some("any protocol, 10.1.0.0/24"), &"allow".into())
        );
        assert_eq!(
            (&sent[0]["interface_name"], &sent[0]["list"]),
            (&"client".into(), &"out by policies of network red".into())
        );
        exchange(&mut stream);

        // As it comes.
        let mut follow = lab.command(1, &["log", "--follow", "--node", "b"]);
        let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&format!(" allow TCP {client} > 10.2.0.11:8080; web (vif0/1), ")), "{line}");
        let other = lab.connect().local_addr().unwrap().to_string();
        // The other one was told once, although it has gone on.
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(&other), "{line}");
        follow.kill().unwrap();
        follow.wait().unwrap();

        // Another verdict over a flow, and what is refused from the beginning.
        let deny = r#"{ action = "deny", protocol = "tcp", source = "red", destination = "blue", log = true }"#;
        file(lab, &format!("{deny}, {RULE}"));
        lab.netrig(0, 0, &["reload", "--node", "b"]);
        lab.client.run(|| stream.write_all(b"x").unwrap()).unwrap();
        let told = is_told("b", &client, "deny");
        assert_eq!((told.len(), &told[0]["action"]), (1, &"deny".into()), "{told:?}");
        file(lab, &RULE.replace(" }", ", log = true }"));
        lab.netrig(0, 0, &["reload", "--node", "b"]);

        // What is logged while no process runs is told by the next one.
        b.kill();
        let mut stream = lab.connect();
        exchange(&mut stream);
        let _b = lab.start_with(1, &path, &["--persist"]);
        is_told("b", &stream.local_addr().unwrap().to_string(), "allow");
        let (text, _) = lab.netrig(0, 0, &["status", "--node", "b"]);
        assert!(text.contains(" verdicts of rules, 0 lost, 0 refusals held back"), "{text}");
        let (text, _) = lab.netrig(0, 0, &["metrics", "--node", "b"]);
        assert!(text.contains("vrouter_log_entries_total{node=\"b\",outcome=\"told\"}"), "{text}");
    });
}

/// An analyser's address, and that of node b on the way to it.
const ANALYSER: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(198, 51, 100, 1)];

#[test]
fn flows_of_rules_are_copied_to_an_analyser_that_comes_and_goes() {
    with_lab(|lab| {
        let path = file(lab, &RULE.replace(" }", ", mirror = \"ids\" }"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text + "[[analyser]]\nname = \"ids\"\naddress = \"198.51.100.2\"\nvni = 77\n").unwrap();
        let (out, _) = lab.netrig(0, 0, &["check", &path]);
        assert!(out.contains("analyser ids: copies in VXLAN to 198.51.100.2, UDP port 4789, VNI 77"), "{out}");
        let (_a, b) = (lab.start(0, &path), lab.start(1, &path));
        lab.plug_web();
        b.says("analyser 'ids': there is no way to 198.51.100.2, and so no copies: there is no route");
        let mut stream = lab.connect();
        exchange(&mut stream);
        let analyser = || lab.json("b", &["status"])["analysers"][0].clone();
        let without = analyser();
        assert!(without["packets"] == 0 && without["failed"].as_u64() > Some(0), "{without}");

        let ns = NetNs::create().unwrap();
        let [there, here] = ANALYSER.map(IpAddr::from);
        let mut netlink = Netlink::open(&lab.nodes[1]).unwrap();
        netlink.add_veth(&VethPair { name: "tap", peer: "tap", peer_ns: &ns, queues: 1, mtu: 1500 }).unwrap();
        let mut inside = Netlink::open(&ns).unwrap();
        inside.add_address("tap", there, 24).unwrap();
        inside.set_up("tap").unwrap();
        inside.add_route("192.0.2.2".parse().unwrap(), 32, here).unwrap();
        netlink.add_address("tap", here, 24).unwrap();
        netlink.set_up("tap").unwrap();
        let socket = ns.run(|| UdpSocket::bind((there, 4789)).unwrap()).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        until(TIMEOUT, || (!analyser()["device"].is_null()).then_some(())).expect("no way to the analyser");

        // What is sent over a connection that was there before, and what comes back.
        stream.write_all(b"look at this").unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut buffer = [0; 65_536];
        while seen.len() < 2 {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((from.ip().to_string().as_str(), &buffer[4..7]), ("192.0.2.2", &[0, 0, 77][..]));
            // VXLAN, Ethernet, IPv4 without options.
            let ip = &buffer[8 + 14..length];
            if ip.ends_with(b"look at this") {
                seen.insert(ip[12..16].to_vec());
            }
        }
        assert_eq!(seen, [vec![10, 1, 0, 11], vec![10, 2, 0, 11]].into());
        let told = analyser();
        assert!(told["packets"].as_u64() >= Some(2) && told["device"] == "tap", "{told}");
        let (text, _) = lab.netrig(0, 0, &["metrics", "--node", "b"]);
        assert!(text.contains("vrouter_copies_packets_total{node=\"b\",analyser=\"ids\"}"), "{text}");
        let flows = lab.json("b", &["flow", "-l"]);
        assert!(flows.as_array().unwrap().iter().any(|flow| flow["mirror"] == "ids"), "{flows}");

        let mut back = [0; 12];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"look at this");

        // The new file has no analyser, so no packet is copied any more.
        lab.file("8080");
        lab.netrig(0, 0, &["reload", "--node", "b"]);
        exchange(&mut stream);
        let flows = lab.json("b", &["flow", "-l"]);
        assert!(flows.as_array().unwrap().iter().all(|flow| flow["mirror"].is_null()), "{flows}");
    });
}

#[test]
fn a_service_with_fat_flows_has_one_for_each_client() {
    with_lab(|lab| {
        let path = file(lab, RULE);
        let text = fs::read_to_string(&path).unwrap();
        let fat = "device = \"toweb\"\nfat_flows = [{ protocol = \"tcp\", port = 8080 }]";
        fs::write(&path, text.replace("device = \"toweb\"", fat)).unwrap();
        let (_a, _b) = (lab.start(0, &path), lab.start(1, &path));
        lab.plug_web();
        let mut streams: Vec<_> = (0..5).map(|_| lab.connect()).collect();
        streams.iter_mut().for_each(exchange);
        let connections = |node: &str| lab.json(node, &["status"])["interfaces"][0]["connections"].as_u64();
        assert_eq!((connections("b"), connections("a") >= Some(5)), (Some(1), true));
        let flows = lab.json("b", &["flow", "-l"]);
        let all = flows.as_array().unwrap();
        let sources: std::collections::BTreeSet<_> = all.iter().map(|flow| flow["source"].as_str().unwrap()).collect();
        assert_eq!(sources, ["10.1.0.11:0", "10.2.0.11:8080"].into(), "{flows}");
        assert!(all.iter().all(|flow| flow["fat"] == true), "{flows}");
        assert_eq!(lab.json("b", &["vif", "--list"])[0]["fat_flows"][0], "tcp 8080");
        // A connection that ends leaves the others of its fat flow alone.
        drop(streams.pop());
        streams.iter_mut().for_each(exchange);
    });
}

/// One sample of `netrig top --vrouter`.
fn seen(lab: &Lab, node: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_netrig"));
    command.args(["top", "--vrouter", node, "--json", "--interval", "300ms"]).env("NETRIG_RUN", lab.path("run"));
    let (out, _) = expect(&in_namespace(command.stdin(Stdio::null()), &lab.nodes[1]).output().unwrap(), 0);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_view_shows_a_running_vrouter_by_interface_and_by_reason_of_drop() {
    with_lab(|lab| {
        let path = lab.file("8080");
        let (_a, _b) = (lab.start(0, &path), lab.start(1, &path));
        lab.plug_web();
        let mut stream = lab.connect();
        let stop = AtomicBool::new(false);
        let refused = SocketAddr::new(ADDRESSES[1].parse().unwrap(), 8081);
        let sample = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    exchange(&mut stream);
                }
            });
            // The web server's group does not take this port.
            scope.spawn(|| {
                lab.client.run(|| {
                    while !stop.load(Ordering::Relaxed) {
                        drop(TcpStream::connect_timeout(&refused, Duration::from_millis(20)));
                    }
                })
            });
            let all = || {
                let sample = seen(lab, "b");
                let web = &sample["router"]["interfaces"][0];
                let is_positive = |value: &Value| value.as_f64().unwrap() > 0.0;
                let flows = ["in_packets_per_s", "out_packets_per_s", "in_bits_per_s", "out_bits_per_s", "connections"];
                let drops = sample["router"]["drops"].as_array().unwrap();
                let is_refused = drops.iter().any(|drop| is_positive(&drop["packets_per_s"]));
                (flows.iter().all(|flow| is_positive(&web[flow])) && is_refused).then_some(sample)
            };
            let found = until(TIMEOUT, all);
            stop.store(true, Ordering::Relaxed);
            found.unwrap_or_else(|| panic!("something does not move: {}", seen(lab, "b")))
        });
        let schemas = netrig::schemas();
        let (_, schema) = schemas.iter().find(|(known, _)| *known == "top.json").unwrap();
        assert!(jsonschema::validator_for(schema.as_value()).unwrap().is_valid(&sample), "{sample}");
        let router = &sample["router"];
        assert_eq!((&router["node"], &router["interfaces"][0]["name"]), (&"b".into(), &"web".into()), "{router}");
        let drops = router["drops"].as_array().unwrap();
        assert!(drops.iter().any(|drop| drop["reason"] == "policy"), "{drops:?}");
    });
}
