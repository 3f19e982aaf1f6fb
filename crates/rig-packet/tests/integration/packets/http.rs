//! HTTP/1.1: what each end takes for a message, and what it does with what is none.

use std::time::Duration;

use rig_packet::http::{Method, request, response};
use rig_packet::{CloseMethod, MessageEnd, RequestRepeat, Service, TcpClient, TcpServer, V4, V6};
use rig_wire::tcp::flags::{ACK, FIN, PSH};

use super::peer::Peer;
use super::rig::*;

pub fn http_client() -> TcpClient {
    let request = request(Method::Get, "netrig", "/", 85).into();
    TcpClient { request, response: MessageEnd::Http, ..tcp_client() }
}

pub fn http_server(body: usize, close: bool) -> TcpServer {
    TcpServer { request: MessageEnd::Http, response: response(&vec![b'b'; body], close).into(), close, ..tcp_server() }
}

fn keepalive(requests: u16) -> Option<RequestRepeat> {
    Some(RequestRepeat { requests: Some(requests), ..RequestRepeat::every(Duration::ZERO) })
}

/// One connection, without faults.
fn one<F: Hosts>(tcp: TcpClient, to: TcpServer) -> Rig<F> {
    let mut rig = Rig::new(client::<F>(Service::TcpClient(tcp)), server::<F>(Service::TcpServer(to)));
    rig.pass(1000);
    // So that no other connection is opened, while this one goes on with its requests.
    while rig.client.counters().sk_close == 0 && rig.now < 3 * SECOND {
        rig.pass(1000);
    }
    rig.finish();
    rig.assert_nothing_is_stuck();
    rig
}

/// GET, POST, 2XX and errors.
fn http(counters: &rig_packet::Counters) -> [u64; 4] {
    [counters.http_get, counters.http_post, counters.http_2xx, counters.http_err]
}

fn a_short_connection<F: Hosts>() {
    for close in [CloseMethod::Fin, CloseMethod::Reset] {
        let mut tcp = http_client();
        tcp.close = close;
        let mut rig = Rig::new(client::<F>(Service::TcpClient(tcp)), server(Service::TcpServer(http_server(14, true))));
        rig.pass(1000);
        rig.client.wind_down();
        rig.finish();
        rig.assert_nothing_is_stuck();
        let last = if close == CloseMethod::Fin { "ACK FIN" } else { "RST ACK" };
        assert_eq!(rig.sent_by_client(), ["SYN", "PSH ACK 85", last]);
        let server = ["SYN ACK", "PSH ACK FIN 99", "ACK"];
        assert_eq!(rig.sent_by_server(), server[..if close == CloseMethod::Fin { 3 } else { 2 }]);
        for counters in [rig.client.counters(), rig.server.counters()] {
            assert_eq!((http(counters), counters.tcp_rsp, counters.sk_err), ([1, 0, 1, 0], 1, 0));
        }
        assert_eq!(rig.client.latencies().first_byte.count(), 1);
    }
}

#[test]
fn a_short_http_connection_takes_six_packets() {
    a_short_connection::<V4>();
    a_short_connection::<V6>();
}

fn many_requests<F: Hosts>(method: Method, body: usize) {
    let mut tcp = http_client();
    tcp.request = request(method, "netrig", "/", 300).into();
    tcp.client.repeat = keepalive(5);
    let rig = one::<F>(tcp, http_server(body, false));
    let opened = rig.client.counters().sk_open;
    assert!(opened >= 1);
    let requests = rig.client.counters().tcp_req;
    assert!(requests >= 5);
    let get = u64::from(method == Method::Get) * requests;
    let post = u64::from(method == Method::Post) * requests;
    for counters in [rig.client.counters(), rig.server.counters()] {
        assert_eq!(http(counters), [get, post, requests, 0], "{method:?} {body}");
        assert_eq!((counters.sk_err, counters.tcp_drop, counters.push_rt), (0, 0, 0), "{counters:?}");
    }
    assert_eq!(rig.client.latencies().transaction.count(), requests);
    if method == Method::Head {
        assert!(rig.sent_by_server().iter().all(|sent| !sent.contains(" 1460")));
    }
}

