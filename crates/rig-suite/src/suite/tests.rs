use rig_facts::claim::{Metric, Side};
use rig_load::plan::{ArrivalSpacing, Datagrams, Engine, Load, Schedule, SendMode, TcpStream, Transactions};
use rig_testbed::topology::Family;

use super::*;

mod former;
mod load_lines;

const LAYERS: &str = BUILT_IN[0].1;

/// The ends of a TCP stream, the connecting one first.
fn streams(scenario: &Scenario) -> (&TcpStream, &TcpStream) {
    match (&scenario.traffic.connect, &scenario.traffic.listen) {
        (Load::TcpStream(connect), Load::TcpStream(listen)) => (connect, listen),
        other => panic!("no TCP stream: {other:?}"),
    }
}

/// A small suite with one line replaced.
fn parse_with(line: &str, replacement: &str) -> Result<Suite, FileError> {
    let text = r#"name = "small"
title = "Small"
[defaults]
window = "1s"
warm_up = "100ms"
cool_down = "50ms"
confidence = { level = "95%", width = "5%", min = 3, max = 10 }
[testbed.two]
nodes = ["a", "b"]
wire = { mtu = 1500 }
[[scenario]]
id = "A"
name = "Raw"
testbed = "two"
path = "raw"
from = "a"
to = "b"
load = { kind = "tcp-stream", message = "128k" }
[[claim]]
text = "It carries something"
holds = "A.throughput > 1Mbit"
"#;
    assert!(text.contains(line), "the suite has no line {line:?}");
    Suite::parse("small.toml", &text.replace(line, replacement))
}

#[test]
fn the_built_in_suites_are_valid() {
    for suite in Suite::built_in() {
        let suite = suite.unwrap();
        assert!(suite.quick.is_some(), "{} has no quick timing", suite.name);
    }
}

#[test]
fn a_first_look_is_short() {
    let mut unknown = Vec::new();
    for suite in Suite::built_in().map(Result::unwrap) {
        match suite.shortest_look() {
            Some(time) => {
                // Most have a few scenarios of a moment each; the guide's activities have their own lengths.
                let most = match suite.name.as_str() {
                    "overlay" => 240,
                    "spreading" | "mlrsearch" | "outage" => 90,
                    // Seventeen kinds of networks with three loads each; five benchmarks of seven sizes of frames; twenty floods of three phases.
                    "docker" | "rfc2544" | "floods" => 150,
                    _ => 60,
                };
                assert!(time <= Duration::from_secs(most), "{}: {}", suite.name, Span(time));
            }
            None => unknown.push(suite.name),
        }
    }
    // How long a search takes shows when it is made.
    assert_eq!(unknown, ["packets", "balancer", "protection"]);
}

#[test]
fn how_long_a_run_takes_follows_from_its_timing() {
    let text =
        |lines: &str| format!("load = {{ kind = \"tcp-stream\", message = \"128k\", throttle = \"1MB/s\" }}\n{lines}");
    let shortest = |lines: &str| {
        let suite = parse_with("load = { kind = \"tcp-stream\", message = \"128k\" }", &text(lines)).unwrap();
        suite.shortest(&suite.timing).unwrap()
    };
    let window = Duration::from_millis(1000 + 100 + 50) + TRIAL_OVERHEAD;
    assert_eq!(shortest(""), 3 * window);
    let phase = |keys: &str| format!("[[scenario.phase]]\nname = \"p{}\"\n{keys}\n", keys.len());
    let phases = format!("{}{}", phase("time = \"300ms\""), phase(""));
    assert_eq!(shortest(&phases), 3 * (window + Duration::from_millis(300)));
    let limit = Duration::from_millis(1000 + 100 + 50);
    assert_eq!(shortest(&phase("rate = \"50% of limit\"")), 3 * (window + limit));
}

#[test]
fn layers_reproduces_the_studys_options() {
    let suite = Suite::parse("layers.toml", LAYERS).unwrap();
    let ids: Vec<&str> = suite.scenarios.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["A", "A2", "B", "C", "D", "D-vxlan", "E", "F", "F-vxlan", "C4", "T2", "T8"]);
    let b = suite.scenario("B").unwrap();
    assert_eq!(b.topology.path().name(), "bridge");
    let (send, receive) = streams(b);
    assert_eq!((send.message, receive.message), (128 * 1024, 64 * 1024));
    assert_eq!(send.engine, Engine::Uring { outstanding: 2 });
    assert_eq!(receive.engine, Engine::Uring { outstanding: 16 });
    assert_eq!(receive.receive_buffer, Some(2 << 20));
    // What containers keep is held against the raw stack under the same load.
    let base = suite.scenario(suite.baseline.as_deref().unwrap()).unwrap();
    assert_eq!((base.id.as_str(), base.topology.path().name()), ("A2", "raw"));
    assert_eq!(streams(base), streams(b));
    assert_ne!(streams(suite.scenario("A").unwrap()), streams(b), "the study's own");
    let f = suite.scenario("F").unwrap();
    let (send, receive) = streams(f);
    assert_eq!((send.message, receive.message, send.no_delay), (1390, 64 * 1024, true));
    assert!(!f.topology.segmentation_offload());
    // What the study had a vRouter for, and the same load over the kernel's overlay.
    for (id, beside) in [("D", "D-vxlan"), ("F", "F-vxlan")] {
        let [own, kernel] = [id, beside].map(|id| suite.scenario(id).unwrap());
        assert_eq!((own.topology.path().name(), kernel.topology.path().name()), ("vrouter", "vxlan"));
        assert_eq!(own.traffic, kernel.traffic);
    }
    assert_eq!(suite.scenario("C4").unwrap().traffic.pairs.len(), 2);
    assert_eq!(suite.timing.phases.window.as_secs(), 15);
}

