use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as Client};
use std::time::Duration;

use rig_sys::clock::{monotonic_after, monotonic_ns};

use super::*;
use crate::plan::{Engine, Flow, ReceiveMode, SendMode, TcpStream};

const TIMEOUT: Duration = Duration::from_secs(20);

fn stream(threads: u32, connections: u32, engine: Engine) -> TcpStream {
    TcpStream {
        flow: Flow::Forward,
        threads,
        connections,
        message: 10_000,
        send_buffer: None,
        receive_buffer: None,
        no_delay: true,
        throttle: None,
        congestion_control: None,
        engine,
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
        options: Default::default(),
    }
}

fn receiver(ports: usize, protocol: Protocol, outstanding: Option<u32>) -> Receiver {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let ports = vec![Port { at, cpu: None }; ports];
    Receiver::open(&ReceiverSettings {
        protocol,
        ports,
        message: 65_536,
        receive_buffer: None,
        no_delay: false,
        outstanding,
    })
    .unwrap()
}

fn sending(to: &[SocketAddr], stream: TcpStream, protocol: Protocol, quota: Option<u64>) -> SenderSettings {
    let targets = to.iter().map(|&to| Target { to, cpu: None }).collect();
    SenderSettings {
        stream,
        protocol,
        targets,
        source: None,
        source_port: None,
        pacing: None,
        quota,
        timeout: Duration::from_secs(5),
        time_limit: Duration::from_millis(100),
    }
}

fn bytes(counts: &[Counts]) -> u64 {
    counts.iter().map(|c| c.bytes).sum()
}

