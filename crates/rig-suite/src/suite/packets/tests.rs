use std::net::IpAddr;

use rig_cli::mistakes::FileError;
use rig_facts::figures::{Kind, check};
use rig_facts::fixture::loads::tcp_stream;
use rig_facts::layers::is_by_connection;
use rig_packet::Service;
use rig_packet::plan::{GatewayPlan, Packets, Range};

use super::*;
use crate::suite::{Scenario, Suite};

/// The load is on line 16.
fn parse(path: &str, load: &str) -> Result<Scenario, FileError> {
    let (from, to) = if path == "raw" { ("a", "b") } else { ("a/c", "b/d") };
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"100ms\"\ncool_down = \"50ms\"\n\
         [testbed.two]\nnodes = [\"a\", \"b\"]\nwire = {{ queues = 2 }}\n[[scenario]]\nid = \"A\"\nname = \"A\"\n\
         testbed = \"two\"\npath = \"{path}\"\nfrom = \"{from}\"; to = \"{to}\"\nload = {{ kind = \"packets\", {load} }}\n"
    );
    let text = text.replace("; to", "\nto");
    Suite::parse("small.toml", &text).map(|suite| suite.scenarios[0].clone())
}

fn raw(load: &str) -> Scenario {
    parse("raw", load).unwrap_or_else(|error| panic!("{error}"))
}

fn packets(load: &RequestedLoad) -> &PacketLoad {
    let RequestedLoad::Packets(packets) = load else { panic!("{load:?}") };
    packets
}

/// Both ends as a trial runs them, the connecting one first.
fn ends(scenario: &Scenario, cpus: &[u32], peer_macs: &[[u8; 6]]) -> [Packets; 2] {
    let (from, to) = &scenario.traffic.pairs[0];
    let needs = scenario.traffic.packets.as_ref().unwrap();
    let end = |load, own, peer, is_client| {
        let port = PortOf { own, peer, is_client, cpus, peer_macs, dut: None, lasts: Duration::ZERO };
        at_port(packets(load), needs, &scenario.topology, &port).unwrap()
    };
    [end(&scenario.traffic.connect, from, to, true), end(&scenario.traffic.listen, to, from, false)]
}

const TCP: &str = "protocol = \"tcp\", connections_per_second = 1000";
const UDP: &str = "protocol = \"udp\", connections_per_second = 1000";

#[track_caller]
fn refused(path: &str, load: &str, words: &[&str]) {
    let error = parse(path, load).expect_err(load);
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{load}: '{text}' lacks one of {words:?}");
    assert_eq!(error.line, Some(17), "{text}");
}

#[test]
fn what_packets_cannot_be_is_refused_with_line_and_next_step() {
    let with = |more: &str| format!("{TCP}, {more}");
    for (load, words) in [
        ("connections_per_second = 5".to_owned(), &["protocol"][..]),
        ("protocol = \"sctp\"".to_owned(), &["sctp"]),
        ("protocol = \"http\", connections_per_second = 9, request = \"20\"".to_owned(), &["HTTP request of 20", "85"]),
        ("protocol = \"http\", connections_per_second = 9, response = \"1M\"".to_owned(), &["body", "65536"]),
        ("protocol = \"tcp\"".to_owned(), &["connections_per_second"]),
        ("protocol = \"tcp\", connections_per_second = \"1kbit\"".to_owned(), &["a number per second", "`kbit`"]),
        ("protocol = \"tcp\", connections_per_second = 0".to_owned(), &["`0` is not", "more than zero"]),
        (with("message = \"1k\""), &["'message'", "connections_per_second"]),
        (with("threads = 2"), &["'threads'", "workers"]),
        (with("hold = 10"), &["'interval'"]),
        (with("requests_per_second = 10"), &["'hold'"]),
        (with("hold = 10, requests_per_second = 10, interval = \"1s\""), &["both"]),
        (with("pipeline = 4"), &["tcp", "'pipeline'"]),
        (with("timeout = \"1s\""), &["tcp", "'timeout'"]),
        (with("client_addresses = 254"), &["client_addresses = 254", "1 to 253"]),
        (with("server_addresses = 0"), &["server_addresses = 0"]),
        (with("client_ports = [90, 80]"), &["source ports"]),
        (with("server_ports = \"80\""), &["such as 80"]),
        (with("request = \"2k\""), &["request", "2048"]),
        (with("response = \"2G\""), &["response"]),
        (with("retransmit = \"1us\""), &["retransmission"]),
        (with("retries = 16"), &["retransmissions of 16"]),
        (with("send_window = 0"), &["window of 0"]),
        (with("ramp = \"200ms\""), &["ramp of 200ms", "warm-up of 100ms"]),
        (with("workers = 0"), &["without workers"]),
        (with("workers = 3"), &["3 workers", "queues = 3"]),
        (with("driver = \"dpdk\""), &["dpdk"]),
        (with("close = \"abort\""), &["abort"]),
        (with("search = \"fastest\""), &["loss-free"]),
        (with("search = \"loss-free\""), &["connections_per_second"]),
        (with("hold = 60000, interval = \"1s\", client_ports = [1024, 2023]"), &["60000"]),
        (format!("{UDP}, close = \"fin\""), &["udp", "'close'"]),
        (format!("{UDP}, retransmit = \"1s\""), &["udp", "'retransmit'"]),
        (format!("{UDP}, flood = true, requests = 3"), &["flood", "'requests'"]),
        ("protocol = \"udp\", flood = true, search = \"loss-free\"".to_owned(), &["flood", "not seen"]),
    ] {
        refused("raw", &load, words);
    }
    refused("etun", &with("workers = 2"), &["2 workers", "one queue"]);
    refused("macvlan", &with("driver = \"xdp\""), &["macvlan", "xdp-generic"]);
    refused("vrouter", &with("driver = \"xdp\""), &["vrouter", "xdp-generic"]);
}