#[test]
fn a_suite_is_called_what_its_user_calls_it() {
    let ids = ["TCP_STREAM-noen".to_owned()];
    let error = Suite::load("namespaces").unwrap().only(&ids).unwrap_err().to_string();
    assert!(
        error.starts_with("namespaces: no scenario 'TCP_STREAM-noen'\n  did you mean TCP_STREAM-none? "),
        "{error}"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, LAYERS).unwrap();
    let error = Suite::load(path.to_str().unwrap()).unwrap().only(&ids).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: no scenario 'TCP_STREAM-noen'", path.display())), "{error}");
    std::fs::write(&path, b"\x7fELF\xff").unwrap();
    let error = Suite::load(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("it is not text: byte 5 is not UTF-8"), "{error}");
}

#[test]
fn mistakes_are_named_with_their_line_and_a_next_step() {
    let cases = [
        ("title = \"Small\"", "titel = \"Small\"", 2, "titel"),
        ("window = \"1s\"", "window = \"1 parsec\"", 4, "parsec"),
        ("window = \"1s\"", "window = \"1ms\"", 4, "too short"),
        ("warm_up = \"100ms\"", "warm_up = \"2h\"", 5, "a phase of 7200s is longer than an hour"),
        ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"a\"]", 9, "twice"),
        ("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\", \"c\", \"d\"]", 15, "4 nodes"),
        ("wire = { mtu = 1500 }", "[testbed.two.wire]\nqueues = 0\nrate = \"1kbit\"", 11, "0 queues"),
        ("wire = { mtu = 1500 }", "[testbed.two.wire]\nmtu = 1500\nrate = \"1kbit\"", 12, "rate is too low"),
        ("path = \"raw\"", "path = \"raw\"\nwire = { mtu = 15 }", 16, "an MTU of 15"),
        (
            "[testbed.two]",
            "[quick]\nwindow = \"1s\"\nwarm_up = \"2h\"\ncool_down = \"0s\"\ntrials = 3\n[testbed.two]",
            10,
            "hour",
        ),
        (
            "[testbed.two]",
            "[quick]\nwindow = \"1s\"\nwarm_up = \"0s\"\ncool_down = \"0s\"\ntrials = 0\n[testbed.two]",
            12,
            "0 trials",
        ),
        ("min = 3, max = 10", "min = 3, max = 1", 7, "max"),
        ("wire = { mtu = 1500 }", "wire = { mtu = 15 }", 10, "15"),
        ("wire = { mtu = 1500 }", "wire = { rate = \"10KB\" }", 10, "10KB"),
        ("id = \"A\"", "id = \"A 1\"", 12, "A 1"),
        ("testbed = \"two\"", "testbed = \"three\"", 14, "three"),
        ("path = \"raw\"", "path = \"rwa\"", 15, "rwa"),
        ("path = \"raw\"", "path = \"colocated\"", 15, "containers"),
        ("to = \"b\"", "to = \"c\"", 15, "unknown node"),
        ("to = \"b\"", "to = \"a\"", 17, "twice"),
        ("to = \"b\"", "to = [\"b\", \"a\"]", 17, "2 receivers"),
        ("to = \"b\"", "to = 5", 17, "invalid type: integer `5`, expected a string or a list of strings"),
        ("message = \"128k\"", "message = \"0\"", 18, "message"),
        ("message = \"128k\"", "message = \"65M\"", 18, "from 1 to 67108864"),
        ("message = \"128k\"", "message = \"5G\"", 18, "less than 4 GiB"),
        ("message = \"128k\"", "message = \"128k\", receive_message = \"0\"", 18, "at the receiver, the message is 0"),
        ("message = \"128k\"", "message = \"128k\", send_buffer = \"1G\"", 18, "send buffer"),
        ("message = \"128k\"", "message = \"128k\", threads = 0", 18, "thread"),
        ("kind = \"tcp-stream\"", "kind = \"tcp-steam\"", 18, "tcp-steam"),
        ("holds = \"A.throughput > 1Mbit\"", "holds = \"B.throughput > 1Mbit\"", 21, "no scenario 'B'"),
        ("holds = \"A.throughput > 1Mbit\"", "holds = \"A.throughput >\"", 21, ""),
        ("holds = \"A.throughput > 1Mbit\"", "holds = \"0.5 * none.cpu < A.sender.cpu\"", 21, "no scenario 'none'"),
        (
            "holds = \"A.throughput > 1Mbit\"",
            "holds = \"A.cpu > 1\"",
            21,
            "write `A.local.cpu` for the end that connects",
        ),
    ];
    for (line, replacement, expected_line, expected) in cases {
        let error = parse_with(line, replacement).expect_err(replacement);
        assert_eq!(error.line, Some(expected_line), "{replacement}: {error}");
        let text = error.to_string();
        assert!(text.contains(expected), "{replacement}: '{text}' lacks '{expected}'");
        assert!(text.starts_with("small.toml:"), "{text}");
    }
}

