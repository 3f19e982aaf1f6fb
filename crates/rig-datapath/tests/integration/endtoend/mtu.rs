//! Transfers across a wire with a smaller MTU: they go on because the errors that its router sends reach, translated,
//! the sender of the packet that was too big (RFC 1191, RFC 8201).

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rig_sys::netns::NetNs;

use super::lab::{Lab, MtuBottleneck, Plan, Random, TIMEOUT, counter, server};
use super::programs::{has, run_well};
use super::talk::again;
use super::{V4, V6, backend, config, full_nat, sizes, tcp};

const PORT: u16 = 7000;
const LENGTH: usize = 3_000_001;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

fn receive(mut stream: TcpStream, seen: &AtomicU64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return all,
            length => {
                all.extend(&buffer[..length]);
                seen.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    }
}

fn send(mut stream: TcpStream, data: &[u8]) {
    stream.write_all(data).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // Until the other side has closed too.
    let _ = stream.read(&mut [0]);
}

/// One transfer through the balancer; `seen` counts what has arrived of it.
fn transfer(listener: &TcpListener, client: &NetNs, service: SocketAddr, way: Direction, seen: &AtomicU64) {
    let data = Random::new(LENGTH as u64).bytes(LENGTH);
    let received = thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            match way {
                Direction::Up => receive(stream, seen),
                Direction::Down => {
                    send(stream, &data);
                    Vec::new()
                }
            }
        });
        let stream = client.run(|| TcpStream::connect_timeout(&service, TIMEOUT).unwrap()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let received = match way {
            Direction::Up => {
                send(stream, &data);
                Vec::new()
            }
            Direction::Down => receive(stream, seen),
        };
        let accepted = accepted.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if way == Direction::Up { accepted } else { received }
    });
    assert!(received == data, "{} of {LENGTH} bytes", received.len());
}

/// The router does not send errors: what it does not forward disappears.
const MUTE: &str = "
table inet mute {
    chain out {
        type filter hook output priority 0; policy accept;
        icmp type destination-unreachable counter drop
        icmpv6 type packet-too-big counter drop
    }
}
";

/// With errors suppressed nothing arrives; as soon as they are sent, the same transfer goes on. Which of client and server have IPv6.
fn transfer_needs_errors(narrow: MtuBottleneck, (ipv6, server_ipv6): (bool, bool), way: Direction) {
    if !has("nft", "--version", "nftables") {
        return;
    }
    let plan = Plan { servers: 1, narrow, ..Plan::default() };
    let address = if ipv6 { V6 } else { V4 };
    let local = full_nat(if server_ipv6 { V6 } else { V4 });
    let service = tcp(address, 80, local, vec![backend(server(0, server_ipv6, PORT), 1)]);
    let Some(mut lab) = Lab::new(plan, sizes(4096), &config([service])) else { return };
    let at = SocketAddr::new(address.parse::<IpAddr>().unwrap(), 80);
    let any: SocketAddr = ([0_u16; 8], PORT).into();
    let listener = lab.wires.servers[0].run(|| TcpListener::bind(any).unwrap()).unwrap();
    // Whose packets are too large, and the router that they come to by way of the balancer.
    let (client, router) = (again(&lab.wires.client), again(&lab.wires.routers[1]));
    let sender = again(if way == Direction::Up { &lab.wires.client } else { &lab.wires.servers[0] });
    let told_ipv6 = if way == Direction::Up { ipv6 } else { server_ipv6 };
    let errors = if told_ipv6 { "Icmp6InPktTooBigs" } else { "IcmpInDestUnreachs" };

    run_well(&router, "nft", &[MUTE]);
    let seen = AtomicU64::new(0);
    lab.during(|| {
        thread::scope(|scope| {
            let transfer = scope.spawn(|| transfer(&listener, &client, at, way, &seen));
            let muted = || run_well(&router, "nft", &["list", "table", "inet", "mute"]);
            let deadline = Instant::now() + TIMEOUT;
            while !muted().lines().any(|line| line.contains("counter packets") && !line.contains("packets 0 ")) {
                assert!(Instant::now() < deadline && !transfer.is_finished(), "no packet is too large: {}", muted());
                thread::sleep(Duration::from_millis(20));
            }
            thread::sleep(Duration::from_secs(1));
            assert_eq!(seen.load(Ordering::Relaxed), 0, "{}", muted());
            assert_eq!(counter(&sender, errors), 0);
            run_well(&router, "nft", &["delete", "table", "inet", "mute"]);
            transfer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    });
    assert_eq!(seen.load(Ordering::Relaxed), LENGTH as u64);
    assert!(counter(&sender, errors) > 0, "it was told nothing");
    assert_eq!((lab.drops(), lab.wires.damage()), (vec![], vec![]));
    // The other way across the same wire, now that nothing is in the way.
    let back = if way == Direction::Up { Direction::Down } else { Direction::Up };
    lab.during(|| transfer(&listener, &client, at, back, &AtomicU64::new(0)));
    assert_eq!((lab.drops(), lab.wires.damage()), (vec![], vec![]));
}

#[test]
fn towards_the_server() {
    transfer_needs_errors(MtuBottleneck::Server(1400), (false, false), Direction::Up);
}

#[test]
fn towards_the_client() {
    transfer_needs_errors(MtuBottleneck::Client(1300), (false, false), Direction::Down);
}

#[test]
fn towards_the_server_over_ipv6() {
    transfer_needs_errors(MtuBottleneck::Server(1400), (true, true), Direction::Up);
}

#[test]
fn towards_the_client_over_ipv6() {
    transfer_needs_errors(MtuBottleneck::Client(1280), (true, true), Direction::Down);
}

/// The client has IPv6 and the server IPv4: who is told is of the other family than the router.
#[test]
fn towards_a_server_of_ipv4() {
    transfer_needs_errors(MtuBottleneck::Server(1400), (true, false), Direction::Up);
}

#[test]
fn towards_a_client_of_ipv6() {
    transfer_needs_errors(MtuBottleneck::Client(1300), (true, false), Direction::Down);
}
