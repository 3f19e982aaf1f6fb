//! TCP streams over loopback between real worker processes: what one end sent, the other received.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has to panic")]

use std::time::{Duration, Instant};

use crate::common::*;
use rig_load::plan::{Engine, Load, ReceiveMode, Role, SendMode, TcpStream};
use rig_load::record::{Direction, WorkerRecord};
use rig_skip::{Lack, skip};

fn has_io_uring() -> bool {
    match rig_sys::uring::available() {
        Ok(()) => true,
        Err(error) => {
            skip(Lack::IoUring, error);
            false
        }
    }
}

/// What must hold for any record of a stream.
fn check(record: &WorkerRecord, stream: &TcpStream, direction: Direction) {
    assert_eq!(record.direction, direction);
    assert_eq!(record.threads.len(), stream.threads as usize);
    assert_eq!(record.connections.len(), (stream.threads * stream.connections) as usize);
    // A short window may fall into a pause of TCP itself, such as 200 ms before a closed receive window is probed.
    assert!(record.seconds() > 0.0 && record.connections.iter().any(|c| c.total_bytes > 0), "{record:?}");
    assert_eq!(record.samples.iter().map(|sample| sample.bytes).sum::<u64>(), record.bytes());
    assert_eq!(record.samples.len(), 3, "100 ms in intervals of 40");
    let window_ns = record.window_end_ns - record.window_begin_ns;
    assert_eq!(record.samples.iter().map(|sample| sample.span_ns).sum::<u64>(), window_ns);
    assert_eq!(record.samples.last().unwrap().at_ns, window_ns);
    for (index, connection) in record.connections.iter().enumerate() {
        assert_eq!(connection.thread, index as u32 % stream.threads);
        assert!(connection.total_bytes >= connection.bytes);
        // Bytes and operations are read one after the other, while the load goes on.
        assert!((connection.operations + 1) * u64::from(stream.message) >= connection.bytes, "{connection:?}");
        assert!(connection.mss > 0 && !connection.congestion_control.is_empty());
        assert!(connection.end.segments_out > 0 && connection.end.congestion_window > 0);
    }
    for (index, thread) in record.threads.iter().enumerate() {
        let mine = record.connections.iter().filter(|c| c.thread as usize == index);
        assert_eq!(thread.bytes, mine.map(|c| c.bytes).sum::<u64>());
    }
}

/// Both ends see the same connections, and every byte that went in came out.
fn check_both(receiver: &WorkerRecord, sender: &WorkerRecord, stream: &TcpStream) {
    check(receiver, stream, Direction::Receive);
    check(sender, stream, Direction::Send);
    for sent in &sender.connections {
        let received = receiver.connections.iter().find(|c| c.remote == sent.local).unwrap();
        assert_eq!(received.local, sent.remote);
        assert_eq!(received.total_bytes, sent.total_bytes, "{stream:?}");
    }
}

#[test]
fn every_engine_and_mode_delivers_every_byte() {
    let mut engines = vec![Engine::Blocking];
    if has_io_uring() {
        engines.extend([1, 2, 16].map(|outstanding| Engine::Uring { outstanding }));
    }
    for engine in engines {
        for send_mode in [SendMode::Copy, SendMode::Sendfile, SendMode::Splice, SendMode::ZeroCopy] {
            for receive_mode in [ReceiveMode::Copy, ReceiveMode::Discard] {
                let receiving = TcpStream { engine, receive_mode, send_mode, ..stream() };
                let sending = match send_mode {
                    SendMode::Sendfile | SendMode::Splice => {
                        TcpStream { engine: Engine::Blocking, ..receiving.clone() }
                    }
                    _ => receiving.clone(),
                };
                let records = run(vec![pair(listener(&receiving, PHASES), connector(&sending, PHASES))]).unwrap();
                let [receiver, sender] = records.as_slice() else { panic!("{records:?}") };
                check_both(receiver, sender, &sending);
                assert_eq!((receiver.engine, receiver.receive_mode), (engine, receive_mode));
                assert_eq!((sender.engine, sender.send_mode), (sending.engine, send_mode));
                let copied = sender.zerocopy_copied > 0;
                assert_eq!(copied, send_mode == SendMode::ZeroCopy, "on loopback every zero-copy send is copied");
            }
        }
    }
}

#[test]
fn threads_and_connections_share_the_work() {
    let mut engines = vec![Engine::Blocking];
    if has_io_uring() {
        engines.push(Engine::Uring { outstanding: 3 });
    }
    for engine in engines {
        for (threads, connections) in [(2, 1), (1, 5), (3, 4)] {
            for send_mode in [SendMode::Copy, SendMode::Splice, SendMode::ZeroCopy] {
                if engine != Engine::Blocking && send_mode == SendMode::Splice {
                    continue;
                }
                let stream = TcpStream { threads, connections, engine, send_mode, message: 5000, ..stream() };
                let (receiver, sender) = run_stream(&stream);
                check_both(&receiver, &sender, &stream);
                assert!(sender.connections.iter().all(|c| c.total_bytes > 0), "{sender:?}");
            }
        }
    }
}

