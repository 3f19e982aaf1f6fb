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
fn ring(sockets: &[BorrowedFd<'_>], depth: u32, work: Work, message: &[u8]) -> Option<Ring> {
    match Ring::new(sockets, depth, work, message) {
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
    for work in [Work::Send, Work::SendZeroCopy] {
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
                        assert_eq!(holds, work == Work::SendZeroCopy);
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
        assert_eq!(copied, if work == Work::SendZeroCopy { 10 } else { 0 }, "{work:?}");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), 10 * message.len());
    }
}

#[test]
fn receives_take_everything_and_see_the_end() {
    for work in [Work::Receive, Work::Discard] {
        let (mut client, server) = pair();
        let (mut other, other_server) = pair();
        let Some(mut ring) = ring(&[server.as_fd(), other_server.as_fd()], 4, work, &[0; 5000]) else { return };
        let writer = std::thread::spawn(move || {
            client.write_all(&[1; 300_000]).unwrap();
            other.write_all(&[1; 7]).unwrap();
        });
        let (mut received, mut ended) = ([0, 0], [false, false]);
        while ended != [true, true] {
            for (socket, ended) in ended.iter().enumerate() {
                if !ended && ring.in_flight(socket) == 0 {
                    assert_eq!(ring.queue(socket, usize::MAX), 4);
                }
            }
            ring.wait(None).unwrap();
            while let Some(completion) = ring.completion() {
                let Completion::Result { socket, result, .. } = completion else { panic!("{completion:?}") };
                match result.unwrap() {
                    0 => ended[socket] = true,
                    bytes => received[socket] += bytes,
                }
            }
        }
        writer.join().unwrap();
        assert_eq!(received, [300_000, 7], "{work:?}");
    }
}

#[test]
fn received_bytes_land_in_the_buffers_in_order() {
    let (mut client, server) = pair();
    let Some(mut ring) = ring(&[server.as_fd()], 4, Work::Receive, &[0; 4]) else { return };
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

#[test]
fn a_wait_ends_in_time_and_dropping_gives_the_buffers_back() {
    let (_client, server) = pair();
    let Some(mut ring) = ring(&[server.as_fd()], 8, Work::Receive, &[0; 4096]) else { return };
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
    let Some(mut ring) = ring(&[server.as_fd()], 3, Work::Receive, &[0; 4096]) else { return };
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

#[test]
fn what_is_called_available_can_be_had() {
    let (client, _server) = pair();
    let all = [Work::Send, Work::SendZeroCopy, Work::Receive, Work::Discard];
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
    let Some(mut ring) = ring(&[client.as_fd()], 4, Work::SendZeroCopy, &[1; 1 << 20]) else { return };
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
    let Some(mut ring) = ring(&[server.as_fd()], 1, Work::Receive, &[0; 10]) else { return };
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
