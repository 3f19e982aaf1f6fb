//! Every packet of every kind of connection.

use std::time::Duration;

use proptest::prelude::*;
use rig_packet::{CloseMethod, Load, MessageEnd, RequestRepeat, Service, V4, V6};
use rig_wire::ethernet::Ethernet;
use rig_wire::ipv4::Ipv4;
use rig_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use rig_wire::tcp::{self, Options, Tcp};
use rig_wire::{ethernet, protocol};

use super::rig::*;

/// Runs one connection.
fn one<F: Hosts>(tcp: rig_packet::TcpClient, to: rig_packet::TcpServer) -> Rig<F> {
    let mut rig = Rig::new(client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    rig.pass(1000);
    rig.client.wind_down();
    rig.run(2 * MILLISECOND, 1000);
    rig.finish();
    rig.assert_nothing_is_stuck();
    assert_eq!((rig.client.counters().sk_err, rig.server.counters().sk_err), (0, 0));
    rig
}

fn requests(interval: Duration, requests: u16) -> Option<RequestRepeat> {
    Some(RequestRepeat { requests: Some(requests), ..RequestRepeat::every(interval) })
}

/// Runs one connection of several requests.
fn repeated<F: Hosts>(interval: Duration, count: u16) -> Rig<F> {
    let mut tcp = tcp_client();
    tcp.client.repeat = requests(interval, count);
    let mut to = tcp_server();
    to.close = false;
    let mut rig = Rig::new(client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    while rig.client.counters().tcp_rsp < count.into() {
        rig.pass(1000);
    }
    rig.finish();
    rig
}

#[test]
fn a_short_connection_takes_three_packets_each_way() {
    let rig = one::<V4>(tcp_client(), tcp_server());
    assert_eq!(rig.sent_by_client(), ["SYN", "PSH ACK 32", "ACK FIN"]);
    assert_eq!(rig.sent_by_server(), ["SYN ACK", "PSH ACK FIN 43", "ACK"]);
    let (client, server) = (rig.client.counters(), rig.server.counters());
    for (counters, other) in [(client, server), (server, client)] {
        assert_eq!((counters.pkt_rx, counters.pkt_tx, counters.tcp_rx, counters.tcp_tx), (3, 3, 3, 3));
        assert_eq!((counters.syn_rx, counters.syn_tx, counters.fin_rx, counters.fin_tx), (1, 1, 1, 1));
        assert_eq!((counters.sk_open, counters.sk_close, counters.tcp_req, counters.tcp_rsp), (1, 1, 1, 1));
        assert_eq!(counters.bits_rx, other.bits_tx);
        let unusual = counters.fields().filter(|(name, _)| {
            ["dropTx", "otherRx", "badRx", "synRt", "finRt", "ackRt", "pushRt", "tcpDrop", "ackDup", "late"]
                .contains(name)
        });
        assert_eq!(unusual.map(|(_, value)| value).sum::<u64>(), 0);
    }
    assert_eq!(client.bits_tx, 8 * (62 + 54 + 32 + 54));
    let latencies = rig.client.latencies();
    // Each pass comes a microsecond after the last, and an answer in the next.
    for histogram in [&latencies.handshake, &latencies.first_byte, &latencies.transaction] {
        assert_eq!(histogram.count(), 1);
        assert!((900..1100).contains(&histogram.max().unwrap()), "{histogram:?}");
    }
}

#[test]
fn ipv6_takes_the_same_packets() {
    let rig = one::<V6>(tcp_client(), tcp_server());
    assert_eq!(rig.sent_by_client(), ["SYN", "PSH ACK 32", "ACK FIN"]);
    assert_eq!(rig.sent_by_server(), ["SYN ACK", "PSH ACK FIN 43", "ACK"]);
    assert_eq!(rig.client.counters().bits_tx, 8 * (82 + 74 + 32 + 74));
}

#[test]
fn every_byte_of_a_short_connection() {
    let rig = one::<V4>(tcp_client(), tcp_server());
    let frames = [rig.frames_of_client(), rig.frames_of_server()];
    let numbers = |frame: &[u8]| {
        let packet = Ipv4::parse(Ethernet::parse(frame).unwrap().payload()).unwrap();
        let tcp = Tcp::parse(packet.payload()).unwrap();
        (tcp.sequence(), tcp.acknowledgment())
    };
    let (c, s) = (numbers(&frames[0][0]).0, numbers(&frames[1][0]).0);
    let [request, response] = [REQUEST.len() as u32, RESPONSE.len() as u32];
    let n = |number: u32, add: u32| number.wrapping_add(add);
    let client = [(c, 0), (n(c, 1), n(s, 1)), (n(c, 1 + request), n(s, 2 + response))];
    let server = [(s, n(c, 1)), (n(s, 1), n(c, 1 + request)), (n(s, 2 + response), n(c, 2 + request))];
    assert_eq!(frames[0].iter().map(|frame| numbers(frame)).collect::<Vec<_>>(), client);
    assert_eq!(frames[1].iter().map(|frame| numbers(frame)).collect::<Vec<_>>(), server);

    // The SYN, byte by byte, but for its number and what follows from it.
    let mut syn = frames[0][0].clone();
    syn[38..42].fill(0);
    syn[50..52].fill(0);
    #[rustfmt::skip]
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 6, 0x25, 0xc7, 10, 0, 0, 1, 10, 0, 1, 1, // IPv4
        0x27, 0x10, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x70, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP
        2, 4, 5, 0xb4, 3, 3, 7, 0, // MSS 1460, window scale 7
    ];
    assert_eq!(syn, expected);
    assert_eq!(&frames[0][1][54..], REQUEST);
    assert_eq!(&frames[1][1][54..], RESPONSE);
}

/// The sender of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// A segment: flags, data, and how many numbers of the other side it acknowledges, SYN and FIN included.
struct Step<'a>(Side, u8, &'a [u8], usize);