#[test]
fn a_suite_that_does_not_exist_names_those_that_do() {
    let error = Suite::load("no-such-suite").unwrap_err().to_string();
    assert!(error.contains("layers"), "{error}");
}

#[test]
fn only_keeps_the_suites_order_and_refuses_unknown_ids() {
    let suite = Suite::parse("layers.toml", LAYERS).unwrap();
    let ids = ["F".to_owned(), "A".to_owned()];
    let kept: Vec<String> = suite.clone().only(&ids).unwrap().scenarios.into_iter().map(|s| s.id).collect();
    assert_eq!(kept, ["A", "F"]);
    assert!(suite.only(&["Z".to_owned()]).unwrap_err().to_string().contains("C4"));
}

#[test]
fn a_load_that_no_engine_can_carry_is_refused_with_its_line() {
    let load = "load = { kind = \"tcp-stream\", message = \"128k\" }";
    let with = |more: &str| load.replace(" }", &format!(", {more} }}"));
    for more in ["outstanding = { send = 0 }", "outstanding = { send = 2 }, send_mode = \"sendfile\""] {
        let error = parse_with(load, &with(more)).unwrap_err();
        assert_eq!(error.line, Some(18), "{more}: {error}");
    }
    let suite = parse_with(load, &with("outstanding = { receive = 2 }, send_mode = \"sendfile\"")).unwrap();
    assert_eq!(streams(&suite.scenarios[0]).1.message, 128 * 1024);
}

const LOAD: &str = "load = { kind = \"tcp-stream\", message = \"128k\" }";
const CLAIM: &str = "holds = \"A.throughput > 1Mbit\"";

/// The small suite's scenario with this instead of its load; nothing is claimed of it.
fn scenario_with(replacement: &str) -> Result<Scenario, FileError> {
    let claim = "[[claim]]\ntext = \"It carries something\"\n";
    let suite = parse_with(CLAIM, "holds = \"A.retransmits >= 0\"").unwrap().text;
    let text = suite.replace(&format!("{claim}holds = \"A.retransmits >= 0\"\n"), "");
    assert!(text.contains(LOAD) && !text.contains("claim"));
    Suite::parse("small.toml", &text.replace(LOAD, replacement)).map(|suite| suite.scenarios[0].clone())
}

#[test]
fn a_receiver_of_all_cpus_needs_a_wire_between_two_nodes() {
    let all = "nodes = [\"a\", \"b\"]\nreceiver_cpus = \"all\"";
    let suite = parse_with("nodes = [\"a\", \"b\"]", all).unwrap();
    assert!(suite.scenarios[0].topology.receiver_has_all());
    // Its nodes share the machine in a way of their own.
    assert_eq!(suite.nodes, 0);
    let error = parse_with("nodes = [\"a\", \"b\"]", "nodes = [\"a\", \"b\"]\nreceiver_cpus = \"some\"").unwrap_err();
    assert!(error.to_string().contains("all"), "{error}");
}

