//! A server's limits hold against every client.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use netrig_ends::wire::{Reply, Request, TestRequest};
use rig_load::plan::{Flow, Load};

use super::lab::{Link, Server, ask, moved, report};

/// 1 Mbit/s in bytes per second.
const MEGABIT: f64 = 125_000.0;

/// What a server may have moved since `begin`, and a little for the headers of a datagram.
fn allowance(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * MEGABIT
}

#[test]
fn what_the_kernel_is_told_to_pace_stays_below_the_limit_without_fq() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let begin = Instant::now();
    // Loopback has no queueing discipline, so that nothing in the kernel holds the server's end to the rate.
    let udp = ["udp", "-c", "127.0.0.1", "--reverse", "--rate", "1mbit", "--kernel-pacing", "--batch", "1"];
    let data = report(&server, &udp);
    let sent = moved(&data, 1);
    assert!(sent > 0 && sent as f64 <= allowance(begin), "{sent} bytes sent");
}

#[test]
fn the_first_message_of_a_stream_waits_for_its_time() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let begin = Instant::now();
    let data = report(&server, &["stream", "-c", "127.0.0.1", "-R", "--rate", "1mbit", "--message", "20k"]);
    let sent = moved(&data, 1);
    assert!(sent > 0 && sent as f64 <= allowance(begin), "{sent} bytes sent");
    let large = rig_load::plan::TcpStream {
        flow: Flow::Reverse,
        message: 60 << 20,
        throttle: Some(MEGABIT as u64),
        ..super::lab::stream()
    };
    let mut link = server.greeted();
    link.says(&Request::Open(TestRequest { load: Load::TcpStream(large), ..ask() }.into()));
    let Reply::Refused { why } = link.hears() else { panic!("it was not refused") };
    assert!(["a message of 60", "longer than the test", "--max-rate"].iter().all(|word| why.contains(word)), "{why}");
}

/// A test of transactions whose client has agreed to a rate that it does not keep.
fn greedy(load: fn(rig_load::plan::Transactions) -> Load, response: u32) -> TestRequest {
    let rate = f64::from(1_000_000 / 8 / response.max(1));
    let transactions = rig_load::plan::Transactions {
        threads: 1,
        connections: 2,
        request: 1,
        response,
        in_flight: 1,
        schedule: rig_load::plan::Schedule::Open { rate, arrivals: rig_load::plan::ArrivalSpacing::Uniform },
        timeout: Duration::from_secs(1),
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        congestion_control: None,
        options: Default::default(),
    };
    TestRequest { load: load(transactions), ..ask() }
}

/// Lets a test begin whose connections this process has made by hand.
fn begins(link: &mut Link) {
    assert_eq!(link.hears(), Reply::Connected);
    link.says(&Request::Ping { number: 1 });
    let Reply::Pong { now_ns, .. } = link.hears() else { panic!() };
    link.says(&Request::Go { start_ns: now_ns + 20_000_000 });
}

#[test]
fn a_responder_answers_no_faster_than_the_limit() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let (mut link, port) = server.opened(greedy(Load::TcpRr, 5_000));
    let mut sockets: Vec<_> = (0..2).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let begin = Instant::now();
    begins(&mut link);
    let mut answered = 0;
    'load: for turn in 0.. {
        if begin.elapsed() > Duration::from_millis(800) {
            break 'load;
        }
        let socket = &mut sockets[turn % 2];
        if socket.write_all(b"?").is_err() {
            break;
        }
        let mut left = 5_000;
        while left > 0 {
            let Ok(more @ 1..) = socket.read(&mut [0; 5_000][..left]) else { break 'load };
            left -= more;
            answered += more;
        }
        assert!(answered as f64 <= allowance(begin), "{answered} bytes in {:?}", begin.elapsed());
    }
    assert!(answered > 0);
}

#[test]
fn a_responder_holds_no_more_connections_than_the_test_has() {
    let server = Server::with(&["--max-rate", "1gbit"]);
    let (mut link, port) = server.opened(greedy(Load::TcpCrr, 100));
    let connect = || TcpStream::connect(("127.0.0.1", port));
    let _kept = [connect().unwrap(), connect().unwrap()];
    begins(&mut link);
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", server.workers()[0])).unwrap().count();
    let before = descriptors();
    // Connections that ask for nothing, as many as the kernel queues: they are not taken in beyond the test's own.
    let mut most = before;
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into());
            std::thread::sleep(Duration::from_millis(5));
            most = most.max(descriptors());
            socket
        })
        .collect();
    assert!(most > before, "no client was taken in");
    // Two connections, and what the load thread waits by.
    assert!(most <= before + 2 + 4, "{most} descriptors, {before} before");
    drop(clients);
}

#[test]
fn a_client_that_sends_more_datagrams_than_it_may_loses_its_test() {
    let server = Server::with(&["--max-rate", "1mbit"]);
    let datagrams = rig_load::plan::Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 1000,
        batch: 1,
        segments: 1,
        coalesce: false,
        throttle: Some(100_000),
        pacing: rig_load::plan::Pacing::Thread,
        shared_clock: false,
        send_buffer: None,
        receive_buffer: None,
        options: Default::default(),
    };
    let mut ask = TestRequest { load: Load::UdpStream(datagrams), ..ask() };
    ask.phases.window = Duration::from_secs(60);
    let (mut link, port) = server.opened(ask);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    // The greeting of a flow: docs of `rig_load::greeting`.
    let mut hello = [0u8; 40];
    hello[..8].copy_from_slice(b"netrig\0\x01");
    hello[11] = 1;
    hello[31] = 1;
    socket.send(&hello).unwrap();
    let welcome = socket.recv(&mut [0; 100]).unwrap();
    assert_eq!(welcome, 40);
    begins(&mut link);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let begin = Instant::now();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
                let _ = socket.send(&[0; 1000]);
            }
        });
        link.expect_end("more than");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        flood.join().unwrap();
    });
}