/// A whole frame, made from headers and not by templates.
fn frame<F: Hosts>(from: Side, numbers: (u32, u32), flags: u8, data: &[u8]) -> Vec<u8> {
    let (macs, ends, ports) = match from {
        Side::Client => ((CLIENT_MAC, SERVER_MAC), (F::CLIENT, F::SERVER), (10_000, 80)),
        Side::Server => ((SERVER_MAC, CLIENT_MAC), (F::SERVER, F::CLIENT), (80, 10_000)),
    };
    let options = match flags & SYN {
        0 => Options::default(),
        _ => Options { mss: Some(1460), window_scale: Some(7), ..Options::default() },
    };
    let header = tcp::Header {
        source_port: ports.0,
        destination_port: ports.1,
        sequence: numbers.0,
        acknowledgment: numbers.1,
        flags,
        window: if flags & RST == 0 { 65_535 } else { 0 },
        options,
    };
    let length = header.len() + data.len();
    let mut frame = vec![0; ethernet::HEADER + F::HEADER + length];
    ethernet::Header { destination: macs.1, source: macs.0, vlan: None, ethertype: F::ETHERTYPE }
        .write(&mut frame)
        .unwrap();
    let packet = &mut frame[ethernet::HEADER..];
    F::write(packet, ends, protocol::TCP, (64, 0), length);
    let segment = &mut packet[F::HEADER..];
    segment[header.len()..].copy_from_slice(data);
    header.write(segment, data.len(), F::pseudo(ends.0, ends.1, protocol::TCP, length)).unwrap();
    frame
}