#[test]
fn rates_are_written_as_everywhere() {
    let client = |load: &str| packets(&raw(load).traffic.connect).client.clone();
    let load =
        client("protocol = \"tcp\", connections_per_second = \"10k\", hold = 5, requests_per_second = \"1.5M/s\"");
    assert_eq!((load.load.rate, load.repeat.unwrap().rate), (10_000.0, Some(1.5e6)));
    let searched = raw("protocol = \"tcp\", search = { goal = \"loss-free\", start = \"2k\", most = \"1M\" }");
    let options = searched.traffic.packets.unwrap().search.unwrap().options;
    assert_eq!((options.start, options.most), (2000.0, Some(1e6)));
}

#[test]
fn impossible_searches_are_refused() {
    for (search, word) in [
        ("start = 0", "first rate"),
        ("growth = 1", "growth"),
        ("precision = \"0%\"", "precision"),
        ("most = 10", "highest rate"),
        ("late = \"101%\"", "late"),
        ("step = \"1ms\"", "1ms"),
        ("measure_at = \"0%\"", "window at 0"),
        ("measure_at = \"101%\"", "window at 101"),
    ] {
        refused("raw", &format!("protocol = \"tcp\", search = {{ goal = \"loss-free\", {search} }}"), &[word]);
    }
    let load = format!("{TCP}, hold = 5, requests_per_second = 9, search = {{ goal = \"loss-free\", start = 9 }}");
    refused("raw", &load, &["two first values"]);
}

#[test]
fn a_search_for_connections_held_needs_all_that_opens_and_uses_them() {
    let hold = |rest: &str, keys: &str| {
        format!("protocol = \"udp\", {rest} search = {{ goal = \"loss-free\", raise = \"hold\"{keys} }}")
    };
    let whole = "connections_per_second = 100, hold = 40, interval = \"2ms\",";
    for (rest, keys, words) in [
        ("connections_per_second = 100, interval = \"2ms\",", "", ["'hold', which the load has not", "begins there"]),
        ("hold = 40, interval = \"2ms\",", "", ["without a rate", "connections_per_second = 3000"]),
        (whole, ", start = 3", ["two first values", "'hold' is where the search begins"]),
        (whole, ", most = 39", ["highest rate", "first"]),
        (
            "connections_per_second = 1, hold = 5, requests_per_second = 9,",
            "",
            ["beside 'requests_per_second'", "interval"],
        ),
    ] {
        refused("raw", &hold(rest, keys), &words);
    }
    let raise = |load: &str, key: &str| format!("{load}, search = {{ goal = \"loss-free\", raise = \"{key}\" }}");
    refused("raw", &raise(TCP, "requests_per_second"), &["'requests_per_second', which the load has not"]);
    let requests = "protocol = \"tcp\", hold = 5, requests_per_second = 9";
    refused("raw", &raise(requests, "connections_per_second"), &["beside 'requests_per_second'"]);

    let scenario = raw(&hold(whole, ""));
    let plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    assert_eq!((plan.of, plan.options.start), (SearchedRate::Held, 40.0));
    // Opened within a minute.
    assert_eq!(plan.options.most, Some(6000.0));
    assert_eq!(scenario.watched, [(rig_facts::claim::Side::Local, rig_facts::claim::Metric::LimitHeld)]);
    let offered = at_rate(&scenario.traffic.connect, plan.of, 76.6);
    assert_eq!(packets(&offered).client.load.hold, Some(77));
    assert_eq!(opening(&offered), Duration::from_millis(770));
    // There are addresses and ports for so many.
    let few =
        raw(&hold("connections_per_second = 100, hold = 40, interval = \"2ms\", client_ports = [2000, 2099],", ""));
    assert_eq!(few.traffic.packets.unwrap().search.unwrap().options.most, Some(100.0));
}

