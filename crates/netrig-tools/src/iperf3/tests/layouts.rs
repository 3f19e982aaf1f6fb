//! What is printed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use jiff::Zoned;
use rig_load::worker::embedded::streams::DatagramCounts;
use rig_sys::socket::{TcpInfo, sctp};

use super::super::console::{Console, timestamp};
use super::super::figures::{Reading, StreamFigures, Summary};
use super::super::json::Json;
use super::super::options::{Parsed, parse};
use super::super::report::Report;
use super::super::settings::{Flow, Protocol, Role, Settings, TestSettings};
use super::super::text::{Layout, StreamInterval};
use super::super::units::Format;
use super::super::wire::{Results, ServerOutput, StreamResult};

const SECOND_NS: u64 = 1_000_000_000;

fn settings(line: &str) -> Settings {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match parse(&words) {
        Ok(Parsed::Run(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

fn reading(test: &TestSettings, sends: bool, second: u64) -> Reading {
    let bytes = second * 1_250_000_000 / u64::from(test.parallel);
    let datagrams = bytes / 1448;
    let tcp = TcpInfo {
        total_retransmits: 3 * second as u32,
        congestion_window: 900,
        send_mss: 1448,
        rtt_us: 120,
        rtt_variance_us: 30,
        path_mtu: 1500,
        send_window: 3 << 20,
        reordering_events: 1,
        ..TcpInfo::default()
    };
    let association = sctp::Status {
        send_window: 3 << 20,
        unacknowledged: 0,
        congestion_window: 900 * 1448,
        rtt_ticks: 12,
        path_mtu: 1500,
    };
    let received = DatagramCounts { highest: datagrams, lost: 12 * second, out_of_order: second, jitter_s: 31e-6 };
    match (test.protocol, sends) {
        (Protocol::Tcp, true) => Reading { bytes, sender: Some(tcp.into()), ..Reading::default() },
        (Protocol::Sctp, true) => Reading { bytes, sender: Some(association.into()), ..Reading::default() },
        (Protocol::Tcp | Protocol::Sctp, false) => Reading { bytes, ..Reading::default() },
        (Protocol::Udp, true) => Reading { bytes, datagrams_sent: datagrams, ..Reading::default() },
        (Protocol::Udp, false) => Reading { bytes, datagrams: received, ..Reading::default() },
    }
}

/// Intervals of two seconds, the first of which is omitted where the test omits any, and the summary.
fn figures(test: &TestSettings, role: Role) -> (Vec<Vec<StreamInterval>>, Summary) {
    let (sends, receives) = test.shape(role == Role::Client);
    let first = if role == Role::Client { (true, sends, receives) } else { (false, receives, sends) };
    let ways = (0..first.1).map(|_| first.0).chain((0..first.2).map(|_| !first.0));
    let mut streams: Vec<_> = ways.enumerate().map(|(index, sends)| StreamFigures::new(index, sends, 0)).collect();
    let omitting = test.omit > 0;
    let mut intervals = Vec::new();
    for second in 1..=3_u64 {
        let now_ns = second * SECOND_NS;
        let omitted = omitting && second == 1;
        let interval = streams.iter_mut().map(|stream| {
            let interval = stream.interval(reading(test, stream.sends, second), now_ns, omitted);
            StreamInterval { label: stream.label, sends: stream.sends, interval }
        });
        intervals.push(interval.collect());
        if omitted {
            streams.iter_mut().for_each(|stream| stream.begin_again(reading(test, stream.sends, second), now_ns));
        }
    }
    // The peer has counted the same.
    let of_peer = streams.iter().map(|stream| {
        let mut mirrored = StreamFigures::new(0, !stream.sends, if omitting { SECOND_NS } else { 0 });
        if omitting {
            mirrored.begin_again(reading(test, !stream.sends, 1), SECOND_NS);
        }
        mirrored.interval(reading(test, !stream.sends, 3), 3 * SECOND_NS, false);
        StreamResult { id: stream.id, ..mirrored.result() }
    });
    let has_retransmits =
        if test.shape(role != Role::Client).0 == 0 { -1 } else { i64::from(test.protocol == Protocol::Tcp) };
    let peer = Results {
        cpu: [30.5, 1.5, 29.0],
        sender_has_retransmits: has_retransmits,
        congestion: Some("cubic".into()),
        streams: of_peer.collect(),
        server_output: None,
    };
    let peer = (role == Role::Client).then_some(&peer);
    let congestion = (test.protocol == Protocol::Tcp).then_some("bbr");
    (intervals, Summary::of(test, &streams, peer, [12.3, 1.2, 11.1], congestion))
}

fn text(line: &str, test: Option<&TestSettings>) -> String {
    let settings = settings(line);
    let mut test = test.unwrap_or(&settings.test).clone();
    test.length = if test.length == 0 { 1448 } else { test.length };
    let Settings { role, output, .. } = settings;
    let layout = Layout { test: &test, role, format: output.format, verbose: output.verbose };
    let (intervals, summary) = figures(&test, role);
    let mut lines = vec![layout.test_start()];
    for (index, interval) in intervals.iter().enumerate() {
        lines.extend(layout.interval(interval, index == 0));
    }
    lines.extend(layout.summary(&summary));
    lines.concat()
}

fn server(line: &str, flow: Flow, protocol: Protocol, parallel: u32) -> String {
    let test = TestSettings { flow, protocol, parallel, length: 1448, ..TestSettings::default() };
    text(line, Some(&test))
}

#[test]
fn the_originals_layout() {
    insta::assert_snapshot!("tcp", text("-c h -V -O 1", None));
    insta::assert_snapshot!("tcp-reverse-parallel", text("-c h -R -P 2 -f m", None));
    insta::assert_snapshot!("tcp-bidir", text("-c h --bidir -V", None));
    insta::assert_snapshot!("udp", text("-c h -u", None));
    insta::assert_snapshot!("udp-reverse-parallel", text("-c h -u -R -P 2 -O 1", None));
    insta::assert_snapshot!("udp-bidir", text("-c h -u --bidir", None));
    insta::assert_snapshot!("sctp-parallel", text("-c h --sctp -P 2", None));
    insta::assert_snapshot!("server-tcp", server("-s -V", Flow::Forward, Protocol::Tcp, 1));
    insta::assert_snapshot!("server-udp-bidir", server("-s -V", Flow::Both, Protocol::Udp, 2));
}

/// What programs look for in the text: Kubernetes' perf-tests (nptest.go) and InfraBuilder's knb.
#[test]
fn what_programs_read_stands_there() {
    let tcp = text("-c h -V -N -i 30 -t 10 -f m -w 512M -Z -P 8 -M 1400", None);
    let sum = tcp.lines().find(|line| line.starts_with("[SUM]") && line.ends_with("receiver")).unwrap();
    let words: Vec<&str> = sum.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Mbits/sec").unwrap();
    assert!(words[at - 1].parse::<u64>().is_ok(), "a whole number: {sum}");
    assert_eq!(words[at + 1], "receiver");
    let cpu = tcp.lines().find(|line| line.starts_with("CPU Utilization: ")).unwrap();
    assert_eq!(cpu, "CPU Utilization: local/sender 12.3% (1.2%u/11.1%s), remote/receiver 30.5% (1.5%u/29.0%s)");
    let udp = text("-c h -u -b 0 -f m", None);
    let receiver: Vec<&str> = udp.lines().last().unwrap().split_whitespace().collect();
    let at = receiver.iter().position(|word| *word == "Mbits/sec").unwrap();
    assert!(receiver[at - 1].parse::<f64>().is_ok() && receiver[at + 2] == "ms", "{receiver:?}");
    assert_eq!(receiver.last(), Some(&"receiver"));
}

#[test]
fn lost_datagrams_of_an_old_peer_are_unknown() {
    let test = TestSettings { protocol: Protocol::Udp, omit: 1, ..TestSettings::default() };
    let (_, mut summary) = figures(&test, Role::Client);
    summary.streams[0].omitted_errors = None;
    let layout = Layout { test: &test, role: Role::Client, format: Format::Adaptive, verbose: false };
    assert!(layout.summary(&summary).concat().contains(" ms  Unknown/"));
}

/// Objects of a JSON text by their paths, with the names and kinds of their plain members.
fn members(json: &Json, path: &str, found: &mut BTreeMap<String, Vec<String>>) {
    match json {
        Json::Object(list) => {
            for (name, value) in list {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let kind = match value {
                    Json::Bool(_) => "?",
                    Json::Text(_) => "$",
                    Json::Number(_) | Json::Integer(_) => "",
                    Json::Null | Json::Array(_) | Json::Object(_) => {
                        members(value, &below, found);
                        continue;
                    }
                };
                let known = found.entry(path.to_owned()).or_default();
                let member = format!("{name}{kind}");
                if !known.contains(&member) {
                    known.push(member);
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| members(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

fn whole_report(line: &str, flow: Flow, protocol: Protocol) -> Json {
    let settings = settings(line);
    let test = TestSettings { flow, protocol, length: 1448, ..TestSettings::default() };
    let console = Console::open(&settings.output, settings.role, None).unwrap();
    let mut report = Report::new(&settings, console, false);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    report.connected(&test, address(5201), &[b'a'; 37], 1448);
    report.buffers(0, 16_384, 131_072);
    report.stream(5, address(40_000), address(5201));
    report.test_start(&test);
    let (intervals, summary) = figures(&test, settings.role);
    intervals.iter().for_each(|streams| report.interval(&test, streams));
    report.summary(&test, &summary);
    match report.for_the_client() {
        ServerOutput::Json(json) => json,
        ServerOutput::Text(text) => panic!("{text}"),
    }
}

#[test]
fn json_has_the_originals_members() {
    let recorded = include_str!("members.txt");
    for (name, json) in [
        ("client tcp bidir", whole_report("-c h -J", Flow::Both, Protocol::Tcp)),
        ("client udp reverse", whole_report("-c h -J", Flow::Reverse, Protocol::Udp)),
        ("server udp forward", whole_report("-s -J", Flow::Forward, Protocol::Udp)),
    ] {
        let part = recorded.split("\n= ").find_map(|part| part.strip_prefix(name)).unwrap();
        let mut found = BTreeMap::new();
        members(&json, "", &mut found);
        let lines = found.iter_mut().map(|(path, names)| {
            names.sort();
            format!("{path}: {}", names.join(" "))
        });
        let (mut own, mut theirs): (Vec<_>, Vec<_>) =
            (lines.collect(), part.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect());
        own.sort();
        theirs.sort();
        assert_eq!(own, theirs, "{name}");
    }
}

#[test]
fn lines_begin_with_the_time_that_was_asked_for() {
    let now: Zoned = "2026-11-29T12:05:09+00:00[UTC]".parse().unwrap();
    assert_eq!(timestamp("%c ", &now).unwrap(), "Sun Nov 29 12:05:09 2026 ");
    assert_eq!(timestamp("%Y-%m-%dT%H:%M:%S ", &now).unwrap(), "2026-11-29T12:05:09 ");
    assert_eq!(timestamp("%X|", &now).unwrap(), "12:05:09|");
    assert!(timestamp("%", &now).is_err());
}

#[test]
fn what_a_peer_says_of_retransmits_over_sctp_is_not_shown() {
    let test = TestSettings { protocol: Protocol::Sctp, flow: Flow::Reverse, length: 1448, ..TestSettings::default() };
    let streams = [StreamFigures::new(0, false, 0)];
    let said = StreamResult { id: streams[0].id, retransmits: Some(u64::MAX), ..StreamResult::default() };
    let peer = Results { streams: vec![said], ..Results::default() };
    assert_eq!(Summary::of(&test, &streams, Some(&peer), [0.0; 3], None).streams[0].retransmits, 0);
    let tcp = TestSettings { protocol: Protocol::Tcp, ..test };
    assert_eq!(Summary::of(&tcp, &streams, Some(&peer), [0.0; 3], None).streams[0].retransmits, u64::MAX);
}
