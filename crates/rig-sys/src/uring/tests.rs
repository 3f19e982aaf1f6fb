use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rig_skip::{Lack, skip};

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A ring, or `None` with a word about it where io_uring cannot be used.
fn ring(sockets: &[BorrowedFd<'_>], depth: u32, work: Operation, message: &[u8]) -> Option<Ring> {
    ring_with(sockets, depth, work, message, Some(depth))
}

fn ring_with(
    sockets: &[BorrowedFd<'_>],
    depth: u32,
    work: Operation,
    message: &[u8],
    buffers: Option<u32>,
) -> Option<Ring> {
    match Ring::with(sockets, depth, work, message, buffers) {
        Ok(ring) => Some(ring),
        Err(error @ (UringError::Disabled { .. } | UringError::Forbidden | UringError::Missing)) => {
            skip(Lack::IoUring, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sends_arrive_whole_however_small_the_socket_buffer() {
    for work in [Operation::Send, Operation::SendZeroCopy] {
        let (client, mut server) = pair();
        crate::socket::set_buffer(&client, crate::socket::Buffer::Send, 4096).unwrap();
        let message: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        let Some(mut ring) = ring(&[client.as_fd()], 3, work, &message) else { return };
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            all.len()
        });
        let (mut queued, mut done, mut copied) = (0, 0, 0);
        while done < 10 {
            queued += ring.queue(0, 10 - queued);
            assert!(ring.in_flight(0) <= 3);
            ring.wait(None).unwrap();
            while let Some(completion) = ring.completion() {
                match completion {
                    Completion::Result { result, holds, .. } => {
                        assert_eq!(result.unwrap(), message.len());
                        assert_eq!(holds, work == Operation::SendZeroCopy);
                        done += usize::from(!holds);
                    }
                    Completion::Released { copied: true, .. } => {
                        copied += 1;
                        done += 1;
                    }
                    Completion::Released { .. } => panic!("what loops back is always copied"),
                }
            }
        }
        assert_eq!(ring.total_in_flight(), 0);
        assert_eq!(copied, if work == Operation::SendZeroCopy { 10 } else { 0 }, "{work:?}");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), 10 * message.len());
    }
}

#[test]
fn receives_take_everything_and_see_the_end() {
    let ways = [Operation::Receive, Operation::Discard].into_iter().flat_map(|work| [(work, None), (work, Some(4))]);
    for (work, buffers) in ways {
        let (mut client, server) = pair();
        let (mut other, other_server) = pair();
        let servers = [server.as_fd(), other_server.as_fd()];
        let Some(mut ring) = ring_with(&servers, 4, work, &[0; 5000], buffers) else { return };
        let at_once = if ring.pool.is_some() { 1 } else { 4 };
        let writer = std::thread::spawn(move || {
            client.write_all(&[1; 300_000]).unwrap();
            other.write_all(&[1; 7]).unwrap();
        });
        let (mut received, mut ended) = ([0, 0], [false, false]);
        while ended != [true, true] {
            for (socket, ended) in ended.iter().enumerate() {
                if !ended && ring.in_flight(socket) == 0 {
                    assert_eq!(ring.queue(socket, usize::MAX), at_once);
                }
            }
            ring.wait(None).unwrap();
            while let Some(completion) = ring.completion() {
                let Completion::Result { socket, result, holds: false } = completion else { panic!("{completion:?}") };
                match result {
                    Ok(0) => ended[socket] = true,
                    Ok(bytes) => received[socket] += bytes,
                    Err(error) if buffers.is_some() && error.raw_os_error() == Some(libc::ENOBUFS) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        writer.join().unwrap();
        assert_eq!(received, [300_000, 7], "{work:?}, {buffers:?}");
    }
}

#[test]
fn received_bytes_land_in_the_buffers_in_order() {
    let (mut client, server) = pair();
    let Some(mut ring) = ring_with(&[server.as_fd()], 4, Operation::Receive, &[0; 4], None) else { return };
    ring.queue(0, 4);
    client.write_all(&[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]).unwrap();
    let mut done = 0;
    while done < 4 {
        ring.wait(None).unwrap();
        while let Some(completion) = ring.completion() {
            assert!(matches!(completion, Completion::Result { result: Ok(4), .. }), "{completion:?}");
            done += 1;
        }
    }
    for slot in 0..4 {
        let (buffer, length) = ring.slots.buffer(slot);
        // SAFETY: no operation is in flight, so the kernel does not write to the buffer.
        let bytes = unsafe { std::slice::from_raw_parts(buffer, length as usize) };
        assert_eq!(bytes, [slot as u8 + 1; 4]);
    }
}

/// Takes what one wait brings: the bytes of each completion, and whether a buffer was missing in the end.
fn taken(ring: &mut Ring) -> (Vec<usize>, bool) {
    let mut bytes = Vec::new();
    while let Some(completion) = ring.completion() {
        let Completion::Result { result, .. } = completion else { panic!("{completion:?}") };
        match result {
            Ok(more) => bytes.push(more),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return (bytes, true),
            Err(error) => panic!("{error}"),
        }
    }
    (bytes, false)
}

#[test]
fn a_multishot_receive_fills_one_buffer_after_the_other_and_goes_on_with_those_given_back() {
    let (mut client, server) = pair();
    let Some(mut ring) = ring(&[server.as_fd()], 4, Operation::Receive, &[0; 4]) else { return };
    if ring.pool.is_none() {
        return skip(Lack::IoUring, "multishot receives need Linux 6.12");
    }
    for round in 0..3u8 {
        ring.queue(0, 1);
        client.write_all(&[round + 1; 2]).unwrap();
        ring.wait(None).unwrap();
        assert_eq!(taken(&mut ring), (vec![2], false));
        assert_eq!(ring.in_flight(0), 1, "one operation completes often");
        // Two bytes of the first buffer are left, and three more buffers; the last byte finds no place.
        client.write_all(&[round + 11; 15]).unwrap();
        let (mut bytes, mut full) = (Vec::new(), false);
        while !full {
            ring.wait(None).unwrap();
            let (more, missing) = taken(&mut ring);
            bytes.extend(more);
            full = missing;
        }
        assert_eq!(bytes, [2, 4, 4, 4], "round {round}");
        assert_eq!(ring.in_flight(0), 0);
        let pool = ring.pool.as_ref().unwrap();
        let first = (u16::from(round) * 4 + u16::from(round)) % 4;
        assert_eq!(pool.buffer(first)[..2], [round + 1; 2], "round {round}");
        assert_eq!(pool.buffer((first + 1) % 4), [round + 11; 4], "round {round}");
        // The byte that is left begins the next buffer.
        ring.queue(0, 1);
        ring.wait(None).unwrap();
        assert_eq!(taken(&mut ring), (vec![1], false));
        client.write_all(&[0; 3]).unwrap();
        ring.wait(None).unwrap();
        assert_eq!(taken(&mut ring), (vec![3], false));
    }
}

#[test]
fn small_messages_have_many_buffers_but_not_any_number() {
    assert_eq!(shared_buffers(2, 128 << 10), 8);
    assert_eq!(shared_buffers(16, 128 << 10), 16);
    assert_eq!(shared_buffers(1, 64 << 20), 1);
    assert_eq!(shared_buffers(1, 1), 64);
    assert_eq!(receive_buffers(1, 1, 64 << 20), 2, "one is filled while the other is looked at");
    assert_eq!(receive_buffers(1, 9, 128 << 10), 9);
    assert_eq!(receive_buffers(32, 1024, 1), 32 << 10);
}

#[test]
fn a_wait_that_gathers_ends_with_two_sockets_or_its_time() {
    let ((mut client, server), (mut other, other_server)) = (pair(), pair());
    let servers = [server.as_fd(), other_server.as_fd()];
    let Some(mut ring) = ring(&servers, 4, Operation::Receive, &[0; 4096]) else { return };
    ring.gather(Duration::from_secs(3000));
    ring.queue(0, 1);
    ring.queue(1, 1);
    client.write_all(b"one").unwrap();
    ring.wait(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(taken(&mut ring), (vec![3], false), "the end of the wait gives what has come");
    client.write_all(b"one").unwrap();
    other.write_all(b"two").unwrap();
    ring.wait(None).unwrap();
    assert_eq!(taken(&mut ring), (vec![3, 3], false));
    // The time is over and nothing has come: then the first arrival ends the wait.
    ring.gather(Duration::from_millis(1));
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        client.write_all(b"later").unwrap();
        client
    });
    ring.wait(None).unwrap();
    assert_eq!(taken(&mut ring), (vec![5], false));
    drop(writer.join().unwrap());
}

#[test]
fn a_wait_ends_in_time_and_dropping_gives_the_buffers_back() {
    let (_client, server) = pair();
    let Some(mut multishot) = ring(&[server.as_fd()], 8, Operation::Receive, &[0; 4096]) else { return };
    multishot.queue(0, 100);
    multishot.wait(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(multishot.total_in_flight(), 1);
    assert!(multishot.cancel(), "the kernel did not give the operation back");
    let Some(mut ring) = ring_with(&[server.as_fd()], 8, Operation::Receive, &[0; 4096], None) else { return };
    assert_eq!(ring.queue(0, 100), 8);
    ring.wait(Some(Duration::from_millis(1))).unwrap();
    assert!(ring.completion().is_none());
    assert_eq!(ring.total_in_flight(), 8);
    assert!(ring.cancel(), "the kernel did not give the operations back");
    assert_eq!(ring.total_in_flight(), 0);
}

#[test]
fn shutting_a_socket_down_ends_its_operations() {
    let (_client, server) = pair();
    for buffers in [None, Some(3)] {
        let Some(mut ring) = ring_with(&[server.as_fd()], 3, Operation::Receive, &[0; 4096], buffers) else { return };
        ring.queue(0, 3);
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        server.shutdown(Shutdown::Both).unwrap();
        while ring.total_in_flight() > 0 {
            ring.wait(None).unwrap();
            while let Some(completion) = ring.completion() {
                assert!(matches!(completion, Completion::Result { result: Ok(0) | Err(_), .. }), "{completion:?}");
            }
        }
    }
}

#[test]
fn what_is_called_available_can_be_had() {
    let (client, _server) = pair();
    let all = [Operation::Send, Operation::SendZeroCopy, Operation::Receive, Operation::Discard];
    let made = all.into_iter().try_for_each(|work| Ring::new(&[client.as_fd()], 1, work, &[0; 10]).map(drop));
    match (available(), made) {
        (Ok(()), Ok(())) => {}
        (Err(error), Err(same)) => {
            assert_eq!(error.to_string(), same.to_string());
            assert!(error.to_string().contains("blocking engine"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn dropping_does_not_wait_for_a_peer_that_does_not_read() {
    let (client, _server) = pair();
    let Some(mut ring) = ring(&[client.as_fd()], 4, Operation::SendZeroCopy, &[1; 1 << 20]) else { return };
    // More than the socket buffers hold, so that not all of it is sent, let alone acknowledged.
    let mut results = 0;
    for _ in 0..20 {
        ring.queue(0, 4);
        ring.wait(Some(Duration::from_millis(1))).unwrap();
        while ring.completion().is_some_and(|c| matches!(c, Completion::Result { .. })) {
            results += 1;
        }
    }
    assert!(ring.total_unfinished() > 0, "{results} messages fit into the socket buffers");
    client.shutdown(Shutdown::Both).unwrap();
    while ring.total_unfinished() > 0 {
        ring.wait(None).unwrap();
        while ring.completion().is_some() {}
    }
    drop(ring);
}

#[test]
fn a_descriptor_wakes_a_thread_whose_operations_do_not() {
    let (_client, server) = pair();
    let Some(mut ring) = ring(&[server.as_fd()], 1, Operation::Receive, &[0; 10]) else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    ring.wake_on(reader.as_fd()).unwrap();
    drop(reader);
    ring.queue(0, 1);
    let waker = std::thread::spawn(move || {
        // The ring alone keeps the pipe's other end open.
        writer.write_all(b"!").unwrap();
        writer
    });
    ring.wait(None).unwrap();
    assert!(ring.completion().is_none());
    assert_eq!(ring.total_unfinished(), 1);
    drop(waker.join().unwrap());
}