#[test]
fn networks_and_many_nodes_are_of_the_path_that_has_them() {
    let scenario = |path: &str, keys: &str, nodes: &str, to: &str| {
        let text = "name = 'v'\ntitle = 'V'\n[defaults]\nwindow = '1s'\nwarm_up = '100ms'\ncool_down = '50ms'\n\
                    [testbed.t]\nwire = {}\n";
        let text = format!(
            "{text}nodes = [{nodes}]\n[[scenario]]\nid = 'A'\nname = 'A'\ntestbed = 't'\npath = '{path}'\nfrom = 'a/net1'\n\
             to = '{to}'\nload = {{ kind = 'tcp-rr' }}\n{keys}"
        );
        Suite::parse("v.toml", &text)
    };
    let many = (0..17).map(|number| format!("'n{number}'")).collect::<Vec<_>>().join(", ");
    for (path, keys, nodes, to, line, said) in [
        ("vrouter", "networks = 17", "'a', 'b', 'c'", "c/net1", 18, "17 networks\n  choose 1 to 16"),
        ("vrouter", "networks = 0", "'a', 'b', 'c'", "c/net1", 18, "0 networks\n  choose 1 to 16"),
        ("vrouter", "networks = 'two'", "'a', 'b', 'c'", "c/net1", 18, "invalid type"),
        ("bridge", "networks = 2", "'a', 'b'", "b/net1", 18, "2 networks on path bridge"),
        ("vrouter", "networks = 2", "'a', 'b', 'c'", "c/net3", 14, "c/net3 is in network 3, and there are 2"),
        ("vrouter", "networks = 2", "'a', 'b', 'c'", "c/net2", 16, "a/net1 of network 1 to c/net2 of network 2"),
        ("vrouter", "", &many, "n1/net1", 9, "17 nodes"),
        ("bridge", "", "'a', 'b', 'c'", "c/net1", 14, "path bridge between three nodes"),
        ("routed", "", "'a', 'b', 'c', 'd'", "c/net1", 14, "up to 16 on path vrouter"),
    ] {
        let error = scenario(path, keys, nodes, to).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(said), "{text} lacks {said}");
        assert_eq!(error.line, Some(line), "{text}");
    }
    let suite = scenario("vrouter", "networks = 16", "'a', 'b', 'c', 'd'", "c/net1").unwrap();
    let topology = &suite.scenarios[0].topology;
    assert_eq!((topology.nodes().len(), topology.networks(), suite.nodes), (4, 16, 2));
    // The background load is between containers of one network, too.
    let under = "networks = 2\nunder = { kind = 'tcp-rr', from = 'b/net2', to = 'd/net1' }";
    let error = scenario("vrouter", under, "'a', 'b', 'c', 'd'", "c/net1").unwrap_err();
    assert!(error.line == Some(19) && error.to_string().contains("b/net2 of network 2"), "{error}");
}

#[test]
fn checks_of_a_procedure_need_its_phases_and_its_datapath() {
    let load = "load = { kind = \"tcp-stream\", message = \"16k\", throttle = \"1MB/s\" }";
    refused(&format!("{load}\nchecks = \"receive-spreading\""), &["no datapath 'spreader'", "[[scenario.datapath]]"]);
    let datapath = "[[scenario.datapath]]\nname = \"spreader\"\nnodes = [\"b\"]";
    refused(
        &format!("{load}\nchecks = \"receive-spreading\"\n{datapath}"),
        &["phases of the procedure", "idle, static-low"],
    );
    refused(&format!("{load}\nchecks = \"spreading\""), &["receive-spreading"]);
}

fn refused(replacement: &str, words: &[&str]) {
    let error = scenario_with(replacement).expect_err(replacement);
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{replacement}: '{text}' lacks one of {words:?}");
    assert!(error.line >= Some(18), "{replacement}: {text}");
}

#[test]
fn payload_of_maerts_goes_to_the_end_that_connects() {
    let keys = "message = \"16k\", receive_message = \"85k\", throttle = \"1MB/s\", send_mode = \"splice\", \
                receive_mode = \"discard\", outstanding = { receive = 4 }";
    let scenario = scenario_with(&format!("load = {{ kind = \"tcp-maerts\", {keys} }}")).unwrap();
    let (connect, listen) = streams(&scenario);
    assert_eq!((connect.flow, listen.flow), (Flow::Reverse, Flow::Reverse));
    assert_eq!((listen.message, connect.message), (16 << 10, 85 << 10));
    assert_eq!((listen.throttle, connect.throttle), (Some(1 << 20), None));
    assert_eq!((listen.send_mode, connect.send_mode), (SendMode::Splice, SendMode::Copy));
    assert_eq!((listen.engine, connect.engine), (Engine::Blocking, Engine::Uring { outstanding: 4 }));
    assert_eq!(scenario.traffic.connect.name(), "tcp-maerts");
    let reverse = scenario_with("load = { kind = \"tcp-stream\", flow = \"reverse\", message = \"16k\" }").unwrap();
    assert_eq!(reverse.traffic.connect.name(), "tcp-maerts");
}

#[test]
fn both_ends_of_a_flow_both_ways_are_alike() {
    for kind in ["tcp-stream", "udp-stream"] {
        let load = format!("load = {{ kind = \"{kind}\", message = \"1400\", flow = \"both\" }}");
        let scenario = scenario_with(&load).unwrap();
        assert_eq!(scenario.traffic.connect, scenario.traffic.listen);
        assert_eq!(scenario.traffic.flow(), Some(Flow::Both));
        let sides: Vec<Side> = scenario.watched.iter().map(|(side, _)| *side).collect();
        assert_eq!(sides, [Side::Local, Side::Remote, Side::Local, Side::Remote]);
    }
    let both = |key: &str| format!("load = {{ kind = \"tcp-stream\", message = \"1k\", flow = \"both\", {key} }}");
    refused(&both("receive_message = \"2k\""), &["receive_message", "both ways"]);
    refused(&both("outstanding = { send = 2 }"), &["outstanding", "each way"]);
}