/// One connection consists of these frames, byte by byte.
fn assert_frames<F: Hosts>(mut tcp: rig_packet::TcpClient, to: rig_packet::TcpServer, steps: &[Step<'_>]) {
    tcp.client.load = Load::new(1e-6);
    let mut rig = Rig::new(client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    rig.run(3 * SECOND, 100_000);
    rig.assert_nothing_is_stuck();
    let sent = [rig.frames_of_client(), rig.frames_of_server()];
    let first = |frames: &[Vec<u8>]| super::peer::sequence(&frames[0]).0;
    let numbers = [first(sent[0]), first(sent[1])];
    for (from, other) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
        let mut next = numbers[from as usize];
        let mut expected = Vec::new();
        for Step(_, flags, data, acknowledged) in steps.iter().filter(|step| step.0 == from) {
            let acknowledgment = match flags & ACK {
                0 => 0,
                _ => numbers[other as usize].wrapping_add(*acknowledged as u32),
            };
            expected.push(frame::<F>(from, (next, acknowledgment), *flags, data));
            let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            next = next.wrapping_add(data.len() as u32 + controls);
        }
        let describe = |frames: &[Vec<u8>]| frames.iter().map(|frame| describe(frame)).collect::<Vec<_>>();
        assert_eq!(describe(sent[from as usize]), describe(&expected), "{from:?}");
        for (sent, expected) in sent[from as usize].iter().zip(&expected) {
            assert_eq!(sent, expected, "{from:?} {}", super::rig::describe(expected));
        }
    }
}

fn every_byte<F: Hosts>() {
    use Side::{Client as C, Server as S};
    let (ask, answer) = (REQUEST.len(), RESPONSE.len());
    let handshake = || vec![Step(C, SYN, b"", 0), Step(S, SYN | ACK, b"", 1)];
    let plus = |steps: Vec<Step<'static>>| {
        let mut all = handshake();
        all.extend(steps);
        all
    };

    let short = plus(vec![
        Step(C, PSH | ACK, REQUEST, 1),
        Step(S, PSH | ACK | FIN, RESPONSE, 1 + ask),
        Step(C, FIN | ACK, b"", 2 + answer),
        Step(S, ACK, b"", 2 + ask),
    ]);
    assert_frames::<F>(tcp_client(), tcp_server(), &short);

    let mut fast = tcp_client();
    fast.close = CloseMethod::Reset;
    let steps = plus(vec![
        Step(C, PSH | ACK, REQUEST, 1),
        Step(S, PSH | ACK | FIN, RESPONSE, 1 + ask),
        Step(C, RST | ACK, b"", 2 + answer),
    ]);
    assert_frames::<F>(fast, tcp_server(), &steps);

    // Three requests: responses are acknowledged by what is asked next, or by themselves when that is far off.
    let mut stays = tcp_server();
    stays.close = false;
    for (interval, acks) in [(10, false), (150, true)] {
        let mut alive = tcp_client();
        alive.client.repeat = requests(Duration::from_millis(interval), 3);
        let mut steps = handshake();
        for n in 0..3 {
            steps.push(Step(C, PSH | ACK, REQUEST, 1 + n * answer));
            steps.push(Step(S, PSH | ACK, RESPONSE, 1 + (n + 1) * ask));
            if acks && n < 2 {
                steps.push(Step(C, ACK, b"", 1 + (n + 1) * answer));
            }
        }
        steps.push(Step(C, FIN | ACK, b"", 1 + 3 * answer));
        steps.push(Step(S, FIN | ACK, b"", 2 + 3 * ask));
        steps.push(Step(C, ACK, b"", 2 + 3 * answer));
        assert_frames::<F>(alive, stays.clone(), &steps);
    }

    // Ten segments: four at first, and two for each acknowledgment while the window grows.
    let large: Vec<u8> = (0..14_600 - 9).map(|n| n as u8).collect();
    let mut to = tcp_server();
    to.response = large.clone().into();
    let mut tcp = tcp_client();
    tcp.response = MessageEnd::Bytes(large.len() as u32);
    let mut steps = handshake();
    steps.push(Step(C, PSH | ACK, REQUEST, 1));
    let pieces: Vec<&[u8]> = large.chunks(1460).collect();
    for (n, piece) in pieces.iter().enumerate() {
        // The last that the window holds, and the last of all, are pushed.
        let push = match n + 1 {
            4 | 6 | 8 => PSH,
            10 => PSH | FIN,
            _ => 0,
        };
        steps.push(Step(S, push | ACK, piece, 1 + ask));
    }
    for n in 1..10 {
        steps.push(Step(C, ACK, b"", 1 + n * 1460));
    }
    steps.push(Step(C, FIN | ACK, b"", 2 + large.len()));
    steps.push(Step(S, ACK, b"", 2 + ask));
    assert_frames::<F>(tcp, to, &steps);
}

#[test]
fn every_byte_of_every_sequence() {
    every_byte::<V4>();
    every_byte::<V6>();
}

#[test]
fn a_fast_close_saves_a_packet() {
    let mut tcp = tcp_client();
    tcp.close = CloseMethod::Reset;
    let rig = one::<V4>(tcp, tcp_server());
    assert_eq!(rig.sent_by_client(), ["SYN", "PSH ACK 32", "RST ACK"]);
    assert_eq!(rig.sent_by_server(), ["SYN ACK", "PSH ACK FIN 43"]);
    assert_eq!((rig.client.counters().rst_tx, rig.server.counters().rst_rx), (1, 1));
}