#[test]
fn methods_and_sizes() {
    for method in [Method::Get, Method::Head, Method::Post] {
        for body in [0, 14, 1375, 1376, 100_000] {
            many_requests::<V4>(method, body);
            many_requests::<V6>(method, body);
        }
    }
}

/// A client whose server answers `pieces`, each in a segment, and then ends if `fin`.
fn answered(pieces: &[&[u8]], fin: bool, method: Method, requests: u16) -> Peer<V4> {
    let mut tcp = http_client();
    tcp.request = request(method, "netrig", "/", 85).into();
    tcp.client.repeat =
        Some(RequestRepeat { requests: Some(requests), ..RequestRepeat::every(Duration::from_secs(1)) });
    let mut peer = Peer::serving(tcp);
    peer.sent();
    for piece in pieces {
        peer.send(PSH | ACK, piece);
    }
    if fin {
        peer.send(FIN | ACK, b"");
    }
    peer
}

#[test]
fn responses_in_pieces_are_understood() {
    let chunked: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10;x\r\n0123456789abcdef\r\n0\r\nT: x\r\n\r\n";
    let interim: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let long: &[u8] = b"HTTP/1.1 404 Not Found\r\nDate: today\r\nContent-Length: 10\r\n\r\n0123456789";
    for (message, ok) in [(chunked, true), (interim, true), (long, false)] {
        for size in [1, 2, 7, 30, 1000] {
            let pieces: Vec<&[u8]> = message.chunks(size).collect();
            let mut peer = answered(&pieces, false, Method::Get, 3);
            let expected = if ok { [1, 0, 1, 0] } else { [1, 0, 0, 1] };
            assert_eq!(http(peer.counters()), expected, "{}", message.escape_ascii());
            assert_eq!((peer.counters().tcp_rsp, peer.counters().sk_con()), (1, 1));
            // Each piece is acknowledged, the last one too: the next request is far away.
            assert_eq!(peer.sent(), vec!["ACK"; pieces.len()]);
            peer.wait(SECOND + MILLISECOND);
            assert_eq!(peer.sent(), ["PSH ACK 85"], "the next request");
        }
    }
}

#[test]
fn the_end_of_the_connection_ends_a_response_without_length() {
    let mut peer = answered(&[b"HTTP/1.0 200 OK\r\n\r\n", b"hello", &[b'x'; 500]], true, Method::Get, 5);
    assert_eq!((http(peer.counters()), peer.counters().sk_err), ([1, 0, 1, 0], 0));
    assert_eq!(peer.sent(), ["ACK", "ACK", "ACK", "ACK FIN"]);
    peer.send(ACK, b"");
    peer.assert_closed(0);
}

#[test]
fn a_response_that_announces_the_end_is_the_last() {
    let last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let mut peer = answered(&[last], false, Method::Get, 5);
    assert_eq!(peer.sent(), ["ACK FIN"]);
    peer.send(FIN | ACK, b"");
    assert_eq!(peer.sent(), ["ACK"]);
    peer.assert_closed(0);
    // One that does not announce it has failed.
    let mut peer = answered(&[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], true, Method::Get, 5);
    peer.send(ACK, b"");
    peer.assert_closed(1);
}

#[test]
fn a_response_to_head_has_no_body() {
    let message = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    let peer = answered(&[message], false, Method::Head, 5);
    assert_eq!((http(peer.counters()), peer.counters().tcp_rsp), ([0, 0, 1, 0], 1));
}

