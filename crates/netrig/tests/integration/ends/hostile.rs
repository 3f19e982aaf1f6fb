//! What a client may do that it should not.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use netrig_ends::server_session;
use netrig_ends::wire::{self, Reply, Request, Version};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use super::lab::{Link, Server, TIMEOUT, ask, client, fails_with, report};

#[test]
fn two_clients_at_once_and_one_too_many() {
    let mut server = Server::with(&["--max-tests-per-address", "2"]);
    let spawn = || server.client(&["stream", "-c", "127.0.0.1", "--rate", "8mbit", "-t", "5s"]).spawn().unwrap();
    let clients = [spawn(), spawn()];
    server.has_workers(2);
    let third = server.client(&["stream", "-c", "127.0.0.1"]).output().unwrap();
    fails_with(&third, &["the server refused", "2 tests run", "allows 2", "--max-tests-per-address"]);
    for client in clients {
        let output = client.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    server.has_workers(0);
    server.says("done");
}

#[test]
fn a_limit_is_named_to_the_client() {
    let server = Server::with(&["--max-time", "1", "--max-rate", "1gbit", "--max-connections", "2"]);
    for (options, words) in [
        (&["-t", "2", "--rate", "1mbit"][..], "--max-time"),
        (&["-t", "100ms", "--warm-up", "0s"], "--max-rate"),
        (
            &["-t", "100ms", "--warm-up", "0s", "--rate", "1mbit", "--message", "1k", "--connections", "3"],
            "--max-connections",
        ),
    ] {
        let output = server.client(&["stream", "-c", "127.0.0.1"]).args(options).output().unwrap();
        fails_with(&output, &["the server refused", words]);
    }
}

#[test]
fn nobody_is_there() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let output = client(free, &["stream", "-c", "127.0.0.1"]).output().unwrap();
    fails_with(&output, &["127.0.0.1", "nothing listens there", "netrig serve"]);
    fails_with(&client(free, &["rr", "-c", "no.such.host.invalid"]).output().unwrap(), &["no.such.host.invalid"]);
}

#[test]
fn the_port_is_in_use() {
    let server = Server::new();
    let output = Command::new(env!("CARGO_BIN_EXE_netrig"))
        .args(["udp", "--server", "--port", &server.port.to_string()])
        .output()
        .unwrap();
    fails_with(&output, &["in use", "--port", &server.port.to_string()]);
}

#[test]
fn another_version_is_told_so() {
    let server = Server::new();
    let mut link = server.connect();
    link.says(&Request::Hello(Version { protocol: 99, version: "9.9".into(), ..Version::own() }));
    link.expect_end("version 99 (netrig 9.9)");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(listener.local_addr().unwrap().port(), &["stream", "-c", "127.0.0.1"]).spawn().unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let welcome = Version { protocol: 99, version: "9.9".into(), ..Version::own() };
    socket.write_all(&wire::line(&Reply::Welcome(welcome))).unwrap();
    fails_with(&client.wait_with_output().unwrap(), &["version 99", "9.9", "same netrig at both ends"]);
}