#[test]
fn requests_on_one_connection_take_two_packets_each_and_five() {
    for count in [1u16, 2, 5] {
        let rig = repeated::<V4>(Duration::from_micros(50), count);
        rig.assert_nothing_is_stuck();
        let mut client = vec!["SYN"];
        client.extend(vec!["PSH ACK 32"; count.into()]);
        // The client opens its next connection before the load ends.
        client.extend(["ACK FIN", "ACK"]);
        let mut server = vec!["SYN ACK"];
        server.extend(vec!["PSH ACK 43"; count.into()]);
        server.push("ACK FIN");
        assert_eq!(rig.sent_by_client()[..client.len()], client);
        assert_eq!(rig.sent_by_server()[..server.len()], server);
        assert_eq!(client.len() + server.len(), 2 * usize::from(count) + 5);
    }
}

#[test]
fn a_long_rest_has_its_own_acknowledgment() {
    let rig = repeated::<V4>(Duration::from_millis(200), 2);
    assert_eq!(rig.sent_by_client()[..6], ["SYN", "PSH ACK 32", "ACK", "PSH ACK 32", "ACK FIN", "ACK"]);
}

#[test]
fn requests_keep_their_interval_whatever_the_answer_takes() {
    let rig = repeated::<V4>(Duration::from_millis(10), 11);
    // Ten intervals from the first request, which was a microsecond after the begin, and not the sum of answers too.
    assert_eq!(rig.client.counters().late, 0);
    let transaction = &rig.client.latencies().transaction;
    // A timer's tick is 8.192 us, and latency counts from when the request was due, so the tick is in it.
    assert!(transaction.max().unwrap() < 12_000, "{transaction:?}");
    assert_eq!(transaction.count(), 11);
}

#[test]
fn the_end_that_closes_first_waits_when_told_to() {
    let mut to = tcp_server();
    to.times.time_wait = Duration::from_secs(10);
    let service = Service::TcpServer(to);
    let mut rig = Rig::new(client::<V4>(Service::TcpClient(tcp_client())), server::<V4>(service));
    rig.pass(1000);
    rig.client.wind_down();
    rig.run(MILLISECOND, 1000);
    assert_eq!((rig.client.counters().sk_con(), rig.server.counters().sk_con()), (0, 1));
    rig.run(9 * SECOND, MILLISECOND);
    assert_eq!(rig.server.counters().sk_con(), 1);
    rig.run(2 * SECOND, MILLISECOND);
    assert_eq!(rig.server.counters().sk_con(), 0);
}

#[test]
fn a_port_is_used_again_while_the_server_waits() {
    let mut tcp = tcp_client();
    tcp.client.ports = 10_000..=10_000;
    let mut to = tcp_server();
    to.times.time_wait = Duration::from_secs(100);
    let mut rig = Rig::new(client::<V4>(Service::TcpClient(tcp)), server::<V4>(Service::TcpServer(to)));
    rig.run(MILLISECOND, 1000);
    rig.finish();
    rig.assert_nothing_is_stuck();
    let opened = rig.client.counters().sk_open;
    assert!(opened > 100);
    assert_eq!((rig.client.counters().sk_err, rig.client.counters().syn_rt), (0, 0));
    assert_eq!(rig.server.counters().sk_open, opened);
}

#[test]
fn a_large_response_fills_the_window() {
    let mut tcp = tcp_client();
    let mut to = tcp_server();
    to.response = vec![b'x'; 100_000].into();
    tcp.response = MessageEnd::Bytes(100_000);
    let rig = one::<V4>(tcp, to);
    let sent = rig.sent_by_server();
    // SYN ACK, 68 full segments, the rest with the end, the last acknowledgment.
    assert_eq!(sent.len(), 1 + 68 + 1 + 1);
    assert_eq!(sent.iter().filter(|segment| segment.ends_with(" 1460")).count(), 68);
    assert_eq!(sent[69], format!("PSH ACK FIN {}", 100_000 - 68 * 1460));
    assert_eq!(sent[4], "PSH ACK 1460", "the last that the first window holds is pushed");
    assert_eq!(rig.client.counters().tcp_rsp, 1);
}

