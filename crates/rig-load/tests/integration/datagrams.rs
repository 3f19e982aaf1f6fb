//! UDP streams over loopback between real worker processes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::common::*;
use rig_load::plan::{Datagrams, Flow, Load, Pacing, Phases, Role, WorkerPlan};
use rig_load::protocol::{Event, Order};
use rig_load::record::{DatagramRecord, Direction, WorkerRecord};
use rig_skip::{Lack, skip};
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
        options: Default::default(),
    }
}

fn listening(load: &Datagrams, address: SocketAddr) -> BareWorker {
    BareWorker::with_plan(plan(
        "b/receiver",
        Role::Listen { address, only_from: None },
        Load::UdpStream(load.clone()),
        PHASES,
    ))
}

fn connecting(load: &Datagrams, to: SocketAddr) -> BareWorker {
    BareWorker::with_plan(plan("a/sender", Role::connect(to), Load::UdpStream(load.clone()), PHASES))
}

fn loopbacks() -> Vec<SocketAddr> {
    let all: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let (there, missing): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| UdpSocket::bind(address).is_ok());
    missing.iter().for_each(|address| skip(Lack::Ipv6, format_args!("no address {address}")));
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

const HELLO: u32 = 1;
const WELCOME: u32 = 2;
const FAREWELL: u32 = 3;
const TAKEN: u32 = 4;

/// A greeting as it goes over the wire.
fn greeting(kind: u32, flow: u32, token: u64, values: (u64, u64)) -> Vec<u8> {
    let (kind, flow, token) = (kind.to_be_bytes(), flow.to_be_bytes(), token.to_be_bytes());
    [&b"netrig\0\x01"[..], &kind, &flow, &token, &values.0.to_be_bytes(), &values.1.to_be_bytes()].concat()
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
            socket.send(&greeting(HELLO, flow + 1, token, (total, 0))).unwrap();
            socket.send(&greeting(HELLO, flow, token, (total + 1, 0))).unwrap();
            if flow > 0 {
                socket.send(&greeting(HELLO, flow, token + 1, (total, 0))).unwrap();
            }
            for _ in 0..3 {
                socket.send(&greeting(HELLO, flow, token, (total, 0))).unwrap();
                let mut answer = [0; 100];
                let length = socket.recv(&mut answer).unwrap();
                assert_eq!(answer[..length], greeting(WELCOME, flow, token, (0, 0)));
            }
            sockets.push(socket);
        }
        assert_eq!(listen.event(), Some(Event::Connected));
        let (last, mut answer) = (sockets.last().unwrap(), [0; 100]);
        last.send(&greeting(HELLO, flows - 1, token, (total, 0))).unwrap();
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
    let listen = plan("b", Role::Listen { address, only_from: None }, Load::UdpStream(load.clone()), PHASES);
    let connect = plan("a", Role::connect(address), Load::UdpStream(load.clone()), PHASES);
    let mut records = run(vec![pair(listen, connect)]).unwrap();
    let connect = records.pop().unwrap();
    (records.pop().unwrap(), connect)
}

fn found(record: &WorkerRecord) -> &DatagramRecord {
    record.datagrams.as_ref().unwrap()
}

/// What must hold for the two records of one direction. Returns whether anything arrived: on a busy machine a thread may
/// not come to run inside a short window.
fn check(sender: &WorkerRecord, receiver: &WorkerRecord, load: &Datagrams) -> bool {
    let (sent, received) = (found(sender), found(receiver));
    assert_eq!(sent.sent, received.received + received.lost, "{load:?}");
    assert_eq!((received.malformed, received.late, received.duplicated), (0, 0, 0));
    assert_eq!((sent.calls > 0, received.calls > 0), (sent.sent > 0, received.received > 0));
    assert_eq!(sent.sent % u64::from(load.segments), 0);
    assert!(received.jitter_ns.is_none_or(|jitter| jitter >= 0.0));
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
    received.received > 0
}

