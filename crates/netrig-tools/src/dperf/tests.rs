//! The language: every keyword, good and bad; files as a whole; and the study's own.
#![allow(clippy::unwrap_used, reason = "a test that panics is a test that fails")]

use std::time::Duration;

use proptest::prelude::*;
use rig_packet::fleet::check_plan;
use rig_packet::plan::{AnswerScope, BURST, Driver, GatewayPlan};
use rig_packet::{Client, CloseMethod, MessageEnd, Service, TcpClient, TcpServer, TupleOrder, UdpClient};

use super::keywords::{KEYWORDS, KeywordOrigin, manual};
use super::language::{LineError, read};
use super::resolve::{LoadPlan, resolve};
use super::settings::{Device, LogLevel};
use super::statistics::MessageFormat;

fn plan(text: &str) -> Result<LoadPlan, LineError> {
    let (settings, mut warnings) = read(text)?;
    resolve(&settings, &mut warnings)
}

#[track_caller]
fn good(text: &str) -> LoadPlan {
    plan(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Refused at a line, 0 for none, with words.
#[track_caller]
fn bad(text: &str, line: usize, words: &[&str]) {
    let error = plan(text).map(|_| ()).expect_err(text);
    assert_eq!(error.line.unwrap_or(0), line, "{error}\n{text}");
    for word in words {
        assert!(error.message.contains(word), "'{word}' is not in: {error}\n{text}");
    }
}

const CLIENT: &str =
    "mode client\ncpu 2 3\nport eth1 10.0.0.2 10.0.0.1\nclient 10.1.0.1 100\nserver 10.2.0.1 2\ncps 1k\n";
const SERVER: &str = "mode server\ncpu 4\nport eth2 10.0.0.3 10.0.0.1\nclient 10.1.0.1 100\nserver 10.2.0.1 2\n";

fn client(more: &str) -> String {
    format!("{CLIENT}{more}\n")
}

fn server(more: &str) -> String {
    format!("{SERVER}{more}\n")
}

fn tcp(text: &str) -> TcpClient {
    match good(text).packets.service {
        Service::TcpClient(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn udp(text: &str) -> UdpClient {
    match good(text).packets.service {
        Service::UdpClient(udp) => udp,
        other => panic!("{other:?}"),
    }
}

fn load(text: &str) -> Client {
    match good(text).packets.service {
        Service::TcpClient(tcp) => tcp.client,
        Service::UdpClient(udp) => udp.client,
        other => panic!("{other:?}"),
    }
}

fn serving(text: &str) -> TcpServer {
    match good(text).packets.service {
        Service::TcpServer(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_a_short_file_means() {
    let plan = good(&client(""));
    let port = &plan.packets.ports[0];
    assert_eq!(plan.packets.ports.len(), 1);
    assert_eq!((port.interface.as_str(), port.driver, port.mtu, port.burst), ("eth1", Driver::Auto, 1500, BURST));
    assert_eq!(port.gateway, GatewayPlan::Address("10.0.0.1".parse().unwrap()));
    assert_eq!(
        port.threads.iter().map(|place| (place.cpu, place.queue)).collect::<Vec<_>>(),
        [(Some(2), 0), (Some(3), 1)]
    );
    assert_eq!((port.local[0].count, port.remote[0].count), (100, 2));
    assert_eq!((plan.packets.course.wait, plan.packets.course.duration), (seconds(3), seconds(90)));
    let tcp = tcp(&client(""));
    assert_eq!((tcp.client.load.rate, tcp.client.load.ramp, tcp.client.load.hold), (1000.0, seconds(30), None));
    assert_eq!((tcp.client.ports, tcp.client.server_ports), (1..=65_535, 80..=80));
    assert_eq!(
        (tcp.mss, tcp.request.len(), tcp.response, tcp.close),
        (1460, 85, MessageEnd::Segment, CloseMethod::Fin)
    );
    assert!(tcp.resets && plan.layout.messages == MessageFormat::Unread && plan.layout.rtt && !plan.quiet);
    let served = serving(&server(""));
    assert_eq!((served.response.len(), served.close, served.idle, served.window), (99, true, seconds(8), 4));
    assert_eq!(good(&server("")).packets.course.duration, seconds(60));
}

#[test]
fn every_keyword_is_honoured() {
    assert_eq!(good(&client("duration 1.5d")).packets.course.duration, seconds(129_600 + 30));
    for (text, expected) in [("2h", 7200), ("3.5m", 210), ("100s", 100), ("100", 100)] {
        assert_eq!(good(&server(&format!("duration {text}"))).packets.course.duration, seconds(expected));
    }
    let timed = good(&client("slow_start 0\nwait 0\nduration 5"));
    assert_eq!((timed.packets.course.duration, timed.packets.course.wait), (seconds(5), Duration::ZERO));
    assert_eq!(load(&client("listen 8080 3")).server_ports, 8080..=8082);
    assert_eq!(load(&client("client_port_range 1024")).ports, 1024..=65_535);
    assert_eq!(load(&client("lport_range 1024 2047")).ports, 1024..=2047);
    assert_eq!(load(&client("lport_range 60526-65535")).ports, 60_526..=65_535);
    assert_eq!(load(&format!("\u{feff}{}", client("lport_range 7"))).ports, 7..=65_535);
    assert_eq!(load(&client("launch_num 16")).load.launch, Some(16));
    assert_eq!(load(&client("client_hop")).walk, TupleOrder::Hop);
    let held = load(&client("cc 2.5k\nkeepalive 20ms 7"));
    let repeat = held.repeat.unwrap();
    assert_eq!((held.load.hold, repeat.interval, repeat.requests), (Some(2500), Duration::from_millis(20), Some(7)));
    let only_held = load(&CLIENT.replace("cps 1k", "cc 1m\nkeepalive 10us"));
    assert_eq!((only_held.load.rate, only_held.load.hold), (1000.0, Some(1_000_000)));
    assert_eq!(load(&client("keepalive 1s\nrps 250k")).repeat.unwrap().rate, Some(250e3));
    let paced = good(&client("keepalive 1s\nrps 250k"));
    assert!(check_plan(&paced.packets).is_ok(), "the rate is in place of the interval");
    let piped = udp(&client("protocol udp\nkeepalive 0s\npipeline 4\npayload_size 1"));
    assert_eq!((piped.client.repeat.unwrap().pipeline, piped.request.len(), piped.timeout), (4, 1, seconds(2)));
    let flood = udp(&client("protocol udp\nflood\nchange_dip 10.9.0.1 2 100\nchange_dip 10.10.0.1 1 5"));
    assert_eq!(flood.client.flood.unwrap().destinations.iter().map(|stride| stride.count).sum::<u32>(), 105);
    assert_eq!(load(&CLIENT.replace("cps 1k", "protocol udp\nflood\npps 2m")).load.rate, 2e6);
    let paced = load(&client("protocol udp\nkeepalive 0s\npipeline 10\npps 1m"));
    assert_eq!(paced.repeat.unwrap().rate, Some(100e3));
    let http =
        tcp(&client("protocol http\nhttp_host www.example.net\nhttp_path /a\nhttp_method POST\npayload_size 300"));
    let request = String::from_utf8(http.request.bytes().to_vec()).unwrap();
    assert!(request.starts_with("POST /a HTTP/1.1\r\n") && request.contains("Host: www.example.net\r\n"), "{request}");
    assert_eq!((request.len(), http.response), (300, MessageEnd::Http));
    assert_eq!(serving(&server("protocol http")).request, MessageEnd::Http);
    assert_eq!(tcp(&client("payload_size 1")).request.len(), 1);
    let random = tcp(&client("payload_size 64\npayload_random")).request.bytes();
    assert!(random.iter().all(u8::is_ascii_lowercase) && random.iter().any(|&letter| letter != b'a'));
    assert_eq!(tcp(&client("packet_size 64")).request.len(), 10);
    assert_eq!(udp(&client("protocol udp\npacket_size 64")).request.len(), 22);
    assert_eq!(serving(&server("payload_size 1m\nsend_window 16")).response.len(), 1_000_000);
    assert_eq!(serving(&server("payload_size 1m\nsend_window 16")).window, 16);
    let sizes = good(&SERVER.replace("cpu 4", "cpu 4 5\npayload_size 100 200"));
    let each: Vec<_> =
        sizes.packets.ports[0].threads.iter().map(|place| place.response.clone().unwrap().len()).collect();
    assert_eq!(each, [100, 200]);
    assert_eq!(tcp(&client("mss 536")).mss, 536);
    assert_eq!((tcp(&client("jumbo 9000")).mss, good(&client("jumbo")).packets.ports[0].mtu), (8960, 9710));
    assert_eq!(good(&client("tx_burst 1024")).packets.ports[0].burst, 1024);
    assert_eq!(tcp(&client("fast_close")).close, CloseMethod::Reset);
    assert_eq!(tcp(&client("keepalive 60s\ndisable_ack")).delayed_ack, seconds(60));
    assert!(tcp(&client("keepalive 60s")).delayed_ack < seconds(2));
    assert_eq!(tcp(&client("retransmit_timeout 5")).times.retransmit, seconds(5));
    assert_eq!(serving(&server("retransmit_timeout 5\nkeepalive 10s")).idle, seconds(30));
    assert!(!tcp(&client("tcp_rst 0")).resets && tcp(&client("tcp_rst 1")).resets);
    assert_eq!(good(&client("vlan 4094")).packets.ports[0].vlan, Some(4094));
    assert_eq!(good(&client("tos 0x1f")).packets.ports[0].tos, 31);
    assert_eq!(good(&server("neigh_ignore")).packets.ports[0].answer, AnswerScope::Port);
    let tunnel = "vxlan 4711 02:00:00:00:00:01 02:00:00:00:00:02 172.16.0.1 2 172.16.1.1 1";
    let vxlan = good(&client(tunnel));
    let plan = vxlan.packets.ports[0].vxlan.clone().unwrap();
    assert_eq!((plan.vni, plan.local_count, plan.remote_count, plan.inner_source[5]), (4711, 2, 1, 1));
    assert_eq!(tcp(&client(tunnel)).mss, 1410);
    for (name, driver) in [("xdp", Driver::Xdp), ("xdp-generic", Driver::XdpGeneric), ("packet", Driver::Packet)] {
        assert_eq!(good(&client(&format!("driver {name}"))).packets.ports[0].driver, driver);
    }
    let shown = good(&client("quiet\ndaemon\nclear_screen\nlog_level error"));
    assert!(shown.quiet && shown.daemon && shown.clear_screen && shown.log_level == LogLevel::Error);
    good(&client("rss"));
    good(&client("flow_isolate"));
    let mac = CLIENT.replace("10.0.0.1\n", "10.0.0.1 02:00:00:00:00:09\n");
    assert_eq!(good(&mac).packets.ports[0].gateway, GatewayPlan::Mac([2, 0, 0, 0, 0, 9]));
    let singles = good(&CLIENT.replace("10.1.0.1 100", "10.1.0.1 100 10.1.9.9 10.1.9.11"));
    assert_eq!(singles.packets.ports[0].local.len(), 3);
    let v6 = "cpu 1\nport p fd00::2 fd00::1\nclient fd01::1 9\nserver fd02::1 1\ncps 1\n";
    assert_eq!(tcp(v6).mss, 1440);
}

#[test]
fn a_payload_comes_from_a_file_whatever_its_bytes_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("payload");
    std::fs::write(&path, b"a\0b\xff").unwrap();
    let keyword = format!("payload_file {}", path.display());
    assert_eq!(&tcp(&client(&keyword)).request.bytes()[..], b"a\0b\xff");
    assert_eq!(good(&client(&keyword)).layout.messages, MessageFormat::Filler);
    assert_eq!(good(&client("protocol http")).layout.messages, MessageFormat::Http);
    assert_eq!(serving(&server(&keyword)).response.len(), 4);
    bad(&client(&format!("{keyword}\npayload_size 4")), 7, &["payload_file", "remove one"]);
    bad(&client(&format!("{keyword}.not")), 7, &["payload_file", "payload.not"]);
    std::fs::write(&path, b"").unwrap();
    bad(&client(&keyword), 7, &["empty"]);
}

#[test]
fn bad_arguments_are_refused_where_they_are() {
    for line in [
        "mode",
        "mode other",
        "mode client server",
        "cpu",
        "cpu a",
        "cpu 3-1",
        "cpu 1 1",
        "cpu 99999",
        "port eth1 10.0.0.2",
        "port eth1 10.0.0.2 10.0.0.2",
        "port eth1 10.0.0.2 fd00::1",
        "port eth1 10.0.0.2 10.0.0.1 02:00",
        "port an-interface-s-long-name 10.0.0.2 10.0.0.1",
        "port eth1 0.0.0.0 10.0.0.1",
        "client 10.1.0.1",
        "client 10.1.0.1 0",
        "client 10.1.0.1 -1",
        "client 255.255.255.0 1000",
        "client 224.0.0.1 1",
        "client x 1",
        "server 10.0.0.1 1 10.0.0.2",
        "listen 80",
        "listen 0 1",
        "listen 65000 1000",
        "client_port_range 0",
        "client_port_range 9 8",
        "client_port_range 1 65536",
        "duration",
        "duration 0",
        "duration -1",
        "duration 1w",
        "duration 1e3",
        "duration nan",
        "slow_start 601",
        "slow_start 1.5",
        "wait x",
        "cps 0",
        "cps -1",
        "cps 1t",
        "cps 1kk",
        "cps inf",
        "cps 1 2",
        "cc 1.5",
        "cc 0",
        "keepalive",
        "keepalive 1",
        "keepalive 1h",
        "keepalive -1s",
        "keepalive 1ms 32768",
        "keepalive 99999999999999999999s",
        "pipeline 101",
        "flood 1",
        "change_dip 10.0.0.1 0 1",
        "change_dip 10.0.0.1 1 0",
        "change_dip 10.0.0.1 1 65537",
        "change_dip 255.255.255.0 255 255",
        "launch_num 0",
        "client_hop 1",
        "protocol sctp",
        "payload_size",
        "payload_size 0",
        "payload_size 2000m",
        "packet_size x",
        "payload_random 1",
        "payload_file",
        "http_path a",
        "http_method PUT",
        "send_window 1",
        "send_window 17",
        "mss 87",
        "mss 9671",
        "jumbo 1500",
        "jumbo 9711",
        "tx_burst 0",
        "tx_burst 1025",
        "fast_close 1",
        "disable_ack 1",
        "retransmit_timeout 1",
        "retransmit_timeout 301",
        "tcp_rst 2",
        "vlan 0",
        "vlan 4095",
        "tos 256",
        "tos 0x",
        "tos 0x1ff",
        "tos -1",
        "neigh_ignore 1",
        "flow_isolate 1",
        "log_level loud",
        "daemon 1",
        "quiet 1",
        "clear_screen 1",
        "rps x",
        "pps 0",
        "driver dpdk",
        "vxlan 1 02:00:00:00:00:01 02:00:00:00:00:02 172.16.0.1 1 172.16.1.1",
        "vxlan 0 02:00:00:00:00:01 02:00:00:00:00:02 172.16.0.1 1 172.16.1.1 1",
        "vxlan 16777216 02:00:00:00:00:01 02:00:00:00:00:02 172.16.0.1 1 172.16.1.1 1",
        "vxlan 1 02:00:00:00:00:01 02:00:00:00:00:02 fd00::1 1 172.16.1.1 1",
    ] {
        let error = read(&format!("# a file\n\n{line}\n")).map(|_| ()).expect_err(line);
        let name = line.split(' ').next().unwrap();
        assert_eq!(error.line, Some(3), "{line}: {error}");
        assert!(error.message.starts_with(&format!("{name}: ")), "{line}: {error}");
        assert!(error.message.contains(&format!("write `{name}")), "{line} does not say what it takes: {error}");
    }
}

#[test]
fn what_is_refused_says_why() {
    bad("bond 1", 1, &["no keyword 'bond'", "-m"]);
    bad("durations 1m", 1, &["no keyword 'durations': did you mean 'duration'?"]);
    bad("port bond1:0(0000:81:10.0,0000:81:10.1) 10.0.0.2 10.0.0.1", 1, &["port", "ip link add"]);
    bad("lport_range 9-2", 1, &["9 is above 2"]);
    bad("lport_range 2-", 1, &["lport_range"]);
    bad("lport_range 2-3 4", 1, &["lport_range"]);
    bad("simd512", 1, &["simd512", "remove the line"]);
    bad("retransmit_timeout 138", 1, &["138 s", "doubled"]);
    let longest = good(&client("retransmit_timeout 137\ncps 10").replace("cps 1k\n", ""));
    assert!(check_plan(&longest.packets).is_ok(), "what the language takes the engine takes");
    bad("cps 1\n\ncps 2", 3, &["'cps'", "line 1"]);
    bad("lport_range 1 2\nclient_port_range 1 2", 2, &["line 1"]);
    bad("client_port_range 1 2\nlport_range 1 2", 2, &["line 1"]);
    bad("port eth0 fe80::2%eth0 fe80::1", 1, &["packets carry no zone", "write fe80::2 without %eth0"]);
    bad("mode \u{e4}", 1, &["'ä'"]);
    bad("mode \u{1b}", 1, &["replace"]);
    bad(&format!("cpu {}", "0 ".repeat(32)), 1, &["32 words"]);
    bad(&format!("# {}\nhttp_host {}", "a".repeat(3000), "a".repeat(3000)), 2, &["2047"]);
}

#[test]
fn what_does_not_go_together_is_refused_where_it_is_said() {
    bad("", 0, &["no port"]);
    bad("port a 10.0.0.2 10.0.0.1\nserver 10.1.0.1 1\nclient 10.2.0.1 1", 0, &["no CPU"]);
    bad(&CLIENT.replace("cps 1k", ""), 0, &["no rate", "cps"]);
    bad(&client("cc 10"), 7, &["cc", "keepalive"]);
    bad(&client("rps 10"), 7, &["rps", "keepalive"]);
    bad(&client("pps 10"), 7, &["pps", "cps"]);
    bad(&client("port eth1 10.0.9.2 10.0.9.1\nclient 10.3.0.1 1\nserver 10.4.0.1 1"), 7, &["eth1", "line 3"]);
    bad(&client("port eth9 10.0.0.2 10.0.9.1\nclient 10.3.0.1 1\nserver 10.4.0.1 1"), 7, &["10.0.0.2", "line 3"]);
    bad(&client("port eth9 10.0.9.2 10.0.9.1"), 5, &["1 `server` lines for 2 ports"]);
    bad(&client("client 10.3.0.1 1"), 7, &["2 `client` lines for 1 port"]);
    let two = client("port eth9 10.0.9.2 10.0.9.1\nclient 10.3.0.1 1\nserver 10.4.0.1 1");
    bad(&two.replace("cpu 2 3", "cpu 2 3 4"), 2, &["3 CPUs", "2 ports"]);
    bad(&server("client 10.1.0.50 10"), 6, &["10 addresses from 10.1.0.50: line 4 has some of them"]);
    bad(&server("client 10.1.0.50 1"), 6, &["10.1.0.50: line 4 has it too"]);
    bad(&client("").replace("server 10.2.0.1", "server 10.1.0.100"), 5, &["line 4"]);
    bad(&client("").replace("server 10.2.0.1 2", "server fd00::1 2"), 4, &["family"]);
    bad(&client("").replace("10.0.0.2 10.0.0.1", "fd00::2 fd00::1"), 3, &["family"]);
    bad(&client("").replace("10.0.0.2 ", "10.2.0.1 "), 3, &["10.2.0.1", "line 5"]);
    bad(&client("").replace("10.0.0.1", "10.1.0.7"), 3, &["gateway 10.1.0.7", "line 4"]);
    bad(&client("send_window 4"), 7, &["server's"]);
    bad(&server("cps 1"), 6, &["client's"]);
    bad(&server("keepalive 1s 5"), 6, &["keepalive"]);
    bad(&client("protocol udp\nfast_close"), 8, &["TCP"]);
    bad(&client("http_host a"), 7, &["protocol http"]);
    bad(&client("protocol http\nhttp_path /a\npayload_size 100"), 9, &["http_path"]);
    bad(&client("protocol http\npayload_size 84"), 8, &["at least 85"]);
    bad(&client("change_dip 10.9.0.1 1 1"), 7, &["flood"]);
    bad(&client("flood\nchange_dip fd00::1 1 1"), 8, &["family"]);
    bad(&client("flood\nkeepalive 0s"), 7, &["flood"]);
    bad(&client("pipeline 2"), 7, &["protocol udp"]);
    bad(&client("protocol udp\npipeline 2"), 8, &["keepalive"]);
    bad(&client("protocol udp\npipeline 2\nkeepalive 1ms"), 8, &["keepalive 0s"]);
    bad(&client("payload_size 1461"), 7, &["1460"]);
    bad(&client("payload_size 10 20"), 7, &["2 sizes"]);
    bad(&server("payload_size 10 20"), 6, &["2 sizes for 1 thread"]);
    bad(&server("protocol udp\npayload_size 1473"), 7, &["1472", "jumbo"]);
    bad(&client("mss 1461"), 7, &["1460"]);
    bad(&client("packet_size 54"), 7, &["headers"]);
    bad(&client("packet_size 64\npayload_size 64"), 7, &["remove one"]);
    bad(&client("rss\nflow_isolate"), 8, &["rss"]);
    let tunnel = "vxlan 1 02:00:00:00:00:01 02:00:00:00:00:02 172.16.0.1 2 172.16.1.1";
    bad(&client(&format!("{tunnel} 1\nvlan 5")), 8, &["vxlan"]);
    bad(&client(&format!("{tunnel} 3")), 7, &["3 remote ends"]);
    bad(&client(&format!("{} 1", tunnel.replace("16.0.1 2", "16.0.1 3"))), 7, &["3 local ends"]);
    bad(&client(&format!("{tunnel} 1\n{tunnel} 1")), 7, &["2 lines for 1 port"]);
}

#[test]
fn sockets_that_do_not_suffice_are_counted_out() {
    let small = "client_port_range 1 10\nkeepalive 1s\ncc 2001";
    bad(&client(small), 4, &["100 clients x 10 ports x 2 servers x 1 ports = 2000", "2001", "`listen`"]);
    good(&client(&small.replace("2001", "2000")));
    bad(&client("client_port_range 1 9"), 4, &["= 1800", "retransmit_timeout 2 s", "2000"]);
    good(&client("client_port_range 1 10"));
}

/// The client and server files of "DPVS v1.9.2 Performance Tests", as they are printed there.
#[test]
fn the_study_s_files_are_read_as_written() {
    let client = "mode            client\ncpu             8-15\nslow_start      60\ntx_burst        128\nlaunch_num      10\n\
                  payload_size    1\nduration        90s\nprotocol        tcp\ncps             1060000\n\
                  port            0000:04:00.0    192.168.0.30 192.168.7.254\nclient          192.168.3.0     50\n\
                  server          192.168.5.1     8\nlisten          80              1\n";
    let server = "mode            server\ncpu             0-7\ntx_burst        128\npayload_size    1\n\
                  duration        100d\nport            0000:04:00.1    192.168.1.30   192.168.7.254\n\
                  client          192.168.0.28    1\nclient          192.168.1.28    1 \n\
                  client          192.168.1.30    1 \nclient          192.168.3.0     200\n\
                  server          192.168.6.100   8\nlisten          80              1\n";
    let plan = good(client);
    assert_eq!(plan.devices, [Device::Pci("0000:04:00.0".into())]);
    assert_eq!(plan.packets.ports[0].threads.len(), 8);
    assert_eq!(plan.packets.course.duration, seconds(150));
    let tcp = tcp(client);
    assert_eq!((tcp.client.load.rate, tcp.client.load.launch, tcp.request.len()), (1.06e6, Some(10), 1));
    assert_eq!(plan.layout.messages, MessageFormat::Filler);
    let plan = good(server);
    assert_eq!(plan.packets.ports[0].remote.iter().map(|range| range.count).sum::<u32>(), 203);
    assert_eq!(plan.packets.course.duration, seconds(8_640_000));
    let held = "cps             3k\ncc              2.9k\nkeepalive       2ms";
    let udp_client = client.replace("cps             1060000", held).replace("tcp\n", "udp\n");
    assert_eq!(udp(&udp_client).client.load.hold, Some(2900));
    let udp_server =
        server.replace("payload_size    1\n", "payload_size    1\nprotocol        udp\nkeepalive       10s\n");
    assert!(matches!(good(&udp_server).packets.service, Service::UdpServer(_)));
    let large = client.replace("cps             1060000", "cps 400\ncc 1000\nkeepalive 1ms");
    assert_eq!(tcp_of(&large.replace("payload_size    1\n", "payload_size    800\n")), (800, Some(1000)));
    assert_eq!(serving(&server.replace("payload_size    1\n", "payload_size 800\nkeepalive 10s\n")).idle, seconds(18));
}

fn tcp_of(text: &str) -> (u64, Option<u32>) {
    let tcp = tcp(text);
    (tcp.request.len(), tcp.client.load.hold)
}

#[test]
fn warnings_name_what_is_done_otherwise() {
    let (_, warnings) = read("lport_range 1 2\nrss l3\npacket_size 64\nquiet\nkni\nsocket_mem 1024,0").unwrap();
    let lines: Vec<_> = warnings.iter().map(|warning| warning.line.unwrap()).collect();
    assert_eq!(lines, [1, 2, 3, 5, 6]);
    let own = server("client 10.0.0.3 1");
    let (settings, mut warnings) = read(&own).unwrap();
    resolve(&settings, &mut warnings).unwrap();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().starts_with("line 3: port: the port's address 10.0.0.3"), "{}", warnings[0]);
}

#[test]
fn the_manual_has_every_keyword() {
    let manual = manual();
    for keyword in KEYWORDS {
        assert!(manual.lines().any(|line| line.split(' ').next() == Some(keyword.name)), "{}", keyword.name);
        assert_eq!(KEYWORDS.iter().filter(|other| other.name == keyword.name).count(), 1);
    }
    let (of_dperf, ours) = manual.split_once("\nNot in dperf:\n").unwrap();
    assert!(KEYWORDS.iter().all(|keyword| keyword.origin == KeywordOrigin::Dperf || ours.contains(keyword.name)));
    assert!(!of_dperf.contains("driver auto"));
}

proptest! {
    #[test]
    fn nothing_a_file_says_is_a_panic(text in "(?s).{0,200}") {
        let _ = plan(&text);
    }

    #[test]
    fn nor_what_nearly_is_a_file(
        lines in prop::collection::vec((0..KEYWORDS.len(), prop::collection::vec("[0-9a-z.:/-]{0,12}|10\\.0\\.0\\.[0-9]|[0-9]{1,6}[km]?|fd00::[0-9]|02:00:00:00:00:0[0-9]", 0..8)), 0..12)
    ) {
        let text: String = lines.iter().map(|(n, words)| format!("{} {}\n", KEYWORDS[*n].name, words.join(" "))).collect();
        let _ = plan(&text);
        let _ = plan(&format!("{CLIENT}{text}"));
        let _ = plan(&format!("{SERVER}{text}"));
    }
}
