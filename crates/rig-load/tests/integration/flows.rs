//! The ways that payload can go: from the listening end to the connecting one, and both ways at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use crate::common::*;
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream};
use rig_load::record::{Direction, WorkerRecord};
use rig_skip::{Lack, skip};

fn engines() -> Vec<Engine> {
    let mut engines = vec![Engine::Blocking];
    match rig_sys::uring::available() {
        Ok(()) => engines.extend([1, 4].map(|outstanding| Engine::Uring { outstanding })),
        Err(error) => skip(Lack::IoUring, error),
    }
    engines
}

fn modes(engine: Engine) -> Vec<SendMode> {
    match engine {
        Engine::Blocking => vec![SendMode::Copy, SendMode::Sendfile, SendMode::Splice, SendMode::ZeroCopy],
        Engine::Uring { .. } => vec![SendMode::Copy, SendMode::ZeroCopy],
    }
}

/// What must hold for any record.
fn check(record: &WorkerRecord, stream: &TcpStream, direction: Direction) {
    assert_eq!(record.direction, direction);
    let is_both = direction == Direction::Both;
    assert_eq!(record.threads.len(), stream.threads as usize * if is_both { 2 } else { 1 });
    assert_eq!(record.connections.len(), stream.total_connections() as usize);
    assert_eq!(record.samples.iter().map(|sample| sample.bytes).sum::<u64>(), record.bytes());
    assert_eq!(record.samples.iter().map(|sample| sample.bytes_in).sum::<u64>(), record.bytes_in());
    let (sending, receiving) = record.threads.split_at(stream.threads as usize);
    let bytes = |threads: &[rig_load::record::ThreadRecord]| threads.iter().map(|thread| thread.bytes).sum::<u64>();
    assert_eq!(bytes(sending), record.bytes());
    assert_eq!(bytes(receiving), record.bytes_in());
    assert!(is_both || record.connections.iter().all(|c| c.bytes_in == 0 && c.total_bytes_in == 0));
}

/// Every byte that went in at one end came out at the other. Returns whether there were any at both ends: on a busy machine
/// a thread may not come to run before the end of a short load.
fn check_ends(listen: &WorkerRecord, connect: &WorkerRecord, stream: &TcpStream) -> bool {
    for here in &connect.connections {
        let there = listen.connections.iter().find(|c| c.remote == here.local).unwrap();
        assert_eq!(there.local, here.remote);
        match stream.flow {
            Flow::Both => {
                assert_eq!(there.total_bytes_in, here.total_bytes, "{stream:?}");
                assert_eq!(there.total_bytes, here.total_bytes_in, "{stream:?}");
            }
            _ => assert_eq!(there.total_bytes, here.total_bytes, "{stream:?}"),
        }
    }
    let total = |record: &WorkerRecord| record.connections.iter().map(|c| c.total_bytes).sum::<u64>();
    total(listen) > 0 && total(connect) > 0
}

#[test]
fn the_listening_end_can_send() {
    let mut moved = false;
    for engine in engines() {
        for send_mode in modes(engine) {
            for receive_mode in [ReceiveMode::Copy, ReceiveMode::Discard] {
                for (threads, connections) in [(1, 1), (2, 3)] {
                    let flow = Flow::Reverse;
                    let stream = TcpStream { flow, engine, send_mode, receive_mode, threads, connections, ..stream() };
                    let (listen, connect) = run_stream(&stream);
                    check(&listen, &stream, Direction::Send);
                    check(&connect, &stream, Direction::Receive);
                    moved |= check_ends(&listen, &connect, &stream);
                }
            }
        }
    }
    assert!(moved);
}

#[test]
fn payload_can_go_both_ways_at_once() {
    let mut moved = false;
    for engine in engines() {
        for send_mode in modes(engine) {
            for (threads, connections) in [(1, 1), (2, 3)] {
                let flow = Flow::Both;
                let stream = TcpStream { flow, engine, send_mode, threads, connections, ..stream() };
                let (listen, connect) = run_stream(&stream);
                check(&listen, &stream, Direction::Both);
                check(&connect, &stream, Direction::Both);
                moved |= check_ends(&listen, &connect, &stream);
            }
        }
    }
    assert!(moved);
}

#[test]
fn a_throttle_holds_whichever_end_sends() {
    for flow in [Flow::Reverse, Flow::Both] {
        // A message each 100 ms, of which two are due before the end of all.
        let stream = TcpStream { flow, throttle: Some(1_000_000), message: 100_000, ..stream() };
        let phases = Phases { warm_up: std::time::Duration::ZERO, ..PHASES };
        let records = run(vec![pair(listener(&stream, phases), connector(&stream, phases))]).unwrap();
        check_ends(&records[0], &records[1], &stream);
        assert!(records.iter().all(|record| record.connections[0].total_bytes <= 200_000));
    }
}

#[test]
fn both_ways_over_ipv6() {
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        return skip(Lack::Ipv6, error);
    }
    let stream = TcpStream { flow: Flow::Both, ..stream() };
    let (mut listen, mut connect) = (listener(&stream, PHASES), connector(&stream, PHASES));
    listen.role = Role::Listen { address: "[::1]:0".parse().unwrap(), only_from: None };
    connect.role = Role::connect("[::1]:0".parse().unwrap());
    let records = run(vec![pair(listen, connect)]).unwrap();
    check_ends(&records[0], &records[1], &stream);
}

#[test]
fn a_mode_that_the_sending_end_cannot_have_is_refused_by_name() {
    let uring = Engine::Uring { outstanding: 2 };
    for (flow, sends) in [(Flow::Reverse, [true, false]), (Flow::Both, [true, true])] {
        for (mode, word) in [(SendMode::Sendfile, "sendfile"), (SendMode::Splice, "splice")] {
            let stream = TcpStream { flow, engine: uring, send_mode: mode, ..stream() };
            for (plan, sends) in [listener(&stream, PHASES), connector(&stream, PHASES)].into_iter().zip(sends) {
                match plan.validate() {
                    Err(error) => assert!(sends && error.to_string().contains(word), "{error}"),
                    Ok(()) => assert!(!sends, "{mode:?} was not refused"),
                }
            }
        }
    }
}

#[test]
fn both_ends_have_to_agree_on_the_way() {
    let (one, other) = (stream(), TcpStream { flow: Flow::Both, ..stream() });
    let error = run(vec![pair(listener(&one, PHASES), connector(&other, PHASES))]).unwrap_err().to_string();
    assert!(error.contains("payload goes"), "{error}");
    let reverse: Load = Load::TcpStream(TcpStream { flow: Flow::Reverse, ..one });
    assert_eq!(reverse.name(), "tcp-maerts");
}