#[test]
fn transactions_have_netperfs_sizes_and_a_closed_loop_unless_told() {
    let scenario = scenario_with("load = { kind = \"tcp-rr\" }").unwrap();
    let Load::TcpRr(Transactions { request, response, in_flight, schedule, .. }) = scenario.traffic.connect else {
        panic!("{:?}", scenario.traffic);
    };
    assert_eq!((request, response, in_flight, schedule), (1, 1, 1, Schedule::Closed));
    assert_eq!(
        scenario.watched,
        [(Side::Local, Metric::Transactions), (Side::Local, Metric::Cpu), (Side::Remote, Metric::Cpu)]
    );
    let keys =
        "request = \"64\", response = \"1k\", in_flight = 8, rate = 10000, arrivals = \"poisson\", timeout = \"20ms\"";
    let scenario = scenario_with(&format!("load = {{ kind = \"udp-rr\", {keys} }}")).unwrap();
    let Load::UdpRr(Transactions { request, response, in_flight, schedule, timeout, .. }) = scenario.traffic.listen
    else {
        panic!("{:?}", scenario.traffic);
    };
    assert_eq!((request, response, in_flight, timeout.as_millis()), (64, 1024, 8, 20));
    assert_eq!(schedule, Schedule::Open { rate: 10_000.0, arrivals: ArrivalSpacing::Poisson });
    assert!(matches!(scenario_with("load = { kind = \"tcp-crr\" }").unwrap().traffic.connect, Load::TcpCrr(_)));
}

#[test]
fn datagrams_go_one_by_one_unless_told() {
    let scenario = scenario_with("load = { kind = \"udp-stream\", message = \"1400\" }").unwrap();
    let Load::UdpStream(Datagrams { batch, segments, coalesce, throttle, .. }) = scenario.traffic.connect else {
        panic!("{:?}", scenario.traffic);
    };
    assert_eq!((batch, segments, coalesce, throttle), (1, 1, false, None));
    let keys = "batch = 8, segments = 16, coalesce = true, throttle = \"1MB/s\", pacing = \"thread\"";
    let scenario = scenario_with(&format!("load = {{ kind = \"udp-stream\", message = \"1k\", {keys} }}")).unwrap();
    let Load::UdpStream(Datagrams { batch, segments, coalesce, throttle, .. }) = scenario.traffic.connect else {
        panic!("{:?}", scenario.traffic);
    };
    assert_eq!((batch, segments, coalesce, throttle), (8, 16, true, Some(1 << 20)));
}

#[test]
fn keys_that_a_kind_does_not_know_are_refused_by_name() {
    let with = |kind: &str, key: &str| format!("load = {{ kind = \"{kind}\", {key} }}");
    for (kind, key, named) in [
        ("tcp-stream", "message = \"1k\", request = \"1\"", "'request'"),
        ("tcp-stream", "message = \"1k\", batch = 2", "'batch'"),
        ("tcp-stream", "message = \"1k\", from = \"a\"", "'from'"),
        ("tcp-maerts", "message = \"1k\", flow = \"both\"", "'flow'"),
        ("tcp-rr", "message = \"1k\"", "'message'"),
        ("tcp-rr", "timeout = \"1s\"", "'timeout'"),
        ("tcp-crr", "in_flight = 2", "'in_flight'"),
        ("udp-rr", "no_delay = true", "'no_delay'"),
        ("udp-rr", "congestion_control = \"cubic\"", "'congestion_control'"),
        ("udp-stream", "message = \"1k\", send_mode = \"splice\"", "'send_mode'"),
        ("udp-stream", "message = \"1k\", receive_message = \"1k\"", "'receive_message'"),
    ] {
        refused(&with(kind, key), &[named, kind, "remove it"]);
    }
    refused(&with("tcp-rr", "arrivals = \"poisson\""), &["'arrivals' without a rate"]);
    refused(&with("tcp-rr", "rate = 0"), &["`0` is not a number per second", "more than zero"]);
    refused(&with("udp-stream", "rate = \"1gbit\""), &["`1gbit` is not a number per second", "`throttle`"]);
    refused(&with("udp-rr", "request = \"65k\""), &["request", "65507"]);
    refused(&with("udp-stream", "batch = 2"), &["no message size"]);
    refused(&with("udp-stream", "message = \"8\""), &["datagram is 8"]);
    refused(&with("udp-stream", "message = \"1k\", pacing = \"thread\""), &["'pacing' without a throttle"]);
    refused(&with("udp-stream", "message = \"1k\", pacing = \"kernel\""), &["fq"]);
}

