//! Sending pages that the kernel holds already, with splice(2) and tee(2).

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};

use super::modes::{Buffer, SendMethod};
use super::{Connection, ThreadFailure};

/// What is asked for as the pipes' size: the most that an unprivileged process gets (pipe(7)).
const PIPE: usize = 1 << 20;

/// How much of a message the store holds at most. A longer one is sent in rounds.
const STORE: usize = 256 << 10;

/// What a local socket keeps in one piece.
const PIECE: usize = 32 << 10;

/// A pipe that is never emptied holds the payload; for each message, tee(2) puts references to it into a second pipe,
/// which splice(2) then drains into the socket. Unlike sendfile(2), this looks up no page.
#[derive(Debug)]
pub(super) struct SpliceOut {
    store: Pipe,
    stored: usize,
    feed: Pipe,
    /// Bytes in the feed: what a socket did not take. They go first, to whichever socket comes next.
    fed: usize,
    message: usize,
}

#[derive(Debug)]
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // A user who has used up the allowance for large pipes gets the default size, and more rounds.
        let _ = fcntl_setpipe_size(&into, PIPE);
        Ok(Self { out, into })
    }
}

impl SpliceOut {
    pub(super) fn new(message: usize) -> Result<Self, ThreadFailure> {
        let make = || {
            let (store, feed) = (Pipe::new()?, Pipe::new()?);
            let stored = fill(&store, Buffer::new(message.min(STORE)).get())?;
            Ok(Self { store, stored, feed, fed: 0, message })
        };
        make().map_err(|errno: Errno| ThreadFailure {
            what: "fill a pipe with the payload".into(),
            why: std::io::Error::from(errno).to_string(),
        })
    }
}

/// Puts as much of `payload` into the pipe as there is room for, by way of a local socket: its pages are larger than
/// those that writing to the pipe would make, so that fewer have to be handled for each message.
fn fill(pipe: &Pipe, payload: &[u8]) -> Result<usize, Errno> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut stored = 0;
    for piece in payload.chunks(PIECE) {
        let mut left = send(&near, piece, SendFlags::NOSIGNAL)?;
        while left > 0 {
            match splice(far.as_fd(), None, &pipe.into, None, left, SpliceFlags::NONBLOCK) {
                Ok(bytes) => {
                    left -= bytes;
                    stored += bytes;
                }
                Err(Errno::AGAIN) if stored > 0 => return Ok(stored),
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(stored)
}

impl SendMethod for SpliceOut {
    #[inline]
    fn push(&mut self, connection: &Connection) -> Result<usize, Errno> {
        let mut sent = 0;
        while sent < self.message {
            let left = self.message - sent;
            if self.fed == 0 {
                self.fed = tee(&self.store.out, &self.feed.into, left.min(self.stored), SpliceFlags::NONBLOCK)?;
            }
            let part = self.fed.min(left);
            let flags = if part < left { SpliceFlags::MORE } else { SpliceFlags::empty() };
            match splice(&self.feed.out, None, &connection.socket, None, part, flags) {
                Ok(bytes) => {
                    self.fed -= bytes;
                    sent += bytes;
                }
                // What has been sent counts; the next push will meet the error again.
                Err(_) if sent > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Connection::new(client.into(), 0, String::new(), String::new()), listener.accept().unwrap().0)
    }

    #[test]
    fn messages_of_any_size_arrive_whole_and_unchanged() {
        for message in [1, 5000, 100_000, STORE, 3 * STORE + 1] {
            let (connection, mut peer) = pair();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                peer.read_to_end(&mut all).unwrap();
                all
            });
            let mut out = SpliceOut::new(message).unwrap();
            for _ in 0..3 {
                assert_eq!(out.push(&connection).unwrap(), message);
            }
            drop((out, connection));
            let received = reader.join().unwrap();
            assert_eq!(received.len(), 3 * message);
            let payload = Buffer::new(message.min(STORE));
            // Rounds begin anew with the payload's begin.
            for round in received.chunks(message).flat_map(|message| message.chunks(STORE)) {
                assert!(round == &payload.get()[..round.len()]);
            }
        }
    }

    #[test]
    fn what_one_socket_does_not_take_the_next_one_gets() {
        let message = 200_000;
        let mut out = SpliceOut::new(message).unwrap();
        let (full, _peer) = pair();
        rig_sys::socket::set_buffer(&full.socket, rig_sys::socket::Buffer::Send, 4096).unwrap();
        rustix::io::ioctl_fionbio(&full.socket, true).unwrap();
        let mut sent = 0;
        while let Ok(bytes) = out.push(&full) {
            sent += bytes;
        }
        assert!(sent > 0);
        assert_eq!(out.push(&full), Err(Errno::AGAIN));
        let left = out.fed;
        let (empty, mut peer) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()).unwrap());
        assert_eq!(out.push(&empty).unwrap(), message);
        assert!(left > 0 && out.fed <= message, "{left} bytes were left, {} are", out.fed);
        drop(empty);
        assert_eq!(reader.join().unwrap(), message as u64);
    }
}