#[test]
fn every_way_to_send_and_to_receive_agrees_with_the_other_end() {
    let mut arrived = false;
    for address in loopbacks() {
        for (batch, segments) in [(1, 1), (8, 1), (1, 8), (4, 40)] {
            for coalesce in [false, true] {
                for (threads, connections) in [(1, 1), (2, 3)] {
                    let load = Datagrams { batch, segments, coalesce, threads, connections, ..datagrams() };
                    let (receiver, sender) = run_datagrams(&load, address);
                    arrived |= check(&sender, &receiver, &load);
                    assert_eq!((sender.direction, receiver.direction), (Direction::Send, Direction::Receive));
                    assert_eq!(sender.threads.len(), threads as usize);
                }
            }
        }
    }
    assert!(arrived);
}

#[test]
fn a_slow_sender_loses_nothing_and_every_byte_is_counted() {
    let mut arrived = false;
    for address in loopbacks() {
        for (segments, coalesce) in [(1, false), (7, false), (1, true), (7, true)] {
            let throttle = Some(4_000_000);
            let load = Datagrams { segments, coalesce, throttle, batch: 2, connections: 2, ..datagrams() };
            let (receiver, sender) = run_datagrams(&load, address);
            arrived |= check(&sender, &receiver, &load);
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
    assert!(arrived);
}

#[test]
fn the_listening_end_can_send_datagrams() {
    let mut arrived = false;
    for address in loopbacks() {
        for (threads, connections) in [(1, 1), (2, 3)] {
            let load = Datagrams { flow: Flow::Reverse, threads, connections, segments: 4, ..datagrams() };
            let (sender, receiver) = run_datagrams(&load, address);
            arrived |= check(&sender, &receiver, &load);
            assert_eq!((sender.direction, receiver.direction), (Direction::Send, Direction::Receive));
        }
    }
    assert!(arrived);
}

#[test]
fn datagrams_can_go_both_ways_at_once() {
    let mut arrived = false;
    for address in loopbacks() {
        for (threads, connections, coalesce) in [(1, 1, false), (1, 1, true), (2, 3, true)] {
            let throttle = Some(20_000_000);
            let load = Datagrams { flow: Flow::Both, threads, connections, coalesce, throttle, ..datagrams() };
            let (listen, connect) = run_datagrams(&load, address);
            arrived |= check(&listen, &connect, &load);
            arrived |= check(&connect, &listen, &load);
            for record in [listen, connect] {
                assert_eq!(record.direction, Direction::Both);
                assert_eq!(record.threads.len(), 2 * threads as usize);
                let (sending, receiving) = record.threads.split_at(threads as usize);
                assert_eq!(sending.iter().map(|thread| thread.bytes).sum::<u64>(), record.bytes());
                assert_eq!(receiving.iter().map(|thread| thread.bytes).sum::<u64>(), record.bytes_in());
                assert_eq!(record.samples.iter().map(|sample| sample.bytes_in).sum::<u64>(), record.bytes_in());
            }
        }
    }
    assert!(arrived);
}

#[test]
fn without_a_common_clock_no_delay_is_told() {
    let load = Datagrams { shared_clock: false, ..datagrams() };
    let (receiver, sender) = run_datagrams(&load, address());
    check(&sender, &receiver, &load);
    assert_eq!(found(&receiver).delay, None);
}

#[test]
fn a_delay_is_by_the_clock_of_who_receives() {
    const APART: i64 = 1_000_000_000_000;
    let load = datagrams();
    // As if the sender's clock showed so much more than it does, and so much less.
    for (peer_clock_ns, least, most) in [(-APART, Histogram::LARGEST / 2, u64::MAX), (APART, 0, 1)] {
        let of = |name, role| plan(name, role, Load::UdpStream(load.clone()), PHASES);
        let listen = WorkerPlan { peer_clock_ns, ..of("b", Role::Listen { address: address(), only_from: None }) };
        let records = run(vec![pair(listen, of("a", Role::connect(address())))]).unwrap();
        let delay = found(&records[0]).delay.clone().unwrap();
        let [shortest, longest] = [delay.min(), delay.max()].map(Option::unwrap);
        assert!(least <= shortest && longest <= most, "{peer_clock_ns}: {shortest} to {longest}");
    }
}

#[test]
fn a_throttled_sender_stays_below_its_limit() {
    for connections in [1, 3] {
        let rate = 2_000_000;
        let load = Datagrams { throttle: Some(rate), connections, segments: 2, batch: 2, ..datagrams() };
        let began = std::time::Instant::now();
        let (receiver, sender) = run_datagrams(&load, address());
        let burst = u64::from(load.message * load.segments * load.batch);
        let most = rate as f64 * began.elapsed().as_secs_f64() + burst as f64;
        check(&sender, &receiver, &load);
        let bytes: u64 = sender.connections.iter().map(|c| c.total_bytes).sum();
        assert!(bytes as f64 <= most, "{bytes} bytes sent, {most} allowed");
    }
}

#[test]
fn a_slow_throttle_sends_one_datagram_at_a_time() {
    // One each 100 ms, of which two are due before the end of all.
    for connections in [1, 3] {
        let load = Datagrams { throttle: Some(10_000), connections, ..datagrams() };
        let (_, sender) = run_datagrams(&load, address());
        let bytes: u64 = sender.connections.iter().map(|c| c.total_bytes).sum();
        assert!(bytes <= u64::from(load.message * 2), "{bytes} bytes sent");
    }
}

#[test]
fn the_kernel_paces_or_a_note_says_that_it_did_not() {
    let rate = 1_000_000;
    let load = Datagrams { throttle: Some(rate), pacing: Pacing::Kernel, send_buffer: Some(20_000), ..datagrams() };
    let began = std::time::Instant::now();
    let (_, sender) = run_datagrams(&load, address());
    let most = rate as f64 * 1.1 * began.elapsed().as_secs_f64() + f64::from(sender.connections[0].send_buffer);
    let bytes = sender.connections[0].total_bytes as f64;
    let noted = sender.notes.iter().any(|note| note.contains("fq"));
    assert!(noted || bytes <= most, "{bytes} bytes sent, {most} allowed, {:?}", sender.notes);
}

#[test]
fn socket_buffers_reach_both_ends() {
    let load = Datagrams { send_buffer: Some(40_000), receive_buffer: Some(50_000), ..datagrams() };
    let (receiver, sender) = run_datagrams(&load, address());
    for record in [receiver, sender] {
        assert_eq!((record.connections[0].send_buffer, record.connections[0].receive_buffer), (80_000, 100_000));
    }
}

/// A datagram of a load as it goes over the wire.
fn numbered(phase: u64, number: u64, length: usize) -> Vec<u8> {
    let mut datagram = vec![0; length.max(16)];
    datagram[..8].copy_from_slice(&(0x3690 << 50 | phase << 48 | number).to_be_bytes());
    datagram[8..16].copy_from_slice(&rig_sys::clock::monotonic_ns().to_be_bytes());
    datagram.truncate(length);
    datagram
}

/// Plays the peer of a worker of which every datagram is known.
#[test]
fn hostile_datagrams_are_counted_and_do_no_harm() {
    for coalesce in [false, true] {
        let phases = Phases { warm_up: Duration::ZERO, window: Duration::from_millis(1500), ..PHASES };
        let load = Datagrams { message: 100, coalesce, ..datagrams() };
        let role = Role::Listen { address: address(), only_from: None };
        let mut listen = BareWorker::with_plan(plan("b", role, Load::UdpStream(load), phases));
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        let peer = UdpSocket::bind(address()).unwrap();
        peer.connect(SocketAddr::new(address().ip(), port)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        peer.send(&greeting(HELLO, 0, 5, (1, 0))).unwrap();
        let mut answer = [0; 100];
        assert_eq!(peer.recv(&mut answer).unwrap(), 40);
        assert_eq!(listen.event(), Some(Event::Connected));
        listen.order(&Order::Go { start_ns: rig_sys::clock::monotonic_ns() });
        assert!(matches!(listen.event(), Some(Event::Sample(_))));

        for number in [0, 1, 2, 2, 5, 4] {
            peer.send(&numbered(1, number, 100)).unwrap();
        }
        let wrong = [
            numbered(1, 6, 99),
            numbered(1, 6, 101),
            numbered(1, 6, 15),
            numbered(3, 6, 100),
            vec![],
            vec![0; 100],
            vec![0xff; 5000],
        ];
        wrong.iter().for_each(|datagram| assert_eq!(peer.send(datagram).unwrap(), datagram.len()));
        // Outside of the window, and as far away as can be; then too late.
        peer.send(&numbered(0, 9, 100)).unwrap();
        peer.send(&numbered(2, (1 << 48) - 1, 100)).unwrap();
        peer.send(&numbered(1, 3, 100)).unwrap();
        // Greetings that make no sense, or come twice.
        for odd in [(FAREWELL, (5, 3)), (FAREWELL, (0, u64::MAX)), (HELLO, (1, 0)), (WELCOME, (0, 0)), (99, (0, 0))] {
            peer.send(&greeting(odd.0, 0, 5, odd.1)).unwrap();
        }
        peer.send(&greeting(FAREWELL, 0, 5, (0, 10))).unwrap();
        let length = peer.recv(&mut answer).unwrap();
        assert_eq!(answer[..length], greeting(TAKEN, 0, 0, (0, 0)));

        let record = loop {
            match listen.event().expect("it ended without a word") {
                Event::Done(record) => break record,
                Event::Sample(_) => {}
                other => panic!("{other:?}"),
            }
        };
        let found = found(&record);
        assert_eq!((found.received, found.lost), (5, 5));
        assert_eq!((found.reordered, found.duplicated, found.late), (1, 1, 1));
        assert_eq!(found.malformed, wrong.len() as u64);
        assert_eq!(record.connections[0].total_bytes, 9 * 100);
        assert_eq!(record.notes, [""; 0]);
    }
}

#[test]
fn a_sender_that_goes_without_a_word_is_noted() {
    let mut listen = listening(&datagrams(), address());
    let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
    let peer = UdpSocket::bind(address()).unwrap();
    peer.connect(SocketAddr::new(address().ip(), port)).unwrap();
    peer.send(&greeting(HELLO, 0, 5, (1, 0))).unwrap();
    assert_eq!(peer.recv(&mut [0; 100]).unwrap(), 40);
    assert_eq!(listen.event(), Some(Event::Connected));
    listen.order(&Order::Go { start_ns: rig_sys::clock::monotonic_ns() });
    [1, 2, 5].into_iter().for_each(|number| assert_eq!(peer.send(&numbered(1, number, 1000)).unwrap(), 1000));
    let record = loop {
        match listen.event().expect("it ended without a word") {
            Event::Done(record) => break record,
            Event::Sample(_) => {}
            other => panic!("{other:?}"),
        }
    };
    // Datagrams before the first and after the last that came cannot be counted as lost.
    assert_eq!((found(&record).received, found(&record).lost), (3, 2));
    assert!(record.notes[0].contains("1 of 1 flows did not hear"), "{:?}", record.notes);
}

#[test]
fn a_receiver_that_dies_in_the_window_is_a_failure() {
    for connections in [1, 2] {
        let load = Load::UdpStream(Datagrams { connections, throttle: Some(1_000_000), ..datagrams() });
        let mut listen = BareWorker::with_plan(plan(
            "b",
            Role::Listen { address: address(), only_from: None },
            load.clone(),
            ENDLESS,
        ));
        let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
        let to = SocketAddr::new(address().ip(), port);
        let mut connect = BareWorker::with_plan(plan("a", Role::connect(to), load, ENDLESS));
        assert_eq!(connect.event(), Some(Event::Connected));
        assert_eq!(listen.event(), Some(Event::Connected));
        connect.order(&Order::Go { start_ns: rig_sys::clock::monotonic_ns() });
        while !matches!(connect.event(), Some(Event::Sample(_))) {}
        listen.child.kill().unwrap();
        connect.fails_with(&["127.0.0.1", "closed its socket"]);
    }
}

#[test]
fn an_end_of_orders_stops_a_worker_at_any_point() {
    for flow in [Flow::Forward, Flow::Reverse, Flow::Both] {
        for connections in [1, 3] {
            let load = Load::UdpStream(Datagrams { flow, connections, ..datagrams() });
            let mut listen = BareWorker::with_plan(plan(
                "b",
                Role::Listen { address: address(), only_from: None },
                load.clone(),
                ENDLESS,
            ));
            let Some(Event::Listening { port }) = listen.event() else { panic!("it does not listen") };
            let to = SocketAddr::new(address().ip(), port);
            let mut connect = BareWorker::with_plan(plan("a", Role::connect(to), load, ENDLESS));
            assert_eq!(connect.event(), Some(Event::Connected));
            // One end runs, the other waits for the order.
            connect.order(&Order::Go { start_ns: rig_sys::clock::monotonic_ns() });
            while !matches!(connect.event(), Some(Event::Sample(_))) {}
            assert!(!connect.status().success());
            assert!(!listen.status().success());
        }
    }
}