#[test]
fn sockets_of_a_load_have_options() {
    let with = |kind: &str, keys: &str| format!("load = {{ kind = \"{kind}\", {keys} }}");
    let all = "message = \"1k\", dscp = \"af41\", ttl = 9, priority = 5, mss = \"1000\", not_sent_low_water = \"64k\", \
               busy_poll = \"50us\", mptcp = true";
    let scenario = parse_with(LOAD, &with("tcp-stream", all)).unwrap().scenarios.remove(0);
    let (sender, receiver) = streams(&scenario);
    assert_eq!(sender.options, receiver.options);
    let words = [
        "DSCP af41",
        "MSS 1000",
        "TTL 9",
        "socket priority 5",
        "TCP_NOTSENT_LOWAT 65536",
        "busy polling for 50 µs",
        "MPTCP",
    ];
    assert_eq!(sender.options.words(), words);
    assert!(words.iter().all(|word| scenario.load_words().contains(word)), "{}", scenario.load_words());
    let number = parse_with(LOAD, &with("tcp-stream", "message = \"1k\", dscp = 46")).unwrap().scenarios.remove(0);
    assert!(number.load_words().contains("DSCP ef"), "{}", number.load_words());
    for (kind, keys, named) in [
        ("tcp-rr", "dscp = 64", "is no DSCP"),
        ("tcp-rr", "dscp = \"af51\"", "is no DSCP"),
        ("tcp-rr", "ttl = 0", "hop limit"),
        ("tcp-rr", "mss = \"87\"", "the MSS"),
        ("tcp-rr", "busy_poll = \"1s\"", "busy polling"),
        ("tcp-rr", "busy_poll = \"1500ns\"", "whole microseconds"),
        ("tcp-rr", "not_sent_low_water = \"1k\"", "'not_sent_low_water'"),
        ("udp-rr", "mptcp = true", "'mptcp'"),
        ("tcp-crr", "mptcp = true", "'mptcp'"),
        ("udp-rr", "mss = \"1k\"", "'mss'"),
    ] {
        refused(&with(kind, keys), &[named]);
    }
}

#[test]
fn defaults_are_for_the_loads_that_can_have_them() {
    let defaults = "cool_down = \"50ms\"";
    let with = |keys: &str| format!("{defaults}\nload = {{ {keys} }}");
    // The congestion control is for the stream alone, the buffer for all.
    let both = with("congestion_control = \"cubic\", receive_buffer = \"64k\"");
    let text = parse_with(defaults, &both).unwrap().text;
    let under = format!("{LOAD}\nunder = {{ kind = \"udp-rr\", from = \"b\", to = \"a\" }}");
    let suite = Suite::parse("small.toml", &text.replace(LOAD, &under)).unwrap();
    let scenario = &suite.scenarios[0];
    assert_eq!(streams(scenario).0.congestion_control.as_deref(), Some("cubic"));
    let Load::UdpRr(Transactions { congestion_control: None, receive_buffer: Some(65_536), .. }) =
        scenario.under.as_ref().unwrap().connect
    else {
        panic!("{:?}", scenario.under);
    };
    let error = parse_with(defaults, &with("in_flight = 3")).unwrap_err().to_string();
    assert!(error.contains("no load of the suite has 'in_flight'"), "{error}");
}

#[test]
fn a_load_may_run_under_another() {
    let rr = "load = { kind = \"tcp-rr\" }";
    let scenario = scenario_with(&format!("{rr}\n[scenario.under]\nkind = \"tcp-stream\"\nmessage = \"64k\"")).unwrap();
    let under = scenario.under.as_ref().unwrap();
    assert_eq!(under.pairs, scenario.traffic.pairs);
    assert_eq!(under.flow(), Some(Flow::Forward));
    let elsewhere = format!("{rr}\nunder = {{ kind = \"tcp-stream\", message = \"64k\", from = \"b\", to = \"a\" }}");
    let scenario = scenario_with(&elsewhere).unwrap();
    assert_eq!(scenario.under.unwrap().pairs[0].0.to_string(), "b");
    refused(&elsewhere.replace(", to = \"a\"", ""), &["only one of 'from' and 'to'"]);
    let nowhere = scenario_with(&elsewhere.replace("from = \"b\"", "from = \"c\"")).unwrap_err();
    assert!(nowhere.to_string().contains("unknown node"), "{nowhere}");
    refused(&elsewhere.replace("message", "massage"), &["massage"]);
    // Its own figure is there to be spoken of, and only then.
    assert!(parse_with(CLAIM, "holds = \"A.background_throughput > 1Mbit\"").is_err());
}

#[test]
fn more_figures_can_be_watched() {
    let rr = "load = { kind = \"tcp-rr\" }";
    let scenario = scenario_with(&format!("{rr}\nwatch = [\"latency_p99\"]")).unwrap();
    assert_eq!(scenario.watched.len(), 4);
    refused(&format!("{rr}\nwatch = [\"throughput\"]"), &["tcp-rr", "throughput"]);
    refused(&format!("{rr}\nwatch = [\"speed\"]"), &["speed"]);
}

#[test]
fn a_scenario_may_speak_another_family_than_its_testbed() {
    let suite = parse_with("wire = { mtu = 1500 }", "wire = { mtu = 1500 }\nfamily = \"ipv6\"").unwrap();
    assert_eq!(suite.scenarios[0].topology.family(), Family::Ipv6);
    let own = suite.text.replace("path = \"raw\"", "path = \"raw\"\nfamily = \"ipv4\"");
    assert_eq!(Suite::parse("small.toml", &own).unwrap().scenarios[0].topology.family(), Family::Ipv4);
    let small = suite.text.replace("mtu = 1500", "mtu = 1000");
    assert!(Suite::parse("small.toml", &small).unwrap_err().to_string().contains("1280"));
}

