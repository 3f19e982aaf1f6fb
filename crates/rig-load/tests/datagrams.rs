//! UDP streams over loopback between real worker processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

mod common;

use std::net::{SocketAddr, UdpSocket};

use common::*;
use rig_load::plan::{Datagrams, Flow, Load, Pacing, Role};
use rig_load::protocol::Event;
use rig_load::record::{DatagramRecord, Direction, WorkerRecord};
use rig_stats::histogram::Histogram;

fn datagrams() -> Datagrams {
    Datagrams {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 1000,
        batch: 8,
        segments: 1,
        coalesce: false,
        throttle: None,
        pacing: Pacing::Thread,
        shared_clock: true,
        send_buffer: None,
        receive_buffer: None,
    }
}

fn listening(load: &Datagrams, address: SocketAddr) -> Bare {
    Bare::with_plan(plan("b/receiver", Role::Listen { address }, Load::UdpStream(load.clone()), PHASES))
}

fn connecting(load: &Datagrams, to: SocketAddr) -> Bare {
    Bare::with_plan(plan("a/sender", Role::Connect { to }, Load::UdpStream(load.clone()), PHASES))
}

fn loopbacks() -> Vec<SocketAddr> {
    let all: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let (there, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| UdpSocket::bind(address).is_ok());
    missing.iter().for_each(|address| eprintln!("skipped {address}: this machine has no such address"));
    there
}

#[test]
fn flows_stand_although_strangers_talk_and_greetings_get_lost() {
    for mut address in loopbacks() {
        let load = Datagrams { threads: 2, connections: 3, ..datagrams() };
        let mut listen = listening(&load, address);
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        address.set_port(port);
        let stranger = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
        for length in [0, 1, 40, 41, 1000] {
            stranger.send_to(&vec![7; length], address).unwrap();
        }
        // A greeting of another format, and one that fits but for the number of flows.
        stranger.send_to(b"netrig\0\x02--------------------------------", address).unwrap();
        let mut hello = *b"netrig\0\x01\0\0\0\x01--------------------------------";
        stranger.send_to(&hello, address).unwrap();
        hello[12..16].fill(0);
        stranger.send_to(&hello, address).unwrap();
        let mut connect = connecting(&load, address);
        assert_eq!(connect.event(), Some(Event::Connected));
        assert_eq!(listen.event(), Some(Event::Connected));
        stranger.set_nonblocking(true).unwrap();
        assert!(stranger.recv(&mut [0; 100]).is_err());
    }
}

/// A greeting as it goes over the wire.
fn greeting(kind: u32, flow: u32, token: u64, flows: u64) -> Vec<u8> {
    [
        &b"netrig\0\x01"[..],
        &kind.to_be_bytes(),
        &flow.to_be_bytes(),
        &token.to_be_bytes(),
        &flows.to_be_bytes(),
        &[0; 8],
    ]
    .concat()
}

#[test]
fn a_greeting_that_is_repeated_is_answered_until_the_start() {
    for mut address in loopbacks() {
        let flows = 2;
        let mut listen = listening(&Datagrams { connections: flows, ..datagrams() }, address);
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        address.set_port(port);
        let (token, total) = (77, u64::from(flows));
        let mut sockets = vec![];
        for flow in 0..flows {
            let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
            socket.connect(address).unwrap();
            // Two that are not meant for this flow or this number of flows, and one of another run.
            socket.send(&greeting(1, flow + 1, token, total)).unwrap();
            socket.send(&greeting(1, flow, token, total + 1)).unwrap();
            if flow > 0 {
                socket.send(&greeting(1, flow, token + 1, total)).unwrap();
            }
            for _ in 0..3 {
                socket.send(&greeting(1, flow, token, total)).unwrap();
                let mut answer = [0; 100];
                let length = socket.recv(&mut answer).unwrap();
                assert_eq!(answer[..length], greeting(2, flow, token, 0));
            }
            sockets.push(socket);
        }
        assert_eq!(listen.event(), Some(Event::Connected));
        let (last, mut answer) = (sockets.last().unwrap(), [0; 100]);
        last.send(&greeting(1, flows - 1, token, total)).unwrap();
        assert_eq!(last.recv(&mut answer).unwrap(), 40);
    }
}