#[test]
fn a_request_in_vlan_stays_there() {
    let mut a = client::<V4>(Service::TcpClient(tcp_client()));
    let mut b = server::<V4>(Service::TcpServer(tcp_server()));
    a.link.vlan = Some(42);
    b.link.vlan = Some(42);
    let mut rig = Rig::new(a.clone(), b);
    rig.run(MILLISECOND, 1000);
    assert!(rig.client.counters().tcp_rsp > 10);
    let bits: usize = rig.frames_of_client().iter().map(|frame| frame.len() * 8).sum();
    assert_eq!(rig.client.counters().bits_tx, bits as u64);
    assert_eq!(&rig.frames_of_client()[0][12..18], [0x81, 0, 0, 42, 8, 0]);

    a.link.vlan = Some(43);
    let mut rig = Rig::new(a, server::<V4>(Service::TcpServer(tcp_server())));
    rig.run(MILLISECOND, 1000);
    assert_eq!((rig.server.counters().other_rx, rig.server.counters().tcp_rx), (1, 0));
}

#[test]
fn a_udp_exchange() {
    let mut rig =
        Rig::new(client::<V4>(Service::UdpClient(udp_client())), server::<V4>(Service::UdpServer(udp_server())));
    rig.pass(1000);
    rig.client.wind_down();
    rig.finish();
    rig.assert_nothing_is_stuck();
    assert_eq!((rig.sent_by_client(), rig.sent_by_server()), (vec!["udp 4".to_owned()], vec!["udp 5".to_owned()]));
    assert_eq!(rig.client.latencies().transaction.count(), 1);
    assert_eq!((rig.client.counters().sk_open, rig.server.counters().sk_open), (1, 0));
}

#[test]
fn udp_flows_repeat() {
    let mut udp = udp_client();
    udp.client.load.hold = Some(4);
    udp.client.repeat = requests(Duration::ZERO, 10);
    let mut rig = Rig::new(client::<V6>(Service::UdpClient(udp)), server::<V6>(Service::UdpServer(udp_server())));
    while rig.client.counters().sk_close < 4 {
        rig.pass(1000);
    }
    rig.finish();
    rig.assert_nothing_is_stuck();
    let counters = rig.client.counters();
    assert_eq!((counters.udp_rt, counters.udp_drop, counters.sk_err), (0, 0, 0));
    assert_eq!(counters.udp_tx, counters.udp_rx);
    assert!(counters.udp_tx >= 40);
}

#[test]
fn no_port_is_used_twice_at_once() {
    let mut tcp = tcp_client();
    tcp.client.ports = 10_000..=10_009;
    tcp.client.load.hold = None;
    let mut to = tcp_server();
    to.server.ports = 81..=81;
    to.resets = false;
    let mut rig = Rig::new(client::<V4>(Service::TcpClient(tcp)), server::<V4>(Service::TcpServer(to)));
    rig.run(MILLISECOND, 1000);
    let counters = rig.client.counters();
    assert_eq!((counters.sk_open, counters.syn_tx), (10, 10));
    assert!(counters.no_socket > 100);
    assert_eq!(rig.server.counters().tcp_drop, 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn responses_of_any_size_arrive(bytes in 1usize..20_000, mss in 88u16..1460, client_mss in 88u16..1460, window in 1u8..20, close: bool) {
        let mut tcp = tcp_client();
        let mut to = tcp_server();
        to.response = (0..bytes).map(|n| n as u8).collect::<Vec<_>>().into();
        (to.mss, to.window, to.close) = (mss, window, close);
        tcp.response = MessageEnd::Bytes(bytes as u32);
        tcp.mss = client_mss;
        let rig = one::<V4>(tcp, to);
        prop_assert_eq!(rig.client.counters().tcp_rsp, 1);
        let mut got = Vec::new();
        for frame in rig.frames_of_server() {
            let packet = Ipv4::parse(Ethernet::parse(frame).unwrap().payload()).unwrap();
            let tcp = Tcp::parse(packet.payload()).unwrap();
            prop_assert!(tcp.payload().len() <= mss.min(client_mss).into());
            prop_assert!(tcp.options().unwrap().mss.is_none_or(|announced| announced == mss));
            got.extend_from_slice(tcp.payload());
        }
        prop_assert_eq!(got, (0..bytes).map(|n| n as u8).collect::<Vec<_>>());
    }
}

#[test]
fn only_a_syn_has_options() {
    let rig = one::<V4>(tcp_client(), tcp_server());
    for (n, frame) in rig.frames_of_client().iter().enumerate() {
        let packet = Ipv4::parse(Ethernet::parse(frame).unwrap().payload()).unwrap();
        let options = Tcp::parse(packet.payload()).unwrap().options().unwrap();
        assert_eq!(options == Options::default(), n > 0);
    }
}
