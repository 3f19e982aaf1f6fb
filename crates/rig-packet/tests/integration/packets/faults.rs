//! Networks that lose, repeat, delay and damage: what it costs, exactly, and that nothing is left open.

use std::time::Duration;

use proptest::prelude::*;
use rig_packet::http::{self, Method};
use rig_packet::{CloseMethod, Counters, Load, MessageEnd, RequestRepeat, Service, TcpClient, TcpServer, V4, V6};

use super::http::{http_client, http_server};
use super::rig::*;

/// Frame `nth` of a direction meets `fate`, all others pass.
fn only(nth: Option<u64>, fate: FrameFate) -> FaultPlan {
    Box::new(move |n, _| if Some(n) == nth { fate } else { FrameFate::Pass })
}

/// One connection, in which frame `nth` of one direction meets `fate`.
fn faulty<F: Hosts>(tcp: TcpClient, to: TcpServer, from_client: bool, nth: u64, fate: FrameFate) -> Rig<F> {
    let to_client = only((!from_client).then_some(nth), fate);
    let to_server = only(from_client.then_some(nth), fate);
    let (a, b) = (client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    let mut rig = Rig::with_faults(a, b, to_client, to_server);
    rig.pass(1000);
    rig.client.wind_down();
    rig.run(MILLISECOND, 1000);
    rig.finish();
    rig
}

/// Retransmissions that each end counts: SYN, FIN, ACK, data.
fn repeats<F: Hosts>(rig: &Rig<F>) -> [[u64; 4]; 2] {
    [rig.client.counters(), rig.server.counters()].map(|c| [c.syn_rt, c.fin_rt, c.ack_rt, c.push_rt])
}

#[test]
fn each_lost_packet_of_a_short_connection_costs_just_its_repetition() {
    let none = [0; 4];
    let cases = [
        // Each loss, and what client and server send again.
        (true, 0, [[1, 0, 0, 0], none]),
        // The server, whose timer is longer, does not repeat what the client's repetition acknowledges.
        (true, 1, [[0, 0, 0, 1], none]),
        (true, 2, [[0, 1, 0, 0], none]),
        // The client asks again before the server repeats its answer, which then is the answer.
        (false, 0, [[1, 0, 0, 0], [1, 0, 0, 0]]),
        // Asking again brings an acknowledgment that the request is there, and then the server repeats.
        (false, 1, [[0, 0, 0, 1], [0, 0, 1, 1]]),
        // The server has forgotten the connection, and resets what it does not know.
        (false, 2, [[0, 1, 0, 0], none]),
    ];
    for (from_client, nth, expected) in cases {
        let rig = faulty::<V4>(tcp_client(), tcp_server(), from_client, nth, FrameFate::Drop);
        rig.assert_nothing_is_stuck();
        assert_eq!(repeats(&rig), expected, "lost: {nth} of the {}", if from_client { "client" } else { "server" });
        assert_eq!(
            (rig.client.counters().tcp_rsp, rig.client.counters().sk_err, rig.server.counters().sk_err),
            (1, 0, 0)
        );
        // A packet that is damaged is a packet that is lost, and counted.
        let wrong = faulty::<V4>(tcp_client(), tcp_server(), from_client, nth, FrameFate::Wrong(20 * 8 + 100));
        assert_eq!(repeats(&wrong), expected);
        assert_eq!(wrong.client.counters().bad_rx + wrong.server.counters().bad_rx, 1);
    }
}

#[test]
fn a_packet_that_comes_twice_costs_no_retransmission_of_data() {
    for from_client in [true, false] {
        for nth in 0..3 {
            let rig = faulty::<V4>(tcp_client(), tcp_server(), from_client, nth, FrameFate::Twice);
            rig.assert_nothing_is_stuck();
            let [client, server] = repeats(&rig);
            assert_eq!((client[1], client[3], server[1], server[3]), (0, 0, 0, 0), "{nth} {from_client}");
            let counters = (rig.client.counters(), rig.server.counters());
            assert_eq!((counters.0.tcp_rsp, counters.0.sk_err, counters.1.sk_err), (1, 0, 0), "{nth} {from_client}");
        }
    }
}

#[test]
fn a_silent_server_is_given_up_after_three_repetitions() {
    let (a, b) = (client::<V4>(Service::TcpClient(tcp_client())), server::<V4>(Service::TcpServer(tcp_server())));
    let mut rig = Rig::with_faults(a, b, Box::new(|_, _| FrameFate::Pass), Box::new(|_, _| FrameFate::Drop));
    rig.pass(1000);
    rig.client.wind_down();
    let mut sent_at = Vec::new();
    let begin = rig.now;
    while rig.client.counters().sk_con() > 0 {
        let before = rig.client.counters().syn_tx;
        rig.pass(10 * MILLISECOND);
        if rig.client.counters().syn_tx > before {
            sent_at.push((rig.now - begin) / SECOND);
        }
    }
    assert_eq!(sent_at, [2, 6, 14], "seconds, doubling from two");
    assert_eq!((rig.now - begin) / SECOND, 30);
    let counters = rig.client.counters();
    assert_eq!((counters.sk_err, counters.syn_rt, counters.syn_tx), (1, 3, 4));
}

#[test]
fn a_closed_port_refuses() {
    let mut to = tcp_server();
    to.server.ports = 81..=81;
    let rig = faulty::<V4>(tcp_client(), to, true, 99, FrameFate::Pass);
    rig.assert_nothing_is_stuck();
    assert_eq!(rig.sent_by_client(), ["SYN"]);
    assert_eq!(rig.sent_by_server(), ["RST ACK"]);
    assert_eq!((rig.client.counters().sk_err, rig.server.counters().tcp_drop), (1, 1));
}

#[test]
fn a_lost_segment_of_a_large_response_is_sent_again_at_once() {
    // Of 28 segments; frame 0 is the answer to the SYN.
    for nth in 1..=28 {
        let mut tcp = tcp_client();
        let mut to = tcp_server();
        to.response = vec![b'x'; 40_000].into();
        tcp.response = MessageEnd::Bytes(40_000);
        let rig = faulty::<V4>(tcp, to, false, nth, FrameFate::Drop);
        rig.assert_nothing_is_stuck();
        assert_eq!(
            (rig.client.counters().tcp_rsp, rig.client.counters().sk_err, rig.server.counters().sk_err),
            (1, 0, 0)
        );
        let transaction = rig.client.latencies().transaction.max().unwrap();
        // With three segments behind it, it takes no time-out, which would be 2 s at least; a pass takes a microsecond.
        match nth {
            1..=25 => assert!(transaction < MILLISECOND, "{nth}: {transaction} ns"),
            _ => assert!(transaction > 2 * SECOND, "{nth}: {transaction} ns, without three acknowledgments"),
        }
        assert_eq!(rig.server.counters().push_rt, 1, "{nth}");
    }
}

#[test]
fn a_reordered_network_costs_no_connection() {
    let mut tcp = tcp_client();
    tcp.response = MessageEnd::Bytes(20_000);
    let mut to = tcp_server();
    to.response = vec![b'x'; 20_000].into();
    for nth in 0..16 {
        for from_client in [true, false] {
            let rig = faulty::<V4>(tcp.clone(), to.clone(), from_client, nth, FrameFate::Later(3));
            rig.assert_nothing_is_stuck();
            assert_eq!((rig.client.counters().tcp_rsp, rig.client.counters().sk_err), (1, 0), "{nth} {from_client}");
        }
    }
}

#[test]
fn udp_without_an_answer_is_counted() {
    let mut udp = udp_client();
    udp.client.repeat = Some(RequestRepeat { requests: Some(5), ..RequestRepeat::every(Duration::from_millis(10)) });
    let (a, b) = (client::<V4>(Service::UdpClient(udp)), server::<V4>(Service::UdpServer(udp_server())));
    let mut rig = Rig::with_faults(a, b, only(Some(2), FrameFate::Drop), Box::new(|_, _| FrameFate::Pass));
    let begin = rig.now;
    while rig.client.counters().sk_close == 0 {
        rig.pass(MILLISECOND / 10);
    }
    let counters = rig.client.counters();
    assert_eq!((counters.udp_rx, counters.udp_rt, counters.sk_err), (4, 1, 0));
    // The request after the lost one does not wait for it.
    assert_eq!(counters.late, 0);
    assert!((40..41).contains(&((rig.now - begin) / MILLISECOND)), "{} ns", rig.now - begin);
}

/// A generator of fates from a seed (SplitMix64).
fn random(seed: u64, percent: u64) -> FaultPlan {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    Box::new(move |_, _| match next() % 400 {
        n if n < percent => FrameFate::Drop,
        n if n < 2 * percent => FrameFate::Twice,
        n if n < 3 * percent => FrameFate::Later(1 + next() as u32 % 5),
        n if n < 4 * percent => FrameFate::Wrong(next() as usize),
        _ => FrameFate::Pass,
    })
}

/// Many connections over a bad network: all end, and the books of both sides balance.
fn survives<F: Hosts>(seed: u64, percent: u64, tcp: TcpClient, to: TcpServer) -> Rig<F> {
    let (a, b) = (client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    let mut rig = Rig::with_faults(a, b, random(seed, percent), random(!seed, percent));
    rig.run(3 * MILLISECOND, 10_000);
    rig.run(10 * SECOND, 10 * MILLISECOND);
    rig.finish();
    rig.assert_nothing_is_stuck();
    for counters in [rig.client.counters(), rig.server.counters()] {
        assert_eq!(counters.sk_open, counters.sk_close, "seed {seed}");
        assert_eq!(counters.bad_rx, counters.malformed.iter().sum::<u64>());
    }
    let counters = rig.client.counters();
    // A response is to a request, and a connection that did not get all of its own has failed.
    assert!(counters.tcp_rsp <= counters.tcp_req, "seed {seed}");
    assert!(counters.tcp_rsp + counters.sk_err >= counters.sk_open, "seed {seed}: {counters:?}");
    assert!(counters.tcp_rsp > 0, "seed {seed}");
    rig
}

/// A response of HTTP whose body of `bytes` comes by length, in chunks of 700, or until the connection ends.
fn framed(bytes: usize, framing: u8) -> Vec<u8> {
    let body = vec![b'b'; bytes];
    let coded = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n").into_bytes();
    match framing {
        0 => http::response(&body, false),
        1 => {
            let mut message = coded("Transfer-Encoding: chunked\r\n");
            for chunk in body.chunks(700) {
                message.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            }
            message.extend(b"0\r\n\r\n");
            message
        }
        _ => [coded(""), body].concat(),
    }
}

/// The payloads of a direction are what was meant, however often they were sent: no wrong answer counts as a right one.
fn assert_http(rig: &(impl CounterPair + ?Sized), seed: u64) {
    let (client, server) = rig.both();
    assert_eq!(client.http_2xx, client.tcp_rsp, "seed {seed}: {client:?}");
    assert_eq!(client.http_get + client.http_post, client.tcp_req);
    // What the server takes for a request was sent as one, once; a response is to a request that it took.
    assert!(server.tcp_req <= client.tcp_req, "seed {seed}");
    assert!(client.tcp_rsp <= server.tcp_rsp, "seed {seed}");
    assert_eq!(server.http_2xx, server.tcp_rsp);
    // Checksums keep damaged segments from being read at all; a message is cut short only by a reset or an end.
    assert!(client.http_err <= client.sk_err && server.http_err <= server.sk_err, "seed {seed}");
}

trait CounterPair {
    fn both(&self) -> (&Counters, &Counters);
}

impl<F: Hosts> CounterPair for Rig<F> {
    fn both(&self) -> (&Counters, &Counters) {
        (self.client.counters(), self.server.counters())
    }
}

#[test]
fn each_lost_packet_of_http_costs_just_its_repetition() {
    for (framing, bytes) in [(0, 14), (0, 9000), (1, 14), (1, 9000), (2, 9000)] {
        for nth in 0..12 {
            for from_client in [true, false] {
                let mut tcp = http_client();
                let mut to = http_server(0, framing == 2);
                to.response = framed(bytes, framing).into();
                tcp.client.repeat = (framing != 2)
                    .then_some(RequestRepeat { requests: Some(2), ..RequestRepeat::every(Duration::ZERO) });
                // Only one connection, so that the frame that is lost is one of it.
                tcp.client.load = Load::new(1e-6);
                let to_client = only((!from_client).then_some(nth), FrameFate::Drop);
                let to_server = only(from_client.then_some(nth), FrameFate::Drop);
                let (a, b) = (client::<V6>(Service::TcpClient(tcp)), server::<V6>(Service::TcpServer(to)));
                let mut rig = Rig::with_faults(a, b, to_client, to_server);
                rig.run(SECOND, MILLISECOND);
                rig.run(60 * SECOND, 20 * MILLISECOND);
                rig.finish();
                rig.assert_nothing_is_stuck();
                let requests = if framing == 2 { 1 } else { 2 };
                for counters in [rig.client.counters(), rig.server.counters()] {
                    assert_eq!(
                        (counters.http_2xx, counters.http_err, counters.sk_err, counters.sk_open),
                        (requests, 0, 0, 1),
                        "{nth} {from_client} {framing} {bytes}: {counters:?}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_connection_is_stuck_on_a_bad_network(
        seed: u64, percent in 1u64..25, large: bool, reset: bool, close: bool, requests in 1u16..4, time_wait: bool
    ) {
        let mut tcp = tcp_client();
        let mut to = tcp_server();
        tcp.client.load.hold = Some(20);
        tcp.client.repeat = (!close).then_some(RequestRepeat { requests: Some(requests), ..RequestRepeat::every(Duration::ZERO) });
        tcp.close = if reset { CloseMethod::Reset } else { CloseMethod::Fin };
        to.close = close;
        if time_wait {
            tcp.times.time_wait = Duration::from_secs(1);
            to.times.time_wait = Duration::from_secs(1);
        }
        if large {
            to.response = vec![b'x'; 9000].into();
            tcp.response = MessageEnd::Bytes(9000);
        }
        survives::<V4>(seed, percent, tcp.clone(), to.clone());
        survives::<V6>(seed, percent, tcp, to);
    }

    #[test]
    fn no_http_connection_is_stuck_or_wrong_on_a_bad_network(
        seed: u64, percent in 1u64..25, framing in 0u8..3, bytes in prop_oneof![Just(14usize), Just(9000), 1usize..40_000],
        reset: bool, requests in 1u16..4, post: bool
    ) {
        let mut tcp = http_client();
        let mut to = http_server(0, framing == 2);
        to.response = framed(bytes, framing).into();
        tcp.client.load.hold = Some(20);
        tcp.client.repeat =
            (framing != 2).then_some(RequestRepeat { requests: Some(requests), ..RequestRepeat::every(Duration::ZERO) });
        tcp.close = if reset { CloseMethod::Reset } else { CloseMethod::Fin };
        if post {
            tcp.request = http::request(Method::Post, "netrig", "/", 700).into();
        }
        let rig = survives::<V4>(seed, percent, tcp.clone(), to.clone());
        assert_http(&rig, seed);
        let rig = survives::<V6>(seed, percent, tcp, to);
        assert_http(&rig, seed);
    }
}