#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = monotonic_after(TIMEOUT);
    while !done() {
        assert!(monotonic_ns() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_message_of_a_quota_arrives_at_its_port_and_is_counted_once() {
    for (engine, outstanding) in [
        (Engine::Blocking, None),
        (Engine::Blocking, Some(4)),
        (Engine::Uring { outstanding: 3 }, None),
        (Engine::Uring { outstanding: 3 }, Some(4)),
    ] {
        let receiver = receiver(2, Protocol::Tcp, outstanding);
        let sending = sending(receiver.addresses(), stream(2, 1, engine), Protocol::Tcp, Some(37));
        let sender = Sender::open(&sending, &|| false).unwrap();
        assert_eq!(sender.connections(), 2);
        sender.start();
        until("the quota", || bytes(&receiver.counts()) == 2 * 370_000);
        let counts = sender.counts();
        assert_eq!(counts.iter().map(|c| (c.bytes, c.operations)).collect::<Vec<_>>(), [(370_000, 37); 2]);
        assert_eq!(receiver.counts().iter().map(|c| c.bytes).collect::<Vec<_>>(), [370_000; 2]);
        sender.stop().unwrap();
        until("the end of the connections", || receiver.open_connections() == 0);
        // What ended connections received stays counted.
        assert_eq!(bytes(&receiver.counts()), 740_000);
        assert_eq!(receiver.accepted(), 2);
        receiver.stop().unwrap();
    }
}

/// Connections that wait in the kernel behind one that has ended are not missed, nor is what they hold.
#[test]
fn a_receiver_is_idle_only_when_it_has_taken_everything() {
    for outstanding in [None, Some(2)] {
        let receiver = receiver(2, Protocol::Tcp, outstanding);
        assert!(receiver.is_idle().unwrap());
        for round in 1..=5 {
            let connect = |_| receiver.addresses().iter().map(|to| Client::connect(to).unwrap());
            let clients: Vec<Client> = (0..8).flat_map(connect).collect();
            for mut client in clients {
                assert!(!receiver.is_idle().unwrap());
                client.write_all(&[7; 30_000]).unwrap();
            }
            until("rest", || receiver.is_idle().unwrap());
            assert_eq!(receiver.accepted(), round * 16);
            assert_eq!(bytes(&receiver.counts()), round as u64 * 16 * 30_000);
        }
        receiver.stop().unwrap();
    }
}

#[test]
fn a_sender_knows_when_its_peer_has_taken_everything() {
    for engine in [Engine::Blocking, Engine::Uring { outstanding: 3 }] {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sending = sending(&[listener.local_addr().unwrap()], stream(1, 2, engine), Protocol::Tcp, Some(10));
        let sender = Sender::open(&sending, &|| false).unwrap();
        sender.start();
        until("the end of the sending", || sender.is_ended());
        let mut taken: Vec<Client> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        assert!(
            !sender.finish(monotonic_after(Duration::from_millis(50)), &|| false).unwrap(),
            "the peer has not read"
        );
        assert!(!sender.finish(monotonic_after(TIMEOUT), &|| true).unwrap());
        let read: usize = taken.iter_mut().map(|end| end.read_to_end(&mut Vec::new()).unwrap()).sum();
        assert_eq!(read, 10 * 10_000);
        drop(taken.pop());
        assert!(!sender.finish(monotonic_after(Duration::from_millis(50)), &|| false).unwrap(), "one is open");
        drop(taken);
        assert!(sender.finish(monotonic_after(TIMEOUT), &|| false).unwrap());
        sender.stop().unwrap();
    }
}

#[test]
fn one_port_takes_whoever_comes_and_whoever_goes() {
    let receiver = receiver(1, Protocol::Tcp, None);
    let to = receiver.addresses()[0];
    let sending = sending(&[to, to], stream(2, 3, Engine::Blocking), Protocol::Tcp, None);
    let sender = Sender::open(&sending, &|| false).unwrap();
    let mut stranger = Client::connect(to).unwrap();
    stranger.write_all(b"hello").unwrap();
    drop(stranger);
    sender.start();
    until("seven connections", || receiver.accepted() == 7 && receiver.open_connections() == 6);
    until("traffic", || sender.counts().iter().all(|c| c.bytes > 1_000_000));
    assert!(sender.mean_rtt_us().is_some());
    assert_eq!(sender.ended(), 0);
    // The receiver goes first: the sender's threads end, and that is no failure.
    receiver.stop().unwrap();
    until("the sender's end", || sender.is_ended());
    sender.stop().unwrap();
}

#[test]
fn a_receiver_with_open_connections_stops() {
    for outstanding in [None, Some(2)] {
        let receiver = receiver(2, Protocol::Tcp, outstanding);
        let mut silent: Vec<Client> = receiver.addresses().iter().map(|to| Client::connect(to).unwrap()).collect();
        until("the connections", || receiver.accepted() == 2);
        silent[0].write_all(b"x").unwrap();
        receiver.stop().unwrap();
    }
}

#[test]
fn datagrams_are_counted_and_nobody_listening_is_no_end() {
    let receiver = receiver(1, Protocol::Udp, None);
    assert!(!receiver.was_heard_of());
    let to = receiver.addresses()[0];
    let closed = { std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let mut plan = stream(2, 1, Engine::Blocking);
    plan.message = 1000;
    plan.throttle = Some(10_000_000);
    let sender = Sender::open(&sending(&[to, closed], plan, Protocol::Udp, None), &|| false).unwrap();
    sender.start();
    until("datagrams", || receiver.counts()[0].operations > 100);
    assert!(receiver.was_heard_of());
    let counts = receiver.counts();
    assert_eq!(counts[0].bytes, counts[0].operations * 1000);
    assert_eq!(sender.ended(), 0);
    assert!(!sender.finish(monotonic_after(TIMEOUT), &|| false).unwrap(), "datagrams have no end");
    sender.stop().unwrap();
    receiver.stop().unwrap();
}

#[test]
fn what_cannot_be_had_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let receiving = ReceiverSettings {
        protocol: Protocol::Tcp,
        ports: vec![Port { at, cpu: None }],
        message: 1,
        receive_buffer: None,
        no_delay: false,
        outstanding: None,
    };
    let error = Receiver::open(&receiving).unwrap_err().to_string();
    assert!(error.contains(&format!("port {} is in use", at.port())) && error.contains("base port"), "{error}");
    drop(taken);
    let mut sending = sending(&[at], stream(1, 1, Engine::Blocking), Protocol::Tcp, None);
    let error = Sender::open(&sending, &|| false).unwrap_err().to_string();
    assert!(error.contains(&at.to_string()) && error.contains("nothing listens"), "{error}");
    let error = Sender::open(&sending, &|| true).unwrap_err().to_string();
    assert!(error.contains("interrupted"), "{error}");
    sending.source = Some("192.0.2.9".parse().unwrap());
    let error = Sender::open(&sending, &|| false).unwrap_err().to_string();
    assert!(error.contains("192.0.2.9") && error.contains("no interface"), "{error}");
}

#[test]
fn connections_leave_from_the_address_and_ports_asked_for() {
    let receiver = receiver(1, Protocol::Tcp, None);
    let to = receiver.addresses()[0];
    let mut sending = sending(&[to], stream(1, 2, Engine::Blocking), Protocol::Tcp, None);
    sending.source = Some("127.0.0.1".parse().unwrap());
    sending.pacing = Some(1_000_000);
    // Another program may have either port.
    let ports = [23_451, 24_561, 25_671, 26_781, 27_891].into_iter();
    let mut attempts = ports.filter_map(|first| {
        sending.source_port = Some(first);
        Some((first, Sender::open(&sending, &|| false).ok()?))
    });
    let (first, sender) = attempts.next().expect("no pair of ports is free");
    let locals: Vec<String> = sender.addresses().map(|(local, _)| local.to_owned()).collect();
    assert_eq!(locals, [format!("127.0.0.1:{first}"), format!("127.0.0.1:{}", first + 1)]);
    sender.stop().unwrap();
    receiver.stop().unwrap();
}