#[test]
fn a_short_connection_is_what_is_meant_unless_told() {
    let scenario = raw(TCP);
    let [connect, listen] = ends(&scenario, &[], &[]);
    let (Service::TcpClient(client), Service::TcpServer(server)) = (&connect.service, &listen.service) else {
        panic!("no TCP")
    };
    assert_eq!((client.client.repeat, client.close, server.close), (None, CloseMethod::Fin, true));
    assert_eq!((client.request.len(), client.response), (64, MessageEnd::Bytes(64)));
    assert_eq!((server.response.len(), server.request), (64, MessageEnd::Bytes(64)));
    // What was lost last is found lost before the load is over.
    assert!(connect.course.drain > client.times.retransmit);
    assert_eq!(scenario.watched, [(rig_facts::claim::Side::Local, rig_facts::claim::Metric::Connections)]);
}

#[test]
fn connections_that_are_held_are_not_closed_by_the_server() {
    let scenario = raw(&format!("{TCP}, hold = 50, requests_per_second = 500"));
    let [_, listen] = ends(&scenario, &[], &[]);
    let Service::TcpServer(server) = &listen.service else { panic!("no TCP server") };
    assert!(!server.close);
    assert_eq!(scenario.watched, [(rig_facts::claim::Side::Local, rig_facts::claim::Metric::Transactions)]);
}

fn rates(load: &RequestedLoad) -> (f64, Option<f64>) {
    let client = &packets(load).client;
    (client.load.rate, client.repeat.and_then(|repeat| repeat.rate))
}

#[test]
fn a_search_raises_what_the_load_says_nothing_else() {
    let scenario = raw("protocol = \"tcp\", search = \"loss-free\"");
    let plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    assert_eq!((plan.of, plan.options.start, plan.options.precision), (SearchedRate::Connections, 1000.0, 0.02));
    assert_eq!(rates(&at_rate(&scenario.traffic.connect, plan.of, 77.0)), (77.0, None));
    let scenario = raw(&format!("{TCP}, hold = 50, requests_per_second = 500, search = \"loss-free\""));
    let plan = scenario.traffic.packets.as_ref().unwrap().search.unwrap();
    assert_eq!((plan.of, plan.options.start), (SearchedRate::Requests, 500.0));
    assert_eq!(rates(&at_rate(&scenario.traffic.connect, plan.of, 77.0)), (1000.0, Some(77.0)));
}

/// None of the addresses is one that a kernel of the testbed has.
#[test]
fn ports_have_addresses_of_their_own() {
    let own = |text: &str| text.parse::<IpAddr>().unwrap();
    let load = format!("{TCP}, client_addresses = 9, server_addresses = 2");
    for (path, router) in [("raw", None), ("vxlan", None), ("etun", Some("10.1.0.1"))] {
        let scenario = parse(path, &load).unwrap();
        let (from, to) = &scenario.traffic.pairs[0];
        let [connect, _] = ends(&scenario, &[4, 5], &[[2; 6]]);
        let port = &connect.ports[0];
        assert_eq!(port.local, [Range { first: own("198.18.0.1"), count: 9 }], "{path}");
        assert_eq!(port.remote, [Range { first: own("198.19.0.1"), count: 2 }], "{path}");
        assert_eq!(port.address, own("198.18.0.254"), "{path}");
        let gateway = router.map_or(GatewayPlan::Mac([2; 6]), |router| GatewayPlan::Address(own(router)));
        assert_eq!((port.gateway, port.threads[0].cpu), (gateway, Some(4)), "{path}");
        let kernels = [from, to].map(|end| scenario.topology.address(end).unwrap());
        for range in port.local.iter().chain(&port.remote) {
            assert!(!kernels.contains(&range.first), "{path}");
        }
    }
}