#[test]
fn nobody_listens() {
    for address in loopbacks() {
        let free = UdpSocket::bind(address).unwrap().local_addr().unwrap();
        connecting(&datagrams(), free).fails_with(&["flow 1 of 1", &free.to_string(), "connection refused"]);
    }
    connecting(&datagrams(), address()).fails_with(&["127.0.0.1:0", "port"]);
}

#[test]
fn the_port_is_in_use() {
    for address in loopbacks() {
        let taken = UdpSocket::bind(address).unwrap();
        listening(&datagrams(), taken.local_addr().unwrap()).fails_with(&["in use", "ss -lunp"]);
    }
}

/// Both ends of a load, the listening one first.
fn run_datagrams(load: &Datagrams, address: SocketAddr) -> (WorkerRecord, WorkerRecord) {
    let listen = plan("b", Role::Listen { address }, Load::UdpStream(load.clone()), PHASES);
    let connect = plan("a", Role::Connect { to: address }, Load::UdpStream(load.clone()), PHASES);
    let mut records = run(vec![pair(listen, connect)]).unwrap();
    let connect = records.pop().unwrap();
    (records.pop().unwrap(), connect)
}

fn found(record: &WorkerRecord) -> &DatagramRecord {
    record.datagrams.as_ref().unwrap()
}

/// What must hold for the two records of one direction.
fn check(sender: &WorkerRecord, receiver: &WorkerRecord, load: &Datagrams) {
    let (sent, received) = (found(sender), found(receiver));
    assert!(sent.sent > 0 && received.received > 0, "{sent:?} {received:?}");
    assert_eq!(sent.sent, received.received + received.lost, "{load:?}");
    assert_eq!((received.malformed, received.late, received.duplicated), (0, 0, 0));
    assert!(sent.calls > 0 && received.calls > 0);
    assert_eq!(sent.sent % u64::from(load.segments), 0);
    assert!(received.jitter_ns.is_some_and(|jitter| jitter >= 0.0));
    assert_eq!(received.delay.as_ref().map(Histogram::count), load.shared_clock.then_some(received.received));
    for record in [sender, receiver] {
        assert_eq!(record.notes, [""; 0]);
        assert_eq!(record.connections.len(), load.total_connections() as usize);
        assert_eq!(record.samples.iter().map(|sample| sample.bytes).sum::<u64>(), record.bytes());
        for connection in &record.connections {
            assert_eq!((connection.mss, connection.congestion_control.as_str()), (0, ""));
            assert_eq!(connection.total_bytes % u64::from(load.message), 0);
        }
    }
}

#[test]
fn every_way_to_send_and_to_receive_agrees_with_the_other_end() {
    for address in loopbacks() {
        for (batch, segments) in [(1, 1), (8, 1), (1, 8), (4, 40)] {
            for coalesce in [false, true] {
                for (threads, connections) in [(1, 1), (2, 3)] {
                    let load = Datagrams { batch, segments, coalesce, threads, connections, ..datagrams() };
                    let (receiver, sender) = run_datagrams(&load, address);
                    check(&sender, &receiver, &load);
                    assert_eq!((sender.direction, receiver.direction), (Direction::Send, Direction::Receive));
                    assert_eq!(sender.threads.len(), threads as usize);
                }
            }
        }
    }
}

#[test]
fn a_slow_sender_loses_nothing_and_every_byte_is_counted() {
    for address in loopbacks() {
        for (segments, coalesce) in [(1, false), (7, false), (1, true), (7, true)] {
            let throttle = Some(4_000_000);
            let load = Datagrams { segments, coalesce, throttle, batch: 2, connections: 2, ..datagrams() };
            let (receiver, sender) = run_datagrams(&load, address);
            check(&sender, &receiver, &load);
            // Nothing is dropped but by a receiver that was kept from running for long.
            for sent in &sender.connections {
                let received = receiver.connections.iter().find(|c| c.remote == sent.local).unwrap();
                assert_eq!(received.local, sent.remote);
                assert!(received.total_bytes <= sent.total_bytes);
                if found(&receiver).lost == 0 && receiver.samples.iter().all(|sample| sample.lost == 0) {
                    assert_eq!(received.total_bytes, sent.total_bytes);
                }
            }
        }
    }
}
