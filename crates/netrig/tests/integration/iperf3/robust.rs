//! What goes wrong, and what others do to a server.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use super::peers::{Peer, client, pair, serve};
use crate::ntttcp::process::free_base;

/// A cookie that no test before had: a server may still be ending the test whose cookie it was, and take its next
/// connection for a stream of that one.
fn new_cookie() -> [u8; 37] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let text = format!("{:0>36}\0", NEXT.fetch_add(1, Ordering::Relaxed));
    text.into_bytes().try_into().unwrap()
}

fn connected(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn framed(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

/// All bytes that a server says until it ends the connection.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn errors_have_the_originals_words_and_status() {
    let home = tempfile::tempdir().unwrap();
    let port = free_base(1);
    let said = client(&Peer::Netrig, port, "-t 1", home.path()).end();
    assert_eq!(said.status, Some(1));
    assert!(said.err.starts_with("iperf3: error - unable to connect to server - "), "{said:#?}");
    let said = client(&Peer::Netrig, port, "-t 1 -J", home.path()).end();
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert!(
        said.status == Some(1) && json["error"].as_str().unwrap().starts_with("error - unable to connect to server"),
        "{said:#?}"
    );
    let said = client(&Peer::Netrig, port, "-F payload", home.path()).end();
    assert!(said.status == Some(1) && said.err.contains("parameter error - --file is not honoured: "), "{said:#?}");
    let (said, _) = pair(&Peer::Netrig, "", &Peer::Netrig, "-C no-such -t 1");
    assert!(said.status == Some(1) && said.err.contains("unable to set TCP_CONGESTION"), "{said:#?}");
    let (said, server) = pair(&Peer::Netrig, "--server-max-duration 5", &Peer::Netrig, "-t 6");
    assert_eq!((said.status, server.status), (Some(1), Some(0)));
    assert!(
        said.err.contains("error - client's requested duration exceeds the server's maximum permitted limit"),
        "{said:#?}"
    );
    let (said, _) = pair(&Peer::Netrig, "--server-bitrate-limit 10M", &Peer::Netrig, "-b 6M -P 2 -t 1");
    assert!(said.err.contains("total required bandwidth is larger than server limit"), "{said:#?}");
    // Above the limit in fact, where nothing was asked for.
    let (said, _) = pair(&Peer::Netrig, "--server-bitrate-limit 1M/1", &Peer::Netrig, "-t 30");
    assert!(said.err.contains("total required bandwidth is larger than server limit"), "{said:#?}");
}

#[test]
fn a_second_client_is_told_that_the_server_is_busy_if_so_asked() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "--one-at-a-time", home.path());
    let mut first = connected(server.port);
    first.write_all(&new_cookie()).unwrap();
    let mut asked = [0];
    first.read_exact(&mut asked).unwrap();
    assert_eq!(asked, [9]);
    let said = client(&Peer::Netrig, server.port, "-t 1", home.path()).end();
    assert!(
        said.status == Some(1) && said.err.contains("the server is busy running a test. try again later"),
        "{said:#?}"
    );
    // Its place is free as soon as it has gone.
    drop(first);
    let mut tries = 0;
    while client(&Peer::Netrig, server.port, "-n 1M", home.path()).end().status != Some(0) {
        tries += 1;
        assert!(tries < 100, "the place is never free");
    }
}

