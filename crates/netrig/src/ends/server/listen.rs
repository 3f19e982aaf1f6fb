//! The addresses a server listens on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use anyhow::{Result, anyhow, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 512;

/// Which family of addresses is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

impl Family {
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// Listens on `address`, or on all addresses of the family when there is none. Port 0 lets the kernel choose.
///
/// # Errors
/// When the address is not this machine's or of another family, or the port is in use.
pub fn listen(address: Option<IpAddr>, port: u16, family: Family) -> Result<Vec<TcpListener>> {
    let all_v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let all_v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    if let Some(address) = address.filter(|address| !family.has(*address)) {
        let option = if family == Family::V4 { "-4" } else { "-6" };
        bail!("{option} and --listen {address} exclude each other: leave one of them out");
    }
    let listener = match (address, family) {
        (Some(address), _) => listen_on(address, port, true),
        (None, Family::V4) => listen_on(all_v4, port, true),
        (None, Family::V6) => listen_on(all_v6, port, true),
        // One socket for both families, where the kernel has IPv6.
        (None, Family::Any) => match listen_on(all_v6, port, false) {
            Err(error) if is_no_ipv6(&error) => listen_on(all_v4, port, true),
            result => result,
        },
    };
    let place = address.map_or_else(|| format!("port {port}"), |address| SocketAddr::new(address, port).to_string());
    let refuse = |error: io::Error| {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => "`ss -ltnp` tells who listens there; --port takes another port",
            io::ErrorKind::AddrNotAvailable => "--listen takes an address of this machine",
            _ => "--listen and --port choose another place",
        };
        anyhow!("listen on {place}: {error}: {next}")
    };
    Ok(vec![listener.map_err(refuse)?])
}

fn listen_on(address: IpAddr, port: u16, only_v6: bool) -> io::Result<TcpListener> {
    let address = SocketAddr::new(address, port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // A server that is started again must not wait for the connections of the one before.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn is_no_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_family_is_refused() {
        for (address, family, option) in [("::1", Family::V4, "-4"), ("127.0.0.1", Family::V6, "-6")] {
            let error = listen(Some(address.parse().unwrap()), 0, family).unwrap_err().to_string();
            assert!(error.contains(option) && error.contains(address), "{error}");
        }
        for family in [Family::Any, Family::V4] {
            listen(Some(Ipv4Addr::LOCALHOST.into()), 0, family).unwrap();
        }
    }
}
