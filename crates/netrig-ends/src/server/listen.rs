//! The addresses a server listens on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use anyhow::{Result, anyhow, bail};
use rig_sys::socket::{NamedAddress, ZonedAddress};
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

/// Which clients are to reach a server that is told no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenScope {
    /// Programs on this machine, over loopback.
    OwnMachine,
    AnyMachine,
}

/// Attempts at finding a port that is free for both families, when the kernel chooses.
const ATTEMPTS: u32 = 16;

/// Listens on `address`, or on the addresses of the family within `reach` when there is none. Port 0 lets the kernel
/// choose.
///
/// # Errors
/// When the address is not this machine's or of another family, or the port is in use.
pub fn listen(
    address: Option<ZonedAddress>,
    port: u16,
    family: Family,
    reach: ListenScope,
) -> Result<Vec<TcpListener>> {
    let all_v6 = ZonedAddress::from(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let all_v4 = ZonedAddress::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let [own_v6, own_v4] = loopback();
    if let Some(address) = address.filter(|address| !family.has(address.ip())) {
        let option = if family == Family::V4 { "-4" } else { "-6" };
        bail!("{option} and --listen {address} exclude each other: leave one of them out");
    }
    let one = |address, only_v6| listen_on(address, port, only_v6).map(|listener| vec![listener]);
    let listeners = match (address, family, reach) {
        // All of both families, but where one was asked for.
        (Some(address), ..) => one(address, address != all_v6 || family == Family::V6),
        (None, Family::Any, ListenScope::OwnMachine) => listen_on_loopback(port),
        (None, Family::V4, ListenScope::OwnMachine) => one(own_v4, true),
        (None, Family::V6, ListenScope::OwnMachine) => one(own_v6, true),
        (None, Family::V4, ListenScope::AnyMachine) => one(all_v4, true),
        (None, Family::V6, ListenScope::AnyMachine) => one(all_v6, true),
        // One socket for both families, where the kernel has IPv6.
        (None, Family::Any, ListenScope::AnyMachine) => match one(all_v6, false) {
            Err(error) if is_no_ipv6(&error) => one(all_v4, true),
            result => result,
        },
    };
    let place =
        address.map_or_else(|| format!("port {port}"), |address| NamedAddress::from(address.at(port)).to_string());
    let refuse = |error: io::Error| {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => "`ss -ltnp` tells who listens there; --port takes another port",
            io::ErrorKind::AddrNotAvailable => "--listen takes an address of this machine",
            _ => "--listen and --port choose another place",
        };
        anyhow!("listen on {place}: {error}: {next}")
    };
    listeners.map_err(refuse)
}

/// Of IPv6 and of IPv4.
fn loopback() -> [ZonedAddress; 2] {
    [IpAddr::from(Ipv6Addr::LOCALHOST).into(), IpAddr::from(Ipv4Addr::LOCALHOST).into()]
}

/// Both families' loopback addresses, where the kernel has IPv6, on one port.
fn listen_on_loopback(port: u16) -> io::Result<Vec<TcpListener>> {
    let (mut attempts, [own_v6, own_v4]) = (0..ATTEMPTS, loopback());
    loop {
        let v4 = listen_on(own_v4, port, true)?;
        match listen_on(own_v6, v4.local_addr()?.port(), true) {
            Ok(v6) => return Ok(vec![v4, v6]),
            Err(error) if is_no_ipv6(&error) => return Ok(vec![v4]),
            // The port that the kernel chose for the one family need not be free for the other.
            Err(error) if port == 0 && error.kind() == io::ErrorKind::AddrInUse && attempts.next().is_some() => {}
            Err(error) => return Err(error),
        }
    }
}

fn listen_on(address: ZonedAddress, port: u16, only_v6: bool) -> io::Result<TcpListener> {
    let address = address.at(port);
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
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_address_of_another_family_is_refused() {
        for (address, family, option) in [("::1", Family::V4, "-4"), ("127.0.0.1", Family::V6, "-6")] {
            let error =
                listen(Some(address.parse().unwrap()), 0, family, ListenScope::AnyMachine).unwrap_err().to_string();
            assert!(error.contains(option) && error.contains(address), "{error}");
        }
        for family in [Family::Any, Family::V4] {
            listen(Some(loopback()[1]), 0, family, ListenScope::AnyMachine).unwrap();
        }
    }

    #[test]
    fn all_of_ipv6_is_all_of_ipv4_too_unless_one_was_asked_for() {
        let reached = |family: Family| {
            let listeners = match listen(Some("::".parse().unwrap()), 0, family, ListenScope::AnyMachine) {
                Ok(listeners) => listeners,
                Err(error) => return rig_skip::skip(rig_skip::Lack::Ipv6, error),
            };
            let port = listeners[0].local_addr().unwrap().port();
            let v4 = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
            assert_eq!(v4, family == Family::Any, "{family:?}");
        };
        reached(Family::Any);
        reached(Family::V6);
    }

    #[test]
    fn whom_nobody_shall_reach_from_outside_is_on_loopback_alone() {
        for family in [Family::Any, Family::V4] {
            let listeners = listen(None, 0, family, ListenScope::OwnMachine).unwrap();
            let addresses: Vec<SocketAddr> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
            assert!(addresses.iter().all(|address| address.ip().is_loopback()), "{addresses:?}");
            assert!(addresses.iter().all(|address| address.port() == addresses[0].port()), "{addresses:?}");
        }
        let all = listen(None, 0, Family::V4, ListenScope::AnyMachine).unwrap();
        assert!(all[0].local_addr().unwrap().ip().is_unspecified());
    }
}