#[test]
fn claims_are_about_figures_that_the_load_has() {
    let error = parse_with(CLAIM, "holds = \"A.transactions > 1\"").unwrap_err();
    assert_eq!(error.line, Some(21));
    assert!(error.to_string().contains("tcp-stream"), "{error}");
}

#[test]
fn loads_are_told_in_a_line() {
    let line = |load: &str| scenario_with(&format!("load = {{ {load} }}")).unwrap().traffic.to_string();
    for (load, words) in [
        (
            "kind = \"tcp-stream\", message = \"1400\", receive_message = \"64k\", threads = 2",
            "TCP stream, messages of 1400 bytes, received by up to 64KiB, 2 threads, send blocking, receive blocking",
        ),
        (
            "kind = \"tcp-maerts\", message = \"16k\", outstanding = { send = 2 }",
            "TCP stream towards the connecting end (maerts), messages of 16KiB, send io_uring with 2 outstanding, \
             receive blocking",
        ),
        (
            "kind = \"tcp-rr\", in_flight = 4, rate = 500, no_delay = true",
            "TCP request/response, requests of 1 bytes, responses of 1 bytes, 4 in flight on each connection, \
             500 transactions/s, evenly spaced, nodelay",
        ),
        (
            "kind = \"udp-rr\", response = \"1k\"",
            "UDP request/response, requests of 1 bytes, responses of 1KiB, timeout 1s",
        ),
        (
            "kind = \"udp-stream\", message = \"1400\", batch = 8, segments = 4, flow = \"both\"",
            "UDP streams both ways, datagrams of 1400 bytes, 8 messages a system call, segmentation offload, \
             4 datagrams a message",
        ),
    ] {
        assert_eq!(line(load), words.replace("of 1 bytes", "of 1 byte"), "{load}");
    }
}

#[test]
fn namespaces_has_the_studys_tests_for_each_case() {
    let suite = Suite::load("namespaces").unwrap();
    let ids: Vec<&str> = suite.scenarios.iter().map(|s| s.id.as_str()).collect();
    let tests = ["TCP_STREAM", "TCP_MAERTS", "TCP_RR", "UDP_STREAM", "UDP_RR"];
    let cases = [("none", "raw"), ("etun", "etun"), ("bridge", "bridge"), ("macvlan", "macvlan")];
    for (test, case) in tests.iter().flat_map(|test| cases.map(|case| (test, case))) {
        let scenario = suite.scenario(&format!("{test}-{}", case.0)).unwrap_or_else(|| panic!("{ids:?}"));
        assert_eq!(scenario.topology.path().name(), case.1);
        assert_eq!(scenario.traffic.connect.name().replace('-', "_").to_uppercase(), *test);
        assert_eq!(scenario.topology.wire().unwrap().rate, Some(1_000_000_000));
        // The other host has no namespaces.
        assert!(scenario.topology.nodes()[1].containers.is_empty());
    }
    assert_eq!(ids.len(), tests.len() * cases.len());
    let Load::UdpStream(datagrams) = &suite.scenario("UDP_STREAM-etun").unwrap().traffic.connect else { panic!() };
    // As getsockopt(2) tells it, twice what was asked for.
    assert_eq!((datagrams.send_buffer.unwrap() * 2, datagrams.receive_buffer.unwrap() * 2), (110_592, 107_520));
    assert_eq!(suite.timing.phases.window.as_secs(), 20);
}

/// The small suite with a table after its claim.
fn with_table(table: &str) -> Result<Suite, FileError> {
    parse_with("holds = \"A.throughput > 1Mbit\"", &format!("holds = \"A.throughput > 1Mbit\"\n[[table]]\n{table}"))
}

const NETPERF: &str = r#"title = "TCP_STREAM"
layout = "netperf"
source = "a study"
cases = [
  { head = "raw", scenario = "A", reference = { throughput = "857.39mbit", local = { cpu = 6.39, demand = 2.444 } } },
]"#;

const OVERVIEW: &str = r#"title = "All"
layout = "overview"
tests = ["TCP_STREAM"]
baseline = "raw"
cases = [
  { head = "raw", scenarios = ["A"] },
]"#;

#[test]
fn tables_have_the_layout_that_they_name() {
    let table = |text| with_table(text).unwrap().tables.remove(0);
    let columns = table("title = \"T\"\ncolumns = [{ head = \"h\", scenario = \"A\" }]");
    assert_eq!(columns.columns()[0].head, "h");
    let netperf = table(NETPERF);
    let Form::Netperf(cases) = &netperf.form else { panic!("{netperf:?}") };
    let published = &cases[0].published;
    assert_eq!(published.get(Side::Receiver, Metric::Throughput), Some(857.39e6));
    assert_eq!(published.get(Side::Local, Metric::ServiceDemand), Some(2.444));
    assert_eq!(published.get(Side::Remote, Metric::Cpu), None);
    let overview = table(OVERVIEW);
    let Form::Overview(Overview { tests, cases, baseline }) = &overview.form else { panic!("{overview:?}") };
    assert_eq!((tests.as_slice(), baseline.as_str()), (&["TCP_STREAM".to_owned()][..], "raw"));
    assert_eq!(cases[0].scenarios, ["A"]);
}

