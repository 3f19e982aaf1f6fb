//! A client's connections for one transaction each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rig_sys::socket::ZonedAddress;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use socket2::{Domain, SockAddr, Socket};

use super::data::Connect;
use super::options::Options;
use super::sockets::{BufferSizes, SocketSettings, TransportFacts};

/// Ports where netperf begins to look for one that no connection has, without `-p`.
pub const CLIENT_PORTS: (u16, u16) = (5000, 65_535);

/// Connections for one transaction each, from ports that take turns.
pub struct Connections<'a> {
    pub settings: SocketSettings,
    pub domain: Domain,
    pub options: &'a Options,
    pub from: ZonedAddress,
    pub to: SocketAddr,
    pub next_port: u16,
    /// Where the first came from.
    pub first: Option<SocketAddr>,
    pub facts: Option<TransportFacts>,
    pub buffers: Option<BufferSizes>,
}

impl Connections<'_> {
    /// The next port of those that take turns. On one machine the server's own cannot be had.
    fn take_port(&mut self) -> u16 {
        let (first, last) = self.options.client_ports.unwrap_or(CLIENT_PORTS);
        let mut port = self.next_port;
        if port == self.to.port() {
            port = if port >= last { first } else { port + 1 };
        }
        self.next_port = if port >= last { first } else { port + 1 };
        port
    }

    /// Waits for a connection that is not up yet. False where it was told to stop before.
    fn is_up(socket: &Socket, stop: &AtomicBool) -> io::Result<bool> {
        let slice = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&slice)) {
                Ok(0) | Err(Errno::INTR) if stop.load(Ordering::Relaxed) => return Ok(false),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return socket.take_error()?.map_or(Ok(true), Err),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Connect for Connections<'_> {
    fn connect(&mut self, stop: &AtomicBool) -> io::Result<Option<OwnedFd>> {
        let socket = self.settings.open(self.domain, self.options.transport)?;
        let from = self.from.at(self.take_port());
        match socket.bind(&SockAddr::from(from)) {
            // Another program has it, or it is kept for root: the next one.
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
                return Ok(None);
            }
            result => result?,
        }
        let connected = match socket.connect(&SockAddr::from(self.to)) {
            // A call blocks for a while at most, and the handshake goes on.
            Err(error) if is_under_way(&error) => match Self::is_up(&socket, stop) {
                Ok(false) => return Ok(None),
                result => result.map(drop),
            },
            result => result,
        };
        match connected {
            // The connection that had this port before is not forgotten by both ends yet.
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {
                Ok(None)
            }
            Err(_) if self.options.survives_failed_connects => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                if self.first.is_none() {
                    self.first = socket.local_addr().ok().and_then(|address| address.as_socket());
                }
                Ok(Some(OwnedFd::from(socket)))
            }
        }
    }

    fn closes_first(&self) -> bool {
        self.options.no_control
    }

    fn exchanges(&self) -> bool {
        self.options.request.is_some()
    }

    fn look(&mut self, connection: &OwnedFd) {
        if self.facts.is_none() {
            self.facts = Some(TransportFacts::of(connection));
            self.buffers = BufferSizes::of(connection).ok();
        }
    }
}

fn is_under_way(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INPROGRESS | Errno::AGAIN))
}
