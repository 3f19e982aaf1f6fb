//! A client's connections for one transaction each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rig_sys::socket::ZonedAddress;
use socket2::{Domain, SockAddr};

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
    fn take_port(&mut self) -> u16 {
        let (first, last) = self.options.client_ports.unwrap_or(CLIENT_PORTS);
        let port = self.next_port;
        self.next_port = if port >= last { first } else { port + 1 };
        // The server's own port cannot be had on one machine.
        if port == self.to.port() { self.take_port() } else { port }
    }
}

impl Connect for Connections<'_> {
    fn connect(&mut self) -> io::Result<Option<OwnedFd>> {
        let socket = self.settings.open(self.domain, self.options.transport)?;
        let from = self.from.at(self.take_port());
        let in_use = |error: &io::Error| {
            matches!(
                error.kind(),
                io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied
            )
        };
        match socket.bind(&SockAddr::from(from)) {
            // Another program has it, or it is kept for root: the next one.
            Err(error)
                if in_use(&error)
                    && !self.from.ip().is_unspecified()
                    && error.kind() == io::ErrorKind::AddrNotAvailable =>
            {
                return Err(error);
            }
            Err(error) if in_use(&error) => return Ok(None),
            result => result?,
        }
        match socket.connect(&SockAddr::from(self.to)) {
            // The connection that had this port before is not forgotten by both ends yet.
            Err(error) if in_use(&error) || self.options.goes_on => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(IN_PROGRESS) => {
                Ok(None)
            }
            Err(error) => Err(error),
            Ok(()) => {
                if self.first.is_none() {
                    self.first = socket.local_addr().ok().and_then(|address| address.as_socket());
                }
                Ok(Some(OwnedFd::from(socket)))
            }
        }
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

/// EINPROGRESS: the connection was not up within the time that a call blocks.
const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();