#[test]
fn one_byte_messages_work() {
    let stream = TcpStream { message: 1, no_delay: true, ..stream() };
    let (receiver, sender) = run_stream(&stream);
    check_both(&receiver, &sender, &stream);
}

#[test]
fn several_pairs_run_side_by_side() {
    let stream = stream();
    let pairs = (0..3).map(|_| pair(listener(&stream, PHASES), connector(&stream, PHASES))).collect();
    let records = run(pairs).unwrap();
    assert_eq!(records.len(), 6);
    for both in records.chunks(2) {
        check_both(&both[0], &both[1], &stream);
    }
}

#[test]
fn ipv6_works_where_there_is_any() {
    if let Err(error) = std::net::TcpListener::bind("[::1]:0") {
        return skip(Lack::Ipv6, error);
    }
    let stream = stream();
    let (mut listen, mut connect) = (listener(&stream, PHASES), connector(&stream, PHASES));
    listen.role = Role::Listen { address: "[::1]:0".parse().unwrap(), only_from: None };
    connect.role = Role::connect("[::1]:0".parse().unwrap());
    let records = run(vec![pair(listen, connect)]).unwrap();
    check_both(&records[0], &records[1], &stream);
}

#[test]
fn a_throttled_sender_stays_below_its_limit() {
    let mut engines = vec![Engine::Blocking];
    if has_io_uring() {
        engines.push(Engine::Uring { outstanding: 4 });
    }
    for engine in engines {
        for connections in [1, 3] {
            let rate = 2_000_000;
            let stream = TcpStream { throttle: Some(rate), threads: 2, connections, engine, message: 4000, ..stream() };
            let began = Instant::now();
            let (receiver, sender) = run_stream(&stream);
            let most = rate as f64 * began.elapsed().as_secs_f64() + f64::from(stream.message);
            check_both(&receiver, &sender, &stream);
            for thread in 0..stream.threads {
                let mine = sender.connections.iter().filter(|c| c.thread == thread);
                let bytes = mine.map(|c| c.total_bytes).sum::<u64>() as f64;
                assert!(bytes <= most, "{bytes} bytes sent, {most} allowed");
            }
        }
    }
}

#[test]
fn a_slow_throttle_holds_each_message_back() {
    // A message each 100 ms, of which two are due before the end of all.
    let stream = TcpStream { throttle: Some(1_000_000), message: 100_000, ..stream() };
    let phases = rig_load::plan::Phases { warm_up: Duration::ZERO, ..PHASES };
    let records = run(vec![pair(listener(&stream, phases), connector(&stream, phases))]).unwrap();
    let sent = records[1].connections[0].total_bytes;
    assert!(sent == 100_000 || sent == 200_000, "{sent}");
    assert_eq!(records[0].connections[0].total_bytes, sent);
}

#[test]
fn options_reach_both_ends() {
    let stream = TcpStream {
        send_buffer: Some(40_000),
        receive_buffer: Some(50_000),
        congestion_control: Some("reno".into()),
        no_delay: true,
        ..stream()
    };
    let (receiver, sender) = run_stream(&stream);
    for record in [receiver, sender] {
        let connection = &record.connections[0];
        assert_eq!(connection.send_buffer, 80_000);
        assert_eq!(connection.receive_buffer, 100_000);
        assert_eq!(connection.congestion_control, "reno");
        assert_eq!(record.notes, [""; 0]);
    }
}

#[test]
fn a_buffer_is_granted_or_a_note_says_how_much_was() {
    let asked = 1 << 29;
    let (receiver, sender) = run_stream(&TcpStream { receive_buffer: Some(asked), ..stream() });
    for record in [receiver, sender] {
        let granted = record.connections[0].receive_buffer / 2;
        if granted < asked {
            let note = format!("receive buffer: {granted} bytes granted of {asked} asked; raise net.core.rmem_max");
            assert_eq!(record.notes, [note]);
        } else {
            assert_eq!(record.notes, [""; 0]);
        }
    }
}

#[test]
fn idle_workers_carry_nothing() {
    let listen = plan("b", Role::Listen { address: address(), only_from: None }, Load::Idle, PHASES);
    let connect = plan("a", Role::connect(address()), Load::Idle, PHASES);
    let records = run(vec![pair(listen, connect)]).unwrap();
    for record in records {
        assert_eq!(record.direction, Direction::Idle);
        assert_eq!(record.bytes(), 0);
        assert_eq!(record.samples.len(), 3);
        assert!(record.connections.is_empty() && record.threads.is_empty());
    }
}
