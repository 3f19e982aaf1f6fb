//! Where the sockets of a connecting end leave a machine.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::option::let_connect_choose_port;
use super::zone::ZonedAddress;
use crate::error::{Error, Result};

/// What sockets are bound to before they connect. By default nothing: the routing table decides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceBinding {
    /// The address that they send from, with a port of the kernel's choice (bind(2)). It has to be one of this machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<ZonedAddress>,
    /// The interface, or VRF, that they send and receive by (SO_BINDTODEVICE, socket(7)); 1 to 15 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

impl SourceBinding {
    pub fn is_default(&self) -> bool {
        self.address.is_none() && self.device.is_none()
    }

    /// Binds a socket that will connect to `to`.
    ///
    /// # Errors
    /// When the address is not one of this machine's or of another family than `to`, there is no such interface, or the kernel refuses.
    pub fn bind(&self, socket: impl AsFd, to: SocketAddr) -> Result<()> {
        let socket = SockRef::from(&socket);
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes())).map_err(|error| self.of_device(device, error))?;
        }
        let Some(address) = self.address else { return Ok(()) };
        let operation = || format!("send from the address {address}");
        if address.is_ipv6() != to.is_ipv6() {
            let why = format!("{} is of another family: choose an address of the same", ZonedAddress::from(to));
            return Err(Error::new(operation(), io::Error::other(why)));
        }
        // Else each local port would do for one connection, whatever its destination.
        let bind = let_connect_choose_port(&*socket).and_then(|()| socket.bind(&address.at(0).into()));
        bind.map_err(|error| match error.kind() {
            io::ErrorKind::AddrNotAvailable => {
                let why =
                    "it belongs to no interface here, or to another than the one asked for; `ip address` lists them";
                Error::new(operation(), io::Error::new(error.kind(), why))
            }
            _ => Error::new(operation(), error),
        })
    }

    fn of_device(&self, device: &str, error: io::Error) -> Error {
        let why = match Errno::from_io_error(&error) {
            Some(Errno::NODEV) => "there is no interface of this name here; `ip link` lists them",
            Some(Errno::PERM) => "before Linux 5.7 it takes CAP_NET_RAW: run as root",
            _ => return Error::new(format!("bind a socket to the interface {device}"), error),
        };
        Error::new(format!("bind a socket to the interface {device}"), io::Error::new(error.kind(), why))
    }
}

/// As `from 10.0.0.1 by eth0`; nothing where nothing is bound.
impl fmt::Display for SourceBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, &self.device) {
            (Some(address), Some(device)) => write!(f, "from {address} by {device}"),
            (Some(address), None) => write!(f, "from {address}"),
            (None, Some(device)) => write!(f, "by {device}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn bound_to(address: Option<&str>, device: Option<&str>, to: &str) -> Result<Socket> {
        let to: SocketAddr = to.parse().unwrap();
        let binding =
            SourceBinding { address: address.map(|text| text.parse().unwrap()), device: device.map(str::to_owned) };
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        binding.bind(&socket, to).map(|()| socket)
    }

    #[test]
    fn connections_leave_from_the_address_with_a_port_of_connects_choice() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        for listener in &listeners {
            let to = listener.local_addr().unwrap();
            let socket = bound_to(Some("127.0.0.9"), None, &to.to_string()).unwrap();
            assert_eq!(socket.local_addr().unwrap().as_socket().unwrap().port(), 0, "chosen by connect(2)");
            socket.connect(&to.into()).unwrap();
            assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.9");
        }
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let here = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let binding = SourceBinding { address: Some("127.0.0.9".parse().unwrap()), device: Some("lo".into()) };
        let to = there.local_addr().unwrap();
        binding.bind(&here, to).unwrap();
        here.connect(&to.into()).unwrap();
        here.send(b"?").unwrap();
        assert_eq!(there.recv_from(&mut [0; 1]).unwrap().1.ip().to_string(), "127.0.0.9");
    }

    #[test]
    fn what_is_not_here_is_refused_in_words() {
        for (address, device, to, words) in [
            (Some("192.0.2.77"), None, "127.0.0.1:1", "192.0.2.77: it belongs to no interface here"),
            (Some("::1"), None, "127.0.0.1:1", "127.0.0.1 is of another family"),
            (None, Some("no-such"), "[::1]:1", "the interface no-such: there is no interface of this name here"),
        ] {
            let error = bound_to(address, device, to).unwrap_err().to_string();
            assert!(error.contains(words), "'{words}' is not in: {error}");
        }
    }
}
