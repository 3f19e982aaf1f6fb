//! A probe over a connection of the kernel's: connect, send, read, judge. Nothing waits.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rig_sys::socket::{SourceBinding, ZonedAddress};
use socket2::{Domain, Protocol, Socket, Type};

use super::judge::StreamJudge;
use super::words::{self, Verdict};

/// Bytes that are read at once.
const PIECE: usize = 4096;

#[derive(Debug)]
pub struct StreamProbe {
    socket: Socket,
    request: Vec<u8>,
    sent: usize,
    is_connected: bool,
    judge: StreamJudge,
}

/// Binds a socket to the address that checks shall come from.
pub(super) fn bind(socket: &Socket, source: Option<IpAddr>, to: SocketAddr) -> io::Result<()> {
    let address = source.map(|address| ZonedAddress::from(SocketAddr::new(address, 0)));
    SourceBinding { address, device: None }.bind(socket, to).map_err(io::Error::other)
}

impl StreamProbe {
    pub fn start(to: SocketAddr, source: Option<IpAddr>, request: Vec<u8>, judge: StreamJudge) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        bind(&socket, source, to)?;
        // Closed by a reset: thousands of probes a second would leave as many ports in TIME-WAIT for a minute.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        Ok(Self { socket, request, sent: 0, is_connected: false, judge })
    }

    pub fn judge(&self) -> &StreamJudge {
        &self.judge
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Goes on as far as it can; the socket is ready for something.
    pub fn go_on(&mut self) -> Option<Verdict> {
        match self.step() {
            Ok(verdict) => verdict,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(words::of_error(&error))),
        }
    }

    /// As [`Self::go_on`], with the kernel's error.
    pub fn step(&mut self) -> io::Result<Option<Verdict>> {
        if !self.is_connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            // Readable or writable is what a socket is that is not connected yet, now and then.
            match self.socket.peer_addr() {
                Err(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(None),
                peer => peer.map(|_| ())?,
            }
            self.is_connected = true;
            if !self.judge.wants_answer() {
                return Ok(Some(Ok(())));
            }
        }
        let mut piece = [0; PIECE];
        loop {
            self.send()?;
            match (&self.socket).read(&mut piece)? {
                0 => return Ok(Some(self.judge.end())),
                read => {
                    let verdict = self.judge.take(&piece[..read]);
                    self.request.extend(self.judge.outgoing());
                    if verdict.is_some() {
                        // What an alert says belongs to the peer's log; the verdict stands without it.
                        let _unsent = self.send();
                        return Ok(verdict);
                    }
                }
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.request.len() {
            self.sent += (&self.socket).write(&self.request[self.sent..])?;
        }
        Ok(())
    }

    pub fn late(&self, timeout: Duration) -> String {
        match self.is_connected {
            false => words::no_answer(timeout),
            true => format!("{} within {}", self.judge.late(), rig_stats::units::Span(timeout)),
        }
    }
}