#[test]
fn loads_are_told_in_a_line() {
    for (load, line) in [
        (TCP.to_owned(), "TCP packets, requests of 64 bytes, responses of 64 bytes, 1000 connections/s"),
        (
            format!("{TCP}, hold = 50, requests_per_second = 500, close = \"reset\", workers = 2, driver = \"packet\""),
            "TCP packets, requests of 64 bytes, responses of 64 bytes, 1000 connections/s, 50 held open, 500 requests/s, closed by \
             reset, 2 workers at each end, AF_PACKET",
        ),
        (
            "protocol = \"udp\", request = \"1k\", search = { goal = \"loss-free\", measure_at = \"50%\" }".to_owned(),
            "UDP packets, requests of 1KiB, responses of 64 bytes, connections per second searched from 1000, loss-free within \
             2 %, window at 50 % of the limit",
        ),
        (
            "protocol = \"http\", connections_per_second = 9, response = \"14\"".to_owned(),
            "HTTP packets, requests of 85 bytes, responses of 99 bytes, 9 connections/s",
        ),
        (
            format!("{UDP}, flood = true, hop = true"),
            "UDP flood, first packets only, 1000 connections/s, another address each",
        ),
    ] {
        assert_eq!(raw(&load).traffic.to_string(), line);
    }
}

#[test]
fn figures_that_packets_do_not_have_are_refused_with_those_that_they_have() {
    let parse = |load: &str| {
        let text = format!(
            "name = \"s\"\ntitle = \"S\"\n[defaults]\nwindow = \"1s\"\nwarm_up = \"1s\"\ncool_down = \"1s\"\n\
             [testbed.t]\nnodes = [\"a\", \"b\"]\nwire = {{}}\n[[scenario]]\nid = \"P\"\nname = \"P\"\n\
             testbed = \"t\"\npath = \"raw\"\nfrom = \"a\"\nto = \"b\"\n\
             load = {{ kind = \"packets\", connections_per_second = 9, {load} }}\n"
        );
        Suite::parse("s.toml", &text).unwrap().scenarios[0].plan()
    };
    let (tcp, udp) = (parse("protocol = \"tcp\""), parse("protocol = \"udp\""));
    let flood = parse("protocol = \"udp\", flood = true");
    let requests = parse("protocol = \"tcp\", requests = 3");
    let kinds = [&tcp, &udp, &flood, &requests].map(|load| Kind::of(load).unwrap());
    assert_eq!(kinds, [Kind::Connections, Kind::Connections, Kind::Flood, Kind::Requests]);
    for (load, figure, word) in [
        (&tcp, "P.throughput", "bits_out"),
        (&tcp, "P.local.service_demand", "bits_out"),
        (&tcp, "P.local.transaction_demand", "busy"),
        (&tcp, "P.datagrams", "packets_out"),
        (&tcp, "P.jitter", "udp-stream"),
        (&tcp, "P.local.loss", "retransmits"),
        (&tcp, "P.retransmits", "`local`"),
        (&udp, "P.local.retransmits", "loss"),
        (&udp, "P.handshake_p50", "latency"),
        (&udp, "P.remote.connections", "UDP server"),
        (&flood, "P.transactions", "nobody answers"),
        (&flood, "P.latency_p99", "nobody answers"),
    ] {
        let error = check(load, &figure.parse().unwrap()).expect_err(figure).to_string();
        assert!(error.contains(word), "{figure}: '{error}' lacks '{word}'");
    }
    for (load, figure) in [
        (&tcp, "P.connections"),
        (&tcp, "P.remote.concurrent"),
        (&tcp, "P.handshake_p99"),
        (&requests, "P.first_byte_mean"),
        (&udp, "P.local.loss"),
        (&udp, "P.latency_p50"),
        (&flood, "P.remote.packets_in"),
        (&tcp, "P.local.cpu"),
    ] {
        check(load, &figure.parse().unwrap()).unwrap_or_else(|error| panic!("{figure}: {error}"));
    }
    let error = check(&tcp_stream("forward", 1), &"P.connections".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("only packets"), "{error}");
}

