//! TCP with peers that do not do what is usual.

use std::time::Duration;

use rig_packet::{CloseMethod, MessageEnd, RequestRepeat, Service, TcpClient, TcpServer, V4, V6};
use rig_wire::checksum;
use rig_wire::ethernet::Ethernet;
use rig_wire::protocol;
use rig_wire::tcp::Options;
use rig_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN, URG};

use super::peer::{FIRST, MSS, Peer, options, sequence};
use super::rig::*;

const NOTHING: [&str; 0] = [];

fn served<F: Hosts>(tcp: TcpClient) -> Peer<F> {
    let mut peer = Peer::serving(tcp);
    assert_eq!(peer.sent(), ["PSH ACK 32"]);
    peer
}

fn connected<F: Hosts>(to: TcpServer) -> Peer<F> {
    Peer::connected(server(Service::TcpServer(to)))
}

/// A server whose connections stay.
fn staying(response: usize) -> TcpServer {
    TcpServer { close: false, response: vec![b'x'; response].into(), ..tcp_server() }
}

/// A client whose server has not said anything.
fn calling<F: Hosts>(mut tcp: TcpClient) -> Peer<F> {
    tcp.client.load = rig_packet::Load::new(1e-6);
    let mut peer = Peer::new(client(Service::TcpClient(tcp)), false);
    peer.pass(1000);
    assert_eq!(peer.sent(), ["SYN"]);
    peer
}

#[test]
fn time_outs_of_minutes_are_kept_and_their_latency_is_right() {
    let mut tcp = tcp_client();
    tcp.times.retransmit = Duration::from_secs(300);
    let mut peer = calling::<V4>(tcp.clone());
    let begin = peer.now;
    let mut at = Vec::new();
    while peer.counters().sk_con() > 0 {
        peer.wait(SECOND);
        at.extend(peer.sent().iter().map(|_| (peer.now - begin) / SECOND));
    }
    assert_eq!((at, (peer.now - begin) / SECOND), (vec![301, 901, 2101], 4501));
    peer.assert_closed(1);

    let mut peer = calling::<V6>(tcp);
    // More than 2^32 times 64 ns.
    peer.wait(500 * SECOND);
    peer.sent();
    peer.send(SYN | ACK, b"");
    assert_eq!(peer.sent(), ["PSH ACK 32"]);
    let handshake = peer.latencies().handshake.max().unwrap();
    assert!(handshake.abs_diff(500 * SECOND) < SECOND, "{handshake}, within a histogram's bucket");
    peer.wait(250 * SECOND);
    peer.send(ACK, b"");
    peer.wait(250 * SECOND);
    peer.send(PSH | ACK | FIN, &[b'x'; RESPONSE.len()]);
    let transaction = peer.latencies().transaction.max().unwrap();
    assert!(transaction.abs_diff(500 * SECOND) < SECOND, "{transaction}");
}

#[test]
fn a_response_that_takes_longer_than_stamps_last_is_no_quick_one() {
    let mut tcp = tcp_client();
    tcp.response = MessageEnd::Bytes(100);
    let mut peer = served::<V4>(tcp);
    for _ in 0..99 {
        peer.send(ACK, b"x");
        peer.wait(4 * SECOND);
    }
    peer.send(ACK, b"x");
    // It took 396 s, which is more than 2^32 times 64 ns, and is known to be at least three quarters of that.
    assert!(peer.latencies().transaction.max().unwrap() > 200 * SECOND);
}

#[test]
fn a_refusal_fails_at_once() {
    let mut peer = calling::<V6>(tcp_client());
    // A reset that acknowledges nothing may be forged.
    peer.segment(0, 0, RST, b"");
    peer.segment(0, peer.expected + 1, RST | ACK, b"");
    assert_eq!((peer.counters().sk_con(), peer.counters().tcp_drop), (1, 2));
    peer.send(RST | ACK, b"");
    peer.assert_closed(1);
    assert_eq!((peer.sent(), peer.counters().rst_rx), (Vec::<String>::new(), 3));
}

