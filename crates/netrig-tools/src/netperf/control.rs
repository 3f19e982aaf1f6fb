//! The control connection, as netperf holds it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rig_sys::socket::{self, ZonedAddress};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::{Domain, SockAddr, Socket, Type};

use super::options::DataAddress;
use super::values::Family;
use super::wire::{MESSAGE, Message};

/// How long netperf waits for an answer, beside the time of the test.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// For the connection to come up.
const CONNECT: Duration = Duration::from_secs(60);
/// Between two looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(200);

/// A control connection that is up.
#[derive(Debug)]
pub struct Control(TcpStream);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("netserver closed the control connection: its own output, or its log, may say why")]
    Closed,
    #[error("no answer on the control connection within {0:?}")]
    Silent(Duration),
    #[error("stopped by the user")]
    Cancelled,
    #[error("the control connection: {0}")]
    Io(#[from] io::Error),
}

/// The addresses of a host of one family, or of both, the first of which is asked first.
///
/// # Errors
/// When there is none.
pub fn addresses(host: &str, family: Family) -> Result<Vec<ZonedAddress>, String> {
    let all = socket::resolve(host).map_err(|error| error.to_string())?;
    let fits = |address: &ZonedAddress| match family {
        Family::Unspecified => true,
        Family::Inet => !address.is_ipv6(),
        Family::Inet6 => address.is_ipv6(),
    };
    let fitting: Vec<_> = all.into_iter().filter(fits).collect();
    if fitting.is_empty() { Err(format!("{host} has no address of family {family}")) } else { Ok(fitting) }
}

/// One message from a control connection whose reads block for a while at most. `patience` is for its first byte, or for all of it where
/// there is none `for_rest`.
///
/// # Errors
/// When it does not come whole.
pub fn receive_message(
    stream: &mut TcpStream,
    patience: Duration,
    for_rest: Option<Duration>,
    is_over: &dyn Fn() -> bool,
) -> Result<Message, ControlError> {
    let (mut bytes, mut filled) = ([0; MESSAGE], 0);
    let mut until = Instant::now() + patience;
    while filled < MESSAGE {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ControlError::Closed),
            Ok(read) => {
                if let Some(for_rest) = for_rest.filter(|_| filled == 0) {
                    until = Instant::now() + for_rest;
                }
                filled += read;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                if is_over() {
                    return Err(ControlError::Cancelled);
                }
                if Instant::now() >= until {
                    return Err(ControlError::Silent(patience));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ControlError::Closed),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Message::from_bytes(bytes))
}

/// Whether the peer of a control connection has closed its end, while it has nothing to say.
pub fn is_closed(stream: &TcpStream) -> bool {
    match recv(stream, &mut [0_u8], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, read)) => read == 0,
        Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
    }
}

impl Control {
    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// That of the last address.
    pub fn open(to: &[ZonedAddress], port: u16, from: &DataAddress, from_port: u16) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
        for address in to {
            match Self::connect(address.at(port), from, from_port) {
                Ok(control) => return Ok(control),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect(to: SocketAddr, from: &DataAddress, from_port: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        if from.host.is_some() || from_port != 0 {
            let family = if to.is_ipv6() { Family::Inet6 } else { Family::Inet };
            let any: IpAddr = super::sockets::any_of(to.ip());
            let source = match &from.host {
                Some(host) => addresses(host, family).map_err(io::Error::other)?[0].at(from_port),
                None => SocketAddr::new(any, from_port),
            };
            socket.set_reuse_address(true)?;
            socket.bind(&SockAddr::from(source))?;
        }
        socket.connect_timeout(&SockAddr::from(to), CONNECT)?;
        socket.set_tcp_nodelay(true)?;
        // A server whose machine has gone is noticed in the end.
        socket.set_keepalive(true)?;
        Ok(Self(socket.into()))
    }

    pub fn peer(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    pub fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        self.0.set_write_timeout(Some(PATIENCE))?;
        Ok(self.0.write_all(message.as_bytes())?)
    }

    /// The next message whole. `is_over` is asked every now and then whether to go on waiting.
    ///
    /// # Errors
    /// When there is none within `patience`.
    pub fn receive(&mut self, patience: Duration, is_over: &dyn Fn() -> bool) -> Result<Message, ControlError> {
        self.0.set_read_timeout(Some(LOOK))?;
        receive_message(&mut self.0, patience, None, is_over)
    }

    /// Whether the server has closed its end, while no answer is due.
    pub fn is_closed(&self) -> bool {
        is_closed(&self.0)
    }

    /// Says that nothing more comes, and waits for the server to say so too.
    pub fn finish(mut self) {
        // Whatever the server does now changes nothing.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        let _ = self.0.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = self.0.read(&mut [0; 64]);
    }
}