#[test]
fn what_is_no_response_is_an_error_and_ends_the_connection() {
    let cases: &[(&[&[u8]], bool)] = &[
        (&[b"SSH-2.0-OpenSSH_9.2\r\n"], false),
        (&[b"HTTP/1.1 200 OK\r\nContent-", b"Length: x\r\n"], false),
        (&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world"], false),
        (&[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello"], false),
        // Cut short.
        (&[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"], true),
        (&[b"HTTP/1.1 200 OK\r\nContent-"], true),
        (&[], true),
    ];
    for (pieces, fin) in cases {
        let mut peer = answered(pieces, *fin, Method::Get, 5);
        assert_eq!((http(peer.counters()), peer.counters().tcp_rsp), ([1, 0, 0, 1], 0), "{pieces:?}");
        assert_eq!(peer.sent().last().unwrap(), "RST ACK", "{pieces:?}");
        assert_eq!(peer.counters().sk_err, 1);
    }
}

#[test]
fn a_header_without_end_is_given_up() {
    let line: Vec<u8> = [b"X: ", &[b'x'; 900][..], b"\r\n"].concat();
    let mut peer = answered(&[b"HTTP/1.1 200 OK\r\n"], false, Method::Get, 1);
    let mut sent = 0;
    while peer.counters().sk_con() > 0 {
        peer.send(ACK, &line);
        sent += line.len();
        assert!(sent < 80_000);
    }
    assert!(sent > 48_000, "{sent}");
    assert_eq!((http(peer.counters()), peer.counters().sk_err), ([1, 0, 0, 1], 1));
}

#[test]
fn a_header_that_drips_is_given_up_in_time() {
    let mut peer = answered(&[b"HTTP/1.1 200 OK\r\nX: "], false, Method::Get, 1);
    let begin = peer.now;
    while peer.counters().sk_con() > 0 {
        peer.send(ACK, b"x");
        peer.wait(SECOND);
        assert!(peer.now - begin < 60 * SECOND);
    }
    // As long as a request is repeated: 2 s, doubled three times.
    assert_eq!((peer.now - begin) / SECOND, 16);
    // A body may come as slowly as it likes.
    let mut peer = answered(&[b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"], false, Method::Get, 1);
    for _ in 0..100 {
        peer.send(ACK, b"x");
        peer.wait(SECOND);
    }
    assert_eq!((http(peer.counters()), peer.counters().sk_err), ([1, 0, 1, 0], 0));
}

/// A server that hears `pieces`, each in a segment.
fn asked(server_close: bool, pieces: &[&[u8]]) -> Peer<V6> {
    let mut peer = Peer::connected(server(Service::TcpServer(http_server(14, server_close))));
    for piece in pieces {
        peer.send(PSH | ACK, piece);
    }
    peer
}

#[test]
fn requests_in_pieces_are_answered() {
    let get: &[u8] =
        b"\r\nGET /some/path?query HTTP/1.1\r\nHost: netrig\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n";
    let post: &[u8] = b"POST / HTTP/1.1\r\nHost: netrig\r\nContent-Length: 11\r\n\r\nhello world";
    let chunked: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n";
    for (message, get, post) in [(get, 1, 0), (post, 0, 1), (chunked, 0, 1)] {
        for size in [1, 3, 50, 1000] {
            let pieces: Vec<&[u8]> = message.chunks(size).collect();
            let mut peer = asked(false, &pieces);
            let mut expected = vec!["ACK"; pieces.len() - 1];
            expected.push("PSH ACK 99");
            assert_eq!(peer.sent(), expected);
            // Twice on the same connection.
            pieces.iter().for_each(|piece| peer.send(PSH | ACK, piece));
            assert_eq!(peer.sent(), expected);
            assert_eq!(http(peer.counters()), [2 * get, 2 * post, 2, 0]);
            peer.send(FIN | ACK, b"");
            assert_eq!(peer.sent(), ["ACK FIN"]);
            peer.send(ACK, b"");
            peer.assert_closed(0);
        }
    }
}

#[test]
fn a_client_that_wants_the_connection_closed_gets_it_closed() {
    for (message, bytes) in [
        (&b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"[..], 99),
        (b"GET / HTTP/1.0\r\n\r\n", 99),
        (b"HEAD / HTTP/1.0\r\n\r\n", 85),
    ] {
        let mut peer = asked(false, &[message]);
        assert_eq!(peer.sent(), [format!("PSH ACK FIN {bytes}")]);
        peer.send(FIN | ACK, b"");
        assert_eq!(peer.sent(), ["ACK"]);
        peer.assert_closed(0);
        assert_eq!(http(peer.counters())[2..], [1, 0]);
    }
    let mut peer = asked(false, &[b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"]);
    assert_eq!(peer.sent(), ["PSH ACK 99"]);
    let mut peer = asked(true, &[b"GET / HTTP/1.1\r\n\r\n"]);
    assert_eq!(peer.sent(), ["PSH ACK FIN 99"]);
}

#[test]
fn requests_that_come_together_are_answered_one_after_another() {
    let ask = b"GET / HTTP/1.1\r\n\r\n";
    let mut peer = asked(false, &[]);
    peer.segment(peer.next, peer.expected, PSH | ACK, &ask.repeat(3));
    for _ in 0..2 {
        assert_eq!(peer.sent(), ["PSH ACK 99"]);
        // Only the first was taken; what was not is sent again.
        peer.next += ask.len() as u32;
        peer.segment(peer.next, peer.expected, PSH | ACK, &ask.repeat(2));
    }
    assert_eq!(peer.sent(), ["PSH ACK 99"]);
    assert_eq!((http(peer.counters()), peer.counters().tcp_req), ([3, 0, 3, 0], 3));
}

#[test]
fn what_is_no_request_is_an_error_and_ends_the_connection() {
    let cases: &[&[&[u8]]] = &[
        &[b"\x16\x03\x01\x02\x00\x01\x00"],
        &[b"DELETE / HTTP/1.1\r\n\r\n"],
        &[b"GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"],
        &[b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"],
        &[b"GET ", b"/ HTTP/2\r\n"],
    ];
    for pieces in cases {
        let mut peer = asked(false, pieces);
        assert_eq!(http(peer.counters()), [0, 0, 0, 1], "{pieces:?}");
        assert_eq!(peer.sent().last().unwrap(), "RST ACK");
        peer.assert_closed(1);
    }
    // A client that closes within a request has made an error; one that closes before a request has not.
    let mut peer = asked(false, &[b"GET / HTTP/1."]);
    peer.send(FIN | ACK, b"");
    assert_eq!((http(peer.counters()), peer.sent().last().unwrap().as_str()), ([0, 0, 0, 1], "ACK FIN"));
    peer.send(ACK, b"");
    peer.assert_closed(1);
    let mut peer = asked(false, &[]);
    peer.send(FIN | ACK, b"");
    peer.send(ACK, b"");
    peer.assert_closed(0);
    assert_eq!(http(peer.counters()), [0; 4]);
}

#[test]
fn a_request_that_drips_is_given_up_in_time() {
    let mut peer = asked(false, &[b"GET / HTTP/1.1\r\nX: "]);
    let begin = peer.now;
    while peer.counters().sk_con() > 0 {
        peer.send(ACK, b"x");
        peer.wait(SECOND);
        assert!(peer.now - begin < 100 * SECOND);
    }
    assert_eq!((peer.now - begin) / SECOND, 60, "the idle time");
    // The content may come slowly.
    let mut peer = asked(false, &[b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n"]);
    for _ in 0..10 {
        peer.wait(50 * SECOND);
        peer.send(ACK, b"x");
    }
    assert_eq!(http(peer.counters()), [0, 1, 1, 0]);
}

#[test]
fn who_expects_http_must_speak_it() {
    let mut tcp = http_client();
    tcp.request = b"hello".into();
    let said = client::<V4>(Service::TcpClient(tcp)).check().unwrap_err().to_string();
    assert!(said.starts_with("the request is not an HTTP/1.1 request"), "{said}");
    let mut to = http_server(14, false);
    to.response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell".into();
    let said = server::<V4>(Service::TcpServer(to)).check().unwrap_err().to_string();
    assert!(said.starts_with("the response is not an HTTP/1.1 response"), "{said}");
}