#[test]
fn which_loads_of_suites_open_connections() {
    let of_suite = |name: &str, id: &str| is_by_connection(&Suite::load(name).unwrap().scenario(id).unwrap().plan());
    assert!(of_suite("balancer", "cps-balancer-1"));
    assert!(!of_suite("layers", "A"));
}

const FRAMES: &str = "protocol = \"udp\", frame = 512";

#[test]
fn frames_of_a_size_are_one_stream_of_that_size() {
    let scenario = raw("protocol = \"udp\", frame = 1518, connections_per_second = 1000");
    let [client, server] = ends(&scenario, &[0], &[[2; 6]]);
    let (Service::UdpClient(client), Service::UdpServer(server)) = (client.service, server.service) else {
        panic!("datagrams")
    };
    assert_eq!((client.request.len(), client.client.ports), (1472, 49_184..=49_184));
    assert!(client.client.flood.is_some_and(|flood| flood.stamped) && server.one_way);
}

#[test]
fn a_benchmark_is_by_its_standard_unless_told() {
    let plan = |more: &str| {
        let packets = raw(&format!("{FRAMES}, benchmark = {{ {more} }}")).traffic.packets.unwrap();
        packets.benchmark.unwrap().in_windows(Duration::from_secs(60))
    };
    let rfc2544 = plan("standard = \"rfc2544\"");
    assert_eq!((rfc2544.tests.len(), rfc2544.latency_trials, rfc2544.bursts), (5, 20, 50));
    assert_eq!(rfc2544.deviations(), Vec::<String>::new());
    let goal = rfc2544.goals[0];
    assert_eq!((goal.loss_ratio, goal.exceed_ratio, goal.final_duration, goal.duration_sum), (0.0, 0.0, 60.0, 60.0));
    let mlrsearch = plan("standard = \"mlrsearch\", tests = [\"latency\"], latency_trials = 3");
    assert_eq!(mlrsearch.tests.len(), 2, "throughput always is");
    assert_eq!(mlrsearch.goals.iter().map(|goal| goal.loss_ratio).collect::<Vec<_>>(), [0.0, 0.005]);
    let own =
        plan("standard = \"mlrsearch\", goals = [{ loss = \"1%\", exceed = \"20%\", trials = 3, width = \"2%\" }]");
    assert_eq!((own.goals[0].duration_sum, own.goals[0].width), (180.0, 0.02));
}

#[test]
fn benchmarks_that_cannot_be_made_are_refused() {
    let with = |more: &str| format!("{FRAMES}, benchmark = {{ standard = \"rfc2544\"{more} }}");
    for (load, words) in [
        ("protocol = \"udp\", benchmark = { standard = \"rfc2544\" }".to_owned(), &["without a frame size"][..]),
        (with(", bursts = 0"), &["bursts = 0", "1 to 1000"]),
        (with(", tests = [\"latency\"], bursts = 5"), &["'bursts' without", "back-to-back"]),
        (format!("{}, close = \"reset\"", with("")), &["'close'"]),
        (with(", burst = \"1ms\""), &["burst", "100ms to 10m"]),
        (with(", goals = []"), &["0 goals"]),
        (with(", goals = [{ loss = \"100%\" }]"), &["loss", "less than 100 %"]),
        (with(", goals = [{ width = \"0%\" }]"), &["width"]),
        (with(", tests = [\"jitter\"]"), &["unknown variant `jitter`"]),
        (format!("{}, connections_per_second = 5", with("")), &["a rate of its own"]),
        (format!("{}, hold = 5", with("")), &["'hold'", "one way"]),
        (format!("{}, workers = 2", with("")), &["'workers'", "one worker"]),
        ("protocol = \"udp\", frame = 63, connections_per_second = 5".to_owned(), &["63 bytes", "64 to 9018"]),
        ("protocol = \"udp\", frame = 1519, connections_per_second = 5".to_owned(), &["1519 bytes", "at most 1518"]),
        ("protocol = \"tcp\", frame = 64, connections_per_second = 5".to_owned(), &["another protocol than UDP"]),
    ] {
        refused("raw", &load, words);
    }
    let six = "protocol = \"udp\", frame = 64, connections_per_second = 5";
    assert!(parse("raw", six).is_ok(), "of IPv6 it would be 78 bytes");
}