/// An ICMP or ICMPv6 error about a segment of the engine's with this number.
fn unreachable<F: Hosts>(peer: &Peer<F>, frame: &[u8], number: u32, kind: (u8, u8)) -> Vec<u8> {
    let mut quoted = Ethernet::parse(frame).unwrap().payload()[..F::HEADER + 8].to_vec();
    quoted[F::HEADER + 4..].copy_from_slice(&number.to_be_bytes());
    let message = [&[kind.0, kind.1, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
    let v6 = F::HEADER == 40;
    let number = if v6 { protocol::ICMPV6 } else { protocol::ICMP };
    peer.frame(number, message.len(), |bytes, pseudo| {
        bytes.copy_from_slice(&message);
        let sum = if v6 { pseudo.bytes(bytes).checksum() } else { checksum::of(bytes) };
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    })
}

fn unreachable_hosts<F: Hosts>(host: (u8, u8), too_big: (u8, u8)) {
    let mut tcp = tcp_client();
    tcp.client.load = rig_packet::Load::new(1e-6);
    let mut peer = Peer::<F>::new(client(Service::TcpClient(tcp)), false);
    peer.pass(1000);
    let syn = peer.sent_frames().remove(0);
    let number = sequence(&syn).0;
    // Numbers that are not under way are guesses; too large a packet is not a missing host.
    let wrong = [number.wrapping_sub(1), number.wrapping_add(1)].map(|n| unreachable(&peer, &syn, n, host));
    peer.frames(&wrong);
    assert_eq!((peer.counters().sk_con(), peer.counters().unreachable, peer.counters().icmp_rx), (1, 0, 2));
    let mut damaged = unreachable(&peer, &syn, number, host);
    *damaged.last_mut().unwrap() ^= 1;
    peer.frames(&[unreachable(&peer, &syn, number, too_big), damaged]);
    assert_eq!((peer.counters().sk_con(), peer.counters().unreachable, peer.counters().bad_rx), (1, 1, 1));
    peer.frames(&[unreachable(&peer, &syn, number, host)]);
    peer.assert_closed(1);
    assert_eq!((peer.counters().unreachable, peer.sent()), (2, Vec::new()));

    // A connection that is made does not fail by it.
    let mut peer = Peer::<F>::serving(tcp_client());
    let request = peer.sent_frames().remove(0);
    let last = sequence(&request).0.wrapping_add(REQUEST.len() as u32 - 1);
    peer.frames(&[unreachable(&peer, &request, last, host), unreachable(&peer, &request, last + 1, host)]);
    assert_eq!((peer.counters().sk_con(), peer.counters().unreachable), (1, 1));
}

#[test]
fn unreachable_hosts_fail_connections_that_are_not_made() {
    unreachable_hosts::<V4>((3, 1), (3, 4));
    unreachable_hosts::<V6>((1, 3), (2, 0));
}

#[test]
fn the_answer_to_a_syn_is_repeated() {
    let mut peer = Peer::<V4>::new(server(Service::TcpServer(tcp_server())), true);
    peer.send(SYN, b"");
    assert_eq!(peer.sent(), ["SYN ACK"]);
    // The same SYN again, and one with another sequence number.
    peer.segment(FIRST, 0, SYN, b"");
    assert_eq!(peer.sent(), ["SYN ACK"]);
    peer.segment(FIRST + 9, 0, SYN, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    let begin = peer.now;
    let mut at = Vec::new();
    while peer.counters().sk_con() > 0 {
        peer.wait(SECOND / 10);
        at.extend(peer.sent().iter().map(|sent| (sent.clone(), (peer.now - begin) / SECOND)));
    }
    let expected = [2, 6, 15].map(|seconds| ("SYN ACK".to_owned(), seconds));
    assert_eq!(at, expected, "2.2 s, doubling");
    peer.assert_closed(1);
    assert_eq!(peer.counters().syn_rt, 4);
}

#[test]
fn a_handshake_of_wrong_numbers_is_reset() {
    let mut peer = calling::<V4>(tcp_client());
    for wrong in [peer.expected.wrapping_sub(1), peer.expected + 1] {
        for flags in [SYN | ACK, ACK] {
            peer.segment(FIRST, wrong, flags, b"");
            assert_eq!(peer.sent(), ["RST"]);
        }
    }
    // Nor is there a simultaneous open.
    peer.segment(FIRST, 0, SYN, b"");
    assert_eq!((peer.sent().len(), peer.counters().sk_con(), peer.counters().tcp_drop), (0, 1, 5));
    peer.send(SYN | ACK, b"");
    assert_eq!(peer.sent(), ["PSH ACK 32"]);
    // Its repetition is acknowledged.
    peer.segment(FIRST, peer.expected, SYN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK"]);
}

#[test]
fn servers_that_close_first() {
    // Before the response.
    let mut peer = served::<V4>(tcp_client());
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["RST ACK"]);
    peer.assert_closed(1);
    // Within it.
    let mut peer = served::<V4>(tcp_client());
    peer.send(FIN | ACK, &RESPONSE[..9]);
    assert_eq!(peer.sent(), ["RST ACK"]);
    peer.assert_closed(1);
    // Behind it, in a segment of its own.
    let mut peer = served::<V4>(tcp_client());
    peer.send(PSH | ACK, RESPONSE);
    assert_eq!(peer.sent(), ["ACK FIN"]);
    peer.send(ACK, b"");
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    peer.assert_closed(0);
    // Behind it, before it has the client's end: both close at once.
    let mut peer = served::<V4>(tcp_client());
    peer.send(PSH | ACK, RESPONSE);
    let end = peer.expected.wrapping_sub(1);
    peer.segment(peer.next, end, FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK FIN", "ACK"]);
    peer.next += 1;
    peer.send(ACK, b"");
    peer.assert_closed(0);
    // Between requests.
    let mut tcp = tcp_client();
    tcp.client.repeat = Some(RequestRepeat::every(Duration::from_secs(10)));
    let mut peer = served::<V4>(tcp);
    peer.send(PSH | ACK, RESPONSE);
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK", "ACK FIN"]);
    peer.send(ACK, b"");
    peer.assert_closed(1);
}

#[test]
fn clients_that_close_first() {
    // With the request: half closed, they still get their response, of any size.
    for response in [43, 10_000] {
        let mut peer = connected::<V6>(staying(response));
        peer.send(PSH | ACK | FIN, REQUEST);
        let mut sent = peer.sent();
        while peer.counters().sk_con() > 0 {
            peer.send(ACK, b"");
            sent.extend(peer.sent());
        }
        let last = if response == 43 { 43 } else { 1000 };
        assert_eq!(sent.last().unwrap(), &format!("PSH ACK FIN {last}"));
        assert_eq!(sent.len(), response.div_ceil(MSS.into()));
        peer.assert_closed(0);
    }
    // While it comes.
    let mut peer = connected::<V6>(staying(10_000));
    peer.send(PSH | ACK, REQUEST);
    assert_eq!(peer.sent().len(), 4);
    peer.send(FIN | ACK, b"");
    let mut sent = peer.sent();
    while peer.counters().sk_con() > 0 {
        peer.send(ACK, b"");
        sent.extend(peer.sent());
    }
    assert_eq!((sent[0].as_str(), sent.last().unwrap().as_str()), ("ACK", "PSH ACK FIN 1000"));
    peer.assert_closed(0);
    // Before any request, and within one.
    for (data, errors) in [(&b""[..], 0), (&REQUEST[..9], 1)] {
        let mut peer = connected::<V6>(staying(43));
        peer.send(FIN | ACK, data);
        assert_eq!(peer.sent(), ["ACK FIN"]);
        peer.send(ACK, b"");
        peer.assert_closed(errors);
    }
    // By a reset.
    for (data, errors) in [(&b""[..], 0), (&REQUEST[..9], 1), (REQUEST, 0)] {
        let mut peer = connected::<V6>(staying(43));
        if !data.is_empty() {
            peer.send(PSH | ACK, data);
        }
        peer.send(RST | ACK, b"");
        peer.assert_closed(errors);
    }
}

#[test]
fn both_close_at_once() {
    let mut peer = connected::<V4>(tcp_server());
    peer.send(PSH | ACK, REQUEST);
    assert_eq!(peer.sent(), ["PSH ACK FIN 43"]);
    // The peer's end does not know of the server's.
    peer.segment(peer.next, peer.expected.wrapping_sub(1), FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    assert_eq!(peer.counters().sk_con(), 1);
    peer.next += 1;
    peer.send(ACK, b"");
    peer.assert_closed(0);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    for response in [43, 5000] {
        let mut peer = connected::<V4>(TcpServer { response: vec![b'x'; response].into(), ..tcp_server() });
        peer.window = 0;
        peer.send(PSH | ACK, REQUEST);
        assert_eq!(peer.sent(), ["PSH ACK 1"]);
        // The peer takes no byte, and says so.
        let taken = peer.expected.wrapping_sub(1);
        let begin = peer.now;
        let mut probes = 0;
        while peer.now < begin + 300 * SECOND {
            peer.wait(SECOND);
            for probe in peer.sent() {
                assert_eq!(probe, "PSH ACK 1");
                peer.segment(peer.next, taken, ACK, b"");
                probes += 1;
            }
        }
        assert!((15..40).contains(&probes), "{probes} in five minutes");
        assert_eq!(peer.counters().sk_con(), 1);
        // It opens by half a segment.
        peer.window = 500;
        peer.segment(peer.next, taken, ACK, b"");
        peer.expected = taken.wrapping_add(response.min(500) as u32 + u32::from(response < 500));
        let first = if response < 500 { "PSH ACK FIN 43" } else { "PSH ACK 500" };
        assert_eq!(peer.sent(), [first]);
        peer.window = u16::MAX;
        let begin = peer.now;
        while peer.counters().fin_tx == 0 {
            peer.send(ACK, b"");
        }
        assert!(peer.now < begin + SECOND, "no time-out is needed");
        peer.send(FIN | ACK, b"");
        peer.assert_closed(0);
    }
    // One that says nothing is given up.
    let mut peer = connected::<V4>(tcp_server());
    peer.window = 0;
    peer.send(PSH | ACK, REQUEST);
    peer.wait(40 * SECOND);
    peer.assert_closed(1);
    assert_eq!(peer.counters().push_rt, 3);
}

#[test]
fn a_request_waits_for_the_window() {
    let mut tcp = tcp_client();
    tcp.client.repeat = Some(RequestRepeat { requests: Some(2), ..RequestRepeat::every(Duration::ZERO) });
    let mut peer = served::<V4>(tcp.clone());
    peer.window = 10;
    peer.send(PSH | ACK, RESPONSE);
    assert_eq!(peer.sent(), ["ACK"], "which asks for the window");
    peer.wait(5 * SECOND);
    assert_eq!(peer.sent(), ["ACK", "ACK"]);
    peer.window = 0;
    for _ in 0..60 {
        peer.send(ACK, b"");
        peer.wait(SECOND);
    }
    assert!(peer.sent().iter().all(|sent| sent == "ACK"));
    peer.window = 1000;
    peer.send(ACK, b"");
    assert_eq!(peer.sent(), ["PSH ACK 32"]);
    peer.send(PSH | ACK, RESPONSE);
    assert_eq!(peer.counters().tcp_rsp, 2);
    // The client says nothing more.
    let mut peer = served::<V4>(tcp);
    peer.window = 0;
    peer.send(PSH | ACK, RESPONSE);
    peer.wait(20 * SECOND);
    peer.assert_closed(1);
}

/// RFC 1122, 4.2.3.6, as SYN proxies have it: nothing of it is a loss.
#[test]
fn a_keep_alive_opens_a_closed_window() {
    let mut peer = calling::<V4>(tcp_client());
    (peer.window, peer.scale) = (0, Some(7));
    peer.send(SYN | ACK, b"");
    let frames = peer.sent_frames();
    assert_eq!(frames.iter().map(|frame| describe(frame)).collect::<Vec<_>>(), ["ACK"]);
    assert_eq!(sequence(&frames[0]), (peer.expected, peer.next), "it completes the handshake");
    // As long as the window stays closed nothing changes by one.
    peer.segment(peer.next.wrapping_sub(1), peer.expected, ACK, b"x");
    assert_eq!(peer.sent(), ["ACK"]);
    assert_eq!(peer.counters().tcp_drop, 1);
    peer.window = 100;
    peer.segment(peer.next.wrapping_sub(1), peer.expected, ACK, b"x");
    assert_eq!(peer.sent(), ["PSH ACK 32"]);
    assert_eq!((peer.counters().tcp_drop, peer.counters().ack_rt), (1, 1));
    // Now it is what has come before.
    peer.segment(peer.next.wrapping_sub(1), peer.expected, ACK, b"x");
    assert_eq!(peer.counters().tcp_drop, 2);
    peer.send(PSH | ACK | FIN, RESPONSE);
    assert_eq!(peer.counters().tcp_rsp, 1);
}

/// RFC 7323, 2.2.
#[test]
fn the_window_of_a_syn_is_not_scaled() {
    let answered = |window, scale| {
        let mut peer = calling::<V4>(tcp_client());
        (peer.window, peer.scale) = (window, Some(scale));
        peer.send(SYN | ACK, b"");
        peer
    };
    // The request has 32 bytes.
    for scale in [0, 7, 14, 255] {
        assert_eq!(answered(32, scale).sent(), ["PSH ACK 32"], "{scale}");
        assert_eq!(answered(31, scale).sent(), ["ACK"], "{scale}: which asks for the window");
    }
    // All others are: of 128 bytes, and by no more than 2^14.
    for (scale, window) in [(7, 1), (255, 1)] {
        let mut peer = answered(0, scale);
        assert_eq!(peer.sent(), ["ACK"]);
        peer.window = window;
        peer.send(ACK, b"");
        assert_eq!(peer.sent(), ["PSH ACK 32"], "{scale}");
    }
    // A server's response waits for the acknowledgment of its SYN, and goes by the window of that.
    let mut peer = Peer::<V4>::new(server(Service::TcpServer(staying(5000))), true);
    (peer.window, peer.scale) = (1, Some(9));
    peer.send(SYN, b"");
    assert_eq!(peer.sent(), ["SYN ACK"]);
    peer.window = 2;
    peer.send(PSH | ACK, REQUEST);
    assert_eq!(peer.sent(), ["PSH ACK 1000"]);
}

/// RFC 7323, 1.3 and 2.2: an offer is answered by one, also in a SYN that comes again, and without one nothing is scaled.
fn scales<F: Hosts>() {
    for (offered, answer) in [(Some(0), Some(7)), (Some(9), Some(7)), (None, None)] {
        let mut peer = Peer::<F>::new(server(Service::TcpServer(staying(5000))), true);
        (peer.window, peer.scale) = (500, offered);
        peer.send(SYN, b"");
        peer.wait(5 * SECOND);
        peer.segment(FIRST, 0, SYN, b"");
        let frames = peer.sent_frames();
        assert!(frames.len() > 2, "{}", frames.len());
        for frame in frames {
            assert_eq!(describe(&frame), "SYN ACK");
            let expected = Options { mss: Some(1460), window_scale: answer, ..Options::default() };
            assert_eq!(options(&frame), expected);
        }
        let bytes = if offered == Some(9) { "PSH ACK 1000" } else { "PSH ACK 500" };
        peer.send(PSH | ACK, REQUEST);
        assert_eq!(peer.sent()[0], bytes, "{offered:?}");
    }
}

#[test]
fn a_server_offers_a_scale_to_whom_it_was_offered_one() {
    scales::<V4>();
    scales::<V6>();
}

#[test]
fn time_wait_answers_and_gives_way() {
    let mut tcp = tcp_client();
    tcp.times.time_wait = Duration::from_secs(60);
    let mut peer = served::<V4>(tcp);
    peer.send(PSH | ACK, RESPONSE);
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK FIN", "ACK"]);
    // The last acknowledgment was lost.
    peer.wait(30 * SECOND);
    peer.segment(peer.next - 1, peer.expected, FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    assert_eq!(peer.counters().sk_con(), 1);
    peer.wait(31 * SECOND);
    peer.assert_closed(0);

    let mut to = tcp_server();
    to.times.time_wait = Duration::from_secs(60);
    let mut peer = connected::<V4>(to);
    peer.send(PSH | ACK, REQUEST);
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["PSH ACK FIN 43", "ACK"]);
    // An old SYN is answered by an acknowledgment, a later one begins anew (RFC 9293, 3.6.1).
    peer.segment(peer.next - 10, 0, SYN, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    peer.next += 1000;
    peer.send(SYN, b"");
    assert_eq!(peer.sent(), ["SYN ACK"]);
    peer.send(PSH | ACK, REQUEST);
    assert_eq!(peer.sent(), ["PSH ACK FIN 43"]);
    assert_eq!((peer.counters().sk_open, peer.counters().sk_err), (2, 0));
}

#[test]
fn guesses_are_challenged_and_change_nothing() {
    let mut peer = connected::<V6>(staying(43));
    let (next, expected) = (peer.next, peer.expected);
    // What comes, and whether it is answered: a reset or SYN within the window is, so that the real peer can tell.
    let cases = [
        (next + 1, expected, RST, true),
        (next - 1, expected, RST, false),
        (next, expected, SYN, true),
        (next + 500, 0, SYN, true),
        (next, expected, SYN | ACK, true),
        // An acknowledgment of what was not sent; one that is old; data without one.
        (next, expected + 1, ACK, true),
        (next, expected + (1 << 30), ACK, true),
        (next, expected - 1, ACK, false),
        (next, 0, PSH, false),
        (next, 0, 0, false),
        (next, expected, URG | FIN, false),
    ];
    for (sequence, acknowledgment, flags, answered) in cases {
        peer.segment(sequence, acknowledgment, flags, b"");
        let expected = if answered { vec!["ACK"] } else { vec![] };
        assert_eq!(peer.sent(), expected, "{flags:#x} {sequence}");
    }
    assert_eq!((peer.counters().sk_con(), peer.counters().sk_err), (1, 0));
    assert!(peer.counters().tcp_drop >= 6, "{:?}", peer.counters());
    peer.send(PSH | ACK, REQUEST);
    assert_eq!(peer.sent(), ["PSH ACK 43"]);
    // Data from behind the window, and in a gap, is asked for again.
    peer.segment(peer.next + 100, peer.expected, PSH | ACK, REQUEST);
    peer.segment(peer.next - 32, peer.expected, PSH | ACK, REQUEST);
    assert_eq!((peer.sent(), peer.counters().ack_rt), (vec!["ACK".to_owned(); 2], 5));
    // The true reset.
    peer.send(RST, b"");
    assert_eq!((peer.counters().sk_con(), peer.sent()), (0, Vec::new()));
}

#[test]
fn strangers_are_reset_and_resets_are_not() {
    let mut peer = Peer::<V4>::new(server(Service::TcpServer(tcp_server())), true);
    for (flags, answer) in [(ACK, "RST"), (FIN | ACK, "RST"), (SYN | ACK, "RST"), (PSH, "RST ACK"), (FIN, "RST ACK")] {
        peer.segment(FIRST, 7, flags, b"xy");
        assert_eq!(peer.sent(), [answer], "{flags:#x}");
    }
    for flags in [RST, RST | ACK, RST | SYN] {
        peer.segment(FIRST, 7, flags, b"");
        assert_eq!(peer.sent(), NOTHING);
    }
    assert_eq!((peer.counters().tcp_drop, peer.counters().sk_open), (8, 0));
    let mut to = tcp_server();
    to.resets = false;
    let mut peer = Peer::<V4>::new(server(Service::TcpServer(to)), true);
    peer.segment(FIRST, 7, ACK, b"");
    assert_eq!(peer.sent(), NOTHING);
}

#[test]
fn a_silent_client_is_reset() {
    let mut peer = connected::<V4>(staying(43));
    peer.wait(59 * SECOND);
    assert_eq!(peer.counters().sk_con(), 1);
    peer.wait(2 * SECOND);
    assert_eq!(peer.sent(), ["RST ACK"]);
    peer.assert_closed(1);
}

#[test]
fn a_close_by_reset_says_what_was_received() {
    let mut tcp = tcp_client();
    tcp.close = CloseMethod::Reset;
    let mut peer = served::<V6>(tcp);
    peer.send(PSH | ACK, RESPONSE);
    let frames = peer.sent_frames();
    assert_eq!(frames.iter().map(|frame| describe(frame)).collect::<Vec<_>>(), ["RST ACK"]);
    assert_eq!(sequence(&frames[0]), (peer.expected, peer.next));
    peer.assert_closed(0);
}
