//! Data sockets, with everything set that matters before a connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rig_sys::socket::{self, Buffer};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::data::LOOK;
use super::values::{SendReceive, Transport};

/// What a data socket shall have.
#[derive(Debug, Clone, Default)]
pub struct SocketSettings {
    /// SO_SNDBUF and SO_RCVBUF in bytes; `None` is the kernel's own choice.
    pub buffer: SendReceive<Option<u32>>,
    pub no_delay: bool,
    pub cork: bool,
    /// TCP_MAXSEG
    pub segment_size: Option<u32>,
    pub keep_alive: bool,
    pub routed: bool,
    pub priority: Option<u32>,
    pub type_of_service: Option<u8>,
    /// Bytes per second.
    pub pacing: Option<u64>,
    pub congestion_control: Option<String>,
    pub keep_whole: bool,
    /// Of a socket that connects: data goes with the first segment.
    pub fast_open: bool,
    /// Of datagrams: what the machine's own queues drop is an error (IP_RECVERR, ip(7)).
    pub tells_drops: bool,
}

/// What the kernel says that a socket has; bytes as it tells them, twice what was asked for (socket(7)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferSizes {
    pub send: u32,
    pub receive: u32,
}

impl BufferSizes {
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self { send: socket::buffer(&socket, Buffer::Send)?, receive: socket::buffer(&socket, Buffer::Receive)? })
    }
}

impl SocketSettings {
    /// A socket of the transport, for addresses of `domain`'s family.
    ///
    /// # Errors
    /// A transport that the kernel does not have, or what it does not grant.
    pub fn open(&self, domain: Domain, transport: Transport) -> io::Result<Socket> {
        let kind = if transport.is_datagram() { Type::DGRAM } else { Type::STREAM };
        let protocol = Protocol::from(transport.number() as i32);
        let lacking = |error: io::Error| match error.raw_os_error() {
            Some(libc_errno) if libc_errno == rustix::io::Errno::PROTONOSUPPORT.raw_os_error() => {
                let why = format!("this kernel has no {}", transport.word());
                io::Error::new(io::ErrorKind::Unsupported, format!("{why}: {error}"))
            }
            _ => error,
        };
        let socket = Socket::new(domain, kind, Some(protocol)).map_err(lacking)?;
        // Within the limits that the machine has for everybody: as root more could be had, of the server's for any client.
        if let Some(asked) = self.buffer.send {
            socket.set_send_buffer_size(asked as usize)?;
        }
        if let Some(asked) = self.buffer.receive {
            socket.set_recv_buffer_size(asked as usize)?;
        }
        match transport {
            Transport::Tcp => {
                if self.no_delay {
                    socket.set_tcp_nodelay(true)?;
                }
                if self.cork {
                    socket.set_tcp_cork(true)?;
                }
                if self.fast_open {
                    socket::set_fast_open_connect(&socket)?;
                }
                if let Some(size) = self.segment_size {
                    socket.set_tcp_mss(size)?;
                }
                if let Some(name) = &self.congestion_control {
                    socket::set_congestion_control(&socket, name).map_err(io::Error::other)?;
                }
            }
            Transport::Sctp if self.no_delay => socket::sctp::set_no_delay(&socket)?,
            _ => {}
        }
        if self.keep_alive {
            socket.set_keepalive(true)?;
        }
        socket.set_reuse_address(true)?;
        if !self.routed {
            socket::set_dont_route(&socket, true)?;
        }
        if let Some(priority) = self.priority {
            socket.set_priority(priority)?;
        }
        let ipv6 = domain == Domain::IPV6;
        match self.type_of_service.map(u32::from) {
            Some(service) if ipv6 => socket.set_tclass_v6(service)?,
            Some(service) => socket.set_tos_v4(service)?,
            None => {}
        }
        if let Some(rate) = self.pacing {
            socket::set_pacing_rate(&socket, rate)?;
        }
        if self.keep_whole {
            socket::keep_packets_whole(&socket, ipv6)?;
        }
        if self.tells_drops && transport.is_datagram() {
            socket::set_receive_errors(&socket, ipv6)?;
        }
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(LOOK))?;
        Ok(socket)
    }
}

/// Binds where it has to be: to an address or a port that was asked for, and a datagram socket always.
///
/// # Errors
/// Those of bind(2), with the address.
pub fn bind(socket: &Socket, at: SocketAddr, transport: Transport) -> io::Result<()> {
    if at.ip().is_unspecified() && at.port() == 0 && !transport.is_datagram() {
        return Ok(());
    }
    socket
        .bind(&SockAddr::from(at))
        .map_err(|error| io::Error::new(error.kind(), format!("bind the data socket to {at}: {error}")))
}

/// Any address of the other's family.
pub fn any_of(other: IpAddr) -> IpAddr {
    if other.is_ipv4() { [0; 4].into() } else { [0; 16].into() }
}

/// What TCP tells of a connection at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransportFacts {
    /// TCP_MAXSEG
    pub segment_size: Option<u32>,
    pub retransmissions: Option<u32>,
    pub congestion_control: String,
}

impl TransportFacts {
    /// Empty where the transport is not TCP.
    pub fn of(socket: impl AsFd) -> Self {
        let reference = socket2::SockRef::from(&socket);
        Self {
            segment_size: reference.tcp_mss().ok(),
            retransmissions: socket::tcp_info(&socket).ok().map(|info| info.total_retransmits),
            congestion_control: socket::congestion_control(&socket).unwrap_or_default(),
        }
    }
}