#[test]
fn what_is_no_client_is_harmless() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    // Some that say nothing, some that say half a cookie.
    let half_open: Vec<TcpStream> = (0..200)
        .map(|index| {
            let mut stream = connected(server.port);
            stream.write_all(&new_cookie()[..index % 37]).unwrap();
            stream
        })
        .collect();
    for (what, bytes, code) in [
        ("parameters that are too long", u32::MAX.to_be_bytes().to_vec(), 114),
        ("no JSON", framed("{nonsense"), 114),
        ("another type", framed("[1,2]"), 114),
        ("too many streams", framed(r#"{"tcp":true,"parallel":1000}"#), 6),
        ("SCTP", framed(r#"{"sctp":true}"#), 18),
    ] {
        if what == "SCTP" && Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP)).is_ok() {
            continue;
        }
        let mut stream = connected(server.port);
        stream.write_all(&new_cookie()).unwrap();
        stream.write_all(&bytes).unwrap();
        let said = rest(stream);
        assert_eq!(said[..6], [9, 0xfe, 0, 0, 0, code], "{what}: {said:?}");
    }
    // A state that makes no sense while streams are awaited, and a stream of an unknown test, which is asked for its own.
    let mut stream = connected(server.port);
    stream.write_all(&new_cookie()).unwrap();
    stream.write_all(&framed(r#"{"tcp":true,"parallel":1}"#)).unwrap();
    let mut states = [0; 2];
    stream.read_exact(&mut states).unwrap();
    assert_eq!(states, [9, 10]);
    stream.write_all(&[4]).unwrap();
    assert_eq!(rest(stream)[..5], [0xfe, 0, 0, 0, 110]);
    let said = client(&Peer::Netrig, server.port, "-n 1M", home.path()).end().succeeded();
    assert!(said.out.contains("iperf Done."), "{said:#?}");
    drop(half_open);
}

#[test]
fn only_the_right_word_opens_a_stream() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    let mut control = connected(server.port);
    control.write_all(&new_cookie()).unwrap();
    control.write_all(&framed(r#"{"udp":true,"parallel":1,"len":1000,"time":1,"omit":0}"#)).unwrap();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [9, 10]);
    let stray = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stream = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Of another address than the control connection's.
    let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
    elsewhere.send_to(b"9876", ("127.0.0.1", server.port)).unwrap();
    for stray_bytes in [&b""[..], b"987", b"98765", b"6789", &[0; 1000]] {
        stray.send_to(stray_bytes, ("127.0.0.1", server.port)).unwrap();
    }
    stream.connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.send(b"9876").unwrap();
    let mut word = [0; 10];
    assert_eq!(stream.recv(&mut word).unwrap(), 4);
    assert_eq!(word[..4], *b"6789");
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [1, 2], "the test begins with the one stream");
    for socket in [&stray, &elsewhere] {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut word).is_err(), "what was no word was answered");
    }
    control.write_all(&[12]).unwrap();
    drop(control);
    let said = client(&Peer::Netrig, server.port, "-u -t 1", home.path()).end().succeeded();
    assert!(said.out.contains("iperf Done."), "{said:#?}");
}

#[test]
fn a_killed_client_frees_its_place_and_a_stopped_server_says_so() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "--one-at-a-time", home.path());
    let killed = client(&Peer::Netrig, server.port, "-t 0", home.path());
    std::thread::sleep(Duration::from_millis(500));
    drop(killed);
    let mut tries = 0;
    while client(&Peer::Netrig, server.port, "-n 1M", home.path()).end().status != Some(0) {
        tries += 1;
        assert!(tries < 100, "the place is never free");
    }
    let last = client(&Peer::Netrig, server.port, "-t 0 --logfile log", home.path());
    crate::ntttcp::process::until_logged(&home.path().join("log"), " sec ");
    server.process.interrupt();
    assert_eq!(server.process.end().status, Some(0));
    let said = last.end();
    assert_eq!(said.status, Some(1), "{said:#?}");
    let log = std::fs::read_to_string(home.path().join("log")).unwrap();
    assert!(log.contains("iperf3: error - the server has terminated"), "{log}");
}

/// Streams have their places by who connected first, whichever cookie arrives first: with `--bidir` a server would send over the wrong one.
#[test]
fn streams_are_in_the_order_of_their_connections() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    let mut control = connected(server.port);
    let cookie = new_cookie();
    control.write_all(&cookie).unwrap();
    control
        .write_all(&framed(r#"{"tcp":true,"parallel":1,"bidirectional":true,"len":1000,"time":1,"omit":0}"#))
        .unwrap();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [9, 10]);
    let (mut first, mut second) = (connected(server.port), connected(server.port));
    second.write_all(&cookie).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    first.write_all(&cookie).unwrap();
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [1, 2]);
    // The server receives over the first and sends over the second.
    let mut some = [0; 1000];
    second.read_exact(&mut some).unwrap();
    first.set_nonblocking(true).unwrap();
    assert!(first.read(&mut some).is_err(), "the server sends over the stream that it receives from");
    control.write_all(&[12]).unwrap();
}