#[test]
fn garbage_from_a_client_harms_nobody() {
    let server = Server::new();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 100_000], b"\n\n\n\n", &[b'['; 40_000], b"{\"open\":null}\n"]
    {
        let mut link = server.connect();
        // It may hang up before all is written.
        let _ = link.socket.write_all(bytes);
        let _ = link.socket.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = link.lines.read_to_end(&mut rest);
        assert!(rest.starts_with(b"{\"welcome\""));
    }
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_slow_loris_is_dropped_and_an_idle_client_too() {
    let server = Server::with(&["--handshake-timeout", "300ms", "--idle-timeout", "300ms"]);
    let mut loris = server.connect();
    for byte in b"{\"hello\":{\"protocol\":1" {
        if loris.socket.write_all(&[*byte]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    loris.expect_end("--handshake-timeout");
    server.greeted().expect_end("--idle-timeout");
}

#[test]
fn a_thousand_half_open_clients_cost_little() {
    let mut server = Server::with(&["--max-clients-per-address", "1000", "--handshake-timeout", "1h"]);
    let mut links = Vec::new();
    for _ in 0..1000 {
        let mut link = server.connect();
        // Half a request, as long as one may be.
        let mut half = wire::line(&Request::Hello(Version::own()));
        half.pop();
        half.resize(16_000, b' ');
        link.socket.write_all(&half).unwrap();
        links.push(link);
    }
    // All have been heard: each answer comes after what was accepted before.
    for link in &mut links {
        assert!(matches!(link.hears(), Reply::Welcome(_)));
    }
    let crowded = server.connect();
    crowded.expect_end("allows 1000 (--max-clients)");
    let memory = server.most_memory();
    assert!(memory < 64 << 20, "the server took {memory} bytes");
    io::stderr().write_all(format!("1000 half-open clients: {} KiB at most\n", memory >> 10).as_bytes()).unwrap();
    // A client that is connected already is served.
    let link = &mut links[500];
    link.socket.write_all(b"\n").unwrap();
    assert!(matches!(link.hears(), Reply::Machine(_)));
    drop(links);
    server.says("refused");
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_flood_from_one_address_leaves_room_for_others() {
    let server = Server::with(&["--max-clients-per-address", "4"]);
    let flood: Vec<Link> = (0..4).map(|_| server.connect()).collect();
    for _ in 0..200 {
        server.connect().expect_end("--max-clients-per-address");
    }
    let mut other = server.connect_from([127, 0, 0, 2].into());
    assert!(matches!(other.hears(), Reply::Welcome(_)));
    drop(flood);
}

#[test]
fn a_server_without_file_descriptors_recovers() {
    let server = Server::with(&["--max-clients-per-address", "1000"]);
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = |current| prlimit(Some(server.pid()), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let before = limit(Some(40));
    let mut links: Vec<Link> = (0..60).map(|_| server.connect()).collect();
    assert!(matches!(links[0].hears(), Reply::Welcome(_)));
    // Clients that wait are accepted as others leave.
    links.drain(..30);
    assert!(matches!(links[29].hears(), Reply::Welcome(_)));
    drop(links);
    limit(before.current);
    report(&server, &["stream", "-c", "127.0.0.1", "--rate", "8mbit"]);
}

#[test]
fn a_stranger_at_the_data_port_is_shut_out() {
    let server = Server::new();
    let mut long = ask();
    long.phases.window = Duration::from_millis(300);
    let (mut link, port) = server.opened(long);
    let data = SocketAddr::from(([127, 0, 0, 1], port));
    let from = |address: [u8; 4]| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&data.into()).unwrap();
        TcpStream::from(socket)
    };
    let mut stranger = from([127, 0, 0, 2]);
    stranger.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut own = from([127, 0, 0, 1]);
    assert_eq!(link.hears(), Reply::Connected);
    link.says(&Request::Ping { number: 1 });
    let Reply::Pong { now_ns, .. } = link.hears() else { panic!() };
    link.says(&Request::Go { start_ns: now_ns + 100_000_000 });
    let sender = std::thread::spawn(move || while own.write_all(&[0; 4096]).is_ok() {});
    let done = loop {
        match link.hears() {
            Reply::Done(done) => break done,
            Reply::Sample(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(done.record.name, server_session::NAME);
    assert!(done.record.bytes() > 0);
    assert!(done.record.connections[0].remote.starts_with("127.0.0.1:"));
    drop(link);
    sender.join().unwrap();
}

#[test]
fn a_limit_under_which_nothing_runs_is_refused() {
    for option in ["--max-tests", "--max-clients", "--max-threads", "--max-connections", "--max-tests-per-address"] {
        let mut serve = std::process::Command::new(env!("CARGO_BIN_EXE_netrig"));
        let output = serve.args(["serve", "--port", "0", option, "0"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option}: {said}");
        assert!(said.contains(option) && said.contains("1.."), "{said}");
    }
}
