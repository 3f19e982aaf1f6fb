//! Opening the connections of a load that makes one for each transaction.
//!
//! The end that closes first keeps the connection in TIME_WAIT for a minute (RFC 9293, 3.6.1). At the requester that would be the
//! end of its ports: it has 28 232 of them by default (ip_local_port_range). Therefore the responder closes first, and
//! its end of the stream travels in the segment with the last byte of the response: when the requester has read that, it
//! is the second to close, and its port is free at once. (Where the response may fill whole segments, the last of them may
//! have left before, and the requester waits for the end.) The responder's port is always the same, and a new request for
//! connection from an address that waits there is let in (RFC 6191). No connection is reset, and no port is chosen here:
//! that is left to connect(2), which takes one that is free for this destination.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rig_sys::socket::{self, Buffer as SocketBuffer, SourceBinding};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrAny, SocketFlags, SocketType, connect, recv, socket_with};

use super::super::receive_ended;
use super::{Connection, LoadProgress, ThreadFailure, Transactions};
use crate::plan::SocketOptions;

/// How long a thread blocks before it looks whether the load goes on.
pub(super) const GLANCE: Duration = Duration::from_millis(50);

/// A response that is smaller fits into a segment with room to spare (RFC 9293, 3.7.1), so that the end comes with it.
pub(super) const SMALLEST_SEGMENT: usize = 536;

/// Between a connection that failed and the next attempt.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// What every connection is made with.
#[derive(Debug)]
pub(super) struct ConnectOptions {
    to: SocketAddr,
    peer: SocketAddrAny,
    source: SourceBinding,
    family: AddressFamily,
    send_buffer: Option<u32>,
    receive_buffer: Option<u32>,
    no_delay: bool,
    congestion_control: Option<String>,
    options: SocketOptions,
}

impl ConnectOptions {
    pub(super) fn new(load: &Transactions, to: SocketAddr, source: SourceBinding) -> Self {
        Self {
            to,
            peer: to.into(),
            source,
            family: if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 },
            send_buffer: load.send_buffer,
            receive_buffer: load.receive_buffer,
            no_delay: load.no_delay,
            congestion_control: load.congestion_control.clone(),
            options: load.options,
        }
    }

    fn socket(&self, flags: SocketFlags) -> Result<OwnedFd, ThreadFailure> {
        let failed = |why: &dyn Display| ThreadFailure { what: "create a socket".into(), why: why.to_string() };
        let make = || {
            let fd = socket_with(self.family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?;
            if !flags.contains(SocketFlags::NONBLOCK) {
                for which in [Timeout::Send, Timeout::Recv] {
                    sockopt::set_socket_timeout(&fd, which, Some(GLANCE))?;
                }
            }
            if self.no_delay {
                sockopt::set_tcp_nodelay(&fd, true)?;
            }
            if let Some(name) = &self.congestion_control {
                // What it has already needs no privilege.
                sockopt::set_tcp_congestion(&fd, name).or_else(|refused| match sockopt::tcp_congestion(&fd) {
                    Ok(now) if now == *name => Ok(()),
                    _ => Err(refused),
                })?;
            }
            Ok(fd)
        };
        let fd = make().map_err(|errno: Errno| failed(&io::Error::from(errno)))?;
        // How much of them the kernel grants, the connections that stay have shown.
        for (buffer, bytes) in [(SocketBuffer::Send, self.send_buffer), (SocketBuffer::Receive, self.receive_buffer)] {
            if let Some(bytes) = bytes {
                socket::set_buffer(&fd, buffer, bytes).map_err(|error| failed(&error))?;
            }
        }
        self.options.apply(&fd, self.to.is_ipv6()).map_err(|error| failed(&error))?;
        self.source.bind(&fd, self.to).map_err(|error| failed(&error))?;
        Ok(fd)
    }

    /// A connection in blocking mode whose calls return every [`GLANCE`]. `None` when the load stopped meanwhile. The
    /// outer error ends the load, the inner one is the kernel's verdict on the attempt.
    pub(super) fn wait(&self, progress: &LoadProgress) -> Result<Result<Option<OwnedFd>, Errno>, ThreadFailure> {
        let fd = self.socket(SocketFlags::empty())?;
        loop {
            match connect(&fd, &self.peer) {
                Ok(()) | Err(Errno::ISCONN) => return Ok(Ok(Some(fd))),
                // The time is up; the handshake goes on.
                Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {
                    if progress.is_stopped() {
                        return Ok(Ok(None));
                    }
                }
                Err(errno) => return Ok(Err(errno)),
            }
        }
    }

    /// A connection in non-blocking mode, whose handshake may still be under way.
    pub(super) fn begin(&self) -> Result<Result<OwnedFd, Errno>, ThreadFailure> {
        let fd = self.socket(SocketFlags::NONBLOCK)?;
        Ok(match connect(&fd, &self.peer) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(errno) => Err(errno),
        })
    }
}

/// Whether the peer is still there, by the connection that was opened before the load and stays until its end. Fails
/// when it went inside the window.
pub(super) fn has_peer(kept: &Connection, progress: &LoadProgress) -> Result<bool, ThreadFailure> {
    match recv(&kept.socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => receive_ended(kept, progress, Ok(())).map(|()| false),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(errno) => receive_ended(kept, progress, Err(errno)).map(|()| false),
    }
}