/// A server whose host takes no connection: a listener whose queue is full.
#[test]
fn a_client_that_waits_for_its_server_is_ended_by_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let at = listener.local_addr().unwrap().as_socket().unwrap();
    let fill: Vec<_> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&at, Duration::from_millis(300)).ok()).take(100).collect();
    assert!(!fill.is_empty() && fill.len() < 100);
    let waits = client(&Peer::Netrig, at.port(), "-t 1", home.path());
    std::thread::sleep(Duration::from_millis(500));
    waits.interrupt();
    let said = waits.end();
    assert!(said.status == Some(0) && said.err.contains("interrupt - the client has terminated"), "{said:#?}");
    let said = client(&Peer::Netrig, at.port(), "-t 1 --connect-timeout 200", home.path()).end();
    assert!(said.status == Some(1) && said.err.contains("Connection timed out"), "{said:#?}");
}

/// A word that is said twice before it is answered opens one stream, and both are answered.
#[test]
fn a_word_that_is_said_again_opens_no_second_stream() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    let mut control = connected(server.port);
    control.write_all(&new_cookie()).unwrap();
    control.write_all(&framed(r#"{"udp":true,"parallel":2,"len":1000,"time":1,"omit":0}"#)).unwrap();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [9, 10]);
    let streams = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    for stream in &streams {
        stream.connect(("127.0.0.1", server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
    let mut word = [0; 10];
    for _ in 0..3 {
        streams[0].send(b"9876").unwrap();
    }
    assert_eq!(streams[0].recv(&mut word).unwrap(), 4);
    // The test has one stream of two so far.
    control.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(control.read(&mut states).is_err(), "one client's word has opened two streams");
    control.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    streams[1].send(b"9876").unwrap();
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [1, 2]);
    control.write_all(&[12]).unwrap();
}

/// The answer to the word was lost, and the server's datagrams come: a server that goes on has the stream.
#[test]
fn a_client_whose_answer_was_lost_goes_on_with_its_server() {
    let home = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let words = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let client = client(&Peer::Netrig, port, "-u -R -t 1 -b 1M", home.path());
    let (mut control, _) = listener.accept().unwrap();
    let mut cookie = [0; 37];
    control.read_exact(&mut cookie).unwrap();
    control.write_all(&[9]).unwrap();
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    let mut parameters = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut parameters).unwrap();
    control.write_all(&[10]).unwrap();
    let mut word = [0; 10];
    let (_, from) = words.recv_from(&mut word).unwrap();
    // Held back by Nagle's algorithm until the client's kernel acknowledges what was said before: the datagrams overtake it.
    control.write_all(&[1, 2]).unwrap();
    for number in 1_u32..200 {
        let mut datagram = [0; 1000];
        datagram[8..12].copy_from_slice(&number.to_be_bytes());
        words.send_to(&datagram, from).unwrap();
    }
    // It ends the test as one that runs.
    let mut state = [0];
    if control.read_exact(&mut state).is_err() {
        panic!("{:#?}", client.end());
    }
    assert_eq!(state, [4], "the client has not begun");
    drop(control);
    assert_eq!(client.end().status, Some(1));
}

/// Each stream has a thread: who asks for more than there may be of all tests together is told that the server is busy, until one has gone.
#[test]
fn all_tests_together_have_no_more_streams_than_the_server_bears() {
    let home = tempfile::tempdir().unwrap();
    let server = serve(&Peer::Netrig, "", home.path());
    let ask = || {
        let mut control = connected(server.port);
        control.write_all(&new_cookie()).unwrap();
        control.write_all(&framed(r#"{"tcp":true,"parallel":128,"bidirectional":true,"time":1,"omit":0}"#)).unwrap();
        let mut said = [0; 2];
        control.read_exact(&mut said).unwrap();
        (control, said)
    };
    // 256 streams each, 4096 of all.
    let mut tests: Vec<_> = (0..16).map(|_| ask()).collect();
    assert!(tests.iter().all(|(_, said)| *said == [9, 10]));
    let (refused, said) = ask();
    assert_eq!((said, &rest(refused)[..4]), ([9, 0xfe], &[0, 0, 0, 121][..]));
    tests.pop();
    let mut tries = 0;
    while ask().1 != [9, 10] {
        tries += 1;
        assert!(tries < 100, "the place is never free");
        std::thread::sleep(Duration::from_millis(50));
    }
}