#[test]
fn mistakes_in_tables_are_named_with_their_line() {
    let in_netperf = |from: &str, to: &str| NETPERF.replace(from, to);
    let in_overview = |from: &str, to: &str| OVERVIEW.replace(from, to);
    let cases = [
        ("title = \"T\"".to_owned(), 23, "the table 'T' has no columns"),
        ("title = \"T\"\nlayout = \"grid\"".to_owned(), 24, "grid"),
        ("title = \"T\"\ncolumns = [{ head = \"h\", scenario = \"Z\" }]".to_owned(), 24, "no scenario 'Z'"),
        ("title = \"T\"\ncolumns = []\ncases = []".to_owned(), 25, "a table in the layout 'columns' has no cases"),
        (in_netperf("\"A\"", "\"Z\""), 27, "no scenario 'Z'"),
        (in_netperf("scenario = \"A\"", "scenarios = [\"A\"]"), 27, "one scenario, not a list"),
        (in_netperf("scenario = \"A\", ", ""), 27, "the case 'raw' has no scenario"),
        (in_netperf("throughput = \"857.39mbit\"", "transactions = 5.0"), 27, "tcp-stream has no transactions"),
        (in_netperf("throughput = \"857.39mbit\"", "sent = \"5mbit\""), 27, "tcp-stream has no sent"),
        (in_netperf("cpu = 6.39", "cpu = -1.0"), 27, "a published figure of -1"),
        (in_netperf("cpu = 6.39", "gpu = 6.39"), 27, "gpu"),
        (in_netperf("source", "tests = [\"x\"]\nsource"), 25, "the layout 'netperf' has no tests"),
        (in_overview("[\"A\"]", "[\"Z\"]"), 28, "no scenario 'Z'"),
        (in_overview("[\"A\"]", "[\"A\", \"A\"]"), 28, "has 2 scenarios for 1 tests"),
        (in_overview("baseline = \"raw\"", "baseline = \"rwa\""), 26, "no case 'rwa'"),
        (in_overview("baseline = \"raw\"\n", ""), 23, "has no baseline"),
        (in_overview("tests = [\"TCP_STREAM\"]", "tests = []"), 25, "has no tests"),
        (in_overview("scenarios = [\"A\"]", "scenario = \"A\""), 28, "a list of scenarios"),
        (in_overview("},\n", "}, { head = \"raw\", scenarios = [\"A\"] },\n"), 28, "two cases 'raw'"),
    ];
    for (table, line, expected) in cases {
        let error = with_table(&table).expect_err(&table);
        assert!(error.to_string().contains(expected), "{table}\n{error}");
        assert_eq!(error.line, Some(line), "{table}\n{error}");
    }
}

/// So many scenarios that are alike, each with more.
fn suite_of(scenarios: usize, more: &str) -> String {
    let mut text = "name = 's'\ntitle = 'S'\n[defaults]\nwindow = '1s'\nwarm_up = '100ms'\ncool_down = '50ms'\n\
                    confidence = { level = '95%', width = '5%', min = 3, max = 10 }\n\
                    [defaults.load]\nkind = 'tcp-stream'\nmessage = '1k'\n\
                    [testbed.two]\nnodes = ['a', 'b']\nwire = {}\n"
        .to_owned();
    for n in 0..scenarios {
        text += &format!(
            "[[scenario]]\nid = 'A{n}'\nname = 'A'\ntestbed = 'two'\npath = 'raw'\nfrom = 'a'\nto = 'b'\n{more}"
        );
    }
    text
}

#[test]
fn more_scenarios_than_a_suite_may_have_are_refused_before_they_are_made() {
    let workers: Vec<String> = (1..=600).map(|n: u32| n.to_string()).collect();
    let rows = format!("workers = [{}]\n", workers.join(", "));
    for (scenarios, more) in [(1001, ""), (2, rows.as_str())] {
        let said = Suite::parse("s.toml", &suite_of(scenarios, more)).unwrap_err().to_string();
        assert!(said.contains("more than 1000 scenarios, those of lists of workers included"), "{said}");
        assert!(said.len() < 300, "{said}");
    }
}

#[test]
fn a_scenario_that_is_not_there_is_not_told_by_all_that_are() {
    let suite = Suite::parse("s.toml", &suite_of(900, "")).unwrap();
    let said = suite.no_scenario("Z").to_string();
    assert!(said.len() < 400 && said.contains("A23") && said.ends_with("and 876 more"), "{said}");
}

#[test]
fn a_file_that_is_too_long_is_not_read_to_its_end() {
    let said = Suite::load("/dev/zero").unwrap_err().to_string();
    assert!(said.contains("more than 4 MiB") && said.len() < 400, "{said}");
}
